//! Reducers of tuples: several values that a reduction combines together, as the value and the index of argmax.
//!
//! A reducer says what two tuples combine to, component by component, and the tuple that changes nothing. A block reduces with it
//! if its body has one store for each component, which combines the block's own elements with terms. A statement of a block sees
//! what the statements before it have stored, so the store of a component that others read comes after theirs
//! ([`TupleReducer::order`]): each then reads the old values, as if all were stored at once. Where two components need each
//! other's old value there is no such order, and the reducer is refused.
//!
//! That combinations may be regrouped and exchanged is known of argmax and argmin: they take the largest (smallest) of pairs that
//! are in a total order. Of a reducer that a program states it is tried (`laws`), and shown as tested.

mod laws;

use super::{BinOp, Buffer, BufferId, CmpOp, Expr, Func, Index, Literal, Scope, Store, typing, visit};
use crate::dtype::DType;
use crate::error::{Code, Error, Result};

/// The most components of a reducer.
pub const MAX_COMPONENTS: usize = 8;

/// What combines two tuples.
#[derive(Debug, Clone, PartialEq)]
pub struct TupleReducer {
    name: String,
    /// Its names: the numbers of the left tuple, then those of the right one.
    numbers: Func,
    combine: Vec<Expr>,
    neutral: Vec<Expr>,
    order: Vec<usize>,
}

impl TupleReducer {
    /// The names that combinations are written with: numbers without dimensions, those of the left tuple first.
    pub fn numbers(left: &[(&str, DType)], right: &[&str]) -> Func {
        let mut func = Func::default();
        let types = left.iter().map(|(_, dtype)| *dtype);
        for (name, dtype) in left.iter().copied().chain(right.iter().copied().zip(types)) {
            let id = func.add_buffer(Buffer::new(name, dtype, Vec::new(), Scope::Global));
            func.params.push(id);
        }
        func
    }

    /// A reducer that a program states: what each component becomes, over `numbers`, and the neutral tuple.
    ///
    /// # Errors
    /// `te.reducer` where the parts do not fit each other, where components need each other's old value, and where a trial shows that
    /// tuples may not be regrouped or exchanged or that the neutral tuple changes something.
    pub fn new(name: &str, numbers: Func, combine: Vec<Expr>, neutral: Vec<Expr>) -> Result<TupleReducer> {
        let wrong = |why: String| Error::input(Code::TeReducer, format!("reducer {name}: {why}"));
        let count = numbers.buffers.len() / 2;
        if !(1..=MAX_COMPONENTS).contains(&count) || 2 * count != numbers.buffers.len() {
            return Err(wrong(format!(
                "it has from 1 to {MAX_COMPONENTS} components, and as many names for the right tuple"
            )));
        }
        if combine.len() != count || neutral.len() != count {
            let (values, given) = (combine.len(), neutral.len());
            return Err(wrong(format!("{count} components, but {values} values and a neutral tuple of {given}")));
        }
        for (n, value) in combine.iter().chain(&neutral).enumerate() {
            let own = &numbers.buffers[n % count];
            let found = typing::dtype_of(&numbers, value)?;
            if found != own.dtype {
                return Err(wrong(format!("{} is {}, but its value is {found}", own.name, own.dtype)));
            }
        }
        if let Some(n) = neutral.iter().position(|e| !matches!(e, Expr::Const(..))) {
            return Err(wrong(format!("the neutral value of {} is no constant", numbers.buffers[n].name)));
        }
        let order = order(&combine).map_err(|(a, b)| {
            let (a, b) = (&numbers.buffers[a].name, &numbers.buffers[b].name);
            let error = wrong(format!("{a} and {b} need each other's old value"));
            error.help("components are stored one after the other: let one of them be combined without the other")
        })?;
        let made = TupleReducer { name: name.to_string(), numbers, combine, neutral, order };
        laws::check(&made)
            .map_err(|law| wrong(law).help("a reduction may take its terms in any order and grouping"))?;
        Ok(made)
    }

    /// The names of the reducers that every program has.
    pub const PREDEFINED: [&str; 2] = ["argmax", "argmin"];

    /// argmax or argmin of (value, index): the largest or smallest value, and of equal ones that of the smallest index. A value that is
    /// not a number is left out, as `max` and `min` do.
    pub fn predefined(name: &str, dtypes: &[DType]) -> Option<TupleReducer> {
        let [value, index] = *dtypes else { return None };
        let op = match name {
            "argmax" => BinOp::Max,
            "argmin" => BinOp::Min,
            _ => return None,
        };
        let (_, last) = typing::integer_range(index)?;
        let ordered =
            value != DType::Bool && typing::binary_exists(op, value) && typing::binary_exists(BinOp::Min, index);
        if !ordered || index == DType::Bool {
            return None;
        }
        let numbers = TupleReducer::numbers(&[("v", value), ("i", index)], &["w", "j"]);
        let [v, i, w, j] = [0, 1, 2, 3].map(number);
        let best = Expr::bin(op, v.clone(), w.clone());
        let same = |a: &Expr, b: &Expr| Expr::Cmp(CmpOp::Eq, Box::new(a.clone()), Box::new(b.clone()));
        let tie = Expr::bin(BinOp::Min, i.clone(), j.clone());
        let place = Expr::select(same(&v, &w), tie, Expr::select(same(&best, &w), j, i));
        let neutral = vec![extreme(op, value), Expr::Const(index, Literal::Int(last))];
        Some(TupleReducer { name: name.to_string(), numbers, combine: vec![best, place], neutral, order: vec![1, 0] })
    }

