//! The exact text of every statement and placement, and where the names are in it.

use super::*;
use crate::error::Code;
use crate::ir::{
    BinOp, CopyKind, CopyWith, If, IndexOp, Iter, LoopKind, Note, Pipeline, Raster, Role, RoleId, Scope, StorageAlign,
    SyncKind, Tensorize, UnOp,
};

/// A function with buffers A (f32 [64, 64], a parameter) and S (f32 [8, 8], shared) and variables i, j, k.
fn sample() -> (Func, BufferId, BufferId, [Var; 3]) {
    let mut f = Func { name: "sample".into(), ..Func::default() };
    let shape = |n: i64| vec![Index::Int(n), Index::Int(n)];
    let a = f.add_buffer(Buffer::new("A", DType::F32, shape(64), Scope::Global));
    let s = f.add_buffer(Buffer::new("S", DType::F32, shape(8), Scope::Shared));
    f.params.push(a);
    let vars = ["i", "j", "k"].map(|n| f.add_var(n));
    (f, a, s, vars)
}

fn store(buffer: BufferId, value: Expr) -> Stmt {
    Stmt::Store(Store::new(buffer, vec![Index::Int(0), Index::Int(1)], value))
}

#[test]
fn placements_print() {
    let (mut f, a, s, [i, j, k]) = sample();
    f.buffer_mut(a).strides = Some(vec![128, 1]);
    f.buffer_mut(a).align = 128;
    f.buffer_mut(s).storage_align = Some(StorageAlign { dim: 0, factor: 32, offset: 8 });
    f.buffer_mut(s).swizzle = Some(128);
    f.roles.push(Role { name: "load".into(), warps: 4, regs: Some(40) });
    let t = f.add_var("tile");
    let v = f.add_var("v0");
    let name = f.add_block("S");
    let block = Block {
        name,
        iters: vec![Iter { var: v, kind: IterKind::Reduce, extent: 8.into(), binding: i * 4 + k }],
        predicate: Cond::lt(i * 4 + k, 7),
        init: Some(vec![store(s, Expr::constant(DType::F32, 0.0)), store(s, Expr::constant(DType::F32, 1.0))]),
        body: vec![Stmt::If(If {
            cond: Cond::ge(v, 1),
            body: vec![store(s, Expr::load(a, vec![v.into(), v.into()]))],
        })],
        copy_with: Some(CopyWith { kind: CopyKind::Tma, multicast: Some(j), through_l1: false }),
        role: Some(RoleId(0)),
    };
    let mut inner = For::new(k, 4, LoopKind::Unrolled, vec![Stmt::Block(block)]);
    inner.pipeline = Some(Pipeline { stages: 4, in_flight: 1 });
    inner.tensorize = Some(Tensorize { row: "mma".into(), dims: vec![("m".into(), i)] });
    inner.notes.insert(Note::UnrollLimit, 4);
    let mut outer =
        For::new(t, 256, LoopKind::Bound { axis: Axis::BlockX, mode: BindMode::Persistent }, vec![Stmt::For(inner)]);
    outer.raster = Some(Raster { outer: i, outer_extent: 16.into(), inner: j, inner_extent: 16.into(), group: 8 });
    f.body = vec![Stmt::For(outer), Stmt::Sync(SyncKind::Block.because("S: write -> read"))];
    assert_eq!(
        func(&f),
        "func sample(A: global f32[64, 64] strides [128, 1] align 128)\n\
         \x20 S: shared f32[8, 8] storage_align 0 32 8 swizzle 128\n\
         \x20 role load warps=4 regs=40\n\
         \x20 for (i, j) in 16 x 16 grouped 8 as tile @blockIdx.x persistent\n\
         \x20   for k in 0..4 unrolled pipeline 4 in_flight 1 tensorize mma m=i unroll_limit=4\n\
         \x20     block S(reduce v0 = i*4 + k) copy_with tma multicast=j role load\n\
         \x20       where i*4 + k < 7\n\
         \x20       init\n\
         \x20         S[0, 1] = 0.0\n\
         \x20         S[0, 1] = 1.0\n\
         \x20       if v0 >= 1\n\
         \x20         S[0, 1] = A[v0, v0]\n\
         \x20 barrier  # S: write -> read\n"
    );
    lines_are_as_they_print(&print(&f));
}

