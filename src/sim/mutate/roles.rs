//! What can be wrong with warp-specialized roles: which warps one has, and that its threads ask for more registers than there are,
//! for a number that is no multiple of 8, or for none while the other roles do.

use crate::ir::lowered::LoweredKernel;
use crate::ir::{RoleBody, Stmt};

/// What `setmaxnreg` counts in.
const STEP: u32 = 8;

/// Roles with a warp more or fewer at either end, with their warps shifted by one, with the warps of the next role, and with other
/// registers.
pub fn mutants(kernel: &LoweredKernel) -> Vec<(&'static str, String, LoweredKernel)> {
    let roles = || {
        kernel.func.body.iter().enumerate().filter_map(|(n, s)| if let Stmt::Role(r) = s { Some((n, r)) } else { None })
    };
    let (warps, sum) =
        roles().fold((0, 0), |(warps, sum), (_, r)| (warps + r.warps, sum + r.warps * r.regs.unwrap_or(0)));
    let mut out = Vec::new();
    let mut put = |kind, what: String, new: &[(usize, RoleBody)]| {
        let mut damaged = kernel.clone();
        new.iter().for_each(|(n, role)| damaged.func.body[*n] = Stmt::Role(role.clone()));
        out.push((kind, what, damaged));
    };
    for (n, role) in roles() {
        for new in ranges(role) {
            put("role", format!("the role of {} has {}", named(role), named(&new)), &[(n, new)]);
        }
        if let Some((m, next)) = roles().find(|(_, r)| r.first == role.first + role.warps && r.warps != role.warps) {
            let what = format!("the roles of {} and {} run each other's statements", named(role), named(next));
            let (first, second) = ((role.first, role.warps, role.regs), (next.first, next.warps, next.regs));
            let with = |r: &RoleBody, (first, warps, regs)| RoleBody { first, warps, regs, ..r.clone() };
            put("role", what, &[(n, with(next, first)), (m, with(role, second))]);
        }
        let Some(regs) = role.regs else { continue };
        let asks = |how: String| format!("the role of {} asks for {how}, not {regs}", named(role));
        let rest = (kernel.registers_at_start() * warps).saturating_sub(sum) / role.warps.max(1) / STEP;
        for new in [regs + (rest + 1) * STEP, regs + 1] {
            let what = asks(format!("{new} registers a thread"));
            put("registers of a role", what, &[(n, RoleBody { regs: Some(new), ..role.clone() })]);
        }
        put("registers of a role", asks("no registers".into()), &[(n, RoleBody { regs: None, ..role.clone() })]);
    }
    out
}

fn named(role: &RoleBody) -> String {
    format!("warps {}..{}", role.first, role.first + role.warps)
}

/// A role with a warp more or fewer at either end, and with its warps shifted by one.
fn ranges(role: &RoleBody) -> Vec<RoleBody> {
    let before = role.first.checked_sub(1);
    let ranges = [
        (before, Some(role.warps + 1)),
        (Some(role.first + 1), role.warps.checked_sub(1)),
        (Some(role.first), role.warps.checked_sub(1)),
        (Some(role.first), Some(role.warps + 1)),
        (before, Some(role.warps)),
        (Some(role.first + 1), Some(role.warps)),
    ];
    let other = |(first, warps): (Option<u32>, Option<u32>)| {
        let (first, warps) = (first?, warps.filter(|w| *w > 0)?);
        Some(RoleBody { first, warps, ..role.clone() })
    };
    ranges.into_iter().filter_map(other).collect()
}
