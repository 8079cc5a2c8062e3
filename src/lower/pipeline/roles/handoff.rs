//! Rings between a producer role and the consumers of its stages.
//!
//! The buffers that a role fills in one list of statements are one [`Ring`] with two arrays of mbarriers, `full` and `empty`. In
//! iteration `it` of the list, over all enclosing loops:
//!
//! | who | before | after |
//! |---|---|---|
//! | producer | waits until the consumers have released the stage (`empty`): all warps, or the one thread that issues TMA loads | arrives at `full`: all threads, one lane of each warp where wgmma reads the stage, or that one thread with the bytes of the loads |
//! | consumers | wait for `full` | arrive at `empty`: all threads; one lane of each warp where TMA fills the stage, after a proxy fence of the threads that have read it, or where wgmma has read it |
//!
//! Consumers release a stage `in_flight` iterations later where MMA groups are in flight. They do not release a stage that will
//! never be refilled, if the release has a condition anyway and one loop counts the iterations.
//!
//! The producer awaits its cp.async copies N - 2 iterations later, so that as many are in flight, and the last ones after the loop. A
//! list that never runs more often than there are stages needs no `empty`.

use super::Slices;
use crate::error::{Code, Error, Result};
use crate::ir::lowered::threads;
use crate::ir::simplify::{self, Env};
use crate::ir::{
    BufferId, Cond, Elect, For, Func, Held, Index, Mbarrier, Scope, Slot, Stmt, Sync, SyncKind, Way, visit,
};
use crate::lower::data::bulk;
use crate::lower::map::blocks::guarded;
use crate::lower::pipeline;
use crate::lower::pipeline::ring::{self, Ring};
use crate::lower::sync;

/// How a role fills the stages of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fill {
    /// Threads store, or load registers.
    Threads,
    /// Threads start cp.async copies.
    CpAsync,
    /// One thread issues TMA loads.
    Tma,
}

/// A ring in one iteration of its list.
struct Handoff {
    ring: Ring,
    fill: Fill,
    /// The number of the iteration.
    it: Index,
    /// Iterations after which the producer awaits its cp.async copies.
    lag: i64,
    /// MMA groups that the consumers leave running: they release a stage so many iterations later.
    in_flight: i64,
    /// The producer's threads execute a proxy fence: wgmma or TMA reads what they write.
    fence: bool,
    /// The blocks that receive the TMA loads of a stage.
    blocks: Option<u32>,
    /// One lane of each warp arrives for it.
    by_warps: bool,
    /// The consumers' threads execute a proxy fence before they release a stage: they read what TMA refills, and an
    /// arrival does not order generic reads before TMA writes.
    returns: bool,
}

/// Who reads the stages of a ring.
struct Consumer {
    /// 0 for the consumer warps of the kernel, 1 for its first role.
    slice: usize,
    /// The warps that read each stage.
    warps: u32,
    body: Vec<Stmt>,
}

/// A list of statements of several roles.
pub struct Place<'a> {
    /// The loop around the list.
    pub around: Option<&'a For>,
    /// The number of the iteration of the list.
    pub number: &'a Index,
    pub env: &'a Env,
    /// Ping-pong warpgroups: each of them runs every so-many-th iteration of the list.
    pub pingpong: u32,
}

