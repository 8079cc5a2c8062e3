//! Rings have more stages where TMA loads fewer boxes.
//!
//! The pass [`columns`](super) makes a loop for each number of boxes that hold rows below a dynamic size. With stages that have room for all boxes,
//! as many stages would be on their way where there are few boxes, and fewer bytes. So each number of boxes has a ring of its own in the bytes of the first:
//! stages without the rows that nothing loads, and as many of them as there is room for. The stage of an iteration is its remainder by the number of
//! stages, and the phase its quotient.
//!
//! Where the blocks of a cluster load for one another, their stages are in the same places. Their numbers of boxes may differ, and the largest decides.

use super::Boxes;
use crate::index::Points;
use crate::ir::cross_thread::fresh_buffer;
use crate::ir::lowered::{LoweredKernel, TensorMap};
use crate::ir::simplify::{Env, affine, bounds, simplify, simplify_cond};
use crate::ir::{
    Axis, Buffer, BufferId, BulkCopy, CmpOp, Cond, For, Index, IndexOp, Scope, Stmt, Sync, SyncKind, Var, Way, visit,
};
use crate::lower::data::plan;
use crate::target::Target;
use std::collections::{BTreeMap, BTreeSet};

/// Values of a dynamic size and of the indices of blocks that are tried at most: which blocks of a cluster have which numbers of boxes.
const MOST_VALUES: i64 = 1 << 18;

/// Statements that become some for each number of boxes, with the ranges of the indices there.
pub struct Group {
    pub boxes: Boxes,
    pub body: Vec<Stmt>,
    pub env: Env,
}

/// The ring of a kernel.
#[derive(Debug)]
pub struct Ring {
    stages: i64,
    /// Those of which all is loaded come first: the blocks of a cluster load them for one another.
    buffers: Vec<Staged>,
    /// Its arrays of mbarriers; the first one says that a stage is full.
    barriers: Vec<u32>,
    /// The boxes of a block.
    count: Index,
    /// The most boxes of a block of the cluster, where that decides, and the boxes of a block beside it, as they occur.
    most: Option<(Index, BTreeSet<(i64, i64)>)>,
    /// The iterations of the loop over stages.
    iterations: i64,
    /// The other rings, by the number of boxes.
    versions: BTreeMap<i64, Version>,
}

/// A buffer of the ring.
#[derive(Debug)]
struct Staged {
    id: BufferId,
    /// Elements of a stage.
    elements: i64,
    /// Elements of all boxes of a line of k, and of one box, where a launch may load fewer boxes.
    side: Option<(i64, i64)>,
}

impl Staged {
    /// Elements of a stage of so many boxes.
    fn elements_of(&self, boxes: i64) -> i64 {
        self.side.map_or(self.elements, |(side, one)| self.elements / side * one * boxes)
    }
}

/// The ring for a number of boxes.
#[derive(Debug)]
struct Version {
    boxes: i64,
    stages: i64,
    /// In the order of the buffers.
    buffers: Vec<BufferId>,
}

