//! The pass `order` derives all synchronisation: what orders two accesses that depend on each other, and nothing more.
//!
//! | first access | second access | ordered by |
//! |---|---|---|
//! | generic read or write | of the same bytes by another thread | a barrier |
//! | cp.async copy | of the same bytes by the thread that copies | a wait_group of that thread |
//! | cp.async copy | of the same bytes by another thread | a wait_group of the thread that copies, then a barrier |
//! | generic write | a read by wgmma | a proxy fence of the thread that writes, then a barrier |
//! | a read by wgmma, or its accumulators | any other access | a wait for the group of MMAs, then a barrier |
//!
//! At least one of the two accesses writes. The barrier is that of the smallest scope: warp, warpgroup, block. A copy starts after the
//! earlier accesses of its thread, so these need nothing. `rings` has the table of TMA copies.
//!
//! `groups` closes a cp.async group after each run of copies; `walk` counts the groups closed between a copy and the access that
//! needs it, and finds the places; `conflict` decides which accesses conflict; `products` makes groups of asynchronous MMAs.

mod conflict;
mod groups;
mod pending;
pub mod products;
pub(super) mod rings;
mod walk;

use crate::error::{Code, Error, Result, Subject};
use crate::ir::lowered::LoweredKernel;
use crate::ir::lowered::exit;
use crate::ir::lowered::threads;
use crate::ir::verify::Tested;
use crate::ir::{Axis, BulkCopy, For, Func, LoopKind, Stmt, Sync, SyncKind, Var, Way, visit};
use crate::lower::bug;
use crate::target::Target;
use conflict::{By, Level, Meets, Site, Sites};
use std::collections::BTreeMap;
use walk::Walker;

/// Whether a body starts asynchronous copies.
pub fn copies(body: &[Stmt]) -> bool {
    body.iter().any(groups::starts)
}

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let roles = kernel.func.body.iter().any(|s| matches!(s, Stmt::Role(_)));
    if rings::copies(&kernel.func.body) {
        rings::put_in(kernel)?;
    }
    if roles {
        slices(kernel)?;
    } else {
        slice(kernel)?;
    }
    rings::frame(kernel)
}

/// Orders each role on its own: its barriers are those of its own threads, and rings order the accesses of different roles.
fn slices(kernel: &mut LoweredKernel) -> Result<()> {
    let mut exchanged = Vec::new();
    for mut stmt in std::mem::take(&mut kernel.func.body) {
        if let Stmt::Role(role) = &mut stmt {
            let mut own = kernel.clone();
            own.func.body = std::mem::take(&mut role.body);
            let threads = own.launch.iter_mut().filter(|l| !l.axis.is_block_level());
            threads.for_each(|l| l.extent = role.warps * threads::LANES as u32);
            slice(&mut own)?;
            meets_alone(&own.func)?;
            role.body = own.func.body;
            exchanged.extend(own.exchanged);
        }
        kernel.func.body.push(stmt);
    }
    exchanged.sort_unstable();
    exchanged.dedup();
    kernel.exchanged = exchanged;
    Ok(())
}

/// Refuses a cluster barrier in a role: the other roles would never arrive at it.
fn meets_alone(slice: &Func) -> Result<()> {
    let (mut meeting, mut copied) = (None, Vec::new());
    visit::walk(&slice.body, &mut |s| match s {
        Stmt::Sync(sync) if sync.kind == SyncKind::Cluster => {
            meeting.get_or_insert(sync.reason.clone());
        }
        Stmt::Bulk(BulkCopy { shared, way: Way::Load { multicast: Some(_), .. }, .. }) => copied.push(*shared),
        _ => {}
    });
    let Some(reason) = meeting else { return Ok(()) };
    let message = format!("a barrier of all threads of the cluster is needed ({reason}), but the block has roles");
    let copied = copied.into_iter().map(|b| Subject::Buffer(slice.buffer(b).name.clone()));
    Err(Error::input(Code::LowerRole, message)
        .about(Subject::Axis(Axis::Cluster.name()))
        .about_all(copied)
        .help(
            "specialize the buffers that are copied with multicast, too: the ring of a role releases each stage \
               through an mbarrier",
        )
        .help("or remove multicast=, and each block copies for itself"))
}

fn slice(kernel: &mut LoweredKernel) -> Result<()> {
    let copies = copies(&kernel.func.body);
    if !copies && !exit::store(&kernel.func.body) && kernel.thread_vars().iter().all(|(_, n)| *n <= 1) {
        return Ok(());
    }
    if copies {
        kernel.func.body = groups::close(std::mem::take(&mut kernel.func.body), &kernel.func);
    }
    kernel.func.body = products::group(std::mem::take(&mut kernel.func.body), &kernel.func);
    let mut sites = Sites::new(kernel);
    let items = items(&kernel.func.body, &mut sites, &mut 0);
    let walker = Walker::new(&sites, &items);
    let tested = races(&sites, &items, 0)?;
    let mut places: BTreeMap<usize, Vec<Stmt>> = BTreeMap::new();
    for placed in walker.places(&items) {
        places.entry(placed.before).or_default().extend(placed.statements());
    }
    if let Some(reason) = walker.lost() {
        return Err(bug(Code::LowerOrder, format!("no wait covers a load: {reason}")));
    }
    let exchanged = sites.exchanged();
    let body = std::mem::take(&mut kernel.func.body);
    kernel.func.body = insert(body, &mut places, &mut 0);
    kernel.exchanged = exchanged;
    kernel.tested.extend(tested);
    Ok(())
}

/// A statement of a list: its number in the order of the text, and its accesses.
struct Item {
    number: usize,
    kind: Kind,
}

/// What counts the iterations of a loop: of one over tiles its round.
fn var_of(l: &For) -> Var {
    if let LoopKind::Persistent { round } = l.kind { round } else { l.var }
}

