//! The ring of a pipelined loop: staged buffers of N stages each, with the mbarriers of each stage where there are some.
//!
//! Iteration `it` of the loop, counted over all enclosing loops, uses stage `it % N` in phase `it / N`. Stage and phase derive
//! from the iteration number, so no pass carries a counter. Every form of a pipeline has one: `unrolled` (stages in registers, or in
//! shared memory that threads or cp.async fill, without mbarriers), `tma`, and `roles`.

use crate::error::{Code, Error, Result};
use crate::ir::simplify::{self, Env};
use crate::ir::{BufferId, Expr, For, Func, Index, LoopKind, Pipeline, Slot, Stmt, Sync, SyncKind, Way, visit};
use crate::lower::data::bulk;
use crate::lower::elements;
use crate::lower::sync;

/// A ring of stages.
pub struct Ring {
    pub stages: i64,
    /// The staged buffers, with the elements of a stage.
    pub buffers: Vec<(BufferId, i64)>,
    /// The names of the buffers that are filled, for the reasons of waits and arrivals; empty without mbarriers.
    pub names: String,
    /// The mbarriers whose phases end when a stage is full, if threads wait for more than a barrier.
    pub full: Option<u32>,
    /// The mbarriers whose phases end when the consumers have released a stage, if stages are refilled.
    pub empty: Option<u32>,
}

impl Ring {
    /// A ring of so many stages, without mbarriers.
    pub fn new(stages: i64, buffers: Vec<(BufferId, i64)>) -> Ring {
        Ring { stages, buffers, names: String::new(), full: None, empty: None }
    }

    /// Gives each buffer its stages, and each stage its mbarrier `full`.
    pub fn allot(&self, func: &mut Func) {
        for (buffer, elements) in self.buffers.iter().filter(|_| self.stages > 1) {
            func.buffer_mut(*buffer).shape = vec![Index::Int(elements * self.stages)];
        }
        if let Some(array) = self.full.and_then(|full| func.mbarriers.get_mut(full as usize)) {
            array.slots = self.stages as u32;
        }
    }

    /// Lets all TMA loads of a fill complete on the mbarriers of the ring.
    pub fn signal(&self, fill: &mut [Stmt]) {
        for stmt in fill {
            bulk::each_copy(stmt, &mut |copy| {
                if let (Way::Load { full, .. }, Some(ours)) = (&mut copy.way, self.full) {
                    full.barrier = ours;
                }
            });
        }
    }

    /// The stage of iteration `it`.
    pub fn stage(&self, it: &Index, env: &Env) -> Index {
        simplify::simplify(&it.clone().floormod(self.stages), env)
    }

    /// The phase of iteration `it`.
    pub fn phase(&self, it: &Index) -> Index {
        it.clone().floordiv(self.stages)
    }

    /// The mbarrier, of an array, that belongs to the stage of iteration `it`.
    pub fn mbarrier(&self, barrier: u32, it: &Index, env: &Env) -> Slot {
        Slot { barrier, index: self.stage(it, env) }
    }

    /// The wait until the stage of iteration `it` is full; nothing where no load fills stages.
    pub fn await_full(&self, it: &Index, env: &Env, why: &str) -> Option<Stmt> {
        let phase = simplify::simplify(&self.phase(it), env);
        let kind = SyncKind::Await { slot: self.mbarrier(self.full?, it, env), phase };
        Some(Stmt::Sync(kind.because(format!("RAW {}: {why}", self.names))))
    }

    /// A statement of iteration `it`, with the accesses to its buffers in the stage of the iteration.
    pub fn moved(&self, stmt: Stmt, it: &Index, env: &Env) -> Stmt {
        let stage = self.stage(it, env);
        let offset = |b: BufferId| self.buffers.iter().find(|(s, _)| *s == b).map(|(_, size)| stage.clone() * *size);
        let put = |indices: &mut Vec<Index>, buffer: BufferId| {
            if let (Some(o), Some(index)) = (offset(buffer), indices.first_mut()) {
                *index = simplify::simplify(&(index.clone() + o), env);
            }
        };
        let mut stmt = visit::map_stmt(stmt, &mut Index::clone, &mut |mut e| {
            if let Expr::Load { buffer, indices, .. } = &mut e {
                put(indices, *buffer);
            }
            e
        });
        visit::each_store(std::slice::from_mut(&mut stmt), &mut |s| put(&mut s.indices, s.buffer));
        visit::each_operand(&mut stmt, &mut |o| put(&mut o.indices, o.buffer));
        bulk::each_copy(&mut stmt, &mut |copy| {
            put(&mut copy.indices, copy.shared);
            if let Way::Load { full, .. } = &mut copy.way
                && Some(full.barrier) == self.full
            {
                full.index = stage.clone();
            }
        });
        stmt
    }
}

/// The MMA groups that the iterations of a pipelined loop leave in flight, checked against its stages and its MMAs.
pub fn in_flight(pipeline: Pipeline, stages: i64, name: &str, consumers: &[Stmt]) -> Result<i64> {
    let groups = i64::from(pipeline.in_flight);
    if groups > 0 && !sync::products::any(consumers) {
        let message = format!("pipeline {name}: in_flight counts groups of asynchronous MMAs, and the loop has none");
        return Err(Error::input(Code::LowerPipeline, message).about_loop(name).help("remove in_flight="));
    }
    if groups > 0 && groups + 1 >= stages {
        let message = format!(
            "pipeline {name}: with {stages} stages and {groups} groups in flight no stage is free to load ahead"
        );
        return Err(Error::input(Code::LowerPipeline, message)
            .about_loop(name)
            .help(format!("stages={}, or fewer groups in flight", groups + 2)));
    }
    Ok(groups)
}

/// The elements of a stage of a buffer: a multiple of the alignment of the buffer.
///
/// # Errors
/// A buffer that is not flat, for pass `pass`.
pub fn elements_of_stage(func: &Func, buffer: BufferId, pass: Code) -> Result<i64> {
    let b = func.buffer(buffer);
    let unit = (i64::from(b.align) * 8 / i64::from(b.dtype.bits())).max(1);
    let elements = elements(b, pass)?;
    Ok(elements.div_euclid(unit) * unit + if elements % unit == 0 { 0 } else { unit })
}

/// The number of an iteration of a loop over all enclosing loops, where `number` is that of the enclosing iteration. In a persistent
/// loop it counts the rounds of the block, so the phases continue from tile to tile.
pub fn iteration_number(l: &For, number: &Index) -> Index {
    match (l.kind, l.extent.as_int()) {
        (LoopKind::Persistent { round }, _) => Index::Var(round),
        (_, Some(extent)) => number.clone() * extent + l.var,
        _ => number.clone(),
    }
}

/// Whether the iterations of a loop already wait for the stages of a ring. Its `pipeline` then tells `order` the MMA groups in flight.
pub fn is_ring(l: &For) -> bool {
    l.body.iter().any(|s| matches!(s, Stmt::Sync(Sync { kind: SyncKind::Await { .. }, .. })))
}
