//! The parser of steps: one a line or separated by `;`, `#` begins a comment. It reads the signatures alone.
//!
//! Errors underline the word in the user's text. No text makes it panic, and [`limits`] bound what a text can ask for.

use super::primitive::{self, Form, ParamKind, Parameter, Primitive};
use super::{Args, IndexMap, Step, Value, find, is_name, limits};
use crate::error::{Code, Error, Result};
use std::ops::Range;
use std::sync::Arc;

/// Words of steps that are spelled in another way now: (primitive, old, new).
const RENAMED: [(&str, &str, &str); 4] = [
    ("bind", "alternate", "pingpong"),
    ("annotate", "min_blocks", "launch LOOP min_blocks=N"),
    ("annotate", "grid_dependency", "launch LOOP grid_dependency=N"),
    ("annotate", "l2_prefetch", "launch LOOP l2_prefetch=1"),
];

/// Reads steps.
///
/// # Errors
/// `step.limit`, `step.primitive`, `step.word`, `step.number`, `step.name`, `step.map`, `step.args`, with the place in
/// the text underlined.
pub fn parse(text: &str) -> Result<Vec<Step>> {
    if text.len() > limits::TEXT {
        let message = format!("a schedule of {} bytes; at most {} are read", text.len(), limits::TEXT);
        return Err(Error::input(Code::StepLimit, message));
    }
    let whole: Arc<str> = text.into();
    let mut steps = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let code = line.find('#').map_or(line, |at| &line[..at]);
        let mut at = start;
        for piece in code.split_inclusive(';') {
            let words = words(piece.trim_end_matches(';'), at);
            if !words.is_empty() {
                let step: Step = step(&words).map_err(|e| underline(e, text, &words))?;
                let last = words.last().map_or(at, |w| w.span.end);
                steps.push(step.read_from(&whole, words[0].span.start..last));
            }
            at += piece.len();
        }
        start += line.len();
        if steps.len() > limits::STEPS {
            return Err(Error::input(Code::StepLimit, format!("more than {} steps", limits::STEPS)));
        }
    }
    Ok(steps)
}

/// Errors without a place of their own get the whole step.
fn underline(error: Error, text: &str, words: &[Word]) -> Error {
    let error = error.text(text);
    match (error.labels().is_empty(), words.first(), words.last()) {
        (true, Some(first), Some(last)) => error.label(first.span.start..last.span.end, "in this step"),
        _ => error,
    }
}

struct Word<'a> {
    text: &'a str,
    span: Range<usize>,
}

impl Word<'_> {
    fn refuse(&self, code: Code, message: String) -> Error {
        Error::input(code, message).label(self.span.clone(), "here")
    }
}

/// Words between blanks; what is in brackets is one word.
fn words(piece: &str, offset: usize) -> Vec<Word<'_>> {
    let mut out: Vec<Word> = Vec::new();
    let mut begin: Option<usize> = None;
    let mut depth = 0usize;
    let mut push = |from: usize, to: usize| {
        out.push(Word { text: &piece[from..to], span: offset + from..offset + to });
    };
    for (at, c) in piece.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if c.is_whitespace() && depth == 0 {
            if let Some(from) = begin.take() {
                push(from, at);
            }
        } else if begin.is_none() {
            begin = Some(at);
        }
    }
    if let Some(from) = begin {
        push(from, piece.len());
    }
    out
}

fn step(words: &[Word]) -> Result<Step> {
    let Some((head, rest)) = words.split_first() else {
        return Err(Error::input(Code::StepPrimitive, "an empty step"));
    };
    if words.len() > limits::WORDS {
        let message = format!("a step of {} words; at most {} are read", words.len(), limits::WORDS);
        return Err(Error::input(Code::StepLimit, message));
    }
    let Some(primitive) = primitive::find(head.text) else {
        let known = primitive::ALL.iter().map(|p| p.name);
        let guess = find::suggestion(head.text, known.clone().chain([super::RECOMMEND]));
        let error = head.refuse(Code::StepPrimitive, format!("there is no primitive `{}`{guess}", head.text));
        if head.text == super::RECOMMEND {
            return Err(error.help("a line `recommend` is a part of a .loom text, not of steps alone"));
        }
        return Err(error.help(format!("the primitives are {}", known.collect::<Vec<_>>().join(", "))));
    };
    let args = Reader { primitive, words: rest, at: 0 }.read()?;
    Step::new(primitive, args)
}

struct Reader<'a> {
    primitive: &'static Primitive,
    words: &'a [Word<'a>],
    at: usize,
}

