//! NVIDIA's offline tools, where they are at hand: ptxas checks and measures PTX, nvdisasm shows the machine code.
//!
//! Nothing here is needed to compile or to run a program. `.ci/tools.sh` installs both tools into `.tools/` of the
//! working directory; otherwise they are looked for on `PATH` and in the usual folder of a CUDA installation. A tool
//! runs without a shell, writes into a new temporary folder, and is stopped after [`TIMEOUT`].

use crate::error::{Code, Error, Result};
use crate::kernel::{Assembler, Cubin, Kernels};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a tool may run.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// The most of a tool's output that is kept.
const MOST_OUTPUT: u64 = 64 << 20;

/// The versions of ptxas that `.ci/tools.sh` installs, oldest first. 13.0 no longer knows sm_70.
pub const VERSIONS: [&str; 2] = ["12.9", "13.0"];

/// A ptxas that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ptxas {
    /// The program.
    pub path: PathBuf,
    /// Its version as `major.minor`.
    pub version: String,
}

/// What ptxas says about one entry point.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// The entry's name.
    pub entry: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of local memory that registers are spilled to.
    pub spill_stores: u32,
    /// Bytes of local memory that spilled registers are read from.
    pub spill_loads: u32,
    /// Bytes of local memory of a thread.
    pub stack_frame: u32,
    /// Bytes of static shared memory.
    pub shared: u32,
    /// Barriers.
    pub barriers: u32,
}

impl Usage {
    /// Whether everything is in registers.
    pub fn is_clean(&self) -> bool {
        self.spill_stores == 0 && self.spill_loads == 0 && self.stack_frame == 0
    }
}

/// An assembled module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assembled {
    /// The machine code (an ELF file).
    pub cubin: Vec<u8>,
    /// One line per entry point, in the order of ptxas.
    pub usage: Vec<Usage>,
    /// Warnings; those with a code C75xx or C76xx say that wgmma was serialised.
    pub warnings: Vec<String>,
}

impl Assembler for Ptxas {
    /// The program with its version: `ptxas 13.0`.
    fn name(&self) -> String {
        format!("ptxas {}", self.version)
    }

    fn cubin(&self, kernels: &Kernels) -> Result<Cubin> {
        let assembled = Ptxas::assemble(self, kernels.ptx(), &kernels.target)?;
        Ok(Cubin::new(&kernels.target, self.name(), assembled.cubin))
    }
}

impl Ptxas {
    /// Every ptxas at hand, each version once: an explicit path alone if there is one, else `.tools/`, `PATH`, and
    /// `/usr/local/cuda/bin`.
    ///
    /// # Errors
    /// `ptxas.missing` if there is none, or the explicit path is none.
    pub fn find(explicit: Option<&Path>) -> Result<Vec<Ptxas>> {
        let candidates = match explicit {
            Some(path) => vec![path.to_path_buf()],
            None => candidates("ptxas"),
        };
        let mut found: Vec<Ptxas> = Vec::new();
        for path in candidates {
            if let Some(version) = version_of(&path)
                && found.iter().all(|f| f.version != version)
            {
                found.push(Ptxas { path, version });
            }
        }
        if found.is_empty() {
            return Err(missing("ptxas", explicit));
        }
        Ok(found)
    }

    /// The newest ptxas at hand that knows the chip.
    ///
    /// # Errors
    /// As [`Ptxas::find`], or if those at hand do not know the chip.
    pub fn for_chip(explicit: Option<&Path>, chip: &str) -> Result<Ptxas> {
        let mut all = Ptxas::find(explicit)?;
        all.sort_by_key(Ptxas::number);
        let versions: Vec<String> = all.iter().map(|p| p.version.clone()).collect();
        all.into_iter().rev().find(|p| p.knows(chip)).ok_or_else(|| {
            let message = format!("no available ptxas supports {chip}; found {}", versions.join(" and "));
            Error::machine(Code::PtxasChip, message)
                .help("sh .ci/tools.sh")
                .help("or put a ptxas that knows it on PATH")
        })
    }

    /// Whether it can assemble for the chip: 13.0 dropped everything before sm_75.
    pub fn knows(&self, chip: &str) -> bool {
        self.number() < (13, 0) || !matches!(chip, "sm_70" | "sm_72")
    }

    fn number(&self) -> (u32, u32) {
        let (major, minor) = self.version.split_once('.').unwrap_or((&self.version, "0"));
        (major.parse().unwrap_or(0), minor.parse().unwrap_or(0))
    }

