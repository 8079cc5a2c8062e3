//! `warploom sweep`: the search over block tiles, thread tiles and loop patterns of the blog "TVM Matrix
//! Multiplication Optimization", step 2, and its tables.

#[cfg(feature = "runtime")]
use super::data;
#[cfg(feature = "runtime")]
use super::lines::Compiler;
use super::show;
use crate::error::{Error, Fault, Result};
use crate::loom::Schedule;
use crate::target::Target;
use clap::Args;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// What to sweep over.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// Sizes of the square matrices.
    #[arg(long, value_delimiter = ',', default_values_t = [512, 1024], value_parser = clap::value_parser!(i64).range(1..))]
    sizes: Vec<i64>,
    /// Compile for this chip; the device's own where one is used.
    #[arg(long, value_name = "sm_XX")]
    target: Option<String>,
    /// Where to measure: a GPU's number, or `cpu` to compile only. Without it: the first GPU, if there is one.
    #[arg(long)]
    device: Option<String>,
    /// One line of JSON for each configuration instead of tables.
    #[arg(long)]
    json: bool,
}

/// The blog's lists.
const BLOCK_TILES: [[i64; 3]; 5] = [[32, 32, 32], [32, 64, 32], [64, 32, 32], [64, 64, 32], [64, 64, 64]];
const THREAD_TILES: [[i64; 2]; 5] = [[2, 2], [4, 4], [4, 8], [8, 4], [8, 8]];

/// Where the k loops stand among the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pattern {
    Standard,
    AfterThreads,
    Innermost,
}

impl Pattern {
    const ALL: [Pattern; 3] = [Pattern::Standard, Pattern::AfterThreads, Pattern::Innermost];

    fn name(self) -> &'static str {
        match self {
            Pattern::Standard => "standard",
            Pattern::AfterThreads => "k_after_threads",
            Pattern::Innermost => "k_innermost",
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Pattern::Standard => "k loops first",
            Pattern::AfterThreads => "k loops after the thread loops",
            Pattern::Innermost => "k in the innermost loop",
        }
    }

    fn order(self) -> &'static str {
        match self {
            Pattern::Standard => "i_block j_block k_outer k_inner i_thread j_thread i_elem j_elem",
            Pattern::AfterThreads => "i_block j_block i_thread j_thread k_outer k_inner i_elem j_elem",
            Pattern::Innermost => "i_block j_block i_thread j_thread k_outer i_elem j_elem k_inner",
        }
    }
}

/// One point of the sweep.
#[derive(Debug, Clone, Copy)]
struct Config {
    n: i64,
    block: [i64; 3],
    thread: [i64; 2],
    pattern: Pattern,
}

impl Config {
    fn all(sizes: &[i64]) -> Vec<Config> {
        let mut out = Vec::new();
        for &n in sizes {
            for block in BLOCK_TILES {
                for thread in THREAD_TILES {
                    out.extend(Pattern::ALL.map(|pattern| Config { n, block, thread, pattern }));
                }
            }
        }
        out
    }

    fn threads(&self) -> i64 {
        self.block[0] / self.thread[0] * (self.block[1] / self.thread[1])
    }

    fn schedule(&self, target: Target) -> Result<Schedule> {
        let Config { n, block: [bm, bn, bk], thread: [tm, tn], pattern } = *self;
        let text = format!(
            "gemm {n}x{n}x{n} f32 NN\ntarget {target}\n\
             split i ? {bm} -> i_block i_rest; split j ? {bn} -> j_block j_rest; split k ? {bk} -> k_outer k_inner\n\
             split i_rest {} ? -> i_thread i_elem; split j_rest {} ? -> j_thread j_elem\n\
             reorder {}\n\
             bind i_block blockIdx.x; bind j_block blockIdx.y; bind i_thread threadIdx.x; bind j_thread threadIdx.y\n",
            bm / tm,
            bn / tn,
            pattern.order(),
        );
        Schedule::parse(&text)
    }

    fn block_name(&self) -> String {
        self.block.map(|x| x.to_string()).join("x")
    }

    fn thread_name(&self) -> String {
        self.thread.map(|x| x.to_string()).join("x")
    }
}

/// What became of a configuration: its speed if it was measured, or why it is invalid.
struct Outcome {
    config: Config,
    result: std::result::Result<Option<f64>, Error>,
}

impl Outcome {
    fn gflops(&self) -> Option<f64> {
        self.result.as_ref().ok().copied().flatten()
    }
}

