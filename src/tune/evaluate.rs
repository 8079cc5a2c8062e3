//! The jobs of a worker process: predict, check, compile and measure a schedule. [`serve`] reads jobs, and writes one answer for each.

use super::judge::{Judge, arguments, halved};
use super::protocol::{Answer, Found, Job, Status, Task};
use crate::analysis::{CostReport, cost_report};
#[cfg(feature = "compile")]
use crate::artifact::{Artifact, Variant};
use crate::error::{Code, Error, Result};
#[cfg(feature = "compile")]
use crate::kernel::Assembler;
use crate::kernel::Kernels;
use crate::loom::Schedule;
use crate::lower::{Lowered, lower};
use crate::sim::{self, Mode};
use crate::{te, validate};
use std::io::Write;

/// Operations of an instance that is run on the simulator: about a second.
const CHECKED_OPERATIONS: f64 = (1u64 << 22) as f64;

/// Decides in a test whether the result of a job is made wrong before the check.
pub type Tamper = Box<dyn Fn(&Job) -> bool>;

/// Does jobs on this host.
pub struct Evaluator {
    tamper: Tamper,
    #[cfg(feature = "compile")]
    assembler: Option<Box<dyn Assembler>>,
    #[cfg(all(feature = "runtime", unix))]
    device: Option<super::device::Clocked>,
}

impl Evaluator {
    /// Without a device.
    pub fn new(tamper: Tamper) -> Evaluator {
        Evaluator {
            tamper,
            #[cfg(feature = "compile")]
            assembler: None,
            #[cfg(all(feature = "runtime", unix))]
            device: None,
        }
    }

    /// With a device, which does [`Task::Measure`] and [`Task::Runoff`].
    ///
    /// # Errors
    /// Those of opening the device and its libraries.
    #[cfg(all(feature = "runtime", unix))]
    pub fn on_device(mut self, device: &crate::runtime::Device) -> Result<Evaluator> {
        self.device = Some(super::device::Clocked::new(device)?);
        Ok(self)
    }

    /// Adds a cubin to the compiled kernels. A ptxas of the version of the device's CUDA driver makes of the PTX what that driver would, and the
    /// process that measures does not wait for the driver.
    #[cfg(feature = "compile")]
    #[must_use]
    pub fn assembling(mut self, assembler: Box<dyn Assembler>) -> Evaluator {
        self.assembler = Some(assembler);
        self
    }

    /// Does a job.
    pub fn answer(&self, job: &Job) -> Answer {
        self.done(job).unwrap_or_else(|e| Answer::new(job.number, Found::of_error(&e)))
    }

    /// Whether the device is lost to the jobs after this one: the process has to end.
    pub fn is_lost(&self) -> bool {
        #[cfg(all(feature = "runtime", unix))]
        return self.device.as_ref().is_some_and(super::device::Clocked::is_lost);
        #[cfg(not(all(feature = "runtime", unix)))]
        false
    }

    fn done(&self, job: &Job) -> Result<Answer> {
        let schedule = Schedule::parse(&job.schedule)?;
        let schedule = if job.is_tested { schedule.allow_tested() } else { schedule };
        if matches!(job.task, Task::Measure | Task::Runoff) {
            return self.on_clock(job, &schedule);
        }
        let lowered = lower(&schedule.scheduled()?, &schedule.target)?;
        let report = cost_report(&lowered, &schedule.target);
        let report = match job.task {
            Task::Compile => report.compiled(&self.compiled(job, &schedule, &lowered)?),
            _ => with_ptx(report, &lowered, &schedule)?,
        };
        let cycles = Some(report.predicted_cycles);
        let found = Found { cycles, ..Found::new(Status::Ok) };
        let found = if job.task == Task::Check { self.checked(job, &schedule, found)? } else { found };
        Ok(Answer::new(job.number, found))
    }

    /// Runs a small instance and compares the result with the reference. Without an instance there is no `error_ratio`.
    fn checked(&self, job: &Job, schedule: &Schedule, found: Found) -> Result<Found> {
        let too_large = |s: &Schedule| te::operations(&s.program) > CHECKED_OPERATIONS;
        let halved = || Some(halved(schedule, &too_large)).filter(|s| !too_large(s));
        let Some(instance) = validate::instance(schedule, CHECKED_OPERATIONS)?.or_else(halved) else {
            return Ok(found);
        };
        let lowered = lower(&instance.scheduled()?, &instance.target)?;
        let mut arrays = arguments(&instance.program, job.seed)?;
        let judge = Judge::new(&instance.program, &arrays)?;
        // What the simulator refuses is no refusal of the schedule.
        if let Err(e) = sim::run_lowered(&lowered, Mode::Real, &mut arrays) {
            return Ok(Found { status: Status::Failed, cycles: found.cycles, ..Found::of_error(&e) });
        }
        if (self.tamper)(job) {
            arrays.iter_mut().for_each(|a| a.bytes.fill(0x55));
        }
        judged(found, judge.worst(&arrays))
    }

    #[cfg(feature = "compile")]
    fn compiled(&self, job: &Job, schedule: &Schedule, lowered: &Lowered) -> Result<Kernels> {
        let mut kernels = crate::codegen::compile(lowered, &schedule.target)?;
        let folder = job.folders.first().ok_or_else(|| Error::bug(Code::TuneProtocol, "the job names no folder"))?;
        if let Some(assembler) = &self.assembler {
            kernels.cubin = Some(assembler.cubin(&kernels)?);
        }
        let variant = Variant::new(kernels.clone(), &job.schedule, crate::codegen::llvm_version());
        Artifact::new(vec![variant]).write(folder)?;
        Ok(kernels)
    }

