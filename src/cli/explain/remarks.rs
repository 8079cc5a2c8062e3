//! Remarks on a schedule: what its placements amount to and its text does not show.

use crate::intrin;
use crate::ir::simplify::{Affine, affine};
use crate::ir::{Axis, Block, BufferId, CopyKind, Expr, For, Func, Index, LoopKind, Scope, Stmt, visit};
use crate::target::Target;

/// What the placements of a program come to that its text does not show.
pub fn remarks(func: &Func) -> Vec<String> {
    let mut out = Vec::new();
    for (n, nest) in func.body.iter().enumerate() {
        let inside = visit::loops(std::slice::from_ref(nest));
        let bound = |level: fn(Axis) -> bool| inside.iter().any(|l| l.axis().is_some_and(level));
        let names: Vec<&str> =
            visit::blocks(std::slice::from_ref(nest)).iter().map(|b| func.block_name(b.name)).collect();
        let nest_name = format!("kernel {} ({})", n + 1, names.join(", "));
        match (bound(Axis::is_block_level), bound(|a| !a.is_block_level())) {
            (false, false) => out.push(format!("{nest_name} has no bound loop: it runs as one block of one thread")),
            (false, true) => out.push(format!("{nest_name} has no loop bound to blocks: it runs as one block")),
            (true, false) => out.push(format!("{nest_name} has no loop bound to threads: its blocks have one thread")),
            (true, true) => {}
        }
        if bound(|a| !a.is_block_level()) {
            lone_stages(func, std::slice::from_ref(nest), &mut Vec::new(), &mut out);
        }
    }
    out.extend(strided(func));
    out.extend(overlapping(func));
    out.extend((0..func.buffers.len() as u32).filter_map(|n| workspace(func, BufferId(n))));
    out
}

/// Vectorized loops whose accesses are not adjacent: one access for each element.
fn strided(func: &Func) -> Vec<String> {
    let mut out = Vec::new();
    for l in visit::loops(&func.body).into_iter().filter(|l| l.kind == LoopKind::Vectorized) {
        for block in visit::blocks(&l.body) {
            let bindings: visit::Map = block.iters.iter().map(|i| (i.var, i.binding.clone())).collect();
            for (buffer, indices) in accesses(block) {
                let Some((last, leading)) = indices.split_last() else { continue };
                let along = |index: &Index| affine(&visit::subst_index(index, &bindings));
                let step =
                    |sum: &Affine| sum.terms.iter().find(|(atom, _)| atom.as_var() == Some(l.var)).map_or(0, |t| t.1);
                let is_outer = leading.iter().any(|i| step(&along(i)) != 0);
                if is_outer || step(&along(last)).abs() > 1 {
                    let (name, buffer) = (func.var_name(l.var), &func.buffer(buffer).name);
                    let block = func.block_name(block.name);
                    let remark = format!(
                        "vectorize {name}: adjacent iterations access elements of {buffer} that are not adjacent, so block {block} \
                         accesses {buffer} one element at a time"
                    );
                    if !out.contains(&remark) {
                        out.push(remark);
                    }
                }
            }
        }
    }
    out
}

/// Every element that a block reads or writes outside of its init.
fn accesses(block: &Block) -> Vec<(BufferId, &[Index])> {
    let mut out: Vec<(BufferId, &[Index])> = Vec::new();
    visit::walk(&block.body, &mut |s| {
        if let Stmt::Store(s) = s {
            out.push((s.buffer, &s.indices));
            visit::walk_expr(&s.value, &mut |e| {
                if let Expr::Load { buffer, indices, .. } = e {
                    out.push((*buffer, indices));
                }
            });
        }
    });
    out
}

/// Shared memory that several threads fill with the same elements: the region of each thread overlaps those of others.
fn overlapping(func: &Func) -> Vec<String> {
    let mut out = Vec::new();
    for block in visit::blocks(&func.body) {
        let [Stmt::Store(store)] = block.body.as_slice() else { continue };
        let around = visit::loops_around(&func.body, block.name).unwrap_or_default();
        if func.buffer(store.buffer).scope != Scope::Shared || around.iter().any(|l| l.tensorize.is_some()) {
            continue;
        }
        let bindings: visit::Map = block.iters.iter().map(|i| (i.var, i.binding.clone())).collect();
        for index in &store.indices {
            let sum = affine(&visit::subst_index(index, &bindings));
            let step =
                |l: &For| sum.terms.iter().find(|(atom, _)| atom.as_var() == Some(l.var)).map_or(0, |t| t.1.abs());
            let is_thread = |l: &&&For| l.axis().is_some_and(|a| !a.is_block_level());
            let Some(thread) = around.iter().filter(is_thread).filter(|l| step(l) > 0).min_by_key(|l| step(l)) else {
                continue;
            };
            let inner = around.iter().skip_while(|l| l.var != thread.var).skip(1);
            let reach: i64 = inner.filter_map(|l| Some(step(l) * (l.extent.as_int()? - 1))).sum();
            if reach >= step(thread) {
                let (name, buffer) = (func.block_name(block.name), &func.buffer(store.buffer).name);
                out.push(format!(
                    "threads of {} fill overlapping elements of {buffer}: `compute_at {name}` outside of {} and bind a loop of its own \
                     to threads, so that each element is filled once",
                    func.var_name(thread.var),
                    func.var_name(thread.var)
                ));
                break;
            }
        }
    }
    out
}

