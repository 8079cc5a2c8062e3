//! Index maps: `[i, j] -> [i // 4, j, i % 4]`, the argument of `transform_layout`.

use super::limits;
use crate::error::{Code, Error, Result};
use crate::ir::{Index, IndexOp, Var};
use std::fmt::{Display, Formatter};

/// A function from indices to indices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexMap {
    /// Names of the inputs, for the text alone.
    pub inputs: Vec<String>,
    /// The outputs; `Var(n)` is the n-th input.
    pub outputs: Vec<Index>,
}

impl IndexMap {
    /// The map whose outputs a function makes of its inputs, which have these names.
    ///
    /// ```
    /// use warploom::schedule::IndexMap;
    ///
    /// let map = IndexMap::new(["i", "j"], |[i, j]| vec![i.clone().floordiv(4), j, i.floormod(4)]);
    /// assert_eq!(map.to_string(), "[i, j] -> [i // 4, j, i % 4]");
    /// ```
    pub fn new<const N: usize>(inputs: [&str; N], outputs: impl FnOnce([Index; N]) -> Vec<Index>) -> IndexMap {
        let vars = std::array::from_fn(|n| Index::Var(Var(n as u32)));
        IndexMap { inputs: inputs.map(str::to_string).to_vec(), outputs: outputs(vars) }
    }

    /// Reads the two bracketed lists, without their brackets' surroundings: `[i, j]` and `[i // 4, j]`.
    ///
    /// # Errors
    /// `step.map` where the text is not of that form.
    pub fn parse(inputs: &str, outputs: &str) -> Result<IndexMap> {
        let list = strip(inputs)?;
        let names: Vec<String> = list.split(',').map(|n| n.trim().to_string()).collect();
        for (n, name) in names.iter().enumerate() {
            if !super::is_name(name) || names[..n].contains(name) {
                return Err(refuse(format!("`{name}` cannot name an input of an index map")));
            }
        }
        let mut parser = Parser { tokens: tokens(strip(outputs)?)?, at: 0, names: &names, depth: 0 };
        let mut found = vec![parser.sum()?];
        while parser.eat(",") {
            found.push(parser.sum()?);
        }
        match parser.peek() {
            None => Ok(IndexMap { inputs: names, outputs: found }),
            Some(token) => Err(refuse(format!("`{token}` is unexpected in an index map"))),
        }
    }

    /// The outputs at these inputs; the list must have an index per input.
    pub fn apply(&self, inputs: &[Index]) -> Vec<Index> {
        let map: crate::ir::visit::Map = (0u32..).map(Var).zip(inputs.iter().cloned()).collect();
        self.outputs.iter().map(|o| crate::ir::visit::subst_index(o, &map)).collect()
    }
}

fn refuse(message: String) -> Error {
    Error::input(Code::StepMap, message).help("`[i, j] -> [i // 4, j, i % 4]`")
}

fn strip(text: &str) -> Result<&str> {
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    inner.ok_or_else(|| refuse(format!("`{text}` is not a list in brackets")))
}

fn tokens(text: &str) -> Result<Vec<&str>> {
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if first.is_ascii_alphanumeric() || first == '_' {
            rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else if rest.starts_with("//") {
            2
        } else if "+-*%(),".contains(first) {
            1
        } else {
            return Err(refuse(format!("`{first}` is unexpected in an index map")));
        };
        let (token, after) = rest.split_at(length);
        out.push(token);
        rest = after.trim_start();
    }
    Ok(out)
}

