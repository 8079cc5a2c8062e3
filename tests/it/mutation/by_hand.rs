//! Faults that no mutant makes, written by hand: kernels built with the library alone, and kernels of examples changed beyond what
//! [`warploom::sim::mutate`] knows. Each is right as it is built, and each change is found in every order, with what it is.

use crate::handmade::{Make, barrier, guarded, load, store, store_lanes};
use warploom::DType;
use warploom::ir::{Axis, CmpOp, Cond, Index, Stmt, Var, Way, visit};
use warploom::lower::{Lowered, lower, verify};
use warploom::sim::{Mode, Options, Policy, integers_with};

const POLICIES: [Policy; 4] = [Policy::InOrder, Policy::Reverse, Policy::Random(1), Policy::Random(2)];

/// The code and the message of what the simulator finds, in each order.
fn simulated(lowered: &Lowered) -> Vec<Option<(String, String)>> {
    let run = |policy| {
        let options = Options::new(Mode::Integer).with_policy(policy);
        integers_with(lowered, &options, 1).err().map(|e| (e.code().to_string(), e.to_string()))
    };
    POLICIES.map(run).into()
}

fn is_verified(lowered: &Lowered) -> bool {
    lowered.kernels.iter().all(|k| verify(k).is_ok())
}

/// Demands that every order finds one of these codes, and that what is said has these words.
fn is_found(what: &str, lowered: &Lowered, codes: &[&str], words: &[&str]) {
    for found in simulated(lowered) {
        let (code, message) = found.unwrap_or_else(|| panic!("{what}: not found"));
        assert!(codes.contains(&code.as_str()), "{what}: {message}");
        assert!(words.iter().all(|w| message.contains(w)), "{what}: {message}");
    }
}

/// Each block of 128 threads reverses its part of A through shared memory; `sync` stands between.
fn reversal(sync: impl Fn(Var) -> Vec<Stmt>) -> Lowered {
    let mut k = Make::new("reversal");
    let (bx, tx) = (k.axis(Axis::BlockX, 4), k.axis(Axis::ThreadX, 128));
    let [a, c] = ["A", "C"].map(|n| k.param(n, DType::F32, 512));
    let s = k.shared("S", DType::F32, 128);
    let body = [
        vec![store(s, tx, load(a, bx * 128 + tx))],
        sync(tx),
        vec![store(c, bx * 128 + tx, load(s, Index::Int(127) - Index::Var(tx)))],
    ];
    k.done(body.concat())
}

