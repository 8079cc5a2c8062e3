//! Spaces: the schedules that the tuner chooses from.
//!
//! A space is a list of named schedules, such as the candidates of a GEMM, or a `.loom` text with knobs. A knob is a set of choices in
//! braces: `split i ? {8,16,32} -> i0 i1`. A configuration is the text with a choice in place of each knob.
//!
//! A knob has a name, so that a configuration reads `i1=8 j1=16`. `{tile: 8,16}` names it, and `{tile}` elsewhere is the same choice.
//! Without a name of its own, a factor of `split .. -> i0 i1` has the name of the loop that it makes, and `stages={2,3}` that of the option;
//! any other knob, and one whose name is taken, is `line7`, `line7.2` and so on.
//!
//! A choice may have several words: `{block.1: 32 32, 64 32}` puts the first word of the choice here, `{block.2}` elsewhere the second,
//! `{block}` all of them. So knobs that belong together are one knob. The configuration reads `block=32x32`; words that are not numbers
//! need a name of their own: `{order: k_last: i j k, k_first: k i j}` is `order=k_last` or `order=k_first`.

use crate::error::{Code, Error, Result, suggestion};
use crate::ir::Func;
use crate::loom::{self, Schedule, statements, target_statement};
use crate::target::Target;
use crate::te;
use std::ops::Range;

/// More configurations than these are refused: a set of choices that long is a mistake.
const MOST_CONFIGURATIONS: u64 = 1 << 40;

/// A set of choices.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Knob {
    /// Its name in the space.
    pub name: String,
    /// The names of the choices, in the order of the text: the word of a choice, its numbers with `x` between them, or its stated name.
    pub choices: Vec<String>,
    /// The words of each choice.
    words: Vec<Vec<String>>,
    /// The braces that a choice replaces, and by which of its words; by all of them without a number.
    places: Vec<(Range<usize>, Option<usize>)>,
}

impl Knob {
    /// The text of a choice in a place.
    fn text(&self, choice: usize, part: Option<usize>) -> String {
        let words = &self.words[choice];
        part.and_then(|n| words.get(n).cloned()).unwrap_or_else(|| words.join(" "))
    }
}

/// A configuration: its name and its schedule, or why it has none.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Configuration {
    /// Its number in the space, from 0.
    pub number: u64,
    /// The choices, `i1=8 j1=16`, or the name of the listed schedule.
    pub name: String,
    /// The schedule; an error where the text with these choices is none.
    pub schedule: Result<Schedule>,
    /// The text of the schedule, as it prints; where it is none, that of the space with these choices.
    pub text: String,
}

/// Schedules of one program for one chip.
#[derive(Debug, Clone)]
pub struct Space {
    source: Source,
    program: Func,
    target: Target,
    sizes: Option<Vec<i64>>,
    is_tested: bool,
}

#[derive(Debug, Clone)]
enum Source {
    Text { text: String, knobs: Vec<Knob> },
    List(Vec<(String, Schedule)>),
}

