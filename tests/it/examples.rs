//! Every example computes what its program says: at a size that the CPU machine does quickly and at a ragged one, bit-equal
//! to the naive program in the ring, and within its bounds in the real types.

use super::cases::examples;
use warploom::machine::{self, Mode};
use warploom::reference::{self, Sample};
use warploom::te::Known;
use warploom::{Array, Schedule, lower};

const SEED: u64 = 7;

/// Sizes that hold a tile of every example at least once, and sizes that no tile divides.
fn sizes(schedule: &Schedule) -> [Vec<i64>; 2] {
    match Known::of(&schedule.program) {
        Some(Known::Gemm(spec)) if spec.a != spec.out || spec.acc != spec.out => {
            [vec![256, 256, 64], vec![256, 256, 128]]
        }
        Some(Known::Gemm(_)) => [vec![128, 64, 64], vec![37, 53, 41]],
        _ => [vec![512], vec![300]],
    }
}

/// Compares the scheduled program, and the lowered one where it lowers, with the naive program.
fn bit_equal_in_the_ring(name: &str, schedule: &Schedule) {
    let func = schedule.scheduled().unwrap_or_else(|e| panic!("{name}: {e}"));
    let naive = machine::ring(&schedule.program, SEED).unwrap_or_else(|e| panic!("{name}, naive: {e}"));
    let scheduled = machine::ring(&func, SEED).unwrap_or_else(|e| panic!("{name}, scheduled: {e}"));
    assert!(scheduled == naive, "{name}: the scheduled program differs from the naive one");
    match lower::lower(&func, &schedule.target) {
        Ok(lowered) => {
            let parallel = machine::ring_lowered(&lowered, SEED).unwrap_or_else(|e| panic!("{name}, lowered: {e}"));
            assert!(parallel == naive, "{name}: the lowered program differs from the naive one");
        }
        Err(e) => assert_eq!((name, e.code()), ("worked_example", "admit.placement"), "{e}"),
    }
}

fn within_bounds(name: &str, schedule: &Schedule) {
    let func = schedule.scheduled().unwrap();
    let Ok(lowered) = lower::lower(&func, &schedule.target) else { return };
    let shape = |id: &warploom::ir::BufferId| -> Vec<usize> {
        func.buffer(*id).const_shape().unwrap().into_iter().map(|e| e as usize).collect()
    };
    let random = |(n, id)| Array::random(func.buffer(id).dtype, &shape(&id), n as u64).unwrap();
    let mut args: Vec<Array> = func.params.iter().copied().enumerate().map(random).collect();
    let inputs = args.clone();
    machine::run_lowered(&lowered, Mode::Real, &mut args).unwrap_or_else(|e| panic!("{name}: {e}"));
    for output in reference::outputs(&schedule.program, &inputs, Sample::All).unwrap() {
        let worst = output.bound(&args[output.param]).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(worst.ratio.is_finite(), "{name}");
        assert_ne!(args[output.param].bytes, inputs[output.param].bytes, "{name} wrote nothing");
    }
}

#[test]
fn examples_compute_what_the_naive_programs_compute() {
    for (name, text) in examples() {
        let schedule = Schedule::parse(&text).unwrap();
        for size in sizes(&schedule) {
            let resized = schedule.resized(&size).unwrap_or_else(|e| panic!("{name} at {size:?}: {e}"));
            bit_equal_in_the_ring(&name, &resized);
            within_bounds(&name, &resized);
        }
    }
}

/// The recommended steps suit every size, type and layout.
#[test]
fn recommended_schedules_compute_matrix_products() {
    use warploom::te::Layout;
    use warploom::{DType, Gemm, Target, gemm};
    let sizes = [(1, 1, 1), (3, 5, 7), (1, 100, 33), (64, 64, 64), (65, 33, 17)];
    for (m, n, k) in sizes {
        for layout in Layout::ALL {
            for dtype in [DType::F32, DType::F16, DType::S8] {
                let product = Gemm::new(m, n, k).of(dtype).layout(layout);
                let schedule = gemm::recommend(&product, &Target::sm_80()).unwrap();
                let name = format!("{dtype} {} {m}x{n}x{k}", layout.name());
                bit_equal_in_the_ring(&name, &schedule);
                warploom::compile_gemm(&schedule).unwrap_or_else(|e| panic!("{name}: {e}\n{schedule}"));
            }
        }
    }
}
