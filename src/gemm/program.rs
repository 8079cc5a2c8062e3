//! The product of a program as recipes see it: one block that sums products of two operands, and elementwise blocks around it.
//!
//! Recipes write steps for [`te::gemm`]'s program: block `mma` sums over A and B into `acc`, and block `out` writes C. Here a program is
//! brought to that form. Elementwise blocks between the accumulators and an output are inlined into the block that writes the output,
//! which replaces `out`. Blocks that do not fit in there, and those that compute an operand, get kernels of their own. `adapt` then
//! writes a recipe's steps in the names of the program.

use super::Gemm;
use super::operand::up;
use crate::error::{Code, Error, Result};
use crate::ir::reduction::{Combiner, Reduction};
use crate::ir::{
    Axis, BinOp, Block, Buffer, BufferId, Cond, Expr, For, Func, Index, IterKind, LoopKind, Stmt, Var, visit,
};
use crate::schedule::{self, Step, Steps};
use crate::te::{self, GemmSpec, Known, Layout, SCALE_BLOCK};

/// Threads of a block of a kernel for an elementwise block alone.
const THREADS: i64 = 256;

/// A program with one product.
#[derive(Debug, Clone)]
pub(super) struct Product {
    /// What to schedule.
    pub program: Func,
    /// The product as recipes take it.
    pub spec: GemmSpec,
    /// Where the program is not [`te::gemm`]'s: what else it has.
    pub form: Option<Form>,
}

/// A program that is brought to the form of [`te::gemm`]'s.
#[derive(Debug, Clone)]
pub(super) struct Form {
    /// The steps that bring it there.
    pub before: Vec<Step>,
    /// The program after these steps.
    pub func: Func,
    /// The block that sums.
    pub sums: Place,
    /// Its operands, by the names of their buffers.
    pub operands: [String; 2],
    /// The scales of blocks, if there are any.
    pub scales: Option<[String; 2]>,
    /// The blocks that read the accumulators and write outputs; none where the accumulators are the output.
    pub outputs: Vec<Place>,
}

/// A block with the buffer that it writes and the loops around it, the outermost first.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    pub block: String,
    pub buffer: String,
    pub loops: Vec<String>,
}

impl Place {
    fn of(func: &Func, block: &Block, buffer: BufferId, loops: &[&For]) -> Place {
        Place {
            block: func.block_name(block.name).to_string(),
            buffer: func.buffer(buffer).name.clone(),
            loops: loops.iter().map(|l| func.var_name(l.var).to_string()).collect(),
        }
    }
}

impl Product {
    /// That of a GEMM.
    ///
    /// # Errors
    /// What [`Gemm::program`] refuses.
    pub fn of_gemm(gemm: &Gemm) -> Result<Product> {
        let program = gemm.program()?;
        match gemm.has_epilogue() {
            false => Ok(Product { program, spec: *gemm.spec(), form: None }),
            true => Product::of(&program),
        }
    }

    /// That of a program.
    ///
    /// # Errors
    /// `gemm.program` where the program has no product, several, or what no recipe schedules; `gemm.layout` where no layout of GEMMs
    /// describes how the product reads its operands or writes its result.
    pub fn of(program: &Func) -> Result<Product> {
        if let Some(Known::Gemm(spec)) = Known::of(program) {
            return Ok(Product { program: program.clone(), spec, form: None });
        }
        let sums = Sum::find(program)?;
        let spec = sums.spec(program)?;
        let form = Form::of(program, &sums)?;
        let spec = match form.outputs.first().and_then(|o| form.func.find_buffer(&o.buffer)) {
            None => spec,
            Some(out) => {
                let buffer = form.func.buffer(out);
                let [a, b, _] = spec.row_strides;
                GemmSpec { out: buffer.dtype, epilogue: true, ..spec.row_strides([a, b, row_stride(buffer)?]) }
            }
        };
        Ok(Product { program: program.clone(), spec, form: Some(form) })
    }
}

