//! What reducers combine: single values, places of extremes, and tuples by the expressions that a program states.

use super::parser::{Node, Reducer};
use super::{Arithmetic, Names, Part, Program, Unknown};

impl Program {
    /// What a reduction begins with, where that can be seen in the result.
    pub(super) fn initial<A: Arithmetic>(&self, part: &Part) -> Option<Vec<A::Number>> {
        let dtype = |n: usize| self.buffers[part.buffers[n]].dtype;
        match part.reducer.as_deref()? {
            "argmax" => Some(vec![A::initial("max", dtype(0))?, A::initial("min", dtype(1))?]),
            "argmin" => Some(vec![A::initial("min", dtype(0))?, A::initial("min", dtype(1))?]),
            single @ ("max" | "min") => Some(vec![A::initial(single, dtype(0))?]),
            _ => None,
        }
    }

    pub(super) fn combined<A: Arithmetic>(
        &self,
        part: &Part,
        before: Vec<A::Number>,
        values: Vec<A::Number>,
        memory: &mut [Vec<A::Number>],
    ) -> Result<Vec<A::Number>, Unknown> {
        let dtype = self.buffers[part.buffers[0]].dtype;
        match part.reducer.as_deref() {
            None => Ok(values),
            Some("sum") => Ok(vec![A::binary("+", dtype, before[0], values[0])?]),
            Some(op @ ("max" | "min")) => Ok(vec![A::binary(op, dtype, before[0], values[0])?]),
            Some(place @ ("argmax" | "argmin")) => {
                let better = if place == "argmax" { ">" } else { "<" };
                let index = self.buffers[part.buffers[1]].dtype;
                let wins = A::is_true(A::compare(better, dtype, values[0], before[0])?);
                let ties = A::is_true(A::compare("==", dtype, values[0], before[0])?);
                let earlier = A::is_true(A::compare("<", index, values[1], before[1])?);
                Ok(if wins || ties && earlier { values } else { before })
            }
            Some(name) => {
                let Some(reducer) = self.reducers.iter().find(|r| r.name == name) else {
                    return Err(Unknown(format!("no reducer {name}")));
                };
                let all = reducer.left.iter().zip(before).chain(reducer.right.iter().zip(values));
                all.for_each(|(buffer, value)| memory[*buffer][0] = value);
                let names = self.numbers(reducer);
                let one = |(node, buffer): (&Node, &usize)| {
                    let value = names.value(node, Some(self.buffers[*buffer].dtype))?;
                    self.value::<A>(&value, &[], memory)
                };
                reducer.values.iter().zip(&reducer.left).map(one).collect()
            }
        }
    }

    /// The names of a reducer: the numbers of its tuples alone.
    fn numbers(&self, reducer: &Reducer) -> Names<'_> {
        let own = reducer.left.iter().chain(&reducer.right);
        let known = own.map(|n| (self.buffers[*n].name.as_str(), *n)).collect();
        Names { buffers: &self.buffers, known, iterators: Vec::new() }
    }

    /// Whether a buffer is a number of a reducer, which no statement knows.
    pub(super) fn is_number(&self, n: usize) -> bool {
        self.reducers.iter().any(|r| r.left.contains(&n) || r.right.contains(&n))
    }
}
