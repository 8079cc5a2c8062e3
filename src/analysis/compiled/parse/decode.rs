//! What an instruction does, from the parts of its name and its arguments.

use super::{Alu, Arg, Compare, Names, Space, Tile, Type, What, number};

/// Families of instructions that touch memory, wait for it or jump.
const FOREIGN: [&str; 13] =
    ["ld", "st", "cp", "wmma", "wgmma", "red", "atom", "mbarrier", "call", "brx", "prefetch", "multimem", "tcgen05"];

impl Names {
    /// What an instruction does.
    pub(super) fn decode(&mut self, op: &str, args: &[&str]) -> What {
        let parts: Vec<&str> = op.split('.').collect();
        let known = self.together(&parts, args).or_else(|| self.control(&parts)).or_else(|| self.memory(&parts, args));
        known.or_else(|| self.integers(&parts, args)).unwrap_or_else(|| {
            let dst = args.first().map_or_else(Vec::new, |a| self.registers(a));
            match parts[0] {
                "fma" => What::Fma { dst },
                "wmma" if parts.get(1) == Some(&"mma") => What::Data { dst },
                name if FOREIGN.contains(&name) => What::Foreign { op: op.to_string() },
                _ => What::Data { dst },
            }
        })
    }

    /// What warps, warpgroups, blocks and TMA do together.
    fn together(&mut self, parts: &[&str], args: &[&str]) -> Option<What> {
        let mut first = || args.first().map_or_else(Vec::new, |a| self.registers(a));
        Some(match parts {
            ["elect", ..] => What::Elect { dst: first() },
            ["mbarrier", "try_wait" | "test_wait", ..] => What::Over { dst: first() },
            ["mbarrier", "arrive", ..] => What::Data { dst: first() },
            ["mbarrier", "init" | "inval", ..] | ["setmaxnreg" | "griddepcontrol", ..] => What::Wait,
            // Hints: nothing waits for them, and they bring nothing to a multiprocessor.
            ["prefetch", ..] | ["cp", "async", "bulk", "prefetch", ..] => What::Wait,
            ["wgmma", "fence" | "commit_group" | "wait_group", ..] => What::Wait,
            ["wgmma", "mma_async", ..] => What::Product { dst: first() },
            ["cp", "async", "bulk", "tensor", _, space, ..] => What::Bulk { write: *space == "global" },
            ["shfl", "sync", "idx", ..] => {
                let [dst, a, lane, ..] = args else { return None };
                What::Shuffle { dst: *self.registers(dst).first()?, a: self.arg(a), lane: self.arg(lane) }
            }
            _ => return None,
        })
    }

    fn control(&self, parts: &[&str]) -> Option<What> {
        Some(match parts[0] {
            "ret" | "exit" | "trap" => What::Return,
            // Filled in when all labels are known.
            "bra" => What::Branch { to: 0 },
            "bar" | "barrier" | "membar" | "fence" => What::Wait,
            "cp" if parts.get(1) == Some(&"async")
                && parts.iter().any(|p| p.ends_with("_group") || *p == "wait_all") =>
            {
                What::Wait
            }
            _ => return None,
        })
    }

    fn memory(&mut self, parts: &[&str], args: &[&str]) -> Option<What> {
        if parts[0] == "cp" {
            if parts.get(2) == Some(&"bulk") {
                return None;
            }
            let [to, from, bytes, ..] = args else { return None };
            let filled = args.get(3).map(|a| self.arg(a));
            return Some(What::Copy { bytes: number(bytes)?, to: self.address(to), from: self.address(from), filled });
        }
        if let "ldmatrix" | "stmatrix" = parts[0] {
            let (write, [first, second]) = (parts[0] == "stmatrix", args) else { return None };
            let (place, data) = if write { (first, second) } else { (second, first) };
            let count: u32 = parts.iter().find_map(|p| p.strip_prefix('x')?.parse().ok())?;
            let (base, offset) = self.address(place);
            let dst = if write { Vec::new() } else { self.registers(data) };
            return Some(What::Matrices { write, lanes: 8 * count, base, offset, dst });
        }
        if let Some(tile) = Tile::of(parts) {
            let [first, second, stride] = args else { return None };
            let (place, data) = if tile.write { (first, second) } else { (second, first) };
            let (base, offset) = self.address(place);
            let dst = if tile.write { Vec::new() } else { self.registers(data) };
            return Some(What::Tile { tile, base, offset, stride: self.arg(stride), dst });
        }
        let write = match parts[0] {
            "ld" => false,
            "st" => true,
            _ => return None,
        };
        let space = parts.iter().find_map(|p| match *p {
            "global" => Some(Space::Global),
            "shared" | "shared::cta" | "shared::cluster" => Some(Space::Shared),
            "param" | "const" => Some(Space::Param),
            "local" => Some(Space::Local),
            _ => None,
        })?;
        let count = parts.iter().find_map(|p| p.strip_prefix('v')?.parse::<i64>().ok()).unwrap_or(1);
        let bits = i64::from(element(parts.last()?)?.bits);
        let [first, second] = args else { return None };
        let (place, data) = if write { (first, second) } else { (second, first) };
        let (base, offset) = self.address(place);
        let dst = if write { Vec::new() } else { self.registers(data) };
        Some(What::Access { space, write, bytes: count * bits / 8, base, offset, dst })
    }

