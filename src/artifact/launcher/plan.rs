//! The plan of a launcher: its units, which agree on their arguments, ordered by shape and chip. Every language writes its launcher from it.

use super::{Unit, names};
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
pub(super) use crate::kernel::WORKSPACE_ALIGN;
use crate::kernel::{Access, Arg, Chip, Cubin, Kernel, Kernels, Param, TensorMap};

/// Units that one launcher can choose from.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    /// The arguments of every unit, in order.
    pub(super) arguments: Vec<Argument>,
    /// The shapes of all arguments that there are kernels for, in the order of the units.
    pub(super) shapes: Vec<Shapes>,
    /// By shape; for one shape the chips in the order of preference.
    pub(super) units: Vec<Placed<'a>>,
}

/// An argument as every unit takes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Argument {
    /// The name in the program.
    pub(super) name: String,
    /// The name in the launcher.
    pub(super) identifier: String,
    pub(super) dtype: DType,
    pub(super) rank: usize,
    pub(super) access: Access,
}

/// The extents of each argument.
pub(super) type Shapes = Vec<Vec<i64>>;

/// A unit with its row of the launcher's tables.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed<'a> {
    pub(super) unit: &'a Unit<'a>,
    /// The chip of the PTX.
    pub(super) chip: Chip,
    /// The devices that run the cubin.
    code_devices: Option<(u32, u32)>,
    /// Its place in [`Plan::shapes`].
    pub(super) shape: usize,
}

impl Argument {
    pub(super) fn is_written(&self) -> bool {
        self.access != Access::Read
    }
}

impl Placed<'_> {
    pub(super) fn kernels(&self) -> &Kernels {
        self.unit.kernels
    }

    /// The cubin, the file that has it, and the first and the last device that run it.
    pub(super) fn code(&self) -> Option<(&Cubin, &str, (u32, u32))> {
        let (code, file) = self.unit.kernels.cubin.as_ref().zip(self.unit.cubin)?;
        Some((code, file, self.code_devices?))
    }

    /// Where each workspace buffer begins, and the bytes of all.
    pub(super) fn workspace(&self) -> (Vec<u64>, u64) {
        self.unit.kernels.workspace_layout()
    }
}

/// The first and the last device that run PTX for a chip: 90 for compute capability 9.0.
pub(super) fn devices(chip: Chip) -> (u32, u32) {
    chip.ptx_devices().into_inner()
}

fn chip_of(name: &str) -> Result<Chip> {
    Chip::parse(name).ok_or_else(|| wrong(format!("`{name}` is not the name of a chip")))
}

impl<'a> Plan<'a> {
    /// Checks that one launcher can hold these units, and orders them.
    pub(super) fn new(name: &str, units: &'a [Unit<'a>]) -> Result<Plan<'a>> {
        names::checked(name)?;
        let first = units.first().ok_or_else(|| wrong(format!("the launcher {name} has no kernels to launch")))?;
        let arguments = arguments(first.kernels);
        if arguments.is_empty() {
            return Err(wrong(format!(
                "the program {} has no arguments, so nothing that it computes can be seen",
                first.kernels.name
            )));
        }
        let mut shapes: Vec<Shapes> = Vec::new();
        let mut placed = Vec::new();
        for unit in units {
            let kernels = unit.kernels;
            if let Some(size) = kernels.sizes.first() {
                let message =
                    format!("{} has the dynamic size {}, which launchers do not pass", kernels.name, size.name);
                let error = wrong(message).help("launch it by warploom::runtime, which takes the size from the arrays");
                return Err(error.help("or build it at each of the sizes"));
            }
            same_arguments(first.kernels, unit.kernels)?;
            unit.kernels.kernels.iter().try_for_each(|kernel| complete(unit.kernels, kernel))?;
            plain(unit.ptx)?;
            unit.cubin.map_or(Ok(()), plain)?;
            let own: Shapes = unit.kernels.args.iter().map(|arg| arg.shape.clone()).collect();
            let shape = shapes.iter().position(|s| *s == own).unwrap_or(shapes.len());
            if shape == shapes.len() {
                shapes.push(own);
            }
            if let (Some(file), None) = (unit.cubin, &unit.kernels.cubin) {
                return Err(wrong(format!("{file} is to have the cubin of {name}, and the program has none")));
            }
            let code = unit.kernels.cubin.as_ref().map(|code| chip_of(&code.chip)).transpose()?;
            placed.push(Placed {
                unit,
                chip: chip_of(&unit.kernels.target)?,
                code_devices: code.map(|chip| chip.code_devices().into_inner()),
                shape,
            });
        }
        // The newest chip first: the first unit that a device runs is the best for it.
        placed.sort_by_key(|p| (p.shape, std::cmp::Reverse(p.chip)));
        for pair in placed.windows(2) {
            if (pair[0].shape, pair[0].chip) == (pair[1].shape, pair[1].chip) {
                let target = &pair[0].kernels().target;
                return Err(wrong(format!("two units of {name} are for {target} and the same shapes")));
            }
        }
        Ok(Plan { arguments, shapes, units: placed })
    }

    /// The largest of a number that each unit has, and at least 1: arrays in C have an element.
    pub(super) fn most(&self, of: impl Fn(&Kernels) -> usize) -> usize {
        self.units.iter().map(|p| of(p.kernels())).max().unwrap_or(0).max(1)
    }

    /// Whether a unit needs memory of the caller's.
    pub(super) fn has_workspace(&self) -> bool {
        self.units.iter().any(|p| !p.kernels().workspace.is_empty())
    }
}

