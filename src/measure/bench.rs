//! A measuring session on one device, and the measuring of one program in it.
//!
//! Ratios, not absolute times: clocks drift with heat and power, so ours and the library's are taken in ABBA blocks
//! (ours, library, library, ours), in one process, on the same buffers with the same random data (zeros run faster).
//! Each block is queued as a whole. The ratio of a row is the median of the paired ratios; its noise is what ours
//! shows against ours in the same blocks. Short launches are replayed as a graph over as many sets of buffers.

mod runoff;
mod trial;

use super::check;
use super::cold::Cold;
use super::floor;
use super::library::cublas::Cublas;
use super::library::cublaslt::CublasLt;
use super::library::nvml::Nvml;
use super::peer::{Choice, Peer};
use super::row::{self, Alone, Best, Row};
use super::timer::{Launch, Subject, Timer};
use crate::array::Array;
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::kernel::{Access, Arg, Kernels};
use crate::runtime::{Device, DeviceBuffer, Program, median};
use crate::target;
use crate::te::GemmSpec;
pub use runoff::InTurn;
use std::cell::Cell;
pub use trial::Timed;

/// Launches of each of the library's ways that are compared.
const QUICK: usize = 5;
/// Of launches that take longer than so many microseconds fewer say as much.
const SLOW_US: f64 = 2000.0;
const QUICK_OF_SLOW: usize = 2;

/// How much time a row may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeBudget {
    /// Seconds of preheating before the first row.
    pub preheat_s: f64,
    /// Seconds of preheating before each later row.
    pub rewarm_s: f64,
    /// Seconds of samples a row. Slow programs get fewer pairs, but at least six.
    pub row_s: f64,
    /// Pairs to take at most.
    pub most_pairs: usize,
    /// Launches in a graph for programs below [`TimeBudget::graph_below_us`].
    pub graph_launches: usize,
    /// Below this many microseconds a launch, graphs are replayed.
    pub graph_below_us: f64,
}

impl Default for TimeBudget {
    fn default() -> TimeBudget {
        TimeBudget {
            preheat_s: 2.5,
            rewarm_s: 0.2,
            row_s: 1.5,
            most_pairs: 60,
            graph_launches: 20,
            graph_below_us: 50.0,
        }
    }
}

impl TimeBudget {
    /// So many seconds of samples a row, and no more than them of preheating between rows.
    pub fn of_row(seconds: f64) -> TimeBudget {
        let usual = TimeBudget::default();
        TimeBudget { rewarm_s: usual.rewarm_s.min(seconds), row_s: seconds, ..usual }
    }
}

/// What is measured in a row.
#[derive(Clone)]
pub struct Job<'a> {
    /// Name, shape, types and layout as the row shows them.
    pub labels: [String; 4],
    /// The compiled program.
    pub kernels: &'a Kernels,
    /// One array an argument (those that are only written: any content).
    pub args: Vec<Array>,
    /// Operations of data that the program asks for (a multiply-add is two).
    pub operations: f64,
    /// Types of the multiplied inputs and of the sums, for the floor.
    pub arithmetic: (DType, DType),
    /// The library's counterpart, taking the first three arguments as A, B and C.
    pub gemm: Option<GemmSpec>,
    /// Other arguments for the counterpart, if it is another product.
    pub beside: Option<Beside<'a>>,
    /// Looks at all arguments after a run and returns the largest error over its bound.
    pub judge: &'a dyn Fn(&[Array]) -> Result<f64>,
}

/// What the library computes where it is another product than ours: one of types or of a layout that it has.
#[derive(Clone)]
pub struct Beside<'a> {
    /// What it is, in a few words.
    pub words: String,
    /// A, B and C.
    pub args: Vec<Array>,
    /// As [`Job::judge`].
    pub judge: &'a dyn Fn(&[Array]) -> Result<f64>,
}

/// The buffers of a launch of either side.
struct Set {
    ours: Vec<DeviceBuffer>,
    /// None where the library takes ours.
    library: Vec<DeviceBuffer>,
}

impl Set {
    fn library(&self) -> &[DeviceBuffer] {
        if self.library.is_empty() { &self.ours } else { &self.library }
    }

    fn all(&self) -> impl Iterator<Item = &DeviceBuffer> {
        self.ours.iter().chain(&self.library)
    }

