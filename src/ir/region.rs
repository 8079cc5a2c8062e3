//! Which box of a buffer a piece of program touches.
//!
//! A box that is reported contains every element touched, for every value of the variables that stay symbolic. Loops
//! inside the piece are eliminated, block iterators replaced by their bindings; predicates and conditions narrow the
//! box. For affine indices it is the smallest such box. Extents are constants wherever a constant can be shown to suffice.
//! All accesses are taken to be inside the buffer, so a box is cut to the shape where that makes it smaller.

mod in_use;

pub use in_use::in_use;

use super::decide::proves;
use super::simplify::{Affine, Env, affine, canonical, lower, simplify, simplify_cond, upper};
use super::verify::guards;
use super::visit::{Map, subst_cond, subst_index};
use super::{Block, Buffer, BufferId, Cond, Expr, Func, Index, IndexOp, Stmt, Var};

/// The elements `min .. min + extent` of one dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub min: Index,
    /// How many.
    pub extent: Index,
}

/// A box: a range for each dimension.
pub type Region = Vec<Range>;

/// Which accesses count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// Loads.
    Reads,
    /// Stores.
    Writes,
    /// Loads and stores.
    Both,
}

/// The box of `buffer` that running `body` touches; `None` if no access to `buffer` is ever executed. An access whose conditions
/// exclude each other is not. `env` knows the variables around the body.
pub fn touched(func: &Func, body: &[Stmt], buffer: BufferId, touch: Touch, env: &Env) -> Option<Region> {
    search(func, body, buffer, touch, env, Counted { conditions: true, empty: false })
}

/// As [`touched`], for indices that may be outside the buffer: in a dimension where all of them are, the range has extent 0.
pub fn reached(func: &Func, body: &[Stmt], buffer: BufferId, touch: Touch, env: &Env) -> Option<Region> {
    search(func, body, buffer, touch, env, Counted { conditions: true, empty: true })
}

/// What a search counts.
#[derive(Clone, Copy)]
struct Counted {
    /// Predicates and conditions narrow the box.
    conditions: bool,
    /// An access whose box is empty is an access.
    empty: bool,
}

fn search(func: &Func, body: &[Stmt], buffer: BufferId, touch: Touch, env: &Env, counted: Counted) -> Option<Region> {
    let description = func.buffers.get(buffer.0 as usize)?;
    let mut search = Search { buffer, description, touch, outer: env, counted, found: None };
    let place = Context { env: env.clone(), anyway: env.clone(), bindings: Map::new(), inner: Vec::new() };
    search.body(body, &place);
    search.found
}

/// The smallest box that contains both.
pub fn union(a: &Region, b: &Region, env: &Env) -> Region {
    a.iter().zip(b).map(|(a, b)| union_of_ranges(a, b, env)).collect()
}

/// Whether a box provably is in another, for every value of the variables.
pub fn contains(outer: &Region, inner: &Region, env: &Env) -> bool {
    let end = |r: &Range| r.min.clone() + r.extent.clone();
    inner
        .iter()
        .zip(outer)
        .all(|(i, o)| proves(&Cond::ge(i.min.clone(), o.min.clone()), env) && proves(&Cond::ge(end(o), end(i)), env))
}

/// The whole buffer.
pub fn whole(buffer: &Buffer) -> Region {
    buffer.shape.iter().map(|extent| Range { min: Index::Int(0), extent: extent.clone() }).collect()
}

/// The box that contains the region for every value of the variables, each from 0 to its extent.
pub fn over(region: &Region, vars: &[(Var, i64)], env: &Env) -> Region {
    let mut env = env.clone();
    let mut inner = Vec::new();
    for (var, extent) in vars {
        env.bind(*var, 0, extent.saturating_sub(1));
        inner.push((*var, Index::Int(*extent)));
    }
    region.iter().map(|range| range_over(range, &inner, &env)).collect()
}

