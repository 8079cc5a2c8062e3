//! What random schedules have found, and what must stay right: each of these was once compiled wrongly, or not at all.
//! What was accepted and had to be refused stands in `tests/cases/found.txt`.

use super::check::{Depth, LIMITS, Tally, examine_text};
use warploom::assemble::Ptxas;
use warploom::loom::Schedule;
use warploom::lower::lower;

/// Programs that were once compiled wrongly, or not at all.
const FOUND: &[&str] = &[
    // A parameter that no kernel uses.
    "program p\ninput A f64[1, 1]\ninput R f64[1]\nT0: output T0[i 1, j 1] f64 = A[i, j] - A[i, j]*3\ntarget sm_80",
    // A shared buffer that another kernel of the program uses.
    "gemm 1x1x1 f16>f32 NN scale 2 residual\ntarget sm_86\ncache_read mma A shared -> A_s\ncompute_at A_s k",
    // Iterations of the producer that its predicate leaves out.
    "gemm 2x2x1 f32 NN relu scale 2\ntarget sm_70\nsplit scale_i ? 2 16 -> a b c\ncache_write scale C local -> C_w
     reverse_compute_at C_w c",
    // Registers beyond the last, in copies of an unrolled body that never run.
    "vec_add 2\ntarget sm_90\ncache_write C C local -> C_w\nsplit i 1 ? -> i_0 i_1\nreverse_compute_at C_w i_0
     split i_1 ? 4 -> a b",
    // More combinations of loops than elements.
    "gemm 6x22x5 u32 TT\ntarget sm_75\nreorder k j\nsplit k ? 16 -> a b\nsplit b ? 8 8 -> c d e",
    // What only the first iteration of a loop has to wait for takes a wider barrier than what all of them wait for.
    "gemm 11x3x1 f32 NN scale 2\ntarget sm_90\ndecompose_reduction mma j -> mma_init j_init
     split j_init 3 ? -> j_init_0 j_init_1\ncache_read mma B shared -> B_s\ncompute_at B_s j
     bind i threadIdx.x\nbind j_init_0 threadIdx.y",
    // A stage for all threads of an axis that occurs in its predicate alone.
    "program convolution\ninput A f32[3, 8]; input W f32[3, 3]
     B: output B[i 1, j 6] f32 = sum(u 3, v 3) A[i + u, j + v]*W[u, v]\ntarget sm_70
     cache_read B W shared -> W_s\ncompute_at W_s u\nsplit j ? 5 -> jo ji\nbind jo threadIdx.y",
    // A stage that grows with a loop that a select compares with another one.
    "program mixed\ninput D f32[2, 2]; input Z f32[2]\nG: output G[i 2, j 2] f32 = select(i < j, D[i, j], 0) + Z[j]
     target sm_70\npad G j=8",
    // A conversion of an unsigned integer, whose flag LLVM's wrapper does not take away.
    "program p\ninput A u8[4]\noutput B[i 4] f32 = f32(A[i]) + 1\ntarget sm_75",
    // Operands that end where their own iterator did, although another read of the buffer goes further.
    "program p\ninput A f32[1, 2, 1]\nT: output T[i 1] f32 = sum(r 1) max(A[r, 1, 0], A[0, r, 0])\ntarget sm_90\npad T r=2",
    "program p\ninput A u8[2]\nT: output T[i 1, j 2] s32 = sum(r 1) s32(A[r])*s32(A[1])\ntarget sm_80
     skew T r [j] -> [1 - j]",
    // LLVM makes a switch of the threads' numbers, whose default no lane takes: it ends in `exit`, inside the loop.
    "program switched\ninput A f32[1]\noutput T[i 2, j 4] f32 = select(2 - j >= 0 and 2 - j < 1, 0, A[0])\ntarget sm_70
     cache_read T A shared -> A_s\ncompute_at A_s i\nbind j threadIdx.x",
    // The copy of a copy of an operand that no iteration reads.
    "program p\ninput A f32[1]\ninput B f32[1, 2]
     T: output T[i 1, j 1, k 1] f32 = max(r 1) select(r < 1, B[0, 0], max(A[r], B[r, 0]))\ntarget sm_90a
     skew T r [k] -> [k // 1]\nskew T r [k] -> [k * 0]",
    // The copy of an operand that only the iterations added by skew read.
    "program p\ninput A f32[1]\ninput B f32[1, 2]\nT: output T[i 2] f32 = sum(r 1) select(r >= 0, A[r], B[r, i])
     target sm_86\nskew T r [i] -> [i]",
    // 128 threads along threadIdx.z, which allows 64: with a producer role, lowering numbers all threads along threadIdx.x.
    "window_sum 1024\ntarget sm_80\nsplit i ? 2 128 -> i_0 i_t i_1\nbind i_0 blockIdx.x\nbind i_1 threadIdx.z
     cache_read C A shared -> A_shared\ncompute_at A_shared i_t -> ax0\nspecialize A_shared -> load warps=1
     split ax0 ? 32 -> ax0_0 ax0_1\nbind ax0_1 threadIdx.x\npipeline i_t stages=3",
    // wmma instructions inside a loop of one iteration that is bound to threadIdx.y.
    "batched_gemm 1x16x16x16 f16>f32>f32 NN\ntarget sm_70\nbind b threadIdx.y\ncache_write C C fragment -> acc
     reverse_compute_at acc b -> o0 o1\ntensorize o0 wmma.store.d.row.m16n16k16.f32
     cache_read C A shared -> A_s\ncompute_at A_s b -> a0 a1\nfuse a0 a1 -> a\nsplit a ? 32 -> ao at
     bind at threadIdx.x\ncache_read C B shared -> B_s\ncompute_at B_s b\ncache_read C A_s fragment -> A_f
     tensorize A_f_1 wmma.load.a.row.m16n16k16.f16\ncache_read C B_s fragment -> B_f
     tensorize B_f_1 wmma.load.b.row.m16n16k16.f16\ndecompose_reduction C i -> zero
     tensorize i wmma.mma.row.row.m16n16k16.f32.f16.f16",
    // `storage_align` of a buffer in registers, which needs no padding against bank conflicts.
    "program p\ninput A f32[2]\nT: output T[i 32, j 2] f32 = A[j]*2\ntarget sm_90a
     cache_write T T local -> T_w\nreverse_compute_at T_w j\nstorage_align T_w 0 4096 0",
    // A register of 16 bits that nothing has written, beside one that counts.
    "program p\noutput C[i 5, j 16] f16 = 0\ntarget sm_89\nsplit j ? 4 -> vo vi\nvectorize vi
     cache_write C C shared -> C_w\nreverse_compute_at C_w vo\nsplit i ? 2 -> io ii\npipeline vo stages=3",
    // A sum of two numbers of 16 bits in one register.
    "program p\ninput A s8[1]\noutput T[i 1, j 2] s8 = A[0] + 1\ntarget sm_90a\nsplit j ? 2 -> vo vi\nvectorize vi",
    // The sum is loaded in front of the choice of its first value.
    "gemm 1x1x13 f32 NN\ntarget sm_90\ncache_write C C shared -> C_w\nreverse_compute_at C_w j\nsplit k ? 1",
    // The last copy by cp.async, whose value no iteration reads.
    "program p\ninput A f32[1]\noutput T[i 2] f32 = sum(r 3) select(r == 1, A[0], 0)\ntarget sm_80
     cache_read T A shared -> A_s\ncompute_at A_s r\npipeline r stages=2\nbind i blockIdx.y\ncopy_with A_s cp_async",
    // The first pair of bytes of a kernel is a constant.
    "program p\noutput T[i 1, j 1, k 2] s8 = 0\ntarget sm_89\nvectorize k",
    // A kernel of single blocks behind one of clusters, which reads what that has written.
    "program p\noutput D[j 2] f32 = sum(k 1) 0\ntarget sm_90a\ndecompose_reduction D j -> zero z_j\nbind z_j cluster",
];

#[test]
fn what_was_found_stays_right() {
    let tools = Ptxas::find(None).unwrap_or_default();
    for text in FOUND {
        let depth = Depth { real: true, ptx: true, code: Some(&tools), limits: LIMITS };
        let mut tally = Tally::default();
        if let Err(failure) = examine_text(text, depth, &mut tally) {
            panic!("{text}\n{}: {}", failure.kind, failure.message);
        }
        assert!(tally.ends.contains_key("ran"), "{text}\n{tally}");
    }
}

/// Programs for Hopper that were once compiled wrongly.
const FOUND_FOR_HOPPER: &[&str] = &[
    // The lane that is elected to start a copy need not be the one that reads or writes what is copied.
    "program outer\ninput A s32[1, 32]; input V s32[1]
     O: output O[b 1, i 1, j 32] s32 = A[i, j] * V[b]\ntarget sm_90a
     split j ? 16 -> j0 j1\ncache_read O A shared -> A_s\ncompute_at A_s j0\ncopy_with A_s tma
     cache_write O O shared -> O_s\nreverse_compute_at O_s j0",
    "program outer\ninput A s32[1, 12]; input V s32[1]
     O: output O[b 1, i 1, j 12] s32 = A[i, j] * V[b]\ntarget sm_90a
     split j ? 64 -> j0 j1\ncache_read O A shared -> A_s\ncompute_at A_s j0
     cache_write O O shared -> O_s\nreverse_compute_at O_s j0\ncopy_with O_s tma",
    // What a role's ring orders is no site of the others, whose own stage takes a fence before wgmma reads it.
    "gemm 128x32x32 s8>s32 NT\ntarget sm_90a
     split i ? 64 -> i0 im; split k ? 32 -> k0 ki; reorder i0 k0 im j ki
     cache_read C A shared -> A_s; swizzle A_s 32; compute_at A_s k0
     cache_read C B shared -> B_s; compute_at B_s k0; swizzle B_s 32
     cache_write C C fragment -> C_f; reverse_compute_at C_f i0
     tensorize im wgmma.m64n32k32.s32.s8.s8 m=im n=j k=ki; specialize A_s -> load warps=2",
];

/// Programs that were once compiled wrongly and have to be refused: the code, a word of the message, the text.
const REFUSED_FOR_HOPPER: &[(&str, &str, &str)] = &[
    (
        // A barrier of the cluster in a slice, for which the warps of a role never came.
        "lower.role",
        "a barrier of all threads of the cluster is needed",
        "gemm 64x32x32 f16>f32>f16 NT\ntarget sm_90a
         split i ? 2 64 -> i0 ic im; split j ? 32 -> j0 jn; split k ? 16 -> k0 ki
         reorder i0 j0 ic k0 im jn ki; bind ic cluster
         cache_read mma A shared -> A_s; compute_at A_s k0; swizzle A_s 32
         cache_read mma B shared -> B_s; compute_at B_s k0; swizzle B_s 32; copy_with B_s tma multicast=ic
         set_scope acc fragment; reverse_compute_at out ic
         tensorize im wgmma.m64n32k16.f32.f16.f16 m=im n=jn k=ki; specialize A_s -> load warps=4",
    ),
    (
        // Threads of a warpgroup that take the places of all threads.
        "lower.pingpong",
        "no role fills staged buffer A_s",
        "gemm 128x32x16 f16>f32>f16 TN\ntarget sm_90a
         split i ? 2 64 -> i0 iw im; split j ? 32 -> j0 jn; split k ? 16 -> k0 ki; reorder i0 j0 iw k0 im jn ki
         bind iw warpgroup pingpong
         cache_read mma A shared -> A_s; compute_at A_s k0 -> a0 a1; swizzle A_s 128
         fuse a0 a1 -> a; split a ? 256 4 -> ao at av; bind at threadIdx.x
         cache_read mma B shared -> B_s; compute_at B_s k0; swizzle B_s 64
         set_scope acc fragment; reverse_compute_at out iw
         tensorize im wgmma.m64n32k16.f32.f16.f16 m=im n=jn k=ki; specialize B_s -> load warps=2",
    ),
    (
        // A stage that the threads of one warpgroup fill in the turns of all.
        "lower.pingpong",
        "no role fills staged buffer B_s",
        "gemm 128x32x32 s8>s32 NT\ntarget sm_90a
         split i ? 2 64 -> i0 iw im; split k ? 32 -> k0 ki; reorder i0 iw k0 im j ki; bind iw warpgroup pingpong
         cache_read C A shared -> A_s; compute_at A_s k0; swizzle A_s 32
         cache_read C B shared -> B_s; compute_at B_s k0; swizzle B_s 32
         cache_write C C fragment -> C_f; reverse_compute_at C_f iw
         tensorize im wgmma.m64n32k32.s32.s8.s8 m=im n=j k=ki; specialize A_s -> load warps=2",
    ),
    (
        // Boxes that three warpgroups loaded, where one was expected: the stage had moved before the loop was bound.
        "lower.bulk_levels",
        "each warpgroup would load",
        "gemm 192x32x32 s8>s32 NT\ntarget sm_90a
         split i ? 3 64 -> i0 iw im; split k ? 32 -> k0 ki; reorder i0 iw k0 im j ki
         cache_read C A shared -> A_s; compute_at A_s k0; swizzle A_s 32; bind iw warpgroup; copy_with A_s tma
         cache_read C B shared -> B_s; compute_at B_s k0; swizzle B_s 32
         cache_write C C fragment -> C_f; reverse_compute_at C_f iw
         tensorize im wgmma.m64n32k32.s32.s8.s8 m=im n=j k=ki",
    ),
    (
        "lower.pipeline",
        "in_flight counts groups",
        "program outer\ninput A s32[2, 32]\nO: output O[i 2, j 32] s32 = A[i, j]\ntarget sm_90a
         split j ? 16 -> j0 j1; cache_read O A shared -> A_s; compute_at A_s j0; copy_with A_s tma
         pipeline j0 stages=2 in_flight=1; specialize A_s -> load warps=2",
    ),
];

#[test]
fn what_was_found_for_hopper_is_right_or_refused() {
    let tools = Ptxas::find(None).unwrap_or_default();
    for text in FOUND_FOR_HOPPER {
        let depth = Depth { real: true, ptx: true, code: Some(&tools), limits: LIMITS };
        let mut tally = Tally::default();
        if let Err(failure) = examine_text(text, depth, &mut tally) {
            panic!("{text}\n{}: {}", failure.kind, failure.message);
        }
        assert!(tally.ends.contains_key("ran"), "{text}\n{tally}");
    }
    for (code, word, text) in REFUSED_FOR_HOPPER {
        let schedule = Schedule::parse(text).unwrap_or_else(|e| panic!("{text}\n{e}"));
        let func = schedule.scheduled().unwrap_or_else(|e| panic!("{text}\n{e}"));
        let e = lower(&func, &schedule.target).err().unwrap_or_else(|| panic!("{text}\nis accepted"));
        assert_eq!(e.code().to_string(), *code, "{text}\n{e}");
        assert!(e.message().contains(word) && !e.helps().is_empty(), "{text}\n{e}");
    }
}
