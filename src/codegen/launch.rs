//! Who runs: the hardware's indices, what each block derives from them, and the loop that the blocks of the grid walk.
//!
//! Where there are clusters, blockIdx.x counts clusters: the hardware's index is the cluster's number times its blocks, plus
//! the rank. A persistent loop begins with the number of the block (the cluster) and goes on by as many as there are, which
//! only the launch knows.

use super::body::Body;
use super::builder::Value;
use super::index::{Number, Variable};
use super::session::bug;
use crate::error::Result;
use crate::ir::{Axis, For, Index, Var};
use inkwell::values::{InstructionOpcode as Op, IntValue};

const BLOCK: &str = "llvm.nvvm.read.ptx.sreg.ctaid.x";
const BLOCKS: &str = "llvm.nvvm.read.ptx.sreg.nctaid.x";

impl<'c> Body<'c, '_, '_> {
    /// Reads the hardware's indices and computes what the block derives from them.
    pub(super) fn launch(&mut self) -> Result<()> {
        let kernel = self.kernel;
        let walked = kernel.persistent().map(|(tile, _)| tile);
        let first = kernel.func.params.len() + kernel.maps.len();
        for (at, number) in (first..).zip(kernel.sizes()) {
            let size = &kernel.func.sizes[number];
            let Some(value) = self.function.get_nth_param(at as u32) else {
                return Err(bug(format!("the kernel has no parameter {at}")));
            };
            if u32::try_from(size.extent()).is_err() {
                return Err(bug("a dynamic size has no 32-bit extent"));
            }
            let least = (size.size.low + size.size.by - 1).div_euclid(size.size.by);
            self.introduce(size.var, value.into_int_value(), least..size.extent(), 0);
        }
        for axis in &kernel.launch {
            if axis.extent <= 1 {
                self.unrolled.insert(axis.var, Index::Int(0));
            } else if walked != Some(axis.var) {
                let value = match axis.axis {
                    Axis::BlockX => self.clusters_of(BLOCK, axis.extent)?,
                    other => {
                        let register =
                            register_of(other).ok_or_else(|| bug(format!("{} is no hardware axis", other.name())))?;
                        self.hardware_index(register, axis.extent)?
                    }
                };
                // Block indices are the same for all threads of a block: they come first.
                self.introduce(axis.var, value, 0..axis.extent.into(), !axis.axis.is_block_level() as u32);
            }
        }
        if walked.is_none() {
            self.derive()?;
        }
        self.number_warps()?;
        self.depth = 1;
        Ok(())
    }

    /// Takes the number of the warp from its first lane where the kernel says so.
    fn number_warps(&mut self) -> Result<()> {
        let Some(var) = self.kernel.uniform_warp else { return Ok(()) };
        let axis = self.kernel.launch.iter().find(|l| l.var == var);
        let (Some(axis), Some(thread)) = (axis, self.variables.get(&var).map(|v| v.number)) else {
            return Err(bug("the axis that numbers the warps is no axis of the launch"));
        };
        let warp = self.b.binary(Op::LShr, thread.value.into(), self.b.int(32, 5).into())?;
        let all = [self.b.int(32, -1).into(), warp, self.b.int(32, 0).into(), self.b.int(32, 31).into()];
        let value = self.b.intrinsic("llvm.nvvm.shfl.sync.idx.i32", &[], &all)?.into_int_value();
        let warp = self.new_var();
        self.introduce(warp, value, 0..axis.extent.div_ceil(32).into(), 1);
        self.warp = Some((axis.var, warp));
        Ok(())
    }

