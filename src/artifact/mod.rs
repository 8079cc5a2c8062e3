//! Compiled kernels as files: the PTX and a manifest of everything that a launch needs.
//!
//! The manifest is JSON: arguments with shapes, strides, sizes and alignments; workspace; and of each kernel the entry, the grid,
//! the block, the cluster, the shared memory and its parameters, tensor maps as data. A program in any language can launch from it
//! (`examples/launch.py`). Reading needs neither LLVM nor a driver.

use crate::error::{Code, Error, Result};
use crate::kernel::{Arg, Kernel, Kernels, Workspace};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The number of the format. A reader refuses others.
pub const VERSION: u32 = 1;

/// The contents of `manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Manifest {
    /// Always [`VERSION`].
    pub version: u32,
    /// The compiler that wrote it: `warploom 0.1.0`.
    pub compiler: String,
    /// The program's name.
    pub name: String,
    /// The chip that the PTX is for, such as `sm_90a`.
    pub target: String,
    /// The PTX ISA version times ten: a driver refuses versions that it does not know.
    pub ptx_version: u32,
    /// The file of the PTX, beside the manifest.
    pub ptx: String,
    /// SHA-256 of that file, in hexadecimal.
    pub sha256: String,
    /// What the caller passes, in order: addresses in device memory.
    pub arguments: Vec<Arg>,
    /// Device memory that the caller allocates once; what it holds between launches does not matter.
    pub workspace: Vec<Workspace>,
    /// The kernels, in launch order, each on the same stream.
    pub kernels: Vec<Kernel>,
    /// The schedule that was compiled: a `.loom` text.
    pub schedule: String,
}

/// Writes the kernels into a folder, which is made where it does not exist: `NAME.ptx` and `manifest.json`. Each file is written under
/// another name first and renamed, the manifest last.
///
/// # Errors
/// `artifact.write` where a file cannot be written.
pub fn write(folder: &Path, kernels: &Kernels, schedule: &str) -> Result<Manifest> {
    let ptx = format!("{}.ptx", kernels.name);
    let manifest = Manifest {
        version: VERSION,
        compiler: format!("warploom {}", env!("CARGO_PKG_VERSION")),
        name: kernels.name.clone(),
        target: kernels.target.clone(),
        ptx_version: kernels.ptx_version,
        sha256: checksum(kernels.ptx().as_bytes()),
        ptx: ptx.clone(),
        arguments: kernels.args.clone(),
        workspace: kernels.workspace.clone(),
        kernels: kernels.kernels.clone(),
        schedule: schedule.to_string(),
    };
    let text = serde_json::to_string_pretty(&manifest).map_err(|e| Error::bug(Code::ArtifactJson, e.to_string()))?;
    for (name, text) in [(ptx.as_str(), kernels.ptx()), (MANIFEST, text.as_str())] {
        write_text(folder, name, text)?;
    }
    Ok(manifest)
}

/// Writes a text into a folder, which is made where it does not exist: a reader sees the old file or the whole new one.
///
/// # Errors
/// `artifact.write` where the file cannot be written.
pub fn write_text(folder: &Path, name: &str, text: &str) -> Result<()> {
    let cannot = |path: &Path, e: std::io::Error| {
        Error::machine(Code::ArtifactWrite, format!("cannot write {}: {e}", path.display()))
    };
    std::fs::create_dir_all(folder).map_err(|e| cannot(folder, e))?;
    let path = folder.join(name);
    replace(&path, text.as_bytes()).map_err(|e| cannot(&path, e))
}

/// The file of the manifest.
pub const MANIFEST: &str = "manifest.json";

/// Reads kernels from a folder that [`write()`] wrote.
///
/// # Errors
/// `artifact.read` where a file cannot be read, is no manifest of this version, or where the PTX is not the one that the manifest names.
pub fn read(folder: &Path) -> Result<(Manifest, Kernels)> {
    let path = folder.join(MANIFEST);
    let wrong = |path: &Path, why: String| Error::input(Code::ArtifactRead, format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|e| wrong(&path, e.to_string()))?;
    let version: Version = serde_json::from_str(&text).map_err(|e| wrong(&path, e.to_string()))?;
    if version.version != VERSION {
        let why = format!("it is a manifest of version {}, and this is a reader of version {VERSION}", version.version);
        return Err(wrong(&path, why).help("compile the schedule again: it is part of the manifest"));
    }
    let manifest: Manifest = serde_json::from_str(&text).map_err(|e| wrong(&path, e.to_string()))?;
    let ptx = plain_name(&manifest.ptx).map(|name| folder.join(name));
    let ptx = ptx.ok_or_else(|| wrong(&path, format!("`{}` is no name of a file beside it", manifest.ptx)))?;
    let text = std::fs::read_to_string(&ptx).map_err(|e| wrong(&ptx, e.to_string()))?;
    if checksum(text.as_bytes()) != manifest.sha256 {
        return Err(wrong(&ptx, "it is not the PTX that the manifest was written with".into()));
    }
    let kernels = Kernels {
        name: manifest.name.clone(),
        target: manifest.target.clone(),
        ptx_version: manifest.ptx_version,
        text,
        llvm: String::new(),
        args: manifest.arguments.clone(),
        workspace: manifest.workspace.clone(),
        kernels: manifest.kernels.clone(),
    };
    Ok((manifest, kernels))
}

/// The one field that every version has.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// The name as a path of one part, which leads nowhere else.
fn plain_name(name: &str) -> Option<PathBuf> {
    let path = Path::new(name);
    (path.file_name()? == path.as_os_str()).then(|| path.to_path_buf())
}

fn checksum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// Writes a file so that readers see the old one or the whole new one.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let partial = path.with_extension(format!("partial-{}", std::process::id()));
    let written = std::fs::File::create(&partial).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let renamed = written.and_then(|()| std::fs::rename(&partial, path));
    if renamed.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    renamed
}
