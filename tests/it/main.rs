//! The one test binary: text cases, differential runs, the machine, ptxas, the GPU, and the tree itself.

mod cases;
mod differential;
mod gpu;
mod lower;
mod machine;
mod ptxas;
mod tidy;
