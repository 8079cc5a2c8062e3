//! Asynchronous stores to the blocks of a cluster (PTX ISA, "st.async"): a value lands at any time from its start on, and an mbarrier of
//! the block that it goes to then counts its bytes.

use super::super::inst::Inst;
use super::super::trap::Trap;
use super::super::warp::Context;
use super::super::world::Space;
use super::bulk::{Bulk, Copies, Load};
use super::mbarrier::{Mbarriers, landing};
use super::operands::{address, count, unsupported};
use crate::error::{Code, Result};
use crate::sim::clocks::Accessor;

impl Bulk {
    /// `st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [a], v, [mbarrier]`.
    pub fn decode_send(inst: &Inst) -> Result<Bulk> {
        let form = ["st", "async", "shared::cluster", "mbarrier::complete_tx::bytes"];
        let bytes = match inst.opcode.get(4).map_or("", String::as_str) {
            "b32" | "u32" | "s32" | "f32" => 4,
            "b64" | "u64" | "s64" | "f64" => 8,
            _ => 0,
        };
        if bytes == 0 || inst.opcode.len() != 5 || inst.opcode.iter().zip(form).any(|(a, b)| a != b) {
            return Err(unsupported(inst, "this asynchronous store is not supported"));
        }
        count(inst, 3..=3)?;
        address(inst, 0)?;
        address(inst, 2)?;
        Ok(Bulk::Send { bytes })
    }
}

impl Copies {
    /// A value goes to another block, whose mbarrier counts its bytes.
    pub fn send(
        &mut self,
        context: &mut Context<'_>,
        mbarriers: &mut Mbarriers,
        lane: usize,
        bytes: usize,
    ) -> std::result::Result<(), Trap> {
        let inst = context.inst;
        context.early(false, lane)?;
        let place = (Space::Shared, context.warp.rank, lane);
        let spot = context.world.locate(place, context.value(&inst.operands[0], lane), bytes, bytes)?;
        let mbarrier = mbarriers.at(context, (lane, context.value(&inst.operands[2], lane), true))?;
        let (home, _) = mbarriers.place(mbarrier);
        if home != spot.memory - context.world.buffers {
            let message = "an asynchronous store completes on an mbarrier of another block than the one that it writes";
            return Err(Trap::lane(Code::PtxMbarrier, lane, message));
        }
        if context.world.ended.get(home) == Some(&true) {
            let message = format!("a store writes the shared memory of block {home} of the cluster, which has ended");
            return Err(Trap::lane(Code::PtxEnded, lane, message));
        }
        let by = Accessor { warp: context.warp.number, lane, agent: landing(mbarrier, &context.world.clock.clocks) };
        let raw = context.world.access(by, true);
        context.world.note_write(&raw, lane, spot, bytes, true)?;
        context.world.poison(spot, bytes);
        let data = context.value(&inst.operands[1], lane).to_le_bytes()[..bytes].to_vec();
        let (memory, chunks, line) = (spot.memory, vec![spot.offset], inst.line);
        self.loads.push(Load { mbarrier, by, memory, chunk: bytes, chunks, data, line });
        if context.world.landing.now() {
            self.land(self.loads.len() - 1, mbarriers, context.world)?;
        }
        Ok(())
    }
}
