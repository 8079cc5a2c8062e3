//! What there is of driver and devices, for reports: never fails, and opens nothing.

use super::device::{Device, DeviceInfo};
use super::driver;
use crate::error::Error;
use serde::{Deserialize, Serialize};

/// The state of driver and devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Probe {
    /// The driver, if its library was found.
    pub driver: Option<DriverFacts>,
    /// The devices that answered.
    pub devices: Vec<DeviceInfo>,
    /// What stands in the way of running a kernel.
    pub troubles: Vec<Trouble>,
}

/// A driver that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DriverFacts {
    /// The file that holds it.
    pub path: String,
    /// The CUDA version that it supports: `13.0`.
    pub cuda_version: String,
    /// The kernel module's own version line, where the system tells it.
    pub kernel_module: Option<String>,
    /// Entry points that it has of those that cust knows.
    pub entry_points: usize,
    /// Newer entry points that clusters and tensor maps need and this driver lacks.
    pub lacks: Vec<String>,
}

/// An error with its mend, as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Trouble {
    /// `host.no_driver`.
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// What to try.
    pub mends: Vec<String>,
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        let (code, message) = (error.code().to_string(), error.message().to_string());
        Trouble { code, message, mends: error.helps().to_vec() }
    }
}

/// Newer entry points with the CUDA version that brought them.
const LATE: [(&str, &str); 3] =
    [("cuLaunchKernelEx", "11.8"), ("cuOccupancyMaxActiveClusters", "11.8"), ("cuTensorMapEncodeTiled", "12.0")];

/// Looks at the driver and at each device.
pub fn probe() -> Probe {
    let mut probe = Probe { driver: facts(), devices: Vec::new(), troubles: Vec::new() };
    match Device::count() {
        Ok(0) => probe.troubles.push(Trouble::from(driver::code::error(100, "counting the devices"))),
        Ok(count) => (0..count).for_each(|ordinal| match DeviceInfo::query(ordinal) {
            Ok(info) => probe.devices.push(info),
            Err(error) => probe.troubles.push(Trouble::from(error)),
        }),
        Err(error) => probe.troubles.push(Trouble::from(error)),
    }
    probe
}

fn facts() -> Option<DriverFacts> {
    let driver = driver::load().ok()?;
    // SAFETY: only the presence is asked; nothing is called.
    let lacks = |(symbol, needs): &(&str, &str)| unsafe { driver.late::<*const ()>(symbol, needs).is_err() };
    Some(DriverFacts {
        path: driver.path.clone(),
        cuda_version: driver::version_text(driver::version().unwrap_or(0)),
        kernel_module: std::fs::read_to_string("/proc/driver/nvidia/version")
            .ok()
            .and_then(|text| text.lines().next().map(str::to_string)),
        entry_points: driver.found,
        lacks: LATE.iter().filter(|late| lacks(late)).map(|(symbol, _)| (*symbol).to_string()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_devices_has_a_trouble_with_a_mend() {
        let probe = probe();
        assert_eq!(probe.driver.is_none(), probe.troubles.iter().any(|t| t.code == "host.no_driver"));
        assert!(probe.devices.is_empty() != probe.troubles.is_empty());
        assert!(probe.troubles.iter().all(|t| !t.mends.is_empty()));
        let text = serde_json::to_string(&probe).unwrap();
        assert_eq!(serde_json::from_str::<Probe>(&text).unwrap(), probe);
    }
}
