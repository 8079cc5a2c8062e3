//! The levels of a program on the same inputs: the text by the second evaluator, the naive and the scheduled program, the
//! kernels, in integer mode and exactly on small integers.

use super::check::{Failure, broken, failure};
use crate::oracle::{self, Exact, Integers, Unknown};
use warploom::error::Code;
use warploom::ir::Func;
use warploom::loom::Schedule;
use warploom::lower::Lowered;
use warploom::reference::{Sample, outputs};
use warploom::sim::{Limits, Mode, Options, Policy, run_func_with, run_ptx};
use warploom::{Array, DType, Error};

/// A program as the second evaluator reads it, with inputs and what it computes from them.
pub struct Oracle {
    program: oracle::Program,
    integers: Vec<Vec<u32>>,
    exact: Vec<Vec<Exact>>,
    /// The parameters afterwards in integer mode.
    pub in_integers: Result<Vec<Vec<u32>>, Unknown>,
    /// The parameters afterwards, exactly.
    pub in_exact: Result<Vec<Vec<Exact>>, Unknown>,
}

/// The text of a schedule's program, its steps left out; printed where a builder stands for it.
fn program_text(text: &str, schedule: &Schedule) -> String {
    let own: String = text.lines().take_while(|l| !l.starts_with("target")).flat_map(|l| [l, "\n"]).collect();
    let written = own.lines().map(str::trim).find(|l| !l.is_empty() && !l.starts_with('#'));
    let states_extents = |t: &str| oracle::Program::parse(t).is_ok();
    match written.is_some_and(|l| l.starts_with("program")) && states_extents(&own) {
        true => own,
        false => warploom::te::print(&schedule.program),
    }
}

impl Oracle {
    /// Evaluates the program of a schedule that has this text.
    pub fn of(text: &str, schedule: &Schedule, seed: u64) -> Result<Oracle, Failure> {
        let program = oracle::Program::parse(&program_text(text, schedule));
        let program = program.map_err(|e| failure("second evaluator", format!("the program's text: {}", e.0)))?;
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut integers, mut exact) = (Vec::new(), Vec::new());
        for n in program.parameters() {
            let b = &program.buffers[n];
            let stated = b.values.or((b.dtype == oracle::Type::BOOL).then_some((0, 2)));
            let number = |rng: &mut fastrand::Rng| match stated {
                Some((low, end)) => rng.i64(low..end) as u32,
                None => rng.u32(..),
            };
            integers.push((0..b.span()).map(|_| number(&mut rng)).collect::<Vec<u32>>());
            let low = if b.dtype.range().is_some_and(|r| r.0 == 0) { 0 } else { -2 };
            let high = if b.dtype.name == "b1" { 1 } else { 3 };
            let (low, high) = stated.map_or((low, high), |(low, end)| (low.into(), i128::from(end) - 1));
            exact.push((0..b.span()).map(|_| Exact::of(rng.i128(low..=high))).collect::<Vec<_>>());
        }
        let in_integers = program.evaluate::<Integers>(&integers);
        let in_exact = program.evaluate::<Exact>(&exact);
        Ok(Oracle { program, integers, exact, in_integers, in_exact })
    }

    /// Arguments of a run in integer mode.
    pub fn integer_arguments(&self) -> Result<Vec<Array>, Error> {
        self.integers.iter().map(|v| Array::from_fn(DType::U32, &[v.len()], |n| f64::from(v[n]))).collect()
    }

    /// Arguments of a run in the real types.
    pub fn exact_arguments(&self) -> Result<Vec<Array>, Error> {
        let one = |(n, values): (usize, &Vec<Exact>)| {
            let dtype = DType::parse(self.program.buffers[n].dtype.name).unwrap_or(DType::F64);
            Array::from_fn(dtype, &[values.len()], |i| values[i].value as f64)
        };
        self.program.parameters().into_iter().zip(&self.exact).map(one).collect()
    }

    /// A program in integer mode.
    pub fn run(&self, func: &Func, limits: Limits) -> Result<Vec<Vec<u32>>, Error> {
        let mut args = self.integer_arguments()?;
        run_func_with(func, &Options::new(Mode::Integer).with_limits(limits), &mut args)?;
        Ok(args.iter().map(elements).collect())
    }

    /// Where results in the real types are not those of the text, if they are known.
    pub fn compare_exact(&self, level: &str, after: &[Array]) -> Result<bool, Failure> {
        let Ok(wanted) = &self.in_exact else { return Ok(false) };
        for (n, (array, values)) in after.iter().zip(wanted).enumerate() {
            let buffer = &self.program.buffers[self.program.parameters()[n]];
            let differs = (0..values.len()).find(|i| array.get(*i) != values[*i].value as f64);
            if let Some(i) = differs {
                let message = format!("{} at {i} is {}, should be {}", buffer.name, array.get(i), values[i].value);
                return Err(failure(format!("exact {level}"), message));
            }
        }
        Ok(true)
    }

    /// Where the naive program is not what the second evaluator reads in its text.
    pub fn compare_naive(&self, naive: &[Vec<u32>]) -> Result<bool, Failure> {
        match &self.in_integers {
            Ok(wanted) if wanted == naive => Ok(true),
            Ok(_) => Err(failure("second evaluator", "integer mode: the naive program computes something else")),
            Err(Unknown(why)) if why.contains("is read at") => Err(failure("second evaluator bounds", why)),
            Err(_) => Ok(false),
        }
    }

    /// The naive program in the real types.
    pub fn compare_naive_exactly(&self, func: &Func, limits: Limits) -> Result<bool, Failure> {
        if self.in_exact.is_err() {
            return Ok(false);
        }
        let mut args = self.exact_arguments().map_err(|e| broken("naive", &e))?;
        run_func_with(func, &Options::new(Mode::Real).with_limits(limits), &mut args)
            .map_err(|e| broken("naive", &e))?;
        self.compare_exact("naive", &args)
    }
}

/// What the PTX of the kernels computes from small integers: what the text says, bit by bit, or within the bounds of the
/// reference where numbers round. Says how it ended.
pub fn ptx(schedule: &Schedule, lowered: &Lowered, oracle: &Oracle, limits: Limits) -> Result<&'static str, Failure> {
    let kernels = warploom::codegen::compile(lowered, &schedule.target).map_err(|e| broken("codegen", &e))?;
    let before = oracle.exact_arguments().map_err(|e| broken("ptx", &e))?;
    let mut args = before.clone();
    let options = Options::new(Mode::Real).with_policy(Policy::Random(5)).with_limits(limits);
    match run_ptx(&kernels, &options, &mut args) {
        Ok(_) => {}
        Err(e) if e.code() == Code::PtxLimit => return Ok("the PTX: too much work"),
        Err(e) => return Err(broken("ptx", &e)),
    }
    if oracle.compare_exact("ptx", &args)? {
        return Ok("PTX = text exactly");
    }
    let wanted = outputs(&schedule.program, &before, Sample::All).map_err(|e| broken("reference", &e))?;
    for output in wanted {
        output.bound(&args[output.param]).map_err(|e| broken("ptx", &e))?;
    }
    Ok("PTX = text within its bounds")
}

/// The bits of an array of u32.
pub fn elements(array: &Array) -> Vec<u32> {
    array.bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}
