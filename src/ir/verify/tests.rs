//! Every promise refused once with its message, the seeds' schedules accepted, and the safety rule on both sides.

use super::*;
use crate::dtype::DType;
use crate::ir::visit::{change_block, change_loop};
use crate::ir::{
    BinOp, BindMode, Cond, Expr, If, LoopKind, Pipeline, RoleId, Stmt, StorageAlign, Store, SyncKind, print,
};
use crate::schedule::{apply_all, parse};
use crate::te::{self, GemmSpec, Layout};

fn gemm(m: i64, n: i64, k: i64) -> Func {
    te::gemm(&GemmSpec::of(m, n, k, DType::F32, Layout::NN)).unwrap()
}

fn after(program: &Func, steps: &str) -> Func {
    apply_all(program, &parse(steps).unwrap()).unwrap_or_else(|e| panic!("{e}\n{}", e.source_text().unwrap_or("")))
}

fn accepted(func: &Func) {
    if let Err(e) = verify(func) {
        panic!("{e}\n{}", print::func(func));
    }
}

/// The message of the refusal; every label is in the printed program.
fn refused(func: &Func, code: &str) -> String {
    let e = verify(func).expect_err(&print::func(func));
    assert_eq!(e.code().to_string(), code, "{e}\n{}", print::func(func));
    for label in e.labels() {
        assert!(e.source_text().is_some_and(|t| t.get(label.span.clone()).is_some()), "{e}");
    }
    e.message().to_string()
}

fn var(func: &Func, name: &str) -> Var {
    func.find_loop(name).map(|l| l.var).unwrap_or_else(|| panic!("no loop {name}"))
}

fn bind(func: &mut Func, name: &str, axis: &str) {
    let v = var(func, name);
    let axis = Axis::parse(axis).unwrap();
    assert!(change_loop(&mut func.body, v, &mut |l| l.kind = LoopKind::bound(axis)));
}

fn on_block(func: &mut Func, name: &str, f: &mut dyn FnMut(&mut crate::ir::Block)) {
    let id = func.find_block(name).unwrap().name;
    assert!(change_block(&mut func.body, id, f));
}

#[test]
fn builders_hold_all_promises() {
    accepted(&te::vec_add(1000).unwrap());
    accepted(&te::window_sum(1024).unwrap());
    for layout in Layout::ALL {
        let spec =
            GemmSpec { a: DType::F16, b: DType::F16, out: DType::F16, ..GemmSpec::of(7, 9, 11, DType::F32, layout) };
        accepted(&te::gemm(&spec).unwrap());
        accepted(&te::batched_gemm(3, &spec).unwrap());
        accepted(&te::gemm_with(&spec, &[te::Epilogue::Bias, te::Epilogue::Relu]).unwrap());
    }
}

#[test]
fn identifiers_exist() {
    let mut f = te::vec_add(8).unwrap();
    f.params.push(BufferId(9));
    assert_eq!(refused(&f, "verify.id"), "buffer 9 does not exist in vec_add");
    let mut f = te::vec_add(8).unwrap();
    on_block(&mut f, "C", &mut |b| b.role = Some(RoleId(0)));
    assert_eq!(refused(&f, "verify.id"), "role 0 does not exist in vec_add");
    let mut f = te::vec_add(8).unwrap();
    on_block(&mut f, "C", &mut |b| b.iters[0].binding = Var(77).into());
    assert_eq!(refused(&f, "verify.id"), "variable 77 does not exist in vec_add");
}

#[test]
fn names_are_unique() {
    let mut f = te::vec_add(8).unwrap();
    f.buffers[1].name = "A".into();
    assert_eq!(refused(&f, "verify.name"), "two buffers are called A");
    let mut f = te::vec_add(8).unwrap();
    f.body.push(f.body[0].clone());
    assert_eq!(refused(&f, "verify.name"), "the variable i is introduced twice");
    let mut f = gemm(8, 8, 8);
    let j = var(&f, "j");
    f.vars[j.0 as usize] = "i".into();
    assert_eq!(refused(&f, "verify.name"), "two loops are called i");
}

#[test]
fn parameters_are_global() {
    let mut f = te::vec_add(8).unwrap();
    f.buffers[0].scope = Scope::Shared;
    assert_eq!(refused(&f, "verify.param"), "the parameter A is shared, but the caller passes global memory");
    let mut f = te::vec_add(8).unwrap();
    f.params.push(f.params[0]);
    assert_eq!(refused(&f, "verify.param"), "A is a parameter twice");
    f.buffers[0].shape[0] = Index::Int(0);
    assert_eq!(refused(&f, "verify.param"), "A has an extent of 0");
}

