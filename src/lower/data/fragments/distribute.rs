//! Elementwise nests on fragments: every lane runs through the elements that it holds.
//!
//! The loops of a nest are composed with the layout of each fragment in it, which gives the lane of every iteration. All
//! fragments of a nest must agree on it. Then each loop's variable is the part that the lane decides plus loops over the
//! rest, which are the elements of the lane:
//!
//! ```text
//! for i in 0..16                            for i in 0..2
//!   for j in 0..8                             for j in 0..2 vectorized
//!     C[i, j] = acc[i, j]                       C[i*8 + lane // 4, lane % 4*2 + j] = acc[i*2 + j]
//! ```
//!
//! Which elements of an opaque fragment a lane holds is not known, but that it holds each as often as any other. The loops that
//! run through one of its tiles become one over the slots of a lane; nothing else may mention them.

use super::{Fragment, Fragments, body_accesses};
use crate::error::{Code, Error, Result};
use crate::ir::layout::Coordinate::{self, Element, Index as At, Lane, Register};
use crate::ir::layout::{Digit, Layout};
use crate::ir::lowered::threads::LANES;
use crate::ir::simplify::{self, Env, affine};
use crate::ir::{BufferId, Expr, For, Func, If, Index, IndexOp, LoopKind, Stmt, Var, visit};
use crate::lower::point;

/// A loop of the nest.
pub(super) struct Looped {
    pub(super) l: For,
    pub(super) extent: i64,
    /// Its digits that no lane decides, lowest first: (step, extent, the new variable).
    rest: Vec<(i64, i64, Var)>,
}

/// An access of a fragment in a nest: from the loops, by position, to lane and element; and the element at which it begins.
struct Found {
    buffer: BufferId,
    indices: Vec<Index>,
    layout: Layout,
    first: Index,
}

/// What decides which lane runs an iteration of a nest.
struct Decided {
    /// From the loops to the lane, or to the number of an element in an opaque matrix.
    layout: Layout,
    /// Of opaque tiles the loop over the slots of a lane, and how many they are.
    slots: Option<(Var, i64)>,
}

impl Decided {
    /// What the layout gives.
    fn coordinate(&self) -> Coordinate {
        if self.slots.is_some() { Element } else { Lane }
    }
}

