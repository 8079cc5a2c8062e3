//! Promises 4 to 9: what is where, of which type, and inside which bounds.

use super::judge::Judge;
use super::points::{Ranged, show, tried};
use super::wrong;
use crate::error::{Code, Error, Result, counted};
use crate::ir::decide::{Verdict, always};
use crate::ir::print::{self, Node};
use crate::ir::visit::{Map, subst_cond, subst_index};
use crate::ir::{BinOp, Block, BufferId, Cond, Expr, For, Func, Index, Iter, Stmt, Store, UnOp, Var, typing, visit};

/// Calls `f` on everything that the statements refer to.
pub fn for_each_id(body: &[Stmt], f: &mut impl FnMut(Node)) {
    fn index(i: &Index, f: &mut impl FnMut(Node)) {
        i.for_each_var(&mut |v| f(Node::Loop(v)));
    }
    fn cond(c: &Cond, f: &mut impl FnMut(Node)) {
        c.for_each_index(&mut |i| index(i, f));
    }
    fn expr(e: &Expr, f: &mut impl FnMut(Node)) {
        visit::walk_expr(e, &mut |e| match e {
            Expr::Index(_, i) => index(i, f),
            Expr::Cond(c) => cond(c, f),
            Expr::Gather { var, .. } => f(Node::Loop(*var)),
            Expr::Load { buffer, indices, .. } => {
                f(Node::Buffer(*buffer));
                indices.iter().for_each(|i| index(i, f));
            }
            _ => {}
        });
    }
    visit::walk(body, &mut |stmt| match stmt {
        Stmt::For(l) => {
            f(Node::Loop(l.var));
            index(&l.extent, f);
            l.defines().iter().for_each(|(v, e)| {
                f(Node::Loop(*v));
                index(e, f);
            });
            l.tensorize.iter().flat_map(|t| &t.dims).for_each(|(_, v)| f(Node::Loop(*v)));
        }
        Stmt::Block(b) => {
            f(Node::Block(b.name));
            for it in &b.iters {
                f(Node::Loop(it.var));
                index(&it.extent, f);
                index(&it.binding, f);
            }
            cond(&b.predicate, f);
            b.copy_with.iter().filter_map(|c| c.multicast).for_each(|v| f(Node::Loop(v)));
        }
        Stmt::Store(s) => {
            f(Node::Buffer(s.buffer));
            s.indices.iter().for_each(|i| index(i, f));
            expr(&s.value, f);
        }
        Stmt::If(i) => cond(&i.cond, f),
        Stmt::Sync(_) | Stmt::Elect(_) | Stmt::Role(_) => {}
        Stmt::Bulk(copy) => {
            [copy.shared, copy.global].into_iter().for_each(|b| f(Node::Buffer(b)));
            copy.coordinates.iter().chain(&copy.indices).for_each(|i| index(i, f));
        }
        Stmt::Call(call) => call.operands.iter().for_each(|o| {
            f(Node::Buffer(o.buffer));
            o.indices.iter().for_each(|i| index(i, f));
        }),
    });
}

/// Where a statement stands.
#[derive(Clone)]
struct Context<'a> {
    func: &'a Func,
    judge: &'a Judge<'a>,
    /// The variables in scope.
    vars: Vec<Ranged>,
    /// What holds here.
    given: Cond,
    /// Inside a block: what its iterators are, in terms of the loops around it and what holds there.
    block: Option<Bindings>,
    /// The innermost name, for errors.
    node: Option<Node>,
}

#[derive(Clone)]
struct Bindings {
    iters: Map,
    vars: Vec<Ranged>,
    given: Cond,
}

/// Checks promises 4 to 9.
pub fn check(judge: &Judge<'_>) -> Result<()> {
    let func = judge.func;
    Context { func, judge, vars: func.size_vars(), given: Cond::TRUE, block: None, node: None }.body(&func.body)
}

/// Fails (`verify.bounds`) if an element `buffer[indices]` is outside the buffer for some values of `vars` (each from
/// 0 to its extent) under which `given` holds. What is not decided is left to [`super::well_formed`].
pub fn in_bounds(func: &Func, buffer: BufferId, indices: &[Index], vars: &[(Var, i64)], given: &Cond) -> Result<()> {
    for (dim, index) in indices.iter().enumerate() {
        let Some(inside) = inside(func, buffer, dim, index) else { continue };
        let point = match always(&inside, given, vars) {
            Verdict::Proved => None,
            Verdict::Refuted(point) => Some(point),
            Verdict::Undecided => tried(&inside, given, vars).0,
        };
        if let Some(point) = point {
            return Err(outside(func, buffer, dim, index, &point));
        }
    }
    Ok(())
}

