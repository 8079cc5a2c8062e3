//! Loops over MMAs of warpgroups of which not all columns are used become one for each number of columns that may be.
//!
//! The rows of operand B beyond a dynamic size are not loaded ([`Columns`]). How many TMA boxes hold rows below the size decides between loops with
//! fewer loads and instructions of fewer columns; the branch is the same for all threads of the block, and outside of the loop. Branches around the
//! MMAs of each stage took 1.5 us more of 12.2 for f16 125x4096x4096 on an H200. The accumulators of a smaller instruction are the first ones of
//! a larger.
//!
//! Boxes that follow one another in the array and in shared memory become one, by a tensor map of its own for each number of rows.

use crate::error::{Code, Result};
use crate::intrin::{self, Row};
use crate::ir::lowered::{LoweredKernel, TensorMap};
use crate::ir::simplify::{self, Env};
use crate::ir::{
    BufferId, BulkCopy, Call, Columns, Cond, Expr, For, Func, Held, Index, Literal, LoopKind, Note, Stmt, Store, Sync,
    SyncKind, visit,
};
use crate::lower::bug;
use crate::lower::map::blocks::guarded;
use crate::lower::sync::rings;
use crate::target::Target;

/// Rows of a TMA box at most (CUDA Driver API, cuTensorMapEncodeTiled).
const MOST_ROWS: i64 = 256;
/// Tensor maps of a kernel up to which boxes get one of their own: of 128 bytes each, and a kernel has 4352 bytes of parameters (PTX ISA 8.0).
const MOST_MAPS: usize = 24;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let env = kernel.env();
    let body = std::mem::take(&mut kernel.func.body);
    let body = with_sums(body, &mut kernel.func);
    let known = kernel.maps.len();
    kernel.func.body = list(body, &env, &mut kernel.maps)?;
    let added = (known..kernel.maps.len()).map(|map| map as u32);
    let of_array = |map: &u32| (kernel.maps[*map as usize].buffer, *map);
    prefetched(&mut kernel.func.body, &kernel.maps, &added.map(|map| of_array(&map)).collect::<Vec<_>>());
    Ok(())
}

/// Prefetches tensor maps behind those of the first copies, if one of these is of the same array.
fn prefetched(body: &mut Vec<Stmt>, maps: &[TensorMap], added: &[(BufferId, u32)]) {
    let prefetches = |s: &Stmt| match s {
        Stmt::Sync(Sync { kind: SyncKind::PrefetchMap { map }, reason }) => Some((*map, reason.clone())),
        _ => None,
    };
    if let Some(last) = body.iter().rposition(|s| prefetches(s).is_some()) {
        let known: Vec<_> = body.iter().filter_map(prefetches).collect();
        let beside = |(buffer, map): &(BufferId, u32)| {
            let of_array = |(known, _): &&(u32, _)| maps.get(*known as usize).is_some_and(|m| m.buffer == *buffer);
            let reason = known.iter().find(of_array)?.1.clone();
            Some(Stmt::Sync(Sync { kind: SyncKind::PrefetchMap { map: *map }, reason }))
        };
        let more: Vec<Stmt> = added.iter().filter_map(beside).collect();
        body.splice(last + 1..last + 1, more);
    }
    for stmt in body {
        visit::children_mut(stmt).into_iter().for_each(|child| prefetched(child, maps, added));
    }
}

/// The accumulators of MMAs of which not all columns are used.
fn sums(stmt: &Stmt) -> Vec<BufferId> {
    let mut found = Vec::new();
    visit::walk(std::slice::from_ref(stmt), &mut |s| {
        if let Stmt::Call(call) = s
            && call.columns.is_some()
        {
            let written = call.operands.iter().filter(|o| o.writes).map(|o| o.buffer);
            found.extend(written);
        }
    });
    found.sort_unstable();
    found.dedup();
    found
}

/// Gives these accumulators values before the first statement of the warps that has such MMAs.
fn with_sums(body: Vec<Stmt>, func: &mut Func) -> Vec<Stmt> {
    let (mut out, mut given): (Vec<Stmt>, Vec<BufferId>) = (Vec::with_capacity(body.len()), Vec::new());
    for mut stmt in body {
        if let Stmt::Role(role) = &mut stmt {
            role.body = with_sums(std::mem::take(&mut role.body), func);
        } else {
            for sum in sums(&stmt) {
                if !given.contains(&sum) {
                    // The fence orders the registers before the MMAs.
                    let at = out.len() - usize::from(out.last().is_some_and(|s| is_sync(s, false)));
                    out.insert(at, undefined(func, sum));
                    given.push(sum);
                }
            }
        }
        out.push(stmt);
    }
    out
}

