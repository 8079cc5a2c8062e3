//! The simulator's own tests: what programs compute, what it refuses, and that it says where.

use super::*;
use crate::dtype::DType;
use crate::error::{Code, Fault};
use crate::ir::lowered::{LaunchAxis, LoweredKernel};
use crate::ir::{
    Axis, BinOp, Buffer, BufferId, Cond, Expr, For, If, Index, LoopKind, Raster, Scope, Stmt, Store, SyncKind, Var,
};
use crate::te;

fn arrays(func: &Func, seed: u64) -> Vec<Array> {
    let make = |(i, p): (usize, &BufferId)| {
        let b = func.buffer(*p);
        let shape: Vec<usize> = b.const_shape().unwrap().iter().map(|n| *n as usize).collect();
        Array::random_integers(b.dtype, &shape, 3, seed + i as u64).unwrap()
    };
    func.params.iter().enumerate().map(make).collect()
}

fn gemm(m: i64, n: i64, k: i64, dtype: DType, layout: te::Layout) -> Func {
    te::gemm(&te::GemmSpec::of(m, n, k, dtype, layout)).unwrap()
}

#[test]
fn gemm_in_sequence() {
    for layout in [te::Layout::NN, te::Layout::NT, te::Layout::TN, te::Layout::TT] {
        let func = gemm(5, 7, 67, DType::F32, layout);
        let mut args = arrays(&func, 1);
        let stats = run_func(&func, Mode::Real, &mut args).unwrap();
        assert_eq!(stats.statements, 5 * 7 * 68);
        for i in 0..5 {
            for j in 0..7 {
                let a = |k: usize| args[0].get(if layout.a_transposed() { k * 5 + i } else { i * 67 + k });
                let b = |k: usize| args[1].get(if layout.b_transposed() { j * 67 + k } else { k * 7 + j });
                let sum: f64 = (0..67).map(|k| a(k) * b(k)).sum();
                assert_eq!(args[2].get(i * 7 + j), sum, "{layout:?} {i} {j}");
            }
        }
    }
}

/// A kernel in the making: one axis of blocks, one of threads.
pub(super) struct Kernel {
    pub func: Func,
    launch: Vec<LaunchAxis>,
    shared_bytes: u32,
    pub block: Var,
    pub thread: Var,
}

impl Kernel {
    pub fn new(blocks: u32, threads: u32) -> Kernel {
        let mut func = Func { name: "k".into(), ..Func::default() };
        let (block, thread) = (func.add_var("bx"), func.add_var("tx"));
        let axis = |axis, var, extent| LaunchAxis { axis, var, extent };
        let launch = vec![axis(Axis::BlockX, block, blocks), axis(Axis::ThreadX, thread, threads)];
        Kernel { func, launch, shared_bytes: 0, block, thread }
    }

    /// Makes clusters of so many blocks; the axis of blocks then counts clusters.
    pub fn cluster(&mut self, blocks: u32) -> Var {
        let rank = self.func.add_var("rank");
        self.launch.push(LaunchAxis { axis: Axis::Cluster, var: rank, extent: blocks });
        rank
    }

    pub fn param(&mut self, name: &str, elements: i64) -> BufferId {
        let id = self.func.add_buffer(Buffer::new(name, DType::F32, vec![elements.into()], Scope::Global));
        self.func.params.push(id);
        id
    }

    pub fn shared(&mut self, name: &str, dtype: DType, elements: i64, offset: u32) -> BufferId {
        let mut b = Buffer::new(name, dtype, vec![elements.into()], Scope::Shared);
        b.offset = Some(offset);
        self.shared_bytes = self.shared_bytes.max(offset + dtype.bytes_of(elements as u64) as u32);
        self.func.add_buffer(b)
    }

    pub fn local(&mut self, name: &str, elements: i64) -> BufferId {
        self.func.add_buffer(Buffer::new(name, DType::F32, vec![elements.into()], Scope::Local))
    }

    pub fn lowered(self) -> Lowered {
        let params = self.func.params.iter().map(|p| self.func.buffer(*p).name.clone()).collect();
        let (launch, shared_bytes) = (self.launch, self.shared_bytes);
        let kernel = LoweredKernel { launch, shared_bytes, ..LoweredKernel::new(self.func) };
        Lowered::new("k", params, vec![kernel])
    }

