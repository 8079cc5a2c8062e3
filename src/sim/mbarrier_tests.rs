//! Roles, elected threads and mbarriers on the simulator: what is right runs in every order, what is wrong is found in every one.

use super::tests::{Kernel, barrier, load, store};
use super::*;
use crate::dtype::DType;
use crate::ir::{BufferId, Elect, Expr, For, Index, LoopKind, Mbarrier, RoleBody, Slot, Stmt, Sync, SyncKind, Var};

const POLICIES: [Policy; 5] =
    [Policy::InOrder, Policy::Reverse, Policy::Random(1), Policy::Random(2), Policy::Random(3)];
const SLOTS: i64 = 2;
const ROUNDS: i64 = 7;

fn sync(kind: SyncKind) -> Stmt {
    Stmt::Sync(kind.because("a test"))
}

fn arrive(barrier: u32, index: Index) -> Stmt {
    sync(SyncKind::Arrive { slot: Slot { barrier, index }, blocks: None })
}

fn wait(barrier: u32, index: Index, phase: Index) -> Stmt {
    sync(SyncKind::Await { slot: Slot { barrier, index }, phase })
}

fn elect(warps: u32, body: Vec<Stmt>) -> Stmt {
    Stmt::Elect(Elect { warps, body })
}

fn role(first: u32, warps: u32, body: Vec<Stmt>) -> Stmt {
    Stmt::Role(RoleBody { role: None, first, warps, regs: None, body })
}

/// A kernel whose first two warps add up what the third one passes them through a ring of two slots.
struct Ring {
    kernel: Kernel,
    full: u32,
    empty: u32,
    fill: Stmt,
    read: Stmt,
    it: Var,
    end: Stmt,
}

fn mbarrier(k: &mut Kernel, name: &str, arrivals: u32) -> u32 {
    k.func.mbarriers.push(Mbarrier { name: name.into(), slots: SLOTS as u32, arrivals, offset: None });
    k.func.mbarriers.len() as u32 - 1
}

impl Ring {
    fn new(full: u32, empty: u32) -> Ring {
        let mut k = Kernel::new(2, 96);
        let (a, c) = (k.param("A", ROUNDS * 32), k.param("C", 128));
        let (s, acc) = (k.shared("S", DType::F32, SLOTS * 32, 0), k.local("acc", 1));
        let (full, empty) = (mbarrier(&mut k, "full", full), mbarrier(&mut k, "empty", empty));
        let it = k.func.add_var("it");
        let (slot, tx) = (Index::Var(it).floormod(SLOTS), Index::Var(k.thread));
        let fill = store(s, slot.clone() * 32 + tx.clone(), load(a, Index::Var(it) * 32 + tx.clone()));
        let opposite = slot * 32 + (Index::Int(31) - tx.clone().floormod(32));
        let read = store(acc, 0, Expr::bin(crate::ir::BinOp::Add, load(acc, 0), load(s, opposite)));
        let end = store(c, k.block * 64 + k.thread, load(acc, 0));
        Ring { full, empty, fill, read, it, end, kernel: k }
    }

    fn slot(&self) -> Index {
        Index::Var(self.it).floormod(SLOTS)
    }

    fn phase(&self) -> Index {
        Index::Var(self.it).floordiv(SLOTS)
    }

    fn produce(&self) -> Vec<Stmt> {
        let free = self.phase() - 1;
        let arrives = elect(1, vec![arrive(self.full, self.slot())]);
        vec![wait(self.empty, self.slot(), free), self.fill.clone(), sync(SyncKind::Warp), arrives]
    }

    fn consume(&self) -> Vec<Stmt> {
        let arrives = elect(1, vec![arrive(self.empty, self.slot())]);
        vec![wait(self.full, self.slot(), self.phase()), self.read.clone(), sync(SyncKind::Warp), arrives]
    }

