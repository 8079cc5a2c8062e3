//! The same counts of the compiled program: the PTX of a kernel, with its warps followed through loops and branches.
//!
//! This is what is left of the lowered program's accesses when neighbours were merged, equal values loaded once, and loads
//! taken out of loops. Only addresses, predicates and branches are computed (`warp`); data are not. Every warp of
//! some blocks is followed; the others are taken to do what the followed block nearest to them along each axis does.

mod flow;
mod kinds;
mod live;
mod parse;
mod tile;
mod warp;

use super::report::Compiled;
use super::request::{self, LANES, Lanes, SECTOR, WORD};
use super::traffic::{RequestKind, Traffic};
use parse::{Entry, Space, What};
use std::collections::BTreeMap;
use warp::{Lost, Observer, Warp, WarpPosition};

/// Bytes between the addresses of a request, so that no sum of them overflows.
const FARTHEST: i64 = 1 << 60;
/// Instructions of warps that are followed in a kernel.
const MOST_STEPS: u64 = 1 << 25;

/// The warps of a block that a role has, by its name.
pub type Role = (String, std::ops::Range<u64>);

/// The counts of an entry point of a module, launched with a grid of blocks in clusters of so many along x; `None` if there
/// is no such entry. Instructions count for the first role that has their warp.
pub fn count(ptx: &str, entry: &str, [grid, block]: [[u32; 3]; 2], cluster: u32, roles: &[Role]) -> Option<Compiled> {
    let entries = parse::entries(ptx);
    let entry = entries.iter().find(|e| e.name == entry)?;
    let target = ptx.split_once(".target sm_").map_or("", |(_, after)| after);
    let sm = target.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()).unwrap_or(0);
    Some(follow(entry, [grid, block], cluster.max(1), (roles, sm)))
}

fn follow(entry: &Entry, launch: [[u32; 3]; 2], cluster: u32, (roles, sm): (&[Role], u32)) -> Compiled {
    let [grid, block] = launch.map(|extents| extents.map(|n| n.max(1)));
    let kernel = Kernel { entry, meetings: flow::meetings(entry), grid, block, cluster, roles, sm };
    let blocks = grid.iter().fold(1, |n: u64, e| n.saturating_mul(u64::from(*e)));
    let live_registers = live::most(entry);
    match kernel.launch() {
        Ok((sums, blocks_followed)) => {
            let (traffic, machine_code) = (Some(sums.traffic), sums.machine_code);
            Compiled { live_registers, blocks, blocks_followed, traffic, machine_code, why: None }
        }
        Err(why) => {
            let machine_code = BTreeMap::new();
            Compiled { live_registers, blocks, blocks_followed: 0, traffic: None, machine_code, why: Some(why) }
        }
    }
}

/// A kernel with its launch.
struct Kernel<'e> {
    entry: &'e Entry,
    meetings: Vec<usize>,
    grid: [u32; 3],
    block: [u32; 3],
    cluster: u32,
    roles: &'e [Role],
    /// The chip's compute capability, times ten.
    sm: u32,
}

/// What warps did.
#[derive(Debug, Clone, Default)]
struct Sums {
    traffic: Traffic,
    /// Instructions of warps by role and by what ptxas makes of them.
    machine_code: BTreeMap<String, BTreeMap<&'static str, u64>>,
}

impl Sums {
    fn add(&mut self, other: &Sums, times: u64) {
        self.traffic.add(&other.traffic, times);
        for (role, kinds) in &other.machine_code {
            let sums = self.machine_code.entry(role.clone()).or_default();
            for (kind, n) in kinds {
                let sum = sums.entry(kind).or_default();
                *sum = sum.saturating_add(n.saturating_mul(times));
            }
        }
    }
}

impl Kernel<'_> {
    /// The sums of all blocks, and how many of them were followed.
    fn launch(&self) -> Result<(Sums, u64), Lost> {
        // One block says how long the others take.
        let mut steps = MOST_STEPS;
        let first = self.block([0; 3], &mut steps)?;
        let chosen = choose(self.grid, MOST_STEPS / (MOST_STEPS - steps).max(1));
        let mut all = Sums::default();
        for (at, weight) in &chosen {
            match at {
                [0, 0, 0] => all.add(&first, *weight),
                at => all.add(&self.block(*at, &mut MOST_STEPS.clone())?, *weight),
            }
        }
        Ok((all, chosen.len() as u64))
    }

    /// Warps of a block.
    fn warps(&self) -> u32 {
        self.block.iter().fold(1u32, |n, e| n.saturating_mul(*e)).min(1024).div_ceil(LANES as u32)
    }

    /// The sums of one block.
    fn block(&self, at: [u32; 3], steps: &mut u64) -> Result<Sums, Lost> {
        let code = &self.entry.code;
        let mut counted = Counted {
            entry: self.entry,
            kinds: code.iter().map(|i| kinds::machine_code(&i.op, self.sm)).collect(),
            sums: Sums::default(),
            role: String::new(),
            last: vec![None; code.len()],
        };
        for warp in 0..self.warps() {
            let role = self.roles.iter().find(|(_, warps)| warps.contains(&u64::from(warp)));
            counted.role = role.map_or("all", |(name, _)| name).to_string();
            let place = WarpPosition { block: at, grid: self.grid, cluster: self.cluster, threads: self.block, warp };
            Warp::new(self.entry, &self.meetings, place).run(steps, &mut counted)?;
        }
        Ok(counted.sums)
    }
}

