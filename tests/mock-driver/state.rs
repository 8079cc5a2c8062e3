//! Everything that the driver holds, and the frame of every call: injected failures, contexts that are lost, the journal.

use crate::memory::Memory;
use crate::settings::Settings;
use crate::stream::Task;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, c_char, c_void};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// An opaque handle.
pub type Handle = *mut c_void;
/// What a call comes to: a code of CUresult where it fails.
pub type Outcome<T = ()> = Result<T, i32>;

/// A launch as the test's executor gets it.
#[repr(C)]
pub struct Launch {
    pub entry: *const c_char,
    /// The text of the module.
    pub text: *const c_char,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub shared_bytes: u32,
    /// The parameters one after another, each as long as its size says.
    pub values: *const u8,
    pub sizes: *const usize,
    pub count: usize,
}

/// Runs a kernel on the memory that its parameters name; answers a code.
pub type Executor = unsafe extern "C" fn(*const Launch) -> i32;

pub struct Allocation {
    pub memory: Arc<Memory>,
    pub context: usize,
    pub device: i32,
    /// Whether a stream is to free it.
    pub freed: bool,
}

pub struct Context {
    pub device: i32,
    /// The code that every call answers since a fault.
    pub lost: Option<i32>,
}

pub struct Module {
    pub context: usize,
}

/// Machine code in the making: the PTX behind the mark of an ELF file.
pub struct Link {
    pub context: usize,
    pub code: Vec<u8>,
    /// The caller's room for the errors of the assembler: address and bytes.
    pub errors: Option<(usize, usize)>,
}

#[derive(Clone)]
pub struct Function {
    pub module: usize,
    pub text: Arc<CString>,
    pub name: String,
    /// Bytes of each parameter.
    pub params: Vec<usize>,
    /// The block that the code is compiled for.
    pub block: Option<[u32; 3]>,
    pub max_threads: u32,
    pub max_dynamic_shared: u32,
    pub large_clusters: bool,
}

pub struct Stream {
    pub context: usize,
    /// Work that nobody has waited for.
    pub tasks: Vec<Task>,
    /// Whether a query has already answered "not ready" for this work.
    pub asked: bool,
    pub busy: Busy,
    /// While it captures: the thread that began, and the work recorded so far unless something has spoilt it.
    pub capture: Option<(ThreadId, Option<Vec<Task>>)>,
    /// Whether it keeps out of the default stream's way.
    pub apart: bool,
}

/// Until when a kernel keeps a stream.
#[derive(Clone, Copy, PartialEq)]
pub enum Busy {
    No,
    Until(Instant),
    Forever,
}

pub struct Event {
    pub context: usize,
    /// The stream in which it waits.
    pub pending: Option<usize>,
    /// Milliseconds on the device's own clock.
    pub time: Option<f64>,
}

pub struct Graph {
    pub context: usize,
    pub tasks: Vec<Task>,
    /// A handle for each task.
    pub nodes: Vec<usize>,
}

pub struct Exec {
    pub context: usize,
    pub tasks: Vec<Task>,
}

#[derive(Default)]
pub struct State {
    pub settings: Settings,
    pub executor: Option<Executor>,
    pub journal: Vec<String>,
    /// Calls of each function since the settings were made.
    pub counts: HashMap<&'static str, u64>,
    pub initialised: bool,
    next: usize,
    /// Milliseconds that the device has worked.
    pub clock: f64,
    /// The code that every call answers since a fault that ended the process's work.
    pub ended: Option<i32>,
    /// The primary context of a device and how often it is retained.
    pub primary: HashMap<i32, (usize, u32)>,
    pub contexts: BTreeMap<usize, Context>,
    pub allocations: BTreeMap<u64, Allocation>,
    pub modules: BTreeMap<usize, Module>,
    pub links: BTreeMap<usize, Link>,
    pub functions: BTreeMap<usize, Function>,
    pub streams: BTreeMap<usize, Stream>,
    pub events: BTreeMap<usize, Event>,
    pub graphs: BTreeMap<usize, Graph>,
    pub execs: BTreeMap<usize, Exec>,
    /// Module texts' entries, kept by module.
    pub entries: BTreeMap<usize, Vec<Function>>,
    /// Names that were handed out as C strings.
    pub names: HashMap<String, CString>,
}

thread_local! {
    /// The context that is current on this thread; 0 for none.
    pub static CURRENT: Cell<usize> = const { Cell::new(0) };
}

