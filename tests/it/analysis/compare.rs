//! A cost report against what the simulator counted.

use warploom::analysis::{Cost, CostReport, Counted, Observed, Ran};

/// Whether each access and each statement was counted as it ran: those that depend on data at most as was said, all others
/// exactly so.
pub fn compare(report: &CostReport, ran: &Ran) -> Result<(), String> {
    let mut counted = 0;
    for (kernel, k) in report.kernels.iter().enumerate() {
        // Which addresses an index from data stands for is known to no report.
        let looked_up = |why: &String| why.ends_with("an index of it is a datum");
        if !k.uncounted.iter().all(looked_up) {
            return Err(format!("not counted: {:?}", k.uncounted));
        }
        for a in &k.accesses {
            let (cost, ideal) = a.cost.total();
            let mut said = Observed { requests: a.requests, cost, ideal, ..Observed::default() };
            match a.cost {
                Cost::Box { bytes, lines, ideal_lines, .. } => (said.bytes, said.lines) = (bytes, [lines, ideal_lines]),
                Cost::Engine { bytes } => said.bytes = bytes,
                Cost::Shared { degree, .. } => said.degree = degree,
                Cost::Global { .. } => {}
                ref other => return Err(format!("nothing compares {other:?}")),
            }
            let ran = ran.accesses.get(&(kernel, a.number));
            counted += usize::from(ran.is_some());
            let ran = ran.copied().unwrap_or_default();
            let same = match a.method {
                Counted::Exact => said == ran,
                Counted::EveryLane => ran.requests <= said.requests,
                Counted::Not => !k.uncounted.is_empty(),
                _ => false,
            };
            if !same {
                let what = format!("{} of {} in line {}, {:?}", a.kind, a.text, a.line, a.method);
                return Err(format!("{what}: counted {said:?}, ran {ran:?}"));
            }
        }
    }
    if counted != ran.accesses.len() {
        return Err("an access is not in the cost report".to_string());
    }
    statements(report, ran)
}

/// How often each statement runs, and the bytes that are under way to a block at one time, at most.
fn statements(report: &CostReport, ran: &Ran) -> Result<(), String> {
    for (kernel, k) in report.kernels.iter().enumerate() {
        for (number, s) in k.statements.iter().enumerate() {
            let ran = ran.statements.get(&(kernel, number as u32)).copied().unwrap_or_default();
            if ran.warps > s.runs.warps || ran.threads > s.runs.threads || (s.exact && ran != s.runs) {
                return Err(format!("statement {number}, {}: counted {:?}, ran {ran:?}", s.what, s.runs));
            }
        }
        let most = ran.in_flight.get(&kernel).copied().unwrap_or(0);
        if most > k.bytes_in_flight || (most == 0) != (k.bytes_in_flight == 0) {
            return Err(format!("{} bytes in flight counted, {most} ran", k.bytes_in_flight));
        }
    }
    let counted: usize = report.kernels.iter().map(|k| k.statements.len()).sum();
    if ran.statements.len() <= counted { Ok(()) } else { Err("a statement is not in the cost report".to_string()) }
}
