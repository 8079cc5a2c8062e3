//! Warp specialization: `specialize BUFFERS -> ROLE warps=W`. The kernel becomes one slice for the consumer warps and one for each
//! role.
//!
//! A slice has the whole loop structure with its own statements only; empty loops are removed. The threads of a slice are
//! numbered from 0, along threadIdx.x alone. Rings connect the slices (`handoff`): a role fills a stage when its consumers
//! have released it, they read it when it is full, and mbarriers order both. `ahead` loads registers of the consumers from device memory an
//! iteration ahead, and `pingpong` orders the warpgroups of a ping-pong loop.

mod ahead;
mod handoff;
mod pingpong;

use crate::error::{Code, Error, Result, Subject};
use crate::ir::lowered::threads;
use crate::ir::lowered::{LaunchAxis, LoweredKernel, RoleThreads, registers_at_start};
use crate::ir::{Axis, Expr, For, Func, If, Index, LoopKind, Role, RoleBody, RoleId, Stmt, Var, visit};
use crate::lower::bug;
use crate::lower::map::bind::{Owners, found};
use crate::lower::map::guards::unless_once;
use crate::lower::pipeline::ring::iteration_number;
use crate::target::Target;
use handoff::Place;
use pingpong::Pingpong;

/// The most registers that the consumer warps ask for.
const MOST_REGISTERS: u32 = 240;

/// The thread axes of every role that a stage has: the loops that its stages alone are bound to come to its threads. A role may have
/// more threads: those without an iteration copy nothing (the pass `bind` guards the copies), and wait and arrive like the others.
pub fn threads(func: &mut Func, owners: &Owners) -> Result<Vec<RoleThreads>> {
    let mut ids: Vec<RoleId> = visit::blocks(&func.body).into_iter().filter_map(|b| b.role).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter().map(|id| threads_of(func, owners, id)).collect()
}

fn threads_of(func: &mut Func, owners: &Owners, id: RoleId) -> Result<RoleThreads> {
    let role = role(func, id)?.clone();
    let mine = |l: &For, axis: Axis| !axis.is_block_level() && owners.get(&l.var) == Some(&id);
    let mut axes = found(func, mine)?;
    let lanes = role.warps * threads::LANES as u32;
    if let Some(at) = axes.iter().position(|(a, ..)| matches!(a, Axis::Warp | Axis::Warpgroup)) {
        let (axis, n, name) = axes.remove(at);
        let warps = crate::error::counted(role.warps, "warp");
        let why = match axis {
            Axis::Warpgroup => Some("is bound to warpgroup, which counts those of the consumers".to_string()),
            _ if n > role.warps => Some(format!("is bound to {n} warps, but the role has {warps}")),
            _ if !axes.is_empty() => Some("is bound to warp, and another loop of the role to threadIdx".to_string()),
            _ => None,
        };
        if let Some(why) = why {
            let message = format!("loop {name}, which divides the staged buffers of role {}, {why}", role.name);
            return Err(Error::input(Code::LowerRole, message)
                .about_loop(name)
                .about_role(&role.name)
                .help(format!("bind it to threadIdx, or at most {} iterations to the role's warps", role.warps)));
        }
    }
    if axes.is_empty() {
        axes.push((Axis::ThreadX, lanes, role.name.clone()));
    }
    axes.sort_by_key(|(axis, ..)| *axis);
    let bound = axes.iter().fold(1, |all: u64, (_, n, _)| all.saturating_mul(u64::from(*n)));
    // Idle threads are further iterations of the slowest axis.
    let faster = axes.iter().rev().skip(1).try_fold(1u32, |all, (_, n, _)| all.checked_mul(*n));
    let rows = faster.filter(|n| lanes.is_multiple_of(*n)).map(|n| lanes / n);
    match (rows, axes.last_mut()) {
        (Some(rows), Some((_, n, _))) if *n <= rows => *n = rows,
        (None, _) if bound <= u64::from(lanes) => return Err(uneven_threads(&role, lanes, faster)),
        _ => return Err(too_many_threads(&role, lanes, bound)),
    }
    let axis = |(axis, extent, _): (Axis, u32, String)| {
        let var = func.add_var(format!("{}_{}", axis.name(), role.name));
        LaunchAxis { axis, var, extent }
    };
    Ok(RoleThreads { role: id, axes: axes.into_iter().map(axis).collect() })
}

/// The refusal of a role whose number of threads is no multiple of the threads that its faster loops are bound to.
fn uneven_threads(role: &Role, lanes: u32, faster: Option<u32>) -> Error {
    let (name, faster) = (&role.name, faster.unwrap_or(u32::MAX));
    let message = format!("{faster} threads of the faster loops of role {name} do not divide its {lanes} threads");
    Error::input(Code::LowerRole, message)
        .about_role(name)
        .about(Subject::Threads)
        .help(format!("split the loops so that the parts bound to the faster axes have a divisor of {lanes} threads"))
}

