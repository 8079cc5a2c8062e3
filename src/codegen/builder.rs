//! A thin, named builder over inkwell: values of any shape in, values out, every refusal an [`Error`].
//!
//! LLVM's C interface trusts its caller. What it would take on trust (that both sides of an operation have one type,
//! that a pointer is a pointer) is checked here.

mod pure_asm;

use super::{lines, session::bug, value::vector_of};
use crate::error::Result;
use crate::target::Features;
use inkwell::attributes::AttributeLoc;
use inkwell::basic_block::BasicBlock;
use inkwell::builder::BuilderError;
use inkwell::context::Context;
use inkwell::intrinsics::Intrinsic;
use inkwell::llvm_sys::prelude::LLVMMetadataRef;
use inkwell::module::Module;
use inkwell::types::{AnyType, AsTypeRef, BasicMetadataTypeEnum, BasicType, BasicTypeEnum, IntType};
use inkwell::values::{
    AsValueRef, BasicMetadataValueEnum, BasicValue, BasicValueEnum, CallSiteValue, FunctionValue, InstructionOpcode,
    IntValue, MetadataValue, PointerValue, ValueKind,
};
use inkwell::{FloatPredicate, IntPredicate};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// Any first-class value.
pub type Value<'c> = BasicValueEnum<'c>;
/// Any first-class type.
pub type Type<'c> = BasicTypeEnum<'c>;

/// The builder of one module.
pub struct Builder<'c, 'm> {
    /// The context.
    pub context: &'c Context,
    /// The module.
    pub module: &'m Module<'c>,
    /// What the chip has.
    pub features: Features,
    ir: inkwell::builder::Builder<'c>,
    known: RefCell<HashMap<Known, Value<'c>>>,
    /// The debug location of what is being written; null without debug locations.
    location: Cell<LLVMMetadataRef>,
}

/// A computation in a block, which needs none of a second one there: the block, what is done, on which values, to which type.
type Known = (usize, Pure, [usize; 3]);

/// What has no effect and always the same result. Unrolled bodies address one thing again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Pure {
    Binary(InstructionOpcode),
    /// Without wrapping, also as unsigned numbers if that is set.
    Exact(InstructionOpcode, bool),
    Cast(InstructionOpcode),
    Compare(IntPredicate),
    /// An address, of which is known that it is inside if that is set.
    Offset(bool),
}

fn id(value: Value) -> usize {
    value.as_value_ref() as usize
}

fn refused(e: BuilderError) -> crate::Error {
    bug(format!("the builder refused: {e}"))
}

impl<'c, 'm> Builder<'c, 'm> {
    /// A builder that has no position yet.
    pub fn new(context: &'c Context, module: &'m Module<'c>, features: Features) -> Self {
        let (known, location) = (RefCell::default(), Cell::new(std::ptr::null_mut()));
        Builder { context, module, features, ir: context.create_builder(), known, location }
    }

    /// A block at the end of a function.
    pub fn block(&self, function: FunctionValue<'c>, name: &str) -> BasicBlock<'c> {
        self.context.append_basic_block(function, name)
    }

    /// Goes on at the end of a block.
    pub fn at_end(&self, block: BasicBlock<'c>) {
        self.ir.position_at_end(block);
        lines::set(&self.ir, self.location.get());
    }

    /// Gives a debug location to what is written from now on, and returns the one before.
    pub fn locate(&self, location: LLVMMetadataRef) -> LLVMMetadataRef {
        lines::set(&self.ir, location);
        self.location.replace(location)
    }

    /// Goes on at a block's end, in front of what ends it if it is finished.
    pub fn before_end(&self, block: BasicBlock<'c>) {
        match block.get_terminator() {
            Some(end) => self.ir.position_before(&end),
            None => self.ir.position_at_end(block),
        }
        lines::set(&self.ir, self.location.get());
    }

    /// Goes on at a block's beginning.
    pub fn before_first(&self, block: BasicBlock<'c>) {
        match block.get_first_instruction() {
            Some(first) => self.ir.position_before(&first),
            None => self.ir.position_at_end(block),
        }
        lines::set(&self.ir, self.location.get());
    }

    /// The block that is being written.
    pub fn here(&self) -> Result<BasicBlock<'c>> {
        self.ir.get_insert_block().ok_or_else(|| bug("the builder has no position"))
    }

