// gemm: launches compiled kernels through the crate cudarc.
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
// `mod gemm { include!("gemm_cudarc.rs"); }`. The crate depends on cudarc 0.19 with its features `driver` and `cuda-12000` or
// later, its feature `f16`, and half 2.
//
//     let kernels = gemm::Kernels::load(&context)?;
//     let variant = kernels.variant(&gemm::SHAPES[0])?;
//     variant.launch(&stream, &a, &b, &mut c)?;

use cudarc::driver::{CudaContext, CudaStream, DriverError, sys};
use std::ffi::{CStr, c_uint, c_void};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

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
pub const RANGES: [[[i64; 3]; SIZES.len()]; SHAPES.len()] = [
    [],
    [],
];

/// The names of the dynamic sizes.
const SIZES: [&str; 0] = [];

/// What errors say that there is.
const KNOWN_SHAPES: &str = "a [256, 64], b [256, 64], c [256, 256]; or a [128, 64], b [128, 64], c [128, 128]";
const KNOWN_CHIPS: &str = "sm_90a, sm_80";

/// Why kernels cannot be loaded or launched.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// There are no kernels for these shapes.
    Shape(Box<Shapes>),
    /// There are no kernels for a device of this compute capability times ten, or none of the shapes.
    Chip(u32),
    /// The address of an argument is not a multiple of so many bytes.
    Align {
        /// The argument's name.
        argument: &'static str,
        /// Its address.
        address: u64,
        /// What the address has to be a multiple of.
        align: u64,
    },
    /// An argument has fewer bytes than the kernels access.
    Size {
        /// The argument's name.
        argument: &'static str,
        /// Its bytes.
        given: u64,
        /// The bytes that the kernels access.
        needed: u64,
    },
    /// A dynamic size has a value that the kernels do not take.
    Value {
        /// The size's name.
        size: &'static str,
        /// Its value.
        given: i64,
        /// The least and the largest value, and what each is a multiple of.
        range: [i64; 3],
    },
    /// The workspace is missing, too small, or not at a multiple of 256 bytes.
    Workspace {
        /// The bytes that a launch needs.
        needed: u64,
    },
    /// The stream or a buffer is one of another context than the kernels.
    Context,
    /// Not one block or cluster of a persistent kernel fits on the device.
    Fit(&'static str),
    /// The driver is for a CUDA version (12040 is 12.4) before the one that the kernels need.
    OldDriver {
        /// The driver's version.
        given: i32,
        /// The version that the kernels need.
        needed: i32,
    },
    /// What the driver answers.
    Driver {
        /// What it was asked for.
        doing: &'static str,
        /// Its answer.
        error: DriverError,
    },
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
            Error::Align { argument, address, align } => {
                write!(f, "gemm: argument {argument} is at {address:#x}, which is not a multiple of {align}")
            }
            Error::Size { argument, given, needed } => {
                write!(f, "gemm: argument {argument} has {given} bytes, and the kernels access {needed}")
            }
            Error::Value { size, given, range: [low, high, by] } => {
                write!(f, "gemm: size {size} is {given}, and these kernels take multiples of {by} from {low} to {high}")
            }
            Error::Workspace { needed } => {
                write!(f, "gemm: a launch needs {needed} bytes of workspace at a multiple of 256 bytes")
            }
            Error::Context => write!(f, "gemm: the stream or a buffer is one of another context than the kernels"),
            Error::Fit(entry) => write!(f, "gemm: not one block or cluster of the kernel {entry} fits on the device"),
            Error::OldDriver { given, needed } => {
                write!(f, "gemm: the kernels need a driver for CUDA {needed}, and this one is for {given} (12040 is 12.4)")
            }
            Error::Driver { doing, error } => match error.error_name() {
                Ok(name) => write!(f, "gemm: {doing}: {}", name.to_string_lossy()),
                Err(_) => write!(f, "gemm: {doing}: {:?}", error.0),
            },
        }
    }
}

impl std::error::Error for Error {}

