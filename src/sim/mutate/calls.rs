//! What can be wrong with an instruction of a warp, and with swizzled addresses.

use super::{Change, change, next_slot, shifted_bounds};
use crate::ir::{Call, Cond, Descriptor, Func, Held, Index, IndexOp, Operand, Stmt, print};

/// An instruction that is missing, whose lanes give other addresses, or whose registers are others.
pub fn damaged(func: &Func, call: &Call) -> Vec<Change> {
    let line = |c: &Call| print::stmts(func, &[Stmt::Call(c.clone())]).trim().to_string();
    let text = line(call);
    let mut out = vec![change("instruction removed", format!("`{text}` removed"), Vec::new())];
    for (n, operand) in call.operands.iter().enumerate() {
        let mut became = |kind, by: &dyn Fn(&mut Operand)| {
            let mut call = call.clone();
            by(&mut call.operands[n]);
            let new = line(&call);
            // What the text of a call leaves out.
            let what = match new == text {
                true => {
                    let name = &func.buffer(operand.buffer).name;
                    let (was, is) = (held(&operand.held), held(&call.operands[n].held));
                    format!("`{text}` takes {name} with {is}, not {was}")
                }
                false => format!("`{text}` became `{new}`"),
            };
            out.push(change(kind, what, vec![Stmt::Call(call)]));
        };
        let step = match &operand.held {
            Held::Registers(elements) => elements.len() as i64,
            Held::Address(lanes) => i64::from(*lanes),
            Held::Rows { run, .. } => i64::from(*run),
            Held::Descriptor(d) => d.tile[1],
        };
        for by in [-step, step] {
            became("operand moved", &|o| o.indices.iter_mut().for_each(|i| *i = i.clone() + by));
        }
        if let Some(index) = operand.indices.first().and_then(|i| next_slot(func, operand.buffer, i)) {
            became("stage", &|o| o.indices = vec![index.clone()]);
        }
        if let Some(indices) = unswizzled(&operand.indices) {
            became("swizzle", &|o| o.indices = indices.clone());
        }
        if let Held::Rows { rows, run, stride } = operand.held
            && rows > 1
        {
            let chunk = 128 / i64::from(func.buffer(operand.buffer).dtype.bits());
            for stride in [stride - chunk, stride + chunk] {
                became("stride", &|o| o.held = Held::Rows { rows, run, stride });
            }
        }
        if let Held::Descriptor(d) = operand.held {
            for other in described(d) {
                became("descriptor", &|o| o.held = Held::Descriptor(other));
            }
        }
        if let Held::Registers(elements) = &operand.held
            && elements.len() > 1
        {
            let turned = [&elements[1..], &elements[..1]].concat();
            became("registers exchanged", &|o| o.held = Held::Registers(turned.clone()));
        }
    }
    let others = call
        .adds
        .iter()
        .flat_map(|adds| [Cond::Const(true), Cond::Const(false)].into_iter().chain(shifted_bounds(adds)));
    for adds in others {
        let what = format!("`{text}` adds where {}", print::cond(func, &adds));
        out.push(change("init", what, vec![Stmt::Call(Call { adds: Some(adds), ..call.clone() })]));
    }
    out
}

/// How an instruction holds an operand.
fn held(held: &Held) -> String {
    match held {
        Held::Registers(elements) => format!("registers {}", listed(elements)),
        Held::Address(lanes) => format!("addresses of {lanes} elements"),
        Held::Rows { rows, run, stride } => format!("{rows} rows of {run} elements, {stride} apart"),
        Held::Descriptor(d) => format!(
            "leading offset {}, stride {}, swizzle {}, {}-major",
            d.leading,
            d.stride,
            d.swizzle,
            if d.along_k { "K" } else { "MN" }
        ),
    }
}

/// The first numbers of a list, and how many there are.
fn listed(numbers: &[i64]) -> String {
    let first: Vec<String> = numbers.iter().take(4).map(ToString::to_string).collect();
    let more = if numbers.len() > 4 { format!(", .. ({} in all)", numbers.len()) } else { String::new() };
    format!("{}{more}", first.join(", "))
}

/// Descriptors that say otherwise how the tile lies: the offsets that count, the swizzle, and along what its rows run.
fn described(d: Descriptor) -> Vec<Descriptor> {
    let swizzle = if d.swizzle == 128 { 64 } else { 2 * d.swizzle };
    let mut out = vec![
        Descriptor { stride: d.stride + 128, ..d },
        Descriptor { swizzle, ..d },
        Descriptor { along_k: !d.along_k, ..d },
    ];
    // From panel to panel, where a tile has several.
    if !d.along_k {
        out.push(Descriptor { leading: d.leading + 128, ..d });
    }
    out
}

/// Indices without the flips of a swizzle; `None` where there are none.
pub fn unswizzled(indices: &[Index]) -> Option<Vec<Index>> {
    let straight: Vec<Index> = indices.iter().map(without_flips).collect();
    (straight != indices).then_some(straight)
}

fn without_flips(index: &Index) -> Index {
    match index {
        Index::Bin(IndexOp::Xor, a, _) => without_flips(a),
        Index::Bin(op, a, b) => Index::bin(*op, without_flips(a), without_flips(b)),
        other => other.clone(),
    }
}
