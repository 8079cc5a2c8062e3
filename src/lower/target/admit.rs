//! The only place where a legal program is refused for its chip: for instructions that the target lacks, and for what this version of
//! the compiler does not lower yet, each named with the step that asked for it.

use crate::error::{Code, Error, Result, Subject};
use crate::intrin;
use crate::ir::lowered::{LoweredKernel, ROLES};
use crate::ir::{
    Axis, Block, Buffer, BufferId, CopyKind, For, Func, LaunchOptions, RoleId, Scope, Stmt, Var, layout, visit,
};
use crate::target::{FEATURES, Features, REGISTERS_PER_THREAD, Target};

/// Refuses placements that are not lowered yet and types that the chip has no memory format for.
pub fn admit(func: &Func, target: &Target) -> Result<()> {
    let mut missing: Vec<Missing> = Vec::new();
    for l in visit::loops(&func.body) {
        placements_of_loop(func, l, &mut missing);
    }
    if missing.is_empty() {
        roles(func, target)?;
        copies(func, target)?;
        clusters(func, target)?;
        multicasts(func)?;
        neighbours(func, target)?;
        pingpong(func)?;
        instructions(func, target)?;
        return func.buffers.iter().try_for_each(whole_bytes);
    }
    missing.dedup();
    let listed: Vec<String> = missing.iter().map(|m| format!("{}{}", m.step, m.remark)).collect();
    let message = format!("this version does not lower these placements yet: {}", listed.join("; "));
    let error = Error::chip(Code::AdmitPlacement, message);
    Err(missing
        .into_iter()
        .fold(error, |error, m| error.of_step(m.step).about_all(m.about))
        .help("remove these steps to get the same program in ordinary code")
        .help("`explain` prints the Scheduled program, and the simulator runs it"))
}

/// A placement that is not lowered yet.
#[derive(PartialEq)]
struct Missing {
    /// The step that asks for it, without options.
    step: String,
    remark: &'static str,
    about: Vec<Subject>,
}

fn placements_of_loop(func: &Func, l: &For, missing: &mut Vec<Missing>) {
    let name = func.var_name(l.var);
    let mut not_yet = |step: String, remark: &'static str, axis: Option<Axis>| {
        let on = axis.map(|a| Subject::Axis(a.name()));
        missing.push(Missing {
            step,
            remark,
            about: on.into_iter().chain([Subject::Loop(name.to_string())]).collect(),
        });
    };
    if let Some(axis @ (Axis::Warp | Axis::Warpgroup)) = l.axis().filter(|_| l.raster.is_some()) {
        not_yet(format!("bind {name} {}", axis.name()), ", a rasterized loop", Some(axis));
    }
    if let Some(t) = l.tensorize.as_ref().filter(|t| intrin::find(&t.row).is_none_or(|r| r.emit.is_none())) {
        not_yet(format!("tensorize {name} {}", t.row), "", None);
    }
}

/// Ping-pong warpgroups share only the buffers that a role fills: their threads never run the same iteration.
fn pingpong(func: &Func) -> Result<()> {
    for l in visit::loops(&func.body).into_iter().filter(|l| l.is_pingpong()) {
        let name = func.var_name(l.var);
        if visit::blocks(&l.body).iter().all(|b| b.role.is_none()) {
            let message = format!("loop {name} is pingpong, but no role fills a staged buffer inside it");
            return Err(Error::input(Code::LowerPingpong, message)
                .about_loop(name)
                .help(
                    "specialize the staged buffers that TMA fills, so that a producer loads for one warpgroup while \
                       the other computes",
                )
                .help(format!("or bind {name} warpgroup: the warpgroups are then cooperative")));
        }
        if let Some(stage) = visit::blocks(&l.body)
            .into_iter()
            .find(|b| is_filled_by_threads(func, b))
            .filter(|_| l.extent.as_int() != Some(1))
        {
            let stage = func.block_name(stage.name);
            let message = format!("loop {name} is pingpong, but no role fills staged buffer {stage} inside it");
            return Err(Error::input(Code::LowerPingpong, message)
                .about_loop(name)
                .about_block(stage)
                .help(format!("specialize {stage}, so that a producer fills it for every warpgroup"))
                .help(format!("or bind {name} warpgroup: the warpgroups are then cooperative")));
        }
        let of_threads =
            |t: &&&For| matches!(t.axis(), Some(Axis::ThreadX | Axis::ThreadY | Axis::ThreadZ)) && !is_of_role(t);
        let inner = visit::loops(&l.body);
        let inner = inner.iter().find(of_threads).filter(|_| l.extent.as_int() != Some(1));
        if let Some((t, axis)) = inner.and_then(|t| Some((t, t.axis()?.name()))) {
            let shared = func.var_name(t.var);
            let message = format!(
                "loop {name} is pingpong, but loop {shared} inside it is bound to the {axis} of all warpgroups"
            );
            return Err(Error::input(Code::LowerPingpong, message)
                .about_loop(name)
                .about_loop(shared)
                .about(Subject::Axis(axis))
                .help(format!("specialize the staged buffer that loop {shared} fills"))
                .help(format!("or bind {name} warpgroup: the warpgroups are then cooperative")));
        }
    }
    Ok(())
}

