//! The lanes of a timeline: warps by role, the engines, the stages of shared memory.

use super::record::{self, Numbered};
use super::stages::Stages;
use crate::ir::{Expr, Scope, Stmt, visit};
use crate::lower::LoweredKernel;
use serde::Serialize;

/// A lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lane {
    /// Its name.
    pub name: String,
    /// The rank of its block in the cluster.
    pub rank: usize,
    /// What it is of.
    pub of: Of,
}

/// What a lane is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "number")]
pub enum Of {
    /// A warp of the block.
    Warp(usize),
    /// The TMA engine.
    Engine,
    /// The tensor core of a quarter of the multiprocessor.
    Core(usize),
    /// A stage of shared memory, by its number among [`Stages`].
    Stage(usize),
}

/// The lanes of a kernel, block after block of its cluster.
pub fn of(kernel: &LoweredKernel, numbered: &Numbered<'_>, stages: &Stages<'_>) -> Vec<Lane> {
    let mut out = Vec::new();
    for rank in 0..kernel.cluster().max(1) as usize {
        let mut lane = |name: String, of: Of| out.push(Lane { name, rank, of });
        for warp in 0..kernel.warps() as usize {
            let role = role(kernel, warp).map(|role| format!(" {role}")).unwrap_or_default();
            lane(format!("warp {warp}{role}"), Of::Warp(warp));
        }
        if numbered.statements.iter().any(|s| matches!(s.stmt, Stmt::Bulk(_))) {
            lane("TMA engine".into(), Of::Engine);
        }
        if numbered.statements.iter().any(|s| record::multiplies(s.stmt).is_some()) {
            let cores = (kernel.warps() as usize).min(4);
            (0..cores).for_each(|core| lane(format!("tensor core {core}"), Of::Core(core)));
        }
        for (number, name) in stages.names().into_iter().enumerate() {
            lane(name, Of::Stage(number));
        }
    }
    out
}

/// The role of a warp, where the kernel is warp-specialized.
fn role(kernel: &LoweredKernel, warp: usize) -> Option<&str> {
    let mut found = None;
    visit::walk(&kernel.func.body, &mut |s| {
        if let Stmt::Role(r) = s
            && (r.first as usize..(r.first + r.warps) as usize).contains(&warp)
        {
            let name = r.role.and_then(|id| kernel.func.roles.get(id.0 as usize)).map_or("compute", |r| r.name.as_str());
            found = found.or(Some(name));
        }
    });
    found
}

fn find(lanes: &[Lane], rank: usize, of: Of) -> Option<usize> {
    lanes.iter().position(|l| l.rank == rank && l.of == of)
}

/// The lane of a warp.
pub fn warp(lanes: &[Lane], rank: usize, warp: usize) -> usize {
    find(lanes, rank, Of::Warp(warp)).unwrap_or(0)
}

/// The lane of the TMA engine, where the kernel uses it.
pub fn engine(lanes: &[Lane], rank: usize) -> Option<usize> {
    find(lanes, rank, Of::Engine)
}

/// The lane of a tensor core.
pub fn core(lanes: &[Lane], rank: usize, core: usize) -> Option<usize> {
    find(lanes, rank, Of::Core(core))
}

/// The lane of a stage, by rank and number.
pub fn stage(lanes: &[Lane], (rank, stage): (usize, usize)) -> Option<usize> {
    find(lanes, rank, Of::Stage(stage))
}

/// What a statement that is neither synchronisation nor asynchronous does: `copy` from device memory, `output` to it, `compute`.
pub fn work(kernel: &LoweredKernel, stmt: &Stmt) -> &'static str {
    let is_global = |id| kernel.func.buffer(id).scope == Scope::Global;
    let Stmt::Store(store) = stmt else { return "compute" };
    let mut reads = false;
    visit::walk_expr(&store.value, &mut |e| {
        if let Expr::Load { buffer, .. } = e {
            reads |= is_global(*buffer);
        }
    });
    match (is_global(store.buffer), reads) {
        (true, _) => "output",
        (_, true) => "copy",
        _ => "compute",
    }
}
