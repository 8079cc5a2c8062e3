//! The schedule language: steps, each a checked function from a program to a program.
//!
//! A Scheduled program has one meaning: run its text from top to bottom. *Rewrites* change the text and keep that
//! meaning; *placements* attach how a loop, stage or buffer is to run and change none. [`primitive::ALL`] is the
//! vocabulary, [`parse()`] reads steps, [`Steps`] builds them, [`apply`] and [`apply_all`] run them, and [`reference()`] tabulates
//! them.
//!
//! # The text
//!
//! One step a line or separated by `;`, `#` begins a comment. Names of what a step makes stand after `->`; where they
//! are left out, [`complete`] yields the step with the names that it made, which replays to the identical program.
//! What a step takes is its signature ([`Parameter`]); parser, printer and reference table know nothing else.
//! [`limits`] bound what a text can ask for.
//!
//! # Checks
//!
//! A step checks all its requirements first and is refused with the code `primitive.N` of the first broken one, the loops,
//! blocks and buffers concerned underlined. After every step the placements that stand are asked again, so no rewrite
//! takes the ground from under one. In debug builds the program must besides be well formed after every step.
//!
//! # Beside TVM
//!
//! The vocabulary is TVM's where TVM has it (apache/tvm, `src/s_tir/schedule/primitive.h` states its requirements).
//! All loops here start at 0, and all blocks of a body are in one scope, so what TVM asks about either holds.
//!
//! | primitive | held beside TVM's requirements | why |
//! |---|---|---|
//! | split | stricter: no placement of any kind, constant extent, factors that cover it | TVM refuses annotations and thread bindings, but splits unrolled and vectorized loops, whose kind is then lost |
//! | fuse | stricter: as split | as split |
//! | reorder | same chain, dependence and iterator conditions; vectorized, pipelined and tensorized loops stay where they are | TVM asks for affine bindings; here the two things that order can break are shown directly: an init that comes late, and an element that is summed twice |
//! | bind | stricter: not bound yet, one extent per axis and nest, no reduction loop, no element summed by two iterations | TVM rebinds silently, leaves extents to lowering, has switched its affine check off, and takes a reduction loop on threadIdx as a cross-thread reduction; here rfactor comes first |
//! | unroll | stricter: serial, constant extent, a bounded number of copies | TVM requires nothing |
//! | vectorize | stricter: innermost, constant extent up to 64 | TVM vectorizes any loop that is not reduced over |
//! | cache_read, cache_write | same, and writers must precede, in boxes without holes | a copy of a box with holes would read what was never written |
//! | compute_at | same, and nothing that is read may change on the way | TVM relies on a scope's stage-pipeline property for it |
//! | reverse_compute_at | same, and the producers must have finished the element | as compute_at; TVM checks region cover only |
//! | compute_inline, reverse_compute_inline | same; placed loops must not vanish | a placement is never dropped in silence |
//! | decompose_reduction | same, and the init must have come first and once | as reorder |
//! | rfactor | same; +, *, min and max with their neutral inits | TVM matches registered reducers |
//! | set_scope | same; a swizzled buffer stays shared | |
//! | storage_align | stricter: not the last dimension, offset below factor, once | elements of a row stay contiguous, which vector accesses need |
//! | transform_layout | same; what rounding up to the map's divisors adds is never touched | padding would need a value to pad with |
//! | pad (pad_einsum) | wider: any sum, product, minimum or maximum, and blocks that do not reduce; loops are named, others stay | TVM takes products of buffer accesses alone and pads every iterator |
//! | annotate | stricter: a closed list of keys with ranges, each once | TVM takes any key and value |
//! | tensorize | same meaning check, done on the row's program in te's text; it stays a placement, not a rewrite | the nest remains its own meaning, for verifier and simulator |
//! | transform_block_layout | stricter: serial loops of spatial iterators, one-to-one onto a box; loops that the map does not name stay | TVM maps all iterators of the block |
//!
//! The others (promote, split_k, skew, swizzle, copy_with, pipeline, specialize, rasterize, launch) have no counterpart there with checks of its own.

#[doc(hidden)]
pub mod analyze;
mod apply;
mod constant;
mod copy;
mod dataflow;
mod digits;
mod factor;
#[doc(hidden)]
pub mod find;
mod index_map;
#[doc(hidden)]
pub mod limits;
mod members;
mod nest;
mod parse;
mod placed;
#[doc(hidden)]
pub mod primitive;
mod reference;
mod refusal;
mod regroup;
mod step;
mod steps;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod worked_example_tests;

pub use apply::{apply, apply_all, complete, complete_all};
pub use index_map::IndexMap;
pub use parse::parse;
pub use primitive::{Applied, Form, ParamKind, Parameter, Primitive};
#[doc(hidden)]
pub use reference::RECOMMENDED;
pub use reference::{reference, requirement};
pub use step::{Args, Step, Value};
pub use steps::Steps;

/// The statement of a `.loom` text that the parser replaces by recommended steps.
pub(crate) const RECOMMEND: &str = "recommend";

/// Whether a word can name a loop, block, buffer or role.
pub fn is_name(word: &str) -> bool {
    let mut chars = word.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && word.len() <= limits::NAME
}
