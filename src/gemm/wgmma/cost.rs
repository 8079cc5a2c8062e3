//! What tiles of the recipe by wgmma need: shared memory, blocks, and their [`Work`].

use super::{LINE, Operand, ROWS, Source, SwapAb, Wgmma, bytes, in_bytes, processors, registers, room, up};
use crate::gemm::Mma;
use crate::gemm::split::{Combine, combining, parts_bytes, sharing_out, staged_bytes, stages_parts};
use crate::gemm::tiles::WARPGROUP;
use crate::gemm::tuning;
use crate::gemm::work::{
    Flight, Passes, Work, bytes_read, cycles, further_reads, memory, operand_bytes, passes, result_bytes,
};
use crate::target::{LANES, REGISTERS_PER_SM, Target};
use crate::te::GemmSpec;

/// Bytes of a sector, the least that device memory writes.
const SECTOR: i64 = 32;
/// Waves of persistent blocks from which on ragged tiles leave no block ahead of the others.
const EVEN_WAVES: i64 = 8;

impl Wgmma {
    /// Bytes of shared memory of a block, at least: where a producer loads one tile alone, C may take the place of the ring.
    pub fn shared(&self, spec: &GemmSpec) -> i64 {
        self.shared_with(spec, self.persistent)
    }

    /// The same with C beside the ring of a producer.
    pub(super) fn shared_apart(&self, spec: &GemmSpec) -> i64 {
        self.shared_with(spec, self.persistent || self.producer)
    }

    fn shared_with(&self, spec: &GemmSpec, apart: bool) -> i64 {
        let ring = self.stage_bytes(spec) * self.stages;
        let out = if self.stores_by_tma() && (self.persistent || self.producer) {
            self.store_tile_shape(spec).iter().product::<i64>() * bytes(spec.out) * self.out_stages
        } else {
            0
        };
        let tile = if self.stages_parts() {
            staged_bytes(self.block)
        } else if self.stores_by_tma() || self.parts > 1 {
            0
        } else {
            self.block[0] * self.block[1] * bytes(spec.out)
        };
        // Other blocks store there while this one still multiplies.
        let parts = if self.adds_in_cluster() { parts_bytes(self.block, self.parts) } else { 0 };
        let own = if apart { ring + out } else { ring.max(out) };
        own.max(tile) + parts + 16 * self.stages + 2048
    }

    /// Rows and columns of C whose operands a stage holds: those of one warpgroup in ping-pong, or all of the block's.
    pub(super) fn stage_tile(&self) -> [i64; 2] {
        let mut stage_tile = self.block;
        if self.pingpong {
            stage_tile[self.swap_ab.rows()] /= self.warpgroups;
        }
        stage_tile
    }

    /// Bytes of an operand's tile in a stage: whole panels of its rows.
    fn fetched_bytes(&self, spec: &GemmSpec, operand: Operand) -> i64 {
        let side = self.stage_tile()[operand as usize];
        if self.tile_along_k(spec, operand) {
            return in_bytes(side * self.bk, spec);
        }
        let panel = self.swizzle_of(spec, operand);
        up(in_bytes(side, spec), panel) * panel * self.bk
    }

    /// Bytes of a stage.
    pub(super) fn stage_bytes(&self, spec: &GemmSpec) -> i64 {
        self.loaded_bytes(spec) + self.transposed_bytes(spec)
    }

    /// Bytes of a stage that TMA loads.
    fn loaded_bytes(&self, spec: &GemmSpec) -> i64 {
        Operand::BOTH.into_iter().map(|operand| self.fetched_bytes(spec, operand)).sum()
    }

    /// Whether the blocks of a cluster add up parts.
    pub(super) fn adds_in_cluster(&self) -> bool {
        self.parts > 1 && self.combine == Combine::Cluster
    }

    /// Whether a part of a tile leaves through the block's own shared memory.
    pub(super) fn stages_parts(&self) -> bool {
        self.adds_in_cluster() && stages_parts(self.block)
    }

