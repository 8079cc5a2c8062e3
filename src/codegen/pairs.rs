//! Pairs of bytes as words of 16 bits.
//!
//! LLVM's NVPTX backend has no register for a `<2 x i8>`: it moves a pair that another block uses, and a pair that is the bits of an i16,
//! through local memory. InstCombine moves the instructions that join the lanes of a pair, or separate them, into later blocks. So after
//! the passes each load, store, phi and select of a pair becomes that of an i16, its lanes are shifts of the i16, and arithmetic on pairs
//! is arithmetic on their lanes.

use super::poison::called_name;
use super::ranges::operand;
use super::session::bug;
use crate::error::Result;
use inkwell::builder::{Builder, BuilderError};
use inkwell::context::ContextRef;
use inkwell::intrinsics::Intrinsic;
use inkwell::llvm_sys::core::{
    LLVMGetAggregateElement, LLVMGetMaskValue, LLVMGetPoison, LLVMReplaceAllUsesWith, LLVMTypeOf,
};
use inkwell::module::Module;
use inkwell::types::{BasicTypeEnum, VectorType};
use inkwell::values::{
    AsValueRef, BasicMetadataValueEnum, BasicValueEnum as Value, FunctionValue, InstructionOpcode as Op,
    InstructionValue, IntValue, PhiValue, VectorValue,
};
use std::collections::HashMap;

/// How the name of an intrinsic of pairs ends.
const OF_PAIRS: &str = ".v2i8";

/// Replaces the pairs of a module.
pub fn as_words(module: &Module) -> Result<()> {
    module.get_functions().try_for_each(|function| Pairs::new(module).replace(function))
}

/// How an instruction that has a pair as its result or an operand is replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A load, a choice or a reinterpretation: the same of an i16.
    Word,
    /// The i16 of a phi gets its values last.
    Phi,
    /// A pair with one lane replaced.
    Joined,
    /// A store of a pair.
    Stored,
    /// A lane of a pair.
    Lane,
    /// The bits of a pair as another type.
    Bits,
    /// Arithmetic on lanes.
    Lanes,
    /// What has no form in lanes. Its operands are joined in front of it, and its lanes are separated behind it.
    Kept,
}

struct Pairs<'c, 'm> {
    module: &'m Module<'c>,
    context: ContextRef<'c>,
    builder: Builder<'c>,
    /// The i16 of each pair.
    words: HashMap<VectorValue<'c>, IntValue<'c>>,
    /// The lanes of each pair; `None` where a lane is undefined.
    lanes: HashMap<(VectorValue<'c>, u32), Option<IntValue<'c>>>,
}

impl<'c, 'm> Pairs<'c, 'm> {
    fn new(module: &'m Module<'c>) -> Self {
        let context = module.get_context();
        Pairs { module, builder: context.create_builder(), context, words: HashMap::new(), lanes: HashMap::new() }
    }

    fn pair_type(&self) -> VectorType<'c> {
        self.context.i8_type().vec_type(2)
    }

