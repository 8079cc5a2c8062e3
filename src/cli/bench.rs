//! `warploom bench`: schedules measured beside cuBLAS and beside what TVM reaches with them.

use super::data::{self, Place};
#[cfg(feature = "cuda")]
use super::gpu;
use super::{input, ladder, show, suite};
use crate::error::{Error, Result};
use crate::gemm::{Gemm, Kind};
use crate::loom::Schedule;
use crate::target::Target;
use crate::te::GemmSpec;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// What to measure.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Schedules to measure.
    #[arg(required_unless_present_any = ["ladder", "examples", "gemm", "suite"])]
    pub files: Vec<PathBuf>,
    /// Measure one product from one thread a block up to the recommended steps: f32 at 4096 and 1024x512x2048, or what
    /// --gemm, --dtype and --layout say.
    #[arg(long, conflicts_with_all = ["files", "examples"])]
    pub ladder: bool,
    /// Measure every schedule of the folder `examples`.
    #[arg(long)]
    pub examples: bool,
    /// Measure matrix products of these sizes by each kind of code: N or MxNxK, separated by commas.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = input::sizes, conflicts_with_all = ["files", "examples"])]
    pub gemm: Vec<input::Sizes>,
    /// Types of --gemm and --ladder, separated by commas: of the inputs (f16 means f16>f32>f16), or inputs>sums>result, or
    /// A*B>sums>result.
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "f32")]
    pub dtype: Vec<String>,
    /// How A and B of --gemm and --ladder lie.
    #[arg(long, value_name = "NN|NT|TN|TT", default_value = "NN")]
    pub layout: String,
    /// The kinds of code for --gemm; those without a recipe for a product are left out.
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = input::kind, default_values = ["simt", "wmma", "mma"])]
    pub kinds: Vec<Kind>,
    /// Measure the products of a list (`benches/tensor.suite` says how one is written) and print a table of record.
    #[arg(long, value_name = "LIST", conflicts_with_all = ["files", "examples", "ladder", "gemm", "plot", "json"])]
    pub suite: Option<PathBuf>,
    /// Write the suite's record as NAME.json and NAME.md.
    #[arg(long, value_name = "NAME", requires = "suite")]
    pub out: Option<PathBuf>,
    /// Measure each at these sizes instead of its own: N or MxNxK, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = input::sizes, conflicts_with = "gemm")]
    pub sizes: Vec<input::Sizes>,
    /// Draw GFLOP/s against size; without sizes over seed 002's, 256 to 16384. Of the ladder, each rung's share of cuBLAS'
    /// speed.
    #[arg(long, value_name = "OUT.svg")]
    pub plot: Option<PathBuf>,
    /// One JSON object for each row instead of a table.
    #[arg(long)]
    pub json: bool,
    /// `cpu`, or a GPU's number. Without it: the first GPU, or the CPU machine if there is none.
    #[arg(long)]
    pub device: Option<String>,
    /// Seed of the random input.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// A schedule to measure.
pub struct Subject {
    /// What rows and errors call it.
    pub name: String,
    /// What to measure.
    pub schedule: Schedule,
    /// What the library is to compute, if not the same product.
    pub beside: Option<GemmSpec>,
}

impl Subject {
    /// A schedule beside the library's same product.
    pub fn new(name: impl Into<String>, schedule: Schedule) -> Subject {
        Subject { name: name.into(), schedule, beside: None }
    }
}

/// Seed 002's sizes.
const PLOT_SIZES: [i64; 7] = [256, 512, 1024, 2048, 4096, 8192, 16384];

/// Measures and prints.
pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    if args.ladder {
        return ladder::run(args);
    }
    if let Some(list) = &args.suite {
        return suite::run(args, list);
    }
    match data::place(args.device.as_deref())? {
        Place::Cpu => on_cpu(args, &subjects(args, &Target::sm_90())?),
        #[cfg(feature = "cuda")]
        Place::Gpu(device) => gpu::bench(args, &subjects(args, &gpu::chip(&device)?)?, &device),
    }
}

