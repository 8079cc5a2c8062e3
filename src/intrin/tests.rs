//! The rows against what the PTX ISA says of them, written out a second time.

use super::*;
use crate::dtype::DType;
use std::collections::BTreeSet;

#[test]
fn rows_hold_together_and_have_names_of_their_own() {
    let faults: Vec<String> = all().iter().flat_map(check::faults).collect();
    assert_eq!(faults, Vec::<String>::new());
    let names: BTreeSet<&str> = all().iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names.len(), all().len());
    assert!(all().iter().all(|r| r.init == Init::None || r.level == Level::Warpgroup));
}

#[test]
fn a_row_that_does_not_hold_together_says_why() {
    let good = find("mma.m16n8k16.f32.f16.f16").unwrap();
    let fault = |change: &dyn Fn(&mut Row)| {
        let mut row = good.clone();
        change(&mut row);
        check::faults(&row).join("; ")
    };
    let other = |name: &str, operand: usize| find(name).unwrap().operands[operand].place.clone();
    assert!(fault(&|r| r.dims[2].1 = 8).contains("its dimensions are"));
    assert!(fault(&|r| r.action = Action::Copy).contains("its meaning is not what it does"));
    assert!(fault(&|r| r.operands[0].name = "X").contains("X is no buffer of its meaning"));
    let shape = fault(&|r| r.operands[1].place = other("mma.m16n8k8.f32.f16.f16", 1));
    assert!(shape.contains("A: the layout does not have the operand's shape"), "{shape}");
    let narrow = fault(&|r| r.operands[0].place = other("ldmatrix.m16n8.f16", 0));
    assert!(narrow.contains("D: lanes or registers are not full"), "{narrow}");
    let twice = |r: &mut Row| {
        let Place::Registers(layout) = &r.operands[2].place else { return };
        let collide = layout.renamed(|c| if c == Coordinate::Register { Coordinate::Bit } else { c });
        r.operands[2].place = Place::Registers(collide);
    };
    assert!(fault(&twice).contains("B: the layout is not one to one"));
    assert!(fault(&|r| r.meaning = "program".into()).contains("mma.m16n8k16"));
    let emit = Emit::Intrinsic { name: String::new(), operands: &["Q"] };
    assert!(fault(&|r| r.emit = Some(emit.clone())).contains("an operand that it does not have"));
}

/// What lane, register and bit hold an element.
fn held(operand: &Operand, row: i64, column: i64) -> (i64, i64, i64) {
    let Place::Registers(layout) = &operand.place else { panic!("{} is not in registers", operand.name) };
    let value = |c| layout.value(c, &|from| if from == Coordinate::Index(0) { row } else { column });
    (value(Coordinate::Lane), value(Coordinate::Register), value(Coordinate::Bit))
}

/// (row, column) of element i of a lane, as the PTX ISA tabulates them for each shape, and the elements of a lane.
type Formula = (fn(i64, i64, i64) -> (i64, i64), i64);

