//! Atomic replacement of files.

use crate::error::{Code, Error, Result};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a text file into a folder, and creates the folder if necessary. Readers see the old file or the complete new file.
///
/// # Errors
/// `artifact.write` where the file cannot be written.
pub fn write_text(folder: &Path, name: &str, text: &str) -> Result<()> {
    write(folder, name, text.as_bytes())
}

/// Writes a text file, and creates its folder if necessary. Readers see the old file or the complete new file.
///
/// # Errors
/// `artifact.write` where the file cannot be written.
pub fn write_file(file: &Path, text: &str) -> Result<()> {
    let (folder, name) = split(file)?;
    write_text(folder, name, text)
}

/// Checks that [`write_file`] can write a file, before the work whose result the file is to hold. The check leaves no file and no folder
/// behind.
///
/// # Errors
/// `artifact.write` where the path names no file, or where the nearest folder that exists is none or refuses new files.
pub fn check_file(file: &Path) -> Result<()> {
    let (folder, name) = split(file)?;
    if file.is_dir() {
        let message = format!("{} is a folder, and a file is to be written", file.display());
        return Err(Error::input(Code::ArtifactWrite, message).help(format!("{}", file.join("NAME").display())));
    }
    let nearest = folder.ancestors().map(|f| if f.as_os_str().is_empty() { Path::new(".") } else { f });
    let nearest = nearest.into_iter().find(|f| f.exists()).unwrap_or(Path::new("."));
    if !nearest.is_dir() {
        let message = format!("{} is a file, not a folder: {} cannot be in it", nearest.display(), file.display());
        return Err(Error::input(Code::ArtifactWrite, message).help("a name in another folder"));
    }
    let probe = nearest.join(partial(name));
    let made = std::fs::OpenOptions::new().write(true).create_new(true).open(&probe);
    let made = made.and_then(|_| std::fs::remove_file(&probe));
    made.map_err(|e| {
        cannot_write(file, &e).help(format!("a folder that takes new files; {} takes none", nearest.display()))
    })
}

/// Writes a file into a folder, and creates the folder if necessary. Readers see the old file or the complete new file.
pub(super) fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    make(folder)?;
    let path = folder.join(name);
    replace(&path, bytes).map_err(|e| cannot_write(&path, &e))
}

/// Creates a folder if necessary.
pub(super) fn make(folder: &Path) -> Result<()> {
    if folder.is_file() {
        let message = format!("{} is a file, not a folder", folder.display());
        return Err(Error::input(Code::ArtifactWrite, message).help("name a folder, or a file that ends in .warploom"));
    }
    std::fs::create_dir_all(folder).map_err(|e| cannot_write(folder, &e))
}

/// A lock on the folder, which other processes that ask for one wait for. It ends with the value, or with the process. None where the
/// system or the file system locks no folders.
pub(super) fn lock(folder: &Path) -> Option<std::fs::File> {
    let open = std::fs::File::open(folder).ok()?;
    open.lock().is_ok().then_some(open)
}

/// Syncs the folder's entries to disk.
pub(super) fn sync(folder: &Path) -> Result<()> {
    // Not every system opens folders; where it does, the entries are synced.
    match std::fs::File::open(folder) {
        Ok(open) if cfg!(unix) => open.sync_all().map_err(|e| cannot_write(folder, &e)),
        _ => Ok(()),
    }
}

/// All bytes of a file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| Error::input(Code::ArtifactRead, format!("cannot read {}: {e}", path.display())))
}

/// Splits a path into folder and file name.
pub(super) fn split(file: &Path) -> Result<(&Path, &str)> {
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| {
        Error::input(Code::ArtifactWrite, format!("`{}` is no name of a file", file.display()))
            .help("name the file, such as kernels.warploom")
    })?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    Ok((folder.unwrap_or(Path::new(".")), name))
}

/// The name as a path, if it has a single component.
pub(super) fn plain_name(name: &str) -> Option<PathBuf> {
    let path = Path::new(name);
    (path.file_name()? == path.as_os_str()).then(|| path.to_path_buf())
}

fn cannot_write(path: &Path, e: &std::io::Error) -> Error {
    Error::machine(Code::ArtifactWrite, format!("cannot write {}: {e}", path.display()))
}

/// Separates the file's name from process id and counter in the name of an unfinished file.
const PARTIAL: &str = ".partial-";

/// Whether the name belongs to an unfinished file.
pub(super) fn is_partial(name: &str) -> bool {
    finished(name).is_some()
}

/// The name that an unfinished file gets when it is finished; none of other files.
pub(super) fn finished(name: &str) -> Option<&str> {
    name.rsplit_once(PARTIAL).map(|(finished, _)| finished)
}

/// A name for an unfinished file that no other call uses.
fn partial(name: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{name}{PARTIAL}{}-{number}", std::process::id())
}

/// Writes a file under a temporary name that no other call uses, syncs it and renames it.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let partial = path.with_file_name(partial(&path.file_name().unwrap_or_default().to_string_lossy()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_finds_what_cannot_be_written_and_leaves_nothing_behind() {
        let folder = std::env::temp_dir().join(format!("warploom-check-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let file = folder.join("a.loom");
        std::fs::write(&file, "kept").unwrap();
        check_file(&file).unwrap();
        check_file(&folder.join("new/deep/b.loom")).unwrap();
        for wrong in [folder.clone(), file.join("b.loom"), folder.join("..")] {
            let error = check_file(&wrong).unwrap_err();
            assert_eq!((error.code(), error.fault()), (Code::ArtifactWrite, crate::error::Fault::Input), "{error}");
        }
        let left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!((left, std::fs::read_to_string(&file).unwrap()), (vec!["a.loom".into()], "kept".to_string()));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
