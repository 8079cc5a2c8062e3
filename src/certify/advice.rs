//! Why an access costs more than it must, and what step would help.

use super::access::{Counter, Measured};
use super::report::Cost;
use super::request::{self, Lanes, SECTOR};
use super::site::Site;
use crate::ir::simplify::{self, Affine};
use crate::ir::{Axis, Index, LoopKind, Var, print};

/// Sentences; none where the cost is the ideal.
pub fn of(counter: &Counter<'_>, site: &Site<'_>, measured: &Measured) -> Vec<String> {
    let Some(worst) = measured.worst else { return Vec::new() };
    let (total, ideal) = measured.cost.total();
    if total <= ideal {
        return Vec::new();
    }
    let pattern = Pattern { counter, site, sum: simplify::affine(site.index), worst };
    match measured.cost {
        Cost::Shared { degree, .. } => pattern.conflicts(degree),
        Cost::Global { .. } => pattern.sectors(),
    }
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

    fn conflicts(&self, degree: u64) -> Vec<String> {
        let mut out = vec![self.steps()];
        if let Some(name) = self.vectorizable() {
            out.push(format!("try: vectorize {name}, so that a thread moves neighbours at once"));
        } else if let Some((row, pad, left)) = self.padding(degree) {
            let buffer = &self.counter.kernel.func.buffer(self.site.buffer).name;
            let effect = if left == 1 { "has no conflict".to_string() } else { format!("is {left}-way") };
            out.push(format!(
                "try: storage_align {buffer}, so that a row of {row} elements takes {}: this request then {effect}",
                row + pad
            ));
        }
        out
    }

    /// The loop around a copy that walks neighbours, where each lane walks some of its own.
    fn vectorizable(&self) -> Option<&str> {
        if !self.site.copies {
            return None;
        }
        let least = self.lane_terms().map(|(_, f)| f.abs()).min()?;
        let walks = |var: Var| self.site.around.loops.iter().find(|l| l.var == var && l.kind != LoopKind::Vectorized);
        self.sum.terms.iter().filter(|(_, f)| *f == 1 && self.site.lanes == 1).find_map(|(atom, _)| {
            let var = atom.as_var()?;
            let extent = walks(var)?.extent.as_int()?;
            (extent > 1 && least >= extent && least % 2 == 0).then(|| self.counter.kernel.func.var_name(var))
        })
    }

    /// A row length in elements, what to add to it, and the degree of the worst request then: the least that helps.
    fn padding(&self, degree: u64) -> Option<(i64, i64, u64)> {
        let lanes = i64::from(self.site.lanes.max(1));
        let mut rows: Vec<i64> = self.sum.terms.iter().map(|(_, f)| f.abs()).filter(|f| *f > lanes).collect();
        rows.sort_unstable();
        rows.dedup();
        let bits = self.bits();
        let width = self.site.width(&self.counter.kernel.func);
        let padded = |row: i64, pad: i64| {
            let at = self.worst.at.map(|e| {
                let element = e.div_euclid(row).saturating_mul(row + pad) + e.rem_euclid(row);
                element.saturating_mul(bits).div_euclid(8)
            });
            request::bank_conflicts(&Lanes { at, active: self.worst.active }, width, self.site.write).degree
        };
        let pads = [1, 2, 4, 8, 16].map(|n| n * lanes);
        let tries = rows.iter().flat_map(|row| pads.map(|pad| (*row, pad, padded(*row, pad))));
        tries.filter(|t| t.2 < degree).min_by_key(|t| (t.2, t.1, t.0))
    }

    fn sectors(&self) -> Vec<String> {
        let (total, ideal) = {
            let bits = self.bits();
            let bytes = Lanes { at: self.worst.at.map(|e| e.saturating_mul(bits).div_euclid(8)), ..self.worst };
            let s = request::sectors(&bytes, self.site.width(&self.counter.kernel.func));
            (s.touched, s.ideal)
        };
        let mut out = vec![self.steps()];
        let width = self.site.width(&self.counter.kernel.func);
        let dense = self.lane_terms().any(|(_, f)| f.abs().saturating_mul(self.bits()) == width * 8);
        if let Some(name) = self.vectorizable() {
            out.push(format!("try: vectorize {name}, so that a thread moves neighbours at once"));
        } else if dense && total == ideal + 1 {
            out.push(format!("the first lane is not at a multiple of {SECTOR} bytes"));
        } else if let Some(advice) = self.rebind() {
            out.push(advice);
        }
        out
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