/// The block of a program that sums products.
struct Sum<'a> {
    block: &'a Block,
    loops: Vec<&'a For>,
    result: (BufferId, &'a [Index]),
    /// The two factors, in the order of the text.
    factors: [Read<'a>; 2],
    /// The scales of blocks: none, or two.
    scales: Vec<Read<'a>>,
}

/// An element that a term reads.
type Read<'a> = (BufferId, &'a [Index]);

impl<'a> Sum<'a> {
    fn find(func: &'a Func) -> Result<Sum<'a>> {
        let reductions: Vec<&Block> = visit::blocks(&func.body).into_iter().filter(|b| b.init.is_some()).collect();
        let block = match reductions[..] {
            [block] => block,
            [] => return Err(no_product(func, "no block is a sum over k of A[i, k]*B[k, j]".into())),
            [..] => {
                let names: Vec<&str> = reductions.iter().map(|b| func.block_name(b.name)).collect();
                let why = format!("blocks {} are reductions, and recipes schedule one product", names.join(", "));
                return Err(no_product(func, why).help("a program for each product, or steps of your own"));
            }
        };
        let name = func.block_name(block.name);
        let wrong = |why: &str| no_product(func, format!("block {name} {why}"));
        let loops = plain_nest(func, block).ok_or_else(|| {
            wrong("has loops that steps have changed").help("recommend before the steps that schedule the product")
        })?;
        let reduction = Reduction::of(func, block).filter(|r| r.neutral(block).is_some());
        let reduction = reduction.ok_or_else(|| wrong("is no sum that begins from zero"))?;
        let ([Combiner::Op(BinOp::Add)], [_]) = (&reduction.combiners[..], &reduction.terms[..]) else {
            return Err(wrong("is no sum of one term"));
        };
        let [Stmt::Store(store)] = &block.body[..] else { return Err(wrong("is no sum of one term")) };
        let acc = func.buffer(store.buffer).dtype;
        let read = term(store.buffer, &store.value).and_then(|term| factors(func, term, acc)).unwrap_or_default();
        // Scales are read at quotients of iterators, operands at iterators.
        let is_scale = |(_, at): &Read| read.len() == 4 && at.iter().any(|i| i.as_var().is_none());
        let (scales, operands): (Vec<Read>, Vec<Read>) = read.iter().partition(|read| is_scale(read));
        let factors = <[Read; 2]>::try_from(operands).ok();
        let factors = factors.ok_or_else(|| {
            let help = "compute each operand in a block of its own: W[i, k] f16 = f16(Q[i, k])*S[i]";
            wrong(&format!("does not sum products of two elements, as they are or converted to {acc}")).help(help)
        })?;
        if factors[0].0 == factors[1].0 {
            let buffer = &func.buffer(factors[0].0).name;
            let error = wrong(&format!("multiplies {buffer} by itself, and recipes stage two operands"));
            return Err(error.help(format!("a second input that the caller passes {buffer} for")));
        }
        Ok(Sum { block, loops, result: (store.buffer, &store.indices), factors, scales })
    }

    /// The product without what follows it: its C are the accumulators.
    fn spec(&self, func: &Func) -> Result<GemmSpec> {
        let [a, b] = self.operands(func)?;
        let dims = |which: &(BufferId, &[Index])| which.1.iter().map(Index::as_var).collect::<Option<Vec<Var>>>();
        let result = dims(&self.result).ok_or_else(|| self.unnamed(func, self.result.0))?;
        let (batch, [i, j]) = match result[..] {
            [i, j] => (None, [i, j]),
            [b, i, j] => (Some(b), [i, j]),
            _ => return Err(self.unnamed(func, self.result.0)),
        };
        let over: Vec<Var> =
            self.block.iters.iter().filter(|it| it.kind == IterKind::Reduce).map(|it| it.var).collect();
        let [k] = over[..] else {
            let count = over.len();
            let error = self.layout(func, format!("sums over {count} iterators, and recipes sum over one"));
            return Err(error.help("operands with one dimension of that length: A[i, k], B[k, j]"));
        };
        // Whether the last dimension is k.
        let along_k = |operand: &(BufferId, &[Index]), row: Var| {
            let read = dims(operand).unwrap_or_default();
            let lead: Vec<Var> = batch.into_iter().collect();
            match read.strip_prefix(&lead[..]) {
                Some([first, last]) if (*first, *last) == (row, k) => Ok(true),
                Some([first, last]) if (*first, *last) == (k, row) => Ok(false),
                _ => Err(self.unnamed(func, operand.0)),
            }
        };
        let layout = match (along_k(&a, i)?, along_k(&b, j)?) {
            (true, false) => Layout::NN,
            (true, true) => Layout::NT,
            (false, false) => Layout::TN,
            (false, true) => Layout::TT,
        };
        let extent = |var: Var| {
            let it = self.block.iters.iter().find(|it| it.var == var);
            it.and_then(|it| func.most(&it.extent)).ok_or_else(|| self.unnamed(func, self.result.0))
        };
        let batch = batch.map(extent).transpose()?;
        let buffers = [a.0, b.0, self.result.0].map(|id| func.buffer(id));
        let [a, b, acc] = buffers.map(|buffer| buffer.dtype);
        let [a_row, b_row, c_row] = buffers.map(row_stride);
        let spec = GemmSpec::of(extent(i)?, extent(j)?, extent(k)?, acc, layout).types(a, b, acc, acc);
        let rows = self.block.iters.iter().find(|it| it.var == i).and_then(|it| func.size_of(&it.extent));
        let size = rows.map(|size| &func.sizes[size].size);
        let spec = spec.least_m(size.map(|size| size.low)).m_by(size.map_or(1, |size| size.by));
        let spec = spec.block_scales(!self.scales.is_empty());
        Ok(spec.batch(batch).row_strides([a_row?, b_row?, c_row?]))
    }

    /// The scales of rows of A and of squares of B, if there are scales.
    fn scales(&self, func: &Func) -> Result<Option<[BufferId; 2]>> {
        let ([.., row, column], [x, y]) = (self.result.1, &self.scales[..]) else { return Ok(None) };
        let lead = &self.result.1[..self.result.1.len() - 2];
        let k = self.block.iters.iter().find(|it| it.kind == IterKind::Reduce).map(|it| Index::Var(it.var));
        let block = |index: &Index| index.clone().floordiv(SCALE_BLOCK);
        let k = block(&k.unwrap_or(Index::Int(0)));
        let at = |last: [Index; 2]| lead.iter().cloned().chain(last).collect::<Vec<_>>();
        let [of_a, of_b] = [at([k.clone(), row.clone()]), at([block(column), k])];
        match (x.1 == of_a && y.1 == of_b, x.1 == of_b && y.1 == of_a) {
            (true, _) => Ok(Some([x.0, y.0])),
            (_, true) => Ok(Some([y.0, x.0])),
            _ => {
                let error = self.layout(
                    func,
                    "scales terms otherwise than by a_scales[k // 128, i] and b_scales[j // 128, k // 128]".into(),
                );
                Err(error.help("the word `block_scales` of a builder line shows the form"))
            }
        }
    }

    /// The operand that gives the rows of the result, and the one that gives its columns.
    fn operands(&self, func: &Func) -> Result<[(BufferId, &'a [Index]); 2]> {
        let [.., row, column] = self.result.1 else {
            let error = self.layout(func, format!("writes {} with one index", func.buffer(self.result.0).name));
            return Err(error.help("a result of rows and columns, of which there may be one: y[i M, j 1]"));
        };
        let [x, y] = self.factors;
        let reads = |factor: (BufferId, &[Index]), index: &Index| factor.1.contains(index);
        match (reads(x, row) && reads(y, column), reads(y, row) && reads(x, column)) {
            (true, false) => Ok([x, y]),
            (false, true) => Ok([y, x]),
            _ => Err(self.unnamed(func, self.result.0)),
        }
    }

    fn layout(&self, func: &Func, why: String) -> Error {
        Error::input(Code::GemmLayout, format!("block {} {why}", func.block_name(self.block.name)))
    }

    /// A buffer whose dimensions are not those of a GEMM.
    fn unnamed(&self, func: &Func, buffer: BufferId) -> Error {
        let names = |indices: &[Index]| {
            let name = |i: &Index| match i.as_var() {
                Some(var) => func.var_name(var).strip_prefix('v').unwrap_or(func.var_name(var)).to_string(),
                None => crate::ir::print::index(func, i),
            };
            let all: Vec<String> = indices.iter().map(name).collect();
            all.join(", ")
        };
        let indices = [self.result].into_iter().chain(self.factors).find(|f| f.0 == buffer).map_or(&[][..], |f| f.1);
        let (name, [x, y]) = (&func.buffer(buffer).name, self.factors);
        let [x, y] = [x, y].map(|f| format!("{}[{}]", func.buffer(f.0).name, names(f.1)));
        let (at, result) = (names(indices), names(self.result.1));
        let written = &func.buffer(self.result.0).name;
        let why = format!(
            "has {written}[{result}] = sum of {x}*{y}: the dimensions of {name}[{at}] are not those of a GEMM, which reads A[i, k] or A[k, i] \
             and B[k, j] or B[j, k], and writes C[i, j], each with at most one dimension for a batch in front"
        );
        let error = self.layout(func, why);
        let error = error.help("declare the buffer with its dimensions in such an order, several dimensions as one");
        error.help("a block before the product that copies the operand into such an order")
    }
}

/// What a store adds to its element, either way round.
fn term(buffer: BufferId, value: &Expr) -> Option<&Expr> {
    let Expr::Bin(BinOp::Add, a, b) = value else { return None };
    let own = |e: &Expr| matches!(e, Expr::Load { buffer: from, .. } if *from == buffer);
    match (own(a), own(b)) {
        (true, false) => Some(&**b),
        (false, true) => Some(&**a),
        _ => None,
    }
}

/// The elements that a product reads, each as it is or converted to the type of the accumulators; of one factor none.
fn factors<'a>(func: &'a Func, value: &'a Expr, acc: crate::DType) -> Option<Vec<Read<'a>>> {
    match value {
        Expr::Bin(BinOp::Mul, a, b) => {
            let all = |e: &'a Expr| match e {
                Expr::Bin(BinOp::Mul, ..) => factors(func, e, acc),
                _ => Some(vec![factor(func, e, acc)?]),
            };
            Some([all(a)?, all(b)?].concat())
        }
        _ => None,
    }
}

/// The element that a factor is, as it is or converted to the type of the accumulators.
fn factor<'a>(func: &Func, value: &'a Expr, acc: crate::DType) -> Option<(BufferId, &'a [Index])> {
    let value = match value {
        Expr::Cast(to, inner) if *to == acc => inner,
        other => other,
    };
    match value {
        Expr::Load { buffer, indices, .. } if func.largest(func.buffer(*buffer)).const_shape().is_some() => {
            Some((*buffer, indices))
        }
        _ => None,
    }
}

