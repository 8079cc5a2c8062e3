//! The names of a schedule: loops, blocks, buffers and mbarriers, which step makes or changes each, and where each is in a text.

use crate::error::Result;
use crate::ir::print::{self, LineKind, Node, Printed, PrintedLine};
use crate::ir::{Axis, Func, Scope, visit};
use crate::loom::Schedule;
use crate::lower::{self, Lowered, LoweredKernel};
use similar::{ChangeTag, TextDiff};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What a name is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A loop, or an iterator of a block.
    Loop,
    /// A block.
    Block,
    /// A buffer.
    Buffer,
    /// An array of mbarriers.
    Mbarrier,
}

/// A name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// What it is of.
    pub kind: Kind,
    /// The name.
    pub text: String,
}

impl Name {
    /// A name.
    pub fn new(kind: Kind, text: &str) -> Name {
        Name { kind, text: text.to_string() }
    }

    /// The identifier of its element in the page: `loop-k0`.
    pub fn id(&self) -> String {
        let kind = self.word();
        let safe =
            |c: char| if c.is_ascii_alphanumeric() || c == '_' { c.to_string() } else { format!("-{:x}", c as u32) };
        format!("{kind}-{}", self.text.chars().map(safe).collect::<String>())
    }

    /// What it is of, in a word.
    pub fn word(&self) -> &'static str {
        match self.kind {
            Kind::Loop => "loop",
            Kind::Block => "block",
            Kind::Buffer => "buffer",
            Kind::Mbarrier => "mbarrier",
        }
    }
}

/// A place in a line: bytes from, bytes to, and the names that are there.
pub type Token = (usize, usize, Vec<Name>);

/// A line of a text with its names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// The text.
    pub text: String,
    /// What a line of a printed program is.
    pub kind: Option<LineKind>,
    /// How many heads it is inside.
    pub depth: usize,
    /// The bytes of a block's bindings, parentheses included.
    pub bindings: Option<Range<usize>>,
    /// The byte at which its comment begins.
    pub comment: Option<usize>,
    /// Ascending, apart from each other.
    pub tokens: Vec<Token>,
    /// Names that the line introduces.
    pub introduces: Vec<Name>,
}

/// A step with what it does to the program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// Its text.
    pub text: String,
    /// Why it was chosen, where the compiler chose.
    pub remark: Option<String>,
    /// The program after it.
    pub program: Vec<Line>,
    /// Lines of that program that it made or changed, from 0.
    pub changed: BTreeSet<usize>,
    /// What it makes, removes or changes; what it names where its text alone says that.
    pub names: BTreeSet<Name>,
}

/// The steps of a schedule and every name.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// The program before the first step.
    pub program: Vec<Line>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Every name with the step that makes it, from 1: 0 the program itself, `None` the lowering.
    pub made: BTreeMap<Name, Option<usize>>,
    /// What each name becomes: loops that a step replaces by others, and what the lowering derives.
    pub becomes: BTreeMap<Name, BTreeSet<Name>>,
}

impl Line {
    /// A line of a printed text, without its names.
    fn of(printed: &Printed, line: &PrintedLine) -> Line {
        let start = line.span.start;
        Line {
            text: printed.text[line.span.clone()].to_string(),
            kind: Some(line.kind),
            depth: line.depth,
            bindings: line.bindings.as_ref().map(|b| b.start - start..b.end - start),
            comment: line.comment.map(|at| at - start),
            ..Line::default()
        }
    }
}

/// The lines of a printed program or kernel.
pub fn lines(printed: &Printed) -> Vec<Line> {
    let mut out: Vec<Line> = printed.lines.iter().map(|l| Line::of(printed, l)).collect();
    let mut known: BTreeSet<Node> = BTreeSet::new();
    for (node, span) in &printed.spans {
        let at = printed.lines.partition_point(|l| l.span.start <= span.start).saturating_sub(1);
        let (Some(line), Some(place)) = (out.get_mut(at), printed.lines.get(at)) else { continue };
        let name = named(*node, &printed.text[span.clone()]);
        // The comments above a kernel introduce nothing, mbarriers included; the iterators of a block are no loops of their own.
        let introduces = match node {
            Node::Loop(_) => line.kind == Some(LineKind::Loop),
            Node::Block(_) | Node::Buffer(_) => true,
            Node::Mbarrier(_) => false,
        };
        if line.kind != Some(LineKind::Comment) && known.insert(*node) && introduces {
            line.introduces.push(name.clone());
        }
        line.tokens.push((span.start - place.span.start, span.end - place.span.start, vec![name]));
    }
    out
}

