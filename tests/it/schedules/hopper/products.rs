//! Products on tensor cores of Hopper: the recipe's steps with random parts, and what it leaves out put in by hand.

use super::super::programs::Program;
use super::super::source::Source;
use warploom::DType;
use warploom::gemm::{Combine, Epilogue, Source as Route, SwapAb, Wgmma};
use warploom::te::{GemmSpec, Layout};

/// The most multiplications.
const WORK: i64 = 400_000;

const NAMES: [&str; 2] = ["A", "B"];

/// A product, and steps for it.
pub fn schedule(source: &mut Source) -> (Program, Vec<String>) {
    let mut spec = types(source);
    let mut parts = parts(&spec, source);
    while WORK < (0..2).map(|d| parts.block[d] * parts.cluster[d]).product::<i64>() * parts.bk {
        match parts.block[1] > 32 {
            true => parts.block[1] /= 2,
            false if parts.bk > 32 => parts.bk /= 2,
            false if parts.cluster != [1, 1] => parts.cluster = [1, 1],
            false => break,
        }
    }
    let sizes = sizes(&mut spec, &parts, source);
    let aligned = |n: i64, t: DType| n * i64::from(t.bits()) % 128 == 0;
    if source.chance(90) {
        if !aligned(spec.n, spec.out) {
            parts.epilogue = Epilogue::Direct;
        }
        let suited = Wgmma::of(&spec, parts.block, parts.warpgroups, &warploom::Target::sm_90a());
        parts.routes = suited.routes;
    }
    let (epilogues, inlined) = epilogues(&spec, source);
    let types = match (spec.a == spec.b, spec.acc == spec.out) {
        (true, true) => format!("{}>{}", spec.a, spec.acc),
        (true, false) => format!("{}>{}>{}", spec.a, spec.acc, spec.out),
        _ => format!("{}*{}>{}", spec.a, spec.b, spec.acc),
    };
    let (name, places) = match spec.batch {
        Some(_) => ("batched_gemm", "{0}x{1}x{2}x{3}"),
        None => ("gemm", "{0}x{1}x{2}"),
    };
    let template = format!("{name} {places} {types} {}{epilogues}", spec.layout.name());
    let text = inlined + &parts.steps(&spec).to_string();
    let mut steps: Vec<String> = text.split(['\n', ';']).map(|s| s.trim().to_string()).collect();
    steps.retain(|s| !s.is_empty());
    let mut made = Made { steps, spec, parts };
    made.vary(source);
    (Program { template, sizes }, made.steps)
}

fn types(source: &mut Source) -> GemmSpec {
    use DType::{Bf16, E4m3, E5m2, F16, F32, S8, S32, Tf32, U8};
    let [a, b, acc, out] = source.of([
        [F16, F16, F32, F16],
        [F16, F16, F32, F16],
        [Bf16, Bf16, F32, Bf16],
        [F16, F16, F32, F32],
        [F16, F16, F16, F16],
        [S8, S8, S32, S32],
        [U8, S8, S32, S32],
        [Tf32, Tf32, F32, F32],
        [E4m3, E4m3, F32, F16],
        [E5m2, E4m3, F32, F32],
    ]);
    let layout = if a.bits() == 8 && source.chance(70) { Layout::NT } else { source.of(Layout::ALL) };
    let batch = source.chance(20).then(|| 2 + source.below(2) as i64);
    GemmSpec::of(1, 1, 1, a, layout).types(a, b, acc, out).batch(batch)
}

