//! A digest of what one instruction does in all threads, or of all accesses of memory, barriers and conditional branches: two texts
//! with the same digest do the same there.

use super::code::{Op, OpKind};
use super::exec::{Program, lanes};
use super::warp::Warp;
use super::world::World;

impl Warp {
    /// Adds what an operation has just done in the lanes of a mask, if it is one that is traced.
    #[cold]
    pub(super) fn trace(&mut self, program: &Program<'_>, world: &mut World, (op, pc): (&Op, usize), mask: u32) {
        let Some(mut trace) = world.trace else { return };
        let line = program.entry.insts[pc].line;
        // An unconditional branch does nothing that an access behind it would not show.
        let touches = match &op.kind {
            OpKind::Load(_) | OpKind::Store(_) | OpKind::Copy { .. } => true,
            OpKind::Barrier | OpKind::WarpBarrier | OpKind::Commit | OpKind::Wait(_) | OpKind::Tensor(_) => true,
            OpKind::Branch(_) => op.guard.is_some(),
            _ => false,
        };
        if trace.line.map_or(!touches, |own| own != line) {
            return;
        }
        let mut registers = vec![op.dst];
        let mut predicates = Vec::new();
        let mut place = u64::from(line);
        match &op.kind {
            OpKind::Load(access) => {
                registers.clone_from(&access.values);
                registers.push(op.a);
                place += (access.offset as u64) << 32;
            }
            OpKind::Unpack { parts, .. } => registers.clone_from(parts),
            OpKind::Store(access) => {
                registers.clone_from(&access.values);
                registers.push(op.a);
                place += (access.offset as u64) << 32;
            }
            OpKind::Copy { source, .. } => {
                registers.extend([op.a, op.b, op.c]);
                registers.extend(source.as_ref());
            }
            OpKind::Compare { complement, .. } => {
                registers.clear();
                predicates.extend([op.dst, *complement]);
            }
            OpKind::Predicate(..) => {
                registers.clear();
                predicates.push(op.dst);
            }
            OpKind::Barrier | OpKind::WarpBarrier => registers.extend([op.a, op.b]),
            OpKind::Branch(to) => place += program.entry.insts.get(*to as usize).map_or(0, |i| u64::from(i.line)) << 32,
            _ => {}
        }
        for lane in lanes(mask) {
            let who = u64::from(world.number) << 32 | (self.number as u64) << 8 | lane as u64;
            let mut digest = mix(mix(who, self.traced), place);
            for register in registers.iter().filter_map(|r| self.registers.get(*r as usize)) {
                digest = mix(digest, register[lane]);
            }
            for predicate in predicates.iter().filter_map(|p| self.predicates.get(*p as usize)) {
                digest = mix(digest, u64::from(predicate >> lane & 1));
            }
            trace.digest = trace.digest.wrapping_add(digest);
        }
        self.traced += 1;
        world.trace = Some(trace);
    }
}

/// A finaliser of MurmurHash3 over a running digest.
fn mix(digest: u64, value: u64) -> u64 {
    let mut x = digest.rotate_left(23) ^ value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
}
