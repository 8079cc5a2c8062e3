//! Rings of slots between a role that fills stages and what reads them.
//!
//! The stages that a role fills in one list of statements share two arrays of mbarriers, an mbarrier for each slot. The run
//! of the list with the number `it`, over all loops around, uses slot `it % N` in its phase `it / N`:
//!
//! | who | in front | behind |
//! |---|---|---|
//! | the role | waits until the readers have left the slot, `empty`, in the phase before: every warp, or the one thread that starts bulk copies | arrives at `full`: every thread, or the one that starts bulk copies |
//! | the readers | wait for `full` | every thread arrives at `empty`; one of each warp, where bulk copies fill the slot, behind a fence of the threads that have read it by themselves |
//!
//! Where groups of products are in flight, which a condition has to hold apart anyway, and the runs are counted by one loop, slots
//! that are not filled again are not left: nobody would wait for that.
//!
//! Copies by cp.async are waited for N - 2 runs later, so that so many are under way; behind the loop for the last ones. A
//! list that never runs more often than there are slots needs no `empty`.

use super::Slices;
use crate::error::{Error, Result};
use crate::ir::lowered::threads;
use crate::ir::simplify::{self, Env};
use crate::ir::{
    BufferId, Cond, Elect, Expr, For, Func, Held, Index, Mbarrier, Scope, Slot, Stmt, Sync, SyncKind, Way, visit,
};
use crate::lower::data::bulk;
use crate::lower::map::blocks::guarded;
use crate::lower::pipeline;
use crate::lower::sync;

/// A ring where it is used: in the run `it` of its list.
struct Ring {
    slots: i64,
    it: Index,
    /// The stages with the elements of a slot.
    stages: Vec<(BufferId, i64)>,
    names: String,
    full: u32,
    /// If slots are used again.
    empty: Option<u32>,
    /// Runs after which copies are waited for.
    lag: i64,
    /// Groups of products that the readers leave running: a slot is left so many runs later.
    behind: i64,
    copies: bool,
    /// wgmma or the copy engine reads what threads write.
    fence: bool,
    /// The blocks that receive a slot's copies.
    blocks: Option<u32>,
    /// Every thread arrives for itself: threads fill the slots, and tools that watch each access follow no arrival on behalf of
    /// others. Of what the copy engine fills one thread of a warp says that all have read it.
    each: bool,
    /// Threads read by themselves what the copy engine fills again, and nothing says that what they have read is there but a
    /// fence: an arrival does not wait for it, and the engine stands in no line with reads.
    returns: bool,
}

/// A list of statements that is taken apart.
pub struct Place<'a> {
    pub around: Option<&'a For>,
    /// Which run of the list this is.
    pub number: &'a Index,
    pub env: &'a Env,
    /// Warpgroups that take turns there: each run of the list is one's.
    pub turns: u32,
}