fn too_many_threads(role: &Role, lanes: u32, bound: u64) -> Error {
    let (name, warps) = (&role.name, crate::error::counted(role.warps, "warp"));
    let threads = crate::error::counted(bound, "thread");
    let message = format!("role {name} has {warps}, {lanes} threads, but its loops are bound to {threads}");
    Error::input(Code::LowerRole, message)
        .about_role(name)
        .about(Subject::Threads)
        .help(format!("split the loops of its staged buffers so that the bound parts divide {lanes} threads"))
        .help("or leave them unbound where a bulk copy (copy_with STAGE tma) or one thread fills the buffer")
}

fn role(func: &Func, id: RoleId) -> Result<&Role> {
    func.roles
        .get(id.0 as usize)
        .ok_or_else(|| bug(Code::LowerRoles, "a block has a role that the program does not have"))
}

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let env = kernel.env();
    let roles = std::mem::take(&mut kernel.roles);
    if roles.is_empty() {
        return Ok(());
    }
    let (threads, warps) = (kernel.threads(), kernel.warps());
    if !threads.is_multiple_of(threads::LANES as u32) {
        let threads = crate::error::counted(threads, "thread");
        let message = format!("the consumers have {threads}, but roles divide a block into whole warps");
        return Err(Error::input(Code::LowerRole, message).about(Subject::Threads).help(format!(
            "bind loops of the consumers to threadIdx, so that they have a multiple of {} threads",
            threads::LANES
        )));
    }
    let body = std::mem::take(&mut kernel.func.body);
    let group = threads::warpgroup(&kernel.launch);
    let slices = Slices { roles: &roles, warps, group, whole: body.clone() };
    let at = Place { around: None, number: &Index::Int(0), env: &env, pingpong: 1 };
    let (parts, _) = slices.list(body, &at, &mut kernel.func)?;
    join(kernel, warps, &roles, parts)
}

/// Makes the slices the roles of the kernel; threads are numbered along one axis.
fn join(kernel: &mut LoweredKernel, warps: u32, roles: &[RoleThreads], slices: Vec<Vec<Stmt>>) -> Result<()> {
    let thread = kernel.func.add_var(Axis::ThreadX.name());
    let mut bodies = slices.into_iter();
    let compute = renumbered(bodies.next().unwrap_or_default(), &kernel.launch, thread);
    let mut out = vec![RoleBody { role: None, first: 0, warps, regs: None, body: compute }];
    let mut first = warps;
    for (threads, body) in roles.iter().zip(bodies) {
        let Role { warps, regs, .. } = *role(&kernel.func, threads.role)?;
        own_threads_alone(kernel, threads.role, &body)?;
        nothing_of_compute(&kernel.func, threads.role, &body, &out[0].body)?;
        let body = renumbered(body, &threads.axes, thread);
        out.push(RoleBody { role: Some(threads.role), first, warps, regs, body });
        first = first.saturating_add(warps);
    }
    let blocks = kernel.min_blocks.unwrap_or(1);
    set_registers(&mut out, registers_at_start(first, blocks) * first, &kernel.func.roles)?;
    kernel.func.body = out.into_iter().map(Stmt::Role).collect();
    kernel.launch.retain(|l| l.axis.is_block_level());
    let extent = first.saturating_mul(threads::LANES as u32);
    kernel.launch.push(LaunchAxis { axis: Axis::ThreadX, var: thread, extent });
    Ok(())
}

/// Refuses a stage that depends on a thread loop of its readers: the role has threads of its own, and none of theirs.
fn own_threads_alone(kernel: &LoweredKernel, id: RoleId, body: &[Stmt]) -> Result<()> {
    let mut found = None;
    visit::map_body(
        body.to_vec(),
        &mut |i| {
            let foreign = kernel.launch.iter().find(|l| !l.axis.is_block_level() && i.mentions(l.var));
            found = found.or(foreign.map(|l| l.axis));
            i.clone()
        },
        &mut |e| e,
    );
    let Some(axis) = found else { return Ok(()) };
    let name = &role(&kernel.func, id)?.name;
    let message = format!(
        "a staged buffer of role {name} depends on a loop that its readers bind to {}, but the role has threads of its \
         own",
        axis.name()
    );
    Err(Error::input(Code::LowerRole, message).about_role(name).about(Subject::Axis(axis.name())).help(
        "compute_at the staged buffer outside the loops that its readers bind, so that one copy serves all of them",
    ))
}

