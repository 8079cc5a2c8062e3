//! What bulk copies need besides barriers: the bytes that an mbarrier expects, the waits for its phases, the groups of stores.
//!
//! | access | then | ordered by |
//! |---|---|---|
//! | bulk load | any access of the same bytes | a wait of every thread for the phase of the load's mbarrier |
//! | ordinary read | bulk load of the same bytes | a proxy fence by the readers, whose reads are then there, and a barrier |
//! | ordinary write | bulk load or store of the same bytes | a proxy fence by the writers, then a barrier |
//! | bulk store | bulk load of the same bytes by its thread | a wait of the thread until the store has read |
//! | bulk store | write of the same bytes by another thread | that wait, then a barrier |
//!
//! A load's thread first arrives at the mbarrier with the bytes of all that it starts. The phase is the parity of the
//! statement's running number, which counts its runs over all loops around; `pipeline` has put in the waits of its
//! rings, whose slots it numbers. Here come the waits for what stands outside of rings: in front of the first statement
//! that touches the stage.
//!
//! mbarriers are set by one thread before anything else. Then a kernel that may begin before the one in front of it has ended
//! waits for that end, before anything of it touches global memory. At the end the threads that have stored wait until their
//! stores have read: the block's shared memory is then another's. Where others of the cluster may still reach it (`peers`), all meet.

use super::super::{GridDependency, LoweredKernel, bulk, pipeline};
use super::peers;
use crate::error::{Error, Result};
use crate::ir::{Axis, BufferId, Cond, Elect, Func, Index, Slot, Stmt, Sync, SyncKind, Way, visit};
use crate::lower::TensorMap;

/// Whether a body copies in bulk.
pub fn copies(body: &[Stmt]) -> bool {
    let mut found = false;
    visit::walk(body, &mut |s| found |= matches!(s, Stmt::Bulk(_)));
    found
}

/// Puts in what loads expect and wait for, and closes the groups of stores.
pub fn put_in(kernel: &mut LoweredKernel) -> Result<()> {
    let body = std::mem::take(&mut kernel.func.body);
    let mut awaited = Vec::new();
    visit::walk(&body, &mut |s| {
        if let Stmt::Sync(Sync { kind: SyncKind::Await { slot, .. }, .. }) = s {
            awaited.push(slot.barrier);
        }
    });
    let rings = Rings { func: &kernel.func, maps: &kernel.maps, awaited };
    let body = rings.list(body, &Index::Int(0), true)?;
    kernel.func.body = body;
    Ok(())
}

/// Sets the mbarriers at the start, and ends the stores at the end.
pub fn frame(kernel: &mut LoweredKernel) -> Result<()> {
    let warps = kernel.warps();
    let fetched = fetched(kernel);
    if kernel.l2_prefetch && fetched.is_empty() {
        let message = format!(
            "l2_prefetch: no bulk copy of kernel {} reads an array that the kernel does not write",
            kernel.func.name
        );
        return Err(Error::input("lower.l2_prefetch", message)
            .help("load A and B with `copy_with STAGE tma`, or remove the annotation"));
    }
    let mut first: Vec<Stmt> = fetched.into_iter().map(Stmt::Sync).collect();
    if !kernel.func.mbarriers.is_empty() {
        let set = SyncKind::InitBarriers.because("before any arrival or wait");
        first.push(Stmt::Sync(set));
    }
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
    } else if peers::store(&kernel.func.body) {
        let meet = SyncKind::ClusterRelaxed.because("every block of the cluster runs, before others store to it");
        kernel.func.body.insert(at, Stmt::Sync(meet));
        at += 1;
    }
    if let Some(how) = kernel.grid_dependency {
        // Behind the mbarriers: that they are set before the kernel in front ends is what beginning early is worth.
        let release = SyncKind::GridRelease.because("PDL: the next kernel may begin");
        let wait =
            SyncKind::GridWait.because("PDL: writes of the previous kernels are visible, their reads are complete");
        let release = (how == GridDependency::Releases).then_some(release);
        kernel.func.body.splice(at..at, release.into_iter().chain([wait]).map(Stmt::Sync));
    }
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
    let stored = peers::store(&kernel.func.body) && peers::meet_last(&kernel.func.body);
    if peers::reach(&kernel.func.body) && !stored && !peers::are_awaited(kernel) {
        let meet = SyncKind::ClusterRelaxed
            .because("no block exits while another block of the cluster may access its shared memory");
        kernel.func.body.push(Stmt::Sync(meet));
    }
    Ok(())
}

