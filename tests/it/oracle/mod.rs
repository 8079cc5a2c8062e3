//! A second evaluator of te's text, which shares no code with the compiler: own lexer, parser, types and arithmetic.
//!
//! [`Program::parse`] reads the text of a program whose extents are all stated. [`Program::evaluate`] computes its buffers
//! statement by statement, either in integer mode ([`Integers`]: u32 with wrap-around, where only operations that integer
//! mode defines exactly are known) or in exact arithmetic on small integers ([`Exact`]: every intermediate value has to be
//! an integer that its type holds, in whatever order a sum is taken). Anything else is [`Unknown`], not an answer.

mod arithmetic;
mod combine;
mod parser;
mod types;

pub use arithmetic::{Arithmetic, Exact, Integers};
pub use parser::{Node, Tree, expressions};
pub use types::Type;

use parser::{Reducer, Statement};
use std::collections::HashMap;

/// Why the evaluator gives no answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Unknown(pub String);

/// A buffer of a program.
#[derive(Debug, Clone)]
pub struct Buffer {
    /// Its name in the text.
    pub name: String,
    /// The type of an element.
    pub dtype: Type,
    /// Extents.
    pub shape: Vec<i64>,
    /// Strides in elements.
    pub strides: Vec<i64>,
    /// Whether the caller receives it.
    pub output: bool,
    /// Whether the caller gives it.
    pub input: bool,
    /// The values that the program states of an input, the last one exclusive.
    pub values: Option<(i64, i64)>,
}

impl Buffer {
    /// Elements from the first to behind the last.
    pub fn span(&self) -> usize {
        let last: i64 = self.shape.iter().zip(&self.strides).map(|(n, s)| (n - 1) * s).sum();
        last as usize + 1
    }
}

/// A parsed program.
#[derive(Debug, Clone)]
pub struct Program {
    /// In the order of the text.
    pub buffers: Vec<Buffer>,
    reducers: Vec<Reducer>,
    statements: Vec<Statement>,
}

/// The place of an iterator's value.
#[derive(Debug, Clone)]
enum Index {
    Int(i64),
    Iterator(usize),
    Binary(char, Box<Index>, Box<Index>),
    /// A datum, in the indices of an element alone.
    Datum(Type, Box<Value>),
}

impl Index {
    fn value(&self, point: &[i64]) -> i64 {
        self.value_with(point, &|_, _| Err(Unknown("a datum outside the indices of an element".into())))
            .unwrap_or(i64::MIN)
    }

    fn value_with(&self, point: &[i64], datum: &dyn Fn(Type, &Value) -> Result<i64, Unknown>) -> Result<i64, Unknown> {
        Ok(match self {
            Index::Datum(ty, value) => datum(*ty, value)?,
            Index::Int(v) => *v,
            Index::Iterator(n) => point[*n],
            Index::Binary(op, a, b) => {
                let (a, b) = (a.value_with(point, datum)?, b.value_with(point, datum)?);
                match op {
                    '+' => a + b,
                    '-' => a - b,
                    '*' => a * b,
                    '/' => a.div_euclid(b),
                    '%' => a.rem_euclid(b),
                    'm' => a.min(b),
                    _ => a.max(b),
                }
            }
        })
    }
}

/// An expression with its names resolved and its types known.
#[derive(Debug, Clone)]
enum Value {
    Literal(Type, f64, Option<i128>),
    Index(Type, Index),
    Truth(bool),
    Compare(String, Index, Index),
    CompareData(String, Type, Box<Value>, Box<Value>),
    Logic(char, Box<Value>, Box<Value>),
    Load(usize, Vec<Index>),
    Unary(String, Type, Box<Value>),
    Binary(String, Type, Box<Value>, Box<Value>),
    Select(Box<Value>, Box<Value>, Box<Value>),
    Cast(Type, Type, Box<Value>),
}

/// A statement ready to be computed.
struct Block {
    spatial: Vec<i64>,
    reduce: Vec<i64>,
    parts: Vec<Part>,
}

/// What some buffers are combined by, and their values.
struct Part {
    buffers: Vec<usize>,
    reducer: Option<String>,
    values: Vec<Value>,
}

impl Program {
    /// Reads a program.
    pub fn parse(text: &str) -> Result<Program, Unknown> {
        let parser::Parts { buffers, reducers, statements } = parser::program(text)?;
        Ok(Program { buffers, reducers, statements })
    }

    /// The positions in [`Self::buffers`] of inputs, in order, then of outputs, in order: the parameters.
    pub fn parameters(&self) -> Vec<usize> {
        let of = |keep: fn(&Buffer) -> bool| (0..self.buffers.len()).filter(move |n| keep(&self.buffers[*n]));
        of(|b| b.input).chain(of(|b| b.output)).collect()
    }

