//! Contexts: the primary one of a device, counted, and those that a caller makes.

use crate::device::put;
use crate::state::{CURRENT, Context, Handle, State, When, call};
use std::ffi::c_uint;

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: i32) -> i32 {
    call("cuDevicePrimaryCtxRetain", When::Ready, device.to_string(), |state| {
        state.device(device)?;
        let (handle, uses) = match state.primary.get(&device) {
            Some((handle, uses)) => (*handle, *uses),
            None => (state.new_context(device), 0),
        };
        if let Some(code) = state.contexts.get(&handle).and_then(|c| c.lost) {
            return Err(code);
        }
        state.primary.insert(device, (handle, uses + 1));
        // SAFETY: the caller's pointer, as the prototype asks.
        unsafe { put(context, handle as Handle) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: i32) -> i32 {
    call("cuDevicePrimaryCtxRelease_v2", When::Close, device.to_string(), |state| {
        let (handle, uses) = *state.primary.get(&device).ok_or(201)?;
        if uses > 1 {
            state.primary.insert(device, (handle, uses - 1));
            return Ok(());
        }
        state.idle(handle)?;
        state.primary.remove(&device);
        state.destroy(handle);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxCreate_v2(context: *mut Handle, flags: c_uint, device: i32) -> i32 {
    call("cuCtxCreate_v2", When::Ready, format!("{flags} {device}"), |state| {
        state.device(device)?;
        let handle = state.new_context(device);
        CURRENT.set(handle);
        // SAFETY: the caller's pointer, as the prototype asks.
        unsafe { put(context, handle as Handle) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDestroy_v2(context: Handle) -> i32 {
    call("cuCtxDestroy_v2", When::Close, format!("{context:?}"), |state| {
        let handle = context as usize;
        let primary = state.primary.values().any(|p| p.0 == handle);
        if primary || !state.contexts.contains_key(&handle) {
            return Err(201);
        }
        state.idle(handle)?;
        state.destroy(handle);
        if CURRENT.get() == handle {
            CURRENT.set(0);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: Handle) -> i32 {
    call("cuCtxSetCurrent", When::Ready, String::new(), |state| {
        if !context.is_null() && !state.contexts.contains_key(&(context as usize)) {
            return Err(201);
        }
        CURRENT.set(context as usize);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> i32 {
    call("cuCtxSynchronize", When::Current, String::new(), |state| state.idle(CURRENT.get()))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetCurrent(context: *mut Handle) -> i32 {
    // SAFETY: the caller's pointer, as the prototype asks.
    call("cuCtxGetCurrent", When::Ready, String::new(), |_| unsafe { put(context, CURRENT.get() as Handle) })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetDevice(device: *mut i32) -> i32 {
    call("cuCtxGetDevice", When::Current, String::new(), |state| {
        let found = state.contexts.get(&CURRENT.get()).ok_or(201)?.device;
        // SAFETY: as above.
        unsafe { put(device, found) }
    })
}

impl State {
    fn new_context(&mut self, device: i32) -> usize {
        let handle = self.handle();
        self.contexts.insert(handle, Context { device, lost: None });
        self.add_stream(handle, handle, false);
        handle
    }
}