/// Blocks to follow, with how many each represents: along each axis the first, some between, the last.
fn choose(grid: [u32; 3], affordable: u64) -> Vec<([u32; 3], u64)> {
    let wide = grid.iter().filter(|n| **n > 1).count() as u32;
    // Along one axis alone there may be a walk in two dimensions.
    let wanted: u64 = if wide == 1 { 9 } else { 3 };
    let each = (1..=wanted).rev().find(|n| n.pow(wide) <= affordable).unwrap_or(1);
    let along = |n: u32| -> Vec<(u32, u64)> {
        let count = u64::from(n).min(each);
        let last = u64::from(n) - 1;
        let at: Vec<u64> = (0..count).map(|i| if count == 1 { last / 2 } else { i * last / (count - 1) }).collect();
        // The first and the last represent themselves; those between share the rest.
        let inner = count.saturating_sub(2);
        let weight = |i: u64| match (count, inner) {
            (1, _) => u64::from(n),
            (2, _) if i == 0 => u64::from(n) - 1,
            _ if i == 0 || i == count - 1 => 1,
            _ => (u64::from(n) - 2) / inner + u64::from((i - 1) < (u64::from(n) - 2) % inner),
        };
        at.into_iter().zip(0..).map(|(a, i)| (a as u32, weight(i))).collect()
    };
    let [x, y, z] = grid.map(along);
    let mut out = Vec::new();
    for (c, wc) in &z {
        for (b, wb) in &y {
            out.extend(x.iter().map(|(a, wa)| ([*a, *b, *c], wa * wb * wc)));
        }
    }
    out
}

/// Counting the warps of a block.
struct Counted<'e> {
    entry: &'e Entry,
    /// What each instruction becomes.
    kinds: Vec<Option<&'static str>>,
    sums: Sums,
    /// Of the warp that runs.
    role: String,
    /// The last request of each instruction. Most repeat.
    last: Vec<Option<Last>>,
}

/// A request and what it cost.
#[derive(Debug, Clone)]
struct Last {
    /// Its addresses, less a multiple of what matters.
    lanes: Lanes,
    /// What it does, and of how many bytes.
    what: (RequestKind, i64),
    cost: u64,
}

impl Counted<'_> {
    /// Wavefronts or sectors. A request that differs from the last one of the instruction by a multiple of what matters
    /// costs the same.
    fn cost(&mut self, at: usize, kind: RequestKind, bytes: i64, lanes: &Lanes) -> u64 {
        let period = if kind.shared { WORD } else { SECTOR };
        let origin = lanes.addresses().next().unwrap_or(0).div_euclid(period) * period;
        let mut relative = *lanes;
        for lane in 0..LANES {
            let far = lanes.at[lane].wrapping_sub(origin).clamp(-FARTHEST, FARTHEST);
            relative.at[lane] = if lanes.runs(lane) { far } else { 0 };
        }
        if let Some(last) = &self.last[at]
            && last.lanes == relative
            && last.what == (kind, bytes)
        {
            return last.cost;
        }
        let cost = if kind.shared {
            request::bank_conflicts(&relative, bytes, kind.write).wavefronts
        } else {
            request::sectors(&relative, bytes).touched
        };
        self.last[at] = Some(Last { lanes: relative, what: (kind, bytes), cost });
        cost
    }
}

