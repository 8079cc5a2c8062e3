//! Kernels that hang or fault: what is said, that nothing waits for them, and what can be done afterwards.

use super::mock::{alone, leaving};
use super::programs::{N, add, arguments, holds, launch, sum, two};
use std::time::{Duration, Instant};
use warploom::error::Code;
use warploom::runtime::{Device, DeviceBuffer};
use warploom::{Array, DType, Error, Fault};

const SOON: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(50);

const HUNG: &str = "this host cannot [launch.timeout]: kernel add of sum (grid 2 x 1 x 1, block 128 x 1 x 1): not \
                    finished within 50 ms";
const MENDS: &str = "
  try: if the kernel is only slow, allow it more time
  try: run the program on the simulator, which finds what a kernel waits for in vain: --device cpu
  try: open the device again: the hung kernel keeps its context, and a new one is made";

#[test]
fn a_kernel_that_hangs_ends_its_device_and_no_more() {
    // The kernel keeps its context and what is in it: one module, three arrays, one stream.
    let left = "allocations 3, modules 1, streams 1, events 1, graphs 0, contexts 1";
    leaving(left, "hang add forever", |mock| {
        mock.executor(sum);
        let start = Instant::now();
        let device = Device::open(0).unwrap();
        let program = device.load(&add()).unwrap();
        let buffers = arguments(&device).unwrap();
        let event = device.event().unwrap();
        launch(&program, &buffers).unwrap();
        event.record().unwrap();
        assert_eq!((device.is_idle(), event.is_done()), (Ok(false), Ok(false)));
        let error = device.synchronize_within(SHORT).unwrap_err();
        assert_eq!(error.fault(), Fault::Machine);
        assert_eq!(error.to_string(), format!("{HUNG}\n  waiting for the device{MENDS}"));

        assert!(device.is_lost());
        mock.journal();
        let error = buffers[2].download().unwrap_err();
        let now = "so this cannot be done now: copying from the device";
        assert_eq!(error.to_string(), format!("{HUNG}\n  {now}{MENDS}"));
        let code = |result: Result<(), Error>| result.unwrap_err().code().to_string();
        assert_eq!(code(device.synchronize()), "launch.timeout");
        assert_eq!(code(event.synchronize()), "launch.timeout");
        assert_eq!(code(launch(&program, &buffers)), "launch.timeout");
        assert_eq!(code(device.alloc(DType::F32, &[N]).map(drop)), "launch.timeout");
        drop((program, buffers, event, device));
        // Whoever asked the driver for any of it would have waited for ever.
        assert_eq!(mock.calls("cuMemFree_v2"), [""; 0]);

        let device = Device::open(0).unwrap();
        mock.configure("");
        let (program, buffers) = (device.load(&add()).unwrap(), arguments(&device).unwrap());
        launch(&program, &buffers).unwrap();
        assert!(holds(&buffers[2].download().unwrap(), 11.0));
        assert!(start.elapsed() < SOON);
    });
}

#[test]
fn a_kernel_that_is_only_slow_gives_back_all_in_the_end() {
    alone("hang add 1500", |mock| {
        let device = Device::open(0).unwrap();
        let (program, buffers) = (device.load(&add()).unwrap(), arguments(&device).unwrap());
        launch(&program, &buffers).unwrap();
        assert_eq!(device.synchronize_within(SHORT).unwrap_err().code(), Code::LaunchTimeout);
        drop((program, buffers));
        assert!(mock.live().starts_with("allocations 3, modules 1"), "{}", mock.live());
        std::thread::sleep(Duration::from_millis(1600));
        drop(device);
    });
}

#[test]
fn time_enough_is_no_error() {
    alone("hang add 100", |mock| {
        mock.executor(sum);
        let device = Device::open(0).unwrap();
        let (program, buffers) = (device.load(&add()).unwrap(), arguments(&device).unwrap());
        let [start, end] = [device.event().unwrap(), device.event().unwrap()];
        start.record().unwrap();
        launch(&program, &buffers).unwrap();
        end.record().unwrap();
        end.synchronize_within(SOON).unwrap();
        device.synchronize_within(SOON).unwrap();
        assert_eq!((device.is_idle(), end.is_done()), (Ok(true), Ok(true)));
        let us = end.microseconds_since(&start).unwrap();
        assert!((100_000.0..100_100.0).contains(&us), "{us}");
        assert!(holds(&buffers[2].download().unwrap(), 11.0));
    });
}

type Wait = fn(&Device, DeviceBuffer) -> Result<(), Error>;

const WAITS: [(&str, Wait); 5] = [
    ("synchronize", |device, _| device.synchronize()),
    ("download", |_, buffer| buffer.download().map(drop)),
    ("write", |_, buffer| buffer.write(&Array::zeros(DType::F32, &[N])?)),
    ("event", |device, _| device.event().and_then(|event| event.record().and_then(|()| event.synchronize()))),
    ("drop", |device, buffer| {
        drop(buffer);
        device.synchronize()
    }),
];

