//! Reducers: those that a program states, and what precedes the values that they combine.

use super::lexer::Kind;
use super::statement::{Axis, Written, axis, dtype, resolve};
use super::syntax::{Cursor, Node};
use super::value::Names;
use super::{at, placed};
use crate::dtype::DType;
use crate::error::{Code, Error, Result, counted};
use crate::ir::reducer::TupleReducer;
use crate::ir::{Expr, Func};
use crate::te::program::{Program, Reducer, check_name};
use crate::te::several::{Combine, Several, Target};
use std::cell::RefCell;
use std::ops::Range;

/// A reducer by its name.
pub enum Named<'t> {
    /// Of single values.
    One(Reducer),
    /// Of tuples.
    Tuple(&'t str, Range<usize>),
}

/// `REDUCER(ITERATOR [EXTENT], ..)`
pub struct Head<'t> {
    /// Which.
    pub reducer: Named<'t>,
    /// What it runs over.
    pub over: Vec<Axis<'t>>,
}

/// `REDUCER(ITERATOR [EXTENT], ..)` with a value behind it; `max(a, b)` of data is told apart by what follows.
pub fn head<'t>(c: &mut Cursor<'t>, p: &Program) -> Result<Option<Head<'t>>> {
    if let Some(reducer) = Reducer::ALL.into_iter().find(|r| c.is_word(r.name())) {
        if reducer != Reducer::Sum && !is_axis_list(c, p.func()) {
            return Ok(None);
        }
        c.take_word(reducer.name());
        return Ok(Some(Head { reducer: Named::One(reducer), over: c.list("(", ")", |c| axis(c, p.func()))? }));
    }
    let called = c.peek().kind == Kind::Name && c.peek_at(1).kind == Kind::Symbol("(");
    let word = c.peek().text(c.text);
    if called && tuple_reducers(p.func()).any(|n| n == word) {
        let (name, span) = c.name("a reducer")?;
        return Ok(Some(Head { reducer: Named::Tuple(name, span), over: c.list("(", ")", |c| axis(c, p.func()))? }));
    }
    not_a_reducer(c, p).map(|()| None)
}

/// The names of the reducers of tuples.
fn tuple_reducers(func: &Func) -> impl Iterator<Item = &str> {
    TupleReducer::PREDEFINED.into_iter().chain(func.reducers.iter().map(TupleReducer::name))
}

/// Refuses `NAME ( NAME INT`, which begins no value.
fn not_a_reducer(c: &mut Cursor<'_>, p: &Program) -> Result<()> {
    let kinds = [Kind::Name, Kind::Symbol("("), Kind::Name];
    let begins = kinds.iter().enumerate().all(|(n, kind)| c.peek_at(n).kind == *kind);
    if !begins || !matches!(c.peek_at(3).kind, Kind::Int(_)) {
        return Ok(());
    }
    let names: Vec<&str> = Reducer::ALL.into_iter().map(|r| r.name()).chain(tuple_reducers(p.func())).collect();
    let (name, span) = c.name("a reducer")?;
    let error = at(Code::TeName, span, format!("`{name}` is not a reducer"));
    Err(error.help(format!("the reducers are {}; a statement `reducer ..` makes one", names.join(", "))))
}

/// Whether `NAME ( NAME [INT], .. )` comes next, with something other than the statement's end behind it. Names of buffers of rank 0
/// without an extent are data: `max(a, b) - c`.
fn is_axis_list(c: &Cursor<'_>, func: &Func) -> bool {
    let kind = |n: usize| c.peek_at(n).kind;
    let is_datum =
        |n: usize| func.find_buffer(c.peek_at(n).text(c.text)).is_some_and(|b| func.buffer(b).shape.is_empty());
    let (mut n, mut data) = (1, true);
    if kind(n) != Kind::Symbol("(") {
        return false;
    }
    loop {
        n += 1;
        if kind(n) != Kind::Name {
            return false;
        }
        let stated = matches!(kind(n + 1), Kind::Int(_));
        data &= !stated && is_datum(n);
        n += 1 + usize::from(stated);
        match kind(n) {
            Kind::Symbol(",") => {}
            Kind::Symbol(")") => return !data && !matches!(kind(n + 1), Kind::Separator | Kind::End),
            _ => return false,
        }
    }
}

