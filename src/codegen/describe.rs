//! What a launch needs to know besides the text: entries, arguments and workspace.

use super::SHARED_MEMORY;
use super::listing::Head;
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::ir::lowered::{self, Lowered, LoweredKernel};
use crate::ir::{Axis, Buffer, print, visit};
use crate::kernel::{Access, Arg, Clips, Kernel, Kernels, Param, TensorMap, Workspace};
use crate::size::Follows;
use crate::target::Target;

/// Identifiers that PTX or the module itself defines. Opcodes and types are legal names of kernels; ptxas refuses this constant.
const TAKEN: [&str; 2] = ["WARP_SZ", SHARED_MEMORY];

/// A PTX identifier for each kernel, all different. Messages and comments have the program's own name.
pub fn entries(lowered: &Lowered) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for kernel in &lowered.kernels {
        let legal = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
        let mut name: String = kernel.func.name.chars().map(legal).collect();
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            name.insert_str(0, "kernel_");
        }
        while out.contains(&name) || TAKEN.contains(&name.as_str()) {
            name.push('_');
        }
        out.push(name);
    }
    out
}

/// The kernel as it is in the comment above its entry, with what the chip only emulates; and how many blocks a cluster
/// has.
pub fn head(entry: &str, kernel: &LoweredKernel, target: &Target) -> Head {
    let (grid, [bx, by, bz]) = (kernel.grid_text(), kernel.block());
    let name = &kernel.func.name;
    let shared = kernel.shared_bytes;
    let launch = format!("kernel {name}: grid {grid}, block {bx} x {by} x {bz}, {shared} bytes shared");
    let walk = lowered::print_walk(kernel);
    let emulated: String = kernel
        .instructions()
        .into_iter()
        .filter(|row| row.is_emulated_on(target))
        .map(|row| format!("# {} is emulated on {target}\n", row.name))
        .collect();
    let head = format!("{launch}{walk}\n{emulated}{}{}", lowered::print_derived(kernel), lowered::print_bulk(kernel));
    let text = format!("{head}{}", print::func(&kernel.func));
    let directives = match kernel.cluster() {
        1 => String::new(),
        // Nothing then asks at run time whether there are clusters.
        blocks => format!(".explicitcluster\n.reqnctapercluster {blocks}, 1, 1\n"),
    };
    Head { entry: entry.to_string(), text, directives }
}

/// Everything together.
pub fn kernels(
    lowered: &Lowered,
    target: &Target,
    ptx_version: u32,
    entries: Vec<String>,
    text: String,
    llvm: String,
) -> Result<Kernels> {
    let workspace = workspaces(lowered)?;
    let kernels = lowered
        .kernels
        .iter()
        .zip(entries)
        .map(|(kernel, entry)| {
            Ok(Kernel {
                entry,
                params: params(lowered, kernel, &workspace)?,
                grid: kernel.grid(),
                block: kernel.block(),
                cluster: [kernel.cluster(), 1, 1],
                persistent: kernel.persistent().is_some(),
                shared_bytes: kernel.shared_bytes,
                early: kernel.grid_dependency.is_some(),
                concurrent: kernel.concurrent,
                clips: clips(kernel)?,
            })
        })
        .collect::<Result<_>>()?;
    Ok(Kernels {
        name: lowered.name.clone(),
        target: target.name.to_string(),
        ptx_version,
        text,
        llvm,
        cubin: None,
        args: (0..lowered.params.len()).map(|n| arg(lowered, n)).collect::<Result<_>>()?,
        workspace,
        kernels,
        sizes: lowered.sizes.iter().map(|s| s.size.clone()).collect(),
    })
}

/// What the numbers of blocks follow from: where there are clusters, blockIdx.x counts clusters.
fn clips(kernel: &LoweredKernel) -> Result<Clips> {
    let mut clips = Clips::default();
    for clipped in &kernel.clipped {
        let (at, blocks) = match clipped.axis {
            Axis::BlockX => (0, kernel.cluster()),
            Axis::BlockY => (1, 1),
            _ => (2, 1),
        };
        let times = u32::try_from(clipped.times).ok().and_then(|t| t.checked_mul(blocks));
        let (Some(times), Ok(per)) = (times, u32::try_from(clipped.per)) else {
            let message =
                format!("the grid of {} follows from a size by numbers of more than 32 bits", kernel.func.name);
            return Err(Error::bug(Code::CodegenParams, message));
        };
        clips.0[at] = Some(Follows::new(clipped.size, times, per));
    }
    Ok(clips)
}

