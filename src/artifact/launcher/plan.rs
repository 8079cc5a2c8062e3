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
    /// The dynamic sizes of the units, in order.
    pub(super) sizes: Vec<Dynamic>,
    /// The shapes of all arguments that there are kernels for: fixed ones first, which a launcher prefers, in the order of the units.
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
    /// The place in [`Plan::sizes`] of its outermost extent, where that is dynamic in a unit.
    pub(super) size: Option<usize>,
}

/// A size that is known at launch alone.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Dynamic {
    /// The name in the program.
    pub(super) name: String,
    /// The name in the launcher.
    pub(super) identifier: String,
}

/// The shapes of the arguments of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shapes {
    /// The extents of each argument, a dynamic one with its largest value.
    pub(super) extents: Vec<Vec<i64>>,
    /// The values of each size of the plan: the least, the largest, and what each is a multiple of. A unit of fixed shapes has one value.
    pub(super) ranges: Vec<[i64; 3]>,
    /// Whether no size of the unit is dynamic.
    is_fixed: bool,
}

impl Shapes {
    /// The shapes of compiled kernels, whose arguments have the sizes.
    fn of(kernels: &Kernels, arguments: &[Argument], sizes: &[Dynamic]) -> Result<Shapes> {
        let extents: Vec<Vec<i64>> = kernels.args.iter().map(|arg| arg.shape.clone()).collect();
        let range = |(n, size): (usize, &Dynamic)| {
            if let Some(own) = kernels.sizes.iter().find(|own| own.name == size.name) {
                return Ok([own.low, own.high, own.by.max(1)]);
            }
            let mut fixed = arguments.iter().zip(&extents).filter(|(a, _)| a.size == Some(n)).map(|(_, e)| e.first());
            let first = fixed.next().flatten().copied().unwrap_or(1);
            match fixed.all(|extent| extent == Some(&first)) {
                true => Ok([first, first, 1]),
                false => {
                    let message = format!("{} has arrays of several {}", kernels.name, size.name);
                    Err(wrong(message).help("write a launcher of its own for it"))
                }
            }
        };
        let ranges = sizes.iter().enumerate().map(range).collect::<Result<Vec<_>>>()?;
        Ok(Shapes { extents, ranges, is_fixed: kernels.sizes.is_empty() })
    }

    /// The extents of an argument in words, a dynamic one by its values: `[1..=64, 32]`.
    pub(super) fn words(&self, at: usize, argument: &Argument) -> String {
        let mut words: Vec<String> = self.extents[at].iter().map(i64::to_string).collect();
        let range = argument.size.map(|size| self.ranges[size]);
        if let (Some([low, high, by]), Some(first)) = (range.filter(|[low, high, _]| low < high), words.first_mut()) {
            let by = if by == 1 { String::new() } else { format!(" by {by}") };
            *first = format!("{low}..={high}{by}");
        }
        format!("[{}]", words.join(", "))
    }

    /// Whether both take some arrays; `at` are the arguments.
    fn overlap(&self, other: &Shapes, at: &[Argument]) -> bool {
        let inner = |n: usize, e: &[i64]| e[usize::from(at[n].size.is_some()).min(e.len())..].to_vec();
        let same = (0..at.len()).all(|n| inner(n, &self.extents[n]) == inner(n, &other.extents[n]));
        let meet = |(a, b): (&[i64; 3], &[i64; 3])| {
            let (low, high) = (a[0].max(b[0]), a[1].min(b[1]));
            // Multiples of both: of the product, where they have no common divisor.
            let by = a[2] / common_divisor(a[2], b[2]) * b[2];
            (low + by - 1) / by * by <= high
        };
        same && self.ranges.iter().zip(&other.ranges).all(meet)
    }
}

