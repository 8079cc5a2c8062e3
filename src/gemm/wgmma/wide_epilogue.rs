//! Products whose accumulators are C's own elements, of 32 bits: of bytes, and of 16-bit floats. (Accumulators of 16 bits leave as what is
//! converted to them does.)
//!
//! Lanes have pairs of neighbours, which no instruction puts together. They go into shared memory as pairs, 32 columns at a time,
//! and leave from there in whole rows of 128 bytes.

use super::{Mma, STORE_BYTES, Wgmma, bytes};
use crate::dtype::Class;
use crate::gemm::work::passes;
use crate::target::Target;
use crate::te::GemmSpec;
use std::fmt::Write as _;

impl Wgmma {
    /// Whether it is taken to be faster than the recipe for mma.sync. Small products of bytes have tiles there that this one has
    /// not, and parts of their accumulators on blocks of their own.
    pub fn pays(&self, spec: &GemmSpec, target: &Target) -> bool {
        let Some(other) = Mma::choose(spec, target).filter(|_| spec.a.class() != Class::Float) else { return true };
        // What packs the operands is the same.
        let before = passes(&Mma { parts: 1, ..other }.work(spec, target), &target.device());
        self.cycles(spec, target) + before < other.cycles(spec, target)
    }

    /// From the accumulators to C.
    pub(super) fn wide_epilogue(&self, spec: &GemmSpec) -> String {
        let grows = self.grows(spec);
        let c = if grows { "C_pad" } else { "C" };
        let inlined = if grows { "reverse_compute_inline C_pad\n" } else { "" };
        if !self.bulk_store && !grows {
            return format!("cache_write C {c} fragment -> C_f; reverse_compute_at C_f iw\n");
        }
        let mut out = format!(
            "cache_write C {c} shared -> C_s; cache_write C C_s fragment -> C_f\n\
             reverse_compute_at C_f iw -> e0 en; split en ? {} -> ep e1; reorder ep e0 e1\n",
            STORE_BYTES / bytes(spec.out)
        );
        if self.swizzle > 0 {
            let _ = writeln!(out, "swizzle C_s {}", self.swizzle.min(STORE_BYTES));
        }
        out + &self.stored("ep") + inlined
    }
}
