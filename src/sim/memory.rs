//! Memory as the simulator sees it: bytes (real mode) or integers, each unit with the mark that says whether it has
//! been written.
//!
//! A memory is counted in *units*: the elements of a buffer of its own, or, in shared memory that buffers of several
//! types use one after the other, the smallest element among them. In integer mode an element is one u32 kept at its first
//! unit, and the marks tell its width: reading with another width than was written is reading what was never written.

use super::race::Cell;
use super::value::{NumberKind, f32_of, fp8_code, fp8_to_f32, kind_of};
use crate::array::filled;
use crate::dtype::{DType, TF32};
use crate::error::Result;
use half::{bf16, f16};

/// One memory.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    /// Bits of a unit in real mode.
    pub unit_bits: u32,
    /// Real mode: packed. Ring: four bytes a unit.
    pub bytes: Vec<u8>,
    /// A mark for each unit: 0 never written; real mode 1; integer mode the width in units at an element's first unit, 255 at
    /// the others. Empty where everything is written from the start.
    pub marks: Vec<u8>,
    pub integer: bool,
    /// Who has accessed each unit; empty where races are not looked for.
    pub cells: Vec<Cell>,
    /// When the last copy to each unit started; empty where there are no copies.
    pub starts: Vec<u64>,
}

/// Why an access failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    OutOfBounds,
    Uninitialised,
}

/// A mark inside an element of integer mode.
const INSIDE: u8 = 255;

impl Memory {
    /// Memory of `units`, of which none has been written; every byte is poison.
    pub fn poisoned(units: usize, unit_bits: u32, integer: bool) -> Result<Memory> {
        let bytes = if integer { units * 4 } else { (units * unit_bits as usize).div_ceil(8) };
        Ok(Memory {
            unit_bits,
            bytes: filled(0xA5, bytes)?,
            marks: filled(0, units)?,
            integer,
            cells: Vec::new(),
            starts: Vec::new(),
        })
    }

    /// Forgets all that was written.
    pub fn poison(&mut self) {
        self.bytes.fill(0xA5);
        self.marks.fill(0);
    }

    /// Forgets what was written to some units; `None` if there are fewer.
    pub fn poison_range(&mut self, unit: usize, units: usize) -> Option<()> {
        let bytes = |n: usize| if self.integer { n * 4 } else { n * self.unit_bits as usize / 8 };
        let (from, to) = (bytes(unit), bytes(unit + units));
        self.bytes.get_mut(from..to)?.fill(0xA5);
        if !self.marks.is_empty() {
            self.marks.get_mut(unit..unit + units)?.fill(0);
        }
        Some(())
    }

    /// Whether the element of `units` at `unit` has been written as such.
    #[inline(always)]
    pub fn check(&self, unit: usize, units: usize) -> std::result::Result<(), Failure> {
        if self.marks.is_empty() {
            return Ok(());
        }
        let Some(marks) = self.marks.get(unit..unit + units) else { return Err(Failure::OutOfBounds) };
        let good = match units {
            1 if self.integer => marks[0] == 1,
            1 => marks[0] != 0,
            _ if self.integer => marks[0] as usize == units && marks[1..].iter().all(|m| *m == INSIDE),
            _ => marks.iter().all(|m| *m != 0),
        };
        if good { Ok(()) } else { Err(Failure::Uninitialised) }
    }

    /// Marks the element of `units` at `unit` as written.
    #[inline(always)]
    pub fn mark(&mut self, unit: usize, units: usize) -> std::result::Result<(), Failure> {
        if self.marks.is_empty() {
            return Ok(());
        }
        let Some(marks) = self.marks.get_mut(unit..unit + units) else { return Err(Failure::OutOfBounds) };
        if let [only] = marks {
            *only = 1;
        } else if self.integer {
            marks.fill(INSIDE);
            marks[0] = units as u8;
        } else {
            marks.fill(1);
        }
        Ok(())
    }

    /// Reads the element at a unit as register bits.
    #[inline(always)]
    pub fn read(&self, dtype: DType, unit: usize) -> Option<u64> {
        if self.integer {
            return Some(u64::from(u32::from_le_bytes(self.array(unit * 4)?)));
        }
        let bit = unit * self.unit_bits as usize;
        let byte = bit / 8;
        Some(match dtype {
            DType::F32 | DType::U32 => u64::from(u32::from_le_bytes(self.array(byte)?)),
            DType::Tf32 => u64::from(u32::from_le_bytes(self.array(byte)?) & TF32),
            DType::F16 => u64::from(f16::from_le_bytes(self.array(byte)?).to_f32().to_bits()),
            DType::Bf16 => u64::from(bf16::from_le_bytes(self.array(byte)?).to_f32().to_bits()),
            DType::F64 | DType::S64 => u64::from_le_bytes(self.array(byte)?),
            DType::S32 => i64::from(i32::from_le_bytes(self.array(byte)?)) as u64,
            DType::E4m3 | DType::E5m2 => u64::from(fp8_to_f32(dtype, *self.bytes.get(byte)?).to_bits()),
            DType::S8 => i64::from(*self.bytes.get(byte)? as i8) as u64,
            DType::U8 => u64::from(*self.bytes.get(byte)?),
            DType::Bool => u64::from(*self.bytes.get(byte)? != 0),
            DType::S4 => i64::from(((*self.bytes.get(byte)? >> (bit % 8)) << 4) as i8 >> 4) as u64,
            DType::U4 => u64::from(*self.bytes.get(byte)? >> (bit % 8) & 15),
            DType::B1 => u64::from(*self.bytes.get(byte)? >> (bit % 8) & 1),
        })
    }

    /// Writes register bits to the element at a unit.
    #[inline(always)]
    pub fn write(&mut self, dtype: DType, unit: usize, value: u64) -> Option<()> {
        if self.integer {
            return self.put(unit * 4, (value as u32).to_le_bytes());
        }
        let bit = unit * self.unit_bits as usize;
        let byte = bit / 8;
        match dtype {
            DType::F16 => self.put(byte, f16::from_f32(f32_of(value)).to_le_bytes()),
            DType::Bf16 => self.put(byte, bf16::from_f32(f32_of(value)).to_le_bytes()),
            DType::E4m3 | DType::E5m2 => self.put(byte, [fp8_code(dtype, f32_of(value))]),
            DType::S4 | DType::U4 | DType::B1 => {
                let mask = ((1u16 << dtype.bits()) - 1) as u8;
                let cell = self.bytes.get_mut(byte)?;
                *cell = *cell & !(mask << (bit % 8)) | ((value as u8 & mask) << (bit % 8));
                Some(())
            }
            _ => match dtype.bits() {
                8 => self.put(byte, [value as u8]),
                32 => self.put(byte, (value as u32).to_le_bytes()),
                _ => self.put(byte, value.to_le_bytes()),
            },
        }
    }

    #[inline(always)]
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.bytes.get(at..at + N).and_then(|b| b.try_into().ok())
    }

    #[inline(always)]
    fn put<const N: usize>(&mut self, at: usize, raw: [u8; N]) -> Option<()> {
        self.bytes.get_mut(at..at + N)?.copy_from_slice(&raw);
        Some(())
    }
}

/// How a type is in registers in a mode.
pub(super) fn kind_in(integer: bool, dtype: DType) -> NumberKind {
    if integer { NumberKind::Integer } else { kind_of(dtype) }
}
