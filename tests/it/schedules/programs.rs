//! Random programs in te's text: elementwise chains, windows, products of small and prime sizes in several types and
//! layouts, rows that are normalised, stencils with and without padding, batches, turned matrices, mixed types; and more than
//! half of them statement by statement (`random`).

use super::random;
use super::source::Source;

/// A program as a text with places for its sizes, so that a failure can be shown at smaller ones.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Program {
    /// `{0}`, `{1}`, .. stand for the sizes, `{0+2}` for a size and 2 more.
    pub template: String,
    /// At least 1 each.
    pub sizes: Vec<usize>,
}

impl Program {
    /// The text with its sizes.
    pub fn text(&self) -> String {
        let mut text = self.template.clone();
        for (n, size) in self.sizes.iter().enumerate() {
            text = text.replace(&format!("{{{n}}}"), &size.to_string());
            for more in 1..=4 {
                text = text.replace(&format!("{{{n}+{more}}}"), &(size + more).to_string());
            }
        }
        text
    }
}

const SIZES: [usize; 18] = [1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 16, 17, 23, 24, 32, 33, 37, 64];

/// The most iterations of the innermost nest.
const WORK: usize = 1500;

fn sizes(source: &mut Source, count: usize) -> Vec<usize> {
    let mut out: Vec<usize> = (0..count).map(|_| source.of(SIZES)).collect();
    while out.iter().product::<usize>() > WORK {
        if let Some(largest) = out.iter_mut().max() {
            *largest = largest.div_ceil(2);
        }
    }
    out
}

/// The same for products on tensor cores, whose least tiles are more.
const TILES_WORK: usize = 8192;

/// A program.
pub fn program(source: &mut Source) -> Program {
    let made = |template: String, sizes| Program { template, sizes };
    let reals = |text: &str, source: &mut Source| text.replace("TYPE", source.of(["f32", "f32", "f64", "f16", "bf16"]));
    let numbers = |text: &str, source: &mut Source| text.replace("TYPE", source.of(NUMBERS));
    if source.chance(50) {
        return random::program(source);
    }
    match source.below(37) {
        0 => made("vec_add {0}".into(), sizes(source, 1)),
        1 => made("window_sum {0}".into(), sizes(source, 1)),
        2..=4 => made(format!("gemm {{0}}x{{1}}x{{2}} {}", types(source)), sizes(source, 3)),
        5..=7 => made(with_epilogues(source), sizes(source, 3)),
        8 => made(format!("batched_gemm {{0}}x{{1}}x{{2}}x{{3}} {}", types(source)), sizes(source, 4)),
        9 => made(windows(source), sizes(source, 1)),
        10 => made(reals(ROWS, source), sizes(source, 2)),
        11 => made(numbers(STENCIL, source), sizes(source, 2)),
        12 => made(numbers(CONVOLUTION, source), sizes(source, 2)),
        13 => made(EXTREMES.replace("TYPE", source.of(["s32", "u32", "f32", "f64", "s8"])), sizes(source, 2)),
        14 => made(numbers(PADDED, source), sizes(source, 2)),
        15 => made(SOFTMAX.replace("TYPE", source.of(["f32", "f64"])), sizes(source, 2)),
        16 => made(MIXED.replace("TYPE", source.of(["f16", "bf16", "s8", "u8", "e4m3", "e5m2"])), sizes(source, 3)),
        17 => made(numbers(TURNED, source), sizes(source, 2)),
        18..=29 => tiles(source),
        30 | 31 => made(numbers(PLACES, source), sizes(source, 2)),
        32 => made(numbers(MOMENTS, source), sizes(source, 2)),
        33 => made(ONE_PASS.replace("TYPE", source.of(["f32", "f64"])), sizes(source, 2)),
        _ => made(chain(source), sizes(source, 2)),
    }
}

const NUMBERS: [&str; 9] = ["f32", "f32", "f64", "f16", "bf16", "tf32", "s32", "u32", "s8"];

