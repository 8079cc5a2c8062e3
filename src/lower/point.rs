//! Where an error of lowering points: into the Scheduled program, which is what the user knows.

use crate::error::{Error, Subject};
use crate::ir::print::{Node, underline};
use crate::ir::{Axis, Cond, For, Func, Index, Var, visit};

/// Underlines the subjects of an error in the program, unless the error points already.
pub fn point(error: Error, func: &Func) -> Error {
    if !error.labels().is_empty() {
        return error;
    }
    let subjects = error.subjects();
    let has = |wanted: &dyn Fn(&Subject) -> bool| subjects.iter().any(wanted);
    // A buffer and the block that fills it have the same name.
    let named = |name: &str| has(&|s| matches!(s, Subject::Block(n) | Subject::Buffer(n) if n == name));
    let mut nodes: Vec<(Node, String)> = Vec::new();
    for l in visit::loops(&func.body) {
        let name = func.var_name(l.var);
        let axis = l.axis().filter(|a| has(&|s| is_on_axis(s, *a)));
        if let Some(axis) = axis {
            nodes.push((Node::Loop(l.var), format!("{} on {}", iterations(l, func), axis.name())));
        } else if has(&|s| matches!(s, Subject::Loop(n) if n == name)) {
            nodes.push((Node::Loop(l.var), "this loop".to_string()));
        }
    }
    for block in visit::blocks(&func.body) {
        let role = block.role.and_then(|id| func.roles.get(id.0 as usize));
        let role = role.filter(|r| has(&|s| matches!(s, Subject::Role(n) if *n == r.name)));
        if named(func.block_name(block.name)) {
            nodes.push((Node::Block(block.name), "this block".to_string()));
        } else if let Some(role) = role {
            nodes.push((Node::Block(block.name), format!("a staged buffer of role {}", role.name)));
        }
    }
    for buffer in visit::reads(&func.body).into_iter().chain(visit::writes(&func.body)) {
        let node = Node::Buffer(buffer);
        if named(&func.buffer(buffer).name) && nodes.iter().all(|(n, _)| *n != node) {
            nodes.push((node, "this buffer".to_string()));
        }
    }
    let nodes: Vec<(Node, &str)> = nodes.iter().map(|(n, m)| (*n, m.as_str())).collect();
    underline(error, func, &nodes)
}

fn is_on_axis(subject: &Subject, axis: Axis) -> bool {
    match subject {
        Subject::Axis(name) => *name == axis.name(),
        Subject::Threads => !axis.is_block_level(),
        _ => false,
    }
}

/// `32 iterations`; a symbolic extent as it is printed.
fn iterations(l: &For, func: &Func) -> String {
    match l.extent.as_int() {
        Some(n) => crate::error::counted(n, "iteration"),
        None => format!("{} iterations", crate::ir::print::index(func, &l.extent)),
    }
}

/// A variable as subjects: the loop of its name, or the loops of the axis that it counts. Only a variable of a hardware axis has a point
/// in its name; `cluster` may also be a loop of the program.
fn variable(func: &Func, var: Var) -> Vec<Subject> {
    let name = func.var_name(var);
    let axis = Axis::parse(name).map(|axis| Subject::Axis(axis.name()));
    let own = (!name.contains('.')).then(|| Subject::Loop(name.to_string()));
    axis.into_iter().chain(own).collect()
}

/// The variables of an index, as subjects.
pub fn of_index(func: &Func, index: &Index) -> Vec<Subject> {
    let mut out = Vec::new();
    index.for_each_var(&mut |v| out.extend(variable(func, v)));
    out
}

/// The variables of a condition, as subjects.
pub fn of_cond(func: &Func, cond: &Cond) -> Vec<Subject> {
    let mut out = Vec::new();
    cond.for_each_index(&mut |i| out.extend(of_index(func, i)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schedule;
    use crate::error::Code;

    /// What is underlined of an error about subjects, with what is said there.
    fn places(text: &str, message: &str, subjects: &[Subject]) -> Vec<String> {
        let schedule: Schedule = text.parse().unwrap();
        let error = Error::input(Code::LowerRole, message);
        let error = subjects.iter().fold(error, |e, s| e.about(s.clone()));
        let error = point(error, &schedule.scheduled().unwrap());
        let printed = error.source_text().unwrap().to_string();
        error.labels().iter().map(|l| format!("{}: {}", &printed[l.span.clone()], l.message)).collect()
    }

    const TEXT: &str = "program p
        input a f32[64, 32]
        output warp[role 64, j 32] f32 = a[role, j]
        target sm_90
        cache_read warp a shared -> s; compute_at s role; specialize s -> load warps=1
        bind role blockIdx.x; bind j threadIdx.x";

    #[test]
    fn subjects_are_underlined_and_words_of_the_message_are_not() {
        let message = "a warp of role load, all threads, loop j, threadIdx.x";
        assert_eq!(places(TEXT, message, &[]), [""; 0]);
        let one = |subject| places(TEXT, message, &[subject]);
        assert_eq!(one(Subject::Buffer("a".into())), ["a: this buffer"]);
        assert_eq!(one(Subject::Loop("role".into())), ["role: this loop"]);
        assert_eq!(one(Subject::Loop("warp".into())), [""; 0]);
        assert_eq!(one(Subject::Block("warp".into())), ["warp: this block", "warp: this buffer"]);
        assert_eq!(one(Subject::Axis("blockIdx.x")), ["role: 64 iterations on blockIdx.x"]);
        assert_eq!(one(Subject::Threads), ["j: 32 iterations on threadIdx.x"]);
        assert_eq!(one(Subject::Role("load".into())), ["s: a staged buffer of role load"]);
    }

    #[test]
    fn axis_labels_win_over_loop_names_and_block_labels_over_roles() {
        let all =
            [Subject::Loop("j".into()), Subject::Threads, Subject::Role("load".into()), Subject::Buffer("s".into())];
        let found = places(TEXT, "wrong", &all);
        assert_eq!(found, ["j: 32 iterations on threadIdx.x", "s: this block", "s: this buffer"]);
    }
}