    fn hardware_index(&self, register: &str, end: u32) -> Result<IntValue<'c>> {
        let value = self.b.intrinsic(register, &[], &[])?.into_int_value();
        self.b.below(value, end)?;
        Ok(value)
    }

    /// An index or a number of blocks in x as one of clusters; at most `extent`, or below it if it is an index.
    fn clusters_of(&self, register: &str, extent: u32) -> Result<IntValue<'c>> {
        let cluster = self.kernel.cluster();
        let blocks = extent.saturating_mul(cluster);
        let value =
            self.hardware_index(register, if register == BLOCKS { blocks.saturating_add(1) } else { blocks })?;
        match cluster {
            1 => Ok(value),
            n => Ok(self.b.binary(Op::UDiv, value.into(), self.b.int(32, n.into()).into())?.into_int_value()),
        }
    }

    /// The number of the block in the whole grid, and how many there are.
    pub(super) fn block_of_grid(&self) -> Result<(Value<'c>, Value<'c>)> {
        let kernel = self.kernel;
        let [x, y, z] = kernel.grid();
        let constant = |n: u32| self.b.int(32, n.into()).into();
        let own = |register: &str, extent| self.hardware_index(register, extent).map(Value::from);
        // How many blocks walk a persistent loop, or have work at a dynamic size, is known to the launch alone.
        let count = |axis: Axis, register: &str, extent: u32| {
            let walked = axis == Axis::BlockX && kernel.persistent().is_some();
            let open = walked || kernel.clipped.iter().any(|c| c.axis == axis);
            if open { own(register, extent.saturating_add(1)) } else { Ok(constant(extent)) }
        };
        let (wide, high) =
            (count(Axis::BlockX, BLOCKS, x)?, count(Axis::BlockY, "llvm.nvvm.read.ptx.sreg.nctaid.y", y)?);
        let deep = count(Axis::BlockZ, "llvm.nvvm.read.ptx.sreg.nctaid.z", z)?;
        let all = self.b.binary(Op::Mul, wide, high)?;
        let all = self.b.binary(Op::Mul, all, deep)?;
        let mut number = own("llvm.nvvm.read.ptx.sreg.ctaid.z", z)?;
        number = self.b.binary(Op::Mul, number, high)?;
        number = self.b.binary(Op::Add, number, own("llvm.nvvm.read.ptx.sreg.ctaid.y", y)?)?;
        number = self.b.binary(Op::Mul, number, wide)?;
        number = self.b.binary(Op::Add, number, own(BLOCK, x)?)?;
        Ok((number, all))
    }

    fn introduce(&mut self, var: Var, value: IntValue<'c>, range: std::ops::Range<i64>, depth: u32) {
        let number = Number { value, range: (range.start.into(), i128::from(range.end) - 1) };
        self.variables.insert(var, Variable { number, depth });
    }

    /// What the block computes from its indices, or from the number of its tile.
    fn derive(&mut self) -> Result<()> {
        for d in &self.kernel.derived {
            let value = self.index(&d.value)?.value;
            self.introduce(d.var, value, 0..d.extent, 0);
        }
        Ok(())
    }

    /// The tiles of this block: every so many as there are blocks, from its own number on. There are no more blocks than
    /// tiles, so each has at least one. Where the number of tiles follows from a dynamic size, those of the largest are its bound.
    pub(super) fn walk(&mut self, l: &For, round: Var) -> Result<()> {
        let constant = self.sum(&l.extent).as_constant();
        let most = constant.unwrap_or_else(|| self.kernel.extent(Axis::BlockX).into());
        let tiles = u32::try_from(most).map_err(|_| bug("a persistent loop has no 32-bit extent"))?;
        if tiles <= 1 {
            self.unrolled.insert(round, Index::Int(0));
            self.derive()?;
            return self.stmts(&l.body);
        }
        let (first, step) = (self.clusters_of(BLOCK, tiles)?, self.clusters_of(BLOCKS, tiles)?);
        let end = match constant {
            Some(_) => self.b.int(32, tiles.into()),
            None => self.index(&l.extent)?.value,
        };
        let (from, body, after) = (self.b.here()?, self.new_block("loop"), self.new_block("after"));
        self.listing.name(body, &self.describe(l, tiles.into(), 1));
        self.b.jump(body)?;
        self.b.at_end(body);
        let tile = self.b.induction(first, from, &self.name_of(l.var))?;
        let count = self.b.induction(self.b.int(32, 0), from, &self.name_of(round))?;
        self.introduce(l.var, tile.into_int_value(), 0..tiles.into(), 0);
        self.introduce(round, count.into_int_value(), 0..tiles.into(), 0);
        self.derive()?;
        self.stmts(&l.body)?;
        // Both are below 2^31, so their sum does not wrap as an unsigned number.
        let next = self.b.binary(Op::Add, tile, step.into())?;
        self.b.step(tile, next.into_int_value())?;
        let more = self.b.exact(Op::Add, count.into_int_value(), self.b.int(32, 1), true)?;
        self.b.step(count, more)?;
        let goes_on = self.b.compare_int(inkwell::IntPredicate::ULT, next, end.into())?;
        self.b.branch(goes_on, body, after)?;
        self.b.at_end(after);
        Ok(())
    }
}

/// The intrinsic that reads the index.
fn register_of(axis: Axis) -> Option<&'static str> {
    Some(match axis {
        Axis::BlockX => BLOCK,
        Axis::BlockY => "llvm.nvvm.read.ptx.sreg.ctaid.y",
        Axis::BlockZ => "llvm.nvvm.read.ptx.sreg.ctaid.z",
        Axis::Cluster => "llvm.nvvm.read.ptx.sreg.cluster.ctarank",
        Axis::ThreadX => "llvm.nvvm.read.ptx.sreg.tid.x",
        Axis::ThreadY => "llvm.nvvm.read.ptx.sreg.tid.y",
        Axis::ThreadZ => "llvm.nvvm.read.ptx.sreg.tid.z",
        Axis::Warpgroup | Axis::Warp => return None,
    })
}
