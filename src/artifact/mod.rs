//! Compiled kernels as files: PTX, machine code, and a manifest of everything that a launch needs.
//!
//! An [`Artifact`] has variants: programs for several chips and of several sizes. [`Artifact::choose`] finds the one for a device and for
//! arrays. It is a folder ([`Artifact::write`]), whose files a program in any language can read (`examples/launch`), or a single file
//! ([`Artifact::write_packed`]), which a Rust program can also hold (`include_bytes!`). Reading needs neither LLVM nor a driver, and
//! finds every bit that has changed since: the manifest has a checksum of each file and of itself.

pub mod cache;
mod choose;
mod files;
pub mod launcher;
mod manifest;
mod packed;

use crate::error::{Code, Error, Result};
use crate::kernel::Kernels;
pub use cache::Cache;
pub use files::write_text;
pub(crate) use manifest::checksum;
pub use manifest::{CubinEntry, File, MANIFEST, Manifest, VERSION, VariantEntry};
use std::collections::BTreeSet;
use std::path::Path;

/// How the name of an artefact in one file ends.
pub const EXTENSION: &str = "warploom";

/// Compiled programs, for several chips and of several sizes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Artifact {
    /// At least one where it has been read.
    pub variants: Vec<Variant>,
}

/// A program for one chip at one size.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Variant {
    /// What its files are called: letters, digits, `-`, `_` and `.`.
    pub label: String,
    /// The compiled program.
    pub kernels: Kernels,
    /// The schedule that was compiled: a `.loom` text.
    pub schedule: String,
    /// The compiler that made it: `warploom 0.1.0`.
    pub compiler: String,
    /// The LLVM that it was made with: `19.1.7`.
    pub llvm: String,
    /// The cost report, as text; none where nothing has been counted.
    pub cost: Option<String>,
}

impl Variant {
    /// Kernels with the schedule that they were compiled from, under the program's name; `llvm` is the version of LLVM.
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

    /// The same with files of another name. Characters that no name of a file should have become `_`.
    pub fn labelled(mut self, label: &str) -> Variant {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        self.label = label.chars().map(plain).collect();
        self
    }

    /// The same with a cost report.
    pub fn with_cost(mut self, cost: impl Into<String>) -> Variant {
        self.cost = Some(cost.into());
        self
    }
}

impl Artifact {
    /// Of these variants.
    pub fn new(variants: Vec<Variant>) -> Artifact {
        Artifact { variants }
    }

    /// Writes it into a folder, which is made where it does not exist: the PTX and the cubin of each variant, and `manifest.json`.
    /// Each file is written under another name, synced and renamed, the manifest last; files of
    /// an artefact that was there before are removed. Yields the manifest.
    ///
    /// # Errors
    /// `artifact.write` where a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<Manifest> {
        let manifest = self.index();
        let before = std::fs::read(folder.join(MANIFEST)).ok().and_then(|text| Manifest::parse(&text).ok());
        for (entry, variant) in manifest.variants.iter().zip(&self.variants) {
            for (file, bytes) in entry.files().zip(contents(variant)) {
                files::write(folder, &file.name, bytes)?;
            }
        }
        files::write(folder, MANIFEST, manifest.text()?.as_bytes())?;
        // What the manifest before named, and this one does not.
        let names =
            |of: &Manifest| of.variants.iter().flat_map(|v| v.files()).map(|f| f.name.clone()).collect::<BTreeSet<_>>();
        let left = before.map(|before| &names(&before) - &names(&manifest)).unwrap_or_default();
        left.iter().for_each(|name| drop(std::fs::remove_file(folder.join(name))));
        files::sync(folder)?;
        Ok(manifest)
    }

    /// Its manifest: everything but the contents of the files.
    pub fn index(&self) -> Manifest {
        Manifest::of(self)
    }

    /// The text of its manifest.
    ///
    /// # Errors
    /// `artifact.json` where the manifest has no text.
    pub fn manifest(&self) -> Result<String> {
        Manifest::of(self).text()
    }

    /// Writes it as one file: readers see the old file or the whole new one, also where the process is killed in between.
    ///
    /// # Errors
    /// `artifact.write` where the file cannot be written.
    pub fn write_packed(&self, file: &Path) -> Result<()> {
        let (folder, name) = files::split(file)?;
        files::write(folder, name, &self.to_bytes()?)?;
        files::sync(folder)
    }

    /// The contents of the one file.
    ///
    /// # Errors
    /// `artifact.json` where the manifest has no text.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let manifest = Manifest::of(self);
        let contents: Vec<&[u8]> = self.variants.iter().flat_map(contents).collect();
        Ok(packed::pack(&manifest.text()?, &contents))
    }

    /// Reads the folder, or the one file, at this path.
    ///
    /// # Errors
    /// `artifact.read` where a file cannot be read, is of another version, or has changed since it was written.
    pub fn read(path: &Path) -> Result<Artifact> {
        if !path.is_dir() {
            let bytes = files::read(path)?;
            return Artifact::from_bytes(&bytes).map_err(|e| e.within(format!("reading {}", path.display())));
        }
        let at = path.join(MANIFEST);
        if !at.is_file() {
            let message = format!("{} is no artefact: it has no {MANIFEST}", path.display());
            return Err(Error::input(Code::ArtifactRead, message).help("warploom build FILE -o FOLDER"));
        }
        let text = files::read(&at)?;
        let manifest = Manifest::parse(&text).map_err(|e| e.within(format!("reading {}", at.display())))?;
        let read = |entry: VariantEntry| {
            let contents = entry.files().map(|file| {
                let at = path.join(&file.name);
                let bytes = files::read(&at)?;
                file.check(&bytes)?;
                Ok(bytes)
            });
            let contents = contents.collect::<Result<Vec<_>>>()?;
            entry.variant(contents.iter().map(Vec::as_slice))
        };
        let variants = manifest.variants.into_iter().map(read).collect::<Result<_>>();
        variants.map(Artifact::new).map_err(|e| e.within(format!("reading {}", path.display())))
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

/// An artefact that is none, or no longer the one that was written.
fn changed(why: impl Into<String>) -> Error {
    Error::input(Code::ArtifactRead, why).help("build it again: the manifest holds the schedules")
}
