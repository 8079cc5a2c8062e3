//! The emitted PTX, run on the CPU: every example at reduced sizes gives what its Lowered program gives.

use crate::differential::{POLICIES, arguments, with_all};
use warploom::machine::{Mode, Options, Policy, run_lowered, run_ptx};
use warploom::reference::{Sample, outputs};
use warploom::{Array, DType, Error, Kernels, Result, Schedule, codegen};

fn options(policy: Policy) -> Options {
    Options { policy, ..Options::new(Mode::Real) }
}

/// Whether every argument has the same bytes.
fn same(left: &[Array], right: &[Array]) -> Result<()> {
    match left.iter().zip(right).position(|(l, r)| l.bytes != r.bytes) {
        None => Ok(()),
        Some(n) => Err(Error::bug("test.ptx", format!("argument {n} differs between Lowered and PTX"))),
    }
}

#[test]
fn the_ptx_of_every_example_gives_what_its_kernels_give() {
    with_all(|schedule, _, lowered| {
        let kernels = codegen::compile(lowered, &schedule.target)?;
        let mut args = arguments(&schedule.program, |d, s, seed| Array::random_integers(d, s, 8, seed))?;
        let inputs = args.clone();
        run_lowered(lowered, Mode::Real, &mut args)?;
        for policy in POLICIES {
            let mut own = inputs.clone();
            match run_ptx(&kernels, &options(policy), &mut own) {
                Err(e) if e.code() == "ptx.unknown" => return Ok(()),
                other => other.map_err(|e| e.within(format!("{policy:?}")))?,
            };
            same(&args, &own).map_err(|e| e.within(format!("{policy:?}")))?;
        }
        let mut args = arguments(&schedule.program, Array::random)?;
        run_ptx(&kernels, &options(Policy::InOrder), &mut args)?;
        for output in outputs(&schedule.program, &args, Sample::All)? {
            output.bound(&args[output.param])?;
        }
        Ok(())
    });
}