/// What asks for the arrays that bulk copies read and nothing writes, if the kernel is to.
fn fetched(kernel: &LoweredKernel) -> Vec<Sync> {
    let written = visit::writes(&kernel.func.body);
    let mut arrays: Vec<BufferId> = Vec::new();
    for map in &kernel.maps {
        if kernel.l2_prefetch && !written.contains(&map.buffer) && !arrays.contains(&map.buffer) {
            arrays.push(map.buffer);
        }
    }
    let fetch = |buffer: BufferId| {
        let name = &kernel.func.buffer(buffer).name;
        SyncKind::Prefetch { buffer }.because(format!("{name} is prefetched to L2 before the PDL wait"))
    };
    arrays.into_iter().map(fetch).collect()
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
    /// The mbarriers that are waited for already.
    awaited: Vec<u32>,
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
                    let inside = pipeline::bulk::running(l, number);
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
        let Some((slot, bytes)) = self.bytes(&e.body) else { return Ok((e, None)) };
        let expect = SyncKind::Expect { slot: slot.clone(), bytes }.because(names.clone());
        // Behind the wait for the slot, if its thread does that: before it the phase is another's.
        let waits = |s: &&Stmt| matches!(s, Stmt::Sync(Sync { kind: SyncKind::Await { .. }, .. }));
        let at = e.body.iter().take_while(waits).count();
        e.body.insert(at, Stmt::Sync(expect));
        if self.awaited.contains(&slot.barrier) {
            return Ok((e, None));
        }
        if !counts {
            let message = format!("a bulk copy of {names} is under a condition that changes between iterations");
            return Err(Error::input("lower.bulk_run", message)
                .help("move the staged buffer out of the loop that decides the condition"));
        }
        let wait =
            SyncKind::Await { slot, phase: number.clone() }.because(format!("RAW {names}: the loads are complete"));
        Ok((e, Some((Stmt::Sync(wait), stages))))
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
    fn bytes(&self, body: &[Stmt]) -> Option<(Slot, u32)> {
        let mut found: Option<(Slot, u32)> = None;
        for stmt in body {
            let (slot, bytes) = match stmt {
                Stmt::Bulk(copy) => {
                    let Way::Load { full, multicast } = &copy.way else { continue };
                    let map = self.maps.get(copy.map as usize)?;
                    let elements = map.tile.iter().product::<i64>() as u64 * u64::from(multicast.unwrap_or(1));
                    let bytes = self.func.buffer(map.buffer).dtype.bytes_of(elements);
                    (full.clone(), u32::try_from(bytes).ok()?)
                }
                other => {
                    let times = if let Stmt::For(l) = other { u32::try_from(l.extent.as_int()?).ok()? } else { 1 };
                    let inside = visit::children(other).into_iter().find_map(|c| self.bytes(c));
                    let Some((slot, bytes)) = inside else { continue };
                    (slot, bytes.checked_mul(times)?)
                }
            };
            let (_, sum) = found.get_or_insert((slot, 0));
            *sum = sum.checked_add(bytes)?;
        }
        found
    }
}

fn touches(stmt: &Stmt, stages: &[BufferId]) -> bool {
    let body = std::slice::from_ref(stmt);
    let all: Vec<BufferId> = visit::reads(body).into_iter().chain(visit::writes(body)).collect();
    !bulk::is_load(stmt) && stages.iter().any(|s| all.contains(s))
}