#[test]
fn lowered_pieces_are_refused() {
    let mut f = te::vec_add(8).unwrap();
    f.body.push(Stmt::Sync(SyncKind::Block.because(String::new())));
    assert_eq!(refused(&f, "verify.stage"), "synchronisation is allowed in Lowered programs only");
    let mut f = te::vec_add(8).unwrap();
    on_block(&mut f, "C", &mut |b| {
        if let Stmt::Store(s) = &mut b.body[0] {
            s.lanes = 4;
        }
    });
    assert_eq!(refused(&f, "verify.stage"), "an access of 4 lanes of C before it is lowered");
}

#[test]
fn variables_stay_in_scope() {
    let mut f = te::vec_add(8).unwrap();
    let i = var(&f, "i");
    let c = f.params[2];
    let value = Expr::constant(DType::F32, 0.0);
    let store = Stmt::Store(Store::new(c, vec![i.into()], value));
    on_block(&mut f, "C", &mut |b| b.body.push(store.clone()));
    assert_eq!(refused(&f, "verify.scope"), "i is used where it is not in scope");
    let mut f = te::vec_add(8).unwrap();
    f.body.push(store);
    assert_eq!(refused(&f, "verify.scope"), "i is used where it is not in scope");
}

#[test]
fn types_and_dimensions_agree() {
    let mut f = te::vec_add(8).unwrap();
    f.buffers[2].dtype = DType::F16;
    assert_eq!(refused(&f, "verify.type"), "a value of type f32 is stored to C, which is f16");
    let mut f = te::vec_add(8).unwrap();
    f.buffers[1].dtype = DType::F16;
    assert_eq!(refused(&f, "type.operand"), "in `A[vi] + B[vi]`: A[vi] is f32, but B[vi] is f16");
    let mut f = te::vec_add(8).unwrap();
    f.buffers[1].shape.push(Index::Int(2));
    assert_eq!(refused(&f, "verify.type"), "B has 2 dimensions, but 1 index");
}

#[test]
fn extents_are_positive() {
    let mut f = te::vec_add(8).unwrap();
    let i = var(&f, "i");
    change_loop(&mut f.body, i, &mut |l| l.extent = Index::Int(0));
    assert_eq!(refused(&f, "verify.extent"), "i has extent 0, not a positive constant");
}

#[test]
fn a_rasterized_loop_walks_its_pair_exactly() {
    let mut f = after(&gemm(64, 64, 8), "reorder i j k\nrasterize i j group=2 -> tile");
    accepted(&f);
    let tile = var(&f, "tile");
    change_loop(&mut f.body, tile, &mut |l| l.extent = Index::Int(4095));
    assert_eq!(refused(&f, "verify.extent"), "tile does not cover its pair of loops exactly");
}

#[test]
fn iterators_stay_in_their_domain_and_accesses_in_their_buffer() {
    let mut f = te::vec_add(10).unwrap();
    let i = var(&f, "i");
    on_block(&mut f, "C", &mut |b| b.iters[0].binding = i + 2);
    assert_eq!(refused(&f, "verify.domain"), "vi is 10 at i = 8, outside its domain 0..10");
    on_block(&mut f, "C", &mut |b| b.predicate = Cond::lt(i, 8));
    accepted(&f);
    f.buffers[0].shape[0] = Index::Int(9);
    assert_eq!(refused(&f, "verify.bounds"), "index i + 2 is 9 at i = 7, but dimension 0 of A has 9 elements");
}

#[test]
fn conditions_guard() {
    let mut f = te::window_sum(8).unwrap();
    f.buffers[0].shape[0] = Index::Int(9);
    assert!(refused(&f, "verify.bounds").starts_with("index i + 2 is 9 at i = 7"));
    on_block(&mut f, "C", &mut |b| {
        let cond = Cond::lt(b.iters[0].var, 7);
        b.body = vec![Stmt::If(If { cond, body: std::mem::take(&mut b.body) })];
    });
    accepted(&f);
}

/// The partial sums of a ragged split read beyond A somewhere in their domain, but never where they run.
#[test]
fn predicates_guard_accesses() {
    accepted(&after(&gemm(13, 7, 5), "split k ? 2 -> k0 k1\nrfactor C k1 -> P"));
}

