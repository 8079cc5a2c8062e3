//! Holding a loop nest against a row's meaning.
//!
//! The nest must be one block under exactly the loops that play the row's dimensions, its expression the row's with
//! other buffers and indices (products in either order), and each operand must move by one along one dimension of its
//! buffer for each of its dimensions.

use super::{Init, Row};
use crate::error::Result;
use crate::ir::simplify::{Env, affine, simplify};
use crate::ir::{BinOp, Block, BufferId, Expr, For, Func, Index, IterKind, LoopKind, Stmt, Store, Var, visit};

/// What keeps a nest from being the instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mismatch {
    /// The loops are not those of the dimensions.
    Loops(String),
    /// The block computes something else.
    Computation(String),
    /// The block does not run in every iteration of this loop.
    Predicated(String, Var),
    /// An operand has another type, or lies differently.
    Operand(String),
    /// The block's init is not what the instruction can do.
    Init(String),
}

impl Mismatch {
    /// In words.
    pub fn message(&self) -> &str {
        match self {
            Mismatch::Loops(m)
            | Mismatch::Computation(m)
            | Mismatch::Predicated(m, _)
            | Mismatch::Operand(m)
            | Mismatch::Init(m) => m,
        }
    }
}

/// A row operand's buffer and the program's, with their indices.
struct Pair<'a> {
    row: (BufferId, &'a [Index]),
    program: (BufferId, &'a [Index]),
}

/// A buffer of the program in the part of an operand.
#[derive(Debug, Clone, PartialEq)]
pub struct Played {
    /// Which operand of the row, by its position.
    pub operand: usize,
    /// The buffer.
    pub buffer: BufferId,
    /// For each index of the operand, which index of the buffer it is.
    pub along: Vec<usize>,
    /// The buffer's indices at the operand's first element.
    pub base: Vec<Index>,
}

/// Which buffers play the row's operands in a statement whose nest [`matches()`] the row, once iterators are written out.
/// `None` where it does not. `env` has the ranges of the loops.
///
/// # Errors
/// Only a fault of the row itself.
pub fn play(store: &Store, row: &Row, dims: &[(String, Var)], env: &Env) -> Result<Option<Vec<Played>>> {
    let meaning = row.program()?;
    let Some([Stmt::Store(model)]) = visit::blocks(&meaning.body).first().map(|b| b.body.as_slice()) else {
        return Ok(None);
    };
    Ok([false, true].into_iter().find_map(|swap| {
        let mut pairs = vec![pair(model, store)];
        if !unify(&model.value, &store.value, swap, &mut pairs) {
            return None;
        }
        let mut out: Vec<Played> = Vec::new();
        for played in pairs.iter().map(|p| played(&meaning, row, dims, p, env)) {
            let played = played?;
            if out.iter().all(|p| p.operand != played.operand) {
                out.push(played);
            }
        }
        out.sort_by_key(|p| p.operand);
        Some(out)
    }))
}

fn played(meaning: &Func, row: &Row, dims: &[(String, Var)], pair: &Pair, env: &Env) -> Option<Played> {
    let name = &meaning.buffer(pair.row.0).name;
    let loops: Vec<Var> = dims.iter().map(|d| d.1).collect();
    let steps: Vec<Option<Var>> = pair.program.1.iter().map(|i| step(i, &loops, env)).collect::<Option<_>>()?;
    let along = pair.row.1.iter().map(|index| {
        let var = loops.get(model_position(meaning, index)?)?;
        steps.iter().position(|s| *s == Some(*var))
    });
    let start: visit::Map = loops.iter().map(|v| (*v, Index::Int(0))).collect();
    Some(Played {
        operand: row.operands.iter().position(|o| o.name == name)?,
        buffer: pair.program.0,
        along: along.collect::<Option<_>>()?,
        base: pair.program.1.iter().map(|i| simplify(&visit::subst_index(i, &start), env)).collect(),
    })
}

/// Whether the nest of `top` is the row's instruction, with `dims` naming which loop plays which dimension.
///
/// # Errors
/// Only a fault of the row itself.
pub fn matches(func: &Func, top: &For, row: &Row, dims: &[(String, Var)]) -> Result<Result<(), Mismatch>> {
    let meaning = row.program()?;
    let Some(model) = visit::blocks(&meaning.body).first().copied() else {
        return Ok(Err(Mismatch::Computation("the row has no block".into())));
    };
    Ok(compare(func, top, row, dims, &meaning, model))
}

fn compare(
    func: &Func,
    top: &For,
    row: &Row,
    dims: &[(String, Var)],
    meaning: &Func,
    model: &Block,
) -> Result<(), Mismatch> {
    let block = nest(func, top, row, dims)?;
    kinds(func, block, model, dims)?;
    let straight = roles(func, block, row, dims, meaning, model, false);
    // The factors of a product may also stand the other way round.
    straight.or_else(|first| roles(func, block, row, dims, meaning, model, true).map_err(|_| first))?;
    init(func, block, model, row)
}

/// Whether the buffers can play the operands.
fn roles(
    func: &Func,
    block: &Block,
    row: &Row,
    dims: &[(String, Var)],
    meaning: &Func,
    model: &Block,
    swap: bool,
) -> Result<(), Mismatch> {
    let other = |why: &str| {
        Mismatch::Computation(format!("block `{}` does not compute {}{why}", func.block_name(block.name), row.name))
    };
    let ([Stmt::Store(ours)], [Stmt::Store(theirs)]) = (block.body.as_slice(), model.body.as_slice()) else {
        return Err(other(""));
    };
    let mut pairs = vec![pair(theirs, ours)];
    if !unify(&theirs.value, &ours.value, swap, &mut pairs) {
        return Err(other(&types(func, ours, meaning, theirs)));
    }
    for pair in &pairs {
        operand(func, block, meaning, row, dims, pair)?;
    }
    Ok(())
}

/// Which buffers have other types than the operands in their places, in words; empty where none has.
fn types(func: &Func, ours: &Store, meaning: &Func, theirs: &Store) -> String {
    let read = |store: &Store| {
        let mut out = vec![store.buffer];
        visit::walk_expr(&store.value, &mut |e| match e {
            Expr::Load { buffer, .. } if !out.contains(buffer) => out.push(*buffer),
            _ => {}
        });
        out
    };
    let (ours, theirs) = (read(ours), read(theirs));
    if ours.len() != theirs.len() {
        return String::new();
    }
    let differ = ours.iter().zip(&theirs).filter_map(|(o, t)| {
        let (o, t) = (func.buffer(*o), meaning.buffer(*t));
        (o.dtype != t.dtype).then(|| format!("`{}` is {}, operand {} is {}", o.name, o.dtype, t.name, t.dtype))
    });
    let differ: Vec<String> = differ.collect();
    if differ.is_empty() { String::new() } else { format!(": {}", differ.join("; ")) }
}

fn pair<'a>(theirs: &'a Store, ours: &'a Store) -> Pair<'a> {
    Pair { row: (theirs.buffer, &theirs.indices), program: (ours.buffer, &ours.indices) }
}

/// The block under exactly the dimensions' loops.
fn nest<'a>(func: &Func, top: &'a For, row: &Row, dims: &[(String, Var)]) -> Result<&'a Block, Mismatch> {
    if dims.len() != row.dims.len() || dims.iter().zip(&row.dims).any(|((ours, _), (theirs, _))| ours != theirs) {
        let names: Vec<&str> = row.dims.iter().map(|d| d.0).collect();
        return Err(Mismatch::Loops(format!("{} has the dimensions {}", row.name, names.join(", "))));
    }
    let mut left: Vec<(Var, i64)> = dims.iter().zip(&row.dims).map(|((_, v), (_, e))| (*v, *e)).collect();
    let mut current = top;
    loop {
        let name = func.var_name(current.var);
        let Some(at) = left.iter().position(|(v, _)| *v == current.var) else {
            return Err(Mismatch::Loops(format!("loop `{name}` is matched to no dimension of {}", row.name)));
        };
        let (_, extent) = left.remove(at);
        if current.extent.as_int() != Some(extent) {
            let message = format!("loop `{name}` does not have the {extent} iterations of {}", row.name);
            return Err(Mismatch::Loops(message));
        }
        if current.kind != LoopKind::Serial {
            return Err(Mismatch::Loops(format!("loop `{name}` is not serial")));
        }
        match current.body.as_slice() {
            [Stmt::For(inner)] => current = inner,
            [Stmt::Block(block)] if left.is_empty() => return Ok(block),
            [Stmt::Block(_)] => {
                let missing: Vec<&str> = left.iter().map(|(v, _)| func.var_name(*v)).collect();
                return Err(Mismatch::Loops(format!("`{}` is not inside the nest", missing.join("`, `"))));
            }
            _ => return Err(Mismatch::Loops(format!("loop `{name}` holds more than one statement"))),
        }
    }
}