    fn duplicate(&self) -> Result<Set> {
        let copy = |buffers: &[DeviceBuffer]| buffers.iter().map(DeviceBuffer::duplicate).collect::<Result<Vec<_>>>();
        Ok(Set { ours: copy(&self.ours)?, library: copy(&self.library)? })
    }
}

/// A device with its libraries, ready to measure.
pub struct Bench {
    device: Device,
    cublas: std::result::Result<Cublas, Error>,
    lt: Option<CublasLt>,
    nvml: Option<Nvml>,
    cold: Cold,
    plan: TimeBudget,
    /// Alone, and in a graph.
    launch_us: [f64; 2],
    bytes_per_second: Option<f64>,
    warm: Cell<bool>,
}

impl Bench {
    /// Looks for cuBLAS (`cublas` names its file or folder; `None` searches) and NVML, and measures what an empty
    /// launch takes and how fast memory is read.
    pub fn new(device: &Device, plan: TimeBudget, cublas: Option<&std::path::Path>) -> Result<Bench> {
        let cublas = Cublas::open(device, cublas);
        let cold = Cold::with(device, cublas.as_ref().ok())?;
        let launch_us = [floor::launch_us(device, 1)?, floor::launch_us(device, plan.graph_launches)?];
        let bytes_per_second = cold.bandwidth(device, cublas.as_ref().ok())?;
        let lt = cublas.as_ref().ok().and_then(|c| CublasLt::beside(device, c.file()).ok());
        let (device, nvml) = (device.clone(), Nvml::open(device).ok());
        Ok(Bench { device, cublas, lt, nvml, cold, plan, launch_us, bytes_per_second, warm: Cell::new(false) })
    }

    /// The device that is measured.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// cuBLAS, or why there is none.
    pub fn cublas(&self) -> Result<&Cublas> {
        self.cublas.as_ref().map_err(Clone::clone)
    }

    /// Microseconds of an empty launch, alone and as one of a graph.
    pub fn launch_us(&self) -> [f64; 2] {
        self.launch_us
    }

    /// Bytes per second of reading memory, where it could be measured.
    pub fn bytes_per_second(&self) -> Option<f64> {
        self.bytes_per_second
    }

    /// Checks a program, then measures it beside the library.
    pub fn row(&self, job: &Job<'_>) -> Result<Row> {
        let program = self.device.load(job.kernels)?;
        let ours = check::upload(&self.device, program.args(), &job.args)?;
        let (error, after) = check::check_uploaded(&program, &ours, &job.args, job.judge)?;
        let library = job.beside.iter().flat_map(|b| &b.args).map(|a| self.device.upload(a));
        let library = library.collect::<Result<Vec<_>>>()?;
        let first = Set { ours, library };
        let peer = self.peer(job, &first, after);
        let sides = Sides { program: &program, peer: peer.as_ref().ok() };
        let first = vec![first];
        let roughly = self.estimate(&sides, &first)?;
        let sets = self.sets(first, roughly)?;
        let short = self.is_short(roughly.0, roughly.1);
        let measured = self.measure(&sides, &sets, roughly, short)?;
        let alone = short.then(|| self.measure(&sides, &sets[..1], roughly, false)).transpose()?;
        self.warm.set(true);
        let chosen = sides.peer.map(|peer| peer.describe(&self.device, sets[0].library()));
        let quick = if roughly.1 > SLOW_US { QUICK_OF_SLOW } else { QUICK };
        let best = sides.peer.map(|peer| self.best(peer, &sets, quick)).transpose()?.flatten();
        let [program_name, shape, dtype, layout] = job.labels.clone();
        let Measured { summary, launches, clock_mhz, watts } = measured;
        Ok(Row {
            program: program_name,
            shape,
            dtype,
            layout,
            device: self.device.info().name.clone(),
            us: summary.us,
            gflops: job.operations / summary.us / 1e3,
            library_us: summary.library_us,
            library: chosen,
            library_best: best,
            beside: job.beside.as_ref().map(|b| b.words.clone()),
            library_missing: peer.err().map(|e| e.message().to_string()),
            ratio: summary.ratio,
            alone: alone.map(|m| Alone { us: m.summary.us, library_us: m.summary.library_us, ratio: m.summary.ratio }),
            noise: summary.noise,
            floor_ratio: self.floor(job, &program, clock_mhz, launches) / summary.us,
            pairs: summary.pairs,
            launches,
            error,
            clock_mhz,
            watts,
            resources: program.resources().into_iter().cloned().collect(),
            fixed: None,
        })
    }