    /// A value as a pair, if it is one.
    fn pair(&self, value: Value<'c>) -> Option<VectorValue<'c>> {
        let Value::VectorValue(vector) = value else { return None };
        (vector.get_type() == self.pair_type()).then_some(vector)
    }

    fn replace(mut self, function: FunctionValue<'c>) -> Result<()> {
        let instructions = function.get_basic_block_iter().flat_map(|b| b.get_instructions());
        let found: Vec<_> = instructions.filter_map(|i| Some((i, self.form(i)?))).collect();
        for (i, _) in found.iter().filter(|(_, form)| *form == Form::Phi) {
            self.builder.position_before(i);
            let phi = self.builder.build_phi(self.context.i16_type(), "").map_err(refused)?;
            self.words.insert(result(*i)?, phi.as_basic_value().into_int_value());
        }
        found.iter().try_for_each(|(i, form)| self.rewrite(*i, *form))?;
        let replaced = || found.iter().filter(|(_, form)| *form != Form::Kept).map(|(i, _)| i);
        for i in replaced().filter(|i| i.get_opcode() != Op::Store) {
            // SAFETY: the instruction is live, and the other value has its type.
            unsafe { LLVMReplaceAllUsesWith(i.as_value_ref(), LLVMGetPoison(LLVMTypeOf(i.as_value_ref()))) }
        }
        replaced().for_each(|i| i.erase_from_basic_block());
        Ok(())
    }

    /// How an instruction is replaced; `None` if it has nothing to do with pairs.
    fn form(&self, i: InstructionValue<'c>) -> Option<Form> {
        let takes = |at: u32| operand(i, at).is_some_and(|v| self.pair(v).is_some());
        let gives = i.get_type() == self.pair_type().into();
        let constant = |at: u32| matches!(operand(i, at), Some(Value::IntValue(v)) if v.is_const());
        match i.get_opcode() {
            Op::Phi if gives => Some(Form::Phi),
            Op::Load if gives => Some(Form::Word),
            Op::Select if gives && matches!(operand(i, 0), Some(Value::IntValue(_))) => Some(Form::Word),
            Op::BitCast if gives && !takes(0) => Some(Form::Word),
            Op::InsertElement if gives && constant(2) => Some(Form::Joined),
            Op::Store if takes(0) => Some(Form::Stored),
            Op::ExtractElement if takes(0) && constant(1) => Some(Form::Lane),
            Op::BitCast if takes(0) => Some(Form::Bits),
            _ if !gives && !(0..i.get_num_operands()).any(takes) => None,
            _ if in_lanes(i) => Some(Form::Lanes),
            _ => Some(Form::Kept),
        }
    }

    fn rewrite(&mut self, i: InstructionValue<'c>, form: Form) -> Result<()> {
        match form {
            Form::Word | Form::Joined => Ok(()),
            Form::Phi => {
                let to = PhiValue::try_from(self.word(result(i)?)?.as_instruction().ok_or_else(|| bug("no phi"))?);
                let to = to.map_err(|()| bug("the i16 of a phi is no phi"))?;
                let from = PhiValue::try_from(i).map_err(|()| bug("a phi is no phi"))?;
                for (value, block) in from.get_incomings() {
                    let value = self.word(value.into_vector_value())?;
                    to.add_incoming(&[(&value, block)]);
                }
                Ok(())
            }
            Form::Stored => {
                let word = self.operand_word(i, 0)?;
                let Some(Value::PointerValue(to)) = operand(i, 1) else { return Err(bug("a store to no address")) };
                self.builder.position_before(&i);
                let store = self.builder.build_store(to, word).map_err(refused)?;
                store.set_alignment(i.get_alignment().map_err(|e| bug(e.to_string()))?).map_err(|e| bug(e.to_string()))
            }
            Form::Lane => {
                let (pair, at) = self.lane_of(i)?;
                let lane = self.lane(pair, at)?.unwrap_or(self.context.i8_type().get_undef());
                replace_by(i, lane.into())
            }
            Form::Bits => {
                let word = self.operand_word(i, 0)?;
                let to = BasicTypeEnum::try_from(i.get_type()).map_err(|()| bug("bits without a type"))?;
                self.builder.position_before(&i);
                let bits = if to.is_int_type() { word.into() } else { self.cast(Op::BitCast, word, to)? };
                replace_by(i, bits)
            }
            Form::Lanes if i.get_type() == self.pair_type().into() => Ok(()),
            Form::Lanes => {
                let lanes = (0..width(i)?).map(|at| self.computed_lane(i, at)).collect::<Result<Vec<_>>>()?;
                let ty = BasicTypeEnum::try_from(i.get_type()).map_err(|()| bug("lanes without a type"))?;
                self.builder.position_before(&i);
                replace_by(i, self.gathered(ty.into_vector_type(), &lanes)?.into())
            }
            Form::Kept => self.join_operands(i),
        }
    }

    /// A lane of arithmetic, computed in front of it; `None` if it is undefined.
    fn computed_lane(&mut self, i: InstructionValue<'c>, at: u32) -> Result<Option<Value<'c>>> {
        if i.get_opcode() == Op::ShuffleVector {
            return match shuffled_from(i, at)? {
                Some((vector, at)) => self.lane_of_operand(i, vector, at),
                None => Ok(None),
            };
        }
        let mut operands = Vec::new();
        for n in 0..i.get_num_operands() {
            let Some(value) = operand(i, n) else { return Err(bug("arithmetic on no value")) };
            operands.push(match value {
                Value::VectorValue(vector) => match self.lane_of_operand(i, vector, at)? {
                    Some(lane) => lane,
                    None => undefined(vector.get_type().get_element_type()),
                },
                scalar => scalar,
            });
        }
        let ty = match BasicTypeEnum::try_from(i.get_type()) {
            Ok(BasicTypeEnum::VectorType(vector)) => vector.get_element_type(),
            _ => return Err(bug("arithmetic on pairs makes no vector")),
        };
        self.builder.position_before(&i);
        match (i.get_opcode(), operands.as_slice()) {
            (Op::Call, [arguments @ .., _]) => self.called_with(i, arguments).map(Some),
            (op, [a]) => self.cast(op, *a, ty).map(Some),
            (Op::ICmp, [Value::IntValue(a), Value::IntValue(b)]) => {
                let predicate = i.get_icmp_predicate().ok_or_else(|| bug("a comparison without a predicate"))?;
                Ok(Some(self.builder.build_int_compare(predicate, *a, *b, "").map_err(refused)?.into()))
            }
            (op, [a, b]) => Ok(Some(self.builder.build_binop(op, *a, *b, "").map_err(refused)?)),
            (_, [Value::IntValue(c), a, b]) => Ok(Some(self.builder.build_select(*c, *a, *b, "").map_err(refused)?)),
            _ => Err(bug("arithmetic on pairs of an unknown form")),
        }
    }

    /// A call of an intrinsic of a pair with a lane of it.
    fn called_with(&self, i: InstructionValue<'c>, arguments: &[Value<'c>]) -> Result<Value<'c>> {
        let name = called_name(i).unwrap_or_default();
        let found = name.strip_suffix(OF_PAIRS).and_then(Intrinsic::find);
        let function = found.and_then(|f| f.get_declaration(self.module, &[self.context.i8_type().into()]));
        let function = function.ok_or_else(|| bug(format!("{name} has no form for a byte")))?;
        let arguments: Vec<BasicMetadataValueEnum> = arguments.iter().map(|a| (*a).into()).collect();
        let call = self.builder.build_call(function, &arguments, "").map_err(refused)?;
        call.try_as_basic_value().basic().ok_or_else(|| bug(format!("{name} has no value")))
    }

