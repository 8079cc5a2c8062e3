//! Tensor maps: what the driver refuses of them, and all that was asked, in the journal.

use crate::state::{When, call};
use std::ffi::c_void;

#[unsafe(no_mangle)]
extern "C" fn cuTensorMapEncodeTiled(
    map: *mut [u64; 16],
    data_type: i32,
    rank: u32,
    address: *mut c_void,
    extents: *const u64,
    strides: *const u64,
    box_extents: *const u32,
    element_strides: *const u32,
    interleave: i32,
    swizzle: i32,
    l2_promotion: i32,
    out_of_bounds: i32,
) -> i32 {
    let rank = (rank as usize).clamp(1, 5);
    // SAFETY: the caller gives arrays as long as the rank, strides one less.
    let (extents, strides, box_extents, steps) = unsafe {
        (
            std::slice::from_raw_parts(extents, rank),
            std::slice::from_raw_parts(strides, rank - 1),
            std::slice::from_raw_parts(box_extents, rank),
            std::slice::from_raw_parts(element_strides, rank),
        )
    };
    let line = format!(
        "type {data_type} {extents:?} strides {strides:?} box {box_extents:?} steps {steps:?} interleave {interleave} \
         swizzle {swizzle} promotion {l2_promotion} outside {out_of_bounds}"
    );
    call("cuTensorMapEncodeTiled", When::Ready, line, |state| {
        let address = address as u64;
        if !address.is_multiple_of(16)
            || strides.iter().any(|s| !s.is_multiple_of(16))
            || box_extents.iter().any(|b| *b > 256)
        {
            return Err(1);
        }
        state.holds(address, 1)?;
        let mut words = [0; 16];
        words[0] = address;
        // SAFETY: the caller's map.
        unsafe { map.write(words) };
        Ok(())
    })
}
