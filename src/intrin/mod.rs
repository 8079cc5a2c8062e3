//! Instruction rows: what an instruction does, said once, for schedule, lower, machine and codegen to read.
//!
//! A row states its name, the level that executes it together, its dimensions, its operands with their scopes, how it
//! starts a sum, and its meaning as a program in te's text. [`matches()`] holds a loop nest against that meaning.

mod matching;
mod rows;

pub use matching::{Mismatch, matches};
pub use rows::ALL;

use crate::error::{Error, Result};
use crate::ir::{Func, Scope};

/// The units that execute an instruction together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// All threads of a block.
    Block,
    /// 128 consecutive threads.
    Warpgroup,
    /// 32 consecutive threads.
    Warp,
    /// One thread.
    Thread,
}

/// How an instruction that accumulates starts a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Init {
    /// It cannot: what it adds to must have been written.
    None,
    /// A predicate operand leaves the accumulator out: it takes a block's init of zero.
    ScaleD,
}

/// An operand of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand {
    /// Its buffer in the row's meaning, which has its type and its dimensions.
    pub name: &'static str,
    /// Where it must live.
    pub scope: Scope,
    /// Whether it may also lie transposed.
    pub either_major: bool,
}

/// An instruction.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// `family.shape.types`, as in steps and dumps.
    pub name: &'static str,
    /// One sentence, with the source.
    pub about: &'static str,
    /// Who executes it together.
    pub level: Level,
    /// Names and extents of its dimensions.
    pub dims: &'static [(&'static str, i64)],
    /// The result first.
    pub operands: &'static [Operand],
    /// How it starts a sum.
    pub init: Init,
    /// A program of one block over the dimensions.
    pub meaning: &'static str,
}

impl Row {
    /// The meaning as a program.
    ///
    /// # Errors
    /// A fault of the row, which this room's tests rule out.
    pub fn program(&self) -> Result<Func> {
        crate::te::parse(self.meaning)
            .map_err(|e| Error::bug("intrin.meaning", format!("{}: {}", self.name, e.message())))
    }

    /// The operand of that name.
    pub fn operand(&self, name: &str) -> Option<&'static Operand> {
        self.operands.iter().find(|o| o.name == name)
    }
}

/// The row of that name.
pub fn find(name: &str) -> Option<&'static Row> {
    ALL.iter().find(|r| r.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::visit;

    #[test]
    fn rows_mean_what_they_state() {
        for row in ALL {
            let func = row.program().unwrap();
            let blocks = visit::blocks(&func.body);
            assert_eq!(blocks.len(), 1, "{}", row.name);
            let loops = visit::loops(&func.body);
            let dims: Vec<(&str, i64)> =
                loops.iter().map(|l| (func.var_name(l.var), l.extent.as_int().unwrap())).collect();
            assert_eq!(dims, row.dims, "{}", row.name);
            let mut buffers: Vec<&str> = func.buffers.iter().map(|b| b.name.as_str()).collect();
            let mut operands: Vec<&str> = row.operands.iter().map(|o| o.name).collect();
            buffers.sort_unstable();
            operands.sort_unstable();
            assert_eq!(buffers, operands, "{}", row.name);
            assert!(row.init == Init::None || blocks[0].init.is_some(), "{}", row.name);
            assert_eq!(ALL.iter().filter(|r| r.name == row.name).count(), 1);
        }
    }
}
