//! `run`, `bench` and `sweep` on a GPU: compile, check, measure beside cuBLAS, print.

use super::lines::Compiler;
use super::subject::{BenchArgs, Subject};
use super::{data, input, plot, show};
use crate::array::Array;
use crate::dtype::DType;
use crate::error::{Code, Error, Result, counted};
use crate::ir::Func;
use crate::kernel::Kernels;
use crate::loom::Schedule;
use crate::measure::{self, Bench, Beside, Job, Row, TimeBudget};
use crate::runtime::Device;
use crate::te::{self, GemmSpec, Known};
use std::collections::BTreeSet;
use std::process::ExitCode;

/// Runs a schedule with its result checked, and says what it took.
pub fn run(name: &str, seed: u64, schedule: Schedule, device: &Device, compiler: &Compiler) -> Result<ExitCode> {
    let schedule = for_device(schedule, device)?;
    let title = input::title(&schedule);
    let spinner = show::spinner(format!("running {title}"));
    let plan = TimeBudget { preheat_s: 0.2, rewarm_s: 0.1, row_s: 0.5, ..TimeBudget::default() };
    let row = measure(&Bench::new(device, plan, None)?, name, &schedule, seed, compiler)
        .map_err(|e| e.within(format!("running {title} on {}", device.info().name)))?;
    spinner.finish_and_clear();
    show::line(format_args!("{title}, {}, target {}", show::count(schedule.steps.len(), "step"), schedule.target));
    for r in &row.resources {
        show::line(format_args!(
            "kernel {}: {} a block, {}, {} shared, {} local, occupancy {:.0} %",
            r.entry,
            counted(r.threads, "thread"),
            counted(r.registers, "register"),
            counted(r.shared_bytes, "byte"),
            counted(r.local_bytes, "byte"),
            r.occupancy * 100.0
        ));
    }
    let library = row.ratio.map_or(String::new(), |r| format!(", {r:.3} of cuBLAS' speed"));
    show::line(format_args!("{}: {:.2} us, {:.0} GFLOP/s{library}", row.device, row.us, row.gflops));
    Ok(show::verdict(row.error))
}

/// Launches kernels once with their result checked. Nothing else runs on the device.
pub fn once(
    schedule: &Schedule,
    kernels: &Kernels,
    arrays: &[Array],
    outputs: &[data::Filed],
    device: &Device,
) -> Result<ExitCode> {
    let title = input::title(schedule);
    kernels.check_values(arrays)?;
    let program = device.load(kernels)?;
    let judge = data::Judge::new(&schedule.program, arrays)?;
    let judged = |after: &[Array]| {
        let worst = judge.worst(after)?;
        data::write(&schedule.program, outputs, after)?;
        Ok(worst)
    };
    let worst = measure::check(&program, arrays, &judged)
        .map_err(|e| e.within(format!("running {title} on {}", device.info().name)))?;
    show::line(format_args!(
        "{title}, {}, target {}: ran once",
        show::count(schedule.steps.len(), "step"),
        schedule.target
    ));
    Ok(show::verdict(worst))
}

