//! The tuner: tries schedules of a space, checks what they compute, and keeps what it finds in a record.
//!
//! A [`Space`] is a `.loom` text with knobs, or the candidates of a GEMM. The tuner tries all of it where it has no more configurations
//! than trials are allowed. Of a larger space it first predicts the cycles of a sample from the counts of [`crate::analysis`], goes on from
//! the best of the sample to configurations beside them, and tries those that are predicted to be fastest.
//!
//! A trial runs in a worker process ([`Worker`]): one that hangs, crashes, takes too much memory or computes a wrong result costs this
//! trial alone, and its [`Status`] says which. On a device the kernels are compiled in parallel, each is checked before it is timed, and the
//! best two are timed in turn. Without one, the trial is the predicted cycles, and a small instance is checked on the simulator.
//!
//! [`Record`] is the file that holds the trials ([`records`]). [`recommend`] and [`parse`] take the steps of a record in place of the
//! recommended ones.

mod consult;
#[cfg(all(feature = "runtime", unix))]
mod device;
mod evaluate;
mod judge;
mod plan;
mod protocol;
pub mod records;
mod runoffs;
mod search;
mod space;
mod worker;

pub use consult::{Here, parse, recommend, record_of, recorded};
pub use evaluate::{Evaluator, Tamper, serve};
pub use judge::{Judge, arguments, halved};
pub use protocol::{Answer, Found, Job, Status, Task};
pub use records::{Damage, Header, Journal, Record, Run, Runoff, Trial};
pub use runoffs::FailedRunoff;
pub use search::{Event, Outcome, Tuner, reason};
pub use space::{Configuration, Knob, Space, format};
pub use worker::{Place, Worker, WorkerOptions};
