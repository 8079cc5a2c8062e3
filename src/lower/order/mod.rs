//! Derives all synchronisation: the smallest barrier between accesses of different threads that depend on each other.
//!
//! The kernel's body is a tree of lists. Walking a list keeps the set of accesses that no barrier separates yet from
//! what comes; a statement that depends on one of them across threads gets a barrier in front. A loop is walked with
//! what its own last iteration leaves pending, so that dependences between iterations are seen; where only what came
//! before the loop asks for one more barrier inside, it is put in front of the loop instead.
//!
//! What orders what (the first row of the design's table; the other rows come with asynchronous copies):
//! generic write or read, then generic access of the same bytes by another thread: a barrier of the warp if no two
//! warps are concerned, else of the block.

mod conflict;

use super::LoweredKernel;
use crate::error::{Error, Result};
use crate::ir::{Stmt, Sync};
use crate::target::Target;
use conflict::{Level, Site, Sites};
use std::collections::{BTreeMap, BTreeSet};

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    if kernel.thread_vars().iter().all(|(_, n)| *n <= 1) {
        return Ok(());
    }
    let mut sites = Sites::new(kernel);
    let items = items(&kernel.func.body, &mut sites, &mut 0);
    let walker = Walker { sites: &sites };
    walker.races(&items)?;
    let mut barriers = Vec::new();
    walker.list(&items, &Pending::new(), &mut barriers);
    let exchanged = sites.exchanged();
    let barriers = barriers.into_iter().map(|b| (b.before, b.sync)).collect();
    let body = std::mem::take(&mut kernel.func.body);
    kernel.func.body = insert(body, &barriers, &mut 0);
    kernel.exchanged = exchanged;
    Ok(())
}

/// A statement of a list: its number in the order of the text, and its accesses.
struct Item {
    number: usize,
    kind: Kind,
}

enum Kind {
    /// Runs as a whole; no barrier inside.
    Whole(Vec<usize>),
    /// A loop, into whose body barriers may go.
    Loop(Vec<Item>),
}

impl Item {
    fn sites(&self) -> Vec<usize> {
        match &self.kind {
            Kind::Whole(s) => s.clone(),
            Kind::Loop(items) => items.iter().flat_map(Item::sites).collect(),
        }
    }
}

fn items(body: &[Stmt], sites: &mut Sites, number: &mut usize) -> Vec<Item> {
    body.iter()
        .map(|s| {
            let mine = *number;
            *number += 1;
            let kind = match s {
                Stmt::For(l) => {
                    sites.enter(l);
                    let inside = items(&l.body, sites, number);
                    sites.leave();
                    Kind::Loop(inside)
                }
                other => Kind::Whole(sites.collect(other)),
            };
            Item { number: mine, kind }
        })
        .collect()
}

/// Accesses that nothing separates yet from what comes; true where the threads of a warp are in step since.
type Pending = BTreeMap<usize, bool>;

#[derive(PartialEq)]
struct Barrier {
    before: usize,
    sync: Sync,
}

/// The last barrier of a warp in the list at hand: where it is among the barriers, and the accesses it came after. A
/// barrier of the block that is needed further down for these accesses alone takes its place instead of following it.
struct Weak {
    at: usize,
    seen: BTreeSet<usize>,
}

struct Walker<'a> {
    sites: &'a Sites<'a>,
}