    /// Rows and columns of C that a block stores at once.
    fn store_tile_shape(&self, spec: &GemmSpec) -> [i64; 2] {
        match self.swap_ab {
            SwapAb::Straight => [self.block[0], self.store_columns(spec)],
            SwapAb::Swapped if self.rows_in_registers => [registers::STORED_ROWS, self.block[1]],
            SwapAb::Swapped => [self.store_rows(), self.block[1]],
        }
    }

    /// Tiles of C.
    pub(super) fn tiles(&self, spec: &GemmSpec) -> i64 {
        let along = |d: usize| up([spec.m, spec.n][d], self.block[d] * self.cluster[d]) * self.cluster[d];
        along(0) * along(1) * spec.products()
    }

    /// Blocks of the grid.
    pub fn blocks(&self, spec: &GemmSpec) -> i64 {
        self.tiles(spec) * self.parts
    }

    /// From 0 to 1, how far blocks drift apart while they sum.
    pub(super) fn drift(&self, spec: &GemmSpec) -> f64 {
        (self.k_stages(spec) as f64 / tuning::RAGGED_STAGES).min(1.0)
    }

    /// Ring stages that a tile of C, or a part of its sum, takes along k.
    pub(super) fn k_stages(&self, spec: &GemmSpec) -> i64 {
        up(spec.k, self.bk * self.parts)
    }

    /// Whether a block has all registers of a multiprocessor: a producer beside several warpgroups gives them its own. 11200x12416x128 TN of f16 takes 137 us on
    /// an H100 in 128 x 128 of two warpgroups, which shared memory has room for twice, and 118 in the same of one (h100-2026-11-27/candidates.jsonl).
    pub(super) fn takes_all_registers(&self) -> bool {
        self.producer && self.warpgroups > 1
    }

    /// Blocks that share a multiprocessor: as many as shared memory and registers have room for.
    pub(super) fn resident(&self, spec: &GemmSpec, target: &Target) -> i64 {
        if self.takes_all_registers() {
            return 1;
        }
        let apart = self.shared_apart(spec);
        let shared = if apart <= room(target) { apart } else { self.shared(spec) };
        let threads = WARPGROUP * self.warpgroups + if self.producer { LANES } else { 0 };
        let accumulators = self.block[0] * self.block[1] / (WARPGROUP * self.warpgroups);
        let registers = threads * (accumulators + tuning::ADDRESS_REGISTERS);
        // More than four small ones were not measured.
        (room(target) / shared).min(i64::from(REGISTERS_PER_SM) / registers).clamp(1, 4)
    }

