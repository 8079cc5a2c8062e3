//! Which schedule a command is about: a `.loom` file, or a matrix product with recommended steps.

use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::gemm::{self, Gemm, Kind, Quantized, RowRange};
use crate::ir::Func;
use crate::loom::{LONGEST_TEXT, Schedule};
use crate::rows::{RowKind, Rows};
use crate::target::Target;
use crate::te::{self, Epilogue, GemmSpec, Known, Layout};
use crate::tune::{self, Here, Record, Space};
use clap::Args;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The schedule to work on.
#[derive(Debug, Args)]
pub struct What {
    /// A schedule: program, target and steps.
    /// `-` is standard input.
    #[arg(conflicts_with = "gemm")]
    file: Option<PathBuf>,
    /// A matrix product, such as 1024x512x2048, or a batch of them, such as 64x512x512x512, with recommended steps. M may be a range,
    /// 1..=8192x512x2048, or the multiples in one, 8..=8192/8x512x2048.
    #[arg(long, value_name = "[Bx]MxNxK", value_parser = gemm_sizes)]
    gemm: Option<GemmSizes>,
    /// A kernel over the rows of a matrix, with recommended steps: softmax, layernorm or rmsnorm of --size ROWSxCOLUMNS and --dtype
    /// f16, bf16 or f32.
    #[arg(long, value_name = "KIND", value_parser = row_kind, requires = "size", conflicts_with_all = ["file", "gemm", "kind", "layout"])]
    rows: Option<RowKind>,
    /// What follows the product of --gemm, in the words of builder lines: "bias gelu residual", "row_scales column_scales", "block_scales".
    #[arg(long, value_name = "STEPS", requires = "gemm", conflicts_with_all = ["kind", "invariant"])]
    epilogue: Option<String>,
    /// Quantised weights of --gemm, as `s4`, or `s4/128` with a scale for each 128 of a row: activations of --dtype (f16 or bf16), weights in
    /// the order that --pack makes of [N, K].
    #[arg(long, value_name = "TYPE[/GROUP]", requires = "gemm", conflicts_with_all = ["kind", "invariant", "epilogue", "layout"])]
    weights: Option<String>,
    /// With --weights, the kernel that packs the weights.
    #[arg(long, requires = "weights")]
    pack: bool,
    /// Types of --gemm: of the inputs (f16 means f16>f32>f16), or inputs>accumulators>result, or A*B>accumulators>result.
    #[arg(long, value_name = "T", default_value = "f32", conflicts_with = "file")]
    dtype: String,
    /// Layout of A and B of --gemm: N as it is, T transposed.
    #[arg(long, value_name = "NN|NT|TN|TT", default_value = "NN", requires = "gemm", conflicts_with = "file")]
    layout: String,
    /// The recipe for --gemm instead of the recommended steps: naive, simt, wmma, mma or wgmma.
    #[arg(long, value_name = "KIND", requires = "gemm", conflicts_with = "file", value_parser = kind)]
    kind: Option<Kind>,
    /// Steps for --gemm by which the bits of a row of C do not depend on how many rows run with it (batch invariance): the kind of
    /// instruction, the order of k and its split are the same for every M.
    #[arg(long, requires = "gemm", conflicts_with_all = ["file", "kind"])]
    invariant: bool,
    /// Promote the accumulators of --gemm of 8-bit floats: wgmma accumulates 128 elements of k, and CUDA cores add the partial accumulators
    /// in f32. Tensor cores keep 13 fraction bits in a sum.
    #[arg(long, requires = "gemm", conflicts_with_all = ["file", "kind", "epilogue", "invariant"])]
    promoted: bool,
    /// Steps for --gemm without workspace: no kernel packs an operand, and no second kernel adds up parts of k.
    #[arg(long, requires = "gemm", conflicts_with_all = ["file", "kind", "epilogue", "invariant", "promoted", "weights", "records"])]
    no_workspace: bool,
    /// Compile for this chip instead of the file's. Without it, --gemm is for the GPU's own chip; without a GPU for sm_90a where
    /// that has wgmma for the types, else for sm_90.
    #[arg(long, value_name = "sm_XX")]
    target: Option<String>,
    /// The same program and steps at another size: N, MxNxK or BxMxNxK.
    #[arg(long, value_name = "SIZE", value_parser = sizes, conflicts_with = "gemm")]
    size: Option<Sizes>,
    /// Take the best steps of this record of `warploom tune` for --gemm, or for a line `recommend` of the file, where the record is of the
    /// program and the chip; may be given several times.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kind", "invariant", "promoted", "weights", "rows"])]
    records: Vec<PathBuf>,
    /// Test legality claims that are not decided at some points instead of refusing the schedule; it is then shown as tested.
    #[arg(long)]
    allow_tested: bool,
}

