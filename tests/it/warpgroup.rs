//! Instructions of warpgroups: a kernel for each row, each way in which k can run in the tiles, and each swizzle.

use super::ptxas::{assemble, tools};
use super::tensor::{lowered, right};
use warploom::intrin::{self, Level, Place, Row};
use warploom::lower::print;
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
    let rows = intrin::all().iter().filter(|r| r.emit.is_some() && r.level == Level::Warpgroup);
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

#[test]
fn every_product_of_a_warpgroup_computes_what_it_means() {
    let all = probes();
    assert!(all.len() > 500, "{}", all.len());
    for (row, form) in all.into_iter().filter(|(row, _)| row.dims[1].1 <= 96) {
        let text = print(&right(&probe(row, form)));
        assert!(text.contains(&row.name), "{} {form:?}:\n{text}", row.name);
    }
}

#[test]
fn every_product_of_a_warpgroup_is_one_instruction() {
    let tools = tools();
    for (at, (row, form)) in probes().into_iter().enumerate().filter(|(at, _)| at % 7 == 0) {
        let schedule = probe(row, form);
        let ptx = compile(&schedule).unwrap_or_else(|e| panic!("{} {form:?}: {e}", row.name)).text;
        let types = row.name.splitn(3, '.').nth(2).unwrap_or_default();
        let name = format!("wgmma.mma_async.sync.aligned.m64n{}k{}.{types}", row.dims[1].1, row.dims[2].1);
        assert!(ptx.contains(&name), "{at} {name}\n{ptx}");
        assemble(&tools, &lowered(&schedule), &schedule.target, true)
            .unwrap_or_else(|e| panic!("{} {form:?}: {e}", row.name));
    }
}