    fn kernel(mut self, produce: Vec<Stmt>, consume: Vec<Stmt>) -> Kernel {
        let rounds = |body| Stmt::For(For::new(self.it, ROUNDS, LoopKind::Serial, body));
        let zero = store(BufferId(3), 0, Expr::constant(DType::F32, 0.0));
        self.kernel.func.body = vec![
            role(0, 1, vec![elect(1, vec![sync(SyncKind::InitBarriers)])]),
            barrier(),
            role(0, 2, vec![zero, rounds(consume), self.end.clone()]),
            role(2, 1, vec![rounds(produce)]),
        ];
        self.kernel
    }
}

/// What is said in every order: none of these if the kernel is right.
fn codes(make: impl Fn() -> Kernel) -> Vec<Option<String>> {
    POLICIES.iter().map(|p| make().run_with(*p).err().map(|e| e.code().to_string())).collect()
}

fn right(make: impl Fn() -> Kernel) {
    for policy in POLICIES {
        let out = make().run_with(policy).unwrap_or_else(|e| panic!("{policy:?}: {e}"));
        let sum = |t: i64| (0..ROUNDS).map(|i| (i * 32 + 31 - t % 32) as f64).sum::<f64>();
        assert!((0..128).all(|t| out[1].get(t as usize) == sum(t)), "{policy:?}");
    }
}

/// Wrong in every order, each time one of these.
fn wrong(expected: &[&str], make: impl Fn() -> Kernel) {
    let found = codes(make);
    assert!(found.iter().all(|c| c.as_ref().is_some_and(|c| expected.contains(&c.as_str()))), "{found:?}");
}

#[test]
fn a_ring_between_roles_is_ordered() {
    let make = || {
        let ring = Ring::new(1, 2);
        let (produce, consume) = (ring.produce(), ring.consume());
        ring.kernel(produce, consume)
    };
    right(make);
}

#[test]
fn every_thread_may_arrive_for_itself() {
    let make = || {
        let ring = Ring::new(32, 64);
        let (mut produce, mut consume) = (ring.produce(), ring.consume());
        produce.splice(2.., [arrive(ring.full, ring.slot())]);
        consume.splice(2.., [arrive(ring.empty, ring.slot())]);
        ring.kernel(produce, consume)
    };
    right(make);
}

fn altered(arrivals: (u32, u32), change: impl Fn(&Ring, &mut Vec<Stmt>, &mut Vec<Stmt>)) -> Kernel {
    let ring = Ring::new(arrivals.0, arrivals.1);
    let (mut produce, mut consume) = (ring.produce(), ring.consume());
    change(&ring, &mut produce, &mut consume);
    ring.kernel(produce, consume)
}

#[test]
fn what_is_missing_is_found() {
    const RACE: &[&str] = &["sim.race"];
    const DEADLOCK: &[&str] = &["sim.deadlock"];
    // Arrivals.
    wrong(DEADLOCK, || altered((1, 2), |_, produce, _| drop(produce.pop())));
    wrong(DEADLOCK, || altered((1, 2), |_, _, consume| drop(consume.pop())));
    // Waits.
    wrong(&["sim.race", "sim.uninitialised"], || altered((1, 2), |_, _, consume| drop(consume.remove(0))));
    wrong(&["sim.race", "sim.mbarrier"], || altered((1, 2), |_, produce, _| drop(produce.remove(0))));
    // The barrier of the warp in front of an arrival for all its lanes.
    wrong(RACE, || altered((1, 2), |_, produce, _| drop(produce.remove(2))));
    wrong(RACE, || altered((1, 2), |_, _, consume| drop(consume.remove(2))));
    // A wait by one lane for all, with nothing that tells the others.
    let alone = |_: &Ring, _: &mut Vec<Stmt>, consume: &mut Vec<Stmt>| consume[0] = elect(1, vec![consume[0].clone()]);
    wrong(RACE, || altered((1, 2), alone));
    let told = |ring: &Ring, produce: &mut Vec<Stmt>, consume: &mut Vec<Stmt>| {
        alone(ring, produce, consume);
        consume.insert(1, sync(SyncKind::Warp));
    };
    right(|| altered((1, 2), told));
}

