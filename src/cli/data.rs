//! Input for a program, the sizes that the simulator can do, and where a program runs.

use super::values::{self, Set};
use super::{memory, show};
use crate::array::Array;
use crate::artifact;
use crate::error::{Code, Error, Result};
use crate::ir::{Buffer, BufferId, DynamicSize, Func, Scope, layout, visit};
#[cfg(feature = "runtime")]
use crate::kernel::Chip;
use crate::loom::Schedule;
use crate::target::Target;
use crate::te;
use crate::tune::{self, Here};
pub use crate::tune::{Judge, arguments};
use std::path::PathBuf;
use std::str::FromStr;

/// Operations that the simulator does in a few seconds.
pub const CPU_OPERATIONS: f64 = 2.0 * 512.0 * 512.0 * 512.0;

/// Operations that a GPU does in a few seconds where a tool watches each access.
pub const WATCHED_OPERATIONS: f64 = 2.0 * 128.0 * 128.0 * 128.0;

/// A parameter and a file: `A=a.npy`, or `A=weights.safetensors:layer.weight`.
#[derive(Debug, Clone)]
pub struct Filed {
    parameter: String,
    path: PathBuf,
    tensor: Option<String>,
}

impl FromStr for Filed {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Filed, String> {
        let wrong = || format!("`{text}` is not PARAMETER=FILE, such as A=a.npy or A=weights.safetensors:layer.weight");
        let (parameter, file) =
            text.split_once('=').filter(|(p, f)| !p.is_empty() && !f.is_empty()).ok_or_else(wrong)?;
        let (path, tensor) = match file.split_once(".safetensors:") {
            Some((stem, tensor)) => (format!("{stem}.safetensors"), Some(tensor.to_string())),
            None => (file.to_string(), None),
        };
        Ok(Filed { parameter: parameter.to_string(), path: path.into(), tensor })
    }
}

impl Filed {
    /// The name of the parameter.
    pub fn parameter(&self) -> &str {
        &self.parameter
    }

    /// The array of the file.
    pub fn array(&self) -> Result<Array> {
        Array::read(&self.path, self.tensor.as_deref())
    }
}

/// The position of the parameter among the program's, which writes it or not.
fn position(program: &Func, file: &Filed, is_written: bool) -> Result<usize> {
    let written = visit::writes(&program.body);
    let suits = |id: &&BufferId| written.contains(id) == is_written;
    let what = if is_written { "output" } else { "input" };
    let names: Vec<&str> = program.params.iter().filter(suits).map(|id| program.buffer(*id).name.as_str()).collect();
    let found = program.params.iter().position(|id| program.buffer(*id).name == file.parameter && suits(&id));
    found.ok_or_else(|| {
        let message = format!("`{}` is no {what} of {}", file.parameter, program.name);
        Error::input(Code::CliParameter, message).help(format!("its {what}s are {}", names.join(", ")))
    })
}

/// The inputs of a run: drawn at random, from files, and as set by hand. A dynamic size has the value that is set, or that of a file's
/// array, or its largest.
pub fn inputs(program: &Func, seed: u64, files: &[Filed], values: &[Set]) -> Result<Vec<Array>> {
    values::check_once(values)?;
    check_once(files)?;
    let mut sizes = Vec::new();
    for size in &program.sizes {
        let stated = match values::number_of(values, &size.size.name)? {
            Some(value) => Some(value),
            None => outermost(program, files, size)?,
        };
        sizes.push(stated.unwrap_or(size.size.high));
    }
    let own = |set: &&Set| program.find_size(set.input()).is_none();
    let values: Vec<Set> = values.iter().filter(own).cloned().collect();
    let fixed = program.at(&sizes)?;
    let mut arrays = arguments(&fixed, seed)?;
    read(&fixed, files, &mut arrays)?;
    let set = values::set(&fixed, &values, &mut arrays);
    set.map_err(|e| {
        program.sizes.iter().fold(e, |e, s| e.help(format!("--set {}=N sets its dynamic size", s.size.name)))
    })?;
    Ok(arrays)
}

/// Refuses a second file for an input.
fn check_once(files: &[Filed]) -> Result<()> {
    for (n, file) in files.iter().enumerate() {
        if let Some(before) = files[..n].iter().find(|before| before.parameter == file.parameter) {
            let (input, paths) = (&file.parameter, [&before.path, &file.path].map(|p| p.display()));
            let message = format!("input {input} is read from two files, {} and {}", paths[0], paths[1]);
            return Err(Error::input(Code::CliParameter, message).help(format!("one --input {input}=FILE")));
        }
    }
    Ok(())
}

