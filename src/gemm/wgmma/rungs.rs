//! The ladder of products by wgmma: subsets of the recipe's parts, from the least that multiplies up to all of them, each with
//! one part more than the one below.

use super::{Epilogue, Wgmma, bytes, room};
use crate::error::Result;
use crate::gemm::{Gemm, Product, schedule};
use crate::loom::Schedule;
use crate::target::Target;

/// A subset of the parts.
#[derive(Debug, Clone, Copy)]
pub struct Rung {
    /// In a word or two.
    pub name: &'static str,
    /// What it has that the rung below has not.
    pub adds: &'static str,
    /// The parts. A GEMM whose operands or result TMA cannot copy keeps the parts that need no TMA.
    pub parts: Wgmma,
}

/// The least: a tile of 64 x 64, one stage, everything in turn.
const LEAST: Wgmma = Wgmma {
    block: [64, 64],
    warpgroups: 1,
    stages: 1,
    in_flight: 0,
    cluster: [1, 1],
    raster_group: 0,
    persistent: false,
    producer: false,
    epilogue: Epilogue::Direct,
    out_stages: 1,
    ..Wgmma::LARGE
};
const TILES: Wgmma = Wgmma { block: [128, 128], warpgroups: 2, ..LEAST };
const SLOTS: Wgmma = Wgmma { stages: 4, ..TILES };
const IN_FLIGHT: Wgmma = Wgmma { in_flight: 1, ..SLOTS };
const WIDE: Wgmma = Wgmma { block: [128, 256], ..IN_FLIGHT };
const ROLES: Wgmma = Wgmma { producer: true, ..WIDE };
const PERSISTENT: Wgmma = Wgmma { persistent: true, ..ROLES };
const RASTERIZED: Wgmma = Wgmma { raster_group: 8, ..PERSISTENT };
const STORED: Wgmma = Wgmma { epilogue: Epilogue::Tma, ..RASTERIZED };
const OVERLAPPED: Wgmma = Wgmma { out_stages: 2, ..STORED };

const fn rung(name: &'static str, adds: &'static str, parts: Wgmma) -> Rung {
    Rung { name, adds, parts }
}

/// From the ground up.
pub const RUNGS: [Rung; 11] = [
    rung("wgmma", "A and B read from shared memory: 64 x 64 a block, a TMA load of each into one stage", LEAST),
    rung("tiles", "128 x 128 a block of two warpgroups", TILES),
    rung("stages", "a ring of four stages, loaded ahead", SLOTS),
    rung("in flight", "wgmmas in flight while the next are issued", IN_FLIGHT),
    rung("wide", "128 x 256 a block", WIDE),
    rung("roles", "a producer warpgroup for the copies, its registers for the consumer warps", ROLES),
    rung("persistent", "as many blocks as fit loop over the tiles; the ring continues across tiles", PERSISTENT),
    rung("rasterized", "tiles in raster groups of eight rows", RASTERIZED),
    rung("bulk store", "C through shared memory, by TMA stores", STORED),
    rung(
        "overlapped",
        "two stages of C: a TMA store overlaps the next part of the epilogue and the next tile",
        OVERLAPPED,
    ),
    rung("cluster", "two blocks share a tile of B, by multicast", Wgmma::LARGE),
];

impl Rung {
    /// The schedule for a product of a type that the recipe has.
    ///
    /// # Errors
    /// The product cannot be built.
    pub fn schedule(&self, gemm: &Gemm, target: &Target) -> Result<Schedule> {
        let suited = Wgmma::of(gemm.spec(), self.parts.block, self.parts.warpgroups, target);
        let epilogue = if self.parts.stores_by_tma() { suited.epilogue } else { self.parts.epilogue };
        let mut parts = Wgmma { routes: suited.routes, bk: suited.bk, epilogue, ..self.parts };
        // Tiles that reach beyond C leave through shared memory, beside the stages of a role that runs on.
        let tile = if parts.grows(gemm.spec()) && !parts.stores_by_tma() && parts.producer {
            bytes(gemm.spec().out) * parts.block[0] * parts.block[1]
        } else {
            0
        };
        while parts.stages > 2 && parts.shared(gemm.spec()) + tile > room(target) {
            parts.stages -= 1;
        }
        if parts.stages == 2 {
            // A stage that products in flight still read is none to copy to.
            parts.in_flight = 0;
        }
        schedule(&Product::of_gemm(gemm)?, target, parts.steps(gemm.spec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::lower::lower;
    use crate::te::Layout;

    #[test]
    fn every_rung_lowers_in_every_layout() {
        let target = Target::sm_90a();
        let sizes = [[4096; 3], [1000, 1000, 1000], [130, 264, 72], [256, 512, 192]];
        let cases = Layout::ALL.into_iter().zip(sizes).flat_map(|case| [(case, DType::F16), (case, DType::S8)]);
        for ((layout, size), dtype) in cases {
            let gemm = Gemm::new(size[0], size[1], size[2]).of(dtype).layout(layout);
            let mut below = None;
            for rung in RUNGS {
                let schedule = rung.schedule(&gemm, &target).unwrap();
                let name = format!("{} {size:?} {}", rung.name, layout.name());
                let func = schedule.scheduled().unwrap_or_else(|e| panic!("{name}: {e}"));
                lower(&func, &target).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert!(below.as_ref() != Some(&schedule.steps), "{name}");
                below = Some(schedule.steps);
            }
        }
    }
}
