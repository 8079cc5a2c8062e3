//! Which threads run a statement: one thread for itself, or the 32 lanes of a warp together.
//!
//! A nest that is one instruction, and a statement that touches a fragment, belong to the warp, or to the warpgroup where the
//! kernel has warpgroups; every other statement belongs to a thread.
//!
//! Every thread of an axis would run a statement that writes shared or global memory and mentions no variable of the axis: it runs on
//! thread 0 of the axis instead; on lane 0 of each warp if it mentions a warp loop. A variable that occurs in conditions alone counts
//! as not mentioned where thread 0 meets them if any thread does. A statement of the warp that writes memory and mentions no warp
//! loop runs on warp 0. Cooperative staged buffers follow the same rule with their own bound loops.

use crate::error::{Code, Error, Result, Subject};
use crate::intrin::{self, Level};
use crate::ir::lowered::threads::{self, LANES, WARPGROUP};
use crate::ir::lowered::{LaunchAxis, LoweredKernel};
use crate::ir::simplify::{Env, prove, simplify_cond};
use crate::ir::{Axis, Block, BlockId, BufferId, Cond, For, Func, Index, LoopKind, Scope, Stmt, Var, visit};
use crate::lower::data::bulk;
use crate::lower::map::bind::{mentions, store_mentions};
use crate::lower::map::blocks::guarded;
use std::collections::BTreeMap;

/// The bound axes of a kernel with their extents, and the loop that said so first.
pub type Found = Vec<(Axis, u32, String)>;

/// Replaces the warps among the axes by the threads that they come to.
pub fn warps_to_threads(func: &Func, found: &mut Found) -> Result<()> {
    let mut take = |axis| found.iter().position(|(a, ..)| *a == axis).map(|at| found.remove(at));
    let (mut warps, groups) = (take(Axis::Warp), take(Axis::Warpgroup));
    let grouped = has_warpgroups(&func.body);
    if let Some((_, n, name)) = warps.as_ref().filter(|(_, n, _)| grouped && *n != 4) {
        let message = format!("loop {name} is bound to {n} warps in a kernel of warpgroups, which have 4 each");
        return Err(Error::input(Code::LowerWarps, message)
            .about_loop(name)
            .help(format!("split {name} so that its bound part has extent 4")));
    }
    if warps.is_none() && groups.is_none() && !grouped && !has_statements_of_warps(func) {
        return Ok(());
    }
    if grouped {
        let by_warps = warps.take().map(|(axis, _, name)| (axis, 1, name));
        let groups = groups.or(by_warps).unwrap_or((Axis::Warpgroup, 1, func.name.clone()));
        warps = Some((Axis::Warp, groups.1.saturating_mul(4), groups.2));
    }
    let extent = |axis| found.iter().find(|(a, ..)| *a == axis).map(|(_, n, _)| u64::from(*n));
    let axes = [Axis::ThreadX, Axis::ThreadY, Axis::ThreadZ];
    if axes.into_iter().all(|a| extent(a).is_none()) {
        let (_, n, name) = warps.unwrap_or((Axis::Warp, 1, func.name.clone()));
        found.push((Axis::ThreadX, n.saturating_mul(LANES as u32), name));
        return Ok(());
    }
    let threads = axes.into_iter().filter_map(extent).fold(1u64, u64::saturating_mul);
    if !threads.is_multiple_of(LANES as u64) {
        let message = format!("warps work together in a kernel of {threads} threads a block, no multiple of 32");
        return Err(Error::input(Code::LowerWarps, message).about(Subject::Threads).help(
            "the lanes of a warp are 32 consecutive threads, threadIdx.x fastest: bind loops to threadIdx whose \
             extents make whole warps",
        ));
    }
    match warps {
        Some((_, _, name)) if grouped && !threads.is_multiple_of(WARPGROUP as u64) => {
            let message =
                format!("warpgroups work together ({name}) in a block of {threads} threads, no multiple of 128");
            Err(Error::input(Code::LowerWarps, message)
                .about(Subject::Threads)
                .help("bind loops to threadIdx whose extents make whole warpgroups"))
        }
        Some((_, n, name)) if u64::from(n) * LANES as u64 != threads && !alone(func, grouped) => {
            let by_warps = u64::from(n) * LANES as u64;
            let message = format!("the {n} warps of loop {name} are {by_warps} threads, the threadIdx loops {threads}");
            Err(Error::input(Code::LowerWarps, message)
                .about(Subject::Threads)
                .help("all nests of a kernel run on the same threads: split the loops so"))
        }
        _ => Ok(()),
    }
}

/// Whether the warpgroups of the kernel are told apart by no loop: those that the threads come to.
fn alone(func: &Func, grouped: bool) -> bool {
    grouped && !visit::loops(&func.body).iter().any(|l| l.axis() == Some(Axis::Warpgroup))
}

/// Whether warpgroups work together somewhere.
pub fn has_warpgroups(body: &[Stmt]) -> bool {
    let of_groups = |row: &str| intrin::find(row).is_some_and(|r| r.level == Level::Warpgroup);
    let works = |l: &For| l.axis() == Some(Axis::Warpgroup) || l.tensorize.as_ref().is_some_and(|t| of_groups(&t.row));
    visit::loops(body).into_iter().any(works)
}

