//! Factoring a reduction: the terms of a block go into partial results, one for each iteration of one of its reduce
//! loops, which the block then combines. What `rfactor`, `promote` and `split_k` share: requirements 1 to 7 of each, and the rewrite.

use super::refusal::Refusal;
use super::{dataflow, find, nest};
use crate::error::Result;
use crate::ir::print::Node;
use crate::ir::reduction::{Combiner, Reduction};
use crate::ir::simplify::{self, Env};
use crate::ir::{
    BinOp, Block, Buffer, BufferId, Cond, Expr, For, Func, Index, Iter, IterKind, LoopKind, Scope, Stmt, Store, Var,
    visit,
};

/// What the check finds out.
pub struct Factoring<'a> {
    block: &'a Block,
    /// The loop whose iterations get partial results of their own.
    factor: &'a For,
    reduction: Reduction,
    /// What each store begins from.
    inits: Vec<Expr>,
    /// The reduce loops besides the factored one.
    others: Vec<&'a For>,
    /// The position of the nest in the root.
    pub root: usize,
    /// The part of the predicate about spatial loops.
    predicate: Cond,
    /// The part of the predicate about reduce loops: where there is a term.
    terms: Cond,
    /// Factors that multiply a partial result instead of its terms, over the factored loop and the spatial iterators.
    common: Option<Expr>,
}

/// The names of what is made.
pub struct Names {
    /// The block that sums the partial results, and their buffer.
    pub stage: String,
    /// Loops that the primitive makes besides.
    pub own: Vec<String>,
    /// The loops of the combination: one for each spatial iterator and one for the factored loop.
    pub loops: Vec<String>,
}

impl Names {
    /// Those that a step states, else `BLOCK_suffix`, the names in `own`, and `BLOCK_0`, `BLOCK_1`, ...
    ///
    /// # Errors
    /// As [`find::new_loops`].
    pub fn of(func: &Func, block: &Block, stated: &[String], suffix: &str, own: &[String]) -> Result<Names> {
        let name = func.block_name(block.name);
        let stage = find::new_stage(func, stated.first(), &format!("{name}_{suffix}"))?;
        let rank = block.iters.iter().filter(|i| i.kind == IterKind::Spatial).count();
        let defaults: Vec<String> = own.iter().cloned().chain((0..=rank).map(|n| format!("{name}_{n}"))).collect();
        let mut made = find::new_loops_from(func, stated.get(1..).unwrap_or_default(), &defaults, &[])?;
        let loops = made.split_off(own.len());
        Ok(Names { stage, own: made, loops })
    }

    /// In the order of the step's text.
    pub fn all(self) -> Vec<String> {
        std::iter::once(self.stage).chain(self.own).chain(self.loops).collect()
    }
}

