//! Products whose rows do not depend on how many rows are multiplied together (*batch invariance*).
//!
//! A floating-point sum depends on the order of its terms. [`super::recommend`] takes the fastest schedule for each M, so that a row of C
//! may have other bits in a product of 7 rows than in one of 4096: other instructions, a split of k, sums of lanes that shuffles add. Here
//! [`Order`] says what has an influence on the bits. It is chosen from N, K, types, layout and chip, and every M gets the fastest schedule
//! of that order.

use super::recipe::Recipe;
use super::recommend::first_that_lowers;
use super::split::{PARTS, adders};
use super::{Gemm, Kind, Mma, Pipelined, Product, Split, Tiles, WarpTiles, Wgmma, Wmma, recommend, simt, tuning};
use crate::error::{Code, Error, Result};
use crate::gemm::operand::up;
use crate::loom::Schedule;
use crate::schedule::Step;
use crate::target::Target;
use crate::te::GemmSpec;
use std::fmt;

/// What the bits of a sum depend on. Tiles, warps, stages, clusters and copies have no influence: each element of C has its own
/// accumulators, to which instructions add in ascending k.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Order {
    /// The kind of instruction.
    pub kind: Kind,
    /// Terms that an instruction adds at once.
    pub depth: i64,
    /// Parts of k that are summed apart and then added in ascending order (split-K): many in equal shares, and then the sums of these.
    pub parts: i64,
    /// Terms of a part; zeros follow the last term of k.
    pub terms: i64,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Order { kind, depth, parts, terms } = *self;
        match kind {
            Kind::Naive | Kind::Simt => write!(f, "sums by fma in ascending k")?,
            _ => write!(f, "sums by {}, {depth} terms an instruction, in ascending k", kind.name())?,
        }
        match (parts, parts / adders(parts)) {
            (1, _) => Ok(()),
            (_, share) if share < parts => {
                write!(
                    f,
                    ", in {parts} parts of {terms} terms, of which each {share} are added in ascending order, and then their sums"
                )
            }
            _ => write!(f, ", in {parts} parts of {terms} terms that are added in ascending order"),
        }
    }
}

/// Rows for which the numbers of parts are compared: from where GEMMs are large on to where they are so large that parts cost most.
const ROWS: [i64; 4] = [256, 1024, 4096, 16384];
/// How much less the largest loss of more parts must be.
const LESS: f64 = 0.95;
/// Multiples of this many parts are compared for ordinary code, whose tiles are many.
const FEW_PARTS: [i64; 5] = [1, 4, 16, 32, 64];

/// A schedule for the product by which the bits of a row of C depend on that row of A and on B alone: for every M the same. So a model's
/// answer to a request does not depend on the requests that run with it. What is fixed is [`order`]; tiles suit M.
///
/// Sums of integers are exact modulo 2^32 in every order, and have the steps of [`super::recommend`].
///
/// # Errors
/// Those of [`super::recommend`].
pub fn recommend_invariant(gemm: &Gemm, target: &Target) -> Result<Schedule> {
    let product = Product::of_gemm(gemm)?;
    let spec = &product.spec;
    let Some(order) = order(gemm, target) else { return recommend(gemm, target) };
    let all = order.tiles(spec, target);
    if all.is_empty() {
        let sizes = spec.sizes().iter().map(i64::to_string).collect::<Vec<_>>().join("x");
        return Err(Error::bug(Code::GemmRecipes, format!("no tiles of {sizes} on {target} have these {order}")));
    }
    let mut out = first_that_lowers(&product, target, all.into_iter().map(|(_, tile)| tile.steps(spec)))?;
    // The instruction's step says the order, of ordinary code the first step.
    let multiplies = |step: &Step| {
        let row = step.args().find_word("row");
        row.is_some_and(|row| ["wgmma.", "mma.", "wmma.mma."].iter().any(|kind| row.starts_with(kind)))
    };
    let at = out.steps.iter().position(multiplies).unwrap_or(0);
    if let Some(step) = out.steps.get_mut(at) {
        *step = step.clone().with_remark(format!("for every M: {order}"));
    }
    Ok(out)
}

