//! For tests: one line that applies steps to a builder's program, round-trips their text and replays them.

use super::{apply_all, complete_all, parse};
use crate::ir::{BinOp, Cond, Expr, Func, Index, Stmt, Tensorize, UnOp, print, visit};
use crate::{Error, te};
use std::io::Write as _;

/// Three blocks, each reading what the one before it writes.
pub const CHAIN: &str = "program chain
    input A f32[8]
    X: X[i 8] f32 = A[i] * 2.0
    Y: Y[i 8] f32 = X[i] + 1.0
    Z: output Z[i 8] f32 = Y[i] + A[i]";

/// The Func of a builder line.
pub fn program(line: &str) -> Func {
    te::parse(line).unwrap_or_else(|e| panic!("{line}: {e}"))
}

/// Applies the steps. The printed steps must parse back to themselves, and those with all names must replay to the
/// identical program.
pub fn apply(line: &str, text: &str) -> Result<Func, Error> {
    let func = program(line);
    let steps = parse(text)?;
    for step in &steps {
        assert_eq!(parse(&step.to_string())?, vec![step.clone()], "{step}");
    }
    let (made, stated) = complete_all(&func, &steps)?;
    let again: Vec<String> = stated.iter().map(|s| s.to_string()).collect();
    let reread = parse(&again.join("\n"))?;
    assert_eq!(reread, stated);
    assert_eq!(apply_all(&func, &reread)?, made, "replay of {again:?}");
    Ok(made)
}

/// The printed program after the steps.
pub fn steps(line: &str, text: &str) -> String {
    print::func(&apply(line, text).unwrap_or_else(|e| panic!("{text}: {e}")))
}

/// Demands a refusal with this code and a message that begins so.
pub fn refuses(line: &str, text: &str, code: &str, message: &str) {
    expect(apply(line, text), text, code, message);
}

/// [`refuses`] on a program made by hand.
pub fn refuses_on(func: &Func, text: &str, code: &str, message: &str) {
    expect(parse(text).and_then(|steps| apply_all(func, &steps)), text, code, message);
}

fn expect(result: Result<Func, Error>, text: &str, code: &str, message: &str) {
    match result {
        Ok(func) => panic!("`{text}` is not refused:\n{}", print::func(&func)),
        Err(e) => {
            assert_eq!(e.code().to_string(), code, "{e}");
            assert!(e.message().starts_with(message), "`{}` does not begin with `{message}`", e.message());
            record(code);
        }
    }
}

/// The variable of the environment that names the file of [`record`].
pub const RECORD: &str = "WARPLOOM_REFUSED";

/// Writes down that a test has seen this refusal, where somebody asks for it.
fn record(code: &str) {
    let Some(path) = std::env::var_os(RECORD) else { return };
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(format!("{code}\n").as_bytes()).unwrap();
}

/// Makes the extent of a loop depend on the outermost loop.
pub fn symbolic(func: &mut Func, name: &str) {
    let outer = visit::loops(&func.body).first().map(|l| l.var).unwrap();
    let var = func.find_loop(name).unwrap().var;
    assert!(visit::change_loop(&mut func.body, var, &mut |l| l.extent = Index::Var(outer) + 1));
}

/// Changes the binding of a block's iterator.
pub fn rebind(func: &mut Func, block: &str, iter: &str, change: impl Fn(Index) -> Index) {
    let (names, id) = (func.vars.clone(), func.find_block(block).unwrap().name);
    assert!(visit::change_block(&mut func.body, id, &mut |b| {
        for i in b.iters.iter_mut().filter(|i| names[i.var.0 as usize] == iter) {
            i.binding = change(i.binding.clone());
        }
    }));
}

/// Repeats a block's stores, so that it is no plain reduction any more.
pub fn another_store(func: &mut Func, block: &str) {
    let id = func.find_block(block).unwrap().name;
    assert!(visit::change_block(&mut func.body, id, &mut |b| b.body.extend(b.body.clone())));
}

/// Says that the nest from a loop inwards is an instruction.
pub fn tensorize(func: &mut Func, name: &str) {
    let var = func.find_loop(name).unwrap().var;
    let placement = Tensorize { row: "row".into(), dims: Vec::new() };
    assert!(visit::change_loop(&mut func.body, var, &mut |l| l.tensorize = Some(placement.clone())));
}