impl<'a> Factoring<'a> {
    /// Checks requirements 1 to 7 for a block and one of its loops.
    ///
    /// # Errors
    /// The first that is broken, as `refusal` has it.
    pub fn check(refusal: Refusal, func: &'a Func, block: &'a Block, factor: &'a For) -> Result<Factoring<'a>> {
        let name = func.block_name(block.name);
        let this = [(Node::Block(block.name), "this block")];
        check_nature(refusal, func, block)?;
        let Some(reduction) = Reduction::of(func, block).filter(Reduction::combines_partials) else {
            let message = format!("{name} is no sum, product, minimum or maximum of its output and another value");
            return Err(refusal.broken(2, message, &this));
        };
        let Some(inits) = reduction.neutral(block) else {
            let message = format!("the init of {name} is not the neutral constant of its operation");
            return Err(refusal.broken(3, message, &this));
        };
        let (others, root) = check_loops(refusal, func, block, factor)?;
        let (predicate, terms) = check_terms(refusal, func, block, factor, &others)?;
        Ok(Factoring { block, factor, reduction, inits, others, root, predicate, terms, common: None })
    }

    /// Whether loops besides the factored one run reduce iterators.
    pub fn has_other_loops(&self) -> bool {
        !self.others.is_empty()
    }

    /// The program in which a block of its own sums the partial results, in BLOCK's place, and BLOCK combines them in a
    /// nest behind. The results lie where `scope` says.
    pub fn rewrite(&self, func: &Func, names: &Names, scope: Scope) -> Func {
        let mut out = func.clone();
        let several = self.reduction.stores.len() > 1;
        let mut partial = |store: &Store| {
            let output = func.buffer(store.buffer);
            let shape = std::iter::once(self.factor.extent.clone()).chain(output.shape.iter().cloned()).collect();
            let name = match several {
                true => out.unused_buffer_name(&format!("{}_{}", names.stage, output.name)),
                false => names.stage.clone(),
            };
            out.add_buffer(Buffer::new(name, output.dtype, shape, scope))
        };
        let partials: Vec<BufferId> = self.reduction.stores.iter().map(&mut partial).collect();
        let combine = self.combination(&mut out, &partials, &names.loops);
        let accumulate = self.partial_block(&mut out, &partials, &names.stage);
        visit::change_block(&mut out.body, self.block.name, &mut |b| *b = accumulate.clone());
        out.body.insert(self.root + 1, combine);
        out
    }

    /// Takes out of the terms of a sum the factors that are the same in all iterations of the other reduce loops: they then multiply the
    /// partial results.
    pub fn take_common_factors(&mut self, func: &Func) {
        let ([Combiner::Op(BinOp::Add)], [term]) = (&self.reduction.combiners[..], &mut self.reduction.terms[..])
        else {
            return;
        };
        let all = self.others.iter().chain([&self.factor]);
        let env = Env::with_loops(all.copied());
        let bindings: visit::Map = self
            .block
            .iters
            .iter()
            .filter(|i| i.kind == IterKind::Reduce)
            .map(|i| (i.var, i.binding.clone()))
            .collect();
        let over_loops = |e: &Expr| {
            let e = visit::subst_expr(e, &bindings);
            visit::map_expr(&e, &mut |i| simplify::simplify(i, &env), &mut |e| e)
        };
        let is_common = |e: &Expr| !self.others.iter().any(|l| visit::mentions(&over_loops(e), l.var));
        let mut factors = Vec::new();
        product_of(func, term, &is_common, &mut factors);
        let (mut common, mut rest): (Vec<Expr>, Vec<Expr>) = factors.into_iter().partition(is_common);
        if rest.is_empty() {
            rest.extend(common.pop());
        }
        let product = |all: Vec<Expr>| all.into_iter().reduce(|a, b| Expr::bin(BinOp::Mul, a, b));
        self.common = product(common.iter().map(over_loops).collect());
        if let Some(rest) = product(rest) {
            *term = rest;
        }
    }

    /// The scope of what the block writes.
    pub fn scope(&self, func: &Func) -> Scope {
        self.reduction.stores.first().map_or(Scope::Global, |s| func.buffer(s.buffer).scope)
    }

    /// Statements that write a value to each partial result.
    fn stores(&self, to: &[BufferId], at: &[Vec<Index>], values: Vec<Expr>) -> Vec<Stmt> {
        let store =
            |((to, at), value): ((&BufferId, &Vec<Index>), Expr)| Stmt::Store(Store::new(*to, at.clone(), value));
        to.iter().zip(at).zip(values).map(store).collect()
    }

    /// The block that accumulates the partial results, in BLOCK's place.
    fn partial_block(&self, func: &mut Func, partials: &[BufferId], stage: &str) -> Block {
        let (block, factor) = (self.block, self.factor);
        let name = func.add_block(stage);
        let mut iter_of = |l: &For, kind| {
            let var = func.add_var(format!("v{}", func.var_name(l.var)));
            Iter { var, kind, extent: l.extent.clone(), binding: Index::Var(l.var) }
        };
        let lane = iter_of(factor, IterKind::Spatial);
        let reduce: Vec<Iter> = self.others.iter().map(|l| iter_of(l, IterKind::Reduce)).collect();
        let loops: visit::Map =
            [&lane].into_iter().chain(&reduce).filter_map(|i| Some((i.binding.as_var()?, Index::Var(i.var)))).collect();
        let old = block.iters.iter().filter(|i| i.kind == IterKind::Reduce);
        let map: visit::Map = old.map(|i| (i.var, visit::subst_index(&i.binding, &loops))).collect();
        let within = visit::subst_cond(&self.terms, &loops);
        let term = |(term, init): (&Expr, &Expr)| {
            let term = visit::subst_expr(term, &map);
            match within.is_true() {
                true => term,
                false => Expr::select(Expr::Cond(Box::new(within.clone())), term, init.clone()),
            }
        };
        let terms: Vec<Expr> = self.reduction.terms.iter().zip(&self.inits).map(term).collect();
        let place = |s: &Store| std::iter::once(Index::Var(lane.var)).chain(s.indices.iter().cloned()).collect();
        let at: Vec<Vec<Index>> = self.reduction.stores.iter().map(place).collect();
        let (init, body) = match reduce.is_empty() {
            true => (None, self.stores(partials, &at, terms)),
            false => {
                let own: Vec<Expr> = partials.iter().zip(&at).map(|(p, at)| Expr::load(*p, at.clone())).collect();
                let init = self.stores(partials, &at, self.inits.clone());
                (Some(init), self.stores(partials, &at, self.reduction.combine(&own, &terms)))
            }
        };
        let spatial = block.iters.iter().filter(|i| i.kind == IterKind::Spatial).cloned();
        let iters = std::iter::once(lane).chain(spatial).chain(reduce).collect();
        Block { name, iters, predicate: self.predicate.clone(), init, body, copy_with: None, role: block.role }
    }

    /// BLOCK in its new nest, combining the partial results.
    fn combination(&self, func: &mut Func, partials: &[BufferId], names: &[String]) -> Stmt {
        let (block, factor) = (self.block, self.factor);
        let (mut loops, mut iters, mut map) = (Vec::new(), Vec::new(), visit::Map::new());
        let spatial: Vec<&Iter> = block.iters.iter().filter(|i| i.kind == IterKind::Spatial).collect();
        for (it, name) in spatial.iter().zip(names) {
            let var = func.add_var(name.clone());
            loops.push(For::new(var, it.extent.clone(), LoopKind::Serial, Vec::new()));
            let own = func.add_var(func.var_name(it.var).to_string());
            map.insert(it.var, Index::Var(own));
            iters.push(Iter { var: own, binding: Index::Var(var), ..(*it).clone() });
        }
        let var = func.add_var(names.last().cloned().unwrap_or_default());
        loops.push(For::new(var, factor.extent.clone(), LoopKind::Serial, Vec::new()));
        let own = func.add_var(format!("v{}", func.var_name(factor.var)));
        iters.push(Iter { var: own, kind: IterKind::Reduce, extent: factor.extent.clone(), binding: Index::Var(var) });
        let place = |s: &Store| s.indices.iter().map(|i| visit::subst_index(i, &map)).collect();
        let at: Vec<Vec<Index>> = self.reduction.stores.iter().map(place).collect();
        let outputs: Vec<BufferId> = self.reduction.stores.iter().map(|s| s.buffer).collect();
        let before: Vec<Expr> = outputs.iter().zip(&at).map(|(b, at)| Expr::load(*b, at.clone())).collect();
        map.insert(factor.var, Index::Var(own));
        let from = |(p, at): (&BufferId, &Vec<Index>)| {
            let part = Expr::load(*p, std::iter::once(Index::Var(own)).chain(at.iter().cloned()).collect());
            match &self.common {
                Some(common) => Expr::bin(BinOp::Mul, part, visit::subst_expr(common, &map)),
                None => part,
            }
        };
        let parts: Vec<Expr> = partials.iter().zip(&at).map(from).collect();
        let init = Some(self.stores(&outputs, &at, self.inits.clone()));
        let body = self.stores(&outputs, &at, self.reduction.combine(&before, &parts));
        let new = Block { iters, predicate: Cond::TRUE, init, body, ..block.clone() };
        nest::wrap(loops, Stmt::Block(new))
    }
}

/// The factors of a product, in the order of the text. A product that is converted to a type which has all its values is a product of converted
/// factors where one of these is common: one rounding less.
fn product_of(func: &Func, value: &Expr, is_common: &dyn Fn(&Expr) -> bool, factors: &mut Vec<Expr>) {
    match value {
        Expr::Bin(BinOp::Mul, a, b) => {
            product_of(func, a, is_common, factors);
            product_of(func, b, is_common, factors);
        }
        Expr::Cast(to, product) if func.dtype_of(product).is_ok_and(|from| from.is_float() && from.widens_to(*to)) => {
            let mut narrow = Vec::new();
            product_of(func, product, is_common, &mut narrow);
            match narrow.iter().any(is_common) {
                true => factors.extend(narrow.into_iter().map(|e| Expr::Cast(*to, Box::new(e)))),
                false => factors.push(value.clone()),
            }
        }
        other => factors.push(other.clone()),
    }
}
/// Requirement 1.
fn check_nature(refusal: Refusal, func: &Func, block: &Block) -> Result<()> {
    let name = func.block_name(block.name);
    let this = (Node::Block(block.name), "this block");
    let nature = dataflow::nature(block).and_then(|n| if n.reduction { Ok(n) } else { Err("it has no init".into()) });
    let nature = nature.map_err(|why| {
        let error = refusal.broken(1, format!("{name} cannot be factored: {why}"), &[this]);
        error.help(format!("{} is for blocks that reduce, before decompose_reduction", refusal.primitive()))
    })?;
    let Some(w) = nature.outputs().find_map(|o| dataflow::other_writer(func, o, block)) else {
        return Ok(());
    };
    let message = format!("{} also writes what {name} writes", func.block_name(w.name));
    Err(refusal.broken(1, message, &[this, (Node::Block(w.name), "the other writer")]))
}

/// Requirements 4 and 5; the other reduce loops, and the nest's position.
fn check_loops<'a>(refusal: Refusal, func: &'a Func, block: &Block, factor: &For) -> Result<(Vec<&'a For>, usize)> {
    let (name, loop_name) = (func.block_name(block.name), func.var_name(factor.var));
    let around = find::around(&func.body, block.name)?;
    let runs = |l: &For, kind| {
        let own = l.defines();
        block.iters.iter().any(|i| i.kind == kind && own.iter().any(|(v, _)| i.binding.mentions(*v)))
    };
    // A loop of one iteration has left the iterators that it ran.
    let once = factor.extent.as_int() == Some(1);
    let reduces = (once || runs(factor, IterKind::Reduce)) && !runs(factor, IterKind::Spatial);
    if !around.iter().any(|l| l.var == factor.var) || !reduces || nest::is_placed(factor) {
        let message = format!("{loop_name} is no unplaced loop of {name} that runs reduce iterators alone");
        return Err(refusal.broken(
            4,
            message,
            &[(Node::Block(block.name), "this block"), (Node::Loop(factor.var), "this loop")],
        ));
    }
    let bad = |l: &&&For| {
        let both = runs(l, IterKind::Spatial) && runs(l, IterKind::Reduce);
        l.body.len() != 1 || l.tensorize.is_some() || both
    };
    if let Some(l) = around.iter().find(bad) {
        let at = func.var_name(l.var);
        let (message, help) = match (l.body.len() != 1, l.tensorize.is_some()) {
            (true, _) => (
                format!("loop {at} holds more than {name}"),
                format!("rfactor {name} before compute_at or reverse_compute_at joins other blocks to {at}"),
            ),
            (false, true) => (format!("loop {at} is tensorized"), format!("rfactor {name} before tensorize {at}")),
            (false, false) => (
                format!("loop {at} runs both spatial and reduce iterators of {name}"),
                "split and fuse reduce loops apart from spatial ones".to_string(),
            ),
        };
        return Err(refusal.broken(5, message, &[(Node::Loop(l.var), "this loop")]).help(help));
    }
    let Some(spot) = dataflow::spot_of_block(func, block.name) else { return Err(refusal.lost("the block")) };
    let others = around.into_iter().filter(|l| l.var != factor.var && runs(l, IterKind::Reduce)).collect();
    Ok((others, spot.steps.first().copied().unwrap_or_default()))
}

