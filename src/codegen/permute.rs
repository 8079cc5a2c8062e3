//! Nests of byte permutations: a PRMT for each register that they write.
//!
//! The pass `permute` has marked them ([`crate::ir::LoopCode::permutes`]). Element by element, LLVM would make shifts and masks of some of
//! them.

use super::access::Storage;
use super::body::Body;
use super::session::bug;
use super::words::Words;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::lowered::permute::{self, Permutation};
use crate::ir::{BufferId, For};

impl<'c> Body<'c, '_, '_> {
    /// Emits a nest that permutes bytes, register by register.
    pub fn permute(&mut self, l: &For) -> Result<()> {
        let copied = permute::copied(self.func, &self.held, l, &self.unrolled);
        let copied = copied.ok_or_else(|| bug(format!("loop {} permutes no bytes", self.name_of(l.var))))?;
        let (to, from) = (self.local(copied.store.buffer)?, self.local(copied.from)?);
        self.on_line_of(copied.store, |body| {
            copied.registers.iter().try_for_each(|(register, p)| body.permuted(&to, *register, &from, p))
        })
    }

    fn local(&self, id: BufferId) -> Result<Words<'c>> {
        match self.place(id)? {
            Storage::Local(words) => Ok(words),
            _ => Err(bug("bytes are permuted outside registers")),
        }
    }

    fn permuted(&mut self, to: &Words<'c>, register: usize, from: &Words<'c>, p: &Permutation) -> Result<()> {
        let selector = p.selector();
        let all = |register: usize, per: usize| (register * per..(register + 1) * per).collect::<Vec<_>>();
        let [low, high] = p.registers;
        if low == high && selector == Permutation::SAME {
            let value = self.read(from, &all(low, from.per()))?;
            return self.write(to, &all(register, to.per()), value);
        }
        let number = self.b.element(DType::U32)?;
        let low = self.b.reinterpret(self.read(from, &all(low, from.per()))?, number)?;
        let high = self.b.reinterpret(self.read(from, &all(high, from.per()))?, number)?;
        let value = self.b.intrinsic("llvm.nvvm.prmt", &[], &[low, high, self.b.int(32, selector).into()])?;
        let value = self.b.reinterpret(value, to.shape()?)?;
        self.write(to, &all(register, to.per()), value)
    }
}