impl Ring {
    /// The ring that these groups use and nothing else does, with more stages at some numbers of boxes; `None` where there is none. Makes room for it.
    pub fn of(kernel: &mut LoweredKernel, body: &[Stmt], groups: &[Group], target: &Target) -> Option<Ring> {
        let copies = loads(body);
        let (full, stages) = copies.first().and_then(|(_, full)| Some((*full, slots_of(kernel, *full)?)))?;
        let of_ring: Vec<&Group> =
            groups.iter().filter(|g| !loads(&g.body).is_empty() || !awaited(&g.body).is_empty()).collect();
        let Boxes { count, all, .. } = &of_ring.first()?.boxes;
        let alike = of_ring.iter().all(|g| g.boxes.count == *count && g.boxes.all == *all);
        if stages < 2 || !alike || copies.iter().any(|(_, other)| *other != full) {
            return None;
        }
        let others = of_ring.iter().flat_map(|g| signalled(&g.body)).filter(|barrier| *barrier != full);
        let barriers: Vec<u32> = [full].into_iter().chain(others.collect::<BTreeSet<u32>>()).collect();
        let ids: BTreeSet<BufferId> = copies.iter().map(|(buffer, _)| *buffer).collect();
        let uses = |body: &[Stmt]| uses(body, &ids, &barriers);
        let alone = uses(body) == of_ring.iter().map(|g| uses(&g.body)).sum::<usize>();
        if !alone || barriers.iter().any(|b| slots_of(kernel, *b) != Some(stages)) {
            return None;
        }
        let staged = |id: &BufferId| {
            let elements = kernel.func.buffer(*id).elements().filter(|n| n % stages == 0)? / stages;
            let side = side(&of_ring, *id, &kernel.maps)?;
            side.is_none_or(|(side, _)| elements % side == 0).then_some(Staged { id: *id, elements, side })
        };
        let mut buffers: Vec<Staged> = ids.iter().map(staged).collect::<Option<_>>()?;
        buffers.sort_by_key(|b| (b.side.is_some(), b.id));
        let iterations = of_ring.iter().find_map(|g| iterations(&g.body, full))?;
        let most = most(kernel, body, count)?;
        let (count, versions) = (count.clone(), BTreeMap::new());
        let mut ring = Ring { stages, buffers, barriers, count, most, iterations, versions };
        let room = Room::of(kernel, body, &ring, target)?;
        let (least, largest) = of_ring.first()?.boxes.range(&of_ring.first()?.env);
        let numbers = least.max(1)..(*all).min(largest + 1);
        let wanted: Vec<(i64, i64)> = numbers.filter_map(|n| Some((n, room.stages(kernel, &ring, n)?))).collect();
        let trial = |(boxes, stages): &(i64, i64)| {
            let buffers = ring.buffers.iter().map(|b| b.id).collect();
            let version = Version { boxes: *boxes, stages: *stages, buffers };
            of_ring.iter().all(|g| ring.moved(g.body.clone(), &version, &g.env).is_some())
        };
        if wanted.is_empty() || !wanted.iter().all(trial) {
            return None;
        }
        room.allot(kernel, &mut ring, &wanted);
        Some(ring)
    }

    /// Whether statements use it.
    pub fn is_of(&self, body: &[Stmt]) -> bool {
        loads(body).iter().any(|(_, full)| *full == self.barriers[0])
            || awaited(body).iter().any(|b| self.barriers.contains(b))
    }

    /// The conditions for each number of boxes beside the most of the cluster, which decides the ring, where a block has so many at least and at most; `None`
    /// where the block's own number decides.
    pub fn cases(&self, (low, high): (i64, i64)) -> Option<Vec<(Cond, i64, i64)>> {
        let (most, pairs) = self.most.as_ref()?;
        let case = |(own, of_cluster): &(i64, i64)| {
            let all: Vec<i64> = pairs.iter().filter(|(n, _)| n == own).map(|(_, r)| *r).collect();
            let (least, largest) = (all.first().copied().unwrap_or(0), all.last().copied().unwrap_or(0));
            let own_cond = among(&self.count, *own, low..=high);
            (own_cond.and(among(most, *of_cluster, least..=largest)), *own, *of_cluster)
        };
        Some(pairs.iter().map(case).collect())
    }

    /// The statements of a group in the ring for so many boxes.
    pub fn at(&self, boxes: i64, body: Vec<Stmt>, env: &Env) -> Option<Vec<Stmt>> {
        match self.versions.get(&boxes) {
            Some(version) => self.moved(body, version, env),
            None => Some(body),
        }
    }

    fn moved(&self, body: Vec<Stmt>, version: &Version, env: &Env) -> Option<Vec<Stmt>> {
        let mut out = body;
        for stmt in &mut out {
            match stmt {
                Stmt::For(l) => self.moved_loop(l, version, env)?,
                other if self.is_of(std::slice::from_ref(other)) => return None,
                _ => {}
            }
        }
        Some(out)
    }

