//! Kernels that break the promise of one pass each, right after it.

use super::*;
use crate::error::Code;
use crate::ir::lowered::Clipped;
use crate::ir::{Axis, Elect, Expr, If, Index, Pipeline, Store, Sync, SyncKind};
use crate::loom::Schedule;
use crate::lower::lower_traced;

const SIMT: &str = include_str!("../../../examples/gpu_v3.loom");
const CP_ASYNC: &str = include_str!("../../../examples/gemm_cp_async.loom");
const MMA: &str = include_str!("../../../examples/mma_f16.loom");
const ROLES: &str = include_str!("../../../examples/wgmma_f16_pingpong.loom");

/// Rows of f16 that are read again after a reduction, 64 elements a thread.
const ROWS: &str = "program rows
input X f16[4, 4096]
R[i 4, k 4096] f16 = X[i, k]
M[i 4] f32 = sum(k 4096) f32(R[i, k])
output Y[i 4, j 4096] f32 = f32(R[i, j]) + M[i]
target sm_80
set_scope R local
set_scope M local
compute_at M Y_i
compute_at R Y_i -> r
bind Y_i blockIdx.x
split r 8 64 8 -> ro rt rv
bind rt threadIdx.x
vectorize rv
split M_k 8 64 8 -> mo mt mv
bind mt threadIdx.x
split j 8 64 8 -> jo jt jv
bind jt threadIdx.x
vectorize jv
transform_layout R [i, k] -> [i, k // 512, k // 8 % 64, k % 8]
";

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
    each_loop(kernel, &mut |l| l.kind = LoopKind::bound(Axis::ThreadX));
}

fn guard_a_block(kernel: &mut LoweredKernel) {
    each(&mut kernel.func.body, &mut |s| {
        if let Stmt::Block(b) = s {
            b.predicate = Cond::Const(false);
        }
    });
}

fn bind_loops(kernel: &mut LoweredKernel) {
    each_loop(kernel, &mut |l| l.kind = LoopKind::bound(Axis::ThreadX));
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

fn share_with_the_cluster(kernel: &mut LoweredKernel) {
    shared(kernel).scope = Scope::Cluster;
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

fn convert_once(kernel: &mut LoweredKernel) {
    kernel.func.body.retain(|s| !matches!(s, Stmt::Sync(Sync { kind: SyncKind::Narrow { .. }, .. })));
}

fn permute_everything(kernel: &mut LoweredKernel) {
    each_loop(kernel, &mut |l| l.code.permutes = true);
}

fn forget_the_copies(kernel: &mut LoweredKernel) {
    each_loop(kernel, &mut |l| l.code.copies = None);
}

fn ask_in_each_iteration(kernel: &mut LoweredKernel) {
    let input = kernel.func.params[0];
    let tile = used(&kernel.func).into_iter().find(|b| kernel.func.buffer(*b).scope == Scope::Shared).unwrap();
    each_loop(kernel, &mut |l| {
        let first = Expr::Load { buffer: input, indices: vec![Index::Int(0)], lanes: 1 };
        let cond = Cond::lt(Index::Int(0), 1);
        let body = vec![Stmt::Store(Store::new(tile, vec![Index::Int(0)], first))];
        l.body = vec![Stmt::If(If { cond, body })];
        (l.extent, l.code.copies) = (Index::Int(2), Some(2));
    });
}

fn depend_on_itself(kernel: &mut LoweredKernel) {
    each_loop(kernel, &mut |l| l.code.backwards = Some(l.var.into()));
}

fn count_nothing(kernel: &mut LoweredKernel) {
    each_loop(kernel, &mut |l| l.code.counters.push(Index::Int(0)));
}

fn add_in_front(kernel: &mut LoweredKernel) {
    each(&mut kernel.func.body, &mut |s| {
        if let Stmt::Call(call) = s {
            for operand in &mut call.operands {
                if let crate::ir::Held::Descriptor(d) = &mut operand.held {
                    d.adds_constant = false;
                }
            }
        }
    });
}

fn use_some_columns(kernel: &mut LoweredKernel) {
    each(&mut kernel.func.body, &mut |s| {
        if let Stmt::Call(call) = s
            && call.row.starts_with("wgmma")
        {
            call.columns = Some(crate::ir::Columns { below: Index::Int(8), unit: 8 });
        }
    });
}

fn clip_to_nothing(kernel: &mut LoweredKernel) {
    kernel.clipped.push(Clipped { axis: Axis::BlockX, size: 0, times: 0, per: 1 });
}

fn number_each_lane(kernel: &mut LoweredKernel) {
    kernel.uniform_warp = None;
}

fn write_out_a_million_copies(kernel: &mut LoweredKernel) {
    let again = kernel.func.add_var("again".to_string());
    let body = std::mem::take(&mut kernel.func.body);
    let mut l = For::new(again, 1 << 20, LoopKind::Unrolled, body);
    l.code.copies = Some(1 << 20);
    kernel.func.body = vec![Stmt::For(l)];
}

/// A pass, a program, a damage to the kernel after the pass, and what the check says of it.
type Damage = (&'static str, &'static str, fn(&mut LoweredKernel), &'static str);

const DAMAGES: [Damage; 27] = [
    ("cross_thread", SIMT, reduce_over_threads, "reduces over a bound loop"),
    ("blocks", SIMT, guard_a_block, "is more than a label"),
    ("bind", SIMT, bind_loops, "is bound"),
    ("compact", SIMT, empty_a_buffer, "has no constant size"),
    ("bulk", ROLES, lose_the_maps, "has no tensor map"),
    ("fragments", MMA, keep_a_fragment, "is still a fragment"),
    ("peers", SIMT, share_with_the_cluster, "still belongs to a cluster"),
    ("flatten", SIMT, index_twice, "is accessed by 2 indices"),
    ("clip", SIMT, clip_to_nothing, "is clipped to no extent"),
    ("guards", SIMT, add_a_condition, "a condition always holds"),
    ("vectors", SIMT, vectorize, "is vectorized"),
    ("copies", CP_ASYNC, copy_three_elements, "is filled by no copy of 4, 8 or 16 bytes"),
    ("roles", ROLES, wrap_the_roles, "a role is inside another statement"),
    ("pipeline", CP_ASYNC, pipeline_again, "is still to be pipelined"),
    ("registers", MMA, roll_the_loops, "is indexed by what is not unrolled"),
    ("plan", SIMT, forget_a_place, "has no place in shared memory"),
    ("order", SIMT, elect_the_threads, "an elected thread runs a statement of other threads"),
    ("narrow", ROWS, convert_once, "are converted once for readers on both sides of a barrier"),
    ("permute", MMA, permute_everything, "permutes no bytes"),
    ("columns", ROLES, use_some_columns, "computes columns of which no rows"),
    ("unroll", SIMT, forget_the_copies, "is neither written out nor left"),
    ("conditions", SIMT, ask_in_each_iteration, "asks one condition in each iteration"),
    ("zigzag", SIMT, depend_on_itself, "has a direction that no loop around it determines"),
    ("counters", ROLES, count_nothing, "counts what is no remainder"),
    ("descriptors", ROLES, add_in_front, "a constant is added outside the inline PTX of wgmma"),
    ("launch", ROLES, number_each_lane, "the launch is not complete"),
    ("size", SIMT, write_out_a_million_copies, "the kernel is too large"),
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
        check(&kernel, n).unwrap();
        damage(&mut kernel);
        let error = check(&kernel, n).expect_err(pass);
        assert!(error.message().contains(why) && error.message().contains(pass), "{pass}: {error}");
        assert_eq!(error.code(), Code::LowerPromise);
    }
}
