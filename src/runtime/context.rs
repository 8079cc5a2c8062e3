//! The context and the stream of a device: their owner, their state after a fault, and further streams in the same context.
//!
//! Devices share the primary context of their chip, as CUDA's own libraries do. After a kernel that faults, the driver
//! answers everything in its context with that fault; after one that hangs, everything that waits hangs too. Such a
//! context is given up: its device refuses all calls at once, and the next opening makes a context of its own.

use super::device::DeviceInfo;
use super::dlpack::Foreign;
use super::driver::{api, api::Answer, code};
use super::wait::{Pending, poll};
use crate::error::{Code, Error, Result};
use cust::context::Context;
use cust::error::{CudaError, CudaResult};
use cust::memory::{DevicePointer, cuda_free, cuda_malloc};
use cust::stream::{Stream, StreamFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// Devices whose primary context a hung kernel keeps.
static KEPT: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
/// The first fault of each device in this process, after which a driver may refuse all work on it under any code.
static FAULTS: Mutex<BTreeMap<u32, Error>> = Mutex::new(BTreeMap::new());
/// What the first work in a context that was made beside a given up one may take.
const FIRST_WORK: Duration = Duration::from_secs(3);

/// A context with its stream, shared by the clones of a device and all that lives on it.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) info: DeviceInfo,
    context: Owner,
    stream: ManuallyDrop<Stream>,
    /// Why nothing can be done any more.
    lost: OnceLock<Lost>,
    work: Mutex<Work>,
    /// What a wait may take, in microseconds; 0 for any time.
    limit: AtomicU64,
}

/// Who else has the context.
#[derive(Debug)]
enum Owner {
    /// Everybody: the device's primary context, retained.
    Primary(ManuallyDrop<Context>),
    /// We alone.
    Own(api::CUcontext),
}

/// Why a context was given up.
#[derive(Debug)]
struct Lost {
    error: Error,
    /// A kernel still runs in it; otherwise the driver refuses all work.
    hung: bool,
}

/// What is on the stream or waits for it.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) pending: Pending,
    /// The launches of the graph that is being recorded, and the thread that records it.
    recording: Option<(ThreadId, Vec<Arc<str>>)>,
    /// What could not be given back yet.
    waiting: Vec<Owned>,
}

/// What the driver holds for us until it is given back.
#[derive(Debug)]
pub(super) enum Owned {
    Memory(u64),
    /// Memory of another library, which gets it back.
    Foreign(Foreign),
    Module(api::CUmodule),
    Event(ManuallyDrop<cust::event::Event>),
    Graph(api::CUgraph),
    Exec(api::CUgraphExec),
}

// SAFETY: the driver's calls may come from any thread; every one of ours makes the context current first.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}
// SAFETY: handles are names; `Inner` gives them back as said there.
unsafe impl Send for Owned {}

impl Inner {
    /// Opens the device's primary context, or makes one beside it where that was given up.
    pub(super) fn open(device: cust::device::Device, info: DeviceInfo) -> Result<Inner> {
        let kept = lock(&KEPT).contains(&info.ordinal);
        let primary = || Owner::primary(device).and_then(Owner::with_stream);
        let first = if kept { None } else { Some(primary()) };
        // What broke the primary context: a driver that keeps everything else from the process too gives other codes then.
        let broken = match &first {
            Some(Err((answer, doing))) if code::is_sticky(*answer) => Some(code::error(*answer, doing)),
            Some(Ok(_)) => None,
            _ => lock(&FAULTS).get(&info.ordinal).cloned(),
        };
        let opened = match first {
            Some(Err(refusal)) if broken.is_none() => Err(refusal),
            Some(Ok(opened)) => Ok((opened, false)),
            // The kernel that broke the primary context, or keeps it, is not in a new one.
            _ => Owner::own(device).and_then(Owner::with_stream).map(|opened| (opened, true)),
        };
        let at_last = |e: Error| match &broken {
            Some(broken) => broken.clone().within("the driver makes no new context either").help("restart the process"),
            None => e,
        };
        let ((context, stream), beside) = opened.map_err(|(answer, doing)| at_last(code::error(answer, doing)))?;
        let (stream, work) = (ManuallyDrop::new(stream), Mutex::default());
        let inner = Inner { info, context, stream, lost: OnceLock::new(), work, limit: AtomicU64::new(0) };
        if beside {
            inner.try_out().map_err(at_last)?;
        }
        Ok(inner)
    }

