//! Graphs: launches recorded once and replayed together, so that gaps between short kernels shrink.

use super::context::Owned;
use super::device::Device;
use super::driver::{self, api, api::Answer};
use crate::error::Result;
use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

/// Work recorded from a device's stream. The buffers and programs that it uses must outlive it.
#[derive(Debug)]
pub struct Graph {
    device: Device,
    graph: api::CUgraph,
    exec: api::CUgraphExec,
    /// What is said of it where it does not end.
    work: Arc<str>,
}

impl Device {
    /// Records what `work` puts on the device's stream, without running it. Other threads leave the stream alone meanwhile.
    ///
    /// What cannot be recorded (allocating, waiting, copying to the host) fails inside `work`.
    ///
    /// # Errors
    /// Those of `work`; `driver.*` where the driver refuses to record or to build the graph.
    pub fn capture(&self, work: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let recording = Recording::start(self)?;
        let worked = work();
        let ended = recording.end();
        worked?;
        let mut graph = ended?;
        let (source, exec) = (graph.graph, &mut graph.exec);
        // SAFETY: the graph was just recorded.
        let make = || unsafe { api::cuGraphInstantiateWithFlags(exec, source, 0) };
        self.inner.call("building a graph", make)?;
        Ok(graph)
    }
}

/// A stream that records. It ends in any case, else the stream would stay unusable.
struct Recording<'a>(&'a Device);

impl Recording<'_> {
    fn start(device: &Device) -> Result<Recording<'_>> {
        let stream = device.inner.stream();
        // SAFETY: the stream lives.
        let begin = || unsafe { api::cuStreamBeginCapture_v2(stream, api::CAPTURE_THREAD_LOCAL) };
        device.inner.call("starting to record a graph", begin)?;
        device.inner.start_recording();
        Ok(Recording(device))
    }

    fn end(self) -> Result<Graph> {
        std::mem::ManuallyDrop::new(self).finish()
    }

    fn finish(&self) -> Result<Graph> {
        let (inner, stream) = (&self.0.inner, self.0.inner.stream());
        let mut raw: api::CUgraph = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let ended =
            inner.call("ending the recording of a graph", || unsafe { api::cuStreamEndCapture(stream, &mut raw) });
        let launches = inner.end_recording();
        let work = format!("a graph of {} launches", launches.len()).into();
        let graph = Graph { device: self.0.clone(), graph: raw, exec: std::ptr::null_mut(), work };
        ended.map(|()| graph)
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

impl Graph {
    /// Puts the recorded work on the device's stream.
    ///
    /// # Errors
    /// `driver.*` where the driver refuses the launch.
    pub fn launch(&self) -> Result<()> {
        let stream = self.device.inner.stream();
        // SAFETY: the graph was built for this context.
        self.device.inner.call("launching a graph", || unsafe { api::cuGraphLaunch(self.exec, stream) })?;
        self.device.inner.launched(&self.work);
        Ok(())
    }

    /// The names of the recorded kernels, in no promised order; empty where the driver (before CUDA 12.3) cannot tell.
    pub fn kernel_names(&self) -> Vec<String> {
        self.nodes().into_iter().filter_map(|node| self.name_of(node)).collect()
    }

    fn nodes(&self) -> Vec<api::CUgraphNode> {
        let mut count = 0usize;
        let graph = self.graph;
        // SAFETY: with no room given, only the count is written.
        let ask = || unsafe { api::cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count) };
        if self.device.inner.call("counting a graph's nodes", ask).is_err() {
            return Vec::new();
        }
        let mut nodes: Vec<api::CUgraphNode> = vec![std::ptr::null_mut(); count];
        // SAFETY: there is room for `count` handles.
        let list = || unsafe { api::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count) };
        if self.device.inner.call("listing a graph's nodes", list).is_err() {
            return Vec::new();
        }
        nodes.truncate(count);
        nodes
    }

    fn name_of(&self, node: api::CUgraphNode) -> Option<String> {
        let driver = driver::driver().ok()?;
        // SAFETY: the types are the prototypes of these names.
        let (params_of, function_name, kernel_name) = unsafe {
            (
                driver.late::<api::KernelNodeParams>("cuGraphKernelNodeGetParams_v2", "12.0").ok()?,
                driver.late::<api::NameOf>("cuFuncGetName", "12.3").ok()?,
                driver.late::<api::NameOf>("cuKernelGetName", "12.3").ok()?,
            )
        };
        let mut kind: c_int = -1;
        // SAFETY: writes one int, which is never read as the bindings' enum.
        if unsafe { api::cuGraphNodeGetType(node, (&raw mut kind).cast()) }.code() != 0 || kind != api::NODE_KERNEL {
            return None;
        }
        // SAFETY: all fields may be zero.
        let mut params: api::KernelNode = unsafe { std::mem::zeroed() };
        // SAFETY: the node is a kernel's, and the structure has the layout of version 2.
        if unsafe { params_of(node, &mut params) } != 0 {
            return None;
        }
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: the handles come from the driver; it writes a pointer to a name that lives as long as the kernel.
        let code = unsafe {
            match params.function.is_null() {
                false => function_name(&mut name, params.function.cast()),
                true => kernel_name(&mut name, params.kernel),
            }
        };
        // SAFETY: a name that was written is a C string.
        (code == 0 && !name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if !self.exec.is_null() {
            self.device.inner.release(Owned::Exec(self.exec));
        }
        if !self.graph.is_null() {
            self.device.inner.release(Owned::Graph(self.graph));
        }
    }
}
