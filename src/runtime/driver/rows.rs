//! Every result code of the driver: its name, whose fault it is, what it means here, and what to try.
//!
//! Names and numbers are those of CUresult in cuda.h up to CUDA 13.3; which codes end all work is said there too ("this
//! leaves the process in an inconsistent state").

use crate::error::Fault;
use std::ffi::c_int;

/// One known code.
pub(super) struct Row {
    pub(super) code: c_int,
    /// The name behind `CUDA_ERROR_`.
    pub(super) name: &'static str,
    pub(super) fault: Fault,
    pub(super) text: &'static str,
    pub(super) mend: &'static str,
    /// Whether the driver refuses all further work in the context after it.
    pub(super) sticky: bool,
}

const fn row(code: c_int, name: &'static str, fault: Fault, text: &'static str, mend: &'static str) -> Row {
    Row { code, name, fault, text, mend, sticky: false }
}

/// A call that we should not have made so.
const fn bug(code: c_int, name: &'static str, text: &'static str) -> Row {
    row(code, name, Fault::Bug, text, REPORT)
}

/// Something that the device cannot do.
const fn chip(code: c_int, name: &'static str, text: &'static str, mend: &'static str) -> Row {
    row(code, name, Fault::Chip, text, mend)
}

/// The host.
const fn machine(code: c_int, name: &'static str, text: &'static str, mend: &'static str) -> Row {
    row(code, name, Fault::Machine, text, mend)
}

/// A kernel that went wrong while it ran: its context is lost.
const fn kernel(code: c_int, name: &'static str, text: &'static str) -> Row {
    Row { sticky: true, ..row(code, name, Fault::Bug, text, RERUN) }
}

/// The device failed while a kernel ran: its context is lost.
const fn broken(code: c_int, name: &'static str, text: &'static str) -> Row {
    Row { sticky: true, ..row(code, name, Fault::Machine, text, RESTART) }
}

pub(super) const REPORT: &str = "report it with the schedule and the driver's version (warploom doctor prints it)";
const RESTART: &str =
    "open the device again, for a new context; where the driver refuses that too, restart the process";
const RERUN: &str = "run the program on the simulator, which names the access, and report the schedule; to go on, open \
                     the device again, for a new context, or restart the process";
const LOGS: &str = "look at the kernel's log for lines with NVRM, and run nvidia-smi";
const UPDATE: &str = "update the NVIDIA driver";
const INSTALL: &str = "install the NVIDIA driver again, with all of its packages";
const MPS: &str = "see that the MPS control daemon runs (nvidia-cuda-mps-control), or unset CUDA_MPS_PIPE_DIRECTORY";
const CAPABLE: &str = "compile for the device's own architecture: warploom doctor names it";

