//! What a user can get wrong, and what a machine can lack: the exact words.

use super::mock::{Age, Mock, aged, alone, bare};
use super::programs::{N, add, arguments, holds, launch, sum, two};
use warploom::error::Code;
use warploom::kernel::Kernels;
use warploom::runtime::{Device, load_driver, probe};
use warploom::{Array, DType, Result};

/// The whole text of the error.
fn said<T>(result: Result<T>) -> String {
    result.err().map(|error| error.to_string()).expect("an error")
}

#[test]
fn a_driver_that_is_none() {
    bare(|library| {
        assert_eq!(
            said(load_driver("/nowhere/libcuda.so.1")),
            "this host cannot [host.no_driver]: /nowhere/libcuda.so.1 is not an NVIDIA driver \
             (/nowhere/libcuda.so.1: cannot open shared object file: No such file or directory)\n  try: name the file of \
             the driver itself, usually libcuda.so.1, or leave the choice to the loader"
        );
        let text = said(load_driver("libm.so.6"));
        assert!(text.contains("libm.so.6 is not an NVIDIA driver (it has no cuInit)"), "{text}");
        // Neither was taken: the right one still can be, and again, but no other after it.
        assert_eq!((load_driver(library), Device::count(), load_driver(library)), (Ok(()), Ok(1), Ok(())));
        let text = said(load_driver("/nowhere/libcuda.so.1"));
        assert!(text.starts_with("this host cannot [host.driver_loaded]: the driver /nowhere/libcuda.so.1 cannot "));
        assert!(text.ends_with(" is in use\n  try: choose the driver before the first use of a device"), "{text}");
    });
}

#[test]
fn a_machine_without_a_driver() {
    bare(|_| {
        // Where the machine has one, this process would find it.
        if probe().driver.is_some() {
            return;
        }
        assert_eq!(
            said(Device::open(0)),
            "this host cannot [host.no_driver]: no NVIDIA driver was found (libcuda.so.1: cannot open shared object \
             file: No such file or directory)\n  try: install the NVIDIA driver; it brings libcuda.so.1\n  try: run on \
             the simulator instead: --device cpu"
        );
    });
}

#[test]
fn a_driver_that_is_too_old() {
    aged(Age::Cuda11_3, |mock| {
        mock.configure("driver 11030");
        assert_eq!(
            said(Device::open(0)),
            "this host cannot [host.driver_too_old]: the driver lacks cuGraphInstantiateWithFlags: it comes with \
             drivers for CUDA 11.4, this one is for CUDA 11.3\n  try: update the NVIDIA driver to one for CUDA 11.4"
        );
        assert_eq!(probe().troubles[0].code, "host.driver_too_old");
    });
}

#[test]
fn a_driver_that_is_too_old_for_clusters() {
    aged(Age::Cuda11_7, |mock| {
        mock.configure("driver 11070");
        let device = Device::open(0).unwrap();
        let lacks = probe().driver.unwrap().lacks;
        assert_eq!(lacks, ["cuLaunchKernelEx", "cuOccupancyMaxActiveClusters", "cuTensorMapEncodeTiled"]);
        let mut kernels = add();
        kernels.kernels[0].cluster = [2, 1, 1];
        assert_eq!(
            said(device.load(&kernels)),
            "this host cannot [host.driver_too_old]: the driver lacks cuOccupancyMaxActiveClusters: it comes with \
             drivers for CUDA 11.8, this one is for CUDA 11.7\n  loading sum for sm_70\n  try: update the NVIDIA driver \
             to one for CUDA 11.8"
        );
        device.load(&add()).unwrap();
        // Beginning early is a matter of time alone: without it the kernel begins when the one in front has ended.
        let mut early = add();
        early.kernels[0].early = true;
        let program = device.load(&early).unwrap();
        mock.journal();
        launch(&program, &arguments(&device).unwrap()).unwrap();
        assert_eq!(mock.calls("cuLaunchKernel").len(), 1);
    });
}

#[test]
fn ptx_that_is_too_new() {
    alone("driver 11040", |_| {
        let mut kernels = add();
        (kernels.text, kernels.ptx_version) = (kernels.text.replace(".version 6.0", ".version 7.8"), 78);
        let text = said(Device::open(0).unwrap().load(&kernels));
        assert_eq!(
            text,
            "this host cannot [driver.222]: compiling PTX: the driver is too old for this PTX version \
             (CUDA_ERROR_UNSUPPORTED_PTX_VERSION 222)\n  the program is PTX 7.8, and the driver is for CUDA 11.4\n  the \
             driver's compiler says:\nptxas application ptx input, line 1; fatal   : Unsupported .version 7.8; current \
             version is '7.4'\n  loading sum for sm_70\n  try: update the NVIDIA driver, or compile for an older target, \
             which needs a lower PTX version"
        );
    });
}