/// The loops around a block, if each runs one of its iterators and holds nothing else, as `te` makes them.
fn plain_nest<'a>(func: &'a Func, block: &Block) -> Option<Vec<&'a For>> {
    let loops = visit::loops_around(&func.body, block.name)?;
    let plain = |l: &&For| {
        let placed = l.raster.is_some() || l.pipeline.is_some() || l.tensorize.is_some() || !l.notes.is_empty();
        l.kind == LoopKind::Serial && l.body.len() == 1 && l.extent.as_int().is_some() && !placed
    };
    let each = |(l, it): (&&For, &crate::ir::Iter)| it.binding.as_var() == Some(l.var);
    let ordered = loops.len() == block.iters.len() && loops.iter().zip(&block.iters).all(each);
    // Of a dynamic size the predicate says that the iterator stays below it.
    let is_domain =
        |part: &&Cond| block.iters.iter().any(|it| **part == Cond::lt(it.binding.clone(), it.extent.clone()));
    let domains = block.predicate.conjuncts().iter().all(|part| part.is_true() || is_domain(part));
    (ordered && loops.iter().all(plain) && domains).then_some(loops)
}

/// Elements from one row of a buffer to the next, if they are stated. Where its base address is aligned to less than 16 bytes, a number
/// that is aligned no better: recipes ask for the alignment of rows by it.
fn row_stride(buffer: &Buffer) -> Result<Option<i64>> {
    let aligned = |row: i64| row | (8 * i64::from(buffer.align) / i64::from(buffer.dtype.bits())).max(1);
    match buffer.strides.as_deref() {
        None if buffer.align < 16 => Ok(buffer.const_shape().and_then(|shape| shape.last().copied()).map(aligned)),
        None => Ok(None),
        Some([.., row, 1]) if buffer.align < 16 => Ok(Some(aligned(*row))),
        Some([.., row, 1]) => Ok(Some(*row)),
        Some(strides) => {
            let message =
                format!("{} has strides {strides:?}: the elements of a row are not next to each other", buffer.name);
            let error = Error::input(Code::GemmLayout, message);
            Err(error.help("declare the dimension of stride 1 as the last one, and exchange the indices"))
        }
    }
}