enum Kind {
    /// Runs as a whole; no barrier inside.
    Whole {
        sites: Vec<usize>,
        /// It only starts copies, into shared memory or into registers.
        starts: bool,
        /// It closes a group of bulk stores whenever it runs.
        closes: bool,
    },
    /// A loop, into whose body barriers may go.
    Loop(Var, Vec<Item>),
    /// The end of a group of copies.
    Commit,
    /// Every thread waits for the loads of an mbarrier.
    Await(u32),
}

impl Item {
    fn sites(&self) -> Vec<usize> {
        match &self.kind {
            Kind::Whole { sites, .. } => sites.clone(),
            Kind::Loop(_, items) => items.iter().flat_map(Item::sites).collect(),
            Kind::Commit | Kind::Await(_) => Vec::new(),
        }
    }
}

fn items(body: &[Stmt], all: &mut Sites, number: &mut usize) -> Vec<Item> {
    body.iter()
        .map(|s| {
            let mine = *number;
            *number += 1;
            let kind = match s {
                Stmt::Sync(Sync { kind: SyncKind::Await { slot, .. }, .. }) => Kind::Await(slot.barrier),
                Stmt::Sync(s) if s.kind == SyncKind::Commit => Kind::Commit,
                Stmt::For(l) if !groups::runs_as_a_whole(s) => {
                    all.enter(l);
                    let inside = items(&l.body, all, number);
                    all.leave();
                    Kind::Loop(var_of(l), inside)
                }
                other => {
                    let sites = all.collect(other);
                    Kind::Whole { starts: groups::only_starts(other, all.func()), closes: closes(other), sites }
                }
            };
            Item { number: mine, kind }
        })
        .collect()
}

/// Whether a group of bulk stores is closed under no condition.
fn closes(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Sync(s) => s.kind == SyncKind::BulkCommit,
        Stmt::Elect(e) => e.body.iter().any(closes),
        Stmt::Block(b) => b.body.iter().any(closes),
        _ => false,
    }
}

/// A dependence between threads inside one run of a statement, under so many loops, cannot be ordered, nor a copy that is
/// used there. What is not decided, where the program allows that.
fn races(sites: &Sites, items: &[Item], depth: usize) -> Result<Vec<Tested>> {
    let mut tested = Vec::new();
    for item in items {
        match &item.kind {
            Kind::Loop(_, inside) => tested.extend(races(sites, inside, depth + 1)?),
            Kind::Commit | Kind::Await(_) => {}
            Kind::Whole { sites: all, .. } => {
                for (n, &a) in all.iter().enumerate() {
                    let used = |b: &usize| {
                        let copies = sites.site(a).by == By::Copy || sites.site(*b).by == By::Copy;
                        copies
                            && a < *b
                            && matches!(sites.level(a, *b), Level::Block | Level::Group | Level::Warp | Level::Own)
                    };
                    for &b in &all[n..] {
                        let meets = if used(&b) { Meets::Somewhere } else { sites.meet(a, b, depth) };
                        match meets {
                            Meets::Never => {}
                            Meets::Somewhere if a == b => return Err(redone(sites, a)),
                            Meets::Somewhere => {
                                return Err(race(sites.site(a), sites.reason(a, b)).about_buffer(sites.buffer_name(a)));
                            }
                            Meets::Undecided => tested.push(undecided(sites, a)?),
                        }
                    }
                }
            }
        }
    }
    Ok(tested)
}

/// It is not decided whether threads touch one element in one run of a statement.
fn undecided(sites: &Sites, site: usize) -> Result<Tested> {
    let (buffer, block) = (sites.buffer_name(site), &sites.site(site).block);
    let claim =
        format!("no two threads touch one element of {buffer} in one run of block {block}, unless both read it");
    if sites.func().allow_tested {
        return Ok(Tested { code: Code::LowerRace, claim, points: 0 });
    }
    Err(Error::input(Code::LowerRace, format!("it is not proved that {claim}"))
        .about(Subject::Threads)
        .about_block(block)
        .about_buffer(buffer)
        .help("write indices as sums of loop variables with constant factors, and their quotients and remainders by constants")
        .help("or allow it with --allow-tested (`Schedule::allow_tested()` in the library): the schedule is then shown as tested"))
}

/// Threads do the same work twice, at once.
fn redone(sites: &Sites, site: usize) -> Error {
    let (buffer, block) = (sites.buffer_name(site), &sites.site(site).block);
    Error::input(Code::LowerRace, format!("several threads write one element of {buffer} in one run of block {block}"))
        .about(Subject::Threads)
        .about_block(block)
        .about_buffer(buffer)
        .help(format!("set_scope {buffer} local, so that each thread has its own"))
        .help(format!(
            "or bind the loops around first, then compute_at {block} once more: the threads fill it together"
        ))
}

fn race(site: &Site, reason: String) -> Error {
    Error::input(
        Code::LowerRace,
        format!("different threads depend on each other inside one run of block {}: {reason}", site.block),
    )
    .about(Subject::Threads)
    .about_block(&site.block)
    .help("cache what the other threads read in a separate buffer, or do not bind the loop between them")
}

/// Puts what was found into the body, numbering as [`items`] does.
fn insert(body: Vec<Stmt>, places: &mut BTreeMap<usize, Vec<Stmt>>, number: &mut usize) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(body.len());
    for stmt in body {
        out.extend(places.remove(number).unwrap_or_default());
        *number += 1;
        let whole = groups::runs_as_a_whole(&stmt);
        out.push(match stmt {
            Stmt::For(mut l) if !whole => {
                l.body = insert(l.body, places, number);
                Stmt::For(l)
            }
            other => other,
        });
    }
    out
}
