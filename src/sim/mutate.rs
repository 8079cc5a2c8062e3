//! Lowered programs with one thing wrong, to measure what the checks find (hidden from the documentation).
//!
//! [`mutants`] damages each synchronisation, guard, access, slot, store, loop, vector width and place in shared memory of a
//! program, one at a time. A mutant is what a faulty pass could have made: it may break every promise of
//! [`LoweredKernel`] except that its indices are flat. Few mutants are equal to the program in what they compute; that
//! must then be shown of each.

mod barriers;
mod bulk;
mod calls;
mod divergence;
mod launch;
mod roles;

use crate::ir::lowered::{Lowered, LoweredKernel};
use crate::ir::{
    BufferId, Cond, Expr, Func, Index, Peers, Remote, Scope, Stmt, Store, Sync, SyncKind, print, simplify, visit,
};
use std::collections::{BTreeMap, BTreeSet};

/// A damaged program.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// The class of damage, for counting.
    pub kind: &'static str,
    /// What was damaged, with the program's names. No two mutants of a program have both kind and description alike.
    pub what: String,
    /// The program.
    pub lowered: Lowered,
}

impl Mutant {
    /// Its kind and what was damaged.
    pub fn description(&self) -> String {
        format!("{}: {}", self.kind, self.what)
    }
}

/// Says of mutants that are described alike which place of the text, counted from its top, each one damages.
fn tell_apart(mutants: &mut [Mutant]) {
    let mut all: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (n, mutant) in mutants.iter().enumerate() {
        all.entry(mutant.description()).or_default().push(n);
    }
    for alike in all.into_values().filter(|alike| alike.len() > 1) {
        for (n, at) in alike.iter().enumerate() {
            mutants[*at].what += &format!(" (place {} of {})", n + 1, alike.len());
        }
    }
}

/// Every mutant of a program, in the order of its text.
pub fn mutants(lowered: &Lowered) -> Vec<Mutant> {
    let mut out = Vec::new();
    for (number, kernel) in lowered.kernels.iter().enumerate() {
        let mut add = |kind, what: String, damaged: LoweredKernel| {
            let mut lowered = lowered.clone();
            lowered.kernels[number] = damaged;
            out.push(Mutant { kind, what, lowered });
        };
        for change in changes(kernel, &kernel.func.body) {
            let mut damaged = kernel.clone();
            damaged.func.body = change.body;
            add(change.kind, change.what, damaged);
        }
        for (what, damaged) in launch::plans(kernel) {
            add("shared memory", what, damaged);
        }
        for (what, damaged) in launch::launches(kernel) {
            add("launch", what, damaged);
        }
        for (what, damaged) in bulk::maps(kernel) {
            add("map", what, damaged);
        }
        for (what, damaged) in barriers::counts(kernel) {
            add("arrival count", what, damaged);
        }
        for (what, damaged) in launch::walks(kernel) {
            add("walk", what, damaged);
        }
        for (n, id) in kernel.exchanged.iter().enumerate() {
            let mut damaged = kernel.clone();
            damaged.exchanged.remove(n);
            add("exchanged", format!("{} is not exchanged", kernel.func.buffer(*id).name), damaged);
        }
        for (kind, what, damaged) in roles::mutants(kernel) {
            add(kind, what, damaged);
        }
    }
    tell_apart(&mut out);
    out
}

/// A list of statements with one thing changed.
struct Change {
    kind: &'static str,
    what: String,
    body: Vec<Stmt>,
}

fn change(kind: &'static str, what: impl Into<String>, body: Vec<Stmt>) -> Change {
    Change { kind, what: what.into(), body }
}

