//! A step as data: which primitive, its arguments, the names it makes; and its text form.
//!
//! [`Args`] holds one [`Value`] per stated parameter of the primitive's signature and the names after `->`. The text
//! form follows the signature from left to right, and [`super::parse()`] reads it back to the same step.

use super::IndexMap;
use super::primitive::{Form, ParamKind, Parameter, Primitive};
use crate::error::{Code, Error, Result};
use std::fmt::{Debug, Display, Formatter};
use std::ops::Range;
use std::sync::Arc;

/// One argument.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// A name or a word from a closed list.
    Word(String),
    /// Several names.
    Words(Vec<String>),
    /// Factors of a split; `None` is `?`.
    Factors(Vec<Option<i64>>),
    /// Loops with a number each.
    Multiples(Vec<(String, i64)>),
    /// A number.
    Int(i64),
    /// `[i, j] -> [..]`.
    Map(IndexMap),
}

/// The arguments of a step. Parameters that are not stated are absent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Args {
    values: Vec<(&'static str, Value)>,
    /// What is after `->`: the loops, blocks, buffers or roles that the step makes. Empty: default names.
    pub names: Vec<String>,
}

impl Args {
    /// No argument yet.
    pub fn new() -> Args {
        Args::default()
    }

    /// Adds the value of a parameter.
    #[must_use]
    pub fn with(mut self, parameter: &'static str, value: Value) -> Args {
        self.values.push((parameter, value));
        self
    }

    /// Adds a single word or name.
    #[must_use]
    pub fn word(self, parameter: &'static str, word: &str) -> Args {
        self.with(parameter, Value::Word(word.to_string()))
    }

    /// Adds several names.
    #[must_use]
    pub fn words(self, parameter: &'static str, words: &[&str]) -> Args {
        self.with(parameter, Value::Words(words.iter().map(|w| w.to_string()).collect()))
    }

    /// Adds a number.
    #[must_use]
    pub fn int(self, parameter: &'static str, value: i64) -> Args {
        self.with(parameter, Value::Int(value))
    }

    /// Sets the names after `->`.
    #[must_use]
    pub fn names(mut self, names: &[&str]) -> Args {
        self.names = names.iter().map(|n| n.to_string()).collect();
        self
    }

    /// The value of a parameter, if stated.
    pub fn get(&self, parameter: &str) -> Option<&Value> {
        self.values.iter().find(|(name, _)| *name == parameter).map(|(_, v)| v)
    }

    /// The word of a parameter that the signature demands.
    #[doc(hidden)]
    pub fn get_word(&self, parameter: &str) -> Result<&str> {
        self.find_word(parameter).ok_or_else(|| missing(parameter))
    }

    /// The word of an optional parameter.
    pub fn find_word(&self, parameter: &str) -> Option<&str> {
        match self.get(parameter) {
            Some(Value::Word(w)) => Some(w),
            _ => None,
        }
    }

    /// The names of a parameter that the signature demands.
    #[doc(hidden)]
    pub fn get_words(&self, parameter: &str) -> Result<&[String]> {
        match self.get(parameter) {
            Some(Value::Words(w)) => Ok(w),
            _ => Err(missing(parameter)),
        }
    }

    /// The number of a parameter that the signature demands.
    #[doc(hidden)]
    pub fn get_int(&self, parameter: &str) -> Result<i64> {
        self.find_int(parameter).ok_or_else(|| missing(parameter))
    }

    /// The number of an optional parameter.
    pub fn find_int(&self, parameter: &str) -> Option<i64> {
        match self.get(parameter) {
            Some(Value::Int(i)) => Some(*i),
            _ => None,
        }
    }

    /// The factors of a parameter that the signature demands.
    #[doc(hidden)]
    pub fn get_factors(&self, parameter: &str) -> Result<&[Option<i64>]> {
        match self.get(parameter) {
            Some(Value::Factors(f)) => Ok(f),
            _ => Err(missing(parameter)),
        }
    }

    /// The loops and numbers of a parameter that the signature demands.
    #[doc(hidden)]
    pub fn get_multiples(&self, parameter: &str) -> Result<&[(String, i64)]> {
        match self.get(parameter) {
            Some(Value::Multiples(m)) => Ok(m),
            _ => Err(missing(parameter)),
        }
    }

    /// The index map of a parameter that the signature demands.
    #[doc(hidden)]
    pub fn get_map(&self, parameter: &str) -> Result<&IndexMap> {
        match self.get(parameter) {
            Some(Value::Map(m)) => Ok(m),
            _ => Err(missing(parameter)),
        }
    }
}

fn missing(parameter: &str) -> Error {
    Error::bug(Code::StepArgs, format!("a step without its {parameter}, which Step::new should have refused"))
}

/// A step: a primitive and its arguments. [`Display`] prints the text that parses back, without its remark.
#[derive(Debug, Clone)]
pub struct Step {
    primitive: &'static Primitive,
    args: Args,
    remark: Option<String>,
    origin: Option<Origin>,
}

/// Where a step was written: the whole text, and its bytes there. It makes no step another one.
#[derive(Clone)]
struct Origin {
    text: Arc<str>,
    span: Range<usize>,
}

