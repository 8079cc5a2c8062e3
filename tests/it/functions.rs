//! The functions sin, cos, erf, log1p and pow as the emitted PTX computes them: how far they are from the exact value over all
//! exponents, and their special cases. The table in `codegen/math.rs` states the bounds.

use warploom::sim::{Mode, Options, run_ptx};
use warploom::{Array, DType, Schedule, compile};

/// What a program gives for numbers of a type.
fn computed(dtype: DType, value: &str, x: &[f64], y: &[f64]) -> Vec<f64> {
    let n = x.len();
    let text = format!(
        "program one\ninput X {dtype}[{n}]\ninput Y {dtype}[{n}]\noutput Z[i {n}] {dtype} = {value}\n\
         target sm_80\nsplit i ? 128 -> a b; bind a blockIdx.x; bind b threadIdx.x\n"
    );
    let kernels = compile(&Schedule::parse(&text).unwrap()).unwrap();
    let own = |v: &[f64]| Array::from_fn(dtype, &[n], |i| v[i]).unwrap();
    let mut args = match value.contains('Y') {
        true => vec![own(x), own(y), own(&vec![0.0; n])],
        false => vec![own(x), own(x), own(&vec![0.0; n])],
    };
    run_ptx(&kernels, &Options::new(Mode::Real), &mut args).unwrap();
    (0..n).map(|i| args[2].get(i)).collect()
}

/// The distance of a number of the type from a value in units of the last place of that value.
fn ulps(dtype: DType, found: f64, exact: f64) -> f64 {
    if found.is_nan() || exact.is_nan() {
        return if found.is_nan() && exact.is_nan() { 0.0 } else { f64::INFINITY };
    }
    let (digits, least, largest) = match dtype {
        DType::F64 => (53, -1074, f64::MAX),
        DType::F16 => (11, -24, 65504.0),
        DType::Bf16 => (8, -133, 3.3895313892515355e38),
        _ => (24, -149, f64::from(f32::MAX)),
    };
    if exact.is_infinite() || found.is_infinite() {
        // A value beyond the largest number may be either, as long as it is near.
        let same = found == exact || (exact.abs() >= largest && found == exact.signum() * f64::INFINITY);
        return if same { 0.0 } else { f64::INFINITY };
    }
    let exponent = (exact.abs().log2().floor() as i32).max(-1100);
    let unit = (exponent - digits + 1).max(least);
    ((found - exact) * 2f64.powi(-unit / 2)) * 2f64.powi(-unit - -unit / 2)
}

const SPECIAL: [f64; 16] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    3.0,
    -3.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    1e30,
    -1e30,
    -2.5,
];

/// Numbers of every exponent, both signs, and mantissas at random and at the ends.
fn every_exponent(dtype: DType, each: usize, rng: &mut fastrand::Rng) -> Vec<f64> {
    let mut out: Vec<f64> =
        SPECIAL.iter().map(|v| if dtype == DType::F64 { *v } else { f64::from(*v as f32) }).collect();
    let exponents = if dtype == DType::F64 { 2047 } else { 255 };
    for exponent in 0..exponents {
        for n in 0..each {
            let mantissa = match n {
                0 => 0,
                1 => u64::MAX,
                _ => rng.u64(..),
            };
            let sign = rng.u64(0..2);
            out.push(match dtype {
                DType::F64 => f64::from_bits(sign << 63 | exponent << 52 | mantissa >> 12),
                _ => f64::from(f32::from_bits((sign << 31 | exponent << 23) as u32 | (mantissa >> 41) as u32)),
            });
        }
    }
    out
}

