//! The layout of fragments that no instruction uses: each element is in the lane that holds the element of another fragment
//! which the same iteration touches. Where a fragment has fewer indices than the other, such as a scale for each row of accumulators, several
//! lanes hold copies of an element.

use super::distribute::{chain, composed, digits, lane_count};
use super::tile::{Fragment, Use};
use super::{Fragments, body_accesses};
use crate::error::{Code, Error, Result};
use crate::ir::layout::Coordinate::{Element, Index as At, Register};
use crate::ir::layout::{Digit, Layout};
use crate::ir::simplify::Env;
use crate::ir::{BufferId, For, Index, Stmt, Var};

impl Fragments<'_> {
    /// Finds the places of fragments, one after the other.
    pub(super) fn lay_beside(&mut self, body: &[Stmt], env: &Env, mut left: Vec<BufferId>) -> Result<()> {
        while let Some(next) = left.first() {
            let found = left.iter().find_map(|id| Some((*id, self.beside(body, *id, env)?)));
            let Some((id, tile)) = found else {
                let name = &self.func.buffer(*next).name;
                return Err(Error::input(Code::LowerFragment, format!("no instruction uses fragment {name}"))
                    .about_buffer(name)
                    .help("an instruction says which lanes hold the elements of a fragment: tensorize a nest that reads or writes it")
                    .help("or pass whole tiles between it and a fragment that an instruction uses")
                    .help(format!("or set_scope {name} local")));
            };
            self.fragments.insert(id, Fragment::of(self.func, id, &[&tile])?);
            left.retain(|x| *x != id);
        }
        Ok(())
    }

    /// The tile of a fragment in the first nest that has it beside one whose place is known.
    fn beside(&self, body: &[Stmt], id: BufferId, env: &Env) -> Option<Use> {
        body.iter().find_map(|stmt| match stmt {
            Stmt::For(l) if l.tensorize.is_some() => None,
            Stmt::For(l) if self.is_shared_out(l) => self.tile_beside(l, id, env),
            Stmt::For(l) => {
                let mut inner = env.clone();
                inner.bind_loop(l.var, &l.extent);
                self.beside(&l.body, id, &inner)
            }
            Stmt::Block(b) => self.beside(&b.body, id, env),
            Stmt::If(i) => {
                let mut inner = env.clone();
                inner.assume(&i.cond);
                self.beside(&i.body, id, &inner)
            }
            _ => None,
        })
    }

    /// From the elements of a fragment back to the loops of a nest, and from there to the lanes of another fragment.
    fn tile_beside(&self, top: &For, id: BufferId, env: &Env) -> Option<Use> {
        let (loops, body) = chain(top.clone())?;
        let loops: Vec<(Var, i64)> = loops.iter().map(|l| (l.l.var, l.extent)).collect();
        let mut inner = env.clone();
        loops.iter().for_each(|(v, n)| inner.bind(*v, 0, n - 1));
        let (mut known, mut own): (Option<(BufferId, Layout)>, Option<Vec<Index>>) = (None, None);
        body_accesses(&body, &mut |buffer, indices| {
            if buffer == id {
                own.get_or_insert_with(|| indices.to_vec());
            } else if let Some(fragment) = self.fragments.get(&buffer).filter(|f| known.is_none() || !f.is_replicated())
            {
                let is_copy =
                    |(id, _): &(BufferId, Layout)| self.fragments.get(id).is_some_and(Fragment::is_replicated);
                if known.as_ref().is_none_or(is_copy) {
                    known = composed(fragment, indices, &loops, &inner).map(|(layout, _)| (buffer, layout));
                }
            }
        });
        let ((neighbour, layout), own) = known.zip(own)?;
        let mut elements = Vec::new();
        for (d, index) in own.iter().enumerate() {
            elements.extend(digits(index, d, &loops, &inner)?.0);
        }
        let found = self.fragments.get(&neighbour)?;
        // Where indices leave out some of the loops, the lanes that these loops tell apart have copies.
        let every = lane_count(&layout) == lane_count(&found.layout);
        let layout = Layout::new(elements).inverse()?.then(&layout)?;
        let shares_bytes = self.func.buffer(id).dtype.bits() < 8;
        let layout = if found.kind.is_some() { of_a_matrix(&layout) } else { numbered(&layout, shares_bytes) };
        let whole = match found.kind {
            Some(_) => layout.is_bijective() && layout.span(Element) == found.layout.span(Element),
            None => every,
        };
        if !whole {
            return None;
        }
        let shape: Vec<i64> = (0..own.len()).map(|d| layout.extent(At(d))).collect();
        let elements = found.slots.unwrap_or(layout.span(Register));
        let name = (&self.func.buffer(neighbour).name, self.func.var_name(top.var));
        let what = format!("fragment {} next to it in the nest of loop {}", name.0, name.1);
        let (row, kind, threads) = (found.row, found.kind, found.threads);
        Some(Use { buffer: id, row, what, own: shape.clone(), shape, layout, elements, kind, threads })
    }
}

/// What an opaque neighbour says of one of its matrices.
fn of_a_matrix(layout: &Layout) -> Layout {
    Layout::new(layout.digits().iter().filter(|d| d.to == Element).copied())
}

/// With the elements of a lane numbered without gaps, in the order that they have there. Elements that share bytes are numbered along the
/// last dimension, as in memory, so that a lane loads them as words.
fn numbered(layout: &Layout, shares_bytes: bool) -> Layout {
    let mut digits: Vec<Digit> = layout.digits().to_vec();
    digits.sort_by_key(|d| d.stride);
    if shares_bytes {
        digits.sort_by_key(|d| (std::cmp::Reverse(d.from), d.at));
    }
    let mut next = 1;
    for d in digits.iter_mut().filter(|d| d.to == Register) {
        d.stride = next;
        next *= d.extent;
    }
    Layout::new(digits)
}
