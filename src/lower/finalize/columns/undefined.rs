//! Loops behind MMAs leave out what would have no value.
//!
//! An MMA of fewer columns leaves the registers of the others without values (pass [`columns`](super)). An iteration of a loop that only moves or
//! converts such registers makes elements that have no value either, so there is a loop for each number of boxes, of as many iterations as make some. A sum
//! whose result is stored below a dynamic size alone runs where that condition holds.

use crate::ir::lowered::TensorMap;
use crate::ir::simplify::{Env, bounds, simplify_cond};
use crate::ir::{BinOp, BufferId, Cond, Expr, For, Func, Held, If, Index, LoopKind, Scope, Stmt, Var, Way, visit};
use std::collections::BTreeMap;

/// Elements from one to another.
type Range = (i64, i64);

/// What an iteration of a loop reads and writes.
#[derive(Default)]
struct Touched {
    reads: Vec<(BufferId, Range)>,
    writes: Vec<(BufferId, Range)>,
}

/// A loop that only moves elements of which not all have values.
struct Moves {
    /// Its place in the list.
    at: usize,
    iterations: Vec<Touched>,
    /// Iterations up to the last one that is needed.
    needed: usize,
}

/// The buffers that are written outside of a part of the kernel.
pub fn written_elsewhere(kernel: &[Stmt], part: &[Stmt]) -> Vec<BufferId> {
    let mut written = BTreeMap::new();
    each_write(kernel, &mut |buffer| *written.entry(buffer).or_insert(0i64) += 1);
    each_write(part, &mut |buffer| *written.entry(buffer).or_insert(0i64) -= 1);
    written.into_iter().filter(|(_, count)| *count > 0).map(|(buffer, _)| buffer).collect()
}

/// Calls `f` for each statement that gives elements of a buffer values.
fn each_write(body: &[Stmt], f: &mut dyn FnMut(BufferId)) {
    visit::walk(body, &mut |s| match s {
        Stmt::Store(store) if !store.value.is_any() => f(store.buffer),
        Stmt::Call(call) => call.operands.iter().filter(|o| o.writes).for_each(|o| f(o.buffer)),
        Stmt::Bulk(copy) if copy.way != Way::Store => f(copy.shared),
        _ => {}
    });
}

/// Statements from MMAs on, without the last iterations of loops that make no values. `sums` are the accumulators, which have none before.
pub fn left_out(
    mut body: Vec<Stmt>,
    (sums, elsewhere): (&[BufferId], &[BufferId]),
    (maps, sizes): (&[TensorMap], &[Var]),
    env: &Env,
) -> Vec<Stmt> {
    // The elements that have values, of buffers of which not all have.
    let mut values: BTreeMap<BufferId, Vec<Range>> = BTreeMap::new();
    values.extend(sums.iter().filter(|sum| !elsewhere.contains(sum)).map(|sum| (*sum, Vec::new())));
    let (mut written, mut loops): (Vec<BufferId>, Vec<Moves>) = (elsewhere.to_vec(), Vec::new());
    for (at, stmt) in body.iter().enumerate() {
        if let Stmt::For(l) = stmt
            && let Some(moves) = Moves::of(l, at, env, &values)
        {
            for (n, (buffer, range)) in
                moves.iterations.iter().enumerate().flat_map(|(n, t)| t.writes.iter().map(move |w| (n, w)))
            {
                if values.contains_key(buffer) || !written.contains(buffer) {
                    values.entry(*buffer).or_default().extend((n < moves.needed).then_some(*range));
                }
            }
            loops.push(moves);
        } else {
            give_values(stmt, &mut values);
        }
        each_write(std::slice::from_ref(stmt), &mut |buffer| written.push(buffer));
    }
    // What is read is written, with a value or without one.
    for reader in (0..body.len()).rev() {
        let mut read: Vec<(BufferId, Range)> = Vec::new();
        match loops.iter().find(|l| l.at == reader) {
            Some(l) => read.extend(l.iterations[..l.needed].iter().flat_map(|t| t.reads.clone())),
            None => reads(&body[reader], (maps, sizes), env, &mut read),
        }
        for writer in loops.iter_mut().filter(|l| l.at < reader) {
            let is_read =
                |(buffer, range): &(BufferId, Range)| read.iter().any(|(b, r)| b == buffer && meet(*r, *range));
            let last = writer.iterations.iter().rposition(|t| t.writes.iter().any(is_read));
            writer.needed = writer.needed.max(last.map_or(0, |last| last + 1));
        }
    }
    for l in &loops {
        if let Stmt::For(stmt) = &mut body[l.at] {
            stmt.extent = Index::Int(l.needed as i64);
        }
    }
    for stmt in &mut body {
        if let Stmt::For(l) = stmt {
            without_last(l, env);
        }
    }
    body.retain(|s| !matches!(s, Stmt::For(l) if l.extent == Index::Int(0)));
    body
}

