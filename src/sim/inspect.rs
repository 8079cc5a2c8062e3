//! A run in sequence that somebody watches: before each statement, and after each write.
//!
//! The watcher sees the place in the program, the values of the loops around it and any element of any buffer, and may end
//! the run. It changes nothing.

use super::access::World;
use super::code::{Code, Location};
use super::value::{self, NumberKind};
use super::warp::{Trap, Warp};
use crate::dtype::DType;
use crate::ir::{BufferId, Var};
use std::fmt;
use std::ops::ControlFlow;

/// What has happened at a [`Moment`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Seen {
    /// A statement is about to run.
    Before,
    /// A statement has written an element.
    Wrote {
        /// The buffer.
        buffer: BufferId,
        /// The element, counted in the buffer's strides ([`crate::ir::layout::strides`]).
        element: i64,
        /// What it holds now.
        value: Datum,
    },
}

/// A point of a run in sequence.
pub struct Moment<'m> {
    /// What has happened.
    pub seen: Seen,
    /// The statement, counted from 0 among the statements of the program in the order of its text.
    pub statement: usize,
    code: &'m Code,
    warp: &'m Warp,
    world: &'m World,
}

impl Moment<'_> {
    /// The variables of the loops around the statement with their values, outermost first. A rasterized loop has three: its
    /// own and those of the loops that it walks.
    pub fn loops(&self) -> Vec<(Var, i64)> {
        let site = self.code.site_of.get(self.warp.pc).and_then(|s| self.code.sites.get(*s as usize));
        site.map_or_else(Vec::new, |s| s.loops.iter().map(|(v, o)| (*v, self.warp.value(*o, 0))).collect())
    }

    /// What an element of a buffer holds, counted in the buffer's strides; `None` where nothing has written it or the buffer has no
    /// such element.
    pub fn read(&self, buffer: BufferId, element: i64) -> Option<Datum> {
        read(self.code, self.world, buffer, element)
    }
}

fn read(code: &Code, world: &World, buffer: BufferId, element: i64) -> Option<Datum> {
    // In sequence each buffer of the program is a memory of its own.
    let memory = world.memory_of(Location::Global(buffer.0))?;
    let dtype = code.func.buffers.get(buffer.0 as usize)?.dtype;
    let unit = usize::try_from(element).ok()?;
    memory.check(unit, 1).ok()?;
    Some(Datum { dtype, kind: super::memory::kind_in(memory.integer, dtype), bits: memory.read(dtype, unit)? })
}

/// An element as the simulator holds it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Datum {
    pub(super) dtype: DType,
    pub(super) kind: NumberKind,
    pub(super) bits: u64,
}

impl fmt::Display for Datum {
    /// The shortest number that reads back as the same value of the type.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            NumberKind::F32 => write!(f, "{:?}", value::f32_of(self.bits)),
            NumberKind::F64 => write!(f, "{:?}", f64::from_bits(self.bits)),
            NumberKind::Int if self.dtype == DType::Bool => write!(f, "{}", self.bits != 0),
            NumberKind::Int => write!(f, "{}", self.bits as i64),
            NumberKind::Integer => write!(f, "{}", self.bits as u32),
        }
    }
}

/// What is called at each moment of a run, and may end it.
type Watch = dyn FnMut(&Moment<'_>) -> ControlFlow<()>;

/// Who watches a run, and the statement that runs.
#[derive(Default)]
pub(super) struct Watcher {
    watch: Option<Box<Watch>>,
    statement: usize,
}

impl Watcher {
    pub fn new(watch: impl FnMut(&Moment<'_>) -> ControlFlow<()> + 'static) -> Watcher {
        Watcher { watch: Some(Box::new(watch)), statement: 0 }
    }

    /// Whether anybody watches.
    #[inline(always)]
    pub fn is_there(&self) -> bool {
        self.watch.is_some()
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_there() { "Watcher" } else { "nobody" })
    }
}

/// Shows the statement of that number before it runs.
pub(super) fn before(warp: &Warp, code: &Code, world: &mut World, number: u32) -> Result<(), Trap> {
    world.watcher.statement = number as usize;
    show(warp, code, world, Seen::Before)
}

/// Shows an access that has written.
pub(super) fn wrote(warp: &Warp, code: &Code, world: &mut World, access: u32) -> Result<(), Trap> {
    let Some(a) = code.accesses.get(access as usize) else { return Ok(()) };
    let element = warp.value(a.at, 0);
    let value = read(code, world, a.buffer, element).ok_or(Trap::Broken("a write left no value"))?;
    show(warp, code, world, Seen::Wrote { buffer: a.buffer, element, value })
}

fn show(warp: &Warp, code: &Code, world: &mut World, seen: Seen) -> Result<(), Trap> {
    let Some(mut watch) = world.watcher.watch.take() else { return Ok(()) };
    let flow = watch(&Moment { seen, statement: world.watcher.statement, code, warp, world });
    world.watcher.watch = Some(watch);
    if flow.is_break() { Err(Trap::Stopped) } else { Ok(()) }
}
