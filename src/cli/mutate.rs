//! `warploom run --mutate`: plants faults in the lowered program, as a faulty pass could, and says what finds them.
//!
//! The verifier of lowered kernels looks at each damaged program first, then the simulator runs it in integer mode, in three
//! orders of warps and blocks, and its result is compared with the naive program's.

use super::{data, show};
use crate::codegen;
#[cfg(feature = "runtime")]
use crate::error::Fault;
use crate::error::{Code, Error, Result};
use crate::ir::{BinOp, Expr, Stmt, visit};
use crate::loom::Schedule;
use crate::lower::{self, Lowered};
use crate::sim::mutate::{Mutant, mutants};
use crate::sim::{self, Mode, Options, Policy};
use std::process::ExitCode;

/// The word that lists the damages instead of planting one.
const LIST: &str = "list";

/// The exit status where nothing finds a planted fault.
pub const SURVIVES: u8 = 5;

/// The orders in which a damaged program runs.
const POLICIES: [Policy; 3] = [Policy::InOrder, Policy::Reverse, Policy::Random(3)];

/// Inputs on which a program with a minimum or a maximum runs: a lost element shows only where it is the largest.
const SEEDS_OF_EXTREMES: u64 = 24;

/// Damages of names that an error offers.
const OFFERED: usize = 40;

/// The damages of a program that words name, each with its number: all that a description holds, or one by `#17`.
fn chosen(lowered: &Lowered, words: &str) -> Result<Vec<(usize, Mutant)>> {
    let all = mutants(lowered);
    let count = all.len();
    let number = words.strip_prefix('#').map(|n| n.parse::<usize>().unwrap_or(0));
    let is_meant = |n: usize, m: &Mutant| match number {
        Some(number) => n == number,
        None => m.description().contains(words),
    };
    let descriptions: Vec<String> = all.iter().take(OFFERED).map(Mutant::description).collect();
    let found: Vec<(usize, Mutant)> = (1..).zip(all).filter(|(n, m)| is_meant(*n, m)).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let message = match number {
        Some(_) => format!("{} has mutants #1 to #{count}, not {words}", lowered.name),
        None => format!("no mutant of {} matches `{words}`", lowered.name),
    };
    let error =
        Error::input(Code::CliMutate, message).help(format!("--mutate {LIST} prints all {count} with their numbers"));
    Err(descriptions.into_iter().filter(|_| number.is_none()).fold(error, Error::help))
}

