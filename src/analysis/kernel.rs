//! One kernel: its accesses together, its arithmetic, its registers and how many of its blocks run at once.

use super::access::{Counter, Runs};
use super::advice;
use super::caches::{self, CacheTraffic};
use super::ceilings::AtLeast;
use super::predicted::Predicted;
use super::registers;
use super::report::{AccessCost, Cost, KernelCost, Occupancy, Totals};
use super::roles::{self, StatementCost, Tallies};
use super::site::{Does, Statement};
use super::traffic::RequestKind;
use crate::intrin;
use crate::ir::lowered::LoweredKernel;
use crate::ir::{BinOp, Call, Expr, Func, Scope};
use crate::target::{Device, Target};

/// Counts what a kernel costs whose head is printed at that line.
pub fn cost_report(kernel: &LoweredKernel, first_line: usize, target: &Target, device: Device) -> KernelCost {
    let counter = Counter::new(kernel, first_line);
    let sites = &counter.sites;
    let memory = sites.accesses.iter().filter(|a| matches!(a.scope(&kernel.func), Scope::Shared | Scope::Global));
    let accesses: Vec<AccessCost> = memory.map(|a| counter.cost_report(a)).collect();
    let (mut totals, mut tallies) = (Totals::default(), Tallies::new(&counter));
    totals.product_clocks = Some(0.0);
    for access in &accesses {
        totals.access(access);
        tallies.access(access);
    }
    let mut statements = Vec::new();
    for statement in &sites.statements {
        let counted = counter.runs(&statement.around);
        totals.statement((&kernel.func, device), statement, counted.0, &mut tallies);
        tallies.statement(&kernel.func, statement, counted.0);
        statements.push(StatementCost::of(&counter, statement, counted));
    }
    totals.ratios(kernel);
    let registers = registers::estimate(kernel, sites);
    let mut report = KernelCost {
        name: kernel.func.name.clone(),
        grid: kernel.grid(),
        block: kernel.block(),
        warps: counter.geometry.warps.len() as u64,
        shared_bytes: kernel.shared_bytes,
        occupancy: Occupancy { blocks: 0, warps: 0, max_warps: 0, limited_by: "", registers: registers.estimate },
        registers,
        waves: None,
        totals,
        compiled: None,
        caches: CacheTraffic::default(),
        at_least: AtLeast::default(),
        predicted: Predicted::default(),
        advice: Vec::new(),
        bytes_in_flight: tallies.in_flight(&kernel.func),
        roles: tallies.roles.into_iter().filter(|r| !r.instructions.is_empty()).collect(),
        mbarriers: tallies.mbarriers,
        uncounted: uncounted(&accesses, &statements),
        accesses,
        statements,
    };
    report.fill(target, device);
    report.caches = caches::traffic(&counter, &report, &device);
    report.at_least = AtLeast::of(&report, &device);
    report.advice = advice::of_kernel(&report, &counter, device);
    report
}

/// What no sum holds.
fn uncounted(accesses: &[AccessCost], statements: &[StatementCost]) -> Vec<String> {
    let accesses =
        accesses.iter().filter_map(|a| Some(format!("line {}, {} of {}: {}", a.line, a.kind, a.text, a.why?)));
    accesses.chain(statements.iter().filter_map(|s| Some(format!("{}: {}", s.what, s.why?)))).collect()
}

impl KernelCost {
    /// Works out occupancy and waves from the registers that are known.
    pub(super) fn fill(&mut self, target: &Target, device: Device) {
        let threads = self.block.iter().fold(1u32, |n, e| n.saturating_mul(*e));
        // A compiler gives out no more than what a block fits with, and keeps the rest in local memory.
        let most = target.registers_for(threads);
        let estimate = self.registers.estimate;
        let assembled = self.registers.ptxas.as_ref().map(|p| p.registers);
        self.registers.spilled = if assembled.is_some() { 0 } else { estimate.saturating_sub(most) };
        let registers = assembled.unwrap_or(estimate.min(most));
        let found = target.occupancy(threads, registers, self.shared_bytes);
        self.occupancy = Occupancy {
            blocks: found.blocks,
            warps: found.warps,
            max_warps: found.max_warps,
            limited_by: found.limited_by.name(),
            registers,
        };
        let places = f64::from(found.blocks) * f64::from(device.multiprocessors);
        self.waves = (places > 0.0).then(|| self.blocks() as f64 / places);
    }

    /// Blocks of the grid.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().fold(1, |n, e| n.saturating_mul(u64::from(*e)))
    }
}

impl Totals {
    fn access(&mut self, access: &AccessCost) {
        let (asynchronous, write) = (access.by == Some("cp.async"), access.kind == "store");
        let shared = match access.cost {
            Cost::Shared { .. } => true,
            Cost::Global { .. } => false,
            _ => return self.traffic.engine(access.by == Some("descriptor"), write, access),
        };
        let kind = RequestKind { shared, write, asynchronous };
        self.traffic.request(kind, access.requests, access.cost.total().0);
        if kind.write || !asynchronous {
            self.traffic.instructions = self.traffic.instructions.saturating_add(access.requests);
        }
    }