pub(super) const ROWS: &[Row] = &[
    bug(1, "INVALID_VALUE", "an argument of a driver call is out of range"),
    machine(
        2,
        "OUT_OF_MEMORY",
        "the device has not enough free memory",
        "use smaller arrays, or free device memory that other processes hold (nvidia-smi lists them)",
    ),
    bug(3, "NOT_INITIALIZED", "the driver was not initialised"),
    machine(4, "DEINITIALIZED", "the driver is shutting down", "use the device before the process ends"),
    bug(5, "PROFILER_DISABLED", "the profiler is not initialised"),
    bug(6, "PROFILER_NOT_INITIALIZED", "the profiler is not initialised"),
    bug(7, "PROFILER_ALREADY_STARTED", "the profiler was started already"),
    bug(8, "PROFILER_ALREADY_STOPPED", "the profiler was stopped already"),
    machine(
        34,
        "STUB_LIBRARY",
        "the libcuda that was found is a stub for linking, not a driver",
        "remove CUDA's lib64/stubs from LD_LIBRARY_PATH, and install the NVIDIA driver",
    ),
    machine(36, "CALL_REQUIRES_NEWER_DRIVER", "the driver is too old for this call", UPDATE),
    machine(
        46,
        "DEVICE_UNAVAILABLE",
        "the device is taken by another process or in a bad state",
        "see who holds the device: nvidia-smi",
    ),
    machine(
        100,
        "NO_DEVICE",
        "no CUDA device was found",
        "check that nvidia-smi lists a device and that CUDA_VISIBLE_DEVICES does not hide it",
    ),
    machine(101, "INVALID_DEVICE", "there is no device of that number", "warploom doctor lists the devices"),
    machine(102, "DEVICE_NOT_LICENSED", "the device has no licence", "license the virtual GPU (its nvidia-gridd runs)"),
    bug(200, "INVALID_IMAGE", "the driver does not take this for a module"),
    bug(201, "INVALID_CONTEXT", "no valid context is current"),
    bug(202, "CONTEXT_ALREADY_CURRENT", "the context is current already"),
    bug(205, "MAP_FAILED", "a resource could not be mapped"),
    bug(206, "UNMAP_FAILED", "a resource could not be unmapped"),
    bug(207, "ARRAY_IS_MAPPED", "an array is mapped"),
    bug(208, "ALREADY_MAPPED", "a resource is mapped already"),
    chip(209, "NO_BINARY_FOR_GPU", "the module is not for this device", CAPABLE),
    bug(210, "ALREADY_ACQUIRED", "a resource is acquired already"),
    bug(211, "NOT_MAPPED", "a resource is not mapped"),
    bug(212, "NOT_MAPPED_AS_ARRAY", "a resource is not mapped as an array"),
    bug(213, "NOT_MAPPED_AS_POINTER", "a resource is not mapped as a pointer"),
    broken(214, "ECC_UNCORRECTABLE", "the device's memory has an uncorrectable error"),
    chip(215, "UNSUPPORTED_LIMIT", "the device does not have this limit", UPDATE),
    bug(216, "CONTEXT_ALREADY_IN_USE", "the context is bound to another thread"),
    chip(217, "PEER_ACCESS_UNSUPPORTED", "the devices cannot reach each other's memory", "use one device"),
    bug(218, "INVALID_PTX", "the driver's compiler refuses the PTX"),
    bug(219, "INVALID_GRAPHICS_CONTEXT", "a graphics context is not valid"),
    broken(220, "NVLINK_UNCORRECTABLE", "a link between devices has an uncorrectable error"),
    machine(
        221,
        "JIT_COMPILER_NOT_FOUND",
        "the driver's PTX compiler is not installed",
        "install the driver package that brings libnvidia-ptxjitcompiler.so.1",
    ),
    machine(
        222,
        "UNSUPPORTED_PTX_VERSION",
        "the driver is too old for this PTX version",
        "update the NVIDIA driver, or compile for an older target, which needs a lower PTX version",
    ),
    machine(
        223,
        "JIT_COMPILATION_DISABLED",
        "compiling PTX is switched off",
        "unset CUDA_DISABLE_PTX_JIT and CUDA_DISABLE_JIT",
    ),
    chip(224, "UNSUPPORTED_EXEC_AFFINITY", "the device cannot be partitioned in this way", UPDATE),
    bug(225, "UNSUPPORTED_DEVSIDE_SYNC", "a kernel waits for kernels of its own"),
    broken(226, "CONTAINED", "an error was contained to this context"),
    bug(300, "INVALID_SOURCE", "the driver refuses the module's source"),
    machine(301, "FILE_NOT_FOUND", "a file of the driver was not found", INSTALL),
    machine(302, "SHARED_OBJECT_SYMBOL_NOT_FOUND", "the driver's libraries do not fit together", INSTALL),
    machine(303, "SHARED_OBJECT_INIT_FAILED", "a library of the driver did not start", INSTALL),
    machine(304, "OPERATING_SYSTEM", "an operating system call of the driver failed", LOGS),
    bug(400, "INVALID_HANDLE", "a handle is not valid"),
    bug(401, "ILLEGAL_STATE", "a resource is in the wrong state for the call"),
    bug(402, "LOSSY_QUERY", "a query would lose information"),
    bug(500, "NOT_FOUND", "a name was not found"),
    bug(600, "NOT_READY", "the work has not finished yet"),
    kernel(700, "ILLEGAL_ADDRESS", "a kernel read or wrote an address outside its buffers"),
    chip(
        701,
        "LAUNCH_OUT_OF_RESOURCES",
        "a block needs more registers or threads than there are",
        "use fewer threads a block, or smaller register tiles",
    ),
    broken(702, "LAUNCH_TIMEOUT", "a kernel ran longer than the system allows"),
    bug(703, "LAUNCH_INCOMPATIBLE_TEXTURING", "the launch's texturing mode does not fit"),
    bug(704, "PEER_ACCESS_ALREADY_ENABLED", "the devices reach each other's memory already"),
    bug(705, "PEER_ACCESS_NOT_ENABLED", "the devices do not reach each other's memory"),
    bug(708, "PRIMARY_CONTEXT_ACTIVE", "the device's primary context is in use"),
    bug(709, "CONTEXT_IS_DESTROYED", "the context was destroyed"),
    kernel(710, "ASSERT", "a kernel stopped at an assertion"),
    machine(711, "TOO_MANY_PEERS", "too many devices reach each other's memory", "use fewer devices in a process"),
    bug(712, "HOST_MEMORY_ALREADY_REGISTERED", "host memory is registered already"),
    bug(713, "HOST_MEMORY_NOT_REGISTERED", "host memory is not registered"),
    kernel(714, "HARDWARE_STACK_ERROR", "a kernel broke its call stack"),
    kernel(715, "ILLEGAL_INSTRUCTION", "a kernel ran an illegal instruction"),
    kernel(716, "MISALIGNED_ADDRESS", "a kernel used an address that is not aligned for its width"),
    kernel(717, "INVALID_ADDRESS_SPACE", "a kernel used an address of the wrong memory"),
    kernel(718, "INVALID_PC", "a kernel jumped out of its code"),
    kernel(719, "LAUNCH_FAILED", "a kernel failed while it ran"),
    chip(
        720,
        "COOPERATIVE_LAUNCH_TOO_LARGE",
        "the blocks do not fit on the device together",
        "use fewer or smaller blocks",
    ),
    kernel(721, "TENSOR_MEMORY_LEAK", "a kernel ended without giving back its tensor memory"),
    machine(800, "NOT_PERMITTED", "the operation is not permitted", "see the permissions of /dev/nvidia*"),
    chip(801, "NOT_SUPPORTED", "the device or its driver does not support the operation", UPDATE),
    machine(
        802,
        "SYSTEM_NOT_READY",
        "the system is not ready",
        "on hosts with NVSwitch, check that nvidia-fabricmanager runs",
    ),
    machine(
        803,
        "SYSTEM_DRIVER_MISMATCH",
        "libcuda and the kernel's driver have different versions",
        "reboot after a driver update; in a container, mount the host's libcuda",
    ),
    machine(
        804,
        "COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "forward compatibility is not for this device",
        "take CUDA's compat folder out of LD_LIBRARY_PATH",
    ),
    machine(805, "MPS_CONNECTION_FAILED", "the MPS server cannot be reached", MPS),
    machine(806, "MPS_RPC_FAILURE", "a call to the MPS server failed", MPS),
    machine(807, "MPS_SERVER_NOT_READY", "the MPS server is not ready", "try again when it has restarted"),
    machine(808, "MPS_MAX_CLIENTS_REACHED", "the MPS server has all the clients that it takes", MPS),
    machine(809, "MPS_MAX_CONNECTIONS_REACHED", "the MPS server has all the connections that it takes", MPS),
    broken(810, "MPS_CLIENT_TERMINATED", "the MPS server has ended this client"),
    chip(811, "CDP_NOT_SUPPORTED", "the device runs no kernels that launch kernels", CAPABLE),
    bug(812, "CDP_VERSION_MISMATCH", "versions of kernels that launch kernels do not fit together"),
    bug(900, "STREAM_CAPTURE_UNSUPPORTED", "an operation cannot be captured into a graph"),
    bug(901, "STREAM_CAPTURE_INVALIDATED", "capturing into a graph was spoilt by an earlier error"),
    bug(902, "STREAM_CAPTURE_MERGE", "two captures would be joined"),
    bug(903, "STREAM_CAPTURE_UNMATCHED", "the capture was not begun on this stream"),
    bug(904, "STREAM_CAPTURE_UNJOINED", "a capture left work behind on another stream"),
    bug(905, "STREAM_CAPTURE_ISOLATION", "work outside a capture would wait for work in it"),
    bug(906, "STREAM_CAPTURE_IMPLICIT", "work on the default stream would be captured"),
    bug(907, "CAPTURED_EVENT", "an event was recorded in a capture"),
    bug(908, "STREAM_CAPTURE_WRONG_THREAD", "a capture was ended on another thread than it began on"),
    machine(909, "TIMEOUT", "the driver gave up waiting", LOGS),
    bug(910, "GRAPH_EXEC_UPDATE_FAILURE", "a graph cannot be changed in this way"),
    broken(911, "EXTERNAL_DEVICE", "another device that was waited for has failed"),
    chip(
        912,
        "INVALID_CLUSTER_SIZE",
        "the device cannot run clusters of this size",
        "use a smaller cluster: up to 8 blocks are portable",
    ),
    bug(913, "FUNCTION_NOT_LOADED", "a kernel is not loaded yet"),
    bug(914, "INVALID_RESOURCE_TYPE", "a resource is of the wrong kind"),
    chip(915, "INVALID_RESOURCE_CONFIGURATION", "the device has not the resources that were asked for", CAPABLE),
    machine(916, "KEY_ROTATION", "the device's encryption keys could not be changed", LOGS),
    bug(917, "STREAM_DETACHED", "the stream is detached"),
    bug(918, "GRAPH_RECAPTURE_FAILURE", "a graph could not be captured again"),
    machine(999, "UNKNOWN", "the driver does not say what went wrong", LOGS),
];
