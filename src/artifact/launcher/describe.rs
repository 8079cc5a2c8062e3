//! The first comment of a launcher: program, arguments, shapes, chips and launches.

use super::plan::{Argument, Placed, Plan, Shapes};
use crate::dtype::DType;
use crate::kernel::{Access, Kernel};

/// What a device address of such an argument points to.
fn element(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "IEEE binary16",
        DType::Bf16 => "bfloat16",
        DType::F32 => "IEEE binary32",
        DType::F64 => "IEEE binary64",
        DType::Tf32 => "IEEE binary32, of which the upper 19 bits are read",
        DType::E4m3 => "8-bit float of 4 exponent bits",
        DType::E5m2 => "8-bit float of 5 exponent bits",
        DType::S8 => "signed 8-bit integer",
        DType::U8 => "unsigned 8-bit integer",
        DType::S4 => "signed 4-bit integer, two to a byte, the first in the low half",
        DType::U4 => "unsigned 4-bit integer, two to a byte, the first in the low half",
        DType::B1 => "bit, eight to a byte, the first in the lowest",
        DType::S32 => "signed 32-bit integer",
        DType::U32 => "unsigned 32-bit integer",
        DType::S64 => "signed 64-bit integer",
        DType::Bool => "truth value of a byte",
    }
}

fn access(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "written",
        Access::ReadWrite => "read and written",
    }
}

/// The paragraphs that a person reads before the code.
pub(super) fn about(plan: &Plan<'_>) -> String {
    let program = plan.units.first().map_or("", |placed| placed.kernels().name.as_str());
    let mut out =
        format!("Computes: the program `{program}`.\nArguments, in order, each an address in device memory:\n");
    for argument in &plan.arguments {
        out += &format!(
            "  {}: {} ({}), {}\n",
            argument.identifier,
            argument.dtype,
            element(argument.dtype),
            access(argument.access)
        );
    }
    out += "A written argument must not overlap another one.\n\n";
    for size in &plan.sizes {
        out += &format!("{}: the size {}, which each launch states.\n", size.identifier, size.name);
    }
    if !plan.sizes.is_empty() {
        out.push('\n');
    }
    out += "Shapes, with strides in elements and the alignment of the address in bytes, and the chips that have kernels for them:\n";
    for (shape, shapes) in plan.shapes.iter().enumerate() {
        let of_shape = || plan.units.iter().filter(move |placed| placed.shape == shape);
        for placed in of_shape().take(1) {
            out += &arguments(&plan.arguments, shapes, placed);
        }
        for placed in of_shape() {
            out += &launches(placed);
        }
    }
    out
}

/// The shapes of the arguments. Alignments are those of the preferred chip: a launch checks those of its own.
fn arguments(arguments: &[Argument], shapes: &Shapes, placed: &Placed<'_>) -> String {
    let mut out = String::new();
    for (n, (argument, arg)) in arguments.iter().zip(&placed.kernels().args).enumerate() {
        let mark = if n == 0 { "-" } else { " " };
        let values = arg.values.map_or(String::new(), |(from, to)| {
            format!(", every element at least {from} and below {to}, which no launch checks")
        });
        let (name, shape, strides) = (&argument.identifier, shapes.words(n, argument), &arg.strides);
        let largest = if arg.dynamic.is_some() { " at most" } else { "" };
        let (align, bytes) = (arg.align, arg.bytes);
        out += &format!(
            "{mark} {name} {shape}, strides {strides:?}, at a multiple of {align}, {bytes} bytes{largest}{values}\n"
        );
    }
    out
}

fn launches(placed: &Placed<'_>) -> String {
    let kernels = placed.kernels();
    let cubin = placed.code().map_or(String::new(), |(code, file, _)| format!(", {file} for {}", code.chip));
    let mut out = format!("    {}: {}{cubin}", kernels.target, placed.unit.ptx);
    let (_, bytes) = placed.workspace();
    if bytes > 0 {
        out += &format!(", {bytes} bytes of workspace");
    }
    out.push('\n');
    for kernel in &kernels.kernels {
        out += &format!("      {}\n", launch(kernel));
    }
    out
}

fn launch(kernel: &Kernel) -> String {
    let by = |[x, y, z]: [u32; 3]| format!("{x} x {y} x {z}");
    let most = if kernel.clips.is_empty() { "" } else { " at most" };
    let mut out = format!("{}: grid {}{most}, block {}", kernel.entry, by(kernel.grid), by(kernel.block));
    if kernel.cluster != [1; 3] {
        out += &format!(", clusters of {}", by(kernel.cluster));
    }
    if kernel.shared_bytes > 0 {
        out += &format!(", {} bytes of shared memory", kernel.shared_bytes);
    }
    if kernel.persistent {
        out += ", persistent";
    }
    if kernel.early {
        out += ", programmatic dependent launch";
    }
    if kernel.concurrent {
        out += ", concurrent with preceding kernels";
    }
    out
}

/// The shapes of a list that an error shows.
const SHOWN: usize = 16;

/// `a [64, 32], b [32, 16] or a ..`: the shapes that there are kernels for, the first of many.
pub(super) fn shapes(plan: &Plan<'_>) -> String {
    let one = |shapes: &Shapes| -> String {
        let one = |(n, a): (usize, &Argument)| format!("{} {}", a.identifier, shapes.words(n, a));
        plan.arguments.iter().enumerate().map(one).collect::<Vec<_>>().join(", ")
    };
    let shown: Vec<String> = plan.shapes.iter().take(SHOWN).map(one).collect();
    let more = match plan.shapes.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("; or {more} more"),
    };
    shown.join("; or ") + &more
}

/// `sm_90a, sm_80`: the chips of all units, once each.
pub(super) fn chips(plan: &Plan<'_>) -> String {
    let mut out: Vec<&str> = Vec::new();
    for placed in &plan.units {
        let target = placed.kernels().target.as_str();
        if !out.contains(&target) {
            out.push(target);
        }
    }
    out.join(", ")
}
