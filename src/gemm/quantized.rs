//! Products of activations and quantised weights (W4A16, W8A16): C[i, j] = sum over k of X[i, k] * D[j, k], where
//! D[j, k] = U[j, k] * S[k / group, j] and U[j, k] = W[j, k] - Z[k / group, j] in the type of the activations.
//!
//! The dequantisation is two ordinary blocks of the program, so any schedule may compute it anywhere. The recipes here compute it in registers,
//! as the fragment of an instruction whose rows are rows of W, in front of the MMAs of each k iteration. They read the weights in the order
//! of that fragment (`order`), so that a lane loads the weights of a row with one access: a program of its own packs them once.
//!
//! Where X has few rows, the MMAs multiply U, and the scales multiply the partial sums of a group in f32 (`promote`): 128 terms of 16 rows of W are
//! 32 multiplications of a lane as weights, and four as partial sums of eight rows of X.

mod cost;
mod formats;
mod order;
mod registers;
mod warps;

pub use formats::{from_awq, from_gptq};
pub use order::Packing;
#[doc(hidden)]
pub use {registers::FromRegisters, warps::ByWarps};

use super::operand::up;
use super::recommend::lowering;
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::ir::Func;
use crate::loom::Schedule;
use crate::schedule::Steps;
use crate::target::Target;
use crate::te::{self, GemmSpec, Layout};

/// Multiples of the rows of packed weights: the rows of an instruction.
pub(super) const ROWS: i64 = 64;

/// A product of activations and quantised weights. X is [m, k], W [n, k], S and Z [k / group, n], C [m, n].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantized {
    sizes: [i64; 3],
    /// The least m, where m is known at launch alone.
    least: Option<i64>,
    activations: DType,
    weights: DType,
    group: Option<i64>,
    has_zeros: bool,
    is_packed: bool,
}

impl Quantized {
    /// C has m rows and n columns, the sums k terms: f16 activations, weights of s4 with one scale for each row.
    pub fn new(m: i64, n: i64, k: i64) -> Quantized {
        Quantized {
            sizes: [m, n, k],
            least: None,
            activations: DType::F16,
            weights: DType::S4,
            group: None,
            has_zeros: false,
            is_packed: false,
        }
    }

    /// The type of X, S, Z and C: f16 or bf16.
    #[must_use]
    pub fn activations(self, activations: DType) -> Quantized {
        Quantized { activations, ..self }
    }

    /// The type of W: s4, u4, s8, u8 or e4m3.
    #[must_use]
    pub fn weights(self, weights: DType) -> Quantized {
        Quantized { weights, ..self }
    }

    /// So many weights of a row share a scale. Without it a row has one scale.
    #[must_use]
    pub fn groups(self, group: i64) -> Quantized {
        Quantized { group: Some(group), ..self }
    }

    /// A zero point for each scale, of the type of the activations.
    #[must_use]
    pub fn zeros(self) -> Quantized {
        Quantized { has_zeros: true, ..self }
    }

    /// m is known at launch alone: a number of rows of X and C from `least` to the m of [`Quantized::new`].
    #[must_use]
    pub fn rows_from(self, least: i64) -> Quantized {
        Quantized { least: Some(least), ..self }
    }

    /// The weights are packed ([`Quantized::packing`]): P replaces W.
    #[must_use]
    pub fn packed(self) -> Quantized {
        Quantized { is_packed: true, ..self }
    }

    /// m, n and k.
    pub fn sizes(&self) -> [i64; 3] {
        self.sizes
    }

    /// Weights that share a scale.
    pub fn group(&self) -> i64 {
        self.group.unwrap_or(self.sizes[2])
    }

    /// The order in which packed weights are.
    ///
    /// # Errors
    /// As [`Quantized::program`].
    pub fn packing(&self) -> Result<Packing> {
        self.check()?;
        Packing::of(self.weights, [self.sizes[1], self.sizes[2]])
    }

