//! Colours: where they are wanted, and what they show in each kind of text.
//!
//! A text that is not coloured is passed on byte for byte.

use super::words::{self, Class};
use anstream::AutoStream;
use anstyle::{AnsiColor, Color, Effects, Style};
use clap::ValueEnum;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal, unless NO_COLOR is set or TERM is `dumb`; also elsewhere where CLICOLOR_FORCE is set.
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

impl When {
    /// What a command line asks for, before the line is parsed: its help and its errors have colours, too.
    pub fn of(arguments: impl Iterator<Item = String>) -> When {
        let mut found = When::Auto;
        let mut is_next = false;
        for argument in arguments.take_while(|a| a != "--") {
            let value = argument.strip_prefix("--color=").or(is_next.then_some(argument.as_str()));
            found = value.and_then(|v| When::from_str(v, false).ok()).unwrap_or(found);
            is_next = argument == "--color";
        }
        found
    }

    /// The same for clap.
    pub fn for_clap(self) -> clap::ColorChoice {
        match self {
            When::Auto => clap::ColorChoice::Auto,
            When::Always => clap::ColorChoice::Always,
            When::Never => clap::ColorChoice::Never,
        }
    }
}

static OUTPUT: AtomicBool = AtomicBool::new(false);
static ERRORS: AtomicBool = AtomicBool::new(false);

/// Decides for both streams.
pub fn decide(when: When) {
    let choice = match when {
        When::Auto => anstream::ColorChoice::Auto,
        When::Always => anstream::ColorChoice::AlwaysAnsi,
        When::Never => anstream::ColorChoice::Never,
    };
    choice.write_global();
    let is_on = |choice| choice != anstream::ColorChoice::Never;
    OUTPUT.store(is_on(AutoStream::choice(&std::io::stdout())), Ordering::Relaxed);
    ERRORS.store(is_on(AutoStream::choice(&std::io::stderr())), Ordering::Relaxed);
}

/// Whether standard output has colours.
pub fn output() -> bool {
    OUTPUT.load(Ordering::Relaxed)
}

/// Whether standard error has colours.
pub fn errors() -> bool {
    ERRORS.load(Ordering::Relaxed)
}

const fn of(color: AnsiColor) -> Style {
    Style::new().fg_color(Some(Color::Ansi(color)))
}

const COMMENT: Style = of(AnsiColor::BrightBlack);
const KEYWORD: Style = of(AnsiColor::Blue).effects(Effects::BOLD);
const AXIS: Style = of(AnsiColor::Cyan);
const NAME: Style = of(AnsiColor::Green);
const TYPE: Style = of(AnsiColor::Yellow);
const INSTRUCTION: Style = of(AnsiColor::Magenta);
const WORD: Style = of(AnsiColor::BrightBlue);
const HEAD: Style = Style::new().effects(Effects::BOLD);
const NOTE: Style = of(AnsiColor::Yellow);
const REMOVED: Style = of(AnsiColor::Red);

/// What a text is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Text {
    /// Program, target and steps.
    Loom,
    /// A program of any level as it is printed.
    Program,
    /// A cost report.
    Cost,
    /// PTX.
    Ptx,
    /// LLVM IR.
    Llvm,
    /// Machine code.
    Sass,
}

/// The text for standard output.
pub fn paint(kind: Text, text: &str) -> Cow<'_, str> {
    if output() { Cow::Owned(painted(kind, text)) } else { Cow::Borrowed(text) }
}

/// A heading for standard output.
pub fn head(text: &str) -> Cow<'_, str> {
    one(HEAD, text)
}

/// A remark for standard output.
pub fn note(text: &str) -> Cow<'_, str> {
    one(NOTE, text)
}

/// A line of a program in a diff for standard output; `mark` is its first character.
pub fn change(mark: char, line: &str) -> Cow<'_, str> {
    match mark {
        '-' => one(REMOVED, line),
        '+' => one(NAME, line),
        _ => paint(Text::Program, line),
    }
}

fn one(style: Style, text: &str) -> Cow<'_, str> {
    if output() { Cow::Owned(styled(style, text)) } else { Cow::Borrowed(text) }
}

/// The text in a style, the end of its line left outside.
fn styled(style: Style, text: &str) -> String {
    let inside = text.trim_end_matches(['\n', '\r']);
    let rest = &text[inside.len()..];
    if inside.is_empty() { text.to_string() } else { format!("{style}{inside}{style:#}{rest}") }
}

