//! A record as a timeline: lanes of warps, engines and stages, spans and marks on them, in logical time.
//!
//! The time of an event is the earliest that its causes allow: it follows the event before it in its warp, and what it waits for.
//! So the picture depends on the synchronisation and not on the order that the simulator drew. [`RULES`] says how long things take.

use super::drawing::{Arrow, Mark, Span, Timeline};
use super::groups::Groups;
use super::lanes;
use super::record::{self, Numbered, Record};
use super::stages::{Activity, Stages};
use super::streams::{Ending, Op, Streams};
use crate::ir::{Stmt, Sync, SyncKind};
use crate::lower::LoweredKernel;
use crate::sim::{Mbarrier, Phase};
use std::collections::BTreeMap;

/// Steps from the end of the engine's work to the landing of a copy.
const LATENCY: u32 = 16;
/// Bytes that the TMA engine moves in one step.
const BYTES_A_STEP: u64 = 4096;
/// Multiply-adds of a warpgroup's MMA in one step.
const PRODUCTS_A_STEP: i64 = 65536;
/// The most spans and marks of a timeline.
const MOST_SHOWN: usize = 16_000;

/// How the timeline counts, as the page says it.
pub const RULES: &str = "Time is logical: a step is no cycle. A statement of a warp takes one step; a run of n statements that only load, \
                         compute and store takes as many steps as n has binary digits. The TMA engine moves 4096 bytes a step, one copy \
                         after the other, and a copy (TMA or cp.async) lands 16 steps later. An asynchronous MMA takes a step for each \
                         65536 multiply-adds. A wait ends as early as what it waits for allows. Read orders and overlaps from it, not \
                         lengths.";

/// A warp.
#[derive(Debug, Clone, Default)]
struct Warp {
    now: u32,
    /// The statement that it came to last: its number and when.
    at: (usize, u32),
    /// The span of the statements that it runs, if that can grow.
    run: Option<usize>,
    /// The last MMA on the tensor core.
    product: (u32, u32),
    copies: Groups,
    products: Groups,
    stores: Groups,
}

/// What the warps and engines of a cluster have done.
struct Clock<'k> {
    kernel: &'k LoweredKernel,
    numbered: &'k Numbered<'k>,
    each: usize,
    warps: Vec<Warp>,
    stages: Stages<'k>,
    /// By rank, when the TMA engine is free.
    engines: Vec<u32>,
    /// By rank and tensor core.
    cores: Vec<[u32; 4]>,
    /// The latest arrival or landing of a phase with its lane, and how many there have been.
    arriving: BTreeMap<Ending, (u32, usize, usize)>,
    /// When each phase ended, and the lane that shows it.
    over: BTreeMap<Ending, (u32, usize)>,
    /// Warps that have come to each barrier.
    meeting: Vec<usize>,
    out: Timeline,
}

/// The timeline of what was recorded of a kernel.
///
/// `rings` has the number of stages of each buffer that a pipeline makes a ring.
pub fn of(kernel: &LoweredKernel, numbered: &Numbered<'_>, record: &Record, rings: &BTreeMap<String, i64>) -> Timeline {
    let each = kernel.warps() as usize;
    let ranks = kernel.cluster().max(1) as usize;
    let stages = Stages::of(kernel, numbered, rings);
    let lanes = lanes::of(kernel, numbered, &stages);
    let mut clock = Clock {
        kernel,
        numbered,
        each,
        warps: vec![Warp::default(); each * ranks],
        stages,
        engines: vec![0; ranks],
        cores: vec![[0; 4]; ranks],
        arriving: BTreeMap::new(),
        over: BTreeMap::new(),
        meeting: Vec::new(),
        out: Timeline { kernel: kernel.func.name.clone(), lanes, ..Timeline::default() },
    };
    let streams = Streams::of(record, each, each * ranks);
    clock.run(streams);
    clock.finish(record.is_cut)
}

