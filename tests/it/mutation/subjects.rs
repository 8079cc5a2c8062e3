//! The programs that are damaged: every example's kernels at small sizes, and what no example has.

use crate::cases::{compiling_examples, product_size};
use crate::hopper::{self, Subset};
use crate::lower::{NEIGHBOURS, TURNED, TWICE};
use crate::warpgroup;
use warploom::gemm::Wgmma;
use warploom::lower::{Lowered, lower};
use warploom::sim::naive_integers;
use warploom::te::{Known, Layout};
use warploom::{DType, Gemm, Result, Schedule, Target, gemm};

/// Programs with what no example has: a barrier of a warp, a parameter that threads exchange values through, buffers
/// that share bytes.
const PROGRAMS: [&str; 3] = [NEIGHBOURS, TURNED, TWICE];

/// Examples whose tiles are large: each run of a mutant takes long. What orders their warps is damaged with smaller tiles: in
/// the parts of the worked example, in [`narrow`] forms of two of them, and in the products of [`crate::register_prefetch`].
const TILES_ARE_LARGE: [&str; 8] = [
    "worked_example",
    "wgmma_f16_pingpong",
    "wgmma_f16_batched",
    "wgmma_f16_registers",
    "wgmma_s8",
    "mma_f16_tma",
    "mma_f16_in_place",
    "mma_b1",
];

/// A program to damage.
pub struct Subject {
    pub name: String,
    pub lowered: Lowered,
    /// What the naive program computes, for each seed of the inputs. A lost element of a sum changes it; that of a
    /// maximum only where it is the largest, so such programs run on several inputs.
    pub naive: Vec<Vec<Vec<u32>>>,
}

fn subject(name: String, schedule: &Schedule) -> Result<Subject> {
    let lowered = lower(&schedule.scheduled()?, &schedule.target)?;
    let text = warploom::lower::print(&lowered);
    let seeds = if text.contains("max(") || text.contains("min(") { 24 } else { 1 };
    let naive = (1..=seeds).map(|seed| naive_integers(&schedule.program, seed)).collect::<Result<_>>()?;
    Ok(Subject { name, lowered, naive })
}

/// The programs whose names are chosen; the others are not lowered.
pub fn subjects(chosen: &dyn Fn(&str) -> bool) -> Vec<Subject> {
    let mut out = Vec::new();
    for (name, schedule) in compiling_examples() {
        // Programs of their own have their sizes in their text: small ones come behind.
        let known = Known::of(&schedule.program).filter(|_| !TILES_ARE_LARGE.contains(&name.as_str()));
        let Some(known) = known else { continue };
        let product = matches!(known, Known::Gemm(_));
        let whole = product_size(&schedule, [64, 64, 32]);
        // Of a pipeline the smallest size with a full tile, many iterations and a last one.
        let sizes: &[&[i64]] = match (name.as_str(), product) {
            // (What survives at [35, 34, 18] has not been judged.)
            ("gemm_cp_async", _) => &[&[128, 128, 40]],
            // Two tiles.
            ("persistent_simt", _) => &[&[128, 256, 24]],
            // What tiles of 128 add to those of the seeds.
            ("ladder_registers" | "ladder_vectors" | "ladder_warps" | "ladder_pipelined", _) => &[&[128, 128, 24]],
            // A block that walks both tiles fills stages of the ring again.
            ("wgmma_e4m3", _) => &[&[128, 256, 288]],
            ("wgmma_e4m3_blocks", _) => &[&[128, 256, 384]],
            // A block goes through the ring twice, and its rest.
            ("window_sum_roles", _) => &[&[1024], &[1300]],
            (_, true) => &[&whole, &[35, 34, 18]],
            _ => &[&[256], &[333]],
        };
        let named = sizes.iter().enumerate().map(|(n, size)| (n, size, format!("{name} {size:?}")));
        for (n, size, title) in named.filter(|(_, _, title)| chosen(title)) {
            let made = schedule.resized(size).and_then(|s| subject(title, &s));
            match made {
                Ok(s) => out.push(s),
                // Some steps demand sizes that they divide.
                Err(e) => assert!(n > 0, "{name}: {e}"),
            }
        }
    }
    let mut add = |name: &str, make: &dyn Fn() -> Schedule| {
        if chosen(name) {
            out.push(subject(name.to_string(), &make()).unwrap());
        }
    };
    for text in PROGRAMS {
        let schedule = Schedule::parse(text).unwrap();
        add(&schedule.program.name, &|| schedule.clone());
    }
    for (name, _, text) in crate::programs::PROGRAMS {
        add(name, &|| Schedule::parse(text).unwrap());
    }
    for (name, text) in crate::copies::programs().into_iter().chain(crate::bulk::programs()) {
        add(name, &|| Schedule::parse(&text).unwrap());
    }
    for (name, size, parts) in PARTS {
        let subset = Subset { name: name.to_string(), parts, layout: Layout::NT };
        add(name, &|| hopper::schedule(&subset, size).unwrap());
    }
    for (name, _) in NARROW {
        add(&format!("{name} with narrow tiles"), &|| narrow_schedule(name));
    }
    for (name, schedule) in crate::register_prefetch::subjects() {
        add(name, &|| schedule.clone());
    }
    for (name, loaded_at, more) in warpgroup::FROM_REGISTERS {
        add(name, &|| warpgroup::from_registers(9, loaded_at, 1, more));
    }
    for (name, text) in ORDINARY {
        add(name, &|| Schedule::parse(text).unwrap());
    }
    for (size, layout, target) in PRODUCTS_BY_MMA {
        let [m, n, k] = size;
        add(&format!("recommended f16 {} {m}x{n}x{k} by mma", layout.name()), &|| by_mma(size, layout, &target));
    }
    out
}

