//! The synchronisation of TMA copies besides barriers: expected bytes of mbarriers, waits for their phases, groups of TMA stores.
//!
//! | first access | second access | ordered by |
//! |---|---|---|
//! | TMA load | any access of the same bytes | a wait of every thread for the phase of the load's mbarrier |
//! | generic read | TMA load of the same bytes | a proxy fence of the readers, after which their reads are complete, and a barrier |
//! | generic write | TMA load or store of the same bytes | a proxy fence of the writers, then a barrier |
//! | TMA store | TMA load of the same bytes by its thread | a wait of the thread until the store has read |
//! | TMA store | write of the same bytes by another thread | that wait, then a barrier |
//!
//! The thread that issues loads first arrives at the mbarrier with the bytes of all of them. The phase follows from the number of the
//! iteration over all loops around. `pipeline` has inserted the waits of its rings; here are the waits for loads outside of rings,
//! before the first statement that touches the buffer.
//!
//! One thread initialises the mbarriers before anything else. A kernel with programmatic dependent launch then waits for the previous
//! kernel before it accesses global memory. At the end the threads that have issued TMA stores wait until these have read shared
//! memory. Where other blocks of the cluster may still access it ([`exit`]), the kernel ends with a cluster barrier.

use crate::error::{Code, Error, Result, Subject};
use crate::ir::cross_thread;
use crate::ir::lowered::TensorMap;
use crate::ir::lowered::exit;
use crate::ir::lowered::threads;
use crate::ir::lowered::{GridDependency, LoweredKernel};
use crate::ir::simplify::{self, Env};
use crate::ir::{
    Axis, Buffer, BufferId, CmpOp, Cond, Elect, For, Func, Index, LoopKind, Scope, Slot, Stmt, Sync, SyncKind, Way,
    visit,
};
use crate::lower::data::bulk;
use crate::lower::elements;
use crate::lower::map::blocks::guarded;
use crate::lower::pipeline;
use crate::target::LINE;

/// Whether a body copies in bulk, or stores to other blocks and signals mbarriers there.
pub fn copies(body: &[Stmt]) -> bool {
    let mut found = !exit::signalled(body).is_empty();
    visit::walk(body, &mut |s| found |= matches!(s, Stmt::Bulk(_)));
    found
}

/// Puts in what loads expect and wait for, and closes the groups of stores.
pub fn put_in(kernel: &mut LoweredKernel) -> Result<()> {
    let warps = kernel.warps();
    let body = std::mem::take(&mut kernel.func.body);
    let mut awaited = Vec::new();
    visit::walk(&body, &mut |s| {
        if let Stmt::Sync(Sync { kind: SyncKind::Await { slot, .. }, .. }) = s {
            awaited.push(slot.barrier);
        }
    });
    let rings = Rings { func: &kernel.func, maps: &kernel.maps, env: &kernel.env(), awaited, warps };
    let mut body = rings.list(body, &Index::Int(0), true)?;
    let mut barriers: Vec<u32> = exit::signalled(&body).iter().map(|slot| slot.barrier).collect();
    barriers.sort_unstable();
    barriers.dedup();
    for barrier in barriers {
        body = rings.sends(body, barrier)?;
    }
    kernel.func.body = body;
    Ok(())
}

