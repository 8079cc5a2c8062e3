//! The lanes of a timeline: warps by role, the engines, the stages of shared memory.

use super::drawing::Timeline;
use super::record::{self, Numbered};
use super::stages::Stages;
use crate::ir::{Expr, Scope, Stmt, Way, visit};
use crate::lower::LoweredKernel;
use serde::Serialize;
use std::collections::BTreeSet;

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

/// The lanes of a kernel, block after block of its cluster, in the order in which data flow: warps whose role starts bulk loads, the TMA
/// engine, stages of shared memory, the other warps, tensor cores.
pub fn of(kernel: &LoweredKernel, numbered: &Numbered<'_>, stages: &Stages<'_>) -> Vec<Lane> {
    let mut out = Vec::new();
    let producers = &producers(kernel);
    for rank in 0..kernel.cluster().max(1) as usize {
        let mut lane = |name: String, of: Of| out.push(Lane { name, rank, of });
        let warps =
            |is_producer: bool| (0..kernel.warps() as usize).filter(move |w| producers.contains(w) == is_producer);
        let name = |warp: usize| {
            let role = role(kernel, warp).map(|role| format!(" {role}")).unwrap_or_default();
            format!("warp {warp}{role}")
        };
        warps(true).for_each(|warp| lane(name(warp), Of::Warp(warp)));
        if numbered.statements.iter().any(|s| matches!(s.stmt, Stmt::Bulk(_))) {
            lane("TMA engine".into(), Of::Engine);
        }
        for (number, name) in stages.names().into_iter().enumerate() {
            lane(name, Of::Stage(number));
        }
        warps(false).for_each(|warp| lane(name(warp), Of::Warp(warp)));
        if numbered.statements.iter().any(|s| record::multiplies(s.stmt).is_some()) {
            let cores = (kernel.warps() as usize).min(4);
            (0..cores).for_each(|core| lane(format!("tensor core {core}"), Of::Core(core)));
        }
    }
    out
}

/// The warps of roles that start bulk loads.
fn producers(kernel: &LoweredKernel) -> BTreeSet<usize> {
    let mut out = BTreeSet::new();
    for stmt in &kernel.func.body {
        let Stmt::Role(role) = stmt else { continue };
        let mut loads = false;
        visit::walk(&role.body, &mut |s| loads |= matches!(s, Stmt::Bulk(b) if b.way != Way::Store));
        if loads {
            out.extend(role.first as usize..(role.first + role.warps) as usize);
        }
    }
    out
}

/// The most spans of a warp that is idle: it meets the others at the ends of the kernel.
const IDLE: usize = 3;

/// Shows neighbouring warps that only meet the others at barriers as one lane.
pub fn merge_idle(timeline: &mut Timeline) {
    let idle: Vec<bool> = (0..timeline.lanes.len())
        .map(|lane| {
            let mut own = timeline.spans.iter().filter(|s| s.lane == lane);
            let is_warp = matches!(timeline.lanes[lane].of, Of::Warp(_));
            is_warp && own.clone().count() <= IDLE && own.all(|s| s.kind == "wait")
        })
        .collect();
    // Where each lane goes: an idle one to the idle one before it.
    let mut kept: Vec<Lane> = Vec::new();
    let mut to: Vec<Option<usize>> = Vec::new();
    let mut first = None;
    for (n, lane) in timeline.lanes.iter().enumerate() {
        let joins = n > 0 && idle[n] && idle[n - 1] && timeline.lanes[n - 1].rank == lane.rank;
        match (joins, kept.last_mut(), lane.of) {
            (true, Some(last), Of::Warp(warp)) => {
                let from: usize = *first.get_or_insert(match timeline.lanes[n - 1].of {
                    Of::Warp(w) => w,
                    _ => warp,
                });
                let role = lane.name.split(' ').nth(2).map_or(String::new(), |role| format!(" {role}"));
                last.name = format!("warps {from} to {warp}{role}, idle");
                to.push(None);
            }
            _ => {
                first = None;
                to.push(Some(kept.len()));
                kept.push(lane.clone());
            }
        }
    }
    let place = |lane: &mut usize| to.get(*lane).copied().flatten().map(|new| *lane = new).is_some();
    timeline.spans.retain_mut(|s| place(&mut s.lane));
    timeline.marks.retain_mut(|m| place(&mut m.lane));
    timeline.arrows.retain_mut(|a| place(&mut a.from.0) && place(&mut a.to.0));
    timeline.lanes = kept;
}

/// The role of a warp, where the kernel is warp-specialized.
fn role(kernel: &LoweredKernel, warp: usize) -> Option<&str> {
    let mut found = None;
    visit::walk(&kernel.func.body, &mut |s| {
        if let Stmt::Role(r) = s
            && (r.first as usize..(r.first + r.warps) as usize).contains(&warp)
        {
            let name =
                r.role.and_then(|id| kernel.func.roles.get(id.0 as usize)).map_or("compute", |r| r.name.as_str());
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
