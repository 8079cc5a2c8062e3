//! Loads and stores: device memory and shared memory at addresses, local buffers in registers.

use super::body::Body;
use super::builder::{Type, Value};
use super::packed::{Packed, is_packed};
use super::session::bug;
use super::value::Data;
use super::words::{Words, elements_of};
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::simplify::{Affine, Env, divisor};
use crate::ir::{Buffer, BufferId, Expr, Index, Peers, Remote, Store};
use inkwell::values::{InstructionOpcode, PointerValue};

const STORE_CLUSTER: &str = include_str!("../../ptx-templates/store_cluster.ptx");
const STORE_CLUSTER_VECTOR: &str = include_str!("../../ptx-templates/store_cluster_vector.ptx");
const STORE_ASYNC: &str = include_str!("../../ptx-templates/store_async.ptx");

/// Bytes of the widest access.
const WIDEST: u32 = 16;

/// Where a buffer is.
#[derive(Debug, Clone)]
pub enum Storage<'c> {
    /// In device memory, behind a parameter.
    Global {
        /// The first element.
        pointer: PointerValue<'c>,
        /// Whether the kernel never writes it.
        only_read: bool,
    },
    /// In shared memory.
    Shared(PointerValue<'c>),
    /// In registers.
    Local(Words<'c>),
    /// In registers, elements below a byte.
    Packed(Packed<'c>),
}

impl<'c> Body<'c, '_, '_> {
    /// A shared buffer at its place in the plan.
    pub fn place_shared(&self, buffer: &Buffer, shared: Option<PointerValue<'c>>) -> Result<Storage<'c>> {
        let base =
            shared.ok_or_else(|| bug(format!("{} is shared, but the kernel has no shared memory", buffer.name)))?;
        let offset = buffer.offset.ok_or_else(|| bug(format!("{} has no place in shared memory", buffer.name)))?;
        let byte = self.b.context.i8_type().into();
        Ok(Storage::Shared(self.b.offset(byte, base, self.b.int(32, offset.into()), false)?))
    }

    /// Reads `lanes` consecutive elements.
    pub fn load(&mut self, id: BufferId, indices: &[Index], lanes: u32) -> Result<Data<'c>> {
        let dtype = self.buffer(id)?.dtype;
        let (pointer, invariant) = match self.place(id)? {
            Storage::Global { pointer, only_read } => (pointer, only_read),
            Storage::Shared(pointer) => (pointer, false),
            Storage::Packed(_) | Storage::Local(_) if self.never_runs(id, indices, lanes)? => {
                let value = self.b.shape(dtype, lanes)?.const_zero();
                return Ok(Data { value, dtype, lanes });
            }
            Storage::Packed(words) => return self.load_words(&words, self.element_number(id, indices)?, lanes),
            Storage::Local(words) => {
                let elements = self.registers(id, &words, indices, lanes)?;
                return Ok(Data { value: self.read(&words, &elements)?, dtype, lanes });
            }
        };
        if is_packed(dtype) && lanes == 1 {
            return self.load_part(id, indices, pointer, invariant);
        }
        let (pointer, align) = self.address(id, pointer, indices)?;
        let stored = in_memory(dtype);
        let value =
            self.b.load(self.b.shape(stored, lanes)?, pointer, align.max(byte_size(dtype, lanes)), invariant)?;
        // Of a byte any value but 0 is true.
        self.cast(dtype, Data { value, dtype: stored, lanes })
    }

    /// Writes `lanes` consecutive elements.
    pub fn store(&mut self, store: &Store) -> Result<()> {
        // A register keeps what it has.
        if store.value.is_any() && matches!(self.place(store.buffer)?, Storage::Local(_)) {
            return Ok(());
        }
        let dtype = self.buffer(store.buffer)?.dtype;
        let value = self.expr(&store.value)?;
        if value.dtype != dtype || (value.lanes != store.lanes && value.lanes != 1) {
            let name = &self.buffer(store.buffer)?.name;
            return Err(bug(format!(
                "{name} is of {dtype}, {} lanes, and gets {}, {}",
                store.lanes, value.dtype, value.lanes
            )));
        }
        let value = if is_packed(dtype) { self.splat(value, store.lanes)? } else { value };
        let pointer = match self.place(store.buffer)? {
            Storage::Global { pointer, .. } | Storage::Shared(pointer) => pointer,
            Storage::Packed(_) | Storage::Local(_) if self.never_runs(store.buffer, &store.indices, store.lanes)? => {
                return Ok(());
            }
            Storage::Packed(words) => {
                return self.store_words(&words, self.element_number(store.buffer, &store.indices)?, value);
            }
            Storage::Local(words) => {
                let elements = self.registers(store.buffer, &words, &store.indices, store.lanes)?;
                return self.write(&words, &elements, value.value);
            }
        };
        if is_packed(dtype) && store.lanes == 1 {
            return Err(bug("a thread writes part of a byte"));
        }
        let (pointer, align) = self.address(store.buffer, pointer, &store.indices)?;
        let value = self.cast(in_memory(dtype), value)?;
        let value = match value.lanes == store.lanes {
            true => value.value,
            false => self.b.gather(&vec![value.value; store.lanes as usize])?,
        };
        if let Some(to) = &store.remote {
            return self.remote(pointer, value, dtype.bits() * store.lanes, to);
        }
        let whole = if self.is_copied(&store.value) { value } else { self.by_words(value)? };
        self.b.store(pointer, whole, align.max(byte_size(dtype, store.lanes)))
    }

    /// Writes the lanes of a vector to memory: at once, or in pieces of the alignment.
    pub fn store_lanes(&mut self, store: &Store, pointer: PointerValue<'c>, value: Data<'c>) -> Result<()> {
        let (pointer, align) = self.address(store.buffer, pointer, &store.indices)?;
        let (bytes, element) = (value.dtype.bits() / 8, self.b.element(value.dtype)?);
        let at_once = (align / bytes).clamp(1, value.lanes);
        for first in (0..value.lanes).step_by(at_once as usize) {
            let lanes =
                (first..first + at_once).map(|lane| self.b.lane(value.value, lane)).collect::<Result<Vec<_>>>()?;
            let place = self.b.offset(element, pointer, self.b.int(64, first.into()), false)?;
            self.b.store(place, self.by_words(self.b.gather(&lanes)?)?, at_once * bytes)?;
        }
        Ok(())
    }

    /// Whether a value is a load from global or shared memory, or a choice between such a load and a value without a load.
    fn is_copied(&self, value: &Expr) -> bool {
        match value {
            Expr::Load { buffer, .. } => !matches!(self.place(*buffer), Ok(Storage::Local(_))),
            Expr::Select(_, a, b) => self.is_copied(a) && !matches!(**b, Expr::Load { .. }),
            _ => false,
        }
    }

    /// A vector of 8 or more bytes as opaque words. LLVM splits the store of a vector of bytes that it assembled into stores of one word.
    fn by_words(&self, value: Value<'c>) -> Result<Value<'c>> {
        let Value::VectorValue(vector) = value else { return Ok(value) };
        let (lanes, byte) = (vector.get_type().get_size(), self.b.context.i8_type().into());
        if vector.get_type().get_element_type() != byte || lanes < 8 || !lanes.is_multiple_of(4) {
            return Ok(value);
        }
        let word = |first: u32| {
            let bytes = (first..first + 4).map(|lane| self.b.lane(value, lane)).collect::<Result<Vec<_>>>()?;
            self.opaque_word(self.b.gather(&bytes)?)
        };
        self.b.gather(&(0..lanes).step_by(4).map(word).collect::<Result<Vec<_>>>()?)
    }

    /// Writes a value of so many bits to the same place in the shared memory of other blocks of the cluster.
    fn remote(&mut self, place: PointerValue<'c>, value: Value<'c>, bits: u32, to: &Remote) -> Result<()> {
        let there = self.b.short_address(place)?;
        let ranks: Vec<Value<'c>> = match &to.peers {
            Peers::First(blocks) => (0..*blocks).map(|rank| self.b.int(32, rank.into()).into()).collect(),
            Peers::One(rank) => {
                let rank = self.index(rank)?;
                vec![self.widened(rank, 32)?.into()]
            }
        };
        if bits == 128 && to.full.is_none() {
            let words = self.b.reinterpret(value, self.b.i32().vec_type(4).into())?;
            let words = (0..4).map(|lane| self.b.lane(words, lane)).collect::<Result<Vec<_>>>()?;
            return ranks.iter().try_for_each(|rank| {
                self.template(STORE_CLUSTER_VECTOR, &[], &[("A", &[there]), ("R", &[*rank]), ("X", &words)])
            });
        }
        if !matches!(bits, 8 | 16 | 32 | 64) {
            return Err(bug(format!("a value of {bits} bits goes to other blocks")));
        }
        let (plain, word): (Type<'c>, Type<'c>) = (self.b.int(bits, 0).get_type().into(), self.b.i32().into());
        let mut value = self.b.reinterpret(value, plain)?;
        if bits < 32 {
            value = self.b.cast(InstructionOpcode::ZExt, value, word)?;
        }
        let fields = [("bits", bits.to_string())];
        let full = to.full.as_ref().map(|slot| self.mbarrier(slot)).transpose()?;
        for rank in ranks {
            match full {
                Some(full) => {
                    let operands: [(&str, &[Value<'c>]); 4] =
                        [("A", &[there]), ("B", &[full]), ("R", &[rank]), ("V", &[value])];
                    self.template(STORE_ASYNC, &fields, &operands)?;
                }
                None => self.template(STORE_CLUSTER, &fields, &[("A", &[there]), ("R", &[rank]), ("V", &[value])])?,
            }
        }
        Ok(())
    }

    /// A buffer of the kernel.
    pub fn buffer(&self, id: BufferId) -> Result<&Buffer> {
        self.func.buffers.get(id.0 as usize).ok_or_else(|| bug(format!("there is no buffer #{}", id.0)))
    }

    /// Where a buffer is.
    pub fn place(&self, id: BufferId) -> Result<Storage<'c>> {
        self.places.get(&id).cloned().ok_or_else(|| bug(format!("buffer #{} has no place", id.0)))
    }

    fn flat<'i>(&self, id: BufferId, indices: &'i [Index]) -> Result<&'i Index> {
        match indices {
            [index] => Ok(index),
            _ => Err(bug(format!("{} has {} indices after lowering", self.buffer(id)?.name, indices.len()))),
        }
    }

    /// The address of an element: base, what varies, and last a constant, which fits into the instruction. With it the
    /// power of two that it is known to be a multiple of, from which the backend makes vectors of neighbours.
    pub fn address(
        &mut self,
        id: BufferId,
        base: PointerValue<'c>,
        indices: &[Index],
    ) -> Result<(PointerValue<'c>, u32)> {
        let mut sum = self.flat_sum(id, indices)?;
        let buffer = self.buffer(id)?;
        let align = known_alignment(buffer, &sum);
        if is_packed(buffer.dtype) {
            return Ok((self.packed_address(base, &sum, buffer.dtype)?, align));
        }
        let (element, elements) = (self.b.element(in_memory(buffer.dtype))?, elements_of(buffer)?);
        let constant = std::mem::take(&mut sum.constant);
        let mut pointer = base;
        if !sum.terms.is_empty() {
            let number = self.emit_sum(&sum)?;
            let inside = number.range.0 >= 0 && number.range.1 <= i128::from(elements);
            pointer = self.b.offset(element, pointer, number.value, inside)?;
        }
        if constant != 0 {
            pointer = self.b.offset(element, pointer, self.b.int(64, constant), false)?;
        }
        Ok((pointer, align))
    }

    /// The flat index of an access as a sum.
    pub fn flat_sum(&self, id: BufferId, indices: &[Index]) -> Result<Affine> {
        Ok(self.sum(self.flat(id, indices)?))
    }

    /// The number of an element of a local buffer.
    pub fn element_number(&self, id: BufferId, indices: &[Index]) -> Result<i64> {
        let first = self.flat_sum(id, indices)?.as_constant();
        let name = &self.buffer(id)?.name;
        first.ok_or_else(|| bug(format!("{name} is local, and its index varies at run time")))
    }

    /// Whether an access is to registers that the buffer does not have, in a copy of an unrolled body whose condition fails:
    /// `lower` has shown that an access whose condition holds is inside the buffer. Its value is never used.
    fn never_runs(&self, id: BufferId, indices: &[Index], lanes: u32) -> Result<bool> {
        let first = self.element_number(id, indices)?;
        let elements = elements_of(self.buffer(id)?)?;
        Ok(self.conditions > 0 && (first < 0 || first.saturating_add(lanes.into()) > elements))
    }

    /// Consecutive elements of a local buffer, counted from its first.
    pub fn registers(&self, id: BufferId, words: &Words<'c>, indices: &[Index], lanes: u32) -> Result<Vec<usize>> {
        let name = &self.buffer(id)?.name;
        let first = self.element_number(id, indices)?;
        let end = first.saturating_add(i64::from(lanes));
        if first < 0 || end > words.elements() as i64 {
            return Err(bug(format!("{name} is accessed at {first}, outside its {} elements", words.elements())));
        }
        Ok((first as usize..end as usize).collect())
    }
}

/// How memory holds a type: truth values are bytes.
fn in_memory(dtype: DType) -> DType {
    if dtype == DType::Bool { DType::U8 } else { dtype }
}

/// Bytes that an address is a multiple of, up to the widest access: by the base, each factor and the constant.
fn known_alignment(buffer: &Buffer, sum: &Affine) -> u32 {
    let env = Env::new();
    let steps = sum.terms.iter().map(|(atom, factor)| factor.saturating_mul(divisor(atom, &env)));
    let bits = i64::from(buffer.dtype.bits());
    steps
        .chain([sum.constant])
        .map(|elements| elements.saturating_mul(bits))
        .filter(|offset| *offset != 0)
        .map(|offset| 1 << offset.trailing_zeros().saturating_sub(3).min(WIDEST.trailing_zeros()))
        .fold(WIDEST.min(buffer.align), u32::min)
}

/// Bytes of `lanes` elements, and what their address is a multiple of: the largest power of two in it.
pub fn byte_size(dtype: DType, lanes: u32) -> u32 {
    let bytes = (dtype.bits() * lanes.max(1) / 8).max(1);
    1 << bytes.trailing_zeros()
}
