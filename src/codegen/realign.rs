//! Unaligned vector loads: aligned 32-bit loads, and one PRMT for each 32-bit register of the vector.
//!
//! The pass `vectors` has marked the loops ([`crate::ir::LoopCode::realigns`]). Predicates leave out words that hold no element of the
//! vector. The array may end inside a word: its last one to three bytes are loaded one by one, from a constant offset.

use super::body::Body;
use super::builder::Value;
use super::bulk::expand;
use super::session::bug;
use super::value::Data;
use super::words::Loaded;
use crate::codegen::access::Storage;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::lowered::realign::{self, Realigned, WORD};
use crate::ir::{BufferId, For, Index, IndexOp};
use inkwell::IntPredicate;
use inkwell::values::{InstructionOpcode as Op, PointerValue, ValueKind};

const LOAD_WORD_WHERE: &str = include_str!("../../ptx-templates/load_word_where.ptx");
const LOW_BITS: &str = include_str!("../../ptx-templates/low_bits.ptx");

/// What a byte in front of the first element adds to the selector of a PRMT, and the selector without one.
const ONE_FURTHER: i64 = 0x1111;
const IN_ORDER: i64 = 0x3210;

/// The predicates of a vector's 32-bit loads.
enum Predicates<'c> {
    /// Only the last load has one: it is needed where the vector crosses a word.
    Last,
    /// A load is executed if its byte offset from the first one is at most this.
    UpTo(Value<'c>),
}

/// The bytes behind the last whole word of an array.
struct Rest<'c> {
    /// As a word.
    word: Value<'c>,
    /// Where they begin, counted from the first word that is loaded.
    at: Value<'c>,
}

impl<'c> Body<'c, '_, '_> {
    /// Emits a loop that reads aligned words.
    pub fn realign(&mut self, l: &For) -> Result<()> {
        self.unrolled.insert(l.var, Index::Int(0));
        self.realigned = Some(l.clone());
        let written = self.stmts(&l.body);
        self.realigned = None;
        self.unrolled.remove(&l.var);
        written
    }

    /// Emits all iterations of the store of such a loop.
    pub fn realigned_store(&mut self, l: &For) -> Result<()> {
        let func = self.func;
        let read =
            realign::realigned(func, l).ok_or_else(|| bug(format!("loop {} reads no words", self.name_of(l.var))))?;
        let dtype = self.buffer(read.store.buffer)?.dtype;
        let loaded = match read.from.clone() {
            Some((from, first)) => self.loaded_words(&read, from, first)?,
            None => {
                let size = realign::bytes(dtype).unwrap_or(1);
                let zeros = vec![self.number(0); (read.lanes * size / WORD) as usize + 1];
                Loaded { masks: zeros[1..].to_vec(), words: zeros, selector: self.number(IN_ORDER) }
            }
        };
        self.store_loaded(&read, dtype, &loaded)
    }

    /// The words that hold what the loop reads.
    fn loaded_words(&mut self, read: &Realigned, from: BufferId, first: Index) -> Result<Loaded<'c>> {
        let dtype = self.buffer(from)?.dtype;
        let size = realign::bytes(dtype).ok_or_else(|| bug(format!("elements of {dtype} are no parts of words")))?;
        let Storage::Global { pointer, only_read } = self.place(from)? else {
            return Err(bug("words of what is not in device memory"));
        };
        let total = self.buffer(from)?.elements().unwrap_or(0) * size;
        let (element, _) = self.address(from, pointer, std::slice::from_ref(&first))?;
        let first = first * size;
        let shift = first.clone().floormod(WORD);
        let before = self.index(&shift)?;
        let before = self.widened(before, 32)?;
        let back = self.b.cast(Op::ZExt, before.into(), self.b.context.i64_type().into())?;
        let back = self.b.binary(Op::Sub, self.b.int(64, 0).into(), back)?.into_int_value();
        let start = self.b.offset(self.b.context.i8_type().into(), element, back, false)?;

