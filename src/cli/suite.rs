//! `warploom bench --suite LIST`: the products of a list measured in one run, as a table of record.
//!
//! A line of the list is a product and what is asked of it; `#` begins a comment:
//!
//! ```text
//! TYPES LAYOUT SIZE [block_scales] [no_workspace] [KIND] [weights TYPE[/GROUP]] [beside TYPES LAYOUT] [>= RATIO]
//! f16 NT 4096 >= 0.65
//! f16 NN 64x512x512x512 >= 1       # a batch of 64
//! mean >= 1.01                     # of the ratios above, up to the mean before
//! s8 NN 4096 beside s8 NT          # the library's product of another layout or of other types, at the same size
//! f16 NT 16x4096x4096 weights s4/128 >= 2    # packed weights, beside the library's product of the types
//! f16 NT 1024x512x2048 simt        # a kind of code instead of the recommended steps
//! e4m3 NT 4096 block_scales        # with scales of blocks
//! s8 NN 4096 no_workspace          # the recommended steps without workspace
//! ```

use super::data::{self, Place};
#[cfg(feature = "runtime")]
use super::gpu;
#[cfg(feature = "runtime")]
use super::lines::Compiler;
use super::subject::{BenchArgs, Subject};
use super::{input, show};
use crate::error::{Code, Error, Result};
use crate::gemm::{self, Gemm, Kind, Quantized};
#[cfg(feature = "runtime")]
use crate::intrin;
use crate::loom::Schedule;
#[cfg(feature = "runtime")]
use crate::measure::{Bench, Row};
#[cfg(feature = "runtime")]
use crate::runtime::Device;
use crate::target::Target;
use crate::te::GemmSpec;
use std::path::Path;
use std::process::ExitCode;

/// A line of a list.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    /// As it stands there, without its comment.
    pub line: String,
    /// The product.
    pub gemm: Gemm,
    /// The recommended steps, if nothing.
    kind: Option<Kind>,
    /// The recommended steps without workspace.
    no_workspace: bool,
    /// The product with quantised weights.
    quantized: Option<Quantized>,
    beside: Option<GemmSpec>,
    /// The ratio to the library that is to be reached.
    wanted: Option<f64>,
    /// The mean that it counts to, if one follows.
    mean: usize,
}

/// A list: its products, and the geometric means that are asked of them.
#[derive(Debug, Default)]
struct List {
    entries: Vec<Entry>,
    means: Vec<f64>,
}

impl List {
    fn parse(text: &str) -> Result<List> {
        let mut list = List::default();
        for (n, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
            match words[..] {
                [] => {}
                ["mean", ">=", ratio] if ratio.parse::<f64>().is_ok_and(f64::is_finite) => {
                    list.means.push(ratio.parse().unwrap_or(f64::INFINITY));
                }
                _ => {
                    let entry = Entry::parse(&words.join(" "));
                    let entry = entry.map_err(|e| e.within(format!("in line {} of the list", n + 1)))?;
                    list.entries.push(Entry { mean: list.means.len(), ..entry });
                }
            }
        }
        Ok(list)
    }

    /// Without the lines that lack one of these words.
    fn only(mut self, words: Option<&str>) -> Result<List> {
        let words: Vec<&str> = words.unwrap_or_default().split_whitespace().collect();
        let holds = |e: &Entry| words.iter().all(|word| e.line.split(' ').any(|own| own == *word));
        self.entries.retain(holds);
        if self.entries.is_empty() {
            return Err(Error::input(Code::CliSuite, format!("no line of the list holds `{}`", words.join(" ")))
                .help("words as the list has them, such as --only \"f16 NT\""));
        }
        Ok(self)
    }
}

/// What a line consists of.
const FORM: &str =
    "TYPES LAYOUT SIZE [block_scales] [no_workspace] [KIND] [weights TYPE[/GROUP]] [beside TYPES LAYOUT] [>= RATIO]";

