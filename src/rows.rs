//! Kernels over the rows of a matrix as a client of the other modules: softmax, layer normalisation and RMS normalisation. Describes
//! them as programs and recommends steps, in one pass over device memory.
//!
//! The elements of a row stay on the chip between the pass that reads them and the one that writes the result: in registers, or in
//! shared memory where a thread has many. A long row is divided among the blocks of a cluster. Each thread has pieces of 16 bytes.

mod online;

use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::ir::{Axis, Scope};
use crate::loom::Schedule;
use crate::schedule::{IndexMap, Steps};
use crate::target::{Features, LINE, Target};
use crate::te;

/// What is computed of each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowKind {
    /// `Y = exp(X - max X) / sum exp(X - max X)`.
    Softmax,
    /// `Y = (X - mean X) / sqrt(var X + 1e-5) * G + B`.
    LayerNorm,
    /// `Y = X / sqrt(mean X^2 + 1e-5) * G`.
    RmsNorm,
}

impl RowKind {
    /// All kinds.
    pub const ALL: [RowKind; 3] = [RowKind::Softmax, RowKind::LayerNorm, RowKind::RmsNorm];

    /// The name on the command line, which is also the program's.
    pub fn name(self) -> &'static str {
        match self {
            RowKind::Softmax => "softmax",
            RowKind::LayerNorm => "layernorm",
            RowKind::RmsNorm => "rmsnorm",
        }
    }

    /// The kind of that name.
    pub fn parse(name: &str) -> Option<RowKind> {
        RowKind::ALL.into_iter().find(|k| k.name() == name)
    }
}

/// A kernel over rows: X and Y are `rows` x `columns` of a floating-point type, row-major; G and B have `columns` elements of it.
/// Everything between is f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rows {
    /// What is computed.
    pub kind: RowKind,
    /// Rows.
    pub rows: i64,
    /// Elements of a row.
    pub columns: i64,
    /// The type of X, Y, G and B: f16, bf16 or f32.
    pub dtype: DType,
}

impl Rows {
    /// A kernel over a matrix of this many rows and columns. [`Rows::recommend`] refuses sizes and types that it cannot take.
    pub fn new(kind: RowKind, rows: i64, columns: i64, dtype: DType) -> Rows {
        Rows { kind, rows, columns, dtype }
    }
}

/// A stage of the program, in its order.
struct Stage {
    name: &'static str,
    /// What it runs over within a row.
    over: Over,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    /// One value a row.
    Row,
    /// Its elements, combined.
    Reduced,
    /// Its elements, as read.
    Elements,
}

/// The threads that share a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Division {
    /// Neighbouring elements that a thread reads at once.
    piece: i64,
    /// Pieces that a thread holds of a row.
    pieces: i64,
    /// Threads of a block along a row.
    threads: i64,
    /// Rows of a block.
    rows: i64,
    /// Blocks of a cluster, each with a part of the row.
    blocks: i64,
    /// The row is in shared memory, not in registers.
    shared: bool,
    /// The blocks have few threads, by [`Rows::cluster`]. Softmax then keeps exponentials in registers and combines pairs.
    small: bool,
}

impl Division {
    /// Whether the blocks of a cluster exchange values once.
    fn at_once(&self) -> bool {
        self.blocks > 1
    }

    /// Divides a loop over the elements of a row among blocks, pieces of a thread, threads, and elements of a piece.
    fn divide_loop(&self, s: &mut Steps, name: &str, prefix: &str, vectors: bool) {
        let [block, round, thread, element] = ["c", "o", "t", "v"].map(|end| format!("{prefix}{end}"));
        let within = [self.pieces, self.threads, self.piece];
        if self.blocks > 1 {
            let extents = [self.blocks].into_iter().chain(within);
            s.split_all(name, extents, [&block, &round, &thread, &element]).bind(&block, Axis::Cluster);
        } else {
            s.split_all(name, within, [&round, &thread, &element]);
        }
        s.bind(&thread, Axis::ThreadX).unroll(&round);
        if vectors {
            s.vectorize(&element)
        } else {
            s.unroll(&element)
        };
    }
}

