//! A CUDA driver without a GPU, for tests: a library with the driver's entry points, loaded as libcuda is.
//!
//! - Every call is checked as the driver checks it and written to a journal with its arguments (`mock_journal`).
//! - Device memory is host memory. Work on a stream is kept until something waits for it, so that a caller who forgets
//!   to wait sees old data; a kernel is then run by the test's own function (`mock_executor`), which gets its parameters
//!   as the launch packed them, read by the sizes in the PTX.
//! - What goes wrong, and when, is told in a text (`mock_configure`; see `settings`): a call that fails, a kernel that
//!   hangs or faults, a driver or device that is too old, memory that runs out.
//! - What has not been given back is counted (`mock_live`). Memory that a stream allocates and frees is checked as the driver checks it
//!   (`ordered`).
//! - Built with `--cfg age="11.3"` or `"11.7"` it lacks entry points that came with CUDA 11.4, or 11.8 and 12.0.
//!
//! The tests build this file with rustc alone (`tests/it/driver/mock.rs`), so it uses nothing but the standard library.
//! A process that does not configure it takes the settings from the variable `WARPLOOM_MOCK_SETTINGS`.

#![allow(non_snake_case)]

mod capture;
mod codes;
mod context;
mod device;
mod event;
mod memory;
mod module;
mod ordered;
mod ptx;
mod settings;
mod state;
mod stream;
#[cfg(not(age = "11.7"))]
mod tensor_map;

use state::{Executor, State, state};
use std::ffi::{CStr, c_char};

/// Replaces the settings; answers 0, or 1 where the text has a line that says nothing.
#[unsafe(no_mangle)]
extern "C" fn mock_configure(text: *const c_char) -> i32 {
    // SAFETY: the test passes a C string.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    match settings::Settings::parse(&text) {
        Some(settings) => {
            let mut state = state();
            state.settings = settings;
            state.counts.clear();
            0
        }
        None => 1,
    }
}

/// Sets the function that runs kernels; null for none.
#[unsafe(no_mangle)]
extern "C" fn mock_executor(executor: Option<Executor>) {
    state().executor = executor;
}

/// Copies the journal, a line a call, into the buffer and empties it if it fits; answers its length.
#[unsafe(no_mangle)]
extern "C" fn mock_journal(buffer: *mut u8, room: usize) -> usize {
    let mut state = state();
    let text = state.journal.join("\n");
    // SAFETY: the test passes a buffer of `room` bytes.
    let taken = unsafe { give(&text, buffer, room) };
    if taken {
        state.journal.clear();
    }
    text.len()
}

/// Copies what has not been given back, `allocations 0, modules 0, ..`, into the buffer; answers its length.
#[unsafe(no_mangle)]
extern "C" fn mock_live(buffer: *mut u8, room: usize) -> usize {
    let text = State::live(&state());
    // SAFETY: as above.
    unsafe { give(&text, buffer, room) };
    text.len()
}

/// Copies a text if there is room for it.
///
/// # Safety
/// `buffer` must have `room` bytes.
unsafe fn give(text: &str, buffer: *mut u8, room: usize) -> bool {
    let fits = text.len() <= room;
    if fits {
        // SAFETY: the caller vouches for the buffer.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buffer, text.len()) };
    }
    fits
}
