//! `annotate LOOP KEY VALUE`: a hint from the closed list of keys.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! `unroll_limit` says how many copies of the body a serial or unrolled loop may come to at most. A loop that holds a barrier or
//! another loop stays one copy unless it is asked for; then it has as many as divide it, up to 8.
//!
//! Preserves: the text and its meaning. A placement.
//!
//! ```text
//! for k in 0..8    annotate k unroll_limit 4    for k in 0..8 unroll_limit=4
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::{Code, Error, Result};
use crate::ir::print::Node;
use crate::ir::{Block, Func, IterKind, Note, Var, visit};
use crate::schedule::find::{loop_, refuse};
use crate::schedule::{Args, limits};

const KEYS: &[&str] = &["unroll_limit", "l2_hint", "l2_promotion", "zigzag", "spread"];

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "annotate",
    about: "Attaches a hint to a loop.",
    example: "vec_add 1024\n\
              target sm_80\n\
              split i ? 128 4 -> i_0 i_1 i_2\n\
              bind i_0 blockIdx.x\n\
              bind i_1 threadIdx.x\n\
              annotate i_2 unroll_limit 2",
    signature: &[
        Parameter::place("loop", ParamKind::Loop),
        Parameter::place("key", ParamKind::Choice(KEYS)),
        Parameter::place("value", ParamKind::Int),
    ],
    requires: &[
        "the value is in the key's range: unroll_limit 1..=65536, l2_hint 0..=2, l2_promotion 0, 64, 128 or 256, zigzag 1, \
         spread 1",
        "the loop does not have the key yet",
        "for zigzag: no block inside sums over the loop, so that its iterations may run in any order",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let l = loop_(func, args.get_word("loop")?)?;
    let (word, value) = (args.get_word("key")?, args.get_int("value")?);
    let key =
        Note::parse(word).ok_or_else(|| Error::input(Code::StepWord, format!("`{word}` is not a key")).naming(word))?;
    let no = |n, message: String| refuse("annotate", n, message, func, &[(Node::Loop(l.var), "this loop")]);
    let fits = match key {
        Note::UnrollLimit => (1..=limits::UNROLL).contains(&value),
        Note::L2Hint => (0..=2).contains(&value),
        Note::L2Promotion => matches!(value, 0 | 64 | 128 | 256),
        Note::Zigzag | Note::Spread => value == 1,
    };
    if !fits {
        let range = match key {
            Note::UnrollLimit => "1 to 65536",
            Note::L2Hint => "0, 1 or 2",
            Note::L2Promotion => "0 (none), 64, 128 or 256",
            Note::Zigzag | Note::Spread => "1",
        };
        return Err(no(1, format!("{value} is not in the range of {word}")).help(format!("{word} takes {range}")));
    }
    if let Some(old) = l.notes.get(&key) {
        return Err(no(2, format!("loop `{}` already has {word} {old}", func.var_name(l.var))));
    }
    if key == Note::Zigzag
        && let Some(block) = visit::blocks(&l.body).into_iter().find(|b| sums_over(b, l.var))
    {
        let (l, b) = (func.var_name(l.var), func.block_name(block.name));
        let message = format!("block `{b}` sums over loop `{l}`: its terms would be added in another order");
        return Err(no(3, message).help("annotate a loop over elements of the result"));
    }
    let (var, mut out) = (l.var, func.clone());
    visit::change_loop(&mut out.body, var, &mut |l| {
        l.notes.insert(key, value);
    });
    Ok(out.into())
}

fn sums_over(block: &Block, var: Var) -> bool {
    block.iters.iter().any(|i| i.kind == IterKind::Reduce && i.binding.mentions(var))
}

#[cfg(test)]
mod tests {
    use super::KEYS;
    use crate::ir::Note;
    use crate::schedule::testing::{apply, refuses};

    #[test]
    fn the_keys_are_those_of_the_ir() {
        assert_eq!(KEYS, Note::ALL.map(Note::name));
    }

    #[test]
    fn every_key_is_kept() {
        let func = apply("vec_add 8", "annotate i l2_hint 2; annotate i unroll_limit 4").unwrap();
        let notes: Vec<_> = func.find_loop("i").unwrap().notes.iter().map(|(k, v)| (k.name(), *v)).collect();
        assert_eq!(notes, [("unroll_limit", 4), ("l2_hint", 2)]);
    }

    #[test]
    fn refusals() {
        refuses("vec_add 8", "annotate i l2_promotion 32", "annotate.1", "32 is not in the range of l2_promotion");
        let twice = "annotate i l2_hint 1; annotate i l2_hint 0";
        refuses("vec_add 8", twice, "annotate.2", "loop `i` already has l2_hint 1");
        let sum = "block `C` sums over loop `k`: its terms would be added in another order";
        refuses("gemm 8x8x8 f32 NN", "annotate k zigzag 1", "annotate.3", sum);
        refuses("vec_add 8", "annotate i l2_hnit 1", "step.word", "`l2_hnit` is not one of unroll_limit");
    }
}
