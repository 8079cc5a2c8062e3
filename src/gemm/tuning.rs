//! Corrections of the cost model that no figure of a data sheet explains, each with the record that it comes from. All were taken on
//! an H200 and are used for every device.
//!
//! A share is a part of the figure in the device's row. Where recipes disagree about one figure, each keeps the share with which its
//! choices for the lines of benches/*.suite were measured (benches/results/h200-2026-11-24/hopper.json, h200-2026-11-22/suite.json). Folders
//! are those of benches/results. Of figures without a folder no record was kept.

/// Bytes of device memory that packing kernels move in a cycle: an estimate for an H200, whose row has 2222. An A100 has 1446 by its row,
/// with which f32 NN at 2048^3 (benches/f32.suite) would get other tiles.
pub(super) const MEMORY_BYTES_PER_CYCLE: f64 = 1600.0;

/// Registers of a thread besides accumulators and fragments: addresses, loop counters. An estimate.
pub(super) const ADDRESS_REGISTERS: i64 = 40;

/// Cycles of a scheduler for an MMA of 16 x 8 x 32 bytes by mma.sync: 4 by the rate of an H200, 6 with operands in registers
/// (h200-2026-11-22/README.md, "fences"), 8.3 at 4096^3, where the power limit lowers the clock.
pub(super) const MMA_CYCLES: f64 = 8.3;
/// Cycles of a stage of 64 terms by TMA in which the tensor cores wait for the barrier of a lone block. At 8192^3 on an H200 they were busy
/// for 0.911 of the cycles with 128 x 256 alone, and with two blocks of 128 x 128, 80 x 256, 192 x 128 for 0.934, 0.947, 0.948: the
/// figure gives 0.911, 0.939, 0.945, 0.949 of 0.97, which is what they are busy where nothing is loaded (no record was kept).
pub(super) const MMA_TMA_BUBBLE: f64 = 142.0;
/// Cycles of a warp for a k iteration besides its MMAs: operand loads, copies and its share of a barrier.
pub(super) const MMA_LATENCY: f64 = 60.0;
/// Cycles of a stage for the wait for its copies, a barrier, and the copies that are started: a block of one warp, 16 x 16, takes 35 thousand
/// for 16x4096x4096 of f16 on an H100, 550 a stage of four k iterations, of which 310 are counted otherwise.
pub(super) const MMA_STAGE_LATENCY: f64 = 200.0;
/// Cycles before the first MMA of a block. An estimate.
pub(super) const MMA_PROLOGUE: f64 = 1500.0;
/// Bytes of accumulators that a multiprocessor stores in a cycle: 4000 cycles for a tile of 128 x 256 were measured.
pub(super) const MMA_STORE_BYTES: f64 = 32.0;
/// The share of the bytes from L2 that cp.async reaches: 32 of 61 a cycle (h200-2026-11-22/suite.json).
pub(super) const MMA_L2_SHARE: f64 = 32.0 / 61.0;
/// Cycles of a scheduler for a cp.async of a warp with its address and its bounds. An estimate.
pub(super) const COPY_CYCLES: f64 = 6.0;
/// The same for a load and a store of elements on their way through registers: 22 with 8 warps on a multiprocessor of an H100 (26x4111x4704 TN of
/// bf16 in 32 x 64), 40 with 8 (143x2450x1344 TN in 32 x 64; no record was kept).
pub(super) const LOAD_STORE_CYCLES: f64 = 24.0;
/// Cycles from a load of a stage to its store: with few blocks 224x13x272 TN of bf16 takes 1600 a stage on an H100 (no record was kept).
pub(super) const LOAD_STORE_LATENCY: f64 = 1600.0;
/// Cycles that each further block on a multiprocessor adds: of one stage, 24x5632x64 TT of f16 takes 5.2 us on an H100 in 352 blocks of one warp,
/// 3.5 in 176, 2.7 in 88 of two (no record was kept). Those are 1000 to 2000 cycles; the figure is lower, as long sums hide a part of them.
pub(super) const MMA_BLOCK: f64 = 700.0;
/// Cycles of a scheduler to unpack a word of eight 4-bit integers of each lane to bytes: six operations at 16 lanes a cycle.
pub(super) const UNPACK_CYCLES: f64 = 12.0;

