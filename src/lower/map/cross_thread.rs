//! Cross-thread reductions: shuffles within a warp, shared memory above it, always in the same order.
//!
//! Each thread combines its own terms in a register. The threads that differ in the reduced axes alone then combine their values:
//! first by a butterfly of shuffles, where the group is inside a warp at a power of two; then each warp
//! writes one value to shared memory, and every thread combines all of them as a balanced tree. Every thread of
//! the group has the result, with the same bits. Blocks of a cluster that reduce together then send their values to each
//! other's shared memory, where an mbarrier counts the bytes (st.async), and combine them in the same way.

use crate::error::{Code, Error, Result};
use crate::ir::cross_thread::{self, CrossThread};
use crate::ir::lowered::LoweredKernel;
use crate::ir::lowered::threads;
use crate::ir::{
    Axis, Block, BufferId, Cond, Expr, For, Func, Index, Iter, IterKind, LoopKind, Mbarrier, Peers, Remote, Scope,
    Slot, Stmt, Store, Var, visit,
};
use crate::lower::map::bind;
use crate::lower::map::units;
use crate::lower::target::admit::admit_block;
use crate::target::Target;

/// The most values that a thread reads from shared memory to combine them at once.
const READ: i64 = 32;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, target: &Target) -> Result<()> {
    let func = &mut kernel.func;
    let all = cross_thread::find(func).map_err(|r| {
        let (block, over) = (func.block_name(r.block), func.var_name(r.over));
        Error::input(Code::LowerReduction, format!("block {block} reduces over {over}: {}", r.why))
            .about_loop(over)
            .about_block(block)
            .help(r.help)
    })?;
    if all.is_empty() {
        return Ok(());
    }
    let mut found = bind::found(func, |_, axis| !axis.is_block_level())?;
    units::warps_to_threads(func, &mut found)?;
    let extent = |axis| found.iter().find(|(a, ..)| *a == axis).map_or(1, |(_, n, _)| *n);
    let block = [Axis::ThreadX, Axis::ThreadY, Axis::ThreadZ].map(extent);
    // The number of blocks that the pass writes grows with the number of threads: a block that no chip runs is refused first.
    admit_block(kernel, block, target)?;
    let (func, block) = (&mut kernel.func, block.map(i64::from));
    for one in all {
        Group::of(&one, block).write(func, &one);
    }
    Ok(())
}

/// The threads that reduce together.
struct Group {
    /// How many.
    threads: i64,
    /// How many of them, side by side in it, shuffle.
    shuffled: i64,
    /// The distance of two neighbours, in threads of the block.
    step: i64,
}

impl Group {
    fn of(one: &CrossThread, block: [i64; 3]) -> Group {
        let axes = [Axis::ThreadX, Axis::ThreadY, Axis::ThreadZ];
        let taken = axes.map(|a| one.threads.iter().any(|t| t.0 == a));
        let threads = one.threads.iter().map(|t| t.2).product();
        let several: Vec<usize> = (0..3).filter(|n| block[*n] > 1).collect();
        let Some(first) = several.iter().position(|n| taken[*n]) else {
            return Group { threads, shuffled: 1, step: 1 };
        };
        let step: i64 = several[..first].iter().map(|n| block[*n]).product();
        let run = several[first..].iter().take_while(|n| taken[**n]).count();
        let together = several[first..].iter().skip(run).all(|n| !taken[*n]);
        let lanes = threads::LANES / step.max(1);
        let power = |n: i64| n > 0 && n & (n - 1) == 0;
        let shuffled = match together && power(step) && step < threads::LANES {
            true if power(threads) && threads <= lanes => threads,
            true if threads % lanes == 0 => lanes,
            _ => 1,
        };
        Group { threads, shuffled, step }
    }

