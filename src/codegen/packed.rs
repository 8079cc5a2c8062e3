//! 4-bit integers, which are next to each other in bytes, the lower index in the lower bits ([`crate::ir::layout`]).
//!
//! A vector of them stays as it is in memory, an integer of 8, 16 or 32 bits or a vector of words, so that moving it is
//! moving words. A single one is a byte that holds its value. Arithmetic is that of bytes: vectors are spread out first and
//! packed again after it. A local buffer is words, of which a single element is a part.
//!
//! The bytes of the even elements of a word come from three operations on the whole word, those of the odd ones from three
//! others, and LLVM keeps one copy of each: eight elements that go to registers of bytes cost six operations, whichever way
//! their casts are written.

use super::access::byte_size;
use super::body::Body;
use super::builder::{Builder, Type, Value};
use super::session::bug;
use super::value::vector_of;
use super::value::{Data, is_unsigned};
use super::words::elements_of;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::simplify::Affine;
use crate::ir::{Buffer, BufferId, Index};
use inkwell::values::{InstructionOpcode as Op, PointerValue};

/// Elements of a word of 32 bits.
pub const PER_WORD: u32 = 8;

/// The lower four bits of each byte.
const LOW: i64 = 0x0F0F_0F0F;

/// Whether elements share bytes.
pub fn is_packed(dtype: DType) -> bool {
    matches!(dtype, DType::S4 | DType::U4)
}

/// The type of bytes that holds the elements' values.
fn bytes_of(dtype: DType) -> DType {
    if is_unsigned(dtype) { DType::U8 } else { DType::S8 }
}

/// The words of a local buffer.
#[derive(Debug, Clone)]
pub struct Packed<'c> {
    slots: Vec<PointerValue<'c>>,
    dtype: DType,
}

impl<'c> Packed<'c> {
    /// The slot of the word that holds an element.
    fn slot(&self, element: i64) -> Result<PointerValue<'c>> {
        let found = usize::try_from(element / i64::from(PER_WORD)).ok().and_then(|n| self.slots.get(n).copied());
        found.ok_or_else(|| bug(format!("a local buffer of {} words has no element {element}", self.slots.len())))
    }
}

/// Where a single element is: its byte, and which half of it.
struct Spot<'c> {
    byte: PointerValue<'c>,
    half: Half<'c>,
}

enum Half<'c> {
    Known(bool),
    /// 0 or 1, as a byte.
    Varies(Value<'c>),
}

