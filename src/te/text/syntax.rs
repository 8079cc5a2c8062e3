//! Tokens to expression trees, before it is known what is an index and what is a datum.

use super::lexer::{Kind, Token};
use super::{at, shown};
use crate::error::{Code, Result};
use crate::ir::CmpOp;
use std::ops::Range;

/// The deepest expression tree; rooms behind this one recurse over trees.
pub const MAX_DEPTH: usize = 100;
/// The deepest nesting of brackets and prefixes.
const MAX_NESTING: usize = 40;

/// An operation between two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// `or`
    LogicalOr,
    /// `and`
    LogicalAnd,
    /// `<`, `<=`, ..
    Cmp(CmpOp),
    /// `|`
    Or,
    /// `^`
    Xor,
    /// `&`
    And,
    /// `<<`
    Shl,
    /// `>>`
    Shr,
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `//`
    FloorDiv,
    /// `%`
    FloorMod,
}

/// An operation before one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefix {
    /// `-`
    Neg,
    /// `~`
    Not,
    /// `not`
    LogicalNot,
}

/// What an expression is.
#[derive(Debug, Clone, PartialEq)]
pub enum Tree {
    /// An integer with its sign.
    Int(i128),
    /// A floating-point number with its sign.
    Float(f64),
    /// A word alone.
    Name(String),
    /// `BUFFER[..]`
    Access(String, Vec<Node>),
    /// `FUNCTION(..)`
    Call(String, Vec<Node>),
    /// An operation before an operand.
    Prefix(Prefix, Box<Node>),
    /// An operation between operands.
    Infix(Op, Box<Node>, Box<Node>),
}

/// An expression and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What it is.
    pub tree: Tree,
    /// Where it is.
    pub span: Range<usize>,
    depth: usize,
}

/// Reads tokens from left to right.
pub struct Cursor<'a> {
    /// The program.
    pub text: &'a str,
    tokens: &'a [Token],
    position: usize,
    nesting: usize,
}

const END: Token = Token { kind: Kind::End, span: 0..0 };

