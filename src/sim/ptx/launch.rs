//! From arguments to device buffers and back, and one launch after the other as [`crate::kernel`] describes it.

use super::code::Fill;
use super::exec::Program;
use super::inst::Entry;
use super::world::{Bytes, ParamValue, Site, Trace, World};
use super::{decode, flow, grid, parse, report};
use crate::array::Array;
use crate::error::{Code, Error, Result};
use crate::kernel::{Access, Arg, Kernel, Kernels, Param};
use crate::sim::flight::Landing;
use crate::sim::race::Cell;
use crate::sim::{Mode, Options, Policy, Stats};
use std::time::Instant;

/// The alignment of a workspace buffer, as the driver allocates it.
const WORKSPACE_ALIGN: u32 = 256;

/// Runs the kernels of a program; `trace`: with a digest of one line, or of all accesses.
pub(in crate::sim::ptx) fn run(
    kernels: &Kernels,
    options: &Options,
    args: &mut [Array],
    trace: Option<Option<u32>>,
) -> Result<(Stats, u64)> {
    if options.mode != Mode::Real {
        return Err(Error::input(Code::PtxMode, "PTX runs in the real types alone, not in integers modulo 2^32"));
    }
    if kernels.args.iter().any(|arg| arg.dynamic.is_some()) {
        let shapes: Vec<&[usize]> = args.iter().map(|a| a.shape.as_slice()).collect();
        let sizes = kernels.sizes_of(&shapes)?;
        return run(&kernels.at(&sizes)?, options, args, trace);
    }
    check_args(kernels, args)?;
    kernels.check_values(args)?;
    let module = parse::module(&kernels.text)?;
    let mut programs = Vec::new();
    for kernel in &kernels.kernels {
        let entry = module.entries.iter().find(|e| e.name == kernel.entry);
        let entry =
            entry.ok_or_else(|| Error::bug(Code::PtxEntry, format!("the PTX has no entry {}", kernel.entry)))?;
        check_launch(kernel, entry)?;
        let code = decode::entry(entry).map_err(|e| report::with_text(e, kernels))?;
        programs.push(Program { entry, code, joins: flow::joins(&entry.insts) });
    }
    let mut world = World::new(options.limits.statements, options.races);
    world.trace = trace.map(|line| Trace { line, digest: 0 });
    allocate(kernels, options, &mut world)?;
    for (arg, memory) in args.iter_mut().zip(&mut world.memories) {
        memory.bytes = std::mem::take(&mut arg.bytes);
    }
    let start = Instant::now();
    let result = launch_all(kernels, &programs, options, &mut world);
    let seconds = start.elapsed().as_secs_f64();
    for (arg, memory) in args.iter_mut().zip(&mut world.memories) {
        arg.bytes = std::mem::take(&mut memory.bytes);
    }
    result?;
    for (arg, memory) in kernels.args.iter().zip(&world.memories) {
        if let Some(element) = unwritten(arg, &memory.written) {
            let message = format!("the program ended without writing {element}");
            return Err(Error::bug(Code::PtxUnwritten, message));
        }
    }
    Ok((Stats { statements: world.stores, seconds }, world.trace.map_or(0, |t| t.digest)))
}

fn check_args(kernels: &Kernels, args: &[Array]) -> Result<()> {
    if args.len() != kernels.args.len() {
        let message = format!(
            "the program has {}, and {} were given",
            crate::error::counted(kernels.args.len(), "parameter"),
            crate::error::counted(args.len(), "argument")
        );
        return Err(Error::input(Code::PtxArguments, message));
    }
    for (arg, array) in kernels.args.iter().zip(args) {
        if array.dtype != arg.dtype || (array.bytes.len() as u64) < arg.bytes {
            let message = format!(
                "argument {} must be {} bytes of {}, but is {} bytes of {}",
                arg.name,
                arg.bytes,
                arg.dtype,
                array.bytes.len(),
                array.dtype
            );
            return Err(Error::input(Code::PtxArguments, message));
        }
    }
    Ok(())
}