/// Whether the threads of the block, or one for all of them, fill a stage with what no warpgroup holds in its registers.
fn is_filled_by_threads(func: &Func, block: &Block) -> bool {
    let in_any =
        |buffers: Vec<BufferId>, scopes: [Scope; 2]| buffers.iter().any(|b| scopes.contains(&func.buffer(*b).scope));
    block.role.is_none()
        && in_any(visit::writes(&block.body), [Scope::Shared; 2])
        && !in_any(visit::reads(&block.body), [Scope::Fragment, Scope::Local])
}

/// Whether a role has everything inside.
fn is_of_role(l: &For) -> bool {
    visit::blocks(&l.body).iter().all(|b| b.role.is_some())
}

/// Roles need mbarriers, and stated registers instructions that set them.
fn roles(func: &Func, target: &Target) -> Result<()> {
    let used = |id| visit::blocks(&func.body).iter().any(|b| b.role == Some(RoleId(id)));
    for (_, role) in func.roles.iter().enumerate().filter(|(id, _)| used(*id as u32)) {
        let refuse = |feature: Features, what: &str| {
            let lacking = FEATURES.iter().find(|f| f.flag == feature && !target.has(feature))?;
            let since = format!("sm_{}{}", lacking.sm, if lacking.accelerated { "a" } else { "" });
            let message = format!(
                "specialize -> {}{what}: {} has no {}, which {since} introduced",
                role.name, target.name, lacking.name
            );
            Some(Error::chip(Code::AdmitRole, message).about_role(&role.name))
        };
        if let Some(error) = refuse(Features::MBARRIER, "") {
            return Err(
                error.help("remove the step: the threads then fill the staged buffers themselves, in a pipeline too")
            );
        }
        if let Some(error) = refuse(Features::SET_REGISTERS, " regs=..").filter(|_| role.regs.is_some()) {
            return Err(error.help("remove regs=: all threads then have the same number of registers"));
        }
    }
    Ok(())
}

/// Asynchronous copies need a chip that has them; ordinary ones do not take their place unasked.
fn copies(func: &Func, target: &Target) -> Result<()> {
    let kinds = [
        (CopyKind::CpAsync, Features::CP_ASYNC, "asynchronous copies; sm_80"),
        (CopyKind::Tma, Features::TMA, "bulk tensor copies; sm_90"),
    ];
    for (kind, feature, what) in kinds {
        let blocks = visit::blocks(&func.body);
        let asks = |b: &&&Block| b.copy_with.as_ref().is_some_and(|c| c.kind == kind);
        let stages: Vec<&str> = blocks.iter().filter(asks).map(|b| func.block_name(b.name)).collect();
        if stages.is_empty() || target.has(feature) {
            continue;
        }
        let (names, kind) = (stages.join(" "), kind.name());
        let step = format!("copy_with {names} {kind}");
        let message = format!("{step}: {} has no {what} is the first chip with them", target.name);
        let error = Error::chip(Code::AdmitCopy, message);
        return Err(stages
            .into_iter()
            .fold(error, Error::about_block)
            .of_step(step)
            .help(format!("copy_with {names} sync copies through registers, in a pipeline too")));
    }
    Ok(())
}

