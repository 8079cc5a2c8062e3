//! Statements: the program's name, its inputs and its blocks.

use super::lexer::{Kind, Token};
use super::reducers::{self, Head, Named};
use super::syntax::{Cursor, Node, Op, Tree};
use super::value::Names;
use super::{at, placed};
use crate::dtype::DType;
use crate::error::{Code, Error, Result, suggestion};
use crate::ir::Func;
use crate::te::dynamic::SizeId;
use crate::te::program::{Program, Stage};
use std::cell::RefCell;
use std::ops::Range;

/// Reads `program NAME` and the statements after it.
pub fn program(text: &str, tokens: &[Token]) -> Result<Func> {
    let mut c = Cursor::new(text, tokens);
    c.next_statement();
    if !c.take_word("program") {
        return Err(c.unexpected("`program NAME` or a builder such as `gemm 64x64x64 f32 NN`"));
    }
    let (name, span) = c.name("the program's name")?;
    let mut p = Program::new(name).map_err(|e| placed(e, span.clone()))?;
    c.end_statement()?;
    while c.next_statement() {
        let keyword = |c: &Cursor<'_>, word: &str| c.is_word(word) && c.peek_at(1).kind == Kind::Name;
        if keyword(&c, "size") {
            size(&mut c, &mut p)?
        } else if keyword(&c, "input") {
            input(&mut c, &mut p)?
        } else if keyword(&c, "reducer") {
            reducers::declaration(&mut c, &mut p)?
        } else {
            block(&mut c, &mut p)?
        }
        c.end_statement()?;
    }
    p.finish().map_err(|e| placed(e, span))
}

pub(super) fn dtype(c: &mut Cursor<'_>) -> Result<DType> {
    let (name, span) = c.name("a type")?;
    DType::parse(name).ok_or_else(|| {
        let all: Vec<&str> = DType::ALL.iter().map(|d| d.name()).collect();
        let ours = [("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "s")];
        let numpy = ours
            .iter()
            .find_map(|(theirs, own)| DType::parse(&name.strip_prefix(theirs).map(|n| format!("{own}{n}"))?));
        let guess = numpy.map_or_else(|| suggestion(name, all.iter().copied()), |d| format!("; did you mean `{d}`?"));
        at(Code::TeType, span, format!("{name} is not a type{guess}")).help(format!("the types are {}", all.join(", ")))
    })
}

/// The extents of an input, the largest where one is dynamic; and the size of the outermost.
fn shape(c: &mut Cursor<'_>, func: &Func) -> Result<(Vec<i64>, Option<SizeId>)> {
    let mut sizes = Vec::new();
    let extents = c.list("[", "]", |c| {
        let start = c.peek().span.clone();
        let (extent, size) = extent(c, func, "an extent")?;
        if size.is_some() && !sizes.is_empty() {
            let error = at(Code::SizeForm, start, "a dynamic size is the outermost extent alone");
            return Err(error.help("so every stride is a constant; transpose the array where it is made"));
        }
        sizes.push(size);
        Ok(extent)
    })?;
    Ok((extents, sizes.first().copied().flatten()))
}

/// A number, or the name of a dynamic size, whose largest value it is then.
fn extent(c: &mut Cursor<'_>, func: &Func, what: &str) -> Result<(i64, Option<SizeId>)> {
    let token = c.peek();
    let found = func.sizes.iter().position(|s| token.kind == Kind::Name && c.is_word(&s.size.name));
    if let Some(size) = found {
        c.name(what)?;
        return Ok((func.sizes[size].size.high, Some(size)));
    }
    let found = c.integer(what).map(|(v, _)| (v, None));
    found.map_err(|e| match c.peek().kind {
        Kind::Name => e
            .help("extents are numbers, `f32[512, 64]`, or dynamic sizes: `size M in 1..=8192`, then `f32[M, 64]`")
            .help("`--size` runs a builder's program at other sizes"),
        _ => e,
    })
}

/// `size NAME in LOW..=HIGH [by MULTIPLE]`
fn size(c: &mut Cursor<'_>, p: &mut Program) -> Result<()> {
    c.take_word("size");
    let (name, span) = c.name("the name of a size")?;
    if !c.take_word("in") {
        return Err(c.unexpected("`in LOW..=HIGH`").help("size M in 1..=8192 by 8"));
    }
    let low = c.integer("the least value, as in `in 1..=8192`")?.0;
    c.expect("..=")?;
    let (high, end) = c.integer("the largest value")?;
    let by = if c.take_word("by") { c.integer("what each value is a multiple of")?.0 } else { 1 };
    p.size(name, low, high, by).map_err(|e| placed(e, span.start..end.end)).map(|_| ())
}

fn strides(c: &mut Cursor<'_>, what: &str) -> Result<Vec<i64>> {
    c.list("[", "]", |c| {
        let found = c.integer(what).map(|(v, _)| v);
        found.map_err(|e| match c.peek().kind {
            Kind::Name => e.help("strides are numbers: `f32[512, 64] strides [128, 1]`"),
            _ => e,
        })
    })
}

/// `[strides [STRIDE, ..]] [align BYTES]`
fn storage(c: &mut Cursor<'_>) -> Result<(Option<Vec<i64>>, u32)> {
    let strides = if c.take_word("strides") { Some(strides(c, "a stride")?) } else { None };
    if !c.take_word("align") {
        return Ok((strides, 16));
    }
    let (bytes, span) = c.integer("an alignment in bytes")?;
    let align = u32::try_from(bytes).map_err(|_| at(Code::TeStorage, span, "this alignment is too large"))?;
    Ok((strides, align))
}

fn input(c: &mut Cursor<'_>, p: &mut Program) -> Result<()> {
    c.take_word("input");
    let (name, span) = c.name("a name")?;
    let dtype = dtype(c)?;
    // Without extents it is one number.
    let (shape, size) = if c.is("[") { shape(c, p.func())? } else { (Vec::new(), None) };
    let range = values(c)?;
    let (strides, align) = storage(c)?;
    let id = p.input_with(name, dtype, &shape, strides, align).map_err(|e| placed(e, span))?;
    if let Some(size) = size {
        p.dynamic_input(id, size);
    }
    match range {
        Some(((low, end), at)) => p.values(id, low, end).map_err(|e| placed(e, at)),
        None => Ok(()),
    }
}

/// The range of values that an input states, and its place.
type Values = ((i64, i64), Range<usize>);

/// `[in LOW..END]`
fn values(c: &mut Cursor<'_>) -> Result<Option<Values>> {
    if !c.take_word("in") {
        return Ok(None);
    }
    let start = c.peek().span.start;
    let low = c.signed("the least value, as in `in 0..1000`")?.0;
    c.expect("..")?;
    let (end, span) = c.signed("the end of the values, which is exclusive")?;
    Ok(Some(((low, end), start..span.end)))
}

/// An iterator as written.
#[derive(Clone)]
pub(super) struct Axis<'t> {
    pub name: &'t str,
    pub extent: Option<i64>,
    /// The dynamic size that the extent is.
    pub size: Option<SizeId>,
    pub span: Range<usize>,
}

/// A buffer that a block computes, as written.
pub(super) struct Written<'t> {
    pub output: bool,
    pub buffer: &'t str,
    pub span: Range<usize>,
    pub axes: Vec<Axis<'t>>,
    pub dtype: DType,
    pub strides: Option<Vec<i64>>,
    pub align: u32,
}

