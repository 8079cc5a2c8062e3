//! What one cluster of a kernel does on the simulator, event by event, as the timeline needs it.

use crate::error::{Code, Result};
use crate::intrin;
use crate::ir::{BufferId, Expr, Scope, Stmt, visit};
use crate::lower::{self, Lowered, LoweredKernel};
use crate::sim::{self, Arrival, Event, EventKind, Landing, Limits, Meeting, Phase, Policy};
use std::cell::RefCell;
use std::rc::Rc;

/// The most events of a kernel that are kept. A timeline of more is not legible.
const MOST_EVENTS: usize = 60_000;

/// The order of warps: all advance by a few statements in turn, and a persistent kernel has two clusters, so that one cluster runs
/// several tiles.
const POLICY: Policy = Policy::Random(4);

/// What a run may cost: seconds.
const LIMITS: Limits = Limits { statements: 1 << 27, bytes: 1 << 31 };

/// An event of a warp of the cluster, or of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// The rank of the block.
    pub rank: usize,
    /// The warp of the block.
    pub warp: usize,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The warp comes to a statement.
    Statement(u32),
    /// The lanes of the warp access shared memory: the access, the first element and the last.
    Access(u32, i64, i64),
    /// The warp starts a bulk copy: the access and the first element of shared memory, elements, blocks that receive it, and of a load its
    /// array of mbarriers and which one.
    Bulk(u32, i64, (u64, usize), Option<(u32, i64)>),
    /// Lanes arrive at an mbarrier.
    Arrival(Arrival),
    /// A bulk load lands.
    Landing(Landing),
    /// A phase of an mbarrier is over.
    Over(Phase),
    /// The warp has waited for a phase.
    Passed(Phase),
    /// Warps wait at a barrier.
    Meeting(Meeting),
}

/// The events of a kernel's first cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// In an order in which they can happen.
    pub events: Vec<Recorded>,
    /// Whether there were more than are kept.
    pub is_cut: bool,
}

/// A statement of a kernel that runs: a store, an instruction, a bulk copy or synchronisation.
#[derive(Debug)]
pub struct Statement<'k> {
    /// The statement.
    pub stmt: &'k Stmt,
    /// Its line in the text of the program, from 1.
    pub line: usize,
    /// The block around it.
    pub block: Option<&'k str>,
}

/// An access of shared or device memory or of registers.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    /// The buffer.
    pub buffer: BufferId,
    /// Whether it writes.
    pub write: bool,
    /// Its statement, by its number.
    pub statement: usize,
}

/// The statements and accesses of a kernel, numbered as the simulator numbers them.
#[derive(Debug, Default)]
pub struct Numbered<'k> {
    /// Statements.
    pub statements: Vec<Statement<'k>>,
    /// Accesses.
    pub accesses: Vec<Access>,
}

/// Numbers a kernel whose text begins at that line.
pub fn number(kernel: &LoweredKernel, first_line: usize) -> Numbered<'_> {
    let mut out = Numbered::default();
    let mut lines = lower::statement_lines(kernel);
    collect(&kernel.func.body, None, kernel, &mut |stmt, block| {
        let line = first_line + lines.next().unwrap_or(0);
        if matches!(stmt, Stmt::Store(_) | Stmt::Call(_) | Stmt::Bulk(_) | Stmt::Sync(_)) {
            let statement = out.statements.len();
            let accesses = accesses(stmt).into_iter();
            out.accesses.extend(accesses.map(|(buffer, write)| Access { buffer, write, statement }));
            out.statements.push(Statement { stmt, line, block });
        }
    });
    out
}

/// Calls `f` on each statement in the order of the text, with the block around it.
fn collect<'k>(
    body: &'k [Stmt],
    block: Option<&'k str>,
    kernel: &'k LoweredKernel,
    f: &mut impl FnMut(&'k Stmt, Option<&'k str>),
) {
    for stmt in body {
        let inside = match stmt {
            Stmt::Block(b) => kernel.func.blocks.get(b.name.0 as usize).map(String::as_str),
            _ => block,
        };
        f(stmt, inside);
        for child in visit::children(stmt) {
            collect(child, inside, kernel, f);
        }
    }
}