impl<'a> Reader<'a> {
    fn read(mut self) -> Result<Args> {
        let mut args = Args::new();
        let places = |p: &&Parameter| matches!(p.form, Form::Place | Form::Optional);
        for parameter in self.primitive.signature.iter().filter(places) {
            self.options(&mut args)?;
            if let Some(value) = self.value(parameter)? {
                args = args.with(parameter.name, value);
            }
        }
        self.options(&mut args)?;
        if let Some(parameter) = self.chosen().filter(|_| self.peek().is_some_and(|w| w.text == "=")) {
            self.at += 1;
            let none = || format!("`{}` has `=` without a choice after it", self.primitive.name);
            let value = self.value(parameter)?.ok_or_else(|| Error::input(Code::StepArgs, none()))?;
            args = args.with(parameter.name, value);
        }
        if self.peek().is_some_and(|w| w.text == "->") {
            self.at += 1;
            self.options(&mut args)?;
            while let Some(word) = self.peek() {
                self.at += 1;
                args.names.push(name(word)?);
                self.options(&mut args)?;
            }
        }
        match self.peek() {
            None => Ok(args),
            Some(word) => {
                let message = format!("`{}` is unexpected: `{}`", word.text, self.primitive.usage());
                Err(renamed(word.refuse(Code::StepWord, message), word, self.primitive))
            }
        }
    }

    fn peek(&self) -> Option<&'a Word<'a>> {
        self.words.get(self.at)
    }

    fn chosen(&self) -> Option<&'static Parameter> {
        self.primitive.signature.iter().find(|p| p.form == Form::Chosen)
    }

    /// Reads every `name=value` that is here, unless they are what a place takes.
    fn options(&mut self, args: &mut Args) -> Result<()> {
        if self.primitive.signature.iter().any(|p| p.kind == ParamKind::Multiples) {
            return Ok(());
        }
        while let Some(word) = self.peek() {
            let apart = word.text.starts_with('[') || word.text == "=" && self.chosen().is_some();
            let Some((key, value)) = word.text.split_once('=').filter(|_| !apart) else {
                break;
            };
            let set = |p: &&Parameter| matches!(p.form, Form::Option | Form::Setting);
            let options: Vec<&Parameter> = self.primitive.signature.iter().filter(set).collect();
            let Some(parameter) = options.iter().find(|p| p.name == key) else {
                let guess = find::suggestion(key, options.iter().map(|p| p.name));
                let message = format!("`{}` has no option `{key}`{guess}", self.primitive.name);
                return Err(word.refuse(Code::StepWord, message).help(format!("`{}`", self.primitive.usage())));
            };
            if args.get(key).is_some() {
                return Err(word.refuse(Code::StepWord, format!("`{key}` is stated twice")));
            }
            let value_word = Word { text: value, span: word.span.clone() };
            *args = std::mem::take(args).with(parameter.name, single(self.primitive, parameter, &value_word)?);
            self.at += 1;
        }
        Ok(())
    }

    fn value(&mut self, parameter: &Parameter) -> Result<Option<Value>> {
        let first = self.peek().filter(|w| w.text != "->");
        let Some(word) = first else { return Ok(None) };
        match parameter.kind {
            ParamKind::Map => self.map(),
            ParamKind::Factors => self.factors(),
            ParamKind::Multiples => self.multiples(),
            kind if kind.is_list() => self.list(parameter),
            ParamKind::Choice(choices) if parameter.form == Form::Optional && !choices.contains(&word.text) => Ok(None),
            _ => {
                self.at += 1;
                single(self.primitive, parameter, word).map(Some)
            }
        }
    }

    fn map(&mut self) -> Result<Option<Value>> {
        let [inputs, arrow, outputs, ..] = &self.words[self.at..] else { return Ok(None) };
        if arrow.text != "->" {
            let message = format!("`{}` where the `->` of an index map was expected", arrow.text);
            return Err(arrow.refuse(Code::StepWord, message));
        }
        self.at += 3;
        let map = IndexMap::parse(inputs.text, outputs.text);
        map.map(|m| Some(Value::Map(m))).map_err(|e| e.label(inputs.span.start..outputs.span.end, "here"))
    }

    fn factors(&mut self) -> Result<Option<Value>> {
        let mut factors = Vec::new();
        while let Some(word) = self.peek().filter(|w| w.text != "->" && !w.text.contains('=')) {
            factors.push(if word.text == "?" { None } else { Some(number(word)?) });
            self.at += 1;
        }
        Ok((!factors.is_empty()).then_some(Value::Factors(factors)))
    }

    fn multiples(&mut self) -> Result<Option<Value>> {
        let mut multiples = Vec::new();
        while let Some(word) = self.peek().filter(|w| w.text != "->") {
            let Some((of, multiple)) = word.text.split_once('=') else { break };
            let part = |text| Word { text, span: word.span.clone() };
            multiples.push((name(&part(of))?, number(&part(multiple))?));
            self.at += 1;
        }
        Ok((!multiples.is_empty()).then_some(Value::Multiples(multiples)))
    }

    /// A list takes every word but those that the places after it need.
    fn list(&mut self, parameter: &Parameter) -> Result<Option<Value>> {
        let after = self.primitive.signature.iter().skip_while(|p| p.name != parameter.name).skip(1);
        let needed = after.filter(|p| p.form == Form::Place).count();
        let rest = &self.words[self.at..];
        let end = rest.iter().position(|w| w.text == "->" || w.text.contains('=')).unwrap_or(rest.len());
        let taken = &rest[..end.saturating_sub(needed)];
        self.at += taken.len();
        let names = taken.iter().map(name).collect::<Result<Vec<String>>>()?;
        Ok((!names.is_empty()).then_some(Value::Words(names)))
    }
}

