//! Instructions of warpgroups: a kernel for each row, each way in which k can run in the tiles, and each swizzle.

use super::ptxas::{assemble, tools};
use super::sample::drawn;
use super::tensor::{lowered, right};
use warploom::error::Code;
use warploom::intrin::{self, Action, Level, Place, Row};
use warploom::lower::print;
use warploom::sim::mutate;
use warploom::sim::{Mode, Options, Policy, integers_with};
use warploom::{Schedule, compile};

/// How the tiles of a probe lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// Whether k runs along the rows of A, and of B.
    pub along_k: [bool; 2],
    /// Bytes of a row of a panel.
    pub swizzle: u32,
}

/// Every form that a row can take: rows of tiles must be whole panels.
fn forms(row: &Row) -> Vec<Form> {
    let (n, from_registers) = (row.dims[1].1, matches!(row.operands[1].place, Place::Registers(_)));
    let crosses = row.operands[2].place == Place::Descriptor { across: true };
    let mut out = Vec::new();
    for swizzle in [128, 64, 32, 16] {
        for along_k in [[true, true], [true, false], [false, true], [false, false]] {
            let whole = along_k[1] || (2 * n) % i64::from(swizzle) == 0;
            if whole && (along_k[0] || !from_registers) && (crosses || along_k == [true, true]) {
                out.push(Form { along_k, swizzle });
            }
        }
    }
    out
}

/// Probes of all rows: some rows in every form, each of the others in one, by turns.
pub fn probes() -> Vec<(&'static Row, Form)> {
    let rows = intrin::all().iter().filter(|r| r.is_asynchronous() && r.level == Level::Warpgroup);
    let mut out = Vec::new();
    for (at, row) in rows.enumerate() {
        let forms = forms(row);
        match row.dims[1].1 {
            8 | 64 | 96 | 256 => out.extend(forms.into_iter().map(|f| (row, f))),
            _ => out.push((row, forms[at % forms.len()])),
        }
    }
    out
}

/// Four steps of k, so that three of them add to something, from tiles that the block copies to shared memory. Rows are those of
/// whole panels.
pub fn probe(row: &Row, form: Form) -> Schedule {
    let (n, step) = (row.dims[1].1, row.dims[2].1);
    let k = 4 * step;
    let program = row.program().unwrap();
    let [d, a, b] = ["D", "A", "B"].map(|name| program.buffer(program.find_buffer(name).unwrap()).dtype);
    let cast = |x: &str, t| if t == d { x.to_string() } else { format!("{d}({x})") };
    let [along_a, along_b] = form.along_k;
    let (shape_a, at_a) = if along_a { (format!("64, {k}"), "A[m, k]") } else { (format!("{k}, 64"), "A[k, m]") };
    let (shape_b, at_b) = if along_b { (format!("{n}, {k}"), "B[n, k]") } else { (format!("{k}, {n}"), "B[k, n]") };
    let stage = |x: &str| {
        format!(
            "cache_read D {x} shared -> {x}_s; compute_at {x}_s b -> {x}0 {x}1; fuse {x}0 {x}1 -> {x}e\n\
             split {x}e ? 128 {} -> {x}o {x}t {x}v; bind {x}t threadIdx.x; vectorize {x}v; swizzle {x}_s {}\n",
            step / 8,
            form.swizzle
        )
    };
    let of_a = match row.operands[1].place {
        Place::Descriptor { .. } => stage("A"),
        _ => "cache_read D A fragment -> A_f; compute_at A_f kk\n".to_string(),
    };
    let text = format!(
        "program probe\ninput A {a}[{shape_a}]; input B {b}[{shape_b}]\n\
         D: output D[m 64, n {n}] {d} = sum(k {k}) {} * {}\ntarget sm_90a\n\
         split m ? 64 -> b mi; split k ? {step} -> kk ki; reorder b kk mi n ki; bind b blockIdx.x\n\
         {of_a}{}cache_write D D fragment -> sum; reverse_compute_at sum b; tensorize mi {}",
        cast(at_a, a),
        cast(at_b, b),
        stage("B"),
        row.name
    );
    Schedule::parse(&text).unwrap_or_else(|e| panic!("{} {form:?}: {e}\n{text}", row.name))
}

