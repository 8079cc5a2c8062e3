//! Ready-made programs: vector addition, window sum, and matrix products with elementwise epilogues.

use super::block_scales::BlockScales;
use super::dynamic::SizeId;
use super::epilogue::{self, Epilogue};
use super::program::{Program, Reducer, Stage};
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::ir::{BinOp, BufferId, Expr, Func, Index, Var};

/// `C[i] = A[i] + B[i]` over f32; block `C`, loop `i`.
///
/// # Errors
/// `te.extent` where n is not positive or too large, `te.limit`.
pub fn vec_add(n: i64) -> Result<Func> {
    let mut p = Program::new("vec_add")?;
    let (a, b) = (p.input("A", DType::F32, &[n])?, p.input("B", DType::F32, &[n])?);
    p.compute(&Stage::new("C", DType::F32, &[("i", n)]).output(), |v| add(at(a, v), at(b, v)))?;
    p.finish()
}

/// `B[i] = A[i] + A[i + 1] + A[i + 2]` over f32; block `C`, loop `i`. A has n + 3 elements, B has n.
///
/// # Errors
/// As [`vec_add`].
pub fn window_sum(n: i64) -> Result<Func> {
    let mut p = Program::new("window_sum")?;
    let a = p.input("A", DType::F32, &[n.saturating_add(3)])?;
    p.compute(&Stage::new("B", DType::F32, &[("i", n)]).label("C").output(), |v| {
        let element = |offset: i64| Expr::load(a, vec![v[0] + offset]);
        add(add(element(0), element(1)), element(2))
    })?;
    p.finish()
}

/// How the operands of a matrix product lie, all row-major: A is [M, K] for N and [K, M] for T; B is [K, N] for N and
/// [N, K] for T.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// A [M, K], B [K, N].
    NN,
    /// A [M, K], B [N, K].
    NT,
    /// A [K, M], B [K, N].
    TN,
    /// A [K, M], B [N, K].
    TT,
}

impl Layout {
    /// Every layout.
    pub const ALL: [Layout; 4] = [Layout::NN, Layout::NT, Layout::TN, Layout::TT];

    /// The two letters.
    pub fn name(self) -> &'static str {
        match self {
            Layout::NN => "NN",
            Layout::NT => "NT",
            Layout::TN => "TN",
            Layout::TT => "TT",
        }
    }

    /// The layout of that name.
    pub fn parse(name: &str) -> Option<Layout> {
        Layout::ALL.into_iter().find(|l| l.name() == name)
    }

    /// Whether A is stored [K, M].
    pub fn a_transposed(self) -> bool {
        matches!(self, Layout::TN | Layout::TT)
    }

    /// Whether B is stored [N, K].
    pub fn b_transposed(self) -> bool {
        matches!(self, Layout::NT | Layout::TT)
    }
}

/// Terms that have one scale: input `a_scales` has one for each row of A and so many of k, and `b_scales` one for as many columns of B and so
/// many of k. Their extents are \[K / 128, M\] and \[N / 128, K / 128\], rounded up, behind that of a batch.
pub const SCALE_BLOCK: i64 = 128;

/// A matrix product: C[M, N] = A * B summed in `acc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct GemmSpec {
    /// Independent products, one behind the other in a leading dimension of A, B and C; without one there is no such
    /// dimension.
    pub batch: Option<i64>,
    /// Rows of C; the most where their number is dynamic.
    pub m: i64,
    /// The least number of rows, where it is dynamic: then M is known at launch alone, from this to `m`.
    pub least_m: Option<i64>,
    /// What every number of rows is a multiple of, where it is dynamic; otherwise 1.
    pub m_by: i64,
    /// Columns of C.
    pub n: i64,
    /// Length of the sums.
    pub k: i64,
    /// The type of A.
    pub a: DType,
    /// The type of B.
    pub b: DType,
    /// The type of products and sums.
    pub acc: DType,
    /// The type of C.
    pub out: DType,
    /// How A and B lie.
    pub layout: Layout,
    /// Elements from one row of A, B and C in memory to the next, where the rows are not packed.
    pub row_strides: [Option<i64>; 3],
    /// Whether scales of blocks multiply each term ([`SCALE_BLOCK`]).
    pub block_scales: bool,
    /// Whether block `out` writes C from the accumulators although both have one type: the form of a product with an epilogue.
    pub epilogue: bool,
}