    /// Assembles PTX for a chip; the machine code has line information where the PTX has `.loc` directives.
    ///
    /// # Errors
    /// `ptxas.refused` with its words if it refuses the text; `ptxas.run` if it cannot be run.
    pub fn assemble(&self, ptx: &str, chip: &str) -> Result<Assembled> {
        let folder = Folder::new()?;
        let (source, target) = (folder.path().join("kernel.ptx"), folder.0.join("kernel.cubin"));
        std::fs::write(&source, ptx)
            .map_err(|e| Error::machine(Code::PtxasRun, format!("cannot write the PTX: {e}")))?;
        let mut command = Command::new(&self.path);
        command.arg("-v").arg("--warn-on-spills").arg(format!("-arch={chip}")).arg("-o").arg(&target).arg(&source);
        if ptx.lines().any(|l| l.trim_start().starts_with(".loc")) {
            command.arg("-lineinfo");
        }
        let output = run(command, &folder)?;
        if !output.success {
            let words = format!("ptxas {} refuses the PTX for {chip}:\n{}", self.version, output.text.trim());
            return Err(Error::bug(Code::PtxasRefused, words));
        }
        let cubin =
            std::fs::read(&target).map_err(|e| Error::machine(Code::PtxasRun, format!("no machine code: {e}")))?;
        Ok(Assembled { cubin, usage: usage(&output.text), warnings: warnings(&output.text) })
    }
}

/// The machine code of a cubin as text.
///
/// # Errors
/// `nvdisasm.missing` if the tool is not at hand; `nvdisasm.refused` if it cannot read the code.
pub fn sass(cubin: &[u8]) -> Result<String> {
    disassemble(cubin, &["--print-code"])
}

/// [`sass`] with comments `//## File "NAME", line N` in front of the instructions of a line.
///
/// # Errors
/// As [`sass`].
pub fn sass_with_lines(cubin: &[u8]) -> Result<String> {
    disassemble(cubin, &["--print-code", "--print-line-info"])
}

fn disassemble(cubin: &[u8], options: &[&str]) -> Result<String> {
    let tool = candidates("nvdisasm").into_iter().find(|p| version_of(p).is_some());
    let tool = tool.ok_or_else(|| missing("nvdisasm", None))?;
    let folder = Folder::new()?;
    let source = folder.path().join("kernel.cubin");
    std::fs::write(&source, cubin)
        .map_err(|e| Error::machine(Code::NvdisasmRun, format!("cannot write the code: {e}")))?;
    let mut command = Command::new(tool);
    command.args(options).arg(&source);
    let output = run(command, &folder)?;
    match output.success {
        true => Ok(output.text),
        false => Err(Error::machine(Code::NvdisasmRefused, format!("nvdisasm: {}", output.text.trim()))
            .help("newer versions do not read the code of old chips")),
    }
}

/// Reads the report of `ptxas -v`.
fn usage(report: &str) -> Vec<Usage> {
    let mut out: Vec<Usage> = Vec::new();
    // Warnings repeat figures of entries that came before.
    for line in report.lines().filter(|l| !l.contains("warning")) {
        if let Some(rest) = line.split("Compiling entry function '").nth(1) {
            let entry = rest.split('\'').next().unwrap_or_default().to_string();
            out.push(Usage { entry, ..Usage::default() });
        }
        let Some(last) = out.last_mut() else { continue };
        let fields: [(&str, &mut u32); 6] = [
            (" bytes stack frame", &mut last.stack_frame),
            (" bytes spill stores", &mut last.spill_stores),
            (" bytes spill loads", &mut last.spill_loads),
            (" registers", &mut last.registers),
            (" bytes smem", &mut last.shared),
            (" barriers", &mut last.barriers),
        ];
        for (suffix, field) in fields {
            if let Some(number) = number_before(line, suffix) {
                *field = number;
            }
        }
    }
    out
}

fn number_before(line: &str, suffix: &str) -> Option<u32> {
    let before = &line[..line.find(suffix)?];
    let digits = before.rfind(|c: char| !c.is_ascii_digit()).map_or(before, |at| &before[at + 1..]);
    digits.parse().ok()
}

fn warnings(report: &str) -> Vec<String> {
    let odd = |line: &&str| ["warning", "(C75", "(C76", "Potential Performance Loss"].iter().any(|w| line.contains(w));
    report.lines().filter(odd).map(|l| l.trim().to_string()).collect()
}

/// Where a tool may be, best first. The bare name last but one stands for a search along `PATH`.
fn candidates(tool: &str) -> Vec<PathBuf> {
    let versions = VERSIONS.iter().map(|v| v.to_string()).chain([String::new()]);
    let folders = homes().into_iter().flat_map(|home| versions.clone().map(move |v| home.join(v)));
    let mut out: Vec<PathBuf> = Vec::new();
    for path in folders.filter_map(|f| std::fs::canonicalize(f.join(tool)).ok()) {
        if !out.contains(&path) {
            out.push(path);
        }
    }
    out.push(PathBuf::from(tool));
    out.push(Path::new("/usr/local/cuda/bin").join(tool));
    out
}

/// Folders of tools: `.tools` in the working folder, beside the running binary and in the source tree that cargo built it in, and the
/// user's cache.
fn homes() -> Vec<PathBuf> {
    let binary = std::env::current_exe().unwrap_or_default();
    let beside = binary.parent();
    let tree = binary.ancestors().find(|f| f.ends_with("target")).and_then(Path::parent);
    let cache = std::env::home_dir().map(|home| home.join(".cache/warploom/tools"));
    let own = beside.into_iter().chain(tree).map(|f| f.join(".tools"));
    std::iter::once(PathBuf::from(".tools")).chain(own).chain(cache).collect()
}

