//! Statements in the words of the program: iterators by the names that the program gives the dimensions of its buffers.

use crate::ir::{BinOp, Block, BufferId, Expr, Func, Index, IterKind, Stmt, Store, Var, print, visit};
use std::collections::HashMap;

/// What the dimensions of buffers are called.
pub struct Words<'a> {
    func: &'a Func,
    /// By buffer: the name of each dimension, where one is known.
    dims: HashMap<String, Vec<Option<String>>>,
}

/// How often blocks are looked at: copies of copies are not nested deeper.
const ROUNDS: usize = 4;

/// An iterator's name without the letter in front that tells it from a loop.
fn plain(name: &str) -> Option<&str> {
    name.strip_prefix('v').filter(|rest| rest.starts_with(|c: char| c.is_alphabetic()))
}

impl<'a> Words<'a> {
    /// Of a program after its steps, with the names that the program in front of them gives.
    pub fn new(program: &Func, func: &'a Func) -> Words<'a> {
        let mut words = Words { func, dims: HashMap::new() };
        for b in visit::blocks(&program.body) {
            words.learn(program, b);
        }
        // A copy has the names of its source, which may be a copy.
        for _ in 0..ROUNDS {
            for b in visit::blocks(&func.body) {
                words.learn(func, b);
            }
        }
        words
    }

    fn learn(&mut self, func: &Func, b: &Block) {
        let names = self.names(func, b);
        let mut seen: Vec<(BufferId, Vec<Index>)> = Vec::new();
        for store in stores(&b.body) {
            seen.push((store.buffer, store.indices.clone()));
            visit::walk_expr(&store.value, &mut |e| {
                if let Expr::Load { buffer, indices, .. } = e {
                    seen.push((*buffer, indices.clone()));
                }
            });
        }
        for (buffer, indices) in seen {
            let known = self.dims.entry(func.buffer(buffer).name.clone()).or_default();
            known.resize(indices.len().max(known.len()), None);
            for (known, index) in known.iter_mut().zip(&indices) {
                let name = index.as_var().and_then(|v| names.get(&v)).filter(|n| !n.starts_with('v'));
                if known.is_none() {
                    *known = name.cloned();
                }
            }
        }
    }

    /// What the iterators of a block are called.
    fn names(&self, func: &Func, b: &Block) -> HashMap<Var, String> {
        let mut names: HashMap<Var, String> = HashMap::new();
        for it in &b.iters {
            let own = func.var_name(it.var);
            let name = plain(own).map(str::to_string).or_else(|| self.dimension(func, b, it.var));
            names.insert(it.var, name.unwrap_or_else(|| own.to_string()));
        }
        let taken: Vec<String> = names.values().cloned().collect();
        for (var, name) in &mut names {
            if taken.iter().filter(|n| *n == name).count() > 1 {
                *name = func.var_name(*var).to_string();
            }
        }
        names
    }

    /// The name of the dimension that an iterator by itself is the index of.
    fn dimension(&self, func: &Func, b: &Block, var: Var) -> Option<String> {
        let of = |buffer: BufferId, indices: &[Index]| {
            let at = indices.iter().position(|i| i.as_var() == Some(var))?;
            self.dims.get(&func.buffer(buffer).name)?.get(at)?.clone()
        };
        for store in stores(&b.body) {
            let mut found = of(store.buffer, &store.indices);
            visit::walk_expr(&store.value, &mut |e| {
                if let Expr::Load { buffer, indices, .. } = e
                    && found.is_none()
                {
                    found = of(*buffer, indices);
                }
            });
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The lines of a block.
    pub fn block(&self, b: &Block) -> Vec<String> {
        let names = self.names(self.func, b);
        let mut out = Vec::new();
        if !b.predicate.is_true() {
            out.push(format!("where {}", print::cond(self.func, &b.predicate)));
        }
        for store in b.init.iter().flat_map(|init| stores(init)) {
            out.push(format!("init {}", self.store(store, &names, b)));
        }
        out.extend(stores(&b.body).into_iter().map(|s| self.store(s, &names, b)));
        out
    }

    fn store(&self, s: &Store, names: &HashMap<Var, String>, b: &Block) -> String {
        let place = Expr::Load { buffer: s.buffer, indices: s.indices.clone(), lanes: s.lanes };
        let dtype = self.func.buffer(s.buffer).dtype;
        let text = |e: &Expr| print::expr_with(self.func, e, Some(dtype), names);
        let reduces = b.iters.iter().any(|i| i.kind == IterKind::Reduce);
        match &s.value {
            Expr::Bin(BinOp::Add, old, term) if **old == place && reduces => {
                format!("{} += {}", text(&place), text(term))
            }
            value => format!("{} = {}", text(&place), text(value)),
        }
    }
}

fn stores(body: &[Stmt]) -> Vec<&Store> {
    let mut out = Vec::new();
    visit::walk(body, &mut |s| {
        if let Stmt::Store(store) = s {
            out.push(store);
        }
    });
    out
}
