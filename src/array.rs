//! Host arrays: the data that programs take and return on any device, as packed row-major bytes.

mod bits;
mod close;
#[cfg(feature = "files")]
mod files;
mod high_first;
mod typed;

pub use bits::BitOrder;
pub use typed::Element;

use crate::dtype::{Class, DType, TF32};
use crate::error::{Code, Error, Result};
use half::{bf16, f16};
use std::fmt;

/// A packed row-major array in host memory. Elements below 8 bits lie lowest bits first: of two 4-bit integers in a byte the
/// one with the lower index has bits 0 to 3. That is the layout of a buffer in bits (`ir::layout::Layout::of`), which memory
/// has on every device; [`Array::from_high_first`] and [`Array::to_high_first`] convert from and to the opposite order of words,
/// [`Array::from_packbits`] and [`Array::to_packbits`] from and to either order of the bits of a byte.
#[derive(Clone, PartialEq, Eq)]
pub struct Array {
    /// The type of an element.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// The elements.
    pub bytes: Vec<u8>,
}

impl Array {
    /// All bits zero. `shape` has the extents, outermost first.
    ///
    /// # Errors
    /// `array.size` where the array has 2^36 elements or more; `array.memory` where the host has no memory for it.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Array> {
        let count = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d as u64)).filter(|n| *n < 1 << 36);
        let Some(count) = count else {
            return Err(Error::input(Code::ArraySize, format!("an array of shape {shape:?} is too large")));
        };
        Ok(Array { dtype, shape: shape.to_vec(), bytes: filled(0, dtype.bytes_of(count) as usize)? })
    }

    /// Every byte 0xA5 (a large or odd value in every type): what an output holds before a run that must write it all.
    ///
    /// # Errors
    /// As [`Array::zeros`].
    pub fn poisoned(dtype: DType, shape: &[usize]) -> Result<Array> {
        let mut a = Array::zeros(dtype, shape)?;
        a.bytes.fill(0xA5);
        Ok(a)
    }

    /// Uniform in [-0.5, 0.5) for floats; the whole range for integers of up to 8 bits, else -128..128. Seeded. Parts of
    /// large arrays have seeds of their own, so that threads share them out.
    ///
    /// # Errors
    /// As [`Array::zeros`].
    pub fn random(dtype: DType, shape: &[usize], seed: u64) -> Result<Array> {
        let mut whole = Array::zeros(dtype, shape)?;
        let count = whole.len();
        let parts: Vec<(usize, &mut [u8])> =
            whole.bytes.chunks_mut(dtype.bytes_of(PART as u64) as usize).enumerate().collect();
        let threads = std::thread::available_parallelism().map_or(1, usize::from).clamp(1, parts.len().max(1));
        let next = std::sync::Mutex::new(parts.into_iter());
        let work = || {
            while let Some((number, bytes)) = next.lock().ok().and_then(|mut parts| parts.next()) {
                let part = random_part(dtype, PART.min(count - number * PART), seed, number as u64)?;
                bytes.copy_from_slice(&part.bytes);
            }
            Ok(())
        };
        let done: Vec<Result<()>> = match threads {
            1 => vec![work()],
            _ => std::thread::scope(|scope| {
                let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
                let lost = || Err(Error::bug(Code::ArrayThread, "a thread that drew numbers panicked"));
                running.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost())).collect()
            }),
        };
        done.into_iter().collect::<Result<()>>().map(|()| whole)
    }

    /// Small integers in `-magnitude..=magnitude` (`0..=magnitude` for unsigned types): sums of their products stay
    /// exact, so that results can be compared bit by bit. Seeded.
    ///
    /// # Errors
    /// `array.range` where the magnitude is negative; as [`Array::zeros`].
    pub fn random_integers(dtype: DType, shape: &[usize], magnitude: i64, seed: u64) -> Result<Array> {
        if magnitude < 0 {
            return Err(Error::input(Code::ArrayRange, format!("{magnitude} is no magnitude: it is negative")));
        }
        let mut rng = fastrand::Rng::with_seed(seed);
        let low = if matches!(dtype.class(), Class::Unsigned | Class::Bool) { 0 } else { -magnitude };
        Array::from_fn(dtype, shape, |_| rng.i64(low..=magnitude) as f64)
    }

    /// Integers in `low..end`, drawn at random: what an input holds whose values are stated. Seeded.
    ///
    /// # Errors
    /// `array.range` where the range is empty; as [`Array::zeros`].
    pub fn random_values(dtype: DType, shape: &[usize], (low, end): (i64, i64), seed: u64) -> Result<Array> {
        if low >= end {
            return Err(Error::input(Code::ArrayRange, format!("there is no integer in {low}..{end}")));
        }
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut array = Array::zeros(dtype, shape)?;
        for i in 0..array.len() {
            array.set_integer(i, rng.i64(low..end));
        }
        Ok(array)
    }

    /// That every element is in `low..end`.
    ///
    /// # Errors
    /// `array.values` with the first element that is not; `array.type` where the array does not hold integers.
    pub fn check_values(&self, name: &str, (low, end): (i64, i64)) -> Result<()> {
        if self.dtype.is_float() {
            return Err(Error::input(Code::ArrayType, format!("{name} holds {}, no integers", self.dtype)));
        }
        let Some(n) = (0..self.len()).find(|n| !(low..end).contains(&self.integer(*n))) else { return Ok(()) };
        let mut place = Vec::new();
        self.shape.iter().rev().fold(n, |rest, extent| {
            place.insert(0, rest % extent);
            rest / extent
        });
        let message = format!(
            "{name}{place:?} is {}, but the values of {name} are stated to be in {low}..{end}",
            self.integer(n)
        );
        Err(Error::input(Code::ArrayValues, message))
    }

    /// The integer at a flat position, also where an f64 does not hold it.
    fn integer(&self, i: usize) -> i64 {
        match self.dtype {
            DType::S64 => i64::from_le_bytes(bytes(&self.bytes, i * 8)),
            _ => self.get(i) as i64,
        }
    }

    fn set_integer(&mut self, i: usize, value: i64) {
        match self.dtype {
            DType::S64 => self.bytes[i * 8..i * 8 + 8].copy_from_slice(&value.to_le_bytes()),
            _ => self.set(i, value as f64),
        }
    }

    /// Each element from its flat position, rounded to the type.
    ///
    /// # Errors
    /// As [`Array::zeros`].
    pub fn from_fn(dtype: DType, shape: &[usize], mut f: impl FnMut(usize) -> f64) -> Result<Array> {
        let mut a = Array::zeros(dtype, shape)?;
        for i in 0..a.len() {
            a.set(i, f(i));
        }
        Ok(a)
    }

    /// The number of elements; `usize::MAX` of a shape that no array has.
    pub fn len(&self) -> usize {
        if self.shape.contains(&0) {
            return 0;
        }
        self.shape.iter().fold(1, |n: usize, extent| n.saturating_mul(*extent))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at a flat position as f64 (s64 values beyond 2^53 round).
    ///
    /// # Panics
    /// Where there is no such element, as indexing a slice does.
    pub fn get(&self, i: usize) -> f64 {
        let b = &self.bytes;
        let n = self.dtype.bits() as usize / 8;
        match self.dtype {
            DType::F16 => f16::from_le_bytes(bytes(b, i * n)).to_f64(),
            DType::Bf16 => bf16::from_le_bytes(bytes(b, i * n)).to_f64(),
            DType::F32 => f64::from(f32::from_le_bytes(bytes(b, i * n))),
            DType::Tf32 => f64::from(f32::from_bits(u32::from_le_bytes(bytes(b, i * n)) & TF32)),
            DType::F64 => f64::from_le_bytes(bytes(b, i * n)),
            DType::E4m3 => fp8_value(b[i], 4, 3),
            DType::E5m2 => fp8_value(b[i], 5, 2),
            DType::S8 => f64::from(b[i] as i8),
            DType::U8 => f64::from(b[i]),
            DType::Bool => f64::from(u8::from(b[i] != 0)),
            DType::S4 => f64::from(((nibble(b, i) << 4) as i8) >> 4),
            DType::U4 => f64::from(nibble(b, i)),
            DType::B1 => f64::from(b[i / 8] >> (i % 8) & 1),
            DType::S32 => f64::from(i32::from_le_bytes(bytes(b, i * n))),
            DType::U32 => f64::from(u32::from_le_bytes(bytes(b, i * n))),
            DType::S64 => i64::from_le_bytes(bytes(b, i * n)) as f64,
        }
    }

    /// Writes the element at a flat position, rounded to nearest even (floats; of two tf32 as near the one away from zero) or truncated and
    /// wrapped (integers).
    ///
    /// # Panics
    /// Where there is no such element, as indexing a slice does.
    pub fn set(&mut self, i: usize, value: f64) {
        let n = self.dtype.bits() as usize / 8;
        let mut put = |raw: &[u8]| self.bytes[i * n..i * n + n].copy_from_slice(raw);
        match self.dtype {
            DType::F16 => put(&f16::from_f64(value).to_le_bytes()),
            DType::Bf16 => put(&bf16::from_f64(value).to_le_bytes()),
            DType::F32 => put(&(value as f32).to_le_bytes()),
            DType::Tf32 => put(&tf32(value).to_le_bytes()),
            DType::F64 => put(&value.to_le_bytes()),
            DType::E4m3 => put(&[fp8_bits(value, 4, 3)]),
            DType::E5m2 => put(&[fp8_bits(value, 5, 2)]),
            DType::S8 | DType::U8 => put(&[value as i64 as u8]),
            DType::Bool => put(&[u8::from(value != 0.0)]),
            DType::S32 | DType::U32 => put(&(value as i64 as u32).to_le_bytes()),
            DType::S64 => put(&(value as i64).to_le_bytes()),
            DType::S4 | DType::U4 => {
                let shift = i % 2 * 4;
                let byte = &mut self.bytes[i / 2];
                *byte = *byte & !(0xF << shift) | ((value as i64 as u8 & 0xF) << shift);
            }
            DType::B1 => {
                let byte = &mut self.bytes[i / 8];
                *byte = *byte & !(1 << (i % 8)) | ((value as i64 as u8 & 1) << (i % 8));
            }
        }
    }
}

