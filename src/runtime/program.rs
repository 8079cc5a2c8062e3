//! A compiled program on a device: module, workspace, and launches that are checked first.

use super::arguments::{self, Given};
use super::buffer::DeviceBuffer;
use super::context::Owned;
use super::device::Device;
use super::driver::{self, api, api::Answer, api::CUfunction, api::jit};
use super::logs::Logs;
use super::resources::{self, Resources};
use super::tensor_map::Encoded;
use super::workspace::{self, Ordered, Workspace};
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::kernel::{self, Arg, Kernel, Kernels, Param, Size};
use smallvec::SmallVec;
use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A stream of the driver (CUstream, which is also the runtime API's cudaStream_t).
pub type RawStream = *mut c_void;

/// Shared memory that a launch may have without asking.
const PLAIN_SHARED_BYTES: u32 = 48 << 10;
/// Blocks of a cluster that every device with clusters can run.
const PORTABLE_CLUSTER: u32 = 8;
const RAISING: &str = "raising a kernel's limit";

/// What there is one of for each argument or parameter of a launch: up to eight without an allocation.
type Few<T> = SmallVec<[T; 8]>;

/// A program loaded on a device, with its workspace. Launches on the device's stream are in order; on several foreign
/// streams at once they would share the workspace, so give each its own ([`Program::launch_raw_with`]).
#[derive(Debug)]
pub struct Program {
    device: Device,
    module: api::CUmodule,
    name: String,
    args: Vec<Arg>,
    sizes: Vec<Size>,
    kernels: Vec<Loaded>,
    /// The buffers of the workspace, and where each begins in one block of memory.
    needs: Vec<kernel::Workspace>,
    offsets: Vec<u64>,
    /// The bytes of that block.
    total: u64,
    /// What was allocated for them at load, with its addresses; none where the caller gives workspace to each launch.
    workspace: Option<(Vec<DeviceBuffer>, Vec<u64>)>,
    compile_log: String,
    compile_ms: f32,
}

#[derive(Debug)]
struct Loaded {
    /// With the grid that is launched; where it follows from a dynamic size, that of the largest.
    kernel: Kernel,
    /// The blocks that have something to do at the largest sizes.
    whole: [u32; 3],
    function: CUfunction,
    /// The driver's call for kernels in clusters.
    launch_ex: Option<api::LaunchKernelEx>,
    resources: Resources,
    /// What is said of it where it does not end.
    launch: Arc<str>,
    /// Its tensor maps for the addresses of the last launch.
    maps: Encoded,
}

/// What a launch is given: the address of each argument, and the value of each dynamic size.
#[derive(Clone, Copy)]
struct At<'a> {
    addresses: &'a [u64],
    sizes: &'a [i64],
}

// SAFETY: the driver's module, function and launch calls may come from any thread; every one of ours makes the
// context current first.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

impl Device {
    /// Loads the program and allocates its workspace. The driver takes machine code that the device can run, and compiles the PTX where
    /// there is none. Where the PTX has `.loc` lines, its machine code has
    /// them too, for profilers (CU_JIT_GENERATE_LINE_INFO).
    ///
    /// # Errors
    /// A chip that cannot run the target; what the driver's compiler says, with its log; limits of the device that a
    /// launch would break; memory.
    pub fn load(&self, kernels: &Kernels) -> Result<Program> {
        let loaded = self.load_without_workspace(kernels)?;
        let within = |e: Error| e.within(format!("loading {} for {}", kernels.name, kernels.target));
        loaded.with_workspace().map_err(within)
    }

    /// As [`Device::load`], without allocating workspace: where the program has any, each launch takes it from the caller or from the stream
    /// ([`Program::launch_with`]).
    ///
    /// # Errors
    /// As [`Device::load`].
    pub fn load_without_workspace(&self, kernels: &Kernels) -> Result<Program> {
        let within = |e: Error| e.within(format!("loading {} for {}", kernels.name, kernels.target));
        self.load_checked(kernels).map_err(within)
    }

    fn load_checked(&self, kernels: &Kernels) -> Result<Program> {
        arguments::check_target(&kernels.target, &self.info().name, self.info().capability)?;
        for kernel in &kernels.kernels {
            kernel.check(kernels)?;
        }
        let mut program = self.compile(kernels)?;
        for kernel in &kernels.kernels {
            let loaded = program.prepare(kernel)?;
            program.kernels.push(loaded);
        }
        Ok(program)
    }

