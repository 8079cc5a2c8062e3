//! The statements that fill a staged buffer, and how they are split.

use crate::error::{Code, Result};
use crate::ir::simplify::Env;
use crate::ir::{Buffer, BufferId, Call, Expr, Func, Held, Index, LoopKind, Scope, Stmt, Var, visit};
use crate::lower::data::vectors;
use crate::lower::sync;
use crate::lower::{bug, elements};

/// Stages of shared memory begin at a multiple of this many elements, so that vectors stay aligned.
const STAGE_UNIT: i64 = 32;

/// Where a staged buffer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Shared memory, filled from device memory.
    Shared,
    /// Registers, filled from shared memory.
    Registers,
}

/// The copy into a staged buffer; for a copy by threads into shared memory also its two halves, into registers and out of
/// them.
pub struct Copy {
    pub whole: Stmt,
    pub halves: Option<(Stmt, Stmt)>,
    pub buffer: BufferId,
    /// Elements of a stage.
    pub size: i64,
}

impl Copy {
    /// Takes a copy apart that [`filled`] found.
    ///
    /// # Errors
    /// A stage that is not flat, or a copy with loops that [`filled`] does not take.
    pub fn new(whole: Stmt, filled: &Filled, func: &mut Func, env: &Env) -> Result<Copy> {
        let stage = filled.buffer;
        let size = elements(func.buffer(stage), Code::LowerPipeline)?;
        if filled.kind == Kind::Registers {
            return Ok(Copy { whole, halves: None, buffer: stage, size });
        }
        let size = (size + STAGE_UNIT - 1) / STAGE_UNIT * STAGE_UNIT;
        if sync::copies(std::slice::from_ref(&whole)) {
            return Ok(Copy { whole, halves: None, buffer: stage, size });
        }
        let (name, dtype) = (func.buffer(stage).name.clone(), func.buffer(stage).dtype);
        let next = func.unused_buffer_name(&format!("{name}_next"));
        let next = func.add_buffer(Buffer::new(next, dtype, vec![Index::Int(filled.elements)], Scope::Local));
        let (mut load, mut store) = (whole.clone(), whole.clone());
        through(&mut load, next, &mut Vec::new(), true)?;
        through(&mut store, next, &mut Vec::new(), false)?;
        let store = vectors::pieces(func, store, env)?;
        Ok(Copy { whole, halves: Some((load, store)), buffer: stage, size })
    }

    /// Whether it is asynchronous (cp.async).
    pub fn asynchronous(&self) -> bool {
        sync::copies(std::slice::from_ref(&self.whole))
    }

    /// The part of the copy before the compute.
    pub fn start(&self) -> &Stmt {
        self.halves.as_ref().map_or(&self.whole, |(load, _)| load)
    }

    /// The part of the copy after the compute.
    pub fn end(&self) -> Option<&Stmt> {
        self.halves.as_ref().map(|(_, store)| store)
    }

    /// The start of the copy, one statement for each iteration of its outer loop if that has at most [`MOST_PARTS`] iterations.
    pub fn parts(&self) -> Vec<Stmt> {
        let start = self.start();
        match start {
            Stmt::For(l) if l.kind != LoopKind::Vectorized && !l.code.realigns => match l.extent.as_int() {
                Some(n) if n <= MOST_PARTS => {
                    (0..n).flat_map(|i| visit::subst_body(l.body.clone(), &[(l.var, Index::Int(i))].into())).collect()
                }
                _ => vec![start.clone()],
            },
            other => vec![other.clone()],
        }
    }
}

/// The most statements into which the start of a copy is unrolled.
const MOST_PARTS: i64 = 1024;

/// The buffer that a statement fills, if it only copies.
pub struct Filled {
    pub buffer: BufferId,
    pub kind: Kind,
    /// Elements that each thread moves.
    elements: i64,
}