/// Examples with what makes their tiles narrow: its name, and what it writes in the place of what.
type Narrow = (&'static str, &'static [(&'static str, &'static str)]);

/// Warpgroups that take turns, four tiles of two turns with a ring that does not end where it began; and bytes. With fewer tiles a turn
/// that is passed on by too few warps has no phase to mistake.
const NARROW: [Narrow; 2] = [
    (
        "wgmma_f16_pingpong",
        &[
            ("256x256x256", "128x64x192"),
            ("split j ? 128", "split j ? 16"),
            ("split en ? 64", "split en ? 16"),
            ("m64n128k16", "m64n16k16"),
            ("swizzle A_s B_s C_s 128", "swizzle A_s B_s 128; swizzle C_s 32"),
            ("stages=4 in_flight=1", "stages=3 in_flight=1"),
        ],
    ),
    (
        "wgmma_s8",
        &[
            ("512x512x1024", "128x64x512"),
            ("split j ? 128", "split j ? 32"),
            ("m64n128k32", "m64n32k32"),
            ("stages=4 in_flight=1", "stages=3 in_flight=1"),
        ],
    ),
];

/// One of [`NARROW`], by its name.
pub fn narrow_schedule(name: &str) -> Schedule {
    let (_, changes) = NARROW.into_iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("{name} is not narrow"));
    let text = crate::cases::examples().into_iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("{name}")).1;
    let text = changes.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{name} has no `{from}`");
        text.replace(from, to)
    });
    Schedule::parse(&text).unwrap()
}

/// Products by ordinary code, in tiles that do not change with the cost model: whole and ragged ones, of one warp, and of several, whose ring
/// barriers of all threads order.
const ORDINARY: [(&str, &str); 4] = [
    ("f32 NN 64x64x32", include_str!("products/f32_NN_64x64x32.loom")),
    ("f32 NT 33x35x18 in blocks of one warp", include_str!("products/f32_NT_33x35x18_one_warp.loom")),
    ("f32 NT 33x35x18 in blocks of eight warps", include_str!("products/f32_NT_33x35x18_eight_warps.loom")),
    ("f16 TN 64x32x16", include_str!("products/f16_TN_64x32x16.loom")),
];

/// Products with the recommended steps by mma.sync: size, layout and chip. A whole tile and a ragged one: by stmatrix with zeros filled in, and
/// with tiles that pass through registers.
const PRODUCTS_BY_MMA: [([i64; 3], Layout, Target); 2] =
    [([24, 56, 120], Layout::NN, Target::sm_90()), ([32, 64, 160], Layout::NT, Target::sm_75())];

fn by_mma([m, n, k]: [i64; 3], layout: Layout, target: &Target) -> Schedule {
    gemm::Kind::Mma.schedule(&Gemm::new(m, n, k).of(DType::F16).layout(layout), target).unwrap()
}

/// The parts of the worked example with tiles that the simulator runs in a moment, in the place of its own of 128 x 256: all
/// together, and without roles; and those of tiles of one wave, which each warp stores by itself.
const PARTS: [(&str, [i64; 3], Wgmma); 3] = [
    ("all parts of the worked example", [128, 128, 256], SMALL),
    ("the worked example without roles", [128, 128, 256], Wgmma { producer: false, ..SMALL }),
    ("a wave of the worked example's tiles", [128, 128, 448], Wgmma { persistent: false, ..SMALL }),
];

const SMALL: Wgmma = Wgmma { block: [64, 64], warpgroups: 1, stages: 3, ..Wgmma::LARGE };
