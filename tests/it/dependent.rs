//! A crate that depends on this one: with default features it needs nothing of CUDA to build. `.ci/dependents` builds such crates.

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
    let cuda = crates("cuda", ", features = [\"cuda\"]");
    assert!(cuda.contains("cust_raw v"), "{cuda}");
}
