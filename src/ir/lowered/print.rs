//! Lowered programs as text: what `dump --emit lowered` shows.

use super::{Lowered, LoweredKernel};
use crate::ir::print::{Printed, Printer};
use crate::ir::visit;

/// A lowered program as text: per kernel its launch, its memory and its body.
pub fn print(lowered: &Lowered) -> String {
    lowered.kernels.iter().map(print_kernel).collect::<Vec<_>>().join("\n")
}

/// One kernel as text.
pub fn print_kernel(kernel: &LoweredKernel) -> String {
    printed_kernel(kernel).text
}

/// One kernel as text, with the places of its names and what each line is.
pub fn printed_kernel(kernel: &LoweredKernel) -> Printed {
    let mut p = Printer::new(&kernel.func);
    p.comment_line(|p| p.put(&launch(kernel)));
    derived(&mut p, kernel);
    bulk(&mut p, kernel);
    p.program();
    p.printed()
}

fn launch(kernel: &LoweredKernel) -> String {
    let [bx, by, bz] = kernel.block();
    let mut head = format!(
        "kernel {}: grid {}, block {bx} x {by} x {bz}, shared {} bytes",
        kernel.func.name,
        kernel.grid_text(),
        kernel.shared_bytes
    );
    head.push_str(&print_walk(kernel));
    if let Some(n) = kernel.min_blocks {
        head.push_str(&format!(", at least {} a multiprocessor", crate::error::counted(n, "block")));
    }
    if kernel.uniform_warp.is_some() {
        head.push_str(", warp numbers uniform");
    }
    if kernel.grid_dependency.is_some() {
        head.push_str(", programmatic dependent launch");
    }
    if kernel.concurrent {
        head.push_str(", concurrent with preceding kernels");
    }
    head
}

/// Of each statement of a kernel, in the order of [`visit::walk`], its line in [`print_kernel`], from 0: each has one, and they are
/// the last ones of the text.
pub fn statement_lines(kernel: &LoweredKernel) -> std::ops::Range<usize> {
    let lines = print_kernel(kernel).lines().count();
    let mut statements = 0;
    visit::walk(&kernel.func.body, &mut |_| statements += 1);
    lines.saturating_sub(statements)..lines
}

/// The tensor maps and mbarriers of a kernel, a line each.
pub fn print_bulk(kernel: &LoweredKernel) -> String {
    let mut p = Printer::new(&kernel.func);
    bulk(&mut p, kernel);
    p.printed().text
}

fn bulk(p: &mut Printer<'_>, kernel: &LoweredKernel) {
    for (n, map) in kernel.maps.iter().enumerate() {
        p.comment_line(|p| {
            p.put(&format!("map {n}: "));
            p.buffer_name(map.buffer);
            let name = |size: usize| p.func().sizes.get(size).map_or("?", |s| s.size.name.as_str()).to_string();
            let mut extents: Vec<String> = map.extents.iter().map(i64::to_string).collect();
            map.dynamic.into_iter().for_each(|(dim, size)| extents[dim] = name(size));
            p.put(&format!("[{}] in boxes of {:?}", extents.join(", "), map.tile));
            if map.swizzle > 0 {
                p.put(&format!(", swizzle {}", map.swizzle));
            }
        });
    }
    for (n, array) in (0..).zip(&kernel.func.mbarriers) {
        p.comment_line(|p| {
            let place = array.offset.map(|o| format!(" @{o}")).unwrap_or_default();
            p.put("mbarrier ");
            p.mbarrier_name(n);
            p.put(&format!("[{}]{place}: a phase ends with {} arrivals", array.slots, array.arrivals));
        });
    }
}

/// Whether the kernel has clusters, and whether it is persistent; empty if neither.
pub fn print_walk(kernel: &LoweredKernel) -> String {
    let clusters = match kernel.cluster() {
        1 => String::new(),
        n => format!(", clusters of {n} blocks"),
    };
    let persistent = if kernel.persistent().is_some() { ", persistent: a smaller grid computes the same" } else { "" };
    clusters + persistent
}

/// The variables that a kernel computes from its block indices, one line each.
pub fn print_derived(kernel: &LoweredKernel) -> String {
    let mut p = Printer::new(&kernel.func);
    derived(&mut p, kernel);
    p.printed().text
}

fn derived(p: &mut Printer<'_>, kernel: &LoweredKernel) {
    for d in &kernel.derived {
        p.comment_line(|p| {
            p.var(d.var);
            p.put(" = ");
            p.index(&d.value);
            p.put(&format!(", in 0..{}", d.extent));
        });
    }
}
