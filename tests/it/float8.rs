//! 8-bit floats in ordinary code: conversions as the emitted PTX computes them, by `cvt` and by integer code, and as the simulator
//! does, against the tables of the formats.

use warploom::array::{fp8_bits, fp8_value};
use warploom::lower::lower;
use warploom::measure::run_once;
use warploom::runtime::Device;
use warploom::sim::{Mode, Options, run_lowered, run_ptx};
use warploom::{Array, DType, Schedule, Target, compile};

/// A type, with the bits of its exponent and of its fraction.
const FORMATS: [(DType, u32, u32); 2] = [(DType::E4m3, 4, 3), (DType::E5m2, 5, 2)];

/// A chip whose conversions are integer code, and one that has the instruction.
const CHIPS: [&str; 3] = ["sm_70", "sm_80", "sm_90"];

/// A program of one input, in lanes of a vector.
fn elementwise(value: &str, from: DType, to: DType, (chip, lanes): (&str, usize), n: usize) -> Schedule {
    let text = format!(
        "program one\ninput X {from}[{n}]\noutput Z[i {n}] {to} = {value}\n\
         target {chip}\nsplit i ? 32 {lanes} -> a b c; bind a blockIdx.x; bind b threadIdx.x; vectorize c\n"
    );
    Schedule::parse(&text).unwrap()
}

/// The bytes of what a program of one input gives on a chip in lanes of a vector, as PTX and as the simulator runs the kernels.
fn computed(value: &str, from: DType, to: DType, (chip, lanes): (&str, usize), x: &Array) -> [Vec<u8>; 2] {
    let schedule = elementwise(value, from, to, (chip, lanes), x.len());
    let args = || vec![x.clone(), Array::zeros(to, &[x.len()]).unwrap()];
    let kernels = compile(&schedule).unwrap();
    let has = kernels.ptx().contains("cvt.rn.f16x2.e") || kernels.ptx().contains("cvt.rn.satfinite.e");
    assert_eq!(has, chip == "sm_90", "{value} on {chip}");
    let mut by_ptx = args();
    run_ptx(&kernels, &Options::new(Mode::Real), &mut by_ptx).unwrap();
    let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let mut by_level = args();
    run_lowered(&lowered, Mode::Real, &mut by_level).unwrap();
    [by_ptx, by_level].map(|mut all| all.pop().unwrap().bytes)
}

/// All ways in which a conversion is compiled.
fn ways() -> impl Iterator<Item = (&'static str, usize)> {
    CHIPS.into_iter().flat_map(|chip| [1, 2, 3, 4, 16].map(|lanes| (chip, lanes)))
}

#[test]
fn every_code_widens_exactly() {
    for (dtype, exponent, fraction) in FORMATS {
        let codes: Vec<u8> = (0..=255).collect();
        let x = Array { dtype, ..Array::from_slice(&[256], &codes).unwrap() };
        for to in [DType::F16, DType::Bf16, DType::F32, DType::F64, DType::S32] {
            let exact = |code: u8| fp8_value(code, exponent, fraction);
            for way in ways() {
                for bytes in computed(&format!("{to}(X[i])"), dtype, to, way, &x) {
                    let found = Array { dtype: to, shape: vec![256], bytes };
                    for code in 0..=255u8 {
                        let (value, wanted) = (found.get(code as usize), exact(code));
                        let same = match to {
                            DType::S32 => value == f64::from(wanted as i32),
                            _ if wanted.is_nan() => value.is_nan(),
                            _ => value.to_bits() == wanted.to_bits(),
                        };
                        assert!(same, "{dtype} {code:#04x} as {to} {way:?} is {value:?}, not {wanted:?}");
                    }
                }
            }
        }
    }
}

