//! Cross-thread reductions: blocks that reduce over loops bound to threadIdx, or to the blocks of a cluster.
//!
//! Each thread combines the terms of its own iterations in a partial result; the threads then combine these, and the blocks of
//! the cluster their results. Where the output is local or shared, every thread, or block, has the result afterwards; else one
//! of them writes it.
//!
//! [`find`] says which blocks do so, or why one cannot. [`through_shared`] writes them out with partial results in shared
//! memory, as ordinary blocks: that is what the verifier judges, for each block of a cluster apart, as what they combine is
//! theirs by construction. `lower` has a faster form of the same.
//!
//! ```text
//! for t in 0..256 @threadIdx.x                 for t in 0..256 @threadIdx.x
//!   for k in 0..16                               for k in 0..16
//!     S: S[i] = S[i] + A[i, t*16 + k]    ->        S_partial: P[t] = P[t] + A[i, t*16 + k]
//!                                              for u in 0..256
//!                                                S: S[i] = S[i] + P[u]
//! ```

use super::reduction::{self, Reduction};
use super::{
    Axis, Block, BlockId, Buffer, BufferId, Cond, Expr, For, Func, Index, Iter, IterKind, Literal, LoopKind, Scope,
    Stmt, Store, Var, visit,
};

/// The axes that a reduction may run across.
pub const AXES: [Axis; 4] = [Axis::Cluster, Axis::ThreadX, Axis::ThreadY, Axis::ThreadZ];

/// The thread axes, x fastest.
const THREADS: [Axis; 3] = [Axis::ThreadX, Axis::ThreadY, Axis::ThreadZ];

/// Why a block that reduces over a bound loop is no cross-thread reduction.
#[derive(Debug, Clone)]
pub struct Refused {
    /// The block.
    pub block: BlockId,
    /// The loop.
    pub over: Var,
    /// The reason, as a clause.
    pub why: String,
    /// What to try.
    pub help: String,
}

/// A cross-thread reduction.
#[derive(Debug, Clone)]
pub struct CrossThread {
    /// The block, as it is.
    pub block: Block,
    /// What it combines, and where the results go.
    pub reduction: Reduction,
    /// What each store begins from.
    pub inits: Vec<Expr>,
    /// The conjuncts of the predicate that speak of reduce loops.
    terms: Cond,
    /// The other conjuncts.
    spatial: Cond,
    /// All loops around, without their bodies, outermost first.
    path: Vec<For>,
    /// Where the outermost reduce loop is in the path.
    first: usize,
    /// The reduce loops that are bound to threads, x first.
    pub threads: Vec<(Axis, Var, i64)>,
    /// The reduce loop that is bound to the blocks of a cluster.
    pub cluster: Option<(Var, i64)>,
}

fn runs(block: &Block, l: &For, kind: IterKind) -> bool {
    let own = l.defines();
    block.iters.iter().any(|i| i.kind == kind && own.iter().any(|(v, _)| i.binding.mentions(*v)))
}

/// Whether a block reduces over a loop that is bound to threadIdx or the cluster.
pub fn reduces_across(block: &Block, l: &For) -> bool {
    l.axis().is_some_and(|a| AXES.contains(&a)) && runs(block, l, IterKind::Reduce)
}

/// The cross-thread reductions, in the order of the text.
///
/// # Errors
/// A block that reduces over a loop bound to such an axis and cannot be done so.
pub fn find(func: &Func) -> Result<Vec<CrossThread>, Refused> {
    let mut found = Vec::new();
    for block in visit::blocks(&func.body) {
        let path = visit::loops_around(&func.body, block.name).unwrap_or_default();
        if let Some((at, l)) = path.iter().enumerate().find(|(_, l)| reduces_across(block, l)) {
            let refused = |(why, help): (String, String)| Refused { block: block.name, over: l.var, why, help };
            found.push(CrossThread::of(func, block, &path, at).map_err(refused)?);
        }
    }
    Ok(found)
}

