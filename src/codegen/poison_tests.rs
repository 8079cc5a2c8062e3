//! Flags in the module that the backend gets, tried thread by thread: every instruction is evaluated whatever the branches
//! say, as if all of them had been hoisted to the entry, and none may be poison.

use crate::lower::lower;
use std::collections::HashMap;

/// The module as the backend gets it.
fn handed_over(text: &str) -> String {
    let schedule = crate::Schedule::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let func = schedule.scheduled().unwrap_or_else(|e| panic!("{text}: {e}"));
    let target = schedule.target;
    let lowered = lower(&func, &target).unwrap_or_else(|e| panic!("{text}: {e}"));
    let mut module = String::new();
    super::build(&lowered, &target, None, |m| module = m.print_to_string().to_string()).unwrap();
    module
}

/// An integer of a width, as unsigned bits.
#[derive(Clone, Copy, PartialEq)]
struct Bits(u32, u64);

impl Bits {
    fn signed(self) -> i128 {
        let value = i128::from(self.1);
        if value >> (self.0 - 1) & 1 == 1 { value - (1 << self.0) } else { value }
    }

    fn unsigned(self) -> i128 {
        self.1.into()
    }

    fn of(bits: u32, value: i128) -> Bits {
        Bits(bits, (value & ((1 << bits) - 1)) as u64)
    }
}

fn width(ty: &str) -> Option<u32> {
    ty.strip_prefix('i')?.parse().ok()
}

/// The flags that an instruction breaks in one thread, and how many it was asked for.
fn evaluate(line: &str, values: &mut HashMap<String, Bits>, registers: &HashMap<&str, u64>) -> (Vec<String>, usize) {
    let nothing = (Vec::new(), 0);
    let Some((name, rest)) = line.trim().split_once(" = ") else { return nothing };
    let rest = rest.split(", !").next().unwrap_or(rest);
    let words: Vec<&str> = rest.split([' ', ',']).filter(|w| !w.is_empty()).collect();
    let op = words[0];
    if op == "call" {
        let register = registers.iter().find(|(r, _)| rest.contains(&format!("@llvm.nvvm.read.ptx.sreg.{r}()")));
        if let Some((_, value)) = register {
            values.insert(name.into(), Bits(32, *value));
        }
        return nothing;
    }
    let at = words.iter().position(|w| width(w).is_some());
    let Some((at, bits)) = at.and_then(|at| Some((at, width(words[at])?))) else { return nothing };
    let flags: Vec<&str> = words[1..at].to_vec();
    let number = |word: &str, bits: u32| match word {
        "true" => Some(Bits(1, 1)),
        "false" => Some(Bits(1, 0)),
        _ => values.get(word).copied().or_else(|| word.parse().ok().map(|v| Bits::of(bits, v))),
    };
    let a = words.get(at + 1).and_then(|w| number(w, bits));
    let b = words.get(at + 2).and_then(|w| number(w, bits));
    let to = (words.get(at + 2) == Some(&"to")).then(|| width(words[at + 3])).flatten();
    let (exact_signed, exact_unsigned, result) = match (op, a, b) {
        ("add", Some(a), Some(b)) => {
            (a.signed() + b.signed(), a.unsigned() + b.unsigned(), a.unsigned() + b.unsigned())
        }
        ("sub", Some(a), Some(b)) => {
            (a.signed() - b.signed(), a.unsigned() - b.unsigned(), a.unsigned() - b.unsigned())
        }
        ("mul", Some(a), Some(b)) => {
            (a.signed() * b.signed(), a.unsigned() * b.unsigned(), a.unsigned() * b.unsigned())
        }
        ("shl", Some(a), Some(b)) if b.1 < u64::from(bits) => {
            (a.signed() << b.1, a.unsigned() << b.1, a.unsigned() << b.1)
        }
        ("lshr", Some(a), Some(b)) if b.1 < u64::from(bits) => (0, 0, a.unsigned() >> b.1),
        ("ashr", Some(a), Some(b)) if b.1 < u64::from(bits) => (0, 0, a.signed() >> b.1),
        ("and", Some(a), Some(b)) => (0, 0, a.unsigned() & b.unsigned()),
        ("or", Some(a), Some(b)) => (0, 0, a.unsigned() | b.unsigned()),
        ("xor", Some(a), Some(b)) => (0, 0, a.unsigned() ^ b.unsigned()),
        ("udiv", Some(a), Some(b)) if b.1 != 0 => (0, 0, a.unsigned() / b.unsigned()),
        ("urem", Some(a), Some(b)) if b.1 != 0 => (0, 0, a.unsigned() % b.unsigned()),
        ("sdiv", Some(a), Some(b)) if b.1 != 0 => (0, 0, a.signed() / b.signed()),
        ("srem", Some(a), Some(b)) if b.1 != 0 => (0, 0, a.signed() % b.signed()),
        ("zext", Some(a), _) => (0, 0, a.unsigned()),
        ("sext" | "trunc", Some(a), _) => (a.signed(), a.unsigned(), a.signed()),
        _ => return nothing,
    };
    let result = Bits::of(to.unwrap_or(bits), result);
    values.insert(name.into(), result);
    let holds = |flag: &str| match (flag, op) {
        ("nsw", _) => result.signed() == exact_signed,
        ("nuw", _) => result.unsigned() == exact_unsigned,
        ("disjoint", _) => a.zip(b).is_some_and(|(a, b)| a.1 & b.1 == 0),
        ("nneg", _) => a.is_some_and(|a| a.signed() >= 0),
        ("exact", "lshr" | "ashr") => a.zip(b).is_some_and(|(a, b)| a.1 & ((1 << b.1) - 1) == 0),
        ("exact", _) => a.zip(b).is_some_and(|(a, b)| a.signed() % b.signed() == 0),
        _ => panic!("an unknown flag {flag} in {line}"),
    };
    (flags.iter().filter(|f| !holds(f)).map(|f| format!("{f}: {}", line.trim())).collect(), flags.len())
}

