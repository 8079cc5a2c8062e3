//! What a run tells who listens: requests of warps, boxes of TMA, tiles behind descriptors, every statement
//! that a warp comes to, and what makes warps go on: arrivals, landings, ends of phases, barriers.

use super::access::World;
use super::bulk::Load;

/// Something that ran, of the kernel at that place in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event<'e> {
    /// The kernel, by its place in the program.
    pub kernel: usize,
    /// The rank of the block in its cluster, and the warp in its block. For what TMA and barriers do, those of the warp
    /// that ran last.
    pub rank: usize,
    /// The warp.
    pub warp: usize,
    /// What ran.
    pub what: EventKind<'e>,
}

/// What ran.
///
/// Accesses are numbered among those of the kernel, those of registers included: a statement's loads in the order of the text
/// of its value, then its store; the operands of an instruction in the row's order; of a bulk copy that of shared memory, then
/// that of device memory. Statements are numbered in the order of the text: stores, instructions, bulk copies, synchronisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind<'e> {
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
    /// Lanes arrive at an mbarrier.
    Arrival(Arrival),
    /// A bulk load has landed in shared memory.
    Landing(Landing),
    /// A phase of an mbarrier is over.
    Over(Phase),
    /// The wait of a warp for a phase is over.
    Passed(Phase),
    /// The warps that wait at a barrier go on.
    Meeting(Meeting),
}

/// An mbarrier of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mbarrier {
    /// The rank of its block.
    pub rank: usize,
    /// Its array, by its number in the kernel.
    pub array: u32,
    /// Which one of the array.
    pub index: i64,
}

/// Lanes of a warp arrive at an mbarrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrival {
    /// The mbarrier.
    pub at: Mbarrier,
    /// Bytes that the phase then waits for besides.
    pub bytes: u32,
}

/// A bulk load lands in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Landing {
    /// The mbarrier that counts its bytes.
    pub at: Mbarrier,
    /// The number of its access of shared memory.
    pub access: u32,
    /// The rank of the block, and the warp in it, that started it.
    pub from: (usize, usize),
}

/// A phase of an mbarrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Phase {
    /// The mbarrier.
    pub at: Mbarrier,
    /// Its number, from 0.
    pub phase: i64,
}

/// Warps that wait at a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Meeting {
    /// The first one, counted in the cluster.
    pub first: usize,
    /// How many.
    pub warps: usize,
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

/// A box that TMA moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BoxCopy<'e> {
    /// The numbers of its accesses: of shared memory and of device memory.
    pub accesses: [u32; 2],
    /// The element of the shared buffer where the box begins.
    pub shared: i64,
    /// Of a load, the array of mbarriers that counts its bytes, and which one of it, in each block that it reaches.
    pub full: Option<(u32, i64)>,
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

/// What is called with everything that runs; false where it has heard enough.
type Listen = dyn FnMut(&Event<'_>) -> bool;

/// Who hears of a run.
#[derive(Default)]
pub(super) struct Listener {
    /// What is called.
    pub listen: Option<Box<Listen>>,
    /// Only the first cluster of each kernel runs, and what it leaves unwritten is no fault.
    pub first_cluster: bool,
    /// It has heard enough of this kernel: the next statement ends the run.
    pub has_enough: bool,
}

impl Listener {
    /// One that hears of everything, until it has heard enough.
    pub fn of(listen: impl FnMut(&Event<'_>) -> bool + 'static, first_cluster: bool) -> Listener {
        Listener { listen: Some(Box::new(listen)), first_cluster, has_enough: false }
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.listen.is_some() { "Listener" } else { "nobody" })
    }
}

impl World {
    /// Whether anybody listens.
    pub fn is_heard(&self) -> bool {
        self.listener.listen.is_some()
    }

    /// Tells the listener, if there is one.
    #[inline(always)]
    pub fn tell(&mut self, what: EventKind<'_>) {
        if let Some(listen) = &mut self.listener.listen {
            let goes_on = listen(&Event { kernel: self.kernel, rank: self.clock.rank, warp: self.warp, what });
            self.listener.has_enough |= !goes_on;
        }
    }

    /// Tells the listener that a phase of an mbarrier is over, if it has ended since `before` were.
    pub fn tell_over(&mut self, number: usize, before: i64) {
        if self.is_heard() && self.barriers.over(number) > before {
            let at = self.barriers.place(number);
            self.tell(EventKind::Over(Phase { at, phase: before }));
        }
    }

    /// Tells the listener that a bulk load has landed.
    pub fn tell_landing(&mut self, load: &Load, each: usize) {
        if self.is_heard() {
            let at = self.barriers.place(load.slot);
            let from = (load.by.warp / each.max(1), load.by.warp % each.max(1));
            self.tell(EventKind::Landing(Landing { at, access: load.access, from }));
        }
    }

    /// Tells the listener of the elements that these lanes ask for.
    #[inline(always)]
    pub fn tell_of(&mut self, active: u32, element: impl Fn(usize) -> i64, access: u32) {
        if self.is_heard() && active != 0 {
            let elements: [i64; 32] = std::array::from_fn(element);
            self.tell(EventKind::Request(Request { access, elements: &elements, active }));
        }
    }
}
