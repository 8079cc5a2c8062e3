//! A cache of compiled programs on disk.
//!
//! An entry is an artefact in one file. Its key is a digest of everything that determines the code, so an entry never becomes stale.
//! Entries are written under a temporary name, synced and renamed: a killed process leaves the old state, and several processes may share a
//! cache. A lookup removes a damaged entry, tells of it, and reports a miss. Above the size limit the cache evicts the least recently used entries.

use super::files;
use super::manifest::checksum;
use super::{Artifact, EXTENSION};
use crate::error::{Code, Error, Result};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The default size limit of a cache in bytes.
pub const LIMIT: u64 = 1 << 30;

/// An unfinished file of this age belongs to a killed process.
const ABANDONED: Duration = Duration::from_secs(600);

/// A folder of compiled programs.
#[derive(Debug, Clone)]
pub struct Cache {
    folder: PathBuf,
    limit: u64,
    on_damage: fn(&Path, &Error),
}

/// Caches are equal if they have one folder and one limit.
impl PartialEq for Cache {
    fn eq(&self, other: &Cache) -> bool {
        (&self.folder, self.limit) == (&other.folder, other.limit)
    }
}

impl Eq for Cache {}

/// An entry of a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The file.
    pub path: PathBuf,
    /// The size of its file.
    pub bytes: u64,
    /// When it was last read or written.
    pub used: SystemTime,
}

/// Number and size of removed files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Removed {
    /// Files.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// The key of an entry: a digest of length-prefixed parts.
pub fn key(parts: &[&str]) -> String {
    let whole: Vec<u8> =
        parts.iter().flat_map(|part| [part.len().to_string().as_bytes(), b":", part.as_bytes()].concat()).collect();
    checksum(&whole)
}

impl Cache {
    /// The cache in a folder. The folder is created if necessary, with access for its owner alone.
    ///
    /// # Errors
    /// `cache.open` if the folder cannot be created, or if other users have write access: they could inject code.
    pub fn at(folder: impl Into<PathBuf>) -> Result<Cache> {
        let folder = folder.into();
        make_private(&folder)?;
        Ok(Cache { folder, limit: LIMIT, on_damage: |_, _| () })
    }

    /// The cache with another size limit in bytes.
    #[must_use]
    pub fn with_limit(mut self, bytes: u64) -> Cache {
        self.limit = bytes;
        self
    }

