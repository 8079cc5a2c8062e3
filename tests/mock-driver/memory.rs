//! Device memory: host memory, aligned as the driver aligns it, and copies that wait as the driver's wait.

use crate::device::put;
use crate::state::{Allocation, CURRENT, Handle, Outcome, State, When, call};
use crate::stream::Task;
use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::sync::Arc;

/// What the driver aligns allocations to.
const ALIGN: usize = 512;
/// What fresh memory holds.
const GARBAGE: u8 = 0xCD;

fn layout(bytes: usize) -> Outcome<Layout> {
    Layout::from_size_align(bytes, ALIGN).map_err(|_| 2)
}

/// Host memory that the mock driver uses as device memory.
pub struct Memory {
    pub address: u64,
    pub bytes: usize,
}

impl Memory {
    pub fn new(bytes: usize) -> Outcome<Arc<Memory>> {
        if bytes == 0 {
            return Err(1);
        }
        // SAFETY: the size is not zero.
        let memory = unsafe { alloc(layout(bytes)?) };
        if memory.is_null() {
            return Err(2);
        }
        let memory = Arc::new(Memory { address: memory as u64, bytes });
        memory.spoil();
        Ok(memory)
    }

    /// Memory that was not written has undefined contents.
    pub fn spoil(&self) {
        // SAFETY: the memory has as many bytes.
        unsafe { (self.address as *mut u8).write_bytes(GARBAGE, self.bytes) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Ok(layout) = layout(self.bytes) {
            // SAFETY: it was allocated with this layout.
            unsafe { dealloc(self.address as *mut u8, layout) };
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> i32 {
    call("cuMemAlloc_v2", When::Current, bytes.to_string(), |state| {
        state.spoil_captures()?;
        let context = CURRENT.get();
        let memory = state.reserve(context, bytes)?;
        let at = memory.address;
        state.hold(memory, context)?;
        // SAFETY: the caller's pointer, as the prototype asks.
        unsafe { put(address, at) }
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
    state.allocations.remove(&address);
}

/// CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL alone.
#[unsafe(no_mangle)]
extern "C" fn cuPointerGetAttribute(value: *mut c_void, attribute: i32, address: u64) -> i32 {
    call("cuPointerGetAttribute", When::Current, format!("{attribute} {address:#x}"), |state| {
        let (start, allocation) = state.allocations.range(..=address).next_back().ok_or(1)?;
        if attribute != 9 || address >= start + allocation.memory.bytes as u64 {
            return Err(1);
        }
        // SAFETY: the caller's pointer to an int, as the attribute asks.
        unsafe { put(value.cast(), allocation.device) }
    })
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
        self.allocations.values().filter(|a| a.device == device).map(|a| a.memory.bytes).sum()
    }

    /// Memory for the device of a context, which nothing may use before [`State::hold`].
    pub fn reserve(&self, context: usize, bytes: usize) -> Outcome<Arc<Memory>> {
        let device = self.contexts.get(&context).ok_or(201)?.device;
        if bytes > self.settings.memory.saturating_sub(self.used(device)) {
            return Err(2);
        }
        Memory::new(bytes)
    }

    /// From now on the memory is an allocation of the context.
    pub fn hold(&mut self, memory: Arc<Memory>, context: usize) -> Outcome {
        let device = self.contexts.get(&context).ok_or(201)?.device;
        self.allocations.insert(memory.address, Allocation { memory, context, device, freed: false });
        Ok(())
    }

    /// Whether one allocation holds all of these bytes.
    pub fn holds(&self, address: u64, bytes: usize) -> Outcome {
        let (start, allocation) = self.allocations.range(..=address).next_back().ok_or(1)?;
        let end = start + allocation.memory.bytes as u64;
        if address + bytes as u64 <= end { Ok(()) } else { Err(1) }
    }
}