/// Type, shape, and the first elements: what an assertion that fails prints.
impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 16;
        let held = (self.bytes.len() * 8 / self.dtype.bits() as usize).min(self.len());
        write!(f, "{}{:?} ", self.dtype, self.shape)?;
        let mut list = f.debug_list();
        list.entries((0..held.min(SHOWN)).map(|i| self.get(i)));
        if held > SHOWN { list.finish_non_exhaustive() } else { list.finish() }
    }
}

/// So many copies of a value; an error, the host's fault, where the host has no memory for them.
pub(crate) fn filled<T: Clone>(value: T, count: usize) -> Result<Vec<T>> {
    let mut out = room_for(count)?;
    out.resize(count, value);
    Ok(out)
}

/// An empty vector with room for so many values.
pub(crate) fn room_for<T>(count: usize) -> Result<Vec<T>> {
    let mut out = Vec::new();
    out.try_reserve_exact(count).map_err(|_| {
        let message = format!("the host has no {} bytes of memory left", count.saturating_mul(size_of::<T>()));
        Error::machine(Code::ArrayMemory, message).help("a smaller size, such as --size 256")
    })?;
    Ok(out)
}

/// Elements that are drawn one after the other: whole bytes of every type.
const PART: usize = 1 << 20;

fn random_part(dtype: DType, count: usize, seed: u64, number: u64) -> Result<Array> {
    let mut rng = fastrand::Rng::with_seed(seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    Array::from_fn(dtype, &[count], |_| match dtype.class() {
        Class::Float => rng.f64() - 0.5,
        Class::Bool => f64::from(u8::from(rng.bool())),
        Class::Signed => rng.i64(if dtype.bits() == 4 { -8..8 } else { -128..128 }) as f64,
        Class::Unsigned => rng.u64(0..1 << dtype.bits().min(8)) as f64,
    })
}

fn bytes<const N: usize>(all: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&all[at..at + N]);
    out
}

