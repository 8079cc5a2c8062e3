//! `warploom new`: a crate to start from.

use super::show;
use crate::error::{Code, Error, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where the crate is written, and which warploom it depends on.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// The folder to make; its last part is the name of the crate.
    folder: PathBuf,
    /// The checkout of warploom to depend on: without it, the one that this binary was built from.
    #[arg(long, value_name = "CHECKOUT")]
    path: Option<PathBuf>,
}

/// The files of the crate. `NAME` and `DEPENDENCY` stand for the crate's name and the place of warploom.
const FILES: [(&str, &str); 6] = [
    ("Cargo.toml", CARGO),
    ("build.rs", BUILD),
    ("src/main.rs", MAIN),
    ("kernels/gemm.loom", LOOM),
    (".cargo/config.toml", CONFIG),
    ("cuda-link/lib64/libcuda.so", LINK),
];

const CARGO: &str = r#"[package]
name = "NAME"
version = "0.1.0"
edition = "2024"

[dependencies]
warploom = { DEPENDENCY, default-features = false, features = ["runtime"] }

# The compiler runs when the crate is built, and needs LLVM 19 there. The program itself needs neither.
[build-dependencies]
warploom = { DEPENDENCY, default-features = false, features = ["llvm-dynamic"] }
"#;

const BUILD: &str = r#"//! Compiles the kernels for these chips into one artefact.

fn main() -> warploom::Result<()> {
    warploom::build::script("kernels", &["kernels/gemm.loom"], &["sm_80", "sm_90"])
}
"#;

const MAIN: &str = r#"//! Multiplies two matrices on a GPU, or on the simulator where there is none.

use warploom::artifact::Artifact;
use warploom::runtime::Device;
use warploom::{Array, DType, Result, simulate};

fn main() -> Result<()> {
    let kernels = Artifact::from_bytes(warploom::include_artifact!("kernels"))?;
    let a = Array::random(DType::F16, &[128, 256], 1)?;
    let b = Array::random(DType::F16, &[192, 256], 2)?;
    let c = Array::zeros(DType::F16, &[128, 192])?;
    let (place, c) = match Device::open(0) {
        Ok(device) => {
            let library = device.library(kernels);
            let (a, b, c) = (device.upload(&a)?, device.upload(&b)?, device.upload(&c)?);
            library.launch("gemm", &[&a, &b, &c])?;
            (device.info().name.clone(), c.download()?)
        }
        Err(why) => {
            eprintln!("no GPU is used: {}", why.message());
            let mut arrays = vec![a, b, c];
            simulate(&kernels.variants[0].kernels, &mut arrays)?;
            ("the simulator".to_string(), arrays.remove(2))
        }
    };
    println!("C[0, 0..4] = {:?}, by {place}", [0, 1, 2, 3].map(|n| c.get(n)));
    Ok(())
}
"#;

const LOOM: &str = "# C = A B^T. `warploom run kernels/gemm.loom` checks it, `warploom explain kernels/gemm.loom` shows the steps that \
                    `recommend` stands for.
gemm 128x192x256 f16 NT
target sm_80
recommend
";

const CONFIG: &str = r#"# The build of feature `runtime` looks for a CUDA installation; this folder takes its place. The driver is looked up at run time.
[env]
CUDA_LIBRARY_PATH = { value = "cuda-link", relative = true }
"#;

/// An empty linker script.
const LINK: &str = "/* The driver is looked up at run time. */\n";

/// Names that cargo refuses for a crate with a binary, or whose crate would hide another: keywords, folders of its own, crates of Rust and this one.
const TAKEN: [&str; 64] = [
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "build",
    "const",
    "continue",
    "core",
    "crate",
    "deps",
    "do",
    "dyn",
    "else",
    "enum",
    "examples",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "incremental",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "proc_macro",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "warploom",
    "where",
    "while",
    "yield",
    "nul",
    "con",
];

/// Writes the files.
pub fn run(args: &NewArgs) -> Result<ExitCode> {
    let name = args.folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(is_name) {
        return Err(
            Error::input(Code::CliNew, format!("`{name}` is no name of a crate")).help("warploom new my-kernels")
        );
    }
    if TAKEN.contains(&name.to_ascii_lowercase().as_str()) {
        let message = format!("cargo takes no crate of the name `{name}` that depends on warploom");
        return Err(Error::input(Code::CliNew, message).help("warploom new my-kernels"));
    }
    if args.folder.exists() {
        let message = format!("{} exists; nothing has been written", args.folder.display());
        return Err(Error::input(Code::CliNew, message).help("another name"));
    }
    let path = args.path.clone().unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    let path = std::path::absolute(&path).unwrap_or(path);
    let manifest = std::fs::read_to_string(path.join("Cargo.toml")).unwrap_or_default();
    if !manifest.contains("name = \"warploom\"") {
        let message = format!("{} is no checkout of warploom", path.display());
        return Err(Error::input(Code::CliNew, message).help("--path CHECKOUT"));
    }
    let dependency = format!("path = {:?}", path.display().to_string());
    for (file, text) in FILES {
        let text = text.replace("NAME", name).replace("DEPENDENCY", &dependency);
        write(&args.folder.join(file), &text)?;
    }
    show::note(format_args!("wrote {}: `cargo run` there multiplies two matrices", args.folder.display()));
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &str) -> Result<()> {
    let cannot = |e: std::io::Error| Error::machine(Code::CliWrite, format!("cannot write {}: {e}", path.display()));
    path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(cannot)?;
    std::fs::write(path, text).map_err(cannot)
}
