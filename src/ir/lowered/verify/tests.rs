//! Kernels that break one promise each, and what the verifier says of them.

use super::verify;
use crate::ir::lowered::{GridDependency, LaunchAxis, LoweredKernel};
use crate::ir::visit::{self, rewrite};
use crate::ir::{
    Axis, BulkCopy, Cond, Elect, Expr, For, Held, If, Index, LoopKind, Operand, RoleBody, Scope, Stmt, Store, Sync,
    SyncKind, Way,
};
use crate::loom::Schedule;
use crate::lower::lower;

const SIMT: &str = include_str!("../../../../examples/gpu_v3.loom");
const COPIES: &str = include_str!("../../../../examples/gemm_cp_async.loom");
const MMA: &str = include_str!("../../../../examples/mma_f16.loom");
const WMMA: &str = include_str!("../../../../examples/wmma_f16.loom");
const ROLES: &str = include_str!("../../../../examples/wgmma_f16_pingpong.loom");
const CLUSTERS: &str = include_str!("../../../../examples/worked_example.loom");
const WALK: &str = include_str!("../../../../examples/persistent_simt.loom");

fn kernel(text: &str) -> LoweredKernel {
    let schedule = Schedule::parse(text).unwrap();
    let func = schedule.scheduled().unwrap();
    let kernel = lower(&func, &schedule.target).unwrap().kernels.remove(0);
    verify(&kernel).unwrap();
    kernel
}

/// A kernel that is damaged breaks the promise that the message names.
fn breaks(text: &str, message: &str, damage: impl FnOnce(&mut LoweredKernel)) {
    let mut kernel = kernel(text);
    let right = kernel.clone();
    damage(&mut kernel);
    assert!(kernel != right, "{message}: nothing is damaged");
    let error = verify(&kernel).err().unwrap_or_else(|| panic!("{message}: not found"));
    assert!(error.message().contains(message), "{message}: {error}");
}

/// Puts something else in the place of the first statement for which `f` has it.
fn replace(kernel: &mut LoweredKernel, f: impl Fn(&Stmt) -> Option<Vec<Stmt>>) {
    let mut done = false;
    kernel.func.body = rewrite(std::mem::take(&mut kernel.func.body), &mut |s| {
        let other = if done { None } else { f(&s) };
        done |= other.is_some();
        other.unwrap_or_else(|| vec![s])
    });
}

/// Applies `f` to the first statement for which `part` returns a part, and to that part alone.
fn change<T>(kernel: &mut LoweredKernel, part: impl Fn(&mut Stmt) -> Option<&mut T>, f: impl Fn(&mut T)) {
    replace(kernel, |s| {
        let mut s = s.clone();
        f(part(&mut s)?);
        Some(vec![s])
    });
}

fn change_store(kernel: &mut LoweredKernel, which: impl Fn(&Store) -> bool, f: impl Fn(&mut Store)) {
    change(kernel, |s| if let Stmt::Store(s) = s { Some(s).filter(|s| which(s)) } else { None }, f);
}

fn change_loop(kernel: &mut LoweredKernel, which: impl Fn(&For) -> bool, f: impl Fn(&mut For)) {
    change(kernel, |s| if let Stmt::For(l) = s { Some(l).filter(|l| which(l)) } else { None }, f);
}

fn change_operand(kernel: &mut LoweredKernel, which: impl Fn(&Held) -> bool, f: impl Fn(&mut Operand)) {
    let found = |o: &&mut Operand| which(&o.held);
    change(kernel, |s| if let Stmt::Call(call) = s { call.operands.iter_mut().find(found) } else { None }, f);
}

fn change_role(kernel: &mut LoweredKernel, f: impl Fn(&mut RoleBody)) {
    let role = kernel.func.body.iter_mut().filter_map(|s| if let Stmt::Role(r) = s { Some(r) } else { None }).next();
    f(role.expect("a role"));
}

fn change_bulk(kernel: &mut LoweredKernel, f: impl Fn(&mut BulkCopy)) {
    let loads = |copy: &&mut BulkCopy| matches!(copy.way, Way::Load { .. });
    change(kernel, |s| if let Stmt::Bulk(copy) = s { Some(copy).filter(loads) } else { None }, f);
}