    /// All parameters after the program has run; `before` holds them as they were, gaps of strides included.
    pub fn evaluate<A: Arithmetic>(&self, before: &[Vec<A::Number>]) -> Result<Vec<Vec<A::Number>>, Unknown> {
        let parameters = self.parameters();
        let mut memory: Vec<Vec<A::Number>> = self.buffers.iter().map(|b| vec![A::ZERO; b.span()]).collect();
        for (n, values) in parameters.iter().zip(before) {
            if memory[*n].len() != values.len() {
                let name = &self.buffers[*n].name;
                return Err(Unknown(format!("{name} spans {} elements, {} given", memory[*n].len(), values.len())));
            }
            memory[*n].clone_from(values);
        }
        for statement in &self.statements {
            let block = self.resolve(statement)?;
            self.run::<A>(&block, &mut memory)?;
        }
        Ok(parameters.into_iter().map(|n| memory[n].clone()).collect())
    }

    fn run<A: Arithmetic>(&self, block: &Block, memory: &mut [Vec<A::Number>]) -> Result<(), Unknown> {
        let extents: Vec<i64> = block.spatial.iter().chain(&block.reduce).copied().collect();
        let mut point = vec![0i64; extents.len()];
        let spatial = block.spatial.len();
        loop {
            let mut totals: Vec<Option<Vec<A::Number>>> = block.parts.iter().map(|p| self.initial::<A>(p)).collect();
            loop {
                for (part, total) in block.parts.iter().zip(&mut totals) {
                    let values = part.values.iter().map(|v| self.value::<A>(v, &point, memory));
                    let values = values.collect::<Result<Vec<A::Number>, Unknown>>()?;
                    *total = Some(match total.take() {
                        Some(before) => self.combined::<A>(part, before, values, memory)?,
                        None => values,
                    });
                }
                if !advance(&mut point[spatial..], &block.reduce) {
                    break;
                }
            }
            for (part, total) in block.parts.iter().zip(totals) {
                for (buffer, value) in part.buffers.iter().zip(total.unwrap_or_default()) {
                    let strides = &self.buffers[*buffer].strides;
                    let at: i64 = point[..spatial].iter().zip(strides).map(|(i, s)| i * s).sum();
                    memory[*buffer][at as usize] = value;
                }
            }
            if !advance(&mut point[..spatial], &extents[..spatial]) {
                return Ok(());
            }
        }
    }

    fn value<A: Arithmetic>(
        &self,
        value: &Value,
        point: &[i64],
        memory: &[Vec<A::Number>],
    ) -> Result<A::Number, Unknown> {
        let below = |v: &Value| self.value::<A>(v, point, memory);
        match value {
            Value::Literal(ty, real, int) => A::literal(*ty, *real, *int),
            Value::Index(ty, index) => A::index(*ty, index.value(point)),
            Value::Truth(t) => Ok(A::truth(*t)),
            Value::Compare(op, a, b) => Ok(A::truth(compare(op, &a.value(point), &b.value(point))?)),
            Value::CompareData(op, ty, a, b) => A::compare(op, *ty, below(a)?, below(b)?),
            Value::Logic('!', a, _) => Ok(A::truth(!A::is_true(below(a)?))),
            Value::Logic('&', a, b) => Ok(A::truth(A::is_true(below(a)?) && A::is_true(below(b)?))),
            Value::Logic(_, a, b) => Ok(A::truth(A::is_true(below(a)?) || A::is_true(below(b)?))),
            Value::Load(buffer, indices) => self.load::<A>(*buffer, indices, point, memory),
            Value::Unary(op, ty, a) => A::unary(op, *ty, below(a)?),
            Value::Binary(op, ty, a, b) => A::binary(op, *ty, below(a)?, below(b)?),
            Value::Select(c, a, b) => below(if A::is_true(below(c)?) { a } else { b }),
            Value::Cast(from, to, a) => A::cast(*from, *to, below(a)?),
        }
    }

    fn load<A: Arithmetic>(
        &self,
        buffer: usize,
        indices: &[Index],
        point: &[i64],
        memory: &[Vec<A::Number>],
    ) -> Result<A::Number, Unknown> {
        let b = &self.buffers[buffer];
        let mut at = 0;
        for ((index, extent), stride) in indices.iter().zip(&b.shape).zip(&b.strides) {
            let datum = |ty: Type, v: &Value| self.value::<A>(v, point, memory).map(|number| A::as_index(ty, number));
            let value = index.value_with(point, &datum)?;
            if !(0..*extent).contains(&value) {
                return Err(Unknown(format!("{} is read at {value} of {extent}", b.name)));
            }
            at += value * stride;
        }
        Ok(memory[buffer][at as usize])
    }
}

