//! Promise 15, the one safety rule.
//!
//! Within a kernel each unit of a buffer's owner must have written itself what it reads: loops bound at or above the
//! owner's level are replaced by their axes, so that a nest speaks of one unit, and what the unit reads must be in what
//! it writes. Loops bound to one axis represent the same units. That is proved with boxes, or decided for all units and all elements
//! ([`super::cover`]). When it is written is what [`before`] asks.

use super::before;
use super::cover::{Earlier, covered, element};
use super::exact::{accumulates, dense_writes};
use super::judge::Judge;
use super::points::{Ranged, sample, show};
use super::sites::{Touches, elements, sites};
use super::wrong;
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::ir::decide::Verdict;
use crate::ir::print::{Node, underline};
use crate::ir::region::{Region, Touch, contains, touched};
use crate::ir::simplify::Env;
use crate::ir::visit::{Map, blocks, reads, rewrite, subst_body, writes};
use crate::ir::{Axis, Block, BufferId, Expr, Func, Index, Raster, Scope, Stmt, Store, Var};
use std::collections::HashMap;

/// How many values of indices are counted out for a buffer in a nest.
pub const COUNTED: i64 = 1 << 20;

/// Checks every nest of the root.
pub fn check(judge: &Judge<'_>) -> Result<()> {
    let func = judge.func;
    let mut written_before: Vec<BufferId> = Vec::new();
    for nest in &func.body {
        let body = std::slice::from_ref(nest);
        blocks(body).into_iter().try_for_each(|b| undivided(judge, body, b))?;
        let written = writes(body);
        for buffer in reads(body) {
            let before = written_before.contains(&buffer);
            let global = func.buffer(buffer).scope == Scope::Global;
            if written.contains(&buffer) && before && global && only_sums(nest, buffer) {
                let begun = begun(nest, buffer);
                blocks(&begun).into_iter().try_for_each(|b| undivided(judge, &begun, b))?;
                begun.iter().try_for_each(|nest| within_kernel(judge, nest, buffer))?;
            } else if written.contains(&buffer) && (global || !before) {
                within_kernel(judge, nest, buffer)?;
            } else {
                between_kernels(func, buffer, written_before.contains(&buffer))?;
            }
        }
        written_before.extend(written);
    }
    Ok(())
}

/// Whether a kernel does nothing to a buffer but add to its elements.
fn only_sums(nest: &Stmt, buffer: BufferId) -> bool {
    let all = blocks(std::slice::from_ref(nest));
    all.iter()
        .filter(|b| writes(std::slice::from_ref(&Stmt::Block((**b).clone()))).contains(&buffer))
        .all(|b| accumulates(b, buffer))
}

/// The nest as one that begins the sums itself. An earlier kernel has written every element that it adds to, so a unit that
/// goes on with a sum needs what it would need to begin it: that no other unit adds to the element.
fn begun(nest: &Stmt, buffer: BufferId) -> Vec<Stmt> {
    rewrite(vec![nest.clone()], &mut |s| match s {
        Stmt::Block(mut b) if accumulates(&b, buffer) => {
            let zero = Expr::constant(DType::F32, 0.0);
            let store = |s: &Stmt| match s {
                Stmt::Store(s) if s.buffer == buffer => Some(Stmt::Store(Store { value: zero.clone(), ..s.clone() })),
                _ => None,
            };
            b.init = Some(b.body.iter().filter_map(store).collect());
            vec![Stmt::Block(b)]
        }
        s => vec![s],
    })
}

fn between_kernels(func: &Func, buffer: BufferId, written: bool) -> Result<()> {
    let b = func.buffer(buffer);
    if b.scope == Scope::Global {
        if written || func.params.contains(&buffer) {
            return Ok(());
        }
        let message = format!("{} is read, but nothing has written it", b.name);
        return Err(wrong(func, Code::VerifySafety, message, &[(Node::Buffer(buffer), "this buffer")]));
    }
    let what = if written { "written in one kernel and read in another" } else { "read, but never written before" };
    let message = format!("{} is {} memory, {what}", b.name, b.scope.name());
    let error = wrong(func, Code::VerifySafety, message, &[(Node::Buffer(buffer), "this buffer")]);
    let all = blocks(&func.body);
    let named = |is_writer: bool| {
        let touches = |block: &&&Block| {
            let is_written = writes(&block.body).contains(&buffer);
            is_written == is_writer && (is_written || reads(&block.body).contains(&buffer))
        };
        all.iter().find(touches).map_or("its block", |block| func.block_name(block.name))
    };
    let (writer, reader) = (named(true), named(false));
    Err(error
        .help(format!("`reverse_compute_at {reader} LOOP`, LOOP being one of block {writer}'s, joins the two nests"))
        .help(format!("or `compute_at {writer} LOOP`, LOOP being one of block {reader}'s")))
}