pub(super) fn axis<'t>(c: &mut Cursor<'t>, func: &Func) -> Result<Axis<'t>> {
    let (name, span) = c.name("an iterator")?;
    if c.is("[") {
        let span = c.peek().span.clone();
        let error = at(Code::TeIndex, span, "an element is written at iterators alone: there is no scatter");
        return Err(error.help("read at an index that is a datum instead: `B[i] f32 = A[X[i]]`"));
    }
    let (extent, size) = match c.peek().kind {
        Kind::Int(_) | Kind::Name => extent(c, func, "an extent").map(|(extent, size)| (Some(extent), size))?,
        _ => (None, None),
    };
    Ok(Axis { name, extent, size, span })
}

fn block(c: &mut Cursor<'_>, p: &mut Program) -> Result<()> {
    let label = if matches!(c.peek_at(1).kind, Kind::Symbol(":")) {
        let (label, _) = c.name("a label")?;
        c.expect(":")?;
        Some(label)
    } else {
        None
    };
    let mut written = vec![target(c, p.func())?];
    while c.take(",") {
        written.push(target(c, p.func())?);
    }
    c.expect("=")?;
    let head = reducers::head(c, p)?;
    let reducer = match head {
        None if written.len() == 1 => None,
        Some(Head { reducer: Named::One(r), over }) if written.len() == 1 => Some((r, over)),
        head => {
            written.iter().for_each(|w| dynamic(p, label.unwrap_or(written[0].buffer), &w.axes));
            return reducers::several(c, p, label, &written, head);
        }
    };
    let Some(Written { output, buffer, span, axes, dtype, strides, align }) = written.pop() else { return Ok(()) };
    let values = [c.expression()?];
    let spatial = resolve(&axes, &values, p.func())?;
    let over = reducer.as_ref().map(|(_, over)| resolve(over, &values, p.func())).transpose()?.unwrap_or_default();
    let [value] = values;
    let reduce = reducer.map(|(r, _)| (r, over.as_slice()));
    let label = label.unwrap_or(buffer);
    dynamic(p, label, &axes);
    let stage = Stage { label, buffer, dtype, output, spatial: &spatial, reduce, strides, align };
    let made = p.compute_with(&stage, |func, iterators| {
        let gathered = RefCell::new(Vec::new());
        let (expr, found) = Names::new(func, iterators, &gathered).datum(&value, Some(dtype))?;
        gathered.into_inner().into_iter().for_each(|name| {
            func.add_var(name);
        });
        if found != dtype {
            let error = at(Code::TeType, value.span.clone(), format!("this is {found}, but {buffer} is {dtype}"));
            return Err(error.help(format!("convert it: {dtype}(..)")));
        }
        Ok(expr)
    });
    made.map_err(|e| placed(e, span)).map(|_| ())
}