/// Leaves out the last iterations of a loop whose condition never holds.
fn without_last(l: &mut For, env: &Env) {
    let (Some(extent), [Stmt::If(guard)]) = (l.extent.as_int(), l.body.as_slice()) else { return };
    if !matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled) || l.pipeline.is_some() {
        return;
    }
    let never = |at: &i64| {
        let cond = visit::subst_cond(&guard.cond, &[(l.var, Index::Int(*at))].into());
        simplify_cond(&cond, env) == Cond::Const(false)
    };
    let left = (0..extent).rev().take_while(never).count() as i64;
    l.extent = Index::Int(extent - left);
}

fn meet(a: Range, b: Range) -> bool {
    a.0 <= b.1 && b.0 <= a.1
}

/// MMAs give their accumulators values, and other statements any element that they write.
fn give_values(stmt: &Stmt, values: &mut BTreeMap<BufferId, Vec<Range>>) {
    let mut own: Vec<(BufferId, Option<Range>)> = Vec::new();
    visit::walk(std::slice::from_ref(stmt), &mut |s| match s {
        Stmt::Call(call) => own.extend(call.operands.iter().filter(|o| o.writes).map(|o| {
            let range = match (&o.held, &o.indices[..]) {
                (Held::Registers(elements), [Index::Int(from)]) => {
                    elements.iter().min().zip(elements.iter().max()).map(|(a, b)| (from + a, from + b))
                }
                _ => None,
            };
            (o.buffer, range)
        })),
        Stmt::Store(store) if !store.value.is_any() => own.push((store.buffer, None)),
        _ => {}
    });
    for (buffer, range) in own {
        match (range, values.get_mut(&buffer)) {
            (Some(range), Some(known)) => known.push(range),
            _ => drop(values.remove(&buffer)),
        }
    }
}

/// What a statement reads under no condition on a dynamic size, below which all elements have values: the box that TMA stores, or all of a buffer.
fn reads(stmt: &Stmt, (maps, sizes): (&[TensorMap], &[Var]), env: &Env, out: &mut Vec<(BufferId, Range)>) {
    let mut env = env.clone();
    let all = (0, i64::MAX);
    match stmt {
        Stmt::If(i) if sizes.iter().any(|size| i.cond.mentions(*size)) => return,
        Stmt::For(l) => env.bind_loop(l.var, &l.extent),
        Stmt::Bulk(copy) if copy.way == Way::Store => {
            let elements = maps.get(copy.map as usize).map(|map| map.tile.iter().product::<i64>());
            let range = elements.and_then(|n| range(&copy.indices, n, &env));
            out.push((copy.shared, range.unwrap_or(all)));
        }
        Stmt::Store(_) | Stmt::Call(_) => {
            out.extend(visit::reads(std::slice::from_ref(stmt)).into_iter().map(|buffer| (buffer, all)));
        }
        _ => {}
    }
    for child in visit::children(stmt) {
        child.iter().for_each(|s| reads(s, (maps, sizes), &env, out));
    }
}

impl Moves {
    fn of(l: &For, at: usize, env: &Env, values: &BTreeMap<BufferId, Vec<Range>>) -> Option<Moves> {
        let simple = matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled) && l.pipeline.is_none();
        let iterations: Vec<Touched> = (0..l.extent.as_int()?).map(|at| touched(l, at, env)).collect::<Option<_>>()?;
        if !simple || !iterations.iter().flat_map(|t| &t.reads).any(|(buffer, _)| values.contains_key(buffer)) {
            return None;
        }
        let has_value = |(buffer, range): &(BufferId, Range)| {
            values.get(buffer).is_none_or(|known| known.iter().any(|r| meet(*r, *range)))
        };
        let needed = iterations.iter().rposition(|t| t.reads.iter().any(has_value)).map_or(0, |last| last + 1);
        Some(Moves { at, iterations, needed })
    }
}

/// What an iteration of a loop touches, if it only moves and converts: each element that it makes has no value where none that it reads has one.
fn touched(l: &For, at: i64, env: &Env) -> Option<Touched> {
    let (mut out, mut env) = (Touched::default(), env.clone());
    let body = visit::subst_body(l.body.clone(), &[(l.var, Index::Int(at))].into());
    touch(&body, &mut env, &mut out).then_some(out)
}

