//! Index maps read digit by digit: whether loops sweep a dense box, each point once.
//!
//! An index is a sum of coefficients times digits, a digit being `(v // low) % size` of one loop variable. Splits and
//! fuses make nothing else, so most questions are answered from the digits. Small maps that are anything else are
//! answered by trying every point, large ones by [`decide::one_to_one`]. Variables outside the map are constants of unknown
//! value.

use crate::index::{Digit, POINTS, Points, volume};
use crate::ir::decide;
use crate::ir::simplify::{self, Env, affine, simplify};
use crate::ir::{Index, IndexOp, Var};
use std::collections::{BTreeMap, HashSet};

/// A coefficient times a digit; `None` for something made of outside variables alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The coefficient.
    pub coefficient: i64,
    /// What is multiplied.
    pub digit: Option<Digit<Var>>,
}

/// A sum of parts and a constant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sum {
    /// The parts; no digit occurs twice.
    pub parts: Vec<Part>,
    /// The constant.
    pub constant: i64,
}

/// What a map from loops to indices does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Different values of the variables that occur give different indices. False where unknown.
    pub injective: bool,
    /// The indices fill a box. False where unknown.
    pub dense: bool,
    /// The variables that occur.
    pub mentioned: Vec<Var>,
}

/// Reads an index over variables with the given extents; `None` where it is not a sum of digits.
pub fn parse(index: &Index, vars: &[(Var, i64)]) -> Option<Sum> {
    if let Index::Int(v) = index {
        return Some(Sum { parts: Vec::new(), constant: *v });
    }
    let inside = vars.iter().any(|(v, _)| index.mentions(*v));
    let linear = matches!(index, Index::Bin(IndexOp::Add | IndexOp::Sub | IndexOp::Mul, ..));
    let outside = || Some(Sum { parts: vec![Part { coefficient: 1, digit: None }], constant: 0 });
    if !inside && !linear {
        return outside();
    }
    match index {
        Index::Int(_) => None,
        Index::Var(v) => {
            let size = vars.iter().find(|(w, _)| w == v)?.1;
            let digit = Digit::sized(*v, 1, size);
            Some(Sum { parts: vec![Part { coefficient: 1, digit }], constant: 0 })
        }
        Index::Bin(op, a, b) => binary(*op, a, b, vars).or_else(|| outside().filter(|_| !inside)),
    }
}

fn binary(op: IndexOp, a: &Index, b: &Index, vars: &[(Var, i64)]) -> Option<Sum> {
    match op {
        IndexOp::Add => add(parse(a, vars)?, parse(b, vars)?),
        IndexOp::Sub => add(parse(a, vars)?, scale(parse(b, vars)?, -1)?),
        IndexOp::Mul => match (a.as_int(), b.as_int()) {
            (_, Some(c)) => scale(parse(a, vars)?, c),
            (Some(c), _) => scale(parse(b, vars)?, c),
            _ => None,
        },
        IndexOp::FloorDiv => Some(divide(&parse(a, vars)?, b.as_int()?)?.0),
        IndexOp::FloorMod => Some(divide(&parse(a, vars)?, b.as_int()?)?.1),
        IndexOp::Min | IndexOp::Max | IndexOp::Xor => None,
    }
}

fn add(mut a: Sum, b: Sum) -> Option<Sum> {
    a.constant = a.constant.checked_add(b.constant)?;
    for part in b.parts {
        match a.parts.iter_mut().find(|p| p.digit.is_some() && p.digit == part.digit) {
            Some(same) => same.coefficient = same.coefficient.checked_add(part.coefficient)?,
            None => a.parts.push(part),
        }
    }
    a.parts.retain(|p| p.coefficient != 0);
    merge(&mut a.parts);
    Some(a)
}

/// Joins `(f // 8) * 8 + f % 8` back into `f`.
fn merge(parts: &mut Vec<Part>) {
    let joined = |a: &Part, b: &Part| {
        let (x, y) = (a.digit?, b.digit?);
        let adjacent = x.of == y.of && x.ends_at(&y);
        (adjacent && a.coefficient.checked_mul(x.size()?)? == b.coefficient)
            .then_some(Part { coefficient: a.coefficient, digit: Some(Digit { high: y.high, ..x }) })
    };
    for i in 0..parts.len() {
        for j in 0..parts.len() {
            if i != j
                && let Some(one) = joined(&parts[i], &parts[j])
            {
                parts[i] = one;
                parts.remove(j);
                return merge(parts);
            }
        }
    }
}