fn parts(spec: &GemmSpec, source: &mut Source) -> Wgmma {
    let bytes = i64::from(spec.a.bits()) / 8;
    let (rows, warpgroups) = source.of([(64, 1), (64, 1), (128, 2), (128, 2), (128, 1), (192, 3)]);
    let columns = source.of([64, 64, 128, 32, 32, 16, 96, 192]);
    let stages = source.of([1, 2, 2, 3, 3, 4, 5, 6]);
    let parts = if spec.batch.is_none() && source.chance(15) { source.of([2, 3, 4]) } else { 1 };
    let combine = if parts > 1 { source.of([Combine::Kernel, Combine::Cluster]) } else { Combine::Kernel };
    let drawn = Wgmma {
        promoted: false,
        block: [rows, columns],
        warpgroups,
        pingpong: false,
        swap_ab: SwapAb::Straight,
        rows_in_registers: spec.a.bits() == 32 && spec.layout.a_transposed() && parts == 1,
        parts,
        combine,
        bk: source.of([128, 128, 64, 32]) / bytes,
        stages,
        in_flight: if source.chance(50) { 0 } else { source.below(4) as i64 },
        swizzle: source.of([128, 128, 128, 128, 64, 32, 0]),
        cluster: source.of([[1, 1], [1, 1], [2, 1], [2, 1], [1, 2], [2, 2], [4, 1]]),
        raster_group: source.of([0, 1, 2, 8]),
        persistent: source.chance(50),
        producer: source.chance(65),
        epilogue: if source.chance(70) { Epilogue::Tma } else { Epilogue::Direct },
        out_stages: 1 + source.below(3) as i64,
        routes: [Route::Direct; 2],
        promotion: source.of([None, None, Some(64), Some(128), Some(256)]),
        grid_dependency: source.of([0, 1, 2]),
        early_blocks: 0,
        l2_prefetch: source.chance(12),
        interleaved: None,
        widened: false,
    };
    match (parts, combine) {
        (1, _) => drawn,
        // Accumulators do not leave by TMA.
        (_, Combine::Kernel) => Wgmma { persistent: false, epilogue: Epilogue::Direct, ..drawn },
        // Blocks of a cluster that add parts up share no tiles by multicast.
        (_, Combine::Cluster) => {
            Wgmma { cluster: [1, 1], persistent: false, producer: false, epilogue: Epilogue::Direct, ..drawn }
        }
    }
}

/// Sizes of a few tiles, or what they do not divide; put into the product.
fn sizes(spec: &mut GemmSpec, parts: &Wgmma, source: &mut Source) -> Vec<usize> {
    let [bm, bn] = [0, 1].map(|side| parts.block[side] * parts.cluster[side]);
    let mut tiles = [1 + source.below(3), 1 + source.below(3), 1 + source.below(6)].map(|n| n as i64);
    let unit = [bm, bn, parts.bk * parts.parts];
    let work = |tiles: &[i64; 3]| (0..3).map(|d| tiles[d] * unit[d]).product::<i64>() * spec.products();
    while work(&tiles) > WORK && tiles != [1; 3] {
        let largest = (0..3).max_by_key(|d| tiles[*d]).unwrap_or(0);
        tiles[largest] -= 1;
    }
    let ragged = source.chance(30);
    let mut size = |d: usize| match ragged && source.chance(70) {
        // Some of them aligned for bulk copies.
        true => (tiles[d] * unit[d] - source.of([1, 8, 16, 17, 24])).max(1),
        false => tiles[d] * unit[d],
    };
    (spec.m, spec.n, spec.k) = (size(0), size(1), size(2));
    spec.sizes().iter().map(|n| *n as usize).collect()
}

/// Elementwise blocks behind the product, and the steps that inline them into the last.
fn epilogues(spec: &GemmSpec, source: &mut Source) -> (String, String) {
    if spec.acc == spec.out || spec.batch.is_some() || source.chance(60) {
        return Default::default();
    }
    let mut chosen = vec![("bias", "add_bias"), ("relu", "relu"), ("scale 2", "scale"), ("residual", "add_residual")];
    source.shuffle(&mut chosen);
    chosen.truncate(1 + source.below(3));
    let names: String = chosen.iter().map(|c| format!(" {}", c.0)).collect();
    (names, chosen.iter().map(|c| format!("compute_inline {}; ", c.1)).collect())
}

/// Steps that are varied further.
struct Made {
    steps: Vec<String>,
    spec: GemmSpec,
    parts: Wgmma,
}

impl Made {
    fn vary(&mut self, source: &mut Source) {
        self.swizzles(source);
        if self.parts.warpgroups > 1 && source.chance(30) {
            self.replace("bind iw warpgroup", |_| vec!["bind iw warpgroup pingpong".into()]);
        }
        let threads = self.roles(source);
        for (side, threads) in threads.into_iter().enumerate() {
            if source.chance(15) {
                self.copied_by_threads(side, threads, source);
            }
        }
        if source.chance(15) {
            self.a_in_registers(source);
        }
        if source.chance(20) {
            self.multicast(source);
        }
        if source.chance(25) {
            let step = source.of([
                "unroll kk",
                "unroll io",
                "unroll ep",
                "launch tile min_blocks=1",
                "launch tile min_blocks=2",
                "annotate k0 unroll_limit 4",
                "annotate tile zigzag 1",
                "annotate k0 spread 1",
                "annotate kk spread 1",
                "cache_read out bias shared -> bias_s; compute_at bias_s iw",
                "cache_read out bias shared -> bias_s; compute_at bias_s ep",
                "cache_read out residual shared -> residual_s; compute_at residual_s ep; copy_with residual_s tma",
                "unroll k0",
                "pipeline ep stages=3",
                "set_scope A_s local",
                "storage_align C_s 0 64 8",
                "bind ep warp",
                "bind kk warpgroup",
                "bind j0 blockIdx.y",
            ]);
            self.steps.extend(step.split("; ").map(str::to_string));
        }
    }

