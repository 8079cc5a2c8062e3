//! The order of packed weights, from the fragment that they become.
//!
//! In the fragment of operand A of an instruction with k = 16 (PTX ISA, wgmma and mma.m16n8k16) a lane has four elements of a row: two
//! registers of two neighbours. A lane's weights of one row are next to each other in packed weights, for as many k steps as fill 16 bytes.
//! In each word of them the two elements of a register are 16 bits apart, from where they become a register by one LOP3 and one HFMA2.
//!
//! The weights of the four lanes of a row are a block, 64 bytes. Blocks with the same terms of all rows follow each other, so that the tile of
//! a stage is contiguous in device memory: 28672x8192 with 16 rows of X takes 32.2 us on an H200, and 34.9 where rows are contiguous and a lane
//! has 8 bytes (h200-2026-11-30/weights.jsonl).

use super::{ROWS, scheduled};
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::gemm::operand::up;
use crate::intrin::{self, Place};
use crate::ir::layout::Coordinate::{Bit, Index as At, Lane, Offset, Register};
use crate::ir::layout::{Coordinate, Digit, Layout};
use crate::ir::{Axis, Func, Scope};
use crate::loom::Schedule;
use crate::schedule::Steps;
use crate::target::Target;
use crate::te;

/// The instruction whose fragment decides.
const INSTRUCTION: &str = "mma.m16n8k16.f32.f16.f16";
/// Bits that a lane has next to each other, of a word, and between two 4-bit elements of a register in a word.
const ACCESS: i64 = 128;
const WORD: i64 = 32;
const APART: i64 = 16;
/// Bits that a thread packs, and threads of a block.
const PACKED: i64 = 128;
const THREADS: i64 = 256;

/// The order of packed weights: P[q / block, n, place(q)] = W[n, q], and rows of zeros up to a multiple of the rows of an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packing {
    weights: DType,
    shape: [i64; 2],
    /// From k to its place, both within a block.
    layout: Layout,
    /// Weights of a row that are permuted among themselves.
    block: i64,
}

impl Packing {
    /// Of weights of a type, [n, k].
    pub(super) fn of(weights: DType, shape: [i64; 2]) -> Result<Packing> {
        let bug = |what: &str| Error::bug(Code::GemmWeights, format!("the fragment of {INSTRUCTION} {what}"));
        let row = intrin::find(INSTRUCTION).ok_or_else(|| bug("does not exist"))?;
        let fragment = row.operands.iter().find(|o| o.name == "A").map(|o| &o.place);
        let Some(Place::Registers(fragment)) = fragment else { return Err(bug("is not in registers")) };
        let bits = i64::from(weights.bits());
        let k: Vec<Digit> = fragment.digits().iter().filter(|d| d.from == At(1)).copied().collect();
        let depth = fragment.extent(At(1));
        let count = |to| k.iter().filter(|d| d.to == to).map(|d| d.extent).product::<i64>();
        let (lanes, own) = (count(Lane), depth / count(Lane));
        // Steps of k whose elements fill an access, or as many of them as k has.
        let fits = |steps: &i64| own * steps * bits >= WORD && shape[1] % (depth * steps) == 0;
        let most = ACCESS / (own * bits);
        let steps = (0..=most.ilog2()).rev().map(|n| 1 << n).find(fits).unwrap_or(1);
        // Pairs are numbered by register, then by step. Pairs of 4-bit weights fill the lower half of a word with their first elements and the
        // upper half with their second ones; those of bytes lie one behind the other.
        let apart = if bits < 8 { APART / bits } else { 1 };
        let place = |number: i64| if number < apart { number } else { 2 * number };
        let mut digits = Vec::new();
        let mut number = 1;
        let registers = k.iter().filter(|d| d.to == Register).map(|d| (d.at, d.extent));
        for (at, extent) in registers.chain([(depth, steps)]) {
            for bit in (0..extent.ilog2()).map(|n| 1 << n) {
                digits.push(Digit::new(At(0), at * bit, 2, Offset, place(number)));
                number *= 2;
            }
        }
        for d in &k {
            match d.to {
                Bit => digits.push(Digit::new(At(0), d.at, d.extent, Offset, apart)),
                Lane => digits.push(Digit::new(At(0), d.at, d.extent, Offset, own * steps * d.stride)),
                _ => {}
            }
        }
        let layout = Layout::new(digits);
        let block = lanes * own * steps;
        if !layout.is_bijective() || layout.span(Offset) != block {
            return Err(bug("gives no order"));
        }
        Ok(Packing { weights, shape, layout, block })
    }