        let bytes = read.lanes * size;
        let valid = self.valid_bytes(read, size)?;
        let rest = self.rest_of(pointer, only_read, total, (&first, &shift))?;
        let rest = rest.map(|rest| self.where_any(rest, valid)).transpose()?;
        let count = bytes / WORD;
        let mut loaded = Vec::new();
        let predicates = self.predicates(valid, before.into(), bytes, &rest)?;
        for n in 0..=count {
            let always = matches!(predicates, Predicates::Last) && n < count;
            loaded.push(match (&predicates, always) {
                (_, true) => self.word(start, n * WORD, only_read)?,
                (Predicates::Last, false) => {
                    let crosses = self.b.compare_int(IntPredicate::NE, before.into(), self.b.int(32, 0).into())?;
                    self.word_where(start, n * WORD, only_read, crosses, None)?
                }
                (Predicates::UpTo(last), false) => {
                    let at = self.b.int(32, n * WORD).into();
                    let holds = self.b.compare_int(IntPredicate::SLE, at, *last)?;
                    self.word_where(start, n * WORD, only_read, holds, rest.as_ref())?
                }
            });
        }
        let further = self.b.binary(Op::Mul, before.into(), self.b.int(32, ONE_FURTHER).into())?;
        let selector = self.b.binary(Op::Add, further, self.b.int(32, IN_ORDER).into())?;
        let partial = if read.below.is_empty() { None } else { valid };
        let mask = |n: i64| match partial {
            None => Ok(self.number(-1)),
            Some(valid) => self.mask(valid, n * WORD),
        };
        Ok(Loaded { words: loaded, masks: (0..count).map(mask).collect::<Result<_>>()?, selector })
    }

    /// A word out of two that were loaded.
    pub fn shift_word(&self, pair: [Value<'c>; 2], selector: Value<'c>, mask: Value<'c>) -> Result<Value<'c>> {
        let word = self.b.intrinsic("llvm.nvvm.prmt", &[], &[pair[0], pair[1], selector])?;
        self.b.binary(Op::And, word, mask)
    }

    /// The bytes that iterations read, from the first one on; `None` where all read.
    fn valid_bytes(&mut self, read: &Realigned, size: i64) -> Result<Option<Value<'c>>> {
        if read.below.is_empty() && read.conditions.is_empty() {
            return Ok(None);
        }
        let end = read.below.iter().fold(Index::Int(read.lanes), |end, one| Index::bin(IndexOp::Min, end, one.clone()));
        let end = self.index(&(Index::bin(IndexOp::Max, end, Index::Int(0)) * size))?;
        let mut valid: Value = self.widened(end, 32)?.into();
        for condition in &read.conditions {
            let holds = self.condition(condition)?;
            valid = self.b.select(holds, valid, self.b.int(32, 0).into())?;
        }
        Ok(Some(valid))
    }

    /// The bytes behind the last whole word of the array, if there are any.
    fn rest_of(
        &mut self,
        array: PointerValue<'c>,
        only_read: bool,
        total: i64,
        (first, shift): (&Index, &Index),
    ) -> Result<Option<Rest<'c>>> {
        let whole = total / WORD * WORD;
        if whole == total {
            return Ok(None);
        }
        // Far from the end, any number beyond the words does.
        let at = Index::Int(whole) - first.clone() + shift.clone();
        let at = Index::bin(IndexOp::Max, Index::bin(IndexOp::Min, at, Index::Int(FAR)), Index::Int(-WORD));
        let at = self.index(&at)?;
        let at = self.widened(at, 32)?.into();
        let byte = self.b.context.i8_type().into();
        let mut word: Value = self.b.int(32, 0).into();
        for n in whole..total {
            let place = self.b.offset(byte, array, self.b.int(64, n), true)?;
            let one = self.b.load(byte, place, 1, only_read)?;
            let one = self.b.cast(Op::ZExt, one, self.b.i32().into())?;
            let one = self.b.binary(Op::Shl, one, self.b.int(32, 8 * (n - whole)).into())?;
            word = self.b.binary(Op::Or, word, one)?;
        }
        Ok(Some(Rest { word, at }))
    }

    /// The same rest, out of reach of a vector without a valid byte: that vector is zero.
    fn where_any(&self, rest: Rest<'c>, valid: Option<Value<'c>>) -> Result<Rest<'c>> {
        let Some(valid) = valid else { return Ok(rest) };
        let any = self.b.compare_int(IntPredicate::SGT, valid, self.number(0))?;
        Ok(Rest { at: self.b.select(any, rest.at, self.number(FAR))?, ..rest })
    }

    /// The predicates: a load is executed if its word holds an element that is read, and ends inside the array.
    fn predicates(
        &self,
        valid: Option<Value<'c>>,
        before: Value<'c>,
        bytes: i64,
        rest: &Option<Rest<'c>>,
    ) -> Result<Predicates<'c>> {
        if valid.is_none() && rest.is_none() {
            return Ok(Predicates::Last);
        }
        let number = |n: i64| self.number(n);
        let valid = valid.unwrap_or(number(bytes));
        let last = self.b.binary(Op::Add, valid, before)?;
        let last = self.b.binary(Op::Sub, last, number(1))?;
        let any = self.b.compare_int(IntPredicate::SGT, valid, number(0))?;
        let mut last = self.b.select(any, last, number(-1))?;
        if let Some(Rest { at, .. }) = rest {
            let whole = self.b.binary(Op::Sub, *at, number(1))?;
            last = self.b.intrinsic("llvm.smin", &[self.b.i32().into()], &[last, whole])?;
        }
        Ok(Predicates::UpTo(last))
    }

    fn word(&self, start: PointerValue<'c>, at: i64, only_read: bool) -> Result<Value<'c>> {
        let place = self.b.offset(self.b.context.i8_type().into(), start, self.b.int(64, at), false)?;
        self.b.load(self.b.i32().into(), place, WORD as u32, only_read)
    }

    /// A word where a condition holds; elsewhere the rest of the array, or zero.
    fn word_where(
        &self,
        start: PointerValue<'c>,
        at: i64,
        only_read: bool,
        holds: Value<'c>,
        rest: Option<&Rest<'c>>,
    ) -> Result<Value<'c>> {
        let zero: Value = self.b.int(32, 0).into();
        let other = match rest {
            None => zero,
            Some(rest) => {
                let here = self.b.compare_int(IntPredicate::EQ, rest.at, self.b.int(32, at).into())?;
                self.b.select(here, rest.word, zero)?
            }
        };
        let fields = [("cache", if only_read { ".nc" } else { "" }.to_string()), ("offset", at.to_string())];
        let text = expand(LOAD_WORD_WHERE, &fields, &[("D", 1), ("P", 1), ("M", 1)]);
        self.one_word(text, "=r,b,l,0", &[holds, start.into(), other])
    }

    /// What is kept of a word that begins at byte `at`, of so many valid ones in all.
    fn mask(&self, valid: Value<'c>, at: i64) -> Result<Value<'c>> {
        let bits = self.b.binary(Op::Shl, valid, self.number(3))?;
        let bits = self.b.binary(Op::Sub, bits, self.number(8 * at))?;
        let bits = self.b.intrinsic("llvm.smax", &[self.b.i32().into()], &[bits, self.number(0)])?;
        self.one_word(expand(LOW_BITS, &[], &[("D", 1), ("N", 1)]), "=r,r", &[bits])
    }

    fn number(&self, n: i64) -> Value<'c> {
        self.b.int(32, n).into()
    }

    fn one_word(&self, text: String, constraints: &str, args: &[Value<'c>]) -> Result<Value<'c>> {
        match self.b.asm(text, constraints.to_string(), &[self.b.i32().into()], args)? {
            ValueKind::Basic(value) => Ok(value),
            ValueKind::Instruction(_) => Err(bug("inline PTX without a result")),
        }
    }

    /// Writes what was loaded to where the loop's store writes its elements.
    fn store_loaded(&mut self, read: &Realigned, dtype: DType, loaded: &Loaded<'c>) -> Result<()> {
        let (store, lanes) = (read.store, read.lanes as u32);
        let place = self.place(store.buffer)?;
        let elements = match &place {
            Storage::Local(slots) => self.registers(store.buffer, slots, &store.indices, lanes)?,
            _ => Vec::new(),
        };
        if let Storage::Local(slots) = &place
            && self.keep_loaded(slots, elements[0], loaded)?
        {
            return Ok(());
        }
        let shift =
            |(pair, mask): (&[Value<'c>], &Value<'c>)| self.shift_word([pair[0], pair[1]], loaded.selector, *mask);
        let words = loaded.words.windows(2).zip(&loaded.masks).map(shift).collect::<Result<Vec<_>>>()?;
        match place {
            Storage::Local(slots) => {
                let per = elements.len() / words.len();
                let shape = self.b.shape(dtype, per as u32)?;
                elements
                    .chunks(per)
                    .zip(&words)
                    .try_for_each(|(elements, word)| self.write(&slots, elements, self.b.reinterpret(*word, shape)?))
            }
            Storage::Shared(pointer) => {
                let value = self.b.reinterpret(self.b.gather(&words)?, self.b.shape(dtype, lanes)?)?;
                self.store_lanes(store, pointer, Data { value, dtype, lanes })
            }
            _ => Err(bug("words go to registers or to shared memory")),
        }
    }
}

/// A byte offset beyond every vector.
const FAR: i64 = 1 << 10;