fn has_statements_of_warps(func: &Func) -> bool {
    let tensorized = visit::loops(&func.body).iter().any(|l| l.tensorize.is_some());
    // The thread that starts bulk copies is elected among the lanes of a warp.
    tensorized || visit::blocks(&func.body).iter().any(|b| bulk::is_bulk(b) || touches_fragment(func, b))
}

fn touches_fragment(func: &Func, block: &Block) -> bool {
    let touched = visit::reads(&block.body).into_iter().chain(visit::writes(&block.body));
    touched.into_iter().any(|b| func.buffer(b).scope == Scope::Fragment)
}

/// What runs a block: a thread or a warp, each for itself or one of them for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A thread.
    Thread,
    /// A thread for its whole warp.
    ThreadOfWarp,
    /// A warp.
    Warp,
    /// A warp for the whole block.
    WarpOfBlock,
    /// A thread for its whole warpgroup.
    ThreadOfGroup,
    /// A warpgroup for the whole block.
    GroupOfBlock,
}

/// What runs each block.
pub type Units = BTreeMap<BlockId, Unit>;

/// What runs each block of a program whose loops are still bound.
pub fn of(func: &Func) -> Result<Units> {
    let mut find = Find { func, grouped: has_warpgroups(&func.body), around: Vec::new(), units: Units::new() };
    find.body(&func.body, false)?;
    Ok(find.units)
}

struct Find<'a> {
    func: &'a Func,
    /// There are warpgroups.
    grouped: bool,
    /// The bound loops around.
    around: Vec<(Axis, Var)>,
    units: Units,
}

impl Find<'_> {
    /// `together` says whether a nest is one instruction.
    fn body(&mut self, body: &[Stmt], together: bool) -> Result<()> {
        for stmt in body {
            let outside = self.around.len();
            let mut inside = together;
            match stmt {
                Stmt::For(l) => {
                    inside |= l.tensorize.is_some();
                    if let LoopKind::Bound { axis, .. } = l.kind {
                        // A loop of one iteration does not distinguish threads.
                        let several = l.defines().into_iter().filter(|(_, extent)| extent.as_int() != Some(1));
                        self.around.extend(several.map(|(var, _)| (axis, var)));
                    }
                }
                Stmt::Block(b) => {
                    let unit = self.block(b, together)?;
                    self.units.insert(b.name, unit);
                }
                _ => {}
            }
            for child in visit::children(stmt) {
                self.body(child, inside)?;
            }
            self.around.truncate(outside);
        }
        Ok(())
    }

    fn block(&self, block: &Block, together: bool) -> Result<Unit> {
        let together = together || touches_fragment(self.func, block);
        let spoken =
            |axis: Axis| self.around.iter().find(|(a, v)| *a == axis && mentions(&block.body, *v)).map(|x| x.1);
        let thread = [Axis::ThreadX, Axis::ThreadY, Axis::ThreadZ].into_iter().find_map(spoken);
        let (warp, group) = (spoken(Axis::Warp), spoken(Axis::Warpgroup));
        let (name, var) = (self.func.block_name(block.name), |v: Var| self.func.var_name(v));
        let message = match (together, warp, thread) {
            (true, _, None) if self.grouped && group.is_some() => return Ok(Unit::Warp),
            (true, _, None) if self.grouped => return Ok(Unit::GroupOfBlock),
            (true, Some(_), None) => return Ok(Unit::Warp),
            (true, None, None) => return Ok(Unit::WarpOfBlock),
            (false, None, None) if group.is_some() => return Ok(Unit::ThreadOfGroup),
            (false, Some(_), None) => return Ok(Unit::ThreadOfWarp),
            (false, None, _) => return Ok(Unit::Thread),
            (true, _, Some(t)) => {
                format!("the lanes of a warp run block {name} together, but it mentions thread loop {}", var(t))
            }
            (false, Some(w), Some(t)) => format!(
                "block {name} mentions both warp loop {} and thread loop {}, which count the same threads",
                var(w),
                var(t)
            ),
        };
        let loops = thread.into_iter().chain(warp.filter(|_| !together));
        let error = Error::input(Code::LowerLevels, message).about_block(name);
        Err(loops
            .fold(error, |e, v| e.about_loop(var(v)))
            .help(
                "keep the loops of a nest on a fragment, or of one instruction, unbound: they are distributed over \
                   the lanes",
            )
            .help("or bind the loops of the block to threads alone"))
    }
}

/// Guards the blocks that not every thread may run; no loop is bound any more.
pub fn elect(kernel: &mut LoweredKernel, units: &Units) {
    let body = std::mem::take(&mut kernel.func.body);
    let mut env = Env::with_loops(visit::loops(&body));
    let all = kernel.launch.iter().chain(kernel.roles.iter().flat_map(|r| &r.axes));
    all.for_each(|x| env.bind(x.var, 0, i64::from(x.extent) - 1));
    let func = &kernel.func;
    let body = visit::rewrite(body, &mut |s| match s {
        Stmt::Block(b) => {
            let unit = units.get(&b.name).copied().unwrap_or(Unit::Thread);
            let launch = kernel.axes_of(b.role);
            vec![Stmt::Block(elected(b, unit, func, launch, &env))]
        }
        other => vec![other],
    });
    kernel.func.body = body;
}

