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
    /// What is held in place of the elements, where they are shifted when they are read.
    unshifted: Option<Unshifted<'c>>,
}

/// Vectors whose words are as they were loaded.
#[derive(Debug, Clone)]
struct Unshifted<'c> {
    /// Words that a vector's elements fill.
    words: usize,
    /// Of each vector: its loaded words, one more than its elements fill, a mask for each that they fill, and the selector of the PRMTs.
    vectors: Vec<[Vec<PointerValue<'c>>; 3]>,
}

/// A vector as it was loaded: its words, masks, and the selector that shifts two words into one.
pub struct Loaded<'c> {
    /// Of 32 bits, one more than the elements fill.
    pub words: Vec<Value<'c>>,
    /// What is kept of each word that the elements fill.
    pub masks: Vec<Value<'c>>,
    /// Of PRMT.
    pub selector: Value<'c>,
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
        let unshifted = self.unshifted.get(&id).map(|lanes| self.place_unshifted(buffer, *lanes as usize, per));
        let unshifted = unshifted.transpose()?;
        let slots = (0..if unshifted.is_some() { 0 } else { elements as usize / per })
            .map(|i| self.b.slot(shape, &format!("{}.{i}", buffer.name)));
        let bytes = (bits / 8).max(1);
        Ok(Words { slots: slots.collect::<Result<_>>()?, per, elements: elements as usize, element, bytes, unshifted })
    }

    fn place_unshifted(&self, buffer: &Buffer, lanes: usize, per: usize) -> Result<Unshifted<'c>> {
        let (word, words) = (self.b.i32().into(), lanes / per);
        let slots = |number: usize| (0..number).map(|_| self.b.slot(word, &buffer.name)).collect::<Result<Vec<_>>>();
        let vectors =
            (0..elements_of(buffer)? as usize / lanes).map(|_| Ok([slots(words + 1)?, slots(words)?, slots(1)?]));
        Ok(Unshifted { words, vectors: vectors.collect::<Result<_>>()? })
    }

    /// Keeps a vector as it was loaded, where the buffer does so: that of element `first`. Whether it does.
    pub fn keep_loaded(&self, words: &Words<'c>, first: usize, loaded: &Loaded<'c>) -> Result<bool> {
        let Some(unshifted) = &words.unshifted else { return Ok(false) };
        let vector = unshifted.vectors.get(first / (unshifted.words * words.per));
        let [kept, masks, selector] = vector.ok_or_else(|| bug("a vector outside its buffer"))?;
        let all = kept.iter().zip(&loaded.words).chain(masks.iter().zip(&loaded.masks));
        for (slot, value) in all.chain(selector.iter().zip([&loaded.selector])) {
            self.b.store(*slot, *value, 4)?;
        }
        Ok(true)
    }

    /// The word of 32 bits that holds this element, shifted.
    fn shifted(&self, words: &Words<'c>, unshifted: &Unshifted<'c>, element: usize) -> Result<Value<'c>> {
        let (number, word) = (element / words.per / unshifted.words, element / words.per % unshifted.words);
        let [kept, masks, selector] =
            unshifted.vectors.get(number).ok_or_else(|| bug("a vector outside its buffer"))?;
        let get = |slot: &PointerValue<'c>| self.b.load(self.b.i32().into(), *slot, 4, false);
        self.shift_word([get(&kept[word])?, get(&kept[word + 1])?], get(&selector[0])?, get(&masks[word])?)
    }

    /// Elements as a vector; of one element the scalar.
    pub fn read(&self, words: &Words<'c>, elements: &[usize]) -> Result<Value<'c>> {
        if let Some(unshifted) = &words.unshifted {
            return self.read_shifted(words, unshifted, elements);
        }
        if let Some(slot) = words.whole(elements) {
            return self.b.load(words.shape()?, words.slots[slot], words.align(), false);
        }
        let one = |e: &usize| {
            let word = self.b.load(words.shape()?, words.slot(*e)?, words.align(), false)?;
            if words.per == 1 { Ok(word) } else { self.b.lane(word, (e % words.per) as u32) }
        };
        self.b.gather(&elements.iter().map(one).collect::<Result<Vec<_>>>()?)
    }

    fn read_shifted(&self, words: &Words<'c>, unshifted: &Unshifted<'c>, elements: &[usize]) -> Result<Value<'c>> {
        let whole = elements.chunks(words.per).all(|chunk| words.whole(chunk).is_some());
        if whole {
            let all = elements.iter().step_by(words.per).map(|e| self.shifted(words, unshifted, *e));
            let shape = vector_of(words.element, elements.len() as u32)?;
            return self.b.reinterpret(self.b.gather(&all.collect::<Result<Vec<_>>>()?)?, shape);
        }
        let one = |e: &usize| {
            let word = self.b.reinterpret(self.shifted(words, unshifted, *e)?, words.shape()?)?;
            self.b.lane(word, (e % words.per) as u32)
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
        if words.unshifted.is_some() {
            return Err(bug("an element is written to a buffer of loaded words"));
        }
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
