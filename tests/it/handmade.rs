//! Lowered kernels written by hand, for tests of what comes after lowering.

use warploom::DType;
use warploom::ir::{
    Axis, BinOp, Block, Buffer, BufferId, Cond, Expr, For, Func, If, Index, LoopKind, Scope, Stmt, Store, SyncKind, Var,
};
use warploom::lower::{LaunchAxis, Lowered, LoweredKernel};

/// A kernel in the making.
pub struct Make {
    kernel: LoweredKernel,
}

impl Make {
    pub fn new(name: &str) -> Make {
        let func = Func { name: name.to_string(), ..Func::default() };
        Make { kernel: LoweredKernel::new(func) }
    }

    pub fn axis(&mut self, axis: Axis, extent: u32) -> Var {
        let var = self.kernel.func.add_var(axis.name());
        self.kernel.launch.push(LaunchAxis::new(axis, var, extent));
        var
    }

    pub fn var(&mut self, name: &str) -> Var {
        self.kernel.func.add_var(name)
    }

    pub fn param(&mut self, name: &str, dtype: DType, elements: i64) -> BufferId {
        let id = self.kernel.func.add_buffer(Buffer::new(name, dtype, vec![Index::Int(elements)], Scope::Global));
        self.kernel.func.params.push(id);
        id
    }

    pub fn shared(&mut self, name: &str, dtype: DType, elements: i64) -> BufferId {
        let mut buffer = Buffer::new(name, dtype, vec![Index::Int(elements)], Scope::Shared);
        buffer.offset = Some(self.kernel.shared_bytes);
        self.kernel.shared_bytes += dtype.bytes_of(elements as u64).next_multiple_of(16) as u32;
        self.kernel.func.add_buffer(buffer)
    }

    pub fn local(&mut self, name: &str, dtype: DType, elements: i64) -> BufferId {
        self.kernel.func.add_buffer(Buffer::new(name, dtype, vec![Index::Int(elements)], Scope::Local))
    }

    pub fn block(&mut self, name: &str, body: Vec<Stmt>) -> Stmt {
        let name = self.kernel.func.add_block(name);
        Stmt::Block(Block { name, iters: vec![], predicate: Cond::TRUE, init: None, body, copy_with: None, role: None })
    }

    pub fn min_blocks(&mut self, blocks: u32) {
        self.kernel.min_blocks = Some(blocks);
    }

    /// The program of this one kernel.
    pub fn done(mut self, body: Vec<Stmt>) -> Lowered {
        self.kernel.func.body = body;
        let func = &self.kernel.func;
        let params = func.params.iter().map(|p| func.buffer(*p).name.clone()).collect();
        Lowered::new(func.name.clone(), params, vec![self.kernel])
    }
}

/// A loop whose body holds so many iterations.
pub fn serial(var: Var, extent: i64, copies: u32, body: Vec<Stmt>) -> Stmt {
    let mut l = For::new(var, extent, LoopKind::Serial, body);
    l.code.copies = Some(copies);
    Stmt::For(l)
}

pub fn unrolled(var: Var, extent: i64, body: Vec<Stmt>) -> Stmt {
    Stmt::For(For::new(var, extent, LoopKind::Unrolled, body))
}

pub fn load(buffer: BufferId, index: impl Into<Index>) -> Expr {
    load_lanes(buffer, index, 1)
}

pub fn load_lanes(buffer: BufferId, index: impl Into<Index>, lanes: u32) -> Expr {
    Expr::Load { buffer, indices: vec![index.into()], lanes }
}

pub fn store(buffer: BufferId, index: impl Into<Index>, value: Expr) -> Stmt {
    store_lanes(buffer, index, value, 1)
}

pub fn store_lanes(buffer: BufferId, index: impl Into<Index>, value: Expr, lanes: u32) -> Stmt {
    Stmt::Store(Store { lanes, ..Store::new(buffer, vec![index.into()], value) })
}

pub fn guarded(cond: Cond, body: Vec<Stmt>) -> Stmt {
    Stmt::If(If { cond, body })
}

pub fn barrier() -> Stmt {
    Stmt::Sync(SyncKind::Block.because("a test"))
}

/// `a * b + c`.
pub fn multiply_add(a: Expr, b: Expr, c: Expr) -> Expr {
    Expr::bin(BinOp::Add, Expr::bin(BinOp::Mul, a, b), c)
}

/// C = A + B over 1000 elements, guarded.
pub fn vec_add() -> Lowered {
    let mut k = Make::new("vec_add");
    let (bx, tx) = (k.axis(Axis::BlockX, 8), k.axis(Axis::ThreadX, 128));
    let [a, b, c] = ["A", "B", "C"].map(|n| k.param(n, DType::F32, 1000));
    let i = bx * 128 + tx;
    let sum = Expr::bin(BinOp::Add, load(a, i.clone()), load(b, i.clone()));
    let body = k.block("C", vec![store(c, i.clone(), sum)]);
    k.done(vec![guarded(Cond::lt(i, 1000), vec![body])])
}

