//! The runtime against a driver without a GPU: launches, every error code, hangs and recovery (`tests/mock-driver`).

mod codes;
pub mod command;
mod dlpack;
mod execute;
mod hang;
pub mod interpret;
mod launch;
mod measure;
pub mod mock;
pub mod programs;
mod tune;
mod workspace;
mod wrong;
