//! `warploom build`: compiles schedules for several chips and sizes into one artefact.

use super::input::{self, Sizes};
use super::launchers::{self, Kinds};
use super::{cache, data, show};
use crate::artifact::{self, Artifact, EXTENSION, MANIFEST, Variant};
use crate::build::Builder;
use crate::error::{Code, Error, Result};
use crate::gemm::{self, Gemm, MOST_RANGES, RowRange};
use crate::loom::Schedule;
use crate::target::Target;
use crate::tune::{self, Record};
use clap::Args;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Kernels for the range of a dynamic M at most where the command line does not say.
const RANGES: u8 = 6;

/// Options of `warploom build`.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// Schedules to compile.
    #[arg(required_unless_present = "gemm")]
    files: Vec<PathBuf>,
    /// Matrix products with recommended steps: N, MxNxK or BxMxNxK (a batch), separated by commas; 1..=8192xNxK is one kernel for each M in
    /// the range, 8..=8192/8xNxK for each multiple of 8 in it.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = input::gemm_sizes)]
    gemm: Vec<input::GemmSizes>,
    /// Types of --gemm, separated by commas: of the inputs (f16 means f16>f32>f16), or inputs>accumulators>result, or
    /// A*B>accumulators>result.
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "f32", requires = "gemm")]
    dtype: Vec<String>,
    /// Layouts of A and B of --gemm, separated by commas: N as it is, T transposed.
    #[arg(long, value_name = "LAYOUTS", value_delimiter = ',', default_value = "NN", requires = "gemm")]
    layout: Vec<String>,
    /// Compile each file at these sizes instead of its own: N, MxNxK or BxMxNxK, separated by commas.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = input::sizes, requires = "files")]
    sizes: Vec<Sizes>,
    /// Kernels for the range of a dynamic M at most: the cost model divides the range into parts, each with the schedule that loses least in it
    /// against those recommended for each M alone. 1 is one kernel for the whole range. Of --gemm 6 where nothing is said; a file of one
    /// product whose one step is a line `recommend` is divided where N is given. A record of --records that is of a part gives its steps; one of
    /// the whole range is one kernel unless N is given.
    #[arg(long, value_name = "N", conflicts_with = "sizes", value_parser = clap::value_parser!(u8).range(1..=MOST_RANGES as i64))]
    ranges: Option<u8>,
    /// Compile for each of these chips, separated by commas, instead of the files' own. Without it, --gemm is compiled for sm_90a where that
    /// has wgmma for the types, else for sm_90.
    #[arg(long, value_name = "CHIPS", value_delimiter = ',')]
    target: Vec<String>,
    /// Take the best steps of this record of `warploom tune` for --gemm, or for a line `recommend` of a file, where the record is of the
    /// program and the chip; may be given several times.
    #[arg(long, value_name = "FILE")]
    records: Vec<PathBuf>,
    /// The folder to write; a name that ends in `.warploom` is a single file.
    #[arg(short, long, value_name = "PATH")]
    out: PathBuf,
    /// Add a cubin for each chip. Needs ptxas.
    #[arg(long)]
    cubin: bool,
    /// Write launchers in Rust into the folder: NAME_cudarc.rs for the crate cudarc, and NAME_warploom.rs for warploom's runtime.
    #[arg(long)]
    rust: bool,
    /// Write launchers in C into the folder: NAME.h and NAME.c for the driver API, with the code in them.
    #[arg(long)]
    c: bool,
}

/// Compiles all schedules, then writes the artefact.
pub fn run(args: &BuildArgs) -> Result<ExitCode> {
    if is_packed(&args.out) {
        artifact::check_file(&args.out)?;
    }
    if (args.rust || args.c) && is_packed(&args.out) {
        let message = format!("launchers are files of a folder, and {} is one file", args.out.display());
        return Err(Error::input(Code::CliArtifact, message).help("-o FOLDER"));
    }
    let mut builder = Builder::new();
    add(args, &mut builder)?;
    builder.assembled(args.cubin).cache(cache::of_user());
    let bar = show::bar(builder.len());
    let artifact = builder.build(&|_| bar.inc(1));
    bar.finish_and_clear();
    let artifact = artifact?;
    if let Some((first, second)) = artifact.ambiguous() {
        let [first, second] = [first, second].map(|at| &artifact.variants[at]);
        if first.label == second.label {
            let message = format!("{} for {} is built twice", first.label, first.kernels.target);
            return Err(
                Error::input(Code::CliArtifact, message).help("name each file, size, type, layout and target once")
            );
        }
        show::note(format_args!(
            "{} and {} take the same arguments on {}: a program chooses between them by the label",
            first.label, second.label, first.kernels.target
        ));
    }
    write(&artifact, args)?;
    show::line(table(&artifact));
    Ok(ExitCode::SUCCESS)
}

