//! The Lowered program as data: what [`crate::lower`] makes, and what code generation, the simulator, the static analysis
//! and the dumps read.
//!
//! - [`Lowered`] is a program: its kernels in launch order.
//! - [`LoweredKernel`] is one kernel. Its page lists what holds of every kernel; [`verify()`] checks that.
//! - [`print()`] is the text of a program or of a kernel, which `dump --emit lowered` shows.
//!
//! The body of a kernel is a list of [`crate::ir::Stmt`]. The statements that only Lowered has are in `ir/call.rs` and `ir/sync.rs`.

pub(crate) mod exit;
mod kernel;
mod launch;
pub(crate) mod permute;
mod print;
mod program;
pub(crate) mod realign;
pub(crate) mod size;
pub(crate) mod threads;
mod verify;

pub use crate::ir::GridDependency;
pub(crate) use kernel::parity;
pub use kernel::{Dim, LoadedRows, LoweredKernel, TensorMap};
pub(crate) use launch::registers_at_start;
pub use launch::{Clipped, Derived, LaunchAxis, ROLES, RoleThreads};
pub use print::{print, print_bulk, print_derived, print_kernel, print_walk, printed_kernel, statement_lines};
pub use program::{Lowered, Shape};
pub use verify::{CP_ASYNC_BITS, verify};
