//! `run`, `bench` and `sweep` on a GPU: compile, check, measure beside cuBLAS, print.

use super::bench::BenchArgs;
use super::run::verdict;
use super::{data, input, peers, plot, show};
use crate::array::Array;
use crate::codegen;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::loom::Schedule;
use crate::lower::Lowered;
use crate::measure::{self, Bench, Job, Plan, Row};
use crate::runtime::Device;
use crate::target::Target;
use crate::te::Known;
use std::process::ExitCode;

/// Runs a schedule with its result checked, and says what it took.
pub fn run(name: &str, seed: u64, schedule: Schedule, device: &Device) -> Result<ExitCode> {
    let schedule = for_device(schedule, device)?;
    let title = input::title(&schedule);
    let spinner = show::spinner(format!("running {title}"));
    let plan = Plan { preheat_s: 0.2, rewarm_s: 0.1, row_s: 0.5, ..Plan::default() };
    let row = measure(&Bench::new(device, plan, None)?, name, &schedule, seed)
        .map_err(|e| e.within(format!("running {title} on {}", device.info().name)))?;
    spinner.finish_and_clear();
    show::line(format_args!("{title}, {} steps, target {}", schedule.steps.len(), schedule.target));
    for r in &row.resources {
        show::line(format_args!(
            "kernel {}: {} threads a block, {} registers, {} bytes shared, {} bytes local, occupancy {:.0} %",
            r.entry,
            r.threads,
            r.registers,
            r.shared_bytes,
            r.local_bytes,
            r.occupancy * 100.0
        ));
    }
    let library = row.ratio.map_or(String::new(), |r| format!(", {r:.3} of cuBLAS' speed"));
    show::line(format_args!("{}: {:.2} us, {:.0} GFLOP/s{library}", row.device, row.us, row.gflops));
    Ok(verdict(row.error))
}

/// Launches kernels once with their result checked. Nothing else runs on the device.
pub fn once(schedule: &Schedule, lowered: &Lowered, seed: u64, device: &Device) -> Result<ExitCode> {
    let title = input::title(schedule);
    let program = device.load(&codegen::compile(lowered, &schedule.target)?)?;
    let arrays = data::arguments(&schedule.program, seed)?;
    let judge = data::Judge::new(&schedule.program, &arrays)?;
    let worst = measure::check(&program, &arrays, &|after: &[Array]| judge.worst(after))
        .map_err(|e| e.within(format!("running {title} on {}", device.info().name)))?;
    show::line(format_args!("{title}, {} steps, target {}: ran once", schedule.steps.len(), schedule.target));
    Ok(verdict(worst))
}

/// Measures schedules beside cuBLAS.
pub fn bench(args: &BenchArgs, subjects: &[(String, Schedule)], device: &Device) -> Result<ExitCode> {
    let rows = rows(subjects, args.seed, device, &mut |_, row| if args.json { json(row) } else { Ok(()) })?;
    let failures = subjects.len() - rows.len();
    if !args.json {
        show::line(table(&rows));
    }
    if let Some(path) = &args.plot {
        plot::draw(path, &format!("f32 matrix product on {}", device.info().name), &series(&rows))?;
        show::note(format_args!("wrote {}", path.display()));
    }
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// One line of JSON.
pub fn json(value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string(value).map_err(|e| Error::bug("cli.json", e.to_string()))?;
    show::line(text);
    Ok(())
}

/// Measures each subject and hands it on with its number; one that fails is said and left out.
pub fn rows(
    subjects: &[(String, Schedule)],
    seed: u64,
    device: &Device,
    each: &mut dyn FnMut(usize, &Row) -> Result<()>,
) -> Result<Vec<(Vec<i64>, Row)>> {
    let bench = Bench::new(device, Plan::default(), None)?;
    let bar = show::bar(subjects.len());
    let mut rows = Vec::new();
    for (number, (name, schedule)) in subjects.iter().enumerate() {
        bar.set_message(name.clone());
        match measure(&bench, name, &for_device(schedule.clone(), device)?, seed) {
            Ok(row) => {
                bar.suspend(|| each(number, &row))?;
                rows.push((sizes_of(schedule), row));
            }
            Err(e) => {
                bar.suspend(|| show::error(&e.within(format!("measuring {name}, {}", input::title(schedule))), name));
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn sizes_of(schedule: &Schedule) -> Vec<i64> {
    Known::of(&schedule.program).map_or_else(Vec::new, |k| k.sizes())
}

/// The schedule for a chip that the device can run: its own target, or the device's where that is older.
pub fn for_device(schedule: Schedule, device: &Device) -> Result<Schedule> {
    let sm = device.info().sm();
    let fits = schedule.target.sm == sm || (!schedule.target.accelerated && schedule.target.sm <= sm);
    if fits {
        return Ok(schedule);
    }
    let target = Target::for_device(sm).ok_or_else(|| {
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
pub fn measure(bench: &Bench, name: &str, schedule: &Schedule, seed: u64) -> Result<Row> {
    let kernels = crate::compile(schedule)?;
    let args = data::arguments(&schedule.program, seed)?;
    let known = Known::of(&schedule.program);
    let (gemm, arithmetic, types) = match known {
        Some(Known::Gemm(s)) => {
            let gemm = measure::Gemm {
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
            let dtype = args.first().map_or(DType::F32, |a| a.dtype);
            (None, (dtype, dtype), [dtype.to_string(), String::new()])
        }
    };
    let shape = sizes_of(schedule).iter().map(i64::to_string).collect::<Vec<_>>().join("x");
    let [types, layout] = types;
    let judge = data::Judge::new(&schedule.program, &args)?;
    let judge = |after: &[Array]| judge.worst(after);
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
        let tvm = peers::tvm(&row.program, sizes);
        // TVM's figures are of single launches.
        let to_tvm = row.alone.map_or(row.ratio, |a| a.ratio).zip(tvm).map(|(ours, theirs)| ours / theirs);
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
