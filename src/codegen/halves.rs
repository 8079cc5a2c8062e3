//! Integers of 4 and 8 bits as 16-bit floats, two at a time and exactly.
//!
//! The bits of an integer become the lowest bits of the fraction of a float whose exponent makes them units (f16: 1024 has the pattern
//! 0x6400; bf16: 128 has 0x4300; f32: 2^23 has 0x4B000000), and one addition takes that power of two away again. A signed integer has
//! its sign bit inverted, which adds 8 or 128, and the same addition takes that away. So two 4-bit integers that are 16 bits apart in a
//! word cost a LOP3 and an HFMA2; two of one byte cost a PRMT more. Conversion instructions run at a quarter of that rate.

use super::access::Storage;
use super::body::Body;
use super::builder::Value;
use super::bulk::expand;
use super::packed::{Packed, is_packed};
use super::value::{Data, is_unsigned, vector_of};
use super::words::elements_of;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{BinOp, BufferId, Expr, For, Index, LoopKind, Stmt, Store, Var, visit};
use crate::target::Features;
use inkwell::values::InstructionOpcode as Op;

const LOP3: &str = include_str!("../../ptx-templates/lop3_and_xor.ptx");
const FMA: &str = include_str!("../../ptx-templates/fma_bf16_pair.ptx");

/// Elements of 4 bits in a word.
const NIBBLES: u32 = 8;
/// What inverting the sign bit of a 4-bit and of an 8-bit integer adds.
const BIAS4: f64 = 8.0;
const BIAS8: f64 = 128.0;

impl<'c> Body<'c, '_, '_> {
    /// Integers of 4 or 8 bits as f16 or bf16; `None` where the chip has no arithmetic on pairs of that type, or the number of lanes is odd.
    pub fn integers_to_halves(&self, to: DType, from: Data<'c>) -> Result<Option<Data<'c>>> {
        if !self.converts(from.dtype, to) || !from.lanes.is_multiple_of(2) {
            return Ok(None);
        }
        let (words, per) = match is_packed(from.dtype) {
            true => (self.b.words(from.value, from.dtype, from.lanes)?, NIBBLES),
            false => self.words_of_bytes(from)?,
        };
        let pair = |n: u32| self.pair_of(to, from.dtype, words[(n / per) as usize], [n % per, n % per + 1]);
        let pairs = (0..from.lanes).step_by(2).map(pair).collect::<Result<Vec<_>>>()?;
        Ok(Some(Data { value: self.of_pairs(to, &pairs)?, dtype: to, lanes: from.lanes }))
    }

    /// The cast of two 4-bit elements of a local buffer, taken from their word where they are.
    pub fn part_to_halves(&self, to: DType, from: &Expr) -> Result<Option<Data<'c>>> {
        let Some((words, [first, second])) = self.packed_pair(to, from, self.paired)? else { return Ok(None) };
        let within = [first, second].map(|e| e.rem_euclid(NIBBLES.into()) as u32);
        let word = self.load_words(&words, first - i64::from(within[0]), NIBBLES)?;
        let word = self.b.lane(word.value, 0)?;
        Ok(Some(Data { value: self.pair_of(to, words.dtype(), word, within)?, dtype: to, lanes: 2 }))
    }

    /// Writes both halves of a register at once where each is computed from one of two 4-bit integers that are 16 bits apart in a word, so
    /// that each operation on the two is one instruction. Whether the loop is such a nest.
    pub fn both_halves(&mut self, l: &For) -> Result<bool> {
        let (Some(store), None) = (pair_store(l), self.paired) else { return Ok(false) };
        let Storage::Local(words) = self.place(store.buffer)? else { return Ok(false) };
        let [first, second] = self.both_numbers(store.buffer, &store.indices, l.var)?;
        let whole = words.per() == 2 && first % 2 == 0 && second == first + 1;
        let inside = first >= 0 && (second as usize) < words.elements();
        if !whole || !inside || self.is_one_of_a_pair(&store.value, l.var)? != Some(true) {
            return Ok(false);
        }
        self.unrolled.insert(l.var, Index::Int(0));
        self.paired = Some(l.var);
        self.on_line_of(store, |body| {
            let value = body.expr(&store.value)?;
            body.write(&words, &[first as usize, second as usize], value.value)
        })?;
        self.paired = None;
        self.unrolled.remove(&l.var);
        Ok(true)
    }

