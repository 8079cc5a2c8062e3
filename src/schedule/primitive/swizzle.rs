//! `swizzle BUFFERS.. 16|32|64|128`: rows are cut into panels of that many bytes, and the 16-byte chunks of a panel's row are
//! stored permuted by the row's number, so that columns meet no bank twice (PTX ISA, shared memory layout of tensor maps).
//! Panels of 16 bytes have one chunk a row and nothing to permute: the layout that wgmma calls unswizzled. Of rows longer than a panel the last
//! panel may be in use in part.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: the text and its meaning. A placement.
//!
//! ```text
//! A_s: shared f16[128, 64]    swizzle A_s 128           A_s: shared f16[128, 64] swizzle 128
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::{Code, Error, Result};
use crate::ir::print::Node;
use crate::ir::{BufferId, Func, Scope};
use crate::schedule::Args;
use crate::schedule::find::{buffer, refuse};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "swizzle",
    about: "Permutes the 16-byte chunks of rows in shared memory.",
    example: "gemm 64x64x64 f16>f32>f32 NT\n\
              target sm_80\n\
              cache_read C A shared -> A_s\n\
              swizzle A_s 128",
    signature: &[
        Parameter::place("buffers", ParamKind::Buffers),
        Parameter::place("width", ParamKind::Choice(&["16", "32", "64", "128"])),
    ],
    requires: &[
        "no buffer is a parameter",
        "every buffer is shared",
        "no buffer is aligned by storage_align or swizzled yet",
        "every buffer has at least two dimensions",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let word = args.get_word("width")?;
    let width: u32 =
        word.parse().map_err(|_| Error::input(Code::StepWord, format!("`{word}` is not a width")).naming(word))?;
    let mut out = func.clone();
    for name in args.get_words("buffers")? {
        let id = buffer(func, name)?;
        check(&out, id)?;
        out.buffer_mut(id).swizzle = Some(width);
    }
    Ok(out.into())
}

fn check(func: &Func, id: BufferId) -> Result<()> {
    let b = func.buffer(id);
    let no = |n, message: String| refuse("swizzle", n, message, func, &[(Node::Buffer(id), "this buffer")]);
    if func.params.contains(&id) {
        return Err(no(1, format!("the layout of parameter `{}` is the caller's", b.name))
            .help("cache_read makes a shared copy, which can be swizzled"));
    }
    if b.scope != Scope::Shared {
        return Err(no(2, format!("buffer `{}` is {}, not shared", b.name, b.scope.name())).help("set_scope first"));
    }
    if b.storage_align.is_some() || b.swizzle.is_some() {
        return Err(no(3, format!("buffer `{}` is already aligned or swizzled", b.name))
            .help("either storage_align or swizzle, once"));
    }
    if b.shape.len() < 2 {
        return Err(no(4, format!("buffer `{}` has no rows", b.name))
            .help("it takes two dimensions: transform_layout can make them"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{apply, refuses};

    const GEMM: &str = "gemm 64x64x64 f16>f32>f16 NT";

    #[test]
    fn several_buffers_at_once() {
        let func =
            apply(GEMM, "cache_read mma A shared -> A_s; cache_read mma B shared -> B_s; swizzle A_s B_s 64").unwrap();
        let widths: Vec<_> = func.buffers.iter().filter_map(|b| b.swizzle).collect();
        assert_eq!(widths, [64, 64]);
    }

    #[test]
    fn refusals() {
        refuses(GEMM, "swizzle A 128", "swizzle.1", "the layout of parameter `A` is the caller's");
        refuses(GEMM, "swizzle acc 128", "swizzle.2", "buffer `acc` is global, not shared");
        let twice = "set_scope acc shared; swizzle acc 128; swizzle acc 128";
        refuses(GEMM, twice, "swizzle.3", "buffer `acc` is already aligned or swizzled");
        let one = "cache_read C A shared -> A_s; swizzle A_s 32";
        refuses("vec_add 64", one, "swizzle.4", "buffer `A_s` has no rows");
        refuses(GEMM, "swizzle acc 96", "step.word", "`96` is not one of 16, 32, 64, 128");
    }
}
