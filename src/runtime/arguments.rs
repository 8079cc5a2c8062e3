//! The checks that stand before a launch: pure functions of what a program asks and what it is given.

use super::buffer::describe;
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::kernel::{Access, Arg, Chip, WORKSPACE_ALIGN};

/// What is given for an argument.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given<'a> {
    pub(super) dtype: DType,
    pub(super) shape: &'a [usize],
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) same_device: bool,
    /// Whether it must not be written.
    pub(super) read_only: bool,
}

/// Number, device, type, shape, size and alignment of each, and that nothing written overlaps anything else.
pub(super) fn check(program: &str, args: &[Arg], given: &[Given]) -> Result<()> {
    if args.len() != given.len() {
        let names: Vec<&str> = args.iter().map(|a| a.name.as_str()).collect();
        let message = format!(
            "{program} takes {} ({}), and {} were given",
            crate::error::counted(args.len(), "argument"),
            names.join(", "),
            given.len()
        );
        return Err(Error::input(Code::LaunchCount, message));
    }
    for (arg, given) in args.iter().zip(given) {
        one(program, arg, given)?;
    }
    overlaps(program, args, given)
}

/// How an error names an argument. A launch that is right makes no such text.
fn named(program: &str, arg: &Arg) -> String {
    format!("argument {} of {program}", arg.name)
}

fn one(program: &str, arg: &Arg, given: &Given) -> Result<()> {
    if !given.same_device {
        let message = format!("{} is on another device than the program", named(program, arg));
        return Err(Error::input(Code::LaunchDevice, message));
    }
    if given.read_only && arg.access != Access::Read {
        let message = format!("{} is written, and an array that came as read-only was given", named(program, arg));
        return Err(Error::input(Code::DlpackReadOnly, message));
    }
    let shape_agrees = arg.takes_shape(given.shape);
    if !arg.takes_type(given.dtype) || !shape_agrees {
        let of = named(program, arg);
        let wanted: Vec<usize> = arg.shape.iter().map(|e| usize::try_from(*e).unwrap_or(0)).collect();
        let code = if shape_agrees { Code::LaunchDtype } else { Code::LaunchShape };
        let message =
            format!("{of} is {}, and {} was given", describe(arg.dtype, &wanted), describe(given.dtype, given.shape));
        return Err(Error::input(code, message));
    }
    if given.bytes < arg.bytes {
        let of = named(program, arg);
        let message = format!("{of} needs {} bytes, and the buffer has {}", arg.bytes, given.bytes);
        return Err(
            Error::input(Code::LaunchSize, message).help("the strides of the parameter leave gaps: allocate them too")
        );
    }
    aligned(program, arg, given.address)
}

fn aligned(program: &str, arg: &Arg, address: u64) -> Result<()> {
    if !address.is_multiple_of(u64::from(arg.align.max(1))) {
        let of = named(program, arg);
        let message = format!("{of} must be at a multiple of {} bytes, and is at {address:#x}", arg.align);
        return Err(Error::input(Code::LaunchAlign, message));
    }
    Ok(())
}

/// For raw launches, where only addresses are known: their number and alignment.
pub(super) fn check_raw(program: &str, args: &[Arg], addresses: &[u64]) -> Result<()> {
    if args.len() != addresses.len() {
        let message = format!(
            "{program} takes {}, and {} were given",
            crate::error::counted(args.len(), "argument"),
            addresses.len()
        );
        return Err(Error::input(Code::LaunchCount, message));
    }
    args.iter().zip(addresses).try_for_each(|(arg, &address)| aligned(program, arg, address))
}

/// That there is an aligned address for each buffer of workspace.
pub(super) fn check_workspace(program: &str, buffers: usize, workspace: &[u64]) -> Result<()> {
    if workspace.len() != buffers {
        let wanted = crate::error::counted(buffers, "buffer");
        let message = format!("{program} has {wanted} of workspace, and {} were given", workspace.len());
        return Err(Error::input(Code::LaunchWorkspace, message).help("one for each of Program::workspace_bytes"));
    }
    match workspace.iter().find(|address| **address == 0 || !address.is_multiple_of(WORKSPACE_ALIGN)) {
        Some(address) => {
            let message =
                format!("workspace of {program} must be at a multiple of {WORKSPACE_ALIGN}, and is at {address:#x}");
            Err(Error::input(Code::LaunchWorkspace, message))
        }
        None => Ok(()),
    }
}

/// That a block of workspace, by address and bytes, overlaps no argument, by name, address and bytes.
pub(super) fn check_workspace_apart<'a>(
    program: &str,
    (block, bytes): (u64, u64),
    mut args: impl Iterator<Item = (&'a str, u64, u64)>,
) -> Result<()> {
    match args.find(|(_, address, size)| block < address + size && *address < block + bytes) {
        Some((name, ..)) => {
            let message = format!("the workspace of {program} overlaps {name}");
            Err(Error::input(Code::LaunchOverlap, message).help("give the workspace its own buffer"))
        }
        None => Ok(()),
    }
}

