//! `reverse_compute_inline BLOCK`: the consumer BLOCK vanishes; the producer of what it read computes its result in
//! place and writes that.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: BLOCK's output. Where the producer computed more than BLOCK read, it gets a predicate.
//!
//! ```text
//! for i in 0..8: X: X[i] = A[i]*2
//! for j in 0..8: Y: Y[j] = X[j] + 1     ->    for i in 0..8: X: Y[i] = A[i]*2 + 1
//! ```

use super::compute_inline::{plain_iterators, unit_iterators};
use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::Result;
use crate::ir::decide;
use crate::ir::print::Node;
use crate::ir::region::{self, Touch};
use crate::ir::simplify::{self, Env};
use crate::ir::{Block, BufferId, Cond, Expr, Func, Index, IterKind, Stmt, Store, Var, visit};
use crate::schedule::nest::{self, Stuck};
use crate::schedule::refusal::Refusal;
use crate::schedule::{Args, dataflow, digits, find};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "reverse_compute_inline",
    about: "Computes a consumer's values where its input is written.",
    example: "program two\n\
              input A f32[64]\n\
              X: X[i 64] f32 = A[i] * 2.0\n\
              Y: output Y[j 64] f32 = X[j] + 1.0\n\
              target sm_80\n\
              reverse_compute_inline Y",
    signature: &[Parameter::place("block", ParamKind::Block)],
    requires: &[
        "BLOCK computes one buffer, one element an iteration, each at once from other buffers (no reduction)",
        "it reads one allocated buffer, which a single block, its producer, writes and no other block reads, at one place and \
         each element in one iteration at most",
        "the producer computes each element at once (no reduction) and is before BLOCK",
        "no other block writes BLOCK's output, and none before BLOCK reads it",
        "what else BLOCK reads is written before the producer runs: no block at or after the producer writes it, and one that shares loops with the producer writes in each of their iterations all that is read there",
        "neither block is in a tensorized nest",
        "BLOCK's loops that are removed are not placed",
        "BLOCK's loops sweep the whole domains of its iterators, and its predicate says no more",
        "where BLOCK chooses whether to read (`select`), the producer writes an element for each that BLOCK writes",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let refusal = Refusal::new("reverse_compute_inline", func);
    let b = find::block(func, args.get_word("block")?)?;
    let Link { producer, through, at, inverse } = check(refusal, func, b)?;
    let ([Stmt::Store(outer)], [Stmt::Store(inner)]) = (b.body.as_slice(), producer.body.as_slice()) else {
        return Err(refusal.lost("the store"));
    };
    let mut map = unit_iterators(b);
    map.extend(inverse);
    let value = visit::map_expr(&outer.value, &mut |i| visit::subst_index(i, &map), &mut |e| match e {
        Expr::Load { buffer, .. } if buffer == through => inner.value.clone(),
        e => e,
    });
    let indices = outer.indices.iter().map(|i| visit::subst_index(i, &map)).collect();
    let store = Store::new(outer.buffer, indices, value);
    let taken = at.iter().map(|i| visit::subst_index(i, &map)).zip(inner.indices.iter().cloned());
    let predicate = still_read(func, b, producer, &map, &taken.collect::<Vec<_>>());

    let mut out = func.clone();
    nest::take(&mut out, b.name);
    visit::change_block(&mut out.body, producer.name, &mut |p| {
        p.body = vec![Stmt::Store(store.clone())];
        p.predicate = p.predicate.clone().and(predicate.clone());
    });
    check_inputs(refusal, func, b, producer, &out)?;
    dataflow::remove_buffer(&mut out, through);
    Ok(out.into())
}

/// Requirement 5 for writers in loops around the producer, which has become BLOCK in `out`.
fn check_inputs(refusal: Refusal, func: &Func, block: &Block, producer: &Block, out: &Func) -> Result<()> {
    let Some(to) = dataflow::spot_of_block(out, producer.name) else { return Err(refusal.lost("the producer")) };
    let around = find::around(&out.body, producer.name)?;
    for input in dataflow::block_reads(block) {
        for writer in dataflow::writers(out, input) {
            let Some(from) = dataflow::spot_of_block(out, writer.name) else { continue };
            let shared = to.shared_loops(&from);
            let body = dataflow::body_at(&out.body, &to.steps[..=shared]);
            let own = dataflow::only(body, &|b| b.name == producer.name);
            let env = nest::env_of(&around[..shared]);
            let Some(read) = region::touched(out, &own, input, Touch::Reads, &env) else { continue };
            if shared > 0 && !dataflow::fills(out, body, input, &read, &env) {
                let (name, made) = (func.block_name(block.name), func.block_name(producer.name));
                let (w, at) = (func.block_name(writer.name), func.var_name(around[shared - 1].var));
                let message = format!(
                    "{w} does not write all that {name} reads of {} in the iteration of {at} in which {made} runs",
                    func.buffer(input).name
                );
                let nodes = [(Node::Block(block.name), "this block"), (Node::Block(writer.name), "the writer")];
                return Err(refusal.broken(5, message, &nodes));
            }
        }
    }
    Ok(())
}

