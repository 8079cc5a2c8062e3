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
//! This room alone uses cust and libcuda. cust owns the context and the stream; all other calls go through our own
//! prototypes with integer results (`driver/api.rs` says why). [`load_driver`] takes the driver from a file that the
//! user names; the tests take one of their own from there (`tests/mock-driver`).

mod arguments;
mod buffer;
mod context;
mod device;
mod driver;
mod event;
mod graph;
mod probe;
mod program;
mod resources;
mod tensor_map;
mod wait;

pub use buffer::DeviceBuffer;
pub use device::{Device, DeviceInfo};
pub use driver::api::TensorMap;
pub use driver::load_driver;
pub use event::{Event, median};
pub use graph::Graph;
pub use probe::{DriverFacts, Probe, Trouble, probe};
pub use program::{Program, RawStream};
pub use resources::Resources;
pub use tensor_map::{Swizzle, TensorMapSpec};
