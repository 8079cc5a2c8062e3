//! Special registers.

use super::inst::Special;
use super::warp::{LANES, Warp};
use super::world::World;

/// The value of a special register in a lane.
pub(in crate::sim::ptx) fn value(special: Special, warp: &Warp, world: &World, lane: usize) -> u64 {
    let thread = (warp.place * LANES + lane) as u32;
    let [x, y, z] = world.block;
    let pick = |values: [u32; 3], n: u8| values.get(n as usize).copied().unwrap_or(0);
    let tid = [thread % x, thread / x % y, thread / x / y % z.max(1)];
    let rank = warp.rank as u32;
    let [cx, cy, _] = world.cluster;
    let in_cluster = [rank % cx, rank / cx % cy, rank / cx / cy];
    let at = std::array::from_fn(|n| world.origin[n] + in_cluster[n]);
    let clusters = std::array::from_fn(|n| world.grid[n] / world.cluster[n]);
    let below = (1u64 << lane) - 1;
    u64::from(match special {
        Special::Tid(n) => pick(tid, n),
        Special::Ntid(n) => pick(world.block, n),
        Special::Ctaid(n) => pick(at, n),
        Special::Nctaid(n) => pick(world.grid, n),
        Special::ClusterId(n) => pick(std::array::from_fn(|n| world.origin[n] / world.cluster[n]), n),
        Special::NclusterId(n) => pick(clusters, n),
        Special::ClusterCtaid(n) => pick(in_cluster, n),
        Special::ClusterNctaid(n) => pick(world.cluster, n),
        Special::ClusterCtarank => rank,
        Special::ClusterNctarank => world.cluster.iter().product(),
        Special::LaneId => lane as u32,
        Special::WarpId => warp.place as u32,
        Special::LanemaskEq => 1 << lane,
        Special::LanemaskLt => below as u32,
        Special::LanemaskLe => (below << 1 | 1) as u32,
        Special::LanemaskGt => !((below << 1 | 1) as u32),
        Special::LanemaskGe => !(below as u32),
        Special::DynamicShared => world.shared_bytes,
    })
}
