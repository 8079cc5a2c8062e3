//! Steps of the recipes for matrix products: where random steps go on from a whole schedule, or from a part of one.

use super::hopper::edits::edited;
use super::source::Source;
use warploom::gemm::{self, Kind, ThreadTiles};
use warploom::loom::Schedule;
use warploom::{Func, Target};

/// Steps of a recipe for a product on a chip, often changed or cut short; none for any other program.
pub fn steps(func: &Func, target: &Target, source: &mut Source) -> Vec<String> {
    let Some(gemm) = gemm::describe(func) else { return Vec::new() };
    let spec = gemm.spec();
    let made = match source.below(8) {
        0..=3 => {
            let tiles = ThreadTiles { bx: source.of([2, 4]), by: source.of([8, 16]), step_k: 1, v: source.of([4, 8]) };
            let steps = tiles.steps(spec).finish();
            steps.map(|steps| Schedule::new(func.clone(), *target, steps))
        }
        4 => gemm::recommend(&gemm, target),
        _ => source.of([Kind::Simt, Kind::Naive, Kind::Wmma]).schedule(&gemm, target),
    };
    let Ok(stated) = made.and_then(|s| s.completed()) else { return Vec::new() };
    let mut steps: Vec<String> = stated.steps.iter().map(ToString::to_string).collect();
    if source.chance(25) {
        steps.truncate(source.below(steps.len() + 1));
    }
    if steps.is_empty() || source.chance(60) { steps } else { edited(steps, source) }
}