fn no_product(func: &Func, why: String) -> Error {
    Error::input(Code::GemmProgram, format!("program {}: {why}", func.name))
}

impl Form {
    fn of(program: &Func, sums: &Sum<'_>) -> Result<Form> {
        let operands = sums.operands(program)?.map(|(buffer, _)| program.buffer(buffer).name.clone());
        let place = Place::of(program, sums.block, sums.result.0, &sums.loops);
        let scales = sums.scales(program)?.map(|all| all.map(|buffer| program.buffer(buffer).name.clone()));
        let (before, func, outputs) = (Vec::new(), program.clone(), Vec::new());
        let whole = Form { before, func, sums: place, operands, scales, outputs };
        let inlined = whole.clone().inlined();
        // Outputs that the accumulators cannot be converted to on their way get kernels of their own, and with them all others.
        let (mut form, outputs) = match inlined.outputs() {
            Some(outputs) => (inlined, outputs),
            None => (whole, Vec::new()),
        };
        form.outputs = outputs;
        form.with_kernels()
    }

    /// The program with its elementwise blocks inlined where they are read, as far as they can be.
    fn inlined(mut self) -> Form {
        let blocks: Vec<String> = self.others().map(|b| self.func.block_name(b.name).to_string()).collect();
        for block in blocks {
            let mut steps = Steps::new();
            steps.compute_inline(&block);
            let Some(step) = steps.finish().ok().and_then(|steps| steps.into_iter().next()) else { continue };
            let operand = |b: &Block| visit::writes(&b.body).iter().any(|id| self.is_operand(*id));
            if self.func.find_block(&block).is_none_or(operand) {
                continue;
            }
            if let Ok(func) = schedule::apply(&self.func, &step) {
                self.func = func;
                self.before.push(step);
            }
        }
        self
    }

