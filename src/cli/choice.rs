//! `warploom bench --gemm SIZES --choice`: what measuring the first few candidates of a GEMM gains over the recommended schedule.

use super::data::{self, Place};
use super::gpu;
use super::lines::Compiler;
use super::show;
use super::subject::{BenchArgs, Subject};
use crate::error::{Code, Error, Result};
use crate::measure::{Bench, TimeBudget};
use serde::Serialize;
use std::process::ExitCode;

/// Numbers of candidates that are measured, in the order of the model.
const FIRST: [usize; 5] = [1, 2, 4, 8, 16];
/// Seconds of samples for a candidate: some hundred samples, and minutes for a list of GEMMs.
const SAMPLES_S: f64 = 0.3;

/// What the candidates of a GEMM took.
#[derive(Debug, Serialize)]
struct Choice {
    gemm: String,
    types: String,
    layout: String,
    /// Name and microseconds of each candidate that ran, in the order of the model.
    candidates: Vec<(String, f64)>,
    /// The speed of the fastest of the first 1, 2, 4, 8 and 16, over that of the fastest of all.
    share: Vec<f64>,
}

impl Choice {
    /// `None` where no candidate ran.
    fn of([gemm, types, layout]: [&str; 3], candidates: Vec<(String, f64)>) -> Option<Choice> {
        let fastest = |of: &[(String, f64)]| of.iter().map(|c| c.1).min_by(f64::total_cmp);
        let best = fastest(&candidates)?;
        let share = FIRST.iter().filter_map(|n| Some(best / fastest(&candidates[..candidates.len().min(*n)])?));
        let share = share.collect();
        let [gemm, types, layout] = [gemm, types, layout].map(str::to_string);
        Some(Choice { gemm, types, layout, candidates, share })
    }

    fn best(&self) -> &str {
        self.candidates.iter().min_by(|a, b| a.1.total_cmp(&b.1)).map_or("-", |c| &c.0)
    }
}

/// Measures every candidate of each GEMM and prints the shares.
pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    let Place::Gpu(device) = data::place(Some(args.device.as_deref().unwrap_or("0")))? else {
        return Err(Error::input(Code::CliLaunch, "the simulator does not time candidates")
            .help("--device 0 on a host with a GPU"));
    };
    let all = args.fixed_products(&args.gemm, "--choice")?;
    let target = args.target(Some(data::chip(device.info())?), &all)?;
    let plan = TimeBudget::of_row(args.seconds.unwrap_or(SAMPLES_S));
    let bench = Bench::new(&device, plan, None)?;
    let (mut choices, mut complete) = (Vec::new(), true);
    for product in &all {
        let subjects = Subject::candidates(product, &target)?;
        let compiler = Compiler::with_lines(false);
        let rows = gpu::rows(&bench, &subjects, (args.seed, &compiler), &mut |_, _| Ok(()))?;
        complete &= rows.len() == subjects.len();
        let Some((_, first)) = rows.first() else { continue };
        let labels = [&first.shape, &first.dtype, &first.layout].map(String::as_str);
        let times = rows.iter().map(|(_, row)| (row.program.clone(), row.us)).collect();
        let Some(choice) = Choice::of(labels, times) else { continue };
        if args.json {
            show::json(&choice)?;
        }
        choices.push(choice);
    }
    if !args.json {
        show::line(table(&choices));
    }
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// A row for each GEMM, and the geometric means of the shares.
fn table(choices: &[Choice]) -> comfy_table::Table {
    let mut table = show::table(&["GEMM", "types", "candidates", "1", "2", "4", "8", "16", "fastest"]);
    let shares = |of: &[f64]| of.iter().map(|s| format!("{s:.3}")).collect::<Vec<_>>();
    for choice in choices {
        let head =
            [choice.gemm.clone(), format!("{} {}", choice.types, choice.layout), choice.candidates.len().to_string()];
        table.add_row(head.into_iter().chain(shares(&choice.share)).chain([choice.best().to_string()]));
    }
    if choices.len() > 1 {
        let mean = |n: usize| show::geometric_mean(choices.iter().filter_map(|c| c.share.get(n)).copied());
        let means: Vec<f64> = (0..FIRST.len()).filter_map(mean).collect();
        let head = ["geometric mean".to_string(), String::new(), String::new()];
        table.add_row(head.into_iter().chain(shares(&means)).chain([String::new()]));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_grow_to_that_of_the_fastest() {
        let times = [5.0, 6.0, 4.0, 7.0, 2.0, 9.0].map(|us| (format!("{us}"), us)).to_vec();
        let choice = Choice::of(["64x64x64", "f32", "NN"], times).unwrap();
        assert_eq!(choice.share, [0.4, 0.4, 0.5, 1.0, 1.0]);
        assert_eq!(choice.best(), "2");
        assert!(table(&[choice]).to_string().contains("0.400"));
        assert!(Choice::of(["64x64x64", "f32", "NN"], Vec::new()).is_none());
    }
}