impl Slices<'_> {
    /// Puts a ring between each of `fills`, the statements that fill the stages of a role, and its consumers. Returns for each slice
    /// the statements after the loop around.
    pub fn connect(
        &self,
        fills: Vec<Vec<Stmt>>,
        parts: &mut [Vec<Stmt>],
        at: &Place<'_>,
        func: &mut Func,
    ) -> Result<Vec<Vec<Stmt>>> {
        let mut drains = vec![Vec::new(); parts.len()];
        let mut fills = fills;
        let mut produced = vec![Vec::new(); parts.len()];
        let mut loaded = Vec::new();
        for n in self.filling_order(&fills, func)? {
            for (slice, mut fill) in self.by_reader(n, &mut fills, func) {
                let consumer = match slice {
                    0 => Consumer { slice, warps: self.warps / at.pingpong, body: std::mem::take(&mut parts[0]) },
                    _ => {
                        Consumer { slice, warps: self.warps_of(slice - 1), body: std::mem::take(&mut fills[slice - 1]) }
                    }
                };
                let handoff = self.handoff(n, &mut fill, (&consumer, &loaded), at, func)?;
                loaded.extend(handoff.ring.full);
                let read = handoff.consumed(consumer.body, at);
                match slice {
                    0 => parts[0] = read,
                    _ => fills[slice - 1] = read,
                }
                produced[n + 1].extend(self.produced(&handoff, n, fill, at));
                drains[n + 1].extend(handoff.drained(at));
                if let Some((l, extent)) = counted(at) {
                    let last = (0..handoff.in_flight.min(extent)).rev().map(|back| handoff.last(l, extent, back));
                    let refilled = last.filter(|it| handoff.is_refilled(it, at));
                    drains[slice].extend(refilled.flat_map(|it| handoff.release(&it, at.env)));
                }
            }
        }
        for (part, produced) in parts.iter_mut().zip(produced) {
            part.splice(0..0, produced);
        }
        Ok(drains)
    }

    /// The roles that fill stages in a list, each before the roles that read its stages.
    fn filling_order(&self, fills: &[Vec<Stmt>], func: &Func) -> Result<Vec<usize>> {
        let mut left: Vec<usize> = (0..fills.len()).filter(|n| !fills[*n].is_empty()).collect();
        let mut out = Vec::new();
        let reads = |n: usize, m: usize| n != m && stages_between(&fills[m], &fills[n], func).next().is_some();
        while !left.is_empty() {
            let Some(at) = left.iter().position(|n| !left.iter().any(|m| reads(*n, *m))) else {
                // Roles that only read from the cycle are not part of it.
                while let Some(at) = left.iter().position(|n| !left.iter().any(|m| reads(*m, *n))) {
                    left.remove(at);
                }
                let names: Vec<&str> = left.iter().map(|n| self.name_of(*n, func)).collect();
                let message = format!("roles {} read staged buffers of each other", names.join(" and "));
                let error =
                    Error::input(Code::LowerRole, message).help("specialize one of the buffers to a role of its own");
                return Err(names.into_iter().fold(error, Error::about_role));
            };
            out.push(left.remove(at));
        }
        Ok(out)
    }

    /// The statements of a role by the slice that reads what they fill: 0 for the consumer warps, 1 for the first role. What fills no stage, such as
    /// registers, goes with the stage behind it. A role that reads stages itself keeps the order of its statements: it releases a stage behind the last
    /// statement that reads it.
    fn by_reader(&self, n: usize, fills: &mut [Vec<Stmt>], func: &Func) -> Vec<(usize, Vec<Stmt>)> {
        let fill = std::mem::take(&mut fills[n]);
        let in_order = fill.iter().any(|s| matches!(s, Stmt::Sync(_)));
        let reader = |s: &Stmt| {
            let one = std::slice::from_ref(s);
            let fills_stage = visit::writes(one).into_iter().any(|b| func.buffer(b).scope == Scope::Shared);
            let role = fills.iter().position(|other| stages_between(one, other, func).next().is_some());
            fills_stage.then(|| role.map_or(0, |m| m + 1))
        };
        let (mut out, mut waiting): (Vec<(usize, Vec<Stmt>)>, Vec<Stmt>) = (Vec::new(), Vec::new());
        for stmt in fill.into_iter().flat_map(apart) {
            let slice = reader(&stmt);
            waiting.push(stmt);
            let Some(slice) = slice else { continue };
            let last = out.len().saturating_sub(1);
            let own = out.iter_mut().enumerate().find(|(at, (own, _))| *own == slice && (!in_order || *at == last));
            match own {
                Some((_, (_, all))) => all.append(&mut waiting),
                None => out.push((slice, std::mem::take(&mut waiting))),
            }
        }
        match out.last_mut() {
            Some((_, all)) => all.append(&mut waiting),
            None => out.push((0, waiting)),
        }
        out
    }

    fn name_of<'a>(&self, n: usize, func: &'a Func) -> &'a str {
        func.roles.get(self.roles[n].role.0 as usize).map_or("", |r| &r.name)
    }

    /// The ring of the buffers that a role fills in a list; `loaded` are the mbarriers of the rings before.
    fn handoff(
        &self,
        n: usize,
        fill: &mut [Stmt],
        (consumer, loaded): (&Consumer, &[u32]),
        at: &Place<'_>,
        func: &mut Func,
    ) -> Result<Handoff> {
        let readers = &consumer.body;
        let role = self.roles[n].role;
        let (name, warps) = func.roles.get(role.0 as usize).map_or(("", 1), |r| (r.name.as_str(), r.warps));
        let mut ids = visit::writes(fill);
        ids.retain(|b| func.buffer(*b).scope == Scope::Shared);
        let how = self.fill_of(fill, consumer, (name, &ids), at, func)?;
        let pipelined = at.around.and_then(|l| Some((l, l.pipeline?)));
        let stages = pipelined.map_or(1, |(_, p)| i64::from(p.stages).max(1));
        // A stage that threads read themselves they have read when they release it.
        let behind_descriptors = ids.iter().any(|b| readers.iter().any(|s| is_described(s, *b)));
        let in_flight = match pipelined.filter(|_| consumer.slice == 0) {
            Some((l, p)) => ring::in_flight(p, stages, func.var_name(l.var), readers)?,
            None => 0,
        };
        let refills = simplify::bounds(at.number, at.env).is_none_or(|(_, last)| last >= stages);
        let buffers = sized(&ids, func)?;
        let names: Vec<&str> = ids.iter().map(|b| func.buffer(*b).name.as_str()).collect();
        let (first, names) = (names.first().map_or("", |n| *n).to_string(), names.join(", "));
        let blocks = received(fill);
        // Threads that fill for threads arrive each for itself, and so do their consumers: tools that watch each access follow no arrival on behalf
        // of other threads. Where TMA fills or wgmma reads, one lane arrives for its warp: each arrival is an access to shared memory.
        let by_warps = how == Fill::Tma || behind_descriptors;
        let lanes = if by_warps { 1 } else { threads::LANES as u32 };
        let mut array = |name: String, arrivals: u32| {
            func.mbarriers.push(Mbarrier { name, slots: stages as u32, arrivals, offset: None });
            func.mbarriers.len() as u32 - 1
        };
        // Loads that were issued together may have one mbarrier; each ring has its own.
        let own = loaded_by(fill).filter(|full| !loaded.contains(full));
        let filling = if how == Fill::Tma { 1 } else { warps * lanes };
        let full = own.unwrap_or_else(|| array(format!("{first}_full"), filling));
        let consumers = consumer.warps * lanes * blocks.unwrap_or(1);
        let empty = refills.then(|| array(format!("{first}_empty"), consumers));
        let ring = Ring { stages, buffers, names, full: Some(full), empty };
        ring.allot(func);
        ring.signal(fill);
        ids.iter().for_each(|id| func.buffer_mut(*id).role = Some(role));
        let by_threads = |s: &Stmt| ids.iter().any(|b| uses(std::slice::from_ref(s), *b) > 0 && !is_described(s, *b));
        Ok(Handoff {
            fill: how,
            it: at.number.clone(),
            lag: if how == Fill::CpAsync && at.around.is_some() { (stages - 2).max(0) } else { 0 },
            in_flight: if behind_descriptors { in_flight } else { 0 },
            fence: how != Fill::Tma && behind_descriptors,
            blocks,
            by_warps,
            returns: how == Fill::Tma && readers.iter().any(by_threads),
            ring,
        })
    }

    /// How the statements of a role fill its buffers.
    ///
    /// # Errors
    /// Why no ring can connect the role with the consumers.
    fn fill_of(
        &self,
        fill: &[Stmt],
        consumer: &Consumer,
        (role, ids): (&str, &[BufferId]),
        at: &Place<'_>,
        func: &Func,
    ) -> Result<Fill> {
        let readers = &consumer.body;
        let name = |id: BufferId| func.buffer(id).name.as_str();
        let refused = |why: String, help: String, about: &[BufferId]| {
            let error = Error::input(Code::LowerRole, format!("role {role}: {why}")).about_role(role).help(help);
            Err(about.iter().fold(error, |error, b| error.about_buffer(name(*b))))
        };
        let loads = fill.iter().filter(|s| bulk::is_load(s)).count();
        if loads > 0 && loads < fill.len() {
            let why = "some of its staged buffers are copied by tma and some by threads";
            return refused(why.into(), "give all of them one kind of copy, or separate roles".into(), &[]);
        }
        let pipelined = at.around.is_some_and(|l| l.pipeline.is_some());
        let written = visit::writes(&self.whole);
        // Registers that the consumers fill from a stage have no ring: each iteration loads them after its wait.
        let staged =
            |s: &Stmt| pipeline::stage_of(s, func, &written).filter(|b| func.buffer(*b).scope == Scope::Shared);
        let other = readers.iter().find_map(staged).filter(|_| pipelined && consumer.slice == 0);
        if let (Some(other), Some(first)) = (other, ids.first()) {
            let why =
                format!("{} is filled by its warps, but {} of the same pipeline is not", name(*first), name(other));
            return refused(why, format!("specialize {} too", name(other)), &[*first, other]);
        }
        for id in ids {
            if func.buffer(*id).role.is_some() || uses(&self.whole, *id) != uses(readers, *id) + uses(fill, *id) {
                let why = format!("{} is used outside of the loop in which the role fills it", name(*id));
                return refused(why, format!("compute_at {} further out", name(*id)), &[*id]);
            }
        }
        if let Some(id) = stored_from(readers, ids) {
            let buffer = name(id);
            let why = format!(
                "a bulk store reads {buffer}, and the role does not wait for the store before it fills {buffer} again"
            );
            return refused(why, format!("remove {buffer} from the role, or store its elements by threads"), &[id]);
        }
        Ok(match loads {
            0 if sync::copies(fill) => Fill::CpAsync,
            0 => Fill::Threads,
            _ => Fill::Tma,
        })
    }

    /// The statements of the producer in an iteration of the list.
    fn produced(&self, handoff: &Handoff, n: usize, fill: Vec<Stmt>, at: &Place<'_>) -> Vec<Stmt> {
        let (mut out, ring) = (Vec::new(), &handoff.ring);
        if let Some(empty) = ring.empty {
            let phase = simplify::simplify(&(ring.phase(&handoff.it) - 1), at.env);
            let kind = SyncKind::Await { slot: ring.mbarrier(empty, &handoff.it, at.env), phase };
            out.push(Stmt::Sync(kind.because(format!("WAR {}: all consumers have released the stage", ring.names))));
        }
        let moved = fill.into_iter().map(|s| ring.moved(s, &handoff.it, at.env));
        if handoff.fill == Fill::Tma {
            // Only the thread that issues the loads waits: a warp on which no thread waits could fall two phases behind.
            for stmt in moved {
                if let Stmt::Elect(e) = stmt {
                    out.extend(e.body);
                }
            }
            return vec![Stmt::Elect(Elect { warps: self.warps_of(n), body: out })];
        }
        out.extend(moved);
        if handoff.fill == Fill::CpAsync {
            out.push(Stmt::Sync(SyncKind::Commit.because(ring.names.clone())));
        }
        match at.around.filter(|_| handoff.lag > 0) {
            Some(l) => {
                let late = Cond::ge(l.var, handoff.lag);
                let arrive = handoff.arrive(handoff.lag as u32, &(handoff.it.clone() - handoff.lag), at.env);
                out.extend(guarded(late, arrive));
            }
            None => out.extend(handoff.arrive(0, &handoff.it, at.env)),
        }
        out
    }

    fn warps_of(&self, n: usize) -> u32 {
        let threads: u32 = self.roles[n].axes.iter().map(|l| l.extent).product();
        threads / threads::LANES as u32
    }
}