    /// Loads the module, with logs.
    fn compile(&self, kernels: &Kernels) -> Result<Program> {
        let text = CString::new(kernels.text.as_str())
            .map_err(|_| Error::bug(Code::LaunchText, "the PTX holds a zero byte"))?;
        let cubin = kernels.cubin.as_ref().filter(|cubin| cubin.runs_on(self.info().capability));
        let image: *const c_void = cubin.map_or(text.as_ptr().cast(), |cubin| cubin.bytes.as_ptr().cast());
        let mut logs = Logs::new();
        let (mut options, mut values) = logs.options();
        if has_lines(&kernels.text) {
            options.push(jit::GENERATE_LINE_INFO);
            values.push(std::ptr::without_provenance_mut(1));
        }
        let mut module: api::CUmodule = std::ptr::null_mut();
        let doing = if cubin.is_some() { "loading machine code" } else { "compiling PTX" };
        let loaded = self.inner.call(doing, || {
            let count = options.len() as c_uint;
            // SAFETY: there are as many values as options; the buffers are as large as their sizes say and outlive
            // the call; the driver knows the end of the image: text ends with a zero, machine code says its size.
            unsafe {
                let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
                api::cuModuleLoadDataEx(&mut module, image, count, options, values)
            }
        });
        loaded.map_err(|error| logs.explain(error, kernels, self.info().driver_version))?;
        let (offsets, total) = kernels.workspace_layout();
        Ok(Program {
            device: self.clone(),
            module,
            name: kernels.name.clone(),
            args: kernels.args.clone(),
            sizes: kernels.sizes.clone(),
            kernels: Vec::new(),
            needs: kernels.workspace.clone(),
            offsets,
            total,
            workspace: None,
            compile_log: logs.info(),
            // The driver writes a float into the low half of the first value's slot.
            compile_ms: f32::from_bits(values[0].addr() as u32),
        })
    }
}

impl Program {
    /// Allocates each buffer of the workspace.
    fn with_workspace(mut self) -> Result<Program> {
        let allocate = |buffer: &kernel::Workspace| {
            let bytes = usize::try_from(buffer.bytes)
                .map_err(|_| Error::input(Code::ArraySize, format!("the workspace {} is too large", buffer.name)))?;
            let within = |e: Error| e.within(format!("for the workspace {}", buffer.name));
            self.device.alloc(DType::U8, &[bytes]).map_err(within)
        };
        let buffers = self.needs.iter().map(allocate).collect::<Result<Vec<_>>>()?;
        let addresses = buffers.iter().map(DeviceBuffer::address).collect();
        self.workspace = Some((buffers, addresses));
        Ok(self)
    }

    /// The program's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device that it is loaded on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What it takes, in order.
    pub fn args(&self) -> &[Arg] {
        &self.args
    }

    /// What each kernel takes of the device, in launch order.
    pub fn resources(&self) -> Vec<&Resources> {
        self.kernels.iter().map(|k| &k.resources).collect()
    }

    /// What the driver's compiler said (registers, spills); empty when the driver took the code from its cache.
    pub fn compile_log(&self) -> &str {
        &self.compile_log
    }

    /// Milliseconds that the driver's compiler took.
    pub fn compile_ms(&self) -> f32 {
        self.compile_ms
    }

    /// Checks the arguments, then puts the kernels on the device's stream. What goes wrong in the kernels is reported
    /// by the next [`Device::synchronize`] or [`DeviceBuffer::download`].
    ///
    /// # Errors
    /// Those of [`Program::check`]; `driver.*` where the driver refuses a launch.
    pub fn launch(&self, buffers: &[&DeviceBuffer]) -> Result<()> {
        self.launch_with(buffers, Workspace::Loaded)
    }

