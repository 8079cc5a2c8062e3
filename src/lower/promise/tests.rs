//! Kernels that break the promise of one pass each, right after it.

use super::*;
use crate::error::Code;
use crate::ir::{Axis, Elect, If, Index, Pipeline};
use crate::loom::Schedule;
use crate::lower::lower_traced;

const SIMT: &str = include_str!("../../../examples/gpu_v3.loom");
const CP_ASYNC: &str = include_str!("../../../examples/gemm_cp_async.loom");
const MMA: &str = include_str!("../../../examples/mma_f16.loom");
const ROLES: &str = include_str!("../../../examples/wgmma_f16_pingpong.loom");

/// Calls `f` for each statement, outer ones first.
fn each(body: &mut [Stmt], f: &mut dyn FnMut(&mut Stmt)) {
    for stmt in body {
        f(stmt);
        visit::children_mut(stmt).into_iter().for_each(|child| each(child, f));
    }
}

fn each_loop(kernel: &mut LoweredKernel, f: &mut dyn FnMut(&mut For)) {
    each(&mut kernel.func.body, &mut |s| {
        if let Stmt::For(l) = s {
            f(l);
        }
    });
}

fn shared(kernel: &mut LoweredKernel) -> &mut crate::ir::Buffer {
    let used = used(&kernel.func);
    let id = used.into_iter().find(|b| kernel.func.buffer(*b).scope == Scope::Shared).unwrap();
    kernel.func.buffer_mut(id)
}

fn reduce_over_threads(kernel: &mut LoweredKernel) {
    each_loop(kernel, &mut |l| l.kind = LoopKind::Bound(Axis::ThreadX));
}

fn guard_a_block(kernel: &mut LoweredKernel) {
    each(&mut kernel.func.body, &mut |s| {
        if let Stmt::Block(b) = s {
            b.predicate = Cond::Const(false);
        }
    });
}

fn bind_loops(kernel: &mut LoweredKernel) {
    each_loop(kernel, &mut |l| l.kind = LoopKind::Bound(Axis::ThreadX));
}

fn empty_a_buffer(kernel: &mut LoweredKernel) {
    shared(kernel).shape = vec![Index::Int(0)];
}

fn lose_the_maps(kernel: &mut LoweredKernel) {
    kernel.maps.clear();
}

fn keep_a_fragment(kernel: &mut LoweredKernel) {
    shared(kernel).scope = Scope::Fragment;
}

fn index_twice(kernel: &mut LoweredKernel) {
    each(&mut kernel.func.body, &mut |s| {
        if let Stmt::Store(s) = s {
            s.indices.push(Index::Int(0));
        }
    });
}

fn add_a_condition(kernel: &mut LoweredKernel) {
    let body = std::mem::take(&mut kernel.func.body);
    kernel.func.body = vec![Stmt::If(If { cond: Cond::lt(Index::Int(0), 1), body })];
}

fn vectorize(kernel: &mut LoweredKernel) {
    each_loop(kernel, &mut |l| l.kind = LoopKind::Vectorized);
}

fn copy_three_elements(kernel: &mut LoweredKernel) {
    each(&mut kernel.func.body, &mut |s| {
        if let Stmt::Store(s) = s {
            s.lanes = if s.asynchronous { 3 } else { s.lanes };
        }
    });
}

fn wrap_the_roles(kernel: &mut LoweredKernel) {
    let body = std::mem::take(&mut kernel.func.body);
    kernel.func.body = vec![Stmt::If(If { cond: Cond::Const(true), body })];
}

fn pipeline_again(kernel: &mut LoweredKernel) {
    each_loop(kernel, &mut |l| l.pipeline = Some(Pipeline { stages: 2, in_flight: 0 }));
}

fn roll_the_loops(kernel: &mut LoweredKernel) {
    each_loop(kernel, &mut |l| l.kind = LoopKind::Serial);
}

fn forget_a_place(kernel: &mut LoweredKernel) {
    shared(kernel).offset = None;
}

fn elect_the_threads(kernel: &mut LoweredKernel) {
    let body = std::mem::take(&mut kernel.func.body);
    kernel.func.body = vec![Stmt::Elect(Elect { warps: 1, body })];
}

/// A pass, a program, a damage to the kernel after the pass, and what the check says of it.
type Damage = (&'static str, &'static str, fn(&mut LoweredKernel), &'static str);

const DAMAGES: [Damage; 15] = [
    ("cross_thread", SIMT, reduce_over_threads, "reduces over a bound loop"),
    ("blocks", SIMT, guard_a_block, "is more than a label"),
    ("bind", SIMT, bind_loops, "is bound"),
    ("compact", SIMT, empty_a_buffer, "has no constant size"),
    ("bulk", ROLES, lose_the_maps, "has no tensor map"),
    ("fragments", MMA, keep_a_fragment, "is still a fragment"),
    ("flatten", SIMT, index_twice, "is accessed by 2 indices"),
    ("guards", SIMT, add_a_condition, "a condition always holds"),
    ("vectors", SIMT, vectorize, "is vectorized"),
    ("copies", CP_ASYNC, copy_three_elements, "is filled by no copy of 4, 8 or 16 bytes"),
    ("roles", ROLES, wrap_the_roles, "a role is inside another statement"),
    ("pipeline", CP_ASYNC, pipeline_again, "is still to be pipelined"),
    ("registers", MMA, roll_the_loops, "is indexed by what is not unrolled"),
    ("plan", SIMT, forget_a_place, "has no place in shared memory"),
    ("order", SIMT, elect_the_threads, "an elected thread runs a statement of other threads"),
];

#[test]
fn each_promise_can_be_broken_and_is_then_reported() {
    assert_eq!(DAMAGES.map(|d| d.0).as_slice(), PASSES.iter().map(|p| p.name).collect::<Vec<_>>());
    for (n, (pass, text, damage, why)) in DAMAGES.into_iter().enumerate() {
        let schedule = Schedule::parse(text).unwrap();
        let mut found = None;
        lower_traced(&schedule.scheduled().unwrap(), &schedule.target, &mut |t| {
            if t.pass == pass {
                found.get_or_insert_with(|| t.kernel.clone());
            }
        })
        .unwrap();
        let mut kernel = found.unwrap();
        check(&kernel, n + 1).unwrap();
        damage(&mut kernel);
        let error = check(&kernel, n + 1).expect_err(pass);
        assert!(error.message().contains(why) && error.message().contains(pass), "{pass}: {error}");
        assert_eq!(error.code(), Code::LowerPromise);
    }
}
