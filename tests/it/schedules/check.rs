//! What must hold of a schedule, and what is written down about many.
//!
//! Every prefix of its steps is well formed, replays from its text, and computes in integer mode what the naive program
//! computes. The whole is verified, lowered (or refused for its chip alone), and its kernels compute the same under
//! adversarial orders of warps; a share also runs in the real types, where its cost report counts what the simulator does,
//! and goes through code generation and ptxas.

use super::hopper::features::Together;
use super::levels::{self, Oracle, elements};
use super::programs::Program;
use super::recipes;
use super::source::Source;
use super::steps;
use super::times::Times;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use warploom::analysis::{cost_report, observe};
use warploom::assemble::Ptxas;
use warploom::error::{Area, Code};
use warploom::ir::{Func, verify::verify};
use warploom::loom::Schedule;
use warploom::lower::{Lowered, lower};
use warploom::reference::{Sample, outputs};
use warploom::schedule::{complete, parse};
use warploom::sim::{Limits, Mode, Options, Policy, run_lowered_with};
use warploom::target::Target;
use warploom::{Array, Error, Fault};

/// A schedule that can be shrunk.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Case {
    /// What to compute.
    pub program: Program,
    /// For which chip.
    pub target: &'static str,
    /// The steps with all names stated.
    pub steps: Vec<String>,
}

impl Display for Case {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\ntarget {}", self.program.text(), self.target)?;
        self.steps.iter().try_for_each(|s| writeln!(f, "{s}"))
    }
}

/// What is tried beyond the ring.
#[derive(Debug, Clone, Copy)]
pub struct Depth<'a> {
    /// Run in the real types.
    pub real: bool,
    /// Run the PTX.
    pub ptx: bool,
    /// Generate code, and assemble it with what is here.
    pub code: Option<&'a [Ptxas]>,
    /// What the simulator may do for one run.
    pub limits: Limits,
}

/// A requirement of this page that does not hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The same for the same reason.
    pub kind: String,
    /// In full.
    pub message: String,
}

pub fn failure(kind: impl Into<String>, message: impl Display) -> Failure {
    Failure { kind: kind.into(), message: message.to_string() }
}

pub fn broken(stage: &str, e: &Error) -> Failure {
    failure(format!("{stage} {}", e.code()), e)
}

/// What was counted.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Schedules.
    pub schedules: usize,
    /// Steps taken, by primitive.
    pub accepted: BTreeMap<String, usize>,
    /// Steps refused, by primitive.
    pub refused: BTreeMap<String, usize>,
    /// Of both, how many came from a signature alone.
    pub blind: [usize; 2],
    /// Refusals by code.
    pub reasons: BTreeMap<String, usize>,
    /// Groups of steps taken back because the whole broke a rule that only the whole can break, by code.
    pub withdrawn: BTreeMap<String, usize>,
    /// How often a program was proved legal, and how often that was not decided.
    pub proved: usize,
    pub undecided: usize,
    /// Steps of the schedules that were run.
    pub kept: usize,
    /// Durations of steps, refused ones included.
    pub times: Times,
    /// How schedules ended: run on the simulator, or what refused them.
    pub ends: BTreeMap<String, usize>,
    /// The shortest schedule that each code of lowering refused.
    pub refusals: BTreeMap<String, String>,
    /// Largest error in the real types, in parts of its bound.
    pub worst: f64,
    /// Comparisons that were made, by level.
    pub levels: BTreeMap<String, usize>,
    /// How often features came together, in schedules that ran.
    pub together: Together,
}

pub fn count(map: &mut BTreeMap<String, usize>, key: &str) {
    *map.entry(key.to_string()).or_default() += 1;
}

fn add(into: &mut BTreeMap<String, usize>, from: &BTreeMap<String, usize>) {
    from.iter().for_each(|(k, n)| *into.entry(k.clone()).or_default() += n);
}

