//! Samples: how long a subject takes between two events, in blocks whose order cancels drift.

use super::cold::Cold;
use super::library::cublas::Cublas;
use super::library::nvml::{Nvml, Reading};
use crate::error::Result;
use crate::runtime::{Device, Event, Graph};
use std::time::Instant;

/// Something to time: puts one launch on the device's stream, on the set of buffers of that number.
pub(super) type Launch<'a> = dyn Fn(usize) -> Result<()> + 'a;

/// A subject made ready: alone, or as a graph of several launches over as many sets of buffers.
pub(super) struct Subject<'a> {
    launch: &'a Launch<'a>,
    sets: usize,
    pub(super) launches: usize,
    graph: Option<Graph>,
}

impl<'a> Subject<'a> {
    /// One launch a sample, rotating over the sets.
    pub(super) fn single(launch: &'a Launch<'a>, sets: usize) -> Subject<'a> {
        Subject { launch, sets: sets.max(1), launches: 1, graph: None }
    }

    /// A graph of `launches` launches a sample, the i-th on set i.
    pub(super) fn replayed(device: &Device, launch: &'a Launch<'a>, sets: usize, launches: usize) -> Result<Self> {
        let sets = sets.max(1);
        let graph = device.capture(|| (0..launches).try_for_each(|i| launch(i % sets)))?;
        Ok(Subject { launch, sets, launches, graph: Some(graph) })
    }

    fn enqueue(&self, turn: usize) -> Result<()> {
        match &self.graph {
            Some(graph) => graph.launch(),
            None => (self.launch)(turn % self.sets),
        }
    }
}

/// Takes samples on one device.
pub(super) struct Timer<'a> {
    pub(super) device: &'a Device,
    pub(super) cold: &'a Cold,
    pub(super) cublas: Option<&'a Cublas>,
    pub(super) nvml: Option<&'a Nvml>,
    events: Vec<(Event, Event)>,
    turn: usize,
    /// What NVML said, once a block.
    pub(super) readings: Vec<Reading>,
}

impl<'a> Timer<'a> {
    /// `longest` is the length of the longest block.
    pub(super) fn new(
        device: &'a Device,
        cold: &'a Cold,
        cublas: Option<&'a Cublas>,
        nvml: Option<&'a Nvml>,
        longest: usize,
    ) -> Result<Self> {
        let events = (0..longest).map(|_| Ok((device.event()?, device.event()?))).collect::<Result<Vec<_>>>()?;
        Ok(Timer { device, cold, cublas, nvml, events, turn: 0, readings: Vec::new() })
    }

    /// One sample of each subject in this order, queued together so that the device never waits for the host between
    /// them. Microseconds a launch.
    pub(super) fn block(&mut self, order: &[&Subject<'_>]) -> Result<Vec<f64>> {
        let marks = self.events.get(..order.len()).unwrap_or(&self.events);
        for (subject, (start, end)) in order.iter().zip(marks) {
            self.cold.flush(self.cublas)?;
            start.record()?;
            subject.enqueue(self.turn)?;
            end.record()?;
            self.turn += 1;
        }
        // The device is at work now: clock and power are those of the work.
        self.readings.extend(self.nvml.and_then(Nvml::read));
        self.device.synchronize()?;
        let time = |(subject, (start, end)): (&&Subject<'_>, &(Event, Event))| {
            Ok(end.microseconds_since(start)? / subject.launches as f64)
        };
        order.iter().zip(marks).map(time).collect()
    }

    /// Runs the subjects in turn until the time is over, to reach a steady clock and temperature.
    pub(super) fn preheat(&mut self, subjects: &[&Subject<'_>], seconds: f64) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed().as_secs_f64() < seconds {
            self.block(subjects)?;
        }
        self.readings.clear();
        Ok(())
    }
}
