//! `warploom build`: compiles schedules for several chips and sizes into one artefact.

use super::input::{self, Sizes};
use super::show;
use crate::analysis;
use crate::artifact::{Artifact, EXTENSION, MANIFEST, Variant};
use crate::assemble::Ptxas;
use crate::codegen;
use crate::error::{Code, Error, Result};
use crate::gemm;
use crate::kernel::Cubin;
use crate::loom::Schedule;
use crate::lower;
use crate::target::Target;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

/// What to build, for which chips, and where to.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// Schedules to compile.
    #[arg(required_unless_present = "gemm")]
    files: Vec<PathBuf>,
    /// Matrix products with recommended steps: N, MxNxK or BxMxNxK (a batch), separated by commas.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = input::sizes)]
    gemm: Vec<Sizes>,
    /// Types of --gemm, separated by commas: of the inputs (f16 means f16>f32>f16), or inputs>accumulators>result, or
    /// A*B>accumulators>result.
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "f32", requires = "gemm")]
    dtype: Vec<String>,
    /// Layouts of A and B of --gemm, separated by commas: N as it is, T transposed.
    #[arg(long, value_name = "LAYOUTS", value_delimiter = ',', default_value = "NN", requires = "gemm")]
    layout: Vec<String>,
    /// Compile each file at these sizes instead of its own: N, MxNxK or BxMxNxK, separated by commas.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = input::sizes, requires = "files")]
    sizes: Vec<Sizes>,
    /// Compile for each of these chips, separated by commas, instead of the files' own. Without it, --gemm is compiled for sm_90a where that
    /// has wgmma for the types, else for sm_90.
    #[arg(long, value_name = "CHIPS", value_delimiter = ',')]
    target: Vec<String>,
    /// The folder to write, or, where the name ends in `.warploom`, the one file.
    #[arg(short, long, value_name = "PATH")]
    out: PathBuf,
    /// Assemble the PTX: the artefact then has machine code for each chip, too. Needs ptxas.
    #[arg(long)]
    cubin: bool,
}

/// A schedule to compile, and what its files are called.
struct Job {
    label: String,
    schedule: Schedule,
}

/// Compiles all of them, then writes the artefact.
pub fn run(args: &BuildArgs) -> Result<ExitCode> {
    let jobs = jobs(args)?;
    let bar = show::bar(jobs.len());
    let compiled = |job: &Job| {
        let compiled = compile(job, args.cubin).map_err(|e| e.within(format!("building {}", job.label)));
        bar.inc(1);
        compiled
    };
    let variants = in_parallel(&jobs, &compiled);
    bar.finish_and_clear();
    let artifact = Artifact::new(variants?);
    write(&artifact, &args.out)?;
    show::line(table(&artifact));
    Ok(ExitCode::SUCCESS)
}

/// The schedules that are asked for: files in their order, then products.
fn jobs(args: &BuildArgs) -> Result<Vec<Job>> {
    let targets = args.target.iter().map(|name| Target::parse(name)).collect::<Result<Vec<_>>>()?;
    // None is the chip of the file, or that of the product.
    let targets: Vec<Option<Target>> =
        if targets.is_empty() { vec![None] } else { targets.into_iter().map(Some).collect() };
    let mut jobs = Vec::new();
    for file in &args.files {
        for target in &targets {
            of_file(file, *target, &args.sizes, &mut jobs)?;
        }
    }
    for sizes in &args.gemm {
        for (types, layout) in args.dtype.iter().flat_map(|types| args.layout.iter().map(move |layout| (types, layout)))
        {
            let product = input::product(&sizes.0, types, layout)?;
            for target in &targets {
                let target = target.unwrap_or_else(|| product.default_target());
                let schedule = gemm::recommend(&product, &target)?;
                jobs.push(Job { label: input::title(&schedule).replace(' ', "_"), schedule });
            }
        }
    }
    Ok(jobs)
}

/// The schedule of a file at its own size or at each of those that are asked for.
fn of_file(file: &Path, target: Option<Target>, sizes: &[Sizes], jobs: &mut Vec<Job>) -> Result<()> {
    let named = |e: Error| e.within(format!("reading {}", file.display()));
    let schedule = input::read(file, target).map_err(named)?;
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or(&schedule.program.name).to_string();
    if sizes.is_empty() {
        jobs.push(Job { label: stem, schedule });
        return Ok(());
    }
    for Sizes(sizes) in sizes {
        let words: Vec<String> = sizes.iter().map(i64::to_string).collect();
        let label = format!("{stem}_{}", words.join("x"));
        jobs.push(Job { label, schedule: schedule.resized(sizes).map_err(named)? });
    }
    Ok(())
}

/// The variant of a schedule.
fn compile(job: &Job, assembled: bool) -> Result<Variant> {
    let schedule = &job.schedule;
    let func = schedule.scheduled()?;
    let lowered = lower::lower(&func, &schedule.target)?;
    let mut kernels = codegen::compile(&lowered, &schedule.target)?;
    let mut report = analysis::cost_report(&lowered, &schedule.target).compiled(&kernels).summed(&func);
    if assembled {
        let ptxas = Ptxas::for_chip(None, &kernels.target)?;
        let machine_code = ptxas.assemble(kernels.ptx(), &kernels.target)?;
        report = report.assembled(&kernels, &ptxas.version, &machine_code.usage, &schedule.target);
        kernels.cubin = Some(Cubin::new(&kernels.target, format!("ptxas {}", ptxas.version), machine_code.cubin));
    }
    let variant = Variant::new(kernels, schedule.resolved()?.to_string(), codegen::llvm_version());
    Ok(variant.labelled(&job.label).with_cost(analysis::summary(&report)))
}

/// The variants of all jobs, in their order, compiled by as many threads as there are processors; or the first error.
fn in_parallel(jobs: &[Job], compiled: &(impl Fn(&Job) -> Result<Variant> + Sync)) -> Result<Vec<Variant>> {
    let (next, done) = (Mutex::new(jobs.iter().enumerate()), Mutex::new(Vec::new()));
    let work = || {
        while let Some((n, job)) = next.lock().ok().and_then(|mut jobs| jobs.next()) {
            let variant = compiled(job);
            if let Ok(mut done) = done.lock() {
                done.push((n, variant));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut done =
        done.into_inner().map_err(|_| Error::bug(Code::ArtifactThread, "a thread that compiled panicked"))?;
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, variant)| variant).collect()
}

/// Writes the folder or the one file, and says so.
fn write(artifact: &Artifact, out: &Path) -> Result<()> {
    if out.extension().is_some_and(|e| e == EXTENSION) {
        artifact.write_packed(out)?;
        show::note(format_args!("wrote {}", out.display()));
        return Ok(());
    }
    artifact.write(out)?;
    show::note(format_args!("wrote {}", out.join(MANIFEST).display()));
    Ok(())
}

/// A row for each variant.
pub fn table(artifact: &Artifact) -> comfy_table::Table {
    let mut table = show::table(&["variant", "takes", "chip", "kernels", "PTX bytes", "cubin bytes"]);
    for variant in &artifact.variants {
        let kernels = &variant.kernels;
        table.add_row([
            variant.label.clone(),
            variant.signature(),
            kernels.target.clone(),
            kernels.kernels.len().to_string(),
            kernels.ptx().len().to_string(),
            kernels.cubin.as_ref().map_or_else(String::new, |cubin| cubin.bytes.len().to_string()),
        ]);
    }
    table
}
