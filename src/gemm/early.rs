//! Programmatic dependent launch (PDL) of every kernel of a recommended schedule.
//!
//! A recipe says where the next kernel may begin beside one of its own (`grid_dependency=2`). All others get `grid_dependency=1` here, which
//! places no block before the blocks of the previous kernel have left, and hides a part of the launch. A kernel that shares no data with the
//! preceding kernels runs concurrently with them (`concurrent=1`), such as the kernel that packs the second operand: 40 GEMMs with two packed operands
//! are 1.09 times as fast on an H200 (h200-2026-11-29/concurrent.jsonl). In graphs of launches on an H100
//! products with kernels that pack or add parts up take 0.2 to 0.7 us less (552x896x38 TN of s8: 5.48 us, so 4.80), others up to 0.4
//! (255x1792x83 TT of f32: 5.75 and 5.38). Of 46 schedules whose kernels let no other begin beside them, none takes more than 1.006 times as long
//! with it (h100-2026-11-27/early.md).

use crate::ir::{Axis, Func, GridDependency, LoopKind, Stmt, Var, conflict, visit};
use crate::loom::Schedule;
use crate::schedule::{Step, Steps};
use crate::target::Features;
use std::slice::from_ref;

/// The schedule whose kernels all begin early, where its chip knows how. `func` is the program behind its steps.
pub(super) fn begin_early(mut schedule: Schedule, func: &Func) -> Schedule {
    if !schedule.target.has(Features::GRID_DEPENDENCY) {
        return schedule;
    }
    let kernels: Vec<Option<&str>> = func.body.iter().map(|nest| blocks(nest).map(|var| func.var_name(var))).collect();
    let concurrent = concurrent(func);
    for (n, of) in kernels.into_iter().enumerate() {
        let Some(of) = of else { continue };
        let kernels = stated(func, n).is_none().then_some(if concurrent.get(n + 1) == Some(&true) { 2 } else { 1 });
        schedule.steps.extend(launch(of, kernels, concurrent[n]));
    }
    schedule
}

/// The step for the kernel of a loop, where it says something.
fn launch(of: &str, kernels: Option<i64>, is_concurrent: bool) -> Vec<Step> {
    let mut s = Steps::new();
    if kernels.is_some() || is_concurrent {
        s.launch(of);
    }
    if let Some(kernels) = kernels {
        s.grid_dependency(kernels);
    }
    if is_concurrent {
        s.concurrent();
    }
    s.finish().unwrap_or_default()
}

/// What the steps say of a kernel.
fn stated(func: &Func, kernel: usize) -> Option<GridDependency> {
    func.launches_of(&func.body[kernel]).into_iter().find_map(|launch| launch.options.grid_dependency)
}

/// Whether each kernel may run concurrently with the preceding kernels: it has no [`conflict`] with a kernel that may still run.
fn concurrent(func: &Func) -> Vec<bool> {
    let (mut all, mut first) = (Vec::new(), 0);
    for (n, nest) in func.body.iter().enumerate() {
        let is_let = n > 0 && stated(func, n - 1) != Some(GridDependency::Waits) && blocks(nest).is_some();
        let is_concurrent = is_let
            && func.body[first..n]
                .iter()
                .all(|other| blocks(other).is_some() && conflict(from_ref(other), from_ref(nest)).is_none());
        if !is_concurrent {
            first = n;
        }
        all.push(is_concurrent);
    }
    all
}

/// The loop over blocks in x, which names a kernel.
fn blocks(nest: &Stmt) -> Option<Var> {
    let loops = visit::loops(from_ref(nest));
    loops.into_iter().find(|l| matches!(l.kind, LoopKind::Bound { axis: Axis::BlockX, .. })).map(|l| l.var)
}

#[cfg(test)]
mod tests {
    use crate::dtype::DType;
    use crate::gemm::{Gemm, Kind, recommend};
    use crate::ir::GridDependency::{Releases, Waits};
    use crate::lower::lower;
    use crate::sample::drawn;
    use crate::target::Target;
    use crate::te::Layout;

    /// How the kernels of the recommended schedule overlap with those before and after them: 1, 2, or 0.
    fn overlaps([m, n, k]: [i64; 3], dtype: DType, layout: Layout, target: &Target) -> Vec<u8> {
        let schedule = recommend(&Gemm::new(m, n, k).of(dtype).layout(layout), target).unwrap();
        let lowered = lower(&schedule.scheduled().unwrap(), target).unwrap();
        let number = |overlap| match overlap {
            None => 0,
            Some(Waits) => 1,
            Some(Releases) => 2,
        };
        lowered.kernels.iter().map(|kernel| number(kernel.grid_dependency)).collect()
    }

    /// The first size of each type, and a sample of the others.
    #[test]
    fn every_kernel_begins_early_where_the_chip_knows_how() {
        let sizes =
            [[255, 1792, 83], [59, 256, 10043], [1, 4096, 4096], [8, 2000, 999], [640, 512, 1024], [30, 40, 50]];
        for (dtype, layout) in [DType::F16, DType::F32, DType::F64, DType::S8].into_iter().zip(Layout::ALL) {
            for size in sizes {
                if size != sizes[0] && !drawn(&format!("early {size:?} {dtype}"), 5) {
                    continue;
                }
                let early = overlaps(size, dtype, layout, &Target::sm_90a());
                assert!(!early.contains(&0), "{size:?} {dtype} {}: {early:?}", layout.name());
                let late = overlaps(size, dtype, layout, &Target::sm_80());
                assert!(late.iter().all(|overlap| *overlap == 0), "{size:?} {dtype} {}: {late:?}", layout.name());
            }
        }
    }

    #[test]
    fn kernels_that_add_parts_up_begin_behind_the_tiles() {
        let early = overlaps([59, 256, 10043], DType::F32, Layout::NN, &Target::sm_90a());
        assert_eq!(early, [1, 1]);
    }

    #[test]
    fn two_operands_are_packed_concurrently() {
        let concurrent = |[m, n, k]: [i64; 3], dtype, layout, target: &Target| {
            let schedule = recommend(&Gemm::new(m, n, k).of(dtype).layout(layout), target).unwrap();
            let kernels = lower(&schedule.scheduled().unwrap(), target).unwrap().kernels;
            kernels.iter().map(|kernel| kernel.concurrent).collect::<Vec<_>>()
        };
        for (size, dtype, layout) in [
            ([1536, 128, 104], DType::S8, Layout::TN),
            ([403, 3766, 389], DType::F16, Layout::TT),
            ([2560, 2520, 127], DType::Bf16, Layout::NT),
        ] {
            // Two packing kernels and the GEMM kernel.
            assert_eq!(concurrent(size, dtype, layout, &Target::sm_90a()), [false, true, false], "{size:?}");
            let late = concurrent(size, dtype, layout, &Target::sm_80());
            assert!(!late.contains(&true), "{size:?}");
        }
        // The split-K reduction reads what the GEMM kernel writes.
        assert_eq!(concurrent([59, 256, 10043], DType::F32, Layout::NN, &Target::sm_90a()), [false, false]);
    }

    #[test]
    fn the_naive_kernel_stays_as_it_is() {
        let naive = Kind::Naive.schedule(&Gemm::new(64, 64, 64), &Target::sm_90a()).unwrap();
        assert!(!naive.to_string().contains("launch"), "{naive}");
    }
}
