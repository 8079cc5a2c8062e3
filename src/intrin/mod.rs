//! Instruction rows: what an instruction does, said once, for schedule, lower, sim and codegen to read.
//!
//! A row states its name, the level that executes it together, its dimensions, its operands with the layouts in which lanes
//! hold them, how it starts a sum, its meaning as a program in te's text, what the chip must have, and how it is written.
//! [`matches()`] holds a loop nest against that meaning. A row checks itself when it is built.

mod check;
mod feed;
mod matching;
mod rows;
mod stride;
#[cfg(test)]
mod tests;

pub use feed::{Way, copies, dtype_of};
pub use matching::{Mismatch, Played, matches, play};
pub use rows::all;
pub use stride::Uneven;

use crate::error::{Code, Error, Result};
use crate::ir::layout::{Coordinate, Layout};
use crate::ir::{Func, Scope};
use crate::target::{Features, Target};

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

/// What an instruction does with its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The second operand's elements become the first's.
    Copy,
    /// The products of the second and third operand are added to the first.
    MultiplyAdd,
    /// The exclusive or of the second and third operand, which are single bits, is added to the first.
    XorAdd,
}

impl Action {
    /// Whether the first operand is a sum that is added to.
    pub fn accumulates(self) -> bool {
        self != Action::Copy
    }
}

/// How the units that execute an instruction hold an operand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In registers: from the operand's indices to warp, lane, register, and bit. A register has 32 bits, or 64 for elements of 64 bits.
    Registers(Layout),
    /// In registers, spread over lanes and registers as the chip likes.
    Opaque(Opaque),
    /// In shared or global memory: the elements of the second index next to each other, those of the first a stride apart.
    Rows(Rows),
    /// In shared memory, at addresses that the lanes give: from the operand's indices to the lane whose address leads
    /// there, and the distance behind it in bits.
    Addresses(Layout),
    /// In shared memory behind a descriptor.
    Descriptor {
        /// Whether the second index may also run across the rows of memory, not only along them.
        across: bool,
    },
}

/// A fragment of which the PTX ISA says how many registers a lane has, not which elements are in them, and not whether some
/// are in several (PTX ISA, "Matrix Fragments for WMMA").
///
/// So nothing may depend on where an element is. Instructions that name the same kind agree with each other: one loads what
/// another multiplies and a third stores. Between them only code that treats all elements alike can run on the registers,
/// one after the other: fill, scale, relu. What asks for an element's indices (a bias, a mask, a store of single elements), and
/// what goes from one kind to another, even by a cast alone, goes through memory. `lower` refuses the rest, codegen gives a
/// lane as many slots as its registers have elements, and the simulator deals elements out to lanes and slots at random,
/// differently for every kind, so that a program that depends on a position shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opaque {
    /// Whose distribution: the matrix of the product, for a factor the major in which it was loaded, and the shape of the
    /// product, and the type of the elements, as in `a.row.m16n16k16.f16`.
    pub kind: String,
    /// From the operand's indices to the number of the element in its matrix, row by row.
    pub layout: Layout,
    /// Registers of 32 bits that a lane has.
    pub registers: i64,
}

impl Opaque {
    /// The elements of the matrix.
    pub fn elements(&self) -> i64 {
        self.layout.span(Coordinate::Element)
    }

    /// The elements that a lane's registers have room for.
    pub fn slots(&self, bits: u32) -> i64 {
        self.registers * 32 / i64::from(bits.max(1))
    }
}

/// A tile in memory. Its rows are runs of consecutive elements; the instruction takes the address of the first element and
/// the distance from row to row in elements, the same for all lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// What the tile's address is a multiple of, in bytes.
    pub align: i64,
    /// What the distance from row to row is a multiple of, in bytes.
    pub step: i64,
}

/// An operand of an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operand {
    /// Its buffer in the row's meaning, which has its type and its dimensions.
    pub name: &'static str,
    /// How it is held.
    pub place: Place,
}

impl Operand {
    /// An operand.
    pub fn new(name: &'static str, place: Place) -> Operand {
        Operand { name, place }
    }

    /// Where it may live.
    pub fn scopes(&self) -> &'static [Scope] {
        match self.place {
            Place::Registers(_) | Place::Opaque(_) => &[Scope::Fragment],
            Place::Addresses(_) | Place::Descriptor { .. } => &[Scope::Shared],
            Place::Rows(_) => &[Scope::Shared, Scope::Global],
        }
    }

    /// Whether its indices may also stand the other way round: in registers they are but names.
    pub fn either_major(&self) -> bool {
        !matches!(self.place, Place::Addresses(_) | Place::Rows(_))
    }

    /// The registers of a lane.
    pub fn registers(&self) -> i64 {
        match &self.place {
            Place::Registers(layout) => layout.span(Coordinate::Register),
            Place::Opaque(opaque) => opaque.registers,
            Place::Addresses(_) | Place::Rows(_) | Place::Descriptor { .. } => 1,
        }
    }
}

