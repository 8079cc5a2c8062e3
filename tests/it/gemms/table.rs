//! The table of cases: types x layouts x sizes at every kind of edge, epilogues, and recipes by name.

use std::fmt;
use warploom::DType;
use warploom::gemm::{Gemv, Kind, Tiles};
use warploom::te::{Epilogue, GemmSpec, Layout};

/// Types of a product: A, B, sums, result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Types(pub DType, pub DType, pub DType, pub DType);

impl Types {
    const fn same(a: DType, acc: DType, out: DType) -> Types {
        Types(a, a, acc, out)
    }

    /// `f16>f32>f16`, or `u8*s8>s32`.
    pub fn name(self) -> String {
        let Types(a, b, acc, out) = self;
        let factors = if a == b { a.to_string() } else { format!("{a}*{b}") };
        match (a == acc && acc == out, acc == out) {
            (true, _) => factors,
            (false, true) => format!("{factors}>{acc}"),
            (false, false) => format!("{factors}>{acc}>{out}"),
        }
    }

    /// Rows of elements below a byte end with a byte: their products have extents of whole bytes.
    fn spec(self, size: [i64; 3], layout: Layout) -> GemmSpec {
        let Types(a, b, acc, out) = self;
        let multiple = u64::from(8 / a.bits().min(8));
        let [m, n, k] = size.map(|extent| (extent as u64).next_multiple_of(multiple) as i64);
        GemmSpec::of(m, n, k, a, layout).types(a, b, acc, out)
    }
}

use DType::{B1, Bf16, E4m3, E5m2, F16, F32, F64, S4, S8, S32, Tf32, U4, U8};

/// The types of products.
pub const TYPES: [Types; 19] = [
    Types::same(F16, F32, F16),
    Types::same(F16, F32, F32),
    Types::same(F16, F16, F16),
    Types::same(Bf16, F32, Bf16),
    Types::same(Bf16, F32, F32),
    Types::same(S8, S32, S32),
    Types::same(U8, S32, S32),
    Types(U8, S8, S32, S32),
    Types(S8, U8, S32, S32),
    Types::same(S4, S32, S32),
    Types::same(U4, S32, S32),
    Types::same(F32, F32, F32),
    Types::same(F64, F64, F64),
    Types::same(Tf32, F32, F32),
    Types::same(E4m3, F32, F16),
    Types(E4m3, E5m2, F32, F32),
    Types(E5m2, E4m3, F32, E4m3),
    Types::same(E5m2, F16, F16),
    Types::same(B1, S32, S32),
];

/// How the steps of a case are found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Recipe {
    /// As the library recommends.
    Recommended,
    /// As the library has it for a kind of code.
    Kind(Kind),
    /// Ordinary code with these tiles.
    Simt(Tiles),
    /// Ordinary code for few rows or columns, in this shape.
    Gemv(Gemv),
    /// The steps of an example, at the case's size.
    Example(&'static str),
    /// The steps of the candidate of this name for a large product ([`LARGE_CANDIDATE`]), at the case's size.
    Candidate(&'static str),
}

/// A product to compute, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// What to multiply.
    pub spec: GemmSpec,
    /// What follows.
    pub epilogues: Vec<Epilogue>,
    /// The steps.
    pub recipe: Recipe,
}

impl Case {
    pub fn new(types: Types, layout: Layout, size: [i64; 3]) -> Case {
        Case { spec: types.spec(size, layout), epilogues: Vec::new(), recipe: Recipe::Recommended }
    }

    /// The types.
    pub fn types(&self) -> Types {
        Types(self.spec.a, self.spec.b, self.spec.acc, self.spec.out)
    }