    /// Rows of the packed weights.
    pub fn rows(&self) -> i64 {
        up(self.shape[0], ROWS) * ROWS
    }

    /// Weights of a row that are permuted among themselves.
    pub fn block(&self) -> i64 {
        self.block
    }

    /// The shape of the packed weights: blocks of a row, rows, weights of a block.
    pub fn packed_shape(&self) -> [i64; 3] {
        [self.shape[1] / self.block, self.rows(), self.block]
    }

    /// The place of weight k of a row in its block.
    pub fn place_of(&self, k: i64) -> i64 {
        self.layout.value(Offset, &|_| k.rem_euclid(self.block))
    }

    /// The weight of a block that is at a place of it.
    pub fn weight_at(&self, place: i64) -> i64 {
        self.layout.inverse().map_or(0, |l| l.value(At(0), &|_| place.rem_euclid(self.block)))
    }

    /// Weight `k` of row n of the packed weights, in the text of programs.
    pub(super) fn element(&self, k: &str) -> String {
        format!("P[{k} // {}, n, {}]", self.block, text(&self.layout, Offset, k))
    }

    /// The program that packs weights: input W, output P.
    ///
    /// # Errors
    /// `te.extent` and `te.limit`.
    pub fn program(&self) -> Result<Func> {
        let ([n, k], w, [blocks, rows, block]) = (self.shape, self.weights, self.packed_shape());
        let from = self.layout.inverse().map(|l| text(&l, At(0), "q")).unwrap_or_default();
        let weight = format!("W[n, b*{block} + {from}]");
        let value = if rows == n { weight } else { format!("select(n < {n}, {weight}, 0)") };
        te::parse(&format!(
            "program pack_weights
input W {w}[{n}, {k}]
P: output P[b {blocks}, n {rows}, q {block}] {w} = {value}
"
        ))
    }

    /// [`Packing::program`] with steps: a thread packs up to 16 bytes.
    ///
    /// # Errors
    /// As [`Packing::program`].
    pub fn schedule(&self, target: &Target) -> Result<Schedule> {
        let mut s = Steps::new();
        let elements = (PACKED / i64::from(self.weights.bits())).min(self.block);
        s.split("q", [elements], ["q0", "q1"]).split("n", [THREADS * elements / self.block], ["n0", "n1"]);
        s.reorder(["b", "n0", "n1", "q0", "q1"]).fuse(["n1", "q0"], "t");
        s.bind("b", Axis::BlockX).bind("n0", Axis::BlockY).bind("t", Axis::ThreadX);
        s.cache_write("P", "P", Scope::Local, "P_l")
            .reverse_compute_at("P_l", "t")
            .made(["p0", "p1", "p2"])
            .vectorize("p2");
        scheduled(&self.program()?, target, s)
    }

    /// The program that unpacks weights: input P, output W.
    ///
    /// # Errors
    /// `te.extent` and `te.limit`.
    pub fn inverse(&self) -> Result<Func> {
        let ([n, k], w, [blocks, rows, block]) = (self.shape, self.weights, self.packed_shape());
        let element = self.element("q");
        te::parse(&format!(
            "program unpack_weights
input P {w}[{blocks}, {rows}, {block}]
W: output W[n {n}, q {k}] {w} = {element}
"
        ))
    }
}

/// The coordinate of `k` that a layout has, in the text of programs.
fn text(layout: &Layout, to: Coordinate, k: &str) -> String {
    let digits = layout.digits().iter().filter(|d| d.to == to).map(|d| {
        let digit = match (d.at, d.at * d.extent) {
            (1, end) => format!("{k} % {end}"),
            (at, end) => format!("{k} % {end} // {at}"),
        };
        if d.stride == 1 { digit } else { format!("{digit}*{}", d.stride) }
    });
    digits.collect::<Vec<_>>().join(" + ")
}
