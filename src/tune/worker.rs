//! The tuner's side of a worker process. A [`Worker`] starts the process for the first job, and kills it at a deadline, above a limit of
//! memory, or after an answer that is none. A process that ends early gives its job the status of that end; the next job gets a new process.

use super::protocol::{Answer, Found, Job, Status};
use crate::error::{Code, Error, Result};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often a parent looks at the clock, the memory of the worker, and the interrupt; and the search for an interrupt.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// The deadline of a second attempt over that of the first.
const RETRY_DEADLINE_FACTOR: u32 = 2;

/// A longer line is no answer.
const LONGEST_ANSWER_BYTES: u64 = 1 << 20;

/// So much of the standard error of a worker is kept.
const LONGEST_COMPLAINT_BYTES: usize = 4096;

/// How worker processes are started and when they are ended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WorkerOptions {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// A job that takes longer has hung.
    pub deadline: Duration,
    /// Bytes of resident memory that a worker may take.
    pub memory_bytes: u64,
}

impl WorkerOptions {
    /// A program that serves jobs ([`crate::tune::serve`]).
    pub fn new(program: PathBuf, arguments: Vec<OsString>, deadline: Duration, memory_bytes: u64) -> WorkerOptions {
        WorkerOptions { program, arguments, deadline, memory_bytes }
    }
}

/// Answers jobs. A test answers them without a process.
pub trait Place {
    /// The answer to a job; [`Status::Stopped`] once `stop` is set.
    ///
    /// # Errors
    /// Where no job can be answered at all.
    fn ask(&mut self, job: &Job, stop: &AtomicBool) -> Result<Answer>;
}

/// A worker process.
pub struct Worker<'a> {
    options: &'a WorkerOptions,
    running: Option<Running>,
}

struct Running {
    child: Child,
    input: ChildStdin,
    answers: Receiver<Option<Vec<u8>>>,
    complaint: Arc<Mutex<Vec<u8>>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl<'a> Worker<'a> {
    /// One that is not started yet.
    pub fn new(options: &'a WorkerOptions) -> Worker<'a> {
        Worker { options, running: None }
    }

    fn started(&mut self) -> Result<&mut Running> {
        let running = match self.running.take() {
            Some(running) => running,
            None => start(self.options)?,
        };
        Ok(self.running.insert(running))
    }
}

impl Place for Worker<'_> {
    fn ask(&mut self, job: &Job, stop: &AtomicBool) -> Result<Answer> {
        let line = serde_json::to_string(job).map_err(|e| Error::bug(Code::TuneProtocol, e.to_string()))?;
        let factor = if job.is_retry { RETRY_DEADLINE_FACTOR } else { 1 };
        let (deadline, memory) = (self.options.deadline.saturating_mul(factor), self.options.memory_bytes);
        let running = self.started()?;
        let begin = Instant::now();
        // A worker that does not read has ended: the loop finds that out.
        let _ = running.input.write_all(format!("{line}\n").as_bytes());
        let answer = loop {
            match running.answers.recv_timeout(LOOK) {
                Ok(Some(line)) => break parsed(job.number, &line),
                Ok(None) | Err(RecvTimeoutError::Disconnected) => break running.ended(job.number),
                Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                    break Answer::new(job.number, Found::new(Status::Stopped));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if begin.elapsed() > deadline {
                let error = format!("no answer within {:.1} s", deadline.as_secs_f64());
                break Answer::because(job.number, Status::Hung, error);
            }
            if let Some(bytes) = resident_bytes(running.child.id()).filter(|bytes| *bytes > memory) {
                let mib = |bytes: u64| bytes >> 20;
                let error = format!("{} MiB of memory; a worker may take {}", mib(bytes), mib(memory));
                break Answer::because(job.number, Status::Memory, error);
            }
        };
        let lives = matches!(answer.found.status, Status::Ok | Status::Refused | Status::Wrong | Status::Failed);
        if !lives || answer.is_last {
            self.running = None;
        }
        Ok(answer)
    }
}

/// The answer of a line, if it is that to the job.
fn parsed(number: u64, line: &[u8]) -> Answer {
    match serde_json::from_slice::<Answer>(line) {
        Ok(answer) if answer.number == number => answer,
        _ => {
            let shown: String = String::from_utf8_lossy(line).trim_end().chars().take(80).collect();
            Answer::because(number, Status::Garbled, format!("the worker answers `{shown}`"))
        }
    }
}

impl Running {
    /// What the end of the worker says.
    fn ended(&mut self, number: u64) -> Answer {
        let status = self.child.wait();
        // The thread that reads the complaint ends with the worker; a child of the worker may keep it.
        thread::sleep(LOOK);
        let complaint = self.complaint.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let complaint = String::from_utf8_lossy(&complaint).into_owned();
        let mut lines = complaint.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("note: "));
        // The message of a panic is the line after that of its place; a backtrace may follow.
        let panic = lines.clone().skip_while(|l| !l.contains(" panicked at ")).nth(1);
        let said = panic.or_else(|| lines.next_back());
        let (kind, how) = status.map_or((Status::Crashed, "it is lost".to_string()), end_of);
        let kind = if complaint.contains("memory allocation of ") { Status::Memory } else { kind };
        let why = said.map_or(how.clone(), |said| format!("{how}: {said}"));
        Answer::because(number, kind, format!("the worker ended without an answer: {why}"))
    }
}

/// Whether the worker ended by itself, and how.
#[cfg(unix)]
fn end_of(status: ExitStatus) -> (Status, String) {
    use std::os::unix::process::ExitStatusExt;
    const KILL: i32 = 9;
    match (status.signal(), status.code()) {
        (Some(KILL), _) => (Status::Killed, "killed (signal 9)".into()),
        (Some(signal), _) => (Status::Crashed, format!("signal {signal}")),
        (None, code) => (Status::Crashed, format!("exit status {}", code.unwrap_or(-1))),
    }
}

#[cfg(not(unix))]
fn end_of(status: ExitStatus) -> (Status, String) {
    (Status::Crashed, status.to_string())
}

/// Resident memory of a process, where the system says it.
fn resident_bytes(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    // Pages of 4 KiB: on hosts with larger ones a worker may take more.
    text.split_whitespace().nth(1)?.parse::<u64>().ok().map(|pages| pages * 4096)
}

fn start(options: &WorkerOptions) -> Result<Running> {
    let cannot = |e: &dyn std::fmt::Display| {
        Error::machine(Code::TuneWorker, format!("cannot start a worker, {}: {e}", options.program.display()))
    };
    let mut command = Command::new(&options.program);
    command.args(&options.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| cannot(&e))?;
    let (Some(input), Some(output), Some(errors)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(cannot(&"it has no standard streams"));
    };
    let (send, answers) = channel();
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        loop {
            let mut line = Vec::new();
            let read = (&mut output).take(LONGEST_ANSWER_BYTES).read_until(b'\n', &mut line);
            let whole = read.is_ok_and(|n| n > 0).then_some(line);
            let is_end = whole.is_none();
            if send.send(whole).is_err() || is_end {
                break;
            }
        }
    });
    let complaint = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&complaint);
    thread::spawn(move || keep_last(errors, &kept));
    Ok(Running { child, input, answers, complaint })
}