/// Tries every instruction in every thread of a launch; how many flags were tried.
fn try_all(module: &str, grid: [u64; 3], block: [u64; 3]) -> usize {
    let mut tried = 0;
    let end = |n: usize| if n < 3 { block[n] } else { grid[n - 3] };
    let mut at = [0_u64; 6];
    loop {
        let names = ["tid.x", "tid.y", "tid.z", "ctaid.x", "ctaid.y", "ctaid.z"];
        let registers: HashMap<&str, u64> = names.into_iter().zip(at).collect();
        let mut values = HashMap::new();
        for line in module.lines() {
            let (broken, flags) = evaluate(line, &mut values, &registers);
            assert!(broken.is_empty(), "at {registers:?}: {broken:?} in\n{module}");
            tried += flags;
        }
        let Some(next) = (0..6).find(|n| at[*n] + 1 < end(*n)) else { return tried };
        at[next] += 1;
        at[..next].fill(0);
    }
}

/// Masked and rotary programs, whose reads are guarded and whose stores are not.
#[test]
fn no_flag_depends_on_a_branch() {
    let mut tried = 0;
    for (limit, width, rows) in [(16, 24, 2), (32, 96, 6), (8, 12, 5), (64, 72, 3)] {
        for (axes, grid, block) in [
            (["threadIdx.x", "blockIdx.x", "threadIdx.y"], [rows, 1, 1], [8, width, 1]),
            (["blockIdx.x", "threadIdx.y", "threadIdx.x"], [8, 1, 1], [width, rows, 1]),
            (["blockIdx.x", "threadIdx.x", "blockIdx.y"], [8, width, 1], [rows, 1, 1]),
        ] {
            for guarded in ["k < LIMIT", "k >= LIMIT", "k < LIMIT and i > 2", "i == 3", "k % 8 == 5"] {
                let guarded = guarded.replace("LIMIT", &limit.to_string());
                let [i, j, k] = axes;
                let text = format!(
                    "program prefix\ninput A f32[8, {rows}, {width}]\ninput C f32[{width}]
                     output B[i 8, j {rows}, k {width}] f32 = select({guarded}, A[i, j, k], 0) + C[k]
                     target sm_90\nbind i {i}\nbind j {j}\nbind k {k}"
                );
                let module = handed_over(&text);
                assert!(!["inbounds", "nusw", "nnan", "ninf"].iter().any(|f| module.contains(f)), "{module}");
                tried += try_all(&module, grid, block);
            }
        }
    }
    assert!(tried > 10_000, "{tried}");
}

/// What holds for all threads stays: addresses of 32 bits are extended with zeros.
#[test]
fn flags_that_hold_for_all_threads_stay() {
    let text = "vec_add 1000\ntarget sm_80\nsplit i ? 128 -> a b\nbind a blockIdx.x\nbind b threadIdx.x";
    let module = handed_over(text);
    assert!(module.contains("nuw nsw") && module.contains("zext nneg"), "{module}");
    assert!(try_all(&module, [8, 1, 1], [128, 1, 1]) > 1000);
    let text = "gemm 64x64x4096 f32 NN\ntarget sm_80\nsplit k ? 8 -> k0 k1\nbind i blockIdx.x\nbind j threadIdx.x";
    let module = handed_over(text);
    assert!(module.contains("phi i") && module.contains("nuw nsw"), "{module}");
}
