//! `warploom dump`: the stages of the compilation as text.

use super::colour::{self, Text};
use super::input::What;
use super::{build, data, pager, show, source};
use crate::artifact::{self, Artifact, Variant};
use crate::assemble::{self, Ptxas};
use crate::codegen;
use crate::error::{Code, Error, Result};
use crate::ir::{print, verify};
use crate::kernel::Kernels;
use crate::loom::Schedule;
use crate::lower;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What to print.
#[derive(Debug, Args)]
pub struct DumpArgs {
    #[command(flatten)]
    pub what: What,
    /// The dumps to print, in their order.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "schedule,ir,ptx")]
    emit: Vec<Emit>,
    /// With `lowered`: the program after each pass, or after the named one.
    #[arg(long, value_name = "PASS", num_args = 0..=1, default_missing_value = "all")]
    passes: Option<String>,
    /// Write the PTX and a manifest of everything that a launch needs into this folder, instead of printing; a name that ends in `.warploom`
    /// is a single file.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["emit", "passes"])]
    out: Option<PathBuf>,
    /// Add `.file` and `.loc` directives to the PTX, which lead from each instruction to its line in the lowered text: Nsight Compute
    /// then shows the loops. With --out, the lowered text is written beside the PTX; machine code names the lines, too.
    #[arg(long)]
    lines: bool,
    /// Validate the steps first: run a small instance of the schedule and compare the program before and after its steps, its
    /// kernels (in integer mode) and its PTX (on small integers). A difference is a fault of warploom (exit 70) and names the first step that makes one.
    #[arg(long)]
    validate: bool,
    #[command(flatten)]
    pub pager: pager::PagerArgs,
}

/// A stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Emit {
    /// Program, target and steps, with what was chosen for them: a text that parses back.
    Schedule,
    /// The program after all steps.
    Ir,
    /// Threads, memory and synchronisation made explicit.
    Lowered,
    /// LLVM IR before optimisation.
    Llvm,
    /// PTX.
    Ptx,
    /// Machine code, by ptxas and nvdisasm.
    Sass,
}

