//! The driver calls that cust makes for us, with every answer turned into one that its enum holds.
//!
//! cust reads an answer as a Rust enum of the codes of CUDA 11.4; a later code in it is undefined behaviour. So the
//! trampolines of these calls lead to a guard, which lets cust see success or CUDA_ERROR_UNKNOWN and keeps the driver's
//! own answer for [`answer`]. Our own calls of the same names, below, see the driver's answer itself.

use super::api::Handle;
use super::trampoline::NO_DEVICE;
use std::cell::Cell;
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What cust sees of every failure: CUDA_ERROR_UNKNOWN.
const UNKNOWN: c_int = 999;

thread_local! {
    static ANSWER: Cell<c_int> = const { Cell::new(NO_DEVICE) };
}

/// The driver's own answer to the last call that failed for cust on this thread; "no device" before any.
pub(crate) fn answer() -> c_int {
    ANSWER.get()
}

fn narrow(answer: c_int) -> c_int {
    if answer == 0 {
        return 0;
    }
    ANSWER.set(answer);
    UNKNOWN
}

macro_rules! guarded {
    ($(fn $name:ident($($argument:ident: $kind:ty),*);)*) => {
        #[allow(non_camel_case_types)]
        enum Place { $($name),* }

        /// The guarded names, in the order of the table.
        pub(super) const NAMES: &[&str] = &[$(stringify!($name)),*];

        /// The driver's addresses, 0 while there is no driver.
        static DRIVERS: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

        $(
            /// The driver's own entry point of this name.
            ///
            /// # Safety
            /// As the CUDA Driver API reference says of it.
            #[allow(non_snake_case, dead_code)]
            pub(crate) unsafe fn $name($($argument: $kind),*) -> c_int {
                let address = DRIVERS[Place::$name as usize].load(Ordering::Acquire);
                if address == 0 {
                    return NO_DEVICE;
                }
                // SAFETY: the address is the driver's of this name, whose C prototype is this one.
                unsafe {
                    let call = std::mem::transmute::<usize, unsafe extern "C" fn($($kind),*) -> c_int>(address);
                    call($($argument),*)
                }
            }
        )*

        mod narrowed {
            use super::*;
            $(
                #[allow(non_snake_case)]
                pub(super) unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
                    // SAFETY: the caller's arguments are passed on as they are.
                    narrow(unsafe { super::$name($($argument),*) })
                }
            )*
        }

        /// The guards, in the order of the table.
        fn guards() -> [usize; NAMES.len()] {
            [$(narrowed::$name as *const () as usize),*]
        }
    };
}

guarded! {
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int);
    fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int);
    fn cuDevicePrimaryCtxRelease_v2(device: c_int);
    fn cuCtxSetCurrent(context: Handle);
    fn cuStreamCreateWithPriority(stream: *mut Handle, flags: c_uint, priority: c_int);
    fn cuStreamDestroy_v2(stream: Handle);
}

/// What the trampoline of a name leads to, given the driver's address of it: its guard, if it has one.
pub(super) fn guard(name: &str, address: usize) -> usize {
    match NAMES.iter().position(|n| *n == name) {
        Some(place) => {
            DRIVERS[place].store(address, Ordering::Release);
            guards()[place]
        }
        None => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cust_sees_success_or_one_failure() {
        assert_eq!((narrow(0), narrow(2), answer()), (0, UNKNOWN, 2));
        assert_eq!((narrow(0), answer()), (0, 2));
        assert_eq!((narrow(-7), answer()), (UNKNOWN, -7));
    }

    #[test]
    fn only_guarded_names_are_led_elsewhere() {
        assert_eq!(guard("cuMemAlloc_v2", 4096), 4096);
        assert_eq!(guards().len(), NAMES.len());
        assert!(NAMES.iter().all(|name| super::super::trampoline::NAMES.contains(name)));
    }
}
