//! Integer and logic instructions (PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions").

use super::{Compare, Map1, Map2, Map3, Map4};

/// The low bits of a value.
#[inline(always)]
pub(in crate::sim::ptx) const fn cut<const B: u32>(value: u64) -> u64 {
    if B >= 64 { value } else { value & ((1 << B) - 1) }
}

/// The value as a signed number.
#[inline(always)]
pub(in crate::sim::ptx) const fn signed<const B: u32>(value: u64) -> i64 {
    (value << (64 - B)) as i64 >> (64 - B)
}

fn add<const B: u32>(a: u64, b: u64) -> u64 {
    cut::<B>(a.wrapping_add(b))
}

fn sub<const B: u32>(a: u64, b: u64) -> u64 {
    cut::<B>(a.wrapping_sub(b))
}

fn mul_lo<const B: u32>(a: u64, b: u64) -> u64 {
    cut::<B>(a.wrapping_mul(b))
}

fn mul_hi_u<const B: u32>(a: u64, b: u64) -> u64 {
    cut::<B>(((u128::from(a) * u128::from(b)) >> B) as u64)
}

fn mul_hi_s<const B: u32>(a: u64, b: u64) -> u64 {
    cut::<B>(((i128::from(signed::<B>(a)) * i128::from(signed::<B>(b))) >> B) as u64)
}

fn mul_wide_u16(a: u64, b: u64) -> u64 {
    cut::<32>(a.wrapping_mul(b))
}

fn mul_wide_u32(a: u64, b: u64) -> u64 {
    a.wrapping_mul(b)
}

fn mul_wide_s16(a: u64, b: u64) -> u64 {
    cut::<32>(signed::<16>(a).wrapping_mul(signed::<16>(b)) as u64)
}

fn mul_wide_s32(a: u64, b: u64) -> u64 {
    signed::<32>(a).wrapping_mul(signed::<32>(b)) as u64
}

fn mad_lo<const B: u32>(a: u64, b: u64, c: u64) -> u64 {
    cut::<B>(a.wrapping_mul(b).wrapping_add(c))
}

fn mad_hi_u<const B: u32>(a: u64, b: u64, c: u64) -> u64 {
    cut::<B>(mul_hi_u::<B>(a, b).wrapping_add(c))
}

fn mad_hi_s<const B: u32>(a: u64, b: u64, c: u64) -> u64 {
    cut::<B>(mul_hi_s::<B>(a, b).wrapping_add(c))
}

fn mad_wide_u16(a: u64, b: u64, c: u64) -> u64 {
    cut::<32>(mul_wide_u16(a, b).wrapping_add(c))
}

fn mad_wide_u32(a: u64, b: u64, c: u64) -> u64 {
    mul_wide_u32(a, b).wrapping_add(c)
}

fn mad_wide_s16(a: u64, b: u64, c: u64) -> u64 {
    cut::<32>(mul_wide_s16(a, b).wrapping_add(c))
}

fn mad_wide_s32(a: u64, b: u64, c: u64) -> u64 {
    mul_wide_s32(a, b).wrapping_add(c)
}

/// Division by zero is unspecified in PTX; the hardware gives all ones.
fn div_u<const B: u32>(a: u64, b: u64) -> u64 {
    a.checked_div(b).unwrap_or(cut::<B>(u64::MAX))
}

fn div_s<const B: u32>(a: u64, b: u64) -> u64 {
    match b {
        0 => cut::<B>(u64::MAX),
        _ => cut::<B>(signed::<B>(a).wrapping_div(signed::<B>(b)) as u64),
    }
}

fn rem_u<const B: u32>(a: u64, b: u64) -> u64 {
    a.checked_rem(b).unwrap_or(a)
}

fn rem_s<const B: u32>(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        _ => cut::<B>(signed::<B>(a).wrapping_rem(signed::<B>(b)) as u64),
    }
}

fn min_u<const B: u32>(a: u64, b: u64) -> u64 {
    a.min(b)
}

fn max_u<const B: u32>(a: u64, b: u64) -> u64 {
    a.max(b)
}

fn min_s<const B: u32>(a: u64, b: u64) -> u64 {
    if signed::<B>(a) < signed::<B>(b) { a } else { b }
}

fn max_s<const B: u32>(a: u64, b: u64) -> u64 {
    if signed::<B>(a) > signed::<B>(b) { a } else { b }
}

fn and<const B: u32>(a: u64, b: u64) -> u64 {
    a & b
}

fn or<const B: u32>(a: u64, b: u64) -> u64 {
    a | b
}

fn xor<const B: u32>(a: u64, b: u64) -> u64 {
    a ^ b
}

/// Shifts by at least the width give zero.
fn shl<const B: u32>(a: u64, b: u64) -> u64 {
    if b >= u64::from(B) { 0 } else { cut::<B>(a << b) }
}

