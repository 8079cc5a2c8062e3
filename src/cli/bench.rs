//! `warploom bench`: schedules measured beside cuBLAS and beside what TVM reaches with them.

use super::data::{self, Place};
#[cfg(feature = "cuda")]
use super::gpu;
use super::{input, ladder, show};
use crate::error::{Error, Result};
use crate::loom::Schedule;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// What to measure.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Schedules to measure.
    #[arg(required_unless_present_any = ["ladder", "examples"])]
    pub files: Vec<PathBuf>,
    /// Measure one f32 product from one thread a block up to the recommended steps, at 4096 and 1024x512x2048.
    #[arg(long, conflicts_with_all = ["files", "examples"])]
    pub ladder: bool,
    /// Measure every schedule of the folder `examples`.
    #[arg(long)]
    pub examples: bool,
    /// Measure each at these sizes instead of its own: N or MxNxK, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = input::sizes)]
    pub sizes: Vec<input::Sizes>,
    /// Draw GFLOP/s against size; without --sizes over seed 002's, 256 to 16384. Of the ladder, each rung's share of
    /// cuBLAS' speed.
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

/// Seed 002's sizes.
const PLOT_SIZES: [i64; 7] = [256, 512, 1024, 2048, 4096, 8192, 16384];

/// Measures and prints.
pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    if args.ladder {
        return ladder::run(args);
    }
    let subjects = subjects(args)?;
    match data::place(args.device.as_deref())? {
        Place::Cpu => on_cpu(args, &subjects),
        #[cfg(feature = "cuda")]
        Place::Gpu(device) => gpu::bench(args, &subjects, &device),
    }
}

/// The schedules to measure with their names, each at each size.
fn subjects(args: &BenchArgs) -> Result<Vec<(String, Schedule)>> {
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
            true => out.push((name, schedule)),
            false => {
                for size in &sizes {
                    out.push((name.clone(), schedule.resized(size)?));
                }
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
pub fn on_cpu(args: &BenchArgs, subjects: &[(String, Schedule)]) -> Result<ExitCode> {
    if args.plot.is_some() {
        return Err(Error::machine("cli.plot", "GFLOP/s of the CPU machine are not worth a picture")
            .help("--device 0 on a machine with a GPU"));
    }
    let mut table = show::table(&["schedule", "program", "time", "statements", "M/s"]);
    let bar = show::bar(subjects.len());
    for (name, schedule) in subjects {
        bar.set_message(name.clone());
        let schedule =
            if args.sizes.is_empty() { data::reduced(schedule, data::CPU_OPERATIONS) } else { schedule.clone() };
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
