//! What the checks find: every example's kernels at small sizes, damaged one thing at a time as a faulty pass could.

use crate::cases::{product_size, uniform_examples};
use crate::lower::{NEIGHBOURS, TURNED, TWICE};
use std::collections::BTreeMap;
use std::time::Instant;
use warploom::lower::mutate::{Mutant, mutants};
use warploom::lower::{Lowered, lower, verify};
use warploom::machine::{Mode, Options, Policy, ring, ring_lowered_with};
use warploom::te::{Known, Layout};
use warploom::{DType, Gemm, Result, Schedule, Target, gemm};

/// Programs with what no example has: a barrier of a warp, a parameter that threads exchange values through, buffers
/// that share bytes.
const PROGRAMS: [&str; 3] = [NEIGHBOURS, TURNED, TWICE];

const POLICIES: [Policy; 3] = [Policy::InOrder, Policy::Reverse, Policy::Random(3)];

/// A program to damage.
struct Subject {
    name: String,
    lowered: Lowered,
    /// What the naive program computes, for each seed of the inputs. A lost element of a sum changes it; that of a
    /// maximum only where it is the largest, so such programs run on several inputs.
    naive: Vec<Vec<Vec<u32>>>,
}

fn subject(name: String, schedule: &Schedule) -> Result<Subject> {
    let lowered = lower(&schedule.scheduled()?, &schedule.target)?;
    let text = warploom::lower::print(&lowered);
    let seeds = if text.contains("max(") || text.contains("min(") { 24 } else { 1 };
    let naive = (1..=seeds).map(|seed| ring(&schedule.program, seed)).collect::<Result<_>>()?;
    Ok(Subject { name, lowered, naive })
}

fn subjects() -> Vec<Subject> {
    let mut out = Vec::new();
    for (name, schedule) in uniform_examples() {
        // Programs of their own have their sizes in their text.
        let Some(known) = Known::of(&schedule.program) else { continue };
        let product = matches!(known, Known::Gemm(_));
        let whole = product_size(&schedule, [64, 64, 32]);
        // Of a pipeline the smallest size with a full tile, many iterations and a last one.
        let sizes: &[&[i64]] = match (name.as_str(), product) {
            ("gemm_cp_async", _) => &[&[128, 128, 40], &[35, 34, 18]],
            // Two tiles.
            ("persistent_simt", _) => &[&[128, 256, 24]],
            // What tiles of 128 add to those of the seeds.
            ("ladder_registers" | "ladder_vectors" | "ladder_warps" | "ladder_pipelined", _) => &[&[128, 128, 24]],
            (_, true) => &[&whole, &[35, 34, 18]],
            _ => &[&[256], &[333]],
        };
        for (n, size) in sizes.iter().enumerate() {
            let made = schedule.resized(size).and_then(|s| subject(format!("{name} {size:?}"), &s));
            match made {
                Ok(s) => out.push(s),
                // Some steps demand sizes that they divide.
                Err(e) => assert!(n > 0, "{name}: {e}"),
            }
        }
    }
    for text in PROGRAMS {
        let schedule = Schedule::parse(text).unwrap();
        out.push(subject(schedule.program.name.clone(), &schedule).unwrap());
    }
    for (name, _, text) in crate::programs::PROGRAMS {
        out.push(subject(name.to_string(), &Schedule::parse(text).unwrap()).unwrap());
    }
    for (name, text) in crate::copies::programs() {
        out.push(subject(name.to_string(), &Schedule::parse(&text).unwrap()).unwrap());
    }
    out.extend(PRODUCTS_OF_RECIPES.iter().map(recommended));
    out
}

/// Products with the steps of a kind: size, type, layout, kind and chip. Those on tensor cores are a whole tile and a ragged
/// one: by stmatrix with zeros filled in, and with tiles that pass through registers.
const PRODUCTS_OF_RECIPES: [([i64; 3], DType, Layout, gemm::Kind, Target); 5] = [
    ([64, 64, 32], DType::F32, Layout::NN, gemm::Kind::Simt, Target::sm_80()),
    ([33, 35, 18], DType::F32, Layout::NT, gemm::Kind::Simt, Target::sm_80()),
    ([64, 32, 16], DType::F16, Layout::TN, gemm::Kind::Simt, Target::sm_80()),
    ([24, 56, 120], DType::F16, Layout::NN, gemm::Kind::Mma, Target::sm_90()),
    ([32, 64, 160], DType::F16, Layout::NT, gemm::Kind::Mma, Target::sm_75()),
];

