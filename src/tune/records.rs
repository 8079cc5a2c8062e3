//! Records of tuning: append-only files of JSON lines, each with a checksum.
//!
//! The first line names the program, the chip and the device, and for each run that added trials the space, the data seed, the
//! compiler, the driver and the clocks. Every other line is a trial or a runoff, written with one call and synced before it is shown: a
//! process that is killed loses no trial that it has shown. A last line that was cut off is removed when the record is opened again. A
//! line ends with the first 64 bits of the SHA-256 of the bytes before, so a changed bit is found and its line named.
//!
//! Records of one program, chip and device merge into the same bytes in any order. A record holds schedules as text, never binaries.

use super::protocol::{Found, Status};
use super::space::{Space, program_text};
use crate::artifact::checksum;
use crate::error::{Code, Error, Result, counted};
use crate::ir::Func;
use crate::loom::Schedule;
use crate::target::Target;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The number of the format. A reader refuses others.
pub const SCHEMA: u32 = 1;

/// The device of records whose trials are predicted cycles.
pub const NO_DEVICE: &str = "none";

/// The first line of a record: program, chip, device and runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Header {
    /// Always [`SCHEMA`].
    pub schema: u32,
    /// The program's text.
    pub program: String,
    /// The chip, such as `sm_90a`.
    pub target: String,
    /// The device's name; [`NO_DEVICE`] where trials are predicted cycles, not times.
    pub device: String,
    /// The runs that added to it, sorted.
    pub runs: Vec<Run>,
}

/// A run that added trials to a record. Runs of one record may differ in every field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Run {
    /// SHA-256 of the space ([`crate::tune::Space::identity`]).
    pub space: String,
    /// Seed of the data.
    pub seed: u64,
    /// The compiler, such as `warploom 0.1.0`.
    pub compiler: String,
    /// Version of the driver.
    pub driver: Option<String>,
    /// Clocks of the device.
    pub clocks: Option<String>,
}

impl Run {
    /// A run of this compiler on a space.
    pub fn new(space: &Space, seed: u64, driver: Option<String>, clocks: Option<String>) -> Run {
        let space = checksum(space.identity().as_bytes());
        Run { space, seed, compiler: compiler(), driver, clocks }
    }
}

/// What records call this compiler.
pub(super) fn compiler() -> String {
    format!("warploom {}", env!("CARGO_PKG_VERSION"))
}

impl Header {
    /// The header of a new record.
    pub fn new(program: &Func, target: &Target, device: &str, run: Run) -> Header {
        let (program, target, device) = (program_text(program), target.name.to_string(), device.to_string());
        Header { schema: SCHEMA, program, target, device, runs: vec![run] }
    }

    /// The first field in which the other header is of another program, chip or device: a merge or a continued run is refused.
    fn differs(&self, other: &Header) -> Option<String> {
        let pairs = [
            ("program", &self.program, &other.program),
            ("chip", &self.target, &other.target),
            ("device", &self.device, &other.device),
        ];
        let first_line = |text: &str| text.lines().next().unwrap_or_default().to_string();
        let (what, a, b) = pairs.into_iter().find(|(_, a, b)| a != b)?;
        let (a, b) = (first_line(a), first_line(b));
        Some(if a == b { format!("another {what}") } else { format!("another {what}: `{b}`, not `{a}`") })
    }

    /// Differences between the runs that are not refused: compilers, drivers, clocks, spaces, seeds.
    pub fn warnings(&self) -> Vec<String> {
        let several = |what: &str, of: &dyn Fn(&Run) -> String| {
            let mut all: Vec<String> = self.runs.iter().map(of).collect();
            all.sort();
            all.dedup();
            (all.len() > 1).then(|| format!("the runs differ in their {what}: {}", all.join(", ")))
        };
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".into());
        let all = [
            several("compiler", &|r| r.compiler.clone()),
            several("driver", &|r| or_none(&r.driver)),
            several("clocks", &|r| or_none(&r.clocks)),
            several("space", &|r| r.space.chars().take(12).collect()),
            several("data seed", &|r| r.seed.to_string()),
        ];
        all.into_iter().flatten().collect()
    }
}

