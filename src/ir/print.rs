//! Programs as text, with the place of every name.
//!
//! The text says everything that a program means and how it is to run, one statement a line, in the order in which
//! it runs. Indices print with as few parentheses as their tree needs, floating-point literals so that they parse
//! back exactly. [`Printed::spans`] holds where each loop, block and buffer is introduced (its first span) and used,
//! so that an error can [`underline`] them. [`Printed::lines`] says what each line is.

mod expr;
mod lowered;
mod printed;

use super::{
    Axis, BindMode, Block, BlockId, Buffer, BufferId, Cond, Expr, For, Func, Index, IterKind, LoopKind, Peers, Stmt,
    Store, Var, visit,
};
use crate::dtype::DType;
use crate::error::Error;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

pub use printed::{INDENT, LineKind, Node, Printed, PrintedLine};

/// Prints a program with the places of its names.
pub fn print(func: &Func) -> Printed {
    let mut p = Printer::new(func);
    p.program();
    p.printed()
}

/// Prints a program.
pub fn func(func: &Func) -> String {
    print(func).text
}

/// Prints an index.
pub fn index(func: &Func, index: &Index) -> String {
    let mut p = Printer::new(func);
    p.index(index);
    p.text
}

/// Prints a condition.
pub fn cond(func: &Func, cond: &Cond) -> String {
    let mut p = Printer::new(func);
    p.cond(cond);
    p.text
}

/// Prints an expression; a literal shows its type where nothing beside it does.
pub fn expr(func: &Func, expr: &Expr) -> String {
    expr_with(func, expr, None, &HashMap::new())
}

/// Prints an expression of which the type may be known, with other names for some variables.
pub fn expr_with(func: &Func, expr: &Expr, expected: Option<DType>, names: &HashMap<Var, String>) -> String {
    let mut p = Printer::new(func);
    p.names = Some(names);
    p.expr(expr, expected);
    p.text
}

/// Prints statements.
pub fn stmts(func: &Func, body: &[Stmt]) -> String {
    let mut p = Printer::new(func);
    p.body(body);
    p.text
}

/// Attaches the printed program to an error and underlines where the given names are introduced. A name that is
/// not in the program is passed over.
pub fn underline(error: Error, func: &Func, nodes: &[(Node, &str)]) -> Error {
    let printed = print(func);
    let labels: Vec<_> = nodes.iter().filter_map(|(n, m)| Some((printed.introduced(*n)?, *m))).collect();
    let error = error.text(printed.text);
    labels.into_iter().fold(error, |e, (span, message)| e.label(span, message))
}

/// The text so far; statements append lines, expressions append to the line.
pub(in crate::ir) struct Printer<'a> {
    func: &'a Func,
    text: String,
    spans: Vec<(Node, Range<usize>)>,
    statements: Vec<Range<usize>>,
    lines: Vec<PrintedLine>,
    depth: usize,
    /// Names that replace those of the program.
    names: Option<&'a HashMap<Var, String>>,
    /// Variables that represent data, with the least value and the datum of each.
    gathered: Vec<(Var, i64, Expr)>,
}

impl<'a> Printer<'a> {
    pub(in crate::ir) fn new(func: &'a Func) -> Printer<'a> {
        Printer {
            func,
            text: String::new(),
            spans: Vec::new(),
            statements: Vec::new(),
            lines: Vec::new(),
            depth: 0,
            names: None,
            gathered: Vec::new(),
        }
    }

    /// What was printed.
    pub(in crate::ir) fn printed(self) -> Printed {
        Printed { text: self.text, spans: self.spans, statements: self.statements, lines: self.lines }
    }

    pub(in crate::ir) fn func(&self) -> &'a Func {
        self.func
    }

