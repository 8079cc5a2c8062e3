//! The accumulators of ordinary code: in registers, in parts of k that blocks share (split-K), and on their way to C.
//!
//! A kernel of its own adds the parts of an element in their order, so that every launch yields the same bits. What the tiles add to the
//! GEMM is zeros, which the operands' copies fill in; nothing beyond C is stored.

use super::epilogue::Accumulators;
use super::operand::{Operand, up};
use super::padding::Padding;
use super::split::{Combine, PARTS, combine_parts, split_k};
use super::staging::source;
use super::tuning;
use super::work::Passes;
use crate::ir::Scope;
use crate::schedule::Steps;
use crate::te::GemmSpec;

/// The accumulators of a recipe whose blocks may have parts of k.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sums {
    whole: Accumulators,
    parts: i64,
    padding: Padding,
    /// Bytes of an accumulator.
    bytes: i64,
    /// Whether tiles of C pass through shared memory.
    rows: bool,
    batch: bool,
}

impl Sums {
    /// Those of a GEMM whose k extent is divided into so many parts, in tiles that add what the padding says.
    pub fn new(spec: &GemmSpec, padding: Padding, parts: i64) -> Sums {
        Sums {
            whole: Accumulators::of(spec),
            parts,
            padding,
            bytes: i64::from(spec.acc.bits()) / 8,
            rows: false,
            batch: spec.batch.is_some(),
        }
    }

    /// The same whose tiles of C pass through shared memory, from which block `C_s` stores rows.
    pub fn in_rows(self, rows: bool) -> Sums {
        Sums { rows, ..self }
    }

    /// Pads loops `i`, `j` and `k`, and divides `k`.
    pub fn divide(&self, s: &mut Steps) {
        self.padding.pad(s, self.whole.block());
        split_k(s, self.parts, Combine::Kernel);
    }

    /// The loop over parts, before those of a tile; empty without.
    pub fn part(&self) -> &'static str {
        if self.parts > 1 { "part" } else { "" }
    }

    /// The block that sums what a block of threads has of k.
    pub fn block(&self) -> &'static str {
        if self.parts > 1 { "parts" } else { self.whole.block() }
    }

    /// A name for the loop over the dimension before rows and columns of the accumulators, which parts and batches have; empty without.
    pub fn leading<'a>(&self, name: &'a str) -> &'a str {
        if self.parts > 1 || self.batch { name } else { "" }
    }

    /// Keeps the accumulators in registers of a thread; the block that stores them.
    pub fn keep_in_registers(&self, s: &mut Steps) -> &'static str {
        if self.parts > 1 {
            s.cache_write("parts", "parts", Scope::Local, "C_local");
            return "C_local";
        }
        match self.rows {
            true => self.whole.keep_behind_rows(s, &self.padding, "C_local"),
            false => self.whole.keep_padded_in_registers(s, &self.padding, "C_local"),
        }
    }

    /// The buffer of the accumulators in registers.
    pub fn registers(&self) -> &'static str {
        if self.parts == 1 && self.whole.converts() { self.padding.converted() } else { "C_local" }
    }

    /// Copies what a block that accumulates reads of an operand into a staged buffer, with the zeros of the padding.
    pub fn read(&self, s: &mut Steps, block: &str, operand: Operand, scope: Scope, staged: &str) {
        let is_padded = self.padding.pads_operand(operand);
        let source = source(operand.name(), is_padded, false);
        s.cache_read(block, &source, scope, staged);
        if is_padded {
            s.compute_inline(&source);
        }
    }

    /// Stores no zeros of the padding, and adds parts in a kernel of their own.
    pub fn finish(&self, s: &mut Steps) {
        if self.parts > 1 {
            return combine_parts(s, self.whole, &self.padding, self.parts);
        }
        if !self.whole.converts() || self.rows {
            self.padding.crop(s);
        }
    }

    /// The kernel that adds parts.
    pub fn passes(&self) -> Passes {
        let [rows, columns] = self.padding.result().map(|extent| extent as f64);
        match self.parts {
            1 => Passes::default(),
            // Each part is written and read once.
            parts => Passes {
                kernels: tuning::COMBINING_LAUNCH,
                l2_bytes: (self.bytes * (2 * parts + 1)) as f64 * rows * columns,
                ..Passes::default()
            },
        }
    }
}

/// The numbers of parts that leave each at least so many terms; of batches one.
pub(super) fn numbers(spec: &GemmSpec, terms: i64) -> impl Iterator<Item = i64> {
    let most = if spec.batch.is_some() { 1 } else { up(spec.k, terms) };
    PARTS.into_iter().filter(move |parts| *parts == 1 || *parts <= most)
}
