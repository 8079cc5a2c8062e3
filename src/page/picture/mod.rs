//! A schedule as a picture: the loop nest after its steps as nested boxes, coloured by what a loop is bound to, with the statements inside
//! and the buffers above. One SVG that needs nothing besides it.
//!
//! `tree` says what is shown, `words` how statements read; here is where it is drawn. All texts are in one font of fixed width, so that
//! what fits is known without the font.

mod style;
mod tree;
mod words;

use super::html::escape;
use crate::error::Result;
use crate::ir::{Func, Scope};
use crate::loom::Schedule;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use tree::{Item, Kind, Shown};
use words::Words;

/// The width of a picture: that of a column of text.
const WIDTH: f64 = 780.0;
/// Room around everything.
const MARGIN: f64 = 14.0;
/// From one line of text to the next.
const LINE: f64 = 16.0;
/// The width of a letter: of the widest of the usual fonts of fixed width, at the size that the style sheet states.
const LETTER: f64 = 6.7;
/// Between a box and what is inside: left of it, and below.
const INDENT: f64 = 12.0;
const GAP: f64 = 6.0;
/// By how many letters a line is indented that goes on with a statement.
const CONTINUED: usize = 4;

/// The picture of a schedule, under this title.
///
/// # Errors
/// A step that is refused.
pub fn picture(schedule: &Schedule, title: &str) -> Result<String> {
    let func = schedule.scheduled()?;
    let mut pen = Pen::new(&func);
    pen.text(MARGIN, "title", &format!("{title}, for {}", schedule.target));
    pen.text(MARGIN, "note", "A box is a loop around what is inside it. What is in a box runs from top to bottom.");
    pen.y += GAP;
    pen.buffers(&tree::buffers(&func));
    pen.roles(&func);
    let words = Words::new(&schedule.program, &func);
    let items = tree::items(&func, &words, &func.body);
    for (n, item) in items.iter().enumerate() {
        if items.len() > 1 {
            pen.text(MARGIN, "note", &format!("kernel {} of {}", n + 1, items.len()));
            pen.y += 3.0;
        }
        pen.item(item, MARGIN, WIDTH - MARGIN);
        pen.y += GAP;
    }
    pen.legend();
    Ok(pen.finish(title))
}

/// The picture so far.
struct Pen {
    out: String,
    /// Where the next thing begins.
    y: f64,
    /// The scope of each buffer, by name.
    scopes: HashMap<String, Scope>,
    /// What the legend has to explain.
    kinds: BTreeSet<Kind>,
}

impl Pen {
    fn new(func: &Func) -> Pen {
        let scopes = func.buffers.iter().map(|b| (b.name.clone(), b.scope)).collect();
        Pen { out: String::new(), y: MARGIN, scopes, kinds: BTreeSet::new() }
    }

    /// A line of text of one colour.
    fn text(&mut self, x: f64, class: &str, text: &str) {
        self.put(x, self.y, "start", class, &escape(text));
        self.y += LINE;
    }

    /// A text in as many lines as so many letters a line make of it, the later ones indented.
    fn lines(&mut self, x: f64, class: &str, text: &str, letters: usize) {
        for (n, line) in wrapped(text, letters, CONTINUED).iter().enumerate() {
            let x = x + if n == 0 { 0.0 } else { CONTINUED as f64 * LETTER };
            let markup = self.coloured(line);
            self.put(x, self.y, "start", class, &markup);
            self.y += LINE;
        }
    }