    /// The loop over stages, or the one that fills the first.
    fn moved_loop(&self, l: &mut For, version: &Version, env: &Env) -> Option<()> {
        let more = version.stages - self.stages;
        let (fills, waits) = (!loads(&l.body).is_empty(), awaited(&l.body));
        let first = fills && waits.is_empty();
        if first {
            l.extent = Index::Int(l.extent.as_int()? + more);
        }
        let mut env = env.clone();
        env.bind_loop(l.var, &l.extent);
        if fills && waits.contains(&self.barriers[0]) {
            // Where threads load ahead and wait in the same loop, each iteration loads for a later one than before.
            let later: visit::Map = [(l.var, Index::Var(l.var) + more)].into();
            for stmt in &mut l.body {
                if !loads(std::slice::from_ref(stmt)).is_empty() {
                    *stmt = visit::subst_body(vec![stmt.clone()], &later).pop()?;
                    if let Stmt::If(i) = stmt {
                        i.cond = simplify_cond(&i.cond, &env);
                    }
                }
            }
        }
        let at = At { ring: self, version, var: l.var, first, env: &env };
        l.body.iter_mut().try_for_each(|stmt| at.stmt(stmt))
    }
}

/// A version of a loop.
struct At<'a> {
    ring: &'a Ring,
    version: &'a Version,
    var: Var,
    /// Whether the loop fills the first stages.
    first: bool,
    env: &'a Env,
}

impl At<'_> {
    fn stmt(&self, stmt: &mut Stmt) -> Option<()> {
        match stmt {
            Stmt::Bulk(copy) => {
                self.place(&mut copy.shared, &mut copy.indices)?;
                if let Way::Load { full, .. } = &mut copy.way {
                    full.index = self.stage(&full.index, false)?;
                }
                for index in &mut copy.coordinates {
                    *index = simplify(index, self.env);
                }
            }
            Stmt::Call(call) => {
                call.operands.iter_mut().try_for_each(|o| self.place(&mut o.buffer, &mut o.indices))?;
            }
            Stmt::Sync(Sync { kind, .. }) => {
                let released = matches!(kind, SyncKind::Arrive { .. });
                if let Some(slot) = kind.slot_mut().filter(|slot| self.ring.barriers.contains(&slot.barrier)) {
                    slot.index = self.stage(&slot.index, released)?;
                    if let SyncKind::Await { phase, .. } = kind {
                        *phase = self.phase(phase)?;
                    }
                }
            }
            Stmt::If(i) if releases(&i.body, &self.ring.barriers) => {
                i.cond = simplify_cond(&self.earlier(&i.cond), self.env);
            }
            _ => {}
        }
        for child in visit::children_mut(stmt) {
            child.iter_mut().try_for_each(|stmt| self.stmt(stmt))?;
        }
        Some(())
    }

    /// The stage of an iteration. A stage that is released is of an iteration before, whose distance is a remainder, too.
    fn stage(&self, index: &Index, released: bool) -> Option<Index> {
        match index {
            Index::Var(v) if self.first && *v == self.var => Some(index.clone()),
            Index::Bin(IndexOp::FloorMod, it, by) if by.as_int() == Some(self.ring.stages) => {
                let behind = self.iteration(it)?;
                let behind = if released && behind > 0 { behind - self.ring.stages } else { behind };
                let it = Index::Var(self.var) + behind;
                Some(simplify(&it.floormod(self.version.stages), self.env))
            }
            _ => None,
        }
    }

    /// What is added to the loop's variable.
    fn iteration(&self, it: &Index) -> Option<i64> {
        let sum = affine(it);
        matches!(sum.terms.as_slice(), [(Index::Var(v), 1)] if *v == self.var).then_some(sum.constant)
    }

    fn phase(&self, phase: &Index) -> Option<Index> {
        let sum = affine(phase);
        let [(Index::Bin(IndexOp::FloorDiv, it, by), 1)] = sum.terms.as_slice() else { return None };
        let it = Index::Var(self.var) + self.iteration(it)?;
        let own = by.as_int() == Some(self.ring.stages);
        own.then(|| simplify(&(it.floordiv(self.version.stages) + sum.constant), self.env))
    }

    /// An element of a stage, where the buffer is one of the ring's.
    fn place(&self, buffer: &mut BufferId, indices: &mut [Index]) -> Option<()> {
        let Some(n) = self.ring.buffers.iter().position(|b| b.id == *buffer) else { return Some(()) };
        let (staged, [index]) = (&self.ring.buffers[n], indices) else { return None };
        let moved = |by: i64| match staged.side {
            Some((side, one)) if by % side == 0 => Some(by / side * one * self.version.boxes),
            Some((side, _)) if by >= side || by < 0 => None,
            _ => Some(by),
        };
        let (sum, mut stages) = (affine(index), 0);
        let constant = staged.side.map_or(0, |(side, _)| sum.constant.div_euclid(side) * side);
        let mut place = Index::Int(moved(constant)? + sum.constant - constant);
        for (atom, by) in sum.terms {
            if atom.mentions(self.var) {
                (by == staged.elements).then_some(())?;
                stages += 1;
                place = place + self.stage(&atom, false)? * moved(by)?;
            } else {
                place = place + atom * moved(by)?;
            }
        }
        (stages == 1).then_some(())?;
        (*buffer, *index) = (self.version.buffers[n], simplify(&place, self.env));
        Some(())
    }

    /// A condition on the iterations up to some number, so many before as there are more stages: the last stages are not filled again.
    fn earlier(&self, cond: &Cond) -> Cond {
        match cond {
            Cond::And(a, b) => self.earlier(a).and(self.earlier(b)),
            Cond::Cmp(op @ (CmpOp::Lt | CmpOp::Le), a, b) if self.iteration(a).is_some() && b.as_int().is_some() => {
                Cond::Cmp(*op, a.clone() + (self.version.stages - self.ring.stages), b.clone())
            }
            other => other.clone(),
        }
    }
}