    /// As [`Program::launch`], with the workspace where the caller says. No launch waits for the device, and only
    /// [`Workspace::StreamOrdered`] allocates: a graph can record each.
    ///
    /// # Errors
    /// As [`Program::launch`]; `launch.workspace` where the program was loaded without workspace and none is given, or where the buffer is too
    /// small; `launch.device` and `launch.overlap` where the buffer is on another device or overlaps an argument; `driver.801` where the device
    /// has no memory pools for a stream to allocate from.
    pub fn launch_with(&self, buffers: &[&DeviceBuffer], workspace: Workspace<'_>) -> Result<()> {
        let sizes = self.checked(buffers)?;
        let addresses: Few<u64> = buffers.iter().map(|b| b.address()).collect();
        let (stream, at) = (self.device.raw_stream(), At { addresses: &addresses, sizes: &sizes });
        match workspace {
            Workspace::Loaded => self.enqueue(stream, at, self.own_workspace()?),
            Workspace::StreamOrdered => self.enqueue_ordered(stream, at),
            Workspace::Buffer(_) if self.needs.is_empty() => self.enqueue(stream, at, &[]),
            Workspace::Buffer(buffer) => {
                workspace::check_buffer(&self.name, &self.device, self.total, buffer)?;
                let given = buffers
                    .iter()
                    .zip(&self.args)
                    .map(|(b, arg)| (arg.name.as_str(), b.address(), arg.at(&sizes).bytes));
                arguments::check_workspace_apart(&self.name, (buffer.address(), self.total), given)?;
                let workspace = self.workspace_at(buffer.address());
                arguments::check_workspace(&self.name, self.needs.len(), &workspace)?;
                self.enqueue(stream, at, &workspace)
            }
        }
    }

    /// The checks of [`Program::launch`] alone.
    ///
    /// # Errors
    /// `launch.*`: more or fewer buffers than arguments, another type or shape, too few bytes, an address that is not aligned as the kernels
    /// need it, a buffer of another device, an output that overlaps another argument. `size.value` where the arrays give a dynamic
    /// size a value that the program does not allow.
    pub fn check(&self, buffers: &[&DeviceBuffer]) -> Result<()> {
        self.checked(buffers).map(|_| ())
    }

    /// The values of the dynamic sizes, after the checks.
    fn checked(&self, buffers: &[&DeviceBuffer]) -> Result<Vec<i64>> {
        let given: Few<Given> = buffers
            .iter()
            .map(|b| Given {
                dtype: b.dtype(),
                shape: b.shape(),
                address: b.address(),
                bytes: b.bytes() as u64,
                same_device: b.device().is(&self.device),
                read_only: b.is_read_only(),
            })
            .collect();
        if self.sizes.is_empty() {
            return arguments::check(&self.name, &self.args, &given).map(|()| Vec::new());
        }
        let shapes: Vec<&[usize]> = given.iter().map(|g| g.shape).collect();
        let sizes = kernel::sizes_of(&self.sizes, &self.args, &shapes)?;
        let args: Vec<Arg> = self.args.iter().map(|arg| arg.at(&sizes)).collect();
        arguments::check(&self.name, &args, &given).map(|()| sizes)
    }

    /// Puts the kernels on a stream of the caller's; only the number and alignment of the addresses are checked.
    ///
    /// # Errors
    /// `launch.*` where addresses are missing or not aligned; `driver.*` where the driver refuses a launch.
    ///
    /// # Safety
    /// The stream must be of this device's context (or null) and outlive the work; each address must be of
    /// device memory of at least [`Arg::bytes`] bytes that stays until the work is done; written arguments must not
    /// overlap others; no other launch of this program may run at the same time if it has workspace.
    pub unsafe fn launch_raw(&self, stream: RawStream, addresses: &[u64]) -> Result<()> {
        self.enqueue(stream, self.raw(addresses, &[])?, self.own_workspace()?)
    }

    /// The addresses and sizes of a raw launch, checked as far as they can be.
    fn raw<'a>(&self, addresses: &'a [u64], sizes: &'a [i64]) -> Result<At<'a>> {
        arguments::check_raw(&self.name, &self.args, addresses)?;
        Size::check_all(self.sizes.iter(), sizes)?;
        Ok(At { addresses, sizes })
    }

    /// As [`Program::launch_raw`], with workspace that the launch allocates and frees in the stream ([`Workspace::StreamOrdered`]). Such
    /// launches may run at the same time on several streams.
    ///
    /// # Errors
    /// As [`Program::launch_raw`]; `driver.801` where the device has no memory pools for a stream to allocate from.
    ///
    /// # Safety
    /// As [`Program::launch_raw`], but for the workspace.
    pub unsafe fn launch_raw_ordered(&self, stream: RawStream, addresses: &[u64]) -> Result<()> {
        self.enqueue_ordered(stream, self.raw(addresses, &[])?)
    }