impl Slices<'_> {
    /// Puts rings between the parts of a list, of which `fills` are those that fill stages; says what stands behind the loop
    /// around for each part.
    pub fn connect(
        &self,
        fills: Vec<Vec<Stmt>>,
        parts: &mut [Vec<Stmt>],
        at: &Place<'_>,
        func: &mut Func,
    ) -> Result<Vec<Vec<Stmt>>> {
        let mut drains = vec![Vec::new(); parts.len()];
        for (n, fill) in fills.into_iter().enumerate().filter(|(_, fill)| !fill.is_empty()) {
            let ring = self.ring(n, &fill, &parts[0], at, func)?;
            parts[0] = ring.read(std::mem::take(&mut parts[0]), at);
            let filled = self.filled(&ring, n, fill, at);
            parts[n + 1].splice(0..0, filled);
            drains[n + 1] = self.drained(&ring, at);
            if let Some((l, extent)) = counted(at) {
                let runs = (0..ring.behind.min(extent)).rev().map(|back| ring.last(l, extent, back));
                let left = runs.filter(|it| ring.is_filled_again(it, at));
                drains[0].extend(left.flat_map(|it| ring.left(&it, at.env)));
            }
        }
        Ok(drains)
    }

    /// The ring of the stages that a role fills in a list.
    fn ring(&self, n: usize, fill: &[Stmt], readers: &[Stmt], at: &Place<'_>, func: &mut Func) -> Result<Ring> {
        let role = &self.roles[n];
        let name = func.roles.get(role.role.0 as usize).map_or("", |r| r.name.as_str()).to_string();
        let refuse = |why: String| Error::input("lower.role", format!("role {name}: {why}"));
        let mut ids = visit::writes(fill);
        ids.retain(|b| func.buffer(*b).scope == Scope::Shared);
        let (fill, loads) = (fill.to_vec(), fill.iter().filter(|s| bulk::is_load(s)).count());
        if loads > 0 && loads < fill.len() {
            return Err(refuse("some of its staged buffers are copied by tma and some by threads".to_string())
                .help("give all of them one kind of copy, or separate roles"));
        }
        let pipelined = at.around.and_then(|l| l.pipeline);
        let written = visit::writes(&self.whole);
        if let Some(other) =
            readers.iter().find_map(|s| pipeline::stage_of(s, func, &written)).filter(|_| pipelined.is_some())
        {
            let (other, stage) = (func.buffer(other).name.clone(), &func.buffer(ids[0]).name);
            return Err(refuse(format!("{stage} is filled by its warps, but {other} of the same pipeline is not"))
                .help(format!("specialize {other} too")));
        }
        for id in &ids {
            let stage = &func.buffer(*id).name;
            if func.buffer(*id).role.is_some() || uses(&self.whole, *id) != uses(readers, *id) + uses(&fill, *id) {
                return Err(refuse(format!("{stage} is used outside of the loop in which the role fills it"))
                    .help(format!("compute_at {stage} further out")));
            }
        }
        if let Some(id) = stored_from(readers, &ids) {
            let stage = &func.buffer(id).name;
            let why = format!(
                "a bulk store reads {stage}, and the role does not wait for the store before it fills {stage} again"
            );
            return Err(refuse(why).help(format!("remove {stage} from the role, or store its elements by threads")));
        }
        let slots = pipelined.map_or(1, |p| i64::from(p.stages).max(1));
        let behind = pipelined.map_or(0, |p| i64::from(p.in_flight));
        if behind > 0 && !sync::products::any(readers) {
            let why = "in_flight counts groups of asynchronous MMAs, and its readers have none";
            return Err(refuse(why.to_string()).help("remove in_flight="));
        }
        if behind > 0 && behind + 1 >= slots {
            let around = at.around.map_or("", |l| func.var_name(l.var));
            let why = format!(
                "with {slots} stages of pipeline {around} and {behind} groups in flight no stage is free to load ahead"
            );
            return Err(refuse(why).help(format!("stages={}, or fewer groups in flight", behind + 2)));
        }
        let again = simplify::bounds(at.number, at.env).is_none_or(|(_, last)| last >= slots);
        let mut stages = Vec::new();
        for id in &ids {
            let size = pipeline::bulk::slot_of(func, *id);
            let whole = func.buffer_mut(*id);
            whole.role = Some(role.role);
            if slots > 1 {
                whole.shape = vec![Index::Int(size * slots)];
            }
            stages.push((*id, size));
        }
        let names: Vec<&str> = ids.iter().map(|b| func.buffer(*b).name.as_str()).collect();
        let (first, names) = (names.first().map_or("", |n| *n).to_string(), names.join(", "));
        let blocks = received(&fill);
        let warps = func.roles.get(role.role.0 as usize).map_or(1, |r| r.warps);
        let each = loads == 0;
        let lanes = if each { threads::LANES as u32 } else { 1 };
        let mut array = |name: String, arrivals: u32| {
            func.mbarriers.push(Mbarrier { name, slots: slots as u32, arrivals, offset: None });
            func.mbarriers.len() as u32 - 1
        };
        let full = match loaded_by(&fill) {
            Some(full) => full,
            None => array(format!("{first}_full"), warps * lanes),
        };
        let readers_of = self.warps / at.turns * lanes * blocks.unwrap_or(1);
        let empty = again.then(|| array(format!("{first}_empty"), readers_of));
        if let Some(array) = func.mbarriers.get_mut(full as usize) {
            array.slots = slots as u32;
        }
        let copies = sync::copies(&fill);
        let fence = loads == 0 && ids.iter().any(|b| readers.iter().any(|s| is_described(s, *b)));
        let by_threads = |s: &Stmt| ids.iter().any(|b| uses(std::slice::from_ref(s), *b) > 0 && !is_described(s, *b));
        let returns = loads > 0 && readers.iter().any(by_threads);
        let lag = if copies && at.around.is_some() { (slots - 2).max(0) } else { 0 };
        let it = at.number.clone();
        Ok(Ring { slots, it, stages, names, full, empty, lag, behind, copies, fence, blocks, each, returns })
    }

    /// What the role runs in a run of the list.
    fn filled(&self, ring: &Ring, n: usize, fill: Vec<Stmt>, at: &Place<'_>) -> Vec<Stmt> {
        let mut out = Vec::new();
        if let Some(empty) = ring.empty {
            let phase = ring.phase() - 1;
            let kind =
                SyncKind::Await { slot: ring.slot(empty, &ring.it, at.env), phase: simplify::simplify(&phase, at.env) };
            out.push(Stmt::Sync(kind.because(format!("WAR {}: all consumers have released the stage", ring.names))));
        }
        let warps = self.warps_of(n);
        let moved = fill.into_iter().map(|s| ring.moved(s, at.env));
        if ring.is_loaded(&self.whole) {
            // The thread that starts the copies waits alone: a warp that nobody waits for could fall two phases behind.
            for stmt in moved {
                if let Stmt::Elect(e) = stmt {
                    out.extend(e.body);
                }
            }
            return vec![Stmt::Elect(Elect { warps, body: out })];
        }
        out.extend(moved);
        if ring.copies {
            out.push(Stmt::Sync(SyncKind::Commit.because(ring.names.clone())));
        }
        match at.around.filter(|_| ring.lag > 0) {
            Some(l) => {
                let late = Cond::ge(l.var, ring.lag);
                out.extend(guarded(late, ring.arrived(ring.lag as u32, &(ring.it.clone() - ring.lag), at.env)));
            }
            None => out.extend(ring.arrived(0, &ring.it, at.env)),
        }
        out
    }

    /// What the role runs behind the loop.
    fn drained(&self, ring: &Ring, at: &Place<'_>) -> Vec<Stmt> {
        let Some((l, extent)) = counted(at) else { return Vec::new() };
        let left = (0..ring.lag.min(extent)).rev();
        left.flat_map(|back| ring.arrived(back as u32, &ring.last(l, extent, back), at.env)).collect()
    }

    fn warps_of(&self, n: usize) -> u32 {
        let threads: u32 = self.roles[n].axes.iter().map(|l| l.extent).product();
        threads / threads::LANES as u32
    }
}