/// The kernels of this file for the device of a context.
pub struct Kernels {
    context: Arc<CudaContext>,
    /// 90 for compute capability 9.0.
    chip: u32,
    multiprocessors: u32,
    /// The CUDA version of the driver.
    driver: i32,
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
    context: Arc<CudaContext>,
    unit: &'static Unit,
    module: sys::CUmodule,
    kernels: Vec<Loaded>,
}

struct Loaded {
    kernel: &'static Kernel,
    function: sys::CUfunction,
    grid_x: u32,
    /// Whether it is launched with attributes.
    extended: bool,
    /// The tensor map of each parameter that is one, as it was encoded for the address and the size of the last launch.
    maps: Vec<Mutex<Option<(u64, u64, Value)>>>,
}

/// The value of a parameter: an address, or a tensor map of 128 bytes.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Value([u64; 16]);

// SAFETY: handles of the driver may be used on every thread on which their context is current; every call makes it current first.
unsafe impl Send for Variant {}
// SAFETY: as above; what launches change is behind a mutex.
unsafe impl Sync for Variant {}

impl Kernels {
    /// Chooses kernels for the device of a context.
    ///
    /// # Errors
    /// [`Error::Chip`] where no kernels are for the device; what the driver answers.
    #[allow(dead_code)]
    pub fn load(context: &Arc<CudaContext>) -> Result<Kernels, Error> {
        let doing = "asking for the device's attributes";
        let ask = |attribute| context.attribute(attribute).map(|value| value.unsigned_abs()).map_err(driver(doing));
        let chip = 10 * ask(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
            + ask(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let multiprocessors = ask(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let mut version = 0;
        // SAFETY: writes one int.
        unsafe { sys::cuDriverGetVersion(&mut version) }.result().map_err(driver("asking for the driver's version"))?;
        let mut slots: [Slot; SHAPES.len()] = std::array::from_fn(|_| Slot::default());
        // Units of one shape follow one another, the best one first.
        for unit in UNITS.iter().rev().filter(|unit| unit.chips.0 <= chip && chip <= unit.chips.1) {
            slots[unit.shape].unit = Some(unit);
        }
        if slots.iter().all(|slot| slot.unit.is_none()) {
            return Err(Error::Chip(chip));
        }
        Ok(Kernels { context: context.clone(), chip, multiprocessors, driver: version, slots })
    }

    /// The kernels for these shapes. Their module is loaded at the first call for them.
    ///
    /// # Errors
    /// [`Error::Shape`] where there are no such kernels, [`Error::Chip`] where there are none for the device; what the driver answers.
    #[allow(dead_code)]
    pub fn variant(&self, shapes: &Shapes) -> Result<&Variant, Error> {
        let slot = (0..SHAPES.len()).find(|at| sizes_of(*at, shapes).is_some()).map(|at| &self.slots[at]);
        let slot = slot.ok_or_else(|| Error::Shape(Box::new(*shapes)))?;
        let unit = slot.unit.ok_or(Error::Chip(self.chip))?;
        if let Some(loaded) = slot.loaded.get() {
            return Ok(loaded);
        }
        let loaded = self.load_unit(unit)?;
        // A thread that was faster has loaded the same.
        Ok(slot.loaded.get_or_init(|| loaded))
    }

    /// [`Kernels::variant`] for these shapes, launched by [`Variant::launch`] at the dynamic sizes that they have.
    ///
    /// # Errors
    /// As both.
    #[allow(dead_code, clippy::too_many_arguments)]
    pub fn dispatch(
        &self,
        shapes: &Shapes,
        stream: &CudaStream,
        a: &impl cudarc::driver::DevicePtr<half::f16>,
        b: &impl cudarc::driver::DevicePtr<half::f16>,
        c: &mut impl cudarc::driver::DevicePtrMut<half::f16>,
    ) -> Result<(), Error> {
        let variant = self.variant(shapes)?;
        let _ = sizes_of(variant.unit.shape, shapes).ok_or_else(|| Error::Shape(Box::new(*shapes)))?;
        variant.launch(stream, a, b, c)
    }

    fn load_unit(&self, unit: &'static Unit) -> Result<Variant, Error> {
        self.context.bind_to_thread().map_err(driver("making the context current"))?;
        let image: *const c_void = match unit.cubin {
            Some(((first, last), code)) if first <= self.chip && self.chip <= last => code.as_ptr().cast(),
            _ => unit.ptx.as_ptr().cast(),
        };
        let mut module = std::ptr::null_mut();
        // SAFETY: the image is machine code, or a text that ends with a zero.
        unsafe { sys::cuModuleLoadData(&mut module, image) }.result().map_err(driver("loading the module"))?;
        let mut variant = Variant { context: self.context.clone(), unit, module, kernels: Vec::new() };
        for kernel in unit.kernels {
            let loaded = self.load_kernel(module, kernel)?;
            variant.kernels.push(loaded);
        }
        Ok(variant)
    }

    fn load_kernel(&self, module: sys::CUmodule, kernel: &'static Kernel) -> Result<Loaded, Error> {
        use sys::CUfunction_attribute as Attribute;
        let clusters = kernel.cluster != [1; 3];
        let maps = kernel.parameters.iter().any(|parameter| matches!(parameter, Parameter::Map(_)));
        let needed = if maps { 12000 } else if clusters { 11080 } else { 0 };
        if self.driver < needed {
            return Err(Error::OldDriver { given: self.driver, needed });
        }
        let mut function = std::ptr::null_mut();
        // SAFETY: writes one handle; the module is loaded, and the name is a C string.
        unsafe { sys::cuModuleGetFunction(&mut function, module, kernel.entry.as_ptr()) }
            .result()
            .map_err(driver("looking up a kernel"))?;
        let set = |attribute, value| {
            // SAFETY: the function is the module's.
            unsafe { sys::cuFuncSetAttribute(function, attribute, value) }.result().map_err(driver("raising a kernel's limit"))
        };
        if kernel.shared_bytes > PLAIN_SHARED_BYTES {
            set(Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel.shared_bytes as i32)?;
        }
        if kernel.cluster.iter().product::<u32>() > PORTABLE_CLUSTER {
            set(Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)?;
        }
        let mut loaded = Loaded {
            kernel,
            function,
            grid_x: kernel.grid[0],
            // A driver that cannot launch dependent kernels early runs them one after the other.
            extended: clusters || kernel.dependent && self.driver >= 11080,
            maps: kernel.parameters.iter().map(|_| Mutex::default()).collect(),
        };
        if kernel.persistent {
            loaded.grid_x = kernel.grid[0].min(self.resident(&loaded)?);
        }
        Ok(loaded)
    }

    /// As many blocks in x of a persistent kernel as the device holds at once.
    fn resident(&self, loaded: &Loaded) -> Result<u32, Error> {
        let kernel = loaded.kernel;
        let mut count = 0;
        let (answer, each) = if kernel.cluster == [1; 3] {
            let threads = kernel.block.iter().product::<u32>() as i32;
            // SAFETY: writes one int; the function is loaded.
            let answer = unsafe {
                let shared = kernel.shared_bytes as usize;
                sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut count, loaded.function, threads, shared)
            };
            (answer, self.multiprocessors)
        } else {
            let (mut attributes, number) = attributes_of(kernel);
            let config = config_of(loaded, kernel.grid, std::ptr::null_mut(), &mut attributes[..number]);
            // SAFETY: writes one int; the attributes outlive the call.
            let answer = unsafe { sys::cuOccupancyMaxActiveClusters(&mut count, loaded.function, &config) };
            (answer, kernel.cluster[0])
        };
        answer.result().map_err(driver("asking for a kernel's occupancy"))?;
        match u32::try_from(count) {
            Ok(count) if count > 0 => Ok(count.saturating_mul(each)),
            _ => Err(Error::Fit(kernel.entry.to_str().unwrap_or_default())),
        }
    }
}

impl Variant {
    /// Bytes of device memory that a launch needs besides its arguments; 0 if it needs none. What they hold between launches does
    /// not matter. Two launches that may run at the same time need two.
    #[allow(dead_code)]
    pub fn workspace_bytes(&self) -> usize {
        self.unit.workspace_bytes
    }

    /// Puts the kernels on a stream. A launch allocates no device memory and waits for nothing. cudarc records events for its buffers, so
    /// a stream that is being captured takes [`Variant::launch_raw`], or this where event tracking is off.
    ///
    /// # Errors
    /// Arguments that are too small or not aligned, a stream or a buffer of another context; what the driver answers.
    #[allow(dead_code, clippy::too_many_arguments)]
    pub fn launch(
        &self,
        stream: &CudaStream,
        a: &impl cudarc::driver::DevicePtr<half::f16>,
        b: &impl cudarc::driver::DevicePtr<half::f16>,
        c: &mut impl cudarc::driver::DevicePtrMut<half::f16>,
    ) -> Result<(), Error> {
        let sizes = self.checked([])?;
        if stream.context().cu_ctx() != self.context.cu_ctx() {
            return Err(Error::Context);
        }
        let given = [
            (cudarc::driver::DeviceSlice::<half::f16>::num_bytes(a) as u64, cudarc::driver::DeviceSlice::<half::f16>::stream(a).context().cu_ctx()),
            (cudarc::driver::DeviceSlice::<half::f16>::num_bytes(b) as u64, cudarc::driver::DeviceSlice::<half::f16>::stream(b).context().cu_ctx()),
            (cudarc::driver::DeviceSlice::<half::f16>::num_bytes(c) as u64, cudarc::driver::DeviceSlice::<half::f16>::stream(c).context().cu_ctx()),
        ];
        for (n, (argument, (given, context))) in ARGUMENTS.into_iter().zip(given).enumerate() {
            let needed = self.unit.bytes_at(n, &sizes);
            if context != self.context.cu_ctx() {
                return Err(Error::Context);
            }
            if given < needed {
                return Err(Error::Size { argument, given, needed });
            }
        }
        // cudarc notes the use of a buffer on the stream when the second part of these pairs is dropped, which is after the launch.
        let a = cudarc::driver::DevicePtr::<half::f16>::device_ptr(a, stream);
        let b = cudarc::driver::DevicePtr::<half::f16>::device_ptr(b, stream);
        let c = cudarc::driver::DevicePtrMut::<half::f16>::device_ptr_mut(c, stream);
        // SAFETY: the buffers are of this context and as large as the kernels need them; what is written is borrowed by it alone.
        unsafe { self.launch_raw(stream.cu_stream(), a.0, b.0, c.0) }
    }

    /// As [`Variant::launch`], for any stream of the context and addresses in its device memory.
    ///
    /// # Errors
    /// As there, but for sizes and the context, which are not checked.
    ///
    /// # Safety
    /// Each address must be one of device memory that has as many bytes as the comment at the head of this file says, and lives until
    /// the work is done; written arguments must not overlap others; no launch with the same workspace may run at the same time.
    #[allow(dead_code, clippy::too_many_arguments)]
    pub unsafe fn launch_raw(
        &self,
        stream: sys::CUstream,
        a: sys::CUdeviceptr,
        b: sys::CUdeviceptr,
        c: sys::CUdeviceptr,
    ) -> Result<(), Error> {
        let sizes = self.checked([])?;
        let addresses = [a, b, c];
        for ((argument, address), align) in ARGUMENTS.into_iter().zip(addresses).zip(self.unit.align) {
            if !address.is_multiple_of(align) {
                return Err(Error::Align { argument, address, align });
            }
        }
        let workspace = 0;
        self.context.bind_to_thread().map_err(driver("making the context current"))?;
        self.kernels.iter().try_for_each(|loaded| self.launch_kernel(loaded, stream, (&sizes, &addresses), workspace))
    }

    /// The dynamic sizes, each with a value that the kernels take.
    fn checked(&self, sizes: [i64; SIZES.len()]) -> Result<[i64; SIZES.len()], Error> {
        for ((size, given), range) in SIZES.into_iter().zip(sizes).zip(RANGES[self.unit.shape]) {
            if given < range[0] || given > range[1] || given % range[2] != 0 {
                return Err(Error::Value { size, given, range });
            }
        }
        Ok(sizes)
    }

    fn launch_kernel(
        &self,
        loaded: &Loaded,
        stream: sys::CUstream,
        (sizes, addresses): (&[i64], &[u64]),
        workspace: u64,
    ) -> Result<(), Error> {
        let kernel = loaded.kernel;
        let mut values = [Value([0; 16]); MOST_PARAMETERS];
        let mut pointers = [std::ptr::null_mut::<c_void>(); MOST_PARAMETERS];
        for (n, (parameter, encoded)) in kernel.parameters.iter().zip(&loaded.maps).enumerate() {
            let at = |place: &Place| match *place {
                Place::Argument(n) => addresses[n],
                Place::Workspace(n) => workspace + self.unit.workspace[n],
            };
            match parameter {
                Parameter::Address(place) => values[n].0[0] = at(place),
                // The kernel reads the lower 32 bits.
                Parameter::Size(size) => values[n].0[0] = (sizes[*size] / RANGES[self.unit.shape][*size][2]) as u64,
                Parameter::Map(map) => {
                    let address = at(&map.array);
                    let extent = map.dynamic.map_or(0, |(_, size)| sizes[size].unsigned_abs());
                    let mut encoded = encoded.lock().unwrap_or_else(PoisonError::into_inner);
                    values[n] = match *encoded {
                        Some((last, rows, value)) if (last, rows) == (address, extent) => value,
                        _ => encode(map, address, extent)?,
                    };
                    *encoded = Some((address, extent, values[n]));
                }
            }
            pointers[n] = (&raw mut values[n]).cast();
        }
        let none = std::ptr::null_mut();
        let (mut attributes, count) = attributes_of(kernel);
        let grid = grid_of(loaded, sizes);
        let config = config_of(loaded, grid, stream, &mut attributes[..count]);
        // SAFETY: there is a pointer to a value for each parameter of the kernel, and the driver copies the values before it returns.
        let answer = unsafe {
            if loaded.extended {
                sys::cuLaunchKernelEx(&config, loaded.function, pointers.as_mut_ptr(), none)
            } else {
                let ([x, y, z], [block_x, block_y, block_z]) = (grid, kernel.block);
                let shared = kernel.shared_bytes;
                let pointers = pointers.as_mut_ptr();
                sys::cuLaunchKernel(loaded.function, x, y, z, block_x, block_y, block_z, shared, stream, pointers, none)
            }
        };
        answer.result().map_err(driver("launching a kernel"))
    }
}

impl Drop for Variant {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // The code may still be running.
            let _ = self.context.synchronize();
            // SAFETY: the module was loaded in this context and is not used again.
            self.context.record_err(unsafe { sys::cuModuleUnload(self.module) }.result());
        }
    }
}

