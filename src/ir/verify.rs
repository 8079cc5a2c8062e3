//! The promises of a Tensor or Scheduled program, checked.
//!
//! [`well_formed`] holds after every step:
//!
//! 1. `verify.id`: every buffer, variable, block and role that is mentioned exists.
//! 2. `verify.name`: buffers, the loops of the body and its blocks have unique names; a variable is introduced once.
//! 3. `verify.param`: parameters are distinct global buffers; every extent of a buffer is positive.
//! 4. `verify.stage`: what only Lowered has (synchronisation, several lanes, memory offsets) does not occur.
//! 5. `verify.scope`: extents, bindings, predicates and conditions mention loops around them; a block's body mentions
//!    its own iterators and the loops inside the block.
//! 6. `verify.type`: values have the types of their places, indices the number of dimensions of their buffers.
//! 7. `verify.extent`: loops and iterators have positive constant extents; a rasterized loop walks its whole pair.
//! 8. `verify.domain`: an iterator stays in its domain wherever the block's predicate holds.
//! 9. `verify.bounds`: an access stays inside its buffer wherever its block runs; a select guards the side that it
//!    chooses. What is read at an index that is a datum (`verify.gather`) is global memory, and nothing in its nest writes it.
//! 10. `verify.placement`: placements name what is there and have values that exist.
//!
//! [`verify`] demands these of a complete schedule besides, nest by nest (each nest of the root is a kernel):
//!
//! 11. `verify.levels`: a blockIdx or cluster loop is inside a loop bound within the block only where nothing
//!     is between them. What the lanes of a warp do together (on a fragment, or as one instruction) depends on no
//!     thread loop, and nothing depends on a warp loop and a thread loop both.
//! 12. `verify.axis`: an axis occurs once on a path. A thread, warp or warpgroup axis may occur again inside, around a
//!     cooperative stage: one that writes shared (or local) memory and does not mention the outer loop.
//! 13. `verify.threads`: the loops of a nest that are bound to one axis have one extent; those of a role's stages alone
//!     count the role's own threads.
//! 14. `verify.reduction`: no reduce iterator depends on a bound or vectorized loop, and no sum that a block begins and
//!     continues is divided between iterations of a bound one. A reduction over threadIdx is judged as what it represents
//!     ([`super::cross_thread`]): partial results in shared memory, which the threads combine.
//! 15. `verify.safety`, the one safety rule: a value passes between iterations of a bound loop only through a buffer
//!     owned at or above the loop's level (global: grid, shared: block, fragment: warp, local: thread), and never
//!     between iterations of a blockIdx loop within a kernel; a unit has written what it reads before it reads it.
//!     Between kernels only global buffers carry values.
//! 16. `verify.overlap`: no two blocks write one element of global memory.
//! 17. `verify.idle`: a placement that says how another one is to run stands where that one is: spread on a pipelined
//!     loop with a pipelined loop inside.
//!
//! Promises 8, 9, 14, 15 and 16 are claims about all values of the loop variables. Each is proved by the simplifier or by boxes, which is
//! quick, or decided by [`crate::ir::decide`]: for all blocks, threads and iterations, not for some. The verdict is one of three:
//!
//! - *Proved*: no values break the claim;
//! - *Refuted*: these values do, and the error names them;
//! - *not decided*: within its budget the procedure found neither. The program is refused, unless it allows that such claims are
//!   tested (`--allow-tested`, `Schedule::allow_tested()`): they are then tried at some points, and [`Assurance`] lists them as Tested
//!   with the number of points.

mod before;
mod binding;
mod cover;
mod exact;
mod gather;
mod invert;
mod judge;
mod overlap;
mod points;
mod safety;
mod scope;
mod sites;
#[cfg(test)]
mod tests;

pub use gather::gathers;
pub use judge::{Assurance, Tested};
pub use scope::{guards, in_bounds};

use judge::Judge;

use super::cross_thread;
use super::print::{Node, underline};
use super::reduction::{Combiner, Reduction};
use super::visit::{blocks, loops};
use super::{Axis, Buffer, BufferId, For, Func, Index, LoopKind, Scope, Var};
use crate::error::{Code, Error, Result};
use std::collections::HashMap;

/// Checks all promises of a complete program.
///
/// # Errors
/// `verify.*`, with the places underlined in the printed program: where values break a promise, which the error names; and where a claim is
/// neither proved nor refuted and the program does not allow tests.
pub fn verify(func: &Func) -> Result<()> {
    assurance(func).map(|_| ())
}