/// Measures schedules against cuBLAS.
pub fn bench(args: &BenchArgs, subjects: &[Subject], device: &Device) -> Result<ExitCode> {
    let bench = Bench::new(device, args.budget(), None)?;
    let mut each = |_, row: &Row| if args.json { show::json(&record(row, args.seed, device)?) } else { Ok(()) };
    let rows = rows(&bench, subjects, (args.seed, &Compiler::with_lines(args.lines)), &mut each)?;
    let failures = subjects.len() - rows.len();
    if !args.json {
        show::line(table(&rows));
    }
    if let Some(path) = &args.plot {
        let types: BTreeSet<String> = rows.iter().map(|(_, r)| format!("{} {}", r.dtype, r.layout)).collect();
        let types = types.into_iter().collect::<Vec<_>>().join(", ");
        plot::draw(path, &format!("{types} matrix products on {}", device.info().name), &series(&rows))?;
        show::note(format_args!("wrote {}", path.display()));
    }
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// A row with what it was measured on and with.
pub fn record(row: &Row, seed: u64, device: &Device) -> Result<serde_json::Value> {
    let mut value = serde_json::to_value(row).map_err(|e| Error::bug(Code::CliJson, e.to_string()))?;
    if let Some(fields) = value.as_object_mut() {
        fields.insert("driver".into(), device.info().driver_version.into());
        fields.insert("data".into(), data_words(seed).into());
        fields.insert("warploom".into(), env!("CARGO_PKG_VERSION").into());
    }
    Ok(value)
}

/// What was multiplied.
pub fn data_words(seed: u64) -> String {
    format!("uniform in [-0.5, 0.5), integers of up to 8 bits over their whole range; seed {seed}; L2 cold by reading")
}

/// Measures each subject and hands it on with its number; one that fails is said and left out.
pub fn rows(
    bench: &Bench,
    subjects: &[Subject],
    (seed, compiler): (u64, &Compiler),
    each: &mut dyn FnMut(usize, &Row) -> Result<()>,
) -> Result<Vec<(Vec<i64>, Row)>> {
    let bar = show::bar(subjects.len());
    let (mut rows, mut given) = (Vec::new(), None);
    for (number, subject) in subjects.iter().enumerate() {
        bar.set_message(subject.name.clone());
        match row_given(bench, subject, (seed, compiler), &mut given) {
            Ok(row) => {
                bar.suspend(|| each(number, &row))?;
                rows.push((sizes_of(&subject.program()?), row));
            }
            Err(e) => bar.suspend(|| show::error(&e, &subject.name)),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// Measures a subject.
pub fn row(bench: &Bench, subject: &Subject, seed: u64, compiler: &Compiler) -> Result<Row> {
    row_given(bench, subject, (seed, compiler), &mut None)
}

fn row_given(bench: &Bench, subject: &Subject, with: (u64, &Compiler), given: &mut Option<Given>) -> Result<Row> {
    for_device(subject.schedule.clone(), bench.device())
        .and_then(|schedule| measured(bench, &Subject { schedule, ..subject.clone() }, with, given))
        .map_err(|e| e.within(format!("measuring {}, {}", subject.name, input::title(&subject.schedule))))
}

fn sizes_of(program: &Func) -> Vec<i64> {
    Known::of(program).map_or_else(Vec::new, |k| k.sizes())
}

/// The schedule for a chip that the device can run: its own target, or the device's where that is older.
pub fn for_device(schedule: Schedule, device: &Device) -> Result<Schedule> {
    let sm = device.info().sm();
    let fits = schedule.target.sm == sm || (!schedule.target.accelerated && schedule.target.sm <= sm);
    if fits {
        return Ok(schedule);
    }
    let target = data::chip(device.info())?;
    show::note(format_args!(
        "compiled for {target} instead of {}: the device is a {}",
        schedule.target,
        device.info().name
    ));
    Ok(schedule.for_target(target))
}

/// Compiles, checks and measures one schedule.
pub fn measure(bench: &Bench, name: &str, schedule: &Schedule, seed: u64, compiler: &Compiler) -> Result<Row> {
    measured(bench, &Subject::new(name, schedule.clone()), (seed, compiler), &mut None)
}

/// Arguments of a program, and what judges its results. Schedules of one program that follow each other share them.
struct Given {
    program: Func,
    args: Vec<Array>,
    judge: data::Judge,
}

impl Given {
    /// Those of the program, which are `given` already or are made.
    fn of<'a>(program: &Func, seed: u64, given: &'a mut Option<Given>) -> Result<&'a Given> {
        let known = given.take().filter(|g| g.program == *program);
        let made = || {
            let args = data::arguments(program, seed)?;
            Ok(Given { program: program.clone(), judge: data::Judge::new(program, &args)?, args })
        };
        Ok(given.insert(known.map_or_else(made, Ok)?))
    }
}

/// As [`measure`], at values of the dynamic sizes, beside the schedule for these alone, and with another product for the library to compute.
fn measured(
    bench: &Bench,
    subject: &Subject,
    (seed, compiler): (u64, &Compiler),
    given: &mut Option<Given>,
) -> Result<Row> {
    let Subject { name, schedule, fixed, beside, .. } = subject;
    let (kernels, program) = (compiler.schedule(schedule, bench.device())?, subject.program()?);
    let Given { args, judge, .. } = Given::of(&program, seed, given)?;
    let known = Known::of(&program);
    let spec = match known {
        Some(Known::Gemm(spec)) => Some(spec),
        _ => None,
    };
    let dtype = args.first().map_or(DType::F32, |a| a.dtype);
    let (types, layout) = spec.map_or((dtype.to_string(), ""), |s| (input::types(&s), s.layout.name()));
    let shape = sizes_of(&program).iter().map(i64::to_string).collect::<Vec<_>>().join("x");
    let judge = |after: &[Array]| judge.worst(after);
    let other = (*beside).or_else(|| spec.and_then(|s| stand_in(&s)));
    let other = other.map(|spec| Other::new(&spec, seed)).transpose()?;
    let judge_other = |after: &[Array]| other.as_ref().map_or(Ok(f64::NAN), |o| o.judge.worst(after));
    let job = Job {
        labels: [name.to_string(), shape, types, layout.to_string()],
        kernels: &kernels,
        args: args.clone(),
        operations: te::operations(&program),
        arithmetic: spec.map_or((dtype, dtype), |s| (s.a, s.acc)),
        gemm: other.as_ref().map(|o| o.spec).or(spec),
        beside: other.as_ref().map(|o| Beside {
            words: format!("{} {}", input::types(&o.spec), o.spec.layout.name()),
            args: o.args.clone(),
            judge: &judge_other,
        }),
        judge: &judge,
    };
    let mut row = bench.row(&job)?;
    if let Some(fixed) = fixed {
        let kernels = compiler.schedule(&for_device(fixed.clone(), bench.device())?, bench.device())?;
        row.fixed = Some(bench.runoff([&job, &Job { kernels: &kernels, ..job.clone() }])?);
    }
    Ok(row)
}

/// A product that the library computes in place of ours.
struct Other {
    spec: GemmSpec,
    args: Vec<Array>,
    judge: data::Judge,
}

impl Other {
    fn new(spec: &GemmSpec, seed: u64) -> Result<Other> {
        let program = te::gemm(spec)?;
        let args = data::arguments(&program, seed)?;
        Ok(Other { spec: *spec, judge: data::Judge::new(&program, &args)?, args })
    }
}

/// The baseline of integer types that the library has no GEMM of (u8, s4, u4, b1, results other than s32): its GEMM of s8 with a result of
/// s32.
fn stand_in(spec: &GemmSpec) -> Option<GemmSpec> {
    let small = |d: DType| matches!(d, DType::S8 | DType::U8 | DType::S4 | DType::U4 | DType::B1);
    let same = GemmSpec { a: DType::S8, b: DType::S8, out: DType::S32, ..*spec };
    (small(spec.a) && small(spec.b) && spec.acc == DType::S32 && same != *spec).then_some(same)
}

fn table(rows: &[(Vec<i64>, Row)]) -> comfy_table::Table {
    let mut header = vec![
        "schedule",
        "types",
        "size",
        "us",
        "GFLOP/s",
        "cuBLAS us",
        "ratio",
        "noise",
        "floor",
        "registers",
        "local",
    ];
    let is_beside_fixed = rows.iter().any(|(_, row)| row.fixed.is_some());
    header.extend(is_beside_fixed.then_some("of fixed"));
    let mut table = show::table(&header);
    let show_or =
        |value: Option<f64>, digits: usize| value.map_or_else(|| "-".to_string(), |v| format!("{v:.digits$}"));
    for (_, row) in rows {
        let of_fixed = is_beside_fixed.then(|| show_or(row.fixed.map(|fixed| fixed.ratio), 4));
        let cells = [
            row.program.clone(),
            format!("{} {}", row.dtype, row.layout),
            row.shape.clone(),
            format!("{:.2}", row.us),
            format!("{:.0}", row.gflops),
            show_or(row.library_us, 2),
            show_or(row.ratio, 4),
            format!("{:.4}", row.noise),
            format!("{:.3}", row.floor_ratio),
            row.resources.iter().map(|r| r.registers.to_string()).collect::<Vec<_>>().join(" "),
            row.resources.iter().map(|r| r.local_bytes.to_string()).collect::<Vec<_>>().join(" "),
        ];
        table.add_row(cells.into_iter().chain(of_fixed));
    }
    table
}

/// A line for each schedule, and one for cuBLAS.
fn series(rows: &[(Vec<i64>, Row)]) -> Vec<plot::Series> {
    let types: BTreeSet<&str> = rows.iter().map(|(_, row)| row.dtype.as_str()).collect();
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
            let library = row.beside.as_ref().map_or("cuBLAS".to_string(), |b| format!("cuBLAS {b}"));
            let library =
                if types.len() > 1 && row.beside.is_none() { format!("cuBLAS {}", row.dtype) } else { library };
            push(&library, (n, row.gflops * row.us / us));
        }
    }
    out
}
