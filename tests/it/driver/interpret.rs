//! Has the mock driver interpret the PTX of each launch, with the grid, the parameters and the module text of that launch.

use super::mock::{Launch, Mock};
use std::sync::Mutex;
use warploom::kernel::{Access, Arg, Kernel, Param};
use warploom::{Array, DType, Kernels, simulate};

/// The programs whose kernels may be launched.
static PROGRAMS: Mutex<Vec<Kernels>> = Mutex::new(Vec::new());

/// From now on the driver runs the kernels of these programs on the simulator.
pub fn programs(mock: &Mock, programs: &[Kernels]) {
    *PROGRAMS.lock().unwrap() = programs.to_vec();
    mock.executor(run);
}

/// CUDA_ERROR_LAUNCH_FAILED where the launch is not the one that its program says, or the simulator finds anything wrong.
extern "C" fn run(launch: &Launch) -> i32 {
    let programs = PROGRAMS.lock().unwrap();
    let Some(program) = programs.iter().find(|program| program.ptx() == launch.text()) else {
        eprintln!("{}: a module that no program has", launch.entry());
        return 719;
    };
    match program.kernels.iter().find(|kernel| kernel.entry == launch.entry()).map(|k| interpret(program, k, launch)) {
        Some(Ok(())) => 0,
        Some(Err(error)) => {
            eprintln!("{}: {error}", launch.entry());
            719
        }
        None => 719,
    }
}

/// The array that a parameter is the address or the tensor map of.
fn array(param: &Param) -> &Param {
    if let Param::TensorMap(map) = param { &map.array } else { param }
}

fn interpret(program: &Kernels, kernel: &Kernel, launch: &Launch) -> Result<(), String> {
    let [x, y, z] = kernel.grid;
    let fewer = kernel.persistent && launch.grid[0] < x && launch.grid[1..] == [y, z];
    let as_said =
        (launch.block, launch.cluster, launch.shared_bytes) == (kernel.block, kernel.cluster, kernel.shared_bytes);
    if !as_said || launch.grid != kernel.grid && !fewer {
        return Err("a launch of other extents than the program says".into());
    }
    // Each array once, with its address.
    let mut arrays: Vec<(&Param, u64)> = Vec::new();
    for (param, (address, is_map)) in kernel.params.iter().zip(launch.parameters()) {
        if is_map != matches!(param, Param::TensorMap(_)) {
            return Err("an address for a tensor map, or the other way round".into());
        }
        match arrays.iter().find(|(known, _)| *known == array(param)) {
            Some((_, known)) if *known != address => return Err("two addresses of one array".into()),
            Some(_) => {}
            None => arrays.push((array(param), address)),
        }
    }
    let place = |param: &Param| Param::Arg(arrays.iter().position(|(known, _)| *known == param).unwrap_or(usize::MAX));
    let mut alone = kernel.clone();
    (alone.grid, alone.persistent) = (launch.grid, false);
    for param in &mut alone.params {
        match param {
            Param::TensorMap(map) => *map.array = place(&map.array),
            plain => *plain = place(plain),
        }
    }
    let mut one = Kernels::new(&program.name, &program.target, program.ptx_version, program.ptx(), vec![alone]);
    let before = program.kernels.iter().take_while(|other| other.entry != kernel.entry).flat_map(|other| &other.params);
    let known: Vec<&Param> = before.map(array).collect();
    one.args = arrays.iter().map(|(param, _)| described(program, param, known.contains(param))).collect();
    let mut values = Vec::new();
    for (arg, (_, address)) in one.args.iter().zip(&arrays) {
        let shape: Vec<usize> = arg.shape.iter().map(|extent| *extent as usize).collect();
        // SAFETY: the driver has seen that the address is in an allocation, which the test has made as large as the program says.
        let bytes = unsafe { launch.memory(*address, arg.bytes as usize) }.to_vec();
        values.push(Array { dtype: arg.dtype, shape, bytes });
    }
    simulate(&one, &mut values).map_err(|error| error.to_string())?;
    for (value, (_, address)) in values.iter().zip(&arrays) {
        // SAFETY: as above; the view of before is gone.
        unsafe { launch.memory(*address, value.bytes.len()) }.copy_from_slice(&value.bytes);
    }
    Ok(())
}

/// An array as an argument of one kernel: what an earlier kernel has made is read.
fn described(program: &Kernels, param: &Param, made: bool) -> Arg {
    let mut arg = match param {
        Param::Arg(n) => program.args[*n].clone(),
        Param::Workspace(n) => {
            let bytes = program.workspace[*n].bytes as i64;
            Arg::new(&program.workspace[*n].name, DType::U8, &[bytes], Access::ReadWrite)
        }
        other => panic!("{other:?} is no array"),
    };
    if made {
        arg.access = Access::Read;
    }
    arg
}
