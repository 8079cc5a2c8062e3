//! Products whose accumulators are C's own elements, of 32 bits: of bytes, and of 16-bit floats. (Accumulators of 16 bits leave as what is
//! converted to them does.)
//!
//! Lanes have pairs of neighbours, which no instruction puts together. They go into shared memory as pairs, 32 columns at a time,
//! and leave from there in whole rows of 128 bytes.

use super::{STORE_BYTES, Wgmma, bytes};
use crate::ir::Scope;
use crate::schedule::Steps;
use crate::te::GemmSpec;

impl Wgmma {
    /// From the accumulators to C.
    pub(super) fn wide_epilogue(&self, s: &mut Steps, spec: &GemmSpec) {
        let padding = self.padding(spec);
        if !self.stores_by_tma() && !padding.pads_result() {
            s.cache_write("C", padding.written(), Scope::Fragment, "C_f").reverse_compute_at("C_f", "iw");
            return;
        }
        s.cache_write("C", padding.written(), Scope::Shared, "C_s").cache_write("C", "C_s", Scope::Fragment, "C_f");
        s.reverse_compute_at("C_f", "iw").made(["e0", "en"]);
        s.split("en", [STORE_BYTES / bytes(spec.out)], ["ep", "e1"]).reorder(["ep", "e0", "e1"]);
        if self.swizzle > 0 {
            s.swizzle("C_s", self.swizzle.min(STORE_BYTES));
        }
        self.store_tile(s, spec, "ep");
        padding.crop(s);
    }
}
