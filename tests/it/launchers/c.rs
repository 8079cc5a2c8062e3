//! The launcher in C: compiled by the C compiler, loaded into this process, and run against the mock driver, whose kernels the
//! simulator interprets. What it asks of the driver is compared with what the runtime asks.

use super::{add, example, rows, unit};
use crate::driver::mock::{Age, Mock, aged, alone};
use crate::driver::{self, interpret};
use libloading::Library;
use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::process::Command;
use warploom::artifact::launcher::{Unit, c};
use warploom::kernel::Cubin;
use warploom::runtime::{Device, DeviceBuffer, Workspace};
use warploom::{Array, DType, Gemm, Kernels, Target, compile};

/// A launcher of three arguments in this process, for the context that is current.
struct Launcher {
    library: Library,
    name: &'static str,
    kernels: *mut c_void,
}

type Load = unsafe extern "C" fn(*mut *mut c_void) -> i32;
type Unload = unsafe extern "C" fn(*mut c_void);
type Find = unsafe extern "C" fn(*mut c_void, *const i64, *mut *mut c_void) -> i32;
type Bytes = unsafe extern "C" fn(*const c_void) -> usize;
type Launch = unsafe extern "C" fn(*mut c_void, *mut c_void, u64, u64, u64, u64) -> i32;
type LaunchOrdered = unsafe extern "C" fn(*mut c_void, *mut c_void, u64, u64, u64) -> i32;
type LaunchSized = unsafe extern "C" fn(*mut c_void, *mut c_void, i64, u64, u64, u64, u64) -> i32;
type Dispatch = unsafe extern "C" fn(*mut c_void, *const i64, *mut c_void, u64, u64, u64) -> i32;
type Text = unsafe extern "C" fn(i32) -> *const c_char;

/// The launcher asks each value and each shape whether the program states it as a multiple.
#[test]
fn multiples_of_a_size_are_asked_of_each_launch() {
    alone("", |_| {
        let kernels = rows("8..=64/8", "sm_80");
        let device = Device::open(0).unwrap();
        let launcher = Launcher::new("gemm", &[unit(&kernels)]).unwrap();
        let fixed = kernels.at(&[64]).unwrap();
        let buffers = buffers(&device, &fixed);
        let at = [0, 1, 2].map(|n: usize| buffers[n].address());
        let variant = launcher.find(&shapes(&fixed)).unwrap();
        for (m, takes) in [(8, true), (12, false), (60, false), (64, true)] {
            let given = [m, 64, 64, 64, m, 64];
            let (launched, found) =
                (launcher.launch_sized(variant, &device, m, at), launcher.dispatch(&given, &device, at));
            assert_eq!((launched.is_ok(), found.is_ok()), (takes, takes), "{m}: {launched:?} {found:?}");
            assert!(takes || launched.is_err_and(|(_, text)| text.contains("size")), "{m}");
        }
    });
}

