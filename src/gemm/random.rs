//! Random products, for measurements over many shapes.
//!
//! Extents are log-uniform in 1 to 16384; 60 % of them are rounded to a multiple of 8, 16, 32, 64 or 128. A product has 1 MFLOP to
//! 4 TFLOP. Layouts are uniform.
//!
//! Where the choice of tiles changes, two neighbouring sizes have different ones: [`edge`] finds such a pair.

use super::Gemm;
use super::recommend::offered;
use crate::target::Target;
use crate::te::{GemmSpec, Layout};

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

/// The extents m, n and k.
const EXTENTS: usize = 3;

/// Two products that differ by one in an extent (0 for m, 1 for n, 2 for k) and whose recommended tiles have different names: found by bisection between
/// the product's own extent and twice that, or half of it where twice is more than 16384. `None` where the names at both ends are the same.
pub fn edge(gemm: &Gemm, extent: usize, target: &Target) -> Option<[Gemm; 2]> {
    let at = |size: i64| with_extent(gemm, extent, size);
    let name = |size: i64| Some(offered(at(size).spec(), target, 1).first()?.name());
    let own = extents(gemm.spec())[extent % EXTENTS];
    let other = if 2 * own <= LARGEST as i64 { 2 * own } else { own / 2 };
    let (mut below, mut above) = (own.min(other), own.max(other));
    let first = name(below);
    if first == name(above) {
        return None;
    }
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        if name(middle) == first { below = middle } else { above = middle }
    }
    Some([at(below), at(above)])
}

fn extents(spec: &GemmSpec) -> [i64; EXTENTS] {
    [spec.m, spec.n, spec.k]
}

fn with_extent(gemm: &Gemm, extent: usize, size: i64) -> Gemm {
    let mut gemm = *gemm;
    let GemmSpec { m, n, k, .. } = &mut gemm.spec;
    *[m, n, k][extent % EXTENTS] = size;
    gemm
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn neighbours_of_an_edge_have_different_tiles() {
        let mut rng = fastrand::Rng::with_seed(18);
        let mut found = 0;
        for n in 0..12 {
            let (layout, [rows, columns, terms]) = random(&mut rng);
            let dtype = [DType::F16, DType::F32, DType::S8][n % 3];
            let gemm = Gemm::new(rows, columns, terms).of(dtype).layout(layout);
            let Some([a, b]) = edge(&gemm, n, &Target::sm_90a()) else { continue };
            let name = |g: &Gemm| offered(g.spec(), &Target::sm_90a(), 1)[0].name();
            assert_ne!(name(&a), name(&b));
            let differ = (0..EXTENTS).filter(|d| extents(a.spec())[*d] != extents(b.spec())[*d]).collect::<Vec<_>>();
            assert_eq!(differ, [n % EXTENTS]);
            assert_eq!(extents(b.spec())[n % EXTENTS] - extents(a.spec())[n % EXTENTS], 1);
            found += 1;
        }
        assert!(found > 6, "{found}");
    }
}