    /// The library's counterpart, after its result was checked as ours was; or why there is none.
    /// `after` are our arguments after a launch of ours.
    fn peer(&self, job: &Job<'_>, set: &Set, mut after: Vec<Array>) -> Result<Peer<'_>> {
        let none = || Error::input(Code::MeasureNoPeer, "the library has no such program");
        let peer = Peer::of(self.cublas()?, self.lt.as_ref(), job.gemm.ok_or_else(none)?);
        let [_, _, .., c] = set.library() else { return Err(none()) };
        c.poison()?;
        peer.launch(set.library())?;
        match after.last_mut().filter(|_| job.beside.is_none()) {
            Some(result) => *result = c.download()?,
            None => after = set.library().iter().map(DeviceBuffer::download).collect::<Result<Vec<_>>>()?,
        }
        let judge = job.beside.as_ref().map_or(job.judge, |b| b.judge);
        let wrong = |e: Error| Error::input(e.code(), format!("the library's {}", e.message()));
        check::passed("cuBLAS", judge(&after).map_err(wrong)?)?;
        Ok(peer)
    }

    /// The fastest of the library's other ways, if it is faster than its own choice in the same few launches.
    fn best(&self, peer: &Peer<'_>, sets: &[Set], quick: usize) -> Result<Option<Best>> {
        let set = sets[0].library();
        let own = |_: usize| peer.launch(set);
        let mut timer = self.timer(2 * quick)?;
        let mut best: Option<(f64, Choice)> = None;
        for choice in peer.others() {
            let other = |_: usize| peer.launch_with(choice, set);
            if other(0).is_err() {
                continue;
            }
            let (a, b) = (Subject::single(&own, 1), Subject::single(&other, 1));
            let order: Vec<&Subject<'_>> = [&a, &b].into_iter().cycle().take(2 * quick).collect();
            let times = timer.block(&order)?;
            let every = |from: usize| median(&times.iter().skip(from).step_by(2).copied().collect::<Vec<_>>());
            let ratio = every(0) / every(1);
            if ratio > best.map_or(1.0, |b| b.0) {
                best = Some((ratio, choice));
            }
        }
        Ok(best.map(|(ratio, choice)| Best { ratio, library: peer.describe_with(choice, &self.device, set) }))
    }

    /// As many sets of buffers as samples need: one for each launch of a graph, or enough to rotate beyond the cache.
    fn sets(&self, mut sets: Vec<Set>, (ours_us, library_us): (f64, f64)) -> Result<Vec<Set>> {
        let bytes = sets.iter().flat_map(Set::all).map(|b| b.bytes() as u64).sum::<u64>().max(1);
        let mut wanted = if self.is_short(ours_us, library_us) { self.plan.graph_launches } else { 1 };
        if matches!(self.cold, Cold::Rotate) {
            let rotate = (2 * self.device.info().l2_bytes).div_ceil(bytes) + 1;
            wanted = wanted.max(usize::try_from(rotate).unwrap_or(1).min(256));
        }
        let room = self.device.free_memory()? / 2 / bytes;
        let wanted = wanted.min(usize::try_from(room).unwrap_or(1)).max(1);
        while sets.len() < wanted {
            sets.push(sets[0].duplicate()?);
        }
        Ok(sets)
    }

    /// Microseconds of a launch of ours and of the library, roughly; infinite without a library.
    fn estimate(&self, sides: &Sides<'_>, sets: &[Set]) -> Result<(f64, f64)> {
        let (ours, theirs) = (|set: usize| sides.ours(&sets[set]), |set: usize| sides.library(&sets[set]));
        let mut timer = self.timer(4)?;
        let (a, b) = (Subject::single(&ours, 1), Subject::single(&theirs, 1));
        timer.block(&[&a, &b])?;
        let times = timer.block(&[&a, &b, &a, &b])?;
        let library = if sides.peer.is_some() { times[1].min(times[3]) } else { f64::INFINITY };
        Ok((times[0].min(times[2]), library))
    }

    fn timer(&self, longest: usize) -> Result<Timer<'_>> {
        Timer::new(&self.device, &self.cold, self.cublas.as_ref().ok(), self.nvml.as_ref(), longest)
    }

    fn is_short(&self, ours_us: f64, library_us: f64) -> bool {
        ours_us.min(library_us) < self.plan.graph_below_us
    }

