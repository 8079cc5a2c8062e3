//! The schedules and the search of the blog "TVM: GEMM GPU Optimization": 1024 x 512 x 2048 of f32. Figures of the blog are of an NVIDIA T4;
//! its rows of the CPU are no schedules of a GPU and have no value here.

use super::{Searched, Session, figure, listed, show};
use crate::error::Result;
use crate::gemm::{self, Gemm};
use crate::target::Target;
use crate::tune::Space;

const SPACE: &str = include_str!("../../../examples/spaces/blocks_36.loom");

/// The schedules by hand, and the blog's milliseconds.
const BY_HAND: [(&str, &str, f64); 4] = [
    ("Naive", include_str!("../../../examples/gpu_naive.loom"), 84.52),
    ("v1 (1D Threads)", include_str!("../../../examples/gpu_v1.loom"), 36.98),
    ("v2 (2D Threads)", include_str!("../../../examples/gpu_v2.loom"), 35.50),
    ("v3 (Shared Memory)", include_str!("../../../examples/gpu_v3.loom"), 8.11),
];

/// The blog's milliseconds of the search, and of PyTorch on the T4.
const AUTOTVM_MS: f64 = 42.56;
const PYTORCH_MS: f64 = 0.70;

/// A row of the table: a schedule, our milliseconds, the blog's.
struct Row {
    name: String,
    ms: Option<f64>,
    blog_ms: f64,
}

/// The schedules by hand, for a chip where one is given.
fn by_hand(target: Option<Target>) -> Result<Space> {
    listed(&BY_HAND.map(|(name, text, _)| (name, text)), target)
}

/// Tries the schedules by hand, the 36 configurations and the recommended steps, and prints the blog's table.
pub fn run(session: &mut Session<'_>) -> Result<()> {
    let hand = by_hand(session.target)?;
    let space = Space::parse(SPACE, None, session.target)?;
    let target = space.target();
    let recommended = gemm::recommend(&Gemm::new(1024, 512, 2048), &target)?;
    let recommended = Space::list(vec![("recommended".to_string(), recommended)])?;
    session.line(format_args!("autotvm: {}", space.describe()));
    let trials = [hand.count(), space.count(), 1].map(|n| n as usize);
    let names = ["autotvm-by-hand", "autotvm-36", "autotvm-recommended"];
    let mut found = Vec::new();
    for ((space, name), trials) in [hand, space, recommended].into_iter().zip(names).zip(trials) {
        found.extend(session.searched(name, space, trials)?);
    }
    let [hand, tuned, recommended] = &found[..] else { return Ok(()) };
    let best = |s: &Searched| Some(s.seconds(s.outcome.winner()?)? * 1e3);
    let mut rows: Vec<Row> = BY_HAND
        .iter()
        .map(|(name, _, blog_ms)| {
            let ms = hand.trial(name).and_then(|t| hand.seconds(t)).map(|s| s * 1e3);
            Row { name: name.to_string(), ms, blog_ms: *blog_ms }
        })
        .collect();
    let choices = tuned.outcome.winner().map_or(String::new(), |w| format!(": {}", w.name));
    rows.push(Row { name: format!("AutoTVM{choices}"), ms: best(tuned), blog_ms: AUTOTVM_MS });
    rows.push(Row { name: "recommended (blog: PyTorch CUDA)".into(), ms: best(recommended), blog_ms: PYTORCH_MS });
    session.line(format_args!("{}: {}; the blog's figures are of a T4", hand.title(), session.unit(target)));
    session.line(table(&rows));
    let valued = tuned.outcome.trials.iter().filter(|t| t.value().is_some()).count();
    session.line(format_args!(
        "AutoTVM: {} tried, {valued} with a value",
        show::count(tuned.outcome.trials.len(), "configuration")
    ));
    session.reasons(&found);
    Ok(())
}

/// The blog's table: speedups over the first row, and of the schedules by hand over the one before.
fn table(rows: &[Row]) -> comfy_table::Table {
    let head =
        ["Implementation", "Time (ms)", "Speedup vs. Naive", "Speedup vs. Previous", "blog: Time (ms)", "vs. Naive"];
    let mut table = show::table(&head);
    let times = |ratio: Option<f64>| ratio.map_or("-".into(), |r| format!("{r:.1}x"));
    let first = rows.first();
    for (n, row) in rows.iter().enumerate() {
        let over = |other: &Row| Some(other.ms? / row.ms?);
        let before = (1..BY_HAND.len()).contains(&n).then(|| &rows[n - 1]);
        table.add_row([
            row.name.clone(),
            figure(row.ms, 3),
            times(first.and_then(over)),
            times(before.and_then(over)),
            format!("{:.2}", row.blog_ms),
            times(first.map(|f| f.blog_ms / row.blog_ms)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speedups_are_those_of_the_blog() {
        let rows: Vec<Row> =
            BY_HAND.iter().map(|(name, _, ms)| Row { name: name.to_string(), ms: Some(*ms), blog_ms: *ms }).collect();
        let text = table(&rows).to_string();
        let cells = |name: &str| -> Vec<String> {
            let row = text.lines().find(|l| l.starts_with(&format!("│ {name}"))).unwrap_or_default();
            row.split('┆').skip(1).take(3).map(|cell| cell.trim().to_string()).collect()
        };
        assert_eq!(cells("Naive "), ["84.520", "1.0x", "-"]);
        assert_eq!(cells("v1 "), ["36.980", "2.3x", "2.3x"]);
        assert_eq!(cells("v2 "), ["35.500", "2.4x", "1.0x"]);
        assert_eq!(cells("v3 "), ["8.110", "10.4x", "4.4x"]);
    }

    #[test]
    fn the_space_has_36_configurations_of_the_program_by_hand() {
        let (hand, space) = (by_hand(None).unwrap(), Space::parse(SPACE, None, None).unwrap());
        assert_eq!((hand.count(), space.count()), (4, 36));
        assert_eq!(hand.program(), space.program());
    }
}
