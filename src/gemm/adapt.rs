//! A recipe's steps in the names of a program.
//!
//! Recipes name loops, blocks and buffers of [`crate::te::gemm`]'s program. Every step is applied to that program, which states the names
//! that the step makes, and then, with its names replaced, to the program that is to be scheduled. Names that are taken there get a
//! number. A step on what is made of block `out` is applied for every output. Padded inputs of an epilogue are inlined.

use super::program::{Form, Product};
use crate::error::{Code, Error, Result};
use crate::ir::{Func, visit};
use crate::loom::Schedule;
use crate::schedule::{self, Args, Form as Place, ParamKind, Step, Steps, Value};
use crate::target::Target;
use std::collections::{BTreeMap, BTreeSet};

/// The kind of object that a name in a step refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Loop,
    Block,
    Buffer,
    Role,
}

/// The kinds of objects that a parameter's names refer to. A stage is both a block and a buffer.
fn kinds(kind: ParamKind) -> &'static [Kind] {
    match kind {
        ParamKind::Loop | ParamKind::Loops | ParamKind::Multiples => &[Kind::Loop],
        ParamKind::Block | ParamKind::Blocks => &[Kind::Block],
        ParamKind::Buffer | ParamKind::Buffers => &[Kind::Buffer],
        ParamKind::Stage => &[Kind::Block, Kind::Buffer],
        ParamKind::Role => &[Kind::Role],
        _ => &[],
    }
}

/// A name and the kind of its object.
type Name = (Kind, String);
/// Names of [`crate::te::gemm`]'s program and what the program that is to be scheduled has instead.
type Names = BTreeMap<Name, String>;

/// The schedule of a product by the steps of a recipe.
///
/// # Errors
/// `gemm.steps` where the steps are not well formed; what a step refuses of a program that is not [`crate::te::gemm`]'s.
pub(super) fn schedule(product: &Product, target: &Target, steps: Steps) -> Result<Schedule> {
    let steps = well_formed(steps)?;
    let steps = match &product.form {
        None => steps,
        Some(form) => [form.before.clone(), Adapter::new(product.canonical()?, form).all(&steps)?].concat(),
    };
    Ok(Schedule::new(product.program.clone(), *target, steps))
}

fn well_formed(steps: Steps) -> Result<Vec<Step>> {
    let message = |e| Error::bug(Code::GemmSteps, format!("the recommended steps are not well formed: {e}"));
    steps.finish().map_err(message)
}

/// The steps of a recipe that stores accumulators as they are, for a GEMM with an epilogue: block `mma` sums into `acc`, and the copy that
/// stores `acc` computes block `out` instead.
pub(super) fn epilogue_in_copies(steps: Steps) -> Steps {
    let rename = |kind: Kind, name: &str| match (kind, name) {
        (Kind::Block, "C") => "mma".to_string(),
        (Kind::Buffer, "C") => "acc".to_string(),
        (_, name) => name.strip_prefix("C_pad").map_or_else(|| name.to_string(), |end| format!("acc_pad{end}")),
    };
    let mut out = Steps::new();
    // Steps that are not well formed are told of as they are.
    let Ok(all) = steps.clone().finish() else { return steps };
    for step in all {
        if let Ok(step) = renamed(&step, &rename, step.args().names.clone()) {
            out.push(step.primitive(), step.args().clone());
        }
    }
    out.reverse_compute_inline("out");
    out
}

struct Adapter<'a> {
    /// [`crate::te::gemm`]'s program after the steps so far.
    canonical: Func,
    /// The program that is to be scheduled, after the steps so far.
    func: Func,
    names: Names,
    /// Names that belong to one output each, by output.
    of_outputs: Vec<Names>,
    /// Names of the canonical program that refer to one object for each output.
    family: BTreeSet<Name>,
    form: &'a Form,
    done: Vec<Step>,
}