    pub(in crate::ir) fn put(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn name(&mut self, node: Node, name: &str) {
        let start = self.text.len();
        self.put(name);
        self.spans.push((node, start..self.text.len()));
    }

    // A malformed program prints too: verify shows it to the user.
    pub(in crate::ir) fn var(&mut self, var: Var) {
        let func = self.func;
        let renamed = self.names.and_then(|names| names.get(&var));
        match renamed.or_else(|| func.vars.get(var.0 as usize)) {
            Some(name) => self.name(Node::Loop(var), name),
            None => self.name(Node::Loop(var), &format!("?{}", var.0)),
        }
    }

    fn block_name(&mut self, block: BlockId) {
        let func = self.func;
        match func.blocks.get(block.0 as usize) {
            Some(name) => self.name(Node::Block(block), name),
            None => self.name(Node::Block(block), &format!("?{}", block.0)),
        }
    }

    pub(in crate::ir) fn buffer_name(&mut self, buffer: BufferId) {
        let func = self.func;
        match func.buffers.get(buffer.0 as usize) {
            Some(b) => self.name(Node::Buffer(buffer), &b.name),
            None => self.name(Node::Buffer(buffer), &format!("?{}", buffer.0)),
        }
    }

    pub(in crate::ir) fn mbarrier_name(&mut self, array: u32) {
        let func = self.func;
        let name = func.mbarriers.get(array as usize).map_or("?", |b| b.name.as_str());
        self.name(Node::Mbarrier(array), name);
    }

    /// Starts a line.
    fn line(&mut self, kind: LineKind) {
        let at = self.text.len();
        self.lines.push(PrintedLine { kind, span: at..at, depth: self.depth, bindings: None, comment: None });
        self.text.extend(std::iter::repeat_n(' ', self.depth * INDENT));
    }

    fn end(&mut self) {
        if let Some(line) = self.lines.last_mut() {
            line.span.end = self.text.len();
        }
        self.put("\n");
    }

    /// The rest of the line is a comment.
    fn comment(&mut self, text: &str) {
        if let Some(line) = self.lines.last_mut() {
            line.comment = Some(self.text.len());
        }
        self.put(text);
    }

    /// A line above the program that is a comment.
    pub(in crate::ir) fn comment_line(&mut self, print: impl FnOnce(&mut Self)) {
        self.line(LineKind::Comment);
        self.comment("# ");
        print(self);
        self.end();
    }

    fn separated<T>(&mut self, items: &[T], mut f: impl FnMut(&mut Self, &T)) {
        for (n, item) in items.iter().enumerate() {
            if n > 0 {
                self.put(", ");
            }
            f(self, item);
        }
    }

    pub(in crate::ir) fn program(&mut self) {
        let func = self.func;
        self.line(LineKind::Head);
        self.put("func ");
        self.put(&func.name);
        self.put("(");
        self.separated(&func.params, |p, &b| p.buffer(b));
        self.put(")");
        self.end();
        self.depth += 1;
        for size in &func.sizes {
            self.line(LineKind::Declaration);
            self.put("size ");
            self.name(Node::Loop(size.var), &size.size.name);
            self.put(&size.size.text()[5 + size.size.name.len()..]);
            self.end();
        }
        let used: HashSet<BufferId> = visit::reads(&func.body).into_iter().chain(visit::writes(&func.body)).collect();
        // The kernels of a program share its list of buffers; each prints those that it touches.
        for id in (0..func.buffers.len() as u32).map(BufferId).filter(|b| !func.params.contains(b) && used.contains(b))
        {
            self.line(LineKind::Declaration);
            self.buffer(id);
            self.end();
        }
        for role in &func.roles {
            self.line(LineKind::Declaration);
            self.put(&format!("role {} warps={}", role.name, role.warps));
            if let Some(regs) = role.regs {
                self.put(&format!(" regs={regs}"));
            }
            self.end();
        }
        for launch in &func.launches {
            // Errors underline a name where it is introduced, which is at its loop.
            self.line(LineKind::Declaration);
            self.put(&launch.text(func));
            self.end();
        }
        self.body(&func.body);
        self.depth -= 1;
    }

    /// `NAME: SCOPE TYPE[EXTENTS] PLACEMENTS`.
    fn buffer(&mut self, id: BufferId) {
        self.buffer_name(id);
        let func = self.func;
        let Some(b) = func.buffers.get(id.0 as usize) else { return };
        self.put(&format!(": {} {}[", b.scope.name(), b.dtype));
        self.separated(&b.shape, |p, extent| p.index(extent));
        self.put("]");
        self.placements(b);
    }

    fn placements(&mut self, b: &Buffer) {
        if let Some(strides) = &b.strides {
            self.put(" strides [");
            self.separated(strides, |p, s| p.put(&s.to_string()));
            self.put("]");
        }
        if b.align != 16 {
            self.put(&format!(" align {}", b.align));
        }
        if let Some(a) = b.storage_align {
            self.put(&format!(" storage_align {} {} {}", a.dim, a.factor, a.offset));
        }
        if let Some(s) = b.swizzle {
            self.put(&format!(" swizzle {s}"));
        }
        if let Some(o) = b.offset {
            self.put(&format!(" @{o}"));
        }
        if let Some(role) = b.role.and_then(|r| self.func.roles.get(r.0 as usize)) {
            self.put(&format!(" role {}", role.name));
        }
    }

    fn body(&mut self, body: &[Stmt]) {
        for stmt in body {
            self.line(match stmt {
                Stmt::For(_) => LineKind::Loop,
                Stmt::Block(_) => LineKind::Block,
                Stmt::If(_) | Stmt::Elect(_) | Stmt::Role(_) => LineKind::Guard,
                Stmt::Store(_) | Stmt::Sync(_) | Stmt::Call(_) | Stmt::Bulk(_) => LineKind::Statement,
            });
            self.stmt(stmt);
        }
    }

    fn indented(&mut self, body: &[Stmt]) {
        self.depth += 1;
        self.body(body);
        self.depth -= 1;
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::For(l) => self.for_loop(l),
            Stmt::Block(b) => self.block(b),
            Stmt::Store(s) => self.statement(|p| p.store(s)),
            Stmt::If(i) => {
                self.put("if ");
                self.cond(&i.cond);
                self.end();
                self.indented(&i.body);
            }
            Stmt::Sync(s) => self.statement(|p| p.sync(s)),
            Stmt::Call(call) => self.statement(|p| p.call_of(call)),
            Stmt::Bulk(copy) => self.statement(|p| p.bulk(copy)),
            Stmt::Elect(e) => self.elect(e),
            Stmt::Role(r) => self.role(r),
        }
    }

