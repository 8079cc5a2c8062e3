//! Time of `gemm::recommend` over random products: `cargo bench --bench recommend`.
//!
//! 200 products of f16, bf16, f32 and s8 by the generator of `warploom bench --random`, each fourth of them as a batch, for sm_90a and
//! sm_80. A row for each chip and type has the times of the choice alone and of the choice with its lowering, which is how `recommend`
//! validates what it returns. `cargo bench --bench recommend -- --print` prints the schedules instead, to compare two versions.

use std::hint::black_box;
use std::time::{Duration, Instant};
use warploom::{DType, Gemm, Result, Target, gemm, lower};

/// Products of each type, and the seed that they are drawn with.
const PRODUCTS: usize = 50;
const SEED: u64 = 18;
/// Each so many-th product is a batch of 2 to 64 of a smaller one.
const BATCHES: usize = 4;
/// Runs of each product; the fastest counts.
const RUNS: usize = 3;

/// The products of a type.
fn products(dtype: DType) -> Vec<Gemm> {
    let mut rng = fastrand::Rng::with_seed(SEED ^ u64::from(dtype.bits()));
    let one = |at: usize| {
        let (layout, [m, n, k]) = gemm::random(&mut rng);
        if at % BATCHES == BATCHES - 1 {
            let products = rng.i64(2..=64);
            return Gemm::new(m.min(1024), n.min(1024), k.min(1024)).of(dtype).layout(layout).batch(products);
        }
        Gemm::new(m, n, k).of(dtype).layout(layout)
    };
    (0..PRODUCTS).map(one).collect()
}

/// The fastest of some runs.
fn fastest<T>(mut run: impl FnMut() -> T) -> Duration {
    let time = |_| {
        let start = Instant::now();
        black_box(run());
        start.elapsed()
    };
    (0..RUNS).map(time).min().unwrap_or_default()
}

/// The median and the largest, in milliseconds, with the product of the largest.
fn summary(mut times: Vec<(Duration, Gemm)>) -> String {
    times.sort_by_key(|(time, _)| *time);
    let ms = |at: usize| times[at].0.as_secs_f64() * 1e3;
    let last = times.len() - 1;
    let spec = times[last].1.spec();
    let sizes: Vec<String> = spec.sizes().iter().map(i64::to_string).collect();
    format!(
        "{:8.2} {:8.2} {:8.2}  {} {}",
        ms(last / 2),
        ms(last * 9 / 10),
        ms(last),
        sizes.join("x"),
        spec.layout.name()
    )
}

fn main() -> Result<()> {
    let prints = std::env::args().any(|word| word == "--print");
    if !prints {
        println!("{:24} {:>8} {:>8} {:>8}  slowest", "ms", "median", "90 %", "most");
    }
    for target in [Target::sm_90a(), Target::sm_80()] {
        for dtype in [DType::F16, DType::Bf16, DType::F32, DType::S8] {
            match prints {
                true => print(&products(dtype), &target)?,
                false => measure(dtype, &target)?,
            }
        }
    }
    Ok(())
}

/// Prints what is recommended, so that two versions can be compared.
fn print(products: &[Gemm], target: &Target) -> Result<()> {
    for gemm in products {
        println!("{}", gemm::recommend(gemm, target)?);
    }
    Ok(())
}

/// Prints a line for the choice, the lowering and both.
fn measure(dtype: DType, target: &Target) -> Result<()> {
    let (mut whole, mut lowering) = (Vec::new(), Vec::new());
    for gemm in products(dtype) {
        let schedule = gemm::recommend(&gemm, target)?;
        whole.push((fastest(|| gemm::recommend(&gemm, target)), gemm));
        lowering.push((fastest(|| schedule.scheduled().and_then(|func| lower::lower(&func, target))), gemm));
    }
    let choice = whole.iter().zip(&lowering).map(|(a, b)| (a.0.saturating_sub(b.0), a.1)).collect();
    for (what, times) in [("choice", choice), ("lowering", lowering), ("recommend", whole)] {
        println!("{:24} {}", format!("{target} {dtype} {what}"), summary(times));
    }
    Ok(())
}
