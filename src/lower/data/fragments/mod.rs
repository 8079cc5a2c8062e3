//! Nests that are one instruction become calls, and the elements of fragments go to the lanes and registers that hold them.
//!
//! A fragment's layout is the tile of an instruction that uses it, repeated over the buffer ([`Fragment`]). Every other
//! instruction on it must find its elements in the same lanes; registers may be numbered otherwise, because a call names
//! each of its registers. A fragment that no instruction uses lies as another one in a nest with it (`beside`). Elementwise
//! nests are shared out by those layouts (`distribute`). Afterwards a fragment is a local
//! buffer: an array of elements per lane.

mod beside;
mod descriptor;
mod distribute;
mod instruction;
mod tile;

use crate::error::{Code, Error, Result};
use crate::intrin::{self, Init, Row};
use crate::ir::lowered::threads;
use crate::ir::lowered::{LaunchAxis, LoadedRows, LoweredKernel};
use crate::ir::simplify::{self, Env};
use crate::ir::{BufferId, Cond, Expr, For, Func, Index, RoleId, Scope, Stmt, Store, visit};
use crate::lower::bug;
use crate::lower::map::units;
use crate::target::Target;
use std::collections::BTreeMap;
use tile::{Fragment, Use};

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let mut loops = kernel.env();
    visit::loops(&kernel.func.body).into_iter().for_each(|l| loops.bind_loop(l.var, &l.extent));
    // Only warps of a warpgroup hold a fragment together.
    let grouped = units::has_warpgroups(&kernel.func.body);
    let of = |axes: &[LaunchAxis]| Threads::of(axes, grouped);
    let threads = of(&kernel.launch);
    let roles: BTreeMap<RoleId, Threads> = kernel.roles.iter().map(|r| (r.role, of(&r.axes))).collect();
    let uses = uses(&kernel.func, &loops, &threads, &roles)?;
    let mut fragments = BTreeMap::new();
    let of = |id: BufferId| uses.iter().filter(|u| u.buffer == id).collect::<Vec<&Use>>();
    let (used, unused): (Vec<_>, Vec<_>) = fragments_of(&kernel.func).into_iter().partition(|id| !of(*id).is_empty());
    for id in used {
        fragments.insert(id, Fragment::of(&kernel.func, id, &of(id))?);
    }
    let (body, env) = (std::mem::take(&mut kernel.func.body), kernel.env());
    let loaded = std::mem::take(&mut kernel.loaded);
    let mut pass =
        Fragments { func: &mut kernel.func, threads, roles, loops, fragments, loaded, aligned: BTreeMap::new() };
    pass.lay_beside(&body, &env, unused)?;
    let body = pass.body(body, &env)?;
    let (fragments, aligned) = (pass.fragments, pass.aligned);
    kernel.func.body = body;
    for (id, align) in aligned {
        let buffer = kernel.func.buffer_mut(id);
        buffer.align = buffer.align.max(align);
    }
    for (id, fragment) in fragments {
        let buffer = kernel.func.buffer_mut(id);
        (buffer.scope, buffer.shape) = (Scope::Local, vec![Index::Int(fragment.elements)]);
    }
    Ok(())
}

/// The fragments that the kernel touches.
fn fragments_of(func: &Func) -> Vec<BufferId> {
    let mut all = visit::reads(&func.body);
    all.extend(visit::writes(&func.body));
    all.retain(|b| func.buffer(*b).scope == Scope::Fragment);
    all.sort_unstable();
    all.dedup();
    all
}

/// What the instructions of the kernel ask of fragments, in the order of the text.
fn uses(func: &Func, loops: &Env, threads: &Threads, roles: &BTreeMap<RoleId, Threads>) -> Result<Vec<Use>> {
    let mut out = Vec::new();
    for l in visit::loops(&func.body).into_iter().filter(|l| l.tensorize.is_some()) {
        let nest = Nest::of(func, l, loops)?;
        let threads = visit::role_of(&l.body).and_then(|role| roles.get(&role)).unwrap_or(threads);
        for played in &nest.played {
            out.extend(Use::of(func, nest.row, played, &threads.axes));
        }
    }
    Ok(out)
}

