//! One kernel: its entry, its statements and loops.

use super::access::Storage;
use super::builder::{Builder, Value};
use super::copy;
use super::counters::Rolled;
use super::index::{Number, Variable};
use super::lines::{Lines, Locations};
use super::listing::Listing;
use super::packed::is_packed;
use super::session::bug;
use super::slices::Slice;
use crate::error::{Code, Error, Result};
use crate::ir::lowered::LoweredKernel;
use crate::ir::lowered::size::Size;
use crate::ir::lowered::{permute, realign};
use crate::ir::simplify::{self, Env};
use crate::ir::{BufferId, Cond, For, Func, If, Index, LoopKind, Note, Scope, Stmt, Sync, SyncKind, Var, print, visit};
use inkwell::AddressSpace;
use inkwell::basic_block::BasicBlock;
use inkwell::types::BasicMetadataTypeEnum;
use inkwell::values::{BasicMetadataValueEnum, FunctionValue, InstructionOpcode as Op, PointerValue};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The calling convention that makes a function an entry point of the module (`ptx_kernel`).
const PTX_KERNEL: u32 = 71;
/// The address space of device memory.
const GLOBAL: u16 = 1;
/// Bytes of a tensor map.
const MAP_BYTES: u32 = 128;
/// What its address is a multiple of.
const MAP_ALIGN: u32 = 64;

/// The translation of one kernel.
pub struct Body<'c, 'm, 'k> {
    /// Writes instructions.
    pub b: &'m Builder<'c, 'm>,
    /// The kernel.
    pub kernel: &'k LoweredKernel,
    /// The kernel's program.
    pub func: &'k Func,
    /// The block's shared memory.
    pub shared: Option<PointerValue<'c>>,
    /// Variables in scope that have a value at run time.
    pub variables: HashMap<Var, Variable<'c>>,
    /// Variables in scope whose loops are written out, by their values.
    pub unrolled: visit::Map,
    /// The local buffers that instructions hold in registers.
    pub held: HashSet<BufferId>,
    /// The local buffers that hold words as they were loaded, and the elements of a vector.
    pub unshifted: BTreeMap<BufferId, i64>,
    /// Where buffers are.
    pub places: HashMap<BufferId, Storage<'c>>,
    /// What the PTX says about its blocks.
    pub listing: &'m mut Listing,
    /// The ranges of the launch variables and of the loops.
    pub(super) ranges: Env,
    pub(super) function: FunctionValue<'c>,
    /// The lines of the statements, where the PTX is to have them.
    locations: Option<Locations<'k>>,
    pub(super) depth: u32,
    /// The loops at run time around what is being written, but for the walk of the tiles.
    pub(super) rolled: Vec<Rolled<'c>>,
    next_var: u32,
    /// The threadIdx.x that alone numbers the threads, and a variable of its own for the number of the warp, as every lane has it.
    pub warp: Option<(Var, Var)>,
    /// The role whose code is being written.
    pub slice: Option<Slice>,
    /// The loop whose two iterations an expression is evaluated for at once, as two lanes.
    pub(super) paired: Option<Var>,
    /// The loop that is being written by aligned words.
    pub(super) realigned: Option<For>,
    /// How many conditions of statements and selects are around what is being written.
    pub(super) conditions: u32,
    /// Whether the dynamic sizes have been read.
    asked_for_sizes: bool,
    /// The barrier of the next role.
    pub next_barrier: u32,
}

/// Adds the kernel to the module, with an entry point of that name.
pub fn emit<'c>(
    b: &Builder<'c, '_>,
    (kernel, number, entry): (&LoweredKernel, usize, &str),
    shared: Option<PointerValue<'c>>,
    (lines, listing): (&[Lines], &mut Listing),
) -> Result<()> {
    if !Size::of(kernel).is_some_and(|size| size.fits()) {
        let message = format!("kernel {} is larger than what lowering lets through", kernel.func.name);
        return Err(Error::bug(Code::CodegenSize, message));
    }
    let function = declare(b, kernel, entry);
    bounds(b, kernel, function)?;
    let locations = match lines {
        [] => None,
        _ => Some(Locations::attach(b.module, function, number, lines)?),
    };
    b.locate(locations.as_ref().map_or(std::ptr::null_mut(), |l| l.func(b)));
    b.at_end(b.block(function, "entry"));
    let mut body = Body {
        b,
        kernel,
        func: &kernel.func,
        shared,
        variables: HashMap::new(),
        unrolled: visit::Map::new(),
        held: permute::held(&kernel.func.body),
        unshifted: realign::unshifted(&kernel.func, &kernel.env_of_loops()),
        places: HashMap::new(),
        listing,
        ranges: kernel.env_of_loops(),
        function,
        locations,
        depth: 0,
        rolled: Vec::new(),
        next_var: kernel.func.vars.len() as u32,
        warp: None,
        slice: None,
        paired: None,
        realigned: None,
        conditions: 0,
        asked_for_sizes: false,
        next_barrier: 1,
    };
    body.place_buffers(shared)?;
    body.launch()?;
    body.stmts(&kernel.func.body)?;
    b.finish()
}

