//! Whether two accesses can touch the same bytes from different threads of a block.
//!
//! Decided exactly, by enumerating the threads and the loop values that the indices mention, up to a budget; two indices
//! with the same mixed-radix digits are told apart without. Else the answer is [`Level::Unknown`]: a barrier is safe.

mod decide;
mod enumerate;
mod reason;
mod ring;
pub use decide::Meets;
use enumerate::Accesses;

use crate::intrin;
use crate::ir::lowered::LoweredKernel;
use crate::ir::lowered::threads;
use crate::ir::simplify::{self, Affine, Env};
use crate::ir::{
    BlockId, BufferId, Cond, Descriptor, Expr, For, Func, Held, Index, Peers, Scope, Stmt, Store, Var, Way, visit,
};
use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

/// How far apart the threads are that depend on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// They share no bytes, or both read.
    Apart,
    /// Every thread depends on itself alone.
    Own,
    /// Only on threads of its own warp.
    Warp,
    /// Only on threads of its own warpgroup, where warpgroups work together.
    Group,
    /// On threads of other warps.
    Block,
    /// On threads of other blocks of the cluster.
    Cluster,
    /// Not decided.
    Unknown,
}

/// Who makes an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The threads.
    Threads,
    /// A copy that a thread has started: it lands when that one has waited for it.
    Copy,
    /// The copy engine, for one thread, or an asynchronous store to other blocks: it is done when an mbarrier says so.
    Load {
        /// The mbarriers.
        barrier: u32,
    },
    /// The copy engine, for one thread: a store, which has read when the thread has waited for it.
    Store {
        /// The thread is one of so many warps.
        warps: u32,
    },
}

/// One access of shared or global memory.
#[derive(Debug)]
pub struct Site {
    buffer: BufferId,
    pub write: bool,
    pub by: By,
    index: Index,
    lanes: u32,
    /// Lanes of a warp make the access together: whichever gives the address, it counts as made by all of them.
    together: bool,
    /// It goes past the threads' own view of shared memory: wgmma reads it for a whole warpgroup.
    proxied: bool,
    /// What must hold for the access to happen.
    cond: Cond,
    /// The loops around it.
    loops: Vec<(Var, i64)>,
    /// It writes to shared memory of other blocks of the cluster: a multicast copy, or a store.
    pub to_peers: bool,
    /// The name of the block around it.
    pub block: String,
    /// Its index taken apart, the first and the last element, and all elements: each pair of accesses asks for them.
    parts: OnceCell<Parts>,
    span: OnceCell<Option<(i64, i64)>>,
    accesses: OnceCell<Option<Rc<Accesses>>>,
}

/// An index taken apart.
#[derive(Debug)]
struct Parts {
    /// The terms with variables of the block, sorted.
    of_block: Vec<(Index, i64)>,
    /// These terms have no other variables.
    only_blocks: bool,
    /// The other terms.
    rest: Affine,
}

impl Site {
    /// Whether it is a store of threads to other blocks of the cluster.
    pub fn is_remote(&self) -> bool {
        self.to_peers && self.by == By::Threads
    }
}

/// All accesses of a kernel.
pub struct Sites<'a> {
    kernel: &'a LoweredKernel,
    lane: Index,
    threads: Vec<(Var, i64)>,
    /// The block has several warpgroups that work together.
    grouped: bool,
    /// The variables of the block that change from tile to tile, where it runs several.
    changing: Vec<Var>,
    sites: Vec<Site>,
    loops: Vec<(Var, i64)>,
    /// One thread of so many warps makes the accesses at hand.
    elected: u32,
    /// What was decided about two, by the numbers of the pair.
    known: RefCell<Vec<Option<Level>>>,
}

impl<'a> Sites<'a> {
    pub fn new(kernel: &'a LoweredKernel) -> Self {
        let threads = kernel.thread_vars();
        let of_groups = kernel.instructions().iter().any(|row| row.level == intrin::Level::Warpgroup);
        let count: i64 = threads.iter().map(|(_, n)| *n).product();
        let grouped = of_groups && threads.len() == 1 && count > threads::WARPGROUP && count % threads::WARPGROUP == 0;
        let tile = kernel.persistent().map(|(tile, _)| tile);
        let derived = kernel.derived.iter().map(|d| d.var).filter(|_| tile.is_some());
        let changing = tile.into_iter().chain(derived).collect();
        let (lane, known) = (kernel.lane(), RefCell::default());
        Sites { kernel, lane, threads, grouped, changing, sites: Vec::new(), loops: Vec::new(), elected: 0, known }
    }

