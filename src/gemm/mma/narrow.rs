//! How elements below a byte come to tensor cores: 4-bit integers, which not all chips multiply, and single bits.
//!
//! Chips up to sm_89 have an instruction for 4-bit integers. Later ones multiply bytes, into which the integers are *unpacked*: of a
//! word the lower halves of its bytes become one word, the upper halves another, so that even k come before odd ones in
//! both operands alike, which a sum does not mind. A warp does that with what it has just loaded from shared memory, so that
//! every copy on the way there is of half the bytes; but warps that share a tile unpack it each for itself. Where products
//! decide and not copies, kernels of their own unpack both operands before (*widened*), and what follows multiplies bytes.

use super::{Mma, Names};
use crate::dtype::DType;
use crate::gemm::grid::bind_blocks;
use crate::gemm::operand::{Operand, up};
use crate::gemm::packing::{Packing, THREADS, transposes};
use crate::gemm::staging::divide_among_threads;
use crate::intrin;
use crate::ir::{Axis, Scope};
use crate::schedule::{IndexMap, Steps};
use crate::target::Target;
use crate::te::GemmSpec;

/// What tensor cores are given of the operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperandForm {
    /// Elements as they are stored.
    Stored,
    /// 4-bit integers that a warp unpacks to bytes in its registers.
    Unpacked,
    /// 4-bit integers that kernels of their own have unpacked to bytes.
    Widened,
}

/// Words along k, and along the rows of C, that a block transposes.
const TURNED: [i64; 2] = [8, 16];

impl OperandForm {
    /// The ways that there are for these types on a chip: unpacking only where the chip does not multiply what is stored.
    pub(super) fn of(spec: &GemmSpec, target: &Target) -> Vec<OperandForm> {
        let native = |f: &OperandForm| f.shape(spec, target).is_some();
        match native(&OperandForm::Stored) {
            true => vec![OperandForm::Stored],
            // Eight elements of a byte would need eight registers of bytes.
            false if spec.a.bits() < 4 => Vec::new(),
            false => [OperandForm::Unpacked, OperandForm::Widened].into_iter().filter(native).collect(),
        }
    }

    /// Rows and terms of the instruction; `None` where the chip has none, or does not have it natively.
    pub(super) fn shape(self, spec: &GemmSpec, target: &Target) -> Option<[i64; 2]> {
        let [a, b] = [spec.a, spec.b].map(|t| self.multiplied(t));
        if is_narrow(spec) && spec.out.bits() < 8 || !is_narrow(spec) && self != OperandForm::Stored {
            return None;
        }
        let [m, k] = super::shape(&GemmSpec { a, b, ..*spec }, target)?;
        let row = intrin::find(&format!("mma.m{m}n8k{k}.{}.{a}.{b}", spec.acc))?;
        // Unpacked words make two instructions of 32 terms each.
        (row.is_native_to(target) && (self == OperandForm::Stored || k == 32)).then_some([m, k])
    }

    /// What instructions take for elements that are stored so.
    pub(super) fn multiplied(self, stored: DType) -> DType {
        if self == OperandForm::Stored { stored } else { DType::S8 }
    }

    /// What an operand's elements are in shared memory.
    pub(super) fn loaded(self, stored: DType) -> DType {
        if self == OperandForm::Widened { DType::S8 } else { stored }
    }

    /// Bits of an element in shared memory.
    pub(super) fn bits(self, spec: &GemmSpec) -> i64 {
        self.loaded(spec.a).bits().into()
    }

    /// Terms that a warp loads at once: what the instructions of recent chips add up.
    pub(super) fn depth(self, spec: &GemmSpec) -> i64 {
        256 / self.bits(spec)
    }
}

/// Whether several elements of the operands share a byte.
pub(super) fn is_narrow(spec: &GemmSpec) -> bool {
    spec.a.bits() < 8
}

impl Mma {
    /// Unpacks a fragment to bytes in registers; the buffer that they are in, where it is unpacked.
    pub(super) fn unpack(&self, s: &mut Steps, operand: Operand, names: &Names) -> Option<String> {
        if self.form != OperandForm::Unpacked {
            return None;
        }
        let (n, x) = (operand.name(), ["x", "y"][operand as usize]);
        let unpacked = format!("{n}_u");
        s.cache_read_as(names.accumulators, &format!("{n}_f"), Scope::Fragment, DType::S8, &unpacked);
        s.compute_at(&unpacked, "kk").made([format!("{x}0"), format!("{x}1")]);
        Some(unpacked)
    }

