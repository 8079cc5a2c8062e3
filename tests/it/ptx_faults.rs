//! Damaged PTX: matrix and asynchronous instructions of emitted kernels are removed, get other operands or other
//! numbers. The simulator finds each fault, as an error or as a wrong result, or the fault is one that cannot change a
//! result.

use crate::cases::examples;
use crate::differential::{POLICIES, arguments};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use warploom::kernel::Kernels;
use warploom::lower::lower;
use warploom::sim::{Limits, Mode, Options, Policy, run_ptx};
use warploom::{Array, Schedule, codegen};

/// Examples with the sizes that their tiles divide, each with instructions that no other has. The last one, a
/// cluster's, takes a minute: it is tried where `WARPLOOM_ALL` is set.
const SUBJECTS: [(&str, [i64; 3]); 10] = [
    ("mma_f16", [128, 128, 96]),
    ("mma_f16_nn", [128, 128, 96]),
    ("mma_s8", [128, 128, 128]),
    ("mma_f16_tma", [128, 128, 448]),
    ("wmma_f16", [128, 128, 64]),
    ("wgmma_f16_staged", [128, 128, 320]),
    ("wgmma_f16_pingpong", [256, 128, 320]),
    ("wgmma_f16_registers", [128, 128, 576]),
    ("wgmma_s8", [128, 128, 768]),
    ("worked_example", [256, 512, 256]),
];

/// Instances of the same fault that are tried in a kernel; twice as many where `WARPLOOM_ALL` is set.
const INSTANCES: usize = 1;

/// What cannot change a result: the example, the fault, the instruction, and why.
const HARMLESS: [(&str, &str, &str, &str); 8] = [
    ("wgmma_f16_staged", "one group more", "cp.async.wait_group", "the first of three groups has all that is read"),
    (
        "wgmma_f16_staged",
        "removed",
        "cp.async.commit_group",
        "the next group has its copies, and is waited for as early",
    ),
    ("wgmma_f16_staged", "removed", "wgmma.fence", "nothing touches the accumulators between two wgmmas"),
    ("wgmma_f16_pingpong", "removed", "bar.warp.sync", WAITED),
    ("wgmma_s8", "removed", "bar.warp.sync", WAITED),
    ("worked_example", "removed", "bar.warp.sync", WAITED),
    ("wgmma_f16_registers", "removed", "cp.async.bulk.commit_group", STORED),
    ("wgmma_s8", "removed", "cp.async.bulk.commit_group", STORED),
];
const WAITED: &str = "the warp has just waited for its wgmmas with all its lanes (.sync.aligned)";
const STORED: &str = "the next group has the store, and its buffer is not written before that is waited for";