    /// The cache with a function that is told of each damaged entry that [`Cache::get`] removes: its file, and what is wrong with it.
    #[must_use]
    pub fn on_damage(mut self, told: fn(&Path, &Error)) -> Cache {
        self.on_damage = told;
        self
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The entry of a key. A damaged entry is removed and is a miss; the function of [`Cache::on_damage`] is told. A hit reads one file: it
    /// lists no folder.
    pub fn get(&self, key: &str) -> Option<Artifact> {
        let path = self.path(key)?;
        let mut file = File::open(&path).ok()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        match Artifact::from_bytes(&bytes) {
            Ok(artifact) => {
                // The modification time is the time of last use, for eviction.
                let _ = file.set_modified(SystemTime::now());
                Some(artifact)
            }
            Err(error) => {
                // Of several threads and processes that find the damage, the one that removes the entry tells.
                if std::fs::remove_file(&path).is_ok() {
                    (self.on_damage)(&path, &error);
                }
                None
            }
        }
    }

    /// Stores an artefact under a key, and evicts the least recently used entries above the size limit.
    ///
    /// # Errors
    /// `artifact.write` where the file cannot be written.
    pub fn put(&self, key: &str, artifact: &Artifact) -> Result<()> {
        let path =
            self.path(key).ok_or_else(|| Error::bug(Code::CacheKey, format!("`{key}` is no key of an entry")))?;
        artifact.write_packed(&path)?;
        self.shrink(self.limit)?;
        Ok(())
    }

    /// All entries, most recently used first.
    ///
    /// # Errors
    /// `cache.open` where the folder cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let mut out: Vec<Entry> =
            self.files()?.into_iter().filter(|entry| self.path(&entry.key).as_ref() == Some(&entry.path)).collect();
        out.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.key.cmp(&b.key)));
        Ok(out)
    }

    /// Reads every entry and removes damaged entries. Returns the number of intact entries, and each damaged entry with its error.
    ///
    /// # Errors
    /// As [`Cache::entries`].
    pub fn verify(&self) -> Result<(usize, Vec<(Entry, Error)>)> {
        let (mut right, mut damaged) = (0, Vec::new());
        for entry in self.entries()? {
            match Artifact::read(&entry.path) {
                Ok(_) => right += 1,
                // Another process has removed it in the meantime.
                Err(_) if !entry.path.exists() => {}
                Err(error) => {
                    let _ = std::fs::remove_file(&entry.path);
                    damaged.push((entry, error));
                }
            }
        }
        Ok((right, damaged))
    }

    /// Evicts the least recently used entries until the rest fits the limit in bytes, and removes unfinished files of killed processes.
    ///
    /// # Errors
    /// As [`Cache::entries`].
    pub fn shrink(&self, limit: u64) -> Result<Removed> {
        let entries = self.entries()?;
        let mut removed = Removed::default();
        let mut total: u64 = entries.iter().map(|e| e.bytes).sum();
        for entry in entries.iter().rev().take_while(|entry| {
            let over = total > limit;
            total -= entry.bytes;
            over
        }) {
            removed.count(entry);
        }
        let now = SystemTime::now();
        let abandoned = |e: &Entry| now.duration_since(e.used).is_ok_and(|age| age > ABANDONED) && is_partial(&e.path);
        self.files()?.iter().filter(|e| abandoned(e)).for_each(|entry| removed.count(entry));
        Ok(removed)
    }

    /// Removes all entries.
    ///
    /// # Errors
    /// As [`Cache::entries`].
    pub fn clear(&self) -> Result<Removed> {
        let mut removed = Removed::default();
        self.files()?.iter().for_each(|entry| removed.count(entry));
        Ok(removed)
    }

    /// The file of a key.
    fn path(&self, key: &str) -> Option<PathBuf> {
        let is_key = key.len() == 64 && key.bytes().all(|b| b.is_ascii_hexdigit());
        is_key.then(|| self.folder.join(format!("{key}.{EXTENSION}")))
    }

    /// The files of entries, and unfinished files. Other files in the folder are ignored.
    fn files(&self) -> Result<Vec<Entry>> {
        let read = std::fs::read_dir(&self.folder).map_err(|e| cannot(&self.folder, &e))?;
        let entry = |found: std::io::Result<std::fs::DirEntry>| {
            let path = found.ok()?.path();
            let name = path.file_name()?.to_str()?;
            let key = name.split('.').next()?.to_string();
            let ours = name.strip_prefix(&key)?.strip_prefix('.')?.starts_with(EXTENSION) && key.len() == 64;
            // Another process may have removed it in the meantime.
            let data = ours.then(|| std::fs::metadata(&path).ok())??;
            Some(Entry { key, bytes: data.len(), used: data.modified().unwrap_or(SystemTime::UNIX_EPOCH), path })
        };
        Ok(read.filter_map(entry).collect())
    }
}

impl Removed {
    /// Removes the file of an entry and counts it.
    fn count(&mut self, entry: &Entry) {
        if std::fs::remove_file(&entry.path).is_ok() {
            self.files += 1;
            self.bytes += entry.bytes;
        }
    }
}

/// Whether the path is an unfinished file.
fn is_partial(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(files::is_partial)
}

pub(super) fn cannot(folder: &Path, e: &std::io::Error) -> Error {
    Error::machine(Code::CacheOpen, format!("the cache {} cannot be used: {e}", folder.display()))
        .help("name another folder; for the command line, WARPLOOM_CACHE=FOLDER, or WARPLOOM_CACHE=off for none")
}

