//! What the warps of each role run, kind by kind, and what their mbarriers see.

use super::access::{Counter, Runs};
use super::count::Method;
use super::report::{AccessCost, Cost};
use super::site::{Does, Statement};
use crate::intrin::{self, Level, Row};
use crate::ir::simplify::{self, Env};
use crate::ir::{Func, RoleBody, SyncKind, Way};
use serde::Serialize;
use std::collections::BTreeMap;

/// The warps of one role.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RoleCost {
    /// Its name; `compute` is what no role took, `all` what all warps run.
    pub name: String,
    /// Its first warp in the block.
    pub first: u64,
    /// Its warps in a block.
    pub warps: u64,
    /// Registers of a thread that it asks for.
    pub registers: Option<u32>,
    /// Operations in its products and its arithmetic.
    pub operations: u64,
    /// What it runs, by kind.
    pub instructions: BTreeMap<&'static str, Runs>,
}

/// An array of mbarriers, over the launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MbarrierCost {
    /// Its name.
    pub name: String,
    /// How many.
    pub slots: u32,
    /// Waits of warps.
    pub waits: u64,
    /// Arrivals of threads, those that reach several blocks once for each.
    pub arrivals: u64,
    /// Bytes of bulk loads that its phases wait for.
    pub expected_bytes: u64,
}

/// A statement: a store, an instruction, a bulk copy, synchronisation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StatementCost {
    /// What it does.
    pub what: String,
    /// The role whose warps run it.
    pub role: Option<String>,
    /// How often it runs.
    #[serde(flatten)]
    pub runs: Runs,
    /// Why it was not counted.
    pub why: Option<&'static str>,
    /// A condition on data, or first, middle and last values, represent what was not counted one by one.
    pub exact: bool,
}

/// The name of a role.
pub fn name(func: &Func, role: &RoleBody) -> String {
    let found = role.role.and_then(|id| func.roles.get(id.0 as usize));
    found.map_or_else(|| unnamed(func, "compute"), |r| r.name.clone())
}

/// What warps without a role's name are called: in parentheses where a role took the word.
fn unnamed(func: &Func, word: &str) -> String {
    if func.roles.iter().any(|r| r.name == word) { format!("({word})") } else { word.to_string() }
}

/// The warps that execute an instruction together.
pub fn warps_of(row: &Row) -> u64 {
    if row.level == Level::Warpgroup { super::access::GROUP } else { 1 }
}

impl StatementCost {
    /// Of a statement that runs so often.
    pub fn of(counter: &Counter<'_>, statement: &Statement<'_>, (runs, method): (Runs, Method)) -> StatementCost {
        let func = &counter.kernel.func;
        let buffer = |b| func.buffer(b).name.as_str();
        let what = match statement.does {
            Does::Store(s) => format!("store {}", buffer(s.buffer)),
            Does::Call(c) => c.row.clone(),
            Does::Bulk(c) if c.way == Way::Store => format!("bulk store {}", buffer(c.global)),
            Does::Bulk(c) => format!("bulk load {}", buffer(c.shared)),
            Does::Sync(s) => s.kind.word().to_string(),
        };
        StatementCost {
            what,
            role: statement.around.role.map(|r| name(func, r)),
            runs,
            why: if let Method::Unknown(why) = method { Some(why) } else { None },
            exact: method == Method::Exact && !statement.around.on_data,
        }
    }
}

/// Sums by role and by mbarrier.
pub struct Tallies {
    /// By role.
    pub roles: Vec<RoleCost>,
    /// By array.
    pub mbarriers: Vec<MbarrierCost>,
    /// The most bytes that a phase of each array waits for.
    expected: Vec<u64>,
    /// What all warps are called.
    all: String,
    /// The ranges of the kernel's indices.
    env: Env,
}

impl Tallies {
    /// Nothing yet.
    pub fn new(counter: &Counter<'_>) -> Tallies {
        let func = &counter.kernel.func;
        let mut roles: Vec<RoleCost> = Vec::new();
        let all = (unnamed(func, "all"), 0, counter.geometry.warps.len() as u64, None);
        let slices = counter.sites.statements.iter().filter_map(|s| s.around.role);
        let slices = slices.map(|r| (name(func, r), u64::from(r.first), u64::from(r.warps), r.regs));
        for (name, first, warps, registers) in slices.chain([all]) {
            if roles.iter().all(|r| r.name != name) {
                let instructions = BTreeMap::new();
                roles.push(RoleCost { name, first, warps, registers, operations: 0, instructions });
            }
        }
        let array = |b: &crate::ir::Mbarrier| MbarrierCost {
            name: b.name.clone(),
            slots: b.slots,
            waits: 0,
            arrivals: 0,
            expected_bytes: 0,
        };
        let mbarriers: Vec<_> = func.mbarriers.iter().map(array).collect();
        Tallies {
            roles,
            expected: vec![0; mbarriers.len()],
            mbarriers,
            all: unnamed(func, "all"),
            env: counter.kernel.env(),
        }
    }