/// Gives registers undefined values: the epilogue converts those of unused columns, too.
fn undefined(func: &mut Func, sum: BufferId) -> Stmt {
    let (name, dtype) = (&func.buffer(sum).name, func.buffer(sum).dtype);
    let (elements, register) = (func.buffer(sum).elements().unwrap_or(0), format!("{name}_register"));
    let var = func.add_var(register);
    let store = Store::new(sum, vec![Index::Var(var)], Expr::Const(dtype, Literal::Any));
    Stmt::For(For::new(var, elements, LoopKind::Unrolled, vec![Stmt::Store(store)]))
}

fn list(body: Vec<Stmt>, env: &Env, maps: &mut Vec<TensorMap>) -> Result<Vec<Stmt>> {
    let mut out: Vec<Stmt> = Vec::with_capacity(body.len());
    let mut rest = body.into_iter().peekable();
    while let Some(mut stmt) = rest.next() {
        let mut inner = env.clone();
        if let Stmt::For(l) = &stmt {
            inner.bind_loop(l.var, &l.extent);
        }
        if let Some(boxes) = Boxes::of(&stmt, env).filter(|boxes| boxes.are_outside(&stmt)) {
            // The fence before a group, its commit and the wait after it: ptxas closes a group where branches meet (C7519).
            let mut group: Vec<Stmt> = out.pop_if(|s| is_sync(s, false)).into_iter().chain([stmt]).collect();
            while let Some(next) = rest.next_if(|s| is_sync(s, true)) {
                group.push(next);
            }
            out.extend(boxes.divide(&group, env, maps)?);
            continue;
        }
        for child in visit::children_mut(&mut stmt) {
            *child = list(std::mem::take(child), &inner, maps)?;
        }
        out.push(stmt);
    }
    Ok(out)
}

/// Whether a statement is the fence before MMAs, or the commit or the wait after them.
fn is_sync(stmt: &Stmt, after: bool) -> bool {
    match stmt {
        Stmt::Sync(Sync { kind: SyncKind::ProductFence, .. }) => !after,
        Stmt::Sync(Sync { kind: SyncKind::ProductCommit | SyncKind::ProductWait { .. }, .. }) => after,
        _ => false,
    }
}

/// The boxes of operand B that hold rows below the size.
struct Boxes {
    /// How many: all where the whole tile is inside of the array, none where it is beyond it.
    count: Index,
    /// Rows of one.
    rows: i64,
    /// All of them.
    all: i64,
}

impl Boxes {
    /// Those of the MMAs in a statement, or of the loads in a loop of a producer, if they are the same for all.
    fn of(stmt: &Stmt, env: &Env) -> Option<Boxes> {
        let (mut found, mut same): (Option<(Columns, i64)>, bool) = (None, true);
        let (mut loads, mut alike): (Option<(Index, i64)>, bool) = (None, matches!(stmt, Stmt::For(_)));
        visit::walk(std::slice::from_ref(stmt), &mut |s| match s {
            Stmt::Call(Call { row, columns: Some(columns), .. }) => {
                let own = (columns.clone(), intrin::find(row).map_or(0, Row::columns));
                same &= found.get_or_insert_with(|| own.clone()) == &own;
            }
            Stmt::Call(_) | Stmt::Store(_) => alike = false,
            Stmt::For(l) if matches!(l.body.as_slice(), [Stmt::If(_)]) => {
                if let (Some(count), Some(all)) = (rings::iterations(l), l.extent.as_int()) {
                    let own = (simplify::simplify(&count, env), all);
                    alike &= loads.get_or_insert_with(|| own.clone()) == &own;
                }
            }
            _ => {}
        });
        if let Some((Columns { below, unit }, whole)) = found {
            let all = whole / unit;
            let count = (below + (unit - 1)).floordiv(unit).max(0).min(all);
            return same.then(|| Boxes { count: simplify::simplify(&count, env), rows: unit, all });
        }
        let (count, all) = loads.filter(|_| alike)?;
        Some(Boxes { count, rows: 1, all })
    }

    /// Whether their number is known before the statement: nothing in it decides it, and it is not the walk of the tiles.
    fn are_outside(&self, stmt: &Stmt) -> bool {
        let mut decided = true;
        visit::walk(std::slice::from_ref(stmt), &mut |s| match s {
            Stmt::For(l) => decided &= !self.count.mentions(l.var) && !matches!(l.kind, LoopKind::Persistent { .. }),
            Stmt::Role(_) => decided = false,
            _ => {}
        });
        decided
    }