fn workspaces(lowered: &Lowered) -> Result<Vec<Workspace>> {
    let mut out: Vec<Workspace> = Vec::new();
    for kernel in &lowered.kernels {
        for id in &kernel.workspace {
            let Some(buffer) = kernel.func.buffers.get(id.0 as usize) else { continue };
            if out.iter().all(|w| w.name != buffer.name) {
                out.push(Workspace { name: buffer.name.clone(), bytes: bytes(buffer)? });
            }
        }
    }
    Ok(out)
}

fn params(lowered: &Lowered, kernel: &LoweredKernel, workspace: &[Workspace]) -> Result<Vec<Param>> {
    let of = |id: &crate::ir::BufferId| {
        let name = &kernel.func.buffers.get(id.0 as usize)?.name;
        let arg = lowered.params.iter().position(|p| p == name).map(Param::Arg);
        arg.or_else(|| workspace.iter().position(|w| &w.name == name).map(Param::Workspace))
    };
    let missing = || Error::bug(Code::CodegenParams, format!("{} takes an unknown buffer", kernel.func.name));
    let plain = kernel.func.params.iter().map(|id| of(id).ok_or_else(missing));
    let maps = kernel.maps.iter().map(|map| {
        let array = Box::new(of(&map.buffer).ok_or_else(missing)?);
        Ok(Param::TensorMap(tensor_map(map, array, kernel.func.buffer(map.buffer).dtype)))
    });
    plain.chain(maps).chain(kernel.sizes().into_iter().map(|n| Ok(Param::Size(n)))).collect()
}

/// The map of an array; of elements below a byte, which no tensor map has, that of their bytes.
fn tensor_map(map: &lowered::TensorMap, array: Box<Param>, dtype: DType) -> TensorMap {
    let (mut extents, mut strides, mut tile) = (map.extents.clone(), map.strides.clone(), map.tile.clone());
    let per_byte = i64::from(8 / dtype.bits().min(8));
    for row in [&mut extents, &mut tile] {
        row.iter_mut().last().into_iter().for_each(|columns| *columns /= per_byte);
    }
    strides.iter_mut().rev().skip(1).for_each(|stride| *stride /= per_byte);
    let dtype = if per_byte > 1 { DType::U8 } else { dtype };
    let dynamic = map.dynamic;
    TensorMap { array, dtype, extents, strides, tile, swizzle: map.swizzle, promotion: map.promotion, dynamic }
}

fn arg(lowered: &Lowered, number: usize) -> Result<Arg> {
    let name = lowered.params[number].as_str();
    let buffers = lowered.kernels.iter().filter_map(|k| k.func.find_buffer(name).map(|id| (k, id)));
    let (mut read, mut written, mut align, mut found) = (false, false, 1, None);
    for (kernel, id) in buffers {
        // A buffer that an earlier kernel wrote whole is not read from the caller; which parts were written is not
        // known here, so it counts as read.
        read |= visit::reads(&kernel.func.body).contains(&id);
        written |= visit::writes(&kernel.func.body).contains(&id);
        align = align.max(kernel.func.buffer(id).align);
        found = found.or(kernel.func.buffers.get(id.0 as usize));
    }
    let buffer =
        found.ok_or_else(|| Error::bug(Code::CodegenParams, format!("no kernel knows the parameter {name}")))?;
    let access = match (read, written) {
        (true, true) => Access::ReadWrite,
        (false, true) => Access::Write,
        _ => Access::Read,
    };
    // Kernels see their parameters flat; the caller sees what the program says.
    let flat = || (buffer.const_shape().unwrap_or_default(), vec![1; buffer.shape.len()]);
    let (shape, strides) = lowered.shapes.get(number).cloned().unwrap_or_else(flat);
    let (dtype, bytes, values) = (buffer.dtype, bytes(buffer)?, buffer.values);
    let dynamic = lowered.dynamic.get(number).copied().flatten();
    Ok(Arg { name: name.to_string(), dtype, shape, strides, align, bytes, access, values, dynamic })
}

fn bytes(buffer: &Buffer) -> Result<u64> {
    let elements = buffer.elements().and_then(|n| u64::try_from(n).ok());
    let missing = || Error::bug(Code::CodegenParams, format!("{} has no constant size", buffer.name));
    Ok(buffer.dtype.bytes_of(elements.ok_or_else(missing)?))
}
