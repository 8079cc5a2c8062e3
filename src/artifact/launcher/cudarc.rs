//! The launcher for the crate cudarc: tables of the kernels after the routine of `cudarc.rs.in`.

use super::map::DriverMap;
use super::plan::{Argument, Placed, Plan, WORKSPACE_ALIGN, devices};
use super::rust::{SizeLines, fields, joined, list, ranges, shapes, size_parameters};
use super::{Unit, describe, filled, names};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::{Arg, Follows, Kernel, Kernels, Param, TensorMap};
use std::fmt::Write as _;

/// Writes the module `NAME.rs`, which launches the units by the driver's API as the crate cudarc has it, on its streams and buffers. It
/// includes the PTX and the cubins beside it.
///
/// # Errors
/// As [`super::c()`].
pub fn rust_cudarc(name: &str, units: &[Unit<'_>]) -> Result<String> {
    let plan = Plan::new(name, units)?;
    let half = plan.arguments.iter().any(|a| matches!(a.dtype, DType::F16 | DType::Bf16));
    let about = names::line_comments(&describe::about(&plan));
    let number = |n: usize| n.to_string();
    let mut units = String::new();
    for placed in &plan.units {
        units += &unit(placed, &plan)?;
    }
    let (workspace, lines) = (workspace(&plan), SizeLines::of(&plan));
    let sizes: Vec<&str> = plan.sizes.iter().map(|size| size.identifier.as_str()).collect();
    let words: &[(&str, &str)] = &[
        ("name", name),
        ("version", env!("CARGO_PKG_VERSION")),
        ("about", &about),
        ("extra_crates", if half { ", its feature `f16`, and half 2" } else { "" }),
        ("example", &example(&plan)),
        ("shapes_fields", &fields(&plan)),
        ("shape_count", &number(plan.shapes.len())),
        ("shapes", &shapes(&plan)),
        ("shape_text", &format!("{:?}", describe::shapes(&plan))),
        ("chip_text", &format!("{:?}", describe::chips(&plan))),
        ("workspace_align", &number(WORKSPACE_ALIGN as usize)),
        ("size_count", &number(plan.sizes.len())),
        ("ranges", &ranges(&plan)),
        ("size_reads", &lines.reads),
        ("known", lines.binding),
        ("size_writes", &lines.writes),
        ("size_names", &plan.sizes.iter().map(|size| format!("{:?}", size.name)).collect::<Vec<_>>().join(", ")),
        ("size_parameters", &size_parameters(&plan, "        ")),
        ("sizes", &sizes.join(", ")),
        ("size_list", &sizes.iter().map(|size| format!("{size}, ")).collect::<String>()),
        ("size_example", &sizes.iter().map(|size| format!("{size}, ")).collect::<String>()),
        ("size_of_shapes", &(0..sizes.len()).map(|n| format!("sizes[{n}], ")).collect::<String>()),
        ("sizes_binding", if sizes.is_empty() { "_" } else { "sizes" }),
        ("passed", &passed(&plan)),
        ("typed_parameters", &typed(&plan)),
        ("given", &plan.arguments.iter().map(given).collect::<String>()),
        ("pointers", &plan.arguments.iter().map(pointer).chain([workspace.pointer.into()]).collect::<String>()),
        ("addresses", &(joined(&plan, |a| format!("{}.0", a.identifier)) + workspace.address)),
        ("raw_parameters", &raw(&plan)),
        ("names", &joined(&plan, |a| a.identifier.clone())),
        ("workspace_check", workspace.check),
        ("workspace_error", workspace.error),
        ("workspace_note", workspace.note),
        ("raw_workspace", workspace.raw),
        ("most_parameters", &number(plan.most(|k| k.kernels.iter().map(|k| k.params.len()).max().unwrap_or(0)))),
        ("argument_count", &number(plan.arguments.len())),
        ("quoted", &joined(&plan, |a| format!("{:?}", a.name))),
        ("units", &units),
    ];
    Ok(filled(include_str!("cudarc.rs.in"), words))
}

/// The type of an element as cudarc's buffers have it: bytes for what Rust has no type for.
fn element(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "half::f16",
        DType::Bf16 => "half::bf16",
        DType::F32 | DType::Tf32 => "f32",
        DType::F64 => "f64",
        DType::S8 => "i8",
        DType::S32 => "i32",
        DType::U32 => "u32",
        DType::S64 => "i64",
        DType::U8 | DType::E4m3 | DType::E5m2 | DType::S4 | DType::U4 | DType::B1 | DType::Bool => "u8",
    }
}