fn painted(kind: Text, text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for line in text.split_inclusive('\n') {
        match kind {
            Text::Loom | Text::Program => program_line(&mut out, line, kind == Text::Loom),
            Text::Cost => cost_line(&mut out, line),
            Text::Ptx => code_line(&mut out, line, "//"),
            Text::Llvm => code_line(&mut out, line, ";"),
            Text::Sass => sass_line(&mut out, line),
        }
    }
    out
}

/// Every word of a `.loom` text, by its first class.
static WORDS: LazyLock<HashMap<&str, Vec<Class>>> = LazyLock::new(|| {
    let mut out: HashMap<&str, Vec<Class>> = HashMap::new();
    for class in Class::ALL {
        for word in class.words() {
            out.entry(word).or_default().push(class);
        }
    }
    out
});

static FAMILIES: LazyLock<HashSet<&str>> = LazyLock::new(|| words::families().into_iter().collect());

/// Words of printed programs that are no words of steps.
const PRINTED: [&str; 18] = [
    "in",
    "unrolled",
    "vectorized",
    "persistent",
    "grouped",
    "as",
    "reduce",
    "global",
    "shared",
    "local",
    "fragment",
    "role",
    "warps",
    "regs",
    "align",
    "adds",
    "where",
    "async",
];

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}

/// A word and what is behind it; `..` ends it.
fn word(text: &str) -> (&str, &str) {
    let mut end = text.find(|c: char| !is_of_word(c)).unwrap_or(text.len());
    if let Some(dots) = text[..end].find("..") {
        end = dots;
    }
    text.split_at(end)
}

/// A line of a schedule or of a printed program.
fn program_line(out: &mut String, line: &str, is_loom: bool) {
    let (code, comment) = line.find('#').map_or((line, ""), |at| line.split_at(at));
    let (mut rest, mut is_first, mut before) = (code, true, ' ');
    // The word before names what is next: `block C`, `func gemm`.
    let mut introduces = false;
    while let Some(c) = rest.chars().next() {
        if !(c.is_ascii_alphabetic() || c == '_') || is_of_word(before) {
            is_first = c == ';' || (is_first && c.is_whitespace());
            out.push(c);
            rest = &rest[c.len_utf8()..];
            before = c;
            continue;
        }
        let (word, behind) = word(rest);
        let style = if introduces { Some(NAME) } else { style_of(word, behind, is_first, is_loom) };
        introduces = is_first && ["block", "func", "program"].contains(&word);
        match style {
            Some(style) => {
                let _ = write!(out, "{style}{word}{style:#}");
            }
            None => out.push_str(word),
        }
        (rest, is_first, before) = (behind, false, word.chars().last().unwrap_or(' '));
    }
    out.push_str(&styled(COMMENT, comment));
}

/// The style of a word by what is behind it.
fn style_of(word: &str, behind: &str, is_first: bool, is_loom: bool) -> Option<Style> {
    let family = word.split_once('.').map(|(family, _)| family);
    if family.is_some_and(|f| FAMILIES.contains(f)) {
        return Some(INSTRUCTION);
    }
    // Of a buffer, or the label of a block.
    let is_name = behind.starts_with('[') || behind.starts_with(':');
    let classes = WORDS.get(word).map_or(&[][..], |c| c);
    let is = |class: Class| classes.contains(&class);
    if is(Class::Type) {
        return Some(TYPE);
    }
    if is(Class::Axis) && (word.contains('.') || !is_name) {
        return Some(AXIS);
    }
    if is_name {
        return Some(NAME);
    }
    if is_first && !is_loom {
        return Some(KEYWORD);
    }
    for class in classes {
        match class {
            Class::Step if is_first => return Some(KEYWORD),
            Class::Keyword if is_loom => return Some(KEYWORD),
            Class::Builder if is_loom && is_first => return Some(KEYWORD),
            Class::Target => return Some(TYPE),
            Class::Option if behind.starts_with('=') => return Some(WORD),
            Class::Function if behind.trim_start().starts_with('(') => return Some(WORD),
            Class::Choice | Class::Logical => return Some(WORD),
            Class::Builder if is_loom => return Some(WORD),
            Class::Step if !is_loom => return Some(WORD),
            _ => {}
        }
    }
    (!is_loom && PRINTED.contains(&word)).then_some(WORD)
}

