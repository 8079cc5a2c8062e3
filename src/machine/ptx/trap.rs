//! What stops a run: the requirement that an instruction breaks, and the message.

/// What went wrong at an instruction. The executor adds the line, the block and the thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::machine::ptx) struct Trap {
    /// The requirement, `bounds` of `ptx.bounds`.
    pub code: &'static str,
    pub message: String,
    /// The lane; `None` where it is the warp's.
    pub lane: Option<usize>,
    /// The line of the other instruction of a race.
    pub other: Option<u32>,
}

impl Trap {
    /// A fault of one lane.
    pub fn lane(code: &'static str, lane: usize, message: impl Into<String>) -> Trap {
        Trap { code, message: message.into(), lane: Some(lane), other: None }
    }

    /// A fault of the warp.
    pub fn warp(code: &'static str, message: impl Into<String>) -> Trap {
        Trap { code, message: message.into(), lane: None, other: None }
    }
}