/// Loads that the warps of a warpgroup share out, each by two warpgroups.
pub fn loads() -> impl Iterator<Item = (&'static Row, Schedule)> {
    let all = intrin::all().iter().filter(|r| r.level == Level::Warpgroup && r.action == Action::Copy);
    all.map(|row| {
        let ([m, n], dtype) = ([0, 1].map(|d| row.dims[d].1), row.program().unwrap().buffers[0].dtype);
        let text = format!(
            "program probe\ninput S {dtype}[{m}, {0}]\nD: output D[m {m}, n {0}] {dtype} = S[m, n]\ntarget sm_90a
             split m ? {m} -> b mi; split n ? {n} -> w ni; reorder b w mi ni; bind b blockIdx.x; bind w warpgroup
             cache_read D S shared -> S_s; compute_at S_s b -> s0 s1; fuse s0 s1 -> e
             split e ? 256 16 -> eo et ev; bind et threadIdx.x; vectorize ev; swizzle S_s 128
             cache_read D S_s fragment -> S_f; compute_at S_f w -> f0 f1; tensorize f0 {1}",
            2 * n,
            row.name
        );
        (row, Schedule::parse(&text).unwrap_or_else(|e| panic!("{}: {e}\n{text}", row.name)))
    })
}

#[test]
fn every_load_of_a_warpgroup_loads_what_it_means() {
    let tools = tools();
    let mut rows = 0;
    for (row, schedule) in loads() {
        let kernels = right(&schedule);
        assert!(print(&kernels).contains(&row.name), "{}", row.name);
        assemble(&tools, &kernels, &schedule.target, true).unwrap_or_else(|e| panic!("{}: {e}", row.name));
        rows += 1;
    }
    assert_eq!(rows, 8);
}

/// A tenth of the rows and forms up to 96 columns, as the commit draws them, and the first.
#[test]
fn every_product_of_a_warpgroup_computes_what_it_means() {
    let all = probes();
    assert!(all.len() > 500, "{}", all.len());
    let narrow = all.into_iter().filter(|(row, _)| row.dims[1].1 <= 96).enumerate();
    for (_, (row, form)) in
        narrow.filter(|(at, (row, form))| *at == 0 || drawn(&format!("{} {form:?} computes", row.name), 10))
    {
        let text = print(&right(&probe(row, form)));
        assert!(text.contains(&row.name), "{} {form:?}:\n{text}", row.name);
    }
}

/// A fortieth of the rows and forms, as the commit draws them, and the first.
#[test]
fn every_product_of_a_warpgroup_is_one_instruction() {
    let tools = tools();
    let chosen = |(at, (row, form)): &(usize, (&Row, Form))| *at == 0 || drawn(&format!("{} {form:?}", row.name), 40);
    for (at, (row, form)) in probes().into_iter().enumerate().filter(chosen) {
        let schedule = probe(row, form);
        let ptx = compile(&schedule).unwrap_or_else(|e| panic!("{} {form:?}: {e}", row.name)).text;
        let types = row.name.splitn(3, '.').nth(2).unwrap_or_default();
        let name = format!("wgmma.mma_async.sync.aligned.m64n{}k{}.{types}", row.dims[1].1, row.dims[2].1);
        assert!(ptx.contains(&name), "{at} {name}\n{ptx}");
        assemble(&tools, &lowered(&schedule), &schedule.target, true)
            .unwrap_or_else(|e| panic!("{} {form:?}: {e}", row.name));
    }
}

