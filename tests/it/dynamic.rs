//! Dynamic sizes: one kernel for all values of M, run on the simulator at the ends of its tiles, and held against the naive program.

use super::cli::{bad, good};
use super::sample::{commit, everything};
use warploom::artifact::{Artifact, Variant};
use warploom::error::Code;
use warploom::gemm::{Gemm, Quantized, candidates, recommend, recommend_invariant, recommend_quantized};
use warploom::reference::{Sample, outputs};
use warploom::sim::{self, Mode, Options, Policy};
use warploom::te::Layout;
use warploom::{Array, DType, Schedule, Target, compile, lower};

/// The arrays of a program at a value of M, of small integers; outputs are poisoned.
fn arrays(schedule: &Schedule, m: i64) -> Vec<Array> {
    let program = schedule.program.at(&[m]).unwrap();
    let written = warploom::ir::visit::writes(&program.body);
    let one = |(n, id): (usize, &warploom::ir::BufferId)| {
        let buffer = program.buffer(*id);
        let shape: Vec<usize> = buffer.const_shape().unwrap().iter().map(|e| *e as usize).collect();
        match written.contains(id) {
            true => Array::poisoned(buffer.dtype, &shape).unwrap(),
            false => Array::random_integers(buffer.dtype, &shape, 2, n as u64 + 1).unwrap(),
        }
    };
    program.params.iter().enumerate().map(one).collect()
}

/// The kernels and the PTX at each value of M, in three orders with races looked for; and the steps in sequence, whose loops run to the largest M at
/// any value: at one value, drawn for the commit, or at each where everything is tried.
fn right(schedule: &Schedule, values: &[i64]) {
    let func = schedule.scheduled().unwrap();
    let lowered = lower::lower(&func, &schedule.target).unwrap_or_else(|e| panic!("{e}\n{schedule}"));
    let kernels = compile(schedule).unwrap();
    for (number, &m) in values.iter().enumerate() {
        let before = arrays(schedule, m);
        let wanted = outputs(&schedule.program, &before, Sample::All).unwrap();
        let check = |level: &str, after: &[Array]| {
            for output in &wanted {
                output.exact(&after[output.param]).unwrap_or_else(|e| panic!("{level}, M = {m}: {e}"));
            }
        };
        if everything() || number == commit() as usize % values.len() {
            let mut after = before.clone();
            sim::run_func(&func, Mode::Real, &mut after).unwrap_or_else(|e| panic!("steps, M = {m}: {e}"));
            check("steps", &after);
        }
        for policy in [Policy::InOrder, Policy::Reverse, Policy::Random(m as u64)] {
            let options = Options::new(Mode::Real).with_policy(policy).with_races(true);
            let mut after = before.clone();
            sim::run_lowered_with(&lowered, &options, &mut after).unwrap_or_else(|e| panic!("kernels, M = {m}: {e}"));
            check("kernels", &after);
            let mut after = before.clone();
            sim::run_ptx(&kernels, &options, &mut after).unwrap_or_else(|e| panic!("PTX, M = {m}: {e}"));
            check("PTX", &after);
        }
    }
}

fn schedule(text: &str) -> Schedule {
    text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"))
}

const ADD: &str = "program add
  size M in 1..=100
  input A f32[M, 64]
  input B f32[M, 64]
  output C[i M, j 64] f32 = A[i, j] + B[i, j]
target sm_80
split i ? 8 -> i0 i1
bind i0 blockIdx.x
bind i1 threadIdx.y
split j ? 4 -> j0 j1
bind j0 threadIdx.x
vectorize j1
";

#[test]
fn an_elementwise_program_runs_at_every_size() {
    let add = schedule(ADD);
    right(&add, &[1, 7, 8, 9, 64, 99, 100]);
    let kernels = compile(&add).unwrap();
    let grid = |m: i64| kernels.at(&[m]).unwrap().kernels[0].grid;
    assert_eq!([1, 8, 9, 100].map(grid), [[1, 1, 1], [1, 1, 1], [2, 1, 1], [13, 1, 1]]);
}

/// Rows at the ends of tiles of 8, 16, 64 and 128.
const ROWS: [i64; 7] = [1, 8, 17, 64, 65, 128, 130];