    /// The statements for each number of boxes, where there are so many. A block of a cluster may have none: it loads what others read, too.
    fn divide(&self, group: &[Stmt], env: &Env, maps: &mut Vec<TensorMap>) -> Result<Vec<Stmt>> {
        let (low, high) = simplify::bounds(&self.count, env).unwrap_or((0, self.all));
        let (low, high) = (low.clamp(0, self.all), high.clamp(0, self.all));
        let mut out = Vec::new();
        for count in low..=high {
            let cond = match (count == low, count == high) {
                (true, true) => Cond::TRUE,
                (true, false) => Cond::lt(self.count.clone(), count + 1),
                (false, true) => Cond::lt(count - 1, self.count.clone()),
                (false, false) => Cond::eq(self.count.clone(), count),
            };
            let mut body = self.with(group, count, env, maps)?;
            if low < high {
                body.iter_mut().for_each(keep_loops_of_loads);
            }
            if !body.is_empty() {
                out.extend(guarded(cond, body));
            }
        }
        Ok(out)
    }

    /// The statements for so many boxes.
    fn with(&self, body: &[Stmt], count: i64, env: &Env, maps: &mut Vec<TensorMap>) -> Result<Vec<Stmt>> {
        let body = body.iter().map(|s| self.changed(s.clone(), count, env, maps)).collect::<Result<Vec<_>>>()?;
        let known = &mut |i: &Index| self.known(i, count).map_or_else(|| i.clone(), |i| simplify::simplify(&i, env));
        Ok(visit::map_body(body.into_iter().flatten().collect(), known, &mut |e| e))
    }

    /// MMAs of so many columns, and loads of so many boxes; nothing where there are none.
    fn changed(&self, mut stmt: Stmt, count: i64, env: &Env, maps: &mut Vec<TensorMap>) -> Result<Option<Stmt>> {
        let loads = |l: &For| rings::iterations(l).is_some_and(|n| simplify::simplify(&n, env) == self.count);
        match &mut stmt {
            Stmt::Call(call) if call.columns.is_some() => match count {
                0 => return Ok(None),
                _ => narrow(call, count * self.rows)?,
            },
            Stmt::For(l) if matches!(l.body.as_slice(), [Stmt::If(_)]) && loads(l) => {
                if count == 0 {
                    return Ok(None);
                }
                l.extent = Index::Int(count);
                let inside = l.body.pop();
                l.body = if let Some(Stmt::If(guard)) = inside { guard.body } else { Vec::new() };
                if let Some(one) = joined(l, count, maps) {
                    return Ok(Some(Stmt::Bulk(one)));
                }
            }
            _ => {}
        }
        let had = !visit::children(&stmt).is_empty();
        for child in visit::children_mut(&mut stmt) {
            let all = std::mem::take(child).into_iter().map(|s| self.changed(s, count, env, maps));
            *child = all.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
        }
        let empty = had && visit::children(&stmt).iter().all(|c| c.is_empty());
        Ok((!empty).then_some(stmt))
    }

    /// An index in which the number of boxes is known, if it mentions that.
    fn known(&self, index: &Index, count: i64) -> Option<Index> {
        match index {
            i if *i == self.count => Some(Index::Int(count)),
            Index::Bin(op, a, b) => {
                let parts = (self.known(a, count), self.known(b, count));
                let (a, b) = match parts {
                    (None, None) => return None,
                    (Some(x), None) => (x, (**b).clone()),
                    (None, Some(y)) => ((**a).clone(), y),
                    (Some(x), Some(y)) => (x, y),
                };
                Some(Index::bin(*op, a, b))
            }
            _ => None,
        }
    }
}

/// Keeps a serial loop that only loads a loop. Of several numbers of boxes a launch needs one, and its code comes from device memory: ptxas wrote 13 iterations
/// out, 4 KB for each number of boxes.
fn keep_loops_of_loads(stmt: &mut Stmt) {
    if let Stmt::For(l) = stmt
        && l.kind == LoopKind::Serial
    {
        let mut loads = true;
        visit::walk(&l.body, &mut |s| loads &= !matches!(s, Stmt::Call(_) | Stmt::Store(_)));
        if loads {
            l.notes.entry(Note::UnrollLimit).or_insert(1);
        }
    }
}

