//! The elements that a piece of program writes, as a box where it is dense by construction.

use super::points::Ranged;
use crate::index::Digit;
use crate::ir::reduction;
use crate::ir::region::{Range, Region};
use crate::ir::simplify::{Affine, Env, affine, bounds, prove, simplify};
use crate::ir::visit::{Map, children, subst_index, walk_expr};
use crate::ir::{Block, BufferId, CmpOp, Cond, Expr, Func, Index, IndexOp, Stmt, Store, Var};

/// Boxes of `buffer` of which every element that exists is written: one for each block that stores under loops alone, at indices each of
/// which counts through its range, also where a layout exchanges digits of an iterator. A predicate may cut the box.
/// `env` knows the variables that stay.
/// Beside each box whether its block accumulates ([`accumulates`]).
pub fn dense_writes(func: &Func, body: &[Stmt], buffer: BufferId, env: &Env) -> Vec<(bool, Region)> {
    let mut out = Vec::new();
    plain_blocks(func, body, buffer, env, &mut Vec::new(), &mut out);
    out
}

/// Whether a block adds to elements of the buffer that another block has begun: it reads the element that it writes,
/// and has no init.
pub fn accumulates(block: &Block, buffer: BufferId) -> bool {
    block.init.is_none() && block.body.iter().any(|s| matches!(s, Stmt::Store(s) if adds_to(s, buffer)))
}

/// Whether a store reads the element that it writes.
pub fn adds_to(store: &Store, buffer: BufferId) -> bool {
    let mut found = false;
    walk_expr(&store.value, &mut |e| {
        found |= matches!(e, Expr::Load { buffer: b, indices, .. } if *b == buffer && *indices == store.indices);
    });
    found && store.buffer == buffer
}

/// Whether all that a block reads of the buffer are the elements that it adds to.
pub fn continues(block: &Block, buffer: BufferId) -> bool {
    let Some(stores) = reduction::stores(&block.body) else { return false };
    let mut only = true;
    let own = |at: &[Index]| stores.iter().any(|s| s.buffer == buffer && s.indices == at);
    for store in &stores {
        walk_expr(&store.value, &mut |e| {
            if let Expr::Load { buffer: b, indices, .. } = e {
                only &= *b != buffer || own(indices);
            }
        });
    }
    only
}

type Boxes = Vec<(bool, Region)>;

fn plain_blocks(func: &Func, body: &[Stmt], buffer: BufferId, env: &Env, counting: &mut Vec<Ranged>, out: &mut Boxes) {
    for stmt in body {
        match stmt {
            Stmt::For(l) => {
                let before = counting.len();
                let mut env = env.clone();
                for (var, extent) in l.defines() {
                    env.bind_loop(var, &extent);
                    counting.push((var, extent.as_int().unwrap_or(i64::MAX)));
                }
                for child in children(stmt) {
                    plain_blocks(func, child, buffer, &env, counting, out);
                }
                counting.truncate(before);
            }
            Stmt::Block(b) => {
                out.extend(dense_box(func, b, buffer, env, counting).map(|r| (accumulates(b, buffer), r)));
            }
            Stmt::Store(_) | Stmt::If(_) => {}
            Stmt::Sync(_) | Stmt::Call(_) | Stmt::Bulk(_) | Stmt::Elect(_) | Stmt::Role(_) => {}
        }
    }
}

fn dense_box(func: &Func, block: &Block, buffer: BufferId, env: &Env, counting: &[Ranged]) -> Option<Region> {
    let stores = reduction::stores(&block.body)?;
    let [store] = stores.into_iter().filter(|s| s.buffer == buffer).collect::<Vec<_>>()[..] else { return None };
    let bindings: Map = block.iters.iter().map(|it| (it.var, it.binding.clone())).collect();
    let indices: Vec<Index> = store.indices.iter().map(|i| simplify(&subst_index(i, &bindings), env)).collect();
    let mut taken = Vec::new();
    let region = indices.iter().map(|index| dense_range(index, counting, &mut taken)).collect::<Option<Region>>()?;
    let edges = &func.buffer(buffer).shape;
    let counts = |atom: &Index| counting.iter().any(|(v, _)| atom.mentions(*v));
    block.predicate.conjuncts().into_iter().try_fold(region, |region, c| cut(region, edges, &indices, c, env, &counts))
}