/// Adds `iterator < limit` to a block's predicate.
pub fn limit(func: &mut Func, block: &str, iter: &str, limit: i64) {
    let (names, id) = (func.vars.clone(), func.find_block(block).unwrap().name);
    assert!(visit::change_block(&mut func.body, id, &mut |b| {
        let bound = b.iters.iter().find(|i| names[i.var.0 as usize] == iter).unwrap().binding.clone();
        b.predicate = b.predicate.clone().and(Cond::lt(bound, limit));
    }));
}

/// Changes the values that a block stores.
pub fn revalue(func: &mut Func, block: &str, change: impl Fn(Expr) -> Expr) {
    let id = func.find_block(block).unwrap().name;
    assert!(visit::change_block(&mut func.body, id, &mut |b| {
        for stmt in &mut b.body {
            if let Stmt::Store(s) = stmt {
                s.value = change(s.value.clone());
            }
        }
    }));
}

/// Makes the term of a sum a factor.
pub fn multiply(value: Expr) -> Expr {
    match value {
        Expr::Bin(_, a, b) => Expr::Bin(BinOp::Mul, a, b),
        other => other,
    }
}

/// Negates a value.
pub fn negate(value: Expr) -> Expr {
    Expr::un(UnOp::Neg, value)
}

/// Lets a block write another buffer at the same place.
pub fn redirect(func: &mut Func, block: &str, buffer: &str) {
    let (to, id) = (func.find_buffer(buffer).unwrap(), func.find_block(block).unwrap().name);
    assert!(visit::change_block(&mut func.body, id, &mut |b| {
        for body in b.init.iter_mut().chain([&mut b.body]) {
            for stmt in body {
                if let Stmt::Store(s) = stmt {
                    s.buffer = to;
                }
            }
        }
    }));
}

/// A program whose blocks S, a sum over `k`, and T write one buffer.
pub fn two_writers() -> Func {
    let pair = "program pair
        input A f32[6, 4]
        S: S[i 6] f32 = sum(k 4) A[i, k]
        T: T[i 6] f32 = A[i, 0]
        Y: output Y[i 6] f32 = S[i] + T[i]";
    let mut func = program(pair);
    redirect(&mut func, "T", "S");
    func
}

/// The refusals that `rfactor`, `promote` and `split_k` share: requirements 1 to 7 of each; `step` is the step for a block and a loop.
pub fn refuses_to_factor(primitive: &str, step: impl Fn(&str, &str) -> String) {
    const GEMM: &str = "gemm 6x5x8 f32 NN";
    let no = |func: &Func, (block, name): (&str, &str), n: u32, message: &str| {
        refuses_on(func, &step(block, name), &format!("{primitive}.{n}"), message);
    };
    no(&program("vec_add 8"), ("C", "i"), 1, "C cannot be factored: it has no init");
    no(&two_writers(), ("S", "k"), 1, "T also writes what S writes");
    let mut func = program(GEMM);
    revalue(&mut func, "C", negate);
    no(&func, ("C", "k"), 2, "C is no sum, product, minimum or maximum");
    let mut func = program(GEMM);
    revalue(&mut func, "C", multiply);
    no(&func, ("C", "k"), 3, "the init of C is not the neutral constant");
    no(&program(GEMM), ("C", "j"), 4, "j is no unplaced loop of C that runs reduce iterators alone");
    no(&apply(GEMM, "unroll k").unwrap(), ("C", "k"), 4, "k is no unplaced loop of C");
    let joined = apply(GEMM, "cache_read C A local -> L; compute_at L j").unwrap();
    no(&joined, ("C", "k"), 5, "loop j holds more than C");
    let mut func = program(GEMM);
    rebind(&mut func, "C", "vj", |j| j + 1);
    no(&func, ("C", "k"), 6, "the loops of C do not sweep the whole domains");
    let mut func = program(GEMM);
    let l = func.find_loop("k").unwrap().var;
    let id = func.find_block("C").unwrap().name;
    visit::change_block(&mut func.body, id, &mut |b| {
        b.predicate = Cond::lt(b.iters[0].binding.clone() + Index::Var(l), 9);
    });
    no(&func, ("C", "k"), 7, "`i + k < 9` uses spatial and reduce loops of C");
}