impl<'k> Clock<'k> {
    /// Runs the warps, always the one that is furthest back and can go on.
    fn run(&mut self, mut streams: Streams) {
        self.meeting = vec![0; streams.meetings.len()];
        for number in 0..self.warps.len() {
            self.come_to_barrier(number, &mut streams);
        }
        loop {
            let can_go_on = |number: &usize| match streams.ops[*number].front() {
                None | Some(Op::Meet(_)) => false,
                Some(Op::Pass(p)) => p.phase < 0 || self.over.contains_key(&(p.at, p.phase)),
                Some(_) => true,
            };
            let next = (0..self.warps.len()).filter(can_go_on).min_by_key(|number| self.warps[*number].now);
            let Some(number) = next else { return };
            if let Some(op) = streams.ops[number].pop_front() {
                self.op(number, op, &streams);
            }
            self.come_to_barrier(number, &mut streams);
        }
    }

    /// If a warp waits at a barrier now, it has come there; the last one lets all go on.
    fn come_to_barrier(&mut self, number: usize, streams: &mut Streams) {
        let mut at = vec![number];
        while let Some(number) = at.pop() {
            let Some(Op::Meet(id)) = streams.ops[number].front().cloned() else { continue };
            self.meeting[id] += 1;
            let range = streams.meetings[id].clone();
            if self.meeting[id] == range.len() {
                self.meet(range.clone());
                for warp in range {
                    streams.ops[warp].pop_front();
                    at.push(warp);
                }
            }
        }
    }

    fn op(&mut self, number: usize, op: Op, streams: &Streams) {
        match op {
            Op::Statement(n) => self.statement(number, n),
            Op::Access(access, first, last) => self.access(number, access, (first, last)),
            Op::Bulk(access, element, size, endings) => {
                let Some((lands, lane)) = self.bulk(number, access, element, size) else { return };
                endings.into_iter().for_each(|ending| self.contribute(ending, (lands, lane), streams));
            }
            Op::Arrive(ending) => {
                let at = (self.warps[number].now, self.lane(number));
                self.contribute(ending, at, streams);
            }
            Op::Pass(phase) => self.pass(number, phase),
            Op::Meet(_) => {}
        }
    }

    /// An arrival or a landing, which may end a phase.
    fn contribute(&mut self, ending: Ending, (at, lane): (u32, usize), streams: &Streams) {
        let entry = self.arriving.entry(ending).or_default();
        entry.2 += 1;
        if at >= entry.0 {
            (entry.0, entry.1) = (at, lane);
        }
        let (last, from, count) = *entry;
        if streams.needed.get(&ending) == Some(&count) {
            self.end_phase(ending, (last, from));
        }
    }

    fn lane(&self, number: usize) -> usize {
        lanes::warp(&self.out.lanes, number / self.each, number % self.each)
    }

    fn span(
        &mut self,
        lane: usize,
        (from, to): (u32, u32),
        kind: &'static str,
        (line, text): (usize, String),
    ) -> usize {
        self.out.spans.push(Span { lane, from, to, kind, line, text, runs: 1 });
        self.out.spans.len() - 1
    }

    fn mark(&mut self, lane: usize, at: u32, kind: &'static str, (line, text): (usize, String)) {
        self.out.marks.push(Mark { lane, at, kind, line, text });
    }

    /// A warp comes to a statement.
    fn statement(&mut self, number: usize, n: usize) {
        let Some(statement) = self.numbered.statements.get(n) else { return };
        let (stmt, line) = (statement.stmt, statement.line);
        let start = self.warps[number].now;
        self.warps[number].at = (n, start);
        match stmt {
            Stmt::Sync(sync) => {
                self.warps[number].run = None;
                self.warps[number].now += 1;
                self.sync(number, sync, (start, line));
            }
            Stmt::Bulk(_) => {
                self.warps[number].run = None;
                self.warps[number].now += 1;
            }
            stmt => match record::multiplies(stmt) {
                Some((true, products)) => self.product(number, (start, line), products),
                plain => self.work(number, (start, line), plain.is_some()),
            },
        }
    }

