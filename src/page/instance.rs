//! Which instance of a schedule the timeline shows: the smallest whose lowered program has the same lines and whose rings go round
//! twice.

use crate::error::Result;
use crate::ir::{LoopKind, Stmt, visit};
use crate::loom::Schedule;
use crate::lower::{self, Lowered, LoweredKernel};
use crate::{te, validate};
use similar::{ChangeTag, TextDiff};
use std::collections::BTreeMap;

/// Operations of one cluster that the simulator runs in a moment.
const OPERATIONS: f64 = (1u64 << 29) as f64;

/// Iterations of a loop with synchronisation that a reader wants to see: as often as a ring goes round, and at least these.
const ROUNDS: i64 = 3;

/// An instance of a schedule.
pub struct Instance {
    /// The schedule.
    pub schedule: Schedule,
    /// What it lowers to.
    pub lowered: Lowered,
    /// Of each of its lines, the line of the program that is shown; both from 1.
    pub lines: BTreeMap<usize, usize>,
}

/// The instance that the timeline shows; `None` where none is small enough to run.
///
/// # Errors
/// What the steps refuse.
pub fn of(schedule: &Schedule, lowered: &Lowered) -> Result<Option<Instance>> {
    let wanted = shape(lowered);
    let mut second = None;
    for candidate in validate::smaller(schedule) {
        let Ok(small) = candidate.scheduled().and_then(|f| lower::lower(&f, &candidate.target)) else { continue };
        let is_same = shape(&small) == wanted;
        let lines = matched(&wanted, &shape(&small));
        let found = Instance { schedule: candidate, lowered: small, lines };
        if !affordable(&found) {
            continue;
        }
        if is_same && rounds(&found.lowered, lowered) {
            return Ok(Some(found));
        }
        // Without an instance of the same lines, the largest that can be run.
        second = Some(found);
    }
    let lines = (1..=wanted.len()).map(|n| (n, n)).collect();
    let whole = Instance { schedule: schedule.clone(), lowered: lowered.clone(), lines };
    Ok(if affordable(&whole) { Some(whole) } else { second })
}

/// Whether the simulator runs a cluster of it in a moment.
fn affordable(instance: &Instance) -> bool {
    let clusters = |k: &LoweredKernel| {
        let blocks: f64 = k.grid().iter().map(|n| f64::from(*n)).product();
        blocks / f64::from(k.cluster().max(1))
    };
    // A persistent kernel runs half of its tiles in one cluster.
    let share = |k: &LoweredKernel| if k.persistent().is_some() { 2.0 } else { clusters(k) };
    let most = instance.lowered.kernels.iter().map(share).fold(f64::INFINITY, f64::min);
    te::operations(&instance.schedule.program) / most.max(1.0) <= OPERATIONS
}

/// The lines without their numbers.
fn shape(lowered: &Lowered) -> Vec<String> {
    let blank = |line: &str| line.chars().filter(|c| !c.is_ascii_digit()).collect();
    lower::print(lowered).lines().map(blank).collect()
}

/// Which line of the program that is shown each line of an instance is.
fn matched(shown: &[String], instance: &[String]) -> BTreeMap<usize, usize> {
    let [old, new] = [shown, instance].map(|lines| lines.iter().map(|l| format!("{l}\n")).collect::<String>());
    let diff = TextDiff::from_lines(&old, &new);
    let equal = diff.iter_all_changes().filter(|c| c.tag() == ChangeTag::Equal);
    equal.filter_map(|c| Some((c.new_index()? + 1, c.old_index()? + 1))).collect()
}

/// Whether every loop with synchronisation runs as often as a reader wants to see it, or as often as in the program.
fn rounds(small: &Lowered, whole: &Lowered) -> bool {
    small.kernels.iter().zip(&whole.kernels).all(|(small, whole)| {
        let slots = small.func.mbarriers.iter().map(|b| i64::from(b.slots)).max().unwrap_or(1);
        let wanted = ROUNDS.max(2 * slots);
        loops(small).iter().zip(loops(whole)).all(|(small, whole)| *small >= wanted.min(whole))
    })
}

/// The extents of the loops with synchronisation.
fn loops(kernel: &LoweredKernel) -> Vec<i64> {
    let synchronises = |body: &[Stmt]| {
        let mut found = false;
        visit::walk(body, &mut |s| found |= matches!(s, Stmt::Sync(_)));
        found
    };
    let all = visit::loops(&kernel.func.body).into_iter();
    let own = all.filter(|l| l.kind == LoopKind::Serial && synchronises(&l.body));
    own.filter_map(|l| l.extent.as_int()).collect()
}
