//! Asynchronous copies from global to shared memory (PTX ISA, "Data Movement and Conversion Instructions: cp.async").
//!
//! Copies of 16 bytes bypass the L1 cache (`.cg`) unless the schedule says `cache=l1`; copies of 4 and 8 bytes use it (`.ca`). A copy under a `select` with 0 has a
//! src-size of 0 where the condition is false: the instruction reads nothing and writes zeros. A copy under an `if` is predicated.

use super::access::{Storage, byte_size};
use super::body::Body;
use super::builder::Value;
use super::session::bug;
use crate::error::Result;
use crate::ir::{Expr, Stmt, Store};

const WHERE: &str = include_str!("../../ptx-templates/cp_async_where.ptx");
const ZEROS_WHERE: &str = include_str!("../../ptx-templates/cp_async_zeros_where.ptx");

/// The operands of a cp.async.
struct Operands<'c> {
    /// The bytes that the instruction writes: 4, 8 or 16.
    bytes: u32,
    /// The cache operator, `cg` or `ca`.
    cache: &'static str,
    /// The address in shared memory.
    to: Value<'c>,
    /// The address in global memory.
    source: Value<'c>,
    /// The src-size operand of a copy that zero-fills: the instruction writes zeros behind so many bytes of the source.
    size: Option<Value<'c>>,
}

impl<'c> Body<'c, '_, '_> {
    /// Emits the cp.async of an asynchronous store.
    pub fn copy(&mut self, store: &Store) -> Result<()> {
        let Operands { bytes, cache, to, source, size } = self.copy_operands(store)?;
        let name = format!("llvm.nvvm.cp.async.{cache}.shared.global.{bytes}");
        match size {
            None => self.b.effect(&name, &[to, source]),
            Some(size) => self.b.effect(&format!("{name}.s"), &[to, source, size]),
        }
    }

    /// Emits the cp.async of an asynchronous store, predicated by the condition.
    pub fn copy_where(&mut self, store: &Store, condition: Value<'c>) -> Result<()> {
        let Operands { bytes, cache, to, source, size } = self.copy_operands(store)?;
        let condition = self.b.select(condition, self.b.int(32, 1).into(), self.b.int(32, 0).into())?;
        let fields = [("cache", cache.to_string()), ("bytes", bytes.to_string())];
        let operands: [(&str, &[Value]); 3] = [("D", &[to]), ("M", &[source]), ("P", &[condition])];
        match size {
            None => self.template(WHERE, &fields, &operands),
            Some(size) => self.template(ZEROS_WHERE, &fields, &[&operands[..], &[("N", &[size])]].concat()),
        }
    }

    /// Evaluates the operands of the cp.async of an asynchronous store.
    fn copy_operands(&mut self, store: &Store) -> Result<Operands<'c>> {
        let (condition, load) = match store.value.zero_filled() {
            Some((condition, load)) => (Some(condition), load),
            None => (None, &store.value),
        };
        if let Expr::Gather { var, low, extent, index, value } = load {
            let number = self.datum_index(index, (*low, *extent))?;
            let filled = match condition {
                Some(condition) => Expr::select(condition.clone(), value.as_ref().clone(), zero_like(&store.value)?),
                None => value.as_ref().clone(),
            };
            let inner = Store { value: filled, ..store.clone() };
            return self.with_datum(*var, number, |body| body.copy_operands(&inner));
        }
        let Expr::Load { buffer, indices, lanes } = load else { return Err(bug("a copy of what is not in memory")) };
        let (Storage::Shared(to), Storage::Global { pointer: from, .. }) =
            (self.place(store.buffer)?, self.place(*buffer)?)
        else {
            return Err(bug("a copy that is not from global to shared memory"));
        };
        let bytes = byte_size(self.buffer(*buffer)?.dtype, *lanes);
        let cache = if bytes == 16 && !store.through_l1 { "cg" } else { "ca" };
        let (to, _) = self.address(store.buffer, to, &store.indices)?;
        let (source, _) = self.address(*buffer, from, indices)?;
        let (to, source) = (to.into(), source.into());
        let Some(condition) = condition else { return Ok(Operands { bytes, cache, to, source, size: None }) };
        let holds = self.expr(condition)?.value;
        // Where the condition is false, the address may be outside the buffer. The instruction gets the buffer's own address.
        let source = self.b.select(holds, source, from.into())?;
        let size = |n: u32| -> Value { self.b.int(32, i64::from(n)).into() };
        let size = Some(self.b.select(holds, size(bytes), size(0))?);
        Ok(Operands { bytes, cache, to, source, size })
    }
}

/// What a zero-filled copy has where its condition is false.
fn zero_like(value: &Expr) -> Result<Expr> {
    match value {
        Expr::Select(_, _, zero) => Ok(zero.as_ref().clone()),
        _ => Err(bug("a copy under no condition")),
    }
}

/// The asynchronous store of a body that has no other statement.
pub fn single(body: &[Stmt]) -> Option<&Store> {
    match body {
        [Stmt::Store(store)] if store.asynchronous => Some(store),
        [Stmt::Block(block)] => single(&block.body),
        _ => None,
    }
}