    /// A statement that loads, computes or stores: it grows the run that it is part of.
    fn work(&mut self, number: usize, (start, line): (u32, usize), multiplies: bool) {
        let n = self.warps[number].at.0;
        let statement = &self.numbered.statements[n];
        let kind = lanes::work(self.kernel, statement.stmt);
        let (lane, block) = (self.lane(number), statement.block.unwrap_or("statements"));
        let grows = self.warps[number].run.filter(|at| self.out.spans[*at].kind == kind);
        let at = match grows {
            Some(at) => at,
            None => self.span(lane, (start, start + 1), kind, (line, block.to_string())),
        };
        let span = &mut self.out.spans[at];
        span.runs += u64::from(grows.is_some());
        if !span.text.split(", ").any(|b| b == block) {
            span.text = format!("{}, {block}", span.text);
        }
        span.to = span.from + (u64::BITS - span.runs.leading_zeros());
        let to = span.to;
        self.warps[number].run = Some(at);
        self.warps[number].now = to;
        if multiplies {
            self.on_core(number, (to - 1, to), line);
        }
        if let Stmt::Store(store) = statement.stmt
            && store.asynchronous
        {
            self.warps[number].copies.add(to + LATENCY, to + LATENCY);
        }
    }

    /// An MMA on the tensor core of the warp's scheduler.
    fn on_core(&mut self, number: usize, (from, to): (u32, u32), line: usize) {
        let (rank, warp) = (number / self.each, number % self.each);
        self.cores[rank][warp % 4] = self.cores[rank][warp % 4].max(to);
        let Some(lane) = lanes::core(&self.out.lanes, rank, warp % 4) else { return };
        let last = self.out.spans.iter_mut().rev().take(64).find(|s| s.lane == lane);
        if let Some(last) = last.filter(|s| s.line == line && s.to >= from) {
            last.to = last.to.max(to);
            last.runs += 1;
            return;
        }
        self.span(lane, (from, to), "mma", (line, format!("MMA of warp {warp}")));
    }

    /// A warp issues an MMA that goes on behind its back.
    fn product(&mut self, number: usize, (start, line): (u32, usize), products: i64) {
        self.warps[number].run = None;
        self.warps[number].now = start + 1;
        let (rank, warp) = (number / self.each, number % self.each);
        let from = self.cores[rank][warp % 4].max(start + 1);
        let to = from + u32::try_from(products / PRODUCTS_A_STEP).unwrap_or(1).max(1);
        self.warps[number].products.add(to, to);
        self.warps[number].product = (from, to);
        let lane = self.lane(number);
        self.span(lane, (start, start + 1), "issue", (line, format!("warp {warp} issues an asynchronous MMA")));
        self.on_core(number, (from, to), line);
    }

    /// Lanes access shared memory, or an MMA reads it.
    fn access(&mut self, number: usize, access: u32, elements: (i64, i64)) {
        let Some(a) = self.numbered.accesses.get(access as usize).copied() else { return };
        let warp = &self.warps[number];
        let statement = &self.numbered.statements[a.statement];
        let is_asynchronous = matches!(statement.stmt, Stmt::Store(s) if s.asynchronous);
        let time = match record::multiplies(statement.stmt) {
            Some((true, _)) => warp.product,
            _ if is_asynchronous && a.write => (warp.now.saturating_sub(1), warp.now + LATENCY),
            _ => (warp.now.saturating_sub(1), warp.now),
        };
        let by = match record::multiplies(statement.stmt) {
            Some((true, _)) => "asynchronous MMAs",
            _ if is_asynchronous => "cp.async",
            _ => "warps",
        };
        let activity = Activity { time, write: a.write, line: statement.line, by };
        self.stages.touch(number / self.each, a.buffer, elements, activity);
    }

