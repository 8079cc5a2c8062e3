//! Which copies fit an operand: rows that move matrices between memory and the registers in which an instruction has them.

use super::{Action, Level, Opaque, Operand, Place, Row};
use crate::dtype::DType;
use crate::ir::layout::Coordinate::{self, Element, Index, Lane, Register};
use crate::ir::layout::Layout;

/// Which way a copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From memory into registers.
    Load,
    /// From registers into memory.
    Store,
}

/// The copies of a warp between memory and the registers in which an instruction has its operand `number`, of type `dtype`;
/// those of the largest matrices first, and among these those that leave an operand's registers one after the other, as
/// instructions take them. `turned` says that memory has the operand's indices the other way round.
pub fn copies(row: &Row, number: usize, dtype: DType, turned: bool, way: Way) -> Vec<&'static Row> {
    let Some(operand) = row.operands.get(number) else { return Vec::new() };
    let fits = |copy: &&Row| {
        let [to, from] = copy.operands.as_slice() else { return false };
        let (held, memory) = if way == Way::Load { (to, from) } else { (from, to) };
        copy.action == Action::Copy
            && copy.level == row.level
            && copy.level == Level::Warp
            && copy.emit.is_some()
            && !in_registers(memory)
            && dtype_of(copy, held.name) == Some(dtype)
            && same_lanes(&operand.place, &held.place, turned)
    };
    let mut found: Vec<&'static Row> = super::all().iter().filter(fits).collect();
    let held = |copy: &Row| copy.operands[usize::from(way == Way::Store)].place.clone();
    let size = |copy: &Row| copy.dims.iter().map(|d| d.1).product::<i64>();
    found.sort_by_key(|copy| (-size(copy), !in_a_row(&operand.place, &held(copy), turned)));
    found
}

/// The type of an operand's elements.
pub fn dtype_of(row: &Row, operand: &str) -> Option<DType> {
    let program = row.program().ok()?;
    program.find_buffer(operand).map(|id| program.buffer(id).dtype)
}

fn in_registers(operand: &Operand) -> bool {
    matches!(operand.place, Place::Registers(_) | Place::Opaque(_))
}

/// Whether two tiles, repeated, have every element in the same lane. The smaller tile must divide the other. Of opaque
/// tiles, which lane that is is not known: it is the same for tiles of one kind, whose elements have the same numbers.
fn same_lanes(a: &Place, b: &Place, turned: bool) -> bool {
    let (a, b) = match (a, b) {
        (Place::Registers(a), Place::Registers(b)) => (a, b),
        (Place::Opaque(a), Place::Opaque(b)) => return same_elements(a, b, turned),
        _ => return false,
    };
    let whole: Vec<i64> = [0, 1].iter().map(|&d| extent(a, d).max(extent(b, turn(d, turned)))).collect();
    if [0, 1].iter().any(|&d| whole[d] % extent(a, d) != 0 || whole[d] % extent(b, turn(d, turned)) != 0) {
        return false;
    }
    points([whole[0], whole[1]]).all(|at| value(a, at, false, Lane) == value(b, at, turned, Lane))
}

/// Whether two opaque tiles are one matrix of one product, walked by the same indices.
fn same_elements(a: &Opaque, b: &Opaque, turned: bool) -> bool {
    let whole = [0, 1].map(|d| extent(&a.layout, d));
    a.kind == b.kind
        && [0, 1].iter().all(|&d| extent(&b.layout, turn(d, turned)) == whole[d])
        && points(whole).all(|at| value(&a.layout, at, false, Element) == value(&b.layout, at, turned, Element))
}

/// Whether the second tile has all elements of the first one, in registers that follow each other in the same order.
fn in_a_row(a: &Place, b: &Place, turned: bool) -> bool {
    let (Place::Registers(a), Place::Registers(b)) = (a, b) else { return true };
    let own = [extent(a, 0), extent(a, 1)];
    let apart = |at| value(b, at, turned, Register) - value(a, at, false, Register);
    let smaller = (0..2).any(|d| extent(b, turn(d, turned)) < own[d]);
    !smaller && points(own).all(|at| apart(at) == apart([0, 0]))
}