/// Parts of the FP32 lanes' cycles that a scheduler with many warps issues, and the warps at which it has lost
/// 0.375 / (1 + 0.375) of them: 0.62 of the lanes with one warp a scheduler and 0.78 with four (1024x512x2048 and 4096^3,
/// measured on an H200).
pub(super) const SIMT_ISSUE_SHARE: f64 = 0.85;
pub(super) const SIMT_LATENCY_WARPS: f64 = 0.375;
/// Instructions for an element on its way into shared memory: a store of its own where it is transposed, a quarter of a load.
pub(super) const SIMT_FETCH: f64 = 1.25;
/// Cycles before the first multiply-add of a block and after its last. An estimate.
pub(super) const SIMT_EDGES: f64 = 2000.0;
/// The share of the bytes from L2 that loads through registers reach: 32 of 61 a cycle. An estimate.
pub(super) const SIMT_L2_SHARE: f64 = 32.0 / 61.0;

/// How much longer random products took on an H100 than their cycles without this factor, at the median: 40 with tiles of ordinary code, and
/// 15 with few rows or columns (seed 43791; no record of these rows was kept). With tensor cores they took 1.5 times as long.
pub(super) const TILES_SLOWER: f64 = 1.8;
pub(super) const GEMV_SLOWER: f64 = 1.3;
/// Instructions of a k iteration of a matrix-vector product besides loads and multiply-adds. An estimate.
pub(super) const GEMV_LOOP: f64 = 12.0;
/// Cycles of a barrier between the stages of a block. An estimate.
pub(super) const SIMT_BARRIER: f64 = 40.0;
/// Candidates of ordinary code whose cycles differ by less are alike. An estimate.
pub(super) const SIMT_ALIKE: f64 = 1.03;

/// Cycles of a k step of eight warps of 64 x 64: 256 of multiply-adds, and what was measured at 4096^3.
pub(super) const PIPELINED_STEP: f64 = 286.0;
/// Cycles that a k step takes longer for the words that a thread copies in it, squared (0.5 and 1.5 words were measured), and for a
/// vector.
pub(super) const PIPELINED_WORDS: f64 = 12.0;
pub(super) const PIPELINED_VECTOR: f64 = 8.0;
/// Cycles before the first and after the last k step of a tile, and to add slices up. Estimates.
pub(super) const PIPELINED_EDGES: f64 = 3000.0;
pub(super) const PIPELINED_SLICES: f64 = 4000.0;

