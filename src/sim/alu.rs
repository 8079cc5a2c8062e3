//! Operations on registers: a warp's lanes at once, the type decided once for all of them.

use super::code::Op;
use super::integer;
use super::value::{self, NumberKind, f32_of};
use super::warp::{Register, Trap, Warp};
use crate::dtype::DType;
use crate::ir::{BinOp, CmpOp, UnOp};

/// An operation that combines an element with a value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Combine {
    pub op: BinOp,
    pub dtype: DType,
    pub kind: NumberKind,
}

/// Runs an operation on registers.
pub(super) fn run(op: &Op, warp: &mut Warp) -> Result<(), Trap> {
    match *op {
        Op::Const { dst, bits } => warp.registers[dst as usize][..warp.width].fill(bits),
        Op::Splat { dst, lanes } => {
            let first = warp.registers[dst as usize];
            warp.registers[dst as usize..(dst + lanes) as usize].fill(first);
        }
        Op::Shuffle { dst, lanes, mask } => {
            let there = |lane: usize| (lane ^ mask as usize) < warp.width;
            if warp.mask != warp.full || !(0..warp.width).all(there) {
                return Err(Trap::Divergence { mask: warp.mask });
            }
            for register in &mut warp.registers[dst as usize..(dst + lanes) as usize] {
                let all = *register;
                register[..warp.width].iter_mut().enumerate().for_each(|(l, r)| *r = all[l ^ mask as usize]);
            }
        }
        Op::Un { op, dtype, kind, dst, lanes } => {
            for register in &mut warp.registers[dst as usize..(dst + lanes) as usize] {
                un(op, dtype, kind, &mut register[..warp.width]).ok_or(Trap::Broken("a unary operation"))?;
            }
        }
        Op::Cast { from, to, integer, dst, lanes } => {
            for register in &mut warp.registers[dst as usize..(dst + lanes) as usize] {
                cast(from, to, integer, &mut register[..warp.width]);
            }
        }
        Op::Bin { op, dtype, kind, dst, lanes } => {
            let combine = Combine { op, dtype, kind };
            let (width, mask) = (warp.width, warp.mask);
            for (a, b) in pairs(warp, dst, lanes) {
                bin(combine, &mut a[..width], &b[..width], mask)?;
            }
        }
        Op::Cmp { op, kind, dst, lanes } => {
            let width = warp.width;
            for (a, b) in pairs(warp, dst, lanes) {
                cmp(op, kind, &mut a[..width], &b[..width]);
            }
        }
        Op::Select { dst, masks, lanes } => select(warp, dst as usize, masks as usize, lanes as usize),
        _ => return Err(Trap::Broken("an unknown operation")),
    }
    Ok(())
}

fn pairs(warp: &mut Warp, dst: u32, lanes: u32) -> impl Iterator<Item = (&mut Register, &Register)> {
    let (dst, lanes) = (dst as usize, lanes as usize);
    let (left, right) = warp.registers[dst..dst + 2 * lanes].split_at_mut(lanes);
    left.iter_mut().zip(right.iter())
}

fn select(warp: &mut Warp, dst: usize, masks: usize, lanes: usize) {
    for j in 0..lanes {
        let mask = warp.registers[dst + if masks == 1 { 0 } else { j }];
        let (a, b) = (warp.registers[dst + masks + j], warp.registers[dst + masks + lanes + j]);
        // The condition of a single lane is overwritten last: it is in the first register.
        let chosen: Register = std::array::from_fn(|l| if mask[l] != 0 { a[l] } else { b[l] });
        warp.registers[dst + masks + j] = chosen;
    }
    warp.registers.copy_within(dst + masks..dst + masks + lanes, dst);
}

#[inline(always)]
fn each_f32(a: &mut [u64], b: &[u64], f: impl Fn(f32, f32) -> f32) {
    for (a, b) in a.iter_mut().zip(b) {
        *a = u64::from(f(f32_of(*a), f32_of(*b)).to_bits());
    }
}