fn nibble(all: &[u8], i: usize) -> u8 {
    all[i / 2] >> (i % 2 * 4) & 0xF
}

/// The value of an 8-bit float (OCP 8-bit floating point specification: E4M3 has NaN at S.1111.111 and no infinity).
pub fn fp8_value(bits: u8, exponent_bits: u32, mantissa_bits: u32) -> f64 {
    let sign = if bits & 0x80 != 0 { -1.0 } else { 1.0 };
    let exponent = i32::from(bits >> mantissa_bits & ((1 << exponent_bits) - 1));
    let mantissa = f64::from(bits & ((1 << mantissa_bits) - 1));
    let bias = (1 << (exponent_bits - 1)) - 1;
    let scale = f64::from(1u32 << mantissa_bits);
    if exponent_bits == 4 && bits & 0x7F == 0x7F {
        return f64::NAN;
    }
    if exponent_bits == 5 && exponent == 31 {
        return if mantissa == 0.0 { sign * f64::INFINITY } else { f64::NAN };
    }
    if exponent == 0 {
        return sign * mantissa / scale * 2f64.powi(1 - bias);
    }
    sign * (1.0 + mantissa / scale) * 2f64.powi(exponent - bias)
}

/// The nearest 8-bit float, ties to even, saturating as `cvt.rn.satfinite` does.
pub fn fp8_bits(value: f64, exponent_bits: u32, mantissa_bits: u32) -> u8 {
    if value.is_nan() {
        return 0x7F;
    }
    let largest = if exponent_bits == 4 { 0x7Eu8 } else { 0x7B };
    let sign = if value.is_sign_negative() { 0x80u8 } else { 0 };
    let magnitude = value.abs();
    if magnitude >= fp8_value(largest, exponent_bits, mantissa_bits) {
        return sign | largest;
    }
    // The codes are ordered by magnitude: find the last one not above, then choose the nearer neighbour.
    let (mut low, mut high) = (0u8, largest);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fp8_value(middle, exponent_bits, mantissa_bits) <= magnitude { low = middle } else { high = middle }
    }
    let below = magnitude - fp8_value(low, exponent_bits, mantissa_bits);
    let above = fp8_value(high, exponent_bits, mantissa_bits) - magnitude;
    let up = above < below || (above == below && low % 2 == 1);
    sign | if up { high } else { low }
}