    fn integers(&mut self, parts: &[&str], args: &[&str]) -> Option<What> {
        let ty = integer(parts.last()?);
        let dst = match self.arg(args.first()?) {
            Arg::Reg(r) => r,
            _ => return None,
        };
        let a = self.arg(args.get(1)?);
        let mut rest = args[2..].iter().map(|t| self.arg(t)).collect::<Vec<_>>().into_iter();
        Some(match parts[0] {
            // Also of a float's bits: where they come from a register they are not known there either.
            // The same place in another block of the cluster has the same banks.
            "mov" | "cvta" | "mapa" => What::Move { dst, src: a },
            "setp" => What::Set { cmp: compare(parts.get(1)?)?, ty: ty?, dst, a, b: rest.next()? },
            "selp" => What::Select { dst, a, b: rest.next()?, p: rest.next()? },
            "cvt" => {
                let to = integer(parts.get(parts.len().checked_sub(2)?)?)?;
                What::Convert { to, from: ty?, dst, a }
            }
            "bfe" => What::Field { ty: ty?, dst, a, from: rest.next()?, length: rest.next()? },
            "shf" => {
                let (left, wrap) = (parts.contains(&"l"), parts.contains(&"wrap"));
                What::Funnel { left, wrap, dst, low: a, high: rest.next()?, by: rest.next()? }
            }
            "not" => What::Not { ty: ty?, dst, a },
            "neg" => What::Alu { op: Alu::Sub, ty: ty?, dst, a: Arg::Int(0), b: a },
            "mul" if parts.contains(&"wide") => {
                What::Mad { ty: ty?, wide: true, dst, a, b: rest.next()?, c: Arg::Int(0) }
            }
            "mad" if parts.contains(&"lo") || parts.contains(&"wide") => {
                What::Mad { ty: ty?, wide: parts.contains(&"wide"), dst, a, b: rest.next()?, c: rest.next()? }
            }
            name => What::Alu { op: alu(name, parts)?, ty: ty?, dst, a, b: rest.next()? },
        })
    }
}

fn alu(name: &str, parts: &[&str]) -> Option<Alu> {
    Some(match name {
        "add" => Alu::Add,
        "sub" => Alu::Sub,
        "mul" if parts.contains(&"hi") => Alu::MulHigh,
        "mul" => Alu::Mul,
        "and" => Alu::And,
        "or" => Alu::Or,
        "xor" => Alu::Xor,
        "shl" => Alu::Shl,
        "shr" => Alu::Shr,
        "min" => Alu::Min,
        "max" => Alu::Max,
        "div" => Alu::Div,
        "rem" => Alu::Rem,
        _ => return None,
    })
}

fn compare(name: &str) -> Option<Compare> {
    Some(match name {
        "eq" => Compare::Eq,
        "ne" => Compare::Ne,
        "lt" | "lo" => Compare::Lt,
        "le" | "ls" => Compare::Le,
        "gt" | "hi" => Compare::Gt,
        "ge" | "hs" => Compare::Ge,
        _ => return None,
    })
}

/// A type of integers or predicates.
fn integer(name: &str) -> Option<Type> {
    if name == "pred" {
        return Some(Type { signed: false, bits: 1 });
    }
    let bits = name.get(1..)?.parse().ok().filter(|b| [8, 16, 32, 64].contains(b))?;
    let signed = match name.get(..1)? {
        "u" | "b" => false,
        "s" => true,
        _ => return None,
    };
    Some(Type { signed, bits })
}

/// A type of memory.
fn element(name: &str) -> Option<Type> {
    let float = || Some(Type { signed: false, bits: name.strip_prefix('f')?.parse().ok()? });
    integer(name).or_else(float)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_data() {
        let mut names = Names::default();
        assert!(matches!(
            names.decode("bfe.u32", &["%r1", "%r2", "5", "2"]),
            What::Field { from: Arg::Int(5), length: Arg::Int(2), .. }
        ));
        assert!(matches!(names.decode("mbarrier.arrive.shared.b64", &["%r1", "[%r2]"]), What::Data { .. }));
        assert!(matches!(names.decode("mbarrier.complete_tx.b64", &["[%r2]", "8"]), What::Foreign { .. }));
        assert!(matches!(
            names.decode("cp.async.bulk.shared::cluster.global", &["[%r1]", "[%r2]"]),
            What::Foreign { .. }
        ));
        let store = names.decode("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group", &["[%rd1, {%r1, %r2}]"]);
        assert_eq!(store, What::Bulk { write: true });
        assert_eq!(names.decode("cp.async.bulk.wait_group.read", &["1"]), What::Wait);
        assert_eq!(names.decode("cp.async.bulk.prefetch.L2.global", &["[%rd1]", "64"]), What::Wait);
        assert_eq!(names.decode("prefetch.global.L2", &["[%rd1]"]), What::Wait);
        let product =
            names.decode("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", &["{%f1, %f2}", "%rd1", "%rd2"]);
        assert!(matches!(product, What::Product { dst } if dst.len() == 2));
        assert!(matches!(
            names.decode("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16", &["{%r1, %r2}", "[%r3+64]"]),
            What::Matrices { write: false, lanes: 16, offset: 64, dst, .. } if dst.len() == 2
        ));
        let stored = names.decode("stmatrix.sync.aligned.m8n8.x4.shared.b16", &["[%r1]", "{%r2, %r3, %r4, %r5}"]);
        assert!(matches!(stored, What::Matrices { write: true, lanes: 32, dst, .. } if dst.is_empty()));
        assert!(
            matches!(names.decode("prmt.b32", &["%r1", "%r2", "%r3", "0x5410"]), What::Data { dst } if dst.len() == 1)
        );
        assert!(matches!(names.decode("add.rn.f32", &["%f1", "%f2", "%f3"]), What::Data { .. }));
        assert!(matches!(names.decode("mov.b32", &["%r1", "{%rs1, %rs2}"]), What::Move { src: Arg::Other, .. }));
    }
}
