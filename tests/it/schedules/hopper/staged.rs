//! Elementwise programs and windows that pass through shared memory by bulk copies, in rings, filled by warps of their own.

use super::super::programs::Program;
use super::super::source::Source;

/// A program, and steps for it.
pub fn schedule(source: &mut Source) -> (Program, Vec<String>) {
    match source.below(4) {
        0 => turned(source),
        1 => windows(source),
        2 => shared(source),
        _ => scaled(source),
    }
}

fn lines(text: &str) -> Vec<String> {
    text.split(['\n', ';']).map(|s| s.trim().to_string()).filter(|s| !s.is_empty()).collect()
}

/// A multiple of a tile, or nearly.
fn size(tile: i64, most: usize, source: &mut Source) -> usize {
    let whole = tile * (1 + source.below(most) as i64);
    (whole - if source.chance(30) { source.of([1, 4, 8, 16]) } else { 0 }).max(1) as usize
}

fn ring(l: &str, source: &mut Source) -> String {
    let stages = 1 + source.below(5);
    match source.below(4) {
        _ if stages < 2 => String::new(),
        0 => format!("pipeline {l} stages={stages} in_flight={}\n", source.below(stages)),
        _ => format!("pipeline {l} stages={stages}\n"),
    }
}

fn role(stage: &str, source: &mut Source) -> String {
    match source.chance(60) {
        true => format!("specialize {stage} -> load warps={}\n", source.of([1, 1, 2, 4])),
        false => String::new(),
    }
}

/// A transposition, tile by tile.
fn turned(source: &mut Source) -> (Program, Vec<String>) {
    let (dtype, chunk) = source.of([("f16", 64), ("f32", 32), ("s8", 128), ("bf16", 64)]);
    let [a, b] = [0, 1].map(|_| source.of([16, 32, 64, chunk]));
    let sizes = vec![size(a, 4, source), size(b, 4, source)];
    let threads = source.of([64, 128, 256]);
    let persistent = if source.chance(50) {
        format!("fuse i0 j0 -> tile; bind tile blockIdx.x{}\n", source.of(["", " persistent", " persistent"]))
    } else {
        source.of(["bind i0 blockIdx.x; bind j0 blockIdx.y\n", "bind i0 blockIdx.x\n"]).to_string()
    };
    let at = if persistent.contains("tile") { "tile" } else { "j0" };
    let swizzle = source.of(["", "swizzle A_s 128\n", "swizzle A_s 64\n", "swizzle A_s 32\n", "swizzle B_s 128\n"]);
    let stores = source.of(["cache_write B B shared -> B_s; reverse_compute_at B_s PLACE; copy_with B_s tma\n", ""]);
    let text = format!(
        "split i ? {a} -> i0 i1; split j ? {b} -> j0 j1; reorder i0 j0 i1 j1\n{persistent}\
         cache_read B A shared -> A_s; compute_at A_s {at}; copy_with A_s tma\n{}{swizzle}\
         fuse i1 j1 -> t; split t ? {threads} -> u v; bind v threadIdx.x\n{}{}",
        stores.replace("PLACE", at),
        ring(at, source),
        role("A_s", source),
    );
    let template =
        format!("program transpose\ninput A {dtype}[{{1}}, {{0}}]\nB: output B[i {{0}}, j {{1}}] {dtype} = A[j, i]");
    (Program { template, sizes }, lines(&text))
}

