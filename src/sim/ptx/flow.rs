//! Control flow: basic blocks, immediate post-dominators, and the groups of lanes that run together.
//!
//! Lanes that a branch parts run as two groups until both reach the immediate post-dominator of the branch, or end. Which
//! group runs next is free: lanes of a warp are ordered by barriers alone. Post-dominators leave out paths that
//! end in `exit` or `trap`: a lane that has exited does not take part in reconvergence. LLVM emits such paths for code that no
//! lane executes, for example the default case of a switch over threadIdx.

use super::inst::{Inst, Operand};
use super::warp::Warp;

/// The place behind the last instruction: where lanes end.
pub(in crate::sim::ptx) const END: u32 = u32::MAX;
/// No frame.
const NONE: u32 = u32::MAX;

/// Lanes that run the same code together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim::ptx) struct Group {
    pub mask: u32,
    /// The next instruction.
    pub pc: u32,
    /// The branch that parted them from others.
    frame: u32,
    /// Where they wait for those others.
    pub join: u32,
    pub state: State,
}

/// What a group waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim::ptx) enum State {
    Ready,
    /// At the barrier of the block of that number, which so many threads of the block join.
    Barrier {
        number: u32,
        threads: u32,
    },
    /// Until [`super::world::World::progress`] is no longer this.
    Blocked {
        progress: u64,
    },
}

/// A branch that parted lanes, until they are together again.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim::ptx) struct Frame {
    join: u32,
    expected: u32,
    arrived: u32,
    parent: u32,
}

/// The immediate post-dominator of each instruction that can part lanes ([`END`] where lanes meet at their end alone).
pub(in crate::sim::ptx) fn joins(insts: &[Inst]) -> Vec<u32> {
    let count = insts.len();
    let mut leaders = vec![false; count + 1];
    leaders[0] = true;
    let target = |i: &Inst| match i.operands.first() {
        Some(Operand::Label(to)) if i.opcode[0] == "bra" => Some(*to as usize),
        _ => None,
    };
    let ends = |i: &Inst| matches!(i.opcode[0].as_str(), "ret" | "exit" | "trap");
    for (at, inst) in insts.iter().enumerate() {
        if let Some(to) = target(inst) {
            leaders[to.min(count)] = true;
        }
        if target(inst).is_some() || ends(inst) {
            leaders[at + 1] = true;
        }
    }
    let starts: Vec<usize> = (0..count).filter(|n| leaders[*n]).collect();
    let block_of = |at: usize| starts.partition_point(|s| *s <= at).checked_sub(1).filter(|_| at < count);
    // The block behind all others is the end.
    let exit = starts.len();
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); exit + 1];
    for (n, start) in starts.iter().enumerate() {
        let last = starts.get(n + 1).copied().unwrap_or(count) - 1;
        let inst = &insts[last.max(*start)];
        let next = block_of(last + 1).unwrap_or(exit);
        if let Some(to) = target(inst) {
            after[n].push(block_of(to).unwrap_or(exit));
        }
        if inst.opcode[0] == "ret" {
            after[n].push(exit);
        }
        if inst.guard.is_some() || target(inst).is_none() && !ends(inst) {
            after[n].push(next);
        }
    }
    let immediate = post_dominators(&after, exit);
    let mut out = vec![END; count];
    for (at, inst) in insts.iter().enumerate() {
        if let (Some(_), Some(block)) = (&inst.guard, block_of(at)) {
            out[at] = starts.get(immediate[block]).map_or(END, |s| *s as u32);
        }
    }
    out
}

