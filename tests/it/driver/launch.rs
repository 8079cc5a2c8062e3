//! Launches: what reaches the driver, in which order, and what comes back.

use super::execute;
use super::mock::alone;
use super::programs::{N, add, arguments, holds, launch, sum, two};
use warploom::artifact::Cache;
use warploom::codegen::{compile, compile_with_lines};
use warploom::error::Code;
use warploom::kernel::{Assembler, Param};
use warploom::lower::lower;
use warploom::runtime::{Device, DeviceBuffer, Program, Swizzle, TensorMapSpec, probe};
use warploom::{Array, DType, Gemm, Schedule, Target, compile_cached};

const VEC_ADD: &str = "vec_add 1024\ntarget sm_80\nsplit i ? 128 -> i0 i1\nbind i0 blockIdx.x; bind i1 threadIdx.x";

#[test]
fn arguments_are_packed_in_order() {
    alone("", |mock| {
        let kernels = execute::compile(mock, &VEC_ADD.parse().unwrap());
        let device = Device::open(0).unwrap();
        let program = device.load(&kernels).unwrap();
        let x = Array::random(DType::F32, &[1024], 1).unwrap();
        let y = Array::random(DType::F32, &[1024], 2).unwrap();
        let [a, b] = [&x, &y].map(|array| device.upload(array).unwrap());
        let c = device.alloc(DType::F32, &[1024]).unwrap();
        mock.journal();
        program.launch(&[&a, &b, &c]).unwrap();
        let [pa, pb, pc] = [&a, &b, &c].map(|buffer| format!("{:#x}", buffer.address()));
        assert_eq!(
            mock.calls("cuLaunchKernel"),
            [format!(
                "cuLaunchKernel vec_add grid [8, 1, 1] block [128, 1, 1] cluster [1, 1, 1] shared 0 stream own \
                 params [{pa},{pb},{pc}] -> 0"
            )]
        );
        let sum = c.download().unwrap();
        assert!((0..1024).all(|i| sum.get(i) == f64::from(x.get(i) as f32 + y.get(i) as f32)));
    });
}

/// The driver keeps `.loc` lines only where it is asked to.
#[test]
fn lines_in_the_ptx_are_asked_for() {
    alone("", |mock| {
        let schedule: Schedule = VEC_ADD.parse().unwrap();
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        let plain = compile(&lowered, &schedule.target).unwrap();
        let lines = compile_with_lines(&lowered, &schedule.target, "vec_add.lowered").unwrap();
        let device = Device::open(0).unwrap();
        for (kernels, asks) in [(&plain, false), (&lines, true)] {
            mock.journal();
            device.load(kernels).unwrap();
            let loads = mock.calls("cuModuleLoadDataEx");
            assert!(loads.len() == 1 && loads[0].contains("with line info") == asks, "{loads:?}");
        }
    });
}

#[test]
fn large_shared_memory_is_asked_for_before_anything_else() {
    alone("", |mock| {
        let device = Device::open(0).unwrap();
        for (bytes, asked) in [
            (49152, &[][..]),
            (49153, &["cuFuncSetAttribute 8 49153 -> 0"]),
            (232448, &["cuFuncSetAttribute 8 232448 -> 0"]),
        ] {
            let mut kernels = add();
            kernels.kernels[0].shared_bytes = bytes;
            mock.journal();
            let program = device.load(&kernels).unwrap();
            let journal = mock.journal();
            let place = |start: &str| journal.iter().position(|line| line.starts_with(start));
            let asks: Vec<_> = journal.iter().filter(|line| line.starts_with("cuFuncSetAttribute")).collect();
            assert_eq!(asks, asked);
            assert!(place("cuFuncSetAttribute") < place("cuOccupancy"), "{journal:?}");
            launch(&program, &arguments(&device).unwrap()).unwrap();
            let launches = mock.calls("cuLaunchKernel");
            assert!(
                launches[0].contains(&format!(" shared {bytes} ")) && launches[0].ends_with("-> 0"),
                "{launches:?}"
            );
        }
    });
}

