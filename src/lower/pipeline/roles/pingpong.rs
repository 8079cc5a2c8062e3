//! Ping-pong warpgroups: `bind L warpgroup pingpong`.
//!
//! Each consumer warpgroup runs its own iterations of the loop; the producer runs all, so the stages of its rings continue from tile
//! to tile. A wait knows a phase by its parity alone: a warpgroup that waited for its first stage before the previous warpgroup has
//! used that stage would take the other phase for its own. So tile `t`, over all loops around, begins when every warp of the
//! previous warpgroup has seen its last stage full: mbarrier `t % G` of G warpgroups, in its phase `t / G`. From there on the
//! two tiles overlap: the epilogue of one, and the MMAs of the other.

use crate::ir::simplify::{self, Env};
use crate::ir::{Cond, Elect, For, Func, Index, Mbarrier, Slot, Stmt, Sync, SyncKind, visit};
use crate::lower::map::blocks::guarded;

/// The warpgroups of a ping-pong loop.
pub struct Pingpong<'a> {
    pub of: &'a For,
    /// The number of a tile over all loops around.
    pub number: &'a Index,
    pub warpgroups: u32,
    /// Warps of all warpgroups.
    pub warps: u32,
}

impl Pingpong<'_> {
    /// The statements of a warpgroup for its tile: they begin after the previous warpgroup has all of its stages.
    pub fn ordered(&self, mut own: Vec<Stmt>, env: &Env, func: &mut Func) -> Vec<Stmt> {
        let name = func.var_name(self.of.var).to_string();
        let (name_of, slots) = (format!("{name}_pingpong"), self.warpgroups);
        let arrivals = self.warps / self.warpgroups.max(1);
        func.mbarriers.push(Mbarrier { name: name_of, slots, arrivals, offset: None });
        let (barrier, groups) = (func.mbarriers.len() as u32 - 1, i64::from(self.warpgroups));
        let slot = |n: Index| Slot { barrier, index: simplify::simplify(&n.floormod(groups), env) };
        // The mbarrier and phase of tile t - 1, from t + G - 1, which is not negative.
        let after = self.number.clone() + (groups - 1);
        let phase = after.clone().floordiv(groups) - 1;
        let kind = SyncKind::Await { slot: slot(after), phase: simplify::simplify(&phase, env) };
        let wait =
            Stmt::Sync(kind.because(format!("ping-pong: the previous warpgroup has all of its stages ({name})")));
        let reason = format!("ping-pong: all stages of this warpgroup are full, the next one begins ({name})");
        let arrive = Sync { kind: SyncKind::Arrive { slot: slot(self.number.clone()), blocks: None }, reason };
        // Each warp arrives: MMAs do not keep the warps of a warpgroup together. In a ring with more stages than a tile has k
        // iterations, a warp that has not begun its tile could otherwise be two phases behind.
        let arrive = vec![Stmt::Elect(Elect { warps: 1, body: vec![Stmt::Sync(arrive)] })];
        match own.iter().rposition(waits) {
            Some(at) => match &mut own[at] {
                Stmt::For(l) if l.extent.as_int().is_some() && l.body.iter().any(is_wait) => {
                    let last = Cond::ge(l.var, l.extent.as_int().unwrap_or(1) - 1);
                    let after = l.body.iter().rposition(is_wait).map_or(0, |n| n + 1);
                    l.body.splice(after..after, guarded(last, arrive));
                }
                _ => drop(own.splice(at + 1..at + 1, arrive)),
            },
            None => own.extend(arrive),
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
