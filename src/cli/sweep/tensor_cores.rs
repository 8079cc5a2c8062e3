//! The search of TVM's tutorial "How to optimize matmul with Auto TensorCore CodeGen": M, N, L = 512, 32, 512, which is a GEMM of 32 x 512 x
//! 512, in each of its types, over knobs `bx`, `by`, `step_k` and `v`. The tutorial's output names the best f16 configuration of an unnamed
//! GPU.

use super::{Session, choice, figure, show};
use crate::error::Result;
use crate::target::Target;
use crate::tune::Space;

/// The types as the tutorial calls them, the types and the layout here, and the space.
const TYPES: [(&str, &str); 4] = [
    ("float16", include_str!("../../../examples/spaces/tensor_cores_f16.loom")),
    ("int8", include_str!("../../../examples/spaces/tensor_cores_s8.loom")),
    ("int4", include_str!("../../../examples/spaces/tensor_cores_s4.loom")),
    ("int1", include_str!("../../../examples/spaces/tensor_cores_b1.loom")),
];

/// The tutorial's knobs, in its order.
const KNOBS: [&str; 4] = ["bx", "by", "step_k", "v"];

/// The tutorial's best configuration of float16, and its seconds.
const TUTORIAL: (&str, [&str; 4], &str) = ("float16", ["4", "32", "16", "8"], "0.000008");

/// Trials of the tutorial, more than the configurations of a space.
const TRIALS: usize = 1000;

fn space(text: &str, target: Option<Target>) -> Result<Space> {
    Space::parse(text, None, target)
}

/// Searches in each type, and prints the best configurations.
pub fn run(session: &mut Session<'_>) -> Result<()> {
    let mut found = Vec::new();
    for (name, text) in TYPES {
        let space = space(text, session.target)?;
        session.line(format_args!("{name}: {}", space.describe()));
        found.extend(session.searched(&format!("tensor-cores-{name}"), space, TRIALS)?);
    }
    let Some(target) = found.first().map(|s| s.space.target()) else { return Ok(()) };
    session.line(session.unit(target));
    let mut table = show::table(&["type", "program", "tried", "right", "bx", "by", "step_k", "v", "Time cost (s)"]);
    for ((name, _), searched) in TYPES.iter().zip(&found) {
        let best = searched.outcome.winner();
        let knobs = KNOBS.map(|knob| best.and_then(|b| choice(&b.name, knob)).unwrap_or("-").to_string());
        let right = searched.outcome.trials.iter().filter(|t| t.value().is_some()).count().to_string();
        let head = [name.to_string(), searched.title(), searched.outcome.trials.len().to_string(), right];
        let seconds = figure(best.and_then(|b| searched.seconds(b)), 7);
        table.add_row(head.into_iter().chain(knobs).chain([seconds]));
    }
    let (name, knobs, seconds) = TUTORIAL;
    let head = [name, "the tutorial's", "-", "-"].into_iter();
    table.add_row(head.chain(knobs).chain([seconds]));
    session.line(table);
    session.reasons(&found);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_the_tutorials_knobs_and_its_best_configuration() {
        for (name, text) in TYPES {
            let space = space(text, None).unwrap();
            let mut knobs: Vec<&str> = space.knobs().iter().map(|k| k.name.as_str()).collect();
            knobs.sort_unstable();
            assert_eq!((space.count(), knobs), (288, vec!["bx", "by", "step_k", "v"]), "{name}");
            let best = |n: &u64| {
                let name = space.configuration(*n).unwrap().name;
                KNOBS.iter().zip(TUTORIAL.1).all(|(knob, wanted)| choice(&name, knob) == Some(wanted))
            };
            let best: Vec<u64> = (0..288).filter(best).collect();
            assert_eq!(best.len(), 1, "{name}");
            if name == TUTORIAL.0 {
                let configuration = space.configuration(best[0]).unwrap();
                assert!(configuration.schedule.unwrap().scheduled().is_ok(), "{}", configuration.name);
            }
        }
    }
}
