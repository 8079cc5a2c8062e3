//! What is a race and what is not, against the definition by brute force, and what is said of one.

use super::tests::{Kernel, barrier, load, reversal, store};
use super::*;
use crate::dtype::DType;
use crate::error::{Code, Error};
use crate::ir::{BufferId, Cond, Expr, For, If, Index, LoopKind, Stmt, Store, SyncKind, Var};

const POLICIES: [Policy; 4] = [Policy::InOrder, Policy::Reverse, Policy::Random(1), Policy::Random(2)];

fn warp_barrier() -> Stmt {
    Stmt::Sync(SyncKind::Warp.because("a test"))
}

fn one(dtype: DType) -> Expr {
    Expr::constant(dtype, 1.0)
}

fn under(cond: Cond, stmt: Stmt) -> Stmt {
    Stmt::If(If { cond, body: vec![stmt] })
}

/// The verdict, which must be the same whatever order is drawn.
fn verdict(make: impl Fn() -> Kernel) -> Option<Error> {
    let mut all = POLICIES.map(|p| make().run_with(p).err());
    let codes = all.each_ref().map(|e| e.as_ref().map(|e| e.code().to_string()));
    assert!(codes.iter().all(|c| *c == codes[0]), "{codes:?}");
    all[0].take()
}

fn shown(error: &Error) -> String {
    let text = |l: &crate::error::Label| format!("{}: {}", &error.source_text().unwrap()[l.span.clone()], l.message);
    error.labels().iter().map(text).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_missing_barrier_of_the_block_is_named() {
    let error = verdict(|| reversal(false)).unwrap();
    assert_eq!(
        error.to_string(),
        "a fault of warploom itself [sim.race]: S[63] is written by one thread and read by another, and nothing \
         orders them
  block (0, 0, 0), thread (63, 0, 0) writes S[63] in `S[tx] = A[bx*64 + tx]`, with bx = 0, tx = 63
  block (0, 0, 0), thread (0, 0, 0) reads S[63] in `C[bx*64 + tx] = S[63 - tx]`, with bx = 0, tx = 0
  try: a barrier of the block before `C[bx*64 + tx] = S[63 - tx]`"
    );
    assert_eq!(
        shown(&error),
        "S[tx]: block (0, 0, 0), thread (63, 0, 0) writes this
S[63 - tx]: block (0, 0, 0), thread (0, 0, 0) reads this
C[bx*64 + tx] = S[63 - tx]: the barrier must be before this"
    );
    let mut args = [128, 128].map(|n| Array::zeros(DType::F32, &[n]).unwrap());
    let options = Options { races: false, policy: Policy::Random(3), ..Options::new(Mode::Real) };
    let code = run_lowered_with(&reversal(false).lowered(), &options, &mut args).unwrap_err();
    assert_eq!(code.code(), Code::SimUninitialised, "without the search the order drawn decides");
}

/// Lanes exchange values through shared memory: `sync` is between.
fn exchange(threads: u32, sync: Option<Stmt>) -> Kernel {
    let mut k = Kernel::new(1, threads);
    let (c, s) = (k.param("C", i64::from(threads)), k.shared("S", DType::F32, i64::from(threads), 0));
    k.func.body.push(store(s, k.thread, Expr::Index(DType::F32, Box::new(Index::Var(k.thread)))));
    k.func.body.extend(sync);
    k.func.body.push(store(c, k.thread, load(s, Index::Int(i64::from(threads) - 1) - Index::Var(k.thread))));
    k
}

#[test]
fn lanes_of_a_warp_are_ordered_by_barriers_alone() {
    let error = verdict(|| exchange(32, None)).unwrap();
    assert_eq!(error.code(), Code::SimRace);
    assert_eq!(error.helps(), ["a barrier of the warp before `C[tx] = S[31 - tx]`"]);
    for (threads, sync) in [(32, warp_barrier()), (32, barrier()), (64, barrier())] {
        assert_eq!(verdict(|| exchange(threads, Some(sync.clone()))), None);
    }
    let error = verdict(|| exchange(64, Some(warp_barrier()))).unwrap();
    assert_eq!(error.helps(), ["a barrier of the block before `C[tx] = S[63 - tx]`"]);
}

#[test]
fn an_iteration_waits_for_the_one_before() {
    let make = |with: bool| {
        let mut k = Kernel::new(1, 64);
        let (c, s, acc) = (k.param("C", 64), k.shared("S", DType::F32, 64, 0), k.local("acc", 1));
        let i = k.func.add_var("i");
        let index = Expr::Index(DType::F32, Box::new(Index::Var(i)));
        let mut inside = vec![store(s, k.thread, index), barrier()];
        if with {
            inside.insert(0, barrier());
        }
        inside.push(store(acc, 0, load(s, Index::Int(63) - Index::Var(k.thread))));
        k.func.body = vec![Stmt::For(For::new(i, 3, LoopKind::Serial, inside)), store(c, k.thread, load(acc, 0))];
        k
    };
    assert_eq!(verdict(|| make(true)), None);
    let error = verdict(|| make(false)).unwrap();
    assert!(error.message().ends_with("is read by one thread and written by another, and nothing orders them"));
    assert_eq!(error.helps(), ["a barrier of the block in each iteration of loop i, before `S[tx] = f32(i)`"]);
    assert!(error.context()[0].contains("i = 0") && error.context()[1].contains("i = 1"), "{error}");
}

#[test]
fn equal_values_written_twice_are_a_race() {
    let make = || {
        let mut k = Kernel::new(1, 2);
        let c = k.param("C", 1);
        k.func.body = vec![store(c, 0, one(DType::F32))];
        k
    };
    let error = verdict(make).unwrap();
    assert_eq!(error.message(), "C[0] is written by two threads, and nothing orders them");
    assert!(error.helps()[0].starts_with("no barrier orders threads inside one run of a statement"), "{error}");
}

#[test]
fn blocks_are_not_ordered() {
    let make = |own: bool, read: bool| {
        let mut k = Kernel::new(2, 32);
        let (c, d) = (k.param("C", 64), k.param("D", 64));
        let mine = k.block * 32 + k.thread;
        let theirs = if own { mine.clone() } else { Index::Int(32) - k.block * 32 + Index::Var(k.thread) };
        k.func.body.push(store(c, mine.clone(), one(DType::F32)));
        k.func.body.push(store(d, mine, one(DType::F32)));
        k.func.body.push(barrier());
        let again = if read { load(c, theirs.clone()) } else { one(DType::F32) };
        k.func.body.push(if read { store(d, k.block * 32 + k.thread, again) } else { store(c, theirs, again) });
        k
    };
    assert_eq!(verdict(|| make(true, true)), None);
    assert_eq!(verdict(|| make(true, false)), None);
    for read in [true, false] {
        let error = verdict(|| make(false, read)).unwrap();
        assert!(error.helps()[0].starts_with("no barrier orders the blocks of a kernel"), "{error}");
    }
    // Two kernels, one after the other, may do the same.
    let mut both = make(true, true).lowered();
    let again = both.kernels[0].clone();
    both.kernels.push(again);
    let mut args = [64, 64].map(|n| Array::zeros(DType::F32, &[n]).unwrap());
    assert!(run_lowered(&both, Mode::Real, &mut args).is_ok());
}

#[test]
fn barriers_order_the_parameters_that_are_exchanged() {
    let make = |exchanged: bool| {
        let mut k = Kernel::new(1, 64);
        let (c, d) = (k.param("C", 64), k.param("D", 64));
        k.func.body = vec![store(c, k.thread, one(DType::F32)), barrier()];
        k.func.body.push(store(d, k.thread, load(c, Index::Int(63) - Index::Var(k.thread))));
        let mut lowered = k.lowered();
        lowered.kernels[0].exchanged = if exchanged { vec![c] } else { Vec::new() };
        let mut args = [64, 64].map(|n| Array::zeros(DType::F32, &[n]).unwrap());
        run_lowered(&lowered, Mode::Real, &mut args)
    };
    assert!(make(true).is_ok());
    let error = make(false).unwrap_err();
    assert_eq!(error.code(), Code::SimRace);
    assert_eq!(error.helps()[1], "C must also be among the kernel's exchanged parameters");
}

#[test]
fn buffers_that_share_bytes_race_too() {
    let make = |offset: u32| {
        let mut k = Kernel::new(1, 32);
        let c = k.param("C", 32);
        let (wide, narrow) = (k.shared("W", DType::F32, 32, 0), k.shared("N", DType::F16, 32, offset));
        k.func.body = vec![
            store(wide, k.thread, one(DType::F32)),
            store(narrow, k.thread, one(DType::F16)),
            store(c, k.thread, Expr::cast(DType::F32, load(narrow, k.thread))),
        ];
        k
    };
    assert_eq!(verdict(|| make(128)), None);
    let error = verdict(|| make(64)).unwrap();
    assert_eq!(error.message(), "W[16] (the bytes of N[0]) is written by two threads, and nothing orders them");
}

#[test]
fn elements_of_vectors_are_named() {
    let make = || {
        let mut k = Kernel::new(1, 8);
        let (c, s) = (k.param("C", 8), k.shared("S", DType::F32, 32, 0));
        let value = Expr::Splat(4, Box::new(one(DType::F32)));
        k.func.body = vec![
            Stmt::Store(Store { lanes: 4, ..Store::new(s, vec![k.thread * 4], value) }),
            store(c, k.thread, load(s, k.thread)),
        ];
        k
    };
    let error = verdict(make).unwrap();
    assert!(error.message().starts_with("element 1 of the vector S[0] (the bytes of S[1])"), "{error}");
}

fn copied(buffer: BufferId, index: impl Into<Index>, value: Expr) -> Stmt {
    Stmt::Store(Store { asynchronous: true, ..Store::new(buffer, vec![index.into()], value) })
}

fn commit() -> Stmt {
    Stmt::Sync(SyncKind::Commit.because("a test"))
}

fn wait(groups: u32) -> Stmt {
    Stmt::Sync(SyncKind::Wait { groups }.because("a test"))
}

/// Threads copy an element each and read the one of the mirrored thread, or their own: `syncs` are between.
fn copy_and_read(mirrored: bool, syncs: &[Stmt]) -> Kernel {
    let mut k = Kernel::new(2, 64);
    let (a, c, s) = (k.param("A", 64), k.param("C", 128), k.shared("S", DType::F32, 64, 0));
    let at = if mirrored { Index::Int(63) - Index::Var(k.thread) } else { Index::Var(k.thread) };
    k.func.body = vec![copied(s, k.thread, load(a, k.thread))];
    k.func.body.extend_from_slice(syncs);
    k.func.body.push(store(c, k.block * 64 + k.thread, load(s, at)));
    k
}

#[test]
fn a_copy_is_in_flight_until_its_thread_has_waited() {
    let own = |syncs: &[Stmt]| verdict(|| copy_and_read(false, syncs));
    assert_eq!(own(&[commit(), wait(0)]), None);
    assert_eq!(own(&[commit(), commit(), wait(1)]), None);
    for syncs in [&[][..], &[wait(0)], &[wait(0), commit()], &[commit(), wait(1)], &[commit(), barrier()]] {
        let error = own(syncs).unwrap();
        assert_eq!(
            error.message(),
            "S[0] is filled by a copy of a thread and read by the same thread, and nothing orders them"
        );
        assert_eq!(error.helps(), ["a wait for the group of the copy before `C[bx*64 + tx] = S[tx]`"]);
        assert!(error.context()[0].contains("copies to S[0] in `async S[tx] = A[tx]`"), "{error}");
    }
}

#[test]
fn other_threads_see_a_copy_after_the_wait_and_a_barrier() {
    let other = |syncs: &[Stmt]| verdict(|| copy_and_read(true, syncs));
    assert_eq!(other(&[commit(), wait(0), barrier()]), None);
    for syncs in [&[commit(), barrier(), wait(0)][..], &[commit(), wait(0)], &[commit(), wait(1), barrier()]] {
        let error = other(syncs).unwrap();
        assert_eq!(
            error.to_string(),
            "a fault of warploom itself [sim.race]: S[63] is filled by a copy of one thread and read by another, and \
             nothing orders them
  block (0, 0, 0), thread (63, 0, 0) copies to S[63] in `async S[tx] = A[tx]`, with bx = 0, tx = 63
  block (0, 0, 0), thread (0, 0, 0) reads S[63] in `C[bx*64 + tx] = S[63 - tx]`, with bx = 0, tx = 0
  try: a wait for the group of the copy, then a barrier of the block, before `C[bx*64 + tx] = S[63 - tx]`"
        );
        assert_eq!(
            shown(&error),
            "S[tx]: block (0, 0, 0), thread (63, 0, 0) copies to this
S[63 - tx]: block (0, 0, 0), thread (0, 0, 0) reads this
C[bx*64 + tx] = S[63 - tx]: the wait must be before this"
        );
    }
}

#[test]
fn a_copy_overtakes_no_reader() {
    let make = |with: bool| {
        let mut k = copy_and_read(true, &[commit(), wait(0), barrier()]);
        let (a, s) = (BufferId(0), BufferId(2));
        k.func.body.extend(with.then(barrier));
        k.func.body.push(copied(s, k.thread, load(a, k.thread)));
        k
    };
    assert_eq!(verdict(|| make(true)), None);
    let error = verdict(|| make(false)).unwrap();
    assert!(
        error.message().ends_with("is read by one thread and filled by a copy of another, and nothing orders them")
    );
    assert_eq!(error.helps(), ["a barrier of the block before `async S[tx] = A[tx]`"]);
}

/// The second net: without the search, a copy that lands late is read as poison.
#[test]
fn bytes_under_way_are_poison() {
    let run = |policy| {
        let mut args = [64, 128].map(|n| Array::zeros(DType::F32, &[n]).unwrap());
        let options = Options { races: false, policy, ..Options::new(Mode::Real) };
        run_lowered_with(&copy_and_read(false, &[commit(), wait(1)]).lowered(), &options, &mut args)
    };
    assert_eq!(run(Policy::InOrder).unwrap_err().code(), Code::SimUninitialised);
    assert!(run(Policy::Reverse).is_ok());
}

/// What a step of a random kernel does with an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Read,
    Write,
    Copy,
}