fn scale(mut a: Sum, by: i64) -> Option<Sum> {
    a.constant = a.constant.checked_mul(by)?;
    for p in &mut a.parts {
        p.coefficient = p.coefficient.checked_mul(by)?;
    }
    a.parts.retain(|p| p.coefficient != 0);
    Some(a)
}

/// Quotient and remainder by a positive constant.
fn divide(sum: &Sum, by: i64) -> Option<(Sum, Sum)> {
    if by <= 0 {
        return None;
    }
    let mut high = Sum { parts: Vec::new(), constant: sum.constant.div_euclid(by) };
    let mut low = Sum { parts: Vec::new(), constant: sum.constant.rem_euclid(by) };
    for part in &sum.parts {
        let c = part.coefficient;
        if c % by == 0 {
            high.parts.push(Part { coefficient: c / by, ..*part });
            continue;
        }
        let digit = part.digit?;
        let q = if c > 0 && by % c == 0 { by / c } else { 0 };
        if q > 0 && digit.size()? > q {
            high.parts.push(Part { coefficient: 1, digit: Some(digit.quotient(q)?) });
            low.parts.push(Part { coefficient: c, digit: Some(digit.remainder(q)?) });
        } else {
            low.parts.push(*part);
        }
    }
    let (mut min, mut max) = (low.constant, low.constant);
    for part in &low.parts {
        let reach = part.coefficient.checked_mul(part.digit?.size()? - 1)?;
        min = min.checked_add(reach.min(0))?;
        max = max.checked_add(reach.max(0))?;
    }
    (min >= 0 && max < by).then_some((high, low))
}

/// What the map from `vars` (with their extents) to `indices` does.
pub fn image(indices: &[Index], vars: &[(Var, i64)]) -> Image {
    let mentioned: Vec<(Var, i64)> =
        vars.iter().copied().filter(|(v, _)| indices.iter().any(|i| i.mentions(*v))).collect();
    let sums: Option<Vec<Sum>> = indices.iter().map(|i| parse(i, vars)).collect();
    let (mut injective, mut dense) = sums.as_deref().and_then(|s| by_digits(s, &mentioned)).unwrap_or((false, false));
    if !(injective && dense)
        && let Some((i, d)) = by_points(indices, sums.as_deref(), &mentioned)
    {
        (injective, dense) = (i, d);
    }
    if !injective {
        injective = decide::one_to_one(indices, &mentioned);
        dense |= injective && volume(&mentioned).is_some_and(|n| bounding(indices, &mentioned) == Some(n));
    }
    Image { injective, dense, mentioned: mentioned.into_iter().map(|(v, _)| v).collect() }
}

/// The number of elements in the bounding box of the indices; `None` on overflow.
fn bounding(indices: &[Index], vars: &[(Var, i64)]) -> Option<i64> {
    let mut env = Env::new();
    vars.iter().for_each(|(v, extent)| env.bind(*v, 0, extent - 1));
    indices.iter().try_fold(1i64, |n, index| {
        let (low, high) = simplify::bounds(index, &env)?;
        n.checked_mul(high.checked_sub(low)?.checked_add(1)?)
    })
}

/// The variables' values where the indices, a map from `vars` one-to-one onto a box from 0, have these values; `None` where
/// the map is not seen to be one.
pub fn inverse(indices: &[Index], vars: &[(Var, i64)], values: &[Index]) -> Option<Vec<(Var, Index)>> {
    let sums: Vec<Sum> = indices.iter().map(|i| parse(i, vars)).collect::<Option<_>>()?;
    let plain = sums.iter().all(|s| s.constant == 0 && s.parts.iter().all(|p| p.digit.is_some()));
    if !plain || by_digits(&sums, vars) != Some((true, true)) {
        return None;
    }
    let mut found: Vec<(Var, Index)> = vars.iter().map(|(v, _)| (*v, Index::Int(0))).collect();
    for (sum, value) in sums.iter().zip(values) {
        let mut parts = terms(sum)?;
        parts.sort_by_key(|(c, ..)| *c);
        for (n, (c, digit, size)) in parts.iter().enumerate() {
            let from_here = value.clone().floordiv(*c);
            // The highest digit is what is left.
            let own = if n + 1 < parts.len() { from_here.floormod(*size) } else { from_here };
            let (_, sum) = found.iter_mut().find(|(v, _)| *v == digit.of)?;
            *sum = own * digit.low + sum.clone();
        }
    }
    Some(found)
}