/// The bytes of a ring, and what lies behind them.
struct Room {
    from: u64,
    to: u64,
    /// Bytes by which everything behind moves.
    more: u64,
    /// Where the ring ended.
    end: u64,
}

impl Room {
    /// Up to all shared memory that a block can have, if no multiprocessor has several blocks.
    fn of(kernel: &LoweredKernel, body: &[Stmt], ring: &Ring, target: &Target) -> Option<Room> {
        let range = |b: &Buffer, elements: i64| {
            let from = u64::from(b.offset?);
            Some((from, from + b.dtype.bytes_of(u64::try_from(elements).ok()?)))
        };
        let (mut from, mut end, mut bytes) = (u64::MAX, 0, 0);
        for b in &ring.buffers {
            let (first, last) = range(kernel.func.buffer(b.id), b.elements * ring.stages)?;
            (from, end, bytes) = (from.min(first), end.max(last), bytes + last - first);
        }
        // What shares the bytes is used behind the loops alone.
        let used = [visit::reads(body), visit::writes(body)].concat();
        for id in (0..kernel.func.buffers.len() as u32).map(BufferId) {
            let (b, of_ring) = (kernel.func.buffer(id), ring.buffers.iter().any(|r| r.id == id));
            if b.scope == Scope::Shared && !of_ring && used.contains(&id) {
                let (first, last) = range(b, b.elements()?)?;
                let shares = first < end && from < last;
                (!shares || first >= from && last <= end && is_later(body, id, ring)).then_some(())?;
            }
        }
        let limits = &target.limits;
        let resident = |bytes: u64| target.occupancy(kernel.threads(), 1, bytes as u32).blocks;
        let now = u64::from(kernel.shared_bytes);
        let longest = ring.buffers.iter().map(|b| kernel.func.buffer(b.id).dtype.bytes_of(b.elements_of(1) as u64));
        let longest = (u64::from(limits.shared_optin) / longest.sum::<u64>().max(1)).min(ring.iterations as u64);
        let arrays = longest.saturating_sub(ring.stages as u64) * plan::MBARRIER * ring.barriers.len() as u64;
        let free = u64::from(limits.shared_optin).checked_sub(now + arrays)?;
        let more = if resident(now) > 1 { 0 } else { free / plan::ALIGN * plan::ALIGN };
        let whole = bytes == end - from && resident(now + arrays + more) == resident(now);
        whole.then_some(Room { from, to: end + more, more, end })
    }

