//! Everything here on a driver without a GPU (`tests/mock-driver` of the repository), whose kernels the simulator interprets.

#[allow(dead_code)]
#[path = "../../../../tests/it/driver/mock.rs"]
mod mock;

#[path = "../../../../tests/it/driver/interpret.rs"]
mod interpret;

#[allow(dead_code)]
#[path = "../examples/runtime.rs"]
mod runtime;

#[allow(dead_code)]
#[path = "../examples/launches.rs"]
mod launches;

/// The programs of the launchers.
mod programs {
    pub mod gemm {
        include!("../../kernels/gemm_warploom.rs");

        pub fn all() -> Vec<warploom::Kernels> {
            UNITS.iter().map(|unit| (unit.kernels)()).collect()
        }
    }

    pub mod split {
        include!("../../kernels/split_warploom.rs");

        pub fn all() -> Vec<warploom::Kernels> {
            UNITS.iter().map(|unit| (unit.kernels)()).collect()
        }
    }
}

use cudarc::driver::CudaContext;
use half::f16;
use launch::{gemm, product, recorded, rows, rows_product, split, split_product, stream};
use mock::{Age, alone};
use std::path::Path;

/// cudarc opens `libcuda.so` by its name: a folder that the loader searches has the mock driver by that name.
fn searched() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("searched-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink(mock::library(Age::New), folder.join("libcuda.so")).unwrap();
    // SAFETY: this is the only test of its process, and no other thread reads the environment.
    unsafe { std::env::set_var("LD_LIBRARY_PATH", &folder) };
}