/// The function with its parameters: one pointer each, no two to the same memory, then the tensor maps. A barrier orders only
/// what a pointer without `noalias` reaches.
fn declare<'c>(b: &Builder<'c, '_>, kernel: &LoweredKernel, entry: &str) -> FunctionValue<'c> {
    let pointer = b.context.ptr_type(AddressSpace::from(GLOBAL));
    let map = b.context.ptr_type(AddressSpace::default());
    let mut params: Vec<BasicMetadataTypeEnum> = vec![pointer.into(); kernel.func.params.len()];
    params.extend(vec![BasicMetadataTypeEnum::from(map); kernel.maps.len()]);
    params.extend(vec![BasicMetadataTypeEnum::from(b.context.i32_type()); kernel.sizes().len()]);
    let function = b.module.add_function(entry, b.context.void_type().fn_type(&params, false), None);
    function.set_call_conventions(PTX_KERNEL);
    for at in kernel.func.params.len()..kernel.func.params.len() + kernel.maps.len() {
        b.by_value(function, at as u32, MAP_BYTES, MAP_ALIGN);
    }
    if !kernel.func.sizes.is_empty() {
        b.without_tables(function);
    }
    let written = visit::writes(&kernel.func.body);
    for (i, id) in kernel.func.params.iter().enumerate() {
        let at = i as u32;
        // LLVM takes a barrier not to touch what no other pointer reaches, and moves its accesses across.
        if !kernel.exchanged.contains(id) {
            b.promise(function, at, "noalias", 0);
        }
        b.promise(function, at, "nocapture", 0);
        if !written.contains(id) {
            b.promise(function, at, "readonly", 0);
        }
        let align = kernel.func.buffers.get(id.0 as usize).map_or(1, |x| x.align);
        if align.is_power_of_two() {
            function.set_param_alignment(at, align);
        }
    }
    function
}

/// The launch bounds: the block's exact extents, and how many blocks must fit at once.
fn bounds<'c>(b: &Builder<'c, '_>, kernel: &LoweredKernel, function: FunctionValue<'c>) -> Result<()> {
    let [x, y, z] = kernel.block();
    let mut notes = vec![("reqntidx", x), ("reqntidy", y), ("reqntidz", z)];
    notes.extend(kernel.min_blocks.map(|n| ("minctasm", n)));
    for (key, value) in notes {
        let function: BasicMetadataValueEnum = function.as_global_value().as_pointer_value().into();
        let node =
            b.context.metadata_node(&[function, b.context.metadata_string(key).into(), b.int(32, value.into()).into()]);
        b.module.add_global_metadata("nvvm.annotations", &node).map_err(|e| bug(e.to_string()))?;
    }
    grid_constants(b, kernel, function)
}

/// Says that the kernel does not write the tensor maps, so that they stay where the driver has put them. Parameters count from 1.
fn grid_constants<'c>(b: &Builder<'c, '_>, kernel: &LoweredKernel, function: FunctionValue<'c>) -> Result<()> {
    if kernel.maps.is_empty() {
        return Ok(());
    }
    let first = kernel.func.params.len() + 1;
    let numbers: Vec<BasicMetadataValueEnum> =
        (first..first + kernel.maps.len()).map(|n| b.int(32, n as i64).into()).collect();
    let function: BasicMetadataValueEnum = function.as_global_value().as_pointer_value().into();
    let list = b.context.metadata_node(&numbers);
    let node = b.context.metadata_node(&[function, b.context.metadata_string("grid_constant").into(), list.into()]);
    b.module.add_global_metadata("nvvm.annotations", &node).map_err(|e| bug(e.to_string()))
}

