//! Expression trees to indices, conditions and data: names are resolved and every literal gets its type.

mod data;

use super::syntax::{Node, Op, Prefix, Tree};
use super::{at, placed};
use crate::dtype::DType;
use crate::error::{Code, Error, Result, suggestion};
use crate::ir::{BinOp, BufferId, CmpOp, Cond, Expr, Func, Index, IndexOp, Literal, UnOp, Var, typing, verify};
use crate::te::program::Iterators;
use data::Datum;
use std::cell::RefCell;
use std::ops::Range;

/// What names mean inside the value of a statement.
pub struct Names<'a> {
    /// The program so far, whose buffers can be read.
    func: &'a Func,
    /// The statement's iterators.
    iterators: &'a Iterators,
    /// What holds of them here: the conditions of the selects around.
    given: Cond,
    /// Names of the variables that represent data in indices: they come behind those of the program.
    gathered: &'a RefCell<Vec<String>>,
}

/// The functions of several data.
pub const SEVERAL: [&str; 4] = ["pow", "min", "max", "select"];

/// The functions of one datum.
pub const FUNCTIONS: [(&str, UnOp); 12] = [
    ("abs", UnOp::Abs),
    ("exp", UnOp::Exp),
    ("exp2", UnOp::Exp2),
    ("log", UnOp::Log),
    ("log2", UnOp::Log2),
    ("sqrt", UnOp::Sqrt),
    ("rsqrt", UnOp::Rsqrt),
    ("tanh", UnOp::Tanh),
    ("erf", UnOp::Erf),
    ("log1p", UnOp::Log1p),
    ("sin", UnOp::Sin),
    ("cos", UnOp::Cos),
];