/// Every change of a list: of its order, of a statement, and inside a statement.
fn changes(kernel: &LoweredKernel, body: &[Stmt]) -> Vec<Change> {
    let mut out = Vec::new();
    for (n, stmt) in body.iter().enumerate() {
        let put = |c: Change| Change { body: [&body[..n], &c.body, &body[n + 1..]].concat(), ..c };
        out.extend(alone(kernel, stmt).into_iter().map(put));
        out.extend(inside(kernel, stmt).into_iter().map(put));
        // A commit further down, but in front of the same wait, takes copies into a group that is waited for earlier.
        if let (Stmt::Sync(sync), Some(next)) = (stmt, body.get(n + 1))
            && (sync.kind != SyncKind::Commit || matches!(next, Stmt::Sync(Sync { kind: SyncKind::Wait { .. }, .. })))
            // Bytes may land before they are expected; and when the next kernel begins is a matter of time alone.
            && !sync.kind.is_hint()
            && !matches!(sync.kind, SyncKind::Expect { .. } | SyncKind::GridRelease)
        {
            out.extend(swapped(body, n).map(|b| change(moved(sync), format!("{} moved down", name(sync)), b)));
        }
        out.extend(barriers::early(body, n));
        out.extend(barriers::left_early(&kernel.func, body, n));
        // A wait further up waits for no less.
        if let Some(Stmt::Sync(sync)) = body.get(n + 1)
            && !sync.kind.is_hint()
            && !matches!(
                (stmt, &sync.kind),
                (Stmt::Sync(_), _) | (_, SyncKind::Wait { .. } | SyncKind::Await { .. } | SyncKind::GridWait)
            )
        {
            out.extend(swapped(body, n).map(|b| change(moved(sync), format!("{} moved up", name(sync)), b)));
        }
    }
    out
}

/// A list with two neighbours exchanged; nothing where both are of one kind.
fn swapped(body: &[Stmt], n: usize) -> Option<Vec<Stmt>> {
    if let (Stmt::Sync(a), Stmt::Sync(b)) = (&body[n], &body[n + 1])
        && moved(a) == moved(b)
    {
        return None;
    }
    let mut body = body.to_vec();
    body.swap(n, n + 1);
    Some(body)
}

fn moved(sync: &Sync) -> &'static str {
    match sync.kind {
        SyncKind::Commit | SyncKind::ProductCommit | SyncKind::BulkCommit => "commit moved",
        SyncKind::Wait { .. }
        | SyncKind::ProductWait { .. }
        | SyncKind::BulkWait { .. }
        | SyncKind::Await { .. }
        | SyncKind::GridWait
        | SyncKind::GridRelease => "wait moved",
        SyncKind::ProxyFence | SyncKind::ProductFence => "fence moved",
        SyncKind::InitBarriers
        | SyncKind::Expect { .. }
        | SyncKind::Arrive { .. }
        | SyncKind::Prefetch { .. }
        | SyncKind::PrefetchLine { .. }
        | SyncKind::PrefetchMap { .. }
        | SyncKind::Narrow { .. } => "arrival moved",
        SyncKind::Block | SyncKind::Warp | SyncKind::Warpgroup | SyncKind::Cluster | SyncKind::ClusterRelaxed => {
            "barrier moved"
        }
    }
}

fn name(sync: &Sync) -> String {
    let groups = match &sync.kind {
        SyncKind::Wait { groups } | SyncKind::ProductWait { groups } | SyncKind::BulkWait { groups, .. } => {
            format!(" {groups}")
        }
        _ => String::new(),
    };
    format!("{}{groups} ({})", sync.kind.word(), sync.reason)
}

/// The changes of the statements below a statement.
fn inside(kernel: &LoweredKernel, stmt: &Stmt) -> Vec<Change> {
    let mut out = Vec::new();
    for (n, child) in visit::children(stmt).into_iter().enumerate() {
        for c in changes(kernel, child) {
            let mut whole = stmt.clone();
            if let Some(place) = visit::children_mut(&mut whole).into_iter().nth(n) {
                *place = c.body;
            }
            out.push(Change { body: vec![whole], ..c });
        }
    }
    out
}

/// What can be wrong with a statement itself.
fn alone(kernel: &LoweredKernel, stmt: &Stmt) -> Vec<Change> {
    let func = &kernel.func;
    match stmt {
        Stmt::Sync(sync) => {
            let divergent = divergence::divergent(func, sync);
            syncs(sync).into_iter().chain(bulk::arrivals(kernel, sync)).chain(divergent).collect()
        }
        Stmt::If(i) => {
            let text = format!("if {}", print::cond(func, &i.cond));
            let mut out = vec![change("guard removed", format!("`{text}` removed"), i.body.clone())];
            for cond in shifted_bounds(&i.cond) {
                let what = format!("`{text}` became `if {}`", print::cond(func, &cond));
                let mut i = i.clone();
                i.cond = cond;
                out.push(change("guard moved", what, vec![Stmt::If(i)]));
            }
            out
        }
        Stmt::For(l) => looped(func, l),
        Stmt::Store(s) => stores(kernel, s),
        Stmt::Call(call) => calls::damaged(func, call),
        Stmt::Bulk(copy) => bulk::copies(kernel, copy),
        Stmt::Elect(e) => bulk::elected(e),
        Stmt::Block(_) | Stmt::Role(_) => Vec::new(),
    }
}

