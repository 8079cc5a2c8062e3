//! Corrections of the cost model that no figure of a data sheet explains, each with the record that it comes from. All were taken on
//! an H200 and are used for every device.
//!
//! A share is a part of the figure in the device's row. Where recipes disagree about one figure, each keeps the share with which its
//! choices for the lines of benches/*.suite were measured (benches/results/h200-2026-11-24/hopper.json, h200-2026-11-22/suite.json). Folders
//! are those of benches/results. Of figures without a folder no record was kept.

/// Figures "of the fit" are those of a fit to the times of 5,100 candidates of 124 products (random ones, most of them slow before, and lines of
/// benches/*.suite) on one H100: by wgmma (2,694), mma.sync (775) and ordinary code (1,635).
/// Times that are within 1.4 of a product's best weigh most. A launch, which a kernel has once, and the prologue of each wave are figures of
/// their own: without that, the times of kernels below 6 us were 20 to 50 % too long, by mma.sync the most. Where the first candidate was
/// measured, in 104 of these products, it takes 1.05 times as long as the fastest of any recipe, at the geometric mean; by the model before it, in
/// 108 of them, 1.08 (no record was kept). Some were set by hand beside the fit: launches and slices of split-K, and reads of unaligned rows (2.5 by
/// the fit, which weighs tiles that are far from the best little).
///
/// Ordinary code was fitted again with its columns in groups: to 1,895 times of 174 products. 76 products, most of
/// them among these, have 2,790 times of all recipes. By the model before, their first candidate reached 0.87 of the speed of the fastest that was
/// measured; by this one it would reach 0.92 by the same times, without copies by TMA to tiles of mma.sync (no record was kept).
///
/// How well the tiles of a kernel overlap with its device memory accesses ([`super::work::Work::overlap`]). Of the fit.
pub(super) const MEMORY_OVERLAP: f64 = 2.0;
/// The share of the device memory bandwidth that these recipes reach. Of the fit.
pub(super) const MEMORY_SHARE: f64 = 0.9;
/// Bytes of a tile of C that a multiprocessor stores in a cycle. Of the fit.
pub(super) const STORE_BYTES: f64 = 40.0;
/// The launches of a kernel that adds up parts and of one that packs for tensor cores, over the device's: 2000 cycles. Near the fit; with 3200 for
/// the former, the times of split-K below 12 us were 13 to 22 % too long by mma.sync and wgmma, too. With 1600, as every kernel begins early, 1024x512x2048
/// NN of f32 was split by an earlier model, which takes 50.7 us on an H100, 45.4 in one kernel (no record was kept).
pub(super) const COMBINING_LAUNCH: f64 = 0.5;
pub(super) const PACKING_LAUNCH: f64 = 0.5;
/// The launch of a packing kernel that runs concurrently with another one, over the device's. Of two schedules of each of 41 GEMMs on an H200, the choice has 0.983
/// of the speed of the faster one, with 0.1 it would have 0.975 and with 0.3 0.979 (h200-2026-11-29/packed.jsonl).
pub(super) const PACKING_BESIDE: f64 = 0.2;
/// The share of the bytes from L2 that a kernel reaches that adds up parts: 49 of 61 a cycle. Of the fit, in which it matters little.
pub(super) const COMBINING_L2_SHARE: f64 = 49.0 / 61.0;
/// How much longer packing takes for bytes whose rows begin at odd addresses and are transposed: 576x11967x4245 NN of s8 takes 112 us on an H100, of
/// which some 54 are for the 107 MB that packing moves (no record was kept).
pub(super) const PACKING_ODD: f64 = 1.5;
/// The share of the device memory bandwidth that packing kernels reach, and the share of L2 that keeps packed operands until the GEMM reads them. Set by hand
/// to times of 16 GEMMs with packed operands of 3 to 350 MB (h200-2026-11-29/below.jsonl); before, 16320x68x10653 NN of f16 was predicted 330 us packed, and
/// takes 262.
pub(super) const PACKING_SHARE: f64 = 0.9;
pub(super) const PACKED_KEPT: f64 = 0.4;

