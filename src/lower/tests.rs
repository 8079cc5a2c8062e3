//! Hand-made Scheduled programs through every pass: what is compacted, how wide accesses become, where barriers stand.

use super::*;
use crate::dtype::DType;
use crate::ir::{BinOp, Block, Buffer, Cond, Expr, For, Index, Iter, IterKind, LoopKind, Scope, Stmt, Store, visit};

/// Builds a Func piece by piece.
struct Make(Func);

impl Make {
    fn new(name: &str) -> Make {
        Make(Func { name: name.into(), ..Func::default() })
    }

    fn buffer(&mut self, name: &str, shape: &[i64], scope: Scope) -> BufferId {
        let id =
            self.0.add_buffer(Buffer::new(name, DType::F32, shape.iter().map(|n| Index::Int(*n)).collect(), scope));
        if scope == Scope::Global {
            self.0.params.push(id);
        }
        id
    }

    fn vars<const N: usize>(&mut self, names: [&str; N]) -> [Var; N] {
        names.map(|n| self.0.add_var(n))
    }

    /// A block of spatial iterators that are their bindings.
    fn block(&mut self, name: &str, predicate: Cond, store: Store) -> Stmt {
        let name = self.0.add_block(name);
        let (iters, init) = (Vec::new(), None);
        Stmt::Block(Block { name, iters, predicate, init, body: vec![Stmt::Store(store)], copy_with: None, role: None })
    }
}

fn looped(var: Var, extent: i64, kind: LoopKind, body: Vec<Stmt>) -> Vec<Stmt> {
    vec![Stmt::For(For::new(var, extent, kind, body))]
}

fn bound(var: Var, extent: i64, axis: Axis, body: Vec<Stmt>) -> Vec<Stmt> {
    looped(var, extent, LoopKind::Bound(axis), body)
}

fn store(buffer: BufferId, indices: Vec<Index>, value: Expr) -> Store {
    Store { buffer, indices, value, lanes: 1 }
}

fn int(n: i64) -> Index {
    Index::Int(n)
}

/// Seed 001's window_sum with a cooperative stage of two rounds.
fn window_sum() -> Func {
    let mut m = Make::new("window_sum");
    let a = m.buffer("A", &[1027], Scope::Global);
    let b = m.buffer("B", &[1024], Scope::Global);
    let s = m.buffer("A_shared", &[1027], Scope::Shared);
    let [i0, i1, x0, x1] = m.vars(["i_0", "i_1", "ax0_0", "ax0_1"]);
    let at = i0 * 128 + (x0 * 128 + x1);
    let fetch = m.block("A_shared", Cond::lt(x0 * 128 + x1, 130), store(s, vec![at.clone()], Expr::load(a, vec![at])));
    let v = i0 * 128 + i1;
    let read = |d: i64| Expr::load(s, vec![v.clone() + d]);
    let sum = Expr::bin(BinOp::Add, Expr::bin(BinOp::Add, read(0), read(1)), read(2));
    let add = m.block("C", Cond::TRUE, store(b, vec![v.clone()], sum));
    let fetch = looped(x0, 2, LoopKind::Serial, bound(x1, 128, Axis::ThreadX, vec![fetch]));
    let inside = [fetch, vec![add]].concat();
    m.0.body = bound(i0, 8, Axis::BlockX, bound(i1, 128, Axis::ThreadX, inside));
    m.0
}

