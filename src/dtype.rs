//! The types of data: names, widths and what kind of number each holds.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The type of one element. JSON has its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DType {
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
    /// f32 storage of which the upper 19 bits are the value: tensor cores read no others.
    Tf32,
    /// 8-bit float, 4 exponent bits, no infinities. Conversions saturate at 448, the largest number; NaN becomes 0x7F.
    E4m3,
    /// 8-bit float, 5 exponent bits. Conversions saturate at 57344, the largest finite number; NaN becomes 0x7F.
    E5m2,
    /// Signed 8-bit integer.
    S8,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 4-bit integer, two to a byte.
    S4,
    /// Unsigned 4-bit integer, two to a byte.
    U4,
    /// One bit, eight to a byte, the lowest index in the lowest bit.
    B1,
    /// Signed 32-bit integer.
    S32,
    /// Unsigned 32-bit integer.
    U32,
    /// Signed 64-bit integer.
    S64,
    /// A truth value. In memory it is a byte, of which any value but 0 is true; what a program writes is 0 or 1.
    Bool,
}

/// The bits of an f32 that are the value of a [`DType::Tf32`].
pub(crate) const TF32: u32 = !0x1fff;

/// What kind of number a type holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// Floating point.
    Float,
    /// Two's complement.
    Signed,
    /// Unsigned.
    Unsigned,
    /// Truth value.
    Bool,
}

/// Bits of the fraction that the accumulators of tensor cores keep of sums of products of 8-bit floats: e8m13 (SageAttention2), 14 bits with the
/// one before the point (DeepSeek-V3 report), and 13 measured by a GPU case on an H200. Simulator and reference follow it.
pub const FLOAT8_SUM_FRACTION: i32 = 13;

impl DType {
    /// Every type, in the order of the declaration.
    pub const ALL: [DType; 16] = [
        DType::F16,
        DType::Bf16,
        DType::F32,
        DType::F64,
        DType::Tf32,
        DType::E4m3,
        DType::E5m2,
        DType::S8,
        DType::U8,
        DType::S4,
        DType::U4,
        DType::B1,
        DType::S32,
        DType::U32,
        DType::S64,
        DType::Bool,
    ];

    /// The name in programs and dumps.
    pub fn name(self) -> &'static str {
        match self {
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::Tf32 => "tf32",
            DType::E4m3 => "e4m3",
            DType::E5m2 => "e5m2",
            DType::S8 => "s8",
            DType::U8 => "u8",
            DType::S4 => "s4",
            DType::U4 => "u4",
            DType::B1 => "b1",
            DType::S32 => "s32",
            DType::U32 => "u32",
            DType::S64 => "s64",
            DType::Bool => "bool",
        }
    }

    /// The type of that name.
    pub fn parse(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Bits that one element takes in memory.
    pub fn bits(self) -> u32 {
        match self {
            DType::B1 => 1,
            DType::S4 | DType::U4 => 4,
            DType::S8 | DType::U8 | DType::E4m3 | DType::E5m2 | DType::Bool => 8,
            DType::F16 | DType::Bf16 => 16,
            DType::F32 | DType::Tf32 | DType::S32 | DType::U32 => 32,
            DType::F64 | DType::S64 => 64,
        }
    }

    /// Bytes that `count` elements take, packed and rounded up to a whole byte.
    pub fn bytes_of(self, count: u64) -> u64 {
        (count * u64::from(self.bits())).div_ceil(8)
    }

    /// What kind of number it holds.
    pub fn class(self) -> Class {
        match self {
            DType::F16 | DType::Bf16 | DType::F32 | DType::F64 | DType::Tf32 | DType::E4m3 | DType::E5m2 => {
                Class::Float
            }
            DType::S8 | DType::S4 | DType::S32 | DType::S64 => Class::Signed,
            DType::U8 | DType::U4 | DType::B1 | DType::U32 => Class::Unsigned,
            DType::Bool => Class::Bool,
        }
    }

    /// Whether a parameter of this type that is only read takes data of a type: its own, and for tf32 that of f32, whose lower 13 bits are not
    /// read.
    pub fn reads(self, given: DType) -> bool {
        self == given || self == DType::Tf32 && given == DType::F32
    }

    /// Whether it is a floating-point type of 8 bits.
    pub fn is_float8(self) -> bool {
        matches!(self, DType::E4m3 | DType::E5m2)
    }

    /// Whether it is a floating-point type.
    pub fn is_float(self) -> bool {
        self.class() == Class::Float
    }

    /// Whether `to` can represent every value of this type.
    pub fn widens_to(self, to: DType) -> bool {
        let (f, t) = (Represents::of(self), Represents::of(to));
        self == to || (f.precision <= t.precision && f.low >= t.low && f.high <= t.high && (t.float || !f.float))
    }
}

/// Significant bits, and the exponents of the smallest step and of the largest value.
struct Represents {
    float: bool,
    precision: u32,
    low: i32,
    high: i32,
}

impl Represents {
    fn of(dtype: DType) -> Represents {
        let float = |precision, low, high| Represents { float: true, precision, low, high };
        match dtype {
            DType::F16 => float(11, -24, 16),
            DType::Bf16 => float(8, -133, 128),
            DType::Tf32 => float(11, -136, 128),
            DType::F32 => float(24, -149, 128),
            DType::F64 => float(53, -1074, 1024),
            DType::E4m3 => float(4, -9, 9),
            DType::E5m2 => float(3, -16, 16),
            _ => {
                // A signed integer of n bits fits a type of n - 1 value bits and a sign; into unsigned types none does.
                let signed = dtype.class() == Class::Signed;
                let bits = if matches!(dtype, DType::Bool | DType::B1) { 1 } else { dtype.bits() - u32::from(signed) };
                Represents { float: false, precision: bits, low: if signed { -1 } else { 0 }, high: bits as i32 }
            }
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for d in DType::ALL {
            assert_eq!(DType::parse(d.name()), Some(d));
        }
        assert_eq!(DType::parse("float32"), None);
    }

    #[test]
    fn widening_is_what_loses_nothing() {
        use DType::*;
        let yes = [(F16, F32), (Bf16, F32), (F32, F64), (S8, S32), (U8, S32), (S8, F16), (E4m3, F16), (E5m2, F16)];
        for (a, b) in
            yes.into_iter().chain([(S4, S8), (U4, U8), (B1, S32), (U4, S8), (Tf32, F32), (S32, F64), (E4m3, Bf16)])
        {
            assert!(a.widens_to(b), "{a} to {b}");
        }
        for (a, b) in [(F32, F16), (F16, Bf16), (S32, F32), (S8, U8), (S8, U32), (F32, S64), (U32, S32), (F32, Tf32)] {
            assert!(!a.widens_to(b), "{a} to {b}");
        }
        assert!(DType::ALL.into_iter().all(|d| d.widens_to(d)));
    }
}
