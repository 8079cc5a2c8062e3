//! Where a lowered kernel touches memory: its accesses and statements, in the order of the text.

use crate::dtype::DType;
use crate::intrin::{self, Place};
use crate::ir::layout::Coordinate;
use crate::ir::print::{self, Node};
use crate::ir::{BufferId, Call, Cond, Expr, For, Func, Held, Index, LoopKind, Scope, Stmt, Store, Var, visit};
use crate::lower::LoweredKernel;
use std::borrow::Cow;

/// What stands around a statement.
#[derive(Debug, Clone, Default)]
pub struct Around<'k> {
    /// Loops, outermost first.
    pub loops: Vec<&'k For>,
    /// Conditions that hold.
    pub conds: Vec<Cond>,
    /// The innermost block.
    pub block: Option<&'k str>,
    /// A condition on data decides too: which lanes run is not known before.
    pub on_data: bool,
}

impl Around<'_> {
    /// The variables of the loops.
    pub fn vars(&self) -> Vec<Var> {
        self.loops.iter().flat_map(|l| l.defines()).map(|(v, _)| v).collect()
    }
}

/// What a statement does.
#[derive(Debug, Clone, Copy)]
pub enum Does<'k> {
    /// Each thread stores.
    Store(&'k Store),
    /// The lanes of a warp execute an instruction together.
    Call(&'k Call),
}

/// A store or an instruction, with what stands around it.
#[derive(Debug, Clone)]
pub struct Statement<'k> {
    /// What it does.
    pub does: Does<'k>,
    /// Where.
    pub around: Around<'k>,
}

/// A load or store of one element or vector per thread.
#[derive(Debug, Clone)]
pub struct Site<'k> {
    /// Its number among the accesses of the kernel, registers included: a store's loads in the order of the text of its
    /// value, then the store itself; the operands of an instruction in their order.
    pub number: u32,
    /// The position of its statement.
    pub statement: usize,
    /// Where it stands; the conditions of choices around a load come last.
    pub around: Around<'k>,
    /// What is accessed.
    pub buffer: BufferId,
    /// The element.
    pub index: Cow<'k, Index>,
    /// Elements of one thread.
    pub lanes: u32,
    /// Whether it writes.
    pub write: bool,
    /// Whether its statement moves data and computes nothing.
    pub copies: bool,
    /// Whether its statement starts an asynchronous copy.
    pub asynchronous: bool,
    /// The line of the kernel's text, from 1, and the column of its first character, from 1.
    pub place: (usize, usize),
    /// The access as it is printed.
    pub text: String,
}

impl Site<'_> {
    /// Where its buffer lives.
    pub fn scope(&self, func: &Func) -> Scope {
        func.buffer(self.buffer).scope
    }

    /// The type of an element.
    pub fn dtype(&self, func: &Func) -> DType {
        func.buffer(self.buffer).dtype
    }

    /// Bytes that one thread moves.
    pub fn width(&self, func: &Func) -> i64 {
        (i64::from(self.dtype(func).bits()) * i64::from(self.lanes) + 7) / 8
    }
}

/// A kernel's statements and its accesses.
pub struct Sites<'k> {
    lane: Index,
    /// Every store and instruction.
    pub statements: Vec<Statement<'k>>,
    /// Every load and store, registers included.
    pub accesses: Vec<Site<'k>>,
}