impl Space {
    /// The space of a text with knobs, at another size and for another chip where they are given.
    ///
    /// # Errors
    /// `tune.space` where the text has no knobs or too many configurations, `tune.knob` where a knob is malformed, and what
    /// [`Schedule::parse`] and [`Schedule::resized`] refuse with the first choice of each knob.
    pub fn parse(text: &str, sizes: Option<&[i64]>, target: Option<Target>) -> Result<Space> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).to_string();
        let knobs = knobs(&text)?;
        if knobs.is_empty() {
            let error = Error::input(Code::TuneSpace, "the text has no knobs: it is one schedule");
            return Err(error.help("split i ? {8,16,32} -> i0 i1"));
        }
        let count = knobs.iter().try_fold(1u64, |n, knob| n.checked_mul(knob.choices.len() as u64));
        if count.is_none_or(|n| n > MOST_CONFIGURATIONS) {
            return Err(Error::input(Code::TuneSpace, "the space has more than 2^40 configurations"));
        }
        let first = filled(&text, &knobs, &vec![0; knobs.len()]);
        let first = target.map_or_else(|| Schedule::parse(&first), |target| Schedule::parse_for(&first, target));
        let names = || format!("with the first choices, {}", named(&knobs, &vec![0; knobs.len()]));
        let first = first.map_err(|e| e.within(names()))?;
        let first = sizes.map_or(Ok(first.clone()), |sizes| first.resized(sizes))?;
        let sizes = sizes.map(<[i64]>::to_vec);
        let Schedule { program, target, .. } = first;
        Ok(Space { source: Source::Text { text, knobs }, program, target, sizes, is_tested: false })
    }

    /// The space of a list of schedules with their names, of one program for one chip.
    ///
    /// # Errors
    /// `tune.space` where the list is empty or has schedules of two programs or chips.
    pub fn list(schedules: Vec<(String, Schedule)>) -> Result<Space> {
        let Some((_, first)) = schedules.first() else {
            return Err(Error::input(Code::TuneSpace, "the list has no schedules"));
        };
        let (program, target) = (first.program.clone(), first.target);
        if schedules.iter().any(|(_, s)| s.program != program || s.target != target) {
            return Err(Error::input(Code::TuneSpace, "the list has schedules of two programs or chips"));
        }
        Ok(Space { source: Source::List(schedules), program, target, sizes: None, is_tested: false })
    }

    /// The same space; legality claims that are not decided are tried at some points ([`Schedule::allow_tested`]).
    #[must_use]
    pub fn allow_tested(mut self) -> Space {
        self.is_tested = true;
        self.program.allow_tested = true;
        self
    }

    /// The program of every configuration.
    pub fn program(&self) -> &Func {
        &self.program
    }

    /// The chip of every configuration.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Whether legality claims that are not decided are tried at some points.
    pub fn is_tested(&self) -> bool {
        self.is_tested
    }

    /// The sets of choices; none of a list.
    pub fn knobs(&self) -> &[Knob] {
        match &self.source {
            Source::Text { knobs, .. } => knobs,
            Source::List(_) => &[],
        }
    }

    /// Whether the order of the configurations is that of a cost model, the cheapest first: that of a list is.
    pub fn is_ranked(&self) -> bool {
        matches!(self.source, Source::List(_))
    }

    /// How many configurations there are.
    pub fn count(&self) -> u64 {
        match &self.source {
            Source::Text { knobs, .. } => knobs.iter().map(|k| k.choices.len() as u64).product(),
            Source::List(list) => list.len() as u64,
        }
    }

    /// `i1: 8 16 32 x j1: 8 16 = 6 configurations`.
    pub fn describe(&self) -> String {
        let total = crate::error::counted(self.count(), "configuration");
        match &self.source {
            Source::Text { knobs, .. } => {
                let one = |k: &Knob| format!("{} {{{}}}", k.name, k.choices.join(","));
                format!("{} = {total}", knobs.iter().map(one).collect::<Vec<_>>().join(" x "))
            }
            Source::List(_) => total,
        }
    }

    /// A configuration; the choices of the last knob change fastest. `None` from [`Space::count`] on.
    pub fn configuration(&self, number: u64) -> Option<Configuration> {
        if number >= self.count() {
            return None;
        }
        let (name, schedule, text) = match &self.source {
            Source::Text { text, knobs } => {
                let chosen = chosen(knobs, number);
                let text = filled(text, knobs, &chosen);
                let schedule = Schedule::parse_for(&text, self.target);
                let schedule = schedule.and_then(|s| self.sizes.as_ref().map_or(Ok(s.clone()), |n| s.resized(n)));
                (named(knobs, &chosen), schedule, text)
            }
            Source::List(list) => {
                let (name, schedule) = list.get(usize::try_from(number).ok()?)?;
                (name.clone(), Ok(schedule.clone()), String::new())
            }
        };
        let text = schedule.as_ref().map_or(text, Schedule::to_string);
        let allowed = |s: Schedule| if self.is_tested { s.allow_tested() } else { s };
        Some(Configuration { number, name, schedule: schedule.map(allowed), text })
    }

    /// The configurations that differ from this one in one knob, by one place in its choices.
    pub fn adjacent(&self, number: u64) -> Vec<u64> {
        let Source::Text { knobs, .. } = &self.source else { return Vec::new() };
        let own = chosen(knobs, number);
        let mut out = Vec::new();
        for (n, knob) in knobs.iter().enumerate() {
            for other in [own[n].checked_sub(1), Some(own[n] + 1)].into_iter().flatten() {
                if other < knob.choices.len() {
                    let mut next = own.clone();
                    next[n] = other;
                    out.push(number_of(knobs, &next));
                }
            }
        }
        out
    }

    /// What tells this space from others: its text or the texts of its schedules, with size and chip.
    pub fn identity(&self) -> String {
        let own = match &self.source {
            Source::Text { text, .. } => text.clone(),
            Source::List(list) => list.iter().map(|(name, s)| format!("{name}\n{s}\n")).collect(),
        };
        format!("{own}\n{:?} {} {}", self.sizes, self.target, self.is_tested)
    }
}

