//! Making the L2 cache cold before a sample, by reading a buffer beyond twice its size.
//!
//! Reading and not writing: a flush by writing leaves the cache full of dirty lines, whose write-back is then charged to
//! the kernel that is timed.

use super::library::cublas::Cublas;
use crate::dtype::DType;
use crate::error::Result;
use crate::runtime::{Device, DeviceBuffer, median};

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

    /// Bytes per second of reading a buffer several times the cache's size: the best of a few runs, since the ceiling is
    /// asked for. `None` where nothing can read.
    pub(super) fn bandwidth(&self, device: &Device, cublas: Option<&Cublas>) -> Result<Option<f64>> {
        let (Cold::Library(..), Some(cublas)) = (self, cublas) else { return Ok(None) };
        let bytes = (Cold::bytes_needed(device) * 4).min(device.free_memory()? / 4).next_multiple_of(4);
        let large = device.alloc(DType::F32, &[usize::try_from(bytes / 4).unwrap_or(0)])?;
        large.fill_bytes(0x3C)?;
        let sum = device.alloc(DType::F32, &[4])?;
        let (start, end) = (device.event()?, device.event()?);
        let mut times = Vec::new();
        for _ in 0..8 {
            start.record()?;
            cublas.read_through(&large, &sum)?;
            end.record()?;
            end.synchronize()?;
            times.push(end.microseconds_since(&start)?);
        }
        let best = times.iter().copied().fold(f64::INFINITY, f64::min).min(median(&times));
        Ok((best > 0.0).then(|| large.bytes() as f64 / best * 1e6))
    }
}
