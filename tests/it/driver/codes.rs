//! Every result code of the driver, and codes that nobody knows: an error with its name, its fault and what to try,
//! wherever it comes from; nothing is forgotten on the way out.

#[path = "../../mock-driver/codes.rs"]
mod header;

use super::mock::{Mock, NOTHING, alone};
use super::programs::{arguments, holds, launch, sum, two};
use header::CODES;
use std::collections::BTreeSet;
use std::fmt::Write;
use warploom::error::Code;
use warploom::runtime::{Device, Swizzle, TensorMapSpec, Workspace};
use warploom::{DType, Error, Fault, Result};

/// Codes that no header has.
const UNKNOWN: [i32; 4] = [-1, 9, 1234, i32::MAX];

/// Calls whose failure a session survives: they give something back, or ask what it can do without.
const SURVIVED: [&str; 14] = [
    "cuCtxGetCurrent",
    "cuDeviceGetPCIBusId",
    "cuMemFree_v2",
    "cuModuleUnload",
    "cuEventDestroy_v2",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphGetNodes",
    "cuGraphNodeGetType",
    "cuGraphKernelNodeGetParams_v2",
    "cuFuncGetName",
    "cuStreamDestroy_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuGetErrorName",
];

/// Everything that the runtime can do, once.
fn session() -> Result<()> {
    let device = Device::open(0)?;
    let program = device.load(&two())?;
    let buffers = arguments(&device)?;
    let copy = buffers[0].duplicate()?;
    let [start, end] = [device.event()?, device.event()?];
    start.record()?;
    launch(&program, &buffers)?;
    program.launch_with(&buffers.each_ref(), Workspace::StreamOrdered)?;
    end.record()?;
    while !end.is_done()? {}
    end.synchronize()?;
    assert!(end.microseconds_since(&start)? > 0.0);
    let graph = device.capture(|| launch(&program, &buffers))?;
    assert!(graph.kernel_names().len() <= 2);
    graph.launch()?;
    while !device.is_idle()? {}
    device.synchronize()?;
    assert!(holds(&buffers[2].download()?, 21.0) && copy.download()? == buffers[0].download()?);
    let spec = TensorMapSpec {
        dtype: DType::F32,
        extents: vec![16, 16],
        strides_bytes: vec![64],
        box_extents: vec![8, 8],
        swizzle: Swizzle::B32,
        promotion: 256,
    };
    spec.encode(copy.address())?;
    assert_eq!(device.ordinal_of(copy.address())?, 0);
    device.free_memory().map(drop)
}

/// The functions that a session calls, in the order of their first call.
fn functions(mock: &Mock) -> Vec<String> {
    session().unwrap();
    let mut seen = BTreeSet::new();
    let names = mock.journal().into_iter().map(|line| line.split(' ').next().unwrap().to_string());
    names.filter(|name| seen.insert(name.clone())).collect()
}

#[test]
fn every_code_of_every_call_is_an_error_and_leaves_nothing() {
    alone("", |mock| {
        mock.executor(sum);
        let functions = functions(mock);
        assert!(functions.len() > 40, "{functions:?}");
        let codes: Vec<i32> = CODES.iter().map(|c| c.0).chain(UNKNOWN).collect();
        for function in functions.iter().filter(|f| *f != "cuInit") {
            // cust makes a context current first and looks not whether it did; then we do.
            let first = 1 + u64::from(function == "cuCtxSetCurrent");
            for &code in &codes {
                fails(mock, function, first, code);
            }
            for (call, code) in [(2, 2), (2, 700), (2, 1234), (3, 2), (3, 719), (3, -1)] {
                fails(mock, function, call, code);
            }
        }
    });
}

fn fails(mock: &Mock, function: &str, call: u64, code: i32) {
    mock.configure(&format!("fail {function} {call} {code}"));
    let outcome = session();
    let at = format!("{function} answers {code} at call {call}: {outcome:?}");
    let journal = mock.journal();
    let failed = journal.iter().any(|l| l.starts_with(function) && l.ends_with(&format!(" -> {code}")));
    assert_eq!(mock.live(), NOTHING, "{at}");
    match outcome {
        Err(error) => {
            assert!(failed && error.code() == Code::Driver(code), "{at}");
            assert!(named(code, &error) && !error.helps().is_empty(), "{at}");
        }
        Ok(()) => {
            let asked = ["cuStreamQuery", "cuEventQuery"].contains(&function) && code == 600;
            // A primary context that is broken: the device gets another.
            let beside = journal.iter().any(|line| line.starts_with("cuCtxCreate_v2"));
            let unknown = function == "cuDeviceGetAttribute" && code == 1;
            assert!(!failed || asked || unknown || beside || SURVIVED.contains(&function), "{at}");
        }
    }
}

/// Whether an error says what the header calls its code.
fn named(code: i32, error: &Error) -> bool {
    match CODES.iter().find(|c| c.0 == code) {
        Some((_, name)) => error.message().contains(&format!("{name} {code}")),
        None => error.message().contains(&format!("the driver answers {code}")),
    }
}

#[test]
fn a_driver_that_does_not_start_says_why() {
    alone("", |mock| {
        for (code, _) in CODES {
            mock.configure(&format!("fail cuInit 1 {code}"));
            let error = Device::count().unwrap_err();
            assert_eq!(error.code(), Code::Driver(*code));
            assert!(error.message().starts_with("initialising the driver: ") && named(*code, &error), "{error}");
        }
        mock.configure("devices 0");
        assert_eq!(Device::count().unwrap_err().code(), Code::Driver(100));
        mock.configure("");
        assert_eq!(Device::count(), Ok(1));
    });
}

#[test]
fn what_is_said_of_every_code() {
    alone("name 1234 CUDA_ERROR_OF_TOMORROW", |mock| {
        let mut text = String::new();
        for code in CODES.iter().map(|c| c.0).chain(UNKNOWN) {
            mock.configure(&format!("name 1234 CUDA_ERROR_OF_TOMORROW\nfail cuDeviceGetCount 1 {code}"));
            writeln!(text, "{}\n", Device::count().unwrap_err()).unwrap();
        }
        super::super::cases::golden("driver.txt", &text);
    });
}

#[test]
fn faults_of_kernels_are_ours_and_of_the_machine_are_not() {
    alone("", |mock| {
        let fault = |code: i32| {
            mock.configure(&format!("fail cuDeviceGetCount 1 {code}"));
            Device::count().unwrap_err().fault()
        };
        for code in [1, 200, 218, 400, 700, 716, 719] {
            assert_eq!(fault(code), Fault::Bug, "{code}");
        }
        for code in [2, 34, 46, 100, 214, 221, 222, 304, 702, 802, 803, 999, 1234, -1] {
            assert_eq!(fault(code), Fault::Machine, "{code}");
        }
        for code in [209, 701, 720, 801, 912] {
            assert_eq!(fault(code), Fault::Chip, "{code}");
        }
    });
}
