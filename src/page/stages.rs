//! Stages of shared memory on the timeline: when each is filled, holds data, and is read.

use super::drawing::Span;
use super::lanes::{self, Lane};
use super::record::Numbered;
use crate::ir::{BufferId, Func, Scope, Stmt, Way, visit};
use crate::lower::LoweredKernel;
use crate::sim::Mbarrier;
use std::collections::{BTreeMap, BTreeSet};

/// The most stages of one buffer that get a lane each.
const MOST_STAGES: i64 = 16;

/// Something that fills or reads a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// From when, until when.
    pub time: (u32, u32),
    /// Whether it fills the stage.
    pub write: bool,
    /// The line of the lowered program.
    pub line: usize,
    /// Who does.
    pub by: &'static str,
}

/// Buffers that go round together.
#[derive(Debug)]
struct Ring<'k> {
    buffers: Vec<BufferId>,
    names: Vec<&'k str>,
    stages: i64,
    /// The arrays of mbarriers that say that a stage is full, and that it is empty.
    full: Option<u32>,
    empty: Option<u32>,
    /// The number of its first stage.
    first: usize,
}

/// The stages of a kernel.
#[derive(Debug)]
pub struct Stages<'k> {
    rings: Vec<Ring<'k>>,
    /// Elements of a stage of each buffer.
    sizes: BTreeMap<BufferId, i64>,
    /// By rank and stage, what filled and read it.
    activities: BTreeMap<(usize, usize), Vec<Activity>>,
    /// By rank and stage, when it was released.
    released: BTreeMap<(usize, usize), Vec<u32>>,
}

impl<'k> Stages<'k> {
    /// The stages of the shared buffers that a kernel accesses. Buffers whose loads arrive at one array of mbarriers are one ring, and so
    /// are buffers of several stages without mbarriers.
    pub fn of(kernel: &'k LoweredKernel, numbered: &Numbered<'_>, pipelined: &BTreeMap<String, i64>) -> Stages<'k> {
        let mut rings: Vec<Ring<'k>> = Vec::new();
        let mut sizes = BTreeMap::new();
        let mut used: Vec<BufferId> = numbered.accesses.iter().map(|a| a.buffer).collect();
        used.sort_unstable();
        used.dedup();
        for id in used.into_iter().filter(|id| kernel.func.buffer(*id).scope == Scope::Shared) {
            let name = kernel.func.buffer(id).name.as_str();
            let stages = pipelined.get(name).copied().filter(|n| (1..=MOST_STAGES).contains(n)).unwrap_or(1);
            let elements = kernel.func.buffer(id).elements().unwrap_or(1).max(1);
            sizes.insert(id, (elements + stages - 1) / stages);
            let full = numbered.statements.iter().find_map(|s| match s.stmt {
                Stmt::Bulk(b) if b.shared == id => match &b.way {
                    Way::Load { full, .. } => Some(full.barrier),
                    Way::Store => None,
                },
                _ => None,
            });
            let same = |r: &&mut Ring<'_>| r.stages == stages && r.full == full && (stages > 1 || full.is_some());
            match rings.iter_mut().find(same) {
                Some(ring) => {
                    ring.buffers.push(id);
                    ring.names.push(name);
                }
                None => {
                    let empty = full.and_then(|full| partner(kernel, full));
                    rings.push(Ring { buffers: vec![id], names: vec![name], stages, full, empty, first: 0 });
                }
            }
        }
        let mut first = 0;
        for ring in &mut rings {
            ring.first = first;
            first += ring.stages as usize;
        }
        Stages { rings, sizes, activities: BTreeMap::new(), released: BTreeMap::new() }
    }

    /// The names of the stages.
    pub fn names(&self) -> Vec<String> {
        let of = |ring: &Ring<'_>| {
            let (names, stages) = (ring.names.join(", "), ring.stages);
            (0..stages).map(move |n| if stages > 1 { format!("{names} stage {n}") } else { names.clone() }).collect()
        };
        self.rings.iter().flat_map(|ring| -> Vec<String> { of(ring) }).collect()
    }

    /// Something fills or reads elements of a buffer.
    pub fn touch(&mut self, rank: usize, buffer: BufferId, (first, last): (i64, i64), activity: Activity) {
        let Some(ring) = self.rings.iter().find(|r| r.buffers.contains(&buffer)) else { return };
        let size = self.sizes.get(&buffer).copied().unwrap_or(1).max(1);
        let stage = |element: i64| (element / size).clamp(0, ring.stages - 1) as usize;
        // What is between belongs to a swizzle or to rows that are apart, and is of one stage.
        let [first, last] = [stage(first), stage(last)].map(|n| (rank, ring.first + n));
        for key in if first == last { vec![first] } else { vec![first, last] } {
            let all = self.activities.entry(key).or_default();
            let same = |a: &&mut Activity| {
                (a.write, a.line, a.by) == (activity.write, activity.line, activity.by) && a.time.1 >= activity.time.0
            };
            match all.last_mut().filter(same).filter(|a| a.time.0 <= activity.time.1) {
                Some(a) => a.time = (a.time.0.min(activity.time.0), a.time.1.max(activity.time.1)),
                None => all.push(activity),
            }
        }
    }

    /// The rank and number of the stage that an mbarrier speaks of.
    pub fn lane_of(&self, at: Mbarrier) -> Option<(usize, usize)> {
        let ring = self.rings.iter().find(|r| r.full == Some(at.array) || r.empty == Some(at.array))?;
        let index = usize::try_from(at.index).ok().filter(|n| (*n as i64) < ring.stages)?;
        Some((at.rank, ring.first + index))
    }

    /// A phase of an mbarrier ends.
    pub fn phase(&mut self, at: Mbarrier, time: u32) {
        let releases = self.rings.iter().any(|r| r.empty == Some(at.array));
        if let Some(key) = self.lane_of(at).filter(|_| releases) {
            self.released.entry(key).or_default().push(time);
        }
    }

    /// Each stage's life: filled, full, read, and so on.
    pub fn spans(&mut self, lanes: &[Lane]) -> Vec<Span> {
        let names = self.names();
        let mut out = Vec::new();
        for (key, mut all) in std::mem::take(&mut self.activities) {
            let Some(lane) = lanes::stage(lanes, key) else { continue };
            all.sort_by_key(|a| a.time);
            let name = names.get(key.1).map_or("", String::as_str);
            let released = self.released.get(&key).cloned().unwrap_or_default();
            life(&mut out, (lane, name), &runs(&all), &released);
        }
        out
    }
}