/// What the launch says has to be what the text says.
fn check_launch(kernel: &Kernel, entry: &Entry) -> Result<()> {
    let bug = |message: String| Err(Error::bug(Code::PtxLaunch, format!("kernel {}: {message}", kernel.entry)));
    if entry.params.len() != kernel.params.len() {
        return bug(format!("{} parameters are passed, the entry has {}", kernel.params.len(), entry.params.len()));
    }
    for (n, (param, declared)) in kernel.params.iter().zip(&entry.params).enumerate() {
        let bytes = match param {
            Param::TensorMap(_) => 128,
            Param::Size(_) => 4,
            Param::Arg(_) | Param::Workspace(_) => 8,
        };
        if declared.bytes != bytes {
            return bug(format!("parameter {n} has {bytes} bytes, {} declares {}", declared.name, declared.bytes));
        }
    }
    if entry.threads.is_some_and(|t| t != kernel.block) {
        return bug(format!("blocks of {:?} are launched, the entry requires {:?}", kernel.block, entry.threads));
    }
    let threads: u64 = kernel.block.iter().map(|n| u64::from(*n)).product();
    let cluster: u64 = kernel.cluster.iter().map(|n| u64::from(*n)).product();
    let uneven = (0..3).any(|n| kernel.cluster[n] == 0 || !kernel.grid[n].is_multiple_of(kernel.cluster[n]));
    if threads == 0 || threads > 1024 || cluster > 16 || uneven {
        return bug("blocks, clusters or the grid have no size that a launch can have".to_string());
    }
    Ok(())
}

/// Arguments and workspace as device buffers; the bytes of arguments come later.
fn allocate(kernels: &Kernels, options: &Options, world: &mut World) -> Result<()> {
    let shared: u64 = kernels.kernels.iter().map(|k| u64::from(k.shared_bytes)).max().unwrap_or(0);
    let cluster = |k: &Kernel| k.cluster.iter().map(|n| u64::from(*n)).product::<u64>();
    let mut total = 26 * shared * kernels.kernels.iter().map(cluster).max().unwrap_or(1);
    let mut add = |bytes: u64, written: bool| {
        total = total.saturating_add(if written { bytes.saturating_mul(2) } else { 0 });
        match total > options.limits.bytes || bytes >= 1 << 40 {
            true => Err(Error::input(Code::PtxLimit, "the program needs more memory than the simulator was allowed")),
            false => Ok(bytes as usize),
        }
    };
    for (n, arg) in kernels.args.iter().enumerate() {
        let writes = arg.access != Access::Read;
        let bytes = add(arg.bytes, writes)?;
        world.memories.push(Bytes {
            name: arg.name.clone(),
            written: vec![0; if writes { bytes } else { 0 }],
            base: World::buffer_address(n, arg.align),
            ..Bytes::default()
        });
    }
    for (n, buffer) in kernels.workspace.iter().enumerate() {
        let bytes = add(buffer.bytes, true)?;
        world.memories.push(Bytes {
            name: buffer.name.clone(),
            bytes: vec![0xA5; bytes],
            written: vec![0; bytes],
            base: World::buffer_address(kernels.args.len() + n, WORKSPACE_ALIGN),
            ..Bytes::default()
        });
    }
    world.buffers = world.memories.len();
    Ok(())
}

