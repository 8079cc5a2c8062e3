//! What `warploom bench` is asked for, and what it measures: the words that its ways of measuring share.

use super::input::{self, GemmSizes};
use super::values::Values;
use crate::error::{Code, Error, Result};
use crate::gemm::{self, Gemm, Kind, MOST_RANGES};
use crate::ir::Func;
use crate::loom::Schedule;
use crate::target::{Features, Target};
use crate::te::GemmSpec;
use clap::Args;
use std::path::PathBuf;

/// What to measure.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("record").args(["suite", "random"])))]
pub struct BenchArgs {
    /// Schedules to measure.
    #[arg(required_unless_present_any = ["ladder", "examples", "gemm", "suite", "random", "launch", "start"])]
    pub files: Vec<PathBuf>,
    /// Measure one GEMM from one thread a block up to the recommended steps: f32 at 4096 and 1024x512x2048, or what
    /// --gemm, --dtype and --layout say.
    #[arg(long, conflicts_with_all = ["files", "examples"])]
    pub ladder: bool,
    /// Measure every schedule of the folder `examples`.
    #[arg(long)]
    pub examples: bool,
    /// Measure matrix products of these sizes by each kind of code: N, MxNxK or BxMxNxK (a batch), separated by commas. Of a product with a
    /// dynamic M, such as 1..=8192x4096x4096, the recommended steps.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = input::gemm_sizes, conflicts_with_all = ["files", "examples"])]
    pub gemm: Vec<GemmSizes>,
    /// For a dynamic M of --gemm, measure so many kernels at most, each in the part of the range that `warploom build --ranges` gives it.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "gemm", conflicts_with_all = ["kinds", "candidates", "invariant", "records", "ladder", "choice"], value_parser = clap::value_parser!(u8).range(1..=MOST_RANGES as i64))]
    pub ranges: u8,
    /// Measure kernels of dynamic size at these values, `--set M=64,256,1000`: a row for each value and each schedule whose range has it.
    /// Without it, at the largest value.
    #[arg(long, value_name = "SIZE=VALUES", conflicts_with_all = ["ladder", "choice", "suite", "random", "launch", "plot", "sizes"])]
    pub set: Vec<Values>,
    /// Measure kernels of dynamic size also in turn with the schedule recommended for each value alone: `of fixed` is the speed of the
    /// former over that of the latter.
    #[arg(long, conflicts_with_all = ["ladder", "choice", "suite", "random", "launch", "plot", "sizes"])]
    pub fixed: bool,
    /// Types of --gemm and --ladder, separated by commas: of the inputs (f16 means f16>f32>f16), or inputs>accumulators>result,
    /// or A*B>accumulators>result.
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "f32", conflicts_with_all = ["files", "examples", "suite", "random", "launch"])]
    pub dtype: Vec<String>,
    /// Layout of A and B of --gemm and --ladder: N as it is, T transposed.
    #[arg(long, value_name = "NN|NT|TN|TT", default_value = "NN", conflicts_with_all = ["files", "examples", "suite", "random", "launch"])]
    pub layout: String,
    /// The recipes for --gemm: naive, simt, wmma, mma, wgmma; all but the first that the chip has where none is named.
    /// A kind without a recipe for a GEMM is reported and skipped.
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = input::kind, conflicts_with_all = ["files", "examples", "ladder", "suite", "random", "launch"])]
    kinds: Vec<Kind>,
    /// Compile for this chip instead of the files' or the GPU's own. Without a GPU, a GEMM is compiled for sm_90a where that has
    /// wgmma for its types, else for sm_90.
    #[arg(long, value_name = "sm_XX")]
    target: Option<String>,
    /// For each GEMM of --gemm, measure the tiles from which the recommended ones are chosen, the recommended first.
    #[arg(long, requires = "gemm", conflicts_with_all = ["kinds", "files", "examples", "ladder", "suite", "random", "launch"])]
    pub candidates: bool,
    /// For each GEMM of --gemm, measure the recommended steps and the recommended ones whose bits of a row do not depend on M (batch
    /// invariance).
    #[arg(long, requires = "gemm", conflicts_with_all = ["candidates", "kinds", "choice", "files", "examples", "ladder", "suite", "random", "launch"])]
    pub invariant: bool,
    /// For each GEMM of --gemm, measure the recommended steps and the recommended ones without workspace.
    #[arg(long, requires = "gemm", conflicts_with_all = ["candidates", "invariant", "kinds", "choice", "files", "examples", "ladder", "suite", "random", "launch"])]
    pub no_workspace: bool,
    /// For each GEMM of --gemm, also measure the best schedule of this record of `warploom tune`, where the record is of the GEMM and the
    /// chip; for a line `recommend` of a file, measure it instead of the recommended steps. May be given several times.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["candidates", "invariant", "choice", "examples", "ladder", "suite", "random", "launch"])]
    pub records: Vec<PathBuf>,
    /// For each GEMM of --gemm, measure these candidates and print the share of the fastest one's speed that the first 1, 2, 4, 8 and 16 of
    /// them reach, in the order of the cost model.
    #[arg(long, requires = "gemm", conflicts_with_all = ["candidates", "kinds", "files", "examples", "ladder", "suite", "launch", "plot", "lines", "sizes"])]
    pub choice: bool,
    /// Measure the GEMMs of a list (`benches/tensor.suite` describes the format) and print a table of record.
    #[arg(long, value_name = "LIST", conflicts_with_all = ["files", "examples", "ladder", "gemm", "plot", "json"])]
    pub suite: Option<PathBuf>,
    /// Measure so many products of random sizes and layouts, drawn from --seed, and print what they reach of the library's speed: the
    /// geometric mean, the 5th percentile and the share below 0.95, for each type and for aligned rows; then each row, the slowest first.
    /// With --out, each row is kept as soon as it is measured, and the same command continues a run that was cut off.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), conflicts_with_all = ["files", "examples", "ladder", "gemm", "suite", "plot", "json", "sizes", "lines"])]
    pub random: Option<u32>,
    /// Types of --random, separated by commas; they take turns.
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "f16,bf16,f32,s8", requires = "random")]
    pub types: Vec<String>,
    /// Measure pairs of products around the draws of --random instead: they differ by one in an extent, and their recommended tiles are different
    /// ones.
    #[arg(long, requires = "random")]
    pub edges: bool,
    /// Measure what a launch costs the host: by warploom, by the driver's call alone, and in a CUDA graph.
    #[arg(long, conflicts_with_all = ["files", "examples", "ladder", "gemm", "suite", "plot"])]
    pub launch: bool,
    /// Measure how long a process takes until the first launch of a GEMM of --gemm is done (4096x4096x4096 if none is named): with an empty cache
    /// of kernels, and with a filled one (the median of three starts).
    #[arg(long, conflicts_with_all = ["files", "examples", "ladder", "suite", "random", "launch", "choice", "candidates", "kinds", "invariant", "records", "target", "sizes", "set", "fixed", "seconds", "plot", "lines", "no_workspace", "ranges"])]
    pub start: bool,
    /// Write the record of --suite or --random as NAME.json and NAME.md; of --random also the rows so far as NAME.jsonl, and plots as
    /// NAME.svg.
    #[arg(long, value_name = "NAME", requires = "record", conflicts_with_all = ["files", "examples", "ladder", "gemm", "launch"])]
    pub out: Option<PathBuf>,
    /// Measure only the lines of the suite that hold each of these words.
    #[arg(long, value_name = "WORDS", requires = "suite", conflicts_with_all = ["files", "examples", "ladder", "gemm", "launch"])]
    pub only: Option<String>,
    /// Seconds of samples for a row: 1.5 without it, 0.3 for each candidate of --choice.
    #[arg(long, value_name = "S", value_parser = seconds, conflicts_with = "launch")]
    pub seconds: Option<f64>,
    /// Measure each at these sizes instead of its own: N, MxNxK or BxMxNxK, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = input::sizes, conflicts_with_all = ["gemm", "ladder", "suite", "random", "launch"])]
    pub sizes: Vec<input::Sizes>,
    /// Draw GFLOP/s against size; without sizes over d2l's, 256 to 16384. Of the ladder, each rung's share of cuBLAS'
    /// speed.
    #[arg(long, value_name = "OUT.svg")]
    pub plot: Option<PathBuf>,
    /// One JSON object for each row instead of a table.
    #[arg(long)]
    pub json: bool,
    /// `sim` or `cpu` (the simulator), or a GPU's number. Without it: the first GPU, or the simulator if there is none.
    #[arg(long)]
    pub device: Option<String>,
    /// On a GPU, add `.loc` lines to the kernels and write each lowered text as NAME.lowered into the current folder: Nsight Compute
    /// then shows the loops beside the instructions.
    #[arg(long, conflicts_with_all = ["suite", "random", "launch"])]
    pub lines: bool,
    /// Seed of the random input, and of the products of --random.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// That there is a GPU for what is asked of one alone.
