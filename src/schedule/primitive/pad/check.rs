//! What `pad` and `skew` find out before they rewrite: which iterators grow, which buffers they index, and that every
//! requirement holds that both have, under the same numbers.

use super::grow;
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::ir::print::Node;
use crate::ir::reduction;
use crate::ir::region::{self, Range, Touch};
use crate::ir::simplify::Env;
use crate::ir::{
    BinOp, Block, BufferId, Cond, Expr, For, Func, Index, Iter, IterKind, LoopKind, Stmt, Store, Var, verify, visit,
};
use crate::schedule::analyze;
use crate::schedule::refusal::Refusal;
use crate::schedule::{constant, dataflow, find, limits};

/// An iterator that grows.
#[derive(Debug, Clone, Copy)]
pub struct Grown {
    pub kind: IterKind,
    pub run_by: Var,
    pub iter: Var,
    /// Its extent; the largest, where that is a dynamic size.
    pub from: i64,
    pub to: i64,
    /// The number of the dynamic size that its extent is.
    pub dynamic: Option<usize>,
}

impl Grown {
    /// Where its domain ends.
    pub fn end(&self, func: &Func) -> Index {
        self.dynamic.map_or(Index::Int(self.from), |size| func.sizes[size].value())
    }

    /// What a dynamic size demands of the block: that the iterator stays below it.
    pub fn below(&self, func: &Func) -> Option<Cond> {
        self.dynamic.map(|_| Cond::lt(self.run_by, self.end(func)))
    }
}

/// A buffer as BLOCK accesses it at one vector of indices.
#[derive(Debug)]
pub struct Access {
    pub buffer: BufferId,
    pub at: Vec<Index>,
    pub dims: Vec<Dim>,
}

/// A dimension of an access: what is touched of it in the grown domain, what of that is read, and which of the iterators that
/// grow indexes it.
#[derive(Debug)]
pub struct Dim {
    pub range: Range,
    pub read: Range,
    pub grown: Option<Grown>,
}

/// What the check finds out.
pub struct Plan {
    pub grown: Vec<Grown>,
    pub reads: Vec<Access>,
    /// Where a spatial iterator grows.
    pub output: Option<Access>,
    pub combination: Option<Combination>,
    pub root: usize,
}

/// The operation of a reduction, and the constant that its init stores.
#[derive(Debug, Clone)]
pub struct Combination {
    pub op: BinOp,
    pub dtype: DType,
    pub neutral: Expr,
}

impl Combination {
    /// What is beyond the end of an operand; `None` for a minimum or maximum of another type.
    pub fn fill(&self, operand: DType) -> Option<Expr> {
        match self.op {
            BinOp::Add => Some(Expr::constant(operand, 0.0)),
            BinOp::Mul => Some(Expr::constant(operand, 1.0)),
            _ => (operand == self.dtype).then(|| self.neutral.clone()),
        }
    }
}

/// The block, and how a requirement is refused.
pub struct Check<'a> {
    pub refusal: Refusal<'a>,
    pub func: &'a Func,
    pub block: &'a Block,
    /// By how many iterations the loops grow before they grow to multiples; terms may shift by as many.
    pub more: i64,
}

