//! `warploom sweep`: seed 003's search over block tiles, thread tiles and loop patterns, and its tables.

use super::show;
use crate::error::{Error, Result};
use crate::loom::Schedule;
use crate::target::Target;
use clap::Args;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// What to sweep over.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// Sizes of the square matrices.
    #[arg(long, value_delimiter = ',', default_values_t = [512, 1024])]
    sizes: Vec<i64>,
    /// Compile for this chip; the device's own where one is used.
    #[arg(long, value_name = "sm_XX")]
    target: Option<String>,
    /// Where to measure: a device's number, or `none` to compile only.
    #[arg(long, default_value = "0")]
    device: String,
    /// One line of JSON for each configuration instead of tables.
    #[arg(long)]
    json: bool,
}

/// The seed's lists.
const BLOCK_TILES: [[i64; 3]; 5] = [[32, 32, 32], [32, 64, 32], [64, 32, 32], [64, 64, 32], [64, 64, 64]];
const THREAD_TILES: [[i64; 2]; 5] = [[2, 2], [4, 4], [4, 8], [8, 4], [8, 8]];

/// Where the k loops stand among the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pattern {
    Standard,
    AfterThreads,
    Innermost,
}

impl Pattern {
    const ALL: [Pattern; 3] = [Pattern::Standard, Pattern::AfterThreads, Pattern::Innermost];

    fn name(self) -> &'static str {
        match self {
            Pattern::Standard => "standard",
            Pattern::AfterThreads => "k_after_threads",
            Pattern::Innermost => "k_innermost",
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Pattern::Standard => "k loops first",
            Pattern::AfterThreads => "k loops after the thread loops",
            Pattern::Innermost => "k in the innermost loop",
        }
    }

    fn order(self) -> &'static str {
        match self {
            Pattern::Standard => "i_block j_block k_outer k_inner i_thread j_thread i_elem j_elem",
            Pattern::AfterThreads => "i_block j_block i_thread j_thread k_outer k_inner i_elem j_elem",
            Pattern::Innermost => "i_block j_block i_thread j_thread k_outer i_elem j_elem k_inner",
        }
    }
}

/// One point of the sweep.
#[derive(Debug, Clone, Copy)]
struct Config {
    n: i64,
    block: [i64; 3],
    thread: [i64; 2],
    pattern: Pattern,
}

impl Config {
    fn all(sizes: &[i64]) -> Vec<Config> {
        let mut out = Vec::new();
        for &n in sizes {
            for block in BLOCK_TILES {
                for thread in THREAD_TILES {
                    out.extend(Pattern::ALL.map(|pattern| Config { n, block, thread, pattern }));
                }
            }
        }
        out
    }

    fn threads(&self) -> i64 {
        self.block[0] / self.thread[0] * (self.block[1] / self.thread[1])
    }

    fn schedule(&self, target: Target) -> Result<Schedule> {
        let Config { n, block: [bm, bn, bk], thread: [tm, tn], pattern } = *self;
        let text = format!(
            "gemm {n}x{n}x{n} f32 NN\ntarget {target}\n\
             split i ? {bm} -> i_block i_rest; split j ? {bn} -> j_block j_rest; split k ? {bk} -> k_outer k_inner\n\
             split i_rest {} ? -> i_thread i_elem; split j_rest {} ? -> j_thread j_elem\n\
             reorder {}\n\
             bind i_block blockIdx.x; bind j_block blockIdx.y; bind i_thread threadIdx.x; bind j_thread threadIdx.y\n",
            bm / tm,
            bn / tn,
            pattern.order(),
        );
        Schedule::parse(&text)
    }

    fn block_name(&self) -> String {
        self.block.map(|x| x.to_string()).join("x")
    }

    fn thread_name(&self) -> String {
        self.thread.map(|x| x.to_string()).join("x")
    }
}

/// What became of a configuration.
enum Outcome {
    Invalid(Error),
    Compiled,
    Measured { gflops: f64 },
}
