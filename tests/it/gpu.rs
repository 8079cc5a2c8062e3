//! What needs a GPU. Without one the test says `SKIPPED` and why; with `WARPLOOM_REQUIRE_GPU=1` a missing GPU fails.
//! `WARPLOOM_GPU_CASES=WORDS` runs the cases alone whose names hold these words.
//!
//! One test runs all cases, so that the device is opened once and a case that makes the driver refuse further work is
//! the last that ran.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use warploom::error::{Code, Fault};
use warploom::ir::{BinOp, Expr, Stmt, UnOp, visit};
use warploom::kernel::{Access, Arg, Kernel, Kernels, Param, Workspace};
use warploom::measure::{Bench, Cublas, Job, TimeBudget, run_once};
use warploom::reference::{self, Sample};
use warploom::runtime::{Device, probe};
use warploom::te::{GemmSpec, Layout};
use warploom::{Array, DType, Error, Func, Schedule, Target};

type Case = (&'static str, fn(&Device));

const CASES: &[Case] = &[
    ("arrays come back as they went", arrays_come_back),
    ("a kernel adds", a_kernel_adds),
    ("workspace lies between kernels", workspace_lies_between_kernels),
    ("arguments are checked", arguments_are_checked),
    ("graphs replay launches and name them", graphs_replay),
    ("wrong PTX shows the compiler's words", wrong_ptx_is_explained),
    ("a target that cannot run is the chip's fault", targets_are_checked),
    ("cuBLAS multiplies in every layout", cublas_multiplies),
    ("every instruction of a warp does what its row says", instructions_are_right),
    ("every product of a warpgroup does what its row says", products_of_warpgroups_are_right),
    ("8-bit floats are converted as their formats say", super::float8::conversions_on),
    ("tensor cores add 8-bit floats with the bits that are stated", super::float8_sums::on_device),
    ("every example is right at its own size", examples_are_right),
    ("every subset of the worked example is right", subsets_are_right),
    ("products of every type are right at every edge", |device| super::gemms::on_device(device, &say)),
    ("products are exact where the recommended tiles change", |device| super::gemms::at_edges(device, &say)),
    ("products give the same bits every time", |device| super::gemms::repeat(device, &say)),
    ("rows have the same bits for every number of rows", |device| super::invariant::on_device(device, &say)),
    ("kernels that begin early wait for what they read", super::dependent_launch::on_device),
    ("reads under way are not overwritten", super::register_prefetch::on_device),
    ("launchers in C write what the runtime writes", super::launchers::c::on_device),
    ("rows hold ours beside the library", rows_hold_both),
    ("a kernel that hangs costs its device and no more", hangs_are_given_up),
    ("a fault is reported and stays reported", faults_stay_reported),
    ("after a fault a device is opened anew, or says why not", faults_are_left_behind),
];

#[test]
fn gpu() {
    let facts = probe();
    if facts.devices.is_empty() {
        let why = facts.troubles.first().map_or("no device", |trouble| trouble.message.as_str());
        assert!(std::env::var_os("WARPLOOM_REQUIRE_GPU").is_none(), "a GPU is required: {why}");
        say(&format!("SKIPPED: no GPU: {} cases did not run ({why})", CASES.len()));
        return;
    }
    let device = Device::open(0).unwrap();
    say(&format!("on {} with CUDA {}", device.info().name, facts.driver.unwrap().cuda_version));
    let words = std::env::var("WARPLOOM_GPU_CASES").unwrap_or_default();
    let chosen: Vec<&Case> = CASES.iter().filter(|case| case.0.contains(&words)).collect();
    let failed: Vec<&str> = chosen.iter().filter(|case| !passes(case, &device)).map(|case| case.0).collect();
    say(&format!("{} of {} GPU cases ran", chosen.len(), CASES.len()));
    assert!(!chosen.is_empty(), "no case is called `{words}`");
    assert!(failed.is_empty(), "failed: {failed:?}");
}

/// Straight to standard error: the harness hides what a passing test prints, and a skip must be seen.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn passes((name, case): &Case, device: &Device) -> bool {
    let passed = catch_unwind(AssertUnwindSafe(|| case(device))).is_ok();
    say(&format!("  {name}: {}", if passed { "ok" } else { "FAILED" }));
    passed
}

