//! Statements of Lowered alone that concern several threads: TMA copies, mbarriers, elected threads, roles and
//! synchronisation.

use super::{BufferId, Index, RoleId, Stmt};

/// A copy of a box between device memory and shared memory: started by one thread, done by TMA.
#[derive(Debug, Clone, PartialEq)]
pub struct BulkCopy {
    /// The buffer in device memory.
    pub global: BufferId,
    /// Its tensor map, by its number in the kernel, which knows the box.
    pub map: u32,
    /// Coordinates of the box's first element in device memory, outermost first. What is outside of the buffer is read as
    /// zero, and not written.
    pub coordinates: Vec<Index>,
    /// The buffer in shared memory.
    pub shared: BufferId,
    /// Where the box begins there: one index per dimension; once buffers are flat one element index. From there on the box's
    /// elements lie row after row, a row as long as the box, swizzled as the map says.
    pub indices: Vec<Index>,
    /// Which way.
    pub way: Way,
}

/// The way of a bulk copy.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Way {
    /// From device memory to shared memory. All bytes of the box are counted on a slot of mbarriers of each block that receives it.
    Load {
        /// The slot.
        full: Slot,
        /// So many blocks of the cluster, the first ones, receive the box at the same place; `None` for this block alone.
        multicast: Option<u32>,
    },
    /// From shared memory to device memory, in the bulk group that the thread closes next.
    Store,
}

/// An array of mbarriers of 8 bytes each, in shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mbarrier {
    /// Its name in dumps.
    pub name: String,
    /// How many.
    pub slots: u32,
    /// Arrivals that end a phase.
    pub arrivals: u32,
    /// Its place in shared memory in bytes, a multiple of 8; `None` until memory is planned.
    pub offset: Option<u32>,
}

/// An mbarrier: one of an array in shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The array, by its number in the kernel.
    pub barrier: u32,
    /// Which one.
    pub index: Index,
}

/// What one thread does for several warps: the same thread each time.
#[derive(Debug, Clone, PartialEq)]
pub struct Elect {
    /// Of every so many consecutive warps of the role, the first elects one of its lanes.
    pub warps: u32,
    /// What that one runs.
    pub body: Vec<Stmt>,
}

/// A slice of the kernel: what the warps of one role run, next to each other with the other roles.
///
/// The threads of a role are consecutive and are numbered from 0 in it: inside, the variables of the thread axes count them.
#[derive(Debug, Clone, PartialEq)]
pub struct RoleBody {
    /// The role that `specialize` made; `None` for everything that no role took.
    pub role: Option<RoleId>,
    /// Its first warp.
    pub first: u32,
    /// Its warps.
    pub warps: u32,
    /// Registers that each of its threads asks for.
    pub regs: Option<u32>,
    /// What they run.
    pub body: Vec<Stmt>,
}

/// Synchronisation, with the reason it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sync {
    /// What it does.
    pub kind: SyncKind,
    /// The dependence, in words with the program's names.
    pub reason: String,
}

/// What synchronisation does. Groups of copies and of products are counted by each thread (each warp) for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncKind {
    /// All threads of the block meet; where there are roles, all of the role.
    Block,
    /// The threads of each warp meet.
    Warp,
    /// The threads of each warpgroup of the role meet.
    Warpgroup,
    /// All threads of all blocks of the cluster meet.
    Cluster,
    /// They meet, and nothing that they did to memory is ordered by it but the initialisation of mbarriers: at the start of a kernel, where
    /// nothing else needs it and a fence over all memory would take its time.
    ClusterRelaxed,
    /// Each thread closes the group of the asynchronous copies (cp.async) that it has started since the last one closed. A
    /// group may be empty: groups are counted.
    Commit,
    /// Each thread waits until at most `groups` of its closed groups, the last ones, are still under way.
    Wait {
        /// How many groups may be under way.
        groups: u32,
    },
    /// What the thread did to shared memory comes before what TMA and wgmma do to it after a barrier
    /// (fence.proxy.async).
    ProxyFence,
    /// What the warps did to the registers of wgmma comes before what wgmma does to them (wgmma.fence).
    ProductFence,
    /// The warps close the group of their asynchronous products (wgmma.commit_group).
    ProductCommit,
    /// The warps wait until at most `groups` of their groups of products, the last ones, are still under way.
    ProductWait {
        /// How many groups may be under way.
        groups: u32,
    },
    /// The thread closes the group of its bulk stores.
    BulkCommit,
    /// The thread waits until at most `groups` of its groups of bulk stores, the last ones, are still under way.
    BulkWait {
        /// How many groups may be under way.
        groups: u32,
        /// It is enough that they have read shared memory.
        read: bool,
    },
    /// The kernels before it in the stream have ended, and what they wrote is there (griddepcontrol.wait); whatever stands
    /// in front may run beside them.
    GridWait,
    /// The next kernel in the stream may begin (griddepcontrol.launch_dependents) once all blocks have come here, or ended.
    GridRelease,
    /// The thread prefetches its block's share of a global buffer to L2 (a bulk prefetch). A hint: memory holds the same
    /// before and after, whoever writes it meanwhile.
    Prefetch {
        /// The buffer.
        buffer: BufferId,
        /// Bytes for each block, in the order of the blocks; fewer or none for the last ones. `None` divides the buffer among the blocks
        /// that are launched.
        share: Option<u64>,
    },
    /// Each thread prefetches to L2 the line that holds an element of a global buffer. A hint, as [`SyncKind::Prefetch`].
    PrefetchLine {
        /// The buffer.
        buffer: BufferId,
        /// The element.
        at: Index,
    },
    /// Each thread forgets what it has converted from a local buffer. For the compiler alone: no instruction, and memory and registers hold
    /// the same before and after.
    Narrow {
        /// The buffer, of elements of 8 or 16 bits.
        buffer: BufferId,
    },
    /// The thread prefetches a tensor map, so that the first TMA copy by it does not wait for it. A hint.
    PrefetchMap {
        /// Its number among the kernel's.
        map: u32,
    },
    /// The thread sets every mbarrier of the kernel to the start of its first phase, for all who meet at the next barrier.
    InitBarriers,
    /// The thread arrives at an mbarrier, whose phase then also waits for so many bytes of bulk copies.
    Expect {
        /// The mbarrier.
        slot: Slot,
        /// Bytes: the same for all threads of the block.
        bytes: Index,
    },
    /// The thread arrives at an mbarrier.
    Arrive {
        /// The mbarrier.
        slot: Slot,
        /// In so many blocks of the cluster, the first ones; `None` for this block alone.
        blocks: Option<u32>,
    },
    /// The thread waits until a phase of an mbarrier is over. The instruction knows the phase's parity alone, so the phase
    /// before has to be over, and the one behind not.
    Await {
        /// The mbarrier.
        slot: Slot,
        /// From 0 on; the one before the first, -1, is over from the start.
        phase: Index,
    },
}

