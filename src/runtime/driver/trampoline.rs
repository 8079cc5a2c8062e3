//! The driver's entry points as symbols of this very binary: each jumps through a table that is filled when the
//! driver is first needed.
//!
//! cust's bindings want `cuInit` and its siblings from the linker. Linking the driver would tie the binary to
//! machines that have one; instead every name is defined here as a jump through a slot. A slot answers "no device"
//! until [`fill`] has put the driver's own address there. The names are hidden: they never leave the binary, so a
//! real libcuda in the same process keeps its own.

use super::names::entry_points;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a call answers while there is no driver: CUDA_ERROR_NO_DEVICE.
pub(super) const NO_DEVICE: c_int = 100;
/// What a call answers whose entry point the driver at hand lacks: CUDA_ERROR_NOT_FOUND.
const NOT_FOUND: c_int = 500;

extern "C" fn no_driver() -> c_int {
    NO_DEVICE
}

extern "C" fn not_in_this_driver() -> c_int {
    NOT_FOUND
}

/// `cuInit` until the driver is loaded: cust may be the first to call.
extern "C" fn first_init(flags: c_uint) -> c_int {
    let _ = super::load();
    match loaded(0, first_init as *const () as usize) {
        // SAFETY: the slot holds the driver's cuInit, whose C prototype is this one.
        Some(address) => unsafe { std::mem::transmute::<usize, extern "C" fn(c_uint) -> c_int>(address)(flags) },
        None => NO_DEVICE,
    }
}

/// `cuDriverGetVersion` until the driver is loaded: it may be called before `cuInit`.
extern "C" fn first_version(version: *mut c_int) -> c_int {
    let _ = super::load();
    match loaded(1, first_version as *const () as usize) {
        // SAFETY: the slot holds the driver's cuDriverGetVersion, whose C prototype is this one.
        Some(address) => unsafe { std::mem::transmute::<usize, extern "C" fn(*mut c_int) -> c_int>(address)(version) },
        None => NO_DEVICE,
    }
}

/// The slot's content unless it still is the starter itself (no driver was found).
fn loaded(slot: usize, starter: usize) -> Option<usize> {
    let address = table()[slot].load(Ordering::Acquire);
    (address != starter).then_some(address)
}

macro_rules! define_names {
    ($first:ident $second:ident; $($rest:ident)*) => {
        /// The entry points in the order of the table.
        pub(super) const NAMES: &[&str] = &[stringify!($first), stringify!($second), $(stringify!($rest)),*];
    };
}
entry_points!(define_names);

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($name:ident, $initial:literal) => {
        concat!(
            ".pushsection .text.warploom_driver,\"ax\",@progbits\n.globl ",
            stringify!($name),
            "\n.hidden ",
            stringify!($name),
            "\n.type ",
            stringify!($name),
            ",@function\n",
            stringify!($name),
            ": jmp qword ptr [rip + warploom_slot_",
            stringify!($name),
            "]\n.popsection\n",
            ".pushsection .data.warploom_driver,\"aw\",@progbits\nwarploom_slot_",
            stringify!($name),
            ": .quad ",
            $initial,
            "\n.popsection"
        )
    };
}

// x16 is the register that the procedure call standard leaves to such veneers.
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($name:ident, $initial:literal) => {
        concat!(
            ".pushsection .text.warploom_driver,\"ax\",@progbits\n.p2align 2\n.globl ",
            stringify!($name),
            "\n.hidden ",
            stringify!($name),
            "\n.type ",
            stringify!($name),
            ",@function\n",
            stringify!($name),
            ": adrp x16, warploom_slot_",
            stringify!($name),
            "\nldr x16, [x16, :lo12:warploom_slot_",
            stringify!($name),
            "]\nbr x16\n.popsection\n",
            ".pushsection .data.warploom_driver,\"aw\",@progbits\nwarploom_slot_",
            stringify!($name),
            ": .quad ",
            $initial,
            "\n.popsection"
        )
    };
}

macro_rules! define_trampolines {
    ($first:ident $second:ident; $($rest:ident)*) => {
        std::arch::global_asm!(
            ".pushsection .data.warploom_driver,\"aw\",@progbits",
            ".p2align 3",
            ".globl warploom_driver_table",
            ".hidden warploom_driver_table",
            "warploom_driver_table:",
            ".popsection",
            jump!($first, "{first_init}"),
            jump!($second, "{first_version}"),
            $(jump!($rest, "{no_driver}"),)*
            first_init = sym first_init,
            first_version = sym first_version,
            no_driver = sym no_driver,
        );
    };
}
entry_points!(define_trampolines);

unsafe extern "C" {
    static warploom_driver_table: [AtomicUsize; NAMES.len()];
}

fn table() -> &'static [AtomicUsize; NAMES.len()] {
    // SAFETY: the assembly above lays out exactly one aligned 8-byte slot for each name, in writable memory.
    unsafe { &warploom_driver_table }
}

/// Puts the driver's addresses into the table; `find` yields an entry point's address, if the driver has it.
/// Returns how many were found.
pub(super) fn fill(mut find: impl FnMut(&str) -> Option<*const c_void>) -> usize {
    let absent = not_in_this_driver as *const () as usize;
    let mut found = 0;
    for (name, slot) in NAMES.iter().zip(table()) {
        let address = find(name);
        found += usize::from(address.is_some());
        slot.store(address.map_or(absent, |a| super::guard::guard(name, a as usize)), Ordering::Release);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_their_slots_lie_in_order() {
        let unique: std::collections::HashSet<_> = NAMES.iter().collect();
        assert_eq!(unique.len(), NAMES.len());
        assert!(NAMES.len() > 350);
        assert_eq!(&NAMES[..2], &["cuInit", "cuDriverGetVersion"]);
        // Every slot holds some function's address: nothing but slots was laid out.
        assert!(table().iter().all(|s| s.load(Ordering::Acquire) != 0));
    }
}
