//! Warp-specialized roles whose warps do not all have work, and consumers that keep a whole stage in registers.

use warploom::error::{Code, Fault};
use warploom::lower::{Lowered, lower, print};
use warploom::sim::mutate::{Mutant, mutants};
use warploom::sim::{Mode, Options, Policy, integers_with, naive_integers};
use warploom::{Error, Schedule};

/// Blocks of 1024 sums of three neighbours, in tiles of 128 that a role copies.
fn window(copies: &str) -> Schedule {
    let text = format!(
        "window_sum 2048
        target sm_90a
        split i ? 8 128 -> i_0 i_t i_1; bind i_0 blockIdx.x; bind i_1 threadIdx.x
        cache_read C A shared -> A_s; compute_at A_s i_t -> ax
        pipeline i_t stages=3
        {copies}"
    );
    Schedule::parse(&text).unwrap_or_else(|e| panic!("{text}\n{e}"))
}

fn lowered(schedule: &Schedule) -> Result<Lowered, Error> {
    lower(&schedule.scheduled()?, &schedule.target)
}

/// The kernels as text, after they have computed what the program means in every order of warps.
fn run(schedule: &Schedule) -> String {
    let lowered = lowered(schedule).unwrap_or_else(|e| panic!("{schedule}\n{e}"));
    let naive = naive_integers(&schedule.program, 3).unwrap();
    for policy in [Policy::InOrder, Policy::Reverse, Policy::Random(3)] {
        let options = Options::new(Mode::Integer).with_policy(policy);
        let found = integers_with(&lowered, &options, 3).unwrap_or_else(|e| panic!("{schedule}\n{policy:?}: {e}"));
        assert!(found == naive, "{schedule}\n{policy:?}");
    }
    print(&lowered)
}

/// Threads without an iteration of the role's loops copy nothing; they wait, commit and arrive like the others.
#[test]
fn a_role_may_have_more_threads_than_its_loops() {
    for (copies, guard) in [
        ("specialize A_s -> load warps=4; split ax ? 32 -> a0 a1; bind a1 threadIdx.x", "if threadIdx.x < 32"),
        ("specialize A_s -> load warps=2; split ax ? 48 -> a0 a1; bind a1 threadIdx.x", "if threadIdx.x < 48"),
        ("specialize A_s -> load warps=4 regs=40; split ax ? 65 -> a0 a1; bind a1 threadIdx.x", "if threadIdx.x < 65"),
        (
            "specialize A_s -> load warps=4; split ax ? 3 16 -> a0 a1 a2; bind a1 threadIdx.y; bind a2 threadIdx.x",
            "if threadIdx.x // 16 < 3",
        ),
        ("specialize A_s -> load warps=4; split ax ? 2 -> a0 a1; bind a1 warp", "if threadIdx.x // 32 < 2"),
        (
            "specialize A_s -> load warps=2; split ax ? 32 -> a0 a1; bind a1 threadIdx.x; unroll a0; copy_with A_s cp_async",
            "if threadIdx.x < 32",
        ),
    ] {
        let text = run(&window(copies));
        let role = &text[text.find("role load, warps").unwrap()..];
        assert!(role.lines().any(|l| l.trim().starts_with(guard)), "{copies}\n{text}");
        // Every thread of the role waits, commits and arrives: the guard is around copies alone.
        let (lines, depth): (Vec<&str>, _) = (role.lines().collect(), |l: &str| l.len() - l.trim_start().len());
        for (n, line) in lines.iter().enumerate().filter(|(_, l)| l.trim().starts_with(guard)) {
            let mut inside = lines[n + 1..].iter().take_while(|l| depth(l) > depth(line)).peekable();
            assert!(inside.peek().is_some(), "{text}");
            assert!(inside.all(|l| !l.contains("mbarrier.") && !l.contains("commit")), "{copies}\n{text}");
        }
    }
}

/// A guard that lets an idle thread copy, or keeps a thread from its element, is found.
#[test]
fn wrong_guards_of_idle_threads_are_found() {
    let schedule = window("specialize A_s -> load warps=2; split ax ? 32 -> a0 a1; bind a1 threadIdx.x");
    let (lowered, naive) = (lowered(&schedule).unwrap(), naive_integers(&schedule.program, 3).unwrap());
    let of_idle = |m: &Mutant| m.kind.starts_with("guard") && m.what.contains("threadIdx.x < 32");
    let mutants: Vec<Mutant> = mutants(&lowered).into_iter().filter(of_idle).collect();
    assert!(mutants.len() >= 3, "{}", print(&lowered));
    for mutant in mutants {
        let found = integers_with(&mutant.lowered, &Options::new(Mode::Integer), 3);
        assert!(found.is_err() || found.unwrap() != naive, "{}", mutant.description());
    }
}

