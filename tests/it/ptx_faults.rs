//! Damaged PTX: matrix and asynchronous instructions of emitted kernels are removed, get other operands or other
//! numbers. The simulator finds each fault, as an error or as a wrong result, or the fault is one that cannot change a
//! result.

use crate::cases::examples;
use crate::differential::{POLICIES, arguments};
use warploom::kernel::Kernels;
use warploom::lower::lower;
use warploom::machine::{Limits, Mode, Options, run_ptx};
use warploom::{Array, Schedule, codegen};

/// Examples with the sizes that their tiles divide, each with instructions that no other has.
const SUBJECTS: [(&str, [i64; 3]); 10] = [
    ("mma_f16", [128, 128, 96]),
    ("mma_f16_nn", [128, 128, 96]),
    ("mma_s8", [128, 128, 128]),
    ("mma_f16_tma", [128, 128, 448]),
    ("wmma_f16", [128, 128, 64]),
    ("wgmma_f16_staged", [128, 128, 320]),
    ("wgmma_f16_alternate", [256, 128, 320]),
    ("wgmma_f16_registers", [128, 128, 576]),
    ("wgmma_s8", [128, 128, 768]),
    ("worked_example", [256, 512, 256]),
];

/// Instances of the same fault that are tried in a kernel; all where `WARPLOOM_ALL` is set.
const INSTANCES: usize = 2;

/// What cannot change a result: the fault, how the line begins, and why.
const HARMLESS: [(&str, &str, &str); 0] = [];

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

/// The outputs in every order, or the first error.
fn outcomes(kernels: &Kernels, inputs: &[Array]) -> Result<Vec<Vec<Array>>, String> {
    let limits = Limits { statements: 1 << 22, ..Limits::default() };
    let run = |policy| {
        let mut args = inputs.to_vec();
        let options = Options { policy, limits, ..Options::new(Mode::Real) };
        run_ptx(kernels, &options, &mut args).map(|_| args).map_err(|e| format!("[{}] {}", e.code(), e.message()))
    };
    POLICIES.into_iter().map(run).collect()
}

#[test]
fn faults_of_matrix_and_asynchronous_instructions_are_found() {
    let every = std::env::var_os("WARPLOOM_ALL").is_some();
    let (mut found, mut missed, mut by_code) = (0, Vec::new(), std::collections::BTreeMap::<String, usize>::new());
    for (name, size) in SUBJECTS {
        let text = examples().into_iter().find(|e| e.0 == name).expect("an example").1;
        let schedule = Schedule::parse(&text).and_then(|s| s.resized(&size)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let lowered = schedule.scheduled().and_then(|func| lower(&func, &schedule.target));
        let kernels = lowered.and_then(|l| codegen::compile(&l, &schedule.target));
        let kernels = kernels.unwrap_or_else(|e| panic!("{name}: {e}"));
        let inputs = arguments(&schedule.program, |d, s, seed| Array::random_integers(d, s, 3, seed));
        let inputs = inputs.unwrap_or_else(|e| panic!("{name}: {e}"));
        let started = std::time::Instant::now();
        let right = outcomes(&kernels, &inputs).unwrap_or_else(|e| panic!("{name} without a fault: {e}"));
        let lines: Vec<&str> = kernels.text.lines().collect();
        let mut tried = std::collections::BTreeMap::<(String, String), Vec<(usize, String)>>::new();
        for (n, line) in lines.iter().enumerate() {
            for (fault, other) in faults(line.trim()) {
                let opcode = line.trim().split([' ', '\t', ';']).next().unwrap_or("").to_string();
                tried.entry((fault.to_string(), opcode)).or_default().push((n, other));
            }
        }
        for ((fault, opcode), all) in tried {
            let instances = if every { all.len() } else { INSTANCES };
            for (n, other) in all.iter().step_by(all.len().div_ceil(instances)) {
                let mut damaged: Vec<&str> = lines.clone();
                damaged[*n] = other;
                let damaged = Kernels { text: damaged.join("\n") + "\n", ..kernels.clone() };
                match outcomes(&damaged, &inputs) {
                    Ok(after) if after == right => {
                        if !HARMLESS.iter().any(|h| fault == h.0 && opcode.starts_with(h.1)) {
                            missed.push(format!("{name}: {fault}, line {}: {}", n + 1, lines[*n].trim()));
                        }
                    }
                    Ok(_) => {
                        found += 1;
                        *by_code.entry("a wrong result".to_string()).or_default() += 1;
                    }
                    Err(e) => {
                        found += 1;
                        let code = e.split(']').next().unwrap_or("").trim_start_matches('[').to_string();
                        *by_code.entry(code).or_default() += 1;
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
    assert!(found > 300, "only {found} faults were tried");
}
