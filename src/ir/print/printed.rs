//! What the printer returns: a text with the place of every name, and what each of its lines is.

use crate::ir::{BlockId, BufferId, Var};
use std::ops::Range;

/// Spaces by which a line is indented for each head that it is inside.
pub const INDENT: usize = 2;

/// What a name in the text represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Node {
    /// A loop's variable, or a block's iterator.
    Loop(Var),
    /// A block.
    Block(BlockId),
    /// A buffer.
    Buffer(BufferId),
    /// An array of mbarriers, by its number in the kernel.
    Mbarrier(u32),
}

/// What a line of the text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineKind {
    /// A comment above a lowered kernel: its launch, an index that blocks derive, a tensor map, an array of mbarriers.
    Comment,
    /// `func NAME(PARAMETERS)`.
    Head,
    /// A buffer, a role or how the kernels are launched.
    Declaration,
    /// The head of a loop.
    Loop,
    /// The head of a block.
    Block,
    /// The predicate of a block.
    Where,
    /// What initialises the reduction of a block, or the head of several such statements.
    Init,
    /// The threads that run the lines inside: a condition, an election, a role.
    Guard,
    /// A store, an instruction, a bulk copy or synchronisation.
    Statement,
}

/// A line of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrintedLine {
    /// What it is.
    pub kind: LineKind,
    /// Its bytes, indentation included, without the newline.
    pub span: Range<usize>,
    /// How many heads it is inside; each indents by [`INDENT`] spaces.
    pub depth: usize,
    /// The bytes of a block's bindings, parentheses included.
    pub bindings: Option<Range<usize>>,
    /// Where its comment begins, which extends to the end of the line.
    pub comment: Option<usize>,
}

/// A printed program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Printed {
    /// The text; every line ends with a newline.
    pub text: String,
    /// Byte ranges of the names, in the order of the text: where each is introduced, then where it is used.
    pub spans: Vec<(Node, Range<usize>)>,
    /// Byte ranges of the statements that are not loops, blocks or conditions, in the order of the text.
    pub statements: Vec<Range<usize>>,
    /// The lines, in their order.
    pub lines: Vec<PrintedLine>,
}

impl Printed {
    /// Where a name is introduced.
    pub fn introduced(&self, node: Node) -> Option<Range<usize>> {
        self.spans.iter().find(|(n, _)| *n == node).map(|(_, span)| span.clone())
    }
}
