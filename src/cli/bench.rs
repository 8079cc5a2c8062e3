//! `warploom bench`: schedules measured beside cuBLAS and beside what TVM reaches with them.

use super::data::{self, Place};
use super::{input, plot, show};
use crate::error::{Error, Result};
use crate::loom::Schedule;
use crate::te::Known;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

#[cfg(feature = "cuda")]
use crate::measure::{Bench, Job, Plan, Row};

/// What to measure.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Schedules to measure.
    #[arg(required_unless_present = "ladder")]
    files: Vec<PathBuf>,
    /// Measure every schedule of the folder `examples`.
    #[arg(long)]
    ladder: bool,
    /// Measure each at these sizes instead of its own: N or MxNxK, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = input::sizes)]
    sizes: Vec<input::Sizes>,
    /// Draw GFLOP/s against size; without --sizes over seed 002's, 256 to 16384.
    #[arg(long, value_name = "OUT.svg")]
    plot: Option<PathBuf>,
    /// One JSON object for each row instead of a table.
    #[arg(long)]
    json: bool,
    /// `cpu`, or a GPU's number. Without it: the first GPU, or the CPU machine if there is none.
    #[arg(long)]
    device: Option<String>,
    /// Seed of the random input.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Seed 002's sizes.
const PLOT_SIZES: [i64; 7] = [256, 512, 1024, 2048, 4096, 8192, 16384];

/// Measures and prints.
pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    let subjects = subjects(args)?;
    match data::place(args.device.as_deref())? {
        Place::Cpu => on_cpu(args, &subjects),
        #[cfg(feature = "cuda")]
        Place::Gpu(device) => on_gpu(args, &subjects, &device),
    }
}

