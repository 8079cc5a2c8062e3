//! What compiling yields: PTX text and everything that a launch needs. No LLVM and no driver here.

use crate::array::Array;
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::size;
pub use crate::size::{Follows, Size};
use crate::target::runs;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// A compiled program: one PTX module, its kernels in launch order, its arguments and its workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Kernels {
    /// The program's name.
    pub name: String,
    /// The target's name, `sm_90a`.
    pub target: String,
    /// The PTX ISA version times ten: 6.0 is 60.
    pub ptx_version: u32,
    /// The module's text.
    pub text: String,
    /// LLVM IR before optimisation, for dumps.
    pub llvm: String,
    /// The cubin of the module, if there is one. The driver loads it on devices that support it, and compiles the PTX on others.
    #[serde(skip)]
    pub cubin: Option<Cubin>,
    /// What the caller passes, in order.
    pub args: Vec<Arg>,
    /// Global buffers that the launcher allocates once per load.
    pub workspace: Vec<Workspace>,
    /// In launch order.
    pub kernels: Vec<Kernel>,
    /// Sizes that are known at launch; arguments, grids and tensor maps have their largest values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<Size>,
}

impl Kernels {
    /// A module of PTX with its entries, for the chip of that name; it takes no arguments and has no workspace until they are added.
    /// `ptx_version` is the version of the PTX ISA times ten.
    pub fn new(
        name: impl Into<String>,
        target: impl Into<String>,
        ptx_version: u32,
        text: impl Into<String>,
        kernels: Vec<Kernel>,
    ) -> Kernels {
        Kernels {
            name: name.into(),
            target: target.into(),
            ptx_version,
            text: text.into(),
            llvm: String::new(),
            cubin: None,
            args: Vec::new(),
            workspace: Vec::new(),
            kernels,
            sizes: Vec::new(),
        }
    }

    /// The value of each dynamic size, from the outermost extents of the arrays.
    ///
    /// # Errors
    /// `size.value` where two arrays disagree, or the program does not allow the value.
    pub fn sizes_of(&self, shapes: &[&[usize]]) -> Result<Vec<i64>> {
        sizes_of(&self.sizes, &self.args, shapes)
    }

    /// Whether the program takes arrays of these types and shapes.
    pub fn takes(&self, arrays: &[(DType, &[usize])]) -> bool {
        let shapes: Vec<&[usize]> = arrays.iter().map(|(_, shape)| *shape).collect();
        let Ok(sizes) = self.sizes_of(&shapes) else { return false };
        let each = |(arg, (dtype, shape)): (&Arg, &(DType, &[usize]))| {
            arg.takes_type(*dtype)
                && if sizes.is_empty() { arg.takes_shape(shape) } else { arg.at(&sizes).takes_shape(shape) }
        };
        self.args.len() == arrays.len() && self.args.iter().zip(arrays).all(each)
    }

    /// Whether the argument of this name takes an array of this type and shape, at some value of its dynamic size.
    #[cfg(feature = "cli")]
    pub(crate) fn takes_for(&self, name: &str, dtype: DType, shape: &[usize]) -> bool {
        let Some(arg) = self.args.iter().find(|arg| arg.name == name) else { return false };
        let size = arg.dynamic.and_then(|n| self.sizes.get(n));
        let Some(size) = size else { return arg.takes_type(dtype) && arg.takes_shape(shape) };
        let value = shape.first().and_then(|n| i64::try_from(*n).ok()).filter(|value| size.takes(*value));
        let at = |value: i64| arg.at(&self.sizes.iter().map(|_| value).collect::<Vec<_>>());
        arg.takes_type(dtype) && value.is_some_and(|value| at(value).takes_shape(shape))
    }

