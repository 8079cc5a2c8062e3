//! How many registers of a thread hold something that is still needed: the most at any instruction.
//!
//! ptxas puts instructions in another order, so its figure differs; but it needs about as many.

use super::flow::ways;
use super::parse::Entry;

/// 32-bit registers that are live together at most; predicates have registers of their own.
pub fn most(entry: &Entry) -> u32 {
    let words = entry.widths.len().div_ceil(64);
    let mut live = vec![vec![0u64; words]; entry.code.len() + 1];
    let mut changed = true;
    while changed {
        changed = false;
        for at in (0..entry.code.len()).rev() {
            let mut set = vec![0u64; words];
            for way in ways(entry, at) {
                set.iter_mut().zip(&live[way]).for_each(|(s, l)| *s |= l);
            }
            let i = &entry.code[at];
            // What a guard may leave out keeps its value.
            if i.guard.is_none() {
                i.defines.iter().for_each(|r| set[r / 64] &= !(1 << (r % 64)));
            }
            i.uses.iter().chain(i.guard.iter().map(|(p, _)| p)).for_each(|r| set[r / 64] |= 1 << (r % 64));
            changed |= live[at] != set;
            live[at] = set;
        }
    }
    let size = |set: &Vec<u64>| -> u32 {
        let held = |r: &usize| set[r / 64] >> (r % 64) & 1 == 1;
        (0..entry.widths.len()).filter(held).map(|r| entry.widths[r]).sum()
    };
    live.iter().map(size).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::parse::entries;
    use super::*;

    #[test]
    fn values_live_from_their_definition_to_their_last_use() {
        let text = ".entry k(.param .u64 k_param_0) {
            ld.param.u64 %rd1, [k_param_0];
            ld.global.v2.f32 {%f1, %f2}, [%rd1];
            mov.f32 %f3, 0f00000000;
        L:  fma.rn.f32 %f3, %f1, %f2, %f3;
            setp.eq.f32 %p1, %f3, %f1;
            @%p1 bra L;
            st.global.f32 [%rd1], %f3;
            ret; }";
        // The address, both loaded values, the sum.
        assert_eq!(most(&entries(text)[0]), 2 + 2 + 1);
    }

    #[test]
    fn a_guarded_definition_keeps_what_was_there() {
        let text = ".entry k() {
            mov.u32 %r1, 1;
            mov.u32 %r2, 2;
            setp.eq.s32 %p1, %r2, 3;
            @%p1 mov.u32 %r1, %r2;
            st.shared.u32 [%r1], %r1;
            ret; }";
        assert_eq!(most(&entries(text)[0]), 2);
    }
}
