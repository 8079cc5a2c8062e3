//! Launches kernels that `warploom dump --out DIR` wrote, through cudarc: `cargo run -- DIR`. Inputs are bytes of a counter, and a
//! checksum of each output is printed. The kernels come from the manifest alone; warploom is no dependency.

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DevicePtr, sys};
use cudarc::nvrtc::Ptx;
use serde::Deserialize;
use std::ffi::{c_uint, c_void};
use std::path::Path;
use std::sync::Arc;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Deserialize)]
struct Manifest {
    version: u32,
    ptx: String,
    arguments: Vec<Argument>,
    workspace: Vec<Workspace>,
    kernels: Vec<Kernel>,
}

#[derive(Deserialize)]
struct Argument {
    name: String,
    bytes: usize,
    access: String,
}

#[derive(Deserialize)]
struct Workspace {
    bytes: usize,
}

#[derive(Deserialize)]
struct Kernel {
    entry: String,
    params: Vec<Param>,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    cluster: [c_uint; 3],
    persistent: bool,
    shared_bytes: c_uint,
    pdl: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Param {
    Arg(usize),
    Workspace(usize),
    TensorMap(TensorMap),
}

#[derive(Deserialize)]
struct TensorMap {
    array: Box<Param>,
    dtype: String,
    extents: Vec<u64>,
    strides: Vec<u64>,
    #[serde(rename = "box")]
    tile: Vec<u32>,
    swizzle: u32,
    promotion: u32,
}

/// A parameter's value; tensor maps are aligned to 64 bytes.
#[repr(C, align(64))]
struct Value([u64; 16]);

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).ok_or("name the folder that `warploom dump --out` wrote")?;
    let folder = Path::new(&folder);
    let manifest: Manifest = serde_json::from_str(&std::fs::read_to_string(folder.join("manifest.json"))?)?;
    if manifest.version != 1 {
        return Err("a manifest of another version".into());
    }
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    let module = context.load_module(Ptx::from_file(folder.join(&manifest.ptx)))?;
    let mut buffers = Vec::new();
    for argument in &manifest.arguments {
        let bytes: Vec<u8> = (0..argument.bytes).map(|n| (n % 60) as u8).collect();
        buffers.push(stream.clone_htod(&bytes)?);
    }
    let workspace = manifest
        .workspace
        .iter()
        .map(|w| stream.alloc_zeros::<u8>(w.bytes))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let address = |param: &Param| match param {
        Param::Arg(n) => buffers[*n].device_ptr(&stream).0,
        Param::Workspace(n) => workspace[*n].device_ptr(&stream).0,
        Param::TensorMap(_) => 0,
    };
    for kernel in &manifest.kernels {
        let function = module.load_function(&kernel.entry)?;
        let mut values = Vec::new();
        for param in &kernel.params {
            values.push(match param {
                Param::TensorMap(map) => encoded(map, address(&map.array))?,
                other => Value([address(other), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            });
        }
        launch(&context, &stream, &function, kernel, &mut values)?;
    }
    stream.synchronize()?;
    for (argument, buffer) in manifest.arguments.iter().zip(&buffers).filter(|(a, _)| a.access != "read") {
        let bytes = stream.clone_dtoh(buffer)?;
        let sum = bytes.iter().fold(0u64, |sum, b| sum.wrapping_mul(31).wrapping_add(u64::from(*b)));
        println!("{}: {} bytes, checksum {sum:016x}", argument.name, bytes.len());
    }
    Ok(())
}

/// Launches a kernel; `values` has one of each parameter.
fn launch(
    context: &CudaContext,
    stream: &Arc<CudaStream>,
    function: &CudaFunction,
    kernel: &Kernel,
    values: &mut [Value],
) -> Result<()> {
    use sys::CUfunction_attribute::{
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
    };
    function.set_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel.shared_bytes as i32)?;
    let mut attributes = Vec::new();
    let [x, y, z] = kernel.cluster;
    if kernel.cluster != [1, 1, 1] {
        if x * y * z > 8 {
            function.set_attribute(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)?;
        }
        let mut attribute: sys::CUlaunchAttribute = unsafe { std::mem::zeroed() };
        attribute.id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attribute.value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
        attributes.push(attribute);
    }
    if kernel.pdl {
        let mut attribute: sys::CUlaunchAttribute = unsafe { std::mem::zeroed() };
        attribute.id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attribute.value.programmaticStreamSerializationAllowed = 1;
        attributes.push(attribute);
    }
    let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) = (kernel.grid, kernel.block);
    let mut config = sys::CUlaunchConfig {
        gridDimX: grid_x,
        gridDimY: grid_y,
        gridDimZ: grid_z,
        blockDimX: block_x,
        blockDimY: block_y,
        blockDimZ: block_z,
        sharedMemBytes: kernel.shared_bytes,
        hStream: stream.cu_stream(),
        attrs: attributes.as_mut_ptr(),
        numAttrs: attributes.len() as c_uint,
    };
    if kernel.persistent {
        // Any number of blocks in x does all the work: as many as the device holds at once.
        let resident = if kernel.cluster == [1, 1, 1] {
            let threads = block_x * block_y * block_z;
            let each =
                function.occupancy_max_active_blocks_per_multiprocessor(threads, kernel.shared_bytes as usize, None)?;
            let multiprocessors = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
            each * context.attribute(multiprocessors)? as c_uint
        } else {
            let mut clusters = 0;
            unsafe { sys::cuOccupancyMaxActiveClusters(&mut clusters, function.cu_function(), &config).result()? };
            clusters as c_uint * x
        };
        config.gridDimX = grid_x.min(resident);
    }
    let mut pointers: Vec<*mut c_void> = values.iter_mut().map(|v| (&raw mut v.0).cast()).collect();
    context.bind_to_thread()?;
    // The manifest says what the kernel takes; the addresses are those of live buffers.
    unsafe {
        sys::cuLaunchKernelEx(&config, function.cu_function(), pointers.as_mut_ptr(), std::ptr::null_mut()).result()?
    };
    Ok(())
}

