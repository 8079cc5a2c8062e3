//! Folders for the unfinished files of one process, in the folder of a cache.
//!
//! A process holds the lock of its folder until it ends. The next process that asks for a folder removes every folder with a free lock:
//! killed processes left them.

use super::cache::{Cache, cannot, make_private};
use crate::error::Result;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The folder of all workspaces in the folder of a cache.
const FOLDER: &str = "work";
/// The file whose lock says that its folder is in use.
const LOCK: &str = "lock";

/// A folder of this process. It is removed when the value is dropped.
#[derive(Debug)]
pub struct Workspace {
    folder: PathBuf,
    _lock: File,
}

impl Workspace {
    /// The folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Cache {
    /// A new folder of this process. The folders of processes that have ended are removed.
    ///
    /// # Errors
    /// `cache.open` if the folder cannot be created.
    pub fn workspace(&self) -> Result<Workspace> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let all = self.folder().join(FOLDER);
        make_private(&all)?;
        let failed = |e: std::io::Error| cannot(&all, &e);
        // Of two processes one creates and locks its folder before the other looks for abandoned ones.
        let turn = File::create(all.join(LOCK)).map_err(failed)?;
        // A file system without locks has none to wait for.
        let _ = turn.lock();
        for found in std::fs::read_dir(&all).map_err(failed)?.flatten() {
            if found.path().is_dir() && is_abandoned(&found.path()) {
                let _ = std::fs::remove_dir_all(found.path());
            }
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = all.join(format!("{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).map_err(failed)?;
        let lock = File::create(folder.join(LOCK)).map_err(failed)?;
        let _ = lock.try_lock();
        Ok(Workspace { folder, _lock: lock })
    }
}

/// Whether no process holds the lock of a folder.
fn is_abandoned(folder: &Path) -> bool {
    match File::open(folder.join(LOCK)) {
        Ok(lock) => lock.try_lock().is_ok(),
        Err(e) => e.kind() == std::io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_processes_that_have_ended_are_removed() {
        let folder = std::env::temp_dir().join(format!("warploom-workspaces-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let cache = Cache::at(&folder).unwrap();
        let own = cache.workspace().unwrap();
        std::fs::write(own.path().join("kernel.ptx"), "own").unwrap();
        // A killed process leaves files with a free lock, or files without a lock.
        let left = ["1-0", "2-0"].map(|name| folder.join(FOLDER).join(name));
        left.iter().for_each(|f| std::fs::create_dir(f).unwrap());
        std::fs::write(left[0].join(LOCK), "").unwrap();
        std::fs::write(left[0].join("kernel.ptx"), "left").unwrap();
        let other = cache.workspace().unwrap();
        assert!(left.iter().all(|f| !f.exists()));
        assert!(own.path() != other.path() && own.path().join("kernel.ptx").exists());
        // Entries of the cache and workspaces do not meet.
        assert!(cache.entries().unwrap().is_empty() && cache.clear().unwrap().files == 0);
        let path = own.path().to_path_buf();
        drop(own);
        assert!(!path.exists() && other.path().exists());
        drop(other);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