impl<'k> Sites<'k> {
    /// All of a kernel. `first_line` is the line of its head in the printed program.
    pub fn of(kernel: &'k LoweredKernel, first_line: usize) -> Sites<'k> {
        let mut sites = Sites { lane: kernel.lane(), statements: Vec::new(), accesses: Vec::new() };
        sites.body(&kernel.func, &kernel.func.body, &Around::default());
        sites.find_places(&kernel.func, first_line + 1 + kernel.derived.len());
        sites
    }

    fn body(&mut self, func: &'k Func, body: &'k [Stmt], around: &Around<'k>) {
        for stmt in body {
            let mut inside = around.clone();
            match stmt {
                Stmt::Store(s) => self.statement(func, s, around),
                // Its variable counts as that of blockIdx.x: each tile once.
                Stmt::For(l) if matches!(l.kind, LoopKind::Persistent { .. }) => {}
                Stmt::For(l) => inside.loops.push(l),
                Stmt::Block(b) => inside.block = func.blocks.get(b.name.0 as usize).map(String::as_str),
                Stmt::If(i) => inside.conds.push(i.cond.clone()),
                Stmt::Call(c) => self.call(func, c, around),
                Stmt::Sync(_) | Stmt::Bulk(_) | Stmt::Elect(_) | Stmt::Role(_) => {}
            }
            for child in visit::children(stmt) {
                self.body(func, child, &inside);
            }
        }
    }

    fn statement(&mut self, func: &'k Func, store: &'k Store, around: &Around<'k>) {
        let first = self.accesses.len();
        self.loads(func, &store.value, around);
        if let Some(index) = store.indices.first() {
            self.access(func, store.buffer, Cow::Borrowed(index), store.lanes, true, around);
        }
        for access in &mut self.accesses[first..] {
            access.copies = store.source().is_some();
            access.asynchronous = store.asynchronous;
        }
        self.statements.push(Statement { does: Does::Store(store), around: around.clone() });
    }

    /// The operands of an instruction; of the lanes only those whose addresses count ask for memory.
    fn call(&mut self, func: &'k Func, call: &'k Call, around: &Around<'k>) {
        let row = intrin::find(&call.row);
        for (n, operand) in call.operands.iter().enumerate() {
            let mut around = around.clone();
            // A lowered operand has one index; anything else is a fault that the verifier reports.
            let Some(index) = operand.indices.first() else { continue };
            let (index, lanes) = match &operand.held {
                Held::Registers(elements) => (Cow::Borrowed(index), elements.len() as u32),
                Held::Address(lanes) => (Cow::Borrowed(index), *lanes),
                // How a chip asks for a tile is not said: it counts as if a lane asked for each row at once.
                // wgmma reads its tiles by itself, in whole rows of all banks.
                Held::Descriptor(_) => continue,
                Held::Rows { run, .. } => {
                    (Cow::Owned(operand.run_of(&self.lane).map_or(index.clone(), |(first, _)| first)), *run)
                }
            };
            let active = match (row.and_then(|r| r.operands.get(n)).map(|o| &o.place), &operand.held) {
                (Some(Place::Addresses(layout)), _) => Some(layout.span(Coordinate::Lane)),
                (_, Held::Rows { rows, .. }) => Some(*rows),
                _ => None,
            };
            around.conds.extend(active.map(|active| Cond::lt(self.lane.clone(), active)));
            self.access(func, operand.buffer, index, lanes, operand.writes, &around);
        }
        self.statements.push(Statement { does: Does::Call(call), around: around.clone() });
    }

    /// The loads of a value; only the chosen side of a choice runs.
    fn loads(&mut self, func: &'k Func, value: &'k Expr, around: &Around<'k>) {
        match value {
            Expr::Const(..) | Expr::Index(..) | Expr::Cond(_) => {}
            Expr::Load { buffer, indices, lanes } => {
                if let Some(index) = indices.first() {
                    self.access(func, *buffer, Cow::Borrowed(index), *lanes, false, around);
                }
            }
            Expr::Splat(_, a) | Expr::Un(_, a) | Expr::Cast(_, a) => self.loads(func, a, around),
            Expr::Bin(_, a, b) | Expr::Cmp(_, a, b) => {
                self.loads(func, a, around);
                self.loads(func, b, around);
            }
            Expr::Select(c, a, b) => {
                self.loads(func, c, around);
                let (mut then, mut otherwise) = (around.clone(), around.clone());
                match known(c) {
                    Some(cond) => {
                        then.conds.push(cond.clone());
                        otherwise.conds.push(Cond::Not(Box::new(cond.clone())));
                    }
                    None => (then.on_data, otherwise.on_data) = (true, true),
                }
                self.loads(func, a, &then);
                self.loads(func, b, &otherwise);
            }
        }
    }

    fn access(
        &mut self,
        func: &'k Func,
        buffer: BufferId,
        index: Cow<'k, Index>,
        lanes: u32,
        write: bool,
        around: &Around<'k>,
    ) {
        let value = Expr::Load { buffer, indices: vec![index.clone().into_owned()], lanes };
        self.accesses.push(Site {
            number: self.accesses.len() as u32,
            statement: self.statements.len(),
            around: around.clone(),
            buffer,
            index,
            lanes,
            write,
            copies: false,
            asynchronous: false,
            place: (0, 0),
            text: print::expr(func, &value),
        });
    }

    /// Finds each access in the printed kernel: the names of buffers after those that the head introduces, a statement's
    /// target first.
    fn find_places(&mut self, func: &Func, first_line: usize) {
        let printed = print::print(func);
        let mut names = printed.spans.iter().filter(|(n, _)| matches!(n, Node::Buffer(_)));
        let used = visit::reads(&func.body).into_iter().chain(visit::writes(&func.body));
        let mut introduced: Vec<BufferId> = used.filter(|b| !func.params.contains(b)).collect();
        introduced.sort_unstable();
        introduced.dedup();
        let _ = names.by_ref().take(func.params.len() + introduced.len()).count();
        let mut first = 0;
        while first < self.accesses.len() {
            let statement = self.accesses[first].statement;
            let end = first + self.accesses[first..].iter().take_while(|a| a.statement == statement).count();
            // The target of a store is printed first and counted last.
            let last = matches!(self.statements.get(statement).map(|s| s.does), Some(Does::Store(_)));
            let turned = if last { end - 1 } else { first };
            for at in std::iter::once(turned).chain((first..end).filter(|at| *at != turned)) {
                let Some((_, span)) = names.next() else { return };
                let before = &printed.text[..span.start];
                let column = before.len() - before.rfind('\n').map_or(0, |n| n + 1);
                self.accesses[at].place = (first_line + before.matches('\n').count(), column + 1);
            }
            first = end;
        }
    }
}

/// The condition of a choice, where indices alone decide it.
fn known(cond: &Expr) -> Option<&Cond> {
    match cond {
        Expr::Cond(c) => Some(c),
        Expr::Splat(_, c) => known(c),
        _ => None,
    }
}
