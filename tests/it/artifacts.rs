//! Artefacts: written, read back, chosen from, and damaged.

use super::cli::{bad, good, warploom};
use super::kills::{self, Stages};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use warploom::artifact::{Artifact, Cache, MANIFEST, Variant};
use warploom::error::Code;
use warploom::kernel::Cubin;
use warploom::{DType, Schedule, compile, compile_cached};

/// A manifest as another release of LLVM would have it written.
pub fn with_llvm(manifest: &str, version: &str) -> String {
    let Some((before, rest)) = manifest.split_once("\"llvm\": \"") else { return manifest.to_string() };
    let (_, after) = rest.split_once('"').unwrap();
    let text = format!("{before}\"llvm\": \"{version}\"{after}");
    let (body, _) = text.rsplit_once(",\n  \"checksum\"").unwrap();
    let sum: String = Sha256::digest(body.as_bytes()).iter().map(|b| format!("{b:02x}")).collect();
    format!("{body},\n  \"checksum\": \"{sum}\"\n}}\n")
}

fn variant(text: &str, size: i64, target: &str) -> Variant {
    let schedule: Schedule = text.parse().unwrap();
    let schedule = schedule.resized(&[size]).unwrap().for_target(warploom::Target::parse(target).unwrap());
    Variant::new(compile(&schedule).unwrap(), schedule.to_string(), "19.1.0")
}

/// Two sizes, of which one is for two chips, the newer with machine code.
fn artifact() -> Artifact {
    let text = "vec_add 1024\ntarget sm_80\nsplit i ? 128 -> i0 i1\nbind i0 blockIdx.x; bind i1 threadIdx.x";
    let mut last = variant(text, 256, "sm_90");
    last.kernels.cubin = Some(Cubin::new("sm_90", "ptxas 0.0", (0..=255).collect()));
    Artifact::new(vec![variant(text, 1024, "sm_80"), variant(text, 256, "sm_80"), last.labelled("sum/256")])
}

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("warploom-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

/// What differs from what was compiled: LLVM's text, which is for dumps.
fn stored(mut artifact: Artifact) -> Artifact {
    artifact.variants.iter_mut().for_each(|v| v.kernels.llvm.clear());
    artifact
}

#[test]
fn what_is_written_is_read_back() {
    let (artifact, folder) = (artifact(), folder("artifact"));
    let manifest = artifact.write(&folder).unwrap();
    let names: Vec<&str> = manifest.variants.iter().flat_map(|v| v.files()).map(|f| f.name.as_str()).collect();
    let stems = ["vec_add.sm_80", "vec_add.sm_80.2", "sum_256", "sum_256"];
    let digests = manifest.variants.iter().flat_map(|v| v.files()).map(|f| &f.sha256[..12]);
    let named = stems.iter().zip(["ptx", "ptx", "ptx", "cubin"]).zip(digests);
    assert_eq!(names, named.map(|((stem, kind), digest)| format!("{stem}.{digest}.{kind}")).collect::<Vec<_>>());
    assert_eq!(Artifact::read(&folder).unwrap(), stored(artifact.clone()));
    let file = folder.join("kernels.warploom");
    artifact.write_packed(&file).unwrap();
    assert_eq!(Artifact::read(&file).unwrap(), stored(artifact.clone()));
    assert_eq!(Artifact::from_bytes(&artifact.to_bytes().unwrap()).unwrap(), stored(artifact.clone()));
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), names.len() + 2, "nothing partial is left: {left:?}");
    // Files that the manifest no longer names go away; others stay.
    let manifest = Artifact::new(artifact.variants[..1].to_vec()).write(&folder).unwrap();
    let mut left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["kernels.warploom", MANIFEST, manifest.variants[0].ptx.name.as_str()]);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_variant_is_chosen_by_arrays_and_chip() {
    let artifact = artifact();
    let choose = |n: usize, capability| {
        let shape = [n];
        artifact.choose("vec_add", capability, &[(DType::F32, &shape[..]); 3]).map(|v| (v.kernels.target.as_str(), n))
    };
    assert_eq!(choose(1024, (9, 0)), Ok(("sm_80", 1024)));
    assert_eq!(choose(256, (8, 9)), Ok(("sm_80", 256)));
    assert_eq!(choose(256, (9, 0)), Ok(("sm_90", 256)));
    assert_eq!(choose(256, (12, 0)), Ok(("sm_90", 256)));
    let older = choose(256, (7, 5)).unwrap_err();
    assert!(older.code() == Code::ArtifactChoice && older.message().contains("runs on sm_75"), "{older}");
    let size = choose(512, (9, 0)).unwrap_err();
    assert_eq!(
        size.helps(),
        ["vec_add(A f32[1024], B f32[1024], C f32[1024])", "vec_add(A f32[256], B f32[256], C f32[256])"]
    );
    // A label is as good as a name, and a name that leaves two is refused.
    let shape = [256usize];
    let arrays = [(DType::F32, &shape[..]); 3];
    assert_eq!(artifact.choose("sum_256", (9, 0), &arrays).unwrap().label, "sum_256");
    assert_eq!(artifact.ambiguous(), None);
    let mut twice = artifact.clone();
    twice.variants.push(twice.variants[2].clone().labelled("other"));
    assert_eq!(twice.ambiguous(), Some((2, 3)));
    let two = twice.choose("vec_add", (9, 0), &arrays).unwrap_err();
    assert!(two.message().contains("sum_256 and other among them"), "{two}");
    assert_eq!(twice.choose("other", (9, 0), &arrays).unwrap().label, "other");
    let name = artifact.choose("gemm", (9, 0), &[]).unwrap_err();
    assert_eq!((name.message(), name.helps()), ("the artefact has no program `gemm`", &["vec_add".to_string()][..]));
}