impl Fragments<'_> {
    /// Whether iterations of the loop belong to different lanes.
    pub(super) fn is_shared_out(&self, l: &For) -> bool {
        // Where the extent is not known, every access of a fragment belongs to lanes, and `distribute` refuses the loop.
        let chain = l.extent.as_int().map(|extent| [(l.var, extent)]);
        let mut found = false;
        self.accesses(std::slice::from_ref(&Stmt::For(l.clone())), &mut |fragment, _, indices| {
            for (d, index) in indices.iter().enumerate().filter(|(_, i)| i.mentions(l.var)) {
                let lanes =
                    fragment.layout.digits().iter().filter(|n| n.from == At(d) && matches!(n.to, Lane | Element));
                found |= match chain.as_ref().and_then(|chain| digits(index, d, chain, &self.loops)) {
                    Some((own, _)) => lanes.into_iter().any(|n| own.iter().any(|o| meet(o, n))),
                    None => true,
                };
            }
        });
        found
    }

    /// Calls `f` on every access of a fragment outside of instructions.
    fn accesses(&self, body: &[Stmt], f: &mut dyn FnMut(&Fragment, BufferId, &[Index])) {
        body_accesses(body, &mut |id, indices| {
            if let Some(fragment) = self.fragments.get(&id) {
                f(fragment, id, indices);
            }
        });
    }

    /// Shares a nest out among the lanes.
    pub(super) fn distribute(&mut self, top: For, env: &Env) -> Result<Vec<Stmt>> {
        let name = self.func.var_name(top.var).to_string();
        let Some((mut loops, body)) = chain(top) else {
            return Err(refused(format!(
                "the iterations of loop {name} belong to lanes, but a loop of its nest has no constant extent"
            ))
            .about_loop(name)
            .help("only loops of constant extents can be distributed over lanes"));
        };
        if !visit::loops(&body).is_empty() {
            return Err(refused(format!("the iterations of loop {name} belong to lanes, but it holds several nests"))
                .about_loop(name)
                .help(
                    "only a nest of loops around one statement can be distributed over lanes: give each statement its \
                     own loops",
                ));
        }
        if self.one_thread_runs_some(&body) {
            return Err(refused(format!(
                "the iterations of loop {name} belong to lanes, but a statement inside uses no fragment, and one thread executes it"
            ))
            .about_loop(name)
            .help("give that statement its own loops"));
        }
        let mut inner = env.clone();
        loops.iter().for_each(|l| inner.bind(l.l.var, 0, l.extent - 1));
        let found = self.found(&loops, &body, &inner, &name)?;
        let decided = self.agree(&found, &body, &name)?;
        self.name_the_rest(&mut loops, &decided.layout);
        loops.iter().flat_map(|l| &l.rest).for_each(|(_, extent, var)| inner.bind(*var, 0, extent - 1));
        let Some((slot, slots)) = decided.slots else {
            let body = self.replaced(body, &loops, &decided, &found, &inner);
            return Ok(nested(loops, body));
        };
        inner.bind(slot, 0, slots - 1);
        let body = self.replaced(body, &loops, &decided, &found, &inner);
        self.no_positions(&loops, &found, &body)?;
        Ok(nested(loops, vec![Stmt::For(For::new(slot, slots, LoopKind::Unrolled, body))]))
    }

    /// Whether the nest has a branch that depends on the lane and uses no fragment, so that one thread executes the branch.
    fn one_thread_runs_some(&self, body: &[Stmt]) -> bool {
        let mut threads = Vec::new();
        self.threads.lane.for_each_var(&mut |v| threads.push(v));
        let of_thread = |i: &If| threads.iter().any(|v| i.cond.mentions(*v));
        let mut found = false;
        visit::walk(body, &mut |s| {
            if let Stmt::If(i) = s
                && of_thread(i)
            {
                let mut touched = false;
                self.accesses(&i.body, &mut |_, _, _| touched = true);
                found |= !touched;
            }
        });
        found
    }

    /// Every access of the nest, each different one once.
    fn found(&self, loops: &[Looped], body: &[Stmt], env: &Env, name: &str) -> Result<Vec<Found>> {
        let chain: Vec<(Var, i64)> = loops.iter().map(|l| (l.l.var, l.extent)).collect();
        let (mut out, mut result): (Vec<Found>, _) = (Vec::new(), Ok(()));
        self.accesses(body, &mut |fragment, buffer, indices| {
            if result.is_err() || out.iter().any(|f| f.buffer == buffer && f.indices == indices) {
                return;
            }
            match composed(fragment, indices, &chain, env) {
                Some((layout, first)) => out.push(Found { buffer, indices: indices.to_vec(), layout, first }),
                None => {
                    let text = indices.iter().map(|i| crate::ir::print::index(self.func, i)).collect::<Vec<_>>().join(", ");
                    let buffer = &self.func.buffer(buffer).name;
                    result = Err(refused(format!(
                        "the nest of loop {name} does not run through whole tiles of {} in fragment {buffer}: it touches {buffer}[{text}]",
                        fragment.row
                    ))
                    .about_loop(name)
                    .about_buffer(buffer)
                    .about_all(indices.iter().flat_map(|i| point::of_index(self.func, i)))
                    .help("split and reorder its loops so that the innermost ones run through a tile's rows and columns"));
                }
            }
        });
        result.map(|()| out)
    }

    /// From the loops to the lane: the same for all accesses, and each lane has its own iterations. Lanes that hold copies of the same
    /// elements run the same iterations where a nest touches copies alone.
    fn agree(&mut self, found: &[Found], body: &[Stmt], name: &str) -> Result<Decided> {
        let of = |f: &Found| self.fragments.get(&f.buffer);
        if let Some(opaque) = found.iter().filter_map(of).find(|f| f.slots.is_some()) {
            let (slots, all) = (opaque.slots.unwrap_or(1), opaque.layout.span(Element));
            let layout = self.agree_on_elements(found, opaque, name)?;
            if !layout.is_bijective() || layout.span(Element) != all {
                return Err(refused(format!("the nest of loop {name} skips elements of a tile of {}", opaque.row))
                    .about_loop(name)
                    .help("the lanes that hold them are unknown: run through whole tiles of the fragment"));
            }
            let slot = unused(self.func, "slot");
            return Ok(Decided { layout, slots: Some((self.func.add_var(slot), slots)) });
        }
        let row = |f: &Found| self.fragments.get(&f.buffer).map_or("", |x| x.row);
        // Elements of which each lane has its own decide; copies are where those are.
        let Some(first) = found.iter().find(|f| of(f).is_none_or(|x| !x.is_replicated())).or(found.first()) else {
            return Err(refused(format!("loop {name} touches no fragment")).about_loop(name));
        };
        let (own, copies) = (lanes(&first.layout), of(first).is_some_and(Fragment::is_replicated));
        self.check_copies(found, body, (&own, copies), name)?;
        let differs = |f: &&Found| {
            let among_copies = !copies && of(f).is_some_and(Fragment::is_replicated);
            let theirs = lanes(&f.layout);
            if among_copies { !theirs.digits().iter().all(|d| own.digits().contains(d)) } else { theirs != own }
        };
        if let Some(other) = found.iter().find(differs) {
            let (a, b) = (&self.func.buffer(first.buffer).name, &self.func.buffer(other.buffer).name);
            return Err(refused(format!(
                "in the nest of loop {name} the elements of {a} and {b} are not in the same lanes: {a} has the layout \
                 of {}, {b} that of {}",
                row(first),
                row(other)
            ))
            .about_loop(name)
            .about_buffer(a)
            .about_buffer(b)
            .help("pass the values through shared memory"));
        }
        let threads = of(first).map_or(LANES, |f| f.threads);
        let every = match of(first).filter(|_| copies) {
            Some(fragment) => lane_count(&own) == lane_count(&fragment.layout),
            None => names_every_lane(&own, threads),
        };
        if !every {
            let buffer = &self.func.buffer(first.buffer).name;
            return Err(refused(format!("the nest of loop {name} skips lanes that hold elements of {buffer}"))
                .about_loop(name)
                .about_buffer(buffer)
                .help("run through whole tiles of the fragment"));
        }
        Ok(Decided { layout: own, slots: None })
    }

    /// What a nest stores must not depend on which of the lanes that hold copies runs it; `own` are the lanes that decide, and whether they
    /// hold copies alone.
    fn check_copies(&self, found: &[Found], body: &[Stmt], own: (&Layout, bool), name: &str) -> Result<()> {
        let written = visit::writes(body);
        let replicated = |id: &BufferId| self.fragments.get(id).is_some_and(Fragment::is_replicated);
        let wrong = match own.1 {
            true => written.into_iter().find(|id| !replicated(id)),
            false => written.into_iter().find(replicated),
        };
        let (Some(wrong), Some(copied)) = (wrong, found.iter().find(|f| replicated(&f.buffer))) else { return Ok(()) };
        let (wrong, copied) = (&self.func.buffer(wrong).name, &self.func.buffer(copied.buffer).name);
        let message = match own.1 {
            true => {
                format!("several lanes hold copies of each element of {copied}, and all of them would store to {wrong}")
            }
            false => format!(
                "several lanes hold copies of each element of {wrong}, and each would store another value there"
            ),
        };
        Err(refused(message)
            .about_loop(name)
            .about_buffer(wrong)
            .help(format!("pass the values of {wrong} through shared memory")))
    }

    /// From the loops to the number of an element in its matrix: the same for all accesses, all of one kind of fragment.
    fn agree_on_elements(&self, found: &[Found], opaque: &Fragment, name: &str) -> Result<Layout> {
        let elements = |f: &Found| Layout::new(f.layout.digits().iter().filter(|d| d.to == Element).copied());
        let own = found.first().map(elements).unwrap_or_default();
        let like = |f: &Found| {
            let kind = self.fragments.get(&f.buffer).is_some_and(|x| x.kind == opaque.kind);
            kind && elements(f) == own
        };
        let Some(other) = found.iter().find(|f| !like(f)) else { return Ok(own) };
        let (a, b) = (&self.func.buffer(found[0].buffer).name, &self.func.buffer(other.buffer).name);
        Err(refused(format!(
            "the nest of loop {name} combines elements of {a} and {b}: the lanes that hold those of {} are unknown, \
             and need not be the same",
            opaque.row
        ))
        .about_loop(name)
        .about_buffer(a)
        .about_buffer(b)
        .help("both fragments must be of one matrix, shape and type, and indexed by the same loops")
        .help("or pass the values through shared memory, where a cast is possible too"))
    }

    /// Nothing but the fragments' own indices may ask for the place of an element in an opaque tile.
    fn no_positions(&self, loops: &[Looped], found: &[Found], body: &[Stmt]) -> Result<()> {
        let (mut asks, mut touched) = (None, Vec::new());
        let of_tile = |i: &Index| loops.iter().any(|l| i.mentions(l.l.var));
        visit::walk(body, &mut |s| {
            if let Stmt::Store(store) = s {
                touched.push((store.buffer, store.indices.clone()));
                visit::walk_expr(&store.value, &mut |e| match e {
                    Expr::Load { buffer, indices, .. } => touched.push((*buffer, indices.clone())),
                    Expr::Index(_, i) if of_tile(i) => {
                        asks = Some("a value is computed from an element's index".to_string())
                    }
                    Expr::Cond(c) if loops.iter().any(|l| c.mentions(l.l.var)) => {
                        asks = Some("a select uses an element's index".to_string());
                    }
                    _ => {}
                });
            }
            if let Stmt::If(i) = s
                && loops.iter().any(|l| i.cond.mentions(l.l.var))
            {
                asks = Some("a condition uses an element's index".to_string());
            }
        });
        let at = touched.iter().find(|(_, indices)| indices.iter().any(of_tile));
        let indexed = at.map(|(id, _)| &self.func.buffer(*id).name).filter(|_| asks.is_none());
        let asks = asks.or(indexed.map(|name| format!("{name} is indexed by an element's position")));
        let (Some(asks), Some(first)) = (asks, found.first()) else { return Ok(()) };
        let name = &self.func.buffer(first.buffer).name;
        let error = refused(format!(
            "{asks}, but which elements of fragment {name} a lane holds is not known ({} has opaque fragments)",
            self.fragments.get(&first.buffer).map_or("its instruction", |f| f.row)
        ));
        Err(indexed
            .into_iter()
            .chain([name])
            .fold(error, Error::about_buffer)
            .help(format!("tensorize the nest with an instruction that loads or stores {name}, if it is a copy"))
            .help(format!("else store {name} to shared memory first (cache_write, tensorize) and compute from there"))
            .help(
                "only an elementwise operation without indices runs on the fragment itself: a constant, a scale, relu",
            ))
    }

    /// New variables for what the lane does not decide of each loop.
    fn name_the_rest(&mut self, loops: &mut [Looped], lanes: &Layout) {
        for (n, l) in loops.iter_mut().enumerate() {
            let mut rest = Vec::new();
            let mut end = 1;
            for digit in lanes.digits().iter().filter(|d| d.from == At(n)) {
                rest.push((end, digit.at / end));
                end = digit.at * digit.extent;
            }
            rest.push((end, l.extent / end));
            rest.retain(|(_, extent)| *extent > 1);
            let alone = rest.len() == 1;
            let base = self.func.var_name(l.l.var).to_string();
            l.rest = rest
                .into_iter()
                .enumerate()
                .map(|(k, (at, extent))| {
                    let name = if alone { base.clone() } else { unused(self.func, &format!("{base}_{k}")) };
                    (at, extent, self.func.add_var(name))
                })
                .collect();
        }
    }

    /// The statements with loops' variables replaced, and fragments indexed by the elements of the lane.
    fn replaced(&self, body: Vec<Stmt>, loops: &[Looped], decided: &Decided, found: &[Found], env: &Env) -> Vec<Stmt> {
        let mut map = visit::Map::new();
        for (n, l) in loops.iter().enumerate() {
            let own = decided.layout.digits().iter().filter(|d| d.from == At(n));
            let known = own.fold(Index::Int(0), |sum, d| match decided.coordinate() {
                Lane if d.stride * d.extent > LANES => {
                    sum + self.threads.thread.clone().floordiv(d.stride).floormod(d.extent) * d.at
                }
                Lane => sum + self.threads.lane.clone().floordiv(d.stride).floormod(d.extent) * d.at,
                // Whatever is left of it is refused.
                _ => Index::Var(l.l.var),
            });
            let rest = l.rest.iter().fold(Index::Int(0), |sum, (at, _, var)| sum + *var * *at);
            map.insert(l.l.var, known + rest);
        }
        let element = |id: BufferId, indices: &[Index]| {
            let f = found.iter().find(|f| f.buffer == id && f.indices == indices)?;
            let sum = f.layout.digits().iter().filter(|d| d.to == Register).try_fold(f.first.clone(), |sum, d| {
                let At(n) = d.from else { return None };
                let (at, _, var) = loops[n].rest.iter().find(|(at, e, _)| *at <= d.at && d.at * d.extent <= at * e)?;
                Some(sum + Index::Var(*var).floordiv(d.at / at).floormod(d.extent) * d.stride)
            })?;
            let slot = decided.slots.map_or(Index::Int(0), |(slot, _)| Index::Var(slot));
            Some(vec![simplify::simplify(&(sum + slot), env)])
        };
        // The accesses are known by the indices that they had.
        let body = visit::rewrite(body, &mut |mut s| {
            if let Stmt::Store(store) = &mut s {
                if let Some(own) = element(store.buffer, &store.indices) {
                    store.indices = own;
                }
                store.value = visit::map_expr(&store.value, &mut Index::clone, &mut |e| match e {
                    Expr::Load { buffer, indices, lanes } => {
                        let indices = element(buffer, &indices).unwrap_or(indices);
                        Expr::Load { buffer, indices, lanes }
                    }
                    other => other,
                });
            }
            vec![s]
        });
        visit::subst_body(body, &map)
    }
}

