//! Promise 15 in time: a unit has written what it reads before it reads it.
//!
//! In sequence a program is right, so some unit has written each value by then. Where units part the work of a statement
//! that runs in many iterations, one of them may write in all iterations what it reads in each, and yet come too late: what
//! it reads first another one has written. So a reader is followed to the list of statements where it parts from what
//! writes. The loops around that list are at one iteration there. What precedes the reader in the lists around it has
//! run, and so has all that ran in earlier iterations. The threads of a unit go through a list next to each other: loops over them
//! have run in full. That is proved with boxes, or decided iteration by iteration of the reader ([`super::cover`]).

use super::cover::{Earlier, covered, element};
use super::exact::{accumulates, continues, dense_writes};
use super::points::{Ranged, sample};
use super::sites::{Touched, Touches, elements, sites};
use crate::ir::decide::Verdict;
use crate::ir::region::{Region, Touch, contains, touched};
use crate::ir::simplify::Env;
use crate::ir::visit::{Map, blocks, loops, reads, rewrite, subst_body, writes};
use crate::ir::{Block, BufferId, Cond, For, Func, Index, IterKind, LoopKind, Stmt, Var};
use std::slice::from_ref;

/// Whether a unit provably has written what it reads when it reads it. `body` is what one unit runs.
pub fn in_time(func: &Func, body: &[Stmt], buffer: BufferId, env: &Env) -> bool {
    let summed = blocks(body).iter().any(|b| accumulates(b, buffer));
    Proof { func, buffer, summed }.list(body, env, &[], &mut Vec::new())
}

/// The statements in the loops, outermost first.
fn within<'l>(around: impl DoubleEndedIterator<Item = &'l For>, body: Vec<Stmt>) -> Vec<Stmt> {
    around.rev().fold(body, |body, l| vec![Stmt::For(For { body, ..hollow(l) })])
}

/// The loop without what is in it.
fn hollow(l: &For) -> For {
    For { raster: l.raster.clone(), ..For::new(l.var, l.extent.clone(), LoopKind::Serial, Vec::new()) }
}

struct Proof<'a> {
    func: &'a Func,
    buffer: BufferId,
    /// Some block adds to what another one has begun.
    summed: bool,
}

type Boxes = Vec<(bool, Region)>;

impl<'a> Proof<'a> {
    /// `written` are boxes that have been written before the list runs, as [`dense_writes`] gives them; `threads` the loops
    /// around whose iterations run next to each other.
    fn list(&self, body: &'a [Stmt], env: &Env, written: &[(bool, Region)], threads: &mut Vec<&'a For>) -> bool {
        let mut written: Boxes = written.to_vec();
        body.iter().all(|stmt| {
            let holds = self.stmt(stmt, env, &written, threads);
            written.extend(dense_writes(self.func, from_ref(stmt), self.buffer, env));
            if !threads.is_empty() {
                let by_all = within(threads.iter().copied(), vec![stmt.clone()]);
                written.extend(dense_writes(self.func, &by_all, self.buffer, env));
            }
            holds
        })
    }

    fn stmt(&self, stmt: &'a Stmt, env: &Env, written: &[(bool, Region)], threads: &mut Vec<&'a For>) -> bool {
        let Some(read) = touched(self.func, from_ref(stmt), self.buffer, Touch::Reads, env) else { return true };
        let inside = |sums| written.iter().any(|(s, b)| *s == sums && contains(b, &read, env));
        if inside(false) && (!self.needs_sums(stmt) || inside(true)) {
            return true;
        }
        match stmt {
            Stmt::For(l) => {
                let mut env = env.clone();
                l.defines().iter().for_each(|(var, extent)| env.bind_loop(*var, extent));
                let depth = threads.len();
                threads.extend(l.is_of_threads().then_some(l));
                let holds = self.list(&l.body, &env, written, threads);
                threads.truncate(depth);
                holds
            }
            // It begins each sum before it adds to it.
            Stmt::Block(b) => b.init.is_some() && continues(b, self.buffer),
            _ => false,
        }
    }