    /// The extents of an argument in words, a dynamic size by its values: `1..=8192`, `8..=8192 by 8`.
    pub fn extents(&self, arg: &Arg) -> Vec<String> {
        let mut extents: Vec<String> = arg.shape.iter().map(i64::to_string).collect();
        if let (Some(size), Some(first)) = (arg.dynamic.and_then(|n| self.sizes.get(n)), extents.first_mut()) {
            let by = if size.by == 1 { String::new() } else { format!(" by {}", size.by) };
            *first = format!("{}..={}{by}", size.low, size.high);
        }
        extents
    }

    /// The program at one value of each dynamic size, in order: arguments, grids and tensor maps are as they are at launch, and the
    /// range of each size is its value.
    ///
    /// # Errors
    /// `size.value` where a size cannot have the value, or where their number is another.
    pub fn at(&self, values: &[i64]) -> Result<Kernels> {
        Size::check_all(self.sizes.iter(), values)?;
        let mut out = self.clone();
        out.args = out.args.iter().map(|arg| arg.at(values)).collect();
        out.kernels.iter_mut().for_each(|kernel| kernel.fix(values));
        for (size, value) in out.sizes.iter_mut().zip(values) {
            (size.low, size.high) = (*value, *value);
        }
        Ok(out)
    }

    /// Whether a device of this compute capability (major, minor) can run the program.
    pub fn runs_on(&self, capability: (u32, u32)) -> bool {
        Chip::parse(&self.target).is_some_and(|chip| chip.runs_on(capability))
    }

    /// The module's PTX.
    pub fn ptx(&self) -> &str {
        &self.text
    }

    /// Where each workspace buffer begins in one block of memory, and the bytes of the block. Every buffer begins at a multiple of
    /// [`WORKSPACE_ALIGN`].
    pub fn workspace_layout(&self) -> (Vec<u64>, u64) {
        let mut total = 0u64;
        let buffers = self.workspace.iter();
        let offsets = buffers.map(|buffer| {
            let offset = total;
            total = offset.saturating_add(buffer.bytes).div_ceil(WORKSPACE_ALIGN).saturating_mul(WORKSPACE_ALIGN);
            offset
        });
        (offsets.collect(), total)
    }

    /// That the arrays hold what the program states of its inputs (`input X s32[64] in 0..1000`). A launch trusts that: an index that
    /// breaks it reads outside an array. The simulator always asks.
    ///
    /// # Errors
    /// `array.values` with the first element that is not one of the values.
    pub fn check_values(&self, arrays: &[Array]) -> Result<()> {
        let stated = self.args.iter().zip(arrays).filter_map(|(arg, array)| Some((arg, array, arg.values?)));
        stated.into_iter().try_for_each(|(arg, array, values)| array.check_values(&arg.name, values))
    }
}

/// Machine code for one chip: an ELF file, as ptxas makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cubin {
    /// The chip, `sm_90a`.
    pub chip: String,
    /// What assembled it: `ptxas 13.0`.
    pub assembler: String,
    /// The file.
    pub bytes: Vec<u8>,
}

impl Cubin {
    /// A cubin for a chip, and the name of its assembler.
    pub fn new(chip: impl Into<String>, assembler: impl Into<String>, bytes: Vec<u8>) -> Cubin {
        Cubin { chip: chip.into(), assembler: assembler.into(), bytes }
    }

    /// Whether a device of this compute capability can run the cubin: the major version is equal and the minor version not lower. A cubin for
    /// `sm_90a` needs exactly 9.0.
    pub fn runs_on(&self, capability: (u32, u32)) -> bool {
        Chip::parse(&self.chip).is_some_and(|chip| chip.code_devices().contains(&number(capability)))
    }
}

/// Assembles PTX to a cubin: ptxas, or the driver of a device.
pub trait Assembler {
    /// Name and version, such as `ptxas 13.0`: PTX and name determine the cubin.
    fn name(&self) -> String;

    /// The cubin of a program.
    ///
    /// # Errors
    /// The assembler rejects the PTX, or does not support the chip.
    fn cubin(&self, kernels: &Kernels) -> Result<Cubin>;
}

/// Compute capability and kind of a chip, from its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Chip {
    /// The compute capability times ten.
    pub(crate) number: u32,
    /// Whether it has instructions that no later chip has.
    pub(crate) exact: bool,
}

