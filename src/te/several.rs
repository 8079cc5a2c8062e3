//! Blocks that compute several buffers in one loop: reductions apart from each other, and reducers of tuples.

use super::program::{Iterators, Program, Reducer, Stage, check_accesses};
use crate::dtype::DType;
use crate::error::{Code, Error, Result, counted};
use crate::ir::reducer::{MAX_COMPONENTS, TupleReducer};
use crate::ir::{Block, BufferId, Cond, Expr, For, Func, Index, Iter, LoopKind, Stmt, Store, Var};

/// A buffer that a block of several computes.
#[derive(Debug, Clone)]
pub struct Target<'a> {
    /// Its name.
    pub buffer: &'a str,
    /// Its type.
    pub dtype: DType,
    /// Whether it is an output of the program.
    pub output: bool,
    /// Strides of an output in elements, if its rows are not packed.
    pub strides: Option<Vec<i64>>,
    /// Alignment of an output's base address in bytes; 16 unless stated.
    pub align: u32,
}

impl<'a> Target<'a> {
    /// An intermediate buffer.
    pub fn new(buffer: &'a str, dtype: DType) -> Target<'a> {
        Target { buffer, dtype, output: false, strides: None, align: 16 }
    }

    /// Makes the buffer an output.
    #[must_use]
    pub fn output(mut self) -> Self {
        self.output = true;
        self
    }
}

/// What combines the values of one target, or of as many as it has components.
#[derive(Debug, Clone)]
pub enum Combine {
    /// A reducer of single values.
    One(Reducer),
    /// A reducer of tuples.
    Tuple(Box<TupleReducer>),
}

impl Combine {
    /// How many targets it takes.
    pub fn targets(&self) -> usize {
        match self {
            Combine::One(_) => 1,
            Combine::Tuple(t) => t.components(),
        }
    }
}

/// What [`Program::reduce_several`] makes: buffers of the same iterators, the block that writes them, and the loops around.
#[derive(Debug, Clone)]
pub struct Several<'a> {
    /// The block's name.
    pub label: &'a str,
    /// One iterator per dimension of each buffer, with its extent.
    pub spatial: &'a [(&'a str, i64)],
    /// The iterators that are reduced over.
    pub over: &'a [(&'a str, i64)],
    /// The buffers.
    pub targets: Vec<Target<'a>>,
    /// What combines them, each the next targets.
    pub combine: Vec<Combine>,
}

impl<'a> Several<'a> {
    fn stages(&self) -> Vec<Stage<'_>> {
        let mut stages = Vec::new();
        for combine in &self.combine {
            // The iterators are those of any reduction; a reducer of tuples knows its own types.
            let reducer = if let Combine::One(r) = combine { *r } else { Reducer::Sum };
            for target in self.targets.iter().skip(stages.len()).take(combine.targets()) {
                let mut stage = Stage::new(target.buffer, target.dtype, self.spatial).label(self.label);
                stage = stage.reduce(reducer, self.over);
                (stage.output, stage.strides, stage.align) = (target.output, target.strides.clone(), target.align);
                stages.push(stage);
            }
        }
        stages
    }
}

impl Program {
    /// Adds a reducer of tuples, which later blocks can use.
    ///
    /// # Errors
    /// `te.name` where the program or every program has a reducer, function or type of that name.
    pub fn reducer(&mut self, reducer: TupleReducer) -> Result<()> {
        let name = reducer.name();
        super::program::check_name("reducer", name)?;
        let known = Reducer::ALL.into_iter().map(Reducer::name).chain(TupleReducer::PREDEFINED);
        let taken = known.chain(super::text::functions()).any(|n| n == name) || DType::parse(name).is_some();
        if taken || self.func().reducers.iter().any(|r| r.name() == name) {
            return Err(Error::input(Code::TeName, format!("there is already a reducer, function or type {name}")));
        }
        self.func_mut().reducers.push(reducer);
        Ok(())
    }

    /// Adds a block that computes several buffers in one loop. `values` receives the iterators (spatial, then reduced) and returns
    /// the value to combine for each buffer, in its type.
    ///
    /// # Errors
    /// As [`Program::compute`]; `te.reduce` where reducers and buffers do not fit each other.
    pub fn reduce_several(
        &mut self,
        several: &Several<'_>,
        values: impl FnOnce(&[Var]) -> Vec<Expr>,
    ) -> Result<Vec<BufferId>> {
        self.reduce_with(several, |_, iterators| {
            let vars: Vec<Var> = iterators.iter().map(|(_, var, _)| *var).collect();
            Ok(values(&vars))
        })
    }

