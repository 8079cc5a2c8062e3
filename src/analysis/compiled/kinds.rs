//! The machine code that an instruction of PTX becomes, of the kinds that tell roles apart: copies, products, synchronisation.

/// The name in nvdisasm's listing for a chip (its compute capability times ten); `None` for an instruction of no such kind, and
/// where ptxas writes ordinary code for it (CUDA Binary Utilities, "Instruction Set Reference").
pub fn machine_code(op: &str, sm: u32) -> Option<&'static str> {
    let parts: Vec<&str> = op.split('.').collect();
    let types = || parts.iter().rev().take(2).copied();
    let integers = || types().all(|t| ["s8", "u8", "s4", "u4"].contains(&t));
    Some(match parts.as_slice() {
        ["wgmma", "mma_async", ..] if integers() => "IGMMA",
        ["wgmma", "mma_async", ..] if types().all(|t| ["e4m3", "e5m2"].contains(&t)) => "QGMMA",
        ["wgmma", "mma_async", .., "b1", "b1", "and", "popc"] => "BGMMA",
        ["wgmma", "mma_async", ..] => "HGMMA",
        ["cp", "async", "bulk", "tensor", _, "global", ..] => "UTMASTG",
        ["cp", "async", "bulk", "tensor", ..] => "UTMALDG",
        // Before, an mbarrier is a word that atomic operations count.
        ["mbarrier", ..] if sm < 90 => return None,
        ["mbarrier", ..] => "SYNCS",
        ["elect", ..] => "ELECT",
        ["setmaxnreg", ..] => "USETMAXREG",
        ["bar", "warp", ..] => return None,
        ["bar", ..] | ["barrier", "sync" | "arrive", ..] => "BAR",
        ["barrier", "cluster", "arrive", ..] => "UCGABAR_ARV",
        ["barrier", "cluster", "wait", ..] => "UCGABAR_WAIT",
        ["ldmatrix", ..] => "LDSM",
        ["stmatrix", ..] => "STSM",
        ["cp", "async", "ca" | "cg", ..] => "LDGSTS",
        _ => return None,
    })
}

/// Whether an instruction runs on the tensor cores.
pub fn is_product(op: &str) -> bool {
    op.starts_with("wgmma.mma_async.") || op.starts_with("mma.") || op.starts_with("wmma.mma.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_listing() {
        let of = |op| machine_code(op, 90).unwrap_or("-");
        assert_eq!(of("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16"), "HGMMA");
        assert_eq!(of("wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8"), "IGMMA");
        assert_eq!(of("wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e5m2"), "QGMMA");
        assert_eq!(of("wgmma.mma_async.sync.aligned.m64n128k256.s32.b1.b1.and.popc"), "BGMMA");
        assert_eq!(
            (of("bar.sync"), of("bar.warp.sync"), of("barrier.cluster.wait.aligned")),
            ("BAR", "-", "UCGABAR_WAIT")
        );
        assert_eq!((of("mbarrier.init.shared.b64"), machine_code("mbarrier.init.shared.b64", 80)), ("SYNCS", None));
        assert_eq!(of("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"), "UTMASTG");
        assert_eq!((of("cp.async.cg.shared.global"), of("cp.async.wait_group")), ("LDGSTS", "-"));
        assert!(is_product("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32") && !is_product("wgmma.fence.sync"));
    }
}
