//! `warploom run ARTEFACT`: the variant is chosen by the arrays of files, by sizes that are set, by the label and by the device.

use super::cli::{bad, good};
use super::driver::command::Folder;
use std::path::{Path, PathBuf};
use warploom::{Array, DType};

/// Products for two ranges of M, and arrays of some rows.
struct Built {
    folder: PathBuf,
    artefact: String,
}

impl Built {
    fn new(name: &str) -> Built {
        let folder = std::env::temp_dir().join(format!("warploom-run-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let artefact = folder.join("rows").to_str().unwrap().to_string();
        let gemm = ["--gemm", "1..=32x64x32,33..=64x64x32", "--dtype", "f16", "--layout", "NT", "--target", "sm_80"];
        good(&[&["build", "-o", &artefact, "--ranges", "1"], &gemm[..]].concat());
        Built { folder, artefact }
    }

    /// `A=FILE`, of a file with an array of small whole numbers.
    fn input(&self, parameter: &str, dtype: DType, shape: &[usize]) -> String {
        let words: Vec<String> = shape.iter().map(usize::to_string).collect();
        let file = self.folder.join(format!("{parameter}-{dtype}-{}.npy", words.join("x")));
        Array::random_integers(dtype, shape, 3, shape[0] as u64).unwrap().write(&file, parameter).unwrap();
        format!("{parameter}={}", file.display())
    }

    fn run<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["run", &self.artefact, "--device", "cpu"], more].concat()
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// C = A * B^T of small whole numbers, which f16 holds.
fn product(a: &Path, b: &Path) -> Vec<f64> {
    let [a, b] = [a, b].map(|file| Array::read(file, None).unwrap());
    let (k, n) = (a.shape[1], b.shape[0]);
    let sum = |i: usize, j: usize| (0..k).map(|q| a.get(i * k + q) * b.get(j * k + q)).sum();
    (0..a.shape[0]).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| sum(i, j)).collect()
}

#[test]
fn the_variant_has_the_rows_of_the_file_or_of_the_size() {
    let built = Built::new("rows");
    for (rows, label) in [(5, "gemm_1.._32x64x32"), (32, "gemm_1.._32"), (33, "gemm_33.._64"), (64, "gemm_33.._64")] {
        let (a, b) = (built.input("A", DType::F16, &[rows, 32]), built.input("B", DType::F16, &[64, 32]));
        let c = built.folder.join("c.npy");
        let output = format!("C={}", c.display());
        let text = good(&built.run(&["--input", &a, "--input", &b, "--output", &output]));
        assert!(text.contains(label) && text.contains("checked against f64"), "{rows}: {text}");
        let found = Array::read(&c, None).unwrap();
        assert_eq!(found.shape, [rows, 64]);
        let path = |filed: &str| PathBuf::from(filed.split_once('=').unwrap().1);
        let wanted = product(&path(&a), &path(&b));
        assert!(wanted.iter().enumerate().all(|(n, value)| found.get(n) == *value), "{rows}");
        let set = format!("M={rows}");
        assert!(good(&built.run(&["--set", &set])).contains(label), "{rows}");
    }
    let (status, error) = bad(&built.run(&[]));
    assert!(status == Some(2) && error.contains("[cli.variant]") && error.contains("--set M=VALUE"), "{error}");
    assert!(error.contains("has programs for several arguments") && error.contains("--input A=FILE"), "{error}");
}

#[test]
fn arrays_that_no_variant_takes_are_refused_with_those_that_there_are() {
    let built = Built::new("refused");
    let input = |dtype, shape: &[usize]| built.input("A", dtype, shape);
    let fits = input(DType::F16, &[5, 32]);
    for (input, set, words) in [
        (input(DType::F16, &[65, 32]), "", "takes A f16[65, 32]"),
        (input(DType::F16, &[5, 31]), "", "takes A f16[5, 31]"),
        (input(DType::F32, &[5, 32]), "", "takes A f32[5, 32]"),
        (input(DType::F16, &[5]), "", "takes A f16[5]"),
        (fits.clone(), "M=40", "takes A f16[5, 32], M = 40"),
    ] {
        let set = if set.is_empty() { vec![] } else { vec!["--set", set] };
        let (status, error) = bad(&built.run(&[&["--input", &input], &set[..]].concat()));
        assert!(status == Some(2) && error.contains("[cli.variant]") && error.contains(words), "{error}");
        assert!(error.contains("gemm(A f16[33..=64, 32], B f16[64, 32], C f16[33..=64, 64])"), "{error}");
    }
    let (status, error) = bad(&built.run(&["--input", &fits.replace("A=", "X=")]));
    assert!(status == Some(2) && error.contains("`X` is no input of gemm") && error.contains("are A, B"), "{error}");
    // One variant says what its input is.
    let one = ["--variant", "1", "--input", &fits.replace("A=", "B=")];
    let (status, error) = bad(&built.run(&one));
    assert!(status == Some(2) && error.contains("holds f16[5, 32], and input B is f16[64, 32]"), "{error}");
}

/// A file of NumPy whose elements are in Fortran order.
#[test]
fn files_in_fortran_order_are_refused_with_what_to_do() {
    let built = Built::new("fortran");
    let file = built.folder.join("a.npy");
    let header = "{'descr': '<f2', 'fortran_order': True, 'shape': (5, 32), }\n";
    let length = (header.len() as u16).to_le_bytes();
    let bytes = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &[0; 2 * 5 * 32]].concat();
    std::fs::write(&file, bytes).unwrap();
    let input = format!("A={}", file.display());
    let (status, error) = bad(&built.run(&["--input", &input]));
    assert!(status == Some(1) && error.contains("[array.file]") && error.contains("in Fortran order"), "{error}");
    assert!(error.contains("numpy.ascontiguousarray"), "{error}");
}

/// On a device the variant is also chosen by the chip. No kernel runs on the mock driver: the result is written, and found wrong.
#[test]
fn a_device_runs_the_variant_of_the_file() {
    let (built, folder) = (Built::new("device"), Folder::new("run-artefact"));
    let c = built.folder.join("c.npy");
    let output = format!("C={}", c.display());
    for (rows, label) in [(5, "[1..=32, 32]"), (40, "[33..=64, 32]")] {
        let a = built.input("A", DType::F16, &[rows, 32]);
        let run = ["run", &built.artefact, "--device", "0", "--input", &a, "--output", &output];
        let (status, _, error) = folder.run("", &run);
        assert!(status == Some(70) && error.contains("[reference.bound]"), "{error}");
        assert_eq!(Array::read(&c, None).unwrap().shape, [rows, 64]);
        let (status, _, error) = folder.run("capability 7.5", &run);
        assert!(status == Some(3) && error.contains("[artifact.choice]") && error.contains("runs on sm_75"), "{error}");
        let (_, error) = bad(&built.run(&["--input", &built.input("A", DType::F32, &[rows, 32])]));
        assert!(error.contains(label), "{error}");
    }
}
