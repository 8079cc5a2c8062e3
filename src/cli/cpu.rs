//! `warploom bench` without a GPU: schedules timed on the simulator.

use super::run::on_machine;
use super::subject::{BenchArgs, Subject};
use super::{data, input, show, values};
use crate::error::{Code, Error, Result};
use std::process::ExitCode;

/// The simulator's own speed: it says nothing of a GPU's.
pub fn bench(args: &BenchArgs, subjects: &[Subject]) -> Result<ExitCode> {
    if args.plot.is_some() {
        return Err(Error::machine(
            Code::CliPlot,
            "the simulator's GFLOP/s say nothing about a GPU, so there is no plot",
        )
        .help("--device 0 on a host with a GPU"));
    }
    // All together take a few seconds: what the simulator does in minutes says no more.
    let most = (data::CPU_OPERATIONS / subjects.len().max(1) as f64).max(data::WATCHED_OPERATIONS);
    let mut table = show::table(&["schedule", "program", "target", "time", "statements", "M/s"]);
    let bar = show::bar(subjects.len());
    for Subject { name, schedule, at, .. } in subjects {
        bar.set_message(name.clone());
        let (asked, schedule) = (input::title(schedule), data::reduced_at(schedule, at, most));
        let title = input::title(&schedule);
        if title != asked {
            bar.suspend(|| show::note(format_args!("{name}: reduced for the simulator: {title} instead of {asked}")));
        }
        data::check_memory(&schedule)?;
        let at = data::within(&schedule.program, at);
        let mut arrays = data::arguments(&schedule.program.at(&at)?, args.seed)?;
        let title = if at.is_empty() { title } else { format!("{title}, {}", values::words(&schedule.program, &at)) };
        let begin = std::time::Instant::now();
        let (stats, _) = on_machine(&schedule, name, args.seed, &mut arrays)?;
        let time = begin.elapsed().as_secs_f64();
        let rate = stats.statements as f64 / time / 1e6;
        match args.json {
            true => show::line(serde_json::json!({
                "schedule": name, "program": title, "target": schedule.target.name, "device": "cpu", "seconds": time, "statements": stats.statements
            })),
            false => {
                table.add_row([
                    name.clone(),
                    title,
                    schedule.target.to_string(),
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
