//! `warploom bench --launch`: what a launch costs the host.

use super::data::{self, Place};
use super::show;
use crate::error::{Code, Error, Result};
use crate::loom::Schedule;
use crate::measure::Launches;
use std::process::ExitCode;

/// Prints a row for each kind of kernel; one that the device cannot launch is said and left out.
pub fn run(device: Option<&str>, as_json: bool) -> Result<ExitCode> {
    let Place::Gpu(device) = data::place(Some(device.unwrap_or("0")))? else {
        return Err(Error::input(Code::CliLaunch, "the simulator has no launches to time")
            .help("--device 0 on a host with a GPU"));
    };
    let mut table = show::table(&["launch of a kernel with", "driver us", "warploom us", "in a graph us"]);
    for (name, launches) in Launches::all(&device, &|text| crate::compile(&Schedule::parse(text)?)) {
        match launches.and_then(|l| l.row()) {
            Ok(row) if as_json => show::json(&row)?,
            Ok(row) => {
                let us = [row.driver_us, row.warploom_us, row.graph_us].map(|us| format!("{us:.3}"));
                table.add_row([row.launch].into_iter().chain(us));
            }
            Err(e) => show::note(format_args!("{name}: skipped: {}", e.message())),
        }
    }
    if !as_json {
        show::line(table);
    }
    Ok(ExitCode::SUCCESS)
}