fn refused(message: String) -> Error {
    Error::input(Code::LowerDistribute, message)
}

fn unused(func: &Func, base: &str) -> String {
    if func.vars.iter().any(|v| v == base) { func.unused_loop_name(&format!("{base}_")) } else { base.to_string() }
}

/// The loops from the outermost on as long as each holds one loop alone, and what the last one holds; `None` where an extent is not
/// constant.
pub(super) fn chain(top: For) -> Option<(Vec<Looped>, Vec<Stmt>)> {
    let mut loops = Vec::new();
    let mut current = top;
    loop {
        let mut body = std::mem::take(&mut current.body);
        let extent = current.extent.as_int()?;
        loops.push(Looped { l: current, extent, rest: Vec::new() });
        match body.pop() {
            Some(Stmt::For(inner)) if body.is_empty() && inner.tensorize.is_none() => current = inner,
            last => {
                body.extend(last);
                return Some((loops, body));
            }
        }
    }
}

/// The loops over what is left, outermost first; the last one may become a vector.
fn nested(loops: Vec<Looped>, mut body: Vec<Stmt>) -> Vec<Stmt> {
    let last = loops.len() - 1;
    for (n, l) in loops.into_iter().enumerate().rev() {
        for (at, extent, var) in l.rest {
            let vector = n == last && at == 1;
            let kind = if vector { LoopKind::Vectorized } else { LoopKind::Unrolled };
            body = vec![Stmt::For(For { notes: l.l.notes.clone(), ..For::new(var, extent, kind, body) })];
        }
    }
    body
}

