//! Every nest of the root becomes a kernel, launched in order; global buffers that are no parameter become workspace.

use crate::error::{Code, Error, Result};
use crate::ir::lowered::LoweredKernel;
use crate::ir::{BufferId, Func, LaunchOptions, Scope, Stmt, visit};

/// One kernel per statement of the root.
pub fn split(func: &Func) -> Result<Vec<LoweredKernel>> {
    check_handovers(func)?;
    let several = func.body.len() > 1;
    Ok(func
        .body
        .iter()
        .enumerate()
        .map(|(i, nest)| {
            let name = if several { format!("{}_{i}", func.name) } else { func.name.clone() };
            kernel_of(func, name, nest.clone())
        })
        .collect())
}

/// Only global memory outlives a kernel.
fn check_handovers(func: &Func) -> Result<()> {
    for (id, b) in func.buffers.iter().enumerate().filter(|(_, b)| b.scope != Scope::Global) {
        let id = BufferId(id as u32);
        let users = func.body.iter().filter(|s| uses(s, id)).count();
        if users > 1 {
            return Err(Error::input(
                Code::LowerHandover,
                format!(
                    "{} is {}, but {users} nests of the root use it, and each becomes a kernel of its own",
                    b.name,
                    b.scope.name()
                ),
            )
            .about_buffer(&b.name)
            .help("move the nests under one loop with compute_at or reverse_compute_at")
            .help(format!("or keep {} global", b.name)));
        }
    }
    Ok(())
}

fn uses(stmt: &Stmt, buffer: BufferId) -> bool {
    let body = std::slice::from_ref(stmt);
    visit::reads(body).contains(&buffer) || visit::writes(body).contains(&buffer)
}

fn kernel_of(func: &Func, name: String, nest: Stmt) -> LoweredKernel {
    let stated = func.launches_of(&nest).into_iter().map(|launch| launch.options);
    let options = stated.fold(LaunchOptions::default(), LaunchOptions::and);
    let body = vec![nest];
    let (reads, writes) = (visit::reads(&body), visit::writes(&body));
    let used = |id: &BufferId| reads.contains(id) || writes.contains(id);
    let mut params: Vec<BufferId> = func.params.iter().copied().filter(used).collect();
    let workspace: Vec<BufferId> = (0..func.buffers.len() as u32)
        .map(BufferId)
        .filter(|id| used(id) && func.buffer(*id).scope == Scope::Global && !func.params.contains(id))
        .collect();
    params.extend(&workspace);
    let func = Func { name, params, body, launches: Vec::new(), ..func.clone() };
    LoweredKernel {
        min_blocks: options.min_blocks,
        grid_dependency: options.grid_dependency,
        l2_prefetch: options.l2_prefetch,
        workspace,
        ..LoweredKernel::new(func)
    }
}
