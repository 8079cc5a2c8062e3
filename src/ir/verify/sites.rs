//! The accesses of a buffer in a piece of program, each in terms of the loops around it; and the elements that they touch, one by one.

use super::exact::adds_to;
use super::points::Ranged;
use super::scope::guards;
use crate::index::Points;
use crate::ir::visit::{Map, subst_cond, subst_index};
use crate::ir::{BufferId, Cond, Expr, Index, Iter, IterKind, Stmt, Store, Var};
use std::collections::HashSet;

/// Elements by their indices.
pub type Elements = HashSet<Vec<i64>, foldhash::fast::FixedState>;

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touches {
    /// It reads, and its block does not accumulate.
    Reads,
    /// It reads, and its block accumulates.
    Continues,
    /// It writes, and its block does not accumulate, or this is its init.
    Writes,
    /// It writes, and its block accumulates.
    Sums,
}

/// An access. A block with an init is taken for two, one that begins and one that accumulates.
#[derive(Debug, Clone)]
pub struct Site {
    /// What it does.
    pub touches: Touches,
    /// The element.
    pub indices: Vec<Index>,
    /// The loops around, outermost first.
    pub vars: Vec<Ranged>,
    /// What holds where it happens.
    pub given: Cond,
}

/// The accesses of `buffer`; `None` where an extent is no constant.
pub fn sites(body: &[Stmt], buffer: BufferId) -> Option<Vec<Site>> {
    let mut walk = Walk { buffer, accumulates: false, found: Vec::new() };
    walk.body(body, &At { vars: Vec::new(), given: Cond::TRUE, bindings: Map::new() })?;
    Some(walk.found)
}

/// The elements of a buffer that are touched.
#[derive(Default)]
pub struct Touched {
    /// Read by bodies that do not accumulate.
    pub reads: Elements,
    /// Read by bodies that accumulate.
    pub continued: Elements,
    /// Written by bodies that do not accumulate, and by inits.
    pub writes: Elements,
    /// Written by bodies that accumulate; `None` if there are none.
    pub sums: Option<Elements>,
}

/// The elements of `buffer` that are read and written; `None` where to count them would take more than what is left of
/// the budget. No variable may be free.
pub fn elements(body: &[Stmt], buffer: BufferId, budget: &mut i64) -> Option<Touched> {
    let mut found = Touched::default();
    for site in sites(body, buffer)? {
        let into = match site.touches {
            Touches::Reads => &mut found.reads,
            Touches::Continues => &mut found.continued,
            Touches::Writes => &mut found.writes,
            Touches::Sums => found.sums.get_or_insert_default(),
        };
        enumerate(&site, budget, into)?;
    }
    Some(found)
}

struct Walk {
    buffer: BufferId,
    /// Whether the body that is walked accumulates.
    accumulates: bool,
    found: Vec<Site>,
}

/// The context of a statement: the loops around it, the conditions that hold, and the bindings of the iterators.
#[derive(Clone)]
struct At {
    vars: Vec<Ranged>,
    given: Cond,
    bindings: Map,
}

impl At {
    fn and(&self, cond: &Cond) -> At {
        At { given: self.given.clone().and(subst_cond(cond, &self.bindings)), ..self.clone() }
    }
}

impl Walk {
    fn body(&mut self, body: &[Stmt], at: &At) -> Option<()> {
        body.iter().try_for_each(|stmt| match stmt {
            Stmt::For(l) => {
                let mut inner = at.clone();
                for (var, extent) in l.defines() {
                    inner.vars.push((var, extent.as_int()?));
                }
                self.body(&l.body, &inner)
            }
            Stmt::Block(b) => {
                let mut inner = at.and(&b.predicate);
                for it in &b.iters {
                    inner.bindings.insert(it.var, subst_index(&it.binding, &at.bindings));
                }
                let begins = |it: &&Iter| it.kind == IterKind::Reduce;
                let first = b.iters.iter().filter(begins).fold(Cond::TRUE, |all, it| all.and(Cond::eq(it.var, 0)));
                self.body(b.init.as_deref().unwrap_or(&[]), &inner.and(&first))?;
                self.accumulates = b.body.iter().any(|s| matches!(s, Stmt::Store(s) if adds_to(s, self.buffer)));
                self.body(&b.body, &inner)?;
                self.accumulates = false;
                Some(())
            }
            Stmt::Store(s) => self.store(s, at),
            Stmt::If(i) => self.body(&i.body, &at.and(&i.cond)),
            Stmt::Sync(_) | Stmt::Call(_) | Stmt::Bulk(_) | Stmt::Elect(_) | Stmt::Role(_) => Some(()),
        })
    }