/// Whether a loop on the axis tells owners of such memory apart. Fragments belong to warps or warpgroups.
fn separates(axis: Axis, scope: Scope) -> bool {
    match scope {
        Scope::Global | Scope::Shared => axis.is_block_level(),
        Scope::Cluster => axis.is_block_level() && axis != Axis::Cluster,
        Scope::Fragment => axis.level() <= Axis::Warp.level(),
        Scope::Local => true,
    }
}

/// Promise 14 for a block that begins and continues sums: each in one iteration of the bound loops. In the first ones of
/// loops that leave remainders, no index of the reduction says so.
fn undivided(judge: &Judge<'_>, nest: &[Stmt], block: &Block) -> Result<()> {
    let begun = block.init.as_deref().map(writes).unwrap_or_default();
    begun.into_iter().try_for_each(|buffer| undivided_into(judge, nest, block, buffer))
}

fn undivided_into(judge: &Judge<'_>, nest: &[Stmt], block: &Block, buffer: BufferId) -> Result<()> {
    let func = judge.func;
    let mut units = Units::new(func, Scope::Local);
    let alone = rewrite(nest.to_vec(), &mut |s| match s {
        Stmt::Block(b) if b.name != block.name => Vec::new(),
        Stmt::For(l) if l.body.is_empty() => Vec::new(),
        s => vec![s],
    });
    let body = units.strip(alone);
    if units.vars.iter().all(|(_, extent)| *extent == 1) || covered_by_boxes(func, &body, buffer, &units.env()) {
        return Ok(());
    }
    let name = &func.buffer(buffer).name;
    let divided = |point: &[Ranged], element: &[i64]| {
        let message = format!(
            "the reduction into {name}{element:?} of {} is divided between parallel iterations: {} adds to the \
             element, another iteration initialises it",
            func.block_name(block.name),
            show(func, point)
        );
        wrong(func, Code::VerifyReduction, message, &underlined(buffer, &units)).help(
            "bind only loops whose iterations contain whole reductions: split and fuse reduction loops separately",
        )
    };
    let decided = all_written(&body, buffer, &units, &[(Touches::Continues, Touches::Writes)]);
    if decided == Written::Proved {
        judge.proved();
        return Ok(());
    }
    let mut budget = COUNTED;
    for point in some(&units) {
        let map: Map = point.iter().map(|(v, x)| (*v, Index::Int(*x))).collect();
        let Some(found) = elements(&subst_body(body.clone(), &map), buffer, &mut budget) else { break };
        if let Some(foreign) = found.continued.difference(&found.writes).min() {
            return Err(divided(&point, foreign));
        }
    }
    match decided {
        Written::Missing(_, point, element) => Err(divided(&point, &element)),
        _ => {
            let claim = || {
                format!("each reduction into {name} is initialised and accumulated in one iteration of the bound loops")
            };
            judge
                .undecided(Code::VerifyReduction, some(&units).count(), &claim)
                .map_err(|e| underline(e, func, &underlined(buffer, &units)))
        }
    }
}

/// What is known of accesses that others have to come before.
#[derive(Debug, PartialEq, Eq)]
enum Written {
    /// There is one for each.
    Proved,
    /// What this touches in the unit at these values is not touched by what has to.
    Missing(Touches, Vec<Ranged>, Vec<i64>),
    /// Not decided.
    Undecided,
}

