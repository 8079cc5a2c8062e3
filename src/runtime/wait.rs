//! Waiting with a limit, and what is waited for: the launches that nobody has seen finish yet.

use super::context::Inner;
use super::driver::api::{self, Answer};
use crate::error::{Code, Error, Result};
use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// As many of the last launches are named in an error.
const NAMED: usize = 4;
/// The driver's "not finished yet".
pub(super) const NOT_READY: c_int = 600;
/// For so long a wait asks without a pause: most kernels are done by then.
const EAGER: Duration = Duration::from_millis(5);
/// The longest pause between two questions.
const PAUSE: Duration = Duration::from_millis(1);

/// Launches on a stream since it was last seen idle.
#[derive(Debug, Default)]
pub(super) struct Pending {
    launched: u64,
    finished: u64,
    last: VecDeque<Arc<str>>,
}

impl Pending {
    pub(super) fn add(&mut self, launch: Arc<str>) {
        self.launched += 1;
        if self.last.len() == NAMED {
            self.last.pop_back();
        }
        self.last.push_front(launch);
    }

    /// How many there have been; for [`Pending::finish`], once they are known to be done.
    pub(super) fn launched(&self) -> u64 {
        self.launched
    }

    pub(super) fn finish(&mut self, launched: u64) {
        self.finished = self.finished.max(launched);
        self.last.truncate(usize::try_from(self.launched - self.finished).unwrap_or(NAMED));
    }

    /// `kernel a of p (grid 4 x 1 x 1, block 32 x 1 x 1)`; several are counted; none where there are none.
    pub(super) fn describe(&self) -> Option<String> {
        let count = self.launched - self.finished;
        let first = self.last.front()?;
        if count == 1 {
            return Some(first.to_string());
        }
        let mut names: Vec<&str> = self.last.iter().rev().map(AsRef::as_ref).collect();
        names.dedup();
        let of = if count as usize > self.last.len() { ", the last of them" } else { " of" };
        Some(format!("{count} launches{of} {}", names.join(", ")))
    }
}

/// Asks until the answer is no longer "not finished yet", for at most `limit`; that answer itself when it is over.
pub(super) fn poll<A: Answer>(limit: Duration, mut ask: impl FnMut() -> A) -> c_int {
    let start = Instant::now();
    loop {
        let (answer, waited) = (ask().code(), start.elapsed());
        if answer != NOT_READY || waited >= limit {
            return answer;
        }
        match waited < EAGER {
            true => std::thread::yield_now(),
            false => std::thread::sleep((waited / 16).min(PAUSE).min(limit - waited)),
        }
    }
}

impl Inner {
    /// Waits until the stream is idle, for at most `limit`.
    pub(super) fn wait_within(&self, doing: &str, limit: Duration) -> Result<()> {
        let stream = self.stream();
        // SAFETY: the stream lives as long as the device.
        self.poll_within(doing, limit, || unsafe { api::cuStreamQuery(stream) })
    }

    /// Polls one of the driver's questions; when the limit is over, the device is given up.
    pub(super) fn poll_within<A: Answer>(&self, doing: &str, limit: Duration, ask: impl Fn() -> A) -> Result<()> {
        let mut late = false;
        self.call(doing, || {
            let answer = poll(limit, &ask);
            late = answer == NOT_READY;
            if late { 0 } else { answer }
        })?;
        if late { Err(self.give_up(timeout(self.pending().as_deref(), limit)).within(doing)) } else { Ok(()) }
    }

    /// Whether the answer to one of the driver's questions is "done".
    pub(super) fn asks<A: Answer>(&self, doing: &str, ask: impl FnOnce() -> A) -> Result<bool> {
        let mut done = true;
        self.call(doing, || {
            let answer = ask().code();
            done = answer != NOT_READY;
            if done { answer } else { 0 }
        })?;
        Ok(done)
    }

    /// Before a call of the driver that waits by itself: waits as long as the device's limit allows.
    pub(super) fn settle(&self, doing: &str) -> Result<()> {
        match self.limit() {
            Some(limit) => self.wait_within(doing, limit),
            None => Ok(()),
        }
    }

    /// A call of the driver that returns when the stream is idle.
    pub(super) fn waiting<A: Answer>(&self, doing: &str, call: impl FnOnce() -> A) -> Result<()> {
        let launched = self.work().pending.launched();
        self.settle(doing)?;
        self.call(doing, call)?;
        self.work().pending.finish(launched);
        Ok(())
    }
}

/// What is said when a wait is over before the work is.
fn timeout(pending: Option<&str>, limit: Duration) -> Error {
    let what = pending.unwrap_or("the work on the device's stream");
    let message = format!("{what}: not finished within {} ms", limit.as_millis());
    Error::machine(Code::LaunchTimeout, message)
        .help("if the kernel is only slow, allow it more time")
        .help("run the program on the simulator, which finds what a kernel waits for in vain: --device cpu")
        .help("open the device again: the hung kernel keeps its context, and a new one is made")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_are_named_and_counted() {
        let mut pending = Pending::default();
        assert_eq!(pending.describe(), None);
        pending.add("kernel a".into());
        assert_eq!(pending.describe().as_deref(), Some("kernel a"));
        pending.add("kernel a".into());
        assert_eq!(pending.describe().as_deref(), Some("2 launches of kernel a"));
        let before = pending.launched();
        pending.add("kernel b".into());
        assert_eq!(pending.describe().as_deref(), Some("3 launches of kernel a, kernel b"));
        pending.finish(before);
        assert_eq!(pending.describe().as_deref(), Some("kernel b"));
        (0..9).for_each(|_| pending.add("kernel c".into()));
        assert_eq!(pending.describe().as_deref(), Some("10 launches, the last of them kernel c"));
        pending.finish(pending.launched());
        pending.finish(before);
        assert_eq!(pending.describe(), None);
    }

    #[test]
    fn polls_end_with_the_answer_or_the_limit() {
        let mut left = 5;
        let answer = poll(Duration::from_secs(60), || {
            left -= 1;
            if left > 0 { NOT_READY } else { 700 }
        });
        assert_eq!((answer, left), (700, 0));
        let start = Instant::now();
        assert_eq!(poll(Duration::from_millis(20), || NOT_READY), NOT_READY);
        assert!(start.elapsed() >= Duration::from_millis(20));
        assert_eq!(poll(Duration::ZERO, || 0), 0);
    }
}
