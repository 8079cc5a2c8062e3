//! Grids and blocks: which block and which warp runs next, and what a barrier demands. The blocks of a cluster run
//! together, each with its own shared memory.
//!
//! The threads of a block are numbered x fastest; 32 consecutive ones are a warp. Warps run until they stand at a
//! barrier, end, or their turn is over; the [`Policy`] says who is next. A barrier opens when all warps of the block
//! wait at the same barrier. If some have ended or wait at another, it never would: that is reported, not waited for.

use super::Policy;
use super::access::World;
use super::bulk;
use super::clocks::Lack;
use super::code::{Code, LANES};
use super::fault::{Waits, Where, explain};
use super::flight::Landing;
use super::listen::{self, EventKind};
use super::mbarrier::Mbarriers;
use super::race::Watch;
use super::report;
use super::scene::Onlooker;
use super::slices::Meeting;
use super::steps;
use super::warp::{Event, Trap, Warp};
use crate::error::Result;
use crate::ir::{Axis, Var};

/// How a kernel is launched.
pub(super) struct Launch {
    /// Clusters in x, y, z; without clusters, blocks.
    pub grid: [u32; 3],
    /// Blocks of a cluster.
    pub cluster: u32,
    pub block: [u32; 3],
    /// Registers of local buffers.
    pub locals: usize,
    pub axes: Vec<(Axis, Var)>,
}

/// Where a warp stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    /// In front of a statement, where warps stop there.
    At(u32),
    /// At a barrier: its place in the code, and who meets there.
    Waiting(usize, Meeting),
    /// For a phase of an mbarrier.
    Blocked {
        slot: usize,
        phase: i64,
        /// Phases that were over when it came there.
        over: i64,
    },
    Done,
}

/// A warp that cannot go on.
pub(super) struct Halt {
    pub trap: Trap,
    pub warp: Warp,
    pub at: Where,
}

/// Runs a kernel.
pub(super) fn run(code: &Code, launch: &Launch, world: &mut World, policy: Policy) -> Result<()> {
    let Err(halt) = run_grid(code, launch, world, policy) else { return Ok(()) };
    // What runs again to find the other access is not shown.
    world.onlooker = Onlooker::default();
    let Some((mut first, mut second, lack)) = partners(code, launch, world, policy, &halt) else {
        return Err(explain(&halt.trap, code, &halt.warp, Some(halt.at)));
    };
    if first.in_warp_of(&second) && lack == Lack::Edge {
        // A race between warps, if there is one too, says which barrier is needed.
        world.clock.coarse = true;
        world.again(None);
        let found = run_grid(code, launch, world, policy).err();
        let wider = found.and_then(|h| partners(code, launch, world, policy, &h));
        (first, second) = wider.map_or((first, second), |(first, second, _)| (first, second));
    }
    Err(report::race(code, first, second, lack))
}

/// The access that a warp could not make, and the one that it is not ordered with: found by running again from the
/// start of the kernel.
fn partners(
    code: &Code,
    launch: &Launch,
    world: &mut World,
    policy: Policy,
    halt: &Halt,
) -> Option<(report::Party, report::Party, Lack)> {
    let (Trap::Race(touch) | Trap::Uninitialised(touch)) = halt.trap else { return None };
    let access = code.accesses.get(touch.access as usize).filter(|a| a.watched)?;
    if halt.trap != Trap::Race(touch) {
        world.clock.next_access();
    }
    let watch = Watch::new(&world.clock, halt.warp.number, access, &touch, world.memory_of(access.place)?);
    let lack = watch.lack;
    world.again(Some(watch));
    let found = run_grid(code, launch, world, policy).err()?;
    let Trap::Race(other) = found.trap else { return None };
    let party = |h: &Halt, touch| report::Party::new(code, &h.warp, h.at, touch);
    Some((party(&found, &other), party(halt, &touch), lack))
}

