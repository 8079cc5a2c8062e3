//! A crate that depends on this one: with default features it needs nothing of CUDA to build, with the runtime alone nothing of LLVM. `.ci/dependents` builds such crates.

use std::process::Command;

/// The crates that a dependent one is built from, with these features.
fn crates(name: &str, features: &str) -> String {
    let root = env!("CARGO_MANIFEST_DIR");
    let folder = std::env::temp_dir().join(format!("warploom-{}-{name}", std::process::id()));
    std::fs::create_dir_all(folder.join("src")).unwrap();
    std::fs::copy(format!("{root}/Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    std::fs::write(folder.join("src/lib.rs"), "").unwrap();
    let manifest = format!(
        "[package]\nname = \"dependent\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\nwarploom = {{ path = \"{root}\"{features} }}\n"
    );
    std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let out = Command::new(cargo)
        .args(["tree", "--offline", "--prefix", "none", "--edges", "normal,build"])
        .current_dir(&folder)
        .output()
        .unwrap();
    let _ = std::fs::remove_dir_all(&folder);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn default_features_ask_for_no_cuda_installation() {
    let plain = crates("plain", "");
    assert!(plain.contains("warploom v") && plain.contains("inkwell v"), "{plain}");
    assert!(!plain.contains("cust"), "{plain}");
    // `cuda` is the earlier name of `runtime`.
    for feature in ["runtime", "cuda"] {
        let with = crates(feature, &format!(", features = [\"{feature}\"]"));
        assert!(with.contains("cust_raw v") && with.contains("inkwell v"), "{with}");
    }
}

#[test]
fn the_runtime_alone_asks_for_no_llvm() {
    let alone = crates("alone", ", default-features = false, features = [\"runtime\"]");
    assert!(alone.contains("cust_raw v"), "{alone}");
    assert!(!alone.contains("inkwell") && !alone.contains("llvm"), "{alone}");
    // `llvm` is the earlier name of `compile`.
    for feature in ["compile", "llvm", "llvm-static"] {
        let with = crates(feature, &format!(", default-features = false, features = [\"{feature}\"]"));
        assert!(with.contains("inkwell v") && !with.contains("cust"), "{with}");
    }
}