    fn measure(
        &self,
        sides: &Sides<'_>,
        sets: &[Set],
        (ours_us, library_us): (f64, f64),
        short: bool,
    ) -> Result<Measured> {
        let (ours, theirs) = (|set: usize| sides.ours(&sets[set]), |set: usize| sides.library(&sets[set]));
        let a = self.subject(&ours, sets.len(), short, ours_us)?;
        let b = self.subject(&theirs, sets.len(), short && sides.peer.is_some(), library_us)?;
        let order = if sides.peer.is_some() { vec![&a, &b, &b, &a] } else { vec![&a, &a] };
        let mut timer = self.timer(order.len())?;
        let (first, second) = self.samples(&mut timer, &order)?;
        let reading = |f: fn(&super::Reading) -> f64| {
            let values: Vec<f64> = timer.readings.iter().map(f).filter(|v| v.is_finite()).collect();
            (!values.is_empty()).then(|| median(&values))
        };
        let (clock_mhz, watts) = (reading(|r| r.clock_mhz), reading(|r| r.watts));
        Ok(Measured { summary: row::summarise(&first, &second), launches: a.launches, clock_mhz, watts })
    }

    /// Samples of blocks: of `a b b a` those of a and of b, of `a a` those of a alone.
    fn samples(&self, timer: &mut Timer<'_>, order: &[&Subject<'_>]) -> Result<(Vec<f64>, Vec<f64>)> {
        self.samples_for(self.plan.row_s, timer, order)
    }

    /// As [`Bench::samples`], for so many seconds.
    fn samples_for(&self, seconds: f64, timer: &mut Timer<'_>, order: &[&Subject<'_>]) -> Result<(Vec<f64>, Vec<f64>)> {
        timer.preheat(order, if self.warm.get() { self.plan.rewarm_s } else { self.plan.preheat_s })?;
        let begin = std::time::Instant::now();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        // Three blocks are six pairs; a sample that slow is steady.
        while first.len() < 6 || (first.len() < self.plan.most_pairs && begin.elapsed().as_secs_f64() < seconds) {
            let times = timer.block(order)?;
            match times[..] {
                [a1, b1, b2, a2] => {
                    first.extend([a1, a2]);
                    second.extend([b1, b2]);
                }
                _ => first.extend(times),
            }
        }
        Ok((first, second))
    }

    /// A graph where launches are short; alone where they are not, or where the subject cannot be recorded.
    fn subject<'a>(&self, launch: &'a Launch<'a>, sets: usize, short: bool, us: f64) -> Result<Subject<'a>> {
        // A launch of a millisecond hides its own gaps, also beside a short one.
        if short && us < 1000.0 {
            let launches = self.plan.graph_launches.max(1);
            return Subject::replayed(&self.device, launch, sets, launches);
        }
        Ok(Subject::single(launch, sets))
    }

    fn floor(&self, job: &Job<'_>, program: &Program, clock_mhz: Option<f64>, launches: usize) -> f64 {
        let info = self.device.info();
        let hertz = clock_mhz.map_or(f64::from(info.clock_khz) * 1e3, |mhz| mhz * 1e6);
        let (input, sums) = job.arithmetic;
        let peak = target::operations_per_clock(info.capability, input, sums)
            .map(|rate| rate * f64::from(info.multiprocessors) * hertz);
        // The arrays of this launch: those of the program have the largest values of its dynamic sizes.
        let moved = |(arg, array): (&Arg, &Array)| {
            array.bytes.len() as u64 * if arg.access == Access::ReadWrite { 2 } else { 1 }
        };
        let bytes: u64 = program.args().iter().zip(&job.args).map(moved).sum();
        let launch_us = self.launch_us[usize::from(launches > 1)];
        floor::floor_us(launch_us, job.operations, peak, bytes as f64, self.bytes_per_second)
    }
}

/// What is compared: a program, and the library's counterpart if there is one.
struct Sides<'a> {
    program: &'a Program,
    peer: Option<&'a Peer<'a>>,
}

impl Sides<'_> {
    fn ours(&self, set: &Set) -> Result<()> {
        self.program.launch(&set.ours.iter().collect::<Vec<_>>())
    }

    fn library(&self, set: &Set) -> Result<()> {
        self.peer.map_or(Ok(()), |peer| peer.launch(set.library()))
    }
}

struct Measured {
    summary: row::Summary,
    launches: usize,
    clock_mhz: Option<f64>,
    watts: Option<f64>,
}
