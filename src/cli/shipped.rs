//! `warploom run ARTEFACT`: launches compiled kernels, without compiling.

use super::data::{self, Place};
use super::{build, show, values};
#[cfg(feature = "runtime")]
use crate::array::Array;
use crate::artifact::{Artifact, MANIFEST, Variant};
use crate::error::{Code, Error, Result};
#[cfg(feature = "runtime")]
use crate::kernel::Arg;
use crate::loom::Schedule;
use crate::sim::{self, Mode, Options};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

/// Whether the path is an artefact: a folder with a manifest, or a file with the extension of artefacts.
pub fn is_artifact(path: &Path) -> bool {
    build::is_packed(path) || path.join(MANIFEST).is_file()
}

/// Which variant to run, and on which data.
pub struct Request<'a> {
    /// The artefact.
    pub path: &'a Path,
    /// The label or row number of a variant.
    pub variant: Option<&'a str>,
    /// Seed of the random input.
    pub seed: u64,
    pub inputs: &'a [data::Filed],
    pub values: &'a [values::Set],
    pub outputs: &'a [data::Filed],
}

/// Runs a variant and checks the result against the program of its schedule.
pub fn run(request: &Request, place: &Place) -> Result<ExitCode> {
    let artifact = Artifact::read(request.path)?;
    let variant = chosen(request, &artifact, place)?;
    let schedule = Schedule::parse(&variant.schedule)?;
    data::check_outputs(&schedule.program, request.outputs)?;
    let mut arrays = data::inputs(&schedule.program, request.seed, request.inputs, request.values)?;
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

/// The variant for the device: among the variants with the label of `--variant`, or among all, the one for the newest chip that the device
/// supports. These variants must take the same arguments. A row number selects a single variant.
fn chosen<'a>(request: &Request, artifact: &'a Artifact, place: &Place) -> Result<&'a Variant> {
    let is_named = |v: &&Variant| request.variant.is_none_or(|wanted| v.label == wanted);
    let pool: Vec<&Variant> = artifact.variants.iter().filter(is_named).collect();
    let (Some(first), [_, _, ..]) = (pool.first(), &pool[..]) else {
        return request.variant.map_or(Ok(&artifact.variants[0]), |wanted| build::find(artifact, wanted));
    };
    if pool.iter().any(|v| v.signature() != first.signature()) {
        let message = format!("{} has programs for several arguments", request.path.display());
        let known: BTreeSet<&str> = pool.iter().map(|v| v.label.as_str()).collect();
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
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
            artifact.choose(request.variant.unwrap_or(&first.kernels.name), device.info().capability, &given)
        }
    }
}