/// Refuses a role stage that accesses a buffer which the warps without a role write: no mbarrier orders the accesses, and a
/// register belongs to one thread.
fn nothing_of_compute(func: &Func, id: RoleId, body: &[Stmt], compute: &[Stmt]) -> Result<()> {
    let touched = [visit::reads(body), visit::writes(body)].concat();
    let Some(buffer) = visit::writes(compute).into_iter().find(|b| touched.contains(b)) else { return Ok(()) };
    let (name, buffer) = (&role(func, id)?.name, &func.buffer(buffer).name);
    let message = format!("role {name} uses {buffer}, which the consumer warps write");
    Err(Error::input(Code::LowerRole, message)
        .about_role(name)
        .about_buffer(buffer)
        .help(format!("specialize the block that writes {buffer} as well, or move it to another kernel")))
}

/// A slice whose threads are counted by one variable.
fn renumbered(body: Vec<Stmt>, axes: &[LaunchAxis], thread: Var) -> Vec<Stmt> {
    let mut threads: Vec<&LaunchAxis> = axes.iter().filter(|l| !l.axis.is_block_level()).collect();
    threads.sort_by_key(|l| l.axis);
    let (mut map, mut before) = (visit::Map::new(), 1);
    for (n, l) in threads.iter().enumerate() {
        let digit = Index::Var(thread).floordiv(before);
        let last = n + 1 == threads.len();
        map.insert(l.var, if last { digit } else { digit.floormod(i64::from(l.extent)) });
        before *= i64::from(l.extent);
    }
    visit::subst_body(body, &map)
}

/// Slices without `regs=` get the registers that the other slices leave. `all` is the number of registers of a thread, summed over the warps of the block.
fn set_registers(slices: &mut [RoleBody], all: u32, roles: &[Role]) -> Result<()> {
    let name = |s: &RoleBody| match s.role.and_then(|id| roles.get(id.0 as usize)) {
        Some(role) => format!("role {}", role.name),
        None => "the consumer warps".to_string(),
    };
    let about = |error: Error, s: &RoleBody| {
        s.role.and_then(|id| roles.get(id.0 as usize)).into_iter().fold(error, |e, r| e.about_role(&r.name))
    };
    if slices.iter().all(|s| s.regs.is_none()) {
        return Ok(());
    }
    if let Some(part) = slices.iter().find(|s| s.warps % 4 != 0) {
        let message = format!("registers are set for whole warpgroups, not for {} warps ({})", part.warps, name(part));
        return Err(about(Error::input(Code::LowerRegisters, message), part)
            .help("give each role and the consumer warps a multiple of 4 warps, or remove regs="));
    }
    let stated: u32 = slices.iter().filter_map(|s| s.regs.map(|n| n * s.warps)).sum();
    let others: u32 = slices.iter().filter(|s| s.regs.is_none()).map(|s| s.warps).sum();
    let left = all.saturating_sub(stated) / others.max(1) / 8 * 8;
    if left < 24 {
        let stated: Vec<String> = slices.iter().filter(|s| s.regs.is_some()).map(name).collect();
        let message = format!("the registers of {} leave {left} a thread for the consumer warps", stated.join(" and "));
        let error = Error::input(Code::LowerRegisters, message).help("state fewer registers");
        return Err(slices.iter().filter(|s| s.regs.is_some()).fold(error, about));
    }
    // A slice that only copies needs few registers: the consumer warps need more.
    let mut stated = slices.iter().filter_map(|s| Some((s, s.regs?)));
    if let Some((part, regs)) = stated.find(|(s, n)| *n > left && only_copies(&s.body)) {
        let message = format!(
            "{} only copies and has {regs} registers a thread, which leaves {left} for the consumer warps",
            name(part)
        );
        return Err(about(Error::input(Code::LowerRegisters, message), part)
            .help("regs=24 to regs=40: a producer needs no more registers, and the rest go to the consumer warps"));
    }
    slices.iter_mut().filter(|s| s.regs.is_none()).for_each(|s| s.regs = Some(left.min(MOST_REGISTERS)));
    Ok(())
}

/// Whether a slice only copies.
fn only_copies(body: &[Stmt]) -> bool {
    let mut only = true;
    visit::walk(body, &mut |s| {
        only &= match s {
            Stmt::Call(_) => false,
            Stmt::Store(s) => matches!(s.value.zero_filled().map_or(&s.value, |(_, v)| v), Expr::Load { .. }),
            _ => true,
        }
    });
    only
}

/// The role that a statement belongs to as a whole.
fn owner(stmt: &Stmt) -> Option<RoleId> {
    visit::role_of(std::slice::from_ref(stmt))
}

