//! MMAs of warpgroups of which not all columns are used become some for each number of columns that may be.
//!
//! The rows of operand B beyond a dynamic size are not loaded ([`Columns`]). How many TMA boxes hold rows below the size decides between versions of all
//! statements from the first load on, with fewer loads, instructions of fewer columns, and epilogues of as many rows. The branch is the same for all threads
//! of the block. Branches around the MMAs of each stage took 1.5 us more of 12.2 for f16 125x4096x4096 on an H200, and branches around parts of the
//! epilogue 0.2 to 0.4 (h200-2026-11-30): the code behind each is fetched from device memory. The accumulators of a smaller instruction are the first ones of a larger.
//!
//! - Boxes that follow one another in the array and in shared memory become one, by a tensor map of its own for each number of rows.
//! - Each version has a ring of as many stages as there is room for (`depth`).
//! - Loops behind the MMAs leave out what has no value (`undefined`).
//! - Groups of rows that blocks walk have equally many rows (`groups`).

mod depth;
mod groups;
mod undefined;

use crate::error::{Code, Result};
use crate::intrin::{self, Row};
use crate::ir::lowered::threads::LANES;
use crate::ir::lowered::{LoweredKernel, TensorMap};
use crate::ir::simplify::{self, Env};
use crate::ir::{
    Axis, BufferId, BulkCopy, Call, Columns, Elect, Expr, For, Func, Held, Index, Literal, LoopKind, Note, Stmt, Store,
    Sync, SyncKind, Var, Way, visit,
};
use crate::lower::bug;
use crate::lower::data::bulk::is_load;
use crate::lower::map::blocks::guarded;
use crate::lower::sync::rings;
use crate::target::Target;
use depth::{Group, Ring, among};

/// Rows of a TMA box at most (CUDA Driver API, cuTensorMapEncodeTiled).
const MOST_ROWS: i64 = 256;
/// Tensor maps of a kernel up to which boxes get one of their own: of 128 bytes each, and a kernel has 4352 bytes of parameters (PTX ISA 8.0).
const MOST_MAPS: usize = 24;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, target: &Target) -> Result<()> {
    groups::divide(kernel);
    let env = kernel.env();
    let body = std::mem::take(&mut kernel.func.body);
    let mut body = with_sums(body, &mut kernel.func);
    let known = kernel.maps.len();
    let mut groups = Vec::new();
    let found = &mut |boxes: &Boxes, body: Vec<Stmt>, env: &Env| {
        groups.push(Group { boxes: boxes.clone(), body, env: env.clone() });
        Ok(Vec::new())
    };
    let thread = kernel.launch.iter().find(|l| l.axis == Axis::ThreadX).map(|l| l.var);
    Lists { thread, each: found }.list(body.clone(), &env)?;
    if groups.is_empty() {
        kernel.func.body = body;
        return Ok(());
    }
    undefined::sums_below(&mut body, &kernel.func);
    let ring = Ring::of(kernel, &body, &groups, target);
    let sizes: Vec<Var> = kernel.func.sizes.iter().map(|s| s.var).collect();
    let (maps, func) = (&mut kernel.maps, &kernel.func);
    let of_others = |rest: &[Stmt]| undefined::written_elsewhere(&body, rest);
    let each = &mut |boxes: &Boxes, rest: Vec<Stmt>, env: &Env| {
        let mut versions = boxes.divide(&rest, env, maps, (ring.as_ref(), &of_others(&rest), &sizes))?;
        for version in &mut versions {
            if let Stmt::If(version) = version {
                prefetch(&mut version.body, known, func);
            }
        }
        Ok(versions)
    };
    let body = Lists { thread, each }.list(body.clone(), &env)?;
    kernel.func.body = body;
    Ok(())
}

