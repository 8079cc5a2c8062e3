//! What tiles of the recipe by mma.sync need: registers, resident blocks, and their [`Work`].

use super::{FragmentBuffers, Mma, Operand, OperandForm, Source, up};
use crate::gemm::operand::WORD;
use crate::gemm::split::{combining, sharing_out};
use crate::gemm::tuning;
use crate::gemm::work::{
    ACCESS, Flight, MMA_DEPTH, MMA_ELEMENTS, Passes, Work, bytes_read, hidden_launch, mma_cycles, partly_written,
    result_bytes,
};
use crate::target::{Features, LANES, SCHEDULERS, Target};
use crate::te::GemmSpec;

/// Words that are loaded for each word of 16 bytes that begin between words: five for four. And registers: those, an address and a selector.
const REALIGNED_WORDS: f64 = 1.25;
const REALIGNED_REGISTERS: i64 = 2;

impl Mma {
    /// Cycles of the cheapest tiles; `None` where there are none.
    pub(in crate::gemm) fn least_cycles(spec: &GemmSpec, target: &Target) -> Option<f64> {
        Mma::with_cycles(spec, target).first().map(|(cycles, _)| *cycles)
    }

    /// What the GEMM asks of the device in these tiles.
    pub(in crate::gemm) fn work(&self, spec: &GemmSpec, target: &Target) -> Work {
        let ([bm, bn], [wm, wn]) = (self.block, self.warp());
        let tiles = up(spec.m, bm).saturating_mul(up(spec.n, bn));
        let per_scheduler = (self.warps[0] * self.warps[1]) as f64 / SCHEDULERS as f64;
        let cycles = mma_cycles(spec, &target.device());
        // Eight 4-bit integers of each lane become bytes, for two MMAs.
        let (mma, unpack) = match self.form {
            OperandForm::Unpacked => (2.0 * cycles, (wm + wn) as f64 / 4.0 * tuning::UNPACK_CYCLES),
            _ if self.transposes_any(spec) => (cycles * tuning::TRANSPOSED_BYTES_MMA, self.permuting(spec)),
            _ => (cycles, 0.0),
        };
        let used: f64 = Operand::BOTH.into_iter().map(|operand| self.moved(spec, operand)).sum();
        let stored = if self.parts > 1 { 4 } else { i64::from(spec.out.bits()) / 8 };
        let stage = tuning::MMA_STAGE_LATENCY * self.form.depth(spec) as f64 / self.bk as f64;
        let copying = self.copying(spec);
        let lone = (wm * wn / MMA_ELEMENTS) as f64 * mma + tuning::MMA_LATENCY + unpack + stage;
        let storing = copying / (self.warps[0] * self.warps[1]) as f64;
        let blocks = tiles.saturating_mul(self.parts).saturating_mul(spec.products());
        let work = Work {
            mma: (bm * bn / MMA_ELEMENTS) as f64 * mma / SCHEDULERS as f64 + self.loading_elements(spec, target),
            issue: per_scheduler * unpack + copying / SCHEDULERS as f64,
            // Tiles on their way through registers are loaded during the products of the stage before, and stored after them.
            latency: if self.asynchronous { lone } else { lone.max(self.loading(spec, target, blocks)) + storing },
            first: if self.asynchronous {
                [0.0; 2]
            } else {
                [(self.bk / self.form.depth(spec)) as f64, lone + storing]
            },
            l2_bytes: MMA_DEPTH as f64 * used,
            l2_share: tuning::MMA_L2_SHARE,
            overlap: tuning::MMA_OVERLAP,
            memory_share: match target.has(Features::WGMMA) {
                true => tuning::MMA_MEMORY_SHARE,
                false => tuning::MEMORY_SHARE,
            },
            iterations: (up(spec.k, self.bk * self.parts) * self.bk / self.form.depth(spec)) as f64,
            launch: tuning::MMA_LAUNCH - self.hidden_launch(target),
            prologue: tuning::MMA_PROLOGUE,
            epilogue: match self.adds_in_cluster() {
                true => sharing_out(self.block, self.parts),
                false => (bm * bn * stored) as f64 / tuning::STORE_BYTES,
            },
            tiles: blocks,
            resident: self.resident(spec, target),
            memory_bytes: result_bytes(spec) * self.stores_alone(spec, target)
                + self.partly_written(spec)
                + Operand::BOTH.into_iter().map(|o| self.read(spec, o, target)).sum::<f64>(),
            flight: Flight::of(used * ((self.stages - 1) * self.bk * self.form.bits(spec)) as f64 / 8.0),
            cluster: if self.adds_in_cluster() { self.parts } else { 1 },
            passes: self.passes(spec),
            // 24x4472x5650 TT of bf16 takes 38.2 us on an H200 in 560 blocks of a warp each, of which a multiprocessor has up to five, and 24.1
            // in 210 blocks of two warps. With unpacked operands it was not measured.
            warps: if self.form == OperandForm::Unpacked { 0.0 } else { (self.warps[0] * self.warps[1]) as f64 },
            ..Work::NONE
        };
        self.stream(work, spec)
    }