/// Immediate post-dominators by Cooper, Harvey and Kennedy's iteration over the reversed graph.
fn post_dominators(after: &[Vec<usize>], exit: usize) -> Vec<usize> {
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); after.len()];
    for (from, all) in after.iter().enumerate() {
        all.iter().for_each(|to| before[*to].push(from));
    }
    // Reverse post-order of the reversed graph from the end.
    let (mut order, mut seen) = (Vec::new(), vec![false; after.len()]);
    let mut stack = vec![(exit, 0)];
    seen[exit] = true;
    while let Some((node, n)) = stack.pop() {
        match before[node].get(n) {
            Some(next) => {
                stack.push((node, n + 1));
                if !std::mem::replace(&mut seen[*next], true) {
                    stack.push((*next, 0));
                }
            }
            None => order.push(node),
        }
    }
    order.reverse();
    let mut number = vec![usize::MAX; after.len()];
    order.iter().enumerate().for_each(|(n, block)| number[*block] = n);
    // A block that never reaches the end has no post-dominator but the end.
    let mut immediate = vec![usize::MAX; after.len()];
    immediate[exit] = exit;
    let mut changed = true;
    while changed {
        changed = false;
        for block in order.iter().copied().filter(|b| *b != exit) {
            let mut found = usize::MAX;
            for next in after[block].iter().copied().filter(|n| immediate[*n] != usize::MAX) {
                found = if found == usize::MAX { next } else { meet(&immediate, &number, found, next) };
            }
            if immediate[block] != found {
                immediate[block] = found;
                changed = true;
            }
        }
    }
    immediate.iter().map(|n| if *n == usize::MAX { exit } else { *n }).collect()
}

fn meet(immediate: &[usize], number: &[usize], mut a: usize, mut b: usize) -> usize {
    while a != b {
        while number[a] > number[b] {
            a = immediate[a];
        }
        while number[b] > number[a] {
            b = immediate[b];
        }
    }
    a
}

impl Warp {
    /// All lanes are one group at the first instruction.
    pub fn restart(&mut self) {
        self.live = self.full;
        self.frames.clear();
        self.groups.clear();
        self.groups.push(Group { mask: self.full, pc: 0, frame: NONE, join: END, state: State::Ready });
    }

    /// The lanes of a group are parted: those of `taken` go to `to`, the others to the next instruction; `join` is where they
    /// are together again.
    pub fn part(&mut self, group: usize, taken: u32, to: u32, join: u32) {
        let Group { mask, pc, mut frame, join: outer, .. } = self.groups[group];
        if frame == NONE && join != END || frame != NONE && outer != join {
            self.frames.push(Frame { join, expected: mask, arrived: 0, parent: frame });
            frame = self.frames.len() as u32 - 1;
        }
        let part =
            |mask, pc| Group { mask, pc, frame, join: if frame == NONE { END } else { join }, state: State::Ready };
        self.groups[group] = part(mask & !taken, pc + 1);
        self.groups.push(part(taken, to));
        let last = self.groups.len() - 1;
        self.arrive(last);
        self.arrive(group);
    }

    /// A group that stands where it waits for others joins them. It may be gone then: its place is another group's.
    pub fn arrive(&mut self, group: usize) {
        let Some(Group { mask, pc, frame, join, .. }) = self.groups.get(group).copied() else { return };
        if frame == NONE || pc != join {
            return;
        }
        self.groups.swap_remove(group);
        self.frames[frame as usize].arrived |= mask;
        self.release(frame);
    }

    /// Lanes of a group end.
    pub fn end(&mut self, group: usize, lanes: u32) {
        let Group { frame, .. } = self.groups[group];
        self.live &= !lanes;
        self.groups[group].mask &= !lanes;
        if self.groups[group].mask == 0 {
            self.groups.swap_remove(group);
        }
        let mut chain = Vec::new();
        let mut at = frame;
        while at != NONE {
            self.frames[at as usize].expected &= !lanes;
            chain.push(at);
            at = self.frames[at as usize].parent;
        }
        chain.into_iter().for_each(|f| self.release(f));
    }

    /// Lets the lanes that wait at a frame go on, if all have come.
    fn release(&mut self, frame: u32) {
        let Frame { join, expected, arrived, parent } = self.frames[frame as usize];
        if expected == 0 || arrived != expected {
            return;
        }
        self.frames[frame as usize].expected = 0;
        let outer = self.frames.get(parent as usize).map_or(END, |f| f.join);
        self.groups.push(Group { mask: expected, pc: join, frame: parent, join: outer, state: State::Ready });
        let last = self.groups.len() - 1;
        if self.groups.len() == 1 && parent == NONE {
            self.frames.clear();
        }
        self.arrive(last);
    }
}