/// Creates a folder with access for its owner alone.
pub(super) fn make_private(folder: &Path) -> Result<()> {
    if folder.is_file() {
        let message = format!("the cache {} is a file, not a folder", folder.display());
        return Err(Error::machine(Code::CacheOpen, message).help("WARPLOOM_CACHE=FOLDER names another one"));
    }
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|e| cannot(folder, &e))?;
    #[cfg(unix)]
    {
        let data = std::fs::metadata(folder).map_err(|e| cannot(folder, &e))?;
        let mode = std::os::unix::fs::MetadataExt::mode(&data) & 0o777;
        if mode & 0o022 != 0 {
            let message = format!("others may write into the cache {} (mode {mode:o})", folder.display());
            return Err(Error::machine(Code::CacheOpen, message).help(format!("chmod 700 {}", folder.display())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::Variant;
    use crate::kernel::Kernels;

    fn artifact(text: &str) -> Artifact {
        Artifact::new(vec![Variant::new(Kernels::new("p", "sm_80", 70, text, vec![]), "", "19")])
    }

    fn cache(name: &str) -> Cache {
        let folder = std::env::temp_dir().join(format!("warploom-cache-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Cache::at(folder).unwrap()
    }

    fn keys(cache: &Cache) -> Vec<String> {
        cache.entries().unwrap().into_iter().map(|e| e.key).collect()
    }

    #[test]
    fn parts_of_a_key_are_told_apart() {
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_ne!(key(&["1:a"]), key(&["", "a"]));
        assert_eq!(key(&["a"]).len(), 64);
    }

    #[test]
    fn what_was_used_longest_ago_is_removed() {
        let cache = cache("order");
        let names: Vec<String> = (0..4).map(|n| key(&[&n.to_string()])).collect();
        let size = artifact(&"x".repeat(1000)).to_bytes().unwrap().len() as u64;
        let old = SystemTime::now() - Duration::from_secs(1000);
        for (n, name) in names.iter().enumerate().take(3) {
            cache.put(name, &artifact(&"x".repeat(1000))).unwrap();
            let file = File::open(cache.path(name).unwrap()).unwrap();
            file.set_modified(old + Duration::from_secs(n as u64)).unwrap();
        }
        assert!(cache.get(&names[0]).is_some(), "reading is use");
        let cache = cache.with_limit(3 * size + 10);
        cache.put(&names[3], &artifact(&"x".repeat(1000))).unwrap();
        let left = keys(&cache);
        assert!(left.len() == 3 && !left.contains(&names[1]), "{left:?}");
        assert_eq!(cache.shrink(size).unwrap().files, 2);
        assert_eq!(cache.clear().unwrap().files, 1);
        std::fs::remove_dir_all(cache.folder()).unwrap();
    }

    #[test]
    fn damaged_entries_are_missing_and_named() {
        let (cache, name) = (cache("damage"), key(&["a"]));
        cache.put(&name, &artifact("text")).unwrap();
        let path = cache.path(&name).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &damaged).unwrap();
            assert!(cache.get(&name).is_none() && !path.exists(), "bit {bit}");
        }
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        let (right, damaged) = cache.verify().unwrap();
        assert!(right == 0 && damaged.len() == 1 && damaged[0].1.code() == Code::ArtifactRead);
        assert!(keys(&cache).is_empty());
        std::fs::remove_dir_all(cache.folder()).unwrap();
    }

    #[test]
    fn unfinished_files_are_removed_and_others_are_not() {
        let (cache, name) = (cache("partial"), key(&["a"]));
        let partial = cache.folder().join(format!("{name}.warploom.partial-1-0"));
        let other = cache.folder().join("README");
        [&partial, &other].into_iter().for_each(|path| std::fs::write(path, "x").unwrap());
        assert_eq!(cache.shrink(0).unwrap().files, 0, "another process may still write it");
        File::open(&partial).unwrap().set_modified(SystemTime::now() - 2 * ABANDONED).unwrap();
        assert_eq!(cache.shrink(0).unwrap().files, 1);
        assert!(cache.clear().unwrap().files == 0 && other.exists());
        std::fs::remove_dir_all(cache.folder()).unwrap();
    }

    /// A listing of the folder sets its access time, where the file system keeps one; a hit does not.
    #[test]
    fn a_hit_lists_no_folder() {
        let (cache, name) = (cache("hit"), key(&["a"]));
        cache.put(&name, &artifact("text")).unwrap();
        let folder = File::open(cache.folder()).unwrap();
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30);
        folder.set_times(std::fs::FileTimes::new().set_accessed(old)).unwrap();
        let accessed = || folder.metadata().unwrap().accessed().unwrap();
        assert_eq!(accessed(), old);
        assert!(cache.get(&name).is_some());
        assert_eq!(accessed(), old);
        assert_eq!(cache.entries().unwrap().len(), 1);
        if accessed() == old {
            println!("SKIPPED: this file system keeps no access times of folders, so a listing is not seen");
        }
        std::fs::remove_dir_all(cache.folder()).unwrap();
    }

    /// The one that removes a damaged entry tells of it.
    #[test]
    fn damage_is_told_once() {
        static TOLD: std::sync::Mutex<Vec<PathBuf>> = std::sync::Mutex::new(Vec::new());
        let (cache, name) = (cache("told"), key(&["a"]));
        let cache = cache.on_damage(|path, error| {
            assert_eq!(error.code(), Code::ArtifactRead);
            TOLD.lock().unwrap().push(path.to_path_buf());
        });
        cache.put(&name, &artifact("text")).unwrap();
        let path = cache.path(&name).unwrap();
        std::fs::write(&path, "damage").unwrap();
        assert!(cache.get(&name).is_none() && cache.get(&name).is_none());
        assert_eq!(*TOLD.lock().unwrap(), [path]);
        std::fs::remove_dir_all(cache.folder()).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_cache_that_others_may_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let cache = cache("open");
        assert_eq!(std::fs::metadata(cache.folder()).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::set_permissions(cache.folder(), std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(Cache::at(cache.folder()).unwrap_err().code(), Code::CacheOpen);
        std::fs::remove_dir_all(cache.folder()).unwrap();
    }
}