#[inline(always)]
fn each(a: &mut [u64], b: &[u64], f: impl Fn(u64, u64) -> u64) {
    for (a, b) in a.iter_mut().zip(b) {
        *a = f(*a, *b);
    }
}

fn bin(c: Combine, a: &mut [u64], b: &[u64], mask: u32) -> Result<(), Trap> {
    match (c.kind, c.op) {
        (NumberKind::F32, BinOp::Add) => each_f32(a, b, |x, y| x + y),
        (NumberKind::F32, BinOp::Mul) => each_f32(a, b, |x, y| x * y),
        (NumberKind::Integer, BinOp::Add) => each(a, b, |x, y| u64::from((x as u32).wrapping_add(y as u32))),
        (NumberKind::Integer, BinOp::Mul) => each(a, b, |x, y| u64::from((x as u32).wrapping_mul(y as u32))),
        (NumberKind::Int, BinOp::Div) => {
            let zero = |l: &usize| mask >> l & 1 == 1 && b[*l] == 0;
            if let Some(lane) = (0..b.len()).find(zero) {
                return Err(Trap::Division { lane });
            }
            each(a, b, |x, y| combine(c, x, y));
        }
        _ => {
            each(a, b, |x, y| combine(c, x, y));
            return Ok(());
        }
    }
    if c.kind == NumberKind::F32 && c.dtype != DType::F32 {
        for v in a {
            *v = u64::from(value::round_f32(c.dtype, f32_of(*v)).to_bits());
        }
    }
    Ok(())
}

/// One element of any binary operation, rounded or wrapped to its type.
pub(super) fn combine(c: Combine, a: u64, b: u64) -> u64 {
    match c.kind {
        NumberKind::F32 => {
            let exact = value::bin_f32(c.op, f32_of(a), f32_of(b)).unwrap_or(f32::NAN);
            u64::from(value::round_f32(c.dtype, exact).to_bits())
        }
        NumberKind::F64 => value::bin_f64(c.op, f64::from_bits(a), f64::from_bits(b)).unwrap_or(f64::NAN).to_bits(),
        NumberKind::Int => value::wrap(c.dtype, value::bin_int(c.op, a as i64, b as i64)) as u64,
        NumberKind::Integer => u64::from(integer::bin(c.op, c.dtype, a as u32, b as u32)),
    }
}

fn un(op: UnOp, dtype: DType, kind: NumberKind, a: &mut [u64]) -> Option<()> {
    for v in a {
        *v = match kind {
            NumberKind::F32 => u64::from(value::round_f64(dtype, value::un_f64(op, f64::from(f32_of(*v)))?).to_bits()),
            NumberKind::F64 => value::un_f64(op, f64::from_bits(*v))?.to_bits(),
            NumberKind::Int => value::wrap(dtype, value::un_int(op, dtype, *v as i64)?) as u64,
            NumberKind::Integer => u64::from(integer::un(op, dtype, *v as u32)),
        };
    }
    Some(())
}

fn cast(from: DType, to: DType, integer_mode: bool, a: &mut [u64]) {
    if from == to {
        return;
    }
    let converted = integer::conversion(from, to);
    for v in a {
        *v = if integer_mode { u64::from(converted(*v as u32)) } else { value::cast(from, to, *v) };
    }
}

fn cmp(op: CmpOp, kind: NumberKind, a: &mut [u64], b: &[u64]) {
    let order = |x: u64, y: u64| match kind {
        NumberKind::F32 => f32_of(x).partial_cmp(&f32_of(y)),
        NumberKind::F64 => f64::from_bits(x).partial_cmp(&f64::from_bits(y)),
        NumberKind::Int => Some((x as i64).cmp(&(y as i64))),
        NumberKind::Integer => Some((x as u32).cmp(&(y as u32))),
    };
    each(a, b, |x, y| u64::from(op.holds(order(x, y))));
}
