//! A record apart by warps: what each does in its own order, with what each of its waits depends on.
//!
//! The simulator runs one warp for some statements, then another. A timeline takes each warp's events as soon as their causes allow,
//! so it needs the causes and not that order.

use super::record::{Record, What};
use crate::sim::{Mbarrier, Phase};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A phase of an mbarrier.
pub type Ending = (Mbarrier, i64);

/// A bulk load: rank and warp that start it, the access, the mbarrier that counts its bytes.
type Load = ((usize, usize), u32, Mbarrier);

/// An event of a warp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// It comes to a statement.
    Statement(usize),
    /// Its lanes access shared memory: the access, the first element and the last.
    Access(u32, i64, i64),
    /// It starts a bulk copy: the access and the first element of shared memory, elements, blocks that receive it, and the phases
    /// that wait for its landings.
    Bulk(u32, i64, (u64, usize), Vec<Ending>),
    /// It arrives at an mbarrier, in this phase.
    Arrive(Ending),
    /// Its wait for a phase ends.
    Pass(Phase),
    /// It meets others at the barrier of that number.
    Meet(usize),
}

/// The events of each warp of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Streams {
    /// By warp of the cluster, in its order.
    pub ops: Vec<VecDeque<Op>>,
    /// Arrivals and landings that end each phase; only phases that have ended.
    pub needed: BTreeMap<Ending, usize>,
    /// The warps that meet at each barrier.
    pub meetings: Vec<std::ops::Range<usize>>,
}

impl Streams {
    /// Takes a record apart; a block has `each` warps.
    pub fn of(record: &Record, each: usize, warps: usize) -> Streams {
        let mut out = Streams { ops: vec![VecDeque::new(); warps], ..Streams::default() };
        let mut phases: BTreeMap<Mbarrier, i64> = BTreeMap::new();
        let mut counted: BTreeMap<Ending, usize> = BTreeMap::new();
        let mut ended: BTreeSet<Ending> = BTreeSet::new();
        // Bulk loads that have not landed: the warp that started each, and where in its stream.
        let mut flying: BTreeMap<Load, VecDeque<(usize, usize)>> = BTreeMap::new();
        for event in &record.events {
            let number = event.rank * each + event.warp;
            let Some(own) = out.ops.get_mut(number) else { continue };
            match event.what {
                What::Statement(n) => own.push_back(Op::Statement(n as usize)),
                What::Access(access, first, last) => own.push_back(Op::Access(access, first, last)),
                What::Bulk(access, element, (elements, blocks), full) => {
                    own.push_back(Op::Bulk(access, element, (elements, blocks), Vec::new()));
                    let Some((array, index)) = full else { continue };
                    let ranks = if blocks > 1 { 0..blocks } else { event.rank..event.rank + 1 };
                    for rank in ranks {
                        let key = ((event.rank, event.warp), access, Mbarrier { rank, array, index });
                        flying.entry(key).or_default().push_back((number, own.len() - 1));
                    }
                }
                What::Arrival(a) => {
                    let ending = (a.at, *phases.entry(a.at).or_default());
                    *counted.entry(ending).or_default() += 1;
                    own.push_back(Op::Arrive(ending));
                }
                What::Landing(l) => {
                    let ending = (l.at, *phases.entry(l.at).or_default());
                    let started = flying.get_mut(&(l.from, l.access, l.at)).and_then(VecDeque::pop_front);
                    let op = started.and_then(|(warp, at)| out.ops.get_mut(warp)?.get_mut(at));
                    if let Some(Op::Bulk(_, _, _, endings)) = op {
                        *counted.entry(ending).or_default() += 1;
                        endings.push(ending);
                    }
                }
                What::Over(phase) => {
                    *phases.entry(phase.at).or_default() += 1;
                    ended.insert((phase.at, phase.phase));
                }
                What::Passed(phase) => own.push_back(Op::Pass(phase)),
                What::Meeting(m) => {
                    let range = m.first..(m.first + m.warps).min(warps);
                    for warp in range.clone() {
                        out.ops[warp].push_back(Op::Meet(out.meetings.len()));
                    }
                    out.meetings.push(range);
                }
            }
        }
        out.needed = counted.into_iter().filter(|(ending, _)| ended.contains(ending)).collect();
        out
    }
}