/// Compiles every configuration, measures it where there is a GPU, and prints the blog's tables.
pub fn run(args: &SweepArgs) -> Result<ExitCode> {
    let mut place = Place::open(args)?;
    let configs = Config::all(&args.sizes);
    let bar = show::bar(configs.len());
    let mut outcomes = Vec::with_capacity(configs.len());
    for config in configs {
        bar.set_message(format!("{} {} {}", config.block_name(), config.thread_name(), config.pattern.name()));
        let outcome = Outcome { config, result: place.measure(&config) };
        if place.is_lost() {
            place = Place::open(args)?;
        }
        if args.json {
            bar.suspend(|| show::line(json(&outcome)));
        }
        outcomes.push(outcome);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if !args.json {
        print(&outcomes, args);
    }
    let faults = outcomes.iter().filter(|o| o.result.as_ref().is_err_and(|e| e.fault() == Fault::Bug)).count();
    Ok(if faults == 0 { ExitCode::SUCCESS } else { ExitCode::from(70) })
}

/// Where configurations are measured, if anywhere.
struct Place {
    target: Target,
    #[cfg(feature = "runtime")]
    bench: Option<crate::measure::Bench>,
}

impl Place {
    #[cfg(feature = "runtime")]
    fn open(args: &SweepArgs) -> Result<Place> {
        use crate::measure::{Bench, TimeBudget};
        let stated = args.target.as_deref().map(Target::parse).transpose()?;
        let device = match args.device.as_deref() {
            Some("cpu") => None,
            device => match data::place(device)? {
                data::Place::Gpu(device) => Some(device),
                data::Place::Cpu => None,
            },
        };
        let Some(device) = device else {
            return Ok(Place { target: stated.unwrap_or(Target::sm_90()), bench: None });
        };
        let own = data::chip(device.info())?;
        let plan = TimeBudget { rewarm_s: 0.02, row_s: 0.2, most_pairs: 20, ..TimeBudget::default() };
        Ok(Place { target: stated.unwrap_or(own), bench: Some(Bench::new(&device, plan, None)?) })
    }

    #[cfg(not(feature = "runtime"))]
    fn open(args: &SweepArgs) -> Result<Place> {
        let stated = args.target.as_deref().map(Target::parse).transpose()?;
        Ok(Place { target: stated.unwrap_or(Target::sm_90()) })
    }

    /// Whether a configuration has cost the device.
    #[cfg(feature = "runtime")]
    fn is_lost(&self) -> bool {
        self.bench.as_ref().is_some_and(|bench| bench.device().is_lost())
    }

    #[cfg(not(feature = "runtime"))]
    fn is_lost(&self) -> bool {
        false
    }

    #[cfg(feature = "runtime")]
    fn measure(&self, config: &Config) -> Result<Option<f64>> {
        let schedule = config.schedule(self.target)?;
        match &self.bench {
            Some(bench) => {
                super::gpu::measure(bench, "sweep", &schedule, 1, &Compiler::default()).map(|row| Some(row.gflops))
            }
            None => crate::compile(&schedule).map(|_| None),
        }
    }

    #[cfg(not(feature = "runtime"))]
    fn measure(&self, config: &Config) -> Result<Option<f64>> {
        crate::compile(&config.schedule(self.target)?).map(|_| None)
    }
}

fn json(outcome: &Outcome) -> serde_json::Value {
    let Config { n, block, thread, pattern } = outcome.config;
    serde_json::json!({
        "size": n, "block": block, "thread": thread, "pattern": pattern.name(), "gflops": outcome.gflops(),
        "invalid": outcome.result.as_ref().err().map(|e| e.to_string()),
    })
}

fn print(outcomes: &[Outcome], args: &SweepArgs) {
    counts(outcomes, args);
    grouped("(1) loop patterns", &["pattern", "average", "best", "meaning"], outcomes, |c| {
        (c.pattern.name().to_string(), c.pattern.describe().to_string())
    });
    grouped("(2) block tiles", &["tile", "average", "best", "elements of C"], outcomes, |c| {
        (c.block_name(), (c.block[0] * c.block[1]).to_string())
    });
    threads(outcomes);
    best(outcomes);
}

/// How many configurations there are, and why some are invalid.
fn counts(outcomes: &[Outcome], args: &SweepArgs) {
    let invalid: Vec<&Error> = outcomes.iter().filter_map(|o| o.result.as_ref().err()).collect();
    let lists = BLOCK_TILES.len() * THREAD_TILES.len() * Pattern::ALL.len();
    show::line(format_args!(
        "{} configurations: {} block tiles x {} thread tiles x {} patterns = {lists}, at {} size(s); {} valid, {} invalid",
        outcomes.len(),
        BLOCK_TILES.len(),
        THREAD_TILES.len(),
        Pattern::ALL.len(),
        args.sizes.len(),
        outcomes.len() - invalid.len(),
        invalid.len()
    ));
    let mut reasons: BTreeMap<(String, &str), usize> = BTreeMap::new();
    for error in invalid {
        *reasons.entry((error.code().to_string(), error.message())).or_default() += 1;
    }
    for ((code, message), n) in reasons {
        show::line(format_args!("  {n} invalid [{code}]: {message}"));
    }
    let full = outcomes.iter().filter(|o| o.config.threads() == 1024).count();
    if outcomes.len() == 150 {
        show::line(format_args!(
            "  the blog reports 138: the {full} with 1024 threads a block (2x2 elements of a 64x64 tile) are what it lacks"
        ));
    }
}

/// Average and best by a property of the configurations.
fn grouped(title: &str, header: &[&str], outcomes: &[Outcome], key: impl Fn(&Config) -> (String, String)) {
    let mut table = show::table(header);
    let mut keys: Vec<(String, String)> = Vec::new();
    for o in outcomes {
        let k = key(&o.config);
        if !keys.contains(&k) {
            keys.push(k);
        }
    }
    for k in keys {
        let (average, best) = summary(outcomes.iter().filter(|o| key(&o.config) == k));
        table.add_row([k.0.clone(), average, best, k.1.clone()]);
    }
    show::line(format_args!("\n{title}, GFLOP/s\n{table}"));
}

fn threads(outcomes: &[Outcome]) {
    let mut table = show::table(&["thread tile", "threads", "average", "best", "elements of C a thread"]);
    for tile in THREAD_TILES {
        let of_tile = || outcomes.iter().filter(move |o| o.config.thread == tile);
        let least = of_tile().map(|o| o.config.threads()).min().unwrap_or(0);
        let most = of_tile().map(|o| o.config.threads()).max().unwrap_or(0);
        let (average, best) = summary(of_tile());
        let name = format!("{}x{}", tile[0], tile[1]);
        table.add_row([name, format!("{least}-{most}"), average, best, (tile[0] * tile[1]).to_string()]);
    }
    show::line(format_args!("\n(3) thread tiles, GFLOP/s\n{table}"));
}

/// Average and best speed; dashes where nothing was measured.
fn summary<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> (String, String) {
    let speeds: Vec<f64> = outcomes.filter_map(Outcome::gflops).collect();
    if speeds.is_empty() {
        return ("-".into(), "-".into());
    }
    let average = speeds.iter().sum::<f64>() / speeds.len() as f64;
    (format!("{average:.0}"), format!("{:.0}", speeds.iter().copied().fold(0.0, f64::max)))
}

fn best(outcomes: &[Outcome]) {
    let mut table = show::table(&["size", "GFLOP/s", "block tile", "thread tile", "threads", "pattern"]);
    let mut sizes: Vec<i64> = outcomes.iter().map(|o| o.config.n).collect();
    sizes.dedup();
    let mut measured = false;
    for n in sizes {
        let of_size = outcomes.iter().filter(|o| o.config.n == n && o.gflops().is_some());
        let Some(best) = of_size.max_by(|a, b| a.gflops().unwrap_or(0.0).total_cmp(&b.gflops().unwrap_or(0.0))) else {
            continue;
        };
        measured = true;
        let c = best.config;
        let speed = format!("{:.0}", best.gflops().unwrap_or(0.0));
        let size = format!("{n}x{n}");
        table.add_row([size, speed, c.block_name(), c.thread_name(), c.threads().to_string(), c.pattern.name().into()]);
    }
    match measured {
        true => show::line(format_args!("\nresults: the best of each size\n{table}")),
        false => {
            let compiled = outcomes.iter().filter(|o| o.result.is_ok()).count();
            let refused = outcomes.len() - compiled;
            show::line(format_args!(
                "\nnothing was measured: of {} configurations {compiled} compiled and {refused} were refused",
                outcomes.len()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_lists_give_its_138_and_twelve_full_blocks() {
        let all = Config::all(&[512, 1024]);
        assert_eq!(all.len(), 150);
        assert_eq!(all.iter().filter(|c| c.threads() < 1024).count(), 138);
    }

    #[test]
    fn every_configuration_applies() {
        for config in Config::all(&[512]) {
            let schedule = config.schedule(Target::sm_90()).unwrap();
            assert!(schedule.scheduled().is_ok(), "{schedule}");
        }
    }
}
