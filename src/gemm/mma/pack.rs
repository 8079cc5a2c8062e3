//! Kernels of their own that pack a factor: padded, turned or both.

use super::{Mma, NAMES, Names, Source, along_k, contiguous, narrow, runs_along_k};
use crate::te::GemmSpec;
use std::fmt::Write as _;

/// Threads of a block that packs.
pub(super) const THREADS: i64 = 256;

impl Mma {
    /// The kernel that packs a factor: eight rows a thread, or tiles of 64 x 64 bytes that are turned in shared memory.
    pub(super) fn pack(&self, spec: &GemmSpec, side: usize, names: &Names) -> String {
        if self.routes[side] == Source::Direct {
            return String::new();
        }
        if narrow::is_narrow(spec) {
            return self.pack_narrow(spec, side, names);
        }
        let packed = &names.sources[side];
        let mut out = String::new();
        if !self.pads(spec, side) {
            let _ = writeln!(out, "cache_read {} {} global -> {packed}", names.whole, NAMES[side]);
        }
        out + &packing(spec, side, packed)
    }
}

/// The loops of a kernel that packs a factor, and turns bytes whose rows do not run along k.
pub(in crate::gemm) fn packing(spec: &GemmSpec, side: usize, packed: &str) -> String {
    let (name, p) = (NAMES[side], ["a", "b"][side]);
    if runs_along_k(spec, side) == along_k(spec)[side] {
        return packed_rows(spec, p, packed);
    }
    let mut out = format!(
        "{}cache_read {packed} {name} shared -> {name}_x; compute_at {name}_x {p}b0 -> {p}x0 {p}x1; fuse {p}x0 {p}x1 -> {p}x\n",
        turned(side, packed)
    );
    let _ = match contiguous(spec, side) % 16 {
        0 => writeln!(out, "split {p}x ? {THREADS} 16 -> {p}x2 {p}x3 {p}x4; bind {p}x3 threadIdx.x; vectorize {p}x4"),
        _ => writeln!(out, "split {p}x ? {THREADS} -> {p}x2 {p}x3; bind {p}x3 threadIdx.x"),
    };
    out
}

/// The loops of a kernel that packs a factor row by row, eight rows a thread; names begin with `p`.
fn packed_rows(spec: &GemmSpec, p: &str, packed: &str) -> String {
    let (rows, row, batch) = match spec.batch {
        None => (0, 1, String::new()),
        Some(_) => (1, 2, format!("bind {packed}_0 blockIdx.z\n")),
    };
    format!(
        "split {packed}_{rows} ? 8 -> {p}a0 {p}a1; split {packed}_{row} ? {THREADS} -> {p}b0 {p}b1\n\
         reorder {p}a0 {p}b0 {p}b1 {p}a1; unroll {p}a1\n\
         bind {p}a0 blockIdx.y; bind {p}b0 blockIdx.x; bind {p}b1 threadIdx.x\n{batch}"
    )
}

/// The loops of a kernel that turns tiles of 64 x 64 bytes: two neighbours write 32 bytes of a row, and read 16 columns of
/// each of 16 rows at a time.
pub(super) fn turned(side: usize, packed: &str) -> String {
    let p = ["a", "b"][side];
    format!(
        "transform_layout {packed} [k, w] -> [w, k]\n\
         split {packed}_0 ? 2 2 16 -> {p}a0 {p}a1 {p}a2 {p}a3; split {packed}_1 ? 4 16 -> {p}b0 {p}b1 {p}b2\n\
         reorder {p}a0 {p}b0 {p}b1 {p}a1 {p}b2 {p}a2 {p}a3; bind {p}a0 blockIdx.y; bind {p}b0 blockIdx.x\n\
         {}bind {p}t threadIdx.x; vectorize {p}a3\n",
        fused(&[format!("{p}b1"), format!("{p}a1"), format!("{p}b2"), format!("{p}a2")], &format!("{p}t"))
    )
}

/// Steps that fuse loops into `name`; those between get it with a number.
fn fused(loops: &[String], name: &str) -> String {
    let mut out = String::new();
    let mut whole = loops[0].clone();
    for (i, l) in loops.iter().enumerate().skip(1) {
        let next = if i + 1 == loops.len() { name.to_string() } else { format!("{name}{i}") };
        let _ = write!(out, "fuse {whole} {l} -> {next}; ");
        whole = next;
    }
    out
}