/// A GEMM with shared tiles and register accumulators: 64 threads of 4 x 4, k in steps of 8.
fn gemm() -> Func {
    let mut m = Make::new("gemm");
    let a = m.buffer("A", &[64, 64], Scope::Global);
    let b = m.buffer("B", &[64, 64], Scope::Global);
    let c = m.buffer("C", &[64, 64], Scope::Global);
    let (sa, sb) = (m.buffer("A_s", &[64, 64], Scope::Shared), m.buffer("B_s", &[64, 64], Scope::Shared));
    let acc = m.buffer("C_l", &[64, 64], Scope::Local);
    let [i0, j0, t, k0, k1, i2, j2] = m.vars(["i0", "j0", "t", "k0", "k1", "i2", "j2"]);
    let [at, av, bt, bv, zi, zj, wi, wj] = m.vars(["at", "av", "bt", "bv", "zi", "zj", "wi", "wj"]);
    let row = |i: Index| i0 * 32 + Index::Var(t).floordiv(8) * 4 + i;
    let col = |j: Index| j0 * 32 + Index::Var(t).floormod(8) * 4 + j;
    let zero = m.block(
        "C_init",
        Cond::TRUE,
        store(acc, vec![row(zi.into()), col(zj.into())], Expr::constant(DType::F32, 0.0)),
    );
    let flat = at * 4 + av;
    let from = vec![i0 * 32 + flat.clone().floordiv(8), k0 * 8 + flat.floormod(8)];
    let fetch_a = m.block("A_s", Cond::TRUE, store(sa, from.clone(), Expr::load(a, from)));
    let flat = bt * 4 + bv;
    let from = vec![k0 * 8 + flat.clone().floordiv(32), j0 * 32 + flat.floormod(32)];
    let fetch_b = m.block("B_s", Cond::TRUE, store(sb, from.clone(), Expr::load(b, from)));
    let (r, q, k) = (row(i2.into()), col(j2.into()), k0 * 8 + k1);
    let product = Expr::bin(BinOp::Mul, Expr::load(sa, vec![r.clone(), k.clone()]), Expr::load(sb, vec![k, q.clone()]));
    let sum = Expr::bin(BinOp::Add, Expr::load(acc, vec![r.clone(), q.clone()]), product);
    let update = m.block("C", Cond::TRUE, store(acc, vec![r, q], sum));
    let out = vec![row(wi.into()), col(wj.into())];
    let write = m.block("C_l", Cond::TRUE, store(c, out.clone(), Expr::load(acc, out)));
    let serial = LoopKind::Serial;
    let copy = |tv, vv, s| bound(tv, 64, Axis::ThreadX, looped(vv, 4, LoopKind::Vectorized, vec![s]));
    let zeroes = looped(zi, 4, serial, looped(zj, 4, serial, vec![zero]));
    let main = looped(k1, 8, serial, looped(i2, 4, serial, looped(j2, 4, serial, vec![update])));
    let tiles = [copy(at, av, fetch_a), copy(bt, bv, fetch_b), main].concat();
    let writes = looped(wi, 4, serial, looped(wj, 4, LoopKind::Vectorized, vec![write]));
    let inside = [zeroes, looped(k0, 8, serial, tiles), writes].concat();
    m.0.body = bound(i0, 2, Axis::BlockY, bound(j0, 2, Axis::BlockX, bound(t, 64, Axis::ThreadX, inside)));
    m.0
}

fn lowered(func: &Func) -> LoweredKernel {
    let target = Target::parse("sm_80").unwrap();
    let mut l = lower(func, &target).unwrap();
    assert_eq!(l.kernels.len(), 1);
    l.kernels.remove(0)
}

fn syncs(body: &[Stmt]) -> Vec<String> {
    let mut out = Vec::new();
    visit::walk(body, &mut |s| match s {
        Stmt::Sync(crate::ir::Sync::Block { reason }) => out.push(format!("block: {reason}")),
        Stmt::Sync(crate::ir::Sync::Warp { reason }) => out.push(format!("warp: {reason}")),
        _ => {}
    });
    out
}

#[test]
fn window_sum_keeps_130_elements_and_one_barrier() {
    let k = lowered(&window_sum());
    println!("{}", print_kernel(&k));
    assert_eq!(k.func.buffers[2].elements(), Some(130));
    assert_eq!(k.shared_bytes, 520);
    assert_eq!((k.grid(), k.block()), ([8, 1, 1], [128, 1, 1]));
    assert_eq!(syncs(&k.func.body), ["block: RAW A_shared: C reads what A_shared wrote"]);
    let text = print_kernel(&k);
    assert!(text.contains("< 130") || text.contains("< 2"), "{text}");
}

#[test]
fn gemm_has_two_barriers_vector_copies_and_registers() {
    let k = lowered(&gemm());
    let text = print_kernel(&k);
    println!("{text}");
    let elements = |name: &str| k.func.buffer(k.func.find_buffer(name).unwrap()).elements().unwrap();
    assert_eq!((elements("A_s"), elements("B_s"), elements("C_l")), (32 * 8, 8 * 32, 16));
    assert_eq!(
        syncs(&k.func.body),
        ["block: WAR B_s: B_s writes what C read in the iteration before", "block: RAW B_s: C reads what B_s wrote"]
    );
    let mut lanes = Vec::new();
    visit::walk(&k.func.body, &mut |s| {
        if let Stmt::Store(s) = s {
            lanes.push(s.lanes);
        }
    });
    assert_eq!(lanes, [1, 4, 4, 1, 4]);
}