/// Guards a block that writes what others share and would be run by several units.
fn elected(block: Block, unit: Unit, func: &Func, launch: &[LaunchAxis], env: &Env) -> Block {
    let shared = |b: &BufferId| func.buffer(*b).scope.is_of_several_threads();
    if !visit::writes(&block.body).iter().any(shared) || bulk::is_bulk(&block) {
        return block;
    }
    if unit != Unit::Warp && !visit::writes(&block.body).iter().all(shared) {
        // Each thread stores in its own registers; what others share is for one of them.
        let body = apart(block.body.clone(), func, &mut |body| {
            elected(Block { body, ..block.clone() }, unit, func, launch, env).body
        });
        return Block { body, ..block };
    }
    let guard = match unit {
        Unit::Warp => return block,
        Unit::Thread => return first_thread(block, launch, env),
        Unit::ThreadOfWarp => Cond::eq(threads::lane(launch), 0),
        Unit::WarpOfBlock => Cond::eq(threads::warp(launch), 0),
        Unit::ThreadOfGroup => Cond::eq(threads::thread_of_group(launch), 0),
        Unit::GroupOfBlock => simplify_cond(&Cond::eq(threads::warpgroup(launch), 0), &threads::ranges(launch)),
    };
    Block { body: guarded(guard, block.body), ..block }
}

/// A body whose statements write registers, or memory that threads share, with `elect` done to each run of the latter. A condition
/// around both goes to each, since what is elected depends on it.
fn apart(body: Vec<Stmt>, func: &Func, elect: &mut dyn FnMut(Vec<Stmt>) -> Vec<Stmt>) -> Vec<Stmt> {
    let mut out = Vec::new();
    for (is_shared, run) in runs(body, func) {
        match is_shared {
            true => out.extend(elect(run)),
            false => out.extend(run.into_iter().map(|mut stmt| {
                let mixed = matches!(stmt, Stmt::For(_));
                for child in visit::children_mut(&mut stmt).into_iter().filter(|_| mixed) {
                    *child = apart(std::mem::take(child), func, elect);
                }
                stmt
            })),
        }
    }
    out
}

/// Statements in runs of those that write what threads share alone, and others.
fn runs(body: Vec<Stmt>, func: &Func) -> Vec<(bool, Vec<Stmt>)> {
    let shared = |b: &BufferId| func.buffer(*b).scope.is_of_several_threads();
    let mut out: Vec<(bool, Vec<Stmt>)> = Vec::new();
    let mut add = |is_shared: bool, stmts: Vec<Stmt>| match out.last_mut() {
        Some((last, run)) if *last == is_shared => run.extend(stmts),
        _ => out.push((is_shared, stmts)),
    };
    for stmt in body {
        let written = visit::writes(std::slice::from_ref(&stmt));
        let (all, any) = (written.iter().all(shared), written.iter().any(shared));
        match stmt {
            Stmt::If(i) if any && !all => {
                for (is_shared, run) in runs(i.body, func) {
                    add(is_shared, guarded(i.cond.clone(), run));
                }
            }
            stmt => add(any && all, vec![stmt]),
        }
    }
    out
}

/// Where the block leaves a thread axis out, its first thread does it for all.
fn first_thread(block: Block, launch: &[LaunchAxis], env: &Env) -> Block {
    let one = |x: &&LaunchAxis| x.extent > 1 && !x.axis.is_block_level() && first_does_all(&block.body, x.var, env);
    let axes: Vec<&LaunchAxis> = launch.iter().filter(one).collect();
    if axes.is_empty() {
        return block;
    }
    let guard = axes.iter().fold(Cond::TRUE, |all, x| all.and(Cond::eq(x.var, 0)));
    let first: visit::Map = axes.iter().map(|x| (x.var, Index::Int(0))).collect();
    Block { body: guarded(guard, visit::subst_body(block.body.clone(), &first)), ..block }
}

/// Whether every thread of the axis does the same, or nothing, and the first does it whenever any of them does.
fn first_does_all(body: &[Stmt], var: Var, env: &Env) -> bool {
    let mut all = true;
    visit::walk(body, &mut |s| match s {
        Stmt::Store(s) => all &= !store_mentions(s, var),
        Stmt::If(i) => all &= i.cond.conjuncts().into_iter().all(|part| holds_first(part, var, env)),
        Stmt::For(l) => all &= !l.extent.mentions(var),
        _ => {}
    });
    all
}

/// Whether a condition that holds for any value of the variable holds for 0.
fn holds_first(part: &Cond, var: Var, env: &Env) -> bool {
    if !part.mentions(var) {
        return true;
    }
    let mut known = env.clone();
    known.assume(part);
    prove(&visit::subst_cond(part, &[(var, Index::Int(0))].into()), &known)
}
