//! Text to statements and expression trees that know their places.

use super::types::Type;
use super::{Buffer, Unknown};
use std::ops::Range;

/// What an expression is.
#[derive(Debug, Clone, PartialEq)]
pub enum Tree {
    /// An integer.
    Int(i128),
    /// A number with a point or an exponent, `inf` or `-inf`.
    Float(f64),
    /// A word alone.
    Name(String),
    /// An element of a buffer.
    Access(String, Vec<Node>),
    /// A function.
    Call(String, Vec<Node>),
    /// `-`, `~` or `not`.
    Prefix(String, Box<Node>),
    /// An operation between two.
    Infix(String, Box<Node>, Box<Node>),
}

/// An expression and its bytes in the text.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What it is.
    pub tree: Tree,
    /// Where it is.
    pub span: Range<usize>,
}

impl Node {
    /// The expressions that it is made of.
    pub fn children(&self) -> Vec<&Node> {
        match &self.tree {
            Tree::Int(_) | Tree::Float(_) | Tree::Name(_) => Vec::new(),
            Tree::Access(_, nodes) | Tree::Call(_, nodes) => nodes.iter().collect(),
            Tree::Prefix(_, a) => vec![a],
            Tree::Infix(_, a, b) => vec![a, b],
        }
    }
}

/// `BUFFER[ITERATOR EXTENT, ..] TYPE, .. = [REDUCER(..)] VALUE, ..`.
#[derive(Debug, Clone)]
pub struct Statement {
    pub buffers: Vec<usize>,
    pub spatial: Vec<(String, i64)>,
    pub reduce: Vec<(String, i64)>,
    /// Each with the values that it combines, of as many buffers.
    pub parts: Vec<(Option<String>, Vec<Node>)>,
}

/// `reducer NAME(LEFT TYPE, ..) with (RIGHT, ..) from (..) = (VALUE, ..)`: what it begins from makes no difference.
#[derive(Debug, Clone)]
pub struct Reducer {
    pub name: String,
    /// The numbers of both tuples are buffers that nothing else knows.
    pub left: Vec<usize>,
    pub right: Vec<usize>,
    pub values: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Int(i128),
    Float(f64),
    Symbol(String),
    Line,
}

struct Cursor {
    tokens: Vec<(Token, Range<usize>)>,
    at: usize,
}

/// What a program's text is made of.
#[derive(Debug, Clone, Default)]
pub struct Parts {
    pub buffers: Vec<Buffer>,
    pub reducers: Vec<Reducer>,
    pub statements: Vec<Statement>,
}

/// A program's buffers, reducers and statements.
pub fn program(text: &str) -> Result<Parts, Unknown> {
    let mut c = Cursor { tokens: tokens(text)?, at: 0 };
    let mut parts = Parts::default();
    c.lines();
    if c.word()? != "program" {
        return Err(Unknown("the text begins with no `program NAME`".into()));
    }
    c.word()?;
    while c.lines() {
        c.statement(&mut parts)?;
    }
    Ok(parts)
}

/// The values of all statements.
pub fn expressions(text: &str) -> Vec<Node> {
    let statements = program(text).map(|p| p.statements).unwrap_or_default();
    statements.into_iter().flat_map(|s| s.parts).flat_map(|(_, values)| values).collect()
}

