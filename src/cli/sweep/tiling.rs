//! The search of the blog "TVM Matrix Multiplication Optimization", step 2: 5 block tiles, 5 thread tiles and 3 places of the k loops at two
//! sizes. Figures of the blog are of an NVIDIA RTX A500.

use super::{Searched, Session, choice, figure, show};
use crate::error::Result;
use crate::loom::Schedule;
use crate::target::Target;
use crate::tune::{Space, Trial};

const SPACE: &str = include_str!("../../../examples/spaces/tiling_75.loom");

/// The kernel before this step, which the blog calls "simple GPU binding": an element of C a thread. The blog's step 2 does not show its
/// code; here a block has 16 x 16 threads.
const STEP_1: &str = "gemm 1024x1024x1024 f32 NN\ntarget sm_86\nsplit i ? 16 -> i0 i1; split j ? 16 -> j0 j1\nreorder i0 j0 i1 j1\n\
                      bind i0 blockIdx.y; bind j0 blockIdx.x; bind i1 threadIdx.y; bind j1 threadIdx.x\n";

/// The name of its trial.
const STEP_1_NAME: &str = "step 1";

/// The configurations that the blog counts.
const REPORTED: usize = 138;

/// Patterns with the blog's description, average and best.
const PATTERNS: [(&str, &str, [f64; 2]); 3] = [
    ("standard", "k loops come first", [19.0, 68.0]),
    ("k_after_threads", "k after thread loops", [19.0, 68.0]),
    ("k_innermost", "k in the innermost loop", [171.0, 482.0]),
];

/// Block tiles and thread tiles with the blog's average and best, where it has them.
const BLOCKS: [(&str, Option<[f64; 2]>); 5] = [
    ("32x32x32", Some([130.0, 482.0])),
    ("32x64x32", None),
    ("64x32x32", None),
    ("64x64x32", None),
    ("64x64x64", Some([59.0, 254.0])),
];
const THREADS: [(&str, Option<[f64; 2]>); 5] = [
    ("8x4", Some([109.0, 482.0])),
    ("4x4", Some([77.0, 324.0])),
    ("2x2", Some([37.0, 164.0])),
    ("4x8", None),
    ("8x8", None),
];

/// The blog's speeds of step 1 and step 2 by size.
const RESULTS: [(i64, [f64; 2]); 2] = [(512, [91.0, 466.0]), (1024, [95.0, 482.0])];

/// Numbers between `x`.
fn numbers(text: &str) -> Vec<i64> {
    text.split('x').filter_map(|n| n.parse().ok()).collect()
}

/// Threads of a block of a configuration.
fn threads(name: &str) -> i64 {
    let of = |knob| choice(name, knob).map(numbers).unwrap_or_default();
    let (block, thread) = (of("block"), of("thread"));
    block.iter().zip(&thread).map(|(b, t)| b / t).product()
}

/// The space at a size, and step 1.
fn space(n: i64, target: Option<Target>, most_threads: Option<i64>) -> Result<Space> {
    let all = Space::parse(SPACE, Some(&[n, n, n]), target)?;
    let step_1 = target.map_or_else(|| Schedule::parse(STEP_1), |target| Schedule::parse_for(STEP_1, target))?;
    let mut list = vec![(STEP_1_NAME.to_string(), step_1.resized(&[n, n, n])?)];
    for c in (0..all.count()).filter_map(|n| all.configuration(n)) {
        if most_threads.is_none_or(|most| threads(&c.name) <= most) {
            list.push((c.name, c.schedule?));
        }
    }
    Space::list(list)
}

/// Searches at each size, and prints the blog's tables.
pub fn run(session: &mut Session<'_>) -> Result<()> {
    let args = session.args;
    let mut all: Vec<(i64, Searched)> = Vec::new();
    for &n in &args.sizes {
        let space = space(n, session.target, args.max_threads)?;
        let trials = space.count() as usize;
        let name = args.max_threads.map_or(format!("tiling-{n}"), |most| format!("tiling-{n}-{most}"));
        if let Some(searched) = session.searched(&name, space, trials)? {
            all.push((n, searched));
        }
    }
    let Some(target) = all.first().map(|(_, s)| s.space.target()) else { return Ok(()) };
    counts(session, &all);
    session.line(format_args!("GFLOP/s: {}; the blog's figures are of an RTX A500", session.unit(target)));
    let rows = rows(&all);
    patterns(session, &rows);
    blocks(session, &rows);
    thread_tiles(session, &rows);
    results(session, &all);
    session.reasons(&all.into_iter().map(|s| s.1).collect::<Vec<_>>());
    Ok(())
}

/// Configurations with their speed.
fn rows(all: &[(i64, Searched)]) -> Vec<(&Trial, Option<f64>)> {
    let of = |s: &'_ Searched, t: &'_ Trial| s.gflops(t);
    all.iter().flat_map(|(_, s)| configurations(s).map(move |t| (t, of(s, t)))).collect()
}

/// The trials without step 1.
fn configurations(searched: &Searched) -> impl Iterator<Item = &Trial> {
    searched.outcome.trials.iter().filter(|t| t.name != STEP_1_NAME)
}

fn counts(session: &Session<'_>, all: &[(i64, Searched)]) {
    let trials: Vec<&Trial> = all.iter().flat_map(|(_, s)| configurations(s)).collect();
    let valued = trials.iter().filter(|t| t.value().is_some()).count();
    let small = trials.iter().filter(|t| threads(&t.name) < 1024).count();
    let lists = BLOCKS.len() * THREADS.len() * PATTERNS.len();
    session.line(format_args!(
        "{} configurations: 5 block tiles x 5 thread tiles x 3 patterns = {lists} at {}; {valued} with a value",
        trials.len(),
        show::count(all.len(), "size"),
    ));
    if all.len() == 2 && trials.len() == 2 * lists {
        session.line(format_args!(
            "the blog counts {REPORTED} and does not say which of its lists' {} are left out; {small} have fewer than 1024 threads a block \
             (--max-threads 512), but the blog's third table has 1024",
            2 * lists
        ));
    }
}

