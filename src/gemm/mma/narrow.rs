//! How 4-bit integers come to tensor cores, which not all of them multiply.
//!
//! Chips up to sm_89 have an instruction for them. Later ones multiply bytes, into which the integers are *unpacked*: of a
//! word the lower halves of its bytes become one word, the upper halves another, so that even k come before odd ones in
//! both operands alike, which a sum does not mind. A warp does that with what it has just loaded from shared memory, so that
//! every copy on the way there is of half the bytes; but warps that share a tile unpack it each for itself. Where products
//! decide and not copies, kernels of their own unpack both operands before (*widened*), and what follows multiplies bytes.

use super::pack::{THREADS, ZEROS, lines};
use super::{Mma, Names};
use crate::dtype::DType;
use crate::gemm::grid::bind_blocks;
use crate::gemm::operand::{Operand, along_k, contiguous, up};
use crate::intrin;
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

/// Elements along k, and along the rows of C, that a block turns.
const TURNED: [i64; 2] = [64, 128];

impl OperandForm {
    /// The ways that there are for these types on a chip: unpacking only where the chip does not multiply what is stored.
    pub(super) fn of(spec: &GemmSpec, target: &Target) -> Vec<OperandForm> {
        let native = |f: &OperandForm| f.shape(spec, target).is_some();
        match native(&OperandForm::Stored) {
            true => vec![OperandForm::Stored],
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

/// Whether the operands are 4-bit integers.
pub(super) fn is_narrow(spec: &GemmSpec) -> bool {
    spec.a.bits() == 4
}

impl Mma {
    /// What an unpacked copy of a fragment needs.
    pub(super) fn unpack(&self, operand: Operand, names: &Names) -> [String; 2] {
        if self.form != OperandForm::Unpacked {
            return [const { String::new() }; 2];
        }
        let (n, x) = (operand.name(), ["x", "y"][operand as usize]);
        [
            format!(
                "cache_read {} {n}_f fragment as=s8 -> {n}_u; compute_at {n}_u kk -> {x}0 {x}1\n",
                names.accumulators
            ),
            format!("transform_layout {n}_u [w, k] -> [w, k // 64 * 64 + k % 2 * 32 + k % 64 // 2]\n"),
        ]
    }

    /// Copies of the operands as bytes, before anything is padded.
    pub(super) fn widen(&self, names: &Names) -> String {
        match self.form {
            OperandForm::Widened => Operand::BOTH
                .map(Operand::name)
                .map(|n| format!("cache_read {} {n} global as=s8 -> {n}_wide\n", names.whole))
                .concat(),
            _ => String::new(),
        }
    }

    /// The kernel that packs a 4-bit operand: padded, turned, widened, or some of these.
    pub(super) fn pack_narrow(&self, spec: &GemmSpec, operand: Operand, names: &Names) -> String {
        let (name, packed) = (operand.name(), &names.sources[operand as usize]);
        let wide = self.form == OperandForm::Widened;
        let pads = self.pads(spec, operand);
        let vector = vector(contiguous(spec, operand));
        if self.transposes_narrow(spec, operand) {
            // Zeros come into being where a thread reads: what writes them then asks for no bounds, and stores whole bytes.
            let source = if pads { format!("{name}_pad") } else { name.to_string() };
            let inlined = if pads { format!("compute_inline {source}\n") } else { String::new() };
            let out = format!("cache_read {} {source} global -> {packed}\n", names.whole);
            return out + &turned(operand, [&source, packed], vector.min(8), self.padded(spec, operand)) + &inlined;
        }
        let out = match (pads, wide) {
            (true, true) => format!("compute_inline {name}_wide\n"),
            (true, false) | (false, true) => String::new(),
            (false, false) => format!("cache_read {} {name} global -> {packed}\n", names.whole),
        };
        out + &match along_k(spec)[operand as usize] {
            true => rows_alone(spec, operand, packed, vector.min(if wide { 16 } else { 32 })),
            false => turned_bytes(spec, operand, packed, vector),
        }
    }

    /// Whether a kernel of its own turns an operand of 4-bit integers as such.
    pub(super) fn transposes_narrow(&self, spec: &GemmSpec, operand: Operand) -> bool {
        is_narrow(spec) && !along_k(spec)[operand as usize] && self.form != OperandForm::Widened
    }
}

/// Elements that can be read at once where rows have so many, up to 16 bytes.
fn vector(contiguous: i64) -> i64 {
    1 << contiguous.trailing_zeros().min(5)
}

/// A kernel whose threads copy a vector of each of eight rows.
fn rows_alone(spec: &GemmSpec, operand: Operand, packed: &str, vector: i64) -> String {
    let p = operand.lower();
    let [count, length] = lines(spec, operand).map(|extent| extent.saturating_add(ZEROS));
    format!(
        "split {packed}_0 ? 8 -> {p}a0 {p}a1; split {packed}_1 ? {THREADS} {vector} -> {p}b0 {p}b1 {p}b2\n\
         reorder {p}a0 {p}b0 {p}b1 {p}a1 {p}b2; unroll {p}a1; vectorize {p}b2\n\
         {}bind {p}b1 threadIdx.x\n",
        bind_blocks((&format!("{p}a0"), up(count, 8)), (&format!("{p}b0"), up(length, THREADS * vector)))
    )
}

/// A kernel that turns: a thread reads 8 x 8 elements as eight words, exchanges them in its registers and writes eight
/// words to shared memory, which leave in rows.
fn turned(operand: Operand, [source, packed]: [&str; 2], vector: i64, sizes: [i64; 2]) -> String {
    let (name, p, [k, w]) = (operand.name(), operand.lower(), TURNED);
    // Of a smaller operand there is no more to read.
    let threads = up(sizes[0].min(k), 8) * up(sizes[1].min(w), 8);
    let bound = bind_blocks((&format!("{p}a0"), up(sizes[0], k)), (&format!("{p}b0"), up(sizes[1], w)));
    let read = match vector {
        8 => format!("vectorize {p}y1"),
        _ => format!("split {p}y1 ? {vector} -> {p}y2 {p}y3; unroll {p}y2; vectorize {p}y3"),
    };
    format!(
        "transform_layout {packed} [k, w] -> [w, k]\n\
         split {packed}_0 ? {k} -> {p}a0 {p}a1; split {packed}_1 ? {w} -> {p}b0 {p}b1\n\
         reorder {p}b0 {p}a0 {p}b1 {p}a1; {bound}\
         cache_read {packed} {source} shared -> {name}_x; transform_layout {name}_x [k, w] -> [w, k]\n\
         cache_read {name}_x {source} local -> {name}_y; cache_read {name}_x {name}_y local -> {name}_z\n\
         transform_layout {name}_z [k, w] -> [w, k]\n\
         fuse {p}b1 {p}a1 -> {p}t; split {p}t ? {threads} 32 -> {p}t0 {p}t1 {p}t2; bind {p}t1 threadIdx.x\n\
         vectorize {p}t2; compute_at {name}_x {p}a0 -> {p}x0 {p}x1\n\
         split {p}x0 ? 8 -> {p}x2 {p}x3; split {p}x1 ? 8 -> {p}x4 {p}x5; reorder {p}x2 {p}x4 {p}x5 {p}x3\n\
         fuse {p}x2 {p}x4 -> {p}x; bind {p}x threadIdx.x; unroll {p}x5; vectorize {p}x3\n\
         compute_at {name}_z {p}x -> {p}z0 {p}z1; unroll {p}z0; unroll {p}z1\n\
         compute_at {name}_y {p}x -> {p}y0 {p}y1; unroll {p}y0; {read}\n"
    )
}

/// A kernel that unpacks tiles of 64 x 64 elements on the way into shared memory, and turns them as bytes.
fn turned_bytes(spec: &GemmSpec, operand: Operand, packed: &str, vector: i64) -> String {
    let (name, p) = (operand.name(), operand.lower());
    super::pack::turned(spec, operand, packed)
        + &format!(
            "cache_read {packed} {name} shared as=s8 -> {name}_x; compute_at {name}_x {p}b0 -> {p}x0 {p}x1\n\
             fuse {p}x0 {p}x1 -> {p}x; split {p}x ? {THREADS} {vector} -> {p}x2 {p}x3 {p}x4\n\
             bind {p}x3 threadIdx.x; vectorize {p}x4\n"
        )
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
