//! `pipeline LOOP stages=N [in_flight=M]`: every stage directly under LOOP gets N slots, so that filling it runs ahead of
//! its use; M batches of asynchronous instructions stay in flight.
//!
//! A stage is a buffer that is not global, is written directly under LOOP by blocks that do not sum, and occurs nowhere
//! else.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: the text and its meaning. A placement.
//!
//! ```text
//! for k0 in 0..64          pipeline k0 stages=4         for k0 in 0..64 pipeline 4
//!   A_s: ..                                               A_s: ..
//!   mma: ..                                               mma: ..
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::Result;
use crate::ir::print::Node;
use crate::ir::{Buffer, BufferId, For, Func, LoopKind, Pipeline, Scope, visit};
use crate::schedule::Args;
use crate::schedule::analyze::{BlockKind, kind, placement};
use crate::schedule::dataflow::{block_reads, block_writes, readers_in, writers_in};
use crate::schedule::find::{loop_, refuse};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "pipeline",
    about: "Gives every staged buffer directly under a loop a ring of stages, so that its copies run ahead of their \
            use.",
    example: "gemm 64x64x64 f32 NN\n\
              target sm_80\n\
              split k ? 8 -> k0 ki\n\
              reorder k0 i j ki\n\
              cache_read C A shared -> A_s\n\
              compute_at A_s k0\n\
              pipeline k0 stages=3",
    signature: &[
        Parameter::place("loop", ParamKind::Loop),
        Parameter::setting("stages", ParamKind::Int),
        Parameter::option("in_flight", ParamKind::Int),
    ],
    requires: &[
        "there are 2 to 32 stages, and fewer groups in flight than stages; 1 stage where all staged buffers are in \
         registers, each of which is then reloaded after its last use",
        "LOOP is serial and not pipelined yet",
        "at least one staged buffer is directly under LOOP",
        "every staged buffer is filled before it is read in each iteration",
        "what a staged buffer loads from global memory is not written under LOOP",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let l = loop_(func, args.get_word("loop")?)?;
    let (stages, in_flight) = (args.get_int("stages")?, args.find_int("in_flight").unwrap_or(0));
    let no = |n, message: String| refuse("pipeline", n, message, func, &[(Node::Loop(l.var), "this loop")]);
    if !(1..=32).contains(&stages) || !(0..stages).contains(&in_flight) {
        return Err(no(1, format!("{stages} stages with {in_flight} groups in flight")).help(
            "2 to 32 stages (1 for staged buffers in registers), and fewer groups in flight than stages: stages=4 \
             in_flight=1",
        ));
    }
    if l.pipeline.is_some() {
        return Err(
            no(2, format!("loop `{}` is pipelined", func.var_name(l.var))).help("one of the two steps is enough")
        );
    }
    let (var, mut out) = (l.var, func.clone());
    let placed = Pipeline { stages: stages as u32, in_flight: in_flight as u32 };
    visit::change_loop(&mut out.body, var, &mut |l| l.pipeline = Some(placed));
    Ok(out.into())
}

/// What a pipelined loop promises; asked after every step.
pub fn check(func: &Func, l: &For, placed: Pipeline) -> Result<()> {
    let name = func.var_name(l.var);
    let no = |n, message: String, node: Node| refuse("pipeline", n, message, func, &[(node, "here")]);
    if l.kind != LoopKind::Serial || l.tensorize.is_some() {
        let message = format!("loop `{name}` {}", placement(l).unwrap_or_default());
        return Err(
            no(2, message, Node::Loop(l.var)).help("pipeline a serial loop around the staged buffers; split makes one")
        );
    }
    let stages = stages(func, l);
    if stages.is_empty() {
        let message = format!("no staged buffer is directly under loop `{name}`");
        return Err(no(3, message, Node::Loop(l.var)).help("compute_at moves one there"));
    }
    for stage in stages {
        let Buffer { name: stage_name, scope, .. } = func.buffer(stage);
        if placed.stages == 1 && !matches!(scope, Scope::Local | Scope::Fragment) {
            let message = format!("one stage for buffer `{stage_name}`, which is in {} memory", scope.name());
            return Err(no(1, message, Node::Buffer(stage)).help(
                "a stage cannot be filled while it is read: stages=2 or more; stages=1 is for staged buffers in \
                 registers, each of which is reloaded after its last use",
            ));
        }
        let at =
            |blocks: &dyn Fn(&[crate::ir::Stmt]) -> bool| l.body.iter().position(|s| blocks(std::slice::from_ref(s)));
        let filled = at(&|s| !writers_in(s, stage).is_empty());
        let read = at(&|s| !readers_in(s, stage).is_empty());
        if read.is_some_and(|r| filled.is_none_or(|f| r <= f)) {
            let message =
                format!("staged buffer `{}` is read before loop `{name}` has filled it", func.buffer(stage).name);
            return Err(
                no(4, message, Node::Buffer(stage)).help("the copy into a staged buffer must be first in the loop")
            );
        }
        if let Some(source) = overtaken(func, l, stage) {
            let (a, b) = (&func.buffer(stage).name, &func.buffer(source).name);
            let message = format!("staged buffer `{a}` loads from `{b}`, which loop `{name}` writes");
            return Err(
                no(5, message, Node::Buffer(source)).help("a loop that reads what it wrote before cannot load ahead")
            );
        }
    }
    Ok(())
}

