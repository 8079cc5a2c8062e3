//! The manifest of an artefact as JSON: all fields of its variants except the contents of their files.
//!
//! A variant has arguments with shapes, strides, sizes and alignments; workspace; and of each kernel the entry, the grid, the block,
//! the cluster, the shared memory and its parameters, tensor maps as data. The last line is the checksum of the text before it.

use super::files::plain_name;
use super::{Artifact, Variant, changed};
use crate::error::{Code, Error, Result};
use crate::kernel::{Arg, Cubin, Kernel, Kernels, Size, Workspace};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// The number of the format. A reader refuses others.
pub const VERSION: u32 = 2;

/// The file of the manifest in a folder.
pub const MANIFEST: &str = "manifest.json";

/// The digits of the SHA-256 of its contents that the name of a code file has: 48 bits.
pub(super) const DIGEST_DIGITS: usize = 12;

/// The text before the value of the last field.
const CHECKSUM: &str = ",\n  \"checksum\": \"";

/// The contents of `manifest.json`, without its checksum.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Manifest {
    /// Always [`VERSION`].
    pub version: u32,
    /// The compiled programs.
    pub variants: Vec<VariantEntry>,
}

/// A program for one chip at one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VariantEntry {
    /// The program's name.
    pub name: String,
    /// The base name of its files.
    pub label: String,
    /// The chip that the PTX is for, such as `sm_90a`.
    pub target: String,
    /// The PTX ISA version times ten: a driver refuses versions that it does not know.
    pub ptx_version: u32,
    /// The compiler that wrote it: `warploom 0.1.0`.
    pub compiler: String,
    /// The LLVM that it was compiled with.
    pub llvm: String,
    /// The file of the PTX.
    pub ptx: File,
    /// The file of the cubin, if the variant has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cubin: Option<CubinEntry>,
    /// The arguments, in order: addresses in device memory.
    pub arguments: Vec<Arg>,
    /// Device buffers that the caller allocates once. Launches need not preserve their contents.
    pub workspace: Vec<Workspace>,
    /// The kernels, in launch order, each on the same stream.
    pub kernels: Vec<Kernel>,
    /// Sizes that are known at launch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<Size>,
    /// The cost report, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
    /// The schedule that was compiled: a `.loom` text.
    pub schedule: String,
}

/// A file of an artefact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct File {
    /// Its name, in the folder of the manifest.
    #[serde(rename = "file")]
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// SHA-256 of its contents, in hexadecimal.
    pub sha256: String,
}

/// Machine code of a variant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CubinEntry {
    /// The chip that it is for.
    pub chip: String,
    /// What assembled it.
    pub assembler: String,
    /// Its file.
    #[serde(flatten)]
    pub file: File,
}

impl File {
    /// A file of code. Its name has a digest of its contents, so files of other contents have other names.
    fn of(stem: &str, extension: &str, contents: &[u8]) -> File {
        let sha256 = checksum(contents);
        let name = format!("{stem}.{}.{extension}", &sha256[..DIGEST_DIGITS]);
        File { name, bytes: contents.len() as u64, sha256 }
    }

    /// Compares length and SHA-256 of the contents.
    pub(super) fn check(&self, contents: &[u8]) -> Result<()> {
        if contents.len() as u64 == self.bytes && checksum(contents) == self.sha256 {
            return Ok(());
        }
        Err(changed(format!("{} is not the file that the manifest was written with", self.name)))
    }
}

impl Manifest {
    /// The manifest of an artefact. The label of a variant names its files, with a digest of their contents. The chip is appended to the label
    /// if several variants share it, and a number if they share label and chip.
    pub(super) fn of(artifact: &Artifact) -> Manifest {
        let mut taken = BTreeSet::new();
        let entry = |variant: &Variant| {
            let alone = artifact.variants.iter().filter(|v| v.label == variant.label).count() == 1;
            let (label, target) = (&variant.label, &variant.kernels.target);
            let named = if alone { label.clone() } else { format!("{label}.{target}") };
            let numbered = (2..).map(|n| format!("{named}.{n}"));
            let free = std::iter::once(named.clone()).chain(numbered).find(|name| taken.insert(name.clone()));
            VariantEntry::of(variant, &free.unwrap_or(named))
        };
        Manifest { version: VERSION, variants: artifact.variants.iter().map(entry).collect() }
    }

