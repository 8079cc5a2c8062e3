//! Compiled kernels without the compiler: what `warploom dump --out` wrote is read, loaded and launched, and a generated launcher for
//! the runtime of this crate (`warploom::artifact::launcher`) is compiled and run.
//!
//! This test binary needs the feature `runtime` alone: `.ci/dependents` builds and runs it where no LLVM is found. `manifest.json` and
//! the PTX beside it are what `warploom dump examples/vec_add.loom --out` writes (`tests/it/door.rs` compares them). The mock driver
//! stands in for a GPU; it has the simulator interpret the PTX of each launch.

#![cfg(feature = "runtime")]

#[allow(dead_code)]
#[path = "../it/driver/mock.rs"]
mod mock;

#[path = "../it/driver/interpret.rs"]
mod interpret;

/// What `warploom build --rust` writes, which a program includes like this.
mod gemm {
    include!("../../examples/launch/kernels/gemm_warploom.rs");

    /// The programs that it launches.
    pub fn programs() -> Vec<warploom::Kernels> {
        UNITS.iter().map(|unit| (unit.kernels)()).collect()
    }
}

/// A program with workspace.
mod split {
    include!("../../examples/launch/kernels/split_warploom.rs");

    /// The programs that it launches.
    pub fn programs() -> Vec<warploom::Kernels> {
        UNITS.iter().map(|unit| (unit.kernels)()).collect()
    }
}

/// Two ranges of a dynamic size.
mod rows {
    include!("../../examples/launch/kernels/rows_warploom.rs");
}

use mock::alone;
use std::path::Path;
use warploom::approx::assert_relative_eq;
use warploom::artifact::{self, Artifact};
use warploom::error::Code;
use warploom::runtime::{Device, Workspace};
use warploom::{Array, DType};