fn shr_u<const B: u32>(a: u64, b: u64) -> u64 {
    if b >= u64::from(B) { 0 } else { a >> b }
}

fn shr_s<const B: u32>(a: u64, b: u64) -> u64 {
    cut::<B>((signed::<B>(a) >> b.min(u64::from(B) - 1)) as u64)
}

fn neg<const B: u32>(a: u64) -> u64 {
    cut::<B>(a.wrapping_neg())
}

fn abs<const B: u32>(a: u64) -> u64 {
    cut::<B>(signed::<B>(a).wrapping_abs() as u64)
}

fn not<const B: u32>(a: u64) -> u64 {
    cut::<B>(!a)
}

fn cnot<const B: u32>(a: u64) -> u64 {
    u64::from(a == 0)
}

fn popc<const B: u32>(a: u64) -> u64 {
    u64::from(a.count_ones())
}

fn clz<const B: u32>(a: u64) -> u64 {
    u64::from(a.leading_zeros().saturating_sub(64 - B))
}

fn brev<const B: u32>(a: u64) -> u64 {
    a.reverse_bits() >> (64 - B)
}

fn bfind_u<const B: u32>(a: u64) -> u64 {
    if a == 0 { cut::<32>(u64::MAX) } else { 63 - u64::from(a.leading_zeros()) }
}

fn bfind_s<const B: u32>(a: u64) -> u64 {
    let value = signed::<B>(a);
    bfind_u::<B>(if value < 0 { cut::<B>(!a) } else { a })
}

fn bfe_u<const B: u32>(a: u64, b: u64, c: u64) -> u64 {
    let (position, length) = ((b & 255) as u32, (c & 255) as u32);
    let shifted = if position >= B { 0 } else { a >> position };
    if length >= B { shifted } else { shifted & ((1 << length) - 1) }
}

fn bfe_s<const B: u32>(a: u64, b: u64, c: u64) -> u64 {
    let (position, length) = ((b & 255) as u32, (c & 255) as u32);
    if length == 0 {
        return 0;
    }
    let sign = a >> (position + length - 1).min(B - 1) & 1 == 1;
    let field = bfe_u::<B>(a, b, c);
    // Bits beyond the value's own width are copies of its sign.
    let taken = length.min(B.saturating_sub(position));
    let high = if taken >= 64 { 0 } else { u64::MAX << taken };
    cut::<B>(if sign { field | high } else { field })
}

fn bfi<const B: u32>(a: u64, b: u64, c: u64, d: u64) -> u64 {
    let (position, length) = ((c & 255) as u32, (d & 255) as u32);
    if length == 0 || position >= B {
        return b;
    }
    let ones = if length >= 64 { u64::MAX } else { (1 << length) - 1 };
    cut::<B>(b & !(ones << position) | ((a & ones) << position))
}

fn sad_u<const B: u32>(a: u64, b: u64, c: u64) -> u64 {
    cut::<B>(c.wrapping_add(a.abs_diff(b)))
}

fn sad_s<const B: u32>(a: u64, b: u64, c: u64) -> u64 {
    cut::<B>(c.wrapping_add(signed::<B>(a).abs_diff(signed::<B>(b))))
}

fn shf_l(a: u64, b: u64, n: u64) -> u64 {
    cut::<32>((b << 32 | a) << n >> 32)
}

fn shf_r(a: u64, b: u64, n: u64) -> u64 {
    cut::<32>((b << 32 | a) >> n)
}

fn shf_l_wrap(a: u64, b: u64, c: u64) -> u64 {
    shf_l(a, b, c & 31)
}

fn shf_l_clamp(a: u64, b: u64, c: u64) -> u64 {
    shf_l(a, b, c.min(32))
}

fn shf_r_wrap(a: u64, b: u64, c: u64) -> u64 {
    shf_r(a, b, c & 31)
}

fn shf_r_clamp(a: u64, b: u64, c: u64) -> u64 {
    shf_r(a, b, c.min(32))
}

/// prmt in its default mode: each nibble of the selector names a byte of the pair, and whether its sign is replicated.
pub(in crate::sim::ptx) fn prmt(a: u64, b: u64, selector: u64) -> u64 {
    let pair = b << 32 | a;
    (0..4).fold(0, |out, n| {
        let nibble = selector >> (4 * n) & 15;
        let byte = pair >> (8 * (nibble & 7)) & 255;
        let byte = if nibble & 8 == 0 { byte } else { 255 * (byte >> 7) };
        out | byte << (8 * n)
    })
}

