//! `warploom doctor`: what of LLVM, driver, device and tools is there, and the mend for what is not.

use super::show;
use crate::assemble::Ptxas;
use crate::error::Result;
use crate::loom::Schedule;
use clap::Args;
use serde::Serialize;
use std::process::ExitCode;

/// How to report.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// One finding.
#[derive(Debug, Serialize)]
struct Finding {
    part: &'static str,
    state: State,
    facts: String,
    mends: Vec<String>,
}

/// How a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Good,
    /// What needs it is left out; the rest works.
    Absent,
    Bad,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Good => "good",
            State::Absent => "absent",
            State::Bad => "bad",
        }
    }
}

/// Looks at every part. Fails only if compiling itself does not work.
pub fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let mut findings = vec![compiler(), ptxas()];
    findings.extend(devices());
    if args.json {
        show::line(serde_json::json!({ "warploom": env!("CARGO_PKG_VERSION"), "findings": findings }));
    } else {
        let mut table = show::table(&["part", "state", "facts"]);
        for f in &findings {
            table.add_row([f.part, f.state.name(), &f.facts]);
        }
        show::line(table);
        for f in findings.iter().filter(|f| f.state != State::Good) {
            f.mends.iter().for_each(|mend| show::line(format_args!("{}: try: {mend}", f.part)));
        }
    }
    let broken = findings.iter().any(|f| f.state == State::Bad);
    Ok(if broken { ExitCode::from(4) } else { ExitCode::SUCCESS })
}

/// Compiles a small program: that says more than a version.
fn compiler() -> Finding {
    let text = "vec_add 256\ntarget sm_70\nsplit i ? 128 -> i0 i1\nbind i0 blockIdx.x\nbind i1 threadIdx.x\n";
    let (state, facts, mends) = match Schedule::parse(text).and_then(|s| crate::compile(&s)) {
        Ok(_) => (State::Good, format!("LLVM {} writes PTX", crate::codegen::llvm_version()), Vec::new()),
        Err(e) => (State::Bad, e.to_string(), vec!["build warploom with LLVM 19 (`.ci/setup`)".into()]),
    };
    Finding { part: "compiler", state, facts, mends }
}

fn ptxas() -> Finding {
    match Ptxas::find(None) {
        Ok(found) => {
            let each = |p: &Ptxas| format!("{} at {}", p.version, p.path.display());
            let facts = found.iter().map(each).collect::<Vec<_>>().join("\n");
            Finding { part: "ptxas", state: State::Good, facts, mends: Vec::new() }
        }
        Err(e) => Finding {
            part: "ptxas",
            state: State::Absent,
            facts: format!("{}; only tests and `dump --emit sass` need it", e.message()),
            mends: e.helps().to_vec(),
        },
    }
}

#[cfg(feature = "runtime")]
fn devices() -> Vec<Finding> {
    let probe = crate::runtime::probe();
    let mut out = Vec::new();
    if let Some(d) = &probe.driver {
        let mut facts = format!("{}, for CUDA {}", d.path, d.cuda_version);
        if !d.lacks.is_empty() {
            facts.push_str(&format!("; lacks {}", d.lacks.join(", ")));
        }
        out.push(Finding { part: "driver", state: State::Good, facts, mends: Vec::new() });
    }
    for d in &probe.devices {
        let facts = format!(
            "{}: {}, sm_{}, {} multiprocessors, {} GiB, {} KiB shared memory a block",
            d.ordinal,
            d.name,
            d.sm(),
            d.multiprocessors,
            d.memory_bytes >> 30,
            d.shared_per_block >> 10
        );
        out.push(Finding { part: "device", state: State::Good, facts, mends: Vec::new() });
    }
    for t in probe.troubles {
        out.push(Finding { part: "device", state: State::Absent, facts: t.message, mends: t.mends });
    }
    out
}

#[cfg(not(feature = "runtime"))]
fn devices() -> Vec<Finding> {
    let mends = vec!["build with feature `runtime` to run on a GPU".to_string()];
    vec![Finding { part: "device", state: State::Absent, facts: "built without feature `runtime`".into(), mends }]
}