#[test]
fn an_artifact_is_loaded_and_launched() {
    alone("", |mock| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shipped");
        let artifact = Artifact::read(&folder).unwrap();
        let n = [1024usize];
        let variant =
            artifact.choose("vec_add", (9, 0), &[(DType::F32, &n), (DType::F32, &n), (DType::F32, &n)]).unwrap();
        let kernels = &variant.kernels;
        interpret::programs(mock, std::slice::from_ref(kernels));

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

#[test]
fn a_generated_launcher_runs_the_kernels_of_the_chip() {
    alone("", |mock| {
        interpret::programs(mock, &gemm::programs());
        for (capability, runs) in [("9.0", &gemm::SHAPES[..]), ("8.0", &gemm::SHAPES[1..])] {
            mock.configure(&format!("capability {capability}"));
            let device = Device::open(0).unwrap();
            let kernels = gemm::Kernels::load(&device).unwrap();
            for shapes in runs {
                let random = |shape: [i64; 2], seed| {
                    let shape = shape.map(|extent| extent as usize);
                    device.upload(&Array::random_integers(DType::F16, &shape, 3, seed).unwrap()).unwrap()
                };
                let (a, b, c) = (random(shapes.a, 1), random(shapes.b, 2), random(shapes.c, 3));
                let variant = kernels.variant(shapes).unwrap();
                variant.launch(&a, &b, &c).unwrap();
                assert_is_product(&a.download().unwrap(), &b.download().unwrap(), &c.download().unwrap());
                c.poison().unwrap();
                // SAFETY: the stream and the buffers are the device's.
                unsafe { variant.launch_raw(device.raw_stream(), a.address(), b.address(), c.address()) }.unwrap();
                assert_is_product(&a.download().unwrap(), &b.download().unwrap(), &c.download().unwrap());
                let refused = variant.launch(&a, &b, &a).unwrap_err();
                assert!(matches!(&refused, gemm::Error::Runtime(e) if e.code() == Code::LaunchShape), "{refused}");
            }
            if runs.len() == 1 {
                assert_eq!(kernels.variant(&gemm::SHAPES[0]).map(drop).unwrap_err(), gemm::Error::Chip(80));
            }
            let other = gemm::Shapes { a: [1, 64], ..gemm::SHAPES[1] };
            let refused = kernels.variant(&other).map(drop).unwrap_err().to_string();
            assert!(
                refused.contains("a: [1, 64]") && refused.contains("or a [128, 64], b [128, 64], c [128, 128]"),
                "{refused}"
            );
        }
        mock.configure("capability 7.5");
        let device = Device::open(0).unwrap();
        assert_eq!(gemm::Kernels::load(&device).map(drop).unwrap_err(), gemm::Error::Chip(75));
    });
}

#[test]
fn a_generated_launcher_takes_workspace_from_the_caller() {
    alone("", |mock| {
        interpret::programs(mock, &split::programs());
        let device = Device::open(0).unwrap();
        let shapes = &split::SHAPES[0];
        let random = |shape: [i64; 2], seed| {
            let shape = shape.map(|extent| extent as usize);
            device.upload(&Array::random_integers(DType::F32, &shape, 3, seed).unwrap()).unwrap()
        };
        let (a, b, c) = (random(shapes.a, 1), random(shapes.b, 2), random(shapes.c, 3));
        let kernels = split::Kernels::load(&device).unwrap();
        kernels.variant(shapes).unwrap().launch(&a, &b, &c).unwrap();
        let wanted = c.download().unwrap();
        drop(kernels);

        mock.journal();
        let kernels = split::Kernels::load_without_workspace(&device).unwrap();
        let variant = kernels.variant(shapes).unwrap();
        assert_eq!(mock.calls("cuMemAlloc_v2"), [""; 0]);
        let refused = variant.launch(&a, &b, &c).unwrap_err();
        assert!(matches!(&refused, split::Error::Runtime(e) if e.code() == Code::LaunchWorkspace), "{refused}");
        let workspace = device.alloc(DType::U8, &[variant.workspace_bytes()]).unwrap();
        let (stream, at) = (device.raw_stream(), [a.address(), b.address(), c.address()]);
        // SAFETY: the stream and the buffers are the device's, and live until the download.
        let launches: [&dyn Fn() -> Result<(), split::Error>; 4] = [
            &|| variant.launch_with(&a, &b, &c, Workspace::Buffer(&workspace)),
            &|| variant.launch_with(&a, &b, &c, Workspace::StreamOrdered),
            &|| unsafe { variant.launch_raw_with(stream, at[0], at[1], at[2], workspace.address()) },
            &|| unsafe { variant.launch_raw_ordered(stream, at[0], at[1], at[2]) },
        ];
        for (n, launch) in launches.into_iter().enumerate() {
            c.poison().unwrap();
            mock.journal();
            // Each can be recorded: none waits, and only the second kind allocates, in the stream.
            let graph = device.capture(|| launch().map_err(|error| panic!("{n}: {error}"))).unwrap();
            let journal = mock.journal();
            let is_waited = journal.iter().any(|line| line.contains("Synchronize") || line.contains("cuMemAlloc_v2"));
            let ordered = journal.iter().any(|line| line.starts_with("cuMemAllocAsync"));
            assert!(!is_waited && ordered == (n % 2 == 1), "{n}: {journal:?}");
            graph.launch().unwrap();
            assert_eq!(c.download().unwrap(), wanted, "{n}");
        }
        // SAFETY: nothing is launched.
        let refused = unsafe { variant.launch_raw_with(stream, at[0], at[1], at[2], workspace.address() + 16) };
        assert!(matches!(refused, Err(split::Error::Runtime(e)) if e.code() == Code::LaunchWorkspace));
    });
}

/// The launch reads a dynamic size off the arrays, or takes its value with addresses; its range says which kernels run.
#[test]
fn a_generated_launcher_takes_dynamic_sizes() {
    alone("", |mock| {
        let device = Device::open(0).unwrap();
        let kernels = rows::Kernels::load(&device).unwrap();
        let array = |rows: i64| device.alloc(DType::F16, &[rows as usize, 64]).unwrap();
        let b = array(64);
        let mut before: Vec<String> = Vec::new();
        for m in [1, 64, 65, 256] {
            let (a, c) = (array(m), array(m));
            let shapes = rows::Shapes { a: [m, 64], b: [64, 64], c: [m, 64] };
            let launched = || -> Vec<String> {
                let journal = mock.journal().into_iter().filter(|line| line.starts_with("cuLaunchKernel"));
                journal.map(|line| line.split(" stream ").next().unwrap_or_default().to_string()).collect()
            };
            let variant = kernels.variant(&shapes).unwrap();
            mock.journal();
            kernels.dispatch(&shapes, &a, &b, &c).unwrap();
            let wanted = launched();
            assert!(wanted.len() == 1 && wanted != before, "{wanted:?}");
            // SAFETY: the stream and the buffers are the device's.
            let raw =
                |m: i64| unsafe { variant.launch_raw(device.raw_stream(), m, a.address(), b.address(), c.address()) };
            raw(m).unwrap();
            assert_eq!(launched(), wanted, "M = {m}");
            let [low, high, _] = rows::RANGES[usize::from(m > 64)][0];
            assert!((low..=high).contains(&m));
            for given in [low - 1, high + 1] {
                let wrong = rows::Error::Value { size: "M", given, range: [low, high, 1] };
                assert_eq!(raw(given), Err(wrong), "{given}");
            }
            before = wanted;
            device.synchronize().unwrap();
        }
        let other = rows::Shapes { a: [257, 64], b: [64, 64], c: [257, 64] };
        let refused = kernels.variant(&other).map(drop).unwrap_err().to_string();
        assert!(refused.contains("or a [65..=256, 64], b [64, 64], c [65..=256, 64]"), "{refused}");
        let uneven = rows::Shapes { a: [10, 64], b: [64, 64], c: [11, 64] };
        assert_eq!(kernels.variant(&uneven).map(drop).unwrap_err(), rows::Error::Shape(Box::new(uneven)));
    });
}

/// That C is A times the transpose of B, for some of its elements: whole numbers so small that f16 holds every sum.
fn assert_is_product(a: &Array, b: &Array, c: &Array) {
    let (rows, columns, depth) = (c.shape[0], c.shape[1], a.shape[1]);
    for n in (0..rows * columns).step_by(37) {
        let (i, j) = (n / columns, n % columns);
        let sum: f64 = (0..depth).map(|k| a.get(i * depth + k) * b.get(j * depth + k)).sum();
        assert_eq!(c.get(n), sum, "row {i}, column {j}");
    }
}