/// A line of a cost report: of a kernel's figures, of the program behind its number, or about the access above it.
fn cost_line(out: &mut String, line: &str) {
    let Some((number, code)) = line.split_once(" | ").filter(|(n, _)| n.trim().bytes().all(|b| b.is_ascii_digit()))
    else {
        let is_head = line.starts_with("kernel ") || line.starts_with("note:");
        out.push_str(&if is_head { styled(HEAD, line) } else { line.to_string() });
        return;
    };
    out.push_str(&styled(COMMENT, &format!("{number} | ")));
    match number.trim() {
        "" => out.push_str(&styled(NOTE, code)),
        _ => program_line(out, code, false),
    }
}

/// A line of PTX or LLVM IR.
fn code_line(out: &mut String, line: &str, sign: &str) {
    let (code, comment) = line.find(sign).map_or((line, ""), |at| line.split_at(at));
    let bare = code.trim_start();
    let start = code.len() - bare.len();
    out.push_str(&code[..start]);
    // A predicate, or the value that is defined, is before the instruction.
    let guard = match (bare.starts_with('@'), bare.find(" = ")) {
        (true, _) if sign == "//" => bare.find(char::is_whitespace).map_or(0, |n| n + 1),
        (_, Some(at)) if bare.starts_with('%') && sign == ";" => at + 3,
        _ => 0,
    };
    out.push_str(&bare[..guard]);
    let bare = &bare[guard..];
    let end = bare.find(|c: char| c.is_whitespace() || c == ';').unwrap_or(bare.len());
    let (first, rest) = bare.split_at(end);
    let style = match first {
        label if label.ends_with(':') => NAME,
        directive if directive.starts_with('.') => TYPE,
        _ => KEYWORD,
    };
    let is_word = first.starts_with(|c: char| c.is_ascii_alphabetic() || c == '.' || c == '$' || c == '_');
    out.push_str(&if is_word { styled(style, first) } else { first.to_string() });
    registers(out, rest);
    out.push_str(&styled(COMMENT, comment));
}

/// The operands of a line of PTX: the registers that say where a thread is are axes.
fn registers(out: &mut String, mut rest: &str) {
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let (name, behind) = word(&rest[at + 1..]);
        let is_axis = ["tid.", "ntid.", "ctaid.", "nctaid.", "cluster_", "laneid", "warpid"];
        if is_axis.iter().any(|a| name.starts_with(a)) {
            out.push_str(&styled(AXIS, &rest[at..=at + name.len()]));
        } else {
            out.push_str(&rest[at..=at + name.len()]);
        }
        rest = behind;
    }
    out.push_str(rest);
}

/// A line of machine code: `/*0010*/ OPCODE operands ; /* bits */`.
fn sass_line(out: &mut String, line: &str) {
    let mut rest = line;
    let mut is_first = true;
    while let Some(at) = rest.find("/*") {
        sass_code(out, &rest[..at], &mut is_first);
        let end = rest[at..].find("*/").map_or(rest.len(), |n| at + n + 2);
        out.push_str(&styled(COMMENT, &rest[at..end]));
        rest = &rest[end..];
    }
    sass_code(out, rest, &mut is_first);
}

