//! Tiles that an instruction finds behind a descriptor: in swizzled panels, k along their rows or across.
//!
//! A panel holds all rows of the buffer, as many bytes of each as the swizzle is wide; eight of its rows are the unit that is
//! swizzled. Along k the unit's rows are those of the tile, 8 of them a *stride* apart from the next 8, and a tile's k stays inside
//! a panel. Across, the unit's rows are 8 values of k, the next 8 a stride further, and what is beyond a panel's columns is the
//! *leading* offset further, in the next panel (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout"; the
//! leading offset of swizzled tiles along k is not used).
//!
//! Panels of 16 bytes are not swizzled, and a tile crosses them in both directions: a step of k is two of them along k, where the
//! leading offset leads from one to the next. Across, the offsets change their parts: the stride leads to the next 8 columns, the
//! leading one to the next 8 values of k.

use super::Fragments;
use crate::error::{Code, Error, Result};
use crate::intrin::{Played, Row};
use crate::ir::simplify::{self, Env};
use crate::ir::{Buffer, Descriptor, Held, Index, print};
use crate::lower::point;

/// Rows that are swizzled together.
const ROWS: i64 = 8;
/// Bytes that no swizzle takes apart.
const CHUNK: i64 = 16;

impl Fragments<'_> {
    /// Where a tile begins, and how it lies.
    pub(super) fn descriptor(
        &self,
        row: &Row,
        played: &Played,
        may_cross: bool,
        env: &Env,
    ) -> Result<(Vec<Index>, Held)> {
        let buffer = self.func.buffer(played.buffer);
        let refused = |message: String| {
            Error::input(Code::LowerTile, format!("{}: {message}", row.name)).about_buffer(&buffer.name)
        };
        let Some(swizzle) = buffer.swizzle else {
            return Err(refused(format!("{} is not swizzled, so no descriptor finds its rows", buffer.name)).help(
                format!("swizzle {} 128 (or 64, 32, 16) cuts its rows into panels of that many bytes", buffer.name),
            ));
        };
        let (Some(shape), &[across, k]) = (buffer.const_shape(), played.along.as_slice()) else {
            return Err(refused(format!(
                "{} has no constant shape, or the tile more than two dimensions",
                buffer.name
            )));
        };
        let (last, bits, width) = (shape.len() - 1, i64::from(buffer.dtype.bits()), i64::from(swizzle));
        let along_k = k == last;
        if !along_k && !may_cross {
            let message =
                format!("k runs across the rows of {}; for its type the instruction needs rows along k", buffer.name);
            return Err(refused(message)
                .help(
                    "transpose the matrix in a separate kernel: cache_read it to global, and transform_layout the copy",
                )
                .help("or use an instruction whose fragments ldmatrix or threads load (mma)"));
        }
        let (inner, outer) = if along_k { (k, across) } else { (across, k) };
        if inner != last || outer + 1 != last {
            let message = format!("dimensions {across} and {k} of {} are not its last two", buffer.name);
            return Err(refused(message).help("transform_layout puts a tile's rows and columns last"));
        }
        let (columns, rows) = (shape[last], shape[..last].iter().product::<i64>());
        if columns * bits % (width * 8) != 0 || rows % ROWS != 0 {
            let message = format!(
                "{} has {rows} rows of {} bytes, which are not whole panels of 8 rows of {width} bytes",
                buffer.name,
                columns * bits / 8
            );
            return Err(refused(message).help("swizzle it with a smaller width, or make its tiles larger"));
        }
        let extent = |name: &str| row.dims.iter().find(|d| d.0 == name).map_or(1, |d| d.1);
        let mine = if row.operands.get(played.operand).is_some_and(|o| o.name == "A") { "m" } else { "n" };
        let tile = if along_k { [extent(mine), extent("k")] } else { [extent("k"), extent(mine)] };
        // A step of k is 32 bytes; across, a tile begins with a panel.
        let unit = [ROWS, if along_k { tile[1] } else { width * 8 / bits }];
        for (dim, unit) in [outer, inner].into_iter().zip(unit) {
            self.begins_at(row, played, (dim, unit), env)?;
        }
        let [stride, leading] = offsets(along_k, width, rows);
        let tile = Descriptor { along_k, swizzle, leading, stride, tile, adds_constant: false };
        Ok((played.base.clone(), Held::Descriptor(tile)))
    }

    /// Bytes that a buffer with panels must be aligned to.
    pub(super) fn unit_of(buffer: &Buffer) -> u32 {
        buffer.swizzle.unwrap_or(0) * ROWS as u32
    }

    fn begins_at(&self, row: &Row, played: &Played, (dim, unit): (usize, i64), env: &Env) -> Result<()> {
        let base = simplify::simplify(&played.base[dim], env);
        if simplify::divisor(&base, env) % unit == 0 {
            return Ok(());
        }
        let name = &self.func.buffer(played.buffer).name;
        let message = format!(
            "{} takes a tile of {name} from index {} on in dimension {dim}, which is not always a multiple of {unit}",
            row.name,
            print::index(self.func, &base)
        );
        Err(Error::input(Code::LowerTile, message)
            .about_all(point::of_index(self.func, &base))
            .about_buffer(name)
            .help("split the loops so that tiles begin where the swizzled units of shared memory do"))
    }
}

/// The stride and the leading byte offset of a tile in panels of so many rows of `width` bytes.
fn offsets(along_k: bool, width: i64, rows: i64) -> [u32; 2] {
    let (eights, panel) = ((ROWS * width) as u32, (rows * width) as u32);
    match (along_k, width) {
        (true, CHUNK) => [eights, panel],
        (false, CHUNK) => [panel, eights],
        (true, _) => [eights, CHUNK as u32],
        (false, _) => [eights, panel],
    }
}
