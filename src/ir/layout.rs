//! How data lies: the one type for paddings, panels, swizzles, fragment maps and packed integers.
//!
//! A layout splits each index into mixed-radix digits, gives every digit a stride in the output, and then
//! optionally flips bits of the address by others. This file holds the part that SIMT code needs: row-major strides
//! with the padding of `storage_align`.

use super::Buffer;

/// The strides in elements of a buffer's dimensions: the caller's, or row-major with `storage_align`'s padding.
/// `None` where an extent is symbolic or the size overflows.
pub fn strides(buffer: &Buffer) -> Option<Vec<i64>> {
    if let Some(s) = &buffer.strides {
        return Some(s.clone());
    }
    let shape = buffer.const_shape()?;
    let mut strides = vec![1i64; shape.len()];
    for d in (0..shape.len()).rev() {
        let mut stride = if d + 1 < shape.len() { strides[d + 1].checked_mul(shape[d + 1])? } else { 1 };
        if let Some(a) = buffer.storage_align.filter(|a| a.dim == d) {
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
