//! A builder of steps: a method for each primitive, so that a program states steps without formatting text that is parsed again.

use super::parse::is_row;
use super::primitive::{self as row, ParamKind, Primitive};
use super::{Args, IndexMap, Step, Value, is_name, limits};
use crate::DType;
use crate::error::{Code, Error, Result};
use crate::ir::{Axis, BindMode, CopyKind, Note, Scope};
use std::fmt::{Display, Formatter};

/// Steps in the order in which they apply, each added by the method of its primitive.
///
/// A method takes what the signature of its primitive demands. What a step may state besides follows it as a method of its own:
/// [`Steps::made`] names what the last step makes. The first step that no text can say is kept as an error, and [`Steps::finish`]
/// returns it. [`Display`] prints a step a line.
///
/// ```
/// use warploom::ir::Axis;
/// use warploom::schedule::{Steps, parse};
///
/// let mut steps = Steps::new();
/// steps.split("i", [128], ["i0", "i1"]).bind("i0", Axis::BlockX).bind("i1", Axis::ThreadX);
/// assert_eq!(steps.to_string(), "split i ? 128 -> i0 i1\nbind i0 blockIdx.x\nbind i1 threadIdx.x\n");
/// assert_eq!(steps.clone().finish()?, parse(&steps.to_string())?);
///
/// let mut wrong = Steps::new();
/// wrong.unroll("two words");
/// assert!(wrong.finish().is_err());
/// # Ok::<(), warploom::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Steps {
    steps: Vec<Step>,
    refused: Option<Error>,
}

impl Steps {
    /// No step yet.
    pub fn new() -> Steps {
        Steps::default()
    }

    /// All steps.
    ///
    /// # Errors
    /// What [`Step::new`] refuses, of the first step that it refuses; `step.name` and `step.limit` where a name or a number is none that
    /// [`super::parse()`] reads, and where there are more steps than it reads.
    pub fn finish(self) -> Result<Vec<Step>> {
        match self.refused {
            Some(error) => Err(error),
            None if self.steps.len() > limits::STEPS => {
                Err(Error::input(Code::StepLimit, format!("more than {} steps", limits::STEPS)))
            }
            None => Ok(self.steps),
        }
    }

    /// Adds a step of any primitive.
    pub fn push(&mut self, primitive: &'static Primitive, args: Args) -> &mut Steps {
        match Step::new(primitive, args).and_then(readable) {
            Ok(step) => self.steps.push(step),
            Err(error) => self.refuse(error),
        }
        self
    }

    /// Names what the last step makes, in the order of its signature.
    pub fn made(&mut self, names: impl IntoIterator<Item = impl AsRef<str>>) -> &mut Steps {
        let names = strings(names);
        self.amend(|mut args| {
            args.names = names;
            args
        })
    }

    /// Adds an option to the last step.
    fn option(&mut self, parameter: &'static str, value: Value) -> &mut Steps {
        match self.steps.last().filter(|last| last.primitive().signature.iter().all(|p| p.name != parameter)) {
            Some(last) => {
                let message = format!("`{}` has no option `{parameter}`", last.primitive().name);
                self.refuse(Error::input(Code::StepArgs, message));
                self
            }
            None => self.amend(|args| args.with(parameter, value)),
        }
    }

    /// Changes the arguments of the last step.
    fn amend(&mut self, change: impl FnOnce(Args) -> Args) -> &mut Steps {
        match self.steps.pop() {
            Some(last) => self.push(last.primitive(), change(last.args().clone())),
            None => {
                self.refuse(Error::input(Code::StepArgs, "names or an option without a step before them"));
                self
            }
        }
    }

    fn refuse(&mut self, error: Error) {
        self.refused.get_or_insert(error);
    }