struct Parser<'a> {
    tokens: Vec<&'a str>,
    at: usize,
    names: &'a [String],
    depth: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.at).copied()
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    fn sum(&mut self) -> Result<Index> {
        let mut left = self.product()?;
        loop {
            let op = match self.peek() {
                Some("+") => IndexOp::Add,
                Some("-") => IndexOp::Sub,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Index::bin(op, left, self.product()?);
        }
    }

    fn product(&mut self) -> Result<Index> {
        let mut left = self.atom()?;
        loop {
            let op = match self.peek() {
                Some("*") => IndexOp::Mul,
                Some("//") => IndexOp::FloorDiv,
                Some("%") => IndexOp::FloorMod,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Index::bin(op, left, self.atom()?);
        }
    }

    fn atom(&mut self) -> Result<Index> {
        let Some(token) = self.peek() else { return Err(refuse("an index map ends too early".into())) };
        self.at += 1;
        if token == "(" {
            self.depth += 1;
            if self.depth > limits::NESTING {
                return Err(Error::input(Code::StepLimit, format!("more than {} nested parentheses", limits::NESTING)));
            }
            let inner = self.sum()?;
            self.depth -= 1;
            return if self.eat(")") { Ok(inner) } else { Err(refuse("a parenthesis is not closed".into())) };
        }
        if let Some(n) = self.names.iter().position(|name| name == token) {
            return Ok(Index::Var(Var(n as u32)));
        }
        match token.parse::<i64>() {
            Ok(n) if n <= limits::NUMBER => Ok(Index::Int(n)),
            _ => Err(refuse(format!("`{token}` is neither an input of the index map nor a number"))),
        }
    }
}

impl Display for IndexMap {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let outputs: Vec<String> = self.outputs.iter().map(|o| text(o, &self.inputs, 0)).collect();
        write!(f, "[{}] -> [{}]", self.inputs.join(", "), outputs.join(", "))
    }
}

/// Binding strength: 0 anywhere, 1 as the right side of a sum or in a product, 2 as the right side of a product.
fn text(index: &Index, names: &[String], tight: u8) -> String {
    let (symbol, own, left, right, a, b) = match index {
        Index::Int(n) => return n.to_string(),
        Index::Var(v) => return names.get(v.0 as usize).cloned().unwrap_or_default(),
        Index::Bin(IndexOp::Add, a, b) => ("+", 0, 0, 1, a, b),
        Index::Bin(IndexOp::Sub, a, b) => ("-", 0, 0, 1, a, b),
        Index::Bin(IndexOp::Mul, a, b) => ("*", 1, 1, 2, a, b),
        Index::Bin(IndexOp::FloorDiv, a, b) => ("//", 1, 1, 2, a, b),
        Index::Bin(IndexOp::FloorMod, a, b) => ("%", 1, 1, 2, a, b),
        Index::Bin(IndexOp::Min, a, b) => return format!("min({}, {})", text(a, names, 0), text(b, names, 0)),
        Index::Bin(IndexOp::Max, a, b) => return format!("max({}, {})", text(a, names, 0), text(b, names, 0)),
        Index::Bin(IndexOp::Xor, a, b) => return format!("xor({}, {})", text(a, names, 0), text(b, names, 0)),
    };
    let inner = format!("{} {symbol} {}", text(a, names, left), text(b, names, right));
    if own < tight { format!("({inner})") } else { inner }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_read_back_as_printed() {
        for (inputs, outputs) in [
            ("[i, j]", "[i // 4, j, i % 4]"),
            ("[i]", "[(i + 1) * (i - (2 - i)) // 3 % 5]"),
            ("[a, b]", "[a * (b % 4) // (2 * b), 7]"),
        ] {
            let map = IndexMap::parse(inputs, outputs).unwrap();
            assert_eq!(map.to_string(), format!("{inputs} -> {outputs}"));
        }
    }

    #[test]
    fn what_is_no_map_is_refused() {
        for (inputs, outputs) in
            [("[i, i]", "[i]"), ("[i]", "[j]"), ("[i]", "[i"), ("[i]", "[(i]"), ("[i]", "[i $ 2]"), ("[i]", "[]")]
        {
            assert_eq!(IndexMap::parse(inputs, outputs).unwrap_err().code(), Code::StepMap, "{inputs} {outputs}");
        }
        let deep = format!("[{}i{}]", "(".repeat(2000), ")".repeat(2000));
        assert_eq!(IndexMap::parse("[i]", &deep).unwrap_err().code(), Code::StepLimit);
    }
}
