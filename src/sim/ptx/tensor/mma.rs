//! mma.sync: a warp multiplies fragments and adds to a fragment (PTX ISA, "mma"). The arithmetic is `number`'s, the
//! places of the elements are `fragment`'s.

use super::super::inst::Inst;
use super::super::trap::Trap;
use super::super::warp::Context;
use super::float8::Float8;
use super::fragment;
use super::number::{Number, count_differing, is_integer, multiply};
use super::operands::{count, put, registers, unsupported, whole_warp, words};
use crate::dtype::DType;
use crate::error::Result;

/// A decoded mma.sync.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mma {
    rows: usize,
    depth: usize,
    /// D and C, A, B.
    types: [DType; 3],
    /// Whether single bits are compared, not multiplied.
    differs: bool,
}

/// `m16n8k16`: the three numbers.
pub(super) fn shape(text: &str) -> Option<[usize; 3]> {
    let (m, rest) = text.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    Some([m.parse().ok()?, n.parse().ok()?, k.parse().ok()?])
}

/// The shape of an mma.sync whose four types are f64.
pub(super) fn doubles(inst: &Inst) -> Option<[usize; 3]> {
    let parts: Vec<&str> = inst.opcode.iter().map(String::as_str).collect();
    let ["mma", "sync", "aligned", dims, "row", "col", "f64", "f64", "f64", "f64"] = parts[..] else { return None };
    shape(dims)
}

impl Mma {
    pub fn decode(inst: &Inst) -> Result<Mma> {
        let parts: Vec<&str> = inst.opcode.iter().map(String::as_str).collect();
        // Single bits say what is done with them.
        let (parts, differs) = match parts[..] {
            [ref parts @ .., b @ "b1", c, op @ ("and" | "xor"), "popc"] => ([parts, &[b, c]].concat(), op == "xor"),
            [.., "b1", _] => return Err(unsupported(inst, "single bits have .and.popc or .xor.popc")),
            _ => (parts, false),
        };
        let ["mma", "sync", "aligned", dims, "row", "col", d, a, b, c] = parts[..] else {
            return Err(unsupported(inst, "only mma.sync.aligned.SHAPE.row.col with four types is supported"));
        };
        let types = [d, a, b, c].map(DType::parse);
        let (Some([m, n, k]), [Some(d), Some(a), Some(b), Some(c)]) = (shape(dims), types) else {
            return Err(unsupported(inst, "the shape or a type is unknown"));
        };
        let is_known = match a {
            DType::F16 => matches!((m, k), (16, 8 | 16)) && matches!(d, DType::F16 | DType::F32),
            DType::Bf16 => matches!((m, k), (16, 8 | 16)) && d == DType::F32,
            DType::Tf32 => matches!((m, k), (16, 4 | 8)) && d == DType::F32,
            DType::E4m3 | DType::E5m2 => (m, k) == (16, 32) && d == DType::F32,
            DType::S8 | DType::U8 => matches!((m, k), (8, 16) | (16, 16 | 32)) && d == DType::S32,
            DType::S4 | DType::U4 => matches!((m, k), (8, 32) | (16, 32 | 64)) && d == DType::S32,
            DType::B1 => matches!((m, k), (8 | 16, 128) | (16, 256)) && d == DType::S32,
            _ => false,
        };
        let alike = a == b || a.bits() == b.bits() && a.bits() <= 8 && is_integer(a) == is_integer(b);
        if !is_known || n != 8 || d != c || !alike {
            return Err(unsupported(inst, "the PTX ISA has no such shape with these types"));
        }
        count(inst, 4..=4)?;
        for n in [0, 3] {
            registers(inst, n, fragment::accumulator_registers(m, 8, d))?;
        }
        registers(inst, 1, fragment::operand_registers(m, k, a))?;
        registers(inst, 2, fragment::operand_registers(8, k, b))?;
        Ok(Mma { rows: m, depth: k, types: [d, a, b], differs })
    }

    pub fn step(&self, context: &mut Context<'_>) -> std::result::Result<(), Trap> {
        whole_warp(context)?;
        match self.types[1] {
            a if is_integer(a) && self.differs => self.run::<i32>(context, count_differing),
            a if is_integer(a) => self.run::<i32>(context, multiply),
            DType::E4m3 | DType::E5m2 => self.run::<Float8>(context, multiply),
            _ => self.run::<f32>(context, multiply),
        }
        Ok(())
    }

    fn run<N: Number>(&self, context: &mut Context<'_>, add: impl Fn(&mut [N], &[N], &[N], usize, usize)) {
        let [d, a, b] = self.types;
        let mut sums: Vec<N> = fragment::accumulators(&words(context, 3), self.rows, 8, d);
        let x: Vec<N> = fragment::a_rows(&words(context, 1), self.rows, self.depth, a);
        let y: Vec<N> = fragment::b_rows(&words(context, 2), self.depth, b);
        add(&mut sums, &x, &y, 8, self.depth);
        put(context, 0, &fragment::to_registers(&sums, self.rows, 8, d));
    }
}
