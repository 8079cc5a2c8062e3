//! Operands of GEMMs that are elementwise functions of the inputs, such as dequantised weights. The reference computes each operand once and
//! reuses it for all rows of the GEMM.

use super::definition::Definition;
use super::product;
use super::{Program, in_threads};
use crate::array::Array;
use crate::error::Result;
use crate::ir::{BufferId, Expr, Func, visit};
use std::collections::HashMap;

/// The most elements of an operand: 8 bytes each, and 24 while they are computed.
const MOST: usize = 1 << 28;

/// A computed operand, row-major.
pub(super) struct Operand {
    /// Its elements, as f32.
    pub values: Array,
    /// The error bound of each element, as f32.
    pub errors: Array,
    /// The strides of its indices.
    pub strides: Vec<i64>,
}

/// The operands of GEMMs that are elementwise functions of the inputs.
pub(super) fn of<'a>(
    func: &'a Func,
    definitions: &HashMap<BufferId, Definition<'a>>,
    inputs: &HashMap<BufferId, &'a Array>,
) -> Result<HashMap<BufferId, Operand>> {
    let mut out = HashMap::new();
    let wanted = product::factors(definitions);
    if wanted.is_empty() {
        return Ok(out);
    }
    let program = Program { func, definitions: definitions.clone(), inputs: inputs.clone(), products: HashMap::new() };
    for id in wanted.into_iter().filter(|id| is_elementwise(&program, *id, 0) && is_narrow(func, *id)) {
        let Some(shape) = func.buffer(id).const_shape() else { continue };
        let shape: Vec<usize> = shape.into_iter().map(|n| n.max(0) as usize).collect();
        let elements = shape.iter().try_fold(1usize, |n, extent| n.checked_mul(*extent));
        let Some((last, leading)) = shape.split_last().filter(|_| elements.is_some_and(|n| (1..=MOST).contains(&n)))
        else {
            continue;
        };
        let rows: Vec<usize> = (0..leading.iter().product()).collect();
        let (values, bounds) = in_threads(&program, id, leading, &rows, *last)?;
        let narrow: Vec<f32> = values.iter().map(|v| *v as f32).collect();
        // The rounding to f32 adds to the bound; `next_up` rounds the bound up.
        let error = |((v, e), narrow): ((&f64, &f64), &f32)| ((e + (v - f64::from(*narrow)).abs()) as f32).next_up();
        let exact = |((v, e), narrow): ((&f64, &f64), &f32)| *e == 0.0 && *v == f64::from(*narrow);
        let triples = || values.iter().zip(&bounds).zip(&narrow);
        let errors: Vec<f32> = triples().map(|t| if exact(t) { 0.0 } else { error(t) }).collect();
        let values = Array::from_slice(&shape, &narrow)?;
        let stride = |d: usize| shape[d + 1..].iter().product::<usize>() as i64;
        let strides = (0..shape.len()).map(stride).collect();
        out.insert(id, Operand { values, errors: Array::from_slice(&shape, &errors)?, strides });
    }
    Ok(out)
}

/// Whether the buffer's type has no more precision than f32.
fn is_narrow(func: &Func, id: BufferId) -> bool {
    let dtype = func.buffer(id).dtype;
    if dtype.is_float() { dtype.bits() <= 32 } else { dtype.bits() <= 16 }
}

/// Whether a buffer is an input, or each of its elements follows from elements of inputs without a reduction.
fn is_elementwise(program: &Program<'_>, id: BufferId, depth: usize) -> bool {
    if program.inputs.contains_key(&id) {
        return true;
    }
    let Some(definition) = program.definitions.get(&id) else { return false };
    let mut loaded = Vec::new();
    visit::walk_expr(definition.value, &mut |e: &Expr| {
        if let Expr::Load { buffer, .. } = e {
            loaded.push(*buffer);
        }
    });
    let plain = definition.combine.is_none() && definition.joint.is_none();
    plain && depth < 64 && loaded.into_iter().all(|buffer| is_elementwise(program, buffer, depth + 1))
}
