//! Kernels that begin beside the one in front of them in the stream: when they wait for it, what they may do before, who finds
//! a wait that is missing or late, and what the launch and the PTX say.

use crate::lower::{lowered, syncs};
use warploom::assemble::Ptxas;
use warploom::codegen::compile;
use warploom::error::Code;
use warploom::gemm::{Gemm, recommend};
use warploom::ir::{Elect, Stmt, Sync, SyncKind};
use warploom::loom::Schedule;
use warploom::lower::{Lowered, LoweredKernel, lower, verify};
use warploom::runtime::Device;
use warploom::sim::{Mode, Options, integers_with, run_ptx};
use warploom::te::Layout;
use warploom::{Array, DType, Fault, Kernels, Target, compile_gemm};

/// A ring of boxes whose kernel begins early, lets the next one begin early, and asks for its input before it waits.
pub fn early() -> String {
    format!("{}launch i0 grid_dependency=2 l2_prefetch=1\n", crate::bulk::AGAIN)
}

const DOUBLED: &str = "program doubled
  input A f32[256]
  B: output B[i 256] f32 = A[i] * 2.0
target sm_90
split i ? 64 -> i0 i1; bind i0 blockIdx.x; bind i1 threadIdx.x
";

fn error(text: &str) -> (Fault, String, String) {
    let schedule = Schedule::parse(text).unwrap();
    let error = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap_err();
    (error.fault(), error.code().to_string(), error.message().to_string())
}

fn is(stmt: &Stmt, wanted: &SyncKind) -> bool {
    matches!(stmt, Stmt::Sync(Sync { kind, .. }) if kind == wanted)
}

#[test]
fn a_kernel_waits_behind_its_mbarriers_and_in_front_of_all_else() {
    let kernel = lowered(&early());
    let words: Vec<String> = syncs(&kernel);
    let kinds: Vec<&str> = words.iter().map(|s| s.split([':', ' ']).next().unwrap()).collect();
    let maps = kinds.iter().filter(|kind| **kind == "prefetch_map").count();
    assert_eq!(maps, kernel.maps.len(), "{words:#?}");
    let others: Vec<&str> = kinds.into_iter().filter(|kind| *kind != "prefetch_map").take(5).collect();
    assert_eq!(others, ["prefetch", "mbarrier.init", "block", "grid_release", "grid_wait"], "{words:#?}");
    let waits = lowered(&early().replace("dependency=2", "dependency=1"));
    assert!(syncs(&waits).iter().all(|s| !s.starts_with("grid_release")));
    assert!(waits.func.body.iter().any(|s| is(s, &SyncKind::GridWait)));
    // Without mbarriers it comes first; where nobody asks, it is not there.
    let plain = lowered(&format!("{DOUBLED}launch i1 grid_dependency=1"));
    assert!(is(&plain.func.body[0], &SyncKind::GridWait));
    assert!(syncs(&lowered(DOUBLED)).iter().all(|s| !s.starts_with("grid_")));
}

#[test]
fn the_ptx_and_the_launch_say_it() {
    let kernels = |text: &str| {
        let schedule = Schedule::parse(text).unwrap();
        compile(&lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap(), &schedule.target).unwrap()
    };
    let both = kernels(&early());
    let at = |word: &str| both.text.find(word).unwrap_or_else(|| panic!("{word}:\n{}", both.text));
    let order = [
        "cp.async.bulk.prefetch.L2.global",
        "mbarrier.init.shared",
        "griddepcontrol.launch_dependents",
        "griddepcontrol.wait",
    ];
    assert!(order.map(at).is_sorted() && at("griddepcontrol.wait") < at("cp.async.bulk.tensor"), "{}", both.text);
    assert!(both.kernels[0].early && !kernels(DOUBLED).kernels[0].early);
    let one = kernels(&format!("{DOUBLED}launch i0 grid_dependency=1"));
    assert!(one.kernels[0].early && !one.text.contains("launch_dependents"));
    let wait = one.text.find("griddepcontrol.wait").unwrap();
    assert!(wait < one.text.find("ld.global").unwrap(), "{}", one.text);
}

/// Each block asks for its own lines, and none beyond the array's end.
#[test]
fn blocks_ask_for_a_share_each() {
    let schedule = Schedule::parse(&early()).unwrap();
    let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let text = compile(&lowered, &schedule.target).unwrap().text;
    let asked = text.find("cp.async.bulk.prefetch").unwrap();
    // 98304 bytes for 3 blocks: a third each, the block's number times 2^15 behind the beginning.
    let before: Vec<&str> = text[..asked].lines().rev().take(20).collect();
    let line = text[asked..].lines().next().unwrap();
    assert!(line.ends_with(", 32768;") || before.iter().any(|l| l.contains("32768")), "{line} {before:#?}");
    assert!(before.iter().any(|l| l.contains("shl.b") && l.ends_with(" 15;")), "{before:#?}");
}