#[test]
fn ptx_that_the_drivers_compiler_refuses() {
    let log = "ptxas application ptx input, line 4; error   : Unknown symbol 'x'";
    alone(&format!("fail cuModuleLoadDataEx 1 218\nlog {log}"), |_| {
        let error = Device::open(0).unwrap().load(&add()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "a fault of warploom itself [driver.218]: compiling PTX: the driver's compiler refuses the PTX \
                 (CUDA_ERROR_INVALID_PTX 218)\n  the driver's compiler says:\n{log}\n  loading sum for sm_70\n  try: \
                 report it with the schedule and the driver's version (warploom doctor prints it)"
            )
        );
        let (text, label) = (error.source_text().unwrap(), &error.labels()[0]);
        assert!(text[label.span.clone()].starts_with(".visible .entry add"), "{error:?}");
    });
}

#[test]
fn more_than_the_device_has() {
    alone("memory 4096", |mock| {
        let device = Device::open(0).unwrap();
        let held = device.alloc(DType::F32, &[256]).unwrap();
        assert_eq!(
            said(device.alloc(DType::F32, &[1000])),
            "this host cannot [driver.2]: allocating 4000 bytes on the device: the device has not enough free memory \
             (CUDA_ERROR_OUT_OF_MEMORY 2)\n  3072 of 4096 bytes are free on Mock 0\n  try: use smaller arrays, or free \
             device memory that other processes hold (nvidia-smi lists them)"
        );
        let mut kernels = two();
        kernels.workspace[0].bytes = 1 << 20;
        let text = said(device.load(&kernels));
        assert!(text.contains("\n  for the workspace T\n  loading sum for sm_70\n"), "{text}");
        assert!(mock.live().starts_with("allocations 1, modules 0"), "{}", mock.live());
        drop(held);
        device.alloc(DType::F32, &[1000]).unwrap();
        assert_eq!(
            said(device.alloc(DType::F64, &[usize::MAX, 2])),
            format!("error in the input [array.size]: an array of shape [{}, 2] is too large", usize::MAX)
        );
    });
}

#[test]
fn arguments_that_do_not_fit() {
    alone("", |mock| {
        let device = Device::open(0).unwrap();
        let program = device.load(&add()).unwrap();
        let [x, y, z] = arguments(&device).unwrap();
        let half = device.alloc(DType::F16, &[N]).unwrap();
        let short = device.alloc(DType::F32, &[N - 1]).unwrap();
        mock.journal();
        let input = "error in the input";
        assert_eq!(
            said(program.launch(&[&x, &y])),
            format!("{input} [launch.count]: sum takes 3 arguments (X, Y, Z), and 2 were given")
        );
        assert_eq!(
            said(program.launch(&[&x, &half, &z])),
            format!("{input} [launch.dtype]: argument Y of sum is f32[256], and f16[256] was given")
        );
        assert_eq!(
            said(program.launch(&[&x, &y, &short])),
            format!("{input} [launch.shape]: argument Z of sum is f32[256], and f32[255] was given")
        );
        assert_eq!(
            said(program.launch(&[&x, &y, &x])),
            format!(
                "{input} [launch.overlap]: sum writes Z, which overlaps X\n  try: give every argument its own buffer: the \
                 code is compiled on that promise"
            )
        );
        // SAFETY: it is refused.
        let raw = unsafe { program.launch_raw(device.raw_stream(), &[x.address(), y.address() + 4, z.address()]) };
        let at = y.address() + 4;
        assert_eq!(
            said(raw),
            format!("{input} [launch.align]: argument Y of sum must be at a multiple of 16 bytes, and is at {at:#x}")
        );
        let array = Array::zeros(DType::F32, &[N + 1]).unwrap();
        assert_eq!(
            said(x.write(&array)),
            format!(
                "{input} [buffer.write]: an array f32[257] of 1028 bytes cannot fill a device buffer f32[256] of 1024 bytes"
            )
        );
        // Nothing of all this has reached the driver.
        assert_eq!(mock.journal(), [""; 0]);
    });
}

