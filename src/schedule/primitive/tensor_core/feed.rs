//! The instructions around a product of fragments: loads of its factors, and stores of its sum.
//!
//! Lanes can fetch and store elements one by one where it is known which lane holds which. Of opaque fragments it is not:
//! there each factor is filled by a load that names its kind, and what reads the sum is a store.

use super::{Product, holds};
use crate::intrin::{self, Place, Played, Row, Way};
use crate::ir::simplify::Env;
use crate::ir::{Block, BufferId, Func, Scope, Stmt, Store, region, visit};
use crate::schedule::dataflow;
use crate::schedule::regroup::Whole;

/// Whether no thread can tell which elements of an operand it holds.
pub(super) fn is_opaque(row: &Row, number: usize) -> bool {
    matches!(row.operands[number].place, Place::Opaque(_))
}

impl Product {
    /// Whether loads bring opaque factors in the majors that memory has them in.
    pub(super) fn is_fed(&self, row: &Row, turned: bool) -> bool {
        let [_, x, y] = self.buffers;
        let factors = if turned { [y, x] } else { [x, y] };
        factors.into_iter().zip(1..).all(|(factor, number)| {
            let dtype = self.program.func.buffer(factor).dtype;
            let loads = |other| !intrin::copies(row, number, dtype, other, Way::Load).is_empty();
            !is_opaque(row, number) || self.lies_turned(factor, number, row).is_some_and(loads)
        })
    }

    /// Cuts the nest that fills a factor, the instruction's operand `number`, into the widest matrices that a load brings
    /// where the instruction wants them.
    ///
    /// # Errors
    /// In words why there is no load for an opaque factor.
    pub(super) fn load(&mut self, row: &Row, number: usize, factor: BufferId) -> Result<(), String> {
        let func = &self.program.func;
        let fills = |b: &Block| dataflow::block_writes(b).contains(&factor);
        let nest = self.program.nests.iter().find(|n| block(func, n).is_some_and(fills)).cloned();
        let turned = self.lies_turned(factor, number, row);
        let found = nest.zip(turned).ok_or_else(|| "is not filled by a nest of its own".to_string());
        let found = found.and_then(|(nest, turned)| self.copy(&nest, row, (number, factor), turned, Way::Load));
        let name = &self.program.func.buffer(factor).name;
        if is_opaque(row, number) {
            found.map_err(|why| format!("finds no load for `{name}`: it {why}"))
        } else {
            Ok(())
        }
    }

    /// Makes stores of the nests that read an opaque sum.
    ///
    /// # Errors
    /// In words why one of them is none.
    pub(super) fn store(&mut self, row: &Row, turned: bool) -> Result<(), String> {
        let sum = self.buffers[0];
        for nest in self.program.nests.clone() {
            let Some(block) = block(&self.program.func, &nest) else { continue };
            if block.name == self.block || !dataflow::block_reads(block).contains(&sum) {
                continue;
            }
            let label = self.program.func.block_name(nest.block).to_string();
            self.copy(&nest, row, (0, sum), turned, Way::Store)
                .map_err(|why| format!("finds no store for the accumulator in block `{label}`: it {why}"))?;
        }
        Ok(())
    }

    /// Makes a nest tiles of a copy between memory and an operand.
    fn copy(
        &mut self,
        nest: &Whole,
        row: &Row,
        (number, held): (usize, BufferId),
        turned: bool,
        way: Way,
    ) -> Result<(), String> {
        let dtype = self.program.func.buffer(held).dtype;
        let mut reason = "is in another major".to_string();
        for copy in intrin::copies(row, number, dtype, turned, way) {
            let before = self.program.clone();
            match self.cut_into(nest, copy, way) {
                Ok(()) => return Ok(()),
                Err(why) => (self.program, reason) = (before, why),
            }
        }
        Err(reason)
    }

    fn cut_into(&mut self, nest: &Whole, copy: &'static Row, way: Way) -> Result<(), String> {
        let sizes: Vec<i64> = copy.dims.iter().map(|d| d.1).collect();
        if nest.loops.len() != sizes.len() || nest.loops.iter().zip(&sizes).any(|(l, s)| l.1 % s != 0) {
            return Err(format!("is not made of tiles of {}", copy.name));
        }
        let vars = self.program.cut(nest, &sizes, &[0, 1]);
        self.tensorize(copy, vars);
        let func = &self.program.func;
        let l = visit::loops(&func.body).into_iter().find(|l| holds(l, nest.block) && l.tensorize.is_some());
        let placed = l.and_then(|l| Some((l, block(func, nest)?, &l.tensorize.as_ref()?.dims)));
        let (l, block, dims) = placed.ok_or_else(|| "is lost".to_string())?;
        let matched = intrin::matches(func, l, copy, dims).map_err(|e| e.message().to_string())?;
        matched.map_err(|mismatch| format!("is not {}: {}", copy.name, mismatch.message()))?;
        let env = Env::with_loops(visit::loops(&func.body));
        let played = statement(block).and_then(|store| intrin::play(&store, copy, dims, &env).ok().flatten());
        let memory = usize::from(way == Way::Load);
        let there = played.iter().flatten().find(|p| p.operand == memory);
        reaches(func, copy, there.ok_or_else(|| format!("is not {}", copy.name))?, &env)
    }

    /// Whether the factor's buffer has its terms first, where the instruction has them last.
    fn lies_turned(&self, factor: BufferId, number: usize, row: &Row) -> Option<bool> {
        let func = &self.program.func;
        let block = visit::blocks(&func.body).into_iter().find(|b| b.name == self.block)?;
        let at = dataflow::reads_at(block, factor);
        let terms = block.iters[self.iters[2]].var;
        let position = at.first()?.iter().position(|i| i.as_var() == Some(terms))?;
        let shape = row.program().ok()?;
        let own = shape.find_buffer(row.operands[number].name).map(|b| shape.buffer(b).shape.len())?;
        (own == 2).then_some(position == 0)
    }
}

/// Whether a copy can address its tile in memory, as it will are there.
fn reaches(func: &Func, copy: &Row, played: &Played, env: &Env) -> Result<(), String> {
    let (operand, mut buffer) = (&copy.operands[played.operand], func.buffer(played.buffer).clone());
    if !operand.scopes().contains(&buffer.scope) {
        return Err(format!(
            "accesses {}, a {} buffer, where {} takes none",
            buffer.name,
            buffer.scope.name(),
            copy.name
        ));
    }
    let Place::Rows(rows) = operand.place else { return Ok(()) };
    let mut base = played.base.clone();
    let small =
        if buffer.scope == Scope::Global { None } else { region::in_use(func, played.buffer, &[], &Env::new()) };
    for (dim, range) in small.into_iter().flatten().enumerate() {
        base[dim] = base[dim].clone() - range.min;
        buffer.shape[dim] = range.extent;
    }
    rows.stride(&buffer, &played.along, &base, env)
        .map(|_| ())
        .map_err(|why| format!("does not suit {}: {}", copy.name, why.message(func, &buffer, rows)))
}

/// A nest's block.
fn block<'a>(func: &'a Func, nest: &Whole) -> Option<&'a Block> {
    visit::blocks(&func.body).into_iter().find(|b| b.name == nest.block)
}

/// The one store of a block, over loops.
fn statement(block: &Block) -> Option<Store> {
    let bindings: visit::Map = block.iters.iter().map(|i| (i.var, i.binding.clone())).collect();
    match visit::subst_body(block.body.clone(), &bindings).as_slice() {
        [Stmt::Store(store)] => Some(store.clone()),
        _ => None,
    }
}