/// `1024`, `1024x512x2048` or `64x512x512x512`.
#[derive(Debug, Clone)]
pub struct Sizes(pub Vec<i64>);

/// Parses sizes for clap.
pub fn sizes(text: &str) -> std::result::Result<Sizes, String> {
    let parse = |n: &str| n.trim().parse::<i64>().ok().filter(|n| *n > 0);
    text.split(['x', 'X'])
        .map(parse)
        .collect::<Option<Vec<i64>>>()
        .map(Sizes)
        .ok_or_else(|| format!("`{text}` is not a size such as 1024 or 1024x512x2048"))
}

/// The sizes of a GEMM: `1024x512x2048`, `1..=8192x512x2048` with a dynamic number of rows, or `8..=8192/8x512x2048` where that is a multiple
/// of 8.
#[derive(Debug, Clone)]
pub struct GemmSizes {
    /// One number, MxNxK, or BxMxNxK.
    pub sizes: Vec<i64>,
    /// The least number of rows, where it is dynamic.
    pub least: Option<i64>,
    /// What every number of rows is a multiple of, where it is dynamic; otherwise 1.
    pub by: i64,
}

impl From<Sizes> for GemmSizes {
    fn from(Sizes(sizes): Sizes) -> GemmSizes {
        GemmSizes { sizes, least: None, by: 1 }
    }
}

/// Parses the sizes of a GEMM for clap.
pub fn gemm_sizes(text: &str) -> std::result::Result<GemmSizes, String> {
    let Some((low, rest)) = text.split_once("..=") else {
        return sizes(text).map(GemmSizes::from);
    };
    let number = |text: &str| text.trim().parse::<i64>().ok().filter(|n| *n > 0);
    let wrong = || format!("`{text}` is not a size such as 1..=8192x512x2048 or 8..=8192/8x512x2048");
    let (high, others) = rest.split_once(['x', 'X']).ok_or_else(wrong)?;
    let (high, by) = high.split_once('/').map_or((high, Some(1)), |(high, by)| (high, number(by)));
    let Sizes(sizes) = sizes(&format!("{high}x{others}"))?;
    match (number(low), by) {
        // A range of one value is no range.
        (Some(least), Some(_)) if sizes.len() == 3 && least == sizes[0] => Ok(Sizes(sizes).into()),
        (Some(least), Some(by)) if sizes.len() == 3 => Ok(GemmSizes { sizes, least: Some(least), by }),
        _ => Err(wrong()),
    }
}

/// The GEMM of these sizes; see [`product`].
pub fn gemm_of(GemmSizes { sizes, least, by }: &GemmSizes, types: &str, layout: &str) -> Result<Gemm> {
    let gemm = product(sizes, types, layout)?;
    Ok(least.map_or(gemm, |least| gemm.rows_from(least).rows_by(*by)))
}

/// Parses a kind of code for clap.
pub fn kind(name: &str) -> std::result::Result<Kind, String> {
    let known = Kind::ALL.map(Kind::name).join(", ");
    Kind::parse(name).ok_or_else(|| format!("`{name}` is no kind of code; the kinds are {known}"))
}

/// Parses a kind of kernel over rows for clap.
fn row_kind(name: &str) -> std::result::Result<RowKind, String> {
    let known = RowKind::ALL.map(RowKind::name).join(", ");
    RowKind::parse(name).ok_or_else(|| format!("`{name}` is no kernel over rows; these are {known}"))
}

impl What {
    /// What errors call it.
    pub fn name(&self) -> String {
        let own = if self.rows.is_some() { "--rows" } else { "--gemm" };
        self.file.as_deref().map_or_else(|| own.to_string(), |f| f.display().to_string())
    }

    /// Whether the schedule depends on the chip that there is: recommended steps for none that is named.
    pub fn asks_for_chip(&self) -> bool {
        (self.gemm.is_some() || self.rows.is_some()) && self.target.is_none()
    }