fn named(node: Node, text: &str) -> Name {
    let kind = match node {
        Node::Loop(_) => Kind::Loop,
        Node::Block(_) => Kind::Block,
        Node::Buffer(_) => Kind::Buffer,
        Node::Mbarrier(_) => Kind::Mbarrier,
    };
    Name::new(kind, text)
}

impl Names {
    /// The names of a schedule and of what it lowers to.
    ///
    /// # Errors
    /// The step that is refused.
    pub fn of(schedule: &Schedule, lowered: &Lowered) -> Result<Names> {
        let program = lines(&print::print(&schedule.program));
        let mut out = Names { program, ..Names::default() };
        for name in used(&out.program) {
            out.made.insert(name, Some(0));
        }
        let mut steps = Vec::new();
        let mut known = BTreeSet::new();
        schedule.trace(&mut |_, step, func| {
            let tensorized = tensorized(func);
            let new: BTreeSet<Name> = tensorized.difference(&known).cloned().collect();
            known = tensorized;
            let remark = step.remark().map(|r| r.to_string());
            steps.push((
                Step { text: step.to_string(), remark, program: lines(&print::print(func)), ..Step::default() },
                new,
            ));
        })?;
        for (step, tensorized) in steps {
            out.step(step, tensorized);
        }
        out.lowering(lowered);
        out.bound(&schedule.scheduled()?);
        Ok(out)
    }

    fn step(&mut self, step: Step, tensorized: BTreeSet<Name>) {
        let Step { text, remark, program, .. } = step;
        let before = self.steps.last().map_or(&self.program, |s| &s.program);
        let (removed, changed) = difference(before, &program);
        let introduced =
            |lines: &[Line]| -> BTreeSet<Name> { lines.iter().flat_map(|l| l.introduces.iter().cloned()).collect() };
        let (old, new) = (introduced(before), introduced(&program));
        let mut names = BTreeSet::new();
        for line in removed.iter().filter_map(|n| before.get(*n)).chain(changed.iter().filter_map(|n| program.get(*n)))
        {
            names.extend(line.introduces.iter().cloned());
        }
        // The bindings of a block follow the loops: they alone are no change of the block.
        names.retain(|n| n.kind != Kind::Block);
        let blocks = old.union(&new).filter(|n| n.kind == Kind::Block);
        names.extend(blocks.filter(|n| head(before, n) != head(&program, n)).cloned());
        names.extend(tensorized);
        if names.is_empty() {
            names = mentioned(&text, &new).into_iter().flat_map(|t| t.2).collect();
        }
        let loops = |of: &BTreeSet<Name>, without: &BTreeSet<Name>| -> Vec<Name> {
            of.difference(without).filter(|n| n.kind == Kind::Loop).cloned().collect()
        };
        let (gone, came) = (loops(&old, &new), loops(&new, &old));
        for name in gone {
            self.becomes.entry(name).or_default().extend(came.iter().cloned());
        }
        let number = self.steps.len() + 1;
        for name in used(&program) {
            self.made.entry(name).or_insert(Some(number));
        }
        self.steps.push(Step { text, remark, program, changed, names });
    }

    /// Names that the lowering makes; one that continues a name of the schedule (`k0_round`, `A_s_full`) is what that becomes.
    fn lowering(&mut self, lowered: &Lowered) {
        for kernel in &lowered.kernels {
            let func = &kernel.func;
            let printed = print::print(func);
            let mut all: BTreeSet<Name> =
                printed.spans.iter().map(|(node, span)| named(*node, &printed.text[span.clone()])).collect();
            all.extend(func.mbarriers.iter().map(|b| Name::new(Kind::Mbarrier, &b.name)));
            for name in all {
                if self.made.contains_key(&name) {
                    continue;
                }
                let of = if name.kind == Kind::Mbarrier { Kind::Buffer } else { name.kind };
                let parent = self.made.iter().filter(|(n, made)| {
                    let rest = name.text.strip_prefix(n.text.as_str());
                    made.is_some() && n.kind == of && rest.is_some_and(|rest| rest.starts_with('_'))
                });
                if let Some(parent) = parent.map(|(n, _)| n.clone()).max_by_key(|n| n.text.len()) {
                    self.becomes.entry(parent).or_default().insert(name.clone());
                }
                self.made.insert(name, None);
            }
        }
    }

