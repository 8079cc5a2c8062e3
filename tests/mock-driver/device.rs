//! The driver itself and its devices: version, count, names, attributes, what codes are called.

use crate::codes::CODES;
use crate::state::{Outcome, State, When, call};
use std::ffi::{CString, c_char, c_uint};

/// Writes through a pointer that the caller must have given.
///
/// # Safety
/// `to` is null or points to room for a `T`.
pub unsafe fn put<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(1);
    }
    // SAFETY: the caller vouches for it.
    unsafe { to.write(value) };
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: c_uint) -> i32 {
    call("cuInit", When::Always, flags.to_string(), |state| match (flags, state.settings.devices) {
        (0, 0) => Err(100),
        (0, _) => {
            state.initialised = true;
            Ok(())
        }
        _ => Err(1),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(version: *mut i32) -> i32 {
    // SAFETY: the caller's pointer, as the prototype asks.
    call("cuDriverGetVersion", When::Always, String::new(), |state| unsafe { put(version, state.settings.driver) })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(count: *mut i32) -> i32 {
    // SAFETY: as above.
    call("cuDeviceGetCount", When::Ready, String::new(), |state| unsafe { put(count, state.settings.devices) })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(device: *mut i32, ordinal: i32) -> i32 {
    call("cuDeviceGet", When::Ready, ordinal.to_string(), |state| {
        state.device(ordinal)?;
        // SAFETY: as above.
        unsafe { put(device, ordinal) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(name: *mut c_char, len: i32, device: i32) -> i32 {
    call("cuDeviceGetName", When::Ready, device.to_string(), |state| {
        state.device(device)?;
        // SAFETY: the caller gives `len` bytes.
        unsafe { text(name, len, &format!("Mock {device}")) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetPCIBusId(bus: *mut c_char, len: i32, device: i32) -> i32 {
    call("cuDeviceGetPCIBusId", When::Ready, device.to_string(), |state| {
        state.device(device)?;
        // SAFETY: the caller gives `len` bytes.
        unsafe { text(bus, len, &format!("0000:{device:02X}:00.0")) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) -> i32 {
    call("cuDeviceTotalMem_v2", When::Ready, device.to_string(), |state| {
        state.device(device)?;
        // SAFETY: the caller's pointer, as the prototype asks.
        unsafe { put(bytes, state.settings.memory) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) -> i32 {
    call("cuDeviceGetAttribute", When::Ready, format!("{attribute} {device}"), |state| {
        state.device(device)?;
        // SAFETY: as above.
        unsafe { put(value, state.attribute(attribute)?) }
    })
}

/// # Safety
/// `to` has `len` bytes.
unsafe fn text(to: *mut c_char, len: i32, text: &str) -> Outcome {
    let room = usize::try_from(len).map_err(|_| 1)?;
    let text = CString::new(text).map_err(|_| 1)?;
    let bytes = text.as_bytes_with_nul();
    if to.is_null() || bytes.len() > room {
        return Err(1);
    }
    // SAFETY: there is room, as just seen.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, bytes.len()) };
    Ok(())
}

impl State {
    pub fn device(&self, device: i32) -> Outcome {
        if (0..self.settings.devices).contains(&device) { Ok(()) } else { Err(101) }
    }

    /// Figures like those of a large device of the capability at hand.
    pub fn attribute(&self, attribute: i32) -> Outcome<i32> {
        if let Some(value) = self.settings.attributes.get(&attribute) {
            return Ok(*value);
        }
        let (major, minor) = self.settings.capability;
        let large = major >= 9;
        Ok(match attribute {
            1 => 1024,
            13 => 1_980_000,
            16 => 132,
            36 => 2_619_000,
            37 => 5120,
            38 => 50 << 20,
            39 => 2048,
            75 => major,
            76 => minor,
            81 => {
                if large {
                    233_472
                } else {
                    167_936
                }
            }
            82 => 65_536,
            97 => {
                if large {
                    232_448
                } else {
                    166_912
                }
            }
            // Memory pools, from which streams allocate.
            115 => 1,
            120 => i32::from(large),
            _ => return Err(1),
        })
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(code: i32, name: *mut *const c_char) -> i32 {
    call("cuGetErrorName", When::Always, code.to_string(), |state| {
        let known = CODES.iter().find(|c| c.0 == code).map(|c| c.1.to_string());
        let text = known.or_else(|| state.settings.names.get(&code).cloned()).ok_or(1)?;
        // SAFETY: the caller's pointer, as the prototype asks.
        unsafe { put(name, state.lasting(text)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(code: i32, text: *mut *const c_char) -> i32 {
    call("cuGetErrorString", When::Always, code.to_string(), |state| {
        let known = CODES.iter().any(|c| c.0 == code) || state.settings.names.contains_key(&code);
        let words = if known { "as the driver says" } else { return Err(1) };
        // SAFETY: as above.
        unsafe { put(text, state.lasting(words.to_string())) }
    })
}

impl State {
    /// A C string that stays.
    pub fn lasting(&mut self, text: String) -> *const c_char {
        self.names.entry(text.clone()).or_insert_with(|| CString::new(text).unwrap_or_default()).as_ptr()
    }
}