/// The order in which [`recommend_invariant`] sums: the same for every M and every number of products of a batch. `None` where
/// every order gives the same bits, as for integers.
pub fn order(gemm: &Gemm, target: &Target) -> Option<Order> {
    // The order is that of one M and one number of products: neither may change it.
    let (batch, epilogue) = (gemm.spec().batch.map(|_| 1), gemm.has_epilogue());
    let spec = GemmSpec { m: ROWS[0], batch, epilogue, ..*gemm.spec() };
    spec.acc.is_float().then(|| Order::of(&spec, target))
}

impl Order {
    /// The order for N, K, types and layout on a chip.
    fn of(spec: &GemmSpec, target: &Target) -> Order {
        let mma = Mma::depth(spec, target).filter(|_| Mma::lacks(spec, target).is_none());
        let (kind, depth, stage) = if Wgmma::suits_every_m(spec, target) {
            (Kind::Wgmma, Wgmma::depth(spec), Wgmma::stage_depth(spec))
        } else if let Some(depth) = mma {
            (Kind::Mma, depth, Mma::stage_depth(spec, target))
        } else if Wmma::suits_every_m(spec, target) {
            (Kind::Wmma, Wmma::DEPTH, Wmma::stage_depth(spec))
        } else {
            (Kind::Simt, 1, simt::cost::ORDERED_TERMS.min(power_below(spec.k)))
        };
        let in_parts = |parts: i64| Order { kind, depth, parts, terms: up(spec.k, stage * parts) * stage };
        let numbers: &[i64] = match kind {
            _ if spec.batch.is_some() => &PARTS[..1],
            Kind::Wmma => &PARTS[..1],
            Kind::Simt => &FEW_PARTS,
            _ => &PARTS,
        };
        let all: Vec<Order> = numbers.iter().map(|parts| in_parts(*parts)).collect();
        Order::least_loss(&all, spec, target).unwrap_or(in_parts(1))
    }

    /// The order whose largest loss against the best of them, over all numbers of rows, is least.
    fn least_loss(all: &[Order], spec: &GemmSpec, target: &Target) -> Option<Order> {
        let costs: Vec<[f64; ROWS.len()]> =
            all.iter().map(|order| ROWS.map(|m| order.cycles(&GemmSpec { m, ..*spec }, target))).collect();
        let least = [0, 1, 2, 3].map(|at| costs.iter().map(|c| c[at]).fold(f64::INFINITY, f64::min));
        let loss = |cost: &[f64; ROWS.len()]| cost.iter().zip(least).map(|(c, least)| c / least).fold(1.0, f64::max);
        let mut best: Option<(f64, Order)> = None;
        for (order, loss) in all.iter().zip(costs.iter().map(loss)) {
            if best.is_none_or(|(least, _)| loss < LESS * least) {
                best = Some((loss, *order));
            }
        }
        best.map(|(_, order)| order)
    }

    /// Cycles of the cheapest tiles; infinite without any.
    fn cycles(&self, spec: &GemmSpec, target: &Target) -> f64 {
        let all = self.tiles(spec, target);
        let counted = all.iter().filter(|(_, tile)| !matches!(tile, Recipe::Wgmma(w) if w.is_pingpong()));
        counted.map(|(cycles, _)| *cycles).fold(f64::INFINITY, f64::min)
    }

    /// The tiles that sum in this order, the preferred first.
    fn tiles(&self, spec: &GemmSpec, target: &Target) -> Vec<(f64, Recipe)> {
        fn named<T>(all: Vec<(f64, T)>, tile: impl Fn(T) -> Recipe) -> Vec<(f64, Recipe)> {
            all.into_iter().map(|(cycles, t)| (cycles, tile(t))).collect()
        }
        match self.kind {
            Kind::Wgmma => named(Wgmma::in_order(spec, target, self.parts), Recipe::Wgmma),
            Kind::Mma => named(Mma::in_order(spec, target, self.parts), Recipe::Mma),
            Kind::Wmma => named(Wmma::of_any_rows(spec, target).into_iter().map(|w| (0.0, w)).collect(), Recipe::Wmma),
            Kind::Naive | Kind::Simt => self.ordinary(spec, target),
        }
    }