/// The schedules to measure with their names, each at each size. Products are scheduled for the chip.
fn subjects(args: &BenchArgs, target: &Target) -> Result<Vec<Subject>> {
    if !args.gemm.is_empty() {
        return products(args, target);
    }
    let mut files = args.files.clone();
    if args.examples {
        files.extend(examples()?);
    }
    let mut sizes: Vec<Vec<i64>> = args.sizes.iter().map(|s| s.0.clone()).collect();
    if sizes.is_empty() && args.plot.is_some() {
        sizes = PLOT_SIZES.iter().map(|n| vec![*n]).collect();
    }
    let mut out = Vec::new();
    for file in files {
        let name = file.file_stem().map_or_else(|| "schedule".into(), |s| s.to_string_lossy().into_owned());
        let schedule = input::read(&file).map_err(|e| e.within(format!("reading {}", file.display())))?;
        match sizes.is_empty() {
            true => out.push(Subject::new(name, schedule)),
            false => {
                for size in &sizes {
                    out.push(Subject::new(name.clone(), schedule.resized(size)?));
                }
            }
        }
    }
    Ok(out)
}

impl BenchArgs {
    /// The products of so many sizes, types by types.
    pub fn products(&self, sizes: &[Vec<i64>]) -> Result<Vec<Gemm>> {
        let one = |types: &String, size: &Vec<i64>| input::product(size, types, &self.layout);
        self.dtype.iter().flat_map(|types| sizes.iter().map(move |size| one(types, size))).collect()
    }
}

/// Each kind of code for each product; a kind without a recipe is said and left out.
fn products(args: &BenchArgs, target: &Target) -> Result<Vec<Subject>> {
    let sizes: Vec<Vec<i64>> = args.gemm.iter().map(|s| s.0.clone()).collect();
    let mut out = Vec::new();
    for product in args.products(&sizes)? {
        for kind in &args.kinds {
            let name = match args.dtype.len() {
                1 => kind.name().to_string(),
                _ => format!("{} {}", kind.name(), input::types(product.spec())),
            };
            match kind.schedule(&product, target) {
                Ok(schedule) => out.push(Subject::new(name, schedule)),
                Err(e) if e.code() == "gemm.kind" => show::note(e.message()),
                Err(e) => return Err(e),
            }
        }
    }
    Ok(out)
}

/// The schedules under `examples` that lower, by name.
fn examples() -> Result<Vec<PathBuf>> {
    let none = |e| {
        Error::input("cli.examples", format!("cannot read the folder examples: {e}")).help("start in the source tree")
    };
    let mut files: Vec<PathBuf> = std::fs::read_dir("examples").map_err(none)?.flatten().map(|e| e.path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "loom"));
    files.retain(|f| input::read(f).and_then(|s| crate::compile(&s)).is_ok());
    files.sort();
    Ok(files)
}

/// The CPU machine's own speed: it says nothing of a GPU's.
pub fn on_cpu(args: &BenchArgs, subjects: &[Subject]) -> Result<ExitCode> {
    if args.plot.is_some() {
        return Err(Error::machine("cli.plot", "GFLOP/s of the CPU machine are not worth a picture")
            .help("--device 0 on a machine with a GPU"));
    }
    let mut table = show::table(&["schedule", "program", "time", "statements", "M/s"]);
    let bar = show::bar(subjects.len());
    for Subject { name, schedule, .. } in subjects {
        bar.set_message(name.clone());
        let schedule = if args.sizes.is_empty() && args.gemm.is_empty() {
            data::reduced(schedule, data::CPU_OPERATIONS)
        } else {
            schedule.clone()
        };
        let mut arrays = data::arguments(&schedule.program, args.seed)?;
        let begin = std::time::Instant::now();
        let (stats, _) = super::run::on_machine(&schedule, &mut arrays)?;
        let time = begin.elapsed().as_secs_f64();
        let rate = stats.statements as f64 / time / 1e6;
        let title = input::title(&schedule);
        match args.json {
            true => show::line(serde_json::json!({
                "schedule": name, "program": title, "device": "cpu", "seconds": time, "statements": stats.statements
            })),
            false => {
                table.add_row([
                    name.clone(),
                    title,
                    show::seconds(time),
                    stats.statements.to_string(),
                    format!("{rate:.0}"),
                ]);
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if !args.json {
        show::line(table);
    }
    Ok(ExitCode::SUCCESS)
}