fn single(primitive: &Primitive, parameter: &Parameter, word: &Word) -> Result<Value> {
    match parameter.kind {
        ParamKind::Int => number(word).map(Value::Int),
        ParamKind::Choice(words) if !words.contains(&word.text) => {
            let guess = find::suggestion(word.text, words.iter().copied());
            let message = format!("`{}` is not one of {}{guess}", word.text, words.join(", "));
            Err(renamed(word.refuse(Code::StepWord, message), word, primitive))
        }
        ParamKind::Choice(_) => Ok(Value::Word(word.text.to_string())),
        ParamKind::Row if is_row(word.text) => Ok(Value::Word(word.text.to_string())),
        ParamKind::Map | ParamKind::Factors | ParamKind::Multiples => {
            let message = format!("`{}` cannot be given as {}=..", primitive.name, parameter.name);
            Err(word.refuse(Code::StepWord, message))
        }
        kind if kind.is_list() => Ok(Value::Words(vec![name(word)?])),
        _ => name(word).map(Value::Word),
    }
}

/// Adds the new spelling of a word to its error.
fn renamed(error: Error, word: &Word, primitive: &Primitive) -> Error {
    match RENAMED.iter().find(|(of, old, _)| *of == primitive.name && *old == word.text) {
        Some((_, old, new)) => error.help(format!("`{old}` is now `{new}`")),
        None => error,
    }
}

