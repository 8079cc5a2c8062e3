//! The check before the clock: a run with poisoned outputs, held against a reference.

use crate::array::Array;
use crate::error::{Code, Error, Result};
use crate::kernel::{Access, Arg};
use crate::runtime::{Device, DeviceBuffer, Program};

/// Runs a program once on the device. `args` has one array an argument: those that are only written are poisoned on
/// the device first, whatever they hold here. Returns all arguments as they are afterwards.
pub fn run_once(program: &Program, args: &[Array]) -> Result<Vec<Array>> {
    run_uploaded(program, &upload(program.device(), program.args(), args)?)
}

fn run_uploaded(program: &Program, buffers: &[DeviceBuffer]) -> Result<Vec<Array>> {
    program.launch(&buffers.iter().collect::<Vec<_>>())?;
    buffers.iter().map(DeviceBuffer::download).collect()
}

/// Runs once and has `judge` look at all arguments afterwards: it returns the largest ratio of an error to its bound.
///
/// # Errors
/// What the run says; what the judge says; a ratio above 1 (or none that is a number); an input that changed.
pub fn check(program: &Program, args: &[Array], judge: &dyn Fn(&[Array]) -> Result<f64>) -> Result<f64> {
    check_uploaded(program, &upload(program.device(), program.args(), args)?, args, judge).map(|(worst, _)| worst)
}

/// As [`check`], with the arguments on the device already; and all of them as they are afterwards.
pub(super) fn check_uploaded(
    program: &Program,
    buffers: &[DeviceBuffer],
    args: &[Array],
    judge: &dyn Fn(&[Array]) -> Result<f64>,
) -> Result<(f64, Vec<Array>)> {
    let after = run_uploaded(program, buffers)?;
    unchanged(program.name(), program.args(), args, &after)?;
    passed(program.name(), judge(&after)?).map(|worst| (worst, after))
}

/// The arguments on the device, outputs poisoned.
pub(super) fn upload(device: &Device, args: &[Arg], arrays: &[Array]) -> Result<Vec<DeviceBuffer>> {
    if args.len() != arrays.len() {
        let message = format!(
            "the program takes {}, and {} are given",
            crate::error::counted(args.len(), "argument"),
            crate::error::counted(arrays.len(), "array")
        );
        return Err(Error::input(Code::MeasureCount, message));
    }
    let one = |(arg, array): (&Arg, &Array)| {
        if arg.access == Access::Write {
            let buffer = device.alloc(array.dtype, &array.shape)?;
            return buffer.poison().map(|()| buffer);
        }
        device.upload(array)
    };
    args.iter().zip(arrays).map(one).collect()
}

/// A check passes when no error is above its bound. NaN passes nothing.
pub(super) fn passed(name: &str, worst: f64) -> Result<f64> {
    if worst <= 1.0 {
        return Ok(worst);
    }
    let message = format!("{name} computes a wrong result: an error is {worst:.3} times its bound");
    Err(Error::bug(Code::MeasureWrong, message))
}

fn unchanged(name: &str, args: &[Arg], before: &[Array], after: &[Array]) -> Result<()> {
    let pairs = args.iter().zip(before.iter().zip(after));
    match pairs.into_iter().find(|(arg, (b, a))| arg.access == Access::Read && b.bytes != a.bytes) {
        Some((arg, _)) => Err(Error::bug(Code::MeasureChanged, format!("{name} changed its input {}", arg.name))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn only_errors_within_their_bounds_pass() {
        assert_eq!(passed("gemm", 0.5), Ok(0.5));
        assert_eq!(passed("gemm", 1.5).unwrap_err().code(), Code::MeasureWrong);
        assert!(passed("gemm", f64::NAN).is_err());
    }

    #[test]
    fn inputs_must_stay() {
        let arg = |access| Arg::new("A", DType::F32, &[2], access);
        let before = [Array::zeros(DType::F32, &[2]).unwrap()];
        let after = [Array::poisoned(DType::F32, &[2]).unwrap()];
        assert_eq!(unchanged("p", &[arg(Access::Read)], &before, &after).unwrap_err().code(), Code::MeasureChanged);
        assert_eq!(unchanged("p", &[arg(Access::Write)], &before, &after), Ok(()));
    }
}
