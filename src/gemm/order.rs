//! In which order instructions have the rows, columns and terms of operands whose bytes or words lanes get by transposing loads.
//!
//! A dimension of a tile is split into parts in the operand's order, the loops over them are put into the instruction's order, and fused again. The
//! buffers in registers and in shared memory along k have the instruction's order, too.

use crate::gemm::staging::fuse_all;
use crate::ir::Index;
use crate::schedule::Steps;

/// An order: parts of the dimension as the operand has them, their extents and loops; and the loops as the instruction has them. The first part is the first
/// of both. Of the dimension's own extent the first part has what the others leave.
pub(super) struct Order {
    parts: &'static [(i64, &'static str)],
    order: &'static [&'static str],
}

/// Of rows of elements of 32 bits, which lanes load one by one.
pub(super) const WORDS: Order =
    Order { parts: &[(2, "r4"), (2, "r3"), (2, "r2"), (2, "r1"), (4, "r0")], order: &["r4", "r2", "r1", "r3", "r0"] };

/// Of rows of bytes, of which ldmatrix.trans gives a lane two that follow each other: rows g and g + 8 of an instruction.
pub(super) const BYTES: Order = Order { parts: &[(4, "r2"), (8, "r1"), (2, "r0")], order: &["r2", "r0", "r1"] };

/// The same of columns.
pub(super) const COLUMNS: Order = Order { parts: &[(16, "c2"), (8, "c1"), (2, "c0")], order: &["c2", "c0", "c1"] };

/// Of terms that ldmatrix.trans gives: lane t holds terms 2 t and 2 t + 1 of each of four matrices, as four bytes for two of them. Where both operands come
/// so, sums do not depend on the order.
pub(super) const TERMS: Order =
    Order { parts: &[(2, "q3"), (2, "q2"), (4, "q1"), (2, "q0")], order: &["q3", "q1", "q2", "q0"] };

/// The same of a tile in shared memory along k.
pub(super) const TILE_TERMS: Order =
    Order { parts: &[(2, "p3"), (2, "p2"), (4, "p1"), (2, "p0")], order: &["p3", "p1", "p2", "p0"] };

impl Order {
    /// The place in the instruction of an index of the operand.
    pub(super) fn place(&self, i: &Index) -> Index {
        let below = |at: usize, of: &dyn Fn(usize) -> i64, count: usize| (at + 1..count).map(of).product::<i64>();
        let extent = |name: &str| self.parts.iter().find(|(_, own)| *own == name).map_or(1, |(extent, _)| *extent);
        let terms = self.order.iter().enumerate().map(|(n, name)| {
            let at = self.parts.iter().position(|(_, own)| own == name).unwrap_or(0);
            let lower = below(at, &|p| self.parts[p].0, self.parts.len());
            let stride = below(n, &|o| extent(self.order[o]), self.order.len());
            match n {
                0 => i.clone().floordiv(lower) * stride,
                _ => i.clone().floormod(lower * extent(name)).floordiv(lower) * stride,
            }
        });
        terms.reduce(|sum, term| sum + term).unwrap_or_else(|| i.clone())
    }
}

/// A dimension of a tile, as loops of its own.
pub(super) struct Dimension {
    /// The extents of its parts in the operand's order.
    pub(super) factors: Vec<i64>,
    /// The loops over them.
    pub(super) loops: Vec<&'static str>,
    /// These loops in the instruction's order.
    pub(super) order: Vec<&'static str>,
    /// The one loop that they become.
    name: &'static str,
}

impl Dimension {
    /// Of so many elements, in an order of its own if there is one.
    pub(super) fn of(name: &'static str, extent: i64, order: Option<&'static Order>) -> Dimension {
        let Some(Order { parts, order }) = order else {
            return Dimension { factors: vec![extent], loops: vec![name], order: vec![name], name };
        };
        let behind: i64 = parts.iter().skip(1).map(|(extent, _)| extent).product();
        let factors = std::iter::once(extent / behind).chain(parts.iter().skip(1).map(|(extent, _)| *extent));
        let loops = parts.iter().map(|(_, name)| *name).collect();
        Dimension { factors: factors.collect(), loops, order: order.to_vec(), name }
    }

    /// Makes one loop of them; `between` begins the names of those on the way.
    pub(super) fn fuse(&self, s: &mut Steps, between: &str) {
        if self.order.len() > 1 {
            fuse_all(s, &self.order, self.name, between);
        }
    }
}