#[test]
fn a_stage_without_bound_loops_runs_on_one_thread() {
    let mut func = window_sum();
    func.body = visit::rewrite(func.body, &mut |s| match s {
        Stmt::For(mut l) if l.var == Var(3) => {
            l.kind = LoopKind::Serial;
            vec![Stmt::For(l)]
        }
        other => vec![other],
    });
    let text = print_kernel(&lowered(&func));
    assert!(text.contains("threadIdx.x == 0"), "{text}");
}

#[test]
fn values_of_one_thread_need_no_barrier() {
    let mut m = Make::new("own");
    let a = m.buffer("A", &[256], Scope::Global);
    let b = m.buffer("B", &[256], Scope::Global);
    let s = m.buffer("S", &[256], Scope::Shared);
    let [x, t] = m.vars(["x", "t"]);
    let at = vec![x * 128 + t];
    let put = m.block("S", Cond::TRUE, store(s, at.clone(), Expr::load(a, at.clone())));
    let get = m.block("B", Cond::TRUE, store(b, at.clone(), Expr::load(s, at)));
    m.0.body = bound(x, 2, Axis::BlockX, bound(t, 128, Axis::ThreadX, vec![put, get]));
    assert_eq!(syncs(&lowered(&m.0).func.body), Vec::<String>::new());
}

#[test]
fn neighbours_in_a_warp_need_the_warp_only() {
    let mut m = Make::new("swap");
    let a = m.buffer("A", &[256], Scope::Global);
    let b = m.buffer("B", &[256], Scope::Global);
    let s = m.buffer("S", &[256], Scope::Shared);
    let [x, t] = m.vars(["x", "t"]);
    let at = x * 128 + t;
    let swapped = x * 128 + Index::Var(t).floordiv(2) * 2 + (int(1) - Index::Var(t).floormod(2));
    let put = m.block("S", Cond::TRUE, store(s, vec![at.clone()], Expr::load(a, vec![at.clone()])));
    let get = m.block("B", Cond::TRUE, store(b, vec![at], Expr::load(s, vec![swapped])));
    m.0.body = bound(x, 2, Axis::BlockX, bound(t, 128, Axis::ThreadX, vec![put, get]));
    assert_eq!(syncs(&lowered(&m.0).func.body), ["warp: RAW S: B reads what S wrote"]);
}

#[test]
fn two_extents_of_an_axis_are_refused() {
    let mut func = window_sum();
    func.body = visit::rewrite(func.body, &mut |s| match s {
        Stmt::For(mut l) if l.var == Var(3) => {
            l.extent = int(64);
            vec![Stmt::For(l)]
        }
        other => vec![other],
    });
    assert!(lower(&func, &Target::parse("sm_80").unwrap()).is_err());
}

#[test]
fn iterators_and_inits_are_written_out() {
    let mut m = Make::new("sum");
    let a = m.buffer("A", &[8, 16], Scope::Global);
    let c = m.buffer("C", &[8], Scope::Global);
    let [i, k, vi, vk] = m.vars(["i", "k", "vi", "vk"]);
    let name = m.0.add_block("C");
    let iter =
        |var, kind, extent: i64, binding: Var| Iter { var, kind, extent: extent.into(), binding: binding.into() };
    let sum = Expr::bin(BinOp::Add, Expr::load(c, vec![vi.into()]), Expr::load(a, vec![vi.into(), vk.into()]));
    let zero = store(c, vec![vi.into()], Expr::constant(DType::F32, 0.0));
    let block = Block {
        name,
        iters: vec![iter(vi, IterKind::Spatial, 8, i), iter(vk, IterKind::Reduce, 16, k)],
        predicate: Cond::TRUE,
        init: Some(vec![Stmt::Store(zero)]),
        body: vec![Stmt::Store(store(c, vec![vi.into()], sum))],
        copy_with: None,
        role: None,
    };
    m.0.body = bound(i, 8, Axis::BlockX, looped(k, 16, LoopKind::Serial, vec![Stmt::Block(block)]));
    let text = print_kernel(&lowered(&m.0));
    assert!(text.contains("if k == 0") && text.contains("A[blockIdx.x*16 + k]"), "{text}");
}