/// Average and best of some rows, and the blog's, as cells.
fn cells<'a>(rows: impl Iterator<Item = &'a (&'a Trial, Option<f64>)>, blog: Option<[f64; 2]>) -> [String; 4] {
    let speeds: Vec<f64> = rows.filter_map(|(_, speed)| *speed).collect();
    let average = (!speeds.is_empty()).then(|| speeds.iter().sum::<f64>() / speeds.len() as f64);
    let best = speeds.iter().copied().max_by(f64::total_cmp);
    [figure(average, 0), figure(best, 0), figure(blog.map(|b| b[0]), 0), figure(blog.map(|b| b[1]), 0)]
}

fn patterns(session: &Session<'_>, rows: &[(&Trial, Option<f64>)]) {
    let mut table = show::table(&["Pattern", "Avg", "Best", "blog: Avg", "Best", "Description"]);
    for (name, description, blog) in PATTERNS {
        let own = rows.iter().filter(|(t, _)| choice(&t.name, "pattern") == Some(name));
        let cells = cells(own, Some(blog));
        table.add_row([name.to_string()].into_iter().chain(cells).chain([description.to_string()]));
    }
    session.line(format_args!("\n(1) Effect of loop reordering\n{table}"));
}

fn blocks(session: &Session<'_>, rows: &[(&Trial, Option<f64>)]) {
    let mut table = show::table(&["Tile Size", "Avg", "Best", "blog: Avg", "Best"]);
    for (name, blog) in BLOCKS {
        let own = rows.iter().filter(|(t, _)| choice(&t.name, "block") == Some(name));
        table.add_row([name.to_string()].into_iter().chain(cells(own, blog)));
    }
    session.line(format_args!("\n(2) Block tiles\n{table}"));
}

fn thread_tiles(session: &Session<'_>, rows: &[(&Trial, Option<f64>)]) {
    let mut table =
        show::table(&["Thread Tile", "Threads", "Avg", "Best", "blog: Avg", "Best", "Registers / thread (C)"]);
    for (name, blog) in THREADS {
        let own = || rows.iter().filter(move |(t, _)| choice(&t.name, "thread") == Some(name));
        let counts: Vec<i64> = own().map(|(t, _)| threads(&t.name)).collect();
        let range = match (counts.iter().min(), counts.iter().max()) {
            (Some(least), Some(most)) if least < most => format!("{least}-{most}"),
            (Some(only), _) => only.to_string(),
            _ => "-".into(),
        };
        let elements = numbers(name).iter().product::<i64>().to_string();
        table.add_row([name.to_string(), range].into_iter().chain(cells(own(), blog)).chain([elements]));
    }
    session.line(format_args!("\n(3) Thread tiles\n{table}"));
}

/// Step 1 and the best of step 2 at each size.
fn results(session: &Session<'_>, all: &[(i64, Searched)]) {
    let head =
        ["Matrix Size", "Step 1", "Step 2", "Improvement", "blog: Step 1", "Step 2", "Improvement", "configuration"];
    let mut table = show::table(&head);
    for (n, searched) in all {
        let first = searched.trial(STEP_1_NAME).and_then(|t| searched.gflops(t));
        let speeds = configurations(searched).filter_map(|t| Some((searched.gflops(t)?, t)));
        let best = speeds.max_by(|a, b| a.0.total_cmp(&b.0));
        let blog = RESULTS.iter().find(|r| r.0 == *n).map(|r| r.1);
        let gain = |speeds: Option<[f64; 2]>| speeds.map_or("-".into(), |[a, b]| format!("{:.1}x", b / a));
        table.add_row([
            format!("{n}x{n}"),
            figure(first, 0),
            figure(best.map(|b| b.0), 0),
            gain(first.zip(best).map(|(a, b)| [a, b.0])),
            figure(blog.map(|b| b[0]), 0),
            figure(blog.map(|b| b[1]), 0),
            gain(blog),
            best.map_or("-".into(), |b| b.1.name.clone()),
        ]);
    }
    session.line(format_args!("\nResults: the best configuration of each size\n{table}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_give_150_configurations_of_which_138_have_fewer_than_1024_threads() {
        let count = |most| [512, 1024].map(|n| space(n, None, most).unwrap().count() - 1).iter().sum::<u64>();
        assert_eq!((count(None), count(Some(512))), (150, REPORTED as u64));
        // Each row of the tables has configurations.
        let names: Vec<String> =
            (0..76).map(|n| space(512, None, None).unwrap().configuration(n).unwrap().name).collect();
        let of = |knob, name| names.iter().filter(|n| choice(n, knob) == Some(name)).count();
        assert!(PATTERNS.iter().all(|p| of("pattern", p.0) == 25));
        assert!(BLOCKS.iter().all(|b| of("block", b.0) == 15) && THREADS.iter().all(|t| of("thread", t.0) == 15));
        assert_eq!(threads("block=64x32x32 thread=8x4 pattern=standard"), 64);
    }

    #[test]
    fn every_configuration_applies() {
        let space = space(512, None, None).unwrap();
        for c in (0..space.count()).filter_map(|n| space.configuration(n)) {
            assert!(c.schedule.unwrap().scheduled().is_ok(), "{}", c.name);
        }
    }
}