impl Chip {
    /// `sm_90`, `sm_90a`.
    pub(crate) fn parse(name: &str) -> Option<Chip> {
        let digits = name.strip_prefix("sm_")?;
        let (digits, exact) = digits.strip_suffix('a').map_or((digits, false), |digits| (digits, true));
        Some(Chip { number: digits.parse().ok()?, exact })
    }

    /// The devices that run PTX for the chip.
    pub(crate) fn ptx_devices(self) -> RangeInclusive<u32> {
        runs::ptx_devices(self.number, self.exact)
    }

    /// The devices that run machine code for the chip.
    pub(crate) fn code_devices(self) -> RangeInclusive<u32> {
        runs::code_devices(self.number, self.exact)
    }

    /// Whether a device of this compute capability runs PTX for the chip.
    pub(crate) fn runs_on(self, capability: (u32, u32)) -> bool {
        self.ptx_devices().contains(&number(capability))
    }
}

/// A compute capability times ten.
fn number((major, minor): (u32, u32)) -> u32 {
    major * 10 + minor
}

/// Whether a kernel reads or writes an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Access {
    /// Only read.
    Read,
    /// Only written.
    Write,
    /// Both.
    ReadWrite,
}

/// An argument of the program: a device buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Arg {
    /// The parameter's name.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<i64>,
    /// Strides in elements.
    pub strides: Vec<i64>,
    /// Required alignment of the address in bytes.
    pub align: u32,
    /// Bytes that it must have at least.
    pub bytes: u64,
    /// How it is used.
    pub access: Access,
    /// What its elements are promised to be: from the first to the end, which is exclusive. Kernels index by them unchecked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<(i64, i64)>,
    /// The number of the dynamic size that the outermost extent is; `shape` and `bytes` are those of its largest value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic: Option<usize>,
}

impl Arg {
    /// An array of these extents (outermost first) with packed rows, at an address that is a multiple of 16 bytes.
    pub fn new(name: impl Into<String>, dtype: DType, shape: &[i64], access: Access) -> Arg {
        let strides = packed(shape);
        let elements: i64 = shape.iter().product();
        let bytes = dtype.bytes_of(u64::try_from(elements).unwrap_or(0));
        Arg {
            name: name.into(),
            dtype,
            shape: shape.to_vec(),
            strides,
            align: 16,
            bytes,
            access,
            values: None,
            dynamic: None,
        }
    }

    /// The argument at values of the dynamic sizes.
    pub fn at(&self, values: &[i64]) -> Arg {
        let mut out = self.clone();
        let value = out.dynamic.take().and_then(|size| values.get(size));
        if let (Some(value), Some(extent), Some(stride)) = (value, out.shape.first_mut(), self.strides.first()) {
            let missing = extent.saturating_sub(*value).saturating_mul(*stride);
            *extent = *value;
            out.bytes = out.bytes.saturating_sub(out.dtype.bytes_of(u64::try_from(missing).unwrap_or(0)));
        }
        out
    }

    /// Whether an array of this type can be given for it.
    pub fn takes_type(&self, given: DType) -> bool {
        self.dtype == given || self.access == Access::Read && self.dtype.reads(given)
    }

