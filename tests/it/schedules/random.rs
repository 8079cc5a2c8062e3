//! Random programs, statement by statement: selects and masks on several iterators, reads of one buffer at several places,
//! outer products and pairs, negative and strided offsets, reversed indices, floor division and modulus, sums, maxima and
//! minima, several readers of a buffer, strides of parameters, many types.
//!
//! Every access is within bounds by construction: an index whose range leaves the buffer is wrapped, clamped, or guarded by a
//! select. All numbers are in the text; shrinking works on the text.

use super::programs::Program;
use super::source::Source;

/// The most iterations of a statement.
const WORK: i64 = 600;

const EXTENTS: [i64; 20] = [1, 2, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9, 12, 13, 16, 17, 24, 31, 32, 48];
const TYPES: [&str; 15] =
    ["f32", "f32", "f32", "f32", "f64", "f64", "f16", "bf16", "tf32", "s8", "u8", "s32", "s32", "u32", "s64"];
const NAMES: [&str; 5] = ["i", "j", "k", "l", "m"];
const REDUCED: [&str; 2] = ["r", "q"];

/// A buffer that statements can read.
#[derive(Clone)]
struct Buffer {
    name: String,
    ty: &'static str,
    shape: Vec<i64>,
}

/// An iterator of a statement.
#[derive(Clone, Copy)]
struct Iterator {
    name: &'static str,
    extent: i64,
}

/// An index: its text, and the interval of its values.
struct Index {
    text: String,
    low: i64,
    high: i64,
}

struct Draft<'s, 'b> {
    source: &'s mut Source<'b>,
    /// The type of stages.
    ty: &'static str,
    /// Extents that this program uses.
    extents: Vec<i64>,
    inputs: Vec<String>,
    buffers: Vec<Buffer>,
    /// Of the buffers, which have been read.
    read: Vec<bool>,
}

/// A program of one to five statements.
pub fn program(source: &mut Source) -> Program {
    let ty = source.of(TYPES);
    let extents = (0..2 + source.below(3)).map(|_| source.of(EXTENTS)).collect();
    let mut draft = Draft { source, ty, extents, inputs: Vec::new(), buffers: Vec::new(), read: Vec::new() };
    let mut statements: Vec<(usize, String)> = Vec::new();
    for n in 0..1 + draft.source.of([0, 0, 1, 1, 1, 2, 2, 3, 4]) {
        let text = draft.statement(&format!("T{n}"));
        statements.push((draft.buffers.len() - 1, text));
    }
    let mut text = format!("program random\n{}", draft.inputs.concat());
    for (buffer, statement) in &statements {
        let output = !draft.read[*buffer] || draft.source.chance(15);
        let strides = if output { draft.strides(*buffer) } else { String::new() };
        let statement = statement.replace("{strides}", &strides);
        text += &format!("{}{statement}\n", if output { "output " } else { "" });
    }
    Program { template: text, sizes: Vec::new() }
}

impl Draft<'_, '_> {
    fn statement(&mut self, name: &str) -> String {
        let (mut spatial, mut reduce) = (Vec::new(), Vec::new());
        let mut work = 1;
        let rank = self.source.of([1, 1, 2, 2, 2, 2, 3, 3, 4]);
        for n in NAMES.into_iter().take(rank) {
            let extent = self.extent(&mut work);
            spatial.push(Iterator { name: n, extent });
        }
        let reducer = match self.source.below(10) {
            0..=2 => Some("sum"),
            3 => Some("max"),
            4 => Some("min"),
            _ => None,
        };
        if reducer.is_some() {
            for n in REDUCED.into_iter().take(1 + usize::from(self.source.chance(25))) {
                let extent = self.extent(&mut work);
                reduce.push(Iterator { name: n, extent });
            }
        }
        let all: Vec<Iterator> = spatial.iter().chain(&reduce).copied().collect();
        let value = match self.source.below(10) {
            0 => self.masked(&all),
            1 => self.pair(&all),
            3 if reducer.is_some() => self.choice(&all),
            2 if reducer.is_some() => {
                let (a, b) = (self.load(&all), self.load(&all));
                format!("{a}*{b}")
            }
            _ => {
                let depth = self.source.of([1, 2, 2, 2, 3]);
                self.value(&all, depth)
            }
        };
        let axes =
            |its: &[Iterator]| its.iter().map(|i| format!("{} {}", i.name, i.extent)).collect::<Vec<_>>().join(", ");
        let reducer = reducer.map_or(String::new(), |r| format!("{r}({}) ", axes(&reduce)));
        self.buffers.push(Buffer {
            name: name.to_string(),
            ty: self.ty,
            shape: spatial.iter().map(|i| i.extent).collect(),
        });
        self.read.push(false);
        format!("{name}[{}] {}{{strides}} = {reducer}{value}", axes(&spatial), self.ty)
    }