    /// What the GEMM asks of the device in these tiles.
    pub(super) fn work(&self, spec: &GemmSpec, target: &Target) -> Work {
        let ([m, n], row) = (self.stage_tile(), in_bytes(self.bk, spec));
        let rate = target.device().operations_per_clock(spec.a, spec.acc).unwrap_or(f64::INFINITY);
        let (fetched, transposed) = (self.loaded_bytes(spec), self.transposed_bytes(spec));
        // A warpgroup reads its rows of A once, and all columns of B for each 64 rows.
        let warpgroups = if self.pingpong { 1 } else { self.warpgroups };
        let (tall, wide) = if self.swap_ab.is_swapped() { (n, m) } else { (m, n) };
        let operands = warpgroups * (tall / warpgroups + wide * (tall / warpgroups / ROWS)) * row;
        let mma = (2 * m * n * self.bk) as f64 / rate;
        // By Nsight Compute the banks are busy for all bytes where tiles are transposed.
        let share = if transposed > 0 { 1.0 } else { tuning::WGMMA_SHARED };
        let shared_bytes = share * (operands + fetched + 2 * transposed) as f64;
        let common = Work {
            mma,
            bubble: self.promotion_bubble(mma),
            latency: (tuning::WGMMA_STAGE_LATENCY / (self.stages - 1).max(1) as f64).max(self.transposing(spec)),
            power: power(shared_bytes, fetched as f64, target),
            tiles: self.blocks(spec),
            launch: tuning::WGMMA_LAUNCH,
            prologue: tuning::WGMMA_PROLOGUE + self.cluster_ends(),
            memory_bytes: self.stored_bytes(spec) + self.operand_reads(spec, target),
            memory_share: tuning::MEMORY_SHARE / (self.of_shared_reads(spec) * self.of_lines(spec)),
            flight: self.flight(spec),
            memory_idle: self.memory_idle(spec, target),
            ..Work::NONE
        };
        if self.pingpong {
            return self.in_pingpong(common, spec);
        }
        let [m, n] = self.block;
        let stored = if self.parts > 1 { bytes(spec.acc) } else { bytes(spec.out) };
        Work {
            shared_bytes,
            l2_bytes: self.l2_bytes(spec),
            arriving_bytes: self.arriving_bytes(spec),
            l2_share: self.l2_share(spec, target),
            idle_share: tuning::WGMMA_IDLE_SHARE,
            overlap: tuning::WGMMA_OVERLAP,
            iterations: self.k_stages(spec) as f64 * self.of_short_ring(spec) * self.of_cluster(),
            epilogue: match self.adds_in_cluster() {
                true => sharing_out([m, n], self.parts),
                false => (m * n * stored) as f64 / tuning::STORE_BYTES * self.of_burst(spec, target),
            },
            resident: self.resident(spec, target),
            stays: self.persistent,
            cluster: if self.adds_in_cluster() { self.parts } else { self.cluster.iter().product() },
            passes: self.combining(spec),
            ..common
        }
    }

    /// The same of warpgroups in ping-pong. Bytes through shared memory are left out: at their widths the MMAs take longer. The prologue and the
    /// epilogue of a warpgroup overlap the MMAs of the other.
    fn in_pingpong(&self, common: Work, spec: &GemmSpec) -> Work {
        Work {
            bubble: tuning::PINGPONG_BUBBLE,
            power: if pays_for_bytes(spec) { common.power } else { 0.0 },
            latency: 0.0,
            iterations: (self.k_stages(spec) * self.warpgroups) as f64,
            prologue: 0.0,
            // Each warpgroup reads the operand that they share, the second a whole tile later.
            memory_bytes: common.memory_bytes + operand_bytes(spec, self.swap_ab.columns()),
            l2_bytes: self.l2_bytes(spec),
            // A product of a batch has little that is not in L2 yet.
            l2_share: if spec.batch.is_none() && pays_for_bytes(spec) { tuning::PINGPONG_L2_SHARE } else { 1.0 },
            ..common
        }
    }

    /// How much longer the stages of a short ring take: fewer than four do not bridge what varies in the time of a load.
    fn of_short_ring(&self, spec: &GemmSpec) -> f64 {
        let missing = self.k_stages(spec).min(tuning::ENOUGH_STAGES) - self.stages;
        1.0 + tuning::MISSING_STAGE * missing.max(0) as f64
    }

    /// How much longer a tile of 16-bit results takes to leave in one wave: after a short sum all blocks store at once, after a long one they have
    /// drifted apart. Results of 32 bits were not found to take longer (2825x456x96 TN of s8).
    fn of_burst(&self, spec: &GemmSpec, target: &Target) -> f64 {
        let drift = self.drift(spec);
        let one_wave = self.blocks(spec) <= self.resident(spec, target) * i64::from(processors(target));
        if one_wave && !self.persistent && bytes(spec.out) == 2 {
            1.0 + tuning::STORE_BURST * (1.0 - drift)
        } else {
            1.0
        }
    }

