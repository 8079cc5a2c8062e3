//! `warploom tune --random N --seed S`: the candidates of random products, and what measuring the first few of them gains over the
//! recommended schedule, which is the first.

use super::random;
use super::search::{Clock, Search};
use super::trials::Shown;
use super::{input, show};
use crate::error::{Code, Error, Result};
use crate::gemm::{self, Gemm};
use crate::target::Target;
use crate::tune::{Event, Outcome, Space, Trial};
use serde::Serialize;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Numbers of candidates, in the order of the cost model.
pub const FIRST: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// Which products, and what is kept of them.
pub struct Random<'a> {
    pub count: usize,
    pub types: &'a [String],
    pub target: Option<Target>,
    /// The folder of the records.
    pub records: Option<&'a Path>,
    pub is_json: bool,
}

/// What the candidates of a product took.
#[derive(Debug, Serialize)]
struct Row {
    gemm: String,
    target: String,
    /// Candidates that were tried, and those of them with a value.
    tried: usize,
    valued: usize,
    /// The value of the best candidate over that of the best of the first 1, 2, 4, 8, 16 and 32; `null` where none of the first has a value. On a device
    /// the first candidate and the best are timed in turn for the first figure.
    share: Vec<Option<f64>>,
    /// The best candidate with its value.
    best: Option<String>,
    us: Option<f64>,
    cycles: Option<f64>,
    /// Seconds in which the candidates were generated, compiled, checked and measured.
    seconds: f64,
    /// Whether the record had trials already, whose time is not in the seconds.
    continued: bool,
}

impl Row {
    fn of(gemm: &Gemm, space: &Space, outcome: &Outcome, seconds: f64, known: usize) -> Row {
        let value = |schedule: &str| {
            let own = outcome.trials.iter().filter(|t| t.schedule == schedule);
            own.filter_map(Trial::value).min_by(f64::total_cmp)
        };
        // In the order of the cost model; trials come in any.
        let tried: HashSet<&str> = outcome.trials.iter().map(|t| t.schedule.as_str()).collect();
        let configurations = (0..space.count()).filter_map(|n| space.configuration(n));
        let configurations = configurations.filter(|c| tried.contains(c.text.as_str()));
        let values: Vec<Option<f64>> = configurations.map(|c| value(&c.text)).collect();
        let best = outcome.winner();
        let mut share = shares(&values);
        // Single trials have noise, of which the best of many has the least: in turn the two are timed alike.
        let first = space.configuration(0).map(|c| c.text);
        let own = first.zip(best).and_then(|(a, b)| outcome.runoffs.iter().rev().find_map(|r| r.of(&a, &b.schedule)));
        if let Some(own) = own.map(|own| own.min(1.0)) {
            share[0] = Some(own);
            share[1..].iter_mut().for_each(|s| *s = s.map(|s| s.max(own)));
        }
        Row {
            gemm: title(gemm),
            target: space.target().to_string(),
            tried: outcome.trials.len(),
            valued: outcome.trials.iter().filter(|t| t.value().is_some()).count(),
            share,
            best: best.map(|t| t.name.clone()),
            us: best.and_then(|t| t.found.us),
            cycles: best.and_then(|t| t.found.cycles),
            seconds,
            continued: known > 0,
        }
    }
}

/// The least value of all over that of the first few.
fn shares(values: &[Option<f64>]) -> Vec<Option<f64>> {
    let least = |of: &[Option<f64>]| of.iter().copied().flatten().min_by(f64::total_cmp);
    FIRST.iter().map(|n| Some(least(values)? / least(&values[..values.len().min(*n)])?)).collect()
}

fn title(gemm: &Gemm) -> String {
    let s = gemm.spec();
    format!("{}x{}x{} {} {}", s.m, s.n, s.k, input::types(s), s.layout.name())
}

/// The file of a product's record.
fn file(folder: &Path, gemm: &Gemm) -> PathBuf {
    let name: String = title(gemm).chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
    folder.join(format!("{name}.record"))
}