impl Tally {
    /// Adds what another worker counted.
    pub fn merge(&mut self, other: &Tally) {
        self.schedules += other.schedules;
        self.kept += other.kept;
        self.times.merge(&other.times);
        self.blind = [0, 1].map(|n| self.blind[n] + other.blind[n]);
        self.proved += other.proved;
        self.undecided += other.undecided;
        self.worst = self.worst.max(other.worst);
        self.together.merge(&other.together);
        add(&mut self.accepted, &other.accepted);
        add(&mut self.refused, &other.refused);
        add(&mut self.reasons, &other.reasons);
        add(&mut self.withdrawn, &other.withdrawn);
        add(&mut self.ends, &other.ends);
        add(&mut self.levels, &other.levels);
        other.refusals.iter().for_each(|(code, text)| self.refusal(code, text));
    }

    /// Keeps a refused schedule if it is the shortest of its kind.
    pub fn refusal(&mut self, code: impl Display, text: &str) {
        let kept = self.refusals.entry(code.to_string()).or_insert_with(|| text.to_string());
        if text.len() < kept.len() {
            *kept = text.to_string();
        }
    }

    /// Of the schedules that ran, the share that had an instruction of a warp.
    pub fn tensorized(&self) -> f64 {
        let of = |key: &str| self.ends.get(key).copied().unwrap_or(0) as f64;
        of("ran with tensorize") / of("ran").max(1.0)
    }

    /// How many of the steps that were chosen by more than a signature were accepted, and how many refused.
    fn chosen(&self) -> [usize; 2] {
        let sums = [self.accepted.values().sum::<usize>(), self.refused.values().sum()];
        [0, 1].map(|n| sums[n] - self.blind[n])
    }

    /// The share of the chosen steps that were accepted.
    pub fn share(&self) -> f64 {
        let [yes, no] = self.chosen();
        yes as f64 / (yes + no).max(1) as f64
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ([yes, no], [taken, left]) = (self.chosen(), self.blind);
        writeln!(f, "{} schedules of {} steps; worst error {:.3} of its bound", self.schedules, self.kept, self.worst)?;
        writeln!(f, "{yes} chosen steps accepted, {no} refused: {:.1} % accepted", 100.0 * self.share())?;
        writeln!(f, "{taken} steps from signatures alone accepted, {left} refused")?;
        writeln!(f, "a step took {}", self.times)?;
        let names: std::collections::BTreeSet<&String> = self.accepted.keys().chain(self.refused.keys()).collect();
        for name in names {
            let of = |map: &BTreeMap<String, usize>| map.get(name).copied().unwrap_or(0);
            writeln!(f, "  {name:24} {:8} accepted {:8} refused", of(&self.accepted), of(&self.refused))?;
        }
        for (title, map) in [
            ("compared", &self.levels),
            ("refused", &self.reasons),
            ("withdrawn", &self.withdrawn),
            ("ended", &self.ends),
        ] {
            let mut rows: Vec<(&String, &usize)> = map.iter().collect();
            rows.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
            rows.iter().try_for_each(|(key, n)| writeln!(f, "  {title:9} {n:8} {key}"))?;
        }
        self.together.fmt(f)?;
        self.refusals.iter().try_for_each(|(code, text)| writeln!(f, "\nthe shortest that {code} refuses:\n{text}"))
    }
}

/// Of a hundred products, how many begin with the steps of a recipe.
const RECIPES: usize = 12;

/// What the simulator usually may do for one run.
pub const LIMITS: Limits = Limits { statements: 1 << 24, bytes: 1 << 28 };

/// What only lowering knows: registers have no addresses and are written out, threads that take turns inside one run of
/// a statement are told apart by proofs; how wide a copy is follows from alignments, and whether the kernel writes what it
/// reads from all nests, and so what a pipeline may copy ahead; whether a role fills a stage of warpgroups that take turns, and
/// whether the kernel has a bulk copy to fetch ahead of; how many threads are left beside roles, and what stands around a walk of the blocks, when kernels
/// have their threads; how many elements local buffers and buffers of a cluster have is known when the pass `compact` has shrunk them; how long the rows of a swizzled tile or of a box are is known when tiles are cut to what is used of them; which
/// threads write elements that share a byte, and whether a box of them begins with a byte, is known when all have their loops; how many operations a kernel has is known when all loops that
/// are written out are; and what the kernels before a concurrent one access, when the program is cut into kernels.
const KNOWN_IN_LOWERING: [Code; 25] = [
    Code::LowerConcurrent,
    Code::LowerCluster,
    Code::LowerPingpong,
    Code::LowerBulkAlign,
    Code::LowerBulkSwizzle,
    Code::LowerL2Prefetch,
    Code::LowerLocalByThread,
    Code::LowerUnroll,
    Code::LowerUnrollLimit,
    Code::LowerOperations,
    Code::LowerWarps,
    Code::LowerFragment,
    Code::LowerDistribute,
    Code::LowerTile,
    Code::LowerOperand,
    Code::LowerRace,
    Code::LowerRole,
    Code::LowerPersistent,
    Code::LowerPipeline,
    Code::LowerCopySize,
    Code::LowerCopySource,
    Code::LowerSwizzle,
    Code::AdmitByte,
    Code::AdmitRegisters,
    Code::AdmitRow,
];