/// The fewest threads of a block: below, a multiprocessor runs out of blocks before it is full.
const FEWEST_THREADS: i64 = 128;
/// The fewest bytes that a block reads where rows are many: below, launching blocks takes longer than reading.
const FEWEST_BYTES: i64 = 4096;
/// The most threads along a row: with as many, two blocks are resident and one reads while the other computes.
const MOST_THREADS: i64 = 512;
/// Pieces that a thread holds in registers where rows are many: enough loads in flight, and registers for full occupancy.
const PIECES: i64 = 4;
/// The most pieces that a thread holds.
const MOST_PIECES: i64 = 8;
/// Threads of a block that shares its row with other blocks where the rows fill the device. The registers of a multiprocessor then limit the
/// elements in flight, and threads of many pieces spend the smallest part of them on addresses: on an H200 layer normalisation of
/// 132 x 131072 elements took 22.5 us with 16 blocks of 128 threads and 8 pieces, 24.9 us with 16 of 256 and 4.
const CLUSTERED_THREADS: i64 = 128;
/// The most pieces of a thread of such a block.
const CLUSTERED_PIECES: i64 = 16;

impl Rows {
    /// The program as te's text.
    ///
    /// # Errors
    /// `rows.type`, the input's fault, where the type is not f16, bf16 or f32; `rows.extent` where a size is not positive.
    pub fn program(&self) -> Result<String> {
        self.program_of(false)
    }

    /// The program; `at_once`: mean and variance from one loop, relative to the row's first element. The variance is then a mean square
    /// less the square of a mean. Its relative error is that of f32 times (X[i, 0] - mean)^2 / variance, at most the number of columns.
    fn program_of(&self, at_once: bool) -> Result<String> {
        if !matches!(self.dtype, DType::F16 | DType::Bf16 | DType::F32) {
            let message = format!("{} of {} is not known", self.kind.name(), self.dtype);
            return Err(Error::input(Code::RowsType, message).help("the types are f16, bf16 and f32"));
        }
        if self.rows < 1 || self.columns < 1 {
            let message = format!("{} rows of {} elements", self.rows, self.columns);
            return Err(Error::input(Code::RowsExtent, message).help("both sizes are at least 1"));
        }
        let (t, m, n) = (self.dtype, self.rows, self.columns);
        let (wide, narrow) = (|x: &str| self.wide(x), |x: &str| self.narrow(x));
        let (r, own) = (wide("R[i, k]"), wide("R[i, j]"));
        let (g, b) = (wide("G[j]"), wide("B[j]"));
        let head = format!("program {}\ninput X {t}[{m}, {n}]\n", self.kind.name());
        let stage = |name: &str, value: &str| format!("{name}: {name}[i {m}] f32 = {value}\n");
        let rest = match self.kind {
            RowKind::Softmax => {
                let e = |x: &str| format!("exp2(({x} - M[i]) * 1.4426950408889634)");
                stage("M", &format!("max(k {n}) {r}"))
                    + &stage("S", &format!("sum(k {n}) {}", e(&r)))
                    + &stage("D", "1.0 / S[i]")
                    + &format!("Y: output Y[i {m}, j {n}] {t} = {}\n", narrow(&format!("{} * D[i]", e(&own))))
            }
            RowKind::LayerNorm if at_once => {
                let x = format!("({r} - P[i])");
                stage("P", &wide("X[i, 0]"))
                    + &format!("S: S[i {m}] f32, Q[i] f32 = sum(k {n}) {x}, sum(k) {x} * {x}\n")
                    + &stage("M", &format!("S[i] / {n}.0"))
                    + &stage("D", &format!("rsqrt(max(Q[i] / {n}.0 - M[i] * M[i], 0.0) + 0.00001)"))
                    + &format!(
                        "Y: output Y[i {m}, j {n}] {t} = {}\n",
                        narrow(&format!("({own} - P[i] - M[i]) * D[i] * {g} + {b}"))
                    )
            }
            RowKind::LayerNorm => {
                stage("S", &format!("sum(k {n}) {r}"))
                    + &stage("M", &format!("S[i] / {n}.0"))
                    + &stage("V", &format!("sum(k {n}) ({r} - M[i]) * ({r} - M[i])"))
                    + &stage("D", &format!("rsqrt(V[i] / {n}.0 + 0.00001)"))
                    + &format!(
                        "Y: output Y[i {m}, j {n}] {t} = {}\n",
                        narrow(&format!("({own} - M[i]) * D[i] * {g} + {b}"))
                    )
            }
            RowKind::RmsNorm => {
                stage("S", &format!("sum(k {n}) {r} * {r}"))
                    + &stage("D", &format!("rsqrt(S[i] / {n}.0 + 0.00001)"))
                    + &format!("Y: output Y[i {m}, j {n}] {t} = {}\n", narrow(&format!("{own} * D[i] * {g}")))
            }
        };
        let inputs = match self.kind {
            RowKind::Softmax => String::new(),
            RowKind::LayerNorm => format!("input G {t}[{n}]\ninput B {t}[{n}]\n"),
            RowKind::RmsNorm => format!("input G {t}[{n}]\n"),
        };
        Ok(format!("{head}{inputs}R: R[i {m}, k {n}] {t} = X[i, k]\n{rest}"))
    }