/// Products whose candidates are run: types, layout, chip, and the largest M with N and K.
fn products() -> Vec<(DType, Layout, Target, [i64; 3])> {
    vec![
        (DType::F16, Layout::NN, Target::sm_80(), [130, 96, 64]),
        (DType::Bf16, Layout::NT, Target::sm_90a(), [130, 128, 128]),
        (DType::F16, Layout::NN, Target::sm_90a(), [192, 72, 200]),
        (DType::F16, Layout::NT, Target::sm_90a(), [16, 256, 512]),
        (DType::F32, Layout::NN, Target::sm_80(), [130, 64, 48]),
        (DType::F32, Layout::NT, Target::sm_90(), [20, 33, 100]),
        (DType::S8, Layout::NT, Target::sm_80(), [130, 64, 64]),
        (DType::E4m3, Layout::NT, Target::sm_90a(), [130, 64, 128]),
        (DType::F16, Layout::NN, Target::sm_70(), [70, 64, 64]),
        (DType::F64, Layout::NN, Target::sm_90(), [40, 32, 32]),
        (DType::F16, Layout::NT, Target::sm_75(), [65, 31, 33]),
    ]
}

/// One candidate in so many is run where not everything is.
const STEP: usize = 41;

#[test]
fn candidates_are_right_for_every_number_of_rows() {
    let mut count = 0;
    for (dtype, layout, target, [m, n, k]) in products() {
        let gemm = Gemm::new(m, n, k).of(dtype).layout(layout).rows_from(1);
        let recommended = ("recommended".to_string(), recommend(&gemm, &target).unwrap());
        let all = std::iter::once(recommended).chain(candidates(&gemm, &target).unwrap());
        for (name, schedule) in all {
            count += 1;
            if name != "recommended" && !everything() && count % STEP != 0 {
                continue;
            }
            if name == "recommended" && m >= 130 {
                let kernels = compile(&schedule).unwrap();
                let blocks =
                    |rows: i64| kernels.at(&[rows]).unwrap().kernels.last().unwrap().grid.iter().product::<u32>();
                assert!(blocks(1) < blocks(m), "{schedule}");
            }
            println!("{} {target} {m}x{n}x{k} {layout:?}: {name}", dtype.name());
            right(&schedule, &ROWS.into_iter().filter(|rows| *rows <= m).collect::<Vec<_>>());
        }
    }
}

/// What a kernel loads of A, as text, if the first of a schedule's kernels loads A in boxes of a dynamic number of rows: the condition of a box, or its first row.
fn boxes_of_a(schedule: &Schedule) -> Option<(String, i64)> {
    let lowered = lower::lower(&schedule.scheduled().unwrap(), &schedule.target).ok()?;
    let kernel = &lowered.kernels[0];
    let rows = kernel.maps.iter().find(|map| map.dynamic.is_some())?.tile[0];
    Some((warploom::ir::print::stmts(&kernel.func, &kernel.func.body), rows))
}

/// TMA takes long for rows beyond the end of an array. A box that would begin there has the first rows of the array.
#[test]
fn boxes_beyond_a_dynamic_size_begin_at_the_first_rows() {
    for (dtype, size) in [(DType::F16, [128, 64, 192]), (DType::S8, [96, 64, 256])] {
        let gemm = Gemm::new(size[0], size[1], size[2]).of(dtype).layout(Layout::NT).rows_from(1);
        let all = candidates(&gemm, &Target::sm_90a()).unwrap();
        // Eight boxes at most of a tile of 64 rows and more.
        let divided = |schedule: &Schedule| {
            let (body, rows) = boxes_of_a(schedule)?;
            body.contains(&format!("% ((M + {}) // {rows}*{rows})", rows - 1)).then_some(rows)
        };
        let found = all.into_iter().find_map(|(name, schedule)| Some((name, divided(&schedule)?, schedule)));
        let (name, rows, schedule) = found.unwrap();
        println!("{name}: boxes of {rows}");
        assert!(rows % 8 == 0 && rows <= 16, "{name}: boxes of {rows}");
        right(&schedule, &[1, 15, 16, 17, 50, size[0] - 1, size[0]]);
    }
}

/// Where the rows of A are columns of MMAs, boxes beyond M are not loaded, and the MMAs have fewer columns.
#[test]
fn boxes_beyond_a_dynamic_size_are_left_out_where_they_are_columns() {
    for (dtype, k) in [(DType::F16, 512), (DType::Bf16, 256)] {
        let gemm = Gemm::new(128, 64, k).of(dtype).layout(Layout::NT).rows_from(1);
        let swapped = |(name, schedule): (String, Schedule)| {
            let (body, rows) = boxes_of_a(&schedule)?;
            let widths = (8..=128).step_by(8).filter(|n| body.contains(&format!("wgmma.m64n{n}k16"))).count();
            (widths > 2).then_some((name, rows, widths, schedule))
        };
        let (name, rows, widths, schedule) =
            candidates(&gemm, &Target::sm_90a()).unwrap().into_iter().find_map(swapped).unwrap();
        println!("{name}: boxes of {rows}, {widths} widths");
        // The boxes of a stage are one, by a tensor map for each number of rows.
        let lowered = lower::lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        let of_a = |kernel: &lower::LoweredKernel| {
            kernel.maps.iter().filter(|map| kernel.func.buffer(map.buffer).name == "A").count()
        };
        assert_eq!(of_a(&lowered.kernels[0]), widths, "{name}");
        let kernels = compile(&schedule).unwrap();
        let before = |first: &str, then: &str| kernels.text.find(first).unwrap() < kernels.text.find(then).unwrap();
        // The size is read where the block waits for its mbarriers, not behind that.
        assert!(before("@none exit", "bar.sync") || before("@none exit", "barrier.cluster"), "{}", kernels.text);
        right(&schedule, &[1, rows, rows + 1, 64, 127]);
    }
}

