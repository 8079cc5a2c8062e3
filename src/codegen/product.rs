//! Asynchronous products of warpgroups, and what orders them.
//!
//! A product is inline PTX that takes and returns all registers of its sum, each result tied to its argument, so that LLVM and
//! ptxas see one value that stays where it is. A wait for all products takes and returns them too: nothing that uses them can
//! be moved in front of it (ptxas would else wait by itself, one product at a time).

use super::access::Storage;
use super::body::Body;
use super::builder::{Type, Value};
use super::instruction::named;
use super::packed::divided;
use super::session::bug;
use crate::error::Result;
use crate::intrin::{self, Row};
use crate::ir::simplify::Affine;
use crate::ir::{BufferId, Call, Descriptor, Held, Operand, Stmt, visit};
use inkwell::IntPredicate;
use inkwell::values::{InstructionOpcode, ValueKind};

/// The bits of an address that a descriptor holds, in units of 16 bytes (PTX ISA, "matrix-descriptor-encode").
const ADDRESS: i64 = 0x3_ffff;
/// The unit of addresses in a descriptor, in bytes.
const CHUNK: i64 = 16;

/// The number of a swizzle in a descriptor (PTX ISA, "Matrix Descriptor Format": bits 62 and 63).
fn mode(swizzle: u32) -> i64 {
    match swizzle {
        128 => 1,
        64 => 2,
        32 => 3,
        _ => 0,
    }
}

impl<'c> Body<'c, '_, '_> {
    /// Emits a product: `{D}` registers, `{A}` and `{B}` registers or descriptors, `{adds}` and `{across}` as the template says.
    pub fn call_product(&mut self, call: &Call, row: &Row, text: &str, fields: &[(&str, String)]) -> Result<()> {
        let mut text: String = text.lines().filter(|l| !l.starts_with("//")).collect::<Vec<_>>().join("\n");
        for (field, value) in fields {
            text = text.replace(&format!("{{{field}}}"), value);
        }
        let [sum, ..] = call.operands.as_slice() else { return Err(bug(format!("{} has no result", row.name))) };
        let Held::Registers(elements) = &sum.held else { return Err(bug("an accumulator that is not in registers")) };
        let mut args = self.sum_registers(sum, elements)?;
        let results: Vec<Type<'c>> = args.iter().map(Value::get_type).collect();
        let mut constraints: Vec<String> = results.iter().map(|t| format!("={}", letter(*t))).collect();
        constraints.extend((0..results.len()).map(|n| n.to_string()));
        text = text.replace("{D}", &list(0..results.len()));
        let (mut across, mut made) = (Vec::new(), String::new());
        for name in ["A", "B"] {
            let operand = named(call, row, name)?;
            let first = args.len() + results.len();
            let words = match &operand.held {
                Held::Descriptor(d) => {
                    across.push(u32::from(!d.along_k).to_string());
                    let upper = i64::from(d.stride >> 4) | mode(d.swizzle) << 30;
                    match self.descriptor(operand, d)? {
                        (start, None) => {
                            let whole =
                                self.b.cast(InstructionOpcode::ZExt, start, self.b.int(64, 0).get_type().into())?;
                            args.push(self.b.binary(
                                InstructionOpcode::Or,
                                whole,
                                self.b.int(64, upper << 32).into(),
                            )?);
                            constraints.push("l".to_string());
                            format!("${first}")
                        }
                        (start, Some(chunks)) => {
                            args.push(start);
                            constraints.push("r".to_string());
                            made += &format!(
                                ".reg .b32 {name}_low;\n.reg .b64 {name}_tile;\nadd.u32 {name}_low, ${first}, {chunks};\n\
                                 mov.b64 {name}_tile, {{{name}_low, {upper}}};\n"
                            );
                            format!("{name}_tile")
                        }
                    }
                }
                Held::Registers(elements) => {
                    for register in self.gathered(operand, elements)? {
                        args.push(self.b.reinterpret(register, self.b.i32().into())?);
                        constraints.push("r".to_string());
                    }
                    list(first..args.len() + results.len())
                }
                _ => return Err(bug("an MMA reads a tile in another layout than it has")),
            };
            text = text.replace(&format!("{{{name}}}"), &words);
        }
        let adds = self.whether_it_adds(call)?;
        text =
            text.replace("{adds}", &format!("${}", args.len() + results.len())).replace("{across}", &across.join(", "));
        args.push(adds);
        constraints.push("b".to_string());
        if !made.is_empty() {
            text = format!("{{\n{made}{}\n}}", text.trim_end());
        }
        match self.b.asm(text, constraints.join(","), &results, &args)? {
            ValueKind::Basic(value) => self.taken_apart(sum, value, 0),
            ValueKind::Instruction(_) => Err(bug(format!("{} has no value", row.name))),
        }
    }

