//! Whether everything that is read has been written: for every iteration of a reader there is one of a writer with the same element.
//!
//! The writes are inverted ([`invert`]), which leaves a plain question: is there an iteration of the reader for which none of the
//! guessed iterations of writers exists and writes the element? If not, that is a proof. If there is one, the writers are asked about that
//! iteration alone. None of them writes it: that refutes the claim. One does: its values are another guess.

use super::invert::{Rest, Writer, invert};
use super::points::Ranged;
use super::sites::Site;
use crate::index::Points;
use crate::index::{Answer, Compare, Formula, Linear, STEPS};
use crate::ir::decide::{Terms, Values, Verdict};
use crate::ir::simplify::Env;
use crate::ir::{Index, Var};

/// An access that may have written what is read.
#[derive(Debug, Clone)]
pub struct Earlier {
    /// The write.
    pub site: Site,
    /// Its loops that need not be at the reader's iteration.
    pub own: Vec<Ranged>,
    /// A number that is smaller in the write's iteration than in the reader's: its loops run one after the other.
    pub before: Option<Index>,
}

/// Guesses that a claim is refined by.
const ROUNDS: usize = 12;

/// A reader of at most so many iterations is asked about one by one where guesses do not do.
const FEW: i64 = 1 << 10;

/// Whether each element that `reader` touches, for all values of `shared` and of its loops, is written by one of the writers.
pub fn covered(reader: &Site, shared: &[Ranged], writers: &[Earlier]) -> Verdict {
    match guessed(reader, shared, writers) {
        Verdict::Undecided => one_by_one(reader, shared, writers),
        verdict => verdict,
    }
}

fn guessed(reader: &Site, shared: &[Ranged], writers: &[Earlier]) -> Verdict {
    let mut guesses: Vec<(usize, Vec<Ranged>)> = Vec::new();
    for _ in 0..ROUNDS {
        match missed(reader, shared, writers, &guesses) {
            Some(None) => return Verdict::Proved,
            None => return Verdict::Undecided,
            Some(Some(point)) => match written_at(reader, &point, writers) {
                Some(None) => return Verdict::Refuted(point),
                None => return Verdict::Undecided,
                Some(Some((writer, own))) => {
                    let around = point.into_iter().filter(|(v, _)| own.iter().all(|(w, _)| w != v));
                    let guess = (writer, own.iter().copied().chain(around).collect());
                    if guesses.contains(&guess) {
                        return Verdict::Undecided;
                    }
                    guesses.push(guess);
                }
            },
        }
    }
    Verdict::Undecided
}

/// Asks the writers about each iteration of a reader that has few.
fn one_by_one(reader: &Site, shared: &[Ranged], writers: &[Earlier]) -> Verdict {
    let Some(points) = Points::within(&variables(reader, shared), FEW) else { return Verdict::Undecided };
    for point in points {
        let value = |v: Var| point.iter().find(|(w, _)| *w == v).map(|(_, x)| *x);
        if reader.given.eval(&value) == Some(false) {
            continue;
        }
        match written_at(reader, &point, writers) {
            Some(Some(_)) => {}
            Some(None) => return Verdict::Refuted(point),
            None => return Verdict::Undecided,
        }
    }
    Verdict::Proved
}

/// The variables of a reader, each once.
fn variables(reader: &Site, shared: &[Ranged]) -> Vec<Ranged> {
    let mut all = shared.to_vec();
    all.extend(reader.vars.iter().filter(|(v, _)| shared.iter().all(|(w, _)| w != v)));
    all
}

