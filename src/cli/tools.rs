//! NVIDIA's command-line tools, where they are: on the path, or in a folder `.tools` that the set-up script fills.

use crate::error::{Error, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How deep under `.tools` a program may lie.
const DEPTH: usize = 8;

/// Every program of that name: on the path first, then under `.tools` of the folders above this one and above the binary.
pub fn find(name: &str) -> Vec<PathBuf> {
    let mut out: Vec<PathBuf> = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).map(|p| p.join(name)).filter(|p| p.is_file()).collect())
        .unwrap_or_default();
    let starts = [std::env::current_dir().ok(), std::env::current_exe().ok()];
    let folders: BTreeSet<PathBuf> =
        starts.iter().flatten().flat_map(|s| s.ancestors()).map(|a| a.join(".tools")).filter(|t| t.is_dir()).collect();
    for folder in folders {
        search(&folder, name, DEPTH, &mut out);
    }
    out
}

fn search(folder: &Path, name: &str, depth: usize, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_file() && path.file_name().is_some_and(|n| n == name) {
            out.push(path);
        } else if depth > 0 && path.is_dir() && !path.is_symlink() {
            search(&path, name, depth - 1, out);
        }
    }
}

/// The version that a tool reports: `12.9.86`.
pub fn version(tool: &Path) -> Option<String> {
    let output = Command::new(tool).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().filter_map(|w| w.strip_prefix('V')).map(str::to_string).next_back()
}

/// PTX as machine code in text, and what ptxas says about registers and spills.
pub fn sass(ptx: &str, target: &str) -> Result<String> {
    let ptxas = newest("ptxas")?;
    let disassembler = newest("nvdisasm").or_else(|_| newest("cuobjdump"))?;
    let folder = Folder::make()?;
    let (source, binary) = (folder.0.join("kernel.ptx"), folder.0.join("kernel.cubin"));
    std::fs::write(&source, ptx).map_err(|e| Error::machine("tools.file", format!("cannot write {}: {e}", source.display())))?;
    let mut assemble = Command::new(&ptxas);
    assemble.args(["-v", "-arch", target, "-o"]).arg(&binary).arg(&source);
    let remarks = run(assemble)?;
    let mut disassemble = Command::new(&disassembler);
    if disassembler.ends_with("cuobjdump") {
        disassemble.arg("--dump-sass");
    }
    disassemble.arg(&binary);
    let code = run(disassemble)?;
    let remarks: String = remarks.lines().map(|l| format!("// {l}\n")).collect();
    Ok(remarks + &code)
}

fn newest(name: &str) -> Result<PathBuf> {
    let mut found = find(name);
    found.sort_by_key(|p| version(p).map(|v| v.split('.').map(|n| n.parse().unwrap_or(0)).collect::<Vec<u32>>()));
    found.pop().ok_or_else(|| {
        Error::machine("tools.missing", format!("{name} is not on the path and not under .tools")).help(mend(name))
    })
}

/// How to get a tool.
pub fn mend(name: &str) -> String {
    match name {
        "ptxas" => "run .ci/setup in the source tree, or `pip download nvidia-cuda-nvcc` and unpack the wheel into .tools".into(),
        _ => format!("`pip download nvidia-cuda-{name}` and unpack the wheel into .tools"),
    }
}

fn run(mut command: Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| Error::machine("tools.start", format!("cannot start {name}: {e}")))?;
    let both = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&both).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let file = Path::new(&name).file_name().map_or(name.clone(), |n| n.to_string_lossy().into_owned());
    let fault = if file == "ptxas" { Error::bug } else { Error::machine };
    Err(fault("tools.failed".to_string(), format!("{file} ended with {}: {}", output.status, text.trim())))
}

/// A fresh folder that goes away again.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Folder> {
        let path = std::env::temp_dir().join(format!("warploom-{}-{}", std::process::id(), fastrand::u64(..)));
        std::fs::create_dir(&path).map_err(|e| Error::machine("tools.file", format!("cannot make {}: {e}", path.display())))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
