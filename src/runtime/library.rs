//! An artefact on a device: programs are found by name and by the shapes of their arguments, and loaded when first needed.

use super::buffer::DeviceBuffer;
use super::device::Device;
use super::program::Program;
use crate::artifact::Artifact;
use crate::dtype::DType;
use crate::error::Result;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The programs of an artefact on a device. Variants of one program share nothing; each is loaded once.
#[derive(Debug)]
pub struct Library {
    device: Device,
    artifact: Artifact,
    /// What has been loaded, by the place in the artefact.
    loaded: Mutex<BTreeMap<usize, Arc<Program>>>,
}

impl Device {
    /// The programs of an artefact on this device. Nothing is loaded yet.
    pub fn library(&self, artifact: Artifact) -> Library {
        Library { device: self.clone(), artifact, loaded: Mutex::default() }
    }
}

impl Library {
    /// The artefact.
    pub fn artifact(&self) -> &Artifact {
        &self.artifact
    }

    /// The program of that name for arrays of these types and shapes, in the order of its arguments. The first call for a variant
    /// loads it, and waits for the driver to compile PTX where there is no machine code for the device.
    ///
    /// # Errors
    /// `artifact.choice` where no variant suits the name, the arrays or the device; those of [`Device::load`].
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

    /// Launches the program of that name for these arguments on the device's stream.
    ///
    /// # Errors
    /// Those of [`Library::program`] and of [`Program::launch`].
    pub fn launch(&self, name: &str, buffers: &[&DeviceBuffer]) -> Result<()> {
        let arrays: Vec<(DType, &[usize])> = buffers.iter().map(|b| (b.dtype(), b.shape())).collect();
        self.program(name, &arrays)?.launch(buffers)
    }
}