fn types(source: &mut Source) -> String {
    let types = [
        "f32",
        "f32",
        "f32",
        "f64",
        "f16>f32>f16",
        "bf16>f32>bf16",
        "f16>f32",
        "tf32>f32",
        "s8>s32",
        "s32",
        "f16",
        "u8>s32",
        "u32",
        "e4m3>f32>f16",
        "e5m2*e4m3>f32",
        "e4m3>f32>e4m3",
    ];
    format!("{} {}", source.of(types), source.of(["NN", "NT", "TN", "TT"]))
}

/// A product of types and sizes that tensor cores have.
fn tiles(source: &mut Source) -> Program {
    let (types, step) = source.of([
        ("f16>f32", 16),
        ("f16>f32", 16),
        ("bf16>f32", 16),
        ("f16>f32>f16", 16),
        ("f16", 16),
        ("s8>s32", 32),
        ("u8>s32", 16),
        ("s4>s32", 32),
        ("tf32>f32", 8),
        ("f64", 8),
        ("e4m3>f32", 32),
        ("e5m2*e4m3>f32>f16", 32),
        ("b1>s32", 128),
    ]);
    let layout =
        if types.starts_with("s4") || types.starts_with("b1") { "NT" } else { source.of(["NN", "NT", "TN", "TT"]) };
    let mut sizes = vec![source.of([16, 16, 16, 32, 32, 8]), source.of([8, 16, 16, 32]), step * (1 + source.below(2))];
    while sizes.iter().product::<usize>() > TILES_WORK {
        if let Some(largest) = sizes.iter_mut().max() {
            *largest /= 2;
        }
    }
    Program { template: format!("gemm {{0}}x{{1}}x{{2}} {types} {layout}"), sizes }
}

fn with_epilogues(source: &mut Source) -> String {
    let mut steps = vec!["bias", "relu", "scale 2", "residual"];
    source.shuffle(&mut steps);
    steps.truncate(1 + source.below(3));
    format!("gemm {{0}}x{{1}}x{{2}} {} {}", types(source), steps.join(" "))
}

/// A sum over a window, stated as a reduction.
fn windows(source: &mut Source) -> String {
    let window = 2 + source.below(3);
    let reducer = source.of(["sum", "max", "min"]);
    // Behind the last output stand 4 elements more, enough for every window.
    let index = source.of(["i + w", "i // 2 + w", "i + {0} - 1 - i + w"]);
    let ty = source.of(NUMBERS);
    format!("program windows\ninput A {ty}[{{0+4}}]\nB: output B[i {{0}}] {ty} = {reducer}(w {window}) A[{index}]")
}

const ROWS: &str = "program rows
input A TYPE[{0}, {1}]
M: M[i {0}] TYPE = max(k {1}) A[i, k]
E: E[i {0}, j {1}] TYPE = A[i, j] - M[i]
S: S[i {0}] TYPE = sum(k {1}) E[i, k]*E[i, k]
Y: output Y[i {0}, j {1}] TYPE = E[i, j] * S[i]";

const STENCIL: &str = "program stencil
input A TYPE[{0+2}, {1+2}]
X: X[i {0+2}, j {1}] TYPE = A[i, j] + A[i, j + 1] * A[i, j + 2]
Y: Y[i {0}, j {1}] TYPE = X[i, j] * X[i + 2, j]
Z: output Z[i {0}, j {1}] TYPE = select(j >= 1, Y[i, j - 1], 0) - Y[i, {1} - 1 - j]";

const CONVOLUTION: &str = "program convolution
input A TYPE[{0+2}, {1+2}]; input W TYPE[3, 3]
B: output B[i {0}, j {1}] TYPE = sum(u 3, v 3) A[i + u, j + v]*W[u, v]";

const EXTREMES: &str = "program extremes
input A TYPE[{0}, {1}]
H: H[j {1}] TYPE = max(i {0}) A[i, j] * 2
L: L[j {1}] TYPE = min(i {0}) A[i, j]
D: output D[j {1}] TYPE = H[j] - L[j]
E: output E[i {0}, j {1}] TYPE = select(A[i, j] < D[j], A[i, j], H[j])";