/// Whether in each unit what one kind of access touches is touched by another kind, too; where no access is of that kind, only what is
/// written has to be.
fn all_written(body: &[Stmt], buffer: BufferId, units: &Units, pairs: &[(Touches, Touches)]) -> Written {
    let Some(all) = sites(body, buffer) else { return Written::Undecided };
    let shared = units.shared();
    let mut decided = true;
    for (touches, by) in pairs {
        let writers: Vec<Earlier> = all
            .iter()
            .filter(|s| s.touches == *by)
            .map(|s| Earlier { site: s.clone(), own: s.vars.clone(), before: None })
            .collect();
        if writers.is_empty() && *by == Touches::Sums {
            continue;
        }
        for site in all.iter().filter(|s| s.touches == *touches) {
            match covered(site, &shared, &writers) {
                Verdict::Proved => {}
                Verdict::Undecided => decided = false,
                Verdict::Refuted(point) => {
                    let unit = point.iter().filter(|(v, _)| shared.iter().any(|(w, _)| w == v)).copied().collect();
                    return Written::Missing(*touches, unit, element(site, &point));
                }
            }
        }
    }
    if decided { Written::Proved } else { Written::Undecided }
}

fn within_kernel(judge: &Judge<'_>, nest: &Stmt, buffer: BufferId) -> Result<()> {
    let func = judge.func;
    let mut units = Units::new(func, func.buffer(buffer).scope);
    let body = units.strip(vec![nest.clone()]);
    let env = units.env();
    let in_order = before::in_time(func, &body, buffer, &env);
    // What is written in time is written, but blocks that share global memory may begin a sum too late.
    if in_order && func.buffer(buffer).scope != Scope::Global {
        judge.proved();
        return Ok(());
    }
    if covered_by_boxes(func, &body, buffer, &env) {
        judge.proved();
    } else {
        written_in_all(judge, &body, buffer, &units)?;
    }
    if in_order { Ok(()) } else { written_in_time(judge, &body, buffer, &units) }
}

/// Decides whether units write what they read. What refutes it is told by the first units that a count finds.
fn written_in_all(judge: &Judge<'_>, body: &[Stmt], buffer: BufferId, units: &Units) -> Result<()> {
    let func = judge.func;
    let mut pairs = vec![
        (Touches::Reads, Touches::Writes),
        (Touches::Continues, Touches::Writes),
        // What another unit adds is missing too.
        (Touches::Reads, Touches::Sums),
    ];
    if func.buffer(buffer).scope == Scope::Global {
        pairs.push((Touches::Writes, Touches::Sums));
    }
    let decided = all_written(body, buffer, units, &pairs);
    if decided == Written::Proved {
        judge.proved();
        return Ok(());
    }
    in_all(func, body, buffer, units)?;
    match decided {
        Written::Missing(Touches::Writes, point, element) => Err(begun_again(func, buffer, units, &point, &element)),
        Written::Missing(_, point, element) => Err(violation(func, buffer, units, &point, &element)),
        _ => undecided(judge, buffer, units, "what it reads"),
    }
}

/// Decides whether units write what they read before they read it.
fn written_in_time(judge: &Judge<'_>, body: &[Stmt], buffer: BufferId, units: &Units) -> Result<()> {
    let decided = before::decide(body, buffer, &units.shared());
    if let before::Timed::Proved = decided {
        judge.proved();
        return Ok(());
    }
    in_time(judge.func, body, buffer, units)?;
    match decided {
        before::Timed::Late(point, late) => Err(too_late(judge.func, buffer, units, &point, &late)),
        _ => undecided(judge, buffer, units, "what it reads before it reads it"),
    }
}

fn undecided(judge: &Judge<'_>, buffer: BufferId, units: &Units, what: &str) -> Result<()> {
    let claim = || format!("each unit writes {what} of {}", judge.func.buffer(buffer).name);
    let found = judge.undecided(Code::VerifySafety, some(units).count(), &claim);
    found.map_err(|e| underline(e, judge.func, &underlined(buffer, units)))
}

/// Some units.
fn some(units: &Units) -> impl Iterator<Item = Vec<Ranged>> {
    sample(&units.shared(), 4).into_iter().take(20)
}

/// Counts what units write in time.
fn in_time(func: &Func, body: &[Stmt], buffer: BufferId, units: &Units) -> Result<()> {
    let mut budget = COUNTED;
    for point in some(units) {
        let map: Map = point.iter().map(|(v, x)| (*v, Index::Int(*x))).collect();
        if let Some(late) = before::late(&subst_body(body.to_vec(), &map), buffer, &mut budget) {
            return Err(too_late(func, buffer, units, &point, &late));
        }
    }
    Ok(())
}