/// What of the producer's iterations BLOCK reads, over the loops around the producer: those that lead to an iteration of BLOCK
/// which leads back to them. `taken` are the indices at which that iteration reads, and those that the producer writes.
fn still_read(func: &Func, block: &Block, producer: &Block, map: &visit::Map, taken: &[(Index, Index)]) -> Cond {
    let env = nest::env_of(&visit::loops_around(&func.body, producer.name).unwrap_or_default());
    let mut domains = env.clone();
    let bindings: visit::Map = producer.iters.iter().map(|i| (i.var, i.binding.clone())).collect();
    for it in &producer.iters {
        domains.assume(&Cond::lt(it.binding.clone(), it.extent.clone()));
        domains.assume(&Cond::ge(it.binding.clone(), 0));
    }
    let mut predicate = Cond::TRUE;
    for it in &block.iters {
        let Some(at) = map.get(&it.var) else { continue };
        // In the producer's own domain first: an iterator of the same extent needs no condition.
        let same = at.as_var().and_then(|v| producer.iters.iter().find(|p| p.var == v));
        let at = simplify::simplify(&visit::subst_index(at, &bindings), &env);
        for part in [Cond::ge(at.clone(), 0), Cond::lt(at.clone(), it.extent.clone())] {
            if same.is_none_or(|p| p.extent != it.extent) && !decide::proves(&part, &domains) {
                predicate = predicate.and(part);
            }
        }
    }
    for (reads, writes) in taken {
        let difference = visit::subst_index(&(reads.clone() - writes.clone()), &bindings);
        let part = simplify::simplify_cond(&Cond::eq(simplify::simplify(&difference, &env), 0), &env);
        let mut known = domains.clone();
        known.assume(&predicate);
        if !decide::proves(&part, &known) {
            predicate = predicate.and(part);
        }
    }
    predicate
}

struct Link<'a> {
    producer: &'a Block,
    through: BufferId,
    /// Where BLOCK reads, over its iterators.
    at: Vec<Index>,
    /// BLOCK's iterators over the indices that the producer writes.
    inverse: Vec<(Var, Index)>,
}

fn check<'a>(refusal: Refusal, func: &'a Func, block: &Block) -> Result<Link<'a>> {
    let name = func.block_name(block.name);
    let this = (Node::Block(block.name), "this block");
    let nature = dataflow::nature(block)
        .map_err(|why| refusal.broken(1, format!("{name} cannot be inlined: {why}"), &[this]))?;
    if nature.reduction {
        return Err(refusal.broken(1, format!("{name} cannot be inlined: it is a reduction"), &[this]));
    }
    let output =
        nature.output().map_err(|why| refusal.broken(1, format!("{name} cannot be inlined: {why}"), &[this]))?;
    let Some(link) = find_link(func, block) else {
        let message = format!(
            "{name} reads no buffer that one other block makes for it alone at one place, each element in one iteration at most"
        );
        return Err(refusal.broken(2, message, &[this]));
    };
    let producer = func.block_name(link.producer.name);
    let place = dataflow::place(func, block.name);
    let from = dataflow::place(func, link.producer.name);
    let elementwise = dataflow::nature(link.producer).is_ok_and(|n| !n.reduction && n.output().is_ok());
    if !elementwise || from > place {
        let message =
            format!("{producer}, which makes what {name} reads, does not compute each element at once before it");
        return Err(refusal.broken(3, message, &[this, (Node::Block(link.producer.name), "the producer")]));
    }
    let other = dataflow::writers(func, output).into_iter().find(|w| w.name != block.name);
    let early = dataflow::readers(func, output).into_iter().find(|r| dataflow::place(func, r.name) < place);
    if let Some(o) = other.or(early) {
        let message = format!("{} also uses {}", func.block_name(o.name), func.buffer(output).name);
        return Err(refusal.broken(4, message, &[this, (Node::Block(o.name), "the other")]));
    }
    let inputs: Vec<BufferId> = dataflow::block_reads(block).into_iter().filter(|b| *b != link.through).collect();
    let late = |w: &&Block| {
        dataflow::place(func, w.name) >= from && dataflow::block_writes(w).iter().any(|b| inputs.contains(b))
    };
    if let Some(w) = visit::blocks(&func.body).into_iter().find(late) {
        let message = format!("{} writes what {name} reads, and is not before {producer}", func.block_name(w.name));
        return Err(refusal.broken(5, message, &[this, (Node::Block(w.name), "the writer")]));
    }
    check_nests(refusal, func, block, link.producer)?;
    if !nest::sweeps_domains(func, block, &find::around(&func.body, block.name)?) {
        return Err(refusal.broken(
            8,
            format!("the loops of {name} do not sweep the whole domains of its iterators"),
            &[this],
        ));
    }
    if chooses(block) && !covers(func, &link, block) {
        let message =
            format!("{name} also writes elements for which {producer} computes nothing: its select excludes them");
        return Err(refusal.broken(9, message, &[this, (Node::Block(link.producer.name), "the producer")]));
    }
    Ok(link)
}