/// The outermost extent of the first file that is for an input of the size.
fn outermost(program: &Func, files: &[Filed], size: &DynamicSize) -> Result<Option<i64>> {
    for file in files {
        let buffer = program.buffer(program.params[position(program, file, false)?]);
        if buffer.shape.first().is_some_and(|extent| *extent == size.value()) {
            let array = file.array()?;
            return Ok(array.shape.first().and_then(|n| i64::try_from(*n).ok()));
        }
    }
    Ok(None)
}

/// Puts arrays from files in the places of a program's inputs.
pub fn read(program: &Func, files: &[Filed], arrays: &mut [Array]) -> Result<()> {
    for file in files {
        let n = position(program, file, false)?;
        let buffer = program.buffer(program.params[n]);
        let array = file.array()?;
        let shape: Vec<i64> = array.shape.iter().map(|e| *e as i64).collect();
        if !buffer.dtype.reads(array.dtype) || buffer.const_shape().as_ref() != Some(&shape) || buffer.strides.is_some()
        {
            let message = format!(
                "{} holds {}{shape:?}, and input {} is {}{:?}{}",
                file.path.display(),
                array.dtype,
                buffer.name,
                buffer.dtype,
                buffer.const_shape().unwrap_or_default(),
                if buffer.strides.is_some() { " with strides" } else { "" }
            );
            return Err(Error::input(Code::CliParameter, message));
        }
        arrays[n] = Array { dtype: buffer.dtype, ..array };
    }
    Ok(())
}

/// The position of the output of a file, which has no strides.
fn output(program: &Func, file: &Filed) -> Result<usize> {
    let n = position(program, file, true)?;
    let buffer = program.buffer(program.params[n]);
    if buffer.strides.is_some() {
        let message = format!("output {} has strides, and no file holds gaps", buffer.name);
        return Err(Error::input(Code::CliParameter, message));
    }
    Ok(n)
}

/// Checks before a run that [`write`] can write the outputs.
pub fn check_outputs(program: &Func, files: &[Filed]) -> Result<()> {
    for file in files {
        let n = output(program, file)?;
        Array::check_name(&file.path, program.buffer(program.params[n]).dtype)?;
        artifact::check_file(&file.path)?;
    }
    Ok(())
}

/// Writes outputs of a program to files, and creates their folders if necessary.
pub fn write(program: &Func, files: &[Filed], arrays: &[Array]) -> Result<()> {
    for file in files {
        let n = output(program, file)?;
        let name = file.tensor.as_deref().unwrap_or(&file.parameter);
        if let Some(folder) = file.path.parent() {
            // A folder that cannot be created is an error of the file in it.
            let _ = std::fs::create_dir_all(folder);
        }
        arrays[n].write(&file.path, name)?;
        show::note(format_args!("wrote {}", file.path.display()));
    }
    Ok(())
}

/// Bytes that the simulator and the check of its result hold for each element of an array, besides the element: of an input
/// nothing, of an output or an array between two statements whether it has been written and by whom, later its reference.
const BESIDE_ELEMENT: f64 = 18.0;

/// Bytes of memory that a run on the simulator takes: all arrays of the program and of its schedule with what is kept of each
/// element that is written.
pub fn memory(schedule: &Schedule) -> f64 {
    let of = |func: &Func| -> f64 {
        let written = visit::writes(&func.body);
        let global = func.buffers.iter().enumerate().filter(|(_, b)| b.scope == Scope::Global);
        let bytes = |(n, b): (usize, &Buffer)| {
            // More elements than can be counted.
            let elements = layout::span(&func.largest(b)).map_or(f64::INFINITY, |n| n as f64);
            let beside = if written.contains(&BufferId(n as u32)) { BESIDE_ELEMENT } else { 0.0 };
            elements * (f64::from(b.dtype.bits()) / 8.0 + beside)
        };
        global.map(bytes).sum()
    };
    // Steps add workspace, and may take buffers away that the reference holds.
    schedule.scheduled().map_or(0.0, |func| of(&func)).max(of(&schedule.program)) + FIXED
}

/// Bytes that a run takes besides: the program, LLVM, kept rows of references.
const FIXED: f64 = (512 << 20) as f64;

