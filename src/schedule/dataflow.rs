//! Who computes what: the nature of a block, who reads and writes a buffer, and where a statement stands.
//!
//! Text order represents time: a statement that precedes another runs before it in every iteration of the loops
//! around both. Moves are justified by it alone.

use crate::ir::decide;
use crate::ir::reduction;
use crate::ir::region::{self, Region, Touch};
use crate::ir::simplify::{self, Env};
use crate::ir::{Block, BlockId, BufferId, Cond, Expr, For, Func, Index, Iter, IterKind, Stmt, Store, Var, visit};

/// What a block computes, when its stores are of a well-behaved kind.
#[derive(Debug, Clone)]
pub struct Nature {
    /// The buffers it writes, each once, and where, over its iterators; in the order of the text.
    pub written: Vec<(BufferId, Vec<Index>)>,
    /// Whether it starts with an init and accumulates; else each element is computed at once from other buffers.
    pub reduction: bool,
}

impl Nature {
    /// The buffers it writes.
    pub fn outputs(&self) -> impl Iterator<Item = BufferId> + '_ {
        self.written.iter().map(|(buffer, _)| *buffer)
    }

    /// The one buffer that it writes.
    ///
    /// # Errors
    /// Why there is none: it writes several.
    pub fn output(&self) -> Result<BufferId, String> {
        match self.written.as_slice() {
            [(buffer, _)] => Ok(*buffer),
            several => Err(format!("it computes {} buffers at once", several.len())),
        }
    }
}

/// The nature of a block, or why it has none: running a block with a nature again gives the same elements again.
pub fn nature(block: &Block) -> Result<Nature, String> {
    let Some(stores) = reduction::stores(&block.body) else {
        return Err("its body is not one store for each buffer that it writes".into());
    };
    let written: Vec<BufferId> = stores.iter().map(|s| s.buffer).collect();
    if (1..written.len()).any(|n| written[..n].contains(&written[n])) {
        return Err("its body is not one store for each buffer that it writes".into());
    }
    let reduces = block.iters.iter().filter(|i| i.kind == IterKind::Reduce);
    if reduces.clone().any(|i| stores.iter().any(|s| s.indices.iter().any(|x| x.mentions(i.var)))) {
        return Err("a reduce iterator occurs in the index that it writes".into());
    }
    let reduction = block.init.is_some();
    if !reduction && reduces.count() > 0 {
        return Err("it reduces without an init (move it before decompose_reduction)".into());
    }
    if let Some(init) = &block.init {
        let begins = |(i, s): (&&Store, &&Store)| {
            i.buffer == s.buffer && i.indices == s.indices && !written.iter().any(|b| loads(&i.value, *b))
        };
        let inits = reduction::stores(init).unwrap_or_default();
        if inits.len() != stores.len() || !inits.iter().zip(&stores).all(begins) {
            return Err("its init is not one store to each place that its body writes".into());
        }
    }
    if stores.iter().any(|s| !writes_apart(block, &s.indices)) {
        return Err("two of its iterations may write one element".into());
    }
    if stores.iter().any(|s| loads_elsewhere(s, &stores, reduction)) {
        return Err("it reads what it writes".into());
    }
    let written = stores.iter().map(|s| (s.buffer, s.indices.clone())).collect();
    Ok(Nature { written, reduction })
}

/// A block besides `block` that writes the buffer.
pub fn other_writer<'a>(func: &'a Func, buffer: BufferId, block: &Block) -> Option<&'a Block> {
    writers(func, buffer).into_iter().find(|w| w.name != block.name)
}

/// Whether different values of the spatial iterators write different elements.
fn writes_apart(block: &Block, at: &[Index]) -> bool {
    let spatial: Vec<_> = block.iters.iter().filter(|i| i.kind == IterKind::Spatial).collect();
    let occurs = |v: Var| at.iter().any(|x| x.mentions(v));
    if spatial.iter().any(|i| i.extent.as_int() != Some(1) && !occurs(i.var)) {
        return false;
    }
    let plain = spatial.iter().all(|i| i.extent.as_int() == Some(1) || at.iter().any(|x| x.as_var() == Some(i.var)));
    let vars: Option<Vec<(Var, i64)>> = spatial.iter().map(|i| Some((i.var, i.extent.as_int()?))).collect();
    plain || vars.is_some_and(|vars| super::digits::image(at, &vars).injective)
}

