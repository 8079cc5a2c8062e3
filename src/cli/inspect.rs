//! `warploom inspect`: shows the variants of an artefact.

use super::colour::{self, Text};
use super::{build, show};
use crate::artifact::{Artifact, Variant};
use crate::error::Result;
use crate::kernel::{Follows, Kernel, Kernels, Param};
use clap::Args;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of `warploom inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// The folder or file of `warploom build` or `warploom dump --out`. All checksums are compared.
    artifact: PathBuf,
    /// Show one variant, by label or row number.
    #[arg(long, value_name = "LABEL")]
    variant: Option<String>,
    /// With --variant, print its schedule, its PTX or its cost report instead.
    #[arg(long, value_enum, requires = "variant")]
    emit: Option<Emit>,
    /// Unpack the one file, or copy the folder, into this folder.
    #[arg(long, value_name = "DIR", conflicts_with = "variant")]
    unpack: Option<PathBuf>,
    /// Print the manifest as JSON.
    #[arg(long, conflicts_with_all = ["variant", "unpack"])]
    json: bool,
}

/// A text of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Emit {
    /// A `.loom` text that compiles to the variant.
    Schedule,
    /// PTX.
    Ptx,
    /// The cost report of the compiler.
    Cost,
}

/// Prints a table of all variants, or one of them.
pub fn run(args: &InspectArgs) -> Result<ExitCode> {
    let artifact = Artifact::read(&args.artifact)?;
    if let Some(folder) = &args.unpack {
        artifact.write(folder)?;
        show::note(format_args!("wrote {}", folder.join(crate::artifact::MANIFEST).display()));
        return Ok(ExitCode::SUCCESS);
    }
    if args.json {
        show::line(artifact.manifest()?);
        return Ok(ExitCode::SUCCESS);
    }
    let Some(wanted) = &args.variant else {
        show::line(build::table(&artifact));
        return Ok(ExitCode::SUCCESS);
    };
    let variant = build::find(&artifact, wanted)?;
    match args.emit {
        None => show::put(described(variant)),
        Some(Emit::Schedule) => show::put(colour::paint(Text::Loom, &variant.schedule)),
        Some(Emit::Ptx) => show::put(colour::paint(Text::Ptx, variant.kernels.ptx())),
        Some(Emit::Cost) => show::put(colour::paint(Text::Cost, variant.cost.as_deref().unwrap_or("not counted\n"))),
    }
    Ok(ExitCode::SUCCESS)
}

/// A variant in lines.
fn described(variant: &Variant) -> String {
    let (mut out, kernels) = (String::new(), &variant.kernels);
    let _ =
        writeln!(out, "{} for {}, by {} with LLVM {}", variant.label, kernels.target, variant.compiler, variant.llvm);
    let version = kernels.ptx_version;
    let _ = writeln!(out, "PTX {}.{}, {} bytes", version / 10, version % 10, kernels.ptx().len());
    if let Some(cubin) = &kernels.cubin {
        let _ = writeln!(out, "machine code for {} by {}, {} bytes", cubin.chip, cubin.assembler, cubin.bytes.len());
    }
    for arg in &kernels.args {
        let access = format!("{:?}", arg.access).to_lowercase();
        let (shape, strides) = (variant.kernels.extents(arg).join(", "), &arg.strides);
        let _ = writeln!(
            out,
            "argument {} {}[{shape}], strides {strides:?}, {} bytes at a multiple of {}, {access}",
            arg.name, arg.dtype, arg.bytes, arg.align
        );
    }
    kernels.sizes.iter().for_each(|size| out.push_str(&format!("{}\n", size.text())));
    for buffer in &kernels.workspace {
        let _ = writeln!(out, "workspace {}, {} bytes", buffer.name, buffer.bytes);
    }
    kernels.kernels.iter().for_each(|kernel| line_of(kernel, variant, &mut out));
    out
}

/// A kernel in a line.
fn line_of(kernel: &Kernel, variant: &Variant, out: &mut String) {
    let by = |[x, y, z]: [u32; 3]| format!("{x} x {y} x {z}");
    let _ = write!(out, "kernel {}: grid {}, block {}", kernel.entry, grid(kernel, &variant.kernels), by(kernel.block));
    if kernel.cluster != [1; 3] {
        let _ = write!(out, ", clusters of {}", by(kernel.cluster));
    }
    let _ = write!(out, ", {} bytes of shared memory", kernel.shared_bytes);
    let flags = [
        (kernel.persistent, ", persistent"),
        (kernel.early, ", may start early (PDL)"),
        (kernel.concurrent, ", concurrent with preceding kernels"),
    ];
    flags.iter().filter(|(is, _)| *is).for_each(|(_, words)| out.push_str(words));
    let params = kernel.params.iter().map(|param| name_of(param, variant)).collect::<Vec<_>>();
    let _ = writeln!(out, ", takes {}", params.join(", "));
}

/// The blocks in x, y and z; what they follow from where that is a dynamic size.
fn grid(kernel: &Kernel, kernels: &Kernels) -> String {
    let one = |(blocks, follows): (u32, Option<Follows>)| match follows {
        None => blocks.to_string(),
        Some(f) => {
            let name = kernels.sizes.get(f.size).map_or("?", |size| size.name.as_str());
            format!("{}*ceil({name}/{})", f.times, f.per)
        }
    };
    kernel.grid.into_iter().zip(kernel.clips.0).map(one).collect::<Vec<_>>().join(" x ")
}

/// The name of a parameter.
fn name_of(param: &Param, variant: &Variant) -> String {
    let kernels = &variant.kernels;
    match param {
        Param::Arg(n) => kernels.args.get(*n).map_or_else(|| "?".into(), |arg| arg.name.clone()),
        Param::Workspace(n) => kernels.workspace.get(*n).map_or_else(|| "?".into(), |buffer| buffer.name.clone()),
        Param::Size(n) => kernels.sizes.get(*n).map_or_else(|| "?".into(), |size| size.name.clone()),
        Param::TensorMap(map) => format!("a tensor map of {}", name_of(&map.array, variant)),
    }
}
