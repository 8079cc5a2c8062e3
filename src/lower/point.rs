//! Where an error of lowering points: into the Scheduled program, which is what the user knows.

use crate::error::Error;
use crate::ir::print::{Node, underline};
use crate::ir::{Func, visit};

/// Underlines the loops, blocks and buffers that the message speaks of, by name or by axis, unless it points already.
pub fn point(error: Error, func: &Func) -> Error {
    if !error.labels().is_empty() {
        return error;
    }
    let words: Vec<String> = words(error.message());
    // A role is called one; the words that name roles occur without meaning any.
    let of_role =
        |role: &str| words.windows(2).any(|w| ["role", "specialize"].contains(&w[0].as_str()) && w[1] == role);
    let says = |word: &str| words.iter().any(|w| w == word);
    // The article is no name.
    let named = |name: &str| name != "a" && says(name);
    let mut nodes: Vec<(Node, String)> = Vec::new();
    for l in visit::loops(&func.body) {
        let axis = l.axis().filter(|a| says(a.name()) || (says("threads") && a.name().starts_with("threadIdx")));
        let extent = l.extent.as_int().unwrap_or(0);
        match axis {
            Some(axis) => nodes.push((Node::Loop(l.var), format!("{extent} iterations on {}", axis.name()))),
            None if named(func.var_name(l.var)) => nodes.push((Node::Loop(l.var), "this loop".to_string())),
            None => {}
        }
    }
    for block in visit::blocks(&func.body) {
        let role = block.role.and_then(|id| func.roles.get(id.0 as usize)).filter(|r| of_role(&r.name));
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

/// The words of a sentence: letters, digits, underscores, and points inside.
fn words(sentence: &str) -> Vec<String> {
    let pieces = sentence.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'));
    pieces.map(|w| w.trim_matches('.').to_string()).filter(|w| !w.is_empty()).collect()
}
