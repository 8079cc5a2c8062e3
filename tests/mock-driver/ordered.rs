//! Memory that a stream allocates and frees, in order with its other work; in a recording both are nodes of the graph.

use crate::device::put;
use crate::state::{Handle, When, call};
use crate::stream::Task;

/// CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED.
const POOLS: i32 = 115;

/// The memory can be used at once by work that comes later in the stream. In a recording it belongs to the graph: it is an allocation only
/// while the graph runs.
#[unsafe(no_mangle)]
extern "C" fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: Handle) -> i32 {
    call("cuMemAllocAsync", When::Current, bytes.to_string(), |state| {
        if state.attribute(POOLS)? == 0 {
            return Err(801);
        }
        let own = state.own(stream)?;
        let context = state.streams.get(&own).ok_or(400)?.context;
        let memory = state.reserve(context, bytes)?;
        let at = memory.address;
        if state.streams.get(&own).is_some_and(|stream| stream.capture.is_some()) {
            state.enqueue(stream, Task::Allocate(memory))?;
        } else {
            state.hold(memory, context)?;
        }
        // SAFETY: the caller's pointer, as the prototype asks.
        unsafe { put(address, at) }
    })
}

/// Refuses what is not allocated, and what a stream is to free already. A recording frees what was allocated in it.
#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(address: u64, stream: Handle) -> i32 {
    call("cuMemFreeAsync", When::Release, format!("{address:#x}"), |state| {
        let own = state.own(stream)?;
        if let Some((_, recorded)) = &state.streams.get(&own).ok_or(400)?.capture {
            let recorded = recorded.as_ref().ok_or(901)?;
            let count = |of: fn(&Task, u64) -> bool| recorded.iter().filter(|task| of(task, address)).count();
            let allocated = count(|task, at| matches!(task, Task::Allocate(memory) if memory.address == at));
            let freed = count(|task, at| matches!(task, Task::Free(address) if *address == at));
            if allocated == freed {
                return Err(1);
            }
        } else {
            let allocation = state.allocations.get_mut(&address).filter(|allocation| !allocation.freed).ok_or(1)?;
            allocation.freed = true;
        }
        state.enqueue(stream, Task::Free(address))
    })
}
