//! An estimate of a thread's registers from what is live: local buffers, values that wait for their use, addresses.
//!
//! ptxas decides; this says where the registers go, before there is any PTX.

use super::report::Registers;
use super::site::{Agent, Does, Site, Sites, Statement};
use crate::ir::lowered::LoweredKernel;
use crate::ir::{BufferId, Func, LoopKind, Scope, Var};

/// Registers that every kernel needs for its thread's place and for results on their way.
const ALWAYS: u64 = 8;

/// The estimate for a kernel.
pub fn estimate(kernel: &LoweredKernel, sites: &Sites<'_>) -> Registers {
    let local = local(&kernel.func, sites);
    let loaded = sites.statements.iter().enumerate().map(|(n, s)| loaded(kernel, sites, n, s)).max().unwrap_or(0);
    let addresses = addresses(kernel, sites);
    let fit = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    Registers {
        estimate: fit(local.saturating_add(loaded).saturating_add(addresses)),
        local: fit(local),
        loaded: fit(loaded),
        addresses: fit(addresses),
        spilled: 0,
        ptxas: None,
    }
}

/// 32-bit registers of that many elements.
fn words(elements: i64, bits: u32) -> u64 {
    (u64::try_from(elements).unwrap_or(0)).saturating_mul(bits.into()).div_ceil(32)
}

/// The most registers of local buffers that are live at one statement: from the first access to the last, and through
/// every loop around one of them that is not around all.
fn local(func: &Func, sites: &Sites<'_>) -> u64 {
    let touched = |b: BufferId| {
        let of = |a: &&Site<'_>| a.buffer == b;
        sites.accesses.iter().filter(of).map(|a| a.statement).collect::<Vec<_>>()
    };
    let spans = sites.statements.iter().enumerate().flat_map(|(n, s)| s.around.loops.iter().map(move |l| (l.var, n)));
    let mut loops: Vec<(Var, usize, usize)> = Vec::new();
    for (var, n) in spans {
        match loops.iter_mut().find(|l| l.0 == var) {
            Some(l) => l.2 = n,
            None => loops.push((var, n, n)),
        }
    }
    let mut live = vec![0u64; sites.statements.len()];
    for (i, buffer) in func.buffers.iter().enumerate().filter(|(_, b)| b.scope == Scope::Local) {
        let at = touched(BufferId(i as u32));
        let (Some(first), Some(last)) = (at.iter().min(), at.iter().max()) else { continue };
        let (mut from, mut to) = (*first, *last);
        for (_, begin, end) in &loops {
            let inside = |n: &usize| begin <= n && n <= end;
            if at.iter().any(inside) && !at.iter().all(inside) {
                (from, to) = (from.min(*begin), to.max(*end));
            }
        }
        let size = words(buffer.elements().unwrap_or(0), buffer.dtype.bits());
        live[from..=to].iter_mut().for_each(|n| *n = n.saturating_add(size));
    }
    live.into_iter().max().unwrap_or(0)
}

/// Values that a statement reads from memory, for all copies that are next to each other: along the unrolled loops that its
/// result varies with.
fn loaded(kernel: &LoweredKernel, sites: &Sites<'_>, n: usize, statement: &Statement<'_>) -> u64 {
    let func = &kernel.func;
    let Does::Store(store) = statement.does else { return 0 };
    let side_by_side = |v: Var| store.indices.iter().any(|i| i.mentions(v));
    let of = |a: &&Site<'_>| a.statement == n && !a.write && a.scope(func) != Scope::Local;
    let copies = |a: &Site<'_>| {
        let loops = statement.around.loops.iter().filter(|l| l.kind == LoopKind::Unrolled);
        let varying = loops.filter(|l| a.index.mentions(l.var) && side_by_side(l.var));
        varying.fold(1i64, |n, l| n.saturating_mul(l.extent.as_int().unwrap_or(1)))
    };
    let one = |a: &Site<'_>| words(copies(a).saturating_mul(a.lanes.into()), a.dtype(func).bits());
    sites.accesses.iter().filter(of).fold(0, |sum, a| sum.saturating_add(one(a)))
}

/// Pointers of 64 bits, an index for each access of memory, the counters of loops that stay loops.
fn addresses(kernel: &LoweredKernel, sites: &Sites<'_>) -> u64 {
    let func = &kernel.func;
    let memory = sites.accesses.iter().filter(|a| a.by == Agent::Lanes && a.scope(func) != Scope::Local);
    let global = memory.clone().filter(|a| a.scope(func) == Scope::Global).count() as u64;
    let shared = memory.count() as u64 - global;
    let serial = |s: &Statement<'_>| s.around.loops.iter().filter(|l| l.kind == LoopKind::Serial).count() as u64;
    let counters = sites.statements.iter().map(serial).max().unwrap_or(0);
    ALWAYS + 2 * global + shared + counters
}
