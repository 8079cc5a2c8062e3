//! What can be wrong with mbarriers as a whole: the number of arrivals that end a phase.

use crate::lower::LoweredKernel;

/// One arrival more or less in a phase.
pub fn counts(kernel: &LoweredKernel) -> Vec<(String, LoweredKernel)> {
    let one = |n: usize, by: i64| {
        let mut damaged = kernel.clone();
        let array = &mut damaged.func.mbarriers[n];
        let was = array.arrivals;
        array.arrivals = u32::try_from(i64::from(was) + by).ok().filter(|a| *a > 0)?;
        Some((format!("phases of {} end with {} arrivals, not {was}", array.name, array.arrivals), damaged))
    };
    (0..kernel.func.mbarriers.len()).flat_map(|n| [one(n, -1), one(n, 1)]).flatten().collect()
}
