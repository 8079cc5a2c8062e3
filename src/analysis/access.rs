//! One access: how many requests, what they cost, and the request that costs most.

use super::count::{self, AddressQuery, Class, Method};
use super::geometry::Geometry;
use super::report::{AccessCost, Cost, Counted};
use super::request::{self, Lanes};
use super::site::{Agent, Around, Site, Sites};
use super::{advice, bounds, boxes, roles};
use crate::ir::lowered::LoweredKernel;
use crate::ir::{BufferId, Descriptor, Index, Scope, Var};
use serde::Serialize;

/// Warps of a warpgroup.
pub const GROUP: u64 = 4;

/// The warps of a launch that run a statement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Runs {
    /// Times that a warp runs it, by one active lane or more.
    pub warps: u64,
    /// Times that a thread runs it.
    pub threads: u64,
}

/// A kernel whose accesses are counted.
pub struct Counter<'k> {
    /// The kernel.
    pub kernel: &'k LoweredKernel,
    /// Its threads and ranges.
    pub geometry: Geometry,
    /// Its accesses.
    pub sites: Sites<'k>,
}

/// What the requests of an access come to.
pub struct Measured {
    /// How it was counted.
    pub method: Method,
    /// Requests.
    pub requests: u64,
    /// Lanes that take part in them.
    pub lanes: u64,
    /// Their cost.
    pub cost: Cost,
    /// First and last element.
    pub range: Option<(i64, i64)>,
    /// The first of the warps whose requests cost most: its lanes' elements, and which lanes run.
    pub worst: Option<Lanes>,
}

impl Measured {
    /// Nothing, for a reason.
    pub fn refused(why: &'static str) -> Measured {
        let cost = Cost::Engine { bytes: 0 };
        Measured { method: Method::Unknown(why), requests: 0, lanes: 0, cost, range: None, worst: None }
    }
}

impl<'k> Counter<'k> {
    /// Of a kernel whose head is printed at that line.
    pub fn new(kernel: &'k LoweredKernel, first_line: usize) -> Counter<'k> {
        Counter { kernel, geometry: Geometry::of(kernel), sites: Sites::of(kernel, first_line) }
    }

    /// The most elements that one access of a buffer moves.
    pub fn widest(&self, buffer: BufferId) -> u32 {
        let of = self.sites.accesses.iter().filter(|a| a.buffer == buffer);
        of.map(|a| a.lanes).max().unwrap_or(1)
    }

    /// Calls `f` on the classes of an index, up to multiples of the modulus, in what runs under conditions; with one value of
    /// the fixed indices in each.
    pub fn classes(
        &self,
        around: &Around<'_>,
        (index, modulus): (&Index, i64),
        fixed: &[Index],
        f: &mut dyn FnMut(&Class),
    ) -> Method {
        if around.data.iter().any(|(v, ..)| index.mentions(*v) || fixed.iter().any(|i| i.mentions(*v))) {
            return Method::Unknown("an index of it is a datum");
        }
        let Some(crew) = self.geometry.crew(around) else {
            return Method::Unknown(
                "the warps of its role are not warps of a block whose threads are numbered along threadIdx.x alone",
            );
        };
        let constant = |(var, extent): (Var, Index)| Some((var, extent.as_int()?));
        let loops: Option<Vec<_>> = around.loops.iter().flat_map(|l| l.defines()).map(constant).collect();
        let Some(loops) = loops else { return Method::Unknown("a loop around it has no constant extent") };
        let question = AddressQuery { crew: &crew, loops: &loops, conds: &around.conds, index, modulus, fixed };
        count::classes(&self.geometry, &question, f)
    }

    /// How often a statement runs, and how that was counted.
    pub fn runs(&self, around: &Around<'_>) -> (Runs, Method) {
        let mut runs = Runs::default();
        let method = self.classes(around, (&0.into(), 1), &[], &mut |class| {
            runs.warps = runs.warps.saturating_add(class.times);
            let threads = class.times.saturating_mul(class.active.count_ones().into());
            runs.threads = runs.threads.saturating_add(threads);
        });
        (runs, method)
    }

    /// Counts the requests of an access of shared or device memory.
    pub fn measure(&self, site: &Site<'_>) -> Measured {
        let func = &self.kernel.func;
        match site.by {
            Agent::Copy(copy) => return boxes::measure(self, site, copy),
            Agent::Product(tile) => return self.product(site, tile),
            Agent::Lanes => {}
        }
        let (bits, width) = (i64::from(site.dtype(func).bits()), site.width(func));
        let shared = site.scope(func) == Scope::Shared;
        let offset = i64::from(func.buffer(site.buffer).offset.unwrap_or(0));
        // What addresses mean for a cost repeats with words of banks, or with sectors.
        let period = if shared { request::WORD } else { request::SECTOR };
        let modulus = (period * 8 / bits.max(1)).max(1);
        let mut all = if shared { Tally::shared() } else { Tally::global() };
        let method = self.classes(&site.around, (&site.index, modulus), &[], &mut |class| {
            let byte = |e: i64| e.saturating_mul(bits).div_euclid(8).saturating_add(offset);
            let lanes = Lanes { at: class.elements.map(byte), active: class.active };
            all.add(class, &lanes, width, site.write);
        });
        Measured {
            method,
            requests: all.requests,
            lanes: all.lanes,
            cost: all.cost,
            range: all.range,
            worst: all.worst,
        }
    }

    /// A tile that a warpgroup's product reads: all of it once, whether each warp uses all of it or its own rows.
    fn product(&self, site: &Site<'_>, tile: Descriptor) -> Measured {
        let (runs, method) = self.runs(&site.around);
        let requests = runs.warps / GROUP;
        let elements = u64::try_from(tile.tile[0].saturating_mul(tile.tile[1])).unwrap_or(0);
        let bytes = site.dtype(&self.kernel.func).bytes_of(elements).saturating_mul(requests);
        Measured { method, requests, lanes: 0, cost: Cost::Engine { bytes }, range: None, worst: None }
    }

    /// The cost of an access.
    pub fn cost_report(&self, site: &Site<'_>) -> AccessCost {
        let func = &self.kernel.func;
        let measured = self.measure(site);
        let counted = measured.range.filter(|_| measured.method == Method::Exact);
        let crew = site.around.role.map_or(self.geometry.warps.len(), |r| r.warps as usize);
        let warps = self.kernel.grid().iter().map(|n| f64::from(*n)).product::<f64>() * crew as f64;
        AccessCost {
            number: site.number,
            line: site.place.0,
            column: site.place.1,
            block: site.around.block.map(str::to_string),
            text: site.text.clone(),
            buffer: func.buffer(site.buffer).name.clone(),
            kind: if site.write { "store" } else { "load" },
            width: site.width(func),
            method: match measured.method {
                Method::Exact if site.around.on_data => Counted::EveryLane,
                Method::Exact => Counted::Exact,
                Method::Sampled => Counted::Sampled,
                Method::Unknown(_) => Counted::Not,
            },
            why: match measured.method {
                Method::Unknown(why) => Some(why),
                _ => None,
            },
            by: match site.by {
                Agent::Lanes if site.asynchronous => Some("cp.async"),
                Agent::Lanes => None,
                Agent::Copy(_) => Some("bulk copy"),
                Agent::Product(_) => Some("descriptor"),
            },
            role: site.around.role.map(|r| roles::name(func, r)),
            requests: measured.requests,
            lanes: measured.lanes,
            requests_per_warp: measured.requests as f64 / warps.max(1.0),
            cost: measured.cost,
            bounds: bounds::of(self.kernel, site, counted),
            advice: advice::of(self, site, &measured),
        }
    }
}

/// Sums over classes.
struct Tally {
    requests: u64,
    lanes: u64,
    cost: Cost,
    range: Option<(i64, i64)>,
    worst: Option<Lanes>,
}

impl Tally {
    fn shared() -> Tally {
        Tally::of(Cost::Shared { wavefronts: 0, ideal: 0, worst: 0, worst_ideal: 0, degree: 0 })
    }