/// A `.loom` text in the one layout ([`crate::loom::format`]), with knobs or without. Words of a step with knobs are separated by one blank.
///
/// # Errors
/// Those of [`crate::loom::format`] and, of a text with knobs, of [`Space::parse`].
pub fn format(text: &str) -> Result<String> {
    let space = match Space::parse(text, None, None) {
        Ok(space) => space,
        Err(e) if e.code() == Code::TuneSpace || e.code() == Code::LoomTarget => return loom::format(text),
        Err(e) => return Err(e),
    };
    let out = loom::layout(text.strip_prefix('\u{feff}').unwrap_or(text))?;
    let first = |space: &Space| space.configuration(0).map(|c| c.text);
    let again = Space::parse(&out, None, None);
    let names = |space: &Space| space.knobs().iter().map(|k| (k.name.clone(), k.choices.clone())).collect::<Vec<_>>();
    match again {
        Ok(again) if first(&again) == first(&space) && names(&again) == names(&space) => Ok(out),
        _ => Err(Error::bug(Code::LoomFormat, "the text in the one layout does not mean what the text means")),
    }
}

/// The program as `te` prints it, by which records know it.
pub fn program_text(program: &Func) -> String {
    te::print(program).trim_end().to_string()
}

/// The places of the choices of a configuration.
fn chosen(knobs: &[Knob], number: u64) -> Vec<usize> {
    let mut rest = number;
    let mut out: Vec<usize> = Vec::with_capacity(knobs.len());
    for knob in knobs.iter().rev() {
        let choices = knob.choices.len() as u64;
        out.push((rest % choices) as usize);
        rest /= choices;
    }
    out.reverse();
    out
}

fn number_of(knobs: &[Knob], chosen: &[usize]) -> u64 {
    knobs.iter().zip(chosen).fold(0, |n, (knob, at)| n * knob.choices.len() as u64 + *at as u64)
}

/// `i1=8 j1=16`.
fn named(knobs: &[Knob], chosen: &[usize]) -> String {
    let one = |(knob, at): (&Knob, &usize)| format!("{}={}", knob.name, knob.choices[*at]);
    knobs.iter().zip(chosen).map(one).collect::<Vec<_>>().join(" ")
}

/// The text with a choice in place of each knob.
fn filled(text: &str, knobs: &[Knob], chosen: &[usize]) -> String {
    let mut places: Vec<(&Range<usize>, String)> = Vec::new();
    for (knob, at) in knobs.iter().zip(chosen) {
        places.extend(knob.places.iter().map(|(place, part)| (place, knob.text(*at, *part))));
    }
    places.sort_by_key(|(place, _)| place.start);
    let (mut out, mut from) = (String::with_capacity(text.len()), 0);
    for (place, choice) in places {
        out.push_str(&text[from..place.start]);
        out.push_str(&choice);
        from = place.end;
    }
    out.push_str(&text[from..]);
    out
}

/// Braces of a text: where they are, a stated name, and the choices; of `{tile}` a name without choices.
struct Braces {
    place: Range<usize>,
    name: Option<String>,
    /// Which word of a choice the braces stand for, from 0.
    part: Option<usize>,
    choices: Vec<Choice>,
    /// The name where none is stated, if the statement gives one.
    default: Option<String>,
}

