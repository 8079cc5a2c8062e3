//! A cost report as text: figures of each kernel, then the lowered program with what every access costs below its line.

use super::report::{AccessCost, Advice, Bounds, Compiled, Cost, CostReport, Counted, KernelCost};
use super::traffic::Traffic;
use crate::error::counted;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The cost report of a program; `lowered` is the program as [`crate::ir::lowered::print`] prints it.
pub fn print(report: &CostReport, lowered: &str) -> String {
    let mut out = format!("{} for {}\n", report.program, report.target);
    for kernel in &report.kernels {
        out.push('\n');
        figures(&mut out, report, kernel);
    }
    order_of_sums(&mut out, report);
    out.push('\n');
    listing(&mut out, report, lowered);
    for line in &report.assumes {
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

fn figures(out: &mut String, report: &CostReport, k: &KernelCost) {
    let [gx, gy, gz] = k.grid;
    let [bx, by, bz] = k.block;
    let _ = writeln!(
        out,
        "kernel {}: grid {gx} x {gy} x {gz}, block {bx} x {by} x {bz} ({})",
        k.name,
        counted(k.warps, "warp")
    );
    let mut row = |name: &str, text: String| {
        let _ = writeln!(out, "{}", format!("  {name:14} {text}").trim_end());
    };
    row("shared memory", counted(grouped(k.shared_bytes.into()), "byte"));
    row("registers", registers(k));
    if k.registers.spilled > 0 || k.registers.ptxas.as_ref().is_some_and(|p| p.spill_stores > 0) {
        row(
            "",
            "try: smaller tiles of each thread, which hold fewer elements in local buffers; or blocks of fewer threads"
                .into(),
        );
    }
    let o = &k.occupancy;
    let resident = format!("{}, {} of {} warps a multiprocessor", counted(o.blocks, "block"), o.warps, o.max_warps);
    row("occupancy", format!("{resident}, limited by {}", o.limited_by));
    let device = &report.device;
    let waves =
        k.waves.map_or("none fits".to_string(), |w| if w < 0.1 { format!("{w:.4}") } else { format!("{w:.2}") });
    row("waves", format!("{waves} on {} multiprocessors ({})", device.multiprocessors, device.name));
    traffic(&mut row, k);
    engines(&mut row, k);
    let t = &k.totals;
    let fused =
        if t.traffic.fma > 0 { format!(", two in each of {} fma", grouped(t.traffic.fma)) } else { String::new() };
    row("arithmetic", format!("{}{fused}", counted(grouped(t.operations), "operation")));
    if let (Some(moved), Some(held)) = (t.operations_per_global_byte, t.operations_per_argument_byte) {
        let compiled = k.compiled.as_ref().and_then(|c| c.traffic.as_ref());
        let left = compiled.and_then(|c| c.per_global_byte(t.operations));
        let left = left.map_or(String::new(), |r| format!(" ({} in the PTX)", ratio(r)));
        row(
            "intensity",
            format!("{} operations a byte moved{left}, {} a byte of arguments", ratio(moved), ratio(held)),
        );
    }
    estimates(&mut row, k);
}

/// Traffic between caches and predicted cycles.
fn estimates(row: &mut impl FnMut(&str, String), k: &KernelCost) {
    let (c, p) = (&k.caches, &k.predicted);
    if c.l1_miss_sectors > 0 {
        row("L2 to L1", format!("about {} for loads of lanes", counted(grouped(c.l1_miss_sectors), "sector")));
    }
    let both =
        |loads: u64, stores: u64| format!("{} loaded, {} stored", counted(grouped(loads), "sector"), grouped(stores));
    row("device memory", format!("about {}", both(c.device_load_sectors, c.device_store_sectors)));
    row("predicted", format!("{} cycles, limited by {}", grouped(p.cycles.ceil() as u64), p.limited_by));
}

/// Bulk copies, products behind descriptors, what each role runs, what is waited for.
fn engines(row: &mut impl FnMut(&str, String), k: &KernelCost) {
    let (t, compiled) = (&k.totals.traffic, k.compiled.as_ref());
    let mut boxes = |name: &str, [n, bytes, sectors, lines]: [u64; 4], beside: String| {
        if n > 0 {
            let (n, bytes) = (counted(grouped(n), "box"), counted(grouped(bytes), "byte"));
            let (sectors, lines) = (counted(grouped(sectors), "sector"), counted(grouped(lines), "line"));
            row(name, format!("{n} of {bytes}, {sectors} in {lines} of 128{beside}"));
        }
    };
    let landed = format!("; {} bytes arrive in shared memory", grouped(t.bulk_landed_bytes));
    boxes("bulk loads", [t.bulk_loads, t.bulk_load_bytes, t.bulk_load_sectors, t.bulk_load_lines], landed);
    let store = [t.bulk_stores, t.bulk_store_bytes, t.bulk_store_sectors, t.bulk_store_lines];
    boxes("bulk stores", store, String::new());
    if k.bytes_in_flight > 0 {
        row("in flight", format!("at most {} bytes of bulk loads to a block", grouped(k.bytes_in_flight)));
    }
    if t.tensor_instructions > 0 {
        let read = match t.descriptor_bytes {
            0 => String::new(),
            n => format!(", which read {} bytes of shared memory through descriptors", grouped(n)),
        };
        row("tensor cores", format!("{} of warps{read}", counted(grouped(t.tensor_instructions), "instruction")));
    }
    for m in &k.mbarriers {
        let bytes =
            if m.expected_bytes > 0 { format!(", for {} bytes", grouped(m.expected_bytes)) } else { String::new() };
        let (name, waits, arrivals) =
            (&m.name, counted(grouped(m.waits), "wait"), counted(grouped(m.arrivals), "arrival"));
        row("mbarriers", format!("{name}[{}]: {waits} of warps, {arrivals} of threads{bytes}", m.slots));
    }
    for r in k.roles.iter().filter(|_| !k.mbarriers.is_empty()) {
        let listed = |kinds: &mut dyn Iterator<Item = (&str, u64)>| {
            kinds.map(|(kind, n)| format!("{kind} {}", grouped(n))).collect::<Vec<_>>().join(", ")
        };
        let regs = r.registers.map_or(String::new(), |n| format!(", {n} registers"));
        let runs = listed(&mut r.instructions.iter().map(|(kind, n)| (*kind, n.warps)));
        row(&format!("role {}", r.name), format!("warps {}..{}{regs}: {runs}", r.first, r.first + r.warps));
        if let Some(kinds) = compiled.and_then(|c| c.machine_code.get(&r.name)) {
            row("", format!("in machine code: {}", listed(&mut kinds.iter().map(|(kind, n)| (*kind, *n)))));
        }
    }
    let least = &k.at_least;
    if let Some(products) = least.products.filter(|p| *p > 0.0) {
        let clocks = |n: f64| grouped(n.ceil() as u64);
        let l2 = least.l2.map_or(String::new(), |n| format!(", L2 {}", clocks(n)));
        let words = format!("tensor cores {}{l2}, shared memory {}", clocks(products), clocks(least.shared));
        row("at least", format!("{words} cycles of a multiprocessor"));
    }
    for a in &k.advice {
        advice(a).into_iter().for_each(|line| row("", line));
    }
    let rough = k.statements.iter().filter(|s| !s.exact && s.why.is_none()).count();
    if rough > 0 {
        let how = "as if conditions on data were true in every lane, or by first, middle and last values";
        row("estimates", format!("{rough} of {} statements count {how}", k.statements.len()));
    }
    for left_out in &k.uncounted {
        row("not counted", format!("{left_out}; no total includes it"));
    }
}

/// Requests and their cost, of the lowered program and of its PTX.
fn traffic(row: &mut impl FnMut(&str, String), k: &KernelCost) {
    let lowered = &k.totals.traffic;
    let compiled = k.compiled.as_ref().and_then(|c| c.traffic.as_ref());
    let mut line = |name: &str, unit: &str, of: fn(&Traffic) -> (u64, u64)| {
        if of(lowered).0 == 0 {
            return;
        }
        let words =
            |(n, cost): (u64, u64)| format!("{}, {}", counted(grouped(n), "request"), counted(grouped(cost), unit));
        let left = compiled.map_or(String::new(), |c| format!("; in the PTX {}", words(of(c))));
        row(name, words(of(lowered)) + &left);
    };
    line("shared loads", "wavefront", |t| (t.shared_load_requests, t.shared_load_wavefronts));
    line("shared stores", "wavefront", |t| (t.shared_store_requests, t.shared_store_wavefronts));
    line("global loads", "sector", |t| (t.global_load_requests, t.global_load_sectors));
    line("global stores", "sector", |t| (t.global_store_requests, t.global_store_sectors));
    let slots = |t: &Traffic| {
        let share = t.fma_share().unwrap_or(0.0) * 100.0;
        format!("{} of warps, {share:.0} % of them fma", counted(grouped(t.instructions), "instruction"))
    };
    let left = compiled.map_or(String::new(), |c| format!("; in the PTX {}", slots(c)));
    row("issue slots", slots(lowered) + &left);
    match &k.compiled {
        Some(Compiled { why: Some(why), .. }) => row("PTX", format!("is not followed: {why}")),
        Some(c) if c.blocks_followed < c.blocks => {
            row(
                "PTX",
                format!(
                    "followed in {} of {} blocks, which represent the others",
                    grouped(c.blocks_followed),
                    grouped(c.blocks)
                ),
            );
        }
        _ => {}
    }
}

fn registers(k: &KernelCost) -> String {
    let r = &k.registers;
    let parts = format!("{} in local buffers, {} loaded, {} addresses", r.local, r.loaded, r.addresses);
    let live = k.compiled.as_ref().map_or(String::new(), |c| format!("{} live in the PTX, ", c.live_registers));
    let estimate = format!("{live}about {} in the lowered program ({parts})", r.estimate);
    match &r.ptxas {
        None if r.spilled > 0 => {
            let threads: u32 = k.block.iter().product();
            let most = k.occupancy.registers;
            format!("{estimate}; a thread of {threads} gets {most} at most: spills about {} registers", r.spilled)
        }
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

/// What a cost report says of a line of the lowered program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The line, from 1.
    pub line: usize,
    /// Which access it speaks of and what that costs, in one sentence.
    pub text: String,
    /// Why it costs more than it must and what to try; empty where it does not.
    pub advice: Vec<String>,
}

/// Every remark of a cost report, in the order of the lines.
pub fn remarks(report: &CostReport) -> Vec<Remark> {
    let all: Vec<&AccessCost> = report.kernels.iter().flat_map(|k| &k.accesses).collect();
    let remark = |access: &&AccessCost| {
        let alike = |a: &&&AccessCost| (a.line, &a.buffer, a.kind) == (access.line, &access.buffer, access.kind);
        let name = if all.iter().filter(alike).count() > 1 { &access.text } else { &access.buffer };
        let by = access.by.map_or(String::new(), |by| format!(" by {by}"));
        let text = format!("{name} {}{by}: {}", access.kind, sentence(access));
        Remark { line: access.line, text, advice: access.advice.iter().flat_map(advice).collect() }
    };
    let mut out: Vec<Remark> = all.iter().map(remark).collect();
    out.sort_by_key(|r| r.line);
    out
}

/// The figures of each kernel of a cost report and what they rest on, without the program.
pub fn summary(report: &CostReport) -> String {
    let mut out = String::new();
    for kernel in &report.kernels {
        figures(&mut out, report, kernel);
    }
    order_of_sums(&mut out, report);
    for line in &report.assumes {
        let _ = write!(out, "\nnote: {line}");
    }
    out
}

/// In which order the program sums.
fn order_of_sums(out: &mut String, report: &CostReport) {
    if let Some(sums) = &report.sums {
        let _ = writeln!(out, "\nsums: {sums}");
    }
}

/// The program with numbered lines, and below each the accesses that are in it.
fn listing(out: &mut String, report: &CostReport, lowered: &str) {
    let mut at: BTreeMap<usize, Vec<Remark>> = BTreeMap::new();
    for remark in remarks(report) {
        at.entry(remark.line).or_default().push(remark);
    }
    // A step mends every access that it is about: it is suggested at the first.
    let mut suggested: BTreeSet<String> = BTreeSet::new();
    let digits = lowered.lines().count().to_string().len();
    for (n, line) in lowered.lines().enumerate() {
        let _ = writeln!(out, "{:digits$} | {line}", n + 1);
        let margin = format!("{:digits$} | {:indent$}", "", "", indent = line.len() - line.trim_start().len());
        for remark in at.get(&(n + 1)).into_iter().flatten() {
            let _ = writeln!(out, "{margin}^ {}", remark.text);
            for line in &remark.advice {
                if !line.starts_with("try: ") || suggested.insert(line.clone()) {
                    let _ = writeln!(out, "{margin}    {line}");
                }
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

fn sentence(a: &AccessCost) -> String {
    if a.method == Counted::Not {
        let why = a.why.unwrap_or("there is no reason");
        return format!("{} B, not counted: {why}; {}", a.width, bounds(&a.bounds));
    }
    if a.requests == 0 {
        return format!("{} B, never runs", a.width);
    }
    let how = match a.method {
        Counted::EveryLane => ", if the data select it in every lane",
        Counted::Sampled => ", by first, middle and last values alone",
        Counted::Exact | Counted::Not => "",
    };
    match a.cost {
        Cost::Box { bytes, sectors, ideal, lines, ideal_lines } => {
            let each = |n: u64| ratio(n as f64 / a.requests as f64);
            let of = |n: u64, ideal: u64, unit: &str| match n == ideal {
                true => counted(each(n), unit),
                false => format!("{} instead of {}", counted(each(n), unit), each(ideal)),
            };
            let (sectors, lines) = (of(sectors, ideal, "sector"), of(lines, ideal_lines, "line"));
            let copies = counted(grouped(a.requests), "box");
            return format!("{copies} of {} B, {sectors} and {lines} each{how}; {}", each(bytes), bounds(&a.bounds));
        }
        Cost::Engine { bytes } => {
            let each = ratio(bytes as f64 / a.requests as f64);
            let (unit, units) = if a.by == Some("descriptor") { ("tile", "tiles") } else { ("box", "boxes") };
            let unit = if a.requests == 1 { unit } else { units };
            let range = if a.by == Some("descriptor") { String::new() } else { format!("; {}", bounds(&a.bounds)) };
            return format!("{} {unit} of {each} B{how}{range}", grouped(a.requests));
        }
        _ => {}
    }
    let requests = format!("{} a warp{how}", counted(ratio(a.requests_per_warp), "request"));
    format!("{} B, {}; {requests}; {}", a.width, cost(a), bounds(&a.bounds))
}

fn cost(a: &AccessCost) -> String {
    let each = |n: u64| ratio(n as f64 / a.requests as f64);
    match a.cost {
        Cost::Shared { wavefronts, degree: 1, .. } => {
            format!("no bank conflict, {} a request", counted(each(wavefronts), "wavefront"))
        }
        Cost::Shared { wavefronts, ideal, degree, .. } => format!(
            "{degree}-way bank conflict, {} a request instead of {}",
            counted(each(wavefronts), "wavefront"),
            each(ideal)
        ),
        Cost::Box { .. } | Cost::Engine { .. } => String::new(),
        Cost::Global { sectors, ideal, .. } if sectors == ideal => {
            format!("{} a request, as few as hold the bytes", counted(each(sectors), "sector"))
        }
        Cost::Global { sectors, ideal, worst, worst_ideal } => {
            let most = if worst * a.requests == sectors {
                String::new()
            } else {
                format!(", at worst {worst} instead of {worst_ideal}")
            };
            format!("{} a request instead of {}{most}", counted(each(sectors), "sector"), each(ideal))
        }
    }
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
        Bounds::Clipped => "elements outside the array are skipped".to_string(),
        Bounds::NotJudged => "the end of the tile is not checked".to_string(),
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
        assert_eq!((counted("1", "sector"), counted("1.50", "sector")), ("1 sector".into(), "1.50 sectors".into()));
    }
}
