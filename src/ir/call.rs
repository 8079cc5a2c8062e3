//! Calls of instructions, statements of Lowered alone: the row of the instruction and the location of each operand.

use super::{BufferId, Cond, Index};

/// An instruction that the lanes of a warp, or the warps of a warpgroup, execute together.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The name of its row.
    pub row: String,
    /// In the row's order: what it writes comes first.
    pub operands: Vec<Operand>,
    /// Whether it adds to what its result held before; `None` if it always does, or never.
    pub adds: Option<Cond>,
    /// Of an MMA of warpgroups: the columns of its result that something depends on, the first so many, if they may be fewer than all.
    pub columns: Option<Columns>,
}

/// How many columns of its result an MMA computes: those below a dynamic size, rounded up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    /// So many; more than the instruction has, or none, where the whole tile is inside of the array, or beyond it.
    pub below: Index,
    /// Rounded up to a multiple of this, which divides the columns of the instruction: so many rows of operand B a TMA box loads.
    pub unit: i64,
}

/// What an instruction works on.
#[derive(Debug, Clone, PartialEq)]
pub struct Operand {
    /// The buffer.
    pub buffer: BufferId,
    /// Whether the instruction reads it.
    pub reads: bool,
    /// Whether the instruction writes it.
    pub writes: bool,
    /// Where it begins: one index per dimension; once buffers are flat one element index.
    pub indices: Vec<Index>,
    /// Which elements.
    pub held: Held,
}

/// How the lanes of a warp hold an operand.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Held {
    /// Each lane in its own registers, a local buffer: these elements from the index on, in the order of the registers.
    Registers(Vec<i64>),
    /// In shared memory: the lane's index is the address of so many consecutive elements.
    Address(u32),
    /// In shared or global memory: the index is the same for all lanes, and so many rows of consecutive elements begin there
    /// and at every further multiple of a stride, in elements.
    Rows {
        /// How many.
        rows: i64,
        /// Elements of a row.
        run: u32,
        /// From row to row.
        stride: i64,
    },
    /// In shared memory behind a descriptor: the index is the same for all lanes.
    Descriptor(Descriptor),
}

/// How a tile is in shared memory: what a descriptor of wgmma says besides its address (PTX ISA, "Asynchronous Warpgroup
/// Level Matrix Shared Memory Layout").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// Whether neighbours along k lie next to each other; else neighbours along the other dimension.
    pub along_k: bool,
    /// Bytes of a panel's rows, whose chunks of 16 bytes are swizzled: 128, 64, 32, or 16, whose rows are one chunk; 0 without panels.
    pub swizzle: u32,
    /// The leading byte offset.
    pub leading: u32,
    /// The stride byte offset.
    pub stride: u32,
    /// Rows and columns of the tile, in elements, columns next to each other.
    pub tile: [i64; 2],
    /// The inline PTX of the MMA adds the constant part of the address, so that LLVM cannot move the sum out of a loop.
    pub adds_constant: bool,
}

impl Operand {
    /// In memory, which run of elements a lane represents: its first one, and how many they are. All lanes take part in all of
    /// them; where rows are fewer than lanes, several represent one.
    pub fn run_of(&self, lane: &Index) -> Option<(Index, u32)> {
        let first = self.indices.first()?.clone();
        match self.held {
            Held::Registers(_) | Held::Descriptor(_) => None,
            Held::Address(lanes) => Some((first, lanes)),
            Held::Rows { rows, run, stride } => Some((first + lane.clone().floormod(rows) * stride, run)),
        }
    }
}