/// lop3: bit n of the table is the result for inputs a, b, c whose bits are those of n, a's the highest.
pub(in crate::sim::ptx) fn lop3(a: u64, b: u64, c: u64, table: u64) -> u64 {
    let terms = (0..8).filter(|n| table >> n & 1 == 1).map(|n| {
        let pick = |value: u64, bit: u64| if bit & 1 == 1 { value } else { !value };
        pick(a, n >> 2) & pick(b, n >> 1) & pick(c, n)
    });
    cut::<32>(terms.fold(0, |all, term| all | term))
}

fn part(value: u64, n: u32, bits: u32, is_signed: bool) -> i64 {
    let field = value >> (n * bits) & ((1 << bits) - 1);
    if is_signed { (field << (64 - bits)) as i64 >> (64 - bits) } else { field as i64 }
}

fn dp4a<const AS: bool, const BS: bool>(a: u64, b: u64, c: u64) -> u64 {
    let sum: i64 = (0..4).map(|n| part(a, n, 8, AS) * part(b, n, 8, BS)).sum();
    cut::<32>((c as i64).wrapping_add(sum) as u64)
}

/// `HI`: the high two bytes of b.
fn dp2a<const AS: bool, const BS: bool, const HI: bool>(a: u64, b: u64, c: u64) -> u64 {
    let first = if HI { 2 } else { 0 };
    let sum: i64 = (0..2).map(|n| part(a, n, 16, AS) * part(b, first + n, 8, BS)).sum();
    cut::<32>((c as i64).wrapping_add(sum) as u64)
}

fn eq(a: u64, b: u64) -> bool {
    a == b
}

fn ne(a: u64, b: u64) -> bool {
    a != b
}

fn lt_u(a: u64, b: u64) -> bool {
    a < b
}

fn le_u(a: u64, b: u64) -> bool {
    a <= b
}

fn gt_u(a: u64, b: u64) -> bool {
    a > b
}

fn ge_u(a: u64, b: u64) -> bool {
    a >= b
}

fn lt_s<const B: u32>(a: u64, b: u64) -> bool {
    signed::<B>(a) < signed::<B>(b)
}

fn le_s<const B: u32>(a: u64, b: u64) -> bool {
    signed::<B>(a) <= signed::<B>(b)
}

fn gt_s<const B: u32>(a: u64, b: u64) -> bool {
    signed::<B>(a) > signed::<B>(b)
}

fn ge_s<const B: u32>(a: u64, b: u64) -> bool {
    signed::<B>(a) >= signed::<B>(b)
}

macro_rules! of_width {
    ($bits:expr, $name:ident as $kind:ty) => {
        match $bits {
            16 => Some($name::<16> as $kind),
            32 => Some($name::<32> as $kind),
            64 => Some($name::<64> as $kind),
            _ => None,
        }
    };
}

/// An instruction of one operand.
pub(in crate::sim::ptx) fn unary(name: &str, is_signed: bool, bits: u32) -> Option<Map1> {
    match (name, is_signed) {
        ("neg", _) => of_width!(bits, neg as Map1),
        ("abs", _) => of_width!(bits, abs as Map1),
        ("not", _) => of_width!(bits, not as Map1),
        ("cnot", _) => of_width!(bits, cnot as Map1),
        ("popc", _) => of_width!(bits, popc as Map1),
        ("clz", _) => of_width!(bits, clz as Map1),
        ("brev", _) => of_width!(bits, brev as Map1),
        ("bfind", false) => of_width!(bits, bfind_u as Map1),
        ("bfind", true) => of_width!(bits, bfind_s as Map1),
        _ => None,
    }
}

/// An instruction of two operands; `mul.lo` and `mul.hi` with their modifier.
pub(in crate::sim::ptx) fn binary(name: &str, is_signed: bool, bits: u32) -> Option<Map2> {
    match (name, is_signed) {
        ("add", _) => of_width!(bits, add as Map2),
        ("sub", _) => of_width!(bits, sub as Map2),
        ("mul.lo", _) => of_width!(bits, mul_lo as Map2),
        ("mul.hi", false) => of_width!(bits, mul_hi_u as Map2),
        ("mul.hi", true) => of_width!(bits, mul_hi_s as Map2),
        ("mul.wide", s) => match (s, bits) {
            (false, 16) => Some(mul_wide_u16),
            (false, 32) => Some(mul_wide_u32),
            (true, 16) => Some(mul_wide_s16),
            (true, 32) => Some(mul_wide_s32),
            _ => None,
        },
        ("div", false) => of_width!(bits, div_u as Map2),
        ("div", true) => of_width!(bits, div_s as Map2),
        ("rem", false) => of_width!(bits, rem_u as Map2),
        ("rem", true) => of_width!(bits, rem_s as Map2),
        ("min", false) => of_width!(bits, min_u as Map2),
        ("min", true) => of_width!(bits, min_s as Map2),
        ("max", false) => of_width!(bits, max_u as Map2),
        ("max", true) => of_width!(bits, max_s as Map2),
        ("and", _) => of_width!(bits, and as Map2),
        ("or", _) => of_width!(bits, or as Map2),
        ("xor", _) => of_width!(bits, xor as Map2),
        ("shl", _) => of_width!(bits, shl as Map2),
        ("shr", false) => of_width!(bits, shr_u as Map2),
        ("shr", true) => of_width!(bits, shr_s as Map2),
        _ => None,
    }
}