impl Ring {
    /// The number of a run of the loop, counted back from its last one.
    fn last(&self, l: &For, extent: i64, back: i64) -> Index {
        visit::subst_index(&self.it, &[(l.var, Index::Int(extent - 1 - back))].into())
    }

    fn phase(&self) -> Index {
        self.it.clone().floordiv(self.slots)
    }

    fn slot(&self, barrier: u32, it: &Index, env: &Env) -> Slot {
        Slot { barrier, index: simplify::simplify(&it.clone().floormod(self.slots), env) }
    }

    /// Whether bulk copies fill it.
    fn is_loaded(&self, whole: &[Stmt]) -> bool {
        let mut found = false;
        visit::walk(whole, &mut |s| {
            found |=
                matches!(s, Stmt::Bulk(c) if self.stages.iter().any(|(b, _)| *b == c.shared) && c.way != Way::Store);
        });
        found
    }

    /// The role's warps arrive for the run `it`, when what they have written or copied is there: of their groups of copies
    /// so many may still be under way.
    fn arrived(&self, groups: u32, it: &Index, env: &Env) -> Vec<Stmt> {
        let mut out = Vec::new();
        let mut put = |kind: SyncKind, reason: String| out.push(Stmt::Sync(kind.because(reason)));
        if self.copies {
            put(SyncKind::Wait { groups }, format!("RAW {}: the copies of the stage are complete", self.names));
        }
        if self.fence {
            put(SyncKind::ProxyFence, format!("RAW {}: the async proxy reads the stage", self.names));
        }
        put(
            SyncKind::Arrive { slot: self.slot(self.full, it, env), blocks: None },
            format!("RAW {}: the stage is full", self.names),
        );
        out
    }

    /// A list that reads the stages.
    fn read(&self, list: Vec<Stmt>, at: &Place<'_>) -> Vec<Stmt> {
        let env = at.env;
        let touches = |s: &Stmt| self.stages.iter().any(|(b, _)| uses(std::slice::from_ref(s), *b) > 0);
        let last = list.iter().rposition(touches);
        let phase = simplify::simplify(&self.phase(), env);
        let wait = SyncKind::Await { slot: self.slot(self.full, &self.it, env), phase };
        let mut wait = Some(Stmt::Sync(wait.because(format!("RAW {}: the stage is full", self.names))));
        let mut out = Vec::new();
        for (n, stmt) in list.into_iter().enumerate() {
            if touches(&stmt) {
                out.extend(wait.take());
            }
            out.push(self.moved(stmt, env));
            if Some(n) == last {
                out.extend(self.leave(at));
            }
        }
        if last.is_none() {
            out.extend(wait);
            out.extend(self.leave(at));
        }
        out
    }