pub fn state() -> MutexGuard<'static, State> {
    static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| {
        let settings = std::env::var("WARPLOOM_MOCK_SETTINGS").unwrap_or_default();
        let settings = Settings::parse(&settings).unwrap_or_default();
        Mutex::new(State { settings, ..State::default() })
    });
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When a call may be made.
#[derive(Clone, Copy, PartialEq)]
pub enum When {
    Always,
    /// After cuInit.
    Ready,
    /// With a context current on the thread.
    Current,
    /// As above, for what gives something back: it is gone even if the call is made to fail.
    Release,
    /// As [`When::Ready`], for what gives a context back.
    Close,
}

/// What a body answers that has to wait: it is called again a little later, and others may call meanwhile.
pub const WAIT: i32 = i32::MIN;

/// One call: counted, checked, run, written down.
pub fn call(name: &'static str, when: When, arguments: String, mut body: impl FnMut(&mut State) -> Outcome) -> i32 {
    let mut held = state();
    let count = held.counts.entry(name).or_insert(0);
    *count += 1;
    let number = *count;
    let injected = held.settings.failure(name, number);
    let code = loop {
        let answer = held.answer(when, injected, &mut body);
        if answer != WAIT {
            break answer;
        }
        drop(held);
        std::thread::sleep(Duration::from_micros(200));
        held = state();
    };
    let space = if arguments.is_empty() { "" } else { " " };
    held.journal.push(format!("{name}{space}{arguments} -> {code}"));
    code
}

/// Codes after which a context does nothing more (cuda.h).
pub fn sticky(code: i32) -> bool {
    matches!(code, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 721 | 810 | 911)
}

impl State {
    fn answer(&mut self, when: When, injected: Option<i32>, body: &mut impl FnMut(&mut State) -> Outcome) -> i32 {
        let refusal = self.refusal(when);
        let Some(code) = injected else {
            return refusal.or_else(|| body(self).err()).unwrap_or(0);
        };
        // What gives something back does so whatever it answers: the code may be of earlier work.
        if matches!(when, When::Release | When::Close) && refusal.is_none() && body(self) == Err(WAIT) {
            return WAIT;
        }
        if sticky(code) {
            self.lose(CURRENT.get(), code);
        }
        code
    }

    /// Why a call may not be made now.
    fn refusal(&self, when: When) -> Option<i32> {
        if when == When::Always {
            return None;
        }
        if !self.initialised {
            return Some(3);
        }
        if self.ended.is_some() || matches!(when, When::Ready | When::Close) {
            return self.ended;
        }
        match self.contexts.get(&CURRENT.get()) {
            None => Some(201),
            Some(context) => context.lost,
        }
    }

    /// A new handle.
    pub fn handle(&mut self) -> usize {
        self.next += 1;
        0x1000 + self.next * 0x10
    }

    /// Ends all work of a context, or of the process.
    pub fn lose(&mut self, context: usize, code: i32) {
        if self.settings.ends_process {
            self.ended = Some(code);
        }
        if let Some(context) = self.contexts.get_mut(&context) {
            context.lost = context.lost.or(Some(code));
        }
    }

    /// Takes a context and all that lives in it away.
    pub fn destroy(&mut self, context: usize) {
        self.contexts.remove(&context);
        let lost: Vec<u64> = self.allocations.iter().filter(|a| a.1.context == context).map(|a| *a.0).collect();
        lost.into_iter().for_each(|address| crate::memory::free(self, address));
        let modules = &mut self.modules;
        modules.retain(|_, module| module.context != context);
        self.links.retain(|_, link| link.context != context);
        self.functions.retain(|_, function| modules.contains_key(&function.module));
        self.entries.retain(|module, _| modules.contains_key(module));
        self.streams.retain(|_, stream| stream.context != context);
        self.events.retain(|_, event| event.context != context);
        self.graphs.retain(|_, graph| graph.context != context);
        self.execs.retain(|_, exec| exec.context != context);
    }

    /// What has not been given back.
    pub fn live(&self) -> String {
        let plain = self.streams.keys().filter(|stream| !self.contexts.contains_key(stream)).count();
        format!(
            "allocations {}, modules {}, streams {}, events {}, graphs {}, contexts {}",
            self.allocations.len(),
            self.modules.len() + self.links.len(),
            plain,
            self.events.len(),
            self.graphs.len() + self.execs.len(),
            self.contexts.len(),
        )
    }
}