/// An operation on each half of 32 bits.
fn halves(a: u64, b: u64, op: Map2) -> u64 {
    op(a >> 16, b >> 16) << 16 | op(a & 0xffff, b & 0xffff)
}

/// An instruction of two operands that are two numbers of 16 bits each, `s16x2` or `u16x2`.
pub(in crate::sim::ptx) fn pair(name: &str, kind: &str) -> Option<Map2> {
    match (name, kind) {
        ("add", "s16x2" | "u16x2") => Some(|a, b| halves(a, b, add::<16>)),
        ("min", "s16x2") => Some(|a, b| halves(a, b, min_s::<16>)),
        ("min", "u16x2") => Some(|a, b| halves(a, b, min_u::<16>)),
        ("max", "s16x2") => Some(|a, b| halves(a, b, max_s::<16>)),
        ("max", "u16x2") => Some(|a, b| halves(a, b, max_u::<16>)),
        _ => None,
    }
}

/// An instruction of three operands.
pub(in crate::sim::ptx) fn ternary(name: &str, is_signed: bool, bits: u32) -> Option<Map3> {
    match (name, is_signed) {
        ("mad.lo", _) => of_width!(bits, mad_lo as Map3),
        ("mad.hi", false) => of_width!(bits, mad_hi_u as Map3),
        ("mad.hi", true) => of_width!(bits, mad_hi_s as Map3),
        ("mad.wide", s) => match (s, bits) {
            (false, 16) => Some(mad_wide_u16),
            (false, 32) => Some(mad_wide_u32),
            (true, 16) => Some(mad_wide_s16),
            (true, 32) => Some(mad_wide_s32),
            _ => None,
        },
        ("bfe", false) => of_width!(bits, bfe_u as Map3),
        ("bfe", true) => of_width!(bits, bfe_s as Map3),
        ("sad", false) => of_width!(bits, sad_u as Map3),
        ("sad", true) => of_width!(bits, sad_s as Map3),
        _ => None,
    }
}

/// bfi.
pub(in crate::sim::ptx) fn insert(bits: u32) -> Option<Map4> {
    of_width!(bits, bfi as Map4)
}

/// shf, by its modifiers `l.wrap`, ...
pub(in crate::sim::ptx) fn funnel(modifiers: &str) -> Option<Map3> {
    Some(match modifiers {
        "l.wrap" => shf_l_wrap,
        "l.clamp" => shf_l_clamp,
        "r.wrap" => shf_r_wrap,
        "r.clamp" => shf_r_clamp,
        _ => return None,
    })
}

/// dp4a, by the signs of a and b.
pub(in crate::sim::ptx) fn dot4(a: bool, b: bool) -> Map3 {
    match (a, b) {
        (false, false) => dp4a::<false, false>,
        (false, true) => dp4a::<false, true>,
        (true, false) => dp4a::<true, false>,
        (true, true) => dp4a::<true, true>,
    }
}

/// dp2a, by the signs of a and b.
pub(in crate::sim::ptx) fn dot2(a: bool, b: bool, high: bool) -> Map3 {
    match (a, b, high) {
        (false, false, false) => dp2a::<false, false, false>,
        (false, true, false) => dp2a::<false, true, false>,
        (true, false, false) => dp2a::<true, false, false>,
        (true, true, false) => dp2a::<true, true, false>,
        (false, false, true) => dp2a::<false, false, true>,
        (false, true, true) => dp2a::<false, true, true>,
        (true, false, true) => dp2a::<true, false, true>,
        (true, true, true) => dp2a::<true, true, true>,
    }
}

/// A comparison of setp.
pub(in crate::sim::ptx) fn compare(name: &str, is_signed: bool, bits: u32) -> Option<Compare> {
    match (name, is_signed) {
        ("eq", _) => Some(eq),
        ("ne", _) => Some(ne),
        ("lo", _) | ("lt", false) => Some(lt_u),
        ("ls", _) | ("le", false) => Some(le_u),
        ("hi", _) | ("gt", false) => Some(gt_u),
        ("hs", _) | ("ge", false) => Some(ge_u),
        ("lt", true) => of_width!(bits, lt_s as Compare),
        ("le", true) => of_width!(bits, le_s as Compare),
        ("gt", true) => of_width!(bits, gt_s as Compare),
        ("ge", true) => of_width!(bits, ge_s as Compare),
        _ => None,
    }
}
