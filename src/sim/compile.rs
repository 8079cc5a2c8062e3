//! From statements to bytecode. Loops stay loops; blocks, rasterized walks and bindings become index arithmetic.

use super::bulk::Bulk;
use super::code::{Access, Code, Location, Op, Operand, Reached, Site, SiteKind, Slot};
use super::collective::Collective;
use super::index::{IndexValue, Meaning};
use super::lanes;
use super::slices::Slice;
use super::walk;
use crate::error::{self, Error, Result};
use crate::ir::lowered::{Derived, TensorMap};
use crate::ir::{
    Axis, Block, BufferId, Cond, For, Func, If, Index, IterKind, LoopKind, Peers, Raster, Stmt, Store, Var, layout,
    visit,
};
use std::collections::HashMap;

/// Operations with the site of each.
pub(super) type Ops = Vec<(Op, u32)>;

/// Where buffers are and how the body is run.
pub(super) struct Setup<'a> {
    /// The place of each buffer of the Func.
    pub places: Vec<Location>,
    pub integer: bool,
    /// Where races are looked for: a flag for each buffer of the Func.
    pub watched: Vec<bool>,
    /// Where barriers order what threads do: a flag for each buffer of the Func.
    pub ordered: Vec<bool>,
    /// Innermost loops of a program in sequence may run as lanes.
    pub lanes: bool,
    /// Variables that the launch sets, with their extents.
    pub launch: Vec<(Axis, Var, i64)>,
    /// Warps of a block.
    pub warps: u32,
    /// Somebody listens.
    pub heard: bool,
    /// The kernel begins while the one in front may run.
    pub early: bool,
    /// Variables that follow from these.
    pub derived: &'a [Derived],
    pub maps: &'a [TensorMap],
}

/// The most operations that a body may come to.
const MOST_OPS: usize = 1 << 22;
/// The deepest nesting of statements.
const DEEPEST: usize = 256;

/// The state of compiling one body.
pub(super) struct Compiler<'a> {
    pub func: &'a Func,
    pub plan: &'a Setup<'a>,
    pub vars: HashMap<Var, Meaning>,
    pub ranges: HashMap<Var, (i128, i128)>,
    pub memo: HashMap<IndexValue, Slot>,
    pub scalars: Vec<i64>,
    pub scalar_level: Vec<u32>,
    pub vector_level: Vec<u32>,
    pub registers: u32,
    pub accesses: Vec<Access>,
    pub gathers: Vec<String>,
    pub collectives: Vec<Collective>,
    pub bulks: Vec<Bulk>,
    sites: Vec<Site>,
    site: u32,
    stores: u32,
    statements: u32,
    /// The loops around, outermost first.
    pub loops: Vec<(Var, Operand)>,
    /// What runs at the start of the program and of each iteration of the loops around.
    pub prologues: Vec<Ops>,
    pub body: Ops,
    launch_scalars: Vec<(Var, Slot)>,
    launch_vectors: Vec<(Var, Slot)>,
    pub step: Option<Slot>,
    /// The variable whose iterations are lanes, inside such a loop.
    pub lane_var: Option<Var>,
    count: usize,
    depth: usize,
    /// The warps that run what is being compiled.
    pub slice: Slice,
}

/// The vector slot that holds each lane's number.
pub(super) const LANE: Slot = 1;

/// The level of what follows from data: it is computed where it is used, each time.
pub(super) const IN_PLACE: u32 = u32::MAX;

/// Compiles a body.
pub(super) fn compile(func: &Func, plan: &Setup) -> Result<Code> {
    let mut c = Compiler::new(func, plan);
    for &(axis, var, extent) in &plan.launch {
        c.launch_var(axis, var, extent);
    }
    if !walk::walks(&func.body) {
        c.derive()?;
    }
    c.body(&func.body)?;
    c.finish()
}