/// The lines of the program of `placements_print`.
fn lines_are_as_they_print(printed: &Printed) {
    use LineKind::*;
    let kinds: Vec<LineKind> = printed.lines.iter().map(|l| l.kind).collect();
    let of_block = [Block, Where, Init, Statement, Statement, Guard, Statement];
    let all = [Head, Declaration, Declaration, Loop, Loop].into_iter().chain(of_block).chain([Statement]);
    assert_eq!(kinds, all.collect::<Vec<_>>());
    let text = |span: &Range<usize>| &printed.text[span.clone()];
    assert!(printed.lines.iter().map(|l| text(&l.span)).eq(printed.text.lines()));
    for line in &printed.lines {
        let line_text = text(&line.span);
        assert_eq!(line_text.len() - line_text.trim_start().len(), line.depth * INDENT, "{line_text}");
    }
    let bindings: Vec<&str> = printed.lines.iter().filter_map(|l| l.bindings.as_ref()).map(text).collect();
    assert_eq!(bindings, ["(reduce v0 = i*4 + k)"]);
    let comments = printed.lines.iter().filter_map(|l| Some(&printed.text[l.comment?..l.span.end]));
    assert_eq!(comments.collect::<Vec<_>>(), ["  # S: write -> read"]);
}

#[test]
fn indices_print_with_minimal_parentheses() {
    let (f, .., [i, j, _]) = sample();
    let cases = [
        (i * 4 + j, "i*4 + j"),
        ((i + j) * 4, "(i + j)*4"),
        (Index::from(i) - (j + 1), "i - (j + 1)"),
        (Index::from(i) + Index::Int(-1), "i - 1"),
        (i * -2, "i*-2"),
        ((i * 4).floordiv(3).floormod(j), "i*4 // 3 % j"),
        (Index::from(i).floordiv(Index::from(j).floordiv(3)), "i // (j // 3)"),
        (Index::from(i).min(j + 1), "min(i, j + 1)"),
        (Index::bin(IndexOp::Max, i.into(), Index::Int(-3)) * 2, "max(i, -3)*2"),
    ];
    for (value, text) in cases {
        assert_eq!(index(&f, &value), text);
    }
    let both = Cond::lt(i, 4).and(Cond::Or(Box::new(Cond::ge(j, 1)), Box::new(Cond::eq(j, 3))));
    assert_eq!(cond(&f, &both), "i < 4 and (j >= 1 or j == 3)");
    assert_eq!(cond(&f, &Cond::Not(Box::new(both))), "not (i < 4 and (j >= 1 or j == 3))");
}

#[test]
fn data_prints() {
    let (f, a, _, [i, j, _]) = sample();
    let x = || Expr::load(a, vec![i.into(), j.into()]);
    let number = |v| Expr::constant(DType::F32, v);
    let cases = [
        (Expr::bin(BinOp::Max, x(), number(0.0)), "max(A[i, j], 0.0)"),
        (Expr::un(UnOp::Exp, x()), "exp(A[i, j])"),
        (Expr::un(UnOp::Neg, number(1.5)), "-f32(1.5)"),
        (Expr::bin(BinOp::Mul, x(), Expr::un(UnOp::Neg, number(1.5))), "A[i, j]*-(1.5)"),
        (Expr::bin(BinOp::Sub, x(), number(-1.5)), "A[i, j] - -1.5"),
        (Expr::cast(DType::F16, Expr::bin(BinOp::Add, x(), number(1e30))), "f16(A[i, j] + 1e30)"),
        (Expr::Index(DType::F32, Box::new(i + 1)), "f32(i + 1)"),
        (
            Expr::select(Expr::Cond(Box::new(Cond::lt(i, 3))), x(), number(f64::NEG_INFINITY)),
            "select(i < 3, A[i, j], -inf)",
        ),
        (Expr::Load { buffer: a, indices: vec![i * 4], lanes: 4 }, "A[i*4 ..+4]"),
        (Expr::Splat(4, Box::new(number(0.1))), "splat(4, f32(0.1))"),
    ];
    for (value, text) in cases {
        assert_eq!(expr(&f, &value), text);
    }
}

#[test]
fn spans_name_what_they_cover() {
    let (mut f, a, s, [i, ..]) = sample();
    let name = f.add_block("copy");
    let body = vec![store(s, Expr::load(a, vec![i.into(), Index::Int(0)]))];
    let plain = Block { name, iters: vec![], predicate: Cond::TRUE, init: None, body, copy_with: None, role: None };
    f.body = vec![Stmt::For(For::new(i, 8, LoopKind::Serial, vec![Stmt::Block(plain)]))];
    let printed = print(&f);
    assert!(!printed.spans.is_empty());
    for (node, span) in &printed.spans {
        let name = match node {
            Node::Loop(v) => f.var_name(*v),
            Node::Block(b) => f.block_name(*b),
            Node::Buffer(b) => &f.buffer(*b).name,
            Node::Mbarrier(n) => &f.mbarriers[*n as usize].name,
        };
        assert_eq!(&printed.text[span.clone()], name);
    }
    let error = underline(
        Error::input(Code::TeName, "wrong"),
        &f,
        &[(Node::Loop(Var(0)), "this"), (Node::Loop(Var(99)), "no")],
    );
    let labels = error.labels();
    assert_eq!(labels.len(), 1);
    assert_eq!(error.source_text().map(|t| &t[labels[0].span.clone()]), Some("i"));
}