#[test]
fn an_argument_with_gaps_needs_them_too() {
    alone("", |_| {
        let device = Device::open(0).unwrap();
        let mut kernels = add();
        kernels.args[0].bytes = 2048;
        let program = device.load(&kernels).unwrap();
        assert_eq!(
            said(launch(&program, &arguments(&device).unwrap())),
            "error in the input [launch.size]: argument X of sum needs 2048 bytes, and the buffer has 1024\n  try: the \
             strides of the parameter leave gaps: allocate them too"
        );
    });
}

#[test]
fn a_device_that_cannot() {
    alone("capability 8.0", |_| {
        let device = Device::open(0).unwrap();
        let load = |change: fn(&mut Kernels)| {
            let mut kernels = add();
            change(&mut kernels);
            said(device.load(&kernels))
        };
        let chip = "not possible on this chip";
        assert_eq!(
            load(|k| k.target = "sm_90a".into()),
            format!(
                "{chip} [launch.target]: the program is compiled for sm_90a, and Mock 0 is sm_80\n  loading sum for \
                 sm_90a\n  try: compile for sm_80"
            )
        );
        assert_eq!(
            load(|k| k.kernels[0].cluster = [2, 1, 1]),
            format!(
                "{chip} [launch.cluster]: kernel add runs in clusters of blocks, which Mock 0 lacks\n  loading sum for \
                 sm_70\n  try: remove the cluster axis from the schedule"
            )
        );
        assert_eq!(
            load(|k| k.kernels[0].shared_bytes = 200_000),
            format!(
                "{chip} [launch.shared]: kernel add needs 200000 bytes of shared memory a block, and Mock 0 gives at most \
                 166912\n  loading sum for sm_70\n  try: use smaller tiles or fewer stages"
            )
        );
        assert!(load(|k| k.text = k.text.replace("sm_70", "sm_90")).contains("[driver.209]"));
    });
}

#[test]
fn a_block_that_is_too_large_for_the_code() {
    alone("function 0 64", |_| {
        assert_eq!(
            said(Device::open(0).unwrap().load(&add())),
            "not possible on this chip [launch.threads]: kernel add is launched with 128 threads a block, and as compiled \
             it may have 64\n  loading sum for sm_70\n  try: use fewer threads a block, or smaller register tiles"
        );
    });
}

#[test]
fn devices_by_number() {
    alone("devices 2", |mock| {
        mock.executor(sum);
        assert_eq!(Device::count(), Ok(2));
        assert_eq!(
            said(Device::open(2)),
            "this host cannot [host.no_device]: there is no device 2: the driver sees 2\n  try: choose an existing \
             device (warploom doctor lists them), or run on the simulator: --device cpu"
        );
        assert!(said(Device::open(u32::MAX)).contains("there is no device 4294967295"));
        let [first, second] = [0, 1].map(|n| Device::open(n).unwrap());
        assert_eq!((first.info().name.as_str(), second.info().name.as_str()), ("Mock 0", "Mock 1"));
        for device in [&first, &second] {
            let (program, buffers) = (device.load(&add()).unwrap(), arguments(device).unwrap());
            launch(&program, &buffers).unwrap();
            assert!(holds(&buffers[2].download().unwrap(), 11.0));
        }
        let program = first.load(&add()).unwrap();
        let [x, _, z] = arguments(&first).unwrap();
        let [_, y, _] = arguments(&second).unwrap();
        assert_eq!(
            said(program.launch(&[&x, &y, &z])),
            "error in the input [launch.device]: argument Y of sum is on another device than the program"
        );
    });
}

#[test]
fn a_machine_without_devices() {
    alone("devices 0", |_| {
        let text = "this host cannot [driver.100]: initialising the driver: no CUDA device was found \
                    (CUDA_ERROR_NO_DEVICE 100)\n  try: check that nvidia-smi lists a device and that CUDA_VISIBLE_DEVICES \
                    does not hide it";
        assert_eq!(said(Device::open(0)), text);
        let probe = probe();
        assert_eq!((probe.devices.len(), probe.troubles[0].code.as_str()), (0, "driver.100"));
    });
}

#[test]
fn a_fault_of_a_foreign_address() {
    alone("", |mock: &Mock| {
        mock.executor(sum);
        let device = Device::open(0).unwrap();
        let program = device.load(&add()).unwrap();
        let [x, y, z] = arguments(&device).unwrap();
        let outside = z.address() + (1 << 40);
        // SAFETY: the mock driver looks at addresses before it uses them.
        unsafe { program.launch_raw(device.raw_stream(), &[x.address(), y.address(), outside]) }.unwrap();
        assert_eq!(device.synchronize().unwrap_err().code(), Code::Driver(700));
    });
}