    /// The program.
    ///
    /// # Errors
    /// `te.extent` and `te.limit` where an extent is not positive or an array has more than 2^36 elements; `gemm.weights` where the types or
    /// the groups are none that these products have.
    pub fn program(&self) -> Result<Func> {
        self.check()?;
        let [m, n, k] = self.sizes;
        let Quantized { activations: x, weights: w, has_zeros, .. } = *self;
        let (group, groups) = (self.group(), k / self.group());
        let (input, element) = match self.is_packed {
            true => {
                let packing = self.packing()?;
                let [blocks, rows, block] = packing.packed_shape();
                (format!("P {w}[{blocks}, {rows}, {block}]"), packing.element("q"))
            }
            false => (format!("W {w}[{n}, {k}]"), "W[n, q]".to_string()),
        };
        let rows = if self.is_packed { up(n, ROWS) * ROWS } else { n };
        let (size, m) = match self.least {
            Some(least) => (format!("size M in {least}..={m}\n"), "M".to_string()),
            None => (String::new(), m.to_string()),
        };
        let (zeros, value) = match has_zeros {
            true => (format!("input Z {x}[{groups}, {rows}]\n"), format!("({x}({element}) - Z[q // {group}, n])")),
            false => (String::new(), format!("{x}({element})")),
        };
        te::parse(&format!(
            "program quantized
             {size}input X {x}[{m}, {k}]
             input {input}
             input S {x}[{groups}, {rows}]
             {zeros}U: U[n {rows}, q {k}] {x} = {value}
             D: D[n {rows}, q {k}] {x} = U[n, q]*S[q // {group}, n]
             mma: acc[i {m}, j {rows}] f32 = sum(k {k}) f32(X[i, k])*f32(D[j, k])
             out: output C[i {m}, j {n}] {x} = {x}(acc[i, j])
            "
        ))
    }

    fn check(&self) -> Result<()> {
        let Quantized { sizes: [m, n, k], activations, weights, .. } = *self;
        // Sizes that no GEMM has are refused as those of one.
        te::gemm(&GemmSpec::of(m, n, k, DType::F16, Layout::NT))?;
        let refused = |message: String| Err(Error::input(Code::GemmWeights, message));
        if !matches!(activations, DType::F16 | DType::Bf16) {
            return refused(format!("activations of {activations} with quantised weights; f16 and bf16 are known"));
        }
        if !matches!(weights, DType::S4 | DType::U4 | DType::S8 | DType::U8 | DType::E4m3) {
            return refused(format!("quantised weights of {weights}; s4, u4, s8, u8 and e4m3 are known"));
        }
        let group = self.group();
        if group <= 0 || k % group != 0 || group % GROUP != 0 {
            let message = format!("groups of {group} weights along k = {k}");
            return refused(message).map_err(|e| e.help(format!("a group is a multiple of {GROUP} that divides k")));
        }
        Ok(())
    }

    /// Whether a stage of `bk` terms has whole groups of scales or a part of one group, and whole blocks of packed weights.
    fn suits_stage(&self, bk: i64) -> bool {
        let grouped = self.group() % bk == 0 || bk % self.group() == 0;
        grouped && self.packing().is_ok_and(|packing| bk % packing.block() == 0)
    }

    /// Whether partial sums of so many terms have whole blocks of packed weights.
    fn promotes(&self, terms: i64) -> bool {
        self.packing().is_ok_and(|packing| terms % packing.block() == 0)
    }

    /// Terms of a partial sum in stages of `bk` terms: those of a scale.
    fn partial_terms(&self, bk: i64) -> i64 {
        bk.min(self.group())
    }

    /// The loop of a recipe whose iterations have the terms of a partial sum each.
    fn group_loop(&self, bk: i64) -> &'static str {
        if self.partial_terms(bk) < bk { "kb" } else { "k0" }
    }

    /// Scales and zero points of so many rows of W in a stage of `bk` terms.
    fn stage_scales(&self, weights: i64, bk: i64) -> i64 {
        weights * (bk / self.group()).max(1) * if self.has_zeros { 2 } else { 1 }
    }

    /// Bytes of a stage of so many rows of X, rows of W and terms: X, and the packed weights with their scales.
    fn stage_bytes(&self, [rows, weights, bk]: [i64; 3]) -> [i64; 2] {
        let bytes = |elements: i64, dtype: DType| elements * i64::from(dtype.bits()) / 8;
        let scales = bytes(self.stage_scales(weights, bk), self.activations);
        [bytes(rows * bk, self.activations), bytes(weights * bk, self.weights) + scales]
    }

    /// The same product with its weights as they are after the dequantisation.
    pub(super) fn product(&self) -> GemmSpec {
        let [m, n, k] = self.sizes;
        let x = self.activations;
        let spec = GemmSpec::of(m, if self.is_packed { up(n, ROWS) * ROWS } else { n }, k, x, Layout::NT);
        GemmSpec { acc: DType::F32, epilogue: true, least_m: self.least, ..spec }
    }

    /// The packed product that a program is.
    pub fn describe(program: &Func) -> Option<Quantized> {
        let [x, p, s, .., c] = program.params[..] else { return None };
        let shape = |id| program.largest(program.buffer(id)).const_shape();
        let ([m, k], [groups, _], [_, n]) =
            (shape(x)?[..].try_into().ok()?, shape(s)?[..].try_into().ok()?, shape(c)?[..].try_into().ok()?);
        let q = Quantized::new(m, n, k).activations(program.buffer(x).dtype).weights(program.buffer(p).dtype).packed();
        let q = program.sizes.first().map_or(q, |size| q.rows_from(size.size.low));
        let q = if groups == 1 { q } else { q.groups(k / i64::max(groups, 1)) };
        let q = if program.params.len() == 5 { q.zeros() } else { q };
        q.program().is_ok_and(|own| own == *program).then_some(q)
    }
}

/// Multiples of the weights that share a scale.
const GROUP: i64 = 32;

/// A schedule for a product of quantised weights: packed weights are dequantised in registers, for wgmma where the chip has it, else for
/// mma.sync. On older chips, and where weights are not packed, a kernel of its own dequantises them, as [`super::recommend_for`] does for any
/// program.
///
/// # Errors
/// What [`Quantized::program`] refuses.
pub fn recommend_quantized(q: &Quantized, target: &Target) -> Result<Schedule> {
    super::recommend_for(&q.program()?, target)
}

/// The first schedule of the recipes here that lowers, if a program is a product of packed weights and there is one.
pub(super) fn recommended(program: &Func, target: &Target) -> Result<Option<Schedule>> {
    let Some(q) = Quantized::describe(program) else { return Ok(None) };
    for (_, tiles) in cost::tiles(&q, target) {
        if let Some(schedule) = lowering(scheduled(program, target, tiles.steps(&q))?) {
            return Ok(Some(schedule));
        }
    }
    Ok(None)
}

/// Tiles of either recipe.
#[derive(Debug, Clone, Copy)]
enum Tiles {
    Registers(FromRegisters),
    Warps(ByWarps),
}

impl Tiles {
    fn steps(&self, q: &Quantized) -> Steps {
        match self {
            Tiles::Registers(tiles) => tiles.steps(q),
            Tiles::Warps(tiles) => tiles.steps(q),
        }
    }
}

fn scheduled(program: &Func, target: &Target, steps: Steps) -> Result<Schedule> {
    let message = |e| Error::bug(Code::GemmSteps, format!("the recommended steps are not well formed: {e}"));
    Ok(Schedule::new(program.clone(), *target, steps.finish().map_err(message)?))
}

#[cfg(test)]
mod tests;
