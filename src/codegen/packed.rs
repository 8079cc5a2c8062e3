//! Integers of 4 bits and of one bit, which are next to each other in bytes, the lower index in the lower bits
//! ([`crate::ir::layout`]).
//!
//! A vector of them stays as it is in memory, an integer of 8, 16 or 32 bits or a vector of words, so that moving it is
//! moving words. A single one is a byte that holds its value. Arithmetic is that of bytes: vectors are spread out first and
//! packed again after it. A local buffer is words, of which a single element is a part.
//!
//! A byte has `n` elements: the bytes of every `n`-th element of a word come from a few operations on the whole word, and
//! LLVM keeps one copy of each. Eight 4-bit elements that go to registers of bytes cost six operations, whichever way their
//! casts are written.

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

/// Whether elements share bytes.
pub fn is_packed(dtype: DType) -> bool {
    dtype.bits() < 8
}

/// Elements of a word of 32 bits.
pub fn per_word(dtype: DType) -> u32 {
    32 / dtype.bits()
}

/// Elements of a byte.
fn per_byte(dtype: DType) -> u32 {
    8 / dtype.bits()
}

/// The bits of an element in the lowest place.
fn mask(dtype: DType) -> i64 {
    (1 << dtype.bits()) - 1
}

/// The lowest element of each byte of a word.
fn low(dtype: DType) -> i64 {
    mask(dtype) * 0x0101_0101
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
    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The slot of the word that holds an element.
    fn slot(&self, element: i64) -> Result<PointerValue<'c>> {
        let found =
            usize::try_from(element / i64::from(per_word(self.dtype))).ok().and_then(|n| self.slots.get(n).copied());
        found.ok_or_else(|| bug(format!("a local buffer of {} words has no element {element}", self.slots.len())))
    }
}

/// Where a single element is: its byte, and which part of it.
struct Spot<'c> {
    byte: PointerValue<'c>,
    part: Part<'c>,
}

enum Part<'c> {
    Known(u32),
    /// The number of the element in its byte, as a byte.
    Varies(Value<'c>),
}

