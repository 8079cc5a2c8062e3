//! Words and marks of a PTX text, with their lines; comments are kept apart.

use crate::error::{Code, Error, Result};

/// A token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim::ptx) struct Token<'a> {
    /// A word (a name, a number, an opcode with its dots) or one mark.
    pub text: &'a str,
    /// The line, counted from 1.
    pub line: u32,
}

/// A comment: what follows `//`, and its line.
pub(in crate::sim::ptx) type Comment<'a> = (u32, &'a str);

fn is_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$' | b'%' | b'.')
}

/// The tokens and the comments of a text.
///
/// # Errors
/// A character that PTX does not have, and a comment or a string that does not end.
pub(in crate::sim::ptx) fn tokens(text: &str) -> Result<(Vec<Token<'_>>, Vec<Comment<'_>>)> {
    let raw = text.as_bytes();
    let (mut tokens, mut comments) = (Vec::new(), Vec::new());
    let (mut at, mut line) = (0, 1);
    while let Some(c) = raw.get(at) {
        let start = at;
        match c {
            b'\n' => {
                line += 1;
                at += 1;
            }
            c if c.is_ascii_whitespace() => at += 1,
            b'/' if raw.get(at + 1) == Some(&b'/') => {
                at += raw[at..].iter().position(|c| *c == b'\n').unwrap_or(raw.len() - at);
                comments.push((line, text.get(start + 2..at).unwrap_or("").trim_end()));
            }
            b'/' if raw.get(at + 1) == Some(&b'*') => {
                let end = text.get(at + 2..).and_then(|t| t.find("*/"));
                let end = end.ok_or_else(|| wrong(line, "a comment does not end"))?;
                line += text.get(at..at + end).map_or(0, |t| t.matches('\n').count()) as u32;
                at += end + 4;
            }
            b'"' => {
                let end = raw[at + 1..].iter().position(|c| *c == b'"');
                at += end.ok_or_else(|| wrong(line, "a string does not end"))? + 2;
                tokens.push(Token { text: text.get(start..at).unwrap_or(""), line });
            }
            c if is_word(*c) => {
                // `::` belongs to a word where more of it follows: `shared::cta`, but not `again:`.
                loop {
                    at += raw[at..].iter().position(|c| !is_word(*c)).unwrap_or(raw.len() - at);
                    let joins = raw.get(at..at + 2) == Some(b"::") && raw.get(at + 2).is_some_and(|c| is_word(*c));
                    if !joins {
                        break;
                    }
                    at += 2;
                }
                tokens.push(Token { text: text.get(start..at).unwrap_or(""), line });
            }
            b'{' | b'}' | b'(' | b')' | b'[' | b']' | b'<' | b'>' | b',' | b';' | b':' | b'+' | b'-' | b'|' | b'@'
            | b'!' | b'=' => {
                at += 1;
                tokens.push(Token { text: text.get(start..at).unwrap_or(""), line });
            }
            _ => {
                let shown: String = text.get(at..).and_then(|t| t.chars().next()).into_iter().collect();
                return Err(wrong(line, &format!("`{shown}` is no character of PTX")));
            }
        }
    }
    Ok((tokens, comments))
}

/// A text that is no PTX.
pub(in crate::sim::ptx) fn wrong(line: u32, message: &str) -> Error {
    Error::bug(Code::PtxParse, format!("line {line} of the PTX: {message}"))
}