/// The next point of a box in row-major order; false, and the first point, behind the last.
fn advance(point: &mut [i64], extents: &[i64]) -> bool {
    for n in (0..point.len()).rev() {
        point[n] += 1;
        if point[n] < extents[n] {
            return true;
        }
        point[n] = 0;
    }
    false
}

fn compare<T: PartialOrd>(op: &str, a: &T, b: &T) -> Result<bool, Unknown> {
    Ok(match op {
        "<" => a < b,
        "<=" => a <= b,
        "==" => a == b,
        "!=" => a != b,
        ">=" => a >= b,
        ">" => a > b,
        _ => return Err(Unknown(format!("no comparison {op}"))),
    })
}

/// The names of a statement.
struct Names<'a> {
    buffers: &'a [Buffer],
    /// How many of the buffers are known before the statement.
    known: HashMap<&'a str, usize>,
    iterators: Vec<&'a str>,
}

impl Program {
    fn resolve(&self, statement: &Statement) -> Result<Block, Unknown> {
        let known = (0..self.buffers.len()).filter(|n| !self.is_number(*n));
        let names = Names {
            buffers: &self.buffers,
            known: known.map(|n| (self.buffers[n].name.as_str(), n)).collect(),
            iterators: statement.spatial.iter().chain(&statement.reduce).map(|(name, _)| name.as_str()).collect(),
        };
        let mut buffers = statement.buffers.iter().copied();
        let part = |(reducer, nodes): &(Option<String>, Vec<Node>)| {
            let own: Vec<usize> = buffers.by_ref().take(nodes.len()).collect();
            let value = |(node, buffer): (&Node, &usize)| names.value(node, Some(self.buffers[*buffer].dtype));
            let values = nodes.iter().zip(&own).map(value).collect::<Result<Vec<Value>, Unknown>>()?;
            Ok(Part { buffers: own, reducer: reducer.clone(), values })
        };
        Ok(Block {
            spatial: statement.spatial.iter().map(|(_, extent)| *extent).collect(),
            reduce: statement.reduce.iter().map(|(_, extent)| *extent).collect(),
            parts: statement.parts.iter().map(part).collect::<Result<Vec<Part>, Unknown>>()?,
        })
    }
}

fn unknown<T>(what: &str, node: &Node) -> Result<T, Unknown> {
    Err(Unknown(format!("{what}: {:?}", node.tree)))
}

