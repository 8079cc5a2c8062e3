//! The one layout of a `.loom` text.
//!
//! The statements below `program NAME` are indented. One blank between words; steps as they print; `; ` between the statements of a line, which stay on their line; comments
//! two blanks behind the code, aligned in a paragraph; at most one empty line in a row, none at the ends. Comments and the
//! division into lines are the author's. The text means what it meant, and formatting it once more changes nothing.

use super::{Schedule, target_statement};
use crate::error::{Code, Error, Result};
use crate::schedule;
use crate::te::Spacing;

/// Code that is longer, in characters, does not push the comments of its paragraph to the right.
const LONGEST_ALIGNED: usize = 72;

/// What a statement below `program NAME` is indented by, and once more what goes on with a statement of the line before.
const INDENT: &str = "  ";

/// A line: its code and its comment, either of which may be empty.
struct Line {
    indent: String,
    code: String,
    comment: String,
}

impl Line {
    fn is_empty(&self) -> bool {
        self.code.is_empty() && self.comment.is_empty()
    }

    fn width(&self) -> usize {
        self.indent.len() + self.code.chars().count()
    }

    /// Whether its comment is aligned with those of its neighbours.
    fn is_aligned(&self) -> bool {
        !self.code.is_empty() && !self.comment.is_empty() && self.width() <= LONGEST_ALIGNED
    }
}

/// A `.loom` text in the one layout.
///
/// # Errors
/// Those of [`Schedule::parse`]: a text is formatted where it parses. The formatter does not compute the steps of lines `recommend`.
pub fn format(text: &str) -> Result<String> {
    let schedule = parsed(text)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let out = laid_out(&lines(text)?);
    match parsed(&out) {
        Ok(again) if again == schedule => Ok(out),
        _ => Err(Error::bug(Code::LoomFormat, "the text in the one layout does not mean what the text means")),
    }
}

/// The text in the one layout, whether or not its steps are schedules: that of a space of the tuner.
///
/// # Errors
/// `loom.target`.
pub(crate) fn layout(text: &str) -> Result<String> {
    lines(text).map(|lines| laid_out(&lines))
}

/// The schedule with a step of its own in place of each line `recommend`, whose steps the layout has nothing to do with.
fn parsed(text: &str) -> Result<Schedule> {
    Schedule::parse_with(text, None, &mut |_| schedule::parse("unroll recommend"))
}

fn lines(text: &str) -> Result<Vec<Line>> {
    let (target, _) = target_statement(text)?;
    let (mut out, mut spacing, mut start) = (Vec::new(), Spacing::default(), 0);
    // Whether a line `program NAME` has begun.
    let mut is_own = false;
    for line in text.split_inclusive('\n') {
        let whole = line.trim_end_matches(['\n', '\r']);
        let (code, comment) = whole.find('#').map_or((whole, ""), |at| whole.split_at(at));
        let is_inside = spacing.is_inside();
        let (mut at, mut statements) = (start, Vec::new());
        for piece in code.split(';') {
            let statement = match piece.trim() {
                "" => String::new(),
                trimmed if at + piece.len() <= target.start => spacing.piece(trimmed),
                trimmed => step(trimmed),
            };
            if !statement.is_empty() {
                statements.push(statement);
            }
            at += piece.len() + 1;
        }
        let depth = match (is_own && start + line.len() <= target.start, is_inside) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 2,
        };
        is_own |= statements.iter().any(|s| s.starts_with("program "));
        let is_blank = statements.is_empty() && comment.is_empty();
        let indent = if is_blank { String::new() } else { INDENT.repeat(depth) };
        out.push(Line { indent, code: statements.join("; "), comment: remark(comment) });
        start += line.len();
    }
    Ok(out)
}

/// A step as it prints, or the target's line.
fn step(text: &str) -> String {
    let words = || text.split_whitespace().collect::<Vec<_>>().join(" ");
    match schedule::parse(text).as_deref() {
        Ok([step]) => step.to_string(),
        _ => words(),
    }
}

/// A comment with a blank behind its sign, unless it is a rule such as `#----` or `##`.
fn remark(comment: &str) -> String {
    let comment = comment.trim_end();
    match comment.strip_prefix('#') {
        Some(rest) if rest.starts_with(|c: char| c.is_alphanumeric()) => format!("# {rest}"),
        _ => comment.to_string(),
    }
}

fn laid_out(lines: &[Line]) -> String {
    let mut out = String::new();
    for paragraph in lines.split(Line::is_empty).filter(|p| !p.is_empty()) {
        if !out.is_empty() {
            out.push('\n');
        }
        let column = paragraph.iter().filter(|l| l.is_aligned()).map(Line::width).max().unwrap_or(0);
        for line in paragraph {
            out.push_str(&line.indent);
            out.push_str(&line.code);
            if !line.comment.is_empty() {
                let width = if line.is_aligned() { column + 2 - line.width() } else { 2 };
                out.push_str(&" ".repeat(if line.code.is_empty() { 0 } else { width }));
                out.push_str(&line.comment);
            }
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Area;

    fn formatted(text: &str) -> String {
        let once = format(text).unwrap();
        assert_eq!(format(&once).unwrap(), once, "a second time changes it");
        once
    }

    #[test]
    fn a_text_has_one_layout() {
        let text = "\u{feff}\r\n\n#  adds \nvec_add   1000 # ragged\ttail  \n\n\n  target\tsm_80;\n \
                    split  i ?  128->a\t b ;;bind a   blockIdx.x#grid\n";
        let error = format(text).unwrap_err();
        assert_eq!(error.code().area(), Some(Area::Step), "words are separated by blanks: {error}");
        let text = text.replace("128->a", "128 -> a");
        assert_eq!(
            formatted(&text),
            "#  adds\nvec_add 1000  # ragged\ttail\n\ntarget sm_80\nsplit i ? 128 -> a b; bind a blockIdx.x  # grid\n"
        );
        assert_eq!(formatted("vec_add 8;target sm_80;unroll i"), "vec_add 8; target sm_80; unroll i\n");
    }

    #[test]
    fn comments_of_a_paragraph_are_aligned_but_not_with_those_of_long_lines() {
        let text = "vec_add 1000 # a\ntarget sm_80\nsplit i ? 128 -> i0 i1 # b\n# alone\nbind i0 blockIdx.x # c\n\nbind i1 threadIdx.x # d";
        let wanted = "vec_add 1000            # a\ntarget sm_80\nsplit i ? 128 -> i0 i1  # b\n# alone\n\
                      bind i0 blockIdx.x      # c\n\nbind i1 threadIdx.x  # d\n";
        assert_eq!(formatted(text), wanted);
        let long = "vec_add 1000 # a\ntarget sm_80\nsplit i ? 128 -> a_long_name_of_a_loop another_one_of_that_kind_which_is_long # b\n";
        assert!(formatted(long).starts_with("vec_add 1000  # a\n") && formatted(long).contains("_long  # b\n"));
    }

    #[test]
    fn statements_may_go_on_over_lines() {
        let text = "program p # own\ninput A f32[8] ; input B f32[8]\nC: output C[i 8] f32 = select(i<3, # first\nA[i],\n\n  B[i])\ntarget sm_80\nunroll i\n";
        let wanted = format!(
            "{:<40}# own\n  input A f32[8]; input B f32[8]\n  {}",
            "program p",
            "C: output C[i 8] f32 = select(i < 3,  # first\n    A[i],\n\n    B[i])\ntarget sm_80\nunroll i\n"
        );
        assert_eq!(formatted(text), wanted);
    }
}
