//! Runs the integer part of a warp's PTX: addresses, predicates and branches are followed, data are not.

use super::parse::{Alu, Arg, Compare, Entry, Reg, Space, Type, What};
use crate::analysis::request::{LANES, Lanes};

/// What a register holds.
#[derive(Debug, Clone, PartialEq)]
enum RegisterValue {
    /// What this instruction yields, which is not followed.
    Unknown(usize),
    /// One number for all lanes.
    Same(u64),
    /// A number a lane.
    Each(Box<[u64; LANES]>),
}

impl RegisterValue {
    fn lane(&self, lane: usize) -> u64 {
        match self {
            RegisterValue::Unknown(_) => 0,
            RegisterValue::Same(v) => *v,
            RegisterValue::Each(v) => v[lane],
        }
    }

    fn map2(&self, other: &RegisterValue, f: impl Fn(u64, u64) -> u64) -> RegisterValue {
        match (self, other) {
            (RegisterValue::Unknown(at), _) | (_, RegisterValue::Unknown(at)) => RegisterValue::Unknown(*at),
            (RegisterValue::Same(a), RegisterValue::Same(b)) => RegisterValue::Same(f(*a, *b)),
            _ => RegisterValue::Each(Box::new(std::array::from_fn(|l| f(self.lane(l), other.lane(l))))),
        }
    }
}

/// Where the warp is.
#[derive(Debug, Clone, Copy)]
pub struct WarpPosition {
    /// Of the block in the grid.
    pub block: [u32; 3],
    /// Blocks of the grid.
    pub grid: [u32; 3],
    /// Blocks of a cluster, along x.
    pub cluster: u32,
    /// Threads of a block.
    pub threads: [u32; 3],
    /// The warp in its block.
    pub warp: u32,
}

/// What a warp does that is counted.
pub trait Observer {
    /// An instruction runs, by its number, in these lanes; none where its guard holds in none.
    fn instruction(&mut self, at: usize, running: u32);
    /// It goes to memory.
    fn request(&mut self, at: usize, space: Space, write: bool, bytes: i64, lanes: &Lanes);
}

/// Lanes that go together until they meet others.
struct Group {
    at: usize,
    active: u32,
    /// Where they end.
    until: usize,
}

/// A warp on its way.
pub struct Warp<'e> {
    entry: &'e Entry,
    meetings: &'e [usize],
    place: WarpPosition,
    registers: Vec<RegisterValue>,
    groups: Vec<Group>,
}

/// Why a warp cannot be followed.
pub type Lost = String;

