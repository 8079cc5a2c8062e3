//! What a picture of a schedule shows: boxes of loops, the statements inside, and the buffers.

use super::words::Words;
use crate::ir::simplify::Env;
use crate::ir::{Axis, Block, BufferId, CopyKind, For, Func, Index, IterKind, LoopKind, Scope, Stmt, region, visit};

/// What a box represents, which is its colour. In the order of the legend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A loop over blocks of the grid.
    Grid,
    /// A loop over the blocks of a cluster.
    Cluster,
    /// A loop over warpgroups.
    Warpgroup,
    /// A loop over warps.
    Warp,
    /// A loop over threads.
    Thread,
    /// A loop whose stages are a ring.
    Pipelined,
    /// A loop of one iteration after the other.
    Serial,
    /// A loop that is written out.
    Unrolled,
    /// A loop that is one vector access.
    Vectorized,
    /// A nest that is one instruction.
    Instruction,
}

impl Kind {
    /// What the legend says.
    pub fn legend(self) -> &'static str {
        match self {
            Kind::Grid => "thread blocks of the grid",
            Kind::Cluster => "blocks of a cluster",
            Kind::Warpgroup => "warpgroups",
            Kind::Warp => "warps",
            Kind::Thread => "threads",
            Kind::Pipelined => "serial, pipelined",
            Kind::Serial => "serial",
            Kind::Unrolled => "unrolled",
            Kind::Vectorized => "one vector access",
            Kind::Instruction => "one instruction",
        }
    }

    /// The class in the style sheet.
    pub fn class(self) -> &'static str {
        match self {
            Kind::Grid => "grid",
            Kind::Cluster => "cluster",
            Kind::Warpgroup => "warpgroup",
            Kind::Warp => "warp",
            Kind::Thread => "thread",
            Kind::Pipelined => "pipelined",
            Kind::Serial => "serial",
            Kind::Unrolled => "unrolled",
            Kind::Vectorized => "vectorized",
            Kind::Instruction => "instruction",
        }
    }

    fn of(l: &For) -> Kind {
        match l.kind {
            _ if l.tensorize.is_some() => Kind::Instruction,
            _ if l.pipeline.is_some() => Kind::Pipelined,
            LoopKind::Serial => Kind::Serial,
            LoopKind::Unrolled => Kind::Unrolled,
            LoopKind::Vectorized => Kind::Vectorized,
            LoopKind::Bound { axis: Axis::Cluster, .. } => Kind::Cluster,
            LoopKind::Bound { axis: Axis::Warpgroup, .. } => Kind::Warpgroup,
            LoopKind::Bound { axis: Axis::Warp, .. } => Kind::Warp,
            LoopKind::Bound { axis, .. } if axis.is_block_level() => Kind::Grid,
            LoopKind::Bound { .. } => Kind::Thread,
            LoopKind::Persistent { .. } => Kind::Grid,
        }
    }
}

/// A box, from outside to inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// Loops of one kind, each directly inside the one before it.
    Loops {
        /// The colour.
        kind: Kind,
        /// Each with its range.
        loops: String,
        /// How they run.
        how: String,
        /// What runs in an iteration.
        body: Vec<Item>,
    },
    /// A block.
    Statement {
        /// Its name.
        name: String,
        /// Its role, and the mechanism of its copy.
        how: Vec<String>,
        /// Statements.
        lines: Vec<String>,
    },
}

/// A buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub scope: Scope,
    /// Type and extents, those of the part that is in use at a time.
    pub shape: String,
    /// Who has one, and how its bytes are laid out.
    pub how: String,
}

/// The boxes of a body.
pub fn items(func: &Func, words: &Words<'_>, body: &[Stmt]) -> Vec<Item> {
    body.iter().flat_map(|s| item(func, words, s)).collect()
}

fn item(func: &Func, words: &Words<'_>, stmt: &Stmt) -> Vec<Item> {
    let one = match stmt {
        // A serial loop of one iteration is no box.
        Stmt::For(l) if Kind::of(l) == Kind::Serial && l.extent.as_int() == Some(1) => {
            return items(func, words, &l.body);
        }
        Stmt::For(l) => loops(func, words, l),
        Stmt::Block(b) => block(func, words, b),
        Stmt::If(i) => Item::Loops {
            kind: Kind::Serial,
            loops: format!("if {}", crate::ir::print::cond(func, &i.cond)),
            how: String::new(),
            body: items(func, words, &i.body),
        },
        other => {
            let text = crate::ir::print::stmts(func, std::slice::from_ref(other));
            let lines = text.lines().map(str::to_string).collect();
            Item::Statement { name: String::new(), how: Vec::new(), lines }
        }
    };
    vec![one]
}

