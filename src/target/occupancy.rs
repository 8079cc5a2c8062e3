//! How many blocks of a kernel are resident on a multiprocessor at once (CUDA C++ Best Practices Guide, "Occupancy").

use super::Target;

/// How many blocks fit at once, and what stops one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occupancy {
    /// Resident blocks of a multiprocessor; 0 if not even one fits.
    pub blocks: u32,
    /// Their warps.
    pub warps: u32,
    /// The warps that a multiprocessor can hold.
    pub max_warps: u32,
    /// What stops one more block.
    pub limited_by: Reason,
}

/// What runs out first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Places for blocks.
    Blocks,
    /// Places for warps.
    Warps,
    /// Registers.
    Registers,
    /// Shared memory.
    Shared,
}

impl Reason {
    /// In messages.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Blocks => "blocks",
            Reason::Warps => "warps",
            Reason::Registers => "registers",
            Reason::Shared => "shared memory",
        }
    }
}

impl Occupancy {
    /// Resident warps as a share of those possible.
    pub fn fraction(&self) -> f64 {
        f64::from(self.warps) / f64::from(self.max_warps)
    }
}

impl Target {
    /// The most registers of a thread with which one block of so many threads fits on a multiprocessor: what a compiler may
    /// give out before it spills.
    pub fn registers_for(&self, threads: u32) -> u32 {
        let l = &self.limits;
        let per_scheduler = threads.div_ceil(32).max(1).div_ceil(4);
        let per_warp = l.registers_per_sm / 4 / per_scheduler / l.register_granularity * l.register_granularity;
        (per_warp / 32).min(l.registers_per_thread)
    }

    /// How many blocks of `threads` threads, `registers` registers a thread and `shared` bytes of shared memory are
    /// resident on a multiprocessor. Registers are handed out to whole warps, four warps (one per scheduler) at a time.
    pub fn occupancy(&self, threads: u32, registers: u32, shared: u32) -> Occupancy {
        let l = &self.limits;
        let warps = threads.div_ceil(32).max(1);
        let max_warps = l.threads_per_sm / 32;
        let per_warp = (registers.max(1).saturating_mul(32)).next_multiple_of(l.register_granularity);
        let by_registers = l.registers_per_sm / 4 / per_warp * 4 / warps;
        let share = (u64::from(shared) + u64::from(l.shared_reserved)).next_multiple_of(l.shared_granularity.into());
        let by_shared = u64::from(l.shared_per_sm).checked_div(share).map_or(u32::MAX, |n| n as u32);
        let fits = threads <= l.threads && registers <= l.registers_per_thread && shared <= l.shared_optin;
        let candidates = [
            (max_warps / warps, Reason::Warps),
            (by_registers, Reason::Registers),
            (by_shared, Reason::Shared),
            (l.blocks_per_sm, Reason::Blocks),
        ];
        let (blocks, limited_by) = candidates.into_iter().min_by_key(|c| c.0).unwrap_or((0, Reason::Blocks));
        let blocks = if fits { blocks } else { 0 };
        Occupancy { blocks, warps: blocks * warps, max_warps, limited_by }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(target: Target, threads: u32, registers: u32, shared: u32) -> (u32, Reason) {
        let o = target.occupancy(threads, registers, shared);
        (o.blocks, o.limited_by)
    }

    #[test]
    fn each_resource_can_be_the_one_that_runs_out() {
        assert_eq!(blocks(Target::sm_90(), 32, 16, 0), (32, Reason::Blocks));
        assert_eq!(blocks(Target::sm_90(), 256, 32, 0), (8, Reason::Warps));
        assert_eq!(blocks(Target::sm_90(), 256, 128, 0), (2, Reason::Registers));
        assert_eq!(blocks(Target::sm_80(), 128, 32, 40 * 1024), (4, Reason::Shared));
        assert_eq!(blocks(Target::sm_75(), 256, 64, 16 * 1024), (4, Reason::Warps));
    }

    #[test]
    fn the_reserved_kilobyte_counts() {
        assert_eq!(blocks(Target::sm_80(), 128, 32, 41 * 1024).0, 3);
        assert_eq!(blocks(Target::sm_70(), 128, 32, 48 * 1024).0, 2);
    }

    #[test]
    fn blocks_of_every_size_fit_with_the_registers_that_they_may_have() {
        let most = |threads| Target::sm_90().registers_for(threads);
        assert_eq!([32, 128, 256, 384, 512, 1024].map(most), [255, 255, 255, 168, 128, 64]);
        for (target, threads) in Target::ALL.into_iter().flat_map(|t| (1..=1024).map(move |n| (t, n))) {
            let registers = target.registers_for(threads);
            assert!(target.occupancy(threads, registers, 0).blocks > 0, "{target} {threads}");
            let more = target.occupancy(threads, registers + 1, 0).blocks;
            assert_eq!(more, 0, "{target} {threads}");
        }
    }

    #[test]
    fn what_does_not_fit_at_all_is_zero() {
        assert_eq!(blocks(Target::sm_75(), 128, 32, 65 * 1024).0, 0);
        assert_eq!(blocks(Target::sm_90(), 1025, 32, 0).0, 0);
        assert_eq!(blocks(Target::sm_90(), 128, 256, 0).0, 0);
        assert_eq!(blocks(Target::sm_90(), 1024, 72, 0).0, 0);
    }
}