/// g and t are groupID and threadID_in_group. Sections "Matrix Fragments for mma.m16n8k8", "mma.m16n8k16 with floating point
/// type", "mma.m8n8k16", "mma.m16n8k16 with integer type", "mma.m16n8k32", for 4-bit integers "mma.m8n8k32", "mma.m16n8k32" and
/// "mma.m16n8k64", and for tf32 and f64 "mma.m16n8k4", "mma.m16n8k8", "mma.m16n8k16" and "mma.m8n8k4 with .f64 floating point type". B's
/// tables give (k, column).
fn tables(name: &str) -> Vec<(usize, Formula)> {
    let d32: Formula = (|g, t, i| (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1)), 4);
    let d8: Formula = (|g, t, i| (g, t * 2 + i), 2);
    // Rows g and g + 8, then the next four k.
    let a_of_16: fn(i64, i64, i64) -> (i64, i64) = |g, t, i| (if i % 2 == 0 { g } else { g + 8 }, t + 4 * (i / 2));
    let b: fn(i64, i64, i64) -> (i64, i64) = |g, t, i| (t + 4 * i, g);
    let by_elements = name.contains("tf32") || name.contains("f64");
    match name.split('.').nth(1).unwrap() {
        "m8n8k4" => vec![(0, d8), (1, (|g, t, _| (g, t), 1)), (2, (b, 1))],
        "m16n8k4" => vec![(0, d32), (1, (a_of_16, 2)), (2, (b, 1))],
        "m16n8k8" if by_elements => vec![(0, d32), (1, (a_of_16, 4)), (2, (b, 2))],
        "m16n8k16" if by_elements => vec![(0, d32), (1, (a_of_16, 8)), (2, (b, 4))],
        "m16n8k8" => vec![
            (0, d32),
            (1, (|g, t, i| (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1)), 4)),
            (2, (|g, t, i| (t * 2 + i, g), 2)),
        ],
        "m16n8k16" if !name.contains("s32") => vec![
            (0, d32),
            (
                1,
                (
                    |g, t, i| {
                        let row = if matches!(i, 0 | 1 | 4 | 5) { g } else { g + 8 };
                        (row, if i < 4 { t * 2 + (i & 1) } else { t * 2 + (i & 1) + 8 })
                    },
                    8,
                ),
            ),
            (2, (|g, t, i| (if i < 2 { t * 2 + (i & 1) } else { t * 2 + (i & 1) + 8 }, g), 4)),
        ],
        "m8n8k16" => {
            vec![(0, d8), (1, (|g, t, i| (g, t * 4 + i), 4)), (2, (|g, t, i| (t * 4 + i, g), 4))]
        }
        "m16n8k16" => vec![
            (0, d32),
            (1, (|g, t, i| (if i < 4 { g } else { g + 8 }, t * 4 + (i & 3)), 8)),
            (2, (|g, t, i| (t * 4 + i, g), 4)),
        ],
        "m8n8k32" => {
            vec![(0, d8), (1, (|g, t, i| (g, t * 8 + i), 8)), (2, (|g, t, i| (t * 8 + i, g), 8))]
        }
        "m16n8k32" if name.contains(".s4") || name.contains(".u4") => vec![
            (0, d32),
            (1, (|g, t, i| (if i < 8 { g } else { g + 8 }, t * 8 + (i & 7)), 16)),
            (2, (|g, t, i| (t * 8 + i, g), 8)),
        ],
        "m16n8k64" => vec![
            (0, d32),
            (
                1,
                (
                    |g, t, i| {
                        let row = if (0..8).contains(&i) || (16..24).contains(&i) { g } else { g + 8 };
                        (row, if i < 16 { t * 8 + (i & 7) } else { t * 8 + (i & 7) + 32 })
                    },
                    32,
                ),
            ),
            (2, (|g, t, i| (if i < 8 { t * 8 + (i & 7) } else { t * 8 + (i & 7) + 32 }, g), 16)),
        ],
        "m16n8k32" => vec![
            (0, d32),
            (
                1,
                (
                    |g, t, i| {
                        let row = if (0..4).contains(&i) || (8..12).contains(&i) { g } else { g + 8 };
                        (row, if i < 8 { t * 4 + (i & 3) } else { t * 4 + (i & 3) + 16 })
                    },
                    16,
                ),
            ),
            (2, (|g, t, i| (if i < 4 { t * 4 + (i & 3) } else { t * 4 + (i & 3) + 16 }, g), 8)),
        ],
        "m8n8k128" => vec![(0, d8), (1, (|g, t, i| (g, t * 32 + i), 32)), (2, (|g, t, i| (t * 32 + i, g), 32))],
        "m16n8k128" => vec![
            (0, d32),
            (1, (|g, t, i| (if i < 32 { g } else { g + 8 }, t * 32 + (i & 31)), 64)),
            (2, (|g, t, i| (t * 32 + i, g), 32)),
        ],
        "m16n8k256" => vec![
            (0, d32),
            (
                1,
                (
                    |g, t, i| {
                        let row = if i < 32 || (64..96).contains(&i) { g } else { g + 8 };
                        (row, t * 32 + (i & 31) + if i < 64 { 0 } else { 128 })
                    },
                    128,
                ),
            ),
            (2, (|g, t, i| (t * 32 + (i & 31) + if i < 32 { 0 } else { 128 }, g), 64)),
        ],
        other => panic!("no table for {other}"),
    }
}

