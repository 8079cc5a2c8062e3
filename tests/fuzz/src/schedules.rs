//! A fuzzer's bytes make a program and its steps, which must keep every promise; see `tests/it/schedules`, whose generator
//! this is.
//!
//! - With `--cfg fuzzing` it is the entry point `LLVMFuzzerTestOneInput`, to be linked with a fuzzer that has the `main`:
//!   `RUSTFLAGS="--cfg fuzzing -Clinker=clang -Clink-arg=-fsanitize=fuzzer"` takes clang's.
//! - Else it is a program that tries the files it is given, or standard input: what a crash left behind, or a corpus.
//!   `seed:17` is the choices of a seed, `hopper:17` those of a seed among schedules for Hopper.
//!
//! Either way a failure is made small and shown as a `.loom` file.
#![cfg_attr(fuzzing, no_main)]
// The modules are those of the tests, which use more of them.
#![allow(dead_code)]

#[path = "../../it/analysis/compare.rs"]
mod analysis;
#[path = "../../it/schedules/attempt.rs"]
mod attempt;
#[path = "../../it/schedules/check.rs"]
mod check;
#[path = "../../it/schedules/groups.rs"]
mod groups;
#[path = "../../it/schedules/hopper/mod.rs"]
mod hopper;
#[path = "../../it/schedules/levels.rs"]
mod levels;
#[path = "../../it/oracle/mod.rs"]
mod oracle;
#[path = "../../it/schedules/products.rs"]
mod products;
#[path = "../../it/schedules/programs.rs"]
mod programs;
#[path = "../../it/schedules/random.rs"]
mod random;
#[path = "../../it/schedules/recipes.rs"]
mod recipes;
#[path = "../../it/schedules/rewrites.rs"]
mod rewrites;
#[path = "../../it/schedules/shrink.rs"]
mod shrink;
#[path = "../../it/schedules/source.rs"]
mod source;
#[path = "../../it/schedules/steps.rs"]
mod steps;
#[path = "../../it/schedules/times.rs"]
mod times;

use attempt::{ANY, Generator};
use check::{Depth, LIMITS, Tally};
use source::Source;

/// What the choices make, or the smallest schedule that fails as it does.
fn attempt(kind: Generator, source: &mut Source, tally: &mut Tally) -> Result<String, String> {
    let depth = Depth { real: false, ptx: true, code: None, limits: LIMITS };
    match attempt::attempt(kind, source, depth, tally) {
        (case, Ok(())) => Ok(case.to_string()),
        (case, Err(failure)) => Err(attempt::reproducer(kind, &case, &failure, depth)),
    }
}

/// What libFuzzer calls.
///
/// # Safety
/// `data` points to `size` bytes, or `size` is 0.
#[cfg(fuzzing)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn LLVMFuzzerTestOneInput(data: *const u8, size: usize) -> i32 {
    // SAFETY: the caller's promise; nothing is read where there are no bytes.
    let bytes = if size == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data, size) } };
    if let Err(reproducer) = attempt(ANY, &mut Source::Bytes(bytes), &mut Tally::default()) {
        eprintln!("{reproducer}");
        std::process::abort();
    }
    0
}

/// What an argument names: a file's bytes, or `seed:17`.
#[cfg(not(fuzzing))]
fn attempt_named(name: &str, tally: &mut Tally) -> Result<String, String> {
    let of_seed = |kind, seed: &str, tally: &mut Tally| {
        let seed = seed.parse().map_err(|e| format!("{name}: {e}"))?;
        attempt(kind, &mut Source::seeded(seed), tally)
    };
    if let Some(seed) = name.strip_prefix("seed:") {
        return of_seed(ANY, seed, tally);
    }
    if let Some(seed) = name.strip_prefix("hopper:") {
        return of_seed(hopper::HOPPER, seed, tally);
    }
    let bytes = match name {
        "-" => std::io::Read::bytes(std::io::stdin()).collect(),
        path => std::fs::read(path),
    };
    attempt(ANY, &mut Source::Bytes(&bytes.map_err(|e| format!("{name}: {e}"))?), tally)
}

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        names.push("-".into());
    }
    let (mut total, mut failed) = (Tally::default(), false);
    for name in names {
        let mut tally = Tally::default();
        let result = attempt_named(&name, &mut tally);
        total.merge(&tally);
        failed |= result.is_err();
        let verdict = if result.is_ok() { "keeps every promise" } else { "FAILED" };
        let (Ok(text) | Err(text)) = result;
        println!("== {name}: {verdict}\n{text}");
    }
    println!("{total}");
    std::process::ExitCode::from(u8::from(failed))
}