    /// Whether a value is computed from an element that is a half of a pair, and the same otherwise in both iterations; `None` where
    /// something else differs.
    fn is_one_of_a_pair(&self, value: &Expr, var: Var) -> Result<Option<bool>> {
        Ok(match value {
            Expr::Const(..) => Some(false),
            Expr::Load { indices, lanes, .. } => {
                (*lanes == 1 && !indices.iter().any(|i| i.mentions(var))).then_some(false)
            }
            Expr::Cast(to, a) if self.packed_pair(*to, a, Some(var))?.is_some() => Some(true),
            Expr::Cast(_, a) | Expr::Un(_, a) => self.is_one_of_a_pair(a, var)?,
            Expr::Bin(_, a, b) => {
                let both = (self.is_one_of_a_pair(a, var)?, self.is_one_of_a_pair(b, var)?);
                if let (Some(a), Some(b)) = both { Some(a || b) } else { None }
            }
            _ => None,
        })
    }

    /// Two elements of a word of a local buffer that a cast of a load is of: of two lanes, or in two iterations of a loop.
    fn packed_pair(&self, to: DType, from: &Expr, var: Option<Var>) -> Result<Option<(Packed<'c>, [i64; 2])>> {
        let Expr::Load { buffer, indices, lanes } = from else { return Ok(None) };
        let Storage::Packed(words) = self.place(*buffer)? else { return Ok(None) };
        let both = match (*lanes, var) {
            (1, Some(var)) if indices.iter().any(|i| i.mentions(var)) => self.both_numbers(*buffer, indices, var)?,
            (2, _) => {
                let first = self.element_number(*buffer, indices)?;
                [first, first + 1]
            }
            _ => return Ok(None),
        };
        let word = |e: i64| e.div_euclid(NIBBLES.into());
        let together = both[0] >= 0 && word(both[0]) == word(both[1]) && self.converts(words.dtype(), to);
        let apart = both[1] - both[0] == 4 || both[1] - both[0] == 1 && both[0] % 2 == 0;
        let inside = both[1] < elements_of(self.buffer(*buffer)?)?;
        Ok((together && apart && inside).then_some((words, both)))
    }

    /// The numbers of the elements of a local buffer in two iterations of a loop.
    fn both_numbers(&self, buffer: BufferId, indices: &[Index], var: Var) -> Result<[i64; 2]> {
        let at = |n: i64| {
            let value = [(var, Index::Int(n))].into();
            let indices: Vec<Index> = indices.iter().map(|i| visit::subst_index(i, &value)).collect();
            self.element_number(buffer, &indices)
        };
        Ok([at(0)?, at(1)?])
    }

    /// Whether pairs of these types are converted so.
    fn converts(&self, from: DType, to: DType) -> bool {
        let has_pairs = to == DType::F16 || to == DType::Bf16 && self.b.features.contains(Features::BF16);
        has_pairs && matches!(from, DType::S4 | DType::U4 | DType::S8 | DType::U8)
    }

    /// Bytes as words, and how many are in one: two bytes are a word whose upper half is zero.
    fn words_of_bytes(&self, from: Data<'c>) -> Result<(Vec<Value<'c>>, u32)> {
        let bits = |n| self.b.int(n, 0).get_type().into();
        if !from.lanes.is_multiple_of(4) {
            let halves = self.b.reinterpret(from.value, vector_of(bits(16), from.lanes / 2)?)?;
            let word = |n| self.b.cast(Op::ZExt, self.b.lane(halves, n)?, bits(32));
            return Ok(((0..from.lanes / 2).map(word).collect::<Result<_>>()?, 2));
        }
        let words = self.b.reinterpret(from.value, vector_of(bits(32), from.lanes / 4)?)?;
        Ok(((0..from.lanes / 4).map(|n| self.b.lane(words, n)).collect::<Result<_>>()?, 4))
    }