impl GemmSpec {
    /// A product in one type.
    pub fn of(m: i64, n: i64, k: i64, dtype: DType, layout: Layout) -> GemmSpec {
        GemmSpec {
            batch: None,
            m,
            least_m: None,
            m_by: 1,
            n,
            k,
            a: dtype,
            b: dtype,
            acc: dtype,
            out: dtype,
            layout,
            row_strides: [None; 3],
            block_scales: false,
            epilogue: false,
        }
    }

    /// With these types of A, B, accumulators and C.
    #[must_use]
    pub fn types(self, a: DType, b: DType, acc: DType, out: DType) -> GemmSpec {
        GemmSpec { a, b, acc, out, ..self }
    }

    /// So many independent products, or one without a leading dimension.
    #[must_use]
    pub fn batch(self, batch: Option<i64>) -> GemmSpec {
        GemmSpec { batch, ..self }
    }

    /// With a dynamic number of rows, from this to `m`; `None` for `m` rows.
    #[must_use]
    pub fn least_m(self, least_m: Option<i64>) -> GemmSpec {
        GemmSpec { least_m, ..self }
    }

    /// Where the number of rows is dynamic, with multiples of this alone.
    #[must_use]
    pub fn m_by(self, m_by: i64) -> GemmSpec {
        GemmSpec { m_by, ..self }
    }

    /// With so many elements from one row of A, B and C in memory to the next; `None` where rows are packed.
    #[must_use]
    pub fn row_strides(self, row_strides: [Option<i64>; 3]) -> GemmSpec {
        GemmSpec { row_strides, ..self }
    }

    /// With scales of blocks, or without.
    #[must_use]
    pub fn block_scales(self, block_scales: bool) -> GemmSpec {
        GemmSpec { block_scales, ..self }
    }

    /// Its extents: the batch, if there is one, m, n and k.
    pub fn sizes(&self) -> Vec<i64> {
        self.batch.into_iter().chain([self.m, self.n, self.k]).collect()
    }

    /// How many products there are.
    pub fn products(&self) -> i64 {
        self.batch.unwrap_or(1)
    }
}

/// A matrix product. Where sums already have C's type, and no epilogue is to follow ([`GemmSpec::epilogue`]), it is one block `C` over loops
/// i, j, k; else block `mma` sums into the global buffer `acc`, and block `out` converts over loops out_i, out_j. Of a batch a loop `b` is
/// around each.
///
/// # Errors
/// `te.extent` and `te.limit` where an extent is not positive or an array has more than 2^36 elements; `te.type` where the types make no
/// product.
pub fn gemm(spec: &GemmSpec) -> Result<Func> {
    gemm_with(spec, &[])
}

/// [`gemm`] of so many independent products.
///
/// # Errors
/// As [`gemm`].
pub fn batched_gemm(batch: i64, spec: &GemmSpec) -> Result<Func> {
    gemm(&GemmSpec { batch: Some(batch), ..*spec })
}

/// A matrix product with elementwise steps behind it, each a further block: `mma` sums into `acc`, each step writes a
/// buffer of its block's name, and the last block writes C (block `out`, if C's type differs from that of the last step).
/// Parameters: A, B, the steps' inputs in their order, C.
///
/// # Errors
/// As [`gemm`]; `te.epilogue` where a step is given twice, or the accumulators' type cannot express a step or block-wise scales.
pub fn gemm_with(spec: &GemmSpec, epilogues: &[Epilogue]) -> Result<Func> {
    let name = if spec.batch.is_some() { "batched_gemm" } else { "gemm" };
    build_gemm(name, spec, epilogues)
}

