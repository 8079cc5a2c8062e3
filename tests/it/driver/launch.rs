//! Launches: what reaches the driver, in which order, and what comes back.

use super::execute;
use super::mock::alone;
use warploom::measure::run_once;
use warploom::runtime::Device;
use warploom::{Array, DType};

const VEC_ADD: &str = "vec_add 1024\ntarget sm_80\nsplit i ? 128 -> i0 i1\nbind i0 blockIdx.x; bind i1 threadIdx.x";

#[test]
fn arguments_are_packed_in_order() {
    alone("", |mock| {
        let (_, kernels) = execute::compile(mock, VEC_ADD);
        let device = Device::open(0).unwrap();
        let program = device.load(&kernels).unwrap();
        let x = Array::random(DType::F32, &[1024], 1).unwrap();
        let y = Array::random(DType::F32, &[1024], 2).unwrap();
        let [a, b] = [&x, &y].map(|array| device.upload(array).unwrap());
        let c = device.alloc(DType::F32, &[1024]).unwrap();
        mock.journal();
        program.launch(&[&a, &b, &c]).unwrap();
        let [pa, pb, pc] = [&a, &b, &c].map(|buffer| format!("{:#x}", buffer.address()));
        assert_eq!(
            mock.calls("cuLaunchKernel"),
            [format!(
                "cuLaunchKernel vec_add grid [8, 1, 1] block [128, 1, 1] cluster [1, 1, 1] shared 0 stream own \
                 params [{pa},{pb},{pc}] -> 0"
            )]
        );
        let sum = c.download().unwrap();
        assert!((0..1024).all(|i| sum.get(i) == f64::from(x.get(i) as f32 + y.get(i) as f32)));
    });
}

#[test]
fn results_come_back_from_the_machine() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/window_sum_cooperative.loom"));
    alone("", |mock| {
        let (_, kernels) = execute::compile(mock, &text.unwrap());
        let device = Device::open(0).unwrap();
        let program = device.load(&kernels).unwrap();
        let shape = |i: usize| kernels.args[i].shape.iter().map(|e| *e as usize).collect::<Vec<_>>();
        let given = Array::random_integers(DType::F32, &shape(0), 100, 1).unwrap();
        let after = run_once(&program, &[given.clone(), Array::zeros(DType::F32, &shape(1)).unwrap()]).unwrap();
        let right = |i: usize| after[1].get(i) == given.get(i) + given.get(i + 1) + given.get(i + 2);
        assert!((0..after[1].len()).all(right));
    });
}