impl Observer for Counted<'_> {
    fn instruction(&mut self, at: usize, running: u32) {
        let instruction = &self.entry.code[at];
        let fma = matches!(instruction.what, What::Fma { .. });
        let traffic = &mut self.sums.traffic;
        traffic.instructions += 1;
        traffic.fma_instructions += u64::from(fma);
        traffic.fma += if fma { u64::from(running.count_ones()) } else { 0 };
        if running == 0 {
            return;
        }
        traffic.tensor_instructions += u64::from(kinds::is_product(&instruction.op));
        traffic.bulk_loads += u64::from(instruction.what == What::Bulk { write: false });
        traffic.bulk_stores += u64::from(instruction.what == What::Bulk { write: true });
        if let Some(kind) = self.kinds[at] {
            let of_role = self.sums.machine_code.entry(self.role.clone()).or_default();
            *of_role.entry(kind).or_default() += 1;
        }
    }

    fn request(&mut self, at: usize, space: Space, write: bool, bytes: i64, lanes: &Lanes) {
        let asynchronous = matches!(self.entry.code[at].what, What::Copy { .. });
        let kind = RequestKind { shared: space == Space::Shared, write, asynchronous };
        let cost = self.cost(at, kind, bytes, lanes);
        self.sums.traffic.request(kind, 1, cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(body: &str, grid: [u32; 3], block: [u32; 3]) -> Compiled {
        let text = format!(".visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1) {{ {body} }}");
        count(&text, "k", [grid, block], 1, &[]).unwrap()
    }

    fn traffic(body: &str, grid: [u32; 3], block: [u32; 3]) -> Traffic {
        let compiled = counted(body, grid, block);
        compiled.traffic.unwrap_or_else(|| panic!("{:?}", compiled.why))
    }

    /// Each thread's address in device memory in %rd1, 4 bytes apart.
    const ADDRESS: &str = "ld.param.u64 %rd9, [k_param_0];
        mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.s32 %r3, %r2, 64, %r1;
        mul.wide.u32 %rd8, %r3, 4; add.s64 %rd1, %rd9, %rd8;";

    #[test]
    fn loops_are_followed_and_wide_loads_are_one_request() {
        let t = traffic(
            &format!(
                "{ADDRESS} mov.u32 %r4, 0;
            L: ld.global.nc.f32 %f1, [%rd1+4];
                fma.rn.f32 %f2, %f1, %f1, %f2;
                add.s32 %r4, %r4, 1; setp.ne.s32 %p1, %r4, 5; @%p1 bra L;
                shl.b32 %r5, %r1, 4; cvt.u64.u32 %rd3, %r5; mov.u64 %rd4, shared_memory; add.s64 %rd5, %rd4, %rd3;
                ld.shared.v4.f32 {{%f3, %f4, %f5, %f6}}, [%rd5];
                st.shared.f32 [%rd5], %f3;
                ret;"
            ),
            [3, 1, 1],
            [64, 1, 1],
        );
        assert_eq!((t.global_load_requests, t.global_load_sectors), (3 * 2 * 5, 3 * 2 * 5 * 5));
        assert_eq!((t.shared_load_requests, t.shared_load_wavefronts), (6, 24));
        assert_eq!((t.shared_store_requests, t.shared_store_wavefronts), (6, 24));
        assert_eq!((t.fma_instructions, t.fma), (30, 30 * 32));
    }

    #[test]
    fn lanes_that_part_meet_again() {
        // Even lanes load, odd lanes load elsewhere, then all store together; half a warp at the end.
        let body = format!(
            "{ADDRESS} and.b32 %r4, %r1, 1; setp.eq.b32 %p1, %r4, 0;
            @%p1 bra A;
            ld.global.f32 %f1, [%rd1+4096];
            bra.uni B;
            A: ld.global.f32 %f1, [%rd1];
            B: st.global.f32 [%rd1], %f1;
            setp.gt.u32 %p2, %r1, 15;
            @!%p2 st.global.f32 [%rd1], %f1;
            ret;"
        );
        let t = traffic(&body, [1, 1, 1], [48, 1, 1]);
        assert_eq!((t.global_load_requests, t.global_load_sectors), (4, 4 + 4 + 2 + 2));
        assert_eq!((t.global_store_requests, t.global_store_sectors), (2 + 1, 4 + 2 + 2));
    }

    #[test]
    fn a_branch_to_an_earlier_place_meets_too() {
        // What follows the condition precedes it in the text.
        let body = format!(
            "{ADDRESS} setp.lt.u32 %p1, %r1, 8; bra.uni C;
            E: st.global.f32 [%rd1], %f1;
            ret;
            C: @%p1 bra E;
            ld.global.f32 %f1, [%rd1];
            bra.uni E;"
        );
        let t = traffic(&body, [1, 1, 1], [32, 1, 1]);
        assert_eq!((t.global_load_requests, t.global_store_requests), (1, 1));
        assert_eq!((t.global_load_sectors, t.global_store_sectors), (3, 4));
    }

    #[test]
    fn an_asynchronous_copy_reads_what_it_does_not_fill_with_zeros() {
        let body = format!(
            "{ADDRESS} cvt.u64.u32 %rd2, %r1; shl.b64 %rd3, %rd2, 4; ld.param.u64 %rd5, [k_param_1];
            add.s64 %rd4, %rd5, %rd3; setp.lt.u32 %p1, %r1, 8; selp.b32 %r5, 16, 0, %p1;
            cp.async.cg.shared.global [%rd3], [%rd4], 16, %r5;
            cp.async.commit_group; cp.async.wait_group 0; bar.sync 0; ret;"
        );
        let t = traffic(&body, [1, 1, 1], [32, 1, 1]);
        assert_eq!((t.global_load_requests, t.global_load_sectors), (1, 4));
        assert_eq!((t.shared_store_requests, t.shared_store_wavefronts), (1, 4));
        assert_eq!((t.copy_requests, t.copy_sectors, t.copy_wavefronts), (1, 4, 4));
    }

    #[test]
    fn what_cannot_be_followed_is_said() {
        let why = |body: &str| counted(body, [1; 3], [32, 1, 1]).why.unwrap();
        let loaded = format!("{ADDRESS} ld.global.u32 %r7, [%rd1];");
        let far = why(&format!("{loaded} mul.wide.u32 %rd3, %r7, 4; ld.global.f32 %f1, [%rd3]; ret;"));
        assert_eq!(far, "instruction 8 (ld.global.f32) depends on what instruction 6 (ld.global.u32) yields");
        let taken = why(&format!("{loaded} setp.eq.s32 %p1, %r7, 0; @%p1 bra E; E: ret;"));
        assert_eq!(taken, "instruction 8 (bra) depends on what instruction 6 (ld.global.u32) yields");
        assert_eq!(why("L: bra.uni L;"), "it runs too long to be followed");
        assert_eq!(
            why("mbarrier.complete_tx.shared.b64 [%r2], 8; ret;"),
            "mbarrier.complete_tx.shared.b64 is not followed"
        );
    }

    /// Two warps compute, one of which waits for what a lane of the third has copied.
    #[test]
    fn roles_run_their_own_instructions() {
        let body = "mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; shfl.sync.idx.b32 %r3, %r2, 0, 31, -1;
            setp.lt.u32 %p1, %r3, 2; @%p1 bra C;
            setmaxnreg.dec.sync.aligned.u32 24;
            { .reg .pred elected; elect.sync _|elected, 0xffffffff; selp.b32 %r4, 1, 0, elected; }
            setp.eq.s32 %p2, %r4, 0; @%p2 bra E;
            mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], 64;
            cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r8], [%rd1, {%r1, %r2}], [%r9];
            bra.uni E;
            C: { .reg .pred over; again: mbarrier.try_wait.parity.shared::cta.b64 over, [%r9], 0, 1000; @over bra done;
            bra again; done: }
            wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd2, %rd3, %p1, 1, 1, 0, 0;
            E: bar.sync 0; ret;";
        let text = format!(".target sm_90a\n.visible .entry k(.param .u64 k_param_0) {{ {body} }}");
        let roles = [("compute".to_string(), 0..2), ("load".to_string(), 2..3)];
        let all = count(&text, "k", [[5, 1, 1], [96, 1, 1]], 1, &roles).unwrap();
        let t = all.traffic.unwrap_or_else(|| panic!("{:?}", all.why));
        assert_eq!((t.bulk_loads, t.bulk_stores, t.tensor_instructions), (5, 0, 10));
        let of = |role: &str| all.machine_code[role].iter().map(|(k, n)| (*k, *n)).collect::<Vec<_>>();
        assert_eq!(of("compute"), [("BAR", 10), ("HGMMA", 10), ("SYNCS", 10)]);
        assert_eq!(of("load"), [("BAR", 5), ("ELECT", 5), ("SYNCS", 5), ("USETMAXREG", 5), ("UTMALDG", 5)]);
    }

    #[test]
    fn every_block_is_stood_for() {
        for grid in [[1, 1, 1], [2, 1, 1], [3, 5, 1], [17, 4, 9], [1, 1000, 1]] {
            for affordable in [1, 5, 9, 100] {
                let chosen = choose(grid, affordable);
                let total: u64 = chosen.iter().map(|(_, weight)| *weight).sum();
                assert_eq!(total, grid.iter().map(|n| u64::from(*n)).product::<u64>(), "{grid:?} {affordable}");
                assert!(chosen.len() as u64 <= affordable.max(1), "{grid:?} {affordable}");
                assert!(chosen.iter().all(|(at, w)| *w > 0 && at.iter().zip(grid).all(|(a, n)| *a < n)), "{grid:?}");
            }
        }
    }
}
