//! Predicted cycles: a roofline over the counts of a cost report. The counts of compiled kernels are those of the PTX, after LLVM merges and
//! hoists loads.
//!
//! A kernel keeps the schedulers, lanes, tensor cores, shared memory, L1, L2 and device memory busy for so many cycles; the slowest engine
//! decides. The multiprocessor with most blocks has the most work (makespan). A lone warp issues dependent instructions and waits for its
//! loads; resident warps hide that, waves of blocks repeat it. The result orders configurations. It is not a time.

use crate::analysis::request::SECTOR;
use crate::analysis::{CostReport, KernelCost, Traffic};
use crate::target::devices::{DEPENDENT_CYCLES, L1_BYTES_PER_CYCLE, L2_LATENCY_CYCLES, SHARED_LATENCY_CYCLES};
use crate::target::{Device, LANES, SCHEDULERS};

/// Bytes of a sector of device memory.
const SECTOR_BYTES: f64 = SECTOR as f64;

/// An estimate for every device: independent instructions of a warp between two dependent ones, such as the accumulators of a register tile.
const INDEPENDENT_INSTRUCTIONS: f64 = 2.0;
/// An estimate for every device: loads of a warp in flight, because an unrolled loop issues several before it needs the first.
const LOADS_IN_FLIGHT: f64 = 4.0;

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
        tensor_cycles(k, device) * share,
        wavefronts * share,
        sectors * SECTOR_BYTES / L1_BYTES_PER_CYCLE * share,
        boxes * SECTOR_BYTES / device.l2_rate() * share,
        argument_bytes(k) / device.memory_bytes_per_cycle(),
    ];
    let busiest = busy.into_iter().fold(0.0, f64::max);
    busiest.max(latency(k, device, blocks, multiprocessors))
}

/// Cycles of the tensor cores; at the rate of f32 lanes if the rate of a type is unknown.
fn tensor_cycles(k: &KernelCost, device: &Device) -> f64 {
    let lanes = || k.totals.operations as f64 / 2.0 / f64::from(device.lanes.max(1));
    k.totals.product_clocks.unwrap_or_else(lanes)
}

/// Bytes of the parameters: the least traffic of a kernel. A kernel without arithmetic has 0 here, so device memory does not bound its
/// predicted cycles.
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
    fn scattered_loads_and_stores_cost_more() {
        let copy = |order: &str| {
            format!(
                "program p\ninput A f32[1024, 1024]\nB: output B[i 1024, j 1024] f32 = A[i, j]\ntarget sm_90\n\
                 reorder {order}; fuse {order} -> x; split x ? 256 -> a b; bind a blockIdx.x; bind b threadIdx.x\n"
            )
        };
        assert!(cycles(&copy("j i")) > 2.0 * cycles(&copy("i j")));
    }
}