/// An error that no step may end in.
fn is_wrong(e: &Error) -> bool {
    e.fault() == Fault::Bug || matches!(e.code().area(), Some(Area::Verify | Area::Step))
}

/// A schedule for a program. Whatever a step breaks is the last step of the result, for [`examine`] to find.
pub fn grow(program: Program, source: &mut Source, tally: &mut Tally) -> Case {
    let target = source.of(Target::ALL).name;
    let mut case = Case { program, target, steps: Vec::new() };
    let Ok(mut func) = warploom::te::parse(&case.program.text()) else { return case };
    // As many steps as the program verified with, and that program.
    let mut good = (0, func.clone());
    let wanted = if source.chance(10) { 40 } else { 3 + source.below(14) };
    if source.chance(RECIPES) {
        for text in recipes::steps(&func, &Target::parse(target).unwrap_or(Target::sm_80()), source) {
            if let Taken::Wrong = take(&mut case, &mut func, &text, tally) {
                return case;
            }
        }
        if verify(&func).is_ok() {
            good = (case.steps.len(), func.clone());
        }
    }
    for _ in 0..2 * wanted + 20 {
        if case.steps.len() >= wanted {
            break;
        }
        let (before, kept) = (func.clone(), case.steps.len());
        let sound = good.0 == kept;
        let drawn = steps::draw(&func, source);
        for text in &drawn.steps {
            let taken = take(&mut case, &mut func, text, tally);
            if drawn.blind {
                tally.blind[usize::from(!matches!(taken, Taken::Yes))] += 1;
            }
            match taken {
                Taken::Yes => {}
                Taken::No => break,
                Taken::Wrong => return case,
            }
        }
        let verified = verify(&func);
        tally.proved += usize::from(verified.is_ok());
        tally.undecided += usize::from(verified.as_ref().is_err_and(|e| e.message().starts_with("it is not proved")));
        match verified {
            Ok(()) => good = (case.steps.len(), func.clone()),
            // An incomplete schedule may be completed later; mostly it is taken back.
            Err(e) if sound && source.chance(70) => {
                count(&mut tally.withdrawn, &e.code().to_string());
                (func, _) = (before, case.steps.truncate(kept));
            }
            Err(_) => {}
        }
    }
    case.steps.truncate(good.0);
    func = good.1;
    for text in steps::bindings(&func) {
        let (before, kept) = (func.clone(), case.steps.len());
        if let Taken::Wrong = take(&mut case, &mut func, &text, tally) {
            return case;
        }
        if verify(&func).is_err() {
            (func, _) = (before, case.steps.truncate(kept));
        }
    }
    tally.kept += case.steps.len();
    case
}

enum Taken {
    Yes,
    No,
    Wrong,
}

fn take(case: &mut Case, func: &mut Func, text: &str, tally: &mut Tally) -> Taken {
    let name = text.split(' ').next().unwrap_or("").to_string();
    let step = match parse(text) {
        Ok(steps) if steps.len() == 1 => steps[0].clone(),
        // Only what is filled with anything may be wrong as text.
        _ => {
            count(&mut tally.reasons, "parse");
            count(&mut tally.refused, &name);
            return Taken::No;
        }
    };
    match tally.times.of(|| complete(func, &step)) {
        Ok((next, stated)) => {
            case.steps.push(stated.to_string());
            *func = next;
            count(&mut tally.accepted, &name);
            Taken::Yes
        }
        Err(e) if is_wrong(&e) && e.code().area() != Some(Area::Step) || unpointed(&e) => {
            case.steps.push(text.to_string());
            Taken::Wrong
        }
        Err(e) => {
            count(&mut tally.reasons, &e.code().to_string());
            count(&mut tally.refused, &name);
            Taken::No
        }
    }
}