/// A choice: its name and its words.
struct Choice {
    name: String,
    words: Vec<String>,
}

impl Choice {
    /// `32`, `32 64 32` or `k_first: k i j`; what is wrong with it otherwise.
    fn parse(text: &str) -> std::result::Result<Choice, &'static str> {
        const LIST: &str = "a set of choices is words separated by commas";
        let (name, list) = match text.split_once(':') {
            Some((name, list)) => (Some(name.trim()), list),
            None => (None, text),
        };
        let words: Vec<String> = list.split_whitespace().map(str::to_string).collect();
        let is_word = |c: &String| !c.contains(|c: char| ":;#".contains(c));
        let is_named =
            name.is_none_or(|name| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_'));
        if words.is_empty() || !words.iter().all(is_word) || !is_named {
            return Err(LIST);
        }
        let is_number = |w: &String| w.chars().all(|c| c.is_ascii_digit());
        match name {
            Some(name) => Ok(Choice { name: name.to_string(), words }),
            None if words.len() == 1 || words.iter().all(is_number) => Ok(Choice { name: words.join("x"), words }),
            None => Err("a choice of several words that are not numbers has no name"),
        }
    }
}

/// The knobs of a text.
fn knobs(text: &str) -> Result<Vec<Knob>> {
    let (target, _) = target_statement(text)?;
    let wrong = |place: &Range<usize>, message: String| {
        Error::input(Code::TuneKnob, message).text(text).label(place.clone(), "this set of choices")
    };
    let mut all = Vec::new();
    for statement in statements(text) {
        let found = braces(text, &statement)?;
        if let Some(first) = found.first().filter(|_| statement.start < target.end) {
            let message = "a knob before the steps: every configuration has the same program and target";
            return Err(wrong(&first.place, message.into()));
        }
        all.extend(found);
    }
    let stated: Vec<String> = all.iter().filter(|b| !b.choices.is_empty()).filter_map(|b| b.name.clone()).collect();
    let mut knobs: Vec<Knob> = Vec::new();
    for b in all.iter().filter(|b| !b.choices.is_empty()) {
        let taken = |name: &str| knobs.iter().any(|k| k.name == name);
        let name = match &b.name {
            Some(name) if taken(name) => return Err(wrong(&b.place, format!("the name `{name}` is taken"))),
            Some(name) => name.clone(),
            None => {
                let line = text[..b.place.start].matches('\n').count() + 1;
                let free = |name: &String| !taken(name) && !stated.contains(name);
                let numbered = |n: u32| if n == 1 { format!("line{line}") } else { format!("line{line}.{n}") };
                b.default.clone().filter(free).or_else(|| (1..).map(numbered).find(free)).unwrap_or_default()
            }
        };
        let choices = b.choices.iter().map(|c| c.name.clone()).collect();
        let words = b.choices.iter().map(|c| c.words.clone()).collect();
        knobs.push(Knob { name, choices, words, places: vec![(b.place.clone(), b.part)] });
    }
    for b in all.iter().filter(|b| b.choices.is_empty()) {
        let name = b.name.clone().unwrap_or_default();
        let Some(knob) = knobs.iter_mut().find(|k| k.name == name) else {
            let guess = suggestion(&name, knobs.iter().map(|k| k.name.as_str()));
            let error = wrong(&b.place, format!("no knob has the name `{name}`{guess}"));
            return Err(error.help(format!("{{{name}: 8,16}} states its choices")));
        };
        knob.places.push((b.place.clone(), b.part));
    }
    for knob in &knobs {
        for (place, part) in knob.places.iter().filter_map(|(place, part)| Some((place, (*part)?))) {
            if let Some(short) = knob.words.iter().position(|words| part >= words.len()) {
                let (choice, name) = (&knob.choices[short], &knob.name);
                return Err(wrong(place, format!("the choice `{choice}` of `{name}` has no word {}", part + 1)));
            }
        }
    }
    Ok(knobs)
}

