//! The cost model: what a candidate asks of a device (`Work`), and the cycles that the device takes for it (`cycles`).
//!
//! Each recipe counts its own work; the model is one roofline for all of them. In a k iteration the resident blocks of a multiprocessor
//! keep its tensor cores, issue slots, shared memory and share of L2 busy, and the slowest of these decides, or, where a recipe's engines
//! overlap in part, all of them by their [`Work::overlap`]. Blocks run in waves: the
//! cycles are those of the multiprocessor that has most tiles (makespan).
//!
//! Figures of hardware are in the device's row (`target::Device`). Corrections that no figure explains are in `tuning`.

use super::operand::{Operand, multiple_of_result, up};
use super::packing::Source;
use super::tuning;
use crate::target::{Device, SCHEDULERS};
use crate::te::GemmSpec;

/// What a GEMM asks of a device: per k iteration of a tile, per tile, and for the whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Work {
    /// Cycles of the tensor cores of a multiprocessor, or of its lanes, for the MMAs of a k iteration.
    pub mma: f64,
    /// Cycles of the issue slots for the other instructions of a k iteration, where they keep the schedulers longer than the MMAs.
    pub issue: f64,
    /// Cycles of a k iteration of a lone block: dependent instructions of a warp, which only other warps hide.
    pub latency: f64,
    /// Cycles between two k iterations in which no MMA runs.
    pub bubble: f64,
    /// Warps of a tile, where a scheduler with more of them than another takes longer; else 0.
    pub warps: f64,
    /// Iterations of the first stage and cycles of one in a lone tile, where the launch has its loads; else 0.
    pub first: [f64; 2],
    /// Bytes that a k iteration reads and writes in shared memory.
    pub shared_bytes: f64,
    /// Cycles of a k iteration by the power limit alone, with all multiprocessors; idle ones leave their power to the others. 0 where a recipe does not
    /// count them.
    pub power: f64,
    /// Bytes that a k iteration reads from L2.
    pub l2_bytes: f64,
    /// Bytes that arrive from L2 in a k iteration, in whole sectors, where a recipe counts what a multiprocessor takes in a cycle; else 0.
    pub arriving_bytes: f64,
    /// The share of the device's bytes per cycle from L2 that the recipe reaches with all multiprocessors ([`tuning`]).
    pub l2_share: f64,
    /// How many times this share a multiprocessor gets at most where others are idle; 1 where a recipe does not count that.
    pub idle_share: f64,
    /// How well the engines of a multiprocessor overlap: with cycles a, b, .. of each, an iteration takes (a^p + b^p + ..)^(1/p). Infinite where
    /// the slowest alone decides.
    pub overlap: f64,
    /// The share of the device memory bandwidth that the recipe reaches ([`tuning`]).
    pub memory_share: f64,
    /// k iterations of a tile.
    pub iterations: f64,
    /// Cycles of the launch, once.
    pub launch: f64,
    /// Cycles of a wave before its first MMA and after its last store that its blocks spend at the same time.
    pub prologue: f64,
    /// Cycles of each tile after its last MMA, in which its multiprocessor runs no other.
    pub epilogue: f64,
    /// Tiles of C, times the slices of k that blocks share.
    pub tiles: i64,
    /// Tiles that are resident on a multiprocessor at a time.
    pub resident: i64,
    /// Blocks that stay: each walks over tiles, and has the prologue once.
    pub stays: bool,
    /// Blocks of a cluster.
    pub cluster: i64,
    /// Bytes that the GEMM reads and writes in device memory at least; 0 where a recipe does not count them.
    pub memory_bytes: f64,
    /// What a resident tile has in flight from device memory.
    pub flight: Flight,
    /// Cycles after the first prologue in which blocks ask device memory for nothing.
    pub memory_idle: f64,
    /// Kernels before and after the GEMM's own: packing of operands, accumulators of k slices.
    pub passes: Passes,
}

