//! Operands of matrix instructions: lists of registers, and the checks of their number and width.

use super::super::inst::{Inst, Operand};
use super::super::token::wrong;
use super::super::trap::Trap;
use super::super::warp::{Context, LANES};
use super::super::world::Space;
use super::fragment::Lanes;
use crate::error::{Code, Error, Result};

/// A form of an instruction that the interpreter does not have.
pub(super) fn unsupported(inst: &Inst, why: &str) -> Error {
    wrong(inst.line, &format!("{}: {why}", inst.name()))
}

/// Operand `n`, if it is there.
pub(super) fn operand(inst: &Inst, n: usize) -> Result<&Operand> {
    inst.operands.get(n).ok_or_else(|| unsupported(inst, &format!("operand {} is missing", n + 1)))
}

/// That there are so many operands.
pub(super) fn count(inst: &Inst, wanted: std::ops::RangeInclusive<usize>) -> Result<()> {
    match wanted.contains(&inst.operands.len()) {
        true => Ok(()),
        false => Err(unsupported(inst, &format!("{} operands are given", inst.operands.len()))),
    }
}

/// That operand `n` is an address.
pub(super) fn address(inst: &Inst, n: usize) -> Result<()> {
    match operand(inst, n)? {
        Operand::Address { .. } => Ok(()),
        _ => Err(unsupported(inst, &format!("operand {} is no address", n + 1))),
    }
}

/// That operand `n` is so many registers of 32 bits.
pub(super) fn registers(inst: &Inst, n: usize, wanted: usize) -> Result<()> {
    let found = list(operand(inst, n)?);
    if found.iter().any(|o| !matches!(o, Operand::Reg { bits: 32, .. })) {
        return Err(unsupported(inst, &format!("operand {} has to be registers of 32 bits", n + 1)));
    }
    match found.len() == wanted {
        true => Ok(()),
        false => Err(unsupported(inst, &format!("operand {} has {} registers, not {wanted}", n + 1, found.len()))),
    }
}

/// The parts of `{..}`, or the operand itself.
pub(super) fn list(operand: &Operand) -> &[Operand] {
    match operand {
        Operand::Vector(parts) => parts,
        other => std::slice::from_ref(other),
    }
}

/// The constant that operand `n` is.
pub(super) fn constant(inst: &Inst, n: usize) -> Result<u64> {
    match operand(inst, n)? {
        Operand::Imm(value) => Ok(*value),
        _ => Err(unsupported(inst, &format!("operand {} has to be a constant", n + 1))),
    }
}

/// The registers of operand `n` in all lanes.
pub(super) fn words(context: &Context<'_>, n: usize) -> Vec<Lanes> {
    let parts = context.inst.operands.get(n).map_or(&[][..], list);
    parts.iter().map(|part| std::array::from_fn(|lane| context.value(part, lane) as u32)).collect()
}

/// Writes the registers of operand `n` in all lanes.
pub(super) fn put(context: &mut Context<'_>, n: usize, values: &[Lanes]) {
    let inst = context.inst;
    let parts = inst.operands.get(n).map_or(&[][..], list);
    for (part, value) in parts.iter().zip(values) {
        (0..LANES).for_each(|lane| context.set(part, lane, u64::from(value[lane])));
    }
}

/// All 32 lanes execute the instruction.
pub(super) fn whole_warp(context: &Context<'_>) -> std::result::Result<(), Trap> {
    context.aligned()?;
    match context.warp.full == u32::MAX {
        true => Ok(()),
        false => Err(Trap::warp(
            Code::PtxDivergence,
            format!("{} is executed by a warp of fewer than 32 lanes", context.inst.name()),
        )),
    }
}

/// The state space of an instruction's address.
pub(super) fn space(inst: &Inst) -> Space {
    if inst.has("shared") || inst.has("shared::cta") || inst.has("shared::cluster") {
        Space::Shared
    } else if inst.has("global") {
        Space::Global
    } else {
        Space::Generic
    }
}

/// The value of an operand, which has to be the same in all lanes of the mask.
pub(super) fn uniform(context: &Context<'_>, operand: &Operand, what: &str) -> std::result::Result<u64, Trap> {
    let first = context.mask.trailing_zeros() as usize % LANES;
    let value = context.value(operand, first);
    match context.lanes().find(|l| context.value(operand, *l) != value) {
        None => Ok(value),
        Some(lane) => {
            let other = context.value(operand, lane);
            Err(Trap::lane(
                Code::PtxDivergence,
                lane,
                format!("{what} is {other:#x} here and {value:#x} in lane {first}"),
            ))
        }
    }
}

/// Reads bytes for all lanes of the warp, from an address that a lane gives. The first and the last lane represent all.
pub(super) fn read_for_all(
    context: &mut Context<'_>,
    space: Space,
    (lane, address, align): (usize, u64, usize),
    out: &mut [u8],
) -> std::result::Result<(), Trap> {
    let spot = context.world.locate((space, context.warp.rank, lane), address, out.len(), align)?;
    let shared = context.world.is_shared(spot.memory);
    context.early(shared, lane)?;
    let raw = context.world.access(context.by(0), shared);
    context.world.note_read(&raw, 0, spot, out.len())?;
    context.world.read(&raw, LANES - 1, spot, out)
}