/// The nearest tf32, of two the one away from zero (PTX ISA, cvt.rna).
pub(crate) fn tf32(value: f64) -> f32 {
    let near = value as f32;
    if !near.is_finite() {
        return if near.is_nan() { f32::from_bits(f32::NAN.to_bits() & TF32) } else { near };
    }
    let below = f32::from_bits(near.to_bits() & TF32);
    let above = f32::from_bits(below.to_bits() + !TF32 + 1);
    // The next one above the largest is 2^128, which f64 holds.
    let step = 2.0 * (f64::from(f32::from_bits(below.to_bits() | 1 << 12)) - f64::from(below)).abs();
    if value.abs() - f64::from(below).abs() >= step / 2.0 { above } else { below }
}

/// The error function to about 1e-15: its power series near 0, the continued fraction of erfc beyond
/// (Abramowitz and Stegun 7.1.6 and 7.1.14).
pub fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() || a > 6.0 {
        return if a.is_nan() { x } else { x.signum() };
    }
    let magnitude = if a < 2.5 {
        let (mut term, mut sum, mut n) = (a, a, 0.0);
        while term > 1e-18 * sum {
            n += 1.0;
            term *= 2.0 * a * a / (2.0 * n + 1.0);
            sum += term;
        }
        std::f64::consts::FRAC_2_SQRT_PI * (-a * a).exp() * sum
    } else {
        let fraction = (1..=60).rev().fold(a, |f, n| a + f64::from(n) / 2.0 / f);
        1.0 - (-a * a).exp() / fraction / std::f64::consts::PI.sqrt()
    };
    magnitude.copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tf32_has_eleven_digits_and_ties_go_away_from_zero() {
        let half = 2f64.powi(-11);
        for (value, rounded) in [
            (1.0 + half, 1.0 + 2.0 * half),
            (-1.0 - half, -1.0 - 2.0 * half),
            (1.0 + half - 2f64.powi(-50), 1.0),
            (f64::from(f32::MAX), f64::INFINITY),
            (2f64.powi(128) - 2f64.powi(116) - 2f64.powi(90), 2f64.powi(128) - 2f64.powi(117)),
            (2f64.powi(-137), 2f64.powi(-136)),
            (-0.0, -0.0),
        ] {
            let found = f64::from(tf32(value));
            assert!(found == rounded && found.is_sign_negative() == rounded.is_sign_negative(), "{value:e}: {found:e}");
        }
        assert!(tf32(f64::NAN).is_nan());
        let mut array = Array::zeros(DType::Tf32, &[1]).unwrap();
        array.set(0, 1.0 + half);
        assert_eq!(array.get(0), 1.0 + 2.0 * half);
    }
    use approx::assert_abs_diff_eq;

    #[test]
    fn erf_is_right() {
        for (x, y) in [(0.0, 0.0), (0.5, 0.5204998778130465), (1.0, 0.8427007929497149), (2.0, 0.9953222650189527)] {
            assert_abs_diff_eq!(erf(x), y, epsilon = 1e-14);
            assert_abs_diff_eq!(erf(-x), -y, epsilon = 1e-14);
        }
        assert_abs_diff_eq!(erf(2.6), 0.9997639655834707, epsilon = 1e-14);
        assert_abs_diff_eq!(erf(3.0), 0.9999779095030014, epsilon = 1e-14);
        assert_eq!(erf(10.0), 1.0);
    }

    #[test]
    fn an_array_prints_its_first_elements() {
        let long = Array::from_fn(DType::F16, &[2, 9], |i| i as f64 / 2.0).unwrap();
        assert_eq!(
            format!("{long:?}"),
            "f16[2, 9] [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 6.5, 7.0, 7.5, ..]"
        );
        let short = Array { bytes: vec![0; 5], ..Array::zeros(DType::F32, &[3]).unwrap() };
        assert_eq!(format!("{short:?}"), "f32[3] [0.0]");
    }

    #[test]
    fn elements_come_back() {
        for dtype in DType::ALL {
            let values = [0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0];
            let a = Array::from_fn(dtype, &[9], |i| values[i]).unwrap();
            let back: Vec<f64> = (0..9).map(|i| a.get(i)).collect();
            assert_eq!(back, values, "{dtype}");
        }
    }

    #[test]
    fn every_fp8_code_rounds_to_itself() {
        for (e, m) in [(4, 3), (5, 2)] {
            for code in 0..=255u8 {
                let v = fp8_value(code, e, m);
                if v.is_finite() {
                    assert_eq!(fp8_bits(v, e, m), code, "{v}");
                }
            }
        }
        assert_eq!(fp8_value(fp8_bits(1e9, 4, 3), 4, 3), 448.0);
    }

    #[test]
    fn what_is_no_range_and_no_shape_is_refused_and_counted() {
        assert_eq!(Array::random_integers(DType::S8, &[4], -1, 1).unwrap_err().code(), Code::ArrayRange);
        assert_eq!(Array::random_integers(DType::U8, &[4], i64::MIN, 1).unwrap_err().code(), Code::ArrayRange);
        assert!(Array::random_integers(DType::S64, &[4], i64::MAX, 1).is_ok());
        assert_eq!(Array::random_integers(DType::U8, &[4], 0, 1).unwrap().bytes, [0; 4]);
        let mut odd = Array::zeros(DType::U8, &[4]).unwrap();
        odd.shape = vec![usize::MAX, 2];
        assert_eq!(odd.len(), usize::MAX);
        odd.shape.push(0);
        assert!(odd.is_empty());
    }
}
