//! The softmax of rows that the blocks of a cluster share, with one exchange and one exponential an element.
//!
//! Each warp takes the exponentials of its part of the row relative to the part's own maximum, and keeps them in registers. The pairs
//! (maximum, sum) of the warps are combined as in online softmax: first within the block, then between the blocks. The larger the part of a
//! warp, the fewer pairs: combining them costs as many exponentials in every thread.

use super::{Division, Rows};
use crate::ir::{Axis, Scope};
use crate::schedule::Steps;
use crate::target::LANES;

/// The least f32: what a part without an element, or of `-inf` alone, has for its maximum.
const LEAST: &str = "-3.4028234663852886e38";
const LOG2_E: &str = "1.4426950408889634";

/// One of the loops into which a row is divided.
struct Part {
    name: &'static str,
    extent: i64,
    /// Elements between two of its iterations.
    stride: i64,
}

impl Part {
    /// Its iteration for element `j` of the row.
    fn of_element(&self) -> String {
        match self.name {
            "c" => format!(", j // {}", self.stride),
            "v" => format!(", j % {}", self.extent),
            _ => format!(", j // {} % {}", self.stride, self.extent),
        }
    }
}

/// A row and its parts, outermost first: blocks, pieces of a thread, warps, lanes and elements of a piece. Those of one iteration are
/// left out.
struct Divided<'a> {
    rows: &'a Rows,
    parts: Vec<Part>,
    /// The parts that number a warp.
    warps: Vec<Part>,
    /// Elements of a piece that are one term of a reduction.
    term: i64,
    /// Terms of a piece.
    terms: i64,
    /// Some parts end beyond the row.
    ragged: bool,
}

