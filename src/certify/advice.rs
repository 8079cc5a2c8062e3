//! Why an access costs more than it must, and what step would help.

use super::access::{Counter, Measured};
use super::report::{Advice, Cost};
use super::request::{self, Lanes, SECTOR};
use super::site::Site;
use crate::ir::simplify::{self, Affine};
use crate::ir::{Axis, Index, Var, print, visit};
use crate::lower::Dim;

/// Nothing where the cost is the ideal.
pub fn of(counter: &Counter<'_>, site: &Site<'_>, measured: &Measured) -> Option<Advice> {
    let worst = measured.worst?;
    let (total, ideal) = measured.cost.total();
    if total <= ideal {
        return None;
    }
    let pattern = Pattern { counter, site, sum: simplify::affine(&site.index), worst };
    Some(match measured.cost {
        Cost::Shared { degree, .. } => pattern.conflicts(degree),
        Cost::Global { .. } => pattern.sectors(),
    })
}

/// How the lanes of a warp move through a buffer.
struct Pattern<'p> {
    counter: &'p Counter<'p>,
    site: &'p Site<'p>,
    sum: Affine,
    /// The elements of the worst request.
    worst: Lanes,
}

impl Pattern<'_> {
    fn bits(&self) -> i64 {
        i64::from(self.site.dtype(&self.counter.kernel.func).bits())
    }

    fn words(&self, index: &Index) -> String {
        print::index(&self.counter.kernel.func, index)
    }

    /// The terms that differ between the lanes of a warp, with their factors in elements.
    fn lane_terms(&self) -> impl Iterator<Item = (&Index, i64)> {
        self.sum.terms.iter().filter(|(atom, _)| self.counter.geometry.varies(atom)).map(|(atom, f)| (atom, *f))
    }

    /// `threadIdx.x steps 128 bytes`.
    fn steps(&self) -> String {
        let one = |(atom, factor): (&Index, i64)| {
            let bits = factor.saturating_mul(self.bits());
            let size = if bits % 8 == 0 { format!("{} bytes", bits / 8) } else { format!("{bits} bits") };
            format!("{} steps {size}", self.words(atom))
        };
        let all: Vec<String> = self.lane_terms().map(one).collect();
        format!("within a warp {}", all.join(", "))
    }

    fn conflicts(&self, degree: u64) -> Advice {
        if let Some(found) = self.vectorize() {
            return found;
        }
        let because = self.steps();
        let Some(Padding { dim, row, pad, left }) = self.padding(degree) else {
            return Advice { because, step: None, then: None };
        };
        let buffer = &self.counter.kernel.func.buffer(self.site.buffer).name;
        let effect = if left == 1 { "without conflict".to_string() } else { format!("{left}-way") };
        Advice {
            because,
            step: Some(format!("storage_align {buffer} {dim} {row} {pad}")),
            then: Some(format!("rows of {row} elements lie {} apart, and this access is {effect}", row + pad)),
        }
    }

    /// Where each lane copies neighbours of its own, one after the other: all of them at once.
    fn vectorize(&self) -> Option<Advice> {
        let innermost = self.site.around.loops.last()?;
        let extent = innermost.extent.as_int()?;
        let least = self.lane_terms().map(|(_, f)| f.abs()).min()?;
        // The same loop stands in several places where a pipeline has written it out.
        let inside = |a: &&Site<'_>| a.around.loops.iter().any(|l| l.var == innermost.var);
        let mut copied = self.counter.sites.accesses.iter().filter(inside);
        let fits = extent > 1 && least >= extent && copied.all(|a| self.contiguous(a, innermost.var));
        fits.then(|| Advice {
            because: self.steps(),
            step: Some(format!("vectorize {}", self.counter.kernel.func.var_name(innermost.var))),
            then: Some("a thread moves its neighbours at once".to_string()),
        })
    }

    /// Whether an access inside the loop is half of a copy that walks neighbours with it, from an even element on.
    fn contiguous(&self, access: &Site<'_>, var: Var) -> bool {
        let around = &access.around;
        let innermost = around.loops.last().is_some_and(|l| l.var == var && l.notes.is_empty());
        let start = visit::subst_index(&access.index, &[(var, Index::Int(0))].into());
        let even = simplify::divisor(&start, &self.counter.kernel.env()) % 2 == 0;
        let steps = simplify::affine(&access.index).coefficient(var) == 1;
        let alike = around.conds.iter().all(|c| !c.mentions(var));
        access.copies && access.lanes == 1 && innermost && even && steps && alike
    }

    /// The least padding of rows that lowers the degree of the worst request most.
    fn padding(&self, degree: u64) -> Option<Padding> {
        let dims = self.counter.kernel.dims.get(self.site.buffer.0 as usize)?;
        let packed = dims.windows(2).all(|d| d[0].stride == d[1].stride.saturating_mul(d[1].extent));
        if !packed {
            return None;
        }
        let wide = i64::from(self.counter.widest(self.site.buffer));
        let rows = (0..dims.len().saturating_sub(1)).map(|dim| (dim, dims[dim].stride));
        let tries = rows.flat_map(|(dim, row)| {
            let pads = [1, 2, 4, 8, 16].map(|n| n * wide).into_iter().filter(move |pad| *pad < row);
            pads.map(move |pad| (dim, row, pad))
        });
        let tried = tries.map(|(dim, row, pad)| Padding { dim, row, pad, left: self.padded(dims, dim, pad) });
        tried.filter(|t| t.left < degree).min_by_key(|t| (t.left, t.pad, t.row))
    }

    /// The degree of the worst request with a padded dimension.
    fn padded(&self, dims: &[Dim], dim: usize, pad: i64) -> u64 {
        let slot = dims.first().map_or(1, |d| d.extent.saturating_mul(d.stride));
        let at = self.worst.at.map(|element| {
            // What lies in front of a later slot of a ring is the same for all lanes.
            let mut rest = element.rem_euclid(slot.max(1));
            let (mut moved, mut stride) = (0i64, 1i64);
            for (d, one) in dims.iter().enumerate().rev() {
                stride = if d == dim { stride.saturating_add(pad) } else { stride };
                let index = rest.rem_euclid(one.extent.max(1));
                rest = rest.div_euclid(one.extent.max(1));
                moved = moved.saturating_add(index.saturating_mul(stride));
                stride = stride.saturating_mul(one.extent);
            }
            moved.saturating_mul(self.bits()).div_euclid(8)
        });
        let width = self.site.width(&self.counter.kernel.func);
        request::bank_conflicts(&Lanes { at, active: self.worst.active }, width, self.site.write).degree
    }

    fn sectors(&self) -> Advice {
        if let Some(found) = self.vectorize() {
            return found;
        }
        let width = self.site.width(&self.counter.kernel.func);
        let dense = self.lane_terms().any(|(_, f)| f.abs().saturating_mul(self.bits()) == width * 8);
        let then = match self.rebind() {
            None if dense => Some(format!("the first lane is not always at a multiple of {SECTOR} bytes")),
            other => other,
        };
        Advice { because: self.steps(), step: None, then }
    }

    /// Which variable walks neighbours, where threadIdx.x does not.
    fn rebind(&self) -> Option<String> {
        let (atom, _) = self.sum.terms.iter().find(|(_, f)| f.abs() == 1)?;
        let x = self.counter.kernel.launch.iter().find(|l| l.axis == Axis::ThreadX)?.var;
        (!atom.mentions(x)).then(|| {
            format!("try: bind to threadIdx.x the loop that walks neighbours, which {} does now", self.words(atom))
        })
    }
}

/// A dimension whose stride grows by some elements, and the degree of the worst request then.
struct Padding {
    dim: usize,
    row: i64,
    pad: i64,
    left: u64,
}