/// Two tiles that take boxes of 16 rows in turn.
const TURNS: &str = "program turns
  size M in 1..=96
  input A f16[M, 192]
  input B f16[128, 192]
  mma: acc[i M, j 128] f32 = sum(k 192) f32(A[i, k])*f32(B[j, k])
  out: output C[i M, j 128] f16 = f16(acc[i, j])
target sm_90a
pad mma i=96
compute_inline acc_pad
pad out out_i=96 -> acc_out C_pad
compute_inline acc_out
transform_layout acc_pad [i, j] -> [i // 16 % 2, i // 32*16 + i % 16, j]
transform_layout A_pad [i, k] -> [i // 16 % 2, i // 32*16 + i % 16, k]
transform_layout C_pad [i, j] -> [i // 16 % 2, i // 32*16 + i % 16, j]
transform_block_layout mma [i, j] -> [i // 16 % 2, i // 32*16 + i % 16, j] -> ib i j
transform_block_layout out [out_i, out_j] -> [out_i // 16 % 2, out_i // 32*16 + out_i % 16, out_j] -> ob oi oj
transform_block_layout A_pad [A_pad_0, A_pad_1] -> [A_pad_0 // 16 % 2, A_pad_0 // 32*16 + A_pad_0 % 16, A_pad_1] -> pb pi pk
split j ? 1 64 -> j0 jw jm
split k ? 4 16 -> k0 kk ki
reorder ib j0 jw k0 kk jm i ki
fuse ib j0 -> tile
bind tile blockIdx.x
bind jw warpgroup
launch tile grid_dependency=2
cache_read mma A_pad shared -> A_s
compute_at A_s k0 -> ar ak
split ar ? 16 -> ap ar2
compute_inline A_pad
swizzle A_s 128
copy_with A_s tma
cache_read mma B shared -> B_s
compute_at B_s k0
swizzle B_s 128
copy_with B_s tma
set_scope acc_pad fragment
cache_write out C_pad shared -> C_s
cache_write out C_s fragment -> C_f
reverse_compute_at out jw -> ex e0 en
reverse_compute_at C_f jw -> fx f0 f1
split f0 ? 16 -> fc fi
split f1 ? 16 -> fw fr
reorder fw fc fi fr
bind fw warp
tensorize fi stmatrix.trans.m16n16.f16
swizzle C_s 128
reverse_compute_at C_s jw -> sx s0 s1
split s0 ? 16 -> sp sr
copy_with C_s tma
tensorize jm wgmma.m64n48k16.f32.f16.f16 m=jm n=i k=ki
pipeline k0 stages=3 in_flight=1
reverse_compute_inline C_pad
";

#[test]
fn tiles_that_take_boxes_of_rows_in_turn_are_right_for_every_number_of_rows() {
    let turns = schedule(TURNS);
    right(&turns, &[1, 16, 17, 33, 64, 95, 96]);
    let loading = schedule(&format!("{TURNS}specialize A_s B_s -> load warps=1\n"));
    right(&loading, &[1, 31, 32, 49, 96]);
    // Two blocks of a cluster that share B; below 17 rows one of them has none.
    let shared = TURNS
        .replace("reorder ib j0 jw", "split ib ? 2 -> ib ic\nreorder ib j0 ic jw")
        .replace("bind jw warpgroup", "bind jw warpgroup\nbind ic cluster")
        .replace("copy_with B_s tma", "copy_with B_s tma multicast=ic");
    right(&schedule(&format!("{shared}specialize A_s B_s -> load warps=1\n")), &[1, 16, 17, 64, 95]);
    let in_eights = schedule(&TURNS.replace("1..=96", "8..=96 by 8"));
    right(&in_eights, &[8, 24, 96]);
    // Both tiles have work from the second box on.
    let kernels = compile(&turns).unwrap();
    let blocks = |m: i64| kernels.at(&[m]).unwrap().kernels[0].grid[0];
    assert_eq!([1, 16, 17, 96].map(blocks), [2, 2, 4, 4]);
}

/// Each number of boxes has a ring of its own, of as many stages as the bytes of the ring for all boxes have room for.
#[test]
fn fewer_boxes_have_more_stages() {
    let long = |terms: i64| TURNS.replace("192", &terms.to_string()).replace("stages=3", "stages=4");
    let rings = |schedule: &Schedule| {
        let kernel = lower::lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap().kernels.remove(0);
        let slots: Vec<u32> = kernel.func.mbarriers.iter().map(|array| array.slots).collect();
        let stages = |b: &warploom::ir::Buffer| Some((b.name.clone(), b.elements()?));
        let of_ring = |(name, _): &(String, i64)| name.starts_with("B_s");
        let of_b = kernel.func.buffers.iter().filter_map(stages).filter(of_ring).map(|(_, elements)| elements / 4096);
        (slots, of_b.collect::<Vec<_>>(), kernel.shared_bytes)
    };
    // Stages of 14 KiB with three boxes, of 10 with one, and room for several blocks.
    let alone = schedule(&long(512));
    assert_eq!(rings(&alone), (vec![5], vec![4, 5], 4 * 14336 + 5 * 8));
    right(&alone, &[1, 16, 17, 33, 64, 96]);
    // No more than all of the sum.
    assert_eq!(rings(&schedule(&long(320))).1, [4, 5]);
    assert_eq!(rings(&schedule(&long(256))).1, [4]);
    // A ring that fills shared memory grows up to its end: 227 KiB.
    let full = schedule(&long(2048).replace("stages=4", "stages=15"));
    let (slots, stages, bytes) = rings(&full);
    let filled = bytes <= 232_448 && bytes > 226 << 10;
    assert!(slots == [22] && stages == [15, 22, 18] && filled, "{slots:?} {stages:?} {bytes}");
    right(&full, &[1, 33, 96]);
    // A producer, blocks of a cluster that share B, of which one has a box more, and stages of two lines.
    let loading = |text: String| schedule(&format!("{text}specialize A_s B_s -> load warps=1\n"));
    let shared = |text: String| {
        text.replace("reorder ib j0 jw", "split ib ? 2 -> ib ic\nreorder ib j0 ic jw")
            .replace("bind jw warpgroup", "bind jw warpgroup\nbind ic cluster")
            .replace("copy_with B_s tma", "copy_with B_s tma multicast=ic")
    };
    let two_lines = |text: String| text.replace("split k ? 4 16", "split k ? 8 16");
    let two_lines = schedule(&two_lines(long(1024)));
    for (ring, wanted) in [(loading(long(512)), [4, 5]), (loading(shared(long(512))), [4, 5]), (two_lines, [8, 10])] {
        assert_eq!(rings(&ring).1, wanted, "{ring}");
        right(&ring, &[1, 16, 17, 32, 33, 48, 64, 80, 95]);
    }
}

/// Three groups of 96 rows, each of two tiles that take boxes of 16 rows in turn; `columns` of C and `terms` of k.
fn groups(columns: i64, terms: i64) -> String {
    let text = TURNS.replace("1..=96", "1..=288").replace("i=96", "i=288").replace("j 128", &format!("j {columns}"));
    let text = text.replace("[128, 192]", &format!("[{columns}, {terms}]")).replace("192", &terms.to_string());
    let in_groups = |text: String, i: &str| {
        let (of_range, of_group) =
            (format!("{i} // 16 % 2, {i} // 32*16"), format!("{i} // 96*2 + {i} // 16 % 2, {i} % 96 // 32*16"));
        text.replace(&of_range, &of_group)
    };
    ["i", "out_i", "A_pad_0"].into_iter().fold(text, in_groups)
}

/// All groups have equally many rows at every M, and their tiles boxes of equally many rows.
#[test]
fn groups_of_rows_are_right_for_every_number_of_rows() {
    let alone = schedule(&groups(128, 192));
    right(&alone, &[1, 96, 97, 130, 287]);
    right(&schedule(&format!("{}specialize A_s B_s -> load warps=1\n", groups(128, 192))), &[17, 96, 113, 288]);
    let grid = compile(&alone).unwrap();
    let blocks = |m: i64| grid.at(&[m]).unwrap().kernels[0].grid[0];
    assert_eq!([96, 97, 192, 288].map(blocks), [4, 8, 8, 12]);
    // 144 tiles for 132 multiprocessors: some blocks have one in two groups. Rows leave in three parts.
    let walked = groups(1536, 64)
        .replace("bind tile blockIdx.x", "bind tile blockIdx.x persistent")
        .replace("launch tile grid_dependency=2\n", "")
        .replace("-> ex e0 en", "-> ex e0 en; split e0 ? 16 -> ep e1")
        .replace("reverse_compute_at C_f jw", "reverse_compute_at C_f ep")
        .replace("reverse_compute_at C_s jw", "reverse_compute_at C_s ep")
        .replace("copy_with C_s tma", "copy_with C_s tma; pipeline ep stages=2");
    let walked = schedule(&format!("{walked}specialize A_s B_s -> load warps=1\n"));
    right(&walked, &[96, 97, 130, 193, 230, 288]);
    // Turns of 32 rows are divided evenly: 193 rows are three groups of at most three turns, 130 two.
    let kernel = lower::lower(&walked.scheduled().unwrap(), &walked.target).unwrap().kernels.remove(0);
    let size = kernel.func.sizes[0].var;
    let turns = kernel.derived.iter().find(|d| kernel.func.var_name(d.var) == "turns").unwrap();
    let at = |m: i64| turns.value.eval(&|v| (v == size).then_some(m));
    assert_eq!([1, 96, 97, 130, 192, 193, 288].map(at), [1, 3, 2, 3, 3, 3, 3].map(Some));
}

/// Where the largest size has more tiles than multiprocessors, blocks stay and walk the tiles that the launch's size has.
#[test]
fn blocks_that_stay_walk_the_tiles_of_every_size() {
    let mut tried = Vec::new();
    for (layout, [m, n, k]) in [(Layout::NT, [900, 640, 64]), (Layout::NN, [600, 1024, 72])] {
        let gemm = Gemm::new(m, n, k).of(DType::F16).layout(layout).rows_from(1);
        let all = candidates(&gemm, &Target::sm_90a()).unwrap();
        let stays = |(_, schedule): &&(String, Schedule)| schedule.to_string().contains("blockIdx.x persistent");
        for (name, schedule) in all.iter().filter(stays).take(if everything() { all.len() } else { 1 }) {
            right(schedule, &[1, 65, m]);
            let kernels = compile(schedule).unwrap();
            assert!(kernels.kernels.iter().any(|kernel| kernel.persistent), "{schedule}");
            tried.push(name.clone());
        }
    }
    assert!(tried.len() > 1, "{tried:?}");
}

#[test]
fn epilogues_read_rows_of_dynamic_arrays() {
    for target in [Target::sm_80(), Target::sm_90a()] {
        let text =
            format!("gemm 1..=130x64x64 f16>f32>f16 NT row_scales bias relu residual\ntarget {target}\nrecommend\n");
        right(&schedule(&text), &[1, 64, 65, 130]);
    }
}

/// An epilogue that reads the product in one branch of a select: in all rows and columns, or on one side of the diagonal.
#[test]
fn epilogues_select_at_every_size() {
    let chips =
        [("f16", Target::sm_70()), ("f16", Target::sm_80()), ("f32", Target::sm_80()), ("f16", Target::sm_90a())];
    for ((dtype, target), value) in chips
        .into_iter()
        .flat_map(|c| ["select(P[i, j] > 0, P[i, j], P[i, j]*2)", "select(i >= j, P[i, j], -1)"].map(|v| (c, v)))
    {
        let text = format!(
            "program p\nsize M in 1..=40\ninput X {dtype}[M, 32]; input W {dtype}[48, 32]
             P[i M, j 48] f32 = sum(k 32) f32(X[i, k])*f32(W[j, k])
             output Y[i M, j 48] f32 = {value}\ntarget {target}\nrecommend\n"
        );
        right(&schedule(&text), &[1, 16, 33, 40]);
    }
}

/// A size of one value, and orders of sums that no M changes.
#[test]
fn few_rows_have_a_dynamic_number() {
    let one = |dtype, target: Target| recommend(&Gemm::new(1, 64, 64).of(dtype).rows_from(1), &target).unwrap();
    for schedule in
        [one(DType::E4m3, Target::sm_70()), one(DType::E4m3, Target::sm_90a()), one(DType::F16, Target::sm_70())]
    {
        right(&schedule, &[1]);
    }
    let half = Gemm::new(16, 256, 16).of(DType::F16).layout(Layout::NT).rows_from(1);
    right(&recommend_invariant(&half, &Target::sm_70()).unwrap(), &[1, 7, 16]);
    let bytes = Gemm::new(8, 31, 64).of(DType::F16).output(DType::S8).layout(Layout::NT).rows_from(1);
    right(&recommend_invariant(&bytes, &Target::sm_90()).unwrap(), &[1, 8]);
}

#[test]
fn products_of_packed_weights_run_for_every_number_of_rows() {
    for (target, zeros) in [(Target::sm_90a(), false), (Target::sm_80(), true)] {
        let q = Quantized::new(80, 128, 256).groups(128).packed().rows_from(1);
        let q = if zeros { q.zeros() } else { q };
        assert_eq!(Quantized::describe(&q.program().unwrap()), Some(q));
        let schedule = recommend_quantized(&q, &target).unwrap();
        let text = schedule.to_string();
        assert!(text.contains("size M in 1..=80") && text.contains("mma"), "{text}");
        right(&schedule, &[1, 16, 33, 64, 80]);
        let kernels = compile(&schedule).unwrap();
        let blocks = |m: i64| kernels.at(&[m]).unwrap().kernels[0].grid.iter().product::<u32>();
        assert!(blocks(1) <= blocks(80) && kernels.sizes.len() == 1, "{text}");
    }
}

#[test]
fn dynamic_sizes_are_outermost_extents() {
    let refused = |text: &str, code: Code| {
        let error = text.parse::<Schedule>().unwrap_err();
        assert_eq!(error.code(), code, "{error}");
    };
    let program = |lines: &str| format!("program p\n  size M in 1..=64\n{lines}\ntarget sm_80\n");
    refused(&program("  input A f32[8, M]\n  output C[i 8] f32 = A[i, 0]"), Code::SizeForm);
    refused(&program("  input A f32[M, 8]\n  output C[j 8] f32 = sum(i M) A[i, j]"), Code::SizeForm);
    refused(&program("  input A f32[M, 8]\n  output C[j 8, i M] f32 = A[i, j]"), Code::SizeForm);
    refused(&program("  input A f32[M, 8]\n  output C[i M, j 8] f32 = A[i + 1, j]"), Code::VerifyBounds);
    refused(&program("  input A f32[8]\n  output C[i 8] f32 = A[i]"), Code::SizeForm);
    refused(
        "program p\n  size M in 9..=8\n  input A f32[M]\n  output C[i M] f32 = A[i]\ntarget sm_80\n",
        Code::SizeRange,
    );
    refused("gemm 1..=64x8x8 f16 TN\ntarget sm_80\n", Code::SizeForm);
}

/// One artefact whose ranges of M follow one another, with a kernel for one size alone.
#[test]
fn artefacts_choose_by_the_range_that_has_the_size() {
    let variant = |label: &str, rows: &str| {
        let text = format!("gemm {rows}x64x64 f16>f32>f16 NT\ntarget sm_80\nrecommend\n");
        let schedule = schedule(&text);
        Variant::new(compile(&schedule).unwrap(), schedule.to_string(), "19.1.0").labelled(label)
    };
    let artifact = Artifact::new(vec![variant("few", "1..=16"), variant("many", "17..=256"), variant("own", "64")]);
    let artifact = Artifact::from_bytes(&artifact.to_bytes().unwrap()).unwrap();
    assert_eq!(artifact.ambiguous(), None);
    let choose = |m: usize| {
        let shapes = [[m, 64], [64, 64], [m, 64]];
        let arrays = shapes.each_ref().map(|shape| (DType::F16, &shape[..]));
        artifact.choose("gemm", (8, 0), &arrays).map(|v| v.label.clone())
    };
    let labels = [1, 16, 17, 63, 64, 256].map(|m| choose(m).unwrap());
    assert_eq!(labels, ["few", "few", "many", "many", "own", "many"]);
    let refused = choose(257).unwrap_err();
    assert_eq!(refused.code(), Code::ArtifactChoice);
    assert!(refused.helps().iter().any(|h| h.contains("A f16[17..=256, 64]")), "{:?}", refused.helps());
    // What was read back runs, at a size that the arrays state.
    let read = &artifact.variants[1];
    let schedule: Schedule = read.schedule.parse().unwrap();
    for m in [17, 100] {
        let before = arrays(&schedule, m);
        let mut after = before.clone();
        sim::run_ptx(&read.kernels, &Options::new(Mode::Real), &mut after).unwrap();
        for output in outputs(&schedule.program, &before, Sample::All).unwrap() {
            output.exact(&after[output.param]).unwrap();
        }
    }
}

#[test]
fn the_command_line_sets_a_size() {
    let gemm = ["run", "--gemm", "1..=64x32x32", "--dtype", "f16", "--layout", "NT", "--target", "sm_80", "--device"];
    for device in ["cpu", "ptx"] {
        let out = good(&[&gemm[..], &[device, "--set", "M=17"]].concat());
        assert!(out.contains("gemm 1..=64x32x32 f16"), "{out}");
    }
    let (status, error) = bad(&[&gemm[..], &["cpu", "--set", "M=4", "--set", "M=5"]].concat());
    assert!(status == Some(2) && error.contains("[cli.value]") && error.contains("M is set twice"), "{error}");
    let (status, error) = bad(&[&gemm[..], &["cpu", "--set", "N=4"]].concat());
    assert!(status == Some(2) && error.contains("--set M=N sets its dynamic size"), "{error}");
    let (_, error) = bad(&[&gemm[..], &["cpu", "--set", "M=65"]].concat());
    assert!(error.contains("size.value") && error.contains("size M in 1..=64"), "{error}");
    let (_, error) = bad(&["dump", "--gemm", "1..=64x32x32", "--layout", "TN", "--dtype", "f16"]);
    assert!(error.contains("size.form") && error.contains("use layout NN or NT"), "{error}");
}

/// `--gemm` states multiples of M behind the range, and a run refuses other values.
#[test]
fn multiples_of_m_come_from_the_command_line() {
    let gemm = ["--gemm", "8..=64/8x32x32", "--dtype", "f16", "--layout", "NT", "--target", "sm_80"];
    let run = |m: &'static str| [&["run"], &gemm[..], &["--device", "cpu", "--set", m]].concat();
    assert!(good(&run("M=24")).starts_with("gemm 8..=64/8x32x32 f16>f32>f16 NT, "));
    let (status, error) = bad(&run("M=12"));
    assert!(status == Some(1) && error.contains("[size.value]") && error.contains("size M in 8..=64 by 8"), "{error}");
    let dump = [&["dump", "--emit", "schedule", "--epilogue", "relu"], &gemm[..]].concat();
    assert!(good(&dump).contains("size M in 8..=64 by 8\n"));
    for (size, why) in [
        ("8..=60/8x32x32", "60, is no multiple of 8"),
        ("8..=64/0x32x32", "is not a size such as"),
        ("8..=64/8", "is not a size such as"),
        ("64/8x32x32", "is not a size such as"),
    ] {
        let (_, error) = bad(&["run", "--device", "cpu", "--gemm", size, "--layout", "NT"]);
        assert!(error.contains(why), "{size}: {error}");
    }
}

/// `build` divides the range of M, and each M has the variant of its range.
#[test]
fn build_makes_a_kernel_for_each_range() {
    let folder = std::env::temp_dir().join(format!("warploom-ranges-{}", std::process::id()));
    let out = folder.to_str().unwrap();
    let gemm =
        ["build", "--gemm", "1..=600x512x256", "--dtype", "f16", "--layout", "NT", "--target", "sm_90a", "-o", out];
    let table = good(&[&gemm[..], &["--ranges", "3"]].concat());
    let artifact = Artifact::read(&folder).unwrap();
    let _ = std::fs::remove_dir_all(&folder);
    assert!((2..=3).contains(&artifact.variants.len()), "{table}");
    assert_eq!(artifact.ambiguous(), None);
    let sizes: Vec<[i64; 2]> =
        artifact.variants.iter().map(|v| [v.kernels.sizes[0].low, v.kernels.sizes[0].high]).collect();
    assert!(sizes[0][0] == 1 && sizes[sizes.len() - 1][1] == 600, "{sizes:?}");
    assert!(sizes.windows(2).all(|pair| pair[0][1] + 1 == pair[1][0]), "{sizes:?}");
    for m in [1, 64, 65, 255, 600] {
        let shapes = [[m, 256], [512, 256], [m, 512]];
        let arrays = shapes.each_ref().map(|shape| (DType::F16, &shape[..]));
        let chosen = artifact.choose("gemm", (9, 0), &arrays).unwrap();
        assert!(chosen.kernels.sizes[0].takes(m as i64), "{m}");
        let schedule: Schedule = chosen.schedule.parse().unwrap();
        let before = self::arrays(&schedule, m as i64);
        let mut after = before.clone();
        sim::run_ptx(&chosen.kernels, &Options::new(Mode::Real), &mut after).unwrap();
        for output in outputs(&schedule.program, &before, Sample::All).unwrap() {
            output.exact(&after[output.param]).unwrap_or_else(|e| panic!("M = {m}: {e}"));
        }
    }
    let one = good(&[&gemm[..], &["--ranges", "1"]].concat());
    let artifact = Artifact::read(&folder).unwrap();
    let _ = std::fs::remove_dir_all(&folder);
    assert_eq!(artifact.variants.len(), 1, "{one}");
    let (status, error) = bad(&[&gemm[..], &["--ranges", "0"]].concat());
    assert!(status == Some(2) && error.contains("--ranges"), "{error}");
    let measured = good(&[
        "bench",
        "--gemm",
        "1..=600x512x256",
        "--dtype",
        "f16",
        "--layout",
        "NT",
        "--target",
        "sm_90a",
        "--device",
        "cpu",
        "--ranges",
        "3",
        "--set",
        "M=1,5",
        "--json",
    ]);
    assert_eq!(measured.lines().count(), 2, "{measured}");
}

/// A file whose one step is `recommend` is divided, too, and its epilogue runs in each range.
#[test]
fn build_divides_the_range_of_a_file() {
    let folder = std::env::temp_dir().join(format!("warploom-file-ranges-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (file, out) = (folder.join("mlp.loom"), folder.join("out"));
    let program = "program mlp
  size M in 1..=300
  input A f16[M, 2048]; input B f16[256, 2048]; input bias f16[256]
  C[i M, j 256] f32 = sum(k 2048) f32(A[i, k])*f32(B[j, k])
  output D[i M, j 256] f16 = f16(max(C[i, j] + f32(bias[j]), 0))
target sm_90a
";
    let build = |steps: &str, more: &[&str]| {
        std::fs::write(&file, format!("{program}{steps}")).unwrap();
        let command = ["build", file.to_str().unwrap(), "-o", out.to_str().unwrap()];
        [&command[..], more].concat().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let words = |command: &[String]| good(&command.iter().map(String::as_str).collect::<Vec<_>>());
    let table = words(&build("recommend\n", &["--ranges", "3"]));
    let artifact = Artifact::read(&out).unwrap();
    let sizes: Vec<_> = artifact.variants.iter().map(|v| &v.kernels.sizes[0]).map(|s| (s.low, s.high)).collect();
    let follow = sizes.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0);
    assert!(sizes.len() == 3 && follow && sizes[0].0 == 1 && sizes[sizes.len() - 1].1 == 300, "{sizes:?}");
    assert!(table.contains(&format!("mlp_1.._{}", sizes[0].1)), "{table}");
    for m in sizes.iter().flat_map(|(low, high)| [*low, *high]) {
        let shapes = [vec![m as usize, 2048], vec![256, 2048], vec![256], vec![m as usize, 256]];
        let arrays: Vec<_> = shapes.iter().map(|shape| (DType::F16, &shape[..])).collect();
        let chosen = artifact.choose("mlp", (9, 0), &arrays).unwrap();
        let schedule: Schedule = chosen.schedule.parse().unwrap();
        let before = self::arrays(&schedule, m);
        let mut after = before.clone();
        sim::run_ptx(&chosen.kernels, &Options::new(Mode::Real), &mut after).unwrap();
        for output in outputs(&schedule.program, &before, Sample::All).unwrap() {
            output.exact(&after[output.param]).unwrap_or_else(|e| panic!("M = {m}: {e}"));
        }
    }
    let command = build("unroll k\n", &["--ranges", "2"]);
    let (status, error) = bad(&command.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(status == Some(2) && error.contains("cli.value") && error.contains("a line `recommend`"), "{error}");
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn bench_measures_at_values_of_a_size() {
    let gemm =
        ["bench", "--gemm", "1..=32x32x32,33..=64x32x32", "--dtype", "f16", "--layout", "NT", "--target", "sm_80"];
    let gemm = [&gemm[..], &["--device", "cpu"]].concat();
    let out = good(&[&gemm[..], &["--set", "M=40,3", "--fixed", "--json"]].concat());
    let rows: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let cells: Vec<[&str; 2]> =
        rows.iter().map(|row| ["schedule", "program"].map(|name| row[name].as_str().unwrap())).collect();
    let wanted = [
        ["recommended, M in 1..=32", "gemm 1..=32x32x32 f16>f32>f16 NT, M = 3"],
        ["recommended, M = 3", "gemm 3x32x32 f16>f32>f16 NT"],
        ["recommended, M in 33..=64", "gemm 33..=64x32x32 f16>f32>f16 NT, M = 40"],
        ["recommended, M = 40", "gemm 40x32x32 f16>f32>f16 NT"],
    ];
    assert_eq!(cells, wanted);
    let out = good(&gemm);
    assert!(out.contains("M = 32") && out.contains("M = 64"), "{out}");
    let (_, error) = bad(&[&gemm[..], &["--set", "M=65"]].concat());
    assert!(error.contains("cli.value") && error.contains("65 is no value of"), "{error}");
    let (_, error) = bad(&[&gemm[..], &["--set", "N=8"]].concat());
    assert!(error.contains("no schedule has a dynamic size N"), "{error}");
    let (_, error) = bad(&["bench", "--gemm", "32", "--fixed", "--device", "cpu"]);
    assert!(error.contains("no schedule has a dynamic size"), "{error}");
    let (_, error) = bad(&["bench", "--gemm", "1..=32x32x32", "--ladder", "--device", "cpu"]);
    assert!(error.contains("--ladder takes GEMMs of fixed sizes"), "{error}");
    // A large size is reduced with the others, and the value with its range.
    let large =
        ["--dtype", "f16", "--layout", "NT", "--target", "sm_80", "--device", "cpu", "--set", "M=4000", "--json"];
    let out = good(&[&["bench", "--gemm", "1..=8192x1024x1024"], &large[..]].concat());
    assert!(out.contains("gemm 1..=512x512x512 f16>f32>f16 NT, M = 512"), "{out}");
}

/// Validation runs the least value, the largest, and one between.
#[test]
fn validation_runs_several_values() {
    let validation = schedule(ADD).validate().unwrap();
    let text = validation.to_string();
    assert!(text.contains("(size M at 1, 6, 12)") && text.contains("the PTX"), "{text}");
}