    /// Whether something in the statement reads sums, and not just to add to them.
    fn needs_sums(&self, stmt: &Stmt) -> bool {
        let ends = |b: &&Block| reads(&b.body).contains(&self.buffer) && !continues(b, self.buffer);
        self.summed && blocks(from_ref(stmt)).iter().any(ends)
    }
}

/// An element that a unit reads and has not written by then.
pub struct Late {
    /// Its indices.
    pub element: Vec<i64>,
    /// The iteration in which it is read.
    pub at: Vec<Ranged>,
}

/// The first element that is found to be read too early in what one unit runs, in which no other variable is free. None
/// too if there are too many to count.
pub fn late(body: &[Stmt], buffer: BufferId, budget: &mut i64) -> Option<Late> {
    let body = parted(body.to_vec());
    let summed = blocks(&body).iter().any(|b| accumulates(b, buffer));
    Count { buffer, summed, budget, path: Vec::new() }.all(&body).err()?
}

/// What is known of a unit's reads in time.
pub enum Timed {
    /// All of them come after the writes.
    Proved,
    /// In the unit at these values one is too early.
    Late(Vec<Ranged>, Late),
    /// Not decided.
    Undecided,
}

/// Whether each unit has written what it reads when it reads it. `body` is what a unit runs, `shared` are the variables that tell
/// units apart.
pub fn decide(body: &[Stmt], buffer: BufferId, shared: &[Ranged]) -> Timed {
    let body = parted(body.to_vec());
    let summed = blocks(&body).iter().any(|b| accumulates(b, buffer));
    let mut decided = true;
    let mut ask = Ask { buffer, summed, shared, decided: &mut decided, path: Vec::new() };
    match ask.all(&body) {
        Err(late) => Timed::Late(late.0, late.1),
        Ok(()) if decided => Timed::Proved,
        Ok(()) => Timed::Undecided,
    }
}

/// Follows readers as [`Count`] does, and asks about all iterations at once.
struct Ask<'a, 'b> {
    buffer: BufferId,
    summed: bool,
    shared: &'b [Ranged],
    decided: &'b mut bool,
    path: Vec<Frame<'a>>,
}

type Asked = Result<(), (Vec<Ranged>, Late)>;

impl<'a> Ask<'a, '_> {
    fn all(&mut self, body: &'a [Stmt]) -> Asked {
        readers(body, self.buffer).into_iter().try_for_each(|(path, stmt)| {
            self.path = path;
            self.reader(stmt)
        })
    }

    fn reader(&mut self, stmt: &'a Stmt) -> Asked {
        let around: Vec<&For> = self.path.iter().filter_map(|f| f.around).collect();
        let read = sites(&within(around.iter().copied(), vec![stmt.clone()]), self.buffer);
        let (Some(read), Some(written)) = (read, self.earlier()) else {
            *self.decided = false;
            return Ok(());
        };
        let of =
            |touches: Touches| written.iter().filter(|w| w.site.touches == touches).cloned().collect::<Vec<Earlier>>();
        let (writers, sums) = (of(Touches::Writes), of(Touches::Sums));
        for site in read.iter().filter(|s| matches!(s.touches, Touches::Reads | Touches::Continues)) {
            let summed = self.summed && site.touches == Touches::Reads;
            for by in [Some(&writers), summed.then_some(&sums)].into_iter().flatten() {
                match covered(site, self.shared, by) {
                    Verdict::Proved => {}
                    Verdict::Undecided => *self.decided = false,
                    Verdict::Refuted(point) => {
                        let timed: Vec<Var> = around
                            .iter()
                            .filter(|l| !l.is_of_threads())
                            .flat_map(|l| l.defines())
                            .map(|d| d.0)
                            .collect();
                        let part = |of: &dyn Fn(Var) -> bool| point.iter().filter(|(v, _)| of(*v)).copied().collect();
                        let unit = part(&|v| self.shared.iter().any(|(w, _)| *w == v));
                        let at = part(&|v| timed.contains(&v));
                        return Err((unit, Late { element: element(site, &point), at }));
                    }
                }
            }
        }
        Ok(())
    }

    /// What has been written before the reader; `None` where an extent is no constant.
    fn earlier(&self) -> Option<Vec<Earlier>> {
        let threads: Vec<&For> = self.path.iter().filter_map(|f| f.around).filter(|l| l.is_of_threads()).collect();
        let mut out = Vec::new();
        let mut add = |piece: Vec<Stmt>, before: Option<Index>| {
            let inside: Vec<Var> = loops(&piece).iter().map(|l| l.var).collect();
            let around = threads.iter().copied().filter(|l| !inside.contains(&l.var)).collect::<Vec<&For>>();
            let found = sites(&within(around.into_iter(), piece), self.buffer)?;
            let written = found.into_iter().filter(|s| matches!(s.touches, Touches::Writes | Touches::Sums));
            out.extend(written.map(|site| Earlier { own: site.vars.clone(), site, before: before.clone() }));
            Some(())
        };
        for frame in self.path.iter().rev() {
            add(frame.body[..frame.at].to_vec(), None)?;
            if let Some(l) = frame.around.filter(|l| !l.is_of_threads()) {
                add(within(std::iter::once(l), frame.body.to_vec()), Some(l.number()))?;
            }
        }
        Some(out)
    }
}

