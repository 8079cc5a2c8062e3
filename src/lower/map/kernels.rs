//! Every nest of the root becomes a kernel, launched in order; global buffers that are no parameter become workspace.

use crate::error::{Code, Error, Result};
use crate::ir::lowered::LoweredKernel;
use crate::ir::{BufferId, Func, GridDependency, LaunchOptions, Scope, Stmt, conflict, visit};

/// One kernel per statement of the root.
pub fn split(func: &Func) -> Result<Vec<LoweredKernel>> {
    check_handovers(func)?;
    let several = func.body.len() > 1;
    let named = |(i, nest): (usize, &Stmt)| {
        let name = if several { format!("{}_{i}", func.name) } else { func.name.clone() };
        kernel_of(func, name, nest.clone())
    };
    let mut kernels: Vec<LoweredKernel> = func.body.iter().enumerate().map(named).collect();
    for i in 0..kernels.len() {
        if kernels[i].concurrent {
            check_concurrent(func, &kernels[..i], &kernels[i], &func.body[i])?;
            kernels[i - 1].precedes_concurrent = true;
        }
    }
    Ok(kernels)
}

/// Checks a concurrent kernel: the previous kernel must release it, and it must have no [`conflict`] with a kernel that may still run.
fn check_concurrent(func: &Func, before: &[LoweredKernel], kernel: &LoweredKernel, nest: &Stmt) -> Result<()> {
    let launch = func.launches_of(nest).into_iter().find(|launch| launch.options.concurrent);
    let step = launch.map_or_else(String::new, |launch| launch.text(func));
    let no = |what: String| Error::input(Code::LowerConcurrent, format!("{step}: {what}")).of_step(step.clone());
    if kernel.grid_dependency.is_none() {
        return Err(no(format!("kernel {} has no programmatic dependent launch", kernel.func.name))
            .help("state grid_dependency=1, too"));
    }
    let Some(first) = before.iter().rposition(|other| !other.concurrent) else {
        return Err(no(format!("no kernel of the program precedes {}", kernel.func.name)).help("remove `concurrent=1`"));
    };
    if let Some(last) = before.last().filter(|last| last.grid_dependency != Some(GridDependency::Releases)) {
        return Err(no(format!("the previous kernel {} does not release the next kernel", last.func.name))
            .help("give that kernel grid_dependency=2"));
    }
    for other in &before[first..] {
        if let Some(id) = conflict(&other.func.body, &kernel.func.body) {
            let name = &func.buffer(id).name;
            let who = if visit::writes(&other.func.body).contains(&id) { "writes" } else { "reads" };
            return Err(no(format!("kernel {}, with which it would run concurrently, {who} {name}", other.func.name))
                .about_buffer(name)
                .help("remove `concurrent=1`: the kernel then waits before its first access"));
        }
    }
    Ok(())
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
        concurrent: options.concurrent,
        l2_prefetch: options.l2_prefetch,
        workspace,
        ..LoweredKernel::new(func)
    }
}