/// Requirements 6 and 7; the predicate's parts about spatial and about reduce loops.
fn check_terms(refusal: Refusal, func: &Func, block: &Block, factor: &For, others: &[&For]) -> Result<(Cond, Cond)> {
    let name = func.block_name(block.name);
    let this = [(Node::Block(block.name), "this block")];
    let around = find::around(&func.body, block.name)?;
    let reduces = |v: Var| v == factor.var || others.iter().any(|l| l.var == v);
    let (mut predicate, mut terms) = (Cond::TRUE, Cond::TRUE);
    for part in block.predicate.conjuncts() {
        let (mut spatial, mut reduce) = (false, false);
        part.for_each_index(&mut |i| {
            i.for_each_var(&mut |v| *(if reduces(v) { &mut reduce } else { &mut spatial }) = true)
        });
        if spatial && reduce {
            let message = format!("`{}` uses spatial and reduce loops of {name}", crate::ir::print::cond(func, part));
            return Err(refusal.broken(7, message, &this));
        }
        let list = if reduce { &mut terms } else { &mut predicate };
        *list = list.clone().and(part.clone());
    }
    let spatial = Block { predicate: predicate.clone(), ..block.clone() };
    if !nest::sweeps_domains(func, &spatial, &around) {
        let message = format!("the loops of {name} do not sweep the whole domains of its spatial iterators");
        return Err(refusal.broken(6, message, &this));
    }
    Ok((predicate, terms))
}