fn build_gemm(name: &str, spec: &GemmSpec, epilogues: &[Epilogue]) -> Result<Func> {
    epilogue::check(spec, epilogues)?;
    BlockScales::check(spec)?;
    let mut p = Program::new(name)?;
    let lead: Vec<(&str, i64)> = spec.batch.map(|b| ("b", b)).into_iter().collect();
    let spatial = [lead.as_slice(), &[("i", spec.m), ("j", spec.n)]].concat();
    let shape_of = |dims: [i64; 2]| lead.iter().map(|l| l.1).chain(dims).collect::<Vec<_>>();
    let (a_t, b_t) = (spec.layout.a_transposed(), spec.layout.b_transposed());
    let a_shape = shape_of(if a_t { [spec.k, spec.m] } else { [spec.m, spec.k] });
    let b_shape = shape_of(if b_t { [spec.n, spec.k] } else { [spec.k, spec.n] });
    let [a_row, b_row, c_row] = spec.row_strides;
    let rows = dynamic_rows(&mut p, spec)?;
    let a = p.input_with("A", spec.a, &a_shape, strides(&a_shape, a_row), 16)?;
    let b = p.input_with("B", spec.b, &b_shape, strides(&b_shape, b_row), 16)?;
    let scales = if spec.block_scales { Some(BlockScales::of(&mut p, spec)?) } else { None };
    let inputs = epilogues.iter().map(|e| e.input(&mut p, spec)).collect::<Result<Vec<_>>>()?;
    if let Some(rows) = rows {
        let of_rows = epilogues.iter().zip(&inputs).filter(|(e, _)| e.has_rows());
        [a].into_iter().chain(of_rows.filter_map(|(_, input)| *input)).for_each(|input| p.dynamic_input(input, rows));
    }
    let product = |v: &[Var]| {
        let (lead, i, j, k) = (&v[..lead.len()], v[v.len() - 3], v[v.len() - 2], v[v.len() - 1]);
        let element = |buffer, x, y| Expr::load(buffer, lead.iter().chain([&x, &y]).map(|v| Index::Var(*v)).collect());
        let left = if a_t { element(a, k, i) } else { element(a, i, k) };
        let right = if b_t { element(b, j, k) } else { element(b, k, j) };
        let product = Expr::bin(BinOp::Mul, convert(spec.a, spec.acc, left), convert(spec.b, spec.acc, right));
        scales.iter().fold(product, |product, scales| scales.of_term(product, lead, [i, j, k]))
    };
    let over = [("k", spec.k)];
    let c_strides = strides(&shape_of([spec.m, spec.n]), c_row);
    let result = |stage| result(stage, c_strides.clone());
    if spec.acc == spec.out && epilogues.is_empty() && !spec.epilogue {
        p.compute(&result(Stage::new("C", spec.acc, &spatial).reduce(Reducer::Sum, &over)), product)?;
        return p.finish();
    }
    let mma = Stage::new("acc", spec.acc, &spatial).label("mma").reduce(Reducer::Sum, &over);
    let (mut value, mut dtype) = (p.compute(&mma, product)?, spec.acc);
    let last = epilogues.iter().fold(spec.acc, |dtype, e| e.dtype(dtype));
    for (n, (epilogue, input)) in epilogues.iter().zip(inputs).enumerate() {
        let own = epilogue.dtype(dtype);
        let stage = |buffer| Stage::new(buffer, own, &spatial).label(epilogue.label());
        let stage = match n + 1 == epilogues.len() && last == spec.out {
            true => result(stage("C")),
            false => stage(epilogue.label()),
        };
        value = p.compute(&stage, |v| epilogue.apply(spec, dtype, at(value, v), input, v))?;
        dtype = own;
    }
    if epilogues.is_empty() || last != spec.out {
        let out = result(Stage::new("C", spec.out, &spatial).label("out"));
        p.compute(&out, |v| convert(dtype, spec.out, at(value, v)))?;
    }
    p.finish()
}

/// The dynamic number of rows, where it is dynamic.
fn dynamic_rows(p: &mut Program, spec: &GemmSpec) -> Result<Option<SizeId>> {
    let Some(least) = spec.least_m else { return Ok(None) };
    let inner = [
        (spec.layout.a_transposed(), "A is stored [K, M]: use layout NN or NT"),
        (spec.batch.is_some(), "a batch is the outermost dimension: compile a kernel for each size"),
        (spec.block_scales, "scales of blocks are stored [K / 128, M]: compile a kernel for each size"),
    ];
    if let Some((_, why)) = inner.iter().find(|(is, _)| *is) {
        let message = "M is dynamic, but not the outermost extent of every array that it is an extent of";
        return Err(Error::input(Code::SizeForm, message).help(*why));
    }
    p.size("M", least, spec.m, spec.m_by).map(Some)
}

