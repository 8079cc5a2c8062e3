//! Elements below a byte in the order in which some programs pack them: words of 32 bits whose *first* element is in the
//! *highest* bits, so that element k of eight 4-bit integers has bits `(7 - k) * 4` and up, and element k of 32 bits has bit
//! `31 - k`. (TVM's tutorial on tensor cores prepares its int4 and int1 operands so.)
//!
//! Here the first element is in the lowest bits of the first byte ([`Array`]). Read as little-endian words, the two
//! orders are each other's mirror image word by word, so one conversion serves both ways.

use super::Array;
use crate::dtype::DType;
use crate::error::{Code, Error, Result};

impl Array {
    /// An array of these extents from words whose first element is in the highest bits: rows one after the other,
    /// each of whole words.
    ///
    /// # Errors
    /// `array.words` where elements are not 4 bits or 1 bit wide, a row is no whole number of words, or there are not as
    /// many words as the extents ask for; `array.size` as in [`Array::zeros`].
    pub fn from_high_first(dtype: DType, shape: &[usize], words: &[u32]) -> Result<Array> {
        let mut array = Array::zeros(dtype, shape)?;
        let mirror = mirror(dtype, shape)?;
        if array.bytes.len() != 4 * words.len() {
            let message =
                format!("{dtype}{shape:?} takes {} words, and {} are given", array.bytes.len() / 4, words.len());
            return Err(Error::input(Code::ArrayWords, message));
        }
        for (bytes, word) in array.bytes.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&mirror(*word).to_le_bytes());
        }
        Ok(array)
    }

    /// The words whose first element is in the highest bits: rows one after the other, each of whole words.
    ///
    /// # Errors
    /// `array.words` where elements are not 4 bits or 1 bit wide, or a row is no whole number of words.
    pub fn to_high_first(&self) -> Result<Vec<u32>> {
        let mirror = mirror(self.dtype, &self.shape)?;
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
        Ok(self.bytes.chunks_exact(4).map(|bytes| mirror(word(bytes))).collect())
    }
}

/// A word with its elements in the opposite order.
fn mirror(dtype: DType, shape: &[usize]) -> Result<fn(u32) -> u32> {
    let refuse = |message: String| Err(Error::input(Code::ArrayWords, message));
    let mirror: fn(u32) -> u32 = match dtype.bits() {
        4 => |word| (0..8).fold(0, |out, k| out | (word >> (4 * k) & 15) << (28 - 4 * k)),
        1 => u32::reverse_bits,
        bits => return refuse(format!("elements of {bits} bits do not share bytes: words of {dtype} have one order")),
    };
    let (row, per) = (shape.last().copied().unwrap_or(1), 32 / dtype.bits() as usize);
    match row % per {
        0 => Ok(mirror),
        _ => refuse(format!("rows of {row} elements of {dtype} are no whole words of {per}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tutorial's own loops: `word |= (x[k] & 0xF) << ((7 - k) * 4)`, and for bits `<< (31 - k)`.
    #[test]
    fn words_are_those_of_the_tutorial() {
        for (dtype, per, bits) in [(DType::S4, 8, 4), (DType::U4, 8, 4), (DType::B1, 32, 1)] {
            let shape = [3, 2 * per];
            let array = Array::random(dtype, &shape, 5).unwrap();
            let mut words = vec![0u32; 6];
            for i in 0..array.len() {
                let k = i % per;
                words[i / per] |= (array.get(i) as i64 as u32 & ((1 << bits) - 1)) << ((per - 1 - k) * bits);
            }
            assert_eq!(array.to_high_first().unwrap(), words, "{dtype}");
            assert_eq!(Array::from_high_first(dtype, &shape, &words).unwrap(), array, "{dtype}");
        }
    }

    #[test]
    fn what_has_no_whole_words_is_refused() {
        let code = |dtype, shape: &[usize], words: &[u32]| {
            Array::from_high_first(dtype, shape, words).unwrap_err().code().to_string()
        };
        assert_eq!(code(DType::S4, &[2, 12], &[0; 3]), "array.words");
        assert_eq!(code(DType::S4, &[2, 8], &[0; 3]), "array.words");
        assert_eq!(code(DType::S8, &[2, 8], &[0; 4]), "array.words");
        assert_eq!(Array::zeros(DType::B1, &[33]).unwrap().to_high_first().unwrap_err().code(), Code::ArrayWords);
    }
}