#[test]
fn an_access_in_front_of_the_wait_is_found() {
    let whole = lowered(&early());
    let options = Options::new(Mode::Integer);
    let run = |kernel: &LoweredKernel| {
        let program = Lowered::new("again", vec!["A".into(), "B".into()], vec![kernel.clone()]);
        integers_with(&program, &options, 3).map_err(|e| e.code().to_string())
    };
    assert!(run(&whole).is_ok() && verify(&whole).is_ok());
    let at = whole.func.body.iter().position(|s| is(s, &SyncKind::GridWait)).unwrap();
    let mut without = whole.clone();
    let wait = without.func.body.remove(at);
    let mut late = without.clone();
    late.func.body.push(wait.clone());
    for kernel in [&without, &late] {
        assert_eq!(run(kernel).unwrap_err(), "sim.pdl");
        assert_eq!(verify(kernel).unwrap_err().code(), Code::LowerVerify);
    }
    // One thread's wait is none of the others'.
    let mut alone = without;
    alone.func.body.insert(at, Stmt::Elect(Elect { warps: 1, body: vec![wait] }));
    assert_eq!(verify(&alone).unwrap_err().code(), Code::LowerVerify);
}

/// Two kernels write the arrays that a third one reads; the second may run concurrently with the first.
const COPIES: &str = "program copies
  input A f32[256]
  input B f32[256]
  P: P[i 256] f32 = A[i] * 2.0
  Q: Q[i 256] f32 = B[i] + 1.0
  C: output C[i 256] f32 = P[i] * Q[i]
target sm_90
split i ? 64 -> p0 p1; bind p0 blockIdx.x; bind p1 threadIdx.x
split Q_i ? 64 -> q0 q1; bind q0 blockIdx.x; bind q1 threadIdx.x
split C_i ? 64 -> c0 c1; bind c0 blockIdx.x; bind c1 threadIdx.x
launch c0 grid_dependency=1
";

fn concurrent() -> String {
    format!("{COPIES}launch p0 grid_dependency=2\nlaunch q0 grid_dependency=2 concurrent=1\n")
}

#[test]
fn a_concurrent_kernel_waits_at_its_end_for_the_one_that_let_it_begin() {
    let schedule = Schedule::parse(&concurrent()).unwrap();
    let program = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let places = |kernel: &LoweredKernel, kind| kernel.func.body.iter().position(|s| is(s, &kind));
    let [p, q, c] = &program.kernels[..] else { panic!("{} kernels", program.kernels.len()) };
    // The first kernel waits for what ran before the program, then releases the second.
    assert_eq!((places(p, SyncKind::GridWait), places(p, SyncKind::GridRelease)), (Some(0), Some(1)));
    let last = q.func.body.len() - 1;
    assert_eq!((places(q, SyncKind::GridRelease), places(q, SyncKind::GridWait)), (Some(0), Some(last)));
    assert_eq!(places(c, SyncKind::GridWait), Some(0));
    let kernels = compile(&program, &schedule.target).unwrap();
    assert_eq!(
        kernels.kernels.iter().map(|k| (k.early, k.concurrent)).collect::<Vec<_>>(),
        [(true, false), (true, true), (true, false)]
    );
    assert!(integers_with(&program, &Options::new(Mode::Integer), 3).is_ok());
    // A release in front of the wait, and a wait in front of the work, are found.
    let mut swapped = p.clone();
    swapped.func.body.swap(0, 1);
    let mut early = q.clone();
    let wait = early.func.body.pop().unwrap();
    let without = early.clone();
    early.func.body.insert(0, wait);
    for broken in [&swapped, &early, &without] {
        assert_eq!(verify(broken).unwrap_err().code(), Code::LowerVerify);
    }
    assert!([p, q, c].into_iter().all(|kernel| verify(kernel).is_ok()));
}

#[test]
fn ptx_of_a_concurrent_kernel_without_its_wait_is_found() {
    let schedule = Schedule::parse(&concurrent()).unwrap();
    let program = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let kernels = compile(&program, &schedule.target).unwrap();
    let run = |kernels: &Kernels| {
        let array = |n: f64| Array::from_fn(DType::F32, &[256], |i| i as f64 * n).unwrap();
        let mut args = vec![array(1.0), array(2.0), array(0.0)];
        let ended = run_ptx(kernels, &Options::new(Mode::Real), &mut args).map_err(|e| e.code().to_string());
        ended.map(|_| args[2].get(100))
    };
    assert_eq!(run(&kernels), Ok(200.0 * 201.0));
    let entry = kernels.text.find("copies_1").unwrap();
    let at = entry + kernels.text[entry..].find("griddepcontrol.wait;").unwrap();
    let mut broken = kernels.clone();
    broken.text.replace_range(at..at + "griddepcontrol.wait;".len(), "");
    assert_eq!(run(&broken).unwrap_err(), "ptx.pdl");
}