/// What a condition leaves of a box of which every element is written: where it bounds one of the indices, or holds anyway.
/// A bound at the edge of the buffer cuts nothing off.
fn cut(
    mut region: Region,
    edges: &[Index],
    indices: &[Index],
    cond: &Cond,
    env: &Env,
    counts: &dyn Fn(&Index) -> bool,
) -> Option<Region> {
    if prove(cond, env) {
        return Some(region);
    }
    let Cond::Cmp(op, a, b) = cond else { return None };
    let difference = affine(&simplify(a, env)).plus(&affine(&simplify(b, env)), -1)?;
    let bound = |dim: usize| Some((dim, bounds_index(&affine(&indices[dim]), &difference, *op, env, counts)?));
    let (dim, (from, end)) = (0..indices.len()).find_map(bound)?;
    let range = &mut region[dim];
    let last = range.min.clone() + range.extent.clone();
    let outside = |end: &Index| prove(&Cond::ge(end.clone(), edges[dim].clone()), env);
    let last = end.filter(|end| !outside(end)).map_or(last.clone(), |end| last.min(end));
    let from = from.filter(|from| !prove(&Cond::ge(0, from.clone()), env));
    range.min = from.map_or(range.min.clone(), |from| range.min.clone().max(from));
    range.extent = last - range.min.clone();
    Some(region)
}

/// Where an index begins and ends, as far as that is said.
type Ends = (Option<Index>, Option<Index>);

/// The lower bound of an index, or the upper one, which is exclusive, that `difference op 0` represents. The condition may be
/// over a quotient of the index: where `index = k * difference + rest + fixed` with `0 <= rest < k`, both are below 0 at once.
fn bounds_index(
    index: &Affine,
    difference: &Affine,
    op: CmpOp,
    env: &Env,
    counts: &dyn Fn(&Index) -> bool,
) -> Option<Ends> {
    let (atom, by) = difference.terms.iter().find(|(atom, _)| counts(atom))?;
    let scale = index.terms.iter().find(|(a, _)| a == atom)?.1.checked_div(*by)?;
    let (k, op) = if scale < 0 { (scale.checked_neg()?, op.mirrored()) } else { (scale, op) };
    let mut fixed = index.plus(difference, scale.checked_neg()?)?;
    let (rest, terms) = fixed.terms.into_iter().partition(|(atom, _)| counts(atom));
    fixed.terms = terms;
    let rest = Affine { terms: rest, constant: 0 };
    let (low, high) = bounds(&rest.to_index(), env)?;
    if k < 1 || low < 0 || high >= k {
        return None;
    }
    let (limit, above) = (simplify(&fixed.to_index(), env), simplify(&(fixed.to_index() + k), env));
    match op {
        CmpOp::Lt => Some((None, Some(limit))),
        CmpOp::Le => Some((None, Some(above))),
        CmpOp::Ge => Some((Some(limit), None)),
        CmpOp::Gt => Some((Some(above), None)),
        CmpOp::Eq | CmpOp::Ne => None,
    }
}

/// The digit of a loop's count that an atom is. Digits that do not overlap count independently.
fn digit(atom: &Index) -> Option<Digit<Var>> {
    if let Some(var) = atom.as_var() {
        return Some(Digit::whole(var));
    }
    let Index::Bin(op, inner, by) = atom else { return None };
    let (inner, by) = (digit(inner)?, by.as_int()?);
    match op {
        IndexOp::FloorDiv => inner.quotient(by),
        IndexOp::FloorMod => inner.remainder(by),
        _ => None,
    }
}

/// How far a digit counts in a loop of so many iterations, and where it ends; `None` where it stops halfway.
fn within(digit: &Digit<Var>, extent: i64) -> Option<(i64, i64)> {
    let high = digit.high.unwrap_or(extent);
    (high > 0 && extent % high == 0 && high % digit.low == 0).then_some((high / digit.low, high))
}

/// The range that an index counts through without a gap while its loops run. Adds the digits of the loops that it counts
/// with to `taken` (loop, from, to), so that no other dimension counts with them.
fn dense_range(index: &Index, counting: &[Ranged], taken: &mut Vec<(Var, i64, i64)>) -> Option<Range> {
    let mut sum = affine(index);
    let mut digits: Vec<(i64, i64)> = Vec::new();
    let mut problem = false;
    sum.terms.retain(|(atom, coefficient)| {
        if !counting.iter().any(|(c, _)| atom.mentions(*c)) {
            return true;
        }
        let found = digit(atom).and_then(|digit| {
            let extent = counting.iter().find(|(c, _)| *c == digit.of)?.1;
            let (count, high) = within(&digit, extent)?;
            let apart = |(var, from, to): &(Var, i64, i64)| *var != digit.of || high <= *from || *to <= digit.low;
            taken.iter().all(apart).then_some((digit, count, high))
        });
        match found {
            Some((digit, count, high)) => {
                taken.push((digit.of, digit.low, high));
                digits.push((*coefficient, count));
            }
            None => problem = true,
        }
        false
    });
    digits.sort_unstable();
    let mut extent = 1i64;
    for (coefficient, count) in digits {
        problem |= count > 1 && !(1..=extent).contains(&coefficient);
        extent = extent.checked_add(coefficient.checked_mul(count - 1)?)?;
    }
    (!problem).then(|| Range { min: sum.to_index(), extent: Index::Int(extent) })
}

