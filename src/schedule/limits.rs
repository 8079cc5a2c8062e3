//! What a schedule's text may ask for at most, so that no text can exhaust time or memory.

/// Bytes of a schedule's text.
pub const TEXT: usize = 1 << 20;
/// Steps of a schedule.
pub const STEPS: usize = 4096;
/// Words of a step, and names that it makes.
pub const WORDS: usize = 64;
/// Characters of a name.
pub const NAME: usize = 64;
/// The largest number, and the largest product of factors.
pub const NUMBER: i64 = 1 << 40;
/// Nested parentheses.
pub const NESTING: usize = 64;
/// Copies of a body that nested unrolled loops may make together.
pub const UNROLL: i64 = 1 << 16;
/// Loops around a statement.
pub const DEPTH: usize = 64;
/// Loops in a program.
pub const LOOPS: usize = 4096;
/// Operations and loads of a program: each inlining may double an expression.
pub const OPERATIONS: usize = 1 << 14;