    /// How many times as long device memory takes: less where four blocks share the smaller operand, which all blocks read, and no block shares the
    /// rows that it reads of the other. f16 NT 96x11008x4096 takes 36.2 us on an H100 in 96 x 128 alone and 33.8 by four, bf16 NT 12288x128x3072 31.9 in 128 x 128 alone
    /// and 30.0 by four; but bf16 TT 3136x152x5536 21.7 in 64 x 80 by four, where blocks read A twice (h100-2026-11-28/candidates.jsonl).
    fn of_shared_reads(&self, spec: &GemmSpec) -> f64 {
        let [a, b] = Operand::BOTH.map(|operand| operand_bytes(spec, operand));
        let smaller = if a < b { Operand::A } else { Operand::B };
        let lone = smaller.rows(spec) <= self.block[smaller as usize];
        if lone && self.cluster[smaller.other() as usize] == 4 { tuning::READ_BY_FOUR } else { 1.0 }
    }

    /// Cycles in which blocks of one tile ask device memory for nothing, as those of a wave begin and end together. 1x11008x4096 NT of f16 takes 24.6 us on an
    /// H200 in 8 x 128 in four parts of k, which are 2.6 waves of lone blocks, 23.3 in two parts, and 22.1 in 8 x 64 in two parts, which
    /// are one wave.
    fn memory_idle(&self, spec: &GemmSpec, target: &Target) -> f64 {
        if self.persistent {
            return 0.0;
        }
        let waves = up(self.blocks(spec), self.resident(spec, target) * i64::from(processors(target))) as f64;
        let adding = if self.adds_in_cluster() { sharing_out(self.block, self.parts) } else { 0.0 };
        (waves - 1.0) * (tuning::WGMMA_PROLOGUE + self.cluster_ends() + adding)
    }

    /// What a resident tile has in flight. 1x11008x4096 NT of f16 takes 22.4 us on an H200 in 86 blocks of 8 x 128 with six stages, 23.4 with five, 26.8 with
    /// four and 32.5 with three.
    fn flight(&self, spec: &GemmSpec) -> Flight {
        Flight {
            bytes: ((self.stages - 1) * self.stage_bytes(spec)) as f64,
            latencies: tuning::FLIGHT_LATENCIES,
            overlap: tuning::FLIGHT_OVERLAP,
            first: (self.stages as f64 / self.k_stages(spec) as f64).min(1.0),
        }
    }

    /// How many times as long device memory takes where a stage has several lines of each row of the operand that gives the rows of instructions.
    fn of_lines(&self, spec: &GemmSpec) -> f64 {
        1.0 - tuning::FURTHER_LINE * (in_bytes(self.bk, spec) / LINE - 1).max(0) as f64
    }

    /// The kernel that adds up parts. Workspace that stays in L2 takes less time.
    fn combining(&self, spec: &GemmSpec) -> Passes {
        let all = combining(spec, self.parts, self.combine);
        let kept = all.memory_bytes.min(tuning::WORKSPACE_KEPT);
        Passes { memory_bytes: all.memory_bytes - (1.0 - tuning::WORKSPACE_COST) * kept, ..all }
    }

    /// How much longer the stages take in a cluster: blocks wait for each other, and persistent ones for each other's epilogues, too.
    fn of_cluster(&self) -> f64 {
        let [of_two, of_four] = match (self.persistent, self.parts) {
            (true, _) => tuning::PERSISTENT_SHARERS,
            (false, 1) => tuning::SHARERS,
            (false, _) => tuning::SHARERS_WITH_PARTS,
        };
        match self.cluster[0] * self.cluster[1] {
            1 => 1.0,
            2 => of_two,
            _ => of_four,
        }
    }

    /// Bytes of the result in device memory. A row of a panel that TMA stores from inside a sector on writes a sector more: 7008x1084x96 TN of s8
    /// takes 20.2 us on an H100 in 128 x 128 so, and 18.0 by mma.sync, which stores rows of 512 bytes (h100-2026-11-27).
    fn stored_bytes(&self, spec: &GemmSpec) -> f64 {
        let inside = spec.n * bytes(spec.out) % SECTOR != 0;
        let more = if self.stores_by_tma() && inside { SECTOR as f64 / LINE as f64 } else { 0.0 };
        result_bytes(spec) * (1.0 + more.max(self.partly_written(spec)))
    }

