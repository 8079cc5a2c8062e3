//! Promises 11 to 14 and 17: how bound loops may stand to each other, and placements to what they are about.

use super::scope::for_each_id;
use super::wrong;
use crate::error::{Code, Error, Result};
use crate::ir::print::Node;
use crate::ir::visit::{children, loops, reads, role_of, walk, writes};
use crate::ir::{Axis, Block, Cond, For, Func, Index, Iter, IterKind, LoopKind, Note, RoleId, Scope, Stmt, Var};
use std::collections::HashMap;

/// Checks every nest of the root.
pub fn check(func: &Func) -> Result<()> {
    func.body.iter().try_for_each(|nest| {
        let mut kernel = Kernel { func, extents: HashMap::new() };
        kernel.stmt(nest, &mut Vec::new())
    })
}

struct Kernel<'a> {
    func: &'a Func,
    /// The extent of each axis with the loop that set it; of a role's threads apart.
    extents: HashMap<(Axis, Option<RoleId>), (i64, Var)>,
}

impl<'a> Kernel<'a> {
    fn stmt(&mut self, stmt: &'a Stmt, path: &mut Vec<&'a For>) -> Result<()> {
        match stmt {
            Stmt::For(l) => {
                if let Some(axis) = l.axis() {
                    self.bound(l, axis, path)?;
                }
                self.idle(l)?;
                path.push(l);
            }
            Stmt::Block(b) => {
                self.reductions(b, path)?;
                self.units(b, path)?;
            }
            _ => {}
        }
        for child in children(stmt) {
            for inner in child {
                self.stmt(inner, path)?;
            }
        }
        if matches!(stmt, Stmt::For(_)) {
            path.pop();
        }
        Ok(())
    }