    /// Multiply-adds.
    pub fn volume(&self) -> i64 {
        self.spec.sizes().iter().product()
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = self.spec.sizes().iter().map(i64::to_string).collect::<Vec<_>>().join("x");
        write!(f, "{} {} {sizes}", self.types().name(), self.spec.layout.name())?;
        self.epilogues.iter().try_for_each(|e| write!(f, " {}", e.name()))?;
        match self.recipe {
            Recipe::Recommended => Ok(()),
            Recipe::Kind(kind) => write!(f, ", {}", kind.name()),
            Recipe::Simt(Tiles { bm, bn, bk, tm, tn, stages, parts }) => {
                write!(f, ", tiles {bm}x{bn}x{bk} of {tm}x{tn} a thread, {stages} stages, {parts} parts")
            }
            Recipe::Gemv(Gemv { lanes, groups, vector, unroll, rows, parts, staged }) => {
                write!(
                    f,
                    ", gemv of {groups}x{lanes} threads, {rows} rows of {unroll} vectors of {vector}, {parts} parts, {}",
                    if staged { "staged" } else { "in registers" }
                )
            }
            Recipe::Example(name) => write!(f, ", steps of {name}"),
            Recipe::Candidate(name) => write!(f, ", candidate {name}"),
        }
    }
}

/// The size whose candidates [`Recipe::Candidate`] names.
pub const LARGE_CANDIDATE: [i64; 3] = [5120; 3];

/// A size that every tile divides.
pub const ALIGNED: [i64; 3] = [128, 128, 64];

/// Sizes at which something ends: tiles of rows and columns, vectors, instructions and slots along k.
const EDGES: [[i64; 3]; 24] = [
    // One less and one more than a tile.
    [127, 129, 63],
    [129, 127, 65],
    // Ragged, and prime.
    [100, 60, 40],
    [131, 61, 37],
    // One of everything, a row, a column, an outer product.
    [1, 1, 1],
    [1, 256, 64],
    [256, 1, 33],
    [72, 64, 1],
    // Around one and two steps of k of an instruction ..
    [64, 72, 7],
    [72, 64, 8],
    [64, 64, 15],
    [80, 48, 16],
    [48, 80, 17],
    [64, 64, 31],
    [72, 72, 32],
    [64, 64, 33],
    // .. and around rings of two to four slots of 32 and 64.
    [64, 64, 95],
    [64, 64, 96],
    [64, 64, 97],
    [64, 32, 128],
    [32, 64, 129],
    [64, 64, 191],
    [64, 32, 257],
    // Leading dimensions that no vector divides.
    [255, 131, 67],
];

/// Sizes for devices.
const LARGE: [[i64; 3]; 8] = [
    [512, 512, 512],
    [1000, 1000, 1000],
    [1023, 1025, 1027],
    [512, 32, 512],
    [16, 1024, 1024],
    [2048, 1024, 512],
    [511, 769, 2049],
    [1024, 1024, 1023],
];

/// Sizes with whole tiles and parts of them, for tiles that no one cuts down.
const WHOLE: [[i64; 3]; 5] = [[129, 131, 17], [255, 131, 67], [160, 144, 96], [131, 137, 61], [129, 191, 33]];

/// Edges of each types and layout, and large sizes.
const EDGES_EACH: usize = 4;
const LARGE_EACH: usize = 2;

/// All cases, in a fixed order: those of one types and layout stand together.
pub fn all() -> Vec<Case> {
    let mut out = Vec::new();
    let (mut edge, mut large) = (0, 0);
    for (types, layout) in pairs() {
        out.push(Case::new(types, layout, ALIGNED));
        // 24 edges and 5 of a step have no common divisor: in a few turns every types meets every edge.
        out.extend((0..EDGES_EACH).map(|n| Case::new(types, layout, EDGES[(edge + 5 * n) % EDGES.len()])));
        out.extend((0..LARGE_EACH).map(|n| Case::new(types, layout, LARGE[(large + n) % LARGE.len()])));
        (edge, large) = (edge + 7, large + 3);
    }
    out.extend(epilogues());
    out.extend(recipes());
    out.extend(batches());
    out
}

/// Batches: of a product that tiles divide, of one that they do not, and of one whose rows no vector divides.
fn batches() -> Vec<Case> {
    let (mut out, recipes) = (Vec::new(), [Recipe::Recommended, Recipe::Kind(Kind::Simt), Recipe::Kind(Kind::Wmma)]);
    for (n, (types, layout)) in pairs().enumerate() {
        let size = [[64, 64, 64], [72, 40, 48], [33, 47, 35]][n % 3];
        let case = Case { recipe: recipes[n / 3 % 3], ..Case::new(types, layout, size) };
        // No chip has every types.
        let any = matches!(types.0, F16 | S8 | U8) && types.0 == types.1;
        let recipe = if any { case.recipe } else { Recipe::Recommended };
        out.push(Case { spec: case.spec.batch(Some(3)), recipe, ..case });
    }
    let large = TYPES[0].spec([512, 512, 512], Layout::NN).batch(Some(5));
    out.push(Case { spec: large, epilogues: Vec::new(), recipe: Recipe::Recommended });
    out
}