/// Sets the mbarriers at the start, and ends the stores at the end.
pub fn frame(kernel: &mut LoweredKernel) -> Result<()> {
    let warps = kernel.warps();
    let (by_tma, by_threads) = fetched(kernel);
    if kernel.l2_prefetch && by_tma.is_empty() && by_threads.is_empty() {
        let message =
            format!("l2_prefetch: kernel {} reads no array of device memory that it does not write", kernel.func.name);
        return Err(Error::input(Code::LowerL2Prefetch, message).help("remove `l2_prefetch=1`"));
    }
    let first = by_one_thread(kernel, by_tma)?;
    let mut at = usize::from(!first.is_empty());
    if at > 0 {
        kernel.func.body.insert(0, Stmt::Elect(Elect { warps, body: first }));
    }
    if !kernel.func.mbarriers.is_empty() {
        let meet = match kernel.extent(Axis::Cluster) {
            1 => SyncKind::Block,
            _ => SyncKind::ClusterRelaxed,
        };
        kernel.func.body.insert(at, Stmt::Sync(meet.because("the mbarriers are initialised")));
        at += 1;
    } else if exit::store(&kernel.func.body) {
        let meet = SyncKind::ClusterRelaxed.because("every block of the cluster runs, before others store to it");
        kernel.func.body.insert(at, Stmt::Sync(meet));
        at += 1;
    }
    // After the cluster barrier and the release of the next kernel, which would wait for the prefetches to be issued.
    let fetches: Vec<Stmt> = by_threads.into_iter().filter_map(|b| prefetched_by_threads(kernel, b)).collect();
    let fetched = at..at + fetches.len();
    kernel.func.body.splice(at..at, fetches);
    if let Some(how) = kernel.grid_dependency {
        // After the initialisation of mbarriers, which may overlap with the previous kernel.
        let release = SyncKind::GridRelease.because("PDL: the next kernel may begin");
        let wait =
            SyncKind::GridWait.because("PDL: writes of the previous kernels are visible, their reads are complete");
        let release = (how == GridDependency::Releases).then_some(Stmt::Sync(release));
        // A concurrent kernel does not wait before it accesses memory, so this kernel waits for the preceding ones before it releases it.
        let mut released = fetched.start;
        if !kernel.concurrent {
            kernel.func.body.insert(fetched.end, Stmt::Sync(wait));
            released = if kernel.precedes_concurrent { fetched.end + 1 } else { released };
        }
        kernel.func.body.splice(released..released, release);
    }
    end(kernel);
    if kernel.concurrent {
        let wait = SyncKind::GridWait.because("PDL: this kernel is complete only after the preceding kernels");
        kernel.func.body.push(Stmt::Sync(wait));
    }
    Ok(())
}

/// What one thread does at the start: prefetches, and the initialisation of the mbarriers.
fn by_one_thread(kernel: &LoweredKernel, fetched: Vec<BufferId>) -> Result<Vec<Stmt>> {
    let name = |buffer: BufferId| &kernel.func.buffer(buffer).name;
    let fetch = |buffer: BufferId| {
        let reason = format!("{} is prefetched to L2 before the PDL wait", name(buffer));
        Ok(Stmt::Sync(SyncKind::Prefetch { buffer, share: share(kernel, buffer)? }.because(reason)))
    };
    let mut first: Vec<Stmt> = fetched.into_iter().map(fetch).collect::<Result<_>>()?;
    if !kernel.func.mbarriers.is_empty() {
        first.extend(kernel.maps.iter().enumerate().map(|(map, of)| {
            let reason = format!("the first copy of {} does not wait for its tensor map", name(of.buffer));
            Stmt::Sync(SyncKind::PrefetchMap { map: map as u32 }.because(reason))
        }));
        first.push(Stmt::Sync(SyncKind::InitBarriers.because("before any arrival or wait")));
    }
    Ok(first)
}

/// The bytes of a buffer that each block prefetches: whole lines, equally many. Only the launch knows the blocks of a persistent kernel.
fn share(kernel: &LoweredKernel, buffer: BufferId) -> Result<Option<u64>> {
    if kernel.persistent().is_some() {
        return Ok(None);
    }
    let (described, line) = (kernel.func.buffer(buffer), LINE.unsigned_abs());
    let bytes = described.dtype.bytes_of(elements(described, Code::LowerL2Prefetch)?.unsigned_abs());
    let blocks = kernel.grid().iter().map(|n| u64::from(*n)).product::<u64>().max(1);
    Ok(Some(bytes.div_ceil(line).div_ceil(blocks) * line))
}

