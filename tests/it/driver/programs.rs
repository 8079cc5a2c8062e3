//! Programs that the scenarios launch: PTX that only its head matters of, because the mock driver runs no PTX.

use super::mock::Launch;
use warploom::kernel::{Access, Arg, Kernel, Kernels, Param, Workspace};
use warploom::runtime::{Device, DeviceBuffer, Program};
use warploom::{Array, DType};

/// Elements of an argument.
pub const N: usize = 256;

/// A module with these entries, all of three pointers.
fn module(entries: &[&str]) -> String {
    let mut text = String::from(".version 6.0\n.target sm_70\n.address_size 64\n");
    for entry in entries {
        text += &format!(".visible .entry {entry}(.param .u64 a, .param .u64 b, .param .u64 c)\n{{ ret; }}\n");
    }
    text
}

fn arg(name: &str, access: Access) -> Arg {
    let (shape, strides, bytes) = (vec![N as i64], vec![1], 4 * N as u64);
    Arg { name: name.into(), dtype: DType::F32, shape, strides, align: 16, bytes, access, values: None }
}

fn kernel(entry: &str, params: [Param; 3]) -> Kernel {
    let entry = entry.to_string();
    let (params, grid, block, cluster) = (params.to_vec(), [2, 1, 1], [128, 1, 1], [1, 1, 1]);
    Kernel { entry, params, grid, block, cluster, persistent: false, shared_bytes: 0, early: false }
}

/// One kernel `add`: Z = X + Y.
pub fn add() -> Kernels {
    program(&["add"], vec![kernel("add", [Param::Arg(0), Param::Arg(1), Param::Arg(2)])])
}

/// Two kernels with workspace between them: `first` makes T = X + Y, `second` Z = T + Y.
pub fn two() -> Kernels {
    let first = kernel("first", [Param::Arg(0), Param::Arg(1), Param::Workspace(0)]);
    let second = kernel("second", [Param::Workspace(0), Param::Arg(1), Param::Arg(2)]);
    let workspace = vec![Workspace { name: "T".into(), bytes: 4 * N as u64 }];
    Kernels { workspace, ..program(&["first", "second"], vec![first, second]) }
}

fn program(entries: &[&str], kernels: Vec<Kernel>) -> Kernels {
    Kernels {
        name: "sum".into(),
        target: "sm_70".into(),
        ptx_version: 60,
        text: module(entries),
        llvm: String::new(),
        args: vec![arg("X", Access::Read), arg("Y", Access::Read), arg("Z", Access::Write)],
        workspace: vec![],
        kernels,
    }
}

/// What the kernels do: the third argument is the sum of the first two. Kernels of other programs do nothing.
pub extern "C" fn sum(launch: &Launch) -> i32 {
    let Ok(places) = <[u64; 3]>::try_from(launch.addresses()) else { return 0 };
    // SAFETY: the driver has seen that the addresses are in allocations; all have so many bytes, and do not overlap.
    let [x, y, z] = places.map(|place| unsafe { launch.memory(place, 4 * N) });
    for i in (0..4 * N).step_by(4) {
        let number = |bytes: &[u8]| f32::from_le_bytes(bytes[i..i + 4].try_into().unwrap());
        z[i..i + 4].copy_from_slice(&(number(x) + number(y)).to_le_bytes());
    }
    0
}

/// Arguments for [`add`] and [`two`] on a device: 1, 2, .. and 10, 20, ..; the third poisoned.
pub fn arguments(device: &Device) -> warploom::Result<[DeviceBuffer; 3]> {
    let given = |step: f64| Array::from_fn(DType::F32, &[N], |i| step * (i + 1) as f64);
    let (x, y) = (device.upload(&given(1.0)?)?, device.upload(&given(10.0)?)?);
    let z = device.alloc(DType::F32, &[N])?;
    z.poison()?;
    Ok([x, y, z])
}

/// Whether a result is `factor` times 1, 2, ..
pub fn holds(z: &Array, factor: f64) -> bool {
    (0..N).all(|i| z.get(i) == factor * (i + 1) as f64)
}

/// Launches a program once on its three arguments.
pub fn launch(program: &Program, [x, y, z]: &[DeviceBuffer; 3]) -> warploom::Result<()> {
    program.launch(&[x, y, z])
}
