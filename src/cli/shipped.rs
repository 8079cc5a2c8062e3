//! `warploom run ARTEFACT`: launches compiled kernels, without compiling.

use super::data::{self, Place};
use super::{build, show, values};
use crate::array::Array;
#[cfg(feature = "runtime")]
use crate::artifact;
use crate::artifact::{Artifact, MANIFEST, Variant};
use crate::error::{Code, Error, Result};
use crate::kernel::Access;
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

/// The variant to launch. `--variant LABEL` leaves the variants with this label, `--variant ROW` a single one. The shapes and types of `--input`
/// files and the sizes of `--set` leave the variants that accept them. The device then decides: the variant for the newest chip that it supports.
fn chosen<'a>(request: &Request, artifact: &'a Artifact, place: &Place) -> Result<&'a Variant> {
    let is_named = |v: &&Variant| request.variant.is_none_or(|wanted| v.label == wanted);
    let pool: Vec<&Variant> = artifact.variants.iter().filter(is_named).collect();
    let [_, _, ..] = pool[..] else {
        return request.variant.map_or(Ok(&artifact.variants[0]), |wanted| build::find(artifact, wanted));
    };
    let pool = suited(request, pool)?;
    let first = pool[0];
    if pool.iter().any(|v| v.signature() != first.signature()) {
        return Err(several(request, &pool));
    }
    match place {
        Place::Cpu => Ok(first),
        #[cfg(feature = "runtime")]
        Place::Gpu(device) => artifact::choose::for_device(&pool, device.info().capability),
    }
}

/// The variants that take the arrays of the files and the sizes that are set; those for these sizes alone, where there are some.
fn suited<'a>(request: &Request, pool: Vec<&'a Variant>) -> Result<Vec<&'a Variant>> {
    let sizes = || pool.iter().flat_map(|v| &v.kernels.sizes).map(|size| size.name.as_str());
    let mut given = Vec::new();
    for name in sizes().collect::<BTreeSet<_>>() {
        given.extend(values::number_of(request.values, name)?.map(|value| (name, value)));
    }
    let mut arrays = Vec::new();
    for file in request.inputs {
        check_name(file.parameter(), &pool)?;
        arrays.push((file.parameter(), file.array()?));
    }
    let has_size = |v: &Variant, (name, value): &(&str, i64)| {
        v.kernels.sizes.iter().any(|size| size.name == *name && size.takes(*value))
    };
    let takes = |v: &&Variant| {
        let takes_array = |(name, array): &(&str, Array)| v.kernels.takes_for(name, array.dtype, &array.shape);
        given.iter().all(|size| has_size(v, size)) && arrays.iter().all(takes_array)
    };
    let mut suited: Vec<&Variant> = pool.iter().copied().filter(takes).collect();
    if suited.is_empty() {
        let sizes = given.iter().map(|(name, value)| format!("{name} = {value}"));
        let words = arrays.iter().map(|(name, array)| format!("{name} {}{:?}", array.dtype, array.shape)).chain(sizes);
        let words = words.collect::<Vec<_>>().join(", ");
        let message = format!("no program of {} takes {words}", request.path.display());
        let known: BTreeSet<String> = pool.iter().map(|v| v.signature()).collect();
        return Err(known.into_iter().fold(Error::input(Code::CliVariant, message), Error::help));
    }
    let is_informed = !given.is_empty() || !arrays.is_empty();
    if is_informed && suited.iter().any(|v| v.kernels.sizes.is_empty()) {
        suited.retain(|v| v.kernels.sizes.is_empty());
    }
    Ok(suited)
}

/// That a parameter is an input of one of the variants.
fn check_name(name: &str, pool: &[&Variant]) -> Result<()> {
    let inputs = || pool.iter().flat_map(|v| &v.kernels.args).filter(|arg| arg.access == Access::Read);
    if inputs().any(|arg| arg.name == name) {
        return Ok(());
    }
    let programs: BTreeSet<&str> = pool.iter().map(|v| v.kernels.name.as_str()).collect();
    let programs = programs.into_iter().collect::<Vec<_>>().join(" or ");
    let known: BTreeSet<&str> = inputs().map(|arg| arg.name.as_str()).collect();
    let known = known.into_iter().collect::<Vec<_>>().join(", ");
    let error = Error::input(Code::CliParameter, format!("`{name}` is no input of {programs}"));
    Err(error.help(format!("its inputs are {known}")))
}

/// Several programs take what is given.
fn several(request: &Request, pool: &[&Variant]) -> Error {
    let error =
        Error::input(Code::CliVariant, format!("{} has programs for several arguments", request.path.display()));
    let labels: BTreeSet<&str> = pool.iter().map(|v| v.label.as_str()).collect();
    let size = pool.iter().flat_map(|v| &v.kernels.sizes).next();
    let error = size.into_iter().fold(error, |error, size| error.help(format!("--set {}=VALUE", size.name)));
    let input = pool[0].kernels.args.first().map_or("A", |arg| arg.name.as_str());
    let error = error.help(format!("--input {input}=FILE, whose shape chooses")).help("--variant LABEL");
    error.help(labels.into_iter().collect::<Vec<_>>().join(", "))
}