    /// A line of its own, whose place is kept.
    fn statement(&mut self, print: impl FnOnce(&mut Self)) {
        let start = self.text.len();
        print(self);
        self.statements.push(start..self.text.trim_end().len());
    }

    fn for_loop(&mut self, l: &For) {
        self.put("for ");
        match &l.raster {
            None => {
                self.var(l.var);
                self.put(" in 0..");
                self.index(&l.extent);
            }
            Some(r) => {
                self.put("(");
                self.var(r.outer);
                self.put(", ");
                self.var(r.inner);
                self.put(") in ");
                self.index(&r.outer_extent);
                self.put(" x ");
                self.index(&r.inner_extent);
                self.put(&format!(" grouped {} as ", r.group));
                self.var(l.var);
            }
        }
        match l.kind {
            LoopKind::Serial => {}
            LoopKind::Unrolled => self.put(" unrolled"),
            LoopKind::Vectorized => self.put(" vectorized"),
            LoopKind::Bound { axis, mode } => {
                self.axis(axis);
                self.put(match mode {
                    BindMode::Plain => "",
                    BindMode::Persistent => " persistent",
                    BindMode::PingPong => " pingpong",
                });
            }
            LoopKind::Persistent { round } => {
                self.put(" by the blocks of the grid, round ");
                self.var(round);
            }
        }
        self.loop_placements(l);
        self.end();
        self.indented(&l.body);
    }

    fn axis(&mut self, axis: Axis) {
        self.put(" @");
        self.put(axis.name());
    }

