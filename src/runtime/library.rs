//! An artefact on a device: selects a variant by name and argument shapes, and loads it at its first launch.

use super::buffer::DeviceBuffer;
use super::device::Device;
use super::program::Program;
use crate::artifact::Artifact;
use crate::dtype::DType;
use crate::error::Result;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The programs of an artefact on a device. Each variant is loaded once.
#[derive(Debug)]
pub struct Library {
    device: Device,
    artifact: Artifact,
    /// The loaded programs, by index of the variant.
    loaded: Mutex<BTreeMap<usize, Arc<Program>>>,
}

impl Device {
    /// The programs of an artefact on this device. Variants are loaded at their first use.
    pub fn library(&self, artifact: Artifact) -> Library {
        Library { device: self.clone(), artifact, loaded: Mutex::default() }
    }
}

impl Library {
    /// The artefact.
    pub fn artifact(&self) -> &Artifact {
        &self.artifact
    }

    /// The program with this name or label for arguments of these types and shapes. The first call for a variant loads it; without a cubin for
    /// the device the driver compiles the PTX.
    ///
    /// # Errors
    /// `artifact.choice` as [`Artifact::choose`]; the errors of [`Device::load`].
    pub fn program(&self, name: &str, arrays: &[(DType, &[usize])]) -> Result<Arc<Program>> {
        let chosen = self.artifact.choose_at(name, self.device.info().capability, arrays)?;
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = loaded.get(&chosen) {
            return Ok(program.clone());
        }
        let program = Arc::new(self.device.load(&self.artifact.variants[chosen].kernels)?);
        loaded.insert(chosen, program.clone());
        Ok(program)
    }

    /// Launches the program with this name or label on the device's stream.
    ///
    /// # Errors
    /// Those of [`Library::program`] and of [`Program::launch`].
    pub fn launch(&self, name: &str, buffers: &[&DeviceBuffer]) -> Result<()> {
        let arrays: Vec<(DType, &[usize])> = buffers.iter().map(|b| (b.dtype(), b.shape())).collect();
        self.program(name, &arrays)?.launch(buffers)
    }
}
