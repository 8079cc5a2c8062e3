//! What the driver's result codes mean, whose fault each is, and what to try.
//!
//! Codes are plain integers: drivers add new ones, and an unknown one is an error like any other.

use crate::error::{Error, Fault, Result};
use std::ffi::c_int;

/// One known code.
struct Row {
    code: c_int,
    name: &'static str,
    fault: Fault,
    text: &'static str,
    mend: Option<&'static str>,
}

const fn row(code: c_int, name: &'static str, fault: Fault, text: &'static str, mend: Option<&'static str>) -> Row {
    Row { code, name, fault, text, mend }
}

const RESTART: Option<&str> = Some("restart the process: after this error the driver refuses all further work in it");
const REPORT: Option<&str> = Some(
    "restart the process (the driver refuses all further work in it), run the program on the CPU machine, which names \
     the access, and report the schedule",
);

use Fault::{Bug, Chip, Machine};

/// The codes that a user may meet (names and numbers of CUresult in the CUDA Driver API reference).
const ROWS: &[Row] = &[
    row(1, "CUDA_ERROR_INVALID_VALUE", Bug, "an argument of a driver call is out of range", None),
    row(
        2,
        "CUDA_ERROR_OUT_OF_MEMORY",
        Machine,
        "the device has not enough free memory",
        Some("use smaller arrays, or free device memory that other processes hold (nvidia-smi lists them)"),
    ),
    row(3, "CUDA_ERROR_NOT_INITIALIZED", Bug, "the driver was not initialised", None),
    row(4, "CUDA_ERROR_DEINITIALIZED", Machine, "the driver is shutting down", None),
    row(
        34,
        "CUDA_ERROR_STUB_LIBRARY",
        Machine,
        "the libcuda that was found is a stub for linking, not a driver",
        Some("remove CUDA's lib64/stubs from LD_LIBRARY_PATH, and install the NVIDIA driver"),
    ),
    row(
        36,
        "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER",
        Machine,
        "the driver is too old for this call",
        Some("update the NVIDIA driver"),
    ),
    row(
        46,
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
        Machine,
        "the device is taken by another process or in a bad state",
        Some("see who holds the device: nvidia-smi"),
    ),
    row(
        100,
        "CUDA_ERROR_NO_DEVICE",
        Machine,
        "no CUDA device was found",
        Some("check that nvidia-smi lists a device and that CUDA_VISIBLE_DEVICES does not hide it"),
    ),
    row(101, "CUDA_ERROR_INVALID_DEVICE", Machine, "there is no device of that number", None),
    row(200, "CUDA_ERROR_INVALID_IMAGE", Bug, "the driver does not take this for a module", None),
    row(201, "CUDA_ERROR_INVALID_CONTEXT", Bug, "no valid context is current", None),
    row(
        209,
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
        Chip,
        "the module is not for this device",
        Some("compile for the device's own architecture: warploom doctor names it"),
    ),
    row(214, "CUDA_ERROR_ECC_UNCORRECTABLE", Machine, "the device's memory has an uncorrectable error", RESTART),
    row(218, "CUDA_ERROR_INVALID_PTX", Bug, "the driver's compiler refuses the PTX", None),
    row(220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", Machine, "a link between devices has an uncorrectable error", RESTART),
    row(
        221,
        "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
        Machine,
        "the driver's PTX compiler is not installed",
        Some("install the driver package that brings libnvidia-ptxjitcompiler.so.1"),
    ),
    row(
        222,
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        Machine,
        "the driver is too old for this PTX version",
        Some("update the NVIDIA driver, or compile for an older target, which needs a lower PTX version"),
    ),
    row(
        223,
        "CUDA_ERROR_JIT_COMPILATION_DISABLED",
        Machine,
        "compiling PTX is switched off",
        Some("unset CUDA_DISABLE_PTX_JIT and CUDA_DISABLE_JIT"),
    ),
    row(226, "CUDA_ERROR_CONTAINED", Machine, "an error was contained to this context", RESTART),
    row(300, "CUDA_ERROR_INVALID_SOURCE", Bug, "the driver refuses the module's source", None),
    row(303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", Machine, "a library of the driver did not start", None),
    row(304, "CUDA_ERROR_OPERATING_SYSTEM", Machine, "an operating system call of the driver failed", None),
    row(400, "CUDA_ERROR_INVALID_HANDLE", Bug, "a handle is not valid", None),
    row(500, "CUDA_ERROR_NOT_FOUND", Bug, "a name was not found", None),
    row(600, "CUDA_ERROR_NOT_READY", Bug, "the work has not finished yet", None),
    row(700, "CUDA_ERROR_ILLEGAL_ADDRESS", Bug, "a kernel read or wrote an address outside its buffers", REPORT),
    row(
        701,
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        Chip,
        "a block needs more registers or threads than there are",
        Some("use fewer threads a block, or smaller register tiles"),
    ),
    row(702, "CUDA_ERROR_LAUNCH_TIMEOUT", Machine, "a kernel ran longer than the system allows", RESTART),
    row(710, "CUDA_ERROR_ASSERT", Bug, "a kernel stopped at an assertion", REPORT),
    row(714, "CUDA_ERROR_HARDWARE_STACK_ERROR", Bug, "a kernel broke its call stack", REPORT),
    row(715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", Bug, "a kernel ran an illegal instruction", REPORT),
    row(
        716,
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        Bug,
        "a kernel used an address that is not aligned for its width",
        REPORT,
    ),
    row(717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", Bug, "a kernel used an address of the wrong memory", REPORT),
    row(718, "CUDA_ERROR_INVALID_PC", Bug, "a kernel jumped out of its code", REPORT),
    row(719, "CUDA_ERROR_LAUNCH_FAILED", Bug, "a kernel failed while it ran", REPORT),
    row(720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", Chip, "the blocks do not fit on the device together", None),
    row(800, "CUDA_ERROR_NOT_PERMITTED", Machine, "the operation is not permitted", None),
    row(801, "CUDA_ERROR_NOT_SUPPORTED", Chip, "the device or its driver does not support the operation", None),
    row(
        802,
        "CUDA_ERROR_SYSTEM_NOT_READY",
        Machine,
        "the system is not ready",
        Some("on machines with NVSwitch, check that nvidia-fabricmanager runs"),
    ),
    row(
        803,
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        Machine,
        "libcuda and the kernel's driver have different versions",
        Some("reboot after a driver update; in a container, mount the host's libcuda"),
    ),
    row(
        804,
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        Machine,
        "forward compatibility is not for this device",
        Some("take CUDA's compat folder out of LD_LIBRARY_PATH"),
    ),
    row(900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", Bug, "an operation cannot be captured into a graph", None),
    row(
        901,
        "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        Bug,
        "capturing into a graph was spoilt by an earlier error",
        None,
    ),
    row(
        912,
        "CUDA_ERROR_INVALID_CLUSTER_SIZE",
        Chip,
        "the device cannot run clusters of this size",
        Some("use a smaller cluster: up to 8 blocks are portable"),
    ),
    row(
        999,
        "CUDA_ERROR_UNKNOWN",
        Machine,
        "the driver does not say what went wrong",
        Some("look at the kernel's log for lines with NVRM, and run nvidia-smi"),
    ),
];

/// `Ok` for 0, else the error of that code while `doing` something.
pub(crate) fn check(code: c_int, doing: &str) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(error(code, doing)) }
}

/// The error of a code; its own code is `driver.NUMBER`.
pub(crate) fn error(code: c_int, doing: &str) -> Error {
    let Some(row) = ROWS.iter().find(|row| row.code == code) else {
        let message = format!("{doing}: the driver answers {code}, a code that this version does not know");
        return Error::machine(format!("driver.{code}"), message);
    };
    let message = format!("{doing}: {} ({} {code})", row.text, row.name);
    let error = Error::new(row.fault, format!("driver.{code}"), message);
    match row.mend {
        Some(mend) => error.help(mend),
        None => error,
    }
}

/// Whether the driver refuses all further work in this process after the code.
pub(crate) fn is_sticky(code: c_int) -> bool {
    matches!(code, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_with_name_text_and_mend() {
        let error = error(222, "loading gemm");
        assert_eq!(error.fault(), Fault::Machine);
        assert_eq!(error.code(), "driver.222");
        assert_eq!(
            error.message(),
            "loading gemm: the driver is too old for this PTX version (CUDA_ERROR_UNSUPPORTED_PTX_VERSION 222)"
        );
        assert_eq!(error.helps().len(), 1);
        for code in [2, 34, 221, 700, 719, 912] {
            assert_eq!(super::error(code, "x").helps().len(), 1, "{code}");
        }
    }

    #[test]
    fn unknown_codes_are_errors_too() {
        assert_eq!(check(0, "x"), Ok(()));
        let error = check(12345, "launching gemm").unwrap_err();
        assert_eq!((error.fault(), error.code()), (Fault::Machine, "driver.12345"));
        assert_eq!(error.message(), "launching gemm: the driver answers 12345, a code that this version does not know");
    }

    #[test]
    fn rows_are_in_order_and_sticky_ones_say_restart() {
        assert!(ROWS.windows(2).all(|w| w[0].code < w[1].code));
        for row in ROWS.iter().filter(|row| is_sticky(row.code)) {
            assert!(row.mend.is_some_and(|mend| mend.contains("restart")), "{}", row.name);
        }
    }
}