impl CrossThread {
    /// `across` is the outermost loop of the path that the block reduces over and that is bound.
    fn of(func: &Func, block: &Block, path: &[&For], across: usize) -> Result<CrossThread, (String, String)> {
        let no = |why: String, help: &str| Err((why, help.to_string()));
        let name = |l: &For| func.var_name(l.var).to_string();
        let Some(reduction) = Reduction::of(func, block).filter(Reduction::combines_partials) else {
            let why = "it combines its output with another value by none of +, *, min and max".to_string();
            return no(why, "bind another loop, and leave this one serial");
        };
        let Some(inits) = reduction.neutral(block) else {
            let why = "it has no init that is the neutral constant of its operation".to_string();
            return no(why, "decompose_reduction takes the init away: leave it out, each thread starts from the init");
        };
        let reduce = |l: &&&For| runs(block, l, IterKind::Reduce);
        if let Some(l) = path.iter().find(|l| reduce(l) && runs(block, l, IterKind::Spatial)) {
            let why = format!("loop {} runs both spatial and reduce iterators", name(l));
            return no(why, "split and fuse reduce loops apart from spatial ones");
        }
        let other = |l: &&&For| match l.kind {
            LoopKind::Bound { axis, .. } => !AXES.contains(&axis) && (reduce(l) || !axis.is_block_level()),
            LoopKind::Vectorized | LoopKind::Persistent { .. } => reduce(l),
            LoopKind::Serial | LoopKind::Unrolled => false,
        };
        if let Some(l) = path.iter().find(other) {
            let why = format!("loop {} around it is {}", name(l), placed(l));
            return no(why, "reduce over threadIdx.x, y or z or the cluster alone, and let no warp loop stand around");
        }
        if let Some(l) = path.iter().find(|l| l.tensorize.is_some()) {
            let why = format!("loop {} around it is tensorized", name(l));
            return no(why, "rfactor the block, and bind the loop of the combination");
        }
        for buffer in reduction.stores.iter().map(|s| func.buffer(s.buffer)) {
            let dtype = buffer.dtype;
            if !matches!(dtype.bits(), 8 | 16 | 32 | 64) || dtype == crate::dtype::DType::Bool {
                return no(
                    format!("threads do not exchange values of {dtype}"),
                    "reduce in f32 or s32 and convert the result",
                );
            }
            if block.role.is_some() || buffer.scope == Scope::Fragment {
                let why = format!("its output {} is a fragment or a buffer of a role", buffer.name);
                return no(why, "set_scope it to local or shared");
            }
        }
        let scope = |s: &Store| func.buffer(s.buffer).scope;
        if let Some(other) = reduction.stores.iter().find(|s| scope(s) != scope(&reduction.stores[0])) {
            let [a, b] = [&reduction.stores[0], other].map(|s| func.buffer(s.buffer));
            let (first, second) = (a.scope.name(), b.scope.name());
            let why = format!("its outputs {} ({first}) and {} ({second}) are in different scopes", a.name, b.name);
            return no(why, "set_scope them alike; cache_write makes a local copy of an output of the program");
        }
        let reduces =
            |v: Var| path.iter().any(|l| runs(block, l, IterKind::Reduce) && l.defines().iter().any(|d| d.0 == v));
        let (mut terms, mut spatial) = (Cond::TRUE, Cond::TRUE);
        for part in block.predicate.conjuncts() {
            let (mut of_reduce, mut of_spatial) = (false, false);
            part.for_each_index(&mut |i| {
                i.for_each_var(&mut |v| *(if reduces(v) { &mut of_reduce } else { &mut of_spatial }) = true);
            });
            if of_reduce && of_spatial {
                let why =
                    format!("`{}` in its predicate uses spatial and reduce loops", super::print::cond(func, part));
                return no(why, "choose split factors that divide the extents");
            }
            let list = if of_reduce { &mut terms } else { &mut spatial };
            *list = list.clone().and(part.clone());
        }
        let mut threads = Vec::new();
        for axis in THREADS {
            let bound = path.iter().find(|l| l.axis() == Some(axis) && runs(block, l, IterKind::Reduce));
            threads.extend(bound.and_then(|l| Some((axis, l.var, l.extent.as_int()?))));
        }
        let cluster = path.iter().find(|l| l.axis() == Some(Axis::Cluster) && runs(block, l, IterKind::Reduce));
        Ok(CrossThread {
            cluster: cluster.and_then(|l| Some((l.var, l.extent.as_int()?))),
            reduction,
            inits,
            terms,
            spatial,
            path: path.iter().map(|l| For { body: Vec::new(), ..(*l).clone() }).collect(),
            first: path.iter().position(|l| runs(block, l, IterKind::Reduce)).unwrap_or(across),
            threads,
            block: block.clone(),
        })
    }