/// The values of the variables where the indices have these values, for a map that takes no value twice; `None` where that is
/// not seen. Values that the map does not take lead to variables outside their extents, or to other values of the map.
pub fn left_inverse(indices: &[Index], vars: &[(Var, i64)], values: &[Index]) -> Option<Vec<(Var, Index)>> {
    let mut env = Env::new();
    vars.iter().for_each(|(v, extent)| env.bind(*v, 0, (extent - 1).max(0)));
    let back = undone(indices, vars, indices)?;
    let same = |(v, index): &(Var, Index)| decide::equal(index, &Index::Var(*v), &env);
    back.iter().all(same).then(|| undone(indices, vars, values)).flatten()
}

/// Each variable as the sum of its digits, read off the values; right only where [`left_inverse`] finds it to be.
fn undone(indices: &[Index], vars: &[(Var, i64)], values: &[Index]) -> Option<Vec<(Var, Index)>> {
    let mut found: Vec<(Var, Index)> = vars.iter().map(|(v, _)| (*v, Index::Int(0))).collect();
    for (index, value) in indices.iter().zip(values) {
        let mut sum = affine(&simplify(index, &Env::new()));
        let constant = std::mem::take(&mut sum.constant);
        let rest = value.clone() - constant;
        let mut parts: Vec<(i64, Var, i64)> = Vec::new();
        for (atom, coefficient) in &sum.terms {
            let (var, low) = digit_of(atom)?;
            parts.push((*coefficient, var, low));
        }
        parts.sort_by_key(|(c, ..)| *c);
        for (n, (c, var, low)) in parts.iter().enumerate() {
            let own = match parts.get(n + 1) {
                None if *c < 0 && parts.len() == 1 => (Index::Int(constant) - value.clone()).floordiv(c.checked_neg()?),
                _ if *c < 1 => return None,
                Some((next, ..)) if next % c == 0 => rest.clone().floordiv(*c).floormod(next / c),
                Some(_) => return None,
                None => rest.clone().floordiv(*c),
            };
            let (_, sum) = found.iter_mut().find(|(v, _)| v == var)?;
            *sum = own * *low + sum.clone();
        }
    }
    Some(found)
}

/// The variable of `var // low % size`, and its `low`.
fn digit_of(atom: &Index) -> Option<(Var, i64)> {
    match atom {
        Index::Var(v) => Some((*v, 1)),
        Index::Bin(IndexOp::FloorDiv, inner, by) => {
            let (var, low) = digit_of(inner)?;
            Some((var, low.checked_mul(by.as_int().filter(|n| *n > 0)?)?))
        }
        Index::Bin(IndexOp::FloorMod, inner, by) => by.as_int().filter(|n| *n > 0).and_then(|_| digit_of(inner)),
        _ => None,
    }
}

fn by_digits(sums: &[Sum], vars: &[(Var, i64)]) -> Option<(bool, bool)> {
    let mut of_var: BTreeMap<Var, Vec<Digit<Var>>> = BTreeMap::new();
    let (mut injective, mut dense) = (true, true);
    for sum in sums {
        let mut parts = terms(sum)?;
        parts.sort_by_key(|(c, d, _)| (*c, d.of, d.low));
        let mut reach = 1i64;
        for (c, d, size) in parts {
            if c <= 0 {
                return None;
            }
            injective &= c >= reach;
            dense &= c <= reach;
            reach = reach.checked_add(c.checked_mul(size - 1)?)?;
            of_var.entry(d.of).or_default().push(d);
        }
    }
    for (var, extent) in vars.iter().filter(|(_, e)| *e > 1) {
        let mut digits = of_var.remove(var).unwrap_or_default();
        digits.sort_by_key(|d| d.low);
        let mut low = 1i64;
        for d in digits {
            if d.low % low != 0 || d.low < low {
                return None; // Overlapping digits are not independent.
            }
            injective &= d.low == low;
            low = d.high?;
        }
        injective &= low == *extent;
    }
    Some((injective, dense))
}

