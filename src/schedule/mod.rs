//! The schedule language: steps, each a checked function from a program to a program.
//!
//! A Scheduled program has one meaning: run its text from top to bottom. *Rewrites* change the text and keep that
//! meaning; *placements* attach how a loop, stage or buffer is to run and change none. [`primitive::ALL`] is the
//! vocabulary, [`parse()`] reads steps, [`apply`] and [`apply_all`] run them, and [`reference()`] tabulates them.

pub mod analyze;
mod apply;
mod copy;
mod dataflow;
mod digits;
pub mod find;
mod index_map;
pub mod limits;
mod nest;
mod parse;
mod placed;
pub mod primitive;
mod reference;
mod refusal;
mod step;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod worked_example;

pub use apply::{apply, apply_all, complete, complete_all};
pub use index_map::IndexMap;
pub use parse::parse;
pub use primitive::{Applied, Form, Kind, Parameter, Primitive};
pub use reference::reference;
pub use step::{Args, Step, Value};

/// Whether a word can name a loop, block, buffer or role.
pub fn is_name(word: &str) -> bool {
    let mut chars = word.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && word.len() <= limits::NAME
}