    /// Whether a context beside a given up one gets anything done: a hung kernel may keep the whole device.
    fn try_out(&self) -> Result<()> {
        let stream = self.stream();
        // SAFETY: the memory is given back once, below.
        let memory = self.make("allocating on the device again", || unsafe { cuda_malloc::<u8>(1) })?;
        let address = memory.as_raw();
        // SAFETY: the memory has one byte.
        let filled = self.call("using the device again", || unsafe { api::cuMemsetD8Async(address, 0, 1, stream) });
        let done = filled.and_then(|()| self.wait_within("using the device again", FIRST_WORK));
        self.release(Owned::Memory(address));
        done.map_err(|e| e.within("an earlier kernel still keeps the device").help("restart the process"))
    }

    pub(super) fn stream(&self) -> api::CUstream {
        self.stream.as_inner()
    }

    /// The stream as cust's own calls take it.
    pub(super) fn queue(&self) -> &Stream {
        &self.stream
    }

    pub(super) fn is(&self, other: &Inner) -> bool {
        self.context.raw() == other.context.raw()
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// What a wait may take.
    pub(super) fn limit(&self) -> Option<Duration> {
        match self.limit.load(Ordering::Relaxed) {
            0 => None,
            us => Some(Duration::from_micros(us)),
        }
    }

    pub(super) fn set_limit(&self, limit: Option<Duration>) {
        let us = limit.map_or(0, |limit| u64::try_from(limit.as_micros()).unwrap_or(u64::MAX).max(1));
        self.limit.store(us, Ordering::Relaxed);
    }

    pub(super) fn work(&self) -> MutexGuard<'_, Work> {
        lock(&self.work)
    }

    /// The launches that nobody has seen finish.
    pub(super) fn pending(&self) -> Option<String> {
        self.work().pending.describe()
    }

    /// Notes what was put on the stream.
    pub(super) fn launched(&self, launch: &Arc<str>) {
        let mut work = self.work();
        match &mut work.recording {
            Some((_, launches)) => launches.push(launch.clone()),
            None => work.pending.add(launch.clone()),
        }
    }

    /// Makes the context current and runs one driver call, unless an earlier error has ended all work.
    pub(super) fn call<A: Answer>(&self, doing: &str, call: impl FnOnce() -> A) -> Result<()> {
        if let Some(lost) = self.lost.get() {
            return Err(lost.error.clone().within(format!("so this cannot be done now: {doing}")));
        }
        let mut answer = self.make_current();
        if answer == 0 {
            answer = call().code();
        }
        if !code::is_sticky(answer) {
            return code::check(answer, doing);
        }
        let since = self.pending().map(|launches| format!("launched and not seen to end: {launches}"));
        let with = |error: Error| since.iter().fold(error, |error, since| error.within(since.clone()));
        let error = with(code::error(answer, "an earlier kernel"));
        lock(&FAULTS).entry(self.info.ordinal).or_insert_with(|| error.clone());
        let _ = self.lost.set(Lost { error, hung: false });
        Err(with(code::error(answer, doing)))
    }

    /// Makes the context current on this thread. On the host of an H200 asking which one is takes 14 ns, and setting it 28.
    fn make_current(&self) -> c_int {
        let mut current: api::CUcontext = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let known = unsafe { api::cuCtxGetCurrent(&mut current) }.code();
        if known == 0 && current == self.context.raw() {
            return 0;
        }
        // SAFETY: the handle is of a live context.
        unsafe { api::cuCtxSetCurrent(self.context.raw()) }.code()
    }