impl Entry {
    /// Parses a line without its comment.
    pub fn parse(line: &str) -> Result<Entry> {
        let wrong = |what: &str| {
            Error::input(Code::CliSuite, format!("`{line}` {what}"))
                .help(format!("{FORM}, such as f16 NT 4096 >= 0.65"))
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let [types, layout, size, rest @ ..] = &words[..] else { return Err(wrong("is not a GEMM")) };
        let size = input::sizes(size).map_err(|e| wrong(&format!("has no size: {e}")))?.0;
        let gemm = input::product(&size, types, layout)?;
        let line = words.join(" ");
        let mut entry =
            Entry { line, gemm, kind: None, no_workspace: false, quantized: None, beside: None, wanted: None, mean: 0 };
        let mut rest = rest.iter();
        while let Some(word) = rest.next() {
            match (*word, Kind::parse(word)) {
                (_, Some(kind)) => entry.kind = Some(kind),
                ("no_workspace", _) => entry.no_workspace = true,
                ("block_scales", _) => entry.gemm = entry.gemm.block_scales(),
                ("weights", _) => {
                    let weights = rest.next().ok_or_else(|| wrong("needs a type after `weights`"))?;
                    entry.quantized = Some(input::quantized(&size, types, weights)?);
                    entry.beside = entry.beside.or(Some(*gemm.spec()));
                }
                ("beside", _) => {
                    let (Some(types), Some(layout)) = (rest.next(), rest.next()) else {
                        return Err(wrong("needs types and a layout after `beside`"));
                    };
                    entry.beside = Some(*input::product(&size, types, layout)?.spec());
                }
                (">=", _) => {
                    let ratio = rest.next().and_then(|w| w.parse::<f64>().ok()).filter(|r| r.is_finite());
                    entry.wanted = Some(ratio.ok_or_else(|| wrong("asks for a ratio that is not a number"))?);
                }
                (other, _) => return Err(wrong(&format!("has an unknown word: `{other}`"))),
            }
        }
        Ok(entry)
    }

    fn schedule(&self, target: &Target) -> Result<Schedule> {
        match (self.kind, &self.quantized) {
            (_, Some(q)) => gemm::recommend_quantized(q, target),
            (Some(kind), None) => kind.schedule(&self.gemm, target),
            (None, None) if self.no_workspace => gemm::recommend_without_workspace(&self.gemm, target),
            (None, None) => gemm::recommend(&self.gemm, target),
        }
    }

    /// What is measured for it.
    pub fn subject(&self, target: &Target) -> Result<Subject> {
        let recommended = if self.no_workspace { "no workspace" } else { "recommended" };
        let name = self.kind.map_or(recommended, Kind::name);
        let subject = Subject::new(name, self.schedule(target)?);
        Ok(Subject { beside: self.beside, ..subject })
    }
}

/// Measures a list.
pub fn run(args: &BenchArgs, list: &Path) -> Result<ExitCode> {
    let list = List::parse(&input::text(list)?)?.only(args.only.as_deref())?;
    match data::place(args.device.as_deref())? {
        Place::Cpu => on_cpu(args, &list.entries),
        #[cfg(feature = "runtime")]
        Place::Gpu(device) => on_gpu(args, &list, &device),
    }
}

/// Without a GPU: every schedule at a size that the simulator can do.
pub(super) fn on_cpu(args: &BenchArgs, entries: &[Entry]) -> Result<ExitCode> {
    show::note("no times without a GPU: each GEMM runs once, reduced, on the simulator");
    let target = args.target(None, &entries.iter().map(|e| e.gemm).collect::<Vec<_>>())?;
    let named = |e: &Entry| Ok(Subject { name: e.line.clone(), ..e.subject(&target)? });
    super::cpu::bench(args, &entries.iter().map(named).collect::<Result<Vec<_>>>()?)
}

#[cfg(feature = "runtime")]
fn on_gpu(args: &BenchArgs, list: &List, device: &Device) -> Result<ExitCode> {
    let plan = args.budget();
    let (target, bench) = (args.target(Some(data::chip(device.info())?), &[])?, Bench::new(device, plan, None)?);
    let bar = show::bar(list.entries.len());
    let mut done = Vec::new();
    for entry in &list.entries {
        bar.set_message(entry.line.clone());
        let measured = entry
            .subject(&target)
            .and_then(|s| Ok((gpu::row(&bench, &s, args.seed, &Compiler::default())?, s.schedule)));
        if let Err(e) = &measured {
            bar.suspend(|| show::error(e, &entry.line));
        }
        done.push((entry, measured));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let means = means(&list.means, &done);
    let (table, record) = (markdown(&done, &means, device), record(&done, &means, &bench, args));
    match &args.out {
        Some(name) => {
            let text = serde_json::to_string_pretty(&record).map_err(|e| Error::bug(Code::CliJson, e.to_string()))?;
            write(&name.with_extension("json"), &text)?;
            write(&name.with_extension("md"), &table)?;
            show::put(&table);
        }
        None => show::put(&table),
    }
    let whole = done.iter().all(|(_, measured)| measured.is_ok());
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

#[cfg(feature = "runtime")]
type Done<'a> = (&'a Entry, Result<(Row, Schedule)>);

/// What is asked of a geometric mean of ratios, the mean, and of how many it is.
#[cfg(feature = "runtime")]
#[derive(serde::Serialize)]
struct Mean {
    wanted: f64,
    ratio: f64,
    rows: usize,
}

#[cfg(feature = "runtime")]
fn means(wanted: &[f64], done: &[Done<'_>]) -> Vec<Mean> {
    let of = |(number, wanted): (usize, &f64)| {
        let rows = done.iter().filter(|(entry, _)| entry.mean == number);
        let ratios: Vec<f64> = rows.filter_map(|(_, measured)| measured.as_ref().ok()?.0.ratio).collect();
        let ratio = show::geometric_mean(ratios.iter().copied())?;
        Some(Mean { wanted: *wanted, ratio, rows: ratios.len() })
    };
    wanted.iter().enumerate().filter_map(of).collect()
}

#[cfg(feature = "runtime")]
pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, format!("{}\n", text.trim_end()))
        .map_err(|e| Error::machine(Code::CliWrite, format!("cannot write {}: {e}", path.display())))
        .inspect(|()| show::note(format_args!("wrote {}", path.display())))
}

/// The instruction by which a schedule multiplies.
#[cfg(feature = "runtime")]
pub(super) fn instruction(schedule: &Schedule) -> String {
    let steps = schedule.steps.iter().map(ToString::to_string);
    let rows = steps.flat_map(|s| s.split_whitespace().filter_map(intrin::find).collect::<Vec<_>>());
    rows.into_iter().find(|r| r.action.accumulates()).map_or("SIMT".into(), |r| r.name.clone())
}

/// All that a reader needs to judge a table: device, data, plan, rows with the schedules that were measured.
#[cfg(feature = "runtime")]
fn record(done: &[Done<'_>], means: &[Mean], bench: &Bench, args: &BenchArgs) -> serde_json::Value {
    let rows = done.iter().map(|(entry, measured)| match measured {
        Ok((row, schedule)) => serde_json::json!({
            "asked": entry.line, "wanted": entry.wanted, "reached": entry.wanted.map(|w| row.reaches(w)),
            "instruction": instruction(schedule), "row": row, "schedule": schedule.to_string(),
        }),
        Err(e) => serde_json::json!({ "asked": entry.line, "wanted": entry.wanted, "error": e.to_string() }),
    });
    let plan = args.budget();
    serde_json::json!({
        "warploom": env!("CARGO_PKG_VERSION"),
        "device": bench.device().info(),
        "data": gpu::data_words(args.seed),
        "pairs": { "seconds": plan.row_s, "at most": plan.most_pairs, "order": "ABBA" },
        "launch_us": bench.launch_us(),
        "read_bytes_per_second": bench.bytes_per_second(),
        "rows": rows.collect::<Vec<_>>(),
        "means": means,
    })
}

#[cfg(feature = "runtime")]
fn markdown(done: &[Done<'_>], means: &[Mean], device: &Device) -> String {
    let info = device.info();
    let mut out = format!("{}, CUDA {}\n\n", info.name, info.driver_text());
    out.push_str(
        "| GEMM | by | us | GFLOP/s | library us | ratio | to its best | alone | noise | wanted | MHz | W | error | \
         library |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (entry, measured) in done {
        match measured {
            Ok((row, schedule)) => out.push_str(&line(entry, row, &instruction(schedule))),
            Err(e) => out.push_str(&format!("| {} | {} |{}\n", entry.line, e.message(), " |".repeat(12))),
        }
    }
    for Mean { wanted, ratio, rows } in means {
        let reached = if ratio >= wanted { "yes" } else { "**no**" };
        out.push_str(&format!("\nThe geometric mean of {rows} ratios is {ratio:.4}; wanted {wanted}: {reached}\n"));
    }
    out
}

#[cfg(feature = "runtime")]
fn line(entry: &Entry, row: &Row, instruction: &str) -> String {
    let or = |value: Option<f64>, digits: usize| value.map_or("-".to_string(), |v| format!("{v:.digits$}"));
    let wanted =
        entry.wanted.map_or(String::new(), |w| format!("{w} {}", if row.reaches(w) { "yes" } else { "**no**" }));
    let library = row.library.as_deref().or(row.library_missing.as_deref()).unwrap_or("-");
    // Names of kernels are long; the first words say which it is.
    let library: String = library.chars().take(90).collect::<String>().replace('|', "/");
    let beside = row.beside.as_ref().map_or(String::new(), |b| format!("{b}: "));
    let name = if entry.kind.is_some() { format!("{} {instruction}", row.program) } else { instruction.to_string() };
    format!(
        "| {} {} {} | {name} | {:.1} | {:.0} | {} | {} | {} | {} | {:.4} | {wanted} | {} | {} | {:.3} | {beside}{library} |\n",
        row.dtype,
        row.layout,
        row.shape,
        row.us,
        row.gflops,
        or(row.library_us, 1),
        or(row.ratio, 3),
        or(row.ratio_to_best(), 3),
        // Of single launches, where the ratio is one of graphs.
        or(row.alone.and_then(|alone| alone.ratio), 3),
        row.noise,
        or(row.clock_mhz, 0),
        or(row.watts, 0),
        row.error,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::lower;
    use crate::sample::drawn;

    #[test]
    fn lines_say_what_is_measured_beside_what() {
        let list = "# a comment\nf16 NT 4096 >= 0.65  # and another\n\ns8 NN 64x32x16 simt beside s8 NT\n";
        let [plain, beside] = &List::parse(list).unwrap().entries[..] else { panic!() };
        assert_eq!((plain.line.as_str(), plain.wanted, plain.kind), ("f16 NT 4096 >= 0.65", Some(0.65), None));
        assert_eq!((plain.gemm.spec().k, plain.gemm.spec().layout.name()), (4096, "NT"));
        assert_eq!((beside.kind, beside.beside.map(|s| (s.m, s.layout.name()))), (Some(Kind::Simt), Some((64, "NT"))));
        let [weights] = &List::parse("bf16 NT 8x64x128 weights u4/32 >= 3.2").unwrap().entries[..] else { panic!() };
        assert_eq!(weights.quantized.map(|q| (q.sizes(), q.group())), Some(([8, 64, 128], 32)));
        assert_eq!((weights.beside, weights.wanted), (Some(*weights.gemm.spec()), Some(3.2)));
        let [alone] = &List::parse("s8 NN 64x32x32 no_workspace beside s8 NT").unwrap().entries[..] else { panic!() };
        let subject = alone.subject(&Target::sm_90a()).unwrap();
        assert!(
            subject.name == "no workspace" && !subject.schedule.to_string().contains("_pack"),
            "{}",
            subject.schedule
        );
        for wrong in [
            "f16 NT 4x64x64 weights",
            "f16 NT 4x64x64 weights f16",
            "f16 NT",
            "f16 NX 4",
            "f16 NT 0",
            "f16 NT 4 wider",
            "f16 NT 4 beside",
            "f16 NT 4 >= much",
            "mean >= x",
        ] {
            assert!(List::parse(wrong).is_err(), "{wrong}");
        }
    }

    /// The first line of each list, and a sample of the others.
    #[test]
    fn every_schedule_of_the_lists_of_record_is_proved() {
        let tensor = (include_str!("../../benches/tensor.suite"), 26, Target::sm_90());
        let hopper = (include_str!("../../benches/hopper.suite"), 100, Target::sm_90a());
        let f32 = (include_str!("../../benches/f32.suite"), 25, Target::sm_90());
        let w4a16 = (include_str!("../../benches/w4a16.suite"), 10, Target::sm_90a());
        for (text, least, target) in [tensor, hopper, f32, w4a16] {
            let list = List::parse(text).unwrap();
            assert!(list.entries.len() >= least, "{}", list.entries.len());
            for (at, entry) in list.entries.iter().enumerate() {
                if at > 0 && !drawn(&format!("proved {at} {} {target}", entry.line), 4) {
                    continue;
                }
                let proved = entry.schedule(&target).and_then(|schedule| {
                    let func = schedule.allow_tested().scheduled()?;
                    lower(&func, &target)?.assurance(&func)
                });
                let proved = proved.unwrap_or_else(|e| panic!("{}: {e}", entry.line));
                assert!(proved.proved > 0 && proved.tested.is_empty(), "{}: {proved}", entry.line);
            }
        }
    }

    #[test]
    fn means_are_of_the_lines_above_and_words_choose_among_them() {
        let text = "f16 NT 4096\nf16 NN 4096\nmean >= 1.01\nbf16 NT 512\n";
        let list = List::parse(text).unwrap();
        assert_eq!(
            (list.means.as_slice(), list.entries.iter().map(|e| e.mean).collect::<Vec<_>>()),
            (&[1.01][..], vec![0, 0, 1])
        );
        let lines = |words: &str| List::parse(text).unwrap().only(Some(words)).map(|l| l.entries.len());
        assert_eq!((lines("NT"), lines("f16 NT"), lines("")), (Ok(2), Ok(1), Ok(3)));
        assert_eq!(lines("TT").unwrap_err().code(), Code::CliSuite);
    }
}