/// States which iterators of a block have a dynamic size as their extent.
pub(super) fn dynamic(p: &mut Program, label: &str, axes: &[Axis<'_>]) {
    for (n, size) in axes.iter().enumerate().filter_map(|(n, axis)| Some((n, axis.size?))) {
        p.dynamic_iterator(label, n, size);
    }
}

/// `[output] BUFFER[ITERATOR [EXTENT], ..] TYPE [strides ..] [align ..]`
fn target<'t>(c: &mut Cursor<'t>, func: &Func) -> Result<Written<'t>> {
    let output = c.is_word("output") && c.peek_at(1).kind == Kind::Name && c.take_word("output");
    let (buffer, span) = c.name("`input`, or a block `[LABEL:] [output] BUFFER[..] TYPE = VALUE`")?;
    let axes = c.list("[", "]", |c| axis(c, func))?;
    let dtype = dtype(c)?;
    let (strides, align) = storage(c)?;
    Ok(Written { output, buffer, span, axes, dtype, strides, align })
}

/// The iterators with their extents: stated, or those of the dimensions that the values index by them plainly.
pub(super) fn resolve<'t>(axes: &[Axis<'t>], values: &[Node], func: &Func) -> Result<Vec<(&'t str, i64)>> {
    let extent = |axis: &Axis<'t>| {
        if let Some(extent) = axis.extent {
            return Ok((axis.name, extent));
        }
        let mut uses = Vec::new();
        values.iter().for_each(|value| plain_uses(value, axis.name, func, &mut uses));
        let Some((first, place)) = uses.first().cloned() else {
            // An unknown buffer has no extents: that error comes first.
            let names = (Vec::new(), RefCell::default());
            values.iter().try_for_each(|value| unknown_buffer(value, &Names::new(func, &names.0, &names.1)))?;
            let message = format!("the extent of {0} is not stated, and no buffer is indexed by {0} alone", axis.name);
            let error = at(Code::TeExtent, axis.span.clone(), message);
            return Err(error.help(format!("state it: {} 1024", axis.name)));
        };
        match uses.into_iter().find(|(e, _)| *e != first) {
            None => Ok((axis.name, first)),
            Some((other, elsewhere)) => {
                let error = Error::input(Code::TeExtent, format!("{} has two extents", axis.name));
                let error = error.label(place, first.to_string()).label(elsewhere, other.to_string());
                Err(error.help(format!("write the one that is meant: {} {}", axis.name, first.min(other))))
            }
        }
    };
    axes.iter().map(extent).collect()
}

/// Refuses a value that reads a buffer which does not exist.
fn unknown_buffer(node: &Node, names: &Names<'_>) -> Result<()> {
    match &node.tree {
        Tree::Int(_) | Tree::Float(_) | Tree::Name(_) => Ok(()),
        Tree::Access(buffer, indices) => {
            names.buffer(buffer, node)?;
            indices.iter().try_for_each(|n| unknown_buffer(n, names))
        }
        Tree::Call(_, inner) => inner.iter().try_for_each(|n| unknown_buffer(n, names)),
        Tree::Prefix(_, a) => unknown_buffer(a, names),
        Tree::Infix(_, a, b) => unknown_buffer(a, names).and_then(|()| unknown_buffer(b, names)),
    }
}

fn plain_uses(node: &Node, name: &str, func: &Func, out: &mut Vec<(i64, Range<usize>)>) {
    match &node.tree {
        Tree::Int(_) | Tree::Float(_) | Tree::Name(_) => {}
        Tree::Call(_, inner) => inner.iter().for_each(|n| plain_uses(n, name, func, out)),
        Tree::Prefix(_, a) => plain_uses(a, name, func, out),
        // Quotients of indices hold no elements, but data do on both sides.
        Tree::Infix(Op::FloorDiv | Op::FloorMod, ..) => {}
        Tree::Infix(_, a, b) => {
            plain_uses(a, name, func, out);
            plain_uses(b, name, func, out);
        }
        Tree::Access(buffer, indices) => {
            let Some(id) = func.find_buffer(buffer) else { return };
            for (index, extent) in indices.iter().zip(&func.buffer(id).shape) {
                if let (true, Some(extent)) = (index.tree == Tree::Name(name.to_string()), extent.as_int()) {
                    out.push((extent, index.span.clone()));
                }
            }
            // An index may be an element.
            indices.iter().for_each(|index| plain_uses(index, name, func, out));
        }
    }
}
