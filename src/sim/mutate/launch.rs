//! What can be wrong with how a kernel is launched: its blocks and threads, what blocks derive from their index, and where
//! shared buffers are.

use crate::ir::lowered::LoweredKernel;
use crate::ir::{Buffer, Index, Scope, print};

/// One block or thread more or less along an axis.
pub fn launches(kernel: &LoweredKernel) -> Vec<(String, LoweredKernel)> {
    let one = |n: usize, more: bool| {
        let mut damaged = kernel.clone();
        let launch = &mut damaged.launch[n];
        launch.extent = if more { launch.extent + 1 } else { launch.extent.checked_sub(1).filter(|e| *e > 0)? };
        Some((format!("{} of {}, not {}", launch.axis.name(), launch.extent, kernel.launch[n].extent), damaged))
    };
    (0..kernel.launch.len()).flat_map(|n| [one(n, false), one(n, true)]).flatten().collect()
}

/// What is derived from the block's index, with each constant one less and one more.
pub fn walks(kernel: &LoweredKernel) -> Vec<(String, LoweredKernel)> {
    let mut out = Vec::new();
    for (n, derived) in kernel.derived.iter().enumerate() {
        for value in shifted_constants(&derived.value) {
            let name = kernel.func.var_name(derived.var);
            let what = format!("{name} became {}", print::index(&kernel.func, &value));
            let mut damaged = kernel.clone();
            damaged.derived[n].value = value;
            out.push((what, damaged));
        }
    }
    out
}

fn shifted_constants(index: &Index) -> Vec<Index> {
    match index {
        Index::Int(v) => [v - 1, v + 1].into_iter().filter(|v| *v > 0).map(Index::Int).collect(),
        Index::Var(_) => Vec::new(),
        Index::Bin(op, a, b) => {
            let left = shifted_constants(a).into_iter().map(|a| Index::bin(*op, a, (**b).clone()));
            let right = shifted_constants(b).into_iter().map(|b| Index::bin(*op, (**a).clone(), b));
            left.chain(right).collect()
        }
    }
}

/// Shared buffers over each other, and less shared memory than they take.
pub fn plans(kernel: &LoweredKernel) -> Vec<(String, LoweredKernel)> {
    let func = &kernel.func;
    let bytes = |b: &Buffer| b.elements().map_or(0, |n| b.dtype.bytes_of(n as u64) as u32);
    let shared = || func.buffers.iter().enumerate().filter(|(_, b)| b.scope == Scope::Shared);
    let mut out = Vec::new();
    let mut place = |what: String, n: usize, offset: u32| {
        let mut damaged = kernel.clone();
        damaged.func.buffers[n].offset = Some(offset);
        out.push((what, damaged));
    };
    for (_, a) in shared() {
        for (n, b) in shared() {
            let (Some(from), Some(to)) = (a.offset, b.offset) else { continue };
            if from + bytes(a) <= to {
                place(format!("{} overlaps {}", b.name, a.name), n, from);
                let last = from + bytes(a) - b.dtype.bytes_of(1) as u32;
                place(format!("{} overlaps the last element of {}", b.name, a.name), n, last);
            }
        }
    }
    if kernel.shared_bytes > 0 {
        let mut damaged = kernel.clone();
        damaged.shared_bytes -= 1;
        out.push(("one byte of shared memory less".to_string(), damaged));
    }
    out
}