/// The largest error over the numbers, and where it is.
fn worst(dtype: DType, value: &str, x: &[f64], y: &[f64], exact: impl Fn(f64, f64) -> f64) -> (f64, f64, f64) {
    let found = computed(dtype, value, x, y);
    let mut out = (0.0, 0.0, 0.0);
    for (i, found) in found.into_iter().enumerate() {
        let other = y.get(i).copied().unwrap_or(0.0);
        let wanted = exact(x[i], other);
        let error = ulps(dtype, found, wanted).abs();
        let signs =
            found.is_nan() || found != 0.0 || wanted != 0.0 || found.is_sign_negative() == wanted.is_sign_negative();
        assert!(signs, "{value} at {} {other} in {dtype} is {found:?}, not {wanted:?}", x[i]);
        assert!(error.is_finite(), "{value} at {} {other} in {dtype} is {found}, not {wanted}", x[i]);
        if error > out.0 {
            out = (error, x[i], other);
        }
    }
    out
}

fn within(bound: f64, dtype: DType, value: &str, (error, x, y): (f64, f64, f64)) {
    println!("{value} {dtype}: {error:.3} at {x:e} {y:e}");
    assert!(error <= bound, "{value} in {dtype} is {error} ulp off at {x:e}, {y:e}");
    // A measurement that finds nothing has not looked.
    assert!(error > 0.01, "{value} in {dtype} has no error");
}

