//! ldmatrix, stmatrix and movmatrix: matrices of 8 rows of 8 elements of 16 bits (PTX ISA, "ldmatrix", "stmatrix",
//! "movmatrix").
//!
//! Lane l holds elements 2 (l mod 4) and the next of row l div 4; with `.trans`, of column l div 4. The address of row
//! r of matrix m is lane 8 m + r's.

use super::super::inst::Inst;
use super::super::trap::Trap;
use super::super::warp::Context;
use super::fragment::Lanes;
use super::operands::{address, count, put, read_for_all, registers, space, unsupported, whole_warp, words};
use crate::error::Result;

/// A row of a matrix in memory.
pub(super) type Row = [u8; 16];

fn half(row: &Row, n: usize) -> u32 {
    u32::from(u16::from_le_bytes([row[2 * n], row[2 * n + 1]]))
}

/// The register of each matrix, from the rows of all of them.
pub(super) fn load(rows: &[Row], trans: bool) -> Vec<Lanes> {
    rows.chunks_exact(8)
        .map(|rows| {
            std::array::from_fn(|lane| {
                let (g, t) = (lane / 4, lane % 4);
                match trans {
                    false => half(&rows[g], 2 * t) | half(&rows[g], 2 * t + 1) << 16,
                    true => half(&rows[2 * t], g) | half(&rows[2 * t + 1], g) << 16,
                }
            })
        })
        .collect()
}

/// The rows of all matrices, from a register of each.
pub(super) fn store(registers: &[Lanes], trans: bool) -> Vec<Row> {
    let mut out = vec![[0; 16]; 8 * registers.len()];
    for (m, register) in registers.iter().enumerate() {
        for (lane, word) in register.iter().enumerate() {
            for e in 0..2 {
                let (row, column) = (lane / 4, 2 * (lane % 4) + e);
                let (row, column) = if trans { (column, row) } else { (row, column) };
                let bytes = ((word >> (16 * e)) as u16).to_le_bytes();
                out[8 * m + row][2 * column..2 * column + 2].copy_from_slice(&bytes);
            }
        }
    }
    out
}

/// A matrix in registers, transposed.
pub(super) fn transpose(register: &Lanes) -> Lanes {
    let rows = store(&[*register], false);
    std::array::from_fn(|lane| half(&rows[2 * (lane % 4)], lane / 4) | half(&rows[2 * (lane % 4) + 1], lane / 4) << 16)
}

/// A decoded instruction of this module.
#[derive(Debug, Clone, Copy)]
pub(super) enum Exchange {
    Load { matrices: usize, trans: bool },
    Store { matrices: usize, trans: bool },
    Transpose,
}

impl Exchange {
    pub fn decode(inst: &Inst) -> Result<Exchange> {
        let supported = inst.has("sync") && inst.has("aligned") && inst.has("m8n8") && inst.has("b16");
        if !supported {
            return Err(unsupported(inst, "only .sync.aligned.m8n8 with .b16 is supported"));
        }
        count(inst, 2..=2)?;
        if inst.opcode[0] == "movmatrix" {
            registers(inst, 0, 1)?;
            registers(inst, 1, 1)?;
            return match inst.has("trans") {
                true => Ok(Exchange::Transpose),
                false => Err(unsupported(inst, "movmatrix transposes")),
            };
        }
        let matrices = ["x1", "x2", "x4"].iter().position(|x| inst.has(x)).map(|n| 1 << n);
        let matrices = matrices.ok_or_else(|| unsupported(inst, "the number of matrices is missing"))?;
        let trans = inst.has("trans");
        let (memory, held) = if inst.opcode[0] == "ldmatrix" { (1, 0) } else { (0, 1) };
        address(inst, memory)?;
        registers(inst, held, matrices)?;
        Ok(match memory {
            1 => Exchange::Load { matrices, trans },
            _ => Exchange::Store { matrices, trans },
        })
    }

    pub fn step(&self, context: &mut Context<'_>) -> std::result::Result<(), Trap> {
        whole_warp(context)?;
        let (inst, space) = (context.inst, space(context.inst));
        match *self {
            Exchange::Transpose => {
                let found = words(context, 1);
                let turned: Vec<Lanes> = found.iter().map(transpose).collect();
                put(context, 0, &turned);
            }
            Exchange::Load { matrices, trans } => {
                let mut rows = vec![[0; 16]; 8 * matrices];
                for (lane, row) in rows.iter_mut().enumerate() {
                    let at = context.value(&inst.operands[1], lane);
                    read_for_all(context, space, (lane, at, 16), row)?;
                }
                put(context, 0, &load(&rows, trans));
            }
            Exchange::Store { matrices, trans } => {
                for (lane, row) in store(&words(context, 1), trans).iter().enumerate().take(8 * matrices) {
                    let at = context.value(&inst.operands[0], lane);
                    context.write(space, lane, at, 16, row)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Element (row, column) of matrix m is 256 m + 16 row + column.
    fn rows(matrices: usize) -> Vec<Row> {
        (0..8 * matrices)
            .map(|r| std::array::from_fn(|b| ((r / 8 * 256 + r % 8 * 16 + b / 2) as u16).to_le_bytes()[b % 2]))
            .collect()
    }

    #[test]
    fn a_lane_holds_two_neighbours_of_a_row() {
        let found = load(&rows(4), false);
        for (m, register) in found.iter().enumerate() {
            // "Fragment layout for one 8x8 matrix": row 0 is lanes 0 to 3, each with two elements.
            let first = (256 * m) as u32;
            assert_eq!(register[0], first | (first + 1) << 16);
            assert_eq!(register[3], (first + 6) | ((first + 7) << 16));
            assert_eq!(register[4], (first + 16) | ((first + 17) << 16));
            assert_eq!(register[31], (first + 16 * 7 + 6) | ((first + 16 * 7 + 7) << 16));
        }
        assert_eq!(store(&found, false), rows(4));
    }

    #[test]
    fn transposed_a_lane_holds_two_neighbours_of_a_column() {
        let found = load(&rows(2), true);
        assert_eq!(found[0][0], 16 << 16);
        assert_eq!(found[0][1], 32 | 48 << 16);
        assert_eq!(found[1][4], 257 | ((256 + 17) << 16));
        assert_eq!(store(&found, true), rows(2));
        assert_eq!(transpose(&load(&rows(1), false)[0]), load(&rows(1), true)[0]);
    }
}