    /// The stages of the ring for so many boxes, if they are more.
    fn stages(&self, kernel: &LoweredKernel, ring: &Ring, boxes: i64) -> Option<i64> {
        let mut stages = ring.iterations;
        while stages > ring.stages {
            if self.places(kernel, ring, (boxes, stages)).is_some() {
                return Some(stages);
            }
            stages -= 1;
        }
        None
    }

    /// Where the buffers of so many stages of so many boxes begin.
    fn places(&self, kernel: &LoweredKernel, ring: &Ring, (boxes, stages): (i64, i64)) -> Option<Vec<u64>> {
        let (mut at, mut out) = (self.from, Vec::new());
        for b in &ring.buffers {
            let (buffer, elements) = (kernel.func.buffer(b.id), b.elements_of(boxes) as u64);
            let (bytes, align) = (buffer.dtype.bytes_of(elements), u64::from(buffer.align).max(1));
            at = at.next_multiple_of(align);
            out.push(at);
            at += bytes * stages as u64;
            (bytes % align == 0 && at <= self.to).then_some(())?;
        }
        Some(out)
    }

    /// Gives each version of the ring its buffers, and the mbarriers of the longest.
    fn allot(&self, kernel: &mut LoweredKernel, ring: &mut Ring, wanted: &[(i64, i64)]) {
        for b in kernel.func.buffers.iter_mut().filter(|b| b.scope == Scope::Shared) {
            b.offset = b.offset.map(|at| if u64::from(at) >= self.end { at + self.more as u32 } else { at });
        }
        for &(boxes, stages) in wanted {
            let places = self.places(kernel, ring, (boxes, stages)).unwrap_or_default();
            let mut buffers = Vec::new();
            for (staged, at) in ring.buffers.iter().zip(places) {
                let mut buffer = kernel.func.buffer(staged.id).clone();
                buffer.name = fresh_buffer(&kernel.func, &format!("{}_{boxes}", buffer.name));
                buffer.shape = vec![Index::Int(staged.elements_of(boxes) * stages)];
                buffer.offset = Some(at as u32);
                buffers.push(kernel.func.add_buffer(buffer));
                if let Some(dims) = kernel.dims.get(staged.id.0 as usize).cloned() {
                    kernel.dims.push(dims);
                }
            }
            ring.versions.insert(boxes, Version { boxes, stages, buffers });
        }
        let most = wanted.iter().map(|(_, stages)| *stages).max().unwrap_or(ring.stages);
        let total = kernel.func.mbarriers.iter().filter_map(|array| array.offset).min().map_or(0, u64::from);
        for array in &ring.barriers {
            kernel.func.mbarriers[*array as usize].slots = most as u32;
        }
        kernel.shared_bytes = plan::place_mbarriers(&mut kernel.func, total + self.more) as u32;
    }
}

/// The condition that an index, which is one of these values, is this one.
pub fn among(index: &Index, value: i64, values: std::ops::RangeInclusive<i64>) -> Cond {
    match (value == *values.start(), value == *values.end()) {
        (true, true) => Cond::TRUE,
        (true, false) => Cond::lt(index.clone(), value + 1),
        (false, true) => Cond::lt(value - 1, index.clone()),
        (false, false) => Cond::eq(index.clone(), value),
    }
}