    fn loop_placements(&mut self, l: &For) {
        if let Some(p) = l.pipeline {
            self.put(&format!(" pipeline {} in_flight {}", p.stages, p.in_flight));
        }
        if let Some(t) = &l.tensorize {
            self.put(" tensorize ");
            self.put(&t.row);
            for (dim, var) in &t.dims {
                self.put(&format!(" {dim}="));
                self.var(*var);
            }
        }
        for (note, value) in &l.notes {
            self.put(&format!(" {}={value}", note.name()));
        }
        self.loop_code(l);
    }

    fn loop_code(&mut self, l: &For) {
        let code = &l.code;
        match code.copies {
            Some(_) if l.is_written_out() && l.kind != LoopKind::Unrolled => self.put(", written out"),
            Some(copies) if copies > 1 && !l.is_written_out() => self.put(&format!(", {copies} at a time")),
            _ => {}
        }
        if let Some(backwards) = &code.backwards {
            self.put(", backwards where ");
            self.index(backwards);
            self.put(" = 1");
        }
        if code.permutes {
            self.put(", by byte permutations");
        }
        if code.realigns {
            self.put(", by aligned words");
        }
        for counter in &code.counters {
            self.put(", counts ");
            self.index(counter);
        }
    }

    fn block(&mut self, b: &Block) {
        self.put("block ");
        self.block_name(b.name);
        if !b.iters.is_empty() {
            self.bindings(b);
        }
        self.block_placements(b);
        self.end();
        self.depth += 1;
        if !b.predicate.is_true() {
            self.line(LineKind::Where);
            self.put("where ");
            self.cond(&b.predicate);
            self.end();
        }
        self.init(b);
        self.body(&b.body);
        self.depth -= 1;
    }

    fn bindings(&mut self, b: &Block) {
        let start = self.text.len();
        self.put("(");
        self.separated(&b.iters, |p, it| {
            if it.kind == IterKind::Reduce {
                p.put("reduce ");
            }
            p.var(it.var);
            p.put(" = ");
            p.index(&it.binding);
        });
        self.put(")");
        if let Some(line) = self.lines.last_mut() {
            line.bindings = Some(start..self.text.len());
        }
    }

    fn block_placements(&mut self, b: &Block) {
        if let Some(c) = &b.copy_with {
            self.put(" copy_with ");
            self.put(c.kind.name());
            if let Some(v) = c.multicast {
                self.put(" multicast=");
                self.var(v);
            }
            if c.through_l1 {
                self.put(" cache=l1");
            }
        }
        if let Some(role) = b.role.and_then(|r| self.func.roles.get(r.0 as usize)) {
            self.put(&format!(" role {}", role.name));
        }
    }

    fn init(&mut self, b: &Block) {
        let Some(init) = &b.init else { return };
        self.line(LineKind::Init);
        match init.as_slice() {
            [Stmt::Store(s)] => {
                self.put("init ");
                self.statement(|p| p.store(s));
            }
            several => {
                self.put("init");
                self.end();
                self.indented(several);
            }
        }
    }

    fn store(&mut self, s: &Store) {
        if s.asynchronous {
            self.put("async ");
        }
        if let Some(to) = &s.remote {
            let what = if to.full.is_some() { "st_async" } else { "broadcast" };
            match &to.peers {
                Peers::First(blocks) => self.put(&format!("{what}({blocks}) ")),
                Peers::One(rank) => {
                    self.put("to_block(");
                    self.index(rank);
                    self.put(") ");
                }
            }
        }
        self.access(s.buffer, &s.indices, s.lanes);
        self.put(" = ");
        let expected = self.func.buffers.get(s.buffer.0 as usize).map(|b| b.dtype);
        self.expr(&s.value, expected);
        if let Some(full) = s.remote.as_ref().and_then(|to| to.full.as_ref()) {
            self.put(",");
            self.slot(full);
        }
        self.end();
    }
}

#[cfg(test)]
mod tests;