impl Names<'_> {
    /// An index, where the tree is one: iterators, integers and their arithmetic.
    fn index(&self, node: &Node) -> Option<Index> {
        Some(match &node.tree {
            Tree::Int(v) => Index::Int(i64::try_from(*v).ok()?),
            Tree::Name(name) => Index::Iterator(self.iterators.iter().position(|n| n == name)?),
            Tree::Prefix(op, a) if op == "-" => Index::Binary('-', Box::new(Index::Int(0)), Box::new(self.index(a)?)),
            Tree::Infix(op, a, b) => {
                let op = match op.as_str() {
                    "+" => '+',
                    "-" => '-',
                    "*" => '*',
                    "//" => '/',
                    "%" => '%',
                    _ => return None,
                };
                Index::Binary(op, Box::new(self.index(a)?), Box::new(self.index(b)?))
            }
            Tree::Call(name, arguments) => match (name.as_str(), arguments.as_slice()) {
                ("min", [a, b]) => Index::Binary('m', Box::new(self.index(a)?), Box::new(self.index(b)?)),
                ("max", [a, b]) => Index::Binary('x', Box::new(self.index(a)?), Box::new(self.index(b)?)),
                _ => return None,
            },
            _ => return None,
        })
    }

    /// The index of an element, in which elements of integers may stand.
    fn place(&self, node: &Node) -> Option<Index> {
        let pair =
            |op: char, a: &Node, b: &Node| Some(Index::Binary(op, Box::new(self.place(a)?), Box::new(self.place(b)?)));
        match &node.tree {
            Tree::Access(..) => Some(Index::Datum(self.own_type(node)?, Box::new(self.value(node, None).ok()?))),
            Tree::Name(name) if !self.iterators.contains(&name.as_str()) => {
                Some(Index::Datum(self.own_type(node)?, Box::new(self.value(node, None).ok()?)))
            }
            Tree::Infix(op, a, b) => match op.as_str() {
                "+" => pair('+', a, b),
                "-" => pair('-', a, b),
                "*" => pair('*', a, b),
                "//" => pair('/', a, b),
                "%" => pair('%', a, b),
                _ => None,
            },
            Tree::Call(name, arguments) => match (name.as_str(), arguments.as_slice()) {
                ("min", [a, b]) => pair('m', a, b),
                ("max", [a, b]) => pair('x', a, b),
                _ => None,
            },
            _ => self.index(node),
        }
    }

    fn mentions_iterator(&self, node: &Node) -> bool {
        match &node.tree {
            Tree::Name(name) => self.iterators.contains(&name.as_str()),
            Tree::Prefix(_, a) => self.mentions_iterator(a),
            Tree::Infix(_, a, b) => self.mentions_iterator(a) || self.mentions_iterator(b),
            Tree::Call(_, nodes) => nodes.iter().any(|n| self.mentions_iterator(n)),
            _ => false,
        }
    }

    /// The type that a tree has by itself, without what literals take from their places.
    fn own_type(&self, node: &Node) -> Option<Type> {
        match &node.tree {
            Tree::Int(_) | Tree::Float(_) => None,
            Tree::Name(name) => Some(self.known.get(name.as_str()).map_or(Type::BOOL, |n| self.buffers[*n].dtype)),
            Tree::Access(name, _) => self.known.get(name.as_str()).map(|n| self.buffers[*n].dtype),
            Tree::Call(name, nodes) => Type::named(name)
                .or_else(|| nodes.iter().skip(usize::from(name == "select")).find_map(|n| self.own_type(n))),
            Tree::Prefix(op, a) => {
                if op == "not" {
                    Some(Type::BOOL)
                } else {
                    self.own_type(a)
                }
            }
            Tree::Infix(op, ..) if ["and", "or", "<", "<=", "==", "!=", ">=", ">"].contains(&op.as_str()) => {
                Some(Type::BOOL)
            }
            Tree::Infix(_, a, b) => self.own_type(a).or_else(|| self.own_type(b)),
        }
    }

    /// A value in a place that wants a type.
    fn value(&self, node: &Node, wanted: Option<Type>) -> Result<Value, Unknown> {
        let boxed = |n: &Node, t: Option<Type>| self.value(n, t).map(Box::new);
        let none = || Box::new(Value::Truth(false));
        match &node.tree {
            Tree::Int(v) => match wanted {
                Some(ty) => Ok(Value::Literal(ty, *v as f64, Some(*v))),
                None => unknown("a literal without a type", node),
            },
            Tree::Float(v) => match wanted {
                Some(ty) => Ok(Value::Literal(ty, *v, (v.fract() == 0.0).then_some(*v as i128))),
                None => unknown("a literal without a type", node),
            },
            Tree::Name(name) if name == "true" || name == "false" => Ok(Value::Truth(name == "true")),
            Tree::Name(name) if !self.iterators.contains(&name.as_str()) && self.known.contains_key(name.as_str()) => {
                Ok(Value::Load(self.known[name.as_str()], Vec::new()))
            }
            Tree::Name(_) => unknown("a name alone", node),
            Tree::Access(name, nodes) => {
                let Some(buffer) = self.known.get(name.as_str()) else { return unknown("no buffer", node) };
                let indices: Option<Vec<Index>> = nodes.iter().map(|n| self.place(n)).collect();
                match indices.filter(|i| i.len() == self.buffers[*buffer].shape.len()) {
                    Some(indices) => Ok(Value::Load(*buffer, indices)),
                    None => unknown("no element", node),
                }
            }
            Tree::Call(name, nodes) => self.call(name, nodes, node, wanted),
            Tree::Prefix(op, a) if op == "not" => Ok(Value::Logic('!', boxed(a, Some(Type::BOOL))?, none())),
            Tree::Prefix(op, a) => {
                let Some(ty) = self.own_type(a).or(wanted) else { return unknown("no type", node) };
                Ok(Value::Unary(op.clone(), ty, boxed(a, Some(ty))?))
            }
            Tree::Infix(op, a, b) => match op.as_str() {
                "and" => Ok(Value::Logic('&', boxed(a, Some(Type::BOOL))?, boxed(b, Some(Type::BOOL))?)),
                "or" => Ok(Value::Logic('|', boxed(a, Some(Type::BOOL))?, boxed(b, Some(Type::BOOL))?)),
                "<" | "<=" | "==" | "!=" | ">=" | ">" => self.comparison(op, a, b, node),
                _ => {
                    let own = self.own_type(a).or_else(|| self.own_type(b)).or(wanted);
                    let Some(ty) = own else { return unknown("no type", node) };
                    Ok(Value::Binary(op.clone(), ty, boxed(a, Some(ty))?, boxed(b, Some(ty))?))
                }
            },
        }
    }

    fn comparison(&self, op: &str, a: &Node, b: &Node, node: &Node) -> Result<Value, Unknown> {
        if (self.mentions_iterator(a) || self.mentions_iterator(b))
            && let (Some(a), Some(b)) = (self.index(a), self.index(b))
        {
            return Ok(Value::Compare(op.to_string(), a, b));
        }
        let Some(ty) = self.own_type(a).or_else(|| self.own_type(b)) else { return unknown("no type", node) };
        let (a, b) = (self.value(a, Some(ty))?, self.value(b, Some(ty))?);
        Ok(Value::CompareData(op.to_string(), ty, Box::new(a), Box::new(b)))
    }

    fn call(&self, name: &str, nodes: &[Node], node: &Node, wanted: Option<Type>) -> Result<Value, Unknown> {
        let boxed = |n: &Node, t: Option<Type>| self.value(n, t).map(Box::new);
        if let (Some(to), [a]) = (Type::named(name), nodes) {
            if let Some(index) = self.index(a).filter(|_| self.mentions_iterator(a)) {
                return Ok(Value::Index(to, index));
            }
            if matches!(a.tree, Tree::Int(_) | Tree::Float(_)) {
                return self.value(a, Some(to));
            }
            let Some(from) = self.own_type(a) else { return unknown("no type", node) };
            return Ok(Value::Cast(from, to, boxed(a, Some(from))?));
        }
        let arguments = &nodes[usize::from(name == "select").min(nodes.len())..];
        let own = arguments.iter().find_map(|n| self.own_type(n)).or(wanted);
        let Some(ty) = own else { return unknown("no type", node) };
        match (name, nodes) {
            ("min" | "max", [a, b]) => {
                Ok(Value::Binary(name.to_string(), ty, boxed(a, Some(ty))?, boxed(b, Some(ty))?))
            }
            ("select", [c, a, b]) => {
                Ok(Value::Select(boxed(c, Some(Type::BOOL))?, boxed(a, Some(ty))?, boxed(b, Some(ty))?))
            }
            (_, [a]) => Ok(Value::Unary(name.to_string(), ty, boxed(a, Some(ty))?)),
            _ => unknown("no function", node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integers(text: &str, before: &[Vec<u32>]) -> Vec<Vec<u32>> {
        Program::parse(text).unwrap().evaluate::<Integers>(before).unwrap()
    }

    #[test]
    fn a_program_is_computed_by_hand() {
        let text = "program p\ninput A f32[3, 2] strides [4, 1]\nT[i 3] f32 = sum(k 2) A[i, k]\n\
                    U: output U[i 3, j 3] f32 = select(i < j and not j == 2, T[i] * T[j] - 1, max(T[2 - i], A[j, i % 2]))";
        let a = vec![1, 2, 9, 9, 3, 4, 9, 9, 5, 6];
        let out = integers(text, &[a.clone(), vec![0; 9]]);
        assert_eq!(out[1], [11, 20, 11, 7, 7, 7, 3, 3, 5]);
        assert_eq!(out[0], a);
    }

    #[test]
    fn indices_floor() {
        let text = "program p\ninput A f32[4]\noutput U[i 4] f32 = A[(i - 3) // 2 + 2] + A[(i - 3) % 4]";
        assert_eq!(integers(text, &[vec![10, 20, 30, 40], vec![0; 4]])[1], [10 + 20, 20 + 30, 20 + 40, 30 + 10]);
    }

    #[test]
    fn exact_arithmetic_wraps_integers_and_refuses_to_round() {
        let run = |text: &str, a: i128| {
            let program = Program::parse(text).unwrap();
            let before = [vec![Exact::of(a)], vec![Exact::of(0)]];
            program.evaluate::<Exact>(&before).map(|out| out[1][0].value)
        };
        assert_eq!(run("program p\ninput A s8[1]\noutput B[i 1] s8 = A[i] * A[i] + 1", 100), Ok(17));
        assert_eq!(run("program p\ninput A f16[1]\noutput B[i 1] f16 = A[i] * A[i]", 45), Ok(2025));
        assert!(run("program p\ninput A f16[1]\noutput B[i 1] f16 = A[i] * A[i] - A[i] * A[i]", 46).is_err());
        assert!(run("program p\ninput A f32[1]\noutput B[i 1] f32 = A[i] / 2", 1).is_err());
    }
}