    fn global() -> Tally {
        Tally::of(Cost::Global { sectors: 0, ideal: 0, worst: 0, worst_ideal: 0 })
    }

    fn of(cost: Cost) -> Tally {
        Tally { requests: 0, lanes: 0, cost, range: None, worst: None }
    }

    fn add(&mut self, class: &Class, lanes: &Lanes, width: i64, write: bool) {
        self.requests = self.requests.saturating_add(class.times);
        self.lanes = self.lanes.saturating_add(class.times.saturating_mul(class.active.count_ones().into()));
        let joined = |r: (i64, i64)| (r.0.min(class.range.0), r.1.max(class.range.1));
        self.range = Some(self.range.map_or(class.range, joined));
        let worse = match &mut self.cost {
            Cost::Shared { wavefronts, ideal, worst, worst_ideal, degree } => {
                let c = request::bank_conflicts(lanes, width, write);
                *degree = (*degree).max(c.degree);
                sum(class, (wavefronts, ideal), (worst, worst_ideal), (c.wavefronts, c.ideal))
            }
            Cost::Global { sectors, ideal, worst, worst_ideal } => {
                let s = request::sectors(lanes, width);
                sum(class, (sectors, ideal), (worst, worst_ideal), (s.touched, s.ideal))
            }
            Cost::Box { .. } | Cost::Engine { .. } => false,
        };
        if worse {
            self.worst = Some(Lanes { at: class.first, active: class.active });
        }
    }
}

/// Adds a request that occurs several times; whether it is the worst so far, by the ratio to its ideal.
fn sum(class: &Class, total: (&mut u64, &mut u64), worst: (&mut u64, &mut u64), one: (u64, u64)) -> bool {
    *total.0 = total.0.saturating_add(class.times.saturating_mul(one.0));
    *total.1 = total.1.saturating_add(class.times.saturating_mul(one.1));
    let ratio = |a: u64, b: u64| a as f64 / b.max(1) as f64;
    let worse = ratio(one.0, one.1) > ratio(*worst.0, *worst.1);
    if worse {
        (*worst.0, *worst.1) = one;
    }
    worse
}