    fn bound(&mut self, l: &'a For, axis: Axis, path: &[&'a For]) -> Result<()> {
        let func = self.func;
        if let Some(outer) = path.iter().find(|o| o.axis() == Some(axis)) {
            self.twice(l, outer, axis)?;
        }
        if axis.is_block_level() {
            self.levels(l, path)?;
        }
        let unknown = || format!("loop {} has no constant extent", func.var_name(l.var));
        let extent = l.extent.as_int().ok_or_else(|| Error::bug(Code::VerifyExtent, unknown()))?;
        let role = role_of(&l.body).filter(|_| !axis.is_block_level());
        let (first, var) = *self.extents.entry((axis, role)).or_insert((extent, l.var));
        if first == extent {
            return Ok(());
        }
        let message = format!("loops of {first} and {extent} iterations are bound to {} in one kernel", axis.name());
        let (a, b) = (format!("{first} iterations"), format!("{extent} iterations"));
        let error = wrong(
            func,
            Code::VerifyThreads,
            message,
            &[(Node::Loop(var), a.as_str()), (Node::Loop(l.var), b.as_str())],
        );
        let name = func.var_name(l.var);
        Err(error.help(format!("split {name} so that a loop of {first} iterations is bound; the rest stays serial")))
    }

    /// An axis again on a path: only around a cooperative stage.
    fn twice(&self, l: &For, outer: &For, axis: Axis) -> Result<()> {
        let func = self.func;
        let fail = |message: String, help: &str| {
            let labels = [(Node::Loop(outer.var), "bound here"), (Node::Loop(l.var), "and again inside")];
            Err(wrong(func, Code::VerifyAxis, message, &labels).help(help))
        };
        if axis.is_block_level() {
            return fail(format!("{} is bound twice on one path", axis.name()), "fuse the loops before binding");
        }
        let names = (func.var_name(l.var), func.var_name(outer.var));
        let shared =
            writes(&l.body).into_iter().find(|b| !matches!(func.buffer(*b).scope, Scope::Shared | Scope::Local));
        if let Some(b) = shared {
            let (name, scope) = (&func.buffer(b).name, func.buffer(b).scope.name());
            let message = format!(
                "{} is bound to {} inside {}, which is too, and writes {name} in {scope} memory",
                names.0,
                axis.name(),
                names.1
            );
            return fail(message, "only a staged buffer in shared memory can be filled over the threads again");
        }
        if let Some(var) = outer.defines().iter().map(|d| d.0).find(|v| mentions(&l.body, *v)) {
            let message = format!(
                "{} is bound to {} inside {}, but its staged buffer depends on {}",
                names.0,
                axis.name(),
                names.1,
                func.var_name(var)
            );
            return fail(
                message,
                "compute the staged buffer outside that loop, or bind the inner loop to another axis",
            );
        }
        Ok(())
    }

    /// A blockIdx loop under thread loops: nothing may be between, so that the order of the loops means nothing.
    fn levels(&self, l: &For, path: &[&For]) -> Result<()> {
        let inside = |p: &&For| p.axis().is_some_and(|a| !a.is_block_level());
        let Some(at) = path.iter().position(inside) else { return Ok(()) };
        let chain = path[at..].iter().all(|p| matches!(p.body.as_slice(), [Stmt::For(_)]));
        if chain {
            return Ok(());
        }
        let thread = path[at];
        let names = (self.func.var_name(l.var), self.func.var_name(thread.var));
        let message =
            format!("{} selects the block, but is next to statements inside thread loop {}", names.0, names.1);
        let labels = [(Node::Loop(thread.var), "within the block"), (Node::Loop(l.var), "outside the block")];
        Err(wrong(self.func, Code::VerifyLevels, message, &labels).help(format!("reorder {} {}", names.0, names.1)))
    }

    fn reductions(&self, b: &Block, path: &[&For]) -> Result<()> {
        for it in b.iters.iter().filter(|it| it.kind == IterKind::Reduce) {
            let parallel = |l: &&&For| {
                matches!(l.kind, LoopKind::Bound { .. } | LoopKind::Vectorized)
                    && l.defines().iter().any(|(v, _)| it.binding.mentions(*v))
            };
            let Some(l) = path.iter().find(parallel) else { continue };
            let (block, name) = (self.func.block_name(b.name), self.func.var_name(l.var));
            let how = l.axis().map_or("vectorized".to_string(), |a| format!("bound to {}", a.name()));
            let message = format!("block {block} reduces over {name}, which is {how}");
            let labels = [(Node::Loop(l.var), "not in sequence"), (Node::Block(b.name), "reduces over it")];
            let help = format!("rfactor {name} first, so that its iterations compute separate partial results");
            return Err(wrong(self.func, Code::VerifyReduction, message, &labels).help(help));
        }
        Ok(())
    }

    /// Spread deals the copies of a pipelined loop out to the steps of one inside.
    fn idle(&self, l: &For) -> Result<()> {
        let pipelined = |l: &For| l.pipeline.is_some();
        if !l.notes.contains_key(&Note::Spread) || pipelined(l) && loops(&l.body).into_iter().any(pipelined) {
            return Ok(());
        }
        let name = self.func.var_name(l.var);
        let lacks = if pipelined(l) { "no loop inside it is pipelined" } else { "it is not pipelined" };
        let message =
            format!("loop {name} is to spread its copies over the steps of a pipelined loop inside, but {lacks}");
        let error = wrong(self.func, Code::VerifyIdle, message, &[(Node::Loop(l.var), "this loop")]);
        Err(error.help(format!("pipeline {name} and the loop of the steps, or remove `annotate {name} spread`")))
    }

    /// What a block's statements belong to: the lanes of a warp together, or each thread, but not both.
    fn units(&self, b: &Block, path: &[&For]) -> Result<()> {
        let touched = || reads(&b.body).into_iter().chain(writes(&b.body));
        let fragment = touched().find(|id| self.func.buffer(*id).scope == Scope::Fragment);
        let nest = path.iter().find(|l| l.tensorize.is_some());
        let spoken = |of: &dyn Fn(Axis) -> bool| path.iter().find(|l| l.axis().is_some_and(of) && speaks(b, l));
        let Some(thread) = spoken(&|a| matches!(a, Axis::ThreadX | Axis::ThreadY | Axis::ThreadZ)) else {
            return Ok(());
        };
        let (block, name) = (self.func.block_name(b.name), self.func.var_name(thread.var));
        let own = (Node::Loop(thread.var), "differs between lanes");
        let together = nest.map(|l| (Node::Loop(l.var), "one instruction"));
        if let Some(other) = together.or(fragment.map(|id| (Node::Buffer(id), "held by all lanes"))) {
            let message = format!("the lanes of a warp run block {block} together, but it mentions thread loop {name}");
            return Err(wrong(
                self.func,
                Code::VerifyLevels,
                message,
                &[own, (Node::Block(b.name), "this block"), other],
            )
            .help(
                "keep the loops of a nest on a fragment, or of one instruction, unbound: they are distributed \
                     over the lanes",
            )
            .help("or keep what the threads of this block read and write in shared or local memory"));
        }
        let Some(warp) = spoken(&|a| a == Axis::Warp) else { return Ok(()) };
        let message = format!(
            "block {block} mentions both warp loop {} and thread loop {name}, which count the same threads",
            self.func.var_name(warp.var)
        );
        Err(wrong(
            self.func,
            Code::VerifyLevels,
            message,
            &[own, (Node::Loop(warp.var), "counts groups of 32 of the same")],
        )
        .help("bind the loops of the block to threads alone, or to warps alone"))
    }
}

/// Whether what a block does, or whether it does it, depends on the loop; one of a single iteration says nothing.
fn speaks(b: &Block, l: &For) -> bool {
    let mut used = Vec::new();
    for body in b.init.iter().chain([&b.body]) {
        for_each_id(body, &mut |node| used.push(node));
    }
    let used = |v: Var| used.contains(&Node::Loop(v));
    let defined: Vec<Var> = l.defines().into_iter().filter(|(_, n)| n.as_int() != Some(1)).map(|(v, _)| v).collect();
    let bound = |it: &Iter| used(it.var) && defined.iter().any(|v| it.binding.mentions(*v));
    b.iters.iter().any(bound) || defined.iter().any(|v| b.predicate.mentions(*v))
}

/// Whether anything in the statements depends on the variable.
fn mentions(body: &[Stmt], var: Var) -> bool {
    let mut found = false;
    let mut index = |i: &Index| found |= i.mentions(var);
    let cond = |c: &Cond, f: &mut dyn FnMut(&Index)| c.for_each_index(&mut |i| f(i));
    walk(body, &mut |stmt| match stmt {
        Stmt::Block(b) => {
            b.iters.iter().for_each(|it| index(&it.binding));
            cond(&b.predicate, &mut index);
        }
        Stmt::If(i) => cond(&i.cond, &mut index),
        Stmt::Store(s) => s.indices.iter().for_each(&mut index),
        Stmt::For(_) => {}
        Stmt::Sync(_) | Stmt::Call(_) | Stmt::Bulk(_) | Stmt::Elect(_) | Stmt::Role(_) => {}
    });
    found
}