/// The boxes of a loop as one, by a tensor map with so many times as many rows, if they follow one another in the array and in shared memory.
fn joined(l: &For, boxes: i64, maps: &mut Vec<TensorMap>) -> Option<BulkCopy> {
    let [Stmt::Bulk(copy)] = l.body.as_slice() else { return None };
    let map = maps.get(copy.map as usize)?;
    let dim = copy.coordinates.iter().position(|i| i.mentions(l.var))?;
    let first: visit::Map = [(l.var, Index::Int(0))].into();
    // The index moves by so much from one box to the next, and by nothing else.
    let moves = |i: &Index, step: i64| {
        let sum = simplify::affine(i);
        let alone = |(atom, _): &(Index, i64)| *atom == Index::Var(l.var) || !atom.mentions(l.var);
        sum.coefficient(l.var) == step && sum.terms.iter().all(alone)
    };
    let [place] = copy.indices.as_slice() else { return None };
    let follow = moves(&copy.coordinates[dim], map.tile[dim]) && moves(place, map.tile.iter().product());
    let alone =
        copy.coordinates[dim + 1..].iter().all(|i| !i.mentions(l.var)) && map.tile[..dim].iter().all(|n| *n == 1);
    let rows = map.tile[dim].saturating_mul(boxes);
    if !follow || !alone || rows > MOST_ROWS {
        return None;
    }
    let mut joined = map.clone();
    joined.tile[dim] = rows;
    let number = match maps.iter().position(|m| *m == joined) {
        Some(known) => known,
        None if maps.len() >= MOST_MAPS => return None,
        None => {
            maps.push(joined);
            maps.len() - 1
        }
    };
    let begin = |indices: &[Index]| indices.iter().map(|i| visit::subst_index(i, &first)).collect();
    Some(BulkCopy {
        map: number as u32,
        coordinates: begin(&copy.coordinates),
        indices: begin(&copy.indices),
        ..copy.clone()
    })
}

fn narrow(call: &mut Call, count: i64) -> Result<()> {
    let forms = intrin::find(&call.row).and_then(|row| Some((row, row.with_columns(count)?)));
    let Some((row, narrower)) = forms else {
        return Err(bug(Code::LowerFragments, format!("{} has no form with {count} columns", call.row)));
    };
    for (operand, meaning) in call.operands.iter_mut().zip(&row.operands) {
        match &mut operand.held {
            Held::Registers(elements) if operand.writes => {
                elements.truncate(elements.len() * count as usize / row.columns() as usize);
            }
            Held::Descriptor(tile) if meaning.name == "B" => tile.tile[usize::from(!tile.along_k)] = count,
            _ => {}
        }
    }
    (call.row, call.columns) = (narrower.name.clone(), None);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Slot, Var, Way};

    /// A loop over boxes of 8 rows of 64 elements with these coordinates and places.
    fn boxes(row: Index, place: Index) -> For {
        let full = Slot { barrier: 0, index: Index::Int(0) };
        let copy = BulkCopy {
            global: BufferId(0),
            map: 0,
            coordinates: vec![row, Index::Int(128)],
            shared: BufferId(1),
            indices: vec![place],
            way: Way::Load { full, multicast: None },
        };
        For::new(Var(0), 4, LoopKind::Unrolled, vec![Stmt::Bulk(copy)])
    }

    fn map() -> TensorMap {
        TensorMap {
            buffer: BufferId(0),
            extents: vec![96, 256],
            strides: vec![256, 1],
            tile: vec![8, 64],
            swizzle: 128,
            promotion: 128,
            dynamic: None,
        }
    }

    #[test]
    fn boxes_that_follow_one_another_are_one() {
        let (b, from) = (Index::Var(Var(0)), 4096);
        let mut maps = vec![map()];
        let follow = boxes(b.clone() * 8 + 32, b.clone() * 512 + from);
        let one = joined(&follow, 3, &mut maps).unwrap();
        assert_eq!((one.map, maps.len(), maps[1].tile.clone()), (1, 2, vec![24, 64]));
        assert_eq!((one.coordinates, one.indices), (vec![Index::Int(32), Index::Int(128)], vec![Index::Int(from)]));
        assert_eq!(joined(&follow, 3, &mut maps).unwrap().map, 1);
        // Every other box, boxes with gaps in the stage, what moves otherwise, and more rows than a box has.
        let apart = boxes(b.clone() * 16, b.clone() * 512);
        let gaps = boxes(b.clone() * 8, b.clone() * 1024);
        let otherwise = boxes(b.clone() * 8 + b.clone().floordiv(2) * 16, b.clone() * 512);
        for other in [apart, gaps, otherwise] {
            assert_eq!(joined(&other, 3, &mut maps), None);
        }
        assert_eq!(joined(&follow, 33, &mut maps), None);
        let mut full = vec![map(); MOST_MAPS];
        assert_eq!(joined(&follow, 3, &mut full), None);
    }
}
