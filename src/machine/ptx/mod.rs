//! Runs PTX text on the CPU, without a GPU: what LLVM emitted, not what warploom meant to emit.

mod copies;
mod flow;
mod inst;
mod parse;
mod special;
mod tensor;
mod token;
mod trap;
mod warp;
mod world;