    /// The outermost loop that it reduces over.
    pub fn outermost(&self) -> Var {
        self.path[self.first].var
    }

    fn is_reduce(&self, l: &For) -> bool {
        runs(&self.block, l, IterKind::Reduce)
    }

    /// The loops around the outermost reduce loop, outermost first.
    pub fn around(&self) -> &[For] {
        &self.path[..self.first]
    }

    /// The spatial loops inside the outermost reduce loop.
    pub fn inside(&self) -> Vec<&For> {
        self.path[self.first..].iter().filter(|l| !self.is_reduce(l)).collect()
    }

    /// The bound spatial loops around and inside whose threads reduce apart from each other.
    pub fn apart(&self) -> Vec<&For> {
        let thread = |l: &&For| l.axis().is_some_and(|a| THREADS.contains(&a)) && !self.is_reduce(l);
        self.path.iter().filter(thread).collect()
    }

    /// The block that combines the terms of a thread in buffers of its own, one for each store, at indices over the loops around it.
    pub fn partial(&self, func: &mut Func, partials: &[BufferId], at: Vec<Index>) -> Block {
        let name = func.add_block(format!("{}_partial", func.block_name(self.block.name)));
        let serial = self.path.iter().any(|l| self.is_reduce(l) && l.axis().is_none());
        let (mut iters, mut map) = (Vec::new(), visit::Map::new());
        for l in &self.path {
            let kind = if self.is_reduce(l) && l.axis().is_none() { IterKind::Reduce } else { IterKind::Spatial };
            for (var, extent) in l.defines() {
                let own = func.add_var(format!("v{}", func.var_name(var)));
                map.insert(var, Index::Var(own));
                iters.push(Iter { var: own, kind, extent, binding: Index::Var(var) });
            }
        }
        let own = self.block.iters.iter().map(|i| (i.var, visit::subst_index(&i.binding, &map))).collect();
        let runs = visit::subst_cond(&self.spatial.clone().and(self.terms.clone()), &map);
        let term = |(term, init): (&Expr, &Expr)| {
            let term = visit::subst_expr(term, &own);
            match runs.is_true() {
                true => term,
                false => Expr::select(Expr::Cond(Box::new(runs.clone())), term, init.clone()),
            }
        };
        let terms: Vec<Expr> = self.reduction.terms.iter().zip(&self.inits).map(term).collect();
        let at: Vec<Index> = at.iter().map(|i| visit::subst_index(i, &map)).collect();
        let stores = |values: Vec<Expr>| {
            let store = |(to, value): (&BufferId, Expr)| Stmt::Store(Store::new(*to, at.clone(), value));
            partials.iter().zip(values).map(store).collect::<Vec<Stmt>>()
        };
        let (init, body) = match serial {
            true => {
                let before: Vec<Expr> = partials.iter().map(|p| Expr::load(*p, at.clone())).collect();
                (Some(stores(self.inits.clone())), stores(self.reduction.combine(&before, &terms)))
            }
            // An integer that begins a maximum shows in integer mode, where it is no least value.
            false if self.inits.iter().any(|e| matches!(e, Expr::Const(_, Literal::Int(v)) if *v != 0)) => {
                (None, stores(self.reduction.combine(&self.inits, &terms)))
            }
            false => (None, stores(terms)),
        };
        Block { name, iters, predicate: Cond::TRUE, init, body, copy_with: None, role: None }
    }

    /// The block's outputs at the values of spatial loops that represent its own: `loops` says which. `values` gives what each
    /// store writes.
    pub fn result(&self, func: &mut Func, loops: &[(Var, Var)], values: &dyn Fn(&visit::Map) -> Vec<Expr>) -> Block {
        let (mut iters, mut map) = (Vec::new(), visit::Map::new());
        let outside = self.path[..self.first].iter().chain(self.inside());
        for (var, extent) in outside.flat_map(For::defines) {
            let own = func.add_var(format!("v{}", func.var_name(var)));
            map.insert(var, Index::Var(own));
            let stands = loops.iter().find(|(old, _)| *old == var).map_or(var, |(_, new)| *new);
            iters.push(Iter { var: own, kind: IterKind::Spatial, extent, binding: Index::Var(stands) });
        }
        let own: visit::Map = self.block.iters.iter().map(|i| (i.var, visit::subst_index(&i.binding, &map))).collect();
        let back: visit::Map = loops.iter().map(|(old, new)| (*old, Index::Var(*new))).collect();
        let predicate = visit::subst_cond(&self.spatial, &back);
        let store = |(s, value): (&Store, Expr)| {
            let at = s.indices.iter().map(|i| visit::subst_index(i, &own)).collect();
            Stmt::Store(Store::new(s.buffer, at, value))
        };
        let body = self.reduction.stores.iter().zip(values(&map)).map(store).collect();
        Block { iters, predicate, init: None, body, ..self.block.clone() }
    }

