//! The one test binary: text cases, differential runs, the machine, ptxas, the GPU, and the tree itself.

mod cases;
mod cli;
mod codegen;
mod differential;
mod examples;
mod gpu;
mod handmade;
mod hostile;
mod lower;
mod machine;
mod mutation;
mod programs;
mod ptxas;
mod scan;
mod schedules;
mod tidy;