fn range_over(range: &Range, inner: &[(Var, Index)], env: &Env) -> Range {
    let spread = |index: &Index| spread(&canonical(index, env), inner, env);
    let last = range.min.clone() + range.extent.clone();
    match (spread(&range.min), spread(&last)) {
        (Some((min, _)), Some((_, end))) => range_between(&min, &end, env),
        // Nothing is known about a bound that still mentions the variables.
        _ => range.clone(),
    }
}

/// From a first element to an end, which is exclusive; the extent is a constant if one is known to suffice.
fn range_between(min: &Affine, end: &Affine, env: &Env) -> Range {
    let extent = Index::bin(IndexOp::Sub, end.to_index(), min.to_index());
    let exact = canonical(&extent, env);
    let extent = match exact.as_constant().or_else(|| upper(&exact, env)) {
        Some(most) => Index::Int(most.max(0)),
        None => exact.to_index(),
    };
    Range { min: min.to_index(), extent }
}

fn union_of_ranges(a: &Range, b: &Range, env: &Env) -> Range {
    let end = |r: &Range| r.min.clone() + r.extent.clone();
    let min = canonical(&a.min.clone().min(b.min.clone()), env);
    let last = canonical(&end(a).max(end(b)), env);
    range_between(&min, &last, env)
}

/// What is known at a place in the program.
#[derive(Clone)]
struct Context {
    /// Ranges and conditions.
    env: Env,
    /// Ranges alone.
    anyway: Env,
    /// Block iterators and what they are bound to, over loop variables.
    bindings: Map,
    /// Loops inside the searched body, with their extents over loop variables, outermost first.
    inner: Vec<(Var, Index)>,
}

struct Search<'a> {
    buffer: BufferId,
    description: &'a Buffer,
    touch: Touch,
    outer: &'a Env,
    counted: Counted,
    found: Option<Region>,
}

impl Search<'_> {
    fn body(&mut self, body: &[Stmt], place: &Context) {
        for stmt in body {
            self.stmt(stmt, place);
        }
    }

    fn stmt(&mut self, stmt: &Stmt, place: &Context) {
        match stmt {
            Stmt::For(l) => {
                if let Some(inside) = place.in_loop(l.defines()) {
                    self.body(&l.body, &inside);
                }
            }
            Stmt::Block(b) => self.block(b, place),
            Stmt::If(i) => {
                if let Some(inside) = place.assuming(&i.cond) {
                    self.body(&i.body, &inside);
                }
            }
            Stmt::Store(s) => {
                if s.buffer == self.buffer && self.touch != Touch::Reads {
                    self.access(&s.indices, s.lanes, place);
                }
                if self.touch != Touch::Writes {
                    self.expr(&s.value, place);
                }
            }
            Stmt::Elect(e) => self.body(&e.body, place),
            Stmt::Role(r) => self.body(&r.body, place),
            Stmt::Sync(_) | Stmt::Call(_) | Stmt::Bulk(_) => {}
        }
    }

    fn block(&mut self, block: &Block, place: &Context) {
        let Some(mut inside) = place.assuming(&block.predicate) else { return };
        for iter in &block.iters {
            let binding = simplify(&subst_index(&iter.binding, &place.bindings), &inside.env);
            inside.bindings.insert(iter.var, binding);
        }
        if let Some(init) = &block.init {
            self.body(init, &inside);
        }
        self.body(&block.body, &inside);
    }

    fn expr(&mut self, expr: &Expr, place: &Context) {
        match expr {
            Expr::Const(..) | Expr::Index(..) | Expr::Cond(_) => {}
            Expr::Load { buffer, indices, lanes } => {
                if *buffer == self.buffer {
                    self.access(indices, *lanes, place);
                }
            }
            Expr::Splat(_, a) | Expr::Shuffle(_, a) | Expr::Un(_, a) | Expr::Cast(_, a) => self.expr(a, place),
            Expr::Bin(_, a, b) | Expr::Cmp(_, a, b) => {
                self.expr(a, place);
                self.expr(b, place);
            }
            Expr::Select(c, a, b) => self.select(c, a, b, place),
            Expr::Gather { var, extent, index, value, .. } => {
                self.expr(index, place);
                self.expr(value, &place.gathering(*var, *extent));
            }
        }
    }

    /// Only the chosen side is evaluated.
    fn select(&mut self, cond: &Expr, a: &Expr, b: &Expr, place: &Context) {
        self.expr(cond, place);
        let (yes, no) = guards(cond);
        if let Some(chosen) = place.assuming(&yes) {
            self.expr(a, &chosen);
        }
        if let Some(chosen) = place.assuming(&no) {
            self.expr(b, &chosen);
        }
    }

    fn access(&mut self, indices: &[Index], lanes: u32, place: &Context) {
        let mut region = Region::new();
        for (dim, index) in indices.iter().enumerate() {
            let lanes = if dim + 1 == indices.len() { i64::from(lanes.max(1)) } else { 1 };
            let index = subst_index(index, &place.bindings);
            let shape = self.description.shape.get(dim).cloned();
            region.push(match self.counted.conditions {
                true => place.range(&index, lanes, shape),
                false => place.dimension(&index, lanes, shape, &place.anyway),
            });
        }
        let shape = || self.description.shape.iter().map(Some).chain(std::iter::repeat(None));
        let within = |region: Region| -> Region { region.into_iter().zip(shape()).map(|(r, e)| cut(r, e)).collect() };
        let is_empty = |region: Region| within(region).iter().any(|r| r.extent.as_int().is_some_and(|e| e <= 0));
        if !self.counted.empty && is_empty(region.clone()) {
            return;
        }
        let joined = match &self.found {
            Some(found) => union(found, &region, self.outer),
            None => region,
        };
        self.found = Some(within(joined));
    }
}

