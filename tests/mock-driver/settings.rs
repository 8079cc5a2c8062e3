//! What a test asks of the driver, as text: one setting a line.
//!
//! ```text
//! driver 12040            the CUDA version
//! devices 2               how many there are
//! capability 9.0          of each device
//! memory 1073741824       bytes of each device
//! attribute 97 49152      a device attribute
//! function 0 128          a function attribute
//! fail cuMemAlloc_v2 3 2  the third call from now answers 2; `*` for every call
//! fault KERNEL 700        running the kernel ends with this code, and so does its context
//! hang KERNEL 500         the kernel takes so many milliseconds, or `forever`
//! log WORDS               what the PTX compiler says when it refuses a module
//! name 1234 CUDA_ERROR_X  what the driver calls a code that the header does not have
//! ends process            a fault ends the work of the whole process, not of its context alone
//! ```

use std::collections::HashMap;
use std::time::Duration;

/// A call that fails.
pub struct Failure {
    pub function: String,
    /// The call's number from 1; none for every call.
    pub call: Option<u64>,
    pub code: i32,
}

/// How long a kernel takes.
#[derive(Clone, Copy)]
pub enum Hang {
    For(Duration),
    Forever,
}

pub struct Settings {
    pub driver: i32,
    pub devices: i32,
    pub capability: (i32, i32),
    pub memory: usize,
    pub attributes: HashMap<i32, i32>,
    pub function: HashMap<i32, i32>,
    pub failures: Vec<Failure>,
    pub faults: HashMap<String, i32>,
    pub hangs: HashMap<String, Hang>,
    pub log: String,
    pub names: HashMap<i32, String>,
    pub ends_process: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            driver: 13000,
            devices: 1,
            capability: (9, 0),
            memory: 1 << 30,
            attributes: HashMap::new(),
            function: HashMap::new(),
            failures: Vec::new(),
            faults: HashMap::new(),
            hangs: HashMap::new(),
            log: "ptxas fatal   : Ptx assembly aborted due to errors".into(),
            names: HashMap::new(),
            ends_process: false,
        }
    }
}

impl Settings {
    /// The usual driver with these changes; none where a line says nothing.
    pub fn parse(text: &str) -> Option<Settings> {
        let mut settings = Settings::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            settings.set(line)?;
        }
        Some(settings)
    }

    fn set(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ')?;
        let mut words = rest.split_whitespace();
        let mut next = || words.next();
        match word {
            "driver" => self.driver = next()?.parse().ok()?,
            "devices" => self.devices = next()?.parse().ok()?,
            "capability" => {
                let (major, minor) = next()?.split_once('.')?;
                self.capability = (major.parse().ok()?, minor.parse().ok()?);
            }
            "memory" => self.memory = next()?.parse().ok()?,
            "attribute" => drop(self.attributes.insert(next()?.parse().ok()?, next()?.parse().ok()?)),
            "function" => drop(self.function.insert(next()?.parse().ok()?, next()?.parse().ok()?)),
            "fail" => {
                let (function, call, code) = (next()?.to_string(), next()?, next()?.parse().ok()?);
                let call = if call == "*" { None } else { Some(call.parse().ok()?) };
                self.failures.push(Failure { function, call, code });
            }
            "fault" => drop(self.faults.insert(next()?.to_string(), next()?.parse().ok()?)),
            "hang" => {
                let (kernel, time) = (next()?.to_string(), next()?);
                let time = match time {
                    "forever" => Hang::Forever,
                    ms => Hang::For(Duration::from_millis(ms.parse().ok()?)),
                };
                self.hangs.insert(kernel, time);
            }
            "log" => self.log = rest.to_string(),
            "name" => drop(self.names.insert(next()?.parse().ok()?, next()?.to_string())),
            "ends" => self.ends_process = next()? == "process",
            _ => return None,
        }
        Some(())
    }

    /// What the call of this number answers, if it is to fail.
    pub fn failure(&self, function: &str, call: u64) -> Option<i32> {
        let meant = |f: &&Failure| f.function == function && f.call.is_none_or(|n| n == call);
        self.failures.iter().find(meant).map(|f| f.code)
    }

    /// The newest PTX that the driver takes, times ten (the release notes of the PTX ISA).
    pub fn ptx(&self) -> u32 {
        let (major, minor) = (self.driver / 1000, self.driver % 1000 / 10);
        let version = match (major, minor) {
            (11, minor) => 70 + minor,
            (12, minor @ 0..=5) => 80 + minor,
            (12, minor) => 79 + minor,
            (13, minor) => 90 + minor,
            _ => 65,
        };
        u32::try_from(version).unwrap_or(0)
    }
}