    /// As [`Program::launch_raw`], with workspace from the caller: one address for each entry of [`Program::workspace_bytes`]. Launches with
    /// different workspace may run concurrently on several streams.
    ///
    /// # Errors
    /// As [`Program::launch_raw`]; `launch.workspace` where workspace is missing, or not at a multiple of [`WORKSPACE_ALIGN`](crate::kernel::WORKSPACE_ALIGN).
    ///
    /// # Safety
    /// As [`Program::launch_raw`]; the workspace must be device memory of so many bytes that nothing else uses until the work is done.
    pub unsafe fn launch_raw_with(&self, stream: RawStream, addresses: &[u64], workspace: &[u64]) -> Result<()> {
        // SAFETY: as the caller promises.
        unsafe { self.launch_raw_at(stream, addresses, &[], workspace) }
    }

    /// As [`Program::launch_raw_with`], at these values of the program's dynamic sizes, in the order of [`Program::sizes`].
    ///
    /// # Errors
    /// As [`Program::launch_raw_with`]; `size.value` where the sizes have another number, or a value that the program does not allow.
    ///
    /// # Safety
    /// As [`Program::launch_raw_with`], with the bytes of each argument at these sizes ([`Arg::at`]).
    pub unsafe fn launch_raw_at(
        &self,
        stream: RawStream,
        addresses: &[u64],
        sizes: &[i64],
        workspace: &[u64],
    ) -> Result<()> {
        let at = self.raw(addresses, sizes)?;
        arguments::check_workspace(&self.name, self.needs.len(), workspace)?;
        self.enqueue(stream, at, workspace)
    }

    /// As [`Program::launch_raw`], at these values of the program's dynamic sizes, in the order of [`Program::sizes`], with the workspace where
    /// the caller says.
    ///
    /// # Errors
    /// As [`Program::launch_raw`] and [`Program::launch_with`]; `size.value` where the sizes have another number, or a value that the program
    /// does not allow.
    ///
    /// # Safety
    /// As [`Program::launch_raw`], with the bytes of each argument at these sizes ([`Arg::at`]); a buffer for the workspace overlaps no
    /// argument, and nothing else uses it until the work is done.
    pub unsafe fn launch_raw_sized(
        &self,
        stream: RawStream,
        addresses: &[u64],
        sizes: &[i64],
        workspace: Workspace<'_>,
    ) -> Result<()> {
        let at = self.raw(addresses, sizes)?;
        match workspace {
            Workspace::Loaded => self.enqueue(stream, at, self.own_workspace()?),
            Workspace::StreamOrdered => self.enqueue_ordered(stream, at),
            Workspace::Buffer(_) if self.needs.is_empty() => self.enqueue(stream, at, &[]),
            Workspace::Buffer(buffer) => {
                workspace::check_buffer(&self.name, &self.device, self.total, buffer)?;
                self.enqueue(stream, at, &self.workspace_at(buffer.address()))
            }
        }
    }

    /// The dynamic sizes, in order.
    pub fn sizes(&self) -> &[Size] {
        &self.sizes
    }

    /// The size of each workspace buffer in bytes. Launches need not preserve its contents.
    pub fn workspace_bytes(&self) -> Vec<usize> {
        self.needs.iter().map(|buffer| usize::try_from(buffer.bytes).unwrap_or(usize::MAX)).collect()
    }

    /// The bytes of one block of memory that holds all workspace buffers; 0 if the program has none.
    pub fn workspace_total(&self) -> usize {
        usize::try_from(self.total).unwrap_or(usize::MAX)
    }

    /// The address of each workspace buffer in a block of [`Program::workspace_total`] bytes at this address.
    pub fn workspace_at(&self, block: u64) -> Vec<u64> {
        self.offsets.iter().map(|offset| block.saturating_add(*offset)).collect()
    }

    /// The addresses of the workspace that was allocated when the program was loaded.
    fn own_workspace(&self) -> Result<&[u64]> {
        if let Some((_, addresses)) = &self.workspace {
            return Ok(addresses);
        }
        if self.needs.is_empty() {
            return Ok(&[]);
        }
        let message = format!("{} was loaded without workspace, and none was given", self.name);
        Err(Error::input(Code::LaunchWorkspace, message)
            .help("load it by Device::load, or launch it by Program::launch_with"))
    }

