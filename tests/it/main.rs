//! The one test binary: text cases, differential runs, the simulator, ptxas, the GPU, and the tree itself.

/// The tests allocate much, on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod addresses;
mod analysis;
mod artifacts;
mod auto;
mod bit_products;
mod bits;
mod block_scales;
mod book;
mod bulk;
mod cache_commands;
mod cases;
mod ceilings;
mod chained_roles;
mod cli;
mod codegen;
mod convolutions;
mod copies;
mod decided;
mod dependent;
mod dependent_launch;
mod differential;
mod door;
mod driver;
mod dynamic;
mod editors;
mod elements;
mod epilogues;
mod examples;
mod float8;
mod float8_sums;
mod format;
mod functions;
mod gemms;
mod gpu;
mod grids;
mod halves;
mod handmade;
mod hopper;
mod hostile;
mod instructions;
mod invariant;
mod kills;
mod launchers;
mod lines;
mod looking;
mod lower;
mod mistakes;
mod mutation;
mod oracle;
mod page;
mod pairs;
mod pictures;
mod pingpong;
mod programs;
mod ptx;
mod ptx_faults;
mod ptxas;
mod quantized;
mod reach;
mod recommended;
mod reductions;
mod register_prefetch;
mod replicated_fragments;
mod roles;
mod run_artifact;
mod sample;
mod scan;
mod schedules;
mod sim;
mod skew;
mod streamed;
mod sweep;
mod tensor;
mod terminal;
mod thin;
mod tidy;
mod transposed_bytes;
mod tune;
mod unaligned_loads;
mod validate;
mod warpgroup;
mod wide_results;
mod widened;
mod wmma_fragments;

// Never compiled here, where its symbols would stand in for the driver's: named so that it is formatted with the rest.
#[cfg(any())]
#[path = "../mock-driver/lib.rs"]
mod mock_driver;
