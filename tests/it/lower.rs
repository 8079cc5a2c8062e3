//! What the passes make of small programs: what is compacted, how wide accesses become, where barriers stand and why.

use warploom::ir::{Stmt, SyncKind, visit};
use warploom::loom::Schedule;
use warploom::lower::{self, LoweredKernel};
use warploom::sim;

/// Lowers a program of one kernel, which must give the bits of the naive program.
pub fn lowered(text: &str) -> LoweredKernel {
    let schedule = Schedule::parse(text).unwrap();
    let func = schedule.scheduled().unwrap();
    let mut lowered = lower::lower(&func, &schedule.target).unwrap();
    let naive = sim::naive_integers(&schedule.program, 7).unwrap();
    assert_eq!(sim::integers(&lowered, 7).unwrap(), naive, "{}", lower::print(&lowered));
    assert_eq!(lowered.kernels.len(), 1);
    lowered.kernels.remove(0)
}

/// The code of the error that a program is refused with.
pub fn refused(text: &str) -> String {
    let schedule = Schedule::parse(text).unwrap();
    let func = match schedule.scheduled() {
        Ok(f) => f,
        Err(e) => return e.code().to_string(),
    };
    lower::lower(&func, &schedule.target).unwrap_err().code().to_string()
}

/// The synchronisation of a kernel in the order of its text, with the reasons.
pub fn syncs(kernel: &LoweredKernel) -> Vec<String> {
    let mut out = Vec::new();
    visit::walk(&kernel.func.body, &mut |s| {
        if let Stmt::Sync(sync) = s {
            out.push(match &sync.kind {
                SyncKind::Block => format!("block: {}", sync.reason),
                SyncKind::Warp => format!("warp: {}", sync.reason),
                SyncKind::Commit => format!("commit: {}", sync.reason),
                SyncKind::Wait { groups } => format!("wait {groups}: {}", sync.reason),
                other => format!("{}: {}", other.word(), sync.reason),
            });
        }
    });
    out
}

/// How many elements each store writes, in the order of the text.
pub fn lanes(kernel: &LoweredKernel) -> Vec<u32> {
    let mut out = Vec::new();
    visit::walk(&kernel.func.body, &mut |s| {
        if let Stmt::Store(s) = s {
            out.push(s.lanes);
        }
    });
    out
}

fn elements(kernel: &LoweredKernel, name: &str) -> i64 {
    kernel.func.buffer(kernel.func.find_buffer(name).unwrap()).elements().unwrap()
}

const WINDOW: &str = "window_sum 1024
target sm_80
split i ? 128 -> i0 i1
bind i0 blockIdx.x
bind i1 threadIdx.x
cache_read C A shared -> A_shared
compute_at A_shared i1 -> ax
";

#[test]
fn a_cooperative_stage_is_compacted_and_has_one_barrier() {
    let k = lowered(&format!("{WINDOW}split ax ? 128 -> ax0 ax1\nbind ax1 threadIdx.x\n"));
    assert_eq!(elements(&k, "A_shared"), 130);
    assert_eq!(k.shared_bytes, 520);
    assert_eq!((k.grid(), k.block()), ([8, 1, 1], [128, 1, 1]));
    assert_eq!(syncs(&k), ["block: RAW A_shared: C reads what A_shared wrote"]);
    assert!(lower::print_kernel(&k).contains("if ax0*128 + threadIdx.x < 130"));
}

#[test]
fn a_stage_without_bound_loops_runs_on_one_thread() {
    let k = lowered(WINDOW);
    assert!(lower::print_kernel(&k).contains("if threadIdx.x == 0"), "{}", lower::print_kernel(&k));
}

/// A tiled product with both operands in shared memory.
pub const GEMM: &str = "gemm 64x64x64 f32 NN
target sm_80
cache_write C C local -> C_l
split i ? 8 4 -> i0 i1 i2
split j ? 8 4 -> j0 j1 j2
split k ? 8 -> k0 k1
reorder i0 j0 i1 j1 k0 k1 i2 j2
bind i0 blockIdx.y
bind j0 blockIdx.x
fuse i1 j1 -> t
bind t threadIdx.x
reverse_compute_at C_l t -> w0 w1
cache_read C A shared -> A_s
compute_at A_s k0 -> a0 a1
fuse a0 a1 -> a
split a ? 64 4 -> a2 a3 a4
vectorize a4
bind a3 threadIdx.x
cache_read C B shared -> B_s
compute_at B_s k0 -> b0 b1
fuse b0 b1 -> b
split b ? 64 4 -> b2 b3 b4
vectorize b4
bind b3 threadIdx.x
decompose_reduction C k0
";

