//! Streams: launches, and when work is done. Work waits until somebody waits for it.

use crate::device::put;
use crate::memory::Memory;
use crate::settings::Hang;
use crate::state::{Busy, CURRENT, Function, Handle, Launch, Outcome, State, Stream, WAIT, When, call};
use std::ffi::{CString, c_uint, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Milliseconds that a piece of work takes on the device's clock.
const TASK_MS: f64 = 0.01;
/// CU_STREAM_NON_BLOCKING.
const NON_BLOCKING: c_uint = 1;

/// A piece of work.
#[derive(Clone)]
pub enum Task {
    Launch(Box<Kernel>),
    Fill {
        to: u64,
        value: u8,
        bytes: usize,
    },
    Copy {
        to: u64,
        from: u64,
        bytes: usize,
    },
    Record(usize),
    /// Memory of a graph becomes an allocation.
    Allocate(Arc<Memory>),
    /// Memory is an allocation no more.
    Free(u64),
}

#[derive(Clone)]
pub struct Kernel {
    pub handle: usize,
    pub function: Function,
    grid: [u32; 3],
    block: [u32; 3],
    cluster: [u32; 3],
    shared: u32,
    values: Vec<u8>,
}

/// CUlaunchConfig and CUlaunchAttribute.
#[repr(C)]
pub struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: Handle,
    attributes: *const LaunchAttribute,
    count: c_uint,
}

#[repr(C)]
struct LaunchAttribute {
    id: c_uint,
    padding: u32,
    value: [u32; 16],
}

impl LaunchConfig {
    /// CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, if it is there.
    ///
    /// # Safety
    /// There must be as many attributes as `count` says.
    pub unsafe fn cluster(&self) -> [u32; 3] {
        // SAFETY: the caller vouches for it.
        let cluster = unsafe { self.attribute(4) };
        cluster.map_or([1; 3], |value| [value[0], value[1], value[2]])
    }

    /// Whether CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION is there and allowed.
    ///
    /// # Safety
    /// There must be as many attributes as `count` says.
    pub unsafe fn early(&self) -> bool {
        // SAFETY: the caller vouches for it.
        unsafe { self.attribute(6) }.is_some_and(|value| value[0] == 1)
    }

