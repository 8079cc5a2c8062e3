//! Compiled kernels without the compiler: what `warploom dump --out` wrote is read, loaded and launched.
//!
//! This test binary needs the feature `runtime` alone: `.ci/dependents` builds and runs it where no LLVM is found. `manifest.json` and
//! the PTX beside it are what `warploom dump examples/vec_add.loom --out` writes (`tests/it/door.rs` compares them). The mock driver
//! stands in for a GPU; it has the simulator interpret the PTX of each launch.

#![cfg(feature = "runtime")]

#[allow(dead_code)]
#[path = "../it/driver/mock.rs"]
mod mock;

use mock::{Launch, alone};
use std::path::Path;
use std::sync::OnceLock;
use warploom::approx::assert_relative_eq;
use warploom::artifact::{self, Artifact};
use warploom::error::Code;
use warploom::runtime::Device;
use warploom::{Array, DType, Kernels, simulate};

static KERNELS: OnceLock<Kernels> = OnceLock::new();

/// Interprets the PTX of a launch; CUDA_ERROR_LAUNCH_FAILED where the simulator finds anything wrong.
extern "C" fn interpret(launch: &Launch) -> i32 {
    let Some(kernels) = KERNELS.get().filter(|k| k.kernels[0].entry == launch.entry()) else { return 719 };
    let kernel = &kernels.kernels[0];
    if (launch.grid, launch.block, launch.shared_bytes) != (kernel.grid, kernel.block, kernel.shared_bytes) {
        return 719;
    }
    let places: Vec<(u64, usize)> =
        launch.addresses().into_iter().zip(kernels.args.iter().map(|arg| arg.bytes as usize)).collect();
    let shape = |extents: &[i64]| extents.iter().map(|e| *e as usize).collect();
    let mut arrays: Vec<Array> = kernels
        .args
        .iter()
        .zip(&places)
        // SAFETY: the driver has seen that the addresses are in allocations; the runtime has checked their sizes.
        .map(|(arg, (place, bytes))| (arg, unsafe { launch.memory(*place, *bytes) }.to_vec()))
        .map(|(arg, bytes)| Array { dtype: arg.dtype, shape: shape(&arg.shape), bytes })
        .collect();
    if let Err(error) = simulate(kernels, &mut arrays) {
        eprintln!("{error}");
        return 719;
    }
    for (array, (place, bytes)) in arrays.iter().zip(places) {
        // SAFETY: as above; no other view is in use.
        unsafe { launch.memory(place, bytes) }.copy_from_slice(&array.bytes);
    }
    0
}

#[test]
fn an_artifact_is_loaded_and_launched() {
    alone("", |mock| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shipped");
        let artifact = Artifact::read(&folder).unwrap();
        let n = [1024usize];
        let variant =
            artifact.choose("vec_add", (9, 0), &[(DType::F32, &n), (DType::F32, &n), (DType::F32, &n)]).unwrap();
        let kernels = &variant.kernels;
        mock.executor(interpret);
        KERNELS.set(kernels.clone()).unwrap();

        let device = Device::open(0).unwrap();
        let program = device.load(kernels).unwrap();
        let values: Vec<f32> = (0..1024).map(|i| i as f32 / 3.0).collect();
        let sums: Vec<f32> = values.iter().map(|v| v + (1024.0 - v)).collect();
        let others: Vec<f32> = values.iter().map(|v| 1024.0 - v).collect();
        let a = device.upload(&Array::from_slice(&[1024], &values).unwrap()).unwrap();
        let b = device.upload(&Array::from_slice(&[1024], &others).unwrap()).unwrap();
        let c = device.alloc(DType::F32, &[1024]).unwrap();
        c.poison().unwrap();
        program.launch(&[&a, &b, &c]).unwrap();
        assert_relative_eq!(c.download().unwrap(), Array::from_slice(&[1024], &sums).unwrap());
        // The launch is checked as one of a program that was compiled here.
        assert_eq!(program.launch(&[&a, &b]).unwrap_err().code(), Code::LaunchCount);
    });
}

#[test]
fn a_changed_artifact_is_refused() {
    let folder = std::env::temp_dir().join(format!("warploom-shipped-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shipped");
    std::fs::copy(from.join(artifact::MANIFEST), folder.join(artifact::MANIFEST)).unwrap();
    let ptx = std::fs::read_to_string(from.join("vec_add.ptx")).unwrap();
    std::fs::write(folder.join("vec_add.ptx"), ptx.replacen("add", "sub", 1)).unwrap();
    assert_eq!(Artifact::read(&folder).unwrap_err().code(), Code::ArtifactRead);
    std::fs::remove_dir_all(&folder).unwrap();
}