impl<'a> Cursor<'a> {
    /// At the first token.
    pub fn new(text: &'a str, tokens: &'a [Token]) -> Cursor<'a> {
        Cursor { text, tokens, position: 0, nesting: 0 }
    }

    /// The next token.
    pub fn peek(&self) -> &'a Token {
        self.peek_at(0)
    }

    /// The token `ahead` of the next.
    pub fn peek_at(&self, ahead: usize) -> &'a Token {
        self.tokens.get(self.position + ahead).or(self.tokens.last()).unwrap_or(&END)
    }

    /// Passes over separators; false at the end of the program.
    pub fn next_statement(&mut self) -> bool {
        while self.peek().kind == Kind::Separator {
            self.position += 1;
        }
        self.peek().kind != Kind::End
    }

    /// Fails unless the statement ends here.
    pub fn end_statement(&mut self) -> Result<()> {
        match self.peek().kind {
            Kind::Separator | Kind::End => Ok(()),
            _ => Err(self.unexpected("the end of the statement")),
        }
    }

    /// Takes the next token if it is the symbol.
    pub fn take(&mut self, symbol: &str) -> bool {
        let found = self.is(symbol);
        self.position += usize::from(found);
        found
    }

    /// Whether the next token is the symbol.
    pub fn is(&self, symbol: &str) -> bool {
        matches!(self.peek().kind, Kind::Symbol(s) if s == symbol)
    }

    /// Whether the next token is the word.
    pub fn is_word(&self, word: &str) -> bool {
        self.peek().kind == Kind::Name && self.peek().text(self.text) == word
    }

    /// Takes the next token if it is the word.
    pub fn take_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.position += usize::from(found);
        found
    }

    /// Takes the symbol or fails.
    pub fn expect(&mut self, symbol: &str) -> Result<()> {
        if self.take(symbol) { Ok(()) } else { Err(self.unexpected(&format!("`{symbol}`"))) }
    }

    /// Takes a word or fails; `what` says what it should name.
    pub fn name(&mut self, what: &str) -> Result<(&'a str, Range<usize>)> {
        let token = self.peek();
        if token.kind != Kind::Name {
            return Err(self.unexpected(what));
        }
        self.position += 1;
        Ok((token.text(self.text), token.span.clone()))
    }

    /// Takes an integer or fails.
    pub fn integer(&mut self, what: &str) -> Result<(i64, Range<usize>)> {
        let token = self.peek();
        match token.kind {
            Kind::Int(v) => {
                self.position += 1;
                let fits = i64::try_from(v);
                fits.map(|v| (v, token.span.clone()))
                    .map_err(|_| at(Code::TeLimit, token.span.clone(), "this integer is too large"))
            }
            _ => Err(self.unexpected(what)),
        }
    }

    /// Takes an integer that may have a sign, or fails.
    pub fn signed(&mut self, what: &str) -> Result<(i64, Range<usize>)> {
        let start = self.peek().span.start;
        let negative = self.take("-");
        let (value, span) = self.integer(what)?;
        Ok((if negative { -value } else { value }, start..span.end))
    }

    /// `[ITEM, ..]` or `(ITEM, ..)`, possibly empty.
    pub fn list<T>(&mut self, open: &str, close: &str, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.expect(open)?;
        let mut out = Vec::new();
        if self.take(close) {
            return Ok(out);
        }
        loop {
            out.push(item(self)?);
            if self.take(close) {
                return Ok(out);
            }
            if !self.take(",") {
                return Err(self.unexpected(&format!("`,` or `{close}`")));
            }
        }
    }

    /// The error that something else was expected here.
    pub fn unexpected(&self, expected: &str) -> crate::error::Error {
        let token = self.peek();
        let span = if token.span.is_empty() { self.last_span() } else { token.span.clone() };
        at(Code::TeSyntax, span, format!("expected {expected}, found {}", shown(self.text, token)))
    }

    // The end of the text has no width to underline: the last token represents it.
    fn last_span(&self) -> Range<usize> {
        let last = self.tokens.iter().rev().find(|t| !t.span.is_empty());
        last.map_or(0..0, |t| t.span.clone())
    }

    /// An expression up to something that cannot continue it.
    pub fn expression(&mut self) -> Result<Node> {
        self.infix(0)
    }

    fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.nesting == MAX_NESTING {
            return Err(at(Code::TeLimit, self.peek().span.clone(), format!("nested deeper than {MAX_NESTING}")));
        }
        self.nesting += 1;
        let result = f(self);
        self.nesting -= 1;
        result
    }

    // Precedence climbing: operations of at least `strength`, left to right.
    fn infix(&mut self, strength: u8) -> Result<Node> {
        let mut left = self.prefix(strength)?;
        while let Some((op, own)) = self.operator().filter(|(_, own)| *own >= strength) {
            self.position += 1;
            let right = self.infix(own + 1)?;
            let again = self.operator().is_some_and(|(next, _)| matches!(next, Op::Cmp(_)));
            if matches!(op, Op::Cmp(_)) && again {
                let error = at(Code::TeSyntax, self.peek().span.clone(), "comparisons do not chain");
                return Err(error.help(
                    "join two comparisons by `and` or `or`; `&` and `|` bind tighter than comparisons, so they need parentheses",
                ));
            }
            let span = left.span.start..right.span.end;
            left = node(Tree::Infix(op, Box::new(left), Box::new(right)), span)?;
        }
        Ok(left)
    }

    fn operator(&self) -> Option<(Op, u8)> {
        let symbol = match self.peek().kind {
            Kind::Symbol(s) => s,
            Kind::Name => self.peek().text(self.text),
            _ => return None,
        };
        Some(match symbol {
            "or" => (Op::LogicalOr, 1),
            "and" => (Op::LogicalAnd, 2),
            "<" => (Op::Cmp(CmpOp::Lt), 4),
            "<=" => (Op::Cmp(CmpOp::Le), 4),
            "==" => (Op::Cmp(CmpOp::Eq), 4),
            "!=" => (Op::Cmp(CmpOp::Ne), 4),
            ">=" => (Op::Cmp(CmpOp::Ge), 4),
            ">" => (Op::Cmp(CmpOp::Gt), 4),
            "|" => (Op::Or, 5),
            "^" => (Op::Xor, 6),
            "&" => (Op::And, 7),
            "<<" => (Op::Shl, 8),
            ">>" => (Op::Shr, 8),
            "+" => (Op::Add, 9),
            "-" => (Op::Sub, 9),
            "*" => (Op::Mul, 10),
            "/" => (Op::Div, 10),
            "//" => (Op::FloorDiv, 10),
            "%" => (Op::FloorMod, 10),
            _ => return None,
        })
    }

    fn prefix(&mut self, strength: u8) -> Result<Node> {
        let start = self.peek().span.start;
        let (prefix, own) = if self.is_word("not") && strength <= 3 {
            (Prefix::LogicalNot, 3)
        } else if self.is("-") {
            (Prefix::Neg, 11)
        } else if self.is("~") {
            (Prefix::Not, 11)
        } else {
            return self.atom();
        };
        self.position += 1;
        if prefix == Prefix::Neg
            && let Some(literal) = self.literal(true)
        {
            return Ok(literal);
        }
        let operand = self.nested(|c| c.infix(own))?;
        let span = start..operand.span.end;
        node(Tree::Prefix(prefix, Box::new(operand)), span)
    }

    /// Takes a number, with the sign that precedes it.
    fn literal(&mut self, negative: bool) -> Option<Node> {
        let token = self.peek();
        let tree = match token.kind {
            Kind::Int(v) => Tree::Int(if negative { -i128::from(v) } else { i128::from(v) }),
            Kind::Float(v) => Tree::Float(if negative { -v } else { v }),
            Kind::Name => match token.text(self.text) {
                "inf" => Tree::Float(if negative { f64::NEG_INFINITY } else { f64::INFINITY }),
                "nan" if !negative => Tree::Float(f64::NAN),
                _ => return None,
            },
            _ => return None,
        };
        self.position += 1;
        let start = token.span.start - usize::from(negative).min(token.span.start);
        Some(Node { tree, span: start..token.span.end, depth: 1 })
    }

    fn atom(&mut self) -> Result<Node> {
        if let Some(literal) = self.literal(false) {
            return Ok(literal);
        }
        if self.take("(") {
            let inner = self.nested(Self::expression)?;
            self.expect(")")?;
            return Ok(inner);
        }
        let (name, span) = self.name("a value")?;
        if name == "sum" && self.is("(") {
            let error = at(Code::TeSyntax, span, "a reduction is allowed before the whole value only");
            return Err(error.help("reduce into a buffer of its own: `t[i] f32 = sum(k 16) A[i, k]`"));
        }
        let name = name.to_string();
        let tree = if self.is("[") {
            Tree::Access(name, self.nested(|c| c.list("[", "]", Self::expression))?)
        } else if self.is("(") {
            Tree::Call(name, self.nested(|c| c.list("(", ")", Self::expression))?)
        } else {
            Tree::Name(name)
        };
        let end = self.tokens[..self.position].last().map_or(span.end, |t| t.span.end);
        node(tree, span.start..end)
    }
}

fn node(tree: Tree, span: Range<usize>) -> Result<Node> {
    let below = match &tree {
        Tree::Int(_) | Tree::Float(_) | Tree::Name(_) => 0,
        Tree::Access(_, nodes) | Tree::Call(_, nodes) => nodes.iter().map(|n| n.depth).max().unwrap_or(0),
        Tree::Prefix(_, a) => a.depth,
        Tree::Infix(_, a, b) => a.depth.max(b.depth),
    };
    if below >= MAX_DEPTH {
        let error = at(Code::TeLimit, span, format!("an expression of more than {MAX_DEPTH} levels"));
        return Err(error.help("compute part of it into a buffer of its own"));
    }
    Ok(Node { tree, span, depth: below + 1 })
}
