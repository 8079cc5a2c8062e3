//! Reducers of tuples: order, laws, and what a block combines.

use super::*;
use crate::error::Code;
use crate::ir::reduction::{Combiner, Reduction};
use crate::ir::{Stmt, visit};
use crate::te;

/// A program with a stated reducer.
fn stated(reducer: &str) -> Result<Func> {
    te::parse(&format!("program p\nreducer r{reducer}\ninput A f32[4]\noutput B[i 4] f32 = A[i]\n"))
}

const ONLINE: &str = "(m f32, s f32) with (n, t) from (-3.4028234663852886e38, 0.0) = \
                      (max(m, n), s*exp(m - max(m, n)) + t*exp(n - max(m, n)))";

#[test]
fn a_component_is_stored_after_those_that_read_it() {
    let found = |text: &str| stated(text).unwrap().reducers[0].order().to_vec();
    assert_eq!(found(ONLINE), [1, 0]);
    assert_eq!(found("(a f32, b f32) with (c, d) from (0.0, 0.0) = (a + c, b + d)"), [0, 1]);
    assert_eq!(TupleReducer::predefined("argmin", &[DType::F16, DType::S64]).unwrap().order(), [1, 0]);
}

#[test]
fn argmax_and_argmin_keep_their_laws() {
    for name in TupleReducer::PREDEFINED {
        // The least number of a signed type is none modulo 2^32.
        for value in [DType::F16, DType::F32, DType::F64, DType::U32] {
            for index in [DType::U32, DType::S64] {
                let reducer = TupleReducer::predefined(name, &[value, index]).unwrap();
                laws::check(&reducer).unwrap();
            }
        }
        for (value, index) in [(DType::Bool, DType::S32), (DType::F32, DType::F32), (DType::F32, DType::Bool)] {
            assert!(TupleReducer::predefined(name, &[value, index]).is_none(), "{value} {index}");
        }
        assert!(TupleReducer::predefined(name, &[DType::F32]).is_none());
    }
}

#[test]
fn laws_that_do_not_hold_are_refused() {
    for (reducer, message) in [
        ("(a f32, b f32) with (c, d) from (0.0, 0.0) = (a + c, b + d + 1.0)", "the neutral tuple combine to"),
        ("(a f32, b f32) with (c, d) from (0.0, 0.0) = (a + c, b - d)", "may not be exchanged"),
        ("(a s32) with (b) from (0) = (max(a, b))", "the neutral tuple combine to"),
        ("(a f32) with (b) from (0.0) = (a + b + a*b*b)", "may not be exchanged"),
        ("(a f32) with (b) from (0.0) = (a + b + a*a*b*b)", "may not be regrouped"),
        // -inf - -inf is no number: rows that no term is in would be none.
        (&ONLINE.replace("-3.4028234663852886e38", "-inf"), "in f64"),
        // A value with the sign of its neighbour holds modulo 2^32, where nothing is negative.
        ("(a f32) with (b) from (0.0) = (select(a < 0.0, a, a + b))", ""),
        ("(a f32, b f32) with (c, d) from (1.0, 0.0) = (a*c - b*d, a*d + b*c)", "need each other's old value"),
        ("(a f32, b f32) with (c, d) from (1.0) = (a, b)", "a neutral tuple of 1"),
        ("(a f32, b f32) with (c, d) from (1.0, 1.0) = (a*c, b)", "may not be exchanged"),
        ("(a f32) with (b) from (1.0 + 1.0) = (a*b)", "is no constant"),
        ("(a f32) with (a) from (0.0) = (a + a)", "two components are called a"),
        ("() with () from () = ()", "from 1 to 8 components"),
    ] {
        let error = stated(reducer).unwrap_err();
        assert!(matches!(error.code(), Code::TeReducer | Code::TeName), "{reducer}: {error}");
        assert!(error.to_string().contains(message), "{reducer}: {error}");
    }
}

#[test]
fn what_a_block_combines_is_found_again() {
    let text = format!(
        "program p\nreducer r{ONLINE}\ninput A f16[4, 9]\n\
         output M[i 4] f32, output S[i] f32, V[i] f16, I[i] s32, T[i] f32 = \
         r(k 9) (f32(A[i, k])*2.0, 1.0), argmax(k) (A[i, k], s32(k + 3)), sum(k) f32(A[i, k])\n"
    );
    let func = te::parse(&text).unwrap();
    let block = visit::blocks(&func.body)[0];
    let found = Reduction::of(&func, block).unwrap();
    let names: Vec<&str> = found.stores.iter().map(|s| func.buffer(s.buffer).name.as_str()).collect();
    assert_eq!(names, ["S", "M", "I", "V", "T"]);
    assert!(matches!(&found.combiners[..], [Combiner::Tuple(r), Combiner::Tuple(a), Combiner::Op(BinOp::Add)]
        if r.name() == "r" && a.name() == "argmax"));
    assert!(found.neutral(block).is_some() && found.is_joint());
    let own: Vec<Expr> = found.stores.iter().map(|s| Expr::load(s.buffer, s.indices.clone())).collect();
    let again = found.combine(&own, &found.terms);
    assert!(found.stores.iter().zip(&again).all(|(s, e)| s.value == *e));
    assert_eq!(te::parse(&te::print(&func)).unwrap(), func);
    // A body that combines something else is none.
    let mut other = block.clone();
    if let Stmt::Store(s) = &mut other.body[0] {
        s.value = Expr::bin(BinOp::Add, s.value.clone(), Expr::constant(DType::F32, 1.0));
    }
    assert_eq!(Reduction::of(&func, &other), None);
    let mut other = block.clone();
    other.body.swap(0, 1);
    assert_eq!(Reduction::of(&func, &other), None);
}