#[test]
fn a_limit_holds_wherever_something_waits() {
    let left = "allocations 15, modules 5, streams 5, events 1, graphs 0, contexts 5";
    leaving(left, "", |mock| {
        for (what, wait) in WAITS {
            mock.configure("");
            let start = Instant::now();
            let device = Device::open(0).unwrap_or_else(|e| panic!("{what}: {e}"));
            device.set_time_limit(Some(SHORT));
            let (program, [x, y, z]) = (device.load(&add()).unwrap(), arguments(&device).unwrap());
            device.synchronize().unwrap();
            mock.configure("hang add forever");
            program.launch(&[&x, &y, &z]).unwrap();
            let error = wait(&device, z).unwrap_err();
            assert_eq!(error.code(), Code::LaunchTimeout, "{what}: {error}");
            drop((program, x, y, device));
            assert!(start.elapsed() < SOON, "{what}");
        }
    });
}

#[test]
fn a_device_that_a_hung_kernel_keeps_whole_says_so() {
    leaving("allocations 4, modules 1, streams 2, events 0, graphs 0, contexts 2", "hang add forever", |mock| {
        let device = Device::open(0).unwrap();
        let (program, buffers) = (device.load(&add()).unwrap(), arguments(&device).unwrap());
        launch(&program, &buffers).unwrap();
        device.synchronize_within(SHORT).unwrap_err();
        drop((program, buffers, device));
        mock.configure("fail cuStreamQuery * 600");
        let start = Instant::now();
        let error = Device::open(0).unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(30));
        assert!(error.to_string().starts_with(
            "this host cannot [launch.timeout]: the work on the device's stream: not finished within 3000 ms"
        ));
        assert!(error.to_string().contains("an earlier kernel still keeps the device"), "{error}");
        assert!(error.helps().iter().any(|help| help == "restart the process"), "{error}");
    });
}

#[test]
fn several_launches_are_counted_and_the_last_named() {
    leaving("allocations 4, modules 1, streams 1, events 0, graphs 2, contexts 1", "hang second forever", |_| {
        let device = Device::open(0).unwrap();
        let (program, buffers) = (device.load(&two()).unwrap(), arguments(&device).unwrap());
        let graph = device.capture(|| launch(&program, &buffers)).unwrap();
        launch(&program, &buffers).unwrap();
        graph.launch().unwrap();
        let error = device.synchronize_within(SHORT).unwrap_err();
        assert_eq!(
            error.message(),
            "3 launches of kernel first of sum (grid 2 x 1 x 1, block 128 x 1 x 1), kernel second of sum (grid 2 x 1 x \
             1, block 128 x 1 x 1), a graph of 2 launches: not finished within 50 ms"
        );
    });
}

#[test]
fn after_a_fault_a_device_is_opened_anew() {
    alone("fault add 700", |mock| {
        mock.executor(sum);
        let device = Device::open(0).unwrap();
        let (program, buffers) = (device.load(&add()).unwrap(), arguments(&device).unwrap());
        launch(&program, &buffers).unwrap();
        let error = device.synchronize().unwrap_err();
        assert_eq!(
            error.to_string(),
            "a fault of warploom itself [driver.700]: waiting for the device: a kernel read or wrote an address outside \
             its buffers (CUDA_ERROR_ILLEGAL_ADDRESS 700)\n  launched and not seen to end: kernel add of sum (grid 2 x \
             1 x 1, block 128 x 1 x 1)\n  try: run the program on the simulator, which names the access, and report \
             the schedule; to go on, open the device again, for a new context, or restart the process"
        );
        let later = buffers[2].download().unwrap_err();
        assert_eq!((later.code(), later.message().starts_with("an earlier kernel: ")), (Code::Driver(700), true));
        mock.configure("");
        // Beside the broken device, in a context of its own; and after it, in the primary context again.
        for old in [None, Some((program, buffers, device))] {
            drop(old);
            let device = Device::open(0).unwrap();
            let (program, buffers) = (device.load(&add()).unwrap(), arguments(&device).unwrap());
            launch(&program, &buffers).unwrap();
            assert!(holds(&buffers[2].download().unwrap(), 11.0));
        }
        let journal = mock.journal();
        let of = |name: &str| journal.iter().filter(|line| line.starts_with(name)).count();
        assert_eq!((of("cuCtxCreate_v2"), of("cuCtxDestroy_v2")), (1, 1));
    });
}

#[test]
fn where_a_fault_ends_the_process_it_is_said() {
    leaving(
        "allocations 3, modules 1, streams 1, events 0, graphs 0, contexts 1",
        "fault add 719\nends process",
        |_| {
            let device = Device::open(0).unwrap();
            let (program, buffers) = (device.load(&add()).unwrap(), arguments(&device).unwrap());
            launch(&program, &buffers).unwrap();
            assert_eq!(device.synchronize().unwrap_err().code(), Code::Driver(719));
            drop((program, buffers, device));
            let error = Device::open(0).unwrap_err();
            assert_eq!(error.code(), Code::Driver(719));
            assert!(error.helps()[0].ends_with("or restart the process"), "{error}");
        },
    );
}