    /// Whether a product adds its sum. The first product of a promoted sum does not read it, but ptxas must not know that: it would give each sum its own
    /// registers, and move products in front of the additions of the sums before.
    fn whether_it_adds(&mut self, call: &Call) -> Result<Value<'c>> {
        let Some(cond) = &call.adds else { return Ok(self.b.truth(true).into()) };
        match self.condition(cond)? {
            Value::IntValue(i) if i.get_zero_extended_constant() == Some(0) && !self.promoted().is_empty() => {
                self.false_at_run_time()
            }
            adds => Ok(adds),
        }
    }

    /// A condition that is false, which neither LLVM nor ptxas knows: that a grid has no blocks.
    fn false_at_run_time(&self) -> Result<Value<'c>> {
        let blocks = self.b.asm("mov.u32 $0, %nctaid.x;".into(), "=r".into(), &[self.b.i32().into()], &[])?;
        let blocks = blocks.basic().ok_or_else(|| bug("a move without a result"))?;
        self.b.compare_int(IntPredicate::EQ, blocks, self.b.int(32, 0).into())
    }

    /// Emits a wait for the groups of products but so many; one for all of them holds the sums fast.
    pub fn wait_for_products(&mut self, groups: u32) -> Result<()> {
        let text = format!("wgmma.wait_group.sync.aligned {groups};");
        let sums = if groups == 0 { self.sums() } else { Vec::new() };
        let mut args = Vec::new();
        for (sum, elements) in &sums {
            args.extend(self.sum_registers(sum, elements)?);
        }
        let results: Vec<Type<'c>> = args.iter().map(Value::get_type).collect();
        let mut constraints: Vec<String> = results.iter().map(|t| format!("={}", letter(*t))).collect();
        constraints.extend((0..results.len()).map(|n| n.to_string()));
        constraints.push("~{memory}".to_string());
        let value = self.b.asm(text, constraints.join(","), &results, &args)?;
        let ValueKind::Basic(value) = value else { return Ok(()) };
        let mut first = 0;
        for (sum, elements) in &sums {
            let count = self.sum_registers(sum, elements)?.len() as u32;
            self.taken_apart(sum, value, first)?;
            first += count;
        }
        Ok(())
    }

    /// Emits the fence before a group of products. The additions of the previous sums stay in front of it: LLVM would move them behind the next group,
    /// and copy the sums for that.
    pub fn fence_products(&mut self) -> Result<()> {
        for id in self.promoted() {
            if let Storage::Local(words) = self.place(id)? {
                self.opaque(&words)?;
            }
        }
        self.order_memory("wgmma.fence.sync.aligned;")
    }

    /// The buffers to whose elements statements add those of the sums.
    fn promoted(&self) -> Vec<BufferId> {
        let sums: Vec<BufferId> = self.sums().into_iter().map(|(sum, _)| sum.buffer).collect();
        let mut found = Vec::new();
        visit::walk(&self.func.body, &mut |s| {
            let Stmt::Store(store) = s else { return };
            let read = visit::reads(std::slice::from_ref(s));
            if read.contains(&store.buffer) && read.iter().any(|b| sums.contains(b)) && !found.contains(&store.buffer) {
                found.push(store.buffer);
            }
        });
        found
    }

    /// An instruction without operands, which orders memory.
    pub fn order_memory(&self, text: &str) -> Result<()> {
        self.b.asm(text.to_string(), "~{memory}".to_string(), &[], &[]).map(|_| ())
    }

    /// Every buffer that holds the sum of products, whole.
    fn sums(&self) -> Vec<(Operand, Vec<i64>)> {
        let mut found: Vec<BufferId> = Vec::new();
        visit::walk(&self.func.body, &mut |s| {
            if let Stmt::Call(call) = s
                && intrin::find(&call.row).is_some_and(Row::is_asynchronous)
                && let Some(sum) = call.operands.first()
                && !found.contains(&sum.buffer)
            {
                found.push(sum.buffer);
            }
        });
        let whole = |id: BufferId| {
            let elements: Vec<i64> = (0..self.func.buffer(id).elements().unwrap_or(0)).collect();
            let held = Held::Registers(elements.clone());
            let indices = vec![crate::ir::Index::Int(0)];
            (Operand { buffer: id, reads: true, writes: true, indices, held }, elements)
        };
        found.into_iter().map(whole).collect()
    }

    /// The registers of a sum: floats as they are, pairs of 16 bits as integers.
    fn sum_registers(&self, sum: &Operand, elements: &[i64]) -> Result<Vec<Value<'c>>> {
        let registers = self.gathered(sum, elements)?;
        let typed = |r: Value<'c>| match r {
            Value::FloatValue(_) => Ok(r),
            other => self.b.reinterpret(other, self.b.i32().into()),
        };
        registers.into_iter().map(typed).collect()
    }

    /// The lower word of the descriptor of a tile: its address in units of 16 bytes, and its first offset. What is constant of it is
    /// returned where the instruction adds it.
    fn descriptor(&mut self, operand: &Operand, d: &Descriptor) -> Result<(Value<'c>, Option<i64>)> {
        let Storage::Shared(base) = self.place(operand.buffer)? else {
            return Err(bug("a descriptor of what is not in shared memory"));
        };
        let [index] = operand.indices.as_slice() else { return Err(bug("a tile with several indices")) };
        let bits = i64::from(self.buffer(operand.buffer)?.dtype.bits());
        let sum = self.sum(index);
        let constant = sum.constant * bits / 8;
        if constant % 16 != 0 {
            return Err(bug("a tile that begins between two chunks of 16 bytes"));
        }
        // A tile begins with a chunk, so what varies of it are whole chunks, which are added to the descriptor of the buffer.
        let rest = divided(&Affine { constant: 0, ..sum }, 8 * CHUNK / bits);
        let chunks = self.emit_sum(&rest.ok_or_else(|| bug("a tile that begins between two chunks of 16 bytes"))?)?;
        let mut base = self.b.short_address(base)?;
        if self.kernel.cluster() > 1 {
            // In a cluster the address has the block's rank above its 24 bits, where the descriptor has its offsets.
            base = self.b.binary(InstructionOpcode::And, base, self.b.int(32, ADDRESS).into())?;
        }
        let first = self.b.binary(InstructionOpcode::LShr, base, self.b.int(32, 4).into())?;
        let leading = self.b.int(32, i64::from(d.leading >> 4) << 16).into();
        let first = self.b.binary(InstructionOpcode::Or, first, leading)?;
        let low = self.b.binary(InstructionOpcode::Add, first, self.widened(chunks, 32)?.into())?;
        if d.adds_constant {
            return Ok((low, Some(constant / 16)));
        }
        Ok((self.b.binary(InstructionOpcode::Add, low, self.b.int(32, constant / 16).into())?, None))
    }
}

/// The constraint of a type: a float or 32 bits.
fn letter(ty: Type<'_>) -> char {
    if matches!(ty, Type::FloatType(_)) { 'f' } else { 'r' }
}

fn list(registers: std::ops::Range<usize>) -> String {
    format!("{{{}}}", registers.map(|n| format!("${n}")).collect::<Vec<_>>().join(", "))
}
