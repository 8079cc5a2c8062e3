//! Kinds of code for a matrix product: what a ladder climbs and a plot has lines for.

use super::adapt::schedule;
use super::epilogue::Accumulators;
use super::grid::{bind_batch, bind_blocks, fuses_batch};
use super::operand::up;
use super::recommend::{first_that_lowers, simt};
use super::{Gemm, Mma, Product, Wgmma, Wmma};
use crate::error::{Code, Error, Result};
use crate::ir::Axis;
use crate::loom::Schedule;
use crate::schedule::Steps;
use crate::target::{Features, Target};
use crate::te::GemmSpec;

/// A kind of code, from the plainest up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An element of C a thread, every operand from device memory.
    Naive,
    /// Tiles in shared memory and registers, multiplied by threads.
    Simt,
    /// Tensor cores through fragments that only the instruction knows (wmma).
    Wmma,
    /// Tensor cores through fragments in registers (mma.sync).
    Mma,
    /// Tensor cores that read shared memory themselves (wgmma).
    Wgmma,
}

/// Rows and columns of a block of the naive kind.
const NAIVE_BLOCK: i64 = 16;

impl Kind {
    /// Every kind, from the plainest up.
    pub const ALL: [Kind; 5] = [Kind::Naive, Kind::Simt, Kind::Wmma, Kind::Mma, Kind::Wgmma];

    /// The name in tables and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Naive => "naive",
            Kind::Simt => "simt",
            Kind::Wmma => "wmma",
            Kind::Mma => "mma",
            Kind::Wgmma => "wgmma",
        }
    }

    /// The kind of that name.
    pub fn parse(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|k| k.name() == name)
    }

    /// A schedule of this kind: the first of its recipes that lowers for the chip.
    ///
    /// # Errors
    /// What [`Gemm::program`] refuses; `gemm.kind`, the chip's fault, where no recipe of the kind fits the product on the chip.
    pub fn schedule(self, gemm: &Gemm, target: &Target) -> Result<Schedule> {
        let product = Product::of_gemm(gemm)?;
        let spec = &product.spec;
        let mut steps: Box<dyn Iterator<Item = Steps>> = match self {
            Kind::Naive => return schedule(&product, target, naive(spec)),
            Kind::Simt => Box::new(simt(spec, target)),
            Kind::Mma => Box::new(Mma::candidates(spec, target).into_iter().map(|m| m.steps(spec))),
            Kind::Wgmma => Box::new(Wgmma::candidates(spec, target).into_iter().map(|w| w.steps(spec))),
            Kind::Wmma => Box::new(Wmma::candidates(spec, target).into_iter().map(|w| w.steps(spec))),
        };
        let first = steps.next().ok_or_else(|| {
            let GemmSpec { a, b, acc, out, layout, .. } = *spec;
            let factors = if a == b { a.to_string() } else { format!("{a}*{b}") };
            let sizes = spec.sizes().iter().map(i64::to_string).collect::<Vec<_>>().join("x");
            let described = format!("{sizes} {factors}>{acc}>{out} {}", layout.name());
            let why = match self {
                Kind::Mma => Mma::lacks(spec, target),
                Kind::Wgmma if !target.has(Features::WGMMA) => Some("the chip has no wgmma, which sm_90a has"),
                _ => None,
            };
            let why = why.map(|w| format!(": {w}")).unwrap_or_default();
            Error::chip(Code::GemmKind, format!("no recipe of kind {} fits {described} on {target}{why}", self.name()))
                .help("use another kind, or write the steps yourself")
        })?;
        first_that_lowers(&product, target, std::iter::once(first).chain(steps))
    }
}

/// Threads of a block where the elements of a large batch are fused.
const FUSED_BLOCK: i64 = 256;

/// A thread an element.
pub(super) fn naive(spec: &GemmSpec) -> Steps {
    let mut s = Steps::new();
    let stored = Accumulators::of(spec).keep_in_registers(&mut s, "C_local");
    if fuses_batch(spec) {
        s.fuse(["b", "i"], "bi").fuse(["bi", "j"], "f").split("f", [FUSED_BLOCK], ["f_0", "f_1"]);
        s.bind("f_0", Axis::BlockX).bind("f_1", Axis::ThreadX).reverse_compute_at(stored, "f_1");
        return s;
    }
    let [bm, bn] = [spec.m, spec.n].map(|extent| NAIVE_BLOCK.min(extent));
    s.split("i", [bm], ["i_0", "i_1"]).split("j", [bn], ["j_0", "j_1"]).reorder(["i_0", "j_0", "i_1", "j_1", "k"]);
    bind_blocks(&mut s, ("i_0", up(spec.m, bm)), ("j_0", up(spec.n, bn)));
    s.bind("i_1", Axis::ThreadY).bind("j_1", Axis::ThreadX).reverse_compute_at(stored, "j_1");
    bind_batch(&mut s, spec);
    s
}

#[cfg(test)]
mod tests {
    use super::super::{candidates, recommend};
    use super::*;
    use crate::dtype::DType;
    use crate::sample::drawn;
    use crate::te::Layout;

