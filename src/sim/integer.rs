//! Integer mode: data are integers modulo 2^32, so that every legal schedule is bit-equal to the naive program.
//!
//! What operations mean is in [`crate::ir::integer`]. An index as a datum is the index modulo 2^32. Index arithmetic itself stays exact.

use super::Limits;
use crate::array::Array;
use crate::dtype::{Class, DType};
use crate::error::{Code, Error, Result};
use crate::ir::Buffer;
pub(super) use crate::ir::integer::{bin, conversion, hash, literal, un};

/// The datum of an input element: the same for every stage of a program.
pub(super) fn input(seed: u64, param: usize, element: usize) -> u32 {
    hash(seed ^ 0x5EED, param as u64, element as u64)
}

/// A number as an index: that of its type which is equal to it modulo a power of two.
pub(super) fn index(dtype: DType, a: u32) -> i64 {
    let bits = dtype.bits().min(32);
    let cut = i64::from(a) & ((1 << bits) - 1);
    let negative = dtype.class() == Class::Signed && cut >> (bits - 1) != 0;
    if negative { cut - (1 << bits) } else { cut }
}

/// What the elements of an array can be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Domain {
    /// All numbers.
    All,
    /// Integers from a first one to an end.
    Values(i64, i64),
}

impl Domain {
    /// Of a buffer.
    pub fn of(buffer: &Buffer) -> Domain {
        match buffer.values {
            Some((low, end)) => Domain::Values(low, end),
            None if buffer.dtype == DType::Bool => Domain::Values(0, 2),
            None => Domain::All,
        }
    }

    /// One of them.
    pub fn pick(self, hash: u32) -> u32 {
        match self {
            Domain::All => hash,
            Domain::Values(low, end) => (low + i64::from(hash) % (end - low).max(1)) as u32,
        }
    }
}

/// The arguments of a run in integer mode: an array of u32 for each span, each element a hash of the seed and its place.
pub(super) fn inputs(spans: &[(usize, Domain)], limits: &Limits, seed: u64) -> Result<Vec<Array>> {
    let bytes = spans.iter().try_fold(0u64, |sum, n| sum.checked_add(4 * n.0 as u64));
    if bytes.is_none_or(|n| n > limits.bytes) {
        return Err(Error::input(Code::SimLimit, "the arguments need more memory than the simulator was allowed"));
    }
    let make = |(p, &(n, domain)): (usize, &(usize, Domain))| {
        let mut array = Array::zeros(DType::U32, &[n])?;
        for (i, cell) in array.bytes.chunks_exact_mut(4).enumerate() {
            cell.copy_from_slice(&domain.pick(input(seed, p, i)).to_le_bytes());
        }
        Ok(array)
    };
    spans.iter().enumerate().map(make).collect()
}