impl<'c> Builder<'c, '_> {
    /// The type of several elements next to each other.
    pub fn packed(&self, lanes: u32) -> Result<Type<'c>> {
        match lanes {
            2 => Ok(self.context.i8_type().into()),
            4 => Ok(self.context.i16_type().into()),
            _ if lanes.is_multiple_of(PER_WORD) => vector_of(self.i32().into(), lanes / PER_WORD),
            _ => Err(bug(format!("a vector of {lanes} elements of 4 bits"))),
        }
    }

    fn word(&self, value: i64) -> Value<'c> {
        self.int(32, value).into()
    }

    fn shifted(&self, op: Op, word: Value<'c>, bits: u32) -> Result<Value<'c>> {
        if bits == 0 { Ok(word) } else { self.binary(op, word, self.word(bits.into())) }
    }

    /// The words of a packed vector; of one narrower than a word, a word whose upper bits are zero.
    pub fn words(&self, value: Value<'c>, lanes: u32) -> Result<Vec<Value<'c>>> {
        if lanes < PER_WORD {
            return Ok(vec![self.cast(Op::ZExt, value, self.i32().into())?]);
        }
        (0..lanes / PER_WORD).map(|n| self.lane(value, n)).collect()
    }

    /// The packed vector of these words, of which a narrow one is the lower bits of the first.
    pub fn of_words(&self, words: &[Value<'c>], lanes: u32) -> Result<Value<'c>> {
        match words {
            [word] => self.cast(Op::Trunc, *word, self.packed(lanes)?),
            _ => self.gather(words),
        }
    }

    /// The even elements of a word, or the odd ones, as four bytes. Signs: 30 times 8 is the upper half of a byte, and
    /// carries nowhere; a permutation that repeats signs gives those of the odd ones.
    fn spread(&self, word: Value<'c>, odd: bool, signed: bool) -> Result<Value<'c>> {
        let low = self.shifted(Op::LShr, word, if odd { 4 } else { 0 })?;
        let low = self.binary(Op::And, low, self.word(LOW))?;
        let bytes = match (signed, odd) {
            (false, _) => low,
            (true, false) => {
                let sign = self.binary(Op::And, word, self.word(0x0808_0808))?;
                self.binary(Op::Or, low, self.binary(Op::Mul, sign, self.word(30))?)?
            }
            (true, true) => {
                let signs = self.intrinsic("llvm.nvvm.prmt", &[], &[word, self.word(0), self.word(0xBA98)])?;
                self.binary(Op::Or, low, self.binary(Op::And, signs, self.word(!LOW))?)?
            }
        };
        self.reinterpret(bytes, vector_of(self.int(8, 0).get_type().into(), 4)?)
    }

    /// Four bytes' lower halves as the even elements of a word, four others' as the odd ones.
    fn merge(&self, even: &[Value<'c>], odd: &[Value<'c>]) -> Result<Value<'c>> {
        let low = |bytes: &[Value<'c>]| {
            let zero = Value::from(self.int(8, 0));
            let four: Vec<Value> = bytes.iter().copied().chain(std::iter::repeat(zero)).take(4).collect();
            let word = self.reinterpret(self.gather(&four)?, self.i32().into())?;
            self.binary(Op::And, word, self.word(LOW))
        };
        let (even, odd) = (low(even)?, low(odd)?);
        self.binary(Op::Or, even, self.shifted(Op::Shl, odd, 4)?)
    }

    /// A byte cut to four bits and extended again.
    fn cut(&self, byte: Value<'c>, signed: bool) -> Result<Value<'c>> {
        if !signed {
            return self.binary(Op::And, byte, self.int(8, 15).into());
        }
        let four = self.int(8, 4).into();
        self.binary(Op::AShr, self.binary(Op::Shl, byte, four)?, four)
    }

    /// One element in all lanes.
    pub fn repeated(&self, element: Value<'c>, lanes: u32) -> Result<Value<'c>> {
        let word = self.cast(Op::ZExt, element, self.i32().into())?;
        let word = self.binary(Op::And, word, self.word(15))?;
        let word = self.binary(Op::Mul, word, self.word(0x1111_1111))?;
        self.of_words(&vec![word; (lanes / PER_WORD).max(1) as usize], lanes)
    }
}

impl<'c> Body<'c, '_, '_> {
    /// The same values in bytes.
    pub fn spread_out(&self, packed: Data<'c>) -> Result<Data<'c>> {
        let dtype = bytes_of(packed.dtype);
        if packed.lanes == 1 {
            return Ok(Data { dtype, ..packed });
        }
        let mut bytes = Vec::with_capacity(packed.lanes as usize);
        for word in self.b.words(packed.value, packed.lanes)? {
            let [even, odd] = [false, true].map(|odd| self.b.spread(word, odd, dtype == DType::S8));
            let halves = [even?, odd?];
            for n in 0..packed.lanes.min(PER_WORD) {
                bytes.push(self.b.lane(halves[n as usize % 2], n / 2)?);
            }
        }
        Ok(Data { value: self.b.gather(&bytes)?, dtype, lanes: packed.lanes })
    }

    /// Bytes cut to four bits, next to each other.
    pub fn pack(&self, bytes: Data<'c>, dtype: DType) -> Result<Data<'c>> {
        let lanes = bytes.lanes;
        if lanes == 1 {
            return Ok(Data { value: self.b.cut(bytes.value, !is_unsigned(dtype))?, dtype, lanes });
        }
        let each = (0..lanes).map(|n| self.b.lane(bytes.value, n)).collect::<Result<Vec<Value>>>()?;
        let every_second =
            |word: &[Value<'c>], first: usize| word.iter().skip(first).step_by(2).copied().collect::<Vec<_>>();
        let words = each.chunks(PER_WORD as usize);
        let words =
            words.map(|w| self.b.merge(&every_second(w, 0), &every_second(w, 1))).collect::<Result<Vec<_>>>()?;
        Ok(Data { value: self.b.of_words(&words, lanes)?, dtype, lanes })
    }

    /// Runs an operation on bytes, and cuts its result to four bits.
    pub fn in_bytes(&self, operands: &[Data<'c>], f: impl FnOnce(&[Data<'c>]) -> Result<Data<'c>>) -> Result<Data<'c>> {
        let Some(dtype) = operands.first().map(|o| o.dtype) else { return Err(bug("an operation on nothing")) };
        let bytes = operands.iter().map(|o| self.spread_out(*o)).collect::<Result<Vec<_>>>()?;
        self.pack(f(&bytes)?, dtype)
    }

    /// Slots for the words of a local buffer.
    pub fn place_packed(&self, buffer: &Buffer) -> Result<Packed<'c>> {
        let elements = elements_of(buffer)? as u32;
        let slot = |n| self.b.slot(self.b.i32().into(), &format!("{}.{n}", buffer.name));
        let slots = (0..elements.div_ceil(PER_WORD)).map(slot).collect::<Result<_>>()?;
        Ok(Packed { slots, dtype: buffer.dtype })
    }

    /// Reads `lanes` elements of a local buffer from one on.
    pub fn load_words(&self, words: &Packed<'c>, first: i64, lanes: u32) -> Result<Data<'c>> {
        let dtype = words.dtype;
        let data = |value| Data { value, dtype, lanes };
        if first % i64::from(lanes.min(PER_WORD)) != 0 {
            return Err(bug(format!("{lanes} elements of 4 bits are read from element {first} on")));
        }
        let within = (first % i64::from(PER_WORD)) as u32;
        if lanes == 1 {
            let word = self.load_word(words.slot(first)?)?;
            let bytes = self.b.spread(word, within % 2 == 1, !is_unsigned(dtype))?;
            return Ok(data(self.b.lane(bytes, within / 2)?));
        }
        let words = (0..lanes.div_ceil(PER_WORD)).map(|n| {
            let word = self.load_word(words.slot(first + i64::from(n * PER_WORD))?)?;
            self.b.shifted(Op::LShr, word, within * 4)
        });
        Ok(data(self.b.of_words(&words.collect::<Result<Vec<_>>>()?, lanes)?))
    }

    /// Writes elements of a local buffer from one on.
    pub fn store_words(&self, words: &Packed<'c>, first: i64, value: Data<'c>) -> Result<()> {
        let lanes = value.lanes;
        if first % i64::from(lanes.min(PER_WORD)) != 0 {
            return Err(bug(format!("{lanes} elements of 4 bits are written from element {first} on")));
        }
        let within = (first % i64::from(PER_WORD)) as u32;
        if lanes >= PER_WORD {
            let values = self.b.words(value.value, lanes)?;
            return (first..)
                .step_by(PER_WORD as usize)
                .zip(values)
                .try_for_each(|(at, word)| self.store_word(words.slot(at)?, word));
        }
        let mask = ((1i64 << (lanes * 4)) - 1) << (within * 4);
        let slot = words.slot(first)?;
        let part = self.b.cast(Op::ZExt, value.value, self.b.i32().into())?;
        let part = self.b.binary(Op::And, self.b.shifted(Op::Shl, part, within * 4)?, self.b.word(mask))?;
        let rest = self.b.binary(Op::And, self.load_word(slot)?, self.b.word(!mask))?;
        self.store_word(slot, self.b.binary(Op::Or, rest, part)?)
    }

    fn load_word(&self, slot: PointerValue<'c>) -> Result<Value<'c>> {
        self.b.load(self.b.i32().into(), slot, 4, false)
    }

    fn store_word(&self, slot: PointerValue<'c>, word: Value<'c>) -> Result<()> {
        self.b.store(slot, word, 4)
    }

    /// The register whose eight elements are these of a local buffer, lowest bits first.
    pub fn gathered_word(&self, words: &Packed<'c>, elements: &[i64]) -> Result<Value<'c>> {
        if let Some(first) = whole_word(elements) {
            return self.load_word(words.slot(first)?);
        }
        let bytes = elements.iter().map(|e| Ok(self.load_words(words, *e, 1)?.value)).collect::<Result<Vec<_>>>()?;
        let bytes = Data { value: self.b.gather(&bytes)?, dtype: bytes_of(words.dtype), lanes: elements.len() as u32 };
        Ok(self.pack(bytes, words.dtype)?.value)
    }

    /// Puts the eight elements of a register into a local buffer.
    pub fn put_word(&self, words: &Packed<'c>, elements: &[i64], word: Value<'c>) -> Result<()> {
        if let Some(first) = whole_word(elements) {
            return self.store_word(words.slot(first)?, word);
        }
        let dtype = words.dtype;
        let bytes = self.spread_out(Data { value: word, dtype, lanes: PER_WORD })?.value;
        elements
            .iter()
            .zip(0..)
            .try_for_each(|(e, n)| self.store_words(words, *e, Data { value: self.b.lane(bytes, n)?, dtype, lanes: 1 }))
    }

    /// Reads a single element from memory.
    pub fn load_half(
        &mut self,
        id: BufferId,
        indices: &[Index],
        base: PointerValue<'c>,
        invariant: bool,
    ) -> Result<Data<'c>> {
        let dtype = self.buffer(id)?.dtype;
        let spot = self.spot(id, indices, base)?;
        let byte = self.b.load(self.b.element(dtype)?, spot.byte, byte_size(dtype, 1), invariant)?;
        let four = Value::from(self.b.int(8, 4));
        let value = match (spot.half, is_unsigned(dtype)) {
            (Half::Known(false), unsigned) => self.b.cut(byte, !unsigned)?,
            (Half::Known(true), true) => self.b.binary(Op::LShr, byte, four)?,
            (Half::Known(true), false) => self.b.binary(Op::AShr, byte, four)?,
            (Half::Varies(half), unsigned) => {
                let by = self.b.binary(Op::Shl, half, self.b.int(8, 2).into())?;
                self.b.cut(self.b.binary(Op::LShr, byte, by)?, !unsigned)?
            }
        };
        Ok(Data { value, dtype, lanes: 1 })
    }

    fn spot(&mut self, id: BufferId, indices: &[Index], base: PointerValue<'c>) -> Result<Spot<'c>> {
        let sum = self.flat_sum(id, indices)?;
        let odd = sum.constant.rem_euclid(2);
        let even = Affine { constant: sum.constant - odd, ..sum.clone() };
        if let Some(bytes) = halved(&even) {
            return Ok(Spot { byte: self.behind(base, bytes)?, half: Half::Known(odd == 1) });
        }
        let number = self.emit_sum(&sum)?;
        let half = self.b.cast(Op::Trunc, number.value.into(), self.b.int(8, 0).get_type().into())?;
        let half = self.b.binary(Op::And, half, self.b.int(8, 1).into())?;
        Ok(Spot { byte: self.behind_half(base, &sum)?, half: Half::Varies(half) })
    }

    /// The byte in which an element of a buffer begins.
    pub fn packed_address(&mut self, base: PointerValue<'c>, sum: &Affine) -> Result<PointerValue<'c>> {
        match halved(sum) {
            Some(bytes) => self.behind(base, bytes),
            None => self.behind_half(base, sum),
        }
    }

    fn behind_half(&mut self, base: PointerValue<'c>, sum: &Affine) -> Result<PointerValue<'c>> {
        let number = self.emit_sum(sum)?;
        let one = self.b.cast(Op::Trunc, self.b.int(64, 1).into(), number.value.get_type().into())?;
        let byte = self.b.binary(Op::LShr, number.value.into(), one)?.into_int_value();
        self.b.offset(self.b.int(8, 0).get_type().into(), base, byte, false)
    }

    /// A number of bytes behind an address, the constant last.
    fn behind(&mut self, base: PointerValue<'c>, mut bytes: Affine) -> Result<PointerValue<'c>> {
        let (ty, constant) = (Type::from(self.b.int(8, 0).get_type()), std::mem::take(&mut bytes.constant));
        let mut pointer = base;
        if !bytes.terms.is_empty() {
            let number = self.emit_sum(&bytes)?;
            pointer = self.b.offset(ty, pointer, number.value, false)?;
        }
        if constant != 0 {
            pointer = self.b.offset(ty, pointer, self.b.int(64, constant), false)?;
        }
        Ok(pointer)
    }
}

/// The first of eight elements that are a word in their order.
fn whole_word(elements: &[i64]) -> Option<i64> {
    let first = *elements.first()?;
    let in_order = elements.iter().zip(first..).all(|(e, n)| *e == n);
    (in_order && elements.len() as u32 == PER_WORD && first % i64::from(PER_WORD) == 0).then_some(first)
}

/// Half of a sum whose every part is even.
fn halved(sum: &Affine) -> Option<Affine> {
    let half = |n: i64| (n % 2 == 0).then_some(n / 2);
    let terms = sum.terms.iter().map(|(atom, factor)| Some((atom.clone(), half(*factor)?)));
    Some(Affine { terms: terms.collect::<Option<_>>()?, constant: half(sum.constant)? })
}
