//! Device memory: host memory, aligned as the driver aligns it, and copies that wait as the driver's wait.

use crate::device::put;
use crate::state::{Allocation, CURRENT, Handle, Outcome, State, When, call};
use crate::stream::Task;
use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;

/// What the driver aligns allocations to.
const ALIGN: usize = 512;
/// What fresh memory holds.
const GARBAGE: u8 = 0xCD;

fn layout(bytes: usize) -> Outcome<Layout> {
    Layout::from_size_align(bytes, ALIGN).map_err(|_| 2)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> i32 {
    call("cuMemAlloc_v2", When::Current, bytes.to_string(), |state| {
        state.spoil_captures()?;
        if bytes == 0 {
            return Err(1);
        }
        let context = CURRENT.get();
        let device = state.contexts.get(&context).ok_or(201)?.device;
        if bytes > state.settings.memory.saturating_sub(state.used(device)) {
            return Err(2);
        }
        // SAFETY: the size is not zero.
        let memory = unsafe { alloc(layout(bytes)?) };
        if memory.is_null() {
            return Err(2);
        }
        // SAFETY: just allocated with this size.
        unsafe { memory.write_bytes(GARBAGE, bytes) };
        state.allocations.insert(memory as u64, Allocation { bytes, context, device });
        // SAFETY: the caller's pointer, as the prototype asks.
        unsafe { put(address, memory as u64) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> i32 {
    call("cuMemFree_v2", When::Release, format!("{address:#x}"), |state| {
        state.spoil_captures()?;
        let context = state.allocations.get(&address).ok_or(1)?.context;
        state.idle(context)?;
        free(state, address);
        Ok(())
    })
}

/// Gives an allocation back.
pub fn free(state: &mut State, address: u64) {
    if let Some(allocation) = state.allocations.remove(&address)
        && let Ok(layout) = layout(allocation.bytes)
    {
        // SAFETY: it was allocated with this layout and is in the table no more.
        unsafe { dealloc(address as *mut u8, layout) };
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetInfo_v2(left: *mut usize, total: *mut usize) -> i32 {
    call("cuMemGetInfo_v2", When::Current, String::new(), |state| {
        let device = state.contexts.get(&CURRENT.get()).ok_or(201)?.device;
        let memory = state.settings.memory;
        // SAFETY: the caller's pointers, as the prototype asks.
        unsafe {
            put(left, memory.saturating_sub(state.used(device)))?;
            put(total, memory)
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> i32 {
    call("cuMemcpyHtoD_v2", When::Current, format!("{to:#x} {bytes}"), |state| {
        state.spoil_captures()?;
        state.holds(to, bytes)?;
        state.idle(CURRENT.get())?;
        // SAFETY: device memory holds as many bytes, as just seen; the caller vouches for the host's.
        unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), to as *mut u8, bytes) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> i32 {
    call("cuMemcpyDtoH_v2", When::Current, format!("{from:#x} {bytes}"), |state| {
        state.spoil_captures()?;
        state.holds(from, bytes)?;
        state.idle(CURRENT.get())?;
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.cast::<u8>(), bytes) };
        Ok(())
    })
}

/// Of memory that is not pinned: the driver has copied it when it returns.
#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: Handle) -> i32 {
    call("cuMemcpyHtoDAsync_v2", When::Current, format!("{to:#x} {bytes}"), |state| {
        let stream = state.own(stream)?;
        state.spoil(stream)?;
        state.holds(to, bytes)?;
        state.finish(stream)?;
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), to as *mut u8, bytes) };
        Ok(())
    })
}

/// As above.
#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Handle) -> i32 {
    call("cuMemcpyDtoHAsync_v2", When::Current, format!("{from:#x} {bytes}"), |state| {
        let stream = state.own(stream)?;
        state.spoil(stream)?;
        state.holds(from, bytes)?;
        state.finish(stream)?;
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.cast::<u8>(), bytes) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) -> i32 {
    call("cuMemcpyDtoDAsync_v2", When::Current, format!("{to:#x} {from:#x} {bytes}"), |state| {
        state.holds(to, bytes)?;
        state.holds(from, bytes)?;
        state.enqueue(stream, Task::Copy { to, from, bytes })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: Handle) -> i32 {
    call("cuMemsetD8Async", When::Current, format!("{to:#x} {value:#x} {count}"), |state| {
        state.holds(to, count)?;
        state.enqueue(stream, Task::Fill { to, value, bytes: count })
    })
}

impl State {
    fn used(&self, device: i32) -> usize {
        self.allocations.values().filter(|a| a.device == device).map(|a| a.bytes).sum()
    }

    /// Whether one allocation holds all of these bytes.
    pub fn holds(&self, address: u64, bytes: usize) -> Outcome {
        let (start, allocation) = self.allocations.range(..=address).next_back().ok_or(1)?;
        let end = start + allocation.bytes as u64;
        if address + bytes as u64 <= end { Ok(()) } else { Err(1) }
    }
}