/// That a run on the simulator has the memory that it takes.
pub fn check_memory(schedule: &Schedule) -> Result<()> {
    let (needed, there) = (memory(schedule), memory::available());
    if needed <= there {
        return Ok(());
    }
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    let message = format!(
        "the simulator needs {:.1} GiB of memory for this program; it may take {:.1} GiB here",
        gib(needed),
        gib(there)
    );
    Err(Error::machine(Code::CliMemory, message)
        .help("smaller extents in the program's text, or --size where it has sizes"))
}

/// The schedule at a size of about so many operations, if it has more, and of no more memory than there is: sizes are halved, the
/// largest first, while the steps still apply and lower; a half that does not is rounded up to a multiple of 8, as rows that are
/// copied need.
pub fn reduced(schedule: &Schedule, operations: f64) -> Schedule {
    reduced_to(schedule, operations, memory::available())
}

/// As [`reduced`], of operations at values of the dynamic sizes; a smaller range may lack a value, and then has its largest instead.
pub fn reduced_at(schedule: &Schedule, values: &[i64], operations: f64) -> Schedule {
    let bytes = memory::available();
    let counted =
        |s: &Schedule| s.program.at(&within(&s.program, values)).map_or(f64::INFINITY, |p| te::operations(&p));
    tune::halved(schedule, &|s| counted(s) > operations || memory(s) > bytes)
}

/// The values of the dynamic sizes of a program, or the largest instead of those above it.
pub fn within(program: &Func, values: &[i64]) -> Vec<i64> {
    program.sizes.iter().zip(values).map(|(s, value)| s.size.high.min(*value)).collect()
}

fn reduced_to(schedule: &Schedule, operations: f64, bytes: f64) -> Schedule {
    tune::halved(schedule, &|s| te::operations(&s.program) > operations || memory(s) > bytes)
}

/// What to say before a program that is more than the simulator does in a few seconds, and that nothing reduces.
pub fn patience_for(program: &Func, was_asked: bool) -> Option<String> {
    let operations = te::operations(program);
    let why = if was_asked { "the size that was asked for" } else { "the sizes are part of its text" };
    (operations > 2.0 * CPU_OPERATIONS).then(|| {
        format!(
            "{operations:.1e} operations, {:.0} times what the simulator does in a few seconds ({why})",
            operations / CPU_OPERATIONS
        )
    })
}

/// Seconds that a GPU may take for what the command line gives it at a time: far more than any of it takes.
pub const PATIENCE_S: u64 = 120;

/// Where to run.
pub enum Place {
    /// On the simulator.
    Cpu,
    /// On a GPU.
    #[cfg(feature = "runtime")]
    Gpu(crate::runtime::Device),
}

impl Place {
    /// The chip of the GPU, if it is one.
    pub fn chip(&self) -> Result<Option<Target>> {
        match self {
            Place::Cpu => Ok(None),
            #[cfg(feature = "runtime")]
            Place::Gpu(device) => chip(device.info()).map(Some),
        }
    }

    /// The compiler, and the GPU if it is one: what takes schedules from records.
    pub fn here(&self) -> Here {
        match self {
            Place::Cpu => Here::new(),
            #[cfg(feature = "runtime")]
            Place::Gpu(device) => here_on(device.info()),
        }
    }
}

/// The compiler, and the first GPU if it runs code for the target: what takes schedules from records.
#[cfg(feature = "runtime")]
pub fn here_for(target: &Target) -> Here {
    let runs =
        |info: &&crate::runtime::DeviceInfo| Chip::parse(target.name).is_some_and(|chip| chip.runs_on(info.capability));
    crate::runtime::probe().devices.first().filter(runs).map_or_else(Here::new, here_on)
}

/// The compiler alone.
#[cfg(not(feature = "runtime"))]
pub fn here_for(_: &Target) -> Here {
    Here::new()
}

#[cfg(feature = "runtime")]
fn here_on(info: &crate::runtime::DeviceInfo) -> Here {
    Here::on(&info.name, info.driver_text())
}

/// The chip to compile for that a device is: its own, or of a newer one the newest whose PTX it can run, with a word of that.
#[cfg(feature = "runtime")]
pub fn chip(info: &crate::runtime::DeviceInfo) -> Result<Target> {
    let target = info.target()?;
    if Target::ALL.iter().all(|t| t.sm < info.sm()) {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            show::note(format_args!(
                "{} (sm_{}) is newer than every target: compiled for {target}, the newest target whose PTX it runs",
                info.name,
                info.sm()
            ));
        });
    }
    Ok(target)
}

/// The chip of the first GPU, if there is one to compile for; it is not opened.
#[cfg(feature = "runtime")]
pub fn own_chip() -> Option<Target> {
    crate::runtime::probe().devices.first().and_then(|info| chip(info).ok())
}