impl<'a> Divided<'a> {
    fn new(rows: &'a Rows, d: &Division) -> Divided<'a> {
        let part = |(name, extent, stride)| Part { name, extent, stride };
        let [c, w] = [("c", d.blocks, d.pieces * d.threads * d.piece), ("w", d.threads / LANES, LANES * d.piece)];
        let all = [c, ("o", d.pieces, d.threads * d.piece), w, ("l", LANES, d.piece), ("v", d.piece, 1)];
        let several = |p: &Part| p.extent > 1;
        let term = d.piece.min(4);
        Divided {
            rows,
            parts: all.into_iter().map(part).filter(several).collect(),
            warps: [c, w].into_iter().map(part).filter(several).collect(),
            term,
            terms: d.piece / term,
            ragged: c.1 * c.2 != rows.columns,
        }
    }

    /// Names with extents, as dimensions of a buffer.
    fn dimensions(parts: &[Part]) -> String {
        parts.iter().map(|p| format!(", {} {}", p.name, p.extent)).collect()
    }

    /// The loops that a warp reduces over; `last` runs over the terms of a piece.
    fn reduced(&self, last: &str) -> String {
        let inner = self.parts.iter().filter(|p| matches!(p.name, "o" | "l"));
        let mut loops: Vec<String> = inner.map(|p| format!("{} {}", p.name, p.extent)).collect();
        loops.extend((self.terms > 1).then(|| format!("{last} {}", self.terms)));
        loops.join(", ")
    }

    /// The element of a buffer of the parts, element `v` of its piece.
    fn at(&self, buffer: &str, v: &str) -> String {
        let indices = self.parts.iter().map(|p| format!(", {}", if p.name == "v" { v } else { p.name }));
        format!("{buffer}[i{}]", indices.collect::<String>())
    }

    /// The number of that element in the row.
    fn place(&self, v: &str) -> String {
        let strided = self.parts.iter().map(|p| match (p.name, p.stride) {
            ("v", _) => v.to_string(),
            (name, 1) => name.to_string(),
            (name, stride) => format!("{name}*{stride}"),
        });
        strided.collect::<Vec<_>>().join(" + ")
    }

    /// The value where that element is in the row.
    fn inside(&self, v: &str, value: String, outside: &str) -> String {
        match self.ragged {
            true => format!("select({} < {}, {value}, {outside})", self.place(v), self.rows.columns),
            false => value,
        }
    }

    /// A term of a reduction over elements: a tree, so that no long chain of operations depends on itself.
    fn term(&self, last: &str, value: &dyn Fn(&str) -> String, combine: &dyn Fn(&str, &str) -> String) -> String {
        let element = |n: i64| match (self.term, self.terms) {
            (1, _) => String::new(),
            (_, 1) => format!("{n}"),
            (term, _) => format!("{last}*{term} + {n}"),
        };
        tree(&(0..self.term).map(|n| value(&element(n))).collect::<Vec<_>>(), combine)
    }

    fn program(&self) -> String {
        let Rows { rows: m, columns: n, dtype: t, .. } = *self.rows;
        let [all, warp] = [&self.parts, &self.warps].map(|parts| Self::dimensions(parts));
        let own = self.warps.iter().map(|p| format!(", {}", p.name)).collect::<String>();
        let [element, its_warp] =
            [&self.parts, &self.warps].map(|parts| parts.iter().map(Part::of_element).collect::<String>());
        let row = |v: &str| self.rows.wide(&self.at("R", v));
        let read = self.inside("v", format!("X[i, {}]", self.place("v")), "0.0");
        let largest = self.term("vl", &|v| self.inside(v, row(v), LEAST), &|a, b| format!("max({a}, {b})"));
        let power = self.inside("v", format!("exp2(({} - K[i{own}])*{LOG2_E})", row("v")), "0.0");
        let sum = self.term("vu", &|v| self.at("E", v), &|a, b| format!("({a} + {b})"));
        let result = self.rows.narrow(&format!("E[i{element}]*F[i{its_warp}]"));
        let combined =
            format!("(max(m, n), select(m >= n, s, t) + select(m >= n, t, s)*exp2((min(m, n) - max(m, n))*{LOG2_E}))");
        let (over_l, over_u, pairs) = (self.reduced("vl"), self.reduced("vu"), warp.trim_start_matches(", "));
        [
            "program softmax".to_string(),
            format!("reducer online(m f32, s f32) with (n, t) from ({LEAST}, 0.0) = {combined}"),
            format!("input X {t}[{m}, {n}]"),
            format!("R[i {m}{all}] {t} = {read}"),
            format!("L[i {m}{warp}] f32 = max({over_l}) {largest}"),
            format!("K[i {m}{warp}] f32 = max(L[i{own}], {LEAST})"),
            format!("E[i {m}{all}] f32 = {power}"),
            format!("U[i {m}{warp}] f32 = sum({over_u}) {sum}"),
            format!("M: M[i {m}] f32, S[i] f32 = online({pairs}) (K[i{own}], U[i{own}])"),
            format!("F[i {m}{warp}] f32 = exp2((K[i{own}] - M[i])*{LOG2_E}) / S[i]"),
            format!("Y: output Y[i {m}, j {n}] {t} = {result}\n"),
        ]
        .join("\n")
    }

    /// The loops of these parts that there are, with a prefix.
    fn names(&self, prefix: &str, of: &str) -> Vec<String> {
        let kept = of.split("").filter(|n| self.parts.iter().any(|p| p.name == *n));
        kept.map(|n| format!("{prefix}{n}")).collect()
    }

    fn steps(&self) -> Steps {
        let mut s = Steps::new();
        ["R", "L", "K", "E", "U", "M", "S", "F"].into_iter().for_each(|stage| _ = s.set_scope(stage, Scope::Local));
        s.split_all("j", self.parts.iter().map(|p| p.extent), self.names("j", "cowlv"));
        s.reorder(self.names("j", "cwolv")).compute_at("F", "jw").compute_at("M", "Y_i");
        for (stage, loops) in [("U", "cw"), ("E", "cowlv"), ("K", "cw"), ("L", "cw"), ("R", "cowlv")] {
            s.compute_at(stage, "Y_i").made(self.names(&stage.to_lowercase(), loops));
        }
        s.bind("Y_i", Axis::BlockX);
        for prefix in ["r", "l", "k", "e", "u", "j", "M_"] {
            s.bind(&format!("{prefix}c"), Axis::Cluster).bind(&format!("{prefix}w"), Axis::ThreadY);
        }
        for prefix in ["r", "e", "j", "L_", "U_"] {
            s.bind(&format!("{prefix}l"), Axis::ThreadX);
            self.names(prefix, "o").iter().for_each(|name| _ = s.unroll(name));
        }
        for (prefix, vectors) in [("r", true), ("e", false), ("j", true)] {
            let elements = self.names(prefix, "v");
            elements.iter().for_each(|name| _ = if vectors { s.vectorize(name) } else { s.unroll(name) });
        }
        if self.terms > 1 {
            s.unroll("vl").unroll("vu");
        }
        s
    }
}

fn tree(terms: &[String], combine: &dyn Fn(&str, &str) -> String) -> String {
    match terms {
        [one] => one.clone(),
        several => {
            let (first, second) = several.split_at(several.len() / 2);
            combine(&tree(first, combine), &tree(second, combine))
        }
    }
}

/// The program and its steps.
pub(super) fn made(rows: &Rows, d: &Division) -> (String, Steps) {
    let divided = Divided::new(rows, d);
    (divided.program(), divided.steps())
}
