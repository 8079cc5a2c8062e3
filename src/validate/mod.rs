//! Translation validation: a second opinion on every step of a schedule, by running a small instance of it.
//!
//! [`Schedule::validate`] takes the program at sizes that the simulator runs in a moment (`instance`), and compares in integer
//! mode, where every legal schedule is bit-equal to the naive program: the naive program, the program after all steps, and its
//! kernels under three orders of warps, blocks and asynchronous copies. Then the PTX runs on small integers, which every type
//! holds exactly, and its results lie within the bounds of [`mod@crate::reference`]. Where the program after all steps differs, the error
//! names the first step after which it does. Any difference, and any fault that a run reports, is a bug of warploom
//! ([`crate::Fault::Bug`]): steps that were accepted cannot change the result.
//!
//! The instance keeps for every number of the steps whether it divides an extent: a ragged tile stays ragged. A program whose
//! sizes cannot be reduced is run as it is, if that is little work; otherwise it is not validated, and [`Validation::skipped`]
//! says why.

mod instance;

#[doc(hidden)]
pub use instance::{of as instance, smaller};

use crate::array::Array;
#[cfg(feature = "compile")]
use crate::codegen;
use crate::dtype::DType;
use crate::error::{Code, Error, Fault, Result};
use crate::ir::{Func, layout, visit};
use crate::loom::Schedule;
use crate::lower::{Lowered, lower};
#[cfg(feature = "compile")]
use crate::reference::{self, Sample};
use crate::schedule;
use crate::sim::{self, Limits, Mode, Options, Policy};
use crate::size::Size;
use std::fmt::{self, Display, Formatter};

/// Operations of an instance that [`Schedule::validate`] runs: seconds of the simulator.
pub const OPERATIONS: f64 = (1u64 << 22) as f64;

/// Operations of an instance that [`crate::compile`] runs in a debug build: some milliseconds.
pub const DEBUG_OPERATIONS: f64 = (1u64 << 14) as f64;

/// Statements that one run may take for each operation of the instance, and some more: copies, initial values, padding.
const STATEMENTS_PER_OPERATION: f64 = 64.0;
const LEAST_STATEMENTS: u64 = 1 << 20;
const BYTES: u64 = 1 << 30;

/// The orders in which kernels run.
const POLICIES: [Policy; 3] = [Policy::InOrder, Policy::Reverse, Policy::Random(7)];

/// What a validation ran.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Validation {
    /// The schedule at the sizes that were run.
    pub instance: Schedule,
    /// Whether they are smaller than those that were asked for.
    pub reduced: bool,
    /// What was run, in order, each equal to the naive program.
    pub compared: Vec<String>,
    /// What was not run, and why.
    pub skipped: Vec<String>,
}

impl Display for Validation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let program = &self.instance.program;
        if self.compared.is_empty() {
            return write!(f, "program {} is not validated: {}", program.name, self.skipped.join("; "));
        }
        let shape = |id: &crate::ir::BufferId| {
            let b = program.buffer(*id);
            let extents: Vec<String> = b.shape.iter().map(|e| program.extent_text(e)).collect();
            format!("{}[{}]", b.name, extents.join(", "))
        };
        let shapes: Vec<String> = program.params.iter().map(shape).collect();
        let sizes = if self.reduced { "reduced sizes" } else { "its own sizes" };
        write!(f, "program {} is validated at {sizes}, {}: ", program.name, shapes.join(" "))?;
        write!(f, "{} compute what the naive program does", self.compared.join(" and "))?;
        for (n, size) in program.sizes.iter().enumerate() {
            let all: Vec<String> = tried(program).iter().map(|v| v[n].to_string()).collect();
            write!(f, " (size {} at {})", size.size.name, all.join(", "))?;
        }
        match self.skipped.is_empty() {
            true => Ok(()),
            false => write!(f, "; not run: {}", self.skipped.join("; ")),
        }
    }
}

impl Schedule {
    /// Runs a small instance of the schedule and compares its levels: see [`crate::validate`].
    ///
    /// # Errors
    /// What [`Self::scheduled`] refuses; `validate.step`, `validate.kernels`, `validate.ptx`, bugs of warploom, where a level computes something
    /// else or its run ends in an error.
    pub fn validate(&self) -> Result<Validation> {
        self.validate_within(OPERATIONS)
    }

