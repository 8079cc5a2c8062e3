//! Programs as text: [`parse`] and [`print`], which are each other's inverse on Tensor programs.
//!
//! ```text
//! program NAME
//! input BUFFER TYPE[EXTENT, ..] [strides [STRIDE, ..]] [align BYTES]
//! [LABEL:] [output] BUFFER[ITERATOR [EXTENT], ..] TYPE [strides ..] [align ..] = [REDUCER(ITERATOR [EXTENT], ..)] VALUE
//! ```
//!
//! Statements end with a line or `;`, `#` starts a comment, and a line goes on inside brackets. LABEL names the block
//! (else it has the buffer's name). An iterator's extent may be left out where the value uses it plainly as an index
//! of a buffer. REDUCER is `sum`, `max` or `min`, and VALUE reaches to the end of the statement.
//!
//! A value is made of literals, buffer elements `A[i, j + 1]`, `+ - * /`, `& | ^ << >> ~`, comparisons,
//! `select(condition, a, b)`, `min(a, b)`, `max(a, b)`, `abs exp exp2 log log2 sqrt rsqrt tanh erf` and conversions
//! by the name of a type, `f32(x)`; `f32(i + 1)` is an index as a number. Operands of an operation have one type; a
//! literal takes the type of its place. Indices are made of iterators, integers, `+ - *`, `//` and `%` (floor, by
//! positive constants), `min` and `max`. Precedence is that of Python.
//!
//! Instead of all that, one line may call a builder:
//!
//! ```text
//! vec_add 1024
//! window_sum 1024
//! gemm 1024x512x2048 f32 NN                      # M x N x K, type, layout
//! gemm 1024x512x2048 f16>f32>f16 NT bias relu    # A and B > sums > C; then epilogues
//! gemm 64x64x64 e4m3*e5m2>f32>f16 NT scale 0.5   # A * B > sums > C
//! batched_gemm 8x64x64x64 f32 NN
//! ```
//!
//! Text of any kind ends in a program or in an error that underlines the place; nesting and sizes are bounded.

mod builder;
mod lexer;
mod print;
mod statement;
mod syntax;
mod value;

pub use print::print;

use crate::error::{Error, Result};
use crate::ir::Func;
use lexer::{Kind, Token};

/// The longest text of a program in bytes.
pub const MAX_TEXT: usize = 1 << 20;

/// Reads a program. Errors (`te.syntax`, `te.name`, `te.type`, `te.extent`, `te.index`, `te.limit`, ..) underline the
/// place in the text.
pub fn parse(text: &str) -> Result<Func> {
    if text.len() > MAX_TEXT {
        let message = format!("a program of {} bytes; at most {MAX_TEXT} are read", text.len());
        return Err(Error::input("te.limit", message));
    }
    parse_tokens(text).map_err(|e| e.text(text))
}

fn parse_tokens(text: &str) -> Result<Func> {
    let tokens = lexer::tokens(text)?;
    let first = tokens.iter().find(|t| t.kind != Kind::Separator);
    match first {
        Some(t) if t.kind == Kind::Name && builder::NAMES.contains(&t.text(text)) => builder::parse(text, t.span.start),
        _ => statement::program(text, &tokens),
    }
}

/// An error at a place of the text.
fn at(code: &str, span: std::ops::Range<usize>, message: impl Into<String>) -> Error {
    Error::input(code, message).label(span, "here")
}

/// Gives an error from a deeper room the place at which it arose, if it has none.
fn placed(error: Error, span: std::ops::Range<usize>) -> Error {
    if error.labels().is_empty() { error.label(span, "here") } else { error }
}

/// The name of a token in messages.
fn shown(text: &str, token: &Token) -> String {
    match token.kind {
        Kind::Separator => "the end of the statement".to_string(),
        Kind::End => "the end of the program".to_string(),
        _ => format!("`{}`", token.text(text).chars().take(40).collect::<String>()),
    }
}

#[cfg(test)]
mod tests;
