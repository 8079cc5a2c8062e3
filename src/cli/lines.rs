//! Kernels for a device, with `.loc` lines where those are asked for.

use super::{cache, show, source};
use crate::artifact::Cache;
use crate::error::{Code, Error, Result};
use crate::kernel::Kernels;
use crate::loom::Schedule;
use crate::lower::{self, Lowered};
use crate::runtime::Device;
use crate::target::Target;
use crate::{artifact, codegen};
use std::cell::RefCell;
use std::collections::HashSet;

/// Compiles kernels for a device. With lines, the lowered text of each program is written into the current folder, under a name of
/// its own, and `.file` has the whole path: so a profiler finds it.
#[derive(Debug, Default)]
pub struct Compiler {
    lines: bool,
    cache: Option<Cache>,
    written: RefCell<HashSet<String>>,
}

impl Compiler {
    /// One that adds lines, or not.
    pub fn with_lines(lines: bool) -> Compiler {
        let cache = if lines { None } else { cache::of_user() };
        Compiler { lines, cache, written: RefCell::default() }
    }

    /// The kernels of a schedule, from the cache where it has been compiled before. The cache also keeps the machine code that the driver of
    /// the device makes of them, so that a later process neither compiles nor assembles.
    pub fn schedule(&self, schedule: &Schedule, device: &Device) -> Result<Kernels> {
        if let Some(cache) = &self.cache {
            return crate::compile_cached(schedule, cache, Some(device));
        }
        if !self.lines {
            return crate::compile(schedule);
        }
        self.lowered(&lower::lower(&schedule.scheduled()?, &schedule.target)?, &schedule.target)
    }

    /// The kernels of a lowered program.
    pub fn lowered(&self, lowered: &Lowered, target: &Target) -> Result<Kernels> {
        if !self.lines {
            return codegen::compile(lowered, target);
        }
        let folder = std::env::current_dir()
            .map_err(|e| Error::machine(Code::CliLines, format!("the current folder is not known: {e}")))?;
        let mut written = self.written.borrow_mut();
        let numbered = |n: u32| if n == 1 { lowered.name.clone() } else { format!("{}-{n}", lowered.name) };
        let name = (1..).map(|n| source::file_name(&numbered(n))).find(|name| !written.contains(name));
        let name = name.unwrap_or_default();
        artifact::write_text(&folder, &name, &lower::print(lowered))?;
        show::note(format_args!("wrote {name}"));
        let path = folder.join(&name);
        written.insert(name);
        codegen::compile_with_lines(lowered, target, &path.to_string_lossy())
    }
}
