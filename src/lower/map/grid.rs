//! Loops over the blocks of the grid: what `bind L blockIdx.x persistent` asks of the loops around it.

use crate::error::{Code, Error, Result};
use crate::ir::{Axis, For, Func, Stmt, Var, visit};

/// The loop that the blocks of the grid walk together, if a kernel has one.
///
/// It is the whole kernel: what stood around it would run before a block knows its first iteration, and a second loop over
/// blocks would find in shared memory what another iteration left there.
pub fn walked(func: &Func) -> Result<Option<Var>> {
    let loops = visit::loops(&func.body);
    let Some(l) = loops.iter().find(|l| l.is_persistent()) else { return Ok(None) };
    let name = func.var_name(l.var);
    let refused = |message: String| Error::input(Code::LowerPersistent, message).about_loop(name);
    if !matches!(func.body.as_slice(), [Stmt::For(outermost)] if outermost.var == l.var) {
        let message = format!("loop {name} is persistent, but it is not the outermost of its nest");
        return Err(refused(message).help(format!("reorder {name} to the front, or bind it without `persistent`")));
    }
    let blocks = |o: &&&For| matches!(o.axis(), Some(Axis::BlockX | Axis::BlockY | Axis::BlockZ)) && o.var != l.var;
    if let Some(other) = loops.iter().find(blocks) {
        let other = func.var_name(other.var);
        let message = format!("loop {name} is persistent, but loop {other} is bound to blocks, too");
        return Err(refused(message)
            .about_loop(other)
            .help("fuse the two, or rasterize them, and bind the resulting loop to blockIdx.x persistent"));
    }
    Ok(Some(l.var))
}
