//! `warploom bench --ladder`: one matrix product from the plainest code up to the recommended steps, each rung with what it
//! adds to the one below. Products of f32 in layout NN have a rung for each idea; others one for each kind of code.

use super::data::{self, Place};
use super::input::{GemmSizes, Sizes};
#[cfg(feature = "runtime")]
use super::lines::Compiler;
use super::show;
use super::subject::{BenchArgs, Subject};
#[cfg(feature = "runtime")]
use super::{gpu, input, plot};
use crate::dtype::DType;
use crate::error::{Code, Result};
use crate::gemm::{self, Gemm, Kind, Wgmma};
use crate::loom::Schedule;
#[cfg(feature = "runtime")]
use crate::measure::{Bench, Row};
#[cfg(feature = "runtime")]
use crate::runtime::Device;
use crate::target::Target;
use crate::te::{GemmSpec, Layout};
use std::process::ExitCode;

/// A schedule of the ladder.
#[derive(Clone, Copy)]
pub struct Rung {
    /// In a word or two.
    pub name: &'static str,
    /// What it has that the rung below has not.
    pub adds: &'static str,
    steps: Steps,
}

/// Where the steps of a rung come from.
#[derive(Clone, Copy)]
enum Steps {
    /// A text of f32 in layout NN.
    Text(&'static str),
    /// A kind of code, for any types and layout.
    Kind(Kind),
    /// Parts of the recipe by wgmma.
    Parts(gemm::Rung),
    /// What is recommended for the size.
    Recommended,
}

macro_rules! rung {
    ($name:literal, $file:literal, $adds:literal) => {
        Rung { name: $name, adds: $adds, steps: Steps::Text(include_str!(concat!("../../examples/", $file, ".loom"))) }
    };
}

/// From the ground up, for products of f32 in layout NN.
const IDEAS: [Rung; 9] = [
    rung!("naive", "gpu_naive", "a thread a block, an element a thread"),
    rung!("coalesced", "ladder_coalesced", "blocks of 16 x 32 threads, coalesced loads"),
    rung!("shared", "ladder_shared", "tiles in shared memory, read by 32 threads each"),
    rung!("registers", "ladder_registers", "8 x 8 elements of C a thread, in registers"),
    rung!("vectors", "ladder_vectors", "16 bytes at a time to and from device memory"),
    rung!("warps", "ladder_warps", "warp tiles, A transposed, no bank conflicts"),
    rung!("pipelined", "ladder_pipelined", "the next tile is prefetched during the FMAs of this one"),
    rung!("cp.async", "gemm_cp_async", "asynchronous copies into shared memory, a ring of three stages"),
    RECOMMENDED,
];

const RECOMMENDED: Rung = Rung {
    name: "recommended",
    adds: "the steps that `gemm::recommend` chooses for the size",
    steps: Steps::Recommended,
};

const fn of(kind: Kind, name: &'static str, adds: &'static str) -> Rung {
    Rung { name, adds, steps: Steps::Kind(kind) }
}

const fn parts(number: usize) -> Rung {
    let rung = gemm::RUNGS[number];
    Rung { name: rung.name, adds: rung.adds, steps: Steps::Parts(rung) }
}

/// From the ground up, for products by wgmma on the chips that have it.
#[rustfmt::skip]
const BY_WGMMA: [Rung; 16] = [
    KINDS[0], KINDS[1], KINDS[2], KINDS[3],
    parts(0), parts(1), parts(2), parts(3), parts(4), parts(5), parts(6), parts(7), parts(8), parts(9), parts(10),
    RECOMMENDED,
];

/// From the ground up, for all other products.
const KINDS: [Rung; 5] = [
    of(Kind::Naive, "naive", "an element of C a thread, A and B from device memory"),
    of(Kind::Simt, "SIMT", "tiles in shared memory, a tile of C in the registers of a thread"),
    of(Kind::Wmma, "wmma", "tensor cores, through opaque wmma fragments"),
    of(
        Kind::Mma,
        "mma.sync",
        "fragments in registers, loaded by ldmatrix ahead of their use; asynchronous copies in flight",
    ),
    RECOMMENDED,
];

/// The rungs for products on a chip, the same for all of them.
fn rungs(products: &[Gemm], target: &Target) -> &'static [Rung] {
    let f32_alone = |s: &GemmSpec| [s.a, s.b, s.acc, s.out].iter().all(|d| *d == DType::F32);
    let plain = |gemm: &Gemm| f32_alone(gemm.spec()) && gemm.spec().layout == Layout::NN;
    let by_wgmma = |gemm: &Gemm| Wgmma::choose(gemm.spec(), target).is_some();
    match () {
        () if products.iter().all(plain) => &IDEAS,
        () if products.iter().all(by_wgmma) => &BY_WGMMA,
        () => &KINDS,
    }
}