impl<'e> Warp<'e> {
    /// A warp before its first instruction.
    pub fn new(entry: &'e Entry, meetings: &'e [usize], place: WarpPosition) -> Warp<'e> {
        let threads = place.threads.iter().fold(1u32, |n, e| n.saturating_mul(*e));
        let here = threads.saturating_sub(place.warp * LANES as u32).clamp(1, LANES as u32);
        let active = u32::MAX >> (LANES as u32 - here);
        let groups = vec![Group { at: 0, active, until: entry.code.len() }];
        Warp { entry, meetings, place, registers: vec![RegisterValue::Same(0); entry.widths.len()], groups }
    }

    /// Runs to the end, by at most `steps` instructions, which it takes away from them.
    pub fn run(&mut self, steps: &mut u64, listen: &mut dyn Observer) -> Result<(), Lost> {
        while let Some(group) = self.groups.last() {
            let (at, active) = (group.at, group.active);
            if at == group.until || at >= self.entry.code.len() || active == 0 {
                self.groups.pop();
                continue;
            }
            *steps = steps.checked_sub(1).ok_or("it runs too long to be followed")?;
            self.step(at, active, listen)?;
        }
        Ok(())
    }

    fn step(&mut self, at: usize, active: u32, listen: &mut dyn Observer) -> Result<(), Lost> {
        let instruction = &self.entry.code[at];
        let running = match instruction.guard {
            None => active,
            Some((p, wanted)) => active & self.mask(p, wanted).map_err(|from| self.lost(at, from))?,
        };
        listen.instruction(at, running);
        match &instruction.what {
            What::Branch { to } => return self.branch(at, *to, running, active),
            What::Return => {
                self.groups.iter_mut().for_each(|g| g.active &= !running);
                if let Some(group) = self.groups.last_mut() {
                    group.at = at + 1;
                }
                return Ok(());
            }
            what if running != 0 => self.execute(at, what, running, listen)?,
            _ => {}
        }
        if let Some(group) = self.groups.last_mut() {
            group.at = at + 1;
        }
        Ok(())
    }

    /// Lanes that part wait for each other where the ways meet.
    fn branch(&mut self, at: usize, to: usize, taken: u32, active: u32) -> Result<(), Lost> {
        let meet = self.meetings[at];
        let Some(group) = self.groups.last_mut() else { return Ok(()) };
        if taken == active {
            group.at = to;
        } else if taken == 0 {
            group.at = at + 1;
        } else if meet == usize::MAX {
            return Err(format!("the paths from instruction {at} never reconverge"));
        } else {
            group.at = meet;
            self.groups.push(Group { at: to, active: taken, until: meet });
            self.groups.push(Group { at: at + 1, active: active & !taken, until: meet });
        }
        Ok(())
    }

    /// The lanes in which a predicate has a value.
    fn mask(&self, p: Reg, wanted: bool) -> Result<u32, usize> {
        let bit = |v: u64| (v & 1 == 1) == wanted;
        match &self.registers[p] {
            RegisterValue::Unknown(from) => Err(*from),
            RegisterValue::Same(v) => Ok(if bit(*v) { u32::MAX } else { 0 }),
            RegisterValue::Each(v) => Ok((0..LANES).fold(0, |m, l| m | u32::from(bit(v[l])) << l)),
        }
    }

    /// Why an instruction cannot be followed: it depends on what another one yields.
    fn lost(&self, at: usize, from: usize) -> Lost {
        let name = |at: usize| self.entry.code.get(at).map_or("?", |i| i.op.as_str());
        format!("instruction {at} ({}) depends on what instruction {from} ({}) yields", name(at), name(from))
    }

    /// What an argument of an instruction holds.
    fn value(&self, at: usize, arg: &Arg) -> RegisterValue {
        match arg {
            Arg::Reg(r) => self.registers[*r].clone(),
            Arg::Int(n) => RegisterValue::Same(*n as u64),
            Arg::Special(name) => self.special(name),
            // All of shared memory is one array, which begins at 0.
            Arg::Name(_) => RegisterValue::Same(0),
            Arg::Other => RegisterValue::Unknown(at),
        }
    }

    fn special(&self, name: &str) -> RegisterValue {
        let axis = match name.as_bytes().last() {
            Some(b'x') => 0,
            Some(b'y') => 1,
            _ => 2,
        };
        let p = &self.place;
        if name == "laneid" {
            return RegisterValue::Each(Box::new(std::array::from_fn(|l| l as u64)));
        }
        match name.split('.').next() {
            Some("cluster_ctarank") => RegisterValue::Same((p.block[0] % p.cluster).into()),
            Some("ctaid") => RegisterValue::Same(p.block[axis].into()),
            Some("nctaid") => RegisterValue::Same(p.grid[axis].into()),
            Some("ntid") => RegisterValue::Same(p.threads[axis].into()),
            _ => {
                let [x, y, _] = p.threads.map(|n| u64::from(n.max(1)));
                let first = u64::from(p.warp) * LANES as u64;
                let thread = |t: u64| [t % x, t / x % y, t / x / y][axis];
                RegisterValue::Each(Box::new(std::array::from_fn(|l| thread(first + l as u64))))
            }
        }
    }

    /// Writes the lanes that run; the others keep what they have.
    fn set(&mut self, dst: Reg, value: RegisterValue, running: u32) {
        let old = &self.registers[dst];
        let all = self.groups.first().is_none_or(|g| g.active & !running == 0);
        self.registers[dst] = match (&value, old) {
            _ if all => value,
            (RegisterValue::Unknown(at), _) | (_, RegisterValue::Unknown(at)) => RegisterValue::Unknown(*at),
            (RegisterValue::Same(a), RegisterValue::Same(b)) if a == b => value,
            _ => RegisterValue::Each(Box::new(std::array::from_fn(|l| {
                if running >> l & 1 == 1 { value.lane(l) } else { old.lane(l) }
            }))),
        };
    }

    fn execute(&mut self, at: usize, what: &What, running: u32, listen: &mut dyn Observer) -> Result<(), Lost> {
        match what {
            What::Access { space: Space::Param, base, dst, .. } => {
                let value = self.parameter(at, base);
                dst.iter().for_each(|d| self.set(*d, value.clone(), running));
            }
            What::Access { space, write, bytes, base, offset, dst } => {
                if *space != Space::Local {
                    listen.request(at, *space, *write, *bytes, &self.lanes(at, base, *offset, running)?);
                }
                dst.iter().for_each(|d| self.set(*d, RegisterValue::Unknown(at), running));
            }
            What::Matrices { write, lanes, base, offset, dst } => {
                let given = self.lanes(at, base, *offset, running)?;
                let active = given.active & (u32::MAX >> (LANES as u32 - lanes));
                listen.request(at, Space::Shared, *write, 16, &Lanes { active, ..given });
                dst.iter().for_each(|d| self.set(*d, RegisterValue::Unknown(at), running));
            }
            What::Tile { tile, base, offset, stride, dst } => {
                let (first, apart) = (self.lanes(at, base, *offset, running)?, self.lanes(at, stride, 0, running)?);
                // As if a lane asked for each row.
                let row = |l: usize| first.at[l].wrapping_add(apart.at[l].wrapping_mul(l as i64 * tile.bits) / 8);
                let active = first.active & (u32::MAX >> (LANES as u32 - tile.rows.clamp(1, LANES as u32)));
                listen.request(
                    at,
                    tile.space,
                    tile.write,
                    tile.bytes(),
                    &Lanes { at: std::array::from_fn(row), active },
                );
                dst.iter().for_each(|d| self.set(*d, RegisterValue::Unknown(at), running));
            }
            What::Copy { bytes, to, from, filled } => {
                let (inside, outside) =
                    (self.lanes(at, &to.0, to.1, running)?, self.lanes(at, &from.0, from.1, running)?);
                listen.request(at, Space::Shared, true, *bytes, &inside);
                self.filled(at, *bytes, filled.as_ref(), &outside, listen)?;
            }
            What::Fma { dst } | What::Data { dst } | What::Product { dst } => {
                dst.iter().for_each(|d| self.set(*d, RegisterValue::Unknown(at), running))
            }
            What::Elect { dst } => {
                let first = running.trailing_zeros() as usize;
                let elected = RegisterValue::Each(Box::new(std::array::from_fn(|l| u64::from(l == first))));
                dst.iter().for_each(|d| self.set(*d, elected.clone(), running));
            }
            What::Over { dst } => dst.iter().for_each(|d| self.set(*d, RegisterValue::Same(1), running)),
            What::Shuffle { dst, a, lane } => {
                let shuffled = match (self.value(at, a), self.value(at, lane)) {
                    (RegisterValue::Unknown(from), _) | (_, RegisterValue::Unknown(from)) => {
                        RegisterValue::Unknown(from)
                    }
                    (value, RegisterValue::Same(lane)) => RegisterValue::Same(value.lane(lane as usize % LANES)),
                    _ => RegisterValue::Unknown(at),
                };
                self.set(*dst, shuffled, running);
            }
            What::Branch { .. } | What::Return | What::Wait | What::Bulk { .. } => {}
            What::Foreign { op } => return Err(format!("{op} is not followed")),
            arithmetic => {
                let (dst, value) = self.arithmetic(at, arithmetic);
                self.set(dst, value, running);
            }
        }
        Ok(())
    }

    /// What an asynchronous copy reads: as many bytes as it does not fill with zeros, by lane.
    fn filled(
        &self,
        at: usize,
        bytes: i64,
        filled: Option<&Arg>,
        lanes: &Lanes,
        listen: &mut dyn Observer,
    ) -> Result<(), Lost> {
        let read = filled.map_or(RegisterValue::Same(bytes as u64), |a| self.value(at, a));
        if let RegisterValue::Unknown(from) = read {
            return Err(self.lost(at, from));
        }
        let reads = |n: u64| (0..LANES).fold(0, |m, l| m | u32::from(read.lane(l) == n) << l) & lanes.active;
        for n in 1..=bytes as u64 {
            let active = reads(n);
            if active != 0 {
                listen.request(at, Space::Global, false, n as i64, &Lanes { active, ..*lanes });
            }
        }
        Ok(())
    }

    /// Parameters are addresses of device memory, far apart.
    fn parameter(&self, at: usize, name: &Arg) -> RegisterValue {
        match name {
            Arg::Name(n) => match self.entry.params.iter().position(|p| p == n) {
                Some(place) => RegisterValue::Same((place as u64 + 1) << 44),
                None => RegisterValue::Unknown(at),
            },
            _ => RegisterValue::Unknown(at),
        }
    }

    fn lanes(&self, at: usize, base: &Arg, offset: i64, active: u32) -> Result<Lanes, Lost> {
        match self.value(at, base) {
            RegisterValue::Unknown(from) => Err(self.lost(at, from)),
            value => Ok(Lanes { at: std::array::from_fn(|l| (value.lane(l) as i64).wrapping_add(offset)), active }),
        }
    }

    fn arithmetic(&self, at: usize, what: &What) -> (Reg, RegisterValue) {
        let value = |arg: &Arg| self.value(at, arg);
        match what {
            What::Move { dst, src } => (*dst, value(src)),
            What::Alu { op, ty, dst, a, b } => (*dst, value(a).map2(&value(b), |x, y| alu(*op, *ty, x, y))),
            What::Field { ty, dst, a, from, length } => {
                let shifted = value(a).map2(&value(from), |x, n| alu(Alu::Shr, *ty, x, n & 255));
                (*dst, shifted.map2(&value(length), |x, n| field(*ty, x, n & 255)))
            }
            What::Funnel { left, wrap, dst, low, high, by } => {
                let both = value(high).map2(&value(low), |h, l| (h & WORD_BITS) << 32 | l & WORD_BITS);
                (*dst, both.map2(&value(by), |v, n| funnel(*left, *wrap, v, n)))
            }
            What::Mad { ty, wide, dst, a, b, c } => {
                let product = value(a).map2(&value(b), |x, y| signed(*ty, x).wrapping_mul(signed(*ty, y)) as u64);
                let to = if *wide { Type { bits: ty.bits * 2, ..*ty } } else { *ty };
                (*dst, product.map2(&value(c), |x, y| cut(to, x.wrapping_add(y))))
            }
            What::Not { ty, dst, a } => (*dst, value(a).map2(&RegisterValue::Same(0), |x, _| cut(*ty, !x))),
            What::Set { cmp, ty, dst, a, b } => {
                (*dst, value(a).map2(&value(b), |x, y| u64::from(compare(*cmp, *ty, x, y))))
            }
            What::Select { dst, a, b, p } => (*dst, select(&value(p), &value(a), &value(b))),
            What::Convert { to, from, dst, a } => {
                (*dst, value(a).map2(&RegisterValue::Same(0), |x, _| cut(*to, signed(*from, x) as u64)))
            }
            _ => (0, RegisterValue::Unknown(at)),
        }
    }
}

