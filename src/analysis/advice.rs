//! Why an access costs more than it must, and what step would help.

use super::access::{Counter, Measured};
use super::report::{Advice, Cost, KernelCost};
use super::request::{self, LINE, Lanes, SECTOR};
use super::site::{Agent, Site};
use crate::ir::lowered::{Dim, TensorMap};
use crate::ir::simplify::{self, Affine};
use crate::ir::{Axis, BulkCopy, Index, Var, Way, print, visit};
use crate::target::Device;

/// The widest access of a thread.
const VECTOR_BITS: i64 = 128;

/// Nothing where the cost is the ideal.
pub fn of(counter: &Counter<'_>, site: &Site<'_>, measured: &Measured) -> Option<Advice> {
    if let (Agent::Copy(copy), Cost::Box { lines, ideal_lines, .. }) = (site.by, measured.cost) {
        return (lines > ideal_lines).then(|| lines_of(counter, copy)).flatten();
    }
    let worst = measured.worst?;
    let (total, ideal) = measured.cost.total();
    if total <= ideal {
        return None;
    }
    let pattern = Pattern { counter, site, sum: simplify::affine(&site.index), worst };
    Some(match measured.cost {
        Cost::Shared { degree, .. } => pattern.conflicts(degree),
        Cost::Global { .. } => pattern.sectors(),
        Cost::Box { .. } | Cost::Engine { .. } => return None,
    })
}

/// Rows of boxes that begin between two lines of the caches.
fn lines_of(counter: &Counter<'_>, copy: &BulkCopy) -> Option<Advice> {
    let kernel = counter.kernel;
    let (map, buffer) = (kernel.maps.get(copy.map as usize)?, kernel.func.buffer(copy.global));
    let bits = i64::from(buffer.dtype.bits());
    // Dimensions along which boxes are one element long do not tell their rows apart.
    let long = map.strides.iter().zip(&map.tile).rev().skip(1).filter(|(_, tile)| **tile > 1);
    let apart = long.map(|(s, _)| s * bits / 8).find(|s| s % LINE != 0);
    Some(match apart {
        Some(stride) => Advice {
            because: format!(
                "rows of {} are {stride} bytes apart, not a multiple of {LINE}: rows of a TMA box straddle L2 lines",
                buffer.name
            ),
            step: None,
            then: Some(format!("try: rows of {} padded to a multiple of {} elements", buffer.name, LINE * 8 / bits)),
        },
        None => Advice {
            because: format!("some TMA boxes do not begin at a multiple of {LINE} bytes"),
            step: None,
            then: Some(format!(
                "try: tiles that are a multiple of {} elements along the rows of {}",
                LINE * 8 / bits,
                buffer.name
            )),
        },
    })
}

