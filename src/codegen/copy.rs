//! Asynchronous copies from global to shared memory (PTX ISA, "Data Movement and Conversion Instructions: cp.async").
//!
//! 16 bytes bypass the L1 cache (`.cg`), 4 and 8 go through it (`.ca`), as the instruction has it. Where a condition
//! leaves a copy out, its source size is 0: nothing is read, and zeros land.

use super::access::{Place, byte_size};
use super::body::Body;
use super::builder::Value;
use super::session::bug;
use crate::error::Result;
use crate::ir::{Expr, Stmt, Store};

const WHERE: &str = include_str!("../../ptx-templates/cp_async_where.ptx");
const ZEROS_WHERE: &str = include_str!("../../ptx-templates/cp_async_zeros_where.ptx");

/// An asynchronous copy, ready to be started.
struct Ready<'c> {
    bytes: u32,
    /// `cg` or `ca`.
    cache: &'static str,
    to: Value<'c>,
    source: Value<'c>,
    /// How many bytes the source has, where a condition decides it.
    size: Option<Value<'c>>,
}

impl<'c> Body<'c, '_, '_> {
    /// Starts the copy that an asynchronous store stands for.
    pub fn copy(&mut self, store: &Store) -> Result<()> {
        let Ready { bytes, cache, to, source, size } = self.ready(store)?;
        let name = format!("llvm.nvvm.cp.async.{cache}.shared.global.{bytes}");
        match size {
            None => self.b.effect(&name, &[to, source]),
            Some(size) => self.b.effect(&format!("{name}.s"), &[to, source, size]),
        }
    }

    /// Starts it where a condition holds: a predicate of the instruction instead of a branch around it.
    pub fn copy_where(&mut self, store: &Store, condition: Value<'c>) -> Result<()> {
        let Ready { bytes, cache, to, source, size } = self.ready(store)?;
        let condition = self.b.select(condition, self.b.int(32, 1).into(), self.b.int(32, 0).into())?;
        let fields = [("cache", cache.to_string()), ("bytes", bytes.to_string())];
        let operands: [(&str, &[Value]); 3] = [("D", &[to]), ("M", &[source]), ("P", &[condition])];
        match size {
            None => self.template(WHERE, &fields, &operands),
            Some(size) => self.template(ZEROS_WHERE, &fields, &[&operands[..], &[("N", &[size])]].concat()),
        }
    }

    fn ready(&mut self, store: &Store) -> Result<Ready<'c>> {
        let (condition, load) = match store.value.zero_filled() {
            Some((condition, load)) => (Some(condition), load),
            None => (None, &store.value),
        };
        let Expr::Load { buffer, indices, lanes } = load else { return Err(bug("a copy of what is not in memory")) };
        let (Place::Shared(to), Place::Global { pointer: from, .. }) =
            (self.place(store.buffer)?, self.place(*buffer)?)
        else {
            return Err(bug("a copy that is not from global to shared memory"));
        };
        let bytes = byte_size(self.buffer(*buffer)?.dtype, *lanes);
        let cache = if bytes == 16 { "cg" } else { "ca" };
        let (to, _) = self.address(store.buffer, to, &store.indices)?;
        let (source, _) = self.address(*buffer, from, indices)?;
        let (to, source) = (to.into(), source.into());
        let Some(condition) = condition else { return Ok(Ready { bytes, cache, to, source, size: None }) };
        let holds = self.expr(condition)?.value;
        // The address of what is left out may lie anywhere; that of the buffer does not.
        let source = self.b.select(holds, source, from.into())?;
        let size = |n: u32| -> Value { self.b.int(32, i64::from(n)).into() };
        let size = Some(self.b.select(holds, size(bytes), size(0))?);
        Ok(Ready { bytes, cache, to, source, size })
    }
}

/// The asynchronous copy that a statement is, whatever blocks it stands in.
pub fn alone(body: &[Stmt]) -> Option<&Store> {
    match body {
        [Stmt::Store(store)] if store.asynchronous => Some(store),
        [Stmt::Block(block)] => alone(&block.body),
        _ => None,
    }
}
