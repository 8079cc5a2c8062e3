//! What went wrong, in the program's names: buffer and index, statement, loop values, block and thread.

use super::code::{Access, Code, Op, SiteKind};
use super::mbarrier;
use super::race::Touch;
use super::warp::{Trap, Warp};
use crate::error::{self, Error, Fault};
use crate::ir::lowered::Shape;
use crate::ir::{Stmt, Var, print};

/// Which thread ran; `None` for a program that runs in sequence.
#[derive(Debug, Clone, Copy)]
pub(super) struct Where {
    pub block: [u32; 3],
    /// Threads of a block in x, y, z.
    pub threads: [u32; 3],
    pub warp: usize,
}

/// Makes an error of a trap.
pub(super) fn explain(trap: &Trap, code: &Code, warp: &Warp, at: Option<Where>) -> Error {
    let (message, lane) = sentence(trap, code, warp);
    // A wrong Func is its author's fault; wrong threads are the fault of who lowered it.
    let fault = match (trap, at) {
        (Trap::Broken(_), _) => Fault::Bug,
        (Trap::Limit | Trap::Stopped | Trap::Range { .. }, _) | (_, None) => Fault::Input,
        _ => Fault::Bug,
    };
    let mut error = Error::new(fault, requirement(trap), message);
    if let Trap::Deadlock(waits) = trap {
        error = listed(error, waits);
    }
    let site = code.site_of.get(warp.pc).and_then(|s| code.sites.get(*s as usize));
    if let Some(site) = site {
        let text = match &site.statement {
            SiteKind::Store(s) => print::stmts(&code.func, &[Stmt::Store(s.clone())]),
            SiteKind::Call(c) => print::stmts(&code.func, &[Stmt::Call(c.clone())]),
            SiteKind::Bulk(c) => print::stmts(&code.func, &[Stmt::Bulk(c.clone())]),
            SiteKind::If(c) => format!("if {}", print::cond(&code.func, c)),
            SiteKind::Sync(reason) => format!("barrier: {reason}"),
            SiteKind::Other => String::new(),
        };
        if !text.is_empty() {
            error = error.within(format!("in {}", text.trim()));
        }
        let values: Vec<String> = site
            .loops
            .iter()
            .map(|(v, o)| format!("{} = {}", code.func.vars.get(v.0 as usize).map_or("?", |n| n), warp.value(*o, lane)))
            .collect();
        if !values.is_empty() {
            error = error.within(format!("with {}", values.join(", ")));
        }
    }
    match at {
        Some(at) => error.within(format!("by {}", thread(at, lane))),
        None => error,
    }
}

/// What a warp does that cannot proceed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waits {
    pub warp: usize,
    pub does: String,
}

/// Adds what each warp does: warps that do the same have a line together.
pub(super) fn listed(mut error: Error, waits: &[Waits]) -> Error {
    let mut groups: Vec<(usize, &Waits)> = Vec::new();
    for next in waits {
        match groups.last_mut() {
            Some((last, first)) if first.does == next.does && next.warp == *last + 1 => *last = next.warp,
            _ => groups.push((next.warp, next)),
        }
    }
    for (last, Waits { warp, does }) in groups {
        error = error.within(match *warp == last {
            true => format!("warp {warp} {does}"),
            false => format!("warps {warp} to {last}: each {does}"),
        });
    }
    error
}

pub(super) fn thread(at: Where, lane: usize) -> String {
    let number = at.warp as u32 * 32 + lane as u32;
    let [x, y, _] = at.threads.map(|n| n.max(1));
    let [bx, by, bz] = at.block;
    format!("block ({bx}, {by}, {bz}), thread ({}, {}, {})", number % x, number / x % y, number / x / y)
}

/// What a trap says is broken.
fn requirement(trap: &Trap) -> error::Code {
    match trap {
        Trap::OutOfBounds { .. } => error::Code::SimBounds,
        Trap::Uninitialised(_) => error::Code::SimUninitialised,
        Trap::Misaligned { .. } | Trap::Row { .. } => error::Code::SimAlignment,
        Trap::Race(_) => error::Code::SimRace,
        Trap::Range { .. } => error::Code::SimValues,
        Trap::Division { .. } => error::Code::SimZero,
        Trap::Divergence { .. } | Trap::Stuck { .. } => error::Code::SimDivergence,
        Trap::Mbarrier { .. } => error::Code::SimMbarrier,
        Trap::Held(_) | Trap::Product(_) => error::Code::SimWgmma,
        Trap::Deadlock(_) => error::Code::SimDeadlock,
        Trap::Unfinished { .. } => error::Code::SimUnfinished,
        Trap::Early => error::Code::SimPdl,
        Trap::Limit => error::Code::SimLimit,
        Trap::Stopped => error::Code::SimStopped,
        Trap::Broken(_) => error::Code::SimCode,
    }
}

/// The message about a TMA box that begins between units of a row of its array.
fn between_units(array: &str, bytes: i64) -> String {
    format!("a TMA box begins {bytes} bytes from the beginning of a row of {array}, no multiple of 16")
}