/// Adds the schedules of all files, then those of all GEMMs.
fn add(args: &BuildArgs, builder: &mut Builder) -> Result<()> {
    let targets = args.target.iter().map(|name| Target::parse(name)).collect::<Result<Vec<_>>>()?;
    let records = input::records(&args.records)?;
    for file in &args.files {
        match args.ranges {
            Some(most) => file_in_ranges(file, &targets, (most, &records), builder)?,
            None => of_file(file, &targets, (&args.sizes, &records), builder)?,
        }
    }
    for sizes in &args.gemm {
        for (types, layout) in args.dtype.iter().flat_map(|types| args.layout.iter().map(move |layout| (types, layout)))
        {
            let product = input::gemm_of(sizes, types, layout)?;
            let own = [product.default_target()];
            for target in if targets.is_empty() { &own } else { &targets[..] } {
                of_gemm(&product, target, (args.ranges, &records), builder)?;
            }
        }
    }
    Ok(())
}

/// Adds the schedules of a GEMM: one for each range of a dynamic M. Without --ranges a record of the whole range is one schedule for it.
fn of_gemm(
    product: &Gemm,
    target: &Target,
    (asked, records): (Option<u8>, &[Record]),
    builder: &mut Builder,
) -> Result<()> {
    let is_dynamic = product.spec().least_m.is_some();
    if asked.is_some() && !is_dynamic {
        let message = format!("--ranges divides the range of a dynamic M, and M is {}", product.spec().m);
        return Err(Error::input(Code::CliArtifact, message).help("--gemm 1..=8192x4096x4096, or no --ranges"));
    }
    let of_all = tune::record_of(&product.program()?, target, records).is_some();
    let ranges = asked.unwrap_or(if of_all { 1 } else { RANGES });
    if is_dynamic && ranges > 1 {
        return divided(gemm::recommend_ranges(product, target, ranges.into())?, None, (of_all, records), builder);
    }
    let schedule = tune::recommend(product, target, records)?;
    let title = input::title(&schedule);
    note_records(&schedule, records, &title)?;
    if is_dynamic && of_all && asked.is_none() {
        show::note(format_args!(
            "{title}: one kernel for the whole range, as in its record; --ranges {RANGES} divides it"
        ));
    }
    builder.schedule(title.replace(' ', "_"), schedule);
    Ok(())
}

/// Adds a schedule for each range of a dynamic M, and says which: that of a record of the range, or the recommended one. The variants of a
/// file have its name.
fn divided(
    ranges: Vec<RowRange>,
    stem: Option<&str>,
    (of_all, records): (bool, &[Record]),
    builder: &mut Builder,
) -> Result<()> {
    let mut is_recorded = false;
    for range in ranges {
        let title = match stem {
            Some(stem) => format!("{stem} {}..={}", range.low, range.high),
            None => input::title(&range.schedule),
        };
        let target = range.schedule.target;
        let recorded = tune::recorded(&range.schedule.program, &target, records)?;
        is_recorded |= recorded.is_some();
        let words = recorded.as_ref().map_or_else(|| input::range_words(&range), |_| "the steps of a record".into());
        show::note(format_args!("{title} for {target}: {words}"));
        if let Some(schedule) = &recorded {
            note_records(schedule, records, &title)?;
        }
        builder.schedule(title.replace(' ', "_"), recorded.unwrap_or(range.schedule));
    }
    if of_all {
        show::note("a record is of the whole range, and its steps are not used: --ranges 1 is one kernel by them");
    } else if !records.is_empty() && !is_recorded {
        show::note("no record is of a range above: the steps are the recommended ones");
    }
    Ok(())
}

/// Adds the schedules of a file's program for the ranges of its dynamic size, for each chip.
fn file_in_ranges(
    file: &Path,
    targets: &[Target],
    (most, records): (u8, &[Record]),
    builder: &mut Builder,
) -> Result<()> {
    let within = |e: Error| e.within(format!("reading {}", file.display()));
    let text = input::text(file).map_err(within)?;
    for target in of_each(targets) {
        let program = input::recommended_alone(&text, target).map_err(within)?;
        let program = program.filter(|schedule| !schedule.program.sizes.is_empty()).ok_or_else(|| {
            let message = "--ranges divides the range of a dynamic size, and the program has none, or has other steps";
            let help = "a program with `size M in 1..=8192`, and a line `recommend` as its one step; or no --ranges";
            within(Error::input(Code::CliValue, message).help(help))
        })?;
        let of_all = tune::recorded(&program.program, &program.target, records)?;
        if let Some(schedule) = of_all.as_ref().filter(|_| most == 1) {
            note_records(schedule, records, &file.display().to_string())?;
            builder.schedule(stem(file), schedule.clone());
            continue;
        }
        let ranges = gemm::recommend_ranges_for(&program.program, &program.target, most.into()).map_err(within)?;
        divided(ranges, Some(stem(file)), (of_all.is_some(), records), builder)?;
    }
    Ok(())
}