/// A function as te writes it, and the host's.
type Function = (&'static str, fn(f64) -> f64);

fn functions() -> [Function; 4] {
    [("sin(X[i])", f64::sin), ("cos(X[i])", f64::cos), ("log1p(X[i])", f64::ln_1p), ("erf(X[i])", warploom::array::erf)]
}

/// Bounds in ulp. The reference is the host's, in f64: exact enough for f32, and within one more ulp for f64.
#[test]
fn functions_of_one_number_keep_their_bounds_at_every_exponent() {
    let mut rng = fastrand::Rng::with_seed(1);
    for (dtype, each) in [(DType::F32, 60), (DType::F64, 12)] {
        let mut x = every_exponent(dtype, each, &mut rng);
        let rounded = |v: f64| if dtype == DType::F32 { f64::from(v as f32) } else { v };
        for _ in 0..12000 {
            x.push(rounded(rng.f64() * 14.0 - 7.0));
            x.push(rounded(rng.f64() * 2.0 - 1.0));
            // Near multiples of pi/2, where a reduction loses its digits.
            x.push(rounded(f64::from(rng.i32(-90000..90000)) * std::f64::consts::FRAC_PI_2));
        }
        for (value, exact) in functions() {
            if (dtype, value) == (DType::F64, "erf(X[i])") {
                continue;
            }
            within(2.0, dtype, value, worst(dtype, value, &x, &[], |x, _| exact(x)));
        }
    }
}

#[test]
fn narrow_floats_are_rounded_once_more() {
    let mut rng = fastrand::Rng::with_seed(2);
    for (dtype, least) in [(DType::F16, -20), (DType::Bf16, -120)] {
        let x: Vec<f64> = (0..4000)
            .map(|_| {
                let v = (rng.f64() * 2.0 - 1.0) * 2f64.powi(rng.i32(least..15));
                let mut one = Array::zeros(dtype, &[1]).unwrap();
                one.set(0, v);
                one.get(0)
            })
            .collect();
        for (value, exact) in functions() {
            within(0.502, dtype, value, worst(dtype, value, &x, &[], |x, _| exact(x)));
        }
    }
}

/// Powers whose logarithms are spread over the range of the type and a little beyond.
#[test]
fn powers_keep_their_bound_at_every_exponent() {
    let mut rng = fastrand::Rng::with_seed(3);
    for (dtype, each, reach) in [(DType::F32, 60, 160.0), (DType::F64, 10, 1100.0)] {
        let mut x = every_exponent(dtype, each, &mut rng);
        let rounded = |v: f64| if dtype == DType::F32 { f64::from(v as f32) } else { v };
        for _ in 0..8000 {
            x.push(rounded(1.0 + (rng.f64() - 0.5) * 2f64.powi(-rng.i32(0..22))));
        }
        x.iter_mut().for_each(|x| *x = x.abs());
        let y: Vec<f64> = x
            .iter()
            .map(|x| {
                let log = x.log2().abs();
                let y = (rng.f64() * 2.0 - 1.0) * reach / if log > 0.0 && log.is_finite() { log } else { 1.0 };
                rounded(if rng.u32(0..4) == 0 { y.round() } else { y })
            })
            .collect();
        within(2.0, dtype, "pow(X[i], Y[i])", worst(dtype, "pow(X[i], Y[i])", &x, &y, f64::powf));
    }
}

/// Every special case of IEEE 754 (and of C, annex F), exactly.
#[test]
fn powers_have_the_special_cases_of_ieee_754() {
    let mut values = SPECIAL.to_vec();
    values.extend([1e-30, -1e-30, 7.0, -7.0, 0.3, 1.5, -1.5, 16777217.0, 1e10]);
    for dtype in [DType::F32, DType::F64] {
        let rounded = |v: f64| if dtype == DType::F32 { f64::from(v as f32) } else { v };
        let pairs: Vec<(f64, f64)> =
            values.iter().flat_map(|x| values.iter().map(|y| (rounded(*x), rounded(*y)))).collect();
        let (x, y): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let exact = |x: f64, y: f64| match dtype {
            // What is beyond f32 is infinite or zero there.
            DType::F32 => f64::from(x.powf(y) as f32),
            _ => x.powf(y),
        };
        let (error, x, y) = worst(dtype, "pow(X[i], Y[i])", &x, &y, exact);
        assert!(error <= 2.0, "{error} ulp at {x:e}, {y:e} in {dtype}");
    }
}

/// Values with 40 digits, from an arithmetic of 200 bits: arguments that lie closest to multiples of pi/2 among the numbers of the
/// type (Muller, "Elementary Functions"), the largest numbers, and erf, for which the host has no function of f64.
#[test]
fn values_of_many_digits_are_met() {
    for (dtype, value, points) in EXACT {
        let x: Vec<f64> = points.iter().map(|p| p.0).collect();
        let found = computed(*dtype, value, &x, &[]);
        for ((x, exact), found) in points.iter().zip(found) {
            let error = ulps(*dtype, found, *exact).abs();
            assert!(error <= 2.0, "{value} at {x:e} in {dtype} is {found:e}, not {exact:e}: {error} ulp");
        }
    }
}
type Points = &'static [(f64, f64)];

#[rustfmt::skip]
const EXACT: &[(DType, &str, Points)] = &[
    (DType::F32, "sin(X[i])", &[
        (7.729178919452902e+28, 1.0),
        (3.4028234663852886e+38, -0.5218765233336585),
        (65536.0, 0.6920654538227232),
        (65537.0, -0.23347843820694436),
        (100000.0, 0.03574879797201651),
        (1.0000000200408773e+20, 0.6565766778545903),
        (1.2676506002282294e+30, -0.8721836054182673),
        (5.314761810037189e+34, -0.757850187979842),
        (2.885748408237718e+34, 0.9999255235953587),
        (30874750976.0, -0.37815088658248963),
        (1.5280881294754212e+22, 0.9647136677997427),
        (147678.71875, -0.9547178435000812),
        (258518.1875, 0.3243942247449553),
        (21276980674560.0, -0.2872268796523822),
        (538795638784.0, -0.8795691878521701),
        (3.373030017335296e+16, -0.9901971193981807),
        (5777499619328.0, -0.5610733794258679),
        (1.5609580065166554e+31, -0.9549260330672641),
        (1787509211136.0, -0.5294689703578954),
    ]),
    (DType::F32, "cos(X[i])", &[
        (7.729178919452902e+28, -1.6147697982476211e-09),
        (3.4028234663852886e+38, 0.8530210398303042),
        (65536.0, -0.7218347509126642),
        (65537.0, -0.9723619793535976),
        (100000.0, -0.9993608074382124),
        (1.0000000200408773e+20, 0.7542592830701055),
        (1.2676506002282294e+30, 0.48917865697472146),
        (5.314761810037189e+34, 0.6524286110977339),
        (2.885748408237718e+34, -0.012204395214336763),
        (30874750976.0, -0.9257439748531324),
        (1.5280881294754212e+22, 0.2633012327361339),
        (147678.71875, 0.2975127548569213),
        (258518.1875, -0.9459219772011429),
        (21276980674560.0, 0.9578625786641609),
        (538795638784.0, 0.4757709993064666),
        (3.373030017335296e+16, -0.1396770014553048),
        (5777499619328.0, -0.8277660677387279),
        (1.5609580065166554e+31, -0.29684385014754533),
        (1787509211136.0, -0.8483293048269346),
    ]),
    (DType::F64, "sin(X[i])", &[
        (5.319372648326541e+255, 1.0),
        (5.319372648326541e+255, 1.0),
        (1.7976931348623157e+308, 0.004961954789184062),
        (1e+22, -0.8522008497671888),
        (1.0715086071862673e+301, -0.15920170308624243),
        (1048576.0, 0.3304931400217347),
        (1048577.5, 0.9648223011268932),
        (1000000.0, -0.34999350217129294),
        (355.0, -3.014435335948845e-05),
        (1e+300, -0.8178819121159085),
        (5.160108530363898e+234, -0.9764940667420738),
        (9.59130812149865e+218, 0.9889198750248889),
        (1.5440328749867606e+234, -0.1939054349250251),
        (2.4938822192657124e+169, 0.38492169927789754),
        (2.1052100310872564e+149, 0.5469190434707272),
        (1.0781560821372302e+83, 0.9831259428076957),
        (6.130132605410507e+283, 0.944843434164478),
        (2.987279185979707e+120, 0.9988896025891059),
        (1.1148104451789385e+82, 0.9952486755799574),
        (2.936547325980109e+37, -0.4510207781785324),
        (13520051855.957165, -0.995160970550695),
        (6.144000801881269e+131, 0.20755884076729983),
    ]),
    (DType::F64, "cos(X[i])", &[
        (5.319372648326541e+255, -4.687165924254628e-19),
        (5.319372648326541e+255, -4.687165924254628e-19),
        (1.7976931348623157e+308, -0.9999876894265599),
        (1e+22, 0.523214785395139),
        (1.0715086071862673e+301, 0.9872460775989135),
        (1048576.0, 0.943808393901312),
        (1048577.5, -0.2629028855836442),
        (1000000.0, 0.9367521275331447),
        (355.0, -0.999999999545659),
        (1e+300, -0.5753861119575491),
        (5.160108530363898e+234, 0.21554428226591002),
        (9.59130812149865e+218, -0.14845026366011688),
        (1.5440328749867606e+234, -0.9810202252280719),
        (2.4938822192657124e+169, 0.9229492323118406),
        (2.1052100310872564e+149, 0.8371854990914886),
        (1.0781560821372302e+83, 0.18292998818804804),
        (6.130132605410507e+283, -0.32752234262150076),
        (2.987279185979707e+120, -0.04711222600746173),
        (1.1148104451789385e+82, -0.0973656703173178),
        (2.936547325980109e+37, -0.8925134495632159),
        (13520051855.957165, -0.09825804136353895),
        (6.144000801881269e+131, 0.9782225348147193),
    ]),
    (DType::F64, "erf(X[i])", &[
        (1e-300, 1.1283791670955126e-300),
        (1e-10, 1.1283791670955126e-10),
        (0.1, 0.1124629160182849),
        (0.5, 0.5204998778130465),
        (0.84375, 0.7672256612323416),
        (0.999, 0.8422852702064969),
        (1.0, 0.8427007929497149),
        (1.0001, 0.8427422995485203),
        (1.25, 0.9229001282564583),
        (1.7, 0.9837904585907745),
        (2.0, 0.9953222650189527),
        (2.3, 0.9988568234026434),
        (2.857, 0.9999466417399131),
        (3.0, 0.9999779095030014),
        (3.6, 0.999999644137007),
        (4.2, 0.9999999971445058),
        (5.0, 0.9999999999984626),
        (5.7, 0.9999999999999992),
        (5.9, 0.9999999999999999),
    ]),
];
