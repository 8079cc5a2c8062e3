//! Steps changed at random: what any schedule can be asked to survive.

use super::super::source::Source;

/// The steps with a few of them left out, swapped, repeated, moved or given other numbers; half of all lists stay as they are.
pub fn edited(mut steps: Vec<String>, source: &mut Source) -> Vec<String> {
    if source.chance(50) {
        return steps;
    }
    for _ in 0..=source.below(3) {
        let n = source.below(steps.len());
        match source.below(8) {
            0 | 1 => drop(steps.remove(n)),
            2 => {
                let m = source.below(steps.len());
                steps.swap(n, m);
            }
            3 => {
                let step = steps.remove(n);
                steps.insert(source.below(steps.len() + 1), step);
            }
            4 => steps.insert(n, steps[n].clone()),
            _ => steps[n] = renumbered(&steps[n], source),
        }
        if steps.is_empty() {
            break;
        }
    }
    steps
}

/// A step with one of its numbers changed.
fn renumbered(step: &str, source: &mut Source) -> String {
    let mut words: Vec<String> = step.split(' ').map(str::to_string).collect();
    let number = |w: &str| w.rsplit('=').next().and_then(|n| n.parse::<i64>().ok());
    let places: Vec<usize> = (0..words.len()).filter(|w| number(&words[*w]).is_some()).collect();
    let Some(place) = source.pick(&places) else { return step.to_string() };
    let old = number(&words[place]).unwrap_or(0);
    let new = match source.below(6) {
        0 => old * 2,
        1 => old / 2,
        2 => old + 1,
        3 => old - 1,
        4 => old * 4,
        _ => source.of([0, 1, 2, 3, 4, 8, 16, 64]),
    };
    let at = words[place].rfind('=').map_or(0, |at| at + 1);
    words[place].replace_range(at.., &new.to_string());
    words.join(" ")
}
