//! Matrix and asynchronous instructions: mma, ldmatrix, stmatrix, wmma, wgmma, mbarriers, bulk copies, clusters.
//!
//! Everything here is written from the PTX ISA, not from warploom's instruction rows, layouts or code generator, so
//! that it is a second opinion on where an element is: `fragment` and `opaque` (registers), `exchange` (ldmatrix),
//! `tile` (descriptors and swizzles).
//!
//! # What is asynchronous
//!
//! An asynchronous operation is an agent of its own ([`crate::sim::clocks`]): the bulk loads that complete on an
//! mbarrier, the bulk stores of a warp, the wgmmas of a warp. Threads know of it only behind the wait that covers it,
//! and it knows of writes of threads only behind a proxy fence. A bulk load lands, and a bulk store reads and writes,
//! at any time between its start and that wait, as the policy draws. A wgmma computes when it starts, but reads shared
//! memory as an agent until its group has been waited for, and until then nothing else may touch its registers; so the
//! verdict is that of the worst time.

mod bulk;
mod cluster;
mod double;
mod exchange;
mod float8;
mod fragment;
mod mbarrier;
mod mma;
mod number;
mod opaque;
mod operands;
mod owners;
mod send;
mod tensor_map;
mod tile;
mod wgmma;
mod wmma;

use super::inst::{Entry, Inst};
use super::trap::Trap;
use super::warp::{Context, Next};
use super::world::World;
use crate::error::Result;
use crate::sim::fault::Waits;

/// A decoded instruction of this module.
#[derive(Debug, Clone)]
pub(in crate::sim::ptx) struct Op(Decoded);

#[derive(Debug, Clone)]
enum Decoded {
    Mma(mma::Mma),
    Doubles(double::Doubles),
    Exchange(exchange::Exchange),
    Wmma(wmma::Wmma),
    Wgmma(wgmma::Wgmma),
    Mbarrier(mbarrier::Op),
    Bulk(bulk::Bulk),
    Cluster(cluster::Op),
}

/// What the blocks of a cluster share beside memory: mbarriers, and copies and products under way.
#[derive(Debug, Clone, Default)]
pub(in crate::sim::ptx) struct State {
    mbarriers: mbarrier::Mbarriers,
    bulk: bulk::Copies,
    products: wgmma::State,
    cluster: cluster::State,
}

impl State {
    /// A cluster of so many blocks, each of so many warps, begins.
    pub fn begin(&mut self, blocks: usize, warps: usize) {
        *self = State::default();
        self.products.begin(blocks * warps, warps);
        self.cluster.begin(blocks * warps, warps);
    }

    /// How many asynchronous operations may land now.
    pub fn pending(&self) -> usize {
        self.bulk.pending()
    }

    /// One of them lands. [`World::tensor`] is empty meanwhile: `self` was taken out of it.
    pub fn land(&mut self, which: usize, world: &mut World) -> std::result::Result<(), Trap> {
        self.bulk.land(which, &mut self.mbarriers, world)
    }

    /// All threads of the cluster have ended and nothing is pending: what is left undone.
    pub fn end(&mut self, _world: &mut World) -> std::result::Result<(), Trap> {
        self.bulk.end()?;
        self.products.end()?;
        self.mbarriers.end()
    }

    /// For a deadlock: what the warps wait for.
    pub fn waits(&self) -> Vec<Waits> {
        [self.mbarriers.waits(), self.cluster.waits()].concat()
    }

    /// Whether a warp has registers that ordinary instructions may not touch, or that it has fenced for wgmma.
    #[inline]
    pub fn is_watching(&self, warp: usize) -> bool {
        self.products.is_watching(warp)
    }

    /// An ordinary instruction of a warp is about to access its registers.
    ///
    /// # Errors
    /// One of them belongs to a wgmma under way.
    pub fn touch(&mut self, warp: usize, inst: &Inst) -> std::result::Result<(), Trap> {
        self.products.touch(warp, inst)
    }
}