    /// The readers leave the slot of this run, or of the one whose products are done.
    fn leave(&self, at: &Place<'_>) -> Vec<Stmt> {
        match at.around.filter(|_| self.behind > 0) {
            Some(l) => {
                let late = Cond::ge(l.var, self.behind);
                let again = self.ends(at).map_or(Cond::TRUE, |runs| Cond::lt(l.var, runs - self.slots + self.behind));
                let body = self.left(&(self.it.clone() - self.behind), at.env);
                if body.is_empty() { body } else { guarded(late.and(again), body) }
            }
            None => self.left(&self.it, at.env),
        }
    }

    /// How many runs there are, where the loop around alone counts them.
    fn ends(&self, at: &Place<'_>) -> Option<i64> {
        let (l, extent) = counted(at).filter(|_| at.turns == 1)?;
        let last = simplify::simplify(&self.last(l, extent, 0), at.env).as_int()?;
        (last == extent - 1).then_some(extent)
    }

    /// Whether the slot of the run `it` may be filled once more, so that somebody waits until it is left.
    fn is_filled_again(&self, it: &Index, at: &Place<'_>) -> bool {
        let it = simplify::simplify(it, at.env).as_int();
        self.ends(at).zip(it).is_none_or(|(runs, it)| it + self.slots < runs)
    }

    /// The readers leave the slot of the run `it`.
    fn left(&self, it: &Index, env: &Env) -> Vec<Stmt> {
        let Some(empty) = self.empty else { return Vec::new() };
        let arrive = SyncKind::Arrive { slot: self.slot(empty, it, env), blocks: self.blocks };
        let reason = format!("WAR {}: a consumer releases the stage", self.names);
        if self.each {
            return vec![Stmt::Sync(arrive.because(reason))];
        }
        let fence = SyncKind::ProxyFence
            .because(format!("WAR {}: generic reads are complete before the TMA refill", self.names));
        let meet = SyncKind::Warp.because(format!("WAR {}: all lanes have read the stage", self.names));
        let first = self.returns.then_some(fence);
        let mut out: Vec<Stmt> = first.into_iter().chain([meet]).map(Stmt::Sync).collect();
        out.push(elected(arrive, reason));
        out
    }

    /// A statement with its stages in their slot.
    fn moved(&self, stmt: Stmt, env: &Env) -> Stmt {
        let slot = simplify::simplify(&self.it.clone().floormod(self.slots), env);
        let offset = |b: BufferId| self.stages.iter().find(|(s, _)| *s == b).map(|(_, size)| slot.clone() * *size);
        let put = |indices: &mut Vec<Index>, buffer: BufferId| {
            if let (Some(o), Some(index)) = (offset(buffer), indices.first_mut()) {
                *index = simplify::simplify(&(index.clone() + o), env);
            }
        };
        let mut stmt = visit::map_stmt(stmt, &mut Index::clone, &mut |mut e| {
            if let Expr::Load { buffer, indices, .. } = &mut e {
                put(indices, *buffer);
            }
            e
        });
        visit::each_store(std::slice::from_mut(&mut stmt), &mut |s| put(&mut s.indices, s.buffer));
        visit::each_operand(&mut stmt, &mut |o| put(&mut o.indices, o.buffer));
        bulk::each_copy(&mut stmt, &mut |copy| {
            put(&mut copy.indices, copy.shared);
            if let (Way::Load { full, .. }, Some(_)) = (&mut copy.way, offset(copy.shared)) {
                *full = Slot { barrier: self.full, index: slot.clone() };
            }
        });
        stmt
    }
}

/// The loop around with its extent.
fn counted<'a>(at: &Place<'a>) -> Option<(&'a For, i64)> {
    at.around.and_then(|l| Some((l, l.extent.as_int()?)))
}

fn elected(kind: SyncKind, reason: String) -> Stmt {
    Stmt::Elect(Elect { warps: 1, body: vec![Stmt::Sync(Sync { kind, reason })] })
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
