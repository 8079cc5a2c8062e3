//! wmma: products of opaque fragments, by warps, with the loads and stores that go with them.
//!
//! A fragment is loaded from memory whose rows are a stride apart, multiplied, and stored the same way; what is in which
//! register is nowhere said ([`Opaque`]). The geometry names the product of all three matrices, so a tile of A is m x k, one of
//! B k x n, one of the sum m x n. `row` and `col` say which index runs along memory: of A `row` is k, of B `col` is k. A product
//! takes factors that were loaded in the majors that it names; the sum has none.
//!
//! Registers of a lane are those of LLVM's intrinsics: for f16 factors always eight, each element being in several lanes
//! where the matrix is small. Each row of a tile begins at a multiple of what a lane holds of it (PTX ISA, "Matrix Storage for
//! WMMA"), and distances between rows are multiples of 16 bytes (CUDA C++ Programming Guide, "Warp matrix functions").

use super::multiply_add::WITHOUT_INT4;
use crate::dtype::DType;
use crate::intrin::{Action, Emit, Init, Level, Opaque, Operand, Place, Row, Rows};
use crate::ir::layout::Coordinate::{Element, Index};
use crate::ir::layout::{Digit, Layout};
use crate::target::Features;

/// Extents of m, n and k.
#[derive(Clone, Copy)]
pub(super) struct Geometry {
    m: i64,
    n: i64,
    k: i64,
}

pub(super) const fn geometry(m: i64, n: i64, k: i64) -> Geometry {
    Geometry { m, n, k }
}

/// The shape of 4-bit factors, of which A has its rows along k and B its columns.
const INT4: Geometry = geometry(8, 8, 32);

/// The shapes of 16- and 8-bit factors.
const SHAPES: [Geometry; 3] = [geometry(16, 16, 16), geometry(32, 8, 16), geometry(8, 32, 16)];

const MAJORS: [&str; 2] = ["row", "col"];

impl Geometry {
    fn name(self) -> String {
        format!("m{}n{}k{}", self.m, self.n, self.k)
    }
}

/// What a matrix is in the product.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Matrix {
    A,
    B,
    Sum,
}

/// A matrix of a geometry in a type.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub matrix: Matrix,
    pub geometry: Geometry,
    pub dtype: DType,
}

pub(super) fn rows() -> Vec<Row> {
    use DType::{Bf16, F16, F32, S8, S32, U8};
    let mut out = Vec::new();
    for geometry in SHAPES {
        for (dtype, needs) in
            [(F16, Features::WMMA), (Bf16, Features::MMA_AMPERE), (S8, Features::WMMA_INT), (U8, Features::WMMA_INT)]
        {
            out.extend(loads_of_factors(geometry, dtype, needs));
        }
        for (dtype, needs) in [(F16, Features::WMMA), (F32, Features::WMMA), (S32, Features::WMMA_INT)] {
            let sum = Tile { matrix: Matrix::Sum, geometry, dtype };
            out.extend(MAJORS.map(|major| sum.copy(major, false, needs)));
            out.extend(MAJORS.map(|major| sum.copy(major, true, needs)));
        }
        out.extend(products(geometry, [F16, F16], Features::WMMA, "f16.f16"));
        out.extend(products(geometry, [F32, F16], Features::WMMA, "f32.f32"));
        out.extend(products(geometry, [F32, Bf16], Features::MMA_AMPERE, "bf16"));
        out.extend(products(geometry, [S32, S8], Features::WMMA_INT, "s8"));
        out.extend(products(geometry, [S32, U8], Features::WMMA_INT, "u8"));
    }
    out.extend(of_int4());
    out
}

/// 4-bit integers: from sm_90 on the assembler calls a routine of two products of 8-bit integers (ptxas 12.9, 13.0).
fn of_int4() -> Vec<Row> {
    use DType::{S4, S32, U4};
    let (needs, sum) = (Features::MMA_INT, Tile { matrix: Matrix::Sum, geometry: INT4, dtype: S32 });
    let mut out: Vec<Row> =
        [false, true].into_iter().flat_map(|store| MAJORS.map(|major| sum.copy(major, store, needs))).collect();
    for (dtype, types) in [(S4, "s4"), (U4, "u4")] {
        for (matrix, major) in [(Matrix::A, "row"), (Matrix::B, "col")] {
            out.push(Tile { matrix, geometry: INT4, dtype }.copy(major, false, needs));
        }
        out.push(product(INT4, [S32, dtype], ["row", "col"], needs, types));
    }
    for row in &mut out {
        row.emulated_from = Some(WITHOUT_INT4);
    }
    out
}

fn loads_of_factors(geometry: Geometry, dtype: DType, needs: Features) -> Vec<Row> {
    let tiles = [Matrix::A, Matrix::B].map(|matrix| Tile { matrix, geometry, dtype });
    tiles.into_iter().flat_map(|tile| MAJORS.map(|major| tile.copy(major, false, needs))).collect()
}

