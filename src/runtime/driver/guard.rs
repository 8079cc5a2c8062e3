//! The driver calls of the runtime: prototypes from cust's bindings, answers that their enum holds.
//!
//! The bindings (`cust::sys`, CUDA 11.4) read an answer as a Rust enum of 87 codes; a code outside it is undefined behaviour, and today's
//! drivers have such codes. So the trampolines of all calls below lead to a guard. It passes on the codes of the enum, turns
//! every other code into CUDA_ERROR_UNKNOWN, and keeps the driver's own answer for [`Answer::code`]. The guards serve the calls
//! that cust makes and the calls that this module makes by the same prototypes.

use super::trampoline::NO_DEVICE;
use cust::error::CudaResult;
use cust::sys::{self, CUresult};
use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a code outside the enum becomes: CUDA_ERROR_UNKNOWN.
const UNKNOWN: c_int = CUresult::CUDA_ERROR_UNKNOWN as c_int;

thread_local! {
    static ANSWER: Cell<c_int> = const { Cell::new(NO_DEVICE) };
}

/// The driver's own answer to the last guarded call that failed on this thread; "no device" before any.
fn answer() -> c_int {
    ANSWER.get()
}

/// The answer of a call, from its result.
pub(crate) trait Answer {
    /// The driver's own code; 0 for success. To be asked before the next call on this thread.
    fn code(self) -> c_int;
}

/// Of a call that is looked up by name and declared in `api`.
impl Answer for c_int {
    fn code(self) -> c_int {
        self
    }
}

/// Of a call by a prototype of cust's bindings.
impl Answer for CUresult {
    fn code(self) -> c_int {
        match self {
            CUresult::CUDA_ERROR_UNKNOWN => answer(),
            known => known as c_int,
        }
    }
}

/// Of a function of cust. cust maps 29 codes of the enum to one error, so the kept answer counts.
impl<T> Answer for CudaResult<T> {
    fn code(self) -> c_int {
        if self.is_ok() { 0 } else { answer() }
    }
}

/// Whether the bindings' enum has a code.
fn is_in_enum(code: c_int) -> bool {
    matches!(
        code,
        0..=8 | 34 | 100..=102 | 200..=202 | 205..=224 | 300..=304 | 400 | 401 | 500 | 600 | 700..=705 | 708..=720
            | 800..=809 | 900..=911 | UNKNOWN
    )
}

fn narrow(answer: c_int) -> c_int {
    if answer == 0 {
        return 0;
    }
    ANSWER.set(answer);
    if is_in_enum(answer) { answer } else { UNKNOWN }
}

/// The place of a call in the table.
struct At<const PLACE: usize>;

/// For each number of parameters a guard, whose parameters are those of the bindings' prototype.
macro_rules! guards {
    ($($take:ident $guard:ident ($($argument:ident: $kind:ident),*);)*) => {$(
        unsafe extern "C" fn $guard<const PLACE: usize, $($kind),*>($($argument: $kind),*) -> c_int {
            let address = DRIVERS[PLACE].load(Ordering::Acquire);
            // SAFETY: a trampoline leads here only when the driver's address of this name is in the table. Its C prototype is the
            // bindings', from which the parameters are; a code fits an int.
            narrow(unsafe {
                let call = std::mem::transmute::<usize, unsafe extern "C" fn($($kind),*) -> c_int>(address);
                call($($argument),*)
            })
        }

        fn $take<const PLACE: usize, $($kind),*>(
            _: At<PLACE>,
            _: unsafe extern "C" fn($($kind),*) -> CUresult,
        ) -> usize {
            $guard::<PLACE, $($kind),*> as *const () as usize
        }
    )*};
}

guards! {
    take1 guard1(a: A);
    take2 guard2(a: A, b: B);
    take3 guard3(a: A, b: B, c: C);
    take4 guard4(a: A, b: B, c: C, d: D);
    take5 guard5(a: A, b: B, c: C, d: D, e: E);
    take8 guard8(a: A, b: B, c: C, d: D, e: E, f: F, g: G, h: H);
    take11 guard11(a: A, b: B, c: C, d: D, e: E, f: F, g: G, h: H, i: I, j: J, k: K);
}

