//! The driver's calls as the rest of the room writes them: prototypes of cust's bindings, and declared by hand what these lack.
//!
//! The bindings (`cust::sys`) are those of CUDA 11.4. Their calls come through `guard`, so that a code outside their enum is no
//! undefined behaviour. By hand is what is newer, and what would take a number that an enum of the bindings lacks.
//! Prototypes, field orders and numbers are those of the CUDA Driver API reference (cuda.h).

pub(crate) use super::guard::Answer;
pub(crate) use super::guard::calls::*;
pub(crate) use cust::sys::{CUcontext, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUlinkState, CUmodule, CUstream};
use std::ffi::{c_char, c_int, c_uint, c_void};

/// CU_JIT_* options of `cuModuleLoadDataEx` and `cuLinkCreate`.
pub(crate) mod jit {
    pub(crate) use cust::sys::CUjit_option as Option;
    pub(crate) use cust::sys::CUjit_option::{
        CU_JIT_ERROR_LOG_BUFFER as ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES as ERROR_LOG_BUFFER_SIZE_BYTES,
        CU_JIT_GENERATE_LINE_INFO as GENERATE_LINE_INFO, CU_JIT_INFO_LOG_BUFFER as INFO_LOG_BUFFER,
        CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES as INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_LOG_VERBOSE as LOG_VERBOSE,
        CU_JIT_WALL_TIME as WALL_TIME,
    };
    pub(crate) use cust::sys::CUjitInputType::CU_JIT_INPUT_PTX as PTX;
}

/// CU_FUNC_ATTRIBUTE_* numbers.
pub(crate) mod function {
    pub(crate) use cust::sys::CUfunction_attribute as Attribute;
    pub(crate) use cust::sys::CUfunction_attribute::{
        CU_FUNC_ATTRIBUTE_BINARY_VERSION as BINARY_VERSION, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES as LOCAL_SIZE_BYTES,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as MAX_DYNAMIC_SHARED_SIZE_BYTES,
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK as MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_NUM_REGS as NUM_REGS,
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES as SHARED_SIZE_BYTES,
    };
    /// Newer than the bindings' enum: for [`super::SetFunctionAttribute`].
    pub(crate) const NON_PORTABLE_CLUSTER_SIZE_ALLOWED: std::ffi::c_int = 14;
}

/// CU_DEVICE_ATTRIBUTE_* numbers.
pub(crate) mod device {
    pub(crate) use cust::sys::CUdevice_attribute as Attribute;
    pub(crate) use cust::sys::CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_CLOCK_RATE as CLOCK_RATE,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as COMPUTE_CAPABILITY_MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as COMPUTE_CAPABILITY_MINOR,
        CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH as GLOBAL_MEMORY_BUS_WIDTH,
        CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE as L2_CACHE_SIZE,
        CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR as MAX_REGISTERS_PER_MULTIPROCESSOR,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN as MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR as MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR as MAX_THREADS_PER_MULTIPROCESSOR,
        CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE as MEMORY_CLOCK_RATE,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as MULTIPROCESSOR_COUNT,
    };
    /// 120 is CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH since CUDA 11.8; in the bindings' enum it is the end.
    pub(crate) const CLUSTER_LAUNCH: Attribute = Attribute::CU_DEVICE_ATTRIBUTE_MAX;
}

/// The number of the device whose memory is at an address.
pub(crate) use cust::sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as POINTER_DEVICE_ORDINAL;
/// CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: other threads may go on calling.
pub(crate) use cust::sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as CAPTURE_THREAD_LOCAL;
/// CU_GRAPH_NODE_TYPE_KERNEL; a node of a newer type has a number that the bindings' enum lacks.
pub(crate) const NODE_KERNEL: c_int = cust::sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL as c_int;
/// CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION.
pub(crate) const LAUNCH_CLUSTER_DIMENSION: c_uint = 4;
/// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: the kernel may begin before the previous one in the stream has ended.
pub(crate) const LAUNCH_PROGRAMMATIC_SERIALIZATION: c_uint = 6;