/// A block that computes several buffers, or one by a reducer that the program states; `first` is the head that was read.
pub fn several<'t>(
    c: &mut Cursor<'t>,
    p: &mut Program,
    label: Option<&str>,
    written: &[Written<'t>],
    first: Option<Head<'t>>,
) -> Result<()> {
    let (mut combine, mut over, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let mut next = first;
    loop {
        let Some(Head { reducer, over: own }) = next else {
            let error = c.unexpected("a reducer");
            return Err(
                error.help("several buffers are reduced in one loop: `S[i] f32, M[i] f32 = sum(k 64) .., max(k) ..`")
            );
        };
        over.push(own);
        let taken: usize = combine.iter().map(Combine::targets).sum();
        match reducer {
            Named::One(r) => {
                combine.push(Combine::One(r));
                values.push(c.expression()?);
            }
            Named::Tuple(name, span) => {
                let types: Vec<DType> = written.iter().skip(taken).map(|w| w.dtype).collect();
                let reducer = find(p.func(), name, &types).map_err(|e| placed(e, span.clone()))?;
                let start = c.peek().span.start;
                let tuple = c.list("(", ")", Cursor::expression)?;
                if tuple.len() != reducer.components() {
                    let (wanted, given) = (counted(reducer.components(), "value"), tuple.len());
                    let error = at(
                        Code::TeReduce,
                        start..span.end.max(start + 1),
                        format!("{name} combines {wanted}, but {given} are given"),
                    );
                    return Err(error.help(format!("write them in parentheses: {name}(k 64) (..)")));
                }
                combine.push(Combine::Tuple(Box::new(reducer)));
                values.extend(tuple);
            }
        }
        if !c.take(",") {
            break;
        }
        next = head(c, p)?;
    }
    let axes: Vec<&[Axis<'t>]> = written.iter().map(|w| w.axes.as_slice()).collect();
    let spatial = resolve(&same(&axes, "the buffers")?, &values, p.func())?;
    let over = resolve(&same(&over.iter().map(Vec::as_slice).collect::<Vec<_>>(), "the reducers")?, &values, p.func())?;
    let target = |w: &Written<'t>| Target {
        buffer: w.buffer,
        dtype: w.dtype,
        output: w.output,
        strides: w.strides.clone(),
        align: w.align,
    };
    let targets = written.iter().map(target).collect();
    let label = label.unwrap_or(written[0].buffer);
    let block = Several { label, spatial: &spatial, over: &over, targets, combine };
    let made = p.reduce_with(&block, |func, iterators| {
        let gathered = RefCell::new(Vec::new());
        let typed = |(value, w): (&Node, &Written<'t>)| {
            let (expr, found) = Names::new(func, iterators, &gathered).datum(value, Some(w.dtype))?;
            if found == w.dtype {
                return Ok(expr);
            }
            let (buffer, dtype) = (w.buffer, w.dtype);
            let error = at(Code::TeType, value.span.clone(), format!("this is {found}, but {buffer} is {dtype}"));
            Err(error.help(format!("convert it: {dtype}(..)")))
        };
        let values = values.iter().zip(written).map(typed).collect::<Result<Vec<Expr>>>()?;
        gathered.into_inner().into_iter().for_each(|name| {
            func.add_var(name);
        });
        Ok(values)
    });
    made.map_err(|e| placed(e, written[0].span.clone())).map(|_| ())
}

/// The reducer of tuples of that name, for buffers of these types.
fn find(func: &Func, name: &str, types: &[DType]) -> Result<TupleReducer> {
    if let Some(stated) = func.reducers.iter().find(|r| r.name() == name) {
        return Ok(stated.clone());
    }
    let own = types.get(..2).unwrap_or(types);
    TupleReducer::predefined(name, own).ok_or_else(|| {
        let given: Vec<&str> = own.iter().map(|d| d.name()).collect();
        let message =
            format!("{name} is a value and the integer of its place, but the buffers are {}", given.join(", "));
        Error::input(Code::TeType, message).help(format!("V[i 16] f32, I[i] s32 = {name}(k 64) (A[i, k], s32(k))"))
    })
}

/// The iterators of all lists, which have the same names; an extent is stated in one of them, or in several alike.
fn same<'t>(lists: &[&[Axis<'t>]], what: &str) -> Result<Vec<Axis<'t>>> {
    let Some((first, others)) = lists.split_first() else { return Ok(Vec::new()) };
    let mut out = first.to_vec();
    for list in others {
        if list.len() != out.len() || list.iter().zip(&out).any(|(a, b)| a.name != b.name) {
            let span = list.first().or(first.first()).map_or(0..0, |a| a.span.clone());
            let names: Vec<&str> = out.iter().map(|a| a.name).collect();
            let message = format!("{what} of one block have the same iterators, [{}] here", names.join(", "));
            return Err(at(Code::TeReduce, span, message).help("compute the others in a statement of their own"));
        }
        for (own, other) in out.iter_mut().zip(*list) {
            match (own.extent, other.extent) {
                (Some(a), Some(b)) if a != b => {
                    let error = Error::input(Code::TeExtent, format!("{} has two extents", own.name));
                    let error = error.label(own.span.clone(), a.to_string()).label(other.span.clone(), b.to_string());
                    return Err(error.help("write it once"));
                }
                (None, Some(_)) => *own = other.clone(),
                _ => {}
            }
        }
    }
    Ok(out)
}

