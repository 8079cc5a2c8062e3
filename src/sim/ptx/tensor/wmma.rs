//! wmma: a warp loads, multiplies and stores whole matrices in opaque fragments (PTX ISA, "wmma.load", "wmma.mma",
//! "wmma.store").
//!
//! The address of a matrix is a multiple of the fragment's bytes (PTX ISA, "Matrix Storage for WMMA"). The PTX ISA asks
//! the same of the distance between lines, the CUDA C++ Programming Guide ("Warp Matrix Functions", ldm) for a multiple
//! of 16 bytes: the smaller of the two is checked.

use super::super::inst::Inst;
use super::super::trap::Trap;
use super::super::warp::Context;
use super::mma::shape;
use super::number::{Number, count_differing, is_integer, multiply};
use super::opaque::{Fragment, Matrix};
use super::operands::{address, count, put, read_for_all, registers, space, uniform, unsupported, whole_warp, words};
use crate::dtype::DType;
use crate::error::{Code, Result};

/// What the distance between lines is a multiple of at most, in bytes.
const ALIGN_LINE: u64 = 16;

/// A decoded instruction of this module.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wmma {
    /// `row`: the layout in memory.
    Load {
        fragment: Fragment,
        row: bool,
    },
    Store {
        fragment: Fragment,
        row: bool,
    },
    /// D, A, B, C.
    Multiply([Fragment; 4]),
    /// The same, with single bits compared instead of multiplied.
    Compare([Fragment; 4]),
}

/// The parts of an opcode, and what is done with single bits.
fn opcode(inst: &Inst) -> (Vec<&str>, Option<&str>) {
    let parts: Vec<&str> = inst.opcode.iter().map(String::as_str).filter(|p| *p != "aligned").collect();
    match parts[..] {
        ["wmma", "mma", op @ ("and" | "xor"), "popc", ref rest @ ..] => ([&["wmma", "mma"], rest].concat(), Some(op)),
        _ => (parts, None),
    }
}

impl Wmma {
    pub fn decode(inst: &Inst) -> Result<Wmma> {
        let (parts, bits) = opcode(inst);
        let none = || unsupported(inst, "the PTX ISA has no such shape with these types");
        let layout = |text: &str| match text {
            "row" => Ok(true),
            "col" => Ok(false),
            _ => Err(unsupported(inst, "a layout is missing")),
        };
        match parts[..] {
            ["wmma", "load", letter, "sync", major, dims, .., dtype]
            | ["wmma", "store", letter @ "d", "sync", major, dims, .., dtype] => {
                let matrix = match letter {
                    "a" => Matrix::A,
                    "b" => Matrix::B,
                    _ => Matrix::Accumulator,
                };
                let row = layout(major)?;
                let dtype = DType::parse(dtype).ok_or_else(none)?;
                let fragment = shape(dims).and_then(|s| Fragment::of(matrix, s, dtype, row)).ok_or_else(none)?;
                let (held, memory) = if parts[1] == "load" { (0, 1) } else { (1, 0) };
                count(inst, 2..=3)?;
                registers(inst, held, fragment.registers)?;
                address(inst, memory)?;
                Ok(if held == 0 { Wmma::Load { fragment, row } } else { Wmma::Store { fragment, row } })
            }
            ["wmma", "mma", "sync", first, second, dims, ref types @ ..] => {
                let (row_a, row_b) = (layout(first)?, layout(second)?);
                let types: Option<Vec<DType>> = types.iter().map(|t| DType::parse(t)).collect();
                let [d, a, b, c] = match types.as_deref() {
                    // f16 alone names the types of D and C only.
                    Some([d, c]) => [*d, DType::F16, DType::F16, *c],
                    Some([d, a, b, c]) => [*d, *a, *b, *c],
                    _ => return Err(unsupported(inst, "two or four types are expected")),
                };
                let dims = shape(dims).ok_or_else(none)?;
                let sum_of = |t: DType| match a {
                    DType::F16 => matches!(t, DType::F16 | DType::F32),
                    _ if is_integer(a) => t == DType::S32,
                    _ => t == DType::F32,
                };
                if a != b || !sum_of(d) || !sum_of(c) || (a == DType::B1) != bits.is_some() {
                    return Err(none());
                }
                let all = [
                    Fragment::of(Matrix::Accumulator, dims, d, true),
                    Fragment::of(Matrix::A, dims, a, row_a),
                    Fragment::of(Matrix::B, dims, b, row_b),
                    Fragment::of(Matrix::Accumulator, dims, c, true),
                ];
                let [Some(d), Some(a), Some(b), Some(c)] = all else { return Err(none()) };
                count(inst, 4..=4)?;
                for (n, fragment) in [d, a, b, c].iter().enumerate() {
                    registers(inst, n, fragment.registers)?;
                }
                Ok(if bits == Some("xor") { Wmma::Compare([d, a, b, c]) } else { Wmma::Multiply([d, a, b, c]) })
            }
            _ => Err(unsupported(inst, "only wmma.load, wmma.mma and wmma.store are supported")),
        }
    }

