//! An artefact as a folder: a rebuild that is killed leaves the old artefact or the new one, whole.
//!
//! The name of a code file has a digest of its contents, so the code of two artefacts is never in one file. A rebuild writes the new code
//! beside the old code, then renames the new manifest over the old one, then removes the old code. A lock on the folder keeps two rebuilds
//! apart. Readers take no lock: a reader whose manifest is replaced starts again.

use super::manifest::{DIGEST_DIGITS, MANIFEST, Manifest, checksum};
use super::{Artifact, VariantEntry, changed, contents, files};
use crate::error::{Code, Error, Result};
use std::collections::BTreeSet;
use std::path::Path;

/// A reader starts again at most this many times: so often is the artefact replaced while it is read.
const RETRIES: usize = 16;

/// One change of the folder.
enum Change<'a> {
    /// Writes a file under a temporary name, syncs and renames it.
    Write(&'a str, &'a [u8]),
    /// Syncs the entries of the folder.
    Sync,
    /// Removes a file that the manifest does not name.
    Remove(String),
}

impl Change<'_> {
    fn apply(&self, folder: &Path) -> Result<()> {
        match self {
            Change::Write(name, bytes) => files::write(folder, name, bytes),
            Change::Sync => files::sync(folder),
            Change::Remove(name) => {
                // A file that stays costs space, not the result.
                let _ = std::fs::remove_file(folder.join(name));
                Ok(())
            }
        }
    }
}

/// Writes the artefact, and `texts` that belong to it, such as launchers, by name. Returns the manifest.
pub(super) fn write(artifact: &Artifact, folder: &Path, texts: &[(String, String)]) -> Result<Manifest> {
    let manifest = artifact.index();
    let text = manifest.text()?;
    files::make(folder)?;
    let _lock = files::lock(folder);
    for change in changes(artifact, &manifest, (folder, texts), &text) {
        change.apply(folder)?;
    }
    Ok(manifest)
}

/// The changes of a rebuild, in order. After each of them the folder has an artefact: the old one up to the manifest, then the new one.
fn changes<'a>(
    artifact: &'a Artifact,
    manifest: &'a Manifest,
    (folder, texts): (&Path, &'a [(String, String)]),
    text: &'a str,
) -> Vec<Change<'a>> {
    let entries = manifest.variants.iter().zip(&artifact.variants);
    let code = entries.flat_map(|(entry, variant)| entry.files().zip(contents(variant)));
    let code = code.map(|(file, bytes)| Change::Write(&file.name, bytes));
    let texts_written = texts.iter().map(|(name, text)| Change::Write(name, text.as_bytes()));
    let index = [Change::Sync, Change::Write(MANIFEST, text.as_bytes()), Change::Sync];
    let left = left_over(folder, manifest, texts).into_iter().map(Change::Remove);
    code.chain(texts_written).chain(index).chain(left).collect()
}

/// Files that the new artefact does not have: those of the previous manifest, and those of rebuilds that were killed.
fn left_over(folder: &Path, manifest: &Manifest, texts: &[(String, String)]) -> BTreeSet<String> {
    let names = |of: &Manifest| of.variants.iter().flat_map(|v| v.files()).map(|f| f.name.clone()).collect();
    let (now, mut left): (BTreeSet<String>, BTreeSet<String>) = (names(manifest), BTreeSet::new());
    let before = std::fs::read(folder.join(MANIFEST)).ok().and_then(|text| Manifest::parse(&text).ok());
    left.extend(before.iter().flat_map(names));
    let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let found = found.filter_map(|entry| entry.file_name().into_string().ok());
    left.extend(found.filter(|name| match files::finished(name) {
        // The lock is held: no other rebuild writes these files.
        Some(of) => of == MANIFEST || is_code(of) || texts.iter().any(|(text, _)| text == of),
        None => is_own_code(folder, name),
    }));
    &left - &now
}

fn is_code(name: &str) -> bool {
    [".ptx", ".cubin"].iter().any(|extension| name.ends_with(extension))
}

/// Whether the name has the digest of the file's contents: then an artefact wrote the file.
fn is_own_code(folder: &Path, name: &str) -> bool {
    let digest = name.rsplit('.').nth(1).filter(|digest| is_code(name) && digest.len() == DIGEST_DIGITS);
    let has = |digest: &str| std::fs::read(folder.join(name)).is_ok_and(|bytes| checksum(&bytes).starts_with(digest));
    digest.is_some_and(has)
}

/// Reads the artefact. If a rebuild replaces the manifest in the meantime, reads the new artefact.
pub(super) fn read(folder: &Path) -> Result<Artifact> {
    let at = folder.join(MANIFEST);
    if !at.is_file() {
        let message = format!("{} is no artefact: it has no {MANIFEST}", folder.display());
        return Err(Error::input(Code::ArtifactRead, message).help("warploom build FILE -o FOLDER"));
    }
    let mut text = files::read(&at)?;
    let mut found = of_manifest(folder, &text);
    for _ in 0..RETRIES {
        let now = if found.is_err() { files::read(&at)? } else { break };
        if now == text {
            break;
        }
        found = of_manifest(folder, &now);
        text = now;
    }
    found
}

