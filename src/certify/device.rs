//! The device that waves are counted on: one well-known device for each chip (data sheets).

use crate::target::Target;
use serde::Serialize;

/// A device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Its name.
    pub name: &'static str,
    /// Its multiprocessors.
    pub multiprocessors: u32,
}

/// The device that stands for a chip.
pub fn of(target: &Target) -> Device {
    let (name, multiprocessors) = match target.sm {
        ..=72 => ("V100", 80),
        73..=75 => ("T4", 40),
        76..=80 => ("A100", 108),
        81..=86 => ("RTX 3090", 82),
        87..=89 => ("L40S", 142),
        90.. => ("H200", 132),
    };
    Device { name, multiprocessors }
}
