//! Text to tokens. A newline or `;` outside brackets separates statements.

use super::at;
use crate::error::{Code, Result};
use std::ops::Range;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A word.
    Name,
    /// An integer, without sign.
    Int(u64),
    /// A number with a point or an exponent, without sign.
    Float(f64),
    /// An operator or a bracket.
    Symbol(&'static str),
    /// Between statements.
    Separator,
    /// After everything.
    End,
}

/// A token and its place in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// Where it is.
    pub span: Range<usize>,
}

impl Token {
    /// The token as written.
    pub fn text<'t>(&self, text: &'t str) -> &'t str {
        text.get(self.span.clone()).unwrap_or("")
    }
}

// Longest first.
const SYMBOLS: [&str; 27] = [
    "..=", "..", "<<", ">>", "<=", ">=", "==", "!=", "//", "<", ">", "=", "+", "-", "*", "/", "%", "&", "|", "^", "~",
    "(", ")", "[", "]", ",", ":",
];

/// All tokens, ended by [`Kind::End`].
pub fn tokens(text: &str) -> Result<Vec<Token>> {
    let mut out = Vec::new();
    let (mut position, mut brackets) = (0, 0i64);
    while let Some(c) = text[position..].chars().next() {
        let start = position;
        let rest = &text[position..];
        if c == '#' {
            position += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        position += c.len_utf8();
        let kind = match c {
            '\n' if brackets > 0 => continue,
            '\n' | ';' => Kind::Separator,
            c if c.is_whitespace() => continue,
            c if c.is_ascii_alphabetic() || c == '_' => {
                position = start + rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                Kind::Name
            }
            c if c.is_ascii_digit() => {
                let length = number_length(rest.as_bytes());
                position = start + length;
                number(&rest[..length], start..position)?
            }
            c => {
                let Some(symbol) = SYMBOLS.into_iter().find(|s| rest.starts_with(s)) else {
                    return Err(at(
                        Code::TeSyntax,
                        start..position,
                        format!("the character {c:?} has no meaning here"),
                    ));
                };
                brackets += i64::from(matches!(c, '(' | '[')) - i64::from(matches!(c, ')' | ']'));
                position = start + symbol.len();
                Kind::Symbol(symbol)
            }
        };
        out.push(Token { kind, span: start..position });
    }
    out.push(Token { kind: Kind::End, span: text.len()..text.len() });
    Ok(out)
}

/// Digits, then perhaps a point with digits, then perhaps an exponent.
fn number_length(bytes: &[u8]) -> usize {
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let digit_at = |n: usize| bytes.get(n).is_some_and(u8::is_ascii_digit);
    let mut n = digits(0);
    if bytes.get(n) == Some(&b'.') && digit_at(n + 1) {
        n += 1 + digits(n + 1);
    }
    if matches!(bytes.get(n), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(n + 1), Some(b'+' | b'-')));
        if digit_at(n + 1 + sign) {
            n += 1 + sign + digits(n + 1 + sign);
        }
    }
    n
}

fn number(text: &str, span: Range<usize>) -> Result<Kind> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return text
            .parse()
            .map(Kind::Int)
            .map_err(|_| at(Code::TeLimit, span, "this integer does not fit in 64 bits"));
    }
    match text.parse::<f64>() {
        Ok(v) if v.is_finite() => Ok(Kind::Float(v)),
        _ => Err(at(Code::TeLimit, span, "this number does not fit in a 64-bit float")),
    }
}
