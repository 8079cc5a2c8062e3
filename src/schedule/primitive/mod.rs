//! The primitives, one file each, and what a signature can say.
//!
//! A primitive costs its file, a `mod` line, a line in [`ALL`] and a method of [`super::Steps`]. Its file opens with what it does, what
//! it *Preserves*, and a before -> after; then come the row, which alone lists what it requires ([`Primitive::requires`]), the check of everything, the
//! rewrite, helpers and tests. Parser, printer, reference table and generators read only [`Primitive::signature`].

use super::Args;
use crate::error::Result;
use crate::ir::Func;

/// A row of the vocabulary.
#[derive(Debug)]
pub struct Primitive {
    /// The first word of the step.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// A schedule whose last step is this one.
    pub example: &'static str,
    /// What it takes, in the order of its text; the names that it makes ([`Form::Made`]) among them.
    pub signature: &'static [Parameter],
    /// What must hold, in words; requirement N is the N-th, counted from 1, and refuses with the code `name.N`.
    pub requires: &'static [&'static str],
    /// Checks every requirement, then rewrites. The function is not changed; a new one is returned.
    pub apply: fn(&Func, &Args) -> Result<Applied>,
}

/// What a step yields.
#[derive(Debug)]
pub struct Applied {
    /// The new program.
    pub func: Func,
    /// Every name after `->`, defaults filled in: the step with these names replays to the same program.
    pub names: Vec<String>,
}

/// For steps that make no names.
impl From<Func> for Applied {
    fn from(func: Func) -> Applied {
        Applied { func, names: Vec::new() }
    }
}

/// A parameter of a primitive.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// Its name: in usage texts, in [`Args`], and before the `=` of options.
    pub name: &'static str,
    /// What it takes.
    pub kind: ParamKind,
    /// Where it stands and whether it must.
    pub form: Form,
}

/// Where a parameter stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// At its place; always.
    Place,
    /// At its place, or left out.
    Optional,
    /// As `name=value`, anywhere after the primitive; always.
    Setting,
    /// As `name=value`, or left out.
    Option,
    /// After `=`, or left out: what was chosen for the step.
    Chosen,
    /// A name that the step makes, after `->`; a default is made where left out.
    Made,
}

/// What a parameter takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamKind {
    /// The name of a loop.
    Loop,
    /// Names of loops.
    Loops,
    /// The name of a block.
    Block,
    /// Names of blocks.
    Blocks,
    /// The name of a buffer.
    Buffer,
    /// Names of buffers.
    Buffers,
    /// One name for a block and for the buffer that it fills.
    Stage,
    /// The name of a warp role.
    Role,
    /// The name of an instruction row.
    Row,
    /// Positive numbers, one of which may be `?`.
    Factors,
    /// Loops, each with a number: `i=128`.
    Multiples,
    /// A number.
    Int,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `[i, j] -> [..]`.
    Map,
}

impl ParamKind {
    /// In words, for messages.
    pub fn describe(&self) -> String {
        match self {
            ParamKind::Loop => "a loop".into(),
            ParamKind::Loops => "loops".into(),
            ParamKind::Block => "a block".into(),
            ParamKind::Blocks => "blocks".into(),
            ParamKind::Buffer => "a buffer".into(),
            ParamKind::Buffers => "buffers".into(),
            ParamKind::Stage => "a name for the block and its buffer".into(),
            ParamKind::Role => "a role".into(),
            ParamKind::Row => "an instruction".into(),
            ParamKind::Factors => "factors, positive numbers of which one may be `?`".into(),
            ParamKind::Multiples => "loops with a number each, such as `i=128`".into(),
            ParamKind::Int => "a whole number".into(),
            ParamKind::Choice(words) => format!("one of {}", words.join(", ")),
            ParamKind::Map => "an index map such as `[i, j] -> [j, i]`".into(),
        }
    }

