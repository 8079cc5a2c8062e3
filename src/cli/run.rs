//! `warploom run`: compile, run on random input, check the result, say how long it took.

use super::data::{self, Place};
use super::input::{self, What};
use super::show;
use crate::array::Array;
use crate::error::{Fault, Result};
use crate::loom::Schedule;
use crate::lower;
use crate::machine::{self, Mode, Stats};
use clap::Args;
use std::process::ExitCode;
use std::time::Instant;

/// What to run, and where.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub what: What,
    /// `cpu`, or a GPU's number. Without it: the first GPU, or the CPU machine if there is none.
    #[arg(long)]
    device: Option<String>,
    /// Seed of the random input.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the schedule once with its result checked.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let schedule = args.what.schedule()?;
    match data::place(args.device.as_deref())? {
        Place::Cpu => on_cpu(args, schedule),
        #[cfg(feature = "cuda")]
        Place::Gpu(device) => super::gpu::run(&args.what.name(), args.seed, schedule, &device),
    }
}

fn on_cpu(args: &RunArgs, schedule: Schedule) -> Result<ExitCode> {
    let asked = input::title(&schedule);
    let schedule = if args.what.has_size() { schedule } else { data::for_cpu(&schedule) };
    let title = input::title(&schedule);
    if title != asked {
        show::note(format_args!("reduced for the CPU machine: {title} instead of {asked} (--size chooses another)"));
    }
    let spinner = show::spinner(format!("running {title}"));
    let mut arrays = data::arguments(&schedule.program, args.seed)?;
    let inputs = arrays.clone();
    let begin = Instant::now();
    let (stats, how) = on_machine(&schedule, &mut arrays)?;
    let time = begin.elapsed().as_secs_f64();
    spinner.set_message(format!("checking {title}"));
    let worst = data::Judge::new(&schedule.program, &inputs)?.worst(&arrays)?;
    spinner.finish_and_clear();
    show::line(format_args!("{title}, {} steps, target {}", schedule.steps.len(), schedule.target));
    let rate = stats.statements as f64 / time / 1e6;
    show::line(format_args!("ran {how} in {}: {} statements, {rate:.1} M/s", show::seconds(time), stats.statements));
    Ok(verdict(worst))
}

/// Runs the kernels with their threads and barriers; what this version cannot lower yet runs as its text says.
pub fn on_machine(schedule: &Schedule, arrays: &mut [Array]) -> Result<(Stats, &'static str)> {
    let func = schedule.scheduled()?;
    match lower::lower(&func, &schedule.target) {
        Ok(lowered) => {
            let stats = machine::run_lowered(&lowered, Mode::Real, arrays)?;
            Ok((stats, "on the CPU machine, thread by thread,"))
        }
        Err(e) if e.fault() == Fault::Chip => {
            show::note(format_args!("{e}\nthe scheduled program runs in sequence instead"));
            Ok((machine::run_func(&func, Mode::Real, arrays)?, "on the CPU machine, in sequence,"))
        }
        Err(e) => Err(e),
    }
}

/// Says how near the result is; one beyond its bound has been refused before.
pub fn verdict(worst: f64) -> ExitCode {
    show::line(format_args!("checked against f64: the largest error is {worst:.3} of its bound"));
    ExitCode::SUCCESS
}
