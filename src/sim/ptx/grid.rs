//! The blocks of a kernel and the warps of a cluster: who runs next, barriers of a block, what lands, and deadlocks.

use super::code::Fill;
use super::exec::{Halt, Pause, Program};
use super::flow::State;
use super::special;
use super::trap::Trap;
use super::warp::{LANES, Warp};
use super::world::World;
use crate::error::Code;
use crate::sim::Policy;
use crate::sim::fault::Waits;
use crate::sim::grid::{blocks, elected};
use crate::sim::race::Cell;

/// A fault, and the thread that it is about.
#[derive(Debug)]
pub(in crate::sim::ptx) struct Stop {
    pub halt: Halt,
    /// The block.
    pub block: [u32; 3],
    /// The warp in its block; `None` where the fault is not a warp's.
    pub warp: Option<usize>,
    /// What each warp does, where none can proceed.
    pub waits: Vec<Waits>,
}

/// Runs the blocks of a kernel; the world has its memory, its sizes and its parameters.
pub(in crate::sim::ptx) fn run(program: &Program<'_>, world: &mut World, policy: Policy) -> Result<(), Box<Stop>> {
    let threads: usize = world.block.iter().map(|n| *n as usize).product();
    let (each, cluster) = (threads.div_ceil(LANES), world.blocks());
    let mut rng = fastrand::Rng::with_seed(if let Policy::Random(seed) = policy { seed } else { 0 });
    let mut warps: Vec<Warp> = (0..each * cluster).map(|n| fresh(program, n, (each, threads), &mut rng)).collect();
    if world.clock.with_clocks(program.code.precise || cluster > 1) {
        world.memories.iter_mut().for_each(|memory| memory.cells.fill(Cell::default()));
    }
    world.clock.kernel(threads, cluster);
    let clusters = std::array::from_fn(|n| world.grid[n] / world.cluster[n]);
    for at in blocks(clusters, policy, &mut rng) {
        world.origin = std::array::from_fn(|n| at[n] * world.cluster[n]);
        let [x, y, z] = world.origin;
        world.number = z.wrapping_mul(world.grid[1]).wrapping_add(y).wrapping_mul(world.grid[0]).wrapping_add(x);
        world.clock.block();
        world.ended = vec![false; cluster];
        world.tensor.begin(cluster, each);
        for memory in world.memories.iter_mut().skip(world.buffers) {
            memory.bytes.fill(0xA5);
            memory.written.fill(0);
        }
        for warp in &mut warps {
            begin(program, world, warp);
            warp.elected = elected(warp.full, policy, &mut rng);
        }
        run_cluster(program, world, &mut warps, (each, policy), &mut rng)?;
    }
    Ok(())
}

/// A warp whose registers hold nothing in particular, and no more than the 16 bits that the narrowest have.
fn fresh(program: &Program<'_>, number: usize, (each, threads): (usize, usize), rng: &mut fastrand::Rng) -> Warp {
    let place = number % each;
    let lanes = (threads - place * LANES).min(LANES);
    let local_bytes = program.entry.local_bytes as usize;
    let noise = rng.u64(..) | 1;
    let mut registers = vec![[0; LANES]; program.code.registers as usize];
    for (n, register) in registers.iter_mut().enumerate() {
        *register = std::array::from_fn(|l| noise.wrapping_mul((n * LANES + l + 1) as u64) >> 48);
    }
    Warp {
        number,
        place,
        rank: number / each,
        full: if lanes == LANES { u32::MAX } else { (1 << lanes) - 1 },
        live: 0,
        elected: 0,
        registers,
        predicates: (0..program.code.predicates).map(|n| (noise >> (n % 33)) as u32).collect(),
        local: vec![0; local_bytes * LANES],
        local_written: vec![false; local_bytes * LANES],
        local_bytes,
        groups: Vec::new(),
        frames: Vec::new(),
        waited: 0,
        poison: Default::default(),
        traced: 0,
        copies: Default::default(),
    }
}

/// A block begins: constants, special registers and parameters have their values.
fn begin(program: &Program<'_>, world: &World, warp: &mut Warp) {
    warp.restart();
    warp.waited = 0;
    warp.traced = 0;
    warp.forget_poison();
    warp.local_written.fill(false);
    for (register, fill) in &program.code.fills {
        let value = |lane| match *fill {
            Fill::Constant(value) => value,
            Fill::Special(special) => special::value(special, warp, world, lane),
            // The launch has checked that there is one.
            Fill::Param { offset, bytes } => world.param(offset, bytes).unwrap_or(0),
        };
        warp.registers[*register as usize] = std::array::from_fn(value);
    }
}

fn stop(trap: Trap, world: &World, warp: Option<&Warp>, pc: usize) -> Box<Stop> {
    let rank = warp.map_or(0, |w| w.rank) as u32;
    let [cx, cy, _] = world.cluster;
    let inside = [rank % cx, rank / cx % cy, rank / cx / cy];
    let block = std::array::from_fn(|n| world.origin[n] + inside[n]);
    Box::new(Stop { halt: Halt { trap, pc }, block, warp: warp.map(|w| w.place), waits: Vec::new() })
}