    /// A lane of an operand, computed in front of the instruction if the operand is no pair.
    fn lane_of_operand(
        &mut self,
        i: InstructionValue<'c>,
        vector: VectorValue<'c>,
        at: u32,
    ) -> Result<Option<Value<'c>>> {
        if vector.get_type() == self.pair_type() {
            return Ok(self.lane(vector, at)?.map(Into::into));
        }
        self.builder.position_before(&i);
        let at = self.context.i32_type().const_int(at.into(), false);
        Ok(Some(self.builder.build_extract_element(vector, at, "").map_err(refused)?))
    }

    fn gathered(&self, ty: VectorType<'c>, lanes: &[Option<Value<'c>>]) -> Result<VectorValue<'c>> {
        let mut joined = ty.get_poison();
        for (at, lane) in lanes.iter().enumerate() {
            let Some(lane) = lane else { continue };
            let at = self.context.i32_type().const_int(at as u64, false);
            joined = self.builder.build_insert_element(joined, *lane, at, "").map_err(refused)?;
        }
        Ok(joined)
    }

    /// Joins the operands of an instruction in front of it.
    fn join_operands(&mut self, i: InstructionValue<'c>) -> Result<()> {
        for at in 0..i.get_num_operands() {
            let Some(pair) = operand(i, at).and_then(|v| self.pair(v)).filter(|p| !p.is_const()) else { continue };
            let made = pair.as_instruction();
            if made.is_some_and(|m| self.form(m) == Some(Form::Kept) && m.get_parent() == i.get_parent()) {
                continue;
            }
            let lanes = [self.lane(pair, 0)?, self.lane(pair, 1)?].map(|lane| lane.map(Value::from));
            self.builder.position_before(&i);
            if !i.set_operand(at, self.gathered(self.pair_type(), &lanes)?) {
                return Err(bug("an operand is not replaced"));
            }
        }
        Ok(())
    }

    /// The pair and the lane of an extractelement.
    fn lane_of(&self, i: InstructionValue<'c>) -> Result<(VectorValue<'c>, u32)> {
        let at = operand(i, 1)
            .filter(|at| at.is_int_value())
            .and_then(|at| at.into_int_value().get_zero_extended_constant());
        match (operand(i, 0).and_then(|v| self.pair(v)), at) {
            (Some(pair), Some(at)) => Ok((pair, at as u32)),
            _ => Err(bug("a lane of no pair")),
        }
    }

    fn operand_word(&mut self, i: InstructionValue<'c>, at: u32) -> Result<IntValue<'c>> {
        match operand(i, at).and_then(|v| self.pair(v)) {
            Some(pair) => self.word(pair),
            None => Err(bug("an operand is no pair")),
        }
    }

    /// The i16 of a pair, right behind the pair.
    fn word(&mut self, pair: VectorValue<'c>) -> Result<IntValue<'c>> {
        if let Some(word) = self.words.get(&pair) {
            return Ok(*word);
        }
        let word = match pair.as_instruction() {
            Some(i) if self.form(i) == Some(Form::Word) => self.made_as_word(i)?,
            _ => self.joined(pair)?,
        };
        self.words.insert(pair, word);
        Ok(word)
    }

    /// The i16 of a load, a choice or a reinterpretation.
    fn made_as_word(&mut self, i: InstructionValue<'c>) -> Result<IntValue<'c>> {
        let word = self.context.i16_type();
        match (i.get_opcode(), operand(i, 0)) {
            (Op::Load, Some(Value::PointerValue(from))) => {
                self.builder.position_before(&i);
                let made = self.builder.build_load(word, from, "").map_err(refused)?.into_int_value();
                let load = made.as_instruction().ok_or_else(|| bug("a load is no instruction"))?;
                let align = i.get_alignment().map_err(|e| bug(e.to_string()))?;
                load.set_alignment(align).map_err(|e| bug(e.to_string()))?;
                let kind = self.context.get_kind_id("invariant.load");
                if i.get_metadata(kind).is_some() {
                    load.set_metadata(self.context.metadata_node(&[]), kind).map_err(|e| bug(e.to_string()))?;
                }
                Ok(made)
            }
            (Op::Select, Some(Value::IntValue(condition))) => {
                let (a, b) = (self.operand_word(i, 1)?, self.operand_word(i, 2)?);
                self.builder.position_before(&i);
                Ok(self.builder.build_select(condition, a, b, "").map_err(refused)?.into_int_value())
            }
            (Op::BitCast, Some(Value::IntValue(bits))) => match bits.as_instruction() {
                Some(from) if self.form(from) == Some(Form::Bits) => self.operand_word(from, 0),
                _ => Ok(bits),
            },
            (Op::BitCast, Some(bits)) => {
                self.builder.position_before(&i);
                Ok(self.cast(Op::BitCast, bits, word.into())?.into_int_value())
            }
            _ => Err(bug("a pair is made in no known way")),
        }
    }

    /// The i16 of lanes. An undefined lane is 0, so that it does not make the other undefined.
    fn joined(&mut self, pair: VectorValue<'c>) -> Result<IntValue<'c>> {
        let word = self.context.i16_type();
        let lanes = [self.lane(pair, 0)?, self.lane(pair, 1)?];
        // The builder has no place for the bits of a constant before the first instruction is replaced.
        if let Some([low, high]) = constant_bits(lanes) {
            return Ok(word.const_int(low | high << 8, false));
        }
        if let Some(i) = pair.as_instruction() {
            let kept = self.form(i) == Some(Form::Kept);
            let last = lanes[1].and_then(|lane| lane.as_instruction()).filter(|_| kept);
            self.behind(last.unwrap_or(i))?;
        }
        let [low, high] = lanes.map(|lane| {
            let Some(lane) = lane else { return Ok(word.const_zero()) };
            Ok(self.cast(Op::ZExt, lane, word.into())?.into_int_value())
        });
        let high = self.builder.build_left_shift(high?, word.const_int(8, false), "").map_err(refused)?;
        self.builder.build_or(low?, high, "").map_err(refused)
    }

    /// A lane of a pair, right behind the pair; `None` if it is undefined.
    fn lane(&mut self, pair: VectorValue<'c>, at: u32) -> Result<Option<IntValue<'c>>> {
        if let Some(lane) = self.lanes.get(&(pair, at)) {
            return Ok(*lane);
        }
        let lane = match pair.as_instruction() {
            None => constant_lane(pair, at)?,
            Some(i) => match self.form(i) {
                Some(Form::Joined) => self.lane_of_joined(i, at)?,
                Some(Form::Lanes) => self.computed_lane(i, at)?.map(Value::into_int_value),
                Some(Form::Kept) => Some(self.lane_of_kept(i, pair, at)?),
                _ => Some(self.lane_of_word(i, pair, at)?),
            },
        };
        self.lanes.insert((pair, at), lane);
        Ok(lane)
    }

    fn lane_of_joined(&mut self, i: InstructionValue<'c>, at: u32) -> Result<Option<IntValue<'c>>> {
        let number = |v: Option<Value<'c>>| v.filter(|v| v.is_int_value()).map(|v| v.into_int_value());
        let (lane, replaced) = (number(operand(i, 1)), number(operand(i, 2)));
        let replaced = replaced.and_then(|r| r.get_zero_extended_constant());
        match (operand(i, 0).and_then(|v| self.pair(v)), lane, replaced) {
            (Some(_), Some(lane), Some(replaced)) if replaced == u64::from(at) => match lane.as_instruction() {
                Some(from) if self.form(from) == Some(Form::Lane) => {
                    let (pair, at) = self.lane_of(from)?;
                    self.lane(pair, at)
                }
                _ => Ok((!lane.is_undef()).then_some(lane)),
            },
            (Some(before), Some(_), Some(_)) => self.lane(before, at),
            _ => Err(bug("a lane is joined to no pair")),
        }
    }

    fn lane_of_kept(&mut self, i: InstructionValue<'c>, pair: VectorValue<'c>, at: u32) -> Result<IntValue<'c>> {
        self.behind(i)?;
        let mut lanes = [None; 2];
        for (n, lane) in lanes.iter_mut().enumerate() {
            let number = self.context.i32_type().const_int(n as u64, false);
            let made = self.builder.build_extract_element(pair, number, "").map_err(refused)?.into_int_value();
            self.lanes.insert((pair, n as u32), Some(made));
            *lane = Some(made);
        }
        lanes.get(at as usize).copied().flatten().ok_or_else(|| bug("a pair has two lanes"))
    }

    fn lane_of_word(&mut self, i: InstructionValue<'c>, pair: VectorValue<'c>, at: u32) -> Result<IntValue<'c>> {
        let word = self.word(pair)?;
        self.behind(i)?;
        let bits = match at {
            0 => word,
            _ => {
                let by = self.context.i16_type().const_int(8, false);
                self.builder.build_right_shift(word, by, false, "").map_err(refused)?
            }
        };
        Ok(self.cast(Op::Trunc, bits, self.context.i8_type().into())?.into_int_value())
    }

    fn cast(&self, op: Op, value: impl Into<Value<'c>>, to: BasicTypeEnum<'c>) -> Result<Value<'c>> {
        self.builder.build_cast(op, value.into(), to, "").map_err(refused)
    }

    /// Goes on behind an instruction, and behind all phis where it is one.
    fn behind(&self, i: InstructionValue<'c>) -> Result<()> {
        let mut next = i.get_next_instruction();
        while let Some(phi) = next.filter(|n| n.get_opcode() == Op::Phi) {
            next = phi.get_next_instruction();
        }
        let next = next.ok_or_else(|| bug("a pair ends a block"))?;
        self.builder.position_before(&next);
        Ok(())
    }
}

/// The bits of lanes that are constant. An undefined lane is 0.
fn constant_bits(lanes: [Option<IntValue<'_>>; 2]) -> Option<[u64; 2]> {
    let [low, high] = lanes.map(|lane| lane.map_or(Some(0), |lane| lane.get_zero_extended_constant()));
    Some([low?, high?])
}

/// Whether each lane of the result is the same operation on lanes of the operands, or a lane of an operand.
fn in_lanes(i: InstructionValue<'_>) -> bool {
    let vector = |at: u32| matches!(operand(i, at), Some(Value::VectorValue(_)));
    match i.get_opcode() {
        Op::Add | Op::Sub | Op::Mul | Op::And | Op::Or | Op::Xor | Op::Shl | Op::LShr | Op::AShr | Op::ICmp => true,
        Op::UDiv | Op::SDiv | Op::URem | Op::SRem => true,
        Op::Trunc | Op::ZExt | Op::SExt | Op::UIToFP | Op::SIToFP | Op::FPToUI | Op::FPToSI => true,
        Op::ShuffleVector => true,
        Op::Select => vector(0),
        Op::Call => i.get_type().is_vector_type() && called_name(i).is_some_and(|name| name.ends_with(OF_PAIRS)),
        _ => false,
    }
}

/// The operand and its lane that a lane of a shuffle is; `None` if it is undefined.
fn shuffled_from(i: InstructionValue<'_>, at: u32) -> Result<Option<(VectorValue<'_>, u32)>> {
    let (Some(Value::VectorValue(a)), Some(Value::VectorValue(b))) = (operand(i, 0), operand(i, 1)) else {
        return Err(bug("a shuffle of no vectors"));
    };
    // SAFETY: the instruction is a live shufflevector, and the lane is one of its result.
    let from = unsafe { LLVMGetMaskValue(i.as_value_ref(), at) };
    let first = a.get_type().get_size();
    Ok(u32::try_from(from).ok().map(|from| if from < first { (a, from) } else { (b, from - first) }))
}

/// Lanes of the result of an instruction.
fn width(i: InstructionValue<'_>) -> Result<u32> {
    match BasicTypeEnum::try_from(i.get_type()) {
        Ok(BasicTypeEnum::VectorType(vector)) => Ok(vector.get_size()),
        _ => Err(bug("arithmetic on pairs makes no vector")),
    }
}

/// An undefined value.
fn undefined(ty: BasicTypeEnum<'_>) -> Value<'_> {
    match ty {
        BasicTypeEnum::IntType(t) => t.get_undef().into(),
        BasicTypeEnum::FloatType(t) => t.get_undef().into(),
        BasicTypeEnum::PointerType(t) => t.get_undef().into(),
        other => other.const_zero(),
    }
}

/// The result of an instruction that makes a pair.
fn result(i: InstructionValue<'_>) -> Result<VectorValue<'_>> {
    if !i.get_type().is_vector_type() {
        return Err(bug("an instruction makes no pair"));
    }
    // SAFETY: the instruction is live, and its type is that of a vector.
    Ok(unsafe { VectorValue::new(i.as_value_ref()) })
}

/// A lane of a constant; `None` if it is undefined.
fn constant_lane(pair: VectorValue<'_>, at: u32) -> Result<Option<IntValue<'_>>> {
    // SAFETY: the value is a live constant of two lanes; that it has the element is checked.
    let lane = unsafe {
        let lane = LLVMGetAggregateElement(pair.as_value_ref(), at);
        if lane.is_null() { return Err(bug("a constant without lanes")) } else { IntValue::new(lane) }
    };
    Ok((!lane.is_undef()).then_some(lane))
}

fn replace_by<'c>(i: InstructionValue<'c>, value: Value<'c>) -> Result<()> {
    // SAFETY: both are live; that they have one type is checked.
    unsafe {
        if LLVMTypeOf(i.as_value_ref()) != LLVMTypeOf(value.as_value_ref()) {
            return Err(bug("a value is replaced by one of another type"));
        }
        LLVMReplaceAllUsesWith(i.as_value_ref(), value.as_value_ref());
    }
    Ok(())
}

fn refused(e: BuilderError) -> crate::Error {
    bug(format!("the builder refused: {e}"))
}
