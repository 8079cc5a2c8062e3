//! [`Program`]: inputs, then blocks that each compute one buffer. Every way to make a Tensor program ends here.

use super::dynamic::Stated;
use crate::dtype::DType;
use crate::error::{Code, Error, Result, counted};
use crate::ir::{
    BinOp, Block, Buffer, BufferId, Cond, Expr, For, Func, Index, Iter, IterKind, LoopKind, Scope, Stmt, Store, Var,
    reducer, typing, verify, visit,
};

/// The most elements of one buffer.
pub const MAX_ELEMENTS: i64 = 1 << 36;
/// The most dimensions of one buffer, and the most iterators of one block.
pub const MAX_RANK: usize = 16;
/// The most blocks of one program.
pub const MAX_BLOCKS: usize = 256;

/// How a reduction combines its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reducer {
    /// Adds; starts from 0.
    Sum,
    /// Takes the largest; starts from the smallest value of the type.
    Max,
    /// Takes the smallest; starts from the largest value of the type.
    Min,
}

impl Reducer {
    /// Every reducer.
    pub const ALL: [Reducer; 3] = [Reducer::Sum, Reducer::Max, Reducer::Min];

    /// The name in programs.
    pub fn name(self) -> &'static str {
        match self {
            Reducer::Sum => "sum",
            Reducer::Max => "max",
            Reducer::Min => "min",
        }
    }

    /// The operation that combines.
    pub fn op(self) -> BinOp {
        match self {
            Reducer::Sum => BinOp::Add,
            Reducer::Max => BinOp::Max,
            Reducer::Min => BinOp::Min,
        }
    }

    /// The neutral element. Floating-point extremes are the infinities (448 for e4m3, which has none).
    pub fn neutral(self, dtype: DType) -> Expr {
        match self {
            Reducer::Sum => Expr::constant(dtype, 0.0),
            Reducer::Max | Reducer::Min => reducer::extreme(self.op(), dtype),
        }
    }
}

/// What [`Program::compute`] makes: one buffer, one block that writes it, and the loops around.
#[derive(Debug, Clone)]
pub struct Stage<'a> {
    /// The block's name.
    pub label: &'a str,
    /// The buffer that it writes.
    pub buffer: &'a str,
    /// The type of the buffer.
    pub dtype: DType,
    /// Whether the buffer is an output of the program.
    pub output: bool,
    /// One iterator per dimension of the buffer, with its extent.
    pub spatial: &'a [(&'a str, i64)],
    /// How values are combined over which further iterators.
    pub reduce: Option<(Reducer, &'a [(&'a str, i64)])>,
    /// Strides of an output in elements, if its rows are not packed.
    pub strides: Option<Vec<i64>>,
    /// Alignment of an output's base address in bytes; 16 unless stated.
    pub align: u32,
}