/// The arguments of a launch as another function passes them on.
fn passed(plan: &Plan<'_>) -> String {
    joined(plan, |a| a.identifier.clone()) + if plan.has_workspace() { ", workspace" } else { "" }
}

/// The trait by which a launch takes an argument.
fn pointer_trait(argument: &Argument) -> &'static str {
    if argument.is_written() { "DevicePtrMut" } else { "DevicePtr" }
}

fn typed(plan: &Plan<'_>) -> String {
    let one = |a: &Argument| {
        let reference = if a.is_written() { "&mut" } else { "&" };
        let space = if a.is_written() { " " } else { "" };
        let (name, kind, element) = (&a.identifier, pointer_trait(a), element(a.dtype));
        format!("        {name}: {reference}{space}impl cudarc::driver::{kind}<{element}>,\n")
    };
    let workspace =
        if plan.has_workspace() { "        workspace: Option<&mut cudarc::driver::CudaSlice<u8>>,\n" } else { "" };
    plan.arguments.iter().map(one).collect::<String>() + workspace
}

fn raw(plan: &Plan<'_>) -> String {
    let one = |name: &str| format!("        {name}: sys::CUdeviceptr,\n");
    let names = plan.arguments.iter().map(|a| a.identifier.as_str());
    names.chain(plan.has_workspace().then_some("workspace")).map(one).collect()
}

fn example(plan: &Plan<'_>) -> String {
    let one = |a: &Argument| format!("{}{}", if a.is_written() { "&mut " } else { "&" }, a.identifier);
    joined(plan, one) + if plan.has_workspace() { ", Some(&mut workspace)" } else { "" }
}

fn given(argument: &Argument) -> String {
    let (name, element) = (&argument.identifier, element(argument.dtype));
    let of = format!("cudarc::driver::DeviceSlice::<{element}>");
    format!("            ({of}::num_bytes({name}) as u64, {of}::stream({name}).context().cu_ctx()),\n")
}

fn pointer(argument: &Argument) -> String {
    let (name, kind, element) = (&argument.identifier, pointer_trait(argument), element(argument.dtype));
    let function = if argument.is_written() { "device_ptr_mut" } else { "device_ptr" };
    format!("        let {name} = cudarc::driver::{kind}::<{element}>::{function}({name}, stream);\n")
}

/// The parts of the routine that take the workspace.
struct Workspace {
    check: &'static str,
    pointer: &'static str,
    address: &'static str,
    raw: &'static str,
    error: &'static str,
    note: &'static str,
}

fn workspace(plan: &Plan<'_>) -> Workspace {
    if !plan.has_workspace() {
        let raw = "        let workspace = 0;\n";
        return Workspace { check: "", pointer: "", address: "", raw, error: "", note: "" };
    }
    Workspace {
        check: "        let needed = self.unit.workspace_bytes as u64;
        if workspace.as_ref().map_or(0, |workspace| workspace.num_bytes() as u64) < needed {
            return Err(Error::Workspace { needed });
        }
        if workspace.as_ref().is_some_and(|workspace| workspace.context().cu_ctx() != self.context.cu_ctx()) {
            return Err(Error::Context);
        }
",
        pointer: "        let workspace = workspace.map(|workspace| cudarc::driver::DevicePtrMut::device_ptr_mut(workspace, stream));
",
        address: ", workspace.as_ref().map_or(0, |workspace| workspace.0)",
        raw: "        let needed = self.unit.workspace_bytes as u64;
        if needed > 0 && (workspace == 0 || !workspace.is_multiple_of(WORKSPACE_ALIGN)) {
            return Err(Error::Workspace { needed });
        }
",
        error: "a workspace that is missing or too small, ",
        note: "; `workspace` is 0 if there is none",
    }
}

/// Of each argument the bytes that it has fewer for each value below the largest of its size, and the number of the size.
fn per_size(kernels: &Kernels, arg: &Arg, plan: &Plan<'_>) -> String {
    let (dynamic, stride) = (arg.dynamic, arg.strides.first().copied().unwrap_or(0));
    let bits = u64::try_from(stride).unwrap_or(0).saturating_mul(arg.dtype.bits().into());
    dynamic.map_or("None".to_string(), |n| format!("Some(({}, {bits}))", plan.size(kernels, n)))
}