/// Counts what units write in all.
fn in_all(func: &Func, body: &[Stmt], buffer: BufferId, units: &Units) -> Result<()> {
    let scope = func.buffer(buffer).scope;
    let mut budget = COUNTED;
    for point in some(units) {
        let map: Map = point.iter().map(|(v, x)| (*v, Index::Int(*x))).collect();
        let unit = subst_body(body.to_vec(), &map);
        // Too many elements to count: then nothing speaks against it.
        let Some(found) = elements(&unit, buffer, &mut budget) else { break };
        let missing = found.reads.iter().chain(&found.continued).filter(|e| !found.writes.contains(*e));
        // What another unit adds is missing too.
        let unsummed = found.reads.iter().filter(|e| found.sums.as_ref().is_some_and(|sums| !sums.contains(*e)));
        if let Some(foreign) = missing.chain(unsummed).min() {
            return Err(violation(func, buffer, units, &point, foreign));
        }
        if let Some(begun) =
            found.sums.filter(|_| scope == Scope::Global).and_then(|s| found.writes.difference(&s).min().cloned())
        {
            return Err(begun_again(func, buffer, units, &point, &begun));
        }
    }
    Ok(())
}

/// Whether what is read provably is in a box of which every element is written; where blocks accumulate, in a box that
/// another block has begun and in one that they go over.
fn covered_by_boxes(func: &Func, body: &[Stmt], buffer: BufferId, env: &Env) -> bool {
    match touched(func, body, buffer, Touch::Reads, env) {
        None => true,
        Some(read) => {
            let boxes = dense_writes(func, body, buffer, env);
            let within = |sums| boxes.iter().any(|(s, written)| *s == sums && contains(written, &read, env));
            let sums = blocks(body).iter().any(|b| accumulates(b, buffer));
            // Blocks share global memory: one that begins a sum which another adds to may come too late.
            let global = func.buffer(buffer).scope == Scope::Global;
            let summed = |b: &Region| boxes.iter().any(|(s, written)| *s && contains(written, b, env));
            let apart = !global || boxes.iter().all(|(s, begun)| *s || summed(begun));
            within(false) && (!sums || within(true) && apart)
        }
    }
}

/// The bound loops that tell owners apart, by axis.
pub struct Units {
    scope: Scope,
    axes: HashMap<Axis, (Vec<Var>, Option<Raster>)>,
    /// The variables of the program's dynamic sizes: all units have them alike.
    pub sizes: Vec<Ranged>,
    /// The variables that represent the axes, with their extents.
    pub vars: Vec<Ranged>,
    /// The axes with what counts their units, in terms of the variables: several times where loops walk one axis in different orders.
    pub numbers: Vec<(Axis, Index)>,
}

impl Units {
    /// Of a program, and of no nest yet.
    pub fn new(func: &Func, scope: Scope) -> Units {
        let sizes = func.size_vars();
        Units { scope, axes: HashMap::new(), sizes, vars: Vec::new(), numbers: Vec::new() }
    }

    /// What has one value in a unit: its own variables, and the dynamic sizes.
    pub fn shared(&self) -> Vec<Ranged> {
        [self.vars.as_slice(), &self.sizes].concat()
    }

    /// The ranges of the variables.
    pub fn env(&self) -> Env {
        let mut env = Env::new();
        self.shared().iter().for_each(|(var, extent)| env.bind(*var, 0, extent - 1));
        env
    }

