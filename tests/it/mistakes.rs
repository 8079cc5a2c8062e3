//! Mistakes that one can make with the worked example: each is refused, as the user's or the chip's, with what it concerns
//! underlined and something to try.

use warploom::error::Code;
use warploom::loom::Schedule;
use warploom::{Error, Fault};

/// The worked example with words replaced, one pair after the other.
fn refusal(changes: &[(&str, &str)]) -> Error {
    let text = std::fs::read_to_string("examples/worked_example.loom").unwrap();
    let changed = changes.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "nothing is `{from}`");
        text.replace(from, to)
    });
    let made = Schedule::parse(&changed).and_then(|s| Ok((s.scheduled()?, s.target)));
    let lowered = made.and_then(|(func, target)| warploom::lower::lower(&func, &target));
    lowered.err().unwrap_or_else(|| panic!("nothing refuses {changes:?}"))
}

/// A mistake: what is replaced, whose fault it is, its code, a place that is underlined, and what to try.
type Mistake<'a> = (&'a [(&'a str, &'a str)], Fault, &'a str, &'a str, &'a str);

const PIPELINE: &str = "pipeline k0 stages=4 in_flight=1";
const ROLE: &str = "-> load warps=4 regs=40";

const MISTAKES: &[Mistake] = &[
    (&[("bind ic cluster; ", "")], Fault::Input, "lower.multicast", "ic", "bind ic cluster"),
    (&[(ROLE, "-> load warps=4 regs=200")], Fault::Input, "lower.registers", "A_s", "regs=24 to regs=40"),
    (&[(ROLE, "-> load warps=16 regs=240")], Fault::Input, "lower.registers", "B_s", "state fewer registers"),
    (&[(ROLE, "-> load warps=3 regs=40")], Fault::Input, "lower.registers", "A_s", "a multiple of 4 warps"),
    (&[(PIPELINE, "pipeline k0 stages=2 in_flight=1")], Fault::Input, "lower.pipeline", "k0", "stages=3"),
    (&[("copy_with B_s tma multicast=ic; ", "")], Fault::Input, "lower.role", "B_s", "one kind of copy"),
    (&[("sm_90a", "sm_90")], Fault::Chip, "admit.role", "A_s", "remove regs="),
    (&[("sm_90a", "sm_75"), (" regs=40", "")], Fault::Chip, "admit.role", "B_s", "remove the step"),
    (&[("tile blockIdx.x", "tile blockIdx.y")], Fault::Input, "bind.7", "tile", "bind tile blockIdx.x persistent"),
    (&[("bind iw warpgroup", "bind iw warp pingpong")], Fault::Input, "bind.7", "iw", "bind iw warpgroup pingpong"),
    (&[("rasterize i0 j0", "rasterize j0 i0")], Fault::Input, "rasterize.1", "i0", "reorder j0 i0"),
    (&[("rasterize i0", "bind j0 blockIdx.y; rasterize i0")], Fault::Input, "rasterize.2", "j0", "rasterize first"),
    (&[("group=8", "group=0")], Fault::Input, "rasterize.4", "i0", "group=8"),
    (&[("split k ? 4", "split k ? 2")], Fault::Input, "lower.bulk_swizzle", "A_s", "swizzle A_s 64"),
    (&[("split k ? 4", "split k ? 1")], Fault::Input, "lower.bulk_swizzle", "A_s", "swizzle A_s 32"),
    (
        &[("[i 4096, j 4096]", "[i 4100, j 4096]"), ("A f16[4096", "A f16[4100")],
        Fault::Input,
        "tensorize.3",
        "im",
        "pad mma L=256",
    ),
];

#[test]
fn mistakes_in_the_worked_example_say_whose_they_are_and_what_to_try() {
    for (changes, fault, code, place, help) in MISTAKES {
        let error = refusal(changes);
        assert_eq!((error.fault(), error.code().to_string().as_str()), (*fault, *code), "{changes:?}: {error}");
        let text = error.source_text().unwrap_or_default();
        let places: Vec<&str> = error.labels().iter().filter_map(|l| text.get(l.span.clone())).collect();
        assert!(places.iter().any(|p| p.trim() == *place), "{places:?} are underlined: {error}");
        assert!(error.helps().iter().any(|h| h.contains(help)), "{error}");
    }
}

#[test]
fn a_role_keeps_registers_that_the_others_have_too() {
    let text = std::fs::read_to_string("examples/worked_example.loom").unwrap();
    let lowered = |regs: u32, blocks: u32| {
        let text = text.replace("regs=40", &format!("regs={regs}")) + &format!("\nlaunch tile min_blocks={blocks}\n");
        let s = Schedule::parse(&text).unwrap();
        warploom::lower::lower(&s.scheduled().unwrap(), &s.target)
    };
    // 384 threads have 168 each; where a multiprocessor has two blocks, 80. More than the block has would be waited for without an end.
    for (blocks, regs) in [(1, 168), (2, 80)] {
        assert!(lowered(regs, blocks).is_ok());
        assert_eq!(lowered(regs + 8, blocks).unwrap_err().code(), Code::LowerRegisters);
    }
    let consumers = |blocks| {
        lowered(24, blocks).unwrap().kernels[0].func.body.iter().find_map(|s| match s {
            warploom::ir::Stmt::Role(r) if r.role.is_none() => r.regs,
            _ => None,
        })
    };
    assert_eq!([consumers(1), consumers(2)], [Some(240), Some(104)]);
}

#[test]
fn what_the_kernel_writes_is_not_copied_ahead() {
    let text = "gemm 64x64x64 f32 NN
        target sm_80
        split i ? 8 -> i0 i1; split k ? 8 -> k0 k1; reorder i0 k0 i1 j k1; bind i0 blockIdx.x
        cache_read C A shared -> A_s; compute_at A_s i0; cache_read C A_s shared -> A_t; compute_at A_t k0
        pipeline k0 stages=2";
    let s = Schedule::parse(text).unwrap();
    let error = warploom::lower::lower(&s.scheduled().unwrap(), &s.target).unwrap_err();
    assert_eq!((error.fault(), error.code()), (Fault::Input, Code::LowerPipeline), "{error}");
    assert!(error.message().ends_with("writes what A_t is filled from") && error.labels().len() > 1, "{error}");
    assert!(error.helps().iter().any(|h| h.contains("compute_at STAGE k0")), "{error}");
}
