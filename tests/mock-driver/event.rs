//! Events: marks in a stream, with the device's own clock.

use crate::device::put;
use crate::state::{CURRENT, Event, Handle, Outcome, State, WAIT, When, call};
use crate::stream::Task;
use std::ffi::c_uint;

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(event: *mut Handle, flags: c_uint) -> i32 {
    call("cuEventCreate", When::Current, flags.to_string(), |state| {
        let handle = state.handle();
        state.events.insert(handle, Event { context: CURRENT.get(), pending: None, time: None });
        // SAFETY: the caller's pointer, as the prototype asks.
        unsafe { put(event, handle as Handle) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: Handle) -> i32 {
    call("cuEventDestroy_v2", When::Release, String::new(), |state| {
        state.events.remove(&(event as usize)).map(|_| ()).ok_or(400)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> i32 {
    call("cuEventRecord", When::Current, String::new(), |state| {
        let (handle, place) = (event as usize, state.own(stream)?);
        let event = state.events.get_mut(&handle).ok_or(400)?;
        (event.pending, event.time) = (Some(place), None);
        state.enqueue(stream, Task::Record(handle))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: Handle) -> i32 {
    call("cuEventSynchronize", When::Current, String::new(), |state| state.reach(event))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: Handle) -> i32 {
    call("cuEventQuery", When::Current, String::new(), |state| {
        let pending = state.events.get(&(event as usize)).ok_or(400)?.pending;
        let Some(stream) = pending.and_then(|s| state.streams.get_mut(&s)) else { return Ok(()) };
        if !std::mem::replace(&mut stream.asked, true) {
            return Err(600);
        }
        state.reach(event).map_err(|code| if code == WAIT { 600 } else { code })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, start: Handle, end: Handle) -> i32 {
    call("cuEventElapsedTime", When::Current, String::new(), |state| {
        let time = |event: Handle| {
            let event = state.events.get(&(event as usize)).ok_or(400)?;
            event.time.ok_or(if event.pending.is_some() { 600 } else { 400 })
        };
        let between = time(end)? - time(start)?;
        // SAFETY: the caller's pointer, as the prototype asks.
        unsafe { put(milliseconds, between as f32) }
    })
}

impl State {
    /// Does a stream's work up to an event.
    pub fn reach(&mut self, event: Handle) -> Outcome {
        loop {
            match self.events.get(&(event as usize)).ok_or(400)?.pending {
                Some(stream) => self.step(stream)?,
                None => return Ok(()),
            }
        }
    }
}
