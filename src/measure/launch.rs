//! What a launch costs the host: ours, with its checks, beside the driver's call alone, and as one of a graph.
//!
//! A round of launches is shorter than the driver's queue, and the stream is empty before it: a full one makes the host wait.

use super::floor::nothing;
use crate::error::Result;
use crate::kernel::Kernels;
use crate::runtime::{Device, DeviceBuffer, Graph, Program, median};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Launches between two waits.
const ROUND: u64 = 256;
/// Rounds of each way behind a row.
const ROUNDS: usize = 40;
/// Launches in a graph.
const IN_GRAPH: u64 = 16;

/// A small program with arrays, and one whose arrays come by tensor maps into the blocks of clusters.
const PROGRAMS: [(&str, &str); 2] = [
    ("3 arrays", "vec_add 1024\ntarget sm_70\nsplit i ? 128 -> i0 i1\nbind i0 blockIdx.x; bind i1 threadIdx.x\n"),
    (
        "3 arrays, 2 tensor maps, clusters of 2",
        "program maps\n  input A f32[4, 32, 32]\n  input B f32[32, 32]\n\
         add: output C[b 4, i 32, j 32] f32 = A[b, i, j] + B[i, j]\ntarget sm_90\n\
         split b ? 2 -> b0 bc; bind b0 blockIdx.x; bind bc cluster; bind j threadIdx.x\n\
         cache_read add A shared -> A_s; compute_at A_s bc; copy_with A_s tma\n\
         cache_read add B shared -> B_s; compute_at B_s bc; copy_with B_s tma multicast=bc\n",
    ),
];

/// How a kernel is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchPath {
    /// By the driver's call alone, with parameters that were made before.
    Driver,
    /// By [`Program::launch`].
    Warploom,
    /// As one of a graph of 16, which is launched whole.
    Graph,
}

impl LaunchPath {
    /// All of them.
    pub const ALL: [LaunchPath; 3] = [LaunchPath::Driver, LaunchPath::Warploom, LaunchPath::Graph];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            LaunchPath::Driver => "driver",
            LaunchPath::Warploom => "warploom",
            LaunchPath::Graph => "graph",
        }
    }
}

/// Medians of the host's microseconds for a launch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaunchRow {
    /// What the kernel takes.
    pub launch: String,
    /// The device's name.
    pub device: String,
    /// By the driver's call alone.
    pub driver_us: f64,
    /// By ours, with its checks.
    pub warploom_us: f64,
    /// As one of a graph.
    pub graph_us: f64,
}

/// A program ready to be launched in each [`LaunchPath`].
#[derive(Debug)]
pub struct Launches {
    name: String,
    // Before what it uses.
    graph: Graph,
    buffers: Vec<DeviceBuffer>,
    program: Program,
}

/// Buffers for the arguments of a program, filled with zeros.
pub(crate) fn zeroed(program: &Program) -> Result<Vec<DeviceBuffer>> {
    let shape = |arg: &crate::kernel::Arg| -> Vec<usize> { arg.shape.iter().map(|n| *n as usize).collect() };
    let buffers = program.args().iter().map(|arg| program.device().alloc(arg.dtype, &shape(arg)));
    let buffers = buffers.collect::<Result<Vec<_>>>()?;
    buffers.iter().try_for_each(|b| b.fill_bytes(0))?;
    Ok(buffers)
}

impl Launches {
    /// What is launched, each or why it is not: kernels without parameters, plain and in clusters, and small programs with
    /// arrays and tensor maps, which `compile` makes of their text.
    pub fn all(device: &Device, compile: &dyn Fn(&str) -> Result<Kernels>) -> Vec<(&'static str, Result<Launches>)> {
        let bare = [("no parameters", 1), ("no parameters, clusters of 2", 2)].map(|(name, n)| (name, Ok(nothing(n))));
        let programs = PROGRAMS.map(|(name, text)| (name, compile(text)));
        let ready = |(name, kernels): (&'static str, Result<Kernels>)| {
            (name, kernels.and_then(|kernels| Launches::new(device, name, &kernels)))
        };
        bare.into_iter().chain(programs).map(ready).collect()
    }

    fn new(device: &Device, name: &str, kernels: &Kernels) -> Result<Launches> {
        let program = device.load(kernels)?;
        let buffers = zeroed(&program)?;
        let given: Vec<&DeviceBuffer> = buffers.iter().collect();
        program.launch(&given)?;
        device.synchronize()?;
        let graph = device.capture(|| (0..IN_GRAPH).try_for_each(|_| program.launch(&given)))?;
        Ok(Launches { name: name.to_string(), graph, buffers, program })
    }

    /// The host's time for so many launches.
    pub fn time(&self, way: LaunchPath, count: u64) -> Result<Duration> {
        let (mut total, mut left) = (Duration::ZERO, count);
        while left > 0 {
            let now = left.min(ROUND);
            total += self.round(way, now)?;
            self.program.device().synchronize()?;
            left -= now;
        }
        Ok(total)
    }

    fn round(&self, way: LaunchPath, count: u64) -> Result<Duration> {
        let given: Vec<&DeviceBuffer> = self.buffers.iter().collect();
        if way == LaunchPath::Driver {
            return self.program.time_bare_launches(&given, count);
        }
        let start = Instant::now();
        if way == LaunchPath::Warploom {
            (0..count).try_for_each(|_| self.program.launch(&given))?;
            return Ok(start.elapsed());
        }
        let graphs = count.div_ceil(IN_GRAPH);
        (0..graphs).try_for_each(|_| self.graph.launch())?;
        Ok(start.elapsed().mul_f64(count as f64 / (graphs * IN_GRAPH) as f64))
    }

    /// Rounds of each way by turns.
    pub fn row(&self) -> Result<LaunchRow> {
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            for (way, times) in LaunchPath::ALL.into_iter().zip(&mut times) {
                times.push(self.time(way, ROUND)?.as_secs_f64() * 1e6 / ROUND as f64);
            }
        }
        let [driver_us, warploom_us, graph_us] = times.map(|t| median(&t));
        let device = self.program.device().info().name.clone();
        Ok(LaunchRow { launch: self.name.clone(), device, driver_us, warploom_us, graph_us })
    }
}