    /// Copies of the operands as bytes, before anything is padded.
    pub(super) fn widen(&self, s: &mut Steps, names: &Names) {
        if self.form != OperandForm::Widened {
            return;
        }
        for name in Operand::BOTH.map(Operand::name) {
            s.cache_read_as(names.whole.block(), name, Scope::Global, DType::S8, &format!("{name}_wide"));
        }
    }

    /// The kernel that packs an operand of elements below a byte: padded, transposed, widened, or some of these.
    pub(super) fn pack_narrow(&self, s: &mut Steps, spec: &GemmSpec, operand: Operand, names: &Names) {
        let (name, padding) = (operand.name(), self.padding(spec));
        let is_transposed = transposes(operand, spec);
        let packed = &names.sources[operand as usize];
        let packing = Packing { operand, packed, padding, is_transposed, releasing: 0 };
        let wide = self.form == OperandForm::Widened;
        let pads = padding.pads_operand(operand);
        let vector = vector(operand, spec);
        if self.transposes_narrow(spec, operand) {
            // Zeros come into being where a thread reads: what writes them then asks for no bounds, and stores whole bytes.
            return packing.kernel_of_bits(s, spec, names.whole.block());
        }
        match (pads, wide) {
            (true, true) => _ = s.compute_inline(&format!("{name}_wide")),
            (true, false) | (false, true) => {}
            (false, false) => packing.copy(s, names.whole.block(), false),
        }
        match wide {
            true => packing.widen(s, spec),
            false => rows_alone(s, packing, spec, vector),
        }
    }

    /// Whether a kernel of its own transposes an operand of elements below a byte as such.
    pub(super) fn transposes_narrow(&self, spec: &GemmSpec, operand: Operand) -> bool {
        is_narrow(spec) && !operand.along_k(spec) && self.form != OperandForm::Widened
    }
}

/// Elements of 32 bits.
fn word(spec: &GemmSpec) -> i64 {
    32 / i64::from(spec.a.bits())
}

/// Elements of an operand that can be read at once, up to 16 bytes.
fn vector(operand: Operand, spec: &GemmSpec) -> i64 {
    (1 << operand.multiple(spec).trailing_zeros().min(7)).min(4 * word(spec))
}

impl Packing<'_> {
    /// The kernel that makes bytes along k of 4-bit integers, row by row, or transposed.
    pub(in crate::gemm) fn widen(self, s: &mut Steps, spec: &GemmSpec) {
        let vector = vector(self.operand, spec);
        match self.operand.along_k(spec) {
            true => {
                self.rows(s, spec, vector.min(16));
                s.bind(&self.name("t"), Axis::ThreadX);
            }
            false => self.widen_and_transpose(s, spec, vector),
        }
    }

    /// The kernel that packs elements below a byte, padded, transposed or both, which need no unpacking.
    pub(in crate::gemm) fn kernel_of_bits(self, s: &mut Steps, spec: &GemmSpec, block: &str) {
        let (name, pads) = (self.operand.name(), self.padding.pads_operand(self.operand));
        let source = if pads { format!("{name}_pad") } else { name.to_string() };
        s.cache_read(block, &source, Scope::Global, self.packed);
        let vector = vector(self.operand, spec);
        match self.is_transposed {
            true => transpose(s, self, spec, &source, vector.min(word(spec))),
            false => rows_alone(s, self, spec, vector),
        }
        if pads {
            s.compute_inline(&source);
        }
    }
}

/// Even k before odd ones in each 64 of them, the order that unpacking a word leaves.
pub(super) fn unpacked_order() -> IndexMap {
    IndexMap::new(["w", "k"], |[w, k]| {
        let odd = k.clone().floormod(2) * 32;
        vec![w, k.clone().floordiv(64) * 64 + odd + k.floormod(64).floordiv(2)]
    })
}

/// A kernel whose threads copy a vector of each of eight rows.
fn rows_alone(s: &mut Steps, packing: Packing, spec: &GemmSpec, vector: i64) {
    let [count, length] = packing.lines(spec);
    let [first, second] = packing.loops(spec);
    let [a0, a1, b0, b1, b2] = ["a0", "a1", "b0", "b1", "b2"].map(|end| packing.name(end));
    s.split(&first, [8], [&a0, &a1]).split(&second, [THREADS, vector], [&b0, &b1, &b2]);
    s.reorder([&a0, &b0, &b1, &a1, &b2]).unroll(&a1).vectorize(&b2);
    bind_blocks(s, (&a0, up(count, 8)), (&b0, up(length, THREADS * vector)));
    s.bind(&b1, Axis::ThreadX);
}

