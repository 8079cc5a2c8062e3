//! Clips the grid: blocks that write nothing at the launch's value of a dynamic size are not launched.
//!
//! Loops run to the largest value of a size, and what writes global memory asks whether its row is below the size. Where every such
//! condition bounds one block axis, the extent of the axis follows from the size, and the conditions that it makes true go.

use crate::error::Result;
use crate::ir::lowered::{Clipped, LaunchAxis, LoweredKernel};
use crate::ir::simplify::{self, Affine, Env, affine};
use crate::ir::visit::{Map, subst_cond};
use crate::ir::{Axis, CmpOp, Cond, Index, IndexOp, LoopKind, Scope, Stmt, Way, visit};
use crate::target::Target;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let axes: Vec<LaunchAxis> = kernel.launch.iter().filter(|l| is_of_grid(l.axis)).copied().collect();
    for size in 0..kernel.func.sizes.len() {
        for axis in &axes {
            let taken = kernel.clipped.iter().any(|c| c.axis == axis.axis);
            if let Some(clipped) = clip(kernel, *axis, size).filter(|_| !taken) {
                kernel.clipped.push(clipped);
            }
        }
    }
    let walked = kernel.persistent().map(|(tile, _)| tile);
    let blocks = kernel.clipped.iter().find(|c| c.axis == Axis::BlockX).map(|c| c.value(&kernel.func));
    if let (Some(tile), Some(extent)) = (walked, blocks) {
        extend(&mut kernel.func.body, tile, &extent);
    }
    Ok(())
}

fn is_of_grid(axis: Axis) -> bool {
    matches!(axis, Axis::BlockX | Axis::BlockY | Axis::BlockZ)
}

/// The loops that walk the grid run to the extent.
fn extend(body: &mut [Stmt], tile: crate::ir::Var, extent: &Index) {
    for stmt in body {
        if let Stmt::For(l) = stmt
            && l.var == tile
            && matches!(l.kind, LoopKind::Persistent { .. })
        {
            l.extent = extent.clone();
        }
        visit::children_mut(stmt).into_iter().for_each(|child| extend(child, tile, extent));
    }
}

/// The extent of the axis as every write to global memory bounds it.
fn clip(kernel: &LoweredKernel, axis: LaunchAxis, size: usize) -> Option<Clipped> {
    let derived: Map = kernel.derived.iter().map(|d| (d.var, d.value.clone())).collect();
    let mut search = Search { kernel, axis, size, derived, found: None, unbounded: false };
    let mut env = kernel.env();
    visit::loops(&kernel.func.body).into_iter().for_each(|l| env.bind_loop(l.var, &l.extent));
    search.body(&kernel.func.body, &Cond::TRUE, &env);
    let (times, per) = search.found.filter(|_| !search.unbounded)?;
    Some(Clipped { axis: axis.axis, size, times, per })
}

struct Search<'a> {
    kernel: &'a LoweredKernel,
    axis: LaunchAxis,
    size: usize,
    /// The values of derived variables.
    derived: Map,
    /// Iterations for each part of the size, and how much a part is.
    found: Option<(i64, i64)>,
    /// Some write does not bound the axis.
    unbounded: bool,
}

impl Search<'_> {
    fn body(&mut self, body: &[Stmt], given: &Cond, env: &Env) {
        for stmt in body {
            match stmt {
                Stmt::If(i) => self.body(&i.body, &given.clone().and(i.cond.clone()), env),
                Stmt::Store(s) if self.kernel.func.buffer(s.buffer).scope == Scope::Global => self.write(given, env),
                Stmt::Call(call) if self.writes_global(call) => self.write(given, env),
                Stmt::Bulk(copy) if !matches!(copy.way, Way::Load { .. }) => {
                    let inside = self.clipped_by_map(copy.map as usize, &copy.coordinates);
                    self.write(&given.clone().and(inside), env);
                }
                _ => visit::children(stmt).into_iter().for_each(|child| self.body(child, given, env)),
            }
        }
    }

    fn writes_global(&self, call: &crate::ir::Call) -> bool {
        call.operands.iter().any(|o| self.kernel.func.buffer(o.buffer).scope == Scope::Global)
    }

    /// A box beyond the end of the array writes nothing.
    fn clipped_by_map(&self, map: usize, coordinates: &[Index]) -> Cond {
        let dynamic = self.kernel.maps.get(map).and_then(|m| m.dynamic);
        let Some((dim, size)) = dynamic else { return Cond::TRUE };
        match (coordinates.get(dim), self.kernel.func.sizes.get(size)) {
            (Some(first), Some(size)) => Cond::lt(first.clone(), size.value()),
            _ => Cond::TRUE,
        }
    }

    /// A write that happens where the condition holds.
    fn write(&mut self, given: &Cond, env: &Env) {
        let bound = given.conjuncts().into_iter().find_map(|part| self.bound(part, env));
        match (bound, self.found) {
            (Some((times, per)), None) => self.found = Some((times, per)),
            (Some((times, per)), Some((known, least))) if times == known => self.found = Some((times, per.min(least))),
            _ => self.unbounded = true,
        }
    }

    /// `times` and `per` of a condition `per * (axis // times) + rest < size` with a rest that is not negative.
    fn bound(&self, part: &Cond, env: &Env) -> Option<(i64, i64)> {
        let Cond::Cmp(CmpOp::Lt, a, b) = subst_cond(part, &self.derived) else { return None };
        let size = self.kernel.func.sizes.get(self.size)?;
        let mut sum: Affine = affine(&simplify::simplify(&(a - b), env));
        let position = sum.terms.iter().position(|(atom, _)| atom.as_var() == Some(size.var))?;
        let (_, factor) = sum.terms.remove(position);
        // The simplifier divides both sides by what divides them.
        let scale = size.size.by.checked_div(-factor).filter(|scale| *scale > 0 && -factor * scale == size.size.by)?;
        let (position, times) = sum.terms.iter().enumerate().find_map(|(n, (atom, _))| Some((n, self.times(atom)?)))?;
        let (_, per) = sum.terms.remove(position);
        let (rest, _) = simplify::bounds(&sum.to_index(), env)?;
        (per > 0 && rest >= 0).then_some((times, per.checked_mul(scale)?))
    }

    /// How many iterations of the axis share a value of the atom: that of the axis itself, or of a quotient of it.
    fn times(&self, atom: &Index) -> Option<i64> {
        match atom {
            Index::Var(v) => (*v == self.axis.var).then_some(1),
            Index::Bin(IndexOp::FloorDiv, a, d) if a.as_var() == Some(self.axis.var) => d.as_int(),
            _ => None,
        }
    }
}

/// Whether the axes that are clipped are axes of the grid with positive parts: the promise of the pass.
pub fn kept(kernel: &LoweredKernel) -> std::result::Result<(), String> {
    let wrong = kernel.clipped.iter().find(|c| !is_of_grid(c.axis) || c.times < 1 || c.per < 1);
    wrong.map_or(Ok(()), |c| Err(format!("{} is clipped to no extent", c.axis.name())))
}