/// The sizes of the ladder: one that fills a chip, and one that does not.
const SIZES: [[i64; 3]; 2] = [[4096, 4096, 4096], [1024, 512, 2048]];

/// The schedule of each rung for a product, with the rung's number. A rung without a recipe for the product is said and left
/// out; so is one that repeats the one below.
fn schedules(rungs: &[Rung], gemm: &Gemm, target: &Target) -> Result<Vec<(usize, Schedule)>> {
    let spec = gemm.spec();
    let mut out: Vec<(usize, Schedule)> = Vec::new();
    for (number, rung) in rungs.iter().enumerate() {
        let schedule = match rung.steps {
            Steps::Text(text) => Schedule::parse(text).and_then(|s| s.resized(&[spec.m, spec.n, spec.k])),
            Steps::Kind(kind) => kind.schedule(gemm, target),
            Steps::Parts(parts) => parts.schedule(gemm, target),
            Steps::Recommended => gemm::recommend(gemm, target),
        };
        match schedule {
            Ok(schedule) if out.last().is_some_and(|(_, below)| below.steps == schedule.steps) => {}
            Ok(schedule) => out.push((number, schedule)),
            Err(e) if e.code() == Code::GemmKind => show::note(format_args!("no rung {}: {}", rung.name, e.message())),
            Err(e) => return Err(e.within(format!("on the rung {}", rung.name))),
        }
    }
    Ok(out)
}

/// Measures every rung at each size.
pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    let place = data::place(args.device.as_deref())?;
    let mut sizes: Vec<GemmSizes> = args.gemm.clone();
    sizes.extend(args.sizes.iter().cloned().map(GemmSizes::from));
    if sizes.is_empty() {
        // The simulator reduces both to the same.
        let count = if matches!(place, Place::Cpu) { 1 } else { SIZES.len() };
        sizes = SIZES[..count].iter().map(|s| GemmSizes::from(Sizes(s.to_vec()))).collect();
    }
    let products = args.fixed_products(&sizes, "--ladder")?;
    // Which rungs there are is asked of recipes, which count with extents that a program can have.
    products.iter().try_for_each(|gemm| gemm.program().map(|_| ()))?;
    match place {
        Place::Cpu => {
            let target = args.target(None, &products)?;
            let (rungs, mut subjects) = (rungs(&products, &target), Vec::new());
            for gemm in &products {
                let named =
                    |(n, s): (usize, Schedule)| Subject::new(format!("{}: {}", rungs[n].name, rungs[n].adds), s);
                subjects.extend(schedules(rungs, gemm, &target)?.into_iter().map(named));
            }
            args.check_for_simulator().and_then(|()| super::cpu::bench(args, &subjects))
        }
        #[cfg(feature = "runtime")]
        Place::Gpu(device) => on_gpu(args, &products, &device),
    }
}

#[cfg(feature = "runtime")]
fn on_gpu(args: &BenchArgs, products: &[Gemm], device: &Device) -> Result<ExitCode> {
    let bench = Bench::new(device, args.budget(), None)?;
    let (target, mut pictures, mut whole) =
        (args.target(Some(data::chip(device.info())?), products)?, Vec::new(), true);
    let (rungs, compiler) = (rungs(products, &target), Compiler::with_lines(args.lines));
    for gemm in products {
        let (numbers, schedules): (Vec<usize>, Vec<Schedule>) = schedules(rungs, gemm, &target)?.into_iter().unzip();
        let named = |(n, s): (&usize, Schedule)| Subject::new(rungs[*n].name, s);
        let subjects: Vec<Subject> = numbers.iter().zip(schedules).map(named).collect();
        let mut climb = Climb::new(rungs, numbers);
        let mut each = |n: usize, row: &Row| {
            let climbed = climb.add(n, row);
            if args.json { show::json(&climbed.record(args.seed, device)?) } else { Ok(()) }
        };
        whole &= gpu::rows(&bench, &subjects, (args.seed, &compiler), &mut each)?.len() == subjects.len();
        let title = subjects.first().map_or(String::new(), |s| input::title(&s.schedule));
        if !args.json {
            show::line(format_args!("{title} on {}{}\n{}", device.info().name, climb.beside, climb.table));
        }
        pictures.push(plot::Bars { name: title, heights: climb.shares });
    }
    if let Some(path) = &args.plot {
        let names: Vec<&str> = rungs.iter().map(|r| r.name).collect();
        plot::ladder(path, &format!("share of cuBLAS' speed on {}", device.info().name), &names, &pictures)?;
        show::note(format_args!("wrote {}", path.display()));
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// What is printed of the rungs of one size.
#[cfg(feature = "runtime")]
struct Climb {
    rungs: &'static [Rung],
    /// The rung of each subject.
    numbers: Vec<usize>,
    table: comfy_table::Table,
    /// Each rung's share of cuBLAS' speed.
    shares: Vec<Option<f64>>,
    /// Of which other product of cuBLAS, in words.
    beside: String,
    /// The last subject, and its microseconds.
    below: Option<(usize, f64)>,
}

/// A rung with its row.
#[cfg(feature = "runtime")]
struct Climbed<'a> {
    number: usize,
    adds: &'static str,
    /// How many times as fast as the rung below.
    gain: Option<f64>,
    row: &'a Row,
}

#[cfg(feature = "runtime")]
impl Climbed<'_> {
    fn record(&self, seed: u64, device: &Device) -> Result<serde_json::Value> {
        let mut value = gpu::record(self.row, seed, device)?;
        if let Some(fields) = value.as_object_mut() {
            fields.insert("rung".into(), (self.number + 1).into());
            fields.insert("adds".into(), self.adds.into());
            fields.insert("gain".into(), self.gain.into());
        }
        Ok(value)
    }
}