fn by_points(indices: &[Index], sums: Option<&[Sum]>, vars: &[(Var, i64)]) -> Option<(bool, bool)> {
    let points = Points::within(vars, POINTS)?;
    let count = points.left();
    let mut seen = HashSet::new();
    let mut bounds: Vec<(i64, i64)> = vec![(i64::MAX, i64::MIN); indices.len()];
    for point in points {
        let values: BTreeMap<Var, i64> = point.into_iter().collect();
        let at: Vec<i64> = match sums {
            Some(sums) => sums.iter().map(|s| value(s, &values)).collect::<Option<_>>()?,
            None => indices.iter().map(|i| i.eval(&|v| values.get(&v).copied())).collect::<Option<_>>()?,
        };
        for (b, x) in bounds.iter_mut().zip(&at) {
            *b = (b.0.min(*x), b.1.max(*x));
        }
        seen.insert(at);
    }
    let volume = bounds.iter().try_fold(1i64, |n, (lo, hi)| n.checked_mul(hi.checked_sub(*lo)?.checked_add(1)?));
    Some((seen.len() as i64 == count, volume == Some(seen.len() as i64)))
}

/// The coefficients of the digits of more than one value, each with its digit and how many values that has; `None` where the number of
/// values of a digit is unknown.
fn terms(sum: &Sum) -> Option<Vec<(i64, Digit<Var>, i64)>> {
    let digits = sum.parts.iter().filter_map(|p| Some((p.coefficient, p.digit?)));
    let all = digits.map(|(c, d)| Some((c, d, d.size()?))).collect::<Option<Vec<_>>>()?;
    Some(all.into_iter().filter(|(.., size)| *size > 1).collect())
}

