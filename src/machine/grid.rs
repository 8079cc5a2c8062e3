//! Grids and blocks: which block and which warp runs next, and what a barrier demands.
//!
//! The threads of a block are numbered x fastest; 32 consecutive ones are a warp. Warps run until they stand at a
//! barrier, end, or their turn is over; the [`Policy`] says who is next. A barrier opens when all warps of the block
//! stand at the same one. If some have ended or stand at another, it never would: that is reported, not waited for.

use super::Policy;
use super::access::World;
use super::code::{Code, LANES};
use super::fault::{Where, explain};
use super::flight::Landing;
use super::race::Watch;
use super::report;
use super::warp::{Event, Trap, Warp};
use crate::error::Result;
use crate::ir::{Axis, Var};

/// How a kernel is launched.
pub(super) struct Launch {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Registers of local buffers.
    pub locals: usize,
    pub axes: Vec<(Axis, Var)>,
}

/// Where a warp stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    Waiting(usize),
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
    let Some((mut first, mut second)) = partners(code, launch, world, policy, &halt) else {
        return Err(explain(&halt.trap, code, &halt.warp, Some(halt.at)));
    };
    if first.in_warp_of(&second) {
        // A race between warps, if there is one too, says which barrier is needed.
        world.clock.coarse = true;
        world.again(None);
        let found = run_grid(code, launch, world, policy).err();
        (first, second) = found.and_then(|h| partners(code, launch, world, policy, &h)).unwrap_or((first, second));
    }
    Err(report::race(code, first, second))
}

/// The access that a warp could not make, and the one that it is not ordered with: found by running again from the
/// start of the kernel.
fn partners(
    code: &Code,
    launch: &Launch,
    world: &mut World,
    policy: Policy,
    halt: &Halt,
) -> Option<(report::Party, report::Party)> {
    let (Trap::Race(touch) | Trap::Uninitialised(touch)) = halt.trap else { return None };
    let access = code.accesses.get(touch.access as usize).filter(|a| a.watched)?;
    if halt.trap != Trap::Race(touch) {
        world.clock.next_access();
    }
    let watch = Watch::new(&world.clock, halt.warp.number, access, &touch, world.memory_of(access.place)?);
    world.again(Some(watch));
    let found = run_grid(code, launch, world, policy).err()?;
    let Trap::Race(other) = found.trap else { return None };
    let party = |h: &Halt, touch| report::Party::new(code, &h.warp, h.at, touch);
    Some((party(&found, &other), party(halt, &touch)))
}

fn run_grid(code: &Code, launch: &Launch, world: &mut World, policy: Policy) -> Result<(), Box<Halt>> {
    let threads = launch.block.iter().map(|n| *n as usize).product::<usize>();
    let mut warps: Vec<Warp> = (0..threads.div_ceil(LANES))
        .map(|w| Warp::new(code, launch.locals, w, (threads - w * LANES).min(LANES)))
        .collect();
    for (number, warp) in warps.iter_mut().enumerate() {
        place_threads(code, launch, number, warp);
    }
    world.clock.kernel(threads);
    world.landing = Landing::of(policy);
    let mut rng = fastrand::Rng::with_seed(if let Policy::Random(seed) = policy { seed } else { 0 });
    for block in blocks(launch.grid, policy, &mut rng) {
        for warp in &mut warps {
            warp.reset();
            for (var, slot) in &code.launch_scalars {
                warp.scalars[*slot as usize] = i64::from(axis_value(launch, *var, block));
            }
        }
        world.shared.poison();
        world.clock.block();
        run_block(code, launch, world, &mut warps, block, policy, &mut rng)?;
        warps.iter_mut().for_each(|w| w.flights.abandon(world, &code.accesses));
    }
    Ok(())
}

fn halt(trap: Trap, warp: Warp, at: Where) -> Box<Halt> {
    Box::new(Halt { trap, warp, at })
}

fn blocks(grid: [u32; 3], policy: Policy, rng: &mut fastrand::Rng) -> Box<dyn Iterator<Item = [u32; 3]>> {
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

fn run_block(
    code: &Code,
    launch: &Launch,
    world: &mut World,
    warps: &mut [Warp],
    block: [u32; 3],
    policy: Policy,
    rng: &mut fastrand::Rng,
) -> Result<(), Box<Halt>> {
    let mut states = vec![State::Ready; warps.len()];
    let at = |warp| Where { block, threads: launch.block, warp };
    loop {
        while let Some(next) = choose(&states, policy, rng) {
            let turn = if matches!(policy, Policy::Random(_)) { rng.u64(1..9) } else { u64::MAX };
            let event = warps[next].run(code, world, turn);
            states[next] = match event.map_err(|trap| halt(trap, warps[next].clone(), at(next)))? {
                Event::Done => State::Done,
                Event::Barrier(pc) => State::Waiting(pc),
                Event::Paused => State::Ready,
            };
        }
        if states.iter().all(|s| *s == State::Done) {
            return Ok(());
        }
        open_barrier(&mut states, warps, at)?;
        world.clock.block_barrier();
    }
}

fn choose(states: &[State], policy: Policy, rng: &mut fastrand::Rng) -> Option<usize> {
    let mut ready = (0..states.len()).filter(|w| states[*w] == State::Ready);
    match policy {
        Policy::InOrder => ready.next(),
        Policy::Reverse => ready.next_back(),
        Policy::Random(_) => {
            let all: Vec<usize> = ready.collect();
            if all.is_empty() { None } else { Some(all[rng.usize(..all.len())]) }
        }
    }
}

/// Lets all warps go on from the barrier at which they all stand.
fn open_barrier(states: &mut [State], warps: &[Warp], at: impl Fn(usize) -> Where) -> Result<(), Box<Halt>> {
    let waiting = states.iter().position(|s| matches!(s, State::Waiting(_)));
    let Some(first) = waiting else {
        let trap = Trap::Broken("no warp can go on, and none stands at a barrier");
        return Err(halt(trap, warps[0].clone(), at(0)));
    };
    if let Some(other) = states.iter().position(|s| *s != states[first]) {
        let what = if states[other] == State::Done { "has ended" } else { "stands at another barrier" };
        let mut stuck = warps[first].clone();
        stuck.pc = stuck.pc.saturating_sub(1);
        return Err(halt(Trap::Stuck { other, what }, stuck, at(first)));
    }
    states.fill(State::Ready);
    Ok(())
}
