//! `compute_inline BLOCK`: the producer BLOCK vanishes; whoever read what it wrote computes it in place.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: each reader computes the value that it read.
//!
//! ```text
//! for i in 0..8: X: X[i] = A[i]*2
//! for j in 0..8: Y: Y[j] = X[j] + 1     ->    for j in 0..8: Y: Y[j] = A[j]*2 + 1
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::Result;
use crate::ir::print::Node;
use crate::ir::{Block, BufferId, Expr, For, Func, Index, IterKind, Stmt, Var, visit};
use crate::schedule::Args;
use crate::schedule::dataflow;
use crate::schedule::find;
use crate::schedule::nest;
use crate::schedule::refusal::Refusal;

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "compute_inline",
    about: "Computes a producer's values where they are read.",
    example: "program two\n\
              input A f32[64]\n\
              X: X[i 64] f32 = A[i] * 2.0\n\
              Y: output Y[j 64] f32 = X[j] + 1.0\n\
              target sm_80\n\
              compute_inline X",
    signature: &[Parameter::place("block", ParamKind::Block)],
    requires: &[
        "BLOCK computes one buffer, one element an iteration, each at once from other buffers (no reduction)",
        "it writes at its plain iterators, each exactly once",
        "the buffer is not a parameter",
        "no other block writes the buffer",
        "a block reads the buffer, and all its readers are after BLOCK",
        "no block after BLOCK writes what BLOCK reads",
        "neither BLOCK nor a reader is in a tensorized nest",
        "BLOCK's loops that are removed are not placed",
        "BLOCK's predicate says no more than that its iterators stay in their domains",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let refusal = Refusal::new("compute_inline", func);
    let b = find::block(func, args.get_word("block")?)?;
    let (buffer, vars) = check(refusal, func, b)?;
    let [Stmt::Store(store)] = b.body.as_slice() else { return Err(refusal.lost("the store")) };

    let mut out = func.clone();
    nest::take(&mut out, b.name);
    out.body = visit::map_body(std::mem::take(&mut out.body), &mut Index::clone, &mut |e| match e {
        Expr::Load { buffer: from, indices, .. } if from == buffer => {
            let mut map = unit_iterators(b);
            map.extend(vars.iter().copied().zip(indices));
            visit::subst_expr(&store.value, &map)
        }
        e => joined(e),
    });
    dataflow::remove_buffer(&mut out, buffer);
    Ok(out.into())
}

fn check(refusal: Refusal, func: &Func, block: &Block) -> Result<(BufferId, Vec<Var>)> {
    let name = func.block_name(block.name);
    let this = (Node::Block(block.name), "this block");
    let nature = dataflow::nature(block)
        .map_err(|why| refusal.broken(1, format!("{name} cannot be inlined: {why}"), &[this]))?;
    if nature.reduction {
        return Err(refusal.broken(1, format!("{name} cannot be inlined: it is a reduction"), &[this]));
    }
    let output =
        nature.output().map_err(|why| refusal.broken(1, format!("{name} cannot be inlined: {why}"), &[this]))?;
    let Some(vars) = plain_iterators(block, &nature.written[0].1) else {
        return Err(refusal.broken(2, format!("{name} does not write at its plain iterators, each once"), &[this]));
    };
    let buffer = &func.buffer(output).name;
    if func.params.contains(&output) {
        return Err(refusal.broken(3, format!("{name} writes {buffer}, which is a parameter"), &[this]));
    }
    if let Some(w) = dataflow::writers(func, output).into_iter().find(|w| w.name != block.name) {
        let message = format!("{buffer} is also written by {}", func.block_name(w.name));
        return Err(refusal.broken(4, message, &[this, (Node::Block(w.name), "the other writer")]));
    }
    check_readers(refusal, func, block, output)?;
    if let Some(w) = dataflow::later_writer(func, block) {
        let message = format!("{} writes what {name} reads, and is after it", func.block_name(w.name));
        return Err(refusal.broken(6, message, &[this, (Node::Block(w.name), "the writer")]));
    }
    nest::leaving(func, block, &[]).map_err(|stuck| stuck.refuse(refusal, func, block, "be inlined", [7, 8, 9, 9]))?;
    Ok((output, vars))
}

fn check_readers(refusal: Refusal, func: &Func, block: &Block, output: BufferId) -> Result<()> {
    let (name, buffer) = (func.block_name(block.name), &func.buffer(output).name);
    let readers = dataflow::readers(func, output);
    let place = dataflow::place(func, block.name);
    let early = readers.iter().find(|r| dataflow::place(func, r.name) < place);
    if let Some(r) = early {
        let message = format!("{} reads {buffer} before {name} writes it", func.block_name(r.name));
        return Err(refusal.broken(5, message, &[(Node::Block(r.name), "the reader before it")]));
    }
    if readers.is_empty() {
        return Err(refusal.broken(5, format!("nothing reads {buffer}"), &[(Node::Block(block.name), "its writer")]));
    }
    for r in readers {
        let around: Vec<&For> = find::around(&func.body, r.name)?;
        if let Some(l) = around.iter().find(|l| l.tensorize.is_some()) {
            let message =
                format!("{} reads {buffer} in the tensorized nest {}", func.block_name(r.name), func.var_name(l.var));
            return Err(refusal.broken(7, message, &[(Node::Block(r.name), "this reader")]));
        }
    }
    Ok(())
}

