//! The driver's entry points on systems where no device is driven: each answers that there is none.
//!
//! A program that runs kernels on Linux compiles elsewhere, too; there it has artefacts and the simulator.

use super::names::entry_points;
use std::ffi::{c_int, c_void};

/// What a call answers: CUDA_ERROR_NO_DEVICE.
pub(super) const NO_DEVICE: c_int = 100;

macro_rules! define_names {
    ($($name:ident)*; $($rest:ident)*) => {
        /// The entry points that cust's bindings name.
        #[cfg(test)]
        pub(super) const NAMES: &[&str] = &[$(stringify!($name),)* $(stringify!($rest)),*];
        $(absent!($name);)*
        $(absent!($rest);)*
    };
}

/// An entry point takes arguments that it does not read: the caller has put them where its calling convention says, and takes them away.
macro_rules! absent {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        extern "C" fn $name() -> c_int {
            NO_DEVICE
        }
    };
}

entry_points!(define_names);

/// None of the entry points is taken from a driver.
pub(super) fn fill(_: impl FnMut(&str) -> Option<*const c_void>) -> usize {
    0
}