/// What a kernel as a whole suffers from.
pub fn of_kernel(kernel: &KernelCost, counter: &Counter<'_>, device: Device) -> Vec<Advice> {
    let (Some(l2), Some(products)) = (kernel.at_least.l2, kernel.at_least.products) else { return Vec::new() };
    if products <= 0.0 || l2 <= products {
        return Vec::new();
    }
    let each = device.l2_bytes_per_cycle.unwrap_or(0.0);
    let because = format!(
        "the MMAs need {:.0} bytes from L2 a cycle and multiprocessor, and L2 delivers {each:.0}",
        each * l2 / products
    );
    let alone = |a: &Site<'_>| match a.by {
        Agent::Copy(copy) if matches!(copy.way, Way::Load { multicast: None, .. }) => Some(copy.shared),
        _ => None,
    };
    let stage = counter.sites.accesses.iter().find_map(alone);
    let stage = stage.map(|b| counter.kernel.func.buffer(b).name.clone());
    let shared = stage
        .map_or(String::new(), |s| format!(", or blocks of a cluster that share it: copy_with {s} tma multicast=L"));
    vec![Advice { because, step: None, then: Some(format!("try: a larger tile of each block{shared}")) }]
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
        if let Some(map) = self.map() {
            return self.swizzle(map, degree, because);
        }
        let Some(Padding { dim, row, pad, left }) = self.padding(degree) else {
            return Advice { because, step: None, then: None };
        };
        let buffer = &self.counter.kernel.func.buffer(self.site.buffer).name;
        let effect = if left == 1 { "without conflict".to_string() } else { format!("{left}-way") };
        Advice {
            because,
            step: Some(format!("storage_align {buffer} {dim} {row} {pad}")),
            then: Some(format!("rows of {row} elements are {} apart, and this access is {effect}", row + pad)),
        }
    }

    /// The box in which TMA fills or empties the buffer.
    fn map(&self) -> Option<&TensorMap> {
        let kernel = self.counter.kernel;
        let of = |a: &Site<'_>| match a.by {
            Agent::Copy(copy) if copy.shared == self.site.buffer => kernel.maps.get(copy.map as usize),
            _ => None,
        };
        self.counter.sites.accesses.iter().find_map(of)
    }

    /// The swizzle that lowers the degree of the worst request most: TMA's boxes are dense, so rows cannot be padded.
    fn swizzle(&self, map: &TensorMap, degree: u64, because: String) -> Advice {
        let tried = [128, 64, 32].into_iter().filter(|_| map.swizzle == 0);
        let tried = tried.filter_map(|width| Some((self.swizzled(map, width)?, width)));
        let Some((left, width)) = tried.filter(|(left, _)| *left < degree).min_by_key(|(left, width)| (*left, -width))
        else {
            let then = (map.swizzle > 0).then(|| {
                let width = map.swizzle;
                format!(
                    "rows of {width} bytes are swizzled in chunks of 16 bytes: lanes along a column conflict \
                         unless each reads a whole chunk"
                )
            });
            return Advice { because, step: None, then };
        };
        let buffer = &self.counter.kernel.func.buffer(self.site.buffer).name;
        let effect = if left == 1 { "without conflict".to_string() } else { format!("{left}-way") };
        let then = format!("chunks of 16 bytes of rows of {width} are permuted, and this access is {effect}");
        Advice { because, step: Some(format!("swizzle {buffer} {width}")), then: Some(then) }
    }

    /// The degree of the worst request where rows are cut into panels of that many bytes and swizzled.
    fn swizzled(&self, map: &TensorMap, width: i64) -> Option<u64> {
        let (columns, outer) = map.tile.split_last()?;
        let (row, rows) = (columns * self.bits() / 8, outer.iter().product::<i64>());
        if row < 1 || rows < 1 || row % width != 0 {
            return None;
        }
        let at = self.worst.at.map(|element| {
            let byte = element.wrapping_mul(self.bits()) / 8;
            let (slot, inside) = (byte.div_euclid(row * rows), byte.rem_euclid(row * rows));
            let (line, column) = (inside / row, inside % row);
            let address = slot * row * rows + column / width * rows * width + line * width + column % width;
            address ^ ((address >> 7 & (width / 16 - 1)) << 4)
        });
        let each = self.site.width(&self.counter.kernel.func);
        Some(request::bank_conflicts(&Lanes { at, active: self.worst.active }, each, self.site.write).degree)
    }

    /// Where each lane copies neighbours of its own, one after the other: all of them at once.
    fn vectorize(&self) -> Option<Advice> {
        let innermost = self.site.around.loops.last()?;
        let extent = innermost.extent.as_int()?;
        let least = self.lane_terms().map(|(_, f)| f.abs()).min()?;
        // The same loop is in several places where a pipeline has written it out.
        let inside = |a: &&Site<'_>| a.around.loops.iter().any(|l| l.var == innermost.var);
        let mut copied = self.counter.sites.accesses.iter().filter(inside);
        let fits = extent > 1 && least >= extent && copied.all(|a| self.contiguous(a, innermost.var));
        let (func, name) = (&self.counter.kernel.func, self.counter.kernel.func.var_name(innermost.var));
        // The most elements that an access moves, of those that divide the loop.
        let widths = (1..=VECTOR_BITS / self.bits().max(1)).rev();
        let width = widths.into_iter().find(|w| w.count_ones() == 1 && extent % w == 0).filter(|w| *w > 1)?;
        let step = if width == extent {
            format!("vectorize {name}")
        } else {
            let (outer, vector) =
                (func.unused_loop_name(&format!("{name}_0")), func.unused_loop_name(&format!("{name}_1")));
            format!("split {name} ? {width} -> {outer} {vector}; vectorize {vector}")
        };
        fits.then(|| Advice {
            because: self.steps(),
            step: Some(step),
            then: Some(format!("a thread moves {width} adjacent elements in one access")),
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
            // What is in front of a later slot of a ring is the same for all lanes.
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
            format!("try: bind to threadIdx.x the loop over adjacent elements, which is now in {}", self.words(atom))
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