impl<'a> Names<'a> {
    /// The names of a statement.
    pub fn new(func: &'a Func, iterators: &'a Iterators, gathered: &'a RefCell<Vec<String>>) -> Names<'a> {
        Names { func, iterators, given: Cond::TRUE, gathered }
    }

    fn iterator(&self, name: &str) -> Option<Var> {
        self.iterators.iter().find(|(n, ..)| n == name).map(|(_, v, _)| *v)
    }

    /// The buffer of this name.
    pub fn buffer(&self, name: &str, node: &Node) -> Result<BufferId> {
        self.func.find_buffer(name).ok_or_else(|| {
            let guess = suggestion(name, self.func.buffers.iter().map(|b| b.name.as_str()));
            let message = format!("there is no buffer {name} before this statement{guess}");
            let error = at(Code::TeName, node.span.clone(), message);
            error.help("declare it with `input`, or compute it in an earlier statement")
        })
    }

    /// Whether a tree can be an index and depends on an iterator.
    fn is_index(&self, node: &Node) -> bool {
        fn only(names: &Names<'_>, node: &Node, found: &mut bool) -> bool {
            match &node.tree {
                Tree::Int(_) => true,
                Tree::Name(n) => {
                    let known = names.iterator(n).is_some();
                    *found |= known;
                    known
                }
                Tree::Prefix(Prefix::Neg, a) => only(names, a, found),
                Tree::Infix(op, a, b) => index_op(*op).is_some() && only(names, a, found) && only(names, b, found),
                Tree::Call(f, args) => {
                    matches!(f.as_str(), "min" | "max") && args.iter().all(|a| only(names, a, found))
                }
                _ => false,
            }
        }
        let mut found = false;
        only(self, node, &mut found) && found
    }

    fn is_cond(&self, node: &Node) -> bool {
        match &node.tree {
            Tree::Name(n) => matches!(n.as_str(), "true" | "false"),
            Tree::Infix(Op::LogicalAnd | Op::LogicalOr | Op::And | Op::Or, a, b) => self.is_cond(a) && self.is_cond(b),
            Tree::Prefix(Prefix::LogicalNot | Prefix::Not, a) => self.is_cond(a),
            Tree::Infix(Op::Cmp(_), a, b) => {
                let int = |n: &Node| matches!(n.tree, Tree::Int(_));
                (self.is_index(a) && (self.is_index(b) || int(b))) || (self.is_index(b) && int(a))
            }
            _ => false,
        }
    }

    /// The input or stage of one number that has this name.
    fn scalar(&self, name: &str) -> Option<BufferId> {
        self.func.find_buffer(name).filter(|b| self.func.buffer(*b).shape.is_empty())
    }

    fn index(&self, node: &Node) -> Result<Index> {
        self.index_with(node, &mut None)
    }

    /// The dynamic size of that name.
    fn size(&self, name: &str) -> Option<Index> {
        Some(self.func.find_size(name)?.value())
    }

    /// An index that may have data in it, which go to `data` if that is a list.
    fn index_with(&self, node: &Node, data: &mut Option<Vec<Datum>>) -> Result<Index> {
        match &node.tree {
            Tree::Int(v) => int64(*v, node).map(Index::Int),
            Tree::Name(name) if self.iterator(name).is_none() && self.scalar(name).is_some() && data.is_some() => {
                self.datum_index(node, data)
            }
            Tree::Access(..) if data.is_some() => self.datum_index(node, data),
            Tree::Call(f, _) if data.is_some() && DType::parse(f).is_some() => self.datum_index(node, data),
            Tree::Name(name) => self.iterator(name).map(Index::Var).or_else(|| self.size(name)).ok_or_else(|| {
                let all: Vec<&str> = self.iterators.iter().map(|(n, ..)| n.as_str()).collect();
                let guess = suggestion(name, all.iter().copied());
                at(Code::TeName, node.span.clone(), format!("{name} is not an iterator of this statement{guess}"))
                    .help(format!("its iterators are {}", all.join(", ")))
            }),
            Tree::Prefix(Prefix::Neg, a) => {
                let a = self.index_with(a, data)?;
                self.index_bin(IndexOp::Sub, Index::Int(0), a, node)
            }
            Tree::Infix(op, a, b) => match index_op(*op) {
                Some(op) => self.index_pair(op, a, b, node, data),
                None => Err(not_an_index(node)),
            },
            Tree::Call(f, args) => match (f.as_str(), args.as_slice()) {
                ("min", [a, b]) => self.index_pair(IndexOp::Min, a, b, node, data),
                ("max", [a, b]) => self.index_pair(IndexOp::Max, a, b, node, data),
                _ => Err(not_an_index(node)),
            },
            _ => Err(not_an_index(node)),
        }
    }

    fn index_pair(&self, op: IndexOp, a: &Node, b: &Node, node: &Node, data: &mut Option<Vec<Datum>>) -> Result<Index> {
        let left = self.index_with(a, data)?;
        let right = self.index_with(b, data)?;
        if matches!(op, IndexOp::FloorDiv | IndexOp::FloorMod) && right.as_int().is_none_or(|v| v <= 0) {
            return Err(at(Code::TeIndex, b.span.clone(), "an index is divided by positive constants only"));
        }
        // One spelling for a difference: `i + -1` is `i - 1`.
        let flipped = right.as_int().filter(|v| *v < 0).and_then(i64::checked_neg);
        match (op, flipped) {
            (IndexOp::Add, Some(v)) => self.index_bin(IndexOp::Sub, left, Index::Int(v), node),
            (IndexOp::Sub, Some(v)) => self.index_bin(IndexOp::Add, left, Index::Int(v), node),
            _ => self.index_bin(op, left, right, node),
        }
    }

    fn index_bin(&self, op: IndexOp, a: Index, b: Index, node: &Node) -> Result<Index> {
        match Index::bin(op, a, b) {
            Index::Bin(_, a, b) if a.as_int().is_some() && b.as_int().is_some() => {
                Err(at(Code::TeLimit, node.span.clone(), "this index does not fit in 64 bits"))
            }
            index => Ok(index),
        }
    }

    fn cond(&self, node: &Node) -> Result<Cond> {
        let both = |a, b| Ok((Box::new(self.cond(a)?), Box::new(self.cond(b)?)));
        match &node.tree {
            Tree::Name(n) if n == "true" => Ok(Cond::Const(true)),
            Tree::Name(n) if n == "false" => Ok(Cond::Const(false)),
            Tree::Infix(Op::LogicalAnd | Op::And, a, b) => both(a, b).map(|(a, b)| Cond::And(a, b)),
            Tree::Infix(Op::LogicalOr | Op::Or, a, b) => both(a, b).map(|(a, b)| Cond::Or(a, b)),
            Tree::Prefix(Prefix::LogicalNot | Prefix::Not, a) => Ok(Cond::Not(Box::new(self.cond(a)?))),
            Tree::Infix(Op::Cmp(op), a, b) => Ok(Cond::cmp(*op, self.index(a)?, self.index(b)?)),
            _ => Err(Error::bug(Code::TeCondition, "a condition that is none")),
        }
    }

    /// The datum of a tree with its type. `expected` is the type that the place demands, for literals.
    pub fn datum(&self, node: &Node, expected: Option<DType>) -> Result<(Expr, DType)> {
        if self.is_cond(node) {
            return Ok((Expr::Cond(Box::new(self.cond(node)?)), DType::Bool));
        }
        match &node.tree {
            Tree::Int(_) | Tree::Float(_) => literal(&node.tree, &node.span, expected),
            Tree::Name(name) if self.iterator(name).is_none() && self.scalar(name).is_some() => {
                self.element(name, &[], node)
            }
            Tree::Name(name) => Err(self.lonely_name(name, node)),
            Tree::Access(name, indices) => self.element(name, indices, node),
            Tree::Call(name, arguments) => self.call(name, arguments, node, expected),
            Tree::Prefix(Prefix::LogicalNot, a) => Ok((Expr::un(UnOp::Not, self.condition(a, "not")?), DType::Bool)),
            Tree::Prefix(prefix, a) => {
                let op = if *prefix == Prefix::Neg { UnOp::Neg } else { UnOp::Not };
                self.unary(op, a, node, expected)
            }
            Tree::Infix(Op::LogicalAnd, a, b) => self.both(BinOp::And, a, b, "and"),
            Tree::Infix(Op::LogicalOr, a, b) => self.both(BinOp::Or, a, b, "or"),
            Tree::Infix(Op::Cmp(op), a, b) => self.comparison(*op, a, b),
            Tree::Infix(op, a, b) => self.binary(data_op(*op, node)?, a, b, node, expected),
        }
    }

    /// `and` or `or` of conditions of which at least one compares data.
    fn both(&self, op: BinOp, a: &Node, b: &Node, word: &str) -> Result<(Expr, DType)> {
        Ok((Expr::bin(op, self.condition(a, word)?, self.condition(b, word)?), DType::Bool))
    }

    /// An operand of `and`, `or` or `not`.
    fn condition(&self, node: &Node, word: &str) -> Result<Expr> {
        match self.datum(node, Some(DType::Bool))? {
            (value, DType::Bool) => Ok(value),
            (_, dtype) => {
                let error =
                    at(Code::TeType, node.span.clone(), format!("`{word}` takes conditions, but this is {dtype}"));
                Err(error.help("compare it with a value, or write `&`, `|` or `~` for the bits of an integer"))
            }
        }
    }

    fn lonely_name(&self, name: &str, node: &Node) -> Error {
        if self.iterator(name).is_some() {
            let error = at(Code::TeType, node.span.clone(), format!("{name} is an index, not a datum"));
            return error.help(format!("convert it: f32({name})"));
        }
        at(
            Code::TeName,
            node.span.clone(),
            format!("{name} is neither an iterator nor an element `{name}[..]` of a buffer"),
        )
    }

    fn element(&self, name: &str, indices: &[Node], node: &Node) -> Result<(Expr, DType)> {
        let id = self.buffer(name, node)?;
        let buffer = self.func.buffer(id);
        if buffer.shape.len() != indices.len() {
            let dims = crate::error::counted(buffer.shape.len(), "dimension");
            let given = crate::error::counted(indices.len(), "index");
            return Err(at(Code::TeIndex, node.span.clone(), format!("{name} has {dims}, but {given}")));
        }
        let mut data = Some(Vec::new());
        let values = indices.iter().map(|i| self.index_with(i, &mut data)).collect::<Result<Vec<_>>>()?;
        let data = data.unwrap_or_default();
        let mut vars: Vec<(Var, i64)> = self.iterators.iter().map(|(_, v, extent)| (*v, *extent)).collect();
        vars.extend(data.iter().map(|d| (d.var, d.extent)));
        let span = indices.first().zip(indices.last()).map_or(node.span.clone(), |(a, b)| a.span.start..b.span.end);
        // Messages name the variables of data, which the program does not have yet.
        let named = (!data.is_empty()).then(|| {
            let mut func = self.func.clone();
            func.vars.extend(self.gathered.borrow().iter().cloned());
            func
        });
        let inside = verify::in_bounds(named.as_ref().unwrap_or(self.func), id, &values, &vars, &self.given);
        inside.map_err(|e| placed(self.unknown_values(e, name, &values, &data), span))?;
        let load = Expr::load(id, values);
        let value = data.into_iter().rev().fold(load, |e, d| Expr::gather(d.var, (d.low, d.extent), d.value, e));
        Ok((value, buffer.dtype))
    }

    fn call(&self, name: &str, arguments: &[Node], node: &Node, expected: Option<DType>) -> Result<(Expr, DType)> {
        if let Some(dtype) = DType::parse(name) {
            return self.conversion(dtype, only_one(name, arguments, node)?);
        }
        if let Some((_, op)) = FUNCTIONS.iter().find(|(n, _)| *n == name) {
            return self.unary(*op, only_one(name, arguments, node)?, node, expected);
        }
        match (name, arguments) {
            ("min", [a, b]) => self.binary(BinOp::Min, a, b, node, expected),
            ("max", [a, b]) => self.binary(BinOp::Max, a, b, node, expected),
            ("pow", [a, b]) => self.binary(BinOp::Pow, a, b, node, expected),
            ("select", [c, a, b]) => self.select(c, a, b, expected),
            ("min" | "max" | "pow", _) => {
                Err(at(Code::TeType, node.span.clone(), format!("{name} takes two arguments")))
            }
            ("select", _) => Err(at(Code::TeType, node.span.clone(), "select takes a condition and two values")),
            _ => {
                let names: Vec<&str> = FUNCTIONS.iter().map(|(n, _)| *n).collect();
                let guess = suggestion(name, names.iter().copied().chain(SEVERAL));
                let error = at(Code::TeName, node.span.clone(), format!("there is no function {name}{guess}"));
                Err(error.help(format!("use {}, pow, min, max, select or a type", names.join(", "))))
            }
        }
    }

    fn conversion(&self, dtype: DType, inner: &Node) -> Result<(Expr, DType)> {
        if matches!(inner.tree, Tree::Int(_) | Tree::Float(_)) {
            return literal(&inner.tree, &inner.span, Some(dtype));
        }
        if self.is_index(inner) {
            let index = self.index(inner)?;
            // Folding may have left a constant, which is a literal.
            let expr = match index.as_int() {
                Some(v) => literal(&Tree::Int(v.into()), &inner.span, Some(dtype))?.0,
                None => Expr::Index(dtype, Box::new(index)),
            };
            return self.typed(expr, inner);
        }
        let (value, _) = self.datum(inner, None)?;
        Ok((Expr::cast(dtype, value), dtype))
    }

    fn unary(&self, op: UnOp, a: &Node, node: &Node, expected: Option<DType>) -> Result<(Expr, DType)> {
        let (value, dtype) = self.datum(a, expected)?;
        if !typing::unary_exists(op, dtype) {
            return Err(at(Code::TeType, node.span.clone(), format!("this operation does not exist on {dtype}")));
        }
        Ok((Expr::un(op, value), dtype))
    }

    fn under(&self, cond: Cond) -> Names<'a> {
        Names { given: self.given.clone().and(cond), ..*self }
    }