impl Context {
    fn in_loop(&self, defines: Vec<(Var, Index)>) -> Option<Context> {
        let mut inside = self.clone();
        for (var, extent) in defines {
            let extent = simplify(&subst_index(&extent, &self.bindings), &self.env);
            if extent.as_int().is_some_and(|e| e <= 0) {
                return None;
            }
            inside.env.bind_loop(var, &extent);
            inside.anyway.bind_loop(var, &extent);
            inside.inner.push((var, extent));
        }
        Some(inside)
    }

    /// Where a variable represents data: it may be any of its values.
    fn gathering(&self, var: Var, extent: i64) -> Context {
        let mut inside = self.clone();
        inside.env.bind(var, 0, extent.saturating_sub(1));
        inside.anyway.bind(var, 0, extent.saturating_sub(1));
        inside.inner.push((var, Index::Int(extent)));
        inside
    }

    /// `None` if the condition never holds.
    fn assuming(&self, cond: &Cond) -> Option<Context> {
        let cond = simplify_cond(&subst_cond(cond, &self.bindings), &self.env);
        if cond == Cond::Const(false) {
            return None;
        }
        let mut inside = self.clone();
        inside.env.assume(&cond);
        Some(inside)
    }

    /// The range of an index over the inner loops. Conditions count where they leave less of it: in words that hold without
    /// them it is more easily seen to be the range of another access.
    fn range(&self, index: &Index, lanes: i64, shape: Option<Index>) -> Range {
        let narrow = self.dimension(index, lanes, shape.clone(), &self.env);
        let wide = self.dimension(index, lanes, shape, &self.anyway);
        match (narrow.extent.as_int(), wide.extent.as_int()) {
            (Some(n), Some(w)) if w <= n => wide,
            _ => narrow,
        }
    }

    fn dimension(&self, index: &Index, lanes: i64, shape: Option<Index>, env: &Env) -> Range {
        let sum = &canonical(index, env);
        let constant = || Some((Affine::constant(lower(sum, env)?), Affine::constant(upper(sum, env)?)));
        let to_range = |(min, last): (Affine, Affine)| {
            let end = canonical(&(last.to_index() + Index::Int(lanes)), env);
            range_between(&min, &end, env)
        };
        let symbolic = spread(sum, &self.inner, env).map(to_range);
        let constant = constant().map(to_range);
        let extent = |r: &Option<Range>| r.as_ref().and_then(|r| r.extent.as_int());
        let range = match (extent(&symbolic), extent(&constant)) {
            // Conditions on outer variables may leave less than the loops alone suggest.
            (Some(s), Some(c)) if c < s => constant,
            (None, Some(_)) => constant,
            _ => symbolic.or(constant),
        };
        range.unwrap_or_else(|| Range { min: Index::Int(0), extent: shape.unwrap_or(Index::Int(i64::MAX)) })
    }
}