/// Prefetches the tensor maps from `known` on that loads of some statements have, before they wait for the kernels before this one.
fn prefetch(body: &mut Vec<Stmt>, known: usize, func: &Func) {
    let mut found: Vec<(u32, u32, BufferId)> = Vec::new();
    visit::walk(body, &mut |s| {
        let Stmt::Elect(e) = s else { return };
        visit::walk(&e.body, &mut |s| {
            if let Stmt::Bulk(BulkCopy { map, global, way: Way::Load { .. }, .. }) = s
                && *map as usize >= known
                && found.iter().all(|(_, other, _)| other != map)
            {
                found.push((e.warps, *map, *global));
            }
        });
    });
    let Some((warps, ..)) = found.first().copied() else { return };
    let one = |(_, map, global): &(u32, u32, BufferId)| {
        let reason = format!("the first copy of {} waits less for its tensor map", func.buffer(*global).name);
        Stmt::Sync(SyncKind::PrefetchMap { map: *map }.because(reason))
    };
    let releases = |s: &&Stmt| matches!(s, Stmt::Sync(Sync { kind: SyncKind::GridRelease, .. }));
    let at = body.iter().take_while(releases).count();
    body.insert(at, Stmt::Elect(Elect { warps, body: found.iter().map(one).collect() }));
}