impl<'c> Builder<'c, '_> {
    /// The type of several elements next to each other.
    pub fn packed(&self, dtype: DType, lanes: u32) -> Result<Type<'c>> {
        match lanes * dtype.bits() {
            // Of a part of a byte the upper bits are undefined.
            2 | 4 | 8 => Ok(self.context.i8_type().into()),
            16 => Ok(self.context.i16_type().into()),
            bits if bits.is_multiple_of(32) => vector_of(self.i32().into(), bits / 32),
            _ => Err(bug(format!("a vector of {lanes} elements of {dtype}"))),
        }
    }

    fn word(&self, value: i64) -> Value<'c> {
        self.int(32, value).into()
    }

    fn shifted(&self, op: Op, word: Value<'c>, bits: u32) -> Result<Value<'c>> {
        if bits == 0 { Ok(word) } else { self.binary(op, word, self.word(bits.into())) }
    }

    /// The words of a packed vector; of one narrower than a word, a word whose upper bits are zero.
    pub fn words(&self, value: Value<'c>, dtype: DType, lanes: u32) -> Result<Vec<Value<'c>>> {
        let per = per_word(dtype);
        if lanes < per {
            return Ok(vec![self.cast(Op::ZExt, value, self.i32().into())?]);
        }
        (0..lanes / per).map(|n| self.lane(value, n)).collect()
    }

    /// The packed vector of these words, of which a narrow one is the lower bits of the first.
    pub fn of_words(&self, words: &[Value<'c>], dtype: DType, lanes: u32) -> Result<Value<'c>> {
        match words {
            [word] => self.cast(Op::Trunc, *word, self.packed(dtype, lanes)?),
            _ => self.gather(words),
        }
    }

    /// The elements of a word that are number `part` in their bytes, as four bytes. Signs: 30 times 8 is the upper half of
    /// a byte, and carries nowhere; a permutation that repeats signs gives those of the odd elements.
    fn spread(&self, word: Value<'c>, dtype: DType, part: u32) -> Result<Value<'c>> {
        let mask = low(dtype);
        let low = self.shifted(Op::LShr, word, part * dtype.bits())?;
        let low = self.binary(Op::And, low, self.word(mask))?;
        let bytes = match (is_unsigned(dtype), part) {
            (true, _) => low,
            (false, 0) => {
                let sign = self.binary(Op::And, word, self.word(0x0808_0808))?;
                self.binary(Op::Or, low, self.binary(Op::Mul, sign, self.word(30))?)?
            }
            (false, _) => {
                let signs = self.intrinsic("llvm.nvvm.prmt", &[], &[word, self.word(0), self.word(0xBA98)])?;
                self.binary(Op::Or, low, self.binary(Op::And, signs, self.word(!mask))?)?
            }
        };
        self.reinterpret(bytes, vector_of(self.int(8, 0).get_type().into(), 4)?)
    }

    /// Bytes' lowest bits as the elements of a word, in their order.
    fn merge(&self, bytes: &[Value<'c>], dtype: DType) -> Result<Value<'c>> {
        let per = per_byte(dtype) as usize;
        let zero = Value::from(self.int(8, 0));
        let part = |part: usize| {
            let all = bytes.iter().skip(part).step_by(per).copied();
            let four: Vec<Value> = all.chain(std::iter::repeat(zero)).take(4).collect();
            let word = self.reinterpret(self.gather(&four)?, self.i32().into())?;
            self.binary(Op::And, word, self.word(low(dtype)))
        };
        let parts = (0..per).map(part).collect::<Result<Vec<_>>>()?;
        let mut numbered = parts.into_iter().zip(0..);
        let (first, _) = numbered.next().ok_or_else(|| bug("a byte of no elements"))?;
        numbered.try_fold(first, |word, (next, n)| {
            self.binary(Op::Or, word, self.shifted(Op::Shl, next, n * dtype.bits())?)
        })
    }

    /// A byte cut to an element's bits and extended again.
    fn cut(&self, byte: Value<'c>, dtype: DType) -> Result<Value<'c>> {
        if is_unsigned(dtype) {
            return self.binary(Op::And, byte, self.int(8, mask(dtype)).into());
        }
        let four = self.int(8, 4).into();
        self.binary(Op::AShr, self.binary(Op::Shl, byte, four)?, four)
    }

    /// One element in all lanes.
    pub fn repeated(&self, element: Value<'c>, dtype: DType, lanes: u32) -> Result<Value<'c>> {
        let word = self.cast(Op::ZExt, element, self.i32().into())?;
        let word = self.binary(Op::And, word, self.word(mask(dtype)))?;
        let word = self.binary(Op::Mul, word, self.word(0xFFFF_FFFF / mask(dtype)))?;
        self.of_words(&vec![word; (lanes / per_word(dtype)).max(1) as usize], dtype, lanes)
    }
}

impl<'c> Body<'c, '_, '_> {
    /// The same values in bytes.
    pub fn spread_out(&self, packed: Data<'c>) -> Result<Data<'c>> {
        let dtype = bytes_of(packed.dtype);
        if packed.lanes == 1 {
            return Ok(Data { dtype, ..packed });
        }
        let (per, parts) = (per_word(packed.dtype), per_byte(packed.dtype));
        let mut bytes = Vec::with_capacity(packed.lanes as usize);
        for word in self.b.words(packed.value, packed.dtype, packed.lanes)? {
            let fours = (0..parts).map(|part| self.b.spread(word, packed.dtype, part)).collect::<Result<Vec<_>>>()?;
            for n in 0..packed.lanes.min(per) {
                bytes.push(self.b.lane(fours[(n % parts) as usize], n / parts)?);
            }
        }
        Ok(Data { value: self.b.gather(&bytes)?, dtype, lanes: packed.lanes })
    }

    /// Bytes cut to the elements' bits, next to each other.
    pub fn pack(&self, bytes: Data<'c>, dtype: DType) -> Result<Data<'c>> {
        let lanes = bytes.lanes;
        if lanes == 1 {
            return Ok(Data { value: self.b.cut(bytes.value, dtype)?, dtype, lanes });
        }
        let each = (0..lanes).map(|n| self.b.lane(bytes.value, n)).collect::<Result<Vec<Value>>>()?;
        let words = each.chunks(per_word(dtype) as usize);
        let words = words.map(|word| self.b.merge(word, dtype)).collect::<Result<Vec<_>>>()?;
        Ok(Data { value: self.b.of_words(&words, dtype, lanes)?, dtype, lanes })
    }

    /// Runs an operation on bytes, and cuts its result to the elements' bits.
    pub fn in_bytes(&self, operands: &[Data<'c>], f: impl FnOnce(&[Data<'c>]) -> Result<Data<'c>>) -> Result<Data<'c>> {
        let Some(dtype) = operands.first().map(|o| o.dtype) else { return Err(bug("an operation on nothing")) };
        let bytes = operands.iter().map(|o| self.spread_out(*o)).collect::<Result<Vec<_>>>()?;
        self.pack(f(&bytes)?, dtype)
    }

    /// Slots for the words of a local buffer.
    pub fn place_packed(&self, buffer: &Buffer) -> Result<Packed<'c>> {
        let elements = elements_of(buffer)? as u32;
        let slot = |n| self.b.slot(self.b.i32().into(), &format!("{}.{n}", buffer.name));
        let slots = (0..elements.div_ceil(per_word(buffer.dtype))).map(slot).collect::<Result<_>>()?;
        Ok(Packed { slots, dtype: buffer.dtype })
    }

    /// Reads `lanes` elements of a local buffer from one on.
    pub fn load_words(&self, words: &Packed<'c>, first: i64, lanes: u32) -> Result<Data<'c>> {
        let (dtype, per) = (words.dtype, per_word(words.dtype));
        let data = |value| Data { value, dtype, lanes };
        if first % i64::from(lanes.min(per)) != 0 {
            return Err(bug(format!("{lanes} elements of {dtype} are read from element {first} on")));
        }
        let within = (first % i64::from(per)) as u32;
        if lanes == 1 {
            let (word, parts) = (self.load_word(words.slot(first)?)?, per_byte(dtype));
            let bytes = self.b.spread(word, dtype, within % parts)?;
            return Ok(data(self.b.lane(bytes, within / parts)?));
        }
        let words = (0..lanes.div_ceil(per)).map(|n| {
            let word = self.load_word(words.slot(first + i64::from(n * per))?)?;
            self.b.shifted(Op::LShr, word, within * dtype.bits())
        });
        Ok(data(self.b.of_words(&words.collect::<Result<Vec<_>>>()?, dtype, lanes)?))
    }

    /// Writes elements of a local buffer from one on.
    pub fn store_words(&self, words: &Packed<'c>, first: i64, value: Data<'c>) -> Result<()> {
        let (lanes, dtype, per) = (value.lanes, words.dtype, per_word(words.dtype));
        if first % i64::from(lanes.min(per)) != 0 {
            return Err(bug(format!("{lanes} elements of {dtype} are written from element {first} on")));
        }
        let within = (first % i64::from(per)) as u32 * dtype.bits();
        if lanes >= per {
            let values = self.b.words(value.value, dtype, lanes)?;
            return (first..)
                .step_by(per as usize)
                .zip(values)
                .try_for_each(|(at, word)| self.store_word(words.slot(at)?, word));
        }
        let mask = ((1i64 << (lanes * dtype.bits())) - 1) << within;
        let slot = words.slot(first)?;
        let part = self.b.cast(Op::ZExt, value.value, self.b.i32().into())?;
        let part = self.b.binary(Op::And, self.b.shifted(Op::Shl, part, within)?, self.b.word(mask))?;
        let rest = self.b.binary(Op::And, self.load_word(slot)?, self.b.word(!mask))?;
        self.store_word(slot, self.b.binary(Op::Or, rest, part)?)
    }

    fn load_word(&self, slot: PointerValue<'c>) -> Result<Value<'c>> {
        self.b.load(self.b.i32().into(), slot, 4, false)
    }

    fn store_word(&self, slot: PointerValue<'c>, word: Value<'c>) -> Result<()> {
        self.b.store(slot, word, 4)
    }

    /// The register whose elements are these of a local buffer, lowest bits first.
    pub fn gathered_word(&self, words: &Packed<'c>, elements: &[i64]) -> Result<Value<'c>> {
        if let Some(first) = whole_word(elements, words.dtype) {
            return self.load_word(words.slot(first)?);
        }
        let bytes = elements.iter().map(|e| Ok(self.load_words(words, *e, 1)?.value)).collect::<Result<Vec<_>>>()?;
        let bytes = Data { value: self.b.gather(&bytes)?, dtype: bytes_of(words.dtype), lanes: elements.len() as u32 };
        Ok(self.pack(bytes, words.dtype)?.value)
    }

    /// Puts the elements of a register into a local buffer.
    pub fn put_word(&self, words: &Packed<'c>, elements: &[i64], word: Value<'c>) -> Result<()> {
        if let Some(first) = whole_word(elements, words.dtype) {
            return self.store_word(words.slot(first)?, word);
        }
        let dtype = words.dtype;
        let bytes = self.spread_out(Data { value: word, dtype, lanes: per_word(dtype) })?.value;
        elements
            .iter()
            .zip(0..)
            .try_for_each(|(e, n)| self.store_words(words, *e, Data { value: self.b.lane(bytes, n)?, dtype, lanes: 1 }))
    }

    /// Reads a single element from memory.
    pub fn load_part(
        &mut self,
        id: BufferId,
        indices: &[Index],
        base: PointerValue<'c>,
        invariant: bool,
    ) -> Result<Data<'c>> {
        let dtype = self.buffer(id)?.dtype;
        let spot = self.spot(id, indices, base)?;
        let byte = self.b.load(self.b.element(dtype)?, spot.byte, byte_size(dtype, 1), invariant)?;
        let bits = |n: u32| Value::from(self.b.int(8, (n * dtype.bits()).into()));
        let last = per_byte(dtype) - 1;
        let value = match spot.part {
            Part::Known(0) => self.b.cut(byte, dtype)?,
            Part::Known(n) if n == last && is_unsigned(dtype) => self.b.binary(Op::LShr, byte, bits(n))?,
            Part::Known(n) if n == last => self.b.binary(Op::AShr, byte, bits(n))?,
            Part::Known(n) => self.b.cut(self.b.binary(Op::LShr, byte, bits(n))?, dtype)?,
            Part::Varies(n) => {
                let by = match dtype.bits().trailing_zeros() {
                    0 => n,
                    log => self.b.binary(Op::Shl, n, self.b.int(8, log.into()).into())?,
                };
                self.b.cut(self.b.binary(Op::LShr, byte, by)?, dtype)?
            }
        };
        Ok(Data { value, dtype, lanes: 1 })
    }

    fn spot(&mut self, id: BufferId, indices: &[Index], base: PointerValue<'c>) -> Result<Spot<'c>> {
        let (sum, per) = (self.flat_sum(id, indices)?, i64::from(per_byte(self.buffer(id)?.dtype)));
        let number = sum.constant.rem_euclid(per);
        let first = Affine { constant: sum.constant - number, ..sum.clone() };
        if let Some(bytes) = divided(&first, per) {
            return Ok(Spot { byte: self.behind(base, bytes)?, part: Part::Known(number as u32) });
        }
        let number = self.emit_sum(&sum)?;
        let part = self.b.cast(Op::Trunc, number.value.into(), self.b.int(8, 0).get_type().into())?;
        let part = self.b.binary(Op::And, part, self.b.int(8, per - 1).into())?;
        Ok(Spot { byte: self.behind_part(base, &sum, per)?, part: Part::Varies(part) })
    }

    /// The byte in which an element of a buffer begins.
    pub fn packed_address(&mut self, base: PointerValue<'c>, sum: &Affine, dtype: DType) -> Result<PointerValue<'c>> {
        let per = i64::from(per_byte(dtype));
        match divided(sum, per) {
            Some(bytes) => self.behind(base, bytes),
            None => self.behind_part(base, sum, per),
        }
    }

    fn behind_part(&mut self, base: PointerValue<'c>, sum: &Affine, per: i64) -> Result<PointerValue<'c>> {
        let number = self.emit_sum(sum)?;
        let log = self.b.int(64, per.trailing_zeros().into()).into();
        let log = self.b.cast(Op::Trunc, log, number.value.get_type().into())?;
        let byte = self.b.binary(Op::LShr, number.value.into(), log)?.into_int_value();
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

/// The first of the elements that are a word in their order.
fn whole_word(elements: &[i64], dtype: DType) -> Option<i64> {
    let per = per_word(dtype);
    let first = *elements.first()?;
    let in_order = elements.iter().zip(first..).all(|(e, n)| *e == n);
    (in_order && elements.len() as u32 == per && first % i64::from(per) == 0).then_some(first)
}

/// A sum whose every part is a multiple of the elements of a byte, in bytes.
pub fn divided(sum: &Affine, per: i64) -> Option<Affine> {
    let bytes = |n: i64| (n % per == 0).then_some(n / per);
    let terms = sum.terms.iter().map(|(atom, factor)| Some((atom.clone(), bytes(*factor)?)));
    Some(Affine { terms: terms.collect::<Option<_>>()?, constant: bytes(sum.constant)? })
}