    fn is_operand(&self, buffer: BufferId) -> bool {
        let name = &self.func.buffer(buffer).name;
        self.operands.iter().chain(self.scales.iter().flatten()).any(|own| own == name)
    }

    /// The blocks that are not the product's.
    fn others(&self) -> impl Iterator<Item = &Block> {
        let own = |b: &&Block| self.func.block_name(b.name) != self.sums.block;
        visit::blocks(&self.func.body).into_iter().filter(own)
    }

    /// The blocks that convert the accumulators to outputs, element by element; `None` where a block reads the accumulators otherwise.
    fn outputs(&self) -> Option<Vec<Place>> {
        let acc = self.func.find_buffer(&self.sums.buffer)?;
        let mut outputs = Vec::new();
        for block in self.others() {
            if !visit::reads(&block.body).contains(&acc) {
                continue;
            }
            let place = self.converts(block, acc)?;
            // What another block has written of an output is in registers of other threads.
            let writes = |id: &BufferId| outputs.iter().any(|o: &Place| o.buffer == self.func.buffer(*id).name);
            if visit::reads(&block.body).iter().any(writes) {
                return None;
            }
            outputs.push(place);
        }
        let own = self.func.params.contains(&acc);
        (!own || outputs.is_empty()).then_some(outputs)
    }