/// The body with blocks that begin and continue sums taken for two.
fn parted(body: Vec<Stmt>) -> Vec<Stmt> {
    rewrite(body, &mut |stmt| match stmt {
        Stmt::Block(mut b) if b.init.is_some() => {
            let reduced = b.iters.iter().filter(|it| it.kind == IterKind::Reduce);
            let predicate = reduced.fold(b.predicate.clone(), |all, it| all.and(Cond::eq(it.binding.clone(), 0)));
            let begins = Block { body: b.init.take().unwrap_or_default(), predicate, ..b.clone() };
            vec![Stmt::Block(begins), Stmt::Block(b)]
        }
        stmt => vec![stmt],
    })
}

/// A list of statements around a reader.
#[derive(Clone, Copy)]
struct Frame<'a> {
    /// The loop whose body it is.
    around: Option<&'a For>,
    body: &'a [Stmt],
    /// Which of the statements holds the reader.
    at: usize,
}

/// The statements that read a buffer, in program order, each with the statement lists around it, outermost first. A loop that
/// only reads the buffer counts as one statement.
fn readers(body: &[Stmt], buffer: BufferId) -> Vec<(Vec<Frame<'_>>, &Stmt)> {
    fn collect<'a>(list: Frame<'a>, path: &[Frame<'a>], buffer: BufferId, out: &mut Vec<(Vec<Frame<'a>>, &'a Stmt)>) {
        for (at, stmt) in list.body.iter().enumerate().filter(|(_, s)| reads(from_ref(s)).contains(&buffer)) {
            let path = [path, &[Frame { at, ..list }]].concat();
            match stmt {
                Stmt::For(l) if writes(&l.body).contains(&buffer) => {
                    collect(Frame { around: Some(l), body: &l.body, at: 0 }, &path, buffer, out);
                }
                _ => out.push((path, stmt)),
            }
        }
    }
    let mut out = Vec::new();
    collect(Frame { around: None, body, at: 0 }, &[], buffer, &mut out);
    out
}

struct Count<'a, 'b> {
    buffer: BufferId,
    summed: bool,
    budget: &'b mut i64,
    path: Vec<Frame<'a>>,
}

/// Why no more is counted: an element read too early, or `None` where the budget is spent or an extent is not known.
type Counted = Result<(), Option<Late>>;

/// How many iterations of the loops around a reader are tried.
const ITERATIONS: usize = 12;