/// Spatial and reduce dimensions are those of the row, and the predicate asks nothing inside the nest.
fn kinds(func: &Func, block: &Block, model: &Block, dims: &[(String, Var)]) -> Result<(), Mismatch> {
    for ((name, var), theirs) in dims.iter().zip(&model.iters) {
        let on: Vec<IterKind> = block.iters.iter().filter(|i| i.binding.mentions(*var)).map(|i| i.kind).collect();
        if on.is_empty() || on.iter().any(|k| *k != theirs.kind) {
            let wanted = if theirs.kind == IterKind::Reduce { "summed over" } else { "spatial" };
            let message = format!("dimension {name}, loop `{}`, is not {wanted}", func.var_name(*var));
            return Err(Mismatch::Computation(message));
        }
        if block.predicate.mentions(*var) {
            let message =
                format!("block `{}` is predicated along `{}`", func.block_name(block.name), func.var_name(*var));
            return Err(Mismatch::Predicated(message, *var));
        }
    }
    Ok(())
}

/// Whether both expressions are the same but for buffers and indices, which are collected. Sums are compared in either
/// order, products crosswise if `swap`.
fn unify<'a>(row: &'a Expr, program: &'a Expr, swap: bool, pairs: &mut Vec<Pair<'a>>) -> bool {
    match (row, program) {
        (Expr::Load { buffer: rb, indices: ri, .. }, Expr::Load { buffer: pb, indices: pi, .. }) => {
            pairs.push(Pair { row: (*rb, ri), program: (*pb, pi) });
            consistent(pairs)
        }
        (Expr::Cast(rt, r), Expr::Cast(pt, p)) => rt == pt && unify(r, p, swap, pairs),
        (Expr::Const(..), Expr::Const(..)) => row == program,
        (Expr::Un(ro, r), Expr::Un(po, p)) => ro == po && unify(r, p, swap, pairs),
        (Expr::Bin(BinOp::Mul, ra, rb), Expr::Bin(BinOp::Mul, pa, pb)) => {
            let (pa, pb) = if swap { (pb, pa) } else { (pa, pb) };
            unify(ra, pa, swap, pairs) && unify(rb, pb, swap, pairs)
        }
        (Expr::Bin(ro, ra, rb), Expr::Bin(po, pa, pb)) if ro == po => {
            let before = pairs.len();
            if unify(ra, pa, swap, pairs) && unify(rb, pb, swap, pairs) {
                return true;
            }
            pairs.truncate(before);
            let commutes = matches!(ro, BinOp::Add | BinOp::Min | BinOp::Max);
            commutes && unify(ra, pb, swap, pairs) && unify(rb, pa, swap, pairs)
        }
        _ => false,
    }
}