    /// A loop that is bound to an axis becomes that: warps and warpgroups are numbered by threadIdx.x.
    fn bound(&mut self, func: &Func) {
        for l in visit::loops(&func.body) {
            let Some(axis) = l.axis() else { continue };
            let axis = if matches!(axis, Axis::Warp | Axis::Warpgroup) { Axis::ThreadX } else { axis };
            let name = Name::new(Kind::Loop, axis.name());
            if self.made.get(&name) == Some(&None) {
                self.becomes.entry(Name::new(Kind::Loop, func.var_name(l.var))).or_default().insert(name);
            }
        }
    }

    /// Names with all that they become.
    pub fn closure(&self, names: &BTreeSet<Name>) -> BTreeSet<Name> {
        let mut out = names.clone();
        let mut open: Vec<Name> = names.iter().cloned().collect();
        while let Some(name) = open.pop() {
            for next in self.becomes.get(&name).into_iter().flatten() {
                if out.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        out
    }

    /// The lines of a text in which names stand by themselves: every word that is one.
    pub fn loose(&self, text: &str) -> Vec<Line> {
        let all: BTreeSet<Name> = self.made.keys().cloned().collect();
        let line = |l: &str| Line { text: l.to_string(), tokens: mentioned(l, &all), ..Line::default() };
        text.lines().map(line).collect()
    }

    /// The lines of a lowered program: the printer says what a name is of; the reason of a synchronisation is read by words.
    pub fn lowered(&self, lowered: &Lowered) -> Vec<Line> {
        let mut out: Vec<Line> = Vec::new();
        let is_spoken = |n: &&Name| n.kind == Kind::Mbarrier || n.kind == Kind::Buffer && self.is_inside(lowered, n);
        let spoken: BTreeSet<Name> = self.made.keys().filter(is_spoken).cloned().collect();
        for kernel in &lowered.kernels {
            if !out.is_empty() {
                out.push(Line::default());
            }
            for mut line in lines(&lower::printed_kernel(kernel)) {
                match (line.kind, line.comment) {
                    // The axes of the launch are linked where the body uses them.
                    (Some(LineKind::Comment), _) => line.tokens.retain(|t| !t.2.iter().any(|n| is_axis(kernel, n))),
                    (_, Some(comment)) => {
                        line.tokens.extend(mentioned(&line.text, &spoken).into_iter().filter(|t| t.0 >= comment));
                    }
                    _ => {}
                }
                out.push(line);
            }
        }
        out
    }

    fn is_inside(&self, lowered: &Lowered, name: &Name) -> bool {
        let shared = |s: Scope| s != Scope::Fragment;
        lowered.kernels.iter().any(|k| k.func.buffers.iter().any(|b| b.name == name.text && shared(b.scope)))
    }
}

/// Every name in the lines of a program, the iterators of blocks among them.
fn used(lines: &[Line]) -> BTreeSet<Name> {
    lines.iter().flat_map(|l| l.tokens.iter().flat_map(|t| t.2.iter().cloned())).collect()
}

/// The blocks whose nests are instructions.
fn tensorized(func: &Func) -> BTreeSet<Name> {
    let loops = visit::loops(&func.body).into_iter().filter(|l| l.tensorize.is_some());
    loops.flat_map(|l| visit::blocks(&l.body)).map(|b| Name::new(Kind::Block, func.block_name(b.name))).collect()
}

/// Whether a name is that of an axis of the hardware.
fn is_axis(kernel: &LoweredKernel, name: &Name) -> bool {
    name.kind == Kind::Loop && kernel.launch.iter().any(|l| l.axis.name() == name.text)
}

/// The line of a block without its bindings, and the lines of its body without indentation.
fn head(lines: &[Line], block: &Name) -> Option<Vec<String>> {
    let at = lines.iter().position(|l| l.introduces.contains(block))?;
    let line = &lines[at];
    let bare = match &line.bindings {
        Some(bindings) => format!("{}{}", &line.text[..bindings.start], &line.text[bindings.end..]),
        None => line.text.clone(),
    };
    let body = lines[at + 1..].iter().take_while(|l| l.depth > line.depth).map(|l| l.text.trim().to_string());
    Some(std::iter::once(bare.trim().to_string()).chain(body).collect())
}

/// The lines of two programs that differ, indentation aside: those of the first that go, those of the second that come.
fn difference(before: &[Line], after: &[Line]) -> (BTreeSet<usize>, BTreeSet<usize>) {
    let text = |lines: &[Line]| lines.iter().map(|l| format!("{}\n", l.text.trim())).collect::<String>();
    let (before, after) = (text(before), text(after));
    let (mut removed, mut changed) = (BTreeSet::new(), BTreeSet::new());
    for change in TextDiff::from_lines(&before, &after).iter_all_changes() {
        match change.tag() {
            ChangeTag::Delete => removed.extend(change.old_index()),
            ChangeTag::Insert => changed.extend(change.new_index()),
            ChangeTag::Equal => {}
        }
    }
    (removed, changed)
}

/// The words of a text that are names.
fn mentioned(text: &str, names: &BTreeSet<Name>) -> Vec<Token> {
    let mut out = Vec::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut rest = 0;
    while let Some(start) = text[rest..].find(is_word).map(|n| rest + n) {
        let end = text[start..].find(|c: char| !is_word(c)).map_or(text.len(), |n| start + n);
        let word = &text[start..end];
        // `threadIdx.x` has no loop x, `stages=4` no buffer of that name.
        let is_part = text[..start].ends_with('.') || text[end..].starts_with('=');
        let found: Vec<Name> = [Kind::Loop, Kind::Block, Kind::Buffer, Kind::Mbarrier]
            .into_iter()
            .map(|kind| Name::new(kind, word))
            .filter(|n| !is_part && names.contains(n))
            .collect();
        if !found.is_empty() {
            out.push((start, end, found));
        }
        rest = end;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower;

    fn names(text: &str) -> Names {
        let schedule = Schedule::parse(text).unwrap();
        let lowered = lower::lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        Names::of(&schedule, &lowered).unwrap()
    }

    const GEMM: &str = "gemm 64x64x64 f32 NN\ntarget sm_80\nsplit i ? 16 -> i0 i1; split k ? 8 -> k0 k1\nreorder i0 k0 i1 j k1\n\
                        bind i0 blockIdx.x; cache_read C A shared -> A_s; compute_at A_s k0\nbind i1 threadIdx.x\n";

    #[test]
    fn a_step_is_linked_with_what_it_makes_and_changes() {
        let names = names(GEMM);
        let of = |n: usize| names.steps[n - 1].names.iter().map(Name::id).collect::<Vec<_>>();
        assert_eq!(of(1), ["loop-i", "loop-i0", "loop-i1"]);
        assert_eq!(of(4), ["loop-i0"]);
        let cached = of(5);
        assert!(cached.contains(&"block-A_s".into()) && cached.contains(&"buffer-A_s".into()), "{cached:?}");
        assert!(cached.contains(&"block-C".into()), "block C reads another buffer: {cached:?}");
        assert!(!of(2).contains(&"block-C".into()), "bindings are no change of a block: {:?}", of(2));
        assert_eq!(names.made[&Name::new(Kind::Buffer, "A_s")], Some(5));
    }

    #[test]
    fn what_a_loop_becomes_is_followed() {
        let names = names(GEMM);
        let all = names.closure(&[Name::new(Kind::Loop, "i")].into());
        assert!(all.contains(&Name::new(Kind::Loop, "i1")) && !all.contains(&Name::new(Kind::Loop, "k0")), "{all:?}");
    }

    #[test]
    fn words_are_names_only_where_they_are_whole() {
        let known = [Name::new(Kind::Loop, "i"), Name::new(Kind::Buffer, "A")].into();
        let found = mentioned("bind i to A, in A_s", &known);
        assert_eq!(found.iter().map(|t| (t.0, t.1)).collect::<Vec<_>>(), [(5, 6), (10, 11)]);
    }
}
