//! `transform_layout BUF [i, j] -> [..]`: element `[i, j]` of BUF lies at the mapped index; the shape follows, and every
//! access is rewritten. Loops stay as they are.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: what every access reads and writes, under its new index.
//!
//! ```text
//! X: X[vi, vj] = ..    transform_layout X [i, j] -> [i // 16, j, i % 16]    X: X[vi // 16, vj, vi % 16] = ..
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::{Result, counted};
use crate::ir::print::Node;
use crate::ir::simplify::{self, Env};
use crate::ir::{BufferId, Expr, For, Func, Index, IndexOp, Stmt, Store, Var, visit};
use crate::schedule::refusal::Refusal;
use crate::schedule::{Args, IndexMap, dataflow, digits, find};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "transform_layout",
    about: "Lays a buffer out by an index map, rewriting all accesses.",
    example: "gemm 64x64x64 f32 NN\n\
              target sm_80\n\
              cache_read C B shared -> B_s\n\
              transform_layout B_s [k, j] -> [j, k]",
    signature: &[Parameter::place("buffer", ParamKind::Buffer), Parameter::place("map", ParamKind::Map)],
    requires: &[
        "BUF is not a parameter",
        "the map has an input for each dimension of BUF",
        "BUF's extents are constants",
        "the map is one-to-one from BUF's box, its extents rounded up to multiples of the map's divisors, onto a box that \
         starts at 0",
        "BUF has neither `storage_align` nor `swizzle`, and is not used in a tensorized nest",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let refusal = Refusal::new("transform_layout", func);
    let buffer = find::buffer(func, args.get_word("buffer")?)?;
    let map = args.get_map("map")?;
    let shape = check(refusal, func, buffer, map)?;

    let mut out = func.clone();
    out.buffer_mut(buffer).shape = shape.into_iter().map(Index::Int).collect();
    out.body = visit::rewrite(std::mem::take(&mut out.body), &mut |s| match s {
        Stmt::Block(mut b) => {
            let mut env = Env::new();
            b.iters.iter().for_each(|i| env.bind_loop(i.var, &i.extent));
            let mapped = |at: Vec<Index>| map.apply(&at).iter().map(|i| simplify::simplify(i, &env)).collect();
            b.init = b.init.take().map(|body| rewritten(body, buffer, &mapped));
            b.body = rewritten(std::mem::take(&mut b.body), buffer, &mapped);
            vec![Stmt::Block(b)]
        }
        s => vec![s],
    });
    Ok(out.into())
}

fn rewritten(body: Vec<Stmt>, of: BufferId, mapped: &dyn Fn(Vec<Index>) -> Vec<Index>) -> Vec<Stmt> {
    let body = visit::map_body(body, &mut Index::clone, &mut |e| match e {
        Expr::Load { buffer, indices, lanes } if buffer == of => Expr::Load { buffer, indices: mapped(indices), lanes },
        e => e,
    });
    visit::rewrite(body, &mut |s| match s {
        Stmt::Store(s) if s.buffer == of => vec![Stmt::Store(Store { indices: mapped(s.indices), ..s })],
        s => vec![s],
    })
}

/// Checks everything; the new shape.
fn check(refusal: Refusal, func: &Func, buffer: BufferId, map: &IndexMap) -> Result<Vec<i64>> {
    let b = func.buffer(buffer);
    let name = &b.name;
    let this = [(Node::Buffer(buffer), "this buffer")];
    if func.params.contains(&buffer) {
        let error = refusal.broken(1, format!("{name} is a parameter: its layout is the caller's"), &this);
        return Err(error.help(format!("cache_read or cache_write {name}, and transform the copy")));
    }
    if map.inputs.len() != b.shape.len() {
        let message = format!(
            "{name} has {}, the map {}",
            counted(b.shape.len(), "dimension"),
            counted(map.inputs.len(), "input")
        );
        return Err(refusal.broken(2, message, &this));
    }
    let Some(extents) = b.const_shape() else {
        return Err(refusal.broken(3, format!("the extents of {name} are not constants"), &this));
    };
    let Some(shape) = image_shape(map, &extents).or_else(|| image_shape(map, &rounded_up(map, &extents)?)) else {
        let message = format!("`{map}` is not one-to-one from {name}{extents:?} onto a box from 0");
        return Err(refusal
            .broken(4, message, &this)
            .help("every part of an index must have its place, as in [i // 4, i % 4]"));
    };
    let uses = |l: &&For| {
        let used =
            !dataflow::readers_in(&l.body, buffer).is_empty() || !dataflow::writers_in(&l.body, buffer).is_empty();
        l.tensorize.is_some() && used
    };
    let tensorized = visit::loops(&func.body).into_iter().find(uses);
    if b.storage_align.is_some() || b.swizzle.is_some() || tensorized.is_some() {
        let message = format!("{name} has a storage_align or swizzle, or is used in a tensorized nest");
        return Err(refusal.broken(5, message, &this).help("transform_layout before these"));
    }
    Ok(shape)
}