/// The buffers that a statement accesses, and whether it writes them, in the simulator's order.
fn accesses(stmt: &Stmt) -> Vec<(BufferId, bool)> {
    let mut out = Vec::new();
    match stmt {
        Stmt::Store(s) => {
            visit::walk_expr(&s.value, &mut |e| {
                if let Expr::Load { buffer, .. } = e {
                    out.push((*buffer, false));
                }
            });
            out.push((s.buffer, true));
        }
        Stmt::Call(c) => out.extend(c.operands.iter().map(|o| (o.buffer, o.writes))),
        Stmt::Bulk(b) => {
            let load = b.way != crate::ir::Way::Store;
            out.extend([(b.shared, load), (b.global, !load)]);
        }
        _ => {}
    }
    out
}

/// Whether a statement is an MMA of tensor cores, and whether the warp goes on before it ends.
pub fn multiplies(stmt: &Stmt) -> Option<(bool, i64)> {
    let Stmt::Call(call) = stmt else { return None };
    let row = intrin::find(&call.row).filter(|r| r.action.accumulates())?;
    Some((row.is_asynchronous(), row.dims.iter().map(|(_, extent)| extent).product()))
}

/// Runs the first cluster of each kernel and records it.
///
/// # Errors
/// What the simulator finds in the kernels.
pub fn record(lowered: &Lowered) -> Result<Vec<Record>> {
    let shared: Vec<Vec<bool>> = lowered.kernels.iter().map(shared_accesses).collect();
    let records = Rc::new(RefCell::new(vec![Record::default(); lowered.kernels.len()]));
    let heard = Rc::clone(&records);
    let ran = sim::run_first_cluster(lowered, POLICY, LIMITS, move |event| {
        let mut records = heard.borrow_mut();
        let (Some(record), Some(shared)) = (records.get_mut(event.kernel), shared.get(event.kernel)) else {
            return false;
        };
        let Some(what) = kept(event, shared) else { return true };
        record.is_cut |= record.events.len() >= MOST_EVENTS;
        if !record.is_cut {
            record.events.push(Recorded { rank: event.rank, warp: event.warp, what });
        }
        !record.is_cut
    });
    let mut records = records.take();
    match ran {
        Ok(_) => {}
        // What ran until then is shown.
        Err(e) if e.code() == Code::SimLimit => {
            if let Some(last) = records.iter_mut().rev().find(|r| !r.events.is_empty()) {
                last.is_cut = true;
            }
        }
        Err(e) => return Err(e),
    }
    Ok(records)
}

/// Which accesses of a kernel are of shared memory.
fn shared_accesses(kernel: &LoweredKernel) -> Vec<bool> {
    let shared = |a: &Access| kernel.func.buffer(a.buffer).scope == Scope::Shared;
    number(kernel, 1).accesses.iter().map(shared).collect()
}

fn kept(event: &Event<'_>, shared: &[bool]) -> Option<What> {
    let is_shared = |access: u32| shared.get(access as usize) == Some(&true);
    Some(match event.what {
        EventKind::Statement(s) => What::Statement(s.number),
        EventKind::Request(r) if is_shared(r.access) => {
            let active = || (0..32).filter(|l| r.active >> l & 1 == 1).map(|l| r.elements[l]);
            What::Access(r.access, active().min()?, active().max()?)
        }
        EventKind::Tile(t) if is_shared(t.access) => {
            What::Access(t.access, *t.elements.iter().min()?, *t.elements.iter().max()?)
        }
        EventKind::Box(b) => What::Bulk(b.accesses[0], b.shared, (b.elements.len() as u64, b.blocks), b.full),
        EventKind::Arrival(a) => What::Arrival(a),
        EventKind::Landing(l) => What::Landing(l),
        EventKind::Over(p) => What::Over(p),
        EventKind::Passed(p) => What::Passed(p),
        EventKind::Meeting(m) => What::Meeting(m),
        EventKind::Request(_) | EventKind::Tile(_) | EventKind::Flight(_) => return None,
    })
}
