//! `warploom build --rust --c`: launchers beside the files of an artefact.

use crate::artifact::Artifact;
use crate::artifact::launcher::{self, Unit};
use crate::error::{Error, Result};
use crate::kernel::Arg;

/// Which launchers to write.
#[derive(Debug, Clone, Copy)]
pub struct Kinds {
    /// Modules for cudarc and for this crate's runtime.
    pub rust: bool,
    /// Headers and sources for the driver API.
    pub c: bool,
}

/// File name and text of each launcher. The variants of one program for several sizes and chips share a launcher.
///
/// # Errors
/// `artifact.launcher` where two variants take the same arguments on one chip, or a program's name is no identifier.
pub fn texts(artifact: &Artifact, kinds: Kinds) -> Result<Vec<(String, String)>> {
    let manifest = artifact.index();
    let mut files = Vec::new();
    for (name, members) in programs(artifact) {
        let labels = members.iter().map(|n| artifact.variants[*n].label.as_str()).collect::<Vec<_>>().join(", ");
        let within = |e: Error| e.within(format!("writing a launcher of {labels}"));
        let entry = |n: &usize| (&artifact.variants[*n].kernels, &manifest.variants[*n]);
        let unit = |n: &usize| {
            let (kernels, entry) = entry(n);
            Unit { kernels, ptx: &entry.ptx.name, cubin: entry.cubin.as_ref().map(|cubin| cubin.file.name.as_str()) }
        };
        let units: Vec<Unit> = members.iter().map(unit).collect();
        if kinds.rust {
            files.push((format!("{name}_cudarc.rs"), launcher::rust_cudarc(&name, &units).map_err(within)?));
            files.push((format!("{name}_warploom.rs"), launcher::rust_warploom(&name, &units).map_err(within)?));
        }
        if kinds.c {
            let written = launcher::c(&name, &units).map_err(within)?;
            files.extend([(format!("{name}.h"), written.header), (format!("{name}.c"), written.source)]);
        }
    }
    Ok(files)
}

/// The indices of the variants of each program: equal names, and arguments that differ in their extents alone. A number is appended to the
/// second program with the same name.
fn programs(artifact: &Artifact) -> Vec<(String, Vec<usize>)> {
    let taken = |arg: &Arg| (arg.name.clone(), arg.dtype, arg.shape.len(), arg.access);
    let mut groups: Vec<(String, Vec<_>, Vec<usize>)> = Vec::new();
    for (n, variant) in artifact.variants.iter().enumerate() {
        let (name, args) = (&variant.kernels.name, variant.kernels.args.iter().map(taken).collect::<Vec<_>>());
        match groups.iter_mut().find(|(known, takes, _)| known == name && *takes == args) {
            Some((_, _, members)) => members.push(n),
            None => groups.push((name.clone(), args, vec![n])),
        }
    }
    let numbered = |(n, (name, _, members)): (usize, &(String, Vec<_>, Vec<usize>))| {
        let before = groups[..n].iter().filter(|(other, ..)| other == name).count();
        let name = if before == 0 { name.clone() } else { format!("{name}_{}", before + 1) };
        (name, members.clone())
    };
    groups.iter().enumerate().map(numbered).collect()
}
