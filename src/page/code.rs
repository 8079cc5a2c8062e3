//! PTX and machine code, each line with the line of the lowered program that it comes from.

use crate::assemble::{self, Ptxas};
use crate::error::Result;

/// A line of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The text.
    pub text: String,
    /// The line of the lowered program, from 1; none for labels, directives and comments, and where passes of the compiler put
    /// together what several statements need.
    pub from: Option<usize>,
}

/// The PTX without its `.file` and `.loc`, and with what these say.
pub fn ptx(text: &str) -> Vec<Line> {
    let mut out = Vec::new();
    let mut from = None;
    // Inline PTX has braces of its own.
    let mut depth = 0;
    for line in text.lines() {
        let bare = line.trim();
        if let Some(numbers) = bare.strip_prefix(".loc\t") {
            from = numbers.split_whitespace().nth(1).and_then(|n| n.parse().ok()).filter(|n| *n > 0);
            continue;
        }
        if bare.starts_with(".file\t") {
            continue;
        }
        depth += i32::from(bare == "{") - i32::from(bare == "}");
        if depth <= 0 {
            from = None;
        }
        let is_instruction =
            depth > 0 && !bare.is_empty() && !bare.starts_with(['.', '/', '$']) && !bare.ends_with(':');
        out.push(Line { text: line.to_string(), from: from.filter(|_| is_instruction) });
    }
    while out.last().is_some_and(|l| l.text.trim().is_empty()) {
        out.pop();
    }
    out
}

/// The PTX as text again.
pub fn plain(lines: &[Line]) -> String {
    lines.iter().map(|l| format!("{}\n", l.text)).collect()
}

/// The machine code that ptxas makes of PTX with lines.
///
/// # Errors
/// Where ptxas or nvdisasm is missing, or refuses the code.
pub fn sass(ptx: &str, chip: &str) -> Result<Vec<Line>> {
    let cubin = Ptxas::for_chip(None, chip)?.assemble(ptx, chip)?.cubin;
    Ok(of_sass(&assemble::sass_with_lines(&cubin)?))
}

fn of_sass(text: &str) -> Vec<Line> {
    let mut out = Vec::new();
    let mut from = None;
    for line in text.lines() {
        let bare = line.trim();
        if let Some(place) = bare.strip_prefix("//## File ") {
            let number = place.rsplit_once("line ").map(|(_, n)| n.split(|c: char| !c.is_ascii_digit()).next());
            from = number.flatten().and_then(|n| n.parse().ok()).filter(|n| *n > 0);
            continue;
        }
        if bare.starts_with(".text.") {
            from = None;
        }
        let is_instruction = bare.starts_with("/*") && bare.contains(';');
        if is_instruction || bare.ends_with(':') {
            out.push(Line { text: line.trim_end().to_string(), from: from.filter(|_| is_instruction) });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_keep_the_line_before_them() {
        let text = "// head\n.visible .entry k()\n{\n\t.reg .b32 %r<2>;\n\t.loc\t1 4 3\n\tmov.u32 %r1, 1;\n$L1:\n\t.loc\t1 0 0\n\tret;\n}\n\t.file\t1 \"k\"\n\n";
        let lines = ptx(text);
        let of = |t: &str| lines.iter().find(|l| l.text.contains(t)).unwrap().from;
        assert_eq!((of("mov.u32"), of("ret"), of(".reg"), of("$L1")), (Some(4), None, None, None));
        assert_eq!(
            plain(&lines),
            "// head\n.visible .entry k()\n{\n\t.reg .b32 %r<2>;\n\tmov.u32 %r1, 1;\n$L1:\n\tret;\n}\n"
        );
    }

    #[test]
    fn machine_code_is_read_with_its_lines() {
        let text = ".text.k:\n\t//## File \"k.lowered\", line 7\n        /*0000*/                   MOV R1, c[0x0][0x28] ;\n.L_1:\n";
        let lines = of_sass(text);
        assert_eq!(lines.iter().map(|l| l.from).collect::<Vec<_>>(), [None, Some(7), None]);
    }
}
