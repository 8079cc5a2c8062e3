//! A line of a table of results, and the statistics behind it.

use super::bench::InTurn;
use crate::runtime::{Resources, median};
use serde::{Deserialize, Serialize};

/// One program measured. Times are medians of microseconds a launch (all kernels of the program together).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The program's or schedule's name.
    pub program: String,
    /// `1024x512x2048`.
    pub shape: String,
    /// `f32`, or `f16>f32>f16`.
    pub dtype: String,
    /// `NN`, or empty.
    pub layout: String,
    /// The device's name.
    pub device: String,
    /// Microseconds of ours.
    pub us: f64,
    /// Billions of operations a second of ours.
    pub gflops: f64,
    /// Microseconds of the library.
    pub library_us: Option<f64>,
    /// The library's name and version, and the kernels that it chose.
    pub library: Option<String>,
    /// The fastest of the library's other ways, where it beat the library's own choice in a few launches.
    #[serde(default)]
    pub library_best: Option<Best>,
    /// What the library computed, where that is another product than ours.
    #[serde(default)]
    pub beside: Option<String>,
    /// Why there is no library time, if there is none.
    pub library_missing: Option<String>,
    /// How fast ours is against the library: the median over the pairs of library time / our time. Above 1 is faster.
    pub ratio: Option<f64>,
    /// Where the figures above are of graphs of launches: those of single launches, each with its launch and its gap.
    #[serde(default)]
    pub alone: Option<Alone>,
    /// How far the ratio of ours to ours strays from 1 in the same pairs: the larger of its median's distance and its
    /// median's standard error.
    pub noise: f64,
    /// The floor's time over ours: 1 is the floor.
    pub floor_ratio: f64,
    /// Pairs that were taken; fewer than 30 where the time allowed ran out.
    pub pairs: usize,
    /// Launches in each sample (a graph, when more than one).
    pub launches: usize,
    /// Largest error over its bound, as the check before the clock said: at most 1.
    pub error: f64,
    /// Median clock of the multiprocessors in MHz while measuring.
    pub clock_mhz: Option<f64>,
    /// Median power in watts while measuring.
    pub watts: Option<f64>,
    /// Each kernel's figures.
    pub resources: Vec<Resources>,
    /// Of a program of dynamic size: what it and the schedule recommended for this size alone took in turn. The ratio is the time of the
    /// latter over that of the former.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<InTurn>,
}

/// A way of the library's that was faster than its own choice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// How much faster than the library's own choice.
    pub ratio: f64,
    /// Its name and version, and the kernels.
    pub library: String,
}

/// A row's figures with one launch a sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Alone {
    /// Microseconds of ours.
    pub us: f64,
    /// Microseconds of the library.
    pub library_us: Option<f64>,
    /// How fast ours is against the library.
    pub ratio: Option<f64>,
}

impl Row {
    /// The most registers of a thread among the kernels.
    pub fn registers(&self) -> u32 {
        self.resources.iter().map(|r| r.registers).max().unwrap_or(0)
    }

    /// Local memory of a thread over all kernels: 0 in good code.
    pub fn local_bytes(&self) -> u32 {
        self.resources.iter().map(|r| r.local_bytes).sum()
    }

    /// How fast ours is against the fastest of the library's ways.
    pub fn ratio_to_best(&self) -> Option<f64> {
        Some(self.ratio? / self.library_best.as_ref().map_or(1.0, |best| best.ratio))
    }

    /// Whether the ratio reaches a figure once the row's noise is allowed for.
    pub fn reaches(&self, figure: f64) -> bool {
        self.ratio.is_some_and(|ratio| ratio + self.noise >= figure)
    }
}

/// What the samples of ABBA blocks say: `ours` and `library` hold two samples a block, in order of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Summary {
    pub(super) us: f64,
    pub(super) library_us: Option<f64>,
    pub(super) ratio: Option<f64>,
    pub(super) noise: f64,
    pub(super) pairs: usize,
}

pub(super) fn summarise(ours: &[f64], library: &[f64]) -> Summary {
    let ratios: Vec<f64> = ours.iter().zip(library).map(|(a, b)| b / a).collect();
    let selves: Vec<f64> = ours.chunks_exact(2).map(|two| two[0] / two[1]).collect();
    Summary {
        us: median(ours),
        library_us: (!library.is_empty()).then(|| median(library)),
        ratio: (!ratios.is_empty()).then(|| median(&ratios)),
        noise: (median(&selves) - 1.0).abs().max(error_of_median(&selves)),
        pairs: ours.len(),
    }
}

/// The standard error of a median from the median absolute deviation: 1.4826 makes that a standard deviation, and the
/// median of a normal sample strays 1.2533 times as far as its mean.
fn error_of_median(values: &[f64]) -> f64 {
    let middle = median(values);
    let deviations: Vec<f64> = values.iter().map(|v| (v - middle).abs()).collect();
    1.4826 * 1.2533 * median(&deviations) / (values.len().max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_paired() {
        // The clock halves midway: times double for both, and the ratio stays.
        let (ours, library) = ([10.0, 10.0, 20.0, 20.0], [8.0, 8.0, 16.0, 16.0]);
        let summary = summarise(&ours, &library);
        assert_eq!((summary.us, summary.library_us, summary.ratio), (15.0, Some(12.0), Some(0.8)));
        assert_eq!((summary.noise, summary.pairs), (0.0, 4));
    }

    #[test]
    fn noise_is_what_ours_shows_against_ours() {
        let summary = summarise(&[10.0, 11.0, 10.0, 11.0, 10.0, 11.0], &[]);
        approx::assert_relative_eq!(summary.noise, 1.0 - 10.0 / 11.0, max_relative = 1e-12);
        assert_eq!((summary.library_us, summary.ratio), (None, None));
        assert!(error_of_median(&[0.9, 1.0, 1.1]) > 0.05);
    }
}
