// split: launches compiled kernels through the runtime of the crate warploom.
//
// Written by warploom 0.1.0; write it again instead of editing it.
//
// Computes: the program `gemm`.
// Arguments, in order, each an address in device memory:
//   a: f32 (IEEE binary32), read
//   b: f32 (IEEE binary32), read
//   c: f32 (IEEE binary32), written
// A written argument must not overlap another one.
//
// Shapes, with strides in elements and the alignment of the address in bytes, and the chips that have kernels for them:
// - a [64, 64], strides [64, 1], at a multiple of 16, 16384 bytes
//   b [64, 64], strides [64, 1], at a multiple of 16, 16384 bytes
//   c [64, 64], strides [64, 1], at a multiple of 16, 16384 bytes
//     sm_90: split_sm_90.ptx, 32768 bytes of workspace
//       gemm_0: grid 1 x 1 x 2, block 128 x 1 x 1, 8448 bytes of shared memory
//       gemm_1: grid 8 x 1 x 1, block 128 x 1 x 1
//
// How to use it: put this file beside the files that it includes, and name it in a crate:
// `mod split { include!("split_warploom.rs"); }`. The crate needs no LLVM to build; where CUDA is not
// installed, CUDA_LIBRARY_PATH names a folder with an empty lib64/libcuda.so, as `warploom new` writes it:
// `warploom = { version = "0.1.0", default-features = false, features = ["runtime"] }`.
//
//     let kernels = split::Kernels::load(&device)?;
//     let variant = kernels.variant(&split::SHAPES[0])?;
//     variant.launch(&a, &b, &c)?;

use std::fmt;
use std::sync::OnceLock;
use warploom::DType;
use warploom::kernel;
use warploom::runtime::{Device, DeviceBuffer, Program, RawStream, Workspace};

/// The shapes of the arguments, outermost dimension first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shapes {
    /// Of the argument `A`.
    pub a: [i64; 2],
    /// Of the argument `B`.
    pub b: [i64; 2],
    /// Of the argument `C`.
    pub c: [i64; 2],
}

/// The shapes that there are kernels for, on one chip or another.
#[allow(dead_code)]
pub const SHAPES: [Shapes; 1] = [
    Shapes { a: [64, 64], b: [64, 64], c: [64, 64] },
];

/// The values of each dynamic size for each of [`SHAPES`]: the least, the largest, and what each is a multiple of. A dynamic extent of
/// [`SHAPES`] has the largest.
#[allow(dead_code)]
pub const RANGES: [[[i64; 3]; 0]; SHAPES.len()] = [
    [],
];

/// What errors say that there is.
const KNOWN_SHAPES: &str = "a [64, 64], b [64, 64], c [64, 64]";
const KNOWN_CHIPS: &str = "sm_90";