/// What can be wrong with synchronisation: that it is missing, or orders less.
fn syncs(sync: &Sync) -> Vec<Change> {
    let missing = |kind| change(kind, format!("{} removed", name(sync)), Vec::new());
    let weaker = |kind, how: String, weak: Sync| change(kind, format!("{} {how}", name(sync)), vec![Stmt::Sync(weak)]);
    let because = |does: SyncKind| does.because(sync.reason.clone());
    let weak_wait = |groups: u32, weak: SyncKind| {
        vec![missing("wait removed"), weaker("wait weakened", format!("allows {groups} in flight"), because(weak))]
    };
    match sync.kind {
        SyncKind::Warp => vec![missing("barrier removed")],
        SyncKind::Block | SyncKind::Warpgroup => {
            vec![
                missing("barrier removed"),
                weaker("barrier weakened", "of the warp only".into(), because(SyncKind::Warp)),
            ]
        }
        SyncKind::Cluster | SyncKind::ClusterRelaxed => {
            vec![
                missing("barrier removed"),
                weaker("barrier weakened", "of the block only".into(), because(SyncKind::Block)),
            ]
        }
        SyncKind::Commit | SyncKind::ProductCommit | SyncKind::BulkCommit => vec![missing("commit removed")],
        SyncKind::ProxyFence | SyncKind::ProductFence => vec![missing("fence removed")],
        SyncKind::InitBarriers | SyncKind::Expect { .. } | SyncKind::Arrive { .. } => vec![missing("arrival removed")],
        SyncKind::Await { .. } | SyncKind::GridWait => vec![missing("wait removed")],
        // Hints.
        SyncKind::GridRelease
        | SyncKind::Prefetch { .. }
        | SyncKind::PrefetchLine { .. }
        | SyncKind::PrefetchMap { .. }
        | SyncKind::Narrow { .. } => vec![],
        SyncKind::Wait { groups } => weak_wait(groups + 1, SyncKind::Wait { groups: groups + 1 }),
        SyncKind::ProductWait { groups } => weak_wait(groups + 1, SyncKind::ProductWait { groups: groups + 1 }),
        SyncKind::BulkWait { groups, read } => weak_wait(groups + 1, SyncKind::BulkWait { groups: groups + 1, read }),
    }
}

/// One iteration more or less; a barrier at either end of the body outside of it.
fn looped(func: &Func, l: &crate::ir::For) -> Vec<Change> {
    let name_of = func.var_name(l.var);
    let mut out = Vec::new();
    for by in [-1, 1] {
        if let Some(extent) = l.extent.as_int().filter(|n| n + by > 0) {
            let mut l = l.clone();
            l.extent = Index::Int(extent + by);
            // The other number of iterations has other copies.
            l.code.copies = None;
            let what = format!("loop {name_of} runs {}, not {extent}", crate::error::counted(extent + by, "time"));
            out.push(change("loop", what, vec![Stmt::For(l)]));
        }
    }
    if let Some(Stmt::Sync(sync)) = l.body.first()
        && !sync.kind.is_hint()
    {
        let mut rest = l.clone();
        let first = rest.body.remove(0);
        let what = format!("{} moved up out of loop {name_of}", name(sync));
        out.push(change(moved(sync), what, vec![first, Stmt::For(rest)]));
    }
    if let Some(Stmt::Sync(sync)) = l.body.last()
        && !sync.kind.is_hint()
    {
        let mut rest = l.clone();
        let last = rest.body.pop();
        let what = format!("{} moved down out of loop {name_of}", name(sync));
        out.push(change(moved(sync), what, [Stmt::For(rest)].into_iter().chain(last).collect()));
    }
    out
}

