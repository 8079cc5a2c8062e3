//! Build script: sets WARPLOOM_SOURCES to a digest of the sources, which tells builds of one version apart. Keys of cached kernels hold it.

use std::path::{Path, PathBuf};

/// The folders whose files determine what the compiler writes.
const FOLDERS: [&str; 2] = ["src", "ptx-templates"];

fn main() {
    let mut files = Vec::new();
    FOLDERS.iter().for_each(|folder| walk(Path::new(folder), &mut files));
    files.sort();
    // FNV-1a with 128 bits: told apart by chance, not by design.
    let mut digest: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            digest = (digest ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    };
    for file in files {
        let contents = std::fs::read(&file).unwrap_or_default();
        add(file.to_string_lossy().as_bytes());
        add(&contents.len().to_le_bytes());
        add(&contents);
    }
    println!("cargo::rustc-env=WARPLOOM_SOURCES={digest:032x}");
    FOLDERS.iter().for_each(|folder| println!("cargo::rerun-if-changed={folder}"));
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { walk(&path, files) } else { files.push(path) }
    }
}