/// Whether the block reads on a condition only.
fn chooses(block: &Block) -> bool {
    let mut found = false;
    visit::walk(&block.body, &mut |s| {
        if let Stmt::Store(store) = s {
            visit::walk_expr(&store.value, &mut |e| found |= matches!(e, Expr::Select(..)));
        }
    });
    found
}

/// Whether the producer runs over the whole buffer, and the block over no more than that.
fn covers(func: &Func, link: &Link, block: &Block) -> bool {
    let around = visit::loops_around(&func.body, link.producer.name).unwrap_or_default();
    let shape = &func.buffer(link.through).shape;
    let [Stmt::Store(store)] = link.producer.body.as_slice() else { return false };
    let whole = plain_iterators(link.producer, &store.indices).is_some_and(|vars| {
        let extent = |v: &Var| link.producer.iters.iter().find(|i| i.var == *v).map(|i| &i.extent);
        vars.iter().zip(shape).all(|(v, n)| extent(v) == Some(n))
    });
    let mut env = Env::new();
    block.iters.iter().for_each(|it| env.bind_loop(it.var, &it.extent));
    let within =
        link.at.iter().zip(shape).all(|(i, n)| {
            simplify::bounds(i, &env).zip(n.as_int()).is_some_and(|((low, high), n)| low >= 0 && high < n)
        });
    whole && within && nest::sweeps_domains(func, link.producer, &around)
}

fn check_nests(refusal: Refusal, func: &Func, block: &Block, producer: &Block) -> Result<()> {
    let around = find::around(&func.body, producer.name)?;
    let tensorized = around.iter().find(|l| l.tensorize.is_some()).map(|l| Stuck::Tensorized(l.var));
    tensorized
        .map_or_else(|| nest::leaving(func, block, &[]).map(|_| ()), Err)
        .map_err(|stuck| stuck.refuse(refusal, func, block, "be inlined", [6, 7, 8, 8]))
}

/// The buffer through which a producer feeds the block alone, and the iterators with which the block reads it.
fn find_link<'a>(func: &'a Func, block: &Block) -> Option<Link<'a>> {
    dataflow::block_reads(block).into_iter().find_map(|through| {
        let [producer] = dataflow::writers(func, through).try_into().ok()?;
        let alone = dataflow::readers(func, through).iter().all(|r| r.name == block.name || r.name == producer.name);
        let places: Vec<Vec<Index>> = dataflow::reads_at(block, through);
        let at = places.first().filter(|at| places.iter().all(|p| p == *at))?;
        let written = producer.body.iter().find_map(|s| match s {
            Stmt::Store(s) if s.buffer == through => Some(&s.indices),
            _ => None,
        })?;
        let mut env = Env::new();
        producer.iters.iter().for_each(|it| env.bind_loop(it.var, &it.extent));
        let inverse =
            inverse(func, block, at, written)?.into_iter().map(|(v, i)| (v, simplify::simplify(&i, &env))).collect();
        let own = producer.name != block.name && !func.params.contains(&through);
        (alone && own).then_some(Link { producer, through, at: at.clone(), inverse })
    })
}