/// Prints the stages asked for.
pub fn run(args: &DumpArgs) -> Result<ExitCode> {
    let mut stages = args.emit.clone();
    stages.sort();
    stages.dedup();
    check_passes(args.passes.as_deref(), &stages)?;
    check_lines(args, &stages)?;
    let packed = args.out.as_deref().filter(|out| build::is_packed(out));
    packed.map_or(Ok(()), artifact::check_file)?;
    let own = if args.what.asks_for_chip() { data::own_chip() } else { None };
    let schedule = args.what.schedule(own)?;
    args.what.record_notes(&schedule, || data::here_for(&schedule.target))?.iter().for_each(show::note);
    if args.validate {
        show::note(schedule.validate()?);
    }
    if let Some(folder) = &args.out {
        return write(folder, &schedule, args.lines);
    }
    args.pager.want();
    for stage in &stages {
        let text = text(&schedule, *stage, args.passes.as_deref(), args.lines)?;
        if stages.len() > 1 {
            show::line(colour::head(&format!("// ---- {}", name(*stage))));
        }
        show::line(colour::paint(language(*stage), text.trim_end()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the PTX, its manifest and, with debug lines, the lowered text into a folder; or the artefact as one file.
fn write(folder: &Path, schedule: &Schedule, lines: bool) -> Result<ExitCode> {
    let kernels = compiled(schedule, lines)?;
    let name = source::file_name(&kernels.name);
    let variant = Variant::new(kernels, schedule.resolved()?.to_string(), codegen::llvm_version());
    let artifact = Artifact::new(vec![variant]);
    if build::is_packed(folder) {
        artifact.write_packed(folder)?;
        show::note(format_args!("wrote {}", folder.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let lowered = if lines { vec![(name, source::lowered(schedule)?)] } else { Vec::new() };
    let manifest = artifact.write_with(folder, &lowered)?;
    let files = manifest.variants.iter().flat_map(|v| v.files()).map(|file| file.name.clone());
    let names = files.chain([artifact::MANIFEST.to_string()]);
    for name in names.chain(lowered.into_iter().map(|(name, _)| name)) {
        show::note(format_args!("wrote {}", folder.join(name).display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The kernels, with debug lines if those are asked for.
fn compiled(schedule: &Schedule, lines: bool) -> Result<Kernels> {
    if lines { source::compile(schedule) } else { crate::compile(schedule) }
}

/// That there is PTX, or machine code, for debug lines.
fn check_lines(args: &DumpArgs, stages: &[Emit]) -> Result<()> {
    if let Some(out) = args.out.as_deref().filter(|out| args.lines && build::is_packed(out)) {
        let message =
            format!("--lines writes the lowered text as a file of the folder, and {} is one file", out.display());
        return Err(Error::input(Code::CliLines, message).help("--out DIR --lines"));
    }
    if !args.lines || args.out.is_some() || stages.iter().any(|s| matches!(s, Emit::Ptx | Emit::Sass | Emit::Llvm)) {
        return Ok(());
    }
    let message = "--lines adds lines to the PTX, and neither `ptx` nor `sass` is among the dumps to print";
    Err(Error::input(Code::CliLines, message).help("--emit ptx --lines").help("--out DIR --lines"))
}

/// That a pass is one, and that there is a stage to show it in.
fn check_passes(passes: Option<&str>, stages: &[Emit]) -> Result<()> {
    let Some(wanted) = passes else { return Ok(()) };
    if wanted != "all" && lower::PASSES.iter().all(|p| p.name != wanted) {
        let names: Vec<&str> = lower::PASSES.iter().map(|p| p.name).collect();
        return Err(Error::input(Code::CliPass, format!("there is no pass `{wanted}`")).help(names.join(", ")));
    }
    if !stages.contains(&Emit::Lowered) {
        let message = "--passes shows passes of lowering, and `lowered` is not among the dumps to print";
        return Err(Error::input(Code::CliPass, message).help("--emit lowered"));
    }
    Ok(())
}

fn name(stage: Emit) -> String {
    stage.to_possible_value().map_or_else(String::new, |v| v.get_name().to_string())
}

fn language(stage: Emit) -> Text {
    match stage {
        Emit::Schedule => Text::Loom,
        Emit::Ir | Emit::Lowered => Text::Program,
        Emit::Llvm => Text::Llvm,
        Emit::Ptx => Text::Ptx,
        Emit::Sass => Text::Sass,
    }
}

fn text(schedule: &Schedule, stage: Emit, passes: Option<&str>, lines: bool) -> Result<String> {
    Ok(match stage {
        Emit::Schedule => tested(schedule)? + &schedule.resolved()?.to_string(),
        Emit::Ir => legality(schedule)? + &print::func(&schedule.scheduled()?),
        Emit::Lowered => tested(schedule)? + &lowered(schedule, passes)?,
        Emit::Llvm => compiled(schedule, lines)?.llvm,
        Emit::Ptx => compiled(schedule, lines)?.text,
        Emit::Sass => {
            let kernels = compiled(schedule, lines)?;
            let machine_code = Ptxas::for_chip(None, &kernels.target)?.assemble(kernels.ptx(), &kernels.target)?;
            if lines { assemble::sass_with_lines(&machine_code.cubin)? } else { assemble::sass(&machine_code.cubin)? }
        }
    })
}

/// What is not proved of the program after all steps, or refused, as comments. It is printed in any case: who looks for the cause
/// wants to see it.
fn legality(schedule: &Schedule) -> Result<String> {
    let commented = |text: String| text.lines().map(|line| format!("# {line}\n")).collect();
    match verify::assurance(&schedule.scheduled()?) {
        Ok(assurance) if assurance.tested.is_empty() => Ok(String::new()),
        Ok(assurance) => Ok(commented(assurance.to_string())),
        Err(e) => Ok(commented(format!("refused: {e}"))),
    }
}

/// What is tested and not proved, as comments.
fn tested(schedule: &Schedule) -> Result<String> {
    if !schedule.program.allow_tested && schedule.program.reducers.is_empty() {
        return Ok(String::new());
    }
    let func = schedule.scheduled()?;
    let assurance = lower::lower(&func, &schedule.target)?.assurance(&func)?;
    Ok(assurance.to_string().lines().map(|line| format!("# {line}\n")).collect())
}

fn lowered(schedule: &Schedule, passes: Option<&str>) -> Result<String> {
    let func = schedule.scheduled()?;
    let Some(wanted) = passes else { return Ok(lower::print(&lower::lower(&func, &schedule.target)?)) };
    let mut out = String::new();
    let ran = lower::lower_traced(&func, &schedule.target, &mut |trace| {
        if wanted == "all" || wanted == trace.pass {
            let time = trace.time.as_secs_f64() * 1e6;
            out.push_str(&format!("# after {}, {time:.0} us\n{}\n", trace.pass, lower::print_kernel(trace.kernel)));
        }
    });
    if ran.is_err() && !out.is_empty() {
        // What the passes before the failing one made is what there is to look at.
        show::line(colour::paint(Text::Program, out.trim_end()));
    }
    ran.map(|_| out)
}
