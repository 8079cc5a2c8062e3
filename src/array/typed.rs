//! Arrays from and to slices of Rust's own numbers.

use super::Array;
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use half::{bf16, f16};

/// A number of Rust that arrays hold as it is in memory.
pub trait Element: bytemuck::Pod + sealed::Sealed {
    /// The type of an array of such elements.
    const DTYPE: DType;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),*) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

elements!(f16 => F16, bf16 => Bf16, f32 => F32, f64 => F64, i8 => S8, u8 => U8, i32 => S32, u32 => U32, i64 => S64);

impl Array {
    /// An array of truth values, row by row.
    ///
    /// # Errors
    /// As [`Array::from_slice`].
    pub fn from_bools(shape: &[usize], elements: &[bool]) -> Result<Array> {
        let bytes: Vec<u8> = elements.iter().map(|b| u8::from(*b)).collect();
        Ok(Array { dtype: DType::Bool, ..Array::from_slice(shape, &bytes)? })
    }

    /// The truth values of an array of them; `None` of an array of another type.
    pub fn to_bools(&self) -> Option<Vec<bool>> {
        (self.dtype == DType::Bool).then(|| self.bytes.iter().map(|b| *b != 0).collect())
    }

    /// An array of a slice's elements, row by row; its type follows from the elements.
    ///
    /// ```
    /// use warploom::{Array, DType};
    /// let a = Array::from_slice(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    /// assert_eq!((a.dtype, a.get(4)), (DType::F32, 5.0));
    /// # Ok::<(), warploom::Error>(())
    /// ```
    ///
    /// # Errors
    /// `array.size` where the shape does not have as many elements as the slice.
    pub fn from_slice<T: Element>(shape: &[usize], elements: &[T]) -> Result<Array> {
        let count = shape.iter().try_fold(1usize, |n, extent| n.checked_mul(*extent));
        if count != Some(elements.len()) {
            let message = format!("shape {shape:?} does not have the {} elements of the slice", elements.len());
            return Err(Error::input(Code::ArraySize, message));
        }
        Ok(Array { dtype: T::DTYPE, shape: shape.to_vec(), bytes: bytemuck::cast_slice(elements).to_vec() })
    }

    /// The elements, row by row, without a copy.
    ///
    /// # Errors
    /// `array.type` where the array is of another type; `array.align` where its bytes are not aligned for the elements:
    /// [`Array::to_vec`] copies them.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.check_type::<T>()?;
        bytemuck::try_cast_slice(&self.bytes).map_err(|e| {
            Error::input(Code::ArrayAlign, format!("the bytes of the array: {e}")).help("Array::to_vec copies them")
        })
    }

    /// A copy of the elements, row by row.
    ///
    /// # Errors
    /// `array.type` where the array is of another type.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.check_type::<T>()?;
        Ok(bytemuck::allocation::pod_collect_to_vec(&self.bytes))
    }

    fn check_type<T: Element>(&self) -> Result<()> {
        if self.dtype == T::DTYPE {
            return Ok(());
        }
        let message = format!("the array holds {}, not {}", self.dtype, T::DTYPE);
        Err(Error::input(Code::ArrayType, message).help("Array::get reads an element of any type as f64"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_come_back_as_they_went_in() {
        let a = Array::from_slice(&[2, 2], &[1i64, -2, i64::MAX, i64::MIN]).unwrap();
        assert_eq!(a.to_vec::<i64>().unwrap(), [1, -2, i64::MAX, i64::MIN]);
        let halves = [f16::from_f32(0.5), f16::from_f32(-3.0)];
        assert_eq!(Array::from_slice(&[2], &halves).unwrap().as_slice::<f16>().unwrap(), halves);
        assert_eq!(Array::from_slice(&[3], &halves).unwrap_err().code(), Code::ArraySize);
        assert_eq!(Array::from_slice(&[usize::MAX, 2], &halves).unwrap_err().code(), Code::ArraySize);
        assert_eq!(a.as_slice::<f32>().unwrap_err().message(), "the array holds s64, not f32");
    }
}