/// The message of a trap, and the lane that it is about.
fn sentence(trap: &Trap, code: &Code, warp: &Warp) -> (String, usize) {
    let found = |number: u32, lane: usize| {
        let access = code.accesses.get(number as usize);
        access.map_or_else(|| "a buffer".to_string(), |a| element(code, warp, a, lane))
    };
    // Of a vector the element, too.
    let one_of = |number: u32, lane: usize, element: i64| match code.accesses.get(number as usize) {
        Some(a) if a.lanes > 1 => format!("{} (element {element})", found(number, lane)),
        _ => found(number, lane),
    };
    match *trap {
        Trap::OutOfBounds { lane, access } => {
            let shape = code.accesses.get(access as usize).map(|a| code.func.buffer(a.buffer).const_shape());
            let shape = shape.flatten().unwrap_or_default();
            (format!("{} is outside its shape {shape:?}", found(access, lane)), lane)
        }
        Trap::Uninitialised(Touch { lane, access, element, .. }) => {
            let name = one_of(access, lane, element);
            (format!("{name} is read, but nothing has written it"), lane)
        }
        Trap::Misaligned { lane, access, element } => {
            let lanes = code.accesses.get(access as usize).map_or(1, |a| a.lanes);
            let message =
                format!("{} is a vector of {lanes} at element {element}, not aligned to its size", found(access, lane));
            (message, lane)
        }
        Trap::Row { lane, access, bytes } => (between_units(&found(access, lane), bytes), lane),
        Trap::Race(Touch { lane, access, .. }) => {
            (format!("{} is accessed by several threads, and nothing orders them", found(access, lane)), lane)
        }
        Trap::Range { lane, value, range: (low, end), what } => {
            let text = code.gathers.get(what as usize).map_or("a datum", String::as_str);
            let message = format!("{text} is {value}, but as an index its values are {low}..{end}");
            (message, lane)
        }
        Trap::Division { lane } => ("an integer is divided by zero".to_string(), lane),
        Trap::Divergence { mask } => {
            let message = format!(
                "{} is reached by lanes {mask:#010x} of a warp with lanes {:#010x}",
                met(code, warp),
                warp.full
            );
            (message, (mask.trailing_zeros() as usize).min(31))
        }
        Trap::Stuck { other, what } => {
            let message = format!("a barrier is reached by part of a block: warp {other} {what}");
            (message, 0)
        }
        Trap::Mbarrier { lane, slot, what } => (format!("mbarrier {} {what}", mbarrier::name(&code.func, slot)), lane),
        Trap::Held(Touch { lane, access, element, write, unit }) => {
            let done = if write { "written" } else { "read" };
            let name = one_of(access, lane, element);
            let product = warp.products.holder(unit).and_then(|pc| row(code, pc)).unwrap_or("wgmma");
            let message = format!(
                "{name} is {done} while {product} is in flight and uses the register: no wgmma_wait has waited for \
                 its group"
            );
            (message, lane)
        }
        Trap::Product(what) => (format!("a wgmma {what}"), 0),
        Trap::Deadlock(_) => ("no warp can proceed".to_string(), 0),
        Trap::Unfinished { lane, what } => {
            (format!("the block ends, and {what} that it has started is still under way"), lane)
        }
        Trap::Early => {
            ("global memory is accessed before the PDL wait, while the previous kernel may still run".to_string(), 0)
        }
        Trap::Limit => ("the program runs more statements than the simulator was allowed".to_string(), 0),
        Trap::Stopped => ("the run was ended by who watches it".to_string(), 0),
        Trap::Broken(what) => (format!("the simulator's own code is wrong: {what}"), 0),
    }
}

/// The instruction at a place in the code.
fn row(code: &Code, pc: usize) -> Option<&str> {
    match &code.sites.get(*code.site_of.get(pc)? as usize)?.statement {
        SiteKind::Call(call) => Some(&call.row),
        _ => None,
    }
}

/// What the lanes of a warp meet at.
fn met(code: &Code, warp: &Warp) -> String {
    let site = code.site_of.get(warp.pc).and_then(|s| code.sites.get(*s as usize));
    match (code.ops.get(warp.pc), site.map(|s| &s.statement)) {
        (_, Some(SiteKind::Call(call))) => call.row.clone(),
        (Some(Op::ProductFence), _) => "wgmma_fence".to_string(),
        (Some(Op::ProductCommit), _) => "wgmma_commit".to_string(),
        (Some(Op::ProductWait { .. }), _) => "wgmma_wait".to_string(),
        _ => "a barrier".to_string(),
    }
}

/// `C[3, 130]`: the element that a lane names.
pub(super) fn element(code: &Code, warp: &Warp, a: &Access, lane: usize) -> String {
    let site = code.site_of.get(warp.pc).and_then(|s| code.sites.get(*s as usize));
    let value = |v: Var| {
        let (_, operand) = site?.loops.iter().rev().find(|(var, _)| *var == v)?;
        Some(warp.value(*operand, lane))
    };
    let text = |i: &crate::ir::Index| i.eval(&value).map_or_else(|| print::index(&code.func, i), |v| v.to_string());
    let indices: Vec<String> = a.indices.iter().map(text).collect();
    format!("{}[{}]", code.func.buffer(a.buffer).name, indices.join(", "))
}

/// The first element of an array of this shape and these strides that is not marked, as text. Padding between elements belongs to no element.
pub(super) fn unwritten(name: &str, (shape, strides): &Shape, marks: &[u8]) -> Option<String> {
    let total: i64 = shape.iter().product();
    for flat in 0..total {
        let mut rest = flat;
        let mut index = vec![0; shape.len()];
        for d in (0..shape.len()).rev() {
            index[d] = rest % shape[d];
            rest /= shape[d];
        }
        let at: i64 = index.iter().zip(strides).map(|(i, s)| i * s).sum();
        if marks.get(at as usize) == Some(&0) {
            let index: Vec<String> = index.iter().map(i64::to_string).collect();
            return Some(format!("{}[{}]", name, index.join(", ")));
        }
    }
    None
}