/// The bytes that a resident tile has in flight from device memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Flight {
    pub bytes: f64,
    /// How many times the device's latency they are on their way, where others are before them.
    pub latencies: f64,
    /// How bytes in flight and bandwidth limit each other, as [`Work::overlap`]. Infinite where the scarcer alone decides.
    pub overlap: f64,
    /// The share of the tile's bytes that it asks for at once when it begins: no others are before them.
    pub first: f64,
}

impl Flight {
    /// So many bytes, which are on their way for the device's latency; they or the bandwidth decide.
    pub const fn of(bytes: f64) -> Flight {
        Flight { bytes, latencies: 1.0, overlap: f64::INFINITY, first: 0.0 }
    }
}

/// The kernels before and after a GEMM's own.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Passes {
    /// Launches of other kernels, such as split-K reductions, in launches of the device ([`Device::launch_cycles`]).
    pub kernels: f64,
    /// Packing kernels.
    pub packs: usize,
    /// Bytes that packing kernels read and write in device memory.
    pub packed_bytes: f64,
    /// Bytes that they read and write in device memory.
    pub memory_bytes: f64,
    /// Bytes that they read and write in L2, or in device memory where L2 is smaller.
    pub l2_bytes: f64,
}

/// What a k iteration waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limiter {
    TensorCores,
    IssueSlots,
    Latency,
    SharedMemory,
    L2,
}

impl Limiter {
    /// The name in a remark.
    pub fn name(self) -> &'static str {
        match self {
            Limiter::TensorCores => "the tensor cores",
            Limiter::IssueSlots => "issue slots",
            Limiter::Latency => "latency",
            Limiter::SharedMemory => "shared memory",
            Limiter::L2 => "L2",
        }
    }
}

impl Work {
    /// No work, of one resident tile.
    pub const NONE: Work = Work {
        mma: 0.0,
        issue: 0.0,
        latency: 0.0,
        bubble: 0.0,
        warps: 0.0,
        first: [0.0, 0.0],
        shared_bytes: 0.0,
        power: 0.0,
        l2_bytes: 0.0,
        arriving_bytes: 0.0,
        l2_share: 1.0,
        idle_share: 1.0,
        overlap: f64::INFINITY,
        memory_share: 1.0,
        iterations: 0.0,
        launch: 0.0,
        prologue: 0.0,
        epilogue: 0.0,
        tiles: 0,
        resident: 1,
        stays: false,
        cluster: 1,
        memory_bytes: 0.0,
        flight: Flight::of(0.0),
        memory_idle: 0.0,
        passes: Passes { kernels: 0.0, packs: 0, packed_bytes: 0.0, memory_bytes: 0.0, l2_bytes: 0.0 },
    };

    /// Cycles of a k iteration of so many resident tiles on each of so many multiprocessors, and what they wait for.
    pub fn iteration(&self, tiles: i64, busy: i64, device: &Device) -> (f64, Limiter) {
        let n = tiles as f64;
        let busy = busy.max(1) as f64 / f64::from(device.multiprocessors);
        let l2_rate = self.l2_rate(device) * (1.0 / busy).clamp(1.0, self.idle_share);
        let slowest_scheduler = self.slowest_scheduler(n);
        let engines = [
            (Limiter::TensorCores, slowest_scheduler * n * self.mma + self.bubble),
            (Limiter::IssueSlots, slowest_scheduler * n * self.issue + self.bubble),
            (Limiter::Latency, self.latency + self.bubble),
            (Limiter::SharedMemory, n * self.shared_bytes / f64::from(device.shared_bytes_per_cycle)),
            (Limiter::L2, n * (self.l2_bytes / l2_rate).max(self.arriving_bytes / tuning::ARRIVING_BYTES)),
        ];
        let slower = |a: (Limiter, f64), b: (Limiter, f64)| if b.1 > a.1 { b } else { a };
        let (limiter, slowest) = engines.into_iter().fold((Limiter::TensorCores, 0.0), slower);
        // The power limit lowers the clock of all of them.
        let power = n * self.power * busy.min(1.0);
        let most = slowest.max(power);
        let [a, b, c, d, e] = engines.map(|engine| engine.1 / most);
        (most * overlapped([a, b, c, d, e, power / most], self.overlap), limiter)
    }