/// Bytes of device memory that kernels which add parts up move in a cycle: an estimate for an H200, whose row has 2222.
pub(super) const MEMORY_BYTES_PER_CYCLE: f64 = 1600.0;

/// Bytes of a result that stay in L2 until all of their sectors are whole: 93x13753x32 NT of f16, whose 2.6 MB have rows of odd lengths, takes 2.82 us on an
/// H200 by mma.sync in 32 x 64 and 3.38 in 64 x 128 (h200-2026-11-28/model.jsonl).
pub(super) const RESULT_KEPT: f64 = 5e6;
/// Cycles between the beginnings of two blocks of a grid, on whatever multiprocessors: 576x933x2 NN of s8 takes 3.81 us on an H200 in 4248 blocks and 2.49 in 2124
/// that each have twice the work, 6000x8000x3 NN of bf16 60.9 us on an H100 in 93750 blocks and 33.1 in 47000 (h200-2026-11-28 and h100-2026-11-28,
/// candidates.jsonl).
pub(super) const BLOCK_CYCLES: f64 = 1.25;

/// Registers of a thread besides accumulators and fragments: addresses, loop counters. An estimate.
pub(super) const ADDRESS_REGISTERS: i64 = 40;

/// Cycles of a scheduler for an MMA of 16 x 8 x 32 bytes by mma.sync: 4 by the rate of an H200, 6 with operands in registers
/// (h200-2026-11-22/README.md, "fences") and of the fit. At 4096^3 it takes 8.3, where the power limit lowers the clock.
pub(super) const MMA_CYCLES: f64 = 6.0;
/// How well the engines of a multiprocessor overlap. Of the fit.
pub(super) const MMA_OVERLAP: f64 = 3.8;
/// How much of the bytes of C a block costs more that is alone on its multiprocessor, which stores nothing while it loads; with n blocks the n-squaredth
/// part of that. On an H100 8000x4000x16 NT of s8 takes 51 us in 256 x 128, 44.4 in 128 x 128 and 42.9 in 64 x 128, 3104x5912x32 TN 35, 29.8 and 28.9,
/// 13312x5056x3 NT 102 to 103, 95 and 93 in 128 x 64.
pub(super) const MMA_STORES_ALONE: f64 = 0.17;
/// Cycles of a stage of 64 terms by TMA in which the tensor cores wait for the barrier of a lone block. At 8192^3 on an H200 they were busy
/// for 0.911 of the cycles with 128 x 256 alone, and with two blocks of 128 x 128, 80 x 256, 192 x 128 for 0.934, 0.947, 0.948: the
/// figure gives 0.911, 0.939, 0.945, 0.949 of 0.97, which is what they are busy where nothing is loaded (no record was kept).
pub(super) const MMA_TMA_BUBBLE: f64 = 142.0;
/// Cycles of a warp for a k iteration besides its MMAs: operand loads, copies and its share of a barrier; and of a stage for the wait for its
/// copies. The second is of the fit; the first was set by hand to the times of 110 products on an H200 (candidates.jsonl and below.jsonl of h200-2026-11-28).
pub(super) const MMA_LATENCY: f64 = 85.0;
pub(super) const MMA_STAGE_LATENCY: f64 = 20.0;
/// Cycles before the first MMA of a block. Of the fit.
pub(super) const MMA_PROLOGUE: f64 = 300.0;
/// Cycles of the launch of a kernel by mma.sync, once. Of the fit.
pub(super) const MMA_LAUNCH: f64 = 2670.0;
/// Cycles of a launch by mma.sync that programmatic dependent launch hides: where a kernel begins beside the one in front of it, and where the next
/// one begins beside it. Of a fit to 895 times: on an H100 kernels below 2 us were predicted 6 % too long without these figures (no record was
/// kept). For wgmma they are part of the launch: figures of their own brought the error of 2,063 times below 2 us from 24 % to 8 %, and the speed of the
/// first candidate from 0.959 to 0.961 of the fastest over 130 products.
pub(super) const EARLY_BEGIN: f64 = 550.0;
pub(super) const EARLY_RELEASE: f64 = 400.0;
/// The share of the device memory bandwidth that mma.sync reaches on chips with wgmma. Of the fit. With 0.9, 28672x1x8192 NT of f16 is multiplied by mma.sync,
/// which takes 113.9 us on an H200, 110.8 by wgmma (h200-2026-11-28/model.jsonl).
pub(super) const MMA_MEMORY_SHARE: f64 = 0.84;
/// The share of the bytes from L2 that cp.async reaches: 44 of 61 a cycle. Of the fit.
pub(super) const MMA_L2_SHARE: f64 = 44.0 / 61.0;
/// Cycles of a scheduler for a cp.async of a warp of less than 16 bytes a lane, with its address and its bounds: on an H200 11473x128x2398 NT of bf16, with
/// 96 of 4 bytes for each k iteration of a multiprocessor, takes 690 cycles for one (h200-2026-11-28/candidates.jsonl).
pub(super) const COPY_CYCLES: f64 = 18.0;
/// The same for a load and a store of elements on their way through registers; of a fit to 119 times of 11 products. The cycles from the loads of a
/// stage to its stores, and how many more for each load of a warp that the multiprocessor has on the way: 216x9760x10918 TT of s8 takes 2400 cycles a
/// stage on an H200, 128x67x512 TN of f16, which has one warp on a multiprocessor, 1300.
pub(super) const LOAD_STORE_CYCLES: f64 = 7.4;
pub(super) const LOAD_STORE_LATENCY: f64 = 860.0;
pub(super) const LOAD_STORE_QUEUE: f64 = 4.0;
/// Bytes of an operand up to which copies by cp.async go through L1: all blocks read the same lines, which probably few slices of L2 have. An
/// estimate: on an H100 10208x16x24 TT of f16, whose B has 768 bytes, took 3.64 us in 638 blocks past L1, and 1.32 with both operands through
/// it (h100-2026-11-27). And the same of elements of 64 bits: six products of f64 with operands of 36 to 66 KB take 0.996 to 1.23 times as long past L1 on an H200, and
/// with operands of 82 KB to 1 MB 0.97 to 1.24 times. Of 18 products of 8- and 16-bit elements with operands of more than 32 KB three gain 2 to 6 %, five
/// lose 4 to 9 % (h200-2026-11-29/hot.jsonl).
pub(super) const HOT_BYTES: f64 = 32768.0;
pub(super) const HOT_BYTES_OF_64: f64 = 65536.0;
/// Cycles of a scheduler to unpack a word of eight 4-bit integers of each lane to bytes: six operations at 16 lanes a cycle.
pub(super) const UNPACK_CYCLES: f64 = 12.0;