/// A statement of a random kernel.
#[derive(Clone, Copy, Debug)]
enum Step {
    Block,
    Warp,
    Commit,
    Wait(u32),
    /// Lanes with `low <= thread < high` access element `(thread * factor + shift) / divisor`.
    Access {
        does: Does,
        low: i64,
        high: i64,
        factor: i64,
        shift: i64,
        divisor: i64,
    },
}

const THREADS: i64 = 70;

impl Step {
    fn random(rng: &mut fastrand::Rng) -> Step {
        match rng.u32(0..10) {
            0 | 1 => Step::Block,
            2 => Step::Warp,
            3 => Step::Commit,
            4 => Step::Wait(rng.u32(0..2)),
            _ => {
                let low = if rng.bool() { 0 } else { rng.i64(0..THREADS) };
                let high = if rng.bool() { THREADS } else { rng.i64(low..=THREADS) };
                let (factor, divisor) = ([1, 1, 0, 2][rng.usize(0..4)], [1, 1, 1, 2, 32][rng.usize(0..5)]);
                let shift = if rng.u32(0..3) > 0 { 0 } else { rng.i64(0..40) };
                let does = [Does::Read, Does::Write, Does::Copy, Does::Copy][rng.usize(0..4)];
                Step::Access { does, low, high, factor, shift, divisor }
            }
        }
    }