#[test]
fn placements_exist() {
    let mut f = te::vec_add(8).unwrap();
    f.buffers[0].storage_align = Some(StorageAlign { dim: 1, factor: 32, offset: 8 });
    assert_eq!(refused(&f, "verify.placement"), "storage_align 1 32 8 does not exist for A");
    f.buffers[0].storage_align = None;
    f.buffers[0].swizzle = Some(48);
    assert_eq!(refused(&f, "verify.placement"), "swizzle 48 of A is not 16, 32, 64 or 128 bytes");
    f.buffers[0].swizzle = None;
    let i = var(&f, "i");
    change_loop(&mut f.body, i, &mut |l| l.kind = LoopKind::Bound { axis: Axis::Warp, mode: BindMode::Persistent });
    assert_eq!(refused(&f, "verify.placement"), "loop i: only a blockIdx loop is persistent");
    change_loop(&mut f.body, i, &mut |l| {
        l.kind = LoopKind::Serial;
        l.pipeline = Some(Pipeline { stages: 2, in_flight: 2 });
    });
    assert!(refused(&f, "verify.placement").starts_with("loop i: a pipeline has at least one stage"));
}

#[test]
fn axes_keep_their_levels_and_extents() {
    let mut f = gemm(8, 16, 4);
    bind(&mut f, "i", "threadIdx.x");
    bind(&mut f, "j", "blockIdx.x");
    accepted(&f);
    bind(&mut f, "j", "threadIdx.x");
    assert!(refused(&f, "verify.axis").starts_with("j is bound to threadIdx.x inside i, which is too, and writes C"));
    bind(&mut f, "i", "blockIdx.x");
    bind(&mut f, "j", "blockIdx.x");
    assert_eq!(refused(&f, "verify.axis"), "blockIdx.x is bound twice on one path");
    let mut f = gemm(8, 16, 4);
    bind(&mut f, "i", "threadIdx.x");
    bind(&mut f, "k", "blockIdx.x");
    assert_eq!(refused(&f, "verify.reduction"), "block C reduces over k, which is bound to blockIdx.x");
    let mut f = gemm(8, 16, 4);
    let k = var(&f, "k");
    change_loop(&mut f.body, k, &mut |l| l.kind = LoopKind::Vectorized);
    assert_eq!(refused(&f, "verify.reduction"), "block C reduces over k, which is vectorized");
}

/// The predicate is an equation between squares that the last block alone satisfies. The decision procedure does not find that solution, so
/// the elements of some blocks are enumerated.
#[test]
fn a_divided_sum_is_found_by_enumeration() {
    let sum = "program p\ninput A f32[2]\noutput C[x 262144, y 60000, j 3] f32 = sum(k 2) A[k]";
    let steps = "bind x blockIdx.x; bind y blockIdx.y; fuse j k -> f; split f ? 3 5 -> f0 f1 f2; split f2 ? 4 -> f3 f4";
    let mut f = after(&te::parse(sum).unwrap(), steps);
    let [x, y] = ["x", "y"].map(|name| var(&f, name) + 1);
    let squares = Cond::eq(x.clone() * x, y.clone() * y * 2 + ((1i64 << 36) - 2 * 60000 * 60000));
    on_block(&mut f, "C", &mut |b| b.predicate = b.predicate.clone().and(squares.clone()));
    bind(&mut f, "f3", "threadIdx.x");
    f.allow_tested = true;
    let message = refused(&f, "verify.reduction");
    assert!(message.contains("is divided between parallel iterations"), "{message}");
}

#[test]
fn a_block_loop_beside_statements_in_a_thread_loop_is_refused() {
    let mut f = after(&gemm(8, 16, 4), "cache_read C A shared -> A_s\ncompute_at A_s i");
    bind(&mut f, "i", "threadIdx.x");
    bind(&mut f, "j", "blockIdx.x");
    let message = "j selects the block, but is next to statements inside thread loop i";
    assert_eq!(refused(&f, "verify.levels"), message);
}

#[test]
fn what_a_warp_does_together_depends_on_no_thread() {
    let mut f = after(&gemm(8, 16, 4), "cache_write C C fragment -> acc; reverse_compute_at acc i -> e");
    accepted(&f);
    bind(&mut f, "e", "threadIdx.x");
    let together = "the lanes of a warp run block acc together, but it mentions thread loop e";
    assert_eq!(refused(&f, "verify.levels"), together);
    let mut f = gemm(8, 16, 4);
    bind(&mut f, "i", "warp");
    accepted(&f);
    bind(&mut f, "j", "threadIdx.x");
    let both = "block C mentions both warp loop i and thread loop j, which count the same threads";
    assert_eq!(refused(&f, "verify.levels"), both);
    // A loop of a single iteration tells nothing apart.
    let mut f = gemm(8, 1, 4);
    bind(&mut f, "i", "warp");
    bind(&mut f, "j", "threadIdx.x");
    accepted(&f);
}

