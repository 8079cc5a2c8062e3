//! Where a lowered kernel touches memory: its accesses and statements, in the order of the text.

use crate::dtype::DType;
use crate::intrin::{self, Place};
use crate::ir::layout::Coordinate;
use crate::ir::lowered::{self, LoweredKernel, TensorMap};
use crate::ir::print::{self, Node};
use crate::ir::{
    BufferId, BulkCopy, Call, Cond, Descriptor, Expr, For, Func, Held, Index, LoopKind, RoleBody, Scope, Stmt, Store,
    Sync, Var, Way, visit,
};
use std::borrow::Cow;

/// What surrounds a statement.
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
    /// Variables that represent data, with the least value and the datum of each.
    pub data: Vec<(Var, i64, &'k Expr)>,
    /// The role whose warps run it; of all warps where there is none.
    pub role: Option<&'k RoleBody>,
    /// One thread of every so many of these warps runs it.
    pub elect: Option<u32>,
}

/// What a statement does.
#[derive(Debug, Clone, Copy)]
pub enum Does<'k> {
    /// Each thread stores.
    Store(&'k Store),
    /// The lanes of a warp execute an instruction together.
    Call(&'k Call),
    /// A thread starts a bulk copy.
    Bulk(&'k BulkCopy),
    /// It orders, arrives or waits.
    Sync(&'k Sync),
}

/// Who makes an access.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Agent<'k> {
    /// The lanes of a warp.
    Lanes,
    /// TMA.
    Copy(&'k BulkCopy),
    /// A product of a warpgroup, which reads its tile in rows of all banks.
    Product(Descriptor),
}

/// A store or an instruction, with what surrounds it.
#[derive(Debug, Clone)]
pub struct Statement<'k> {
    /// What it does.
    pub does: Does<'k>,
    /// Where.
    pub around: Around<'k>,
}

/// A load or store: of one element or vector per thread, of a box, or of a tile behind a descriptor.
#[derive(Debug, Clone)]
pub struct Site<'k> {
    /// Its number among the accesses of the kernel, registers included: a store's loads in the order of the text of its
    /// value, then the store itself; the operands of an instruction in the row's order; of a bulk copy that of shared
    /// memory, then that of device memory.
    pub number: u32,
    /// The position of its statement.
    pub statement: usize,
    /// Where it stands; the conditions of choices around a load come last.
    pub around: Around<'k>,
    /// Who makes it.
    pub by: Agent<'k>,
    /// What is accessed.
    pub buffer: BufferId,
    /// The element; of a box or a tile the first one.
    pub index: Cow<'k, Index>,
    /// Elements of one thread.
    pub lanes: u32,
    /// Whether it writes.
    pub write: bool,
    /// Whether its statement moves data and computes nothing.
    pub copies: bool,
    /// Whether its statement starts an asynchronous copy.
    pub asynchronous: bool,
    /// Whether that copy goes through L1 whatever its size.
    pub through_l1: bool,
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
    maps: &'k [TensorMap],
    /// Every store, instruction, bulk copy and synchronisation; the position is its number.
    pub statements: Vec<Statement<'k>>,
    /// Every load and store, registers included.
    pub accesses: Vec<Site<'k>>,
}

impl<'k> Sites<'k> {
    /// All of a kernel. `first_line` is the line of its head in the printed program.
    pub fn of(kernel: &'k LoweredKernel, first_line: usize) -> Sites<'k> {
        let mut sites = Sites { lane: kernel.lane(), maps: &kernel.maps, statements: Vec::new(), accesses: Vec::new() };
        sites.body(&kernel.func, &kernel.func.body, &Around::default());
        let heads = lowered::print_derived(kernel).lines().count() + lowered::print_bulk(kernel).lines().count();
        sites.find_places(&kernel.func, first_line + 1 + heads);
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
                Stmt::Bulk(copy) => self.bulk(func, copy, around),
                Stmt::Sync(sync) => self.push(Does::Sync(sync), around),
                Stmt::Elect(e) => inside.elect = Some(e.warps),
                Stmt::Role(r) => inside.role = Some(r),
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
            access.through_l1 = store.through_l1;
        }
        self.push(Does::Store(store), around);
    }

    fn push(&mut self, does: Does<'k>, around: &Around<'k>) {
        self.statements.push(Statement { does, around: around.clone() });
    }

    fn bulk(&mut self, func: &'k Func, copy: &'k BulkCopy, around: &Around<'k>) {
        let load = matches!(copy.way, Way::Load { .. });
        let first = self.accesses.len();
        if let Some(index) = copy.indices.first() {
            self.access(func, copy.shared, Cow::Borrowed(index), 1, load, around);
        }
        let map = self.maps.get(copy.map as usize);
        let sum = |strides: &[i64]| {
            let terms = copy.coordinates.iter().zip(strides).map(|(c, s)| c.clone() * *s);
            terms.fold(Index::Int(0), |all, term| all + term)
        };
        let flat = map.map_or(Index::Int(0), |m| sum(&m.strides));
        self.access(func, copy.global, Cow::Owned(flat), 1, !load, around);
        let coordinates: Vec<String> = copy.coordinates.iter().map(|c| print::index(func, c)).collect();
        for access in &mut self.accesses[first..] {
            access.by = Agent::Copy(copy);
            if access.buffer == copy.global {
                access.text = format!("{}({})", func.buffer(copy.global).name, coordinates.join(", "));
            }
        }
        self.push(Does::Bulk(copy), around);
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
                Held::Descriptor(_) => (Cow::Borrowed(index), 1),
                // How a chip asks for a tile is not said: it counts as if a lane asked for each row at once.
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
            if let (Held::Descriptor(tile), Some(access)) = (&operand.held, self.accesses.last_mut()) {
                access.by = Agent::Product(*tile);
            }
        }
        self.push(Does::Call(call), around);
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
            Expr::Splat(_, a) | Expr::Shuffle(_, a) | Expr::Un(_, a) | Expr::Cast(_, a) => self.loads(func, a, around),
            Expr::Bin(_, a, b) | Expr::Cmp(_, a, b) => {
                self.loads(func, a, around);
                self.loads(func, b, around);
            }
            Expr::Select(c, a, b) => {
                self.loads(func, c, around);
                let (mut then, mut otherwise) = (around.clone(), around.clone());
                // A condition on an index from data is one on data.
                let on_indices = |c: &&Cond| !around.data.iter().any(|(v, ..)| c.mentions(*v));
                match known(c).filter(on_indices) {
                    Some(cond) => {
                        then.conds.push(cond.clone());
                        otherwise.conds.push(Cond::Not(Box::new(cond.clone())));
                    }
                    None => (then.on_data, otherwise.on_data) = (true, true),
                }
                self.loads(func, a, &then);
                self.loads(func, b, &otherwise);
            }
            Expr::Gather { var, low, index, value, .. } => {
                self.loads(func, index, around);
                let mut inside = around.clone();
                inside.data.push((*var, *low, index));
                self.loads(func, value, &inside);
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
        let load = Expr::Load { buffer, indices: vec![index.clone().into_owned()], lanes };
        let looked_up =
            |value, (var, low, datum): &(Var, i64, &Expr)| Expr::gather(*var, (*low, 1), (*datum).clone(), value);
        let value = around.data.iter().rev().fold(load, looked_up);
        self.accesses.push(Site {
            number: self.accesses.len() as u32,
            statement: self.statements.len(),
            around: around.clone(),
            by: Agent::Lanes,
            buffer,
            index,
            lanes,
            write,
            copies: false,
            asynchronous: false,
            through_l1: false,
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
            // What is written is printed first; that of a store, and device memory of a bulk store, are counted last.
            let last = match self.statements.get(statement).map(|s| s.does) {
                Some(Does::Store(_)) => true,
                Some(Does::Bulk(copy)) => copy.way == Way::Store,
                _ => false,
            };
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