    fn element(self, thread: i64) -> Option<(Does, i64)> {
        match self {
            Step::Access { does, low, high, factor, shift, divisor } if (low..high).contains(&thread) => {
                Some((does, (thread * factor + shift) / divisor))
            }
            _ => None,
        }
    }

    fn stmt(self, k: &Kernel, a: BufferId, s: BufferId, local: BufferId) -> Stmt {
        let (does, low, high, factor, shift, divisor) = match self {
            Step::Block => return barrier(),
            Step::Warp => return warp_barrier(),
            Step::Commit => return commit(),
            Step::Wait(groups) => return wait(groups),
            Step::Access { does, low, high, factor, shift, divisor } => (does, low, high, factor, shift, divisor),
        };
        let element = (k.thread * factor + Index::Int(shift)).floordiv(divisor);
        let access = match does {
            Does::Read => store(local, 0, load(s, element)),
            Does::Write => store(s, element, one(DType::F32)),
            Does::Copy => copied(s, element, load(a, k.thread)),
        };
        let tx: Var = k.thread;
        under(Cond::lt(tx, high).and(Cond::lt(low - 1, tx)), access)
    }
}

/// The wait after which the copy of a step has landed for its thread, if there is one.
fn landed(steps: &[Step], copy: usize) -> Option<usize> {
    let mut closed = 0;
    (copy..steps.len()).find(|s| match steps[*s] {
        Step::Commit => {
            closed += 1;
            false
        }
        Step::Wait(groups) => closed > groups,
        _ => false,
    })
}

