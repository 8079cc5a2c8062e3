//! Predicted cycles: a roofline over the counts of a cost report. The counts of compiled kernels are those of the PTX, after LLVM merges and
//! hoists loads.
//!
//! A kernel keeps the schedulers, lanes, tensor cores, shared memory, L1, L2 and device memory busy for so many cycles; the slowest engine
//! decides. The multiprocessor with most blocks has the most work (makespan). A lone warp issues dependent instructions and waits for its
//! loads; resident warps hide that, waves of blocks repeat it. No data is in L2 when a kernel begins. The result orders configurations. It
//! is not a time.

use super::ceilings::{Busy, of_lanes};
use super::report::{CostReport, KernelCost};
use crate::target::Device;
use crate::target::devices::{DEPENDENT_CYCLES, SHARED_LATENCY_CYCLES};
use serde::Serialize;

/// An estimate for every device: independent instructions of a warp between two dependent ones, such as the accumulators of a register tile.
const INDEPENDENT_INSTRUCTIONS: f64 = 2.0;
/// An estimate for every device: loads of a warp in flight, because an unrolled loop issues several before it needs the first.
const LOADS_IN_FLIGHT: f64 = 4.0;

/// Cycles that the cost model predicts for a kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Predicted {
    /// Cycles from the first block to the end of the last.
    pub cycles: f64,
    /// The engine that is busy longest, or the latency of a warp.
    pub limited_by: &'static str,
}

impl CostReport {
    /// Predicts the cycles of each kernel from the counts that are known. The registers that ptxas assigns are not among them: the tuner
    /// does not ask ptxas, and one schedule has one prediction.
    pub(super) fn predict(&mut self) {
        for kernel in &mut self.kernels {
            kernel.predicted = predicted(kernel, &self.device);
        }
        let between = self.kernels.len().saturating_sub(1) as f64 * f64::from(self.device.launch_cycles);
        self.predicted_cycles = self.kernels.iter().map(|k| k.predicted.cycles).sum::<f64>() + between;
    }
}

fn predicted(k: &KernelCost, device: &Device) -> Predicted {
    let multiprocessors = f64::from(device.multiprocessors.max(1));
    let blocks = (k.blocks() as f64).max(1.0);
    // The multiprocessor with most blocks has this share of the launch.
    let share = (blocks / multiprocessors).ceil() / blocks;
    let busy = Busy::of(k, device);
    // The tensor cores run at the rate of f32 lanes if the rate of a type is unknown.
    let tensor = busy.tensor.unwrap_or_else(|| k.totals.operations as f64 / 2.0 / f64::from(device.lanes.max(1)));
    let engines = [
        ("device memory", busy.memory),
        ("the schedulers", busy.issue * share),
        ("the lanes", busy.lanes * share),
        ("the tensor cores", tensor * share),
        ("shared memory", busy.shared * share),
        ("L1", busy.l1 * share),
        ("L2", busy.l2 * share),
        ("latency", latency(k, device, blocks, multiprocessors)),
    ];
    let slower =
        |a: Predicted, (limited_by, cycles)| if cycles > a.cycles { Predicted { cycles, limited_by } } else { a };
    engines.into_iter().fold(Predicted { cycles: 0.0, limited_by: "latency" }, slower)
}