/// The low half of 64 bits.
const WORD_BITS: u64 = 0xffff_ffff;

fn select(p: &RegisterValue, a: &RegisterValue, b: &RegisterValue) -> RegisterValue {
    match p {
        RegisterValue::Unknown(_) if a == b => a.clone(),
        RegisterValue::Unknown(at) => RegisterValue::Unknown(*at),
        RegisterValue::Same(v) if v & 1 == 1 => a.clone(),
        RegisterValue::Same(_) => b.clone(),
        RegisterValue::Each(v) => match (a, b) {
            (RegisterValue::Unknown(at), _) | (_, RegisterValue::Unknown(at)) => RegisterValue::Unknown(*at),
            _ => RegisterValue::Each(Box::new(std::array::from_fn(
                |l| if v[l] & 1 == 1 { a.lane(l) } else { b.lane(l) },
            ))),
        },
    }
}

/// The low `length` bits, with the sign of the last where the type is signed.
fn field(ty: Type, v: u64, length: u64) -> u64 {
    match u32::try_from(length) {
        Ok(0) => 0,
        Ok(bits) if bits < ty.bits => cut(ty, signed(Type { bits, ..ty }, v) as u64),
        _ => cut(ty, v),
    }
}

/// The upper 32 bits of `v << n`, or the lower ones of `v >> n`; 32 and more are 32, or wrap around.
fn funnel(left: bool, wrap: bool, v: u64, n: u64) -> u64 {
    let n = if wrap { n & 31 } else { (n & WORD_BITS).min(32) };
    if left { (v << n) >> 32 } else { v >> n & WORD_BITS }
}

