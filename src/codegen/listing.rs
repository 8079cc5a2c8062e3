//! Comments in the PTX that lead back to the program: each kernel's program above its entry, and at each label the
//! loop or condition that it belongs to.
//!
//! LLVM prints the name of a basic block behind its label. Blocks get short names (`w3`), and the words are put in
//! their place afterwards; they cost the optimizer nothing.

use inkwell::basic_block::BasicBlock;

/// The words for named blocks.
#[derive(Debug, Default)]
pub struct Listing {
    words: Vec<String>,
}

impl Listing {
    /// Names a block by words about the program.
    pub fn name(&mut self, block: BasicBlock, words: &str) {
        // Words never hold a newline, so a comment stays a comment.
        block.set_name(&format!("w{}.", self.words.len()));
        self.words.push(words.replace(['\n', '\r'], " "));
    }

    /// The PTX with words for blocks and with `heads` (entry, text) above the entries.
    pub fn annotate(&self, ptx: &str, heads: &[(String, String)]) -> String {
        let mut out = String::with_capacity(ptx.len() * 2);
        for line in ptx.lines() {
            // `.globl` and `.visible .entry` introduce an entry; the first of them is a comment already.
            if let Some(entry) = line.trim_start().strip_prefix(".visible .entry ") {
                let entry = entry.trim_end_matches('(');
                for (_, text) in heads.iter().filter(|(name, _)| name == entry) {
                    text.lines().for_each(|l| out.push_str(&format!("// {}\n", l.trim_end())));
                }
            }
            out.push_str(self.words_for(line).trim_end());
            out.push('\n');
        }
        out
    }

    fn words_for(&self, line: &str) -> String {
        // Behind the last mark stands the block's own name; `// %bb.1:` before it is LLVM's number.
        let Some((code, name)) = line.rsplit_once("// %") else { return self.loop_comment(line) };
        let number = name.trim().strip_prefix('w').and_then(|n| n.split('.').next()).and_then(|n| n.parse().ok());
        match number.and_then(|n: usize| self.words.get(n)) {
            Some(words) => format!("{code}// {words}"),
            None if code.trim().is_empty() => line.to_string(),
            // Joints of control flow that stand for nothing in the program.
            None => code.to_string(),
        }
    }

    /// LLVM's own comments about loops repeat what the words say.
    fn loop_comment(&self, line: &str) -> String {
        match line.find("// =>") {
            Some(at) => line[..at].to_string(),
            None => line.to_string(),
        }
    }
}
