//! What random products reach of the library's speed, as a table of record.
//!
//! With `--out NAME` each row goes to NAME.jsonl as soon as it is measured, behind a line that says what is measured on what; a run that
//! was cut off is continued by the same command.

use super::data;
use super::lines::Compiler;
use super::subject::BenchArgs;
use super::suite::{self, Entry};
use super::{gpu, plot, show};
use crate::error::{Code, Error, Result};
use crate::measure::{Bench, Row};
use crate::runtime::Device;
use crate::target::Target;
use crate::te::GemmSpec;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The share of the library's speed that a row is held to, and the share of our own speed at the nearest aligned size that a row is held to
/// which the library refuses.
const WANTED: f64 = 0.95;
const WANTED_OF_NEAREST: f64 = 0.7;

/// What some rows reach of the library's speed, or of our own at the nearest aligned size.
#[derive(Debug, PartialEq, serde::Serialize)]
struct Reached {
    /// Which rows.
    rows: String,
    /// How many.
    count: usize,
    /// The geometric mean of the ratios.
    mean: f64,
    /// The 5th percentile: of 20 rows and fewer the smallest ratio.
    fifth: f64,
    /// The ratio that a row is held to, and the share of rows below it.
    wanted: f64,
    below: f64,
    /// The smallest ratio.
    least: f64,
}

impl Reached {
    /// `None` without rows.
    fn of(rows: &str, ratios: Vec<f64>) -> Option<Reached> {
        Reached::against(WANTED, rows, ratios)
    }

    fn against(wanted: f64, rows: &str, mut ratios: Vec<f64>) -> Option<Reached> {
        ratios.sort_by(f64::total_cmp);
        let (count, least) = (ratios.len(), *ratios.first()?);
        Some(Reached {
            rows: rows.to_string(),
            count,
            mean: show::geometric_mean(ratios.iter().copied())?,
            fifth: ratios[(count - 1) / 20],
            wanted,
            below: ratios.iter().filter(|r| **r < wanted).count() as f64 / count as f64,
            least,
        })
    }
}

/// A row of the record: what was drawn, and what was measured or why nothing was.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
struct Drawn {
    asked: String,
    aligned: bool,
    #[serde(default)]
    instruction: String,
    #[serde(default)]
    row: Option<Row>,
    #[serde(default)]
    schedule: String,
    #[serde(default)]
    error: Option<String>,
    /// Of a row that the library refuses and whose rows are not aligned: ours at the nearest aligned size.
    #[serde(default)]
    nearest: Option<Nearest>,
}

/// What our own steps take at the nearest aligned size.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
struct Nearest {
    asked: String,
    gflops: f64,
    /// The share of its time that its bytes and operations take at least.
    #[serde(default)]
    floor_ratio: Option<f64>,
}