/// Whether a word can name an instruction.
pub(super) fn is_row(text: &str) -> bool {
    text.len() <= limits::NAME && text.split('.').all(|part| !part.is_empty() && part.chars().all(is_name_char))
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn name(word: &Word) -> Result<String> {
    if is_name(word.text) {
        return Ok(word.text.to_string());
    }
    let message = format!("`{}` is not a name (letters, digits and _, at most {})", word.text, limits::NAME);
    Err(word.refuse(Code::StepName, message))
}

fn number(word: &Word) -> Result<i64> {
    match word.text.parse::<i64>() {
        Ok(n) if n.unsigned_abs() <= limits::NUMBER.unsigned_abs() => Ok(n),
        Ok(_) => Err(word.refuse(Code::StepLimit, format!("{} is beyond {}", word.text, limits::NUMBER))),
        Err(_) => {
            let error = word.refuse(Code::StepNumber, format!("`{}` is not a whole number", word.text));
            Err(error.help(format!("numbers from -{0} to {0}", limits::NUMBER)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, code: &str, message: &str) {
        let e = parse(text).expect_err(text);
        assert_eq!(e.code().to_string(), code, "{e}");
        assert!(e.message().starts_with(message), "{e}");
    }

    #[test]
    fn steps_print_as_they_read() {
        for text in [
            "split i ? 128 -> i0 i1",
            "split i 2 ? 4",
            "fuse a b -> f",
            "reorder a b c",
            "bind i blockIdx.x persistent",
            "bind i threadIdx.y",
            "cache_read C A shared -> A_shared",
            "storage_align A_s 0 32 8",
            "transform_layout A [i, j] -> [i // 4, j, i % 4]",
            "annotate i unroll_limit 4",
            "tensorize im wgmma.m64n256k16.f32.f16.f16 m=im n=jn k=ki",
            "swizzle A_s B_s 128",
            "copy_with B_s tma multicast=ic",
            "pipeline k0 stages=4 in_flight=1",
            "specialize A_s B_s -> load warps=4 regs=40",
            "rasterize i0 j0 group=8 -> tile",
            "pad C i=128 k=8 -> A_pad B_pad C_pad",
            "tensor_core ko",
            "tensor_core ko = none",
            "tensor_core ko = mma.m16n8k16.f32.f16.f16 -> w",
        ] {
            let steps = parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(steps.iter().map(|s| s.to_string()).collect::<Vec<_>>(), [text]);
        }
    }

    #[test]
    fn separators_comments_and_blanks() {
        let steps = parse("  # nothing\n unroll a;; unroll b # c; d\n\n;\nunroll c").unwrap();
        assert_eq!(steps.len(), 3);
        assert_eq!(parse("pipeline k stages=4").unwrap(), parse("pipeline stages=4 k").unwrap());
    }

    #[test]
    fn errors_say_where() {
        let e = parse("unroll a\nsplit i ? x").unwrap_err();
        let label = &e.labels()[0];
        assert_eq!(
            (e.code().to_string().as_str(), &e.source_text().unwrap()[label.span.clone()]),
            ("step.number", "x")
        );
        refused("unrol k", "step.primitive", "there is no primitive `unrol`; did you mean `unroll`?");
        refused("unroll", "step.args", "`unroll` needs its loop: `unroll LOOP`");
        refused("unroll a b", "step.word", "`b` is unexpected: `unroll LOOP`");
        refused("unroll 5", "step.name", "`5` is not a name");
        refused("bind i threadIdx.w", "step.word", "`threadIdx.w` is not one of");
        refused("pipeline k stages=x", "step.number", "`x` is not a whole number");
        refused("pipeline k", "step.args", "`pipeline` needs its stages");
        refused("pipeline k stage=4", "step.word", "`pipeline` has no option `stage`; did you mean `stages`?");
        refused("pipeline k stages=4 stages=4", "step.word", "`stages` is stated twice");
        refused("pad C", "step.args", "`pad` needs its multiples: `pad BLOCK LOOP=MULTIPLE..");
        refused("pad C i=4 k", "step.word", "`k` is unexpected: `pad BLOCK LOOP=MULTIPLE..");
        refused("pad C i=x", "step.number", "`x` is not a whole number");
        refused("pad C =4", "step.name", "`` is not a name");
        refused("tensor_core ko = ", "step.args", "`tensor_core` has `=` without a choice after it");
        refused("tensor_core ko=none", "step.word", "`tensor_core` has no option `ko`");
        refused("tensor_core ko none", "step.word", "`none` is unexpected: `tensor_core LOOP [= ROW] [-> WARP]`");
        refused("unroll k -> a", "step.args", "`unroll` makes at most 0 names, 1 follow `->`");
        refused("fuse a b -> f g", "step.args", "`fuse` makes at most 1 names");
        refused("transform_layout A [i] [i]", "step.word", "`[i]` is unexpected");
        refused("transform_layout A [i] to [i]", "step.word", "`to` where the `->` of an index map was expected");
    }

    #[test]
    fn limits_hold() {
        refused(&" ".repeat(limits::TEXT + 1), "step.limit", "a schedule of 1048577 bytes");
        refused(&"unroll k;".repeat(limits::STEPS + 1), "step.limit", "more than 4096 steps");
        refused(&format!("reorder{}", " a".repeat(limits::WORDS)), "step.limit", "a step of 65 words");
        refused("split i 1099511627777", "step.limit", "1099511627777 is beyond");
        refused(&format!("unroll {}", "a".repeat(limits::NAME + 1)), "step.name", "`aaa");
    }

    #[test]
    fn no_text_makes_it_panic() {
        let mut rng = fastrand::Rng::with_seed(7);
        let pieces = [
            "split",
            "bind",
            "i",
            "->",
            "?",
            "4",
            "[",
            "]",
            "[i]",
            "=",
            "m=i",
            "tensor_core",
            "none",
            "pad",
            "i=4",
            "ä",
            ";",
            "#",
            "\n",
            "//",
            "-1",
            ",",
            "tensorize",
        ];
        for _ in 0..20_000 {
            let words: Vec<&str> = (0..rng.usize(0..9)).map(|_| pieces[rng.usize(0..pieces.len())]).collect();
            let text = words.join(if rng.bool() { " " } else { "" });
            if let Ok(steps) = parse(&text) {
                let printed: Vec<String> = steps.iter().map(|s| s.to_string()).collect();
                assert_eq!(parse(&printed.join(";")).unwrap(), steps, "{text}");
            }
        }
    }
}
