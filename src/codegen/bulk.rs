//! Bulk copies, what one thread of several warps runs, and mbarriers: inline PTX from templates.
//!
//! A tensor map is a parameter of the kernel that the kernel does not write (grid constant); TMA reads it where the driver
//! has put it.

use super::access::Storage;
use super::body::Body;
use super::builder::{Type, Value};
use super::session::bug;
use super::words::elements_of;
use crate::error::Result;
use crate::ir::lowered::parity;
use crate::ir::simplify;
use crate::ir::{BufferId, BulkCopy, Cond, Elect, Slot, SyncKind, Way};
use crate::target::LINE;
use inkwell::IntPredicate;
use inkwell::values::{InstructionOpcode as Op, PointerValue, ValueKind};

const LOAD: &str = include_str!("../../ptx-templates/bulk_load.ptx");
const LOAD_MULTICAST: &str = include_str!("../../ptx-templates/bulk_load_multicast.ptx");
const STORE: &str = include_str!("../../ptx-templates/bulk_store.ptx");
const ELECT: &str = include_str!("../../ptx-templates/elect.ptx");
const INIT_FENCE: &str = include_str!("../../ptx-templates/mbarrier_init_fence.ptx");
const EXPECT: &str = include_str!("../../ptx-templates/mbarrier_expect.ptx");
const ARRIVE: &str = include_str!("../../ptx-templates/mbarrier_arrive.ptx");
const ARRIVE_CLUSTER: &str = include_str!("../../ptx-templates/mbarrier_arrive_cluster.ptx");
const WAIT: &str = include_str!("../../ptx-templates/mbarrier_wait.ptx");
const TEST: &str = include_str!("../../ptx-templates/mbarrier_test.ptx");
const ARRIVE_STATE: &str = include_str!("../../ptx-templates/mbarrier_arrive_state.ptx");
const PREFETCH_MAP: &str = include_str!("../../ptx-templates/prefetch_map.ptx");
const PREFETCH: &str = include_str!("../../ptx-templates/bulk_prefetch.ptx");
const PREFETCH_LINE: &str = include_str!("../../ptx-templates/prefetch_line.ptx");

/// How long a wait may sleep before it looks again.
const SLEEP: u32 = 10_000_000;
/// Bytes of an mbarrier.
const MBARRIER: i64 = 8;

impl<'c> Body<'c, '_, '_> {
    /// Starts a bulk copy.
    pub fn bulk(&mut self, copy: &BulkCopy) -> Result<()> {
        let Storage::Shared(base) = self.place(copy.shared)? else {
            return Err(bug("a box that is not in shared memory"));
        };
        let (pointer, _) = self.address(copy.shared, base, &copy.indices)?;
        let place = self.b.short_address(pointer)?;
        let map = self.map(copy.map)?;
        let mut coordinates = Vec::new();
        // Of elements below a byte the map counts bytes.
        let per_byte = i64::from(8 / self.buffer(copy.global)?.dtype.bits().min(8));
        for (n, i) in copy.coordinates.iter().rev().enumerate() {
            let bytes = if n == 0 && per_byte > 1 { Some(i.clone().floordiv(per_byte)) } else { None };
            let number = self.index(bytes.as_ref().unwrap_or(i))?;
            coordinates.push(self.widened(number, 32)?.into());
        }
        let dims = [("dims", coordinates.len().to_string())];
        match &copy.way {
            Way::Store => self.template(STORE, &dims, &[("M", &[map]), ("X", &coordinates), ("S", &[place])]),
            Way::Load { full, multicast } => {
                let barrier = self.mbarrier(full)?;
                let operands = [("D", &[place][..]), ("M", &[map]), ("X", &coordinates), ("B", &[barrier])];
                let Some(blocks) = multicast else { return self.template(LOAD, &dims, &operands) };
                let mask = self.b.int(16, (1i64 << blocks) - 1).into();
                let [d, m, x, b] = operands;
                self.template(LOAD_MULTICAST, &dims, &[d, m, x, b, ("K", &[mask])])
            }
        }
    }

    /// What one thread of several warps runs.
    pub fn elect(&mut self, e: &Elect, stmts: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let after = self.new_block("after");
        let first = Cond::eq(self.kernel.warp().floormod(i64::from(e.warps)), 0);
        let first = simplify::simplify_cond(&first, &self.kernel.env());
        if first != Cond::TRUE {
            let (condition, warp) = (self.condition(&first)?, self.new_block("warp"));
            self.b.branch(condition, warp, after)?;
            self.b.at_end(warp);
        }
        let one = self.one_lane()?;
        let inside = self.new_block("elected");
        self.listing.name(inside, &format!("one thread of {} warps", e.warps));
        self.b.branch(one, inside, after)?;
        self.b.at_end(inside);
        stmts(self)?;
        self.b.jump(after)?;
        self.b.at_end(after);
        Ok(())
    }

