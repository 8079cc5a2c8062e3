//! How a block reduces: what its stores combine their elements with, and by which operation or reducer of tuples.
//!
//! The body of a reduction is a list of stores, each of which combines the element that it writes with a term. One store may stand
//! alone, `S = S + x`; several stores of one loop reduce apart from each other; and those of a [`TupleReducer`] read each other's
//! old elements. What takes a reduction apart, because it moves terms to partial results, asks here and writes whatever the
//! reduction combines.

use super::reducer::TupleReducer;
use super::{BinOp, Block, BufferId, Expr, Func, IterKind, Literal, Stmt, Store, visit};

/// What combines the elements of some stores.
#[derive(Debug, Clone, PartialEq)]
pub enum Combiner {
    /// An operation on one.
    Op(BinOp),
    /// A reducer of as many as it has components, in its order.
    Tuple(Box<TupleReducer>),
}

impl Combiner {
    fn stores(&self) -> usize {
        match self {
            Combiner::Op(_) => 1,
            Combiner::Tuple(t) => t.components(),
        }
    }
}

/// What a block combines.
#[derive(Debug, Clone, PartialEq)]
pub struct Reduction {
    /// Its stores, in the order of the text.
    pub stores: Vec<Store>,
    /// The term of each store.
    pub terms: Vec<Expr>,
    /// What combines them: each takes the next stores.
    pub combiners: Vec<Combiner>,
}

impl Reduction {
    /// The reduction of a block whose body is one.
    pub fn of(func: &Func, block: &Block) -> Option<Reduction> {
        let stores = stores(&block.body)?;
        let (mut terms, mut combiners) = (Vec::new(), Vec::new());
        while terms.len() < stores.len() {
            let rest = &stores[terms.len()..];
            let (combiner, own) = tuple(func, rest).or_else(|| operation(rest[0]))?;
            combiners.push(combiner);
            terms.extend(own);
        }
        let written: Vec<BufferId> = stores.iter().map(|s| s.buffer).collect();
        let mut apart = (1..written.len()).all(|n| !written[..n].contains(&written[n]));
        for term in &terms {
            visit::walk_expr(term, &mut |e| {
                apart &= !matches!(e, Expr::Load { buffer, .. } if written.contains(buffer))
            });
        }
        let reduced = |v| block.iters.iter().any(|i| i.kind == IterKind::Reduce && i.var == v);
        for index in stores.iter().flat_map(|s| &s.indices) {
            index.for_each_var(&mut |v| apart &= !reduced(v));
        }
        apart.then(|| Reduction { stores: stores.into_iter().cloned().collect(), terms, combiners })
    }

    /// Whether partial results of it can be combined: by `+`, `*`, `min`, `max` and reducers of tuples.
    pub fn combines_partials(&self) -> bool {
        self.combiners.iter().all(|c| match c {
            Combiner::Op(op) => matches!(op, BinOp::Add | BinOp::Mul | BinOp::Min | BinOp::Max),
            Combiner::Tuple(_) => true,
        })
    }

    /// Whether some of its stores are combined together.
    pub fn is_joint(&self) -> bool {
        self.combiners.iter().any(|c| c.stores() > 1)
    }

    /// What the stores begin from, in their order, if that changes nothing when it is met again.
    pub fn neutral(&self, block: &Block) -> Option<Vec<Expr>> {
        let inits = stores(block.init.as_deref()?)?;
        let own = |(init, store): (&&Store, &Store)| init.buffer == store.buffer && init.indices == store.indices;
        if inits.len() != self.stores.len() || !inits.iter().zip(&self.stores).all(own) {
            return None;
        }
        let values: Vec<Expr> = inits.into_iter().map(|s| s.value.clone()).collect();
        let mut at = 0;
        let neutral = self.combiners.iter().all(|c| {
            let own = &values[at..at + c.stores()];
            at += c.stores();
            match c {
                Combiner::Op(op) => neutral(*op, &own[0]),
                Combiner::Tuple(t) => t.order().iter().zip(own).all(|(component, e)| t.neutral()[*component] == *e),
            }
        });
        neutral.then_some(values)
    }

    /// Two tuples combined, one value for each store.
    pub fn combine(&self, left: &[Expr], right: &[Expr]) -> Vec<Expr> {
        let (mut out, mut at) = (Vec::new(), 0);
        for c in &self.combiners {
            let end = at + c.stores();
            match c {
                Combiner::Op(op) => out.push(Expr::bin(*op, left[at].clone(), right[at].clone())),
                Combiner::Tuple(t) => {
                    // From the order of the stores to that of the components, and back.
                    let component = |values: &[Expr]| {
                        let mut of = values.to_vec();
                        t.order().iter().zip(values).for_each(|(component, e)| of[*component] = e.clone());
                        of
                    };
                    let values = t.apply(&component(&left[at..end]), &component(&right[at..end]));
                    out.extend(t.order().iter().map(|component| values[*component].clone()));
                }
            }
            at = end;
        }
        out
    }
}

/// The stores that a list of statements is.
pub fn stores(body: &[Stmt]) -> Option<Vec<&Store>> {
    let all = body.iter().map(|s| if let Stmt::Store(s) = s { Some(s) } else { None });
    all.collect::<Option<Vec<_>>>().filter(|all| !all.is_empty())
}

/// Whether an init is the neutral constant of an operation. A constant that begins a maximum or minimum changes nothing
/// when it is met again.
pub fn neutral(op: BinOp, init: &Expr) -> bool {
    let Expr::Const(_, literal) = init else { return false };
    let value = match literal {
        Literal::Any => return false,
        literal => literal.number(),
    };
    match op {
        BinOp::Add => value == 0.0,
        BinOp::Mul => value == 1.0,
        _ => true,
    }
}

/// The reducer of tuples that the first stores are combined by, with their terms in the order of the stores.
fn tuple(func: &Func, rest: &[&Store]) -> Option<(Combiner, Vec<Expr>)> {
    let found = |t: &TupleReducer| {
        let own = rest.get(..t.components())?;
        let terms = t.terms(own)?;
        let typed = t.order().iter().zip(own).all(|(c, s)| func.buffer(s.buffer).dtype == t.dtypes()[*c]);
        typed.then(|| (Combiner::Tuple(Box::new(t.clone())), t.order().iter().map(|c| terms[*c].clone()).collect()))
    };
    func.reducers.iter().find_map(found).or_else(|| {
        let [index, value, ..] = rest else { return None };
        let dtypes = [value, index].map(|s| func.buffer(s.buffer).dtype);
        let all = TupleReducer::PREDEFINED.into_iter().filter_map(|name| TupleReducer::predefined(name, &dtypes));
        all.into_iter().find_map(|t| found(&t))
    })
}

/// The operation of one store, and its term.
fn operation(store: &Store) -> Option<(Combiner, Vec<Expr>)> {
    let Expr::Bin(op, a, b) = &store.value else { return None };
    let own = |e: &Expr| matches!(e, Expr::Load { buffer, indices, .. } if *buffer == store.buffer && *indices == store.indices);
    let commutes =
        matches!(op, BinOp::Add | BinOp::Mul | BinOp::Min | BinOp::Max | BinOp::And | BinOp::Or | BinOp::Xor);
    let term = match (own(a), own(b)) {
        (true, false) => b,
        (false, true) => a,
        _ => return None,
    };
    commutes.then(|| (Combiner::Op(*op), vec![term.as_ref().clone()]))
}