    /// Whether several words belong to it.
    pub fn is_list(&self) -> bool {
        matches!(
            self,
            ParamKind::Loops | ParamKind::Blocks | ParamKind::Buffers | ParamKind::Factors | ParamKind::Multiples
        )
    }
}

impl Parameter {
    /// A parameter that always stands at its place.
    pub const fn place(name: &'static str, kind: ParamKind) -> Parameter {
        Parameter { name, kind, form: Form::Place }
    }

    /// A parameter at its place that may be left out.
    pub const fn optional(name: &'static str, kind: ParamKind) -> Parameter {
        Parameter { name, kind, form: Form::Optional }
    }

    /// A `name=value` that must be stated.
    pub const fn setting(name: &'static str, kind: ParamKind) -> Parameter {
        Parameter { name, kind, form: Form::Setting }
    }

    /// A `name=value` that may be left out.
    pub const fn option(name: &'static str, kind: ParamKind) -> Parameter {
        Parameter { name, kind, form: Form::Option }
    }

    /// What was chosen for the step, after `=`; left out until it is.
    pub const fn chosen(name: &'static str, kind: ParamKind) -> Parameter {
        Parameter { name, kind, form: Form::Chosen }
    }

    /// A name that the step makes.
    pub const fn made(name: &'static str, kind: ParamKind) -> Parameter {
        Parameter { name, kind, form: Form::Made }
    }

    /// Whether a step without it is refused.
    pub fn is_demanded(&self) -> bool {
        matches!(self.form, Form::Place | Form::Setting)
    }

    fn usage(&self) -> String {
        let many = if self.kind.is_list() { ".." } else { "" };
        let value = match self.kind {
            ParamKind::Choice(words) => words.join("|"),
            ParamKind::Multiples => "LOOP=MULTIPLE".into(),
            _ => self.name.to_uppercase(),
        };
        match self.form {
            Form::Place => format!("{value}{many}"),
            Form::Optional => format!("[{value}{many}]"),
            Form::Setting => format!("{}={value}", self.name),
            Form::Option => format!("[{}={value}]", self.name),
            Form::Chosen => format!("[= {value}]"),
            Form::Made => format!("{value}{many}"),
        }
    }
}

impl Primitive {
    /// Its form: `split LOOP FACTORS.. [-> LOOPS..]`.
    pub fn usage(&self) -> String {
        let mut words = vec![self.name.to_string()];
        let made = |p: &&Parameter| p.form == Form::Made;
        let names: Vec<String> = self.signature.iter().filter(made).map(Parameter::usage).collect();
        let mut arrow = false;
        for parameter in self.signature {
            if parameter.form != Form::Made {
                words.push(parameter.usage());
            } else if !arrow {
                words.push(format!("[-> {}]", names.join(" ")));
                arrow = true;
            }
        }
        words.join(" ")
    }

    /// How many names can follow `->` (lists count as [`super::limits::WORDS`]).
    pub fn most_names(&self) -> usize {
        let made = self.signature.iter().filter(|p| p.form == Form::Made);
        made.map(|p| if p.kind.is_list() { super::limits::WORDS } else { 1 }).sum()
    }
}

/// The primitive of that name.
pub fn find(name: &str) -> Option<&'static Primitive> {
    ALL.iter().copied().find(|p| p.name == name)
}

pub mod annotate;
pub mod bind;
pub mod cache_read;
pub mod cache_write;
pub mod compute_at;
pub mod compute_inline;
pub mod copy_with;
pub mod decompose_reduction;
pub mod fuse;
pub mod launch;
pub mod pad;
pub mod pipeline;
pub mod promote;
pub mod rasterize;
pub mod reorder;
pub mod reverse_compute_at;
pub mod reverse_compute_inline;
pub mod rfactor;
pub mod set_scope;
pub mod skew;
pub mod specialize;
pub mod split;
pub mod split_k;
pub mod storage_align;
pub mod swizzle;
pub mod tensor_core;
pub mod tensorize;
pub mod transform_block_layout;
pub mod transform_layout;
pub mod unroll;
pub mod vectorize;