    /// Puts the kernels on a stream, between an allocation and a release of their workspace.
    fn enqueue_ordered(&self, stream: RawStream, at: At<'_>) -> Result<()> {
        if self.total == 0 {
            return self.enqueue(stream, at, &self.workspace_at(0));
        }
        let memory = Ordered::allocate(&self.device, stream, self.total)?;
        let launched = self.enqueue(stream, at, &self.workspace_at(memory.address));
        // Where a launch is refused, too.
        launched.and(memory.free())
    }

    /// The host's time for so many launches of the first kernel by nothing but the driver's call, with parameters made once
    /// before, to see what ours adds.
    ///
    /// # Errors
    /// As [`Program::launch`].
    pub fn time_bare_launches(&self, buffers: &[&DeviceBuffer], count: u64) -> Result<Duration> {
        let sizes = self.checked(buffers)?;
        let first = self.kernels.first().ok_or_else(|| Error::input(Code::LaunchBare, "the program has no kernel"))?;
        let addresses: Vec<u64> = buffers.iter().map(|b| b.address()).collect();
        let at = At { addresses: &addresses, sizes: &sizes };
        let (grid, stream, mut time) = (self.grid(first, &sizes), self.device.raw_stream(), Duration::ZERO);
        self.with_parameters(first, at, self.own_workspace()?, |params| {
            self.device.inner.call("launching", || {
                let start = Instant::now();
                let answer = (0..count).map(|_| first.enqueue(stream, grid, params)).find(|answer| *answer != 0);
                time = start.elapsed();
                answer.unwrap_or(0)
            })
        })?;
        Ok(time)
    }

    fn enqueue(&self, stream: RawStream, at: At<'_>, workspace: &[u64]) -> Result<()> {
        self.kernels.iter().try_for_each(|loaded| {
            let grid = self.grid(loaded, at.sizes);
            self.with_parameters(loaded, at, workspace, |params| loaded.launch(&self.device, stream, grid, params))
                .map_err(|e| e.within(format!("launching kernel {} of {}", loaded.kernel.entry, self.name)))?;
            if stream == self.device.raw_stream() {
                self.device.inner.launched(&loaded.launch);
            }
            Ok(())
        })
    }

    /// The blocks to launch at these sizes.
    fn grid(&self, loaded: &Loaded, sizes: &[i64]) -> [u32; 3] {
        let kernel = &loaded.kernel;
        if kernel.clips.is_empty() {
            return kernel.grid;
        }
        let whole = kernel.clips.at(loaded.whole, sizes);
        resources::launched(kernel, whole, &loaded.resources, self.device.info().multiprocessors)
    }

    /// Runs a launch with pointers to the values of a kernel's parameters, which stay where they are meanwhile.
    fn with_parameters(
        &self,
        loaded: &Loaded,
        At { addresses, sizes }: At<'_>,
        workspace: &[u64],
        launch: impl FnOnce(&mut [*mut c_void]) -> Result<()>,
    ) -> Result<()> {
        let lacks = || Error::bug(Code::LaunchParams, format!("kernel {} lacks a parameter", loaded.kernel.entry));
        let address = |param: &Param| match param {
            Param::Arg(i) => addresses.get(*i),
            Param::Workspace(i) => workspace.get(*i),
            Param::TensorMap(_) | Param::Size(_) => None,
        };
        let (params, mut maps, mut values) = (&loaded.kernel.params, loaded.maps.lock(), Few::<u32>::new());
        for (n, param) in params.iter().enumerate() {
            match param {
                Param::TensorMap(map) => maps.encode(n, map, *address(&map.array).ok_or_else(lacks)?, sizes)?,
                Param::Size(size) => values.push(kernel::parameter(&self.sizes, sizes, *size)?),
                Param::Arg(_) | Param::Workspace(_) => {}
            }
        }
        let (mut value, mut pointers) = (values.iter(), Few::<*mut c_void>::new());
        for (n, param) in params.iter().enumerate() {
            // The driver reads what is pointed to.
            let pointer: Option<*const c_void> = match param {
                Param::TensorMap(_) => maps.get(n).map(|map| std::ptr::from_ref(map).cast()),
                Param::Size(_) => value.next().map(|size| std::ptr::from_ref(size).cast()),
                plain => address(plain).map(|address| std::ptr::from_ref(address).cast()),
            };
            pointers.push(pointer.ok_or_else(lacks)?.cast_mut());
        }
        launch(&mut pointers)
    }