/// The buffers of TMA loads with their mbarriers.
fn loads(body: &[Stmt]) -> Vec<(BufferId, u32)> {
    let mut out = Vec::new();
    visit::walk(body, &mut |s| {
        if let Stmt::Bulk(BulkCopy { shared, way: Way::Load { full, .. }, .. }) = s {
            out.push((*shared, full.barrier));
        }
    });
    out
}

/// The arrays of mbarriers that statements wait for, or speak of.
fn barriers(body: &[Stmt], of: impl Fn(&SyncKind) -> bool) -> Vec<u32> {
    let mut out = Vec::new();
    visit::walk(body, &mut |s| {
        if let Stmt::Sync(Sync { kind, .. }) = s
            && of(kind)
        {
            out.extend(kind.clone().slot_mut().map(|slot| slot.barrier));
        }
    });
    out
}

fn awaited(body: &[Stmt]) -> Vec<u32> {
    barriers(body, |kind| matches!(kind, SyncKind::Await { .. }))
}

fn signalled(body: &[Stmt]) -> Vec<u32> {
    barriers(body, |_| true)
}

fn releases(body: &[Stmt], of_ring: &[u32]) -> bool {
    barriers(body, |kind| matches!(kind, SyncKind::Arrive { .. })).iter().any(|b| of_ring.contains(b))
}

/// How often statements use these buffers and mbarriers.
fn uses(body: &[Stmt], ids: &BTreeSet<BufferId>, arrays: &[u32]) -> usize {
    let mut count = loads(body).len() + signalled(body).iter().filter(|b| arrays.contains(b)).count();
    visit::each_access(body, &mut |buffer, _| count += usize::from(ids.contains(&buffer)));
    visit::walk(body, &mut |s| {
        // A store by TMA would read a stage.
        count += usize::from(matches!(s, Stmt::Bulk(copy) if copy.way == Way::Store && ids.contains(&copy.shared)));
    });
    count
}

fn slots_of(kernel: &LoweredKernel, barrier: u32) -> Option<i64> {
    kernel.func.mbarriers.get(barrier as usize).map(|array| i64::from(array.slots))
}

/// The iterations of the loop that waits for stages.
fn iterations(body: &[Stmt], full: u32) -> Option<i64> {
    body.iter().find_map(|s| match s {
        Stmt::For(l) if awaited(&l.body).contains(&full) => l.extent.as_int(),
        _ => None,
    })
}

/// Elements of all boxes of a line of k of a buffer, and of one box, where a launch may load fewer boxes; `None` where the boxes do not follow one another.
#[allow(clippy::option_option)]
fn side(groups: &[&Group], id: BufferId, maps: &[TensorMap]) -> Option<Option<(i64, i64)>> {
    let mut found: Option<Option<(i64, i64)>> = None;
    for group in groups {
        let mut divided = Vec::new();
        group.boxes.each_loop(&group.body, &group.env, &mut |l| {
            visit::walk(&l.body, &mut |s| {
                if let Stmt::Bulk(copy) = s
                    && copy.shared == id
                {
                    let one = maps.get(copy.map as usize).map(|map| map.tile.iter().product::<i64>());
                    let follow = copy.indices.iter().all(|i| Some(affine(i).coefficient(l.var)) == one);
                    divided.push(one.filter(|_| follow).map(|one| (one * group.boxes.all, one)));
                }
            });
        });
        let all = loads(&group.body).iter().filter(|(buffer, _)| *buffer == id).count();
        for own in divided.iter().copied().map(|d| d.map(Some)).chain((divided.len()..all).map(|_| Some(None))) {
            (*found.get_or_insert(own?) == own?).then_some(())?;
        }
    }
    found
}

