//! Registers that the consumers of a ring fill from device memory are loaded an iteration ahead.
//!
//! ```text
//! for k                        x_next = X[0]
//!   x = X[k]              ->   for k
//!   wait full[k]                 x = x_next
//!   compute with x               if k + 1 < n: x_next = X[k + 1]
//!                                wait full[k]; compute with x
//! ```
//!
//! A load from device memory has a higher latency than the MMAs in front of the first use can hide. `x_next` was loaded during the previous
//! iteration. A buffer of more than [`MOST_REGISTERS`] registers a thread is not loaded ahead, because that would double its registers.

use crate::error::{Code, Result};
use crate::ir::{Buffer, BufferId, Cond, Expr, For, Func, Index, Scope, Stmt, Store, visit};
use crate::lower::elements;
use crate::lower::map::blocks::guarded;

/// The most registers of a buffer that is loaded ahead. Set by hand: scales have up to four.
const MOST_REGISTERS: i64 = 16;

/// The statements before a loop of consumers, and the loop, whose registers are loaded ahead. `whole` is the kernel.
///
/// # Errors
/// A fault of the pass that makes buffers flat.
pub fn loaded_ahead(mut l: For, whole: &[Stmt], func: &mut Func) -> Result<(Vec<Stmt>, For)> {
    let written = visit::writes(whole);
    let Some(extent) = l.extent.as_int().filter(|n| *n > 1) else { return Ok((Vec::new(), l)) };
    let (mut first, mut moves, mut loads, mut rest) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let body = std::mem::take(&mut l.body);
    for (at, stmt) in body.iter().enumerate() {
        let at_zero = visit::subst_body(vec![stmt.clone()], &[(l.var, Index::Int(0))].into());
        // Nothing else fills the registers, and nothing reads what the iteration before has left in them.
        let filled = filled_from_memory(stmt, &written, func).filter(|b| {
            let alone = stores_to(*b, std::slice::from_ref(stmt)) == stores_to(*b, whole);
            at_zero[0] != *stmt && alone && !visit::reads(&body[..at]).contains(b)
        });
        let size = filled.map(|b| elements(func.buffer(b), Code::LowerRoles)).transpose()?.unwrap_or(0);
        let few = filled.filter(|b| size * i64::from(func.buffer(*b).dtype.bits()) <= 32 * MOST_REGISTERS);
        let Some(buffer) = few else {
            rest.push(stmt.clone());
            continue;
        };
        let (name, dtype) = (func.buffer(buffer).name.clone(), func.buffer(buffer).dtype);
        let name = func.unused_buffer_name(&format!("{name}_next"));
        let next = func.add_buffer(Buffer::new(name, dtype, vec![Index::Int(size)], Scope::Local));
        let mut load = vec![stmt.clone()];
        visit::each_store(&mut load, &mut |s| s.buffer = next);
        first.extend(visit::subst_body(load.clone(), &[(l.var, Index::Int(0))].into()));
        loads.extend(visit::subst_body(load, &[(l.var, Index::Var(l.var) + 1)].into()));
        // Elements narrower than 32 bits are copied as whole registers.
        let shared = (32 / i64::from(dtype.bits())).max(1);
        let lanes = if size % shared == 0 { shared } else { 1 };
        let move_of = |first: i64| {
            let value = Expr::Load { buffer: next, indices: vec![Index::Int(first)], lanes: lanes as u32 };
            Stmt::Store(Store { lanes: lanes as u32, ..Store::new(buffer, vec![Index::Int(first)], value) })
        };
        moves.extend((0..size / lanes).map(|n| move_of(n * lanes)));
    }
    let ahead = if loads.is_empty() { loads } else { guarded(Cond::lt(l.var, extent - 1), loads) };
    l.body = [moves, ahead, rest].concat();
    Ok((first, l))
}

/// How many statements write a buffer.
fn stores_to(buffer: BufferId, body: &[Stmt]) -> usize {
    let mut count = 0;
    visit::walk(body, &mut |s| {
        let leaf = matches!(s, Stmt::Store(_) | Stmt::Call(_) | Stmt::Bulk(_));
        count += usize::from(leaf && visit::writes(std::slice::from_ref(s)).contains(&buffer));
    });
    count
}

/// The registers that a statement fills with elements of device memory that the kernel does not write.
fn filled_from_memory(stmt: &Stmt, written: &[BufferId], func: &Func) -> Option<BufferId> {
    match stmt {
        Stmt::Store(s) if func.buffer(s.buffer).scope == Scope::Local && !s.asynchronous => {
            let (mut any, mut all) = (false, true);
            visit::walk_expr(&s.value, &mut |e| {
                if let Expr::Load { buffer, .. } = e {
                    any = true;
                    all &= func.buffer(*buffer).scope == Scope::Global && !written.contains(buffer);
                }
            });
            (any && all).then_some(s.buffer)
        }
        // Unaligned vector loads keep whole aligned words, not the buffer's elements.
        Stmt::For(l) if l.code.realigns => None,
        Stmt::For(_) | Stmt::Block(_) | Stmt::If(_) => match visit::children(stmt).as_slice() {
            [body] => match body.as_slice() {
                [one] => filled_from_memory(one, written, func),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::ir::LoopKind;

    /// The statements of a test: in front of the loop, and its body.
    struct Parts {
        before: Vec<Stmt>,
        body: Vec<Stmt>,
    }

    fn copy(to: BufferId, at: Index, from: BufferId, index: Index) -> Stmt {
        Stmt::Store(Store::new(to, vec![at], Expr::load(from, vec![index])))
    }

    /// Whether a load from X to `x`, of so many elements, goes ahead in a loop that copies `x` to Y. `change` has X, `x` and the statements.
    fn goes_ahead(elements: i64, change: impl Fn(BufferId, BufferId, &mut Parts)) -> bool {
        let mut func = Func::default();
        let buffer = |name: &str, size, scope| Buffer::new(name, DType::F32, vec![Index::Int(size)], scope);
        let [from, to] = ["X", "Y"].map(|name| func.add_buffer(buffer(name, 1024, Scope::Global)));
        let x = func.add_buffer(buffer("x", elements, Scope::Local));
        let k = func.add_var("k");
        let load = copy(x, Index::Int(0), from, Index::Var(k) * 7);
        let mut parts = Parts { before: Vec::new(), body: vec![load, copy(to, Index::Var(k), x, Index::Int(0))] };
        change(from, x, &mut parts);
        let l = For::new(k, 4, LoopKind::Serial, parts.body);
        let whole = [parts.before, vec![Stmt::For(l.clone())]].concat();
        let (first, ahead) = loaded_ahead(l.clone(), &whole, &mut func).unwrap();
        assert_eq!(first.is_empty(), ahead == l);
        ahead != l
    }

    #[test]
    fn only_what_an_iteration_fills_by_itself_is_loaded_ahead() {
        assert!(goes_ahead(1, |_, _, _| {}));
        assert!(goes_ahead(MOST_REGISTERS, |_, _, _| {}));
        assert!(!goes_ahead(MOST_REGISTERS + 1, |_, _, _| {}));
        // A read in front of the load gets the element of the previous iteration.
        assert!(!goes_ahead(1, |_, _, parts| parts.body.swap(0, 1)));
        // Another statement fills the registers, too.
        assert!(!goes_ahead(2, |_, _, parts| parts.before.push(parts.body[0].clone())));
        // The kernel writes what is loaded.
        assert!(!goes_ahead(1, |from, x, parts| parts.body.push(copy(from, Index::Int(0), x, Index::Int(0)))));
    }
}
