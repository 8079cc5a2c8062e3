//! Arithmetic of single lanes: bits in, bits out. Values are cut to their width; bits above it are zero.

pub(in crate::machine::ptx) mod convert;
pub(in crate::machine::ptx) mod float;
pub(in crate::machine::ptx) mod int;
pub(in crate::machine::ptx) mod round;

/// One operand.
pub(in crate::machine::ptx) type Map1 = fn(u64) -> u64;
/// Two operands.
pub(in crate::machine::ptx) type Map2 = fn(u64, u64) -> u64;
/// Three operands.
pub(in crate::machine::ptx) type Map3 = fn(u64, u64, u64) -> u64;
/// Four operands.
pub(in crate::machine::ptx) type Map4 = fn(u64, u64, u64, u64) -> u64;
/// A comparison.
pub(in crate::machine::ptx) type Compare = fn(u64, u64) -> bool;