fn run_grid(code: &Code, launch: &Launch, world: &mut World, policy: Policy) -> Result<(), Box<Halt>> {
    let (threads, cluster) = (launch.block.iter().map(|n| *n as usize).product::<usize>(), launch.cluster as usize);
    let each = threads.div_ceil(LANES);
    let mut warps: Vec<Warp> = (0..each * cluster)
        .map(|number| {
            let (place, base) = (number % each, number - number % each);
            let mut warp = Warp::new(code, launch.locals, number, (threads - place * LANES).min(LANES));
            (warp.base, warp.of) = (base, each * cluster);
            place_threads(code, launch, place, &mut warp);
            warp
        })
        .collect();
    world.clock.kernel(threads, cluster);
    world.landing = Landing::of(policy);
    let mut rng = fastrand::Rng::with_seed(if let Policy::Random(seed) = policy { seed } else { 0 });
    let grid = launched(code, launch.grid, policy);
    let most = if world.listener.first_cluster { 1 } else { usize::MAX };
    for block in blocks(grid, policy, &mut rng).take(most) {
        for warp in &mut warps {
            warp.reset(code);
            warp.elected = elected(warp.full, policy, &mut rng);
            code.step.iter().for_each(|step| warp.scalars[*step as usize] = i64::from(grid[0]));
            let rank = (warp.number / each) as u32;
            for (var, slot) in &code.launch_scalars {
                let of_cluster = launch.axes.contains(&(Axis::Cluster, *var));
                let value = if of_cluster { rank } else { axis_value(launch, *var, block) };
                warp.scalars[*slot as usize] = i64::from(value);
            }
        }
        world.poison_shared();
        world.barriers.reset();
        world.loads.clear();
        world.clock.block();
        world.onlooker.cluster = (block, launch.cluster);
        match world.onlooker.walks() {
            Some(rank) => steps::walk(code, launch, world, &mut warps, (block, rank))?,
            None => run_cluster(code, launch, world, &mut warps, block, policy, &mut rng)?,
        }
        for warp in &mut warps {
            world.enter(warp.number / each);
            warp.flights.abandon(world, &code.accesses);
        }
    }
    Ok(())
}

/// The clusters that run (without clusters, blocks): all, or of a persistent kernel as [`Policy`] says. Some have several tiles, or what one leaves
/// to the next would not be seen; only every eighth seed has one for each.
fn launched(code: &Code, [x, y, z]: [u32; 3], policy: Policy) -> [u32; 3] {
    if code.step.is_none() {
        return [x, y, z];
    }
    let uneven = (2..x).find(|n| !x.is_multiple_of(*n)).unwrap_or(1);
    let x = match policy {
        Policy::InOrder => 1,
        Policy::Reverse => uneven,
        Policy::Random(seed) if seed % 8 == 0 => x,
        Policy::Random(seed) => [1, if x > 2 { 2 } else { 1 }, uneven][(seed % 3) as usize],
    };
    [x, y, z]
}

fn halt(trap: Trap, warp: Warp, at: Where) -> Box<Halt> {
    Box::new(Halt { trap, warp, at })
}

pub(super) fn blocks(grid: [u32; 3], policy: Policy, rng: &mut fastrand::Rng) -> Box<dyn Iterator<Item = [u32; 3]>> {
    let [gx, gy, gz] = grid.map(u64::from);
    let total = gx * gy * gz;
    let place = move |b: u64| [(b % gx) as u32, (b / gx % gy) as u32, (b / gx / gy) as u32];
    match policy {
        Policy::InOrder => Box::new((0..total).map(place)),
        Policy::Reverse => Box::new((0..total).rev().map(place)),
        // An odd stride over a power of two visits each number once, without a list of them.
        Policy::Random(_) => {
            let size = total.next_power_of_two();
            let (start, stride) = (rng.u64(..), rng.u64(..) | 1);
            let order = (0..size).map(move |i| i.wrapping_mul(stride).wrapping_add(start) % size);
            Box::new(order.filter(move |b| *b < total).map(place))
        }
    }
}