/// A configuration that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Trial {
    /// The choices, `i1=8 j1=16`.
    pub name: String,
    /// The result.
    #[serde(flatten)]
    pub found: Found,
    /// The schedule's text; if the configuration is no schedule, its text in the space.
    pub schedule: String,
}

impl Trial {
    /// The figure that the tuner minimises: microseconds, without them predicted cycles; `None` unless the status is [`Status::Ok`].
    pub fn value(&self) -> Option<f64> {
        let Found { status, us, cycles, .. } = &self.found;
        us.or(*cycles).filter(|v| *status == Status::Ok && v.is_finite())
    }
}

/// Two configurations timed in turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Runoff {
    /// Their schedules, sorted.
    pub schedules: [String; 2],
    /// The time of the second over that of the first: above 1 the first is faster.
    pub ratio: f64,
}

impl Runoff {
    /// The time of schedule `b` over that of `a`; `None` if it is not between these.
    pub fn of(&self, a: &str, b: &str) -> Option<f64> {
        match self.schedules.each_ref().map(String::as_str) {
            [x, y] if (x, y) == (a, b) => Some(self.ratio),
            [x, y] if (x, y) == (b, a) => Some(1.0 / self.ratio),
            _ => None,
        }
    }
}

/// A line of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "line")]
#[non_exhaustive]
pub enum Entry {
    /// The first line.
    Header(Header),
    /// A run that continues the record and differs from those before.
    Run(Run),
    /// A trial.
    Trial(Trial),
    /// A runoff.
    Runoff(Runoff),
}

/// The field that ends a line, and its length in the line: `,"check":"0123456789abcdef"}`.
const CHECK: &str = ",\"check\":\"";
const CHECK_DIGITS: usize = 16;

/// A line without its end.
fn encoded(entry: &Entry) -> Result<String> {
    let text = serde_json::to_string(entry).map_err(|e| Error::bug(Code::TuneRecord, e.to_string()))?;
    let open = text.strip_suffix('}').unwrap_or(&text);
    Ok(format!("{open}{CHECK}{}\"}}", check(open.as_bytes())))
}

fn check(bytes: &[u8]) -> String {
    checksum(bytes)[..CHECK_DIGITS].to_string()
}

/// Whether a line ends with the checksum of its bytes.
fn is_whole(line: &[u8]) -> bool {
    let (open, rest) = line.split_at(line.len().saturating_sub(CHECK.len() + CHECK_DIGITS + 2));
    rest == format!("{CHECK}{}\"}}", check(open)).as_bytes()
}

/// The entry of a line, or what is wrong with the line.
fn decoded(line: &[u8]) -> Result<Entry, String> {
    if !is_whole(line) {
        return Err("its checksum is not that of its bytes".into());
    }
    serde_json::from_slice(line).map_err(|e| format!("it is no line of a record of schema {SCHEMA}: {e}"))
}

/// A line that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// From 1.
    pub line: usize,
    /// The fault.
    pub why: String,
}

/// A record as it is on disk.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Record {
    /// Program, chip, device and runs.
    pub header: Header,
    /// The trials, in the order of the lines.
    pub trials: Vec<Trial>,
    /// The runoffs.
    pub runoffs: Vec<Runoff>,
}

/// The lines of a record: whole ones without their ends, and what follows the last end.
struct Lines<'a> {
    whole: Vec<&'a [u8]>,
    rest: &'a [u8],
}