/// How an instruction is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Emit {
    /// An intrinsic of LLVM, called with the registers of these operands (or the address), and behind all of them the
    /// distance from row to row where there is one; its value, if it has one, are the registers of the first operand of the
    /// row.
    Intrinsic {
        /// `llvm.nvvm...`
        name: String,
        /// In the order of its arguments.
        operands: &'static [&'static str],
    },
    /// Inline PTX: a file of `ptx-templates/`, in which fields are filled in and `{OPERAND}` represents a list of registers or
    /// an address.
    Template {
        /// The text.
        text: &'static str,
        /// The value of `{field}`.
        fields: Vec<(&'static str, String)>,
        /// The operands that it reads, in order. The first operand of the row may be among them: the text then has its registers once, as
        /// a result and as an argument.
        operands: &'static [&'static str],
    },
    /// An asynchronous product in inline PTX: the registers of the first operand are read and written, the other operands are
    /// registers or descriptors of tiles in shared memory. Its effect is waited for by groups.
    Product {
        /// The text.
        text: &'static str,
        /// The value of `{field}`.
        fields: Vec<(&'static str, String)>,
    },
}

/// An instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// `family.shape.types`, as in steps and dumps.
    pub name: String,
    /// One sentence, with the source.
    pub about: &'static str,
    /// Who executes it together.
    pub level: Level,
    /// Names and extents of its dimensions.
    pub dims: Vec<(&'static str, i64)>,
    /// The result first.
    pub operands: Vec<Operand>,
    /// How it starts a sum.
    pub init: Init,
    /// A program of one block over the dimensions.
    pub meaning: String,
    /// What that is.
    pub action: Action,
    /// What the chip must have.
    pub needs: Features,
    /// The compute capability (times ten) from which on chips have it in name only: their assembler writes a sequence of other
    /// instructions for it, and who asks for speed asks for those.
    pub emulated_from: Option<u32>,
    /// How it is written; `None` if `lower` does not know it yet.
    pub emit: Option<Emit>,
}

impl Row {
    /// The meaning as a program.
    ///
    /// # Errors
    /// A fault of the row, which this room's tests rule out.
    pub fn program(&self) -> Result<Func> {
        crate::te::parse(&self.meaning)
            .map_err(|e| Error::bug(Code::IntrinMeaning, format!("{}: {}", self.name, e.message())))
    }

    /// Whether its effect has to be waited for.
    pub fn is_asynchronous(&self) -> bool {
        matches!(self.emit, Some(Emit::Product { .. }))
    }

    /// Whether a chip runs it as a sequence of other instructions.
    pub fn is_emulated_on(&self, target: &Target) -> bool {
        self.emulated_from.is_some_and(|sm| target.sm >= sm)
    }

    /// Whether a chip has it, and runs it as one.
    pub fn is_native_to(&self, target: &Target) -> bool {
        target.has(self.needs) && !self.is_emulated_on(target)
    }

    /// The columns of the result of an MMA.
    pub fn columns(&self) -> i64 {
        self.dims.iter().find(|d| d.0 == "n").map_or(1, |d| d.1)
    }

    /// The MMA of the same types with so many columns, if there is one.
    pub fn with_columns(&self, columns: i64) -> Option<&'static Row> {
        find(&self.name.replacen(&format!("n{}k", self.columns()), &format!("n{columns}k"), 1))
    }

    /// The operand of that name.
    pub fn operand(&self, name: &str) -> Option<&Operand> {
        self.operands.iter().find(|o| o.name == name)
    }
}

/// The row of that name.
pub fn find(name: &str) -> Option<&'static Row> {
    all().iter().find(|r| r.name == name)
}

/// What to say of a name that no row has: which widths n there are, where the rest of it is right; else the nearest name.
pub fn suggestion(name: &str) -> String {
    widths(name).unwrap_or_else(|| crate::error::suggestion(name, all().iter().map(|r| r.name.as_str())))
}

/// The widths of the instructions that differ from a name in their n alone, where that is a choice.
fn widths(name: &str) -> Option<String> {
    let digits = name.find(".m")? + name[name.find(".m")?..].find('n')? + 1;
    let end = digits + name[digits..].find(|c: char| !c.is_ascii_digit())?;
    let width = |row: &Row| row.name.strip_prefix(&name[..digits])?.strip_suffix(&name[end..])?.parse::<i64>().ok();
    let mut all: Vec<i64> = all().iter().filter_map(width).collect();
    all.sort_unstable();
    let [first, second, .., last] = all[..] else { return None };
    let step = second - first;
    let even = all.windows(2).all(|w| w[1] - w[0] == step);
    Some(match even {
        true => format!("; its n is {first} to {last} in steps of {step}"),
        false => format!("; its n is {}", all.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")),
    })
}
