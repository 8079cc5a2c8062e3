//! What an error is about: typed, so that whoever underlines it reads no message.

/// A part of the Scheduled program, by the name that the program's text has for it. Names that the program does not have are passed
/// over: a pass may speak of a loop that it made itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Subject {
    /// A loop.
    Loop(String),
    /// Every loop that is bound to an axis of the launch, such as `threadIdx.x`.
    Axis(&'static str),
    /// Every loop that is bound to threads, warps or warpgroups.
    Threads,
    /// A block, and the buffer of the same name that it fills.
    Block(String),
    /// A buffer, and the block of the same name that fills it.
    Buffer(String),
    /// The blocks that the warps of a role run.
    Role(String),
}
