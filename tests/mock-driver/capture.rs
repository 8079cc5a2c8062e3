//! Graphs: work recorded from a stream, and calls that spoil a recording.

use crate::device::put;
use crate::state::{CURRENT, Exec, Graph, Handle, Outcome, State, When, call};
use crate::stream::Task;
use std::ffi::c_void;
use std::thread;

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: Handle, mode: i32) -> i32 {
    call("cuStreamBeginCapture_v2", When::Current, mode.to_string(), |state| {
        let stream = state.own(stream)?;
        let stream = state.streams.get_mut(&stream).ok_or(400)?;
        if stream.capture.is_some() {
            return Err(401);
        }
        stream.capture = Some((thread::current().id(), Some(Vec::new())));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) -> i32 {
    call("cuStreamEndCapture", When::Current, String::new(), |state| {
        let stream = state.own(stream)?;
        let capture = state.streams.get_mut(&stream).ok_or(400)?.capture.take();
        let (_, tasks) = capture.ok_or(401)?;
        let tasks = tasks.ok_or(901)?;
        let nodes = tasks.iter().map(|_| state.handle()).collect();
        let handle = state.handle();
        state.graphs.insert(handle, Graph { context: CURRENT.get(), tasks, nodes });
        // SAFETY: the caller's pointer, as the prototype asks.
        unsafe { put(graph, handle as Handle) }
    })
}

#[cfg(not(age = "11.3"))]
#[unsafe(no_mangle)]
extern "C" fn cuGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, flags: u64) -> i32 {
    call("cuGraphInstantiateWithFlags", When::Current, flags.to_string(), |state| {
        let tasks = state.graphs.get(&(graph as usize)).ok_or(400)?.tasks.clone();
        let handle = state.handle();
        state.execs.insert(handle, Exec { context: CURRENT.get(), tasks });
        // SAFETY: as above.
        unsafe { put(exec, handle as Handle) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(exec: Handle, stream: Handle) -> i32 {
    call("cuGraphLaunch", When::Current, String::new(), |state| {
        let tasks = state.execs.get(&(exec as usize)).ok_or(400)?.tasks.clone();
        tasks.into_iter().try_for_each(|task| state.enqueue(stream, task))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: Handle) -> i32 {
    call("cuGraphDestroy", When::Release, String::new(), |state| {
        state.graphs.remove(&(graph as usize)).map(|_| ()).ok_or(400)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(exec: Handle) -> i32 {
    call("cuGraphExecDestroy", When::Release, String::new(), |state| {
        state.execs.remove(&(exec as usize)).map(|_| ()).ok_or(400)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize) -> i32 {
    call("cuGraphGetNodes", When::Current, String::new(), |state| {
        let own = &state.graphs.get(&(graph as usize)).ok_or(400)?.nodes;
        // SAFETY: the caller gives room for as many nodes as it says, or none and asks for the number.
        unsafe {
            if !nodes.is_null() {
                own.iter().take(*count).enumerate().for_each(|(i, node)| nodes.add(i).write(*node as Handle));
            }
            put(count, own.len())
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphNodeGetType(node: Handle, kind: *mut i32) -> i32 {
    call("cuGraphNodeGetType", When::Current, String::new(), |state| {
        // CU_GRAPH_NODE_TYPE_KERNEL, _MEMCPY, _MEMSET, _EVENT_RECORD, _MEM_ALLOC, _MEM_FREE.
        let number = match state.task_of(node)? {
            Task::Launch(_) => 0,
            Task::Copy { .. } => 1,
            Task::Fill { .. } => 2,
            Task::Record(_) => 7,
            Task::Allocate(_) => 10,
            Task::Free(_) => 11,
        };
        // SAFETY: the caller's pointer, as the prototype asks.
        unsafe { put(kind, number) }
    })
}

/// CUDA_KERNEL_NODE_PARAMS_v2.
#[repr(C)]
struct NodeParams {
    function: Handle,
    extents: [u32; 7],
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    kernel: Handle,
    context: Handle,
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphKernelNodeGetParams_v2(node: Handle, params: *mut NodeParams) -> i32 {
    call("cuGraphKernelNodeGetParams_v2", When::Current, String::new(), |state| {
        let Task::Launch(kernel) = state.task_of(node)? else { return Err(1) };
        // SAFETY: the caller's structure.
        unsafe { (*params).function = kernel.handle as Handle };
        Ok(())
    })
}

impl State {
    fn task_of(&self, node: Handle) -> Outcome<&Task> {
        let found = |graph: &'_ Graph| graph.nodes.iter().position(|n| *n == node as usize);
        let (graph, at) = self.graphs.values().find_map(|g| Some((g, found(g)?))).ok_or(400)?;
        Ok(&graph.tasks[at])
    }

    /// For calls that may not be made while this thread records: they fail and spoil the recording.
    pub fn spoil_captures(&mut self) -> Outcome {
        let own = thread::current().id();
        let recording = |s: &&mut crate::state::Stream| s.capture.as_ref().is_some_and(|c| c.0 == own);
        let spoilt = self.streams.values_mut().filter(recording).map(|s| s.capture = Some((own, None))).count();
        if spoilt == 0 { Ok(()) } else { Err(900) }
    }

    /// For calls that may not be made on a stream that records.
    pub fn spoil(&mut self, stream: usize) -> Outcome {
        let stream = self.streams.get_mut(&stream).ok_or(400)?;
        match &mut stream.capture {
            Some((_, tasks)) => {
                *tasks = None;
                Err(900)
            }
            None => Ok(()),
        }
    }
}
