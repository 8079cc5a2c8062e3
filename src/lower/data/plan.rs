//! The plan of shared memory: the offsets of buffers, and after them those of mbarriers.
//!
//! Buffers may share bytes if their statements in the kernel's outermost list do not overlap in time; `order` then keeps the threads of
//! one from overtaking the readers of the other. No value passes between the iterations of a persistent loop, so its body
//! counts as such a list, too, unless copies of one iteration may start in another.
//!
//! Where one of two roles only loads, the list is that of the other role. What it loads is in use from the start of the kernel until the other role
//! has read all of it: that role has then waited for each load. Persistent blocks load for their next tile meanwhile, so their buffers share nothing.

use crate::error::{Code, Error, Result};
use crate::ir::lowered::LoweredKernel;
use crate::ir::{BufferId, Func, LoopKind, Peers, Remote, Scope, Stmt, Store, visit};
use crate::lower::elements;
use crate::target::Target;

/// Alignment of every shared buffer in bytes, at least: a vector access of the widest kind, and a row of all banks.
pub const ALIGN: u64 = 128;
/// Bytes of an mbarrier, and what its address is a multiple of.
pub const MBARRIER: u64 = 8;

struct Placed {
    id: BufferId,
    bytes: u64,
    align: u64,
    /// Positions of its first and last use in the outermost list.
    life: (usize, usize),
    offset: u64,
}

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, target: &Target) -> Result<()> {
    let roles = roles(&kernel.func);
    let mut waiting: Vec<Placed> = Vec::new();
    for id in (0..kernel.func.buffers.len() as u32).map(BufferId) {
        let b = kernel.func.buffer(id);
        if b.scope != Scope::Shared {
            continue;
        }
        // Other blocks of a cluster store whenever they are ready.
        let all = is_stored_by_others(&kernel.func.body, id).then_some((0, usize::MAX));
        if let Some(life) = life(&kernel.func, &roles, id).map(|life| all.unwrap_or(life)) {
            let elements = elements(b, Code::LowerPlan)?;
            let (bytes, align) = (b.dtype.bytes_of(elements as u64), ALIGN.max(u64::from(b.align)));
            waiting.push(Placed { id, bytes, align, life, offset: 0 });
        }
    }
    // Sharing costs barriers. Where as many blocks are resident without it as a multiprocessor takes, it gains nothing.
    let apart: u64 = waiting.iter().map(|p| p.bytes.next_multiple_of(p.align)).sum();
    // A role's barrier costs more than shared memory that one block alone uses: with roles, buffers share only where they have no room otherwise.
    let has_room = !matches!(roles, Roles::None) && apart <= u64::from(target.limits.shared_optin);
    if has_room || apart * u64::from(target.limits.blocks_per_sm) <= u64::from(target.limits.shared_per_sm) {
        waiting.iter_mut().for_each(|p| p.life = (0, usize::MAX));
    }
    // The largest first: small ones then fill the gaps. Equal sizes stay in the order of declaration.
    waiting.sort_by_key(|p| std::cmp::Reverse(p.bytes));
    let mut placed: Vec<Placed> = Vec::new();
    for mut p in waiting {
        p.offset = first_gap(&placed, &p);
        placed.push(p);
    }
    let total = placed.iter().map(|p| p.offset + p.bytes).max().unwrap_or(0);
    let total = place_mbarriers(&mut kernel.func, total);
    kernel.shared_bytes = u32::try_from(total).map_err(|_| {
        let message = format!("kernel {} needs {total} bytes of shared memory a block", kernel.func.name);
        let error = Error::input(Code::LowerShared, message);
        let names = placed.iter().map(|p| &kernel.func.buffer(p.id).name);
        names
            .fold(error, Error::about_buffer)
            .help("compute_at the shared buffers under a deeper loop, so that they hold one tile only")
    })?;
    for p in placed {
        kernel.func.buffer_mut(p.id).offset = Some(p.offset as u32);
        kernel.func.buffer_mut(p.id).align = p.align as u32;
    }
    Ok(())
}

/// Gives mbarriers offsets behind so many bytes of buffers; returns where they end.
pub fn place_mbarriers(func: &mut Func, buffers: u64) -> u64 {
    let mut total = buffers;
    for array in &mut func.mbarriers {
        let offset = total.next_multiple_of(MBARRIER);
        array.offset = u32::try_from(offset).ok();
        total = offset + u64::from(array.slots) * MBARRIER;
    }
    total
}

