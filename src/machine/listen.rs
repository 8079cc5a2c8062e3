//! What a run tells who listens: requests of warps, boxes of the copy engine, tiles behind descriptors, and every statement
//! that a warp comes to.

use super::access::World;

/// Something that ran, of the kernel at that place in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event<'e> {
    /// The kernel, by its place in the program.
    pub kernel: usize,
    /// What ran.
    pub what: Happened<'e>,
}

/// What ran.
///
/// Accesses are numbered among those of the kernel, those of registers included: a statement's loads in the order of the text
/// of its value, then its store; the operands of an instruction in the row's order; of a bulk copy that of shared memory, then
/// that of device memory. Statements are numbered in the order of the text: stores, instructions, bulk copies, synchronisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Happened<'e> {
    /// A load or store of shared or device memory by the lanes of a warp.
    Request(Request<'e>),
    /// A warp runs a statement.
    Statement(Statement),
    /// A bulk copy starts.
    Box(BoxCopy<'e>),
    /// A warp's part of a product reads a tile behind a descriptor.
    Tile(Tile<'e>),
    /// Bytes of a bulk load are on their way to a block.
    Flight(Flight),
}

/// A load or store by the lanes of a warp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request<'e> {
    /// The number of the access.
    pub access: u32,
    /// The first element that each lane goes to.
    pub elements: &'e [i64; 32],
    /// A bit for each lane that takes part.
    pub active: u32,
}

/// A statement that a warp runs: a wait, when what it waits for is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statement {
    /// Its number.
    pub number: u32,
    /// A bit for each lane that takes part.
    pub active: u32,
}

/// A box that the copy engine moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BoxCopy<'e> {
    /// The numbers of its accesses: of shared memory and of device memory.
    pub accesses: [u32; 2],
    /// The elements in device memory in the order of the box; `None` outside of the array.
    pub elements: &'e [Option<i64>],
    /// Elements of a row of the box.
    pub row: usize,
    /// Blocks whose shared memory it reaches.
    pub blocks: usize,
}

/// What a warp's part of a product reads of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tile<'e> {
    /// The number of the access.
    pub access: u32,
    /// The elements of shared memory, counted from the buffer's first.
    pub elements: &'e [i64],
    /// The warp, counted in its warpgroup.
    pub warp: usize,
}

/// Bytes that set out for the shared memory of a block or (below 0) have landed there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Flight {
    /// The block's rank in its cluster.
    pub rank: usize,
    /// So many.
    pub bytes: i64,
}

/// What is called with everything that runs.
type Listen = dyn FnMut(&Event<'_>);

/// Who hears of a run.
#[derive(Default)]
pub(super) struct Listener(pub Option<Box<Listen>>);

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Listener" } else { "nobody" })
    }
}

impl World {
    /// Whether anybody listens.
    pub fn is_heard(&self) -> bool {
        self.listener.0.is_some()
    }

    /// Tells the listener, if there is one.
    #[inline(always)]
    pub fn tell(&mut self, what: Happened<'_>) {
        if let Some(listen) = &mut self.listener.0 {
            listen(&Event { kernel: self.kernel, what });
        }
    }

    /// Tells the listener of the elements that these lanes ask for.
    #[inline(always)]
    pub fn tell_of(&mut self, active: u32, element: impl Fn(usize) -> i64, access: u32) {
        if self.is_heard() && active != 0 {
            let elements: [i64; 32] = std::array::from_fn(element);
            self.tell(Happened::Request(Request { access, elements: &elements, active }));
        }
    }
}