/// The driver's machine code, kept in a cache: the second call neither compiles nor assembles, and the device loads the cubin.
#[test]
fn the_drivers_machine_code_is_kept() {
    alone("", |mock| {
        let folder = std::env::temp_dir().join(format!("warploom-linked-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let cache = Cache::at(&folder).unwrap();
        let device = Device::open(0).unwrap();
        let schedule: Schedule = "vec_add 256\ntarget sm_80\nbind i threadIdx.x".parse().unwrap();
        for run in ["compiled", "kept"] {
            mock.journal();
            let kernels = compile_cached(&schedule, &cache, Some(&device)).unwrap();
            let cubin = kernels.cubin.as_ref().unwrap();
            assert!(
                cubin.bytes.starts_with(b"\x7fELF") && cubin.assembler.starts_with("driver "),
                "{}",
                cubin.assembler
            );
            assert_eq!(kernels.llvm.is_empty(), run == "kept");
            let journal = mock.journal();
            for call in ["cuLinkComplete", "cuLinkDestroy"] {
                let count = journal.iter().filter(|line| line.starts_with(call)).count();
                assert_eq!(count, usize::from(run == "compiled"), "{run}: {journal:?}");
            }
            // Without the PTX the load succeeds by its cubin alone.
            let mut alone = kernels.clone();
            alone.text.clear();
            device.load(&alone).unwrap();
        }
        assert_eq!(cache.entries().unwrap().len(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    });
}

/// The error of the driver's assembler has the words of its log and the line that they name.
#[test]
fn refused_ptx_is_shown_with_the_log_of_the_assembler() {
    let log = "ptxas application ptx input, line 2; error   : Unknown symbol 'x'";
    alone(&format!("log {log}\nfail cuLinkAddData_v2 1 218"), |mock| {
        let device = Device::open(0).unwrap();
        let kernels = add();
        let refused = device.cubin(&kernels).unwrap_err();
        let text = refused.to_string();
        assert_eq!(refused.code(), Code::Driver(218));
        assert!(text.contains("linking machine code") && text.contains("says:\nptxas application"), "{text}");
        let line = kernels.ptx().find(".target").unwrap();
        assert_eq!(refused.labels()[0].span, line..line + ".target sm_70".len());
        // PTX that is newer than the driver: both versions.
        mock.configure("driver 11040");
        let mut newer = add();
        newer.text = newer.text.replace(".version 6.0", ".version 9.0");
        newer.ptx_version = 90;
        let refused = device.cubin(&newer).unwrap_err();
        let text = refused.to_string();
        assert_eq!(refused.code(), Code::Driver(222));
        assert!(text.contains("Unsupported .version 9.0") && text.contains("the program is PTX 9.0"), "{text}");
    });
}

#[test]
fn machine_code_for_another_chip_is_refused_and_not_kept() {
    alone("capability 8.0", |_| {
        let folder = std::env::temp_dir().join(format!("warploom-newer-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let cache = Cache::at(&folder).unwrap();
        let device = Device::open(0).unwrap();
        let newer: Schedule = "vec_add 512\ntarget sm_90\nbind i threadIdx.x".parse().unwrap();
        assert_eq!(compile_cached(&newer, &cache, Some(&device)).unwrap_err().code(), Code::LaunchTarget);
        assert!(cache.entries().unwrap().is_empty());
        std::fs::remove_dir_all(&folder).unwrap();
    });
}

/// Two launches of one program, each with workspace of its own.
#[test]
fn the_caller_gives_workspace() {
    alone("", |mock| {
        mock.executor(sum);
        let device = Device::open(0).unwrap();
        let (program, buffers) = (device.load(&two()).unwrap(), arguments(&device).unwrap());
        assert_eq!(program.workspace_bytes(), [4 * N]);
        let own = [0, 1].map(|_| device.alloc(DType::U8, &[4 * N]).unwrap());
        let addresses: Vec<u64> = buffers.iter().map(|b| b.address()).collect();
        mock.journal();
        for workspace in &own {
            // SAFETY: the buffers are those of the program and live until the download.
            unsafe { program.launch_raw_with(device.raw_stream(), &addresses, &[workspace.address()]) }.unwrap();
        }
        let journal = mock.journal();
        let launches: Vec<&String> = journal.iter().filter(|line| line.starts_with("cuLaunchKernel")).collect();
        assert!(launches.len() == 4 && !journal.iter().any(|line| line.starts_with("cuMemAlloc")), "{journal:?}");
        for (pair, workspace) in launches.chunks(2).zip(&own) {
            let address = format!("{:#x}", workspace.address());
            assert!(pair.iter().all(|line| line.contains(&address)), "{pair:?}");
        }
        assert!(holds(&buffers[2].download().unwrap(), 21.0));
        for (workspace, why) in [
            (vec![], "has 1 buffer of workspace, and 0 were given"),
            (vec![own[0].address() + 4], "must be at a multiple of 256"),
            (vec![0], "is at 0x0"),
        ] {
            // SAFETY: nothing is launched.
            let refused = unsafe { program.launch_raw_with(device.raw_stream(), &addresses, &workspace) }.unwrap_err();
            assert!(refused.code() == Code::LaunchWorkspace && refused.message().contains(why), "{refused}");
        }
    });
}

#[test]
fn kernels_run_in_order_with_workspace_between_them() {
    alone("", |mock| {
        mock.executor(sum);
        let device = Device::open(0).unwrap();
        mock.journal();
        let program = device.load(&two()).unwrap();
        let workspace = mock.calls("cuMemAlloc_v2");
        assert_eq!(workspace, [format!("cuMemAlloc_v2 {} -> 0", 4 * N)]);
        let buffers = arguments(&device).unwrap();
        launch(&program, &buffers).unwrap();
        let launches = mock.calls("cuLaunchKernel");
        let params = |line: &String| -> Vec<String> {
            let list = line.split("params [").nth(1).and_then(|rest| rest.split(']').next()).unwrap();
            list.split(',').map(str::to_string).collect()
        };
        let [first, second] = [&launches[0], &launches[1]];
        assert!(first.starts_with("cuLaunchKernel first ") && second.starts_with("cuLaunchKernel second "));
        let [x, y, z] = [0, 1, 2].map(|i: usize| format!("{:#x}", buffers[i].address()));
        let (first, second) = (params(first), params(second));
        assert_eq!((&first[..2], &second[1..]), (&[x, y.clone()][..], &[y, z][..]));
        assert_eq!(first[2], second[0]);
        assert!(!buffers.iter().any(|b| format!("{:#x}", b.address()) == first[2]));
        assert!(holds(&buffers[2].download().unwrap(), 21.0));
    });
}

#[test]
fn clusters_are_a_launch_attribute() {
    alone("", |mock| {
        let device = Device::open(0).unwrap();
        for (cluster, large) in [([2, 1, 1], 0), ([16, 1, 1], 1)] {
            let mut kernels = add();
            kernels.kernels[0].cluster = cluster;
            kernels.kernels[0].grid = [32, 1, 1];
            mock.journal();
            let program = device.load(&kernels).unwrap();
            let asked = mock.calls("cuFuncSetAttribute");
            assert_eq!(asked, vec!["cuFuncSetAttribute 14 1 -> 0"; large]);
            assert_eq!(program.resources()[0].clusters, Some(132 / cluster[0]));
            launch(&program, &arguments(&device).unwrap()).unwrap();
            let launches = mock.calls("cuLaunchKernelEx");
            let line = format!(
                "cuLaunchKernelEx add grid [32, 1, 1] block [128, 1, 1] cluster {cluster:?} shared 0 stream own "
            );
            assert!(
                launches.len() == 1 && launches[0].starts_with(&line) && launches[0].ends_with("-> 0"),
                "{launches:?}"
            );
        }
        let mut kernels = add();
        (kernels.kernels[0].cluster, kernels.kernels[0].grid) = ([32, 1, 1], [32, 1, 1]);
        assert_eq!(device.load(&kernels).unwrap_err().code(), Code::LaunchFit);
    });
}

#[test]
fn kernels_that_wait_for_the_one_in_front_may_begin_early() {
    alone("", |mock| {
        let device = Device::open(0).unwrap();
        for (cluster, early) in [([1, 1, 1], false), ([1, 1, 1], true), ([2, 1, 1], true)] {
            let mut kernels = add();
            (kernels.kernels[0].cluster, kernels.kernels[0].early) = (cluster, early);
            let program = device.load(&kernels).unwrap();
            mock.journal();
            launch(&program, &arguments(&device).unwrap()).unwrap();
            let journal = mock.journal();
            let launches: Vec<_> = journal.iter().filter(|line| line.starts_with("cuLaunchKernel")).collect();
            let (ex, word) = if early { ("Ex", "early ") } else { ("", "") };
            let line = format!(
                "cuLaunchKernel{ex} add grid [2, 1, 1] block [128, 1, 1] cluster {cluster:?} {word}shared 0 stream own "
            );
            assert!(launches.len() == 1 && launches[0].starts_with(&line), "{launches:?}");
        }
    });
}

#[test]
fn persistent_kernels_have_as_many_blocks_as_fit_at_once() {
    alone("attribute 16 66", |mock| {
        let device = Device::open(0).unwrap();
        // 66 multiprocessors hold 16 blocks of 128 threads each; clusters of 4 take their places in fours.
        for (tiles, cluster, launched) in [(5000, 1, 1056), (1000, 1, 1000), (5000, 4, 64), (32, 4, 32)] {
            let mut kernels = add();
            let kernel = &mut kernels.kernels[0];
            (kernel.grid, kernel.cluster, kernel.persistent) = ([tiles, 1, 1], [cluster, 1, 1], true);
            let program = device.load(&kernels).unwrap();
            mock.journal();
            for _ in 0..2 {
                launch(&program, &arguments(&device).unwrap()).unwrap();
            }
            let journal = mock.journal();
            let launches: Vec<_> = journal.iter().filter(|line| line.starts_with("cuLaunchKernel")).collect();
            assert!(launches.iter().all(|l| l.contains(&format!(" grid [{launched}, 1, 1] "))), "{launches:?}");
            // What fits is asked for once, when the program is loaded.
            assert!(launches.len() == 2 && !journal.iter().any(|line| line.contains("Occupancy")), "{journal:?}");
        }
        mock.configure("fail cuOccupancyMaxActiveBlocksPerMultiprocessor 1 719");
        assert_eq!(device.load(&add()).unwrap_err().code(), Code::Driver(719));
    });
}

#[test]
fn work_is_done_only_when_something_waits() {
    alone("", |mock| {
        mock.executor(sum);
        let device = Device::open(0).unwrap();
        let (program, buffers) = (device.load(&add()).unwrap(), arguments(&device).unwrap());
        launch(&program, &buffers).unwrap();
        let copy = buffers[2].duplicate().unwrap();
        // Later work on the stream sees what came before it, and so does what the host reads.
        buffers[2].fill_bytes(0).unwrap();
        assert!(holds(&copy.download().unwrap(), 11.0) && holds(&buffers[2].download().unwrap(), 0.0));
        assert!(device.is_idle().unwrap());
        drop(copy);
        // What is dropped while a kernel may still use it stays until the kernel is done.
        launch(&program, &buffers).unwrap();
        drop((program, buffers));
        device.synchronize().unwrap();
    });
}

#[test]
fn raw_launches_go_to_the_callers_stream() {
    alone("", |mock| {
        let device = Device::open(0).unwrap();
        let program = device.load(&add()).unwrap();
        let addresses = arguments(&device).unwrap();
        mock.journal();
        // SAFETY: the default stream is of every context; the buffers outlive the launch.
        unsafe { program.launch_raw(std::ptr::null_mut(), &addresses.each_ref().map(|b| b.address())) }.unwrap();
        assert!(mock.calls("cuLaunchKernel")[0].contains(" stream default "));
        device.synchronize().unwrap();
    });
}

#[test]
fn graphs_replay_what_was_recorded() {
    alone("", |mock| {
        mock.executor(sum);
        let device = Device::open(0).unwrap();
        let (program, buffers) = (device.load(&two()).unwrap(), arguments(&device).unwrap());
        let graph = device.capture(|| (0..2).try_for_each(|_| launch(&program, &buffers))).unwrap();
        assert_eq!(graph.kernel_names(), ["first", "second", "first", "second"]);
        let poisoned = Array::poisoned(DType::F32, &[N]).unwrap();
        assert_eq!(buffers[2].download().unwrap(), poisoned);
        for _ in 0..2 {
            buffers[2].poison().unwrap();
            graph.launch().unwrap();
            assert!(holds(&buffers[2].download().unwrap(), 21.0));
        }
    });
}

#[test]
fn a_recording_that_fails_leaves_the_device_as_it_was() {
    alone("", |mock| {
        mock.executor(sum);
        let device = Device::open(0).unwrap();
        let (program, buffers) = (device.load(&add()).unwrap(), arguments(&device).unwrap());
        let failed = device.capture(|| device.synchronize()).unwrap_err();
        assert_eq!(failed.code(), Code::Driver(900));
        let failed = device.capture(|| device.alloc(DType::F32, &[1]).map(drop)).unwrap_err();
        assert_eq!(failed.code(), Code::Driver(900));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            device.capture(|| -> warploom::Result<()> { panic!("in the middle of a recording") })
        }));
        assert!(panicked.is_err());
        // What is dropped in a recording is given back after it.
        let unused = device.alloc(DType::F32, &[N]).unwrap();
        let graph = device.capture(|| {
            drop(unused);
            launch(&program, &buffers)
        });
        assert!(mock.live().starts_with("allocations 3,"), "{}", mock.live());
        graph.unwrap().launch().unwrap();
        assert!(holds(&buffers[2].download().unwrap(), 11.0));
    });
}

#[test]
fn tensor_maps_say_what_the_driver_asks_for() {
    alone("", |mock| {
        let device = Device::open(0).unwrap();
        let array = device.alloc(DType::F16, &[64, 128]).unwrap();
        let spec = TensorMapSpec {
            dtype: DType::F16,
            extents: vec![128, 64],
            strides_bytes: vec![256],
            box_extents: vec![64, 32],
            swizzle: Swizzle::B128,
            promotion: 256,
        };
        mock.journal();
        let [map, same] = [0, 1].map(|_| spec.encode(array.address()).unwrap());
        assert_eq!(map, same);
        assert_eq!(
            mock.journal()[0],
            "cuTensorMapEncodeTiled type 6 [128, 64] strides [256] box [64, 32] steps [1, 1] interleave 0 swizzle 3 \
             promotion 3 outside 0 -> 0"
        );
    });
}

#[test]
fn tensor_maps_are_encoded_once_for_an_address() {
    let gemm = Gemm::new(64, 64, 64).of(DType::F16);
    let schedule = warploom::gemm::Kind::Wgmma.schedule(&gemm, &Target::sm_90a()).unwrap();
    alone("", |mock| {
        let kernels = execute::compile(mock, &schedule);
        let of = |p: &Param| matches!(p, Param::TensorMap(_));
        let maps = kernels.kernels.iter().flat_map(|k| &k.params).filter(|p| of(p)).count();
        assert!(maps >= 2, "{maps} tensor maps");
        let device = Device::open(0).unwrap();
        let program = device.load(&kernels).unwrap();
        let inputs = |seed| device.upload(&Array::random(DType::F16, &[64, 64], seed).unwrap()).unwrap();
        let (a, b, other) = (inputs(1), inputs(2), inputs(3));
        let c = device.alloc(DType::F16, &[64, 64]).unwrap();
        let launched = |program: &Program, b: &DeviceBuffer| {
            c.poison().unwrap();
            mock.journal();
            program.launch(&[&a, b, &c]).unwrap();
            let encoded = mock.calls("cuTensorMapEncodeTiled").len();
            (encoded, c.download().unwrap())
        };
        let (first, product) = launched(&program, &b);
        assert_eq!(first, maps);
        // The same addresses: nothing is encoded, and the same comes out.
        assert_eq!(launched(&program, &b), (0, product.clone()));
        // B elsewhere: its maps alone are encoded anew, and what lies there is read.
        let (moved, elsewhere) = launched(&program, &other);
        assert!(moved > 0 && moved < maps, "{moved} of {maps}");
        assert_eq!(launched(&program, &other), (0, elsewhere.clone()));
        assert_eq!(launched(&device.load(&kernels).unwrap(), &other), (maps, elsewhere.clone()));
        assert_ne!(product, elsewhere);
        // Maps are kept for the last address alone.
        assert_eq!(launched(&program, &b), (moved, product));
    });
}

#[test]
fn grids_and_tensor_maps_follow_the_arrays() {
    let text = "gemm 1..=512x512x512 f16>f32>f16 NT\ntarget sm_90a\n";
    let dynamic: Schedule = text.parse().unwrap();
    let schedule = warploom::gemm::recommend_for(&dynamic.program, &Target::sm_90a()).unwrap();
    alone("", |mock| {
        let kernels =
            compile(&lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap(), &schedule.target).unwrap();
        let device = Device::open(0).unwrap();
        let program = device.load(&kernels).unwrap();
        let array = |rows: usize, columns: usize| device.alloc(DType::F16, &[rows, columns]).unwrap();
        let b = array(512, 512);
        for rows in [1, 64, 65, 512] {
            let (a, c) = (array(rows, 512), array(rows, 512));
            mock.journal();
            program.launch(&[&a, &b, &c]).unwrap();
            let grid = kernels.at(&[rows as i64]).unwrap().kernels[0].grid;
            let (journal, words) = (mock.journal(), format!(" grid {grid:?} "));
            assert!(
                journal.iter().any(|l| l.starts_with("cuLaunchKernel") && l.contains(&words)),
                "{words}{journal:?}"
            );
            let maps: Vec<_> = journal.iter().filter(|l| l.starts_with("cuTensorMapEncodeTiled")).collect();
            let extent = format!("512, {rows}]");
            assert!(maps.iter().any(|l| l.contains(&extent)), "{extent} {maps:?}");
        }
        let (a, c) = (array(513, 512), array(513, 512));
        assert_eq!(program.launch(&[&a, &b, &c]).unwrap_err().code(), Code::SizeValue);
        let (a, c) = (array(64, 512), array(65, 512));
        let error = program.launch(&[&a, &b, &c]).unwrap_err();
        assert_eq!(error.message(), "M is 64 by array A, and 65 by array C");
        // SAFETY: nothing is launched: the size is missing.
        let raw = unsafe { program.launch_raw(device.raw_stream(), &[a.address(), b.address(), c.address()]) };
        assert_eq!(raw.unwrap_err().code(), Code::SizeValue);
    });
}

/// A launch takes the multiples that the program states, and refuses other values with the size's text.
#[test]
fn multiples_of_a_size_are_asked_of_each_launch() {
    let gemm = Gemm::new(64, 64, 64).of(DType::F16).layout(warploom::te::Layout::NT).rows_from(8).rows_by(8);
    let schedule = warploom::gemm::recommend(&gemm, &Target::sm_80()).unwrap();
    alone("", |_| {
        let kernels = warploom::compile(&schedule).unwrap();
        let device = Device::open(0).unwrap();
        let program = device.load(&kernels).unwrap();
        let array = |rows: usize| device.alloc(DType::F16, &[rows, 64]).unwrap();
        let b = array(64);
        for (rows, takes) in [(8, true), (12, false), (24, true), (60, false), (64, true)] {
            let ran = program.launch(&[&array(rows), &b, &array(rows)]);
            assert_eq!(ran.is_ok(), takes, "{rows}");
            let error = ran.err().map(|e| (e.code(), e.message().to_string()));
            let wanted = format!("M is {rows}, but the program has `size M in 8..=64 by 8`");
            assert!(takes || error == Some((Code::SizeValue, wanted)), "{error:?}");
        }
    });
}

#[test]
fn the_probe_tells_what_there_is() {
    alone("devices 2\ndriver 12040\ncapability 8.0", |mock| {
        let probe = probe();
        let driver = probe.driver.unwrap();
        assert!(driver.path.contains("mock_driver"), "{}", driver.path);
        assert_eq!((driver.cuda_version.as_str(), driver.lacks.len()), ("12.4", 0));
        assert_eq!((probe.devices.len(), probe.troubles.len()), (2, 0));
        let device = &probe.devices[1];
        assert_eq!((device.name.as_str(), device.pci_bus.as_str(), device.sm()), ("Mock 1", "0000:01:00.0", 80));
        assert_eq!((device.multiprocessors, device.memory_bytes, device.clusters), (132, 1 << 30, false));
        // It opens nothing.
        assert!(mock.journal().iter().all(|line| !line.contains("Ctx")));
    });
}

#[test]
fn threads_share_a_device() {
    alone("", |mock| {
        mock.executor(sum);
        let device = Device::open(0).unwrap();
        let program = device.load(&add()).unwrap();
        std::thread::scope(|scope| {
            let one = || {
                for _ in 0..20 {
                    let buffers = arguments(&device).unwrap();
                    launch(&program, &buffers).unwrap();
                    assert!(holds(&buffers[2].download().unwrap(), 11.0));
                }
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        // The last owner may be on any thread.
        std::thread::spawn(move || drop((program, device))).join().unwrap();
    });
}

#[test]
fn uploads_have_landed_for_every_stream() {
    alone("", |mock| {
        let device = Device::open(0).unwrap();
        let buffer = device.alloc(DType::F32, &[N]).unwrap();
        mock.journal();
        buffer.write(&Array::zeros(DType::F32, &[N]).unwrap()).unwrap();
        let calls: Vec<String> = mock.journal().into_iter().filter(|line| !line.starts_with("cuCtx")).collect();
        let copied = format!("cuMemcpyHtoD_v2 {:#x} {} -> 0", buffer.address(), 4 * N);
        assert_eq!(calls, [copied.as_str(), "cuStreamSynchronize default -> 0"]);
    });
}