    /// As [`Inner::call`], with what a function of cust made or read.
    pub(super) fn make<T>(&self, doing: &str, make: impl FnOnce() -> CudaResult<T>) -> Result<T> {
        let mut made = None;
        self.call(doing, || make().map(|value| made = Some(value)))?;
        made.ok_or_else(|| Error::bug(Code::DriverMade, format!("{doing}: success without a value")))
    }

    /// Leaves the context to a kernel that does not end; the error of every later call.
    pub(super) fn give_up(&self, error: Error) -> Error {
        if matches!(self.context, Owner::Primary(_)) {
            lock(&KEPT).insert(self.info.ordinal);
        }
        self.lost.get_or_init(|| Lost { error, hung: true }).error.clone()
    }

    /// Gives something back: at once, or when the recording or the kernel that is in the way has ended.
    pub(super) fn release(&self, owned: Owned) {
        let mut work = self.work();
        let records = work.recording.as_ref().is_some_and(|r| r.0 == thread::current().id());
        if records || self.lost.get().is_some_and(|lost| lost.hung) {
            work.waiting.push(owned);
            return;
        }
        drop(work);
        // Its failure changes nothing for anyone: after a fault the driver has it no more.
        if owned.is_waited_for() && self.settle("releasing").is_err() && self.lost.get().is_some_and(|lost| lost.hung) {
            return self.work().waiting.push(owned);
        }
        let stream = self.stream();
        let mut owned = Some(owned);
        let _ = self.call("releasing", || owned.take().map_or(0, |owned| owned.give_back(stream)));
        // After a fault the driver does nothing more and no kernel runs: what another library owns goes back without it.
        if let Some(Owned::Foreign(foreign)) = owned {
            foreign.give_back();
        }
    }

    /// From now on this thread records.
    pub(super) fn start_recording(&self) {
        self.work().recording = Some((thread::current().id(), Vec::new()));
    }

    /// The launches recorded; what was to be given back meanwhile is.
    pub(super) fn end_recording(&self) -> Vec<Arc<str>> {
        let mut work = self.work();
        let (launches, waiting) = (work.recording.take(), std::mem::take(&mut work.waiting));
        drop(work);
        waiting.into_iter().for_each(|owned| self.release(owned));
        launches.map(|recording| recording.1).unwrap_or_default()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.lost.get().is_none() {
            let _ = self.settle("closing the device");
        }
        match self.lost.get().map(|lost| lost.hung) {
            Some(false) => return self.context.close(),
            // A kernel that still runs keeps its context; whoever closes it would wait for it.
            Some(true) if !self.has_ended() => return,
            Some(true) => drop(lock(&KEPT).remove(&self.info.ordinal)),
            None => {}
        }
        let stream = self.stream();
        if self.make_current() == 0 {
            for owned in std::mem::take(&mut self.work().waiting) {
                owned.give_back(stream);
            }
            let _ = self.stream.synchronize();
            // SAFETY: the field is not used again.
            unsafe { ManuallyDrop::drop(&mut self.stream) };
        }
        self.context.close();
    }
}

impl Inner {
    /// Whether a kernel that was given up has ended after all.
    fn has_ended(&self) -> bool {
        let stream = self.stream();
        // SAFETY: context and stream live: a hung kernel keeps them.
        let ask = || unsafe { api::cuStreamQuery(stream) };
        self.make_current() == 0 && poll(Duration::ZERO, ask) == 0
    }
}