impl<'a> Stage<'a> {
    /// An intermediate, elementwise stage whose block has the buffer's name.
    pub fn new(buffer: &'a str, dtype: DType, spatial: &'a [(&'a str, i64)]) -> Stage<'a> {
        Stage { label: buffer, buffer, dtype, output: false, spatial, reduce: None, strides: None, align: 16 }
    }

    /// Names the block.
    #[must_use]
    pub fn label(mut self, label: &'a str) -> Self {
        self.label = label;
        self
    }

    /// Makes the buffer an output.
    #[must_use]
    pub fn output(mut self) -> Self {
        self.output = true;
        self
    }

    /// Makes it a reduction.
    #[must_use]
    pub fn reduce(mut self, reducer: Reducer, over: &'a [(&'a str, i64)]) -> Self {
        self.reduce = Some((reducer, over));
        self
    }

    /// The iterators with their kinds, spatial ones first.
    pub(super) fn axes(&self) -> impl Iterator<Item = (&'a str, i64, IterKind)> + use<'a> {
        let over = self.reduce.map_or(&[] as &[_], |(_, over)| over);
        let spatial = self.spatial.iter().map(|(name, extent)| (*name, *extent, IterKind::Spatial));
        spatial.chain(over.iter().map(|(name, extent)| (*name, *extent, IterKind::Reduce)))
    }

    /// The block's init and body.
    fn statements(&self, buffer: BufferId, at: Vec<Index>, value: Expr) -> (Option<Vec<Stmt>>, Vec<Stmt>) {
        let store = |value| vec![Stmt::Store(Store::new(buffer, at.clone(), value))];
        match self.reduce {
            None => (None, store(value)),
            Some((r, _)) => {
                let combined = Expr::bin(r.op(), Expr::load(buffer, at.clone()), value);
                (Some(store(r.neutral(self.dtype))), store(combined))
            }
        }
    }
}

/// The iterators of a stage: name, variable, extent.
pub(super) type Iterators = Vec<(String, Var, i64)>;

/// A program being built.
#[derive(Debug, Clone)]
pub struct Program {
    func: Func,
    outputs: Vec<BufferId>,
    /// Where its dynamic sizes were stated as extents.
    pub(super) stated: Stated,
}

impl Program {
    /// An empty program.
    ///
    /// # Errors
    /// `te.name` where it is no name.
    pub fn new(name: &str) -> Result<Program> {
        check_name("program", name)?;
        Ok(Program {
            func: Func { name: name.to_string(), ..Func::default() },
            outputs: Vec::new(),
            stated: Stated::default(),
        })
    }

    /// The program so far.
    pub fn func(&self) -> &Func {
        &self.func
    }

    /// Adds an input with packed rows and 16-byte alignment.
    ///
    /// # Errors
    /// `te.name` where it is no name or is taken; `te.extent`, `te.limit` of a shape that no buffer has.
    pub fn input(&mut self, name: &str, dtype: DType, shape: &[i64]) -> Result<BufferId> {
        self.input_with(name, dtype, shape, None, 16)
    }

    /// Adds an input of stated strides (in elements) and base alignment (in bytes).
    ///
    /// # Errors
    /// As [`Program::input`], and `te.storage` where strides make elements overlap or the alignment is none that a buffer has.
    pub fn input_with(
        &mut self,
        name: &str,
        dtype: DType,
        shape: &[i64],
        strides: Option<Vec<i64>>,
        align: u32,
    ) -> Result<BufferId> {
        let id = self.add_buffer(name, dtype, shape, strides, align)?;
        self.func.params.push(id);
        Ok(id)
    }

    /// States that the elements of an input of integers are in `low..end`: a promise of the caller, by which they can be indices.
    /// The simulator checks it; of a kernel `Kernels::check_values` does.
    ///
    /// # Errors
    /// `te.gather` where the buffer is no input of integers, and where the range is empty or has values that its type does not have.
    pub fn values(&mut self, input: BufferId, low: i64, end: i64) -> Result<()> {
        let buffer = self.func.buffer(input);
        let wrong = |why: String| Err(Error::input(Code::TeGather, format!("the values of {}: {why}", buffer.name)));
        if !self.func.params.contains(&input) {
            return wrong("it is no input".into());
        }
        if buffer.strides.is_some() {
            return wrong("an input with strides has gaps, and nothing is stated of them".into());
        }
        let Some(all) = typing::integer_range(buffer.dtype).filter(|_| typing::gather_range(buffer.dtype).is_some())
        else {
            return wrong(format!("{} has no integers", buffer.dtype));
        };
        if low >= end || low < all.0 || end - 1 > all.1 || end.checked_sub(low).is_none() {
            let (least, most) = all;
            return wrong(format!("{low}..{end} is empty, or not among those of {}, {least} to {most}", buffer.dtype));
        }
        self.func.buffer_mut(input).values = Some((low, end));
        Ok(())
    }

    /// A variable for [`Expr::Gather`], with a name for messages.
    ///
    /// # Errors
    /// `te.name` where it is no name.
    pub fn data_index(&mut self, name: &str) -> Result<Var> {
        check_name("index", name)?;
        Ok(self.func.add_var(name))
    }

    /// Adds a block that computes a buffer. `value` receives the iterators (spatial, then reduced) and returns the
    /// element, or the value to combine, in the type of the buffer.
    ///
    /// # Errors
    /// `te.name`, `te.extent`, `te.limit`, `te.storage`, `te.reduce`, `te.type` and `te.index`: names that are taken, shapes that no buffer has, a value of another type
    /// than the buffer, an access out of bounds. The program is then as it was.
    pub fn compute(&mut self, stage: &Stage<'_>, value: impl FnOnce(&[Var]) -> Expr) -> Result<BufferId> {
        self.compute_with(stage, |_, iterators| {
            let vars: Vec<Var> = iterators.iter().map(|(_, var, _)| *var).collect();
            Ok(value(&vars))
        })
    }

    /// [`Program::compute`] with a value that may fail and sees the program so far and the iterators' names.
    pub(super) fn compute_with(
        &mut self,
        stage: &Stage<'_>,
        value: impl FnOnce(&mut Func, &Iterators) -> Result<Expr>,
    ) -> Result<BufferId> {
        self.check_stage(stage)?;
        self.check_reducer(stage)?;
        // Everything is made on a copy, so that a refused stage changes nothing.
        let mut next = self.clone();
        let (loops, iterators) = next.iterators(stage);
        let value = value(&mut next.func, &iterators)?;
        next.check_value(stage, &value)?;
        let mut vars: Vec<(Var, i64)> = iterators.iter().map(|(_, v, extent)| (*v, *extent)).collect();
        vars.extend(next.func.size_vars());
        check_accesses(&next.func, &value, &vars, &Cond::TRUE)?;
        let shape: Vec<i64> = stage.spatial.iter().map(|(_, extent)| *extent).collect();
        let buffer = next.add_buffer(stage.buffer, stage.dtype, &shape, stage.strides.clone(), stage.align)?;
        let name = next.func.add_block(stage.label);
        let iters = (stage.axes().zip(iterators.iter().zip(&loops)))
            .map(|((_, extent, kind), ((_, v, _), l))| Iter {
                var: *v,
                kind,
                extent: extent.into(),
                binding: (*l).into(),
            })
            .collect();
        let at = iterators[..shape.len()].iter().map(|(_, v, _)| Index::Var(*v)).collect();
        let (init, body) = stage.statements(buffer, at, value);
        let block = Block { name, iters, predicate: Cond::TRUE, init, body, copy_with: None, role: None };
        let mut nest = vec![Stmt::Block(block)];
        for ((_, _, extent), var) in iterators.iter().zip(loops).rev() {
            nest = vec![Stmt::For(For::new(var, *extent, LoopKind::Serial, nest))];
        }
        next.func.body.extend(nest);
        if stage.output {
            next.outputs.push(buffer);
        }
        *self = next;
        Ok(buffer)
    }

    /// The loops of a stage and its iterators, which are new.
    pub(super) fn iterators(&mut self, stage: &Stage<'_>) -> (Vec<Var>, Iterators) {
        let loops = self.loop_vars(stage);
        let one = |(name, extent, _): (&str, i64, IterKind)| {
            (name.to_string(), self.func.add_var(format!("v{name}")), extent)
        };
        (loops, stage.axes().map(one).collect())
    }

    /// The program so far, to change.
    pub(super) fn func_mut(&mut self) -> &mut Func {
        &mut self.func
    }

    /// Makes buffers outputs, behind those that are.
    pub(super) fn add_outputs(&mut self, buffers: impl Iterator<Item = BufferId>) {
        self.outputs.extend(buffers);
    }

    /// The finished program.
    ///
    /// # Errors
    /// `te.output` where no stage is an output; `size.form` and `verify.*` where a dynamic size is the extent of what needs a
    /// constant one.
    pub fn finish(mut self) -> Result<Func> {
        if self.outputs.is_empty() {
            let error = Error::input(Code::TeOutput, format!("program {} has no output", self.func.name));
            return Err(error.help("write `output` before the buffer that the caller receives"));
        }
        self.func.params.extend(self.outputs);
        self.stated.apply(self.func)
    }

    pub(super) fn add_buffer(
        &mut self,
        name: &str,
        dtype: DType,
        shape: &[i64],
        strides: Option<Vec<i64>>,
        align: u32,
    ) -> Result<BufferId> {
        check_name("buffer", name)?;
        if self.func.find_buffer(name).is_some() {
            return Err(Error::input(Code::TeName, format!("there is already a buffer {name}")));
        }
        check_storage(name, dtype, shape, strides.as_deref(), align)?;
        let shape = shape.iter().map(|e| Index::Int(*e)).collect();
        let buffer = Buffer { strides, align, ..Buffer::new(name, dtype, shape, Scope::Global) };
        Ok(self.func.add_buffer(buffer))
    }

    /// The loops of a stage: named as its iterators, or `LABEL_ITERATOR` where an earlier loop has the name.
    fn loop_vars(&mut self, stage: &Stage<'_>) -> Vec<Var> {
        let earlier = visit::loops(&self.func.body);
        let mut taken: Vec<String> = earlier.iter().map(|l| self.func.var_name(l.var).to_string()).collect();
        let before = taken.len();
        for (name, ..) in stage.axes() {
            let choices = (1..).map(|n| format!("{}_{name}_{n}", stage.label));
            let choices = [name.to_string(), format!("{}_{name}", stage.label)].into_iter().chain(choices);
            taken.extend(choices.into_iter().find(|c| !taken.contains(c)));
        }
        taken.drain(before..).map(|name| self.func.add_var(name)).collect()
    }

    pub(super) fn check_stage(&self, stage: &Stage<'_>) -> Result<()> {
        check_name("block", stage.label)?;
        if self.func.blocks.iter().any(|b| b == stage.label) {
            return Err(Error::input(Code::TeName, format!("there is already a block {}", stage.label)));
        }
        if self.func.blocks.len() == MAX_BLOCKS {
            return Err(Error::input(Code::TeLimit, format!("a program has at most {MAX_BLOCKS} blocks")));
        }
        if !stage.output && (stage.strides.is_some() || stage.align != 16) {
            let message = format!("{} is not an output: only parameters have strides and alignment", stage.buffer);
            return Err(Error::input(Code::TeStorage, message));
        }
        if matches!(stage.reduce, Some((_, []))) {
            return Err(Error::input(Code::TeReduce, format!("block {} reduces over no iterator", stage.label)));
        }
        let axes: Vec<_> = stage.axes().collect();
        if axes.len() > MAX_RANK {
            return Err(Error::input(Code::TeLimit, format!("a block has at most {MAX_RANK} iterators")));
        }
        for (n, (name, extent, _)) in axes.iter().enumerate() {
            check_name("iterator", name)?;
            if let Some(scalar) = self.func.find_buffer(name).filter(|b| self.func.buffer(*b).shape.is_empty()) {
                let scalar = &self.func.buffer(scalar).name;
                let message = format!("block {} has an iterator {name}, but {scalar} is a number", stage.label);
                return Err(Error::input(Code::TeName, message));
            }
            if axes[..n].iter().any(|(earlier, ..)| earlier == name) {
                return Err(Error::input(Code::TeName, format!("block {} has two iterators {name}", stage.label)));
            }
            if !(1..=MAX_ELEMENTS).contains(extent) {
                let message = format!("iterator {name} has extent {extent}, not one from 1 to {MAX_ELEMENTS}");
                return Err(Error::input(Code::TeExtent, message));
            }
        }
        Ok(())
    }

    /// Whether the type has the operation that a stage reduces with.
    pub(super) fn check_reducer(&self, stage: &Stage<'_>) -> Result<()> {
        match stage.reduce {
            Some((r, _)) if !typing::binary_exists(r.op(), stage.dtype) => {
                let error = Error::input(Code::TeType, format!("there is no {} of {} values", r.name(), stage.dtype));
                Err(error.help("combine numbers: `max(k) s32(M[i, k])` is 1 where one of them is true"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn check_value(&self, stage: &Stage<'_>, value: &Expr) -> Result<()> {
        let found = typing::dtype_of(&self.func, value)?;
        if found != stage.dtype {
            let message = format!("block {} computes {found}, but {} is {}", stage.label, stage.buffer, stage.dtype);
            return Err(Error::input(Code::TeType, message).help(format!("convert: {}(...)", stage.dtype)));
        }
        Ok(())
    }
}

/// Every element that the value may read exists: iterators are the stage's own, indices stay inside the buffers.
pub(super) fn check_accesses(func: &Func, expr: &Expr, vars: &[(Var, i64)], given: &Cond) -> Result<()> {
    let known = |i: &Index| {
        let mut all = true;
        i.for_each_var(&mut |v| all &= vars.iter().any(|(own, _)| *own == v));
        if all {
            Ok(())
        } else {
            Err(Error::input(Code::TeIndex, "an index mentions a variable that is not an iterator of the block"))
        }
    };
    let below = |e: &Expr, given: &Cond| check_accesses(func, e, vars, given);
    match expr {
        Expr::Const(..) => Ok(()),
        Expr::Index(_, i) => known(i),
        Expr::Cond(c) => {
            let mut result = Ok(());
            c.for_each_index(&mut |i| result = std::mem::replace(&mut result, Ok(())).and_then(|()| known(i)));
            result
        }
        Expr::Load { buffer, indices, lanes } => {
            let b = func.buffer(*buffer);
            if indices.len() != b.shape.len() || *lanes != 1 {
                let (dims, given) = (counted(b.shape.len(), "dimension"), counted(indices.len(), "index"));
                return Err(Error::input(Code::TeIndex, format!("{} has {dims}, but {given}", b.name)));
            }
            indices.iter().try_for_each(known)?;
            verify::in_bounds(func, *buffer, indices, vars, given)
        }
        Expr::Un(_, a) | Expr::Cast(_, a) | Expr::Splat(_, a) | Expr::Shuffle(_, a) => below(a, given),
        Expr::Bin(_, a, b) | Expr::Cmp(_, a, b) => below(a, given).and_then(|()| below(b, given)),
        Expr::Select(c, a, b) => {
            let (yes, no) = verify::guards(c);
            below(c, given)?;
            below(a, &given.clone().and(yes))?;
            below(b, &given.clone().and(no))
        }
        Expr::Gather { var, extent, index, value, .. } => {
            below(index, given)?;
            let vars = [vars, &[(*var, (*extent).max(1))]].concat();
            check_accesses(func, value, &vars, given)
        }
    }
}

/// Words that text reads as something else.
const RESERVED: [&str; 8] = ["and", "or", "not", "true", "false", "inf", "nan", "target"];

/// Whether a name can be in a program: a letter or `_`, then letters, digits and `_`; at most 64; not reserved.
pub fn is_name(name: &str) -> bool {
    name.len() <= 64
        && !RESERVED.contains(&name)
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

pub(super) fn check_name(what: &str, name: &str) -> Result<()> {
    if is_name(name) {
        return Ok(());
    }
    let shown: String = name.chars().take(64).collect();
    let error = Error::input(Code::TeName, format!("{shown:?} is not a name for a {what}"));
    let help = "use at most 64 letters, digits and `_`, not beginning with a digit, and none of the words";
    Err(error.help(format!("{help} {}", RESERVED.join(", "))))
}

fn check_storage(name: &str, dtype: DType, shape: &[i64], strides: Option<&[i64]>, align: u32) -> Result<()> {
    if shape.len() > MAX_RANK {
        return Err(Error::input(Code::TeLimit, format!("buffer {name} has more than {MAX_RANK} dimensions")));
    }
    if let Some(extent) = shape.iter().find(|e| **e < 1) {
        return Err(Error::input(
            Code::TeExtent,
            format!("buffer {name} has an extent of {extent}; it must be positive"),
        ));
    }
    if !align.is_power_of_two() || !(1..=4096).contains(&align) || u64::from(align) < dtype.bytes_of(1) {
        let message =
            format!("buffer {name}: alignment {align} is not a power of two from {} to 4096", dtype.bytes_of(1));
        return Err(Error::input(Code::TeStorage, message));
    }
    let too_large = || Error::input(Code::TeLimit, format!("buffer {name} has more than 2^36 elements"));
    let packed = shape.iter().try_fold(1i64, |n, e| n.checked_mul(*e)).filter(|n| *n <= MAX_ELEMENTS);
    packed.ok_or_else(too_large)?;
    let Some(strides) = strides else { return Ok(()) };
    if strides.len() != shape.len() {
        let message =
            format!("buffer {name} has {} but {}", counted(shape.len(), "dimension"), counted(strides.len(), "stride"));
        return Err(Error::input(Code::TeStorage, message));
    }
    // Each stride spans all dimensions of smaller strides, so that no two elements share an address. Dimensions may be in any
    // order: columns of a matrix behind each other are as good as rows.
    let mut inner = 1i64;
    let mut dims: Vec<(&i64, &i64)> = strides.iter().zip(shape).collect();
    dims.sort();
    for (stride, extent) in dims {
        if *stride < inner {
            let message = format!("buffer {name}: a stride of {stride} overlaps the {inner} elements inside it");
            return Err(Error::input(Code::TeStorage, message));
        }
        inner = stride.checked_mul(*extent).filter(|n| *n <= MAX_ELEMENTS).ok_or_else(too_large)?;
    }
    Ok(())
}