/// Whether everything that reads a stage are MMAs with a dimension of it as their columns, from its first row to its last, of which there are
/// instructions with every smaller number of columns that is a multiple of `unit`.
pub(super) fn only_columns(func: &Func, body: &[Stmt], (stage, dim): (BufferId, usize), unit: i64) -> bool {
    let mut loops = Env::default();
    visit::loops(body).into_iter().for_each(|l| loops.bind_loop(l.var, &l.extent));
    let columns = |l: &For| {
        Nest::of(func, l, &loops).is_ok_and(|nest| {
            let mut of = nest.played.iter().filter(|p| p.buffer == stage);
            let (first, more) = (of.next(), of.next());
            more.is_none() && first.is_some_and(|p| are_columns(func, nest.row, p, dim, unit))
        })
    };
    readers(body, stage, &mut |s| matches!(s, Stmt::For(l) if l.tensorize.is_some() && columns(l)))
}

/// Whether `f` holds for all instructions and other statements that read a buffer.
fn readers(body: &[Stmt], buffer: BufferId, f: &mut dyn FnMut(&Stmt) -> bool) -> bool {
    body.iter().filter(|s| visit::reads(std::slice::from_ref(*s)).contains(&buffer)).all(|s| match s {
        Stmt::For(l) if l.tensorize.is_some() => f(s),
        Stmt::For(_) | Stmt::Block(_) | Stmt::If(_) | Stmt::Elect(_) | Stmt::Role(_) => {
            visit::children(s).into_iter().all(|c| readers(c, buffer, f))
        }
        other => f(other),
    })
}

/// Whether an operand is B of an MMA of warpgroups, with its columns along a dimension, all of it.
fn are_columns(func: &Func, row: &Row, played: &intrin::Played, dim: usize, unit: i64) -> bool {
    let extent = row.columns();
    let whole = func.buffer(played.buffer).shape.get(dim).and_then(Index::as_int) == Some(extent);
    let of_b = row.is_asynchronous() && row.operands[played.operand].name == "B" && played.along.first() == Some(&dim);
    of_b && whole && (1..extent / unit).all(|n| row.with_columns(n * unit).is_some())
}

/// A nest that is one instruction.
struct Nest<'a> {
    row: &'static Row,
    played: Vec<intrin::Played>,
    /// The conditions under which it runs.
    conds: Vec<&'a Cond>,
    /// Whether it adds to what its result held, where it can leave that out.
    adds: Option<Cond>,
    /// The label around its statement.
    label: Option<&'a crate::ir::Block>,
}

impl<'a> Nest<'a> {
    fn of(func: &Func, l: &'a For, loops: &Env) -> Result<Nest<'a>> {
        let name = func.var_name(l.var);
        let broken = |what: &str| bug(Code::LowerFragments, format!("the nest of {name} {what}")).about_loop(name);
        let placed = l.tensorize.as_ref().ok_or_else(|| broken("is no instruction"))?;
        let row = intrin::find(&placed.row).ok_or_else(|| broken("is an instruction that does not exist"))?;
        let mut leaf = Leaf::default();
        let store = leaf.of(&l.body, row).ok_or_else(|| broken("holds more than one statement"))?;
        let played = intrin::play(store, row, &placed.dims, loops)?;
        let played = played.ok_or_else(|| broken(&format!("is not {}", row.name)))?;
        let start: visit::Map = placed.dims.iter().map(|(_, v)| (*v, Index::Int(0))).collect();
        let adds = leaf.init.map(|first| {
            let first = Cond::Not(Box::new(visit::subst_cond(first, &start)));
            simplify::simplify_cond(&first, loops)
        });
        Ok(Nest { row, played, conds: leaf.conds, adds, label: leaf.label })
    }
}

/// What stands around the one statement of a nest.
#[derive(Default)]
struct Leaf<'a> {
    conds: Vec<&'a Cond>,
    label: Option<&'a crate::ir::Block>,
    /// Where the sum starts, if the instruction starts it.
    init: Option<&'a Cond>,
}