    /// A warp starts a bulk copy; when it lands, and the lane that shows it.
    fn bulk(
        &mut self,
        number: usize,
        access: u32,
        element: i64,
        (elements, blocks): (u64, usize),
    ) -> Option<(u32, usize)> {
        let a = self.numbered.accesses.get(access as usize).copied()?;
        let buffer = self.kernel.func.buffer(a.buffer);
        let (rank, warp, line) = (number / self.each, number % self.each, self.numbered.statements[a.statement].line);
        let now = self.warps[number].now;
        let bytes = buffer.dtype.bytes_of(elements);
        let from = self.engines[rank].max(now);
        let to = from + u32::try_from(bytes / BYTES_A_STEP).unwrap_or(u32::MAX / 4).max(1);
        let lands = to + LATENCY;
        self.engines[rank] = to;
        let own = self.lane(number);
        let engine = lanes::engine(&self.out.lanes, rank);
        let (name, way) = (buffer.name.as_str(), if a.write { "load" } else { "store" });
        let to_blocks = if blocks > 1 { format!(" to {blocks} blocks") } else { String::new() };
        self.span(
            own,
            (now - 1, now),
            "issue",
            (line, format!("one thread of warp {warp} starts the TMA {way} of {name}{to_blocks}")),
        );
        if let Some(engine) = engine {
            let text = format!("TMA {way} of {name}: {bytes} bytes{to_blocks}");
            self.span(engine, (from, to), if a.write { "load" } else { "store" }, (line, text.clone()));
            self.span(engine, (to, lands), "flight", (line, format!("{text}; in flight until step {lands}")));
            self.out.arrows.push(Arrow { from: (own, now), to: (engine, from) });
        }
        let lane = engine.unwrap_or(own);
        let activity = Activity { time: (from, if a.write { lands } else { to }), write: a.write, line, by: "TMA" };
        let last = element + i64::try_from(elements).unwrap_or(0) - 1;
        if !a.write {
            self.warps[number].stores.add(lands, to);
            self.stages.touch(rank, a.buffer, (element, last), activity);
            return None;
        }
        let ranks = if blocks > 1 { 0..blocks } else { rank..rank + 1 };
        ranks.for_each(|to| self.stages.touch(to, a.buffer, (element, last), activity));
        Some((lands, lane))
    }

    fn sync(&mut self, number: usize, sync: &Sync, (start, line): (u32, usize)) {
        let (lane, warp) = (self.lane(number), number % self.each);
        let word = sync.kind.word();
        let words = |what: &str| (line, format!("warp {warp}: {what}; {}", sync.reason));
        let state = &mut self.warps[number];
        let wait = match &sync.kind {
            SyncKind::Commit => {
                state.copies.commit();
                None
            }
            SyncKind::ProductCommit => {
                state.products.commit();
                None
            }
            SyncKind::BulkCommit => {
                state.stores.commit();
                None
            }
            SyncKind::Wait { groups } => Some(state.copies.passed(*groups, false)),
            SyncKind::ProductWait { groups } => Some(state.products.passed(*groups, false)),
            SyncKind::BulkWait { groups, read } => Some(state.stores.passed(*groups, *read)),
            // They end when all are there, or the phase is over.
            SyncKind::Block | SyncKind::Warpgroup | SyncKind::Cluster | SyncKind::ClusterRelaxed => return,
            SyncKind::Await { .. } => return,
            _ => None,
        };
        match wait {
            Some(end) => {
                let end = end.max(start + 1);
                self.warps[number].now = end;
                self.span(lane, (start, end), "wait", words(&format!("{word} until step {end}")));
            }
            None => {
                let kind = match &sync.kind {
                    SyncKind::ProxyFence | SyncKind::ProductFence => "fence",
                    SyncKind::Arrive { .. } | SyncKind::Expect { .. } => "arrive",
                    _ => "sync",
                };
                let what = match &sync.kind {
                    SyncKind::Arrive { slot, .. } => format!("arrives at {}", self.array(slot.barrier)),
                    SyncKind::Expect { slot, bytes } => {
                        let expects = bytes.as_int().map_or_else(String::new, |bytes| format!(" {bytes}"));
                        format!("arrives at {} and expects{expects} bytes", self.array(slot.barrier))
                    }
                    _ => word.to_string(),
                };
                self.span(lane, (start, start + 1), "sync", words(&what));
                self.mark(lane, start + 1, kind, words(&what));
            }
        }
    }

    fn array(&self, array: u32) -> String {
        self.kernel.func.mbarriers.get(array as usize).map_or_else(String::new, |b| b.name.clone())
    }

    fn name(&self, at: Mbarrier) -> String {
        format!("{}[{}]", self.array(at.array), at.index)
    }