impl Handoff {
    /// The number of an iteration, counted back from the last one of the loop.
    fn last(&self, l: &For, extent: i64, back: i64) -> Index {
        visit::subst_index(&self.it, &[(l.var, Index::Int(extent - 1 - back))].into())
    }

    /// The producer's statements after the loop: it awaits the last cp.async copies.
    fn drained(&self, at: &Place<'_>) -> Vec<Stmt> {
        let Some((l, extent)) = counted(at) else { return Vec::new() };
        let last = (0..self.lag.min(extent)).rev();
        last.flat_map(|back| self.arrive(back as u32, &self.last(l, extent, back), at.env)).collect()
    }

    /// The producer's threads arrive for iteration `it` when its stores and copies are complete: `groups` later groups of copies may
    /// be in flight.
    fn arrive(&self, groups: u32, it: &Index, env: &Env) -> Vec<Stmt> {
        let (mut out, names) = (Vec::new(), &self.ring.names);
        let mut put = |kind: SyncKind, reason: String| out.push(Stmt::Sync(kind.because(reason)));
        if self.fill == Fill::CpAsync {
            put(SyncKind::Wait { groups }, format!("RAW {names}: the copies of the stage are complete"));
        }
        if self.fence {
            put(SyncKind::ProxyFence, format!("RAW {names}: the async proxy reads the stage"));
        }
        if let Some(full) = self.ring.full {
            let kind = SyncKind::Arrive { slot: self.ring.mbarrier(full, it, env), blocks: None };
            let arrive = kind.because(format!("RAW {names}: the stage is full"));
            out.extend(self.arrivals(arrive, format!("RAW {names}: all lanes have filled the stage")));
        }
        out
    }

