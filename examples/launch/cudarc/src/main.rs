//! Multiplies matrices on device 0: `cargo run`.

use cudarc::driver::CudaContext;
use launch::{gemm, product, recorded, split, split_product, stream};

fn main() -> launch::Result<()> {
    let context = CudaContext::new(0)?;
    let stream = stream(&context)?;
    let kernels = gemm::Kernels::load(&context)?;
    for shapes in &gemm::SHAPES {
        match product(&stream, &kernels, shapes) {
            Ok([_, _, c]) => println!("{shapes:?}: C[0..4] = {:?}", &c[..4]),
            Err(error) => println!("{error}"),
        }
    }
    let c = recorded(&stream, &kernels, &gemm::SHAPES[1], 2)?;
    println!("from a graph: C[0..4] = {:?}", &c[..4]);
    let [_, _, c] = split_product(&stream, &split::Kernels::load(&context)?)?;
    println!("with workspace: C[0..4] = {:?}", &c[..4]);
    Ok(())
}
