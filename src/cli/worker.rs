//! `warploom tune-worker`: a worker process of the tuner. It reads jobs from standard input and ends with it.

use crate::assemble::Ptxas;
use crate::error::Result;
use crate::tune::{Evaluator, Job, serve};
use clap::Args;
use signal_hook::consts::{SIGINT, SIGKILL};
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Where jobs are measured.
#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// A GPU's number.
    #[arg(long)]
    device: Option<String>,
    /// Assemble with the ptxas of this version, `major.minor`, if there is one.
    #[arg(long)]
    ptxas: Option<String>,
}

/// Faults for tests, `KIND CONFIGURATION; ..`, in builds with debug assertions alone.
const FAULTS: &str = "WARPLOOM_TUNE_FAULTS";

/// Bytes that the fault `memory` takes: more than any limit in a test.
const MEMORY_BYTES: usize = 1 << 30;

/// Answers jobs.
pub fn run(args: &WorkerArgs) -> Result<ExitCode> {
    // An interrupt is for the parent, which ends its workers.
    let _ = signal_hook::flag::register(SIGINT, Arc::new(AtomicBool::new(false)));
    let (send, lines) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::io::Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
        // The parent is gone: whatever the job in hand is, its answer has no reader.
        std::process::exit(0);
    });
    let asked = if cfg!(debug_assertions) { std::env::var(FAULTS).unwrap_or_default() } else { String::new() };
    let faults: Vec<(String, String)> = faults(&asked);
    let planted = faults.clone();
    let tamper = move |job: &Job| planted.contains(&("wrong".into(), job.name.clone()));
    let plain = Evaluator::new(Box::new(tamper));
    let plain = match args.ptxas.as_deref().and_then(ptxas) {
        Some(ptxas) => plain.assembling(Box::new(ptxas)),
        None => plain,
    };
    let evaluator = evaluator(args, plain)?;
    let before = |job: &Job| faults.iter().filter(|f| f.1 == job.name).for_each(|f| plant(&f.0, job.is_retry));
    serve(&evaluator, lines, std::io::stdout().lock(), &before)?;
    Ok(ExitCode::SUCCESS)
}

/// The ptxas of a version, if it is installed.
fn ptxas(version: &str) -> Option<Ptxas> {
    Ptxas::find(None).unwrap_or_default().into_iter().find(|ptxas| ptxas.version == version)
}

#[cfg(feature = "runtime")]
fn evaluator(args: &WorkerArgs, plain: Evaluator) -> Result<Evaluator> {
    use super::data::{self, Place};
    match args.device.as_deref().map(|d| data::place(Some(d))).transpose()? {
        Some(Place::Gpu(device)) => plain.on_device(&device),
        Some(Place::Cpu) | None => Ok(plain),
    }
}

#[cfg(not(feature = "runtime"))]
fn evaluator(args: &WorkerArgs, plain: Evaluator) -> Result<Evaluator> {
    match args.device {
        Some(_) => Err(super::data::without_cuda()),
        None => Ok(plain),
    }
}

fn faults(text: &str) -> Vec<(String, String)> {
    let one = |fault: &str| fault.trim().split_once(' ').map(|(kind, name)| (kind.to_string(), name.to_string()));
    text.split(';').filter_map(one).collect()
}

/// Does what a faulty configuration may do to a process.
fn plant(kind: &str, is_retry: bool) {
    match kind {
        "hang-once" if is_retry => {}
        "hang" | "hang-once" => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        "abort" => std::process::abort(),
        "panic" => panic!("a fault that a test asks for"),
        "kill" => drop(signal_hook::low_level::raise(SIGKILL)),
        "rubbish" => {
            let _ = std::io::stdout().lock().write_all(b"rubbish\n");
        }
        "memory" => {
            let taken = vec![1u8; MEMORY_BYTES];
            std::thread::sleep(Duration::from_secs(60));
            drop(taken);
        }
        _ => {}
    }
}