/// Whether a store reads what the block writes, but for the elements that a reduction goes on with.
fn loads_elsewhere(store: &Store, all: &[&Store], own_places_allowed: bool) -> bool {
    let mut found = false;
    visit::walk_expr(&store.value, &mut |e| {
        if let Expr::Load { buffer, indices, .. } = e {
            let own = |s: &&&Store| s.buffer == *buffer;
            found |= all.iter().find(own).is_some_and(|s| !(own_places_allowed && *indices == s.indices));
        }
    });
    found
}

fn loads(value: &Expr, of: BufferId) -> bool {
    let mut found = false;
    visit::walk_expr(value, &mut |e| found |= matches!(e, Expr::Load { buffer, .. } if *buffer == of));
    found
}

/// The buffers that a block reads, with its init, each once.
pub fn block_reads(block: &Block) -> Vec<BufferId> {
    let mut all = visit::reads(block.init.as_deref().unwrap_or_default());
    all.extend(visit::reads(&block.body));
    all.sort();
    all.dedup();
    all
}

/// The buffers that a block writes, with its init, each once.
pub fn block_writes(block: &Block) -> Vec<BufferId> {
    let mut all = visit::writes(block.init.as_deref().unwrap_or_default());
    all.extend(visit::writes(&block.body));
    all.sort();
    all.dedup();
    all
}

/// The only store of a block's body to a buffer, if the body is a list of stores.
pub fn store_to(block: &Block, buffer: BufferId) -> Option<&Store> {
    let mut to = reduction::stores(&block.body)?.into_iter().filter(|s| s.buffer == buffer);
    let first = to.next()?;
    to.next().is_none().then_some(first)
}

/// The index vectors with which a block reads a buffer, in the order of the text.
pub fn reads_at(block: &Block, of: BufferId) -> Vec<Vec<Index>> {
    let mut out = Vec::new();
    for body in block.init.iter().chain([&block.body]) {
        visit::walk(body, &mut |s| {
            if let Stmt::Store(store) = s {
                visit::walk_expr(&store.value, &mut |e| match e {
                    Expr::Load { buffer, indices, .. } if *buffer == of => out.push(indices.clone()),
                    _ => {}
                });
            }
        });
    }
    out
}

/// Whether indices are over the block's iterators alone: no data, and no loops inside the block.
pub fn over_iterators(block: &Block, at: &[Index]) -> bool {
    let mut own = true;
    at.iter().for_each(|i| i.for_each_var(&mut |v| own &= block.iters.iter().any(|it| it.var == v)));
    own
}

/// Whether the block reads anything at an index that is a datum.
pub fn gathers(block: &Block) -> bool {
    let mut found = false;
    for body in block.init.iter().chain([&block.body]) {
        visit::walk(body, &mut |s| {
            if let Stmt::Store(store) = s {
                found |= !visit::gathered(&store.value).is_empty();
            }
        });
    }
    found
}

/// The blocks that read a buffer, in the order of the text.
pub fn readers(func: &Func, buffer: BufferId) -> Vec<&Block> {
    visit::blocks(&func.body).into_iter().filter(|b| block_reads(b).contains(&buffer)).collect()
}

/// The blocks that write a buffer, in the order of the text.
pub fn writers(func: &Func, buffer: BufferId) -> Vec<&Block> {
    visit::blocks(&func.body).into_iter().filter(|b| block_writes(b).contains(&buffer)).collect()
}

/// The blocks in a body that read a buffer, in the order of the text.
pub fn readers_in(body: &[Stmt], buffer: BufferId) -> Vec<BlockId> {
    visit::blocks(body).into_iter().filter(|b| block_reads(b).contains(&buffer)).map(|b| b.name).collect()
}