/// The buffer that a statement fills, if it only copies: into shared memory from device memory that the kernel never
/// writes, or into registers from shared memory.
pub fn filled(stmt: &Stmt, func: &Func, written: &[BufferId]) -> Option<Filled> {
    let only = |body: &[Stmt]| match body {
        [one] => filled(one, func, written),
        _ => None,
    };
    match stmt {
        Stmt::For(l) => {
            let inside = only(&l.body)?;
            Some(Filled { elements: inside.elements.checked_mul(l.extent.as_int()?)?, ..inside })
        }
        Stmt::Block(b) => only(&b.body),
        Stmt::If(i) => only(&i.body),
        Stmt::Store(s) => {
            let (mut global, mut shared) = (true, false);
            visit::walk_expr(&s.value, &mut |e| {
                if let Expr::Load { buffer, .. } = e {
                    let scope = func.buffer(*buffer).scope;
                    shared |= scope == Scope::Shared;
                    global &= scope == Scope::Global && !written.contains(buffer);
                }
            });
            let kind = match func.buffer(s.buffer).scope {
                Scope::Shared if global => Kind::Shared,
                Scope::Local if shared && only_from_shared(&s.value, func) => Kind::Registers,
                _ => return None,
            };
            Some(Filled { buffer: s.buffer, kind, elements: i64::from(s.lanes) })
        }
        Stmt::Call(call) => loaded(call, func),
        Stmt::Sync(_) | Stmt::Bulk(_) | Stmt::Elect(_) | Stmt::Role(_) => None,
    }
}

/// The buffer that an instruction fills, if it only loads registers from shared memory.
fn loaded(call: &Call, func: &Func) -> Option<Filled> {
    let [to, from] = call.operands.as_slice() else { return None };
    let Held::Registers(elements) = &to.held else { return None };
    let loads = !to.reads && to.writes && !from.writes && func.buffer(from.buffer).scope == Scope::Shared;
    loads.then_some(Filled { buffer: to.buffer, kind: Kind::Registers, elements: elements.len() as i64 })
}

fn only_from_shared(value: &Expr, func: &Func) -> bool {
    let mut only = true;
    visit::walk_expr(value, &mut |e| {
        if let Expr::Load { buffer, .. } = e {
            only &= func.buffer(*buffer).scope == Scope::Shared;
        }
    });
    only
}

/// Makes a copy one into registers (`load`) or out of them.
fn through(stmt: &mut Stmt, registers: BufferId, around: &mut Vec<(Var, i64)>, load: bool) -> Result<()> {
    match stmt {
        Stmt::For(l) => {
            // What aligned words are shifted into is stored as a vector.
            let stored_at_once = l.code.realigns && !load;
            l.code.realigns &= load;
            l.kind = if stored_at_once { LoopKind::Vectorized } else { LoopKind::Unrolled };
            let extent = l.extent.as_int();
            let extent = extent.ok_or_else(|| bug(Code::LowerPipeline, "a loop of a copy has no constant extent"))?;
            around.push((l.var, extent));
            l.body.iter_mut().try_for_each(|s| through(s, registers, around, load))?;
            around.pop();
        }
        Stmt::Block(b) => b.body.iter_mut().try_for_each(|s| through(s, registers, around, load))?,
        Stmt::If(i) => i.body.iter_mut().try_for_each(|s| through(s, registers, around, load))?,
        Stmt::Store(s) => {
            let number = around.iter().fold(Index::Int(0), |n, (var, extent)| n * *extent + *var);
            let index = vec![number * i64::from(s.lanes)];
            if load {
                s.buffer = registers;
                s.indices = index;
            } else {
                s.value = Expr::Load { buffer: registers, indices: index, lanes: s.lanes };
            }
        }
        Stmt::Sync(_) | Stmt::Call(_) | Stmt::Bulk(_) | Stmt::Elect(_) | Stmt::Role(_) => {}
    }
    Ok(())
}