fn value(sum: &Sum, values: &BTreeMap<Var, i64>) -> Option<i64> {
    sum.parts.iter().try_fold(sum.constant, |total, p| {
        let Some(d) = p.digit else { return Some(total) };
        total.checked_add(p.coefficient.checked_mul(values.get(&d.of)?.div_euclid(d.low).rem_euclid(d.size()?))?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: Var = Var(0);
    const G: Var = Var(1);
    const OUTSIDE: Var = Var(9);

    fn check(indices: &[Index], vars: &[(Var, i64)], injective: bool, dense: bool) {
        let got = image(indices, vars);
        assert_eq!((got.injective, got.dense), (injective, dense), "{indices:?}");
    }

    #[test]
    fn splits_and_fuses_are_tiles() {
        check(&[F * 4 + G], &[(F, 1 << 20), (G, 4)], true, true);
        check(&[F.into(), G + OUTSIDE * 7], &[(F, 3), (G, 5)], true, true);
        let fused = Index::from(F);
        check(&[fused.clone().floordiv(8), fused.clone().floormod(8)], &[(F, 1 << 24)], true, true);
        // The cooperative fetch of a 64 x 8 tile: a fused loop, split again by threads and lanes.
        let f = OUTSIDE * 512 + F * 4 + G;
        check(&[f.clone().floordiv(8), f.floormod(8)], &[(F, 128), (G, 4)], true, true);
    }

    #[test]
    fn gaps_overlaps_and_diagonals_are_seen() {
        check(&[F * 2], &[(F, 8)], true, false);
        check(&[F * 2 + G], &[(F, 8), (G, 3)], false, true);
        check(&[F.into(), F.into()], &[(F, 4)], true, false);
        check(&[Index::from(F).floordiv(4), Index::from(F).floormod(4)], &[(F, 13)], true, false);
        check(&[Index::from(F).floordiv(4)], &[(F, 16)], false, true);
        check(&[Index::from(0) - F], &[(F, 16)], true, true);
    }

    /// Too large to be tried point by point, and no digits, as no factor divides another.
    #[test]
    fn quotient_and_remainder_of_a_number_are_the_number() {
        let fused = |size: i64| Index::from(F) * 128 + G - size + size;
        let pair = |size: i64| [fused(size).floordiv(size), fused(size).floormod(size)];
        check(&pair(1000), &[(F, 7813), (G, 128)], true, false);
        check(&pair(1000), &[(G, 128)], true, false);
        let three = [fused(0).floordiv(3003), fused(0).floordiv(77).floormod(39), fused(0).floormod(77)];
        check(&three, &[(F, 1 << 20), (G, 128)], true, false);
        let tiled = [OUTSIDE * 48 + fused(0).floordiv(48), OUTSIDE * 7 + fused(0).floormod(48) * 3];
        check(&tiled, &[(G, 128)], true, false);
        // Of another number, or by another divisor, they say less.
        check(&[fused(0).floordiv(1000), fused(0).floormod(999)], &[(F, 7813), (G, 128)], false, false);
        check(&[fused(0).floordiv(1000), (fused(0) + 1).floormod(1000)], &[(F, 7813), (G, 128)], false, false);
        check(&[fused(0).floormod(1000)], &[(F, 7813), (G, 128)], false, false);
        check(&pair(1000), &[(F, 7813), (G, 129)], false, false);
        // The bounding box has as many elements as there are points.
        check(&pair(1000), &[(F, 125_000), (G, 128)], true, true);
        // The number of points overflows, and the first index has gaps.
        let gaps = [F * 2 + G * 3, Index::Var(Var(2)), Index::Var(Var(3))];
        check(&gaps, &[(F, 3), (G, 2), (Var(2), 1 << 40), (Var(3), 1 << 40)], true, false);
    }

    #[test]
    fn digits_lead_back_to_what_they_are_of() {
        let (f, g) = (Index::from(F), Index::from(G));
        for map in [
            vec![f.clone().floormod(8), f.clone().floordiv(8), g.clone()],
            vec![g.clone() * 24 + f.clone()],
            vec![f.clone().floordiv(6), g.clone() * 6 + f.clone().floormod(6)],
        ] {
            let vars = [(F, 24), (G, 5)];
            for (a, b) in (0..24).flat_map(|a| (0..5).map(move |b| (a, b))) {
                let at = |v: Var| Some(if v == F { a } else { b });
                let values: Vec<Index> = map.iter().map(|i| Index::Int(i.eval(&at).unwrap())).collect();
                let back = inverse(&map, &vars, &values).unwrap();
                let back: Vec<_> = back.iter().map(|(v, i)| (*v, i.eval(&|_| None).unwrap())).collect();
                assert_eq!(back, [(F, a), (G, b)], "{map:?}");
            }
        }
        for map in [vec![f.clone().floordiv(8)], vec![f.clone() + 1], vec![f.clone() * 2], vec![f.clone() + G * 23]] {
            assert_eq!(inverse(&map, &[(F, 24)], &map), None, "{map:?}");
        }
    }

    #[test]
    fn maps_that_take_no_value_twice_are_undone() {
        let (f, g) = (Index::from(F), Index::from(G));
        let vars = [(F, 13), (G, 5)];
        for map in [
            vec![Index::from(12) - f.clone(), g.clone()],
            vec![g.clone() + 3, f.clone().floordiv(4), f.clone().floormod(4)],
            vec![f.clone() * 5 + g.clone()],
            vec![g.clone() * 2 + 1, f.clone() * 3],
            vec![Index::from(9) - g.clone() * 2, f.clone()],
        ] {
            for (a, b) in (0..13).flat_map(|a| (0..5).map(move |b| (a, b))) {
                let at = |v: Var| Some(if v == F { a } else { b });
                let values: Vec<Index> = map.iter().map(|i| Index::Int(i.eval(&at).unwrap())).collect();
                let back = left_inverse(&map, &vars, &values).unwrap();
                let back: Vec<_> = back.iter().map(|(v, i)| (*v, i.eval(&|_| None).unwrap())).collect();
                assert_eq!(back, [(F, a), (G, b)], "{map:?}");
            }
        }
        for map in [vec![f.clone(), f.clone()], vec![f.clone().floordiv(4), g.clone()], vec![f.clone() + g.clone()]] {
            assert_eq!(left_inverse(&map, &vars, &map), None, "{map:?}");
        }
    }

    #[test]
    fn parts_of_a_fused_loop_join_again() {
        let f = Index::from(F);
        let back = f.clone().floordiv(8) * 8 + f.floormod(8);
        let sum = parse(&back, &[(F, 64)]).unwrap();
        assert_eq!(sum.parts, [Part { coefficient: 1, digit: Digit::sized(F, 1, 64) }]);
    }
}