impl<'a> Lines<'a> {
    fn of(bytes: &'a [u8]) -> Lines<'a> {
        let end = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
        let whole = bytes[..end].split(|b| *b == b'\n');
        let count = whole.clone().count().saturating_sub(1);
        Lines { whole: whole.take(count).collect(), rest: &bytes[end..] }
    }
}

/// Every line that is not what was written, also a last one that was cut off.
pub fn damages(bytes: &[u8]) -> Vec<Damage> {
    let lines = Lines::of(bytes);
    let mut out = Vec::new();
    if lines.whole.len() > 3 && !lines.whole.iter().any(|line| is_whole(line)) {
        return vec![Damage { line: 1, why: "this is no record: no line has a checksum of its own".into() }];
    }
    for (n, line) in lines.whole.iter().enumerate() {
        let why = match decoded(line) {
            Err(why) => Some(why),
            Ok(Entry::Header(_)) if n > 0 => Some("it is a second header".into()),
            Ok(Entry::Header(h)) if h.schema != SCHEMA => Some(format!("schema {}, not {SCHEMA}", h.schema)),
            Ok(entry) if n == 0 && !matches!(entry, Entry::Header(_)) => Some("the first line is no header".into()),
            Ok(_) => None,
        };
        out.extend(why.map(|why| Damage { line: n + 1, why }));
    }
    if !lines.rest.is_empty() {
        out.push(Damage { line: lines.whole.len() + 1, why: "it has no end: it was cut off".into() });
    }
    if lines.whole.is_empty() && lines.rest.is_empty() {
        out.push(Damage { line: 1, why: "the record is empty".into() });
    }
    out
}

impl Record {
    /// Reads a record.
    ///
    /// # Errors
    /// `tune.record` where the file cannot be read; `tune.damage` where a line is not what was written; `tune.mismatch` where it is of
    /// another schema.
    pub fn read(path: &Path) -> Result<Record> {
        let bytes = std::fs::read(path).map_err(|e| unreadable(path, &e))?;
        Record::of(&bytes, &path.display().to_string())
    }

    /// Reads a record from bytes; errors call it by the name.
    ///
    /// # Errors
    /// As [`Record::read`].
    pub fn of(bytes: &[u8], name: &str) -> Result<Record> {
        // A line of another schema may have other fields: its number is looked at first, where the line is what was written.
        let first = bytes.split(|b| *b == b'\n').next().filter(|line| is_whole(line));
        let schema = first.and_then(|line| serde_json::from_slice::<Schema>(line).ok());
        if let Some(Schema { schema }) = schema.filter(|s| s.schema != SCHEMA) {
            let message = format!("{name} is a record of schema {schema}, and this is a reader of schema {SCHEMA}");
            return Err(Error::input(Code::TuneMismatch, message).help("tune again, into another file"));
        }
        if let Some(Damage { line, why, .. }) = damages(bytes).first() {
            let error = Error::input(Code::TuneDamage, format!("{name}, line {line}: {why}"));
            return Err(error.help("`warploom records verify` names every damaged line"));
        }
        let entries = Lines::of(bytes).whole.into_iter().map(decoded).collect::<Result<Vec<_>, String>>();
        let entries = entries.map_err(|why| Error::bug(Code::TuneDamage, why))?;
        let (mut header, mut trials, mut runoffs) = (None, Vec::new(), Vec::new());
        let mut runs = Vec::new();
        for entry in entries {
            match entry {
                Entry::Header(h) => header = Some(h),
                Entry::Run(r) => runs.push(r),
                Entry::Trial(t) => trials.push(t),
                Entry::Runoff(r) => runoffs.push(r),
            }
        }
        let mut header: Header = header.ok_or_else(|| Error::bug(Code::TuneDamage, "a record without a header"))?;
        header.runs.extend(runs);
        Ok(Record { header, trials, runoffs })
    }

    /// The text of the file.
    ///
    /// # Errors
    /// A bug where a line cannot be printed.
    pub fn text(&self) -> Result<String> {
        let entries = [Entry::Header(self.header.clone())].into_iter();
        let entries = entries.chain(self.trials.iter().cloned().map(Entry::Trial));
        let entries = entries.chain(self.runoffs.iter().cloned().map(Entry::Runoff));
        entries.map(|e| Ok(encoded(&e)? + "\n")).collect()
    }

    /// The best trial ([`winner`]).
    pub fn winner(&self) -> Option<&Trial> {
        winner(&self.trials, &self.runoffs)
    }

    /// The schedule of the best trial.
    ///
    /// # Errors
    /// `tune.none` where no trial is legal, right and timed; what [`Schedule::parse`] refuses.
    pub fn schedule(&self) -> Result<Schedule> {
        Schedule::parse(&self.best()?.schedule)
    }

    /// The best trial.
    ///
    /// # Errors
    /// `tune.none` if no trial is legal, right and timed.
    pub fn best(&self) -> Result<&Trial> {
        let none = || Error::input(Code::TuneNone, "no trial of the record is legal, right and timed");
        self.winner().ok_or_else(none)
    }

    /// Whether it is of this program and chip.
    pub fn is_of(&self, program: &Func, target: &Target) -> bool {
        self.header.program == program_text(program) && self.header.target == target.name
    }