    /// The consumers' statements: they wait before the first use of the stage, and release it after the last.
    fn consumed(&self, list: Vec<Stmt>, at: &Place<'_>) -> Vec<Stmt> {
        let last = list.iter().rposition(|s| self.touches(s));
        let mut wait = self.ring.await_full(&self.it, at.env, "the stage is full");
        let mut out = Vec::new();
        for (n, stmt) in list.into_iter().enumerate() {
            if self.touches(&stmt) {
                out.extend(wait.take());
            }
            let stmt = self.ring.moved(stmt, &self.it, at.env);
            if Some(n) == last { out.extend(self.released_by(stmt, at)) } else { out.push(stmt) }
        }
        if last.is_none() {
            out.extend(wait);
            out.extend(self.release_due(at));
        }
        out
    }

    /// The last statement that reads the stage, and the release. Where MMAs read it in a loop that has more to do, the loop releases it in its last
    /// iteration, behind the MMAs.
    fn released_by(&self, mut stmt: Stmt, at: &Place<'_>) -> Vec<Stmt> {
        let release = self.release_due(at);
        let described = |s: &Stmt| self.ring.buffers.iter().any(|(b, _)| is_described(s, *b));
        if let Stmt::For(l) = &mut stmt
            && self.in_flight == 0
            && !release.is_empty()
            && let Some(extent) = l.extent.as_int()
            && let Some(read) = l.body.iter().rposition(|s| self.touches(s))
            && read + 1 < l.body.len()
            && described(&l.body[read])
        {
            let last = Cond::ge(l.var, extent - 1);
            l.body.splice(read + 1..read + 1, guarded(last, release));
            return vec![stmt];
        }
        [vec![stmt], release].concat()
    }