    /// The result in its loops: in global memory the first block of the cluster writes it.
    pub fn written_once(&self, func: &mut Func, mut loops: Vec<For>, mut result: Block) -> Vec<Stmt> {
        if let Some((var, extent)) = self.cluster.filter(|_| self.scope(func) == Scope::Global) {
            let rank = func.add_var(fresh(func, func.var_name(var)));
            loops.insert(0, For::new(rank, extent, LoopKind::bound(Axis::Cluster), Vec::new()));
            result.predicate = result.predicate.and(Cond::eq(Index::Var(rank), 0));
        }
        nested(loops, vec![Stmt::Block(result)])
    }

    /// The scope of its outputs.
    fn scope(&self, func: &Func) -> Scope {
        self.reduction.stores.first().map_or(Scope::Global, |s| func.buffer(s.buffer).scope)
    }

    /// A buffer for each of its outputs, of the output's type.
    pub fn buffers(&self, func: &mut Func, what: &str, shape: &[Index], scope: Scope) -> Vec<BufferId> {
        let block = func.block_name(self.block.name).to_string();
        let several = self.reduction.stores.len() > 1;
        let mut one = |s: &Store| {
            let output = func.buffer(s.buffer);
            let wanted = if several { format!("{block}_{what}_{}", output.name) } else { format!("{block}_{what}") };
            let (name, dtype) = (fresh_buffer(func, &wanted), output.dtype);
            func.add_buffer(Buffer { exchange: true, ..Buffer::new(name, dtype, shape.to_vec(), scope) })
        };
        self.reduction.stores.iter().map(&mut one).collect()
    }

    /// Puts the partial block in place of the block, `before` in front of the outermost reduce loop, and `after` behind it.
    pub fn replace(&self, func: &mut Func, partial: Block, before: Vec<Stmt>, after: Vec<Stmt>) {
        let (block, outermost) = (self.block.name, self.outermost());
        let (mut partial, mut around) = (Some(partial), Some((before, after)));
        let body = std::mem::take(&mut func.body);
        func.body = visit::rewrite(body, &mut |s| match s {
            Stmt::Block(b) if b.name == block && partial.is_some() => {
                partial.take().map(Stmt::Block).into_iter().collect()
            }
            Stmt::For(l) if l.var == outermost && around.is_some() => {
                let (mut all, after) = around.take().unwrap_or_default();
                all.push(Stmt::For(l));
                all.extend(after);
                all
            }
            other => vec![other],
        });
    }
}

fn placed(l: &For) -> String {
    match l.kind {
        LoopKind::Bound { axis, .. } => format!("bound to {}", axis.name()),
        LoopKind::Vectorized => "vectorized".to_string(),
        _ => "persistent".to_string(),
    }
}

/// Loops that represent others: a bound one for the same axis, each other one written out. With the variables of both.
pub fn stand_in(func: &mut Func, loops: &[&For]) -> (Vec<For>, Vec<(Var, Var)>) {
    let (mut out, mut vars) = (Vec::new(), Vec::new());
    for l in loops {
        let var = func.add_var(fresh(func, func.var_name(l.var)));
        let kind = if l.axis().is_some() { l.kind } else { LoopKind::Unrolled };
        out.push(For::new(var, l.extent.clone(), kind, Vec::new()));
        vars.push((l.var, var));
    }
    (out, vars)
}

/// The name, with a number behind it where a variable has it already.
pub fn fresh(func: &Func, name: &str) -> String {
    let taken = |n: &str| func.vars.iter().any(|v| v == n);
    let numbered = (1..).map(|n| format!("{name}_{n}"));
    std::iter::once(name.to_string()).chain(numbered).find(|n| !taken(n)).unwrap_or_default()
}

