//! `.loc` lines: they change no instruction, every line is one of the lowered text, and instructions that name themselves lead to
//! the statement that asks for them.

use super::cli::{bad, good};
use super::handmade;
use super::ptxas::tools;
use super::sample::drawn;
use std::path::Path;
use warploom::artifact::Artifact;
use warploom::assemble;
use warploom::codegen::{compile, compile_with_lines};
use warploom::lower::{self, Lowered, lower};
use warploom::sim::{Mode, Options, run_ptx};
use warploom::{Array, Kernels, Schedule, Target};

fn example(name: &str) -> (Lowered, Target) {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)).unwrap();
    let schedule = Schedule::parse(&text).unwrap();
    (lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap(), schedule.target)
}

/// A quarter of the examples, as the commit draws them for a test, and one in every run: names and lowered programs.
fn examples(test: &str) -> Vec<(String, Lowered, Target)> {
    let mut names: Vec<String> = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".loom"))
        .filter(|name| name == "gpu_v3.loom" || drawn(&format!("{test} {name}"), 4))
        .collect();
    names.sort();
    let of = |name: String| {
        let (lowered, target) = example(&name);
        (name, lowered, target)
    };
    names.into_iter().map(of).collect()
}

fn with_lines(lowered: &Lowered, target: &Target) -> Kernels {
    compile_with_lines(lowered, target, "program.lowered").unwrap()
}

/// The PTX without what `--lines` adds.
fn stripped(ptx: &str) -> String {
    let added = |l: &&str| l.trim_start().starts_with(".loc\t") || l.trim_start().starts_with(".file\t");
    ptx.lines().filter(|l| !added(l)).map(|l| format!("{l}\n")).collect()
}

/// The instructions of a PTX, each with the number of the line that it comes from; 0 where the text says none.
fn located(ptx: &str) -> Vec<(usize, &str)> {
    let mut line = 0;
    let mut out = Vec::new();
    for text in ptx.lines().map(str::trim) {
        match text.strip_prefix(".loc\t") {
            Some(numbers) => line = numbers.split_whitespace().nth(1).unwrap().parse().unwrap(),
            None => out.push((line, text)),
        }
    }
    out
}

#[test]
fn lines_change_no_instruction() {
    for (name, lowered, target) in examples("no instruction") {
        let (plain, lines) = (compile(&lowered, &target).unwrap(), with_lines(&lowered, &target));
        assert_eq!(stripped(&lines.text).trim_end(), plain.text.trim_end(), "{name}");
        assert_eq!(lines.text.matches("\t.file\t1 \"program.lowered\"\n").count(), 1, "{name}");
    }
    for lowered in handmade::all() {
        let target = Target::sm_80();
        let lines = with_lines(&lowered, &target);
        assert_eq!(stripped(&lines.text).trim_end(), compile(&lowered, &target).unwrap().text.trim_end());
    }
}

#[test]
fn every_line_is_a_statement_or_the_head_of_a_kernel() {
    for (name, lowered, target) in examples("every line") {
        let text = lower::print(&lowered);
        let lines: Vec<&str> = text.lines().collect();
        let ptx = with_lines(&lowered, &target).text;
        let mut used = std::collections::BTreeSet::new();
        for (line, instruction) in located(&ptx).into_iter().filter(|(line, _)| *line > 0) {
            let source = lines.get(line - 1).unwrap_or_else(|| panic!("{name}: line {line} of {}", lines.len()));
            assert!(
                source.starts_with("func ") || source.starts_with("  "),
                "{name}: `{instruction}` leads to `{source}`"
            );
            used.insert(line);
        }
        // A statement that stores to memory, copies, multiplies or waits has instructions of its own.
        for (n, source) in lines.iter().enumerate().filter(|(_, l)| l.trim_start().starts_with("bulk ")) {
            assert!(used.contains(&(n + 1)), "{name}: no instruction leads to `{source}`");
        }
        assert!(used.len() >= 2, "{name}: {used:?}");
    }
}

