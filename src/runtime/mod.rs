//! Running compiled programs on a GPU: devices, typed buffers, modules, checked launches, events and graphs.
//!
//! What is promised here:
//! - The driver is looked up when first needed (`driver`); a machine without one gets an error, never a crash.
//! - A launch through [`Program::launch`] is checked: number, type, shape, size, alignment and device of every
//!   argument, and that nothing written overlaps another argument (the PTX is compiled on that promise).
//! - Work is asynchronous on the device's own stream; [`Device::synchronize`] and [`DeviceBuffer::download`] wait and
//!   report what went wrong. Waits can have a limit ([`Device::synchronize_within`], [`Device::set_time_limit`]).
//! - After a kernel that faults or hangs, its device answers every call with that at once; [`Device::open`] makes a new
//!   context. Nothing that the driver holds for us is forgotten, also on the way out of an error (`context`).
//! - [`probe`] reports on driver and devices and never fails.
//!
//! This module alone uses cust and libcuda. [`load_driver`] takes the driver from a file that the user names; the tests take one of
//! their own from there (`tests/mock-driver`).
//!
//! # Who makes which driver call
//!
//! cust's own functions make a call where they have it and the promises above hold through them; else the call is made here by the
//! prototype of cust's bindings (`cust::sys`). Both go through `driver::guard`, which keeps codes out of cust that its enum lacks. Declared by hand
//! (`driver::api`) and looked up when needed is what the bindings, those of CUDA 11.4, do not have.
//!
//! | calls | by | why |
//! |---|---|---|
//! | `cuInit`, `cuDeviceGetCount`, `cuDeviceGet`, `cuDeviceTotalMem_v2` | cust | |
//! | `cuDriverGetVersion` | `cust::sys` | needed as the number that the driver gives, and before `cuInit` |
//! | `cuDeviceGetName`, `cuDeviceGetPCIBusId` | `cust::sys` | `Device::name` panics at a name without a zero; no function for the bus |
//! | `cuDeviceGetAttribute` | `cust::sys` | `DeviceAttribute` ends at 91, before the shared memory that a block may opt into |
//! | `cuDevicePrimaryCtxRetain`, `cuDevicePrimaryCtxRelease_v2` | cust, `cust::sys` | `Context` owns it; `Context::new` does not look whether it became current, so it is retained and tried first |
//! | `cuCtxGetCurrent` | `cust::sys` | a call asks for the context that is current, and sets its own only where that is another; cust only sets |
//! | `cuCtxCreate_v2`, `cuCtxDestroy_v2`, `cuCtxSetCurrent` | `cust::sys` | the context beside one that a kernel broke: it is not given back while a kernel hangs |
//! | `cuMemAlloc_v2`, `cuMemFree_v2`, `cuMemGetInfo_v2`, `cuMemcpyHtoD_v2` | cust | |
//! | `cuMemAllocAsync`, `cuMemFreeAsync` | `cust::sys` | cust's functions take its own streams alone |
//! | `cuMemcpyDtoH_v2`, `cuMemcpyDtoDAsync_v2`, `cuMemsetD8Async` | `cust::sys` | methods of cust's buffers alone, which own their memory; here memory that a hung kernel uses is not given back |
//! | `cuModuleLoadDataEx`, `cuModuleUnload` | `cust::sys` | `ModuleJitOption` has neither logs nor line information |
//! | `cuModuleGetFunction`, `cuFuncGetAttribute`, `cuLaunchKernel`, `cuOccupancyMaxActiveBlocksPerMultiprocessor` | `cust::sys` | a `Function` comes from cust's `Module` alone |
//! | `cuFuncSetAttribute` | `cust::sys`, by hand | no function; the attribute for clusters above 8 blocks is newer than the bindings' enum |
//! | `cuLinkCreate_v2`, `cuLinkAddData_v2`, `cuLinkComplete`, `cuLinkDestroy` | `cust::sys` | `Linker` asks for no log |
//! | `cuPointerGetAttribute` | `cust::sys` | no function |
//! | `cuStreamCreateWithPriority`, `cuStreamDestroy_v2` | cust | |
//! | `cuStreamSynchronize` | cust, `cust::sys` | for the default stream, and where there is only the handle |
//! | `cuStreamQuery`, `cuStreamBeginCapture_v2`, `cuStreamEndCapture` | `cust::sys` | no function |
//! | `cuEventCreate`, `cuEventDestroy_v2`, `cuEventRecord`, `cuEventSynchronize`, `cuEventQuery`, `cuEventElapsedTime` | cust | |
//! | `cuGraphInstantiateWithFlags`, `cuGraphGetNodes`, `cuGraphNodeGetType`, `cuGraphLaunch`, `cuGraphDestroy`, `cuGraphExecDestroy` | `cust::sys` | cust's module of graphs is private |
//! | `cuGetErrorName`, `cuGetErrorString` | by hand | asked for codes that the bindings' enum lacks |
//! | `cuLaunchKernelEx`, `cuOccupancyMaxActiveClusters`, `cuTensorMapEncodeTiled` | by hand | CUDA 11.8 and 12.0 |
//! | `cuGraphKernelNodeGetParams_v2`, `cuFuncGetName`, `cuKernelGetName` | by hand | CUDA 12.0 and 12.3 |

mod arguments;
mod assemble;
mod buffer;
mod context;
mod device;
pub mod dlpack;
mod driver;
mod event;
mod graph;
mod library;
mod logs;
mod probe;
mod program;
mod resources;
mod tensor_map;
mod wait;
mod workspace;

pub use buffer::DeviceBuffer;
pub use device::{Device, DeviceInfo};
pub use driver::api::TensorMap;
pub use driver::load_driver;
pub use event::{Event, median};
pub use graph::Graph;
pub use library::Library;
pub use probe::{DriverFacts, Probe, Trouble, probe};
pub use program::{Program, RawStream};
pub use resources::Resources;
pub use tensor_map::{Swizzle, TensorMapSpec};
pub use workspace::Workspace;