/// Clusters need a chip that has them, and have no more blocks than it can start together.
fn clusters(func: &Func, target: &Target) -> Result<()> {
    let loops = visit::loops(&func.body);
    let bound = loops.iter().filter(|l| l.axis() == Some(Axis::Cluster));
    let Some(l) = bound.max_by_key(|l| l.extent.as_int()) else { return Ok(()) };
    let (name, most) = (func.var_name(l.var), i64::from(target.limits.cluster_optin));
    if !target.has(Features::CLUSTER) {
        let message = format!(
            "bind {name} cluster: {} has no clusters of blocks; sm_90 is the first chip with them",
            target.name
        );
        return Err(Error::chip(Code::AdmitCluster, message)
            .about_loop(name)
            .about(Subject::Axis(Axis::Cluster.name()))
            .of_step(format!("bind {name} cluster"))
            .help(format!("bind {name} blockIdx.y gives the same blocks without a cluster")));
    }
    match l.extent.as_int() {
        Some(n) if n > most => {
            let message = format!("loop {name} asks for clusters of {n} blocks; {} allows {most}", target.name);
            let error = Error::chip(Code::AdmitCluster, message).about_loop(name);
            Err(error
                .help(format!("split {name} so that its bound part has at most {} iterations", target.limits.cluster)))
        }
        _ => Ok(()),
    }
}

/// Blocks share a copy out only where their loop is bound to a cluster: otherwise each would copy for itself, unasked.
fn multicasts(func: &Func) -> Result<()> {
    let alone =
        |over: Var| visit::loops(&func.body).into_iter().find(|l| l.var == over && l.axis() != Some(Axis::Cluster));
    for block in visit::blocks(&func.body) {
        let Some(l) = block.copy_with.as_ref().and_then(|c| c.multicast).and_then(alone) else { continue };
        let (stage, name) = (func.block_name(block.name), func.var_name(l.var));
        let step = format!("copy_with {stage} tma multicast={name}");
        let message = format!("{step}: no step binds loop {name} to cluster");
        return Err(Error::input(Code::LowerMulticast, message)
            .about_loop(name)
            .about(Subject::Axis(Axis::Cluster.name()))
            .about_block(stage)
            .of_step(step)
            .help(format!("bind {name} cluster, and its blocks divide each copy among them"))
            .help(format!("or remove multicast={name}, and each block copies for itself")));
    }
    Ok(())
}

/// Programmatic dependent launch and bulk prefetches need a chip that has them.
fn neighbours(func: &Func, target: &Target) -> Result<()> {
    let lacking = |feature: Features, states: fn(&LaunchOptions) -> bool| {
        func.launches
            .iter()
            .find(|l| states(&l.options) && !target.has(feature))
            .map(|l| (l.text(func), func.var_name(l.of)))
    };
    if let Some((step, name)) = lacking(Features::GRID_DEPENDENCY, |o| o.grid_dependency.is_some()) {
        let message = format!(
            "{step}: {} has no programmatic dependent launch (PDL); sm_90 is the first chip with it",
            target.name
        );
        return Err(Error::chip(Code::AdmitGridDependency, message)
            .about_loop(name)
            .of_step(step)
            .help("remove `grid_dependency`: the kernel then begins when the previous kernel has ended"));
    }
    if let Some((step, name)) = lacking(Features::TMA, |o| o.l2_prefetch) {
        let message = format!("{step}: {} has no bulk prefetch to L2; sm_90 is the first chip with it", target.name);
        return Err(Error::chip(Code::AdmitL2Prefetch, message)
            .about_loop(name)
            .of_step(step)
            .help("remove `l2_prefetch`: the kernel then reads device memory without a prefetch"));
    }
    Ok(())
}