    /// An element of X, G or B as f32.
    fn wide(&self, x: &str) -> String {
        if self.dtype == DType::F32 { x.to_string() } else { format!("f32({x})") }
    }

    /// An f32 as an element of Y.
    fn narrow(&self, x: &str) -> String {
        if self.dtype == DType::F32 { x.to_string() } else { format!("{}({x})", self.dtype) }
    }

    /// A program of the same function with recommended steps. Where blocks share a row, it is written so that they exchange values once, and
    /// differs from [`Rows::program`].
    ///
    /// # Errors
    /// As [`Rows::program`]; `rows.long` where a row is longer than the blocks of a cluster hold.
    pub fn recommend(&self, target: &Target) -> Result<Schedule> {
        self.program()?;
        let d = self.divide(target)?;
        let (text, mut steps) = match self.kind {
            RowKind::Softmax if d.small => online::made(self, &d),
            _ => (self.program_of(d.at_once())?, self.steps(&d)),
        };
        self.launch(&mut steps, &d, target);
        let bug = |e| Error::bug(Code::RowsSteps, format!("the recommended steps do not apply: {e}"));
        let program = te::parse(&text)?;
        Ok(Schedule::new(program, *target, steps.finish().map_err(bug)?))
    }

    fn stages(&self, d: &Division) -> Vec<Stage> {
        let stage = |(name, over)| Stage { name, over };
        let all: &[(&str, Over)] = match self.kind {
            RowKind::Softmax => &[("R", Over::Elements), ("M", Over::Reduced), ("S", Over::Reduced), ("D", Over::Row)],
            RowKind::LayerNorm if d.at_once() => {
                &[("R", Over::Elements), ("P", Over::Row), ("S", Over::Reduced), ("M", Over::Row), ("D", Over::Row)]
            }
            RowKind::LayerNorm => {
                &[("R", Over::Elements), ("S", Over::Reduced), ("M", Over::Row), ("V", Over::Reduced), ("D", Over::Row)]
            }
            RowKind::RmsNorm => &[("R", Over::Elements), ("S", Over::Reduced), ("D", Over::Row)],
        };
        all.iter().copied().map(stage).collect()
    }