/// Consecutive activities of one kind together.
fn runs(all: &[Activity]) -> Vec<Activity> {
    let mut out: Vec<Activity> = Vec::new();
    for a in all {
        match out.last_mut().filter(|last| last.write == a.write) {
            Some(last) => last.time.1 = last.time.1.max(a.time.1),
            None => out.push(*a),
        }
    }
    out
}

fn life(out: &mut Vec<Span>, (lane, name): (usize, &str), runs: &[Activity], released: &[u32]) {
    let mut push = |from: u32, to: u32, kind, line, text| {
        if from < to {
            out.push(Span { lane, from, to, kind, line, text, runs: 1 });
        }
    };
    for (n, run) in runs.iter().enumerate() {
        let (from, to) = run.time;
        let next = runs.get(n + 1);
        let (kind, verb) = if run.write { ("fill", "filled") } else { ("read", "read") };
        push(from, to, kind, run.line, format!("{name} is {verb} by {}", run.by));
        match next {
            Some(next) if run.write && !next.write => {
                push(to, next.time.0, "full", next.line, format!("{name} is full and waits for its readers"));
            }
            // Between two reads, or read and not yet released.
            next if !run.write => {
                let until = next.map_or(u32::MAX, |n| n.time.0);
                if let Some(at) = released.iter().find(|at| (to..=until).contains(at)) {
                    let line = run.line;
                    push(to, *at, "full", line, format!("{name} has been read; not all readers have released it"));
                }
            }
            _ => {}
        }
    }
}

/// The stages of each buffer that a pipeline of a scheduled program makes a ring, by the buffer's name.
pub fn pipelined(func: &Func) -> BTreeMap<String, i64> {
    let mut out = BTreeMap::new();
    for l in visit::loops(&func.body) {
        let Some(pipeline) = l.pipeline else { continue };
        // A pipelined loop inside has its own stages.
        let inner: BTreeSet<BufferId> = visit::loops(&l.body)
            .iter()
            .filter(|inner| inner.pipeline.is_some())
            .flat_map(|inner| visit::writes(&inner.body))
            .collect();
        for id in visit::writes(&l.body).into_iter().filter(|id| !inner.contains(id)) {
            if func.buffer(id).scope == Scope::Shared {
                out.insert(func.buffer(id).name.clone(), i64::from(pipeline.stages));
            }
        }
    }
    out
}

/// The array of mbarriers that releases what another one says is full: it has as many, and the name that `roles` gives it.
fn partner(kernel: &LoweredKernel, full: u32) -> Option<u32> {
    let array = kernel.func.mbarriers.get(full as usize)?;
    let name = format!("{}_empty", array.name.strip_suffix("_full")?);
    let at = kernel.func.mbarriers.iter().position(|b| b.name == name && b.slots == array.slots)?;
    u32::try_from(at).ok()
}
