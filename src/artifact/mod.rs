//! Compiled kernels on disk: PTX, cubins, and a manifest with the launch of each kernel.
//!
//! An [`Artifact`] has variants: programs for several chips and sizes. [`Artifact::choose`] selects a variant by device and arrays.
//! [`Artifact::write`] makes a folder, whose files programs in other languages read (`examples/launch`). [`Artifact::write_packed`] makes a
//! single file, which a Rust program can embed (`include_bytes!`). Reading needs neither LLVM nor a driver. The manifest has a SHA-256 of each
//! file and of itself, and reading compares them.

pub mod cache;
pub(crate) mod choose;
mod files;
mod folder;
pub mod launcher;
mod manifest;
mod packed;
mod workspace;

use crate::error::{Code, Error, Result};
use crate::kernel::Kernels;
pub use cache::Cache;
pub use files::{check_file, write_file, write_text};
pub(crate) use manifest::checksum;
pub use manifest::{CubinEntry, File, MANIFEST, Manifest, VERSION, VariantEntry};
use std::path::Path;
pub use workspace::Workspace;

/// The extension of an artefact in one file.
pub const EXTENSION: &str = "warploom";

/// Compiled programs, for several chips and of several sizes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Artifact {
    /// The variants; an artefact that has been read has at least one.
    pub variants: Vec<Variant>,
}

/// A program for one chip at one size.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Variant {
    /// The base name of its files: letters, digits, `-`, `_` and `.`.
    pub label: String,
    /// The compiled program.
    pub kernels: Kernels,
    /// The schedule that was compiled: a `.loom` text.
    pub schedule: String,
    /// The compiler that made it: `warploom 0.1.0`.
    pub compiler: String,
    /// The LLVM that it was made with: `19.1.7`.
    pub llvm: String,
    /// The cost report, as text, if the builder made one.
    pub cost: Option<String>,
}

impl Variant {
    /// A variant of compiled kernels and their schedule. The label is the program's name; `llvm` is the version of LLVM.
    pub fn new(kernels: Kernels, schedule: impl Into<String>, llvm: impl Into<String>) -> Variant {
        Variant {
            label: kernels.name.clone(),
            kernels,
            schedule: schedule.into(),
            compiler: format!("warploom {}", env!("CARGO_PKG_VERSION")),
            llvm: llvm.into(),
            cost: None,
        }
    }

    /// The variant with another label. Characters outside letters, digits, `-`, `_` and `.` become `_`.
    pub fn labelled(mut self, label: &str) -> Variant {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        self.label = label.chars().map(plain).collect();
        self
    }

    /// The variant with a cost report.
    pub fn with_cost(mut self, cost: impl Into<String>) -> Variant {
        self.cost = Some(cost.into());
        self
    }
}

impl Artifact {
    /// An artefact with these variants.
    pub fn new(variants: Vec<Variant>) -> Artifact {
        Artifact { variants }
    }

    /// Writes the PTX and the cubin of each variant and `manifest.json` into a folder, and creates the folder if necessary. The code files
    /// are written first, under names with digests of their contents, then the manifest is renamed, then files of the previous artefact are
    /// removed: a process that is killed leaves the old artefact or the new one. Returns the manifest.
    ///
    /// # Errors
    /// `artifact.write` where a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<Manifest> {
        folder::write(self, folder, &[])
    }

    /// As [`Artifact::write`], with texts that belong to the artefact, such as launchers, by name. They are written before the manifest.
    #[cfg(feature = "cli")]
    pub(crate) fn write_with(&self, folder: &Path, texts: &[(String, String)]) -> Result<Manifest> {
        folder::write(self, folder, texts)
    }

    /// The manifest: everything except the contents of the files.
    pub fn index(&self) -> Manifest {
        Manifest::of(self)
    }

    /// The text of `manifest.json`.
    ///
    /// # Errors
    /// `artifact.json` if the manifest cannot be printed as JSON.
    pub fn manifest(&self) -> Result<String> {
        self.index().text()
    }

    /// Writes the artefact as one file. Readers see the old file or the complete new file, even if the process is killed.
    ///
    /// # Errors
    /// `artifact.write` where the file cannot be written.
    pub fn write_packed(&self, file: &Path) -> Result<()> {
        let (folder, name) = files::split(file)?;
        files::write(folder, name, &self.to_bytes()?)?;
        files::sync(folder)
    }

    /// The bytes of the artefact in one file.
    ///
    /// # Errors
    /// `artifact.json` if the manifest cannot be printed as JSON.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let manifest = self.index();
        let contents: Vec<&[u8]> = self.variants.iter().flat_map(contents).collect();
        Ok(packed::pack(&manifest.text()?, &contents))
    }

    /// Reads an artefact from a folder or from one file.
    ///
    /// # Errors
    /// `artifact.read` where a file cannot be read, is of another version, or has changed since it was written.
    pub fn read(path: &Path) -> Result<Artifact> {
        if !path.is_dir() {
            let bytes = files::read(path)?;
            return Artifact::from_bytes(&bytes).map_err(|e| e.within(format!("reading {}", path.display())));
        }
        folder::read(path)
    }

    /// Reads what [`Artifact::to_bytes`] made, such as the bytes of `include_bytes!("kernels.warploom")`.
    ///
    /// # Errors
    /// `artifact.read` where the bytes are not those of an artefact of this version, or have changed.
    pub fn from_bytes(bytes: &[u8]) -> Result<Artifact> {
        let (manifest, mut rest) = packed::unpack(bytes)?;
        let mut variants = Vec::new();
        for entry in Manifest::parse(manifest)?.variants {
            let contents = entry.files().map(|file| {
                let (bytes, after) = packed::take(rest, file.bytes)?;
                rest = after;
                file.check(bytes)?;
                Ok(bytes)
            });
            let contents = contents.collect::<Result<Vec<_>>>()?;
            variants.push(entry.variant(contents.into_iter())?);
        }
        if !rest.is_empty() {
            return Err(changed(format!("{} bytes follow the last file of the manifest", rest.len())));
        }
        Ok(Artifact::new(variants))
    }
}

/// The files of a variant, in the order of [`VariantEntry::files`].
fn contents(variant: &Variant) -> impl Iterator<Item = &[u8]> {
    let cubin = variant.kernels.cubin.as_ref().map(|cubin| cubin.bytes.as_slice());
    std::iter::once(variant.kernels.ptx().as_bytes()).chain(cubin)
}

/// The error of an artefact that is damaged or of another version.
fn changed(why: impl Into<String>) -> Error {
    Error::input(Code::ArtifactRead, why).help("build it again: the manifest holds the schedules")
}
