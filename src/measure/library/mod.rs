//! Vendor libraries, looked up at run time: where they may be, and loading them.
//!
//! This folder holds all of `measure`'s unsafe code: the libraries' prototypes are written out here.

pub mod cublas;
pub mod cublaslt;
pub mod nvml;
mod product;

pub(super) use product::unsupported;

use crate::error::{Code, Error, Result};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Folders where CUDA's libraries lie besides the loader's own path: toolkits, then Python's packages.
pub(super) fn folders() -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/usr/local/cuda/lib64"), PathBuf::from("/opt/cuda/lib64")];
    found.extend(children(Path::new("/usr/local"), "cuda-").into_iter().map(|dir| dir.join("lib64")));
    for root in python_roots() {
        for python in children(&root.join("lib"), "python3") {
            for packages in ["site-packages", "dist-packages"] {
                let vendor = python.join(packages).join("nvidia");
                found.extend(children(&vendor, "").into_iter().map(|package| package.join("lib")));
            }
        }
    }
    found.retain(|dir| dir.is_dir());
    found
}

/// The environments of Python that a shell would find: the active one, and those of every `python3` on the path.
fn python_roots() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut roots: Vec<PathBuf> = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from).into_iter().collect();
    for dir in std::env::split_paths(&path).filter(|dir| dir.join("python3").exists()) {
        roots.extend(dir.parent().map(Path::to_path_buf));
        // A link into an environment elsewhere; one step only, as an environment's own links lead out of it again.
        let link = std::fs::read_link(dir.join("python3")).ok();
        roots.extend(link.as_deref().and_then(Path::parent).and_then(Path::parent).map(Path::to_path_buf));
    }
    roots.push(PathBuf::from("/usr/local"));
    roots
}

/// The entries of a folder whose names start so, newest version last in name order.
fn children(dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let starts = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(starts).collect();
    found.sort();
    found
}

/// Loads a library for good, its symbols open to libraries loaded later.
pub(super) fn open(file: &Path) -> Result<Library> {
    let name: OsString = file.into();
    // SAFETY: these libraries' initialisers ask nothing of their caller.
    unsafe { Library::open(Some(&name), RTLD_NOW | RTLD_GLOBAL) }
        .map_err(|e| Error::machine(Code::HostLibrary, format!("{} cannot be loaded ({})", file.display(), words(&e))))
}

/// A function of a library, as the function pointer type `F`.
///
/// # Safety
/// `F` must be an `extern "C"` function pointer type with the function's prototype.
pub(super) unsafe fn function<F: Copy>(library: &Library, name: &str) -> Result<F> {
    // SAFETY: the caller vouches for the type.
    let found = unsafe { library.get::<F>(name) };
    found
        .map(|symbol| *symbol)
        .map_err(|e| Error::machine(Code::HostLibrary, format!("{name} is missing ({})", words(&e))))
}

/// The loader's own words: the error's text is only the name of the call that failed.
fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_libraries_are_errors_that_name_the_file() {
        let error = open(Path::new("/nowhere/libnone.so.1")).unwrap_err();
        assert_eq!(error.code(), Code::HostLibrary);
        assert!(error.message().contains("/nowhere/libnone.so.1"));
        assert!(children(Path::new("/nowhere"), "").is_empty());
        assert!(folders().iter().all(|dir| dir.is_dir()));
    }
}