/// The blocks in a body that write a buffer, in the order of the text.
pub fn writers_in(body: &[Stmt], buffer: BufferId) -> Vec<BlockId> {
    visit::blocks(body).into_iter().filter(|b| block_writes(b).contains(&buffer)).map(|b| b.name).collect()
}

/// The first block after `block` that writes what it reads (its own output aside).
pub fn later_writer<'a>(func: &'a Func, block: &Block) -> Option<&'a Block> {
    let own = block_writes(block);
    let inputs: Vec<BufferId> = block_reads(block).into_iter().filter(|b| !own.contains(b)).collect();
    let after = visit::blocks(&func.body).into_iter().skip(place(func, block.name).saturating_add(1));
    after.into_iter().find(|w| block_writes(w).iter().any(|b| inputs.contains(b)))
}

/// The block's number in the order of the text.
pub fn place(func: &Func, block: BlockId) -> usize {
    visit::blocks(&func.body).iter().position(|b| b.name == block).unwrap_or(usize::MAX)
}

/// Where a statement stands: its position in the root, then in each loop around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// One position more than there are loops around.
    pub steps: Vec<usize>,
    /// The loops around, outermost first.
    pub loops: Vec<Var>,
}

/// The path of a block; `None` if it is under anything but loops.
pub fn spot_of_block(func: &Func, block: BlockId) -> Option<Spot> {
    spot(&func.body, &|s| matches!(s, Stmt::Block(b) if b.name == block))
}

/// The path of a loop; `None` if it is under anything but loops.
pub fn spot_of_loop(func: &Func, var: Var) -> Option<Spot> {
    spot(&func.body, &|s| matches!(s, Stmt::For(l) if l.var == var))
}

fn spot(body: &[Stmt], is: &dyn Fn(&Stmt) -> bool) -> Option<Spot> {
    for (position, stmt) in body.iter().enumerate() {
        if is(stmt) {
            return Some(Spot { steps: vec![position], loops: Vec::new() });
        }
        if let Stmt::For(l) = stmt
            && let Some(mut inner) = spot(&l.body, is)
        {
            inner.steps.insert(0, position);
            inner.loops.insert(0, l.var);
            return Some(inner);
        }
    }
    None
}

impl Spot {
    /// How many of the innermost bodies around two different statements are shared: 0 when only the root is.
    pub fn shared_loops(&self, other: &Spot) -> usize {
        self.loops.iter().zip(&other.loops).take_while(|(a, b)| a == b).count()
    }

    /// Whether it is under the loop.
    pub fn under(&self, var: Var) -> bool {
        self.loops.contains(&var)
    }
}

/// The body that holds the statement at `steps`; the root's for one step.
pub fn body_at<'a>(body: &'a [Stmt], steps: &[usize]) -> &'a [Stmt] {
    match (steps, steps.first().and_then(|s| body.get(*s))) {
        ([_, rest @ ..], Some(Stmt::For(l))) if !rest.is_empty() => body_at(&l.body, rest),
        _ => body,
    }
}

/// Puts a statement at `steps`, before what is there.
pub fn insert_at(body: &mut Vec<Stmt>, steps: &[usize], stmt: Stmt) {
    match steps {
        [] => body.push(stmt),
        [last] => body.insert((*last).min(body.len()), stmt),
        [first, rest @ ..] => {
            if let Some(Stmt::For(l)) = body.get_mut(*first) {
                insert_at(&mut l.body, rest, stmt);
            }
        }
    }
}

/// The statements with all blocks left out that `keep` refuses, and loops that are empty then.
pub fn only(body: &[Stmt], keep: &dyn Fn(&Block) -> bool) -> Vec<Stmt> {
    visit::rewrite(body.to_vec(), &mut |s| match s {
        Stmt::Block(b) if !keep(&b) => Vec::new(),
        Stmt::For(l) if l.body.is_empty() => Vec::new(),
        s => vec![s],
    })
}