fn tokens(text: &str) -> Result<Vec<(Token, Range<usize>)>, Unknown> {
    let bytes = text.as_bytes();
    let (mut out, mut at, mut depth) = (Vec::new(), 0, 0i32);
    while at < bytes.len() {
        let start = at;
        let c = bytes[at];
        let run = |keep: &dyn Fn(u8) -> bool| at + bytes[at..].iter().take_while(|b| keep(**b)).count();
        match c {
            b'#' => at = run(&|b| b != b'\n'),
            b'\n' | b';' => {
                at += 1;
                if depth == 0 || c == b';' {
                    out.push((Token::Line, start..at));
                }
            }
            _ if c.is_ascii_whitespace() => at += 1,
            _ if c.is_ascii_alphabetic() || c == b'_' => {
                at = run(&|b| b.is_ascii_alphanumeric() || b == b'_');
                out.push((Token::Word(text[start..at].to_string()), start..at));
            }
            _ if c.is_ascii_digit() => {
                let mut real = false;
                at = run(&|b| b.is_ascii_digit());
                if bytes.get(at) == Some(&b'.') && bytes.get(at + 1) != Some(&b'.') {
                    real = true;
                    at += 1 + bytes[at + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
                }
                if matches!(bytes.get(at), Some(b'e' | b'E')) {
                    real = true;
                    at += 1 + usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
                    at += bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
                }
                let word = &text[start..at];
                let wrong = || Unknown(format!("the number {word}"));
                let token = match real {
                    true => Token::Float(word.parse().map_err(|_| wrong())?),
                    false => Token::Int(word.parse().map_err(|_| wrong())?),
                };
                out.push((token, start..at));
            }
            _ => {
                let two = text.get(at..at + 2).unwrap_or("");
                let long = ["<<", ">>", "<=", ">=", "==", "!=", "//", ".."].contains(&two);
                at += if long { 2 } else { 1 };
                depth += i32::from(matches!(c, b'(' | b'[')) - i32::from(matches!(c, b')' | b']'));
                out.push((Token::Symbol(text.get(start..at).unwrap_or("").to_string()), start..at));
            }
        }
    }
    out.push((Token::Line, text.len()..text.len()));
    Ok(out)
}

impl Cursor {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::Line, |t| &t.0)
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self.peek(), Token::Symbol(s) if s == symbol)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(w) if w == word)
    }

    fn take(&mut self, symbol: &str) -> bool {
        let found = self.is(symbol);
        self.at += usize::from(found);
        found
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<(), Unknown> {
        if self.take(symbol) { Ok(()) } else { Err(Unknown(format!("{symbol} and not {:?}", self.peek()))) }
    }

    /// Passes over ends of lines; false at the end of the text.
    fn lines(&mut self) -> bool {
        while self.at < self.tokens.len() && *self.peek() == Token::Line {
            self.at += 1;
        }
        self.at < self.tokens.len()
    }

    fn word(&mut self) -> Result<String, Unknown> {
        match self.peek().clone() {
            Token::Word(w) => {
                self.at += 1;
                Ok(w)
            }
            other => Err(Unknown(format!("a word and not {other:?}"))),
        }
    }

    fn number(&mut self) -> Result<i64, Unknown> {
        match *self.peek() {
            Token::Int(v) => {
                self.at += 1;
                i64::try_from(v).map_err(|_| Unknown(format!("{v} is too large")))
            }
            ref other => Err(Unknown(format!("a number and not {other:?}"))),
        }
    }

    fn list<T>(
        &mut self,
        open: &str,
        close: &str,
        item: impl Fn(&mut Cursor) -> Result<T, Unknown>,
    ) -> Result<Vec<T>, Unknown> {
        self.expect(open)?;
        let mut out = Vec::new();
        while !self.take(close) {
            if !out.is_empty() {
                self.expect(",")?;
            }
            out.push(item(self)?);
        }
        Ok(out)
    }

    fn dtype(&mut self) -> Result<Type, Unknown> {
        let word = self.word()?;
        Type::named(&word).ok_or_else(|| Unknown(format!("the type {word}")))
    }

    /// Strides, packed where the text states none; an alignment is read and dropped.
    fn strides(&mut self, shape: &[i64]) -> Result<Vec<i64>, Unknown> {
        let mut strides = vec![1; shape.len()];
        for n in (1..shape.len()).rev() {
            strides[n - 1] = strides[n] * shape[n];
        }
        if self.take_word("strides") {
            strides = self.list("[", "]", Cursor::number)?;
        }
        if self.take_word("align") {
            self.number()?;
        }
        Ok(strides)
    }

    /// `in LOW..END`
    fn values(&mut self) -> Result<Option<(i64, i64)>, Unknown> {
        if !self.take_word("in") {
            return Ok(None);
        }
        let signed = |c: &mut Cursor| {
            let negative = c.take("-");
            c.number().map(|v| if negative { -v } else { v })
        };
        let low = signed(self)?;
        self.expect("..")?;
        Ok(Some((low, signed(self)?)))
    }

    /// Whether a word stands here, and behind it what the function accepts.
    fn begins(&self, word: &str, next: fn(&Token) -> bool) -> bool {
        self.is_word(word) && self.tokens.get(self.at + 1).is_some_and(|t| next(&t.0))
    }

    fn reducer(&mut self, parts: &mut Parts) -> Result<(), Unknown> {
        self.at += 1;
        let name = self.word()?;
        let left = self.list("(", ")", |c| Ok((c.word()?, c.dtype()?)))?;
        self.word()?;
        let right = self.list("(", ")", Cursor::word)?;
        self.word()?;
        self.list("(", ")", |c| c.expression(0))?;
        self.expect("=")?;
        let values = self.list("(", ")", |c| c.expression(0))?;
        let types: Vec<Type> = left.iter().map(|(_, dtype)| *dtype).collect();
        let left = left.into_iter().map(|(name, _)| name).collect();
        let [left, right] = [left, right].map(|names: Vec<String>| {
            let number = |(name, dtype): (String, &Type)| {
                let (dtype, shape, strides) = (*dtype, Vec::new(), Vec::new());
                parts.buffers.push(Buffer { name, dtype, shape, strides, output: false, input: false, values: None });
                parts.buffers.len() - 1
            };
            names.into_iter().zip(&types).map(number).collect()
        });
        parts.reducers.push(Reducer { name, left, right, values });
        Ok(())
    }

    fn statement(&mut self, parts: &mut Parts) -> Result<(), Unknown> {
        if self.begins("reducer", |t| matches!(t, Token::Word(_))) {
            return self.reducer(parts);
        }
        if self.is_word("input") && matches!(self.tokens.get(self.at + 1), Some((Token::Word(_), _))) {
            self.at += 1;
            let (name, dtype) = (self.word()?, self.dtype()?);
            let shape = if self.is("[") { self.list("[", "]", Cursor::number)? } else { Vec::new() };
            let values = self.values()?;
            let strides = self.strides(&shape)?;
            parts.buffers.push(Buffer { name, dtype, shape, strides, output: false, input: true, values });
            return Ok(());
        }
        if matches!(self.tokens.get(self.at + 1), Some((Token::Symbol(s), _)) if s == ":") {
            self.at += 2;
        }
        let (mut own, mut spatial): (Vec<usize>, Vec<(String, i64)>) = (Vec::new(), Vec::new());
        loop {
            let output = self.begins("output", |t| matches!(t, Token::Word(_)));
            self.at += usize::from(output);
            let name = self.word()?;
            // Extents that are left out are those of the first buffer.
            let first = spatial.clone();
            spatial = self.list("[", "]", |c| c.iterator(&first))?;
            let dtype = self.dtype()?;
            let shape: Vec<i64> = spatial.iter().map(|(_, extent)| *extent).collect();
            let strides = self.strides(&shape)?;
            own.push(parts.buffers.len());
            parts.buffers.push(Buffer { name, dtype, shape, strides, output, input: false, values: None });
            if !self.take(",") {
                break;
            }
        }
        self.expect("=")?;
        let (mut reduce, mut found): (Vec<(String, i64)>, Vec<_>) = (Vec::new(), Vec::new());
        loop {
            let tuples = ["argmax", "argmin"].into_iter().chain(parts.reducers.iter().map(|r| r.name.as_str()));
            let tuples: Vec<String> = tuples.filter(|r| self.is_word(r)).map(str::to_string).collect();
            let reduces = !tuples.is_empty() || ["sum", "max", "min"].iter().any(|r| self.is_word(r));
            let at = |n: usize| self.tokens.get(self.at + n).map(|t| &t.0);
            let reduces = reduces
                && matches!(at(1), Some(Token::Symbol(s)) if s == "(")
                && matches!(at(2), Some(Token::Word(_)))
                && (matches!(at(3), Some(Token::Int(_))) || !reduce.is_empty() || !tuples.is_empty());
            let reducer = match reduces {
                true => {
                    let (name, first) = (self.word()?, reduce.clone());
                    reduce = self.list("(", ")", |c| c.iterator(&first))?;
                    Some(name)
                }
                false => None,
            };
            let values = match tuples.is_empty() {
                true => vec![self.expression(0)?],
                false => self.list("(", ")", |c| c.expression(0))?,
            };
            found.push((reducer, values));
            if !self.take(",") {
                break;
            }
        }
        if *self.peek() != Token::Line {
            return Err(Unknown(format!("the end of a line and not {:?}", self.peek())));
        }
        if found.iter().map(|(_, values)| values.len()).sum::<usize>() != own.len() {
            return Err(Unknown("buffers and values differ in number".into()));
        }
        parts.statements.push(Statement { buffers: own, spatial, reduce, parts: found });
        Ok(())
    }

    /// An iterator with its extent, which an earlier one of the name may have stated.
    fn iterator(&mut self, first: &[(String, i64)]) -> Result<(String, i64), Unknown> {
        let name = self.word()?;
        let stated = first.iter().find(|(n, _)| *n == name).map(|(_, extent)| *extent);
        let extent = self.number().or_else(|e| stated.ok_or(e))?;
        Ok((name, extent))
    }

    fn strength(&self) -> Option<(String, u8)> {
        let symbol = match self.peek() {
            Token::Symbol(s) | Token::Word(s) => s.as_str(),
            _ => return None,
        };
        let own = match symbol {
            "or" => 1,
            "and" => 2,
            "<" | "<=" | "==" | "!=" | ">=" | ">" => 4,
            "|" => 5,
            "^" => 6,
            "&" => 7,
            "<<" | ">>" => 8,
            "+" | "-" => 9,
            "*" | "/" | "//" | "%" => 10,
            _ => return None,
        };
        Some((symbol.to_string(), own))
    }

    fn expression(&mut self, least: u8) -> Result<Node, Unknown> {
        let mut left = self.operand()?;
        while let Some((op, own)) = self.strength().filter(|(_, own)| *own >= least) {
            self.at += 1;
            let right = self.expression(own + 1)?;
            let span = left.span.start..right.span.end;
            left = Node { tree: Tree::Infix(op, Box::new(left), Box::new(right)), span };
        }
        Ok(left)
    }

    fn operand(&mut self) -> Result<Node, Unknown> {
        let start = self.tokens.get(self.at).map_or(0, |t| t.1.start);
        let behind = |c: &Cursor| c.tokens[c.at.max(1) - 1].1.end;
        let prefix = ["-", "~"].into_iter().find(|s| self.is(s)).or(self.is_word("not").then_some("not"));
        if let Some(op) = prefix {
            self.at += 1;
            let negated = match (op, self.peek().clone()) {
                ("-", Token::Int(v)) => Some(Tree::Int(-v)),
                ("-", Token::Float(v)) => Some(Tree::Float(-v)),
                ("-", Token::Word(w)) if w == "inf" => Some(Tree::Float(f64::NEG_INFINITY)),
                _ => None,
            };
            if let Some(tree) = negated {
                self.at += 1;
                return Ok(Node { tree, span: start..behind(self) });
            }
            let operand = self.expression(if op == "not" { 3 } else { 11 })?;
            return Ok(Node { tree: Tree::Prefix(op.to_string(), Box::new(operand)), span: start..behind(self) });
        }
        if self.take("(") {
            let inner = self.expression(0)?;
            self.expect(")")?;
            // With its brackets, so that the bytes can be replaced.
            return Ok(Node { span: start..behind(self), ..inner });
        }
        let tree = match self.peek().clone() {
            Token::Int(v) => {
                self.at += 1;
                Tree::Int(v)
            }
            Token::Float(v) => {
                self.at += 1;
                Tree::Float(v)
            }
            Token::Word(w) => {
                self.at += 1;
                if w == "inf" {
                    Tree::Float(f64::INFINITY)
                } else if self.is("[") {
                    Tree::Access(w, self.list("[", "]", |c| c.expression(0))?)
                } else if self.is("(") {
                    Tree::Call(w, self.list("(", ")", |c| c.expression(0))?)
                } else {
                    Tree::Name(w)
                }
            }
            other => return Err(Unknown(format!("a value and not {other:?}"))),
        };
        Ok(Node { tree, span: start..behind(self) })
    }
}
