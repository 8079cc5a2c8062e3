//! Steps that belong together: stages with the loops that fill them, tilings, pipelines.

use super::source::Source;
use super::steps::{Steps, View, extent, is_plain, is_serial, only_loop};
use warploom::ir::{Axis, Block, BufferId, For, LoopKind, Scope, Stmt, visit};
use warploom::schedule::analyze::sums_over;

impl<'f> View<'f> {
    /// A copy of what a block reads, moved to where it reads it, often filled by the threads together.
    pub fn stage(&self, source: &mut Source) -> Steps {
        let block = self.block_where(source, |b| !visit::reads(&b.body).is_empty())?;
        let written = visit::writes(&block.body);
        let read: Vec<_> = visit::reads(&block.body).into_iter().filter(|b| !written.contains(b)).collect();
        let buffer = source.pick(&read)?;
        let stage = self.func.unused_buffer_name(&format!("{}_s", self.buffer_name(buffer)));
        if self.func.find_block(&stage).is_some() {
            return None;
        }
        let scope = source.of(["shared", "shared", "local", "global"]);
        let mut out =
            vec![format!("cache_read {} {} {scope} -> {stage}", self.block_name(block), self.buffer_name(buffer))];
        let around = visit::loops_around(&self.func.body, block.name)?;
        let Some(l) = source.pick(&around).filter(|_| !source.chance(15)) else { return Some(out) };
        let dims = self.func.buffer(buffer).shape.len();
        if dims == 0 {
            return Some(out);
        }
        let names: Vec<String> = (0..dims).map(|n| self.func.unused_loop_name(&format!("{stage}l{n}"))).collect();
        out.push(format!("compute_at {stage} {} -> {}", self.name(l), names.join(" ")));
        let threads = around.iter().find(|l| l.axis() == Some(Axis::ThreadX)).map(|l| extent(l));
        if let Some(threads) = threads.filter(|_| scope == "shared" && source.chance(80)) {
            let all = format!("{stage}_all");
            if dims > 1 {
                out.push(format!("fuse {} -> {all}", names.join(" ")));
            }
            let all = if dims > 1 { all } else { names[0].clone() };
            let (rounds, unit) = (format!("{stage}_r"), format!("{stage}_t"));
            match source.below(3) {
                0 => out.push(format!("split {all} ? {threads} -> {rounds} {unit}")),
                1 => out.push(format!("split {all} {threads} ? -> {unit} {rounds}")),
                _ => {
                    let lanes = format!("{stage}_v");
                    out.push(format!("split {all} ? {threads} {} -> {rounds} {unit} {lanes}", source.of([2, 4])));
                    out.push(format!("vectorize {lanes}"));
                }
            }
            out.push(format!("bind {unit} threadIdx.x"));
        }
        self.run_ahead(l, scope, &mut out, source);
        Some(out)
    }

    /// A result gathered elsewhere, copied out behind the loops that finish it.
    pub fn write_stage(&self, source: &mut Source) -> Steps {
        let nest = |b: &Block| {
            let holds = |s: &&Stmt| visit::blocks(std::slice::from_ref(*s)).iter().any(|o| o.name == b.name);
            self.func.body.iter().find(holds).map(|s| visit::blocks(std::slice::from_ref(s))).unwrap_or_default()
        };
        let goes_on = |b: &Block, id| {
            self.writers(id) == 1 && nest(b).iter().all(|r| r.name == b.name || !visit::reads(&r.body).contains(&id))
        };
        let block = self.block_where(source, |b| visit::writes(&b.body).iter().all(|id| goes_on(b, *id)))?;
        let buffer = source.pick(&visit::writes(&block.body))?;
        let stage = self.func.unused_buffer_name(&format!("{}_w", self.buffer_name(buffer)));
        if self.func.find_block(&stage).is_some() {
            return None;
        }
        let scope = source.of(["local", "local", "shared", "global"]);
        let mut out =
            vec![format!("cache_write {} {} {scope} -> {stage}", self.block_name(block), self.buffer_name(buffer))];
        let around = visit::loops_around(&self.func.body, block.name)?;
        let outside: Vec<&For> = around.into_iter().take_while(|l| sums_over(l).is_none()).collect();
        if let Some(l) = source.pick(&outside).filter(|_| !source.chance(15)) {
            out.push(format!("reverse_compute_at {stage} {}", self.name(l)));
        }
        Some(out)
    }

    /// The classic tiling of a whole nest, bound.
    pub fn tile(&self, source: &mut Source) -> Steps {
        let first = self.loop_where(source, |l| {
            is_plain(l) && sums_over(l).is_none() && only_loop(l).is_some_and(|n| is_plain(n) && sums_over(n).is_none())
        })?;
        let root = visit::loops_around_loop(&self.func.body, first.var)?.is_empty();
        let (i, j) = (self.name(first), self.name(only_loop(first)?));
        let fresh = |base: &str| self.func.unused_loop_name(base);
        let [io, ii, jo, ji] = [fresh("io"), fresh("ii"), fresh("jo"), fresh("ji")];
        let (a, b) = (source.of([2, 4, 8]), source.of([2, 4, 5, 8]));
        let mut out = vec![
            format!("split {i} ? {a} -> {io} {ii}"),
            format!("split {j} ? {b} -> {jo} {ji}"),
            format!("reorder {io} {jo} {ii} {ji}"),
        ];
        if root {
            if source.chance(25) {
                let walk = fresh("walk");
                out.push(format!("rasterize {io} {jo} group={} -> {walk}", source.of([1, 2, 3, 8])));
                out.push(format!(
                    "bind {walk} {}",
                    source.of(["blockIdx.x", "blockIdx.x", "blockIdx.y", "threadIdx.y"])
                ));
            } else {
                out.push(format!("bind {io} blockIdx.x"));
                out.push(format!("bind {jo} {}", source.of(["blockIdx.y", "threadIdx.y", "threadIdx.x"])));
            }
            out.push(format!("bind {ii} {}", source.of(["threadIdx.x", "threadIdx.z"])));
        }
        Some(out)
    }