fn touch(body: &[Stmt], env: &mut Env, out: &mut Touched) -> bool {
    body.iter().all(|stmt| match stmt {
        Stmt::For(l) => {
            env.bind_loop(l.var, &l.extent);
            matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled) && touch(&l.body, env, out)
        }
        Stmt::Block(b) => touch(&b.body, env, out),
        Stmt::Store(s) => {
            let signals = s.remote.as_ref().is_some_and(|to| to.full.is_some());
            let moved = moved(&s.value, env);
            let place = range(&s.indices, i64::from(s.lanes), env);
            match (moved, place) {
                (Some(read), Some(place)) if !signals && !s.asynchronous => {
                    out.reads.push(read);
                    out.writes.push((s.buffer, place));
                    true
                }
                _ => false,
            }
        }
        Stmt::Call(call) if call.adds.is_none() && call.columns.is_none() => {
            let [written, read] = call.operands.as_slice() else { return false };
            let (Held::Address(run), Held::Registers(elements)) = (&written.held, &read.held) else { return false };
            let ends = elements.iter().min().zip(elements.iter().max());
            let (place, from) = (range(&written.indices, i64::from(*run), env), range(&read.indices, 1, env));
            let moves = written.writes && !written.reads && read.reads && !read.writes;
            match (ends, place, from) {
                (Some((least, most)), Some(place), Some(from)) if moves => {
                    out.reads.push((read.buffer, (from.0 + least, from.1 + most)));
                    out.writes.push((written.buffer, place));
                    true
                }
                _ => false,
            }
        }
        _ => false,
    })
}

/// What a value is that is read and at most converted or multiplied by a constant.
fn moved(value: &Expr, env: &Env) -> Option<(BufferId, Range)> {
    match value {
        Expr::Load { buffer, indices, lanes } => Some((*buffer, range(indices, i64::from(*lanes), env)?)),
        Expr::Cast(_, inner) => moved(inner, env),
        Expr::Bin(BinOp::Mul, a, b) if matches!(**b, Expr::Const(..)) => moved(a, env),
        _ => None,
    }
}

/// The elements that an access may touch.
fn range(indices: &[Index], lanes: i64, env: &Env) -> Option<Range> {
    let [index] = indices else { return None };
    let (low, high) = bounds(index, env)?;
    Some((low, high + lanes - 1))
}

/// Sums that are stored below a dynamic size alone run where that holds.
pub fn sums_below(body: &mut [Stmt], func: &Func) {
    let all = body.to_vec();
    below(body, func, &all);
}

fn below(body: &mut [Stmt], func: &Func, all: &[Stmt]) {
    for stmt in body {
        visit::children_mut(stmt).into_iter().for_each(|child| below(child, func, all));
        if let Stmt::For(l) = stmt
            && let Some(cond) = stored_under(l, func, all)
        {
            if let Some(last) = l.body.last_mut() {
                without_condition(last);
            }
            l.body = vec![Stmt::If(If { cond, body: std::mem::take(&mut l.body) })];
        }
    }
}

/// The condition under which the last statement of a loop stores what the others compute for it alone.
fn stored_under(l: &For, func: &Func, all: &[Stmt]) -> Option<Cond> {
    let (last, others) = l.body.split_last().filter(|(_, others)| !others.is_empty())?;
    let cond = condition(last)?;
    let dynamic = func.sizes.iter().any(|s| cond.mentions(s.var));
    let only = |s: &Stmt| matches!(s, Stmt::For(_) | Stmt::Block(_) | Stmt::If(_) | Stmt::Store(_));
    let (mut plain, mut made) = (true, Vec::new());
    visit::walk(others, &mut |s| {
        plain &= only(s);
        if let Stmt::Store(store) = s {
            plain &= func.buffer(store.buffer).scope == Scope::Local && !store.asynchronous;
            made.push(store.buffer);
        }
    });
    let reads = |body: &[Stmt], buffer: BufferId| {
        let mut count = 0;
        visit::each_access(body, &mut |b, _| count += usize::from(b == buffer));
        count
    };
    let alone = made.iter().all(|b| reads(all, *b) == reads(&l.body, *b));
    (dynamic && plain && alone).then_some(cond)
}