/// One kernel over 128 threads a block: `OUT[i] = X[i] OP Y[i]` for f32, in PTX written out for the test.
fn elementwise(instruction: &str, n: i64) -> Kernels {
    let text = format!(
        ".version 6.0\n.target sm_70\n.address_size 64\n\
         .visible .entry elementwise(.param .u64 px, .param .u64 py, .param .u64 pz) {{\n\
         .reg .b32 %r<4>; .reg .b64 %d<8>; .reg .f32 %f<4>;\n\
         ld.param.u64 %d1, [px]; ld.param.u64 %d2, [py]; ld.param.u64 %d3, [pz];\n\
         mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r1, 128, %r2;\n\
         mul.wide.u32 %d4, %r3, 4;\n\
         add.u64 %d1, %d1, %d4; add.u64 %d2, %d2, %d4; add.u64 %d3, %d3, %d4;\n\
         ld.global.f32 %f1, [%d1]; ld.global.f32 %f2, [%d2];\n\
         {instruction} %f3, %f1, %f2;\n\
         st.global.f32 [%d3], %f3;\nret;\n}}\n"
    );
    let kernels = vec![kernel([Param::Arg(0), Param::Arg(1), Param::Arg(2)], n)];
    let mut program = Kernels::new("elementwise", "sm_70", 60, text, kernels);
    program.args = vec![arg("X", Access::Read, n), arg("Y", Access::Read, n), arg("Z", Access::Write, n)];
    program
}

fn arg(name: &str, access: Access, n: i64) -> Arg {
    Arg::new(name, DType::F32, &[n], access)
}

fn kernel(params: [Param; 3], n: i64) -> Kernel {
    Kernel::new("elementwise", params.to_vec(), [(n / 128) as u32, 1, 1], [128, 1, 1])
}

fn inputs(n: usize) -> [Array; 3] {
    let x = Array::random_integers(DType::F32, &[n], 100, 1).unwrap();
    let y = Array::random_integers(DType::F32, &[n], 100, 2).unwrap();
    [x, y, Array::zeros(DType::F32, &[n]).unwrap()]
}

fn arrays_come_back(device: &Device) {
    for dtype in [DType::F16, DType::F32, DType::S4, DType::F64, DType::Tf32] {
        let array = Array::random(dtype, &[7, 9], 3).unwrap();
        let buffer = device.upload(&array).unwrap();
        assert_eq!(buffer.download().unwrap(), array);
        assert_eq!(buffer.duplicate().unwrap().download().unwrap(), array);
        buffer.poison().unwrap();
        assert_eq!(buffer.download().unwrap(), Array::poisoned(dtype, &[7, 9]).unwrap());
    }
    let empty = Array::zeros(DType::F32, &[0]).unwrap();
    assert_eq!(device.upload(&empty).unwrap().download().unwrap(), empty);
}

fn a_kernel_adds(device: &Device) {
    let program = device.load(&elementwise("add.f32", 1024)).unwrap();
    let given = inputs(1024);
    let after = run_once(&program, &given).unwrap();
    assert!((0..1024).all(|i| after[2].get(i) == given[0].get(i) + given[1].get(i)));
    let resources = program.resources();
    assert!(resources[0].registers > 0 && resources[0].local_bytes == 0 && resources[0].blocks_per_multiprocessor > 0);
    assert!(resources[0].max_threads >= 128 && resources[0].occupancy <= 1.0);
}

fn workspace_lies_between_kernels(device: &Device) {
    // Z = (X * Y) * Y, the inner product in workspace.
    let mut kernels = elementwise("mul.f32", 256);
    kernels.workspace = vec![Workspace::new("inner", 1024)];
    kernels.kernels = vec![
        kernel([Param::Arg(0), Param::Arg(1), Param::Workspace(0)], 256),
        kernel([Param::Workspace(0), Param::Arg(1), Param::Arg(2)], 256),
    ];
    let given = inputs(256);
    let after = run_once(&device.load(&kernels).unwrap(), &given).unwrap();
    assert!((0..256).all(|i| after[2].get(i) == given[0].get(i) * given[1].get(i) * given[1].get(i)));
}

fn arguments_are_checked(device: &Device) {
    let program = device.load(&elementwise("add.f32", 256)).unwrap();
    let [x, y, z] = inputs(256).map(|a| device.upload(&a).unwrap());
    let other = device.alloc(DType::F16, &[256]).unwrap();
    let code = |buffers: &[&_]| program.launch(buffers).unwrap_err().code().to_string();
    assert_eq!(code(&[&x, &y]), "launch.count");
    assert_eq!(code(&[&x, &other, &z]), "launch.dtype");
    assert_eq!(code(&[&x, &y, &y]), "launch.overlap");
    program.launch(&[&x, &x, &z]).unwrap();
    device.synchronize().unwrap();
}