    pub fn run(self) -> Result<Vec<Array>> {
        self.run_with(Policy::InOrder)
    }

    pub fn run_with(self, policy: Policy) -> Result<Vec<Array>> {
        let sizes: Vec<usize> =
            self.func.params.iter().map(|p| self.func.buffer(*p).elements().unwrap() as usize).collect();
        let mut args: Vec<Array> =
            sizes.iter().map(|n| Array::from_fn(DType::F32, &[*n], |i| i as f64).unwrap()).collect();
        let options = Options { policy, ..Options::new(Mode::Real) };
        run_lowered_with(&self.lowered(), &options, &mut args)?;
        Ok(args)
    }
}

pub(super) fn store(buffer: BufferId, index: impl Into<Index>, value: Expr) -> Stmt {
    Stmt::Store(Store::new(buffer, vec![index.into()], value))
}

pub(super) fn load(buffer: BufferId, index: impl Into<Index>) -> Expr {
    Expr::load(buffer, vec![index.into()])
}

pub(super) fn barrier() -> Stmt {
    Stmt::Sync(SyncKind::Block.because("S written -> read"))
}

#[test]
fn threads_cover_ragged_edges() {
    let mut k = Kernel::new(3, 40);
    let (a, c) = (k.param("A", 100), k.param("C", 100));
    let i = k.block * 40 + k.thread;
    let add = Expr::bin(BinOp::Add, load(a, i.clone()), load(a, i.clone()));
    k.func.body = vec![Stmt::If(If { cond: Cond::lt(i.clone(), 100), body: vec![store(c, i, add)] })];
    let out = k.run().unwrap();
    assert!((0..100).all(|i| out[1].get(i) == 2.0 * i as f64));
}

/// Each thread reads what the thread opposite wrote to shared memory.
pub(super) fn reversal(with_barrier: bool) -> Kernel {
    let mut k = Kernel::new(2, 64);
    let (a, c, s) = (k.param("A", 128), k.param("C", 128), k.shared("S", DType::F32, 64, 0));
    let i = k.block * 64 + k.thread;
    k.func.body.push(store(s, k.thread, load(a, i.clone())));
    if with_barrier {
        k.func.body.push(barrier());
    }
    k.func.body.push(store(c, i, load(s, Index::Int(63) - Index::Var(k.thread))));
    k
}

#[test]
fn warps_meet_at_barriers() {
    for policy in [Policy::InOrder, Policy::Reverse, Policy::Random(7)] {
        let out = reversal(true).run_with(policy).unwrap();
        assert!((0..128).all(|i| out[1].get(i) == (i / 64 * 64 + 63 - i % 64) as f64), "{policy:?}");
    }
}

#[test]
fn loops_in_threads_and_local_sums() {
    let mut k = Kernel::new(1, 33);
    let (a, c, l) = (k.param("A", 33 * 8), k.param("C", 33), k.local("acc", 2));
    let j = k.func.add_var("j");
    let sum = Expr::bin(BinOp::Add, load(l, 1), load(a, k.thread * 8 + Index::Var(j)));
    k.func.body = vec![
        store(l, 1, Expr::constant(DType::F32, 0.0)),
        Stmt::For(For::new(j, 8, LoopKind::Serial, vec![store(l, 1, sum)])),
        store(c, k.thread, load(l, 1)),
    ];
    let out = k.run().unwrap();
    assert!((0..33).all(|t| out[1].get(t) == (0..8).map(|j| (t * 8 + j) as f64).sum::<f64>()));
}

