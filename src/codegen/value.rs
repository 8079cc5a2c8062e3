//! Data values: their LLVM types, literals and lanes.

use super::builder::{Builder, Type, Value};
use super::packed::is_packed;
use super::session::bug;
use crate::array::fp8_bits;
use crate::dtype::{Class, DType};
use crate::error::Result;
use crate::ir::Literal;
use inkwell::types::BasicType;

/// A value of the program: `lanes` elements of a type.
#[derive(Debug, Clone, Copy)]
pub struct Data<'c> {
    /// In LLVM.
    pub value: Value<'c>,
    /// The type of an element.
    pub dtype: DType,
    /// How many; a scalar has 1.
    pub lanes: u32,
}

impl<'c> Builder<'c, '_> {
    /// The LLVM type of one element.
    pub fn element(&self, dtype: DType) -> Result<Type<'c>> {
        let c = self.context;
        Ok(match dtype {
            DType::F16 => c.f16_type().into(),
            DType::Bf16 => c.bf16_type().into(),
            DType::F32 | DType::Tf32 => c.f32_type().into(),
            DType::F64 => c.f64_type().into(),
            // A single element below a byte is a byte that holds its value; an 8-bit float one that holds its code.
            DType::S8 | DType::U8 | DType::S4 | DType::U4 | DType::B1 | DType::E4m3 | DType::E5m2 => c.i8_type().into(),
            DType::S32 | DType::U32 => c.i32_type().into(),
            DType::S64 => c.i64_type().into(),
            DType::Bool => c.bool_type().into(),
        })
    }

    /// The LLVM type of `lanes` elements.
    pub fn shape(&self, dtype: DType, lanes: u32) -> Result<Type<'c>> {
        if is_packed(dtype) && lanes > 1 {
            return self.packed(dtype, lanes);
        }
        vector_of(self.element(dtype)?, lanes)
    }

    /// A literal.
    pub fn literal(&self, dtype: DType, literal: Literal) -> Result<Value<'c>> {
        let (int, float) = match literal {
            Literal::Int(v) => (v, v as f64),
            Literal::Float(v) => (v as i64, v),
            Literal::Any => (0, 0.0),
        };
        match self.element(dtype)? {
            Type::FloatType(t) => Ok(t.const_float(rounded(dtype, float)).into()),
            Type::IntType(t) if dtype == DType::Bool => Ok(t.const_int(u64::from(int != 0), false).into()),
            Type::IntType(t) if dtype.is_float8() => Ok(t.const_int(float8_code(dtype, float), false).into()),
            Type::IntType(t) => Ok(t.const_int(int as u64, true).into()),
            _ => Err(bug(format!("a literal of type {dtype}"))),
        }
    }

    /// A number in every lane, of a type that holds it.
    pub fn number(&self, dtype: DType, lanes: u32, value: f64) -> Result<Value<'c>> {
        let literal = if dtype.is_float() { Literal::Float(value) } else { Literal::Int(value as i64) };
        let one = self.literal(dtype, literal)?;
        self.gather(&vec![one; lanes as usize])
    }

    /// Computes lane by lane: for operations that have no vector form.
    pub fn per_lane(
        &self,
        values: &[Value<'c>],
        lanes: u32,
        mut f: impl FnMut(&[Value<'c>]) -> Result<Value<'c>>,
    ) -> Result<Value<'c>> {
        let mut out = Vec::with_capacity(lanes as usize);
        for lane in 0..lanes {
            let scalars: Vec<Value> = values.iter().map(|v| self.lane(*v, lane)).collect::<Result<_>>()?;
            out.push(f(&scalars)?);
        }
        self.gather(&out)
    }
}

/// The nearest value of a 16-bit float, which LLVM's constants do not round to by themselves in every case.
fn rounded(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F16 => half::f16::from_f64(value).to_f64(),
        DType::Bf16 => half::bf16::from_f64(value).to_f64(),
        DType::F32 => f64::from(value as f32),
        DType::Tf32 => f64::from(crate::array::tf32(value)),
        _ => value,
    }
}

/// The type in which arithmetic on a type runs, with one rounding after it.
pub fn computed_in(dtype: DType) -> DType {
    if matches!(dtype, DType::Bf16 | DType::Tf32 | DType::E4m3 | DType::E5m2) { DType::F32 } else { dtype }
}

/// The code of the nearest 8-bit float.
fn float8_code(dtype: DType, value: f64) -> u64 {
    let (exponent, fraction) = if dtype == DType::E4m3 { (4, 3) } else { (5, 2) };
    fp8_bits(value, exponent, fraction).into()
}

/// Whether integers of the type compare and extend as unsigned numbers.
pub fn is_unsigned(dtype: DType) -> bool {
    matches!(dtype.class(), Class::Unsigned | Class::Bool)
}

/// The vector type of `lanes` elements; of one lane the element's type.
pub fn vector_of(element: Type<'_>, lanes: u32) -> Result<Type<'_>> {
    if lanes == 1 {
        return Ok(element);
    }
    match element {
        Type::FloatType(t) => Ok(t.vec_type(lanes).as_basic_type_enum()),
        Type::IntType(t) => Ok(t.vec_type(lanes).as_basic_type_enum()),
        _ => Err(bug("a vector of neither integers nor floats")),
    }
}