    /// The share of the scheduler with most warps, over an even share: six warps are two on two of four schedulers, which take as long as eight.
    fn slowest_scheduler(&self, tiles: f64) -> f64 {
        let warps = tiles * self.warps;
        if warps > 0.0 { (warps / SCHEDULERS as f64).ceil() * SCHEDULERS as f64 / warps } else { 1.0 }
    }

    /// What limits the k iterations of a multiprocessor that is full, or has all tiles that there are for it.
    pub fn limiter(&self, device: &Device) -> Limiter {
        let all = i64::from(device.multiprocessors);
        self.iteration(self.resident.min(up(self.tiles, all)), self.tiles.min(all), device).1
    }

    /// Bytes from L2 that reach a multiprocessor in a cycle.
    fn l2_rate(&self, device: &Device) -> f64 {
        self.l2_share * device.l2_rate()
    }

    /// Cycles of all engines together, for all tiles, with the ends of each tile and the other kernels.
    fn busy(&self, device: &Device) -> f64 {
        let shared = self.shared_bytes / f64::from(device.shared_bytes_per_cycle);
        let iteration = self.mma + self.issue + shared + self.l2_bytes / self.l2_rate(device);
        let own = self.tiles as f64 * (self.iterations * iteration + self.prologue + self.epilogue);
        own + f64::from(device.multiprocessors) * passes(self, device)
    }

    /// Cycles in which the first tiles of a multiprocessor load their first stage, and nothing else runs.
    fn filling(&self, device: &Device) -> f64 {
        let tiles = self.resident.min(up(self.tiles, i64::from(device.multiprocessors)));
        let [first, _] = self.first;
        if first > 0.0 { tiles as f64 * first * self.l2_bytes / self.l2_rate(device) } else { 0.0 }
    }

    /// Cycles of each of so many multiprocessors for so many resident tiles.
    fn wave(&self, tiles: i64, busy: i64, device: &Device) -> f64 {
        let [first, latency] = self.first;
        let loaded = Work { latency, ..*self };
        let stage = if first > 0.0 { first * loaded.iteration(tiles, busy, device).0 } else { 0.0 };
        let rest = (self.iterations - first) * self.iteration(tiles, busy, device).0;
        stage + rest + self.prologue + tiles as f64 * self.epilogue
    }
}

/// The blocks of a kernel, and where they go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placement {
    pub blocks: i64,
    /// Blocks that fit on a multiprocessor at a time.
    pub resident: i64,
    /// Blocks of a cluster.
    pub cluster: i64,
    /// Kernels before it pack operands.
    pub packs: bool,
}

/// Whether a kernel triggers the launch of its dependent kernel early (programmatic dependent launch).
///
/// The dependent kernel's blocks are placed on the multiprocessors with room. Where that is room for several of them, some multiprocessors get
/// several and others none. So a kernel triggers early where its blocks leave enough multiprocessors free, or where one block fills a
/// multiprocessor and the blocks leave no room. On an H100 with and without: 256x2560x2048 NT of f16 in 80 blocks of 128 x 64 by mma.sync 19.9 and
/// 13.0 us, 8x11008x4096 in 86 blocks by wgmma 36.2 and 33.1, 1000^3 in 112 blocks in clusters of four 6.6 and 7.3 (no record was kept). Where
/// several blocks fit, 270x48x13012 NT of s8 in 120 blocks, whose parts a kernel adds up, takes 8.7 us with and 5.4 without, 2632x288x8 NT of
/// bf16 in 2970 blocks 4.1 and 3.2, 16192x304x33 NT of s8, packed, in 508 blocks by wgmma 13.2 and 11.5 (h100-2026-11-27).
pub(super) fn releases_early(kernel: Placement, device: &Device) -> bool {
    let Placement { blocks, resident, cluster, packs } = kernel;
    let all = i64::from(device.multiprocessors);
    // Three kernels have room beside each other, or two whose blocks no cluster confines.
    let leaves_free = 3 * blocks <= all || cluster == 1 && 2 * blocks <= all;
    let leaves_none = 10 * blocks >= 9 * device.multiprocessors_in_clusters(cluster);
    leaves_free || resident <= 1 && (packs || leaves_none)
}

