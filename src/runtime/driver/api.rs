//! Prototypes of the driver calls that we make ourselves, with integer results, and the numbers that they take.
//!
//! cust's bindings return a Rust enum of 87 codes; today's drivers return codes outside it, which is undefined
//! behaviour. So every call that we make is declared here with `c_int`, and those that cust makes for us go through
//! `guard`. Prototypes, field orders and numbers are those of the CUDA Driver API reference (cuda.h).

pub(crate) use super::guard::{cuCtxSetCurrent, cuDeviceGet, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRetain};
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

/// A device address.
pub(crate) type DevicePtr = u64;
/// An opaque handle of the driver (context, stream, module, function, event, graph, ...).
pub(crate) type Handle = *mut c_void;

/// Declares entry points with integer results, and lists their names.
macro_rules! prototypes {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?);)*) => {
        #[allow(clashing_extern_declarations)]
        unsafe extern "C" {
            $(pub(crate) fn $name($($argument: $kind),*) -> c_int;)*
        }

        /// The entry points above: a driver that lacks one of them is too old.
        pub(super) const NEEDED: &[&str] = &[$(stringify!($name)),*];
    };
}

prototypes! {
    fn cuInit(flags: c_uint);
    fn cuGetErrorName(code: c_int, name: *mut *const c_char);
    fn cuGetErrorString(code: c_int, text: *mut *const c_char);
    fn cuDriverGetVersion(version: *mut c_int);
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDeviceGetName(name: *mut c_char, len: c_int, device: c_int);
    fn cuDeviceGetPCIBusId(bus: *mut c_char, len: c_int, device: c_int);
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int);
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int);
    fn cuCtxCreate_v2(context: *mut Handle, flags: c_uint, device: c_int);
    fn cuCtxDestroy_v2(context: Handle);
    fn cuMemAlloc_v2(address: *mut DevicePtr, bytes: usize);
    fn cuMemFree_v2(address: DevicePtr);
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    fn cuMemcpyHtoD_v2(to: DevicePtr, from: *const c_void, bytes: usize);
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: DevicePtr, bytes: usize);
    fn cuMemcpyDtoDAsync_v2(to: DevicePtr, from: DevicePtr, bytes: usize, stream: Handle);
    fn cuMemsetD8Async(to: DevicePtr, value: u8, count: usize, stream: Handle);
    fn cuModuleLoadDataEx(
        module: *mut Handle,
        image: *const c_void,
        count: c_uint,
        options: *mut c_int,
        values: *mut *mut c_void,
    );
    fn cuModuleUnload(module: Handle);
    fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char);
    fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: Handle);
    fn cuFuncSetAttribute(function: Handle, attribute: c_int, value: c_int);
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int,
        function: Handle,
        threads: c_int,
        shared_bytes: usize,
    );
    fn cuLaunchKernel(
        function: Handle,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: Handle,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    );
    fn cuStreamSynchronize(stream: Handle);
    fn cuStreamQuery(stream: Handle);
    fn cuEventCreate(event: *mut Handle, flags: c_uint);
    fn cuEventDestroy_v2(event: Handle);
    fn cuEventRecord(event: Handle, stream: Handle);
    fn cuEventSynchronize(event: Handle);
    fn cuEventQuery(event: Handle);
    fn cuEventElapsedTime(milliseconds: *mut f32, start: Handle, end: Handle);
    fn cuStreamBeginCapture_v2(stream: Handle, mode: c_int);
    fn cuStreamEndCapture(stream: Handle, graph: *mut Handle);
    fn cuGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, flags: c_ulonglong);
    fn cuGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize);
    fn cuGraphNodeGetType(node: Handle, kind: *mut c_int);
    fn cuGraphLaunch(exec: Handle, stream: Handle);
    fn cuGraphDestroy(graph: Handle);
    fn cuGraphExecDestroy(exec: Handle);
}

