//! Poison flags that hold for every thread: the others are dropped before LLVM's backend sees the module.
//!
//! A flag (`nuw`, `nsw`, `exact`, `nneg`, `disjoint`, `inbounds`) makes a result poison where it does not hold. InstCombine and
//! the induction-variable pass infer flags from the branches that dominate an instruction. The NVPTX pipeline then hoists
//! the instruction above its branch (speculative execution), flag included, and straight-line strength reduction builds
//! unguarded addresses on it: an `or disjoint` becomes `or.b32` where a sum is meant. So a flag stays only if the ranges of
//! [`super::ranges`], which no branch influences, prove it. An `or` that is not provably disjoint becomes the sum it stood for.

use super::ranges::{Ranges, exact, operand};
use super::session::bug;
use crate::error::Result;
use inkwell::llvm_sys::core::{
    LLVMCanValueUseFastMathFlags, LLVMGEPSetNoWrapFlags, LLVMGetFastMathFlags, LLVMSetFastMathFlags, LLVMSetNNeg,
};
use inkwell::llvm_sys::{LLVMFastMathNoInfs, LLVMFastMathNoNaNs};
use inkwell::module::Module;
use inkwell::values::{
    AsValueRef, BasicValue, BasicValueEnum, InstructionOpcode as Op, InstructionValue, InstructionValueError, IntValue,
};

/// Drops every flag that is not proved for all threads.
pub fn keep_what_holds_for_all(module: &Module) -> Result<()> {
    let builder = module.get_context().create_builder();
    for function in module.get_functions() {
        let ranges = Ranges::of(function);
        let blocks = function.get_basic_block_iter();
        let instructions: Vec<InstructionValue> = blocks.flat_map(|b| b.get_instructions()).collect();
        for i in instructions {
            match i.get_opcode() {
                Op::Or if i.get_disjoint_flag().map_err(refused)? && !disjoint(&ranges, i) => {
                    let (Some(a), Some(b)) = (operand(i, 0), operand(i, 1)) else {
                        return Err(bug("an or without operands"));
                    };
                    builder.position_before(&i);
                    let sum =
                        builder.build_binop::<BasicValueEnum>(Op::Add, a, b, "").map_err(|e| bug(e.to_string()))?;
                    let sum = sum.as_instruction_value().ok_or_else(|| bug("an or of constants is left"))?;
                    i.replace_all_uses_with(&sum);
                    i.erase_from_basic_block();
                }
                _ => restrict(&ranges, i)?,
            }
        }
    }
    Ok(())
}

/// Drops the flags of one instruction that are not proved.
fn restrict(ranges: &Ranges, i: InstructionValue) -> Result<()> {
    match i.get_opcode() {
        Op::Add | Op::Sub | Op::Mul | Op::Shl | Op::Trunc => {
            let (signed, unsigned) = wraps_not(ranges, i).unwrap_or((false, false));
            if !signed {
                i.set_no_signed_wrap_flag(false).map_err(refused)?;
            }
            if !unsigned {
                i.set_no_unsigned_wrap_flag(false).map_err(refused)?;
            }
        }
        Op::UDiv | Op::SDiv | Op::LShr | Op::AShr if !divides(ranges, i).unwrap_or(false) => {
            i.set_exact_flag(false).map_err(refused)?;
        }
        Op::ZExt | Op::UIToFP if ranges.operand(i, 0).is_none_or(|a| a.low < 0) => {
            // SAFETY: the instruction is a live zext or uitofp; inkwell's own setter takes no uitofp.
            unsafe { LLVMSetNNeg(i.as_value_ref(), 0) }
        }
        // No pass of the backend gains from these: the PTX of every example is the same without them.
        Op::GetElementPtr => {
            // SAFETY: the instruction is a live getelementptr.
            unsafe { LLVMGEPSetNoWrapFlags(i.as_value_ref(), 0) }
        }
        Op::Call => zeros_and_minima_are_numbers(i),
        _ => {}
    }
    numbers_are_finite(i);
    Ok(())
}

/// Whether the operands of an `or` have no bit in common.
fn disjoint(ranges: &Ranges, i: InstructionValue) -> bool {
    let bits = IntValue::try_from(i).map(|v| v.get_type().get_bit_width()).unwrap_or(u32::MAX);
    let all = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
    let zeros = ranges.operand(i, 0).zip(ranges.operand(i, 1)).map(|(a, b)| a.zeros | b.zeros);
    bits <= 64 && zeros == Some(all)
}

/// Whether a result is exact as a signed and as an unsigned number; `None` where nothing is known.
fn wraps_not(ranges: &Ranges, i: InstructionValue) -> Option<(bool, bool)> {
    let bits = IntValue::try_from(i).ok()?.get_type().get_bit_width();
    let a = ranges.operand(i, 0)?;
    let (low, high, natural) = match i.get_opcode() {
        Op::Trunc => (a.low, a.high, a.low >= 0),
        Op::Shl => {
            let b = ranges.operand(i, 1)?;
            let by = u32::try_from(b.low).ok().filter(|by| b.low == b.high && *by < bits)?;
            (a.low << by, a.high << by, a.low >= 0)
        }
        op => {
            let b = ranges.operand(i, 1)?;
            let (low, high) = exact(op, a, b);
            (low, high, a.low >= 0 && b.low >= 0 && low >= 0)
        }
    };
    let half = 1_i128 << (bits - 1);
    Some((low >= -half && high < half, natural && high < half * 2))
}

/// Whether a division by a power of two, or a shift by a constant, drops zeros only.
fn divides(ranges: &Ranges, i: InstructionValue) -> Option<bool> {
    let (a, b) = (ranges.operand(i, 0)?, ranges.operand(i, 1)?);
    let by = (b.low == b.high && b.low >= 0).then_some(b.low)?;
    let dropped = match i.get_opcode() {
        Op::LShr | Op::AShr => u32::try_from(by).ok()?,
        _ if by > 0 && by & (by - 1) == 0 => by.trailing_zeros(),
        _ => return Some(false),
    };
    Some(a.zeros.trailing_ones() >= dropped)
}

/// Makes `abs`, `ctlz` and `cttz` defined for every operand.
fn zeros_and_minima_are_numbers(call: InstructionValue) {
    let name = called_name(call).unwrap_or_default();
    if ["llvm.abs.", "llvm.ctlz.", "llvm.cttz."].iter().any(|f| name.starts_with(f))
        && let Some(BasicValueEnum::IntValue(flag)) = operand(call, 1)
    {
        call.set_operand(1, flag.get_type().const_zero());
    }
}

/// Drops the promises that a float is no NaN and no infinity.
fn numbers_are_finite(i: InstructionValue) {
    let value = i.as_value_ref();
    // SAFETY: the instruction is live, and flags are read and set only where it can have them.
    unsafe {
        if LLVMCanValueUseFastMathFlags(value) != 0 {
            let flags = LLVMGetFastMathFlags(value);
            LLVMSetFastMathFlags(value, flags & !(LLVMFastMathNoNaNs | LLVMFastMathNoInfs));
        }
    }
}

fn refused(e: InstructionValueError) -> crate::Error {
    bug(format!("flags: {e}"))
}

/// The name of the function that a call calls.
pub fn called_name(call: InstructionValue) -> Option<String> {
    let last = call.get_num_operands().checked_sub(1)?;
    match operand(call, last)? {
        BasicValueEnum::PointerValue(function) => Some(function.get_name().to_string_lossy().into_owned()),
        _ => None,
    }
}