    /// The tiles of ordinary code.
    fn ordinary(&self, spec: &GemmSpec, target: &Target) -> Vec<(f64, Recipe)> {
        let is_alone = spec.batch.is_none();
        let same = |bk: i64| up(spec.k, bk * self.parts) * bk == self.terms;
        let split = Split { parts: self.parts, slices: 1 };
        let pipelined = Pipelined::candidates(spec, target).into_iter();
        let in_order = |p: &Pipelined| p.slices == 1 && p.parts == self.parts && same(p.terms);
        let pipelined = pipelined.filter(|(_, p)| is_alone && in_order(p));
        let warp_tiles = WarpTiles::choose_of(spec, target, std::iter::once(split));
        // One thread adds all parts of warp tiles.
        let warp_tiles = warp_tiles.filter(|(_, w)| is_alone && same(w.bk) && adders(self.parts) == 1);
        let tiles = Tiles::in_order(spec, target, self.parts, self.terms).into_iter();
        let tiles = tiles.map(|(cycles, t)| (cycles, Recipe::Tiles(t)));
        let mut all: Vec<(f64, Recipe)> = pipelined.map(|(cycles, p)| (cycles, Recipe::Pipelined(p))).collect();
        all.extend(warp_tiles.map(|(cycles, w)| (tuning::WARP_TILES_SLOWER * cycles, Recipe::WarpTiles(w))));
        all.extend(tiles);
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all
    }
}