/// A refusal that underlines nothing in the program that it speaks of, or something outside.
pub fn unpointed(e: &Error) -> bool {
    let text = e.source_text().unwrap_or("");
    let numbered = matches!(e.code(), Code::Requirement { .. });
    let outside = e.labels().iter().any(|l| text.get(l.span.clone()).is_none_or(str::is_empty));
    outside || (numbered && e.labels().is_empty())
}

/// Whether a schedule keeps every promise; says how it ended.
pub fn examine(case: &Case, depth: Depth<'_>, tally: &mut Tally) -> Result<(), Failure> {
    examine_text(&case.to_string(), depth, tally)
}

/// [`examine`] of a text.
pub fn examine_text(text: &str, depth: Depth<'_>, tally: &mut Tally) -> Result<(), Failure> {
    let schedule = Schedule::parse(text).map_err(|e| broken("parse", &e))?;
    let printed = Schedule::parse(&schedule.to_string()).map_err(|e| broken("print", &e))?;
    if printed != schedule {
        return Err(failure("print", "the schedule does not print back"));
    }
    let oracle = Oracle::of(text, &schedule, 1)?;
    let naive = oracle.run(&schedule.program, depth.limits).map_err(|e| broken("naive", &e))?;
    if oracle.compare_naive(&naive)? {
        count(&mut tally.levels, "naive = text in integer mode");
    }
    if oracle.compare_naive_exactly(&schedule.program, depth.limits)? {
        count(&mut tally.levels, "naive = text exactly");
    }
    let mut func = schedule.program.clone();
    for step in &schedule.steps {
        let (next, stated) = match complete(&func, step) {
            Err(e) if unpointed(&e) && !is_wrong(&e) => return Err(failure(format!("underline {}", e.code()), e)),
            other => other.map_err(|e| broken("step", &e))?,
        };
        if stated != *step && complete(&func, &stated) != Ok((next.clone(), stated.clone())) {
            return Err(failure("names", format!("{step} states {stated}")));
        }
        func = next;
        let found = match oracle.run(&func, depth.limits) {
            Err(e) if e.code() == Code::SimLimit => return end(tally, "a prefix is too much work"),
            ran => ran.map_err(|e| broken("scheduled", &e))?,
        };
        count(&mut tally.levels, "prefix of steps = naive");
        if found != naive {
            return Err(failure(format!("ring after {}", step.primitive().name), format!("after {step}")));
        }
    }
    verify(&func).map_err(|e| broken("verify", &e))?;
    let lowered = match lower(&func, &schedule.target) {
        Ok(lowered) => lowered,
        Err(e) if e.fault() == Fault::Chip || KNOWN_IN_LOWERING.contains(&e.code()) => {
            tally.refusal(e.code(), &format!("{schedule}{e}"));
            return end(tally, &e.code().to_string());
        }
        Err(e) => return Err(broken("lower", &e)),
    };
    run(&schedule, &lowered, &oracle, &naive, depth, tally)
}

pub fn end(tally: &mut Tally, how: &str) -> Result<(), Failure> {
    count(&mut tally.ends, how);
    Ok(())
}