    /// All lines of some records, each once: the same bytes in any order of the records.
    ///
    /// # Errors
    /// `tune.none` of no records, `tune.mismatch` where two are of another program, chip or device.
    pub fn merge(records: Vec<(String, Record)>) -> Result<Record> {
        let mut records = records.into_iter();
        let Some((first_name, mut out)) = records.next() else {
            return Err(Error::input(Code::TuneNone, "no record is given"));
        };
        for (name, other) in records {
            if let Some(what) = out.header.differs(&other.header) {
                return Err(Error::input(Code::TuneMismatch, format!("{name} and {first_name}: {what}")));
            }
            out.header.runs.extend(other.header.runs);
            out.trials.extend(other.trials);
            out.runoffs.extend(other.runoffs);
        }
        out.header.runs.sort();
        out.header.runs.dedup();
        sort_by_line(&mut out.trials, |t| Entry::Trial(t.clone()))?;
        sort_by_line(&mut out.runoffs, |r| Entry::Runoff(r.clone()))?;
        Ok(out)
    }
}

/// The best trial: least median of the values of its schedule, then the first schedule by its text. Of the best two a runoff between
/// them decides, by the median of its ratios.
pub fn winner<'t>(trials: &'t [Trial], runoffs: &[Runoff]) -> Option<&'t Trial> {
    let ranked = ranked(trials);
    let first = ranked.first()?.1;
    let Some(second) = ranked.get(1).map(|r| r.1) else { return Some(first) };
    let between = runoffs.iter().filter_map(|r| r.of(&first.schedule, &second.schedule));
    let ratios: Vec<f64> = between.map(f64::ln).collect();
    // Logarithms: the decision does not depend on which schedule a runoff names first.
    Some(if !ratios.is_empty() && median(ratios) < 0.0 { second } else { first })
}

/// Each schedule that has values: their median and one of its trials; the least median first, then the first schedule by its text.
pub fn ranked(trials: &[Trial]) -> Vec<(f64, &Trial)> {
    let mut of: BTreeMap<&str, (Vec<f64>, &Trial)> = BTreeMap::new();
    for trial in trials {
        let Some(value) = trial.value() else { continue };
        let (values, first) = of.entry(&trial.schedule).or_insert_with(|| (Vec::new(), trial));
        values.push(value);
        *first = if trial.name < first.name { trial } else { first };
    }
    let mut all: Vec<(f64, &Trial)> = of.into_values().map(|(values, trial)| (median(values), trial)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

#[derive(Deserialize)]
struct Schema {
    schema: u32,
}

/// Sorts by the text of the line, and leaves one of equal ones.
fn sort_by_line<T>(all: &mut Vec<T>, entry: impl Fn(&T) -> Entry) -> Result<()> {
    let mut keyed =
        std::mem::take(all).into_iter().map(|t| Ok((encoded(&entry(&t))?, t))).collect::<Result<Vec<_>>>()?;
    keyed.sort_by(|a, b| a.0.cmp(&b.0));
    keyed.dedup_by(|a, b| a.0 == b.0);
    *all = keyed.into_iter().map(|(_, t)| t).collect();
    Ok(())
}

/// The median: the mean of the middle two of an even number of values. There is a value.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    let at = |n: usize| values.get(n).copied().unwrap_or(f64::INFINITY);
    if low == high { at(low) } else { at(low) / 2.0 + at(high) / 2.0 }
}

fn unreadable(path: &Path, e: &std::io::Error) -> Error {
    Error::input(Code::TuneRecord, format!("cannot read the record {}: {e}", path.display()))
}

/// The record to continue, from the bytes of a file and its complete lines; none for a file without a complete line.
fn continued(bytes: &[u8], whole: &[u8], path: &Path, header: &Header) -> Result<Option<Record>> {
    if whole.is_empty() {
        let start = encoded(&Entry::Header(header.clone()))?;
        let known = start.as_bytes().iter().zip(bytes).take(HEAD_BYTES).all(|(a, b)| a == b);
        if !known {
            let message = format!("{} is no record: it does not begin with a header", path.display());
            return Err(Error::input(Code::TuneDamage, message).help("name another file"));
        }
        return Ok(None);
    }
    let record = Record::of(whole, &path.display().to_string())?;
    if let Some(what) = header.differs(&record.header) {
        let error = Error::input(Code::TuneMismatch, format!("{} is of {what}", path.display()));
        return Err(error.help("name another file, or remove this one"));
    }
    Ok(Some(record))
}

/// Bytes at the start of a header that every header has.
const HEAD_BYTES: usize = 8;

/// A record that grows. A lock keeps other processes from writing it, on file systems with locks.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    record: Record,
}