/// The largest power of two that is not larger.
fn power_below(n: i64) -> i64 {
    1 << n.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::sample::drawn;
    use crate::te::Layout;

    const CHIPS: [(DType, Target); 6] = [
        (DType::F16, Target::sm_90a()),
        (DType::Bf16, Target::sm_80()),
        (DType::F32, Target::sm_90a()),
        (DType::F64, Target::sm_80()),
        (DType::F16, Target::sm_75()),
        (DType::F16, Target::sm_70()),
    ];

    /// The order of the first number of rows is that of the last, and of a sample of the others.
    #[test]
    fn the_order_depends_on_no_number_of_rows() {
        let sizes = [[4096, 4096], [100, 72], [33, 1000], [16, 8], [1, 515], [256, 65536], [4, 2], [1, 1]];
        for ((at, [n, k]), (dtype, target)) in sizes.into_iter().enumerate().flat_map(|s| CHIPS.map(|c| (s, c))) {
            let of = |m: i64| Gemm::new(m, n, k).of(dtype).layout(Layout::ALL[at % 4]);
            let first = order(&of(1), &target).unwrap();
            for m in [1, 2, 7, 8, 16, 17, 100, 1024, 70_000] {
                if m < 70_000 && !drawn(&format!("order {:?} {target}", of(m)), 4) {
                    continue;
                }
                assert_eq!(order(&of(m), &target), Some(first), "{m}");
                assert!(!first.tiles(of(m).spec(), &target).is_empty(), "{m}x{n}x{k} {dtype} {target}: {first}");
                assert_eq!(order(&of(m).batch(3), &target), order(&of(1).batch(64), &target));
            }
        }
    }

    #[test]
    fn long_sums_of_few_columns_are_divided_for_every_m() {
        let of = |n, k| order(&Gemm::new(1, n, k).of(DType::F16).layout(Layout::NT), &Target::sm_90a()).unwrap();
        assert_eq!(of(4096, 4096).parts, 1);
        let long = of(256, 65536);
        assert!(long.parts > 1 && long.terms * long.parts >= 65536, "{long}");
        let said = format!("sums by wgmma, 16 terms an instruction, in ascending k, in {} parts of ", long.parts);
        assert!(long.to_string().starts_with(&said), "{long}");
    }

    #[test]
    fn many_parts_are_added_in_shares_by_all_tiles() {
        for dtype in [DType::F32, DType::F16] {
            let gemm = |m: i64| Gemm::new(m, 16, 65536).of(dtype).layout(Layout::NT);
            let order = order(&gemm(1), &Target::sm_90a()).unwrap();
            assert!(adders(order.parts) > 1, "{order}");
            assert!(order.to_string().ends_with("are added in ascending order, and then their sums"), "{order}");
            for m in [1, 60, 4096] {
                let all = order.tiles(gemm(m).spec(), &Target::sm_90a());
                assert!(
                    !all.is_empty() && !all.iter().any(|(_, tile)| matches!(tile, Recipe::WarpTiles(_))),
                    "{m}: {order}"
                );
            }
        }
    }

    #[test]
    fn tiles_of_ordinary_code_have_the_parts_of_the_order() {
        let target = Target::sm_90a();
        let mut seen = 0;
        for ([n, k], m) in
            [[512, 4096], [320, 4352], [128, 9600]].into_iter().flat_map(|s| [64, 693, 4096].map(|m| (s, m)))
        {
            let gemm = Gemm::new(m, n, k);
            let order = order(&gemm, &target).unwrap();
            for (_, tile) in order.tiles(gemm.spec(), &target) {
                if let Recipe::Pipelined(p) = tile {
                    assert_eq!([p.parts, p.slices], [order.parts, 1], "{m}x{n}x{k}: {order}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 0);
    }

    #[test]
    fn integers_have_the_free_choice() {
        let gemm = Gemm::new(100, 96, 128).of(DType::S8).layout(Layout::NT);
        let target = Target::sm_90a();
        assert_eq!(order(&gemm, &target), None);
        assert_eq!(recommend_invariant(&gemm, &target).unwrap(), recommend(&gemm, &target).unwrap());
    }

    #[test]
    fn large_products_keep_their_speed() {
        let target = Target::sm_90a();
        let wide = [[4096, 4096], [12288, 2048], [28672, 8192]];
        for ([n, k], layout) in wide.into_iter().flat_map(|s| Layout::ALL.map(|l| (s, l))) {
            for (dtype, m) in [DType::F16, DType::Bf16].into_iter().flat_map(|d| (8..=14).map(move |e| (d, 1 << e))) {
                let gemm = Gemm::new(m, n, k).of(dtype).layout(layout);
                let order = order(&gemm, &target).unwrap();
                let free = Wgmma::candidates(gemm.spec(), &target)[0].cycles_with_packing(gemm.spec(), &target);
                let ours = order.tiles(gemm.spec(), &target)[0].0;
                assert!(free >= 0.95 * ours, "{m}x{n}x{k} {dtype} {layout:?}: {:.3} {order}", free / ours);
            }
        }
    }

    /// The first number of rows, and a sample of all others with every size and chip.
    #[test]
    fn every_number_of_rows_lowers() {
        let sizes = [[40, 72], [72, 33], [1, 40], [17, 24], [96, 2048]];
        for ((at, [n, k]), (turn, (dtype, target))) in
            sizes.into_iter().enumerate().flat_map(|s| CHIPS.into_iter().enumerate().map(move |c| (s, c)))
        {
            for m in [1, 2, 7, 8, 16, 33, 65] {
                let gemm = Gemm::new(m, n, k).of(dtype).layout(Layout::ALL[(at + turn) % 4]);
                if (at, turn, m) != (0, 0, 1) && !drawn(&format!("rows {gemm:?} {target}"), 3) {
                    continue;
                }
                let made = recommend_invariant(&gemm, &target).unwrap();
                assert!(made.to_string().contains("for every M: sums by "), "{made}");
                let lowered = made.scheduled().and_then(|func| crate::lower::lower(&func, &target));
                assert!(lowered.is_ok(), "{gemm:?} on {target}: {}", lowered.unwrap_err());
            }
        }
    }
}