/// The variables that loops define, with their extents; `None` where an extent is not a constant.
pub fn constant_vars(loops: &[&For]) -> Option<Vec<(Var, i64)>> {
    loops.iter().flat_map(|l| l.defines()).map(|(v, e)| Some((v, e.as_int()?))).collect()
}

/// Whether a block's predicate says no more than that its iterators stay in their domains.
pub fn bounded_by_domains(block: &Block, around: &[&For]) -> bool {
    let mut env = super::nest::env_of(around);
    let plain = env.clone();
    for it in &block.iters {
        env.assume(&Cond::lt(it.binding.clone(), it.extent.clone()));
        env.assume(&Cond::ge(it.binding.clone(), 0));
    }
    let by_domain = |part: &Cond| block.iters.iter().any(|it| super::nest::says_domain(part, it, &plain));
    block.predicate.conjuncts().into_iter().all(|part| by_domain(part) || decide::proves(part, &env))
}

/// Whether the block's stores to `buffer` fill a box as the loops run, its iterators' domains aside.
pub fn is_dense(writer: &Block, buffer: BufferId, loops: &[&For]) -> bool {
    is_dense_under(writer, buffer, loops, loops)
}

/// [`is_dense`] for the innermost ones of the loops `around` it: a predicate may say how far the others go.
pub fn is_dense_under(writer: &Block, buffer: BufferId, loops: &[&For], around: &[&For]) -> bool {
    let mut written = Vec::new();
    for body in writer.init.iter().chain([&writer.body]) {
        visit::walk(body, &mut |s| match s {
            Stmt::Store(s) if s.buffer == buffer => written.push(&s.indices),
            _ => {}
        });
    }
    written.into_iter().all(|at| fill_box(writer, at, loops, around))
}

/// Whether the block reads `buffer` at one place, whatever the values, and so all of a box as the loops run.
pub fn reads_box(reader: &Block, buffer: BufferId, loops: &[&For]) -> bool {
    let mut chosen = false;
    for body in reader.init.iter().chain([&reader.body]) {
        visit::walk(body, &mut |s| {
            if let Stmt::Store(s) = s {
                visit::walk_expr(&s.value, &mut |e| chosen |= matches!(e, Expr::Select(..)) && loads(e, buffer));
            }
        });
    }
    let at = reads_at(reader, buffer);
    !chosen
        && at.iter().all(|a| *a == at[0] && over_iterators(reader, a))
        && at.first().is_some_and(|at| fill_box(reader, at, loops, loops))
}

/// Whether indices over a block's iterators take all values of a box as the loops run.
fn fill_box(block: &Block, at: &[Index], loops: &[&For], around: &[&For]) -> bool {
    let Some(vars) = constant_vars(loops) else { return false };
    let map: visit::Map = block.iters.iter().map(|i| (i.var, i.binding.clone())).collect();
    let env = super::nest::env_of(loops);
    let swept: Vec<Index> = at.iter().map(|i| simplify::simplify(&visit::subst_index(i, &map), &env)).collect();
    bounded_by_domains(block, around) && super::digits::image(&swept, &vars).dense && ends_with_box(block, at, around)
}

/// Whether indices over a block's iterators still take all values of a box where its predicate ends iterators with their domains.
/// Quotients and remainders of an iterator do so if the indices of the whole domains are a box.
fn ends_with_box(block: &Block, at: &[Index], around: &[&For]) -> bool {
    let (env, conditions) = (super::nest::env_of(around), block.predicate.conjuncts());
    let ends = |it: &Iter| conditions.iter().any(|c| super::nest::says_domain(c, it, &env));
    if !block.iters.iter().any(|it| at.iter().any(|i| i.divides(it.var)) && ends(it)) {
        return true;
    }
    let indexing = block.iters.iter().filter(|it| at.iter().any(|i| i.mentions(it.var)));
    let domains = indexing.map(|it| Some((it.var, it.extent.as_int()?))).collect::<Option<Vec<_>>>();
    domains.is_some_and(|domains| super::digits::image(at, &domains).dense)
}