macro_rules! guarded {
    ($($take:ident $name:ident;)*) => {
        #[allow(non_camel_case_types)]
        enum Place { $($name),* }

        /// The guarded names, in the order of the table.
        pub(super) const NAMES: &[&str] = &[$(stringify!($name)),*];

        /// The driver's addresses, 0 while there is no driver.
        static DRIVERS: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

        /// The bindings' prototypes of the guarded calls; cust alone makes some of them.
        pub(super) mod calls {
            #[allow(unused_imports)]
            pub(crate) use cust::sys::{$($name),*};
        }

        /// The guards, in the order of the table.
        fn guards() -> [usize; NAMES.len()] {
            [$($take(At::<{ Place::$name as usize }>, sys::$name)),*]
        }
    };
}

guarded! {
    take1 cuInit;
    take1 cuDriverGetVersion;
    take1 cuDeviceGetCount;
    take2 cuDeviceGet;
    take3 cuDeviceGetName;
    take3 cuDeviceGetPCIBusId;
    take3 cuDeviceGetAttribute;
    take2 cuDeviceTotalMem_v2;
    take2 cuDevicePrimaryCtxRetain;
    take1 cuDevicePrimaryCtxRelease_v2;
    take3 cuCtxCreate_v2;
    take1 cuCtxDestroy_v2;
    take1 cuCtxGetCurrent;
    take1 cuCtxSetCurrent;
    take2 cuMemAlloc_v2;
    take1 cuMemFree_v2;
    take3 cuMemAllocAsync;
    take2 cuMemFreeAsync;
    take2 cuMemGetInfo_v2;
    take3 cuMemcpyHtoD_v2;
    take3 cuMemcpyDtoH_v2;
    take4 cuMemcpyDtoDAsync_v2;
    take4 cuMemsetD8Async;
    take5 cuModuleLoadDataEx;
    take1 cuModuleUnload;
    take3 cuModuleGetFunction;
    take3 cuPointerGetAttribute;
    take4 cuLinkCreate_v2;
    take8 cuLinkAddData_v2;
    take3 cuLinkComplete;
    take1 cuLinkDestroy;
    take3 cuFuncGetAttribute;
    take3 cuFuncSetAttribute;
    take4 cuOccupancyMaxActiveBlocksPerMultiprocessor;
    take11 cuLaunchKernel;
    take3 cuStreamCreateWithPriority;
    take1 cuStreamDestroy_v2;
    take1 cuStreamSynchronize;
    take1 cuStreamQuery;
    take2 cuEventCreate;
    take1 cuEventDestroy_v2;
    take2 cuEventRecord;
    take1 cuEventSynchronize;
    take1 cuEventQuery;
    take3 cuEventElapsedTime;
    take2 cuStreamBeginCapture_v2;
    take2 cuStreamEndCapture;
    take3 cuGraphInstantiateWithFlags;
    take3 cuGraphGetNodes;
    take2 cuGraphNodeGetType;
    take2 cuGraphLaunch;
    take1 cuGraphDestroy;
    take1 cuGraphExecDestroy;
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
    fn cust_sees_codes_of_its_enum_alone() {
        assert_eq!((narrow(0), narrow(2), answer()), (0, 2, 2));
        assert_eq!((narrow(0), answer()), (0, 2));
        for newer in [-7, 9, 36, 46, 226, 402, 721, 810, 912, 1234, c_int::MAX] {
            assert_eq!((narrow(newer), answer()), (UNKNOWN, newer));
            assert_eq!(CUresult::CUDA_ERROR_UNKNOWN.code(), newer);
        }
        assert_eq!(CUresult::CUDA_ERROR_NOT_READY.code(), 600);
        assert_eq!((narrow(222), Err::<(), _>(cust::error::CudaError::UnknownError).code()), (222, 222));
    }

    #[test]
    fn the_codes_of_the_enum_are_those_of_the_bindings() {
        use CUresult::*;
        let all = [
            CUDA_SUCCESS,
            CUDA_ERROR_INVALID_VALUE,
            CUDA_ERROR_OUT_OF_MEMORY,
            CUDA_ERROR_NOT_INITIALIZED,
            CUDA_ERROR_DEINITIALIZED,
            CUDA_ERROR_PROFILER_DISABLED,
            CUDA_ERROR_PROFILER_NOT_INITIALIZED,
            CUDA_ERROR_PROFILER_ALREADY_STARTED,
            CUDA_ERROR_PROFILER_ALREADY_STOPPED,
            CUDA_ERROR_STUB_LIBRARY,
            CUDA_ERROR_NO_DEVICE,
            CUDA_ERROR_INVALID_DEVICE,
            CUDA_ERROR_DEVICE_NOT_LICENSED,
            CUDA_ERROR_INVALID_IMAGE,
            CUDA_ERROR_INVALID_CONTEXT,
            CUDA_ERROR_CONTEXT_ALREADY_CURRENT,
            CUDA_ERROR_MAP_FAILED,
            CUDA_ERROR_UNMAP_FAILED,
            CUDA_ERROR_ARRAY_IS_MAPPED,
            CUDA_ERROR_ALREADY_MAPPED,
            CUDA_ERROR_NO_BINARY_FOR_GPU,
            CUDA_ERROR_ALREADY_ACQUIRED,
            CUDA_ERROR_NOT_MAPPED,
            CUDA_ERROR_NOT_MAPPED_AS_ARRAY,
            CUDA_ERROR_NOT_MAPPED_AS_POINTER,
            CUDA_ERROR_ECC_UNCORRECTABLE,
            CUDA_ERROR_UNSUPPORTED_LIMIT,
            CUDA_ERROR_CONTEXT_ALREADY_IN_USE,
            CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
            CUDA_ERROR_INVALID_PTX,
            CUDA_ERROR_INVALID_GRAPHICS_CONTEXT,
            CUDA_ERROR_NVLINK_UNCORRECTABLE,
            CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
            CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
            CUDA_ERROR_JIT_COMPILATION_DISABLED,
            CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY,
            CUDA_ERROR_INVALID_SOURCE,
            CUDA_ERROR_FILE_NOT_FOUND,
            CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
            CUDA_ERROR_SHARED_OBJECT_INIT_FAILED,
            CUDA_ERROR_OPERATING_SYSTEM,
            CUDA_ERROR_INVALID_HANDLE,
            CUDA_ERROR_ILLEGAL_STATE,
            CUDA_ERROR_NOT_FOUND,
            CUDA_ERROR_NOT_READY,
            CUDA_ERROR_ILLEGAL_ADDRESS,
            CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
            CUDA_ERROR_LAUNCH_TIMEOUT,
            CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING,
            CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
            CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
            CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE,
            CUDA_ERROR_CONTEXT_IS_DESTROYED,
            CUDA_ERROR_ASSERT,
            CUDA_ERROR_TOO_MANY_PEERS,
            CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
            CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
            CUDA_ERROR_HARDWARE_STACK_ERROR,
            CUDA_ERROR_ILLEGAL_INSTRUCTION,
            CUDA_ERROR_MISALIGNED_ADDRESS,
            CUDA_ERROR_INVALID_ADDRESS_SPACE,
            CUDA_ERROR_INVALID_PC,
            CUDA_ERROR_LAUNCH_FAILED,
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
            CUDA_ERROR_NOT_PERMITTED,
            CUDA_ERROR_NOT_SUPPORTED,
            CUDA_ERROR_SYSTEM_NOT_READY,
            CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
            CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
            CUDA_ERROR_MPS_CONNECTION_FAILED,
            CUDA_ERROR_MPS_RPC_FAILURE,
            CUDA_ERROR_MPS_SERVER_NOT_READY,
            CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
            CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED,
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
            CUDA_ERROR_STREAM_CAPTURE_MERGE,
            CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
            CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
            CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
            CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
            CUDA_ERROR_CAPTURED_EVENT,
            CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
            CUDA_ERROR_TIMEOUT,
            CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
            CUDA_ERROR_EXTERNAL_DEVICE,
            CUDA_ERROR_UNKNOWN,
        ];
        let known: Vec<c_int> = (-1..=2000).filter(|code| is_in_enum(*code)).collect();
        assert_eq!(known, all.map(|code| code as c_int));
    }

    #[test]
    fn only_guarded_names_are_led_elsewhere() {
        assert_eq!(guard("cuMemAllocManaged", 4096), 4096);
        let guards: std::collections::BTreeSet<usize> = guards().into_iter().collect();
        assert_eq!(guards.len(), NAMES.len());
        assert!(NAMES.iter().all(|name| super::super::trampoline::NAMES.contains(name)));
    }
}