/// CU_JIT_* options of `cuModuleLoadDataEx`.
pub(crate) mod jit {
    use std::ffi::c_int;
    pub(crate) const WALL_TIME: c_int = 2;
    pub(crate) const INFO_LOG_BUFFER: c_int = 3;
    pub(crate) const INFO_LOG_BUFFER_SIZE_BYTES: c_int = 4;
    pub(crate) const ERROR_LOG_BUFFER: c_int = 5;
    pub(crate) const ERROR_LOG_BUFFER_SIZE_BYTES: c_int = 6;
    pub(crate) const LOG_VERBOSE: c_int = 12;
    pub(crate) const GENERATE_LINE_INFO: c_int = 13;
}

/// CU_FUNC_ATTRIBUTE_* numbers.
pub(crate) mod function {
    use std::ffi::c_int;
    pub(crate) const MAX_THREADS_PER_BLOCK: c_int = 0;
    pub(crate) const SHARED_SIZE_BYTES: c_int = 1;
    pub(crate) const LOCAL_SIZE_BYTES: c_int = 3;
    pub(crate) const NUM_REGS: c_int = 4;
    pub(crate) const BINARY_VERSION: c_int = 6;
    pub(crate) const MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;
    pub(crate) const NON_PORTABLE_CLUSTER_SIZE_ALLOWED: c_int = 14;
}

/// CU_DEVICE_ATTRIBUTE_* numbers.
pub(crate) mod device {
    use std::ffi::c_int;
    pub(crate) const CLOCK_RATE: c_int = 13;
    pub(crate) const MULTIPROCESSOR_COUNT: c_int = 16;
    pub(crate) const MEMORY_CLOCK_RATE: c_int = 36;
    pub(crate) const GLOBAL_MEMORY_BUS_WIDTH: c_int = 37;
    pub(crate) const L2_CACHE_SIZE: c_int = 38;
    pub(crate) const MAX_THREADS_PER_MULTIPROCESSOR: c_int = 39;
    pub(crate) const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
    pub(crate) const COMPUTE_CAPABILITY_MINOR: c_int = 76;
    pub(crate) const MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: c_int = 81;
    pub(crate) const MAX_REGISTERS_PER_MULTIPROCESSOR: c_int = 82;
    pub(crate) const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: c_int = 97;
    pub(crate) const CLUSTER_LAUNCH: c_int = 120;
}

/// CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: other threads may go on calling.
pub(crate) const CAPTURE_THREAD_LOCAL: c_int = 1;
/// CU_GRAPH_NODE_TYPE_KERNEL.
pub(crate) const NODE_KERNEL: c_int = 0;
/// CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION.
pub(crate) const LAUNCH_CLUSTER_DIMENSION: c_uint = 4;

/// The attribute that lets a kernel begin before the one in front of it in the stream has ended.
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
    pub(crate) stream: Handle,
    pub(crate) attributes: *mut LaunchAttribute,
    pub(crate) attribute_count: c_uint,
}

/// CUDA_KERNEL_NODE_PARAMS_v2.
#[repr(C)]
pub(crate) struct KernelNode {
    pub(crate) function: Handle,
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared_bytes: c_uint,
    pub(crate) params: *mut *mut c_void,
    pub(crate) extra: *mut *mut c_void,
    pub(crate) kernel: Handle,
    pub(crate) context: Handle,
}

/// CUtensorMap: 128 opaque bytes, aligned as CUDA 13 asks (earlier versions ask for 64).
#[repr(C, align(128))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorMap(pub(crate) [u64; 16]);

/// `cuLaunchKernelEx`, in drivers for CUDA 11.8 and later.
pub(crate) type LaunchKernelEx =
    unsafe extern "C" fn(*const LaunchConfig, Handle, *mut *mut c_void, *mut *mut c_void) -> c_int;
/// `cuOccupancyMaxActiveClusters`, in drivers for CUDA 11.8 and later.
pub(crate) type MaxActiveClusters = unsafe extern "C" fn(*mut c_int, Handle, *const LaunchConfig) -> c_int;
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
pub(crate) type KernelNodeParams = unsafe extern "C" fn(Handle, *mut KernelNode) -> c_int;
/// `cuFuncGetName` and `cuKernelGetName`, in drivers for CUDA 12.3 and later.
pub(crate) type NameOf = unsafe extern "C" fn(*mut *const c_char, Handle) -> c_int;

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
