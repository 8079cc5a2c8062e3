//! Opaque fragments: kernels for the instructions that load, multiply and store them, products through them, and what
//! lowering says where a program asks for the place of an element.

use super::tensor::{first_chip, lowered, refused, right, term};
use warploom::intrin::{self, Action, Place, Row};
use warploom::lower::print;
use warploom::{DType, Schedule};

/// Whether an instruction loads what can only be multiplied.
pub fn is_load_of_factor(row: &Row) -> bool {
    let Place::Opaque(to) = &row.operands[0].place else { return false };
    row.action == Action::Copy && !to.kind.starts_with("sum")
}

fn dtype(row: &Row, operand: &str) -> DType {
    let program = row.program().unwrap();
    program.buffer(program.find_buffer(operand).unwrap()).dtype
}

/// The instruction of a word, matrix and major that goes with a product, of the product's shape.
fn partner(row: &Row, word: &str, matrix: &str, major: &str, dtype: DType) -> String {
    let shape = row.name.split('.').nth(4).unwrap();
    let name = format!("wmma.{word}.{matrix}.{major}.{shape}.{dtype}");
    assert!(intrin::find(&name).is_some(), "{name}");
    name
}

/// Two steps of k, so that the second one adds to something; everything between device memory and fragments by the
/// instructions that go with the product.
pub fn product(row: &Row) -> (String, String) {
    let [m, n, k] = [0, 1, 2].map(|d| row.dims[d].1);
    let [d, a, b] = ["D", "A", "B"].map(|o| dtype(row, o));
    let [major_a, major_b] = [2, 3].map(|n| row.name.split('.').nth(n).unwrap());
    let depth = 2 * k;
    let (shape_a, at_a) = if major_a == "row" { ([m, depth], "m, k") } else { ([depth, m], "k, m") };
    let (shape_b, at_b) = if major_b == "col" { ([n, depth], "n, k") } else { ([depth, n], "k, n") };
    let text = format!(
        "program probe\ninput A {a}{shape_a:?}; input B {b}{shape_b:?}\n\
         D: output D[m {m}, n {n}] {d} = sum(k {depth}) {}",
        term(row, [d, a, b], [&format!("A[{at_a}]"), &format!("B[{at_b}]")])
    );
    let store = partner(row, "store", "d", "row", d);
    // Rows of fewer than 16 bytes are padded on the way.
    let factor = |x: &str, major: &str, dtype: DType, columns: i64| {
        let load = partner(row, "load", &x.to_lowercase(), major, dtype);
        let chunk = 128 / i64::from(dtype.bits());
        let from = if columns < chunk {
            format!(
                "cache_read D {x} shared -> {x}_s; compute_at {x}_s ko; storage_align {x}_s 0 {chunk} 0; cache_read D {x}_s fragment -> {x}_f"
            )
        } else {
            format!("cache_read D {x} fragment -> {x}_f; compute_at {x}_f ko ->")
        };
        format!("{} {x}0 {x}1; tensorize {x}0 {load}\n", from)
    };
    let steps = format!(
        "split m ? {m} -> b mi; split k ? {k} -> ko ki; reorder b ko mi n ki; bind b blockIdx.x\n{}{}\
         cache_write D D fragment -> sum; reverse_compute_at sum b -> s0 s1; tensorize s0 {store}\n\
         decompose_reduction D ko -> zero; tensorize mi {}",
        factor("A", major_a, a, shape_a[1]),
        factor("B", major_b, b, shape_b[1]),
        row.name
    );
    (text, steps)
}

/// A sum from device memory through shared memory and a fragment back.
pub fn copy(row: &Row) -> (String, String) {
    let [(i, m), (j, n)] = [row.dims[0], row.dims[1]];
    let dtype = dtype(row, "S");
    let text = format!("program probe\ninput S {dtype}[{m}, {n}]\nD: output D[{i} {m}, {j} {n}] {dtype} = S[{i}, {j}]");
    let (load, store) = (row.name.replace("store.d", "load.c"), row.name.replace("load.c", "store.d"));
    let steps = format!(
        "split {i} ? {m} -> b x; bind b blockIdx.x; cache_read D S shared -> S_s; compute_at S_s b -> s0 s1\n\
         fuse s0 s1 -> s; split s ? 32 -> so st; bind st threadIdx.x\n\
         cache_read D S_s fragment -> S_f f0 f1; tensorize f0 {load}; tensorize x {store}"
    );
    (text, steps)
}

