//! Launchers: source text that loads compiled kernels and launches them, for a program that has no compiler in it.
//!
//! [`c`] writes a header and a source for the driver API, [`rust_cudarc`] a module for the crate cudarc, and [`rust_warploom`] one for
//! the runtime of this crate. All three have the same parts: *load* finds the device, *find* (in Rust `Kernels::variant`) chooses the
//! kernels for the shapes of the arguments and loads their module at the first use, *workspace* says how many bytes the caller allocates,
//! *dispatch* finds and launches, and *launch* does nothing but the driver's launches: it allocates nothing and waits for nothing, so that a graph can record it.
//!
//! A launcher is tables of what the compiler knows and a fixed routine that reads them. The routine is a file beside this one; words
//! between `@` in it are replaced.

mod c;
mod cudarc;
mod describe;
mod map;
mod names;
mod own;
mod plan;
mod rust;

pub use c::c;
pub use cudarc::rust_cudarc;
pub use own::rust_warploom;

use crate::kernel::Kernels;

/// A compiled program for one chip, and one set of shapes or a range of its dynamic sizes.
#[derive(Debug, Clone, Copy)]
pub struct Unit<'a> {
    /// The compiled program, with its machine code if it has any. Units of one launcher have the same arguments but for their shapes.
    pub kernels: &'a Kernels,
    /// The name of the file with its PTX, beside the launcher: what a launcher in Rust includes.
    pub ptx: &'a str,
    /// The name of the file with its machine code, if it has any that the launcher is to hold.
    pub cubin: Option<&'a str>,
}

/// The two files of a launcher in C.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CFiles {
    /// The content of `NAME.h`.
    pub header: String,
    /// The content of `NAME.c`.
    pub source: String,
}

/// Replaces each `@WORD@` of a template by its text.
fn filled(template: &str, words: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('@') {
        out += before;
        let found = words.iter().find_map(|(word, text)| Some((after.strip_prefix(word)?.strip_prefix('@')?, text)));
        match found {
            Some((after, text)) => {
                out += text;
                rest = after;
            }
            None => {
                out.push('@');
                rest = after;
            }
        }
    }
    out + rest
}