    /// Its name in programs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether every program has it.
    pub fn is_predefined(&self) -> bool {
        TupleReducer::PREDEFINED.contains(&self.name.as_str())
    }

    /// How many values it combines at once.
    pub fn components(&self) -> usize {
        self.combine.len()
    }

    /// The types of its components.
    pub fn dtypes(&self) -> Vec<DType> {
        self.numbers.buffers[..self.components()].iter().map(|b| b.dtype).collect()
    }

    /// The components in the order in which they are stored: one that others read comes after them.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// The neutral tuple.
    pub fn neutral(&self) -> &[Expr] {
        &self.neutral
    }

    /// The names and values that it was made of: the numbers of both tuples and each component's combination.
    pub fn parts(&self) -> (&Func, &[Expr]) {
        (&self.numbers, &self.combine)
    }

    /// How often the laws of a stated reducer were tried.
    pub fn trials(&self) -> usize {
        laws::TRIALS
    }

    /// Two tuples combined, component by component.
    pub fn apply(&self, left: &[Expr], right: &[Expr]) -> Vec<Expr> {
        let value = |n: usize| left.iter().chain(right).nth(n);
        let put = |e: Expr| match &e {
            Expr::Load { buffer, .. } => value(buffer.0 as usize).cloned().unwrap_or(e),
            _ => e,
        };
        self.combine.iter().map(|e| visit::map_expr(e, &mut Index::clone, &mut { put })).collect()
    }

    /// The terms that stores combine with their own elements by this reducer, component by component. The stores are in its order.
    pub fn terms(&self, stores: &[&Store]) -> Option<Vec<Expr>> {
        if stores.len() != self.components() {
            return None;
        }
        let mut of = vec![stores[0]; stores.len()];
        self.order.iter().zip(stores).for_each(|(component, store)| of[*component] = store);
        let mut terms = vec![None; stores.len()];
        let all = self.combine.iter().zip(&of).all(|(pattern, store)| matches(pattern, &store.value, &of, &mut terms));
        terms.into_iter().collect::<Option<Vec<Expr>>>().filter(|_| all)
    }
}

/// A number of a tuple in a combination.
fn number(n: u32) -> Expr {
    Expr::load(BufferId(n), Vec::new())
}

/// The value that a maximum or minimum begins from.
pub fn extreme(op: BinOp, dtype: DType) -> Expr {
    let infinity = if dtype == DType::E4m3 { 448.0 } else { f64::INFINITY };
    Expr::Const(
        dtype,
        match (op == BinOp::Max, typing::integer_range(dtype)) {
            (true, None) => Literal::Float(-infinity),
            (false, None) => Literal::Float(infinity),
            (true, Some((low, _))) => Literal::Int(low),
            (false, Some((_, high))) => Literal::Int(high),
        },
    )
}

/// The components such that each comes before those whose old value it reads, or two that need each other's.
fn order(combine: &[Expr]) -> std::result::Result<Vec<usize>, (usize, usize)> {
    let reads: Vec<Vec<usize>> = combine.iter().map(|e| left_numbers(e, combine.len())).collect();
    let (mut left, mut out): (Vec<usize>, Vec<usize>) = ((0..combine.len()).collect(), Vec::new());
    while !left.is_empty() {
        // Stored next: the first one whose old value no other one needs any more.
        let free = |c: usize, left: &[usize]| !left.iter().any(|r| *r != c && reads[*r].contains(&c));
        let Some(at) = left.iter().position(|c| free(*c, &left)) else {
            let a = left[0];
            let b = left.iter().find(|b| **b != a && reads[**b].contains(&a)).copied().unwrap_or(a);
            return Err((a, b));
        };
        out.push(left.remove(at));
    }
    Ok(out)
}

/// The components of the left tuple that an expression reads.
fn left_numbers(e: &Expr, count: usize) -> Vec<usize> {
    let mut out = Vec::new();
    visit::walk_expr(e, &mut |e| {
        if let Expr::Load { buffer, .. } = e
            && (buffer.0 as usize) < count
        {
            out.push(buffer.0 as usize);
        }
    });
    out
}

/// Whether an expression is a combination in which the stores' own elements are the left tuple. The right one goes to `terms`.
fn matches(pattern: &Expr, e: &Expr, stores: &[&Store], terms: &mut [Option<Expr>]) -> bool {
    if let Expr::Load { buffer, .. } = pattern {
        let n = buffer.0 as usize;
        if let Some(own) = stores.get(n) {
            return matches!(e, Expr::Load { buffer, indices, lanes: 1 } if *buffer == own.buffer && *indices == own.indices);
        }
        let Some(term) = terms.get_mut(n - stores.len()) else { return false };
        return match term {
            Some(known) => known == e,
            None => {
                *term = Some(e.clone());
                true
            }
        };
    }
    let mut same = |pairs: &[(&Expr, &Expr)]| pairs.iter().all(|(p, e)| matches(p, e, stores, terms));
    match (pattern, e) {
        (Expr::Un(p, a), Expr::Un(q, x)) => p == q && same(&[(a, x)]),
        (Expr::Cast(p, a), Expr::Cast(q, x)) => p == q && same(&[(a, x)]),
        (Expr::Bin(p, a, b), Expr::Bin(q, x, y)) => p == q && same(&[(a, x), (b, y)]),
        (Expr::Cmp(p, a, b), Expr::Cmp(q, x, y)) => p == q && same(&[(a, x), (b, y)]),
        (Expr::Select(c, a, b), Expr::Select(d, x, y)) => same(&[(c, d), (a, x), (b, y)]),
        (p, e) => p == e,
    }
}

#[cfg(test)]
mod tests;
