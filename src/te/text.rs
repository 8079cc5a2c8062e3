//! Programs as text: [`parse`] and [`print`], which are each other's inverse on Tensor programs.
//!
#![doc = include_str!("text/programs.md")]

mod builder;
mod lexer;
mod print;
mod reducers;
mod spacing;
mod statement;
mod syntax;
mod value;

pub use print::print;
pub use spacing::Spacing;

use crate::error::{Code, Error, Result};
use crate::ir::Func;
use lexer::{Kind, Token};

/// How a program is written: the grammar, what values are made of, and the lines that call a builder.
pub const GRAMMAR: &str = include_str!("text/programs.md");

/// The words that begin a builder's line.
pub const BUILDERS: [&str; 4] = builder::NAMES;

/// The names of the functions of values.
pub fn functions() -> impl Iterator<Item = &'static str> {
    value::FUNCTIONS.into_iter().map(|(name, _)| name).chain(value::SEVERAL)
}

/// The longest text of a program in bytes.
pub const MAX_TEXT: usize = 1 << 20;

/// Reads a program.
///
/// # Errors
/// `te.syntax`, `te.name`, `te.type`, `te.extent`, `te.index`, `te.limit`, ..; each underlines the place in the text.
pub fn parse(text: &str) -> Result<Func> {
    if text.len() > MAX_TEXT {
        let message = format!("a program of {} bytes; at most {MAX_TEXT} are read", text.len());
        return Err(Error::input(Code::TeLimit, message));
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
fn at(code: Code, span: std::ops::Range<usize>, message: impl Into<String>) -> Error {
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