fn recommended(product: &([i64; 3], DType, Layout, gemm::Kind, Target)) -> Subject {
    let ([m, n, k], dtype, layout, kind, target) = *product;
    let schedule = kind.schedule(&Gemm::new(m, n, k).of(dtype).layout(layout), &target).unwrap();
    let by = if kind == gemm::Kind::Simt { String::new() } else { format!(" by {}", kind.name()) };
    subject(format!("recommended {dtype} {} {m}x{n}x{k}{by}", layout.name()), &schedule).unwrap()
}

/// What finds a mutant: the verifier, a code of the machine, or the result; `None` where nothing does.
fn found(lowered: &Lowered, naive: &[Vec<Vec<u32>>], policy: Policy) -> Option<String> {
    if let Some(error) = lowered.kernels.iter().find_map(|k| verify(k).err()) {
        return Some(error.code().to_string());
    }
    let options = Options { policy, ..Options::new(Mode::Ring) };
    naive.iter().zip(1..).find_map(|(wanted, seed)| match ring_lowered_with(lowered, &options, seed) {
        Err(error) => Some(error.code().to_string()),
        Ok(elements) => (elements != *wanted).then(|| "other result".to_string()),
    })
}

/// Why a mutant that nothing finds computes the same.
const REGISTERS: &str =
    "what is guarded sets registers of threads that own no element of the result: nothing reads them";
const IDLE: &str = "a guard stops each statement of the threads and blocks beyond the edge: they need not exist";
const STOPPED: &str = "the guards inside let no statement run in a further iteration";
const ENOUGH: &str = "the size needs 18 iterations, and the guard inside stops the others";
const FEWER: &str = "the size needs fewer iterations than the tile has, and the guards inside stop the others";
const ANYONE: &str = "another thread of the block does it alone";
const SAME_QUOTIENT: &str = "the end of the full groups, one further on, has the same quotients";
const AHEAD: &str = "it moves past a load into registers, which no other thread reads";
const BEYOND: &str = "rows of a tile beyond the edge of the result, which are cut off";
const ROUNDED: &str = "it moves past the rounding of sums, which stays in registers";
const PRODUCTS: &str = "it moves past products, which stay in registers";
const NEXT_SLOT: &str = "what it fills too much is a slot that is filled anew before it is read";
const BESIDE: &str = "columns of a tile beyond the edge of the result, which are cut off";
const ANEW: &str = "the register is loaded anew before it is used";
const OTHER_SLOT: &str = "what was read last lies in another slot than the bytes that the result takes";
const LONE: &str = "the grid has one tile, whose addresses do not ask for its number";
const LONE_ROW: &str = "the tiles lie in one row, whose number no address asks for";
const ZEROS: &str = "it moves past the zeros that sums begin with, which stay in registers";
const MARGIN: &str = "A ends with an element that no sum contains; it need not be fetched";
const FROM_ZERO: &str = "these are the first products: the sums that they are added to are all zero";