    fn pair(&self, a: &Node, b: &Node, expected: Option<DType>) -> Result<((Expr, Expr), DType)> {
        self.pair_under(a, b, expected, [Cond::TRUE, Cond::TRUE])
    }

    /// Two operands of one type, each where its condition holds.
    fn pair_under(
        &self,
        a: &Node,
        b: &Node,
        expected: Option<DType>,
        [left, right]: [Cond; 2],
    ) -> Result<((Expr, Expr), DType)> {
        let shared = self.evident(a).or_else(|| self.evident(b)).or(expected);
        let (left, left_type) = self.under(left).datum(a, shared)?;
        let (right, right_type) = self.under(right).datum(b, shared)?;
        if left_type != right_type {
            let error = Error::input(Code::TeType, format!("operands of types {left_type} and {right_type}"));
            let error = error.label(a.span.clone(), left_type.name()).label(b.span.clone(), right_type.name());
            return Err(error.help(format!("convert one of them: {left_type}(..) or {right_type}(..)")));
        }
        Ok(((left, right), left_type))
    }

    fn binary(&self, op: BinOp, a: &Node, b: &Node, node: &Node, expected: Option<DType>) -> Result<(Expr, DType)> {
        let ((left, right), dtype) = self.pair(a, b, expected)?;
        if !typing::binary_exists(op, dtype) {
            return Err(at(Code::TeType, node.span.clone(), format!("this operation does not exist on {dtype}")));
        }
        Ok((Expr::bin(op, left, right), dtype))
    }