/// Measures products and keeps each row as soon as it is measured.
pub fn on_gpu(args: &BenchArgs, entries: &[Entry], device: &Device) -> Result<ExitCode> {
    let plan = args.budget();
    let (target, bench) = (args.target(Some(data::chip(device.info())?), &[])?, Bench::new(device, plan, None)?);
    let head = head(args, device, &target);
    let mut journal =
        args.out.as_deref().map(|name| Journal::open(&name.with_extension("jsonl"), &head)).transpose()?;
    let mut rows = journal.as_ref().map(|j| j.rows.clone()).unwrap_or_default();
    if !rows.is_empty() {
        show::note(format_args!("{} of {} rows are measured already", rows.len(), entries.len()));
    }
    rows.truncate(entries.len());
    let bar = show::bar(entries.len());
    bar.inc(rows.len() as u64);
    for entry in &entries[rows.len()..] {
        bar.set_message(entry.line.clone());
        let row = match measured(&bench, entry, (&target, args.seed)) {
            Ok(row) => row,
            // The device is lost to the rows after this one, too: the next run measures them.
            Err(e) if bench.device().is_lost() => return Err(e),
            Err(e) => {
                bar.suspend(|| show::error(&e, &entry.line));
                Drawn { error: Some(e.to_string()), ..Drawn::of(entry) }
            }
        };
        journal.as_mut().map(|j| j.add(row.clone())).transpose()?;
        rows.push(row);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let (groups, table) = (groups(&rows), table(&rows, &device.info().name));
    let (refused, by_floor) = (refused(&rows, Drawn::of_nearest), refused(&rows, Drawn::of_nearest_floor));
    show::put(&table);
    if let Some(name) = &args.out {
        let record = serde_json::json!({
            "head": head, "device": device.info(), "reached": groups, "refused": refused, "refused_by_floor": by_floor,
            "rows": rows
        });
        let text = serde_json::to_string_pretty(&record).map_err(|e| Error::bug(Code::CliJson, e.to_string()))?;
        suite::write(&name.with_extension("json"), &text)?;
        suite::write(&name.with_extension("md"), &table)?;
        draw(&name.with_extension("svg"), &rows, device)?;
    }
    let whole = rows.iter().all(|r| r.error.is_none());
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

impl Drawn {
    /// A product that is not measured yet.
    fn of(entry: &Entry) -> Drawn {
        Drawn { asked: entry.line.clone(), aligned: entry.gemm.has_aligned_rows(), ..Drawn::default() }
    }

    /// Our speed over that at the nearest aligned size.
    fn of_nearest(&self) -> Option<f64> {
        self.row.as_ref().zip(self.nearest.as_ref()).map(|(row, nearest)| row.gflops / nearest.gflops)
    }

    /// The same where speed is the time that bytes and operations take at least over the time taken: the aligned product may have many times the
    /// operations for as many bytes.
    fn of_nearest_floor(&self) -> Option<f64> {
        Some(self.row.as_ref()?.floor_ratio / self.nearest.as_ref()?.floor_ratio?)
    }
}

fn measured(bench: &Bench, entry: &Entry, (target, seed): (&Target, u64)) -> Result<Drawn> {
    let subject = entry.subject(target)?;
    let row = gpu::row(bench, &subject, seed, &Compiler::default())?;
    let refused = row.library_missing.is_some() && !entry.gemm.has_aligned_rows();
    let nearest = refused.then(|| {
        let aligned = nearest_aligned(entry)?;
        let row = gpu::row(bench, &aligned.subject(target)?, seed, &Compiler::default())?;
        Ok(Nearest { asked: aligned.line, gflops: row.gflops, floor_ratio: Some(row.floor_ratio) })
    });
    let nearest = nearest.transpose()?;
    let (instruction, schedule) = (suite::instruction(&subject.schedule), subject.schedule.to_string());
    Ok(Drawn { instruction, row: Some(row), schedule, nearest, ..Drawn::of(entry) })
}

/// The nearest product of these types and this layout with aligned rows: the extents along which A, B or C is contiguous become multiples of
/// 16 bytes of that array; the others stay as they are. cuBLAS takes such products. Of bytes it refuses rows of A or B that are no multiple
/// of 4 bytes.
fn nearest_aligned(entry: &Entry) -> Result<Entry> {
    let GemmSpec { m, n, k, a, b, out, layout, .. } = *entry.gemm.spec();
    let [of_m, of_n, of_k] = [0, 1, 2];
    let row_of_a = if layout.a_transposed() { of_m } else { of_k };
    let row_of_b = if layout.b_transposed() { of_k } else { of_n };
    let mut multiples = [1; 3];
    for (extent, dtype) in [(row_of_a, a), (row_of_b, b), (of_n, out)] {
        multiples[extent] = multiples[extent].max(128 / i64::from(dtype.bits()));
    }
    let nearest = |extent: usize| {
        let (size, of) = ([m, n, k][extent], multiples[extent]);
        ((size + of / 2) / of * of).max(of)
    };
    let [m, n, k] = [of_m, of_n, of_k].map(nearest);
    let types = entry.line.split(' ').next().unwrap_or_default();
    Entry::parse(&format!("{types} {} {m}x{n}x{k}", layout.name()))
}

/// What is measured on what: a run is continued only by one that says the same. Any device of the name and driver may continue it.
fn head(args: &BenchArgs, device: &Device, target: &Target) -> serde_json::Value {
    let info = device.info();
    serde_json::json!({
        "warploom": env!("CARGO_PKG_VERSION"), "seed": args.seed, "types": args.types, "edges": args.edges,
        "seconds": args.budget().row_s,
        "target": target.to_string(), "device": info.name, "driver": info.driver_version, "data": gpu::data_words(args.seed),
    })
}

/// The rows of a run that have been written, and the file that takes more.
struct Journal {
    rows: Vec<Drawn>,
    file: std::fs::File,
    path: PathBuf,
}

impl Journal {
    /// Opens the journal of a run, or begins it. A last line that was cut off is measured again.
    fn open(path: &Path, head: &serde_json::Value) -> Result<Journal> {
        let failed = |e: std::io::Error| unwritten(path, &e);
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(failed(e)),
        };
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let mut lines = whole.lines();
        let same = lines
            .next()
            .is_none_or(|first| serde_json::from_str(first).is_ok_and(|old: serde_json::Value| old == *head));
        if !same {
            let message = format!(
                "{} holds the rows of another run: seed, types, seconds, target, device, driver, data or version differ",
                path.display()
            );
            return Err(Error::input(Code::CliRandom, message).help("name another file with --out, or remove this one"));
        }
        let read = |line: &str| {
            serde_json::from_str::<Drawn>(line).map_err(|e| {
                Error::input(Code::CliRandom, format!("{} has a line that is no row: {e}", path.display()))
                    .help("name another file with --out, or remove this one")
            })
        };
        let rows = lines.map(read).collect::<Result<Vec<_>>>()?;
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        file.set_len(whole.len() as u64).map_err(failed)?;
        let mut journal = Journal { rows, file, path: path.to_path_buf() };
        if whole.is_empty() {
            journal.write(head)?;
        }
        Ok(journal)
    }

    fn add(&mut self, row: Drawn) -> Result<()> {
        self.write(&row)?;
        self.rows.push(row);
        Ok(())
    }

    fn write(&mut self, line: &impl serde::Serialize) -> Result<()> {
        use std::io::Write as _;
        let line = serde_json::to_string(line).map_err(|e| Error::bug(Code::CliJson, e.to_string()))?;
        self.file.write_all(format!("{line}\n").as_bytes()).map_err(|e| unwritten(&self.path, &e))
    }
}

fn unwritten(path: &Path, error: &std::io::Error) -> Error {
    Error::machine(Code::CliWrite, format!("cannot keep the rows in {}: {error}", path.display()))
}

/// All rows, those of each type, the aligned ones, and those in a single launch instead of a graph.
fn groups(rows: &[Drawn]) -> Vec<Reached> {
    let ratios = |is: &dyn Fn(&Drawn, &Row) -> bool| {
        let measured = rows.iter().filter_map(|d| Some((d, d.row.as_ref()?)));
        measured.filter(|(d, row)| is(d, row)).filter_map(|(_, row)| row.ratio).collect::<Vec<f64>>()
    };
    let mut types: Vec<&str> = rows.iter().filter_map(|d| Some(d.row.as_ref()?.dtype.as_str())).collect();
    types.sort_unstable();
    types.dedup();
    let mut out = vec![Reached::of("all", ratios(&|_, _| true)), Reached::of("aligned", ratios(&|d, _| d.aligned))];
    for t in types {
        out.push(Reached::of(t, ratios(&|_, row| row.dtype == t)));
        out.push(Reached::of(&format!("{t}, aligned"), ratios(&|d, row| row.dtype == t && d.aligned)));
    }
    let alone = rows.iter().filter_map(|d| d.row.as_ref()?.alone?.ratio).collect();
    out.push(Reached::of("launched alone", alone));
    out.into_iter().flatten().collect()
}

/// What the rows that the library refuses reach of our own speed at the nearest aligned size, by one measure of speed.
fn refused(rows: &[Drawn], reached: fn(&Drawn) -> Option<f64>) -> Option<Reached> {
    Reached::against(WANTED_OF_NEAREST, "refused by the library", rows.iter().filter_map(reached).collect())
}

/// What the groups reach, then the rows by their ratio, the slowest first; those without a ratio come last.
fn table(rows: &[Drawn], device: &str) -> String {
    let mut out = format!(
        "{device}\n\n| rows | number | geometric mean | 5th percentile | below 0.95 | least |\n|---|---|---|---|---|---|\n",
    );
    for Reached { rows, count, mean, fifth, below, least, .. } in groups(rows) {
        out.push_str(&format!("| {rows} | {count} | {mean:.3} | {fifth:.3} | {:.0} % | {least:.3} |\n", below * 100.0));
    }
    if let Some(Reached { rows, count, mean, fifth, wanted, below, least }) = refused(rows, Drawn::of_nearest) {
        out.push_str(&format!(
            "\n{count} unaligned rows {rows} reach {mean:.3} of our speed at the nearest aligned size at the geometric mean, \
             {fifth:.3} at the 5th percentile, {least:.3} at least; {:.0} % are below {wanted:.2}.\n",
            below * 100.0
        ));
    }
    if let Some(Reached { mean, fifth, wanted, below, least, .. }) = refused(rows, Drawn::of_nearest_floor) {
        out.push_str(&format!(
            "By the shares of their floors, the time that bytes and operations take at least: {mean:.3}, {fifth:.3}, {least:.3}; {:.0} % are below {wanted:.2}.\n",
            below * 100.0
        ));
    }
    out.push_str("\n| GEMM | aligned | by | us | library us | ratio | alone | noise | floor | why there is no ratio |\n|---|---|---|---|---|---|---|---|---|---|\n");
    let ratio = |d: &&Drawn| d.row.as_ref().and_then(|r| r.ratio).unwrap_or(f64::INFINITY);
    let mut sorted: Vec<&Drawn> = rows.iter().collect();
    sorted.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    let or = |value: Option<f64>, digits: usize| value.map_or("-".to_string(), |v| format!("{v:.digits$}"));
    for d in sorted {
        let (asked, aligned, instruction) = (&d.asked, if d.aligned { "yes" } else { "no" }, &d.instruction);
        out.push_str(&match (&d.row, &d.error) {
            (Some(r), _) => format!(
                "| {asked} | {aligned} | {instruction} | {:.2} | {} | {} | {} | {:.3} | {:.3} | {} |\n",
                r.us,
                or(r.library_us, 2),
                or(r.ratio, 3),
                or(r.alone.and_then(|a| a.ratio), 3),
                r.noise,
                r.floor_ratio,
                missing(d, r)
            ),
            (None, error) => {
                format!("| {asked} | {aligned} | - | - | - | - | - | - | - | {} |\n", error.as_deref().unwrap_or(""))
            }
        });
    }
    out
}

/// Why there is no ratio to the library, and what is reached instead.
fn missing(drawn: &Drawn, row: &Row) -> String {
    let why = row.library_missing.as_deref().unwrap_or("");
    match (drawn.of_nearest(), &drawn.nearest) {
        (Some(share), Some(nearest)) => format!("{why}; {share:.3} of our speed at {}", nearest.asked),
        _ => why.to_string(),
    }
}

/// The ratio of each row against its operations, a colour a type; and all rows on a map of m and n.
fn draw(path: &Path, rows: &[Drawn], device: &Device) -> Result<()> {
    let mut points = Vec::new();
    for d in rows {
        let (Some(row), Ok(entry)) = (&d.row, Entry::parse(&d.asked)) else { continue };
        let spec = entry.gemm.spec();
        let operations = 2.0 * (spec.m * spec.n) as f64 * spec.k as f64;
        points.extend(row.ratio.map(|ratio| plot::Ratio {
            kind: row.dtype.clone(),
            size: [spec.m, spec.n],
            operations,
            ratio,
        }));
    }
    plot::ratios(path, &format!("random products on {}", device.info().name), &points)?;
    show::note(format_args!("wrote {}", path.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_aligned_by_their_bytes() {
        let aligned = |line: &str| Entry::parse(line).unwrap().gemm.has_aligned_rows();
        assert!(aligned("f16 NN 7x8x8") && aligned("s8 NT 5x4x16") && aligned("f32 TN 4x4x3"));
        assert!(!aligned("f16 NN 7x8x4") && !aligned("f16 NN 8x4x8") && !aligned("s8 NT 5x4x8"));
    }

    fn row(asked: &str, ratio: f64) -> Drawn {
        let entry = Entry::parse(asked).unwrap();
        let text = format!(
            r#"{{"program": "", "shape": "", "dtype": "{}", "layout": "", "device": "", "us": 2.0, "gflops": 1.0, "library_us": 1.0,
                "library": null, "library_missing": null, "ratio": {ratio}, "noise": 0.0, "floor_ratio": 0.5, "pairs": 30, "launches": 1,
                "error": 0.0, "clock_mhz": null, "watts": null, "resources": []}}"#,
            entry.gemm.spec().a
        );
        Drawn { row: Some(serde_json::from_str(&text).unwrap()), ..Drawn::of(&entry) }
    }

    #[test]
    fn a_journal_keeps_whole_rows_and_is_of_one_run() {
        let path = std::env::temp_dir().join(format!("warploom-drawn-{}.jsonl", std::process::id()));
        let head = serde_json::json!({ "seed": 1 });
        let rows = [row("f16 NN 8x8x8", 0.5), Drawn { error: Some("refused".into()), ..row("f32 NT 3x5x7", 1.5) }];
        let mut journal = Journal::open(&path, &head).unwrap();
        rows.iter().for_each(|row| journal.add(row.clone()).unwrap());
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}{{\"asked\": \"f16 NN 1")).unwrap();
        let again = Journal::open(&path, &head).unwrap();
        assert_eq!(again.rows, rows);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        let code = |head: &serde_json::Value| Journal::open(&path, head).err().map(|e| e.code());
        assert_eq!(code(&serde_json::json!({ "seed": 2 })), Some(Code::CliRandom));
        std::fs::write(&path, format!("{text}no row\n")).unwrap();
        assert_eq!(code(&head), Some(Code::CliRandom));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_table_has_each_group_and_the_slowest_rows_first() {
        let missing = Drawn { error: Some("why".into()), row: None, ..row("s8 NN 3x5x7", 1.0) };
        let rows = [row("f16 NN 8x8x8", 1.5), missing, row("f16 NN 9x9x9", 0.5), row("f32 NN 8x8x8", 1.0)];
        let table = table(&rows, "a GPU");
        for line in
            ["| all | 3 | 0.909 |", "| aligned | 2 | 1.225 |", "| f16 | 2 | 0.866 |", "| f32, aligned | 1 | 1.000 |"]
        {
            assert!(table.contains(line), "{line} is missing in {table}");
        }
        let at = |asked: &str| table.find(asked).unwrap();
        let order = ["f16 NN 9x9x9", "f32 NN 8x8x8", "f16 NN 8x8x8", "s8 NN 3x5x7"].map(at);
        assert!(order.is_sorted() && table.contains("| why |"), "{table}");
    }

    #[test]
    fn the_nearest_aligned_product_keeps_extents_that_no_row_runs_along() {
        let nearest = |line: &str| nearest_aligned(&Entry::parse(line).unwrap()).unwrap();
        for (asked, found) in [
            // A runs along k or m, B along n or k, C along n.
            ("s8 NN 2x23x17", "s8 NN 2x16x16"),
            ("s8 NT 2x23x17", "s8 NT 2x24x16"),
            ("s8 TN 3x2195x17", "s8 TN 16x2192x17"),
            ("s8 TT 9849x145x4", "s8 TT 9856x144x16"),
            ("f16 NN 3x21x1001", "f16 NN 3x24x1000"),
            ("f16 NT 3x21x1001", "f16 NT 3x24x1000"),
            ("f16 TN 3x21x1001", "f16 TN 8x24x1001"),
            ("f16 TT 3x21x1001", "f16 TT 8x24x1000"),
            ("f32 TN 1x1x1", "f32 TN 4x4x1"),
            // C has wider elements than A and B.
            ("f16>f32 NT 5x21x8", "f16>f32 NT 5x20x8"),
        ] {
            let aligned = nearest(asked);
            assert_eq!(aligned.line, found, "{asked}");
            assert!(aligned.gemm.has_aligned_rows(), "{found}");
            assert_eq!(nearest(found).line, found);
        }
    }

    #[test]
    fn rows_that_the_library_refuses_are_held_to_our_nearest_aligned_row() {
        // Rows of 1 GFLOP/s.
        let beside = |gflops: f64| {
            let mut drawn = row("s8 NN 9x9x9", 1.0);
            drawn.nearest = Some(Nearest { asked: "s8 NN 16x16x16".into(), gflops, floor_ratio: Some(gflops / 2.0) });
            let row = drawn.row.as_mut().unwrap();
            (row.ratio, row.library_us, row.library_missing) = (None, None, Some("no algorithm".into()));
            drawn
        };
        let rows = [row("f16 NN 8x8x8", 1.5), beside(2.0), beside(1.25)];
        let reached = refused(&rows, Drawn::of_nearest).unwrap();
        assert_eq!((reached.count, reached.least, reached.below, reached.wanted), (2, 0.5, 0.5, 0.7));
        let table = table(&rows, "a GPU");
        let said = [
            "| all | 1 | 1.500 |",
            "2 unaligned rows refused by the library reach 0.632",
            "50 % are below 0.70.",
            // Their own floors take half of their time.
            "By the shares of their floors, the time that bytes and operations take at least: 0.632, 0.500, 0.500; 50 %",
            "no algorithm; 0.800 of our speed at s8 NN 16x16x16 |",
        ];
        assert!(said.iter().all(|part| table.contains(part)), "{table}");
        assert_eq!(refused(&rows[..1], Drawn::of_nearest), None);
    }

    #[test]
    fn the_fifth_percentile_is_that_of_sorted_ratios() {
        let ratios: Vec<f64> = (1..=100).rev().map(|n| f64::from(n) / 100.0).collect();
        let reached = Reached::of("all", ratios).unwrap();
        assert_eq!((reached.count, reached.fifth, reached.least), (100, 0.05, 0.01));
        assert!((reached.below - 0.94).abs() < 1e-9);
        assert_eq!(Reached::of("none", Vec::new()), None);
    }
}