#[test]
fn spread_needs_two_pipelines() {
    let mut f = after(&gemm(8, 16, 4), "cache_read C A shared -> A_s; compute_at A_s j; annotate i spread 1");
    let message =
        |lacks: &str| format!("loop i is to spread its copies over the steps of a pipelined loop inside, but {lacks}");
    assert_eq!(refused(&f, "verify.idle"), message("it is not pipelined"));
    let of = |f: &mut Func, name: &str| {
        let v = var(f, name);
        change_loop(&mut f.body, v, &mut |l| l.pipeline = Some(Pipeline { stages: 2, in_flight: 0 }));
    };
    of(&mut f, "i");
    assert_eq!(refused(&f, "verify.idle"), message("no loop inside it is pipelined"));
    of(&mut f, "j");
    accepted(&f);
}

#[test]
fn one_extent_for_an_axis_in_a_kernel() {
    let mut f = after(
        &te::window_sum(1024).unwrap(),
        "split i ? 128 -> i0 i1\ncache_read C A shared -> A_s\ncompute_at A_s i0 -> ax",
    );
    bind(&mut f, "i0", "blockIdx.x");
    bind(&mut f, "i1", "threadIdx.x");
    accepted(&f);
    bind(&mut f, "ax", "threadIdx.x");
    let message = "loops of 130 and 128 iterations are bound to threadIdx.x in one kernel";
    assert_eq!(refused(&f, "verify.threads"), message);
}

/// The MLC course's window sum: the stage is shared out among the threads again, inside their own loop.
#[test]
fn cooperative_stages_are_accepted_inside_the_thread_loop() {
    let mut f = after(&te::window_sum(1024).unwrap(), "split i ? 128 -> i0 i1\ncache_read C A shared -> A_s");
    bind(&mut f, "i0", "blockIdx.x");
    bind(&mut f, "i1", "threadIdx.x");
    let mut f = after(&f, "compute_at A_s i1 -> ax\nsplit ax ? 128 -> ax0 ax1");
    bind(&mut f, "ax1", "threadIdx.x");
    accepted(&f);
    // A stage of the thread's own elements is not cooperative.
    let i1 = var(&f, "i1");
    on_block(&mut f, "A_s", &mut |b| b.predicate = b.predicate.clone().and(Cond::ge(i1, 0)));
    let message = "ax1 is bound to threadIdx.x inside i1, but its staged buffer depends on i1";
    assert_eq!(refused(&f, "verify.axis"), message);
}

#[test]
fn the_safety_rule() {
    // A stage in a nest of its own: fine in global memory, lost in any other.
    let program = te::window_sum(1024).unwrap();
    accepted(&after(&program, "cache_read C A global -> T"));
    let f = after(&program, "cache_read C A shared -> T");
    assert_eq!(refused(&f, "verify.safety"), "T is shared memory, written in one kernel and read in another");

    // The stage of a block, in memory of the block and of the thread.
    let mut f = after(
        &program,
        "split i ? 128 -> i0 i1\ncache_read C A shared -> T\ncompute_at T i0 -> ax\nsplit ax ? 128 -> a0 a1",
    );
    for (name, axis) in [("i0", "blockIdx.x"), ("i1", "threadIdx.x"), ("a1", "threadIdx.x")] {
        bind(&mut f, name, axis);
    }
    accepted(&f);
    let t = f.find_buffer("T").unwrap();
    f.buffer_mut(t).scope = Scope::Local;
    let message = refused(&f, "verify.safety");
    assert!(message.starts_with("T is local memory: each thread has its own copy, but the unit at i0 = "), "{message}");
    f.buffer_mut(t).scope = Scope::Global;
    refused(&f, "verify.overlap");
    // Each block makes one stripe only, but all are read.
    on_block(&mut f, "C", &mut |b| {
        if let [Stmt::Store(s)] = b.body.as_mut_slice() {
            let far = Expr::load(t, vec![Index::Int(0)]);
            s.value = Expr::bin(BinOp::Add, s.value.clone(), far);
        }
    });
    let message = refused(&f, "verify.safety");
    assert!(
        message.starts_with("T is global memory: the blocks of a kernel cannot pass values to each other"),
        "{message}"
    );
}