/// Plants the first fault that words name, and launches the damaged program once on a device: found where the device refuses it,
/// or where its result is wrong.
#[cfg(feature = "runtime")]
pub fn on_device(
    schedule: &Schedule,
    words: &str,
    name: &str,
    launch: impl FnOnce(&Lowered) -> Result<ExitCode>,
) -> Result<ExitCode> {
    let found = chosen(&lowered(schedule)?, words)?;
    let count = found.len();
    let (number, mutant) =
        found.into_iter().next().ok_or_else(|| Error::bug(Code::CliMutate, "no mutant was chosen"))?;
    if count > 1 {
        show::note(format_args!("{count} mutants match `{words}`: the device launches the first"));
    }
    show::note(format_args!("mutant #{number} {}", mutant.description()));
    match launch(&mutant.lowered) {
        Ok(_) => {
            show::line("NOT FOUND: the device ran it, and its result is within its bound");
            Ok(ExitCode::from(SURVIVES))
        }
        Err(error) if error.fault() == Fault::Machine => Err(error),
        Err(error) => {
            show::error(&error, name);
            show::line("found by the device");
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Whether words ask for the list.
pub fn is_list(words: &str) -> bool {
    words == LIST
}

/// Prints every damage with its number.
pub fn list(schedule: &Schedule) -> Result<ExitCode> {
    for (n, mutant) in (1..).zip(mutants(&lowered(schedule)?)) {
        show::line(format_args!("#{n} {}", mutant.description()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a program computes a minimum or a maximum of data.
fn has_extremes(lowered: &Lowered) -> bool {
    let mut found = false;
    for kernel in &lowered.kernels {
        visit::walk(&kernel.func.body, &mut |s| {
            let Stmt::Store(s) = s else { return };
            visit::walk_expr(&s.value, &mut |e| found |= matches!(e, Expr::Bin(BinOp::Min | BinOp::Max, ..)));
        });
    }
    found
}

/// Plants each fault that words name, and says what finds it: the verifier and the simulator, or where `ptx` the interpreter of
/// the PTX that is made of it. Of one alone, the whole message.
pub fn run(schedule: &Schedule, words: &str, seed: u64, name: &str, ptx: bool) -> Result<ExitCode> {
    let lowered = lowered(schedule)?;
    let planted = chosen(&lowered, words)?;
    let seeds = if has_extremes(&lowered) { SEEDS_OF_EXTREMES } else { 1 };
    let seeds = seed..seed.saturating_add(if ptx { 0 } else { seeds });
    let naive =
        seeds.map(|seed| Ok((seed, sim::naive_integers(&schedule.program, seed)?))).collect::<Result<Vec<_>>>()?;
    let find = |damaged: &Lowered| match ptx {
        true => interpret(schedule, damaged, seed),
        false => find(&lowered, damaged, &naive),
    };
    let alone = planted.len() == 1;
    if !alone {
        show::note(format_args!("{} mutants match `{words}`", planted.len()));
    }
    let (mut survivors, all) = (0, planted.len());
    for (number, mutant) in planted {
        let title = format!("#{number} {}", mutant.description());
        if alone {
            show::note(format_args!("mutant {title}"));
        }
        match find(&mutant.lowered) {
            Some((who, error)) if alone => {
                show::error(&error, name);
                show::line(format_args!("found by {who}"));
            }
            Some((who, error)) => {
                show::line(format_args!("{title}\n  found by {who} [{}]: {}", error.code(), error.message()))
            }
            None => {
                survivors += 1;
                show::line(format_args!(
                    "{title}\n  NOT FOUND: nothing refuses it, and its results are those of the naive program"
                ));
            }
        }
    }
    if !alone {
        show::line(format_args!("{} of {all} found", all - survivors));
    }
    Ok(if survivors == 0 { ExitCode::SUCCESS } else { ExitCode::from(SURVIVES) })
}

fn lowered(schedule: &Schedule) -> Result<Lowered> {
    lower::lower(&schedule.scheduled()?, &schedule.target)
}

/// What finds a fault, and what it says.
fn find(right: &Lowered, damaged: &Lowered, naive: &[(u64, Vec<Vec<u32>>)]) -> Option<(&'static str, Error)> {
    if let Some(error) = damaged.kernels.iter().find_map(|k| lower::verify(k).err()) {
        return Some(("the verifier of lowered kernels", error));
    }
    for policy in POLICIES {
        let options = Options { policy, ..Options::new(Mode::Integer) };
        for (seed, wanted) in naive {
            match sim::integers_with(damaged, &options, *seed) {
                Err(error) => return Some(("the simulator", error)),
                Ok(got) => {
                    if let Some(what) = difference(right, &got, wanted) {
                        return Some(("its result", Error::bug(Code::SimResult, what)));
                    }
                }
            }
        }
    }
    None
}

/// What the interpreter of PTX finds of a fault, or the check of the result against f64.
fn interpret(schedule: &Schedule, damaged: &Lowered, seed: u64) -> Option<(&'static str, Error)> {
    let run = || {
        let mut arrays = data::arguments(&schedule.program, seed)?;
        let judge = data::Judge::new(&schedule.program, &arrays)?;
        let kernels = codegen::compile(damaged, &schedule.target)?;
        sim::run_ptx(&kernels, &Options::new(Mode::Real), &mut arrays)?;
        judge.worst(&arrays)
    };
    run().err().map(|error| ("the interpreter of its PTX, or its result", error))
}

/// The first element in which results in integer mode differ.
fn difference(lowered: &Lowered, got: &[Vec<u32>], wanted: &[Vec<u32>]) -> Option<String> {
    let (param, (a, b)) = got.iter().zip(wanted).enumerate().find(|(_, (a, b))| a != b)?;
    let name = lowered.params.get(param).map_or("a parameter", String::as_str);
    Some(match a.iter().zip(b).position(|(x, y)| x != y) {
        Some(n) => format!("in integer mode element {n} of {name} is {}, and {} in the naive program", a[n], b[n]),
        None => {
            format!("{name} has {}, and {} in the naive program", crate::error::counted(a.len(), "element"), b.len())
        }
    })
}
