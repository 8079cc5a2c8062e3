//! Results of 32 or 8 bits: the accumulators themselves, or what an epilogue makes of them. (Accumulators of 16 bits leave as what is
//! converted to them does.)
//!
//! Lanes have pairs of neighbours, which no instruction puts together. They go into shared memory as pairs, 32 columns of 32 bits at a
//! time, and leave from there in whole rows of 128 bytes.

use super::{Accumulators, STORE_BYTES, Wgmma, bytes};
use crate::ir::Scope;
use crate::schedule::Steps;
use crate::te::GemmSpec;

impl Wgmma {
    /// From the accumulators to C.
    pub(super) fn wide_epilogue(&self, s: &mut Steps, spec: &GemmSpec) {
        let padding = self.padding(spec);
        if !self.stores_by_tma() && !padding.pads_result() {
            s.cache_write("C", padding.written(), Scope::Fragment, "C_f")
                .reverse_compute_at("C_f", self.warpgroup_loop());
            if self.rows_in_registers {
                self.reorder_rows(s, spec, "C_f");
            }
            return;
        }
        let stored = self.staged_result(s, spec);
        let columns = self.store_columns(spec);
        s.reverse_compute_at(stored, "iw").made(["e0", "en"]);
        s.split("en", [columns], ["ep", "e1"]).reorder(["ep", "e0", "e1"]);
        if self.swizzle > 0 && columns * bytes(spec.out) == STORE_BYTES {
            s.swizzle("C_s", self.swizzle.min(STORE_BYTES));
        }
        self.store_tile(s, spec, "ep");
        padding.crop(s);
        if self.rows_in_registers {
            self.reorder_rows(s, spec, stored);
        }
    }

    /// Stages C in shared memory; the block that takes the accumulators there.
    pub(super) fn staged_result(&self, s: &mut Steps, spec: &GemmSpec) -> &'static str {
        let padding = self.padding(spec);
        if Accumulators::of(spec).converts() {
            s.set_scope(padding.converted(), Scope::Fragment);
            s.cache_write("out", padding.written(), Scope::Shared, "C_s");
            return "out";
        }
        s.cache_write("C", padding.written(), Scope::Shared, "C_s").cache_write("C", "C_s", Scope::Fragment, "C_f");
        "C_f"
    }
}