fn axis_value(launch: &Launch, var: Var, at: [u32; 3]) -> u32 {
    let axis = launch.axes.iter().find(|(_, v)| *v == var).map(|(a, _)| *a);
    match axis {
        Some(Axis::BlockX | Axis::ThreadX) => at[0],
        Some(Axis::BlockY | Axis::ThreadY) => at[1],
        Some(Axis::BlockZ | Axis::ThreadZ) => at[2],
        _ => 0,
    }
}

fn place_threads(code: &Code, launch: &Launch, number: usize, warp: &mut Warp) {
    let [x, y, _] = launch.block.map(|n| n.max(1));
    for (var, slot) in &code.launch_vectors {
        warp.vectors[*slot as usize] = std::array::from_fn(|lane| {
            let t = (number * LANES + lane) as u32;
            i64::from(axis_value(launch, *var, [t % x, t / x % y, t / x / y]))
        });
    }
}

fn run_cluster(
    code: &Code,
    launch: &Launch,
    world: &mut World,
    warps: &mut [Warp],
    block: [u32; 3],
    policy: Policy,
    rng: &mut fastrand::Rng,
) -> Result<(), Box<Halt>> {
    let mut states = vec![State::Ready; warps.len()];
    let each = warps.len() / launch.cluster.max(1) as usize;
    let at = |warp: usize| place(launch, block, warp, each);
    loop {
        while let Some(next) = choose(&states, &world.barriers, policy, rng) {
            if matches!(policy, Policy::Random(_)) && !world.loads.is_empty() && world.landing.now() {
                let which = rng.usize(..world.loads.len());
                bulk::land(world, code, which).map_err(|trap| halt(trap, warps[next].clone(), at(next)))?;
                continue;
            }
            let turn = if matches!(policy, Policy::Random(_)) { rng.u64(1..9) } else { u64::MAX };
            world.enter(next / each);
            (world.warp, world.each) = (next % each, each);
            let event = warps[next].run(code, world, turn);
            let event = event.map_err(|trap| halt(trap, warps[next].clone(), at(next)))?;
            states[next] = state(event, &world.barriers);
            end_block(&states, world, next / each, each, launch.cluster);
        }
        if settle(&mut states, code, world, warps, at)? {
            return Ok(());
        }
    }
}

/// The block of a warp of a cluster, and the warp in it.
pub(super) fn place(launch: &Launch, [x, y, z]: [u32; 3], warp: usize, each: usize) -> Where {
    let rank = (warp / each) as u32;
    Where { block: [x * launch.cluster + rank, y, z], threads: launch.block, warp: warp % each }
}

/// Where a warp is that has stopped so.
pub(super) fn state(event: Event, barriers: &Mbarriers) -> State {
    match event {
        Event::Done => State::Done,
        Event::Barrier(pc, meeting) => State::Waiting(pc, meeting),
        Event::Blocked { slot, phase } => State::Blocked { slot, phase, over: barriers.over(slot) },
        Event::At(statement) => State::At(statement),
        Event::Paused => State::Ready,
    }
}

/// A block of a cluster whose warps have all ended is no longer there for the others.
pub(super) fn end_block(states: &[State], world: &mut World, rank: usize, each: usize, cluster: u32) {
    if cluster > 1 && states[rank * each..(rank + 1) * each].iter().all(|s| *s == State::Done) {
        world.barriers.end(rank);
    }
}

/// Where no warp can go on: opens barriers, or lets the bulk load land that has been under way longest; whether the cluster has ended.
pub(super) fn settle(
    states: &mut [State],
    code: &Code,
    world: &mut World,
    warps: &[Warp],
    at: impl Fn(usize) -> Where,
) -> Result<bool, Box<Halt>> {
    let done = states.iter().all(|s| *s == State::Done);
    if done && world.loads.is_empty() && !world.barriers.is_left_alone() {
        return Ok(true);
    }
    if done {
        let trap = Trap::Unfinished { lane: 0, what: "a bulk load" };
        return Err(halt(trap, warps[0].clone(), at(0)));
    }
    if open_barriers(states, world) {
        return Ok(false);
    }
    // As late as can be: nothing else can go on.
    if world.loads.is_empty() {
        return Err(stuck(states, code, world, warps, at));
    }
    bulk::land(world, code, 0).map_err(|trap| halt(trap, warps[0].clone(), at(0)))?;
    Ok(false)
}