impl Walker<'_> {
    /// Walks a list; returns what is pending after it.
    fn list(&self, items: &[Item], pending: &Pending, out: &mut Vec<Barrier>) -> Pending {
        let mut pending = pending.clone();
        let mut weak = None;
        for item in items {
            match &item.kind {
                Kind::Whole(sites) => {
                    self.barrier_before(item.number, sites, &mut pending, &mut weak, out);
                    pending.extend(sites.iter().map(|s| (*s, false)));
                    forget(&mut weak, sites);
                }
                Kind::Loop(inside) => {
                    self.repeated(item, inside, &mut pending, &mut weak, out);
                    forget(&mut weak, &item.sites());
                }
            }
        }
        pending
    }

    fn repeated(
        &self,
        item: &Item,
        inside: &[Item],
        pending: &mut Pending,
        weak: &mut Option<Weak>,
        out: &mut Vec<Barrier>,
    ) {
        // What an iteration finds pending from the ones before it.
        let mut carried = Pending::new();
        loop {
            let end = self.list(inside, &carried, &mut Vec::new());
            let joined = join(&carried, &end);
            if joined == carried {
                break;
            }
            carried = joined;
        }
        let mut alone = Vec::new();
        let end = self.list(inside, &carried, &mut alone);
        let mut with = Vec::new();
        let end_with = self.list(inside, &join(&carried, pending), &mut with);
        let same = |(a, b): (&Barrier, &Barrier)| {
            a.before == b.before && std::mem::discriminant(&a.sync) == std::mem::discriminant(&b.sync)
        };
        let chosen = if alone.len() == with.len() && alone.iter().zip(&with).all(same) {
            // The first reason seen may be the one from before the loop; the loop's own says more.
            *pending = end_with;
            alone
        } else if self.barrier_before(item.number, &item.sites(), pending, weak, out) {
            let kept = self.list(inside, &join(&carried, pending), &mut Vec::new());
            *pending = join(&end, &kept);
            alone
        } else {
            *pending = end_with;
            with
        };
        if !chosen.is_empty() {
            // The last barrier of the warp now stands in another list.
            *weak = None;
        }
        out.extend(chosen);
    }

    /// Puts a barrier in front of a statement if one of its accesses depends on a pending one; says whether it did.
    fn barrier_before(
        &self,
        number: usize,
        sites: &[usize],
        pending: &mut Pending,
        weak: &mut Option<Weak>,
        out: &mut Vec<Barrier>,
    ) -> bool {
        let mut worst: Option<(Level, String)> = None;
        // Whether a barrier of the block where the last one of the warp stands would do as well.
        let mut earlier = true;
        for &now in sites {
            for (&before, &in_step) in pending.iter() {
                let level = self.sites.level(before, now);
                let needed = match level {
                    Level::None => false,
                    Level::Warp => !in_step,
                    Level::Block | Level::Unknown => true,
                };
                earlier &= !needed || weak.as_ref().is_some_and(|w| w.seen.contains(&before));
                if needed && worst.as_ref().is_none_or(|(l, _)| rank(level) > rank(*l)) {
                    worst = Some((level, self.sites.reason(before, now)));
                }
            }
        }
        let needed = worst.is_some();
        match (worst, weak.take()) {
            (None, kept) => *weak = kept,
            (Some((Level::Warp, reason)), _) => {
                pending.values_mut().for_each(|in_step| *in_step = true);
                *weak = Some(Weak { at: out.len(), seen: pending.keys().copied().collect() });
                out.push(Barrier { before: number, sync: Sync::Warp { reason } });
            }
            (Some((_, reason)), Some(w)) if earlier => {
                pending.retain(|site, _| !w.seen.contains(site));
                out[w.at].sync = Sync::Block { reason };
            }
            (Some((_, reason)), _) => {
                pending.clear();
                out.push(Barrier { before: number, sync: Sync::Block { reason } });
            }
        }
        needed
    }

    /// A dependence between threads inside one statement cannot be ordered.
    fn races(&self, items: &[Item]) -> Result<()> {
        for item in items {
            match &item.kind {
                Kind::Loop(inside) => self.races(inside)?,
                Kind::Whole(sites) => {
                    for &a in sites {
                        for &b in sites {
                            if a < b && matches!(self.sites.level(a, b), Level::Block | Level::Warp) {
                                return Err(race(self.sites.site(a), self.sites.reason(a, b)));
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn race(site: &Site, reason: String) -> Error {
    Error::input(
        "lower.race",
        format!("different threads depend on each other inside one run of block {}: {reason}", site.block),
    )
    .help("cache what the other threads read in a stage of its own, or do not bind the loop between them")
}

/// These accesses happened again since.
fn forget(weak: &mut Option<Weak>, sites: &[usize]) {
    if let Some(w) = weak {
        sites.iter().for_each(|s| {
            w.seen.remove(s);
        });
    }
}

fn rank(level: Level) -> u8 {
    match level {
        Level::None => 0,
        Level::Warp => 1,
        Level::Unknown | Level::Block => 2,
    }
}

fn join(a: &Pending, b: &Pending) -> Pending {
    let mut out = a.clone();
    for (&site, &in_step) in b {
        out.entry(site).and_modify(|s| *s &= in_step).or_insert(in_step);
    }
    out
}

/// Puts the barriers into the body, numbering as [`items`] does.
fn insert(body: Vec<Stmt>, barriers: &BTreeMap<usize, Sync>, number: &mut usize) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(body.len());
    for stmt in body {
        if let Some(sync) = barriers.get(number) {
            out.push(Stmt::Sync(sync.clone()));
        }
        *number += 1;
        out.push(match stmt {
            Stmt::For(mut l) => {
                l.body = insert(l.body, barriers, number);
                Stmt::For(l)
            }
            other => other,
        });
    }
    out
}