/// Products of 64 x 16 by one warpgroup whose left factor comes from registers, which are loaded from a ring of four slots: for a
/// step of 16 terms, or for two. More steps stand behind.
pub fn from_registers(trips: usize, loaded_at: &str, in_flight: u32, more: &str) -> Schedule {
    let k = 64 * trips;
    let text = format!(
        "gemm 128x32x{k} f16>f32>f32 NT
        target sm_90a
        split i ? 64 -> i0 im; split j ? 16 -> j0 jn; split k ? 2 2 16 -> k0 k1 kk ki; reorder i0 j0 k0 k1 kk im jn ki
        bind i0 blockIdx.y; bind j0 blockIdx.x
        cache_read C A shared -> A_s; compute_at A_s k0; cache_read C A_s fragment -> A_f; compute_at A_f {loaded_at}
        cache_read C B shared -> B_s; compute_at B_s k0
        cache_write C C fragment -> sum; reverse_compute_at sum j0
        tensorize im wgmma_rs.m64n16k16.f32.f16.f16 m=im n=jn k=ki; swizzle A_s B_s 128
        copy_with A_s tma; copy_with B_s tma; pipeline k0 stages=4 in_flight={in_flight}
        {more}"
    );
    Schedule::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

const AT_PAIRS: &str = "k1";
const AT_STEPS: &str = "kk";
const ROLE: &str = "specialize A_s B_s -> load warps=4 regs=40";

/// Products whose left factor comes from registers, with groups in flight: names, where they are loaded, and steps.
pub const FROM_REGISTERS: [(&str, &str, &str); 3] = [
    ("a factor from registers", AT_STEPS, ROLE),
    ("a factor from registers for two steps", AT_PAIRS, ROLE),
    ("a factor from registers without roles", AT_STEPS, ""),
];

/// With groups in flight, whatever touches the registers of a factor waits for the products that read them, and for nothing else. A sample of the
/// products runs, and the first in every run.
#[test]
fn factors_in_registers_stay_until_their_products_have_read_them() {
    let tools = tools();
    let waits = "wgmma_wait 0  # WAR A_f: MMAs in flight read the registers";
    for (at, (loaded_at, in_flight, more, expected)) in [
        (AT_STEPS, 1, "", 1),
        (AT_STEPS, 1, ROLE, 1),
        (AT_STEPS, 2, ROLE, 1),
        (AT_STEPS, 0, ROLE, 0),
        // The fragments of two steps; those of a step unrolled.
        (AT_PAIRS, 1, ROLE, 1),
        (AT_STEPS, 1, "unroll kk; specialize A_s B_s -> load warps=4 regs=40", 1),
    ]
    .into_iter()
    .enumerate()
    {
        for trips in [1, 4, 9] {
            let schedule = from_registers(trips, loaded_at, in_flight, more);
            let kernels = lowered(&schedule);
            let text = print(&kernels);
            // One trip is no loop, and leaves nothing in flight.
            let expected = if trips == 1 { 0 } else { expected };
            assert_eq!(text.matches(waits).count(), expected, "{schedule}\n{text}");
            if (at, trips) != (0, 4) && !drawn(&format!("registers {at} {trips}"), 3) {
                continue;
            }
            right(&schedule);
            assemble(&tools, &kernels, &schedule.target, true).unwrap_or_else(|e| panic!("{schedule}\n{e}"));
        }
    }
}

/// Registers of a factor that are loaded while a product reads them, or behind the fence of the product, are found.
#[test]
fn factors_that_change_under_their_products_are_found() {
    for (_, loaded_at, more) in FROM_REGISTERS {
        let whole = right(&from_registers(5, loaded_at, 1, more));
        for (damage, message) in [
            ("wgmma_wait 0 (WAR A_f: MMAs in flight read the registers) removed", "is in flight and uses the register"),
            (
                "wgmma_wait 0 (WAR A_f: MMAs in flight read the registers) allows 1 in flight",
                "is in flight and uses the register",
            ),
            ("wgmma_fence (accumulator registers, before the MMAs) moved up", "has not fenced the registers"),
        ] {
            let mutant = mutate::mutants(&whole).into_iter().find(|m| m.what.contains(damage));
            let damaged = mutant.unwrap_or_else(|| panic!("{damage}:\n{}", print(&whole))).lowered;
            for policy in [Policy::InOrder, Policy::Reverse, Policy::Random(3)] {
                let options = Options::new(Mode::Integer).with_policy(policy);
                let found = integers_with(&damaged, &options, 3).expect_err(damage);
                assert_eq!(found.code(), Code::SimWgmma, "{damage}: {found}");
                assert!(found.message().contains(message), "{damage}: {found}");
            }
        }
    }
}