    fn role(&mut self, name: Option<&str>) -> Option<&mut RoleCost> {
        let wanted = name.unwrap_or(&self.all);
        self.roles.iter_mut().find(|r| r.name == wanted)
    }

    /// Adds instructions of a kind, and operations.
    pub fn add(&mut self, role: Option<&str>, kind: &'static str, runs: Runs, operations: u64) {
        let Some(role) = self.role(role) else { return };
        role.operations = role.operations.saturating_add(operations);
        if runs.warps > 0 {
            let sum = role.instructions.entry(kind).or_default();
            sum.warps = sum.warps.saturating_add(runs.warps);
            sum.threads = sum.threads.saturating_add(runs.threads);
        }
    }

    /// Adds the requests of the lanes of warps.
    pub fn access(&mut self, access: &AccessCost) {
        let kind = match (access.by, access.cost, access.kind) {
            (Some("cp.async"), _, "load") => return,
            (Some("cp.async"), ..) => "cp.async",
            (Some(_), ..) => return,
            (None, Cost::Shared { .. }, "load") => "shared load",
            (None, Cost::Shared { .. }, _) => "shared store",
            (None, _, "load") => "global load",
            (None, ..) => "global store",
        };
        let runs = Runs { warps: access.requests, threads: access.lanes };
        self.add(access.role.as_deref(), kind, runs, 0);
    }

    /// Adds an instruction, a bulk copy or synchronisation.
    pub fn statement(&mut self, func: &Func, statement: &Statement<'_>, runs: Runs) {
        let role = statement.around.role.map(|r| name(func, r));
        let (kind, operations) = match statement.does {
            Does::Store(_) => return,
            Does::Call(call) => match intrin::find(&call.row).filter(|r| r.action.accumulates()) {
                Some(row) => (tensor(row), operations(row, runs)),
                // What moves data is counted by its accesses.
                None => return,
            },
            Does::Bulk(copy) => (if copy.way == Way::Store { "bulk store" } else { "bulk load" }, 0),
            Does::Sync(sync) => {
                self.mbarrier(&sync.kind, runs);
                (sync.kind.word(), 0)
            }
        };
        self.add(role.as_deref(), kind, runs, operations);
    }

    fn mbarrier(&mut self, kind: &SyncKind, runs: Runs) {
        let (SyncKind::Expect { slot, .. } | SyncKind::Arrive { slot, .. } | SyncKind::Await { slot, .. }) = kind
        else {
            return;
        };
        let at = slot.barrier as usize;
        let (Some(array), Some(most)) = (self.mbarriers.get_mut(at), self.expected.get_mut(at)) else { return };
        match kind {
            SyncKind::Await { .. } => array.waits = array.waits.saturating_add(runs.warps),
            SyncKind::Arrive { blocks, .. } => {
                let arrivals = runs.threads.saturating_mul(blocks.unwrap_or(1).into());
                array.arrivals = array.arrivals.saturating_add(arrivals);
            }
            SyncKind::Expect { bytes, .. } => {
                array.arrivals = array.arrivals.saturating_add(runs.threads);
                let bytes = simplify::bounds(bytes, &self.env).map_or(0, |(_, most)| most.max(0) as u64);
                array.expected_bytes = array.expected_bytes.saturating_add(bytes.saturating_mul(runs.threads));
                *most = bytes.max(*most);
            }
            _ => {}
        }
    }

    /// Bytes that all slots of a block can wait for at one time.
    pub fn in_flight(&self, func: &Func) -> u64 {
        let of = func.mbarriers.iter().zip(&self.expected);
        of.map(|(b, bytes)| bytes * u64::from(b.slots) * u64::from(b.arrivals)).fold(0, u64::saturating_add)
    }
}

/// Operations of a product that warps run so often together.
pub fn operations(row: &Row, runs: Runs) -> u64 {
    let products = row.dims.iter().map(|d| d.1.unsigned_abs()).fold(2u64, u64::saturating_mul);
    (runs.warps / warps_of(row)).saturating_mul(products)
}

/// The family of an instruction on the tensor cores.
fn tensor(row: &'static Row) -> &'static str {
    row.name.split('.').next().unwrap_or("")
}