/// The buffers that get slots under a pipelined loop.
pub fn stages(func: &Func, l: &For) -> Vec<BufferId> {
    let blocks = visit::blocks(&l.body);
    let all = visit::blocks(&func.body);
    let is_stage = |id: &BufferId| {
        let count = |bs: &[&crate::ir::Block]| {
            bs.iter().filter(|b| block_reads(b).contains(id) || block_writes(b).contains(id)).count()
        };
        let mut writers = blocks.iter().filter(|b| block_writes(b).contains(id));
        func.buffer(*id).scope != Scope::Global
            && count(&blocks) == count(&all)
            && directly(l, *id)
            && writers.all(|b| kind(func, b) == BlockKind::Map)
    };
    let mut written: Vec<BufferId> = blocks.iter().flat_map(|b| block_writes(b)).collect();
    written.sort();
    written.dedup();
    written.into_iter().filter(is_stage).collect()
}

/// Whether no pipelined loop further in holds every use of the buffer.
fn directly(l: &For, id: BufferId) -> bool {
    let uses = |s: &crate::ir::Stmt| {
        let body = std::slice::from_ref(s);
        !writers_in(body, id).is_empty() || !readers_in(body, id).is_empty()
    };
    l.body.iter().filter(|s| uses(s)).count() > 1
}

/// A global buffer that a stage loads from and that is written under the loop.
fn overtaken(func: &Func, l: &For, stage: BufferId) -> Option<BufferId> {
    let blocks = visit::blocks(&l.body);
    let written: Vec<BufferId> = blocks.iter().flat_map(|b| block_writes(b)).collect();
    let fills = blocks.iter().filter(|b| block_writes(b).contains(&stage));
    let mut sources = fills.flat_map(|b| block_reads(b));
    sources.find(|s| func.buffer(*s).scope == Scope::Global && written.contains(s))
}

#[cfg(test)]
mod tests {
    use crate::ir::Stmt;
    use crate::schedule::testing::{apply, refuses, refuses_on, steps};

    const GEMM: &str = "gemm 16x16x64 f16>f32>f16 NT";
    const STAGE: &str = "split k 4 16 -> k0 ki; reorder k0 i j ki; cache_read mma A shared -> A_s; compute_at A_s k0; ";

    #[test]
    fn stages_get_slots() {
        let text = steps(GEMM, &format!("{STAGE}pipeline k0 stages=4 in_flight=1"));
        assert!(text.contains("for k0 in 0..4 pipeline 4 in_flight 1\n"), "{text}");
    }

    #[test]
    fn refusals() {
        let no = |more: &str, code: &str, message: &str| refuses(GEMM, &format!("{STAGE}{more}"), code, message);
        no("pipeline k0 stages=0", "pipeline.1", "0 stages with 0 groups in flight");
        no("pipeline k0 stages=1", "pipeline.1", "one stage for buffer `A_s`, which is in shared memory");
        no("pipeline k0 stages=4 in_flight=4", "pipeline.1", "4 stages with 4 groups in flight");
        no("unroll k0; pipeline k0 stages=2", "pipeline.2", "loop `k0` is unrolled");
        no("pipeline k0 stages=2; pipeline k0 stages=2", "pipeline.2", "loop `k0` is pipelined");
        no("pipeline i stages=2", "pipeline.3", "no staged buffer is directly under loop `i`");
        no("pipeline k0 stages=2; set_scope A_s global", "pipeline.3", "no staged buffer is directly under loop `k0`");
    }

    #[test]
    fn stages_read_too_early_or_from_what_changes() {
        let mut func = apply(GEMM, STAGE).unwrap();
        let var = func.find_loop("k0").unwrap().var;
        crate::ir::visit::change_loop(&mut func.body, var, &mut |l| l.body.reverse());
        refuses_on(
            &func,
            "pipeline k0 stages=2",
            "pipeline.4",
            "staged buffer `A_s` is read before loop `k0` has filled it",
        );
        let mut func = apply(GEMM, STAGE).unwrap();
        let (a, acc) = (func.find_buffer("A").unwrap(), func.find_buffer("acc").unwrap());
        let id = func.find_block("mma").unwrap().name;
        crate::ir::visit::change_block(&mut func.body, id, &mut |b| {
            for stmt in b.body.iter_mut().chain(b.init.iter_mut().flatten()) {
                if let Stmt::Store(s) = stmt {
                    s.buffer = if s.buffer == acc { a } else { s.buffer };
                }
            }
        });
        let message = "staged buffer `A_s` loads from `A`, which loop `k0` writes";
        refuses_on(&func, "pipeline k0 stages=2", "pipeline.5", message);
    }
}
