//! Roles: what the warps of each run, next to each other, and their own barriers.
//!
//! A role is a branch on the number of the warp, which comes from one lane, so that ptxas knows all lanes to take the same
//! way. Its threads are counted from 0 in it. Barrier 0 is the block's; those from 1 on are the roles', in the order of the
//! text; those from 8 on the warpgroups', in the order of their warps.

use super::body::Body;
use super::builder::Value;
use super::index::{Number, Variable};
use super::session::bug;
use crate::error::Result;
use crate::ir::lowered::ROLES;
use crate::ir::{Role, RoleBody, Var};
use crate::target::Features;
use inkwell::IntPredicate;
use inkwell::values::InstructionOpcode as Op;

/// Barriers of roles end in front of this one, which is the first warpgroup's.
const GROUPS: u32 = ROLES + 1;

/// The role whose code is being written.
#[derive(Debug, Clone, Copy)]
pub struct Slice {
    /// Its barrier.
    barrier: u32,
    first: u32,
    warps: u32,
}

impl<'c> Body<'c, '_, '_> {
    /// What the warps of a role run.
    pub fn role(&mut self, r: &RoleBody) -> Result<()> {
        let outside = self.warp.and_then(|numbers| Some((numbers, self.known(numbers.0)?, self.known(numbers.1)?)));
        let Some(((thread, warp), of_thread, of_warp)) = outside else {
            return Err(bug("a role in a block that is one warp"));
        };
        let barrier = self.next_barrier;
        if barrier >= GROUPS {
            return Err(bug(format!("more roles than {}", GROUPS - 1)));
        }
        self.next_barrier += 1;
        let (inside, after) = (self.new_block("role"), self.new_block("after"));
        let role = r.role.and_then(|id| self.func.roles.get(id.0 as usize));
        self.listing.name(inside, &format!("role {}", role.map_or("compute", |r: &Role| r.name.as_str())));
        let own = self.less(of_warp.number.value.into(), r.first)?;
        let mine = self.b.compare_int(IntPredicate::ULT, own, self.b.int(32, r.warps.into()).into())?;
        self.b.branch(mine, inside, after)?;
        self.b.at_end(inside);
        self.set_registers(r)?;
        let threads = self.less(of_thread.number.value.into(), r.first * 32)?.into_int_value();
        let number = |value, n: u32| Number { value, range: (0, i128::from(n) - 1) };
        self.variables.insert(thread, Variable { number: number(threads, r.warps * 32), ..of_thread });
        self.variables.insert(warp, Variable { number: number(own.into_int_value(), r.warps), ..of_warp });
        self.slice = Some(Slice { barrier, first: r.first, warps: r.warps });
        self.stmts(&r.body)?;
        self.slice = None;
        self.variables.insert(thread, of_thread);
        self.variables.insert(warp, of_warp);
        self.b.jump(after)?;
        self.b.at_end(after);
        Ok(())
    }

    fn known(&self, var: Var) -> Option<Variable<'c>> {
        self.variables.get(&var).copied()
    }

    fn less(&self, value: Value<'c>, by: u32) -> Result<Value<'c>> {
        if by == 0 { Ok(value) } else { self.b.binary(Op::Sub, value, self.b.int(32, by.into()).into()) }
    }

    /// Gives registers up, or takes what others gave up.
    fn set_registers(&self, r: &RoleBody) -> Result<()> {
        let Some(wanted) = r.regs else { return Ok(()) };
        let way = if wanted > self.kernel.registers_at_start() { "inc" } else { "dec" };
        let name = format!("llvm.nvvm.setmaxnreg.{way}.sync.aligned.u32");
        self.b.effect(&name, &[self.b.int(32, wanted.into()).into()])
    }

    /// All threads of the role, or of the block where there are none, meet.
    pub fn meet(&self) -> Result<()> {
        let Some(slice) = self.slice else { return self.b.effect("llvm.nvvm.barrier0", &[]) };
        self.barrier(self.b.int(32, slice.barrier.into()).into(), slice.warps * 32)
    }

    /// The threads of each warpgroup meet.
    pub fn meet_in_groups(&self) -> Result<()> {
        let Some(warp) = self.warp.and_then(|(_, warp)| self.known(warp)) else { return self.meet() };
        let first = self.slice.map_or(0, |s| s.first) / 4 + GROUPS;
        let group = self.b.binary(Op::LShr, warp.number.value.into(), self.b.int(32, 2).into())?;
        let barrier = self.b.binary(Op::Add, group, self.b.int(32, first.into()).into())?;
        self.barrier(barrier, 128)
    }

    fn barrier(&self, number: Value<'c>, threads: u32) -> Result<()> {
        self.b.effect("llvm.nvvm.barrier", &[number, self.b.int(32, threads.into()).into()])
    }

    /// Whether the chip has what came with bulk copies: elections, waits that sleep, arrivals without a state.
    pub fn is_modern(&self) -> bool {
        self.b.features.contains(Features::TMA)
    }
}