    /// The share of the bytes of C that boxes of TMA stores cost more whose rows are no whole sectors: 256x13824x128 TN of bf16 takes 7.3 us on an H100 in
    /// 256 x 112, which leaves in boxes of 112 bytes, and 6.0 in 128 x 224, 960x5632x80 TN of f16 9.6 in 256 x 176 (176 bytes) and 7.3 in 192 x 224.
    fn partly_written(&self, spec: &GemmSpec) -> f64 {
        let row = self.store_tile_shape(spec)[1] * bytes(spec.out);
        let whole = row % SECTOR == 0 || !self.stores_by_tma() || spec.n <= self.block[1];
        if whole { 0.0 } else { tuning::PARTLY_WRITTEN / row as f64 }
    }

    /// Whether device memory decides, not what a multiprocessor does.
    pub(super) fn waits_for_memory(&self, spec: &GemmSpec, target: &Target) -> bool {
        let work = Work { passes: Default::default(), ..self.work(spec, target) };
        let alone = cycles(&Work { memory_bytes: 0.0, launch: 0.0, ..work }, &target.device());
        memory(&work, &target.device()) > tuning::WAITING * alone
    }

    /// Cycles of the tiles of the busiest multiprocessor, by which ping-pong and cooperative warpgroups are compared: MMAs and the
    /// bubbles around them, device memory, or in ping-pong L2. Ping-pong with 256 x 112 reads B twice for 256x28672x8192 NT of f16, which takes 330 us on an
    /// H100, the library 197 (no record was kept).
    pub(super) fn mma_cycles(&self, spec: &GemmSpec, target: &Target) -> f64 {
        let work = self.work(spec, target);
        let [m, n] = self.block;
        let stored = (m * n * bytes(spec.out)) as f64 / tuning::COOPERATIVE_STORE_BYTES;
        let epilogue = if self.pingpong { 0.0 } else { stored };
        let bubble = if self.pingpong { work.bubble } else { tuning::COOPERATIVE_BUBBLE };
        let device = target.device();
        let Work { mma, iterations, tiles, l2_share, .. } = work;
        let l2_bytes = if self.pingpong { work.l2_bytes } else { 0.0 };
        let multiplying = Work { mma, bubble, iterations, tiles, epilogue, l2_bytes, l2_share, ..Work::NONE };
        // What both forms read and write alike is left out; the second warpgroup in ping-pong reads the shared operand once more.
        let again = if self.pingpong { operand_bytes(spec, self.swap_ab.columns()) } else { 0.0 };
        let read = Operand::BOTH.into_iter().map(|operand| operand_bytes(spec, operand)).sum::<f64>() + again;
        let reading = Work { memory_bytes: read, memory_share: 1.0, ..work };
        cycles(&multiplying, &device).max(memory(&reading, &device))
    }

    /// Bytes that a stage reads from L2, where a row of a panel counts as a line: on an H100 a multiprocessor gets 43 bytes a cycle in panels of 128
    /// bytes and 23 in panels of 64 (8192^3 NN of f16 in ping-pong, 256 x 160 beside 256 x 192 and others; no record was kept). A row that begins
    /// inside a line comes as two pieces, and where it begins inside a sector as sectors that it has in part; blocks that share a tile read it once, but
    /// gain less, as the crossbar joins the reads of others, too.
    fn l2_bytes(&self, spec: &GemmSpec) -> f64 {
        let one = |operand: Operand| {
            let sharers = self.cluster[operand.other() as usize] as f64;
            let panel = self.swizzle_of(spec, operand).min(LINE);
            let aligned = self.alignment(spec, operand);
            let reads = if self.persistent { tuning::UNALIGNED_READS_AGAIN } else { tuning::UNALIGNED_READS };
            let pieces = further_reads(&reads, aligned);
            let inside = (panel - panel.min(aligned)) as f64 / (LINE - aligned).max(1) as f64;
            let share = if sharers > 1.0 { tuning::UNALIGNED_SHARED } else { 1.0 };
            let reads = 1.0 - tuning::SHARED_READS * (1.0 - 1.0 / sharers) + share * pieces * inside;
            let lines = (LINE / panel) as f64;
            self.fetched_bytes(spec, operand) as f64 * reads * lines
        };
        Operand::BOTH.into_iter().map(one).sum()
    }