fn common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

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
        let (arguments, sizes) = arguments(units)?;
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
            same_arguments(first.kernels, kernels)?;
            kernels.kernels.iter().try_for_each(|kernel| complete(unit.kernels, kernel))?;
            plain(unit.ptx)?;
            unit.cubin.map_or(Ok(()), plain)?;
            let own = Shapes::of(kernels, &arguments, &sizes)?;
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
        // Shapes for one value are preferred to those for many.
        let mut order: Vec<usize> = (0..shapes.len()).collect();
        order.sort_by_key(|at| !shapes[*at].is_fixed);
        placed.iter_mut().for_each(|p| p.shape = order.iter().position(|at| *at == p.shape).unwrap_or(p.shape));
        let shapes: Vec<Shapes> = order.into_iter().map(|at| shapes[at].clone()).collect();
        apart(name, &shapes, &arguments)?;
        // The newest chip first: the first unit that a device runs is the best for it.
        placed.sort_by_key(|p| (p.shape, std::cmp::Reverse(p.chip)));
        for pair in placed.windows(2) {
            if (pair[0].shape, pair[0].chip) == (pair[1].shape, pair[1].chip) {
                let target = &pair[0].kernels().target;
                return Err(wrong(format!("two units of {name} are for {target} and the same shapes")));
            }
        }
        Ok(Plan { arguments, sizes, shapes, units: placed })
    }

    /// The largest of a number that each unit has, and at least 1: arrays in C have an element.
    pub(super) fn most(&self, of: impl Fn(&Kernels) -> usize) -> usize {
        self.units.iter().map(|p| of(p.kernels())).max().unwrap_or(0).max(1)
    }

    /// The number in the plan of a size of a unit.
    pub(super) fn size(&self, kernels: &Kernels, number: usize) -> usize {
        let name = kernels.sizes.get(number).map(|size| &size.name);
        self.sizes.iter().position(|size| Some(&size.name) == name).unwrap_or(0)
    }

    /// Whether a unit needs memory of the caller's.
    pub(super) fn has_workspace(&self) -> bool {
        self.units.iter().any(|p| !p.kernels().workspace.is_empty())
    }
}

fn wrong(message: String) -> Error {
    Error::input(Code::ArtifactLauncher, message)
}

/// That no two shapes for ranges take the same arrays: the order of the units would decide.
fn apart(name: &str, shapes: &[Shapes], arguments: &[Argument]) -> Result<()> {
    let ranges: Vec<&Shapes> = shapes.iter().filter(|s| !s.is_fixed).collect();
    for (n, first) in ranges.iter().enumerate() {
        if let Some(second) = ranges[n + 1..].iter().find(|other| first.overlap(other, arguments)) {
            let words =
                |s: &Shapes| s.ranges.iter().map(|[low, high, _]| format!("{low}..={high}")).collect::<Vec<_>>();
            let (first, second) = (words(first).join(", "), words(second).join(", "));
            let message = format!("units of {name} are for the ranges {first} and {second}, which overlap");
            return Err(wrong(message).help("build ranges that follow one another, such as 1..=64 and 65..=256"));
        }
    }
    Ok(())
}

/// The arguments and the dynamic sizes of all units; names in the launcher are those of both together.
fn arguments(units: &[Unit<'_>]) -> Result<(Vec<Argument>, Vec<Dynamic>)> {
    let Some(first) = units.first().map(|unit| unit.kernels) else { return Ok((Vec::new(), Vec::new())) };
    let mut sizes: Vec<&str> = Vec::new();
    for size in units.iter().flat_map(|unit| &unit.kernels.sizes) {
        if !sizes.contains(&size.name.as_str()) {
            sizes.push(&size.name);
        }
    }
    // The size of an argument's outermost extent is the same in every unit that has a dynamic one.
    let mut of_arguments: Vec<Option<usize>> = vec![None; first.args.len()];
    for kernels in units.iter().map(|unit| unit.kernels) {
        for (own, arg) in of_arguments.iter_mut().zip(&kernels.args) {
            let name = arg.dynamic.and_then(|n| kernels.sizes.get(n)).map(|size| size.name.as_str());
            let number = name.and_then(|name| sizes.iter().position(|size| *size == name));
            if number.is_some() && own.is_some() && *own != number {
                let message = format!("units of one launcher have other sizes for argument {}", arg.name);
                return Err(wrong(message).help("write a launcher for each"));
            }
            *own = own.or(number);
        }
    }
    let names: Vec<&str> = first.args.iter().map(|arg| arg.name.as_str()).chain(sizes.iter().copied()).collect();
    let mut identifiers = names::identifiers(&names).into_iter();
    let argument = |((arg, identifier), size): ((&Arg, String), Option<usize>)| Argument {
        name: arg.name.clone(),
        identifier,
        dtype: arg.dtype,
        rank: arg.shape.len(),
        access: arg.access,
        size,
    };
    let own = identifiers.by_ref().take(first.args.len()).collect::<Vec<_>>();
    let arguments = first.args.iter().zip(own).zip(of_arguments).map(argument).collect();
    let dynamic = |(name, identifier): (&str, String)| Dynamic { name: name.to_string(), identifier };
    Ok((arguments, sizes.into_iter().zip(identifiers).map(dynamic).collect()))
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