/// Whether a statement contains statements of a role.
fn is_mixed(stmt: &Stmt) -> bool {
    visit::blocks(std::slice::from_ref(stmt)).iter().any(|b| b.role.is_some())
}

/// The statements of each slice: first the consumer warps, then each role.
type Parts = Vec<Vec<Stmt>>;

struct Slices<'a> {
    roles: &'a [RoleThreads],
    /// The consumer warps.
    warps: u32,
    /// The number of a consumer thread's warpgroup.
    group: Index,
    /// The kernel's body before the pass.
    whole: Vec<Stmt>,
}

impl Slices<'_> {
    /// The statements of each slice in a list, and those after the loop around.
    fn list(&self, body: Vec<Stmt>, at: &Place<'_>, func: &mut Func) -> Result<(Parts, Parts)> {
        let mut parts = vec![Vec::new(); self.roles.len() + 1];
        let mut fills = vec![Vec::new(); self.roles.len()];
        for stmt in body {
            match owner(&stmt).and_then(|id| self.roles.iter().position(|r| r.role == id)) {
                Some(n) => fills[n].push(stmt),
                None if is_mixed(&stmt) => {
                    for (part, own) in parts.iter_mut().zip(self.inside(stmt, at, func)?) {
                        part.extend(own);
                    }
                }
                None => parts[0].push(stmt),
            }
        }
        let drains = self.connect(fills, &mut parts, at, func)?;
        Ok((parts, drains))
    }

    /// The warpgroups of a ping-pong loop.
    fn pingpong_of(&self, l: &For) -> Result<u32> {
        let warpgroups = self.warps / (threads::WARPGROUP / threads::LANES) as u32;
        match l.extent.as_int() {
            Some(n) if n == i64::from(warpgroups) => Ok(warpgroups),
            _ => Err(bug(Code::LowerRoles, "the pingpong loop has other warpgroups than the kernel")),
        }
    }

    /// The statements of each slice in a statement of several slices.
    fn inside(&self, stmt: Stmt, at: &Place<'_>, func: &mut Func) -> Result<Parts> {
        let mut inner = at.env.clone();
        match stmt {
            Stmt::For(mut l) => {
                inner.bind_loop(l.var, &l.extent);
                let number = iteration_number(&l, at.number);
                let body = std::mem::take(&mut l.body);
                let own = owners_in(&body);
                let pingpong = if l.is_pingpong() { at.pingpong * self.pingpong_of(&l)? } else { at.pingpong };
                let (mut parts, drains) =
                    self.list(body, &Place { around: Some(&l), number: &number, env: &inner, pingpong }, func)?;
                let is_pingpong = l.is_pingpong();
                if is_pingpong {
                    l.kind = LoopKind::Serial;
                }
                for (n, (part, drain)) in parts.iter_mut().zip(drains).enumerate() {
                    if part.is_empty() {
                        continue;
                    }
                    if is_pingpong && n == 0 {
                        // A consumer warpgroup runs its own iteration; the producer runs all of them.
                        let warpgroups = pingpong / at.pingpong;
                        let order = Pingpong { of: &l, number: &number, warpgroups, warps: self.warps };
                        let own = order.ordered(std::mem::take(part), &inner, func);
                        *part = visit::subst_body(own, &[(l.var, self.group.clone())].into());
                        continue;
                    }
                    let mut loop_ = For { body: std::mem::take(part), ..l.clone() };
                    // `order` reads the MMA groups in flight from the pipeline of a ring.
                    if n > 0 || own && loop_.pipeline.is_some_and(|p| p.in_flight == 0) {
                        loop_.pipeline = None;
                    }
                    if n == 0 && own {
                        let (first, ahead) = ahead::loaded_ahead(loop_, &self.whole, func)?;
                        part.extend(first);
                        loop_ = ahead;
                    }
                    part.extend(unless_once(loop_, &inner));
                    part.extend(drain);
                }
                Ok(parts)
            }
            Stmt::If(i) => {
                inner.assume(&i.cond);
                let place = Place { around: None, number: at.number, env: &inner, pingpong: at.pingpong };
                let (parts, _) = self.list(i.body, &place, func)?;
                let wrap = |body: Vec<Stmt>| match body.is_empty() {
                    true => Vec::new(),
                    false => vec![Stmt::If(If { cond: i.cond.clone(), body })],
                };
                Ok(parts.into_iter().map(wrap).collect())
            }
            _ => Err(bug(Code::LowerRoles, "a staged buffer with a role is inside a block of another role")),
        }
    }
}

/// Whether a list itself holds statements of roles.
fn owners_in(body: &[Stmt]) -> bool {
    body.iter().any(|s| owner(s).is_some())
}