/// The low bits of a type.
fn cut(ty: Type, v: u64) -> u64 {
    if ty.bits >= 64 { v } else { v & ((1 << ty.bits) - 1) }
}

/// The number that the low bits mean.
fn signed(ty: Type, v: u64) -> i64 {
    let v = cut(ty, v);
    if ty.signed && ty.bits < 64 && v >> (ty.bits - 1) & 1 == 1 { (v | !((1 << ty.bits) - 1)) as i64 } else { v as i64 }
}

fn alu(op: Alu, ty: Type, x: u64, y: u64) -> u64 {
    let (a, b) = (signed(ty, x), signed(ty, y));
    let unsigned = (cut(ty, x), cut(ty, y));
    let by_sign = |s: i64, u: u64| if ty.signed { s as u64 } else { u };
    let result = match op {
        Alu::Add => a.wrapping_add(b) as u64,
        Alu::Sub => a.wrapping_sub(b) as u64,
        Alu::Mul => a.wrapping_mul(b) as u64,
        Alu::MulHigh if ty.signed => ((i128::from(a) * i128::from(b)) >> ty.bits) as u64,
        Alu::MulHigh => ((u128::from(unsigned.0) * u128::from(unsigned.1)) >> ty.bits) as u64,
        Alu::And => x & y,
        Alu::Or => x | y,
        Alu::Xor => x ^ y,
        // Shifts by the width or more push everything out; the amount is 32 bits wide.
        Alu::Shl => unsigned.0.checked_shl(y as u32).unwrap_or(0),
        Alu::Shr => by_sign(a >> (y as u32).min(63), unsigned.0.checked_shr(y as u32).unwrap_or(0)),
        Alu::Min => by_sign(a.min(b), unsigned.0.min(unsigned.1)),
        Alu::Max => by_sign(a.max(b), unsigned.0.max(unsigned.1)),
        Alu::Div => by_sign(a.checked_div(b).unwrap_or(0), unsigned.0.checked_div(unsigned.1).unwrap_or(0)),
        Alu::Rem => by_sign(a.checked_rem(b).unwrap_or(0), unsigned.0.checked_rem(unsigned.1).unwrap_or(0)),
    };
    cut(ty, result)
}