/// The lowest aligned offset at which no buffer in use at the same time lies.
fn first_gap(placed: &[Placed], new: &Placed) -> u64 {
    let mut taken: Vec<(u64, u64)> = placed
        .iter()
        .filter(|p| p.life.0 <= new.life.1 && new.life.0 <= p.life.1)
        .map(|p| (p.offset, p.offset + p.bytes))
        .collect();
    taken.sort_unstable();
    let mut offset = 0u64;
    for (from, to) in taken {
        if offset + new.bytes <= from {
            break;
        }
        offset = offset.max(to.next_multiple_of(new.align));
    }
    offset
}

/// The statements of the outermost list, with blocks, conditions and loops over tiles opened.
fn outermost(body: &[Stmt]) -> Vec<&Stmt> {
    body.iter()
        .flat_map(|s| match s {
            Stmt::For(l) if matches!(l.kind, LoopKind::Persistent { .. }) && !has_bulk_copies(&l.body) => {
                outermost(&l.body)
            }
            Stmt::Block(b) => outermost(&b.body),
            Stmt::If(i) => outermost(&i.body),
            other => vec![other],
        })
        .collect()
}

/// Whether other blocks of the cluster store to a buffer at a time that a barrier alone ends.
fn is_stored_by_others(body: &[Stmt], id: BufferId) -> bool {
    let mut found = false;
    visit::walk(body, &mut |s| {
        if let Stmt::Store(Store { buffer, remote: Some(Remote { peers: Peers::One(_), .. }), .. }) = s {
            found |= *buffer == id;
        }
    });
    found
}

fn has_bulk_copies(body: &[Stmt]) -> bool {
    let mut found = false;
    visit::walk(body, &mut |s| found |= matches!(s, Stmt::Bulk(_)));
    found
}

/// The positions of the first and the last use of a buffer; `None` where it has none.
fn life(func: &Func, roles: &Roles, id: BufferId) -> Option<(usize, usize)> {
    let uses = |body: &[Stmt]| visit::reads(body).contains(&id) || visit::writes(body).contains(&id);
    if !uses(&func.body) {
        return None;
    }
    let (loads, list) = match *roles {
        Roles::None => (false, outermost(&func.body)),
        Roles::Loader { loads, list } => (uses(loads), list.iter().collect()),
        Roles::AtOnce => return Some((0, usize::MAX)),
    };
    let at = |s: &&Stmt| uses(std::slice::from_ref(*s));
    let first = list.iter().position(at).filter(|_| !loads).unwrap_or(0);
    Some((first, list.iter().rposition(at).unwrap_or(usize::MAX)))
}

/// How the roles of a kernel use shared memory.
enum Roles<'a> {
    None,
    /// One only loads; the list of the other.
    Loader {
        loads: &'a [Stmt],
        list: &'a [Stmt],
    },
    /// All at the same time.
    AtOnce,
}

/// Which role of a kernel only loads, if one does and blocks have one tile each.
fn roles(func: &Func) -> Roles<'_> {
    let reads_shared = |body: &[Stmt]| visit::reads(body).iter().any(|b| func.buffer(*b).scope == Scope::Shared);
    let roles: Vec<&[Stmt]> =
        func.body.iter().filter_map(|s| if let Stmt::Role(r) = s { Some(&*r.body) } else { None }).collect();
    if roles.is_empty() {
        return Roles::None;
    }
    let mut stays = false;
    visit::walk(&func.body, &mut |s| {
        stays |= matches!(s, Stmt::For(l) if matches!(l.kind, LoopKind::Persistent { .. }))
    });
    let writes_again = |loads: &[Stmt], list: &[Stmt]| {
        let written = visit::writes(list);
        visit::writes(loads).iter().any(|b| written.contains(b))
    };
    let (loaders, others): (Vec<&[Stmt]>, Vec<&[Stmt]>) = roles.iter().partition(|body| !reads_shared(body));
    match (&loaders[..], &others[..]) {
        ([loads], [list]) if !stays && roles.len() == func.body.len() && !writes_again(loads, list) => {
            Roles::Loader { loads, list }
        }
        _ => Roles::AtOnce,
    }
}