/// Parts of the FP32 lanes' cycles that a scheduler with many warps issues, and the warps at which it has lost
/// 0.375 / (1 + 0.375) of them: 0.62 of the lanes with one warp a scheduler and 0.78 with four (1024x512x2048 and 4096^3,
/// measured on an H200).
pub(super) const SIMT_ISSUE_SHARE: f64 = 0.85;
/// How well the engines of a multiprocessor overlap, and the share of the bytes through shared memory that takes their time. Of the fit.
pub(super) const SIMT_OVERLAP: f64 = 2.91;
pub(super) const SIMT_SHARED: f64 = 0.51;
pub(super) const SIMT_LATENCY_WARPS: f64 = 0.375;
/// Instructions for an element on its way into shared memory: a store of its own where it is transposed, a quarter of a load.
pub(super) const SIMT_FETCH: f64 = 1.25;
/// Cycles of the launch, with the latency of the first loads. Of the fit.
pub(super) const SIMT_LAUNCH: f64 = 2600.0;
/// Cycles in which an instruction of a stage, all of whose steps are written out, comes from memory once. Of 326 times within 1.8 of their product's best on an H200 the
/// logarithm of the measured over the predicted one has a standard deviation of 0.170 with 0 and of 0.158 with this figure (candidates.jsonl and below.jsonl of
/// h200-2026-11-28).
pub(super) const SIMT_CODE: f64 = 0.5;
/// Bytes of a tile of C that a multiprocessor stores in a cycle: the bound that the fit had, as C counts in device memory.
pub(super) const SIMT_STORE_BYTES: f64 = 400.0;
/// How much of their bytes rows of C of a single sector cost more.
pub(super) const SIMT_SECTOR_ROWS: f64 = 0.34;
/// How much longer than the latency of device memory a lone block waits for its loads, and how much of the cycles that few warps lose is
/// left between two k steps. Of the fit.
pub(super) const SIMT_LOADS: f64 = 2.02;
pub(super) const SIMT_BUBBLE: f64 = 0.25;
/// How many times the instructions count of ordinary code for 4-bit integers, which it takes out of bytes one by one. Eight products of s4 with 8
/// rows or columns took 4.9 to 11 times as long on an H200 as was predicted without it (h200-2026-11-29/widened.jsonl).
pub(super) const SIMT_NARROW: f64 = 7.0;
/// How much longer warp tiles take than their cycles without this factor. Of the fit: of three products.
pub(super) const WARP_TILES_SLOWER: f64 = 1.8;
/// The share of the bytes from L2 that loads through registers reach: 24.4 of 61 a cycle. Of the fit.
pub(super) const SIMT_L2_SHARE: f64 = 24.4 / 61.0;
/// Cycles of a matrix-vector product, or of warp tiles, before the first multiply-add of a block. An estimate.
pub(super) const GEMV_EDGES: f64 = 2000.0;
/// The share of the bytes from L2 that both reach: 30 of 61 a cycle. Set by hand to the times of the same 110 products as [`MMA_LATENCY`].
pub(super) const GEMV_L2_SHARE: f64 = 30.0 / 61.0;