    fn touches(&self, stmt: &Stmt) -> bool {
        self.ring.buffers.iter().any(|(b, _)| uses(std::slice::from_ref(stmt), *b) > 0)
    }

    /// The consumers release the stage of this iteration, or the one whose MMA groups are complete.
    fn release_due(&self, at: &Place<'_>) -> Vec<Stmt> {
        match at.around.filter(|_| self.in_flight > 0) {
            Some(l) => {
                let late = Cond::ge(l.var, self.in_flight);
                let iterations = self.iterations(at);
                let refilled =
                    iterations.map_or(Cond::TRUE, |n| Cond::lt(l.var, n - self.ring.stages + self.in_flight));
                let body = self.release(&(self.it.clone() - self.in_flight), at.env);
                if body.is_empty() { body } else { guarded(late.and(refilled), body) }
            }
            None => self.release(&self.it, at.env),
        }
    }

    /// The number of iterations, where the loop around alone counts them.
    fn iterations(&self, at: &Place<'_>) -> Option<i64> {
        let (l, extent) = counted(at).filter(|_| at.pingpong == 1)?;
        let last = simplify::simplify(&self.last(l, extent, 0), at.env).as_int()?;
        (last == extent - 1).then_some(extent)
    }

    /// Whether the stage of iteration `it` may be refilled, so that the producer waits for its release.
    fn is_refilled(&self, it: &Index, at: &Place<'_>) -> bool {
        let it = simplify::simplify(it, at.env).as_int();
        self.iterations(at).zip(it).is_none_or(|(iterations, it)| it + self.ring.stages < iterations)
    }

    /// The consumers release the stage of iteration `it`.
    fn release(&self, it: &Index, env: &Env) -> Vec<Stmt> {
        let Some(empty) = self.ring.empty else { return Vec::new() };
        let names = &self.ring.names;
        let arrive = SyncKind::Arrive { slot: self.ring.mbarrier(empty, it, env), blocks: self.blocks };
        let arrive = arrive.because(format!("WAR {names}: a consumer releases the stage"));
        let fence =
            SyncKind::ProxyFence.because(format!("WAR {names}: generic reads are complete before the TMA refill"));
        let mut out: Vec<Stmt> = self.returns.then_some(Stmt::Sync(fence)).into_iter().collect();
        out.extend(self.arrivals(arrive, format!("WAR {names}: all lanes have read the stage")));
        out
    }