/// Whether a block in the body fills the region of the buffer each time the body runs; `env` knows the loops around.
pub fn fills(func: &Func, body: &[Stmt], buffer: BufferId, region: &Region, env: &Env) -> bool {
    let blocks = visit::blocks(body);
    let mut writers = blocks.into_iter().filter(|b| block_writes(b).contains(&buffer));
    writers.any(|w| {
        let inner = visit::loops_around(body, w.name).unwrap_or_default();
        let written = region::touched(func, &only(body, &|b| b.name == w.name), buffer, Touch::Writes, env);
        is_dense(w, buffer, &inner) && written.is_some_and(|all| region::contains(&all, region, env))
    })
}

/// What statements touch of a buffer; all of it where that cannot be told.
pub fn touched(func: &Func, body: &[Stmt], buffer: BufferId, touch: Touch) -> Region {
    region::touched(func, body, buffer, touch, &Env::new()).unwrap_or_else(|| region::whole(func.buffer(buffer)))
}

/// Where the elements end, from 0 on, that the only writer of a buffer writes along a dimension.
pub fn written_to(func: &Func, buffer: BufferId, dim: usize) -> Option<i64> {
    if func.size_of(func.buffer(buffer).shape.get(dim)?).is_some() {
        return None;
    }
    let [writer] = writers(func, buffer)[..] else { return None };
    let body = only(&func.body, &|b| b.name == writer.name);
    let written = touched(func, &body, buffer, Touch::Writes).into_iter().nth(dim)?;
    (written.min.as_int()? <= 0).then_some(written.min.as_int()? + written.extent.as_int()?)
}

/// Removes a buffer that nothing refers to any more; the others close up.
pub fn remove_buffer(func: &mut Func, gone: BufferId) {
    func.buffers.remove(gone.0 as usize);
    let renumber = |b: BufferId| if b > gone { BufferId(b.0 - 1) } else { b };
    for p in &mut func.params {
        *p = renumber(*p);
    }
    let body = std::mem::take(&mut func.body);
    let body = visit::map_body(body, &mut Index::clone, &mut |e| match e {
        Expr::Load { buffer, indices, lanes } => Expr::Load { buffer: renumber(buffer), indices, lanes },
        e => e,
    });
    func.body = visit::rewrite(body, &mut |s| match s {
        Stmt::Store(store) => vec![Stmt::Store(Store { buffer: renumber(store.buffer), ..store })],
        s => vec![s],
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Expr;
    use crate::schedule::testing::{CHAIN, program};

    /// Why a block that is changed has no nature.
    fn why_not(text: &str, block: &str, change: impl Fn(&mut Store, &[Var])) -> String {
        let mut func = program(text);
        let id = func.find_block(block).unwrap().name;
        assert!(visit::change_block(&mut func.body, id, &mut |b| {
            let iters: Vec<Var> = b.iters.iter().map(|i| i.var).collect();
            for stmt in b.body.iter_mut().chain(b.init.iter_mut().flatten()) {
                if let Stmt::Store(s) = stmt {
                    change(s, &iters);
                }
            }
        }));
        nature(func.find_block(block).unwrap()).err().unwrap()
    }

    #[test]
    fn a_block_without_a_nature_says_why() {
        let reduced = why_not("gemm 4x4x4 f32 NN", "C", |s, iters| s.indices[0] = iters[2].into());
        assert_eq!(reduced, "a reduce iterator occurs in the index that it writes");
        let halves = why_not(CHAIN, "Y", |s, iters| s.indices[0] = Index::Var(iters[0]).floordiv(2));
        assert_eq!(halves, "two of its iterations may write one element");
        let reads = why_not(CHAIN, "Y", |s, _| s.value = Expr::load(s.buffer, vec![Index::Int(0)]));
        assert_eq!(reads, "it reads what it writes");
    }
}
