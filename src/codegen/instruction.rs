//! Instructions of a warp: LLVM's intrinsics, or inline PTX from templates.
//!
//! The elements that a lane holds are those of a local buffer (`words`). Those of one 32-bit register are a vector there, taken
//! as the type that the intrinsic has for a register; what it returns is put back the same way.

use super::access::Storage;
use super::body::Body;
use super::builder::{Type, Value};
use super::packed::per_word;
use super::session::bug;
use super::value::vector_of;
use super::words::Words;
use crate::dtype::DType;
use crate::error::Result;
use crate::intrin::{self, Emit, Row};
use crate::ir::{Call, Held, Operand};
use inkwell::values::{PointerValue, ValueKind};

impl<'c> Body<'c, '_, '_> {
    /// Emits an instruction.
    pub fn call(&mut self, call: &Call) -> Result<()> {
        let row = intrin::find(&call.row).ok_or_else(|| bug(format!("there is no instruction {}", call.row)))?;
        match &row.emit {
            Some(Emit::Intrinsic { name, operands }) => self.call_intrinsic(call, row, name, operands),
            Some(Emit::Template { text, fields, operands }) => self.call_template(call, row, text, fields, operands),
            Some(Emit::Product { text, fields }) => self.call_product(call, row, text, fields),
            None => Err(bug(format!("{} has no form yet", row.name))),
        }
    }

    fn call_intrinsic(&mut self, call: &Call, row: &Row, name: &str, operands: &[&str]) -> Result<()> {
        let mut args: Vec<Value<'c>> = Vec::new();
        let (mut overloads, mut strides): (_, Vec<Value<'c>>) = (Vec::new(), Vec::new());
        for operand in operands {
            let operand = named(call, row, operand)?;
            match &operand.held {
                Held::Registers(elements) => args.extend(self.gathered(operand, elements)?),
                Held::Address(_) | Held::Rows { .. } => {
                    let pointer = self.address_of(operand)?;
                    overloads.push(pointer.get_type().into());
                    args.push(pointer.into());
                }
                Held::Descriptor(_) => return Err(bug(format!("{name} takes a descriptor"))),
            }
            if let Held::Rows { stride, .. } = operand.held {
                strides.push(self.b.int(32, stride).into());
            }
        }
        args.extend(strides);
        let function = self.b.declared(name, &overloads)?;
        let types = function.get_type().get_param_types();
        for (arg, ty) in args.iter_mut().zip(types) {
            *arg = self.b.reinterpret(*arg, Type::try_from(ty).map_err(|()| bug("a parameter of no type"))?)?;
        }
        match (self.b.together(function, &args)?, call.operands.first()) {
            (ValueKind::Basic(value), Some(result)) => self.taken_apart(result, value, 0),
            (ValueKind::Instruction(_), Some(result)) if matches!(result.held, Held::Rows { .. }) => Ok(()),
            _ => Err(bug(format!("{name} has no value"))),
        }
    }

    fn call_template(
        &mut self,
        call: &Call,
        row: &Row,
        text: &str,
        fields: &[(&str, String)],
        operands: &[&str],
    ) -> Result<()> {
        let mut expanded: String = text.lines().filter(|l| !l.starts_with("//")).collect::<Vec<_>>().join("\n");
        for (field, value) in fields {
            expanded = expanded.replace(&format!("{{{field}}}"), value);
        }
        let written = call.operands.first().zip(row.operands.first());
        let written = written.filter(|(o, _)| o.writes && matches!(o.held, Held::Registers(_)));
        let (mut args, mut constraints, mut results) = (Vec::new(), Vec::new(), Vec::new());
        if let Some((operand, theirs)) = written {
            let Held::Registers(elements) = &operand.held else { return Err(bug("a result that is not in registers")) };
            let dtype = self.buffer(operand.buffer)?.dtype;
            let count = (elements.len() * dtype.bits() as usize).div_ceil(dtype.bits().max(32) as usize);
            results = vec![self.register_type(dtype.bits())?; count];
            expanded = expand(&expanded, theirs.name, 0..count);
            constraints.extend(results.iter().map(|ty| format!("={}", letter(*ty))));
        }
        for name in operands {
            let (operand, first) = (named(call, row, name)?, results.len() + args.len());
            match &operand.held {
                Held::Registers(elements) => {
                    let ty = self.register_type(self.buffer(operand.buffer)?.dtype.bits())?;
                    let is_result = written.is_some_and(|(_, theirs)| theirs.name == *name);
                    for (n, register) in self.gathered(operand, elements)?.into_iter().enumerate() {
                        args.push(self.b.reinterpret(register, ty)?);
                        constraints.push(if is_result { n.to_string() } else { letter(ty).to_string() });
                    }
                    expanded = expand(&expanded, name, first..results.len() + args.len());
                }
                Held::Address(_) => {
                    let pointer = self.address_of(operand)?;
                    args.push(self.b.short_address(pointer)?);
                    constraints.push("r".to_string());
                    expanded = expanded.replace(&format!("{{{name}}}"), &format!("${first}"));
                }
                Held::Rows { .. } | Held::Descriptor(_) => return Err(bug("a template takes no tile in memory")),
            }
        }
        if call.operands.iter().any(|o| matches!(o.held, Held::Address(_))) {
            constraints.push("~{memory}".to_string());
        }
        match (self.b.asm(expanded, constraints.join(","), &results, &args)?, written) {
            (ValueKind::Basic(value), Some((operand, _))) => self.taken_apart(operand, value, 0),
            _ => Ok(()),
        }
    }

    /// The type in which inline PTX has a register of elements of so many bits.
    fn register_type(&self, bits: u32) -> Result<Type<'c>> {
        if bits == 64 { self.b.element(DType::F64) } else { Ok(self.b.i32().into()) }
    }

