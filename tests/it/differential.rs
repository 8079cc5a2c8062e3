//! Every example at reduced sizes: the naive program, the scheduled one and the lowered kernels are bit-equal in the
//! ring, whatever the order of warps and blocks, and in the real types the kernels meet the reference.

use crate::cases::{compiling_examples, depth};
use crate::sample::{self, everything};
use warploom::error::Code;
use warploom::ir::Func;
use warploom::loom::Schedule;
use warploom::lower::{Lowered, lower};
use warploom::reference::{Sample, outputs};
use warploom::sim::{Mode, Options, Policy, integers_with, naive_integers, run_lowered};
use warploom::te::Known;
use warploom::{Array, DType, Error, Result};

pub const POLICIES: [Policy; 3] = [Policy::InOrder, Policy::Reverse, Policy::Random(11)];

/// A size that tiles divide, one that they do not, and some that are smaller than a tile in one way or another.
fn sizes(name: &str, schedule: &Schedule) -> Vec<Vec<i64>> {
    match Known::of(&schedule.program) {
        // Two blocks of a cluster, and more steps of k than there are slots.
        Some(Known::Gemm(_)) if name == "worked_example" => vec![vec![256, 256, 320]],
        Some(Known::Gemm(_)) => {
            let small = [[3, 64, 7], [64, 2, 5], [3, 3, 7], [1, 1, 1]];
            let all = [[128, 128, depth(schedule)], [67, 130, 41]].into_iter().chain(small);
            all.map(|size| size.to_vec()).collect()
        }
        Some(_) => vec![vec![512], vec![333]],
        None => Vec::new(),
    }
}

/// The example at a size with its kernels; `None` where a step needs a size that it divides, an asynchronous copy rows
/// that are aligned, or elements of 4 bits rows of whole bytes.
fn at_size(schedule: &Schedule, size: &[i64]) -> Result<Option<(Schedule, Func, Lowered)>> {
    let resized = schedule.resized(size)?;
    let ragged = size.iter().any(|n| n % 32 != 0);
    let scheduled = match resized.scheduled() {
        Err(_) if ragged => return Ok(None),
        other => other?,
    };
    match lower(&scheduled, &schedule.target) {
        Err(e) if ragged && [Code::LowerCopySize, Code::AdmitRow].contains(&e.code()) => Ok(None),
        other => Ok(Some((resized, scheduled, other?))),
    }
}

/// Lowers every example, at its whole size and at those of the ragged ones that the commit draws. Calls a check with the first, and with one in
/// `of` of the others, which the commit draws for a test.
pub fn with_some(test: &str, of: u64, check: impl Fn(&Schedule, &Func, &Lowered) -> Result<()>) {
    let (mut whole, mut ragged, mut failures) = (0, 0, Vec::new());
    for (name, schedule) in compiling_examples() {
        let drawn = |(n, size): &(usize, Vec<i64>)| *n == 0 || sample::drawn(&format!("{name} at {size:?}"), 2);
        for (n, size) in sizes(&name, &schedule).into_iter().enumerate().filter(drawn) {
            let is_checked = whole == 0 || sample::drawn(&format!("{test} {name} at {size:?}"), of);
            let result = at_size(&schedule, &size).and_then(|made| {
                let Some((resized, scheduled, lowered)) = made else { return Ok(0) };
                if is_checked { check(&resized, &scheduled, &lowered).map(|()| 1) } else { Ok(1) }
            });
            match result {
                Ok(count) if n == 0 => whole += count,
                Ok(count) => ragged += count,
                Err(error) => failures.push(format!("{name} at {size:?}: {error}")),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    let least = if everything() { 60 } else { 20 };
    assert!(whole >= 12 && ragged >= least, "only {whole} whole and {ragged} ragged sizes were tried");
}

/// A quarter of the examples and sizes, and at each of them a quarter of the orders of warps, as the commit draws them.
#[test]
fn integers_are_equal_at_every_level() {
    with_some("integers", 4, |schedule, scheduled, lowered| {
        let naive = naive_integers(&schedule.program, 1)?;
        if naive_integers(scheduled, 1)? != naive {
            return Err(Error::bug(Code::SimResult, "the scheduled program differs from the naive one"));
        }
        for policy in POLICIES.into_iter().filter(|p| sample::drawn(&format!("{p:?} {schedule}"), 4)) {
            let options = Options::new(Mode::Integer).with_policy(policy);
            if integers_with(lowered, &options, 1)? != naive {
                return Err(Error::bug(Code::SimResult, format!("the kernels differ, warps {policy:?}")));
            }
        }
        Ok(())
    });
}

/// Arguments of a program.
pub fn arguments(func: &Func, make: impl Fn(DType, &[usize], u64) -> Result<Array>) -> Result<Vec<Array>> {
    let shape = |b: &warploom::ir::Buffer| -> Vec<usize> {
        b.const_shape().unwrap_or_default().iter().map(|n| *n as usize).collect()
    };
    let params = func.params.iter().map(|p| func.buffer(*p)).enumerate();
    params.map(|(i, b)| make(b.dtype, &shape(b), i as u64 + 1)).collect()
}

/// A third of the examples and sizes, as the commit draws them.
#[test]
fn kernels_meet_the_reference() {
    with_some("reference", 3, |schedule, _, lowered| {
        let mut args = arguments(&schedule.program, |d, s, seed| Array::random_integers(d, s, 8, seed))?;
        run_lowered(lowered, Mode::Real, &mut args)?;
        for output in outputs(&schedule.program, &args, Sample::All)? {
            output.exact(&args[output.param])?;
        }
        let mut args = arguments(&schedule.program, Array::random)?;
        run_lowered(lowered, Mode::Real, &mut args)?;
        for output in outputs(&schedule.program, &args, Sample::All)? {
            output.bound(&args[output.param])?;
        }
        Ok(())
    });
}