/// Bulk stores have read shared memory, and other blocks of the cluster have accessed it, before the kernel ends.
fn end(kernel: &mut LoweredKernel) {
    let mut ends: Vec<(u32, BufferId)> = Vec::new();
    visit::walk(&kernel.func.body, &mut |s| {
        if let Stmt::Elect(e) = s
            && let Some(stage) = stored(&e.body)
            && ends.iter().all(|(warps, _)| *warps != e.warps)
        {
            ends.push((e.warps, stage));
        }
    });
    for (warps, stage) in ends {
        let reason = format!("the bulk stores of {} have read shared memory", kernel.func.buffer(stage).name);
        let wait = SyncKind::BulkWait { groups: 0, read: true }.because(reason);
        kernel.func.body.push(Stmt::Elect(Elect { warps, body: vec![Stmt::Sync(wait)] }));
    }
    let stored = exit::store(&kernel.func.body) && exit::meet_last(&kernel.func.body);
    if exit::reach(&kernel.func.body) && !stored && !exit::are_awaited(kernel) {
        // A relaxed barrier does not order it behind the arrivals at mbarriers of other blocks: one that finds its block gone ends the kernel
        // with an error (CUDA_ERROR_LAUNCH_FAILED on an H100, within thousands of launches).
        let meet =
            SyncKind::Cluster.because("no block exits while another block of the cluster may access its shared memory");
        kernel.func.body.push(Stmt::Sync(meet));
    }
}

/// The inputs in device memory that a kernel with `l2_prefetch` prefetches: inputs that one thread prefetches, then inputs that all threads
/// prefetch. One thread prefetches inputs of TMA loads, and every input where only the launch knows the number of blocks. The kernel does not
/// prefetch an array of dynamic size: only the launch knows its extent.
fn fetched(kernel: &LoweredKernel) -> (Vec<BufferId>, Vec<BufferId>) {
    let written = visit::writes(&kernel.func.body);
    let mut arrays: Vec<BufferId> = kernel.maps.iter().map(|m| m.buffer).collect();
    arrays.extend(visit::reads(&kernel.func.body));
    arrays.retain(|b| kernel.func.buffer(*b).scope == Scope::Global && !written.contains(b));
    arrays.retain(|b| kernel.dims.get(b.0 as usize).is_none_or(|dims| dims.iter().all(|d| d.dynamic.is_none())));
    let mut seen = Vec::new();
    arrays.retain(|b| !seen.contains(b) && (seen.push(*b), kernel.l2_prefetch).1);
    let open_grid = kernel.persistent().is_some() || !kernel.clipped.is_empty();
    let by_tma = |b: &BufferId| open_grid || kernel.maps.iter().any(|m| m.buffer == *b);
    arrays.into_iter().partition(by_tma)
}

/// The threads of all blocks prefetch an array line by line, each block its share: block b of B the lines from b * ceil(lines / B) on.
fn prefetched_by_threads(kernel: &mut LoweredKernel, buffer: BufferId) -> Option<Stmt> {
    let described = kernel.func.buffer(buffer);
    let (name, elements) = (described.name.clone(), described.elements()?);
    let line = LINE * 8 / i64::from(described.dtype.bits());
    let lines = (elements + line - 1) / line;
    let axes = [Axis::Cluster, Axis::BlockX, Axis::BlockY, Axis::BlockZ];
    let (mut block, mut blocks) = (Index::Int(0), 1i64);
    for l in axes.iter().filter_map(|a| kernel.launch.iter().find(|l| l.axis == *a)) {
        (block, blocks) = (block + Index::from(l.var) * blocks, blocks.checked_mul(l.extent.into())?);
    }
    let (thread, threads) = (threads::number(&kernel.launch).0, i64::from(kernel.threads()));
    let share = (lines + blocks - 1) / blocks;
    let mut env = kernel.env();
    let rounds = (share + threads - 1) / threads;
    let round = kernel.func.add_var(cross_thread::fresh(&kernel.func, "line"));
    env.bind(round, 0, rounds - 1);
    let own = if rounds > 1 { Index::Var(round) * threads + thread } else { thread };
    let number = block * share + own.clone();
    let inside = Cond::lt(own, share).and(Cond::lt(number.clone(), lines));
    let inside = simplify::simplify_cond(&inside, &env);
    let at = simplify::simplify(&(number * line), &env);
    let kind = SyncKind::PrefetchLine { buffer, at };
    let fetch = Stmt::Sync(kind.because(format!("{name} is prefetched to L2 before the PDL wait")));
    let body = guarded(inside, vec![fetch]);
    match body.as_slice() {
        [only] if rounds == 1 => Some(only.clone()),
        _ => Some(Stmt::For(For::new(round, rounds, LoopKind::Serial, body))),
    }
}