/// Tries the candidates of each product. Returns whether it was interrupted.
pub fn run(random: &Random<'_>, search: &Search<'_>, clock: &Clock) -> Result<bool> {
    if let Some(folder) = random.records {
        let cannot = |e| Error::input(Code::TuneRecord, format!("cannot make the folder {}: {e}", folder.display()));
        std::fs::create_dir_all(folder).map_err(cannot)?;
    }
    let mut rows: Vec<Row> = Vec::new();
    let mut is_stopped = false;
    let workers = search.workers()?;
    let mut measuring = workers.measuring();
    for entry in random::drawn(random.count, search.args.seed, random.types)? {
        let gemm = &entry.gemm;
        let target = random.target.or(clock.target).unwrap_or_else(|| gemm.default_target());
        search.check(target)?;
        let begin = Instant::now();
        let space = Space::list(gemm::candidates(gemm, &target)?)?;
        let mut journal = random.records.map(|f| search.journal(&space, &file(f, gemm))).transpose()?;
        let known = journal.as_ref().map_or(0, |j| j.record().trials.len());
        let mut shown = Shown::new(false);
        let said = &mut |event: &Event<'_>| shown.event(event);
        let outcome = search.run_with(&workers, &mut measuring, &space, (journal.as_mut(), said));
        shown.close();
        let outcome = outcome?;
        is_stopped = outcome.is_stopped;
        if is_stopped {
            break;
        }
        let row = Row::of(gemm, &space, &outcome, begin.elapsed().as_secs_f64(), known);
        if random.is_json {
            show::json(&row)?;
        }
        rows.push(row);
    }
    if !random.is_json {
        print(&rows, clock);
    }
    Ok(is_stopped)
}

fn print(rows: &[Row], clock: &Clock) {
    let unit = clock.name.as_ref().map_or("predicted cycles".into(), |name| format!("times on {name}"));
    show::line(format_args!(
        "share of the best candidate's speed that the best of the first candidates reaches ({unit})"
    ));
    show::line(table(rows));
    let unvalued: usize = rows.iter().map(|r| r.tried - r.valued).sum();
    show::line(format_args!(
        "{}, {} tried, {unvalued} without a value, {:.1} s",
        show::count(rows.len(), "product"),
        show::count(rows.iter().map(|r| r.tried).sum(), "candidate"),
        rows.iter().map(|r| r.seconds).sum::<f64>()
    ));
}

/// A row for each product, the geometric means of the shares, and the smallest shares.
fn table(rows: &[Row]) -> comfy_table::Table {
    let counts = FIRST.map(|n| n.to_string());
    let head = ["product", "target", "candidates"].into_iter().chain(counts.iter().map(String::as_str));
    let head: Vec<&str> = head.chain(["s", "best"]).collect();
    let mut table = show::table(&head);
    let share = |s: &Option<f64>| s.map_or("-".to_string(), |s| format!("{s:.3}"));
    for row in rows {
        let seconds = format!("{:.1}{}", row.seconds, if row.continued { "*" } else { "" });
        let start = [row.gemm.clone(), row.target.clone(), row.tried.to_string()].into_iter();
        let best = row.best.clone().unwrap_or("-".into());
        table.add_row(start.chain(row.share.iter().map(share)).chain([seconds, best]));
    }
    let of = |n: usize| rows.iter().filter_map(move |r| r.share.get(n).copied().flatten());
    let means: Vec<Option<f64>> = (0..FIRST.len()).map(|n| show::geometric_mean(of(n))).collect();
    let least: Vec<Option<f64>> = (0..FIRST.len()).map(|n| of(n).min_by(f64::total_cmp)).collect();
    let mut seconds: Vec<f64> = rows.iter().map(|r| r.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    let median = seconds.get(seconds.len() / 2).map_or("-".into(), |s| format!("{s:.1}"));
    for (name, shares, seconds) in [("geometric mean", means, median), ("smallest", least, String::new())] {
        let start = [name.to_string(), String::new(), String::new()].into_iter();
        table.add_row(start.chain(shares.iter().map(share)).chain([seconds, String::new()]));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_first_candidates_in_order() {
        let values = [None, Some(8.0), Some(10.0), Some(4.0), None, Some(2.0)];
        assert_eq!(shares(&values), [None, Some(0.25), Some(0.5), Some(1.0), Some(1.0), Some(1.0)]);
        assert_eq!(shares(&[None]), [None; 6]);
    }

    #[test]
    fn a_record_has_the_name_of_its_product() {
        let gemm = input::product(&[8, 16, 24], "u8*s8>s32", "NT").unwrap();
        assert_eq!(file("a".as_ref(), &gemm).to_str(), Some("a/8x16x24-u8-s8-s32-s32-NT.record"));
    }
}