/// Whether a buffer is used only behind the last use of the ring, in each list of the kernel.
fn is_later(body: &[Stmt], id: BufferId, ring: &Ring) -> bool {
    let lists: Vec<&[Stmt]> = match body.iter().any(|s| matches!(s, Stmt::Role(_))) {
        true => body.iter().filter_map(|s| if let Stmt::Role(r) = s { Some(&r.body[..]) } else { None }).collect(),
        false => vec![body],
    };
    lists.into_iter().all(|list| {
        let (mut at, mut last, mut first) = (0usize, None, None);
        visit::walk(list, &mut |s| {
            at += 1;
            if !visit::children(s).is_empty() {
                return;
            }
            let one = std::slice::from_ref(s);
            let touched = [visit::reads(one), visit::writes(one)].concat();
            if touched.contains(&id) {
                first.get_or_insert(at);
            }
            if touched.iter().any(|b| ring.buffers.iter().any(|r| r.id == *b)) {
                last = Some(at);
            }
        });
        first.is_none_or(|first| last.is_none_or(|last| last < first))
    })
}

/// The most boxes of a block of the cluster, and the numbers of a block beside it, where blocks load for one another and differ; `None` where that is not known.
#[allow(clippy::type_complexity)]
fn most(kernel: &LoweredKernel, body: &[Stmt], count: &Index) -> Option<Option<(Index, BTreeSet<(i64, i64)>)>> {
    let mut shared = false;
    visit::walk(body, &mut |s| {
        shared |= matches!(s, Stmt::Bulk(BulkCopy { way: Way::Load { multicast: Some(_), .. }, .. }));
    });
    let Some(cluster) = kernel.launch.iter().find(|l| l.axis == Axis::Cluster && count.mentions(l.var)) else {
        return Some(None);
    };
    if !shared {
        return Some(None);
    }
    let rank = |rank: i64| visit::subst_index(count, &[(cluster.var, Index::Int(rank))].into());
    let ranks: Vec<Index> = (0..i64::from(cluster.extent)).map(rank).collect();
    let env = kernel.env();
    let largest = ranks.iter().cloned().reduce(|a, b| a.max(b))?;
    let mut free = Free { env: &env, found: Vec::new() };
    let ranks: Vec<Index> = ranks.iter().map(|i| free.opened(i)).collect();
    let extents: Vec<(Var, i64)> =
        free.ranges().into_iter().enumerate().map(|(n, r)| Some((Free::var(n), r?.1))).collect::<Option<_>>()?;
    let lows: Vec<i64> = free.ranges().into_iter().flatten().map(|(low, _)| low).collect();
    let mut pairs = BTreeSet::new();
    for point in Points::within(&extents, MOST_VALUES)? {
        let value = |v: Var| point.iter().zip(&lows).find(|((other, _), _)| *other == v).map(|((_, n), low)| low + n);
        let own: Vec<i64> = ranks.iter().map(|i| i.eval(&value)).collect::<Option<_>>()?;
        let of_cluster = own.iter().copied().max()?;
        pairs.extend(own.into_iter().map(|n| (n, of_cluster)));
    }
    Some(Some((simplify(&largest, &env), pairs)))
}

/// Variables, and quotients of them, that an index depends on. Their values are taken together as they come: some may not occur.
struct Free<'a> {
    env: &'a Env,
    found: Vec<Index>,
}

impl Free<'_> {
    /// The variable for the one of this number.
    fn var(number: usize) -> Var {
        Var(u32::MAX - number as u32)
    }

    /// The index of such variables.
    fn opened(&mut self, index: &Index) -> Index {
        match index {
            Index::Bin(op, a, b) if *op != IndexOp::FloorDiv || a.as_var().is_none() || b.as_int().is_none() => {
                Index::bin(*op, self.opened(a), self.opened(b))
            }
            Index::Int(_) => index.clone(),
            _ => {
                let at = self.found.iter().position(|i| i == index).unwrap_or_else(|| {
                    self.found.push(index.clone());
                    self.found.len() - 1
                });
                Index::Var(Free::var(at))
            }
        }
    }

    /// The least value of each, and how many there are.
    fn ranges(&self) -> Vec<Option<(i64, i64)>> {
        self.found.iter().map(|i| bounds(i, self.env).map(|(low, high)| (low, high - low + 1))).collect()
    }
}