impl<'a> Leaf<'a> {
    /// The one statement; an instruction that can leave its accumulator out also takes the start of the sum.
    fn of(&mut self, body: &'a [Stmt], row: &Row) -> Option<&'a Store> {
        match body {
            [Stmt::For(l)] => self.of(&l.body, row),
            [Stmt::Block(b)] => {
                self.label = Some(b);
                self.of(&b.body, row)
            }
            [Stmt::If(first), Stmt::Store(s)] if row.init == Init::ScaleD => {
                self.init = Some(&first.cond);
                matches!(first.body.as_slice(), [Stmt::Store(zero)] if zero.buffer == s.buffer).then_some(s)
            }
            // A sum of one step starts with it.
            [Stmt::Store(zero), Stmt::Store(s)] if row.init == Init::ScaleD && zero.buffer == s.buffer => {
                self.init = Some(&Cond::TRUE);
                Some(s)
            }
            [Stmt::If(i)] => {
                self.conds.push(&i.cond);
                self.of(&i.body, row)
            }
            [Stmt::Store(s)] => Some(s),
            _ => None,
        }
    }
}

/// Calls `f` on every access outside of instructions.
fn body_accesses(body: &[Stmt], f: &mut dyn FnMut(BufferId, &[Index])) {
    for stmt in body {
        match stmt {
            Stmt::For(l) if l.tensorize.is_some() => {}
            Stmt::Store(s) => {
                f(s.buffer, &s.indices);
                visit::walk_expr(&s.value, &mut |e| {
                    if let Expr::Load { buffer, indices, .. } = e {
                        f(*buffer, indices);
                    }
                });
            }
            other => visit::children(other).into_iter().for_each(|c| body_accesses(c, f)),
        }
    }
}

/// The threads that run statements: those of the kernel, or of a role.
#[derive(Clone)]
struct Threads {
    /// The number of the lane that runs.
    lane: Index,
    /// The number of its thread in the warpgroup.
    thread: Index,
    /// The axes, where warps of a warpgroup hold fragments together.
    axes: Vec<LaunchAxis>,
}

impl Threads {
    fn of(axes: &[LaunchAxis], grouped: bool) -> Threads {
        let own = if grouped { axes.to_vec() } else { Vec::new() };
        Threads { lane: threads::lane(axes), thread: threads::thread_of_group(axes), axes: own }
    }
}

struct Fragments<'k> {
    func: &'k mut Func,
    /// The threads that run the statements of the list that the pass is in.
    threads: Threads,
    /// Those of each role.
    roles: BTreeMap<RoleId, Threads>,
    /// The ranges of all loops.
    loops: Env,
    fragments: BTreeMap<BufferId, Fragment>,
    /// The stages of which only rows below a dynamic size are loaded.
    loaded: Vec<LoadedRows>,
    /// Bytes that instructions ask of the addresses of buffers: what a caller of the kernel must keep to.
    aligned: BTreeMap<BufferId, u32>,
}

impl Fragments<'_> {
    fn body(&mut self, body: Vec<Stmt>, env: &Env) -> Result<Vec<Stmt>> {
        let mut out = Vec::with_capacity(body.len());
        for stmt in body {
            let role = visit::role_of(std::slice::from_ref(&stmt));
            let own = role.and_then(|role| self.roles.get(&role)).cloned().unwrap_or_else(|| self.threads.clone());
            let around = std::mem::replace(&mut self.threads, own);
            out.extend(self.statement(stmt, env)?);
            self.threads = around;
        }
        Ok(out)
    }

    fn statement(&mut self, stmt: Stmt, env: &Env) -> Result<Vec<Stmt>> {
        Ok(vec![match stmt {
            Stmt::For(l) if l.tensorize.is_some() => self.call(&l, env)?,
            Stmt::For(l) if self.is_shared_out(&l) => return self.distribute(l, env),
            Stmt::For(mut l) => {
                let mut inner = env.clone();
                inner.bind_loop(l.var, &l.extent);
                l.body = self.body(l.body, &inner)?;
                Stmt::For(l)
            }
            Stmt::Block(mut b) => {
                b.body = self.body(b.body, env)?;
                Stmt::Block(b)
            }
            Stmt::If(mut i) => {
                let mut inner = env.clone();
                inner.assume(&i.cond);
                i.body = self.body(i.body, &inner)?;
                Stmt::If(i)
            }
            Stmt::Store(s) => self.alone(s)?,
            other => other,
        }])
    }

    /// A statement that no loop shares out may not touch a fragment.
    fn alone(&self, store: Store) -> Result<Stmt> {
        let body = [Stmt::Store(store)];
        let touched = visit::reads(&body).into_iter().chain(visit::writes(&body));
        if let Some((id, fragment)) = touched.into_iter().find_map(|b| self.fragments.get_key_value(&b)) {
            let (name, row) = (&self.func.buffer(*id).name, fragment.row);
            let message =
                format!("a statement accesses single elements of fragment {name}, whose layout is that of {row}");
            return Err(Error::input(Code::LowerFragment, message)
                .about_buffer(name)
                .help("only nests over whole tiles of a fragment can be distributed over its lanes"));
        }
        let [stmt] = body;
        Ok(stmt)
    }
}
