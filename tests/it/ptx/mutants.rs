//! Damaged PTX of small kernels: each mutant is refused, stopped, gives another result, or is shown to do the same.
//!
//! A mutant does the same if the damaged instruction writes the same in every thread, or if every access of memory, every
//! conditional branch and every barrier of every thread is the same. It is shown for instructions that data do not reach: what they
//! write, damaged or not, is the same for two sets of random inputs. The mutants that are left are in [`SURVIVORS`], each with its
//! reason.

use super::damage::{Mutant, mutants};
use super::options;
use crate::differential::arguments;
use crate::lower::GEMM;
use warploom::error::Code;
use warploom::sim::{Limits, Options, Policy, run_ptx, run_ptx_traced};
use warploom::{Array, Kernels, Schedule, compile};

/// Programs whose instructions all matter at their size.
fn corpus() -> Vec<(&'static str, String)> {
    let example = |name: &str| {
        let path = super::super::scan::root().join("examples").join(format!("{name}.loom"));
        std::fs::read_to_string(path).unwrap()
    };
    let sized = |name: &str, size: &[i64]| Schedule::parse(&example(name)).unwrap().resized(size).unwrap().to_string();
    vec![
        ("vec_add", sized("vec_add", &[333])),
        ("window_sum", sized("window_sum", &[333])),
        ("window_sum_shared", sized("window_sum_shared", &[384])),
        ("gpu_naive", sized("gpu_naive", &[3, 64, 7])),
        ("gpu_v2", sized("gpu_v2", &[3, 64, 7])),
        ("gpu_v3", sized("gpu_v3", &[16, 16, 24])),
        ("copies", format!("{}copy_with A_s B_s cp_async\n", GEMM.replace("64x64x64", "32x32x16"))),
        (
            "select",
            "program prefix\ninput A f32[8, 2, 24]\ninput C f32[24]\n\
             output B[i 8, j 2, k 24] f32 = select(k < 16, A[i, j, k], 0) + C[k]\n\
             target sm_90\nbind i threadIdx.x; bind j blockIdx.x; bind k threadIdx.y\n"
                .to_string(),
        ),
    ]
}

/// Kernels whose every mutant runs in CI; of the others every 16th does.
const SMALL: [&str; 4] = ["vec_add", "window_sum", "select", "gpu_v2"];

/// Mutants that nothing finds: the kernel (or any), the change, and why the program is right with it.
const SURVIVORS: [(&str, &str, &str); 2] = [
    ("", "`bar.sync 0;` -> `bar.sync 1;`", "a barrier of all threads of the block has any number"),
    (
        "window_sum_shared",
        "`setp.eq.s32 %p1, %r2, 0;` -> `setp.eq.s32 %p1, %r2, 1;`",
        "any one thread may fill the staged buffer",
    ),
];

/// What becomes of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Refused,
    Stopped,
    Wrong,
    Same,
    Survives,
}

struct Subject {
    kernels: Kernels,
    args: Vec<Array>,
    others: Vec<Array>,
    right: Vec<Array>,
}

impl Subject {
    fn new(text: &str) -> Subject {
        let schedule = Schedule::parse(text).unwrap();
        let kernels = compile(&schedule).unwrap();
        let args = arguments(&schedule.program, Array::random).unwrap();
        let others = arguments(&schedule.program, |d, s, seed| Array::random(d, s, seed + 100)).unwrap();
        let mut right = args.clone();
        run_ptx(&kernels, &options(Policy::InOrder), &mut right).unwrap();
        Subject { kernels, args, others, right }
    }

    /// A mutant may loop: it has a few times the instructions that these kernels run.
    fn limited(policy: Policy) -> Options {
        options(policy).with_limits(Limits { statements: 1 << 21, ..Limits::default() })
    }

    /// What the instruction on a line, or all accesses, do for two sets of inputs.
    fn digests(&self, kernels: &Kernels, line: Option<u32>) -> [u64; 2] {
        let options = Subject::limited(Policy::InOrder);
        [&self.args, &self.others]
            .map(|args| run_ptx_traced(kernels, &options, &mut args.clone(), line).map_or(u64::MAX, |run| run.1))
    }

    fn does_the_same(&self, damaged: &Kernels, line: u32) -> bool {
        let (own, other) = (self.digests(&self.kernels, Some(line)), self.digests(damaged, Some(line)));
        let without_data = own[0] == own[1] && other[0] == other[1];
        without_data && (own == other || self.digests(&self.kernels, None) == self.digests(damaged, None))
    }

    fn judge(&self, mutant: &Mutant) -> Verdict {
        let mut damaged = self.kernels.clone();
        damaged.text.clone_from(&mutant.text);
        for policy in [Policy::InOrder, Policy::Reverse, Policy::Random(1), Policy::Random(2)] {
            let mut args = self.args.clone();
            match run_ptx(&damaged, &Subject::limited(policy), &mut args) {
                Err(e) if [Code::PtxParse, Code::PtxOperand, Code::PtxUnknown].contains(&e.code()) => {
                    return Verdict::Refused;
                }
                Err(_) => return Verdict::Stopped,
                Ok(_) if args.iter().zip(&self.right).any(|(a, b)| a.bytes != b.bytes) => return Verdict::Wrong,
                Ok(_) => {}
            }
        }
        let same = self.does_the_same(&damaged, mutant.line);
        if same { Verdict::Same } else { Verdict::Survives }
    }
}

#[test]
fn damaged_ptx_is_found_or_does_the_same() {
    let all = crate::sample::everything();
    let (mut counts, mut left, mut used) = ([0usize; 5], Vec::new(), vec![false; SURVIVORS.len()]);
    for (name, text) in corpus() {
        let subject = Subject::new(&text);
        let step = if all || SMALL.contains(&name) { 1 } else { 16 };
        for mutant in mutants(&subject.kernels.text).iter().step_by(step) {
            let verdict = subject.judge(mutant);
            counts[verdict as usize] += 1;
            if verdict == Verdict::Survives {
                let known = SURVIVORS.iter().position(|(n, w, _)| (n.is_empty() || *n == name) && mutant.what == *w);
                match known {
                    Some(known) => used[known] = true,
                    None => left.push(format!("{name}, line {}: {}", mutant.line, mutant.what)),
                }
            }
        }
    }
    assert!(left.is_empty(), "{} mutants are not found ({counts:?}):\n{}", left.len(), left.join("\n"));
    assert!(!all || used.iter().all(|u| *u), "a reason of SURVIVORS excuses nothing: {used:?}");
    // Refused, stopped, wrong, the same: most are found.
    let found = counts[0] + counts[1] + counts[2];
    assert!(found > 600 && counts[Verdict::Same as usize] * 10 < found, "{counts:?}");
}