    /// The schedule at its size for its target; `own` is the chip that there is.
    pub fn schedule(&self, own: Option<Target>) -> Result<Schedule> {
        let target = self.target()?;
        if let Some(kind) = self.rows {
            let rows = self.rows(kind)?;
            let schedule = rows.recommend(&target.or(own).unwrap_or(Target::sm_90()))?;
            return Ok(if self.allow_tested { schedule.allow_tested() } else { schedule });
        }
        let records = records(&self.records)?;
        let schedule = match (&self.file, &self.gemm) {
            (Some(file), _) => tune::parse(&text(file)?, target, &records)?,
            (None, Some(sizes)) if self.weights.is_some() => self.of_weights(sizes, target.or(own))?,
            (None, Some(sizes)) => {
                let product = gemm_of(sizes, &self.dtype, &self.layout)?;
                let target = target.or(own).unwrap_or_else(|| product.default_target());
                match (self.kind, &self.epilogue) {
                    (Some(kind), _) => kind.schedule(&product, &target)?,
                    (None, Some(steps)) => gemm::recommend_for(&with_epilogue(&product, steps)?, &target)?,
                    (None, None) if self.invariant => gemm::recommend_invariant(&product, &target)?,
                    (None, None) if self.no_workspace => gemm::recommend_without_workspace(&product, &target)?,
                    (None, None) if self.promoted => gemm::recommend_promoted(&product, &target)?,
                    (None, None) => tune::recommend(&product, &target, &records)?,
                }
            }
            (None, None) => {
                let error = Error::input(Code::CliInput, "neither a file nor --gemm is given");
                return Err(error.help("name a .loom file, or --gemm 1024x512x2048"));
            }
        };
        let schedule = match &self.size {
            Some(sizes) => schedule.resized(&sizes.0)?,
            None => schedule,
        };
        let schedule = match target {
            Some(target) => schedule.for_target(target),
            None => schedule,
        };
        Ok(if self.allow_tested { schedule.allow_tested() } else { schedule })
    }

    /// What to say about records that are given: as [`record_notes`]. `here` is asked for if they are.
    pub fn record_notes(&self, schedule: &Schedule, here: impl FnOnce() -> Here) -> Result<Vec<String>> {
        if self.records.is_empty() {
            return Ok(Vec::new());
        }
        record_notes(schedule, &records(&self.records)?, &here())
    }

    /// The space of schedules for the tuner: a file with knobs, or the candidates of --gemm or of a line `recommend`; `own` is the chip
    /// that there is.
    pub fn space(&self, own: Option<Target>) -> Result<Space> {
        let target = self.target()?;
        let sizes = self.size.as_ref().map(|s| s.0.as_slice());
        let special =
            self.kind.is_some() || self.invariant || self.promoted || self.no_workspace || self.weights.is_some();
        if special || self.rows.is_some() || !self.records.is_empty() {
            let message =
                "the tuner takes a file with knobs, or --gemm with --dtype, --layout, --epilogue and --target";
            return Err(Error::input(Code::CliInput, message));
        }
        let space = match (&self.file, &self.gemm) {
            (Some(file), _) => space_of_file(&text(file)?, sizes, target)?,
            (None, Some(sizes)) => {
                let product = gemm_of(sizes, &self.dtype, &self.layout)?;
                let target = target.or(own).unwrap_or_else(|| product.default_target());
                let program = self.epilogue.as_ref().map(|steps| with_epilogue(&product, steps)).transpose()?;
                let product = program.map_or(Some(product), |program| gemm::describe(&program));
                Space::list(gemm::candidates(&product.ok_or_else(without_candidates)?, &target)?)?
            }
            (None, None) => {
                let error = Error::input(Code::CliInput, "neither a file with knobs nor --gemm is given");
                return Err(error.help("warploom tune --gemm 1024x512x2048").help("warploom tune FILE"));
            }
        };
        Ok(if self.allow_tested { space.allow_tested() } else { space })
    }

    /// The kernel over rows that --rows, --size and --dtype name.
    fn rows(&self, kind: RowKind) -> Result<Rows> {
        let Some([rows, columns]) = self.size.as_ref().map(|s| s.0.as_slice()) else {
            let error = Error::input(Code::CliRows, "--rows takes a size of rows and columns");
            return Err(error.help("--rows softmax --size 8192x4096"));
        };
        let dtype = DType::parse(&self.dtype).ok_or_else(|| {
            Error::input(Code::CliRows, format!("`{}` is not a type", self.dtype)).help("--dtype f16, bf16 or f32")
        })?;
        Ok(Rows { kind, rows: *rows, columns: *columns, dtype })
    }