impl Debug for Origin {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "bytes {:?}", self.span)
    }
}

impl PartialEq for Step {
    fn eq(&self, other: &Step) -> bool {
        self.primitive.name == other.primitive.name && self.args == other.args
    }
}

impl Step {
    /// The primitive applied to arguments that fit its signature.
    ///
    /// # Errors
    /// `step.args` where a demanded parameter is missing, has a value of another kind, or where too many names follow
    /// `->`.
    pub fn new(primitive: &'static Primitive, args: Args) -> Result<Step> {
        for parameter in primitive.signature.iter().filter(|p| p.form != Form::Made) {
            match args.get(parameter.name) {
                Some(value) => check(primitive, parameter, value)?,
                None if parameter.is_demanded() => {
                    let message = format!("`{}` needs its {}: `{}`", primitive.name, parameter.name, primitive.usage());
                    return Err(Error::input(Code::StepArgs, message));
                }
                None => {}
            }
        }
        // In the signature's order, so that steps are equal whatever order their options were written in.
        let mut args = args;
        let place = |name: &str| primitive.signature.iter().position(|p| p.name == name);
        args.values.sort_by_key(|(name, _)| place(name));
        let most = primitive.most_names();
        if args.names.len() > most {
            let message = format!("`{}` makes at most {most} names, {} follow `->`", primitive.name, args.names.len());
            return Err(Error::input(Code::StepArgs, message).help(format!("`{}`", primitive.usage())));
        }
        Ok(Step { primitive, args, remark: None, origin: None })
    }

    /// Which primitive.
    pub fn primitive(&self) -> &'static Primitive {
        self.primitive
    }

    /// Its arguments.
    pub fn args(&self) -> &Args {
        &self.args
    }

    /// Why it says what it says, where it was chosen: a comment, which makes no step another one.
    pub fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    /// The same step with such a comment.
    #[must_use]
    pub fn with_remark(mut self, remark: impl Into<String>) -> Step {
        self.remark = Some(remark.into());
        self
    }

    /// The text that it was read from, and where it is there.
    pub fn origin(&self) -> Option<(&str, Range<usize>)> {
        self.origin.as_ref().map(|o| (&*o.text, o.span.clone()))
    }

    /// The same step as one that is there in a text; as it is, where the text has no such place.
    #[must_use]
    pub(crate) fn read_from(mut self, text: &Arc<str>, span: Range<usize>) -> Step {
        if text.get(span.clone()).is_some() {
            self.origin = Some(Origin { text: Arc::clone(text), span });
        }
        self
    }

    /// The same step with the names that it made stated.
    #[must_use]
    pub fn with_names(mut self, names: Vec<String>) -> Step {
        self.args.names = names;
        self
    }
}

fn check(primitive: &Primitive, parameter: &Parameter, value: &Value) -> Result<()> {
    let fits = match (&parameter.kind, value) {
        (ParamKind::Choice(words), Value::Word(w)) => words.contains(&w.as_str()),
        (
            ParamKind::Loop
            | ParamKind::Block
            | ParamKind::Buffer
            | ParamKind::Row
            | ParamKind::Stage
            | ParamKind::Role,
            Value::Word(_),
        ) => true,
        (ParamKind::Loops | ParamKind::Blocks | ParamKind::Buffers, Value::Words(w)) => !w.is_empty(),
        (ParamKind::Factors, Value::Factors(f)) => !f.is_empty(),
        (ParamKind::Multiples, Value::Multiples(m)) => !m.is_empty(),
        (ParamKind::Int, Value::Int(_)) | (ParamKind::Map, Value::Map(_)) => true,
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let wanted = parameter.kind.describe();
    let message = format!("`{}` needs {wanted} as its {}: `{}`", primitive.name, parameter.name, primitive.usage());
    Err(Error::input(Code::StepArgs, message))
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Word(w) => f.write_str(w),
            Value::Words(w) => f.write_str(&w.join(" ")),
            Value::Factors(factors) => {
                let words: Vec<String> = factors.iter().map(|x| x.map_or("?".to_string(), |n| n.to_string())).collect();
                f.write_str(&words.join(" "))
            }
            Value::Multiples(multiples) => {
                let words: Vec<String> = multiples.iter().map(|(l, n)| format!("{l}={n}")).collect();
                f.write_str(&words.join(" "))
            }
            Value::Int(i) => write!(f, "{i}"),
            Value::Map(m) => write!(f, "{m}"),
        }
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.primitive.name)?;
        let mut arrow = self.args.names.is_empty();
        for parameter in self.primitive.signature {
            if parameter.form == Form::Made {
                if !arrow {
                    write!(f, " -> {}", self.args.names.join(" "))?;
                    arrow = true;
                }
                continue;
            }
            match (self.args.get(parameter.name), parameter.form) {
                (None, _) => {}
                (Some(v), Form::Chosen) => write!(f, " = {v}")?,
                (Some(v), Form::Option | Form::Setting) => write!(f, " {}={v}", parameter.name)?,
                (Some(v), _) => write!(f, " {v}")?,
            }
        }
        Ok(())
    }
}