/// The schedules to measure with their names, each at each size.
fn subjects(args: &BenchArgs) -> Result<Vec<(String, Schedule)>> {
    let mut files = args.files.clone();
    if args.ladder {
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
fn on_cpu(args: &BenchArgs, subjects: &[(String, Schedule)]) -> Result<ExitCode> {
    let mut table = show::table(&["schedule", "program", "time", "statements", "M/s"]);
    let bar = show::bar(subjects.len());
    for (name, schedule) in subjects {
        bar.set_message(name.clone());
        let schedule = if args.sizes.is_empty() { data::for_cpu(schedule) } else { schedule.clone() };
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
    if args.plot.is_some() {
        return Err(Error::machine("cli.plot", "GFLOP/s of the CPU machine are not worth a picture")
            .help("--device 0 on a machine with a GPU"));
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "cuda")]
fn on_gpu(args: &BenchArgs, subjects: &[(String, Schedule)], device: &crate::runtime::Device) -> Result<ExitCode> {
    let bench = Bench::new(device, Plan::default(), None)?;
    let bar = show::bar(subjects.len());
    let (mut rows, mut failures) = (Vec::new(), 0);
    for (name, schedule) in subjects {
        bar.set_message(name.clone());
        match measure(&bench, name, &for_device(schedule.clone(), device)?, args.seed) {
            Ok(row) => {
                if args.json {
                    let text = serde_json::to_string(&row);
                    show::line(text.map_err(|e| Error::bug("cli.json", e.to_string()))?);
                }
                rows.push((sizes_of(schedule), row));
            }
            Err(e) => {
                failures += 1;
                bar.suspend(|| show::error(&e.within(format!("measuring {name}, {}", input::title(schedule))), name));
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if !args.json {
        show::line(table(&rows));
    }
    if let Some(path) = &args.plot {
        plot::draw(path, &format!("f32 matrix product on {}", device.info().name), &series(&rows))?;
        show::note(format_args!("wrote {}", path.display()));
    }
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn sizes_of(schedule: &Schedule) -> Vec<i64> {
    Known::of(&schedule.program).map_or_else(Vec::new, |k| k.sizes())
}

/// The schedule for a chip that the device can run: its own target, or the device's where that is older.
#[cfg(feature = "cuda")]
pub fn for_device(schedule: Schedule, device: &crate::runtime::Device) -> Result<Schedule> {
    let sm = device.info().sm();
    let fits = schedule.target.sm == sm || (!schedule.target.accelerated && schedule.target.sm <= sm);
    if fits {
        return Ok(schedule);
    }
    let target = crate::target::Target::for_device(sm).ok_or_else(|| {
        Error::chip("cli.device", format!("{} (sm_{sm}) is none of the chips to compile for", device.info().name))
    })?;
    show::note(format_args!(
        "compiled for {target} instead of {}: the device is a {}",
        schedule.target,
        device.info().name
    ));
    Ok(schedule.for_target(target))
}

/// Compiles, checks and measures one schedule.
#[cfg(feature = "cuda")]
pub fn measure(bench: &Bench, name: &str, schedule: &Schedule, seed: u64) -> Result<Row> {
    let kernels = crate::compile(schedule)?;
    let args = data::arguments(&schedule.program, seed)?;
    let known = Known::of(&schedule.program);
    let (gemm, arithmetic, types) = match known {
        Some(Known::Gemm(s)) => {
            let gemm = crate::measure::Gemm {
                m: s.m,
                n: s.n,
                k: s.k,
                a: s.a,
                b: s.b,
                acc: s.acc,
                out: s.out,
                a_transposed: s.layout.a_transposed(),
                b_transposed: s.layout.b_transposed(),
            };
            let types = if s.a == s.out { s.a.to_string() } else { format!("{}>{}>{}", s.a, s.acc, s.out) };
            (Some(gemm), (s.a, s.acc), [types, s.layout.name().to_string()])
        }
        _ => {
            let dtype = args.first().map_or(crate::DType::F32, |a| a.dtype);
            (None, (dtype, dtype), [dtype.to_string(), String::new()])
        }
    };
    let shape = sizes_of(schedule).iter().map(i64::to_string).collect::<Vec<_>>().join("x");
    let [types, layout] = types;
    let judge = data::Judge::new(&schedule.program, &args)?;
    let judge = |after: &[crate::Array]| judge.worst(after);
    bench.row(&Job {
        labels: [name.to_string(), shape, types, layout],
        kernels: &kernels,
        args,
        operations: known.map_or(0.0, |k| k.operations()),
        arithmetic,
        gemm,
        judge: &judge,
    })
}

#[cfg(feature = "cuda")]
fn table(rows: &[(Vec<i64>, Row)]) -> comfy_table::Table {
    let header = [
        "schedule",
        "size",
        "us",
        "GFLOP/s",
        "cuBLAS us",
        "ratio",
        "noise",
        "TVM ratio",
        "to TVM",
        "floor",
        "registers",
        "local",
    ];
    let mut table = show::table(&header);
    let show_or =
        |value: Option<f64>, digits: usize| value.map_or_else(|| "-".to_string(), |v| format!("{v:.digits$}"));
    for (sizes, row) in rows {
        let tvm = super::peers::tvm(&row.program, sizes);
        let to_tvm = row.ratio.zip(tvm).map(|(ours, theirs)| ours / theirs);
        table.add_row([
            row.program.clone(),
            row.shape.clone(),
            format!("{:.2}", row.us),
            format!("{:.0}", row.gflops),
            show_or(row.library_us, 2),
            show_or(row.ratio, 4),
            format!("{:.4}", row.noise),
            show_or(tvm, 4),
            show_or(to_tvm, 3),
            format!("{:.3}", row.floor_ratio),
            row.resources.iter().map(|r| r.registers.to_string()).collect::<Vec<_>>().join(" "),
            row.resources.iter().map(|r| r.local_bytes.to_string()).collect::<Vec<_>>().join(" "),
        ]);
    }
    table
}

/// A line for each schedule, and one for cuBLAS.
#[cfg(feature = "cuda")]
fn series(rows: &[(Vec<i64>, Row)]) -> Vec<plot::Series> {
    let mut out: Vec<plot::Series> = Vec::new();
    let mut push = |name: &str, point: (f64, f64)| match out.iter_mut().find(|s| s.name == name) {
        Some(s) if s.points.iter().any(|p| p.0 == point.0) => {}
        Some(s) => s.points.push(point),
        None => out.push(plot::Series { name: name.to_string(), points: vec![point] }),
    };
    for (sizes, row) in rows {
        let n = sizes.iter().map(|s| *s as f64).product::<f64>().powf(1.0 / sizes.len().max(1) as f64).round();
        push(&row.program, (n, row.gflops));
        if let Some(us) = row.library_us {
            push("cuBLAS", (n, row.gflops * row.us / us));
        }
    }
    out
}