/// An iteration of the reader for which no guess holds; the inner `None` where there is none, the outer where that is not decided.
fn missed(
    reader: &Site,
    shared: &[Ranged],
    writers: &[Earlier],
    guesses: &[(usize, Vec<Ranged>)],
) -> Option<Option<Vec<Ranged>>> {
    let vars = variables(reader, shared);
    let mut terms = Terms::new();
    let values = terms.bind(&vars);
    let mut env = Env::new();
    vars.iter().for_each(|(v, extent)| env.bind(*v, 0, extent.saturating_sub(1)));
    let happens = terms.possible(&reader.given, &values)?;
    terms.question.require(happens);
    let element = reader.indices.iter().map(|i| terms.index(i, &values)).collect::<Option<Vec<_>>>()?;
    for (n, writer) in writers.iter().enumerate() {
        let found = guesses.iter().filter(|(at, _)| *at == n).map(|(_, point)| Rest::At(point));
        // Loops that both are in, but for those whose iterations have to be earlier, may be at the reader's iteration.
        let other =
            |v: Var| values.iter().all(|(w, _)| *w != v) || writer.before.as_ref().is_some_and(|b| b.mentions(v));
        let apart: Vec<Ranged> = writer.own.iter().filter(|(v, _)| other(*v)).copied().collect();
        let mut kinds = vec![(&apart, Rest::First), (&apart, Rest::Last)];
        if apart.len() < writer.own.len() {
            kinds.extend([(&writer.own, Rest::First), (&writer.own, Rest::Last)]);
        }
        kinds.extend(found.map(|rest| (&writer.own, rest)));
        for (own, rest) in kinds {
            // A guess that cannot be made is one that never holds.
            if let Some(holds) = guess(&mut terms, writer, own, &element, &values, &env, rest) {
                terms.question.require(holds.negated()?);
            }
        }
    }
    match terms.question.decide(STEPS).0 {
        Answer::Impossible => Some(None),
        Answer::Undecided => None,
        Answer::Point(point) => Some(Some(terms.read(&point, &vars, &values)?)),
    }
}

/// Where the guessed iteration of a writer, with the reader's values of all loops but `own`, exists and writes the element.
fn guess(
    terms: &mut Terms,
    writer: &Earlier,
    own: &[Ranged],
    element: &[Linear],
    around: &Values,
    env: &Env,
    rest: Rest<'_>,
) -> Option<Formula> {
    let site = Writer { indices: &writer.site.indices, given: &writer.site.given, own };
    let values = invert(terms, &site, element, around, env, rest)?;
    let mut parts = vec![writes(terms, writer, element, &values, around)?];
    for (v, extent) in &writer.own {
        let (_, value) = values.iter().find(|(w, _)| w == v)?;
        parts.push(Formula::within(value, &Linear::default(), &Linear::from(*extent))?);
    }
    Some(Formula::all(parts))
}

/// Where a writer's iteration writes the element, before the reader's iteration.
fn writes(
    terms: &mut Terms,
    writer: &Earlier,
    element: &[Linear],
    values: &Values,
    around: &Values,
) -> Option<Formula> {
    let mut parts = vec![terms.cond(&writer.site.given, values)?];
    let written = writer.site.indices.iter().map(|i| terms.index(i, values)).collect::<Option<Vec<_>>>()?;
    parts.push(Terms::equal(&written, element)?);
    if let Some(number) = &writer.before {
        let (own, now) = (terms.index(number, values)?, terms.index(number, around)?);
        parts.push(Formula::compare(Compare::Less, &own, &now)?);
    }
    Some(Formula::all(parts))
}

/// The writer, and its iteration, that writes what the reader reads in one iteration; the inner `None` where there is none.
fn written_at(reader: &Site, point: &[Ranged], writers: &[Earlier]) -> Option<Option<(usize, Vec<Ranged>)>> {
    let value = |v: Var| point.iter().find(|(w, _)| *w == v).map(|(_, x)| *x);
    if reader.given.eval(&value) != Some(true) {
        return None;
    }
    let element = reader.indices.iter().map(|i| i.eval(&value).map(Linear::from)).collect::<Option<Vec<_>>>()?;
    let around: Values = point.iter().map(|(v, x)| (*v, Linear::from(*x))).collect();
    let mut decided = true;
    for (n, writer) in writers.iter().enumerate() {
        let mut terms = Terms::new();
        let mut values = terms.bind(&writer.own);
        values.extend(around.iter().filter(|(v, _)| writer.own.iter().all(|(w, _)| w != v)).cloned());
        let Some(holds) = writes(&mut terms, writer, &element, &values, &around) else {
            decided = false;
            continue;
        };
        terms.question.require(holds);
        match terms.question.decide(STEPS).0 {
            Answer::Impossible => {}
            Answer::Undecided => decided = false,
            Answer::Point(point) => return Some(Some((n, terms.read(&point, &writer.own, &values)?))),
        }
    }
    decided.then_some(None)
}