/// A loop with those directly inside that run alike: one box.
fn loops(func: &Func, words: &Words<'_>, first: &For) -> Item {
    if let Some((kind, how, nest, block)) = collective(func, first) {
        let ranges: Vec<String> = nest.into_iter().map(|l| range(func, l)).collect();
        return Item::Loops { kind, loops: ranges.join(", "), how, body: vec![self::block(func, words, block)] };
    }
    let kind = Kind::of(first);
    let (mut ranges, mut how, mut last) = (vec![range(func, first)], vec![manner(func, first)], first);
    while let [Stmt::For(next)] = last.body.as_slice() {
        // An instruction is its whole nest; what is pipelined, persistent or ping-pong is a box of its own.
        let alike = Kind::of(next) == kind && kind != Kind::Pipelined && kind != Kind::Warpgroup;
        if kind != Kind::Instruction && !alike {
            break;
        }
        if next.extent.as_int() != Some(1) || kind != Kind::Serial {
            ranges.push(range(func, next));
        }
        how.push(if kind == Kind::Instruction { String::new() } else { manner(func, next) });
        last = next;
    }
    how.retain(|h| !h.is_empty());
    how.dedup();
    Item::Loops { kind, loops: ranges.join(", "), how: how.join(", "), body: items(func, words, &last.body) }
}

/// A nest of one block that no thread runs as a loop: a bulk copy of its box, or elements of a fragment that each lane has its own of.
fn collective<'a>(func: &Func, first: &'a For) -> Option<(Kind, String, Vec<&'a For>, &'a Block)> {
    let mut nest = Vec::new();
    let (mut l, mut inside): (&For, &[Stmt]) = (first, &first.body);
    let block = loop {
        if !matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled) || l.pipeline.is_some() || l.tensorize.is_some() {
            return None;
        }
        nest.push(l);
        match inside {
            [Stmt::For(next)] => (l, inside) = (next, &next.body),
            [Stmt::Block(b)] => break b,
            _ => return None,
        }
    };
    let touched = visit::reads(&block.body).into_iter().chain(visit::writes(&block.body));
    let of_lanes = touched.into_iter().any(|b| func.buffer(b).scope == Scope::Fragment);
    match block.copy_with.as_ref().map(|c| c.kind) {
        Some(CopyKind::Tma) => Some((Kind::Instruction, "one bulk copy".to_string(), nest, block)),
        _ if of_lanes => Some((Kind::Thread, "each lane the elements it holds".to_string(), nest, block)),
        _ => None,
    }
}

/// `i in 0..4`.
fn range(func: &Func, l: &For) -> String {
    let index = |i| crate::ir::print::index(func, i);
    match &l.raster {
        None => format!("{} in 0..{}", func.var_name(l.var), index(&l.extent)),
        Some(r) => {
            let (outer, inner) = (func.var_name(r.outer), func.var_name(r.inner));
            format!("({outer}, {inner}) in {} x {}", index(&r.outer_extent), index(&r.inner_extent))
        }
    }
}

/// What is said of a loop besides its range.
fn manner(func: &Func, l: &For) -> String {
    let mut out = Vec::new();
    match l.kind {
        LoopKind::Serial | LoopKind::Persistent { .. } => {}
        LoopKind::Unrolled => out.push("unrolled".to_string()),
        LoopKind::Vectorized => out.push("vectorized".to_string()),
        LoopKind::Bound { axis, .. } => out.push(axis.name().to_string()),
    }
    if l.is_persistent() {
        out.push("persistent".to_string());
    }
    if l.is_pingpong() {
        out.push("ping-pong".to_string());
    }
    if let Some(r) = &l.raster {
        out.push(format!("in groups of {} rows", r.group));
    }
    if let Some(p) = l.pipeline {
        out.push(format!("pipeline of {} stages", p.stages));
        if p.in_flight > 0 {
            out.push(format!("{} in flight", p.in_flight));
        }
    }
    if let Some(t) = &l.tensorize {
        out.push(t.row.clone());
        let dims = t.dims.iter().map(|(dim, var)| format!("{dim}={}", func.var_name(*var)));
        out.push(dims.collect::<Vec<_>>().join(" "));
    }
    out.extend(l.notes.iter().map(|(note, value)| format!("{} {value}", note.name())));
    let launches = func.launches.iter().filter(|launch| launch.of == l.var);
    out.extend(launches.flat_map(|launch| launch.options.stated()).map(|(name, value)| format!("{name} {value}")));
    out.join(", ")
}

fn block(func: &Func, words: &Words<'_>, b: &Block) -> Item {
    let mut how = Vec::new();
    if let Some(role) = b.role.and_then(|r| func.roles.get(r.0 as usize)) {
        how.push(format!("role {}", role.name));
    }
    if let Some(c) = &b.copy_with {
        let multicast = c.multicast.map_or(String::new(), |v| format!(", multicast over {}", func.var_name(v)));
        let through = if c.through_l1 { ", through L1" } else { "" };
        how.push(format!("{}{multicast}{through}", c.kind.name()));
    }
    let reduces: Vec<_> = b.iters.iter().filter(|i| i.kind == IterKind::Reduce).collect();
    let loops = visit::loops(&func.body).into_iter();
    let mut across = loops.filter(|l| reduces.iter().any(|i| i.binding.mentions(l.var))).filter_map(|l| l.axis());
    if let Some(axis) = across.next() {
        how.push(format!("reduction across {}", axis.name()));
    } else if !reduces.is_empty() {
        how.push("reduction".to_string());
    }
    Item::Statement { name: func.block_name(b.name).to_string(), how, lines: words.block(b) }
}

