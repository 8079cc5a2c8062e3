//! Clusters on the simulator: blocks that run together, each with its own shared memory, meet and arrive at each other's
//! mbarriers.

use super::tests::{Kernel, barrier, load, store};
use super::*;
use crate::dtype::DType;
use crate::ir::{Elect, Expr, Index, Mbarrier, Slot, Stmt, SyncKind, Var};

const POLICIES: [Policy; 5] =
    [Policy::InOrder, Policy::Reverse, Policy::Random(1), Policy::Random(2), Policy::Random(3)];
const BLOCKS: u32 = 3;

fn sync(kind: SyncKind) -> Stmt {
    Stmt::Sync(kind.because("a test"))
}

fn elect(kind: SyncKind) -> Stmt {
    Stmt::Elect(Elect { warps: 2, body: vec![sync(kind)] })
}

/// Two clusters of three blocks of 64 threads; each thread writes shared memory and reads what the one opposite wrote.
fn opposite(order: Vec<Stmt>) -> (Kernel, Var) {
    let mut k = Kernel::new(2, 64);
    let rank = k.cluster(BLOCKS);
    let (a, c, s) = (k.param("A", 64 * 6), k.param("C", 64 * 6), k.shared("S", DType::F32, 64, 0));
    let at = (k.block * i64::from(BLOCKS) + rank) * 64;
    let tx = Index::Var(k.thread);
    let fill = store(s, tx.clone(), load(a, at.clone() + tx.clone()));
    let read = store(c, at + tx.clone(), load(s, Index::Int(63) - tx));
    k.func.body = [vec![fill], order, vec![read]].concat();
    (k, rank)
}

fn codes(make: impl Fn() -> Kernel) -> Vec<Option<String>> {
    POLICIES.iter().map(|p| make().run_with(*p).err().map(|e| e.code().to_string())).collect()
}

#[test]
fn every_block_of_a_cluster_has_its_own_shared_memory() {
    for order in [SyncKind::Block, SyncKind::Cluster] {
        for policy in POLICIES {
            let out =
                opposite(vec![sync(order.clone())]).0.run_with(policy).unwrap_or_else(|e| panic!("{policy:?}: {e}"));
            let mirrored = |i: usize| (i / 64 * 64 + 63 - i % 64) as f64;
            assert!((0..384).all(|i| out[1].get(i) == mirrored(i)), "{policy:?}");
        }
    }
    let found = codes(|| opposite(vec![sync(SyncKind::Warp)]).0);
    assert!(found.iter().all(|c| c.as_deref() == Some("sim.race")), "{found:?}");
}

#[test]
fn all_blocks_of_a_cluster_have_to_come() {
    let found = codes(|| {
        let (mut k, rank) = opposite(vec![barrier()]);
        let only = crate::ir::Cond::eq(rank, 0);
        k.func.body.push(Stmt::If(crate::ir::If { cond: only, body: vec![sync(SyncKind::Cluster)] }));
        k
    });
    assert!(found.iter().all(|c| c.as_deref() == Some("sim.divergence")), "{found:?}");
}

/// Each block waits until one thread of every block has arrived at its mbarrier.
fn arrivals(blocks: Option<u32>, meet: SyncKind) -> Kernel {
    let (mut k, _) = opposite(vec![barrier()]);
    k.func.mbarriers.push(Mbarrier { name: "all".into(), slots: 1, arrivals: BLOCKS, offset: None });
    let slot = Slot { barrier: 0, index: Index::Int(0) };
    let arrive = elect(SyncKind::Arrive { slot: slot.clone(), blocks });
    let wait = sync(SyncKind::Await { slot, phase: Index::Int(0) });
    k.func.body.splice(0..0, [elect(SyncKind::InitBarriers), sync(meet)]);
    k.func.body.extend([arrive, wait]);
    k
}

#[test]
fn threads_arrive_at_the_mbarriers_of_other_blocks() {
    let found = codes(|| arrivals(Some(BLOCKS), SyncKind::Cluster));
    assert!(found.iter().all(Option::is_none), "{found:?}");
    // One's own arrival alone is not enough.
    let found = codes(|| arrivals(None, SyncKind::Cluster));
    assert!(found.iter().all(|c| c.as_deref() == Some("sim.deadlock")), "{found:?}");
    // A block that meets nobody may arrive before the mbarrier is set.
    let found = codes(|| arrivals(Some(BLOCKS), SyncKind::Block));
    assert!(found.iter().all(|c| c.as_deref() == Some("sim.mbarrier")), "{found:?}");
}

/// A block that arrives at the others' mbarriers as the last thing it does may come too late: where all meet behind that, none has
/// ended.
#[test]
fn blocks_stay_as_long_as_others_reach_them() {
    let make = |meets: bool| {
        let mut k = arrivals(Some(BLOCKS), SyncKind::Cluster);
        k.func.body.pop();
        k.func.body.extend(meets.then(|| sync(SyncKind::Cluster)));
        k
    };
    assert!(codes(|| make(true)).iter().all(Option::is_none));
    // In order one block after the other ends.
    let found = codes(|| make(false));
    assert!(found[..2].iter().all(|c| c.as_deref() == Some("sim.mbarrier")), "{found:?}");
}

#[test]
fn blocks_of_a_cluster_race_for_device_memory() {
    let make = || {
        let mut k = Kernel::new(1, 32);
        k.cluster(2);
        let c = k.param("C", 32);
        k.func.body = vec![store(c, k.thread, Expr::constant(DType::F32, 1.0)), sync(SyncKind::Cluster)];
        k
    };
    let found = codes(make);
    assert!(found.iter().all(|c| c.as_deref() == Some("sim.race")), "{found:?}");
}