    /// The vector of these pairs.
    fn of_pairs(&self, to: DType, pairs: &[Value<'c>]) -> Result<Value<'c>> {
        if let [pair] = pairs {
            return Ok(*pair);
        }
        let words = pairs.iter().map(|p| self.b.reinterpret(*p, self.b.i32().into())).collect::<Result<Vec<_>>>()?;
        self.b.reinterpret(self.b.gather(&words)?, self.b.shape(to, 2 * pairs.len() as u32)?)
    }

    /// Two elements of a word, by number.
    fn pair_of(&self, to: DType, from: DType, word: Value<'c>, elements: [u32; 2]) -> Result<Value<'c>> {
        match (is_packed(from), to) {
            (true, DType::F16) => self.nibbles_to_f16(from, word, elements),
            (true, _) => self.nibbles_to_bf16(from, word, elements),
            (false, DType::F16) => self.bytes_to_f16(from, word, elements),
            (false, _) => self.bytes_to_bf16(from, word, elements),
        }
    }

    fn pattern(&self, pattern: u32) -> Value<'c> {
        self.b.int(32, i64::from(pattern)).into()
    }

    fn selected_bytes(&self, a: Value<'c>, b: Value<'c>, selector: u32) -> Result<Value<'c>> {
        self.b.intrinsic("llvm.nvvm.prmt", &[], &[a, b, self.pattern(selector)])
    }

    fn moved_down(&self, word: Value<'c>, bits: u32) -> Result<Value<'c>> {
        if bits == 0 { Ok(word) } else { self.b.binary(Op::LShr, word, self.pattern(bits)) }
    }

    /// The bits of a mask, with others inverted.
    fn masked(&self, word: Value<'c>, mask: u32, bits: u32) -> Result<Value<'c>> {
        let fields = [("mask", format!("{mask:#010x}")), ("bits", format!("{bits:#010x}"))];
        let text = expand(LOP3, &fields, &[("D", 1), ("S", 1)]);
        self.b.pure_asm(text, "=r,r", self.b.i32().into(), &[word])
    }

    /// `pattern * factors + addends`, each of two lanes.
    fn fused_pair(&self, to: DType, pattern: Value<'c>, factors: [f64; 2], addends: [f64; 2]) -> Result<Value<'c>> {
        let shape = self.b.shape(to, 2)?;
        let pair = |values: [f64; 2]| {
            let [low, high] = values.map(|v| self.b.number(to, 1, v));
            self.b.gather(&[low?, high?])
        };
        let operands = [self.b.reinterpret(pattern, shape)?, pair(factors)?, pair(addends)?];
        if to == DType::Bf16 { self.fused_bf16(operands) } else { self.b.intrinsic("llvm.fma", &[shape], &operands) }
    }

    /// `a * b + c` of pairs of bf16.
    fn fused_bf16(&self, operands: [Value<'c>; 3]) -> Result<Value<'c>> {
        let word = self.b.i32().into();
        let shape = self.b.shape(DType::Bf16, 2)?;
        let operands = operands.map(|v| self.b.reinterpret(v, word));
        let operands = operands.into_iter().collect::<Result<Vec<_>>>()?;
        let text = expand(FMA, &[], &[("D", 1), ("A", 1), ("B", 1), ("C", 1)]);
        self.b.reinterpret(self.b.pure_asm(text, "=r,r,r,r", word, &operands)?, shape)
    }

    /// The difference or the product of two pairs of bf16 of which one is made of 4-bit integers; `None` for others. Neither needs more
    /// bits than f32 has, so rounding once gives the bits of arithmetic in f32.
    pub fn on_small_pairs(
        &self,
        op: BinOp,
        (a, b): (&Expr, &Expr),
        x: Data<'c>,
        y: Data<'c>,
    ) -> Result<Option<Data<'c>>> {
        let pairs = self.paired.is_some() && x.dtype == DType::Bf16 && x.lanes == 2 && y.lanes == 2;
        let number = |v: f64| self.b.number(DType::Bf16, 2, v);
        let value = match op {
            BinOp::Mul if pairs && (self.is_small(a) || self.is_small(b)) => [x.value, y.value, number(-0.0)?],
            BinOp::Sub if pairs && self.is_small(a) && self.is_small(b) => [y.value, number(-1.0)?, x.value],
            _ => return Ok(None),
        };
        Ok(Some(Data { value: self.fused_bf16(value)?, ..x }))
    }

    /// Whether a value is a 4-bit integer or a difference of two.
    fn is_small(&self, value: &Expr) -> bool {
        match value {
            Expr::Cast(_, a) => match a.as_ref() {
                Expr::Load { buffer, .. } => {
                    self.buffer(*buffer).is_ok_and(|b| matches!(b.dtype, DType::S4 | DType::U4))
                }
                _ => false,
            },
            Expr::Bin(BinOp::Sub, a, b) => self.is_small(a) && self.is_small(b),
            _ => false,
        }
    }

    /// Under the exponent of 1024 the low nibble of a byte counts units, the high one sixteens.
    fn nibbles_to_f16(&self, from: DType, word: Value<'c>, [first, second]: [u32; 2]) -> Result<Value<'c>> {
        let (bias, sign) = if is_unsigned(from) { (0.0, 0) } else { (BIAS4, 8) };
        let units = |high: bool| if high { (1.0 / 16.0, -64.0 - bias, 4) } else { (1.0, -1024.0 - bias, 0) };
        let word = if second == first + 1 {
            self.selected_bytes(word, word, 0x1111 * (first / 2))?
        } else {
            self.moved_down(word, first / 2 * 8)?
        };
        let [low, high] = [first, second].map(|e| units(e % 2 == 1));
        let each = |low: u32, high: u32| low | high << 16;
        let mask = each(0xF << low.2, 0xF << high.2);
        let bits = each(0x6400 | sign << low.2, 0x6400 | sign << high.2);
        self.fused_pair(DType::F16, self.masked(word, mask, bits)?, [low.0, high.0], [low.1, high.1])
    }

    /// A fraction of 7 bits has no place for the high nibble of a byte, which is moved down.
    fn nibbles_to_bf16(&self, from: DType, word: Value<'c>, [first, second]: [u32; 2]) -> Result<Value<'c>> {
        let (bias, sign) = if is_unsigned(from) { (0.0, 0) } else { (BIAS4, 8) };
        let word = if second == first + 1 {
            let byte = first / 2;
            self.selected_bytes(word, self.moved_down(word, 4)?, 0x4400 + 0x1111 * byte)?
        } else {
            self.moved_down(word, first * 4)?
        };
        let pattern = self.masked(word, 0x000F_000F, 0x4300_4300 | sign | sign << 16)?;
        self.fused_pair(DType::Bf16, pattern, [1.0; 2], [-128.0 - bias; 2])
    }

    /// Bytes with their sign bits inverted, where they have any, and what that adds.
    fn biased_bytes(&self, from: DType, word: Value<'c>) -> Result<(Value<'c>, f64)> {
        if is_unsigned(from) {
            return Ok((word, 0.0));
        }
        Ok((self.b.binary(Op::Xor, word, self.pattern(0x8080_8080))?, BIAS8))
    }

    fn bytes_to_f16(&self, from: DType, word: Value<'c>, [first, second]: [u32; 2]) -> Result<Value<'c>> {
        let (word, bias) = self.biased_bytes(from, word)?;
        let pattern = self.selected_bytes(word, self.pattern(0x6464_6464), 0x4040 | first | second << 8)?;
        self.fused_pair(DType::F16, pattern, [1.0; 2], [-1024.0 - bias; 2])
    }

    /// As f32, whose upper half is the bf16: no integer of 8 bits has a longer fraction.
    fn bytes_to_bf16(&self, from: DType, word: Value<'c>, elements: [u32; 2]) -> Result<Value<'c>> {
        let (word, bias) = self.biased_bytes(from, word)?;
        let [low, high] = elements.map(|byte| {
            let pattern = self.selected_bytes(word, self.pattern(0x4B00_0000), 0x7440 | byte)?;
            let float = self.b.reinterpret(pattern, self.b.element(DType::F32)?)?;
            let value = self.b.binary(Op::FSub, float, self.b.number(DType::F32, 1, 8_388_608.0 + bias)?)?;
            self.b.reinterpret(value, self.b.i32().into())
        });
        self.b.reinterpret(self.selected_bytes(low?, high?, 0x7632)?, self.b.shape(DType::Bf16, 2)?)
    }
}

/// The one statement of a loop of two iterations that is written out.
fn pair_store(l: &For) -> Option<&Store> {
    let plain = l.kind == LoopKind::Unrolled && l.code.backwards.is_none() && l.extent.as_int() == Some(2);
    let body = match l.body.as_slice() {
        [Stmt::Block(block)] => block.body.as_slice(),
        body => body,
    };
    match body {
        [Stmt::Store(store)] if plain && store.lanes == 1 && !store.asynchronous => Some(store),
        _ => None,
    }
}
