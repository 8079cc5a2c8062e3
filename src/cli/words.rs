//! The words of `.loom` texts by what they are, from the lists that the parsers read. What colours a text in the terminal and the
//! grammars for editors (`tests/it/editors.rs`) share them.

use crate::dtype::DType;
use crate::intrin;
use crate::ir::Axis;
use crate::ir::reducer::TupleReducer;
use crate::schedule::{Form, ParamKind, primitive};
use crate::target::Target;
use crate::te::{self, Epilogue, Layout, Reducer};
use std::collections::BTreeSet;

/// What a word is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// The name of a step: the first word of a statement.
    Step,
    /// A word of programs, such as `input`.
    Keyword,
    /// A chip.
    Target,
    /// An axis, such as `threadIdx.x`.
    Axis,
    /// An option of a step: `=` is after it.
    Option,
    /// A function or a reducer: `(` is after it.
    Function,
    /// A type of data.
    Type,
    /// A word that a step takes.
    Choice,
    /// A program in one word, such as `gemm`, and the words behind it.
    Builder,
    /// `and`, `or`, `not`.
    Logical,
}

impl Class {
    /// All, in the order in which a word is looked for.
    pub const ALL: [Class; 10] = [
        Class::Step,
        Class::Keyword,
        Class::Target,
        Class::Axis,
        Class::Option,
        Class::Function,
        Class::Type,
        Class::Choice,
        Class::Builder,
        Class::Logical,
    ];

    /// The words of the class.
    pub fn words(self) -> BTreeSet<&'static str> {
        let parameters = || primitive::ALL.iter().flat_map(|p| p.signature);
        match self {
            Class::Step => primitive::ALL.iter().map(|p| p.name).collect(),
            Class::Keyword => {
                // The grammar's first block is the statements; its words in small letters are the keywords.
                let statements = te::GRAMMAR.split("```").nth(1).unwrap_or("").trim_start_matches("text");
                let words = statements.split(|c: char| !c.is_alphanumeric());
                words
                    .filter(|w| !w.is_empty() && w.bytes().all(|b| b.is_ascii_lowercase()))
                    .chain(["target", "recommend"])
                    .collect()
            }
            Class::Target => Target::ALL.iter().map(|t| t.name).collect(),
            Class::Axis => Axis::ALL.iter().map(|a| a.name()).collect(),
            Class::Option => {
                parameters().filter(|p| matches!(p.form, Form::Option | Form::Setting)).map(|p| p.name).collect()
            }
            Class::Function => {
                let reducers = Reducer::ALL.iter().map(|r| r.name()).chain(TupleReducer::PREDEFINED);
                reducers.chain(te::functions()).collect()
            }
            Class::Type => DType::ALL.iter().map(|d| d.name()).collect(),
            Class::Choice => {
                let (axes, types) = (Class::Axis.words(), Class::Type.words());
                let choices = parameters().filter_map(|p| match p.kind {
                    ParamKind::Choice(words) => Some(words),
                    _ => None,
                });
                let is_own = |w: &&str| !axes.contains(w) && !types.contains(w) && w.parse::<i64>().is_err();
                choices.flatten().copied().filter(is_own).collect()
            }
            Class::Builder => {
                let more = Epilogue::ALL.map(Epilogue::name).into_iter().chain(Layout::ALL.map(Layout::name));
                te::BUILDERS.into_iter().chain(more).collect()
            }
            Class::Logical => ["and", "or", "not"].into_iter().collect(),
        }
    }
}

/// What the names of instructions begin with: `wgmma`, `ldmatrix`, ...
pub fn families() -> BTreeSet<&'static str> {
    intrin::all().iter().filter_map(|r| r.name.split('.').next()).collect()
}
