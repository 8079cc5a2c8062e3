//! `set_scope BUFFER SCOPE`: where a buffer lives and which unit owns a copy of it.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: the text and its meaning. Whether values still reach the units that read them is asked of the whole program,
//! by its verifier.
//!
//! ```text
//! alloc acc: global        set_scope acc fragment       alloc acc: fragment
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::{Code, Error, Result};
use crate::ir::print::Node;
use crate::ir::{Func, Scope};
use crate::schedule::Args;
use crate::schedule::find::{buffer, refuse};

/// The names of the scopes.
pub const SCOPES: &[&str] = &["global", "cluster", "shared", "fragment", "local"];

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "set_scope",
    about: "Chooses the memory that holds a buffer.",
    example: "gemm 64x64x64 f32 NN\n\
              target sm_80\n\
              cache_write C C global -> C_w\n\
              set_scope C_w local",
    signature: &[Parameter::place("buffer", ParamKind::Buffer), Parameter::place("scope", ParamKind::Choice(SCOPES))],
    requires: &[
        "the buffer is not a parameter",
        "a swizzled buffer stays shared",
        "an aligned buffer becomes no fragment, whose elements have no addresses",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let id = buffer(func, args.get_word("buffer")?)?;
    let word = args.get_word("scope")?;
    let scope = Scope::parse(word)
        .ok_or_else(|| Error::input(Code::StepWord, format!("`{word}` is not a scope")).naming(word))?;
    let name = &func.buffer(id).name;
    let no = |n, message: String| refuse("set_scope", n, message, func, &[(Node::Buffer(id), "this buffer")]);
    if func.params.contains(&id) {
        let message = format!("buffer `{name}` is a parameter, which is global");
        return Err(no(1, message).help(format!("cache_read or cache_write makes a {word} copy")));
    }
    if func.buffer(id).swizzle.is_some() && scope != Scope::Shared {
        return Err(no(2, format!("buffer `{name}` is swizzled, which only shared memory is"))
            .help("remove swizzle, or keep the buffer in shared memory"));
    }
    if func.buffer(id).storage_align.is_some() && scope == Scope::Fragment {
        let message =
            format!("the rows of buffer `{name}` are aligned, and the elements of a fragment have no addresses");
        return Err(no(3, message).help("remove storage_align"));
    }
    let mut out = func.clone();
    out.buffer_mut(id).scope = scope;
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use crate::ir::Scope;
    use crate::schedule::testing::{apply, refuses};

    #[test]
    fn the_scope_is_set() {
        let func = apply("gemm 4x4x4 f16>f32>f16 NT", "set_scope acc local").unwrap();
        assert_eq!(func.buffers.iter().find(|b| b.name == "acc").map(|b| b.scope), Some(Scope::Local));
    }

    #[test]
    fn refusals() {
        let gemm = "gemm 4x4x4 f16>f32>f16 NT";
        let swizzled = "set_scope acc shared; swizzle acc 32; set_scope acc local";
        refuses(gemm, swizzled, "set_scope.2", "buffer `acc` is swizzled, which only shared memory is");
        let aligned = "storage_align acc 0 8 5; set_scope acc fragment";
        refuses(
            gemm,
            aligned,
            "set_scope.3",
            "the rows of buffer `acc` are aligned, and the elements of a fragment have no addresses",
        );
        refuses(gemm, "set_scope A shared", "set_scope.1", "buffer `A` is a parameter, which is global");
    }
}
