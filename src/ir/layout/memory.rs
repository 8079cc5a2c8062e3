//! The layouts of buffers: row-major with the caller's strides or the padding of `storage_align`, or in swizzled panels.

use super::{Coordinate, Digit, Flip, Layout};
use crate::ir::{Buffer, Index, Scope};

impl Layout {
    /// An array with strides in elements of so many bits: from its indices to an offset.
    pub fn strided(shape: &[i64], strides: &[i64], bits: i64) -> Layout {
        let dims = shape.iter().zip(strides).enumerate();
        Layout::new(dims.map(|(d, (&extent, &stride))| {
            Digit::new(Coordinate::Index(d), 1, extent, Coordinate::Offset, stride * bits)
        }))
    }

    /// The layout of a buffer: from its indices to an offset in bits, of which bit 0 is the lowest of the first byte. So
    /// elements below a byte are packed, the lower index in the lower bits, here and nowhere else. `None` where an extent is symbolic, the size
    /// overflows, or neither panels divide swizzled rows nor rows panels.
    pub fn of(buffer: &Buffer) -> Option<Layout> {
        let (shape, bits) = (buffer.const_shape()?, i64::from(buffer.dtype.bits()));
        match buffer.swizzle {
            Some(width) => swizzled(&shape, i64::from(width), bits),
            None => Some(Layout::strided(&shape, &strides(buffer)?, bits)),
        }
    }
}

/// Rows cut into panels of `width` bytes, each panel a block of its own; inside a panel the 16-byte chunks of a row are
/// permuted by the row's number: address bits 4 and up are flipped by bits 7 and up, none, one, two or three of them
/// for 16, 32, 64 and 128 bytes (PTX ISA, "Swizzling Modes" of tensor copies).
fn swizzled(shape: &[i64], width: i64, bits: i64) -> Option<Layout> {
    let (&columns, rows) = shape.split_last()?;
    let (panel, whole) = (width * 8, columns.checked_mul(bits)?);
    let all = rows.iter().try_fold(whole, |all, extent| all.checked_mul(*extent))?;
    // Rows narrower than a panel share one, which must be full.
    if whole % panel != 0 && (panel % whole != 0 || all % panel != 0) {
        return None;
    }
    let across = (whole / panel).max(1);
    let row_bits = whole / across;
    let last = Coordinate::Index(shape.len() - 1);
    let mut digits = vec![Digit::new(last, 1, columns / across, Coordinate::Offset, bits)];
    let mut stride = row_bits;
    for (d, &extent) in rows.iter().enumerate().rev() {
        digits.push(Digit::new(Coordinate::Index(d), 1, extent, Coordinate::Offset, stride));
        stride = stride.checked_mul(extent)?;
    }
    digits.push(Digit::new(last, columns / across, across, Coordinate::Offset, stride));
    let chunks = (width / 16).trailing_zeros();
    Some(Layout::new(digits).flipped(Flip { of: Coordinate::Offset, from: 10, to: 7, bits: chunks }))
}

/// The strides in elements of a buffer's dimensions: the caller's, or row-major with `storage_align`'s padding, which registers
/// (`Scope::Local`) do without. `None` where an extent is symbolic or the size overflows.
pub fn strides(buffer: &Buffer) -> Option<Vec<i64>> {
    if let Some(s) = &buffer.strides {
        return Some(s.clone());
    }
    // No stride depends on the outermost extent, which may be a dynamic size.
    let inner = buffer.shape.iter().skip(1).map(Index::as_int).collect::<Option<Vec<i64>>>()?;
    let shape: Vec<i64> = buffer.shape.first().map(|_| 1).into_iter().chain(inner).collect();
    let mut strides = vec![1i64; shape.len()];
    for d in (0..shape.len()).rev() {
        let mut stride = if d + 1 < shape.len() { strides[d + 1].checked_mul(shape[d + 1])? } else { 1 };
        if let Some(a) = buffer.storage_align.filter(|a| a.dim == d && buffer.scope != Scope::Local) {
            // The smallest stride >= the packed one that is `offset` modulo `factor`.
            stride += (a.offset - stride).rem_euclid(a.factor);
        }
        strides[d] = stride;
    }
    Some(strides)
}

/// The number of elements that a buffer spans with its strides; `None` as in [`strides`].
pub fn span(buffer: &Buffer) -> Option<i64> {
    let shape = buffer.const_shape()?;
    if shape.contains(&0) {
        return Some(0);
    }
    let mut last = 0i64;
    for (extent, stride) in shape.iter().zip(strides(buffer)?) {
        last = last.checked_add((extent - 1).checked_mul(stride)?)?;
    }
    last.checked_add(1)
}