/// Instructions need a chip that has them.
fn instructions(func: &Func, target: &Target) -> Result<()> {
    let placed =
        visit::loops(&func.body).into_iter().filter_map(|l| Some((l, intrin::find(&l.tensorize.as_ref()?.row)?)));
    let Some((l, row)) = placed.into_iter().find(|(_, row)| !target.has(row.needs)) else { return Ok(()) };
    let lacks = FEATURES.iter().filter(|f| row.needs.contains(f.flag) && !target.has(f.flag));
    let lacks: Vec<String> = lacks
        .map(|f| format!("{}, which sm_{}{} introduced", f.name, f.sm, if f.accelerated { "a" } else { "" }))
        .collect();
    let step = format!("tensorize {} {}", func.var_name(l.var), row.name);
    let message = format!("{step}: {} does not have {}", target.name, lacks.join(" and "));
    let error = Error::chip(Code::AdmitInstruction, message).about_loop(func.var_name(l.var)).of_step(step);
    let (family, types) = (
        |name: &str| name.split('.').next().map(str::to_string),
        |name: &str| name.splitn(3, '.').nth(2).map(str::to_string),
    );
    let alike = |r: &&intrin::Row| family(&r.name) == family(&row.name) && types(&r.name) == types(&row.name);
    Err(match intrin::all().iter().filter(alike).rfind(|r| target.has(r.needs)) {
        Some(other) => error.help(format!("{} has {}", target.name, other.name)),
        None => error.help("remove the step to get the same program in ordinary code"),
    })
}

/// Rows in device memory begin with a byte of their own, or threads of different rows would write one byte.
fn whole_bytes(buffer: &Buffer) -> Result<()> {
    let bits = i64::from(buffer.dtype.bits());
    let strides = layout::strides(buffer).unwrap_or_default();
    let Some((_, rows)) = strides.split_last().filter(|_| bits < 8 && buffer.scope == Scope::Global) else {
        return Ok(());
    };
    let Some(stride) = rows.iter().find(|s| *s * bits % 8 != 0) else { return Ok(()) };
    let message =
        format!("rows of {} are {stride} elements of {}, not a whole number of bytes", buffer.name, buffer.dtype);
    Err(Error::input(Code::AdmitRow, message)
        .about_buffer(&buffer.name)
        .help(format!("make its last extent a multiple of {}, padded with zeros", 8 / bits)))
}

/// A thread writes whole bytes: elements that share one with those of another thread would be lost.
fn bytes_written(kernel: &LoweredKernel) -> Result<()> {
    let mut found = None;
    visit::walk(&kernel.func.body, &mut |s| {
        if let Stmt::Store(store) = s {
            let buffer = kernel.func.buffer(store.buffer);
            let partly = !(buffer.dtype.bits() * store.lanes).is_multiple_of(8) && buffer.scope != Scope::Local;
            found = found.take().or(partly.then_some(buffer));
        }
    });
    let Some(buffer) = found else { return Ok(()) };
    let per = 8 / buffer.dtype.bits();
    let message =
        format!("a thread writes single elements of {}, of which {per} of {} share a byte", buffer.name, buffer.dtype);
    Err(Error::input(Code::AdmitByte, message)
        .about_buffer(&buffer.name)
        .within(format!("in kernel {}", kernel.func.name))
        .help(format!(
            "vectorize a loop over {per} adjacent elements, or a multiple of that, which begins at a multiple of {per}"
        )))
}

/// Each role has a named barrier, of the 16 of a block.
fn slices(kernel: &LoweredKernel) -> Result<()> {
    let of_slice = |s: &Stmt| if let Stmt::Role(slice) = s { slice.role } else { None };
    let roles: Vec<RoleId> = kernel.func.body.iter().filter_map(of_slice).collect();
    let most = ROLES as usize - 1;
    if roles.len() <= most {
        return Ok(());
    }
    let message = format!("{} roles run in one block; its named barriers suffice for {most}", roles.len());
    let names = roles.iter().filter_map(|id| kernel.func.roles.get(id.0 as usize)).map(|r| &r.name);
    Err(names
        .fold(Error::input(Code::AdmitRoles, message), Error::about_role)
        .within(format!("in kernel {}", kernel.func.name))
        .help("let one role fill several staged buffers: specialize S T -> load warps=.."))
}

/// Refuses a block with more threads than the chip allows. The extents of the axes are checked after the pass `roles`, which numbers
/// the threads of all roles along threadIdx.x.
pub fn admit_threads(kernel: &LoweredKernel, target: &Target) -> Result<()> {
    admit_block(kernel, kernel.block(), target)
}