impl<'a> Adapter<'a> {
    fn new(canonical: Func, form: &'a Form) -> Adapter<'a> {
        let loops = |spatial: &[String], made: &str, reduce: Option<&String>| {
            let names = ["b", "i", "j"].into_iter().skip(3 - spatial.len().min(3)).map(|l| format!("{made}{l}"));
            let pairs = names.zip(spatial).chain(reduce.map(|k| ("k".to_string(), k)));
            pairs.map(|(from, to)| ((Kind::Loop, from), to.clone())).collect::<Names>()
        };
        let (k, spatial) = match form.sums.loops.split_last() {
            Some((k, spatial)) => (Some(k), spatial),
            None => (None, &[][..]),
        };
        let mut names = loops(spatial, "", k);
        let (block, buffer) = if form.outputs.is_empty() { ("C", "C") } else { ("mma", "acc") };
        names.insert((Kind::Block, block.into()), form.sums.block.clone());
        names.insert((Kind::Buffer, buffer.into()), form.sums.buffer.clone());
        let scales = ["a_scales", "b_scales"].into_iter().zip(form.scales.iter().flatten());
        for (operand, name) in ["A", "B"].into_iter().zip(&form.operands).chain(scales) {
            names.insert((Kind::Buffer, operand.into()), name.clone());
        }
        let of_output = |place: &super::program::Place| {
            let mut own = loops(&place.loops, "out_", None);
            own.insert((Kind::Block, "out".into()), place.block.clone());
            own.insert((Kind::Buffer, "C".into()), place.buffer.clone());
            own
        };
        let of_outputs: Vec<Names> = form.outputs.iter().map(of_output).collect();
        let family = of_outputs.first().map(|own| own.keys().cloned().collect()).unwrap_or_default();
        Adapter { canonical, func: form.func.clone(), names, of_outputs, family, form, done: Vec::new() }
    }

    fn all(mut self, steps: &[Step]) -> Result<Vec<Step>> {
        for step in steps {
            let (canonical, stated) = schedule::complete(&self.canonical, step)?;
            let outputs: Vec<Option<usize>> = match references(&stated).iter().any(|name| self.family.contains(name)) {
                true => (0..self.form.outputs.len()).map(Some).collect(),
                false => vec![None],
            };
            for output in outputs {
                match stated.primitive().name {
                    "pad" => self.pad(&stated, &canonical, output)?,
                    _ => self.step(&stated, step.args().names.len(), output)?,
                }
            }
            self.canonical = canonical;
        }
        Ok(self.done)
    }

    /// Applies a step to the program that is to be scheduled.
    fn apply(&mut self, step: &Step) -> Result<()> {
        self.func = schedule::apply(&self.func, step)?;
        self.done.push(step.clone());
        Ok(())
    }

    fn name(&self, kind: Kind, name: &str, output: Option<usize>) -> String {
        let key = (kind, name.to_string());
        let own = output.and_then(|o| self.of_outputs.get(o)).and_then(|names| names.get(&key));
        own.or_else(|| self.names.get(&key)).cloned().unwrap_or_else(|| name.to_string())
    }

    /// Notes what a name of the canonical program is called in the program that is to be scheduled.
    fn note(&mut self, kind: Kind, name: &str, called: String, output: Option<usize>) {
        let key = (kind, name.to_string());
        match output.and_then(|o| self.of_outputs.get_mut(o)) {
            Some(own) => {
                self.family.insert(key.clone());
                own.insert(key, called);
            }
            None => _ = self.names.insert(key, called),
        }
    }

    /// Applies a step in the program's names, of which the recipe states so many that the step makes.
    fn step(&mut self, stated: &Step, names: usize, output: Option<usize>) -> Result<()> {
        let all = made_by(stated);
        let mut made = Vec::new();
        for (kinds, name) in all.iter().take(names) {
            made.push(self.unused(kinds, name, &made));
        }
        let step = renamed(stated, &|kind, name| self.name(kind, name, output), made)?;
        let (func, complete) = schedule::complete(&self.func, &step)?;
        for ((kinds, name), called) in all.iter().zip(&complete.args().names) {
            kinds.iter().for_each(|kind| self.note(*kind, name, called.clone(), output));
        }
        self.func = func;
        self.done.push(step);
        Ok(())
    }

    /// The name itself, or with the first number that makes it a new one.
    fn unused(&self, kinds: &[Kind], name: &str, made: &[String]) -> String {
        let taken = |name: &str| {
            let taken = |kind: &Kind| match kind {
                Kind::Loop => self.func.unused_loop_name(name) != name,
                Kind::Block => self.func.find_block(name).is_some(),
                Kind::Buffer => self.func.find_buffer(name).is_some(),
                Kind::Role => self.func.roles.iter().any(|role| role.name == name),
            };
            made.iter().any(|m| m == name) || kinds.iter().any(taken)
        };
        let numbered = (1..).map(|n| format!("{name}_{n}"));
        std::iter::once(name.to_string()).chain(numbered).find(|n| !taken(n)).unwrap_or_default()
    }

    /// Padding makes a stage for each buffer that the block reads, of which an epilogue has more than the recipe knows.
    fn pad(&mut self, stated: &Step, canonical: &Func, output: Option<usize>) -> Result<()> {
        let wanted = stages(&self.canonical, canonical);
        let before = self.func.clone();
        self.apply(&renamed(stated, &|kind, name| self.name(kind, name, output), Vec::new())?)?;
        for stage in stages(&before, &self.func) {
            let known = wanted.iter().find(|w| self.name(Kind::Buffer, &w.source, output) == stage.source);
            let Some(known) = known else {
                let mut inline = Steps::new();
                inline.compute_inline(&stage.name);
                inline.finish()?.iter().try_for_each(|step| self.apply(step))?;
                continue;
            };
            for kind in [Kind::Block, Kind::Buffer] {
                self.note(kind, &known.name, stage.name.clone(), output);
            }
            for (own, called) in known.loops.iter().zip(&stage.loops) {
                self.note(Kind::Loop, own, called.clone(), output);
            }
        }
        Ok(())
    }
}

/// A stage that padding made: the buffer of its name, and the one that its block copies from or to.
struct Stage {
    name: String,
    source: String,
    loops: Vec<String>,
}

/// The stages that a step of `pad` made.
fn stages(before: &Func, after: &Func) -> Vec<Stage> {
    let new = |name: &str| before.find_block(name).is_none();
    let made = visit::blocks(&after.body).into_iter().filter(|b| new(after.block_name(b.name)));
    let stage = |block: &crate::ir::Block| {
        let name = after.block_name(block.name).to_string();
        let touched = [visit::reads(&block.body), visit::writes(&block.body)].concat();
        let source = touched.into_iter().map(|id| &after.buffer(id).name).find(|n| **n != name)?.clone();
        let loops = visit::loops_around(&after.body, block.name)?;
        let loops = loops.into_iter().map(|l| after.var_name(l.var).to_string()).collect();
        Some(Stage { name, source, loops })
    };
    made.filter_map(stage).collect()
}

/// The names that a step refers to.
fn references(step: &Step) -> Vec<Name> {
    let mut out = Vec::new();
    for parameter in step.primitive().signature {
        let Some(value) = step.args().get(parameter.name) else { continue };
        let words: Vec<&String> = match value {
            Value::Word(word) => vec![word],
            Value::Words(words) => words.iter().collect(),
            Value::Multiples(multiples) => multiples.iter().map(|(name, _)| name).collect(),
            _ => Vec::new(),
        };
        out.extend(words.into_iter().flat_map(|w| kinds(parameter.kind).iter().map(move |kind| (*kind, w.clone()))));
    }
    out
}

/// The names that a step makes, each with the kinds of its objects.
fn made_by(step: &Step) -> Vec<(&'static [Kind], String)> {
    let mut names = step.args().names.iter();
    let mut out = Vec::new();
    for parameter in step.primitive().signature.iter().filter(|p| p.form == Place::Made) {
        let count = if parameter.kind.is_list() { usize::MAX } else { 1 };
        out.extend(names.by_ref().take(count).map(|name| (kinds(parameter.kind), name.clone())));
    }
    out
}

/// A step with other names: those that it refers to, and those that it makes.
fn renamed(step: &Step, name: &dyn Fn(Kind, &str) -> String, made: Vec<String>) -> Result<Step> {
    let mut args = Args::new();
    for parameter in step.primitive().signature {
        let Some(value) = step.args().get(parameter.name) else { continue };
        let one = |word: &String| kinds(parameter.kind).first().map_or_else(|| word.clone(), |kind| name(*kind, word));
        let value = match value {
            Value::Word(word) => Value::Word(one(word)),
            Value::Words(words) => Value::Words(words.iter().map(one).collect()),
            Value::Multiples(all) => Value::Multiples(all.iter().map(|(l, n)| (one(l), *n)).collect()),
            other => other.clone(),
        };
        args = args.with(parameter.name, value);
    }
    args.names = made;
    let out = Step::new(step.primitive(), args)?;
    Ok(match step.remark() {
        Some(remark) => out.with_remark(remark),
        None => out,
    })
}
