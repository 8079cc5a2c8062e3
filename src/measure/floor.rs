//! The floor: no program runs faster than an empty launch plus the larger of arithmetic at the peak rate and traffic at
//! the measured bandwidth.

use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::{Access, Arg, Kernel, Kernels, Param};
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

/// Threads of a block that reads, loads of each of 16 bytes, and bytes that the block reads.
const READERS: u32 = 256;
const LOADS: u32 = 8;
pub(super) const READ_BY_BLOCK: u32 = READERS * LOADS * 16;

/// A kernel that reads so many blocks of [`READ_BY_BLOCK`] bytes. It stores to `sum` only where the exclusive or of what a thread read is 1, which makes
/// the loads necessary.
pub(super) fn reads(blocks: u32) -> Kernels {
    let load = |n: u32| {
        let words: Vec<String> = (0..4).map(|i| format!("%r{}", 8 + 4 * n + i)).collect();
        format!("ld.global.nc.v4.u32 {{{}}}, [%rd1+{}];\n", words.join(", "), n * READERS * 16)
    };
    let loads: String = (0..LOADS).map(load).collect();
    let sums: String = (9..8 + 4 * LOADS).map(|n| format!("xor.b32 %r8, %r8, %r{n};\n")).collect();
    let text = format!(
        ".version 6.0\n.target sm_70\n.address_size 64\n\
         .visible .entry reads(.param .u64 reads_param_0, .param .u64 reads_param_1) {{\n\
         .reg .pred %p<2>;\n.reg .b32 %r<{registers}>;\n.reg .b64 %rd<4>;\n\
         ld.param.u64 %rd1, [reads_param_0];\nld.param.u64 %rd2, [reads_param_1];\n\
         mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %tid.x;\n\
         mul.wide.u32 %rd3, %r1, {READ_BY_BLOCK};\nadd.s64 %rd1, %rd1, %rd3;\n\
         mul.wide.u32 %rd3, %r2, 16;\nadd.s64 %rd1, %rd1, %rd3;\n\
         {loads}{sums}setp.eq.u32 %p1, %r8, 1;\n@%p1 st.global.u32 [%rd2], %r8;\nret;\n}}\n",
        registers = 8 + 4 * LOADS,
    );
    let words = i64::from(blocks) * i64::from(READ_BY_BLOCK / 4);
    let args = [("from", words, Access::Read), ("sum", 1, Access::ReadWrite)];
    let kernel = Kernel::new("reads", vec![Param::Arg(0), Param::Arg(1)], [blocks, 1, 1], [READERS, 1, 1]);
    Kernels {
        args: args.map(|(name, words, access)| Arg::new(name, DType::F32, &[words], access)).to_vec(),
        ..Kernels::new("reads", "sm_70", 60, text, vec![kernel])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Array;
    use crate::error::Code;
    use crate::sim::{Mode, Options, run_ptx};

    #[test]
    fn every_word_is_read_and_no_sum_is_stored() {
        let kernels = reads(2);
        let words = 2 * READ_BY_BLOCK as usize / 4;
        let run = |words: Vec<u32>| -> Result<u32> {
            let from = Array { dtype: DType::F32, ..Array::from_slice(&[words.len()], &words).unwrap() };
            let mut args = [from, Array::zeros(DType::F32, &[1]).unwrap()];
            run_ptx(&kernels, &Options::new(Mode::Real), &mut args)?;
            Ok(u32::from_le_bytes(args[1].bytes[..4].try_into().unwrap()))
        };
        assert_eq!(run(vec![0x3C3C_3C3C; words]).unwrap_err().code(), Code::PtxUnwritten);
        // Each word decides what its thread stores.
        for at in [0, 3, 1023, 1024, words / 2 - 1, words / 2, words - 1] {
            let mut one = vec![0; words];
            one[at] = 1;
            assert_eq!(run(one).unwrap(), 1, "{at}");
        }
    }

    #[test]
    fn the_larger_of_arithmetic_and_traffic_counts() {
        assert_eq!(floor_us(2.0, 1e9, Some(1e12), 1e6, Some(1e12)), 1002.0);
        assert_eq!(floor_us(2.0, 1e6, Some(1e12), 1e9, Some(1e12)), 1002.0);
        assert_eq!(floor_us(2.0, 1e9, None, 1e9, None), 2.0);
    }
}