impl SyncKind {
    /// With that reason.
    pub fn because(self, reason: impl Into<String>) -> Sync {
        Sync { kind: self, reason: reason.into() }
    }

    /// The mbarrier that it speaks of.
    pub fn slot_mut(&mut self) -> Option<&mut Slot> {
        match self {
            SyncKind::Expect { slot, .. } | SyncKind::Arrive { slot, .. } | SyncKind::Await { slot, .. } => Some(slot),
            _ => None,
        }
    }

    /// Whether one thread may do it alone.
    pub fn is_of_one_thread(&self) -> bool {
        matches!(
            self,
            SyncKind::Expect { .. }
                | SyncKind::Arrive { .. }
                | SyncKind::InitBarriers
                | SyncKind::Prefetch { .. }
                | SyncKind::PrefetchMap { .. }
                | SyncKind::BulkCommit
                | SyncKind::BulkWait { .. }
        )
    }

    /// Whether memory and registers hold the same with it and without it.
    pub fn is_hint(&self) -> bool {
        matches!(
            self,
            SyncKind::Prefetch { .. }
                | SyncKind::PrefetchLine { .. }
                | SyncKind::PrefetchMap { .. }
                | SyncKind::Narrow { .. }
        )
    }

    /// Whether threads meet there.
    pub fn is_meeting(&self) -> bool {
        matches!(
            self,
            SyncKind::Block | SyncKind::Warp | SyncKind::Warpgroup | SyncKind::Cluster | SyncKind::ClusterRelaxed
        )
    }

    /// The word for it in dumps.
    pub fn word(&self) -> &'static str {
        match self {
            SyncKind::Block => "barrier",
            SyncKind::Warp => "warp_barrier",
            SyncKind::Warpgroup => "warpgroup_barrier",
            SyncKind::Cluster => "cluster_barrier",
            SyncKind::ClusterRelaxed => "cluster_barrier_relaxed",
            SyncKind::Commit => "commit_group",
            SyncKind::Wait { .. } => "wait_group",
            SyncKind::ProxyFence => "proxy_fence",
            SyncKind::ProductFence => "wgmma_fence",
            SyncKind::ProductCommit => "wgmma_commit",
            SyncKind::ProductWait { .. } => "wgmma_wait",
            SyncKind::BulkCommit => "bulk_commit",
            SyncKind::BulkWait { read: false, .. } => "bulk_wait",
            SyncKind::BulkWait { read: true, .. } => "bulk_wait_read",
            SyncKind::GridWait => "grid_wait",
            SyncKind::GridRelease => "grid_release",
            SyncKind::Prefetch { .. } => "prefetch",
            SyncKind::PrefetchLine { .. } => "prefetch_line",
            SyncKind::PrefetchMap { .. } => "prefetch_map",
            SyncKind::Narrow { .. } => "narrow",
            SyncKind::InitBarriers => "mbarrier.init",
            SyncKind::Expect { .. } => "mbarrier.expect_tx",
            SyncKind::Arrive { .. } => "mbarrier.arrive",
            SyncKind::Await { .. } => "mbarrier.wait",
        }
    }
}