    /// Splits a loop into an outer loop, which gets the iterations that the others leave, and inner loops of these extents.
    pub fn split(
        &mut self,
        loop_: &str,
        inner: impl IntoIterator<Item = i64>,
        made: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> &mut Steps {
        let factors = std::iter::once(None).chain(inner.into_iter().map(Some)).collect();
        self.push(&row::split::PRIMITIVE, Args::new().word("loop", loop_).with("factors", Value::Factors(factors)))
            .made(made)
    }

    /// Splits a loop into loops of these extents, which cover it.
    pub fn split_all(
        &mut self,
        loop_: &str,
        extents: impl IntoIterator<Item = i64>,
        made: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> &mut Steps {
        let factors = extents.into_iter().map(Some).collect();
        self.push(&row::split::PRIMITIVE, Args::new().word("loop", loop_).with("factors", Value::Factors(factors)))
            .made(made)
    }

    /// Fuses nested loops, the outermost first, into one.
    pub fn fuse(&mut self, loops: impl IntoIterator<Item = impl AsRef<str>>, fused: &str) -> &mut Steps {
        self.push(&row::fuse::PRIMITIVE, list("loops", loops)).made([fused])
    }

    /// Reorders nested loops, the outermost first.
    pub fn reorder(&mut self, loops: impl IntoIterator<Item = impl AsRef<str>>) -> &mut Steps {
        self.push(&row::reorder::PRIMITIVE, list("loops", loops))
    }

    /// Binds a loop to an axis.
    pub fn bind(&mut self, loop_: &str, axis: Axis) -> &mut Steps {
        self.bind_as(loop_, axis, BindMode::Plain)
    }

    /// Binds a loop to an axis whose units share the iterations in this mode.
    pub fn bind_as(&mut self, loop_: &str, axis: Axis, mode: BindMode) -> &mut Steps {
        let args = Args::new().word("loop", loop_).word("axis", axis.name());
        let args = match mode {
            BindMode::Plain => args,
            BindMode::Persistent => args.word("how", "persistent"),
            BindMode::PingPong => args.word("how", "pingpong"),
        };
        self.push(&row::bind::PRIMITIVE, args)
    }

    /// Writes a loop out.
    pub fn unroll(&mut self, loop_: &str) -> &mut Steps {
        self.push(&row::unroll::PRIMITIVE, Args::new().word("loop", loop_))
    }

    /// Makes a loop one vector access.
    pub fn vectorize(&mut self, loop_: &str) -> &mut Steps {
        self.push(&row::vectorize::PRIMITIVE, Args::new().word("loop", loop_))
    }

    /// Copies what a block reads of a buffer to a staged buffer.
    pub fn cache_read(&mut self, block: &str, buffer: &str, scope: Scope, stage: &str) -> &mut Steps {
        self.push(&row::cache_read::PRIMITIVE, copied(block, buffer, scope)).made([stage])
    }

    /// Copies what a block reads of a buffer to a staged buffer of another type.
    pub fn cache_read_as(&mut self, block: &str, buffer: &str, scope: Scope, dtype: DType, stage: &str) -> &mut Steps {
        let args = copied(block, buffer, scope).word("as", dtype.name());
        self.push(&row::cache_read::PRIMITIVE, args).made([stage])
    }

    /// Lets a block write a staged buffer, which is copied to the buffer.
    pub fn cache_write(&mut self, block: &str, buffer: &str, scope: Scope, stage: &str) -> &mut Steps {
        self.push(&row::cache_write::PRIMITIVE, copied(block, buffer, scope)).made([stage])
    }

    /// Moves a block that computes under a loop of its readers.
    pub fn compute_at(&mut self, block: &str, loop_: &str) -> &mut Steps {
        self.push(&row::compute_at::PRIMITIVE, at(block, loop_))
    }

    /// Moves a block that reads under a loop of its producers.
    pub fn reverse_compute_at(&mut self, block: &str, loop_: &str) -> &mut Steps {
        self.push(&row::reverse_compute_at::PRIMITIVE, at(block, loop_))
    }

    /// Replaces reads of what a block computes by the computation.
    pub fn compute_inline(&mut self, block: &str) -> &mut Steps {
        self.push(&row::compute_inline::PRIMITIVE, Args::new().word("block", block))
    }

    /// Lets the producer of what a block reads do the block's computation.
    pub fn reverse_compute_inline(&mut self, block: &str) -> &mut Steps {
        self.push(&row::reverse_compute_inline::PRIMITIVE, Args::new().word("block", block))
    }

    /// Moves the init of a reduction in front of a loop, as a block of its own.
    pub fn decompose_reduction(&mut self, block: &str, loop_: &str) -> &mut Steps {
        self.push(&row::decompose_reduction::PRIMITIVE, at(block, loop_))
    }

    /// Says which memory holds a buffer.
    pub fn set_scope(&mut self, buffer: &str, scope: Scope) -> &mut Steps {
        self.push(&row::set_scope::PRIMITIVE, Args::new().word("buffer", buffer).word("scope", scope.name()))
    }

    /// Pads the rows of a dimension: their stride becomes `offset` modulo `factor`.
    pub fn storage_align(&mut self, buffer: &str, dim: i64, factor: i64, offset: i64) -> &mut Steps {
        let args = Args::new().word("buffer", buffer).int("dim", dim).int("factor", factor).int("offset", offset);
        self.push(&row::storage_align::PRIMITIVE, args)
    }

    /// Divides a reduction over a loop into partial results, which a second block combines. [`Steps::made`] names the stage and its
    /// loops.
    pub fn rfactor(&mut self, block: &str, loop_: &str) -> &mut Steps {
        self.push(&row::rfactor::PRIMITIVE, at(block, loop_))
    }

    /// Divides a sum over a loop into partial sums, which a second block adds up, multiplied by what the terms of each have in common.
    /// [`Steps::made`] names the stage and its loops.
    pub fn promote(&mut self, block: &str, loop_: &str) -> &mut Steps {
        self.push(&row::promote::PRIMITIVE, at(block, loop_))
    }

    /// Divides a reduction into parts that a second kernel combines. [`Steps::made`] names the stage and its loops.
    pub fn split_k(&mut self, loop_: &str, parts: i64) -> &mut Steps {
        self.push(&row::split_k::PRIMITIVE, Args::new().word("loop", loop_).int("parts", parts))
    }

    /// Lets the blocks of a cluster combine the parts of the split of the last step, without a second kernel.
    pub fn by_cluster(&mut self) -> &mut Steps {
        self.option("by", Value::Word("cluster".into()))
    }

    /// Lays a buffer out by an index map.
    pub fn transform_layout(&mut self, buffer: &str, map: IndexMap) -> &mut Steps {
        self.push(&row::transform_layout::PRIMITIVE, Args::new().word("buffer", buffer).with("map", Value::Map(map)))
    }

    /// Replaces loops of a block by those of an index map.
    pub fn transform_block_layout(&mut self, block: &str, map: IndexMap) -> &mut Steps {
        let args = Args::new().word("block", block).with("map", Value::Map(map));
        self.push(&row::transform_block_layout::PRIMITIVE, args)
    }

    /// Attaches a hint to a loop.
    pub fn annotate(&mut self, loop_: &str, note: Note, value: i64) -> &mut Steps {
        self.push(
            &row::annotate::PRIMITIVE,
            Args::new().word("loop", loop_).word("key", note.name()).int("value", value),
        )
    }

    /// Lets an instruction do a nest whose loops are in the order of its dimensions.
    pub fn tensorize(&mut self, loop_: &str, instruction: &str) -> &mut Steps {
        self.push(&row::tensorize::PRIMITIVE, at_row(loop_, instruction))
    }

    /// Lets an instruction do a nest, its dimensions m, n and k by these loops.
    pub fn tensorize_by(&mut self, loop_: &str, instruction: &str, [m, n, k]: [&str; 3]) -> &mut Steps {
        let args = at_row(loop_, instruction).word("m", m).word("n", n).word("k", k);
        self.push(&row::tensorize::PRIMITIVE, args)
    }

    /// Leaves the choice of an instruction for tensor cores to the compiler.
    pub fn tensor_core(&mut self, loop_: &str) -> &mut Steps {
        self.push(&row::tensor_core::PRIMITIVE, Args::new().word("loop", loop_))
    }

    /// Swizzles a buffer in shared memory in rows of so many bytes.
    pub fn swizzle(&mut self, buffer: &str, bytes: i64) -> &mut Steps {
        self.push(&row::swizzle::PRIMITIVE, list("buffers", [buffer]).word("width", &bytes.to_string()))
    }

    /// Says how a staged buffer is copied.
    pub fn copy_with(&mut self, stage: &str, kind: CopyKind) -> &mut Steps {
        self.push(&row::copy_with::PRIMITIVE, list("stages", [stage]).word("kind", kind.name()))
    }

    /// Lets the copy of the last step write to all blocks of a cluster that this loop numbers.
    pub fn multicast(&mut self, loop_: &str) -> &mut Steps {
        self.option("multicast", Value::Word(loop_.to_string()))
    }

    /// Lets the copy of the last step go through the L1 cache.
    pub fn through_l1(&mut self) -> &mut Steps {
        self.option("cache", Value::Word("l1".to_string()))
    }

    /// Overlaps the iterations of a loop, the staged buffers under it in rings of so many stages.
    pub fn pipeline(&mut self, loop_: &str, stages: i64) -> &mut Steps {
        self.push(&row::pipeline::PRIMITIVE, Args::new().word("loop", loop_).int("stages", stages))
    }

    /// Lets so many groups of MMAs of the pipeline of the last step be in flight.
    pub fn in_flight(&mut self, groups: i64) -> &mut Steps {
        self.option("in_flight", Value::Int(groups))
    }

    /// Sets how the kernel of a loop is compiled and launched: what follows says to what.
    pub fn launch(&mut self, loop_: &str) -> &mut Steps {
        self.push(&row::launch::PRIMITIVE, Args::new().word("loop", loop_))
    }

    /// Resident blocks per multiprocessor for the launch of the last step.
    pub fn min_blocks(&mut self, blocks: i64) -> &mut Steps {
        self.option("min_blocks", Value::Int(blocks))
    }

    /// How far the kernel of the launch of the last step overlaps with its neighbours in the stream: 1 or 2.
    pub fn grid_dependency(&mut self, kernels: i64) -> &mut Steps {
        self.option("grid_dependency", Value::Int(kernels))
    }

    /// Lets the kernel of the launch of the last step run concurrently with the preceding kernels.
    pub fn concurrent(&mut self) -> &mut Steps {
        self.option("concurrent", Value::Int(1))
    }

    /// Lets the kernel of the launch of the last step prefetch its inputs to L2.
    pub fn l2_prefetch(&mut self) -> &mut Steps {
        self.option("l2_prefetch", Value::Int(1))
    }

    /// Gives staged buffers to warps of their own.
    pub fn specialize(
        &mut self,
        stages: impl IntoIterator<Item = impl AsRef<str>>,
        role: &str,
        warps: i64,
    ) -> &mut Steps {
        self.push(&row::specialize::PRIMITIVE, list("stages", stages).int("warps", warps)).made([role])
    }

    /// Says how many registers a thread of the role of the last step keeps.
    pub fn registers(&mut self, registers: i64) -> &mut Steps {
        self.option("regs", Value::Int(registers))
    }

    /// Walks two loops over blocks in raster groups of so many rows, as one loop.
    pub fn rasterize(&mut self, loops: [&str; 2], group: i64, walk: &str) -> &mut Steps {
        self.push(&row::rasterize::PRIMITIVE, list("loops", loops).int("group", group)).made([walk])
    }

    /// Pads loops of a block to multiples, with neutral elements.
    pub fn pad(&mut self, block: &str, multiples: impl IntoIterator<Item = (impl AsRef<str>, i64)>) -> &mut Steps {
        let multiples = multiples.into_iter().map(|(l, n)| (l.as_ref().to_string(), n)).collect();
        self.push(&row::pad::PRIMITIVE, Args::new().word("block", block).with("multiples", Value::Multiples(multiples)))
    }

    /// Shifts the iterations of a loop by an index map of the loops around it.
    pub fn skew(&mut self, block: &str, loop_: &str, map: IndexMap) -> &mut Steps {
        self.push(&row::skew::PRIMITIVE, at(block, loop_).with("map", Value::Map(map)))
    }

    /// Rounds the extents of the loops of the skew of the last step up to a multiple.
    pub fn multiple(&mut self, of: i64) -> &mut Steps {
        self.option("multiple", Value::Int(of))
    }
}

impl Display for Steps {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

fn strings(names: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    names.into_iter().map(|name| name.as_ref().to_string()).collect()
}

fn list(parameter: &'static str, names: impl IntoIterator<Item = impl AsRef<str>>) -> Args {
    Args::new().with(parameter, Value::Words(strings(names)))
}

fn at(block: &str, loop_: &str) -> Args {
    Args::new().word("block", block).word("loop", loop_)
}

fn at_row(loop_: &str, instruction: &str) -> Args {
    Args::new().word("loop", loop_).word("row", instruction)
}

fn copied(block: &str, buffer: &str, scope: Scope) -> Args {
    Args::new().word("block", block).word("buffer", buffer).word("scope", scope.name())
}

/// A step whose text the parser reads back: its names are names, and its numbers are within the limits.
fn readable(step: Step) -> Result<Step> {
    step.args().names.iter().try_for_each(|name| check_name(name))?;
    for parameter in step.primitive().signature {
        let Some(value) = step.args().get(parameter.name) else { continue };
        match (&parameter.kind, value) {
            (ParamKind::Choice(_), _) => {}
            (ParamKind::Row, Value::Word(word)) if is_row(word) => {}
            (_, Value::Word(word)) => check_name(word)?,
            (_, Value::Words(words)) => words.iter().try_for_each(|word| check_name(word))?,
            (_, Value::Factors(factors)) => factors.iter().flatten().try_for_each(|n| check_number(*n))?,
            (_, Value::Multiples(multiples)) => {
                multiples.iter().try_for_each(|(name, n)| check_name(name).and(check_number(*n)))?;
            }
            (_, Value::Int(n)) => check_number(*n)?,
            (_, Value::Map(map)) => map.inputs.iter().try_for_each(|name| check_name(name))?,
        }
    }
    Ok(step)
}

fn check_name(word: &str) -> Result<()> {
    let message = || format!("`{word}` is not a name (letters, digits and _, at most {})", limits::NAME);
    if is_name(word) { Ok(()) } else { Err(Error::input(Code::StepName, message())) }
}

fn check_number(n: i64) -> Result<()> {
    let fits = n.unsigned_abs() <= limits::NUMBER.unsigned_abs();
    if fits { Ok(()) } else { Err(Error::input(Code::StepLimit, format!("{n} is beyond {}", limits::NUMBER))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::parse;
    use crate::schedule::primitive::Form;
    use std::collections::BTreeSet;

    /// A step of every primitive, with every option.
    fn all() -> Steps {
        let mut s = Steps::new();
        s.split("i", [2, 8], ["i0", "i1", "i2"]).split_all("j", [4, 4], ["j0", "j1"]).fuse(["i0", "j0"], "f");
        s.reorder(["a", "b"]).bind("f", Axis::BlockX).bind_as("t", Axis::BlockX, BindMode::Persistent);
        s.bind_as("w", Axis::Warpgroup, BindMode::PingPong).unroll("u").vectorize("v");
        s.cache_read("C", "A", Scope::Shared, "A_s").cache_read_as("C", "A", Scope::Fragment, DType::S8, "A_u");
        s.cache_write("C", "C", Scope::Local, "C_l").compute_at("A_s", "k0").made(["a0", "a1"]);
        s.reverse_compute_at("C_l", "j").compute_inline("A_pad").reverse_compute_inline("C_pad");
        s.decompose_reduction("C", "k0").made(["zero"]).set_scope("acc", Scope::Local).storage_align("A_s", 0, 32, 8);
        s.rfactor("C", "ks")
            .made(["slices", "ti"])
            .promote("C", "ks")
            .made(["part", "tj"])
            .split_k("k", 4)
            .by_cluster()
            .made(["parts", "part"]);
        let map = || IndexMap::new(["i", "j"], |[i, j]| vec![i.clone().floordiv(4), j.clone(), i.floormod(4)]);
        s.transform_layout("A_s", map()).transform_block_layout("C", map()).annotate("k", Note::UnrollLimit, 2);
        s.tensorize("im", "mma.m16n8k16.f32.f16.f16").tensorize_by(
            "im",
            "wgmma.m64n8k16.f32.f16.f16",
            ["im", "jn", "ki"],
        );
        s.tensor_core("ko").swizzle("A_s", 128).copy_with("A_s", CopyKind::Tma).multicast("ic");
        s.copy_with("B_s", CopyKind::CpAsync).through_l1();
        s.pipeline("k0", 4).in_flight(1).specialize(["A_s", "B_s"], "load", 4).registers(40);
        s.rasterize(["i0", "j0"], 8, "tile").pad("C", [("i", 128), ("k", 8)]).made(["A_pad"]);
        s.skew("C", "i", map()).multiple(8).launch("tile").min_blocks(2).grid_dependency(2).concurrent().l2_prefetch();
        s
    }

    #[test]
    fn every_primitive_has_a_method_whose_text_parses_to_the_same_step() {
        let text = all().to_string();
        let steps = all().finish().unwrap();
        assert_eq!(parse(&text).unwrap(), steps);
        let names: BTreeSet<&str> = steps.iter().map(|s| s.primitive().name).collect();
        let missing: Vec<&str> = row::ALL.iter().map(|p| p.name).filter(|name| !names.contains(name)).collect();
        assert!(missing.is_empty(), "no method makes a step of {missing:?}");
        for primitive in row::ALL {
            for option in primitive.signature.iter().filter(|p| p.form == Form::Option) {
                let set =
                    steps.iter().any(|s| s.primitive().name == primitive.name && s.args().get(option.name).is_some());
                assert!(set, "no method sets {} of {}", option.name, primitive.name);
            }
        }
        let line = "specialize A_s B_s -> load warps=4 regs=40\n";
        assert!(text.contains(line) && text.contains("split i ? 2 8 -> i0 i1 i2\nsplit j 4 4 -> j0 j1\n"), "{text}");
    }

    #[test]
    fn steps_that_the_parser_would_refuse_are_errors() {
        let refused = |make: &dyn Fn(&mut Steps)| {
            let mut steps = Steps::new();
            make(&mut steps);
            steps.unroll("5");
            steps.finish().unwrap_err().code()
        };
        // The first error is the one that is told.
        assert_eq!(refused(&|s| _ = s.swizzle("A_s", 24)), Code::StepArgs);
        assert_eq!(refused(&|s| _ = s.made(["a"])), Code::StepArgs);
        assert_eq!(refused(&|s| _ = s.fuse([""; 0], "f")), Code::StepArgs);
        assert_eq!(refused(&|s| _ = s.unroll("k").made(["a"])), Code::StepArgs);
        assert_eq!(refused(&|s| _ = s.unroll("k").in_flight(1)), Code::StepArgs);
        assert_eq!(refused(&|s| _ = s.split("k", [limits::NUMBER + 1], ["k0", "k1"])), Code::StepLimit);
        assert_eq!(refused(&|s| _ = s.tensorize("i", "no row")), Code::StepName);
        assert_eq!(refused(&|_| {}), Code::StepName);
        let mut many = Steps::new();
        (0..=limits::STEPS).for_each(|_| _ = many.unroll("k"));
        assert_eq!(many.finish().unwrap_err().code(), Code::StepLimit);
    }
}