#[test]
fn wrong_phases_slots_and_counts_are_found() {
    let all = ["sim.race", "sim.deadlock", "sim.mbarrier", "sim.uninitialised"];
    let flipped = |s: &mut Stmt| {
        if let Stmt::Sync(Sync { kind: SyncKind::Await { phase, .. }, .. }) = s {
            *phase = phase.clone() + 1;
        }
    };
    wrong(&all, || altered((1, 2), |_, produce, _| flipped(&mut produce[0])));
    wrong(&all, || altered((1, 2), |_, _, consume| flipped(&mut consume[0])));
    let next = |ring: &Ring| (Index::Var(ring.it) + 1).floormod(SLOTS);
    wrong(&all, || altered((1, 2), |r, produce, _| produce[3] = elect(1, vec![arrive(r.full, next(r))])));
    wrong(&all, || altered((1, 2), |r, _, consume| consume[0] = wait(r.full, next(r), r.phase())));
    // Given back by the name of the next slot: the data are safe, but a phase may end twice before the producer waits for it.
    wrong(&["sim.mbarrier"], || altered((1, 2), |r, _, consume| consume[3] = elect(1, vec![arrive(r.empty, next(r))])));
    // A slot given back before it is read.
    wrong(&["sim.race"], || altered((1, 2), |_, _, consume| consume.swap(1, 3)));
    for arrivals in [(2, 2), (1, 1), (1, 3)] {
        wrong(&all, || altered(arrivals, |_, _, _| {}));
    }
}

#[test]
fn a_deadlock_says_who_waits_for_what() {
    let error = altered((1, 2), |_, _, consume| drop(consume.pop())).run().unwrap_err();
    assert_eq!(error.message(), "no warp can proceed");
    assert_eq!(
        error.context()[..2],
        [
            "warps 0 to 1: each waits for phase 1 of full[0], which is in phase 1 with 0 of 1 arrivals; \
             the last to arrive was lane 0 of warp 2",
            "warp 2 waits for phase 0 of empty[0], which is in phase 0 with 0 of 2 arrivals; no thread has arrived"
        ]
    );
}

#[test]
fn mbarriers_are_initialised_once_and_before_their_use() {
    let make = |change: fn(&mut Vec<Stmt>)| {
        let mut k = altered((1, 2), |_, _, _| {});
        change(&mut k.func.body);
        k
    };
    wrong(&["sim.mbarrier"], || make(|body| drop(body.remove(0))));
    wrong(&["sim.mbarrier"], || make(|body| drop(body.remove(1))));
    wrong(&["sim.mbarrier"], || make(|body| body.insert(0, body[0].clone())));
    wrong(&["sim.mbarrier"], || make(|body| body[0] = role(0, 1, vec![sync(SyncKind::InitBarriers)])));
}

/// Threads of a role of two warps, or of a warpgroup, exchange values while the others are elsewhere.
fn exchange(warps: u32, first: u32, meet: SyncKind) -> Kernel {
    let threads = i64::from(warps) * 32;
    let mut k = Kernel::new(1, 320);
    let (c, s) = (k.param("C", threads), k.shared("S", DType::F32, threads, 0));
    let number = Expr::Index(DType::F32, Box::new(Index::Var(k.thread)));
    let opposite = load(s, Index::Int(threads - 1) - Index::Var(k.thread));
    let body = vec![store(s, k.thread, number), sync(meet), store(c, k.thread, opposite)];
    k.func.body = vec![role(first, warps, body)];
    k
}

#[test]
fn barriers_of_roles_and_warpgroups_order_their_threads() {
    let ok = |make: &dyn Fn() -> Kernel| codes(make).iter().all(Option::is_none);
    assert!(ok(&|| exchange(2, 3, SyncKind::Block)));
    assert!(ok(&|| exchange(4, 1, SyncKind::Warpgroup)));
    wrong(&["sim.race", "sim.uninitialised"], || exchange(8, 1, SyncKind::Warpgroup));
    wrong(&["sim.race", "sim.uninitialised"], || exchange(2, 3, SyncKind::Warp));
}

#[test]
fn the_threads_of_a_role_count_from_zero() {
    let out = exchange(2, 3, SyncKind::Block).run().unwrap();
    assert!((0..64).all(|t| out[0].get(t) == (63 - t) as f64));
}