/// The stage as the one that writes C.
fn result(stage: Stage<'_>, strides: Option<Vec<i64>>) -> Stage<'_> {
    Stage { output: true, strides, ..stage }
}

/// The strides of an array whose rows are so many elements apart.
fn strides(shape: &[i64], row: Option<i64>) -> Option<Vec<i64>> {
    let row = row?;
    let [.., rows, _] = *shape else { return None };
    let whole = [rows.saturating_mul(row), row, 1];
    Some(whole[3 - shape.len().min(3)..].to_vec())
}

pub(super) fn at(buffer: BufferId, vars: &[Var]) -> Expr {
    Expr::load(buffer, vars.iter().map(|v| Index::Var(*v)).collect())
}

pub(super) fn add(a: Expr, b: Expr) -> Expr {
    Expr::bin(BinOp::Add, a, b)
}

pub(super) fn convert(from: DType, to: DType, value: Expr) -> Expr {
    if from == to { value } else { Expr::cast(to, value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::print;

    #[test]
    fn seed_programs_print() {
        assert_eq!(
            print::func(&window_sum(1024).unwrap()),
            "func window_sum(A: global f32[1027], B: global f32[1024])\n\
             \x20 for i in 0..1024\n\
             \x20   block C(vi = i)\n\
             \x20     B[vi] = A[vi] + A[vi + 1] + A[vi + 2]\n"
        );
        assert_eq!(
            print::func(&gemm(&GemmSpec::of(1024, 512, 2048, DType::F32, Layout::NN)).unwrap()),
            "func gemm(A: global f32[1024, 2048], B: global f32[2048, 512], C: global f32[1024, 512])\n\
             \x20 for i in 0..1024\n\
             \x20   for j in 0..512\n\
             \x20     for k in 0..2048\n\
             \x20       block C(vi = i, vj = j, reduce vk = k)\n\
             \x20         init C[vi, vj] = 0.0\n\
             \x20         C[vi, vj] = C[vi, vj] + A[vi, vk]*B[vk, vj]\n"
        );
    }

    #[test]
    fn mixed_gemm_with_epilogues_prints() {
        let spec = GemmSpec { acc: DType::F32, ..GemmSpec::of(64, 32, 16, DType::F16, Layout::TT) };
        let func =
            gemm_with(&spec, &[Epilogue::Bias, Epilogue::Gelu, Epilogue::Scale(0.5), Epilogue::Residual]).unwrap();
        assert_eq!(
            print::func(&func),
            "func gemm(A: global f16[16, 64], B: global f16[32, 16], bias: global f16[32], \
             residual: global f16[64, 32], C: global f16[64, 32])\n\
             \x20 acc: global f32[64, 32]\n\
             \x20 add_bias: global f32[64, 32]\n\
             \x20 gelu: global f32[64, 32]\n\
             \x20 scale: global f32[64, 32]\n\
             \x20 add_residual: global f32[64, 32]\n\
             \x20 for i in 0..64\n\
             \x20   for j in 0..32\n\
             \x20     for k in 0..16\n\
             \x20       block mma(vi = i, vj = j, reduce vk = k)\n\
             \x20         init acc[vi, vj] = 0.0\n\
             \x20         acc[vi, vj] = acc[vi, vj] + f32(A[vk, vi])*f32(B[vj, vk])\n\
             \x20 for add_bias_i in 0..64\n\
             \x20   for add_bias_j in 0..32\n\
             \x20     block add_bias(vi = add_bias_i, vj = add_bias_j)\n\
             \x20       add_bias[vi, vj] = acc[vi, vj] + f32(bias[vj])\n\
             \x20 for gelu_i in 0..64\n\
             \x20   for gelu_j in 0..32\n\
             \x20     block gelu(vi = gelu_i, vj = gelu_j)\n\
             \x20       gelu[vi, vj] = add_bias[vi, vj]*0.5*(1.0 + erf(add_bias[vi, vj]*0.7071067811865476))\n\
             \x20 for scale_i in 0..64\n\
             \x20   for scale_j in 0..32\n\
             \x20     block scale(vi = scale_i, vj = scale_j)\n\
             \x20       scale[vi, vj] = gelu[vi, vj]*0.5\n\
             \x20 for add_residual_i in 0..64\n\
             \x20   for add_residual_j in 0..32\n\
             \x20     block add_residual(vi = add_residual_i, vj = add_residual_j)\n\
             \x20       add_residual[vi, vj] = scale[vi, vj] + f32(residual[vi, vj])\n\
             \x20 for out_i in 0..64\n\
             \x20   for out_j in 0..32\n\
             \x20     block out(vi = out_i, vj = out_j)\n\
             \x20       C[vi, vj] = f16(add_residual[vi, vj])\n"
        );
    }

    #[test]
    fn wrong_sizes_are_refused() {
        for n in [0, -1, i64::MAX, i64::MIN] {
            assert!(vec_add(n).is_err(), "{n}");
            assert!(window_sum(n).is_err(), "{n}");
            assert!(batched_gemm(n, &GemmSpec::of(8, 8, 8, DType::F32, Layout::NN)).is_err(), "{n}");
        }
        assert!(gemm(&GemmSpec::of(8, 8, 8, DType::Bool, Layout::NN)).is_err());
    }
}
