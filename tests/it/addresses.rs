//! Addresses that PTX stores to, evaluated from its text for every thread: integer instructions, predicates and branches.
//! Values that are loaded stay unknown, so the programs here have no loop and no index that depends on data.

use std::collections::HashMap;
use warploom::Schedule;
use warploom::codegen::compile;
use warploom::lower::lower;

/// What one thread stores to: byte offsets in the last parameter.
fn stores(ptx: &str, registers: &HashMap<&str, u64>) -> Vec<u64> {
    let code: Vec<&str> = ptx
        .lines()
        .map(|l| l.split("//").next().unwrap_or("").trim().trim_end_matches(';'))
        .skip_while(|l| *l != "{")
        .collect();
    let labels: HashMap<&str, usize> =
        code.iter().enumerate().filter_map(|(n, l)| Some((l.strip_suffix(':')?, n))).collect();
    let output = ptx.lines().filter(|l| l.trim_start().starts_with(".param")).count() as u64 - 1;
    let mut values: HashMap<&str, u64> = HashMap::new();
    let (mut at, mut out) = (0, Vec::new());
    while let Some(line) = code.get(at) {
        at += 1;
        let (guard, line) = match line.strip_prefix('@').and_then(|l| l.split_once([' ', '\t'])) {
            Some((guard, rest)) => (Some(guard), rest.trim()),
            None => (None, *line),
        };
        if let Some(guard) = guard {
            let value = values.get(guard.trim_start_matches('!')).copied().expect("a guard is known");
            if (value == 1) == guard.starts_with('!') {
                continue;
            }
        }
        let (op, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let args: Vec<&str> = rest.split(',').map(str::trim).collect();
        let parts: Vec<&str> = op.split('.').collect();
        let number = |word: &str| -> Option<u64> {
            let constant = word.parse::<i64>().ok().map(|v| v as u64);
            constant.or_else(|| values.get(word).copied()).or_else(|| registers.get(word).copied())
        };
        let signed =
            |v: u64| if parts.last().is_some_and(|t| t.ends_with("32")) { i64::from(v as i32) } else { v as i64 };
        let wide = |v: u64| if parts.last() == Some(&"u32") { u64::from(v as u32) } else { i64::from(v as i32) as u64 };
        let three = || Some((number(args.get(1)?)?, number(args.get(2)?)?));
        let short = parts.last().is_some_and(|t| t.ends_with("32"));
        let value = match parts[..] {
            ["ret"] => return out,
            ["bra", ..] => {
                at = labels[args[0]];
                continue;
            }
            ["ld", "param", ..] => {
                // Every array gets an address range of its own.
                let name = args[1].trim_matches(['[', ']']);
                name.rsplit('_').next().and_then(|n| n.parse::<u64>().ok()).map(|n| (n + 1) << 40)
            }
            ["st", "global", ..] => {
                let inside = args[0].trim_matches(['[', ']']);
                let (base, offset) = inside.split_once('+').unwrap_or((inside, "0"));
                let address = number(base).expect("an address is known") as i64 + offset.parse::<i64>().unwrap();
                out.push((address as u64).checked_sub((output + 1) << 40).expect("a store is to the result"));
                continue;
            }
            ["mov", "u32" | "u64" | "b32" | "b64"] | ["cvt", "u64", "u32"] | ["cvt", "u32", "u64"] => number(args[1]),
            ["cvt", "s64", "s32"] => number(args[1]).map(|v| i64::from(v as i32) as u64),
            ["add", "s32" | "s64"] => three().map(|(a, b)| a.wrapping_add(b)),
            ["sub", "s32" | "s64"] => three().map(|(a, b)| a.wrapping_sub(b)),
            ["mul", "lo", ..] => three().map(|(a, b)| a.wrapping_mul(b)),
            ["mul", "wide", _] => three().map(|(a, b)| wide(a).wrapping_mul(wide(b))),
            ["mad", "lo", ..] => three().zip(number(args[3])).map(|((a, b), c)| a.wrapping_mul(b).wrapping_add(c)),
            ["mad", "wide", _] => {
                three().zip(number(args[3])).map(|((a, b), c)| wide(a).wrapping_mul(wide(b)).wrapping_add(c))
            }
            ["shl", ..] => three().map(|(a, b)| a << b),
            ["shr", "u32" | "u64"] => three().map(|(a, b)| a >> b),
            ["and", ..] => three().map(|(a, b)| a & b),
            ["or", ..] => three().map(|(a, b)| a | b),
            ["setp", compare, _] => three().map(|(a, b)| {
                let order = signed(a).cmp(&signed(b));
                u64::from(match compare {
                    "gt" => order.is_gt(),
                    "ge" => order.is_ge(),
                    "lt" => order.is_lt(),
                    "le" => order.is_le(),
                    "eq" => order.is_eq(),
                    "ne" => order.is_ne(),
                    _ => panic!("{line}"),
                })
            }),
            ["ld", "global", ..] | ["add" | "sub" | "mul" | "fma", "rn", ..] | ["mov", "f32"] | ["selp", "f32"] => None,
            _ if op.starts_with('.') || op == "{" || op == "}" || op.ends_with(':') || op.is_empty() => continue,
            _ => panic!("{line}"),
        };
        match value {
            Some(value) => {
                values.insert(args[0], if short && parts[1] != "wide" { value & 0xffff_ffff } else { value })
            }
            None => values.remove(args[0]),
        };
    }
    panic!("the kernel does not return: {ptx}")
}

/// Every element is stored to once, and nothing else is.
fn stores_each_element_once(text: &str, elements: u64) {
    let schedule = Schedule::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let kernels = compile(&lowered, &schedule.target).unwrap();
    let kernel = &kernels.kernels[0];
    let ends: Vec<u64> = kernel.block.iter().chain(&kernel.grid).map(|n| u64::from(*n)).collect();
    let names = ["%tid.x", "%tid.y", "%tid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z"];
    let mut all = Vec::new();
    for n in 0..ends.iter().product() {
        let mut rest = n;
        let at = ends.iter().map(|end| {
            let digit = rest % end;
            rest /= end;
            digit
        });
        all.extend(stores(&kernels.text, &names.into_iter().zip(at).collect()));
    }
    all.sort_unstable();
    let wanted: Vec<u64> = (0..elements).map(|n| n * 4).collect();
    assert!(all == wanted, "{text}\n{}", kernels.text);
}

#[test]
fn masked_programs_store_to_every_element() {
    let prefix = "program prefix\ninput A f32[8, 2, 24]\ninput C f32[24]
        output B[i 8, j 2, k 24] f32 = select(k < 16, A[i, j, k], 0) + C[k]
        target CHIP\nbind i threadIdx.x\nbind j blockIdx.x\nbind k threadIdx.y";
    let rotary = "program rotary\ninput Q f32[4, 6, 96]\ninput C f32[96]
        output O[b 4, i 6, j 96] f32 = select(j < 32, Q[b, i, j], 0) * C[j]
        target CHIP\nbind b blockIdx.x\nbind i threadIdx.x\nbind j blockIdx.y";
    for chip in ["sm_70", "sm_80", "sm_90", "sm_90a"] {
        stores_each_element_once(&prefix.replace("CHIP", chip), 8 * 2 * 24);
        stores_each_element_once(&rotary.replace("CHIP", chip), 4 * 6 * 96);
    }
}

#[test]
fn masks_of_other_shapes_and_orders_of_axes_do_too() {
    for (rows, width, limit) in [(2, 24, 16), (6, 96, 32), (5, 12, 8), (3, 72, 64)] {
        for axes in [
            ["threadIdx.x", "blockIdx.x", "threadIdx.y"],
            ["blockIdx.x", "threadIdx.x", "blockIdx.y"],
            ["blockIdx.y", "threadIdx.y", "threadIdx.x"],
            ["threadIdx.y", "blockIdx.x", "threadIdx.x"],
        ] {
            for mask in [format!("k < {limit}"), format!("k >= {limit}"), "i + k == 9".into()] {
                let [i, j, k] = axes;
                stores_each_element_once(
                    &format!(
                        "program masked\ninput A f32[4, {rows}, {width}]\ninput C f32[{width}]
                         output B[i 4, j {rows}, k {width}] f32 = select({mask}, A[i, j, k], 0) + C[k]
                         target sm_90\nbind i {i}\nbind j {j}\nbind k {k}"
                    ),
                    4 * rows * width,
                );
            }
        }
    }
}