/// Every types in every layout.
fn pairs() -> impl Iterator<Item = (Types, Layout)> {
    TYPES.into_iter().flat_map(|types| Layout::ALL.map(|layout| (types, layout)))
}

/// What stands behind products, on a size that tiles divide and on one that they do not. Integers are cast down too.
fn epilogues() -> Vec<Case> {
    let types = [
        Types::same(F16, F32, F16),
        Types::same(F16, F32, F32),
        Types::same(Bf16, F32, Bf16),
        Types::same(F32, F32, F32),
        Types::same(S8, S32, S32),
        Types::same(S8, S32, S8),
        Types::same(S4, S32, S32),
        Types::same(U4, S32, S8),
    ];
    let scale = |types: Types| Epilogue::Scale(if types.2.is_float() { 0.5 } else { 3.0 });
    let behind = |types: Types| {
        use Epilogue::{Beta, Bias, Relu, Residual, RowBias};
        let all = vec![Bias, Relu, scale(types), Residual];
        [vec![], vec![Relu], vec![Bias], vec![Residual], vec![scale(types)], vec![Beta(2.0), RowBias], all]
    };
    let mut out = Vec::new();
    for types in types {
        for (n, epilogues) in behind(types).into_iter().enumerate() {
            let layout = Layout::ALL[(n + out.len()) % 4];
            for size in [[128, 64, 96], [100, 72, 40]] {
                out.push(Case { epilogues: epilogues.clone(), ..Case::new(types, layout, size) });
            }
        }
    }
    out
}

/// Steps that nothing recommends for the size: tiles by hand, and the examples on tensor cores.
fn recipes() -> Vec<Case> {
    let tiles = [(64, 32, 8, 4, 4, 1, 1), (32, 64, 16, 2, 8, 2, 1), (16, 16, 4, 1, 1, 2, 3), (128, 64, 16, 8, 4, 1, 2)];
    let mut out = Vec::new();
    for (n, (bm, bn, bk, tm, tn, stages, parts)) in tiles.into_iter().enumerate() {
        for (t, types) in [TYPES[0], TYPES[3], TYPES[5], TYPES[11], TYPES[12], TYPES[13]].into_iter().enumerate() {
            let case = Case::new(types, Layout::ALL[(n + t) % 4], WHOLE[(n + t) % WHOLE.len()]);
            out.push(Case { recipe: Recipe::Simt(Tiles { bm, bn, bk, tm, tn, stages, parts }), ..case });
        }
    }
    out.extend(gemvs());
    for (n, (types, layout)) in pairs().filter(|(t, _)| ![F32, F64].contains(&t.0)).enumerate() {
        for (at, kind) in [Kind::Wmma, Kind::Mma].into_iter().enumerate() {
            let ragged = [[129, 131, 65], [100, 60, 40], [64, 72, 33]][(n + at) % 3];
            let kind = |size| Case { recipe: Recipe::Kind(kind), ..Case::new(types, layout, size) };
            out.extend([[64, 64, 64], ragged].map(kind));
        }
    }
    // Only accelerated chips have a recipe for these.
    let own_sums = |t: &Types| (t.2 == t.3 || t.0.is_float()) && t.0.bits() == 8 || t.2 == t.3 && t.0.bits() == 16;
    for (n, (types, layout)) in pairs().filter(|(t, _)| own_sums(t)).enumerate() {
        let sizes = [[128, 256, 192], [[129, 131, 65], [300, 200, 136], [511, 264, 333]][n % 3]];
        out.extend(sizes.map(|size| Case { recipe: Recipe::Kind(Kind::Wgmma), ..Case::new(types, layout, size) }));
    }
    let examples = [
        ("mma_f16", TYPES[0], Layout::NT),
        ("mma_f16_nn", TYPES[1], Layout::NN),
        ("mma_bf16", TYPES[3], Layout::NT),
        ("mma_s8", TYPES[5], Layout::NT),
        ("mma_s4", TYPES[9], Layout::NT),
        ("mma_f16_staged", TYPES[0], Layout::NT),
        ("mma_f16_stmatrix", TYPES[0], Layout::NT),
        ("mma_f16_ragged", TYPES[0], Layout::NT),
    ];
    for (name, types, layout) in examples {
        let sizes = match name.ends_with("ragged") {
            true => [[131, 72, 40], [257, 136, 104], [511, 1000, 1000]],
            false => [[128, 128, 128], [128, 256, 256], [512, 256, 1024]],
        };
        out.extend(sizes.map(|size| Case { recipe: Recipe::Example(name), ..Case::new(types, layout, size) }));
    }
    // Fewer and more k iterations than stages; rows of tiles beyond C; more tiles than blocks.
    for types in [TYPES[0], TYPES[3]] {
        let sizes = [[168, 256, 192], [200, 512, 640], [8192, 1024, 64]];
        let recipe = Recipe::Candidate("wgmma 168x256 in ping-pong, A and B swapped");
        out.extend(sizes.map(|size| Case { recipe, ..Case::new(types, Layout::NN, size) }));
    }
    out
}

