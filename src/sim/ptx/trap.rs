//! What stops a run: the requirement that an instruction breaks, and the message.

use crate::error::Code;

/// What went wrong at an instruction. The executor adds the line, the block and the thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::sim::ptx) struct Trap {
    /// The requirement.
    pub code: Code,
    pub message: String,
    /// The lane; `None` where it is the warp's.
    pub lane: Option<usize>,
    /// The bytes that it is about.
    pub at: Option<At>,
    /// The line of the other access of a race, and the number of its block in the grid.
    pub other: Option<u32>,
    pub other_block: Option<u32>,
}

/// Bytes of a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim::ptx) struct At {
    /// Its number in [`super::world::World::memories`].
    pub memory: usize,
    pub byte: usize,
    /// Whether the access writes.
    pub write: bool,
}

impl Trap {
    /// A fault of one lane.
    pub fn lane(code: Code, lane: usize, message: impl Into<String>) -> Trap {
        Trap { code, message: message.into(), lane: Some(lane), at: None, other: None, other_block: None }
    }

    /// A fault of the warp.
    pub fn warp(code: Code, message: impl Into<String>) -> Trap {
        Trap { code, message: message.into(), lane: None, at: None, other: None, other_block: None }
    }

    /// Adds the bytes that it is about.
    pub fn of(self, memory: usize, byte: usize, write: bool) -> Trap {
        Trap { at: Some(At { memory, byte, write }), ..self }
    }
}
