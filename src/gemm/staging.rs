//! The way of an operand from device memory to registers: its tile in shared memory, and the fragments of warps.

use super::grid::ClusterLoops;
use super::operand::Operand;
use crate::ir::{Axis, CopyKind, Scope};
use crate::schedule::Steps;

/// The staged buffers of A and B.
pub(super) const STAGED: [&str; 2] = ["A_s", "B_s"];

/// An operand's tile in shared memory, the staged buffer `A_s` or `B_s`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Staging<'a> {
    pub operand: Operand,
    /// The staged buffer.
    pub buffer: &'a str,
    /// The block that has the accumulators.
    pub accumulators: &'a str,
    /// The buffer that the tile is copied from.
    pub source: &'a str,
    /// The copy reads the operand itself and fills in the zeros of the padding.
    pub fills_zeros: bool,
}

impl Staging<'_> {
    /// Stages the tile.
    pub fn read(&self, s: &mut Steps) {
        s.cache_read(self.accumulators, self.source, Scope::Shared, self.buffer);
    }

    /// Makes the padding a part of the copy, where the copy fills in zeros.
    pub fn inline_padding(&self, s: &mut Steps) {
        if self.fills_zeros {
            s.compute_inline(self.source);
        }
    }

    /// All threads copy the tile for each iteration of `k0`, in vectors of so many elements.
    pub fn copy_by_threads(&self, s: &mut Steps, threads: i64, vector: i64) {
        let x = self.operand.lower();
        let name = |end: &str| format!("{x}{end}");
        let [first, second] = [name("0"), name("1")];
        s.compute_at(self.buffer, "k0").made([&first, &second]);
        divide_among_threads(s, [&first, &second], &name("e"), threads, vector, ["_0", "_1", "_2"].map(name));
        s.bind(&name("_1"), Axis::ThreadX).vectorize(&name("_2"));
    }

    /// TMA copies the tile in panels of rows of so many bytes, to all blocks of a cluster that share it.
    pub fn copy_by_tma(&self, s: &mut Steps, panel: i64, cluster: ClusterLoops) {
        s.swizzle(self.buffer, panel).copy_with(self.buffer, CopyKind::Tma);
        if let Some(sharing) = cluster.sharing(self.operand) {
            s.multicast(sharing);
        }
    }
}

/// Fuses the two loops over a tile, and splits them among threads that take vectors; `made` are rounds, threads and elements.
pub(super) fn divide_among_threads(
    s: &mut Steps,
    loops: [&str; 2],
    fused: &str,
    threads: i64,
    vector: i64,
    made: [String; 3],
) {
    s.fuse(loops, fused).split(fused, [threads, vector], made);
}

/// The buffer that a tile of an operand is copied from: itself, a packed copy of it, or one with zeros.
pub(super) fn source(name: &str, is_padded: bool, is_packed: bool) -> String {
    let end = match (is_padded, is_packed) {
        (true, _) => "_pad",
        (false, true) => "_pack",
        (false, false) => "",
    };
    format!("{name}{end}")
}

/// What a warp has of an operand in registers: a fragment `A_f` or `B_f` for each iteration of `kk`, a matrix of the instruction at a
/// time.
#[derive(Debug)]
pub(super) struct Fragment<'a> {
    pub operand: Operand,
    /// The block that has the accumulators.
    pub accumulators: &'a str,
    /// Rows or columns of C of a matrix.
    pub rows: i64,
    /// Whether rows run along k in shared memory.
    pub along_k: bool,
    /// The instruction that loads a matrix.
    pub load: String,
}

impl Fragment<'_> {
    /// The fragment's buffer.
    pub fn buffer(&self) -> &'static str {
        ["A_f", "B_f"][self.operand as usize]
    }

    /// Stages the fragment.
    pub fn read(&self, s: &mut Steps) {
        s.cache_read(self.accumulators, STAGED[self.operand as usize], Scope::Fragment, self.buffer());
    }

    /// Loads the fragment matrix by matrix.
    pub fn load(&self, s: &mut Steps) {
        let [f0, f1, fm, fi] = [["f0", "f1", "fm", "fi"], ["g0", "g1", "gm", "gi"]][self.operand as usize];
        s.compute_at(self.buffer(), "kk").made([f0, f1]);
        match self.along_k {
            true => s.split(f0, [self.rows], [fm, fi]).tensorize(fi, &self.load),
            false => s.split(f1, [self.rows], [fm, fi]).reorder([fm, f0, fi]).tensorize(f0, &self.load),
        };
    }
}

/// Fuses loops into `name`; those between are `between` with a number.
pub(super) fn fuse_all(s: &mut Steps, loops: &[&str], name: &str, between: &str) {
    let mut whole = loops.first().map(|l| l.to_string()).unwrap_or_default();
    for (i, l) in loops.iter().enumerate().skip(1) {
        let next = if i + 1 == loops.len() { name.to_string() } else { format!("{between}{i}") };
        s.fuse([&*whole, l], &next);
        whole = next;
    }
}

/// The names of loops that there are: those left out are empty.
pub(super) fn present<'a>(loops: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    loops.into_iter().filter(|name| !name.is_empty()).collect()
}