/// The chips that are asked for; `None` is the file's own.
fn of_each(targets: &[Target]) -> Vec<Option<Target>> {
    match targets.is_empty() {
        true => vec![None],
        false => targets.iter().copied().map(Some).collect(),
    }
}

/// The name of a file's variants.
fn stem(file: &Path) -> &str {
    file.file_stem().and_then(|stem| stem.to_str()).unwrap_or("kernel")
}

/// Adds one schedule of a file for each chip and size; without them, for the file's own chip and size.
fn of_file(
    file: &Path,
    targets: &[Target],
    (sizes, records): (&[Sizes], &[Record]),
    builder: &mut Builder,
) -> Result<()> {
    let within = |e: Error| e.within(format!("reading {}", file.display()));
    let stem = stem(file);
    for target in of_each(targets) {
        let schedule = input::text(file).and_then(|text| tune::parse(&text, target, records)).map_err(within)?;
        note_records(&schedule, records, &file.display().to_string())?;
        for Sizes(sizes) in sizes {
            let words: Vec<String> = sizes.iter().map(i64::to_string).collect();
            builder.schedule(format!("{stem}_{}", words.join("x")), schedule.resized(sizes).map_err(within)?);
        }
        if sizes.is_empty() {
            builder.schedule(stem, schedule);
        }
    }
    Ok(())
}

/// What is to be said of the records of a schedule, where there are records.
fn note_records(schedule: &Schedule, records: &[Record], name: &str) -> Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    let notes = input::record_notes(schedule, records, &data::here_for(&schedule.target))?;
    notes.iter().for_each(|note| show::note(format_args!("{name}: {note}")));
    Ok(())
}

/// Whether the path names an artefact in one file.
pub fn is_packed(out: &Path) -> bool {
    out.extension().is_some_and(|e| e == EXTENSION)
}

/// Writes the folder with its launchers, or the single file, and prints their names.
fn write(artifact: &Artifact, args: &BuildArgs) -> Result<()> {
    let out = &args.out;
    if is_packed(out) {
        artifact.write_packed(out)?;
        show::note(format_args!("wrote {}", out.display()));
        return Ok(());
    }
    // An error of a launcher leaves the folder unchanged.
    let launchers = launchers::texts(artifact, Kinds { rust: args.rust, c: args.c })?;
    artifact.write_with(out, &launchers)?;
    show::note(format_args!("wrote {}", out.join(MANIFEST).display()));
    for (file, _) in launchers {
        show::note(format_args!("wrote {}", out.join(file).display()));
    }
    Ok(())
}

/// The variant with this label, or with this row number.
pub fn find<'a>(artifact: &'a Artifact, wanted: &str) -> Result<&'a Variant> {
    let all = || artifact.variants.iter().enumerate();
    let labelled: Vec<_> = all().filter(|(_, v)| v.label == wanted).collect();
    if let [_, _, ..] = labelled[..] {
        let numbers = labelled.iter().map(|(n, v)| format!("{} for {}", n + 1, v.kernels.target)).collect::<Vec<_>>();
        let error = Error::input(Code::CliVariant, format!("several variants are called `{wanted}`"));
        return Err(error.help(format!("the number of one: {}", numbers.join(", "))));
    }
    let numbered = || wanted.parse::<usize>().ok()?.checked_sub(1).and_then(|n| artifact.variants.get(n));
    labelled.first().map(|(_, v)| *v).or_else(numbered).ok_or_else(|| {
        let error = Error::input(Code::CliVariant, format!("the artefact has no variant `{wanted}`"));
        let known: BTreeSet<&str> = artifact.variants.iter().map(|v| v.label.as_str()).collect();
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        error.help(known).help(format!("a number from 1 to {}", artifact.variants.len()))
    })
}

/// A row for each variant.
pub fn table(artifact: &Artifact) -> comfy_table::Table {
    let mut table = show::table(&["#", "variant", "takes", "chip", "kernels", "PTX bytes", "cubin bytes"]);
    for (n, variant) in artifact.variants.iter().enumerate() {
        let kernels = &variant.kernels;
        table.add_row([
            (n + 1).to_string(),
            variant.label.clone(),
            variant.signature(),
            kernels.target.clone(),
            kernels.kernels.len().to_string(),
            kernels.ptx().len().to_string(),
            kernels.cubin.as_ref().map_or_else(String::new, |cubin| cubin.bytes.len().to_string()),
        ]);
    }
    table
}
