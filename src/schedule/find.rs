//! What every primitive needs: looking names up, making new ones, and refusing.
//!
//! A name that is not found is answered with the nearest one that is. A refusal has the code `primitive.N` of the
//! broken requirement, a sentence with both sides of what was compared, and the loops, blocks and buffers concerned
//! underlined in the printed program.

use super::{Args, limits};
pub use crate::error::suggestion;
use crate::error::{Code, Error, Result, counted};
use crate::ir::print::{Node, underline};
use crate::ir::{Block, BlockId, BufferId, For, Func, Stmt, Var, visit};

/// The loop of that name.
///
/// # Errors
/// `step.loop` with the nearest name.
pub fn loop_<'a>(func: &'a Func, name: &str) -> Result<&'a For> {
    let known = visit::loops(&func.body);
    let walked =
        known.iter().find(|l| l.raster.is_some() && l.defines().iter().any(|(v, _)| func.var_name(*v) == name));
    func.find_loop(name).ok_or_else(|| match walked {
        Some(l) => Error::input(Code::StepLoop, format!("`{name}` is iterated by loop `{}`", func.var_name(l.var)))
            .naming(name),
        None => unknown(Code::StepLoop, "loop", name, known.iter().map(|l| func.var_name(l.var))),
    })
}

/// The loops of these names.
///
/// # Errors
/// As [`loop_`]; `step.twice` where one is named twice.
pub fn loops<'a>(func: &'a Func, names: &[String]) -> Result<Vec<&'a For>> {
    for (n, name) in names.iter().enumerate() {
        if names[..n].contains(name) {
            let error = Error::input(Code::StepTwice, format!("`{name}` is named twice")).naming(name);
            return Err(error.help("name each loop once"));
        }
    }
    names.iter().map(|n| loop_(func, n)).collect()
}

/// The block of that name.
///
/// # Errors
/// `step.block` with the nearest name.
pub fn block<'a>(func: &'a Func, name: &str) -> Result<&'a Block> {
    let known = visit::blocks(&func.body);
    func.find_block(name)
        .ok_or_else(|| unknown(Code::StepBlock, "block", name, known.iter().map(|b| func.block_name(b.name))))
}

/// The buffer of that name.
///
/// # Errors
/// `step.buffer` with the nearest name.
pub fn buffer(func: &Func, name: &str) -> Result<BufferId> {
    func.find_buffer(name)
        .ok_or_else(|| unknown(Code::StepBuffer, "buffer", name, func.buffers.iter().map(|b| b.name.as_str())))
}

/// The loops around a block that a step has found, outermost first.
///
/// # Errors
/// A fault of the step: the block is not in the body.
pub fn around(body: &[Stmt], block: BlockId) -> Result<Vec<&For>> {
    visit::loops_around(body, block).ok_or_else(detached)
}

/// The loops around a loop that a step has found, outermost first, without itself.
///
/// # Errors
/// A fault of the step: the loop is not in the body.
pub fn around_loop(body: &[Stmt], var: Var) -> Result<Vec<&For>> {
    visit::loops_around_loop(body, var).ok_or_else(detached)
}

fn detached() -> Error {
    Error::bug(Code::StepDetached, "a block or loop that was found is not in the program's body")
}

fn unknown<'a>(code: Code, what: &str, name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Error {
    let guess = suggestion(name, known.clone());
    let all: Vec<&str> = known.take(32).collect();
    let error = Error::input(code, format!("there is no {what} `{name}`{guess}")).naming(name);
    if all.is_empty() { error } else { error.help(format!("the {what}s are {}", all.join(", "))) }
}

/// A refusal of requirement `number` of a primitive, with what it concerns underlined.
pub fn refuse(
    primitive: &'static str,
    number: usize,
    message: impl Into<String>,
    func: &Func,
    nodes: &[(Node, &str)],
) -> Error {
    underline(Error::input(Code::Requirement { primitive, number }, message), func, nodes)
}

/// Names of new loops: those that the step states, else the defaults made unused. `freed` are loops that the step
/// replaces, whose names can be used again.
///
/// # Errors
/// `step.names` for a wrong count, a name in use, or one stated twice.
pub fn new_loops(func: &Func, args: &Args, defaults: &[String], freed: &[Var]) -> Result<Vec<String>> {
    new_loops_from(func, &args.names, defaults, freed)
}

/// [`new_loops`] where only a part of the names after `->` are loops.
///
/// # Errors
/// As [`new_loops`].
pub fn new_loops_from(func: &Func, stated: &[String], defaults: &[String], freed: &[Var]) -> Result<Vec<String>> {
    let all = visit::loops(&func.body);
    let kept = all.iter().flat_map(|l| l.defines().into_iter().map(|d| d.0).chain([l.var]));
    let taken: Vec<&str> = kept.filter(|v| !freed.contains(v)).map(|v| func.var_name(v)).collect();
    new_names("loop", stated, defaults, &taken)
}