/// The accumulator is the place that is written.
fn consistent(pairs: &[Pair]) -> bool {
    let Some(written) = pairs.first() else { return true };
    pairs.iter().all(|p| {
        (p.row.0 == written.row.0) == (p.program.0 == written.program.0)
            && (p.row.0 != written.row.0 || p.program.1 == written.program.1)
    })
}

fn init(func: &Func, block: &Block, model: &Block, row: &Row) -> Result<(), Mismatch> {
    let Some(ours) = &block.init else { return Ok(()) };
    let name = func.block_name(block.name);
    if row.init == Init::None {
        return Err(Mismatch::Init(format!("block `{name}` has an init, which {} has no operand for", row.name)));
    }
    let same = match (ours.as_slice(), model.init.as_deref()) {
        ([Stmt::Store(a)], Some([Stmt::Store(b)])) => a.value == b.value,
        _ => false,
    };
    if same { Ok(()) } else { Err(Mismatch::Init(format!("the init of block `{name}` is not that of {}", row.name))) }
}

fn operand(
    func: &Func,
    block: &Block,
    meaning: &Func,
    row: &Row,
    dims: &[(String, Var)],
    pair: &Pair,
) -> Result<(), Mismatch> {
    let (theirs, ours) = (meaning.buffer(pair.row.0), func.buffer(pair.program.0));
    if theirs.dtype != ours.dtype {
        let message = format!("operand {} is {}, buffer `{}` is {}", theirs.name, theirs.dtype, ours.name, ours.dtype);
        return Err(Mismatch::Operand(message));
    }
    let loops: Vec<Var> = dims.iter().map(|d| d.1).collect();
    let bindings: visit::Map = block.iters.iter().map(|i| (i.var, i.binding.clone())).collect();
    let env = Env::with_loops(visit::loops(&func.body));
    let mut found: Vec<Var> = Vec::new();
    for index in pair.program.1 {
        match step(&visit::subst_index(index, &bindings), &loops, &env) {
            Some(var) => found.extend(var),
            None => {
                let message = format!("an index of `{}` does not move by one along one loop of the nest", ours.name);
                return Err(Mismatch::Operand(message));
            }
        }
    }
    // The row's indices are its iterators, which are in the order of its dimensions.
    let position = |i: &Index| model_position(meaning, i);
    let wanted: Vec<Var> = pair.row.1.iter().filter_map(|i| position(i).and_then(|p| loops.get(p).copied())).collect();
    let either = row.operand(&theirs.name).is_some_and(|o| o.either_major());
    let transposed = wanted.iter().rev().eq(found.iter());
    if wanted == found || (either && transposed) {
        return Ok(());
    }
    let names = |v: &[Var]| v.iter().map(|v| func.var_name(*v)).collect::<Vec<_>>().join(", ");
    let message = format!(
        "`{}` is indexed by {}, but operand {} needs {}",
        ours.name,
        names(&found),
        theirs.name,
        names(&wanted)
    );
    Err(Mismatch::Operand(message))
}

/// Which dimension of the row an index of its meaning is.
fn model_position(meaning: &Func, index: &Index) -> Option<usize> {
    let block = visit::blocks(&meaning.body).first().copied()?;
    let var = index.as_var()?;
    block.iters.iter().position(|i| i.var == var)
}

/// The loop along which the index moves by one (`Some(None)` for none of them); `None` where it moves otherwise.
fn step(index: &Index, loops: &[Var], env: &Env) -> Option<Option<Var>> {
    let sum = affine(&simplify(index, env));
    let mut found = None;
    for (atom, coefficient) in &sum.terms {
        if !loops.iter().any(|v| atom.mentions(*v)) {
            continue;
        }
        match (atom.as_var(), coefficient, found) {
            (Some(var), 1, None) => found = Some(var),
            _ => return None,
        }
    }
    Some(found)
}