fn launch_all(kernels: &Kernels, programs: &[Program<'_>], options: &Options, world: &mut World) -> Result<()> {
    for (kernel, program) in kernels.kernels.iter().zip(programs) {
        launch(kernels, kernel, program, options, world)?;
    }
    Ok(())
}

fn launch(
    kernels: &Kernels,
    kernel: &Kernel,
    program: &Program<'_>,
    options: &Options,
    world: &mut World,
) -> Result<()> {
    world.params = params(kernels, kernel, program.entry, world)?;
    check_loads(kernel, program, world)?;
    (world.block, world.cluster) = (kernel.block, kernel.cluster);
    world.grid = launched(kernel, options.policy);
    world.shared_bytes = kernel.shared_bytes;
    (world.early, world.concurrent) = (kernel.early && !kernel.concurrent, kernel.concurrent);
    world.landing = Landing::of(options.policy);
    world.memories.truncate(world.buffers);
    for rank in 0..world.blocks() {
        let bytes = kernel.shared_bytes as usize;
        let name = match world.blocks() {
            1 => "shared memory".to_string(),
            _ => format!("the shared memory of block {rank} of the cluster"),
        };
        world.memories.push(Bytes {
            name,
            bytes: vec![0xA5; bytes],
            written: vec![0; bytes],
            base: super::world::SHARED,
            ..Bytes::default()
        });
    }
    let maps = kernel.params.iter().filter_map(|p| match p {
        Param::TensorMap(map) => Some((map.dtype.bits() / 8).max(1)),
        _ => None,
    });
    let unit = maps.min().unwrap_or(16).min(program.code.unit).clamp(1, 16);
    world.unit_shift = unit.ilog2();
    let watched: u64 = if options.races { world.memories.iter().map(|m| m.written.len() as u64).sum() } else { 0 };
    let warps = kernel.block.iter().map(|n| u64::from(*n)).product::<u64>().div_ceil(32) * world.blocks() as u64;
    let registers = u64::from(program.code.registers) * 256 + u64::from(program.entry.local_bytes) * 64;
    let cell = (size_of::<Cell>() + size_of::<[Site; 2]>()) as u64;
    let bytes = watched.div_ceil(u64::from(unit)).saturating_mul(cell).saturating_add(warps * registers);
    if bytes > options.limits.bytes {
        let message = "the kernel needs more memory than the simulator was allowed";
        return Err(Error::input(Code::PtxLimit, message));
    }
    for memory in &mut world.memories {
        memory.constant.clear();
        let units = if options.races { memory.written.len().div_ceil(1 << world.unit_shift) } else { 0 };
        memory.cells = vec![Cell::default(); units];
        memory.sites = vec![[Site::default(); 2]; units];
    }
    grid::run(program, world, options.policy).map_err(|stop| {
        let error = report::error(&stop, kernels, kernel, program);
        if kernels.kernels.len() > 1 { error.within(format!("in kernel {}", kernel.entry)) } else { error }
    })
}

/// The values of the kernel's parameters, with their places in the parameter space.
fn params(kernels: &Kernels, kernel: &Kernel, entry: &Entry, world: &World) -> Result<Vec<(u32, u32, ParamValue)>> {
    let number = |param: &Param| match param {
        Param::Arg(n) if *n < kernels.args.len() => Some(*n),
        Param::Workspace(n) if *n < kernels.workspace.len() => Some(kernels.args.len() + n),
        _ => None,
    };
    let missing = || Error::bug(Code::PtxLaunch, format!("kernel {} has a parameter of no buffer", kernel.entry));
    kernel
        .params
        .iter()
        .zip(&entry.params)
        .map(|(param, declared)| {
            let value = match param {
                Param::TensorMap(map) => ParamValue::Map(map.clone(), number(&map.array).ok_or_else(missing)?),
                Param::Size(n) => {
                    let size = kernels.sizes.get(*n).ok_or_else(missing)?;
                    let value = size.high.checked_div(size.by).and_then(|v| u64::try_from(v).ok());
                    ParamValue::Number(value.ok_or_else(missing)?)
                }
                plain => ParamValue::Number(world.memories[number(plain).ok_or_else(missing)?].base),
            };
            Ok((declared.offset, declared.bytes, value))
        })
        .collect()
}

/// What the text loads of the parameter space is part of a parameter, and not of a tensor map.
fn check_loads(kernel: &Kernel, program: &Program<'_>, world: &World) -> Result<()> {
    for (_, fill) in &program.code.fills {
        if let Fill::Param { offset, bytes } = *fill
            && world.param(offset, bytes).is_none()
        {
            let message =
                format!("kernel {}: byte {offset} of its parameters is loaded, and has no value", kernel.entry);
            return Err(Error::bug(Code::PtxLaunch, message));
        }
    }
    Ok(())
}

/// The blocks that run: all, or of a persistent kernel as [`Policy`] says.
fn launched(kernel: &Kernel, policy: Policy) -> [u32; 3] {
    let [x, y, z] = kernel.grid;
    if !kernel.persistent {
        return [x, y, z];
    }
    let step = kernel.cluster[0].max(1);
    let tiles = x / step;
    let uneven = (2..tiles).find(|n| !tiles.is_multiple_of(*n)).unwrap_or(1);
    let clusters = match policy {
        Policy::InOrder => 1,
        Policy::Reverse => uneven,
        Policy::Random(seed) if seed % 8 == 0 => tiles,
        Policy::Random(seed) => [1, if tiles > 2 { 2 } else { 1 }, uneven][(seed % 3) as usize],
    };
    [clusters * step, y, z]
}

/// The first element of an argument that nothing has written, as text.
fn unwritten(arg: &Arg, written: &[u8]) -> Option<String> {
    if written.is_empty() {
        return None;
    }
    let bits = u64::from(arg.dtype.bits());
    let total: i64 = arg.shape.iter().product();
    let mut index = vec![0i64; arg.shape.len()];
    for flat in 0..total {
        let mut rest = flat;
        for d in (0..index.len()).rev() {
            (index[d], rest) = (rest % arg.shape[d].max(1), rest / arg.shape[d].max(1));
        }
        let at: i64 = index.iter().zip(&arg.strides).map(|(i, s)| i * s).sum();
        let first = at as u64 * bits / 8;
        let last = (at as u64 * bits + bits).div_ceil(8);
        if written.get(first as usize..last as usize).is_none_or(|w| w.contains(&0)) {
            let index: Vec<String> = index.iter().map(i64::to_string).collect();
            return Some(format!("{}[{}]", arg.name, index.join(", ")));
        }
    }
    None
}