/// What holds of an index that is inside a dimension.
fn inside(func: &Func, buffer: BufferId, dim: usize, index: &Index) -> Option<Cond> {
    let extent = func.buffer(buffer).shape.get(dim)?;
    Some(Cond::ge(index.clone(), 0).and(Cond::lt(index.clone(), extent.clone())))
}

fn outside(func: &Func, buffer: BufferId, dim: usize, index: &Index, point: &[Ranged]) -> Error {
    let description = func.buffer(buffer);
    let value = index.eval(&|v| point.iter().find(|p| p.0 == v).map(|p| p.1));
    let value = value.map_or_else(|| "no 64-bit value".to_string(), |v| v.to_string());
    let extent = description.shape.get(dim).map(|e| print::index(func, e)).unwrap_or_default();
    let message = format!(
        "index {} is {value} {}, but dimension {dim} of {} has {}",
        print::index(func, index),
        show(func, point),
        description.name,
        counted(&extent, "element")
    );
    let name = &description.name;
    Error::input(Code::VerifyBounds, message)
        .help(format!("give dimension {dim} of {name} more elements, or the loops fewer iterations"))
        .help(format!("or read it only where it is inside: `select(CONDITION, {name}[..], 0)`"))
}

impl Context<'_> {
    fn wrong(&self, code: Code, message: impl Into<String>) -> Error {
        let nodes: Vec<(Node, &str)> = self.node.iter().map(|n| (*n, "here")).collect();
        wrong(self.func, code, message, &nodes)
    }

    /// Underlines an error from elsewhere.
    fn placed(&self, error: Error) -> Error {
        let nodes: Vec<(Node, &str)> = self.node.iter().map(|n| (*n, "here")).collect();
        print::underline(error, self.func, &nodes)
    }

    fn body(&self, body: &[Stmt]) -> Result<()> {
        body.iter().try_for_each(|stmt| match stmt {
            Stmt::For(l) => self.for_loop(l),
            Stmt::Block(b) => self.block(b),
            Stmt::Store(s) => self.store(s),
            Stmt::If(i) => {
                self.cond(&i.cond)?;
                Context { given: self.given.clone().and(i.cond.clone()), ..self.clone() }.body(&i.body)
            }
            Stmt::Sync(_) => Err(self.wrong(Code::VerifyStage, "synchronisation is allowed in Lowered programs only")),
            Stmt::Call(_) | Stmt::Bulk(_) => {
                Err(self.wrong(Code::VerifyStage, "instructions are allowed in Lowered programs only"))
            }
            Stmt::Elect(_) | Stmt::Role(_) => {
                Err(self.wrong(Code::VerifyStage, "slices are allowed in Lowered programs only"))
            }
        })
    }

    fn index(&self, index: &Index) -> Result<()> {
        let mut outside = None;
        index.for_each_var(&mut |v| {
            if !self.vars.iter().any(|(known, _)| *known == v) {
                outside = Some(v);
            }
        });
        let Some(var) = outside else { return Ok(()) };
        let message = format!("{} is used where it is not in scope", self.func.var_name(var));
        let mut nodes = vec![(Node::Loop(var), "this variable")];
        nodes.extend(self.node.map(|n| (n, "used here")));
        Err(wrong(self.func, Code::VerifyScope, message, &nodes))
    }

    fn cond(&self, cond: &Cond) -> Result<()> {
        let mut result = Ok(());
        cond.for_each_index(&mut |i| {
            if result.is_ok() {
                result = self.index(i);
            }
        });
        result
    }

    fn extent(&self, extent: &Index, of: Var) -> Result<i64> {
        extent.as_int().filter(|e| *e > 0).ok_or_else(|| {
            let (name, extent) = (self.func.var_name(of), print::index(self.func, extent));
            let message = format!("{name} has extent {extent}, not a positive constant");
            wrong(self.func, Code::VerifyExtent, message, &[(Node::Loop(of), "here")])
        })
    }

    /// The largest extent of an iterator's domain, which may be a dynamic size.
    fn domain_extent(&self, it: &Iter) -> Result<i64> {
        let size = self.func.sizes.iter().find(|s| s.value() == it.extent);
        size.map_or_else(|| self.extent(&it.extent, it.var), |s| Ok(s.size.high))
    }

    fn for_loop(&self, l: &For) -> Result<()> {
        let extent = self.extent(&l.extent, l.var)?;
        let mut inner = Context { node: Some(Node::Loop(l.var)), ..self.clone() };
        let mut product = Some(1i64);
        for (var, own) in l.defines() {
            let own = self.extent(&own, var)?;
            product = product.and_then(|p| p.checked_mul(own));
            inner.vars.push((var, own));
        }
        if product != Some(extent) {
            let message = format!("{} does not cover its pair of loops exactly", self.func.var_name(l.var));
            return Err(inner.wrong(Code::VerifyExtent, message));
        }
        inner.body(&l.body)
    }

    fn block(&self, b: &Block) -> Result<()> {
        let outer = Context { node: Some(Node::Block(b.name)), ..self.clone() };
        outer.cond(&b.predicate)?;
        let given = self.given.clone().and(b.predicate.clone());
        let (mut vars, mut iters, mut inside) = (Vec::new(), Map::new(), Cond::TRUE);
        for it in &b.iters {
            let extent = self.domain_extent(it)?;
            outer.index(&it.binding)?;
            outer.domain(it, &given)?;
            vars.push((it.var, extent));
            if it.extent.as_int().is_none() {
                inside = inside.and(Cond::lt(it.var, it.extent.clone()));
            }
            iters.insert(it.var, it.binding.clone());
        }
        let block = Some(Bindings { iters, vars: self.vars.clone(), given });
        // The body speaks of the iterators alone.
        vars.extend(self.func.size_vars());
        let inner = Context { vars, given: inside, block, ..outer };
        inner.body(b.init.as_deref().unwrap_or(&[]))?;
        inner.body(&b.body)
    }

    fn domain(&self, it: &Iter, given: &Cond) -> Result<()> {
        let inside = Cond::ge(it.binding.clone(), 0).and(Cond::lt(it.binding.clone(), it.extent.clone()));
        let extent = print::index(self.func, &it.extent);
        let claim = || format!("{} stays in its domain 0..{extent}", self.func.var_name(it.var));
        let found = self.judge.counterexample(Code::VerifyDomain, &inside, given, &self.vars, &claim);
        let Some(point) = found.map_err(|e| self.placed(e))? else { return Ok(()) };
        let value = it.binding.eval(&|v| point.iter().find(|p| p.0 == v).map(|p| p.1));
        let value = value.map_or_else(|| "no 64-bit value".to_string(), |v| v.to_string());
        let name = self.func.var_name(it.var);
        let message = format!("{name} is {value} {}, outside its domain 0..{extent}", show(self.func, &point));
        Err(self.wrong(Code::VerifyDomain, message).help("a predicate on the block must exclude those iterations"))
    }

    fn access(&self, buffer: BufferId, indices: &[Index], lanes: u32, given: &Cond) -> Result<()> {
        let b = self.func.buffer(buffer);
        if lanes != 1 {
            return Err(
                self.wrong(Code::VerifyStage, format!("an access of {lanes} lanes of {} before it is lowered", b.name))
            );
        }
        if indices.len() != b.shape.len() {
            let message = format!(
                "{} has {}, but {}",
                b.name,
                counted(b.shape.len(), "dimension"),
                counted(indices.len(), "index")
            );
            return Err(self.wrong(Code::VerifyType, message));
        }
        indices.iter().try_for_each(|i| self.index(i))?;
        for (dim, index) in indices.iter().enumerate() {
            let Some(inside) = inside(self.func, buffer, dim, index) else { continue };
            if always(&inside, given, &self.vars) == Verdict::Proved {
                self.judge.proved();
                continue;
            }
            self.reached(buffer, dim, index, given).map_err(|e| self.placed(e))?;
        }
        Ok(())
    }

    /// An access that leaves the buffer somewhere in the iterators' domains may never do so where the block runs.
    fn reached(&self, buffer: BufferId, dim: usize, index: &Index, given: &Cond) -> Result<()> {
        let (index, given, vars) = match &self.block {
            None => (index.clone(), given.clone(), self.vars.clone()),
            Some(b) => {
                let known = |v: &Var| b.iters.contains_key(v) || b.vars.iter().any(|(w, _)| w == v);
                let loops_inside = self.vars.iter().filter(|(v, _)| !known(v));
                let given = b.given.clone().and(subst_cond(given, &b.iters));
                (subst_index(index, &b.iters), given, b.vars.iter().chain(loops_inside).copied().collect())
            }
        };
        let Some(inside) = inside(self.func, buffer, dim, &index) else { return Ok(()) };
        let name = &self.func.buffer(buffer).name;
        let claim = || format!("index {} stays inside dimension {dim} of {name}", print::index(self.func, &index));
        match self.judge.counterexample(Code::VerifyBounds, &inside, &given, &vars, &claim)? {
            None => Ok(()),
            Some(point) => Err(outside(self.func, buffer, dim, &index, &point)),
        }
    }

    fn store(&self, s: &Store) -> Result<()> {
        self.access(s.buffer, &s.indices, s.lanes, &self.given)?;
        self.expr(&s.value, &self.given)?;
        let (b, found) = (self.func.buffer(s.buffer), typing::dtype_of(self.func, &s.value));
        let found = found.map_err(|e| self.placed(e))?;
        if found != b.dtype {
            return Err(self.wrong(
                Code::VerifyType,
                format!("a value of type {found} is stored to {}, which is {}", b.name, b.dtype),
            ));
        }
        Ok(())
    }

    fn expr(&self, expr: &Expr, given: &Cond) -> Result<()> {
        match expr {
            Expr::Const(..) => Ok(()),
            Expr::Index(_, i) => self.index(i),
            Expr::Cond(c) => self.cond(c),
            Expr::Load { buffer, indices, lanes } => self.access(*buffer, indices, *lanes, given),
            Expr::Shuffle(..) => Err(self.wrong(Code::VerifyStage, "shuffles are allowed in Lowered programs only")),
            Expr::Splat(..) => Err(self.wrong(Code::VerifyStage, "several lanes are allowed in Lowered programs only")),
            Expr::Un(_, a) | Expr::Cast(_, a) => self.expr(a, given),
            Expr::Bin(_, a, b) | Expr::Cmp(_, a, b) => {
                self.expr(a, given)?;
                self.expr(b, given)
            }
            Expr::Select(c, a, b) => {
                self.expr(c, given)?;
                let (yes, no) = guards(c);
                self.expr(a, &given.clone().and(yes))?;
                self.expr(b, &given.clone().and(no))
            }
            Expr::Gather { var, extent, index, value, .. } => {
                self.expr(index, given)?;
                if self.vars.iter().any(|(known, _)| known == var) {
                    return Err(
                        self.wrong(Code::VerifyScope, format!("{} stands for two things", self.func.var_name(*var)))
                    );
                }
                let mut inside = self.clone();
                inside.vars.push((*var, (*extent).max(1)));
                inside.expr(value, given)
            }
        }
    }
}

/// Conditions on indices that hold where the condition of a select is true, and where it is false. A comparison of data implies none.
pub fn guards(cond: &Expr) -> (Cond, Cond) {
    // (a or b) holds; of a comparison of data nothing is known, and then nothing is known of the disjunction.
    let either = |a: Cond, b: Cond| match (&a, &b) {
        (Cond::Const(true), _) | (_, Cond::Const(true)) => Cond::TRUE,
        _ => Cond::Or(Box::new(a), Box::new(b)),
    };
    match cond {
        Expr::Cond(c) => (c.as_ref().clone(), Cond::Not(c.clone())),
        Expr::Bin(BinOp::And, a, b) => {
            let ((a, not_a), (b, not_b)) = (guards(a), guards(b));
            (a.and(b), either(not_a, not_b))
        }
        Expr::Bin(BinOp::Or, a, b) => {
            let ((a, not_a), (b, not_b)) = (guards(a), guards(b));
            (either(a, b), not_a.and(not_b))
        }
        Expr::Un(UnOp::Not, a) => {
            let (a, not_a) = guards(a);
            (not_a, a)
        }
        _ => (Cond::TRUE, Cond::TRUE),
    }
}