/// A condition with each right-hand side one less and one more.
fn shifted_bounds(cond: &Cond) -> Vec<Cond> {
    match cond {
        Cond::Const(_) => Vec::new(),
        Cond::Cmp(op, a, b) => [-1, 1].map(|by| Cond::cmp(*op, a.clone(), b.clone() + by)).into(),
        Cond::And(a, b) | Cond::Or(a, b) => {
            let rebuild = |a: Cond, b: Cond| match cond {
                Cond::And(..) => Cond::And(Box::new(a), Box::new(b)),
                _ => Cond::Or(Box::new(a), Box::new(b)),
            };
            let left = shifted_bounds(a).into_iter().map(|a| rebuild(a, (**b).clone()));
            left.chain(shifted_bounds(b).into_iter().map(|b| rebuild((**a).clone(), b))).collect()
        }
        Cond::Not(a) => shifted_bounds(a).into_iter().map(|a| Cond::Not(Box::new(a))).collect(),
    }
}

/// What can be wrong with a store: that it is missing, where it goes, what it reads, how wide it is.
fn stores(kernel: &LoweredKernel, s: &Store) -> Vec<Change> {
    let func = &kernel.func;
    let line = |s: &Store| print::stmts(func, &[Stmt::Store(s.clone())]).trim().to_string();
    let text = line(s);
    let became = |kind, new: Store| change(kind, format!("`{text}` became `{}`", line(&new)), vec![Stmt::Store(new)]);
    let init = matches!(s.value, Expr::Const(..) | Expr::Splat(..));
    let mut out =
        vec![change(if init { "init removed" } else { "store removed" }, format!("`{text}` removed"), vec![])];
    for by in [-1, 1] {
        let mut moved = s.clone();
        moved.indices.iter_mut().for_each(|i| *i = i.clone() + by * i64::from(s.lanes));
        out.push(became("write moved", moved));
        out.extend(
            moved_loads(&s.value, by).into_iter().map(|value| became("read moved", Store { value, ..s.clone() })),
        );
    }
    for value in shifted_conditions(&s.value) {
        out.push(became("guard moved", Store { value, ..s.clone() }));
    }
    if let (Some((_, load)), true) = (s.value.zero_filled(), s.asynchronous) {
        out.push(became("guard removed", Store { value: load.clone(), ..s.clone() }));
    }
    out.extend(other_peers(kernel, s).into_iter().map(|s| became("broadcast", s)));
    out.extend(other_slots(func, s).into_iter().map(|s| became("stage", s)));
    if let Some(index) = bulk::next_slot(kernel, &s.indices[0]) {
        out.push(became("stage", Store { indices: vec![index], ..s.clone() }));
    }
    let elsewhere =
        each(&s.value, &|e| match e {
            Expr::Load { buffer, indices, lanes } => bulk::next_slot(kernel, indices.first()?)
                .map(|index| Expr::Load { buffer: *buffer, indices: vec![index], lanes: *lanes }),
            _ => None,
        });
    out.extend(elsewhere.into_iter().map(|value| became("stage", Store { value, ..s.clone() })));
    if let Some(indices) = calls::unswizzled(&s.indices) {
        out.push(became("swizzle", Store { indices, ..s.clone() }));
    }
    let straight = each(&s.value, &|e| match e {
        Expr::Load { buffer, indices, lanes } => {
            calls::unswizzled(indices).map(|indices| Expr::Load { buffer: *buffer, indices, lanes: *lanes })
        }
        _ => None,
    });
    // A lane gives its value to another one than the reduction needs, or keeps it.
    let other = each(&s.value, &|e| match e {
        Expr::Shuffle(mask, a) => Some(Expr::Shuffle(if *mask > 1 { mask / 2 } else { 2 }, a.clone())),
        _ => None,
    });
    let kept = each(&s.value, &|e| match e {
        Expr::Shuffle(_, a) => Some(a.as_ref().clone()),
        _ => None,
    });
    out.extend(other.into_iter().chain(kept).map(|value| became("shuffle", Store { value, ..s.clone() })));
    out.extend(straight.into_iter().map(|value| became("swizzle", Store { value, ..s.clone() })));
    if s.lanes > 1 {
        let value = halved(&s.value, s.lanes);
        out.push(became("lanes halved", Store { value, lanes: s.lanes / 2, ..s.clone() }));
        let mut shifted = s.clone();
        shifted.indices.iter_mut().for_each(|i| *i = i.clone() + 1);
        out.push(became("lanes shifted", shifted));
    }
    out
}

