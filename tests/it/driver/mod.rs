//! The runtime against a driver without a GPU: launches, every error code, hangs and recovery (`tests/mock-driver`).

mod codes;
mod command;
mod execute;
mod hang;
mod launch;
mod measure;
mod mock;
mod programs;
mod tune;
mod wrong;