/// The driver's answer, and what was being done.
type Refusal = (c_int, &'static str);

const CONTEXT: &str = "opening the device's context";

impl Owner {
    fn primary(device: cust::device::Device) -> Result<Owner, Refusal> {
        let mut probe: api::CUcontext = std::ptr::null_mut();
        // cust does not look whether the context became current and can be used, so it is retained here first.
        // SAFETY: writes one handle.
        good(unsafe { api::cuDevicePrimaryCtxRetain(&mut probe, device.as_raw()) }, CONTEXT)?;
        let context = Context::new(device).map_err(|e| refusal(e, CONTEXT));
        // SAFETY: gives back the one retain above; cust's own keeps the context alive.
        unsafe { api::cuDevicePrimaryCtxRelease_v2(device.as_raw()) };
        Ok(Owner::Primary(ManuallyDrop::new(context?)))
    }

    fn own(device: cust::device::Device) -> Result<Owner, Refusal> {
        let mut context: api::CUcontext = std::ptr::null_mut();
        // SAFETY: writes one handle.
        good(unsafe { api::cuCtxCreate_v2(&mut context, 0, device.as_raw()) }, CONTEXT)?;
        Ok(Owner::Own(context))
    }

    /// Makes it current and makes a stream in it; closes it where that fails.
    fn with_stream(mut self) -> Result<(Owner, Stream), Refusal> {
        // SAFETY: the handle is of a live context.
        let current = good(unsafe { api::cuCtxSetCurrent(self.raw()) }, "making the device current");
        // A blocking stream: plain copies, which run on the default stream, wait for it and it for them.
        let make = |()| Stream::new(StreamFlags::DEFAULT, None).map_err(|e| refusal(e, "making a stream"));
        match current.and_then(make) {
            Ok(stream) => Ok((self, stream)),
            Err(refusal) => {
                self.close();
                Err(refusal)
            }
        }
    }

    fn raw(&self) -> api::CUcontext {
        match self {
            Owner::Primary(context) => context.as_raw(),
            Owner::Own(context) => *context,
        }
    }

    /// Gives it back, with all that is in it if nobody else has it. Not to be used again.
    fn close(&mut self) {
        // SAFETY: this is called once, at the end, and no handle of the context is used afterwards.
        unsafe {
            match self {
                Owner::Primary(context) => ManuallyDrop::drop(context),
                Owner::Own(context) => _ = api::cuCtxDestroy_v2(*context),
            }
        }
    }
}

impl Owned {
    /// Whether giving it back waits for the work on the stream.
    fn is_waited_for(&self) -> bool {
        matches!(self, Owned::Memory(_) | Owned::Foreign(_) | Owned::Module(_))
    }

    fn give_back(self, stream: api::CUstream) -> c_int {
        // SAFETY: each was made by the driver in the context that is current, and is given back once. The driver itself
        // waits for work that uses memory.
        unsafe {
            match self {
                Owned::Memory(address) => cuda_free(DevicePointer::<u8>::from_raw(address)).code(),
                Owned::Foreign(foreign) => {
                    // Its owner does not know of this stream.
                    let code = api::cuStreamSynchronize(stream).code();
                    foreign.give_back();
                    code
                }
                Owned::Module(module) => {
                    // Its code may still be running.
                    api::cuStreamSynchronize(stream);
                    api::cuModuleUnload(module).code()
                }
                Owned::Event(event) => match cust::event::Event::drop(ManuallyDrop::into_inner(event)) {
                    Ok(()) => 0,
                    Err((error, event)) => {
                        // Nothing is given back twice, even if the driver refused it.
                        std::mem::forget(event);
                        Err::<(), _>(error).code()
                    }
                },
                Owned::Graph(graph) => api::cuGraphDestroy(graph).code(),
                Owned::Exec(exec) => api::cuGraphExecDestroy(exec).code(),
            }
        }
    }
}

fn good(answer: impl Answer, doing: &'static str) -> Result<(), Refusal> {
    match answer.code() {
        0 => Ok(()),
        code => Err((code, doing)),
    }
}

fn refusal(error: CudaError, doing: &'static str) -> Refusal {
    (Err::<(), _>(error).code(), doing)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
