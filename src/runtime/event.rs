//! Events on a device's stream, and the time between two of them.

use super::context::Owned;
use super::device::Device;
use super::driver::api::Answer;
use super::wait::NOT_READY;
use crate::error::Result;
use cust::error::CudaResult;
use cust::event::{EventFlags, EventStatus};
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::time::Duration;

const WAITING: &str = "waiting for an event";

/// A mark in a device's stream.
#[derive(Debug)]
pub struct Event {
    device: Device,
    /// Given back by [`super::context::Inner::release`] alone.
    event: ManuallyDrop<cust::event::Event>,
}

impl Device {
    /// An event that takes the time; not recorded yet.
    ///
    /// # Errors
    /// `driver.*` where the driver refuses to make one.
    pub fn event(&self) -> Result<Event> {
        let event = self.inner.make("making an event", || cust::event::Event::new(EventFlags::DEFAULT))?;
        Ok(Event { device: self.clone(), event: ManuallyDrop::new(event) })
    }
}

impl Event {
    /// Records it behind all work that is on the device's stream now.
    ///
    /// # Errors
    /// `driver.*` where the driver refuses it, or work before it has failed.
    pub fn record(&self) -> Result<()> {
        let inner = &self.device.inner;
        inner.call("recording an event", || self.event.record(inner.queue()))
    }

    /// Waits until it has happened; reports what went wrong before it. As long as it takes, or as long as
    /// [`Device::set_time_limit`] allows.
    ///
    /// # Errors
    /// `driver.*` of what went wrong before it; `launch.timeout` when the limit is over.
    pub fn synchronize(&self) -> Result<()> {
        match self.device.inner.limit() {
            Some(limit) => self.synchronize_within(limit),
            None => self.device.inner.call(WAITING, || self.event.synchronize()),
        }
    }

    /// As [`Event::synchronize`], for at most `limit`; when it is over, that is the end of the device, as
    /// [`Device::synchronize_within`] says.
    ///
    /// # Errors
    /// As [`Event::synchronize`].
    pub fn synchronize_within(&self, limit: Duration) -> Result<()> {
        self.device.inner.poll_within(WAITING, limit, || status(self.event.query()))
    }

    /// Whether it has happened, without waiting; reports what went wrong before it.
    ///
    /// # Errors
    /// `driver.*` of what went wrong before it.
    pub fn is_done(&self) -> Result<bool> {
        self.device.inner.asks("asking for an event", || status(self.event.query()))
    }

    /// Microseconds from `start` to this event; both must have been recorded, and this one have happened.
    ///
    /// # Errors
    /// `driver.*` where the driver refuses: an event that was not recorded, or has not happened.
    pub fn microseconds_since(&self, start: &Event) -> Result<f64> {
        let ask = || self.event.elapsed_time_f32(&start.event);
        let milliseconds = self.device.inner.make("reading the time between events", ask)?;
        Ok(f64::from(milliseconds) * 1000.0)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let event = unsafe { ManuallyDrop::take(&mut self.event) };
        self.device.inner.release(Owned::Event(ManuallyDrop::new(event)));
    }
}

/// The driver's answer to the question whether an event has happened.
fn status(answer: CudaResult<EventStatus>) -> c_int {
    match answer {
        Ok(EventStatus::NotReady) => NOT_READY,
        answer => answer.code(),
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