    #[cfg(not(feature = "compile"))]
    fn compiled(&self, _: &Job, _: &Schedule, _: &Lowered) -> Result<Kernels> {
        Err(Error::bug(Code::TuneProtocol, "the worker has no compiler"))
    }

    #[cfg(all(feature = "runtime", unix))]
    fn on_clock(&self, job: &Job, schedule: &Schedule) -> Result<Answer> {
        let none = || Error::bug(Code::TuneProtocol, "the worker has no device");
        let device = self.device.as_ref().ok_or_else(none)?;
        match job.task {
            Task::Runoff => device.runoff(job, schedule),
            _ => device.measure(job, schedule, (self.tamper)(job)),
        }
    }

    #[cfg(not(all(feature = "runtime", unix)))]
    fn on_clock(&self, _: &Job, _: &Schedule) -> Result<Answer> {
        Err(Error::bug(Code::TuneProtocol, "the worker has no device"))
    }
}

/// With the largest error over its bound; wrong where that is above 1 or no number.
fn judged(found: Found, worst: Result<f64>) -> Result<Found> {
    let wrong = |e: &Error| Found { status: Status::Wrong, cycles: found.cycles, ..Found::of_error(e) };
    match worst {
        Ok(worst) if worst <= 1.0 => Ok(Found { error_ratio: Some(worst), ..found }),
        Ok(worst) => Ok(wrong(&Error::bug(Code::MeasureWrong, format!("an error is {worst:.3} times its bound")))),
        Err(e) if e.code() == Code::ReferenceBound => Ok(wrong(&e)),
        Err(e) => Err(e),
    }
}

/// The report with the counts of the compiled kernels.
#[cfg(feature = "compile")]
fn with_ptx(report: CostReport, lowered: &Lowered, schedule: &Schedule) -> Result<CostReport> {
    Ok(report.compiled(&crate::codegen::compile(lowered, &schedule.target)?))
}

#[cfg(not(feature = "compile"))]
fn with_ptx(report: CostReport, _: &Lowered, _: &Schedule) -> Result<CostReport> {
    Ok(report)
}

/// Answers jobs, a line each, until there are no more. `before` sees each job first.
///
/// # Errors
/// `tune.protocol` where a line is no job or the output fails.
pub fn serve(
    evaluator: &Evaluator,
    lines: impl IntoIterator<Item = String>,
    mut output: impl Write,
    before: &dyn Fn(&Job),
) -> Result<()> {
    let failed = |e: &dyn std::fmt::Display| Error::bug(Code::TuneProtocol, e.to_string());
    for line in lines {
        let job: Job = serde_json::from_str(&line).map_err(|e| failed(&e))?;
        before(&job);
        let answer = evaluator.answer(&job);
        let is_last = evaluator.is_lost();
        let answer = serde_json::to_string(&Answer { is_last, ..answer }).map_err(|e| failed(&e))?;
        output.write_all(format!("{answer}\n").as_bytes()).and_then(|()| output.flush()).map_err(|e| failed(&e))?;
        if is_last {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "gemm 64x64x64 f32 NN; target sm_80; split i ? 16 -> a b; split j ? 16 -> c d; \
                        bind a blockIdx.y; bind c blockIdx.x; bind b threadIdx.y; bind d threadIdx.x";

    fn job(task: Task, schedule: &str) -> Job {
        Job::new(7, task, "only", schedule)
    }

    #[test]
    fn a_right_schedule_has_cycles_and_a_wrong_result_has_none_to_compare() {
        let right = Evaluator::new(Box::new(|_| false));
        let answer = right.answer(&job(Task::Check, TEXT));
        assert_eq!((answer.found.status, answer.number), (Status::Ok, 7), "{answer:?}");
        assert!(answer.found.cycles.unwrap() > 100.0 && answer.found.error_ratio.unwrap() < 1.0, "{answer:?}");
        assert_eq!(right.answer(&job(Task::Predict, TEXT)).found.cycles, answer.found.cycles);
        let wrong = Evaluator::new(Box::new(|job| job.name == "only"));
        assert_eq!(wrong.answer(&job(Task::Check, TEXT)).found.status, Status::Wrong);
    }

    #[test]
    fn what_a_step_or_the_chip_refuses_is_refused() {
        let evaluator = Evaluator::new(Box::new(|_| false));
        let step = evaluator.answer(&job(Task::Check, "vec_add 64; target sm_80; split x ? 4"));
        assert_eq!((step.found.status, step.found.code.as_deref()), (Status::Refused, Some("step.loop")), "{step:?}");
        let chip = evaluator.answer(&job(Task::Check, "vec_add 4096; target sm_80; bind i threadIdx.x"));
        assert_eq!(
            (chip.found.status, chip.found.code.as_deref()),
            (Status::Refused, Some("admit.threads")),
            "{chip:?}"
        );
    }

    #[test]
    fn jobs_are_answered_line_by_line() {
        let evaluator = Evaluator::new(Box::new(|_| false));
        let line = |task| serde_json::to_string(&job(task, TEXT)).unwrap();
        let mut out = Vec::new();
        serve(&evaluator, [line(Task::Predict), line(Task::Check)], &mut out, &|_| {}).unwrap();
        let answers: Vec<Answer> =
            out.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(|l| serde_json::from_slice(l).unwrap()).collect();
        assert_eq!(answers.len(), 2);
        assert!(answers.iter().all(|a| a.found.status == Status::Ok));
        let error = serve(&evaluator, ["rubbish".to_string()], &mut Vec::new(), &|_| {}).unwrap_err();
        assert_eq!(error.code(), Code::TuneProtocol);
    }
}