impl Check<'_> {
    /// Everything.
    pub fn all(&self, multiples: &[(String, i64)]) -> Result<Plan> {
        let names: Vec<String> = multiples.iter().map(|(name, _)| name.clone()).collect();
        let loops = find::loops(self.func, &names)?;
        let around = self.around()?;
        let grown: Vec<Grown> =
            loops.iter().zip(multiples).map(|(l, (_, m))| self.grown(&around, l, *m)).collect::<Result<_>>()?;
        self.predicate(&grown)?;
        let (output, combination) = self.nature()?;
        let reads = self.reads(&grown, output)?;
        let crop = self.output(&grown, output)?;
        self.terms(&grown, combination.as_ref())?;
        let root = self.root(&reads, crop.as_ref())?;
        Ok(Plan { grown, reads, output: crop, combination, root })
    }

    /// The rewritten program; refuses one in which BLOCK indexes a buffer out of bounds: requirement 4.
    pub fn in_bounds(&self, made: Func) -> Result<Func> {
        match verify::well_formed(&made) {
            Err(e) if e.code() == Code::VerifyBounds => {
                Err(self.no(4, format!("in the added iterations of {}, {}", self.name(), e.message())))
            }
            _ => Ok(made),
        }
    }

    fn no(&self, number: usize, message: String) -> Error {
        self.refusal.broken(number, message, &[(Node::Block(self.block.name), "this block")])
    }

    fn name(&self) -> &str {
        self.func.block_name(self.block.name)
    }

    /// What to try where another step came too early.
    fn early(&self, than: &str) -> String {
        format!("{} before {than}", self.refusal.primitive())
    }

    /// What is not done to the block.
    fn done(&self) -> &'static str {
        if self.refusal.primitive() == "pad" { "padded" } else { "skewed" }
    }

    /// Requirement 7; the loops around.
    fn around(&self) -> Result<Vec<&For>> {
        let name = self.name();
        if dataflow::spot_of_block(self.func, self.block.name).is_none() {
            return Err(self.no(7, format!("{name} is inside a conditional")));
        }
        let around = find::around(&self.func.body, self.block.name)?;
        match around.iter().find(|l| l.tensorize.is_some()) {
            Some(l) => Err(self.no(7, format!("{name} is in the tensorized nest {}", self.func.var_name(l.var)))),
            None => Ok(around),
        }
    }

    /// Requirements 1 and 2.
    fn grown(&self, around: &[&For], l: &For, multiple: i64) -> Result<Grown> {
        let (name, block) = (self.func.var_name(l.var), self.name());
        let no = |number, message: String| {
            self.refusal.broken(
                number,
                message,
                &[(Node::Loop(l.var), "this loop"), (Node::Block(self.block.name), "this block")],
            )
        };
        if multiple < 1 {
            return Err(no(1, format!("the multiple {multiple} of loop `{name}` is not positive")));
        }
        if let Some(what) = analyze::placement(l) {
            return Err(no(2, format!("loop `{name}` {what}")).help(self.early("placing")));
        }
        let Some(from) = l.extent.as_int() else {
            return Err(no(2, format!("the extent of loop `{name}` is not a constant")));
        };
        let inside = around.iter().skip_while(|a| a.var != l.var);
        if inside.clone().next().is_none() || inside.clone().any(|l| l.body.len() != 1) {
            return Err(no(2, format!("loop `{name}` does not hold {block} alone")));
        }
        let Some(it) = self.run_by(l, from) else {
            let error = no(2, format!("loop `{name}` does not run one whole iterator of {block} by itself"));
            return Err(error.help(self.early("splitting, fusing and moving")));
        };
        let pieces = |n: i64| n / multiple + i64::from(n % multiple != 0);
        let to = from.checked_add(self.more).and_then(|n| pieces(n).max(1).checked_mul(multiple));
        let Some(to) = to.filter(|to| *to <= limits::NUMBER) else {
            return Err(no(1, format!("loop `{name}` would grow beyond {}", limits::NUMBER)));
        };
        Ok(Grown { kind: it.kind, run_by: l.var, iter: it.var, from, to, dynamic: self.func.size_of(&it.extent) })
    }

    /// Requirement 2 of the predicate: it says no more than that iterators of dynamic size that grow stay below it.
    fn predicate(&self, grown: &[Grown]) -> Result<()> {
        let domains: Vec<Cond> = grown.iter().filter_map(|g| g.below(self.func)).collect();
        match self.block.predicate.conjuncts().into_iter().find(|part| !part.is_true() && !domains.contains(part)) {
            None => Ok(()),
            Some(_) => {
                let message = format!("{} has a predicate", self.name());
                Err(self.no(2, message).help(self.early("splitting")))
            }
        }
    }

    /// The iterator that is the loop's variable, which no other mentions.
    fn run_by(&self, l: &For, extent: i64) -> Option<&Iter> {
        let mut mentioning = self.block.iters.iter().filter(|i| i.binding.mentions(l.var));
        let it = mentioning.next()?;
        let alone = mentioning.next().is_none() && l.kind == LoopKind::Serial;
        (alone && it.binding.as_var() == Some(l.var) && self.func.most(&it.extent) == Some(extent)).then_some(it)
    }

    /// Requirement 3; where BLOCK writes, and how it combines.
    fn nature(&self) -> Result<(&Store, Option<Combination>)> {
        let name = self.name();
        let nature = dataflow::nature(self.block)
            .map_err(|why| self.no(3, format!("{name} cannot be {}: {why}", self.done())))?;
        let output = nature.output().map_err(|why| self.no(3, format!("{name} cannot be {}: {why}", self.done())))?;
        if let Some(w) = dataflow::writers(self.func, output).into_iter().find(|w| w.name != self.block.name) {
            let message = format!("{} also writes what {name} writes", self.func.block_name(w.name));
            return Err(self.no(3, message).help(self.early("decompose_reduction")));
        }
        let [Stmt::Store(store)] = self.block.body.as_slice() else { return Err(self.refusal.lost("the store")) };
        let Some(init) = &self.block.init else { return Ok((store, None)) };
        let known = |op| matches!(op, BinOp::Add | BinOp::Mul | BinOp::Min | BinOp::Max);
        let Some((_, op, _)) = analyze::update(self.block).filter(|(_, op, _)| known(*op)) else {
            let message = format!("{name} is no sum, product, minimum or maximum of its output and another value");
            return Err(self.no(3, message));
        };
        match init.as_slice() {
            [Stmt::Store(i)] if reduction::neutral(op, &i.value) => {
                let dtype = self.func.buffer(output).dtype;
                Ok((store, Some(Combination { op, dtype, neutral: i.value.clone() })))
            }
            _ => Err(self.no(3, format!("the init of {name} is not the neutral constant of its operation"))),
        }
    }

    /// The operands that an iterator that grows indexes: requirement 4.
    fn reads(&self, grown: &[Grown], output: &Store) -> Result<Vec<Access>> {
        let mut out: Vec<Access> = Vec::new();
        if dataflow::gathers(self.block) {
            let message =
                format!("{} reads at an index that is a datum, of which added iterations have none", self.name());
            return Err(self.no(4, message));
        }
        for buffer in dataflow::block_reads(self.block).into_iter().filter(|b| *b != output.buffer) {
            for at in dataflow::reads_at(self.block, buffer) {
                let access = self.access(grown, buffer, at, "reads")?;
                let fresh = out.iter().all(|a| a.buffer != buffer || a.at != access.at);
                // The added iterations may read elements of a computed buffer that no statement writes.
                let computed = !dataflow::writers(self.func, buffer).is_empty();
                if fresh && access.dims.iter().any(|d| d.grown.is_some() || computed && d.read != d.range) {
                    out.push(access);
                }
            }
        }
        // In the order of the text, as far as one value has one.
        let mut order: Vec<BufferId> = visit::reads(&self.block.body);
        order.dedup();
        out.sort_by_key(|a| order.iter().position(|b| *b == a.buffer));
        Ok(out)
    }

    /// The output where a spatial iterator grows: requirement 4.
    fn output(&self, grown: &[Grown], store: &Store) -> Result<Option<Access>> {
        let spatial: Vec<&Grown> = grown.iter().filter(|g| g.kind == IterKind::Spatial).collect();
        if spatial.is_empty() {
            return Ok(None);
        }
        let access = self.access(grown, store.buffer, store.indices.clone(), "writes")?;
        let occurs = |g: &&&Grown| !store.indices.iter().any(|i| i.as_var() == Some(g.iter));
        match spatial.iter().find(occurs) {
            Some(g) => {
                let (name, var) = (self.name(), self.func.var_name(g.iter));
                Err(self.no(4, format!("{name} writes the same element for every value of `{var}`")))
            }
            None => Ok(Some(access)),
        }
    }

    fn access(&self, grown: &[Grown], buffer: BufferId, at: Vec<Index>, does: &str) -> Result<Access> {
        let touch = if does == "reads" { Touch::Reads } else { Touch::Writes };
        let mut body = dataflow::only(&self.func.body, &|b| b.name == self.block.name);
        let seen = |body: &[Stmt]| {
            let found = region::reached(self.func, body, buffer, touch, &Env::new());
            // An index over a grown iterator may be negative; the stage has elements for it.
            let reads =
                |(r, i): (&Range, &Index)| grown.iter().any(|g| i.mentions(g.iter)) || r.extent.as_int() != Some(0);
            let read = found.filter(|found| found.iter().zip(&at).all(reads));
            read.unwrap_or_else(|| vec![Range { min: 0.into(), extent: 0.into() }; at.len()])
        };
        let (touched, mut dims) = (seen(&body), Vec::with_capacity(at.len()));
        // Where a select compares iterators, one that grows lets others reach further, behind its old domain and before it.
        let further: Vec<Grown> = grown.iter().map(|g| Grown { to: g.to.saturating_add(self.more), ..*g }).collect();
        grow(&mut body, &further);
        visit::change_block(&mut body, self.block.name, &mut |b| {
            for it in b.iters.iter_mut().filter(|it| grown.iter().any(|g| g.iter == it.var)) {
                it.binding = it.binding.clone() - self.more;
            }
        });
        let reached = seen(&body);
        for (index, (touched, reached)) in at.iter().zip(touched.into_iter().zip(reached)) {
            let grown = grown.iter().find(|g| index.mentions(g.iter));
            // Added iterations may read at a quotient what the others read. (Those of a skewed loop would read it shifted.)
            let reads_same = self.refusal.primitive() == "pad" && touch == Touch::Reads && touched == reached;
            let grown = grown.filter(|g| index.as_var() == Some(g.iter) || !reads_same);
            // Whatever an operand holds where a spatial iterator grows, the end of the result is cut off.
            let goes_on = |g: &Grown| dataflow::written_to(self.func, buffer, dims.len()) >= Some(g.to);
            let ends = grown.is_some_and(|g| g.kind == IterKind::Reduce || !goes_on(g));
            let (range, read) = match (ends || touch == Touch::Writes, grown) {
                (true, Some(g)) if g.dynamic.is_some() => (touched, Range { min: 0.into(), extent: g.end(self.func) }),
                (true, Some(g)) => (touched.clone(), up_to(touched, g.from)),
                (true, None) => (touched.clone(), touched),
                (false, Some(_)) => (reached.clone(), reached),
                (false, None) => (reached, touched),
            };
            if let Some(g) = grown.filter(|g| index.as_var() != Some(g.iter)) {
                let (name, var, buffer) = (self.name(), self.func.var_name(g.iter), &self.func.buffer(buffer).name);
                return Err(
                    self.no(4, format!("{name} {does} {buffer} at an expression of `{var}`, not at `{var}` itself"))
                );
            }
            dims.push(Dim { range, read, grown: grown.copied() });
        }
        // An operand that no iteration reads has an empty range. Its stage has one element, which holds the fill value.
        if dims.iter().any(|d| d.grown.is_some() || d.read != d.range) {
            for range in dims.iter_mut().map(|d| &mut d.range).filter(|r| r.extent.as_int() == Some(0)) {
                *range = Range { min: 0.into(), extent: 1.into() };
            }
        }
        Ok(Access { buffer, at, dims })
    }

    /// Requirement 5.
    fn terms(&self, grown: &[Grown], combination: Option<&Combination>) -> Result<()> {
        let (Some(c), Some((_, _, term))) = (combination, analyze::update(self.block)) else { return Ok(()) };
        let number = |e: &Expr| if let Expr::Const(_, literal) = e { constant::number(*literal) } else { None };
        for g in grown.iter().filter(|g| g.kind == IterKind::Reduce && g.to > g.from) {
            let fill = |buffer: BufferId, at: &[Index]| {
                let beyond = at.iter().any(|i| i.as_var() == Some(g.iter));
                c.fill(self.func.buffer(buffer).dtype).filter(|_| beyond).as_ref().and_then(number)
            };
            let value = constant::value(self.func, term, &fill);
            if value.is_none() || value != c.fill(c.dtype).as_ref().and_then(number) {
                let (name, var) = (self.name(), self.func.var_name(g.run_by));
                let message = format!("beyond the end of `{var}` the term of {name} is not its neutral element");
                return Err(self.no(5, message).help(
                    "use a sum of products in which every operand ends there, or a minimum or maximum of what is read",
                ));
            }
        }
        Ok(())
    }

    /// Requirement 6; the position of the nest in the root.
    fn root(&self, reads: &[Access], output: Option<&Access>) -> Result<usize> {
        let name = self.name();
        let holds = |s: &Stmt| visit::blocks(std::slice::from_ref(s)).iter().any(|b| b.name == self.block.name);
        let root = self.func.body.iter().position(holds).unwrap_or_default();
        let late = visit::blocks(self.func.body.get(root..).unwrap_or_default());
        let writes = |w: &&Block| {
            w.name != self.block.name && reads.iter().any(|r| dataflow::block_writes(w).contains(&r.buffer))
        };
        if let Some(w) = late.into_iter().find(writes) {
            let message = format!("{} writes what {name} reads, not before its nest", self.func.block_name(w.name));
            return Err(self.no(6, message));
        }
        let early = visit::blocks(self.func.body.get(..=root).unwrap_or_default());
        let takes = |r: &&Block| {
            r.name != self.block.name && output.is_some_and(|o| dataflow::block_reads(r).contains(&o.buffer))
        };
        if let Some(r) = early.into_iter().find(takes) {
            let message = format!("{} reads what {name} writes, not after its nest", self.func.block_name(r.name));
            return Err(self.no(6, message));
        }
        for access in reads.iter().chain(output) {
            for w in dataflow::writers(self.func, access.buffer) {
                let around = find::around(&self.func.body, w.name)?;
                if !dataflow::is_dense(w, access.buffer, &around) {
                    let (w, buffer) = (self.func.block_name(w.name), &self.func.buffer(access.buffer).name);
                    return Err(self.no(6, format!("{w} does not write a box without holes of {buffer}")));
                }
            }
        }
        Ok(root)
    }
}

/// The part of a range in 0..`end`. The range covers all reads of a buffer, also those by other indices.
fn up_to(range: Range, end: i64) -> Range {
    let ends = range.min.as_int().zip(range.extent.as_int()).and_then(|(min, n)| Some((min, min.checked_add(n)?)));
    let (min, last) = ends.map_or((0, end), |(min, last)| (min.clamp(0, end), last.clamp(0, end)));
    Range { min: Index::Int(min), extent: Index::Int((last - min).max(0)) }
}