    fn write(&self, func: &mut Func, one: &CrossThread) {
        let name = func.block_name(one.block.name).to_string();
        let inside: Vec<For> = one.inside().into_iter().cloned().collect();
        let serial: Vec<&For> = inside.iter().filter(|l| l.axis().is_none()).collect();
        let dims: Vec<(Var, Index)> = serial.iter().flat_map(|l| l.defines()).collect();
        let shape: Vec<Index> = dims.iter().map(|d| d.1.clone()).collect();
        let shape = if shape.is_empty() { vec![Index::Int(1)] } else { shape };
        let own = one.buffers(func, "own", &shape, Scope::Local);
        let at: Vec<Index> = dims.iter().map(|d| Index::Var(d.0)).collect();
        let at = if at.is_empty() { vec![Index::Int(0)] } else { at };
        let partial = one.partial(func, &own, at.clone());

        let mut after = Vec::new();
        let mut write = Write { func, one, name: &name, own: &own, at: &at, serial: &serial };
        let together = (one.reduction.is_joint() && self.shuffled > 1)
            .then(|| ["lower", "upper"].map(|what| one.buffers(write.func, what, &shape, Scope::Local)));
        let mut mask = self.shuffled / 2;
        while mask > 0 {
            let lanes = (mask * self.step) as u32;
            after.extend(match &together {
                Some([lower, upper]) => write.shuffle_together(mask, lanes, [lower, upper]),
                None => write.shuffle(lanes),
            });
            mask /= 2;
        }
        let left = self.threads / self.shuffled;
        if left > 1 {
            after.extend(write.through_shared(self, left));
        }
        if let Some((rank, blocks)) = one.cluster.filter(|(_, blocks)| *blocks > 1) {
            after.extend(write.through_cluster(rank, blocks));
        }
        after.extend(write.result(&inside));
        one.replace(func, partial, Vec::new(), after);
    }
}

/// What writes the statements of one reduction.
struct Write<'a> {
    func: &'a mut Func,
    one: &'a CrossThread,
    name: &'a str,
    /// The thread's partial results, one for each output, and their indices over the serial loops inside.
    own: &'a [BufferId],
    at: &'a [Index],
    serial: &'a [&'a For],
}

/// A block over loops that are new: what it needs to speak of them.
struct Nest {
    loops: Vec<For>,
    iters: Vec<Iter>,
    /// From the loops stood in for to the iterators.
    map: visit::Map,
}