/// No GPU is looked for.
#[cfg(not(feature = "runtime"))]
pub fn own_chip() -> Option<Target> {
    None
}

/// Opens what `--device` names: `sim` or `cpu`, a device's number, or nothing: the first GPU, else the simulator with a word of why.
pub fn place(device: Option<&str>) -> Result<Place> {
    place_for(device, PATIENCE_S)
}

/// As [`place`]; a GPU that keeps a wait longer than so many seconds is given up.
pub fn place_for(device: Option<&str>, patience: u64) -> Result<Place> {
    match device {
        Some("cpu" | "sim") => Ok(Place::Cpu),
        Some(n) => {
            let ordinal = n.parse::<u32>().map_err(|_| {
                Error::input(Code::CliDevice, format!("`{n}` is not a device"))
                    .help("sim, cpu (the same), or a number such as 0")
            })?;
            open(ordinal, patience)
        }
        None => open(0, patience).or_else(|why| {
            show::note(format_args!("no GPU is used ({}): this runs on the simulator", why.message()));
            Ok(Place::Cpu)
        }),
    }
}

#[cfg(feature = "runtime")]
fn open(ordinal: u32, patience: u64) -> Result<Place> {
    let device = crate::runtime::Device::open(ordinal)?;
    device.set_time_limit(Some(std::time::Duration::from_secs(patience)));
    Ok(Place::Gpu(device))
}

#[cfg(not(feature = "runtime"))]
fn open(_: u32, _: u64) -> Result<Place> {
    Err(without_cuda())
}

/// What needs a GPU is not in this program.
#[cfg(not(feature = "runtime"))]
pub fn without_cuda() -> Error {
    Error::machine(Code::CliDevice, "this warploom was built without feature `runtime`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::input;
    use crate::te::Known;

    #[test]
    fn an_input_has_one_file() {
        let program = Schedule::parse("vec_add 8\ntarget sm_80\n").unwrap().program;
        let filed = |text: &str| text.parse::<Filed>().unwrap();
        let error = inputs(&program, 1, &[filed("A=a.npy"), filed("B=b.npy"), filed("A=c.npy")], &[]).unwrap_err();
        assert_eq!(error.code(), Code::CliParameter);
        assert_eq!(error.message(), "input A is read from two files, a.npy and c.npy");
    }

    #[test]
    fn a_large_program_shrinks_until_it_has_few_operations() {
        let text = "gemm 1024x512x2048 f32 NN\ntarget sm_80\nsplit i ? 32 -> a b\n";
        let large = Schedule::parse(text).unwrap();
        let sizes = |operations| Known::of(&reduced(&large, operations).program).unwrap().sizes();
        assert_eq!(sizes(CPU_OPERATIONS), [512, 512, 512]);
        assert_eq!(sizes(WATCHED_OPERATIONS), [128, 128, 128]);
        assert_eq!(sizes(f64::INFINITY), [1024, 512, 2048]);
    }

    #[test]
    fn a_program_shrinks_until_it_has_the_memory_that_it_takes() {
        let large = Schedule::parse("vec_add 68719476736\ntarget sm_80\nsplit i ? 128 -> a b\n").unwrap();
        let at = |bytes: f64| reduced_to(&large, CPU_OPERATIONS, bytes);
        let size = |s: Schedule| Known::of(&s.program).unwrap().sizes()[0];
        assert_eq!(size(at(f64::INFINITY)), 1 << 28);
        // Two inputs of 4 bytes and a result of 4 with 18 beside: 30 bytes an element.
        assert_eq!(size(at(FIXED + 30.0 * (1 << 20) as f64)), 1 << 20);
        assert_eq!(size(at(0.0)), 1);
    }

    #[test]
    fn epilogues_shrink_with_their_products_and_what_does_not_shrink_is_announced() {
        let text = "gemm 8192x8192x8192 f16>f32>f16 NN bias relu\ntarget sm_80\n";
        let large = Schedule::parse(text).unwrap();
        assert!(patience_for(&large.program, false).unwrap().starts_with("1.1e12 operations, "));
        let small = reduced(&large, WATCHED_OPERATIONS);
        assert_eq!(input::title(&small), "gemm 64x128x128 f16>f32>f16 NN bias relu");
        assert_eq!(patience_for(&small.program, false), None);
        assert_eq!(input::title(&large.resized(&[64]).unwrap()), "gemm 64x64x64 f16>f32>f16 NN bias relu");
    }
}
