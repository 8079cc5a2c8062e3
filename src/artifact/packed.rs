//! An artefact in one file: a line with the length of the manifest, the manifest, and the files in the order of the manifest.
//!
//! `head -n 40 kernels.warploom` shows the manifest. Checksums cover the manifest and the files. The first line has one valid spelling, so a
//! changed first line is an error, too.

use super::changed;
use super::manifest::VERSION;
use crate::error::{Code, Error, Result};

/// The start of the first line; version and length of the manifest follow.
const HEAD: &str = "warploom artifact";

/// The bytes of an artefact.
pub(super) fn pack(manifest: &str, contents: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("{HEAD} {VERSION} {}\n{manifest}", manifest.len()).into_bytes();
    contents.iter().for_each(|bytes| out.extend_from_slice(bytes));
    out
}

/// The manifest, and the bytes after it.
pub(super) fn unpack(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let end = bytes.iter().take(64).position(|b| *b == b'\n');
    let line = end.and_then(|end| std::str::from_utf8(&bytes[..end]).ok());
    let words = line.and_then(|line| line.strip_prefix(HEAD)?.strip_prefix(' ')?.split_once(' '));
    let (Some(end), Some((version, length))) = (end, words) else {
        let message = format!("it is no artefact, or a damaged one: it does not begin with `{HEAD}`");
        return Err(Error::input(Code::ArtifactRead, message).help("warploom build FILE -o NAME.warploom"));
    };
    if version.parse() != Ok(VERSION) {
        let why = format!("it is an artefact of version {version}, and this is a reader of version {VERSION}");
        return Err(changed(why));
    }
    // A number has one spelling: `+5` and `05` are errors.
    let length = length.parse().ok().filter(|n: &u64| n.to_string() == length);
    let length = length.ok_or_else(|| changed("its first line does not say how long the manifest is"))?;
    take(&bytes[end + 1..], length)
}

/// The first `count` bytes, and the rest.
pub(super) fn take(bytes: &[u8], count: u64) -> Result<(&[u8], &[u8])> {
    let split = usize::try_from(count).ok().and_then(|count| bytes.split_at_checked(count));
    split.ok_or_else(|| changed(format!("it ends too early: {count} bytes are missing, and {} are left", bytes.len())))
}