impl<'c> Body<'c, '_, '_> {
    /// The name of a variable, for messages.
    pub fn name_of(&self, var: Var) -> String {
        self.func.vars.get(var.0 as usize).cloned().unwrap_or_else(|| format!("#{}", var.0))
    }

    /// A new block of this kernel.
    pub fn new_block(&self, name: &str) -> BasicBlock<'c> {
        self.b.block(self.function, name)
    }

    /// The parameter at a position.
    pub fn parameter(&self, position: usize) -> Result<PointerValue<'c>> {
        match self.function.get_nth_param(position as u32) {
            Some(Value::PointerValue(p)) => Ok(p),
            _ => Err(bug(format!("the kernel has no parameter {position}"))),
        }
    }

    pub(super) fn stmt(&mut self, stmt: &Stmt) -> Result<()> {
        self.on_line_of(stmt, |body| body.emit(stmt))
    }

    /// Gives what is written the line of a statement, or of a store inside one.
    pub(super) fn on_line_of<T>(&mut self, stmt: &T, write: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let Some(location) = self.locations.as_ref().and_then(|l| l.statement(self.b, stmt)) else {
            return write(self);
        };
        let around = self.b.locate(location);
        let written = write(self);
        self.b.locate(around);
        written
    }

    fn emit(&mut self, stmt: &Stmt) -> Result<()> {
        match stmt {
            Stmt::For(l) => self.loop_(l),
            Stmt::Block(block) => self.stmts(&block.body),
            Stmt::Store(store) => {
                if let Some(l) = self.realigned.clone() {
                    self.realigned_store(&l)
                } else if store.asynchronous {
                    self.copy(store)
                } else {
                    self.store(store)
                }
            }
            Stmt::Call(call) => self.call(call),
            Stmt::If(guard) if self.never(&guard.cond) => {
                self.rolled.iter_mut().for_each(|l| l.leaves_out = true);
                Ok(())
            }
            Stmt::If(guard) => {
                let condition = self.condition(&guard.cond)?;
                if let Some(store) = copy::single(&guard.body) {
                    return self.on_line_of(store, |body| body.copy_where(store, condition));
                }
                let (then, after) = (self.new_block("then"), self.new_block("after"));
                self.b.branch(condition, then, after)?;
                self.under(guard, (then, after))?;
                self.b.at_end(after);
                Ok(())
            }
            Stmt::Sync(sync) => self.sync(sync),
            Stmt::Bulk(copy) => self.bulk(copy),
            Stmt::Elect(e) => self.elect(e, |body| body.stmts(&e.body)),
            Stmt::Role(r) => self.role(r),
        }
    }

    /// What runs where a condition holds.
    pub(super) fn under(&mut self, guard: &If, (then, after): (BasicBlock<'c>, BasicBlock<'c>)) -> Result<()> {
        self.listing.name(then, &format!("where {}", self.words(&guard.cond)));
        self.b.at_end(then);
        self.conditions += 1;
        self.stmts(&guard.body)?;
        self.conditions -= 1;
        self.b.jump(after)
    }

    fn sync(&mut self, sync: &Sync) -> Result<()> {
        if matches!(sync.kind, SyncKind::Block | SyncKind::ClusterRelaxed) {
            self.ask_for_sizes()?;
        }
        let number = |n: i64| self.b.int(32, n).into();
        match &sync.kind {
            SyncKind::Block => self.meet(),
            SyncKind::Warpgroup => self.meet_in_groups(),
            SyncKind::ClusterRelaxed => {
                self.b.effect("llvm.nvvm.barrier.cluster.arrive.relaxed.aligned", &[])?;
                self.b.effect("llvm.nvvm.barrier.cluster.wait.aligned", &[])
            }
            SyncKind::Cluster => {
                self.b.effect("llvm.nvvm.barrier.cluster.arrive.aligned", &[])?;
                self.b.effect("llvm.nvvm.barrier.cluster.wait.aligned", &[])
            }
            SyncKind::Warp => self.b.effect("llvm.nvvm.bar.warp.sync", &[number(-1)]),
            SyncKind::Commit => self.b.effect("llvm.nvvm.cp.async.commit.group", &[]),
            SyncKind::Wait { groups } => self.b.effect("llvm.nvvm.cp.async.wait.group", &[number(i64::from(*groups))]),
            SyncKind::ProxyFence => self.order_memory("fence.proxy.async.shared::cta;"),
            SyncKind::ProductFence => self.fence_products(),
            SyncKind::ProductCommit => self.order_memory("wgmma.commit_group.sync.aligned;"),
            SyncKind::ProductWait { groups } => self.wait_for_products(*groups),
            SyncKind::GridWait => self.order_memory("griddepcontrol.wait;"),
            SyncKind::GridRelease => self.order_memory("griddepcontrol.launch_dependents;"),
            SyncKind::Narrow { buffer } => match self.place(*buffer)? {
                Storage::Local(words) => self.opaque(&words),
                _ => Err(bug("only a local buffer stays narrow")),
            },
            other => self.sync_bulk(other),
        }
    }

    /// Reads the dynamic sizes before the barrier behind the initialisation of the mbarriers, where threads wait anyway: ptxas read them behind it, and
    /// each block waited for the constant bank before its first load. f16 48x4096x4096 in a kernel for 1 to 48 rows took 10.80 us on an H200, 10.64 so.
    /// A use keeps the read there: no size is below 1.
    fn ask_for_sizes(&mut self) -> Result<()> {
        if self.kernel.func.mbarriers.is_empty() || std::mem::replace(&mut self.asked_for_sizes, true) {
            return Ok(());
        }
        for number in self.kernel.sizes() {
            let size = &self.kernel.func.sizes[number];
            let Some(value) = self.variables.get(&size.var).map(|v| v.number.value) else { continue };
            let text = "{ .reg .pred none; setp.lt.s32 none, $0, 1; @none exit; }";
            self.b.asm(text.into(), "r".into(), &[], &[value.into()])?;
        }
        Ok(())
    }

    /// Whether a condition fails in this copy of an unrolled body, whose registers then may not even exist.
    fn never(&self, cond: &Cond) -> bool {
        self.decided(cond) == Some(false)
    }

    /// Whether a condition holds in this copy of an unrolled body, where that is known.
    pub(super) fn decided(&self, cond: &Cond) -> Option<bool> {
        let known = visit::subst_cond(cond, &self.unrolled);
        match simplify::simplify_cond(&known, &self.ranges) {
            Cond::Const(known) => Some(known),
            _ => None,
        }
    }

    /// A condition in the program's words, with the numbers of the loops that are written out.
    fn words(&self, cond: &Cond) -> String {
        let numbers = self.unrolled.iter().filter(|(_, index)| index.as_int().is_some());
        let numbers: visit::Map = numbers.map(|(v, index)| (*v, index.clone())).collect();
        print::cond(self.func, &visit::subst_cond(cond, &numbers))
    }

    fn loop_(&mut self, l: &For) -> Result<()> {
        if let LoopKind::Persistent { round } = l.kind {
            return self.walk(l, round);
        }
        let extent = self.sum(&l.extent).as_constant();
        let extent = extent.ok_or_else(|| bug(format!("loop {} has no constant extent", self.name_of(l.var))))?;
        match l.kind {
            _ if l.code.permutes => self.permute(l),
            _ if l.code.realigns => self.realign(l),
            _ if self.both_halves(l)? => Ok(()),
            _ if l.is_written_out() => self.written_out(l, extent),
            _ => self.rolled(l, extent, l.copies()),
        }
    }

    fn written_out(&mut self, l: &For, extent: i64) -> Result<()> {
        let known =
            |index: &Index| simplify::simplify(&visit::subst_index(index, &self.unrolled), &self.ranges).as_int();
        let backwards = match l.code.backwards.as_ref().map(known) {
            None | Some(Some(0)) => false,
            Some(Some(1)) => true,
            Some(_) => return Err(bug(format!("loop {} runs both ways at once", self.name_of(l.var)))),
        };
        self.keep_sums(l)?;
        for i in 0..extent {
            self.unrolled.insert(l.var, Index::Int(if backwards { extent - 1 - i } else { i }));
            self.stmts(&l.body)?;
        }
        self.unrolled.remove(&l.var);
        Ok(())
    }

    /// Makes 32-bit local buffers opaque before an unrolled loop with barriers that only reads them. LLVM would sink the last multiply-adds
    /// into the loop, and their operands would occupy registers across the barriers.
    fn keep_sums(&self, l: &For) -> Result<()> {
        let meets = |s: &Stmt| matches!(s, Stmt::Sync(Sync { kind: SyncKind::Block, .. }));
        if !l.body.iter().any(meets) {
            return Ok(());
        }
        let written = visit::writes(&l.body);
        for id in visit::reads(&l.body).into_iter().filter(|id| !written.contains(id) && !self.held.contains(id)) {
            if let (Storage::Local(words), 32) = (self.place(id)?, self.buffer(id)?.dtype.bits()) {
                self.opaque(&words)?;
            }
        }
        Ok(())
    }

    /// A loop at run time whose body holds `copies` iterations; `copies` divides the extent.
    fn rolled(&mut self, l: &For, extent: i64, copies: i64) -> Result<()> {
        let trips = extent / copies;
        let bits = if i32::try_from(extent).is_ok() { 32 } else { 64 };
        let (from, body, after) = (self.b.here()?, self.new_block("loop"), self.new_block("after"));
        let words = self.describe(l, extent, copies);
        // `unroll_limit` bounds ptxas too, which unrolls loops of few iterations.
        match l.notes.contains_key(&Note::UnrollLimit) {
            true => self.listing.name_nounroll(body, &words),
            false => self.listing.name(body, &words),
        }
        self.b.jump(body)?;
        self.b.at_end(body);
        let counter = self.b.induction(self.b.int(bits, 0), from, &self.name_of(l.var))?;
        let number = Number { value: counter.into_int_value(), range: (0, i128::from(trips) - 1) };
        let var = if copies == 1 { l.var } else { self.new_var() };
        let declared = self.declared(l, var);
        self.rolled.push(Rolled::new(var, (from, body), declared));
        self.depth += 1;
        self.variables.insert(var, Variable { number, depth: self.depth });
        if copies == 1 {
            self.stmts(&l.body)?;
        } else {
            self.several(l, var, copies)?;
        }
        self.variables.remove(&var);
        self.depth -= 1;
        if let Some(ended) = self.rolled.pop() {
            self.count_on(&ended)?;
        }
        let next = self.b.exact(Op::Add, number.value, self.b.int(bits, 1), true)?;
        self.b.step(counter, next)?;
        let more = self.b.compare_int(inkwell::IntPredicate::ULT, next.into(), self.b.int(bits, trips).into())?;
        self.b.branch(more, body, after)?;
        self.b.at_end(after);
        Ok(())
    }

    /// A variable that the program does not have.
    pub fn new_var(&mut self) -> Var {
        self.next_var += 1;
        Var(self.next_var - 1)
    }

    /// The iterations of one trip: iteration `c` of trip `t` is `t * copies + c`.
    fn several(&mut self, l: &For, trip: Var, copies: i64) -> Result<()> {
        for c in 0..copies {
            self.unrolled.insert(l.var, trip * copies + c);
            self.stmts(&l.body)?;
        }
        self.unrolled.remove(&l.var);
        Ok(())
    }

    pub(super) fn describe(&self, l: &For, extent: i64, copies: i64) -> String {
        let mut text = format!("loop {} in 0..{extent}", self.name_of(l.var));
        if copies > 1 {
            text.push_str(&format!(", {copies} at a time"));
        }
        let blocks: Vec<&str> = visit::blocks(&l.body).iter().map(|b| self.func.block_name(b.name)).collect();
        if !blocks.is_empty() {
            text.push_str(&format!(": {}", blocks.join(", ")));
        }
        text
    }

    /// Finds a place for every buffer that is used.
    fn place_buffers(&mut self, shared: Option<PointerValue<'c>>) -> Result<()> {
        let (reads, writes) = (visit::reads(&self.func.body), visit::writes(&self.func.body));
        for (i, buffer) in self.func.buffers.iter().enumerate() {
            let id = BufferId(i as u32);
            if !reads.contains(&id) && !writes.contains(&id) {
                continue;
            }
            let place = match buffer.scope {
                Scope::Global => {
                    let position = self.func.params.iter().position(|p| *p == id);
                    let position = position.ok_or_else(|| bug(format!("{} is no parameter", buffer.name)))?;
                    Storage::Global { pointer: self.parameter(position)?, only_read: !writes.contains(&id) }
                }
                Scope::Shared => self.place_shared(buffer, shared)?,
                Scope::Local if is_packed(buffer.dtype) => Storage::Packed(self.place_packed(buffer)?),
                Scope::Local => Storage::Local(self.place_local(id, buffer)?),
                Scope::Cluster | Scope::Fragment => return Err(bug(format!("{} has no place", buffer.name))),
            };
            self.places.insert(id, place);
        }
        Ok(())
    }
}