fn sass_code(out: &mut String, code: &str, is_first: &mut bool) {
    let bare = code.trim_start();
    out.push_str(&code[..code.len() - bare.len()]);
    if bare.is_empty() || !*is_first || bare.starts_with('@') {
        // A predicate is before the instruction.
        let end = if *is_first { bare.find(' ').map_or(bare.len(), |n| n + 1) } else { bare.len() };
        out.push_str(&bare[..end]);
        if end < bare.len() {
            sass_code(out, &bare[end..], is_first);
        }
        return;
    }
    *is_first = false;
    let end = bare.find([' ', ';', '\n']).unwrap_or(bare.len());
    let style = if bare.starts_with('.') { TYPE } else { KEYWORD };
    out.push_str(&styled(style, &bare[..end]));
    out.push_str(&bare[end..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of a painted text that have this style.
    fn pieces(text: &str, style: Style) -> Vec<String> {
        let begin = style.render().to_string();
        text.split(&begin).skip(1).map(|t| t.split('\u{1b}').next().unwrap_or("").to_string()).collect()
    }

    fn bare(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn schedules_are_coloured_by_the_lists_of_the_parsers() {
        let text = "gemm 8x8x8 f16 NT # split\ntarget sm_80\nsplit i ? 4 -> i_0 split_1; bind i_0 threadIdx.x\n\
                    tensorize k mma.m16n8k16.f32.f16.f16.f32 m=i_0\n";
        let out = painted(Text::Loom, text);
        assert_eq!(bare(&out), text);
        assert_eq!(pieces(&out, KEYWORD), ["gemm", "target", "split", "bind", "tensorize"]);
        assert_eq!(pieces(&out, AXIS), ["threadIdx.x"]);
        assert_eq!(pieces(&out, COMMENT), ["# split"]);
        assert_eq!(pieces(&out, TYPE), ["f16", "sm_80"]);
        assert_eq!(pieces(&out, INSTRUCTION), ["mma.m16n8k16.f32.f16.f16.f32"]);
    }

    #[test]
    fn printed_programs_are_coloured() {
        let text = "func p(A: global f32[8], C: global f32[8])\n  for i in 0..8 @threadIdx.x\n    block C(vi = i)\n\
                    \u{20}     C[vi] = A[vi] + max(A[vi], 1.0)  # where\n    mbarrier.wait A_full[i % 2], phase 1\n";
        let out = painted(Text::Program, text);
        assert_eq!(bare(&out), text);
        assert_eq!(pieces(&out, KEYWORD), ["func", "for", "block", "mbarrier.wait"]);
        assert_eq!(pieces(&out, NAME), ["p", "A", "C", "C", "C", "A", "A", "A_full"]);
        assert_eq!(pieces(&out, TYPE), ["f32", "f32"]);
        assert_eq!(pieces(&out, WORD), ["global", "global", "in", "max"]);
        assert_eq!(pieces(&out, COMMENT), ["# where"]);
    }

    #[test]
    fn code_is_coloured() {
        let text = ".visible .entry k(\n)\n{\n\t.reg .b32 \t%r<2>; // registers\n\tmov.u32 \t%r1, %tid.x;\n\t@%p1 bra \t$L1;\n$L1:\n\tret;\n}\n";
        let out = painted(Text::Ptx, text);
        assert_eq!(bare(&out), text);
        assert_eq!(pieces(&out, KEYWORD), ["mov.u32", "bra", "ret"]);
        assert_eq!(pieces(&out, TYPE), [".visible", ".reg"]);
        assert_eq!((pieces(&out, AXIS), pieces(&out, NAME)), (vec!["%tid.x".to_string()], vec!["$L1:".to_string()]));
        let text = "        /*0010*/                   @!P0 LDG.E R2, [R2] ;        /* 0x00ff */\n";
        let out = painted(Text::Sass, text);
        assert_eq!(bare(&out), text);
        assert_eq!(pieces(&out, KEYWORD), ["LDG.E"]);
        let text = "define void @k(ptr %a) {\n  %x = add i32 %y, 1 ; sum\n  ret void\n}\n";
        let out = painted(Text::Llvm, text);
        assert_eq!(bare(&out), text);
        assert_eq!(pieces(&out, KEYWORD), ["define", "add", "ret"]);
        let text = "p for sm_80\n\nkernel p: grid 1\n  3 | for i in 0..8\n    |     ^ A load\n";
        let out = painted(Text::Cost, text);
        assert_eq!(bare(&out), text);
        // The style of keywords begins as that of headings does.
        assert_eq!(
            (pieces(&out, HEAD)[0].as_str(), &pieces(&out, NOTE)[..]),
            ("kernel p: grid 1", &["    ^ A load".to_string()][..])
        );
    }

    /// Any text survives with its bytes.
    #[test]
    fn no_text_is_changed_but_for_colours() {
        for kind in [Text::Loom, Text::Program, Text::Cost, Text::Ptx, Text::Llvm, Text::Sass] {
            for text in
                ["", "\n\n", "ü # ß", "@", "%", "a..b", "/*", "x | y\n", "@p", "%a = ", "1_a.b..c", "#\r\n", "  12 | "]
            {
                assert_eq!(bare(&painted(kind, text)), text, "{kind:?} {text:?}");
            }
        }
    }

    #[test]
    fn the_command_line_says_when() {
        let of = |words: &str| When::of(words.split(' ').map(str::to_string));
        assert_eq!(of("warploom dump x"), When::Auto);
        assert_eq!(of("warploom dump --color never x"), When::Never);
        assert_eq!(of("warploom --color=always dump x"), When::Always);
        assert_eq!(of("warploom dump -- --color never"), When::Auto);
        assert_eq!(of("warploom --color sometimes"), When::Auto);
    }
}