#[test]
fn vectors_move_whole_and_must_be_aligned() {
    let build = |shift: i64| {
        let mut k = Kernel::new(1, 4);
        let (a, c) = (k.param("A", 20), k.param("C", 16));
        let value = Expr::Load { buffer: a, indices: vec![k.thread * 4 + shift], lanes: 4 };
        let doubled = Expr::bin(BinOp::Add, value, Expr::Splat(4, Box::new(Expr::constant(DType::F32, 1.0))));
        k.func.body = vec![Stmt::Store(Store { lanes: 4, ..Store::new(c, vec![k.thread * 4], doubled) })];
        k
    };
    let out = build(4).run().unwrap();
    assert!((0..16).all(|i| out[1].get(i) == i as f64 + 5.0));
    let error = build(2).run().unwrap_err();
    assert_eq!(error.code(), Code::SimAlignment);
    assert_eq!(error.message(), "A[2] is a vector of 4 at element 2, not aligned to its size");
}

#[test]
fn out_of_bounds_is_named() {
    let mut k = Kernel::new(1, 40);
    let (a, c) = (k.param("A", 40), k.param("C", 40));
    k.func.body = vec![store(c, k.thread, load(a, k.thread + 1))];
    let error = k.run().unwrap_err();
    assert_eq!(error.code(), Code::SimBounds);
    assert_eq!(error.fault(), Fault::Bug);
    assert_eq!(error.message(), "A[40] is outside its shape [40]");
    assert!(error.context()[0].contains("C[tx] = A[tx + 1]"), "{error}");
    assert_eq!(error.context()[1], "with bx = 0, tx = 39");
    assert_eq!(error.context()[2], "by block (0, 0, 0), thread (39, 0, 0)");
}

#[test]
fn divergent_barriers_are_reported() {
    for (limit, words) in [(10, "lanes 0x000003ff of a warp"), (32, "warp 1 has ended")] {
        let mut k = Kernel::new(1, 64);
        let c = k.param("C", 64);
        k.func.body = vec![
            store(c, k.thread, Expr::constant(DType::F32, 0.0)),
            Stmt::If(If { cond: Cond::lt(k.thread, limit), body: vec![barrier()] }),
        ];
        let error = k.run().unwrap_err();
        assert_eq!(error.code(), Code::SimDivergence);
        assert!(error.message().contains(words), "{error}");
    }
}

#[test]
fn reads_before_writes_are_reported() {
    let mut k = Kernel::new(1, 32);
    let (c, s) = (k.param("C", 32), k.shared("S", DType::F32, 32, 0));
    k.func.body = vec![store(c, k.thread, load(s, k.thread))];
    let error = k.run().unwrap_err();
    assert_eq!(error.code(), Code::SimUninitialised);
    assert_eq!(error.message(), "S[0] is read, but nothing has written it");
    assert_eq!(error.context().last().unwrap(), "by block (0, 0, 0), thread (0, 0, 0)");
}

#[test]
fn unwritten_outputs_are_reported() {
    let mut k = Kernel::new(1, 32);
    let c = k.param("C", 64);
    k.func.body = vec![store(c, k.thread * 2, Expr::constant(DType::F32, 1.0))];
    let error = k.run().unwrap_err();
    assert_eq!(error.message(), "the program ended without writing C[1]");
}

#[test]
fn outputs_start_unwritten() {
    let mut k = Kernel::new(1, 32);
    let c = k.param("C", 32);
    let more = Expr::bin(BinOp::Add, load(c, k.thread), Expr::constant(DType::F32, 1.0));
    k.func.body = vec![store(c, k.thread, more)];
    assert_eq!(k.run().unwrap_err().code(), Code::SimUninitialised);
}

#[test]
fn runaway_programs_stop() {
    let mut func = gemm(64, 64, 64, DType::F32, te::Layout::NN);
    let mut options = Options::new(Mode::Real);
    options.limits.statements = 1000;
    let mut args = arrays(&func, 1);
    assert_eq!(run_func_with(&func, &options, &mut args).unwrap_err().code(), Code::SimLimit);
    assert_eq!(args[0].bytes.len(), 64 * 64 * 4, "arguments come back");
    // A loop without statements takes steps too.
    let v = func.add_var("forever");
    func.body = vec![Stmt::For(For::new(v, i64::MAX >> 2, LoopKind::Serial, Vec::new()))];
    assert_eq!(run_func_with(&func, &options, &mut args).unwrap_err().code(), Code::SimLimit);
    func.body = vec![Stmt::For(For::new(v, Index::Var(v) * i64::MAX, LoopKind::Serial, Vec::new()))];
    assert_eq!(run_func_with(&func, &options, &mut args).unwrap_err().code(), Code::SimUnbound);
}

