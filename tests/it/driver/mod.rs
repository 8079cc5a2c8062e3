//! The runtime against a driver without a GPU: launches, every error code, hangs and recovery (`tests/mock-driver`).

mod execute;
mod launch;
mod mock;
