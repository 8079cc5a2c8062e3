//! Compiles schedules into an artefact, in parallel and through a cache.
//!
//! In a build script, [`script`] compiles the `.loom` files of a crate, and [`include_artifact!`](crate::include_artifact) embeds the artefact.

use crate::analysis;
use crate::artifact::{Artifact, Cache, EXTENSION, Variant};
use crate::assemble::Ptxas;
use crate::codegen;
use crate::error::{Code, Error, Result};
use crate::kernel::{Assembler, Cubin};
use crate::loom::Schedule;
use crate::lower;
use crate::target::Target;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Schedules to compile into one artefact.
#[derive(Debug, Default)]
pub struct Builder {
    jobs: Vec<Job>,
    assembled: bool,
    cache: Option<Cache>,
}

/// A schedule to compile, and the label of its variant.
#[derive(Debug)]
struct Job {
    label: String,
    schedule: Schedule,
}

impl Builder {
    /// A builder without schedules, cubins and cache.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Adds a schedule; `label` is the base name of its files.
    pub fn schedule(&mut self, label: impl Into<String>, schedule: Schedule) -> &mut Builder {
        self.jobs.push(Job { label: label.into(), schedule });
        self
    }

    /// Adds the schedule of a `.loom` file for each chip, or for the file's own chip if `targets` is empty. The file's name is the label.
    ///
    /// # Errors
    /// `build.file` if the file cannot be read; the errors of [`Schedule::parse`].
    pub fn file(&mut self, file: &Path, targets: &[Target]) -> Result<&mut Builder> {
        let within = |e: Error| e.within(format!("reading {}", file.display()));
        let text = std::fs::read_to_string(file)
            .map_err(|e| Error::input(Code::BuildFile, format!("cannot read {}: {e}", file.display())))?;
        let label = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or("kernel");
        if targets.is_empty() {
            return Ok(self.schedule(label, Schedule::parse(&text).map_err(within)?));
        }
        for target in targets {
            self.schedule(label, Schedule::parse_for(&text, *target).map_err(within)?);
        }
        Ok(self)
    }

    /// Whether ptxas assembles the PTX, so that the driver loads a cubin instead of compiling PTX.
    pub fn assembled(&mut self, assembled: bool) -> &mut Builder {
        self.assembled = assembled;
        self
    }

    /// The cache for compiled variants; without a cache every variant is compiled.
    pub fn cache(&mut self, cache: Option<Cache>) -> &mut Builder {
        self.cache = cache;
        self
    }

    /// The number of variants.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether no schedule has been added.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Compiles all schedules, with one thread per processor. `done` is called with the label of each finished variant. The variants have
    /// the order of their schedules.
    ///
    /// # Errors
    /// The error of the first schedule that does not compile; `ptxas.*` if ptxas is missing or rejects the PTX.
    pub fn build(&self, done: &(impl Fn(&str) + Sync)) -> Result<Artifact> {
        let (next, built) = (Mutex::new(self.jobs.iter().enumerate()), Mutex::new(Vec::new()));
        let work = || {
            while let Some((n, job)) = next.lock().ok().and_then(|mut jobs| jobs.next()) {
                let variant = self.variant(job).map_err(|e| e.within(format!("building {}", job.label)));
                done(&job.label);
                if let Ok(mut built) = built.lock() {
                    built.push((n, variant));
                }
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(self.jobs.len());
        let joined = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            handles.into_iter().all(|handle| handle.join().is_ok())
        });
        let built = built.into_inner().ok().filter(|_| joined);
        let mut built = built.ok_or_else(|| Error::bug(Code::BuildThread, "a thread that compiled panicked"))?;
        built.sort_by_key(|(n, _)| *n);
        built.into_iter().map(|(_, variant)| variant).collect::<Result<_>>().map(Artifact::new)
    }

    /// The variant of a schedule, from the cache or compiled.
    fn variant(&self, job: &Job) -> Result<Variant> {
        let schedule = &job.schedule;
        let ptxas = if self.assembled { Some(Ptxas::for_chip(None, schedule.target.name)?) } else { None };
        let make = || compiled(schedule, ptxas.as_ref());
        let variant = match &self.cache {
            Some(cache) => {
                cached("variant", schedule, cache, ptxas.as_ref().map(|ptxas| ptxas as &dyn Assembler), make)?
            }
            None => make()?,
        };
        Ok(variant.labelled(&job.label))
    }
}