/// A buffer's name that no buffer has.
pub fn fresh_buffer(func: &Func, name: &str) -> String {
    let taken = |n: &str| func.buffers.iter().any(|b| b.name == n);
    let numbered = (1..).map(|n| format!("{name}_{n}"));
    std::iter::once(name.to_string()).chain(numbered).find(|n| !taken(n)).unwrap_or_default()
}

/// The statements inside the loops, outermost first.
pub fn nested(loops: Vec<For>, body: Vec<Stmt>) -> Vec<Stmt> {
    loops.into_iter().rev().fold(body, |body, l| vec![Stmt::For(For { body, ..l })])
}

/// Makes a block that writes values one that combines them with its outputs, which begin from the init.
fn combine_into(result: &mut Block, one: &CrossThread) {
    let stores: Vec<Store> = reduction::stores(&result.body).into_iter().flatten().cloned().collect();
    let before: Vec<Expr> = stores.iter().map(|s| Expr::load(s.buffer, s.indices.clone())).collect();
    let values: Vec<Expr> = stores.iter().map(|s| s.value.clone()).collect();
    let put = |values: Vec<Expr>| {
        let store = |(s, value): (&Store, Expr)| Stmt::Store(Store { value, ..s.clone() });
        stores.iter().zip(values).map(store).collect::<Vec<Stmt>>()
    };
    result.init = Some(put(one.inits.clone()));
    result.body = put(one.reduction.combine(&before, &values));
}

/// The program with its cross-thread reductions through shared memory, written out as ordinary blocks; `None` if it has none.
///
/// # Errors
/// As [`find`].
pub fn through_shared(func: &Func) -> Result<Option<Func>, Refused> {
    let all = find(func)?;
    if all.is_empty() {
        return Ok(None);
    }
    let mut out = func.clone();
    for one in &all {
        let apart: Vec<&For> = one.apart();
        let serial: Vec<&For> = one.inside().into_iter().filter(|l| l.axis().is_none()).collect();
        let mut dims: Vec<(Var, Index)> = apart.iter().flat_map(|l| l.defines()).collect();
        dims.extend(one.threads.iter().map(|(_, v, n)| (*v, Index::Int(*n))));
        dims.extend(serial.iter().flat_map(|l| l.defines()));
        let shape: Vec<Index> = dims.iter().map(|d| d.1.clone()).collect();
        let shape = if shape.is_empty() { vec![Index::Int(1)] } else { shape };
        let partials = one.buffers(&mut out, "partial", &shape, Scope::Shared);
        let at: Vec<Index> = dims.iter().map(|d| Index::Var(d.0)).collect();
        let at = if at.is_empty() { vec![Index::Int(0)] } else { at };
        let block = one.partial(&mut out, &partials, at.clone());

        let (mut loops, vars) = stand_in(&mut out, &one.inside());
        let mut reduce = Vec::new();
        for (_, var, n) in &one.threads {
            let new = out.add_var(fresh(&out, out.var_name(*var)));
            loops.push(For::new(new, *n, LoopKind::Serial, Vec::new()));
            reduce.push((*var, new, *n));
        }
        let mut iters = Vec::new();
        let mut over = visit::Map::new();
        for (var, new, n) in &reduce {
            let own = out.add_var(format!("v{}", out.var_name(*new)));
            over.insert(*var, Index::Var(own));
            iters.push(Iter { var: own, kind: IterKind::Reduce, extent: Index::Int(*n), binding: Index::Var(*new) });
        }
        let mut result = one.result(&mut out, &vars, &|map| {
            let own = |i: &Index| visit::subst_index(&visit::subst_index(i, &over), map);
            partials.iter().map(|p| Expr::load(*p, at.iter().map(own).collect())).collect()
        });
        result.iters.extend(iters);
        combine_into(&mut result, one);
        let after = one.written_once(&mut out, loops, result);
        if one.first == 0 {
            // Both stay in one nest of the root, which is one kernel.
            let once = out.add_var(fresh(&out, "once"));
            let outermost = one.outermost();
            out.body = visit::rewrite(std::mem::take(&mut out.body), &mut |s| match s {
                Stmt::For(l) if l.var == outermost => {
                    vec![Stmt::For(For::new(once, 1, LoopKind::Serial, vec![Stmt::For(l)]))]
                }
                other => vec![other],
            });
        }
        one.replace(&mut out, block, Vec::new(), after);
    }
    Ok(Some(out))
}
