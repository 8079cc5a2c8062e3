//! Events on a device's stream, and the time between two of them.

use super::context::Owned;
use super::device::Device;
use super::driver::{api, api::Handle};
use crate::error::Result;
use std::time::Duration;

const WAITING: &str = "waiting for an event";

/// A mark in a device's stream.
#[derive(Debug)]
pub struct Event {
    device: Device,
    raw: Handle,
}

// SAFETY: the driver's event calls may come from any thread; `call` makes the context current first.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Device {
    /// An event that takes the time; not recorded yet.
    ///
    /// # Errors
    /// `driver.*` where the driver refuses to make one.
    pub fn event(&self) -> Result<Event> {
        let mut raw: Handle = std::ptr::null_mut();
        // SAFETY: writes one handle.
        self.inner.call("making an event", || unsafe { api::cuEventCreate(&mut raw, 0) })?;
        Ok(Event { device: self.clone(), raw })
    }
}

impl Event {
    /// Records it behind all work that is on the device's stream now.
    ///
    /// # Errors
    /// `driver.*` where the driver refuses it, or work before it has failed.
    pub fn record(&self) -> Result<()> {
        let stream = self.device.raw_stream();
        // SAFETY: event and stream belong to the same context.
        self.device.inner.call("recording an event", || unsafe { api::cuEventRecord(self.raw, stream) })
    }

    /// Waits until it has happened; reports what went wrong before it. As long as it takes, or as long as
    /// [`Device::set_time_limit`] allows.
    ///
    /// # Errors
    /// `driver.*` of what went wrong before it; `launch.timeout` when the limit is over.
    pub fn synchronize(&self) -> Result<()> {
        match self.device.inner.limit() {
            Some(limit) => self.synchronize_within(limit),
            // SAFETY: the event lives.
            None => self.device.inner.call(WAITING, || unsafe { api::cuEventSynchronize(self.raw) }),
        }
    }

    /// As [`Event::synchronize`], for at most `limit`; when it is over, that is the end of the device, as
    /// [`Device::synchronize_within`] says.
    ///
    /// # Errors
    /// As [`Event::synchronize`].
    pub fn synchronize_within(&self, limit: Duration) -> Result<()> {
        // SAFETY: the event lives.
        self.device.inner.poll_within(WAITING, limit, || unsafe { api::cuEventQuery(self.raw) })
    }

    /// Whether it has happened, without waiting; reports what went wrong before it.
    ///
    /// # Errors
    /// `driver.*` of what went wrong before it.
    pub fn is_done(&self) -> Result<bool> {
        // SAFETY: the event lives.
        self.device.inner.asks("asking for an event", || unsafe { api::cuEventQuery(self.raw) })
    }

    /// Microseconds from `start` to this event; both must have been recorded, and this one have happened.
    ///
    /// # Errors
    /// `driver.*` where the driver refuses: an event that was not recorded, or has not happened.
    pub fn microseconds_since(&self, start: &Event) -> Result<f64> {
        let mut milliseconds = 0f32;
        let ask = || unsafe {
            // SAFETY: writes one float; both events live.
            api::cuEventElapsedTime(&mut milliseconds, start.raw, self.raw)
        };
        self.device.inner.call("reading the time between events", ask)?;
        Ok(f64::from(milliseconds) * 1000.0)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.device.inner.release(Owned::Event(self.raw));
    }
}

/// The median (the mean of the middle two for an even count); NaN for nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn medians() {
        assert!(median(&[]).is_nan());
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
