//! Which schedule a command is about: a `.loom` file, or a matrix product with recommended steps.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::gemm::{self, Gemm};
use crate::loom::Schedule;
use crate::target::Target;
use crate::te::{Known, Layout};
use clap::Args;
use std::path::{Path, PathBuf};

/// The schedule to work on.
#[derive(Debug, Args)]
pub struct What {
    /// A schedule: program, target and steps.
    #[arg(required_unless_present = "gemm", conflicts_with = "gemm")]
    file: Option<PathBuf>,
    /// A matrix product, such as 1024x512x2048, with recommended steps.
    #[arg(long, value_name = "MxNxK", value_parser = sizes)]
    gemm: Option<Sizes>,
    /// Types of --gemm: of the inputs (f16 means f16>f32>f16), or inputs>sums>result.
    #[arg(long, value_name = "T", default_value = "f32", requires = "gemm")]
    dtype: String,
    /// How A and B of --gemm lie.
    #[arg(long, value_name = "NN|NT|TN|TT", default_value = "NN", requires = "gemm")]
    layout: String,
    /// Compile for this chip instead of the file's (sm_90 for --gemm).
    #[arg(long, value_name = "sm_XX")]
    target: Option<String>,
    /// The same program and steps at another size: N, or MxNxK.
    #[arg(long, value_name = "SIZE", value_parser = sizes, conflicts_with = "gemm")]
    size: Option<Sizes>,
}

/// `1024` or `1024x512x2048`.
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

impl What {
    /// What errors call it.
    pub fn name(&self) -> String {
        self.file.as_deref().map_or_else(|| "--gemm".to_string(), |f| f.display().to_string())
    }

    /// The schedule at its size for its target.
    pub fn schedule(&self) -> Result<Schedule> {
        let target = self.target.as_deref().map(Target::parse).transpose()?;
        let schedule = match (&self.file, &self.gemm) {
            (Some(file), _) => read(file)?,
            (None, Some(sizes)) => gemm::recommend(&self.product(sizes)?, &target.unwrap_or(Target::sm_90()))?,
            (None, None) => return Err(Error::input("cli.input", "neither a file nor --gemm is given")),
        };
        let schedule = match &self.size {
            Some(sizes) => schedule.resized(&sizes.0)?,
            None => schedule,
        };
        Ok(match target {
            Some(target) => schedule.for_target(target),
            None => schedule,
        })
    }

    /// Whether the size was asked for by name.
    pub fn has_size(&self) -> bool {
        self.size.is_some()
    }

    fn product(&self, sizes: &Sizes) -> Result<Gemm> {
        let gemm = match sizes.0[..] {
            [n] => Gemm::new(n, n, n),
            [m, n, k] => Gemm::new(m, n, k),
            _ => return Err(Error::input("cli.gemm", "a matrix product has one size or three: MxNxK")),
        };
        let layout = Layout::parse(&self.layout).ok_or_else(|| {
            Error::input("cli.layout", format!("`{}` is not a layout", self.layout)).help("NN, NT, TN or TT")
        })?;
        let types = self.dtype.split('>').map(dtype).collect::<Result<Vec<DType>>>()?;
        Ok(match types[..] {
            [one] => gemm.of(one),
            [inputs, acc, out] => gemm.inputs(inputs).accumulate(acc).output(out),
            _ => {
                return Err(
                    Error::input("cli.dtype", format!("`{}` is not one type or three", self.dtype)).help("f16>f32>f16")
                );
            }
        }
        .layout(layout))
    }
}

fn dtype(name: &str) -> Result<DType> {
    DType::parse(name.trim()).ok_or_else(|| {
        let names: Vec<&str> = DType::ALL.iter().map(|d| d.name()).collect();
        Error::input("cli.dtype", format!("`{name}` is not a type")).help(names.join(", "))
    })
}

/// Reads a schedule from a file.
pub fn read(file: &Path) -> Result<Schedule> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| Error::input("cli.file", format!("cannot read {}: {e}", file.display())))?;
    Schedule::parse(&text)
}

/// A title for a schedule: its program with the sizes.
pub fn title(schedule: &Schedule) -> String {
    let sizes = |s: Vec<i64>| s.iter().map(i64::to_string).collect::<Vec<_>>().join("x");
    match Known::of(&schedule.program) {
        Some(Known::Gemm(s)) => {
            let types =
                if s.a == s.acc && s.acc == s.out { s.a.to_string() } else { format!("{}>{}>{}", s.a, s.acc, s.out) };
            format!("gemm {}x{}x{} {types} {}", s.m, s.n, s.k, s.layout.name())
        }
        Some(known) => format!("{} {}", schedule.program.name, sizes(known.sizes())),
        None => schedule.program.name.clone(),
    }
}
