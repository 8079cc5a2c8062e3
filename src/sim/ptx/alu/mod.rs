//! Arithmetic of single lanes: bits in, bits out. Values are cut to their width; bits above it are zero.

pub(in crate::sim::ptx) mod convert;
pub(in crate::sim::ptx) mod float;
pub(in crate::sim::ptx) mod int;
pub(in crate::sim::ptx) mod round;

/// One operand.
pub(in crate::sim::ptx) type Map1 = fn(u64) -> u64;
/// Two operands.
pub(in crate::sim::ptx) type Map2 = fn(u64, u64) -> u64;
/// Three operands.
pub(in crate::sim::ptx) type Map3 = fn(u64, u64, u64) -> u64;
/// Four operands.
pub(in crate::sim::ptx) type Map4 = fn(u64, u64, u64, u64) -> u64;
/// A comparison.
pub(in crate::sim::ptx) type Compare = fn(u64, u64) -> bool;