#[cfg(test)]
mod tests {
    use super::super::sites::{Elements, Site, Touches, enumerate};
    use super::*;

    /// The box that the indices are said to fill and the elements that they take, for loops `x` and `y`.
    fn both(extents: [i64; 2], indices: &[Index]) -> (Option<Vec<(i64, i64)>>, Elements) {
        let loops = [(Var(0), extents[0]), (Var(1), extents[1])];
        let mut taken = Vec::new();
        let mut env = Env::new();
        loops.iter().for_each(|(v, n)| env.bind(*v, 0, n - 1));
        let range = |i: &Index| dense_range(&simplify(i, &env), &loops, &mut taken);
        let region: Option<Vec<Range>> = indices.iter().map(range).collect();
        let ends = |r: &Range| (r.min.as_int().unwrap(), r.extent.as_int().unwrap());
        let (touches, indices) = (Touches::Writes, indices.to_vec());
        let site = Site { touches, indices, vars: loops.to_vec(), given: Cond::TRUE };
        let mut elements = Elements::default();
        enumerate(&site, &mut 1_000_000, &mut elements).unwrap();
        (region.map(|r| r.iter().map(ends).collect()), elements)
    }

    #[test]
    fn digits_of_a_loop_fill_a_box_where_they_do_not_overlap() {
        let (x, y) = (|| Index::Var(Var(0)), || Index::Var(Var(1)));
        let flat = || x() * 8 + y();
        let filled = [
            (vec![x(), y()], [5, 3]),
            (vec![flat().floordiv(4), flat().floormod(4)], [3, 8]),
            (vec![flat().floordiv(16), flat().floordiv(4).floormod(4), flat().floormod(4)], [6, 8]),
            (vec![x().floormod(3) + 7, x().floordiv(3) * 4 + y()], [9, 4]),
        ];
        for (indices, extents) in filled {
            let (region, elements) = both(extents, &indices);
            let region = region.unwrap_or_else(|| panic!("{indices:?} over {extents:?}"));
            assert_eq!(region.iter().map(|r| r.1).product::<i64>(), elements.len() as i64, "{indices:?}");
            assert!(elements.iter().all(|e| e.iter().zip(&region).all(|(e, (min, n))| (*min..min + n).contains(e))));
        }
        let sparse = [
            (vec![x(), x()], [4, 2]),
            (vec![x().floordiv(2), x().floormod(4)], [8, 2]),
            (vec![x().floordiv(3), x().floormod(3)], [8, 2]),
            (vec![x() * 2, y()], [4, 2]),
            (vec![x().floormod(3) * 4 + y()], [8, 4]),
        ];
        for (indices, extents) in sparse {
            assert_eq!(both(extents, &indices).0, None, "{indices:?} over {extents:?}");
        }
    }
    #[test]
    fn predicates_cut_boxes() {
        let program = crate::te::vec_add(100).unwrap();
        let ends = |f: &Func| {
            let found = dense_writes(f, &f.body, f.params[2], &Env::new());
            let number = |x: &Index| simplify(x, &Env::new()).as_int().unwrap();
            found.iter().map(|(_, region)| (number(&region[0].min), number(&region[0].extent))).collect::<Vec<_>>()
        };
        let after =
            |steps: &str| crate::schedule::apply_all(&program, &crate::schedule::parse(steps).unwrap()).unwrap();
        let from = |f: &mut Func, cond: Cond| {
            let block = f.find_block("C").unwrap().name;
            let mut add = |b: &mut Block| b.predicate = b.predicate.clone().and(cond.clone());
            assert!(crate::ir::visit::change_block(&mut f.body, block, &mut add));
        };
        // The edge of the buffer cuts nothing off.
        let mut f = after("split i ? 16 -> i0 i1");
        assert_eq!(ends(&f), [(0, 112)]);
        // Where a quotient is bounded, so is the index.
        let i0 = f.find_loop("i0").unwrap().var;
        from(&mut f, Cond::lt(i0, 5));
        assert_eq!(ends(&f), [(0, 80)]);
        let mut f = program.clone();
        let i = f.find_loop("i").unwrap().var;
        from(&mut f, Cond::ge(i, 3));
        from(&mut f, Cond::cmp(CmpOp::Gt, 90, i));
        assert_eq!(ends(&f), [(3, 87)]);
        // A condition on something else leaves holes.
        from(&mut f, Cond::eq(Index::Var(i).floormod(2), 0));
        assert_eq!(ends(&f), []);
    }
}