/// Compiles a schedule, and adds its cost report.
fn compiled(schedule: &Schedule, ptxas: Option<&Ptxas>) -> Result<Variant> {
    let func = schedule.scheduled()?;
    let lowered = lower::lower(&func, &schedule.target)?;
    let mut kernels = codegen::compile(&lowered, &schedule.target)?;
    // LLVM IR is for dumps alone.
    kernels.llvm.clear();
    let mut report = analysis::cost_report(&lowered, &schedule.target).compiled(&kernels).summed(&func);
    if let Some(ptxas) = ptxas {
        let machine_code = ptxas.assemble(kernels.ptx(), &kernels.target)?;
        report = report.assembled(&kernels, &ptxas.version, &machine_code.usage, &schedule.target);
        kernels.cubin = Some(Cubin::new(&kernels.target, ptxas.name(), machine_code.cubin));
    }
    let variant = Variant::new(kernels, schedule.resolved()?.to_string(), codegen::llvm_version());
    Ok(variant.with_cost(analysis::summary(&report)))
}

/// The variable that names the folder of the user's cache; `off` is none.
pub const CACHE_VARIABLE: &str = "WARPLOOM_CACHE";

/// The user's cache: the folder that WARPLOOM_CACHE names, else `warploom` in XDG_CACHE_HOME or in `.cache` of the home folder. None where
/// WARPLOOM_CACHE is `off`, or there is no home folder.
///
/// # Errors
/// `cache.open` as [`Cache::at`].
pub fn user_cache() -> Result<Option<Cache>> {
    let value = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    let folder = match value(CACHE_VARIABLE) {
        Some(off) if off == "off" => None,
        Some(folder) => Some(PathBuf::from(folder)),
        None => {
            let home = || value("HOME").map(|home| Path::new(&home).join(".cache"));
            value("XDG_CACHE_HOME").map(PathBuf::from).or_else(home).map(|caches| caches.join("warploom"))
        }
    };
    folder.map(Cache::at).transpose()
}

/// The variant of a schedule from the cache; on a miss `make` compiles it and the cache stores it. Variants with a cost report and variants
/// without one have different `kind`s. The key is a digest of everything that determines the code.
pub(crate) fn cached(
    kind: &str,
    schedule: &Schedule,
    cache: &Cache,
    assembler: Option<&dyn Assembler>,
    make: impl FnOnce() -> Result<Variant>,
) -> Result<Variant> {
    let (text, llvm) = (schedule.to_string(), codegen::llvm_version());
    let tested = if schedule.program.allow_tested { "tested" } else { "" };
    let assembler = assembler.map_or_else(String::new, Assembler::name);
    let [version, sources] = [env!("CARGO_PKG_VERSION"), env!("WARPLOOM_SOURCES")];
    let key = crate::artifact::cache::key(&[kind, version, sources, &llvm, &assembler, tested, &text]);
    let known = cache.get(&key).and_then(|artifact| artifact.variants.into_iter().next());
    if let Some(variant) = known {
        return Ok(variant);
    }
    let variant = make()?;
    // A cache that cannot be written costs time, not the result.
    let _ = cache.put(&key, &Artifact::new(vec![variant.clone()]));
    Ok(variant)
}

/// For a build script: compiles `.loom` files for these chips, or for their own chips if `targets` is empty, into `NAME.warploom` in OUT_DIR.
/// cargo runs the script again when a file changes. [`include_artifact!`](crate::include_artifact) embeds the artefact.
///
/// ```no_run
/// // build.rs
/// fn main() -> warploom::Result<()> {
///     warploom::build::script("kernels", &["kernels/gemm.loom"], &["sm_80", "sm_90a"])
/// }
/// ```
///
/// # Errors
/// As [`Builder::file`] and [`Builder::build`]; `build.script` outside of a build script.
pub fn script(name: &str, files: &[&str], targets: &[&str]) -> Result<()> {
    let folder = std::env::var_os("OUT_DIR").ok_or_else(|| {
        Error::input(Code::BuildScript, "OUT_DIR is not set: this is for build scripts")
            .help("build = \"build.rs\" in Cargo.toml, and the call in its main")
    })?;
    let targets = targets.iter().map(|name| Target::parse(name)).collect::<Result<Vec<_>>>()?;
    let mut builder = Builder::new();
    for file in files {
        println!("cargo::rerun-if-changed={file}");
        builder.file(Path::new(file), &targets)?;
    }
    builder.build(&|_| ())?.write_packed(&Path::new(&folder).join(format!("{name}.{EXTENSION}")))
}