/// The same store to the thread's own block, and to other blocks than it is for.
fn other_peers(kernel: &LoweredKernel, s: &Store) -> Vec<Store> {
    let Some(to) = &s.remote else { return Vec::new() };
    let peers = match &to.peers {
        Peers::First(blocks) => Peers::First(blocks - 1),
        Peers::One(rank) => Peers::One((rank.clone() + 1).floormod(i64::from(kernel.cluster()))),
    };
    let elsewhere = Remote { peers, ..to.clone() };
    [None, Some(elsewhere)].map(|remote| Store { remote, ..s.clone() }).into()
}

/// The accesses of a store that go to a slot of a pipelined stage, each in the slot after it.
fn other_slots(func: &Func, s: &Store) -> Vec<Store> {
    let next = |buffer: BufferId, index: &Index| next_slot(func, buffer, index);
    let to = next(s.buffer, &s.indices[0]).map(|index| Store { indices: vec![index], ..s.clone() });
    let from = each(&s.value, &|e| match e {
        Expr::Load { buffer, indices, lanes } => {
            next(*buffer, &indices[0]).map(|index| Expr::Load { buffer: *buffer, indices: vec![index], lanes: *lanes })
        }
        _ => None,
    });
    to.into_iter().chain(from.into_iter().map(|value| Store { value, ..s.clone() })).collect()
}

/// The same place in the slot after it.
fn next_slot(func: &Func, buffer: BufferId, index: &Index) -> Option<Index> {
    let (step, slots) = slots(func, buffer)?;
    let constant = simplify::affine(index).constant;
    let by = if constant.div_euclid(step) == slots - 1 { -step * (slots - 1) } else { step };
    Some(index.clone() + by)
}

/// The size and the number of the slots of a shared buffer, if there are several: what a stage writes in different copies
/// of its statement lies whole slots apart.
fn slots(func: &Func, buffer: BufferId) -> Option<(i64, i64)> {
    let mut starts: BTreeMap<Vec<(Index, i64)>, BTreeSet<i64>> = BTreeMap::new();
    visit::walk(&func.body, &mut |stmt| {
        if let Stmt::Store(s) = stmt
            && s.buffer == buffer
            && func.buffer(buffer).scope == Scope::Shared
        {
            let at = simplify::affine(&s.indices[0]);
            starts.entry(at.terms).or_default().insert(at.constant);
        }
    });
    let offsets: Vec<i64> = starts.into_values().find(|s| s.len() > 1)?.into_iter().collect();
    Some((offsets[1] - offsets[0], offsets.len() as i64))
}

/// A value with the `nth` expression that `of` knows replaced, for each n.
fn each(value: &Expr, of: &dyn Fn(&Expr) -> Option<Expr>) -> Vec<Expr> {
    let mut count = 0;
    visit::walk_expr(value, &mut |e| count += usize::from(of(e).is_some()));
    let replace = |n: usize| {
        let mut seen = 0;
        visit::map_expr(value, &mut Index::clone, &mut |e| match of(&e) {
            Some(new) => {
                seen += 1;
                if seen == n + 1 { new } else { e }
            }
            None => e,
        })
    };
    (0..count).map(replace).collect()
}

/// Each read one vector further on, or back.
fn moved_loads(value: &Expr, by: i64) -> Vec<Expr> {
    each(value, &|e| match e {
        Expr::Load { buffer, indices, lanes } => {
            let indices = indices.iter().map(|i| i.clone() + by * i64::from(*lanes)).collect();
            Some(Expr::Load { buffer: *buffer, indices, lanes: *lanes })
        }
        _ => None,
    })
}

fn shifted_conditions(value: &Expr) -> Vec<Expr> {
    let nth = |n: usize| {
        each(value, &|e| match e {
            Expr::Cond(c) => shifted_bounds(c).into_iter().nth(n).map(|c| Expr::Cond(Box::new(c))),
            _ => None,
        })
    };
    (0..).map(nth).take_while(|some| !some.is_empty()).flatten().collect()
}

fn halved(value: &Expr, lanes: u32) -> Expr {
    visit::map_expr(value, &mut Index::clone, &mut |e| match e {
        Expr::Load { buffer, indices, lanes: n } if n == lanes => Expr::Load { buffer, indices, lanes: lanes / 2 },
        Expr::Splat(n, a) if n == lanes => Expr::Splat(lanes / 2, a),
        other => other,
    })
}
