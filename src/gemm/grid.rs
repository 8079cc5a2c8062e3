//! How loops over blocks are bound to the axes of a grid: 2^31 - 1 blocks fit along x, 65535 along y and along z.

use crate::te::GemmSpec;

/// The most blocks along y or z, on every chip ([`crate::target::Limits::grid_dims`]).
const MOST: i64 = 65535;

/// A loop over blocks: its name and its extent.
pub(super) type Blocks<'a> = (&'a str, i64);

/// Binds rows of blocks to y and columns to x, or the other way round where there are more rows than fit along y. No product has
/// more than fit along y of both: its arrays have 2^36 elements at most.
pub(super) fn bind_blocks(rows: Blocks, columns: Blocks) -> String {
    let [x, y] = if rows.1 > MOST { [rows.0, columns.0] } else { [columns.0, rows.0] };
    format!("bind {y} blockIdx.y; bind {x} blockIdx.x\n")
}

/// Whether the products of a batch are more than fit along z: they are then rows of the walk over blocks.
pub(super) fn fuses_batch(spec: &GemmSpec) -> bool {
    spec.products() > MOST
}

/// Fuses the loop over a large batch with the loop over rows of blocks: the steps, and the loop over rows after them.
pub(super) fn rows_of<'a>(spec: &GemmSpec, rows: Blocks<'a>) -> (String, Blocks<'a>) {
    match fuses_batch(spec) {
        true => (format!("fuse b {} -> bi\n", rows.0), ("bi", rows.1.saturating_mul(spec.products()))),
        false => (String::new(), rows),
    }
}

/// Binds the loop over the products of a batch that fits along z.
pub(super) fn bound_batch(spec: &GemmSpec) -> &'static str {
    if spec.batch.is_some() && !fuses_batch(spec) { "bind b blockIdx.z\n" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_loop_is_bound_to_x() {
        assert_eq!(bind_blocks(("i", 65535), ("j", 70000)), "bind i blockIdx.y; bind j blockIdx.x\n");
        assert_eq!(bind_blocks(("i", 65536), ("j", 3)), "bind j blockIdx.y; bind i blockIdx.x\n");
    }
}