/// The condition of a statement that is a condition, in a block perhaps.
fn condition(stmt: &Stmt) -> Option<Cond> {
    match stmt {
        Stmt::If(i) => Some(i.cond.clone()),
        Stmt::Block(b) => match b.body.as_slice() {
            [only] => condition(only),
            _ => None,
        },
        _ => None,
    }
}

fn without_condition(stmt: &mut Stmt) {
    match stmt {
        Stmt::Block(b) => match b.body.as_mut_slice() {
            [Stmt::If(i)] => b.body = std::mem::take(&mut i.body),
            [only] => without_condition(only),
            _ => {}
        },
        Stmt::If(i) => {
            let body = std::mem::take(&mut i.body);
            *stmt = Stmt::If(If { cond: Cond::TRUE, body });
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Call, Operand, Store};

    const ACC: BufferId = BufferId(0);
    const HALVES: BufferId = BufferId(1);
    const STAGE: BufferId = BufferId(2);
    const I: Var = Var(0);
    const SIZE: Var = Var(1);

    /// An MMA that writes so many registers.
    fn mma(registers: i64) -> Stmt {
        let held = Held::Registers((0..registers).collect());
        let operand = Operand { buffer: ACC, reads: true, writes: true, indices: vec![Index::Int(0)], held };
        Stmt::Call(Call { row: String::new(), operands: vec![operand], adds: None, columns: None })
    }

    /// A loop of eight iterations that moves one element in each.
    fn moving(to: BufferId, place: Index, from: BufferId, read: Index) -> Stmt {
        let value = Expr::Load { buffer: from, indices: vec![read], lanes: 1 };
        let store = Stmt::Store(Store::new(to, vec![place], value));
        Stmt::For(For::new(I, 8, LoopKind::Unrolled, vec![store]))
    }

    fn extents(body: Vec<Stmt>, elsewhere: &[BufferId]) -> Vec<Option<i64>> {
        let made = left_out(body, (&[ACC], elsewhere), (&[], &[SIZE]), &Env::new());
        made.iter().map(|s| if let Stmt::For(l) = s { l.extent.as_int() } else { None }).collect()
    }

    #[test]
    fn loops_end_behind_the_last_value() {
        let i = || Index::Var(I);
        let convert = || moving(HALVES, i(), ACC, i());
        let stage = || moving(STAGE, i() * 4, HALVES, i());
        assert_eq!(extents(vec![mma(3), convert(), stage()], &[]), [None, Some(3), Some(3)]);
        // Registers in another order: the last iteration with a value is the last that is needed.
        let turned = moving(HALVES, i(), ACC, Index::Int(7) - i());
        assert_eq!(extents(vec![mma(3), turned], &[]), [None, Some(8)]);
        // No MMA leaves none; what has values from elsewhere stays whole.
        assert_eq!(extents(vec![convert(), stage()], &[]), []);
        assert_eq!(extents(vec![mma(3), convert()], &[ACC]), [None, Some(8)]);
        assert_eq!(extents(vec![mma(3), convert(), stage()], &[HALVES]), [None, Some(8), Some(8)]);
    }

    /// What reads all of a stage finds all of it written, but under a condition on the size.
    #[test]
    fn what_is_read_is_written() {
        let i = || Index::Var(I);
        let (convert, stage) = (moving(HALVES, i(), ACC, i()), moving(STAGE, i(), HALVES, i()));
        let value = Expr::Load { buffer: STAGE, indices: vec![Index::Int(5)], lanes: 1 };
        let result = Stmt::Store(Store::new(BufferId(3), vec![Index::Int(0)], value));
        let body = |last: Stmt| vec![mma(3), convert.clone(), stage.clone(), last];
        assert_eq!(extents(body(result.clone()), &[]), [None, Some(8), Some(8), None]);
        let below = Stmt::If(If { cond: Cond::lt(5, SIZE), body: vec![result] });
        assert_eq!(extents(body(below), &[]), [None, Some(3), Some(3), None]);
    }

    #[test]
    fn iterations_whose_condition_never_holds_are_left_out() {
        let store = Stmt::Store(Store::new(STAGE, vec![Index::Var(I)], Expr::constant(crate::dtype::DType::F32, 0.0)));
        let guard = Stmt::If(If { cond: Cond::lt(Index::Var(I) * 2, SIZE), body: vec![store] });
        let mut l = For::new(I, 8, LoopKind::Serial, vec![guard]);
        let mut env = Env::new();
        env.bind(SIZE, 1, 5);
        without_last(&mut l, &env);
        assert_eq!(l.extent, Index::Int(3));
    }
}
