//! Measuring: what is queued and timed, and that a wrong result or a lost device stops the clock.

use super::mock::{alone, leaving};
use super::programs::{N, add, holds, sum};
use std::time::Duration;
use warploom::error::Code;
use warploom::kernel::Kernels;
use warploom::measure::{Bench, Job, TimeBudget};
use warploom::runtime::Device;
use warploom::{Array, DType, Result};

/// A device whose cache is soon made cold.
const SMALL: &str = "attribute 38 65536";
const PLAN: TimeBudget =
    TimeBudget { preheat_s: 0.0, rewarm_s: 0.0, row_s: 0.01, most_pairs: 8, graph_launches: 4, graph_below_us: 50.0 };

fn job<'a>(kernels: &'a Kernels, judge: &'a dyn Fn(&[Array]) -> Result<f64>) -> Job<'a> {
    let given = |step: f64| Array::from_fn(DType::F32, &[N], |i| step * (i + 1) as f64).unwrap();
    let labels = ["sum", "256", "f32", "-"].map(str::to_string);
    let args = vec![given(1.0), given(10.0), Array::zeros(DType::F32, &[N]).unwrap()];
    Job {
        labels,
        kernels,
        args,
        operations: N as f64,
        arithmetic: (DType::F32, DType::F32),
        gemm: None,
        beside: None,
        judge,
    }
}

#[test]
fn a_row_is_measured_by_the_devices_clock() {
    alone(SMALL, |mock| {
        mock.executor(sum);
        let device = Device::open(0).unwrap();
        let bench = Bench::new(&device, PLAN, None).unwrap();
        let right = |after: &[Array]| Ok(if holds(&after[2], 11.0) { 0.0 } else { f64::INFINITY });
        let row = bench.row(&job(&add(), &right)).unwrap();
        // A kernel of the mock driver takes 10 us, and so does a mark.
        assert!((9.0..30.0).contains(&row.us), "{}", row.us);
        assert!(row.pairs >= 6 && row.launches == 4 && row.ratio.is_none(), "{} {}", row.pairs, row.launches);
        let wrong = |_: &[Array]| Ok(2.0);
        assert_eq!(bench.row(&job(&add(), &wrong)).unwrap_err().code(), Code::MeasureWrong);
    });
}

#[test]
fn a_hang_stops_the_clock() {
    let hung = "allocations 3, modules 1, streams 1, events 0, graphs 0, contexts 1";
    leaving(hung, SMALL, |mock| {
        let device = Device::open(0).unwrap();
        let bench = Bench::new(&device, PLAN, None).unwrap();
        device.set_time_limit(Some(Duration::from_millis(50)));
        mock.configure("attribute 38 65536\nhang add forever");
        let error = bench.row(&job(&add(), &|_: &[Array]| Ok(0.0))).unwrap_err();
        assert_eq!(error.code(), Code::LaunchTimeout);
    });
}