fn run_cluster(
    program: &Program<'_>,
    world: &mut World,
    warps: &mut [Warp],
    (each, policy): (usize, Policy),
    rng: &mut fastrand::Rng,
) -> Result<(), Box<Stop>> {
    let random = matches!(policy, Policy::Random(_));
    let mut done = 0;
    loop {
        while let Some(next) = choose(warps, world.progress, policy, rng) {
            if random && world.tensor.pending() > 0 && world.landing.now() {
                let which = rng.usize(..world.tensor.pending());
                land(world, which)?;
                continue;
            }
            let turn = if random { rng.u64(1..25) } else { u64::MAX };
            let warp = &mut warps[next];
            let pause = warp.run(program, world, turn, (policy, rng));
            match pause {
                Err(halt) => return Err(stop(halt.trap, world, Some(&warps[next]), halt.pc)),
                Ok(Pause::Done) => {
                    done += 1;
                    let rank = warps[next].rank;
                    let over = warps[rank * each..(rank + 1) * each].iter().all(|w| w.groups.is_empty());
                    if over && world.blocks() > 1 {
                        world.ended[rank] = true;
                    }
                }
                Ok(Pause::Turn | Pause::Waits) => {}
            }
        }
        if done == warps.len() {
            break;
        }
        if open_barriers(world, warps, each)
            .map_err(|(trap, warp)| stop(trap, world, Some(&warps[warp]), pc(&warps[warp])))?
        {
            continue;
        }
        // As late as can be: nothing else can go on.
        if world.tensor.pending() == 0 {
            return Err(stuck(world, warps));
        }
        land(world, 0)?;
    }
    while world.tensor.pending() > 0 {
        land(world, 0)?;
    }
    warps.iter_mut().for_each(|warp| warp.copies.end(world, warp.number));
    let mut tensor = std::mem::take(&mut world.tensor);
    let end = tensor.end(world);
    world.tensor = tensor;
    end.map_err(|trap| stop(trap, world, None, 0))
}

fn land(world: &mut World, which: usize) -> Result<(), Box<Stop>> {
    let mut tensor = std::mem::take(&mut world.tensor);
    let landed = tensor.land(which, world);
    world.tensor = tensor;
    world.progress += 1;
    landed.map_err(|trap| stop(trap, world, None, 0))
}

fn choose(warps: &[Warp], progress: u64, policy: Policy, rng: &mut fastrand::Rng) -> Option<usize> {
    let mut ready = (0..warps.len()).filter(|w| warps[*w].is_ready(progress));
    match policy {
        Policy::InOrder => ready.next(),
        Policy::Reverse => ready.next_back(),
        Policy::Random(_) => {
            let count = ready.clone().count();
            if count == 0 { None } else { ready.nth(rng.usize(..count)) }
        }
    }
}

/// The place of the barrier that a warp waits at.
fn pc(warp: &Warp) -> usize {
    warp.groups.first().map_or(0, |g| match g.state {
        State::Barrier { .. } => (g.pc as usize).saturating_sub(1),
        _ => g.pc as usize,
    })
}

fn waits_at(warp: &Warp) -> Option<(u32, u32)> {
    match warp.groups[..] {
        [only] => match only.state {
            State::Barrier { number, threads } => Some((number, threads)),
            _ => None,
        },
        _ => None,
    }
}

/// Lets warps go on from the barriers that all their threads have reached; whether there was one.
fn open_barriers(world: &mut World, warps: &mut [Warp], each: usize) -> Result<bool, (Trap, usize)> {
    let mut opened = false;
    for first in 0..warps.len() {
        let Some((number, threads)) = waits_at(&warps[first]) else { continue };
        let block = first / each * each..(first / each + 1) * each;
        let at = |w: &usize| waits_at(&warps[*w]).filter(|(n, _)| *n == number);
        let there: Vec<usize> = block.filter(|w| at(w).is_some()).collect();
        if let Some(other) = there.iter().find(|w| at(w) != Some((number, threads))) {
            let message = format!(
                "warps {} and {other} join barrier {number} with different numbers of threads",
                warps[first].place
            );
            return Err((Trap::warp(Code::PtxBarrier, message), *other));
        }
        let joined = (there.len() * LANES) as u32;
        if joined > threads {
            let message = format!("{joined} threads join barrier {number} for {threads}");
            return Err((Trap::warp(Code::PtxBarrier, message), first));
        }
        if joined == threads {
            world.clock.raw_meet(&there);
            there.iter().for_each(|w| warps[*w].groups[0].state = State::Ready);
            opened = true;
        }
    }
    Ok(opened)
}

/// Why no warp can go on.
fn stuck(world: &World, warps: &[Warp]) -> Box<Stop> {
    let mut waits = Vec::new();
    for warp in warps {
        let does = match warp.groups[..] {
            [] => "has ended".to_string(),
            [only] => match only.state {
                State::Barrier { number, threads } => format!("waits at barrier {number} of {threads} threads"),
                _ => "waits for a phase or for the cluster".to_string(),
            },
            _ => "waits in several groups of lanes".to_string(),
        };
        waits.push(Waits { warp: warp.number, does });
    }
    waits.extend(world.tensor.waits());
    let first = warps.iter().find(|w| !w.groups.is_empty());
    let stopped = stop(Trap::warp(Code::PtxDeadlock, "no warp can proceed"), world, first, first.map_or(0, pc));
    Box::new(Stop { waits, ..*stopped })
}