fn driver(doing: &'static str) -> impl Fn(DriverError) -> Error {
    move |error| Error::Driver { doing, error }
}

/// The attributes of a launch, and how many there are.
fn attributes_of(kernel: &Kernel) -> ([sys::CUlaunchAttribute; 2], usize) {
    // SAFETY: an attribute is numbers, of which 0 are valid ones.
    let (mut attributes, mut count) = (unsafe { std::mem::zeroed::<[sys::CUlaunchAttribute; 2]>() }, 0);
    if kernel.cluster != [1; 3] {
        let [x, y, z] = kernel.cluster;
        attributes[count].id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attributes[count].value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
        count += 1;
    }
    if kernel.dependent {
        attributes[count].id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[count].value.programmaticStreamSerializationAllowed = 1;
        count += 1;
    }
    (attributes, count)
}

/// The dynamic sizes of these shapes, if the kernels of `SHAPES[at]` take them.
#[allow(clippy::let_and_return, clippy::absurd_extreme_comparisons)]
fn sizes_of(at: usize, given: &Shapes) -> Option<[i64; SIZES.len()]> {
    let sizes: [i64; SIZES.len()] = [];
    let known = SHAPES[at];
    let fits = |(value, [low, high, by]): (&i64, &[i64; 3])| low <= value && value <= high && value % by == 0;
    (known == *given && sizes.iter().zip(&RANGES[at]).all(fits)).then_some(sizes)
}