    /// Whether an array of this shape can be given for it: the same extents. A parameter whose strides leave gaps takes an array with these strides that holds it (rows of 100 at a
    /// stride of 128 lie in an array of rows of 128), or one dimension that is as long as all that it spans. A parameter whose
    /// dimensions lie in another order takes an array with its dimensions in the order of memory: a column-major matrix of 4 x 6
    /// is an array of 6 x 4.
    pub fn takes_shape(&self, given: &[usize]) -> bool {
        let wanted = &self.shape;
        let is_given = |wanted: i64, given: usize| usize::try_from(wanted) == Ok(given);
        if is_packed(wanted, &self.strides) {
            // What has one dimension says nothing of others: an array of any shape is as good.
            let flat =
                wanted.len() == 1 && is_given(wanted[0], given.iter().fold(1, |n: usize, g| n.saturating_mul(*g)));
            return flat || wanted.len() == given.len() && wanted.iter().zip(given).all(|(w, g)| is_given(*w, *g));
        }
        let given: Vec<i64> = given.iter().map(|g| i64::try_from(*g).unwrap_or(i64::MAX)).collect();
        let spanned =
            wanted.iter().zip(&self.strides).fold(1, |n: i64, (e, s)| n.saturating_add((e - 1).saturating_mul(*s)));
        let mut dims: Vec<(i64, i64)> = self.strides.iter().copied().zip(wanted.iter().copied()).collect();
        dims.sort_by_key(|(stride, _)| std::cmp::Reverse(*stride));
        let holds = given.len() == dims.len() && dims.iter().zip(&given).all(|((_, w), g)| w <= g);
        given == [spanned] || (holds && is_packed(&given, &dims.iter().map(|(stride, _)| *stride).collect::<Vec<_>>()))
    }
}

/// The strides of an array without gaps, the innermost first.
fn innermost_first(shape: &[i64]) -> impl Iterator<Item = i64> {
    let next = |stride: &mut i64, extent: &i64| Some(std::mem::replace(stride, stride.saturating_mul(*extent)));
    shape.iter().rev().scan(1, next)
}

/// The strides of an array without gaps.
fn packed(shape: &[i64]) -> Vec<i64> {
    let mut strides: Vec<i64> = innermost_first(shape).collect();
    strides.reverse();
    strides
}

/// Whether strides are [`packed`]; a launch asks this of each argument, and allocates nothing for it.
fn is_packed(shape: &[i64], strides: &[i64]) -> bool {
    innermost_first(shape).eq(strides.iter().rev().copied())
}

/// The required alignment of workspace in bytes: the driver's alignment of allocations.
pub const WORKSPACE_ALIGN: u64 = 256;

/// A global buffer that lives only inside the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Workspace {
    /// The buffer's name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

impl Workspace {
    /// A buffer of so many bytes.
    pub fn new(name: impl Into<String>, bytes: u64) -> Workspace {
        Workspace { name: name.into(), bytes }
    }
}

/// What a kernel's parameter is: a 64-bit device address, or a tensor map of 128 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Param {
    /// The address of an argument.
    Arg(usize),
    /// The address of a workspace buffer.
    Workspace(usize),
    /// A tensor map, which the driver encodes once the address of its array is known.
    TensorMap(TensorMap),
    /// The value of the dynamic size of this number, divided by what it is a multiple of, as an integer of 32 bits.
    Size(usize),
}

/// The value of each size, from the outermost extents of the arrays.
///
/// # Errors
/// `size.value` where two arrays disagree, or a size cannot have the value.
pub(crate) fn sizes_of<'s>(sizes: &[Size], args: &'s [Arg], shapes: &[&'s [usize]]) -> Result<Vec<i64>> {
    let array = |(arg, given): (&'s Arg, &&'s [usize])| {
        let (shape, strides) = (arg.shape.as_slice(), arg.strides.as_slice());
        Some(size::Sized { name: &arg.name, size: arg.dynamic?, shape, strides, given })
    };
    let arrays: Vec<size::Sized<'_>> = args.iter().zip(shapes).filter_map(array).collect();
    size::values(sizes.iter(), &arrays)
}

/// The value of the kernels' parameter for the size of that number.
///
/// # Errors
/// A fault of warploom where there is no such size.
#[cfg(feature = "runtime")]
pub(crate) fn parameter(sizes: &[Size], values: &[i64], number: usize) -> Result<u32> {
    let found = sizes.get(number).zip(values.get(number));
    let value = found.and_then(|(size, value)| u32::try_from(value.checked_div(size.by)?).ok());
    value.ok_or_else(|| {
        Error::bug(Code::LaunchParams, format!("a kernel takes dynamic size {number}, which has no value"))
    })
}