#[test]
fn fragments_are_those_of_the_instruction_set() {
    let mut checked = 0;
    for row in all().iter().filter(|r| r.name.starts_with("mma.")) {
        let func = row.program().unwrap();
        for (n, (at, elements)) in tables(&row.name) {
            let operand = &row.operands[n];
            let bits = i64::from(func.buffer(func.find_buffer(operand.name).unwrap()).dtype.bits());
            for (lane, i) in (0..32).flat_map(|lane| (0..elements).map(move |i| (lane, i))) {
                let (row_of, column) = at(lane / 4, lane % 4, i);
                // B's row is its n here.
                let (r, c) = if n == 2 { (column, row_of) } else { (row_of, column) };
                let register = bits.max(32);
                let expected = (lane, i * bits / register, i * bits % register);
                assert_eq!(held(operand, r, c), expected, "{} {} {lane} {i}", row.name, operand.name);
                checked += 1;
            }
            assert_eq!(operand.registers(), elements * bits / bits.max(32), "{}", row.name);
        }
    }
    assert!(checked > 5_000, "{checked}");
}

/// ldmatrix as its section says it: lane i names row i % 8 of matrix i / 8, and gets of matrix r its word, or of its columns.
#[test]
fn matrices_come_from_the_rows_that_lanes_name() {
    for row in all().iter().filter(|r| r.name.contains("ldmatrix") || r.name.contains("stmatrix")) {
        let (registers, shared) = match &row.operands[0].place {
            Place::Registers(_) => (&row.operands[0], &row.operands[1]),
            _ => (&row.operands[1], &row.operands[0]),
        };
        let Place::Addresses(addresses) = &shared.place else { panic!("{}", row.name) };
        let func = row.program().unwrap();
        let bits = i64::from(func.buffers[0].dtype.bits());
        let (m, n) = (row.dims[0].1, row.dims[1].1);
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let get = |c| addresses.value(c, &|from| if from == Coordinate::Index(0) { i } else { j });
            let (lane, bit) = (get(Coordinate::Lane), get(Coordinate::Offset));
            // Matrix, its row, and the bit in that row are what the instruction moves by: words, or columns of 16 bits.
            let (matrix, r) = (lane / 8, lane % 8);
            let expected = match row.name.contains("trans") {
                false => (4 * r + bit / 32, matrix, bit % 32),
                true => (4 * (bit / 16) + r / 2, matrix, r % 2 * 16 + bit % 16),
            };
            assert_eq!(held(registers, i, j), expected, "{} {i} {j}", row.name);
            assert_eq!(bit % bits, 0);
        }
    }
}

/// movmatrix as its section says it: of what lane (g, t) held of row g, it gets the rows 2 t and 2 t + 1 of column g.
#[test]
fn a_matrix_in_registers_is_exchanged() {
    for row in all().iter().filter(|r| r.name.starts_with("movmatrix")) {
        for (i, j) in (0..8).flat_map(|i| (0..8).map(move |j| (i, j))) {
            assert_eq!(held(&row.operands[1], i, j), (4 * i + j / 2, 0, j % 2 * 16));
            assert_eq!(held(&row.operands[0], i, j), (4 * j + i / 2, 0, i % 2 * 16));
        }
    }
}

#[test]
fn what_a_chip_only_emulates_is_said() {
    use crate::target::Target;
    for row in all() {
        let products = row.name.starts_with("mma.") || row.name.starts_with("wmma.mma.");
        let four_bits = row.name.contains(".s4") || row.name.contains(".u4");
        // Loads and stores of their fragments go with the products.
        let float8 = row.name.starts_with("mma.") && (row.name.contains(".e4m3") || row.name.contains(".e5m2"));
        let emulated = float8 || products && four_bits || row.name.starts_with("wmma.") && row.name.contains("m8n8k32");
        let emulated = emulated || row.action == Action::XorAdd;
        assert_eq!(row.is_emulated_on(&Target::sm_90()), emulated, "{}", row.name);
        assert!(!row.is_emulated_on(&Target::sm_89()), "{}", row.name);
    }
    let row = find("mma.m16n8k64.s32.u4.s4").unwrap();
    assert!(row.is_native_to(&Target::sm_86()) && !row.is_native_to(&Target::sm_75()));
    assert!(!row.is_native_to(&Target::sm_90a()));
}

