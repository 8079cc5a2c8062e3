//! Predicted cycles: a roofline over the counts of a cost report; over those of the compiled kernels where it has them, in which loads are
//! merged and hoisted.
//!
//! A kernel keeps the schedulers, lanes, tensor cores, shared memory, L1, L2 and device memory busy for so many cycles; the slowest engine
//! decides. The multiprocessor with most blocks has the most work (makespan). A lone warp issues dependent instructions and waits for its
//! loads; resident warps hide that, waves of blocks repeat it. The result orders configurations. It is not a time.

use crate::analysis::{CostReport, KernelCost, Traffic};
use crate::target::{Device, LANES, SCHEDULERS};

/// Bytes of a sector of device memory.
const SECTOR_BYTES: f64 = 32.0;
/// Bytes that the L1 cache of a multiprocessor reads in a cycle (NVIDIA, "Volta architecture white paper": 128 bytes; also later chips).
const L1_BYTES_PER_CYCLE: f64 = 128.0;
/// Bytes that L2 gives one multiprocessor in a cycle while all of them read, where the row of the device has no figure: half of its 128-byte
/// line, about what the measured rows have.
const L2_BYTES_PER_CYCLE: f64 = 64.0;
/// Cycles between two dependent instructions of a warp (Jia et al., "Dissecting the NVIDIA Volta GPU architecture via
/// microbenchmarking", table 4.1: 4 for a multiply-add of f32).
const DEPENDENT_CYCLES: f64 = 4.0;
/// Independent instructions that a warp has between two dependent ones: accumulators of a register tile.
const INDEPENDENT: f64 = 2.0;
/// Cycles from a load of shared memory to its value (same source, table 3.1: 19; later chips 23 to 30).
const SHARED_LATENCY_CYCLES: f64 = 25.0;
/// Cycles from a load that L2 answers to its value (same source, table 3.1: 193; later chips 200 to 270).
const L2_LATENCY_CYCLES: f64 = 200.0;
/// Loads that a warp has under way at a time: an unrolled loop issues some before it needs the first.
const LOADS_UNDER_WAY: f64 = 4.0;

/// Cycles of all kernels of a program, one after the other.
pub fn predicted_cycles(report: &CostReport) -> f64 {
    let between = report.kernels.len().saturating_sub(1) as f64 * f64::from(report.device.launch_cycles);
    report.kernels.iter().map(|k| kernel(k, &report.device)).sum::<f64>() + between
}

/// What the lanes of a kernel do: of the PTX where the warps could be followed in it.
fn of_lanes(k: &KernelCost) -> &Traffic {
    k.compiled.as_ref().and_then(|c| c.traffic.as_ref()).unwrap_or(&k.totals.traffic)
}

fn kernel(k: &KernelCost, device: &Device) -> f64 {
    let (t, engines) = (of_lanes(k), &k.totals.traffic);
    let multiprocessors = f64::from(device.multiprocessors.max(1));
    let blocks = (k.blocks() as f64).max(1.0);
    // The multiprocessor with most blocks has this share of the launch.
    let share = (blocks / multiprocessors).ceil() / blocks;
    let sectors = t.global_load_sectors.saturating_add(t.global_store_sectors) as f64;
    let boxes = engines.bulk_load_sectors.saturating_add(engines.bulk_store_sectors) as f64;
    let wavefronts = t.shared_load_wavefronts.saturating_add(t.shared_store_wavefronts) as f64
        + engines.descriptor_bytes as f64 / f64::from(device.shared_bytes_per_cycle);
    let busy = [
        t.instructions as f64 / SCHEDULERS as f64 * share,
        t.fma_instructions as f64 * LANES as f64 / f64::from(device.lanes.max(1)) * share,
        k.totals.product_clocks.unwrap_or(0.0) * share,
        wavefronts * share,
        sectors * SECTOR_BYTES / L1_BYTES_PER_CYCLE * share,
        boxes * SECTOR_BYTES / device.l2_bytes_per_cycle.unwrap_or(L2_BYTES_PER_CYCLE) * share,
        argument_bytes(k) / device.memory_bytes_per_cycle(),
    ];
    let busiest = busy.into_iter().fold(0.0, f64::max);
    busiest.max(latency(k, device, blocks, multiprocessors))
}

/// Bytes of the parameters: what a kernel moves at least.
fn argument_bytes(k: &KernelCost) -> f64 {
    k.totals.operations_per_argument_byte.filter(|n| *n > 0.0).map_or(0.0, |n| k.totals.operations as f64 / n)
}

/// Cycles of the chain of a warp, for each wave of resident blocks.
fn latency(k: &KernelCost, device: &Device, blocks: f64, multiprocessors: f64) -> f64 {
    let t = of_lanes(k);
    let warps = (k.warps as f64 * blocks).max(1.0);
    let loads = t.global_load_requests.saturating_sub(t.copy_requests) as f64;
    // The first load of a sector goes to device memory, the others to a cache.
    let sectors = (t.global_load_sectors as f64).max(1.0);
    let first = (argument_bytes(k) / SECTOR_BYTES / sectors).min(1.0);
    let load = first * f64::from(device.memory_latency_cycles) + (1.0 - first) * L2_LATENCY_CYCLES;
    let chain = t.instructions as f64 * DEPENDENT_CYCLES / INDEPENDENT
        + t.shared_load_requests as f64 * SHARED_LATENCY_CYCLES / LOADS_UNDER_WAY
        + loads * load / LOADS_UNDER_WAY;
    let resident = f64::from(k.occupancy.blocks.max(1)) * multiprocessors;
    chain / warps * (blocks / resident).ceil()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::cost_report;
    use crate::loom::Schedule;
    use crate::lower::lower;

    fn cycles(text: &str) -> f64 {
        let schedule = Schedule::parse(text).unwrap();
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        predicted_cycles(&cost_report(&lowered, &schedule.target))
    }

    /// Each step of the ladder costs less than the one before.
    #[test]
    fn the_order_is_that_of_the_ladder() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
        let of = |name: &str| {
            let text = std::fs::read_to_string(folder.join(name).with_extension("loom")).unwrap();
            cycles(&Schedule::parse(&text).unwrap().resized(&[1024, 1024, 1024]).unwrap().to_string())
        };
        let names =
            ["gpu_naive", "gpu_v1", "gpu_v3", "mlc_shared", "ladder_pipelined", "mma_f16", "wgmma_f16_pingpong"];
        let all = names.map(|name| (name, of(name)));
        for two in all.windows(2) {
            assert!(two[0].1 > two[1].1, "{all:?}");
        }
    }

    #[test]
    fn bank_conflicts_and_scattered_loads_cost_more() {
        let copy = |order: &str| {
            format!(
                "program p\ninput A f32[1024, 1024]\nB: output B[i 1024, j 1024] f32 = A[i, j]\ntarget sm_90\n\
                 reorder {order}; fuse {order} -> x; split x ? 256 -> a b; bind a blockIdx.x; bind b threadIdx.x\n"
            )
        };
        assert!(cycles(&copy("j i")) > 2.0 * cycles(&copy("i j")));
    }
}