#[test]
fn a_backwards_loop_ends_with_its_first_iteration() {
    for (backwards, last) in [(None, 3.0), (Some(0), 3.0), (Some(1), 0.0)] {
        let mut func = Func { name: "last".into(), ..Func::default() };
        let out = func.add_buffer(Buffer::new("O", DType::S32, vec![2.into()], Scope::Global));
        func.params.push(out);
        let i = func.add_var("i");
        let number = Expr::Index(DType::S32, Box::new(Index::Var(i)));
        // Every iteration overwrites the first element, and two of them the second.
        let body = [Index::Int(0), Index::Var(i).floordiv(2)].map(|at| store(out, at, number.clone()));
        let mut l = For::new(i, 4, LoopKind::Unrolled, vec![body[1].clone(), body[0].clone()]);
        l.code.backwards = backwards.map(Index::Int);
        func.body = vec![Stmt::For(l)];
        let mut args = [Array::zeros(DType::S32, &[2]).unwrap()];
        run_func(&func, Mode::Real, &mut args).unwrap();
        assert_eq!((args[0].get(0), args[0].get(1)), (last, if backwards == Some(1) { 2.0 } else { 3.0 }));
    }
}

#[test]
fn rasterized_walks_visit_each_pair_once_in_the_stated_order() {
    let mut func = Func { name: "walk".into(), ..Func::default() };
    let out = func.add_buffer(Buffer::new("O", DType::S32, vec![5.into(), 3.into()], Scope::Global));
    func.params.push(out);
    let [t, i, j] = ["t", "i", "j"].map(|n| func.add_var(n));
    let order = Expr::Index(DType::S32, Box::new(Index::Var(t)));
    let body = vec![Stmt::Store(Store::new(out, vec![i.into(), j.into()], order))];
    let mut l = For::new(t, 15, LoopKind::Serial, body);
    l.raster = Some(Raster { outer: i, outer_extent: 5.into(), inner: j, inner_extent: 3.into(), group: 2 });
    func.body = vec![Stmt::For(l)];
    let mut args = [Array::zeros(DType::S32, &[5, 3]).unwrap()];
    run_func(&func, Mode::Real, &mut args).unwrap();
    let got: Vec<f64> = (0..15).map(|e| args[0].get(e)).collect();
    assert_eq!(got, [0., 2., 4., 1., 3., 5., 6., 8., 10., 7., 9., 11., 12., 13., 14.]);
}

#[test]
fn the_ring_does_not_mind_order() {
    let func = gemm(9, 10, 70, DType::F16, te::Layout::NN);
    let first = naive_integers(&func, 3).unwrap();
    // The sum of products of the same data, by hand.
    let (a, b) = (&first[0], &first[1]);
    let dot = (0..70).rev().fold(0u32, |s, k| s.wrapping_add(a[70 + k].wrapping_mul(b[k * 10 + 2])));
    assert_eq!(first[2][10 + 2], dot);
    assert_ne!(naive_integers(&func, 4).unwrap()[2], first[2]);
}

#[test]
fn shared_memory_of_the_ring_knows_the_width_of_what_was_written() {
    let build = |read_as: DType| {
        let mut k = Kernel::new(1, 8);
        let (a, c) = (k.param("A", 8), k.param("C", 8));
        let (narrow, wide) = (k.shared("N", DType::F16, 16, 0), k.shared("W", DType::F32, 8, 0));
        let value = load(a, k.thread);
        k.func.body = vec![store(wide, k.thread, value), barrier()];
        let back =
            if read_as == DType::F32 { load(wide, k.thread) } else { Expr::cast(DType::F32, load(narrow, k.thread)) };
        k.func.body.push(store(c, k.thread, back));
        k.lowered()
    };
    let out = integers(&build(DType::F32), 1).unwrap();
    assert_eq!(out[0], out[1]);
    assert_eq!(integers(&build(DType::F16), 1).unwrap_err().code(), Code::SimUninitialised);
}

