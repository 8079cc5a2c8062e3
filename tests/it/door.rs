//! What a newcomer meets first: pages of steps and instructions, places of errors, standard input, completions.

use super::cli::{File, bad, good, output, warploom};
use std::process::Stdio;
use warploom::artifact::{self, Artifact};
use warploom::kernel::Param;
use warploom::{Array, Schedule, compile, simulate};

#[test]
fn a_step_has_a_page_and_instructions_are_listed() {
    let page = good(&["explain", "split"]);
    assert!(
        page.starts_with("split LOOP FACTORS.. [-> LOOPS..]\n") && page.contains("where i_0*128 + i_1 < 1000"),
        "{page}"
    );
    let (status, error) = bad(&["explain", "splt"]);
    assert!(
        status == Some(2) && error.contains("`splt` is neither a file nor a step; did you mean `split`?"),
        "{error}"
    );
    let listed = good(&["explain", "--instructions", "--target", "sm_80"]);
    assert!(listed.contains("mma.m16n8k16.f32.f16.f16") && !listed.contains("wgmma."), "{listed}");
    let one = good(&["explain", "--instructions", "wgmma.m64n8k16.f32.f16.f16"]);
    assert!(one.contains("run by:      a warpgroup") && one.contains("wgmma.mma_async"), "{one}");
    let (status, error) = bad(&["explain", "--instructions", "foo"]);
    assert!(status == Some(2) && error.contains("the names begin with ldmatrix, mma"), "{error}");
}

#[test]
fn explain_takes_what_dump_takes() {
    let text = good(&["explain", "--gemm", "64", "--dtype", "f16", "--target", "sm_80", "--last"]);
    assert!(text.contains("tensorize mma.m16n8k16"), "{text}");
    let text = good(&["explain", "--diff", "examples/vec_add.loom", "--size", "4096"]);
    assert!(text.contains("-   for i in 0..4096\n"), "{text}");
    assert!(text.contains("+   for i_0 in 0..") || text.contains("+   for i0 in 0.."), "{text}");
    assert_eq!(bad(&["explain"]).0, Some(2));
}

#[test]
fn what_the_text_hides_is_noted() {
    let strided = File::new(
        "strided",
        "gemm 64x64x64 f32 NN\ntarget sm_80\nsplit i ? 4 -> i0 iv; reorder i0 j k iv; vectorize iv\n",
    );
    let text = good(&["explain", strided.name()]);
    assert!(
        text.contains("note: vectorize iv: adjacent iterations access elements of A that are not adjacent"),
        "{text}"
    );
    let halo = File::new(
        "halo",
        "window_sum 1024\ntarget sm_80\nsplit i ? 128 -> i0 i1; bind i0 blockIdx.x\ncache_read C A shared -> A_s\n\
         bind i1 threadIdx.x; compute_at A_s i1\n",
    );
    let text = good(&["explain", halo.name()]);
    assert!(!text.contains("overlapping"), "the threads of a block share the region: {text}");
    let apart = File::new(
        "apart",
        "window_sum 1024\ntarget sm_80\nsplit i ? 128 -> i0 i1; bind i0 blockIdx.x\ncache_read C A shared -> A_s\n\
         compute_at A_s i1; bind i1 threadIdx.x\n",
    );
    let text = good(&["explain", apart.name()]);
    assert!(text.contains("note: threads of i1 fill overlapping elements of A_s"), "{text}");
}

