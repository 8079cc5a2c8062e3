//! The order in which a program sums: how many terms each element adds, in which order, and how many an instruction adds at once.
//!
//! A floating-point sum depends on it. Two schedules whose sentences differ in rows and columns of instructions alone give the same bits.

use crate::ir::reduction::{Combiner, Reduction};
use crate::ir::{Axis, BinOp, Block, For, Func, Index, Iter, IterKind, Note, Var, visit};

/// One sentence about all sums of a scheduled program, in the order in which they run; `None` where nothing is summed.
pub fn sums(func: &Func) -> Option<String> {
    let blocks = visit::blocks(&func.body);
    let all: Vec<String> = blocks.into_iter().filter_map(|block| sum(func, block)).collect();
    (!all.is_empty()).then(|| all.join("; then "))
}

/// What a block says of its sum, if it has one.
fn sum(func: &Func, block: &Block) -> Option<String> {
    let reduction = Reduction::of(func, block)?;
    let adds = |c: &Combiner| !matches!(c, Combiner::Op(op) if *op != BinOp::Add);
    let reduced: Vec<&Iter> = block.iters.iter().filter(|i| i.kind == IterKind::Reduce).collect();
    if reduced.is_empty() || !reduction.combiners.iter().any(adds) {
        return None;
    }
    let around = visit::loops_around(&func.body, block.name)?;
    let reduces = |l: &&&For| l.defines().iter().any(|(v, _)| reduced.iter().any(|i| i.binding.mentions(*v)));
    let loops: Vec<&For> = around.iter().filter(reduces).copied().collect();
    let (threads, sequential): (Vec<&For>, Vec<&For>) = loops.into_iter().partition(|l| l.axis().is_some());
    let extent = |all: &[&For]| all.iter().try_fold(1i64, |n, l| n.checked_mul(l.extent.as_int()?));
    let [terms, lanes] = [extent(&sequential)?, extent(&threads)?];
    let instruction = around.iter().find_map(|l| l.tensorize.as_ref());
    let is_inside = |l: &&For| instruction.is_some_and(|t| t.dims.iter().any(|(_, v)| *v == l.var));
    let (inside, outside): (Vec<&For>, Vec<&For>) = sequential.into_iter().partition(is_inside);
    let at_once = match (instruction, extent(&inside)?) {
        (Some(t), n) => format!("{n} at a time by {}", t.row),
        (None, _) => "one at a time".to_string(),
    };
    let order = order(func, &reduced, &outside);
    let name = func.block_name(block.name);
    let each = if terms == 1 { "one term".to_string() } else { format!("{terms} terms {order}, {at_once}") };
    let units = if threads.iter().all(|l| l.axis() == Some(Axis::Cluster)) { "blocks" } else { "threads" };
    Some(match lanes {
        1 => format!("each element of {name} adds {each}"),
        _ => format!(
            "for each element of {name}, each of {lanes} {units} adds {each}, and their sums are added across the {units}"
        ),
    })
}

/// The order of terms that loops give, as words.
fn order(func: &Func, reduced: &[&Iter], loops: &[&For]) -> String {
    if let [one] = reduced
        && is_ascending(&one.binding, loops)
    {
        return format!("in ascending {}", func.var_name(one.var));
    }
    let names: Vec<&str> = loops.iter().map(|l| func.var_name(l.var)).collect();
    format!("in the order of the loops {}", names.join(", "))
}

/// Whether an index grows from each iteration of these loops to the next, whatever the other loops are at.
fn is_ascending(index: &Index, loops: &[&For]) -> bool {
    let at = |only: Option<(Var, i64)>| {
        index.eval(&|v| Some(only.filter(|(var, _)| *var == v).map_or(0, |(_, value)| value)))
    };
    let mut inner = 1;
    for l in loops.iter().rev() {
        let (Some(extent), false) = (l.extent.as_int(), l.notes.contains_key(&Note::Zigzag)) else { return false };
        let Some((zero, last)) = at(None).zip(at(Some((l.var, extent - 1)))) else { return false };
        // An index that is affine in the loop: its last value is as many strides away as it has iterations.
        let (span, steps) = (last - zero, extent - 1);
        let is_affine =
            (1..extent.min(4)).all(|n| at(Some((l.var, n))).is_some_and(|x| (x - zero) * steps == span * n));
        if steps > 0 && (!is_affine || span < inner * steps) {
            return false;
        }
        inner += span;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::sums;
    use crate::loom::Schedule;

    fn of(text: &str) -> Option<String> {
        sums(&text.parse::<Schedule>().unwrap().scheduled().unwrap())
    }

    #[test]
    fn the_sentence_names_terms_and_their_order() {
        let gemm = "gemm 64x64x96 f32 NN\ntarget sm_80\n";
        assert_eq!(of(gemm).unwrap(), "each element of C adds 96 terms in ascending vk, one at a time");
        let tiled = of(&format!("{gemm}split k ? 8 -> k0 k1")).unwrap();
        assert_eq!(tiled, of(gemm).unwrap());
        let turned = of(&format!("{gemm}split k ? 8 -> k0 k1\nreorder k1 k0")).unwrap();
        assert_eq!(turned, "each element of C adds 96 terms in the order of the loops k1, k0, one at a time");
        let parts = of(&format!("{gemm}split_k k 4 -> parts part ci cj cp")).unwrap();
        assert!(parts.contains("each element of parts adds 24 terms in ascending vk, one at a time; then "), "{parts}");
        assert!(parts.ends_with("adds 4 terms in ascending vpart, one at a time"), "{parts}");
        assert_eq!(of("vec_add 64\ntarget sm_80\n"), None);
    }

    #[test]
    fn threads_that_share_a_sum_are_named() {
        let rows = "gemm 8x8x256 f32 NT\ntarget sm_80\ncache_write C C local -> C_l\nsplit k ? 32 -> k0 k1\nbind i blockIdx.x\nbind k1 threadIdx.x";
        let said = of(rows).unwrap();
        assert!(said.contains("each of 32 threads adds 8 terms in ascending vk"), "{said}");
    }
}