fn change_elect(kernel: &mut LoweredKernel, f: impl Fn(&mut Elect)) {
    change(kernel, |s| if let Stmt::Elect(e) = s { Some(e) } else { None }, f);
}

/// The condition that a thread is the first.
fn first_thread(kernel: &LoweredKernel) -> Cond {
    Cond::lt(Index::Var(kernel.thread_vars()[0].0), 1)
}

fn under_first_thread(kernel: &mut LoweredKernel, which: impl Fn(&Stmt) -> bool) {
    let cond = first_thread(kernel);
    replace(kernel, |s| which(s).then(|| vec![Stmt::If(If { cond: cond.clone(), body: vec![s.clone()] })]));
}

fn is_barrier(s: &Stmt) -> bool {
    matches!(s, Stmt::Sync(Sync { kind: SyncKind::Block, .. }))
}

#[test]
fn buffers_have_their_places() {
    let used = |k: &LoweredKernel, scope| {
        let all = visit::writes(&k.func.body).into_iter().chain(visit::reads(&k.func.body));
        all.into_iter().find(|b| k.func.buffer(*b).scope == scope).unwrap()
    };
    breaks(SIMT, "is not flat", |k| {
        let id = used(k, Scope::Shared);
        k.func.buffer_mut(id).shape = vec![Index::Int(2), Index::Int(2)];
    });
    breaks(SIMT, "is global but no parameter", |k| k.func.params.clear());
    breaks(SIMT, "has no place in shared memory", |k| k.shared_bytes -= 1);
    breaks(COPIES, "is still a fragment", |k| {
        let id = used(k, Scope::Local);
        k.func.buffer_mut(id).scope = Scope::Fragment;
    });
}

#[test]
fn kernels_begin_and_end_in_order() {
    breaks(SIMT, "a relaxed cluster barrier has memory accesses before it", |k| {
        replace(k, |s| {
            let Stmt::Sync(sync) = s else { return None };
            Some(vec![Stmt::Sync(Sync { kind: SyncKind::ClusterRelaxed, ..sync.clone() })])
        });
    });
    breaks(SIMT, "a kernel with programmatic dependent launch does not wait first", |k| {
        k.grid_dependency = Some(GridDependency::Waits);
    });
    breaks(CLUSTERS, "a block may end while another one of its cluster still reaches it", |k| {
        let ends = |s: &Stmt| matches!(s, Stmt::Sync(Sync { kind: SyncKind::Cluster | SyncKind::ClusterRelaxed, .. }));
        let waits = |s: &Stmt| matches!(s, Stmt::Sync(Sync { kind: SyncKind::Await { .. }, .. }));
        k.func.body = rewrite(std::mem::take(&mut k.func.body), &mut |s| {
            if ends(&s) || waits(&s) { Vec::new() } else { vec![s] }
        });
    });
}

#[test]
fn statements_stand_where_their_threads_come() {
    breaks(ROLES, "an elected thread runs a statement of other threads", |k| {
        let store = Stmt::Store(Store::new(
            k.func.params[0],
            vec![Index::Int(0)],
            Expr::load(k.func.params[0], vec![Index::Int(0)]),
        ));
        change_elect(k, |e| e.body.push(store.clone()));
    });
    breaks(SIMT, "is more than a label", |k| {
        change(k, |s| if let Stmt::Block(b) = s { Some(b) } else { None }, |b| b.init = Some(Vec::new()));
    });
    breaks(SIMT, "synchronisation inside a branch that depends on the thread", |k| under_first_thread(k, is_barrier));
    breaks(ROLES, "a thread is elected in code that not all lanes of its warp reach", |k| {
        change_elect(k, |e| e.body = vec![Stmt::Elect(e.clone())]);
    });
    breaks(MMA, "inside a branch that depends on the lane", |k| {
        under_first_thread(k, |s| matches!(s, Stmt::Call(_)));
    });
}