/// Why kernels cannot be loaded or launched.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// There are no kernels for these shapes.
    Shape(Box<Shapes>),
    /// There are no kernels for a device of this compute capability times ten, or none of the shapes.
    Chip(u32),
    /// What the runtime answers: a wrong argument, or an error of the driver with its name.
    Runtime(Box<warploom::Error>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Shape(shapes) => {
                write!(f, "split: there are no kernels for {shapes:?}; there are kernels for {KNOWN_SHAPES}")
            }
            Error::Chip(chip) => {
                write!(f, "split: there are no kernels for sm_{chip}, or none of these shapes; there are kernels for {KNOWN_CHIPS}")
            }
            Error::Runtime(error) => write!(f, "split: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<warploom::Error> for Error {
    fn from(error: warploom::Error) -> Error {
        Error::Runtime(Box::new(error))
    }
}

/// The kernels of this file for a device.
pub struct Kernels {
    device: Device,
    /// Whether the runtime allocates the workspace of each program.
    allocates: bool,
    slots: [Slot; SHAPES.len()],
}

/// The kernels of one of [`SHAPES`].
#[derive(Default)]
struct Slot {
    /// None where no unit of these shapes runs on the device.
    unit: Option<&'static Unit>,
    loaded: OnceLock<Variant>,
}

/// The kernels for one set of shapes, loaded, with the workspace that the runtime has allocated, if any.
pub struct Variant {
    program: Program,
}

impl Kernels {
    /// Chooses kernels for a device.
    ///
    /// # Errors
    /// [`Error::Chip`] where no kernels are for the device.
    #[allow(dead_code)]
    pub fn load(device: &Device) -> Result<Kernels, Error> {
        Kernels::choose(device, true)
    }

    /// As [`Kernels::load`], without allocating workspace: [`Variant::launch_with`] and the functions after it take it from the caller or
    /// from the stream, and [`Variant::launch`] is an error.
    ///
    /// # Errors
    /// As [`Kernels::load`].
    #[allow(dead_code)]
    pub fn load_without_workspace(device: &Device) -> Result<Kernels, Error> {
        Kernels::choose(device, false)
    }

    fn choose(device: &Device, allocates: bool) -> Result<Kernels, Error> {
        let chip = device.info().sm();
        let mut slots: [Slot; SHAPES.len()] = std::array::from_fn(|_| Slot::default());
        // Units of one shape follow one another, the best one first.
        for unit in UNITS.iter().rev().filter(|unit| unit.chips.0 <= chip && chip <= unit.chips.1) {
            slots[unit.shape].unit = Some(unit);
        }
        if slots.iter().all(|slot| slot.unit.is_none()) {
            return Err(Error::Chip(chip));
        }
        Ok(Kernels { device: device.clone(), allocates, slots })
    }

    /// The kernels for these shapes. Their module is loaded and their workspace allocated at the first call for them.
    ///
    /// # Errors
    /// [`Error::Shape`] where there are no such kernels, [`Error::Chip`] where there are none for the device; what the driver answers.
    #[allow(dead_code)]
    pub fn variant(&self, shapes: &Shapes) -> Result<&Variant, Error> {
        let slot = (0..SHAPES.len()).find(|at| takes(*at, shapes)).map(|at| &self.slots[at]);
        let slot = slot.ok_or_else(|| Error::Shape(Box::new(*shapes)))?;
        let unit = slot.unit.ok_or_else(|| Error::Chip(self.device.info().sm()))?;
        if let Some(loaded) = slot.loaded.get() {
            return Ok(loaded);
        }
        let kernels = (unit.kernels)();
        let program = if self.allocates {
            self.device.load(&kernels)?
        } else {
            self.device.load_without_workspace(&kernels)?
        };
        let loaded = Variant { program };
        // A thread that was faster has loaded the same.
        Ok(slot.loaded.get_or_init(|| loaded))
    }

    /// [`Kernels::variant`] for these shapes, launched by [`Variant::launch`].
    ///
    /// # Errors
    /// As both.
    #[allow(dead_code, clippy::too_many_arguments)]
    pub fn dispatch(&self, shapes: &Shapes, a: &DeviceBuffer, b: &DeviceBuffer, c: &DeviceBuffer) -> Result<(), Error> {
        self.variant(shapes)?.launch(a, b, c)
    }
}

/// Whether the kernels of `SHAPES[at]` take these shapes.
fn takes(at: usize, given: &Shapes) -> bool {
    let sizes: [i64; 0] = [];
    let known = SHAPES[at];
    let fits = |(value, [low, high, by]): (&i64, &[i64; 3])| low <= value && value <= high && value % by == 0;
    known == *given && sizes.iter().zip(&RANGES[at]).all(fits)
}

impl Variant {
    /// The loaded program.
    #[allow(dead_code)]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Bytes of device memory that a launch needs besides its arguments, at a multiple of 256 bytes; 0 if it needs none.
    #[allow(dead_code)]
    pub fn workspace_bytes(&self) -> usize {
        self.program.workspace_total()
    }

    /// Checks the arguments, and puts the kernels on the device's stream. A launch allocates no device memory and waits for nothing.
    ///
    /// # Errors
    /// Arguments of other types, shapes or devices, or that overlap; what the driver answers.
    #[allow(dead_code, clippy::too_many_arguments)]
    pub fn launch(&self, a: &DeviceBuffer, b: &DeviceBuffer, c: &DeviceBuffer) -> Result<(), Error> {
        Ok(self.program.launch(&[a, b, c])?)
    }

    /// As [`Variant::launch`], for a stream of the caller's and addresses in device memory, of which only the alignment is checked.
    ///
    /// # Errors
    /// Addresses that are not aligned; what the driver answers.
    ///
    /// # Safety
    /// As `warploom::runtime::Program::launch_raw`: the stream is one of the device's context, each address is one of device memory that
    /// has as many bytes as the comment at the head of this file says, and no other launch of this variant runs at the same time if it
    /// has workspace.
    #[allow(dead_code, clippy::too_many_arguments)]
    pub unsafe fn launch_raw(&self, stream: RawStream, a: u64, b: u64, c: u64) -> Result<(), Error> {
        // SAFETY: the caller vouches for the stream and the addresses.
        Ok(unsafe { self.program.launch_raw(stream, &[a, b, c]) }?)
    }

    /// As [`Variant::launch`], with the workspace where the caller says: of the program, a buffer of [`Variant::workspace_bytes`] bytes, or
    /// allocated and freed in the stream.
    ///
    /// # Errors
    /// As [`Variant::launch`]; a buffer that is too small, on another device, or overlaps an argument; a device without memory pools.
    #[allow(dead_code, clippy::too_many_arguments)]
    pub fn launch_with(&self, a: &DeviceBuffer, b: &DeviceBuffer, c: &DeviceBuffer, workspace: Workspace<'_>) -> Result<(), Error> {
        Ok(self.program.launch_with(&[a, b, c], workspace)?)
    }

    /// As [`Variant::launch_raw`], with workspace at an address of the caller's. Launches with different workspace may run at the same time.
    ///
    /// # Errors
    /// As [`Variant::launch_raw`]; workspace that is not aligned.
    ///
    /// # Safety
    /// As [`Variant::launch_raw`]; the address is one of [`Variant::workspace_bytes`] bytes that nothing else uses until the work is done.
    #[allow(dead_code, clippy::too_many_arguments)]
    pub unsafe fn launch_raw_with(&self, stream: RawStream, a: u64, b: u64, c: u64, workspace: u64) -> Result<(), Error> {
        let workspace = self.program.workspace_at(workspace);
        // SAFETY: the caller vouches for the stream and the addresses.
        Ok(unsafe { self.program.launch_raw_with(stream, &[a, b, c], &workspace) }?)
    }

    /// As [`Variant::launch_raw`], with workspace that the launch allocates and frees in the stream.
    ///
    /// # Errors
    /// As [`Variant::launch_raw`]; a device without memory pools.
    ///
    /// # Safety
    /// As [`Variant::launch_raw`], but for the workspace.
    #[allow(dead_code, clippy::too_many_arguments)]
    pub unsafe fn launch_raw_ordered(&self, stream: RawStream, a: u64, b: u64, c: u64) -> Result<(), Error> {
        // SAFETY: the caller vouches for the stream and the addresses.
        Ok(unsafe { self.program.launch_raw_ordered(stream, &[a, b, c]) }?)
    }
}

/// A program for one set of shapes and the chips that run it.
struct Unit {
    /// Its place in [`SHAPES`].
    shape: usize,
    /// The first and the last device that runs it: 90 for compute capability 9.0.
    chips: (u32, u32),
    kernels: fn() -> kernel::Kernels,
}

static UNITS: &[Unit] = &[
    Unit { shape: 0, chips: (90, 9999), kernels: unit_0 },
];

/// The program `gemm` for sm_90.
fn unit_0() -> kernel::Kernels {
    let parameters_0 = vec![
        kernel::Param::Arg(0),
        kernel::Param::Arg(1),
        kernel::Param::Workspace(0),
    ];
    let mut kernel_0 = kernel::Kernel::new("gemm_0", parameters_0, [1, 1, 2], [128, 1, 1]);
    kernel_0.shared_bytes = 8448;
    let parameters_1 = vec![
        kernel::Param::Arg(2),
        kernel::Param::Workspace(0),
    ];
    let kernel_1 = kernel::Kernel::new("gemm_1", parameters_1, [8, 1, 1], [128, 1, 1]);
    let mut made = kernel::Kernels::new(
        "gemm",
        "sm_90",
        78,
        include_str!("split_sm_90.ptx"),
        vec![kernel_0, kernel_1],
    );
    made.args.push(kernel::Arg::new("A", DType::F32, &[64, 64], kernel::Access::Read));
    made.args.push(kernel::Arg::new("B", DType::F32, &[64, 64], kernel::Access::Read));
    made.args.push(kernel::Arg::new("C", DType::F32, &[64, 64], kernel::Access::Write));
    made.workspace.push(kernel::Workspace::new("P", 32768));
    made
}