    /// # Safety
    /// There must be as many attributes as `count` says.
    unsafe fn attribute(&self, id: c_uint) -> Option<[u32; 16]> {
        // SAFETY: the caller vouches for it.
        let attributes = match self.count {
            0 => &[][..],
            n => unsafe { std::slice::from_raw_parts(self.attributes, n as usize) },
        };
        attributes.iter().find(|a| a.id == id).map(|a| a.value)
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreateWithPriority(stream: *mut Handle, flags: c_uint, priority: i32) -> i32 {
    call("cuStreamCreateWithPriority", When::Current, format!("{flags} {priority}"), |state| {
        let handle = state.handle();
        state.add_stream(handle, CURRENT.get(), flags & NON_BLOCKING != 0);
        // SAFETY: the caller's pointer, as the prototype asks.
        unsafe { put(stream, handle as Handle) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreate(stream: *mut Handle, flags: c_uint) -> i32 {
    cuStreamCreateWithPriority(stream, flags, 0)
}

/// The work before the event is done at once: whatever waits for it then comes after it.
#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint) -> i32 {
    call("cuStreamWaitEvent", When::Current, flags.to_string(), |state| {
        state.own(stream)?;
        state.reach(event)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: Handle) -> i32 {
    call("cuStreamDestroy_v2", When::Release, String::new(), |state| {
        state.streams.get(&(stream as usize)).ok_or(400)?;
        state.finish(stream as usize)?;
        state.streams.remove(&(stream as usize));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: Handle) -> i32 {
    call("cuStreamSynchronize", When::Current, place(stream), |state| {
        let stream = state.own(stream)?;
        state.spoil(stream)?;
        if state.contexts.contains_key(&stream) { state.idle(stream) } else { state.finish(stream) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: Handle) -> i32 {
    call("cuStreamQuery", When::Current, place(stream), |state| {
        let stream = state.own(stream)?;
        state.spoil(stream)?;
        let queue = state.streams.get_mut(&stream).ok_or(400)?;
        let idle = queue.tasks.is_empty();
        if !idle && !std::mem::replace(&mut queue.asked, true) {
            return Err(600);
        }
        state.finish(stream).map_err(|code| if code == WAIT { 600 } else { code })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: Handle,
    params: *const *const c_void,
    _extra: *const *const c_void,
) -> i32 {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    launch("cuLaunchKernel", function, grid, block, [1; 3], "", shared, stream, params)
}

#[cfg(not(age = "11.7"))]
#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernelEx(
    config: *const LaunchConfig,
    function: Handle,
    params: *const *const c_void,
    _extra: *const *const c_void,
) -> i32 {
    // SAFETY: the caller's configuration.
    let (config, cluster, early) = unsafe { (&*config, (*config).cluster(), (*config).early()) };
    let (grid, block, early) = (config.grid, config.block, if early { "early " } else { "" });
    launch("cuLaunchKernelEx", function, grid, block, cluster, early, config.shared, config.stream, params)
}

#[allow(clippy::too_many_arguments)]
fn launch(
    name: &'static str,
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    cluster: [u32; 3],
    early: &str,
    shared: u32,
    stream: Handle,
    params: *const *const c_void,
) -> i32 {
    let known = crate::state::state().functions.get(&(function as usize)).cloned();
    let values = known.as_ref().map(|f| {
        let sizes = f.params.iter().enumerate();
        // SAFETY: the caller has a pointer for each parameter of the function, to as many bytes as it takes.
        let bytes =
            |(i, size): (usize, &usize)| unsafe { std::slice::from_raw_parts((*params.add(i)).cast::<u8>(), *size) };
        sizes.map(bytes).map(<[u8]>::to_vec).collect::<Vec<Vec<u8>>>()
    });
    let shown = values.iter().flatten().map(|v| hex(v)).collect::<Vec<String>>().join(",");
    let entry = known.as_ref().map_or("?", |f| f.name.as_str());
    let line = format!(
        "{entry} grid {grid:?} block {block:?} cluster {cluster:?} {early}shared {shared} stream {} params [{shown}]",
        place(stream)
    );
    call(name, When::Current, line, |state| {
        let function_now = state.functions.get(&(function as usize)).cloned().ok_or(400)?;
        state.admits(&function_now, grid, block, cluster, shared)?;
        let values = values.clone().unwrap_or_default().concat();
        let kernel = Kernel { handle: function as usize, function: function_now, grid, block, cluster, shared, values };
        state.enqueue(stream, Task::Launch(Box::new(kernel)))
    })
}

/// A parameter as a number of its width, or its bytes.
fn hex(bytes: &[u8]) -> String {
    match bytes.len() {
        0..=8 => format!("{:#x}", bytes.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b))),
        _ => bytes.iter().map(|b| format!("{b:02x}")).collect(),
    }
}

fn place(stream: Handle) -> String {
    if stream.is_null() { "default".to_string() } else { "own".to_string() }
}

impl State {
    /// What the driver checks of a launch.
    fn admits(&self, f: &Function, grid: [u32; 3], block: [u32; 3], cluster: [u32; 3], shared: u32) -> Outcome {
        let threads: u32 = block.iter().product();
        let blocks: u32 = cluster.iter().product();
        if grid.contains(&0) || threads == 0 || threads > 1024 || grid[1] > 65535 || grid[2] > 65535 {
            return Err(1);
        }
        if f.block.is_some_and(|compiled| compiled != block) || shared > f.max_dynamic_shared {
            return Err(1);
        }
        if threads > f.max_threads {
            return Err(701);
        }
        let whole = grid.iter().zip(cluster).all(|(g, c)| c > 0 && g % c == 0);
        let portable = blocks <= 8 || f.large_clusters && blocks <= 16;
        if blocks != 1 && (self.attribute(120)? == 0 || !whole || !portable) { Err(912) } else { Ok(()) }
    }

    pub fn add_stream(&mut self, handle: usize, context: usize, apart: bool) {
        let stream = Stream { context, tasks: Vec::new(), asked: false, busy: Busy::No, capture: None, apart };
        self.streams.insert(handle, stream);
    }

    /// The stream of a handle; null is the default stream of the current context.
    pub fn own(&self, stream: Handle) -> Outcome<usize> {
        let stream = if stream.is_null() { CURRENT.get() } else { stream as usize };
        if self.streams.contains_key(&stream) { Ok(stream) } else { Err(400) }
    }

    pub fn enqueue(&mut self, stream: Handle, task: Task) -> Outcome {
        let stream = self.own(stream)?;
        let stream = self.streams.get_mut(&stream).ok_or(400)?;
        match &mut stream.capture {
            Some((_, Some(recorded))) => recorded.push(task),
            Some((_, None)) => return Err(901),
            None => {
                stream.tasks.push(task);
                stream.asked = false;
            }
        }
        Ok(())
    }

    /// Does all work of a context, as its default stream waits for it.
    pub fn idle(&mut self, context: usize) -> Outcome {
        if let Some(code) = self.contexts.get(&context).and_then(|c| c.lost) {
            return if self.ended.is_some() { Err(code) } else { Ok(()) };
        }
        let waits = |(handle, stream): (&usize, &Stream)| {
            (stream.context == context && !stream.apart && stream.capture.is_none()).then_some(*handle)
        };
        let streams: Vec<usize> = self.streams.iter().filter_map(waits).collect();
        streams.into_iter().try_for_each(|stream| self.finish(stream))
    }

    /// Does all work of a stream; `WAIT` where a kernel takes its time.
    pub fn finish(&mut self, stream: usize) -> Outcome {
        while !self.streams.get(&stream).ok_or(400)?.tasks.is_empty() {
            self.step(stream)?;
        }
        Ok(())
    }

    /// Does the first piece of a stream's work.
    pub fn step(&mut self, handle: usize) -> Outcome {
        let stream = self.streams.get_mut(&handle).ok_or(400)?;
        let (context, task) = (stream.context, stream.tasks[0].clone());
        match stream.busy {
            Busy::Forever => return Err(WAIT),
            Busy::Until(end) if Instant::now() < end => return Err(WAIT),
            Busy::Until(_) => {}
            Busy::No => {
                if let Some(hang) = hang(&self.settings, &task) {
                    stream.busy = match hang {
                        Hang::Forever => Busy::Forever,
                        Hang::For(time) => Busy::Until(Instant::now() + time),
                    };
                    return Err(WAIT);
                }
            }
        }
        stream.busy = Busy::No;
        stream.tasks.remove(0);
        self.clock += TASK_MS + milliseconds(hang(&self.settings, &task));
        let done = self.run(&task, handle, context);
        if let Err(code) = done {
            self.lose(context, code);
        }
        done
    }

    fn run(&mut self, task: &Task, stream: usize, context: usize) -> Outcome {
        match *task {
            Task::Launch(ref kernel) => self.execute(kernel, context),
            Task::Fill { to, value, bytes } => {
                self.holds(to, bytes).map_err(|_| 700)?;
                // SAFETY: the memory holds as many bytes, as just seen.
                unsafe { (to as *mut u8).write_bytes(value, bytes) };
                Ok(())
            }
            Task::Copy { to, from, bytes } => {
                self.holds(to, bytes).and(self.holds(from, bytes)).map_err(|_| 700)?;
                // SAFETY: both hold as many bytes, as just seen.
                unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
                Ok(())
            }
            Task::Record(event) => {
                let time = self.clock;
                if let Some(event) = self.events.get_mut(&event).filter(|e| e.pending == Some(stream)) {
                    (event.pending, event.time) = (None, Some(time));
                }
                Ok(())
            }
            // A graph that has not freed its memory is not launched again.
            Task::Allocate(ref memory) if self.allocations.contains_key(&memory.address) => Err(1),
            Task::Allocate(ref memory) => {
                memory.spoil();
                self.hold(memory.clone(), context)
            }
            Task::Free(address) => self.allocations.remove(&address).map(|_| ()).ok_or(719),
        }
    }

    fn execute(&self, kernel: &Kernel, context: usize) -> Outcome {
        if let Some(code) = self.settings.faults.get(&kernel.function.name) {
            return Err(*code);
        }
        let mut at = 0;
        for size in &kernel.function.params {
            let bytes = &kernel.values[at..at + size];
            at += size;
            if let Ok(address) = <[u8; 8]>::try_from(bytes) {
                self.reaches(u64::from_le_bytes(address), context)?;
            }
        }
        let Some(executor) = self.executor else { return Ok(()) };
        let entry = CString::new(kernel.function.name.as_str()).map_err(|_| 719)?;
        let launch = Launch {
            entry: entry.as_ptr(),
            text: kernel.function.text.as_ptr(),
            grid: kernel.grid,
            block: kernel.block,
            cluster: kernel.cluster,
            shared_bytes: kernel.shared,
            values: kernel.values.as_ptr(),
            sizes: kernel.function.params.as_ptr(),
            count: kernel.function.params.len(),
        };
        // SAFETY: the test's own function; the launch outlives the call.
        match unsafe { executor(&launch) } {
            0 => Ok(()),
            code => Err(code),
        }
    }

    /// Whether kernels of a context may touch an address: any other is a fault of the kernel.
    fn reaches(&self, address: u64, context: usize) -> Outcome {
        let found = self.allocations.range(..=address).next_back();
        let inside = found.filter(|(start, a)| address < *start + a.memory.bytes as u64 && a.context == context);
        inside.map(|_| ()).ok_or(700)
    }
}

fn hang(settings: &crate::settings::Settings, task: &Task) -> Option<Hang> {
    match task {
        Task::Launch(kernel) => settings.hangs.get(&kernel.function.name).copied(),
        _ => None,
    }
}

fn milliseconds(hang: Option<Hang>) -> f64 {
    match hang {
        Some(Hang::For(time)) => Duration::as_secs_f64(&time) * 1000.0,
        _ => 0.0,
    }
}