const PADDED: &str = "program padded
input A TYPE[{0}, {1}]; input W TYPE[3]
P: P[i {0}, j {1+2}] TYPE = select(j >= 1 and j < {1+1}, A[i, j - 1], 0)
C: C[i {0}, j {1}] TYPE = sum(w 3) P[i, j + w]*W[w]
L: output L[j {1}] TYPE = max(i {0}) C[i, j]";

const SOFTMAX: &str = "program softmax
input A TYPE[{0}, {1}]
M: M[i {0}] TYPE = max(k {1}) A[i, k]
E: E[i {0}, j {1}] TYPE = exp(A[i, j] - M[i])
S: S[i {0}] TYPE = sum(k {1}) E[i, k]
Y: output Y[i {0}, j {1}] TYPE = E[i, j] / S[i]";

const PLACES: &str = "program places
input A TYPE[{0}, {1}]
B: V[i {0}] TYPE, P[i] s32 = argmax(k {1}) (A[i, k], s32(k))
C: output L[j {1}] TYPE, output R[j] s32 = argmin(i {0}) (A[i, j] - V[i], s32(i))
Y: output Y[i {0}] s32 = P[i] + 1";

const MOMENTS: &str = "program moments
input A TYPE[{0}, {1}]
S: S[i {0}] TYPE, Q[i] TYPE, output H[i] TYPE = sum(k {1}) A[i, k], sum(k) A[i, k]*A[i, k], max(k) A[i, k]
Y: output Y[i {0}, j {1}] TYPE = A[i, j]*S[i] - Q[i]";

const ONE_PASS: &str = "program one_pass
reducer online(m TYPE, s TYPE) with (n, t) from (-3e38, 0.0) = (max(m, n), s*exp(m - max(m, n)) + t*exp(n - max(m, n)))
input A TYPE[{0}, {1}]
M: M[i {0}] TYPE, S[i] TYPE = online(k {1}) (A[i, k], 1.0)
Y: output Y[i {0}, j {1}] TYPE = exp(A[i, j] - M[i]) / S[i]";

const MIXED: &str = "program mixed
input A TYPE[{0}, {2}]; input B TYPE[{2}, {1}]; input Z f32[{1}]
D: D[i {0}, j {1}] f32 = sum(k {2}) f32(A[i, k]) * f32(B[k, j])
G: G[i {0}, j {1}] f32 = select(i < j, D[i, j], 0) + Z[j]
R: output R[i {0}] f32 = max(j {1}) G[i, j]
T: output T[j {1}, i {0}] f32 = max(G[i, j], 0)";

const TURNED: &str = "program turned
input A TYPE[{0}, {1}]
T: T[j {1}, i {0}] TYPE = A[i, j]
U: output U[j {1}] TYPE = sum(i {0}) T[j, i] * T[j, {0} - 1 - i]
V: output V[i {0}, j {1}] TYPE = T[j, i] - U[j]";

/// Elementwise blocks, each of what came before: shifted within bounds, transposed twice, selected.
fn chain(source: &mut Source) -> String {
    let ty = source.of(NUMBERS);
    let mut text = format!("program chain\ninput A {ty}[{{0}}, {{1}}]\ninput R {ty}[{{1}}]\n");
    let mut before = vec!["A".to_string()];
    let count = 1 + source.below(4);
    for n in 0..count {
        let name = format!("T{n}");
        let newest = before[before.len() - 1].clone();
        let other = before[source.below(before.len())].clone();
        let value = match source.below(6) {
            0 => format!("{newest}[i, j] + R[j]"),
            1 => format!("{newest}[i, j]*{other}[{{0}} - 1 - i, j]"),
            2 => format!("max({newest}[i, j], {other}[i, (j + 1) % {{1}}])"),
            3 => format!("select(i >= 1, {newest}[i - 1, j], R[j])"),
            4 => format!("select(j < 3, {newest}[i, j] + 1, {other}[i, j])"),
            _ => format!("{newest}[i, j] - {other}[i, j]*3"),
        };
        let output = if n + 1 == count { "output " } else { "" };
        text += &format!("{name}: {output}{name}[i {{0}}, j {{1}}] {ty} = {value}\n");
        before.push(name);
    }
    text
}