/// The extents, each as the next multiple of what the map divides its index by: what follows BUF's own is never touched.
fn rounded_up(map: &IndexMap, extents: &[i64]) -> Option<Vec<i64>> {
    let mut divisors = vec![1i64; extents.len()];
    map.outputs.iter().try_for_each(|i| divided(i, &mut divisors))?;
    extents.iter().zip(divisors).map(|(e, d)| e.checked_add(d - 1).map(|up| up / d * d)).collect()
}

fn divided(index: &Index, divisors: &mut [i64]) -> Option<()> {
    let Index::Bin(op, a, b) = index else { return Some(()) };
    if let (IndexOp::FloorDiv, Index::Var(v), Index::Int(by)) = (op, a.as_ref(), b.as_ref())
        && let Some(divisor) = divisors.get_mut(v.0 as usize).filter(|_| *by > 0)
    {
        *divisor = (*divisor / simplify::gcd(*divisor, *by)).checked_mul(*by)?;
    }
    divided(a, divisors)?;
    divided(b, divisors)
}

/// The shape of the map's image, if it is a box from 0 that is reached one-to-one.
pub(super) fn image_shape(map: &IndexMap, extents: &[i64]) -> Option<Vec<i64>> {
    let vars: Vec<(Var, i64)> = (0u32..).map(Var).zip(extents.iter().copied()).collect();
    let mut env = Env::new();
    vars.iter().for_each(|(v, e)| env.bind(*v, 0, e - 1));
    let mut shape = Vec::new();
    for output in &map.outputs {
        let (min, max) = simplify::bounds(output, &env)?;
        shape.push(max.checked_add(1).filter(|_| min == 0)?);
    }
    let count = |s: &[i64]| s.iter().try_fold(1i64, |n, e| n.checked_mul(*e));
    let image = digits::image(&map.outputs, &vars);
    let all = vars.iter().all(|(v, e)| *e == 1 || image.mentioned.contains(v));
    (image.injective && image.dense && all && count(&shape)? == count(extents)?).then_some(shape)
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{program, refuses, refuses_on, steps, tensorize};

    const CHAIN: &str = "program chain
        input A f32[8, 6]
        X: X[i 8, j 6] f32 = A[i, j] * 2.0
        Y: output Y[i 8, j 6] f32 = X[i, j] + 1.0";

    #[test]
    fn accesses_follow_the_map() {
        let text = steps(CHAIN, "transform_layout X [i, j] -> [j, i // 4, i % 4]");
        assert!(
            text.contains("X: global f32[6, 2, 4]") && text.contains("X[vj, vi // 4, vi % 4] = A[vi, vj]*2.0"),
            "{text}"
        );
        steps(CHAIN, "transform_layout X [i, j] -> [i * 6 + j]");
        // 8 rows in threes: the last row of the last three is never touched.
        let text = steps(CHAIN, "transform_layout X [i, j] -> [i // 3, i % 3, j]");
        assert!(text.contains("X: global f32[3, 3, 6]"), "{text}");
    }

    #[test]
    fn refusals() {
        const NAME: &str = "transform_layout.";
        let no = |text: &str, n: u32, message: &str| refuses(CHAIN, text, &format!("{NAME}{n}"), message);
        no("transform_layout A [i, j] -> [j, i]", 1, "A is a parameter");
        no("transform_layout X [i] -> [i]", 2, "X has 2 dimensions, the map 1 input");
        let mut func = program(CHAIN);
        let x = func.find_buffer("X").unwrap();
        func.buffer_mut(x).shape[0] = crate::ir::Index::Var(crate::ir::Var(0));
        refuses_on(
            &func,
            "transform_layout X [i, j] -> [j, i]",
            "transform_layout.3",
            "the extents of X are not constants",
        );
        for map in ["[i]", "[i, i]", "[i // 4, j]", "[i + 1, j]", "[i, j * 2]", "[i // 3, i % 4, j]", "[i * 6 - j]"] {
            no(&format!("transform_layout X [i, j] -> {map}"), 4, &format!("`[i, j] -> {}", &map[..2]));
        }
        let used = "X has a storage_align or swizzle, or is used in a tensorized nest";
        no("set_scope X shared; storage_align X 0 8 4; transform_layout X [i, j] -> [j, i]", 5, used);
        let mut func = program(CHAIN);
        tensorize(&mut func, "Y_j");
        refuses_on(&func, "transform_layout X [i, j] -> [j, i]", "transform_layout.5", used);
    }
}
