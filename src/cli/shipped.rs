//! `warploom run ARTEFACT`: launches what was compiled before, without compiling.

use super::data::{self, Place};
use super::{build, show, values};
#[cfg(feature = "runtime")]
use crate::array::Array;
use crate::artifact::{Artifact, EXTENSION, MANIFEST, Variant};
use crate::error::{Code, Error, Result};
#[cfg(feature = "runtime")]
use crate::kernel::Arg;
use crate::loom::Schedule;
use crate::sim::{self, Mode, Options};
use std::path::Path;
use std::process::ExitCode;

/// Whether a path is one of an artefact: a folder with a manifest, or a file of its extension.
pub fn is_artifact(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == EXTENSION) || path.join(MANIFEST).is_file()
}

/// What of an artefact to run, on which data and where.
pub struct Request<'a> {
    /// The artefact.
    pub path: &'a Path,
    /// The label of a variant, or the number of its row.
    pub variant: Option<&'a str>,
    /// Seed of the random input.
    pub seed: u64,
    pub inputs: &'a [data::Filed],
    pub values: &'a [values::Set],
    pub outputs: &'a [data::Filed],
}

/// Runs a variant with its result checked against the program of its schedule.
pub fn run(request: &Request, place: &Place) -> Result<ExitCode> {
    let artifact = Artifact::read(request.path)?;
    let variant = chosen(request, &artifact, place)?;
    let schedule = Schedule::parse(&variant.schedule)?;
    let mut arrays = data::arguments(&schedule.program, request.seed)?;
    data::read(&schedule.program, request.inputs, &mut arrays)?;
    values::set(&schedule.program, request.values, &mut arrays)?;
    variant.kernels.check_values(&arrays)?;
    let judge = data::Judge::new(&schedule.program, &arrays)?;
    let (worst, how) = match place {
        Place::Cpu => {
            if let Some(patience) = data::patience_for(&schedule.program, true) {
                show::note(patience);
            }
            sim::run_ptx(&variant.kernels, &Options::new(Mode::Real), &mut arrays)?;
            let worst = judge.worst(&arrays)?;
            data::write(&schedule.program, request.outputs, &arrays)?;
            (worst, "its PTX ran on the simulator")
        }
        #[cfg(feature = "runtime")]
        Place::Gpu(device) => {
            let program = device.load(&variant.kernels)?;
            let judged = |after: &[Array]| {
                data::write(&schedule.program, request.outputs, after)?;
                judge.worst(after)
            };
            (crate::measure::check(&program, &arrays, &judged)?, "ran once")
        }
    };
    show::line(format_args!(
        "{} for {}, compiled by {}: {how}",
        variant.label, variant.kernels.target, variant.compiler
    ));
    Ok(show::verdict(worst))
}

/// The variant that `--variant` names; else the one for the newest chip that the place has, where all take the same arguments.
fn chosen<'a>(request: &Request, artifact: &'a Artifact, place: &Place) -> Result<&'a Variant> {
    if let Some(wanted) = request.variant {
        return build::find(artifact, wanted);
    }
    let first = &artifact.variants[0];
    if artifact.variants.iter().any(|v| v.signature() != first.signature()) {
        let message = format!("{} has programs for several arguments", request.path.display());
        let known = artifact.variants.iter().map(|v| v.label.as_str()).collect::<Vec<_>>().join(", ");
        return Err(Error::input(Code::CliVariant, message).help("--variant LABEL").help(known));
    }
    match place {
        Place::Cpu => Ok(first),
        #[cfg(feature = "runtime")]
        Place::Gpu(device) => {
            let shape = |arg: &Arg| arg.shape.iter().map(|n| usize::try_from(*n).unwrap_or(0)).collect();
            let args = &first.kernels.args;
            let shapes: Vec<Vec<usize>> = args.iter().map(shape).collect();
            let given: Vec<_> = args.iter().map(|arg| arg.dtype).zip(shapes.iter().map(Vec::as_slice)).collect();
            artifact.choose(&first.kernels.name, device.info().capability, &given)
        }
    }
}
