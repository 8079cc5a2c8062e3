//! Trials on a GPU. The worker loads the compiled kernels of a job, checks their result and times them; in a runoff it times two programs
//! in turn.

use super::judge::{Judge, arguments};
use super::protocol::{Answer, Found, Job, Status};
use crate::array::Array;
use crate::artifact::Artifact;
use crate::error::{Code, Error, Fault, Result};
use crate::ir::Func;
use crate::kernel::Kernels;
use crate::loom::Schedule;
use crate::measure::{self, Bench, TimeBudget};
use crate::runtime::Device;
use crate::te;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

/// A trial is timed for a tenth of a second; the runoff decides what its noise leaves open.
const PLAN: TimeBudget =
    TimeBudget { preheat_s: 0.5, rewarm_s: 0.02, row_s: 0.1, most_pairs: 30, graph_launches: 20, graph_below_us: 50.0 };

/// CUDA_ERROR_OUT_OF_MEMORY.
const OUT_OF_MEMORY: i32 = 2;

/// Data of a program with their check: every configuration has the same.
struct Data {
    program: Func,
    seed: u64,
    arrays: Vec<Array>,
    judge: Judge,
    /// The least microseconds of a trial so far.
    least_us: Cell<Option<f64>>,
}

/// A device that trials are timed on.
pub struct Clocked {
    bench: Bench,
    data: RefCell<Option<Rc<Data>>>,
}

impl Clocked {
    /// Prepares a device.
    pub fn new(device: &Device) -> Result<Clocked> {
        Ok(Clocked { bench: Bench::new(device, PLAN, None)?, data: RefCell::default() })
    }

    /// Whether the device is lost.
    pub fn is_lost(&self) -> bool {
        self.bench.device().is_lost()
    }

    fn data(&self, program: &Func, seed: u64) -> Result<Rc<Data>> {
        let kept = self.data.borrow().clone().filter(|d| d.program == *program && d.seed == seed);
        if let Some(data) = kept {
            return Ok(data);
        }
        let arrays = arguments(program, seed)?;
        let judge = Judge::new(program, &arrays)?;
        let data = Rc::new(Data { program: program.clone(), seed, arrays, judge, least_us: Cell::new(None) });
        *self.data.borrow_mut() = Some(Rc::clone(&data));
        Ok(data)
    }

    /// Checks and times the kernels of a job.
    pub fn measure(&self, job: &Job, schedule: &Schedule, is_tampered: bool) -> Result<Answer> {
        let data = self.data(&schedule.program, job.seed)?;
        let kernels = loaded(job, 0)?;
        let judge = |after: &[Array]| if is_tampered { Ok(f64::INFINITY) } else { data.judge.worst(after) };
        match self.bench.trial(&described(job, &data, &kernels, &judge), data.least_us.get()) {
            Ok(timed) => {
                data.least_us.set(Some(data.least_us.get().map_or(timed.us, |least| least.min(timed.us))));
                let (us, noise, error_ratio) = (Some(timed.us), Some(timed.noise), Some(timed.error));
                Ok(Answer::new(job.number, Found { us, noise, error_ratio, ..Found::new(Status::Ok) }))
            }
            Err(e) => Ok(answer(job.number, &e)),
        }
    }

    /// Times the kernels of two folders in turn.
    pub fn runoff(&self, job: &Job, schedule: &Schedule) -> Result<Answer> {
        let data = self.data(&schedule.program, job.seed)?;
        let kernels = [loaded(job, 0)?, loaded(job, 1)?];
        let judge = |after: &[Array]| data.judge.worst(after);
        let [a, b] = kernels.each_ref().map(|kernels| described(job, &data, kernels, &judge));
        match self.bench.runoff([&a, &b]) {
            Ok(turns) => {
                let (us, noise, ratio) = (Some(turns.us[0]), Some(turns.noise), Some(turns.ratio));
                let found = Found { us, noise, ..Found::new(Status::Ok) };
                Ok(Answer { ratio, ..Answer::new(job.number, found) })
            }
            Err(e) => Ok(answer(job.number, &e)),
        }
    }
}

fn loaded(job: &Job, number: usize) -> Result<Kernels> {
    let none = || Error::bug(Code::TuneProtocol, "the job names too few folders");
    let folder: &Path = job.folders.get(number).ok_or_else(none)?;
    let variant = Artifact::read(folder)?.variants.pop();
    variant.map(|v| v.kernels).ok_or_else(none)
}

fn described<'a>(
    job: &Job,
    data: &Data,
    kernels: &'a Kernels,
    judge: &'a dyn Fn(&[Array]) -> Result<f64>,
) -> measure::Job<'a> {
    let types = data.arrays.first().map_or(crate::dtype::DType::F32, |a| a.dtype);
    measure::Job {
        labels: [job.name.clone(), String::new(), types.to_string(), String::new()],
        kernels,
        args: data.arrays.clone(),
        operations: te::operations(&data.program),
        arithmetic: (types, types),
        gemm: None,
        beside: None,
        judge,
    }
}

/// The answer for an error on the device.
fn answer(number: u64, error: &Error) -> Answer {
    let status = match (error.code(), error.fault()) {
        (Code::MeasureWrong | Code::MeasureChanged | Code::ReferenceBound, _) => Status::Wrong,
        (Code::LaunchTimeout, _) => Status::Hung,
        (Code::Driver(OUT_OF_MEMORY), _) => Status::Memory,
        (_, Fault::Chip) => Status::Refused,
        _ => Status::Failed,
    };
    Answer::new(number, Found { status, ..Found::of_error(error) })
}