/// One bit of every byte of the single file, and of 60 bytes of each file of the folder.
#[test]
fn a_changed_bit_of_any_byte_is_found() {
    let mut artifact = artifact();
    artifact.variants.remove(0);
    let bytes = artifact.to_bytes().unwrap();
    let mut damaged = bytes.clone();
    for at in 0..bytes.len() {
        damaged[at] ^= 1 << (at % 8);
        let error = Artifact::from_bytes(&damaged).expect_err(&format!("byte {at}"));
        assert_eq!(error.code(), Code::ArtifactRead);
        damaged[at] = bytes[at];
    }
    for end in (0..bytes.len()).step_by(7) {
        assert_eq!(Artifact::from_bytes(&bytes[..end]).unwrap_err().code(), Code::ArtifactRead);
    }
    assert!(Artifact::from_bytes(&[&bytes[..], b"\n"].concat()).unwrap_err().message().contains("1 bytes follow"));
    let folder = folder("damaged");
    artifact.write(&folder).unwrap();
    for entry in std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()) {
        let bytes = std::fs::read(&entry).unwrap();
        for at in (0..bytes.len()).step_by(bytes.len() / 60 + 1) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            std::fs::write(&entry, &damaged).unwrap();
            assert_eq!(Artifact::read(&folder).unwrap_err().code(), Code::ArtifactRead, "{} {at}", entry.display());
        }
        std::fs::write(&entry, &bytes).unwrap();
    }
    Artifact::read(&folder).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A manifest whose checksum is right and whose contents are not.