fn compare(cmp: Compare, ty: Type, x: u64, y: u64) -> bool {
    let order = if ty.signed { signed(ty, x).cmp(&signed(ty, y)) } else { cut(ty, x).cmp(&cut(ty, y)) };
    match cmp {
        Compare::Eq => order.is_eq(),
        Compare::Ne => order.is_ne(),
        Compare::Lt => order.is_lt(),
        Compare::Le => order.is_le(),
        Compare::Gt => order.is_gt(),
        Compare::Ge => order.is_ge(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S32: Type = Type { signed: true, bits: 32 };
    const U32: Type = Type { signed: false, bits: 32 };

    #[test]
    fn numbers_keep_their_width_and_sign() {
        assert_eq!(alu(Alu::Sub, U32, 1, 2), 0xffff_ffff);
        assert_eq!((alu(Alu::Shr, S32, 0x8000_0000, 31), alu(Alu::Shr, U32, 0x8000_0000, 31)), (0xffff_ffff, 1));
        assert_eq!((alu(Alu::Shl, U32, 1, 32), alu(Alu::Shr, U32, 1, 40)), (0, 0));
        assert_eq!(
            (alu(Alu::Div, S32, (-7i64) as u64, 2), alu(Alu::Rem, S32, (-7i64) as u64, 2)),
            (0xffff_fffd, 0xffff_ffff)
        );
        assert_eq!((alu(Alu::MulHigh, U32, 0xffff_ffff, 2), alu(Alu::MulHigh, S32, 0xffff_ffff, 2)), (1, 0xffff_ffff));
        assert_eq!((alu(Alu::Min, S32, 0xffff_ffff, 1), alu(Alu::Min, U32, 0xffff_ffff, 1)), (0xffff_ffff, 1));
        assert!(compare(Compare::Lt, S32, 0xffff_ffff, 0) && compare(Compare::Gt, U32, 0xffff_ffff, 0));
    }

    #[test]
    fn fields_and_funnels() {
        assert_eq!(
            (field(U32, 0b1011, 2), field(S32, 0b1011, 2), field(U32, 5, 0), field(U32, 5, 40)),
            (3, 0xffff_ffff, 0, 5)
        );
        let v = 0x1234_5678_9abc_def0;
        assert_eq!((funnel(true, true, v, 8), funnel(false, true, v, 8)), (0x3456_789a, 0x789a_bcde));
        assert_eq!((funnel(true, false, v, 99), funnel(false, true, v, 32)), (0x9abc_def0, 0x9abc_def0));
    }
}
