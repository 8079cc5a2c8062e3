//! Nests that are one instruction become calls, and the elements of fragments go to the lanes and registers that hold them.
//!
//! A fragment's layout is the tile of an instruction that uses it, repeated over the buffer ([`Fragment`]). Every other
//! instruction on it must find its elements in the same lanes; registers may be numbered otherwise, because a call names
//! each of its registers. A fragment that no instruction uses lies as another one in a nest with it (`beside`). Elementwise
//! nests are shared out by those layouts (`distribute`). Afterwards a fragment is a local
//! buffer: an array of elements per lane.

mod beside;
mod distribute;
mod instruction;
mod tile;

use super::{LoweredKernel, bug};
use crate::error::{Error, Result};
use crate::intrin::{self, Row};
use crate::ir::simplify::Env;
use crate::ir::{BufferId, Cond, Expr, For, Func, Index, Scope, Stmt, Store, visit};
use crate::target::Target;
use std::collections::BTreeMap;
use tile::{Fragment, Use};

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let mut loops = kernel.env();
    visit::loops(&kernel.func.body).into_iter().for_each(|l| loops.bind_loop(l.var, &l.extent));
    let uses = uses(&kernel.func, &loops)?;
    let mut fragments = BTreeMap::new();
    let of = |id: BufferId| uses.iter().filter(|u| u.buffer == id).collect::<Vec<&Use>>();
    let (used, unused): (Vec<_>, Vec<_>) = fragments_of(&kernel.func).into_iter().partition(|id| !of(*id).is_empty());
    for id in used {
        fragments.insert(id, Fragment::of(&kernel.func, id, &of(id))?);
    }
    let lane = kernel.lane();
    let (body, env) = (std::mem::take(&mut kernel.func.body), kernel.env());
    let mut pass = Fragments { func: &mut kernel.func, lane, loops, fragments, aligned: BTreeMap::new() };
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
fn uses(func: &Func, loops: &Env) -> Result<Vec<Use>> {
    let mut out = Vec::new();
    for l in visit::loops(&func.body).into_iter().filter(|l| l.tensorize.is_some()) {
        let nest = Nest::of(func, l, loops)?;
        for played in &nest.played {
            out.extend(Use::of(func, nest.row, played));
        }
    }
    Ok(out)
}

/// A nest that is one instruction.
struct Nest<'a> {
    row: &'static Row,
    played: Vec<intrin::Played>,
    /// The conditions under which it runs.
    conds: Vec<&'a Cond>,
    /// The label around its statement.
    label: Option<&'a crate::ir::Block>,
}

impl<'a> Nest<'a> {
    fn of(func: &Func, l: &'a For, loops: &Env) -> Result<Nest<'a>> {
        let name = func.var_name(l.var);
        let broken = |what: &str| bug("fragments", format!("the nest of {name} {what}"));
        let placed = l.tensorize.as_ref().ok_or_else(|| broken("is no instruction"))?;
        let row = intrin::find(&placed.row).ok_or_else(|| broken("is an instruction that does not exist"))?;
        let (mut conds, mut label) = (Vec::new(), None);
        let store = leaf(&l.body, &mut conds, &mut label).ok_or_else(|| broken("holds more than one statement"))?;
        let played = intrin::play(store, row, &placed.dims, loops)?;
        let played = played.ok_or_else(|| broken(&format!("is not {}", row.name)))?;
        Ok(Nest { row, played, conds, label })
    }
}

/// The one statement of a nest, with the conditions and the label around it.
fn leaf<'a>(
    body: &'a [Stmt],
    conds: &mut Vec<&'a Cond>,
    label: &mut Option<&'a crate::ir::Block>,
) -> Option<&'a Store> {
    match body {
        [Stmt::For(l)] => leaf(&l.body, conds, label),
        [Stmt::Block(b)] => {
            *label = Some(b);
            leaf(&b.body, conds, label)
        }
        [Stmt::If(i)] => {
            conds.push(&i.cond);
            leaf(&i.body, conds, label)
        }
        [Stmt::Store(s)] => Some(s),
        _ => None,
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

struct Fragments<'k> {
    func: &'k mut Func,
    /// The number of the lane that runs.
    lane: Index,
    /// The ranges of all loops.
    loops: Env,
    fragments: BTreeMap<BufferId, Fragment>,
    /// Bytes that instructions ask of the addresses of buffers: what a caller of the kernel must keep to.
    aligned: BTreeMap<BufferId, u32>,
}

impl Fragments<'_> {
    fn body(&mut self, body: Vec<Stmt>, env: &Env) -> Result<Vec<Stmt>> {
        let mut out = Vec::with_capacity(body.len());
        for stmt in body {
            out.push(match stmt {
                Stmt::For(l) if l.tensorize.is_some() => self.call(&l, env)?,
                Stmt::For(l) if self.is_shared_out(&l) => {
                    out.extend(self.distribute(l, env)?);
                    continue;
                }
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
            });
        }
        Ok(out)
    }

    /// A statement that no loop shares out may not touch a fragment.
    fn alone(&self, store: Store) -> Result<Stmt> {
        let body = [Stmt::Store(store)];
        let touched = visit::reads(&body).into_iter().chain(visit::writes(&body));
        if let Some((id, fragment)) = touched.into_iter().find_map(|b| self.fragments.get_key_value(&b)) {
            let message = format!(
                "a statement touches single elements of fragment {}, which lanes hold as {} has them",
                self.func.buffer(*id).name,
                fragment.row
            );
            return Err(Error::input("lower.fragment", message)
                .help("only nests that run through whole tiles of a fragment are shared out among its lanes"));
        }
        let [stmt] = body;
        Ok(stmt)
    }
}