    fn comparison(&self, op: CmpOp, a: &Node, b: &Node) -> Result<(Expr, DType)> {
        let ((left, right), _) = self.pair(a, b, None)?;
        Ok((Expr::Cmp(op, Box::new(left), Box::new(right)), DType::Bool))
    }

    fn select(&self, c: &Node, a: &Node, b: &Node, expected: Option<DType>) -> Result<(Expr, DType)> {
        let (cond, cond_type) = self.datum(c, Some(DType::Bool))?;
        if cond_type != DType::Bool {
            return Err(at(Code::TeType, c.span.clone(), format!("a condition is bool, but this is {cond_type}")));
        }
        let (yes, no) = verify::guards(&cond);
        let ((left, right), dtype) = self.pair_under(a, b, expected, [yes, no])?;
        Ok((Expr::select(cond, left, right), dtype))
    }

    fn typed(&self, expr: Expr, node: &Node) -> Result<(Expr, DType)> {
        let dtype = typing::dtype_of(self.func, &expr).map_err(|e| placed(e, node.span.clone()))?;
        Ok((expr, dtype))
    }

    /// The type that a tree shows without the help of its surroundings.
    fn evident(&self, node: &Node) -> Option<DType> {
        match &node.tree {
            Tree::Int(_) | Tree::Float(_) => None,
            Tree::Name(name) if !matches!(name.as_str(), "true" | "false") => {
                self.scalar(name).map(|b| self.func.buffer(b).dtype)
            }
            Tree::Name(_) | Tree::Prefix(Prefix::LogicalNot, _) => Some(DType::Bool),
            Tree::Infix(Op::Cmp(_) | Op::LogicalAnd | Op::LogicalOr, ..) => Some(DType::Bool),
            Tree::Access(name, _) => self.func.find_buffer(name).map(|b| self.func.buffer(b).dtype),
            Tree::Call(name, arguments) => DType::parse(name).or_else(|| {
                let skip = usize::from(name == "select");
                arguments.iter().skip(skip).find_map(|a| self.evident(a))
            }),
            Tree::Prefix(_, a) => self.evident(a),
            Tree::Infix(_, a, b) => self.evident(a).or_else(|| self.evident(b)),
        }
    }
}