/// Cuts a range to `0..shape` where that makes the extent smaller.
fn cut(range: Range, shape: Option<&Index>) -> Range {
    let (Some(extent), Some(shape)) = (range.extent.as_int(), shape.and_then(Index::as_int)) else { return range };
    if let Some(min) = range.min.as_int() {
        let end = min.saturating_add(extent).min(shape);
        return Range { min: Index::Int(min.max(0)), extent: Index::Int(end.saturating_sub(min.max(0)).max(0)) };
    }
    if extent >= shape {
        return Range { min: Index::Int(0), extent: Index::Int(shape) };
    }
    range
}

/// The smallest and largest value of a sum over the inner variables, both over the other variables.
fn spread(sum: &Affine, inner: &[(Var, Index)], env: &Env) -> Option<(Affine, Affine)> {
    let is_inner = |v: Var| inner.iter().any(|(i, _)| *i == v);
    let (mut low, mut high) = (Affine::constant(sum.constant), Affine::constant(sum.constant));
    let mut pure = Affine::default();
    for (atom, c) in &sum.terms {
        let (mut has_inner, mut has_outer) = (false, false);
        atom.for_each_var(&mut |v| if is_inner(v) { has_inner = true } else { has_outer = true });
        if !has_inner {
            low.add_term(atom, *c)?;
            high.add_term(atom, *c)?;
            continue;
        }
        if !has_outer {
            pure.add_term(atom, *c)?;
            continue;
        }
        let (min, max) = spread_atom(atom, inner, env)?;
        let (min, max) = if *c > 0 { (min, max) } else { (max, min) };
        low.add(&min, *c)?;
        high.add(&max, *c)?;
    }
    match (lower(&pure, env), upper(&pure, env)) {
        (Some(min), Some(max)) => {
            low.add_constant(min)?;
            high.add_constant(max)?;
        }
        // A loop of symbolic extent.
        _ => {
            for (atom, c) in &pure.terms {
                let (min, max) = spread_atom(atom, inner, env)?;
                let (min, max) = if *c > 0 { (min, max) } else { (max, min) };
                low.add(&min, *c)?;
                high.add(&max, *c)?;
            }
        }
    }
    Some((canonical(&low.to_index(), env), canonical(&high.to_index(), env)))
}

fn spread_atom(atom: &Index, inner: &[(Var, Index)], env: &Env) -> Option<(Affine, Affine)> {
    let Index::Bin(op, a, b) = atom else {
        let at = inner.iter().position(|(v, _)| atom.as_var() == Some(*v))?;
        // An extent may mention the loops around it, never those inside it.
        let (_, most) = spread(&affine(&inner[at].1), &inner[..at], env)?;
        return Some((Affine::constant(0), most.plus(&Affine::constant(-1), 1)?));
    };
    let apply = |x: &Affine, y: &Affine| canonical(&Index::bin(*op, x.to_index(), y.to_index()), env);
    match (op, b.as_int()) {
        (IndexOp::FloorMod, Some(c)) if c > 0 => Some((Affine::constant(0), Affine::constant(c - 1))),
        (IndexOp::FloorDiv, Some(c)) if c > 0 => {
            let (min, max) = spread(&affine(a), inner, env)?;
            let by = Affine::constant(c);
            Some((apply(&min, &by), apply(&max, &by)))
        }
        (IndexOp::Min | IndexOp::Max, _) => {
            let (x, y) = (spread(&affine(a), inner, env)?, spread(&affine(b), inner, env)?);
            Some((apply(&x.0, &y.0), apply(&x.1, &y.1)))
        }
        _ => {
            let sum = Affine::atom(atom.clone());
            Some((Affine::constant(lower(&sum, env)?), Affine::constant(upper(&sum, env)?)))
        }
    }
}

#[cfg(test)]
mod tests;