/// The buffers of a program, parameters first, then by scope.
pub fn buffers(func: &Func) -> Vec<Shown> {
    let used: Vec<BufferId> = visit::reads(&func.body).into_iter().chain(visit::writes(&func.body)).collect();
    let mut ids: Vec<BufferId> = (0..func.buffers.len() as u32).map(BufferId).filter(|b| used.contains(b)).collect();
    ids.sort_by_key(|id| (func.buffer(*id).scope, !func.params.contains(id)));
    ids.into_iter().map(|id| buffer(func, id)).collect()
}

fn buffer(func: &Func, id: BufferId) -> Shown {
    let b = func.buffer(id);
    let whole = || b.shape.iter().map(|e| crate::ir::print::index(func, e)).collect::<Vec<_>>();
    let part = (b.scope != Scope::Global).then(|| region::in_use(&of_one(func, id), id, &[], &Env::new())).flatten();
    let extents = match part {
        Some(part) => {
            let extents: Vec<i64> = part.iter().filter_map(|r| r.extent.as_int()).collect();
            // A dimension of one element is that of a loop around.
            let kept: Vec<String> = extents.iter().filter(|e| **e > 1).map(i64::to_string).collect();
            if kept.is_empty() { vec!["1".to_string()] } else { kept }
        }
        None => whole(),
    };
    let mut how = Vec::new();
    let is_written = visit::writes(&func.body).contains(&id);
    let is_read = visit::reads(&func.body).contains(&id);
    match b.scope {
        Scope::Global if func.params.contains(&id) => how.push(if is_written { "output" } else { "input" }.to_string()),
        Scope::Global => how.push("workspace".to_string()),
        Scope::Cluster => how.push("per cluster".to_string()),
        Scope::Shared => how.push("per block".to_string()),
        Scope::Fragment if is_of_warpgroups(func, id) => how.push("per warpgroup".to_string()),
        Scope::Fragment => how.push("per warp".to_string()),
        Scope::Local => how.push("per thread".to_string()),
    }
    if !is_read && b.scope != Scope::Global {
        how.push("not read".to_string());
    }
    if let Some(stages) = stages(func, id) {
        how.push(format!("{stages} stages"));
    }
    if let Some(bytes) = b.swizzle {
        how.push(format!("swizzle {bytes}"));
    }
    if b.storage_align.is_some() {
        how.push("padded rows".to_string());
    }
    Shown {
        name: b.name.clone(),
        scope: b.scope,
        shape: format!("{} {}", b.dtype, extents.join(" x ")),
        how: how.join(", "),
    }
}

/// Whether warpgroups hold a fragment: a loop over warpgroups is around what writes it.
fn is_of_warpgroups(func: &Func, id: BufferId) -> bool {
    let groups = visit::loops(&func.body).into_iter().filter(|l| l.axis() == Some(Axis::Warpgroup));
    groups.into_iter().any(|l| visit::writes(&l.body).contains(&id))
}

/// The program of one of the units that have a buffer of their own: of one thread, warp or warpgroup.
fn of_one(func: &Func, id: BufferId) -> Func {
    let level = match func.buffer(id).scope {
        Scope::Global | Scope::Cluster | Scope::Shared => return func.clone(),
        Scope::Fragment if is_of_warpgroups(func, id) => Axis::Warpgroup.level(),
        Scope::Fragment => Axis::Warp.level(),
        Scope::Local => Axis::ThreadX.level(),
    };
    let mut one = func.clone();
    one.body = visit::rewrite(std::mem::take(&mut one.body), &mut |mut s| {
        if let Stmt::For(l) = &mut s
            && l.axis().is_some_and(|a| !a.is_block_level() && a.level() <= level)
        {
            l.extent = Index::Int(1);
        }
        vec![s]
    });
    one
}

/// The stages of a buffer that is filled and read in each iteration of a pipelined loop, and nowhere else. Registers have stages where they
/// are copies.
fn stages(func: &Func, id: BufferId) -> Option<u32> {
    let body = &func.body;
    let copies = |b: &&Block| match b.body.as_slice() {
        [Stmt::Store(s)] => s.buffer != id || s.source().is_some(),
        _ => false,
    };
    if func.buffer(id).scope != Scope::Shared && !visit::blocks(body).iter().all(copies) {
        return None;
    }
    let touches = |body: &[Stmt]| visit::reads(body).contains(&id) || visit::writes(body).contains(&id);
    let blocks = |body: &[Stmt]| visit::blocks(body).iter().filter(|b| touches(&b.body)).count();
    let holds = |l: &&For| {
        let several = l.body.iter().filter(|s| touches(std::slice::from_ref(*s))).count() > 1;
        several && blocks(&l.body) == blocks(body)
    };
    let inner = visit::loops(body).into_iter().filter(holds).rfind(|l| l.pipeline.is_some())?;
    inner.pipeline.map(|p| p.stages)
}