/// Cycles of a launch that programmatic dependent launch hides, of a kernel that begins early and that may let the next one begin early.
pub(super) fn hidden_launch(begins_early: bool, releases_early: bool) -> f64 {
    match (begins_early, releases_early) {
        (false, _) => 0.0,
        (true, false) => tuning::EARLY_BEGIN,
        (true, true) => tuning::EARLY_BEGIN + tuning::EARLY_RELEASE,
    }
}

/// Bytes of the smallest access to device memory, and of one that takes no longer: two of these.
pub(super) const SECTOR: f64 = 32.0;
pub(super) const ACCESS: f64 = 2.0 * SECTOR;

/// Bytes of an operand, which a GEMM reads from device memory at least once.
pub(super) fn operand_bytes(spec: &GemmSpec, operand: Operand) -> f64 {
    let elements = operand.rows(spec) as f64 * spec.k as f64 * spec.products() as f64;
    elements * f64::from(operand.dtype(spec).bits()) / 8.0
}

/// The bytes of an operand that a GEMM reads from device memory at least: L2 keeps a part of a packed operand.
pub(super) fn bytes_read(spec: &GemmSpec, operand: Operand, source: Source, device: &Device) -> f64 {
    let bytes = operand_bytes(spec, operand);
    let kept = if source == Source::Packed { tuning::PACKED_KEPT * f64::from(device.l2_bytes) } else { 0.0 };
    (bytes - kept).max(0.0)
}

/// Reads of L2 by TMA for a row of 128 bytes, besides the one of a whole line, where its address is a multiple of so many bytes.
pub(super) fn further_reads(of: &[[f64; 2]; 3], aligned: i64) -> f64 {
    of.iter().find(|[bytes, _]| aligned as f64 <= *bytes).map_or(0.0, |[_, reads]| *reads)
}

/// Bytes of the result.
pub(super) fn result_bytes(spec: &GemmSpec) -> f64 {
    spec.m as f64 * spec.n as f64 * spec.products() as f64 * f64::from(spec.out.bits()) / 8.0
}

/// Bytes of sectors of C that blocks with so many columns write in part, where their rows begin and end: 11776x3554x1 of f32 takes 273 us in rows of 8
/// elements on an H100, of 64 elements 88; 5080x7238x64 TT of s8 with results of 32 bits by mma.sync on an H200 85 us in 64 x 32, 64 in 128 x 64, and 53
/// in 64 x 128 (h200-2026-11-28/candidates.jsonl).
pub(super) fn partly_written(spec: &GemmSpec, columns: i64) -> f64 {
    let bytes = f64::from(spec.out.bits()) / 8.0;
    let rows = (spec.m * spec.products()) as f64 * up(spec.n, columns) as f64;
    let whole = (multiple_of_result(spec) as f64 * bytes) % SECTOR == 0.0 && columns as f64 * bytes >= SECTOR;
    if whole { 0.0 } else { 2.0 * SECTOR * rows * (1.0 - tuning::RESULT_KEPT / result_bytes(spec)).max(0.0) }
}

