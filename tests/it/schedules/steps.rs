//! Random steps for a program: what a primitive's signature takes, filled with what the program has and the primitive is
//! likely to accept. Some are filled from the signature alone, so that refusals are tried too, and a new primitive from the day
//! on which it is in the list; these are counted apart.

use super::source::Source;
use warploom::ir::{Axis, Block, Buffer, BufferId, For, Func, LoopKind, Scope, Stmt, visit};
use warploom::schedule::analyze::{blocks_below, placement, sums_over};
use warploom::schedule::primitive::{ALL, Form, ParamKind, Parameter, Primitive};

/// A program seen by the generator.
pub struct View<'f> {
    pub func: &'f Func,
    pub loops: Vec<&'f For>,
    pub blocks: Vec<&'f Block>,
}

/// Steps that were drawn.
pub struct Drawn {
    /// A few that belong together (`groups` holds those of several), as text; none where the program has nothing to choose from.
    pub steps: Vec<String>,
    /// From the signature of a primitive alone.
    pub blind: bool,
}

/// Steps for a program.
pub fn draw(func: &Func, source: &mut Source) -> Drawn {
    let view = View { func, loops: visit::loops(&func.body), blocks: visit::blocks(&func.body) };
    if let Some(steps) = Some(()).filter(|()| source.chance(70)).and_then(|()| view.instruction(source)) {
        return Drawn { steps, blind: false };
    }
    // What wants loops that nothing has touched yet comes first.
    let fresh = source.chance(25) && view.loops.iter().all(|l| is_plain(l));
    if !fresh && source.chance(15) {
        let step = source.pick(ALL).and_then(|p| view.filled(p, source));
        return Drawn { steps: step.into_iter().collect(), blind: true };
    }
    Drawn { steps: view.chosen(fresh, source).unwrap_or_default(), blind: false }
}

/// What a group yields; `None` where the program has nothing to choose from.
pub type Steps = Option<Vec<String>>;

impl<'f> View<'f> {
    /// Steps of a primitive that the program is likely to take; `fresh` where nothing has touched its loops yet.
    fn chosen(&self, fresh: bool, source: &mut Source) -> Steps {
        if fresh {
            return match source.below(9) {
                0 | 1 => self.skew(source),
                2 => self.pad(source),
                3 => self.rfactor(source),
                4 => self.split_k(source),
                5 => self.transform_block_layout(source),
                6 => self.reverse_compute_at(source),
                7 => self.inline(source, "compute_inline"),
                _ => self.inline(source, "reverse_compute_inline"),
            };
        }
        match source.below(54) {
            0..=4 => self.split(source),
            5 | 6 => self.fuse(source),
            7..=9 => self.reorder(source),
            10..=13 => self.bind(source),
            14 | 15 => self.unroll(source),
            16 | 17 => self.vectorize(source),
            18..=21 => self.stage(source),
            22..=24 => self.write_stage(source),
            25 | 26 => self.compute_at(source),
            27 | 28 => self.reverse_compute_at(source),
            29 => self.inline(source, "compute_inline"),
            30 => self.inline(source, "reverse_compute_inline"),
            31 | 32 => self.decompose_reduction(source),
            33 if source.chance(50) => self.rfactor(source),
            33 => self.split_k(source),
            34 => self.set_scope(source),
            35 => self.storage_align(source),
            36 => self.transform_layout(source),
            37 => self.annotate(source),
            38 => self.tile(source),
            39 | 40 => self.pad(source),
            41 => self.rasterize(source),
            42..=44 => self.pipeline(source),
            45 => self.copy_with(source),
            46 => self.rows_of_stage(source),
            47 => self.swizzle(source),
            48 | 49 => self.skew(source),
            50 | 51 => self.transform_block_layout(source),
            52 => self.specialize(source),
            _ => self.tensor_core(source),
        }
    }

