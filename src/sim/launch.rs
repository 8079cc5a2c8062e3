//! From arguments to memories and back; plans for programs in sequence and for kernels.

use super::access::World;
use super::code::{Code, LANES, Location};
use super::compile::{Setup, compile};
use super::fault;
use super::grid::{self, Launch};
use super::inspect::Watcher;
use super::integer::Domain;
use super::listen::Listener;
use super::mbarrier::Mbarriers;
use super::memory::Memory;
use super::race::Cell;
use super::scene::Onlooker;
use super::slices::needs_clocks;
use super::warp::Warp;
use super::{Mode, Options, Stats};
use crate::array::{Array, filled};
use crate::dtype::DType;
use crate::error::{self, Error, Fault, Result};
use crate::ir::lowered::{Lowered, LoweredKernel, Shape};
use crate::ir::{Axis, Buffer, Func, Scope, layout, visit};
use std::time::Instant;

/// An element of an output that nothing has written.
const UNWRITTEN: error::Code = error::Code::SimUnwritten;

/// A parameter or a workspace of the program.
struct Global<'a> {
    buffer: &'a Buffer,
    span: usize,
    written: bool,
    workspace: bool,
}

fn span(buffer: &Buffer) -> Result<usize> {
    let span = layout::span(buffer).and_then(|n| usize::try_from(n).ok()).filter(|n| *n < 1 << 40);
    span.ok_or_else(|| {
        Error::input(error::Code::SimShape, format!("buffer {} has no size or too large a one", buffer.name))
    })
}

/// The elements that each parameter spans, and what they can be in integer mode.
pub(super) fn spans(func: &Func) -> Result<Vec<(usize, Domain)>> {
    if !func.sizes.is_empty() {
        return spans(&func.at_most()?);
    }
    let of = |buffer: &Buffer| Ok((span(buffer)?, Domain::of(buffer)));
    func.params.iter().map(|p| of(lookup(func, p.0)?)).collect()
}

fn lookup(func: &Func, id: u32) -> Result<&Buffer> {
    let found = func.buffers.get(id as usize);
    found.ok_or_else(|| Error::input(error::Code::SimBuffer, "a parameter is not a buffer of the program"))
}

/// The extents of arrays.
fn shapes(args: &[Array]) -> Vec<&[usize]> {
    args.iter().map(|a| a.shape.as_slice()).collect()
}

/// How a program runs in sequence.
pub(super) enum Sequence {
    /// One iteration after the other.
    #[cfg(test)]
    Single,
    /// Innermost loops as lanes, where that changes nothing.
    Lanes,
    /// One iteration after the other, and somebody watches.
    Watched(Watcher),
}

/// Runs a program in sequence.
pub(super) fn sequential(func: &Func, options: &Options, args: &mut [Array], how: Sequence) -> Result<Stats> {
    if !func.sizes.is_empty() {
        let sizes = func.sizes_of(&shapes(args))?;
        return sequential(&func.at(&sizes)?, options, args, how);
    }
    let written = visit::writes(&func.body);
    let mut globals = Vec::new();
    for (i, buffer) in func.buffers.iter().enumerate() {
        let workspace = !func.params.iter().any(|p| p.0 as usize == i);
        let written = written.iter().any(|w| w.0 as usize == i);
        globals.push(Global { buffer, span: span(buffer)?, written, workspace });
    }
    let places = (0..func.buffers.len()).map(|i| Location::Global(i as u32)).collect();
    let plan = Setup {
        places,
        integer: options.mode == Mode::Integer,
        watched: Vec::new(),
        ordered: Vec::new(),
        lanes: matches!(how, Sequence::Lanes),
        launch: Vec::new(),
        warps: 1,
        heard: matches!(how, Sequence::Watched(_)),
        early: false,
        derived: &[],
        maps: &[],
    };
    let code = compile(func, &plan)?;
    let order: Vec<usize> = func.params.iter().map(|p| p.0 as usize).collect();
    let ran = with_memories(&globals, (&order, &[]), options, args, false, |world| {
        let mut warp = Warp::new(&code, 0, 0, 1);
        if let Sequence::Watched(watcher) = how {
            world.watcher = watcher;
        }
        let run = warp.run(&code, world, u64::MAX);
        run.map(|_| ()).map_err(|t| fault::explain(&t, &code, &warp, None))
    });
    // A wrong Func is its author's fault; wrong kernels are the fault of who lowered it.
    ran.map_err(|e| if e.code() == UNWRITTEN { e.blamed(Fault::Input) } else { e })
}

