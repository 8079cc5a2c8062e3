//! Lowered programs as text: what `dump --emit lowered` shows.

use super::{Derived, Lowered, LoweredKernel};
use crate::ir::{print, visit};

/// A lowered program as text: per kernel its launch, its memory and its body.
pub fn print(lowered: &Lowered) -> String {
    lowered.kernels.iter().map(print_kernel).collect::<Vec<_>>().join("\n")
}

/// One kernel as text.
pub fn print_kernel(kernel: &LoweredKernel) -> String {
    let [gx, gy, gz] = kernel.grid();
    let [bx, by, bz] = kernel.block();
    let mut head = format!(
        "# kernel {}: grid {gx} x {gy} x {gz}, block {bx} x {by} x {bz}, shared {} bytes",
        kernel.func.name, kernel.shared_bytes
    );
    head.push_str(&print_walk(kernel));
    if let Some(n) = kernel.min_blocks {
        head.push_str(&format!(", at least {} a multiprocessor", crate::error::counted(n, "block")));
    }
    if kernel.uniform_warp {
        head.push_str(", warp numbers uniform");
    }
    if kernel.grid_dependency.is_some() {
        head.push_str(", programmatic dependent launch");
    }
    format!("{head}\n{}{}{}", print_derived(kernel), print_bulk(kernel), print::func(&kernel.func))
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
    let func = &kernel.func;
    let mut out = String::new();
    for (n, map) in kernel.maps.iter().enumerate() {
        let (array, swizzle) = (&func.buffer(map.buffer).name, map.swizzle);
        out.push_str(&format!("# map {n}: {array}{:?} in boxes of {:?}", map.extents, map.tile));
        if swizzle > 0 {
            out.push_str(&format!(", swizzle {swizzle}"));
        }
        out.push('\n');
    }
    for array in &func.mbarriers {
        let place = array.offset.map(|o| format!(" @{o}")).unwrap_or_default();
        let (name, slots, arrivals) = (&array.name, array.slots, array.arrivals);
        out.push_str(&format!("# mbarrier {name}[{slots}]{place}: a phase ends with {arrivals} arrivals\n"));
    }
    out
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
    let line = |d: &Derived| {
        let (name, value) = (kernel.func.var_name(d.var), print::index(&kernel.func, &d.value));
        format!("# {name} = {value}, in 0..{}\n", d.extent)
    };
    kernel.derived.iter().map(line).collect()
}