#[test]
fn a_tiled_gemm_has_two_barriers_vector_copies_and_registers() {
    let k = lowered(&format!("{GEMM}vectorize w1\n"));
    let sizes = ["A_s", "B_s", "C_l"].map(|b| elements(&k, b));
    assert_eq!(sizes, [32 * 8, 8 * 32, 16]);
    assert_eq!(
        syncs(&k),
        ["block: WAR B_s: B_s writes what C read in the iteration before", "block: RAW B_s: C reads what B_s wrote"]
    );
    assert_eq!(lanes(&k), [1, 4, 4, 1, 4]);
}

#[test]
fn a_padded_row_narrows_the_vectors_that_alignment_proves() {
    let k = lowered(&format!("{GEMM}storage_align A_s 0 8 2\n"));
    assert_eq!(elements(&k, "A_s"), 31 * 10 + 8);
    // Rows of 10 elements: every second one starts at a multiple of 2 only.
    assert_eq!(lanes(&k)[1], 2);
}

#[test]
fn ragged_sizes_keep_their_predicates() {
    let text = GEMM.replace("64x64x64", "61x67x13");
    let k = lowered(&text);
    assert!(lower::print_kernel(&k).contains("< 61"), "{}", lower::print_kernel(&k));
}

/// Neighbouring threads of a warp swap what they read.
pub const NEIGHBOURS: &str = "program swap
  input A f32[256]
  S: S[i 256] f32 = A[i]
  B: output B[i 256] f32 = S[i // 2 * 2 + (1 - i % 2)]
target sm_80
set_scope S shared
split B_i ? 128 -> x t
bind x blockIdx.x
bind t threadIdx.x
compute_at S x -> s
bind s threadIdx.x
";

/// Threads of a block turn what they read around, through global memory.
pub const TURNED: &str = "program turned
  input A f32[512]
  T: T[i 512] f32 = A[i] * 3
  B: output B[i 512] f32 = T[i // 256 * 256 + (255 - i % 256)]
target sm_80
split B_i ? 256 -> x t
bind x blockIdx.x
compute_at T x -> tt
bind t threadIdx.x; bind tt threadIdx.x
";

/// Two shared stages, of which the first is dead when the second is filled.
pub const TWICE: &str = "program twice
  input A f64[1024]
  S: S[i 1024] f64 = A[i]
  M: M[i 1024] f64 = S[1023 - i] + 1
  T: T[i 1024] f64 = M[i] * 3
  B: output B[i 1024] f64 = T[1023 - i]
target sm_80
set_scope S shared; set_scope M local; set_scope T shared
split B_i ? 1024 -> x t
bind x blockIdx.x
compute_at T x -> tt; compute_at M x -> mm; compute_at S x -> ss
bind t threadIdx.x; bind tt threadIdx.x; bind mm threadIdx.x; bind ss threadIdx.x
";

#[test]
fn values_of_one_thread_need_no_barrier() {
    let k = lowered(
        "program own
  input A f32[256]
  S: S[i 256] f32 = A[i]
  B: output B[i 256] f32 = S[i] * 2
target sm_80
set_scope S shared
split B_i ? 128 -> x t
bind x blockIdx.x
bind t threadIdx.x
compute_at S x -> s
bind s threadIdx.x
",
    );
    assert_eq!(syncs(&k), Vec::<String>::new());
}

#[test]
fn neighbours_in_a_warp_need_a_barrier_of_the_warp_only() {
    let k = lowered(NEIGHBOURS);
    assert_eq!(syncs(&k), ["warp: RAW S: B reads what S wrote"]);
}

const SUMS: &str = "program sums
input A f32[10, 4]
X: X[i 10] f32 = sum(k 4) A[i, k]
Y: output Y[i 8] f32 = X[i] + X[i + 1] + X[i + 2]
target sm_80
set_scope X shared
compute_at X Y_i -> x
";

#[test]
fn threads_that_meet_in_different_iterations_are_ordered() {
    let barriers = ["warp: WAR X: X writes what Y read in the iteration before", "warp: RAW X: Y reads what X wrote"];
    assert_eq!(syncs(&lowered(&format!("{SUMS}bind x threadIdx.x"))), barriers);
}

#[test]
fn threads_that_do_the_same_at_once_are_refused() {
    let stage = "cache_read C A shared -> S; compute_at S i -> x";
    let program = "window_sum 8\ntarget sm_80\n";
    assert_eq!(refused(&format!("{program}{stage}; bind i threadIdx.x; bind x threadIdx.y")), "lower.race");
    // Bound before, the threads of i fill the stage together.
    let together = lowered(&format!("{program}bind i threadIdx.x; {stage}; bind x threadIdx.y"));
    assert_eq!(syncs(&together), ["block: RAW S: C reads what S wrote"]);
}

#[test]
fn two_stages_that_do_not_live_together_share_bytes() {
    let k = lowered(TWICE);
    // S is dead once M is in registers, so T takes its bytes, behind a barrier.
    assert_eq!(k.shared_bytes, 8192);
    assert_eq!(syncs(&k).len(), 3, "{}", lower::print_kernel(&k));
    // As many small blocks as a multiprocessor takes have room for both: bytes of its own save T the barrier.
    let k = lowered(&TWICE.replace("1024", "256").replace("1023", "255").replace("f64", "f32"));
    assert_eq!(k.shared_bytes, 2048);
    assert_eq!(syncs(&k).len(), 2, "{}", lower::print_kernel(&k));
}

/// A sum of so many arrays, each of which a role of its own fetches.
fn roles(count: usize) -> String {
    let each = |of: &dyn Fn(usize) -> String, between: &str| (0..count).map(of).collect::<Vec<_>>().join(between);
    format!(
        "program p\n{}\nC: output C[i 4096] f32 = {}\ntarget sm_80\nsplit i ? 8 128 -> i0 it i1\nbind i0 blockIdx.x; \
         bind i1 threadIdx.x\n{}\npipeline it stages=2\n",
        each(&|n| format!("input A{n} f32[4096]"), "; "),
        each(&|n| format!("A{n}[i]"), " + "),
        each(
            &|n| {
                format!(
                    "cache_read C A{n} shared -> S{n}; compute_at S{n} it -> x{n}; specialize S{n} -> r{n} warps=1\n\
                     split x{n} ? 32 -> y{n} z{n}; bind z{n} threadIdx.x"
                )
            },
            "\n"
        ),
    )
}

/// Any loop of the kernel names it, and several steps may state values of one kernel.
#[test]
fn resident_blocks_are_the_kernels() {
    let steps = "vec_add 1024\ntarget sm_80\nsplit i ? 128 -> i0 i1\nbind i0 blockIdx.x; bind i1 threadIdx.x\n";
    assert_eq!(lowered(steps).min_blocks, None);
    assert_eq!(lowered(&format!("{steps}launch i1 min_blocks=3")).min_blocks, Some(3));
    let steps = steps.replace("sm_80", "sm_90");
    let two = lowered(&format!("{steps}launch i0 min_blocks=2; launch i1 l2_prefetch=1"));
    assert_eq!((two.min_blocks, two.l2_prefetch), (Some(2), true));
}

#[test]
fn what_cannot_be_lowered_is_named() {
    let over = "gemm 64x64x64 f32 NN\ntarget sm_80\nsplit i ? 64 -> a b\nsplit j ? 64 -> c d\nreorder a c b d k\n\
                bind a blockIdx.x\nbind b threadIdx.x\nbind d threadIdx.y\n";
    assert_eq!(refused(over), "admit.threads");
    let row =
        "program p\ninput A s4[4, 7]\nC: output C[i 4, j 7] s32 = s32(A[i, j])\ntarget sm_80\nbind i blockIdx.x\n";
    assert_eq!(refused(row), "admit.row");
    let byte =
        "program p\ninput A s32[4, 8]\nC: output C[i 4, j 8] s4 = s4(A[i, j])\ntarget sm_80\nbind i blockIdx.x\n";
    assert_eq!(refused(byte), "admit.byte");
    let whole = format!("{byte}vectorize j");
    lowered(&whole);
    let big = "gemm 4096x4096x4096 f32 NN\ntarget sm_80\nbind i blockIdx.x\ncache_read C A shared -> A_s\ncompute_at A_s i\n\
               cache_read C B shared -> B_s\ncompute_at B_s i\n";
    assert_eq!(refused(big), "admit.shared");
    assert_eq!(refused(&roles(7)), "admit.roles");
    warploom::compile(&Schedule::parse(&roles(6)).unwrap()).unwrap();
    let limited = "gemm 8x6x4 f32 NN\ntarget sm_80\ncache_write C C local -> C_l\nreverse_compute_at C_l i\nannotate j unroll_limit 3";
    assert_eq!(refused(limited), "lower.unroll_limit");
}

#[test]
fn what_threads_pass_through_global_memory_is_named() {
    let k = lowered(TURNED);
    let names: Vec<&str> = k.exchanged.iter().map(|b| k.func.buffer(*b).name.as_str()).collect();
    assert_eq!(names, ["T"]);
    assert_eq!(syncs(&k), ["block: RAW T: B reads what T wrote"]);
}

#[test]
fn a_pipelined_loop_loads_ahead_and_keeps_one_barrier_an_iteration() {
    let k = lowered(&format!("{GEMM}pipeline k0 stages=2\n"));
    assert_eq!([elements(&k, "A_s"), elements(&k, "B_s")], [2 * 32 * 8, 2 * 8 * 32]);
    assert_eq!(
        syncs(&k),
        ["block: RAW B_s: C reads what B_s wrote in the iteration before", "block: RAW B_s: C reads what B_s wrote"]
    );
}

#[test]
fn pipelines_of_every_depth_give_the_naive_result() {
    // K of 13 tiles, of less than the depth, of one tile, and ragged.
    for size in ["64x64x104", "64x64x16", "64x64x8", "61x67x45"] {
        for stages in 2..=4 {
            lowered(&format!("{}pipeline k0 stages={stages}\n", GEMM.replace("64x64x64", size)));
        }
    }
}

const WALKED: &str = "gemm 80x56x16 f32 NN
target sm_80
cache_write C C local -> C_l
split i ? 16 -> i0 i1
split j ? 8 -> j0 j1
reorder i0 j0 i1 j1 k
";

#[test]
fn a_walk_of_the_blocks_is_computed_once_by_constant_divisors() {
    let walk = |group: i64| {
        let k = lowered(&format!(
            "{WALKED}rasterize i0 j0 group={group} -> t\nbind t blockIdx.x; bind i1 threadIdx.y; bind j1 threadIdx.x\n\
             reverse_compute_at C_l j1\n"
        ));
        assert_eq!(k.grid(), [35, 1, 1]);
        let text = lower::print_kernel(&k);
        // Row and column are known to lie inside: no guard is left.
        assert!(!text.contains("if i0") && text.contains("A[i0*256 + threadIdx.y*16 + k]"), "{text}");
        lower::print_derived(&k)
    };
    assert_eq!(walk(1), "# i0 = blockIdx.x // 7, in 0..5\n# j0 = blockIdx.x % 7, in 0..7\n");
    assert_eq!(walk(5), "# i0 = blockIdx.x % 5, in 0..5\n# j0 = blockIdx.x // 5, in 0..7\n");
    // The last group has two rows.
    assert_eq!(
        walk(3),
        "# i0 = min(blockIdx.x, 21) // 21*3 + min(blockIdx.x, 21) % 3 + max(blockIdx.x - 21, 0) % 2, in 0..5\n\
         # j0 = min(blockIdx.x, 21) % 21 // 3 + max(blockIdx.x - 21, 0) // 2, in 0..7\n"
    );
}

#[test]
fn walks_inside_a_block_are_written_out() {
    let serial = format!(
        "{WALKED}bind i0 blockIdx.x; bind j0 blockIdx.y; rasterize i1 j1 group=5 -> t\nreverse_compute_at C_l t\n"
    );
    for bound in ["", "bind t threadIdx.x\n", "unroll t\n"] {
        let k = lowered(&format!("{serial}{bound}"));
        assert_eq!(lower::print_derived(&k), "");
    }
}

#[test]
fn walks_of_one_kernel_share_the_row_where_they_are_alike() {
    let text = |group: i64| {
        format!(
            "program two\n  input A f32[12, 10]\n  S: S[z 2, i 12, j 10] f32 = A[i, j] * f32(z)\n  \
             C: output C[z 2, i 12, j 10] f32 = S[z, i, j] + 1\ntarget sm_80\n\
             compute_at S C_z -> i j; rasterize i j group=5 -> t; rasterize C_i C_j group={group} -> C_t\n\
             bind C_z blockIdx.y; bind t blockIdx.x; bind C_t blockIdx.x\n"
        )
    };
    assert_eq!(lowered(&text(5)).derived.len(), 2);
    assert_eq!(refused(&text(4)), "verify.safety");
}