fn unit(placed: &Placed<'_>, plan: &Plan<'_>) -> Result<String> {
    let kernels = placed.kernels();
    let cubin = placed
        .code()
        .map_or("None".to_string(), |(_, file, devices)| format!("Some(({devices:?}, include_bytes!({file:?})))"));
    let (offsets, bytes) = placed.workspace();
    let mut out = format!("    // {} for {}\n    Unit {{\n", kernels.name, kernels.target);
    let fields = [
        ("shape", placed.shape.to_string()),
        ("chips", format!("{:?}", devices(placed.chip))),
        ("cubin", cubin),
        ("ptx", format!("concat!(include_str!({:?}), \"\\0\")", placed.unit.ptx)),
        ("workspace_bytes", bytes.to_string()),
        ("workspace", format!("&{}", list(offsets))),
        ("align", list(kernels.args.iter().map(|arg| arg.align.max(1)))),
        ("bytes", list(kernels.args.iter().map(|arg| arg.bytes))),
        ("rows", list(kernels.args.iter().map(|arg| per_size(kernels, arg, plan)))),
    ];
    fields.iter().for_each(|(name, value)| out += &format!("        {name}: {value},\n"));
    out += "        kernels: &[\n";
    for kernel in &kernels.kernels {
        out += &entry(kernels, kernel, plan)?;
    }
    Ok(out + "        ],\n    },\n")
}

fn entry(kernels: &Kernels, kernel: &Kernel, plan: &Plan<'_>) -> Result<String> {
    let indent = " ".repeat(16);
    let mut out = format!("            Kernel {{\n{indent}entry: c{:?},\n", kernel.entry);
    let fields = [
        ("grid", list(kernel.grid)),
        ("block", list(kernel.block)),
        ("cluster", list(kernel.cluster)),
        ("shared_bytes", kernel.shared_bytes.to_string()),
        ("persistent", kernel.persistent.to_string()),
        ("dependent", kernel.early.to_string()),
        ("clips", list(kernel.clips.0.map(|follows| clip(kernels, follows, plan)))),
    ];
    fields.iter().for_each(|(name, value)| out += &format!("{indent}{name}: {value},\n"));
    let _ = writeln!(out, "{indent}parameters: &[");
    for param in &kernel.params {
        let parameter = match param {
            Param::TensorMap(map) => tensor_map(kernels, map, plan)?,
            Param::Size(size) => format!("Parameter::Size({})", plan.size(kernels, *size)),
            plain => format!("Parameter::Address({})", place(plain)),
        };
        let _ = writeln!(out, "{indent}    {parameter},");
    }
    Ok(out + &indent + "],\n            },\n")
}

fn place(param: &Param) -> String {
    match param {
        Param::Arg(n) => format!("Place::Argument({n})"),
        Param::Workspace(n) => format!("Place::Workspace({n})"),
        // No array: only the parameter of a size is one.
        Param::Size(n) => format!("Place::Argument({n})"),
        Param::TensorMap(map) => place(&map.array),
    }
}

/// What a number of blocks follows from: the number of the size, how many for each part of it, and how much a part is.
fn clip(kernels: &Kernels, follows: Option<Follows>, plan: &Plan<'_>) -> String {
    let one = |f: Follows| format!("Some(({}, {}, {}))", plan.size(kernels, f.size), f.times, f.per);
    follows.map_or("None".to_string(), one)
}

fn tensor_map(kernels: &Kernels, map: &TensorMap, plan: &Plan<'_>) -> Result<String> {
    let DriverMap { data_type, extents, strides, tile, swizzle, promotion } = DriverMap::of(map)?;
    let data_type = match data_type {
        0 => "UINT8",
        2 => "UINT32",
        3 => "INT32",
        5 => "INT64",
        6 => "FLOAT16",
        8 => "FLOAT64",
        9 => "BFLOAT16",
        _ => "FLOAT32",
    };
    let swizzle = ["NONE", "32B", "64B", "128B"][swizzle as usize % 4];
    let promotion = ["NONE", "L2_64B", "L2_128B", "L2_256B"][promotion as usize % 4];
    let indent = " ".repeat(24);
    let inner = |dimension: usize| extents.len().saturating_sub(dimension + 1);
    let dynamic = |(dimension, size)| format!("Some(({}, {}))", inner(dimension), plan.size(kernels, size));
    let fields = [
        ("array", place(&map.array)),
        ("data_type", format!("sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_{data_type}")),
        ("extents", format!("&{}", list(&extents))),
        ("strides", format!("&{}", list(strides))),
        ("tile", format!("&{}", list(tile))),
        ("swizzle", format!("sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_{swizzle}")),
        ("promotion", format!("sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_{promotion}")),
        ("dynamic", map.dynamic.map_or("None".to_string(), dynamic)),
    ];
    let fields: String = fields.iter().map(|(name, value)| format!("{indent}{name}: {value},\n")).collect();
    Ok(format!("Parameter::Map(Map {{\n{fields}{}}})", " ".repeat(20)))
}
