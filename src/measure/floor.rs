//! The floor: no program runs faster than an empty launch plus the larger of arithmetic at the peak rate and traffic at
//! the measured bandwidth.

use crate::error::Result;
use crate::kernel::{Kernel, Kernels};
use crate::runtime::{Device, median};

/// The floor in microseconds: `launch_us` of an empty kernel, then arithmetic or traffic, whichever takes longer.
/// What is not known counts as no time.
pub fn floor_us(
    launch_us: f64,
    operations: f64,
    operations_per_second: Option<f64>,
    bytes: f64,
    bytes_per_second: Option<f64>,
) -> f64 {
    let time = |amount: f64, rate: Option<f64>| rate.filter(|r| *r > 0.0).map_or(0.0, |r| amount / r * 1e6);
    launch_us + time(operations, operations_per_second).max(time(bytes, bytes_per_second))
}

/// Microseconds a launch of nothing takes between two events, as one of a graph of so many or (for 1) alone.
pub(super) fn launch_us(device: &Device, launches: usize) -> Result<f64> {
    let program = device.load(&nothing(1))?;
    let graph = match launches {
        0 | 1 => None,
        _ => Some(device.capture(|| (0..launches).try_for_each(|_| program.launch(&[])))?),
    };
    let (start, end) = (device.event()?, device.event()?);
    let mut times = Vec::new();
    for _ in 0..40 {
        start.record()?;
        graph.as_ref().map_or_else(|| program.launch(&[]), |graph| graph.launch())?;
        end.record()?;
        end.synchronize()?;
        times.push(end.microseconds_since(&start)? / launches.max(1) as f64);
    }
    Ok(median(&times))
}

/// A kernel that does nothing, in the oldest form that every driver takes; or in clusters of so many blocks.
pub fn nothing(cluster: u32) -> Kernels {
    let (target, ptx_version) = if cluster > 1 { ("sm_90", 78) } else { ("sm_70", 60) };
    let (major, minor) = (ptx_version / 10, ptx_version % 10);
    let head = format!(".version {major}.{minor}\n.target {target}\n.address_size 64\n");
    let directive = if cluster > 1 { format!(".reqnctapercluster {cluster}, 1, 1 ") } else { String::new() };
    let kernel = Kernel { cluster: [cluster, 1, 1], ..Kernel::new("nothing", vec![], [cluster, 1, 1], [32, 1, 1]) };
    let text = format!("{head}.visible .entry nothing() {directive}{{ ret; }}\n");
    Kernels::new("nothing", target, ptx_version, text, vec![kernel])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_of_arithmetic_and_traffic_counts() {
        assert_eq!(floor_us(2.0, 1e9, Some(1e12), 1e6, Some(1e12)), 1002.0);
        assert_eq!(floor_us(2.0, 1e6, Some(1e12), 1e9, Some(1e12)), 1002.0);
        assert_eq!(floor_us(2.0, 1e9, None, 1e9, None), 2.0);
    }
}