    /// A block that writes an output at the element of the accumulators that it reads.
    fn converts(&self, block: &Block, acc: BufferId) -> Option<Place> {
        let loops = plain_nest(&self.func, block)?;
        let [Stmt::Store(store)] = &block.body[..] else { return None };
        let iterators: Vec<Index> = block.iters.iter().map(|it| Index::Var(it.var)).collect();
        let mut plain = block.init.is_none() && store.indices == iterators && self.func.params.contains(&store.buffer);
        visit::walk_expr(&store.value, &mut |e| {
            plain &= !matches!(e, Expr::Load { buffer, indices, .. } if *buffer == acc && *indices != iterators)
        });
        let same = self.func.buffer(store.buffer).shape == self.func.buffer(acc).shape;
        (plain && same).then(|| Place::of(&self.func, block, store.buffer, &loops))
    }

    /// Kernels for the blocks that are neither the product's nor outputs: a thread for each element.
    fn with_kernels(mut self) -> Result<Form> {
        let rest = |b: &&Block| self.outputs.iter().all(|o| o.block != self.func.block_name(b.name));
        let mut steps = Steps::new();
        for block in self.others().filter(rest) {
            let name = self.func.block_name(block.name);
            let loops = plain_nest(&self.func, block).ok_or_else(|| {
                no_product(&self.func, format!("block {name} beside the product has loops that steps have changed"))
            })?;
            let extents: Option<Vec<i64>> = loops.iter().map(|l| l.extent.as_int()).collect();
            let elements = extents.unwrap_or_default().into_iter().fold(1, i64::saturating_mul);
            let loops: Vec<&str> = loops.iter().map(|l| self.func.var_name(l.var)).collect();
            let [all, blocks, threads] =
                ["all", "blocks", "threads"].map(|end| self.func.unused_loop_name(&format!("{name}_{end}")));
            let whole = match loops[..] {
                [] => {
                    let error = no_product(&self.func, format!("block {name} beside the product computes one number"));
                    return Err(error.help("a program of its own"));
                }
                [one] => one,
                [..] => {
                    steps.fuse(&loops, &all);
                    &all
                }
            };
            steps.split(whole, [THREADS.min(elements)], [&blocks, &threads]);
            steps.bind(&blocks, Axis::BlockX).bind(&threads, Axis::ThreadX);
            if up(elements, THREADS) > super::grid::MOST_BLOCKS {
                return Err(no_product(&self.func, format!("block {name} has {elements} elements")));
            }
        }
        let steps = steps.finish()?;
        self.func = schedule::apply_all(&self.func, &steps)?;
        self.before.extend(steps);
        Ok(self)
    }
}

impl Product {
    /// The program that recipes write their steps for.
    ///
    /// # Errors
    /// As [`te::gemm`].
    pub fn canonical(&self) -> Result<Func> {
        te::gemm(&self.spec)
    }
}
