//! Artefacts: written, read back, chosen from, and damaged.

use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use warploom::artifact::{Artifact, MANIFEST, Variant};
use warploom::error::Code;
use warploom::kernel::Cubin;
use warploom::{DType, Schedule, compile};

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
    assert_eq!(names, ["vec_add.sm_80.ptx", "vec_add.sm_80.2.ptx", "sum_256.ptx", "sum_256.cubin"]);
    assert_eq!(Artifact::read(&folder).unwrap(), stored(artifact.clone()));
    let file = folder.join("kernels.warploom");
    artifact.write_packed(&file).unwrap();
    assert_eq!(Artifact::read(&file).unwrap(), stored(artifact.clone()));
    assert_eq!(Artifact::from_bytes(&artifact.to_bytes().unwrap()).unwrap(), stored(artifact));
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), names.len() + 2, "nothing partial is left: {left:?}");
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
    let name = artifact.choose("gemm", (9, 0), &[]).unwrap_err();
    assert_eq!((name.message(), name.helps()), ("the artefact has no program `gemm`", &["vec_add".to_string()][..]));
}

/// Every bit of the one file, and of each file of the folder.
#[test]
fn every_changed_bit_is_found() {
    let mut artifact = artifact();
    artifact.variants.remove(0);
    let bytes = artifact.to_bytes().unwrap();
    let mut damaged = bytes.clone();
    for at in 0..bytes.len() {
        // Each byte has one of its bits changed, and every bit has its turn along the file.
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
    artifact().write(&folder).unwrap();
    let path = folder.join(MANIFEST);
    let text = std::fs::read_to_string(&path).unwrap();
    for (from, to, why) in [
        ("\"version\": 2", "\"version\": 1", "a manifest of version 1"),
        ("sum_256.ptx", "../sum_256.ptx", "is no name of a file beside"),
        ("sum_256.ptx", "/etc/hostname", "is no name of a file beside"),
        ("sum_256.ptx", "other.ptx", "cannot read"),
    ] {
        std::fs::write(&path, with_llvm(&text.replacen(from, to, 1), "19.1.0")).unwrap();
        let error = Artifact::read(&folder).unwrap_err();
        assert!(error.code() == Code::ArtifactRead && error.message().contains(why), "{error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(Artifact::read(Path::new("/nonexistent/x.warploom")).unwrap_err().code(), Code::ArtifactRead);
}
