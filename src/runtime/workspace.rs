//! Where a launch has its workspace: memory of the program, of the caller, or of the launch's stream.

use super::buffer::DeviceBuffer;
use super::device::Device;
use super::driver::api;
use super::program::RawStream;
use crate::error::{Code, Error, Result};

/// Where the kernels of a launch have their workspace.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub enum Workspace<'a> {
    /// The memory that [`Device::load`] allocated. Launches on several streams at once must not share it.
    #[default]
    Loaded,
    /// A buffer of the caller's with at least [`Program::workspace_total`](super::Program::workspace_total) bytes. Launches with different
    /// buffers may run at the same time.
    Buffer(&'a DeviceBuffer),
    /// Memory that the launch allocates in its stream before the kernels and frees there after them (`cuMemAllocAsync`,
    /// `cuMemFreeAsync`). Nothing waits for the stream. A graph that records the launch has a node for each of both.
    StreamOrdered,
}

/// Memory that was allocated in a stream, to be freed there.
pub(super) struct Ordered<'a> {
    device: &'a Device,
    stream: RawStream,
    pub(super) address: u64,
}

impl<'a> Ordered<'a> {
    /// Allocates in the stream: work that is put there from now on may use the memory.
    pub(super) fn allocate(device: &'a Device, stream: RawStream, bytes: u64) -> Result<Ordered<'a>> {
        let mut address = 0;
        let doing = format!("allocating {bytes} bytes of workspace in the stream");
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: writes one address; the caller of the launch vouches for the stream.
        let allocate = || unsafe { api::cuMemAllocAsync(&mut address, size, stream.cast()) };
        device.inner.call(&doing, allocate).map_err(|error| match error.code() {
            Code::Driver(801) => error
                .within(format!(
                    "{} or its driver has no memory pools, in which a stream allocates",
                    device.info().name
                ))
                .help("launch with the workspace of the program, or with a buffer as workspace"),
            _ => error,
        })?;
        Ok(Ordered { device, stream, address })
    }

    /// Frees in the stream: after the work that was put there.
    pub(super) fn free(self) -> Result<()> {
        let (address, stream) = (self.address, self.stream);
        // SAFETY: the memory was allocated in this stream, and is given back once.
        let free = || unsafe { api::cuMemFreeAsync(address, stream.cast()) };
        self.device.inner.call("freeing workspace in the stream", free)
    }
}

/// Checks a buffer as workspace of so many bytes; its address is a multiple of [`WORKSPACE_ALIGN`](crate::kernel::WORKSPACE_ALIGN) where
/// the addresses in it are checked.
pub(super) fn check_buffer(program: &str, device: &Device, needed: u64, buffer: &DeviceBuffer) -> Result<()> {
    if !buffer.device().is(device) {
        let message = format!("the workspace of {program} is on another device than the program");
        return Err(Error::input(Code::LaunchDevice, message));
    }
    if buffer.is_read_only() {
        let message = format!("the workspace of {program} is written, and an array that came as read-only was given");
        return Err(Error::input(Code::DlpackReadOnly, message));
    }
    let bytes = buffer.bytes() as u64;
    if bytes < needed {
        let message = format!("{program} needs {needed} bytes of workspace, and the buffer has {bytes}");
        return Err(Error::input(Code::LaunchWorkspace, message).help("Program::workspace_total says how many"));
    }
    Ok(())
}