/// The first stage that a body stores from.
fn stored(body: &[Stmt]) -> Option<BufferId> {
    let mut found = None;
    visit::walk(body, &mut |s| {
        if let Stmt::Bulk(copy) = s
            && copy.way == Way::Store
        {
            found.get_or_insert(copy.shared);
        }
    });
    found
}

struct Rings<'a> {
    func: &'a Func,
    maps: &'a [TensorMap],
    /// The ranges of the kernel's indices.
    env: &'a Env,
    /// The mbarriers that are waited for already.
    awaited: Vec<u32>,
    /// Warps of a block.
    warps: u32,
}

impl Rings<'_> {
    /// `number` says which run of the list this is; `counts` whether it says so.
    fn list(&self, body: Vec<Stmt>, number: &Index, counts: bool) -> Result<Vec<Stmt>> {
        let mut out: Vec<Stmt> = Vec::with_capacity(body.len());
        let mut waits: Vec<(Stmt, Vec<BufferId>)> = Vec::new();
        for mut stmt in body {
            let needed = |(_, stages): &(Stmt, Vec<BufferId>)| touches(&stmt, stages);
            let (now, later): (Vec<_>, Vec<_>) = waits.into_iter().partition(needed);
            out.extend(now.into_iter().map(|(wait, _)| wait));
            waits = later;
            match stmt {
                Stmt::Elect(e) => {
                    let (elect, wait) = self.started(e, number, counts)?;
                    out.push(Stmt::Elect(elect));
                    waits.extend(wait);
                    continue;
                }
                Stmt::For(ref mut l) => {
                    let inside = pipeline::ring::iteration_number(l, number);
                    l.body = self.list(std::mem::take(&mut l.body), &inside, counts)?;
                }
                Stmt::If(ref mut i) => {
                    let counts = counts && !self.changes(&i.cond, number);
                    i.body = self.list(std::mem::take(&mut i.body), number, counts)?;
                }
                _ => {
                    for child in visit::children_mut(&mut stmt) {
                        *child = self.list(std::mem::take(child), number, counts)?;
                    }
                }
            }
            out.push(stmt);
        }
        out.extend(waits.into_iter().map(|(wait, _)| wait));
        Ok(out)
    }

    /// Whether a condition may change from one run of a list to the next.
    fn changes(&self, cond: &Cond, number: &Index) -> bool {
        let mut changes = false;
        number.for_each_var(&mut |v| changes |= cond.mentions(v));
        changes
    }

    /// Loads with the bytes that they come to, and the wait for them with the stages that they fill, if it is not there
    /// yet; stores with the end of their group.
    #[allow(clippy::type_complexity)]
    fn started(&self, mut e: Elect, number: &Index, counts: bool) -> Result<(Elect, Option<(Stmt, Vec<BufferId>)>)> {
        let (names, stages) = self.names(&e);
        if stored(&e.body).is_some() {
            e.body.push(Stmt::Sync(SyncKind::BulkCommit.because(names)));
            return Ok((e, None));
        }
        let Some((slot, bytes)) = self.bytes(&e.body) else {
            let lost = format!("the bytes that loads of {names} come to are not known");
            return if stages.is_empty() { Ok((e, None)) } else { Err(Error::bug(Code::LowerBulk, lost)) };
        };
        let expect = SyncKind::Expect { slot: slot.clone(), bytes }.because(names.clone());
        // After the wait for the stage, if the same thread waits: before it the phase is an earlier one.
        let waits = |s: &&Stmt| matches!(s, Stmt::Sync(Sync { kind: SyncKind::Await { .. }, .. }));
        let at = e.body.iter().take_while(waits).count();
        e.body.insert(at, Stmt::Sync(expect));
        if self.awaited.contains(&slot.barrier) {
            return Ok((e, None));
        }
        if !counts {
            let message = format!("a bulk copy of {names} is under a condition that changes between iterations");
            let names = stages.iter().map(|b| &self.func.buffer(*b).name);
            return Err(names
                .fold(Error::input(Code::LowerBulkRun, message), Error::about_buffer)
                .help("move the staged buffer out of the loop that decides the condition"));
        }
        let wait =
            SyncKind::Await { slot, phase: number.clone() }.because(format!("RAW {names}: the loads are complete"));
        Ok((e, Some((Stmt::Sync(wait), stages))))
    }

    /// Inserts the bytes that each block expects after the asynchronous stores that signal an mbarrier, and the wait for them before the
    /// first statement that touches the filled buffers. Such stores run once, in phase 0: in loops, cluster barriers order them.
    fn sends(&self, body: Vec<Stmt>, barrier: u32) -> Result<Vec<Stmt>> {
        let mut out: Vec<Stmt> = Vec::with_capacity(body.len());
        let mut wait: Option<(Stmt, Vec<BufferId>)> = None;
        for mut stmt in body {
            if let Some((wait, _)) = wait.take_if(|(_, filled)| touches(&stmt, filled)) {
                out.push(wait);
            }
            if !exit::signalled(std::slice::from_ref(&stmt)).iter().any(|s| s.barrier == barrier) {
                out.push(stmt);
                continue;
            }
            if let Some((expect, awaited)) = self.sent(&stmt, barrier)? {
                // Bytes may arrive before they are expected.
                out.extend([stmt, expect]);
                wait = Some(awaited);
                continue;
            }
            match &stmt {
                Stmt::For(l) if l.extent.as_int() != Some(1) => {
                    return Err(Error::bug(Code::LowerSend, "asynchronous stores to other blocks are in a loop"));
                }
                Stmt::If(_) => {
                    return Err(Error::input(
                        Code::LowerClusterReduction,
                        "a reduction over the blocks of a cluster is under a condition, so some of them might not take part",
                    )
                    .about(Subject::Axis(Axis::Cluster.name()))
                    .help("choose factors that divide the loops around the reduction"));
                }
                _ => {}
            }
            for child in visit::children_mut(&mut stmt) {
                *child = self.sends(std::mem::take(child), barrier)?;
            }
            out.push(stmt);
        }
        out.extend(wait.map(|(wait, _)| wait));
        Ok(out)
    }

    /// The buffers that a statement fills in other blocks, if it does nothing but that: it does not read them.
    fn filled(&self, stmt: &Stmt, barrier: u32) -> Option<Vec<BufferId>> {
        let mut filled = Vec::new();
        visit::walk(std::slice::from_ref(stmt), &mut |s| {
            if let Stmt::Store(s) = s
                && s.remote.as_ref().and_then(|to| to.full.as_ref()).is_some_and(|full| full.barrier == barrier)
                && !filled.contains(&s.buffer)
            {
                filled.push(s.buffer);
            }
        });
        let read = visit::reads(std::slice::from_ref(stmt));
        Some(filled).filter(|filled| !filled.is_empty() && !filled.iter().any(|b| read.contains(b)))
    }

    /// Of a statement that stores to other blocks and signals an mbarrier there: the bytes that each block expects, and the wait for
    /// them with the buffers that they fill.
    #[allow(clippy::type_complexity)]
    fn sent(&self, stmt: &Stmt, barrier: u32) -> Result<Option<(Stmt, (Stmt, Vec<BufferId>))>> {
        let Some(filled) = self.filled(stmt, barrier) else { return Ok(None) };
        let buffers: Vec<&Buffer> = filled.iter().map(|b| self.func.buffer(*b)).collect();
        let names: Vec<&str> = buffers.iter().map(|b| b.name.as_str()).collect();
        let names = names.join(", ");
        let bytes = |b: &&Buffer| Ok(b.dtype.bytes_of(elements(b, Code::LowerSend)? as u64));
        let bytes = buffers.iter().map(bytes).sum::<Result<u64>>()?;
        let bytes =
            u32::try_from(bytes).map_err(|_| Error::bug(Code::LowerSend, "more bytes than an mbarrier counts"))?;
        let slot = Slot { barrier, index: Index::Int(0) };
        let expect = SyncKind::Expect { slot: slot.clone(), bytes: i64::from(bytes).into() }.because(names.clone());
        let wait = SyncKind::Await { slot, phase: Index::Int(0) }
            .because(format!("RAW {names}: the values of all blocks are there"));
        let expect = Stmt::Elect(Elect { warps: self.warps, body: vec![Stmt::Sync(expect)] });
        Ok(Some((expect, (Stmt::Sync(wait), filled))))
    }

    /// The stages of copies.
    fn names(&self, e: &Elect) -> (String, Vec<BufferId>) {
        let mut stages: Vec<BufferId> = Vec::new();
        visit::walk(&e.body, &mut |s| {
            if let Stmt::Bulk(copy) = s
                && !stages.contains(&copy.shared)
            {
                stages.push(copy.shared);
            }
        });
        let names: Vec<&str> = stages.iter().map(|b| self.func.buffer(*b).name.as_str()).collect();
        (names.join(", "), stages)
    }

    /// The bytes that loads bring to each block, and the mbarrier that counts them.
    fn bytes(&self, body: &[Stmt]) -> Option<(Slot, Index)> {
        let mut found: Option<(Slot, Index)> = None;
        for stmt in body {
            let (slot, bytes) = match stmt {
                Stmt::Bulk(copy) => {
                    let Way::Load { full, multicast } = &copy.way else { continue };
                    let map = self.maps.get(copy.map as usize)?;
                    let elements = map.tile.iter().product::<i64>() as u64 * u64::from(multicast.unwrap_or(1));
                    let bytes = self.func.buffer(map.buffer).dtype.bytes_of(elements);
                    (full.clone(), Index::Int(u32::try_from(bytes).ok()?.into()))
                }
                other => {
                    let inside = visit::children(other).into_iter().find_map(|c| self.bytes(c));
                    let Some((slot, bytes)) = inside else { continue };
                    let times = if let Stmt::For(l) = other { iterations(l)? } else { Index::Int(1) };
                    (slot, bytes * times)
                }
            };
            let (_, sum) = found.get_or_insert((slot, Index::Int(0)));
            *sum = std::mem::replace(sum, Index::Int(0)) + bytes;
        }
        let (slot, bytes) = found?;
        Some((slot, simplify::simplify(&bytes, self.env)))
    }
}

/// How many iterations of a loop load: of those whose number is below a size, which is the condition around the loads of some.
pub(in crate::lower) fn iterations(l: &For) -> Option<Index> {
    let extent = l.extent.as_int()?;
    let [Stmt::If(guard)] = l.body.as_slice() else { return Some(Index::Int(extent)) };
    // The loads of an iteration run where `left - step * iteration` is above 0.
    let Cond::Cmp(CmpOp::Lt, below, size) = &guard.cond else { return None };
    let left = simplify::affine(&(size.clone() - below.clone()));
    let step = -left.coefficient(l.var);
    let first: visit::Map = [(l.var, Index::Int(0))].into();
    let left = visit::subst_index(&left.to_index(), &first);
    (step > 0).then(|| (left + (step - 1)).floordiv(step).max(0).min(extent))
}

fn touches(stmt: &Stmt, stages: &[BufferId]) -> bool {
    let body = std::slice::from_ref(stmt);
    let all: Vec<BufferId> = visit::reads(body).into_iter().chain(visit::writes(body)).collect();
    !bulk::is_load(stmt) && stages.iter().any(|s| all.contains(s))
}