/// Reads to the end and keeps the last bytes.
fn keep_last(mut from: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 1024];
    while let Ok(n) = from.read(&mut buffer) {
        if n == 0 {
            break;
        }
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&buffer[..n]);
        let excess = kept.len().saturating_sub(LONGEST_COMPLAINT_BYTES);
        kept.drain(..excess);
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::tune::Task;

    fn job() -> Job {
        Job::new(3, Task::Check, "a", "vec_add 8")
    }

    /// What becomes of a job whose worker is this shell script, and of the one after it.
    fn asked(script: &str) -> [Answer; 2] {
        let arguments = ["-c", script].map(OsString::from).to_vec();
        let options = WorkerOptions::new("/bin/sh".into(), arguments, Duration::from_millis(300), 64 << 20);
        let mut worker = Worker::new(&options);
        let stop = AtomicBool::new(false);
        [job(), job()].map(|job| worker.ask(&job, &stop).unwrap())
    }

    #[test]
    fn the_end_of_a_worker_is_the_answer() {
        for (script, status, words) in [
            ("read j; echo '{\"number\":3,\"status\":\"ok\",\"cycles\":5.0}'; read j", Status::Ok, ""),
            ("read j; exec sleep 10", Status::Hung, "no answer within 0.3 s"),
            ("read j; kill -ABRT $$", Status::Crashed, "signal 6"),
            ("read j; kill -KILL $$", Status::Killed, "signal 9"),
            ("read j; echo first >&2; echo why >&2; exit 3", Status::Crashed, "exit status 3: why"),
            ("read j; echo 'memory allocation of 5 bytes failed' >&2; kill -ABRT $$", Status::Memory, "signal 6"),
            (
                "echo \"thread 'a' panicked at x:1:\" >&2; echo why >&2; echo 0: f >&2; exit 101",
                Status::Crashed,
                "101: why",
            ),
            ("read j; echo rubbish; exec sleep 10", Status::Garbled, "`rubbish`"),
            ("read j; echo '{\"number\":4,\"status\":\"ok\"}'; exec sleep 10", Status::Garbled, "number"),
            ("exit 0", Status::Crashed, "exit status 0"),
        ] {
            let [first, second] = asked(script);
            assert_eq!((first.found.status, first.number), (status, 3), "{script}: {first:?}");
            assert!(first.found.error.unwrap_or_default().contains(words), "{script}");
            // The next job has a new worker, or the same where it lives.
            let wanted = if status == Status::Ok { Status::Crashed } else { status };
            assert_eq!(second.found.status, wanted, "{script}: {second:?}");
        }
    }

    #[test]
    fn a_second_attempt_has_twice_the_time() {
        let script = "read j; sleep 0.6; echo '{\"number\":3,\"status\":\"ok\"}'; read j";
        let arguments = ["-c", script].map(OsString::from).to_vec();
        let options = WorkerOptions::new("/bin/sh".into(), arguments, Duration::from_millis(400), 64 << 20);
        let ask = |is_retry: bool| {
            let job = Job { is_retry, ..job() };
            Worker::new(&options).ask(&job, &AtomicBool::new(false)).unwrap().found.status
        };
        assert_eq!([ask(false), ask(true)], [Status::Hung, Status::Ok]);
    }

    #[test]
    fn a_worker_above_its_memory_is_killed_and_an_interrupt_ends_the_wait() {
        let options = WorkerOptions::new("/bin/sh".into(), vec!["-c".into(), "exec sleep 9".into()], LOOK * 100, 0);
        let stop = AtomicBool::new(false);
        assert_eq!(Worker::new(&options).ask(&job(), &stop).unwrap().found.status, Status::Memory);
        let options = WorkerOptions { memory_bytes: u64::MAX, ..options };
        stop.store(true, Ordering::Relaxed);
        assert_eq!(Worker::new(&options).ask(&job(), &stop).unwrap().found.status, Status::Stopped);
        let options = WorkerOptions { program: "/nowhere".into(), ..options };
        assert_eq!(Worker::new(&options).ask(&job(), &stop).unwrap_err().code(), Code::TuneWorker);
    }
}
