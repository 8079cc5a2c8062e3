//! A certificate as text: figures of each kernel, then the lowered program with what every access costs below its line.

use super::report::{
    AccessCertificate, Advice, Bounds, Certificate, Compiled, Cost, Counted, KernelCertificate, Traffic,
};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The certificate of a program; `lowered` is the program as [`crate::lower::print`] prints it.
pub fn print(certificate: &Certificate, lowered: &str) -> String {
    let mut out = format!("{} for {}\n", certificate.program, certificate.target);
    for kernel in &certificate.kernels {
        out.push('\n');
        figures(&mut out, certificate, kernel);
    }
    out.push('\n');
    listing(&mut out, certificate, lowered);
    for line in &certificate.assumes {
        let _ = write!(out, "\nnote: {line}");
    }
    out.push('\n');
    out
}

/// A number in groups of three digits.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A ratio with the digits that say something.
fn ratio(x: f64) -> String {
    if x >= 100.0 || x == x.trunc() { format!("{x:.0}") } else { format!("{x:.2}") }
}

fn figures(out: &mut String, certificate: &Certificate, k: &KernelCertificate) {
    let [gx, gy, gz] = k.grid;
    let [bx, by, bz] = k.block;
    let _ = writeln!(out, "kernel {}: grid {gx} x {gy} x {gz}, block {bx} x {by} x {bz} ({} warps)", k.name, k.warps);
    let mut row = |name: &str, text: String| {
        let _ = writeln!(out, "  {name:14} {text}");
    };
    row("shared memory", format!("{} bytes", grouped(k.shared_bytes.into())));
    row("registers", registers(k));
    let o = &k.occupancy;
    let resident = format!("{} blocks, {} of {} warps a multiprocessor", o.blocks, o.warps, o.max_warps);
    row("occupancy", format!("{resident}, limited by {}", o.limited_by));
    let device = &certificate.device;
    let waves =
        k.waves.map_or("none fits".to_string(), |w| if w < 0.1 { format!("{w:.4}") } else { format!("{w:.2}") });
    row("waves", format!("{waves} on {} multiprocessors ({})", device.multiprocessors, device.name));
    traffic(&mut row, k);
    let t = &k.totals;
    let fused =
        if t.traffic.fma > 0 { format!(", two in each of {} fma", grouped(t.traffic.fma)) } else { String::new() };
    row("arithmetic", format!("{} operations{fused}", grouped(t.operations)));
    if let (Some(moved), Some(held)) = (t.operations_per_global_byte, t.operations_per_argument_byte) {
        let compiled = k.compiled.as_ref().and_then(|c| c.traffic.as_ref());
        let left = compiled.and_then(|c| c.per_global_byte(t.operations));
        let left = left.map_or(String::new(), |r| format!(" ({} in the PTX)", ratio(r)));
        row(
            "intensity",
            format!("{} operations a byte moved{left}, {} a byte of arguments", ratio(moved), ratio(held)),
        );
    }
}

/// Requests and their cost, of the lowered program and of its PTX.
fn traffic(row: &mut impl FnMut(&str, String), k: &KernelCertificate) {
    let lowered = &k.totals.traffic;
    let compiled = k.compiled.as_ref().and_then(|c| c.traffic.as_ref());
    let mut line = |name: &str, unit: &str, of: fn(&Traffic) -> (u64, u64)| {
        if of(lowered).0 == 0 {
            return;
        }
        let words = |(n, cost): (u64, u64)| format!("{} requests, {} {unit}", grouped(n), grouped(cost));
        let left = compiled.map_or(String::new(), |c| format!("; in the PTX {}", words(of(c))));
        row(name, words(of(lowered)) + &left);
    };
    line("shared loads", "wavefronts", |t| (t.shared_load_requests, t.shared_load_wavefronts));
    line("shared stores", "wavefronts", |t| (t.shared_store_requests, t.shared_store_wavefronts));
    line("global loads", "sectors", |t| (t.global_load_requests, t.global_load_sectors));
    line("global stores", "sectors", |t| (t.global_store_requests, t.global_store_sectors));
    let slots = |t: &Traffic| {
        let share = t.fma_share().unwrap_or(0.0) * 100.0;
        format!("{} instructions of warps, {share:.0} % of them fma", grouped(t.instructions))
    };
    let left = compiled.map_or(String::new(), |c| format!("; in the PTX {}", slots(c)));
    row("issue slots", slots(lowered) + &left);
    match &k.compiled {
        Some(Compiled { why: Some(why), .. }) => row("PTX", format!("is not followed: {why}")),
        Some(c) if c.blocks_followed < c.blocks => {
            row(
                "PTX",
                format!(
                    "followed in {} of {} blocks, which stand for the others",
                    grouped(c.blocks_followed),
                    grouped(c.blocks)
                ),
            );
        }
        _ => {}
    }
}