/// How much longer matrix-vector products take than their cycles without this factor, besides their device memory accesses. An estimate: with less
/// 4x28672x8192 NT of bf16 would be a matrix-vector product, which takes 210 us on an H100, 167 by wgmma, and with more 12108x1x7760 NT of f32 would have
/// tiles of ordinary code, which reach 1.9 TB/s (h100-2026-11-27).
pub(super) const GEMV_SLOWER: f64 = 1.1;
/// How many times as long as by 128 bytes a cycle L1 takes for the loads of a matrix-vector product: 8x1632x4544 TT of f32 takes 25.6 us on an
/// H100 in two vectors of four rows, whose lanes read eight rows of the small operand, and 15.9 in one of eight. Of a fit to 280 times of
/// 20 products.
pub(super) const GEMV_L1: f64 = 2.5;
/// Instructions of a k iteration of a matrix-vector product besides loads and multiply-adds. An estimate.
pub(super) const GEMV_LOOP: f64 = 12.0;
/// Cycles of a barrier between the stages of a block. An estimate.
pub(super) const SIMT_BARRIER: f64 = 40.0;
/// Candidates of ordinary code whose cycles differ by less are alike. An estimate.
pub(super) const SIMT_ALIKE: f64 = 1.03;

/// Cycles of a scheduler for a load of a vector from shared memory to registers, by pipelined tiles, and for a copy of 4 or 8 bytes and of 16 with
/// their share of addresses and bounds. Of a fit on an H100, as the figures below: to 501 times of 21 products
/// (h100-2026-11-27/candidates.jsonl), and to 17 of benches/f32.suite before it (no record is kept). By these times, the first candidate of the model reaches 0.98 of the speed of the fastest of 8 to 40
/// for the 21, at the geometric mean; in-sample.
pub(super) const PIPELINED_LOAD: f64 = 2.4;
pub(super) const PIPELINED_WORD: f64 = 7.3;
pub(super) const PIPELINED_VECTOR: f64 = 6.2;
/// A factor for the issue cycles that follow from these figures, and a second one where several blocks are resident on a multiprocessor. Of the fit.
/// The third figure is the latency of a k step over its issue cycles: with one warp on a scheduler it decides, as no other warp hides it. Of the fit.
pub(super) const PIPELINED_ISSUE: f64 = 0.869;
pub(super) const PIPELINED_BESIDE: f64 = 1.052;
pub(super) const PIPELINED_LATENCY: f64 = 1.38;
/// Cycles of a multiprocessor's shared memory for a vector of each lane of a warp: of four different vectors of A, and of eight of B. Of the fit.
pub(super) const PIPELINED_WAVEFRONTS: [f64; 2] = [1.33, 1.7];
/// Cycles of a stage for its barrier and its first loads, of the launch, and before the first k step. Of the fit.
pub(super) const PIPELINED_STAGE: f64 = 19.4;
pub(super) const PIPELINED_LAUNCH: f64 = 1640.0;
pub(super) const PIPELINED_EDGES: f64 = 2310.0;
/// The share of the bytes from L2 that copies reach, and how well the engines of a multiprocessor overlap. Of the fit.
pub(super) const PIPELINED_L2_SHARE: f64 = 0.514;
pub(super) const PIPELINED_OVERLAP: f64 = 4.35;
/// Registers of a thread besides accumulators and fragments. 43 of 1,200 kernels spilled for sm_90a where `.minnctapersm` was as many
/// blocks as fit by this figure. Ten of them are no candidates now, and 33 have a smaller number of blocks, with which they were not assembled again.
pub(super) const PIPELINED_REGISTERS: i64 = 24;

