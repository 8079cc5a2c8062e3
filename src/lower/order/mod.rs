//! Derives all synchronisation: what orders two accesses that depend on each other, and nothing more.
//!
//! | first access | then | ordered by |
//! |---|---|---|
//! | ordinary read or write | any access of the same bytes by another thread | a barrier |
//! | asynchronous copy | any access of the same bytes by the thread that copies | a wait of that thread |
//! | asynchronous copy | any access of the same bytes by another thread | a wait of the thread that copies, then a barrier |
//!
//! A barrier is one of the warp if no two warps are concerned, else of the block. One of the two accesses writes. A copy
//! starts after what its thread did before, so an earlier access of that thread needs nothing. (The other rows of the
//! design's table come with the instructions that they speak of.)
//!
//! Copies are waited for by groups. `groups` closes a group behind each run of copies; `walk` counts the groups that
//! are closed between a copy and the access that needs it, and finds the places; `conflict` decides which accesses
//! meet.

mod conflict;
mod groups;
mod pending;
mod walk;

use super::LoweredKernel;
use crate::error::{Error, Result};
use crate::ir::{Stmt, Sync};
use crate::target::Target;
use conflict::{Level, Site, Sites};
use std::collections::BTreeMap;
use walk::Walker;

/// Whether a body starts asynchronous copies.
pub fn copies(body: &[Stmt]) -> bool {
    body.iter().any(groups::starts)
}

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let copies = copies(&kernel.func.body);
    if !copies && kernel.thread_vars().iter().all(|(_, n)| *n <= 1) {
        return Ok(());
    }
    if copies {
        kernel.func.body = groups::close(std::mem::take(&mut kernel.func.body), &kernel.func);
    }
    let mut sites = Sites::new(kernel);
    let items = items(&kernel.func.body, &mut sites, &mut 0);
    let walker = Walker { sites: &sites };
    races(&sites, &items, 0)?;
    let mut places: BTreeMap<usize, Vec<Sync>> = BTreeMap::new();
    for placed in walker.places(&items) {
        places.entry(placed.before).or_default().extend(placed.syncs());
    }
    let exchanged = sites.exchanged();
    let body = std::mem::take(&mut kernel.func.body);
    kernel.func.body = insert(body, &mut places, &mut 0);
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
    Whole {
        sites: Vec<usize>,
        /// It only starts copies, into shared memory or into registers.
        starts: bool,
    },
    /// A loop, into whose body barriers may go.
    Loop(Vec<Item>),
    /// The end of a group of copies.
    Commit,
}

impl Item {
    fn sites(&self) -> Vec<usize> {
        match &self.kind {
            Kind::Whole { sites, .. } => sites.clone(),
            Kind::Loop(items) => items.iter().flat_map(Item::sites).collect(),
            Kind::Commit => Vec::new(),
        }
    }
}

fn items(body: &[Stmt], all: &mut Sites, number: &mut usize) -> Vec<Item> {
    body.iter()
        .map(|s| {
            let mine = *number;
            *number += 1;
            let kind = match s {
                Stmt::Sync(_) => Kind::Commit,
                Stmt::For(l) if !groups::runs_as_a_whole(s) => {
                    all.enter(l);
                    let inside = items(&l.body, all, number);
                    all.leave();
                    Kind::Loop(inside)
                }
                other => {
                    let sites = all.collect(other);
                    Kind::Whole { starts: groups::only_starts(other, all.func()), sites }
                }
            };
            Item { number: mine, kind }
        })
        .collect()
}

/// A dependence between threads inside one run of a statement, under so many loops, cannot be ordered, nor a copy that is
/// used there.
fn races(sites: &Sites, items: &[Item], depth: usize) -> Result<()> {
    for item in items {
        match &item.kind {
            Kind::Loop(inside) => races(sites, inside, depth + 1)?,
            Kind::Commit => {}
            Kind::Whole { sites: all, .. } => {
                for (n, &a) in all.iter().enumerate() {
                    let used = |b: &usize| {
                        let copies = sites.site(a).asynchronous || sites.site(*b).asynchronous;
                        copies && a < *b && matches!(sites.level(a, *b), Level::Block | Level::Warp | Level::Own)
                    };
                    if let Some(&b) = all[n..].iter().find(|b| used(b) || sites.meet(a, **b, depth)) {
                        return Err(if a == b { redone(sites, a) } else { race(sites.site(a), sites.reason(a, b)) });
                    }
                }
            }
        }
    }
    Ok(())
}

/// Threads do the same work twice, at once.
fn redone(sites: &Sites, site: usize) -> Error {
    let (buffer, block) = (sites.buffer_name(site), &sites.site(site).block);
    Error::input("lower.race", format!("several threads write one element of {buffer} in one run of block {block}"))
        .help(format!("set_scope {buffer} local, so that each thread has its own"))
        .help(format!(
            "or bind the loops around first, then compute_at {block} once more: the threads fill it together"
        ))
}

fn race(site: &Site, reason: String) -> Error {
    Error::input(
        "lower.race",
        format!("different threads depend on each other inside one run of block {}: {reason}", site.block),
    )
    .help("cache what the other threads read in a stage of its own, or do not bind the loop between them")
}

/// Puts what was found into the body, numbering as [`items`] does.
fn insert(body: Vec<Stmt>, places: &mut BTreeMap<usize, Vec<Sync>>, number: &mut usize) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(body.len());
    for stmt in body {
        out.extend(places.remove(number).unwrap_or_default().into_iter().map(Stmt::Sync));
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