/// The artefact of a manifest's text.
fn of_manifest(folder: &Path, text: &[u8]) -> Result<Artifact> {
    let within = |e: Error| e.within(format!("reading {}", folder.display()));
    let manifest =
        Manifest::parse(text).map_err(|e| e.within(format!("reading {}", folder.join(MANIFEST).display())))?;
    let read = |entry: VariantEntry| {
        let contents = entry.files().map(|file| {
            let at = folder.join(&file.name);
            if !at.exists() {
                return Err(changed(format!("cannot read {}: the manifest names it, and it is missing", at.display())));
            }
            let bytes = files::read(&at)?;
            file.check(&bytes)?;
            Ok(bytes)
        });
        let contents = contents.collect::<Result<Vec<_>>>()?;
        entry.variant(contents.iter().map(Vec::as_slice))
    };
    manifest.variants.into_iter().map(read).collect::<Result<_>>().map(Artifact::new).map_err(within)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::Variant;
    use crate::kernel::{Cubin, Kernels};

    fn artifact(texts: &[&str]) -> Artifact {
        let variant = |text: &&str| {
            let mut kernels = Kernels::new("p", "sm_80", 70, *text, vec![]);
            kernels.cubin = Some(Cubin::new("sm_80", "ptxas 0.0", text.as_bytes().to_vec()));
            Variant::new(kernels, "", "19")
        };
        Artifact::new(texts.iter().map(variant).collect())
    }

    fn listed(folder: &Path) -> Vec<String> {
        let names = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// A new folder with the files of an artefact under these names.
    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("warploom-folder-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    /// Whatever comes first: the end of the process, or the last change.
    #[test]
    fn a_rebuild_that_ends_after_any_change_leaves_the_old_or_the_new_artefact() {
        let folder = folder("changes");
        let (old, new) = (artifact(&["a", "b"]), artifact(&["b", "c", "d"]));
        let texts = [("p.rs".to_string(), "include_str!".to_string())];
        let (manifest, text) = (new.index(), new.manifest().unwrap());
        let all = changes(&new, &manifest, (&folder, &texts), &text).len();
        let mut states = Vec::new();
        for ended in 0..=all + 4 {
            let _ = std::fs::remove_dir_all(&folder);
            old.write(&folder).unwrap();
            let changes = changes(&new, &manifest, (&folder, &texts), &text);
            changes.iter().take(ended).for_each(|change| change.apply(&folder).unwrap());
            let found = Artifact::read(&folder).unwrap_or_else(|e| panic!("after {ended} changes: {e}"));
            assert!(found == old || found == new, "after {ended} changes");
            states.push(found == new);
            // The next rebuild removes what this one left.
            write(&old, &folder, &[]).unwrap();
            let code = listed(&folder).into_iter().filter(|name| is_code(name)).count();
            assert_eq!((code, Artifact::read(&folder).unwrap()), (4, old.clone()), "after {ended} changes");
        }
        assert!(states.is_sorted() && !states[0] && states[all], "{states:?}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn unfinished_files_go_and_files_of_others_stay() {
        let folder = folder("others");
        artifact(&["a"]).write(&folder).unwrap();
        let gone = ["manifest.json.partial-1-0", "p.0123.ptx.partial-1-3"];
        let stay = ["mine.ptx", "p.0123456789ab.ptx", "notes.partial-1-0"];
        gone.iter().chain(&stay).for_each(|name| std::fs::write(folder.join(name), "x").unwrap());
        let manifest = artifact(&["b"]).write(&folder).unwrap();
        let own = manifest.variants[0].files().map(|f| f.name.clone()).chain([MANIFEST.to_string()]);
        let mut all: Vec<String> = own.chain(stay.map(String::from)).collect();
        all.sort();
        assert_eq!(listed(&folder), all);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Earlier versions named the code by its variant alone.
    #[test]
    fn folders_of_earlier_versions_are_read_and_replaced() {
        let folder = folder("earlier");
        let old = artifact(&["a"]);
        let mut manifest = old.index();
        manifest.variants[0].ptx.name = "p.ptx".into();
        manifest.variants[0].cubin.as_mut().unwrap().file.name = "p.cubin".into();
        std::fs::create_dir(&folder).unwrap();
        for (name, text) in [("p.ptx", "a"), ("p.cubin", "a"), (MANIFEST, &manifest.text().unwrap())] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        assert_eq!(Artifact::read(&folder).unwrap(), old);
        let manifest = artifact(&["b"]).write(&folder).unwrap();
        assert_eq!(listed(&folder).len(), manifest.variants[0].files().count() + 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_reader_finds_an_artefact_while_the_folder_is_rebuilt() {
        let folder = folder("rebuilt");
        let all = [artifact(&["a"]), artifact(&["b", "c"])];
        all[0].write(&folder).unwrap();
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..2)
                .map(|first| {
                    let (all, folder) = (&all, &folder);
                    scope.spawn(move || (0..40).for_each(|n| drop(all[(first + n) % 2].write(folder).unwrap())))
                })
                .collect();
            while writers.iter().any(|writer| !writer.is_finished()) {
                let found = Artifact::read(&folder).unwrap();
                assert!(all.contains(&found));
            }
        });
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