/// Loads of factors stand in the kernels of products, every one of them.
#[test]
fn every_load_of_a_factor_stands_in_a_product() {
    let products = super::tensor::rows().filter(|r| r.action == Action::MultiplyAdd && r.name.starts_with("wmma."));
    let texts: Vec<String> = products.map(|r| product(r).1).collect();
    let loads: Vec<&Row> = intrin::all().iter().filter(|r| is_load_of_factor(r)).collect();
    assert!(loads.len() >= 48 && texts.len() >= 60, "{} {}", loads.len(), texts.len());
    for load in loads {
        assert!(texts.iter().any(|t| t.contains(&load.name)), "{}", load.name);
    }
}

const FACTORS: &str = "cache_read C A shared -> A_s; compute_at A_s jo -> a0 a1; cache_read C A_s fragment -> A_f f0 f1\n\
    cache_read C B shared -> B_s; compute_at B_s jo -> b0 b1; cache_read C B_s fragment -> B_f g0 g1\n";
const LOADS: &str = "tensorize f0 wmma.load.a.row.m16n16k16.f16; tensorize g0 wmma.load.b.col.m16n16k16.f16\n";
const STORE: &str = "tensorize o0 wmma.store.d.row.m16n16k16.f32\n";
const PRODUCT: &str = "decompose_reduction C ii -> zero; tensorize ii wmma.mma.row.col.m16n16k16.f32.f16.f16\n";

/// A product of one tile a block; `head` is its program, `sum` says how its result leaves the fragment.
fn tile(head: &str, factors: &str, loads: &str, sum: &str) -> String {
    format!(
        "{head}\ntarget sm_70\nsplit i ? 16 -> io ii; split j ? 16 -> jo ji; reorder io jo ii ji k; bind io blockIdx.x; bind jo blockIdx.y\n\
         cache_write C C fragment -> acc; reverse_compute_at acc jo -> o0 o1\n{factors}{loads}{sum}{PRODUCT}"
    )
}

const GEMM: &str = "gemm 32x16x16 f16>f32>f32 NT";

#[test]
fn what_treats_all_elements_alike_runs_on_the_registers() {
    let relu = "program p\ninput A f16[32, 16]; input B f16[16, 16]\n\
        C: c[i 32, j 16] f32 = sum(k 16) f32(A[i, k]) * f32(B[j, k])\n\
        R: output R[i, j] f32 = max(c[i, j], 0.0) * 0.5";
    let text = format!(
        "{relu}\ntarget sm_70\nsplit i ? 16 -> io ii; split j ? 16 -> jo ji; reorder io jo ii ji k; bind io blockIdx.x; bind jo blockIdx.y\n\
         set_scope c fragment; cache_write R R fragment -> out; reverse_compute_at R jo -> r0 r1; reverse_compute_at out jo -> o0 o1\n{FACTORS}{LOADS}{STORE}{PRODUCT}"
    );
    let schedule = Schedule::parse(&text).unwrap_or_else(|e| panic!("{text}\n{e}"));
    let printed = print(&right(&schedule));
    assert!(printed.contains("out[slot] = max(c[slot], 0.0)*0.5") || printed.contains("slot"), "{printed}");
}

#[test]
fn what_asks_for_positions_is_refused() {
    lowered(&Schedule::parse(&tile(GEMM, FACTORS, LOADS, STORE)).unwrap());
    let error = refused(&tile(GEMM, FACTORS, LOADS, ""));
    assert!(
        error.starts_with(
            "lower.distribute: C is indexed by an element's position, but which elements of fragment acc a lane holds is not known"
        ),
        "{error}"
    );
    let error = refused(&tile(GEMM, FACTORS, &LOADS.replace("b.col", "b.row"), STORE));
    assert!(error.starts_with("lower.fragment: fragment B_f has two layouts"), "{error}");
}

#[test]
fn tiles_in_memory_are_as_aligned_as_the_instruction_asks() {
    let odd = |steps: &str| refused(&tile(GEMM, FACTORS, LOADS, &format!("{STORE}{steps}\n")));
    let error = odd("storage_align A_s 0 16 4");
    assert!(error.contains("rows of A_s are 20 elements apart, not a multiple of 16 bytes (8 elements)"), "{error}");
    let error = odd("swizzle A_s 32");
    assert!(error.contains("rows of A_s, which is swizzled, are not a stride apart"), "{error}");
    let schedule = Schedule::parse(&tile(GEMM, FACTORS, LOADS, STORE)).unwrap();
    let kernels = warploom::compile(&schedule).unwrap();
    let align = |name: &str| kernels.args.iter().find(|a| a.name == name).unwrap().align;
    assert_eq!((align("A"), align("C")), (16, 32));
    assert_eq!(first_chip(intrin::find("wmma.mma.row.col.m16n16k16.f32.f16.f16").unwrap()).name, "sm_70");
}