fn wrong(message: String) -> Error {
    Error::input(Code::ArtifactLauncher, message)
}

fn arguments(kernels: &Kernels) -> Vec<Argument> {
    let names: Vec<&str> = kernels.args.iter().map(|arg| arg.name.as_str()).collect();
    let identifiers = names::identifiers(&names);
    let argument = |(arg, identifier): (&Arg, String)| Argument {
        name: arg.name.clone(),
        identifier,
        dtype: arg.dtype,
        rank: arg.shape.len(),
        access: arg.access,
    };
    kernels.args.iter().zip(identifiers).map(argument).collect()
}

fn same_arguments(first: &Kernels, other: &Kernels) -> Result<()> {
    let of = |kernels: &Kernels| -> Vec<String> {
        let one = |arg: &Arg| {
            let access = match arg.access {
                Access::Read => "read",
                Access::Write => "written",
                Access::ReadWrite => "read and written",
            };
            format!("{} {} of {} ({access})", arg.name, arg.dtype, crate::error::counted(arg.shape.len(), "dimension"))
        };
        kernels.args.iter().map(one).collect()
    };
    let (wanted, found) = (of(first), of(other));
    if wanted == found {
        return Ok(());
    }
    let message = format!(
        "units of one launcher take the same arguments: {} for {} takes {}, and {} for {} takes {}",
        first.name,
        first.target,
        wanted.join(", "),
        other.name,
        other.target,
        found.join(", ")
    );
    Err(wrong(message).help("write a launcher for each"))
}

/// That a kernel can be launched, and that its tensor maps have numbers that a table can hold.
fn complete(kernels: &Kernels, kernel: &Kernel) -> Result<()> {
    let checked = kernel.check(kernels);
    checked.map_err(|error| wrong(error.message().to_string()).within(format!("in the program {}", kernels.name)))?;
    let fits = |map: &TensorMap| {
        let rank = map.extents.len();
        let whole = (1..=5).contains(&rank) && map.strides.len() == rank && map.tile.len() == rank;
        let counts = map.extents.iter().chain(&map.strides).all(|n| (1..=1 << 40).contains(n));
        whole && counts && map.tile.iter().all(|n| (1..=256).contains(n))
    };
    let odd = |param: &Param| matches!(param, Param::TensorMap(map) if !fits(map));
    if !kernel.params.iter().any(odd) {
        return Ok(());
    }
    let limits = "1 to 5 dimensions, extents and strides of 1 to 2^40, boxes of 1 to 256";
    Err(wrong(format!("kernel {} of {} has a tensor map outside {limits}", kernel.entry, kernels.name)))
}

/// Refuses a file name that leaves the launcher's folder or needs an escape in a literal.
fn plain(file: &str) -> Result<()> {
    let letters = file.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    if letters && !file.starts_with('.') && !file.is_empty() {
        return Ok(());
    }
    Err(wrong(format!("`{file}` is no plain name of a file beside the launcher")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_say_which_devices_run_them() {
        let of = |name| chip_of(name).map(|chip| (devices(chip), chip.code_devices().into_inner())).ok();
        assert_eq!(of("sm_90a"), Some(((90, 90), (90, 90))));
        assert_eq!(of("sm_86"), Some(((86, 9999), (86, 89))));
        assert!(["sm_", "90", "gfx90a", "sm_90x"].into_iter().all(|name| of(name).is_none()));
    }

    #[test]
    fn names_of_files_lead_nowhere_else() {
        assert!(["gemm.ptx", "gemm-sm_90a_2.cubin"].into_iter().all(|file| plain(file).is_ok()));
        assert!(["", "../a.ptx", "a/b", ".a", "a\"b", "C:\\a"].into_iter().all(|file| plain(file).is_err()));
    }
}
