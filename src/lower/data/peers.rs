//! Buffers of a cluster become shared memory of its blocks.
//!
//! The first dimension of such a buffer numbers the blocks of the cluster, each of which has the elements of its own number. A store to
//! another number goes to the shared memory of that block. A block reads its own elements alone: `order` puts a barrier of the
//! cluster between the stores of all blocks and the reads.
//!
//! ```text
//! P: cluster f32[4, 4, 16]                      P: shared f32[4, 16]
//! P[i // 16, cluster, i % 16] = acc[i]          to_block(i // 16) P[cluster, i % 16] = acc[i]
//! .. P[cluster, p, j]                           .. P[p, j]
//! ```

use crate::error::{Code, Error, Result, Subject};
use crate::ir::decide;
use crate::ir::lowered::LoweredKernel;
use crate::ir::simplify::{self, Env};
use crate::ir::{Axis, BufferId, Cond, Expr, Func, Index, Peers, Remote, Scope, Stmt, StorageAlign, visit};
use crate::target::Target;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let cluster = kernel.launch.iter().find(|l| l.axis == Axis::Cluster);
    let (rank, blocks) = cluster.map_or((Index::Int(0), 1), |l| (Index::Var(l.var), i64::from(l.extent)));
    let mut env = kernel.env();
    for l in visit::loops(&kernel.func.body) {
        env.bind_loop(l.var, &l.extent);
    }
    let mut buffers = visit::writes(&kernel.func.body);
    buffers.retain(|id| kernel.func.buffer(*id).scope == Scope::Cluster);
    for id in buffers {
        of_blocks(&mut kernel.func, id, (&rank, blocks), &env)?;
    }
    Ok(())
}

/// Gives each block its elements of a buffer.
fn of_blocks(func: &mut Func, id: BufferId, (rank, blocks): (&Index, i64), env: &Env) -> Result<()> {
    let buffer = func.buffer_mut(id);
    if buffer.shape.first().and_then(Index::as_int) != Some(blocks) {
        let name = buffer.name.clone();
        let first = func.buffer(id).shape.first().map_or("none".to_string(), |n| crate::ir::print::index(func, n));
        let message = format!(
            "{name} belongs to a cluster of {blocks} blocks, but its part in use has {first} in its first dimension"
        );
        return Err(refused(message, &name));
    }
    buffer.shape.remove(0);
    if buffer.shape.is_empty() {
        buffer.shape.push(Index::Int(1));
    }
    buffer.scope = Scope::Shared;
    buffer.storage_align = buffer.storage_align.and_then(|a| Some(StorageAlign { dim: a.dim.checked_sub(1)?, ..a }));
    let name = buffer.name.clone();
    let mut failed = None;
    let own = |indices: &mut Vec<Index>| {
        let number = simplify::simplify(&indices.remove(0), env);
        if indices.is_empty() {
            indices.push(Index::Int(0));
        }
        (!decide::proves(&Cond::eq(number.clone(), rank.clone()), env)).then_some(number)
    };
    let body = visit::map_body(std::mem::take(&mut func.body), &mut Index::clone, &mut |mut e| {
        if let Expr::Load { buffer, indices, .. } = &mut e
            && *buffer == id
            && let Some(other) = own(indices)
        {
            failed.get_or_insert(other);
        }
        e
    });
    let body = visit::rewrite(body, &mut |mut s| {
        if let Stmt::Store(store) = &mut s
            && store.buffer == id
        {
            let other = own(&mut store.indices);
            store.remote = other.map(|number| Remote { peers: Peers::One(number), full: None });
        }
        vec![s]
    });
    func.body = body;
    match failed {
        None => Ok(()),
        Some(other) => {
            let other = crate::ir::print::index(func, &other);
            let message = format!("a block of a cluster reads {name} of block {other}, which may be another one");
            Err(refused(message, &name))
        }
    }
}

fn refused(message: String, name: &str) -> Error {
    Error::input(Code::LowerCluster, message)
        .about_buffer(name)
        .about(Subject::Axis(Axis::Cluster.name()))
        .help(format!(
            "transform_layout {name}, so that its first dimension is the number of the block that reads an element"
        ))
        .help("and bind the loop over these numbers around the read to cluster")
}