/// `reducer NAME(LEFT TYPE, ..) with (RIGHT, ..) from (NEUTRAL, ..) = (VALUE, ..)`
pub fn declaration(c: &mut Cursor<'_>, p: &mut Program) -> Result<()> {
    c.take_word("reducer");
    let (name, span) = c.name("a reducer's name")?;
    let left = c.list("(", ")", |c| Ok((c.name("a component")?, dtype(c)?)))?;
    word(c, "with")?;
    let right = c.list("(", ")", |c| c.name("a component of the right tuple"))?;
    word(c, "from")?;
    let neutral = c.list("(", ")", Cursor::expression)?;
    c.expect("=")?;
    let values = c.list("(", ")", Cursor::expression)?;
    let mut seen: Vec<&str> = Vec::new();
    for (name, span) in left.iter().map(|(name, _)| name).chain(&right) {
        check_name("component", name).map_err(|e| placed(e, span.clone()))?;
        if seen.contains(name) {
            return Err(at(Code::TeName, span.clone(), format!("two components are called {name}")));
        }
        seen.push(name);
    }
    if right.len() != left.len() || neutral.len() != left.len() || values.len() != left.len() {
        let message = format!(
            "{} on the left, {} on the right, a neutral tuple of {} and {}",
            counted(left.len(), "component"),
            right.len(),
            neutral.len(),
            counted(values.len(), "value")
        );
        return Err(at(Code::TeReducer, span, message));
    }
    let types: Vec<(&str, DType)> = left.iter().map(|((name, _), dtype)| (*name, *dtype)).collect();
    let names: Vec<&str> = right.iter().map(|(name, _)| *name).collect();
    let numbers = TupleReducer::numbers(&types, &names);
    let typed = |nodes: &[Node]| {
        let one = |(node, (name, dtype)): (&Node, &(&str, DType))| {
            let (none, gathered) = (Vec::new(), RefCell::default());
            let (expr, found) = Names::new(&numbers, &none, &gathered).datum(node, Some(*dtype))?;
            let wrong = || at(Code::TeType, node.span.clone(), format!("this is {found}, but {name} is {dtype}"));
            if found == *dtype { Ok(expr) } else { Err(wrong()) }
        };
        nodes.iter().zip(&types).map(one).collect::<Result<Vec<Expr>>>()
    };
    let (neutral, combine) = (typed(&neutral)?, typed(&values)?);
    let reducer = TupleReducer::new(name, numbers, combine, neutral).map_err(|e| placed(e, span.clone()))?;
    p.reducer(reducer).map_err(|e| placed(e, span))
}

fn word(c: &mut Cursor<'_>, word: &str) -> Result<()> {
    if c.take_word(word) {
        return Ok(());
    }
    let error = c.unexpected(&format!("`{word}`"));
    Err(error.help("reducer NAME(LEFT TYPE, ..) with (RIGHT, ..) from (NEUTRAL, ..) = (VALUE, ..)"))
}
