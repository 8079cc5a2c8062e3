//! Schedules of huge programs: one extent of a random program becomes a number up to 2^33, which no run could take. The steps,
//! the verifier, lowering and code generation have to refuse it or to end in PTX, in a moment, and addresses beyond 32 bits need
//! registers of 64.

use super::attempt::Generator;
use super::check::{Case, Depth, Failure, Tally, broken, count, end, failure, grow, unpointed};
use super::programs::Program;
use super::random;
use super::source::Source;
use std::time::{Duration, Instant};
use warploom::Fault;
use warploom::ir::region::{Range, Touch, touched};
use warploom::ir::simplify::Env;
use warploom::ir::verify::verify;
use warploom::ir::{BufferId, Func, layout};
use warploom::loom::Schedule;
use warploom::lower::lower;
use warploom::schedule::complete;

/// The generator.
pub const HUGE: Generator = Generator { name: "huge", draw, examine };

/// How many are tried where nothing else is said.
pub const USUAL: u64 = 100;

/// What one schedule may take, many times what it does.
const PATIENCE: Duration = Duration::from_secs(30);

const EXTENTS: [i64; 10] =
    [1 << 16, 100_003, 1_000_003, 1 << 20, (1 << 24) + 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 5, 1 << 32, 1 << 33];

fn draw(source: &mut Source, tally: &mut Tally, case: &mut Case) {
    for _ in 0..20 {
        let small = random::program(source).text();
        let from = source.of([7, 8, 12, 13, 16, 17, 24, 31, 32, 48]);
        let to = source.of(EXTENTS);
        let text = moved(&small, from, to);
        if text != small && warploom::te::parse(&text).is_ok() {
            case.program = Program { template: text, sizes: Vec::new() };
            *case = grow(case.program.clone(), source, tally);
            return;
        }
    }
    *case = grow(random::program(source), source, tally);
}

/// The text with every number near one moved to be as near another.
fn moved(text: &str, from: i64, to: i64) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for c in text.chars().chain(['\n']) {
        if c.is_ascii_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        match word.parse::<i64>() {
            Ok(n) if n > 4 && (from - 1..=from + 3).contains(&n) => out += &(n - from + to).to_string(),
            _ => out += &word,
        }
        word.clear();
        out.push(c);
    }
    out
}

/// Whether the elements of a parameter that a program accesses may lie 2^32 elements or more apart.
fn is_touched_beyond(func: &Func, id: BufferId) -> bool {
    let Some(ranges) = touched(func, &func.body, id, Touch::Both, &Env::new()) else { return false };
    let Some(strides) = layout::strides(func.buffer(id)) else { return false };
    let between = |r: &Range| Some(r.extent.as_int()? - 1).filter(|_| r.min.as_int().is_some());
    let far = ranges.iter().zip(strides).map(|(r, stride)| between(r).unwrap_or(0).saturating_mul(stride));
    far.fold(0, i64::saturating_add) >= 1 << 32
}

fn examine(case: &Case, _: Depth<'_>, tally: &mut Tally) -> Result<(), Failure> {
    let started = Instant::now();
    let schedule = Schedule::parse(&case.to_string()).map_err(|e| broken("parse", &e))?;
    let mut func = schedule.program.clone();
    for step in &schedule.steps {
        func = complete(&func, step).map_err(|e| broken("step", &e))?.0;
    }
    let made = verify(&func).and_then(|()| lower(&func, &schedule.target)).and_then(|lowered| {
        let kernels = warploom::codegen::compile(&lowered, &schedule.target)?;
        Ok((lowered, kernels))
    });
    if started.elapsed() > PATIENCE {
        return Err(failure("slow", format!("{:?}", started.elapsed())));
    }
    let (_, kernels) = match made {
        Ok(made) => made,
        Err(e) if e.fault() == Fault::Bug || unpointed(&e) => return Err(broken("huge", &e)),
        Err(e) => return end(tally, &e.code().to_string()),
    };
    if func.params.iter().any(|id| is_touched_beyond(&func, *id)) {
        count(&mut tally.levels, "PTX of accesses beyond 2^32 elements");
        let far = ["mul.wide", "mad.wide", "mad.lo.s64", "mul.lo.s64", "shl.b64", "add.s64"];
        if !far.iter().any(|word| kernels.ptx().contains(word)) {
            return Err(failure("narrow", "no address has 64 bits"));
        }
    }
    end(tally, "compiled")
}