fn graphs_replay(device: &Device) {
    let program = device.load(&elementwise("add.f32", 1024)).unwrap();
    let given = inputs(1024);
    let [x, y, z] = [0, 1, 2].map(|i| device.upload(&given[i]).unwrap());
    let graph = device.capture(|| (0..3).try_for_each(|_| program.launch(&[&x, &y, &z]))).unwrap();
    z.poison().unwrap();
    graph.launch().unwrap();
    let after = z.download().unwrap();
    assert!((0..1024).all(|i| after.get(i) == given[0].get(i) + given[1].get(i)));
    if device.info().driver_version >= 12030 {
        assert_eq!(graph.kernel_names(), ["elementwise"; 3]);
    }
    // Waiting cannot be recorded; the stream is usable afterwards.
    assert!(device.capture(|| device.synchronize()).is_err());
    device.synchronize().unwrap();
}

fn wrong_ptx_is_explained(device: &Device) {
    let error = device.load(&elementwise("no_such_instruction.f32", 128)).unwrap_err();
    assert_eq!((error.fault(), error.code()), (Fault::Bug, Code::Driver(218)));
    assert!(error.to_string().contains("no_such_instruction") || error.to_string().contains("ptxas"), "{error}");
    let future = elementwise("add.f32", 128).text.replace(".version 6.0", ".version 99.0");
    let mut kernels = elementwise("add.f32", 128);
    kernels.text = future;
    let error = device.load(&kernels).unwrap_err();
    assert!(matches!(error.code(), Code::Driver(222) | Code::Driver(218)), "{error}");
}

fn targets_are_checked(device: &Device) {
    let mut kernels = elementwise("add.f32", 128);
    kernels.target = "sm_999".into();
    let error = device.load(&kernels).unwrap_err();
    assert_eq!((error.fault(), error.code()), (Fault::Chip, Code::LaunchTarget));
    let mut large = elementwise("add.f32", 128);
    large.kernels[0].shared_bytes = 1 << 20;
    assert_eq!(device.load(&large).unwrap_err().code(), Code::LaunchShared);
    large.kernels[0].shared_bytes = device.info().shared_per_block;
    assert_eq!(device.load(&large).map(|p| p.resources()[0].blocks_per_multiprocessor), Ok(1));
}

fn cublas_multiplies(device: &Device) {
    let cublas = match Cublas::open(device, None) {
        Ok(cublas) => cublas,
        Err(error) => return say(&format!("  SKIPPED: {}", error.message())),
    };
    use DType::{Bf16, F16, F32, F64, S8, S32, Tf32};
    let (m, n, k) = (24, 40, 56);
    for layout in Layout::ALL {
        let types =
            [(F32, F32, F32), (F16, F32, F16), (Bf16, F32, F32), (F64, F64, F64), (S8, S32, S32), (Tf32, F32, F32)];
        for (input, acc, out) in types {
            for batch in [None, Some(3)] {
                let gemm = GemmSpec::of(m, n, k, input, layout).types(input, input, acc, out).batch(batch);
                multiplies(device, &cublas, &gemm);
            }
        }
    }
}

/// Small integers: every order of the sums is exact.
fn multiplies(device: &Device, cublas: &Cublas, gemm: &GemmSpec) {
    let [batch, m, n, k] = [gemm.products(), gemm.m, gemm.n, gemm.k].map(|extent| extent as usize);
    let [a_transposed, b_transposed] = [gemm.layout.a_transposed(), gemm.layout.b_transposed()];
    let a = Array::random_integers(gemm.a, &[batch * m * k], 4, 5).unwrap();
    let b = Array::random_integers(gemm.b, &[batch * k * n], 4, 6).unwrap();
    let c = device.alloc(gemm.out, &[batch, m, n]).unwrap();
    c.poison().unwrap();
    match cublas.gemm(gemm, &device.upload(&a).unwrap(), &device.upload(&b).unwrap(), &c) {
        Ok(()) => {}
        // Of 8-bit integers the library promises one layout alone.
        Err(e) if gemm.a == DType::S8 && gemm.layout != Layout::NT => {
            assert!(e.message().contains("NOT_SUPPORTED"), "{e}");
            return say(&format!("    not {gemm:?}: {}", e.message()));
        }
        Err(e) => panic!("{gemm:?}: {e}"),
    }
    let c = c.download().unwrap();
    for at in 0..batch * m * n {
        let (product, i, j) = (at / (m * n), at / n % m, at % n);
        let x = |p| a.get(product * m * k + if a_transposed { p * m + i } else { i * k + p });
        let y = |p| b.get(product * k * n + if b_transposed { j * k + p } else { p * n + j });
        assert_eq!(c.get(at), (0..k).map(|p| x(p) * y(p)).sum::<f64>(), "{gemm:?} at {product}, {i}, {j}");
    }
}

