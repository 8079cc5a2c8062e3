//! Elements that move from register to register: byte permutations.
//!
//! A nest that is written out and copies a packed local buffer of bytes or pairs of them to another one, element by element,
//! puts together words of 32 bits. A word whose elements come from at most two words is one PRMT (PTX ISA, prmt). Said
//! element by element, LLVM would make shifts and masks of some of them.

use super::access::Storage;
use super::body::Body;
use super::words::Words;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Expr, For, LoopKind, Stmt, Store, Var};
use std::collections::BTreeMap;

/// Elements of the nests that are looked at.
const MOST: i64 = 1 << 10;

/// The selector that leaves the first word as it is.
const SAME: i64 = 0x3210;

/// A word: of each of its elements, the source's word and the position in it.
type Sources = Vec<Option<(usize, usize)>>;

impl<'c> Body<'c, '_, '_> {
    /// Emits a nest that only moves elements between registers word by word; says whether it is one.
    pub fn regroup(&mut self, l: &For) -> Result<bool> {
        let mut loops = Vec::new();
        let Some(store) = leaf(l, &mut loops) else { return Ok(false) };
        let Expr::Load { buffer, indices, lanes } = &store.value else { return Ok(false) };
        let packed = |id| match self.places_local(id) {
            Some(words) if matches!(words.per(), 2 | 4) => Some(words),
            _ => None,
        };
        let (Some(to), Some(from)) = (packed(store.buffer), packed(*buffer)) else { return Ok(false) };
        let points: i64 = loops.iter().map(|x| x.1).product();
        if store.buffer == *buffer || to.per() != from.per() || points > MOST {
            return Ok(false);
        }
        let mut words: BTreeMap<usize, Sources> = BTreeMap::new();
        for n in 0..points {
            self.at(n, &loops);
            let target = self.registers(store.buffer, &to, &store.indices, store.lanes)?;
            let source = self.registers(*buffer, &from, indices, *lanes)?;
            for (t, s) in target.into_iter().zip(source) {
                let word = words.entry(t / to.per()).or_insert_with(|| vec![None; to.per()]);
                word[t % to.per()] = Some((s / from.per(), s % from.per()));
            }
        }
        loops.iter().for_each(|(v, _)| {
            self.unrolled.remove(v);
        });
        let Some(moves) = words.iter().map(|(word, of)| Some((*word, permutation(of)?))).collect::<Option<Vec<_>>>()
        else {
            return Ok(false);
        };
        let permuted = |body: &mut Self| {
            moves.iter().try_for_each(|(word, permutation)| body.permuted(&to, *word, &from, permutation))
        };
        self.on_line_of(store, permuted)?;
        Ok(true)
    }

    /// The n-th iteration of a nest.
    fn at(&mut self, mut n: i64, loops: &[(Var, i64)]) {
        for (var, extent) in loops.iter().rev() {
            self.unrolled.insert(*var, (n % extent).into());
            n /= extent;
        }
    }

    fn places_local(&self, id: crate::ir::BufferId) -> Option<Words<'c>> {
        match self.place(id) {
            Ok(Storage::Local(words)) => Some(words),
            _ => None,
        }
    }

    fn permuted(&mut self, to: &Words<'c>, word: usize, from: &Words<'c>, p: &Permutation) -> Result<()> {
        let selector = p.selector(from.per());
        let all = |word: usize, per: usize| (word * per..(word + 1) * per).collect::<Vec<_>>();
        let [low, high] = p.words;
        if low == high && selector == SAME {
            let value = self.read(from, &all(low, from.per()))?;
            return self.write(to, &all(word, to.per()), value);
        }
        let number = self.b.element(DType::U32)?;
        let low = self.b.reinterpret(self.read(from, &all(low, from.per()))?, number)?;
        let high = self.b.reinterpret(self.read(from, &all(high, from.per()))?, number)?;
        let value = self.b.intrinsic("llvm.nvvm.prmt", &[], &[low, high, self.b.int(32, selector).into()])?;
        let value = self.b.reinterpret(value, to.shape()?)?;
        self.write(to, &all(word, to.per()), value)
    }
}

/// A word out of two words.
struct Permutation {
    words: [usize; 2],
    /// Of each element: which of the two, and its position there.
    elements: Vec<(usize, usize)>,
}

impl Permutation {
    /// Four digits of four bits, the lowest byte's first: bytes 0 to 3 of the first word, 4 to 7 of the second.
    fn selector(&self, per: usize) -> i64 {
        let bytes = 4 / per;
        let byte = |n: usize| {
            let (word, element) = self.elements[n / bytes];
            (word * 4 + element * bytes + n % bytes) as i64
        };
        (0..4).map(|n| byte(n) << (4 * n)).sum()
    }
}

/// `None` where an element is missing, or comes from a third word.
fn permutation(of: &Sources) -> Option<Permutation> {
    let all: Vec<(usize, usize)> = of.iter().copied().collect::<Option<_>>()?;
    let first = all.iter().map(|x| x.0).min()?;
    let last = all.iter().map(|x| x.0).max()?;
    let side = |(word, element): &(usize, usize)| match *word {
        w if w == first => Some((0, *element)),
        w if w == last => Some((1, *element)),
        _ => None,
    };
    Some(Permutation { words: [first, last], elements: all.iter().map(side).collect::<Option<_>>()? })
}

/// The one statement of a nest that is written out, and its loops.
fn leaf<'a>(l: &'a For, loops: &mut Vec<(Var, i64)>) -> Option<&'a Store> {
    if l.kind != LoopKind::Unrolled || !l.notes.is_empty() {
        return None;
    }
    loops.push((l.var, l.extent.as_int().filter(|n| (1..=MOST).contains(n))?));
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
            let sources: Sources = of.iter().map(|x| Some(*x)).collect();
            permutation(&sources).map(|p| p.selector(of.len()))
        };
        assert_eq!(selector(&[(6, 0), (6, 2), (7, 0), (7, 2)]), Some(0x6420));
        assert_eq!(selector(&[(6, 1), (6, 3), (7, 1), (7, 3)]), Some(0x7531));
        assert_eq!(selector(&[(3, 1), (3, 0)]), Some(0x1032));
        assert_eq!(selector(&[(2, 1), (9, 0)]), Some(0x5432));
        assert_eq!(selector(&[(1, 0), (2, 0), (3, 0), (1, 1)]), None);
        assert!(permutation(&vec![Some((0, 0)), None]).is_none());
    }
}
