//! Asynchronous copies from global to shared memory (PTX ISA, "Data Movement and Conversion Instructions: cp.async").
//!
//! 16 bytes bypass the L1 cache (`.cg`), 4 and 8 go through it (`.ca`), as the instruction has it. Where a condition
//! leaves a copy out, its source size is 0: nothing is read, and zeros land.

use super::access::{Place, byte_size};
use super::body::Body;
use super::builder::Value;
use super::session::bug;
use crate::error::Result;
use crate::ir::{Expr, Store};

impl Body<'_, '_, '_> {
    /// Starts the copy that an asynchronous store stands for.
    pub fn copy(&mut self, store: &Store) -> Result<()> {
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
        let name = format!("llvm.nvvm.cp.async.{cache}.shared.global.{bytes}");
        let (to, _) = self.address(store.buffer, to, &store.indices)?;
        let (source, _) = self.address(*buffer, from, indices)?;
        let Some(condition) = condition else { return self.b.effect(&name, &[to.into(), source.into()]) };
        let holds = self.expr(condition)?.value;
        // The address of what is left out may lie anywhere; that of the buffer does not.
        let source = self.b.select(holds, source.into(), from.into())?;
        let size = |n: u32| -> Value { self.b.int(32, i64::from(n)).into() };
        let size = self.b.select(holds, size(bytes), size(0))?;
        self.b.effect(&format!("{name}.s"), &[to.into(), source, size])
    }
}
