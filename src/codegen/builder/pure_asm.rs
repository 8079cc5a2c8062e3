//! Inline PTX that computes a value and does nothing else: LLVM may move it, drop it, and do it once for equal arguments.

use super::{Builder, Type, Value, refused};
use crate::codegen::session::bug;
use crate::error::Result;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::types::{BasicMetadataTypeEnum, BasicType};
use inkwell::values::BasicMetadataValueEnum;

/// Attributes of a call that neither reads nor writes memory (`memory(none)`), and always returns.
const ATTRIBUTES: [&str; 3] = ["memory", "nounwind", "willreturn"];

impl<'c> Builder<'c, '_> {
    /// Inline PTX with one result that depends on its arguments alone.
    pub fn pure_asm(&self, text: String, constraints: &str, result: Type<'c>, args: &[Value<'c>]) -> Result<Value<'c>> {
        let types: Vec<BasicMetadataTypeEnum> = args.iter().map(|a| a.get_type().into()).collect();
        let args: Vec<BasicMetadataValueEnum> = args.iter().map(|a| (*a).into()).collect();
        let ty = result.fn_type(&types, false);
        let asm = self.context.create_inline_asm(ty, text, constraints.to_string(), false, false, None, false);
        let call = self.ir.build_indirect_call(ty, asm, &args, "").map_err(refused)?;
        for attribute in ATTRIBUTES {
            let kind = Attribute::get_named_enum_kind_id(attribute);
            call.add_attribute(AttributeLoc::Function, self.context.create_enum_attribute(kind, 0));
        }
        call.try_as_basic_value().basic().ok_or_else(|| bug("inline PTX without a result"))
    }
}