#[test]
fn a_barrier_under_a_condition_on_the_thread_is_found() {
    let right = reversal(|_| vec![barrier()]);
    assert!(is_verified(&right) && simulated(&right).iter().all(Option::is_none));
    type Condition = (&'static str, fn(Var) -> Cond);
    // Lanes of a warp, whole warps, all but one thread, and no thread at all.
    let conditions: [Condition; 6] = [
        ("odd lanes", |tx| Cond::cmp(CmpOp::Eq, Index::Var(tx).floormod(2), 1)),
        ("some lanes", |tx| Cond::lt(tx, 5)),
        ("the first warp", |tx| Cond::lt(tx, 32)),
        ("even warps", |tx| Cond::cmp(CmpOp::Eq, Index::Var(tx).floordiv(32).floormod(2), 0)),
        ("all but one", |tx| Cond::lt(tx, 127)),
        ("none", |tx| Cond::lt(tx, 0)),
    ];
    for (what, condition) in conditions {
        let wrong = reversal(|tx| vec![guarded(condition(tx), vec![barrier()])]);
        assert!(!is_verified(&wrong), "{what}");
        // A warp that does not wait may read what another one has yet to write before the barrier itself is seen to be wrong.
        is_found(what, &wrong, &["sim.divergence", "sim.race", "sim.uninitialised"], &[]);
    }
}

#[test]
fn blocks_that_write_one_element_are_found() {
    let copy = |to: fn(Var, Var) -> Index, elements: i64| {
        let mut k = Make::new("copy");
        let (bx, tx) = (k.axis(Axis::BlockX, 4), k.axis(Axis::ThreadX, 64));
        let (a, c) = (k.param("A", DType::F32, 256), k.param("C", DType::F32, elements));
        k.done(vec![store(c, to(bx, tx), load(a, bx * 64 + tx))])
    };
    let right = copy(|bx, tx| bx * 64 + tx, 256);
    assert!(is_verified(&right) && simulated(&right).iter().all(Option::is_none));
    type Element = fn(Var, Var) -> Index;
    let wrong: [(&str, Element, i64); 4] = [
        ("all blocks", |_, tx| Index::Var(tx), 64),
        ("the first and the last", |bx, tx| Index::Var(bx).floormod(3) * 64 + tx, 192),
        ("neighbours", |bx, tx| bx * 63 + tx, 253),
        ("one element of all threads", |bx, tx| (bx * 64 + tx).floormod(255), 255),
    ];
    for (what, to, elements) in wrong {
        let words = ["is written by two threads", "block (", "no barrier orders the blocks of a kernel"];
        is_found(what, &copy(to, elements), &["sim.race"], &words);
    }
}

#[test]
fn warpgroups_that_store_one_tile_are_found() {
    let tile = |to: fn(Var) -> Index, elements: i64| {
        let mut k = Make::new("tile");
        let tx = k.axis(Axis::ThreadX, 256);
        let (a, c) = (k.param("A", DType::F32, 1024), k.param("C", DType::F32, elements));
        let value = warploom::ir::Expr::Load { buffer: a, indices: vec![tx * 4], lanes: 4 };
        k.done(vec![store_lanes(c, to(tx), value, 4)])
    };
    let right = tile(|tx| tx * 4, 1024);
    assert!(is_verified(&right) && simulated(&right).iter().all(Option::is_none));
    type Element = fn(Var) -> Index;
    let wrong: [(&str, Element, i64); 2] = [
        ("the whole tile", |tx| Index::Var(tx).floormod(128) * 4, 512),
        ("a row", |tx| Index::Var(tx).floordiv(128) * 508 + Index::Var(tx).floormod(128) * 4, 1020),
    ];
    for (what, to, elements) in wrong {
        is_found(what, &tile(to, elements), &["sim.race"], &["is written by two threads"]);
    }
}

/// The two warpgroups of an example, whose tiles leave by bulk stores, both store the first one's.
#[test]
fn warpgroups_that_store_one_tile_in_bulk_are_found() {
    let schedule = super::subjects::narrow_schedule("wgmma_f16_pingpong");
    let right = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let (mut wrong, mut changed) = (right.clone(), 0);
    for kernel in &mut wrong.kernels {
        let threads: visit::Map = kernel
            .func
            .vars
            .iter()
            .enumerate()
            .filter(|(_, n)| n.starts_with("threadIdx"))
            .map(|(n, _)| (Var(n as u32), Index::Int(0)))
            .collect();
        let mut body = std::mem::take(&mut kernel.func.body);
        one_place(&mut body, &threads, &mut changed);
        kernel.func.body = body;
    }
    assert!(changed > 0);
    is_found("bulk stores", &wrong, &["sim.race", "sim.unwritten"], &["C"]);
}

/// Lets bulk stores go where those of the first thread go.
fn one_place(body: &mut [Stmt], threads: &visit::Map, changed: &mut usize) {
    for stmt in body {
        if let Stmt::Bulk(copy) = stmt
            && copy.way == Way::Store
        {
            for at in &mut copy.coordinates {
                let first = visit::subst_index(at, threads);
                *changed += usize::from(first != *at);
                *at = first;
            }
        }
        visit::children_mut(stmt).into_iter().for_each(|child| one_place(child, threads, changed));
    }
}