/// Runs a program with and without lanes: the same bits, whatever its loops do to each other.
fn lanes_change_nothing(func: &Func) -> Array {
    let run = |how: Sequence| {
        let mut args = arrays(func, 5);
        super::launch::sequential(func, &Options::new(Mode::Real), &mut args, how).map(|_| args)
    };
    let (with, without) = (run(Sequence::Lanes).unwrap(), run(Sequence::Single).unwrap());
    assert_eq!(with, without);
    with.into_iter().next_back().unwrap()
}

#[test]
fn lanes_are_taken_only_where_they_change_nothing() {
    // X[0] = 1; for i: X[a*i + b] = X[c*i + d] + 1, and the like, over one buffer: only some of them may run as lanes.
    for (a, b, c, d) in
        [(1, 1, 1, 0), (1, 0, 1, 1), (1, 0, 1, 0), (2, 1, 1, 0), (1, 1, 0, 0), (0, 3, 1, 0), (0, 3, 0, 3)]
    {
        let mut func = Func { name: "f".into(), ..Func::default() };
        let x = func.add_buffer(Buffer::new("X", DType::F32, vec![200.into()], Scope::Global));
        func.params.push(x);
        let [z, i] = ["z", "i"].map(|n| func.add_var(n));
        let one = Expr::Index(DType::F32, Box::new(z * 3));
        let plus = Expr::bin(BinOp::Add, load(x, i * c + d), Expr::constant(DType::F32, 1.0));
        func.body = vec![
            Stmt::For(For::new(z, 200, LoopKind::Serial, vec![store(x, z, one)])),
            Stmt::For(For::new(i, 70, LoopKind::Serial, vec![store(x, i * a + b, plus)])),
        ];
        lanes_change_nothing(&func);
    }
    for layout in [te::Layout::NN, te::Layout::TT] {
        lanes_change_nothing(&gemm(3, 40, 45, DType::F16, layout));
    }
    lanes_change_nothing(&te::window_sum(50).unwrap());
}

#[test]
fn the_machine_is_fast_enough() {
    let func = gemm(96, 96, 256, DType::F32, te::Layout::NN);
    let mut args = arrays(&func, 5);
    let rate = run_func(&func, Mode::Real, &mut args).unwrap().rate();
    // Other tests share the cores: a tenth of what the simulator promises alone and optimised.
    assert!(rate > 2e6, "{rate:.3e} statements a second");
    eprintln!("{rate:.3e} statements a second in sequence");
}

#[test]
fn arguments_are_checked() {
    let func = gemm(4, 5, 6, DType::F32, te::Layout::NN);
    let error = run_func(&func, Mode::Real, &mut arrays(&func, 1)[..2]).unwrap_err();
    assert_eq!(error.message(), "the program has 3 parameters, and 2 arguments were given");
    let mut args = arrays(&func, 1);
    args[1] = Array::zeros(DType::F16, &[6, 5]).unwrap();
    let error = run_func(&func, Mode::Real, &mut args).unwrap_err();
    assert_eq!(error.message(), "argument B must be 30 elements of f32 (120 bytes), but is 60 bytes of f16");
    assert_eq!(run_func(&func, Mode::Integer, &mut args).unwrap_err().code(), Code::SimArguments);
}

#[test]
fn enormous_programs_are_refused_at_once() {
    let func = gemm(1 << 17, 1 << 17, 8, DType::F32, te::Layout::NN);
    assert_eq!(naive_integers(&func, 1).unwrap_err().code(), Code::SimLimit);
    // What the program allocates counts too, and is not allocated first.
    let mixed = te::GemmSpec { a: DType::F16, b: DType::F16, ..te::GemmSpec::of(8, 8, 8, DType::F32, te::Layout::NN) };
    let mut func = te::gemm(&te::GemmSpec { out: DType::F16, ..mixed }).unwrap();
    let mut args = arrays(&func, 1);
    let acc = func.find_buffer("acc").unwrap();
    func.buffer_mut(acc).shape = vec![(1 << 19).into(), (1 << 19).into()];
    assert_eq!(run_func(&func, Mode::Real, &mut args).unwrap_err().code(), Code::SimLimit);
}
