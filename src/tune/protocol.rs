//! The messages between the tuner and its worker processes. A [`Job`] and its [`Answer`] are a line of JSON each.

use crate::error::{Error, Fault};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The work that a worker does for a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Task {
    /// Lower it and predict its cycles.
    Predict,
    /// As [`Task::Predict`], and run a small instance on the simulator and check the result.
    Check,
    /// As [`Task::Predict`], and write the compiled kernels into the folder of the job.
    Compile,
    /// Check the kernels of the folder on the device, then time them.
    Measure,
    /// Time the kernels of two folders in turn.
    Runoff,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Job {
    /// The answer has the same number.
    pub number: u64,
    /// The work.
    pub task: Task,
    /// The name of the configuration.
    pub name: String,
    /// The schedule's text.
    pub schedule: String,
    /// Whether legality claims that are not decided are tried at some points.
    pub is_tested: bool,
    /// Seed of the data.
    pub seed: u64,
    /// Folders of compiled kernels.
    #[serde(default)]
    pub folders: Vec<PathBuf>,
    /// Whether it is the second attempt at a trial whose worker had no answer at the deadline: it runs alone and has twice the time.
    #[serde(default)]
    pub is_retry: bool,
}

impl Job {
    /// A job with the usual seed and without folders.
    pub fn new(number: u64, task: Task, name: &str, schedule: &str) -> Job {
        let (name, schedule, folders) = (name.to_string(), schedule.to_string(), Vec::new());
        Job { number, task, name, schedule, is_tested: false, seed: 1, folders, is_retry: false }
    }

    /// The same with folders of compiled kernels.
    #[must_use]
    pub fn in_folders(mut self, folders: &[PathBuf]) -> Job {
        self.folders = folders.to_vec();
        self
    }
}

/// The result of a job in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// Done.
    Ok,
    /// The configuration is not legal, or the chip cannot run it.
    Refused,
    /// It computes a wrong result.
    Wrong,
    /// The compiler, the simulator or the driver reports an error: a trap of the kernel is one.
    Failed,
    /// The worker ended by itself: a panic or an abort.
    Crashed,
    /// Another process killed the worker.
    Killed,
    /// The worker had no answer at the deadline, twice: the second time alone, with twice the time.
    Hung,
    /// The worker took more memory than it may.
    Memory,
    /// The worker's answer is no answer.
    Garbled,
    /// The tuner was interrupted before the answer. No record holds it.
    Stopped,
}

impl Status {
    /// Every status.
    pub const ALL: [Status; 10] = [
        Status::Ok,
        Status::Refused,
        Status::Wrong,
        Status::Failed,
        Status::Crashed,
        Status::Killed,
        Status::Hung,
        Status::Memory,
        Status::Garbled,
        Status::Stopped,
    ];

    /// In tables: `ok`, `refused`, ..
    pub fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Refused => "refused",
            Status::Wrong => "wrong",
            Status::Failed => "failed",
            Status::Crashed => "crashed",
            Status::Killed => "killed",
            Status::Hung => "hung",
            Status::Memory => "memory",
            Status::Garbled => "garbled",
            Status::Stopped => "stopped",
        }
    }
}

/// The result of a job: status, figures and error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Found {
    /// Success, or the kind of failure.
    pub status: Status,
    /// Predicted cycles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles: Option<f64>,
    /// Microseconds of a launch: the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub us: Option<f64>,
    /// How far samples of the same kernels stray from each other, as a share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<f64>,
    /// The largest error over its bound, where the result was checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_ratio: Option<f64>,
    /// Attempts, where there was more than one: the first had no answer at the deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The code of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The error in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Found {
    /// Without figures.
    pub fn new(status: Status) -> Found {
        Found {
            status,
            cycles: None,
            us: None,
            noise: None,
            error_ratio: None,
            attempts: None,
            code: None,
            error: None,
        }
    }

    /// The result of an error: refused where the schedule or the chip is at fault, failed otherwise.
    pub fn of_error(error: &Error) -> Found {
        let status = match error.fault() {
            Fault::Input | Fault::Chip => Status::Refused,
            Fault::Machine | Fault::Bug => Status::Failed,
        };
        Found { code: Some(error.code().to_string()), error: Some(error.message().into()), ..Found::new(status) }
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Answer {
    /// The number of the job.
    pub number: u64,
    /// The result.
    #[serde(flatten)]
    pub found: Found,
    /// Of a runoff: the time of the second over that of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Whether the worker ends after this answer: its device is lost.
    #[serde(default)]
    pub is_last: bool,
}

impl Answer {
    /// The answer to the job of this number.
    pub fn new(number: u64, found: Found) -> Answer {
        Answer { number, found, ratio: None, is_last: false }
    }

    /// An answer with a status and an error.
    pub fn because(number: u64, status: Status, error: impl Into<String>) -> Answer {
        Answer::new(number, Found { error: Some(error.into()), ..Found::new(status) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_one_name() {
        for status in Status::ALL {
            assert_eq!(serde_json::to_value(status).unwrap(), status.name());
        }
    }
}