#[test]
fn what_a_concurrent_kernel_needs_is_said() {
    let no = |steps: &str, message: &str| {
        let (fault, code, text) = error(&format!("{COPIES}{steps}"));
        assert_eq!((fault, &*code), (Fault::Input, "lower.concurrent"), "{text}");
        assert!(text.contains(message), "{text}");
    };
    no("launch q0 concurrent=1", "kernel copies_1 has no programmatic dependent launch");
    no("launch p0 grid_dependency=1 concurrent=1", "no kernel of the program precedes copies_0");
    no("launch q0 grid_dependency=1 concurrent=1", "the previous kernel copies_0 does not release the next kernel");
    no(
        "launch p0 grid_dependency=1\nlaunch q0 grid_dependency=1 concurrent=1",
        "the previous kernel copies_0 does not release the next kernel",
    );
    let reads = "launch p0 grid_dependency=2\nlaunch q0 grid_dependency=2 concurrent=1\nlaunch c0 concurrent=1";
    no(reads, "kernel copies_0, with which it would run concurrently, writes P");
}

#[test]
fn arrays_that_threads_read_are_prefetched_too() {
    let text = format!("{DOUBLED}launch i0 grid_dependency=2 l2_prefetch=1\n");
    let kernel = lowered(&text);
    let words: Vec<String> = syncs(&kernel).iter().map(|s| s.split(':').next().unwrap().to_string()).collect();
    assert_eq!(words, ["grid_release", "prefetch_line", "grid_wait"]);
    let schedule = Schedule::parse(&text).unwrap();
    let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let ptx = compile(&lowered, &schedule.target).unwrap().text;
    assert!(ptx.contains("prefetch.global.L2"), "{ptx}");
    for ptxas in Ptxas::find(None).unwrap() {
        ptxas.assemble(&ptx, schedule.target.name).unwrap();
    }
}

#[test]
fn what_a_chip_or_a_program_has_no_use_for_is_refused() {
    let old = format!("{}launch i0 grid_dependency=1", DOUBLED.replace("sm_90", "sm_80"));
    let (fault, code, message) = error(&old);
    assert_eq!((fault, code.as_str()), (Fault::Chip, "admit.grid_dependency"), "{message}");
    let old = format!("{}launch i0 l2_prefetch=1", DOUBLED.replace("sm_90", "sm_80"));
    let (fault, code, message) = error(&old);
    assert_eq!((fault, code.as_str()), (Fault::Chip, "admit.l2_prefetch"), "{message}");
    assert!(message.starts_with("launch i0 l2_prefetch=1: sm_80 has no bulk prefetch"), "{message}");
    let constant = DOUBLED.replace("A[i] * 2.0", "2.0");
    let (fault, code, message) = error(&format!("{constant}launch i0 l2_prefetch=1"));
    assert_eq!((fault, code.as_str()), (Fault::Input, "lower.l2_prefetch"), "{message}");
    assert!(Target::sm_90().has(warploom::target::Features::GRID_DEPENDENCY));
}

/// Products in a chain, each a factor of the next, launched without a pause, alone and as a graph: the bits are those of the
/// chain that waits for each. What is not written yet is poisoned.
pub fn on_device(device: &Device) {
    const LINKS: usize = 12;
    for (n, layout) in
        [(512, Layout::NN), (1000, Layout::NN), (1000, Layout::TT), (1024, Layout::NT), (1000, Layout::TN)]
    {
        let gemm = Gemm::new(n, n, n).of(DType::F16).layout(layout);
        let schedule = recommend(&gemm, &Target::sm_90a()).unwrap();
        let kernels = compile_gemm(&schedule).unwrap();
        assert!(kernels.kernels.iter().all(|k| k.early), "{schedule}");
        let (program, size) = (device.load(&kernels).unwrap(), n as usize);
        // Each product is about as large as the one before.
        let mut seed = fastrand::Rng::with_seed(n as u64);
        let factor =
            Array::from_fn(DType::F16, &[size, size], |_| (seed.f64() - 0.5) * (12.0 / n as f64).sqrt()).unwrap();
        let factor = device.upload(&factor).unwrap();
        let mut chain = vec![device.upload(&Array::random(DType::F16, &[size, size], 7).unwrap()).unwrap()];
        chain.extend((0..LINKS).map(|_| device.alloc(DType::F16, &[size, size]).unwrap()));
        let link = |i: usize| program.launch(&[&factor, &chain[i], &chain[i + 1]]);
        let forget = || chain[1..].iter().for_each(|c| c.poison().unwrap());
        forget();
        for i in 0..LINKS {
            link(i).unwrap();
            device.synchronize().unwrap();
        }
        let wanted = chain[LINKS].download().unwrap();
        assert!((0..size).all(|i| wanted.get(i * size).is_finite()));
        let graph = device.capture(|| (0..LINKS).try_for_each(link)).unwrap();
        for round in 0..10 {
            forget();
            match round % 2 {
                0 => (0..LINKS).for_each(|i| link(i).unwrap()),
                _ => graph.launch().unwrap(),
            }
            assert!(chain[LINKS].download().unwrap() == wanted, "{n} {}, round {round}", layout.name());
        }
    }
}