    /// Grown domains, with the new stages mostly inlined again.
    pub fn pad(&self, source: &mut Source) -> Steps {
        let block = self.block_where(source, |b| b.predicate.is_true())?;
        let mut loops: Vec<&For> = self.own_loops(block).into_iter().map(|(l, _)| l).collect();
        source.shuffle(&mut loops);
        loops.truncate(1 + source.below(3));
        let grown = |source: &mut Source| -> Vec<String> {
            loops.iter().map(|l| format!("{}={}", self.name(l), source.of([2, 3, 4, 8]))).collect()
        };
        let words = grown(source);
        (!words.is_empty()).then(|| vec![format!("pad {} {}", self.block_name(block), words.join(" "))])
    }

    /// After a stage has moved under a loop: slots for it, perhaps filled by asynchronous copies.
    fn run_ahead(&self, l: &For, scope: &str, out: &mut Vec<String>, source: &mut Source) {
        if scope != "shared" || !is_serial(l) || !source.chance(25) {
            return;
        }
        let vectors = out.iter().any(|s| s.starts_with("vectorize"));
        if vectors && source.chance(50) {
            let stage = out[0].rsplit(' ').next().unwrap_or_default();
            out.push(format!("copy_with {stage} cp_async"));
        }
        out.push(format!("pipeline {} {}", self.name(l), slots(source)));
    }

    /// Slots for what stands directly under a loop already.
    pub fn pipeline(&self, source: &mut Source) -> Steps {
        let l = self.loop_where(source, |l| is_serial(l) && l.raster.is_none() && self.stages(l) > 0)?;
        Some(vec![format!("pipeline {} {}", self.name(l), slots(source))])
    }

    /// How many stages stand directly under a loop: nests that fill a buffer of the block from device memory.
    fn stages(&self, l: &For) -> usize {
        let nests = l.body.iter().filter(|nest| {
            let blocks = visit::blocks(std::slice::from_ref(nest));
            let shared =
                |b: &Block| visit::writes(&b.body).iter().all(|id| self.func.buffer(*id).scope == Scope::Shared);
            let fills = |b: &&Block| b.init.is_none() && shared(b) && self.is_global(&visit::reads(&b.body));
            !blocks.is_empty() && blocks.iter().all(fills)
        });
        if l.body.len() > 1 { nests.count() } else { 0 }
    }

    fn is_global(&self, buffers: &[BufferId]) -> bool {
        buffers.iter().any(|id| self.func.buffer(*id).scope == Scope::Global)
    }

    /// How the copies of a stage are done.
    pub fn copy_with(&self, source: &mut Source) -> Steps {
        let copies = |b: &Block| {
            let shared = visit::writes(&b.body).iter().any(|id| self.func.buffer(*id).scope == Scope::Shared);
            let plain =
                matches!(b.body.as_slice(), [Stmt::Store(s)] if matches!(s.value, warploom::ir::Expr::Load { .. }));
            shared && plain && b.copy_with.is_none() && self.is_global(&visit::reads(&b.body))
        };
        let block = self.block_where(source, copies)?;
        let inner = visit::loops_around(&self.func.body, block.name)?.last().copied()?;
        let kind = if inner.kind == LoopKind::Vectorized && source.chance(70) { "cp_async" } else { "sync" };
        Some(vec![format!("copy_with {} {kind}", self.block_name(block))])
    }

    /// Two loops walked by one, in groups of rows.
    pub fn rasterize(&self, source: &mut Source) -> Steps {
        let free = |l: &For| is_plain(l) && sums_over(l).is_none();
        let outer = self.loop_where(source, |l| free(l) && only_loop(l).is_some_and(free))?;
        let inner = only_loop(outer)?;
        let walk = self.func.unused_loop_name("walk");
        let group = source.of([1, 2, 3, 4]);
        let mut out = vec![format!("rasterize {} {} group={group} -> {walk}", self.name(outer), self.name(inner))];
        if visit::loops_around_loop(&self.func.body, outer.var)?.is_empty() && source.chance(70) {
            out.push(format!("bind {walk} blockIdx.x"));
        }
        Some(out)
    }

    /// Rows of a stage padded apart, and its nest shared out.
    pub fn rows_of_stage(&self, source: &mut Source) -> Steps {
        let stages = |b: &Block| {
            let buffer = visit::writes(&b.body).first().map(|id| self.func.buffer(*id));
            b.init.is_none() && buffer.is_some_and(|b| b.scope == Scope::Shared && b.shape.len() > 1)
        };
        let block = self.block_where(source, stages)?;
        let buffer = self.func.buffer(*visit::writes(&block.body).first()?);
        let (factor, last) = (source.of([4, 8, 16]), buffer.shape.len() - 2);
        Some(vec![format!("storage_align {} {last} {factor} {}", buffer.name, source.below(factor))])
    }
}

fn slots(source: &mut Source) -> String {
    let stages = source.of([2, 2, 3, 4]);
    match source.chance(5) {
        true => format!("stages={stages} in_flight={}", source.below(stages)),
        false => format!("stages={stages}"),
    }
}