/// How bulk copies find their boxes in an array of device memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TensorMap {
    /// The array: an argument or a workspace buffer.
    pub array: Box<Param>,
    /// The type of its elements.
    pub dtype: DType,
    /// Its extents, outermost first.
    pub extents: Vec<i64>,
    /// Its strides in elements, outermost first; the last is 1.
    pub strides: Vec<i64>,
    /// Extents of a box, outermost first.
    #[serde(rename = "box")]
    pub tile: Vec<i64>,
    /// Bytes of a row of shared memory whose chunks of 16 bytes are swizzled: 128, 64, 32, or 16, whose rows are one chunk; 0 without panels.
    pub swizzle: u32,
    /// Bytes that the second-level cache fetches together: 64, 128 or 256; 0 leaves it alone.
    pub promotion: u32,
    /// The dimension whose extent is a dynamic size, and the number of the size; `extents` has its largest value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic: Option<(usize, usize)>,
}

impl TensorMap {
    /// A map of an array of these extents, strides and boxes (outermost first, in elements), with this swizzle and L2 promotion in bytes.
    pub fn new(
        array: Param,
        dtype: DType,
        [extents, strides, tile]: [&[i64]; 3],
        swizzle: u32,
        promotion: u32,
    ) -> TensorMap {
        let [extents, strides, tile] = [extents, strides, tile].map(<[i64]>::to_vec);
        TensorMap { array: Box::new(array), dtype, extents, strides, tile, swizzle, promotion, dynamic: None }
    }
}

/// CU_TENSOR_MAP_DATA_TYPE_* of a type; none for a type that TMA does not copy.
pub(crate) fn tensor_map_type(dtype: DType) -> Option<i32> {
    match dtype {
        DType::U8 | DType::S8 | DType::E4m3 | DType::E5m2 | DType::Bool => Some(0),
        DType::U32 => Some(2),
        DType::S32 => Some(3),
        DType::S64 => Some(5),
        DType::F16 => Some(6),
        // A map of TFLOAT32 would round; the upper 19 bits are the value.
        DType::F32 | DType::Tf32 => Some(7),
        DType::F64 => Some(8),
        DType::Bf16 => Some(9),
        DType::S4 | DType::U4 | DType::B1 => None,
    }
}

/// CU_TENSOR_MAP_SWIZZLE_* of a swizzle in bytes.
pub(crate) fn tensor_map_swizzle(bytes: u32) -> Option<u32> {
    match bytes {
        // A panel of one chunk of 16 bytes is a dense box of that width.
        0 | 16 => Some(0),
        32 => Some(1),
        64 => Some(2),
        128 => Some(3),
        _ => None,
    }
}

/// CU_TENSOR_MAP_L2_PROMOTION_* of a promotion in bytes.
pub(crate) fn tensor_map_promotion(bytes: u32) -> Option<u32> {
    match bytes {
        0 => Some(0),
        64 => Some(1),
        128 => Some(2),
        256 => Some(3),
        _ => None,
    }
}

/// One entry point with its launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Kernel {
    /// The name of the entry in the PTX.
    pub entry: String,
    /// Its parameters, in order.
    pub params: Vec<Param>,
    /// Blocks in x, y, z; of a persistent kernel the most that have something to do.
    pub grid: [u32; 3],
    /// Threads in x, y, z.
    pub block: [u32; 3],
    /// Blocks of a cluster in x, y, z; all 1 without clusters.
    pub cluster: [u32; 3],
    /// Whether any number of blocks in x (a multiple of the cluster's) does all the work: then as many are launched as the
    /// device holds at once.
    pub persistent: bool,
    /// Dynamic shared memory in bytes (all shared memory is dynamic).
    pub shared_bytes: u32,
    /// Whether it may begin before the kernel in front of it in the stream has ended, as it waits for that end itself
    /// (griddepcontrol.wait): it can be launched with programmatic stream serialization.
    #[serde(rename = "pdl")]
    pub early: bool,
    /// Whether it runs concurrently with the preceding kernels of the program: it waits for their end after its last access.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub concurrent: bool,
    /// Where the number of blocks in x, y or z follows from a dynamic size; `grid` has the largest.
    #[serde(default, skip_serializing_if = "Clips::is_empty")]
    pub clips: Clips,
}