/// The instruction, if this module knows it.
///
/// # Errors
/// An instruction of this module with a form or with operands that it does not have.
pub(in crate::sim::ptx) fn decode(inst: &Inst, _entry: &Entry) -> Result<Option<Op>> {
    let second = inst.opcode.get(1).map_or("", String::as_str);
    let decoded = match (inst.opcode[0].as_str(), second) {
        ("mma", _) => match mma::doubles(inst) {
            Some(shape) => Decoded::Doubles(double::Doubles::decode(inst, shape)?),
            None => Decoded::Mma(mma::Mma::decode(inst)?),
        },
        ("ldmatrix" | "stmatrix" | "movmatrix", _) => Decoded::Exchange(exchange::Exchange::decode(inst)?),
        ("wmma", _) => Decoded::Wmma(wmma::Wmma::decode(inst)?),
        ("wgmma", _) => Decoded::Wgmma(wgmma::Wgmma::decode(inst)?),
        ("mbarrier", _) => Decoded::Mbarrier(mbarrier::Op::decode(inst)?),
        ("cp", "async") if inst.has("bulk") => Decoded::Bulk(bulk::Bulk::decode(inst)?),
        ("st", "async") => Decoded::Bulk(bulk::Bulk::decode_send(inst)?),
        ("cp", "reduce") => return Err(operands::unsupported(inst, "bulk reductions are not supported")),
        ("prefetch", "tensormap") => {
            operands::count(inst, 1..=1)?;
            Decoded::Bulk(bulk::Bulk::PrefetchMap)
        }
        ("fence", "proxy" | "mbarrier_init")
        | ("barrier", "cluster")
        | ("mapa" | "setmaxnreg" | "griddepcontrol", _) => Decoded::Cluster(cluster::Op::decode(inst)?),
        _ => return Ok(None),
    };
    Ok(Some(Op(decoded)))
}

/// Whether the instruction needs vector clocks: it orders accesses of some warps, or another agent accesses memory.
pub(in crate::sim::ptx) fn needs_clocks(op: &Op) -> bool {
    matches!(
        op.0,
        Decoded::Wgmma(_)
            | Decoded::Mbarrier(_)
            | Decoded::Bulk(_)
            | Decoded::Cluster(cluster::Op::Fence | cluster::Op::Arrive { .. })
    )
}

/// Executes the instruction for the lanes of the context's mask.
pub(in crate::sim::ptx) fn step(op: &Op, context: &mut Context<'_>) -> std::result::Result<Next, Trap> {
    let warp = context.warp.number;
    if context.world.tensor.is_watching(warp) && !matches!(op.0, Decoded::Wgmma(_)) {
        context.world.tensor.touch(warp, context.inst)?;
    }
    match &op.0 {
        Decoded::Mma(op) => op.step(context)?,
        Decoded::Doubles(op) => op.step(context)?,
        Decoded::Exchange(op) => op.step(context)?,
        Decoded::Wmma(op) => op.step(context)?,
        _ => {
            // The state is apart from the world meanwhile: both are changed.
            let mut state = std::mem::take(&mut context.world.tensor);
            let next = match &op.0 {
                Decoded::Wgmma(op) => op.step(&mut state.products, context).map(|()| Next::Go),
                Decoded::Mbarrier(op) => op.step(&mut state.mbarriers, context),
                Decoded::Bulk(op) => op.step(&mut state.bulk, &mut state.mbarriers, context).map(|()| Next::Go),
                Decoded::Cluster(op) => op.step(&mut state.cluster, &mut state.mbarriers, context),
                _ => Ok(Next::Go),
            };
            context.world.tensor = state;
            return next;
        }
    }
    Ok(Next::Go)
}

#[cfg(test)]
mod testing {
    //! Instructions that tests make by hand.

    use crate::sim::ptx::inst::{Inst, Operand};

    /// A register of 32 bits.
    pub fn reg(reg: u32) -> Operand {
        Operand::Reg { reg, bits: 32 }
    }

    /// An instruction without a guard.
    pub fn inst(opcode: &str, operands: Vec<Operand>) -> Inst {
        let opcode = opcode.split('.').map(str::to_string).collect();
        Inst { line: 1, guard: None, opcode, operands }
    }
}