/// Whether two accesses of one element, one of them a write, are not ordered: the first is a copy that its thread has not
/// waited for, or they are of different threads and no barrier that both wait at is between.
fn races(steps: &[Step]) -> bool {
    let pair = |a: usize, b: usize, t: i64, u: i64| {
        let (Some((one, ea)), Some((two, eb))) = (steps[a].element(t), steps[b].element(u)) else { return false };
        let ordering = |s: &Step| matches!(s, Step::Block) || t / 32 == u / 32 && matches!(s, Step::Warp);
        if (one, two) == (Does::Read, Does::Read) || ea != eb || (a, t) == (b, u) {
            return false;
        }
        let done = if one == Does::Copy { landed(steps, a).filter(|w| *w < b) } else { Some(a) };
        done.is_none_or(|done| t != u && !steps[done..b].iter().any(ordering))
    };
    let threads = || (0..THREADS).flat_map(|t| (0..THREADS).map(move |u| (t, u)));
    (0..steps.len()).any(|a| (a..steps.len()).any(|b| threads().any(|(t, u)| pair(a, b, t, u))))
}

#[test]
fn verdicts_are_those_of_the_definition() {
    let mut rng = fastrand::Rng::with_seed(5);
    let (mut racy, mut clean) = (0, 0);
    for round in 0..800 {
        let steps: Vec<Step> = (0..rng.usize(2..9)).map(|_| Step::random(&mut rng)).collect();
        let make = || {
            let mut k = Kernel::new(2, THREADS as u32);
            let (a, c, local) = (k.param("A", THREADS), k.param("C", 2 * THREADS), k.local("l", 1));
            let s = k.shared("S", DType::F32, 256, 0);
            let v = k.func.add_var("v");
            let fill = store(s, Index::Var(v), one(DType::F32));
            let fill = Stmt::For(For::new(v, 256, LoopKind::Serial, vec![fill]));
            k.func.body = vec![under(Cond::eq(Index::Var(k.thread), 0), fill), barrier()];
            let body: Vec<Stmt> = steps.iter().map(|step| step.stmt(&k, a, s, local)).collect();
            k.func.body.extend(body);
            k.func.body.push(store(c, k.block * THREADS + k.thread, one(DType::F32)));
            k
        };
        let found = verdict(make);
        assert_eq!(found.as_ref().map(|e| e.code()), races(&steps).then_some(Code::SimRace), "{round}: {steps:?}");
        *(if found.is_some() { &mut racy } else { &mut clean }) += 1;
    }
    assert!(racy > 120 && clean > 120, "{racy} racy, {clean} clean");
}
