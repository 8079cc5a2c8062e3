//! [`refuse`] for one primitive on one program, so that checks spread over several functions need not repeat both.

use super::find::refuse;
use crate::error::{Code, Error};
use crate::ir::Func;
use crate::ir::print::Node;

/// The refusals of one primitive on one program.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    primitive: &'static str,
    func: &'a Func,
}

impl<'a> Refusal<'a> {
    /// For a primitive by its name.
    pub fn new(primitive: &'static str, func: &'a Func) -> Self {
        Refusal { primitive, func }
    }

    /// The primitive's name.
    pub fn primitive(&self) -> &'static str {
        self.primitive
    }

    /// Requirement `number` is broken; `nodes` are underlined, each with a word.
    pub fn broken(&self, number: usize, message: impl Into<String>, nodes: &[(Node, &str)]) -> Error {
        refuse(self.primitive, number, message, self.func, nodes)
    }

    /// Something that the checks promised is not there.
    pub fn lost(&self, what: &str) -> Error {
        Error::bug(Code::Lost { primitive: self.primitive }, format!("{what} was checked and is not there"))
    }
}