    /// The chip that is asked for.
    pub fn target(&self) -> Result<Option<Target>> {
        let wrong =
            |e: Error| e.helps().iter().fold(Error::input(Code::CliTarget, e.message()), |out, help| out.help(help));
        self.target.as_deref().map(Target::parse).transpose().map_err(wrong)
    }

    /// The positional argument as text: a file, or the name of a step.
    pub fn word(&self) -> Option<&str> {
        self.file.as_deref().and_then(Path::to_str)
    }

    /// The positional argument as a path.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Whether options change the file's size, chip or rules.
    pub fn is_changed(&self) -> bool {
        self.size.is_some() || self.target.is_some() || self.allow_tested
    }

    /// Whether the schedule comes from standard input.
    pub fn is_standard_input(&self) -> bool {
        self.word() == Some("-")
    }

    /// Whether it is --gemm.
    pub fn is_gemm(&self) -> bool {
        self.gemm.is_some()
    }

    /// The product of --gemm with --weights, or the kernel that packs these.
    fn of_weights(&self, GemmSizes { sizes, least, by }: &GemmSizes, target: Option<Target>) -> Result<Schedule> {
        let target = target.unwrap_or(Target::sm_90a());
        if *by > 1 {
            let message = format!("--weights takes every M of a range, and --gemm asks for multiples of {by} alone");
            let help = "--gemm 1..=64x4096x4096, whose kernel runs at these multiples, too";
            return Err(Error::input(Code::CliGemm, message).help(help));
        }
        let product = quantized(sizes, &self.dtype, self.weights.as_deref().unwrap_or_default())?;
        let product = least.map_or(product, |least| product.rows_from(least));
        if self.pack { product.packing()?.schedule(&target) } else { gemm::recommend_quantized(&product, &target) }
    }

    /// Whether the size was asked for by name.
    pub fn has_size(&self) -> bool {
        self.size.is_some()
    }
}

/// A matrix product from its size (one number or three, or four: the batch first), types and layout as the command line has them.
///
/// Types are those of the inputs, the rest following as [`Gemm::of`] has it; or inputs, sums and result: `f16`,
/// `f16>f32>f16`, `u8*s8>s32`.
pub fn product(sizes: &[i64], types: &str, layout: &str) -> Result<Gemm> {
    let gemm = match *sizes {
        [n] => Gemm::new(n, n, n),
        [m, n, k] => Gemm::new(m, n, k),
        [batch, m, n, k] => Gemm::new(m, n, k).batch(batch),
        _ => {
            let message = "a matrix product has one size or three, MxNxK, and a batch of them four, BxMxNxK";
            return Err(Error::input(Code::CliGemm, message).help("--gemm 1024x512x2048").help("--gemm 4096"));
        }
    };
    let layout = Layout::parse(layout)
        .ok_or_else(|| Error::input(Code::CliLayout, format!("`{layout}` is not a layout")).help("NN, NT, TN or TT"))?;
    let parts: Vec<&str> = types.split('>').collect();
    let factors = parts[0].split('*').map(dtype).collect::<Result<Vec<DType>>>()?;
    let rest = parts[1..].iter().map(|t| dtype(t)).collect::<Result<Vec<DType>>>()?;
    let wrong = || {
        Error::input(Code::CliDtype, format!("`{types}` names no types of a GEMM"))
            .help("f16")
            .help("f16>f32>f16 for inputs, accumulators and result")
            .help("u8*s8>s32 for A, B and accumulators")
    };
    let (a, b) = match factors[..] {
        [a] => (a, a),
        [a, b] => (a, b),
        _ => return Err(wrong()),
    };
    let gemm = gemm.layout(layout);
    let (acc, out) = match rest[..] {
        [] if a == b => return Ok(gemm.of(a)),
        [acc] => (acc, acc),
        [acc, out] => (acc, out),
        _ => return Err(wrong()),
    };
    Ok(Gemm::from(GemmSpec { a, b, acc, out, ..*gemm.spec() }))
}