/// Checks all promises of a complete program, and says how they are known.
///
/// # Errors
/// As [`verify()`].
pub fn assurance(func: &Func) -> Result<Assurance> {
    well_formed(func)?;
    let written_out = cross_thread::through_shared(func).map_err(|r| refused(func, &r))?;
    let func = written_out.as_ref().unwrap_or(func);
    let judge = Judge::new(func);
    formed(&judge)?;
    binding::check(func)?;
    safety::check(&judge)?;
    overlap::check(&judge)?;
    stated(&judge);
    Ok(judge.assurance())
}

/// What the program states of its reducers is tried, not proved.
fn stated(judge: &Judge<'_>) {
    let used = blocks(&judge.func.body).into_iter().filter_map(|b| Reduction::of(judge.func, b));
    let used: Vec<Combiner> = used.flat_map(|r| r.combiners).collect();
    for reducer in &judge.func.reducers {
        if used.iter().any(|c| matches!(c, Combiner::Tuple(t) if t.name() == reducer.name())) {
            let claim = format!("{} combines tuples in any order and grouping to the same", reducer.name());
            judge.tried(Tested { code: Code::TeReducer, claim, points: reducer.trials() });
        }
    }
}

fn refused(func: &Func, r: &cross_thread::Refused) -> Error {
    let (block, name) = (func.block_name(r.block), func.var_name(r.over));
    let message = format!("block {block} reduces over {name}, which is bound to threads, but {}", r.why);
    let labels = [(Node::Loop(r.over), "its iterations run side by side"), (Node::Block(r.block), "reduces over it")];
    wrong(func, Code::VerifyReduction, message, &labels).help(r.help.clone())
}

/// Checks the promises that hold after every step, of programs still being scheduled too.
///
/// # Errors
/// As [`verify()`], of these promises.
pub fn well_formed(func: &Func) -> Result<()> {
    formed(&Judge::new(func))
}

fn formed(judge: &Judge<'_>) -> Result<()> {
    let func = judge.func;
    ids(func)?;
    names(func)?;
    for id in (0..func.buffers.len() as u32).map(BufferId) {
        buffer(func, id)?;
    }
    params(func)?;
    for l in loops(&func.body) {
        placements(func, l)?;
    }
    scope::check(judge)?;
    gathers(func, Code::VerifyGather)
}

/// An error with the program and the names that it speaks of.
fn wrong(func: &Func, code: Code, message: impl Into<String>, nodes: &[(Node, &str)]) -> Error {
    underline(Error::input(code, message), func, nodes)
}

fn ids(func: &Func) -> Result<()> {
    let missing =
        |what: &str, id: u32| Error::bug(Code::VerifyId, format!("{what} {id} does not exist in {}", func.name));
    let var = |v: Var| if (v.0 as usize) < func.vars.len() { Ok(()) } else { Err(missing("variable", v.0)) };
    let (mut seen, mut result) = (Vec::new(), Ok(()));
    scope::for_each_id(&func.body, &mut |id| seen.push(id));
    seen.extend(func.params.iter().map(|b| Node::Buffer(*b)));
    for id in seen {
        result = result.and_then(|()| match id {
            Node::Loop(v) => var(v),
            Node::Block(b) if b.0 as usize >= func.blocks.len() => Err(missing("block", b.0)),
            Node::Buffer(b) if b.0 as usize >= func.buffers.len() => Err(missing("buffer", b.0)),
            Node::Block(_) | Node::Buffer(_) | Node::Mbarrier(_) => Ok(()),
        });
    }
    let roles = blocks(&func.body).into_iter().filter_map(|b| b.role).chain(func.buffers.iter().filter_map(|b| b.role));
    for role in roles {
        result =
            result.and_then(|()| func.roles.get(role.0 as usize).map(|_| ()).ok_or_else(|| missing("role", role.0)));
    }
    result
}

fn names(func: &Func) -> Result<()> {
    let mut introduced: HashMap<Var, ()> = HashMap::new();
    let mut vars: Vec<Var> = Vec::new();
    for l in loops(&func.body) {
        vars.push(l.var);
        vars.extend(l.raster.iter().flat_map(|r| [r.outer, r.inner]));
    }
    let loop_names = vars.iter().map(|v| (func.var_name(*v), Node::Loop(*v))).collect::<Vec<_>>();
    vars.extend(blocks(&func.body).iter().flat_map(|b| b.iters.iter().map(|it| it.var)));
    for var in vars {
        if introduced.insert(var, ()).is_some() {
            let message = format!("the variable {} is introduced twice", func.var_name(var));
            return Err(wrong(func, Code::VerifyName, message, &[(Node::Loop(var), "introduced here first")]));
        }
    }
    unique(func, "loops", loop_names)?;
    unique(func, "blocks", blocks(&func.body).iter().map(|b| (func.block_name(b.name), Node::Block(b.name))))?;
    unique(func, "buffers", (0..).map(BufferId).zip(&func.buffers).map(|(id, b)| (b.name.as_str(), Node::Buffer(id))))
}