    /// [`Program::reduce_several`] with values that may fail and see the program so far and the iterators' names.
    pub(super) fn reduce_with(
        &mut self,
        several: &Several<'_>,
        values: impl FnOnce(&mut Func, &Iterators) -> Result<Vec<Expr>>,
    ) -> Result<Vec<BufferId>> {
        let stages = several.stages();
        check(several, stages.len())?;
        let mut parts = several.combine.iter().flat_map(|c| std::iter::repeat_n(c, c.targets()));
        for stage in &stages {
            self.check_stage(stage)?;
            if let Some(Combine::One(_)) = parts.next() {
                self.check_reducer(stage)?;
            }
        }
        // Everything is made on a copy, so that a refused block changes nothing.
        let mut next = self.clone();
        let first = &stages[0];
        let (loops, iterators) = next.iterators(first);
        let values = values(next.func_mut(), &iterators)?;
        if values.len() != stages.len() {
            return Err(Error::input(
                Code::TeReduce,
                format!("block {}: {}", several.label, fit(&values, stages.len())),
            ));
        }
        let mut vars: Vec<(Var, i64)> = iterators.iter().map(|(_, v, extent)| (*v, *extent)).collect();
        vars.extend(next.func().size_vars());
        for (stage, value) in stages.iter().zip(&values) {
            next.check_value(stage, value)?;
            check_accesses(next.func(), value, &vars, &Cond::TRUE)?;
        }
        let shape: Vec<i64> = several.spatial.iter().map(|(_, extent)| *extent).collect();
        let mut buffers = Vec::new();
        for stage in &stages {
            buffers.push(next.add_buffer(stage.buffer, stage.dtype, &shape, stage.strides.clone(), stage.align)?);
        }
        let name = next.func_mut().add_block(several.label);
        let iters = (first.axes().zip(iterators.iter().zip(&loops)))
            .map(|((_, extent, kind), ((_, v, _), l))| Iter {
                var: *v,
                kind,
                extent: extent.into(),
                binding: (*l).into(),
            })
            .collect();
        let at: Vec<Index> = iterators[..shape.len()].iter().map(|(_, v, _)| Index::Var(*v)).collect();
        let (init, body) = statements(several, &buffers, &at, &values);
        let init = Some(init);
        let block = Block { name, iters, predicate: Cond::TRUE, init, body, copy_with: None, role: None };
        let mut nest = vec![Stmt::Block(block)];
        for ((_, _, extent), var) in iterators.iter().zip(loops).rev() {
            nest = vec![Stmt::For(For::new(var, *extent, LoopKind::Serial, nest))];
        }
        next.func_mut().body.extend(nest);
        next.add_outputs(buffers.iter().zip(&stages).filter(|(_, s)| s.output).map(|(b, _)| *b));
        *self = next;
        Ok(buffers)
    }
}

fn fit(values: &[Expr], wanted: usize) -> String {
    format!("{} for {}", counted(values.len(), "value"), counted(wanted, "buffer"))
}

/// Whether reducers and buffers fit each other.
fn check(several: &Several<'_>, taken: usize) -> Result<()> {
    let wrong = |why: String| Err(Error::input(Code::TeReduce, format!("block {}: {why}", several.label)));
    let wanted: usize = several.combine.iter().map(Combine::targets).sum();
    if wanted != several.targets.len() || taken != wanted || wanted == 0 {
        let (buffers, values) = (counted(several.targets.len(), "buffer"), counted(wanted, "value"));
        return wrong(format!("{buffers} on the left, but the reducers combine {values}"));
    }
    if wanted > MAX_COMPONENTS {
        return wrong(format!("{wanted} buffers; at most {MAX_COMPONENTS} are reduced in one loop"));
    }
    let mut at = 0;
    for combine in &several.combine {
        let own = &several.targets[at..at + combine.targets()];
        at += own.len();
        let Combine::Tuple(reducer) = combine else { continue };
        if let Some((target, dtype)) = own.iter().zip(reducer.dtypes()).find(|(t, dtype)| t.dtype != *dtype) {
            let (name, found) = (target.buffer, target.dtype);
            let error =
                Error::input(Code::TeType, format!("{name} is {found}, but {} combines {dtype}", reducer.name()));
            return Err(error.help(format!("declare it {dtype}, or state a reducer of {found}")));
        }
    }
    Ok(())
}

/// The block's init and body: the stores of a reducer of tuples are in its order, so that each reads the old elements.
fn statements(several: &Several<'_>, buffers: &[BufferId], at: &[Index], values: &[Expr]) -> (Vec<Stmt>, Vec<Stmt>) {
    let (mut init, mut body, mut from) = (Vec::new(), Vec::new(), 0);
    for combine in &several.combine {
        let to = from + combine.targets();
        let (own, terms) = (&buffers[from..to], &values[from..to]);
        let before: Vec<Expr> = own.iter().map(|b| Expr::load(*b, at.to_vec())).collect();
        let (neutral, combined, order) = match combine {
            Combine::One(r) => {
                let combined = Expr::bin(r.op(), before[0].clone(), terms[0].clone());
                (vec![r.neutral(several.targets[from].dtype)], vec![combined], vec![0])
            }
            Combine::Tuple(t) => (t.neutral().to_vec(), t.apply(&before, terms), t.order().to_vec()),
        };
        let store = |n: &usize, values: &[Expr]| Stmt::Store(Store::new(own[*n], at.to_vec(), values[*n].clone()));
        init.extend(order.iter().map(|n| store(n, &neutral)));
        body.extend(order.iter().map(|n| store(n, &combined)));
        from = to;
    }
    (init, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::print;

    #[test]
    fn independent_reductions_of_one_loop_print() {
        let mut p = Program::new("moments").unwrap();
        let a = p.input("A", DType::F32, &[16, 64]).unwrap();
        let targets = vec![Target::new("S", DType::F32).output(), Target::new("M", DType::F32).output()];
        let combine = vec![Combine::One(Reducer::Sum), Combine::One(Reducer::Max)];
        let several = Several { label: "S", spatial: &[("i", 16)], over: &[("k", 64)], targets, combine };
        let load = |v: &[Var]| Expr::load(a, v.iter().map(|v| Index::Var(*v)).collect());
        p.reduce_several(&several, |v| vec![load(v), load(v)]).unwrap();
        assert_eq!(
            print::func(&p.finish().unwrap()),
            "func moments(A: global f32[16, 64], S: global f32[16], M: global f32[16])\n\
             \x20 for i in 0..16\n\
             \x20   for k in 0..64\n\
             \x20     block S(vi = i, reduce vk = k)\n\
             \x20       init\n\
             \x20         S[vi] = 0.0\n\
             \x20         M[vi] = -inf\n\
             \x20       S[vi] = S[vi] + A[vi, vk]\n\
             \x20       M[vi] = max(M[vi], A[vi, vk])\n"
        );
    }
}