    fn divide(&self, target: &Target) -> Result<Division> {
        let up = |a: i64, b: i64| (a + b - 1) / b;
        let power = |n: i64| (n.max(1) as u64).next_power_of_two() as i64;
        let widest = 128 / i64::from(self.dtype.bits());
        let piece = (0..).map(|n| widest >> n).find(|p| *p <= 1 || self.columns % p == 0).unwrap_or(1).max(1);
        let pieces = up(self.columns, piece);
        // Of narrow pieces a thread holds as many elements, not as many pieces.
        let wide = |n: i64| n * widest / piece;
        let multiprocessors = i64::from(target.device().multiprocessors);
        let many = self.rows > multiprocessors;
        // Few rows: more blocks than every launch may have, as only some of the multiprocessors are needed.
        let limit = if many { target.limits.cluster } else { target.limits.cluster_optin };
        let most = if target.has(Features::CLUSTER) { i64::from(limit) } else { 1 };
        if let Some((threads, blocks)) = self.cluster(pieces, &wide, (most, multiprocessors)) {
            // Fewer blocks where the last ones would have no piece.
            let held = up(pieces, threads * blocks);
            let blocks = up(pieces, threads * held);
            return Ok(Division { piece, pieces: held, threads, rows: 1, blocks, shared: false, small: true });
        }
        let held = if many { wide(PIECES) } else { wide(PIECES / 2) };
        // Neighbouring threads read whole lines of the cache.
        let line = LINE / (piece * i64::from(self.dtype.bits()) / 8);
        let mut threads = power(up(pieces, held)).max(power(pieces).min(line)).min(MOST_THREADS);
        let mut blocks = 1;
        while up(pieces, threads * blocks) > wide(MOST_PIECES) && blocks < most {
            blocks *= 2;
        }
        // Few rows leave multiprocessors without work: their blocks share a row.
        let fills = |blocks: i64| self.rows * blocks * 2 > multiprocessors;
        // A second block costs an exchange, more of them little besides.
        let few = |blocks: i64| if blocks > 1 { wide(1) } else { wide(PIECES / 2) };
        let more = |held: i64, blocks: i64| held > wide(PIECES) || held > few(blocks) && !fills(blocks);
        while !many && blocks < most && more(up(pieces, threads * blocks), blocks) {
            blocks *= 2;
        }
        while up(pieces, threads * blocks) > wide(MOST_PIECES) && threads < i64::from(target.limits.threads) {
            threads *= 2;
        }
        let shared = up(pieces, threads * blocks) > wide(PIECES);
        let bytes = self.columns * i64::from(self.dtype.bits()) / 8;
        // Besides the row there are a few values of each warp.
        let room = i64::from(target.limits.shared_optin) - 4096;
        if shared && up(bytes, blocks) > room {
            let longest = room * blocks * 8 / i64::from(self.dtype.bits());
            let message =
                format!("a row of {} elements does not fit in shared memory on {}", self.columns, target.name);
            return Err(Error::input(Code::RowsLong, message)
                .help(format!("the longest row for this chip has {longest} elements"))
                .help("write the program so that it reads the row again for each stage"));
        }
        let several = power(up(FEWEST_THREADS, threads).max(if many { up(FEWEST_BYTES, bytes) } else { 1 }));
        let rows =
            if blocks > 1 { 1 } else { several.min(power(self.rows)).min(i64::from(target.limits.threads) / threads) };
        Ok(Division { piece, pieces: up(pieces, threads * blocks), threads, rows, blocks, shared, small: false })
    }

    /// The threads of a block and the number of blocks that share a row, where blocks of few threads are the better ones: where the rows
    /// fill the device, and for softmax, whose threads each combine a pair of every warp. `None` where one block suffices, and elsewhere.
    fn cluster(
        &self,
        pieces: i64,
        wide: &dyn Fn(i64) -> i64,
        (most, multiprocessors): (i64, i64),
    ) -> Option<(i64, i64)> {
        let online = self.kind == RowKind::Softmax;
        let many = self.rows > multiprocessors;
        let held = |threads: i64, blocks: i64| (pieces + threads * blocks - 1) / (threads * blocks);
        // One block that fills its registers needs no exchange.
        let alone = if many || !online { MOST_THREADS * PIECES } else { CLUSTERED_THREADS * MOST_PIECES };
        if pieces <= wide(alone) {
            return None;
        }
        let (mut threads, mut blocks) = (CLUSTERED_THREADS, 1);
        while blocks < most && held(threads, blocks) > wide(MOST_PIECES) {
            blocks *= 2;
        }
        // Each multiprocessor has as many threads as a large block.
        let fills = self.rows * blocks * threads >= MOST_THREADS * multiprocessors;
        while online && blocks < most && self.rows * blocks < multiprocessors && held(threads, blocks) > wide(2) {
            blocks *= 2;
        }
        while fills && threads < MOST_THREADS && held(threads, blocks) > wide(CLUSTERED_PIECES) {
            threads *= 2;
        }
        // Where few threads run, the loads of one take turns, most of all guarded ones; layernorm and rmsnorm load G and B, too, and one
        // small block a multiprocessor is slower than a large one (layernorm 1x131072 on an H200: 2.5 us, not 1.9), two are not (16x131072).
        let held = held(threads, blocks);
        let pays = match (fills, online) {
            (true, _) => held <= wide(CLUSTERED_PIECES),
            (false, true) => held <= wide(MOST_PIECES),
            (false, false) => held <= MOST_PIECES && self.rows * blocks * 2 >= 3 * multiprocessors,
        };
        (blocks > 1 && pays).then_some((threads, blocks))
    }

