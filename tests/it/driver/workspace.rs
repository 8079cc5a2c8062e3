//! Workspace of a launch: of the program, of the caller, or allocated and freed in the stream.

use super::mock::alone;
use super::programs::{N, arguments, holds, launch, sum, two};
use std::ffi::c_void;
use warploom::error::Code;
use warploom::runtime::{Device, Workspace};
use warploom::{Array, DType};

/// The calls of a journal, without calls that make the context current.
fn calls(journal: Vec<String>) -> Vec<String> {
    let others = journal.into_iter().filter(|line| !line.starts_with("cuCtx"));
    others.filter_map(|line| line.split(" grid ").next().map(str::to_string)).collect()
}

/// The bytes of the workspace as one block.
const BYTES: usize = 4 * N;

#[test]
fn a_stream_allocates_and_frees_the_workspace_of_a_launch() {
    alone("", |mock| {
        mock.executor(sum);
        let device = Device::open(0).unwrap();
        mock.journal();
        let program = device.load_without_workspace(&two()).unwrap();
        assert_eq!(mock.calls("cuMemAlloc_v2"), [""; 0]);
        let buffers = arguments(&device).unwrap();
        let refused = launch(&program, &buffers).unwrap_err();
        assert_eq!(refused.code(), Code::LaunchWorkspace);
        assert_eq!(refused.message(), "sum was loaded without workspace, and none was given");
        mock.journal();
        program.launch_with(&buffers.each_ref(), Workspace::StreamOrdered).unwrap();
        let asked = calls(mock.journal());
        let freed = asked[3].clone();
        assert_eq!(
            asked[..3],
            [format!("cuMemAllocAsync {BYTES} -> 0"), "cuLaunchKernel first".into(), "cuLaunchKernel second".into()]
        );
        assert!(asked.len() == 4 && freed.starts_with("cuMemFreeAsync 0x") && freed.ends_with(" -> 0"), "{asked:?}");
        // The three arguments, and the workspace until the stream has come to its release.
        assert!(mock.live().starts_with("allocations 4,"), "{}", mock.live());
        assert!(holds(&buffers[2].download().unwrap(), 21.0));
        assert!(mock.live().starts_with("allocations 3,"), "{}", mock.live());
        // On a stream of the caller's.
        buffers[2].poison().unwrap();
        let addresses = buffers.each_ref().map(|buffer| buffer.address());
        // SAFETY: the stream is the device's, and the buffers outlive the work.
        unsafe { program.launch_raw_ordered(device.raw_stream(), &addresses) }.unwrap();
        assert!(holds(&buffers[2].download().unwrap(), 21.0));
        // A launch that the driver refuses gives the workspace back.
        mock.configure("fail cuLaunchKernel 2 701");
        let refused = program.launch_with(&buffers.each_ref(), Workspace::StreamOrdered).unwrap_err();
        assert_eq!(refused.code(), Code::Driver(701));
        device.synchronize().unwrap();
        assert!(mock.live().starts_with("allocations 3,"), "{}", mock.live());
    });
}

#[test]
fn a_graph_allocates_and_frees_the_workspace_of_its_launches() {
    alone("", |mock| {
        mock.executor(sum);
        let device = Device::open(0).unwrap();
        let program = device.load_without_workspace(&two()).unwrap();
        let buffers = arguments(&device).unwrap();
        mock.journal();
        let graph = device.capture(|| program.launch_with(&buffers.each_ref(), Workspace::StreamOrdered)).unwrap();
        let asked = calls(mock.journal());
        let names: Vec<&str> = asked.iter().map(|line| line.split(' ').next().unwrap()).collect();
        let recorded = ["cuMemAllocAsync", "cuLaunchKernel", "cuLaunchKernel", "cuMemFreeAsync"];
        assert_eq!(names[0], "cuStreamBeginCapture_v2");
        assert_eq!((&names[1..5], names[5]), (&recorded[..], "cuStreamEndCapture"), "{asked:?}");
        assert_eq!(graph.kernel_names(), ["first", "second"]);
        for _ in 0..2 {
            assert!(mock.live().starts_with("allocations 3,"), "{}", mock.live());
            buffers[2].poison().unwrap();
            graph.launch().unwrap();
            assert!(holds(&buffers[2].download().unwrap(), 21.0));
        }
    });
}