/// Whether a warp can run.
pub(super) fn can_go_on(state: &State, barriers: &Mbarriers) -> bool {
    match *state {
        State::Ready => true,
        State::Blocked { slot, over, .. } => barriers.over(slot) != over,
        _ => false,
    }
}

fn choose(states: &[State], barriers: &Mbarriers, policy: Policy, rng: &mut fastrand::Rng) -> Option<usize> {
    let mut ready = (0..states.len()).filter(|w| can_go_on(&states[*w], barriers));
    match policy {
        Policy::InOrder => ready.next(),
        Policy::Reverse => ready.next_back(),
        Policy::Random(_) => {
            let all: Vec<usize> = ready.collect();
            if all.is_empty() { None } else { Some(all[rng.usize(..all.len())]) }
        }
    }
}

/// The lane that a warp elects: any, but always the same one.
pub(super) fn elected(full: u32, policy: Policy, rng: &mut fastrand::Rng) -> usize {
    let lanes = full.count_ones() as usize;
    match policy {
        Policy::InOrder => 0,
        Policy::Reverse => lanes.saturating_sub(1),
        Policy::Random(_) => rng.usize(..lanes.max(1)),
    }
}

/// Lets warps go on from the barriers at which all who meet there stand; whether there was one.
fn open_barriers(states: &mut [State], world: &mut World) -> bool {
    let mut opened = false;
    for warp in 0..states.len() {
        let State::Waiting(_, meeting) = states[warp] else { continue };
        let all = states.get(meeting.range()).unwrap_or_default();
        if all.iter().any(|s| *s != states[warp]) {
            continue;
        }
        states[meeting.range()].fill(State::Ready);
        world.clock.meet(meeting.range());
        world.tell(EventKind::Meeting(listen::Meeting { first: meeting.first, warps: meeting.warps }));
        opened = true;
    }
    opened
}

/// Why no warp can go on.
fn stuck(states: &[State], code: &Code, world: &World, warps: &[Warp], at: impl Fn(usize) -> Where) -> Box<Halt> {
    let waits = |s: &State| matches!(s, State::Waiting(..));
    let Some(first) = states.iter().position(|s| !matches!(s, State::Done | State::Ready | State::At(_))) else {
        let trap = Trap::Broken("no warp can proceed, and none waits at a barrier");
        return halt(trap, warps[0].clone(), at(0));
    };
    if let (Some(first), false) =
        (states.iter().position(waits), states.iter().any(|s| matches!(s, State::Blocked { .. })))
        && let State::Waiting(_, meeting) = states[first]
        && let Some(other) = meeting.range().find(|w| states.get(*w) != Some(&states[first]))
    {
        let what = if states[other] == State::Done { "has ended" } else { "waits at another barrier" };
        let mut stuck = warps[first].clone();
        stuck.pc = stuck.pc.saturating_sub(1);
        return halt(Trap::Stuck { other, what }, stuck, at(first));
    }
    let does = states.iter().enumerate().filter_map(|(warp, state)| {
        let does = match state {
            State::Blocked { slot, phase, .. } => {
                let state = world.barriers.state(&code.func, *slot);
                format!("waits for phase {phase} of {state}")
            }
            State::Waiting(_, Meeting { first, warps: 1 }) => {
                format!("waits at a barrier of warp {first}")
            }
            State::Waiting(_, Meeting { first, warps }) => {
                format!("waits at a barrier of warps {first} to {}", first + warps - 1)
            }
            State::Done => "has ended".to_string(),
            State::Ready | State::At(_) => return None,
        };
        Some(Waits { warp, does })
    });
    let mut stuck = warps[first].clone();
    stuck.pc = stuck.pc.saturating_sub(usize::from(waits(&states[first])));
    halt(Trap::Deadlock(does.collect()), stuck, at(first))
}