#[test]
fn manifests_of_another_version_and_names_elsewhere_are_refused() {
    let folder = folder("elsewhere");
    let name = artifact().write(&folder).unwrap().variants[2].ptx.name.clone();
    let path = folder.join(MANIFEST);
    let text = std::fs::read_to_string(&path).unwrap();
    for (from, to, why) in [
        ("\"version\": 2", "\"version\": 1", "a manifest of version 1"),
        (&name, "../sum_256.ptx", "is no name of a file beside"),
        (&name, "/etc/hostname", "is no name of a file beside"),
        (&name, "other.ptx", "cannot read"),
    ] {
        std::fs::write(&path, with_llvm(&text.replacen(from, to, 1), "19.1.0")).unwrap();
        let error = Artifact::read(&folder).unwrap_err();
        assert!(error.code() == Code::ArtifactRead && error.message().contains(why), "{error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(Artifact::read(Path::new("/nonexistent/x.warploom")).unwrap_err().code(), Code::ArtifactRead);
}

/// What `build` writes, with the name of its file.
fn build(file: &str, cache: &Path, arguments: &[&str]) -> std::process::Child {
    let mut command = warploom(&["build", "examples/vec_add.loom", "examples/gpu_v1.loom", "-o", file]);
    command.args(arguments).env("WARPLOOM_CACHE", cache);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn several_chips_and_sizes_are_built_and_shown() {
    let folder = folder("built");
    let out = folder.join("kernels");
    let (out, sizes) = (out.to_str().unwrap(), "256,1000");
    good(&["build", "examples/vec_add.loom", "--sizes", sizes, "--target", "sm_80,sm_90", "-o", out, "--cubin"]);
    let artifact = Artifact::read(Path::new(out)).unwrap();
    let labels: Vec<_> = artifact.variants.iter().map(|v| (v.label.as_str(), v.kernels.target.as_str())).collect();
    assert_eq!(
        labels,
        [("vec_add_256", "sm_80"), ("vec_add_1000", "sm_80"), ("vec_add_256", "sm_90"), ("vec_add_1000", "sm_90")]
    );
    for variant in &artifact.variants {
        let cubin = variant.kernels.cubin.as_ref().unwrap();
        assert!(cubin.chip == variant.kernels.target && cubin.bytes.starts_with(b"\x7fELF"), "{}", cubin.chip);
        let schedule: Schedule = variant.schedule.parse().unwrap();
        assert_eq!(compile(&schedule).unwrap().ptx(), variant.kernels.ptx());
    }
    let table = good(&["inspect", out]);
    assert!(table.contains("vec_add_1000") && table.contains("vec_add(A f32[256], B f32[256], C f32[256])"), "{table}");
    let one = good(&["inspect", out, "--variant", "4"]);
    assert!(one.contains("kernel vec_add") && one.contains("machine code for sm_90 by ptxas"), "{one}");
    assert!(good(&["inspect", out, "--variant", "1", "--emit", "cost"]).contains("bytes"));
    assert!(good(&["inspect", out, "--json"]).contains("\"sha256\""));
    // Launchers of both programs; the C compiler takes theirs.
    let launchers = folder.join("launchers");
    let files = ["examples/vec_add.loom", "examples/gpu_v1.loom"];
    let to = launchers.to_str().unwrap();
    good(&["build", files[0], files[1], "--target", "sm_80,sm_90", "--rust", "--c", "-o", to]);
    for name in ["vec_add", "gemm"] {
        let read = |file: String| std::fs::read_to_string(launchers.join(file)).unwrap();
        assert!(
            read(format!("{name}_cudarc.rs")).contains("sm_90")
                && read(format!("{name}_warploom.rs")).contains("sm_90")
        );
        let object = launchers.join(format!("{name}.o"));
        let source = launchers.join(format!("{name}.c"));
        let flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-c"];
        let compiled = Command::new("cc").args(flags).arg(source).arg("-o").arg(object).status().unwrap();
        assert!(compiled.success());
    }
    let (status, error) = bad(&["build", files[0], "--c", "-o", "x.warploom"]);
    assert!(status == Some(2) && error.contains("launchers are files of a folder"), "{error}");
    // One file of the same, and a run of one variant of each.
    let packed = folder.join("p.warploom");
    let packed = packed.to_str().unwrap();
    good(&["build", "--gemm", "32x24x40,8", "--dtype", "f16,f32", "--layout", "NT", "--target", "sm_80", "-o", packed]);
    let (status, error) = bad(&["run", packed, "--device", "cpu"]);
    assert!(status == Some(2) && error.contains("has programs for several arguments"), "{error}");
    let ran = good(&["run", packed, "--device", "cpu", "--variant", "2"]);
    assert!(ran.contains("its PTX ran on the simulator") && ran.contains("checked against f64"), "{ran}");
    let c = folder.join("c.npy");
    let output = format!("C={}", c.display());
    good(&["run", out, "--device", "cpu", "--variant", "vec_add_1000", "--output", &output]);
    assert_eq!(warploom::Array::read(&c, None).unwrap().shape, [1000]);
    let (status, error) = bad(&["run", out, "--device", "cpu", "--variant", "1", "--mutate", "list"]);
    assert!(status == Some(2) && error.contains("holds compiled kernels"), "{error}");
    let (status, error) = bad(&["inspect", out, "--variant", "9"]);
    assert!(status == Some(2) && error.contains("no variant `9`"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_was_compiled_is_read_from_the_cache() {
    let folder = folder("cached");
    let cache = Cache::at(&folder).unwrap();
    let text =
        |n: u32| format!("vec_add {n}\ntarget sm_80\nsplit i ? 128 -> i0 i1\nbind i0 blockIdx.x; bind i1 threadIdx.x");
    let schedule: Schedule = text(256).parse().unwrap();
    let first = compile_cached(&schedule, &cache, None).unwrap();
    assert!(!first.llvm.is_empty(), "compiled");
    let second = compile_cached(&schedule, &cache, None).unwrap();
    assert!(second.llvm.is_empty() && second.ptx() == first.ptx() && second.kernels == first.kernels, "read");
    compile_cached(&text(512).parse().unwrap(), &cache, None).unwrap();
    let entries = cache.entries().unwrap();
    assert_eq!(entries.len(), 2);
    // A damaged entry is compiled again.
    let bytes = std::fs::read(&entries[1].path).unwrap();
    std::fs::write(&entries[1].path, &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(compile_cached(&schedule, &cache, None).unwrap().ptx(), first.ptx());
    assert!(compile_cached(&schedule, &cache, None).unwrap().llvm.is_empty());
    std::fs::remove_dir_all(&folder).unwrap();
}

/// What builds for two chips leave.
struct Builds {
    cache: PathBuf,
    left: [Artifact; 2],
    /// How long each takes from a filled cache.
    took: [Duration; 2],
}

/// Microseconds in which a build writes its files.
const WRITES_US: u64 = 3000;

/// Two builds whose files have the same names, apart from digests, and other contents.
const ARGUMENTS: [&[&str]; 2] =
    [&["--sizes", "64,96,128,160", "--target", "sm_80"], &["--sizes", "64,96,128,160", "--target", "sm_90"]];

impl Builds {
    /// Builds both, each into a folder and a file of its own.
    fn new(folder: &Path) -> Builds {
        let cache = folder.join("cache");
        let mut took = [Duration::ZERO; 2];
        let left = [0, 1].map(|kind| {
            let out = folder.join(format!("whole-{kind}"));
            let out = out.to_str().unwrap();
            for _ in 0..2 {
                let begun = std::time::Instant::now();
                assert!(build(out, &cache, ARGUMENTS[kind]).wait().unwrap().success());
                took[kind] = begun.elapsed();
            }
            Artifact::read(Path::new(out)).unwrap()
        });
        assert_ne!(left[0], left[1]);
        Builds { cache, left, took }
    }

    /// A build that is killed some time after its start or, if it is watched, after the first change of its folder. It has left the artefact that was there or the new one, and the new one if it has said so.
    fn killed(
        &self,
        out: &Path,
        kind: usize,
        before: usize,
        (is_watched, after): (bool, Duration),
    ) -> (usize, &'static str) {
        let folder = if out.is_dir() { out } else { out.parent().unwrap() };
        let state = || {
            let entries = std::fs::read_dir(folder).unwrap().flatten();
            let of = |e: std::fs::DirEntry| Some((e.file_name(), e.metadata().ok()?.modified().ok()?));
            let mut all: Vec<_> = entries.filter_map(of).collect();
            all.sort();
            all
        };
        let first = state();
        let mut child = build(out.to_str().unwrap(), &self.cache, ARGUMENTS[kind]);
        while is_watched && state() == first && child.try_wait().unwrap().is_none() {}
        std::thread::sleep(after);
        let _ = child.kill();
        let ended = child.wait_with_output().unwrap();
        let has_said = String::from_utf8_lossy(&ended.stderr).contains("wrote ");
        let context = format!("{}, {} after {after:?}", out.display(), ended.status);
        assert!(has_said || !ended.status.success(), "{context}");
        let found = Artifact::read(out).unwrap_or_else(|e| panic!("{context}: {e}"));
        let found = self.left.iter().position(|whole| *whole == found);
        let found = found.unwrap_or_else(|| panic!("{context}: neither the old artefact nor the new one"));
        assert!(found == kind || (found == before && !has_said), "{context}");
        self.check_cache(has_said.then_some(kind), &context);
        let stage = match (has_said, kind == before, found == kind) {
            (true, ..) => kills::ENDED,
            (_, true, _) => "while the artefact that was there was written again, or before",
            (_, _, true) => "after the artefact was replaced",
            _ => "before the artefact was replaced",
        };
        (found, stage)
    }

    /// Every entry of the cache is whole, and is what its schedule compiles to; all of a finished build are there.
    fn check_cache(&self, finished: Option<usize>, context: &str) {
        let kept = Cache::at(&self.cache).unwrap();
        let entries = kept.entries().unwrap();
        let read = |path: &Path| Artifact::read(path).unwrap_or_else(|e| panic!("{context}: {e}")).variants.remove(0);
        let found: Vec<Variant> = entries.iter().map(|entry| read(&entry.path)).collect();
        let all = || self.left.iter().flat_map(|artifact| &artifact.variants);
        let is_same = |a: &Variant, b: &Variant| a.schedule == b.schedule && a.kernels == b.kernels;
        assert!(found.iter().all(|one| all().any(|right| is_same(one, right))), "{context}: a wrong entry");
        let wanted = finished.into_iter().flat_map(|kind| &self.left[kind].variants);
        wanted.for_each(|right| assert!(found.iter().any(|one| is_same(one, right)), "{context}: {}", right.label));
    }
}

/// Eight processes share a cache and replace one artefact; then processes are killed at any point of that.
#[test]
fn killed_processes_leave_whole_files() {
    let folder = folder("killed");
    let builds = Builds::new(&folder);
    let outs = [folder.join("k.warploom"), folder.join("kernels")];
    Cache::at(&builds.cache).unwrap().clear().unwrap();
    for out in &outs {
        let eight = |n: usize| build(out.to_str().unwrap(), &builds.cache, ARGUMENTS[n % 2]);
        let mut eight: Vec<_> = (0..8).map(eight).collect();
        assert!(eight.iter_mut().all(|child| child.wait().unwrap().success()));
        builds.check_cache(Some(0), "eight processes");
        builds.check_cache(Some(1), "eight processes");
    }
    let whole = |out: &Path| builds.left.iter().position(|whole| *whole == Artifact::read(out).unwrap());
    let mut there = [0, 1].map(|n: usize| whole(&outs[n]).expect("an artefact of the eight"));
    let (wanted, mut stages) = (kills::wanted(60), Stages::default());
    let mut rng = fastrand::Rng::with_seed(20);
    for trial in 0..10 * wanted {
        if stages.kills() == wanted {
            break;
        }
        // A quarter of them compile. The others find their kernels in the cache, so that the writing of the artefact comes early.
        if trial % 8 < 2 {
            Cache::at(&builds.cache).unwrap().clear().unwrap();
        }
        let (at, kind) = (trial % 2, rng.usize(..2));
        let limit = builds.took[kind].as_micros() as u64 * 5 / 4;
        let is_watched = trial % 4 < 2;
        let after = if is_watched { rng.u64(0..WRITES_US) } else { rng.u64(limit / 4..limit) };
        let (found, stage) = builds.killed(&outs[at], kind, there[at], (is_watched, Duration::from_micros(after)));
        there[at] = found;
        stages.count(stage);
    }
    assert_eq!(stages.kills(), wanted);
    stages.print("builds of four kernels into a file and a folder, through a cache");
    std::fs::remove_dir_all(&folder).unwrap();
}