    /// Removes those loops; the variables of the first loop on an axis represent the axis everywhere. A loop that walks
    /// its axis in another order represents itself: no iteration of it is known to be one of the first's.
    pub fn strip(&mut self, body: Vec<Stmt>) -> Vec<Stmt> {
        let mut out = Vec::with_capacity(body.len());
        for mut stmt in body {
            if let Stmt::For(l) = &mut stmt
                && let Some(axis) = l.axis().filter(|a| separates(*a, self.scope))
            {
                let inner = std::mem::take(&mut l.body);
                let own = l.defines();
                let vars: Vec<Var> = own.iter().map(|d| d.0).collect();
                let (first, walk) = self.axes.entry(axis).or_insert_with(|| (vars.clone(), l.raster.clone()));
                let alike = match (&walk, &l.raster) {
                    (Some(a), Some(b)) => a.walks_like(b),
                    (a, b) => a.is_none() && b.is_none(),
                };
                let first = if alike { first.clone() } else { vars };
                if own.iter().map(|d| &d.0).eq(first.iter()) {
                    self.numbers.push((axis, l.number()));
                }
                for ((var, extent), first) in own.iter().zip(&first) {
                    if var == first && !self.vars.iter().any(|(v, _)| v == var) {
                        // An extent that is not known has the largest range, so that no claim relies on it.
                        self.vars.push((*var, extent.as_int().unwrap_or(i64::MAX)));
                    }
                }
                let map: Map = own.iter().zip(&first).map(|((v, _), f)| (*v, Index::Var(*f))).collect();
                let inner = if own.iter().map(|d| &d.0).eq(first.iter()) { inner } else { subst_body(inner, &map) };
                out.extend(self.strip(inner));
                continue;
            }
            for child in crate::ir::visit::children_mut(&mut stmt) {
                *child = self.strip(std::mem::take(child));
            }
            out.push(stmt);
        }
        out
    }
}

fn begun_again(func: &Func, buffer: BufferId, units: &Units, point: &[Ranged], element: &[i64]) -> Error {
    let name = &func.buffer(buffer).name;
    let message = format!(
        "the blocks of a kernel run in any order, but the unit {} sets {name}{element:?}, to which another unit adds",
        show(func, point)
    );
    wrong(func, Code::VerifySafety, message, &underlined(buffer, units))
        .help("decompose_reduction at a loop inside the bound loops, so that a unit initialises only its own elements")
}

fn underlined(buffer: BufferId, units: &Units) -> Vec<(Node, &'static str)> {
    let mut nodes = vec![(Node::Buffer(buffer), "this buffer")];
    nodes.extend(units.vars.iter().map(|(v, _)| (Node::Loop(*v), "its iterations run in parallel")));
    nodes
}

/// What keeps units from reading what others wrote.
fn owner(scope: Scope) -> &'static str {
    match scope {
        Scope::Global => "the blocks of a kernel cannot pass values to each other",
        Scope::Cluster => "each cluster of blocks has its own copy",
        Scope::Shared => "each block has its own copy",
        Scope::Fragment => "each warp or warpgroup has its own copy",
        Scope::Local => "each thread has its own copy",
    }
}

fn too_late(func: &Func, buffer: BufferId, units: &Units, point: &[Ranged], late: &before::Late) -> Error {
    let b = func.buffer(buffer);
    let message = format!(
        "{} is {} memory: {}, but the unit {} reads {}{:?} {} and has not written it by then",
        b.name,
        b.scope.name(),
        owner(b.scope),
        show(func, point),
        b.name,
        late.element,
        show(func, &late.at)
    );
    let mut nodes = underlined(buffer, units);
    nodes.extend(late.at.iter().map(|(v, _)| (Node::Loop(*v), "each iteration reads what it needs")));
    let names = late.at.iter().map(|(v, _)| func.var_name(*v)).collect::<Vec<_>>();
    let outside = match names.first() {
        Some(first) => format!("compute all of {} before the loop {first}, or ", b.name),
        None => String::new(),
    };
    wrong(func, Code::VerifySafety, message, &nodes)
        .help(format!("{outside}do not bind loops that divide what one iteration writes of it"))
}

fn violation(func: &Func, buffer: BufferId, units: &Units, point: &[Ranged], element: &[i64]) -> Error {
    let b = func.buffer(buffer);
    let message = format!(
        "{} is {} memory: {}, but the unit {} reads {}{element:?}, which it does not write",
        b.name,
        b.scope.name(),
        owner(b.scope),
        show(func, point),
        b.name
    );
    let error = wrong(func, Code::VerifySafety, message, &underlined(buffer, units));
    match b.scope {
        Scope::Local | Scope::Fragment => error.help(format!("set_scope {} shared", b.name)),
        _ => error.help("bind only loops inside which every value is made that they read"),
    }
}
