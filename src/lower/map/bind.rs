//! Bound loops become hardware indices.
//!
//! All loops bound to one axis share its variable; the loops of a role's staged buffers share that of the role. A loop bound to warps
//! counts groups of 32 threads, x fastest, and adds no axis to the launch. `units` says which threads run a statement.
//!
//! The row and column of a rasterized blockIdx loop are computed first and keep their names; those of any other rasterized loop are
//! substituted.
//!
//! A ping-pong loop stays a loop until the pass `roles`. A persistent loop stays a loop, and its variable is that of blockIdx.x.

use crate::error::{Code, Error, Result, Subject};
use crate::ir::lowered::threads;
use crate::ir::lowered::{Derived, LaunchAxis, LoweredKernel};
use crate::ir::simplify;
use crate::ir::{Axis, Cond, Expr, For, Func, Index, LoopKind, Raster, RoleId, Stmt, Store, Var, visit};
use crate::lower::bug;
use crate::lower::map::blocks::guarded;
use crate::lower::map::grid;
use crate::lower::map::units;
use crate::lower::map::walks;
use crate::lower::pipeline::roles;
use crate::lower::target::admit::admit_threads;
use crate::target::Target;
use std::collections::BTreeMap;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, target: &Target) -> Result<()> {
    let walked = grid::walked(&kernel.func)?;
    let owners = owners(&kernel.func.body);
    kernel.launch = launch(&mut kernel.func, &owners, walked)?;
    admit_threads(kernel, target)?;
    kernel.roles = roles::threads(&mut kernel.func, &owners)?;
    check_shadowing(&kernel.func.body, &kernel.func, &mut Vec::new())?;
    let units = units::of(&kernel.func)?;
    let body = std::mem::take(&mut kernel.func.body);
    kernel.func.body = unbind_all(kernel, body, &owners)?;
    units::elect(kernel, &units);
    Ok(())
}

/// The role whose statements alone are inside a loop, by loop.
pub type Owners = BTreeMap<Var, RoleId>;

fn owners(body: &[Stmt]) -> Owners {
    visit::loops(body).into_iter().filter_map(|l| Some((l.var, visit::role_of(&l.body)?))).collect()
}

/// The axes in use, each with one new variable named after it; blockIdx.x with that of the loop that the blocks walk.
fn launch(func: &mut Func, owners: &Owners, walked: Option<Var>) -> Result<Vec<LaunchAxis>> {
    let mut found = found(func, |l, axis| axis.is_block_level() || !owners.contains_key(&l.var))?;
    units::warps_to_threads(func, &mut found)?;
    found.sort_by_key(|(axis, ..)| *axis);
    let of_axis = |(axis, extent, _): (Axis, u32, String)| {
        let var = walked.filter(|_| axis == Axis::BlockX).unwrap_or_else(|| func.add_var(axis.name()));
        LaunchAxis { axis, var, extent }
    };
    Ok(found.into_iter().map(of_axis).collect())
}

/// The axes that these bound loops come to.
pub fn found(func: &Func, takes: impl Fn(&For, Axis) -> bool) -> Result<units::Found> {
    let mut found: units::Found = Vec::new();
    for l in visit::loops(&func.body) {
        let Some(axis) = l.axis().filter(|a| takes(l, *a)) else { continue };
        let name = func.var_name(l.var).to_string();
        let extent = l.extent.as_int().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0).ok_or_else(|| {
            Error::input(
                Code::LowerExtent,
                format!("loop {name} is bound to {}, but its extent is not a positive 32-bit constant", axis.name()),
            )
            .about_loop(&name)
            .about(Subject::Axis(axis.name()))
        })?;
        match found.iter().find(|(a, ..)| *a == axis) {
            None => found.push((axis, extent, name)),
            Some((_, n, other)) if *n != extent => {
                return Err(Error::input(
                    Code::LowerExtents,
                    format!(
                        "{} has two extents in one kernel: {n} by loop {other} and {extent} by loop {name}",
                        axis.name()
                    ),
                )
                .about(Subject::Axis(axis.name()))
                .help(format!(
                    "split {name} so that its bound part has extent {n}; a predicate covers what is left over"
                )));
            }
            Some(_) => {}
        }
    }
    Ok(found)
}

/// Inside a second loop of an axis nothing may speak of the first.
fn check_shadowing(body: &[Stmt], func: &Func, around: &mut Vec<(Axis, Var)>) -> Result<()> {
    for stmt in body {
        if let Stmt::For(l) = stmt
            && let Some(axis) = l.axis()
        {
            if let Some((_, outer)) = around.iter().find(|(a, v)| *a == axis && mentions(&l.body, *v)) {
                return Err(Error::input(
                    Code::LowerShadow,
                    format!(
                        "loops {} and {} are both bound to {}, one inside the other, and statements inside use both",
                        func.var_name(*outer),
                        func.var_name(l.var),
                        axis.name()
                    ),
                )
                .about(Subject::Axis(axis.name()))
                .help(
                    "only a shared staged buffer that does not depend on the outer loop may be filled over the same \
                       axis",
                ));
            }
            let outside = around.len();
            around.extend(l.defines().into_iter().map(|(var, _)| (axis, var)));
            check_shadowing(&l.body, func, around)?;
            around.truncate(outside);
            continue;
        }
        for child in visit::children(stmt) {
            check_shadowing(child, func, around)?;
        }
    }
    Ok(())
}

/// Whether any index or condition in the body speaks of the variable.
pub fn mentions(body: &[Stmt], var: Var) -> bool {
    let mut found = false;
    visit::walk(body, &mut |s| match s {
        Stmt::Store(s) => found |= store_mentions(s, var),
        Stmt::If(i) => found |= i.cond.mentions(var),
        Stmt::For(l) => found |= l.extent.mentions(var),
        _ => {}
    });
    found
}