    fn add(&mut self, touches: Touches, indices: &[Index], at: &At) {
        let indices = indices.iter().map(|i| subst_index(i, &at.bindings)).collect();
        self.found.push(Site { touches, indices, vars: at.vars.clone(), given: at.given.clone() });
    }

    fn store(&mut self, s: &Store, at: &At) -> Option<()> {
        let own = (s.buffer == self.buffer).then_some(s.indices.as_slice());
        self.loads(&s.value, at, own.filter(|_| !self.accumulates))?;
        if let Some(indices) = own {
            self.add(if self.accumulates { Touches::Sums } else { Touches::Writes }, indices, at);
        }
        Some(())
    }

    fn loads(&mut self, expr: &Expr, at: &At, own: Option<&[Index]>) -> Option<()> {
        if let Expr::Select(c, a, b) = expr {
            let (yes, no) = guards(c);
            self.loads(c, at, own)?;
            self.loads(a, &at.and(&yes), own)?;
            return self.loads(b, &at.and(&no), own);
        }
        if let Expr::Load { buffer, indices, .. } = expr {
            if *buffer == self.buffer && own != Some(indices.as_slice()) {
                self.add(if self.accumulates { Touches::Continues } else { Touches::Reads }, indices, at);
            }
            return Some(());
        }
        if let Expr::Gather { var, extent, index, value, .. } = expr {
            self.loads(index, at, own)?;
            let mut inside = at.clone();
            inside.vars.push((*var, *extent));
            return self.loads(value, &inside, own);
        }
        match expr {
            Expr::Bin(_, a, b) | Expr::Cmp(_, a, b) => {
                self.loads(a, at, own)?;
                self.loads(b, at, own)
            }
            Expr::Un(_, a) | Expr::Cast(_, a) | Expr::Splat(_, a) | Expr::Shuffle(_, a) => self.loads(a, at, own),
            _ => Some(()),
        }
    }
}

/// Adds the values of the indices while the loops that matter to them run.
pub fn enumerate(site: &Site, budget: &mut i64, out: &mut Elements) -> Option<()> {
    let indices = &site.indices;
    let given = relevant(indices, &site.given);
    let mentioned = |v: Var| indices.iter().any(|i| i.mentions(v)) || given.iter().any(|c| c.mentions(v));
    let vars: Vec<Ranged> = site.vars.iter().filter(|(v, _)| mentioned(*v)).copied().collect();
    let points = Points::within(&vars, *budget)?;
    *budget -= points.left();
    let mut element = Vec::with_capacity(indices.len());
    let mut visit = |point: &[Ranged]| {
        let value = |v: Var| point.iter().find(|(p, _)| *p == v).map(|(_, x)| *x);
        if given.iter().map(|c| c.eval(&value)).try_fold(true, |all, holds| Some(all && holds?))? {
            element.clear();
            for index in indices {
                element.push(index.eval(&value)?);
            }
            if !out.contains(&element) {
                out.insert(element.clone());
            }
        }
        Some(())
    };
    points.all(|point| visit(point).is_some()).then_some(())
}

/// The parts of a condition that have to do with the indices, by a variable or over other parts. One of other loops alone
/// that holds in their first iterations says nothing about the values that the indices take.
fn relevant<'c>(indices: &[Index], given: &'c Cond) -> Vec<&'c Cond> {
    let mut chosen: Vec<&Cond> = Vec::new();
    let mut rest = given.conjuncts();
    loop {
        let tied = |part: &Cond| {
            let mut found = false;
            part.for_each_index(&mut |i| {
                i.for_each_var(&mut |v| {
                    found |= indices.iter().any(|i| i.mentions(v)) || chosen.iter().any(|c| c.mentions(v));
                });
            });
            found
        };
        let (more, others): (Vec<&Cond>, Vec<&Cond>) = rest.iter().partition(|part| tied(part));
        if more.is_empty() {
            chosen.extend(others.into_iter().filter(|part| part.eval(&|_| Some(0)) != Some(true)));
            return chosen;
        }
        chosen.extend(more);
        rest = others;
    }
}