    /// [`Self::validate`] with an instance of at most so many operations.
    ///
    /// # Errors
    /// As [`Self::validate`].
    pub fn validate_within(&self, operations: f64) -> Result<Validation> {
        let mut out = Validation { instance: self.clone(), reduced: false, compared: Vec::new(), skipped: Vec::new() };
        match instance::of(self, operations)? {
            Some(instance) => (out.reduced, out.instance) = (instance.program != self.program, instance),
            None => {
                out.skipped.push(format!("no instance of at most {operations:.0} operations takes these steps"));
                return Ok(out);
            }
        }
        let mut found: Option<Ran> = None;
        for sizes in tried(&out.instance.program) {
            let ran = at(&out.instance, sizes, limits(operations))?;
            // What is not run at one value of a dynamic size is said; what is compared is compared at all.
            found = Some(match found {
                None => ran,
                Some(before) => before.and(ran),
            });
        }
        (out.compared, out.skipped) = found.map(|ran| (ran.compared, ran.skipped)).unwrap_or_default();
        Ok(out)
    }
}

/// What was run at one value of each dynamic size.
struct Ran {
    compared: Vec<String>,
    skipped: Vec<String>,
}

impl Ran {
    fn and(self, other: Ran) -> Ran {
        let compared = self.compared.into_iter().filter(|c| other.compared.contains(c)).collect();
        let mut skipped = self.skipped;
        skipped.extend(other.skipped.into_iter().filter(|s| !skipped.contains(s)).collect::<Vec<_>>());
        Ran { compared, skipped }
    }
}

/// The values of the dynamic sizes that are run: the least, the largest and one between; without such sizes one empty list.
fn tried(program: &Func) -> Vec<Vec<i64>> {
    let of = |pick: &dyn Fn(&Size) -> i64| program.sizes.iter().map(|s| pick(&s.size)).collect::<Vec<i64>>();
    let least = |s: &Size| (s.low + s.by - 1) / s.by * s.by;
    let mut all = vec![of(&least), of(&|s| (s.low + s.high) / 2 / s.by * s.by), of(&|s| s.high)];
    all.retain(|values| Size::check_all(program.sizes.iter().map(|s| &s.size), values).is_ok());
    all.dedup();
    all
}

/// Runs the schedule at one value of each dynamic size.
fn at(schedule: &Schedule, sizes: Vec<i64>, limits: Limits) -> Result<Ran> {
    let mut out = Ran { compared: Vec::new(), skipped: Vec::new() };
    let run = Run { schedule, program: schedule.program.at(&sizes)?, sizes, limits };
    let Some(naive) = run.sequence(&schedule.program)? else {
        out.skipped.push("its naive program is more than the simulator may do for it".into());
        return Ok(out);
    };
    if !run.steps(&naive, &mut out.skipped)? {
        return Ok(out);
    }
    out.compared.push(match schedule.steps.len() {
        0 => "no steps".into(),
        1 => "1 step".into(),
        n => format!("{n} steps"),
    });
    match lower(&schedule.scheduled()?, &schedule.target) {
        Ok(lowered) => {
            if run.kernels(&lowered, &naive, &mut out.skipped)? {
                out.compared.push(format!("the kernels in {} orders", POLICIES.len()));
            }
            if run.ptx(&lowered, &mut out.skipped)? {
                out.compared.push("the PTX".into());
            }
        }
        Err(e) if e.fault() == Fault::Bug => return Err(e),
        Err(e) => out.skipped.push(format!("the kernels, which {} refuses", e.code())),
    }
    Ok(out)
}

fn limits(operations: f64) -> Limits {
    let statements = (operations * STATEMENTS_PER_OPERATION) as u64;
    Limits { statements: statements.max(LEAST_STATEMENTS), bytes: BYTES }
}

/// The parameters after a run.
type Results = Vec<Vec<u32>>;

struct Run<'s> {
    schedule: &'s Schedule,
    /// Its program at the sizes.
    program: Func,
    /// The values of its dynamic sizes.
    sizes: Vec<i64>,
    limits: Limits,
}