    pub fn name(&self, l: &For) -> &'f str {
        self.func.var_name(l.var)
    }

    pub fn block_name(&self, b: &Block) -> &'f str {
        self.func.block_name(b.name)
    }

    pub fn buffer_name(&self, id: BufferId) -> &'f str {
        &self.func.buffer(id).name
    }

    pub fn loop_where(&self, source: &mut Source, keep: impl Fn(&For) -> bool) -> Option<&'f For> {
        let found: Vec<&For> = self.loops.iter().copied().filter(|l| keep(l)).collect();
        source.pick(&found)
    }

    pub fn block_where(&self, source: &mut Source, keep: impl Fn(&Block) -> bool) -> Option<&'f Block> {
        let found: Vec<&Block> = self.blocks.iter().copied().filter(|b| keep(b)).collect();
        source.pick(&found)
    }

    fn split(&self, source: &mut Source) -> Steps {
        let l = self.loop_where(source, |l| is_plain(l) && extent(l) > 1)?;
        let factor = |source: &mut Source| source.of([2, 2, 3, 4, 4, 5, 8, 16]);
        let factors = match source.below(6) {
            0..=2 => format!("? {}", factor(source)),
            3 | 4 => format!("{} ?", factor(source)),
            _ => format!("? {} {}", factor(source), factor(source)),
        };
        Some(vec![format!("split {} {factors}", self.name(l))])
    }

    fn fuse(&self, source: &mut Source) -> Steps {
        let outer = self.loop_where(source, |l| is_plain(l) && only_loop(l).is_some_and(is_plain))?;
        Some(vec![format!("fuse {} {}", self.name(outer), self.name(only_loop(outer)?))])
    }

    /// Two or three loops of a nest, in another order.
    fn reorder(&self, source: &mut Source) -> Steps {
        let first = self.loop_where(source, |l| only_loop(l).is_some())?;
        let mut chain = vec![first];
        while let Some(next) = only_loop(chain[chain.len() - 1]) {
            chain.push(next);
        }
        chain.retain(|l| l.kind != LoopKind::Vectorized && l.pipeline.is_none());
        source.shuffle(&mut chain);
        chain.truncate(2 + source.below(2));
        let names: Vec<&str> = chain.iter().map(|l| self.name(l)).collect();
        (names.len() > 1).then(|| vec![format!("reorder {}", names.join(" "))])
    }

    /// Outer loops to blocks, inner ones to threads, with the extent that the nest already has on that axis.
    fn bind(&self, source: &mut Source) -> Steps {
        let l = self.loop_where(source, |l| is_plain(l) && sums_over(l).is_none() && extent(l) <= 256)?;
        let around = visit::loops_around_loop(&self.func.body, l.var).unwrap_or_default();
        let nest =
            self.func.body.iter().find(|s| visit::loops(std::slice::from_ref(s)).iter().any(|x| x.var == l.var))?;
        let bound: Vec<(Axis, i64)> =
            visit::loops(std::slice::from_ref(nest)).iter().filter_map(|l| Some((l.axis()?, extent(l)))).collect();
        let fits = |axis: &Axis| {
            let same = bound.iter().all(|(a, e)| a != axis || *e == extent(l));
            let inside_thread = around.iter().any(|o| o.axis().is_some_and(|a| a.level() > axis.level()));
            let taken = around.iter().any(|o| o.axis() == Some(*axis));
            same && !inside_thread && !taken
        };
        let axes: Vec<&str> = AXES.into_iter().filter(fits).map(Axis::name).collect();
        Some(vec![format!("bind {} {}", self.name(l), source.pick(&axes)?)])
    }

    fn unroll(&self, source: &mut Source) -> Steps {
        let l = self.loop_where(source, |l| is_serial(l) && extent(l) <= 8)?;
        Some(vec![format!("unroll {}", self.name(l))])
    }

    /// A short innermost loop, split off a longer one where there is none.
    fn vectorize(&self, source: &mut Source) -> Steps {
        let inner = |l: &For| is_plain(l) && sums_over(l).is_none() && visit::loops(&l.body).is_empty();
        let l = self.loop_where(source, inner)?;
        let name = self.name(l);
        if extent(l) <= 8 {
            return Some(vec![format!("vectorize {name}")]);
        }
        let (outer, lanes) = (self.func.unused_loop_name("vo"), self.func.unused_loop_name("vi"));
        Some(vec![format!("split {name} ? {} -> {outer} {lanes}", source.of([2, 4, 8])), format!("vectorize {lanes}")])
    }

    pub fn writers(&self, buffer: BufferId) -> usize {
        self.blocks.iter().filter(|b| visit::writes(&b.body).contains(&buffer)).count()
    }

    fn readers(&self, buffer: BufferId) -> Vec<&'f Block> {
        let reads = |b: &&Block| visit::reads(&b.body).contains(&buffer) && !visit::writes(&b.body).contains(&buffer);
        self.blocks.iter().copied().filter(reads).collect()
    }

    /// The one buffer that a block writes, if it is not a parameter.
    fn makes(&self, block: &Block) -> Option<BufferId> {
        let id = *visit::writes(&block.body).first()?;
        (!self.func.params.contains(&id) && self.writers(id) == 1).then_some(id)
    }

    fn compute_at(&self, source: &mut Source) -> Steps {
        let block = self.block_where(source, |b| self.makes(b).is_some_and(|id| !self.readers(id).is_empty()))?;
        let readers = self.readers(self.makes(block)?);
        let own = visit::loops_around(&self.func.body, block.name)?;
        let over_all = |l: &&For| {
            let below = blocks_below(l);
            let stays = |o: &For| visit::loops(&o.body).iter().any(|i| i.var == l.var);
            readers.iter().all(|r| below.iter().any(|(_, b)| b.name == r.name))
                && own.iter().all(|o| o.var != l.var && (stays(o) || is_plain(o)))
                && self.stands_before(block, l)
        };
        let candidates: Vec<&For> = self.loops.iter().copied().filter(over_all).collect();
        Some(vec![format!("compute_at {} {}", self.block_name(block), self.name(source.pick(&candidates)?))])
    }

    /// Whether the block ends before the loop begins.
    fn stands_before(&self, block: &Block, l: &For) -> bool {
        let mut begun = false;
        let mut before = false;
        visit::walk(&self.func.body, &mut |s| match s {
            Stmt::For(f) => begun |= f.var == l.var,
            Stmt::Block(b) => before |= b.name == block.name && !begun,
            _ => {}
        });
        before
    }

    /// The blocks that make what a block reads.
    fn producers(&self, block: &Block) -> Vec<&'f Block> {
        let read = visit::reads(&block.body);
        let makes = |p: &Block| p.name != block.name && self.makes(p).is_some_and(|id| read.contains(&id));
        self.blocks.iter().copied().filter(|p| makes(p)).collect()
    }

    fn reverse_compute_at(&self, source: &mut Source) -> Steps {
        let block = self.block_where(source, |b| b.init.is_none() && !self.producers(b).is_empty())?;
        let producer = source.pick(&self.producers(block))?;
        let own = visit::loops_around(&self.func.body, block.name)?;
        let around = visit::loops_around(&self.func.body, producer.name)?;
        let outside = |l: &&For| sums_over(l).is_none() && own.iter().all(|o| o.var != l.var);
        let candidates: Vec<&For> = around.into_iter().take_while(outside).collect();
        Some(vec![format!("reverse_compute_at {} {}", self.block_name(block), self.name(source.pick(&candidates)?))])
    }

    fn inline(&self, source: &mut Source, primitive: &str) -> Steps {
        let producers = primitive == "compute_inline";
        let copies = |b: &Block| {
            b.init.is_none()
                && match producers {
                    true => self.makes(b).is_some_and(|id| !self.readers(id).is_empty()),
                    false => self
                        .producers(b)
                        .iter()
                        .any(|p| p.init.is_none() && self.makes(p).is_some_and(|id| self.readers(id).len() == 1)),
                }
        };
        Some(vec![format!("{primitive} {}", self.block_name(self.block_where(source, copies)?))])
    }

    fn decompose_reduction(&self, source: &mut Source) -> Steps {
        let block = self.block_where(source, |b| b.init.is_some())?;
        let around = visit::loops_around(&self.func.body, block.name)?;
        // Up to the first loop that sums, that one included.
        let first = around.iter().position(|l| sums_over(l).is_some()).unwrap_or(around.len());
        let candidates: Vec<&For> = around.into_iter().take(first + 1).collect();
        Some(vec![format!("decompose_reduction {} {}", self.block_name(block), self.name(source.pick(&candidates)?))])
    }

    fn rfactor(&self, source: &mut Source) -> Steps {
        let block = self.block_where(source, |b| b.init.is_some())?;
        let around = visit::loops_around(&self.func.body, block.name)?;
        let sums: Vec<&For> = around.into_iter().filter(|l| is_plain(l) && sums_over(l).is_some()).collect();
        let primitive = if source.chance(30) { "promote" } else { "rfactor" };
        Some(vec![format!("{primitive} {} {}", self.block_name(block), self.name(source.pick(&sums)?))])
    }

    fn split_k(&self, source: &mut Source) -> Steps {
        let l = self.loop_where(source, |l| is_plain(l) && sums_over(l).is_some() && holds_one_block(l))?;
        let fits: Vec<i64> = [2, 2, 3, 4].into_iter().filter(|parts| *parts <= extent(l)).collect();
        Some(vec![format!("split_k {} {}", self.name(l), source.pick(&fits)?)])
    }

    fn allocated(&self, source: &mut Source) -> Option<&'f Buffer> {
        let kept: Vec<_> =
            visit::writes(&self.func.body).into_iter().filter(|b| !self.func.params.contains(b)).collect();
        source.pick(&kept).map(|id| self.func.buffer(id))
    }

    fn set_scope(&self, source: &mut Source) -> Steps {
        let buffer = self.allocated(source)?;
        let scope = source.of([Scope::Local, Scope::Shared, Scope::Global]);
        Some(vec![format!("set_scope {} {}", buffer.name, scope.name())])
    }

    fn storage_align(&self, source: &mut Source) -> Steps {
        let buffer = self.allocated(source).filter(|b| b.shape.len() > 1 && b.storage_align.is_none())?;
        let factor = source.of([2, 4, 8, 32]);
        let (dim, offset) = (source.below(buffer.shape.len() - 1), source.below(factor));
        Some(vec![format!("storage_align {} {dim} {factor} {offset}", buffer.name)])
    }

    fn transform_layout(&self, source: &mut Source) -> Steps {
        let buffer =
            self.allocated(source).filter(|b| b.storage_align.is_none() && (1..=4).contains(&b.shape.len()))?;
        let inputs: Vec<String> = (0..buffer.shape.len()).map(|n| format!("d{n}")).collect();
        let mut outputs = inputs.clone();
        if source.chance(60) {
            let dim = source.below(outputs.len());
            let extent = buffer.const_shape()?[dim];
            let divisors: Vec<i64> = (2..=8).filter(|d| extent % d == 0).collect();
            if let Some(d) = source.pick(&divisors) {
                outputs[dim] = format!("{} // {d}", inputs[dim]);
                outputs.push(format!("{} % {d}", inputs[dim]));
            }
        }
        source.shuffle(&mut outputs);
        Some(vec![format!("transform_layout {} [{}] -> [{}]", buffer.name, inputs.join(", "), outputs.join(", "))])
    }

    fn annotate(&self, source: &mut Source) -> Steps {
        let l = self.loop_where(source, |l| l.notes.is_empty())?;
        let step = source.of([
            "annotate LOOP unroll_limit 4",
            "launch LOOP min_blocks=2",
            "annotate LOOP l2_hint 1",
            "annotate LOOP l2_promotion 128",
            "annotate LOOP zigzag 1",
            "annotate LOOP zigzag 1",
            "annotate LOOP spread 1",
        ]);
        Some(vec![step.replace("LOOP", self.name(l))])
    }

    /// A primitive with anything that its signature takes: the way in which a new one is tried.
    fn filled(&self, primitive: &Primitive, source: &mut Source) -> Option<String> {
        let mut words = vec![primitive.name.to_string()];
        for parameter in primitive.signature.iter().filter(|p| p.form != Form::Made) {
            if !parameter.is_demanded() && source.chance(70) {
                continue;
            }
            let value = self.value(parameter, source)?;
            words.push(match parameter.form {
                Form::Chosen => format!("= {value}"),
                Form::Setting | Form::Option => format!("{}={value}", parameter.name),
                _ => value,
            });
        }
        Some(words.join(" "))
    }

    fn value(&self, parameter: &Parameter, source: &mut Source) -> Option<String> {
        let some = |names: Vec<&str>, source: &mut Source| -> Option<String> {
            let mut names = names;
            source.shuffle(&mut names);
            let most = if parameter.kind.is_list() { 1 + source.below(3) } else { 1 };
            names.truncate(most);
            (!names.is_empty()).then(|| names.join(" "))
        };
        match parameter.kind {
            ParamKind::Loop | ParamKind::Loops => some(self.loops.iter().map(|l| self.name(l)).collect(), source),
            ParamKind::Block | ParamKind::Blocks | ParamKind::Stage => {
                some(self.blocks.iter().map(|b| self.block_name(b)).collect(), source)
            }
            ParamKind::Buffer | ParamKind::Buffers => {
                some(self.func.buffers.iter().map(|b| b.name.as_str()).collect(), source)
            }
            ParamKind::Role => Some("role".into()),
            ParamKind::Row => {
                let rows = warploom::intrin::all();
                Some(rows[source.below(rows.len())].name.clone())
            }
            ParamKind::Factors => Some(source.of(["? 2", "3 ?", "2 2", "7", "? 0", "? 4 ?"]).into()),
            ParamKind::Multiples => {
                let names = some(self.loops.iter().map(|l| self.name(l)).collect(), source)?;
                Some(names.split(' ').map(|l| format!("{l}={}", source.of([0, 1, 3, 4]))).collect::<Vec<_>>().join(" "))
            }
            ParamKind::Int => Some(source.of(["0", "1", "2", "4", "128"]).into()),
            ParamKind::Choice(words) => source.pick(words).map(str::to_string),
            // Some steps take the names for those of loops.
            ParamKind::Map => {
                let mut names: Vec<&str> = self.loops.iter().map(|l| self.name(l)).collect();
                source.shuffle(&mut names);
                let (i, rest) = names.split_first()?;
                let one = format!("[{i}] -> [{i} // 2, {i} % 2]");
                let Some(j) = rest.first() else { return Some(one) };
                Some(match source.below(3) {
                    0 => one,
                    1 => format!("[{i}, {j}] -> [{j}, {i}]"),
                    _ => format!("[{i}, {j}] -> [{i}]"),
                })
            }
        }
    }
}