/// What loads fill, products take: the same elements in the same lanes, whatever the registers are called.
#[test]
fn loads_fit_the_products() {
    let lane_and_bit = |row: &str, operand: usize, i: i64, j: i64| {
        let (lane, _, bit) = held(&find(row).unwrap().operands[operand], i, j);
        (lane, bit)
    };
    for (i, j) in (0..16).flat_map(|i| (0..16).map(move |j| (i, j))) {
        let a = lane_and_bit("mma.m16n8k16.f32.f16.f16", 1, i, j);
        assert_eq!(a, lane_and_bit("ldmatrix.m16n16.f16", 0, i, j));
        assert_eq!(a, lane_and_bit("ldmatrix.trans.m16n16.f16", 0, j, i));
        let b = lane_and_bit("mma.m16n8k16.f32.f16.f16", 2, i % 8, j);
        assert_eq!(b, lane_and_bit("ldmatrix.m16n16.f16", 0, i, j));
        assert_eq!(b, lane_and_bit("ldmatrix.trans.m16n8.f16", 0, j, i % 8));
    }
    // Of a factor that is read the other way round, too, the registers that one product takes follow each other.
    let register = |row: &str, i: i64, j: i64| held(&find(row).unwrap().operands[0], i, j).1;
    for (i, k) in (0..16).flat_map(|i| (0..16).map(move |k| (i, k))) {
        assert_eq!(register("ldmatrix.row.m16n16.f16", i, k), i / 8 * 2 + k / 8);
        assert_eq!(register("ldmatrix.trans.m16n16.f16", k, i), i / 8 * 2 + k / 8);
        assert_eq!(register("ldmatrix.trans.row.m16n16.f16", k, i), register("ldmatrix.m16n16.f16", i, k));
    }
    for (i, j) in (0..16).flat_map(|i| (0..32).map(move |j| (i, j))) {
        let a = lane_and_bit("mma.m16n8k32.s32.s8.u8", 1, i, j);
        assert_eq!(a, lane_and_bit("ldmatrix.m16n32.s8", 0, i, j));
    }
    for (i, j) in (0..16).flat_map(|i| (0..64).map(move |j| (i, j))) {
        let loaded = lane_and_bit("ldmatrix.m16n64.s4", 0, i, j);
        assert_eq!(loaded, lane_and_bit("mma.m16n8k64.s32.s4.s4", 1, i, j));
        assert_eq!(loaded, lane_and_bit("mma.m16n8k64.s32.s4.s4", 2, i % 8, j));
    }
}

#[test]
fn chips_have_the_rows_that_their_instruction_set_brought() {
    use crate::target::Target;
    let has = |target: Target, name: &str| target.has(find(name).unwrap().needs);
    assert!(has(Target::sm_75(), "mma.m16n8k8.f32.f16.f16") && !has(Target::sm_70(), "mma.m16n8k8.f32.f16.f16"));
    assert!(has(Target::sm_80(), "mma.m16n8k16.f32.f16.f16") && !has(Target::sm_75(), "mma.m16n8k16.f32.f16.f16"));
    assert!(has(Target::sm_75(), "mma.m8n8k16.s32.s8.s8") && !has(Target::sm_75(), "mma.m16n8k32.s32.u8.s8"));
    assert!(has(Target::sm_75(), "ldmatrix.trans.m16n16.bf16") && !has(Target::sm_89(), "stmatrix.m8n8.f16"));
    let types = |name: &str| find(name).unwrap().program().unwrap().buffers.iter().map(|b| b.dtype).collect::<Vec<_>>();
    assert_eq!(types("mma.m16n8k32.s32.u8.s8"), [DType::U8, DType::S8, DType::S32]);
}