#[test]
fn a_schedule_comes_from_standard_input_with_or_without_a_mark() {
    let text = "\u{feff}vec_add 64\ntarget sm_80\n";
    let mut child = warploom(&["run", "-", "--device", "cpu"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    assert!(String::from_utf8(out.stdout).unwrap().starts_with("vec_add 64, 0 steps, target sm_80\n"));
}

#[test]
fn errors_begin_with_the_place_in_the_file() {
    let wrong = File::new("place", "gemm 64x64x64 f32 NN\ntarget sm_80\ncache_read C A shared -> A_s\nsplit x ? 4\n");
    let (_, error) = bad(&["dump", wrong.name()]);
    assert!(error.starts_with(&format!("{}:4:7: ", wrong.name())), "{error}");
    let program = File::new("step", "gemm 64x64x64 f32 NN\ntarget sm_80\nbind k blockIdx.x\n");
    let (_, error) = bad(&["dump", program.name()]);
    assert!(error.starts_with(&format!("{}:3:1: ", program.name())), "{error}");
}

#[test]
fn a_scalar_is_a_result() {
    let total = File::new("scalar", "program p\ninput A f32[1024]\noutput O[] f32 = sum(k 1024) A[k]\ntarget sm_80\n");
    for device in ["cpu", "ptx"] {
        assert!(good(&["run", total.name(), "--device", device]).contains("checked against f64"));
    }
}

#[test]
fn the_size_of_a_run_can_be_kept() {
    let reduced = output(&["run", "--gemm", "600", "--target", "sm_80", "--device", "cpu"]);
    assert!(String::from_utf8_lossy(&reduced.stderr).contains("--whole runs it as it is"));
    let whole = good(&["run", "--gemm", "300x300x1500", "--target", "sm_80", "--device", "cpu", "--whole"]);
    assert!(whole.starts_with("gemm 300x300x1500 f32 NN, "), "{whole}");
}

#[test]
fn shells_complete_and_the_manual_is_printed() {
    assert!(good(&["completions", "bash"]).contains("--instructions"));
    assert!(good(&["completions", "fish"]).contains("__fish_warploom"));
    let manual = good(&["man"]);
    assert!(manual.contains(".TH warploom 1") && manual.contains("mutate"), "{manual}");
}

#[test]
fn arrays_come_from_files_and_go_into_files() {
    let folder = std::env::temp_dir().join(format!("warploom-door-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str| folder.join(name);
    let a = Array::from_slice(&[1000], &(0..1000).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
    let b = Array::from_slice(&[1000], &(0..1000).map(|i| 1000.0 - i as f32).collect::<Vec<_>>()).unwrap();
    a.write(&file("a.npy"), "A").unwrap();
    b.write(&file("b.safetensors"), "b").unwrap();
    let sum = File::new("files", "vec_add 1000\ntarget sm_80\n");
    let text = |p: &str, f: &str| format!("{p}={}", file(f).display());
    let (a, b, c) = (text("A", "a.npy"), text("B", "b.safetensors") + ":b", text("C", "c.npy"));
    good(&["run", sum.name(), "--device", "ptx", "--input", &a, "--input", &b, "--output", &c]);
    let c = Array::read(&file("c.npy"), None).unwrap();
    assert_eq!(c.as_slice::<f32>().unwrap(), [1000.0; 1000]);
    let (status, error) = bad(&["run", sum.name(), "--device", "cpu", "--input", &text("C", "a.npy")]);
    assert!(
        status == Some(2) && error.contains("`C` is no input of vec_add") && error.contains("its inputs are A, B"),
        "{error}"
    );
    let other = File::new("other", "vec_add 64\ntarget sm_80\n");
    let (status, error) = bad(&["run", other.name(), "--device", "cpu", "--input", &a]);
    assert!(status == Some(2) && error.contains("holds f32[1000], and input A is f32[64]"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// `tests/shipped` runs these kernels in a build without LLVM.
#[test]
fn the_artifact_that_runs_without_llvm_is_what_dump_writes() {
    let folder = std::env::temp_dir().join(format!("warploom-shipped-{}", std::process::id()));
    good(&["dump", "examples/vec_add.loom", "--out", folder.to_str().unwrap()]);
    let ptx = Artifact::read(&folder).unwrap().index().variants[0].ptx.name.clone();
    for (file, golden) in [(ptx.as_str(), "vec_add.ptx"), (artifact::MANIFEST, artifact::MANIFEST)] {
        let found = std::fs::read_to_string(folder.join(file)).unwrap();
        // Its code has one name, as code had before names had digests, so that the file keeps its name in the repository.
        let found = found.replace(&ptx, "vec_add.ptx");
        // The manifest names the release of LLVM, and its checksum follows.
        let found = super::artifacts::with_llvm(&found, "19.0.0");
        super::cases::golden(&format!("../shipped/{golden}"), &found);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn kernels_are_written_with_all_that_a_launch_needs_and_read_back() {
    let folder = std::env::temp_dir().join(format!("warploom-out-{}", std::process::id()));
    let text = std::fs::read_to_string("examples/worked_example.loom").unwrap();
    let schedule: Schedule = text.parse().unwrap();
    let schedule = schedule.resized(&[256, 256, 128]).unwrap();
    let own = File::new("out", &schedule.to_string());
    good(&["dump", own.name(), "--out", folder.to_str().unwrap()]);
    let artifact = Artifact::read(&folder).unwrap();
    let [variant] = &artifact.variants[..] else { panic!("one variant") };
    let kernels = variant.kernels.clone();
    let mut compiled = compile(&schedule).unwrap();
    compiled.llvm.clear();
    assert_eq!(kernels, compiled);
    assert_eq!(variant.schedule.parse::<Schedule>().unwrap(), schedule.resolved().unwrap());
    assert!(kernels.kernels[0].params.iter().any(|p| matches!(p, Param::TensorMap(_))));
    // What is read back runs.
    let mut arrays: Vec<Array> = Vec::new();
    for (n, arg) in kernels.args.iter().enumerate() {
        let shape: Vec<usize> = arg.shape.iter().map(|e| *e as usize).collect();
        arrays.push(Array::random_integers(arg.dtype, &shape, 2, n as u64).unwrap());
    }
    let (a, b) = (arrays[0].clone(), arrays[1].clone());
    simulate(&kernels, &mut arrays).unwrap();
    let sum: f64 = (0..128).map(|k| a.get(3 * 128 + k) * b.get(5 * 128 + k)).sum();
    assert_eq!(arrays[2].get(3 * 256 + 5), sum);
    std::fs::remove_dir_all(&folder).unwrap();
}
