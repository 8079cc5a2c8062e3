//! The library's counterpart of a matrix product: cuBLAS, or an algorithm of cuBLASLt.

use super::library::cublas::Cublas;
use super::library::cublaslt::{CublasLt, Product};
use super::library::unsupported;
use crate::dtype::DType;
use crate::error::Result;
use crate::runtime::{Device, DeviceBuffer};
use crate::te::GemmSpec;

/// Algorithms of cuBLASLt that are tried beside its first choice.
const ALGORITHMS: usize = 8;

/// A product that a library computes.
pub(super) struct Peer<'l> {
    cublas: &'l Cublas,
    gemm: GemmSpec,
    product: Option<Product<'l>>,
}

impl<'l> Peer<'l> {
    /// f32 and f64 come from cuBLAS, in plain arithmetic; other types from cuBLASLt where it is at hand and has them.
    pub fn of(cublas: &'l Cublas, lt: Option<&'l CublasLt>, gemm: GemmSpec) -> Peer<'l> {
        let plain = matches!(gemm.a, DType::F32 | DType::F64);
        let product = lt.filter(|_| !plain).and_then(|lt| lt.product(&gemm, ALGORITHMS).ok());
        Peer { cublas, gemm, product }
    }

    /// Puts C = A * B on the device's stream: A, B, the scales of blocks if there are any, and C.
    pub fn launch(&self, set: &[DeviceBuffer]) -> Result<()> {
        self.launch_with(self.first(), set)
    }

    fn first(&self) -> Choice {
        if self.product.is_some() { Choice::Lt(0) } else { Choice::Cublas }
    }

    /// Puts C = A * B on the device's stream in one of several ways.
    pub fn launch_with(&self, choice: Choice, set: &[DeviceBuffer]) -> Result<()> {
        match (choice, &self.product, set) {
            (Choice::Lt(algorithm), Some(product), _) => product.run(algorithm, set),
            (_, _, [a, b, c]) => self.cublas.gemm(&self.gemm, a, b, c),
            _ => Err(unsupported(&self.gemm)),
        }
    }

    /// What there is besides [`Peer::launch`]: cuBLAS itself, and what cuBLASLt would take next.
    pub fn others(&self) -> Vec<Choice> {
        let algorithms = self.product.as_ref().map_or(0, Product::algorithms);
        let own = self.product.as_ref().map(|_| Choice::Cublas);
        own.into_iter().chain((1..algorithms).map(Choice::Lt)).collect()
    }

    /// Name, version and kernels.
    pub fn describe(&self, device: &Device, set: &[DeviceBuffer]) -> String {
        self.describe_with(self.first(), device, set)
    }

    /// Name, version and kernels of one of several ways.
    pub fn describe_with(&self, choice: Choice, device: &Device, set: &[DeviceBuffer]) -> String {
        let recorded = device.capture(|| self.launch_with(choice, set));
        let mut names = recorded.map(|graph| graph.kernel_names()).unwrap_or_default();
        names.sort();
        let version = self.cublas.version();
        let name = if choice == Choice::Cublas { "cuBLAS" } else { "cuBLASLt" };
        let number = format!("{name} {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
        if names.is_empty() { number } else { format!("{number}: {}", names.join(" + ")) }
    }
}

/// A way to compute the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// What cuBLAS chooses.
    Cublas,
    /// An algorithm of cuBLASLt, in its heuristic's order.
    Lt(usize),
}