impl Run<'_> {
    /// The same numbers for every level: hashes of the parameter and the place.
    fn arguments(&self) -> Result<Vec<Array>> {
        let program = &self.program;
        let one = |(n, id): (usize, &crate::ir::BufferId)| {
            let buffer = program.buffer(*id);
            let span = layout::span(buffer).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            let mut array = Array::zeros(DType::U32, &[span])?;
            for (i, cell) in array.bytes.chunks_exact_mut(4).enumerate() {
                let hash = (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23 + n as u32 % 16);
                let hash = (hash ^ hash >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) as u32;
                cell.copy_from_slice(&sim::integer_input(buffer, hash).to_le_bytes());
            }
            Ok(array)
        };
        program.params.iter().enumerate().map(one).collect()
    }

    /// A program in sequence; `None` where it is more than the limits allow.
    fn sequence(&self, func: &Func) -> Result<Option<Results>> {
        let mut args = self.arguments()?;
        let options = Options { limits: self.limits, ..Options::new(Mode::Integer) };
        match sim::run_func_with(&func.at(&self.sizes)?, &options, &mut args) {
            Ok(_) => Ok(Some(args.iter().map(elements).collect())),
            Err(e) if e.code() == Code::SimLimit => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Whether all steps together compute what the naive program does; the first that does not is an error. False where that
    /// was too much work.
    fn steps(&self, naive: &Results, skipped: &mut Vec<String>) -> Result<bool> {
        let mut too_large = || {
            skipped.push("the program after its steps is more than the simulator may do for it".into());
            Ok(false)
        };
        match self.sequence(&self.schedule.scheduled()?) {
            Ok(None) => return too_large(),
            Ok(Some(found)) if found == *naive => return Ok(true),
            _ => {}
        }
        let resolved = self.schedule.resolved()?;
        let mut func = resolved.program.clone();
        for (n, step) in resolved.steps.iter().enumerate() {
            func = schedule::apply(&func, step)?;
            let how = match self.sequence(&func) {
                Ok(None) => return too_large(),
                Ok(Some(found)) => match self.difference(naive, &found) {
                    None => continue,
                    Some(place) => format!("after step `{step}` the program computes something else: {place}"),
                },
                Err(e) => format!("after step `{step}` the program cannot be run: {}", e.message()),
            };
            let number = format!("step {} of {}", n + 1, resolved.steps.len());
            return Err(self.reported(Error::bug(Code::ValidateStep, how).within(number)));
        }
        let message = "the program after all steps computes something else, but after no single one";
        Err(self.reported(Error::bug(Code::ValidateStep, message)))
    }

    /// Whether the kernels compute what the naive program does; false where that was too much work.
    fn kernels(&self, lowered: &Lowered, naive: &Results, skipped: &mut Vec<String>) -> Result<bool> {
        let lowered = &lowered.at(&self.sizes)?;
        for policy in POLICIES {
            let options = Options { policy, limits: self.limits, ..Options::new(Mode::Integer) };
            let mut args = self.arguments()?;
            let how = match sim::run_lowered_with(lowered, &options, &mut args) {
                Ok(_) => match self.difference(naive, &args.iter().map(elements).collect()) {
                    None => continue,
                    Some(place) => format!("the kernels compute something else than the steps say: {place}"),
                },
                Err(e) if e.code() == Code::SimLimit => {
                    skipped.push("the kernels, which are more than the simulator may do for it".into());
                    return Ok(false);
                }
                Err(e) => format!("the kernels cannot be run: [{}] {}", e.code(), e.message()),
            };
            return Err(self.reported(Error::bug(Code::ValidateKernels, how).within(format!("order {policy:?}"))));
        }
        Ok(true)
    }

    /// A build without LLVM makes no PTX.
    #[cfg(not(feature = "compile"))]
    fn ptx(&self, _: &Lowered, skipped: &mut Vec<String>) -> Result<bool> {
        skipped.push("the PTX, which this build without LLVM does not make".into());
        Ok(false)
    }

    /// Whether the PTX computes what the program says, on integers from -1 to 1; false where that was too much work.
    #[cfg(feature = "compile")]
    fn ptx(&self, lowered: &Lowered, skipped: &mut Vec<String>) -> Result<bool> {
        let program = &self.program;
        let mut skip = |why: String| {
            skipped.push(why);
            Ok(false)
        };
        let kernels = match codegen::compile(lowered, &self.schedule.target) {
            Ok(kernels) => kernels.at(&self.sizes)?,
            Err(e) if e.fault() == Fault::Bug => return Err(e),
            Err(e) => return skip(format!("the PTX, which {} refuses", e.code())),
        };
        let one = |(n, id): (usize, &crate::ir::BufferId)| {
            let b = program.buffer(*id);
            let span = layout::span(b).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            match b.values {
                Some(values) => Array::random_values(b.dtype, &[span], values, n as u64 + 1),
                None => Array::random_integers(b.dtype, &[span], 1, n as u64 + 1),
            }
        };
        let before = program.params.iter().enumerate().map(one).collect::<Result<Vec<Array>>>()?;
        let mut args = before.clone();
        let options = Options { policy: Policy::Random(7), limits: self.limits, ..Options::new(Mode::Real) };
        match sim::run_ptx(&kernels, &options, &mut args) {
            Ok(_) => {}
            Err(e) if e.code() == Code::PtxLimit => {
                return skip("the PTX, which is more than the simulator may do for it".into());
            }
            Err(e) if e.code() == Code::PtxUnknown => {
                return skip(format!("the PTX, of which the simulator lacks an instruction: {}", e.message()));
            }
            Err(e) => {
                let how = format!("the PTX cannot be run: [{}] {}", e.code(), e.message());
                return Err(
                    self.reported(e.context().iter().fold(Error::bug(Code::ValidatePtx, how), |e, c| e.within(c)))
                );
            }
        }
        for output in reference::outputs(program, &before, Sample::All)? {
            let Some(after) = args.get(output.param) else { continue };
            if let Err(e) = output.bound(after) {
                let how = format!("the PTX computes something else than the program says: {}", e.message());
                return Err(self.reported(Error::bug(Code::ValidatePtx, how)));
            }
        }
        Ok(true)
    }

    /// The first element of a result that differs.
    fn difference(&self, wanted: &Results, found: &Results) -> Option<String> {
        let program = &self.program;
        let written = visit::writes(&program.body);
        for (n, (wanted, found)) in wanted.iter().zip(found).enumerate() {
            let id = program.params.get(n)?;
            if let Some(at) = wanted.iter().zip(found).position(|(a, b)| a != b) {
                let b = program.buffer(*id);
                let what = if written.contains(id) { "" } else { ", an input," };
                let place = index(b, at).map(|i| format!("{i:?}")).unwrap_or(format!("[{at}]"));
                return Some(format!(
                    "{}{place}{what} is {} and not {} in integer mode",
                    b.name, found[at], wanted[at]
                ));
            }
        }
        None
    }

    /// The error with the schedule that shows it.
    fn reported(&self, error: Error) -> Error {
        error.help(format!("report this schedule, which shows the fault:\n{}", self.schedule))
    }
}

/// The index of an element of a buffer's memory.
fn index(buffer: &crate::ir::Buffer, at: usize) -> Option<Vec<i64>> {
    let (shape, strides) = (buffer.const_shape()?, layout::strides(buffer)?);
    let mut rest = i64::try_from(at).ok()?;
    let mut order: Vec<usize> = (0..shape.len()).collect();
    order.sort_by_key(|n| std::cmp::Reverse(strides[*n]));
    let mut out = vec![0; shape.len()];
    for n in order {
        out[n] = rest.checked_div(strides[n])?.min(shape[n] - 1);
        rest -= out[n] * strides[n];
    }
    (rest == 0).then_some(out)
}

fn elements(array: &Array) -> Vec<u32> {
    array.bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(text: &str) -> Schedule {
        Schedule::parse(text).unwrap()
    }

    #[test]
    fn a_large_schedule_is_validated_at_a_small_size_that_its_tiles_divide_alike() {
        let large = "gemm 4096x1000x2048 f32 NN\ntarget sm_80\nsplit i ? 32 -> i0 i1; split j ? 16 -> j0 j1\n\
                     bind i0 blockIdx.x; bind i1 threadIdx.x\n";
        let validation = schedule(large).validate().unwrap();
        let sizes = crate::te::Known::of(&validation.instance.program).unwrap().sizes();
        assert!(validation.reduced && validation.skipped.is_empty(), "{validation}");
        assert!(sizes[0] % 32 == 0 && sizes[1] % 16 == 8 && sizes.iter().product::<i64>() < 1 << 20, "{sizes:?}");
        assert_eq!(validation.compared, ["4 steps", "the kernels in 3 orders", "the PTX"]);
    }

    #[test]
    fn programs_of_their_own_are_reduced_too() {
        let text = "program own\ninput A f32[100000, 66] strides [72, 1]\n\
                    T[i 100000] f32 = sum(k 64) A[i, k + 1] * A[i, k + 2]\n\
                    output U[i 100000] f32 = T[99999 - i]\ntarget sm_80\nsplit i ? 128 -> a b\n";
        let validation = schedule(text).validate().unwrap();
        assert!(validation.reduced, "{validation}");
        assert!(validation.to_string().contains("the kernels in 3 orders and the PTX compute what"), "{validation}");
    }

    #[test]
    fn what_is_too_large_and_cannot_be_reduced_is_said() {
        let text = "program own\ninput A f32[1048576]\noutput B[i 1048576] f32 = A[(i * 7 + 3) % 1048576] + 1\ntarget sm_80\n\
                    split i 1048576 ? -> a b\n";
        let validation = schedule(text).validate_within(1000.0).unwrap();
        assert!(validation.compared.is_empty() && validation.to_string().contains("is not validated"), "{validation}");
    }

    #[test]
    fn a_refused_step_stays_the_users() {
        assert_eq!(schedule("vec_add 64\ntarget sm_80\nsplit x ? 2").validate().unwrap_err().code(), Code::StepLoop);
    }
}