/// A kernel for each row that the chip has: every element of the result is compared, on small integers bit by bit, on reals
/// within its bound.
fn instructions_are_right(device: &Device) {
    let own = Target::for_device(device.info().sm()).unwrap();
    let (mut right, mut wrong) = (0, Vec::new());
    for row in super::tensor::rows() {
        if !own.has(row.needs) {
            say(&format!("    {own} does not have {}", row.name));
            continue;
        }
        match instruction_is_right(device, &super::tensor::probe(row, own)) {
            Ok(()) => right += 1,
            Err(error) => {
                say(&format!("    {}: {error}", row.name));
                wrong.push(&row.name);
            }
        }
    }
    say(&format!("    {right} instructions are right on {own}"));
    assert!(wrong.is_empty() && right > 0, "{wrong:?}");
}

/// Every row in some form, some rows in every form: k along rows and across, swizzles, A from memory and from registers.
fn products_of_warpgroups_are_right(device: &Device) {
    let own = Target::for_device(device.info().sm()).unwrap();
    let (mut right, mut wrong) = (0, 0);
    let products = super::warpgroup::probes().into_iter();
    let products = products.map(|(row, form)| (row, format!("{form:?}"), super::warpgroup::probe(row, form)));
    let loads = super::warpgroup::loads().map(|(row, schedule)| (row, String::new(), schedule));
    for (row, form, schedule) in products.chain(loads) {
        if !own.has(row.needs) {
            say(&format!("    {own} does not have wgmma"));
            return;
        }
        match instruction_is_right(device, &schedule) {
            Ok(()) => right += 1,
            Err(error) => {
                say(&format!("    {} {form}: {error}", row.name));
                wrong += 1;
            }
        }
    }
    say(&format!("    {right} instructions of warpgroups are right on {own}"));
    assert!(wrong == 0 && right > 0, "{wrong} are wrong");
}

fn instruction_is_right(device: &Device, schedule: &Schedule) -> Result<(), Error> {
    let program = device.load(&warploom::compile(schedule)?)?;
    let integers = super::tensor::arguments(schedule);
    let after = run_once(&program, &integers)?;
    for output in reference::outputs(&schedule.program, &integers, Sample::All)? {
        output.exact(&after[output.param])?;
    }
    let reals = arguments(&schedule.program, Array::random)?;
    let after = run_once(&program, &reals)?;
    for output in reference::outputs(&schedule.program, &reals, Sample::All)? {
        output.bound(&after[output.param])?;
    }
    Ok(())
}