/// Numbers of every exponent, both signs: ends of fractions, at random, and around what is half-way between two codes.
fn numbers(exponent: u32, fraction: u32, rng: &mut fastrand::Rng) -> Vec<f32> {
    let mut out =
        vec![0.0, f32::INFINITY, f32::NAN, f32::from_bits(0x7F80_0001), f32::MAX, 448.0, 464.0, 57344.0, 61440.0];
    for e in 0..255u32 {
        out.extend([0, 1, 0x7F_FFFF, rng.u32(0..1 << 23)].map(|m| f32::from_bits(e << 23 | m)));
    }
    let finite = (0..0x7Fu8).filter(|c| fp8_value(*c, exponent, fraction).is_finite());
    for code in finite {
        let (low, next) = (fp8_value(code, exponent, fraction), fp8_value(code + 1, exponent, fraction));
        let middle = ((low + if next.is_finite() { next } else { low }) / 2.0) as f32;
        out.extend([low as f32, middle, middle.next_up(), middle.next_down()]);
    }
    let negative: Vec<f32> = out.iter().map(|v| -v).collect();
    out.extend(negative);
    out
}

#[test]
fn numbers_round_to_nearest_even_and_saturate() {
    let mut rng = fastrand::Rng::with_seed(8);
    for (dtype, exponent, fraction) in FORMATS {
        let values = numbers(exponent, fraction, &mut rng);
        for from in [DType::F32, DType::F16, DType::Bf16] {
            let x = Array::from_fn(from, &[values.len()], |i| f64::from(values[i])).unwrap();
            check(dtype, from, &x, |i| fp8_bits(x.get(i), exponent, fraction));
        }
        // Above and below a value that f32 would round to a tie.
        let close = |v: f32| [f64::from(v), f64::from(v) * (1.0 + 1e-14), f64::from(v) * (1.0 - 1e-14)];
        let wide: Vec<f64> = values.iter().flat_map(|v| close(*v)).collect();
        let x = Array::from_fn(DType::F64, &[wide.len()], |i| wide[i]).unwrap();
        check(dtype, DType::F64, &x, |i| fp8_bits(wide[i], exponent, fraction));
        let whole: Vec<i32> = (-2000..2000).chain([i32::MAX, i32::MIN, 57344, 61440, 53248, -53249, 53250]).collect();
        let x = Array::from_slice(&[whole.len()], &whole).unwrap();
        check(dtype, DType::S32, &x, |i| fp8_bits(f64::from(whole[i]), exponent, fraction));
    }
}

fn check(dtype: DType, from: DType, x: &Array, wanted: impl Fn(usize) -> u8) {
    for way in ways() {
        for (level, bytes) in computed(&format!("{dtype}(X[i])"), from, dtype, way, x).iter().enumerate() {
            for (i, found) in bytes.iter().enumerate() {
                let (value, wanted) = (x.get(i), wanted(i));
                assert_eq!(*found, wanted, "{value:e} of {from} as {dtype} {way:?}, level {level}");
            }
        }
    }
}

/// Arithmetic rounds after every operation, on every chip alike; infinities that are copied stay.
#[test]
fn arithmetic_is_the_same_on_every_chip() {
    for (dtype, exponent, fraction) in FORMATS {
        let codes: Vec<u8> = (0..=255).collect();
        let x = Array { dtype, ..Array::from_slice(&[256], &codes).unwrap() };
        let value = |code: u8| fp8_value(code, exponent, fraction);
        let bits = |v: f64| fp8_bits(v, exponent, fraction);
        let is_nan = |code: u8| value(code).is_nan();
        let constant = |v: f64| format!("{dtype}({v:?})");
        let cases: [(String, &dyn Fn(u8) -> u8); 5] = [
            ("X[i]".into(), &|code| code),
            ("-X[i]".into(), &|code| bits(-value(code))),
            (format!("X[i] * {}", constant(1.5)), &|code| bits(value(code) * 1.5)),
            (format!("max(X[i], {})", constant(0.25)), &|code| bits(value(code).max(0.25))),
            (format!("X[i] + {}", constant(3.25)), &|code| bits(value(code) + value(bits(3.25)))),
        ];
        for (text, wanted) in cases {
            for chip in CHIPS.into_iter().filter(|chip| text != "X[i]" || *chip == "sm_80") {
                let found = computed(&text, dtype, dtype, (chip, 4), &x);
                for (code, bytes) in (0..=255u8).flat_map(|code| found.iter().map(move |bytes| (code, bytes))) {
                    let (found, wanted) = (bytes[code as usize], wanted(code));
                    let same = found == wanted || is_nan(found) && is_nan(wanted);
                    assert!(same, "{text} of {dtype} {code:#04x} on {chip} is {found:#04x}, not {wanted:#04x}");
                }
            }
        }
    }
}