/// CUlaunchAttribute: an id, 4 bytes of padding, and a union of 64 bytes (here: the cluster's extents, or one number).
#[repr(C)]
pub(crate) struct LaunchAttribute {
    pub(crate) id: c_uint,
    pub(crate) padding: u32,
    pub(crate) value: [c_uint; 16],
}

impl LaunchAttribute {
    /// An attribute of these numbers; the others are 0.
    pub(crate) fn new<const N: usize>(id: c_uint, numbers: [c_uint; N]) -> LaunchAttribute {
        let mut value = [0; 16];
        value.iter_mut().zip(numbers).for_each(|(v, n)| *v = n);
        LaunchAttribute { id, padding: 0, value }
    }
}

/// CUlaunchConfig.
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared_bytes: c_uint,
    pub(crate) stream: CUstream,
    pub(crate) attributes: *mut LaunchAttribute,
    pub(crate) attribute_count: c_uint,
}

/// CUDA_KERNEL_NODE_PARAMS_v2.
#[repr(C)]
pub(crate) struct KernelNode {
    pub(crate) function: CUfunction,
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared_bytes: c_uint,
    pub(crate) params: *mut *mut c_void,
    pub(crate) extra: *mut *mut c_void,
    pub(crate) kernel: *mut c_void,
    pub(crate) context: CUcontext,
}

/// CUtensorMap: 128 opaque bytes, aligned as CUDA 13 asks (earlier versions ask for 64).
#[repr(C, align(128))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorMap(pub(crate) [u64; 16]);

/// `cuLaunchKernelEx`, in drivers for CUDA 11.8 and later.
pub(crate) type LaunchKernelEx =
    unsafe extern "C" fn(*const LaunchConfig, CUfunction, *mut *mut c_void, *mut *mut c_void) -> c_int;
/// `cuOccupancyMaxActiveClusters`, in drivers for CUDA 11.8 and later.
pub(crate) type MaxActiveClusters = unsafe extern "C" fn(*mut c_int, CUfunction, *const LaunchConfig) -> c_int;
/// `cuTensorMapEncodeTiled`, in drivers for CUDA 12.0 and later.
pub(crate) type TensorMapEncodeTiled = unsafe extern "C" fn(
    map: *mut TensorMap,
    data_type: c_int,
    rank: u32,
    address: *mut c_void,
    extents: *const u64,
    strides_bytes: *const u64,
    box_extents: *const u32,
    element_strides: *const u32,
    interleave: c_int,
    swizzle: c_int,
    l2_promotion: c_int,
    out_of_bounds: c_int,
) -> c_int;
/// `cuGraphKernelNodeGetParams_v2`, in drivers for CUDA 12.0 and later.
pub(crate) type KernelNodeParams = unsafe extern "C" fn(CUgraphNode, *mut KernelNode) -> c_int;
/// `cuFuncGetName` and `cuKernelGetName`, in drivers for CUDA 12.3 and later.
pub(crate) type NameOf = unsafe extern "C" fn(*mut *const c_char, *mut c_void) -> c_int;
/// `cuFuncSetAttribute` with an attribute that the bindings' enum lacks.
pub(crate) type SetFunctionAttribute = unsafe extern "C" fn(CUfunction, c_int, c_int) -> c_int;
/// `cuGetErrorName` and `cuGetErrorString` for a code that the bindings' enum lacks.
pub(crate) type WordsOf = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{align_of, offset_of, size_of};

    #[test]
    fn structures_have_the_drivers_layout() {
        // As `sizeof` and `offsetof` say for cuda.h of CUDA 12.9 on a 64-bit machine.
        assert_eq!(size_of::<LaunchAttribute>(), 72);
        assert_eq!(offset_of!(LaunchAttribute, value), 8);
        assert_eq!((size_of::<LaunchConfig>(), offset_of!(LaunchConfig, stream)), (56, 32));
        assert_eq!(offset_of!(LaunchConfig, attribute_count), 48);
        assert_eq!((size_of::<KernelNode>(), offset_of!(KernelNode, params)), (72, 40));
        assert_eq!(offset_of!(KernelNode, kernel), 56);
        assert_eq!((size_of::<TensorMap>(), align_of::<TensorMap>()), (128, 128));
    }
}