#[test]
fn roles_have_all_warps_and_no_more_registers() {
    breaks(ROLES, "the threads of roles are numbered along several axes", |k| {
        let var = k.func.add_var("other");
        k.launch.push(LaunchAxis { axis: Axis::ThreadY, var, extent: 1 });
    });
    breaks(ROLES, "a role begins at warp 1", |k| change_role(k, |r| r.first = 1));
    breaks(ROLES, "warps of a block of", |k| {
        let last = k.func.body.iter().rposition(|s| matches!(s, Stmt::Role(_))).unwrap();
        k.func.body.remove(last);
    });
    breaks(ROLES, "cannot have Some(25) registers a thread", |k| change_role(k, |r| r.regs = Some(25)));
    breaks(ROLES, "the roles ask for", |k| change_role(k, |r| r.regs = Some(256)));
}

#[test]
fn one_thread_does_what_is_one_threads() {
    breaks(ROLES, "is executed by the wrong threads", |k| {
        replace(k, |s| match s {
            Stmt::Elect(e) if e.body.iter().any(|s| matches!(s, Stmt::Sync(_))) => Some(e.body.clone()),
            _ => None,
        });
    });
    breaks(ROLES, "is copied in bulk by several threads", |k| {
        replace(k, |s| match s {
            Stmt::Elect(e) => {
                let mut copies = Vec::new();
                visit::walk(&e.body, &mut |s| copies.extend(matches!(s, Stmt::Bulk(_)).then(|| s.clone())));
                (!copies.is_empty()).then_some(copies)
            }
            _ => None,
        });
    });
}

#[test]
fn bulk_copies_are_boxes_with_an_mbarrier() {
    breaks(ROLES, "mbarrier 99 has no place in shared memory", |k| {
        change_bulk(k, |copy| {
            if let Way::Load { full, .. } = &mut copy.way {
                full.barrier = 99;
            }
        });
    });
    breaks(ROLES, "has no tensor map", |k| change_bulk(k, |copy| copy.map = 99));
    breaks(ROLES, "has 2 indices", |k| change_bulk(k, |copy| copy.indices.push(Index::Int(0))));
    breaks(ROLES, "does not begin at a multiple of 128 bytes", |k| {
        change_bulk(k, |copy| copy.indices[0] = copy.indices[0].clone() + 8);
    });
    breaks(ROLES, "does not begin at a multiple of 16 bytes of a row", |k| {
        change_bulk(k, |copy| copy.coordinates[1] = copy.coordinates[1].clone() + 4);
    });
    breaks(COPIES, "is filled by no copy of 4, 8 or 16 bytes", |k| {
        change_store(k, |s| !s.asynchronous, |s| s.asynchronous = true);
    });
}

#[test]
fn loops_are_counted_and_written_out() {
    let serial = |l: &For| l.kind == LoopKind::Serial;
    breaks(SIMT, "has no constant positive extent", |k| change_loop(k, serial, |l| l.extent = Index::Int(0)));
    breaks(SIMT, "is still Vectorized", |k| change_loop(k, serial, |l| l.kind = LoopKind::Vectorized));
    breaks(WALK, "does not match the grid", |k| {
        k.launch.iter_mut().filter(|l| l.axis == Axis::BlockX).for_each(|l| l.extent += 1);
    });
    breaks(COPIES, "is indexed by what is not unrolled", |k| {
        let unrolled = |l: &For| l.kind == LoopKind::Unrolled;
        change_loop(k, unrolled, |l| l.kind = LoopKind::Serial);
    });
}

#[test]
fn accesses_are_one_aligned_index() {
    breaks(SIMT, "has 2 indices", |k| change_store(k, |_| true, |s| s.indices.push(Index::Int(0))));
    breaks(SIMT, "0 lanes of", |k| change_store(k, |_| true, |s| s.lanes = 0));
    breaks(COPIES, "at an index that alignment does not prove", |k| {
        change_store(k, |s| s.asynchronous, |s| s.indices[0] = s.indices[0].clone() + 1);
    });
    breaks(WMMA, "elements apart", |k| {
        let rows = |h: &Held| matches!(h, Held::Rows { .. });
        change_operand(k, rows, |o| {
            if let Held::Rows { stride, .. } = &mut o.held {
                *stride += 1;
            }
        });
    });
    breaks(MMA, "in another layout than it has", |k| {
        let registers = |h: &Held| matches!(h, Held::Registers(_));
        change_operand(k, registers, |o| o.held = Held::Address(8));
    });
}
