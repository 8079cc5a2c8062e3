//! Boxes of known programs, and random programs against every element they touch.

use super::*;
use crate::dtype::DType;
use crate::ir::{For, Iter, IterKind, LoopKind, Scope, Store};

fn text(func: &Func, index: &Index) -> String {
    match index {
        Index::Int(v) => v.to_string(),
        Index::Var(v) => func.var_name(*v).to_string(),
        Index::Bin(op, a, b) => format!("({op:?} {} {})", text(func, a), text(func, b)),
    }
}

fn box_text(func: &Func, region: &Region) -> String {
    let ranges: Vec<String> =
        region.iter().map(|r| format!("{} +{}", text(func, &r.min), text(func, &r.extent))).collect();
    ranges.join(", ")
}

fn buffer(func: &mut Func, name: &str, shape: &[i64]) -> BufferId {
    let shape = shape.iter().map(|e| Index::Int(*e)).collect();
    func.add_buffer(Buffer::new(name, DType::F32, shape, Scope::Global))
}

fn read(buffer: BufferId, indices: Vec<Index>, sink: BufferId) -> Stmt {
    let value = Expr::load(buffer, indices);
    Stmt::Store(Store { buffer: sink, indices: vec![Index::Int(0)], value, lanes: 1 })
}

fn nest(loops: &[(Var, i64)], body: Stmt) -> Vec<Stmt> {
    loops
        .iter()
        .rev()
        .fold(vec![body], |body, (var, extent)| vec![Stmt::For(For::new(*var, *extent, LoopKind::Serial, body))])
}

#[test]
fn a_blocked_row_is_a_box_of_its_tile() {
    let mut func = Func::default();
    let a = buffer(&mut func, "A", &[1024, 1024]);
    let sink = buffer(&mut func, "S", &[1]);
    let [i0, f, k0, i2, k1] = ["i_0", "f", "k_0", "i_2", "k_1"].map(|n| func.add_var(n));
    let row = i0 * 64 + Index::from(f).floordiv(8) * 8 + i2;
    let body = read(a, vec![row, k0 * 8 + k1], sink);
    let mut env = Env::new();
    env.bind(i0, 0, 15);
    env.bind(k0, 0, 127);
    let all = touched(&func, &nest(&[(f, 64), (i2, 8), (k1, 8)], body.clone()), a, Touch::Reads, &env);
    assert_eq!(all.map(|r| box_text(&func, &r)).unwrap_or_default(), "(Mul i_0 64) +64, (Mul k_0 8) +8");
    env.bind(f, 0, 63);
    let one = touched(&func, &nest(&[(i2, 8), (k1, 8)], body), a, Touch::Reads, &env).unwrap_or_default();
    let expected = "(Add (Mul i_0 64) (Mul (FloorDiv f 8) 8)) +8, (Mul k_0 8) +8";
    assert_eq!(box_text(&func, &one), expected);
    assert_eq!(box_text(&func, &over(&one, &[(f, 64)], &env)), "(Mul i_0 64) +64, (Mul k_0 8) +8");
}

#[test]
fn a_predicate_cuts_a_window() {
    let mut func = Func::default();
    let a = buffer(&mut func, "A", &[1027]);
    let sink = buffer(&mut func, "S", &[1]);
    let [i0, ax0, ax1, v] = ["i_0", "ax0_0", "ax0_1", "v"].map(|n| func.add_var(n));
    let name = func.add_block("A_shared");
    let block = Stmt::Block(Block {
        name,
        iters: vec![Iter {
            var: v,
            kind: IterKind::Spatial,
            extent: Index::Int(1027),
            binding: i0 * 128 + ax0 * 128 + ax1,
        }],
        predicate: Cond::lt(ax0 * 128 + ax1, 130),
        init: None,
        body: vec![read(a, vec![v.into()], sink)],
        copy_with: None,
        role: None,
    });
    let mut env = Env::new();
    env.bind(i0, 0, 7);
    let body = nest(&[(ax0, 2), (ax1, 128)], block);
    let region = touched(&func, &body, a, Touch::Both, &env).unwrap_or_default();
    assert_eq!(box_text(&func, &region), "(Mul i_0 128) +130");
    assert_eq!(box_text(&func, &over(&region, &[(i0, 8)], &env)), "0 +1026");
    assert_eq!(touched(&func, &body, a, Touch::Writes, &env), None);
}