/// The survivors: subject, class, what was damaged, and why it cannot change a result. Each was looked at.
const EQUAL: &[(&str, &str, &str, &str)] = &[
    ("d2l [64, 64, 32]", "guard", "`if threadIdx.y < 8`", REGISTERS),
    ("d2l [35, 34, 18]", "guard", "xi_init < 35 and threadIdx.x*4 + yi_init < 34`", REGISTERS),
    ("mlc_local [35, 34, 18]", "guard", "i_2_init < 35 and threadIdx.x*8 + j_2_init < 34`", REGISTERS),
    ("mlc_shared [35, 34, 18]", "guard", "i_2_init < 35 and threadIdx.x % 8*8 + j_2_init < 34`", REGISTERS),
    ("recommended f32 NT 33x35x18", "guard", "i_2_init < 33 and", REGISTERS),
    ("d2l [35, 34, 18]", "loop", "loop ki runs", ENOUGH),
    ("step2", "loop", "loop k_inner runs", ENOUGH),
    ("auto_", "loop", "loop kl runs 15 times", FEWER),
    ("auto_", "loop", "loop kl runs 17 times", FEWER),
    ("auto_f16_wmma", "loop", "loop kl runs 7 times", FEWER),
    ("auto_f16_wmma", "loop", "loop kl runs 9 times", FEWER),
    ("auto_f16_wmma [35, 34, 18]", "loop", "loop bg runs 4 times", STOPPED),
    ("auto_f16_wmma [35, 34, 18]", "launch", "threadIdx.z", IDLE),
    (
        "persistent_mma",
        "barrier moved",
        "(WAR A_s: A_s writes bytes that C_s used as C_s in the iteration before) moved up",
        ZEROS,
    ),
    ("persistent_", "walk", "i0 became 1", LONE_ROW),
    ("auto_s4 [35, 34, 18]", "loop", "loop av runs", FEWER),
    ("auto_s4 [35, 34, 18]", "loop", "loop bv runs", FEWER),
    ("auto_s4 [35, 34, 18]", "loop", "loop ki runs", FEWER),
    ("gpu_v3 [35, 34, 18]", "loop", "loop ko runs 4 times", STOPPED),
    ("mlc_local [35, 34, 18]", "loop", "loop k_0 runs 6 times", STOPPED),
    ("mlc_shared [35, 34, 18]", "loop", "loop k_0 runs 4 times", STOPPED),
    ("mlc_shared [35, 34, 18]", "loop", "loop a_0 runs 3 times", STOPPED),
    ("mlc_shared [35, 34, 18]", "loop", "loop b_0 runs 3 times", STOPPED),
    ("window_sum_cooperative", "loop", "loop ax0_0 runs 3 times", STOPPED),
    ("elementwise blocks inlined into the last", "loop", "loop k_0 runs 6 times", STOPPED),
    ("recommended f32 NT 33x35x18", "loop", "loop k_0 runs 3 times", STOPPED),
    ("f16 NN 24x56x120 by mma", "guard", "B[b_0*448 + threadIdx.x // 8*56", BESIDE),
    ("f16 NN 24x56x120 by mma", "loop", "loop a_0 runs 5 times", NEXT_SLOT),
    ("f16 NN 24x56x120 by mma", "loop", "loop b_0 runs 9 times", NEXT_SLOT),
    ("f16 NN 24x56x120 by mma", "loop", "loop gm runs 3 times", ANEW),
    ("f16 NN 24x56x120 by mma", "loop", "loop s_0 runs 3 times", BEYOND),
    ("f16 NN 24x56x120 by mma", "loop", "loop s_0 runs 5 times", STOPPED),
    ("f16 NN 24x56x120 by mma", "barrier", "(WAR C_s: C_f writes bytes that B_f used as B_s)", OTHER_SLOT),
    ("f16 NT 32x64x160 by mma", "barrier moved", "(WAR C_s: out writes bytes that B_f used as B_s) moved up", PRODUCTS),
    ("by mma", "walk", "0 became 1", LONE),
    ("blocks walked in groups", "loop", "loop k_0 runs 4 times", STOPPED),
    ("blocks walked in groups", "walk", "_0 became min(blockIdx.x, 21) ", SAME_QUOTIENT),
    ("steps of registers", "loop", "loop B_r_1 runs 5 times", ANEW),
    ("copies between the steps of registers", "read moved", "= C_l[j2 + 1] + A_r[0]", FROM_ZERO),
    ("copies between the steps of registers", "read moved", "= C_l[4 + j2 + 1] + A_r[1]", FROM_ZERO),
    ("copies between the steps of registers", "read moved", "= C_l[8 + j2 + 1] + A_r[2]", FROM_ZERO),
    ("rows filled up", "loop", "loop k1 runs 15 times", "the last elements of a row are the zeros"),
    ("ladder_pipelined", "barrier moved", "(RAW A_s: C reads what A_s wrote) moved up", AHEAD),
    ("a maximum of maxima", "loop", "loop k_1 runs 26 times", "an element in two maxima is in their maximum once"),
    ("mma_f16_ragged [35, 34, 18]", "loop", "loop im runs 3 times", BEYOND),
    ("mma_f16_ragged [35, 34, 18]", "loop", "loop om runs 3 times", BEYOND),
    ("mma_f16_ragged [35, 34, 18]", "loop", "loop s_0 runs 7 times", BEYOND),
    ("mma_f16_ragged [35, 34, 18]", "loop", "loop s_0 runs 9 times", STOPPED),
    ("mma_f16_ragged [128, 128, 160]", "barrier moved", "(RAW A_s: A_f reads what A_s wrote", AHEAD),
    ("mma_f16_stmatrix", "barrier moved", "(WAR C_s: C_f writes bytes that A_f used as A_s) moved up", ROUNDED),
    ("wmma_f16 [128, 128, 160]", "barrier moved", "(RAW A_s: A_f reads what A_s wrote", AHEAD),
    ("wmma_f16 [128, 128, 160]", "loop", "loop b_0 runs 3 times", NEXT_SLOT),
    ("wmma_s8 [128, 128, 160]", "barrier moved", "(WAR C_s: acc writes bytes that A_f used as A_s) moved up", PRODUCTS),
    ("[35, 34, 18]", "launch", "blockIdx", IDLE),
    ("[333]", "launch", "blockIdx", IDLE),
    ("elementwise blocks inlined into the last", "launch", "blockIdx", IDLE),
    ("a batch over blockIdx.z", "launch", "blockIdx", IDLE),
    ("recommended f32 NT 33x35x18", "launch", "blockIdx", IDLE),
    ("d2l [35, 34, 18]", "launch", "threadIdx", IDLE),
    ("mlc_local [35, 34, 18]", "launch", "threadIdx", IDLE),
    ("split_k [64, 64, 32]", "barrier moved", "(RAW B_s: P reads what B_s wrote) moved up", AHEAD),
    ("window_sum_shared", "guard", "became `if threadIdx.x == 1`", ANYONE),
    ("a minimum over shared memory", "guard", "became `if threadIdx.x == 1`", ANYONE),
    ("window_sum_cooperative [333]", "guard", "became `if blockIdx.x*128 + ax0_0*128 + threadIdx.x < 335 and", MARGIN),
    ("window_sum_shared [333]", "guard", "became `if blockIdx.x*128 + ax0 < 335`", MARGIN),
];

