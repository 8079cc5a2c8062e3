//! Which threads run a statement: kernels of a program, blocks, bound loops, warps and warpgroups, rasterized and persistent
//! grids, reductions across threads, and the conditions that remain.

pub mod bind;
pub mod blocks;
pub mod clip;
pub mod cross_thread;
pub mod grid;
pub mod guards;
pub mod kernels;
pub mod units;
pub mod walks;