/// The iterators of a block that reads at `at` what is written at `written`; `None` where two iterations may read one element, of the largest
/// domain that a dynamic size has.
fn inverse(func: &Func, block: &Block, at: &[Index], written: &[Index]) -> Option<Vec<(Var, Index)>> {
    if block.iters.iter().any(|it| it.kind == IterKind::Reduce) || !dataflow::over_iterators(block, at) {
        return None;
    }
    if let Some(vars) = plain_iterators(block, at) {
        return Some(vars.into_iter().zip(written.iter().cloned()).collect());
    }
    let moving = block.iters.iter().filter(|it| it.extent.as_int() != Some(1));
    let vars: Vec<(Var, i64)> = moving.map(|it| Some((it.var, func.most(&it.extent)?))).collect::<Option<_>>()?;
    let units = unit_iterators(block);
    let at: Vec<Index> = at.iter().map(|i| visit::subst_index(i, &units)).collect();
    digits::left_inverse(&at, &vars, written)
}

#[cfg(test)]
mod tests {
    use crate::ir::{Index, visit};
    use crate::schedule::testing::{
        CHAIN, another_store, limit, program, redirect, refuses, refuses_on, steps, tensorize,
    };

    #[test]
    fn the_producer_writes_the_result() {
        let text = steps(CHAIN, "reverse_compute_inline Z; reverse_compute_inline Y");
        assert!(text.contains("block X(vi = i)\n      Z[vi] = A[vi]*2.0 + 1.0 + A[vi]\n"), "{text}");
    }

    #[test]
    fn a_consumer_that_leaves_iterations_out_stays() {
        let mut func = program(CHAIN);
        let var = func.find_loop("Y_i").unwrap().var;
        assert!(visit::change_loop(&mut func.body, var, &mut |l| l.extent = Index::Int(4)));
        let why = "the loops of Y do not sweep the whole domains of its iterators";
        refuses_on(&func, "reverse_compute_inline Y", "reverse_compute_inline.8", why);
    }

    #[test]
    fn a_consumer_that_chooses_keeps_what_it_writes_without_reading() {
        let text =
            "program pad\n  input A f32[8]\n  X: X[i 8] f32 = A[i]*2\n  Y: output Y[j 12] f32 = select(j < 8, X[j], 0)";
        refuses(text, "reverse_compute_inline Y", "reverse_compute_inline.9", "Y also writes elements");
        let text =
            "program mask\n  input A f32[8]\n  X: X[i 8] f32 = A[i]*2\n  Y: output Y[j 8] f32 = select(j < 4, X[j], 0)";
        assert!(steps(text, "reverse_compute_inline Y").contains("block X"));
    }

    #[test]
    fn what_is_not_read_is_not_computed() {
        let first = "program first
            input A f32[8]
            X: X[i 8] f32 = A[i] * 2.0
            Y: output Y[i 5] f32 = X[i]";
        assert!(steps(first, "reverse_compute_inline Y").contains("where i < 5"));
    }

