//! A cluster in which one block is walked statement by statement: warps that come to the same statement with the same loop values
//! run it together, and of those that can go on the ones that have run the fewest statements are next.

use super::access::World;
use super::code::Code;
use super::fault::Where;
use super::grid::{self, Halt, Launch, State};
use super::scene;
use super::warp::{Trap, Warp};

/// Runs a cluster with its block of that rank walked.
pub(super) fn walk(
    code: &Code,
    launch: &Launch,
    world: &mut World,
    warps: &mut [Warp],
    (block, rank): ([u32; 3], usize),
) -> Result<(), Box<Halt>> {
    world.stops = true;
    let ended =
        Walk { code, launch, states: vec![State::Ready; warps.len()], begun: vec![0; warps.len()], block, rank }
            .run(world, warps);
    world.stops = false;
    ended
}

struct Walk<'w> {
    code: &'w Code,
    launch: &'w Launch,
    states: Vec<State>,
    /// Statements that each warp has begun.
    begun: Vec<u64>,
    block: [u32; 3],
    rank: usize,
}

impl Walk<'_> {
    fn each(&self) -> usize {
        self.states.len() / self.launch.cluster.max(1) as usize
    }

    fn halt(&self, trap: Trap, warps: &[Warp], warp: usize) -> Box<Halt> {
        Box::new(Halt { trap, warp: warps[warp].clone(), at: self.at(warp) })
    }

    fn at(&self, warp: usize) -> Where {
        grid::place(self.launch, self.block, warp, self.each())
    }

    fn run(&mut self, world: &mut World, warps: &mut [Warp]) -> Result<(), Box<Halt>> {
        loop {
            while let Some(ready) = (0..warps.len()).find(|w| grid::can_go_on(&self.states[*w], &world.barriers)) {
                self.advance(world, warps, ready)?;
            }
            if let Some(group) = self.next(warps) {
                self.show(world, warps, &group)?;
                for warp in group {
                    warps[warp].begins = true;
                    self.begun[warp] += 1;
                    self.advance(world, warps, warp)?;
                }
                continue;
            }
            let each = self.each();
            match grid::settle(&mut self.states, self.code, world, warps, |warp| {
                grid::place(self.launch, self.block, warp, each)
            })? {
                true => return Ok(()),
                false => continue,
            }
        }
    }

    /// Runs a warp up to its next statement, or to what it waits for.
    fn advance(&mut self, world: &mut World, warps: &mut [Warp], warp: usize) -> Result<(), Box<Halt>> {
        let each = self.each();
        world.enter(warp / each);
        (world.warp, world.each) = (warp % each, each);
        let event = warps[warp].run(self.code, world, u64::MAX).map_err(|trap| self.halt(trap, warps, warp))?;
        self.states[warp] = grid::state(event, &world.barriers);
        grid::end_block(&self.states, world, warp / each, each, self.launch.cluster);
        Ok(())
    }

    /// The warps that run next.
    fn next(&self, warps: &[Warp]) -> Option<Vec<usize>> {
        let is_at = |w: &usize| matches!(self.states[*w], State::At(_));
        let first = (0..warps.len()).filter(is_at).min_by_key(|w| self.begun[*w])?;
        let each = self.each();
        let values = |w: usize| -> Vec<i64> {
            let site = self.code.site_of.get(warps[w].pc).and_then(|s| self.code.sites.get(*s as usize));
            // What differs from lane to lane is the thread's, not the loop's.
            let uniform = site.map(|s| s.loops.iter().filter(|(_, o)| o.vector == 0)).into_iter().flatten();
            uniform.map(|(_, o)| warps[w].value(*o, 0)).collect()
        };
        let of_first = values(first);
        let with_first = |w: &usize| w / each == first / each && self.states[*w] == self.states[first];
        Some((0..warps.len()).filter(with_first).filter(|w| values(*w) == of_first).collect())
    }

    /// Shows the warps of the block that is walked.
    fn show(&self, world: &mut World, warps: &[Warp], group: &[usize]) -> Result<(), Box<Halt>> {
        let each = self.each();
        let Some(&first) = group.first().filter(|w| **w / each == self.rank) else { return Ok(()) };
        let State::At(statement) = self.states[first] else { return Ok(()) };
        world.enter(self.rank);
        world.each = each;
        let lanes: Vec<(usize, u32)> = group.iter().map(|w| (warps[*w].place(), warps[*w].mask)).collect();
        let seen = scene::before(world, self.code, (warps, &self.states), statement, &lanes);
        seen.map_err(|trap| self.halt(trap, warps, first))
    }
}