/// Instructions that the chip has in name only.
pub fn emulated(func: &Func, target: &Target) -> Vec<String> {
    let mut out = Vec::new();
    for l in visit::loops(&func.body) {
        let row = l.tensorize.as_ref().and_then(|t| intrin::find(&t.row)).filter(|row| row.is_emulated_on(target));
        out.extend(row.map(|row| {
            let name = func.var_name(l.var);
            format!("tensorize {name} {}: emulated on {target}, by a routine of other instructions that is many times slower", row.name)
        }));
    }
    out
}

/// What lies between kernels: a global buffer that is no parameter.
fn workspace(func: &Func, id: BufferId) -> Option<String> {
    let buffer = func.buffer(id);
    if buffer.scope != Scope::Global || func.params.contains(&id) {
        return None;
    }
    let touching = |touched: fn(&[Stmt]) -> Vec<BufferId>, verb: &str| {
        let nests = func.body.iter().zip(1..).filter(|(nest, _)| touched(std::slice::from_ref(*nest)).contains(&id));
        let numbers: Vec<String> = nests.map(|(_, n): (_, usize)| n.to_string()).collect();
        match &numbers[..] {
            [] => format!("no kernel {verb}s it"),
            [one] => format!("kernel {one} {verb}s it"),
            [first @ .., last] => format!("kernels {} and {last} {verb} it", first.join(", ")),
        }
    };
    let bytes = buffer.dtype.bytes_of(u64::try_from(buffer.elements()?).ok()?);
    Some(format!(
        "{} is workspace of {bytes} bytes: {}, {}",
        buffer.name,
        touching(visit::writes, "write"),
        touching(visit::reads, "read")
    ))
}

/// What one thread of many does alone: blocks under no loop that is bound to threads, and shared stages that neither
/// mention such a loop nor share its iterations out.
fn lone_stages<'a>(func: &Func, body: &'a [Stmt], around: &mut Vec<&'a For>, out: &mut Vec<String>) {
    for stmt in body {
        match stmt {
            Stmt::For(l) => {
                around.push(l);
                lone_stages(func, &l.body, around, out);
                around.pop();
            }
            Stmt::Block(b) => out.extend(lone_stage(func, b, around)),
            Stmt::If(i) => lone_stages(func, &i.body, around, out),
            Stmt::Store(_) | Stmt::Sync(_) | Stmt::Call(_) | Stmt::Bulk(_) | Stmt::Elect(_) | Stmt::Role(_) => {}
        }
    }
}

fn lone_stage(func: &Func, block: &Block, around: &[&For]) -> Option<String> {
    let together = block.copy_with.as_ref().is_some_and(|c| c.kind == CopyKind::Tma);
    if together || around.iter().any(|l| l.tensorize.is_some()) {
        return None;
    }
    let name = func.block_name(block.name);
    let threads: Vec<&&For> = around.iter().filter(|l| l.axis().is_some_and(|a| !a.is_block_level())).collect();
    if threads.is_empty() {
        return Some(format!("block {name} is under no loop bound to threads: one thread of a block runs it"));
    }
    let written = visit::writes(&block.body).into_iter().find(|b| func.buffer(*b).scope == Scope::Shared)?;
    let mentioned = |l: &For| l.defines().iter().any(|(v, _)| block.iters.iter().any(|i| i.binding.mentions(*v)));
    if threads.iter().any(|l| mentioned(l)) {
        return None;
    }
    let loops: Vec<&str> = threads.iter().map(|l| func.var_name(l.var)).collect();
    let buffer = &func.buffer(written).name;
    let loops = loops.join(" and ");
    Some(format!(
        "block {name} fills {buffer} once for all iterations of {loops}, and none of its own loops is bound: one \
         thread fills it"
    ))
}