impl Write<'_> {
    /// Stand-ins for loops, with an iterator for each.
    fn nest(&mut self, of: &[&For]) -> Nest {
        let (loops, vars) = cross_thread::stand_in(self.func, of);
        let mut nest = Nest { iters: Vec::new(), map: visit::Map::new(), loops };
        for ((old, new), l) in vars.into_iter().zip(of) {
            nest.map.insert(old, self.iterator(new, l.extent.clone(), &mut nest.iters));
        }
        nest
    }

    fn iterator(&mut self, var: Var, extent: Index, iters: &mut Vec<Iter>) -> Index {
        let own = self.func.add_var(format!("v{}", self.func.var_name(var)));
        iters.push(Iter { var: own, kind: IterKind::Spatial, extent, binding: Index::Var(var) });
        Index::Var(own)
    }

    fn own_at(&self, map: &visit::Map) -> Vec<Index> {
        self.at.iter().map(|i| visit::subst_index(i, map)).collect()
    }

    fn block(&mut self, what: &str, nest: Nest, predicate: Cond, body: Vec<Stmt>) -> Vec<Stmt> {
        let wanted = format!("{}_{what}", self.name);
        let taken = |n: &String| self.func.blocks.iter().any(|b| b == n);
        let name = (0..).map(|n| if n == 0 { wanted.clone() } else { format!("{wanted}_{n}") }).find(|n| !taken(n));
        let name = self.func.add_block(name.unwrap_or(wanted));
        let block = Block { name, iters: nest.iters, predicate, init: None, body, copy_with: None, role: None };
        cross_thread::nested(nest.loops, vec![Stmt::Block(block)])
    }

    /// What a thread has of its partial results.
    fn loads(&self, at: &[Index]) -> Vec<Expr> {
        loads(self.own, at)
    }

    /// Each thread combines its values with those of the lane whose number differs in `lanes`.
    fn shuffle(&mut self, lanes: u32) -> Vec<Stmt> {
        let serial = self.serial.to_vec();
        let nest = self.nest(&serial);
        let at = self.own_at(&nest.map);
        let own = self.loads(&at);
        let other: Vec<Expr> = own.iter().map(|load| Expr::Shuffle(lanes, Box::new(load.clone()))).collect();
        let body = stores(self.own, &at, self.one.reduction.combine(&own, &other));
        self.block("shuffle", nest, Cond::TRUE, body)
    }

    /// Several values that are combined together: each is exchanged once, and both lanes combine those of the lower lane with those
    /// of the upper one, so that they have the same bits.
    fn shuffle_together(&mut self, mask: i64, lanes: u32, [lower, upper]: [&[BufferId]; 2]) -> Vec<Stmt> {
        let serial = self.serial.to_vec();
        let nest = self.nest(&serial);
        let at = self.own_at(&nest.map);
        let exchanged = self.loads(&at).into_iter().map(|load| Expr::Shuffle(lanes, Box::new(load))).collect();
        let body = stores(upper, &at, exchanged);
        let mut out = self.block("shuffle", nest, Cond::TRUE, body);

        let (nest, _, number) = self.threads();
        let at = self.own_at(&nest.map);
        let is_lower = Expr::Cond(Box::new(Cond::eq(number.floordiv(mask).floormod(2), 0)));
        let [own, first, last] = [self.own, lower, upper].map(|of| loads(of, &at));
        let mut body = Vec::new();
        for (n, (own, other)) in own.iter().zip(&last).enumerate() {
            let [a, b] =
                [(own, other), (other, own)].map(|(a, b)| Expr::select(is_lower.clone(), a.clone(), b.clone()));
            body.extend([(lower[n], a), (upper[n], b)].map(|(to, e)| Stmt::Store(Store::new(to, at.clone(), e))));
        }
        body.extend(stores(self.own, &at, self.one.reduction.combine(&first, &last)));
        out.extend(self.block("combine", nest, Cond::TRUE, body));
        out
    }

    /// One thread of those that have shuffled writes their value, and each reads those of its whole group.
    fn through_shared(&mut self, group: &Group, left: i64) -> Vec<Stmt> {
        let across = self.buffers("across", left);
        let mut out =
            self.spread(&across, |p| p.clone().floordiv(group.shuffled), |p| Cond::eq(p.floormod(group.shuffled), 0));
        if left <= READ {
            out.extend(self.gather(&across, left));
            return out;
        }
        // Too many for each thread to read: some threads combine a part each first.
        let parts = (1..=READ).find(|n| left.div_euclid(*n) < READ).unwrap_or(READ);
        let again = self.buffers("again", parts);
        out.extend(self.stride(&across, left, parts));
        out.extend(self.spread(&again, |p| p.clone(), |p| Cond::lt(p, parts)));
        out.extend(self.gather(&again, parts));
        out
    }

    /// One thread of each group sends its value to every block of the cluster; each thread then reads those of all blocks.
    fn through_cluster(&mut self, rank: Var, blocks: i64) -> Vec<Stmt> {
        let ranks = self.buffers("ranks", blocks);
        let (mut nest, mut rows, number) = self.threads();
        let new = self.func.add_var(cross_thread::fresh(self.func, self.func.var_name(rank)));
        nest.loops.insert(0, For::new(new, blocks, LoopKind::bound(Axis::Cluster), Vec::new()));
        let own = self.iterator(new, Index::Int(blocks), &mut nest.iters);
        rows.push(own);
        let loops: visit::Map = nest.iters.iter().map(|i| (i.var, i.binding.clone())).collect();
        let first = visit::subst_cond(&Cond::eq(number, 0), &loops);
        // st.async has 4 or 8 bytes.
        let wide = ranks.iter().all(|b| matches!(self.func.buffer(*b).dtype.bits(), 32 | 64));
        // In a loop a barrier of the cluster orders the next values after the reads of these.
        let repeated = |l: &For| l.is_persistent() || l.axis().is_none() && l.extent.as_int() != Some(1);
        let once = !self.one.around().iter().any(repeated);
        let full = ranks.first().filter(|_| wide && once).map(|first| {
            let name = format!("{}_full", self.func.buffer(*first).name);
            self.func.mbarriers.push(Mbarrier { name, slots: 1, arrivals: 1, offset: None });
            Slot { barrier: self.func.mbarriers.len() as u32 - 1, index: Index::Int(0) }
        });
        let remote = u32::try_from(blocks).ok().map(|blocks| Remote { peers: Peers::First(blocks), full });
        let send = |(to, value): (&BufferId, Expr)| {
            Stmt::Store(Store { remote: remote.clone(), ..Store::new(*to, rows.clone(), value) })
        };
        let body = ranks.iter().zip(self.loads(&self.own_at(&nest.map))).map(send).collect();
        let mut out = self.block("send", nest, first, body);
        out.extend(self.gather(&ranks, blocks));
        out
    }

    /// Shared buffers: one row for each group and each value of its threads.
    fn buffers(&mut self, what: &str, row: i64) -> Vec<BufferId> {
        let apart = self.one.apart().into_iter().chain(self.serial.iter().copied());
        let mut shape: Vec<Index> = apart.flat_map(|l| l.defines()).map(|d| d.1).collect();
        shape.push(Index::Int(row));
        self.one.buffers(self.func, what, &shape, Scope::Shared)
    }

    /// Loops over the threads of the block, as far as they matter, and the values of each: the nest, where a row begins, and
    /// the number of a thread in its group.
    fn threads(&mut self) -> (Nest, Vec<Index>, Index) {
        let apart: Vec<For> = self.one.apart().into_iter().cloned().collect();
        // Loops around the reduction stand around what is behind it as well.
        let inside: Vec<Var> = self.one.inside().iter().map(|l| l.var).collect();
        let (here, around): (Vec<&For>, Vec<&For>) = apart.iter().partition(|l| inside.contains(&l.var));
        let over: Vec<&For> = here.into_iter().chain(self.serial.iter().copied()).collect();
        let mut nest = self.nest(&over);
        for (var, extent) in around.into_iter().flat_map(For::defines) {
            let own = self.iterator(var, extent, &mut nest.iters);
            nest.map.insert(var, own);
        }
        let rows = apart.iter().chain(self.serial.iter().copied()).flat_map(For::defines);
        let rows = rows.map(|(v, _)| nest.map.get(&v).cloned().unwrap_or(Index::Var(v))).collect();
        let (mut number, mut before) = (Index::Int(0), 1);
        for (axis, var, extent) in &self.one.threads {
            let new = self.func.add_var(cross_thread::fresh(self.func, self.func.var_name(*var)));
            nest.loops.insert(0, For::new(new, *extent, LoopKind::bound(*axis), Vec::new()));
            let own = self.iterator(new, Index::Int(*extent), &mut nest.iters);
            number = number + own * before;
            before *= extent;
        }
        (nest, rows, number)
    }

    /// Threads write their values to a row: each where and whether, from its number in the group.
    fn spread(&mut self, to: &[BufferId], at: impl Fn(&Index) -> Index, does: impl Fn(Index) -> Cond) -> Vec<Stmt> {
        let (nest, mut rows, number) = self.threads();
        rows.push(at(&number));
        let values = self.loads(&self.own_at(&nest.map));
        // A predicate speaks of loops, not of iterators.
        let loops: visit::Map = nest.iters.iter().map(|i| (i.var, i.binding.clone())).collect();
        let predicate = visit::subst_cond(&does(number), &loops);
        self.block("spread", nest, predicate, stores(to, &rows, values))
    }

    /// Each of the first threads of a group combines every so-many-th value of the row.
    fn stride(&mut self, from: &[BufferId], left: i64, parts: i64) -> Vec<Stmt> {
        let mut out = Vec::new();
        for turn in 0..(left + parts - 1) / parts {
            let (nest, mut rows, number) = self.threads();
            let at = self.own_at(&nest.map);
            let place = number.clone() + turn * parts;
            rows.push(place.clone());
            let inside = Cond::lt(number, parts).and(Cond::lt(place, left));
            let loads = loads(from, &rows);
            let own = self.loads(&at);
            let (sums, others) = match turn {
                0 => (loads, self.one.inits.clone()),
                _ => (self.one.reduction.combine(&own, &loads), own),
            };
            let chosen = |(sum, other): (Expr, Expr)| Expr::select(Expr::Cond(Box::new(inside.clone())), sum, other);
            let values = sums.into_iter().zip(others).map(chosen).collect();
            out.extend(self.block("stride", nest, Cond::TRUE, stores(self.own, &at, values)));
        }
        out
    }

    /// Every thread reads a row and combines it: neighbours at half its length, then at a quarter, and so on.
    fn gather(&mut self, from: &[BufferId], row: i64) -> Vec<Stmt> {
        let shape: Vec<Index> =
            self.serial.iter().flat_map(|l| l.defines()).map(|d| d.1).chain([Index::Int(row)]).collect();
        let read = self.one.buffers(self.func, "row", &shape, Scope::Local);
        let mut out = Vec::new();
        for (from, read) in from.iter().zip(&read) {
            let lane = self.func.add_var(cross_thread::fresh(self.func, "part"));
            let over = For::new(lane, row, LoopKind::Vectorized, Vec::new());
            let (mut nest, mut rows) = self.rows();
            let mut to: Vec<Index> = self.values(&nest.map);
            let part = self.iterator(lane, Index::Int(row), &mut nest.iters);
            nest.loops.push(over);
            rows.push(part.clone());
            to.push(part);
            let load = Expr::load(*from, rows);
            out.extend(self.block("read", nest, Cond::TRUE, vec![Stmt::Store(Store::new(*read, to, load))]));
        }

        let (nest, _) = self.rows();
        let element = |write: &Self, n: i64| {
            let mut at = write.values(&nest.map);
            at.push(Index::Int(n));
            at
        };
        let loads = |at: &[Index]| loads(&read, at);
        let (mut body, mut length) = (Vec::new(), row);
        while length > 1 {
            let half = (length + 1) / 2;
            for n in 0..length - half {
                let [a, b] = [n, n + half].map(|n| element(self, n));
                body.extend(stores(&read, &a, self.one.reduction.combine(&loads(&a), &loads(&b))));
            }
            length = half;
        }
        let total = loads(&element(self, 0));
        body.extend(stores(self.own, &self.own_at(&nest.map), total));
        out.extend(self.block("tree", nest, Cond::TRUE, body));
        out
    }

    /// The values of a thread that stand for its serial loops.
    fn values(&self, map: &visit::Map) -> Vec<Index> {
        let of = self.serial.iter().flat_map(|l| l.defines());
        of.map(|(v, _)| map.get(&v).cloned().unwrap_or(Index::Var(v))).collect()
    }

    /// As [`Write::threads`], without the loops over the threads of the group.
    fn rows(&mut self) -> (Nest, Vec<Index>) {
        let (mut nest, rows, _) = self.threads();
        let reduced = nest.loops.iter().filter(|l| self.one.threads.iter().any(|t| Some(t.0) == l.axis()));
        let reduced: Vec<Var> = reduced.map(|l| l.var).collect();
        nest.loops.retain(|l| !reduced.contains(&l.var));
        nest.iters.retain(|i| i.binding.as_var().is_none_or(|v| !reduced.contains(&v)));
        (nest, rows)
    }

    /// The result goes where the block writes it.
    fn result(&mut self, inside: &[For]) -> Vec<Stmt> {
        let of: Vec<&For> = inside.iter().collect();
        let (loops, vars) = cross_thread::stand_in(self.func, &of);
        let (own, at) = (self.own, self.at);
        let values = |map: &visit::Map| {
            let at: Vec<Index> = at.iter().map(|i| visit::subst_index(i, map)).collect();
            own.iter().map(|b| Expr::load(*b, at.clone())).collect()
        };
        let block = self.one.result(self.func, &vars, &values);
        self.one.written_once(self.func, loops, block)
    }
}

/// Writes a value to each of the buffers.
fn stores(to: &[BufferId], at: &[Index], values: Vec<Expr>) -> Vec<Stmt> {
    to.iter().zip(values).map(|(to, value)| Stmt::Store(Store::new(*to, at.to_vec(), value))).collect()
}

/// What each of the buffers has there.
fn loads(from: &[BufferId], at: &[Index]) -> Vec<Expr> {
    from.iter().map(|b| Expr::load(*b, at.to_vec())).collect()
}