/// A role whose threads all have an iteration has no guard.
#[test]
fn a_role_without_idle_threads_has_no_guard() {
    let text = run(&window("specialize A_s -> load warps=2; split ax ? 64 -> a0 a1; bind a1 threadIdx.x"));
    let role = &text[text.find("role load, warps").unwrap()..];
    assert!(!role.contains("threadIdx.x < 64"), "{text}");
}

/// One thread copies where no loop is bound, and the other warps of the role only wait and arrive.
#[test]
fn warps_without_a_copy_still_arrive() {
    let text = run(&window("specialize A_s -> load warps=8"));
    assert!(text.contains("mbarrier A_s_full[3] @1584: a phase ends with 256 arrivals"), "{text}");
}

#[test]
fn roles_without_whole_warps_are_refused() {
    let no = |schedule: &Schedule, message: &str| {
        let error = lowered(schedule).unwrap_err();
        assert_eq!((error.fault(), error.code()), (Fault::Input, Code::LowerRole), "{error}");
        assert!(error.message().contains(message), "{error}");
    };
    let wide = "specialize A_s -> load warps=1; split ax ? 64 -> a0 a1; bind a1 threadIdx.x";
    no(&window(wide), "role load has 1 warp, 32 threads, but its loops are bound to 64 threads");
    let uneven =
        "specialize A_s -> load warps=2; split ax ? 2 24 -> a0 a1 a2; bind a1 threadIdx.y; bind a2 threadIdx.x";
    no(&window(uneven), "24 threads of the faster loops of role load do not divide its 64 threads");
    let warps = "specialize A_s -> load warps=2; split ax ? 4 -> a0 a1; bind a1 warp";
    no(
        &window(warps),
        "loop a1, which divides the staged buffers of role load, is bound to 4 warps, but the role has 2 warps",
    );
    let consumers = window("specialize A_s -> load warps=1").to_string().replace("split i ? 8 128", "split i ? 8 48");
    let consumers = Schedule::parse(&consumers).unwrap();
    no(&consumers, "the consumers have 48 threads, but roles divide a block into whole warps");
}

/// `A_f` at `k0`, the loop of the role's ring: it has no stages. Each iteration loads the whole tile into registers after its wait.
const IN_REGISTERS: &str = "gemm 256x128x320 f16>f32>f16 NT
target sm_90a
split i ? 2 64 -> i0 iw im; split j ? 64 -> j0 jn; split k ? 4 16 -> k0 kk ki
reorder i0 j0 iw k0 kk im jn ki
bind i0 blockIdx.y; bind j0 blockIdx.x; bind iw warpgroup
cache_read mma A shared -> A_s; cache_read mma A_s fragment -> A_f
compute_at A_f k0; compute_at A_s k0
cache_read mma B shared -> B_s; compute_at B_s k0
set_scope acc fragment; reverse_compute_at out iw
tensorize im wgmma_rs.m64n64k16.f32.f16.f16 m=im n=jn k=ki
swizzle A_s B_s 128; copy_with A_s tma; copy_with B_s tma
pipeline k0 stages=4 in_flight=1
specialize A_s B_s -> load warps=4 regs=40
";

#[test]
fn consumers_may_keep_a_whole_stage_in_registers() {
    for text in [
        IN_REGISTERS.to_string(),
        IN_REGISTERS.replace(" in_flight=1", ""),
        IN_REGISTERS.replace(" regs=40", "").replace("warps=4", "warps=1"),
        // Without a role the ring is the consumers' own.
        IN_REGISTERS.lines().filter(|l| !l.starts_with("specialize")).map(|l| format!("{l}\n")).collect(),
    ] {
        let lowered = run(&Schedule::parse(&text).unwrap());
        // Registers of one tile: 64 x 64 elements of a warpgroup, 32 a thread.
        assert!(lowered.contains("A_f: local f16[32]"), "{lowered}");
        let at = |what: &str| lowered.rfind(what).unwrap_or_else(|| panic!("{what}\n{lowered}"));
        assert!(at("mbarrier.wait A_s_full") < at("] = A_s["), "{lowered}");
    }
}

/// The consumers release a stage when its fragments are in registers and no MMA reads B from it.
#[test]
fn a_stage_that_registers_hold_is_released_after_its_last_reader() {
    let lowered = run(&Schedule::parse(&IN_REGISTERS.replace(" in_flight=1", "")).unwrap());
    let at = |what: &str| lowered.find(what).unwrap_or_else(|| panic!("{what}\n{lowered}"));
    let fence = "proxy_fence  # WAR A_s, B_s: generic reads are complete";
    let order = ["] = A_s[", "wgmma_rs.", "wgmma_wait 0", fence, "mbarrier.arrive A_s_empty"].map(at);
    assert!(order.is_sorted(), "{lowered}");
}
