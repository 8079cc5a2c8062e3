//! Where data is: TMA boxes, fragments in the registers of a warp, the shared memory of a cluster's blocks, flat buffers, vectors, cp.async copies, and the plan of
//! shared memory.

pub mod bulk;
pub mod compact;
pub mod copies;
pub mod flatten;
pub mod fragments;
pub mod narrow;
pub mod peers;
pub mod plan;
pub mod registers;
pub mod vectors;
