//! Local buffers in registers: slots on the stack, which optimization turns into registers.
//!
//! A buffer has a slot per element. Where an instruction of a warp holds it, elements narrower than 32 bits share slots of
//! 32 bits, as they share the instruction's registers: a value that lives around a loop is then one register, and nothing is
//! taken apart and put together on the way.

use super::body::Body;
use super::builder::{Type, Value};
use super::session::bug;
use super::value::vector_of;
use crate::error::Result;
use crate::ir::lowered::permute;
use crate::ir::{Buffer, BufferId};
use inkwell::values::PointerValue;

/// The slots of a local buffer.
#[derive(Debug, Clone)]
pub struct Words<'c> {
    slots: Vec<PointerValue<'c>>,
    /// Elements of a slot.
    per: usize,
    elements: usize,
    element: Type<'c>,
    /// Bytes of an element.
    bytes: u32,
}

impl<'c> Words<'c> {
    /// How many elements there are.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Elements of a slot.
    pub fn per(&self) -> usize {
        self.per
    }

    /// What a slot holds.
    pub fn shape(&self) -> Result<Type<'c>> {
        vector_of(self.element, self.per as u32)
    }

    fn align(&self) -> u32 {
        self.bytes * self.per as u32
    }

    fn slot(&self, element: usize) -> Result<PointerValue<'c>> {
        let slot = self.slots.get(element / self.per).copied();
        slot.ok_or_else(|| bug(format!("a local buffer of {} elements is accessed at {element}", self.elements)))
    }

    /// The slot that holds these elements and nothing else.
    fn whole(&self, elements: &[usize]) -> Option<usize> {
        let first = *elements.first()?;
        let whole = first.is_multiple_of(self.per) && elements.len() == self.per;
        (whole && elements.iter().enumerate().all(|(i, e)| *e == first + i)).then_some(first / self.per)
    }
}

/// How many elements a buffer has.
pub fn elements_of(buffer: &Buffer) -> Result<i64> {
    buffer.elements().ok_or_else(|| bug(format!("{} has no constant size", buffer.name)))
}

impl<'c> Body<'c, '_, '_> {
    /// Slots for a local buffer.
    pub fn place_local(&self, id: BufferId, buffer: &Buffer) -> Result<Words<'c>> {
        let elements = elements_of(buffer)?;
        let (element, bits) = (self.b.element(buffer.dtype)?, buffer.dtype.bits());
        let per = permute::elements_per_register(self.func, &self.held, id);
        let per = per.ok_or_else(|| bug(format!("{} has no constant size", buffer.name)))?;
        let shape = vector_of(element, per as u32)?;
        let slots = (0..elements as usize / per).map(|i| self.b.slot(shape, &format!("{}.{i}", buffer.name)));
        let bytes = (bits / 8).max(1);
        Ok(Words { slots: slots.collect::<Result<_>>()?, per, elements: elements as usize, element, bytes })
    }

    /// Elements as a vector; of one element the scalar.
    pub fn read(&self, words: &Words<'c>, elements: &[usize]) -> Result<Value<'c>> {
        if let Some(slot) = words.whole(elements) {
            return self.b.load(words.shape()?, words.slots[slot], words.align(), false);
        }
        let one = |e: &usize| {
            let word = self.b.load(words.shape()?, words.slot(*e)?, words.align(), false)?;
            if words.per == 1 { Ok(word) } else { self.b.lane(word, (e % words.per) as u32) }
        };
        self.b.gather(&elements.iter().map(one).collect::<Result<Vec<_>>>()?)
    }

    /// Passes every register through an instruction that LLVM does not look into; ptxas drops it.
    pub fn opaque(&self, words: &Words<'c>) -> Result<()> {
        let lanes = 4 / words.bytes as usize;
        for first in (0..words.elements).step_by(lanes) {
            let elements: Vec<usize> = (first..first + lanes).collect();
            let held = self.read(words, &elements)?;
            let kept = self.opaque_word(held)?;
            self.write(words, &elements, self.b.reinterpret(kept, held.get_type())?)?;
        }
        Ok(())
    }

    /// 32 bits as a word, behind an instruction that LLVM does not look into; ptxas drops it.
    pub fn opaque_word(&self, value: Value<'c>) -> Result<Value<'c>> {
        let register = self.b.reinterpret(value, self.b.i32().into())?;
        let kept = self.b.asm("mov.b32 $0, $1;".into(), "=r,r".into(), &[self.b.i32().into()], &[register])?;
        kept.basic().ok_or_else(|| bug("a move without a result"))
    }

    /// Sets elements to the lanes of a vector, or all of them to a scalar.
    pub fn write(&self, words: &Words<'c>, elements: &[usize], value: Value<'c>) -> Result<()> {
        if let (Some(slot), Value::VectorValue(_)) = (words.whole(elements), value) {
            return self.b.store(words.slots[slot], value, words.align());
        }
        for (i, e) in elements.iter().enumerate() {
            let (slot, lane) = (words.slot(*e)?, self.b.lane(value, i as u32)?);
            let stored = if words.per == 1 {
                lane
            } else {
                let before = self.b.load(words.shape()?, slot, words.align(), false)?;
                self.b.with_lane(before, lane, (e % words.per) as u32)?
            };
            self.b.store(slot, stored, words.align())?;
        }
        Ok(())
    }
}