/// Refuses a block of these extents if it has more threads than the chip allows.
pub fn admit_block(kernel: &LoweredKernel, block: [u32; 3], target: &Target) -> Result<()> {
    let limits = &target.limits;
    let threads = block.iter().fold(1u128, |n, extent| n * u128::from(*extent));
    if threads > u128::from(limits.threads) {
        return Err(over(
            kernel,
            Code::AdmitThreads,
            format!("a block of {block:?} has {threads} threads; {} allows {}", target.name, limits.threads),
        )
        .about(Subject::Threads)
        .help("split the loops bound to threadIdx, warp or warpgroup with smaller factors"));
    }
    Ok(())
}

/// The most elements of a local buffer, far above the [`REGISTERS_PER_THREAD`] 32-bit registers of a thread.
const MOST_LOCAL: i64 = 4096;

/// Refuses local buffers of more than [`MOST_LOCAL`] elements.
fn registers(kernel: &LoweredKernel) -> Result<()> {
    let body = &kernel.func.body;
    let mut used = visit::writes(body);
    used.extend(visit::reads(body));
    let local = used.into_iter().filter(|b| kernel.func.buffer(*b).scope == Scope::Local);
    let size = |b: BufferId| kernel.func.buffer(b).elements().unwrap_or(i64::MAX);
    let Some(large) = local.into_iter().find(|b| size(*b) > MOST_LOCAL) else { return Ok(()) };
    let message = format!(
        "local buffer {} has {} elements; {MOST_LOCAL} are allowed, and a thread has {REGISTERS_PER_THREAD} registers",
        kernel.func.buffer(large).name,
        size(large)
    );
    Err(Error::input(Code::AdmitRegisters, message)
        .about_buffer(&kernel.func.buffer(large).name)
        .within(format!("in kernel {}", kernel.func.name))
        .help("use smaller tiles"))
}

/// Refuses a kernel that is over a limit of the chip.
pub fn admit_kernel(kernel: &LoweredKernel, target: &Target) -> Result<()> {
    admit_threads(kernel, target)?;
    registers(kernel)?;
    bytes_written(kernel)?;
    slices(kernel)?;
    let limits = &target.limits;
    let (block, grid) = (kernel.block(), kernel.grid());
    let threads = [Axis::ThreadX, Axis::ThreadY, Axis::ThreadZ];
    let blocks = [Axis::BlockX, Axis::BlockY, Axis::BlockZ];
    for (d, (thread, of_block)) in threads.into_iter().zip(blocks).enumerate() {
        let (thread, of_block) = (thread.name(), of_block.name());
        if block[d] > limits.block_dims[d] {
            return Err(over(
                kernel,
                Code::AdmitBlockDim,
                format!("{thread} has extent {}; {} allows {}", block[d], target.name, limits.block_dims[d]),
            )
            .about(Subject::Axis(thread)));
        }
        if u64::from(grid[d]) > limits.grid_dims[d] {
            return Err(over(
                kernel,
                Code::AdmitGridDim,
                format!("{of_block} has extent {}; {} allows {}", grid[d], target.name, limits.grid_dims[d]),
            )
            .about(Subject::Axis(of_block))
            .help("bind the longer loop to blockIdx.x, which allows the most"));
        }
    }
    if kernel.shared_bytes > limits.shared_optin {
        let shared: Vec<&Buffer> = kernel.func.buffers.iter().filter(|b| b.scope == Scope::Shared).collect();
        let bytes = |b: &&Buffer| {
            let n = crate::lower::elements(b, Code::AdmitShared)?;
            Ok(format!("{} {} bytes", b.name, b.dtype.bytes_of(n as u64)))
        };
        let list: Vec<String> = shared.iter().map(bytes).collect::<Result<_>>()?;
        let error = over(
            kernel,
            Code::AdmitShared,
            format!(
                "a block needs {} bytes of shared memory ({}); {} allows {}",
                kernel.shared_bytes,
                list.join(", "),
                target.name,
                limits.shared_optin
            ),
        );
        return Err(shared
            .into_iter()
            .fold(error, |e, b| e.about_buffer(&b.name))
            .help("use smaller tiles, or compute_at a deeper loop"));
    }
    Ok(())
}

fn over(kernel: &LoweredKernel, code: Code, message: String) -> Error {
    Error::chip(code, message).within(format!("in kernel {}", kernel.func.name))
}
