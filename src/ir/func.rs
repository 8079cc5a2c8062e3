//! A program: parameters, buffers, names, and the body. A value: a rewrite returns a new one.

use super::reducer::TupleReducer;
use super::{Block, BlockId, Buffer, BufferId, DynamicSize, For, Launch, Mbarrier, Role, Stmt, Var, visit};

/// A program of the Tensor or Scheduled stage, or the body of a Lowered kernel.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Func {
    /// Its name; the entry points of its kernels begin with it.
    pub name: String,
    /// The buffers that the caller passes, in order.
    pub params: Vec<BufferId>,
    /// Sizes that are known at launch alone.
    pub sizes: Vec<DynamicSize>,
    /// All buffers; [`BufferId`] is the position.
    pub buffers: Vec<Buffer>,
    /// Names of variables; [`Var`] is the position. Loops have unique names; a block's iterators are local to it.
    pub vars: Vec<String>,
    /// Names of blocks; [`BlockId`] is the position. Unique.
    pub blocks: Vec<String>,
    /// The reducers of tuples that the program states.
    pub reducers: Vec<TupleReducer>,
    /// Warp roles made by `specialize`.
    pub roles: Vec<Role>,
    /// How its kernels are compiled and launched. Lowered kernels have theirs in [`super::lowered::LoweredKernel`].
    pub launches: Vec<Launch>,
    /// Mbarriers in shared memory; [`super::Slot::barrier`] is the position (Lowered).
    pub mbarriers: Vec<Mbarrier>,
    /// The root's nests, in order.
    pub body: Vec<Stmt>,
    /// Claims of the verifier that are not decided are tried at some points, not refused.
    pub allow_tested: bool,
}

impl Func {
    /// The description of a buffer.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.0 as usize]
    }

    /// The description of a buffer, to change.
    pub fn buffer_mut(&mut self, id: BufferId) -> &mut Buffer {
        &mut self.buffers[id.0 as usize]
    }

    /// The name of a variable.
    pub fn var_name(&self, var: Var) -> &str {
        &self.vars[var.0 as usize]
    }

    /// The name of a block.
    pub fn block_name(&self, block: BlockId) -> &str {
        &self.blocks[block.0 as usize]
    }

    /// Adds a variable of that name, which may be in use (a block's iterator).
    pub fn add_var(&mut self, name: impl Into<String>) -> Var {
        self.vars.push(name.into());
        Var(self.vars.len() as u32 - 1)
    }

    /// Adds a block name, which must be new.
    pub fn add_block(&mut self, name: impl Into<String>) -> BlockId {
        self.blocks.push(name.into());
        BlockId(self.blocks.len() as u32 - 1)
    }

    /// Adds a buffer, whose name must be new.
    pub fn add_buffer(&mut self, buffer: Buffer) -> BufferId {
        self.buffers.push(buffer);
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// The buffer of that name.
    pub fn find_buffer(&self, name: &str) -> Option<BufferId> {
        self.buffers.iter().position(|b| b.name == name).map(|i| BufferId(i as u32))
    }

    /// The loop of that name, if it is in the body. A rasterized pair is found by its members too (the walking loop).
    pub fn find_loop(&self, name: &str) -> Option<&For> {
        visit::loops(&self.body).into_iter().find(|l| self.var_name(l.var) == name)
    }

    /// The block of that name, if it is in the body.
    pub fn find_block(&self, name: &str) -> Option<&Block> {
        visit::blocks(&self.body).into_iter().find(|b| self.block_name(b.name) == name)
    }

    /// `base`, or the first of `base_1`, `base_2`, .. that no loop in the body has or walks.
    pub fn unused_loop_name(&self, base: &str) -> String {
        let of = |l: &For| l.defines().into_iter().map(|d| d.0).chain([l.var]).collect::<Vec<_>>();
        let taken: Vec<&str> = visit::loops(&self.body).into_iter().flat_map(of).map(|v| self.var_name(v)).collect();
        unused(base, |n| taken.contains(&n))
    }

    /// `base`, or the first of `base_1`, `base_2`, .. that no block in the body has.
    pub fn unused_block_name(&self, base: &str) -> String {
        let taken: Vec<&str> = visit::blocks(&self.body).iter().map(|b| self.block_name(b.name)).collect();
        unused(base, |n| taken.contains(&n))
    }

    /// `base`, or the first of `base_1`, `base_2`, .. that no buffer has.
    pub fn unused_buffer_name(&self, base: &str) -> String {
        unused(base, |n| self.find_buffer(n).is_some())
    }
}

fn unused(base: &str, taken: impl Fn(&str) -> bool) -> String {
    if !taken(base) {
        return base.to_string();
    }
    (1..).map(|n| format!("{base}_{n}")).find(|n| !taken(n)).unwrap_or_default()
}