    /// One of the program's extents, reduced where the statement would be too much work.
    fn extent(&mut self, work: &mut i64) -> i64 {
        let extents = self.extents.clone();
        let mut extent = match self.source.chance(85) {
            true => self.source.pick(&extents).unwrap_or(1),
            false => self.source.of(EXTENTS),
        };
        while *work * extent > WORK {
            extent = (extent + 1) / 2;
        }
        *work *= extent;
        extent
    }

    /// Rows apart, elements apart, or nothing.
    fn strides(&mut self, buffer: usize) -> String {
        if !self.source.chance(12) {
            return String::new();
        }
        let shape = self.buffers[buffer].shape.clone();
        strides(&shape, self.source)
    }

    fn any(&mut self, its: &[Iterator]) -> Iterator {
        self.source.pick(its).unwrap_or(Iterator { name: "i", extent: 1 })
    }

    /// An index of iterators, wherever it leads.
    fn index(&mut self, its: &[Iterator]) -> Index {
        let (v, w) = (self.any(its), self.any(its));
        let (c, last) = (1 + self.source.below(3) as i64, v.extent - 1);
        let made = |text: String, low, high| Index { text, low, high };
        let v_name = v.name;
        match self.source.below(22) {
            0..=7 => made(v_name.to_string(), 0, last),
            8 | 9 => made(format!("{v_name} + {c}"), c, last + c),
            10 => made(format!("{v_name} - {c}"), -c, last - c),
            11 => made(format!("{last} - {v_name}"), 0, last),
            12 => made(format!("{c} - {v_name}"), c - last, c),
            13 => made(format!("{v_name}*{} + {}", c + 1, c - 1), c - 1, last * (c + 1) + c - 1),
            14 => made(format!("{v_name} // {}", c + 1), 0, last / (c + 1)),
            15 => made(format!("{v_name} % {}", c + 1), 0, last.min(c)),
            16 => made(format!("({v_name} + {c}) % {}", v.extent), 0, last),
            17 => made(format!("({v_name} - {c}) // {}", c + 1), (-c).div_euclid(c + 1), (last - c).div_euclid(c + 1)),
            18 => {
                let s = self.source.of([2, 4, w.extent]);
                made(format!("{v_name}*{s} + {}", w.name), 0, last * s + w.extent - 1)
            }
            19 => made(format!("{v_name} + {}", w.name), 0, last + w.extent - 1),
            20 => made(format!("{v_name} - {}", w.name), -(w.extent - 1), last),
            _ => {
                let n = self.source.below(4) as i64;
                made(n.to_string(), n, n)
            }
        }
    }

