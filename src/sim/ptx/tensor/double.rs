//! mma.sync on f64: a warp multiplies fragments and adds to a fragment (PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f64 floating
//! point type" and "... mma.m16n8k4, .m16n8k8 and .m16n8k16 with .f64 floating point type").
//!
//! With g = lane / 4 and t = lane % 4: register r of A is row g + 8 (r mod 2), k = t + 4 (r div 2), with 8 rows row g, k = t + 4 r; register r
//! of B is column g, k = t + 4 r; register r of C and D is row g + 8 (r div 2), column 2 t + r mod 2.
//!
//! The products of an instruction are added to the accumulator in ascending k, each by a fused multiply-add that rounds to nearest even.
//! The PTX ISA leaves the order open.

use super::super::inst::{Inst, Operand};
use super::super::trap::Trap;
use super::super::warp::{Context, LANES};
use super::operands::{count, list, operand, unsupported, whole_warp};
use crate::error::Result;

/// A decoded mma.sync of f64.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubles {
    rows: usize,
    depth: usize,
}

impl Doubles {
    pub fn decode(inst: &Inst, [rows, columns, depth]: [usize; 3]) -> Result<Doubles> {
        if !matches!([rows, columns, depth], [8, 8, 4] | [16, 8, 4 | 8 | 16]) {
            return Err(unsupported(inst, "the PTX ISA has no such shape with these types"));
        }
        count(inst, 4..=4)?;
        for (n, elements) in [rows * 8, rows * depth, 8 * depth, rows * 8].into_iter().enumerate() {
            let registers = list(operand(inst, n)?);
            let wide = registers.iter().all(|r| matches!(r, Operand::Reg { bits: 64, .. }));
            if !wide || registers.len() != elements / LANES {
                let wanted = elements / LANES;
                return Err(unsupported(inst, &format!("operand {} has to be {wanted} registers of 64 bits", n + 1)));
            }
        }
        Ok(Doubles { rows, depth })
    }

    pub fn step(&self, context: &mut Context<'_>) -> std::result::Result<(), Trap> {
        whole_warp(context)?;
        let (depth, tall) = (self.depth, self.rows / 8);
        let mut a = vec![0.0; self.rows * depth];
        each(context, 1, |r, lane, value| a[(lane / 4 + 8 * (r % tall)) * depth + lane % 4 + 4 * (r / tall)] = value);
        let mut b = vec![0.0; 8 * depth];
        each(context, 2, |r, lane, value| b[lane / 4 * depth + lane % 4 + 4 * r] = value);
        let mut sums = vec![[0f64; LANES]; 2 * tall];
        each(context, 3, |r, lane, value| sums[r][lane] = value);
        for (r, sum) in sums.iter_mut().enumerate() {
            for (lane, sum) in sum.iter_mut().enumerate() {
                let (row, column) = (lane / 4 + 8 * (r / 2), lane % 4 * 2 + r % 2);
                let (x, y) = (&a[row * depth..][..depth], &b[column * depth..][..depth]);
                *sum = x.iter().zip(y).fold(*sum, |sum, (x, y)| x.mul_add(*y, sum));
            }
        }
        let inst = context.inst;
        for (part, values) in inst.operands.first().map_or(&[][..], list).iter().zip(&sums) {
            (0..LANES).for_each(|lane| context.set(part, lane, values[lane].to_bits()));
        }
        Ok(())
    }
}

/// The registers of operand `n` in all lanes: register, lane and value.
fn each(context: &Context<'_>, n: usize, mut take: impl FnMut(usize, usize, f64)) {
    for (r, part) in context.inst.operands.get(n).map_or(&[][..], list).iter().enumerate() {
        (0..LANES).for_each(|lane| take(r, lane, f64::from_bits(context.value(part, lane))));
    }
}
