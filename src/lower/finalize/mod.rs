//! What code generation would otherwise decide: after these passes the program says how each loop, address and hint becomes code.

pub mod columns;
pub mod conditions;
pub mod counters;
pub mod descriptors;
pub mod launch;
pub mod permute;
pub mod size;
pub mod unroll;
pub mod zigzag;