    /// The kernel's program.
    pub fn func(&self) -> &'a Func {
        &self.kernel.func
    }

    /// The numbers of the accesses.
    pub fn ids(&self) -> std::ops::Range<usize> {
        0..self.sites.len()
    }

    pub fn site(&self, id: usize) -> &Site {
        &self.sites[id]
    }

    pub fn enter(&mut self, l: &For) {
        // The round of a loop over tiles takes the loop's place; the tile itself is a variable of the block.
        self.loops.push((super::var_of(l), l.extent.as_int().unwrap_or(i64::MAX)));
    }

    pub fn leave(&mut self) {
        self.loops.pop();
    }

    /// Numbers the accesses of a statement that holds no place for a barrier.
    pub fn collect(&mut self, stmt: &Stmt) -> Vec<usize> {
        let first = self.sites.len();
        self.gather(stmt, &Cond::TRUE, None);
        (first..self.sites.len()).collect()
    }

    fn gather(&mut self, stmt: &Stmt, cond: &Cond, block: Option<BlockId>) {
        match stmt {
            Stmt::For(l) => {
                self.enter(l);
                l.body.iter().for_each(|s| self.gather(s, cond, block));
                self.leave();
            }
            Stmt::Block(b) => b.body.iter().for_each(|s| self.gather(s, cond, Some(b.name))),
            Stmt::If(i) => {
                let both = cond.clone().and(i.cond.clone());
                i.body.iter().for_each(|s| self.gather(s, &both, block));
            }
            Stmt::Store(s) => self.gather_store(s, cond, block),
            Stmt::Call(call) => {
                for o in &call.operands {
                    if let Held::Descriptor(d) = &o.held {
                        let reach = self.reach(o.buffer, d);
                        let site = self.add((o.buffer, false, By::Threads), &o.indices[0], reach, cond, block);
                        site.into_iter().for_each(|s| s.proxied = true);
                    }
                    let Some((index, lanes)) = o.run_of(&self.lane) else { continue };
                    for (_, write) in [(o.reads, false), (o.writes, true)].into_iter().filter(|x| x.0) {
                        let site = self.add((o.buffer, write, By::Threads), &index, lanes, cond, block);
                        site.into_iter().for_each(|s| s.together = true);
                    }
                }
            }
            Stmt::Elect(e) => {
                let (warps, outside) = (i64::from(e.warps), self.elected);
                let warp = threads::warp(&self.kernel.launch).floormod(warps);
                // Which of the lanes it is makes no difference: it is always the same one.
                let one = Cond::eq(warp, 0).and(Cond::eq(self.lane.clone(), 0));
                let cond = cond.clone().and(one);
                self.elected = e.warps;
                e.body.iter().for_each(|s| self.gather(s, &cond, block));
                self.elected = outside;
            }
            Stmt::Bulk(copy) => {
                let Some(map) = self.kernel.maps.get(copy.map as usize) else { return };
                let by = match &copy.way {
                    Way::Load { full, .. } => By::Load { barrier: full.barrier },
                    Way::Store => By::Store { warps: self.elected },
                };
                let elements = map.tile.iter().product::<i64>();
                let write = by != By::Store { warps: self.elected };
                let elements = u32::try_from(elements).unwrap_or(u32::MAX);
                let to_peers = matches!(copy.way, Way::Load { multicast: Some(_), .. });
                let site = self.add((copy.shared, write, by), &copy.indices[0], elements, cond, block);
                site.into_iter().for_each(|s| s.to_peers = to_peers);
            }
            Stmt::Role(r) => r.body.iter().for_each(|s| self.gather(s, cond, block)),
            Stmt::Sync(_) => {}
        }
    }

    fn gather_store(&mut self, s: &Store, cond: &Cond, block: Option<BlockId>) {
        visit::walk_expr(&s.value, &mut |e| {
            if let Expr::Load { buffer, indices, lanes } = e {
                self.add((*buffer, false, By::Threads), &indices[0], *lanes, cond, block);
            }
        });
        let full = s.remote.as_ref().and_then(|to| to.full.as_ref());
        let by = match full {
            Some(full) => By::Load { barrier: full.barrier },
            None if s.asynchronous => By::Copy,
            None => By::Threads,
        };
        // Equal places in two blocks are different elements.
        let place = match s.remote.as_ref().map(|to| &to.peers) {
            Some(Peers::One(rank)) => {
                let elements = self.kernel.func.buffer(s.buffer).elements().unwrap_or(i64::MAX);
                &(rank.clone() * elements + s.indices[0].clone())
            }
            _ => &s.indices[0],
        };
        let site = self.add((s.buffer, true, by), place, s.lanes, cond, block);
        site.into_iter().for_each(|site| site.to_peers = s.remote.is_some());
    }

    /// The new site; none where nothing here has to order the access.
    fn add(
        &mut self,
        (buffer, write, by): (BufferId, bool, By),
        index: &Index,
        lanes: u32,
        cond: &Cond,
        block: Option<BlockId>,
    ) -> Option<&mut Site> {
        let func = &self.kernel.func;
        let read_only = || !visit::writes(&func.body).contains(&buffer);
        let scope = func.buffer(buffer).scope;
        // What passes between roles is ordered by the mbarriers of its ring, but for what the plan laid over the ring.
        if scope == Scope::Local
            || (func.buffer(buffer).role.is_some() && (write || !self.is_laid_over(buffer)))
            || (scope == Scope::Global && !write && read_only())
        {
            return None;
        }
        let block = block.map_or_else(|| "?".to_string(), |b| func.block_name(b).to_string());
        let loops = self.loops.clone();
        let (index, cond) = (index.clone(), cond.clone());
        self.sites.push(Site {
            buffer,
            write,
            by,
            index,
            lanes,
            together: false,
            proxied: false,
            cond,
            loops,
            to_peers: false,
            block,
            parts: OnceCell::new(),
            span: OnceCell::new(),
            accesses: OnceCell::new(),
        });
        self.sites.last_mut()
    }

    /// The elements from the first to the last that a tile behind a descriptor has.
    fn reach(&self, buffer: BufferId, d: &Descriptor) -> u32 {
        let bits = i64::from(self.kernel.func.buffer(buffer).dtype.bits());
        let (width, eights) = (i64::from(d.swizzle) * 8 / bits, i64::from(d.stride) * 8 / bits);
        let panels = if d.along_k { 1 } else { (d.tile[1] + width - 1) / width.max(1) };
        let elements = (panels - 1) * i64::from(d.leading) * 8 / bits + (d.tile[0] + 7) / 8 * eights;
        u32::try_from(elements).unwrap_or(u32::MAX)
    }

    /// Whether threads write there what wgmma or the copy engine touches, which do not see it without a fence; or read there
    /// what TMA overwrites: a barrier does not wait for reads in flight, and only generic accesses after it are ordered after
    /// them.
    pub fn feeds_proxy(&self, id: usize) -> bool {
        let a = &self.sites[id];
        let meets = |b: &&Site| if a.write { b.is_proxied() } else { matches!(b.by, By::Load { .. }) };
        let touches = |b: &&Site| meets(b) && (a.buffer == b.buffer || self.overlap(a.buffer, b.buffer));
        !a.is_proxied() && self.sites.iter().any(|b| touches(&b))
    }

    /// Whether copies that other blocks of the cluster start land there.
    pub fn is_reached_by_peers(&self, id: usize) -> bool {
        let a = &self.sites[id];
        self.sites.iter().any(|b| b.to_peers && (a.buffer == b.buffer || self.overlap(a.buffer, b.buffer)))
    }

    /// The global buffers through which threads pass values, as far as can be decided.
    pub fn exchanged(&self) -> Vec<BufferId> {
        let global = |s: &Site| self.kernel.func.buffer(s.buffer).scope == Scope::Global;
        let passes = |id: BufferId| {
            let of: Vec<usize> = (0..self.sites.len()).filter(|s| self.sites[*s].buffer == id).collect();
            of.iter().any(|a| of.iter().any(|b| a <= b && !matches!(self.level(*a, *b), Level::Apart | Level::Own)))
        };
        let mut ids: Vec<BufferId> = self.sites.iter().filter(|s| global(s)).map(|s| s.buffer).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().filter(|id| passes(*id)).collect()
    }

    /// The name of what a site accesses.
    pub fn buffer_name(&self, id: usize) -> &str {
        &self.kernel.func.buffer(self.sites[id].buffer).name
    }

    /// How far apart the threads are that depend on each other through these two accesses.
    pub fn level(&self, before: usize, now: usize) -> Level {
        let key = (before.min(now), before.max(now));
        let pair = key.1 * (key.1 + 1) / 2 + key.0;
        if let Some(Some(level)) = self.known.borrow().get(pair) {
            return *level;
        }
        let [a, b] = [key.0, key.1].map(|id| &self.sites[id]);
        let meets = a.buffer == b.buffer || self.overlap(a.buffer, b.buffer);
        let level = match self.decide(a, b) {
            // The copy engine is asked by whichever lane was elected.
            // A block stores where another one reads, or what shared these bytes. Two stores to a buffer go to the places of their
            // own ranks.
            _ if (a.is_remote() || b.is_remote()) && meets && (!a.is_remote() || !b.is_remote()) => Level::Cluster,
            Level::Own if a.is_of_engine() != b.is_of_engine() => Level::Warp,
            level => level,
        };
        let mut known = self.known.borrow_mut();
        let count = known.len().max(pair + 1);
        known.resize(count, None);
        known[pair] = Some(level);
        level
    }

    fn decide(&self, a: &Site, b: &Site) -> Level {
        if !a.write && !b.write {
            return Level::Apart;
        }
        if a.buffer != b.buffer {
            return if self.overlap(a.buffer, b.buffer) { self.widest() } else { Level::Apart };
        }
        let Some((a, b)) = self.same_block(a, b) else { return Level::Unknown };
        if self.same_digits(&a, &b) {
            return Level::Own;
        }
        if self.far_apart(&a, &b) {
            return Level::Apart;
        }
        // What warps store by themselves may be nearer yet.
        let by_warps = [&a, &b].iter().any(|f| f.site.by == By::Store { warps: 1 });
        if !by_warps && [&a, &b].iter().any(|f| f.site.is_proxied()) && self.groups_apart(&a, &b) {
            return Level::Group;
        }
        if a.site.proxied || b.site.proxied {
            return self.widest();
        }
        if std::ptr::eq(a.site, b.site) && a.site.together && self.once(&a) {
            return Level::Own;
        }
        self.enumerate(&a, &b)
    }

    /// Whether another buffer has some of the bytes.
    fn is_laid_over(&self, id: BufferId) -> bool {
        let others = (0..self.kernel.func.buffers.len() as u32).map(BufferId).filter(|other| *other != id);
        others.into_iter().any(|other| self.overlap(id, other))
    }

    /// Different buffers conflict where the plan laid them over each other.
    fn overlap(&self, a: BufferId, b: BufferId) -> bool {
        let range = |id: BufferId| {
            let b = self.kernel.func.buffer(id);
            let from = u64::from(b.offset?);
            Some((from, from + b.dtype.bytes_of(b.elements()? as u64)))
        };
        match (range(a), range(b)) {
            (Some(a), Some(b)) => a.0 < b.1 && b.0 < a.1,
            _ => false,
        }
    }

    fn widest(&self) -> Level {
        let threads: i64 = self.threads.iter().map(|(_, n)| *n).product();
        if threads <= 32 { Level::Warp } else { Level::Block }
    }

    /// The two indices without what depends on the block alone; `None` where that part is not the same or not apart. Of
    /// shared memory a block that walks several tiles comes back to with another number.
    fn same_block<'s>(&self, a: &'s Site, b: &'s Site) -> Option<(Flat<'s>, Flat<'s>)> {
        let blocks = self.kernel.block_vars();
        let shared = self.kernel.func.buffer(a.buffer).scope == Scope::Shared;
        if shared && [a, b].iter().any(|s| self.changing.iter().any(|v| s.index.mentions(*v))) {
            return None;
        }
        let split = |s: &'s Site| s.parts.get_or_init(|| Parts::of(&s.index, &blocks));
        let (x, y) = (split(a), split(b));
        let flat = |site: &'s Site, parts: &'s Parts| Flat { site, affine: Cow::Borrowed(&parts.rest) };
        let same = x.only_blocks && y.only_blocks && x.of_block == y.of_block;
        same.then(|| (flat(a, x), flat(b, y)))
    }

    /// Whether both indices are the same mixed-radix number, in which the threads are digits: equal elements then mean
    /// equal threads.
    fn same_digits(&self, a: &Flat, b: &Flat) -> bool {
        if a.site.together || b.site.together {
            return false;
        }
        match (self.digits(a), self.digits(b)) {
            (Some(x), Some(y)) => x == y && a.affine.constant == b.affine.constant && a.site.lanes == b.site.lanes,
            _ => false,
        }
    }

    /// Whether all elements of one lie before all of the other, as those of different stages do.
    fn far_apart(&self, a: &Flat, b: &Flat) -> bool {
        // Both are whole indices, without what depends on the block.
        let span = |flat: &Flat| *flat.site.span.get_or_init(|| self.span(flat));
        match (span(a), span(b)) {
            (Some(a), Some(b)) => a.1 < b.0 || b.1 < a.0,
            _ => false,
        }
    }

    /// Whether no warpgroup touches what another one does.
    fn groups_apart(&self, a: &Flat, b: &Flat) -> bool {
        let [(_, threads)] = self.threads[..] else { return false };
        if !self.grouped {
            return false;
        }
        let spans = |flat: &Flat| (0..threads / threads::WARPGROUP).map(|g| self.span_in(flat, g)).collect();
        let (of_a, of_b): (Vec<_>, Vec<_>) = (spans(a), spans(b));
        let apart = |g: usize, h: usize| match (of_a[g], of_b[h]) {
            (Some(a), Some(b)) => a.1 < b.0 || b.1 < a.0,
            _ => false,
        };
        (0..of_a.len()).all(|g| (0..of_b.len()).all(|h| g == h || apart(g, h)))
    }

    /// The first and the last element of a warpgroup.
    fn span_in(&self, flat: &Flat, group: i64) -> Option<(i64, i64)> {
        let first = group * threads::WARPGROUP;
        self.span_of(flat, |_, _| (first, first + threads::WARPGROUP - 1))
    }

    /// The first and the last element.
    fn span(&self, flat: &Flat) -> Option<(i64, i64)> {
        self.span_of(flat, |_, n| (0, n - 1))
    }

    /// The first and the last element of threads in a range.
    fn span_of(&self, flat: &Flat, range: impl Fn(Var, i64) -> (i64, i64)) -> Option<(i64, i64)> {
        let mut env = Env::new();
        flat.site.loops.iter().for_each(|(v, n)| env.bind(*v, 0, *n - 1));
        for (v, n) in &self.threads {
            let (first, last) = range(*v, *n);
            env.bind(*v, first, last);
        }
        let (first, last) = simplify::bounds(&flat.affine.to_index(), &env)?;
        Some((first, last.checked_add(i64::from(flat.site.lanes) - 1)?))
    }

    /// (coefficient, extent, thread) of each digit, smallest first, if they do not overlap and name every thread.
    fn digits(&self, flat: &Flat) -> Option<Vec<(i64, i64, Option<Var>)>> {
        let mut digits = Vec::new();
        for (atom, c) in &flat.affine.terms {
            let var = atom.as_var()?;
            let thread = self.threads.iter().find(|(v, _)| *v == var);
            let extent = thread.or_else(|| flat.site.loops.iter().find(|(v, _)| *v == var))?.1;
            digits.push((*c, extent, thread.map(|(v, _)| *v)));
        }
        digits.sort_unstable();
        let mut span = i64::from(flat.site.lanes);
        for (c, extent, _) in &digits {
            if *c < span {
                return None;
            }
            span = c.checked_mul(*extent)?;
        }
        let named = |v: Var| digits.iter().any(|(_, _, t)| *t == Some(v));
        self.threads.iter().all(|(v, n)| *n == 1 || named(*v)).then_some(digits)
    }
}

impl Parts {
    fn of(index: &Index, blocks: &[Var]) -> Parts {
        let affine = simplify::affine(index);
        let (mut of_block, rest): (Vec<_>, Vec<_>) =
            affine.terms.into_iter().partition(|(atom, _)| blocks.iter().any(|v| atom.mentions(*v)));
        of_block.sort();
        let mut only_blocks = true;
        of_block.iter().for_each(|(atom, _)| atom.for_each_var(&mut |v| only_blocks &= blocks.contains(&v)));
        Parts { of_block, only_blocks, rest: Affine { terms: rest, constant: affine.constant } }
    }
}

impl Site {
    /// Whether wgmma or the copy engine makes it.
    pub fn is_proxied(&self) -> bool {
        self.proxied || self.is_of_engine()
    }

    /// Whether the copy engine makes it.
    fn is_of_engine(&self) -> bool {
        matches!(self.by, By::Load { .. } | By::Store { .. })
    }

    fn mentions(&self, v: Var) -> bool {
        self.index.mentions(v) || self.cond.mentions(v)
    }
}

/// A site with its index taken apart.
struct Flat<'a> {
    site: &'a Site,
    affine: Cow<'a, Affine>,
}