/// What the numbers of blocks in x, y and z follow from, where they do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clips(pub [Option<Follows>; 3]);

impl Clips {
    /// Whether no number of blocks follows from a size.
    pub fn is_empty(&self) -> bool {
        self.0 == [None; 3]
    }

    /// The blocks in x, y and z at values of the sizes.
    pub fn at(&self, grid: [u32; 3], values: &[i64]) -> [u32; 3] {
        std::array::from_fn(|n| self.0[n].map_or(grid[n], |f| f.at(values).min(grid[n])))
    }
}

impl Kernel {
    /// An entry that is launched with so many blocks of so many threads (in x, y, z), without clusters and shared memory.
    pub fn new(entry: impl Into<String>, params: Vec<Param>, grid: [u32; 3], block: [u32; 3]) -> Kernel {
        Kernel {
            entry: entry.into(),
            params,
            grid,
            block,
            cluster: [1; 3],
            persistent: false,
            shared_bytes: 0,
            early: false,
            concurrent: false,
            clips: Clips::default(),
        }
    }

    /// Gives grid and tensor maps the values of the dynamic sizes.
    fn fix(&mut self, values: &[i64]) {
        self.grid = std::mem::take(&mut self.clips).at(self.grid, values);
        for param in &mut self.params {
            if let Param::TensorMap(map) = param
                && let Some((dim, size)) = map.dynamic.take()
                && let (Some(extent), Some(value)) = (map.extents.get_mut(dim), values.get(size))
            {
                *extent = *value;
            }
        }
    }

    /// What a launch must hold whatever the device, for a kernel of the program: the parameters exist, no extent is zero, and the grid is
    /// a whole number of clusters.
    pub(crate) fn check(&self, program: &Kernels) -> Result<()> {
        let entry = &self.entry;
        let follows = self.clips.0.iter().flatten().any(|f| f.size >= program.sizes.len());
        if follows || self.params.iter().any(|param| is_missing(param, program)) {
            return Err(Error::bug(Code::LaunchParams, format!("kernel {entry} takes a parameter that is not there")));
        }
        if [self.grid, self.block, self.cluster].as_flattened().contains(&0) {
            return Err(Error::bug(Code::LaunchExtent, format!("kernel {entry} has a launch extent of zero")));
        }
        if self.grid.iter().zip(self.cluster).all(|(grid, cluster)| grid.is_multiple_of(cluster)) {
            return Ok(());
        }
        let (grid, cluster) = (self.grid, self.cluster);
        let message = format!("kernel {entry}: the grid {grid:?} is not a whole number of clusters {cluster:?}");
        Err(Error::bug(Code::LaunchCluster, message))
    }
}