fn unique<'a>(func: &Func, what: &str, names: impl IntoIterator<Item = (&'a str, Node)>) -> Result<()> {
    let mut seen: HashMap<&str, Node> = HashMap::new();
    for (name, node) in names {
        if let Some(first) = seen.insert(name, node) {
            let message = format!("two {what} are called {name}");
            return Err(wrong(func, Code::VerifyName, message, &[(first, "the first"), (node, "the second")]));
        }
    }
    Ok(())
}

fn params(func: &Func) -> Result<()> {
    for (n, id) in func.params.iter().enumerate() {
        let b = func.buffer(*id);
        if func.params[..n].contains(id) {
            let message = format!("{} is a parameter twice", b.name);
            return Err(wrong(func, Code::VerifyParam, message, &[(Node::Buffer(*id), "here")]));
        }
        if b.scope != Scope::Global {
            let message =
                format!("the parameter {} is {}, but the caller passes global memory", b.name, b.scope.name());
            return Err(wrong(func, Code::VerifyParam, message, &[(Node::Buffer(*id), "this parameter")]));
        }
    }
    Ok(())
}

fn buffer(func: &Func, id: BufferId) -> Result<()> {
    let b = func.buffer(id);
    let here = |code: Code, message: String| Err(wrong(func, code, message, &[(Node::Buffer(id), "this buffer")]));
    if let Some(extent) = b.shape.iter().find_map(Index::as_int).filter(|e| *e < 1) {
        return here(Code::VerifyParam, format!("{} has an extent of {extent}", b.name));
    }
    if b.offset.is_some() {
        return here(Code::VerifyStage, format!("{} has an offset in shared memory before it is lowered", b.name));
    }
    match placement_problem(b) {
        Some(problem) => here(Code::VerifyPlacement, problem),
        None => Ok(()),
    }
}

fn placement_problem(b: &Buffer) -> Option<String> {
    if let Some(a) = b.storage_align.filter(|a| a.dim >= b.shape.len() || a.factor < 1 || a.offset < 0) {
        return Some(format!("storage_align {} {} {} does not exist for {}", a.dim, a.factor, a.offset, b.name));
    }
    if let Some(s) = b.swizzle.filter(|s| ![16, 32, 64, 128].contains(s)) {
        return Some(format!("swizzle {s} of {} is not 16, 32, 64 or 128 bytes", b.name));
    }
    let strides = b.strides.as_ref().filter(|s| s.len() != b.shape.len() || s.iter().any(|v| *v < 1))?;
    Some(format!("strides {strides:?} of {} do not fit its {} dimensions", b.name, b.shape.len()))
}

fn placements(func: &Func, l: &For) -> Result<()> {
    let here = |message: &str| {
        let message = format!("loop {}: {message}", func.var_name(l.var));
        Err(wrong(func, Code::VerifyPlacement, message, &[(Node::Loop(l.var), "this loop")]))
    };
    if l.is_persistent() && !matches!(l.kind, LoopKind::Bound { axis: Axis::BlockX | Axis::BlockY | Axis::BlockZ, .. })
    {
        return here("only a blockIdx loop is persistent");
    }
    if l.is_pingpong() && l.axis() != Some(Axis::Warpgroup) {
        return here("only a warpgroup loop is `pingpong`");
    }
    if l.pipeline.is_some_and(|p| p.stages < 1 || p.in_flight >= p.stages) {
        return here("a pipeline has at least one stage, and fewer groups in flight than stages");
    }
    if l.raster.as_ref().is_some_and(|r| r.group < 1) {
        return here("a group has at least one row");
    }
    if let Some(t) = &l.tensorize {
        let inside: Vec<Var> = loops(&l.body).iter().map(|l| l.var).chain([l.var]).collect();
        if t.dims.iter().any(|(_, v)| !inside.contains(v)) {
            return here("tensorize names a loop that is not inside");
        }
    }
    Ok(())
}
