//! Where in a user's file a refusal of the printed program has its cause: the step, or the statement of the program, that last
//! speaks of what is underlined.

use crate::error::Error;

/// A statement of a file and its line, counted from 1.
struct Statement<'t> {
    line: usize,
    text: &'t str,
    is_step: bool,
}

/// The line and the statement of the file that an error with places in a printed program is about.
pub fn cause(error: &Error, file: &str) -> Option<(usize, String)> {
    let statements = statements(file);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let steps = || statements.iter().rev().filter(|s| s.is_step);
    let quoted = steps().find(|s| error.steps().contains(&words(s.text)));
    let printed = error.source_text()?;
    let names: Vec<&str> = error.labels().iter().filter_map(|l| printed.get(l.span.clone())).collect();
    let found = quoted.or_else(|| names.iter().find_map(|name| speaks_of(&statements, name)));
    found.map(|s| (s.line, words(s.text)))
}

/// The last step that speaks of a name, or else of the name that it is made of by default (`i` of `i_0`); else the first statement
/// of the program that does.
fn speaks_of<'s, 't>(statements: &'s [Statement<'t>], name: &str) -> Option<&'s Statement<'t>> {
    let mut stem = name;
    loop {
        let has = |s: &&Statement<'_>| tokens(s.text).any(|t| t == stem);
        let step = statements.iter().rev().filter(|s| s.is_step).find(has);
        if let Some(found) = step.or_else(|| statements.iter().filter(|s| !s.is_step).find(has)) {
            return Some(found);
        }
        stem = stem.rsplit_once('_').map(|(stem, _)| stem).filter(|s| !s.is_empty())?;
    }
}

fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '.')
}

fn statements(file: &str) -> Vec<Statement<'_>> {
    let (mut out, mut is_step) = (Vec::new(), false);
    for (n, line) in file.lines().enumerate() {
        let code = line.split('#').next().unwrap_or("");
        for text in code.split(';').map(str::trim).filter(|t| !t.is_empty()) {
            if text.split_whitespace().next() == Some("target") {
                is_step = true;
            } else {
                out.push(Statement { line: n + 1, text, is_step });
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn the_step_that_speaks_of_a_name_is_found() {
        let file = "program p\n  input A f32[8]\n  out: output B[i 8] f32 = A[i]  # B\ntarget sm_80\n\
                    split i ? 4; bind i_0 blockIdx.x\ncache_read out A shared -> S\ncopy_with S   cp_async # S\nvectorize i_1\n";
        let at = |step: Option<&str>, name: &str| {
            let error = Error::chip(Code::AdmitCopy, "wrong").text(name).label(0..name.len(), "here");
            cause(&step.iter().fold(error, |e, step| e.of_step(*step)), file)
        };
        let found = |line: usize, text: &str| Some((line, text.to_string()));
        assert_eq!(at(Some("copy_with S cp_async"), "B"), found(7, "copy_with S cp_async"));
        assert_eq!(at(None, "S"), found(7, "copy_with S cp_async"));
        assert_eq!(at(None, "i_1"), found(8, "vectorize i_1"));
        assert_eq!(at(None, "i_2"), found(5, "split i ? 4"));
        assert_eq!(at(None, "B"), found(3, "out: output B[i 8] f32 = A[i]"));
        assert_eq!(at(None, "Z"), None);
    }
}