    fn steps(&self, d: &Division) -> Steps {
        let (mut s, stages) = (Steps::new(), self.stages(d));
        for stage in &stages {
            let shared = d.shared && stage.over == Over::Elements;
            s.set_scope(stage.name, if shared { Scope::Shared } else { Scope::Local });
        }
        if self.kind == RowKind::LayerNorm && d.at_once() {
            s.set_scope("Q", Scope::Local);
        }
        let (outer, at) = if d.rows > 1 { ("ib", "iy") } else { ("Y_i", "Y_i") };
        if d.rows > 1 {
            s.split("Y_i", [d.rows], ["ib", "iy"]);
        }
        for stage in stages.iter().rev() {
            s.compute_at(stage.name, at);
            // A row of one element has no loop over its elements.
            if stage.over == Over::Elements && self.columns > 1 {
                s.made(["r"]);
            }
        }
        s.bind(outer, Axis::BlockX);
        if d.rows > 1 {
            s.bind("iy", Axis::ThreadY);
        }
        if self.columns == 1 {
            return s;
        }
        let loops = stages.iter().filter(|s| s.over != Over::Row).map(|s| match s.over {
            Over::Elements => ("r".to_string(), "r", true),
            _ => (format!("{}_k", s.name), s.name, false),
        });
        for (name, prefix, vectors) in loops.chain([("j".to_string(), "j", true)]) {
            d.divide_loop(&mut s, &name, &prefix.to_lowercase(), vectors);
        }
        if !d.shared {
            let Division { piece, pieces, threads, .. } = *d;
            let map = IndexMap::new(["i", "k"], |[i, k]| {
                let digit = |stride: i64| k.clone().floordiv(stride);
                let [block, round] = [digit(piece * threads * pieces), digit(piece * threads).floormod(pieces)];
                vec![i, block, round, digit(piece).floormod(threads), k.clone().floormod(piece)]
            });
            s.transform_layout("R", map);
        }
        s
    }

    /// Lets the kernel begin while the previous one ends.
    fn launch(&self, s: &mut Steps, d: &Division, target: &Target) {
        let outer = if d.rows > 1 { "ib" } else { "Y_i" };
        if !target.has(Features::GRID_DEPENDENCY) {
            return;
        }
        s.launch(outer).grid_dependency(2);
        // Few rows leave the memory idle while the previous kernel ends.
        if self.rows <= i64::from(target.device().multiprocessors) && target.has(Features::TMA) {
            s.l2_prefetch();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn division(rows: i64, columns: i64, dtype: DType, target: &Target) -> Division {
        Rows { kind: RowKind::Softmax, rows, columns, dtype }.divide(target).unwrap()
    }

    #[test]
    fn a_thread_holds_a_few_pieces() {
        let of = |rows, columns| division(rows, columns, DType::F16, &Target::sm_90());
        assert_eq!(
            of(8192, 4096),
            Division { piece: 8, pieces: 4, threads: 128, rows: 1, blocks: 1, shared: false, small: false }
        );
        assert_eq!(
            of(1 << 19, 64),
            Division { piece: 8, pieces: 1, threads: 8, rows: 32, blocks: 1, shared: false, small: false }
        );
        assert_eq!(
            of(65536, 1000),
            Division { piece: 8, pieces: 4, threads: 32, rows: 4, blocks: 1, shared: false, small: false }
        );
        assert_eq!(of(65536, 1001).piece, 1);
        assert!(of(132, 131072).blocks > 1);
        assert_eq!(
            of(1024, 32768),
            Division { piece: 8, pieces: 8, threads: 128, rows: 1, blocks: 4, shared: false, small: true }
        );
        assert!(of(1024, 800_000).shared);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let rows = Rows { kind: RowKind::Softmax, rows: 4, columns: 8, dtype: DType::S8 };
        assert_eq!(rows.program().unwrap_err().code(), Code::RowsType);
        assert_eq!(Rows { rows: 0, dtype: DType::F16, ..rows }.program().unwrap_err().code(), Code::RowsExtent);
        let long = Rows { columns: 1 << 26, dtype: DType::F32, ..rows };
        assert_eq!(long.recommend(&Target::sm_90()).unwrap_err().code(), Code::RowsLong);
    }
}
