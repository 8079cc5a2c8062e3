//! Nests that copy elements from registers to registers: each register they write is a permutation of the bytes of two.
//!
//! A nest that is written out and copies a local buffer of bytes, or of pairs of them, to another one, element by element, puts
//! together registers of 32 bits. A register whose elements come from at most two registers is one PRMT (PTX ISA, prmt).

use crate::index::Points;
use crate::ir::simplify::affine;
use crate::ir::{BufferId, Expr, For, Func, Held, Index, LoopKind, Scope, Stmt, Store, Var, visit};
use std::collections::{BTreeMap, HashSet};

/// The most elements of a nest.
pub const MOST_ELEMENTS: i64 = 1 << 10;

/// The local buffers whose registers instructions or aligned words fill.
pub fn held(body: &[Stmt]) -> HashSet<BufferId> {
    let mut out = HashSet::new();
    visit::walk(body, &mut |stmt| match stmt {
        Stmt::Call(call) => {
            let in_registers = call.operands.iter().filter(|o| matches!(o.held, Held::Registers(_)));
            out.extend(in_registers.map(|o| o.buffer));
        }
        Stmt::For(l) if l.code.realigns => out.extend(visit::writes(&l.body)),
        _ => {}
    });
    out
}

/// Elements that share a register of a local buffer: where instructions or words fill it, as many as fill 32 bits, else one.
pub fn elements_per_register(func: &Func, held: &HashSet<BufferId>, buffer: BufferId) -> Option<usize> {
    let described = func.buffers.get(buffer.0 as usize)?;
    let (elements, bits) = (described.elements()?, described.dtype.bits());
    let shared = held.contains(&buffer) && bits < 32 && elements % i64::from(32 / bits) == 0;
    Some(if shared { 32 / bits as usize } else { 1 })
}

/// What a nest copies. Code generation alone reads more than whether it copies at all.
#[cfg_attr(not(feature = "compile"), expect(dead_code))]
pub struct Copied<'a> {
    /// The one statement of the nest.
    pub store: &'a Store,
    /// The buffer that it reads.
    pub from: BufferId,
    /// Of each register that the nest writes, its number and where its elements come from.
    pub registers: Vec<(usize, Permutation)>,
}

/// What a nest copies where the variables of the unrolled loops around it have these values; `None` if it is no such nest, or if a
/// register is not filled from two registers.
pub fn copied<'a>(func: &Func, held: &HashSet<BufferId>, l: &'a For, around: &visit::Map) -> Option<Copied<'a>> {
    let mut loops = Vec::new();
    let store = leaf(l, &mut loops)?;
    let Expr::Load { buffer: from, indices, lanes } = &store.value else { return None };
    let local = |id: BufferId| func.buffers.get(id.0 as usize).is_some_and(|b| b.scope == Scope::Local);
    let per = elements_per_register(func, held, store.buffer).filter(|per| matches!(per, 2 | 4))?;
    let same = elements_per_register(func, held, *from) == Some(per);
    if store.buffer == *from || !local(store.buffer) || !local(*from) || !same {
        return None;
    }
    let ([to_index], [from_index]) = (store.indices.as_slice(), indices.as_slice()) else { return None };
    let mut sources: BTreeMap<usize, Vec<Option<(usize, usize)>>> = BTreeMap::new();
    for point in Points::within(&loops, MOST_ELEMENTS)? {
        let mut values = around.clone();
        values.extend(point.into_iter().map(|(var, value)| (var, Index::Int(value))));
        let at = |index| usize::try_from(affine(&visit::subst_index(index, &values)).as_constant()?).ok();
        let (target, source) = (at(to_index)?, at(from_index)?);
        for lane in 0..store.lanes.min(*lanes) as usize {
            let (t, s) = (target + lane, source + lane);
            let register = sources.entry(t / per).or_insert_with(|| vec![None; per]);
            register[t % per] = Some((s / per, s % per));
        }
    }
    let registers = sources.into_iter().map(|(register, of)| Some((register, Permutation::of(&of)?)));
    Some(Copied { store, from: *from, registers: registers.collect::<Option<_>>()? })
}

/// A register out of two registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permutation {
    /// The two.
    pub registers: [usize; 2],
    /// Of each element: which of the two, and its position there.
    elements: Vec<(usize, usize)>,
}

impl Permutation {
    /// The selector that leaves the first register as it is.
    #[cfg_attr(not(feature = "compile"), expect(dead_code))]
    pub const SAME: i64 = 0x3210;

    /// Where each element comes from: a register and the position in it. `None` where an element is missing, or comes from a third
    /// register.
    fn of(elements: &[Option<(usize, usize)>]) -> Option<Permutation> {
        let all: Vec<(usize, usize)> = elements.iter().copied().collect::<Option<_>>()?;
        let first = all.iter().map(|x| x.0).min()?;
        let last = all.iter().map(|x| x.0).max()?;
        let which = |(register, element): &(usize, usize)| match *register {
            r if r == first => Some((0, *element)),
            r if r == last => Some((1, *element)),
            _ => None,
        };
        Some(Permutation { registers: [first, last], elements: all.iter().map(which).collect::<Option<_>>()? })
    }

    /// Four digits of four bits, the lowest byte's first: bytes 0 to 3 of the first register, 4 to 7 of the second.
    #[cfg_attr(not(feature = "compile"), expect(dead_code))]
    pub fn selector(&self) -> i64 {
        let per = self.elements.len();
        let bytes = 4 / per;
        let byte = |n: usize| {
            let (register, element) = self.elements[n / bytes];
            (register * 4 + element * bytes + n % bytes) as i64
        };
        (0..4).map(|n| byte(n) << (4 * n)).sum()
    }
}

/// The one statement of a nest that is written out, and its loops.
fn leaf<'a>(l: &'a For, loops: &mut Vec<(Var, i64)>) -> Option<&'a Store> {
    if l.kind != LoopKind::Unrolled || !l.notes.is_empty() {
        return None;
    }
    loops.push((l.var, l.extent.as_int().filter(|n| (1..=MOST_ELEMENTS).contains(n))?));
    let mut body = l.body.as_slice();
    loop {
        match body {
            [Stmt::Block(b)] => body = &b.body,
            [Stmt::For(inner)] => return leaf(inner, loops),
            [Stmt::Store(store)] if !store.asynchronous => return Some(store),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_name_bytes() {
        let selector = |of: &[(usize, usize)]| {
            let sources: Vec<_> = of.iter().map(|x| Some(*x)).collect();
            Permutation::of(&sources).map(|p| p.selector())
        };
        assert_eq!(selector(&[(6, 0), (6, 2), (7, 0), (7, 2)]), Some(0x6420));
        assert_eq!(selector(&[(6, 1), (6, 3), (7, 1), (7, 3)]), Some(0x7531));
        assert_eq!(selector(&[(3, 1), (3, 0)]), Some(0x1032));
        assert_eq!(selector(&[(2, 1), (9, 0)]), Some(0x5432));
        assert_eq!(selector(&[(1, 0), (2, 0), (3, 0), (1, 1)]), None);
        assert_eq!(Permutation::of(&[Some((0, 0)), None]), None);
    }
}