const AXES: [Axis; 6] = [Axis::BlockX, Axis::BlockY, Axis::BlockZ, Axis::ThreadX, Axis::ThreadX, Axis::ThreadY];

pub fn is_plain(l: &For) -> bool {
    placement(l).is_none()
}

pub fn is_serial(l: &For) -> bool {
    l.kind == LoopKind::Serial && l.pipeline.is_none() && l.tensorize.is_none()
}

pub fn extent(l: &For) -> i64 {
    l.extent.as_int().unwrap_or(i64::MAX)
}

/// The loop that is all that stands directly in a loop.
pub fn only_loop(l: &For) -> Option<&For> {
    match l.body.as_slice() {
        [Stmt::For(inner)] if l.raster.is_none() => Some(inner),
        _ => None,
    }
}

/// Whether a block is all that a loop holds.
pub fn holds_one_block(l: &For) -> bool {
    match l.body.as_slice() {
        [Stmt::Block(_)] => true,
        [Stmt::For(inner)] => holds_one_block(inner),
        _ => false,
    }
}

/// Loops of the root nests that may be bound and stand on no axis yet, each with an axis: what is left to do for a
/// program that would run on one thread.
pub fn bindings(func: &Func) -> Vec<String> {
    let mut out = Vec::new();
    for nest in &func.body {
        let loops = visit::loops(std::slice::from_ref(nest));
        if loops.iter().any(|l| l.axis().is_some()) {
            continue;
        }
        let free = |l: &&&For| is_plain(l) && sums_over(l).is_none() && extent(l) <= 512;
        let Stmt::For(first) = nest else { continue };
        let mut chain = vec![first];
        while let Some(next) = only_loop(chain[chain.len() - 1]) {
            chain.push(next);
        }
        for (l, axis) in chain.iter().filter(free).zip(["blockIdx.x", "threadIdx.x"]) {
            out.push(format!("bind {} {axis}", func.var_name(l.var)));
        }
    }
    out
}