    /// Bytes that a stage takes of L2, in whole sectors.
    fn arriving_bytes(&self, spec: &GemmSpec) -> f64 {
        let one = |operand: Operand| {
            let split = if self.alignment(spec, operand) < SECTOR { tuning::SPLIT_SECTORS } else { 1.0 };
            split * self.fetched_bytes(spec, operand) as f64
        };
        Operand::BOTH.into_iter().map(one).sum()
    }

    /// Bytes that the addresses of the rows of an operand's tiles are multiples of, up to a line.
    fn alignment(&self, spec: &GemmSpec, operand: Operand) -> i64 {
        let along_k = self.tile_along_k(spec, operand);
        let d = operand as usize;
        let side = self.stage_tile()[d];
        // Packed rows are whole tiles.
        let whole = self.block[d] * self.cluster[d];
        let pitch = match self.routes[d] {
            Source::Direct => in_bytes(operand.multiple(spec), spec).max(1),
            Source::Packed if along_k => LINE,
            Source::Packed => in_bytes(up(operand.rows(spec), whole) * whole, spec),
        };
        // Tiles across k begin inside a row of the operand.
        let begins_inside = !along_k && operand.rows(spec) > side;
        let tile = if begins_inside { in_bytes(side, spec) } else { LINE };
        LINE.min(1 << pitch.trailing_zeros()).min(1 << tile.trailing_zeros())
    }

    /// The share of the bytes from L2 that a multiprocessor gets. It is less where ragged tiles let blocks run ahead over many stages.
    fn l2_share(&self, spec: &GemmSpec, target: &Target) -> f64 {
        // In many waves blocks have whole tiles and ragged ones in turn.
        let many = self.persistent && self.blocks(spec) > EVEN_WAVES * i64::from(processors(target));
        let drift = if many { 0.0 } else { self.drift(spec) };
        tuning::WGMMA_L2_SHARE * (1.0 - tuning::RAGGED_LOSS * self.raggedness(spec).powf(tuning::RAGGED_POWER) * drift)
    }

    /// Bytes of both operands; an operand that several blocks read counts for more.
    fn operand_reads(&self, spec: &GemmSpec, target: &Target) -> f64 {
        let one = |operand: Operand| {
            let across = operand.other();
            let blocks = up(across.rows(spec), self.stage_tile()[across as usize] * self.cluster[across as usize]);
            let bytes = bytes_read(spec, operand, self.read_from(operand), &target.device());
            bytes * (1.0 + tuning::READ_AGAIN * (1.0 - 1.0 / blocks as f64))
        };
        Operand::BOTH.into_iter().map(one).sum()
    }

    /// From 0, where all blocks load as many bytes, to 1, where half of them load none.
    fn raggedness(&self, spec: &GemmSpec) -> f64 {
        let tile = self.stage_tile();
        let one = |operand: Operand| {
            let (side, whole) = (operand.rows(spec), tile[operand as usize]);
            let (tiles, missing) = (up(side, whole), (whole - side % whole) % whole);
            let share = 1.0 / tiles as f64;
            // Where there is one tile, all blocks have it.
            let apart = if tiles > 1 { share.min(1.0 - share) } else { 0.0 };
            4.0 * apart * missing as f64 / tile.iter().sum::<i64>() as f64
        };
        Operand::BOTH.into_iter().map(one).sum::<f64>().min(1.0)
    }