/// Fills memories from the arguments, runs, checks that outputs are complete, and gives the bytes back in any case.
fn with_memories(
    globals: &[Global<'_>],
    (order, stated): (&[usize], &[Shape]),
    options: &Options,
    args: &mut [Array],
    is_part: bool,
    run: impl FnOnce(&mut World) -> Result<()>,
) -> Result<Stats> {
    check_args(globals, order, options, args)?;
    let integer = options.mode == Mode::Integer;
    let mut world = World::new(options.limits.statements);
    let mut bytes = 0u64;
    for g in globals {
        let size = if integer { 4 * g.span as u64 } else { g.buffer.dtype.bytes_of(g.span as u64) };
        let marks = g.span as u64 * if options.races { 1 + size_of::<Cell>() as u64 } else { 1 };
        bytes += if g.workspace { size } else { 0 } + if g.workspace || g.written { marks } else { 0 };
        if bytes > options.limits.bytes {
            let message = format!(
                "the program needs more than the {} bytes that the simulator was allowed",
                options.limits.bytes
            );
            return Err(Error::input(error::Code::SimLimit, message));
        }
        let bits = if integer { 32 } else { g.buffer.dtype.bits() };
        world.globals.push(if g.workspace && is_part {
            // What the blocks that do not run would have written counts as written.
            let bytes = if integer { g.span * 4 } else { (g.span * bits as usize).div_ceil(8) };
            Memory { unit_bits: bits, bytes: filled(0, bytes)?, integer, ..Memory::default() }
        } else if g.workspace {
            Memory::poisoned(g.span, bits, integer)?
        } else {
            let marks = if g.written && !is_part { filled(0, g.span)? } else { Vec::new() };
            Memory { unit_bits: bits, marks, integer, ..Memory::default() }
        });
    }
    for (arg, &g) in args.iter_mut().zip(order) {
        world.globals[g].bytes = std::mem::take(&mut arg.bytes);
    }
    let start = Instant::now();
    let result = run(&mut world);
    let seconds = start.elapsed().as_secs_f64();
    for (arg, &g) in args.iter_mut().zip(order) {
        arg.bytes = std::mem::take(&mut world.globals[g].bytes);
    }
    result?;
    for (number, &g) in order.iter().enumerate().filter(|(_, g)| globals[**g].written && !is_part) {
        // Kernels know a parameter as one row; the program says which of its elements there are.
        let buffer = globals[g].buffer;
        let own = || Some((buffer.const_shape()?, layout::strides(buffer)?));
        if let Some(shape) = stated.get(number).cloned().or_else(own)
            && let Some(element) = fault::unwritten(&buffer.name, &shape, &world.globals[g].marks)
        {
            return Err(Error::bug(UNWRITTEN, format!("the program ended without writing {element}")));
        }
    }
    Ok(Stats { statements: world.statements, seconds })
}

fn check_args(globals: &[Global<'_>], order: &[usize], options: &Options, args: &[Array]) -> Result<()> {
    if args.len() != order.len() {
        let message = format!(
            "the program has {}, and {} were given",
            crate::error::counted(order.len(), "parameter"),
            crate::error::counted(args.len(), "argument")
        );
        return Err(Error::input(error::Code::SimArguments, message));
    }
    for (arg, &g) in args.iter().zip(order) {
        let Global { buffer, span, .. } = globals[g];
        let dtype = if options.mode == Mode::Integer { DType::U32 } else { buffer.dtype };
        let bytes = dtype.bytes_of(span as u64);
        if arg.dtype != dtype || (arg.bytes.len() as u64) < bytes {
            let message = format!(
                "argument {} must be {span} elements of {dtype} ({bytes} bytes), but is {} bytes of {}",
                buffer.name,
                arg.bytes.len(),
                arg.dtype
            );
            return Err(Error::input(error::Code::SimArguments, message));
        }
        if let Some(values) = buffer.values.filter(|_| options.mode == Mode::Real) {
            arg.check_values(&buffer.name, values)?;
        }
    }
    Ok(())
}

/// The parameters of a lowered program, then its workspace.
fn lowered_globals(lowered: &Lowered) -> Result<(Vec<Global<'_>>, Vec<Option<usize>>)> {
    let mut globals: Vec<Global<'_>> = Vec::new();
    for kernel in &lowered.kernels {
        let written = visit::writes(&kernel.func.body);
        for id in &kernel.func.params {
            let buffer = lookup(&kernel.func, id.0)?;
            let workspace = kernel.workspace.contains(id);
            let writes = written.contains(id);
            let size = span(buffer)?;
            match globals.iter_mut().find(|g| g.buffer.name == buffer.name && g.workspace == workspace) {
                Some(g) if g.span != size || g.buffer.dtype != buffer.dtype => {
                    let message = format!("kernels disagree about the size or type of {}", buffer.name);
                    return Err(Error::bug(error::Code::SimShape, message));
                }
                Some(g) => g.written |= writes,
                None => globals.push(Global { buffer, span: size, written: writes, workspace }),
            }
        }
    }
    let find = |name: &String| globals.iter().position(|g| !g.workspace && g.buffer.name == *name);
    let order = lowered.params.iter().map(find).collect();
    Ok((globals, order))
}

/// As [`spans`].
pub(super) fn lowered_spans(lowered: &Lowered) -> Result<Vec<(usize, Domain)>> {
    if !lowered.sizes.is_empty() {
        return lowered_spans(&lowered.at_most());
    }
    let (globals, order) = lowered_globals(lowered)?;
    let unused = |name: &String| {
        let all = lowered.kernels.iter().flat_map(|k| &k.func.buffers);
        let found = all.into_iter().find(|b| b.scope == Scope::Global && b.name == *name);
        found.map_or(Ok((0, Domain::All)), |b| Ok((span(b)?, Domain::of(b))))
    };
    let known = |g: &Global<'_>| (g.span, Domain::of(g.buffer));
    let of = |(g, name): (Option<usize>, &String)| g.map_or_else(|| unused(name), |g| Ok(known(&globals[g])));
    order.into_iter().zip(&lowered.params).map(of).collect()
}

/// Runs a lowered program.
pub(super) fn parallel(
    lowered: &Lowered,
    options: &Options,
    args: &mut [Array],
    (listener, onlooker): (Listener, Onlooker),
) -> Result<Stats> {
    if !lowered.sizes.is_empty() {
        let sizes = lowered.sizes_of(&shapes(args))?;
        return parallel(&lowered.at(&sizes)?, options, args, (listener, onlooker));
    }
    let (globals, order) = lowered_globals(lowered)?;
    if args.len() != order.len() {
        let message = format!(
            "the program has {}, and {} were given",
            crate::error::counted(order.len(), "parameter"),
            crate::error::counted(args.len(), "argument")
        );
        return Err(Error::input(error::Code::SimArguments, message));
    }
    let (mut compiled, fast) = (Vec::new(), listener.listen.is_none() && !onlooker.is_there());
    for kernel in &lowered.kernels {
        compiled.push(kernel_code(kernel, &globals, options, fast)?);
    }
    // Arguments that no kernel uses stay where they are.
    let mut used: Vec<&mut Array> = Vec::new();
    let (mut places, mut stated) = (Vec::new(), Vec::new());
    for (number, (arg, g)) in args.iter_mut().zip(&order).enumerate() {
        if let Some(g) = g {
            used.push(arg);
            places.push(*g);
            stated.extend(lowered.shapes.get(number).cloned());
        }
    }
    let mut taken: Vec<Array> = used.iter_mut().map(|a| std::mem::replace(&mut **a, empty())).collect();
    let is_part = listener.first_cluster;
    let result = with_memories(&globals, (&places, &stated), options, &mut taken, is_part, |world| {
        (world.listener, world.onlooker) = (listener, onlooker);
        for (number, (kernel, (code, locals))) in lowered.kernels.iter().zip(&compiled).enumerate() {
            world.kernel = number;
            let ran = run_kernel(kernel, code, *locals, world, options);
            if std::mem::take(&mut world.listener.has_enough) {
                continue;
            }
            ran.map_err(|e| {
                if lowered.kernels.len() > 1 { e.within(format!("in kernel {}", kernel.func.name)) } else { e }
            })?;
        }
        Ok(())
    });
    for (arg, back) in used.into_iter().zip(taken) {
        *arg = back;
    }
    result
}

fn empty() -> Array {
    Array { dtype: DType::U8, shape: vec![0], bytes: Vec::new() }
}

/// Bits of a unit of a kernel's shared memory: the smallest element in it.
fn shared_unit(kernel: &LoweredKernel) -> u32 {
    let shared = kernel.func.buffers.iter().filter(|b| b.scope == Scope::Shared);
    shared.map(|b| b.dtype.bits()).min().unwrap_or(8)
}

/// The code of a kernel and the registers of its local buffers. `fast`: a thread alone may run iterations together, and
/// its requests are then not those of a warp.
fn kernel_code(kernel: &LoweredKernel, globals: &[Global<'_>], options: &Options, fast: bool) -> Result<(Code, usize)> {
    let unit = shared_unit(kernel);
    let mut locals = 0u64;
    let mut places = Vec::new();
    for (i, buffer) in kernel.func.buffers.iter().enumerate() {
        places.push(match buffer.scope {
            Scope::Global => {
                let workspace = kernel.workspace.iter().any(|w| w.0 as usize == i);
                let found = globals.iter().position(|g| g.buffer.name == buffer.name && g.workspace == workspace);
                Location::Global(found.map_or(u32::MAX, |g| g as u32))
            }
            // Of another kernel of the program.
            _ if buffer.scope != Scope::Local && !used(kernel, i) => Location::Shared { base: 0, units: 1 },
            Scope::Shared => shared_place(kernel, buffer, unit)?,
            Scope::Local => {
                let base = locals;
                locals += span(buffer)? as u64;
                Location::Local(base as u32)
            }
            Scope::Cluster | Scope::Fragment => {
                return Err(Error::bug(
                    error::Code::SimFragment,
                    format!("{} has no place in a lowered program", buffer.name),
                ));
            }
        });
    }
    let (threads, warps) = (kernel.threads(), kernel.warps());
    if locals * u64::from(warps) * 256 > options.limits.bytes || threads == 0 || threads > 1024 {
        let message = "a block has no or too many threads, or too much local memory";
        return Err(Error::input(error::Code::SimLimit, message));
    }
    let launch = kernel.launch.iter().map(|l| (l.axis, l.var, i64::from(l.extent))).collect();
    let written = visit::writes(&kernel.func.body);
    let watch = |(i, b): (usize, &Buffer)| {
        options.races && (b.scope == Scope::Shared || written.iter().any(|w| w.0 as usize == i))
    };
    let watched = kernel.func.buffers.iter().enumerate().map(watch).collect();
    let exchanged = |i: usize| kernel.exchanged.iter().any(|e| e.0 as usize == i);
    let ordered = |(i, b): (usize, &Buffer)| b.scope == Scope::Shared || exchanged(i);
    let ordered = kernel.func.buffers.iter().enumerate().map(ordered).collect();
    // A single thread runs in sequence. (Its local buffers are one lane's, so lanes could not share them.)
    let lanes = fast && threads == 1 && locals == 0 && !needs_clocks(kernel);
    let integer = options.mode == Mode::Integer;
    let plan = Setup {
        places,
        integer,
        watched,
        ordered,
        lanes,
        launch,
        warps,
        heard: !fast,
        early: kernel.grid_dependency.is_some() && !kernel.concurrent,
        derived: &kernel.derived,
        maps: &kernel.maps,
    };
    Ok((compile(&kernel.func, &plan)?, locals as usize))
}

/// Whether a kernel reads or writes its n-th buffer.
fn used(kernel: &LoweredKernel, n: usize) -> bool {
    let touched = visit::reads(&kernel.func.body).into_iter().chain(visit::writes(&kernel.func.body));
    touched.into_iter().any(|b| b.0 as usize == n)
}

fn shared_place(kernel: &LoweredKernel, buffer: &Buffer, unit: u32) -> Result<Location> {
    let bytes = buffer.dtype.bytes_of(span(buffer)? as u64);
    match buffer.offset {
        Some(offset) if u64::from(offset) + bytes <= u64::from(kernel.shared_bytes) => {
            let base = (u64::from(offset) * 8 / u64::from(unit)) as u32;
            Ok(Location::Shared { base, units: buffer.dtype.bits() / unit })
        }
        _ => {
            let message = format!("shared buffer {} has no place inside the block's shared memory", buffer.name);
            Err(Error::bug(error::Code::SimShared, message))
        }
    }
}

fn run_kernel(kernel: &LoweredKernel, code: &Code, locals: usize, world: &mut World, options: &Options) -> Result<()> {
    let unit = shared_unit(kernel);
    let units = u64::from(kernel.shared_bytes) * 8 / u64::from(unit);
    let mut shared = Memory::poisoned(units as usize, unit, options.mode == Mode::Integer)?;
    let cluster = kernel.cluster().max(1);
    let of_warp = (u64::from(code.registers) + u64::from(code.vectors) + locals as u64) * (8 * LANES as u64);
    if of_warp.saturating_mul(kernel.warps().into()).saturating_mul(cluster.into()) > options.limits.bytes {
        return Err(Error::input(
            error::Code::SimLimit,
            "the threads of a cluster need more memory than the simulator was allowed",
        ));
    }
    let changes = world.clock.with_clocks(needs_clocks(kernel));
    if options.races {
        shared.cells = filled(Cell::default(), units as usize)?;
        if code.accesses.iter().any(|a| a.copies) {
            shared.starts = filled(0, units as usize)?;
        }
        for memory in &mut world.globals {
            // What no kernel writes has no marks, and no races.
            if memory.cells.len() != memory.marks.len() {
                memory.cells = filled(Cell::default(), memory.marks.len())?;
            } else if changes {
                memory.cells.fill(Cell::default());
            }
        }
    }
    world.barriers = Mbarriers::of(&kernel.func, cluster as usize);
    world.share(cluster as usize, shared);
    let axes: Vec<_> = kernel.launch.iter().map(|l| (l.axis, l.var)).collect();
    if axes.iter().any(|(a, _)| matches!(a, Axis::Warp | Axis::Warpgroup)) {
        return Err(Error::bug(error::Code::SimAxis, "the simulator runs blockIdx, the cluster and threadIdx only"));
    }
    let [x, y, z] = kernel.grid();
    let launch = Launch { grid: [x / cluster, y, z], cluster, block: kernel.block(), locals, axes };
    grid::run(code, &launch, world, options.policy)
}