    /// Puts others in the place of the step that begins so.
    fn replace(&mut self, beginning: &str, by: impl Fn(&str) -> Vec<String>) {
        if let Some(at) = self.steps.iter().position(|s| s.starts_with(beginning)) {
            let others = by(&self.steps[at]);
            self.steps.splice(at..=at, others);
        }
    }

    /// A width of its own for each stage.
    fn swizzles(&mut self, source: &mut Source) {
        for stage in ["A_s", "B_s", "C_s"] {
            if source.chance(20) {
                let width = source.of([32, 64, 128]);
                self.replace(&format!("swizzle {stage}"), |_| vec![format!("swizzle {stage} {width}")]);
            }
        }
    }

    /// Who loads; the threads that a copy of each factor by threads would be shared out among.
    fn roles(&mut self, source: &mut Source) -> [i64; 2] {
        let warps = [1, 2].map(|_| source.of([1, 1, 2, 3, 4, 4]));
        let regs = match source.below(3) {
            0 if warps[0] == 4 => format!(" regs={}", source.of([24, 40, 56])),
            _ => String::new(),
        };
        let all = 128 * self.parts.warpgroups;
        let load = |what: &str, role: &str, warps: i64| format!("specialize {what} -> {role} warps={warps}{regs}");
        let (steps, threads) = match source.below(6) {
            // As the recipe has it.
            0 | 1 => return [128, 128].map(|n| if self.parts.producer { n } else { all }),
            2 | 3 => (vec![load("A_s B_s", "load", warps[0])], [32 * warps[0]; 2]),
            4 => (vec![load("A_s", "load", warps[0]), load("B_s", "second", warps[1])], [32 * warps[0], 32 * warps[1]]),
            _ => match source.below(2) {
                0 => (vec![load("A_s", "load", warps[0])], [32 * warps[0], all]),
                _ => (vec![load("B_s", "load", warps[0])], [all, 32 * warps[0]]),
            },
        };
        if self.parts.producer {
            self.replace("specialize", |_| steps.clone());
            return threads;
        }
        [all; 2]
    }

    /// A stage that threads fill, asynchronously or not, instead of the copy engine.
    fn copied_by_threads(&mut self, side: usize, threads: i64, source: &mut Source) {
        let x = NAMES[side];
        let l = x.to_lowercase();
        let lead = if self.spec.batch.is_some() { format!(" {l}2") } else { String::new() };
        let lanes = source.of([8, 8, 4, 2, 16]);
        let threads = if source.chance(85) { threads } else { source.of([32, 64, 128, 256]) };
        let placed = vec![
            format!("compute_at {x}_s k0 -> {l}0 {l}1{lead}"),
            format!("fuse {l}0 {l}1{lead} -> {l}e"),
            format!("split {l}e ? {threads} {lanes} -> {l}o {l}t {l}v"),
            format!("bind {l}t threadIdx.x"),
            format!("vectorize {l}v"),
        ];
        self.replace(&format!("compute_at {x}_s"), |_| placed.clone());
        self.steps.retain(|s| !s.starts_with(&format!("annotate {l}0 ")));
        let copies = if source.chance(70) { vec![format!("copy_with {x}_s cp_async")] } else { Vec::new() };
        self.replace(&format!("copy_with {x}_s"), |_| copies.clone());
    }

    /// Products whose first factor comes from registers, straight from device memory or behind its stage.
    fn a_in_registers(&mut self, source: &mut Source) {
        let sums = if self.spec.acc == self.spec.out { "C" } else { "mma" };
        let read = format!("cache_read {sums} A_s fragment -> A_f");
        self.replace("tensorize im wgmma.", |s| {
            vec![read.clone(), "compute_at A_f kk -> r0 r1".into(), s.replace("wgmma.", "wgmma_rs.")]
        });
        if source.chance(50) && self.spec.a.bits() == 16 {
            self.steps.extend(
                ["split r0 ? 16 -> rw rr", "split r1 ? 16 -> rk ri", "reorder rw rk rr ri", "bind rw warp"]
                    .map(str::to_string),
            );
            self.steps.push("tensorize rr ldmatrix.m16n16.f16".into());
        }
    }

    /// Shared by the blocks of a cluster, or not.
    fn multicast(&mut self, source: &mut Source) {
        for x in NAMES {
            let how = source.of(["", " multicast=ic", " multicast=jc"]);
            self.replace(&format!("copy_with {x}_s tma"), |_| vec![format!("copy_with {x}_s tma{how}")]);
        }
    }
}