    /// The candidates that take fewer cycles than the best tiles by mma.sync, the cheapest first. None where half of the least
    /// tile lies beyond C: on an H100 16x4096x4096 NT of f16 takes 19.3 us so and 15.7 by mma.sync, 2352x16x1864 NN 9.6 and 7.8.
    pub(in crate::gemm) fn paying(spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        let mut all = Wgmma::candidates(spec, target);
        if let Some(most) = Mma::least_cycles(spec, target).filter(|_| !all.is_empty()) {
            all.retain(|w| !w.is_half_beyond(spec));
            all.retain(|w| w.cycles_with_packing(spec, target) < most);
        }
        all
    }

    /// Cycles that the GEMM takes in these tiles, with the kernels that pack its operands.
    pub(in crate::gemm) fn cycles_with_packing(&self, spec: &GemmSpec, target: &Target) -> f64 {
        let widening = self.widening(spec, target);
        let spec = &self.multiplied(spec);
        self.cycles(spec, target) + self.packing(spec, target) + widening
    }

    /// As [`Wgmma::cycles_with_packing`], with the bubbles and the epilogues that decide between ping-pong and cooperative warpgroups of
    /// persistent blocks, and the prologue that ping-pong has once.
    pub(in crate::gemm) fn compared_cycles(&self, spec: &GemmSpec, target: &Target) -> f64 {
        let widening = self.widening(spec, target);
        let spec = &self.multiplied(spec);
        let own = self.cycles(spec, target);
        let own = if self.persistent { own.max(self.mma_cycles(spec, target)) } else { own };
        let prologue = if self.pingpong { tuning::WGMMA_PROLOGUE } else { 0.0 };
        let beyond = if self.is_half_beyond(spec) { tuning::WGMMA_BEYOND } else { 1.0 };
        beyond * own + prologue + self.packing(spec, target) + widening
    }

    /// Whether half of the tile lies beyond a C of few rows or columns.
    fn is_half_beyond(&self, spec: &GemmSpec) -> bool {
        2 * spec.m.min(spec.n) <= ROWS && self.block[1 - self.swap_ab.rows()] > ROWS / 2
    }

    /// Cycles of the kernels that pack the operands.
    fn packing(&self, spec: &GemmSpec, target: &Target) -> f64 {
        let packed = Operand::BOTH.into_iter().filter(|o| self.routes[*o as usize] == Source::Packed);
        let packed_bytes = packed.clone().map(|o| o.packing_bytes(spec, spec.a.bits().into())).sum();
        let own = Passes { packs: packed.count(), packed_bytes, ..Passes::default() };
        passes(&Work { passes: own, ..Work::NONE }, &target.device())
    }

    /// Cycles that the GEMM takes in these tiles.
    pub(super) fn cycles(&self, spec: &GemmSpec, target: &Target) -> f64 {
        cycles(&self.work(spec, target), &target.device())
    }
}

/// Whether warpgroups in ping-pong take longer for the bytes that they move ([`tuning::PINGPONG_BYTES`]).
pub(super) fn pays_for_bytes(spec: &GemmSpec) -> bool {
    spec.a.bits() == 16
}

