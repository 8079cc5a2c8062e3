//! What a row promises of itself, checked when the rows are built.

use super::{Action, Emit, Level, Opaque, Place, Row};
use crate::ir::layout::{Coordinate, Layout};
use crate::ir::{Func, Stmt, visit};

/// What is wrong with a row; nothing for one that holds together.
pub(super) fn faults(row: &Row) -> Vec<String> {
    let mut out = Vec::new();
    match row.program() {
        Ok(func) => {
            dimensions(row, &func, &mut out);
            operands(row, &func, &mut out);
        }
        Err(e) => out.push(e.message().to_string()),
    }
    if let Some(Emit::Intrinsic { operands, .. } | Emit::Template { operands, .. }) = &row.emit
        && operands.iter().any(|o| row.operand(o).is_none())
    {
        out.push("it is written with an operand that it does not have".to_string());
    }
    out.iter().map(|fault| format!("{}: {fault}", row.name)).collect()
}

/// The loops of the meaning are the dimensions, and its one block does what the row says.
fn dimensions(row: &Row, func: &Func, out: &mut Vec<String>) {
    let loops = visit::loops(&func.body);
    let dims: Vec<(&str, i64)> = loops.iter().map(|l| (func.var_name(l.var), l.extent.as_int().unwrap_or(0))).collect();
    if dims != row.dims {
        out.push(format!("its dimensions are {dims:?}"));
    }
    let blocks = visit::blocks(&func.body);
    let [block] = blocks[..] else { return out.push(format!("it has {} blocks", blocks.len())) };
    let [Stmt::Store(store)] = block.body.as_slice() else { return out.push("it has no one statement".to_string()) };
    let copies = matches!(store.value, crate::ir::Expr::Load { .. });
    if copies != (row.action == Action::Copy) {
        out.push("its meaning is not what it does".to_string());
    }
}

/// The buffers of the meaning are the operands, and their layouts take exactly their elements, one to one.
fn operands(row: &Row, func: &Func, out: &mut Vec<String>) {
    if row.operands.len() != func.buffers.len() {
        out.push(format!("its meaning has {} buffers", func.buffers.len()));
    }
    for operand in &row.operands {
        let Some(buffer) = func.find_buffer(operand.name).map(|id| func.buffer(id)) else {
            out.push(format!("{} is no buffer of its meaning", operand.name));
            continue;
        };
        let Some(shape) = buffer.const_shape() else {
            out.push(format!("{} has no constant shape", operand.name));
            continue;
        };
        let bits = i64::from(buffer.dtype.bits());
        let fault = match &operand.place {
            Place::Registers(layout) => registers(layout, &shape, bits, row.level),
            Place::Addresses(layout) => addresses(layout, &shape, bits, row.level),
            Place::Opaque(opaque) => spread(opaque, &shape, buffer.dtype.bits()),
            Place::Rows(rows) => (rows.align % 16 != 0 || rows.step % 16 != 0 || shape.len() != 2)
                .then_some("no chip reads its row layout"),
            Place::Descriptor { .. } => None,
        };
        out.extend(fault.map(|fault| format!("{}: {fault}", operand.name)));
    }
}

fn one_to_one(layout: &Layout, shape: &[i64]) -> Option<&'static str> {
    let fits = shape.iter().enumerate().all(|(d, e)| layout.extent(Coordinate::Index(d)) == *e);
    match (fits, layout.is_bijective()) {
        (false, _) => Some("the layout does not have the operand's shape"),
        (_, false) => Some("the layout is not one to one"),
        _ => None,
    }
}

/// All lanes hold elements, and their registers are full.
fn registers(layout: &Layout, shape: &[i64], bits: i64, level: Level) -> Option<&'static str> {
    let full = layout.span(Coordinate::Warp) == warps(level)
        && layout.span(Coordinate::Lane) == 32
        && layout.span(Coordinate::Bit) + bits - 1 == bits.max(32);
    one_to_one(layout, shape).or((!full).then_some("lanes or registers are not full"))
}

/// The lanes have room for every element equally often.
fn spread(opaque: &Opaque, shape: &[i64], bits: u32) -> Option<&'static str> {
    let even = (32 * opaque.slots(bits)) % opaque.elements() == 0;
    one_to_one(&opaque.layout, shape).or((!even).then_some("the registers do not take whole matrices"))
}

/// Behind each address stands a run of 16 bytes.
fn addresses(layout: &Layout, shape: &[i64], bits: i64, level: Level) -> Option<&'static str> {
    let full = layout.span(Coordinate::Warp) == warps(level)
        && layout.span(Coordinate::Lane) <= 32
        && layout.span(Coordinate::Offset) + bits - 1 == 128;
    one_to_one(layout, shape).or((!full).then_some("an address does not hold 16 bytes"))
}

/// The warps that an instruction of this level has.
fn warps(level: Level) -> i64 {
    if level == Level::Warpgroup { 4 } else { 1 }
}