/// Products with few rows or columns: lanes along k and across, groups of more than a warp, parts, and rows that no vector divides.
fn gemvs() -> Vec<Case> {
    let shape = |[lanes, groups, vector, unroll, rows, parts]: [i64; 6]| Gemv {
        lanes,
        groups,
        vector,
        unroll,
        rows,
        parts,
        staged: false,
    };
    let along_k = [[32, 2, 1, 2, 2, 1], [8, 4, 4, 1, 4, 3], [64, 2, 2, 2, 1, 2], [16, 8, 1, 4, 1, 1]].map(shape);
    let across = [[32, 1, 1, 2, 1, 1], [8, 4, 4, 4, 1, 3], [16, 8, 2, 2, 1, 1], [32, 2, 1, 8, 1, 2]].map(shape);
    let sizes = [[1, 132, 516], [5, 68, 264], [132, 3, 260], [67, 1, 131], [8, 61, 257], [72, 16, 136]];
    let mut out = Vec::new();
    let bytes = |t: &Types| t.0.bits() >= 8 && t.1.bits() >= 8;
    for (n, (types, layout)) in pairs().filter(|(t, _)| bytes(t)).enumerate() {
        let [m, n_, k] = sizes[n % sizes.len()];
        let case = Case::new(types, layout, [m, n_, k]);
        // The rows of the large operand run along k.
        let runs = if m > n_ { !layout.a_transposed() } else { layout.b_transposed() };
        let (shapes, row) = if runs { (along_k, k) } else { (across, m.max(n_)) };
        let aligned = |g: Gemv| Gemv { vector: if row % g.vector == 0 { g.vector } else { 1 }, ..g };
        let of = |at: usize, staged| Gemv { staged, ..aligned(shapes[(n / 4 + at) % 4]) };
        let all = [of(0, false), of(2, false), of(n, true)];
        out.extend(all.map(|gemv| Case { recipe: Recipe::Gemv(gemv), ..case.clone() }));
    }
    let batch = Case::new(TYPES[0], Layout::NT, [3, 68, 264]);
    for staged in [false, true] {
        let recipe = Recipe::Gemv(Gemv { parts: 1, staged, ..along_k[1] });
        out.push(Case { spec: batch.spec.batch(Some(3)), recipe, ..batch.clone() });
    }
    out
}

#[test]
fn the_table_is_as_wide_as_it_says() {
    let cases = all();
    assert!(cases.len() >= 300, "{}", cases.len());
    for (types, layout) in pairs() {
        let these = cases.iter().filter(|c| c.types() == types && c.spec.layout == layout);
        assert!(these.count() > EDGES_EACH + LARGE_EACH, "{} {}", types.name(), layout.name());
    }
    for size in EDGES.iter().chain(&LARGE) {
        assert!(cases.iter().any(|c| [c.spec.m, c.spec.n, c.spec.k] == *size), "{size:?}");
    }
    let names: std::collections::BTreeSet<String> = cases.iter().map(Case::to_string).collect();
    assert_eq!(names.len(), cases.len(), "a case is given twice");
}