    /// The text, with its checksum.
    pub(super) fn text(&self) -> Result<String> {
        let json = |e: serde_json::Error| Error::bug(Code::ArtifactJson, e.to_string());
        let text = serde_json::to_string_pretty(self).map_err(json)?;
        let body = text.strip_suffix("\n}").unwrap_or(&text);
        Ok(format!("{body}{}", ending(body)))
    }

    /// Parses the text and compares its checksum.
    pub(super) fn parse(text: &[u8]) -> Result<Manifest> {
        let text = std::str::from_utf8(text).map_err(|_| changed("the manifest is not text"))?;
        let body = text.rsplit_once(CHECKSUM).map(|(body, _)| body);
        let is_whole = body.is_some_and(|body| text[body.len()..] == ending(body));
        // A manifest of another version may have its checksum elsewhere.
        let version = serde_json::from_str::<Version>(text).map(|v| v.version).unwrap_or(VERSION);
        if version != VERSION {
            let why = format!("it is a manifest of version {version}, and this is a reader of version {VERSION}");
            return Err(changed(why));
        }
        if !is_whole {
            return Err(changed("the manifest is not the one that was written: its checksum differs"));
        }
        let manifest: Manifest = serde_json::from_str(text).map_err(|e| changed(e.to_string()))?;
        if manifest.variants.is_empty() {
            return Err(changed("the manifest has no variants"));
        }
        let elsewhere = manifest.variants.iter().flat_map(VariantEntry::files).find(|f| plain_name(&f.name).is_none());
        if let Some(file) = elsewhere {
            return Err(changed(format!("`{}` is no name of a file beside the manifest", file.name)));
        }
        Ok(manifest)
    }
}

/// The last line of a manifest: the checksum of the lines before it.
fn ending(body: &str) -> String {
    format!("{CHECKSUM}{}\"\n}}\n", checksum(body.as_bytes()))
}

/// The field that manifests of all versions have.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl VariantEntry {
    fn of(variant: &Variant, file: &str) -> VariantEntry {
        let kernels = &variant.kernels;
        VariantEntry {
            name: kernels.name.clone(),
            label: variant.label.clone(),
            target: kernels.target.clone(),
            ptx_version: kernels.ptx_version,
            compiler: variant.compiler.clone(),
            llvm: variant.llvm.clone(),
            ptx: File::of(file, "ptx", kernels.ptx().as_bytes()),
            cubin: kernels.cubin.as_ref().map(|cubin| CubinEntry {
                chip: cubin.chip.clone(),
                assembler: cubin.assembler.clone(),
                file: File::of(file, "cubin", &cubin.bytes),
            }),
            arguments: kernels.args.clone(),
            workspace: kernels.workspace.clone(),
            kernels: kernels.kernels.clone(),
            sizes: kernels.sizes.clone(),
            cost: variant.cost.clone(),
            schedule: variant.schedule.clone(),
        }
    }

    /// Its files: the PTX, then the cubin.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        std::iter::once(&self.ptx).chain(self.cubin.as_ref().map(|cubin| &cubin.file))
    }

    /// The variant, from the contents of its files.
    pub(super) fn variant<'a>(&self, mut contents: impl Iterator<Item = &'a [u8]>) -> Result<Variant> {
        let ptx = contents.next().unwrap_or_default().to_vec();
        let text = String::from_utf8(ptx).map_err(|_| changed(format!("{} is not text", self.ptx.name)))?;
        let entries = self.kernels.clone();
        let mut kernels = Kernels::new(&self.name, &self.target, self.ptx_version, text, entries);
        kernels.args.clone_from(&self.arguments);
        kernels.workspace.clone_from(&self.workspace);
        kernels.sizes.clone_from(&self.sizes);
        let bytes = contents.next();
        kernels.cubin = self
            .cubin
            .as_ref()
            .zip(bytes)
            .map(|(cubin, bytes)| Cubin::new(&cubin.chip, &cubin.assembler, bytes.to_vec()));
        Ok(Variant {
            label: self.label.clone(),
            kernels,
            schedule: self.schedule.clone(),
            compiler: self.compiler.clone(),
            llvm: self.llvm.clone(),
            cost: self.cost.clone(),
        })
    }
}

/// SHA-256 in hexadecimal.
pub(crate) fn checksum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}