fn is_missing(param: &Param, program: &Kernels) -> bool {
    match param {
        Param::Arg(n) => *n >= program.args.len(),
        Param::Workspace(n) => *n >= program.workspace.len(),
        Param::Size(n) => *n >= program.sizes.len(),
        Param::TensorMap(map) => {
            let (rank, sizes) = (map.extents.len(), program.sizes.len());
            let is_array = matches!(*map.array, Param::Arg(_) | Param::Workspace(_));
            let dynamic = map.dynamic.is_some_and(|(dim, size)| dim >= rank || size >= sizes);
            !is_array || is_missing(&map.array, program) || dynamic
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_code_runs_on_chips_of_its_kind() {
        let runs = |chip: &str, capability| Cubin::new(chip, "ptxas", vec![]).runs_on(capability);
        assert!(runs("sm_80", (8, 0)) && runs("sm_80", (8, 9)) && runs("sm_90a", (9, 0)) && runs("sm_90", (9, 0)));
        assert!(!runs("sm_86", (8, 0)) && !runs("sm_80", (9, 0)) && !runs("sm_90a", (9, 1)) && !runs("gfx", (9, 0)));
    }

    #[test]
    fn shapes_agree_with_their_strides() {
        let with = |shape: &[i64], strides: &[i64]| Arg {
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            ..Arg::new("A", DType::F32, &[1], Access::Read)
        };
        let dense = with(&[4, 8], &[8, 1]);
        let flat = with(&[32], &[1]);
        assert!(dense.takes_shape(&[4, 8]) && flat.takes_shape(&[4, 8]) && with(&[1], &[1]).takes_shape(&[]));
        assert!(!flat.takes_shape(&[4, 9]));
        assert!([&[32][..], &[8, 4], &[4, 9], &[4, 8, 1], &[]].iter().all(|given| !dense.takes_shape(given)));
        let apart = with(&[100, 100], &[128, 1]);
        assert!([&[100, 128][..], &[101, 128], &[99 * 128 + 100]].iter().all(|given| apart.takes_shape(given)));
        let wrong = [&[100, 100][..], &[99, 128], &[100, 129], &[128, 100], &[100 * 128]];
        assert!(wrong.iter().all(|given| !apart.takes_shape(given)));
        let columns = with(&[4, 6], &[1, 4]);
        assert!([&[24][..], &[6, 4], &[7, 4]].iter().all(|given| columns.takes_shape(given)));
        assert!([&[4, 6][..], &[6, 5], &[5, 4], &[23]].iter().all(|given| !columns.takes_shape(given)));
        let mixed = with(&[2, 3, 5], &[8, 16, 1]);
        assert!([&[45][..], &[3, 2, 8]].iter().all(|given| mixed.takes_shape(given)));
    }

    #[test]
    fn kernels_that_cannot_be_launched_are_refused() {
        let params = vec![Param::Arg(0), Param::Workspace(0)];
        let kernel = Kernel { cluster: [2, 1, 1], ..Kernel::new("main", params, [4, 1, 1], [32, 1, 1]) };
        let program = |args: usize, workspace: usize| {
            let mut all = Kernels::new("p", "sm_80", 70, "", Vec::new());
            all.args = vec![Arg::new("A", DType::F32, &[4], Access::Read); args];
            all.workspace = vec![Workspace::new("W", 4); workspace];
            all
        };
        assert_eq!(kernel.check(&program(1, 1)), Ok(()));
        assert_eq!(kernel.check(&program(1, 0)).unwrap_err().code(), Code::LaunchParams);
        assert_eq!(kernel.check(&program(0, 1)).unwrap_err().code(), Code::LaunchParams);
        let sized = Kernel { params: vec![Param::Size(0)], ..kernel.clone() };
        assert_eq!(sized.check(&program(1, 1)).unwrap_err().code(), Code::LaunchParams);
        let zero = Kernel { block: [0, 1, 1], ..kernel.clone() };
        assert_eq!(zero.check(&program(1, 1)).unwrap_err().code(), Code::LaunchExtent);
        let ragged = Kernel { grid: [5, 1, 1], ..kernel };
        assert_eq!(ragged.check(&program(1, 1)).unwrap_err().code(), Code::LaunchCluster);
    }

    /// The launcher in Python has a table of its own.
    #[test]
    fn the_example_in_python_has_the_same_tensor_map_types() {
        let text = include_str!("../examples/launch/launch.py");
        let (_, table) = text.split_once("MAP_TYPE = {").unwrap();
        let (table, _) = table.split_once('}').unwrap();
        let written: Vec<&str> = table.split(',').map(str::trim).collect();
        let known =
            DType::ALL.into_iter().filter_map(|dtype| Some(format!("\"{dtype}\": {}", tensor_map_type(dtype)?)));
        let known: Vec<String> = known.collect();
        assert_eq!(written.len(), known.len());
        assert!(known.iter().all(|entry| written.contains(&entry.as_str())), "{written:?}\n{known:?}");
    }
}
