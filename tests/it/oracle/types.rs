//! The types of elements: what each can hold.

/// A type of te's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type {
    /// Its name.
    pub name: &'static str,
    /// Bits of an integer; bits of the significand of a float, the hidden one included.
    pub bits: u32,
    /// What its values are.
    pub kind: Kind,
    /// Of a float: 2 to this power is beyond its range.
    pub exponent: i32,
}

/// What values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Rounded numbers.
    Float,
    /// Two's complement.
    Signed,
    /// From 0 on.
    Unsigned,
    /// Truth values.
    Bool,
}

const fn float(name: &'static str, bits: u32, exponent: i32) -> Type {
    Type { name, bits, kind: Kind::Float, exponent }
}

const fn integer(name: &'static str, bits: u32, kind: Kind) -> Type {
    Type { name, bits, kind, exponent: 0 }
}

const ALL: [Type; 16] = [
    float("f16", 11, 16),
    float("bf16", 8, 128),
    float("f32", 24, 128),
    float("f64", 53, 1024),
    float("tf32", 11, 128),
    float("e4m3", 4, 8),
    float("e5m2", 3, 15),
    integer("s8", 8, Kind::Signed),
    integer("u8", 8, Kind::Unsigned),
    integer("s4", 4, Kind::Signed),
    integer("u4", 4, Kind::Unsigned),
    integer("b1", 1, Kind::Unsigned),
    integer("s32", 32, Kind::Signed),
    integer("u32", 32, Kind::Unsigned),
    integer("s64", 64, Kind::Signed),
    Type::BOOL,
];

impl Type {
    /// Truth values.
    pub const BOOL: Type = integer("bool", 1, Kind::Bool);

    /// The type of a name.
    pub fn named(name: &str) -> Option<Type> {
        ALL.into_iter().find(|t| t.name == name)
    }

    /// The least and the greatest value of an integer type.
    pub fn range(self) -> Option<(i128, i128)> {
        match self.kind {
            Kind::Float => None,
            Kind::Signed => Some((-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1)),
            Kind::Unsigned | Kind::Bool => Some((0, (1 << self.bits) - 1)),
        }
    }

    /// The magnitude up to which a float type holds every integer.
    pub fn exact(self) -> i128 {
        match self.kind {
            Kind::Float => 1 << self.bits.min(100),
            _ => i128::MAX,
        }
    }

    /// Whether every value of this type is one of the other.
    pub fn fits_in(self, other: Type) -> Option<bool> {
        if self == other {
            return Some(true);
        }
        Some(match (self.kind, other.kind) {
            (Kind::Bool, _) => true,
            (_, Kind::Bool) => return None,
            (Kind::Float, Kind::Float) => self.bits <= other.bits && self.exponent <= other.exponent,
            (Kind::Float, _) => false,
            (_, Kind::Float) => {
                let (low, high) = self.range()?;
                let digits = 128 - high.max(-(low + 1)).leading_zeros();
                digits <= other.bits && digits as i32 <= other.exponent
            }
            _ => {
                let ((low, high), (least, greatest)) = (self.range()?, other.range()?);
                least <= low && high <= greatest
            }
        })
    }
}
