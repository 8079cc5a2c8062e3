//! Kernels of their own that pack an operand: padded, turned or both.

use super::{Mma, Names, Operand, Source, along_k, contiguous, narrow, rows, runs_along_k, up};
use crate::gemm::grid::{bind_blocks, bound_batch, fuses_batch};
use crate::te::GemmSpec;
use std::fmt::Write as _;

/// Threads of a block that packs.
pub(super) const THREADS: i64 = 256;

impl Mma {
    /// The kernel that packs an operand: eight rows a thread, or tiles of 64 x 64 bytes that are turned in shared memory.
    pub(super) fn pack(&self, spec: &GemmSpec, operand: Operand, names: &Names) -> String {
        if self.routes[operand as usize] == Source::Direct {
            return String::new();
        }
        if narrow::is_narrow(spec) {
            return self.pack_narrow(spec, operand, names);
        }
        let packed = &names.sources[operand as usize];
        let mut out = String::new();
        if !self.pads(spec, operand) {
            let _ = writeln!(out, "cache_read {} {} global -> {packed}", names.whole, operand.name());
        }
        out + &packing(spec, operand, packed)
    }
}

/// The loops of a kernel that packs an operand, and turns bytes whose rows do not run along k.
pub(in crate::gemm) fn packing(spec: &GemmSpec, operand: Operand, packed: &str) -> String {
    let (name, p) = (operand.name(), operand.lower());
    if runs_along_k(spec, operand) == along_k(spec)[operand as usize] {
        return packed_rows(spec, operand, packed);
    }
    let mut out = format!(
        "{}cache_read {packed} {name} shared -> {name}_x; compute_at {name}_x {p}b0 -> {p}x0 {p}x1; fuse {p}x0 {p}x1 -> {p}x\n",
        turned(spec, operand, packed)
    );
    let _ = match contiguous(spec, operand) % 16 {
        0 => writeln!(out, "split {p}x ? {THREADS} 16 -> {p}x2 {p}x3 {p}x4; bind {p}x3 threadIdx.x; vectorize {p}x4"),
        _ => writeln!(out, "split {p}x ? {THREADS} -> {p}x2 {p}x3; bind {p}x3 threadIdx.x"),
    };
    out
}

/// Rows of an operand in memory, and elements of one, at least: zeros behind its ends are fewer than a tile.
pub(super) fn lines(spec: &GemmSpec, operand: Operand) -> [i64; 2] {
    if along_k(spec)[operand as usize] {
        [rows(spec)[operand as usize], spec.k]
    } else {
        [spec.k, rows(spec)[operand as usize]]
    }
}

/// The most rows or columns that a tile adds as zeros.
pub(super) const ZEROS: i64 = 1024;

/// The loops of a kernel that packs an operand row by row, eight rows a thread.
fn packed_rows(spec: &GemmSpec, operand: Operand, packed: &str) -> String {
    let p = operand.lower();
    let [count, length] = lines(spec, operand).map(|extent| extent.saturating_add(ZEROS));
    let (n, row) = if spec.batch.is_some() { (1, 2) } else { (0, 1) };
    let (a0, b0) = (format!("{p}a0"), format!("{p}b0"));
    let (fused, outer) = match fuses_batch(spec) {
        true => {
            (format!("fuse {packed}_0 {a0} -> {p}z\n"), (format!("{p}z"), spec.products().saturating_mul(up(count, 8))))
        }
        false => (String::new(), (a0, up(count, 8))),
    };
    let batch = if bound_batch(spec).is_empty() { String::new() } else { format!("bind {packed}_0 blockIdx.z\n") };
    format!(
        "split {packed}_{n} ? 8 -> {p}a0 {p}a1; split {packed}_{row} ? {THREADS} -> {p}b0 {p}b1\n\
         reorder {p}a0 {p}b0 {p}b1 {p}a1; unroll {p}a1\n\
         {fused}{}bind {p}b1 threadIdx.x\n{batch}",
        bind_blocks((&outer.0, outer.1), (&b0, up(length, THREADS)))
    )
}

/// The loops of a kernel that turns tiles of 64 x 64 bytes: two neighbours write 32 bytes of a row, and read 16 columns of
/// each of 16 rows at a time.
pub(super) fn turned(spec: &GemmSpec, operand: Operand, packed: &str) -> String {
    let p = operand.lower();
    let [terms, others] = lines(spec, operand).map(|extent| up(extent.saturating_add(ZEROS), 64));
    format!(
        "transform_layout {packed} [k, w] -> [w, k]\n\
         split {packed}_0 ? 2 2 16 -> {p}a0 {p}a1 {p}a2 {p}a3; split {packed}_1 ? 4 16 -> {p}b0 {p}b1 {p}b2\n\
         reorder {p}a0 {p}b0 {p}b1 {p}a1 {p}b2 {p}a2 {p}a3; {}\
         {}bind {p}t threadIdx.x; vectorize {p}a3\n",
        bind_blocks((&format!("{p}a0"), terms), (&format!("{p}b0"), others)),
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
