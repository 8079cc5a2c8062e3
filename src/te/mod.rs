//! What to compute: placeholders, labelled blocks over naive serial nests, and ready-made programs.
//!
//! A program is built through [`Program`], by a builder ([`vec_add`], [`window_sum`], [`gemm`], [`batched_gemm`]), or
//! from text with [`parse`]; all three come through [`Program::compute`], so they agree on every name:
//!
//! - the loops of a block are named as its iterators (`i`, `j`, `k`), or `LABEL_i` where an earlier block has a loop `i`;
//! - the iterators inside a block are `vi`, `vj`, `vk`;
//! - parameters are the inputs, then the outputs, each in the order of their declaration.
//!
//! [`Known`] recognises what a builder made, so that it can be made again at another size.
//!
//! The result is a [`crate::ir::Func`] of stage Tensor that passes [`crate::ir::verify`].
//!
//! # Programs as text
//!
//! What [`parse`] reads and [`print()`] prints; `warploom explain --programs` says the same.
//!
#![doc = include_str!("text/programs.md")]

mod block_scales;
mod build;
mod dynamic;
mod epilogue;
mod known;
mod operations;
mod program;
mod several;
mod text;

pub use build::{GemmSpec, Layout, SCALE_BLOCK, batched_gemm, gemm, gemm_with, vec_add, window_sum};
pub use dynamic::SizeId;
pub use epilogue::Epilogue;
pub use known::Known;
pub use operations::operations;
pub use program::{MAX_BLOCKS, MAX_ELEMENTS, MAX_RANK, Program, Reducer, Stage, is_name};
pub use several::{Combine, Several, Target};
#[doc(hidden)]
pub use text::{BUILDERS, Spacing, functions};
pub use text::{GRAMMAR, MAX_TEXT, parse, print};