    pub fn step(&self, context: &mut Context<'_>) -> std::result::Result<(), Trap> {
        whole_warp(context)?;
        match self {
            Wmma::Load { fragment, row } => load(context, fragment, *row),
            Wmma::Store { fragment, row } => store(context, fragment, *row),
            Wmma::Compare(all) => run::<i32>(context, all, count_differing),
            Wmma::Multiply(all) if is_integer(all[1].dtype) => run::<i32>(context, all, multiply),
            Wmma::Multiply(all) => run::<f32>(context, all, multiply),
        }
    }
}

/// The elements that are one behind the other in memory (a line), how many lines there are, and the address of each.
struct Lines {
    start: u64,
    pitch: u64,
    length: usize,
    count: usize,
    align: usize,
}

impl Lines {
    fn of(context: &Context<'_>, fragment: &Fragment, row: bool, memory: usize) -> std::result::Result<Lines, Trap> {
        let (length, count) = if row { (fragment.columns, fragment.rows) } else { (fragment.rows, fragment.columns) };
        let start = uniform(context, &context.inst.operands[memory], "the address of a matrix")?;
        let stride = match context.inst.operands.get(2) {
            Some(operand) => uniform(context, operand, "the stride of a matrix")?,
            None => length as u64,
        };
        let pitch = (stride & 0xffff_ffff) * u64::from(fragment.dtype.bits()) / 8;
        let align = 4 * fragment.registers as u64;
        let align_line = align.min(ALIGN_LINE);
        if start % align != 0 || pitch % align_line != 0 {
            let message = format!(
                "a matrix at address {start:#x} with lines {pitch} bytes apart: the address has to be a multiple of {align}, \
                 the distance one of {align_line}"
            );
            return Err(Trap::warp(Code::PtxMisaligned, message));
        }
        Ok(Lines { start, pitch, length, count, align: align_line as usize })
    }

    fn at(&self, line: usize) -> u64 {
        self.start.wrapping_add(line as u64 * self.pitch)
    }
}

fn load(context: &mut Context<'_>, fragment: &Fragment, row: bool) -> std::result::Result<(), Trap> {
    let lines = Lines::of(context, fragment, row, 1)?;
    let (space, bits) = (space(context.inst), fragment.dtype.bits() as usize);
    let mut bytes = vec![0; lines.length * bits / 8];
    let mut elements = vec![0; fragment.rows * fragment.columns];
    for line in 0..lines.count {
        read_for_all(context, space, (0, lines.at(line), lines.align), &mut bytes)?;
        for n in 0..lines.length {
            let at = if row { line * fragment.columns + n } else { n * fragment.columns + line };
            let bit = n * bits;
            let word = bytes[bit / 8..].iter().take(bits.div_ceil(8)).rev().fold(0, |w, b| w << 8 | u32::from(*b));
            elements[at] = word >> (bit % 8) & (u32::MAX >> (32 - bits));
        }
    }
    put(context, 0, &fragment.pack(&elements));
    Ok(())
}

fn store(context: &mut Context<'_>, fragment: &Fragment, row: bool) -> std::result::Result<(), Trap> {
    let lines = Lines::of(context, fragment, row, 0)?;
    let (space, bytes) = (space(context.inst), fragment.dtype.bits() as usize / 8);
    let elements = unpacked(context, fragment, 1)?;
    for line in 0..lines.count {
        let at = |n: usize| if row { line * fragment.columns + n } else { n * fragment.columns + line };
        let data: Vec<u8> =
            (0..lines.length).flat_map(|n| elements[at(n)].to_le_bytes().into_iter().take(bytes)).collect();
        context.write(space, 0, lines.at(line), lines.align, &data)?;
    }
    Ok(())
}

fn unpacked(context: &Context<'_>, fragment: &Fragment, n: usize) -> std::result::Result<Vec<u32>, Trap> {
    fragment.unpack(&words(context, n)).ok_or_else(|| {
        let message = "the copies of an element in a fragment differ: the fragment was made for another instruction";
        Trap::warp(Code::PtxFragment, message)
    })
}

fn run<N: Number>(
    context: &mut Context<'_>,
    [d, a, b, c]: &[Fragment; 4],
    add: impl Fn(&mut [N], &[N], &[N], usize, usize),
) -> std::result::Result<(), Trap> {
    let operands = |f: &Fragment, n| -> std::result::Result<Vec<N>, Trap> {
        Ok(unpacked(context, f, n)?.into_iter().map(|bits| N::operand(f.dtype, bits)).collect())
    };
    let (x, y) = (operands(a, 1)?, operands(b, 2)?);
    let start = unpacked(context, c, 3)?;
    let mut sums: Vec<N> = start.into_iter().map(|bits| N::accumulator(c.dtype, bits)).collect();
    add(&mut sums, &x, &y, d.columns, a.columns);
    let bits: Vec<u32> = sums.into_iter().map(|s| s.bits(d.dtype)).collect();
    put(context, 0, &d.pack(&bits));
    Ok(())
}
