//! What can be wrong with warp-specialized roles: which warps one has, and that its threads ask for more registers than there are,
//! or for a number that is no multiple of 8.

use crate::ir::lowered::{LoweredKernel, registers_at_start};
use crate::ir::{RoleBody, Stmt};

/// What `setmaxnreg` counts in.
const STEP: u32 = 8;

/// Roles with a warp more or fewer at either end, and with more registers.
pub fn mutants(kernel: &LoweredKernel) -> Vec<(&'static str, String, LoweredKernel)> {
    let all = kernel.func.body.iter().filter_map(|s| if let Stmt::Role(r) = s { Some(r) } else { None });
    let (warps, sum) = all.fold((0, 0), |(warps, sum), r| (warps + r.warps, sum + r.warps * r.regs.unwrap_or(0)));
    let mut out = Vec::new();
    for (n, stmt) in kernel.func.body.iter().enumerate() {
        let Stmt::Role(role) = stmt else { continue };
        let of = |r: &RoleBody| format!("warps {}..{}", r.first, r.first + r.warps);
        let mut put = |kind, what: String, new: RoleBody| {
            let mut damaged = kernel.clone();
            damaged.func.body[n] = Stmt::Role(new);
            out.push((kind, what, damaged));
        };
        let other = |first: Option<u32>, warps: Option<u32>| {
            let (first, warps) = (first?, warps.filter(|w| *w > 0)?);
            Some(RoleBody { first, warps, ..role.clone() })
        };
        let ranges = [
            other(role.first.checked_sub(1), Some(role.warps + 1)),
            other(Some(role.first + 1), role.warps.checked_sub(1)),
            other(Some(role.first), role.warps.checked_sub(1)),
            other(Some(role.first), Some(role.warps + 1)),
        ];
        for new in ranges.into_iter().flatten() {
            put("role", format!("the role of {} has {}", of(role), of(&new)), new);
        }
        let Some(regs) = role.regs else { continue };
        let rest = (registers_at_start(warps) * warps).saturating_sub(sum) / role.warps.max(1) / STEP;
        for new in [regs + (rest + 1) * STEP, regs + 1] {
            put(
                "registers of a role",
                format!("the role of {} asks for {new} registers a thread, not {regs}", of(role)),
                RoleBody { regs: Some(new), ..role.clone() },
            );
        }
    }
    out
}