    /// A sample of the sizes, types and layouts.
    #[test]
    fn every_kind_compiles_or_says_that_no_recipe_fits() {
        for (dtype, layout) in [DType::F16, DType::S8, DType::F32].into_iter().flat_map(|d| Layout::ALL.map(|l| (d, l)))
        {
            for size in [[256, 256, 128], [33, 65, 17], [1, 5, 3]] {
                let gemm = Gemm::new(size[0], size[1], size[2]).of(dtype).layout(layout);
                let is_first = (dtype, layout, size[0]) == (DType::F16, Layout::NN, 256);
                if !is_first && !drawn(&format!("kinds {gemm:?}"), 3) {
                    continue;
                }
                for kind in Kind::ALL {
                    match kind.schedule(&gemm, &Target::sm_80()) {
                        Ok(schedule) => assert!(schedule.scheduled().is_ok(), "{kind:?} {gemm:?}"),
                        Err(e) => assert_eq!(e.code(), Code::GemmKind),
                    }
                }
                let batch = gemm.batch(3);
                for schedule in Kind::ALL.iter().filter_map(|k| k.schedule(&batch, &Target::sm_90a()).ok()) {
                    assert!(schedule.scheduled().is_ok(), "{batch:?}\n{schedule}");
                }
                assert!(Kind::Naive.schedule(&gemm, &Target::sm_70()).is_ok());
                assert!(Kind::Simt.schedule(&gemm, &Target::sm_70()).is_ok());
            }
        }
        assert!(Kind::ALL.into_iter().all(|k| Kind::parse(k.name()) == Some(k)));
    }

    /// What refuses a product on its three ways in, by code; every one must.
    fn refusals(gemm: &Gemm, target: &Target) -> Vec<String> {
        let kinds = Kind::ALL.into_iter().map(|kind| kind.schedule(gemm, target).map(|_| ()));
        let others = [recommend(gemm, target).map(|_| ()), candidates(gemm, target).map(|_| ())];
        kinds.chain(others).map(|way| way.expect_err("too large").code().to_string()).collect()
    }

    #[test]
    fn sizes_that_no_program_has_are_refused_before_any_recipe_counts_with_them() {
        let types = [DType::F64, DType::F32, DType::F16, DType::Bf16, DType::E4m3, DType::S8, DType::U8, DType::S4];
        let every = || types.into_iter().flat_map(|d| Layout::ALL.map(|l| (d, l)));
        for (huge, (dtype, layout)) in
            [i64::MAX, 1 << 62, 1 << 40, 1 << 37].into_iter().flat_map(|huge| every().map(move |of| (huge, of)))
        {
            let sizes = [[huge, huge, huge], [huge, 64, 64], [64, huge, 64], [64, 64, huge]];
            for target in [Target::sm_70(), Target::sm_80(), Target::sm_90a()] {
                let plain = sizes.map(|[m, n, k]| Gemm::new(m, n, k).of(dtype).layout(layout));
                let batches = sizes.map(|[m, n, k]| Gemm::new(m, n, k).of(dtype).layout(layout).batch(huge));
                let small = Gemm::new(64, 64, 64).of(dtype).layout(layout).batch(huge);
                for gemm in plain.into_iter().chain(batches).chain([small]) {
                    let codes = refusals(&gemm, &target);
                    assert!(codes.iter().all(|c| c == "te.limit" || c == "te.extent"), "{gemm:?}: {codes:?}");
                }
            }
        }
    }

    /// The cost models count with every combination of size, types and layout. All candidates lower for a sample of the sizes and types, each in one
    /// layout: with an unoptimised compiler that takes about a second a GEMM.
    #[test]
    fn the_largest_sizes_that_a_program_has_overflow_nothing() {
        let most = crate::te::MAX_ELEMENTS;
        let sizes = [[most, 1, 1], [1, most, 1], [1, 1, most], [most / 64, 64, 64], [1 << 18; 3]];
        let types = [DType::F16, DType::F32, DType::S8];
        let mut lowered = [0; Layout::ALL.len()];
        for ((s, [m, n, k]), (t, dtype)) in
            sizes.into_iter().enumerate().flat_map(|size| types.into_iter().enumerate().map(move |of| (size, of)))
        {
            for (l, layout) in Layout::ALL.into_iter().enumerate() {
                let gemm = Gemm::new(m, n, k).of(dtype).layout(layout);
                let with_all = (s + t) % Layout::ALL.len() == l;
                lowered[l] += usize::from(with_all);
                for target in [Target::sm_70(), Target::sm_80(), Target::sm_90a()] {
                    assert!(recommend(&gemm, &target).is_ok(), "{gemm:?}");
                    if with_all && (s + t == 0 || drawn(&format!("largest {gemm:?} {target}"), 5)) {
                        assert!(candidates(&gemm, &target).is_ok(), "{gemm:?}");
                        assert!(Kind::Simt.schedule(&gemm, &target).is_ok(), "{gemm:?}");
                    }
                }
            }
        }
        // Each layout has its turn with several sizes and types.
        assert!(lowered.iter().all(|n| *n >= 3), "{lowered:?}");
    }
}