    fn address_of(&mut self, operand: &Operand) -> Result<PointerValue<'c>> {
        match (self.place(operand.buffer)?, &operand.held) {
            (Storage::Shared(base), _) | (Storage::Global { pointer: base, .. }, Held::Rows { .. }) => {
                Ok(self.address(operand.buffer, base, &operand.indices)?.0)
            }
            _ => Err(bug("an instruction takes an address that is not in shared memory")),
        }
    }

    /// Where a lane's elements are, register by register.
    fn held(&self, operand: &Operand, elements: &[i64]) -> Result<(Words<'c>, Vec<Vec<usize>>)> {
        let dtype = self.buffer(operand.buffer)?.dtype;
        let Storage::Local(words) = self.place(operand.buffer)? else {
            return Err(bug("the registers of an instruction are in memory"));
        };
        let start = self.registers(operand.buffer, &words, &operand.indices, 1)?[0];
        let inside = |e: &i64| Some(start + usize::try_from(*e).ok()?).filter(|e| *e < words.elements());
        let all: Option<Vec<usize>> = elements.iter().map(inside).collect();
        let all = all.ok_or_else(|| bug("an instruction accesses registers beyond its own"))?;
        let registers = all.chunks((32 / dtype.bits()).max(1) as usize).map(<[_]>::to_vec).collect();
        Ok((words, registers))
    }

    /// Which elements of a packed buffer each register holds.
    fn packed_registers(&self, operand: &Operand, elements: &[i64]) -> Result<Vec<Vec<i64>>> {
        let first = self.element_number(operand.buffer, &operand.indices)?;
        let per = per_word(self.buffer(operand.buffer)?.dtype);
        Ok(elements.chunks(per as usize).map(|r| r.iter().map(|e| first + e).collect()).collect())
    }

    /// The registers of an operand: of each its elements, a vector where they are several.
    pub fn gathered(&self, operand: &Operand, elements: &[i64]) -> Result<Vec<Value<'c>>> {
        if let Storage::Packed(words) = self.place(operand.buffer)? {
            let registers = self.packed_registers(operand, elements)?;
            return registers.iter().map(|r| self.gathered_word(&words, r)).collect();
        }
        let (words, registers) = self.held(operand, elements)?;
        registers.iter().map(|register| self.read(&words, register)).collect()
    }

    /// Puts the registers that an instruction returns, from a field of its value on, where their elements are.
    pub fn taken_apart(&self, result: &Operand, value: Value<'c>, first: u32) -> Result<()> {
        let Held::Registers(elements) = &result.held else { return Err(bug("a result that is not in registers")) };
        if let Storage::Packed(words) = self.place(result.buffer)? {
            let registers = self.packed_registers(result, elements)?;
            return registers
                .iter()
                .zip(first..)
                .try_for_each(|(r, n)| self.put_word(&words, r, self.b.field(value, n)?));
        }
        let ty = self.b.element(self.buffer(result.buffer)?.dtype)?;
        let (words, registers) = self.held(result, elements)?;
        for (n, register) in registers.iter().enumerate() {
            let field = self.b.field(value, first + n as u32)?;
            let field = self.b.reinterpret(field, vector_of(ty, register.len() as u32)?)?;
            self.write(&words, register, field)?;
        }
        Ok(())
    }
}

/// The constraint of a register: 32 bits, or an f64.
fn letter(ty: Type<'_>) -> char {
    if matches!(ty, Type::FloatType(_)) { 'd' } else { 'r' }
}

/// The text with the registers of an operand: `{NAME}` is the list of them, `{NAME.0}` the first one alone.
fn expand(text: &str, name: &str, registers: std::ops::Range<usize>) -> String {
    let first = format!("${}", registers.start);
    let all: Vec<String> = registers.map(|n| format!("${n}")).collect();
    let text = text.replace(&format!("{{{name}.0}}"), &first);
    text.replace(&format!("{{{name}}}"), &format!("{{{}}}", all.join(", ")))
}

/// The operand of a call that plays an operand of the row.
pub fn named<'k>(call: &'k Call, row: &Row, name: &str) -> Result<&'k Operand> {
    let at = row.operands.iter().position(|o| o.name == name);
    at.and_then(|n| call.operands.get(n)).ok_or_else(|| bug(format!("{} has no operand {name}", row.name)))
}
