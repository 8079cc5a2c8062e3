//! The row and column of iteration T of a rasterized loop in closed form: quotients and remainders by constants alone.
//!
//! [`Raster`] states the order with the height of T's own group, which differs in the last group where the group does
//! not divide the rows. Here T is split in two instead: `p` counts the iterations in groups of full height, `q` those in
//! the last, lower one; while one of them counts, the other is constant.

use crate::ir::{Index, Raster};

/// The row and the column of iteration `walk`.
pub fn values(raster: &Raster, walk: Index) -> Option<[Index; 2]> {
    let (rows, columns) = (raster.outer_extent.as_int()?, raster.inner_extent.as_int()?);
    let height = raster.group.min(rows);
    let (full, low) = (rows / height, rows % height);
    let area = height.checked_mul(columns)?;
    let of_full = |p: &Index| {
        let row = p.clone().floordiv(area) * height + p.clone().floormod(height);
        [row, p.clone().floormod(area).floordiv(height)]
    };
    if low == 0 {
        return Some(of_full(&walk));
    }
    let end = full.checked_mul(area)?;
    let (p, q) = (walk.clone().min(end), (walk - end).max(0));
    // At the end of the full groups the row stands at the first of the last group, and the column at 0.
    let [row, column] = of_full(&p);
    Some([row + q.clone().floormod(low), column + q.floordiv(low)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Var;

    /// As [`Raster`] states it.
    fn stated(t: i64, rows: i64, columns: i64, group: i64) -> [i64; 2] {
        let g = t / (group * columns);
        let height = group.min(rows - g * group);
        let r = t - g * group * columns;
        [g * group + r % height, r / height]
    }

    #[test]
    fn the_closed_form_is_the_stated_order() {
        for (rows, columns) in [(1, 1), (1, 7), (7, 1), (5, 3), (16, 8), (9, 10), (13, 6)] {
            for group in 1..=rows + 2 {
                let extents = [rows, columns].map(Index::Int);
                let [outer_extent, inner_extent] = extents;
                let raster = Raster { outer: Var(1), outer_extent, inner: Var(2), inner_extent, group };
                let values = values(&raster, Index::Var(Var(0))).unwrap();
                for t in 0..rows * columns {
                    let got = [0, 1].map(|n| values[n].eval(&|_| Some(t)).unwrap());
                    assert_eq!(got, stated(t, rows, columns, group), "{t} of {rows} x {columns} grouped {group}");
                }
            }
        }
    }
}