/// Runs a compiler with all its warnings as errors.
fn compiler(name: &str, arguments: &[&str], source: &Path) {
    let warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"];
    let ran = Command::new(name).args(warnings).args(arguments).arg(source).output();
    let ran = ran.unwrap_or_else(|e| panic!("{name}, which compiles the launcher, does not start: {e}"));
    assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// Writes the launcher of these units, and compiles it into a library.
fn build(name: &str, units: &[Unit<'_>]) -> Library {
    let folder = std::env::temp_dir().join(format!("warploom-launcher-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, library) = (folder.join(format!("{name}.c")), folder.join("launcher.so"));
    let files = c(name, units).unwrap();
    std::fs::write(folder.join(format!("{name}.h")), files.header).unwrap();
    std::fs::write(&source, files.source).unwrap();
    compiler("cc", &["-std=c99", "-shared", "-fPIC", "-o", library.to_str().unwrap()], &source);
    compiler("c++", &["-std=c++11", "-fsyntax-only", "-x", "c++"], &source);
    // SAFETY: the library is the source above, which does nothing when it is loaded.
    let loaded = unsafe { Library::new(&library) }.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    loaded
}

impl Launcher {
    fn new(name: &'static str, units: &[Unit<'_>]) -> Result<Launcher, (i32, String)> {
        let mut launcher = Launcher { library: build(name, units), name, kernels: std::ptr::null_mut() };
        let load: Load = launcher.function("load");
        // SAFETY: the prototype is the header's.
        let code = unsafe { load(&mut launcher.kernels) };
        launcher.answer(code).map(|()| launcher)
    }

    /// A function of the header; the caller names its type.
    fn function<T: Copy>(&self, name: &str) -> T {
        // SAFETY: the types above are the prototypes of the header.
        *unsafe { self.library.get::<T>(format!("{}_{name}", self.name)) }.unwrap()
    }

    fn answer(&self, code: i32) -> Result<(), (i32, String)> {
        let text: Text = self.function("error");
        // SAFETY: the text is a C string that lasts.
        let text = || unsafe { CStr::from_ptr(text(code)) }.to_str().unwrap().to_string();
        if code == 0 { Ok(()) } else { Err((code, text())) }
    }

    /// The kernels for these shapes, one extent after the other.
    fn find(&self, shapes: &[i64]) -> Result<*mut c_void, (i32, String)> {
        let (find, mut variant): (Find, _) = (self.function("find"), std::ptr::null_mut());
        // SAFETY: the shapes are as many numbers as the structure has.
        let code = unsafe { find(self.kernels, shapes.as_ptr(), &mut variant) };
        self.answer(code).map(|()| variant)
    }

    fn workspace_bytes(&self, variant: *mut c_void) -> usize {
        let bytes: Bytes = self.function("workspace_bytes");
        // SAFETY: the variant was found.
        unsafe { bytes(variant) }
    }

    fn launch(&self, variant: *mut c_void, device: &Device, at: [u64; 4]) -> Result<(), (i32, String)> {
        let launch: Launch = self.function("launch");
        // SAFETY: the variant was found; the mock driver looks at every address.
        self.answer(unsafe { launch(variant, device.raw_stream(), at[0], at[1], at[2], at[3]) })
    }
}

impl Launcher {
    fn launch_ordered(&self, variant: *mut c_void, device: &Device, at: [u64; 3]) -> Result<(), (i32, String)> {
        let launch: LaunchOrdered = self.function("launch_ordered");
        // SAFETY: as above.
        self.answer(unsafe { launch(variant, device.raw_stream(), at[0], at[1], at[2]) })
    }
}

impl Launcher {
    fn launch_sized(&self, variant: *mut c_void, device: &Device, m: i64, at: [u64; 3]) -> Result<(), (i32, String)> {
        let launch: LaunchSized = self.function("launch");
        // SAFETY: as above; the program has no workspace.
        self.answer(unsafe { launch(variant, device.raw_stream(), m, at[0], at[1], at[2], 0) })
    }

    fn dispatch(&self, shapes: &[i64], device: &Device, at: [u64; 3]) -> Result<(), (i32, String)> {
        let dispatch: Dispatch = self.function("dispatch");
        // SAFETY: the shapes are as many numbers as the structure has.
        self.answer(unsafe { dispatch(self.kernels, shapes.as_ptr(), device.raw_stream(), at[0], at[1], at[2]) })
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let unload: Unload = self.function("unload");
        // SAFETY: no work is left: what launches has been waited for.
        unsafe { unload(self.kernels) };
    }
}

/// The extents of all arguments, one after the other.
fn shapes(kernels: &Kernels) -> Vec<i64> {
    kernels.args.iter().flat_map(|arg| arg.shape.clone()).collect()
}

/// Small whole numbers as inputs, and room for the output.
fn buffers(device: &Device, kernels: &Kernels) -> Vec<DeviceBuffer> {
    let buffer = |(n, arg): (usize, &warploom::kernel::Arg)| {
        let shape: Vec<usize> = arg.shape.iter().map(|extent| *extent as usize).collect();
        device.upload(&Array::random_integers(arg.dtype, &shape, 3, n as u64).unwrap()).unwrap()
    };
    kernels.args.iter().enumerate().map(buffer).collect()
}

/// What was asked of the driver that decides what a kernel does: limits, tensor maps and launches, without addresses.
fn asked(mock: &Mock) -> Vec<String> {
    let of = ["cuFuncSetAttribute", "cuTensorMapEncodeTiled", "cuLaunchKernel"];
    let journal = mock.journal().into_iter().filter(|line| of.iter().any(|name| line.starts_with(name)));
    journal.map(|line| line.split(" params ").next().unwrap_or_default().to_string()).collect()
}

/// The programs with what they show of a launch.
fn programs() -> Vec<(&'static str, Kernels)> {
    let split = Gemm::new(64, 64, 1024).of(DType::F16);
    let split = warploom::gemm::recommend(&split, &Target::parse("sm_80").unwrap()).unwrap();
    let dependent = Gemm::new(64, 64, 256).of(DType::F16);
    let dependent = warploom::gemm::recommend(&dependent, &Target::sm_90a()).unwrap();
    vec![
        ("plain", add(1024, "sm_80")),
        ("split", compile(&split).unwrap()),
        ("dependent", compile(&dependent).unwrap()),
        ("clusters", example("worked_example", &[256, 256, 64])),
        ("persistent", example("wgmma_f16_pingpong", &[256, 512, 64])),
    ]
}

#[test]
fn the_launcher_in_c_does_what_the_runtime_does() {
    // Few multiprocessors, so that persistent kernels have fewer blocks than tiles.
    alone("attribute 16 2", |mock| {
        let programs = programs();
        let has = |what: fn(&Kernels) -> bool| programs.iter().any(|(_, kernels)| what(kernels));
        assert!(
            has(|k| !k.workspace.is_empty()) && has(|k| k.kernels[0].early) && has(|k| k.kernels[0].cluster != [1; 3])
        );
        assert!(has(|k| k.kernels[0].persistent && k.kernels[0].grid[0] > 2 && k.kernels[0].shared_bytes > 48 << 10));
        interpret::programs(mock, &programs.iter().map(|p| p.1.clone()).collect::<Vec<_>>());
        let device = Device::open(0).unwrap();
        for (name, kernels) in &programs {
            let buffers = buffers(&device, kernels);
            let output = &buffers[2];
            mock.journal();
            let program = device.load(kernels).unwrap();
            output.poison().unwrap();
            program.launch(&buffers.iter().collect::<Vec<_>>()).unwrap();
            let (wanted, calls) = (output.download().unwrap(), asked(mock));
            assert_ne!(wanted, Array::poisoned(output.dtype(), output.shape()).unwrap(), "{name}");

            let launcher = Launcher::new(name, &[unit(kernels)]).unwrap();
            let variant = launcher.find(&shapes(kernels)).unwrap();
            let bytes = launcher.workspace_bytes(variant);
            assert_eq!(bytes == 0, kernels.workspace.is_empty(), "{name}");
            let workspace = device.alloc(DType::U8, &[bytes.max(1)]).unwrap();
            let workspace_at = if bytes > 0 { workspace.address() } else { 0 };
            let at = [buffers[0].address(), buffers[1].address(), output.address(), workspace_at];
            output.poison().unwrap();
            launcher.launch(variant, &device, at).unwrap_or_else(|e| panic!("{name}: {e:?}"));
            assert_eq!(output.download().unwrap(), wanted, "{name}");
            assert_eq!(asked(mock), calls, "{name}");
            // A second launch is nothing but launches, so a graph can record it.
            output.poison().unwrap();
            mock.journal();
            let graph = device.capture(|| {
                launcher.launch(variant, &device, at).unwrap_or_else(|e| panic!("{name}: {e:?}"));
                Ok(())
            });
            let journal = mock.journal();
            let begin = journal.iter().position(|line| line.starts_with("cuStreamBeginCapture")).unwrap();
            let end = journal.iter().position(|line| line.starts_with("cuStreamEndCapture")).unwrap();
            let launches = |line: &String| line.starts_with("cuLaunchKernel") || line.starts_with("cuCtxGetCurrent");
            assert!(journal[begin + 1..end].iter().all(launches), "{name}: {journal:?}");
            graph.unwrap().launch().unwrap();
            assert_eq!(output.download().unwrap(), wanted, "{name}");
            // Workspace that the stream allocates and frees.
            output.poison().unwrap();
            let live = mock.live();
            mock.journal();
            launcher.launch_ordered(variant, &device, [at[0], at[1], at[2]]).unwrap();
            let journal = mock.journal();
            let count =
                |name: &str| journal.iter().filter(|line| line.starts_with(name) && line.ends_with("-> 0")).count();
            let ordered = usize::from(bytes > 0);
            assert_eq!(
                (count("cuMemAllocAsync "), count("cuMemFreeAsync ")),
                (ordered, ordered),
                "{name}: {journal:?}"
            );
            assert_eq!(output.download().unwrap(), wanted, "{name}");
            assert_eq!(mock.live(), live, "{name}");
        }
    });
}

/// On a GPU: the launcher writes the bits that the runtime writes, when it launches, in a graph, with workspace that the stream allocates, and at
/// values of a dynamic M, which [`dispatch`](Launcher::dispatch) finds the kernels for.
pub(crate) fn on_device(device: &Device) {
    if !Command::new("cc").arg("--version").output().is_ok_and(|ran| ran.status.success()) {
        assert!(std::env::var_os("WARPLOOM_REQUIRE_GPU").is_none(), "the launchers in C need the C compiler `cc`");
        return crate::gpu::say("SKIPPED: the launchers in C: there is no C compiler `cc`");
    }
    device.make_current().unwrap();
    let sm = device.info().sm();
    let runs = |kernels: &Kernels| kernels.runs_on((sm / 10, sm % 10));
    let programs: Vec<_> = programs().into_iter().filter(|(_, kernels)| runs(kernels)).collect();
    assert!(programs.len() > 1, "sm_{sm} runs {} of the programs", programs.len());
    for (name, kernels) in &programs {
        same_bits(device, name, kernels);
    }
    let all =
        [rows("1..=64", "sm_80"), rows("65..=256", "sm_80"), rows("1..=64", "sm_90a"), rows("65..=256", "sm_90a")];
    let all: Vec<&Kernels> = all.iter().filter(|kernels| runs(kernels)).collect();
    let launcher = Launcher::new("gemm", &all.iter().map(|kernels| unit(kernels)).collect::<Vec<_>>()).unwrap();
    for m in [1, 17, 63, 64, 65, 129, 256] {
        let own = all.iter().rev().find(|kernels| kernels.at(&[m]).is_ok()).unwrap();
        let fixed = own.at(&[m]).unwrap();
        let (buffers, shapes) = (buffers(device, &fixed), shapes(&fixed));
        let at = [0, 1, 2].map(|n: usize| buffers[n].address());
        let wanted = launched(device, own, &buffers);
        buffers[2].poison().unwrap();
        launcher.dispatch(&shapes, device, at).unwrap();
        assert_eq!(buffers[2].download().unwrap(), wanted, "M = {m}");
    }
}

/// The output of a launch by the runtime.
fn launched(device: &Device, kernels: &Kernels, buffers: &[DeviceBuffer]) -> Array {
    buffers[2].poison().unwrap();
    device.load(kernels).unwrap().launch(&buffers.iter().collect::<Vec<_>>()).unwrap();
    buffers[2].download().unwrap()
}

/// A program by the runtime and by its launcher: launched, recorded in a graph, and with workspace of the stream.
fn same_bits(device: &Device, name: &'static str, kernels: &Kernels) {
    let buffers = buffers(device, kernels);
    let output = &buffers[2];
    let wanted = launched(device, kernels, &buffers);
    let launcher = Launcher::new(name, &[unit(kernels)]).unwrap();
    let variant = launcher.find(&shapes(kernels)).unwrap();
    let workspace = device.alloc(DType::U8, &[launcher.workspace_bytes(variant).max(1)]).unwrap();
    let workspace_at = if kernels.workspace.is_empty() { 0 } else { workspace.address() };
    let at = [buffers[0].address(), buffers[1].address(), output.address(), workspace_at];
    let program = device.load_without_workspace(kernels).unwrap();
    let ways: [(&str, &dyn Fn()); 4] = [
        ("launched", &|| launcher.launch(variant, device, at).unwrap()),
        ("in a graph", &|| {
            let graph = device.capture(|| {
                launcher.launch(variant, device, at).unwrap();
                Ok(())
            });
            graph.unwrap().launch().unwrap();
        }),
        ("with workspace of the stream", &|| launcher.launch_ordered(variant, device, [at[0], at[1], at[2]]).unwrap()),
        ("by the runtime with workspace of the stream", &|| {
            program.launch_with(&buffers.iter().collect::<Vec<_>>(), Workspace::StreamOrdered).unwrap();
        }),
    ];
    for (way, launch) in ways {
        output.poison().unwrap();
        launch();
        assert_eq!(output.download().unwrap(), wanted, "{name} {way}");
    }
}

/// A launch at a value of a dynamic size has the grid, the tensor maps and the parameters of the runtime's launch at this value.
#[test]
fn sizes_decide_grids_and_tensor_maps() {
    alone("", |mock| {
        let all = [rows("1..=64", "sm_80"), rows("65..=256", "sm_90a"), rows("100", "sm_90a")];
        assert!(all[..2].iter().all(|k| k.workspace.is_empty() && k.kernels.len() == 1));
        let device = Device::open(0).unwrap();
        let launcher = Launcher::new("gemm", &all.each_ref().map(unit)).unwrap();
        let lines = |mock: &Mock, name: &str| -> Vec<String> {
            mock.journal().into_iter().filter(|line| line.starts_with(name)).collect()
        };
        let mut grids = Vec::new();
        for m in [1, 17, 64, 65, 100, 129, 256] {
            let own = &all[match m {
                100 => 2,
                65.. => 1,
                _ => 0,
            }];
            let fixed = if own.sizes.is_empty() { own.clone() } else { own.at(&[m]).unwrap() };
            let buffers = buffers(&device, &fixed);
            let (at, shapes) = ([0, 1, 2].map(|n: usize| buffers[n].address()), shapes(&fixed));
            let program = device.load(own).unwrap();
            mock.journal();
            program.launch(&buffers.iter().collect::<Vec<_>>()).unwrap();
            let journal = mock.journal();
            let wanted = |name: &str| journal.iter().filter(|l| l.starts_with(name)).cloned().collect::<Vec<_>>();
            let (launched, maps) = (wanted("cuLaunchKernel"), wanted("cuTensorMapEncodeTiled"));
            let variant = launcher.find(&shapes).unwrap();
            mock.journal();
            launcher.launch_sized(variant, &device, m, at).unwrap();
            let journal = mock.journal();
            let found = |name: &str| journal.iter().filter(|l| l.starts_with(name)).cloned().collect::<Vec<_>>();
            assert_eq!(found("cuLaunchKernel"), launched, "M = {m}");
            let encoded = found("cuTensorMapEncodeTiled");
            assert!(encoded.iter().all(|map| maps.contains(map)), "M = {m}: {encoded:?} {maps:?}");
            let extent = format!("[64, {m}]");
            assert_eq!(maps.is_empty(), encoded.iter().all(|map| !map.contains(&extent)), "M = {m}: {encoded:?}");
            // What is kept is of the same addresses and the same size.
            launcher.dispatch(&shapes, &device, at).unwrap();
            let again = mock.journal();
            assert!(
                again.iter().all(|line| !line.starts_with("cuTensorMap") && !line.starts_with("cuModule")),
                "{again:?}"
            );
            assert_eq!(again.iter().filter(|l| l.starts_with("cuLaunchKernel")).cloned().collect::<Vec<_>>(), launched);
            grids.push(launched[0].split(" block ").next().unwrap_or_default().to_string());
            device.synchronize().unwrap();
        }
        grids.dedup();
        assert!(grids.len() > 3, "{grids:?}");
        assert_eq!(lines(mock, "cuModuleLoadData"), [""; 0]);
        let few = launcher.find(&[10, 64, 64, 64, 10, 64]).unwrap();
        for m in [0, -1, 65] {
            let (code, text) = launcher.launch_sized(few, &device, m, [256; 3]).unwrap_err();
            assert!(
                code == SIZE && text.contains("a size has a value that these kernels do not take"),
                "{code} {text}"
            );
        }
        for wrong in
            [[257, 64, 64, 64, 257, 64], [10, 64, 64, 64, 11, 64], [10, 65, 64, 64, 10, 64], [0, 64, 64, 64, 0, 64]]
        {
            let (code, text) = launcher.find(&wrong).unwrap_err();
            assert!(code == SHAPE && text.contains("a [1..=64, 64]"), "{code} {text}");
            assert_eq!(launcher.dispatch(&wrong, &device, [256; 3]).unwrap_err().0, SHAPE);
        }
    });
}

/// Of kernels that do nothing here, what is asked of the driver alone.
#[test]
fn limits_are_raised_as_the_runtime_raises_them() {
    alone("", |mock| {
        let device = Device::open(0).unwrap();
        for (name, cluster, shared) in [("plain", 1, 48 << 10), ("large", 1, 200 << 10), ("many", 16, 1 << 10)] {
            let mut kernels = driver::programs::add();
            let kernel = &mut kernels.kernels[0];
            (kernel.grid, kernel.cluster, kernel.shared_bytes) = ([2560, 1, 1], [cluster, 1, 1], shared);
            (kernel.persistent, kernel.early) = (true, true);
            let buffers = buffers(&device, &kernels);
            mock.journal();
            device.load(&kernels).unwrap().launch(&buffers.iter().collect::<Vec<_>>()).unwrap();
            let calls = asked(mock);
            let launcher = Launcher::new(name, &[unit(&kernels)]).unwrap();
            let at = |n: usize| buffers[n].address();
            launcher.launch(launcher.find(&shapes(&kernels)).unwrap(), &device, [at(0), at(1), at(2), 0]).unwrap();
            assert_eq!(asked(mock), calls, "{name}");
            let raised = calls.iter().filter(|line| line.starts_with("cuFuncSetAttribute")).count();
            assert_eq!(raised, usize::from(name != "plain"), "{calls:?}");
            device.synchronize().unwrap();
        }
    });
}

/// The numbers that the header gives to errors.
const SHAPE: i32 = -1;
const CHIP: i32 = -2;
const ALIGN: i32 = -3;
const WORKSPACE: i32 = -4;
const DRIVER: i32 = -6;
const NULL: i32 = -8;
const POOLS: i32 = -9;
const SIZE: i32 = -10;

#[test]
fn kernels_are_chosen_by_chip_and_by_shapes() {
    alone("", |mock| {
        let mut units = [add(1024, "sm_70"), add(1024, "sm_80"), add(1024, "sm_90a"), add(4096, "sm_90")];
        interpret::programs(mock, &units);
        let code = [b"\x7fELF", units[1].ptx().as_bytes(), b"\0"].concat();
        units[1].cubin = Some(Cubin::new("sm_80", "no assembler", code.clone()));
        let mut listed = units.each_ref().map(unit);
        listed[1].cubin = Some("kernels.cubin");
        for (capability, small, large) in [
            ("7.5", Some(0), None),
            ("8.0", Some(1), None),
            ("8.6", Some(1), None),
            ("9.0", Some(2), Some(3)),
            ("10.0", Some(1), Some(3)),
        ] {
            mock.configure(&format!("capability {capability}"));
            let device = Device::open(0).unwrap();
            let launcher = Launcher::new("vec_add", &listed).unwrap();
            for (shape, chosen) in [(1024, small), (4096, large)] {
                mock.journal();
                let found = launcher.find(&[shape; 3]);
                let Some(chosen) = chosen else {
                    let text = "vec_add: there are no kernels for this device, or none of these shapes; there are kernels for \
                                sm_90a, sm_80, sm_70, sm_90";
                    assert_eq!(found.unwrap_err(), (CHIP, text.to_string()));
                    continue;
                };
                let bytes =
                    if ["8.0", "8.6"].contains(&capability) { code.len() - 1 } else { units[chosen].ptx().len() };
                assert_eq!(mock.calls("cuModuleLoadData"), [format!("cuModuleLoadData {bytes} bytes -> 0")]);
                let (variant, buffers) = (found.unwrap(), buffers(&device, &units[chosen]));
                let at = |n: usize| buffers[n].address();
                launcher.launch(variant, &device, [at(0), at(1), at(2), 0]).unwrap();
                let [a, b, c] = [0, 1, 2].map(|n| buffers[n].download().unwrap());
                assert!((0..shape as usize).all(|i| c.get(i) == a.get(i) + b.get(i)));
                // The module is loaded once.
                mock.journal();
                assert_eq!(launcher.find(&[shape; 3]).unwrap(), variant);
                assert_eq!(mock.journal(), [""; 0]);
            }
        }
        mock.configure("capability 6.1");
        let _device = Device::open(0).unwrap();
        assert_eq!(Launcher::new("vec_add", &listed).map(drop).unwrap_err().0, CHIP);
    });
}

#[test]
fn the_launcher_in_c_says_what_is_wrong() {
    alone("", |mock| {
        let split = Gemm::new(64, 64, 1024).of(DType::F16);
        let split = warploom::gemm::recommend(&split, &Target::parse("sm_80").unwrap()).unwrap();
        let (adds, split) = ([add(1024, "sm_80"), add(4096, "sm_80")], compile(&split).unwrap());
        let device = Device::open(0).unwrap();
        let launcher = Launcher::new("vec_add", &adds.each_ref().map(unit)).unwrap();
        let text = "vec_add: there are no kernels for these shapes; there are kernels for a [1024], b [1024], c [1024]; or a [4096], \
                    b [4096], c [4096]";
        assert_eq!(launcher.find(&[1024, 1024, 4096]).unwrap_err(), (SHAPE, text.to_string()));
        mock.configure("fail cuModuleLoadData 1 2");
        assert_eq!(launcher.find(&[1024; 3]).unwrap_err(), (2, "CUDA_ERROR_OUT_OF_MEMORY".to_string()));
        // A module whose kernels cannot be prepared is given back.
        mock.configure("fail cuModuleGetFunction 1 500");
        assert_eq!(launcher.find(&[1024; 3]).unwrap_err(), (500, "CUDA_ERROR_NOT_FOUND".to_string()));
        assert!(mock.live().contains("modules 0"), "{}", mock.live());
        let variant = launcher.find(&[1024; 3]).unwrap();
        let buffer = device.alloc(DType::F32, &[4096]).unwrap();
        let at = buffer.address();
        assert_eq!(launcher.launch(variant, &device, [at, at + 4, at, 0]).unwrap_err().0, ALIGN);
        assert_eq!(launcher.launch(std::ptr::null_mut(), &device, [at; 4]).unwrap_err().0, NULL);
        mock.configure("fail cuLaunchKernel 1 701");
        let refused = launcher.launch(variant, &device, [at, at, at, 0]).unwrap_err();
        assert_eq!(refused, (701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES".to_string()));
        assert_eq!(launcher.answer(4321).unwrap_err().1, "vec_add: a code that the driver has no name for");

        let launcher = Launcher::new("split", &[unit(&split)]).unwrap();
        let variant = launcher.find(&shapes(&split)).unwrap();
        for workspace in [0, at + 16] {
            assert_eq!(launcher.launch(variant, &device, [at, at, at, workspace]).unwrap_err().0, WORKSPACE);
        }
        // What is wrong with a launch is not left allocated.
        let live = mock.live();
        assert_eq!(launcher.launch_ordered(variant, &device, [at, at + 4, at]).unwrap_err().0, ALIGN);
        device.synchronize().unwrap();
        assert_eq!(mock.live(), live);
        mock.configure("attribute 115 0");
        let text = "split: the device or its driver has no memory pools, in which a stream allocates: launch with workspace of your own";
        assert_eq!(launcher.launch_ordered(variant, &device, [at; 3]).unwrap_err(), (POOLS, text.to_string()));
        mock.configure("fail cuMemAllocAsync 1 2");
        assert_eq!(launcher.launch_ordered(variant, &device, [at; 3]).unwrap_err().0, 2);
    });
}

#[test]
fn an_old_driver_runs_what_it_can() {
    aged(Age::Cuda11_7, |mock| {
        let device = Device::open(0).unwrap();
        let mut early = add(1024, "sm_80");
        early.kernels[0].early = true;
        let mut clusters = early.clone();
        clusters.kernels[0].cluster = [2, 1, 1];
        let launcher = Launcher::new("early", &[unit(&early)]).unwrap();
        let variant = launcher.find(&shapes(&early)).unwrap();
        let buffers = buffers(&device, &early);
        launcher
            .launch(variant, &device, [buffers[0].address(), buffers[1].address(), buffers[2].address(), 0])
            .unwrap();
        assert_eq!(mock.calls("cuLaunchKernel").len(), 1);
        device.synchronize().unwrap();
        let launcher = Launcher::new("clusters", &[unit(&clusters)]).unwrap();
        assert_eq!(launcher.find(&shapes(&clusters)).unwrap_err().0, DRIVER);
    });
}