#[test]
fn blocks_write_elements_of_their_own() {
    let f =
        after(&te::window_sum(64).unwrap(), "split i ? 8 -> i0 i1\ncache_read C A global -> T\ncompute_at T i0 -> ax");
    let mut halo = f.clone();
    bind(&mut halo, "i0", "blockIdx.x");
    assert_eq!(
        refused(&halo, "verify.overlap"),
        "T is global memory, which no order of the blocks protects, and the blocks at i0 = 0 and at i0 = 1 both write T[8]"
    );
    let t = halo.find_buffer("T").unwrap();
    halo.buffer_mut(t).scope = Scope::Shared;
    accepted(&halo);
    // All blocks write what is beside the loop that tells them apart.
    let mut beside = f.clone();
    bind(&mut beside, "i1", "blockIdx.x");
    assert!(refused(&beside, "verify.overlap").contains("the blocks at i1 = 0 and at i1 = 1 both write T[0]"));
    // Boxes that no single index tells apart, but a grid.
    let mut fused =
        after(&gemm(64, 64, 4), "split i ? 8 -> i0 i1\nsplit j ? 8 -> j0 j1\nreorder i0 j0 i1 j1\nfuse i0 j0 -> f");
    bind(&mut fused, "f", "blockIdx.x");
    accepted(&fused);
}

#[test]
fn private_accumulators_are_safe_and_foreign_ones_are_not() {
    let mut f = after(&gemm(64, 64, 16), "cache_write C C local -> C_l");
    refused(&f, "verify.safety");
    f = after(&f, "reverse_compute_at C_l j");
    bind(&mut f, "i", "blockIdx.x");
    bind(&mut f, "j", "threadIdx.x");
    accepted(&f);
    // The copy of a whole row by every thread reads what others summed.
    let mut f = after(&gemm(64, 64, 16), "cache_write C C local -> C_l\nreverse_compute_at C_l i");
    bind(&mut f, "i", "blockIdx.x");
    accepted(&f);
    bind(&mut f, "j", "threadIdx.x");
    let message = refused(&f, "verify.safety");
    assert!(message.starts_with("C_l is local memory: each thread has its own copy"), "{message}");
    // Bound to the same axis, the copying loop hands each thread its own element.
    let copy = crate::ir::visit::loops(&f.body).iter().rfind(|l| f.var_name(l.var) != "k").map(|l| l.var).unwrap();
    let name = f.var_name(copy).to_string();
    bind(&mut f, &name, "threadIdx.x");
    accepted(&f);
}

/// Seed 108330: what a block writes over all iterations covers what it reads in each, but other blocks write it first.
#[test]
fn a_unit_writes_before_it_reads() {
    let stage = "split i ? 5 -> i0 i1\nreorder i1 i0\nsplit i0 4 ? -> a b\ncache_read C A shared -> A_s
        compute_at A_s i1 -> s\nsplit s ? 2 2 -> s0 s1 s2";
    let mut f = after(&te::window_sum(21).unwrap(), stage);
    bind(&mut f, "b", "blockIdx.z");
    accepted(&f);
    bind(&mut f, "s1", "blockIdx.z");
    assert_eq!(
        refused(&f, "verify.safety"),
        "A_s is shared memory: each block has its own copy, but the unit at s1 = 0 reads A_s[2] at i1 = 0 and has not \
         written it by then"
    );
    // Threads go through the iterations next to each other and meet between what they write and what they read.
    bind(&mut f, "b", "threadIdx.x");
    bind(&mut f, "s1", "threadIdx.x");
    accepted(&f);
    // The thread's own copy is as incomplete as the block's.
    let stage = f.find_buffer("A_s").unwrap();
    f.buffer_mut(stage).scope = Scope::Local;
    assert!(refused(&f, "verify.safety").contains("A_s[2] at i1 = 0 and has not written it by then"));
    // What the iterations before have written is there, what the next one writes is not.
    let chain = "program chain\ninput A f32[9]\nT: T[i 9] f32 = A[i]\nU: output U[i 9] f32 = T[i] * 2";
    let mut chain = after(&te::parse(chain).unwrap(), "set_scope T shared\nreverse_compute_at U i");
    let t = chain.find_buffer("T").unwrap();
    let reads = |f: &mut Func, by: i64| {
        on_block(f, "U", &mut |b| {
            let at = (Index::from(b.iters[0].var) + by).max(Index::Int(0)).min(Index::Int(8));
            if let [Stmt::Store(s)] = b.body.as_mut_slice() {
                s.value = Expr::load(t, vec![at]);
            }
        });
    };
    reads(&mut chain, -1);
    accepted(&chain);
    reads(&mut chain, 1);
    assert!(refused(&chain, "verify.safety").contains("reads T[1] at i = 0 and has not written it by then"));
}

/// Every example, complete as it is written.
#[test]
fn examples_hold_all_promises() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|e| e != "loom") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let schedule = crate::loom::Schedule::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let func = schedule.scheduled().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        if let Err(e) = verify(&func) {
            panic!("{}: {e}\n{}", path.display(), print::func(&func));
        }
        count += 1;
    }
    assert!(count > 10);
}