    /// Whether the lane is the one that its warp elects: the first, where the chip has no elections.
    fn one_lane(&mut self) -> Result<Value<'c>> {
        if !self.is_modern() {
            return self.condition(&Cond::eq(self.kernel.lane(), 0));
        }
        let elected = self.b.asm(expand(ELECT, &[], &[("D", 1)]), "=r".to_string(), &[self.b.i32().into()], &[])?;
        let ValueKind::Basic(elected) = elected else { return Err(bug("an election without a result")) };
        self.b.compare_int(IntPredicate::NE, elected, self.b.int(32, 0).into())
    }

    /// What is done to mbarriers, and groups of bulk stores.
    pub fn sync_bulk(&mut self, kind: &SyncKind) -> Result<()> {
        let number = |n: u32| self.b.int(32, i64::from(n)).into();
        match kind {
            SyncKind::BulkCommit => self.b.effect("llvm.nvvm.cp.async.bulk.commit.group", &[]),
            SyncKind::BulkWait { groups, read } => {
                let read = if *read { ".read" } else { "" };
                self.b.effect(&format!("llvm.nvvm.cp.async.bulk.wait.group{read}"), &[number(*groups)])
            }
            SyncKind::InitBarriers => self.set_mbarriers(),
            SyncKind::Prefetch { buffer, share } => self.prefetch(*buffer, *share),
            SyncKind::PrefetchMap { map } => {
                let map = self.map(*map)?;
                self.template(PREFETCH_MAP, &[], &[("M", &[map])])
            }
            SyncKind::PrefetchLine { buffer, at } => {
                let Storage::Global { pointer, .. } = self.place(*buffer)? else {
                    return Err(bug("a prefetch of no global buffer"));
                };
                let (address, _) = self.address(*buffer, pointer, std::slice::from_ref(at))?;
                let address = self.b.long_address(address)?;
                self.template(PREFETCH_LINE, &[], &[("M", &[address])])
            }
            SyncKind::Expect { slot, bytes } => {
                let barrier = self.mbarrier(slot)?;
                match bytes.as_int() {
                    Some(bytes) => self.template(EXPECT, &[("bytes", bytes.to_string())], &[("B", &[barrier])]),
                    None => {
                        let bytes = self.index(bytes)?;
                        let bytes = self.widened(bytes, 32)?.into();
                        self.template(EXPECT, &[], &[("B", &[barrier]), ("bytes", &[bytes])])
                    }
                }
            }
            SyncKind::Arrive { slot, blocks: None } => {
                let barrier = self.mbarrier(slot)?;
                self.template(if self.is_modern() { ARRIVE } else { ARRIVE_STATE }, &[], &[("B", &[barrier])])
            }
            SyncKind::Arrive { slot, blocks: Some(blocks) } => {
                let barrier = self.mbarrier(slot)?;
                let rank = |n: u32| self.b.int(32, n.into()).into();
                let arrive = |n| self.template(ARRIVE_CLUSTER, &[], &[("B", &[barrier]), ("R", &[rank(n)])]);
                (0..*blocks).try_for_each(arrive)
            }
            SyncKind::Await { slot, phase } => {
                let parity = parity(phase, &self.ranges);
                let (barrier, parity) = (self.mbarrier(slot)?, self.index(&parity)?);
                let parity = self.widened(parity, 32)?.into();
                let sleep = [("nanoseconds", SLEEP.to_string())];
                self.template(
                    if self.is_modern() { WAIT } else { TEST },
                    &sleep,
                    &[("B", &[barrier]), ("P", &[parity])],
                )
            }
            other => Err(bug(format!("{} has no form yet", other.word()))),
        }
    }

    /// Sets every mbarrier to the start of its first phase.
    fn set_mbarriers(&mut self) -> Result<()> {
        for (n, array) in self.func.mbarriers.iter().enumerate() {
            for slot in 0..array.slots {
                let pointer = self.mbarrier_at(&Slot { barrier: n as u32, index: i64::from(slot).into() })?;
                let arrivals = self.b.int(32, i64::from(array.arrivals)).into();
                self.b.effect("llvm.nvvm.mbarrier.init.shared", &[pointer.into(), arrivals])?;
            }
        }
        if self.is_modern() { self.template(INIT_FENCE, &[], &[]) } else { Ok(()) }
    }

    /// Asks for the block's share of a buffer: so many bytes, or as many lines as the other blocks'; the last ones fewer or none.
    fn prefetch(&mut self, buffer: BufferId, share: Option<u64>) -> Result<()> {
        let Storage::Global { pointer, .. } = self.place(buffer)? else {
            return Err(bug("a prefetch of no global buffer"));
        };
        let described = self.func.buffer(buffer);
        // A bulk prefetch has a multiple of 16 bytes (PTX ISA, cp.async.bulk.prefetch).
        let bytes = described.dtype.bytes_of(elements_of(described)?.unsigned_abs()) & !15;
        // Whole lines.
        let line = LINE.unsigned_abs();
        let wide = |n: u64| i64::try_from(n).map(|n| self.b.int(64, n)).map_err(|_| bug("a buffer beyond 2^63 bytes"));
        let long = |value: Value<'c>| self.b.cast(Op::ZExt, value, self.b.context.i64_type().into());
        let (block, blocks) = self.block_of_grid()?;
        let (block, blocks, end) = (long(block)?, long(blocks)?, wide(bytes)?.into());
        let share = match share {
            Some(bytes) => wide(bytes)?.into(),
            None => {
                let lines = self.b.binary(Op::UDiv, wide(bytes.div_ceil(line).saturating_sub(1))?.into(), blocks)?;
                let lines = self.b.binary(Op::Add, lines, wide(1)?.into())?;
                self.b.binary(Op::Mul, lines, wide(line)?.into())?
            }
        };
        let start = self.b.binary(Op::Mul, block, share)?;
        let (inside, after) = (self.new_block("fetch"), self.new_block("after"));
        let begins = self.b.compare_int(IntPredicate::ULT, start, end)?;
        self.b.branch(begins, inside, after)?;
        self.b.at_end(inside);
        let left = self.b.binary(Op::Sub, end, start)?;
        let fewer = self.b.compare_int(IntPredicate::ULT, left, share)?;
        let size = self.b.select(fewer, left, share)?;
        let size = self.b.cast(Op::Trunc, size, self.b.i32().into())?;
        let address = self.b.binary(Op::Add, self.b.long_address(pointer)?, start)?;
        self.template(PREFETCH, &[], &[("M", &[address]), ("N", &[size])])?;
        self.b.jump(after)?;
        self.b.at_end(after);
        Ok(())
    }

    /// The address of an mbarrier, as a number.
    pub(super) fn mbarrier(&mut self, slot: &Slot) -> Result<Value<'c>> {
        let pointer = self.mbarrier_at(slot)?;
        self.b.short_address(pointer)
    }

    fn mbarrier_at(&mut self, slot: &Slot) -> Result<PointerValue<'c>> {
        let array = self.func.mbarriers.get(slot.barrier as usize);
        let (Some(offset), Some(shared)) = (array.and_then(|a| a.offset), self.shared) else {
            return Err(bug(format!("mbarrier {} has no place", slot.barrier)));
        };
        let at = self.index(&(slot.index.clone() * MBARRIER + i64::from(offset)))?;
        self.b.offset(self.b.context.i8_type().into(), shared, at.value, false)
    }

    /// The address of a tensor map.
    fn map(&self, map: u32) -> Result<Value<'c>> {
        let pointer = self.parameter(self.func.params.len() + map as usize)?;
        self.b.long_address(pointer)
    }

    /// Emits a template without results.
    pub fn template(&self, text: &str, fields: &[(&str, String)], operands: &[(&str, &[Value<'c>])]) -> Result<()> {
        let counts: Vec<(&str, usize)> = operands.iter().map(|(name, values)| (*name, values.len())).collect();
        let args: Vec<Value<'c>> = operands.iter().flat_map(|(_, values)| values.iter().copied()).collect();
        let constraints: String = args.iter().map(|a| format!("{},", letter(a.get_type()))).collect();
        self.b.asm(expand(text, fields, &counts), format!("{constraints}~{{memory}}"), &[], &args).map(|_| ())
    }
}

/// The text of a template with its fields filled in and its operands numbered: a list of registers where they are several,
/// or where the name has no `.0` behind it and is in no brackets of its own.
pub(super) fn expand(text: &str, fields: &[(&str, String)], operands: &[(&str, usize)]) -> String {
    let mut text: String = text.lines().filter(|l| !l.starts_with("//")).collect::<Vec<_>>().join("\n");
    for (field, value) in fields {
        text = text.replace(&format!("{{{field}}}"), value);
    }
    let mut first = 0;
    for (name, count) in operands {
        let all: Vec<String> = (first..first + count).map(|n| format!("${n}")).collect();
        let list = if *name == COORDINATES { format!("{{{}}}", all.join(", ")) } else { all.join(", ") };
        text = text.replace(&format!("{{{name}.0}}"), &format!("${first}"));
        text = text.replace(&format!("{{{name}}}"), &list);
        first += count;
    }
    text
}

/// The operand that is a list of registers, however many they are.
const COORDINATES: &str = "X";

/// The constraint of a register of a type.
fn letter(ty: Type) -> char {
    match ty {
        Type::IntType(t) if t.get_bit_width() == 16 => 'h',
        Type::IntType(t) if t.get_bit_width() == 64 => 'l',
        Type::PointerType(_) => 'l',
        _ => 'r',
    }
}