impl Tile {
    /// In steps and in the PTX ISA; the sum is c where it is loaded, d where it is stored.
    fn letter(self, store: bool) -> &'static str {
        match (self.matrix, store) {
            (Matrix::A, _) => "a",
            (Matrix::B, _) => "b",
            (Matrix::Sum, false) => "c",
            (Matrix::Sum, true) => "d",
        }
    }

    /// Its two indices with their extents, as rows and columns of the matrix.
    fn indices(self) -> [(&'static str, i64); 2] {
        let Geometry { m, n, k } = self.geometry;
        match self.matrix {
            Matrix::A => [("m", m), ("k", k)],
            Matrix::B => [("k", k), ("n", n)],
            Matrix::Sum => [("m", m), ("n", n)],
        }
    }

    /// Elements that a lane has room for.
    fn slots(self) -> i64 {
        let all: i64 = self.indices().iter().map(|i| i.1).product();
        if self.dtype == DType::F16 && self.matrix != Matrix::Sum { 16 } else { all / 32 }
    }

    /// The fragment, walked by two of the indices.
    fn opaque(self, major: &str, walk: [&str; 2]) -> Opaque {
        let [rows, columns] = self.indices();
        let digits = walk.into_iter().enumerate().map(|(at, name)| match name == rows.0 {
            true => Digit::new(Index(at), 1, rows.1, Element, columns.1),
            false => Digit::new(Index(at), 1, columns.1, Element, 1),
        });
        let kind = match self.matrix {
            Matrix::Sum => format!("sum.{}.{}", self.geometry.name(), self.dtype),
            _ => format!("{}.{major}.{}.{}", self.letter(false), self.geometry.name(), self.dtype),
        };
        Opaque { kind, layout: Layout::new(digits), registers: self.slots() * i64::from(self.dtype.bits()) / 32 }
    }

    /// Between memory and the fragment; walked as memory has it.
    pub fn copy(self, major: &str, store: bool, needs: Features) -> Row {
        let [rows, columns] = self.indices();
        let dims = if major == "row" { [rows, columns] } else { [columns, rows] };
        let [(i, rows), (j, columns)] = dims;
        let (letter, dtype, shape) = (self.letter(store), self.dtype, self.geometry.name());
        let align = (self.slots() * i64::from(dtype.bits()) / 8).max(16);
        let memory = Place::Rows(Rows { align, step: 16 });
        let fragment = Place::Opaque(self.opaque(major, [i, j]));
        let word = if store { "store" } else { "load" };
        let (to, from) = if store { (memory, fragment) } else { (fragment, memory) };
        Row {
            name: format!("wmma.{word}.{letter}.{major}.{shape}.{dtype}"),
            about: match store {
                true => "A warp stores an opaque fragment (PTX ISA, wmma.store).",
                false => "A warp loads an opaque fragment (PTX ISA, wmma.load).",
            },
            level: Level::Warp,
            dims: dims.to_vec(),
            operands: vec![Operand::new("D", to), Operand::new("S", from)],
            init: Init::None,
            meaning: format!(
                "program wmma\ninput S {dtype}[{rows}, {columns}]\n\
                 D: output D[{i} {rows}, {j} {columns}] {dtype} = S[{i}, {j}]"
            ),
            action: Action::Copy,
            needs,
            emulated_from: None,
            emit: Some(Emit::Intrinsic {
                name: format!("llvm.nvvm.wmma.{shape}.{word}.{letter}.{major}.stride.{dtype}"),
                operands: if store { &["D", "S"] } else { &["S"] },
            }),
        }
    }
}

/// The products of factors of one type in all majors; `types` as LLVM's intrinsics have them.
fn products(geometry: Geometry, [d, factor]: [DType; 2], needs: Features, types: &str) -> Vec<Row> {
    let majors = MAJORS.into_iter().flat_map(|a| MAJORS.map(|b| (a, b)));
    majors.map(|(a, b)| product(geometry, [d, factor], [a, b], needs, types)).collect()
}

pub(super) fn product(
    geometry: Geometry,
    [d, factor]: [DType; 2],
    [a, b]: [&str; 2],
    needs: Features,
    types: &str,
) -> Row {
    let (Geometry { m, n, k }, shape) = (geometry, geometry.name());
    let tile = |matrix, dtype| Tile { matrix, geometry, dtype };
    let wide = |x: &str| if factor == d { x.to_string() } else { format!("{d}({x})") };
    let (x, y) = (wide("A[m, k]"), wide("B[n, k]"));
    Row {
        name: format!("wmma.mma.{a}.{b}.{shape}.{d}.{factor}.{factor}"),
        about: "A warp multiplies opaque fragments and adds to one (PTX ISA, wmma.mma).",
        level: Level::Warp,
        dims: vec![("m", m), ("n", n), ("k", k)],
        operands: vec![
            Operand::new("D", Place::Opaque(tile(Matrix::Sum, d).opaque("", ["m", "n"]))),
            Operand::new("A", Place::Opaque(tile(Matrix::A, factor).opaque(a, ["m", "k"]))),
            Operand::new("B", Place::Opaque(tile(Matrix::B, factor).opaque(b, ["n", "k"]))),
        ],
        init: Init::None,
        meaning: format!(
            "program wmma\ninput A {factor}[{m}, {k}]; input B {factor}[{n}, {k}]\n\
             D: output D[m {m}, n {n}] {d} = sum(k {k}) {x} * {y}"
        ),
        action: Action::MultiplyAdd,
        needs,
        emulated_from: None,
        emit: Some(Emit::Intrinsic {
            name: format!("llvm.nvvm.wmma.{shape}.mma.{a}.{b}.{types}"),
            operands: &["A", "B", "D"],
        }),
    }
}