pub fn store_mentions(store: &Store, var: Var) -> bool {
    let mut found = store.indices.iter().any(|i| i.mentions(var));
    visit::walk_expr(&store.value, &mut |e| match e {
        Expr::Load { indices, .. } => found |= indices.iter().any(|i| i.mentions(var)),
        Expr::Index(_, i) => found |= i.mentions(var),
        Expr::Cond(c) => found |= c.mentions(var),
        _ => {}
    });
    found
}

/// Removes the bound loops and the rasterized walks.
fn unbind_all(kernel: &mut LoweredKernel, body: Vec<Stmt>, owners: &Owners) -> Result<Vec<Stmt>> {
    let grouped = units::has_warpgroups(&body);
    let mut unbind = Unbind { kernel, owners, grouped, derived: Vec::new(), failed: None };
    let body = visit::rewrite(body, &mut |s| match s {
        Stmt::For(l) => unbind.one(l),
        other => vec![other],
    });
    match unbind.failed {
        Some(error) => Err(error),
        None => Ok(body),
    }
}

struct Unbind<'a> {
    kernel: &'a mut LoweredKernel,
    owners: &'a Owners,
    /// Warps are counted in their warpgroups.
    grouped: bool,
    /// The walks of the blocks whose rows and columns are derived.
    derived: Vec<(Axis, Raster)>,
    failed: Option<Error>,
}

/// Whether a unit has an iteration, where there are more units than iterations: a role may have idle warps.
fn has_iteration(number: &Index, units: i64, l: &For) -> Option<Cond> {
    l.extent.as_int().filter(|n| *n < units).map(|n| Cond::lt(number.clone(), n))
}

impl Unbind<'_> {
    fn one(&mut self, mut l: For) -> Vec<Stmt> {
        if l.is_pingpong() {
            // The pass `roles` gives each warpgroup its iteration, and the producer all of them.
            return vec![Stmt::For(l)];
        }
        let owner = self.owners.get(&l.var).copied().filter(|_| l.axis().is_some_and(|a| !a.is_block_level()));
        let launch = self.kernel.axes_of(owner);
        let of_threads = match l.axis() {
            Some(Axis::Warp) if self.grouped && owner.is_none() => Some(threads::warp_of_group(launch)),
            Some(Axis::Warp) => Some(threads::warp(launch)),
            Some(Axis::Warpgroup) => Some(threads::warpgroup(launch)),
            _ => None,
        };
        if let Some(number) = of_threads {
            let units =
                launch.iter().filter(|x| !x.axis.is_block_level()).map(|x| i64::from(x.extent)).product::<i64>();
            let has = has_iteration(&number, units / threads::LANES, &l).filter(|_| owner.is_some());
            let body = visit::subst_body(l.body, &[(l.var, number)].into());
            return guarded(has.unwrap_or(Cond::TRUE), body);
        }
        let axis = l.axis().and_then(|a| launch.iter().find(|x| x.axis == a)).copied();
        let index = Index::Var(axis.map_or(l.var, |x| x.var));
        let has = axis.filter(|_| owner.is_some()).and_then(|x| has_iteration(&index, i64::from(x.extent), &l));
        l.body = match (l.raster.take(), axis.filter(|x| x.axis.is_block_level())) {
            (None, _) => visit::subst_body(l.body, &[(l.var, index)].into()),
            (Some(raster), None) => match self.values(&raster, index) {
                Some([row, column]) => visit::subst_body(l.body, &[(raster.outer, row), (raster.inner, column)].into()),
                None => l.body,
            },
            (Some(raster), Some(x)) => self.walked(x, raster, l.body),
        };
        match axis {
            Some(_) if l.is_persistent() => {
                let round = format!("{}_round", self.kernel.func.var_name(l.var));
                let round = self.kernel.func.add_var(round);
                vec![Stmt::For(For::new(l.var, l.extent, LoopKind::Persistent { round }, l.body))]
            }
            Some(_) => guarded(has.unwrap_or(Cond::TRUE), l.body),
            None => vec![Stmt::For(l)],
        }
    }

    /// Walks of the same pair over the same axis share their row and column.
    fn walked(&mut self, at: LaunchAxis, raster: Raster, body: Vec<Stmt>) -> Vec<Stmt> {
        let alike = |(a, r): &&(Axis, Raster)| *a == at.axis && r.walks_like(&raster);
        if let Some((_, first)) = self.derived.iter().find(alike) {
            let map = [(raster.outer, Index::Var(first.outer)), (raster.inner, Index::Var(first.inner))].into();
            return visit::subst_body(body, &map);
        }
        let Some(values) = self.values(&raster, Index::Var(at.var)) else { return body };
        let env = self.kernel.env();
        let pair = [(raster.outer, &raster.outer_extent), (raster.inner, &raster.inner_extent)];
        for ((var, extent), value) in pair.into_iter().zip(&values) {
            let Some(extent) = extent.as_int() else {
                self.failed.get_or_insert(bug(Code::LowerBind, "a rasterized pair has no constant extents"));
                continue;
            };
            let value = simplify::simplify(value, &env);
            self.kernel.derived.push(Derived { var, value, extent });
        }
        self.derived.push((at.axis, raster));
        body
    }

    fn values(&mut self, raster: &Raster, walk: Index) -> Option<[Index; 2]> {
        let values = walks::values(raster, walk);
        if values.is_none() {
            self.failed.get_or_insert(bug(Code::LowerBind, "a rasterized pair has no constant extents"));
        }
        values
    }
}
