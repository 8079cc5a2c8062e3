//! cvt (PTX ISA, "Data Movement and Conversion Instructions: cvt").

use super::round::{Format, Mode, integer_to_odd, integral};

/// A type of cvt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim::ptx) enum CvtType {
    Int { bits: u32, signed: bool },
    Float(Format),
    F64,
}

impl CvtType {
    /// By its name in an opcode; packed types have their own instructions.
    pub fn of(name: &str) -> Option<CvtType> {
        Some(match name {
            "f64" => CvtType::F64,
            "f32" => CvtType::Float(Format::F32),
            "tf32" => CvtType::Float(Format::TF32),
            "f16" => CvtType::Float(Format::F16),
            "bf16" => CvtType::Float(Format::BF16),
            _ => {
                let signed = name.starts_with('s');
                let bits: u32 = name.strip_prefix(['u', 's', 'b'])?.parse().ok()?;
                CvtType::Int { bits: [8, 16, 32, 64].into_iter().find(|b| *b == bits)?, signed }
            }
        })
    }

    /// Bits of a register that holds it.
    pub fn bits(self) -> u32 {
        match self {
            CvtType::Int { bits, .. } => bits,
            CvtType::F64 => 64,
            CvtType::Float(Format::F32 | Format::TF32) => 32,
            CvtType::Float(format) => 1 + format.exponent + format.fraction,
        }
    }
}

/// A conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim::ptx) struct Convert {
    pub to: CvtType,
    pub from: CvtType,
    pub mode: Mode,
    /// Rounded to an integer (`rni`, `rzi`, `rmi`, `rpi`).
    pub integral: bool,
    pub ftz: bool,
    /// To [0, 1], or for integers to the range of the type.
    pub saturate: bool,
    /// To the largest finite number.
    pub finite: bool,
    /// Negative numbers become zero.
    pub relu: bool,
    /// Bits of the destination's register.
    pub register: u32,
}

fn least_of(bits: u32, signed: bool) -> i128 {
    if signed { -(1 << (bits - 1)) } else { 0 }
}

fn most_of(bits: u32, signed: bool) -> i128 {
    if signed { (1 << (bits - 1)) - 1 } else { (1 << bits) - 1 }
}

impl Convert {
    /// Converts a value. Registers may be wider than the type: the bits above are ignored.
    pub fn apply(&self, raw: u64) -> u64 {
        match self.from {
            CvtType::Int { bits, signed } => {
                let wide = i128::from(raw) & ((1 << bits) - 1);
                let value = if signed && wide >> (bits - 1) & 1 == 1 { wide - (1 << bits) } else { wide };
                self.convert_integer(value)
            }
            CvtType::F64 => self.convert_float(f64::from_bits(raw)),
            CvtType::Float(Format::F32 | Format::TF32) => {
                let value = f32::from_bits(raw as u32);
                let value = if self.ftz && value.is_subnormal() { 0.0f32.copysign(value) } else { value };
                self.convert_float(f64::from(value))
            }
            CvtType::Float(format) => self.convert_float(format.value(raw)),
        }
    }

    fn convert_integer(&self, value: i128) -> u64 {
        match self.to {
            CvtType::Int { bits, signed } => {
                let (least, most) = (least_of(bits, signed), most_of(bits, signed));
                self.extended(if self.saturate { value.clamp(least, most) } else { value })
            }
            CvtType::F64 => {
                let near = value as f64;
                let (exact, zero) = (near as i128 == value, self.mode == Mode::Zero);
                let beyond = zero && (near as i128).abs() > value.abs();
                (if !exact && beyond { f64::from_bits(near.to_bits() - 1) } else { near }).to_bits()
            }
            CvtType::Float(_) => self.round(integer_to_odd(value)),
        }
    }

    /// An integer in a register that may be wider than its type: extended as the type's sign says.
    fn extended(&self, value: i128) -> u64 {
        let CvtType::Int { bits, signed } = self.to else { return value as u64 };
        let low = value & most_of(bits, false);
        let low = if signed && low >> (bits - 1) & 1 == 1 { low - (1 << bits) } else { low };
        (low & most_of(self.register, false)) as u64
    }

    fn convert_float(&self, value: f64) -> u64 {
        if let CvtType::Int { bits, signed } = self.to {
            // What is too large is clamped.
            if value.is_nan() {
                let zero = self.from != CvtType::F64 && bits < 64;
                return if zero { 0 } else { self.extended(1 << (bits - 1)) };
            }
            let value = integral(value, self.mode);
            return self.extended((value as i128).clamp(least_of(bits, signed), most_of(bits, signed)));
        }
        let mut value = value;
        if self.integral {
            value = integral(value, self.mode);
        }
        if self.saturate {
            value = if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) };
        }
        if self.relu && value <= 0.0 {
            value = 0.0;
        }
        self.round(value)
    }

    fn round(&self, value: f64) -> u64 {
        match self.to {
            CvtType::F64 => value.to_bits(),
            CvtType::Float(Format::TF32) => Format::TF32.round(value, self.mode, self.finite) << 13,
            CvtType::Float(format) => {
                let bits = format.round(value, self.mode, self.finite);
                match self.ftz && format == Format::F32 && bits & 0x7f80_0000 == 0 {
                    true => bits & 0x8000_0000,
                    false => bits,
                }
            }
            CvtType::Int { .. } => value as u64,
        }
    }
}