    /// An index for a dimension, with what has to hold of it to be inside.
    fn inside(&mut self, its: &[Iterator], extent: i64) -> (String, Vec<String>) {
        if self.source.chance(4) {
            return (self.datum(its, extent), Vec::new());
        }
        // Mostly an iterator that fits.
        let fits: Vec<Iterator> = its.iter().copied().filter(|i| i.extent <= extent).collect();
        let same: Vec<Iterator> = its.iter().copied().filter(|i| i.extent == extent).collect();
        if self.source.chance(45)
            && let Some(v) = self.source.pick(&same).or(self.source.pick(&fits))
        {
            return (v.name.to_string(), Vec::new());
        }
        let Index { text, low, high } = self.index(its);
        if low >= 0 && high < extent {
            return (text, Vec::new());
        }
        if low == high {
            return (low.rem_euclid(extent).to_string(), Vec::new());
        }
        match self.source.below(4) {
            0 => (format!("({text}) % {extent}"), Vec::new()),
            1 => {
                let mut clamped = text;
                if low < 0 {
                    clamped = format!("max({clamped}, 0)");
                }
                if high >= extent {
                    clamped = format!("min({clamped}, {})", extent - 1);
                }
                (clamped, Vec::new())
            }
            _ => {
                let mut conditions = Vec::new();
                if low < 0 {
                    conditions.push(format!("{text} >= 0"));
                }
                if high >= extent {
                    conditions.push(format!("{text} < {extent}"));
                }
                (text, conditions)
            }
        }
    }

    /// An index that is a datum: of an input whose values are stated, or bounded where it is used.
    fn datum(&mut self, its: &[Iterator], extent: i64) -> String {
        let v = self.any(its);
        let ty = self.source.of(["s32", "s32", "u32", "s64", "u8", "s8"]);
        // What all of these types hold.
        let last = extent.min(100);
        let name = format!("A{}", self.inputs.len());
        let (values, text) = match self.source.below(5) {
            0 => (String::new(), format!("max(min({name}[{}], {}), 0)", v.name, last - 1)),
            1 if ty.starts_with('s') => (format!(" in -3..{}", last - 3), format!("{name}[{}] + 3", v.name)),
            _ => (format!(" in 0..{last}"), format!("{name}[{}]", v.name)),
        };
        // 64 bits are no index without a bound of their own.
        let ty = if values.is_empty() && ty == "s64" { "s32" } else { ty };
        self.inputs.push(format!("input {name} {ty}[{}]{values}\n", v.extent));
        text
    }

    /// An element of an input of truth values.
    fn mask(&mut self, its: &[Iterator]) -> String {
        let rank = its.len().min(1 + self.source.below(2));
        let v: Vec<Iterator> = (0..rank).map(|_| self.any(its)).collect();
        let name = self.input("bool", v.iter().map(|i| i.extent).collect());
        format!("{name}[{}]", v.iter().map(|i| i.name).collect::<Vec<_>>().join(", "))
    }

    /// A new input of a shape.
    fn input(&mut self, ty: &'static str, shape: Vec<i64>) -> String {
        let name = format!("A{}", self.inputs.len());
        let extents = shape.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        let extents = if shape.is_empty() { String::new() } else { format!("[{extents}]") };
        let strides =
            if !shape.is_empty() && self.source.chance(15) { strides(&shape, self.source) } else { String::new() };
        self.inputs.push(format!("input {name} {ty}{extents}{strides}\n"));
        self.buffers.push(Buffer { name: name.clone(), ty, shape });
        self.read.push(true);
        name
    }

    /// An element of a buffer, in the type of stages.
    fn load(&mut self, its: &[Iterator]) -> String {
        let old = !self.buffers.is_empty() && (self.inputs.len() >= 3 || self.source.chance(65));
        if old {
            let newest = self.source.chance(60);
            let at = if newest { self.buffers.len() - 1 } else { self.source.below(self.buffers.len()) };
            return self.load_of(at, its);
        }
        let rank = self.source.of([1, 2, 2, 3]).min(its.len() + 1);
        let (mut shape, mut texts) = (Vec::new(), Vec::new());
        for _ in 0..rank {
            let Index { text, low, high } = self.index(its);
            let (text, high) = if low < 0 { (format!("{text} + {}", -low), high - low) } else { (text, high) };
            shape.push(high + 1 + self.source.of([0, 0, 0, 1]));
            texts.push(text);
        }
        while shape.iter().product::<i64>() > 8 * WORK {
            let largest = (0..shape.len()).max_by_key(|n| shape[*n]).unwrap_or(0);
            shape[largest] = (shape[largest] + 3) / 4;
            texts[largest] = format!("({}) % {}", texts[largest], shape[largest]);
        }
        let ty = if self.source.chance(20) { self.narrower() } else { self.ty };
        let name = self.input(ty, shape);
        self.converted(ty, format!("{name}[{}]", texts.join(", ")))
    }