/// A CUtensorMap. The driver counts dimensions from the innermost one, and strides in bytes.
fn encoded(map: &TensorMap, address: u64) -> Result<Value> {
    use sys::CUtensorMapDataType as Type;
    let (data_type, bytes) = match map.dtype.as_str() {
        "u8" | "s8" | "e4m3" | "e5m2" => (Type::CU_TENSOR_MAP_DATA_TYPE_UINT8, 1),
        "f16" => (Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2),
        "bf16" => (Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2),
        "f32" => (Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4),
        "s32" => (Type::CU_TENSOR_MAP_DATA_TYPE_INT32, 4),
        "u32" => (Type::CU_TENSOR_MAP_DATA_TYPE_UINT32, 4),
        other => return Err(format!("a tensor map of {other}").into()),
    };
    let swizzle = match map.swizzle {
        32 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        64 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        128 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        _ => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
    };
    let promotion = match map.promotion {
        64 => sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
        128 => sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        256 => sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        _ => sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_NONE,
    };
    let extents: Vec<u64> = map.extents.iter().rev().copied().collect();
    let strides: Vec<u64> = map.strides.iter().rev().skip(1).map(|s| s * bytes).collect();
    let tile: Vec<u32> = map.tile.iter().rev().copied().collect();
    let ones = vec![1u32; tile.len()];
    let mut value = Value([0; 16]);
    unsafe {
        sys::cuTensorMapEncodeTiled(
            (&raw mut value.0).cast(),
            data_type,
            extents.len() as u32,
            address as *mut c_void,
            extents.as_ptr(),
            strides.as_ptr(),
            tile.as_ptr(),
            ones.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            promotion,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        .result()?;
    }
    Ok(value)
}