impl<'a> Count<'a, '_> {
    fn all(&mut self, body: &'a [Stmt]) -> Counted {
        readers(body, self.buffer).into_iter().try_for_each(|(path, stmt)| {
            self.path = path;
            self.reader(stmt)
        })
    }

    /// The loops around that are at one iteration at a time.
    fn timed(&self) -> Vec<&'a For> {
        self.path.iter().filter_map(|f| f.around).filter(|l| !l.is_of_threads()).collect()
    }

    fn reader(&mut self, stmt: &'a Stmt) -> Counted {
        let extent = |(var, extent): (_, Index)| Some((var, extent.as_int()?));
        let vars: Option<Vec<Ranged>> = self.timed().iter().flat_map(|l| l.defines()).map(extent).collect();
        let Some(vars) = vars else { return Err(None) };
        let mut tried: Vec<Vec<Ranged>> = Vec::new();
        for at in sample(&vars, 2).into_iter().take(ITERATIONS) {
            if !tried.contains(&at) {
                self.iteration(stmt, at.clone())?;
                tried.push(at);
            }
        }
        Ok(())
    }

    fn iteration(&mut self, stmt: &Stmt, at: Vec<Ranged>) -> Counted {
        let found = self.elements(vec![stmt.clone()], &at)?;
        let (mut reads, mut continued) = (found.reads, found.continued);
        let mut unsummed = if self.summed { reads.clone() } else { Default::default() };
        for before in self.before(&at) {
            if reads.is_empty() && continued.is_empty() && unsummed.is_empty() {
                return Ok(());
            }
            let found = self.elements(before, &at)?;
            [&mut reads, &mut continued].into_iter().for_each(|set| set.retain(|e| !found.writes.contains(e)));
            unsummed.retain(|e| found.sums.as_ref().is_none_or(|sums| !sums.contains(e)));
        }
        let missing = reads.into_iter().chain(continued).chain(unsummed).min();
        missing.map_or(Ok(()), |element| Err(Some(Late { element, at })))
    }

    /// What has run before an iteration, piece by piece: what precedes the reader, from the innermost list on; then the
    /// earlier iterations, from the innermost loop on.
    fn before(&self, at: &[Ranged]) -> Vec<Vec<Stmt>> {
        let same = self.path.iter().rev().map(|f| f.body[..f.at].to_vec());
        let earlier = self.path.iter().rev().filter_map(|f| {
            let l = f.around.filter(|l| !l.is_of_threads())?;
            let now = |v| at.iter().find(|(w, _)| *w == v).map_or(0, |(_, x)| *x);
            let first = l.defines().iter().all(|(v, _)| now(*v) == 0);
            // Of pairs that are walked in groups all may have been.
            let extent = if l.raster.is_some() { l.extent.clone() } else { Index::Int(now(l.var)) };
            (!first).then(|| vec![Stmt::For(For { extent, body: f.body.to_vec(), ..hollow(l) })])
        });
        same.chain(earlier).map(|body| self.writers(body)).collect()
    }

    /// Leaves out what does not write the buffer.
    fn writers(&self, body: Vec<Stmt>) -> Vec<Stmt> {
        rewrite(body, &mut |s| match s {
            Stmt::Block(b) if !writes(&b.body).contains(&self.buffer) => Vec::new(),
            Stmt::For(l) if l.body.is_empty() => Vec::new(),
            s => vec![s],
        })
    }

    /// What a piece touches in an iteration of the loops around, for all threads.
    fn elements(&mut self, piece: Vec<Stmt>, at: &[Ranged]) -> Result<Touched, Option<Late>> {
        let inside: Vec<Var> = loops(&piece).iter().flat_map(|l| l.defines()).map(|(v, _)| v).collect();
        let threads =
            self.path.iter().filter_map(|f| f.around).filter(|l| l.is_of_threads() && !inside.contains(&l.var));
        let threads: Vec<&For> = threads.collect();
        let map: Map = at.iter().filter(|(v, _)| !inside.contains(v)).map(|(v, x)| (*v, Index::Int(*x))).collect();
        elements(&subst_body(within(threads.into_iter(), piece), &map), self.buffer, self.budget).ok_or(None)
    }
}