/// Runs kernels in adversarial orders, and tries on them what more was asked for.
pub fn run(
    schedule: &Schedule,
    lowered: &Lowered,
    oracle: &Oracle,
    naive: &[Vec<u32>],
    depth: Depth<'_>,
    tally: &mut Tally,
) -> Result<(), Failure> {
    for policy in [Policy::InOrder, Policy::Reverse, Policy::Random(7)] {
        let options = Options::new(Mode::Integer).with_policy(policy).with_limits(depth.limits);
        let mut args = oracle.integer_arguments().map_err(|e| broken("simulator", &e))?;
        let ran = run_lowered_with(lowered, &options, &mut args);
        match ran.map(|_| args.iter().map(elements).collect::<Vec<_>>()) {
            Ok(found) if found == naive => count(&mut tally.levels, "lowered = naive"),
            Ok(_) => return Err(failure("ring lowered", format!("the kernels differ, warps {policy:?}"))),
            Err(e) if e.code() == Code::SimLimit => return end(tally, &e.code().to_string()),
            Err(e) => return Err(broken("simulator", &e)),
        }
    }
    let mut args = oracle.exact_arguments().map_err(|e| broken("simulator", &e))?;
    let options = Options::new(Mode::Real).with_policy(Policy::Random(0)).with_races(false).with_limits(depth.limits);
    match run_lowered_with(lowered, &options, &mut args) {
        Ok(_) if oracle.compare_exact("lowered", &args)? => count(&mut tally.levels, "lowered = text exactly"),
        Err(e) if e.code() != Code::SimLimit => return Err(broken("simulator", &e)),
        _ => {}
    }
    if depth.ptx {
        count(&mut tally.levels, levels::ptx(schedule, lowered, oracle, depth.limits)?);
    }
    if depth.real {
        real(schedule, lowered, tally)?;
    }
    if let Some(tools) = depth.code {
        code(schedule, lowered, tools, tally)?;
        count(&mut tally.ends, "assembled");
    }
    for word in ["tensorize", "swizzle"] {
        if schedule.steps.iter().any(|s| s.primitive().name == word) {
            count(&mut tally.ends, &format!("ran with {word}"));
        }
    }
    end(tally, "ran")
}

/// Small integers for integer types, reals in [-1, 1) for the others.
fn arguments(func: &Func) -> Result<Vec<Array>, Error> {
    let params = func.params.iter().map(|p| func.buffer(*p)).enumerate();
    let made = params.map(|(n, b)| {
        let shape = vec![warploom::ir::layout::span(b).unwrap_or(1) as usize];
        match b.dtype.is_float() {
            _ if b.values.is_some() => {
                Array::random_values(b.dtype, &shape, b.values.unwrap_or_default(), n as u64 + 1)
            }
            true => Array::random(b.dtype, &shape, n as u64 + 1),
            false => Array::random_integers(b.dtype, &shape, 3, n as u64 + 1),
        }
    });
    made.collect()
}

fn real(schedule: &Schedule, lowered: &Lowered, tally: &mut Tally) -> Result<(), Failure> {
    let mut args = arguments(&schedule.program).map_err(|e| broken("real", &e))?;
    // With a block for each tile of a persistent kernel, as cost reports count.
    let options = Options::new(Mode::Real).with_races(false).with_policy(Policy::Random(0));
    let ran = observe(lowered, &options, &mut args).map_err(|e| broken("real", &e))?;
    let report = cost_report(lowered, &schedule.target);
    crate::analysis::compare(&report, &ran).map_err(|e| failure("cost report", e))?;
    for output in outputs(&schedule.program, &args, Sample::All).map_err(|e| broken("reference", &e))? {
        let worst = output.bound(&args[output.param]).map_err(|e| broken("real", &e))?;
        tally.worst = tally.worst.max(worst.ratio);
    }
    count(&mut tally.ends, "within its bound");
    Ok(())
}

fn code(schedule: &Schedule, lowered: &Lowered, tools: &[Ptxas], tally: &mut Tally) -> Result<(), Failure> {
    let kernels = warploom::codegen::compile(lowered, &schedule.target).map_err(|e| broken("codegen", &e))?;
    let report = cost_report(lowered, &schedule.target).compiled(&kernels);
    if let Some(k) = report.kernels.iter().find(|k| k.compiled.is_none()) {
        return Err(failure("cost report of PTX", format!("{} has no entry", k.name)));
    }
    for ptxas in tools.iter().filter(|p| p.knows(schedule.target.name)).take(1) {
        let made = ptxas.assemble(&kernels.text, schedule.target.name).map_err(|e| broken("ptxas", &e))?;
        // A role that asks for few registers may spill, of which ptxas warns where it keeps them; spills are counted below.
        let other = |w: &&String| !w.contains("Registers are spilled to local memory");
        if let Some(warning) = made.warnings.iter().find(other) {
            return Err(failure("ptxas warns", warning));
        }
        if made.usage.iter().any(|u| !u.is_clean()) {
            count(&mut tally.ends, "assembled with a spill or a stack frame");
        }
    }
    Ok(())
}
