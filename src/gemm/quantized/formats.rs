//! Weights as the libraries of quantisation write them: words of eight 4-bit numbers.

use crate::array::Array;
use crate::dtype::DType;
use crate::error::{Code, Error, Result};

/// Numbers of 4 bits in a word.
const PER_WORD: usize = 8;
/// The column, among eight, of each number of a word of AWQ, the lowest bits first.
const AWQ_ORDER: [usize; PER_WORD] = [0, 2, 4, 6, 1, 3, 5, 7];

/// The words, and their rows and columns.
fn words(words: &Array, format: &str) -> Result<[usize; 2]> {
    match words.shape[..] {
        [rows, columns] if matches!(words.dtype, DType::S32 | DType::U32) => Ok([rows, columns]),
        _ => {
            let message =
                format!("weights of {format} are a matrix of s32 or u32, this is {}{:?}", words.dtype, words.shape);
            Err(Error::input(Code::GemmWeights, message).help(format!("give the tensor qweight of {format}")))
        }
    }
}

/// The number at a position of a word.
fn number(words: &Array, word: usize, position: usize) -> f64 {
    f64::from((words.get(word) as i64 as u32) >> (4 * position) & 0xF)
}

/// The u4 weights W[n, k] of `qweight` as GPTQ has it, s32[k / 8, n]: a word has eight rows of a column, the lowest bits first.
///
/// # Errors
/// `gemm.weights` where the array is no matrix of 32-bit integers.
pub fn from_gptq(qweight: &Array) -> Result<Array> {
    let [groups, n] = words(qweight, "GPTQ")?;
    let k = groups * PER_WORD;
    let mut out = Array::zeros(DType::U4, &[n, k])?;
    for (row, column) in (0..groups).flat_map(|row| (0..n).map(move |column| (row, column))) {
        (0..PER_WORD).for_each(|i| out.set(column * k + row * PER_WORD + i, number(qweight, row * n + column, i)));
    }
    Ok(out)
}

/// The u4 weights W[n, k] of `qweight` as AWQ has it, s32[k, n / 8]: a word has eight columns of a row, the even ones first.
///
/// # Errors
/// `gemm.weights` where the array is no matrix of 32-bit integers.
pub fn from_awq(qweight: &Array) -> Result<Array> {
    let [k, groups] = words(qweight, "AWQ")?;
    let mut out = Array::zeros(DType::U4, &[groups * PER_WORD, k])?;
    for (row, group) in (0..k).flat_map(|row| (0..groups).map(move |group| (row, group))) {
        for (i, column) in AWQ_ORDER.into_iter().enumerate() {
            out.set((group * PER_WORD + column) * k + row, number(qweight, row * groups + group, i));
        }
    }
    Ok(out)
}
