//! Steps of the primitives that ask for a map or a role: skew, transform_block_layout, specialize, tensor_core.

use super::source::Source;
use super::steps::{Steps, View, extent, holds_one_block, is_plain};
use warploom::ir::{Block, For, Iter, IterKind, LoopKind, Scope, visit};
use warploom::schedule::analyze::sums_over;

impl<'f> View<'f> {
    /// The loops that hold a block alone and run the whole of one of its iterators each, with the kind of that iterator.
    pub fn own_loops(&self, block: &Block) -> Vec<(&'f For, IterKind)> {
        let around = visit::loops_around(&self.func.body, block.name).unwrap_or_default();
        let whole = |it: &&Iter, l: &For| it.binding.as_var() == Some(l.var) && it.extent == l.extent;
        let kind = |l: &For| block.iters.iter().find(|it| whole(it, l)).map(|it| it.kind);
        let plain = |l: &&For| is_plain(l) && l.kind == LoopKind::Serial && holds_one_block(l);
        around.into_iter().filter(plain).filter_map(|l| Some((l, kind(l)?))).collect()
    }

    /// A reduction whose terms come later, by a shift that depends on the output.
    pub fn skew(&self, source: &mut Source) -> Steps {
        let block = self.block_where(source, |b| b.init.is_some() && b.predicate.is_true())?;
        let loops = self.own_loops(block);
        let of = |kind| loops.iter().filter(|(_, k)| *k == kind).map(|(l, _)| *l).collect::<Vec<&For>>();
        let (outer, inner) = (source.pick(&of(IterKind::Spatial))?, source.pick(&of(IterKind::Reduce))?);
        let (i, last) = (self.name(outer), extent(outer) - 1);
        let shift = match source.below(6) {
            0 | 1 => i.to_string(),
            2 => format!("{i} % 2*{}", 1 + source.below(3)),
            3 => format!("{i} // 2"),
            4 => format!("{last} - {i}"),
            _ => format!("{i}*2"),
        };
        let multiple = if source.chance(25) { format!(" multiple={}", source.of([2, 4])) } else { String::new() };
        Some(vec![format!("skew {} {} [{i}] -> [{shift}]{multiple}", self.block_name(block), self.name(inner))])
    }

    /// A block that iterates over digits of its loops, or over its loops exchanged.
    pub fn transform_block_layout(&self, source: &mut Source) -> Steps {
        let block = self.block_where(source, |b| b.predicate.is_true())?;
        let loops = self.own_loops(block);
        let mut loops: Vec<&For> = loops.into_iter().filter(|l| l.1 == IterKind::Spatial).map(|l| l.0).collect();
        source.shuffle(&mut loops);
        loops.truncate(1 + source.below(2));
        let names: Vec<&str> = loops.iter().map(|l| self.name(l)).collect();
        let mut outputs = Vec::new();
        for l in &loops {
            let (name, extent) = (self.name(l), extent(l));
            let divisors: Vec<i64> = (2..=8).filter(|d| extent % d == 0).collect();
            match source.pick(&divisors).filter(|_| source.chance(70)) {
                Some(d) => outputs.extend([format!("{name} // {d}"), format!("{name} % {d}")]),
                None => outputs.push(name.to_string()),
            }
        }
        source.shuffle(&mut outputs);
        let map = format!("[{}] -> [{}]", names.join(", "), outputs.join(", "));
        (!names.is_empty()).then(|| vec![format!("transform_block_layout {} {map}", self.block_name(block))])
    }

    /// A stage in shared memory that warps of its own fill.
    pub fn specialize(&self, source: &mut Source) -> Steps {
        let shared = |b: &Block| {
            let written = visit::writes(&b.body);
            b.role.is_none() && written.iter().any(|id| self.func.buffer(*id).scope == Scope::Shared)
        };
        let block = self.block_where(source, shared)?;
        Some(vec![format!("specialize {} warps={}", self.block_name(block), source.of([1, 1, 2, 4]))])
    }

    /// A product of threads on tensor cores, with an instruction that may fit.
    pub fn tensor_core(&self, source: &mut Source) -> Steps {
        let sums = |l: &For| is_plain(l) && sums_over(l).is_some();
        if source.chance(20) {
            return Some(vec![format!("tensor_core {} = none", self.name(self.loop_where(source, sums)?))]);
        }
        let local = |b: &Block| {
            let touched = [visit::reads(&b.body), visit::writes(&b.body)].concat();
            b.init.is_some() && touched.iter().all(|id| self.func.buffer(*id).scope == Scope::Local)
        };
        let kept = |l: &For| holds_one_block(l) && visit::blocks(&l.body).iter().all(|b| local(b));
        let l = self.loop_where(source, |l| sums(l) && kept(l))?;
        let rows: Vec<&str> = warploom::intrin::all().iter().map(|r| r.name.as_str()).collect();
        Some(vec![format!("tensor_core {} = {}", self.name(l), source.pick(&rows)?)])
    }
}