pub fn check_lines(lines: bool) -> Result<()> {
    if !lines {
        return Ok(());
    }
    let message = "--lines adds lines to the kernels of a GPU, and this run is on the simulator";
    Err(Error::input(Code::CliLines, message).help("--device 0").help("warploom dump FILE --out DIR --lines"))
}

/// Parses a time of sampling for clap: not zero, not endless.
fn seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|s| *s > 0.0 && *s <= 3600.0);
    seconds.ok_or_else(|| format!("`{text}` is no number of seconds above 0 and up to 3600"))
}

impl BenchArgs {
    /// That nothing is asked of the simulator that only a GPU does.
    pub fn check_for_simulator(&self) -> Result<()> {
        check_lines(self.lines)?;
        match self.seconds {
            Some(_) => {
                Err(Error::input(Code::CliLaunch, "--seconds samples launches, and this run is on the simulator")
                    .help("--device 0"))
            }
            None => Ok(()),
        }
    }

    /// How much time a row may take.
    #[cfg(feature = "runtime")]
    pub fn budget(&self) -> crate::measure::TimeBudget {
        self.seconds.map(crate::measure::TimeBudget::of_row).unwrap_or_default()
    }

    /// The chip that was named, if one was.
    pub fn named_target(&self) -> Result<Option<Target>> {
        self.target.as_deref().map(Target::parse).transpose()
    }