/// From the loops to lane and element, and the element at which the nest begins.
pub(super) fn composed(
    fragment: &Fragment,
    indices: &[Index],
    chain: &[(Var, i64)],
    env: &Env,
) -> Option<(Layout, Index)> {
    let (mut all, mut bases) = (Vec::new(), Vec::new());
    for (d, index) in indices.iter().enumerate() {
        let (own, base) = digits(index, d, chain, env)?;
        bases.push((base, own.iter().map(|o| o.stride * o.extent).fold(1, i64::max)));
        all.extend(own);
    }
    let shape: Vec<i64> = bases.iter().map(|b| b.1).collect();
    if !fragment.repeats(&shape) || bases.iter().any(|(base, e)| simplify::divisor(base, env) % e != 0) {
        return None;
    }
    let at = |c: Coordinate| if let At(d) = c { bases[d].0.clone() } else { Index::Int(0) };
    let within = |to: Coordinate| Some(simplify::simplify(&fragment.layout.symbolic(to, &at)?, env));
    if within(Lane)? != Index::Int(0) || within(Element)? != Index::Int(0) {
        return None;
    }
    // The loops and the buffer's indices are both numbered: the loops move behind.
    let apart = |c: Coordinate| if let At(n) = c { At(n + indices.len()) } else { c };
    let back = |c: Coordinate| if let At(n) = c { At(n - indices.len()) } else { c };
    let loops = Layout::new(all.into_iter().map(|d| Digit { from: apart(d.from), ..d }));
    let layout = loops.then(&fragment.layout)?;
    let layout = layout.renamed(|c| if matches!(c, At(_)) { back(c) } else { c });
    Some((layout, simplify::simplify(&fragment.layout.symbolic(Register, &at)?, env)))
}