    /// An arrival of each thread, or of one lane of each warp when all of its lanes have come.
    fn arrivals(&self, arrive: Sync, meets: String) -> Vec<Stmt> {
        if !self.by_warps {
            return vec![Stmt::Sync(arrive)];
        }
        let elect = Elect { warps: 1, body: vec![Stmt::Sync(arrive)] };
        vec![Stmt::Sync(SyncKind::Warp.because(meets)), Stmt::Elect(elect)]
    }
}

/// Buffers with the elements of a stage.
fn sized(ids: &[BufferId], func: &Func) -> Result<Vec<(BufferId, i64)>> {
    ids.iter().map(|b| Ok((*b, ring::elements_of_stage(func, *b, Code::LowerRoles)?))).collect()
}

/// The loop around with its extent.
fn counted<'a>(at: &Place<'a>) -> Option<(&'a For, i64)> {
    at.around.and_then(|l| Some((l, l.extent.as_int()?)))
}

/// The statements that one thread executes, each elected by itself.
fn apart(stmt: Stmt) -> Vec<Stmt> {
    match stmt {
        Stmt::Elect(Elect { warps, body }) => {
            body.into_iter().map(|s| Stmt::Elect(Elect { warps, body: vec![s] })).collect()
        }
        other => vec![other],
    }
}

/// The staged buffers that some statements fill and others read.
fn stages_between<'a>(fill: &[Stmt], readers: &'a [Stmt], func: &'a Func) -> impl Iterator<Item = BufferId> + 'a {
    let filled = visit::writes(fill).into_iter().filter(|b| func.buffer(*b).scope == Scope::Shared);
    let read = visit::reads(readers);
    filled.filter(move |b| read.contains(b))
}

/// How many statements use a buffer.
fn uses(body: &[Stmt], buffer: BufferId) -> usize {
    let mut count = 0;
    visit::walk(body, &mut |s| {
        let one = std::slice::from_ref(s);
        let leaf = matches!(s, Stmt::Store(_) | Stmt::Call(_) | Stmt::Bulk(_));
        count += usize::from(leaf && (visit::reads(one).contains(&buffer) || visit::writes(one).contains(&buffer)));
    });
    count
}

/// Whether an instruction reads a stage behind a descriptor, or the copy engine stores it.
fn is_described(stmt: &Stmt, stage: BufferId) -> bool {
    let mut found = false;
    visit::walk(std::slice::from_ref(stmt), &mut |s| match s {
        Stmt::Call(c) => {
            found |= c.operands.iter().any(|o| o.buffer == stage && matches!(o.held, Held::Descriptor(_)));
        }
        Stmt::Bulk(c) => found |= c.shared == stage,
        _ => {}
    });
    found
}

fn each_load(body: &[Stmt], f: &mut dyn FnMut(&Slot, Option<u32>)) {
    visit::walk(body, &mut |s| {
        if let Stmt::Bulk(copy) = s
            && let Way::Load { full, multicast } = &copy.way
        {
            f(full, *multicast);
        }
    });
}

/// The mbarriers of bulk loads.
fn loaded_by(fill: &[Stmt]) -> Option<u32> {
    let mut found = None;
    each_load(fill, &mut |full, _| {
        found.get_or_insert(full.barrier);
    });
    found
}

/// The blocks of the cluster that bulk loads go to.
fn received(fill: &[Stmt]) -> Option<u32> {
    let mut found: Option<u32> = None;
    each_load(fill, &mut |_, multicast| found = found.max(multicast));
    found
}

/// The first of the stages that a bulk store reads.
fn stored_from(readers: &[Stmt], stages: &[BufferId]) -> Option<BufferId> {
    let mut found = None;
    visit::walk(readers, &mut |s| {
        if let Stmt::Bulk(copy) = s
            && matches!(copy.way, Way::Store)
            && stages.contains(&copy.shared)
        {
            found = found.or(Some(copy.shared));
        }
    });
    found
}