/// Cycles of a block by wgmma before its first MMA: the first TMA loads. Of the fit.
pub(super) const WGMMA_PROLOGUE: f64 = 1320.0;
/// Cycles of the launch of a kernel by wgmma, once. Of the fit.
pub(super) const WGMMA_LAUNCH: f64 = 1050.0;
/// The share of the bytes through shared memory that takes its time. Of the fit.
pub(super) const WGMMA_SHARED: f64 = 0.75;
/// Cycles of a warp that transposes 16 columns by 32 bytes along k in shared memory: 60 to 66 of three tiles of 4096^3 TN of s8 on an H200 whose two warps take longer
/// than the MMAs (h200-2026-11-29/transposed.jsonl).
pub(super) const TRANSPOSING_CYCLES: f64 = 62.0;
/// How much longer MMAs by mma.sync take behind ldmatrix.trans of bytes. Set by hand: products of s8 took 1.25 to 1.8 times as long as without this
/// factor on an H200, and four of five whose tiles it changed take less time (h200-2026-11-29/README.md).
pub(super) const TRANSPOSED_BYTES_MMA: f64 = 1.4;
/// How much longer a kernel takes that widens 4-bit integers across k, or transposes them, than its bytes take along k. Set by hand: of five products of
/// s4 whose operand of 7 to 48 million elements runs across k, on an H200 (h200-2026-11-29/widened.jsonl), the times less what the model has for
/// their GEMMs are 3.3 to 6.5 times as long. Kernels that transpose 4 bits as such were not measured.
pub(super) const WIDENING_TRANSPOSED: f64 = 4.2;
/// The share of the cycles of shared memory that MMAs by mma.sync wait for where lanes load fragments element by element. Set by hand: of 49 products of
/// f64 with two or more recorded tiles (h200-2026-11-29/sides.jsonl) the one of fewest cycles has 0.987 of the speed of the fastest with a share of 0.15
/// or 0.25, 0.982 with none, 0.978 with 0.75.
pub(super) const MMA_ELEMENT_LOADS: f64 = 0.25;
/// The share of the other cycles from which on device memory decides. An estimate.
pub(super) const WAITING: f64 = 0.8;
/// How well the engines of a multiprocessor overlap. Of a fit to 4,779 times of 170 products by wgmma on H100s, as the figures below that say so. Of 177
/// products with times of all recipes the first candidate by this model reaches 0.950 of the speed of the fastest that was measured, the first by the
/// earlier model 0.938; in-sample (h100-2026-11-27/candidates.jsonl and h100-2026-11-28/candidates.jsonl).
pub(super) const WGMMA_OVERLAP: f64 = 9.7;
/// Cycles of a k iteration by the power limit alone: so many for each cycle of bytes through shared memory, and one for so many bytes from L2. Of that fit.
pub(super) const WGMMA_SHARED_POWER: f64 = 1.13;
pub(super) const WGMMA_FETCHED_POWER: f64 = 246.0;
/// Cycles from a load of a stage to its arrival, which the other stages of the ring hide. Of a fit to 2,517 times of 87 products before it.
pub(super) const WGMMA_STAGE_LATENCY: f64 = 600.0;
/// Cycles that a line of k waits for its loads with one line loaded ahead, where a kernel for a dynamic M has fewer rows than its tiles: so many divided by
/// the square of the lines that are loaded ahead. 72x4096x4096 NT of f16 takes 13.8 us on an H200 in 192 x 64 in two parts of k, whose ring has five
/// stages of a line, and 10.7 in 72 x 64 with eight; 60x4096x4096 11.3 in 112 x 64 with eight, and 10.6 in 64 x 64 with six of two lines;
/// 8x4096x4096 9.9 in 48 x 64 with seven of two lines, 10.2 with 15 of one, 9.6 in 16 x 64 with five of four, and 9.4 in 8 x 64 with six of four
/// (h200-2026-11-30/rows.jsonl). Set by hand to these times.
pub(super) const WGMMA_MISSING_LINES: f64 = 2050.0;
/// Cycles of a stage that the other terms do not count, of kernels for a dynamic M: the two rings of 48 x 64 above have 16 and 32 stages of k.
pub(super) const WGMMA_STAGE: f64 = 16.0;
/// Stages of a ring that is long enough, and how much longer the k iterations take for each stage that is missing: 256 x 128 in three stages takes 1.1
/// times as long as the model has it beside tiles of four. Of a fit to 2,517 times of 87 products before it.
pub(super) const ENOUGH_STAGES: i64 = 4;
pub(super) const MISSING_STAGE: f64 = 0.1;
/// The share of the bytes from L2 that TMA loads reach with all multiprocessors: 62 of 61 a cycle, as the crossbar answers multiprocessors that
/// ask for the same line at about the same time with one read of L2: 128 x 64 reads 108 MB of L2 for 201 MB that arrive (256x4096x4096 NT).
/// And how many times as much one gets while most are idle. Of the fit of wgmma.
pub(super) const WGMMA_L2_SHARE: f64 = 62.0 / 61.0;
pub(super) const WGMMA_IDLE_SHARE: f64 = 2.2;
/// The part of this share that is lost where half of the blocks have tiles that lie beyond C for the most part. They load less, run ahead of the
/// others, and the crossbar finds no reads to join: 200x4096x4096 NT in 128 x 64 reads 154 MB of L2 and takes 27.1 us, 256x4096x4096 18.1.
/// A small share of such blocks costs nearly as much: the power of it that counts; and the stages from which on it costs all. Of the fit of wgmma.
pub(super) const RAGGED_LOSS: f64 = 0.325;
pub(super) const RAGGED_POWER: f64 = 0.25;
pub(super) const RAGGED_STAGES: f64 = 31.0;
/// Cycles of a block for the barriers of its cluster, for each doubling of the cluster. Of the fit.
pub(super) const CLUSTER_ENDS: f64 = 400.0;
/// How much longer a tile of one wave takes to leave where all blocks store at once, and the bytes that a row of a TMA store costs more which is no
/// whole number of sectors. Both are set by hand, to 93 times of four short sums (h100-2026-11-28).
pub(super) const STORE_BURST: f64 = 1.0;
pub(super) const PARTLY_WRITTEN: f64 = 80.0;
/// Bytes of C that a multiprocessor stores in a cycle where weights are packed: 45 cycles for 2048 bytes (h200-2026-11-22/limits/candidates.jsonl).
pub(super) const PACKED_STORE_BYTES: f64 = 2048.0 / 45.0;
/// Bytes in flight to a multiprocessor from which on half of the ring is enough: with 55 KB 64 x 128 gains 8 %, with 48 KB 64 x 64 loses 6 %
/// (16x11008x4096 and 64x4096x4096 on an H100; no record was kept).
pub(super) const ENOUGH_IN_FLIGHT: i64 = 50 << 10;
/// Further reads for a row of 128 bytes whose address is a multiple of so many bytes, in whole lines, where no other block shares it. Of the fit of
/// wgmma, but for the first, and the first of the next: with 1.33 the model takes 1.28 times the 599 us of bf16 NT 697x15291x14264 in 128 x 256 on an H200, and 1.2 to
/// 1.3 times those of 600x9952x4224 TN in persistent tiles; with 0.8, 1000^3 TT of f16 is multiplied in 64 x 128 by two, which takes 6.66 us, in 64 x 144 by
/// four 6.26 (h200-2026-12-01).
pub(super) const UNALIGNED_READS: [[f64; 2]; 3] = [[16.0, 0.9], [32.0, 0.62], [64.0, 0.35]];
/// The same of persistent blocks: the next block reads the other part of a line at about the same time. The second and third are set by hand: bf16 NT 10000^3, whose rows
/// begin inside lines, takes 0.962 of the time in 128 x 256 alone that it takes in clusters of two, which are a wave more (h200-2026-11-28/large.jsonl).
pub(super) const UNALIGNED_READS_AGAIN: [[f64; 2]; 3] = [[16.0, 0.9], [32.0, 0.3], [64.0, 0.2]];
/// The share of these reads where several blocks share the tile, and the share of the others that they save each other. Of the fit of wgmma.
pub(super) const UNALIGNED_SHARED: f64 = 0.2;
pub(super) const SHARED_READS: f64 = 0.63;
/// Bytes that parts by wgmma write and read in workspace up to which it stays in L2, and the time that they take over that in device memory: with 1, f16 NT
/// 640x640x8192 is added up in clusters, which takes 19.6 us on an H200 and 22.5 on an H100, by a kernel 14.5 and 15.2. Set by hand, as the next
/// constant, to the times of 12 products with k in parts and with shared tiles on an H200 and an H100 (h200-2026-11-28/parts.jsonl).
pub(super) const WORKSPACE_KEPT: f64 = 12e6;
pub(super) const WORKSPACE_COST: f64 = 1600.0 / 2400.0;
/// How much longer the stages of two and of four blocks that share tiles and have parts of k take than the other figures say.
pub(super) const SHARERS_WITH_PARTS: [f64; 2] = [1.12, 1.02];
/// The same where they have no parts. Set by hand: of some 60 times of four blocks the fit has 0.81 to 0.9, and then prefers four where two were faster. With
/// 1.02 and 0.98, 136x2176x1784 TT of bf16 is chosen in 64 x 128 by two, which takes 10.0 us on an H200, 8.4 in 128 x 64 by four.
pub(super) const SHARERS: [f64; 2] = [1.0, 0.94];
/// The same of persistent blocks. The first is of the fit of wgmma.
pub(super) const PERSISTENT_SHARERS: [f64; 2] = [1.055, 0.99];
/// How much longer device memory takes for an operand that many blocks read than for one that each block reads once: 12288x128x3072 NT of f16
/// takes 29.4 us in 96 x 128 and 32.8 in 192 x 64. Of the fit.
pub(super) const READ_AGAIN: f64 = 0.18;
/// How many times as long device memory takes where four blocks share the operand that all blocks read. Set by hand, to two products: with 0.97, 12288x128x3072 NT of
/// bf16 is multiplied in 128 x 128 by four, which takes 23.2 us on an H200, 22.3 in 96 x 128 (h200-2026-11-28).
pub(super) const READ_BY_FOUR: f64 = 0.98;
/// How many times its latency a stage by wgmma is on its way from busy device memory, and how bytes in flight and bandwidth limit each other. Set by
/// hand, to the four times of one product on an H200 in `Wgmma::flight`; not of the fit.
pub(super) const FLIGHT_LATENCIES: f64 = 2.0;
pub(super) const FLIGHT_OVERLAP: f64 = 3.5;
/// How much less device memory takes for each further line of a row in a stage. Set by hand: three more gain up to 2 % on an H200 and 4 to 7 % on an H100
/// (h200-2026-11-28/lines.jsonl).
pub(super) const FURTHER_LINE: f64 = 0.015;
/// Bytes from L2 that a multiprocessor takes in a cycle, in whole sectors. 128 bytes that begin inside a sector have five sectors instead of four: the
/// second figure. 1408x384x4352 NN of f16 takes 17.1 us on an H100 in 66 tiles of 64 x 128 and 11.8 in 132 of 64 x 64, each by two: 24 and 16 KB a stage at 61 bytes a cycle. With 66 to 75
/// the fit of wgmma is alike.
pub(super) const ARRIVING_BYTES: f64 = 70.0;
pub(super) const SPLIT_SECTORS: f64 = 1.25;
/// Cycles between two stages in which no MMA runs, with warpgroups in ping-pong and cooperative ones of 128 x 256, and bytes
/// of C that the latter store in a cycle behind a tile (h200-2026-11-22/hopper/turns.jsonl, h200-2026-11-23/turns_variants.jsonl). s8 NT 8192^3 with
/// results of 32 bits takes 1.16 million cycles on an H200 in 16 waves of 128 x 256, which are 1.05 million of MMAs: 4400 a tile besides the bubbles.
pub(super) const PINGPONG_BUBBLE: f64 = 27.0;
/// The share of the bytes from L2 that warpgroups in ping-pong reach: 52 of 61 a cycle. On an H100 ping-pong takes 0.91 to 1.02 times as long as
/// 128 x 256 for six large products, and 0.91 to 1.01 by this figure. With 49, 5120^3 NN in 160 x 256 would take 0.99 and 8192^3 NT in 168 x 256 1.07,
/// which take 0.91 and 0.99. The measured figures are quotients of ratios to the library, as the power limit changes the clock between two
/// measurements (h100-2026-11-28).
pub(super) const PINGPONG_L2_SHARE: f64 = 52.0 / 61.0;
pub(super) const COOPERATIVE_BUBBLE: f64 = 40.0;
pub(super) const COOPERATIVE_STORE_BYTES: f64 = 128.0 * 256.0 / 1000.0;
/// Cycles from the last wgmma of a stage to the first of the next besides the additions of partial sums: the wait, the barrier of the next
/// stage, and the descriptors. An estimate.
pub(super) const PROMOTION_LATENCY: f64 = 100.0;
/// The part of the cooperative cycles that ping-pong must gain where it moves twice the bytes for each MMA, and as much less as it moves fewer: bytes
/// take power, and so time where power is the limit (h200-2026-11-23/turns_variants.jsonl). In 256 x 192 it moves 1.11 times those of 128 x 256, and takes
/// 0.98 to 0.99 of its time on an H100 for 2048x128256x4096 of bf16, where the tensor cores alone would take 0.976. In 192 x 256 with swapped operands it
/// moves 1.2 times those of 144 x 256 and takes 1.02 to 1.10 of its time for 7488x2560x4800 and 7297x2528x4800 NT of f16, where the tensor cores
/// would take 0.98. In 256 x 176 it moves 1.15 times those of 128 x 256 and takes 0.98 of its time for 4096x14336x4096 TT of f16, and 0.976 by the tensor cores.
/// Products of bytes were not found to pay for that, nor to wait for more bytes from L2 than they get: s8 NT 8192^3 takes 0.961 of the time of 128 x 256 on an H200 in
/// 256 x 128, which moves 1.33 times the bytes for each MMA, and the tensor cores would take 0.957; 4096^3 0.942 (h200-2026-11-28/large.jsonl).
pub(super) const PINGPONG_BYTES: f64 = 0.15;
/// How much longer tiles by wgmma take than the model says where half of a tile lies beyond a C of few rows or columns: on an H100
/// 16x4096x4096 NT of f16 takes 19.3 us in such tiles, 15.7 by mma.sync and 9.6 and 7.8 for 2352x16x1864 NN (no record was kept).
pub(super) const WGMMA_BEYOND: f64 = 1.23;
/// A difference of cycles that is noise.
pub(super) const SAME_CYCLES: f64 = 1.005;

/// The cost of adding up parts through distributed shared memory: barrier cycles for each block of the cluster, and bytes a cycle that a block
/// stores. Of the fit.
pub(super) const CLUSTER_BLOCK: f64 = 50.0;
pub(super) const CLUSTER_BYTES: f64 = 6.0;
/// Bytes of the accumulators of a tile from which on vectors take less time.
pub(super) const STAGED_PARTS: i64 = 32 << 10;
/// The share of the device memory bandwidth that is lost if all multiprocessors but one are idle. An estimate: on an H100 a loss of 3 % with 64
/// busy ones of 132 and of up to 10 % with 86 (8x4096x4096 and 8x11008x4096 NT of f16; no record was kept).
pub(super) const IDLE_LOSS: f64 = 0.1;
