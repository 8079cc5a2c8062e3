//! Tiles in memory as those instructions take them that are given an address and the distance from row to row.

use super::Rows;
use crate::ir::layout;
use crate::ir::simplify::{self, Env};
use crate::ir::{Buffer, Func, Index, print};

/// Why such an instruction cannot take a tile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uneven {
    /// The buffer is swizzled.
    Swizzled,
    /// The buffer has a symbolic shape, or no layout.
    Symbolic,
    /// Neighbours of a row are so many elements apart.
    Across(i64),
    /// Rows are so many elements apart, which is no multiple of the step.
    Stride(i64),
    /// The tile begins at an element that is not always aligned.
    Start(Index),
}

impl Rows {
    /// How many elements rows are apart in a tile of a buffer, as the buffer is in memory, that begins at `base`; `along`
    /// says along which of the buffer's dimensions the tile's two run.
    ///
    /// # Errors
    /// The first thing that the instruction cannot take.
    pub fn stride(&self, buffer: &Buffer, along: &[usize], base: &[Index], env: &Env) -> Result<i64, Uneven> {
        let bits = i64::from(buffer.dtype.bits());
        if buffer.swizzle.is_some() {
            return Err(Uneven::Swizzled);
        }
        let strides = layout::strides(buffer).ok_or(Uneven::Symbolic)?;
        let [stride, across] = [0, 1].map(|d| along.get(d).and_then(|dim| strides.get(*dim)).copied().unwrap_or(0));
        if across != 1 {
            return Err(Uneven::Across(across));
        }
        if stride.saturating_mul(bits) % (self.step * 8) != 0 {
            return Err(Uneven::Stride(stride));
        }
        let start = base.iter().zip(&strides).fold(Index::Int(0), |sum, (i, s)| sum + i.clone() * *s);
        if simplify::divisor(&start, env).saturating_mul(bits) % (self.align * 8) != 0 {
            return Err(Uneven::Start(simplify::simplify(&start, env)));
        }
        Ok(stride)
    }
}

impl Uneven {
    /// In words.
    pub fn message(&self, func: &Func, buffer: &Buffer, rows: Rows) -> String {
        let (name, bits) = (&buffer.name, i64::from(buffer.dtype.bits()));
        match self {
            Uneven::Swizzled => format!("rows of {name}, which is swizzled, are not a stride apart"),
            Uneven::Symbolic => format!("buffer {name} has a symbolic shape, or no layout"),
            Uneven::Across(n) => format!("adjacent elements of a row are {n} elements apart in {name}"),
            Uneven::Stride(n) => format!(
                "rows of {name} are {n} elements apart, not a multiple of {} bytes ({} elements)",
                rows.step,
                rows.step * 8 / bits
            ),
            Uneven::Start(at) => format!(
                "a tile begins at element {} of {name}, which is not always a multiple of {} bytes ({} elements)",
                print::index(func, at),
                rows.align,
                rows.align * 8 / bits
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::BufferId;
    use crate::te;

    #[test]
    fn tiles_lie_as_wmma_takes_them() {
        let mut func = te::parse("program p\ninput A f16[32, 24]\nC: output C[i 32, j 24] f16 = A[i, j]").unwrap();
        let rows = Rows { align: 32, step: 16 };
        let env = Env::new();
        let stride = |func: &Func, along: [usize; 2], base: [i64; 2]| {
            rows.stride(func.buffer(BufferId(0)), &along, &base.map(Index::Int), &env)
        };
        assert_eq!(stride(&func, [0, 1], [16, 0]), Ok(24));
        assert_eq!(stride(&func, [0, 1], [1, 8]), Ok(24));
        assert_eq!(stride(&func, [1, 0], [0, 0]), Err(Uneven::Across(24)));
        let off = stride(&func, [0, 1], [1, 0]).unwrap_err();
        assert_eq!(off, Uneven::Start(Index::Int(24)));
        assert!(off.message(&func, func.buffer(BufferId(0)), rows).ends_with("a multiple of 32 bytes (16 elements)"));
        func.buffers[0].shape[1] = Index::Int(20);
        assert_eq!(stride(&func, [0, 1], [0, 0]), Err(Uneven::Stride(20)));
        func.buffers[0].swizzle = Some(64);
        assert_eq!(stride(&func, [0, 1], [0, 0]), Err(Uneven::Swizzled));
    }
}