fn only_one<'n>(name: &str, arguments: &'n [Node], node: &Node) -> Result<&'n Node> {
    match arguments {
        [a] => Ok(a),
        _ => Err(at(Code::TeType, node.span.clone(), format!("{name} takes one argument"))),
    }
}

fn index_op(op: Op) -> Option<IndexOp> {
    Some(match op {
        Op::Add => IndexOp::Add,
        Op::Sub => IndexOp::Sub,
        Op::Mul => IndexOp::Mul,
        Op::FloorDiv => IndexOp::FloorDiv,
        Op::FloorMod => IndexOp::FloorMod,
        _ => return None,
    })
}

fn data_op(op: Op, node: &Node) -> Result<BinOp> {
    Ok(match op {
        Op::Add => BinOp::Add,
        Op::Sub => BinOp::Sub,
        Op::Mul => BinOp::Mul,
        Op::Div => BinOp::Div,
        Op::And => BinOp::And,
        Op::Or => BinOp::Or,
        Op::Xor => BinOp::Xor,
        Op::Shl => BinOp::Shl,
        Op::Shr => BinOp::Shr,
        _ => return Err(at(Code::TeType, node.span.clone(), "this operation is for indices; data divide with `/`")),
    })
}

fn not_an_index(node: &Node) -> Error {
    let error = at(Code::TeIndex, node.span.clone(), "this is not an index");
    error.help("an index is made of iterators, integers, elements of integer buffers, `+ - * // %`, min and max")
}

fn int64(value: i128, node: &Node) -> Result<i64> {
    i64::try_from(value).map_err(|_| at(Code::TeLimit, node.span.clone(), "this integer does not fit in 64 bits"))
}

fn literal(tree: &Tree, span: &Range<usize>, expected: Option<DType>) -> Result<(Expr, DType)> {
    let Some(dtype) = expected else {
        let error = at(Code::TeType, span.clone(), "nothing here says which type this literal has");
        return Err(error.help("write its type around it: f32(1.0)"));
    };
    let wrong = || at(Code::TeType, span.clone(), format!("this literal is not a value of type {dtype}"));
    let literal = match (tree, typing::integer_range(dtype)) {
        (Tree::Int(v), Some((low, high))) => {
            Literal::Int(i64::try_from(*v).ok().filter(|v| (low..=high).contains(v)).ok_or_else(wrong)?)
        }
        (Tree::Int(v), None) => Literal::Float(*v as f64),
        (Tree::Float(v), None) => Literal::Float(*v),
        _ => return Err(wrong()),
    };
    Ok((Expr::Const(dtype, literal), dtype))
}
