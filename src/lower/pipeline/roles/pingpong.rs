//! Ping-pong warpgroups: `bind L warpgroup pingpong`.
//!
//! Each of them runs one iteration of the loop; the role that loads runs all, so that its slots go round from turn to turn.
//! The phase of a slot has a parity alone: a warpgroup that waited for its first slot while another one has yet to use it
//! would take that one's phase for its own. So the turn with the number `t`, over all loops around, begins when the one
//! before it has seen its last slot filled, in every warp: mbarrier `t % G` of G says so in its phase `t / G`. From there on the
//! two overlap: while one's sums leave, the other multiplies.

use crate::ir::simplify::{self, Env};
use crate::ir::{Cond, Elect, For, Func, Index, Mbarrier, Slot, Stmt, Sync, SyncKind, visit};
use crate::lower::map::blocks::guarded;

/// The turns at a loop.
pub struct Turns<'a> {
    pub of: &'a For,
    /// Which turn an iteration is, over all loops around.
    pub number: &'a Index,
    /// Warpgroups.
    pub groups: u32,
    /// Warps of them all.
    pub warps: u32,
}

impl Turns<'_> {
    /// What a warpgroup runs in its turn.
    pub fn taken(&self, mut own: Vec<Stmt>, env: &Env, func: &mut Func) -> Vec<Stmt> {
        let name = func.var_name(self.of.var).to_string();
        let (name_of, slots) = (format!("{name}_pingpong"), self.groups);
        let arrivals = self.warps / self.groups.max(1);
        func.mbarriers.push(Mbarrier { name: name_of, slots, arrivals, offset: None });
        let (barrier, groups) = (func.mbarriers.len() as u32 - 1, i64::from(self.groups));
        let slot = |n: Index| Slot { barrier, index: simplify::simplify(&n.floormod(groups), env) };
        // One further than the turn before, whose number would be less than nothing at the start.
        let after = self.number.clone() + (groups - 1);
        let phase = after.clone().floordiv(groups) - 1;
        let kind = SyncKind::Await { slot: slot(after), phase: simplify::simplify(&phase, env) };
        let wait =
            Stmt::Sync(kind.because(format!("ping-pong: the previous warpgroup has all of its stages ({name})")));
        let reason = format!("ping-pong: all stages of this warpgroup are full, the next one begins ({name})");
        let arrive = Sync { kind: SyncKind::Arrive { slot: slot(self.number.clone()), blocks: None }, reason };
        // Each warp by itself: products hold no warp back that another one is ahead of, and where a ring has more slots than a turn
        // takes, one that has not yet begun its turn could otherwise be left behind by two of them.
        let pass_on = vec![Stmt::Elect(Elect { warps: 1, body: vec![Stmt::Sync(arrive)] })];
        match own.iter().rposition(waits) {
            Some(at) => match &mut own[at] {
                Stmt::For(l) if l.extent.as_int().is_some() && l.body.iter().any(is_wait) => {
                    let last = Cond::ge(l.var, l.extent.as_int().unwrap_or(1) - 1);
                    let behind = l.body.iter().rposition(is_wait).map_or(0, |n| n + 1);
                    l.body.splice(behind..behind, guarded(last, pass_on));
                }
                _ => drop(own.splice(at + 1..at + 1, pass_on)),
            },
            None => own.extend(pass_on),
        }
        own.insert(0, wait);
        own
    }
}

fn is_wait(stmt: &Stmt) -> bool {
    matches!(stmt, Stmt::Sync(Sync { kind: SyncKind::Await { .. }, .. }))
}

fn waits(stmt: &Stmt) -> bool {
    let mut found = false;
    visit::walk(std::slice::from_ref(stmt), &mut |s| found |= is_wait(s));
    found
}