/// Cycles of a stage by the power limit alone: bytes through shared memory and from L2 take power, which tiles of other forms have more or less of for
/// as many MMAs.
fn power(shared_bytes: f64, fetched: f64, target: &Target) -> f64 {
    let shared = shared_bytes / f64::from(target.device().shared_bytes_per_cycle);
    tuning::WGMMA_SHARED_POWER * shared + fetched / tuning::WGMMA_FETCHED_POWER
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::lower::lower;
    use crate::sample::drawn;
    use crate::te::Layout;

    fn choice([m, n, k]: [i64; 3], layout: Layout) -> Wgmma {
        Wgmma::choose(&GemmSpec::of(m, n, k, DType::F16, layout), &Target::sm_90a()).unwrap()
    }

    #[test]
    fn long_sums_of_few_tiles_are_divided() {
        for size in [[256, 256, 65536], [128, 128, 16384], [64, 512, 12800]] {
            let chosen = choice(size, Layout::NT);
            let blocks = chosen.blocks(&GemmSpec::of(size[0], size[1], size[2], DType::F16, Layout::NT));
            assert!(chosen.parts > 1 && (64..=264).contains(&blocks), "{size:?}: {chosen:?}");
        }
        for size in [[4096; 3], [1000; 3], [8192, 8192, 64]] {
            assert_eq!(choice(size, Layout::NT).parts, 1, "{size:?}");
        }
    }

    /// By mma.sync 697x15291x14264 NT of bf16 takes 744 us at least on an H200, in 128 x 256 by wgmma 599.
    #[test]
    fn rows_that_begin_inside_lines_are_read_by_wgmma() {
        let spec = GemmSpec::of(697, 15291, 14264, DType::F16, Layout::NT);
        let paying = Wgmma::paying(&spec, &Target::sm_90a());
        assert_eq!(paying.first().map(|w| w.block), Some([128, 256]));
    }

    #[test]
    fn a_block_of_several_warpgroups_has_a_ring_for_its_next_tiles() {
        let spec = GemmSpec::of(4096, 8192, 64, DType::F16, Layout::NT);
        let [two, one] = [2, 1].map(|warpgroups| Wgmma::of(&spec, [128, 128], warpgroups, &Target::sm_90a()));
        let resident = |w: &Wgmma| w.resident(&spec, &Target::sm_90a());
        assert_eq!((two.k_stages(&spec), resident(&two), resident(&one)), (1, 1, 2));
        assert!(two.persistent && two.stages > 4 && one.stages == 2, "{two:?} {one:?}");
    }

    #[test]
    fn two_blocks_share_rows_that_cross_lines() {
        let shares = |size, layout| choice(size, layout).cluster;
        // Rows of A or B of 7856, of 7424 and 4096, of 10000 bytes.
        assert_eq!(shares([3712, 2048, 3928], Layout::TT), [2, 1]);
        assert_eq!(shares([3712, 2048, 3928], Layout::TN), [1, 1]);
        assert_eq!(shares([5000, 5000, 5000], Layout::NT), [2, 1]);
        assert_eq!(shares([4096, 4096, 4096], Layout::NN), [1, 1]);
    }

    /// A sample of the tiles, and the first of each GEMM.
    #[test]
    fn every_number_of_parts_lowers() {
        let target = Target::sm_90a();
        for (layout, [m, n, k]) in
            Layout::ALL.into_iter().zip([[256, 256, 8192], [60, 500, 7000], [128, 72, 9001], [17, 33, 5120]])
        {
            let gemm = crate::gemm::Gemm::new(m, n, k).of(DType::Bf16).layout(layout);
            let divided = Wgmma::candidates(gemm.spec(), &target).into_iter().filter(|w| w.parts > 1);
            let divided: Vec<_> = divided.collect();
            assert!(divided.len() > 4);
            for (at, w) in divided.into_iter().enumerate() {
                if at > 0 && !drawn(&format!("parts {w:?} of {gemm:?}"), 4) {
                    continue;
                }
                let schedule = crate::gemm::schedule(
                    &crate::gemm::Product::of_gemm(&gemm).unwrap(),
                    &target,
                    w.steps(gemm.spec()),
                )
                .unwrap();
                let lowered = schedule.scheduled().and_then(|func| lower(&func, &target));
                assert!(lowered.is_ok(), "{w:?} of {m}x{n}x{k}: {}", lowered.unwrap_err());
            }
        }
    }
}