    /// Cycles of a k iteration in which MMAs wait for shared memory, where lanes load fragments element by element.
    fn loading_elements(&self, spec: &GemmSpec, target: &Target) -> f64 {
        let by_element = Operand::BOTH.into_iter().filter(|operand| !self.loads_matrices(spec, *operand));
        let rows: i64 = by_element.map(|operand| self.warp()[operand as usize]).sum();
        let bytes = (self.threads() / LANES * rows * MMA_DEPTH) as f64;
        tuning::MMA_ELEMENT_LOADS * bytes / f64::from(target.device().shared_bytes_per_cycle)
    }

    /// Cycles of a k iteration from the loads of a stage to its stores, for elements on their way through registers: the loads of all resident
    /// blocks wait for each other.
    fn loading(&self, spec: &GemmSpec, target: &Target, blocks: i64) -> f64 {
        let iterations = self.bk as f64 / self.form.depth(spec) as f64;
        let resident = self.resident(spec, target).min(up(blocks, target.device().multiprocessors.into()));
        let loads = resident as f64 * self.copies(spec) * iterations;
        (tuning::LOAD_STORE_LATENCY + tuning::LOAD_STORE_QUEUE * loads) / iterations
    }

    /// Bytes of sectors of C that a block writes in part. Parts that a kernel adds up have whole rows in workspace.
    fn partly_written(&self, spec: &GemmSpec) -> f64 {
        if self.parts > 1 && !self.adds_in_cluster() { 0.0 } else { partly_written(spec, self.block[1]) }
    }

    /// How many times the bytes of C count: few blocks on a multiprocessor store nothing while they load. Measured on chips with wgmma alone.
    fn stores_alone(&self, spec: &GemmSpec, target: &Target) -> f64 {
        let resident = self.resident(spec, target).max(1) as f64;
        let alone = if target.has(Features::WGMMA) { tuning::MMA_STORES_ALONE } else { 0.0 };
        1.0 + alone / (resident * resident)
    }

    /// Cycles of the launch that are hidden. Chips without programmatic dependent launch are taken for as fast as one whose kernels begin early.
    fn hidden_launch(&self, target: &Target) -> f64 {
        let known = target.has(Features::GRID_DEPENDENCY);
        hidden_launch(self.begins_early || !known, self.releases_early && known)
    }

    /// Cycles of the issue slots for the copies of a k iteration, of less than 16 bytes for each lane of a warp: one instruction with its
    /// address and its bounds, or a load and a store.
    fn copying(&self, spec: &GemmSpec) -> f64 {
        self.copies(spec) * if self.asynchronous { tuning::COPY_CYCLES } else { tuning::LOAD_STORE_CYCLES }
    }

    /// These copies of a k iteration, of all warps of a block.
    fn copies(&self, spec: &GemmSpec) -> f64 {
        let pieces = Operand::BOTH.into_iter().filter(|operand| self.copies_pieces(spec, *operand));
        let loads = |o: Operand| match self.realigns(spec, o) {
            true => REALIGNED_WORDS / WORD as f64,
            false => 1.0 / o.piece(spec) as f64,
        };
        pieces.map(|o| (self.block[o as usize] * MMA_DEPTH / LANES) as f64 * loads(o)).sum()
    }

    /// Bytes of an operand that are read from device memory.
    fn read(&self, spec: &GemmSpec, operand: Operand, target: &Target) -> f64 {
        bytes_read(spec, operand, self.routes[operand as usize], &target.device()) * self.short_rows(spec, operand)
    }

    /// Rows or columns of a tile that are in C, which move their bytes; what lies beyond is filled in.
    fn moved(&self, spec: &GemmSpec, operand: Operand) -> f64 {
        let size = operand.rows(spec);
        size as f64 / up(size, self.block[operand as usize]) as f64 * self.short_rows(spec, operand)
    }

