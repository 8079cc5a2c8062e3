//! `warploom bench --ladder`: one matrix product from one thread a block up to the recommended steps, each rung with what
//! it adds to the one below.

use super::bench::{self, BenchArgs};
use super::data::{self, Place};
#[cfg(feature = "cuda")]
use super::{gpu, input, plot, show};
use crate::error::Result;
use crate::gemm::{self, Gemm};
use crate::loom::Schedule;
#[cfg(feature = "cuda")]
use crate::measure::Row;
#[cfg(feature = "cuda")]
use crate::runtime::Device;
use crate::target::Target;
use std::process::ExitCode;

/// A schedule of the ladder.
pub struct Rung {
    /// In a word or two.
    pub name: &'static str,
    /// What it has that the rung below has not.
    pub adds: &'static str,
    /// Its text; without one, the recommended steps.
    text: Option<&'static str>,
}

macro_rules! rung {
    ($name:literal, $file:literal, $adds:literal) => {
        Rung { name: $name, adds: $adds, text: Some(include_str!(concat!("../../examples/", $file, ".loom"))) }
    };
}

/// From the ground up.
pub const RUNGS: [Rung; 9] = [
    rung!("naive", "gpu_naive", "a thread a block, an element a thread"),
    rung!("coalesced", "ladder_coalesced", "blocks of 16 x 32 threads that read neighbours"),
    rung!("shared", "ladder_shared", "tiles in shared memory, read by 32 threads each"),
    rung!("registers", "ladder_registers", "8 x 8 elements of C a thread, in registers"),
    rung!("vectors", "ladder_vectors", "16 bytes at a time to and from device memory"),
    rung!("warps", "ladder_warps", "warp tiles, A turned, no bank conflicts"),
    rung!("pipelined", "ladder_pipelined", "the next tile on its way while one is multiplied"),
    rung!("cp.async", "gemm_cp_async", "copies straight into shared memory, a ring of three tiles"),
    Rung { name: "recommended", adds: "the steps that `gemm::recommend` chooses for the size", text: None },
];

/// The sizes of the ladder: one that fills a chip, and one that does not.
const SIZES: [[i64; 3]; 2] = [[4096, 4096, 4096], [1024, 512, 2048]];

/// The schedule of each rung for a product of f32.
pub fn schedules(size: &[i64]) -> Result<Vec<Schedule>> {
    let one = |rung: &Rung| match (rung.text, size) {
        (Some(text), _) => Schedule::parse(text)?.resized(size),
        (None, [m, n, k]) => gemm::recommend(&Gemm::new(*m, *n, *k), &Target::sm_90()),
        (None, [n, ..]) => gemm::recommend(&Gemm::new(*n, *n, *n), &Target::sm_90()),
        (None, []) => Ok(Schedule::parse(RUNGS[0].text.unwrap_or_default())?),
    };
    RUNGS.iter().map(|rung| one(rung).map_err(|e| e.within(format!("on the rung {}", rung.name)))).collect()
}

/// Measures every rung at each size.
pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    let asked: Vec<Vec<i64>> = args.sizes.iter().map(|s| s.0.clone()).collect();
    let place = data::place(args.device.as_deref())?;
    let sizes = match (asked.is_empty(), &place) {
        (false, _) => asked,
        // It reduces both to the same.
        (true, Place::Cpu) => vec![SIZES[0].to_vec()],
        #[cfg(feature = "cuda")]
        (true, Place::Gpu(_)) => SIZES.map(|s| s.to_vec()).into(),
    };
    match place {
        Place::Cpu => {
            let mut subjects = Vec::new();
            for size in &sizes {
                let names = RUNGS.iter().map(|r| format!("{}: {}", r.name, r.adds));
                subjects.extend(names.zip(schedules(size)?));
            }
            bench::on_cpu(args, &subjects)
        }
        #[cfg(feature = "cuda")]
        Place::Gpu(device) => on_gpu(args, &sizes, &device),
    }
}

#[cfg(feature = "cuda")]
fn on_gpu(args: &BenchArgs, sizes: &[Vec<i64>], device: &Device) -> Result<ExitCode> {
    let (mut pictures, mut whole) = (Vec::new(), true);
    for size in sizes {
        let names = RUNGS.iter().map(|r| r.name.to_string());
        let subjects: Vec<_> = names.zip(schedules(size)?).collect();
        let mut climb = Climb::new(args.json);
        whole &= gpu::rows(&subjects, args.seed, device, &mut |n, row| climb.add(n, row))?.len() == subjects.len();
        let title = subjects.first().map_or(String::new(), |(_, s)| input::title(s));
        if !args.json {
            show::line(format_args!("{title} on {}\n{}", device.info().name, climb.table));
        }
        pictures.push(plot::Bars { name: title, heights: climb.shares });
    }
    if let Some(path) = &args.plot {
        let names: Vec<&str> = RUNGS.iter().map(|r| r.name).collect();
        plot::ladder(path, &format!("share of cuBLAS' speed on {}", device.info().name), &names, &pictures)?;
        show::note(format_args!("wrote {}", path.display()));
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// What is printed of the rungs of one size.
#[cfg(feature = "cuda")]
struct Climb {
    json: bool,
    table: comfy_table::Table,
    /// Each rung's share of cuBLAS' speed.
    shares: Vec<Option<f64>>,
    /// The last rung, and its microseconds.
    below: Option<(usize, f64)>,
}

/// A rung with its row.
#[cfg(feature = "cuda")]
#[derive(serde::Serialize)]
struct Climbed<'a> {
    rung: usize,
    adds: &'a str,
    /// How many times as fast as the rung below.
    gain: Option<f64>,
    #[serde(flatten)]
    row: &'a Row,
}

#[cfg(feature = "cuda")]
impl Climb {
    fn new(json: bool) -> Climb {
        let table = show::table(&["rung", "adds", "us", "GFLOP/s", "of cuBLAS", "noise", "gain"]);
        Climb { json, table, shares: vec![None; RUNGS.len()], below: None }
    }

    fn add(&mut self, number: usize, row: &Row) -> Result<()> {
        // A rung that failed leaves no gain for the next.
        let gain = self.below.filter(|b| b.0 + 1 == number).map(|b| b.1 / row.us);
        self.below = Some((number, row.us));
        self.shares[number] = row.ratio;
        let Rung { name, adds, .. } = &RUNGS[number];
        if self.json {
            return gpu::json(&Climbed { rung: number + 1, adds, gain, row });
        }
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
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rung_compiles_at_every_size_and_adds_something() {
        for size in SIZES.iter().map(|s| &s[..]).chain([&[64][..]]) {
            let rungs = schedules(size).unwrap();
            assert_eq!(rungs.len(), RUNGS.len());
            assert!(rungs.windows(2).all(|pair| pair[0].steps != pair[1].steps));
            rungs.iter().for_each(|s| assert!(!crate::compile(s).unwrap().ptx().is_empty()));
        }
    }
}