    #[test]
    fn permutations_are_undone() {
        let mirrored = "program mirrored
            input A f32[12]
            X: X[i 12] f32 = A[i] * 2
            Y: output Y[j 12] f32 = select(j < 4, X[11 - j], 0) + 1";
        let text = steps(mirrored, "reverse_compute_inline Y");
        assert!(text.contains("Y[11 - vi] = select(11 - vi < 4, A[vi]*2.0, 0.0) + 1.0\n"), "{text}");
        let digits = "program digits
            input A f32[3, 5]
            X: X[i 3, j 5] f32 = A[i, j] * 2
            Y: output Y[k 11] f32 = X[k // 4, k % 4]";
        let text = steps(digits, "reverse_compute_inline Y");
        assert!(text.contains("Y[vj + vi*4] = A[vi, vj]*2.0\n"), "{text}");
        assert!(text.contains("where j + i*4 < 11 and j // 4 == 0\n"), "{text}");
        let apart = "program apart
            input A f32[24]
            X: X[i 24] f32 = A[i] * 2
            Y: output Y[a 3, b 4] f32 = X[a * 8 + b * 2 + 1]";
        let text = steps(apart, "reverse_compute_inline Y");
        assert!(text.contains("block X(vi = i)\n      where ") && text.contains("] = A[vi]*2.0\n"), "{text}");
        let twice = "program twice
            input A f32[12]
            X: X[i 12] f32 = A[i] * 2
            Y: output Y[j 12] f32 = X[j // 2]";
        refuses(twice, "reverse_compute_inline Y", "reverse_compute_inline.2", "Y reads no buffer that one other");
    }

    #[test]
    fn one_row_of_digits_is_read_at_0() {
        let first = "program first
            input A f32[8]
            X: X[i 8] f32 = A[i] * 2.0
            Y: output Y[i 2] f32 = X[i]";
        let digits = "transform_block_layout X [i] -> [i % 2, i // 2]
            transform_block_layout Y [Y_i] -> [Y_i % 2, Y_i // 2]; transform_layout X [i] -> [i % 2, i // 2]";
        assert!(steps(first, digits).contains("block Y(v0 = Y_0, v1 = Y_1)\n        Y[v1*2 + v0] = X[v0, 0]\n"));
        let text = steps(first, &format!("{digits}; reverse_compute_inline Y"));
        assert!(text.contains("where X_1 < 1\n        Y[v1*2 + v0] = A[v1*2 + v0]*2.0\n"), "{text}");
    }

    #[test]
    fn refusals() {
        const NAME: &str = "reverse_compute_inline";
        let no = |func: &crate::ir::Func, step: &str, n: u32, message: &str| {
            refuses_on(func, &format!("{NAME} {step}"), &format!("{NAME}.{n}"), message);
        };
        let mut func = program(CHAIN);
        another_store(&mut func, "Y");
        no(&func, "Y", 1, "Y cannot be inlined: its body is not one store");
        let sums = "program sums
            input A f32[8, 6]
            X: X[i 8, j 6] f32 = A[i, j]
            S: output S[i 8] f32 = sum(k 6) X[i, k]
            T: output T[i 8, j 6] f32 = S[i]";
        no(&program(sums), "S", 1, "S cannot be inlined: it is a reduction");
        no(&program(CHAIN), "X", 2, "X reads no buffer that one other block makes for it alone");
        no(&program(sums), "T", 2, "T reads no buffer that one other block makes for it alone");
        let reduced = "program reduced
            input A f32[8, 6]
            S: S[i 8] f32 = sum(k 6) A[i, k]
            Y: output Y[i 8] f32 = S[i]";
        no(&program(reduced), "Y", 3, "S, which makes what Y reads, does not compute each element at once");
        let mut func = program(CHAIN);
        func.body.swap(0, 1);
        no(&func, "Y", 3, "X, which makes what Y reads, does not compute each element at once before it");
        let twice = "program twice
            input A f32[8]
            X: X[i 8] f32 = A[i]
            Y: Y[i 8] f32 = X[i]
            W: W[i 8] f32 = A[i]
            Z: output Z[i 8] f32 = Y[i] + W[i]";
        let mut func = program(twice);
        redirect(&mut func, "W", "Y");
        no(&func, "Y", 4, "W also uses Y");
        let late = "program late
            input A f32[8]
            X: X[i 8] f32 = A[i]
            W: W[i 8] f32 = A[i]
            Y: output Y[i 8] f32 = X[i] + W[i]
            Z: output Z[i 8] f32 = W[i]";
        no(&program(late), "Y", 5, "W writes what Y reads, and is not before X");
        let mirrored = "program mirrored
            input A f32[8]
            W: W[i 8] f32 = A[i]
            X: X[i 8] f32 = A[i]
            Y: output Y[i 8] f32 = X[i] + W[7 - i]";
        let beside = "reverse_compute_at X i; reverse_compute_inline Y";
        refuses(
            &mirrored.replace("X[i 8] f32 = A[i]", "X[i 8] f32 = W[i]"),
            beside,
            "reverse_compute_inline.5",
            "W does not write all that Y reads of W in the iteration of i in which X runs",
        );
        for at in ["i", "Y_i"] {
            let mut func = program(CHAIN);
            tensorize(&mut func, at);
            no(&func, "Y", 6, &format!("Y cannot be inlined: it is under {at}, which is tensorized"));
        }
        refuses(
            CHAIN,
            "unroll Y_i; reverse_compute_inline Y",
            "reverse_compute_inline.7",
            "Y cannot be inlined: its loop Y_i",
        );
        let mut func = program(CHAIN);
        limit(&mut func, "Y", "vi", 5);
        no(&func, "Y", 8, "Y cannot be inlined: the predicate `Y_i < 5`");
    }
}