/// The product that the book shows, on every chip, by both levels.
#[test]
fn products_run_as_ordinary_code_on_every_chip() {
    for (types, chip) in [("e4m3>f32>f16", "sm_70"), ("e4m3*e5m2>f32>e4m3", "sm_80"), ("e5m2>f32>e5m2", "sm_90a")] {
        for layout in ["NN", "NT", "TN", "TT"] {
            let text = format!(
                "gemm 33x17x21 {types} {layout}\ntarget {chip}\nsplit i ? 4 -> i0 i1; split j ? 8 -> j0 j1\n\
                 reorder i0 j0 i1 j1 k; bind i0 blockIdx.y; bind j0 blockIdx.x; bind i1 threadIdx.y; bind j1 threadIdx.x\n"
            );
            let schedule = Schedule::parse(&text).unwrap();
            let kernels = compile(&schedule).unwrap();
            let (a, b, out) = types_of(types);
            let of = |dtype, shape: &[usize]| Array::random_integers(dtype, shape, 3, shape[0] as u64).unwrap();
            let (ta, tb) = (layout.starts_with('T'), layout.ends_with('T'));
            let (rows, columns) = (if ta { [21, 33] } else { [33, 21] }, if tb { [17, 21] } else { [21, 17] });
            let (x, y) = (of(a, &rows), of(b, &columns));
            let mut args = vec![x.clone(), y.clone(), Array::zeros(out, &[33, 17]).unwrap()];
            run_ptx(&kernels, &Options::new(Mode::Real), &mut args).unwrap();
            for (i, j) in (0..33).flat_map(|i| (0..17).map(move |j| (i, j))) {
                let term = |k: usize| {
                    x.get(if ta { k * 33 + i } else { i * 21 + k }) * y.get(if tb { j * 21 + k } else { k * 17 + j })
                };
                let sum: f64 = (0..21).map(term).sum();
                let rounded = Array::from_fn(out, &[1], |_| sum).unwrap().get(0);
                assert_eq!(args[2].get(i * 17 + j), rounded, "{types} {layout} on {chip} at {i}, {j}");
            }
        }
    }
}

fn types_of(types: &str) -> (DType, DType, DType) {
    let parts: Vec<&str> = types.split('>').collect();
    let (a, b) = parts[0].split_once('*').unwrap_or((parts[0], parts[0]));
    let parse = |name: &str| DType::parse(name).unwrap();
    (parse(a), parse(b), parse(parts[2]))
}

/// A device converts as the tables of the formats say: every code, and numbers of every exponent.
pub fn conversions_on(device: &Device) {
    let (major, minor) = device.info().capability;
    let chip = Target::for_device(10 * major + minor).unwrap();
    let computed = |from: DType, to: DType, lanes, x: &Array| {
        let schedule = elementwise(&format!("{to}(X[i])"), from, to, (chip.name, lanes), x.len());
        let program = device.load(&compile(&schedule).unwrap()).unwrap();
        run_once(&program, &[x.clone(), Array::zeros(to, &[x.len()]).unwrap()]).unwrap().remove(1)
    };
    let mut rng = fastrand::Rng::with_seed(9);
    for ((dtype, exponent, fraction), lanes) in FORMATS.into_iter().flat_map(|f| [1, 4].map(|lanes| (f, lanes))) {
        let codes: Vec<u8> = (0..=255).collect();
        let x = Array { dtype, ..Array::from_slice(&[256], &codes).unwrap() };
        for to in [DType::F16, DType::F32] {
            let found = computed(dtype, to, lanes, &x);
            for code in 0..=255u8 {
                let (value, wanted) = (found.get(code.into()), fp8_value(code, exponent, fraction));
                assert!(
                    value.to_bits() == wanted.to_bits() || value.is_nan() && wanted.is_nan(),
                    "{dtype} {code:#04x}"
                );
            }
        }
        let values = numbers(exponent, fraction, &mut rng);
        let x = Array::from_slice(&[values.len()], &values).unwrap();
        let found = computed(DType::F32, dtype, lanes, &x);
        for (value, found) in values.iter().zip(&found.bytes) {
            assert_eq!(*found, fp8_bits(f64::from(*value), exponent, fraction), "{value:e} as {dtype}");
        }
    }
}