/// B = A over f16, eight elements at a time.
pub fn copy() -> Lowered {
    let mut k = Make::new("copy");
    let (bx, tx) = (k.axis(Axis::BlockX, 64), k.axis(Axis::ThreadX, 256));
    let [a, b] = ["A", "B"].map(|n| k.param(n, DType::F16, 64 * 256 * 8));
    let i = bx * 2048 + tx * 8;
    k.done(vec![store_lanes(b, i.clone(), load_lanes(a, i, 8), 8)])
}

/// C = A * B, one element a thread, summed in device memory.
pub fn naive_gemm() -> Lowered {
    let mut k = Make::new("naive_gemm");
    let (bx, by) = (k.axis(Axis::BlockX, 64), k.axis(Axis::BlockY, 32));
    let (tx, ty) = (k.axis(Axis::ThreadX, 16), k.axis(Axis::ThreadY, 16));
    let kk = k.var("k");
    let a = k.param("A", DType::F32, 512 * 2048);
    let b = k.param("B", DType::F32, 2048 * 1024);
    let c = k.param("C", DType::F32, 512 * 1024);
    let (i, j) = (by * 16 + ty, bx * 16 + tx);
    let at = i.clone() * 1024 + j.clone();
    let update = multiply_add(load(a, i * 2048 + Index::Var(kk)), load(b, kk * 1024 + j), load(c, at.clone()));
    let init = k.block("C_init", vec![store(c, at.clone(), Expr::constant(DType::F32, 0.0))]);
    let update = k.block("C_update", vec![store(c, at, update)]);
    k.done(vec![init, serial(kk, 2048, 8, vec![update])])
}

/// C = A * B with `r` x `r` accumulators a thread, tiles of 16 `r` rows and columns and 16 steps of k in shared memory.
pub fn tiled_gemm(name: &str, dtype: DType, r: i64) -> Lowered {
    let mut k = Make::new(name);
    let (m, n, depth, tile) = (1024, 1024, 2048, 16 * r);
    let (bx, by) = (k.axis(Axis::BlockX, (n / tile) as u32), k.axis(Axis::BlockY, (m / tile) as u32));
    let (tx, ty) = (k.axis(Axis::ThreadX, 16), k.axis(Axis::ThreadY, 16));
    let [k0, k1, i, j, f] = ["k0", "k1", "i", "j", "f"].map(|n| k.var(n));
    let (a, b) = (k.param("A", dtype, m * depth), k.param("B", dtype, depth * n));
    let c = k.param("C", DType::F32, m * n);
    let (a_s, b_s) = (k.shared("A_s", dtype, tile * 16), k.shared("B_s", dtype, 16 * tile));
    let acc = k.local("acc", DType::F32, r * r);
    k.min_blocks(1);
    let element = i * r + Index::Var(j);
    let zero = k.block("acc_init", vec![store(acc, element.clone(), Expr::constant(DType::F32, 0.0))]);
    // Four elements a thread at a time; chunk e of a tile.
    let chunk = (ty * 16 + tx) * 4 + f * 1024;
    let from_a = (by * tile + chunk.clone().floordiv(16)) * depth + k0 * 16 + chunk.clone().floormod(16);
    let from_b = (k0 * 16 + chunk.clone().floordiv(tile)) * n + bx * tile + chunk.clone().floormod(tile);
    let fill = |s, g, from| unrolled(f, r / 4, vec![store_lanes(s, chunk.clone(), load_lanes(g, from, 4), 4)]);
    let wide = |e| if dtype == DType::F32 { e } else { Expr::cast(DType::F32, e) };
    let update = multiply_add(
        wide(load(a_s, (ty * r + Index::Var(i)) * 16 + Index::Var(k1))),
        wide(load(b_s, k1 * tile + tx * r + Index::Var(j))),
        load(acc, element.clone()),
    );
    let fill_a = k.block("A_s", vec![fill(a_s, a, from_a)]);
    let fill_b = k.block("B_s", vec![fill(b_s, b, from_b)]);
    let update = k.block("acc_update", vec![store(acc, element.clone(), update)]);
    let product = serial(k1, 16, 16, vec![unrolled(i, r, vec![unrolled(j, r, vec![update])])]);
    let to = (by * tile + ty * r + Index::Var(i)) * n + bx * tile + tx * r + f * 4;
    let out = store_lanes(c, to, load_lanes(acc, i * r + f * 4, 4), 4);
    let out = k.block("C", vec![out]);
    k.done(vec![
        unrolled(i, r, vec![unrolled(j, r, vec![zero])]),
        serial(k0, depth / 16, 1, vec![barrier(), fill_a, fill_b, barrier(), product]),
        unrolled(i, r, vec![unrolled(f, r / 4, vec![out])]),
    ])
}

/// All of them.
pub fn all() -> Vec<Lowered> {
    vec![
        vec_add(),
        copy(),
        naive_gemm(),
        tiled_gemm("tiled_gemm_f32", DType::F32, 4),
        tiled_gemm("large_gemm_f32", DType::F32, 8),
        tiled_gemm("tiled_gemm_f16", DType::F16, 4),
        tiled_gemm("tiled_gemm_bf16", DType::Bf16, 4),
    ]
}
