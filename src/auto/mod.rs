//! What a schedule leaves to the compiler: from the program and the chip to a step that says what was chosen.
//!
//! `tensor_core L` asks for tensor cores and names no instruction. [`resolve`] chooses one, writes it into the step's own
//! text, `tensor_core L = mma.m16n8k16.f32.f16.f16`, and leaves a remark; where no instruction will do, the step becomes
//! `tensor_core L = none` and the remark is the reason. The resolved step needs no chip any more: it replays anywhere.
//!
//! The choice, from the first to the last thing that counts: an instruction that the chip does not only emulate, whose types
//! are the product's, whose matrices divide what a warp owns, and which memory feeds; one of whose fragments it is known what
//! lies where (mma before wmma); one that does most at once; the product's rows as the instruction's rows.

use crate::error::{Code, Error, Fault, Result};
use crate::intrin::{self, Place, Row};
use crate::ir::Func;
use crate::schedule::primitive::tensor_core::{self, Product};
use crate::schedule::{self, Step, Value, find};
use crate::target::{FEATURES, Target};
use std::cmp::Reverse;

/// The step with its choice for the chip; every other step, and one that has been resolved, as it is.
///
/// # Errors
/// As the step itself where it names what is not there. What the step refuses for any other reason is the reason for
/// `none`.
pub fn resolve(func: &Func, step: &Step, target: &Target) -> Result<Step> {
    if step.primitive().name != tensor_core::PRIMITIVE.name || step.args().find_word("row").is_some() {
        return Ok(step.clone());
    }
    let l = find::loop_(func, step.args().get_word("loop")?)?;
    let warp = step.args().names.first().map_or("warp", String::as_str);
    let product = match Product::of(func, l, warp) {
        Ok(product) => product,
        Err(e) if is_reason(&e) => return ordinary(step, e.message()),
        Err(e) => return Err(e),
    };
    let mut rows = match candidates(&product, target) {
        Ok(rows) => rows,
        Err(reason) => return ordinary(step, &reason),
    };
    rows.sort_by_key(|(row, turned)| (is_opaque(row), Reverse(work(row)), *turned, row.name.clone()));
    let mut reason = None;
    for (row, _) in rows {
        let chosen = with(step, &row.name)?;
        match schedule::apply(func, &chosen) {
            Ok(_) => return Ok(chosen.with_remark(format!("a warp owns {}", sizes(product.tile)))),
            Err(e) if e.fault() == Fault::Input => reason = reason.or(Some(e.message().to_string())),
            Err(e) => return Err(e),
        }
    }
    ordinary(step, &reason.unwrap_or_default())
}

/// Whether a refusal says that this program is nothing for tensor cores, not that the step is wrong.
fn is_reason(error: &Error) -> bool {
    let (Code::Requirement { primitive, .. } | Code::Lost { primitive }) = error.code() else { return false };
    primitive == tensor_core::PRIMITIVE.name
}

/// The instructions of the chip that do for a product, and whether its columns are the instruction's rows; in words why
/// there are none.
fn candidates(product: &Product, target: &Target) -> Result<Vec<(&'static Row, bool)>, String> {
    let [sum, a, b] = product.dtypes;
    let typed: Vec<&'static Row> =
        intrin::all().iter().filter(|r| tensor_core::multiplies(r) && product.is_typed(r)).collect();
    if typed.is_empty() {
        return Err(format!("no instruction multiplies {a} by {b} into {sum}"));
    }
    let fitting: Vec<(&'static Row, bool)> = typed.iter().filter_map(|r| Some((*r, product.turned(r).ok()?))).collect();
    if fitting.is_empty() {
        let mut shapes: Vec<String> = typed.iter().map(|r| sizes([0, 1, 2].map(|d| r.dims[d].1))).collect();
        shapes.sort();
        shapes.dedup();
        let (tile, shapes) = (sizes(product.tile), shapes.join(", "));
        return Err(format!("a warp owns {tile}, which no instruction on {a} and {b} divides: they are {shapes}"));
    }
    let here: Vec<_> = fitting.iter().copied().filter(|(r, _)| r.is_native_to(target)).collect();
    if here.is_empty() {
        return Err(lacking(&fitting, target));
    }
    Ok(here)
}

/// What the chip would have to have, with the chip that brought it first; or what it has in name only.
fn lacking(rows: &[(&'static Row, bool)], target: &Target) -> String {
    let missing = |r: &'static Row| FEATURES.iter().filter(move |f| r.needs.contains(f.flag) && !target.has(f.flag));
    match rows.iter().flat_map(|(r, _)| missing(r)).min_by_key(|f| f.sm) {
        Some(f) => format!("{} does not have {}, which sm_{} introduced", target.name, f.name, f.sm),
        None => {
            let names: Vec<&str> = rows.iter().map(|(r, _)| r.name.as_str()).collect();
            format!("{} has {} in name only, as a sequence of other instructions", target.name, names.join(" and "))
        }
    }
}

/// Whether no thread can fill or read what it multiplies: everything passes through memory.
fn is_opaque(row: &Row) -> bool {
    !row.operands.iter().all(|o| matches!(o.place, Place::Registers(_)))
}

fn work(row: &Row) -> i64 {
    row.dims.iter().map(|d| d.1).product()
}

fn sizes(tile: [i64; 3]) -> String {
    tile.map(|n| n.to_string()).join(" x ")
}

fn with(step: &Step, row: &str) -> Result<Step> {
    Step::new(step.primitive(), step.args().clone().with("row", Value::Word(row.to_string())))
}

/// The step that leaves the program as it is, and why.
fn ordinary(step: &Step, reason: &str) -> Result<Step> {
    Ok(with(step, tensor_core::NONE)?.with_remark(format!("ordinary code: {reason}")))
}