/// The vocabulary, in the order of the reference table.
pub static ALL: &[&Primitive] = &[
    &split::PRIMITIVE,
    &fuse::PRIMITIVE,
    &reorder::PRIMITIVE,
    &bind::PRIMITIVE,
    &unroll::PRIMITIVE,
    &vectorize::PRIMITIVE,
    &cache_read::PRIMITIVE,
    &cache_write::PRIMITIVE,
    &compute_at::PRIMITIVE,
    &reverse_compute_at::PRIMITIVE,
    &compute_inline::PRIMITIVE,
    &reverse_compute_inline::PRIMITIVE,
    &decompose_reduction::PRIMITIVE,
    &set_scope::PRIMITIVE,
    &storage_align::PRIMITIVE,
    &rfactor::PRIMITIVE,
    &promote::PRIMITIVE,
    &split_k::PRIMITIVE,
    &transform_layout::PRIMITIVE,
    &transform_block_layout::PRIMITIVE,
    &annotate::PRIMITIVE,
    &launch::PRIMITIVE,
    &tensorize::PRIMITIVE,
    &tensor_core::PRIMITIVE,
    &swizzle::PRIMITIVE,
    &copy_with::PRIMITIVE,
    &pipeline::PRIMITIVE,
    &specialize::PRIMITIVE,
    &rasterize::PRIMITIVE,
    &pad::PRIMITIVE,
    &skew::PRIMITIVE,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{is_name, parse, reference, testing};
    use std::collections::BTreeSet;

    fn source(primitive: &Primitive) -> String {
        let path = format!("{}/src/schedule/primitive/{}.rs", env!("CARGO_MANIFEST_DIR"), primitive.name);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    /// The tests of the schedule language run again, and write down each code that a case was refused with.
    #[test]
    fn every_requirement_has_a_case_that_refuses() {
        if std::env::var_os(testing::RECORD).is_some() {
            return;
        }
        let path = std::env::temp_dir().join(format!("warploom-refused-{}", std::process::id()));
        let tests = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["schedule::", "--test-threads", "2"])
            .env(testing::RECORD, &path)
            .output()
            .unwrap();
        let refused = std::fs::read_to_string(&path).unwrap_or_default();
        let _ = std::fs::remove_file(&path);
        assert!(tests.status.success(), "{}", String::from_utf8_lossy(&tests.stdout));
        let refused: BTreeSet<&str> = refused.lines().collect();
        let all: BTreeSet<String> =
            ALL.iter().flat_map(|p| (1..=p.requires.len()).map(|n| format!("{}.{n}", p.name))).collect();
        let missing: Vec<&String> = all.iter().filter(|code| !refused.contains(code.as_str())).collect();
        assert!(missing.is_empty(), "no case is refused with {missing:?}");
    }

    #[test]
    fn rows_are_named_after_their_files_and_found() {
        for primitive in ALL {
            assert!(is_name(primitive.name) && find(primitive.name).is_some_and(|p| std::ptr::eq(p, *primitive)));
            let text = source(primitive);
            let numbered = |l: &&str| l.starts_with("//! ") && l[4..].starts_with(|c: char| c.is_ascii_digit());
            assert_eq!(text.lines().find(numbered), None, "{}: its row alone lists what it requires", primitive.name);
            assert!(reference().contains(&format!("| `{}", primitive.name)));
        }
    }

    #[test]
    fn usage_speaks_for_the_signature() {
        assert_eq!(find("split").unwrap().usage(), "split LOOP FACTORS.. [-> LOOPS..]");
        assert_eq!(find("bind").unwrap().usage().split(' ').next_back(), Some("[persistent|pingpong]"));
        let usage = "specialize STAGES.. [-> ROLE] warps=WARPS [regs=REGS]";
        assert_eq!(find("specialize").unwrap().usage(), usage);
        for primitive in ALL {
            assert!(parse(primitive.name).is_err(), "{} takes nothing", primitive.name);
        }
    }
}