/// Cycles of a block by wgmma before its first MMA: the first TMA loads.
pub(super) const WGMMA_PROLOGUE: f64 = 1400.0;
/// Bytes of C that a multiprocessor stores in a cycle: 45 cycles for 2048 bytes.
pub(super) const WGMMA_STORE_BYTES: f64 = 2048.0 / 45.0;
/// The share of the bytes from L2 that TMA loads reach beside MMAs: 40 of 61 a cycle (h200-2026-11-22/limits/candidates.jsonl).
pub(super) const WGMMA_L2_SHARE: f64 = 40.0 / 61.0;
/// Cycles of a block for the barriers of its cluster and for waits between them, for each doubling of the cluster. An estimate: 168x6272x544 NT
/// of f16 takes 6.6 us on an H100 in 176 x 64 in clusters of four, and 5.8 in 88 x 64 alone.
pub(super) const CLUSTER_ENDS: f64 = 3500.0;
/// Bytes in flight to a multiprocessor from which on half of the ring is enough: with 55 KB 64 x 128 gains 8 %, with 48 KB 64 x 64 loses 6 %
/// (16x11008x4096 and 64x4096x4096 on an H100; no record was kept).
pub(super) const ENOUGH_IN_FLIGHT: i64 = 50 << 10;
/// Reads of a row of 128 bytes that begins anywhere in a line, in whole lines, where no other block shares it. On an H100 7360x592x13232 NT of f16
/// takes 304k cycles in 192 x 200 and 306k in 256 x 152, which is 1.17 and 1.13 by the share of L2 above; 8615x128x1464 NT takes 1.2 times as
/// long in 128 x 128 as in clusters of two, 1.4 times in 72 x 128 (no record was kept).
pub(super) const UNALIGNED_READS: f64 = 1.25;
/// Cycles between two stages in which no MMA runs, with warpgroups in ping-pong and cooperative ones of 128 x 256, and cycles
/// behind a tile of the latter (h200-2026-11-22/hopper/turns.jsonl, h200-2026-11-23/turns_variants.jsonl).
pub(super) const PINGPONG_BUBBLE: f64 = 27.0;
/// The share of the bytes from L2 that warpgroups in ping-pong reach: 54 of 61 a cycle. On an H100 6144x1536x6144 TT of f16 takes 283k cycles in
/// 256 x 144, which would take 232k by its MMAs and asks for 58 bytes a cycle; 256 x 168, which asks for 54, reaches its MMAs at 8192^3.
pub(super) const PINGPONG_L2_SHARE: f64 = 54.0 / 61.0;
pub(super) const COOPERATIVE_BUBBLE: f64 = 40.0;
pub(super) const COOPERATIVE_EPILOGUE: f64 = 2000.0;
/// Cycles from the last wgmma of a stage to the first of the next besides the additions of partial sums: the wait, the barrier of the next
/// stage, and the descriptors. An estimate.
pub(super) const PROMOTION_LATENCY: f64 = 100.0;
/// The share of the cooperative cycles that ping-pong must stay below: smaller tiles move more bytes, which takes power, and so time where
/// power is the limit (h200-2026-11-23/turns_variants.jsonl).
pub(super) const PINGPONG_GAIN: f64 = 0.98;
/// The share of the first candidate's cycles below which ping-pong with swapped operands precedes it. An estimate: with a predicted gain of a few
/// per cent such tiles took 0.965 to 1.023 of its time on an H100 (h100-2026-11-25/choice.md), with a predicted gain of 13 % f16 NN 5120^3 took
/// 0.996 of the library's speed instead of 0.908 (no record was kept).
pub(super) const SWAPPED_GAIN: f64 = 0.93;
/// How much longer tiles by wgmma take than the model says where half of a tile lies beyond a C of few rows or columns: on an H100
/// 16x4096x4096 NT of f16 takes 19.3 us in such tiles, 15.7 by mma.sync and 9.6 and 7.8 for 2352x16x1864 NN (no record was kept).
pub(super) const WGMMA_BEYOND: f64 = 1.23;
/// The share of the cycles of other tiles below which tiles of fitted width precede them. An estimate: 7360x592x13232 NT of f16 takes 0.76 of the
/// time by a prediction of 0.94; 2048^3, with 0.96, was not measured.
pub(super) const FITTED_GAIN: f64 = 0.95;
/// A difference of cycles that is noise.
pub(super) const SAME_CYCLES: f64 = 1.005;

/// The cost of adding up parts through distributed shared memory: barrier cycles for each block of the cluster; bytes a cycle that a block
/// stores from fragments; bytes a cycle in vectors of 16 bytes from its own shared memory, and cycles of the copy there. A fit to seven tiles
/// of 16 to 64 KB on one H100 (no record was kept): 80x2528x1872 in 80 x 64 (2 parts, 7.1 us) and 80 x 128 (4 parts, 9.1 us, in vectors 8.1),
/// 128x3040x1520 in 128 x 64 (2 parts, 7.7 us) and 128 x 128 (4 parts, 11.2 us, in vectors 9.5), 64x512x12800 in 64 x 64 (8 parts, 9.4 us).
pub(super) const CLUSTER_BLOCK: f64 = 300.0;
pub(super) const CLUSTER_BYTES: f64 = 4.4;
pub(super) const CLUSTER_VECTOR_BYTES: f64 = 7.0;
pub(super) const CLUSTER_STAGED: f64 = 1900.0;
/// Bytes of the accumulators of a tile from which on vectors take less time.
pub(super) const STAGED_PARTS: i64 = 32 << 10;
/// The share of the device memory bandwidth that is lost if all multiprocessors but one are idle. An estimate: on an H100 a loss of 3 % with 64
/// busy ones of 132 and of up to 10 % with 86 (8x4096x4096 and 8x11008x4096 NT of f16; no record was kept).
pub(super) const IDLE_LOSS: f64 = 0.1;