impl<'a> Compiler<'a> {
    fn new(func: &'a Func, plan: &'a Setup<'a>) -> Compiler<'a> {
        Compiler {
            func,
            plan,
            vars: HashMap::new(),
            ranges: HashMap::new(),
            memo: HashMap::new(),
            scalars: vec![0],
            scalar_level: vec![0],
            vector_level: vec![0, 0],
            registers: 0,
            accesses: Vec::new(),
            gathers: Vec::new(),
            collectives: Vec::new(),
            bulks: Vec::new(),
            sites: vec![Site { statement: SiteKind::Other, stores: 0, loops: Vec::new() }],
            site: 0,
            stores: 0,
            statements: 0,
            loops: Vec::new(),
            prologues: vec![Vec::new()],
            body: Vec::new(),
            launch_scalars: Vec::new(),
            launch_vectors: Vec::new(),
            step: None,
            lane_var: None,
            count: 0,
            depth: 0,
            slice: Slice { first: 0, warps: plan.warps, is_role: false },
        }
    }

    /// What runs before the loop that ends, or before the program.
    pub fn prologue(&mut self) -> Result<Ops> {
        let lost = || Error::bug(error::Code::SimCode, "a loop ends that has not begun");
        self.prologues.pop().ok_or_else(lost)
    }

    fn finish(mut self) -> Result<Code> {
        let mut all = self.prologue()?;
        all.append(&mut self.body);
        if self.count > MOST_OPS {
            return Err(Error::input(error::Code::SimSize, "the program is too long for the simulator"));
        }
        let (ops, site_of) = all.into_iter().unzip();
        Ok(Code {
            ops,
            site_of,
            sites: self.sites,
            accesses: self.accesses,
            gathers: self.gathers,
            collectives: self.collectives,
            bulks: self.bulks,
            scalars: self.scalars,
            vectors: self.vector_level.len() as u32,
            registers: self.registers,
            launch_scalars: self.launch_scalars,
            launch_vectors: self.launch_vectors,
            step: self.step,
            early: self.plan.early,
            func: self.func.clone(),
        })
    }

    fn launch_var(&mut self, axis: Axis, var: Var, extent: i64) {
        let operand = if axis.is_block_level() {
            let slot = self.new_scalar(0);
            self.launch_scalars.push((var, slot));
            Operand { scalar: slot, vector: 0 }
        } else {
            let slot = self.new_vector(0);
            self.launch_vectors.push((var, slot));
            Operand { scalar: 0, vector: slot }
        };
        self.vars.insert(var, Meaning::Slots(operand));
        self.ranges.insert(var, (0, i128::from(extent) - 1));
        self.loops.push((var, operand));
    }

    pub fn new_scalar(&mut self, level: u32) -> Slot {
        self.scalars.push(0);
        self.scalar_level.push(level);
        self.scalars.len() as Slot - 1
    }

    pub fn new_vector(&mut self, level: u32) -> Slot {
        self.vector_level.push(level);
        self.vector_level.len() as Slot - 1
    }

    /// How much is in the body so far.
    pub fn body_len(&self) -> usize {
        self.body.len()
    }

    /// An operation of the body so far.
    pub fn op_mut(&mut self, at: usize) -> Option<&mut Op> {
        self.body.get_mut(at).map(|(op, _)| op)
    }

    pub fn emit(&mut self, op: Op) {
        self.count += 1;
        self.body.push((op, self.site));
    }

    /// Emits what has to be done whenever the innermost variable of a level changes.
    pub fn emit_at(&mut self, level: u32, op: Op) {
        if level == IN_PLACE {
            return self.emit(op);
        }
        self.count += 1;
        if let Some(prologue) = self.prologues.get_mut(level as usize) {
            prologue.push((op, self.site));
        }
    }

    pub fn here(&mut self, statement: SiteKind) {
        let stores = self.stores;
        self.stores += u32::from(matches!(statement, SiteKind::Store(_) | SiteKind::Call(_) | SiteKind::Bulk(_)));
        self.sites.push(Site { statement, stores, loops: self.loops.clone() });
        self.site = self.sites.len() as u32 - 1;
    }

    pub fn body(&mut self, body: &[Stmt]) -> Result<()> {
        self.depth += 1;
        if self.depth > DEEPEST || self.count > MOST_OPS {
            return Err(Error::input(error::Code::SimSize, "the program is too deep or too long for the simulator"));
        }
        for stmt in body {
            self.announce(stmt);
            match stmt {
                Stmt::For(l) => self.run_loop(l)?,
                Stmt::Block(b) => self.block(b)?,
                Stmt::Store(s) => self.store(s)?,
                Stmt::If(i) => self.branch(i)?,
                Stmt::Sync(s) => self.sync(s)?,
                Stmt::Call(c) => self.call(c)?,
                Stmt::Bulk(copy) => self.bulk(copy)?,
                Stmt::Elect(e) => self.elect(e)?,
                Stmt::Role(r) => self.role(r)?,
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Numbers a statement, and lets who listens know of it.
    fn announce(&mut self, stmt: &Stmt) {
        if matches!(stmt, Stmt::Store(_) | Stmt::Call(_) | Stmt::Bulk(_) | Stmt::Sync(_)) {
            if self.plan.heard {
                // The site of what precedes it has other loops.
                self.sites.push(Site { statement: SiteKind::Other, stores: self.stores, loops: self.loops.clone() });
                self.site = self.sites.len() as u32 - 1;
                self.emit(Op::Statement(self.statements));
            }
            self.statements += 1;
        }
    }

    fn branch(&mut self, i: &If) -> Result<()> {
        self.guarded(&i.cond, |c| c.body(&i.body))
    }

    /// Compiles what runs where a condition holds.
    pub fn guarded(&mut self, cond: &Cond, f: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if self.always(cond)? {
            return f(self);
        }
        self.here(SiteKind::If(cond.clone()));
        self.cond(cond)?;
        self.inside_branch(f)
    }

    /// Compiles what runs in the lanes of the mask on top of the stack of conditions.
    pub fn inside_branch(&mut self, f: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let at = self.body.len();
        self.emit(Op::Branch { exit: 0 });
        f(self)?;
        self.emit(Op::Rejoin);
        let exit = (self.body.len() - at) as u32;
        if let Some((Op::Branch { exit: e }, _)) = self.body.get_mut(at) {
            *e = exit;
        }
        Ok(())
    }

    fn run_loop(&mut self, l: &For) -> Result<()> {
        if let LoopKind::Persistent { round } = l.kind {
            return self.walk(l, round);
        }
        let total = match &l.raster {
            None => l.extent.clone(),
            Some(r) => r.outer_extent.clone() * r.inner_extent.clone(),
        };
        let as_lanes = self.plan.lanes && l.raster.is_none() && lanes::may_run_as_lanes(self, l)?;
        let highest = self.interval(&total)?.1 - 1;
        let extent = self.uniform(&total)?;
        let level = self.prologues.len() as u32;
        let slot = self.new_scalar(level);
        let lane = if as_lanes { LANE } else { 0 };
        let operand = Operand { scalar: slot, vector: lane };
        let outside = (self.vars.insert(l.var, Meaning::Slots(operand)), self.lane_var);
        self.ranges.insert(l.var, (0, highest.max(0)));
        if as_lanes {
            self.lane_var = Some(l.var);
        }
        let depth = self.loops.len();
        self.loops.push((l.var, operand));
        self.prologues.push(Vec::new());
        if let Some(r) = &l.raster {
            self.raster(l.var, r)?;
        }
        if let Some(backwards) = &l.code.backwards {
            self.directed(l, backwards)?;
        }
        let before = std::mem::take(&mut self.body);
        self.body(&l.body)?;
        let prologue = self.prologue()?;
        let inside = std::mem::replace(&mut self.body, before);
        self.loops.truncate(depth);
        self.close_loop(as_lanes, slot, extent, prologue, inside);
        self.lane_var = outside.1;
        match outside.0 {
            Some(meaning) => self.vars.insert(l.var, meaning),
            None => self.vars.remove(&l.var),
        };
        Ok(())
    }

    fn close_loop(&mut self, as_lanes: bool, var: Slot, extent: Slot, mut prologue: Ops, mut inside: Ops) {
        let length = (prologue.len() + inside.len()) as u32;
        let exit = length + 2;
        self.emit(if as_lanes { Op::LanesBegin { var, extent, exit } } else { Op::LoopBegin { var, extent, exit } });
        self.body.append(&mut prologue);
        self.body.append(&mut inside);
        self.emit(if as_lanes {
            Op::LanesNext { var, extent, back: length }
        } else {
            Op::LoopNext { var, extent, back: length }
        });
    }

    /// The scalar slot of an index that must be the same for all lanes.
    pub fn uniform(&mut self, index: &Index) -> Result<Slot> {
        let o = self.operand(index)?;
        if o.vector != 0 {
            return Err(Error::bug(error::Code::SimExtent, "an extent differs between the threads of a warp"));
        }
        Ok(o.scalar)
    }

    /// Where a loop runs backwards, its variable is the iterations that are left.
    fn directed(&mut self, l: &For, backwards: &Index) -> Result<()> {
        let forwards = Index::Var(l.var);
        let left = l.extent.clone() - 1 - forwards.clone();
        let operand = self.operand(&(forwards.clone() + backwards.clone() * (left - forwards)))?;
        self.vars.insert(l.var, Meaning::Slots(operand));
        if let Some((_, counter)) = self.loops.last_mut() {
            *counter = operand;
        }
        Ok(())
    }

    /// Gives the two loops of a rasterized walk their meaning ([`Raster`] has the formula).
    fn raster(&mut self, walk: Var, r: &Raster) -> Result<()> {
        let (rows, columns) = (r.outer_extent.clone(), r.inner_extent.clone());
        if r.group < 1 {
            return Err(Error::input(error::Code::SimRaster, "a rasterized loop has groups of less than one row"));
        }
        let t = Index::Var(walk);
        let group = t.clone().floordiv(columns.clone() * r.group);
        // At least 1, so that the divisor is provably not zero; it never is while the loop runs.
        let height = (rows.clone() - group.clone() * r.group).min(r.group).max(1);
        let rest = t - group.clone() * r.group * columns.clone();
        let outer = group * r.group + rest.clone().floormod(height.clone());
        let inner = rest.floordiv(height);
        for (var, meaning, extent) in [(r.outer, outer, rows), (r.inner, inner, columns)] {
            let highest = self.interval(&extent)?.1 - 1;
            let operand = self.operand(&meaning)?;
            self.vars.insert(var, Meaning::Slots(operand));
            self.ranges.insert(var, (0, highest.max(0)));
            self.loops.push((var, operand));
        }
        Ok(())
    }

    fn block(&mut self, b: &Block) -> Result<()> {
        for it in &b.iters {
            let binding = self.resolve(&it.binding);
            let range = self.interval(&binding)?;
            self.vars.insert(it.var, Meaning::Index(binding));
            self.ranges.insert(it.var, range);
        }
        self.guarded(&b.predicate, |c| {
            if let Some(init) = &b.init {
                let first = first_of(b);
                c.guarded(&first, |c| c.body(init))?;
            }
            c.body(&b.body)
        })
    }

    /// An index with iterators of blocks replaced by what they are bound to.
    pub fn resolve(&self, index: &Index) -> Index {
        let mut map = visit::Map::new();
        index.for_each_var(&mut |v| {
            if let Some(Meaning::Index(i)) = self.vars.get(&v) {
                map.insert(v, i.clone());
            }
        });
        if map.is_empty() { index.clone() } else { visit::subst_index(index, &map) }
    }

    fn store(&mut self, s: &Store) -> Result<()> {
        self.here(SiteKind::Store(s.clone()));
        let expected = self.buffer(s.buffer)?.dtype;
        if let Some((op, value)) = self.lane_var.and_then(|v| lanes::reduction(self, s, v)) {
            let dtype = self.typed(value, (expected, 1))?;
            let access = self.access(s.buffer, &s.indices, 1)?;
            let kind = super::memory::kind_in(self.plan.integer, dtype);
            self.emit(Op::Reduce { src: 0, access, op, dtype, kind });
            return Ok(());
        }
        self.typed(&s.value, (expected, s.lanes))?;
        let access = self.access(s.buffer, &s.indices, s.lanes)?;
        if s.asynchronous {
            return self.copy(access);
        }
        let op = match &s.remote {
            Some(to) => {
                let full = to.full.as_ref().map(|slot| Ok((slot.barrier, self.operand(&slot.index)?))).transpose()?;
                if full.is_some() {
                    self.accesses[access as usize].copies = true;
                    self.accesses[access as usize].engine = true;
                }
                let to = match &to.peers {
                    Peers::First(blocks) => Reached::First(*blocks),
                    Peers::One(rank) => Reached::One(self.operand(rank)?),
                };
                Op::Remote { src: 0, access, to, full }
            }
            None => Op::Store { src: 0, access },
        };
        self.emit(op);
        Ok(())
    }

    fn copy(&mut self, access: u32) -> Result<()> {
        let to = &mut self.accesses[access as usize];
        if !matches!(to.place, Location::Shared { .. }) {
            return Err(Error::bug(error::Code::SimCopy, "an asynchronous copy goes to shared memory alone"));
        }
        to.copies = true;
        self.emit(Op::Copy { src: 0, access });
        Ok(())
    }

    pub fn buffer(&self, id: BufferId) -> Result<&'a crate::ir::Buffer> {
        let found = self.func.buffers.get(id.0 as usize);
        found.ok_or_else(|| Error::input(error::Code::SimBuffer, "the program uses a buffer that it does not have"))
    }

    /// Compiles the address of an access, with the comparisons of its indices that are not proved.
    pub fn access(&mut self, id: BufferId, indices: &[Index], lanes: u32) -> Result<u32> {
        let buffer = self.buffer(id)?;
        let symbolic = || Error::input(error::Code::SimShape, format!("buffer {} has no constant shape", buffer.name));
        let shape = buffer.const_shape().ok_or_else(symbolic)?;
        let strides = layout::strides(buffer).ok_or_else(symbolic)?;
        if shape.len() != indices.len() || strides.len() != shape.len() || lanes < 1 {
            let message = format!(
                "buffer {} has {}, an access {}",
                buffer.name,
                crate::error::counted(shape.len(), "dimension"),
                indices.len()
            );
            return Err(Error::input(error::Code::SimRank, message));
        }
        let number = self.accesses.len() as u32;
        let mut flat = Index::Int(0);
        for ((index, &extent), &stride) in indices.iter().zip(&shape).zip(&strides) {
            let range = self.interval(index)?;
            if range.0 < 0 || range.1 + i128::from(lanes) > i128::from(extent) {
                let at = self.operand(index)?;
                self.emit(Op::Check { access: number, at, extent: extent - i64::from(lanes) + 1 });
            }
            flat = flat + index.clone() * stride;
        }
        let at = self.operand(&flat)?;
        let bytes = i64::from(lanes * buffer.dtype.bits() / 8);
        let sub_byte = lanes > 1 && bytes == 0;
        // A parameter's address is as aligned as it says; a shared buffer's is its offset.
        let aligned = |n: i64| i64::from(buffer.align) % n == 0 && i64::from(buffer.offset.unwrap_or(0)) % n == 0;
        let aligned = lanes == 1 || (bytes > 0 && aligned(bytes));
        let place = self.plan.places.get(id.0 as usize).copied();
        let place = place.ok_or_else(|| Error::bug(error::Code::SimBuffer, format!("{} has no place", buffer.name)))?;
        let access = Access {
            place,
            dtype: buffer.dtype,
            at,
            lanes,
            watched: self.plan.watched.get(id.0 as usize).is_some_and(|w| *w),
            ordered: self.plan.ordered.get(id.0 as usize).is_some_and(|o| *o),
            align: if sub_byte || !aligned { 0 } else { i64::from(lanes) },
            copies: false,
            engine: false,
            buffer: id,
            indices: indices.iter().map(|i| self.resolve(i)).collect(),
        };
        self.accesses.push(access);
        Ok(number)
    }
}

/// Where the init of a block runs: every reduce iterator is 0.
fn first_of(b: &Block) -> Cond {
    let reduce = b.iters.iter().filter(|i| i.kind == IterKind::Reduce);
    reduce.fold(Cond::TRUE, |c, i| c.and(Cond::eq(Index::Var(i.var), 0)))
}