    /// A phase ends with the last arrival or landing.
    fn end_phase(&mut self, (mbarrier, phase): Ending, (at, from): (u32, usize)) {
        let name = self.name(mbarrier);
        let lane = self.stages.lane_of(mbarrier).and_then(|key| lanes::stage(&self.out.lanes, key));
        let cause = match lane {
            Some(lane) => {
                self.mark(lane, at, "phase", (0, format!("phase {phase} of {name} ends")));
                self.out.arrows.push(Arrow { from: (from, at), to: (lane, at) });
                lane
            }
            None => from,
        };
        self.stages.phase(mbarrier, at);
        self.over.insert((mbarrier, phase), (at, cause));
    }

    /// The wait of a warp for a phase is over.
    fn pass(&mut self, number: usize, phase: Phase) {
        let (n, start) = self.warps[number].at;
        let ended = self.over.get(&(phase.at, phase.phase)).copied();
        let end = ended.map_or(0, |e| e.0).max(start + 1);
        self.warps[number].now = end;
        let lane = self.lane(number);
        let statement = &self.numbered.statements[n];
        let reason = if let Stmt::Sync(s) = statement.stmt { s.reason.as_str() } else { "" };
        let (warp, name) = (number % self.each, self.name(phase.at));
        let how = match phase.phase {
            -1 => "which is free from the start".to_string(),
            p => format!("phase {p}, until step {end}"),
        };
        let text = format!("warp {warp} waits for {name}, {how}; {reason}");
        self.span(lane, (start, end), "wait", (statement.line, text));
        if let Some((at, cause)) = ended.filter(|(at, _)| *at > start + 1) {
            self.out.arrows.push(Arrow { from: (cause, at), to: (lane, end) });
        }
    }

    /// Warps wait at a barrier: the last one releases the others.
    fn meet(&mut self, range: std::ops::Range<usize>) {
        let warps = range.len();
        let Some(last) = range.clone().max_by_key(|w| self.warps[*w].now) else { return };
        let end = self.warps[last].now;
        for number in range {
            let (n, start) = self.warps[number].at;
            let statement = &self.numbered.statements[n];
            let (line, lane, warp) = (statement.line, self.lane(number), number % self.each);
            let (word, reason) = match statement.stmt {
                Stmt::Sync(s) => (s.kind.word(), s.reason.as_str()),
                _ => ("barrier", ""),
            };
            let by = last % self.each;
            let text = format!(
                "warp {warp}: {word} of {warps} warps, complete when warp {by} arrives, at step {end}; {reason}"
            );
            self.span(lane, (start, end), "wait", (line, text.clone()));
            self.mark(lane, end, "barrier", (line, text));
            self.warps[number].now = end;
            self.warps[number].run = None;
        }
    }

    /// Sorts by time and cuts what some warps did after the record of others ends.
    fn finish(mut self, is_cut: bool) -> Timeline {
        let spans = self.stages.spans(&self.out.lanes);
        let mut out = self.out;
        for span in &mut out.spans {
            if span.runs > 1 {
                let (blocks, runs) = (&span.text, span.runs);
                span.text = format!("{blocks}: {runs} statements from line {} on", span.line);
            }
        }
        out.spans.extend(spans);
        out.spans.sort_by_key(|s| (s.from, s.lane));
        out.marks.sort_by_key(|m| (m.at, m.lane));
        out.end = out.spans.iter().map(|s| s.to).max().unwrap_or(0);
        out.is_cut = is_cut;
        let mut until = out.end;
        if is_cut {
            until = self.warps.iter().map(|w| w.now).filter(|now| *now > 0).min().unwrap_or(until);
        }
        if out.spans.len() + out.marks.len() > MOST_SHOWN {
            out.is_cut = true;
            let share = MOST_SHOWN * out.spans.len() / (out.spans.len() + out.marks.len());
            until = until.min(out.spans.get(share).map_or(until, |s| s.from));
        }
        lanes::merge_idle(&mut out);
        if out.is_cut {
            out.spans.retain(|s| s.from < until);
            out.spans.iter_mut().for_each(|s| s.to = s.to.min(until));
            out.marks.retain(|m| m.at <= until);
            out.arrows.retain(|a| a.to.1 <= until);
            out.end = until;
        }
        out
    }
}