#[test]
fn instructions_lead_to_the_statement_that_names_them() {
    let table: [(&str, &[(&str, &str)]); 4] = [
        ("gpu_v3.loom", &[("bar.sync", "barrier")]),
        ("mma_f16.loom", &[("mma.sync", "mma.m16n8k16"), ("ldmatrix.", "ldmatrix."), ("bar.sync", "barrier")]),
        ("gemm_cp_async.loom", &[("cp.async.cg", "async "), ("cp.async.commit_group", "commit_group")]),
        (
            "worked_example.loom",
            &[
                ("wgmma.mma_async", "wgmma.m64n256k16"),
                ("wgmma.commit_group", "wgmma_commit"),
                ("stmatrix", "stmatrix"),
                ("mbarrier.try_wait", "mbarrier.wait"),
                ("mbarrier.arrive.expect_tx", "mbarrier.expect_tx"),
                ("cp.async.bulk.tensor", "bulk "),
                ("fence.proxy.async", "proxy_fence"),
            ],
        ),
    ];
    for (name, pairs) in table {
        let (lowered, target) = example(name);
        let text = lower::print(&lowered);
        let lines: Vec<&str> = text.lines().collect();
        let ptx = with_lines(&lowered, &target).text;
        let all = located(&ptx);
        for (instruction, statement) in pairs {
            let found: Vec<_> = all.iter().filter(|(_, text)| names(text, instruction)).collect();
            assert!(!found.is_empty(), "{name}: no {instruction} in\n{ptx}");
            for (line, text) in found {
                let source = lines.get(line.wrapping_sub(1)).unwrap_or(&"");
                assert!(
                    source.trim_start().starts_with(statement),
                    "{name}: `{text}` leads to line {line}, `{source}`"
                );
            }
        }
    }
}

/// Whether a line of PTX is that instruction, guarded or not, and no comment.
fn names(text: &str, instruction: &str) -> bool {
    let code = text.split("//").next().unwrap_or("");
    code.split_whitespace().any(|word| word.starts_with(instruction))
}

/// For each example the commit draws among the versions of ptxas. Of the examples behind the first it draws a third.
#[test]
fn ptxas_makes_the_same_machine_code_and_names_the_lines() {
    let names =
        ["vec_add.loom", "gpu_v3.loom", "gemm_cp_async.loom", "mma_f16.loom", "wmma_s8.loom", "worked_example.loom"];
    for name in names.into_iter().filter(|name| *name == names[0] || drawn(&format!("lines of {name}"), 3)) {
        let (lowered, target) = example(name);
        let (plain, lines) = (compile(&lowered, &target).unwrap(), with_lines(&lowered, &target));
        let is_tried = |version: &str| name == names[0] || drawn(&format!("{name} {version}"), 2);
        for ptxas in tools().iter().filter(|p| p.knows(target.name) && is_tried(&p.version)) {
            let of = |kernels: &Kernels| {
                ptxas.assemble(&kernels.text, target.name).unwrap_or_else(|e| panic!("{name}: {e}"))
            };
            let (without, with) = (of(&plain), of(&lines));
            assert_eq!((&without.usage, &without.warnings), (&with.usage, &with.warnings), "{name}, {}", ptxas.version);
            let sass = |cubin: &[u8]| assemble::sass(cubin).unwrap();
            assert_eq!(sass(&without.cubin), sass(&with.cubin), "{name}, ptxas {}", ptxas.version);
            let text = assemble::sass_with_lines(&with.cubin).unwrap();
            assert!(text.contains("program.lowered\", line "), "{name}, ptxas {}:\n{text}", ptxas.version);
        }
    }
}

#[test]
fn the_simulator_reads_ptx_with_lines() {
    let lowered = handmade::vec_add();
    let kernels = with_lines(&lowered, &Target::sm_80());
    let mut args: Vec<Array> = kernels
        .args
        .iter()
        .map(|a| Array::zeros(a.dtype, &[a.shape.iter().product::<i64>() as usize]).unwrap())
        .collect();
    run_ptx(&kernels, &Options::new(Mode::Real), &mut args).unwrap();
}

#[test]
fn dump_writes_the_lowered_text_beside_the_ptx() {
    let folder = std::env::temp_dir().join(format!("warploom-{}-lines", std::process::id()));
    let name = folder.to_str().unwrap();
    good(&["dump", "examples/mma_f16.loom", "--out", name, "--lines"]);
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    let ptx = Artifact::read(&folder).unwrap().variants[0].kernels.ptx().to_string();
    let text = read("gemm.lowered");
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(text, good(&["dump", "examples/mma_f16.loom", "--emit", "lowered"]));
    assert!(ptx.contains("\t.file\t1 \"gemm.lowered\"\n") && ptx.contains("\t.loc\t1 "), "{ptx}");
    assert_eq!(ptx, good(&["dump", "examples/mma_f16.loom", "--emit", "ptx", "--lines"]));
    let (status, error) = bad(&["dump", "examples/mma_f16.loom", "--emit", "ir", "--lines"]);
    assert!(status == Some(2) && error.contains("[cli.lines]"), "{error}");
}
