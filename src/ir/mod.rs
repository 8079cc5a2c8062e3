//! The intermediate representation: one for all stages.
//!
//! # The stages
//!
//! | stage | made by | what it promises |
//! |---|---|---|
//! | Tensor | `te` | blocks over naive serial nests; every buffer whole |
//! | Scheduled | `schedule` | the same meaning, read from top to bottom, plus placements on loops, blocks and buffers |
//! | Lowered | `lower` | flat accesses, explicit threads, predicates, memory plan and synchronisation |
//!
//! [`mod@verify`] lists what the first two promise and checks it: `well_formed` after every step, `verify` of a complete
//! schedule. The first two stages are a [`Func`]; the third is [`lowered::Lowered`], whose
//! kernels hold the same statements with the additions marked *(Lowered)* below.
//!
//! # The pieces
//!
//! - [`Index`]: integer arithmetic over loop variables. Exact, 64 bits, floor division. Everything that addresses.
//! - [`Cond`]: comparisons of indices. Predicates.
//! - [`Expr`]: data. Every operand of an operation has the operation's type; conversions are explicit casts.
//!   [`Expr::Gather`] gives an index the value of a datum: a variable of a stated range, in scope in one expression alone.
//! - [`Stmt`]: [`For`], [`Block`], [`Store`], [`If`], and *(Lowered)* [`Call`], [`BulkCopy`], [`Elect`], [`RoleBody`]
//!   and [`Sync`]. A body is a list of statements.
//! - [`Buffer`]: named, typed, shaped, owned by the unit of its [`Scope`].
//!
//! A **loop** is referred to by its variable ([`Var`]); loops, blocks and buffers each have unique names, and steps,
//! errors and dumps use those names alone. A [`Block`] is the unit of scheduling: its body speaks of its own
//! iteration variables, each bound to an expression over the loops around it, so moving loops never touches a body.
//! A block's `init` runs before its body whenever all its reduce iterators are 0. In Lowered a block is a label.
//! A block may have several stores, which run in their order. [`mod@reduction`] says what a block combines, [`mod@reducer`] what
//! combines several values together.
//!
//! **Placements** are fields, never statements: a loop's [`LoopKind`], [`For::pipeline`], [`For::tensorize`],
//! [`For::raster`], [`For::notes`]; a block's [`Block::copy_with`] and [`Block::role`]; a buffer's [`Buffer::scope`],
//! [`Buffer::storage_align`] and [`Buffer::swizzle`]; a kernel's [`Launch`]. They change no meaning.
//!
//! # Text and types
//!
//! [`mod@print`] is the one text form of all stages, with the place of every name; errors underline it. [`typing`] holds
//! which operation exists on which type. A literal shows its type only where nothing beside it does: `A[i] + 1.0`,
//! but `f32(1.0) + f32(2.0)`.

#[doc(hidden)]
pub mod buffer;
#[doc(hidden)]
pub mod call;
#[doc(hidden)]
pub mod cross_thread;
#[doc(hidden)]
pub mod decide;
pub mod dynamic;
#[doc(hidden)]
pub mod expr;
#[doc(hidden)]
pub mod func;
pub(crate) mod integer;
pub mod launch;
pub mod layout;
pub mod lowered;
pub mod print;
#[doc(hidden)]
pub mod reducer;
#[doc(hidden)]
pub mod reduction;
#[doc(hidden)]
pub mod region;
#[doc(hidden)]
pub mod simplify;
#[doc(hidden)]
pub mod stmt;
#[doc(hidden)]
pub mod sync;
#[doc(hidden)]
pub mod typing;
pub mod verify;
pub mod visit;

pub use buffer::{Buffer, BufferId, Scope, StorageAlign};
pub use call::{Call, Columns, Descriptor, Held, Operand};
pub use dynamic::DynamicSize;
pub use expr::{BinOp, CmpOp, Cond, Expr, Index, IndexOp, Literal, UnOp, Var};
pub use func::Func;
pub use launch::{GridDependency, Launch, LaunchOptions, conflict};
pub use stmt::{
    Axis, BindMode, Block, BlockId, CopyKind, CopyWith, For, If, Iter, IterKind, LoopCode, LoopKind, Note, Peers,
    Pipeline, Raster, Remote, Role, RoleId, Stmt, Store, Tensorize,
};
pub use sync::{BulkCopy, Elect, Mbarrier, RoleBody, Slot, Sync, SyncKind, Way};