/// The braces of a statement.
fn braces(text: &str, statement: &Range<usize>) -> Result<Vec<Braces>> {
    let own = &text[statement.clone()];
    let mut out: Vec<Braces> = Vec::new();
    let mut from = 0;
    while let Some(open) = own[from..].find(['{', '}']).map(|n| from + n) {
        let place = |end: usize| statement.start + open..statement.start + end;
        let wrong = |place: Range<usize>, message: &str| {
            let error = Error::input(Code::TuneKnob, message).text(text).label(place, "here");
            error.help("{8,16,32}").help("{tile: 8,16,32} and elsewhere {tile}")
        };
        let close = own[open + 1..].find(['{', '}']).map(|n| open + 1 + n);
        let Some(close) = close.filter(|at| own[open..].starts_with('{') && own[*at..].starts_with('}')) else {
            return Err(wrong(place(open + 1), "a brace without its partner: a set of choices is closed on its line"));
        };
        let inside = &own[open + 1..close];
        let (name, list) = match inside.split_once(':') {
            Some((name, list)) => (Some(name.trim()), list),
            None => (None, inside),
        };
        if let (None, Some((name, part))) = (name, reference(list)) {
            let name = Some(name.to_string());
            out.push(Braces { place: place(close + 1), name, part, choices: Vec::new(), default: None });
            from = close + 1;
            continue;
        }
        let named = name.map(|name| reference(name).ok_or(name)).transpose();
        let Ok(named) = named else {
            return Err(wrong(place(close + 1), "the name of a set of choices is letters, digits and `_`"));
        };
        let choices = list.split(',').map(|c| Choice::parse(c.trim())).collect::<std::result::Result<Vec<_>, _>>();
        let choices = choices.map_err(|why| wrong(place(close + 1), why))?;
        if choices.iter().enumerate().any(|(n, c)| choices[..n].iter().any(|d| d.name == c.name || d.words == c.words))
        {
            return Err(wrong(place(close + 1), "a set of choices has one of them twice"));
        }
        let (part, default) = (named.and_then(|n| n.1), default_name(own, open));
        let name = named.map(|n| n.0.to_string());
        out.push(Braces { place: place(close + 1), name, part, choices, default });
        from = close + 1;
    }
    Ok(out)
}