/// Elements of C of the MMA of 16 x 8 that [`mma_cycles`] counts, and its bytes of a row along k.
pub(super) const MMA_ELEMENTS: i64 = 128;
pub(super) const MMA_DEPTH: i64 = 32;

/// Cycles of a scheduler for an MMA by mma.sync, or for as much of one by wmma: by the rate of the device's tensor cores, and at least
/// what was measured.
pub(super) fn mma_cycles(spec: &GemmSpec, device: &Device) -> f64 {
    let terms = 8 * MMA_DEPTH / i64::from(spec.a.bits());
    let rate = device.operations_per_clock(spec.a, spec.acc).unwrap_or(f64::INFINITY);
    tuning::MMA_CYCLES.max((2 * MMA_ELEMENTS * terms * SCHEDULERS) as f64 / rate)
}

/// Cycles of a GEMM on a device: the waves of the multiprocessor with most tiles, and the passes.
pub(super) fn cycles(work: &Work, device: &Device) -> f64 {
    let multiprocessors = device.multiprocessors_in_clusters(work.cluster);
    let places = multiprocessors * work.resident.max(1);
    let left = work.tiles % places;
    let rest = up(left, multiprocessors);
    let full = (work.tiles / places) as f64 * work.wave(work.resident, multiprocessors, device);
    let last = if rest > 0 { work.wave(rest, left.min(multiprocessors), device) } else { 0.0 };
    let waves = work.tiles / places + i64::from(rest > 0);
    let once = if work.stays { (waves - 1).max(0) as f64 * work.prologue } else { 0.0 };
    let (tiles, memory) = (work.filling(device) + full + last - once, memory(work, device));
    let together = match work.overlap.is_finite() {
        true => with_memory(tiles, memory),
        false => tiles.max(memory),
    };
    // Blocks that stay begin once.
    let begun = if work.stays { 0.0 } else { work.tiles as f64 * tuning::BLOCK_CYCLES };
    work.launch + together.max(begun) + passes(work, device)
}

/// Cycles of tiles that overlap with their device memory accesses as far as most kernels do.
pub(super) fn with_memory(tiles: f64, memory: f64) -> f64 {
    let slowest = tiles.max(memory);
    slowest * overlapped([tiles / slowest, memory / slowest], tuning::MEMORY_OVERLAP)
}

/// Cycles of engines that overlap so well, over those of the slowest, which has 1.
fn overlapped<const N: usize>(engines: [f64; N], overlap: f64) -> f64 {
    match overlap.is_finite() {
        true => engines.into_iter().filter(|e| *e > 0.0).map(|e| e.powf(overlap)).sum::<f64>().powf(1.0 / overlap),
        false => 1.0,
    }
}

/// Candidates with their cycles on a device, the cheapest first. Those within `tolerance` times the least cycles are ordered by the total work
/// of their engines, the least first: it is where errors of the model cost least.
pub(super) fn ranked<T>(all: Vec<(Work, T)>, tolerance: f64, device: &Device) -> Vec<(f64, T)> {
    let mut all: Vec<_> = all.into_iter().map(|(work, t)| (cycles(&work, device), work.busy(device), t)).collect();
    let least = all.iter().map(|(cycles, ..)| *cycles).fold(f64::INFINITY, f64::min);
    let is_worse = |cycles: f64| cycles > tolerance * least;
    all.sort_by(|(a, x, _), (b, y, _)| match (is_worse(*a), is_worse(*b)) {
        (false, false) => x.total_cmp(y),
        _ => a.total_cmp(b).then(x.total_cmp(y)),
    });
    all.into_iter().map(|(cycles, _, t)| (cycles, t)).collect()
}