/// A product of packed weights from its size, the type of its activations, and type and group of its weights.
///
/// `s4` or `s4/128`: weights that share a scale, all of a row without a number.
pub(super) fn quantized(sizes: &[i64], activations: &str, weights: &str) -> Result<Quantized> {
    let [m, n, k] = *sizes else {
        return Err(
            Error::input(Code::CliGemm, "a product of quantised weights has sizes MxNxK").help("--gemm 16x4096x4096")
        );
    };
    let (name, group) = weights.split_once('/').map_or((weights, None), |(name, group)| (name, Some(group)));
    let product = Quantized::new(m, n, k).activations(dtype(activations)?).weights(dtype(name)?).packed();
    let group = group.map(|g| {
        let refused =
            || Error::input(Code::CliDtype, format!("`{g}` is no number of weights")).help("--weights s4/128");
        g.parse::<i64>().map_err(|_| refused())
    });
    let product = group.transpose()?.map_or(product, |group| product.groups(group));
    product.packing()?;
    Ok(product)
}

/// The program of a GEMM with the steps of a builder line after it.
fn with_epilogue(gemm: &Gemm, steps: &str) -> Result<Func> {
    let s = gemm.spec();
    let name = if s.batch.is_some() { "batched_gemm" } else { "gemm" };
    te::parse(&format!("{name} {} {} {} {steps}", size_words(s), types(s), s.layout.name()))
}

/// The size of a GEMM in a word: `1024x512x2048`, or `8..=8192/8x512x2048`.
fn size_words(s: &GemmSpec) -> String {
    let Some(least) = s.least_m else { return words(&s.sizes()) };
    let by = if s.m_by == 1 { String::new() } else { format!("/{}", s.m_by) };
    format!("{least}..={}{by}x{}x{}", s.m, s.n, s.k)
}

/// Sizes in a word: `1024x512x2048`.
pub fn words(sizes: &[i64]) -> String {
    sizes.iter().map(i64::to_string).collect::<Vec<_>>().join("x")
}

fn dtype(name: &str) -> Result<DType> {
    DType::parse(name.trim()).ok_or_else(|| {
        let names: Vec<&str> = DType::ALL.iter().map(|d| d.name()).collect();
        Error::input(Code::CliDtype, format!("`{name}` is not a type")).help(names.join(", "))
    })
}

/// Reads records.
pub fn records(files: &[PathBuf]) -> Result<Vec<Record>> {
    files.iter().map(|file| Record::read(file)).collect()
}

/// What to say about the steps of a schedule where there are records: that they are from none, or that their record was made by another
/// compiler, device or driver.
pub fn record_notes(schedule: &Schedule, records: &[Record], here: &Here) -> Result<Vec<String>> {
    let found = tune::record_of(&schedule.program, &schedule.target, records);
    match found {
        Some(record) if schedule.steps.starts_with(&record.schedule()?.steps) => Ok(here.warnings(record)),
        _ if records.is_empty() => Ok(Vec::new()),
        _ => Ok(vec![
            "the steps are not from a record: none is of this program and chip, or the text has no line `recommend`"
                .into(),
        ]),
    }
}

/// The program and the chip of a text, without steps, if its one step is a line `recommend`.
///
/// # Errors
/// Those of [`Schedule::parse`].
pub fn recommended_alone(text: &str, target: Option<Target>) -> Result<Option<Schedule>> {
    let mut lines = 0;
    let schedule = Schedule::parse_with(text, target, &mut |_| {
        lines += 1;
        Ok(Vec::new())
    })?;
    Ok(Some(schedule).filter(|schedule| lines == 1 && schedule.steps.is_empty()))
}

/// The space of a text with knobs; of one with a line `recommend` instead the candidates of its GEMM.
fn space_of_file(text: &str, sizes: Option<&[i64]>, target: Option<Target>) -> Result<Space> {
    match recommended_alone(text, target) {
        Ok(Some(schedule)) => {
            let schedule = sizes.map_or(Ok(schedule.clone()), |sizes| schedule.resized(sizes))?;
            let product = gemm::describe(&schedule.program).ok_or_else(without_candidates)?;
            Space::list(gemm::candidates(&product, &schedule.target)?)
        }
        _ => Space::parse(text, sizes, target),
    }
}

fn without_candidates() -> Error {
    Error::input(
        Code::TuneSpace,
        "candidates are generated for a GEMM and its epilogue alone, and this program is another",
    )
    .help("knobs in the steps: split i ? {8,16,32} -> i0 i1")
}

/// Reads a schedule from a file, for another chip where one is given.
pub fn read(file: &Path, target: Option<Target>) -> Result<Schedule> {
    let text = text(file)?;
    target.map_or_else(|| Schedule::parse(&text), |target| Schedule::parse_for(&text, target))
}