/// `block`, or `block.2` for the second word of a choice: the name, and the number from 0.
fn reference(text: &str) -> Option<(&str, Option<usize>)> {
    let (name, part) = match text.trim().split_once('.') {
        Some((name, part)) => (name, Some(part.parse::<usize>().ok()?.checked_sub(1)?)),
        None => (text.trim(), None),
    };
    is_name(name).then_some((name, part))
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_') && word.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// The name that a statement gives the knob at a place: the option's, or that of the loop that the factor of a split makes.
fn default_name(statement: &str, at: usize) -> Option<String> {
    let words = words(statement);
    let word = words.iter().position(|w| w.contains(&at))?;
    let text = |n: usize| &statement[words[n].clone()];
    if let Some((key, _)) = text(word).split_once('=').filter(|(key, _)| is_name(key)) {
        return Some(key.to_string());
    }
    let arrow = (0..words.len()).find(|n| text(*n) == "->")?;
    let is_factor = |n: &usize| *n >= 2 && *n < arrow && !text(*n).contains('=');
    let before = (0..word).filter(is_factor).count();
    let name = words.get(arrow + 1 + before).map(|w| &statement[w.clone()])?;
    (text(0) == "split" && is_factor(&word)).then(|| name.to_string())
}

/// The places of the words of a statement; braces are one word.
fn words(statement: &str) -> Vec<Range<usize>> {
    let (mut out, mut begin, mut depth) = (Vec::new(), None, 0u32);
    for (at, c) in statement.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if c.is_whitespace() && depth == 0 {
            out.extend(begin.take().map(|from| from..at));
        } else if begin.is_none() {
            begin = Some(at);
        }
    }
    out.extend(begin.map(|from| from..statement.len()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const TEXT: &str = "vec_add 1024\ntarget sm_80  # {not, one}\nsplit i ? {32, 64,128} {v: 1,4} -> i0 i1 i2\n\
                        bind i0 blockIdx.x; bind i1 threadIdx.x\nannotate i1 unroll_limit {2,4}; unroll i2\n";

    fn names(text: &str) -> Vec<String> {
        Space::parse(text, None, None).unwrap().knobs().iter().map(|k| k.name.clone()).collect()
    }

    fn refusal(text: &str) -> (Code, String) {
        let error = Space::parse(text, None, None).unwrap_err();
        let source = error.source_text().unwrap_or_default();
        (error.code(), error.labels().first().map(|l| source[l.span.clone()].to_string()).unwrap_or_default())
    }

    #[test]
    fn a_text_is_its_configurations() {
        let space = Space::parse(TEXT, None, None).unwrap();
        assert_eq!(names(TEXT), ["i1", "v", "line5"]);
        assert_eq!((space.count(), space.target().name), (12, "sm_80"));
        assert_eq!(space.describe(), "i1 {32,64,128} x v {1,4} x line5 {2,4} = 12 configurations");
        let all: Vec<Configuration> = (0..12).map(|n| space.configuration(n).unwrap()).collect();
        assert_eq!(all[0].name, "i1=32 v=1 line5=2");
        assert_eq!(all[11].name, "i1=128 v=4 line5=4");
        let text = all[11].schedule.as_ref().unwrap().to_string();
        assert!(text.contains("split i ? 128 4 -> i0 i1 i2\n") && text.contains("unroll_limit 4"), "{text}");
        let texts: BTreeSet<String> = all.iter().map(|c| c.schedule.as_ref().unwrap().to_string()).collect();
        assert_eq!(texts.len(), 12);
        assert!(space.configuration(12).is_none());
    }

    #[test]
    fn a_named_knob_is_one_choice_wherever_it_is_used() {
        let text = "gemm 64x64x64 f32 NN\ntarget sm_80\nsplit i ? {t: 8,16} -> a b; split j ? {t} -> c d";
        let space = Space::parse(text, None, None).unwrap();
        assert_eq!(space.count(), 2);
        let text = space.configuration(1).unwrap().schedule.unwrap().to_string();
        assert!(text.contains("split i ? 16 -> a b\nsplit j ? 16 -> c d"), "{text}");
    }

    #[test]
    fn choices_of_several_words_belong_together() {
        let text = "gemm 64x64x64 f32 NN\ntarget sm_80\nsplit i ? {block.1: 8 16, 16 4} -> a b; split j ? {block.2} -> c d\n\
                    reorder {order: rows: a c, columns: c a} b d";
        let space = Space::parse(text, None, None).unwrap();
        assert_eq!(space.describe(), "block {8x16,16x4} x order {rows,columns} = 4 configurations");
        let last = space.configuration(3).unwrap();
        assert_eq!(last.name, "block=16x4 order=columns");
        let text = last.schedule.unwrap().to_string();
        assert!(text.contains("split i ? 16 -> a b\nsplit j ? 4 -> c d\nreorder c a b d\n"), "{text}");
        assert_eq!(format(&text).unwrap(), text);
    }

    #[test]
    fn adjacent_configurations_differ_in_one_choice() {
        let space = Space::parse(TEXT, None, None).unwrap();
        let near: BTreeSet<String> =
            space.adjacent(5).into_iter().map(|n| space.configuration(n).unwrap().name).collect();
        assert_eq!(space.configuration(5).unwrap().name, "i1=64 v=1 line5=4");
        let wanted = ["i1=32 v=1 line5=4", "i1=128 v=1 line5=4", "i1=64 v=4 line5=4", "i1=64 v=1 line5=2"];
        assert_eq!(near, wanted.iter().map(|s| s.to_string()).collect());
    }

    #[test]
    fn knobs_without_names_are_named_by_loop_option_or_line() {
        let head = "gemm 64x64x64 f32 NN\ntarget sm_80\n";
        let named = |steps: &str| names(&format!("{head}{steps}"));
        assert_eq!(named("split i {2,4} ? -> a b; split j ? {2,4} {1,2} -> c d e"), ["a", "d", "e"]);
        assert_eq!(named("launch i min_blocks={1,2}; launch j min_blocks={1,2}"), ["min_blocks", "line3"]);
        assert_eq!(named("split i {2,4} {2,4} ?"), ["line3", "line3.2"]);
        assert_eq!(named("split i {2,4} ? -> a b; split j ? {a: 2,4} -> c d"), ["line3", "a"]);
    }

    #[test]
    fn malformed_knobs_are_underlined() {
        let of = |steps: &str| refusal(&format!("vec_add 1024\ntarget sm_80\n{steps}"));
        for (steps, place) in [
            ("split i ? {8,16 -> a b", "{"),
            ("split i ? 8} -> a b", "}"),
            ("split i ? {{8}} -> a b", "{"),
            ("split i ? {} -> a b", "{}"),
            ("split i ? {8,} -> a b", "{8,}"),
            ("split i ? {8,8} -> a b", "{8,8}"),
            ("split i ? {a b: 8,16} -> a b", "{a b: 8,16}"),
            ("split i ? {t: 8,16} {t: 1,2} -> a b c", "{t: 1,2}"),
            ("split i ? {t: 8,16} {u} -> a b c", "{u}"),
            ("split i ? {t.2: 8 2,16} -> a b", "{t.2: 8 2,16}"),
            ("split i ? {t: 8 2,16 4} {t.3} -> a b c d", "{t.3}"),
            ("split i ? {t.0: 8,16} -> a b", "{t.0: 8,16}"),
            ("split i ? {t.1.1: 8,16} -> a b", "{t.1.1: 8,16}"),
            ("split i ? {t: 8 2,8 2} -> a b", "{t: 8 2,8 2}"),
            ("split i ? {t: a: 8,a: 16} -> a b", "{t: a: 8,a: 16}"),
            ("reorder {i j,j i}", "{i j,j i}"),
            ("reorder {t: a b: i j,c: j i}", "{t: a b: i j,c: j i}"),
        ] {
            assert_eq!(of(steps), (Code::TuneKnob, place.to_string()), "{steps}");
        }
        assert_eq!(refusal("vec_add {8,16}\ntarget sm_80"), (Code::TuneKnob, "{8,16}".into()));
        assert_eq!(of("unroll i").0, Code::TuneSpace);
        assert_eq!(of("spilt i ? {8,16} -> a b").0, Code::StepPrimitive);
        let many: String = (0..14).map(|n| format!("split x{n} ? {{1,2,3,4,5,6,7,8,9}} -> x y\n")).collect();
        assert_eq!(of(&many).0, Code::TuneSpace);
    }

    #[test]
    fn a_space_is_no_schedule() {
        let error = Schedule::parse(TEXT).unwrap_err();
        assert_eq!(error.code(), Code::LoomKnobs);
        let source = error.source_text().unwrap();
        assert_eq!(&source[error.labels()[0].span.clone()], "{32, 64,128}");
        assert!(error.to_string().contains("warploom tune"), "{error}");
    }

    #[test]
    fn a_space_has_the_layout_of_its_schedules() {
        let text = "vec_add   1024 # all\n\n\ntarget sm_80\nsplit   i ? {32, 64}   -> i0  i1 ;bind i0 blockIdx.x\n\n";
        let wanted = "vec_add 1024  # all\n\ntarget sm_80\nsplit i ? {32, 64} -> i0 i1; bind i0 blockIdx.x\n";
        assert_eq!((format(text).unwrap().as_str(), format(wanted).unwrap().as_str()), (wanted, wanted));
        assert_eq!(format("vec_add  8; target sm_80").unwrap(), "vec_add 8; target sm_80\n");
        assert_eq!(format("vec_add 8\ntarget sm_80\nsplit i ? {8,8}").unwrap_err().code(), Code::TuneKnob);
    }

    #[test]
    fn a_list_is_of_one_program() {
        let of = |text: &str| (text.to_string(), Schedule::parse(text).unwrap());
        let (a, b) = (of("vec_add 8; target sm_80"), of("vec_add 16; target sm_80"));
        assert_eq!(Space::list(vec![a.clone()]).unwrap().count(), 1);
        assert_eq!(Space::list(vec![a, b]).unwrap_err().code(), Code::TuneSpace);
        assert_eq!(Space::list(Vec::new()).unwrap_err().code(), Code::TuneSpace);
    }
}
