//! The worked example of the design: a Hopper GEMM with a cluster, a producer role, two consumer warpgroups and a
//! pipelined epilogue. Its steps parse and apply in full, and the program that they yield computes what the naive one
//! does.

use super::tests::results;
use super::{apply_all, complete_all, parse};
use crate::ir::{Func, print, verify};
use crate::te;

const STEPS: &str = "\
split i ? 2 2 64 -> i0 ic iw im; split j ? 256 -> j0 jn; split k ? 4 16 -> k0 kk ki
reorder i0 j0 ic iw k0 kk im jn ki
rasterize i0 j0 group=8 -> tile
bind tile blockIdx.x persistent; bind ic cluster; bind iw warpgroup
cache_read mma A shared -> A_s; compute_at A_s k0                               # 128 x 64: union over iw, one ic
cache_read mma B shared -> B_s; compute_at B_s k0                               # 256 x 64
set_scope acc fragment
cache_write out C shared -> C_s                                                 # out -> C_s; block C_s -> C
cache_write out C_s fragment -> C_f                                             # out -> C_f; block C_f -> C_s
reverse_compute_at out iw -> e0 en; split en ? 64 -> ep e1; reorder ep e0 e1
reverse_compute_at C_f ep -> f0 f1; reverse_compute_at C_s ep -> s0 s1
split f0 ? 16 -> fw fr; split f1 ? 16 -> fc fi; reorder fw fc fr fi; bind fw warp
tensorize im wgmma.m64n256k16.f32.f16.f16 m=im n=jn k=ki
tensorize fr stmatrix.m16n16.f16
swizzle A_s B_s C_s 128
copy_with A_s tma; copy_with B_s tma multicast=ic; copy_with C_s tma
pipeline k0 stages=4 in_flight=1; pipeline ep stages=2
specialize A_s B_s -> load warps=4 regs=40
";

/// Read it in sequence: that is its meaning.
const SCHEDULED: &str = "\
func gemm(A: global f16[4096, 4096], B: global f16[4096, 4096], C: global f16[4096, 4096])
  acc: fragment f32[4096, 4096]
  A_s: shared f16[4096, 4096] swizzle 128
  B_s: shared f16[4096, 4096] swizzle 128
  C_s: shared f16[4096, 4096] swizzle 128
  C_f: fragment f16[4096, 4096]
  role load warps=4 regs=40
  for (i0, j0) in 16 x 16 grouped 8 as tile @blockIdx.x persistent
    for ic in 0..2 @cluster
      for iw in 0..2 @warpgroup
        for k0 in 0..64 pipeline 4 in_flight 1
          for A_s_0 in 0..128
            for A_s_1 in 0..64
              block A_s(v0 = i0*256 + ic*128 + A_s_0, v1 = k0*64 + A_s_1) copy_with tma role load
                A_s[v0, v1] = A[v0, v1]
          for B_s_0 in 0..256
            for B_s_1 in 0..64
              block B_s(v0 = j0*256 + B_s_0, v1 = k0*64 + B_s_1) copy_with tma multicast=ic role load
                B_s[v0, v1] = B[v0, v1]
          for kk in 0..4
            for im in 0..64 tensorize wgmma.m64n256k16.f32.f16.f16 m=im n=jn k=ki
              for jn in 0..256
                for ki in 0..16
                  block mma(vi = i0*256 + ic*128 + iw*64 + im, vj = j0*256 + jn, reduce vk = k0*64 + kk*16 + ki)
                    init acc[vi, vj] = 0.0
                    acc[vi, vj] = acc[vi, vj] + f32(A_s[vi, vk])*f32(B_s[vj, vk])
        for ep in 0..4 pipeline 2 in_flight 0
          for e0 in 0..64
            for e1 in 0..64
              block out(vi = i0*256 + ic*128 + iw*64 + e0, vj = j0*256 + ep*64 + e1)
                C_f[vi, vj] = f16(acc[vi, vj])
          for fw in 0..4 @warp
            for fc in 0..4
              for fr in 0..16 tensorize stmatrix.m16n16.f16 m=fr n=fi
                for fi in 0..16
                  block C_f(v0 = i0*256 + ic*128 + iw*64 + fw*16 + fr, v1 = j0*256 + ep*64 + fc*16 + fi)
                    C_s[v0, v1] = C_f[v0, v1]
          for s0 in 0..64
            for s1 in 0..64
              block C_s(v0 = i0*256 + ic*128 + iw*64 + s0, v1 = j0*256 + ep*64 + s1) copy_with tma
                C[v0, v1] = C_s[v0, v1]
";

fn gemm(m: i64, n: i64, k: i64) -> Func {
    let text = format!(
        "program gemm
  input A f16[{m}, {k}]; input B f16[{n}, {k}]                              # layout NT
  mma: acc[i {m}, j {n}] f32 = sum(k {k}) f32(A[i, k]) * f32(B[j, k])
  out: output C[i, j] f16 = f16(acc[i, j])"
    );
    te::parse(&text).unwrap_or_else(|e| panic!("{e}"))
}

fn scheduled(func: &Func) -> Func {
    let steps = parse(STEPS).unwrap_or_else(|e| panic!("{e}"));
    let (made, stated) =
        complete_all(func, &steps).unwrap_or_else(|e| panic!("{e}\n{}", e.source_text().unwrap_or("")));
    let text: Vec<String> = stated.iter().map(|s| s.to_string()).collect();
    let reread = parse(&text.join("; ")).unwrap();
    assert_eq!(reread, stated);
    assert_eq!(apply_all(func, &reread).unwrap(), made);
    made
}

#[test]
fn the_steps_apply() {
    let func = scheduled(&gemm(4096, 4096, 4096));
    verify::verify(&func).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(print::func(&func), SCHEDULED);
}

#[test]
fn it_computes_what_the_naive_program_does() {
    let naive = gemm(256, 512, 64);
    assert!(results(&naive) == results(&scheduled(&naive)));
}