impl Drop for Journal {
    /// Gives the lock back. Closing the file does not while a process that is being started has a copy of it.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl Journal {
    /// Opens a record to continue it, or begins one; says what was repaired and what differs.
    ///
    /// # Errors
    /// `tune.record` where the file cannot be read or written or another process writes it, `tune.damage` where a line is not what
    /// was written, `tune.mismatch` where it is of another schema, program, chip or device.
    pub fn open(path: &Path, header: &Header) -> Result<(Journal, Vec<String>)> {
        let failed = |e: std::io::Error| unwritten(path, &e);
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).open(path).map_err(failed)?;
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            let message = format!("another process writes the record {}", path.display());
            return Err(Error::machine(Code::TuneRecord, message).help("give each tuner its own file and merge them"));
        }
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes)).map_err(failed)?;
        let (mut said, whole) = (Vec::new(), repaired(&bytes));
        // A file that is no record, or one of another program, stays as it is.
        let record = continued(&bytes, &whole, path, header)?;
        if whole.len() != bytes.len() {
            let lost = bytes.len() as i64 - whole.len() as i64;
            said.push(match lost > 0 {
                true => format!(
                    "repaired {}: removed {} of a last line that was cut off",
                    path.display(),
                    counted(lost, "byte")
                ),
                false => format!("repaired {}: ended the last line", path.display()),
            });
            file.set_len(bytes.len().min(whole.len()) as u64).map_err(failed)?;
            file.write_all(&whole[bytes.len().min(whole.len())..]).and_then(|()| file.sync_all()).map_err(failed)?;
        }
        let path = path.to_path_buf();
        let Some(record) = record else {
            let record = Record { header: header.clone(), trials: Vec::new(), runoffs: Vec::new() };
            let mut journal = Journal { file, path, record };
            journal.write(&Entry::Header(header.clone()))?;
            return Ok((journal, said));
        };
        let mut journal = Journal { file, path, record };
        for run in &header.runs {
            if !journal.record.header.runs.contains(run) {
                journal.write(&Entry::Run(run.clone()))?;
                journal.record.header.runs.push(run.clone());
            }
        }
        said.extend(journal.record.header.warnings());
        Ok((journal, said))
    }

    /// What the record holds.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Adds a trial and syncs it.
    ///
    /// # Errors
    /// `tune.record` where the file cannot be written.
    pub fn trial(&mut self, trial: Trial) -> Result<()> {
        self.write(&Entry::Trial(trial.clone()))?;
        self.record.trials.push(trial);
        Ok(())
    }

    /// Adds a runoff and syncs it.
    ///
    /// # Errors
    /// As [`Journal::trial`].
    pub fn runoff(&mut self, runoff: Runoff) -> Result<()> {
        self.write(&Entry::Runoff(runoff.clone()))?;
        self.record.runoffs.push(runoff);
        Ok(())
    }

    fn write(&mut self, entry: &Entry) -> Result<()> {
        let line = encoded(entry)? + "\n";
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|e| unwritten(&self.path, &e))
    }
}

/// The bytes up to the last whole line, and a whole line that lacks its end alone with it.
fn repaired(bytes: &[u8]) -> Vec<u8> {
    let rest = Lines::of(bytes).rest;
    if rest.is_empty() {
        return bytes.to_vec();
    }
    if decoded(rest).is_ok() {
        return [bytes, b"\n"].concat();
    }
    bytes[..bytes.len() - rest.len()].to_vec()
}