fn overlaps(program: &str, args: &[Arg], given: &[Given]) -> Result<()> {
    for (i, written) in args.iter().enumerate().filter(|(_, a)| a.access != Access::Read) {
        for (j, other) in args.iter().enumerate().filter(|(j, _)| *j != i) {
            let (a, b) = (&given[i], &given[j]);
            if a.address < b.address + other.bytes && b.address < a.address + written.bytes {
                let message = format!("{program} writes {}, which overlaps {}", written.name, other.name);
                return Err(Error::input(Code::LaunchOverlap, message)
                    .help("give every argument its own buffer: the code is compiled on that promise"));
            }
        }
    }
    Ok(())
}

/// Whether code for `target` (`sm_90a`) runs on a device of compute capability `capability`.
pub(super) fn check_target(target: &str, device: &str, capability: (u32, u32)) -> Result<()> {
    let has = capability.0 * 10 + capability.1;
    let runs = match Chip::parse(target) {
        Some(chip) => chip.runs_on(capability),
        None => return Err(Error::bug(Code::LaunchTarget, format!("`{target}` is not the name of a target"))),
    };
    if runs {
        return Ok(());
    }
    let message = format!("the program is compiled for {target}, and {device} is sm_{has}");
    Err(Error::chip(Code::LaunchTarget, message).help(format!("compile for sm_{has}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Fault;

    fn arg(name: &str, access: Access) -> Arg {
        let (shape, strides) = (vec![4, 8], vec![8, 1]);
        Arg { strides, ..Arg::new(name, DType::F32, &shape, access) }
    }

    fn given(address: u64) -> Given<'static> {
        Given { dtype: DType::F32, shape: &[4, 8], address, bytes: 128, same_device: true, read_only: false }
    }

    fn refusal(args: &[Arg], given: &[Given]) -> (String, String) {
        let error = check("gemm", args, given).unwrap_err();
        assert_eq!(error.fault(), Fault::Input);
        (error.code().to_string(), error.message().to_string())
    }

    #[test]
    fn what_fits_is_taken() {
        let args = [arg("A", Access::Read), arg("B", Access::Read), arg("C", Access::Write)];
        // Arguments that are only read may share a buffer.
        assert_eq!(check("gemm", &args, &[given(0x1000), given(0x1000), given(0x1080)]), Ok(()));
        assert_eq!(check_raw("gemm", &args, &[0x1000, 0x1000, 0x1080]), Ok(()));
    }

    #[test]
    fn a_parameter_of_tf32_that_is_only_read_takes_f32() {
        let tf32 = |access| [Arg { dtype: DType::Tf32, ..arg("A", access) }];
        assert_eq!(check("gemm", &tf32(Access::Read), &[given(0x1000)]), Ok(()));
        let (code, message) = refusal(&tf32(Access::Write), &[given(0x1000)]);
        assert_eq!(
            (code.as_str(), message.as_str()),
            ("launch.dtype", "argument A of gemm is tf32[4, 8], and f32[4, 8] was given")
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        let args = [arg("A", Access::Read)];
        let one = |change: fn(&mut Given)| {
            let mut g = given(0x1000);
            change(&mut g);
            refusal(&args, &[g])
        };
        assert_eq!(refusal(&args, &[]).1, "gemm takes 1 argument (A), and 0 were given");
        assert_eq!(one(|g| g.dtype = DType::F16).1, "argument A of gemm is f32[4, 8], and f16[4, 8] was given");
        assert_eq!(one(|g| g.dtype = DType::F16).0, "launch.dtype");
        assert_eq!(one(|g| g.shape = &[8, 4]).1, "argument A of gemm is f32[4, 8], and f32[8, 4] was given");
        assert_eq!(one(|g| g.shape = &[32]).0, "launch.shape");
        assert_eq!(one(|g| g.bytes = 127).1, "argument A of gemm needs 128 bytes, and the buffer has 127");
        assert_eq!(one(|g| g.same_device = false).0, "launch.device");
        assert_eq!(
            one(|g| g.address = 0x1008).1,
            "argument A of gemm must be at a multiple of 16 bytes, and is at 0x1008"
        );
        assert_eq!(check_raw("gemm", &args, &[0x1008]).unwrap_err().code(), Code::LaunchAlign);
        assert_eq!(check_raw("gemm", &args, &[]).unwrap_err().code(), Code::LaunchCount);
    }

    #[test]
    fn written_arguments_may_not_overlap() {
        let args = [arg("A", Access::Read), arg("C", Access::ReadWrite)];
        for address in [0x1000, 0x1070, 0xF90] {
            assert_eq!(
                refusal(&args, &[given(0x1000), given(address)]),
                ("launch.overlap".into(), "gemm writes C, which overlaps A".into())
            );
        }
        assert_eq!(check("gemm", &args, &[given(0x1000), given(0xF80)]), Ok(()));
    }

    #[test]
    fn targets_run_where_they_may() {
        for (target, capability, runs) in [
            ("sm_70", (9, 0), true),
            ("sm_90", (9, 0), true),
            ("sm_90a", (9, 0), true),
            ("sm_90a", (10, 0), false),
            ("sm_90", (10, 0), true),
            ("sm_90", (8, 9), false),
            ("sm_75", (7, 0), false),
        ] {
            let checked = check_target(target, "the device", capability);
            assert_eq!(checked.is_ok(), runs, "{target} {capability:?}");
            if let Err(error) = checked {
                assert_eq!(error.fault(), Fault::Chip);
            }
        }
        assert_eq!(check_target("gfx90a", "x", (9, 0)).unwrap_err().fault(), Fault::Bug);
    }
}
