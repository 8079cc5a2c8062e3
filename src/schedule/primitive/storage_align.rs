//! `storage_align BUFFER DIM FACTOR OFFSET`: pads rows so that the stride of a dimension is `FACTOR * n + OFFSET` elements,
//! which keeps columns from meeting in one bank.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: the text and its meaning. A placement.
//!
//! ```text
//! A_s: shared f32[64, 32]  storage_align A_s 0 32 4     its rows begin 36 elements apart
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::Result;
use crate::ir::print::Node;
use crate::ir::{Func, Scope, StorageAlign, layout};
use crate::schedule::Args;
use crate::schedule::find::{buffer, refuse};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "storage_align",
    about: "Pads rows: the stride of dimension DIM becomes FACTOR*n + OFFSET elements.",
    example: "gemm 64x64x64 f32 NN\n\
              target sm_80\n\
              cache_read C A shared -> A_s\n\
              storage_align A_s 0 32 1",
    signature: &[
        Parameter::place("buffer", ParamKind::Buffer),
        Parameter::place("dim", ParamKind::Int),
        Parameter::place("factor", ParamKind::Int),
        Parameter::place("offset", ParamKind::Int),
    ],
    requires: &[
        "the buffer is not a parameter",
        "the dimension exists and is not the last, whose elements stay adjacent",
        "the factor is positive and the offset at least 0 and below it",
        "the buffer is neither aligned nor swizzled yet",
        "the padded buffer's size is still a number",
        "the buffer is no fragment, whose elements have no addresses",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let id = buffer(func, args.get_word("buffer")?)?;
    let (dim, factor, offset) = (args.get_int("dim")?, args.get_int("factor")?, args.get_int("offset")?);
    let (name, rank) = (&func.buffer(id).name, func.buffer(id).shape.len());
    let no = |n, message: String| refuse("storage_align", n, message, func, &[(Node::Buffer(id), "this buffer")]);
    if func.params.contains(&id) {
        return Err(no(1, format!("the strides of `{name}` are the caller's")));
    }
    let Some(dim) = usize::try_from(dim).ok().filter(|d| d + 1 < rank) else {
        return Err(no(2, format!("dimension {dim} of `{name}`, which has {rank}, cannot be padded")).help(
            match rank {
                0 | 1 => format!("`{name}` has no rows to pad"),
                _ => format!("dimensions 0 to {}: elements of a row stay adjacent", rank - 2),
            },
        ));
    };
    if factor <= 0 || offset < 0 || offset >= factor {
        return Err(no(3, format!("offset {offset} is not in 0..{factor}")));
    }
    if func.buffer(id).storage_align.is_some() || func.buffer(id).swizzle.is_some() {
        return Err(no(4, format!("buffer `{name}` is already aligned or swizzled")));
    }
    if func.buffer(id).scope == Scope::Fragment {
        return Err(no(6, format!("`{name}` is a fragment, whose elements have no addresses")));
    }
    let mut out = func.clone();
    out.buffer_mut(id).storage_align = Some(StorageAlign { dim, factor, offset });
    if layout::span(out.buffer(id)).is_none() {
        return Err(no(5, format!("rows of `{name}` that are {factor}*n + {offset} elements apart are too large")));
    }
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use crate::ir::layout;
    use crate::schedule::testing::{apply, refuses};

    const GEMM: &str = "gemm 4x8x4 f16>f32>f16 NT";

    #[test]
    fn rows_move_apart() {
        let func = apply(GEMM, "storage_align acc 0 8 3").unwrap();
        let acc = func.buffers.iter().find(|b| b.name == "acc").unwrap();
        assert_eq!(layout::strides(acc), Some(vec![11, 1]));
    }

    #[test]
    fn refusals() {
        refuses(GEMM, "storage_align A 0 8 0", "storage_align.1", "the strides of `A` are the caller's");
        refuses(
            GEMM,
            "storage_align acc 1 8 0",
            "storage_align.2",
            "dimension 1 of `acc`, which has 2, cannot be padded",
        );
        refuses(GEMM, "storage_align acc -1 8 0", "storage_align.2", "dimension -1 of `acc`");
        refuses(GEMM, "storage_align acc 0 8 8", "storage_align.3", "offset 8 is not in 0..8");
        let twice = "storage_align acc 0 8 1; storage_align acc 0 8 1";
        refuses(GEMM, twice, "storage_align.4", "buffer `acc` is already aligned or swizzled");
        let fragment = "set_scope acc fragment; storage_align acc 0 8 1";
        refuses(GEMM, fragment, "storage_align.6", "`acc` is a fragment, whose elements have no addresses");
        let huge = "storage_align acc 0 1099511627776 1099511627775";
        assert!(apply(GEMM, huge).is_ok());
        let large = "batched_gemm 256x65536x4x4 f16>f32>f16 NT";
        let far = "storage_align acc 1 1099511627776 1";
        refuses(large, far, "storage_align.5", "rows of `acc` that are 1099511627776*n + 1 elements apart");
    }
}