/// The accumulators of MMAs of which not all columns are used.
fn sums(body: &[Stmt]) -> Vec<BufferId> {
    let mut found = Vec::new();
    visit::walk(body, &mut |s| {
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
            for sum in sums(std::slice::from_ref(&stmt)) {
                if !given.contains(&sum) {
                    // The fence orders the registers before the MMAs.
                    let at = out.len() - usize::from(out.last().is_some_and(is_fence));
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

/// What becomes of statements of the same boxes: from the first that has some to the end of its list, or that one alone where others have other boxes.
type Each<'a> = dyn FnMut(&Boxes, Vec<Stmt>, &Env) -> Result<Vec<Stmt>> + 'a;

/// The lists of statements of which not all columns are used.
struct Lists<'a> {
    /// The number of a thread.
    thread: Option<Var>,
    each: &'a mut Each<'a>,
}

impl Lists<'_> {
    fn list(&mut self, mut body: Vec<Stmt>, env: &Env) -> Result<Vec<Stmt>> {
        let known = |s: &Stmt| Boxes::of(std::slice::from_ref(s), env).filter(|boxes| boxes.are_outside(s));
        if let Some((at, own)) = body.iter().enumerate().find_map(|(at, s)| Some((at, known(s)?))) {
            let whole = Boxes::of(&body[at..], env).filter(|b| body[at..].iter().all(|s| b.are_outside(s)));
            let end = if whole.is_some() { body.len() } else { at + 1 + leading(body[at + 1..].iter(), is_end) };
            // With the fence before a group of MMAs, and its commit and wait: ptxas closes a group where branches meet (C7519). And with the waits at the start
            // of the kernel: the code behind the branch is fetched meanwhile.
            let start = at - leading(body[..at].iter().rev(), is_start);
            let (behind, group) = (body.split_off(end), body.split_off(start));
            body.extend((self.each)(&whole.unwrap_or(own), group, env)?);
            body.extend(self.list(behind, env)?);
        }
        for stmt in &mut body {
            let mut inner = env.clone();
            match &*stmt {
                Stmt::For(l) => inner.bind_loop(l.var, &l.extent),
                Stmt::Role(role) => {
                    let threads = i64::from(role.warps) * LANES;
                    self.thread.into_iter().for_each(|thread| inner.bind(thread, 0, threads - 1));
                }
                _ => {}
            }
            for child in visit::children_mut(stmt) {
                *child = self.list(std::mem::take(child), &inner)?;
            }
        }
        Ok(body)
    }
}

/// How many statements come first that are so.
fn leading<'s>(body: impl Iterator<Item = &'s Stmt>, so: impl Fn(&Stmt) -> bool) -> usize {
    body.take_while(|s| so(s)).count()
}

/// Whether a statement is the commit or the wait after MMAs.
fn is_end(stmt: &Stmt) -> bool {
    matches!(stmt, Stmt::Sync(Sync { kind: SyncKind::ProductCommit | SyncKind::ProductWait { .. }, .. }))
}

/// Whether a statement is the fence before MMAs, or orders the kernel behind those before it.
fn is_start(stmt: &Stmt) -> bool {
    is_fence(stmt) || matches!(stmt, Stmt::Sync(Sync { kind: SyncKind::GridWait | SyncKind::GridRelease, .. }))
}

/// Whether a statement is the fence before MMAs.
fn is_fence(stmt: &Stmt) -> bool {
    matches!(stmt, Stmt::Sync(Sync { kind: SyncKind::ProductFence, .. }))
}

/// The boxes of operand B that hold rows below the size.
#[derive(Debug, Clone)]
pub struct Boxes {
    /// How many: all where the whole tile is inside of the array, none where it is beyond it.
    pub count: Index,
    /// Rows of one.
    rows: i64,
    /// All of them.
    pub all: i64,
}

impl Boxes {
    /// Those of the MMAs of some statements, or of the loads in a loop of a producer, if they are the same for all.
    fn of(body: &[Stmt], env: &Env) -> Option<Boxes> {
        let (mut found, mut same): (Option<(Columns, i64)>, bool) = (None, true);
        let alone = matches!(body, [Stmt::For(_)]) || matches!(body, [only] if is_load(only));
        let (mut loads, mut alike): (Option<(Index, i64)>, bool) = (None, alone);
        visit::walk(body, &mut |s| match s {
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

    /// How many there are at least and at most.
    pub fn range(&self, env: &Env) -> (i64, i64) {
        let (low, high) = simplify::bounds(&self.count, env).unwrap_or((0, self.all));
        (low.clamp(0, self.all), high.clamp(0, self.all))
    }

    /// The statements for each number of boxes, where there are so many. A block of a cluster may have none: it loads what others read, too.
    fn divide(
        &self,
        group: &[Stmt],
        env: &Env,
        maps: &mut Vec<TensorMap>,
        (ring, elsewhere, sizes): (Option<&Ring>, &[BufferId], &[Var]),
    ) -> Result<Vec<Stmt>> {
        let (low, high) = self.range(env);
        let ring = ring.filter(|ring| ring.is_of(group));
        let alone = || (low..=high).map(|n| (among(&self.count, n, low..=high), n, n)).collect();
        let cases = ring.and_then(|ring| ring.cases((low, high))).unwrap_or_else(alone);
        let mut out = Vec::new();
        for (cond, count, of_ring) in cases {
            let mut body = self.with(group, count, env, maps)?;
            if let Some(ring) = ring {
                let lost = || bug(Code::LowerFragments, "the stages of a ring have no place");
                body = ring.at(of_ring, body, env).ok_or_else(lost)?;
            }
            if low < high {
                body = undefined::left_out(
                    body,
                    (&sums(group), elsewhere),
                    (maps, sizes),
                    &self.env_of(count, env, sizes),
                );
                body.iter_mut().for_each(keep_loops_of_loads);
            }
            if !body.is_empty() {
                out.extend(guarded(cond, body));
            }
        }
        Ok(out)
    }

    /// The ranges of indices where there are so many: the values of the dynamic size that alone decides it.
    fn env_of(&self, count: i64, env: &Env, sizes: &[Var]) -> Env {
        let mut inner = env.clone();
        let size = sizes.iter().find(|size| self.count.mentions(**size));
        if let Some((size, (low, high))) = size.and_then(|size| Some((*size, env.range(*size)?))) {
            let so_many = |m: &i64| self.count.eval(&|v| (v == size).then_some(*m)) == Some(count);
            if let (Some(low), Some(high)) = ((low..=high).find(so_many), (low..=high).rev().find(so_many)) {
                inner.bind(size, low, high);
            }
        }
        inner
    }

    /// The statements for so many boxes.
    fn with(&self, body: &[Stmt], count: i64, env: &Env, maps: &mut Vec<TensorMap>) -> Result<Vec<Stmt>> {
        let body = body.iter().map(|s| self.changed(s.clone(), count, env, maps)).collect::<Result<Vec<_>>>()?;
        let known = &mut |i: &Index| self.known(i, count).map_or_else(|| i.clone(), |i| simplify::simplify(&i, env));
        Ok(visit::map_body(body.into_iter().flatten().collect(), known, &mut |e| e))
    }

    /// Whether a loop loads or stores the boxes.
    fn counts(&self, l: &For, env: &Env) -> bool {
        let guarded = matches!(l.body.as_slice(), [Stmt::If(_)]);
        guarded && rings::iterations(l).is_some_and(|n| simplify::simplify(&n, env) == self.count)
    }

    /// The loops over the boxes.
    pub fn each_loop(&self, body: &[Stmt], env: &Env, f: &mut dyn FnMut(&For)) {
        visit::walk(body, &mut |s| {
            if let Stmt::For(l) = s
                && self.counts(l, env)
            {
                f(l);
            }
        });
    }

    /// MMAs of so many columns, and loads of so many boxes; nothing where there are none.
    fn changed(&self, mut stmt: Stmt, count: i64, env: &Env, maps: &mut Vec<TensorMap>) -> Result<Vec<Stmt>> {
        match &mut stmt {
            Stmt::Call(call) if call.columns.is_some() => match count {
                0 => return Ok(Vec::new()),
                _ => narrow(call, count * self.rows)?,
            },
            Stmt::For(l) if self.counts(l, env) => {
                if count == 0 {
                    return Ok(Vec::new());
                }
                l.extent = Index::Int(count);
                let inside = l.body.pop();
                l.body = if let Some(Stmt::If(guard)) = inside { guard.body } else { Vec::new() };
                if let Some(all) = all_joined(l, count, maps) {
                    return Ok(all);
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
        Ok(if empty { Vec::new() } else { vec![stmt] })
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

/// Each copy of the boxes of a loop as one, if all can be.
fn all_joined(l: &For, boxes: i64, maps: &mut Vec<TensorMap>) -> Option<Vec<Stmt>> {
    let mut known = maps.clone();
    let one = |s: &Stmt| Some(Stmt::Bulk(joined(l.var, s, boxes, &mut known)?));
    let all = l.body.iter().map(one).collect::<Option<_>>()?;
    *maps = known;
    Some(all)
}

/// The boxes of a loop as one, by a tensor map with so many times as many rows, if they follow one another in the array and in shared memory.
fn joined(box_var: Var, copy: &Stmt, boxes: i64, maps: &mut Vec<TensorMap>) -> Option<BulkCopy> {
    let Stmt::Bulk(copy) = copy else { return None };
    let map = maps.get(copy.map as usize)?;
    let dim = copy.coordinates.iter().position(|i| i.mentions(box_var))?;
    let first: visit::Map = [(box_var, Index::Int(0))].into();
    // The index moves by so much from one box to the next, and by nothing else.
    let moves = |i: &Index, step: i64| {
        let sum = simplify::affine(i);
        let alone = |(atom, _): &(Index, i64)| *atom == Index::Var(box_var) || !atom.mentions(box_var);
        sum.coefficient(box_var) == step && sum.terms.iter().all(alone)
    };
    let [place] = copy.indices.as_slice() else { return None };
    let follow = moves(&copy.coordinates[dim], map.tile[dim]) && moves(place, map.tile.iter().product());
    let alone =
        copy.coordinates[dim + 1..].iter().all(|i| !i.mentions(box_var)) && map.tile[..dim].iter().all(|n| *n == 1);
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

    /// Statements of the same boxes are one group; of different ones each is one, with its fence and its wait.
    #[test]
    fn statements_of_the_same_boxes_are_one_group() {
        let size = Var(9);
        let mma = |columns: i64, k: u32| {
            let call = Call {
                row: format!("wgmma.m64n{columns}k16.f32.f16.f16"),
                operands: Vec::new(),
                adds: None,
                columns: Some(Columns { below: Index::Var(size), unit: columns / 4 }),
            };
            Stmt::For(For::new(Var(k), 4, LoopKind::Serial, vec![Stmt::Call(call)]))
        };
        let sync = |kind: SyncKind| Stmt::Sync(kind.because(""));
        let (fence, wait) = (sync(SyncKind::ProductFence), sync(SyncKind::ProductWait { groups: 0 }));
        let mut env = Env::new();
        env.bind(size, 1, 64);
        let groups = |body: Vec<Stmt>| {
            let mut found = Vec::new();
            let each = &mut |boxes: &Boxes, group: Vec<Stmt>, _: &Env| {
                found.push((boxes.rows, boxes.all, group.len()));
                Ok(Vec::new())
            };
            let left = Lists { thread: None, each }.list(body, &env).unwrap();
            (found, left.len())
        };
        let before = sync(SyncKind::Block);
        let alike =
            vec![before.clone(), fence.clone(), mma(64, 0), wait.clone(), before.clone(), mma(64, 1), wait.clone()];
        assert_eq!(groups(alike), (vec![(16, 4, 6)], 1));
        let different = vec![before.clone(), fence, mma(64, 0), wait.clone(), before, mma(128, 1), wait];
        assert_eq!(groups(different), (vec![(16, 4, 3), (32, 4, 2)], 2));
    }

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
        let joined = |l: &For, boxes: i64, maps: &mut Vec<TensorMap>| joined(l.var, &l.body[0], boxes, maps);
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
