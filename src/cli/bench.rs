//! `warploom bench`: schedules measured beside cuBLAS.

use super::data::{self, Place};
#[cfg(feature = "runtime")]
use super::gpu;
use super::subject::{BenchArgs, Subject};
use super::{cpu, input, ladder, random, show, sizes, suite};
use crate::error::{Code, Error, Result};
use crate::gemm::{self, Gemm};
use crate::target::Target;
use crate::tune::{self, Here, Record};
use std::path::PathBuf;
use std::process::ExitCode;

/// The sizes of d2l's plot.
const PLOT_SIZES: [i64; 7] = [256, 512, 1024, 2048, 4096, 8192, 16384];

/// Measures and prints.
pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    if args.ladder {
        return ladder::run(args);
    }
    if let Some(outcome) = on_gpu(args) {
        return outcome;
    }
    if let Some(list) = &args.suite {
        return suite::run(args, list);
    }
    if let Some(count) = args.random {
        return random::run(args, count as usize);
    }
    let place = data::place(args.device.as_deref())?;
    let here = place.here();
    match place {
        Place::Cpu => args.check_for_simulator().and_then(|()| cpu::bench(args, &subjects(args, None, &here)?)),
        #[cfg(feature = "runtime")]
        Place::Gpu(device) => gpu::bench(args, &subjects(args, Some(data::chip(device.info())?), &here)?, &device),
    }
}

/// A measurement that only a GPU has, where one is asked for.
#[cfg(feature = "runtime")]
fn on_gpu(args: &BenchArgs) -> Option<Result<ExitCode>> {
    match args {
        BenchArgs { launch: true, .. } => Some(super::launch::run(args.device.as_deref(), args.json)),
        BenchArgs { start: true, .. } => Some(super::start::run(args)),
        BenchArgs { choice: true, .. } => Some(super::choice::run(args)),
        _ => None,
    }
}

#[cfg(not(feature = "runtime"))]
fn on_gpu(args: &BenchArgs) -> Option<Result<ExitCode>> {
    (args.launch || args.start || args.choice).then(|| Err(data::without_cuda()))
}

/// The schedules to measure with their names, each at each size. Products are scheduled for the chip that there is.
fn subjects(args: &BenchArgs, own: Option<Target>, here: &Here) -> Result<Vec<Subject>> {
    if !args.gemm.is_empty() {
        let all = args.products(&args.gemm)?;
        let subjects = products(args, &all, &args.target(own, &all)?, here)?;
        return sizes::at(subjects, &args.set, args.fixed);
    }
    let mut files = args.files.clone();
    if args.examples {
        files.extend(examples()?);
    }
    let mut others: Vec<Vec<i64>> = args.sizes.iter().map(|s| s.0.clone()).collect();
    if others.is_empty() && args.plot.is_some() {
        others = PLOT_SIZES.iter().map(|n| vec![*n]).collect();
    }
    let (records, target) = (input::records(&args.records)?, args.named_target()?);
    let mut out = Vec::new();
    for file in files {
        let name = file.file_stem().map_or_else(|| "schedule".into(), |s| s.to_string_lossy().into_owned());
        let read = input::text(&file).and_then(|text| tune::parse(&text, target, &records));
        let schedule = read.map_err(|e| e.within(format!("reading {}", file.display())))?;
        input::record_notes(&schedule, &records, here)?
            .iter()
            .for_each(|note| show::note(format_args!("{name}: {note}")));
        match others.is_empty() {
            true => out.push(Subject::new(name, schedule)),
            false => {
                for size in &others {
                    let resized = schedule.resized(size);
                    let resized = resized.map_err(|e| e.within(format!("at another size: {}", file.display())))?;
                    out.push(Subject::new(name.clone(), resized));
                }
            }
        }
    }
    sizes::at(out, &args.set, args.fixed)
}

/// Each kind of code for each product; a kind without a recipe is said and left out.
fn products(args: &BenchArgs, all: &[Gemm], target: &Target, here: &Here) -> Result<Vec<Subject>> {
    let records = input::records(&args.records)?;
    let mut out = Vec::new();
    for product in all {
        if args.candidates {
            out.extend(Subject::candidates(product, target)?);
            continue;
        }
        if args.invariant {
            out.extend(Subject::free_and_invariant(product, target)?);
            continue;
        }
        if args.no_workspace {
            out.extend(Subject::free_and_without_workspace(product, target)?);
            continue;
        }
        let record = tune::record_of(&product.program()?, target, &records);
        record.iter().for_each(|record| here.warnings(record).iter().for_each(show::note));
        if product.spec().least_m.is_some() && !args.names_kinds() {
            if args.ranges > 1 {
                let ranges = gemm::recommend_ranges(product, target, args.ranges.into())?;
                out.extend(ranges.into_iter().map(|range| Subject::new(range.tiles, range.schedule)));
            } else {
                out.push(Subject::new("recommended", tune::recommend(product, target, &records)?));
            }
            continue;
        }
        let recorded = record.map(Record::schedule).transpose()?;
        out.extend(recorded.map(|schedule| Subject::new("recorded", schedule)));
        for kind in args.kinds(target) {
            let name = match args.dtype.len() {
                1 => kind.name().to_string(),
                _ => format!("{} {}", kind.name(), input::types(product.spec())),
            };
            match kind.schedule(product, target) {
                Ok(schedule) => out.push(Subject::new(name, schedule)),
                Err(e) if e.code() == Code::GemmKind => show::note(e.message()),
                Err(e) => return Err(e),
            }
        }
    }
    Ok(out)
}

/// The schedules under `examples` that lower, by name.
fn examples() -> Result<Vec<PathBuf>> {
    let none = |e| {
        Error::input(Code::CliExamples, format!("cannot read the folder examples: {e}"))
            .help("start in the source tree")
    };
    let mut files: Vec<PathBuf> = std::fs::read_dir("examples").map_err(none)?.flatten().map(|e| e.path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "loom"));
    files.retain(|f| input::read(f, None).and_then(|s| crate::compile(&s)).is_ok());
    files.sort();
    Ok(files)
}