/// A choice within a choice whose other sides are the same is one choice: any value is the same as another one.
fn joined(value: Expr) -> Expr {
    let Expr::Select(outer, inner, other) = value else { return value };
    match (*outer, *inner) {
        (Expr::Cond(a), Expr::Select(b, chosen, same))
            if (same == other || same.is_any() || other.is_any()) && matches!(*b, Expr::Cond(_)) =>
        {
            let both = if let Expr::Cond(b) = *b { a.and(*b) } else { *a };
            let other = if other.is_any() { same } else { other };
            Expr::Select(Box::new(Expr::Cond(Box::new(both))), chosen, other)
        }
        (outer, inner) => Expr::Select(Box::new(outer), Box::new(inner), other),
    }
}

/// The iterators in the order of the index, where it is all of them, each once. Those of extent 1 may be missing, or be a 0.
pub fn plain_iterators(block: &Block, at: &[Index]) -> Option<Vec<Var>> {
    let unit = |it: &&crate::ir::Iter| it.extent.as_int() == Some(1) && !at.iter().any(|i| i.as_var() == Some(it.var));
    let mut units = block.iters.iter().filter(unit);
    let iterator = |i: &Index| if *i == Index::Int(0) { units.next().map(|it| it.var) } else { i.as_var() };
    let vars: Vec<Var> = at.iter().map(iterator).collect::<Option<_>>()?;
    let distinct = (0..vars.len()).all(|i| !vars[..i].contains(&vars[i]));
    let known = |it: &crate::ir::Iter| {
        it.kind == IterKind::Spatial && (vars.contains(&it.var) || it.extent.as_int() == Some(1))
    };
    (distinct && block.iters.iter().all(known)).then_some(vars)
}

/// Iterators of extent 1 have the value 0.
pub fn unit_iterators(block: &Block) -> visit::Map {
    let unit = block.iters.iter().filter(|it| it.extent.as_int() == Some(1));
    unit.map(|it| (it.var, Index::Int(0))).collect()
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{
        CHAIN, another_store, limit, program, redirect, refuses, refuses_on, steps, tensorize,
    };

    #[test]
    fn readers_compute_what_they_read() {
        let text = steps(CHAIN, "compute_inline X; compute_inline Y");
        assert!(text.contains("Z[vi] = A[vi]*2.0 + 1.0 + A[vi]\n") && !text.contains("X"), "{text}");
    }

    #[test]
    fn choices_join() {
        let text = "program twice
            input A f32[5]
            X: X[i 8] f32 = select(i < 5, A[i], 0)
            Y: Y[i 9] f32 = select(i > 1 and i < 8, X[i], 0)
            Z: output Z[i 9] f32 = select(i < 9, Y[i], 1)";
        let text = steps(text, "compute_inline X; compute_inline Y");
        assert!(text.contains("select(vi < 9, select(vi > 1 and vi < 8 and vi < 5, A[vi], 0.0), 1.0)"), "{text}");
    }

    #[test]
    fn refusals() {
        let mut func = program(CHAIN);
        another_store(&mut func, "X");
        refuses_on(&func, "compute_inline X", "compute_inline.1", "X cannot be inlined: its body is not one store");
        let sums = "program sums
            input A f32[8, 6]
            S: S[i 8] f32 = sum(k 6) A[i, k]
            Y: output Y[i 8] f32 = S[i]";
        refuses(sums, "compute_inline S", "compute_inline.1", "S cannot be inlined: it is a reduction");
        let digits = "transform_layout X [i] -> [i // 4, i % 4]; compute_inline X";
        refuses(CHAIN, digits, "compute_inline.2", "X does not write at its plain iterators");
        refuses(CHAIN, "compute_inline Z", "compute_inline.3", "Z writes Z, which is a parameter");
        let mut func = program(CHAIN);
        redirect(&mut func, "Y", "X");
        refuses_on(&func, "compute_inline X", "compute_inline.4", "X is also written by Y");
        let mut func = program(CHAIN);
        func.body.swap(0, 1);
        refuses_on(&func, "compute_inline X", "compute_inline.5", "Y reads X before X writes it");
        let unread = "program unread
            input A f32[8]
            X: X[i 8] f32 = A[i]
            Y: output Y[i 8] f32 = A[i]";
        refuses(unread, "compute_inline X", "compute_inline.5", "nothing reads X");
        let mut func = program(CHAIN);
        redirect(&mut func, "Z", "A");
        refuses_on(&func, "compute_inline X", "compute_inline.6", "Z writes what X reads");
        for (at, message) in
            [("i", "X cannot be inlined: it is under i"), ("Y_i", "Y reads X in the tensorized nest Y_i")]
        {
            let mut func = program(CHAIN);
            tensorize(&mut func, at);
            refuses_on(&func, "compute_inline X", "compute_inline.7", message);
        }
        refuses(
            CHAIN,
            "unroll i; compute_inline X",
            "compute_inline.8",
            "X cannot be inlined: its loop i is already placed",
        );
        let mut func = program(CHAIN);
        limit(&mut func, "X", "vi", 5);
        refuses_on(&func, "compute_inline X", "compute_inline.9", "X cannot be inlined: the predicate `i < 5`");
    }
}