#[test]
fn generated_launchers_multiply_on_the_streams_of_cudarc() {
    if std::env::var_os("LD_LIBRARY_PATH").is_none_or(|path| !path.to_string_lossy().contains("searched-")) {
        searched();
    }
    alone("devices 2", |mock| {
        let programs = [programs::gemm::all(), programs::split::all()].concat();
        interpret::programs(mock, &programs);
        let context = CudaContext::new(0).unwrap();
        let queue = stream(&context).unwrap();
        let kernels = gemm::Kernels::load(&context).unwrap();
        for shapes in &gemm::SHAPES {
            let [a, b, c] = product(&queue, &kernels, shapes).unwrap();
            assert!(is_product(&a, &b, &c, shapes.a[1] as usize), "{shapes:?}");
            assert_eq!(recorded(&queue, &kernels, shapes, 2).unwrap(), c, "{shapes:?}");
        }
        let splits = split::Kernels::load(&context).unwrap();
        let [a, b, c] = split_product(&queue, &splits).unwrap();
        let sum = |i: usize, j: usize| (0..64).map(|k| a[64 * i + k] * b[64 * k + j]).sum::<f32>();
        assert!((0..64 * 64).all(|n| c[n] == sum(n / 64, n % 64)));

        // What does not fit is an error value.
        let other = gemm::Shapes { a: [1, 64], ..gemm::SHAPES[0] };
        let refused = kernels.variant(&other).map(drop).unwrap_err().to_string();
        assert!(
            refused.contains("a: [1, 64]") && refused.contains("or a [128, 64], b [128, 64], c [128, 128]"),
            "{refused}"
        );
        let variant = splits.variant(&split::SHAPES[0]).unwrap();
        let (a, mut c) = (queue.alloc_zeros::<f32>(64 * 64).unwrap(), queue.alloc_zeros::<f32>(64 * 64).unwrap());
        let needed = variant.workspace_bytes() as u64;
        assert_eq!(variant.launch(&queue, &a, &a, &mut c, None), Err(split::Error::Workspace { needed }));
        let elsewhere = CudaContext::new(1).unwrap();
        let mut workspace = stream(&elsewhere).unwrap().alloc_zeros::<u8>(needed as usize).unwrap();
        assert_eq!(variant.launch(&queue, &a, &a, &mut c, Some(&mut workspace)), Err(split::Error::Context));
        drop((workspace, elsewhere));
        let short = a.slice(1..);
        let size = split::Error::Size { argument: "B", given: 4 * 4095, needed: 4 * 4096 };
        assert_eq!(variant.launch(&queue, &a, &short, &mut c, None), Err(size));
        // SAFETY: the launch is refused before anything reads the addresses.
        let align = unsafe { variant.launch_raw(queue.cu_stream(), 16, 24, 32, 256) };
        assert_eq!(align, Err(split::Error::Align { argument: "B", address: 24, align: 16 }));
        mock.configure("fail cuModuleLoadData 1 2");
        let fresh = gemm::Kernels::load(&context).unwrap();
        let refused = fresh.variant(&gemm::SHAPES[0]).map(drop).unwrap_err().to_string();
        assert_eq!(refused, "gemm: loading the module: CUDA_ERROR_OUT_OF_MEMORY");
        drop((kernels, splits, fresh, queue, a, c));
        drop(context);

        for (capability, chip) in [("8.0", true), ("7.5", false)] {
            mock.configure(&format!("capability {capability}"));
            let context = CudaContext::new(0).unwrap();
            let kernels = gemm::Kernels::load(&context);
            assert_eq!(kernels.is_ok(), chip, "{capability}");
            let refused = match &kernels {
                Ok(kernels) => kernels.variant(&gemm::SHAPES[0]).map(drop).unwrap_err(),
                Err(error) => error.clone(),
            };
            assert_eq!(refused, gemm::Error::Chip(if chip { 80 } else { 75 }));
        }

        // A value of a dynamic size decides the kernels and their grid. The simulator runs no launch of fewer blocks than a program has.
        mock.configure("");
        mock.executor(nothing);
        let context = CudaContext::new(0).unwrap();
        let (queue, kernels) = (stream(&context).unwrap(), rows::Kernels::load(&context).unwrap());
        let mut grids = Vec::new();
        for count in [1, 64, 65, 256] {
            mock.journal();
            assert_eq!(rows_product(&queue, &kernels, count).unwrap().len(), (count * 64) as usize);
            let launched = mock.journal().into_iter().filter(|line| line.starts_with("cuLaunchKernel"));
            grids.extend(launched.map(|line| line.split(" block ").next().unwrap_or_default().to_string()));
        }
        assert_eq!(grids.len(), 4, "{grids:?}");
        assert!(grids.windows(2).all(|pair| pair[0] != pair[1]), "{grids:?}");
        let refused = rows_product(&queue, &kernels, 257).unwrap_err().to_string();
        assert!(refused.contains("or a [65..=256, 64]"), "{refused}");
        let variant = kernels.variant(&rows::Shapes { a: [2, 64], c: [2, 64], ..rows::SHAPES[0] }).unwrap();
        let (a, mut c) = (queue.alloc_zeros::<f16>(64 * 64).unwrap(), queue.alloc_zeros::<f16>(64).unwrap());
        let value = rows::Error::Value { size: "M", given: 65, range: [1, 64, 1] };
        assert_eq!(variant.launch(&queue, 65, &a, &a, &mut c), Err(value));
        let size = rows::Error::Size { argument: "C", given: 128, needed: 256 };
        assert_eq!(variant.launch(&queue, 2, &a, &a, &mut c), Err(size));
        drop((kernels, queue, a, c, context));
        interpret::programs(mock, &programs);

        // The runtime of warploom on what cudarc owns.
        let [a, b, c] = runtime::run().unwrap();
        assert!(is_product(&a, &b, &c, 64));

        // What the example `launches` checks, and that it launches in all three ways.
        assert_eq!(launches::check().unwrap(), 2 * gemm::SHAPES.len() + 2);
        assert!(launches::times(1, 1).unwrap().iter().all(|us| *us > 0.0));
    });
}

/// A kernel that does nothing.
extern "C" fn nothing(_: &mock::Launch) -> i32 {
    0
}

/// That C is A times the transpose of B.
fn is_product(a: &[f16], b: &[f16], c: &[f16], depth: usize) -> bool {
    let columns = b.len() / depth;
    let sum =
        |i: usize, j: usize| (0..depth).map(|k| a[i * depth + k].to_f32() * b[j * depth + k].to_f32()).sum::<f32>();
    c.iter().enumerate().all(|(n, c)| c.to_f32() == sum(n / columns, n % columns))
}
