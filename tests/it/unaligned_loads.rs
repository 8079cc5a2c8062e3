//! Vectors of elements narrower than a word, from rows that begin anywhere: read in aligned words that are shifted, and never outside
//! their array.

use super::ptx::agrees;
use warploom::codegen::compile;
use warploom::lower::{Lowered, lower};
use warploom::{DType, Schedule};

/// What Lowered says of a loop that is read so.
const MARK: &str = ", by aligned words";

/// Rows of `columns` elements, which threads read `run` at a time into a buffer of the scope; what is beyond a row is zero.
fn padded(dtype: DType, [rows, columns, run]: [i64; 3], scope: &str) -> String {
    let whole = (columns + run - 1) / run * run;
    let threads = whole / run;
    let read = if whole == columns { "A[i, j]".to_string() } else { format!("select(j < {columns}, A[i, j], 0)") };
    let to = if scope == "shared" { "x" } else { "yt" };
    let bound = if scope == "shared" {
        format!("split zj ? {threads} {run} -> zo zt zv\nbind zt threadIdx.x\nvectorize zv")
    } else {
        "vectorize zj".to_string()
    };
    format!(
        "program shift\ninput A {dtype}[{rows}, {columns}]\nZ: Z[i {rows}, j {whole}] {dtype} = {read}\n\
         output B[x {rows}, y {whole}] f32 = f32(Z[x, y])\ntarget sm_80\nsplit y ? {threads} {run} -> y0 yt yv\n\
         reorder x y0 yt yv\nbind x blockIdx.x\nbind yt threadIdx.x\ncompute_at Z {to} -> zi zj\nset_scope Z {scope}\n\
         {bound}\nunroll yv\n"
    )
}

fn lowered(text: &str) -> (Schedule, Lowered) {
    let schedule = Schedule::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap_or_else(|e| panic!("{text}: {e}"));
    (schedule, lowered)
}

/// Loads from device memory in the PTX: of words, and of single bytes.
fn loads(schedule: &Schedule, lowered: &Lowered) -> [usize; 2] {
    let text = compile(lowered, &schedule.target).unwrap().text;
    let count =
        |ends: &[&str]| text.lines().filter(|l| l.contains("ld.global") && ends.iter().any(|e| l.contains(e))).count();
    [count(&[".b32 ", ".u32 "]), count(&[".u8 ", ".b8 ", ".s8 ", ".u16 ", ".b16 "])]
}

#[test]
fn runs_of_every_length_begin_anywhere() {
    let types = [DType::S8, DType::U8, DType::E4m3, DType::F16, DType::Bf16];
    let mut read = 0;
    for (dtype, columns) in types.into_iter().flat_map(|t| [5, 13, 18, 27, 32, 35].map(|c| (t, c))) {
        let size = i64::from(dtype.bits()) / 8;
        for (n, bytes) in [4, 8, 16, 32].into_iter().enumerate() {
            let scope = if (n as i64 + columns) % 2 == 0 { "local" } else { "shared" };
            let text = padded(dtype, [3, columns, bytes / size], scope);
            let (schedule, lowered) = lowered(&text);
            agrees(&schedule, &lowered).unwrap_or_else(|e| panic!("{text}: {e}"));
            if columns * size % 4 == 0 {
                continue;
            }
            assert!(warploom::lower::print(&lowered).contains(MARK), "{text}");
            // A word more than the run has, and what is behind the last whole word of the array.
            let [words, single] = loads(&schedule, &lowered);
            assert_eq!((words as i64, single > 0), (bytes / 4 + 1, 3 * columns * size % 4 != 0), "{text}");
            read += 1;
        }
    }
    assert!(read > 80, "{read}");
}

/// Arrays of all sizes around few words, whose last word is whole or not.
#[test]
fn no_word_is_read_outside_its_array() {
    for (rows, columns) in (1..4).flat_map(|rows| (4..12).map(move |columns| (rows, columns))) {
        for scope in ["local", "shared"] {
            let text = padded(DType::S8, [rows, columns, 8], scope);
            let (schedule, lowered) = lowered(&text);
            agrees(&schedule, &lowered).unwrap_or_else(|e| panic!("{text}: {e}"));
        }
    }
}

/// A condition of all iterations, which fails where the address is inside the array and near its end.
#[test]
fn what_no_iteration_reads_is_zero() {
    for elements in 13..16 {
        let text = format!(
            "program shift\ninput A s8[{elements}]\nZ: Z[i 3, j 8] s8 = select(i < 1, A[j + i*{}], 0)\n\
             output B[x 3, y 8] f32 = f32(Z[x, y])\ntarget sm_80\nbind x threadIdx.x\ncompute_at Z x -> zi zj\n\
             set_scope Z local\nvectorize zj\nunroll y\n",
            elements - 8
        );
        let (schedule, lowered) = lowered(&text);
        assert!(warploom::lower::print(&lowered).contains(MARK), "{text}");
        agrees(&schedule, &lowered).unwrap_or_else(|e| panic!("{text}: {e}"));
    }
}

/// What stays as it was: words and wider elements, runs that fill no word, and vectors that alignment proves.
#[test]
fn other_loops_are_read_as_before() {
    for (dtype, columns, run) in
        [(DType::F32, 13, 4), (DType::S8, 13, 2), (DType::F16, 13, 1), (DType::S8, 32, 8), (DType::F16, 34, 4)]
    {
        let (_, lowered) = lowered(&padded(dtype, [3, columns, run], "local"));
        assert!(!warploom::lower::print(&lowered).contains(MARK), "{dtype} {columns} {run}");
    }
    let backwards = padded(DType::S8, [3, 13, 8], "local").replace("A[i, j]", "A[i, 12 - j]");
    let suffix = padded(DType::S8, [3, 16, 8], "local")
        .replace("A[i, j]", "select(j >= 3, A[i, j - 3], 0)")
        .replace("[3, 16]", "[3, 13]");
    for text in [backwards, suffix] {
        let (schedule, lowered) = lowered(&text);
        assert!(!warploom::lower::print(&lowered).contains(MARK), "{text}");
        agrees(&schedule, &lowered).unwrap_or_else(|e| panic!("{text}: {e}"));
    }
}