#[test]
fn a_driver_without_memory_pools_says_so() {
    alone("attribute 115 0", |_| {
        let device = Device::open(0).unwrap();
        let program = device.load_without_workspace(&two()).unwrap();
        let buffers = arguments(&device).unwrap();
        let refused = program.launch_with(&buffers.each_ref(), Workspace::StreamOrdered).unwrap_err();
        assert_eq!(refused.code(), Code::Driver(801));
        let text = refused.to_string();
        let parts = [
            "allocating 1024 bytes of workspace in the stream",
            "Mock 0 or its driver has no memory pools, in which a stream allocates",
            "try: launch with the workspace of the program, or with a buffer as workspace",
        ];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    });
}

#[test]
fn a_buffer_of_the_callers_is_workspace() {
    alone("devices 2", |mock| {
        mock.executor(sum);
        let device = Device::open(0).unwrap();
        let program = device.load_without_workspace(&two()).unwrap();
        assert_eq!(program.workspace_total(), BYTES);
        let buffers = arguments(&device).unwrap();
        let own = device.alloc(DType::U8, &[BYTES]).unwrap();
        let given = |workspace| program.launch_with(&buffers.each_ref(), workspace);
        mock.journal();
        let graph = device.capture(|| given(Workspace::Buffer(&own))).unwrap();
        let journal = mock.journal();
        let launches: Vec<&String> = journal.iter().filter(|line| line.starts_with("cuLaunchKernel")).collect();
        let address = format!("{:#x}", own.address());
        assert!(launches.len() == 2 && launches.iter().all(|line| line.contains(&address)), "{launches:?}");
        assert!(!journal.iter().any(|line| line.contains("cuMem") || line.contains("Synchronize")), "{journal:?}");
        graph.launch().unwrap();
        assert!(holds(&buffers[2].download().unwrap(), 21.0));

        let short = device.alloc(DType::U8, &[BYTES - 1]).unwrap();
        let elsewhere = Device::open(1).unwrap().alloc(DType::U8, &[BYTES]).unwrap();
        assert_eq!([&short, &elsewhere].map(|buffer| device.ordinal_of(buffer.address())), [Ok(0), Ok(1)]);
        let nowhere = device.ordinal_of(16).unwrap_err();
        assert!(nowhere.to_string().contains("no memory of a device is at 0x10"), "{nowhere}");
        for (workspace, code, why) in [
            (&short, Code::LaunchWorkspace, "sum needs 1024 bytes of workspace, and the buffer has 1023"),
            (&elsewhere, Code::LaunchDevice, "the workspace of sum is on another device than the program"),
            (&buffers[1], Code::LaunchOverlap, "the workspace of sum overlaps Y"),
        ] {
            let refused = given(Workspace::Buffer(workspace)).unwrap_err();
            assert_eq!((refused.code(), refused.message()), (code, why));
        }
    });
}

type Allocate = extern "C" fn(*mut u64, usize, *mut c_void) -> i32;
type Free = extern "C" fn(u64, *mut c_void) -> i32;

/// Of the mock driver itself: otherwise the tests above show nothing.
#[test]
fn the_mock_driver_frees_in_order_what_is_allocated() {
    alone("", |mock| {
        let device = Device::open(0).unwrap();
        let buffer = device.upload(&Array::zeros(DType::F32, &[N]).unwrap()).unwrap();
        let (allocate, free): (Allocate, Free) = (mock.function("cuMemAllocAsync"), mock.function("cuMemFreeAsync"));
        let (stream, mut address) = (device.raw_stream(), 0);
        assert_eq!((allocate(&mut address, 512, stream), free(address + 1, stream)), (0, 1));
        assert_eq!((free(address, stream), free(address, stream)), (0, 1));
        device.synchronize().unwrap();
        assert_eq!(free(address, stream), 1);
        // A recording frees what it has allocated, once.
        let recorded = device.capture(|| {
            let mut other = 0;
            assert_eq!((allocate(&mut other, 512, stream), free(buffer.address(), stream)), (0, 1));
            assert_eq!((free(other, stream), free(other, stream)), (0, 1));
            Ok(())
        });
        recorded.unwrap().launch().unwrap();
        device.synchronize().unwrap();
        assert!(mock.live().starts_with("allocations 1,"), "{}", mock.live());
    });
}
