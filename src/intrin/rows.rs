//! The rows. A new instruction is a row in its family; its meaning is checked against its facts when it is built.

mod bits;
mod float8;
mod matrix_copy;
mod multiply_add;
mod warpgroup;
mod wmma;

use super::{Row, check};
use std::sync::LazyLock;

/// Every row, in the order of the reference table.
pub fn all() -> &'static [Row] {
    static ALL: LazyLock<Vec<Row>> = LazyLock::new(|| {
        let rows = [
            multiply_add::rows(),
            float8::multiply_add(),
            matrix_copy::rows(),
            float8::matrix_copies(),
            wmma::rows(),
            warpgroup::rows(),
            float8::warpgroup(),
            bits::rows(),
        ]
        .concat();
        debug_assert_eq!(rows.iter().flat_map(check::faults).collect::<Vec<_>>(), Vec::<String>::new());
        rows
    });
    &ALL
}