/// The blocks with work at these sizes.
fn grid_of(loaded: &Loaded, sizes: &[i64]) -> [u32; 3] {
    let mut grid = [loaded.grid_x, loaded.kernel.grid[1], loaded.kernel.grid[2]];
    for (blocks, clip) in grid.iter_mut().zip(loaded.kernel.clips) {
        let Some((size, times, per)) = clip else { continue };
        let parts = sizes[size].unsigned_abs().div_ceil(per) * times;
        *blocks = (*blocks).min(parts.max(1).min(u32::MAX.into()) as u32);
    }
    grid
}

/// A launch with these attributes, which must outlive the configuration.
fn config_of(
    loaded: &Loaded,
    grid: [u32; 3],
    stream: sys::CUstream,
    attributes: &mut [sys::CUlaunchAttribute],
) -> sys::CUlaunchConfig {
    let kernel = loaded.kernel;
    sys::CUlaunchConfig {
        gridDimX: grid[0],
        gridDimY: grid[1],
        gridDimZ: grid[2],
        blockDimX: kernel.block[0],
        blockDimY: kernel.block[1],
        blockDimZ: kernel.block[2],
        sharedMemBytes: kernel.shared_bytes,
        hStream: stream,
        attrs: attributes.as_mut_ptr(),
        numAttrs: attributes.len() as c_uint,
    }
}