/// Cycles of the chain of a warp, for each wave of resident blocks.
fn latency(k: &KernelCost, device: &Device, blocks: f64, multiprocessors: f64) -> f64 {
    let t = of_lanes(k);
    let warps = (k.warps as f64 * blocks).max(1.0);
    let loads = t.global_load_requests.saturating_sub(t.copy_requests) as f64;
    // The first load of a sector goes to device memory, a miss in L1 to L2.
    let sectors = (k.totals.traffic.global_load_sectors as f64).max(1.0);
    let first = (k.caches.device_load_sectors as f64 / sectors).min(1.0);
    let missed = (k.caches.l1_miss_sectors as f64 / sectors).clamp(first, 1.0);
    let load = first * f64::from(device.memory_latency_cycles)
        + (missed - first) * f64::from(device.l2_latency_cycles)
        + (1.0 - missed) * f64::from(device.l1_latency_cycles);
    let chain = t.instructions as f64 * DEPENDENT_CYCLES / INDEPENDENT_INSTRUCTIONS
        + t.shared_load_requests as f64 * SHARED_LATENCY_CYCLES / LOADS_IN_FLIGHT
        + loads * load / LOADS_IN_FLIGHT;
    let resident = f64::from(k.occupancy.blocks.max(1)) * multiprocessors;
    chain / warps * (blocks / resident).ceil()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::cost_report;
    use crate::loom::Schedule;
    use crate::lower::lower;

    fn report(text: &str) -> CostReport {
        let schedule = Schedule::parse(text).unwrap();
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        cost_report(&lowered, &schedule.target)
    }

    fn cycles(text: &str) -> f64 {
        report(text).predicted_cycles
    }

    /// Each step of the ladder costs less than the one before, at every size.
    #[test]
    fn the_order_is_that_of_the_ladder() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
        let names =
            ["gpu_naive", "gpu_v1", "gpu_v3", "mlc_shared", "ladder_pipelined", "mma_f16", "wgmma_f16_pingpong"];
        for size in [[1024, 1024, 1024], [2048, 2048, 2048], [4096, 4096, 4096], [4096, 2048, 1024]] {
            let all = names.map(|name| {
                let text = std::fs::read_to_string(folder.join(name).with_extension("loom")).unwrap();
                (name, cycles(&Schedule::parse(&text).unwrap().resized(&size).unwrap().to_string()))
            });
            for two in all.windows(2) {
                assert!(two[0].1 > two[1].1, "{size:?}: {all:?}");
            }
        }
    }

    /// A copy of an n x n matrix of f32 in blocks of 256 threads, with the loop of the last name along the threads.
    fn copy(n: u64, order: &str) -> String {
        format!(
            "program p\ninput A f32[{n}, {n}]\nB: output B[i {n}, j {n}] f32 = A[i, j]\ntarget sm_90\n\
             reorder {order}; fuse {order} -> x; split x ? 256 -> a b; bind a blockIdx.x; bind b threadIdx.x\n"
        )
    }

    #[test]
    fn scattered_loads_and_stores_cost_more() {
        for n in [1024, 4096, 16384] {
            assert!(cycles(&copy(n, "j i")) > 2.0 * cycles(&copy(n, "i j")), "{n}");
        }
    }

    /// A warp that reads 4 bytes of each of 32 sectors makes L2 deliver 32 times 32 bytes; device memory delivers each sector once.
    #[test]
    fn scattered_accesses_move_whole_sectors() {
        let (n, sectors) = (4096u64, 4096 * 4096 / 8);
        let caches = |order| report(&copy(n, order)).kernels[0].caches;
        let (dense, scattered) = (caches("i j"), caches("j i"));
        assert_eq!((dense.l1_miss_sectors, scattered.l1_miss_sectors), (sectors, 8 * sectors));
        for c in [dense, scattered] {
            assert_eq!((c.device_load_sectors, c.device_store_sectors), (sectors, sectors));
        }
    }

    /// A thread that walks a row finds the rest of each sector in L1.
    #[test]
    fn iterations_that_share_a_sector_load_it_once() {
        let sum = "program p\ninput A f32[4096, 1024]\nB: output B[i 4096] f32 = sum(k 1024) A[i, k]\ntarget sm_90\n\
                   split i ? 32 -> a b; bind a blockIdx.x; bind b threadIdx.x\n";
        let report = report(sum);
        let kernel = &report.kernels[0];
        // The sums, which are loaded and stored in every iteration, are few.
        let (requested, missed) = (kernel.totals.traffic.global_load_sectors, kernel.caches.l1_miss_sectors);
        assert!(requested >= 4096 * 1024 && (4096 * 1024 / 8..4096 * 1024 / 7).contains(&missed), "{missed}");
    }

    /// Both matrices of a large copy cross device memory once, and nothing else takes longer.
    #[test]
    fn a_large_copy_takes_the_time_of_its_bytes() {
        for chip in crate::target::Target::ALL {
            let text = copy(8192, "i j").replace("sm_90", chip.name);
            let bytes = 2.0 * 8192.0 * 8192.0 * 4.0;
            let ratio = cycles(&text) / (bytes / chip.device().memory_bytes_per_cycle());
            assert!((1.0..1.3).contains(&ratio), "{}: {ratio} {:?}", chip.name, report(&text).kernels[0].predicted);
        }
    }

    /// A transposition that loads columns costs more than one through tiles in shared memory.
    #[test]
    fn a_transposition_through_shared_memory_costs_less() {
        for n in [1024, 4096] {
            let head = format!("program p\ninput A f32[{n}, {n}]\n");
            let naive = format!(
                "{head}B: output B[i {n}, j {n}] f32 = A[j, i]\ntarget sm_90\n\
                 fuse i j -> x; split x ? 256 -> a b; bind a blockIdx.x; bind b threadIdx.x\n"
            );
            let tiled = format!(
                "{head}S: S[j {n}, i {n}] f32 = A[j, i]\nB: output B[i {n}, j {n}] f32 = S[j, i]\ntarget sm_90\n\
                 set_scope S shared; split B_i ? 32 -> i0 i1; split B_j ? 32 -> j0 j1; reorder i0 j0 i1 j1\n\
                 bind i0 blockIdx.x; bind j0 blockIdx.y; compute_at S j0 -> s0 s1; storage_align S 0 32 1\n\
                 split i1 ? 8 -> i2 i3; bind i3 threadIdx.y; bind j1 threadIdx.x\n\
                 split s0 ? 8 -> s2 s3; bind s3 threadIdx.y; bind s1 threadIdx.x\n"
            );
            let (naive, tiled) = (cycles(&naive), cycles(&tiled));
            assert!(naive > 1.2 * tiled, "{n}: {naive} {tiled}");
        }
    }
}