    /// How many times the bytes are moved of an operand whose rows in a tile are shorter than what memory reads at once.
    fn short_rows(&self, spec: &GemmSpec, operand: Operand) -> f64 {
        (8.0 * ACCESS / (self.row(spec, operand) * self.form.bits(spec)) as f64).max(1.0)
    }

    /// Blocks that a multiprocessor has room for: with as many registers as are counted, or half more where elements are on their way through
    /// registers, each with an address (13x1031x4099 TT of f16 spilled for sm_90a with a quarter more).
    pub(super) fn resident(&self, spec: &GemmSpec, target: &Target) -> i64 {
        let (counted, most) = (self.registers(spec), i64::from(target.limits.registers_per_thread));
        let registers = if self.asynchronous { counted } else { (counted * 3 / 2).min(most.max(counted)) };
        self.resident_with(registers, spec, target)
    }

    /// Blocks that a multiprocessor has room for if each thread has so many registers.
    pub(super) fn resident_with(&self, registers: i64, spec: &GemmSpec, target: &Target) -> i64 {
        let number = |n: i64| u32::try_from(n).ok();
        let sizes = number(registers).zip(number(self.threads())).zip(number(self.shared(spec)));
        sizes.map_or(0, |((registers, threads), shared)| target.occupancy(threads, registers, shared).blocks.into())
    }

    /// The number of resident blocks that ptxas is told of. It does not see dynamic shared memory, and limits the registers of a thread for blocks
    /// that shared memory has no room for; so it is told of blocks where shared memory alone decides them. Without a number it gives few
    /// registers to threads that have elements of a stage on their way: it stores some of them before it loads the others, and waits for
    /// memory twice (2560x8x3802 NT of s8 in 128 x 16: 61 registers without a number, 128 with 4). With 64-bit accumulators, and
    /// with 48 x 64 of tf32 for a warp, it spills some.
    pub(super) fn told_blocks(&self, spec: &GemmSpec, target: &Target) -> Option<i64> {
        let spills = spec.acc.bits() > 32 || self.block.iter().any(|side| side.count_ones() > 1);
        if !self.asynchronous || spills {
            return Some(self.resident(spec, target)).filter(|blocks| *blocks > 0);
        }
        let blocks = self.resident_with(i64::from(target.limits.registers_per_thread), spec, target);
        (blocks > 0 && blocks == self.resident_with(1, spec, target)).then_some(blocks)
    }

    /// Registers of a thread.
    pub(super) fn registers(&self, spec: &GemmSpec) -> i64 {
        let [wm, wn] = self.warp();
        let accumulators = wm * wn / 32 * i64::from(spec.acc.bits()) / 32;
        let unpacked = if self.form == OperandForm::Unpacked { (wm + wn) / 2 } else { 0 };
        let set = (wm + wn) * self.loaded_terms(spec) * self.form.bits(spec) / (32 * LANES);
        let transposed = if self.transposes_any(spec) { set } else { 0 };
        let form = transposed + set * if self.fragments == FragmentBuffers::Double { 2 } else { 1 } + unpacked;
        let copied = if self.asynchronous { 0 } else { self.on_the_way(spec) };
        accumulators + form + copied + tuning::ADDRESS_REGISTERS
    }

    /// Registers of a thread for the operands of a stage that it loads and stores. An element that is loaded by itself has one to itself.
    pub(super) fn on_the_way(&self, spec: &GemmSpec) -> i64 {
        let one = |operand: Operand| {
            let bits = self.form.bits(spec);
            let registers = self.block[operand as usize] * self.bk * bits / 32 / self.threads();
            match self.realigns(spec, operand) {
                true => registers * REALIGNED_REGISTERS,
                false if self.copies_pieces(spec, operand) => registers * 4 / operand.piece(spec).min(4),
                false => registers,
            }
        };
        Operand::BOTH.into_iter().map(one).sum()
    }

    /// Rows and columns of C of a warp.
    fn warp(&self) -> [i64; 2] {
        [0, 1].map(|d| self.block[d] / self.warps[d])
    }

    /// The kernels before and after the GEMM's own.
    fn passes(&self, spec: &GemmSpec) -> Passes {
        let mut out = combining(spec, self.parts, self.combine);
        for operand in Operand::BOTH {
            if self.routes[operand as usize] == Source::Packed {
                out.packs += 1;
                out.packed_bytes += operand.packing_bytes(spec, self.form.bits(spec));
            }
        }
        out
    }
}