fn unwritten(path: &Path, e: &std::io::Error) -> Error {
    Error::machine(Code::TuneRecord, format!("cannot write the record {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn run(seed: u64, compiler: &str) -> Run {
        Run { space: "ab".repeat(32), seed, compiler: compiler.into(), driver: None, clocks: None }
    }

    fn header(device: &str, run: Run) -> Header {
        let schedule = Schedule::parse("vec_add 1024; target sm_80").unwrap();
        Header::new(&schedule.program, &schedule.target, device, run)
    }

    fn trial(block: u32, us: f64) -> Trial {
        let schedule = format!("vec_add 1024\ntarget sm_80\nsplit i ? {block} -> i0 i1\n");
        let found = Found { us: Some(us), ..Found::new(Status::Ok) };
        Trial { name: format!("i1={block}"), found, schedule }
    }

    fn record(seed: u64, trials: &[(u32, f64)]) -> Record {
        let trials = trials.iter().map(|(block, us)| trial(*block, *us)).collect();
        Record { header: header("H200", run(seed, "warploom 1")), trials, runoffs: Vec::new() }
    }

    /// A file that goes away.
    struct Temporary(PathBuf);

    impl Temporary {
        fn new() -> Temporary {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            Temporary(std::env::temp_dir().join(format!("warploom-record-{}-{number}", std::process::id())))
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn every_changed_bit_is_found_in_its_line() {
        let bytes = record(1, &[(32, 2.0), (64, 1.5)]).text().unwrap().into_bytes();
        assert_eq!(damages(&bytes), []);
        for at in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[at / 8] ^= 1 << (at % 8);
            let line = bytes[..at / 8].iter().filter(|b| **b == b'\n').count() + 1;
            let found = damages(&changed);
            assert_eq!(found.first().map(|d| d.line), Some(line), "bit {at}: {found:?}");
            assert_eq!(Record::of(&changed, "r").unwrap_err().code(), Code::TuneDamage, "bit {at}");
        }
    }

    #[test]
    fn a_record_that_was_cut_off_anywhere_keeps_its_whole_lines() {
        let (whole, file) = (record(1, &[(32, 2.0), (64, 1.5)]), Temporary::new());
        let bytes = whole.text().unwrap().into_bytes();
        for end in 0..=bytes.len() {
            std::fs::write(&file.0, &bytes[..end]).unwrap();
            let (mut journal, said) = Journal::open(&file.0, &whole.header).unwrap();
            let ends = |b: &[u8]| b.iter().filter(|b| **b == b'\n').count();
            // The end of a line may be all that is missing.
            let complete = ends(&bytes[..end]) + usize::from(bytes.get(end) == Some(&b'\n'));
            assert_eq!(journal.record().trials, whole.trials[..complete.saturating_sub(1)], "{end}");
            assert_eq!(said.is_empty(), end == 0 || bytes[end - 1] == b'\n', "{end}: {said:?}");
            journal.trial(trial(128, 1.0)).unwrap();
            drop(journal);
            let read = Record::read(&file.0).unwrap();
            assert_eq!(read.winner().unwrap().name, "i1=128", "{end}");
        }
    }

    /// A process between fork and exec has a copy of the file, and with it of the lock.
    #[test]
    fn a_record_is_free_when_its_journal_is_dropped() {
        let (whole, file) = (record(1, &[(32, 2.0)]), Temporary::new());
        let (journal, _) = Journal::open(&file.0, &whole.header).unwrap();
        let copy = journal.file.try_clone().unwrap();
        assert_eq!(Journal::open(&file.0, &whole.header).unwrap_err().code(), Code::TuneRecord);
        drop(journal);
        Journal::open(&file.0, &whole.header).unwrap();
        drop(copy);
    }

    #[test]
    fn records_merge_into_the_same_bytes_in_any_order() {
        let parts = [record(1, &[(32, 2.0), (64, 1.5)]), record(2, &[(64, 1.7), (128, 1.6)]), record(3, &[(32, 1.0)])];
        let merged = |order: &[usize]| {
            let named = order.iter().map(|n| (n.to_string(), parts[*n].clone())).collect();
            Record::merge(named).unwrap()
        };
        let all = merged(&[0, 1, 2]);
        let bytes = all.text().unwrap().into_bytes();
        for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            assert_eq!(merged(&order).text().unwrap().into_bytes(), bytes);
        }
        // In steps, and with a record twice.
        let steps = vec![("a".into(), merged(&[2, 1])), ("b".into(), merged(&[1, 0]))];
        assert_eq!(Record::merge(steps).unwrap().text().unwrap().into_bytes(), bytes);
        // The medians: 32 has 1.0 and 2.0, 64 has 1.5 and 1.7, 128 has 1.6.
        assert_eq!((all.trials.len(), all.winner().unwrap().name.as_str()), (5, "i1=32"));
        assert_eq!(all.header.warnings().len(), 1, "{:?}", all.header.warnings());
        assert_eq!(Record::of(&bytes, "r").unwrap(), all);
    }

    #[test]
    fn a_runoff_decides_between_the_best_two() {
        let mut record = record(1, &[(32, 2.0), (64, 1.5), (128, 1.51)]);
        assert_eq!(record.winner().unwrap().name, "i1=64");
        let text = |block| trial(block, 1.0).schedule;
        record.runoffs.push(Runoff { schedules: [text(32), text(64)], ratio: 0.5 });
        assert_eq!(record.winner().unwrap().name, "i1=64", "not between the best two");
        record.runoffs.push(Runoff { schedules: [text(128), text(64)], ratio: 1.1 });
        assert_eq!(record.winner().unwrap().name, "i1=128");
        assert!(record.schedule().unwrap().to_string().contains("? 128"));
        for trial in &mut record.trials {
            trial.found.status = Status::Wrong;
        }
        assert_eq!(record.schedule().unwrap_err().code(), Code::TuneNone);
    }

    /// The decision does not depend on the order in which a runoff names its schedules.
    #[test]
    fn opposing_runoffs_decide_by_their_mean() {
        let mut record = record(1, &[(32, 1.5), (64, 1.51)]);
        let text = |block| trial(block, 1.0).schedule;
        for (ratios, best) in [([0.9, 1.2], "i1=32"), ([0.8, 1.1], "i1=64")] {
            record.runoffs = ratios.map(|ratio| Runoff { schedules: [text(32), text(64)], ratio }).to_vec();
            assert_eq!(record.winner().unwrap().name, best);
            record.runoffs = ratios.map(|r| Runoff { schedules: [text(64), text(32)], ratio: 1.0 / r }).to_vec();
            assert_eq!(record.winner().unwrap().name, best);
        }
    }

    /// A file that is no record stays as it is.
    #[test]
    fn other_files_are_not_repaired() {
        for bytes in [&b"{\"a\":1}"[..], b"x\ny", b"# a page\nwith text\nand more\nlines\n"] {
            let file = Temporary::new();
            std::fs::write(&file.0, bytes).unwrap();
            assert_eq!(
                Journal::open(&file.0, &header(NO_DEVICE, run(1, "warploom 1"))).unwrap_err().code(),
                Code::TuneDamage
            );
            assert_eq!(std::fs::read(&file.0).unwrap(), bytes);
        }
    }

    #[test]
    fn other_programs_chips_devices_and_schemas_are_refused_and_other_compilers_said() {
        let file = Temporary::new();
        let own = header("H200", run(1, "warploom 1"));
        drop(Journal::open(&file.0, &own).unwrap());
        let refused = |header: &Header| Journal::open(&file.0, header).unwrap_err();
        let schedule = |text: &str| Schedule::parse(text).unwrap();
        for (text, device, word) in [
            ("vec_add 2048; target sm_80", "H200", "program"),
            ("vec_add 1024; target sm_90", "H200", "chip"),
            ("vec_add 1024; target sm_80", "H100", "device"),
        ] {
            let s = schedule(text);
            let error = refused(&Header::new(&s.program, &s.target, device, run(1, "warploom 1")));
            assert_eq!(error.code(), Code::TuneMismatch);
            assert!(error.message().contains(word), "{error}");
        }
        let other = header("H200", run(1, "warploom 2"));
        for _ in 0..2 {
            let (journal, said) = Journal::open(&file.0, &other).unwrap();
            assert!(said.len() == 1 && said[0].contains("compiler: warploom 1, warploom 2"), "{said:?}");
            assert_eq!(journal.record().header.runs.len(), 2);
            let busy = refused(&other);
            assert!(busy.code() == Code::TuneRecord && busy.message().contains("another process"), "{busy}");
        }
        let newer = Record { header: Header { schema: 2, ..own }, trials: Vec::new(), runoffs: Vec::new() };
        let error = Record::of(&newer.text().unwrap().into_bytes(), "r").unwrap_err();
        assert_eq!((error.code(), error.message().contains("schema 2")), (Code::TuneMismatch, true));
    }
}