/// Small integers bit by bit, random reals within their bounds, the same bits twice, and no local memory.
fn examples_are_right(device: &Device) {
    let product = |(dtype, layout): (DType, Layout)| {
        let product = warploom::Gemm::new(1024, 1024, 512).of(dtype).layout(layout);
        let name = format!("recommended {dtype} {}", layout.name());
        (name, warploom::gemm::recommend(&product, &Target::sm_90()).unwrap())
    };
    let kinds =
        [DType::F32, DType::F64, DType::Tf32].into_iter().flat_map(|dtype| Layout::ALL.map(|layout| (dtype, layout)));
    let products = kinds.map(product);
    let examples: Vec<_> = super::cases::compiling_examples().chain(products).collect();
    assert!(examples.len() > 10);
    let mut wrong = Vec::new();
    for (name, schedule) in examples {
        match example_is_right(device, schedule) {
            Ok(worst) => say(&format!("    {name}: largest error {worst:.3} of its bound")),
            Err(error) => {
                say(&format!("    {name}: {error}"));
                wrong.push(name);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// All subsets with small tiles, and some with the tiles of large products; bit-equal on integers, within bounds on reals.
fn subsets_are_right(device: &Device) {
    use super::hopper::{schedule, subsets};
    let small = subsets(true).into_iter().map(|s| (s, [256, 128, 320]));
    let large = subsets(false).into_iter().step_by(11).map(|s| (s, [512, 512, 448]));
    let (mut right, mut refused, mut worst, mut wrong) = (0, 0, 0.0f64, Vec::new());
    for (subset, size) in small.chain(large) {
        let schedule = schedule(&subset, size).unwrap();
        match example_is_right(device, schedule) {
            Ok(ratio) => (right, worst) = (right + 1, worst.max(ratio)),
            Err(error) if error.fault() == Fault::Input => refused += 1,
            Err(error) => wrong.push(format!("{} at {size:?}: {error}", subset.name)),
        }
    }
    say(&format!("    {right} subsets are right, {refused} refused; largest error {worst:.3} of its bound"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(right >= 200, "{right}");
}

fn example_is_right(device: &Device, schedule: Schedule) -> Result<f64, Error> {
    let own = Target::for_device(device.info().sm()).filter(|own| own.sm < schedule.target.sm);
    let schedule = own.map_or(schedule.clone(), |own| schedule.for_target(own));
    let program = device.load(&warploom::compile(&schedule)?)?;
    if let Some(kernel) = program.resources().into_iter().find(|r| r.local_bytes > 0) {
        return Err(Error::bug(
            Code::MeasureWrong,
            format!("{} has {} bytes of local memory", kernel.entry, kernel.local_bytes),
        ));
    }
    let rows = Sample::Rows { count: 48, seed: 3 };
    let integers = arguments(&schedule.program, |dtype, shape, seed| Array::random_integers(dtype, shape, 3, seed))?;
    let after = run_once(&program, &integers)?;
    for output in reference::outputs(&schedule.program, &integers, rows)? {
        match rounds(&schedule.program) {
            true => output.bound(&after[output.param]).map(drop)?,
            false => output.exact(&after[output.param])?,
        }
    }
    if run_once(&program, &integers)? != after {
        return Err(Error::bug(Code::MeasureWrong, "two runs on the same input differ"));
    }
    let reals = arguments(&schedule.program, Array::random)?;
    let after = run_once(&program, &reals)?;
    let outputs = reference::outputs(&schedule.program, &reals, rows)?;
    outputs.iter().try_fold(0.0f64, |worst, output| Ok(worst.max(output.bound(&after[output.param])?.ratio)))
}

/// Whether a program rounds on small integers too: it divides, or has functions.
pub fn rounds(program: &Func) -> bool {
    let mut found = false;
    visit::walk(&program.body, &mut |s| {
        if let Stmt::Store(store) = s {
            visit::walk_expr(&store.value, &mut |e| {
                found |= match e {
                    Expr::Un(op, _) => !matches!(op, UnOp::Neg | UnOp::Abs | UnOp::Not),
                    Expr::Bin(op, ..) => *op == BinOp::Div,
                    _ => false,
                };
            });
        }
    });
    found
}

pub type Fill = fn(DType, &[usize], u64) -> Result<Array, Error>;

/// An array for each parameter of a program.
pub fn arguments(program: &Func, fill: Fill) -> Result<Vec<Array>, Error> {
    let one = |(seed, id)| {
        let buffer = program.buffer(id);
        let shape: Vec<usize> = buffer.const_shape().unwrap().iter().map(|e| *e as usize).collect();
        fill(buffer.dtype, &shape, seed)
    };
    (1..).zip(program.params.iter().copied()).map(one).collect()
}

fn rows_hold_both(device: &Device) {
    // With equal elements in Y, the elementwise product is the matrix product [n, 1] x [1, 1].
    let n = 1 << 20;
    let kernels = elementwise("mul.f32", n);
    let x = Array::random(DType::F32, &[n as usize], 7).unwrap();
    let y = Array::from_fn(DType::F32, &[n as usize], |_| 2.0).unwrap();
    let args = vec![x, y, Array::zeros(DType::F32, &[n as usize]).unwrap()];
    let gemm = GemmSpec::of(n, 1, 1, DType::F32, Layout::NN);
    let judge = |after: &[Array]| {
        let right = (0..after[2].len()).all(|i| after[2].get(i) == after[0].get(i) * 2.0);
        Ok(if right { 0.0 } else { f64::INFINITY })
    };
    let plan = TimeBudget { preheat_s: 0.1, rewarm_s: 0.02, row_s: 0.2, ..TimeBudget::default() };
    let bench = Bench::new(device, plan, None).unwrap();
    let labels = ["scale", "1048576x1x1", "f32", "NN"].map(str::to_string);
    let (operations, arithmetic) = (n as f64, (DType::F32, DType::F32));
    let mut job =
        Job { labels, kernels: &kernels, args, operations, arithmetic, gemm: Some(gemm), beside: None, judge: &judge };
    let row = bench.row(&job).unwrap();
    say(&format!("  {}", serde_json::to_string(&row).unwrap()));
    assert!(row.us > 0.0 && row.pairs >= 6 && row.noise < 0.5 && [1, 20].contains(&row.launches));
    assert!(row.floor_ratio > 0.0 && row.floor_ratio < 1.5, "{}", row.floor_ratio);
    assert_eq!(row.ratio.is_some(), bench.cublas().is_ok());
    assert_eq!(row.library.is_some(), row.library_missing.is_none());

    // A wrong result stops the clock.
    job.judge = &|_| Ok(2.0);
    assert_eq!(bench.row(&job).unwrap_err().code(), Code::MeasureWrong);
}

fn faults_stay_reported(device: &Device) {
    // Threads far behind the end of the buffers.
    let mut kernels = elementwise("add.f32", 128);
    kernels.kernels[0].grid = [1 << 24, 1, 1];
    let program = device.load(&kernels).unwrap();
    let [x, y, z] = inputs(128).map(|a| device.upload(&a).unwrap());
    program.launch(&[&x, &y, &z]).unwrap();
    let error = device.synchronize().unwrap_err();
    assert_eq!((error.fault(), error.code()), (Fault::Bug, Code::Driver(700)));
    assert_eq!(x.download().unwrap_err().code(), Code::Driver(700));
    assert!(device.alloc(DType::F32, &[1]).unwrap_err().to_string().contains("restart the process"));
}

/// `spin`: one thread, which waits for so many nanoseconds.
fn spin(nanoseconds: u64) -> Kernels {
    let text = format!(
        ".version 6.0\n.target sm_70\n.address_size 64\n\
         .visible .entry spin() {{\n.reg .u64 %d<4>; .reg .pred %p;\n\
         mov.u64 %d1, %globaltimer; add.u64 %d2, %d1, {nanoseconds};\n\
         again: mov.u64 %d3, %globaltimer; setp.lt.u64 %p, %d3, %d2; @%p bra again;\nret;\n}}\n"
    );
    let mut kernels = elementwise("add.f32", 128);
    (kernels.name, kernels.text, kernels.args) = ("spin".into(), text, vec![]);
    let one = [1, 1, 1];
    kernels.kernels = vec![Kernel::new("spin", vec![], one, one)];
    kernels
}

fn adds(device: &Device) {
    let given = inputs(1024);
    let after = run_once(&device.load(&elementwise("add.f32", 1024)).unwrap(), &given).unwrap();
    assert!((0..1024).all(|i| after[2].get(i) == given[0].get(i) + given[1].get(i)));
}

fn hangs_are_given_up(device: &Device) {
    let hung = Device::open(device.info().ordinal).unwrap();
    let program = hung.load(&spin(3_000_000_000)).unwrap();
    let start = Instant::now();
    program.launch(&[]).unwrap();
    let error = hung.synchronize_within(Duration::from_millis(100)).unwrap_err();
    assert_eq!((error.fault(), error.code()), (Fault::Machine, Code::LaunchTimeout));
    assert!(error.message().starts_with("kernel spin of spin (grid 1 x 1 x 1, block 1 x 1 x 1)"), "{error}");
    assert_eq!(hung.alloc(DType::F32, &[1]).unwrap_err().code(), Code::LaunchTimeout);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    let anew = Device::open(device.info().ordinal).unwrap();
    adds(&anew);
    say(&format!("    a new context worked {:?} after the launch of a kernel of 3 s", start.elapsed()));
    std::thread::sleep(Duration::from_secs(4).saturating_sub(start.elapsed()));
    drop((program, hung));
    adds(device);
}

fn faults_are_left_behind(device: &Device) {
    assert_eq!(device.synchronize().unwrap_err().code(), Code::Driver(700));
    match Device::open(device.info().ordinal) {
        Ok(anew) => {
            adds(&anew);
            say("    this driver makes a new context after a fault");
        }
        Err(error) => {
            assert_eq!(error.code(), Code::Driver(700));
            assert!(error.to_string().contains("restart the process"), "{error}");
            say("    this driver refuses a new context after a fault");
        }
    }
}
