//! What the ceilings of a chip are measured with (`benches/ceilings`): each computes what it says at a reduced size, is clean
//! code, and its machine code has in the loop that is measured what it claims, and little else.

use super::ptxas::tools;
use super::sample::drawn;
use super::tensor::right;
use std::collections::BTreeSet;
use std::path::Path;
use warploom::{Schedule, Target, assemble};

/// A file, and what is known of it.
struct Ceiling {
    name: &'static str,
    /// Words of the file and what to put in their place: a size that the simulator does, at which the loop stays a loop.
    smaller: &'static [(&'static str, &'static str)],
    /// Instructions that the machine code holds.
    holds: &'static [&'static str],
    /// The loop around the first of them has no others, but for its own counting; empty where more is to happen there.
    alone: &'static [&'static str],
}

const CEILINGS: [Ceiling; 8] = [
    Ceiling { name: "copies_1", smaller: COPIES, holds: &["UTMALDG.2D", "HGMMA"], alone: &[] },
    Ceiling { name: "copies_2", smaller: COPIES, holds: &["UTMALDG.2D.MULTICAST", "HGMMA"], alone: &[] },
    Ceiling { name: "copies_4", smaller: COPIES, holds: &["UTMALDG.2D.MULTICAST", "HGMMA"], alone: &[] },
    Ceiling { name: "launch", smaller: &[], holds: &["LDG", "STG"], alone: &[] },
    Ceiling { name: "mma_f16", smaller: &[("33792", "256"), ("2048", "24")], holds: &["HMMA"], alone: &["HMMA"] },
    Ceiling { name: "read", smaller: &[("1056", "3")], holds: &["LDG.E.128"], alone: &["LDG", "FADD"] },
    Ceiling { name: "wgmma_rs", smaller: PRODUCTS, holds: &["HGMMA"], alone: &["HGMMA", "WARPGROUP.ARRIVE"] },
    Ceiling { name: "wgmma_ss", smaller: PRODUCTS, holds: &["HGMMA"], alone: &["HGMMA", "WARPGROUP.ARRIVE"] },
];

const COPIES: &[(&str, &str)] = &[("120", "4"), ("16384", "640")];
const PRODUCTS: &[(&str, &str)] = &[("16896", "128"), ("256", "8"), ("512", "136")];

/// Instructions that count a loop's trips, move its uniform registers, and fill the slots between products.
const COUNTING: [&str; 14] = [
    "BRA", "CALL", "IADD3", "ISETP", "IMAD", "MOV", "NOP", "PLOP3", "UIADD3", "UISETP", "UMOV", "ULOP3", "VIADD",
    "USHF",
];

fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/ceilings").join(name).with_extension("loom");
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn schedule(name: &str, text: &str) -> Schedule {
    Schedule::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn every_ceiling_is_known_here() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/ceilings");
    let files = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let known = CEILINGS.iter().map(|c| format!("{}.loom", c.name));
    assert_eq!(files.collect::<BTreeSet<_>>(), known.collect::<BTreeSet<_>>());
}

/// A third of the ceilings, as the commit draws them, and the one that reads.
#[test]
fn ceilings_compute_what_they_say() {
    for ceiling in CEILINGS.iter().filter(|c| c.name == "read" || drawn(&format!("{} computes", c.name), 3)) {
        let replaced = |t: String, (from, to): &(&str, &str)| {
            assert!(t.contains(from), "{}: {from}", ceiling.name);
            t.replace(from, to)
        };
        right(&schedule(ceiling.name, &ceiling.smaller.iter().fold(text(ceiling.name), replaced)));
    }
}

/// The instructions of each loop that holds no other, without predicates.
fn loops(sass: &str) -> Vec<Vec<&str>> {
    let (mut out, mut label, mut body) = (Vec::new(), "", Vec::new());
    for line in sass.lines().map(str::trim) {
        if let Some(name) = line.strip_suffix(':') {
            (label, body) = (name, Vec::new());
        } else if let Some((_, code)) = line.split_once("*/") {
            body.extend(code.split_whitespace().find(|word| !word.starts_with('@')));
            if !label.is_empty() && code.contains("BRA") && code.contains(&format!("({label})")) {
                out.push(std::mem::take(&mut body));
            }
        }
    }
    out
}

/// A third of the ceilings, as the commit draws them, and the one that reads.
#[test]
fn ceilings_are_clean_code_that_does_what_they_claim() {
    let tools = tools();
    for ceiling in CEILINGS.iter().filter(|c| c.name == "read" || drawn(&format!("{} is clean", c.name), 3)) {
        let own = schedule(ceiling.name, &text(ceiling.name));
        let hopper = (own.target.sm < 90).then(|| own.clone().for_target(Target::sm_90()));
        for schedule in [own].into_iter().chain(hopper) {
            let context = format!("{} for {}", ceiling.name, schedule.target);
            let kernels = warploom::compile(&schedule).unwrap_or_else(|e| panic!("{context}: {e}"));
            for ptxas in tools.iter().filter(|p| p.knows(schedule.target.name)) {
                let made = ptxas.assemble(&kernels.text, schedule.target.name).unwrap();
                let context = format!("{context} with ptxas {}", ptxas.version);
                assert!(made.usage.iter().all(|u| u.is_clean()), "{context}: {:#?}", made.usage);
                assert_eq!(made.warnings, [""; 0], "{context}");
                claims(ceiling, &assemble::sass(&made.cubin).unwrap_or_else(|e| panic!("{context}: {e}")), &context);
            }
        }
    }
}

fn claims(ceiling: &Ceiling, sass: &str, context: &str) {
    for word in ceiling.holds {
        assert!(sass.contains(word), "{context} has no {word}");
    }
    if ceiling.alone.is_empty() {
        return;
    }
    let loops = loops(sass);
    let measured = loops.iter().find(|l| l.iter().any(|word| word.starts_with(ceiling.holds[0])));
    let measured = measured.unwrap_or_else(|| panic!("{context}: no loop of {}", ceiling.holds[0]));
    let is = |word: &str, of: &[&str]| of.iter().any(|start| word.starts_with(start));
    let others: Vec<_> = measured.iter().filter(|w| !is(w, ceiling.alone) && !is(w, &COUNTING)).collect();
    assert!(others.is_empty(), "{context}: the loop holds {others:?}");
    let work = measured.iter().filter(|w| is(w, ceiling.alone)).count();
    let rest = measured.iter().filter(|w| !is(w, ceiling.alone) && **w != "NOP").count();
    assert!(work >= 4 * rest, "{context}: {rest} instructions count {work}");
}
