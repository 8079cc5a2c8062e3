//! Which loops of a program that runs in sequence may run 32 iterations at a time, as lanes.
//!
//! Lanes run each statement together before the next one, so this must give what running the iterations in turn
//! gives. It does where no iteration touches what another one writes; and where iterations combine values into one
//! element, because [`super::code::Op::Reduce`] takes the lanes in order.

use super::compile::Compiler;
use crate::error::Result;
use crate::ir::{BinOp, Block, BufferId, Expr, For, Index, IndexOp, IterKind, Stmt, Store, Var, visit};
use std::collections::BTreeMap;

/// Loops with fewer iterations are not worth it.
const FEWEST: i64 = 4;

/// A sum of variables with coefficients.
type Affine = (BTreeMap<Var, i64>, i64);

fn affine(index: &Index) -> Option<Affine> {
    let sum = |a: Affine, b: Affine, factor: i64| {
        let (mut terms, constant) = (a.0, a.1.checked_add(b.1.checked_mul(factor)?)?);
        for (var, coeff) in b.0 {
            let entry = terms.entry(var).or_insert(0);
            *entry = entry.checked_add(coeff.checked_mul(factor)?)?;
        }
        terms.retain(|_, c| *c != 0);
        Some((terms, constant))
    };
    match index {
        Index::Int(v) => Some((BTreeMap::new(), *v)),
        Index::Var(v) => Some((BTreeMap::from([(*v, 1)]), 0)),
        Index::Bin(op, a, b) => {
            let (a, b) = (affine(a)?, affine(b)?);
            match op {
                IndexOp::Add => sum(a, b, 1),
                IndexOp::Sub => sum(a, b, -1),
                IndexOp::Mul if b.0.is_empty() => sum((BTreeMap::new(), 0), a, b.1),
                IndexOp::Mul if a.0.is_empty() => sum((BTreeMap::new(), 0), b, a.1),
                _ => None,
            }
        }
    }
}

/// An access of the loop's body: its buffer and its indices over loop variables; `None` where they are not affine.
struct Touch {
    buffer: BufferId,
    at: Option<Vec<Affine>>,
}

/// A store of the loop's body.
struct Written {
    touch: Touch,
    loads: Vec<Touch>,
    /// Combines the element with a value that does not read the buffer.
    combines: bool,
    /// Stands in an init that runs in the first iteration at most.
    first: bool,
}

/// Whether running each statement of the loop for 32 iterations at once gives what running them in turn gives.
pub(super) fn may_run_as_lanes(c: &Compiler<'_>, l: &For) -> Result<bool> {
    if c.lane_var.is_some() || c.interval(&l.extent)?.1 < i128::from(FEWEST) {
        return Ok(false);
    }
    let mut stores = Vec::new();
    let mut scan = Scan { c, lane: l.var, map: visit::Map::new(), first: false, stores: &mut stores };
    Ok(scan.body(&l.body) && stores.iter().all(|s| independent(s, &stores, l.var)))
}

fn independent(s: &Written, all: &[Written], lane: Var) -> bool {
    let Some(at) = &s.touch.at else { return false };
    let same = |t: &Touch| t.buffer != s.touch.buffer || t.at.as_ref() == Some(at);
    if !all.iter().all(|o| same(&o.touch) && o.loads.iter().all(same)) {
        return false;
    }
    if at.iter().any(|(terms, _)| terms.contains_key(&lane)) {
        return true;
    }
    // One element for all iterations: a single store combines into it, and nothing else reads it.
    let others = all.iter().filter(|o| o.touch.buffer == s.touch.buffer && !o.first).count();
    let reads = |o: &Written| o.loads.iter().filter(|t| t.buffer == s.touch.buffer).count();
    s.first && reads(s) == 0 || s.combines && others == 1 && all.iter().map(reads).sum::<usize>() == 1
}

struct Scan<'s, 'c, 'a> {
    c: &'s Compiler<'c>,
    lane: Var,
    map: visit::Map,
    first: bool,
    stores: &'a mut Vec<Written>,
}

impl Scan<'_, '_, '_> {
    /// Collects the stores; false where the body holds more than stores under blocks and conditions.
    fn body(&mut self, body: &[Stmt]) -> bool {
        body.iter().all(|s| match s {
            Stmt::For(_) | Stmt::Sync(_) | Stmt::Call(_) | Stmt::Bulk(_) | Stmt::Elect(_) | Stmt::Role(_) => false,
            Stmt::If(i) => self.body(&i.body),
            Stmt::Store(s) => {
                self.store(s);
                !s.asynchronous
            }
            Stmt::Block(b) => {
                for it in &b.iters {
                    let binding = self.resolve(&it.binding);
                    self.map.insert(it.var, binding);
                }
                let first = self.first;
                self.first |= self.runs_first(b);
                let good = b.init.as_ref().is_none_or(|init| self.body(init));
                self.first = first;
                good && self.body(&b.body)
            }
        })
    }

    fn resolve(&self, index: &Index) -> Index {
        visit::subst_index(&self.c.resolve(index), &self.map)
    }

    /// Whether all reduce iterators being 0 means that the loop's variable is 0.
    fn runs_first(&self, b: &Block) -> bool {
        b.iters.iter().filter(|i| i.kind == IterKind::Reduce).any(|i| {
            let Some((mut terms, constant)) = self.map.get(&i.var).and_then(affine) else { return false };
            let lane = terms.remove(&self.lane).unwrap_or(0);
            let low = |(var, coeff): (&Var, &i64)| {
                *coeff >= 0 && self.c.ranges.get(var).is_some_and(|(least, _)| *least >= 0)
            };
            lane > 0 && constant >= 0 && terms.iter().all(low)
        })
    }

    fn touch(&self, buffer: BufferId, indices: &[Index]) -> Touch {
        Touch { buffer, at: indices.iter().map(|i| affine(&self.resolve(i))).collect() }
    }

    fn store(&mut self, s: &Store) {
        let mut loads = Vec::new();
        visit::walk_expr(&s.value, &mut |e| {
            if let Expr::Load { buffer, indices, .. } = e {
                loads.push(self.touch(*buffer, indices));
            }
        });
        let touch = self.touch(s.buffer, &s.indices);
        self.stores.push(Written { touch, loads, combines: combined(s).is_some(), first: self.first });
    }
}

/// `X[..] = X[..] op value`, either way round, for operations that are the same either way round.
fn combined(s: &Store) -> Option<(BinOp, &Expr)> {
    let Expr::Bin(op, a, b) = &s.value else { return None };
    let own = |e: &Expr| matches!(e, Expr::Load { buffer, indices, lanes: 1 } if *buffer == s.buffer && *indices == s.indices);
    match op {
        BinOp::Add | BinOp::Mul | BinOp::Min | BinOp::Max if own(a) => Some((*op, b)),
        BinOp::Add | BinOp::Mul | BinOp::Min | BinOp::Max if own(b) => Some((*op, a)),
        _ => None,
    }
}

/// The operation and the other operand of a store that combines values of the lanes into one element.
pub(super) fn reduction<'e>(c: &Compiler<'_>, s: &'e Store, lane: Var) -> Option<(BinOp, &'e Expr)> {
    let varies = |i: &Index| affine(&c.resolve(i)).is_none_or(|(terms, _)| terms.contains_key(&lane));
    if s.indices.iter().any(varies) { None } else { combined(s) }
}