/// A fault: its name, and the line that takes the place of another.
type Fault = (&'static str, String);

/// The line without what an instruction does.
fn removed(line: &str) -> Option<Fault> {
    let removable = [
        "bar.sync",
        "bar.warp.sync",
        "cp.async",
        "fence.",
        "mbarrier.init",
        "mbarrier.arrive",
        "wgmma.",
        "setmaxnreg.dec",
        "mma.sync",
        "ldmatrix",
        "stmatrix",
        "wmma.",
        "barrier.cluster",
        "{ .reg .b32 there; mapa",
    ];
    if line.starts_with("mbarrier.try_wait") || line.starts_with("mbarrier.test_wait") {
        return Some(("passed", "setp.eq.u32 over, 0, 0;".to_string()));
    }
    let prefetch = line.starts_with("cp.async.bulk.prefetch");
    (!prefetch && removable.iter().any(|r| line.starts_with(r))).then(|| ("removed", String::new()))
}

/// The n-th list of registers with its first two exchanged.
fn exchanged(line: &str, n: usize) -> Option<String> {
    let (start, _) = line.match_indices('{').nth(n)?;
    let end = start + line[start..].find('}')?;
    let mut parts: Vec<&str> = line[start + 1..end].split(',').map(str::trim).collect();
    if parts.len() < 2 || parts[0] == parts[1] {
        return None;
    }
    parts.swap(0, 1);
    Some(format!("{}{}{}", &line[..=start], parts.join(", "), &line[end..]))
}

/// The last number of a line by so much larger.
fn counted(line: &str, by: i64) -> Option<String> {
    let end = line.rfind(|c: char| c.is_ascii_digit())? + 1;
    let start = line[..end].rfind(|c: char| !c.is_ascii_digit())? + 1;
    if !line[..start].ends_with(' ') {
        return None;
    }
    let number: i64 = line[start..end].parse().ok()?;
    Some(format!("{}{}{}", &line[..start], number + by, &line[end..]))
}

/// The faults of a line.
fn faults(line: &str) -> Vec<Fault> {
    if line.starts_with("//") {
        return Vec::new();
    }
    let mut out: Vec<Fault> = removed(line).into_iter().collect();
    let mut add = |name, text: Option<String>| out.extend(text.map(|t| (name, t)));
    if line.starts_with("mma.sync") || line.starts_with("wgmma.mma_async") {
        add("D exchanged", exchanged(line, 0));
    }
    if line.starts_with("mma.sync") || line.starts_with("wgmma.mma_async") && line.matches('{').count() == 2 {
        add("A exchanged", exchanged(line, 1));
    }
    if line.starts_with("mma.sync") {
        add("B exchanged", exchanged(line, 2));
    }
    if line.starts_with("ldmatrix") || line.starts_with("stmatrix") {
        let other =
            if line.contains(".trans") { line.replace(".trans", "") } else { line.replace(".shared", ".trans.shared") };
        add("trans", Some(other));
        add("matrices exchanged", exchanged(line, 0));
    }
    if line.starts_with("cp.async.bulk.tensor") {
        add("coordinates exchanged", exchanged(line, 0));
    }
    if line.starts_with("mbarrier.arrive.expect_tx") {
        add("more bytes", counted(line, 16));
        add("fewer bytes", counted(line, -16));
    }
    if line.starts_with("setmaxnreg") {
        add("more registers", counted(line, 8));
    }
    if line.contains("wait_group") {
        add("one group more", counted(line, 1));
    }
    if line.starts_with("add.u32 A_low") || line.starts_with("add.u32 B_low") {
        add("next chunk", counted(line, 1));
    }
    if line.starts_with("mov.b64 A_tile") || line.starts_with("mov.b64 B_tile") {
        // The lowest bit of the stride, and the swizzle.
        add("other stride", counted(line.trim_end_matches("};"), 1).map(|l| l + "};"));
        add("other swizzle", Some(line.replace("10737", "21474")).filter(|l| l != line));
    }
    if line.starts_with("wgmma.mma_async") && line.trim_end().ends_with(", 1, 1, 0, 0;") {
        add("other major", Some(line.replace(", 1, 1, 0, 0;", ", 1, 1, 0, 1;")));
        add("negated", Some(line.replace(", 1, 1, 0, 0;", ", -1, 1, 0, 0;")));
    }
    out
}

/// The lines of a text, each mma.sync and each wmma as one.
fn lines(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for line in text.lines() {
        let is_open = |last: &&mut String| {
            ["mma.sync", "wmma."].iter().any(|i| last.trim_start().starts_with(i)) && !last.ends_with(';')
        };
        match out.last_mut().filter(is_open) {
            Some(last) => *last += line.trim(),
            None => out.push(line.to_string()),
        }
    }
    out
}

/// The outputs in an order, or the error.
fn outcome(kernels: &Kernels, inputs: &[Array], policy: Policy) -> Result<Vec<Array>, String> {
    let limits = Limits { statements: 1 << 22, ..Limits::default() };
    let mut args = inputs.to_vec();
    let options = Options::new(Mode::Real).with_policy(policy).with_limits(limits);
    run_ptx(kernels, &options, &mut args).map(|_| args).map_err(|e| e.code().to_string())
}

/// How damaged kernels are found: the error, or that a result is wrong.
fn verdict(kernels: &Kernels, inputs: &[Array], right: &[Array]) -> Option<String> {
    POLICIES.into_iter().find_map(|policy| match outcome(kernels, inputs, policy) {
        Ok(after) => (after != right).then(|| "a wrong result".to_string()),
        Err(code) => Some(code),
    })
}

#[test]
fn faults_of_matrix_and_asynchronous_instructions_are_found() {
    let every = crate::sample::everything();
    let (mut found, mut missed, mut by_code) = (0, Vec::new(), BTreeMap::<String, usize>::new());
    let mut excused = BTreeSet::new();
    for (name, size) in SUBJECTS.into_iter().take(if every { SUBJECTS.len() } else { SUBJECTS.len() - 1 }) {
        let text = examples().into_iter().find(|e| e.0 == name).expect("an example").1;
        let schedule = Schedule::parse(&text).and_then(|s| s.resized(&size)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let lowered = schedule.scheduled().and_then(|func| lower(&func, &schedule.target));
        let kernels = lowered.and_then(|l| codegen::compile(&l, &schedule.target));
        let kernels = kernels.unwrap_or_else(|e| panic!("{name}: {e}"));
        let inputs = arguments(&schedule.program, |d, s, seed| Array::random_integers(d, s, 3, seed));
        let inputs = inputs.unwrap_or_else(|e| panic!("{name}: {e}"));
        let started = Instant::now();
        let right = outcome(&kernels, &inputs, POLICIES[0]).unwrap_or_else(|e| panic!("{name} without a fault: {e}"));
        assert_eq!(verdict(&kernels, &inputs, &right), None, "{name} without a fault");
        let lines = lines(&kernels.text);
        let mut tried = BTreeMap::<(String, String), Vec<(usize, String)>>::new();
        for (n, line) in lines.iter().enumerate() {
            for (fault, other) in faults(line.trim()) {
                let opcode = line.trim().split([' ', '\t', ';', '{', '[']).next().unwrap_or("").to_string();
                tried.entry((fault.to_string(), opcode)).or_default().push((n, other));
            }
        }
        for ((fault, opcode), all) in tried {
            let instances = if every { 2 * INSTANCES } else { INSTANCES };
            for (n, other) in all.iter().step_by(all.len().div_ceil(instances)) {
                let mut damaged = lines.clone();
                damaged[*n].clone_from(other);
                let text = damaged.join("\n") + "\n";
                let mut damaged = kernels.clone();
                damaged.text = text;
                match verdict(&damaged, &inputs, &right) {
                    Some(how) if ["ptx.parse", "ptx.operand", "ptx.unknown"].contains(&how.as_str()) => {
                        missed.push(format!("{name}: {fault}, line {}, is no PTX any more: {other}", n + 1));
                    }
                    Some(how) => {
                        found += 1;
                        *by_code.entry(how).or_default() += 1;
                    }
                    None => {
                        let alike =
                            |h: &(&str, &str, &str, &str)| h.0 == name && h.1 == fault && opcode.starts_with(h.2);
                        match HARMLESS.iter().find(|h| alike(h)) {
                            Some(reason) => drop(excused.insert(reason)),
                            None => missed.push(format!("{name}: {fault}, line {}: {}", n + 1, lines[*n].trim())),
                        }
                    }
                }
            }
        }
        println!("{name}: {found} faults found so far, {:.1} s", started.elapsed().as_secs_f64());
    }
    println!("{found} faults are found: {by_code:?}");
    assert!(
        missed.is_empty(),
        "{} of {} faults are not found:\n{}",
        missed.len(),
        found + missed.len(),
        missed.join("\n")
    );
    assert!(found > 120, "only {found} faults were tried");
    let stale: Vec<_> = HARMLESS.iter().filter(|h| every && !excused.contains(h)).collect();
    assert!(stale.is_empty(), "these faults are found, or are not there any more: {stale:?}");
}