fn turn(dimension: usize, turned: bool) -> usize {
    if turned { 1 - dimension } else { dimension }
}

fn extent(layout: &Layout, dimension: usize) -> i64 {
    layout.extent(Index(dimension)).max(1)
}

fn points(whole: [i64; 2]) -> impl Iterator<Item = [i64; 2]> {
    (0..whole[0]).flat_map(move |x| (0..whole[1]).map(move |y| [x, y]))
}

/// What a tile, repeated, gives for an element.
fn value(layout: &Layout, at: [i64; 2], turned: bool, of: Coordinate) -> i64 {
    layout.value(of, &|c| match c {
        Index(d @ (0 | 1)) => at[turn(d, turned)] % extent(layout, d),
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intrin::find;

    fn first(row: &str, operand: usize, dtype: DType, turned: bool) -> Option<&'static str> {
        copies(find(row).unwrap(), operand, dtype, turned, Way::Load).first().map(|r| r.name.as_str())
    }

    #[test]
    fn factors_find_the_loads_of_their_major() {
        let half = "mma.m16n8k16.f32.f16.f16";
        assert_eq!(first(half, 1, DType::F16, false), Some("ldmatrix.m16n16.f16"));
        assert_eq!(first(half, 2, DType::F16, false), Some("ldmatrix.m8n32.f16"));
        assert_eq!(first(half, 1, DType::F16, true), Some("ldmatrix.trans.row.m16n16.f16"));
        assert_eq!(first(half, 2, DType::F16, true), Some("ldmatrix.trans.m16n16.f16"));
        assert_eq!(first("mma.m16n8k16.s32.s8.u8", 1, DType::S8, false), Some("ldmatrix.m16n32.s8"));
        assert_eq!(first("mma.m16n8k16.s32.s8.u8", 2, DType::U8, false), Some("ldmatrix.m16n32.u8"));
        // Four of k are in one register: no load puts elements of different rows there.
        assert_eq!(first("mma.m16n8k16.s32.s8.u8", 1, DType::S8, true), None);
    }

    #[test]
    fn opaque_tiles_find_loads_and_stores_of_their_kind() {
        let product = "wmma.mma.row.col.m32n8k16.f32.f16.f16";
        assert_eq!(first(product, 1, DType::F16, false), Some("wmma.load.a.row.m32n8k16.f16"));
        assert_eq!(first(product, 2, DType::F16, false), Some("wmma.load.b.col.m32n8k16.f16"));
        // Memory has the other major: another product takes that.
        assert_eq!(first(product, 1, DType::F16, true), None);
        assert_eq!(
            first("wmma.mma.col.row.m32n8k16.f32.f16.f16", 2, DType::F16, true),
            Some("wmma.load.b.row.m32n8k16.f16")
        );
        let stores = |turned| copies(find(product).unwrap(), 0, DType::F32, turned, Way::Store)[0].name.as_str();
        assert_eq!([false, true].map(stores), ["wmma.store.d.row.m32n8k16.f32", "wmma.store.d.col.m32n8k16.f32"]);
        assert_eq!(
            first("wmma.mma.row.col.m8n8k32.s32.u4.u4", 2, DType::U4, false),
            Some("wmma.load.b.col.m8n8k32.u4")
        );
    }

    #[test]
    fn sums_of_halves_find_stores() {
        let stores = copies(find("mma.m16n8k16.f16.f16.f16").unwrap(), 0, DType::F16, false, Way::Store);
        assert_eq!(stores.first().map(|r| r.name.as_str()), Some("stmatrix.m16n16.f16"));
        assert!(copies(find("mma.m16n8k16.f32.f16.f16").unwrap(), 0, DType::F32, false, Way::Store).is_empty());
    }
}
