// gemm: launches compiled kernels through the runtime of the crate warploom.
//
// Written by warploom 0.1.0; write it again instead of editing it.
//
// Computes: the program `gemm`.
// Arguments, in order, each an address in device memory:
//   a: f16 (IEEE binary16), read
//   b: f16 (IEEE binary16), read
//   c: f16 (IEEE binary16), written
// A written argument must not overlap another one.
//
// Shapes, with strides in elements and the alignment of the address in bytes, and the chips that have kernels for them:
// - a [256, 64], strides [64, 1], at a multiple of 16, 32768 bytes
//   b [256, 64], strides [64, 1], at a multiple of 16, 32768 bytes
//   c [256, 256], strides [256, 1], at a multiple of 16, 131072 bytes
//     sm_90a: gemm_sm_90a.ptx
//       gemm: grid 2 x 1 x 1, block 384 x 1 x 1, clusters of 2 x 1 x 1, 229408 bytes of shared memory
// - a [128, 64], strides [64, 1], at a multiple of 16, 16384 bytes
//   b [128, 64], strides [64, 1], at a multiple of 16, 16384 bytes
//   c [128, 128], strides [128, 1], at a multiple of 16, 32768 bytes
//     sm_80: gemm_sm_80.ptx
//       gemm: grid 1 x 1 x 1, block 256 x 1 x 1, 20464 bytes of shared memory
//
// How to use it: put this file beside the files that it includes, and name it in a crate:
// `mod gemm { include!("gemm_warploom.rs"); }`. The crate needs no LLVM to build; where CUDA is not
// installed, CUDA_LIBRARY_PATH names a folder with an empty lib64/libcuda.so, as `warploom new` writes it:
// `warploom = { version = "0.1.0", default-features = false, features = ["runtime"] }`.
//
//     let kernels = gemm::Kernels::load(&device)?;
//     let variant = kernels.variant(&gemm::SHAPES[0])?;
//     variant.launch(&a, &b, &c)?;

use std::fmt;
use std::sync::OnceLock;
use warploom::DType;
use warploom::kernel;
use warploom::runtime::{Device, DeviceBuffer, Program, RawStream};

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
pub const SHAPES: [Shapes; 2] = [
    Shapes { a: [256, 64], b: [256, 64], c: [256, 256] },
    Shapes { a: [128, 64], b: [128, 64], c: [128, 128] },
];

/// The values of each dynamic size for each of [`SHAPES`]: the least, the largest, and what each is a multiple of. A dynamic extent of
/// [`SHAPES`] has the largest.
#[allow(dead_code)]
pub const RANGES: [[[i64; 3]; 0]; SHAPES.len()] = [
    [],
    [],
];

/// What errors say that there is.
const KNOWN_SHAPES: &str = "a [256, 64], b [256, 64], c [256, 256]; or a [128, 64], b [128, 64], c [128, 128]";
const KNOWN_CHIPS: &str = "sm_90a, sm_80";

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
                write!(f, "gemm: there are no kernels for {shapes:?}; there are kernels for {KNOWN_SHAPES}")
            }
            Error::Chip(chip) => {
                write!(f, "gemm: there are no kernels for sm_{chip}, or none of these shapes; there are kernels for {KNOWN_CHIPS}")
            }
            Error::Runtime(error) => write!(f, "gemm: {error}"),
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
    slots: [Slot; SHAPES.len()],
}

/// The kernels of one of [`SHAPES`].
#[derive(Default)]
struct Slot {
    /// None where no unit of these shapes runs on the device.
    unit: Option<&'static Unit>,
    loaded: OnceLock<Variant>,
}

/// The kernels for one set of shapes, loaded.
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
        let chip = device.info().sm();
        let mut slots: [Slot; SHAPES.len()] = std::array::from_fn(|_| Slot::default());
        // Units of one shape follow one another, the best one first.
        for unit in UNITS.iter().rev().filter(|unit| unit.chips.0 <= chip && chip <= unit.chips.1) {
            slots[unit.shape].unit = Some(unit);
        }
        if slots.iter().all(|slot| slot.unit.is_none()) {
            return Err(Error::Chip(chip));
        }
        Ok(Kernels { device: device.clone(), slots })
    }

    /// The kernels for these shapes. Their module is loaded at the first call for them.
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
        let program = self.device.load(&kernels)?;
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
    Unit { shape: 0, chips: (90, 90), kernels: unit_0 },
    Unit { shape: 1, chips: (80, 9999), kernels: unit_1 },
];

/// The program `gemm` for sm_90a.
fn unit_0() -> kernel::Kernels {
    let parameters_0 = vec![
        kernel::Param::Arg(0),
        kernel::Param::Arg(1),
        kernel::Param::Arg(2),
        kernel::Param::TensorMap(kernel::TensorMap::new(
            kernel::Param::Arg(0),
            DType::F16,
            [&[256, 64], &[64, 1], &[128, 64]],
            128,
            128,
        )),
        kernel::Param::TensorMap(kernel::TensorMap::new(
            kernel::Param::Arg(1),
            DType::F16,
            [&[256, 64], &[64, 1], &[128, 64]],
            128,
            128,
        )),
        kernel::Param::TensorMap(kernel::TensorMap::new(
            kernel::Param::Arg(2),
            DType::F16,
            [&[256, 256], &[256, 1], &[64, 64]],
            128,
            128,
        )),
    ];
    let mut kernel_0 = kernel::Kernel::new("gemm", parameters_0, [2, 1, 1], [384, 1, 1]);
    kernel_0.cluster = [2, 1, 1];
    kernel_0.shared_bytes = 229408;
    let mut made = kernel::Kernels::new(
        "gemm",
        "sm_90a",
        80,
        include_str!("gemm_sm_90a.ptx"),
        vec![kernel_0],
    );
    made.args.push(kernel::Arg::new("A", DType::F16, &[256, 64], kernel::Access::Read));
    made.args.push(kernel::Arg::new("B", DType::F16, &[256, 64], kernel::Access::Read));
    made.args.push(kernel::Arg::new("C", DType::F16, &[256, 256], kernel::Access::Write));
    made
}

/// The program `gemm` for sm_80.
fn unit_1() -> kernel::Kernels {
    let parameters_0 = vec![
        kernel::Param::Arg(0),
        kernel::Param::Arg(1),
        kernel::Param::Arg(2),
    ];
    let mut kernel_0 = kernel::Kernel::new("gemm", parameters_0, [1, 1, 1], [256, 1, 1]);
    kernel_0.shared_bytes = 20464;
    let mut made = kernel::Kernels::new(
        "gemm",
        "sm_80",
        70,
        include_str!("gemm_sm_80.ptx"),
        vec![kernel_0],
    );
    made.args.push(kernel::Arg::new("A", DType::F16, &[128, 64], kernel::Access::Read));
    made.args.push(kernel::Arg::new("B", DType::F16, &[128, 64], kernel::Access::Read));
    made.args.push(kernel::Arg::new("C", DType::F16, &[128, 128], kernel::Access::Write));
    made
}