    /// Finds the entry, checks its limits and raises its shared memory, once.
    fn prepare(&self, kernel: &Kernel) -> Result<Loaded> {
        let inner = &self.device.inner;
        let name = CString::new(kernel.entry.as_str())
            .map_err(|_| Error::bug(Code::LaunchText, "a kernel's name holds a zero byte"))?;
        let mut function: CUfunction = std::ptr::null_mut();
        let doing = format!("looking up kernel {}", kernel.entry);
        // SAFETY: writes one handle; the module lives.
        inner.call(&doing, || unsafe { api::cuModuleGetFunction(&mut function, self.module, name.as_ptr()) })?;
        resources::check_limits(kernel, self.device.info())?;
        if kernel.shared_bytes > PLAIN_SHARED_BYTES {
            let (attribute, bytes) = (api::function::MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel.shared_bytes as c_int);
            // SAFETY: the function lives as long as the module.
            inner.call(RAISING, || unsafe { api::cuFuncSetAttribute(function, attribute, bytes) })?;
        }
        if kernel.cluster.iter().product::<u32>() > PORTABLE_CLUSTER {
            let attribute = api::function::NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
            // SAFETY: the type is the entry point's prototype.
            let set = unsafe { driver::driver()?.late::<api::SetFunctionAttribute>("cuFuncSetAttribute", "9.0")? };
            // SAFETY: as above.
            inner.call(RAISING, || unsafe { set(function, attribute, 1) })?;
        }
        let resources = Resources::query(&self.device, function, kernel)?;
        // A driver that cannot let a kernel begin early runs it after the one in front of it, as ever.
        let launch_ex = match (kernel.cluster == [1, 1, 1], kernel.early) {
            (false, _) => Some(launch_ex()?),
            (true, true) => launch_ex().ok(),
            (true, false) => None,
        };
        let whole = kernel.grid;
        let grid = resources::launched(kernel, whole, &resources, self.device.info().multiprocessors);
        let ([gx, gy, gz], [bx, by, bz]) = (grid, kernel.block);
        let (entry, name) = (&kernel.entry, &self.name);
        let launch = format!("kernel {entry} of {name} (grid {gx} x {gy} x {gz}, block {bx} x {by} x {bz})").into();
        let maps = Encoded::new(kernel.params.len());
        Ok(Loaded { kernel: Kernel { grid, ..kernel.clone() }, whole, function, launch_ex, resources, launch, maps })
    }
}

/// `cuLaunchKernelEx`, which not every driver has.
fn launch_ex() -> Result<api::LaunchKernelEx> {
    // SAFETY: the type is the entry point's prototype.
    unsafe { driver::driver()?.late::<api::LaunchKernelEx>("cuLaunchKernelEx", "11.8") }
}

impl Loaded {
    fn launch(&self, device: &Device, stream: RawStream, grid: [u32; 3], params: &mut [*mut c_void]) -> Result<()> {
        let doing = if self.kernel.cluster == [1, 1, 1] { "launching" } else { "launching with clusters" };
        device.inner.call(doing, || self.enqueue(stream, grid, params))
    }

    /// The driver's call alone. `params` has a pointer to a value for every parameter of the entry, in order.
    fn enqueue(&self, stream: RawStream, grid: [u32; 3], params: &mut [*mut c_void]) -> c_int {
        let (none, stream) = (std::ptr::null_mut(), stream.cast());
        let Some(launch_ex) = self.launch_ex else {
            let ([gx, gy, gz], [bx, by, bz]) = (grid, self.kernel.block);
            let shared = self.kernel.shared_bytes;
            // SAFETY: the parameters are as said above; the driver copies the values before it returns.
            return unsafe {
                api::cuLaunchKernel(self.function, gx, gy, gz, bx, by, bz, shared, stream, params.as_mut_ptr(), none)
            }
            .code();
        };
        let mut attributes = resources::launch_attributes(&self.kernel);
        let config = resources::launch_config(&self.kernel, grid, stream, &mut attributes);
        // SAFETY: as above; the configuration and its attributes outlive the call.
        unsafe { launch_ex(&config, self.function, params.as_mut_ptr(), none) }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.device.inner.release(Owned::Module(self.module));
    }
}

/// Whether instructions of the PTX have lines, which the driver's compiler keeps only where it is asked to.
fn has_lines(ptx: &str) -> bool {
    ptx.lines().any(|line| line.trim_start().starts_with(".loc\t"))
}