fn missing(tool: &str, explicit: Option<&Path>) -> Error {
    let code = if tool == "ptxas" { Code::PtxasMissing } else { Code::NvdisasmMissing };
    match explicit {
        Some(path) => Error::machine(code, format!("{} is not a working {tool}", path.display())),
        None => {
            let message = format!(
                "{tool} is neither in .tools (of this folder, or beside the binary), in ~/.cache/warploom/tools, on PATH nor in \
                 /usr/local/cuda/bin"
            );
            let package = if tool == "ptxas" { "nvidia-cuda-nvcc" } else { "nvidia-cuda-nvdisasm" };
            Error::machine(code, message)
                .help("sh .ci/tools.sh in the source tree")
                .help(format!("or put {tool} into one of these places; it is in NVIDIA's Python package {package}"))
        }
    }
}

/// `12.9` from `Cuda compilation tools, release 12.9, V12.9.86`.
fn version_of(path: &Path) -> Option<String> {
    let folder = Folder::new().ok()?;
    let mut command = Command::new(path);
    command.arg("--version");
    let output = run(command, &folder).ok()?;
    let rest = output.text.split("release ").nth(1)?;
    let version: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    (output.success && !version.is_empty()).then_some(version)
}

struct Output {
    success: bool,
    text: String,
}

/// Runs a tool with both outputs in a file, so that a full pipe cannot stop it, and ends it after [`TIMEOUT`].
fn run(mut command: Command, folder: &Folder) -> Result<Output> {
    let failed = |what: &str, e: std::io::Error| {
        Error::machine(Code::ToolRun, format!("{} {}: {e}", what, command_name(folder.path())))
    };
    let path = folder.path().join("output.txt");
    let file = std::fs::File::create(&path).map_err(|e| failed("cannot write into", e))?;
    let errors = file.try_clone().map_err(|e| failed("cannot write into", e))?;
    let name = command.get_program().to_string_lossy().into_owned();
    let unable = |e: std::io::Error| Error::machine(Code::ToolRun, format!("cannot run {name}: {e}"));
    let mut child = command.stdin(Stdio::null()).stdout(file).stderr(errors).spawn().map_err(unable)?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(unable)? {
            break status;
        }
        if start.elapsed() > TIMEOUT {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::machine(Code::ToolTimeout, format!("{name} took more than {} s", TIMEOUT.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(&path).map_err(|e| failed("cannot read", e))?;
    file.take(MOST_OUTPUT).read_to_end(&mut bytes).map_err(|e| failed("cannot read", e))?;
    Ok(Output { success: status.success(), text: String::from_utf8_lossy(&bytes).into_owned() })
}

fn command_name(folder: &Path) -> String {
    folder.display().to_string()
}

/// A temporary folder that goes away with the value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Result<Folder> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("warploom-{}-{number}", std::process::id()));
        // Fails if it exists, so that nobody else's files are read or overwritten.
        std::fs::create_dir(&path)
            .map_err(|e| Error::machine(Code::ToolFolder, format!("cannot make {}: {e}", path.display())))?;
        Ok(Folder(path))
    }

    /// The path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gemm' for 'sm_80'
ptxas info    : Function properties for gemm
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 96 registers, used 1 barriers, 8 bytes cumulative stack size, 4096 bytes smem, 376 bytes cmem[0]
ptxas info    : Compiling entry function 'vec_add' for 'sm_80'
ptxas info    : Function properties for vec_add
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers, 376 bytes cmem[0]
ptxas warning : Registers are spilled to local memory in function 'gemm', 12 bytes spill stores, 16 bytes spill loads
";

    #[test]
    fn the_report_is_read() {
        let read = usage(REPORT);
        let gemm = Usage {
            entry: "gemm".into(),
            registers: 96,
            spill_stores: 12,
            spill_loads: 16,
            stack_frame: 8,
            shared: 4096,
            barriers: 1,
        };
        assert_eq!(read[0], gemm);
        assert!(!read[0].is_clean());
        assert_eq!((read[1].entry.as_str(), read[1].registers, read[1].is_clean()), ("vec_add", 10, true));
        assert_eq!(warnings(REPORT).len(), 1);
    }

    #[test]
    fn a_path_that_is_no_tool_is_the_machines_fault() {
        let error = Ptxas::find(Some(Path::new("no-such-ptxas"))).unwrap_err();
        assert_eq!((error.fault(), error.code()), (crate::error::Fault::Machine, Code::PtxasMissing));
    }

    #[test]
    fn old_chips_need_an_old_ptxas() {
        let ptxas = |version: &str| Ptxas { path: PathBuf::new(), version: version.into() };
        assert!(ptxas("12.9").knows("sm_70") && ptxas("13.0").knows("sm_75"));
        assert!(!ptxas("13.0").knows("sm_70"));
    }
}
