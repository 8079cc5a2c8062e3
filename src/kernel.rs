//! What compiling yields: PTX text and everything that a launch needs. No LLVM and no driver here.

use crate::array::Array;
use crate::dtype::DType;
use crate::error::Result;
use serde::{Deserialize, Serialize};

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
    /// What the caller passes, in order.
    pub args: Vec<Arg>,
    /// Global buffers that the launcher allocates once per load.
    pub workspace: Vec<Workspace>,
    /// In launch order.
    pub kernels: Vec<Kernel>,
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
            args: Vec::new(),
            workspace: Vec::new(),
            kernels,
        }
    }

    /// The module's PTX.
    pub fn ptx(&self) -> &str {
        &self.text
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
}

impl Arg {
    /// An array of these extents (outermost first) with packed rows, at an address that is a multiple of 16 bytes.
    pub fn new(name: impl Into<String>, dtype: DType, shape: &[i64], access: Access) -> Arg {
        let mut strides = vec![1; shape.len()];
        for d in (1..shape.len()).rev() {
            strides[d - 1] = strides[d] * shape[d];
        }
        let elements: i64 = shape.iter().product();
        let bytes = dtype.bytes_of(u64::try_from(elements).unwrap_or(0));
        Arg { name: name.into(), dtype, shape: shape.to_vec(), strides, align: 16, bytes, access, values: None }
    }
}

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
        }
    }
}
