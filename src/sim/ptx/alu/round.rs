//! Rounding of exact values to the formats of PTX, in each of its modes, and operations on 16-bit floating-point numbers.

/// A rounding mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim::ptx) enum Mode {
    /// To nearest, ties to even (`rn`, `rni`).
    Nearest,
    /// To nearest, ties away from zero (`rna`).
    Away,
    /// Towards zero (`rz`, `rzi`).
    Zero,
    /// Towards negative infinity (`rm`, `rmi`).
    Down,
    /// Towards positive infinity (`rp`, `rpi`).
    Up,
}

/// A binary floating-point format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim::ptx) struct Format {
    /// Bits of the exponent.
    pub exponent: u32,
    /// Bits of the fraction.
    pub fraction: u32,
    /// Whether the largest exponent holds infinities and NaNs alone; else (e4m3) one pattern is NaN.
    pub infinite: bool,
}

impl Format {
    pub const F16: Format = Format { exponent: 5, fraction: 10, infinite: true };
    pub const BF16: Format = Format { exponent: 8, fraction: 7, infinite: true };
    pub const F32: Format = Format { exponent: 8, fraction: 23, infinite: true };
    pub const TF32: Format = Format { exponent: 8, fraction: 10, infinite: true };
    pub const E4M3: Format = Format { exponent: 4, fraction: 3, infinite: false };
    pub const E5M2: Format = Format { exponent: 5, fraction: 2, infinite: true };

    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// The pattern of the largest finite number.
    fn largest(self) -> u64 {
        let ones = (1u64 << (self.exponent + self.fraction)) - 1;
        if self.infinite { ones - (1 << self.fraction) } else { ones - 1 }
    }

    /// The pattern of NaN.
    pub fn nan(self) -> u64 {
        (1u64 << (self.exponent + self.fraction)) - 1
    }

    /// The value of a pattern.
    pub fn value(self, bits: u64) -> f64 {
        let sign = if bits >> (self.exponent + self.fraction) & 1 == 1 { -1.0 } else { 1.0 };
        let top = (1u64 << self.exponent) - 1;
        let (exponent, fraction) = (bits >> self.fraction & top, bits & ((1 << self.fraction) - 1));
        if exponent == top && self.infinite {
            return if fraction == 0 { sign * f64::INFINITY } else { f64::NAN };
        }
        if !self.infinite && bits & ((1 << (self.exponent + self.fraction)) - 1) == self.nan() {
            return f64::NAN;
        }
        let scale = exponent.max(1) as i32 - self.bias() - self.fraction as i32;
        let hidden = if exponent == 0 { 0 } else { 1 << self.fraction };
        sign * (hidden + fraction) as f64 * power(scale)
    }

    /// The pattern of the value that is nearest in a mode. `finite`: what is too large becomes the largest finite number.
    pub fn round(self, x: f64, mode: Mode, finite: bool) -> u64 {
        let sign = u64::from(x.is_sign_negative()) << (self.exponent + self.fraction);
        if x.is_nan() {
            return self.nan();
        }
        if x == 0.0 {
            return sign;
        }
        let over = |finite: bool| match (finite, self.infinite) {
            (true, _) => self.largest(),
            (false, true) => self.largest() + 1,
            (false, false) => self.nan(),
        };
        if x.is_infinite() {
            return sign | over(finite);
        }
        let size = x.abs();
        let exponent = ((size.to_bits() >> 52) as i32 - 1023).max(1 - self.bias());
        let quantum = exponent - self.fraction as i32;
        let scaled = size * power(-quantum);
        let (mut count, rest) = (scaled.floor() as u64, scaled - scaled.floor());
        let up = match mode {
            Mode::Nearest => rest > 0.5 || rest == 0.5 && count & 1 == 1,
            Mode::Away => rest >= 0.5,
            Mode::Zero => false,
            Mode::Down => rest > 0.0 && x < 0.0,
            Mode::Up => rest > 0.0 && x > 0.0,
        };
        count += u64::from(up);
        let field = (quantum + self.fraction as i32 + self.bias()) as u64;
        let bits = (field << self.fraction) + count - (1 << self.fraction);
        if bits <= self.largest() {
            return sign | bits;
        }
        let clipped = match mode {
            Mode::Zero => true,
            Mode::Down => x > 0.0,
            Mode::Up => x < 0.0,
            Mode::Nearest | Mode::Away => false,
        };
        sign | over(finite || clipped)
    }
}

/// A power of two; the formats here need none outside of what f64 has.
fn power(n: i32) -> f64 {
    f64::from_bits(((n + 1023).clamp(1, 2046) as u64) << 52)
}

/// The sum of two numbers rounded to odd: rounding it again to a format of at most 24 bits gives what one rounding gives.
pub(in crate::sim::ptx) fn add_to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    if !sum.is_finite() {
        return sum;
    }
    let other = sum - a;
    let error = (a - (sum - other)) + (b - other);
    if error == 0.0 || sum.to_bits() & 1 == 1 {
        return sum;
    }
    // The exact sum is between this even number and its neighbour, which is odd.
    let away = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if away { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// An integer as f64, rounded to odd.
pub(in crate::sim::ptx) fn integer_to_odd(value: i128) -> f64 {
    let size = value.unsigned_abs();
    let drop = (128 - size.leading_zeros()).saturating_sub(53);
    let kept = size >> drop;
    let odd = if kept << drop == size { kept } else { kept | 1 };
    let out = odd as f64 * power(drop as i32);
    if value < 0 { -out } else { out }
}

/// A value rounded to an integer in a mode.
pub(in crate::sim::ptx) fn integral(x: f64, mode: Mode) -> f64 {
    match mode {
        Mode::Nearest => x.round_ties_even(),
        Mode::Away => x.round(),
        Mode::Zero => x.trunc(),
        Mode::Down => x.floor(),
        Mode::Up => x.ceil(),
    }
}