/// The tensor map of the array at an address, with its dynamic extent.
fn encode(map: &Map, address: u64, extent: u64) -> Result<Value, Error> {
    let mut extents = [1u64; 5];
    extents[..map.extents.len()].copy_from_slice(map.extents);
    if let Some((dimension, _)) = map.dynamic {
        extents[dimension] = extent;
    }
    let mut value = Value([0; 16]);
    let ones = [1u32; 5];
    // SAFETY: the arrays are as long as the rank says; the value has the size and the alignment of a CUtensorMap.
    let answer = unsafe {
        sys::cuTensorMapEncodeTiled(
            (&raw mut value).cast(),
            map.data_type,
            map.extents.len() as u32,
            address as *mut c_void,
            extents.as_ptr(),
            map.strides.as_ptr(),
            map.tile.as_ptr(),
            ones.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            map.swizzle,
            map.promotion,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    answer.result().map(|()| value).map_err(driver("encoding a tensor map"))
}

/// Shared memory that a launch may have without asking.
const PLAIN_SHARED_BYTES: u32 = 48 << 10;
/// Blocks of a cluster that every device with clusters runs.
const PORTABLE_CLUSTER: u32 = 8;
/// Of the address of the workspace.
#[allow(dead_code)]
const WORKSPACE_ALIGN: u64 = 256;
const MOST_PARAMETERS: usize = 6;
const ARGUMENTS: [&str; 3] = ["A", "B", "C"];

/// A program for one set of shapes and the chips that run it.
struct Unit {
    /// Its place in [`SHAPES`].
    shape: usize,
    /// The first and the last device that runs it: 90 for compute capability 9.0.
    chips: (u32, u32),
    /// Machine code, after the first and the last device that run it.
    cubin: Option<((u32, u32), &'static [u8])>,
    /// PTX, with a zero at its end.
    ptx: &'static str,
    workspace_bytes: usize,
    /// Where each buffer begins in the workspace.
    workspace: &'static [u64],
    /// Of the address of each argument.
    align: [u64; ARGUMENTS.len()],
    /// Of each argument, at the largest sizes.
    bytes: [u64; ARGUMENTS.len()],
    /// Of each argument with a dynamic extent the number of its size, and the bits that each value below the largest leaves out.
    rows: [Option<(usize, u64)>; ARGUMENTS.len()],
    kernels: &'static [Kernel],
}

impl Unit {
    /// The bytes of an argument at these sizes.
    fn bytes_at(&self, argument: usize, sizes: &[i64]) -> u64 {
        let bytes = self.bytes[argument];
        let Some((size, bits)) = self.rows[argument] else { return bytes };
        let missing = (RANGES[self.shape][size][1] - sizes[size]).unsigned_abs();
        bytes - (missing * bits) / 8
    }
}

struct Kernel {
    entry: &'static CStr,
    grid: [u32; 3],
    block: [u32; 3],
    cluster: [u32; 3],
    shared_bytes: u32,
    /// Whether any number of blocks in x does all the work: as many as the device holds, and no more than `grid`.
    persistent: bool,
    /// Whether it waits for the kernel in front of it in the stream, and may be launched before that one's end.
    dependent: bool,
    /// What the blocks in x, y and z follow from: the number of a size, how many blocks for each part of it, and how much a part is.
    clips: [Option<(usize, u64, u64)>; 3],
    parameters: &'static [Parameter],
}

#[allow(dead_code)]
enum Parameter {
    Address(Place),
    Map(Map),
    /// The value of a dynamic size over what it is a multiple of.
    Size(usize),
}

#[allow(dead_code)]
enum Place {
    Argument(usize),
    Workspace(usize),
}

/// How bulk copies find their boxes in an array: dimensions from the innermost one, strides in bytes of all others.
struct Map {
    array: Place,
    data_type: sys::CUtensorMapDataType,
    extents: &'static [u64],
    strides: &'static [u64],
    tile: &'static [u32],
    swizzle: sys::CUtensorMapSwizzle,
    promotion: sys::CUtensorMapL2promotion,
    /// The dimension whose extent is a dynamic size, and the number of the size.
    dynamic: Option<(usize, usize)>,
}

static UNITS: &[Unit] = &[
    // gemm for sm_90a
    Unit {
        shape: 0,
        chips: (90, 90),
        cubin: None,
        ptx: concat!(include_str!("gemm_sm_90a.ptx"), "\0"),
        workspace_bytes: 0,
        workspace: &[],
        align: [16, 16, 16],
        bytes: [32768, 32768, 131072],
        rows: [None, None, None],
        kernels: &[
            Kernel {
                entry: c"gemm",
                grid: [2, 1, 1],
                block: [384, 1, 1],
                cluster: [2, 1, 1],
                shared_bytes: 229408,
                persistent: false,
                dependent: false,
                clips: [None, None, None],
                parameters: &[
                    Parameter::Address(Place::Argument(0)),
                    Parameter::Address(Place::Argument(1)),
                    Parameter::Address(Place::Argument(2)),
                    Parameter::Map(Map {
                        array: Place::Argument(0),
                        data_type: sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                        extents: &[64, 256],
                        strides: &[128],
                        tile: &[64, 128],
                        swizzle: sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                        promotion: sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                        dynamic: None,
                    }),
                    Parameter::Map(Map {
                        array: Place::Argument(1),
                        data_type: sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                        extents: &[64, 256],
                        strides: &[128],
                        tile: &[64, 128],
                        swizzle: sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                        promotion: sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                        dynamic: None,
                    }),
                    Parameter::Map(Map {
                        array: Place::Argument(2),
                        data_type: sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                        extents: &[256, 256],
                        strides: &[512],
                        tile: &[64, 64],
                        swizzle: sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                        promotion: sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                        dynamic: None,
                    }),
                ],
            },
        ],
    },
    // gemm for sm_80
    Unit {
        shape: 1,
        chips: (80, 9999),
        cubin: None,
        ptx: concat!(include_str!("gemm_sm_80.ptx"), "\0"),
        workspace_bytes: 0,
        workspace: &[],
        align: [16, 16, 16],
        bytes: [16384, 16384, 32768],
        rows: [None, None, None],
        kernels: &[
            Kernel {
                entry: c"gemm",
                grid: [1, 1, 1],
                block: [256, 1, 1],
                cluster: [1, 1, 1],
                shared_bytes: 20464,
                persistent: false,
                dependent: false,
                clips: [None, None, None],
                parameters: &[
                    Parameter::Address(Place::Argument(0)),
                    Parameter::Address(Place::Argument(1)),
                    Parameter::Address(Place::Argument(2)),
                ],
            },
        ],
    },
];
