//! The elements of the page: lines with their names as links, panes of lines.

use super::code;
use super::names::{Line, Name};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::Range;

/// Text as HTML.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// JSON that can be inside a script element.
pub fn script(json: &str) -> String {
    json.replace("</", "<\\/").replace("<!--", "<\\!--")
}

/// The identifiers of names, apart by blanks.
pub fn ids<'n>(names: impl IntoIterator<Item = &'n Name>) -> String {
    names.into_iter().map(Name::id).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
}

/// The text of a line of a program, each name a link. Its comment is shaded, names excepted.
pub fn linked(line: &Line) -> String {
    let comment = line.comment.unwrap_or(line.text.len());
    let mut out = String::new();
    let mut at = 0;
    for (from, to, names) in &line.tokens {
        let Some(name) = line.text.get(*from..*to) else { continue };
        out.push_str(&shaded(&line.text, at..*from, comment));
        let _ = write!(out, "<span class=\"n\" data-link=\"{}\">{}</span>", ids(names), escape(name));
        at = *to;
    }
    out + &shaded(&line.text, at..line.text.len(), comment)
}

/// A part of a text, shaded from that place on.
fn shaded(text: &str, part: Range<usize>, comment: usize) -> String {
    let middle = comment.clamp(part.start, part.end.max(part.start));
    let [plain, shade] = [part.start..middle, middle..part.end].map(|r| escape(text.get(r).unwrap_or_default()));
    if shade.is_empty() { plain } else { format!("{plain}<i>{shade}</i>") }
}

/// A line: its identifier, its number, what it is linked with, and more attributes.
pub fn line(id: &str, number: usize, links: &str, attributes: &str, html: &str) -> String {
    let links = if links.is_empty() { String::new() } else { format!(" data-link=\"{links}\"") };
    format!("<div class=\"l\" id=\"{id}\"{links}{attributes}><b>{number}</b><code>{html}</code></div>\n")
}

/// The lines of PTX or machine code.
pub fn code(id: &str, lines: &[code::Line]) -> String {
    let mut out = String::new();
    for (n, l) in lines.iter().enumerate() {
        let links = l.from.map_or(String::new(), |from| format!("lowered-{from}"));
        let text = l.text.replace('\t', "    ");
        let comment = text.find("// ").unwrap_or(text.len());
        out.push_str(&line(&format!("{id}-{}", n + 1), n + 1, &links, "", &shaded(&text, 0..text.len(), comment)));
    }
    out
}

/// Why there is nothing to show.
pub fn absent(why: &str) -> String {
    format!("<p class=\"absent\">{}</p>\n", escape(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::names::Kind;

    #[test]
    fn names_are_links_and_the_rest_is_escaped() {
        let line = Line {
            text: "A[i] < 2  # x".into(),
            tokens: vec![(0, 1, vec![Name::new(Kind::Buffer, "A")]), (2, 3, vec![Name::new(Kind::Loop, "i")])],
            comment: Some(8),
            ..Line::default()
        };
        assert_eq!(
            linked(&line),
            "<span class=\"n\" data-link=\"buffer-A\">A</span>[<span class=\"n\" data-link=\"loop-i\">i</span>] &lt; 2<i>  # x</i>"
        );
        let line = Line {
            text: "i // 2  # why".into(),
            tokens: vec![(0, 1, vec![Name::new(Kind::Loop, "i")])],
            comment: Some(6),
            ..Line::default()
        };
        assert!(linked(&line).ends_with("</span> // 2<i>  # why</i>"), "a division is no comment: {}", linked(&line));
        assert_eq!(script("{\"a\": \"</script>\"}"), "{\"a\": \"<\\/script>\"}");
    }
}