    /// The chip to schedule products for: the one that was named, else the device's own; without one that of the products' types.
    pub fn target(&self, own: Option<Target>, products: &[Gemm]) -> Result<Target> {
        let of_types = || products.iter().map(Gemm::default_target).find(|t| t.accelerated).unwrap_or(Target::sm_90());
        Ok(self.named_target()?.or(own).unwrap_or_else(of_types))
    }

    /// The kinds of code to measure on a chip.
    pub fn kinds(&self, target: &Target) -> Vec<Kind> {
        if !self.kinds.is_empty() {
            return self.kinds.clone();
        }
        let by_default = |kind: &Kind| match kind {
            Kind::Naive => false,
            Kind::Simt | Kind::Wmma | Kind::Mma => true,
            Kind::Wgmma => target.has(Features::WGMMA),
        };
        Kind::ALL.into_iter().filter(by_default).collect()
    }

    /// The products of so many sizes, types by types.
    pub fn products(&self, sizes: &[GemmSizes]) -> Result<Vec<Gemm>> {
        let one = |types: &String, size: &GemmSizes| input::gemm_of(size, types, &self.layout);
        self.dtype.iter().flat_map(|types| sizes.iter().map(move |size| one(types, size))).collect()
    }

    /// As [`Self::products`] for an option that takes no dynamic sizes.
    pub fn fixed_products(&self, sizes: &[GemmSizes], option: &str) -> Result<Vec<Gemm>> {
        match sizes.iter().any(|s| s.least.is_some()) {
            true => {
                Err(Error::input(Code::CliGemm, format!("{option} takes GEMMs of fixed sizes, and an M is dynamic"))
                    .help("--gemm 1..=8192x4096x4096 --set M=64,256 --candidates"))
            }
            false => self.products(sizes),
        }
    }

    /// Whether kinds of code are named.
    pub fn names_kinds(&self) -> bool {
        !self.kinds.is_empty()
    }
}

/// A program at values of its dynamic sizes; a GEMM is the program of the GEMM of this size, which the library has too.
///
/// # Errors
/// Those of [`Func::at`].
pub fn at(program: &Func, values: &[i64]) -> Result<Func> {
    let fixed = program.at(values)?;
    match (gemm::describe(program), values) {
        (Some(gemm), [rows]) => gemm.at_rows(*rows).program(),
        _ => Ok(fixed),
    }
}

/// A schedule to measure.
#[derive(Debug, Clone)]
pub struct Subject {
    /// What rows and errors call it.
    pub name: String,
    /// What to measure.
    pub schedule: Schedule,
    /// The values of its dynamic sizes.
    pub at: Vec<i64>,
    /// The schedule for these values alone, which it is timed in turn with.
    #[cfg_attr(not(feature = "runtime"), expect(dead_code))]
    pub fixed: Option<Schedule>,
    /// What the library is to compute, if not the same product.
    #[cfg_attr(not(feature = "runtime"), expect(dead_code))]
    pub beside: Option<GemmSpec>,
}

impl Subject {
    /// A schedule beside the library's same product.
    pub fn new(name: impl Into<String>, schedule: Schedule) -> Subject {
        let at = schedule.program.sizes.iter().map(|s| s.size.high).collect();
        Subject { name: name.into(), schedule, at, fixed: None, beside: None }
    }

    /// The program that is measured: at the values of its dynamic sizes.
    ///
    /// # Errors
    /// Those of [`Func::at`].
    #[cfg(any(feature = "runtime", test))]
    pub fn program(&self) -> Result<Func> {
        at(&self.schedule.program, &self.at)
    }

    /// The recommended steps of a GEMM, and those whose bits of a row do not depend on its number of rows.
    ///
    /// # Errors
    /// Those of [`gemm::recommend`] and [`gemm::recommend_invariant`].
    pub fn free_and_invariant(gemm: &Gemm, target: &Target) -> Result<[Subject; 2]> {
        let free = Subject::new("recommended", gemm::recommend(gemm, target)?);
        Ok([free, Subject::new("invariant", gemm::recommend_invariant(gemm, target)?)])
    }

    /// The recommended steps of a GEMM, and the recommended ones without workspace.
    ///
    /// # Errors
    /// Those of [`gemm::recommend`].
    pub fn free_and_without_workspace(gemm: &Gemm, target: &Target) -> Result<[Subject; 2]> {
        let free = Subject::new("recommended", gemm::recommend(gemm, target)?);
        Ok([free, Subject::new("no workspace", gemm::recommend_without_workspace(gemm, target)?)])
    }

    /// The candidates of a GEMM, in the order of the model.
    ///
    /// # Errors
    /// Those of [`gemm::candidates`].
    pub fn candidates(gemm: &Gemm, target: &Target) -> Result<Vec<Subject>> {
        Ok(gemm::candidates(gemm, target)?.into_iter().map(|(name, s)| Subject::new(name, s)).collect())
    }
}