    /// Text whose line begins at `y`.
    fn put(&mut self, x: f64, y: f64, anchor: &str, class: &str, markup: &str) {
        let base = y + LINE * 0.75;
        let _ = writeln!(
            self.out,
            "<text x=\"{x:.1}\" y=\"{base:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{markup}</text>"
        );
    }

    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str) {
        let _ = writeln!(
            self.out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"3\" class=\"{class}\"/>"
        );
    }

    /// The buffers, a line each: name, type and extents, and the rest.
    fn buffers(&mut self, buffers: &[Shown]) {
        let longest = |f: &dyn Fn(&Shown) -> usize| buffers.iter().map(f).max().unwrap_or(0) as f64 * LETTER;
        let name = MARGIN + 10.0 * LETTER;
        let shape = name + longest(&|b| b.name.chars().count()) + 2.0 * LETTER;
        let how = shape + longest(&|b| b.shape.chars().count()) + 2.0 * LETTER;
        for b in buffers {
            let class = style::scope(b.scope);
            self.rect(MARGIN, self.y + 1.0, 8.0 * LETTER + 6.0, LINE - 2.0, &format!("chip {class}"));
            self.put(MARGIN + 4.0 * LETTER + 3.0, self.y, "middle", "on", b.scope.name());
            self.put(name, self.y, "start", &format!("name {class}-ink"), &escape(&b.name));
            self.put(shape, self.y, "start", "", &escape(&b.shape));
            let room = ((WIDTH - MARGIN - how) / LETTER) as usize;
            self.lines(how, "note", &b.how, room);
        }
        self.y += GAP;
    }

    fn roles(&mut self, func: &Func) {
        for role in &func.roles {
            let regs = role.regs.map_or(String::new(), |r| format!(", {r} registers a thread"));
            let warps = crate::error::counted(role.warps as usize, "warp");
            self.text(MARGIN, "note", &format!("role {}: {warps}{regs}", role.name));
        }
        if !func.roles.is_empty() {
            self.y += GAP;
        }
    }

    fn item(&mut self, item: &Item, left: f64, right: f64) {
        match item {
            Item::Loops { kind, loops, how, body } => self.loops(*kind, loops, how, body, left, right),
            Item::Statement { name, how, lines } => self.statement(name, how, lines, left, right),
        }
    }

    fn loops(&mut self, kind: Kind, loops: &str, how: &str, body: &[Item], left: f64, right: f64) {
        self.kinds.insert(kind);
        let (top, at) = (self.y, self.out.len());
        self.y += 2.0;
        let room = ((right - left - INDENT - 8.0) / LETTER) as usize;
        // Beside the loops where both fit, else below them.
        let beside = loops.chars().count() + how.chars().count() + 3 <= room;
        let x = left + INDENT;
        if beside {
            self.put(right - 8.0, self.y, "end", &format!("how {}-ink", kind.class()), &escape(how));
        }
        self.lines(x, "loop", loops, room);
        if !beside {
            self.lines(x, &format!("how {}-ink", kind.class()), how, room);
        }
        self.y += 2.0;
        for item in body {
            self.item(item, x, right - GAP);
            self.y += GAP;
        }
        // The box is drawn behind what it holds.
        let inside = self.out.split_off(at);
        self.rect(left, top, right - left, self.y - top, &format!("box {}", kind.class()));
        let _ = writeln!(
            self.out,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"5\" height=\"{:.1}\" class=\"{}-bar\"/>",
            self.y - top,
            kind.class()
        );
        self.out += &inside;
    }

    fn statement(&mut self, name: &str, how: &[String], lines: &[String], left: f64, right: f64) {
        let (top, at) = (self.y, self.out.len());
        self.y += 2.0;
        let x = left + 8.0;
        let room = ((right - x - 8.0) / LETTER) as usize;
        let how = how.join(", ");
        let beside = name.chars().count() + how.chars().count() + 3 <= room;
        if beside && !how.is_empty() {
            self.put(right - 8.0, self.y, "end", "note", &escape(&how));
        }
        if !name.is_empty() {
            self.text(x, "block", name);
        }
        if !beside {
            self.lines(x, "note", &how, room);
        }
        for line in lines {
            self.lines(x, "", line, room);
        }
        self.y += 3.0;
        let inside = self.out.split_off(at);
        self.rect(left, top, right - left, self.y - top, "statement");
        self.out += &inside;
    }

    /// Text with the names of buffers in the colours of their scopes.
    fn coloured(&self, text: &str) -> String {
        let mut out = String::new();
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let end = rest.find(|c| is_word(c) != is_word(first)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            match self.scopes.get(word).filter(|_| after.starts_with('[')) {
                Some(scope) => {
                    let _ = write!(out, "<tspan class=\"name {}-ink\">{}</tspan>", style::scope(*scope), escape(word));
                }
                None => out += &escape(word),
            }
            rest = after;
        }
        out
    }

    /// What the colours of the boxes mean: of those that occur.
    fn legend(&mut self) {
        let mut x = MARGIN;
        for kind in std::mem::take(&mut self.kinds) {
            let width = 20.0 + (kind.legend().chars().count() + 3) as f64 * LETTER;
            if x + width > WIDTH {
                x = MARGIN;
                self.y += LINE + 2.0;
            }
            self.rect(x, self.y + 2.0, 14.0, LINE - 4.0, &format!("box {}", kind.class()));
            let _ = writeln!(
                self.out,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"5\" height=\"{:.1}\" class=\"{}-bar\"/>",
                self.y + 2.0,
                LINE - 4.0,
                kind.class()
            );
            self.put(x + 20.0, self.y, "start", "note", kind.legend());
            x += width;
        }
        self.y += LINE;
    }

    fn finish(self, title: &str) -> String {
        let height = self.y + MARGIN;
        let (style, title) = (style::STYLE, escape(title));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
             role=\"img\">\n<title>{title}</title>\n<style>\n{style}</style>\n\
             <rect width=\"{WIDTH}\" height=\"{height:.0}\" rx=\"6\" class=\"ground\"/>\n{}</svg>\n",
            self.out
        )
    }
}

/// A text in lines of so many letters, the later ones shorter by an indentation. A word that is longer is cut.
fn wrapped(text: &str, letters: usize, indent: usize) -> Vec<String> {
    let letters = letters.max(indent + 8);
    let mut lines = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let room = if lines.is_empty() { letters } else { letters - indent };
        let Some((cut, _)) = rest.char_indices().nth(room) else {
            lines.push(rest.to_string());
            break;
        };
        // At a blank, else behind an operator, else where the room ends; never so early that a line is nearly empty.
        let late = |n: &usize| *n > room / 3;
        let blank = rest[..=cut].rfind(' ').filter(late);
        let operator = || rest[..cut].rfind(['(', '*', '/', ',']).map(|n| n + 1).filter(late);
        let end = blank.or_else(operator).unwrap_or(cut);
        lines.push(rest[..end].trim_end().to_string());
        rest = rest[end..].trim_start();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_and_nothing_is_lost() {
        let text = "C[i, j] = f16(acc[i, j] * 0.5 * (1.0 + erf(acc[i, j]*0.70710678)) + f32(bias[j]))";
        for letters in [12, 20, 40, 200] {
            let lines = wrapped(text, letters, 4);
            assert!(lines.iter().all(|l| l.chars().count() <= letters), "{letters}: {lines:?}");
            assert!(lines.iter().skip(1).all(|l| l.chars().count() <= letters - 4), "{letters}: {lines:?}");
            let plain = |s: &str| s.chars().filter(|c| *c != ' ').collect::<String>();
            assert_eq!(plain(&lines.concat()), plain(text));
        }
        assert_eq!(wrapped("short", 20, 2), ["short"]);
        assert!(wrapped("", 20, 2).is_empty());
    }
}
