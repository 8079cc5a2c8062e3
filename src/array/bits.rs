//! Arrays of single bits from and to bytes: a byte per element, or NumPy's `packbits`, whose rows are whole bytes.
//!
//! In an [`Array`] of `b1` the element with the lowest index has the lowest bit of its byte (`bitorder="little"` of
//! `packbits`), and rows follow each other without a gap.

use super::Array;
use crate::dtype::DType;
use crate::error::{Code, Error, Result};

/// The order of the bits of a byte in NumPy's `packbits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitOrder {
    /// The first element has the lowest bit: `bitorder="little"`.
    Little,
    /// The first element has the highest bit: `bitorder="big"`, what NumPy does if nothing is said.
    Big,
}

impl BitOrder {
    /// The bit of element `n` of a row.
    fn shift(self, n: usize) -> usize {
        match self {
            BitOrder::Little => n % 8,
            BitOrder::Big => 7 - n % 8,
        }
    }
}

impl Array {
    /// The elements as single bits: 0 where an element is 0, else 1.
    ///
    /// # Errors
    /// As [`Array::zeros`].
    pub fn to_b1(&self) -> Result<Array> {
        Array::from_fn(DType::B1, &self.shape, |i| f64::from(u8::from(self.get(i) != 0.0)))
    }

    /// An array of single bits from a byte per element: 0 where the byte is 0, else 1.
    ///
    /// # Errors
    /// `array.words` where there are not as many bytes as elements; as [`Array::zeros`].
    pub fn from_flags(shape: &[usize], flags: &[u8]) -> Result<Array> {
        let array = Array::zeros(DType::B1, shape)?;
        counted(array.len(), flags.len(), shape)?;
        Array::from_fn(DType::B1, shape, |i| f64::from(u8::from(flags[i] != 0)))
    }

    /// A byte per element of an array of single bits, 0 or 1.
    ///
    /// # Errors
    /// `array.type` where the elements are not single bits.
    pub fn to_flags(&self) -> Result<Vec<u8>> {
        bits_alone(self)?;
        Ok((0..self.len()).map(|i| self.get(i) as u8).collect())
    }

    /// An array of single bits from the bytes of `numpy.packbits(x, axis=-1, bitorder=..)`: each row has whole bytes, whose
    /// spare bits are ignored.
    ///
    /// # Errors
    /// `array.words` where there are not as many bytes as the extents ask for; as [`Array::zeros`].
    pub fn from_packbits(shape: &[usize], bytes: &[u8], order: BitOrder) -> Result<Array> {
        let array = Array::zeros(DType::B1, shape)?;
        let row = row_of(shape);
        counted(array.len() / row * row.div_ceil(8), bytes.len(), shape)?;
        Array::from_fn(DType::B1, shape, |i| {
            let (line, n) = (i / row, i % row);
            f64::from(bytes[line * row.div_ceil(8) + n / 8] >> order.shift(n) & 1)
        })
    }

    /// The bytes of `numpy.packbits(x, axis=-1, bitorder=..)`: each row has whole bytes, whose spare bits are 0.
    ///
    /// # Errors
    /// `array.type` where the elements are not single bits.
    pub fn to_packbits(&self, order: BitOrder) -> Result<Vec<u8>> {
        bits_alone(self)?;
        let row = row_of(&self.shape);
        let mut bytes = vec![0; self.len() / row * row.div_ceil(8)];
        for i in 0..self.len() {
            let (line, n) = (i / row, i % row);
            bytes[line * row.div_ceil(8) + n / 8] |= (self.get(i) as u8) << order.shift(n);
        }
        Ok(bytes)
    }
}

/// Elements of a row; of rows of no elements, of which there is nothing, 1.
fn row_of(shape: &[usize]) -> usize {
    shape.last().copied().unwrap_or(1).max(1)
}

fn counted(wanted: usize, given: usize, shape: &[usize]) -> Result<()> {
    match wanted == given {
        true => Ok(()),
        false => {
            Err(Error::input(Code::ArrayWords, format!("b1{shape:?} takes {wanted} bytes, and {given} are given")))
        }
    }
}

fn bits_alone(array: &Array) -> Result<()> {
    match array.dtype {
        DType::B1 => Ok(()),
        other => Err(Error::input(Code::ArrayType, format!("the array holds {other}, not b1"))
            .help("convert it first: Array::to_b1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `numpy.packbits([[1,0,1,1,0,0,0,0,1,0],[0,0,0,0,0,0,0,1,0,1]], axis=-1)` is `[[176, 128], [1, 64]]`, with
    /// `bitorder="little"` `[[13, 1], [128, 2]]`.
    #[test]
    fn bytes_are_those_of_packbits() {
        let flags = [1, 0, 1, 1, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1];
        let array = Array::from_flags(&[2, 10], &flags).unwrap();
        for (order, bytes) in [(BitOrder::Big, [176, 128, 1, 64]), (BitOrder::Little, [13, 1, 128, 2])] {
            assert_eq!(array.to_packbits(order).unwrap(), bytes);
            assert_eq!(Array::from_packbits(&[2, 10], &bytes, order).unwrap(), array);
        }
        assert_eq!(array.to_flags().unwrap(), flags.map(|f| u8::from(f != 0)));
        // Rows follow each other without a gap, the lowest index in the lowest bit.
        assert_eq!(array.bytes, [13, 1, 10]);
        let whole = Array::random(DType::B1, &[3, 32], 3).unwrap();
        assert_eq!(whole.to_packbits(BitOrder::Little).unwrap(), whole.bytes);
        let numbers = Array::from_fn(DType::S8, &[3, 32], |i| whole.get(i) * -5.0).unwrap();
        assert_eq!(numbers.to_b1().unwrap(), whole);
    }

    #[test]
    fn what_is_not_so_many_bits_is_refused() {
        let code = |r: Result<Array>| r.unwrap_err().code();
        assert_eq!(code(Array::from_flags(&[2, 8], &[0; 15])), Code::ArrayWords);
        assert_eq!(code(Array::from_packbits(&[2, 9], &[0; 3], BitOrder::Big)), Code::ArrayWords);
        let bytes = Array::zeros(DType::U8, &[4]).unwrap();
        assert_eq!(bytes.to_flags().unwrap_err().code(), Code::ArrayType);
        assert_eq!(bytes.to_packbits(BitOrder::Big).unwrap_err().code(), Code::ArrayType);
        assert_eq!(Array::from_packbits(&[3, 0], &[], BitOrder::Big).unwrap().len(), 0);
    }
}