/// Counts what was found.
#[derive(Default)]
struct Score {
    by_kind: BTreeMap<&'static str, (u32, u32)>,
    by_check: BTreeMap<String, u32>,
    survivors: Vec<(String, &'static str, String)>,
}

impl Score {
    fn count(&mut self, subject: &Subject, mutant: Mutant, found: Option<String>) {
        let entry = self.by_kind.entry(mutant.kind).or_default();
        entry.1 += 1;
        match found {
            Some(check) => {
                entry.0 += 1;
                *self.by_check.entry(check).or_default() += 1;
            }
            None => self.survivors.push((subject.name.clone(), mutant.kind, mutant.what)),
        }
    }

    fn totals(&self) -> (u32, u32) {
        self.by_kind.values().fold((0, 0), |(a, b), (caught, all)| (a + caught, b + all))
    }
}

fn is_of(entry: &(&str, &str, &str, &str), survivor: &(String, &str, String)) -> bool {
    survivor.0.contains(entry.0) && survivor.1.starts_with(entry.1) && survivor.2.contains(entry.2)
}

#[test]
fn damage_is_found() {
    let (start, mut score) = (Instant::now(), Score::default());
    for s in subjects() {
        for policy in POLICIES {
            assert_eq!(found(&s.lowered, &s.naive, policy), None, "{} is not damaged", s.name);
        }
        for mutant in mutants(&s.lowered) {
            let [check, others @ ..] = POLICIES.map(|p| found(&mutant.lowered, &s.naive, p));
            let same = others.iter().all(|o| o.is_some() == check.is_some());
            assert!(same, "{}: {}: the order drawn decides: {check:?}, {others:?}", s.name, mutant.what);
            score.count(&s, mutant, check);
        }
    }
    for (kind, (caught, all)) in &score.by_kind {
        eprintln!("{kind:>16}: {caught} of {all}");
    }
    let (caught, all) = score.totals();
    eprintln!("{caught} of {all} mutants found, {:.1?}; by {:?}", start.elapsed(), score.by_check);
    for survivor in &score.survivors {
        let why = EQUAL.iter().find(|e| is_of(e, survivor)).map_or("??", |e| e.3);
        eprintln!("{}: {}: {}\n    {why}", survivor.0, survivor.1, survivor.2);
    }
    let unknown: Vec<_> = score.survivors.iter().filter(|s| !EQUAL.iter().any(|e| is_of(e, s))).collect();
    assert!(unknown.is_empty(), "nothing finds {unknown:#?}");
    let stale: Vec<_> = EQUAL.iter().filter(|e| !score.survivors.iter().any(|s| is_of(e, s))).collect();
    assert!(stale.is_empty(), "no survivor is {stale:#?}");
    assert!(all > 1500 && caught * 100 >= all * 95, "{caught} of {all}");
}