/// Strips scaled box after box.
fn scaled(source: &mut Source) -> (Program, Vec<String>) {
    let dtype = source.of(["f32", "f16", "s32", "u8"]);
    let (a, b) = (source.of([8, 16, 32]), source.of([16, 32, 64]));
    let sizes = vec![size(a, 4, source), size(b, 6, source)];
    let threads = source.of([64, 128, 256]);
    let blocks = source.of(["bind i0 blockIdx.x", "bind i0 blockIdx.x persistent", ""]);
    let how = source.of(["copy_with A_s tma", "copy_with A_s tma", ""]);
    let store = source.of(["cache_write B B shared -> B_s; reverse_compute_at B_s j0; copy_with B_s tma", ""]);
    let apart = source.of(["", "swizzle A_s 64", "swizzle B_s 64", "swizzle A_s B_s 32"]);
    let groups = source.of(["bind v threadIdx.x", "bind v threadIdx.x", "split v ? 128 -> g v1; bind v1 threadIdx.x"]);
    let text = format!(
        "split i ? {a} -> i0 i1; split j ? {b} -> j0 j1; reorder i0 j0 i1 j1; {blocks}\n\
         cache_read B A shared -> A_s; compute_at A_s j0 -> a0 a1; {how}\n{store}\n{apart}\n\
         fuse i1 j1 -> t; split t ? {threads} -> u v; {groups}\n{}{}",
        ring("j0", source),
        role("A_s", source),
    );
    let template = format!(
        "program scale\ninput A {dtype}[{{0}}, {{1}}]\nB: output B[i {{0}}, j {{1}}] {dtype} = A[i, j] * 2 + 1"
    );
    (Program { template, sizes }, lines(&text))
}

/// A window that moves along a strip, fetched by warps of their own.
fn windows(source: &mut Source) -> (Program, Vec<String>) {
    let (trips, threads) = (source.of([2, 4, 8]), source.of([32, 64, 128]));
    let sizes = vec![size(trips * threads, 3, source)];
    let warps = source.of([1, 1, 2, 4]);
    let copies = match source.below(4) {
        0 => "copy_with A_s tma\n".to_string(),
        1 => format!("split ax0 ? {} -> ax1 ax2; bind ax2 threadIdx.x; copy_with A_s cp_async\n", 32 * warps),
        _ => format!("split ax0 ? {} -> ax1 ax2; bind ax2 threadIdx.x\n", 32 * warps),
    };
    let text = format!(
        "split i ? {trips} {threads} -> i0 it i1; bind i0 blockIdx.x{}; bind i1 threadIdx.x\n\
         cache_read C A shared -> A_s; compute_at A_s it -> ax0\nspecialize A_s -> load warps={warps}\n{copies}{}",
        source.of(["", " persistent"]),
        ring("it", source)
    );
    (Program { template: "window_sum {0}".into(), sizes }, lines(&text))
}

/// Blocks of a cluster that read the same boxes.
fn shared(source: &mut Source) -> (Program, Vec<String>) {
    let (a, b) = (source.of([8, 16, 32]), source.of([16, 32, 64]));
    let cluster = source.of([2, 2, 4]);
    let sizes = vec![cluster * (1 + source.below(2)), size(a, 3, source), size(b, 5, source)];
    let how = source.of(["tma multicast=bc", "tma multicast=bc", "tma multicast=bc", "tma"]);
    let threads = source.of([32, 128, 256]);
    let walk = source.of(["bind t blockIdx.x", "bind t blockIdx.x persistent"]);
    let store = source.of(["", "cache_write O O shared -> O_s; reverse_compute_at O_s j0; copy_with O_s tma"]);
    let text = format!(
        "split b ? {cluster} -> b0 bc; split i ? {a} -> i0 i1; split j ? {b} -> j0 j1\n\
         reorder b0 i0 bc j0 i1 j1; fuse b0 i0 -> t; {walk}; bind bc cluster\n\
         cache_read O A shared -> A_s; compute_at A_s j0; copy_with A_s {how}\n{store}\n\
         fuse i1 j1 -> e; split e ? {threads} -> u v; bind v threadIdx.x\n{}{}",
        ring("j0", source),
        role("A_s", source),
    );
    let dtype = source.of(["f32", "f16", "s32"]);
    let template = format!(
        "program outer\ninput A {dtype}[{{1}}, {{2}}]; input V {dtype}[{{0}}]\n\
         O: output O[b {{0}}, i {{1}}, j {{2}}] {dtype} = A[i, j] * V[b]"
    );
    (Program { template, sizes }, lines(&text))
}