/// An index as digits of loops, by position, that add to dimension `d`, plus what no loop of the chain is in.
pub(super) fn digits(index: &Index, d: usize, chain: &[(Var, i64)], env: &Env) -> Option<(Vec<Digit>, Index)> {
    let mut base = affine(&simplify::simplify(index, env));
    let (own, rest): (Vec<_>, Vec<_>) =
        base.terms.into_iter().partition(|(atom, _)| chain.iter().any(|(v, _)| atom.mentions(*v)));
    base.terms = rest;
    let digit = |(atom, stride): (Index, i64)| {
        let (var, at, extent) = digit_of(&atom)?;
        let n = chain.iter().position(|(v, _)| *v == var)?;
        let extent = extent.unwrap_or(chain[n].1 / at);
        let divides = chain[n].1 % (at * extent) == 0 && stride > 0;
        divides.then(|| Digit::new(At(n), at, extent, At(d), stride))
    };
    Some((own.into_iter().map(digit).collect::<Option<_>>()?, base.to_index()))
}

/// A variable, divided and taken as a remainder any number of times: what one step is in it, and how many values it takes,
/// if a remainder says so.
fn digit_of(atom: &Index) -> Option<(Var, i64, Option<i64>)> {
    let (op, inner, by) = match atom {
        Index::Var(v) => return Some((*v, 1, None)),
        Index::Bin(op, inner, by) => (op, digit_of(inner)?, by.as_int().filter(|by| *by > 0)?),
        _ => return None,
    };
    let (var, at, extent) = inner;
    match (op, extent) {
        (IndexOp::FloorDiv, None) => Some((var, at * by, None)),
        (IndexOp::FloorDiv, Some(e)) => (e % by == 0).then_some((var, at * by, Some(e / by))),
        (IndexOp::FloorMod, None) => Some((var, at, Some(by))),
        (IndexOp::FloorMod, Some(e)) => (e % by == 0).then_some((var, at, Some(by))),
        _ => None,
    }
}

/// Whether every one of so many threads stands for something else: the digits that give it are those of a number below.
fn names_every_lane(layout: &Layout, threads: i64) -> bool {
    let mut digits: Vec<(i64, i64)> =
        layout.digits().iter().filter(|d| d.to == Lane).map(|d| (d.stride, d.extent)).collect();
    digits.sort_unstable();
    let end = digits.into_iter().try_fold(1, |end, (stride, extent)| (stride == end).then_some(end * extent));
    end == Some(threads)
}

/// What of a layout gives the lane.
fn lanes(layout: &Layout) -> Layout {
    Layout::new(layout.digits().iter().filter(|d| d.to == Lane).copied())
}

/// The lanes that a layout tells apart.
pub(super) fn lane_count(layout: &Layout) -> i64 {
    layout.digits().iter().filter(|d| d.to == Lane).map(|d| d.extent).product()
}

fn meet(own: &Digit, lane: &Digit) -> bool {
    own.stride.max(lane.at) < (own.stride * own.extent).min(lane.at * lane.extent)
}