    /// i32.
    pub fn i32(&self) -> IntType<'c> {
        self.context.i32_type()
    }

    /// An integer constant of a width, cut to it.
    pub fn int(&self, bits: u32, value: i64) -> IntValue<'c> {
        let ty = match bits {
            1 => self.context.bool_type(),
            8 => self.context.i8_type(),
            16 => self.context.i16_type(),
            32 => self.context.i32_type(),
            _ => self.context.i64_type(),
        };
        ty.const_int(value as u64, true)
    }

    /// A truth value.
    pub fn truth(&self, value: bool) -> IntValue<'c> {
        self.context.bool_type().const_int(u64::from(value), false)
    }

    /// What is made, or what was made of the same values in this block before.
    fn once(&self, what: Pure, on: [usize; 3], make: impl FnOnce() -> Result<Value<'c>>) -> Result<Value<'c>> {
        let key = (self.here()?.as_mut_ptr() as usize, what, on);
        if let Some(value) = self.known.borrow().get(&key) {
            return Ok(*value);
        }
        let value = make()?;
        self.known.borrow_mut().insert(key, value);
        Ok(value)
    }

    /// An operation on two values of one type.
    pub fn binary(&self, op: InstructionOpcode, a: Value<'c>, b: Value<'c>) -> Result<Value<'c>> {
        self.same(a, b)?;
        self.once(Pure::Binary(op), [id(a), id(b), 0], || self.ir.build_binop(op, a, b, "").map_err(refused))
    }

    /// An operation on integers that is known not to wrap, as signed and (if `unsigned`) as unsigned numbers.
    pub fn exact(
        &self,
        op: InstructionOpcode,
        a: IntValue<'c>,
        b: IntValue<'c>,
        unsigned: bool,
    ) -> Result<IntValue<'c>> {
        self.same(a.into(), b.into())?;
        let make = || {
            let value = self.ir.build_binop::<Value>(op, a.into(), b.into(), "").map_err(refused)?;
            if let Some(instruction) = value.as_instruction_value() {
                let refused = |e| bug(format!("no-wrap flags: {e}"));
                instruction.set_no_signed_wrap_flag(true).map_err(refused)?;
                if unsigned {
                    instruction.set_no_unsigned_wrap_flag(true).map_err(refused)?;
                }
            }
            Ok(value)
        };
        Ok(self.once(Pure::Exact(op, unsigned), [id(a.into()), id(b.into()), 0], make)?.into_int_value())
    }

    /// The opposite of a float or a vector of them.
    pub fn negate(&self, a: Value<'c>) -> Result<Value<'c>> {
        match a {
            Value::FloatValue(v) => Ok(self.ir.build_float_neg(v, "").map_err(refused)?.into()),
            Value::VectorValue(v) => Ok(self.ir.build_float_neg(v, "").map_err(refused)?.into()),
            _ => Err(bug("the operand of a float negation is not a float")),
        }
    }

    /// A conversion; the caller chooses one that fits both types.
    pub fn cast(&self, op: InstructionOpcode, value: Value<'c>, to: Type<'c>) -> Result<Value<'c>> {
        if value.get_type() == to {
            return Ok(value);
        }
        let on = [id(value), 0, to.as_type_ref() as usize];
        self.once(Pure::Cast(op), on, || self.ir.build_cast(op, value, to, "").map_err(refused))
    }

    /// A comparison of integers or vectors of them.
    pub fn compare_int(&self, op: IntPredicate, a: Value<'c>, b: Value<'c>) -> Result<Value<'c>> {
        self.same(a, b)?;
        self.once(Pure::Compare(op), [id(a), id(b), 0], || match (a, b) {
            (Value::IntValue(a), Value::IntValue(b)) => {
                Ok(self.ir.build_int_compare(op, a, b, "").map_err(refused)?.into())
            }
            (Value::VectorValue(a), Value::VectorValue(b)) => {
                Ok(self.ir.build_int_compare(op, a, b, "").map_err(refused)?.into())
            }
            _ => Err(bug("the operands of an integer comparison are not integers")),
        })
    }

    /// A comparison of floats or vectors of them.
    pub fn compare_float(&self, op: FloatPredicate, a: Value<'c>, b: Value<'c>) -> Result<Value<'c>> {
        self.same(a, b)?;
        match (a, b) {
            (Value::FloatValue(a), Value::FloatValue(b)) => {
                Ok(self.ir.build_float_compare(op, a, b, "").map_err(refused)?.into())
            }
            (Value::VectorValue(a), Value::VectorValue(b)) => {
                Ok(self.ir.build_float_compare(op, a, b, "").map_err(refused)?.into())
            }
            _ => Err(bug("the operands of a float comparison are not floats")),
        }
    }

    /// `condition ? a : b`; a vector of conditions chooses by lane.
    pub fn select(&self, condition: Value<'c>, a: Value<'c>, b: Value<'c>) -> Result<Value<'c>> {
        self.same(a, b)?;
        match condition {
            Value::IntValue(c) => self.ir.build_select(c, a, b, "").map_err(refused),
            Value::VectorValue(c) => self.ir.build_select(c, a, b, "").map_err(refused),
            _ => Err(bug("a condition is no truth value")),
        }
    }

    /// Calls an intrinsic; `overloads` are the types that its name leaves open.
    pub fn intrinsic(&self, name: &str, overloads: &[Type<'c>], args: &[Value<'c>]) -> Result<Value<'c>> {
        match self.call(name, overloads, args)?.try_as_basic_value() {
            ValueKind::Basic(value) => Ok(value),
            ValueKind::Instruction(_) => Err(bug(format!("{name} has no value"))),
        }
    }

    /// Calls an intrinsic that has no value. It returns, whatever its declaration leaves open: what follows a
    /// barrier is certain to run.
    pub fn effect(&self, name: &str, args: &[Value<'c>]) -> Result<()> {
        let call = self.call(name, &[], args)?;
        for attribute in ["nounwind", "willreturn"] {
            let kind = inkwell::attributes::Attribute::get_named_enum_kind_id(attribute);
            call.add_attribute(AttributeLoc::Function, self.context.create_enum_attribute(kind, 0));
        }
        Ok(())
    }

    fn call(&self, name: &str, overloads: &[Type<'c>], args: &[Value<'c>]) -> Result<CallSiteValue<'c>> {
        let found = Intrinsic::find(name).and_then(|i| i.get_declaration(self.module, overloads));
        let function = found.ok_or_else(|| bug(format!("LLVM has no intrinsic {name}")))?;
        let types = function.get_type().get_param_types();
        let fit = types.len() == args.len() && types.iter().zip(args).all(|(t, a)| *t == a.get_type().into());
        if !fit {
            return Err(bug(format!("{name} is called with other arguments than it takes")));
        }
        let args: Vec<BasicMetadataValueEnum> = args.iter().map(|a| (*a).into()).collect();
        self.ir.build_call(function, &args, "").map_err(refused)
    }

    /// The declaration of an intrinsic, for the types of its parameters.
    pub fn declared(&self, name: &str, overloads: &[Type<'c>]) -> Result<FunctionValue<'c>> {
        let found = Intrinsic::find(name).and_then(|i| i.get_declaration(self.module, overloads));
        found.ok_or_else(|| bug(format!("LLVM has no intrinsic {name}")))
    }

    /// Calls what the lanes of a warp execute together: no pass may bring it under other conditions.
    pub fn together(&self, function: FunctionValue<'c>, args: &[Value<'c>]) -> Result<ValueKind<'c>> {
        let types = function.get_type().get_param_types();
        if types.len() != args.len() || types.iter().zip(args).any(|(t, a)| *t != a.get_type().into()) {
            return Err(bug("an instruction is called with other arguments than it takes"));
        }
        let args: Vec<BasicMetadataValueEnum> = args.iter().map(|a| (*a).into()).collect();
        let call = self.ir.build_call(function, &args, "").map_err(refused)?;
        self.convergent(call);
        Ok(call.try_as_basic_value())
    }

    /// Inline PTX that the lanes of a warp execute together, with results and arguments of any type; several results come as the fields of
    /// one value.
    pub fn asm(
        &self,
        text: String,
        constraints: String,
        results: &[Type<'c>],
        args: &[Value<'c>],
    ) -> Result<ValueKind<'c>> {
        let types: Vec<BasicMetadataTypeEnum> = args.iter().map(|a| a.get_type().into()).collect();
        let args: Vec<BasicMetadataValueEnum> = args.iter().map(|a| (*a).into()).collect();
        let ty = match results {
            [] => self.context.void_type().fn_type(&types, false),
            [one] => one.fn_type(&types, false),
            several => self.context.struct_type(several, false).fn_type(&types, false),
        };
        let asm = self.context.create_inline_asm(ty, text, constraints, true, false, None, false);
        let call = self.ir.build_indirect_call(ty, asm, &args, "").map_err(refused)?;
        self.convergent(call);
        Ok(call.try_as_basic_value())
    }

    fn convergent(&self, call: CallSiteValue<'c>) {
        for attribute in ["convergent", "nounwind"] {
            let kind = inkwell::attributes::Attribute::get_named_enum_kind_id(attribute);
            call.add_attribute(AttributeLoc::Function, self.context.create_enum_attribute(kind, 0));
        }
    }

    /// A field of a value of several fields; of any other value, field 0 is itself.
    pub fn field(&self, value: Value<'c>, field: u32) -> Result<Value<'c>> {
        match value {
            Value::StructValue(s) => self.ir.build_extract_value(s, field, "").map_err(refused),
            one if field == 0 => Ok(one),
            _ => Err(bug("a value has no such field")),
        }
    }

    /// The same bits as another type of as many.
    pub fn reinterpret(&self, value: Value<'c>, to: Type<'c>) -> Result<Value<'c>> {
        self.cast(InstructionOpcode::BitCast, value, to)
    }

    /// An address as a number of 32 bits, which those of shared memory are.
    pub fn short_address(&self, pointer: PointerValue<'c>) -> Result<Value<'c>> {
        Ok(self.ir.build_ptr_to_int(pointer, self.i32(), "").map_err(refused)?.into())
    }

    /// An address as a number of 64 bits.
    pub fn long_address(&self, pointer: PointerValue<'c>) -> Result<Value<'c>> {
        Ok(self.ir.build_ptr_to_int(pointer, self.context.i64_type(), "").map_err(refused)?.into())
    }

    /// The address `index` elements behind a pointer. `inside` promises that it stays in the object.
    pub fn offset(
        &self,
        element: Type<'c>,
        pointer: PointerValue<'c>,
        index: IntValue<'c>,
        inside: bool,
    ) -> Result<PointerValue<'c>> {
        let make = || {
            // SAFETY: one index over a sized element type is well formed on every pointer.
            let made = unsafe {
                match inside {
                    true => self.ir.build_in_bounds_gep(element, pointer, &[index], ""),
                    false => self.ir.build_gep(element, pointer, &[index], ""),
                }
            };
            Ok(made.map_err(refused)?.into())
        };
        let on = [id(pointer.into()), id(index.into()), element.as_type_ref() as usize];
        Ok(self.once(Pure::Offset(inside), on, make)?.into_pointer_value())
    }

    /// A stack slot, which optimization turns into a register.
    pub fn slot(&self, ty: Type<'c>, name: &str) -> Result<PointerValue<'c>> {
        self.ir.build_alloca(ty, name).map_err(refused)
    }

    /// Reads memory. `invariant` promises that nothing writes it while the kernel runs.
    pub fn load(&self, ty: Type<'c>, pointer: PointerValue<'c>, align: u32, invariant: bool) -> Result<Value<'c>> {
        let value = self.ir.build_load(ty, pointer, "").map_err(refused)?;
        let Some(load) = value.as_instruction_value() else { return Err(bug("a load is no instruction")) };
        load.set_alignment(align).map_err(|e| bug(format!("alignment: {e}")))?;
        if invariant {
            self.annotate(load, "invariant.load", self.context.metadata_node(&[]))?;
        }
        Ok(value)
    }

    /// Writes memory.
    pub fn store(&self, pointer: PointerValue<'c>, value: Value<'c>, align: u32) -> Result<()> {
        let store = self.ir.build_store(pointer, value).map_err(refused)?;
        store.set_alignment(align).map_err(|e| bug(format!("alignment: {e}")))
    }

    /// Says that an integer instruction's value is in `0..end`.
    pub fn below(&self, value: IntValue<'c>, end: u32) -> Result<()> {
        let Some(instruction) = value.as_instruction() else { return Ok(()) };
        let range = self.context.metadata_node(&[self.int(32, 0).into(), self.int(32, i64::from(end)).into()]);
        self.annotate(instruction, "range", range)
    }

    fn annotate(
        &self,
        instruction: inkwell::values::InstructionValue<'c>,
        kind: &str,
        node: MetadataValue<'c>,
    ) -> Result<()> {
        let kind = self.context.get_kind_id(kind);
        instruction.set_metadata(node, kind).map_err(|e| bug(format!("metadata: {e}")))
    }

    /// One lane of a vector; of a scalar the scalar.
    pub fn lane(&self, value: Value<'c>, lane: u32) -> Result<Value<'c>> {
        match value {
            Value::VectorValue(v) => {
                self.ir.build_extract_element(v, self.int(32, i64::from(lane)), "").map_err(refused)
            }
            scalar => Ok(scalar),
        }
    }

    /// A vector with one lane replaced.
    pub fn with_lane(&self, vector: Value<'c>, value: Value<'c>, lane: u32) -> Result<Value<'c>> {
        let Value::VectorValue(v) = vector else { return Err(bug("a lane of no vector")) };
        let at = self.int(32, i64::from(lane));
        Ok(self.ir.build_insert_element(v, value, at, "").map_err(refused)?.into())
    }

    /// A vector of these lanes; of one lane the scalar.
    pub fn gather(&self, lanes: &[Value<'c>]) -> Result<Value<'c>> {
        let Some(first) = lanes.first() else { return Err(bug("a vector has no lanes")) };
        if lanes.len() == 1 {
            return Ok(*first);
        }
        let mut vector = vector_of(first.get_type(), lanes.len() as u32)?.into_vector_type().get_poison();
        for (i, lane) in lanes.iter().enumerate() {
            self.same(*first, *lane)?;
            let at = self.int(32, i as i64);
            vector = self.ir.build_insert_element(vector, *lane, at, "").map_err(refused)?;
        }
        Ok(vector.into())
    }

    /// Goes to a block.
    pub fn jump(&self, to: BasicBlock<'c>) -> Result<()> {
        self.ir.build_unconditional_branch(to).map(|_| ()).map_err(refused)
    }

    /// Goes to one of two blocks.
    pub fn branch(&self, condition: Value<'c>, yes: BasicBlock<'c>, no: BasicBlock<'c>) -> Result<()> {
        let Value::IntValue(c) = condition else { return Err(bug("a branch needs one truth value")) };
        self.ir.build_conditional_branch(c, yes, no).map(|_| ()).map_err(refused)
    }

    /// The value that belongs to the block that control came from.
    pub fn join(&self, first: (Value<'c>, BasicBlock<'c>), second: (Value<'c>, BasicBlock<'c>)) -> Result<Value<'c>> {
        self.same(first.0, second.0)?;
        let phi = self.ir.build_phi(first.0.get_type(), "").map_err(refused)?;
        phi.add_incoming(&[(&first.0, first.1), (&second.0, second.1)]);
        Ok(phi.as_basic_value())
    }

    /// An induction variable with its first value; [`Builder::step`] gives it the next.
    pub fn induction(&self, first: IntValue<'c>, from: BasicBlock<'c>, name: &str) -> Result<Value<'c>> {
        let phi = self.ir.build_phi(first.get_type(), name).map_err(refused)?;
        phi.add_incoming(&[(&first, from)]);
        Ok(phi.as_basic_value())
    }

    /// The next value of an [`Builder::induction`], coming from the block that is being written.
    pub fn step(&self, variable: Value<'c>, next: IntValue<'c>) -> Result<()> {
        let phi = variable.as_instruction_value().and_then(|i| inkwell::values::PhiValue::try_from(i).ok());
        let phi = phi.ok_or_else(|| bug("an induction variable is no phi"))?;
        phi.add_incoming(&[(&next, self.here()?)]);
        Ok(())
    }

    /// Ends the function.
    pub fn finish(&self) -> Result<()> {
        self.ir.build_return(None).map(|_| ()).map_err(refused)
    }

    /// Adds an attribute to a parameter of a function.
    pub fn promise(&self, function: FunctionValue<'c>, parameter: u32, attribute: &str, value: u64) {
        let kind = inkwell::attributes::Attribute::get_named_enum_kind_id(attribute);
        function.add_attribute(AttributeLoc::Param(parameter), self.context.create_enum_attribute(kind, value));
    }

    /// Keeps tables of addresses out of a function: a block would wait for the table before it jumps.
    pub fn without_tables(&self, function: FunctionValue<'c>) {
        let attribute = self.context.create_string_attribute("no-jump-tables", "true");
        function.add_attribute(AttributeLoc::Function, attribute);
    }

    /// Makes a parameter one of so many bytes that are in the parameters themselves.
    pub fn by_value(&self, function: FunctionValue<'c>, parameter: u32, bytes: u32, align: u32) {
        let kind = inkwell::attributes::Attribute::get_named_enum_kind_id("byval");
        let ty = self.context.i8_type().array_type(bytes);
        let attribute = self.context.create_type_attribute(kind, ty.as_any_type_enum());
        function.add_attribute(AttributeLoc::Param(parameter), attribute);
        function.set_param_alignment(parameter, align);
    }

    fn same(&self, a: Value<'c>, b: Value<'c>) -> Result<()> {
        if a.get_type() == b.get_type() {
            return Ok(());
        }
        let (a, b) = (a.get_type().print_to_string(), b.get_type().print_to_string());
        Err(bug(format!("one operation on {a} and {b}")))
    }
}
