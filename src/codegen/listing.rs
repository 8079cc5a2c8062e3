//! Comments in the PTX that lead back to the program: each kernel's program above its entry, and at each label the
//! loop or condition that it belongs to.
//!
//! LLVM prints the name of a basic block behind its label. Blocks get short names (`w3`), and the words are put in
//! their place afterwards; they cost the optimizer nothing.

use inkwell::basic_block::BasicBlock;
use std::collections::BTreeSet;

/// The words for named blocks.
#[derive(Debug, Default)]
pub struct Listing {
    words: Vec<String>,
    /// The numbers of loop headers that get `.pragma "nounroll"`.
    nounroll: BTreeSet<usize>,
}

/// What is said of an entry.
#[derive(Debug)]
pub struct Head {
    /// Its name.
    pub entry: String,
    /// The comment above it.
    pub text: String,
    /// Directives behind the launch bounds, which LLVM cannot write; each ends its line.
    pub directives: String,
}

/// Whether a line serves DWARF sections, which the PTX does not have: labels of functions and of changes of the line, an empty section.
fn marks_debug_sections(line: &str) -> bool {
    let line = line.trim_start();
    ["$L__func_begin", "$L__func_end", "$L__tmp"].iter().any(|label| line.starts_with(label))
        || line.starts_with(".section\t.debug_loc\t")
}

impl Listing {
    /// Names a block by words about the program.
    pub fn name(&mut self, block: BasicBlock, words: &str) {
        // Words never hold a newline, so a comment stays a comment.
        block.set_name(&format!("w{}.", self.words.len()));
        self.words.push(words.replace(['\n', '\r'], " "));
    }

    /// Names a loop header that gets `.pragma "nounroll"`.
    pub fn name_nounroll(&mut self, block: BasicBlock, words: &str) {
        self.nounroll.insert(self.words.len());
        self.name(block, words);
    }

    /// The PTX with words for blocks and with heads above the entries.
    pub fn annotate(&self, ptx: &str, heads: &[Head]) -> String {
        let mut out = String::with_capacity(ptx.len() * 2);
        let mut head: Option<&Head> = None;
        for line in ptx.lines().filter(|l| !marks_debug_sections(l)) {
            // `.globl` and `.visible .entry` introduce an entry; the first of them is a comment already.
            if let Some(entry) = line.trim_start().strip_prefix(".visible .entry ") {
                let entry = entry.trim_end_matches('(');
                head = heads.iter().find(|h| h.entry == entry);
                let text = head.map_or("", |h| &h.text);
                text.lines().for_each(|l| out.push_str(&format!("// {}\n", l.trim_end())));
            }
            let has_pragma = line.starts_with('$') && self.number(line).is_some_and(|n| self.nounroll.contains(&n));
            if let Some(line) = self.words_for(line) {
                out.push_str(line.trim_end());
                out.push('\n');
                if has_pragma {
                    // The pragma precedes the first instruction of the loop header (PTX ISA, "Pragma Strings: nounroll").
                    out.push_str("\t.pragma \"nounroll\";\n");
                }
                if let (true, Some(h)) = (line.starts_with(".reqntid"), head) {
                    out.push_str(&h.directives);
                }
            }
        }
        out
    }

    /// The line with the program's words; none for a line that holds only LLVM's own remarks.
    fn words_for(&self, line: &str) -> Option<String> {
        let code = match line.find("// ") {
            Some(at) => &line[..at],
            None => return Some(line.to_string()),
        };
        let words = self.number(line).and_then(|n| self.words.get(n));
        match (code.trim().is_empty(), words) {
            (true, None) if line.starts_with("//") => Some(line.to_string()).filter(|l| !l.starts_with("// %bb")),
            (true, None) => None,
            (true, Some(words)) => Some(format!("// {words}")),
            (false, Some(words)) => Some(format!("{code}// {words}")),
            (false, None) => Some(code.to_string()),
        }
    }

    /// The number in the block name `w<number>.` of a label's comment. LLVM may print its own name (`// %bb.1:`) before it.
    fn number(&self, line: &str) -> Option<usize> {
        let (_, name) = line.rsplit_once("// %w")?;
        name.split('.').next()?.trim().parse().ok()
    }
}
