//! The same counts by running: the simulator tells of every request, and each is judged by the same rules.

use super::access::Runs;
use super::boxes::Rows;
use super::request::{self, Lanes};
use super::site::{Agent, Sites};
use crate::array::Array;
use crate::error::Result;
use crate::ir::Scope;
use crate::ir::lowered::Lowered;
use crate::sim::{self, BoxCopy, Event, EventKind, Options};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// What the requests of one access came to in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Observed {
    /// Requests of warps.
    pub requests: u64,
    /// Wavefronts of shared memory, or sectors of device memory.
    pub cost: u64,
    /// Those without conflicts, or of the same bytes together.
    pub ideal: u64,
    /// Of bulk copies and of tiles behind descriptors, bytes.
    pub bytes: u64,
    /// Of bulk copies, lines of device memory, and as few as hold the bytes of each row.
    pub lines: [u64; 2],
    /// Of shared memory, the most different words that one bank was asked for at once.
    pub degree: u64,
}

/// What ran, by kernel and number of the access or of the statement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ran {
    /// Accesses of shared and device memory.
    pub accesses: BTreeMap<(usize, u32), Observed>,
    /// Every statement.
    pub statements: BTreeMap<(usize, u32), Runs>,
    /// By kernel, the most bytes of bulk loads that were under way to a block at one time.
    pub in_flight: BTreeMap<usize, u64>,
}

/// How an access goes from elements to bytes.
#[derive(Debug, Clone, Copy)]
struct Addressing {
    bits: i64,
    offset: i64,
    width: i64,
    write: bool,
    shared: bool,
    /// Elements of a tile behind a descriptor.
    tile: i64,
}

/// Runs a lowered program and counts what every access and every statement does.
///
/// # Errors
/// As [`sim::run_lowered_with`].
pub fn observe(lowered: &Lowered, options: &Options, args: &mut [Array]) -> Result<Ran> {
    let shapes: Vec<BTreeMap<u32, Addressing>> = lowered.kernels.iter().map(shapes).collect();
    let counter = Rc::new(RefCell::new(Count { shapes, ran: Ran::default(), flying: BTreeMap::new() }));
    let heard = Rc::clone(&counter);
    sim::run_lowered_observed(lowered, options, args, move |event| heard.borrow_mut().hear(event))?;
    let mut counter = counter.borrow_mut();
    Ok(std::mem::take(&mut counter.ran))
}

/// Counting what is heard of a run.
struct Count {
    shapes: Vec<BTreeMap<u32, Addressing>>,
    ran: Ran,
    /// Bytes on their way, by kernel and block of the cluster.
    flying: BTreeMap<(usize, usize), i64>,
}

impl Count {
    fn hear(&mut self, event: &Event<'_>) {
        match event.what {
            EventKind::Request(request) => self.request(event.kernel, &request),
            EventKind::Statement(s) => {
                let runs = self.ran.statements.entry((event.kernel, s.number)).or_default();
                runs.warps += 1;
                runs.threads += u64::from(s.active.count_ones());
            }
            EventKind::Box(copy) => self.copy(event.kernel, &copy),
            EventKind::Tile(tile) => self.tile(event.kernel, &tile),
            EventKind::Flight(flight) => {
                let bytes = self.flying.entry((event.kernel, flight.rank)).or_default();
                *bytes += flight.bytes;
                let most = self.ran.in_flight.entry(event.kernel).or_default();
                *most = u64::try_from(*bytes).unwrap_or(0).max(*most);
            }
            // What makes warps go on costs nothing by itself.
            EventKind::Arrival(_)
            | EventKind::Landing(_)
            | EventKind::Over(_)
            | EventKind::Passed(_)
            | EventKind::Meeting(_) => {}
        }
    }

    fn shape(&self, kernel: usize, access: u32) -> Option<Addressing> {
        self.shapes.get(kernel)?.get(&access).copied()
    }

    fn add(&mut self, kernel: usize, access: u32, n: Observed) {
        let one = self.ran.accesses.entry((kernel, access)).or_default();
        one.requests += n.requests;
        one.cost += n.cost;
        one.ideal += n.ideal;
        one.bytes += n.bytes;
        (one.lines[0], one.lines[1]) = (one.lines[0] + n.lines[0], one.lines[1] + n.lines[1]);
        one.degree = one.degree.max(n.degree);
    }

    fn request(&mut self, kernel: usize, request: &sim::Request<'_>) {
        let Some(shape) = self.shape(kernel, request.access) else { return };
        let byte = |e: i64| (e * shape.bits).div_euclid(8) + shape.offset;
        let lanes = Lanes { at: request.elements.map(byte), active: request.active };
        let (cost, ideal, degree) = if shape.shared {
            let c = request::bank_conflicts(&lanes, shape.width, shape.write);
            (c.wavefronts, c.ideal, c.degree)
        } else {
            let s = request::sectors(&lanes, shape.width);
            (s.touched, s.ideal, 0)
        };
        self.add(kernel, request.access, Observed { requests: 1, cost, ideal, degree, ..Observed::default() });
    }

    /// A box, row by row, by the elements that were copied.
    fn copy(&mut self, kernel: usize, copy: &BoxCopy<'_>) {
        let [shared, global] = copy.accesses;
        let Some(shape) = self.shape(kernel, global) else { return };
        let bytes = |elements: i64| elements * shape.bits / 8;
        let mut rows = Rows::default();
        for row in copy.elements.chunks(copy.row.max(1)) {
            let inside = || row.iter().flatten();
            if let (Some(first), Some(last)) = (inside().min(), inside().max()) {
                rows.row(bytes(*first), bytes(last - first + 1));
            }
        }
        let ([cost, ideal], lines) = (rows.sectors, rows.lines);
        self.add(kernel, global, Observed { requests: 1, cost, ideal, bytes: rows.bytes, lines, degree: 0 });
        let whole = bytes(copy.elements.len() as i64) as u64 * copy.blocks as u64;
        let (requests, bytes) = if shape.write { (1, rows.bytes) } else { (copy.blocks as u64, whole) };
        self.add(kernel, shared, Observed { requests, cost: bytes, ideal: bytes, bytes, ..Observed::default() });
    }

    /// What the warps of a warpgroup read of a tile: rows of their own, or the same for all, which counts once.
    fn tile(&mut self, kernel: usize, tile: &sim::Tile<'_>) {
        let Some(shape) = self.shape(kernel, tile.access) else { return };
        let distinct: BTreeSet<i64> = tile.elements.iter().copied().collect();
        let same = distinct.len() as i64 == shape.tile;
        let bytes = if same && tile.warp > 0 { 0 } else { distinct.len() as u64 * shape.bits as u64 / 8 };
        let requests = u64::from(tile.warp == 0);
        self.add(kernel, tile.access, Observed { requests, cost: bytes, ideal: bytes, bytes, ..Observed::default() });
    }
}

fn shapes(kernel: &crate::ir::lowered::LoweredKernel) -> BTreeMap<u32, Addressing> {
    let func = &kernel.func;
    let sites = Sites::of(kernel, 1);
    let memory = sites.accesses.iter().filter(|a| matches!(a.scope(func), Scope::Shared | Scope::Global));
    let shape = |a: &super::site::Site<'_>| Addressing {
        bits: a.dtype(func).bits().into(),
        offset: func.buffer(a.buffer).offset.unwrap_or(0).into(),
        width: a.width(func),
        write: a.write,
        shared: a.scope(func) == Scope::Shared,
        tile: if let Agent::Product(d) = a.by { d.tile[0] * d.tile[1] } else { 0 },
    };
    memory.map(|a| (a.number, shape(a))).collect()
}