/// A kernel that transposes: a thread reads a square of elements as words, of 4-bit integers eight words of eight, exchanges them in
/// its registers and writes as many words to shared memory, from which rows are stored.
fn transpose(s: &mut Steps, packing: Packing, spec: &GemmSpec, source: &str, vector: i64) {
    let sizes = packing.padding.operand(packing.operand);
    let (name, packed, word) = (packing.operand.name(), packing.packed, word(spec));
    let [k, w] = TURNED.map(|words| words * word);
    // Of a smaller operand there is no more to read.
    let threads = up(sizes[0].min(k), word) * up(sizes[1].min(w), word);
    let swapped = || IndexMap::new(["k", "w"], |[k, w]| vec![w, k]);
    let ([first, second], [tile, y, z]) = (packing.loops(spec), ["x", "y", "z"].map(|end| format!("{name}_{end}")));
    let [a0, a1, b0, b1] = ["a0", "a1", "b0", "b1"].map(|end| packing.name(end));
    s.transform_layout(packed, swapped()).split(&first, [k], [&a0, &a1]).split(&second, [w], [&b0, &b1]);
    s.reorder([&b0, &a0, &b1, &a1]);
    bind_blocks(s, (&a0, up(sizes[0], k)), (&b0, up(sizes[1], w)));
    s.cache_read(packed, source, Scope::Shared, &tile).transform_layout(&tile, swapped());
    s.cache_read(&tile, source, Scope::Local, &y).cache_read(&tile, &y, Scope::Local, &z);
    s.transform_layout(&z, swapped());
    let [t, t0, t1, t2] = ["t", "t0", "t1", "t2"].map(|end| packing.name(end));
    divide_among_threads(s, [&b1, &a1], &t, threads, 4 * word, [t0, t1.clone(), t2.clone()]);
    s.bind(&t1, Axis::ThreadX).vectorize(&t2);
    let [x, x0, x1, x2, x3, x4, x5] = ["x", "x0", "x1", "x2", "x3", "x4", "x5"].map(|end| packing.name(end));
    s.compute_at(&tile, &a0).made([&x0, &x1]).split(&x0, [word], [&x2, &x3]).split(&x1, [word], [&x4, &x5]);
    s.reorder([&x2, &x4, &x5, &x3]).fuse([&x2, &x4], &x).bind(&x, Axis::ThreadX).unroll(&x5).vectorize(&x3);
    let [z0, z1, y0, y1, y2, y3] = ["z0", "z1", "y0", "y1", "y2", "y3"].map(|end| packing.name(end));
    s.compute_at(&z, &x).made([&z0, &z1]).unroll(&z0).unroll(&z1);
    s.compute_at(&y, &x).made([&y0, &y1]).unroll(&y0);
    match vector {
        whole if whole == word => s.vectorize(&y1),
        _ => s.split(&y1, [vector], [&y2, &y3]).unroll(&y2).vectorize(&y3),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::te::Layout;

    fn ways(a: DType, out: DType, target: Target) -> Vec<OperandForm> {
        let spec = GemmSpec { acc: DType::S32, out, ..GemmSpec::of(256, 256, 256, a, Layout::NT) };
        OperandForm::of(&spec, &target)
    }

    #[test]
    fn each_chip_multiplies_4_bit_integers_in_its_own_way() {
        use OperandForm::{Stored, Unpacked, Widened};
        for dtype in [DType::S4, DType::U4] {
            let on = |target| ways(dtype, DType::S32, target);
            assert_eq!(on(Target::sm_70()), []);
            assert_eq!(on(Target::sm_75()), [Stored]);
            for target in [Target::sm_80(), Target::sm_86(), Target::sm_89()] {
                assert_eq!(on(target), [Stored]);
            }
            assert_eq!(on(Target::sm_90()), [Unpacked, Widened]);
            assert_eq!(on(Target::sm_90a()), [Unpacked, Widened]);
        }
        assert_eq!(ways(DType::S8, DType::S32, Target::sm_90()), [Stored]);
        assert_eq!(ways(DType::S8, DType::S32, Target::sm_75()), [Stored]);
        // Two elements of C would share a byte.
        assert_eq!(ways(DType::S4, DType::S4, Target::sm_80()), []);
    }

    #[test]
    fn long_products_are_widened_and_skinny_ones_are_not() {
        let choice = |m, n, k| {
            Mma::choose(
                &GemmSpec { acc: DType::S32, out: DType::S32, ..GemmSpec::of(m, n, k, DType::S4, Layout::NT) },
                &Target::sm_90(),
            )
            .unwrap()
        };
        assert_eq!(choice(4096, 4096, 4096).form, OperandForm::Widened);
        assert_eq!(choice(16, 4096, 4096).form, OperandForm::Unpacked);
        assert_eq!(choice(16, 4096, 4096).routes, [super::super::Source::Direct; 2]);
    }
}