#[cfg(feature = "runtime")]
impl Climb {
    fn new(rungs: &'static [Rung], numbers: Vec<usize>) -> Climb {
        let table = show::table(&["rung", "adds", "us", "GFLOP/s", "of cuBLAS", "noise", "gain"]);
        Climb { rungs, numbers, table, shares: vec![None; rungs.len()], beside: String::new(), below: None }
    }

    fn add<'r>(&mut self, subject: usize, row: &'r Row) -> Climbed<'r> {
        // A rung that failed leaves no gain for the next.
        let gain = self.below.filter(|b| b.0 + 1 == subject).map(|b| b.1 / row.us);
        self.below = Some((subject, row.us));
        let number = self.numbers[subject];
        self.shares[number] = row.ratio;
        if let Some(other) = row.beside.as_ref().filter(|_| row.ratio.is_some()) {
            self.beside = format!(", against {other} of cuBLAS");
        }
        let Rung { name, adds, .. } = &self.rungs[number];
        let or_dash = |value: Option<f64>, digits: usize| value.map_or("-".into(), |v| format!("{v:.digits$}"));
        self.table.add_row([
            name.to_string(),
            adds.to_string(),
            format!("{:.1}", row.us),
            format!("{:.0}", row.gflops),
            or_dash(row.ratio, 4),
            format!("{:.4}", row.noise),
            or_dash(gain, 2),
        ]);
        Climbed { number, adds, gain, row }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rung_of_f32_compiles_at_every_size_and_adds_something() {
        for [m, n, k] in SIZES.into_iter().chain([[64; 3]]) {
            let climbed =
                schedules(rungs(&[Gemm::new(m, n, k)], &Target::sm_90()), &Gemm::new(m, n, k), &Target::sm_90())
                    .unwrap();
            assert_eq!(climbed.len(), IDEAS.len());
            assert!(climbed.windows(2).all(|pair| pair[0].1.steps != pair[1].1.steps));
            climbed.iter().for_each(|(_, s)| assert!(!crate::compile(s).unwrap().ptx().is_empty()));
        }
    }

    #[test]
    fn a_chip_with_wgmma_has_a_rung_for_each_of_its_parts() {
        let gemm = Gemm::new(4096, 4096, 4096).of(DType::F16);
        let of = |target: Target| schedules(rungs(&[gemm], &target), &gemm, &target).unwrap();
        let (without, with) = (of(Target::sm_90()), of(Target::sm_90a()));
        assert!(with.len() >= without.len() + gemm::RUNGS.len() - 1, "{} and {}", without.len(), with.len());
        assert!(with.windows(2).all(|pair| pair[0].1.steps != pair[1].1.steps));
    }

    #[test]
    fn the_ladders_of_other_products_begin_with_one_thread_an_element() {
        for (dtype, layout) in [(DType::F16, Layout::NT), (DType::S8, Layout::NN), (DType::F32, Layout::TN)] {
            let gemm = Gemm::new(256, 128, 512).of(dtype).layout(layout);
            let climbed = schedules(rungs(&[gemm], &Target::sm_80()), &gemm, &Target::sm_80()).unwrap();
            assert!(climbed.len() > 1 && climbed[0].0 == 0, "{dtype}");
            climbed.iter().for_each(|(_, s)| assert!(!crate::compile(s).unwrap().ptx().is_empty()));
        }
    }
}
