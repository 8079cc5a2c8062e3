//! Buffers: named arrays with a type, a shape and an owner.

use super::{Index, RoleId};
use crate::dtype::DType;

/// A buffer; its description is in [`super::Func::buffers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// Where a buffer lives and which unit owns a copy of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Scope {
    /// Device memory, owned by the grid.
    Global,
    /// Shared memory of the blocks of a cluster, owned by the cluster. Of the part that is in use, the first dimension numbers the
    /// blocks: each has the elements of its own number in its shared memory.
    Cluster,
    /// Shared memory, owned by the block.
    Shared,
    /// Registers spread over a warp or warpgroup as an instruction demands.
    Fragment,
    /// Registers of one thread.
    Local,
}

impl Scope {
    /// The name in programs and dumps.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Global => "global",
            Scope::Cluster => "cluster",
            Scope::Shared => "shared",
            Scope::Fragment => "fragment",
            Scope::Local => "local",
        }
    }

    /// Whether several threads of a block access the same copy.
    pub fn is_of_several_threads(self) -> bool {
        matches!(self, Scope::Global | Scope::Cluster | Scope::Shared)
    }

    /// The scope of that name.
    pub fn parse(name: &str) -> Option<Scope> {
        [Scope::Global, Scope::Cluster, Scope::Shared, Scope::Fragment, Scope::Local]
            .into_iter()
            .find(|s| s.name() == name)
    }
}

/// `storage_align BUF DIM FACTOR OFFSET`: the stride of dimension `dim` is made `factor * n + offset` elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageAlign {
    /// The dimension whose stride is padded.
    pub dim: usize,
    /// In elements.
    pub factor: i64,
    /// In elements.
    pub offset: i64,
}

/// A named array.
#[derive(Debug, Clone, PartialEq)]
pub struct Buffer {
    /// Unique among the buffers of a Func.
    pub name: String,
    /// The type of an element.
    pub dtype: DType,
    /// Extents, outermost first; row-major unless `strides` says otherwise. In Lowered one flat extent in elements.
    pub shape: Vec<Index>,
    /// Strides in elements, for parameters whose rows are not packed.
    pub strides: Option<Vec<i64>>,
    /// Alignment of the base address in bytes (a promise of the caller for parameters, checked at launch).
    pub align: u32,
    /// The values of its elements, from the first to the end, which is exclusive: a promise of the caller for inputs of integers.
    pub values: Option<(i64, i64)>,
    /// Where it lives.
    pub scope: Scope,
    /// Placement: a padded stride.
    pub storage_align: Option<StorageAlign>,
    /// Placement: panels of 16, 32, 64 or 128 bytes, of which those of one chunk, 16 bytes, have nothing to permute.
    pub swizzle: Option<u32>,
    /// Lowered: the byte offset in the block's shared memory.
    pub offset: Option<u32>,
    /// The role that owns it, where roles are used (Lowered).
    pub role: Option<RoleId>,
    /// Lowered: holds partial results that a reduction exchanges between threads. No pipeline has stages of it.
    pub exchange: bool,
}

impl Buffer {
    /// A buffer with packed rows and the usual 16-byte alignment.
    pub fn new(name: impl Into<String>, dtype: DType, shape: Vec<Index>, scope: Scope) -> Buffer {
        Buffer {
            name: name.into(),
            dtype,
            shape,
            strides: None,
            align: 16,
            values: None,
            scope,
            storage_align: None,
            swizzle: None,
            offset: None,
            role: None,
            exchange: false,
        }
    }

    /// The extents, if all are constants.
    pub fn const_shape(&self) -> Option<Vec<i64>> {
        self.shape.iter().map(Index::as_int).collect()
    }

    /// The number of elements of a packed array of constant shape; `None` on overflow or a symbolic extent.
    pub fn elements(&self) -> Option<i64> {
        self.const_shape()?.into_iter().try_fold(1i64, i64::checked_mul)
    }
}
