//! Random products, for measurements over many shapes.
//!
//! Extents are log-uniform in 1 to 16384; 60 % of them are rounded to a multiple of 8, 16, 32, 64 or 128. A product has 1 MFLOP to
//! 4 TFLOP. Layouts are uniform.

use crate::te::Layout;

/// The largest extent.
const LARGEST: f64 = 16384.0;
/// The share of extents that are multiples of one of these.
const MULTIPLES: (f64, [i64; 5]) = (0.6, [8, 16, 32, 64, 128]);
/// Operations of a product.
const OPERATIONS: std::ops::RangeInclusive<f64> = 1e6..=4e12;

/// The layout and the extents m, n and k of a random product.
pub fn random(rng: &mut fastrand::Rng) -> (Layout, [i64; 3]) {
    let layout = Layout::ALL[rng.usize(0..Layout::ALL.len())];
    (layout, sizes(rng))
}

/// Extents of a product that has neither too little nor too much to do.
fn sizes(rng: &mut fastrand::Rng) -> [i64; 3] {
    loop {
        let drawn = [(); 3].map(|()| extent(rng));
        let operations = drawn.iter().fold(2.0, |n, extent| n * *extent as f64);
        if OPERATIONS.contains(&operations) {
            return drawn;
        }
    }
}

fn extent(rng: &mut fastrand::Rng) -> i64 {
    let extent = LARGEST.powf(rng.f64()).round() as i64;
    let (share, multiples) = MULTIPLES;
    if rng.f64() >= share {
        return extent;
    }
    let of = multiples[rng.usize(0..multiples.len())];
    ((extent + of / 2) / of * of).max(of)
}
