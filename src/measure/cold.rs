//! Making the L2 cache cold before a sample, by reading a buffer beyond twice its size.
//!
//! Reading and not writing: a flush by writing leaves the cache full of dirty lines, whose write-back is then charged to
//! the kernel that is timed.

use super::floor::{READ_BY_BLOCK, reads};
use super::library::cublas::Cublas;
use crate::dtype::DType;
use crate::error::Result;
use crate::runtime::{Device, DeviceBuffer};

/// What reads the large buffer.
#[derive(Debug)]
pub enum Cold {
    /// The library's sum of magnitudes: the buffer and where the sum goes.
    Library(DeviceBuffer, DeviceBuffer),
    /// Nothing can read: buffers are rotated beyond twice the cache instead.
    Rotate,
}

impl Cold {
    /// With the library, if there is one.
    pub fn with(device: &Device, cublas: Option<&Cublas>) -> Result<Cold> {
        if cublas.is_none() {
            return Ok(Cold::Rotate);
        }
        let bytes = usize::try_from(Cold::bytes_needed(device)).unwrap_or(1 << 27);
        let buffer = device.alloc(DType::F32, &[bytes / 4])?;
        // 0x3C3C3C3C is 0.0115: neither zeros nor anything that overflows a sum.
        buffer.fill_bytes(0x3C)?;
        Ok(Cold::Library(buffer, device.alloc(DType::F32, &[4])?))
    }

    /// Twice the cache and a bit, at least 128 MiB.
    pub fn bytes_needed(device: &Device) -> u64 {
        (device.info().l2_bytes * 5 / 2).max(1 << 27).next_multiple_of(1 << 20)
    }

    /// Bytes that one flush reads.
    pub fn bytes_read(&self) -> u64 {
        match self {
            Cold::Library(buffer, _) => buffer.bytes() as u64,
            Cold::Rotate => 0,
        }
    }

    /// Puts the reading on the device's stream.
    pub(super) fn flush(&self, cublas: Option<&Cublas>) -> Result<()> {
        match (self, cublas) {
            (Cold::Library(buffer, sum), Some(cublas)) => cublas.read_through(buffer, sum),
            (Cold::Library(..), None) | (Cold::Rotate, _) => Ok(()),
        }
    }

    /// Bytes per second of reading a buffer several times the cache's size, by the library's sum of magnitudes or by a plain kernel: the best of a few
    /// runs, since the ceiling is asked for. `None` without the library.
    pub(super) fn bandwidth(&self, device: &Device, cublas: Option<&Cublas>) -> Result<Option<f64>> {
        let (Cold::Library(..), Some(cublas)) = (self, cublas) else { return Ok(None) };
        let bytes = (Cold::bytes_needed(device) * 4).min(device.free_memory()? / 4);
        let blocks = u32::try_from(bytes / u64::from(READ_BY_BLOCK)).unwrap_or(1).max(1);
        let large = device.alloc(DType::F32, &[blocks as usize * READ_BY_BLOCK as usize / 4])?;
        large.fill_bytes(0x3C)?;
        let sum = device.alloc(DType::F32, &[1])?;
        let plain = device.load(&reads(blocks))?;
        let (start, end) = (device.event()?, device.event()?);
        let mut best = f64::INFINITY;
        for run in 0..16 {
            start.record()?;
            match run % 2 {
                0 => cublas.read_through(&large, &sum)?,
                _ => plain.launch(&[&large, &sum])?,
            }
            end.record()?;
            end.synchronize()?;
            best = best.min(end.microseconds_since(&start)?);
        }
        Ok((best > 0.0).then(|| large.bytes() as f64 / best * 1e6))
    }
}