/// The text of a file, which need not end: no more is read than the longest text that is taken, and a byte.
pub fn text(file: &Path) -> Result<String> {
    let cannot =
        |why: &dyn std::fmt::Display| Error::input(Code::CliFile, format!("cannot read {}: {why}", file.display()));
    let mut bytes = Vec::new();
    let most = LONGEST_TEXT as u64 + 1;
    let read = match file.to_str() {
        Some("-") => std::io::stdin().lock().take(most).read_to_end(&mut bytes),
        _ => File::open(file).and_then(|f| f.take(most).read_to_end(&mut bytes)),
    };
    let of_artefact = |e: Error| if file.is_dir() { e.help(format!("warploom inspect {}", file.display())) } else { e };
    read.map_err(|e| of_artefact(cannot(&e)))?;
    if bytes.len() > LONGEST_TEXT {
        return Err(Error::input(Code::CliFile, format!("{} is longer than {LONGEST_TEXT} bytes", file.display())));
    }
    String::from_utf8(bytes).map_err(|_| cannot(&"it is not UTF-8 text"))
}

/// The tiles of a range of M with what the cost model predicts.
pub fn range_words(range: &RowRange) -> String {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let (mean, least) = (percent(range.share), percent(range.least_share));
    format!("{}, predicted {mean} of the speed of a schedule for each M alone, {least} at least", range.tiles)
}

/// A title for a schedule: its program with the sizes.
pub fn title(schedule: &Schedule) -> String {
    let product = |s: &GemmSpec| {
        let scales = if s.block_scales { " block_scales" } else { "" };
        format!("{} {} {} {}{scales}", schedule.program.name, size_words(s), types(s), s.layout.name())
    };
    match Known::of(&schedule.program) {
        Some(Known::Gemm(s)) => product(&s),
        Some(Known::GemmWith(s, steps)) => {
            let step = |e: &Epilogue| match e {
                Epilogue::Scale(factor) | Epilogue::Beta(factor) => format!(" {} {factor}", e.name()),
                other => format!(" {}", other.name()),
            };
            product(&s) + &steps.iter().map(step).collect::<String>()
        }
        Some(known) => format!("{} {}", schedule.program.name, words(&known.sizes())),
        None => schedule.program.name.clone(),
    }
}

/// The types of a product in a word: `f32`, `f16>f32>f16`, `u8*s8>s32>s32`.
pub fn types(s: &GemmSpec) -> String {
    let factors = if s.a == s.b { s.a.to_string() } else { format!("{}*{}", s.a, s.b) };
    let alone = [s.b, s.acc, s.out].iter().all(|d| *d == s.a);
    if alone { factors } else { format!("{factors}>{}>{}", s.acc, s.out) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_have_types_of_their_own() {
        let types = |text| product(&[8], text, "NT").map(|g| types(g.spec()));
        for (text, shown) in [
            ("f32", "f32"),
            ("f16", "f16>f32>f16"),
            ("s4", "s4>s32>s32"),
            ("f16>f32>f32", "f16>f32>f32"),
            ("bf16>f32", "bf16>f32>f32"),
            ("u8*s8>s32", "u8*s8>s32>s32"),
        ] {
            assert_eq!(types(text).as_deref(), Ok(shown));
        }
        for wrong in ["f15", "u8*s8", "f16>f32>f16>f16", "a*b*c>f32"] {
            assert_eq!(types(wrong).unwrap_err().code(), Code::CliDtype, "{wrong}");
        }
    }

    #[test]
    fn a_batch_is_the_first_of_four_sizes() {
        let of = |sizes: &[i64]| product(sizes, "f16", "NN").map(|g| g.spec().sizes());
        assert_eq!(of(&[64, 8, 16, 32]).unwrap(), [64, 8, 16, 32]);
        assert_eq!(of(&[8]).unwrap(), [8, 8, 8]);
        for wrong in [&[8, 16][..], &[1, 2, 3, 4, 5]] {
            assert_eq!(of(wrong).unwrap_err().code(), Code::CliGemm);
        }
        let schedule = Schedule::parse("batched_gemm 3x8x16x32 f32 NT\ntarget sm_80").unwrap();
        assert_eq!(title(&schedule), "batched_gemm 3x8x16x32 f32 NT");
    }
}