    fn statement(
        &mut self,
        (func, device): (&Func, Device),
        statement: &Statement<'_>,
        runs: Runs,
        tallies: &mut Tallies,
    ) {
        let store = match statement.does {
            Does::Store(store) => store,
            Does::Call(call) => return self.call((func, device), call, runs),
            Does::Bulk(_) => {
                self.traffic.instructions = self.traffic.instructions.saturating_add(runs.warps);
                return;
            }
            Does::Sync(_) => return,
        };
        let lanes = u64::from(store.lanes.max(1));
        let work = Work::of(&store.value);
        let times = |n: u64| n.saturating_mul(lanes).saturating_mul(runs.threads);
        let operations = times(2 * work.fma + work.floating);
        self.operations = self.operations.saturating_add(operations);
        let issued = |n: u64| n.saturating_mul(lanes).saturating_mul(runs.warps);
        let traffic = &mut self.traffic;
        traffic.fma = traffic.fma.saturating_add(times(work.fma));
        traffic.instructions = traffic.instructions.saturating_add(issued(work.fma + work.floating + work.other));
        traffic.fma_instructions = traffic.fma_instructions.saturating_add(issued(work.fma));
        let role = statement.around.role.map(|r| roles::name(func, r));
        let both = |n: u64| Runs { warps: issued(n), threads: times(n) };
        tallies.add(role.as_deref(), "fma", both(work.fma), operations);
        tallies.add(role.as_deref(), "other arithmetic", both(work.floating + work.other), 0);
    }

    /// The products of an instruction count as the operations that they are. (One that moves data counts as an access.)
    fn call(&mut self, (func, device): (&Func, Device), call: &Call, runs: Runs) {
        if let Some(row) = intrin::find(&call.row).filter(|r| r.action.accumulates()) {
            let operations = roles::operations(row, runs);
            self.operations = self.operations.saturating_add(operations);
            let types = |n: usize| call.operands.get(n).map(|o| func.buffer(o.buffer).dtype);
            let rate = types(1).zip(types(0)).and_then(|(factor, sum)| device.operations_per_clock(factor, sum));
            self.product_clocks = self.product_clocks.zip(rate).map(|(clocks, rate)| clocks + operations as f64 / rate);
            self.traffic.instructions = self.traffic.instructions.saturating_add(runs.warps);
            self.traffic.tensor_instructions = self.traffic.tensor_instructions.saturating_add(runs.warps);
        }
    }

    fn ratios(&mut self, kernel: &LoweredKernel) {
        let over = |a: u64, b: u64| (b > 0).then(|| a as f64 / b as f64);
        let params = kernel.func.params.iter().map(|p| kernel.func.buffer(*p));
        let bytes = params.map(|b| b.dtype.bytes_of(b.elements().and_then(|n| u64::try_from(n).ok()).unwrap_or(0)));
        self.operations_per_global_byte = self.traffic.per_global_byte(self.operations);
        self.operations_per_argument_byte = over(self.operations, bytes.fold(0, u64::saturating_add));
        self.fma_share = self.traffic.fma_share();
    }
}

/// Instructions on the data of one element.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Work {
    fma: u64,
    /// Other floating-point operations.
    floating: u64,
    other: u64,
}

impl Work {
    fn of(value: &Expr) -> Work {
        let mut work = Work::default();
        work.count(value);
        work
    }

    fn count(&mut self, value: &Expr) {
        match value {
            Expr::Const(..) | Expr::Index(..) | Expr::Cond(_) | Expr::Load { .. } => {}
            Expr::Splat(_, a) => self.count(a),
            Expr::Un(_, a) | Expr::Cast(_, a) | Expr::Shuffle(_, a) => {
                self.other += 1;
                self.count(a);
            }
            Expr::Bin(BinOp::Add | BinOp::Sub, a, b) if is_product(b) => self.fused(b, a),
            Expr::Bin(BinOp::Add | BinOp::Sub, a, b) if is_product(a) => self.fused(a, b),
            Expr::Bin(op, a, b) => {
                match op {
                    BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Div => self.floating += 1,
                    _ => self.other += 1,
                }
                self.count(a);
                self.count(b);
            }
            Expr::Cmp(_, a, b) => {
                self.other += 1;
                self.count(a);
                self.count(b);
            }
            Expr::Select(c, a, b) => {
                self.other += 1;
                [c, a, b].into_iter().for_each(|e| self.count(e));
            }
            Expr::Gather { index, value, .. } => {
                self.count(index);
                self.count(value);
            }
        }
    }

    fn fused(&mut self, product: &Expr, rest: &Expr) {
        self.fma += 1;
        if let Expr::Bin(_, x, y) = product {
            self.count(x);
            self.count(y);
        }
        self.count(rest);
    }
}

fn is_product(e: &Expr) -> bool {
    matches!(e, Expr::Bin(BinOp::Mul, ..))
}
