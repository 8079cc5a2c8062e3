//! `warploom bench --start`: the time from the first statement of a process to the end of its first launch, with an empty cache of kernels and
//! with a filled one.

use super::data::{self, Place};
use super::input::{self, GemmSizes};
use super::show;
use super::subject::BenchArgs;
use crate::artifact::Cache;
use crate::assemble::Folder;
use crate::error::{Code, Error, Result};
use crate::{codegen, gemm, measure};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// The product of a run that names none.
const PRODUCT: [i64; 3] = [4096, 4096, 4096];
/// Starts with the filled cache; the row is of the median one.
const LATER: usize = 3;

/// A process that compiles one product through a cache, and launches it once.
#[derive(Debug, Args)]
pub struct StartArgs {
    /// A GPU's number.
    #[arg(long)]
    device: String,
    /// Its sizes.
    #[arg(long, value_parser = input::gemm_sizes)]
    gemm: GemmSizes,
    /// Its types.
    #[arg(long)]
    dtype: String,
    /// Its layout.
    #[arg(long)]
    layout: String,
    /// The folder of the cache.
    #[arg(long)]
    cache: PathBuf,
}

/// Milliseconds of a process until its first launch is done, one part after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Start {
    gemm: String,
    /// `empty` or `filled`.
    cache: String,
    device: String,
    /// Opens the device.
    device_ms: f64,
    /// Chooses the steps, and lowers the program with them to validate them.
    steps_ms: f64,
    /// Compiles the kernels, or reads them from the cache.
    kernels_ms: f64,
    /// Loads them to the device.
    load_ms: f64,
    /// Launches them once and waits for the end.
    launch_ms: f64,
    /// All of these, with the allocation of the arrays.
    all_ms: f64,
    /// Whether LLVM compiled anything.
    llvm: bool,
}

/// Measures the starts of each product, and prints a row for each.
pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    let device = args.device.clone().unwrap_or_else(|| "0".into());
    if let Place::Cpu = data::place(Some(&device))? {
        return Err(
            Error::input(Code::CliLaunch, "the simulator loads no kernels").help("--device 0 on a host with a GPU")
        );
    }
    let usual: [GemmSizes; 1] = [input::Sizes(PRODUCT.to_vec()).into()];
    let sizes = if args.gemm.is_empty() { &usual[..] } else { &args.gemm };
    args.fixed_products(sizes, "--start")?;
    let header = ["GEMM", "cache", "LLVM", "device ms", "steps ms", "kernels ms", "load ms", "launch ms", "all ms"];
    let mut table = show::table(&header);
    for types in &args.dtype {
        for size in sizes {
            let folder = Folder::new()?;
            let mut rows = Vec::new();
            for _ in 0..=LATER {
                match start(&device, size, types, &args.layout, &folder.path().join("cache"))? {
                    Ok(row) => rows.push(row),
                    Err(status) => return Ok(status),
                }
            }
            let first = rows.remove(0);
            rows.sort_by(|a, b| a.all_ms.total_cmp(&b.all_ms));
            for row in [first, rows.swap_remove(LATER / 2)] {
                if args.json {
                    show::json(&row)?;
                    continue;
                }
                let parts = [row.device_ms, row.steps_ms, row.kernels_ms, row.load_ms, row.launch_ms, row.all_ms];
                let words = [row.gemm, row.cache, if row.llvm { "yes" } else { "no" }.to_string()];
                table.add_row(words.into_iter().chain(parts.map(|ms| format!("{ms:.1}"))));
            }
        }
    }
    if !args.json {
        show::line(table);
    }
    Ok(ExitCode::SUCCESS)
}

/// The times of a process that starts with this cache; its exit status if it has printed an error.
fn start(
    device: &str,
    GemmSizes { sizes, .. }: &GemmSizes,
    types: &str,
    layout: &str,
    cache: &Path,
) -> Result<std::result::Result<Start, ExitCode>> {
    let failed = |why: String| Error::machine(Code::CliLaunch, format!("a process that launches a GEMM: {why}"));
    let program = std::env::current_exe().map_err(|e| failed(e.to_string()))?;
    let gemm = input::words(sizes);
    let given = [("--device", device), ("--gemm", &gemm), ("--dtype", types), ("--layout", layout)];
    let mut command = Command::new(program);
    command.arg("first-launch").args(given.into_iter().flat_map(|(option, value)| [option, value])).arg("--cache");
    let out =
        command.arg(cache).stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(|e| failed(e.to_string()))?;
    match out.status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(0) => serde_json::from_slice(&out.stdout).map(Ok).map_err(|e| failed(e.to_string())),
        Some(status) => Ok(Err(ExitCode::from(status))),
        None => Err(failed(format!("ended with {}", out.status))),
    }
}

/// Compiles and launches, and prints the times.
pub fn first_launch(args: &StartArgs) -> Result<ExitCode> {
    let begun = Instant::now();
    let mut last = begun;
    let mut lap = || {
        let now = Instant::now();
        now.duration_since(std::mem::replace(&mut last, now)).as_secs_f64() * 1e3
    };
    let Place::Gpu(device) = data::place(Some(&args.device))? else {
        return Err(Error::input(Code::CliLaunch, "the simulator loads no kernels"));
    };
    let device_ms = lap();
    let gemm = input::gemm_of(&args.gemm, &args.dtype, &args.layout)?;
    let schedule = gemm::recommend(&gemm, &data::chip(device.info())?)?;
    let steps_ms = lap();
    // The listing is for the row alone: a hit lists nothing, so its time has no part in that of the kernels.
    let is_empty = Cache::at(&args.cache)?.entries()?.is_empty();
    lap();
    let cache = Cache::at(&args.cache)?;
    let kernels = crate::compile_cached(&schedule, &cache, Some(&device))?;
    let kernels_ms = lap();
    let program = device.load(&kernels)?;
    let load_ms = lap();
    let buffers = measure::zeroed(&program)?;
    device.synchronize()?;
    lap();
    program.launch(&buffers.iter().collect::<Vec<_>>())?;
    device.synchronize()?;
    let launch_ms = lap();
    show::json(&Start {
        gemm: format!("{} {} {}", args.dtype, args.layout, input::words(&args.gemm.sizes)),
        cache: if is_empty { "empty" } else { "filled" }.into(),
        device: device.info().name.clone(),
        device_ms,
        steps_ms,
        kernels_ms,
        load_ms,
        launch_ms,
        all_ms: begun.elapsed().as_secs_f64() * 1e3,
        llvm: codegen::has_compiled(),
    })?;
    Ok(ExitCode::SUCCESS)
}