    /// A type whose values the type of stages holds.
    fn narrower(&mut self) -> &'static str {
        match self.ty {
            "f32" => self.source.of(["f16", "bf16", "tf32", "s8", "u8", "e4m3", "e5m2"]),
            "f64" => self.source.of(["f32", "f16", "s32", "s8"]),
            "s32" => self.source.of(["s8", "u8"]),
            "s64" => self.source.of(["s32", "u32", "s8"]),
            "f16" => self.source.of(["s8", "u8", "e4m3", "e5m2"]),
            "u32" => "u8",
            other => other,
        }
    }

    fn converted(&self, ty: &str, text: String) -> String {
        if ty == self.ty { text } else { format!("{}({text})", self.ty) }
    }

    fn load_of(&mut self, at: usize, its: &[Iterator]) -> String {
        let Buffer { name, ty, shape } = self.buffers[at].clone();
        self.read[at] = true;
        let (mut texts, mut conditions) = (Vec::new(), Vec::new());
        for extent in shape {
            let (text, more) = self.inside(its, extent);
            texts.push(text);
            conditions.extend(more);
        }
        let element = self.converted(ty, format!("{name}[{}]", texts.join(", ")));
        if conditions.is_empty() {
            return element;
        }
        let other = self.leaf(its);
        format!("select({}, {element}, {other})", conditions.join(" and "))
    }

    fn leaf(&mut self, its: &[Iterator]) -> String {
        match self.source.below(8) {
            0..=3 => "0".into(),
            5 => {
                let v = self.any(its).name;
                format!("{}({v})", self.ty)
            }
            4 if self.source.chance(40) => self.input(self.ty, Vec::new()),
            4 => (1 + self.source.below(3)).to_string(),
            _ => {
                let rank = its.len().min(2);
                let v: Vec<Iterator> = (0..rank).map(|_| self.any(its)).collect();
                let shape = v.iter().map(|i| i.extent).collect();
                let name = self.input(self.ty, shape);
                format!("{name}[{}]", v.iter().map(|i| i.name).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// Something that holds of some points.
    fn condition(&mut self, its: &[Iterator]) -> String {
        let (v, w) = (self.any(its), self.any(its));
        let c = self.source.below(v.extent.max(1) as usize + 1);
        let one = match self.source.below(10) {
            0..=3 => format!("{} < {c}", v.name),
            4 | 5 => format!("{} >= {c}", v.name),
            6 => format!("{} {} {c}", v.name, self.source.of(["==", "!="])),
            7 => format!("{} {} {}", v.name, self.source.of(["<", "<=", "==", "!="]), w.name),
            8 => format!("{} % 2 == {}", v.name, self.source.below(2)),
            9 if self.source.chance(50) => self.mask(its),
            _ => format!("{} + {} < {}", v.name, w.name, v.extent + w.extent / 2),
        };
        // The first choice ends: from bytes that are used up, every choice is the first.
        match self.source.below(8) {
            5 => format!("{one} and {}", self.condition(its)),
            6 => format!("({one} or {})", self.condition(its)),
            7 => format!("not ({one})"),
            _ => one,
        }
    }

    /// A value under a mask, and something that is read without it.
    fn masked(&mut self, its: &[Iterator]) -> String {
        let whole: Vec<i64> = its.iter().map(|i| i.extent).collect();
        let at = its.iter().map(|i| i.name).collect::<Vec<_>>().join(", ");
        let a = self.input(self.ty, whole);
        let v = self.any(its);
        let c = self.input(self.ty, vec![v.extent]);
        let condition = match self.source.chance(60) {
            true => format!("{} < {}", v.name, self.source.of([1, 2, 4, 8, 16, 32]).min(v.extent)),
            false => self.condition(its),
        };
        let op = self.source.of([" + ", "*", " - "]);
        format!("select({condition}, {a}[{at}], 0){op}{c}[{}]", v.name)
    }

    /// One of two whole inputs, or nothing, as a condition says.
    fn choice(&mut self, its: &[Iterator]) -> String {
        let condition = self.condition(its);
        let element = |d: &mut Self| {
            let mut order = its.to_vec();
            d.source.shuffle(&mut order);
            let at = order.iter().map(|i| i.name).collect::<Vec<_>>().join(", ");
            format!("{}[{at}]", d.input(d.ty, order.iter().map(|i| i.extent).collect()))
        };
        let (a, b) = (element(self), if self.source.chance(60) { element(self) } else { "0".into() });
        format!("select({condition}, {a}, {b})")
    }

    /// Two elements of one buffer at different iterators.
    fn pair(&mut self, its: &[Iterator]) -> String {
        let at = match self.buffers.is_empty() {
            true => return self.value(its, 2),
            false => self.source.below(self.buffers.len()),
        };
        let mut other = its.to_vec();
        self.source.shuffle(&mut other);
        let (a, b) = (self.load_of(at, its), self.load_of(at, &other));
        match self.source.below(4) {
            0 => format!("{a} - {b}"),
            1 => format!("max({a}, {b})"),
            _ => format!("({a})*({b})"),
        }
    }

    fn value(&mut self, its: &[Iterator], depth: usize) -> String {
        if depth == 0 {
            return if self.source.chance(85) { self.load(its) } else { self.leaf(its) };
        }
        let below = |d: &mut Self| d.value(its, depth - 1);
        match self.source.below(14) {
            0..=2 => self.load(its),
            3 | 4 => format!("{} + {}", below(self), below(self)),
            5 => format!("{} - ({})", below(self), below(self)),
            6 | 7 => format!("({})*({})", below(self), below(self)),
            8 => format!("{}({}, {})", self.source.of(["max", "min"]), below(self), below(self)),
            9..=11 => {
                let condition = self.condition(its);
                format!("select({condition}, {}, {})", below(self), below(self))
            }
            12 => format!(
                "select({} {} {}, {}, {})",
                self.load(its),
                self.source.of(["<", ">=", "!="]),
                self.load(its),
                below(self),
                below(self)
            ),
            13 if self.ty.starts_with('f') && self.source.chance(40) => match self.source.below(4) {
                0 => format!("sin({})", below(self)),
                1 => format!("cos({})", below(self)),
                2 => format!("log1p(abs({}))", below(self)),
                _ => format!("pow(abs({}) + 1, {})", below(self), self.source.of(["0.5", "2", "-1.25"])),
            },
            _ if self.ty.starts_with(['s', 'u']) => {
                format!("({}) {} ({})", below(self), self.source.of(["&", "|", "^"]), below(self))
            }
            _ => format!("-({})", below(self)),
        }
    }
}

/// Strides of rows with gaps.
fn strides(shape: &[i64], source: &mut Source) -> String {
    let mut inner = source.of([1, 1, 2]);
    let mut out = vec![0; shape.len()];
    for n in (0..shape.len()).rev() {
        out[n] = inner;
        inner = inner * shape[n] + source.of([0, 0, 1, 3, 8]);
    }
    format!(" strides [{}]", out.iter().map(i64::to_string).collect::<Vec<_>>().join(", "))
}
