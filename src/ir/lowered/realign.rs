//! Loops that read consecutive elements of 8 or 16 bits from a place in device memory that is aligned to no more than an element.
//!
//! Code generation reads the aligned words of 32 bits that hold them, and shifts two words into each one that the loop writes
//! ([`LoopCode::realigns`](crate::ir::LoopCode)). A word is read only if an element in it is: no thread reads outside the array.

use crate::dtype::DType;
use crate::ir::simplify::{self, Env, affine};
use crate::ir::{BufferId, CmpOp, Cond, Expr, For, Func, Index, LoopKind, Scope, Stmt, Store, visit};
use std::collections::BTreeMap;

/// Bytes of a word, and the most that a loop reads.
pub const WORD: i64 = 4;
const MOST_BYTES: i64 = 64;

/// A loop that reads consecutive elements, taken apart.
#[cfg_attr(not(feature = "compile"), expect(dead_code))]
pub struct Realigned<'a> {
    /// Its one statement, which writes consecutive elements.
    pub store: &'a Store,
    /// What it reads, and the element that its first iteration reads; `None` where all iterations write zero.
    pub from: Option<(BufferId, Index)>,
    /// Bounds of the loop's variable: an iteration that is not below all of them writes zero.
    pub below: Vec<Index>,
    /// Conditions of all iterations, without which all write zero.
    pub conditions: Vec<&'a Cond>,
    /// Iterations.
    pub lanes: i64,
}

/// Takes a loop apart, if it is one that can be read by words.
pub fn realigned<'a>(func: &'a Func, l: &'a For) -> Option<Realigned<'a>> {
    let lanes = l.extent.as_int().filter(|_| l.kind == LoopKind::Unrolled)?;
    let store = leaf(&l.body, l).filter(|s| s.lanes == 1 && !s.asynchronous && s.remote.is_none())?;
    let target = func.buffers.get(store.buffer.0 as usize)?;
    let written = lanes.checked_mul(bytes(target.dtype)?)?;
    let suits = matches!(target.scope, Scope::Local | Scope::Shared)
        && written % WORD == 0
        && (WORD..=MOST_BYTES).contains(&written);
    consecutive(&store.indices, l).filter(|_| suits)?;
    let (mut below, mut conditions) = (Vec::new(), Vec::new());
    if store.value.is_zero() {
        return Some(Realigned { store, from: None, below, conditions, lanes });
    }
    let (condition, load) = store.value.zero_filled().map_or((None, &store.value), |(c, load)| (Some(c), load));
    let Expr::Load { buffer: from, indices, lanes: 1 } = load else { return None };
    let source = func.buffers.get(from.0 as usize)?;
    let whole = source.elements()?.checked_mul(bytes(source.dtype)?)?;
    let suits = source.scope == Scope::Global
        && source.dtype == target.dtype
        && i64::from(source.align) % WORD == 0
        && func.sizes.is_empty()
        && whole >= WORD;
    let first = consecutive(indices, l).filter(|_| suits)?;
    if let Some(condition) = condition {
        let Expr::Cond(condition) = condition else { return None };
        for one in condition.conjuncts() {
            match one.mentions(l.var) {
                true => below.push(end(one, l)?),
                false => conditions.push(one),
            }
        }
    }
    Some(Realigned { store, from: Some((*from, first)), below, conditions, lanes })
}

/// The local buffers that only such loops write, and the elements of one loop. Code generation keeps the loaded words of these buffers, and shifts
/// them where the buffer is read.
#[cfg_attr(not(feature = "compile"), expect(dead_code))]
pub fn unshifted(func: &Func, env: &Env) -> BTreeMap<BufferId, i64> {
    let (mut found, mut stores) =
        (BTreeMap::<BufferId, (Option<i64>, usize)>::new(), BTreeMap::<BufferId, usize>::new());
    visit::walk(&func.body, &mut |stmt| match stmt {
        Stmt::Store(store) => *stores.entry(store.buffer).or_default() += 1,
        Stmt::For(l) if l.code.realigns => {
            let Some(read) = realigned(func, l) else { return };
            let begins =
                consecutive(&read.store.indices, l).is_some_and(|i| simplify::divisor(&i, env) % read.lanes == 0);
            let (lanes, number) = found.entry(read.store.buffer).or_insert((Some(read.lanes), 0));
            *lanes = lanes.filter(|lanes| *lanes == read.lanes && begins);
            *number += 1;
        }
        _ => {}
    });
    let local = |id: &BufferId| func.buffer(*id).scope == Scope::Local;
    let alone = found.into_iter().filter(|(id, (_, number))| local(id) && stores.get(id) == Some(number));
    let lanes = alone.filter_map(|(id, (lanes, _))| Some((id, lanes?)));
    lanes.filter(|(id, lanes)| func.buffer(*id).elements().is_some_and(|n| n % lanes == 0)).collect()
}

/// Bytes of an element of a type that is narrower than a word.
pub fn bytes(dtype: DType) -> Option<i64> {
    matches!(dtype.bits(), 8 | 16).then(|| i64::from(dtype.bits()) / 8).filter(|_| dtype != DType::Bool)
}

/// The one statement of a loop, under no other loop and no condition that tells its iterations apart.
fn leaf<'a>(body: &'a [Stmt], l: &For) -> Option<&'a Store> {
    match body {
        [Stmt::Store(store)] => Some(store),
        [Stmt::Block(b)] => leaf(&b.body, l),
        [Stmt::If(i)] if !i.cond.mentions(l.var) => leaf(&i.body, l),
        _ => None,
    }
}

/// The flat index of the first iteration, if each iteration has the next one.
fn consecutive(indices: &[Index], l: &For) -> Option<Index> {
    let [index] = indices else { return None };
    let sum = affine(index);
    let own = Index::Var(l.var);
    let step: i64 = sum.terms.iter().filter(|(atom, _)| *atom == own).map(|(_, factor)| *factor).sum();
    let elsewhere = sum.terms.iter().any(|(atom, _)| *atom != own && atom.mentions(l.var));
    (step == 1 && !elsewhere).then(|| at_zero(index, l))
}

fn at_zero(index: &Index, l: &For) -> Index {
    simplify::simplify(&visit::subst_index(index, &[(l.var, Index::Int(0))].into()), &Env::new())
}

/// The first iteration for which a condition fails, and with it all later ones.
fn end(condition: &Cond, l: &For) -> Option<Index> {
    let Cond::Cmp(op, left, right) = condition else { return None };
    // `v + rest < 0`, from either side.
    let (difference, more) = match op {
        CmpOp::Lt => (left.clone() - right.clone(), 0),
        CmpOp::Le => (left.clone() - right.clone(), 1),
        CmpOp::Gt => (right.clone() - left.clone(), 0),
        CmpOp::Ge => (right.clone() - left.clone(), 1),
        _ => return None,
    };
    let rest = consecutive(&[difference], l)?;
    Some(simplify::simplify(&(Index::Int(more) - rest), &Env::new()))
}