fn registers(k: &KernelCertificate) -> String {
    let r = &k.registers;
    let parts = format!("{} in local buffers, {} loaded, {} addresses", r.local, r.loaded, r.addresses);
    let live = k.compiled.as_ref().map_or(String::new(), |c| format!("{} live in the PTX, ", c.live_registers));
    let estimate = format!("{live}about {} in the lowered program ({parts})", r.estimate);
    match &r.ptxas {
        None => estimate,
        Some(p) if p.spill_stores + p.spill_loads + p.stack_frame == 0 => {
            format!("{} by ptxas {}, no spill; {estimate}", p.registers, p.version)
        }
        Some(p) => format!(
            "{} by ptxas {}, {} bytes spilled and {} read back, {} bytes of local memory; {estimate}",
            p.registers, p.version, p.spill_stores, p.spill_loads, p.stack_frame
        ),
    }
}

/// The program with numbered lines, and below each the accesses that stand in it.
fn listing(out: &mut String, certificate: &Certificate, lowered: &str) {
    let mut at: BTreeMap<usize, Vec<&AccessCertificate>> = BTreeMap::new();
    for access in certificate.kernels.iter().flat_map(|k| &k.accesses) {
        at.entry(access.line).or_default().push(access);
    }
    let digits = lowered.lines().count().to_string().len();
    for (n, line) in lowered.lines().enumerate() {
        let _ = writeln!(out, "{:digits$} | {line}", n + 1);
        let Some(accesses) = at.get(&(n + 1)) else { continue };
        let margin = format!("{:digits$} | {:indent$}", "", "", indent = line.len() - line.trim_start().len());
        for access in accesses {
            let several = accesses.iter().filter(|a| (&a.buffer, a.kind) == (&access.buffer, access.kind)).count() > 1;
            let name = if several { &access.text } else { &access.buffer };
            let by = if access.asynchronous { " by cp.async" } else { "" };
            let _ = writeln!(out, "{margin}^ {name} {}{by}: {}", access.kind, sentence(access));
            for line in access.advice.iter().flat_map(advice) {
                let _ = writeln!(out, "{margin}    {line}");
            }
        }
    }
}

fn advice(a: &Advice) -> Vec<String> {
    let attempt = match (&a.step, &a.then) {
        (Some(step), Some(then)) => Some(format!("try: {step}  # {then}")),
        (None, then) => then.clone(),
        (step, None) => step.as_ref().map(|s| format!("try: {s}")),
    };
    std::iter::once(a.because.clone()).chain(attempt).collect()
}

fn sentence(a: &AccessCertificate) -> String {
    if a.method == Counted::Not {
        return format!("{} B, not counted: its indices overflow; {}", a.width, bounds(&a.bounds));
    }
    if a.requests == 0 {
        return format!("{} B, never runs", a.width);
    }
    let how = match a.method {
        Counted::EveryLane => ", if the data choose it in every lane",
        Counted::Sampled => ", by first, middle and last values alone",
        Counted::Exact | Counted::Not => "",
    };
    let requests = format!("{} a warp{how}", plural(&ratio(a.requests_per_warp), "request"));
    format!("{} B, {}; {requests}; {}", a.width, cost(a), bounds(&a.bounds))
}

fn cost(a: &AccessCertificate) -> String {
    let each = |n: u64| ratio(n as f64 / a.requests as f64);
    match a.cost {
        Cost::Shared { wavefronts, degree: 1, .. } => {
            format!("no bank conflict, {} a request", plural(&each(wavefronts), "wavefront"))
        }
        Cost::Shared { wavefronts, ideal, degree, .. } => format!(
            "{degree}-way bank conflict, {} a request for {}",
            plural(&each(wavefronts), "wavefront"),
            each(ideal)
        ),
        Cost::Global { sectors, ideal, .. } if sectors == ideal => {
            format!("{} a request, as few as hold the bytes", plural(&each(sectors), "sector"))
        }
        Cost::Global { sectors, ideal, worst, worst_ideal } => {
            let most = if worst * a.requests == sectors {
                String::new()
            } else {
                format!(", {worst} for {worst_ideal} at worst")
            };
            format!("{} a request for {}{most}", plural(&each(sectors), "sector"), each(ideal))
        }
    }
}

fn plural(n: &str, unit: &str) -> String {
    if n == "1" { format!("{n} {unit}") } else { format!("{n} {unit}s") }
}

fn bounds(bounds: &Bounds) -> String {
    match bounds {
        Bounds::Proved { range: (low, high), elements } => {
            format!("in bounds by ranges ({low}..={high} of {elements})")
        }
        Bounds::Predicated { range: (low, high), elements, by } => {
            format!("in bounds where {by} ({low}..={high} of {elements})")
        }
        Bounds::Counted { range: (low, high), elements } => {
            format!("in bounds in every lane counted ({low}..={high} of {elements})")
        }
        Bounds::Open { range: Some((low, high)), elements } => {
            format!("not shown to be in bounds ({low}..={high} of {elements})")
        }
        Bounds::Open { range: None, elements } => format!("not shown to be in bounds ({elements} elements)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([4.0, 4.5, 123.4].map(ratio), ["4", "4.50", "123"]);
        assert_eq!((plural("1", "sector"), plural("1.50", "sector")), ("1 sector".into(), "1.50 sectors".into()));
    }
}