/// What is read in an iteration.
pub fn element(site: &Site, point: &[Ranged]) -> Vec<i64> {
    let value = |v: Var| point.iter().find(|(w, _)| *w == v).map(|(_, x)| *x);
    site.indices.iter().map(|i| i.eval(&value).unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Cond;
    use fastrand::Rng;

    fn site(indices: Vec<Index>, vars: &[Ranged], given: Cond) -> Site {
        Site { touches: super::super::sites::Touches::Writes, indices, vars: vars.to_vec(), given }
    }

    fn vars(rng: &mut Rng, first: u32, count: usize) -> Vec<Ranged> {
        (0..count).map(|n| (Var(first + n as u32), [1, 2, 3, 4, 6, 8][rng.usize(..6)])).collect()
    }

    /// A sum of loops and digits of loops, as layouts, splits and fuses make them.
    fn index(rng: &mut Rng, of: &[Ranged]) -> Index {
        let mut sum = Index::Int(rng.i64(0..2) * rng.i64(0..3));
        for (v, _) in of {
            if rng.u8(..4) > 0 {
                sum = sum + Index::from(*v) * [1, 1, 2, 4, 8, -1][rng.usize(..6)];
            }
        }
        match rng.u8(..6) {
            0 => sum.floordiv([2, 3, 4][rng.usize(..3)]),
            1 => sum.floormod([4, 6, 8][rng.usize(..3)]),
            2 => sum.clone().floordiv(4) * 8 + sum.floormod(4),
            _ => sum,
        }
    }

    fn given(rng: &mut Rng, of: &[Ranged]) -> Cond {
        match rng.u8(..4) {
            0 => Cond::lt(index(rng, of), rng.i64(1..20)),
            1 => Cond::eq(of[rng.usize(..of.len())].0, 0),
            _ => Cond::TRUE,
        }
    }

    #[test]
    fn covering_agrees_with_brute_force() {
        let mut rng = Rng::with_seed(11);
        let (mut proved, mut undecided) = (0, 0);
        for n in 0..3000 {
            let shared = vars(&mut rng, 0, 1);
            let counts = [rng.usize(1..3), rng.usize(1..3)];
            let own = vars(&mut rng, 10, counts[0]);
            let reads = vars(&mut rng, 20, counts[1]);
            let both = |a: &[Ranged]| [shared.as_slice(), a].concat();
            let (of_writer, of_reader) = (both(&own), both(&reads));
            let dims = rng.usize(1..3);
            let written: Vec<Index> = (0..dims).map(|_| index(&mut rng, &of_writer)).collect();
            // As often as not the reader reads in the writer's form, so that it may be covered.
            let renamed = |i: &Index| {
                let map = own.iter().zip(reads.iter().cycle()).map(|((a, _), (b, _))| (*a, Index::Var(*b))).collect();
                crate::ir::visit::subst_index(i, &map)
            };
            let read: Vec<Index> = written
                .iter()
                .map(|w| if rng.u8(..4) > 0 { renamed(w) } else { index(&mut rng, &of_reader) })
                .collect();
            let writer = site(written, &of_writer, given(&mut rng, &of_writer));
            let reader = site(read, &of_reader, given(&mut rng, &of_reader));
            let elements = |s: &Site, unit: &[Ranged], of: &[Ranged]| {
                let mut found = std::collections::BTreeSet::new();
                for p in Points::within(of, 1 << 20).unwrap() {
                    let all = [unit, &p].concat();
                    let value = |v: Var| all.iter().find(|(w, _)| *w == v).map(|(_, x)| *x);
                    if s.given.eval(&value) == Some(true) {
                        found.insert(element(s, &all));
                    }
                }
                found
            };
            let right = Points::within(&shared, 1 << 20)
                .unwrap()
                .all(|unit| elements(&reader, unit, &reads).is_subset(&elements(&writer, unit, &own)));
            let earlier = Earlier { site: writer.clone(), own: own.clone(), before: None };
            let context = || format!("{n}: {reader:?}\nby {writer:?}");
            match covered(&reader, &shared, &[earlier]) {
                Verdict::Proved => {
                    assert!(right, "proved {}", context());
                    proved += 1;
                }
                Verdict::Refuted(point) => {
                    let unit: Vec<Ranged> = point.iter().filter(|p| p.0 == shared[0].0).copied().collect();
                    assert!(
                        !elements(&writer, &unit, &own).contains(&element(&reader, &point)),
                        "refuted {}",
                        context()
                    );
                }
                Verdict::Undecided => undecided += 1,
            }
        }
        assert!(proved > 300, "{proved}");
        assert_eq!(undecided, 0);
    }
}