/// The name of a new block: the first stated name, else the default made unused.
///
/// # Errors
/// As [`new_loops`].
pub fn new_block(func: &Func, stated: Option<&String>, default: &str) -> Result<String> {
    let all = visit::blocks(&func.body);
    let taken: Vec<&str> = all.iter().map(|b| func.block_name(b.name)).collect();
    new_name("block", stated, default, &taken)
}

/// The name of a new stage, unused by blocks and by buffers.
///
/// # Errors
/// As [`new_loops`].
pub fn new_stage(func: &Func, stated: Option<&String>, default: &str) -> Result<String> {
    new_name("stage", stated, default, &stages(func))
}

/// The names of several new stages.
///
/// # Errors
/// As [`new_loops`].
pub fn new_stages(func: &Func, stated: &[String], defaults: &[String]) -> Result<Vec<String>> {
    new_names("stage", stated, defaults, &stages(func))
}

/// Names that no new stage can have.
fn stages(func: &Func) -> Vec<&str> {
    let all = visit::blocks(&func.body);
    let blocks = all.iter().map(|b| func.block_name(b.name));
    blocks.chain(func.buffers.iter().map(|b| b.name.as_str())).collect()
}

/// The name of a new role.
///
/// # Errors
/// As [`new_loops`].
pub fn new_role(func: &Func, stated: Option<&String>, default: &str) -> Result<String> {
    let taken: Vec<&str> = func.roles.iter().map(|r| r.name.as_str()).collect();
    new_name("role", stated, default, &taken)
}

fn new_name(what: &str, stated: Option<&String>, default: &str, taken: &[&str]) -> Result<String> {
    let stated: Vec<String> = stated.into_iter().cloned().collect();
    let mut names = new_names(what, &stated, &[default.to_string()], taken)?;
    names.pop().ok_or_else(|| Error::bug(Code::StepNames, "a name was not made"))
}

fn new_names(what: &str, stated: &[String], defaults: &[String], taken: &[&str]) -> Result<Vec<String>> {
    if stated.is_empty() {
        let mut out: Vec<String> = Vec::new();
        for base in defaults {
            out.push(unused(base, |n| taken.contains(&n) || out.iter().any(|o| o == n)));
        }
        return Ok(out);
    }
    if stated.len() != defaults.len() {
        let is = |n: usize, of: &str| format!("{} {}", counted(n, of), if n == 1 { "is" } else { "are" });
        let (made, given) = (is(defaults.len(), what), is(stated.len(), "name"));
        let message = format!("{made} made, {given} given after `->`");
        let defaults = defaults.join(" ");
        return Err(Error::input(Code::StepNames, message)
            .naming("->")
            .help(format!("`-> {defaults}`, or no names for these")));
    }
    for (n, name) in stated.iter().enumerate() {
        if stated[..n].contains(name) {
            let error = Error::input(Code::StepNames, format!("the name `{name}` is given to two loops")).naming(name);
            return Err(error.help("give each new loop a name of its own"));
        }
        if taken.contains(&name.as_str()) {
            let free = unused(name, |n| taken.contains(&n) || stated.iter().any(|s| s == n));
            let error = Error::input(Code::StepNames, format!("the name `{name}` is in use")).naming(name);
            let made = format!("`->` names the {what}s that the step makes, by default {}", defaults.join(" "));
            let kept = if what == "loop" { "; a loop that moves with its block keeps its name" } else { "" };
            return Err(error.help(format!("`{free}` is free")).help(format!("{made}{kept}")));
        }
        if !super::is_name(name) {
            return Err(Error::input(Code::StepNames, format!("`{name}` is not a name")).naming(name));
        }
    }
    Ok(stated.to_vec())
}

fn unused(base: &str, taken: impl Fn(&str) -> bool) -> String {
    let mut name: String = base.chars().take(limits::NAME).collect();
    for n in 1u64.. {
        if !taken(&name) {
            break;
        }
        let suffix = format!("_{n}");
        name = base.chars().take(limits::NAME - suffix.len()).chain(suffix.chars()).collect();
    }
    name
}

/// The statements where a loop or block stands among its siblings: the body that holds it and its position there.
pub fn siblings<'a>(body: &'a [Stmt], is: &dyn Fn(&Stmt) -> bool) -> Option<(&'a [Stmt], usize)> {
    if let Some(at) = body.iter().position(is) {
        return Some((body, at));
    }
    body.iter().flat_map(visit::children).find_map(|child| siblings(child, is))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_names_are_made_unused() {
        let names = new_names("loop", &[], &["i_0".into(), "i_0".into()], &["i_0"]).unwrap();
        assert_eq!(names, ["i_0_1", "i_0_2"]);
        let stated = ["a".to_string(), "a".to_string()];
        assert_eq!(new_names("loop", &stated, &stated, &[]).unwrap_err().code(), Code::StepNames);
    }
}