/// Cycles in which device memory moves what the GEMM must read and write, by Little's law: bytes in flight, over the time that they are. Where a
/// recipe counts it, few bytes in flight cost before they alone decide.
pub(super) fn memory(work: &Work, device: &Device) -> f64 {
    if work.memory_bytes == 0.0 {
        return 0.0;
    }
    let resident = work.tiles.min(i64::from(device.multiprocessors) * work.resident.max(1));
    let idle = 1.0 - (resident as f64 / f64::from(device.multiprocessors)).min(1.0);
    let reached = work.memory_share * device.memory_bytes_per_cycle() * (1.0 - tuning::IDLE_LOSS * idle);
    let Flight { bytes, latencies, overlap, first } = work.flight;
    let scarce = reached * f64::from(device.memory_latency_cycles) / (resident as f64 * bytes);
    let loaded = latencies * scarce;
    let slower = loaded.max(1.0) * overlapped([loaded.min(1.0), (1.0 / loaded).min(1.0)], overlap);
    let times = first * scarce.max(1.0) + (1.0 - first) * slower;
    work.prologue + work.memory_idle + times * work.memory_bytes / reached
}

/// Cycles of the kernels before and after the GEMM's own.
pub(super) fn passes(work: &Work, device: &Device) -> f64 {
    let Passes { kernels, packs, packed_bytes, memory_bytes, l2_bytes } = work.passes;
    // Packing kernels run concurrently.
    let beside = if device.begins_early() { tuning::PACKING_BESIDE } else { tuning::PACKING_LAUNCH };
    let kernels = kernels + (0..packs).map(|n| if n == 0 { tuning::PACKING_LAUNCH } else { beside }).sum::<f64>();
    // What is written once and read once does not stay in a smaller L2.
    let stays = device.l2_bytes == 0 || l2_bytes <= 2.0 * f64::from(device.l2_bytes);
    let l2_rate = match stays {
        true => tuning::COMBINING_L2_SHARE * device.l2_rate() * f64::from(device.multiprocessors),
        false => tuning::MEMORY_BYTES_PER_CYCLE,
    };
    let packing = packed_bytes / (tuning::PACKING_SHARE * device.memory_bytes_per_cycle());
    kernels * f64::from(device.launch_cycles)
        + packing
        + memory_bytes / tuning::MEMORY_BYTES_PER_CYCLE
        + l2_bytes / l2_rate
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    fn work() -> Work {
        Work { mma: 100.0, latency: 50.0, iterations: 10.0, tiles: 132, warps: 6.0, ..Work::NONE }
    }

    #[test]
    fn the_next_kernel_begins_beside_few_blocks_or_blocks_that_fill_the_chip() {
        let device = Target::sm_90a().device();
        let released =
            |blocks, resident, cluster, packs| releases_early(Placement { blocks, resident, cluster, packs }, &device);
        // A third of 132 multiprocessors, in whatever clusters; half of them without.
        assert!(released(44, 4, 8, false) && !released(45, 4, 8, false));
        assert!(released(66, 4, 1, false) && !released(67, 4, 1, false));
        // Blocks that leave no room, of which one fills a multiprocessor.
        assert!(released(120, 1, 1, false) && !released(118, 1, 1, false) && !released(264, 2, 1, false));
        assert!(released(80, 1, 1, true) && !released(80, 2, 1, true));
    }

    #[test]
    fn schedulers_with_most_warps_decide() {
        let device = Target::sm_90a().device();
        let even = Work { warps: 8.0, ..work() };
        assert!((cycles(&work(), &device) / cycles(&even, &device) - 8.0 / 6.0).abs() < 1e-12);
        assert_eq!(cycles(&Work { warps: 0.0, ..even }, &device), cycles(&even, &device));
    }

    #[test]
    fn the_launch_has_the_loads_of_the_first_stage() {
        let device = Target::sm_90a().device();
        let waits = Work { latency: 300.0, warps: 0.0, ..work() };
        let first = Work { first: [4.0, 50.0], ..waits };
        assert_eq!(cycles(&waits, &device), 3000.0);
        assert_eq!(cycles(&first, &device), 4.0 * 100.0 + 6.0 * 300.0);
    }
}
