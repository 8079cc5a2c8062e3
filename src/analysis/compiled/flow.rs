//! Where the lanes of a warp come together again after a branch: the nearest instruction that all ways to the end pass.

use super::parse::{Entry, What};

/// The instructions that may come after one; the number of instructions for the end.
pub fn ways(entry: &Entry, at: usize) -> Vec<usize> {
    let i = &entry.code[at];
    let mut ways = match i.what {
        What::Branch { to } => vec![to],
        What::Return => vec![entry.code.len()],
        _ => vec![at + 1],
    };
    if i.guard.is_some() && !ways.contains(&(at + 1)) {
        ways.push(at + 1);
    }
    ways
}

/// For each instruction, the first one that every way from it to the end passes; the number of instructions for the end.
pub fn meetings(entry: &Entry) -> Vec<usize> {
    let end = entry.code.len();
    let next = |at: usize| ways(entry, at);
    // Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm", on the edges turned round.
    let order = from_the_end(end, &next);
    let mut place = vec![usize::MAX; end + 1];
    order.iter().enumerate().for_each(|(n, at)| place[*at] = n);
    let mut meet = vec![usize::MAX; end + 1];
    meet[end] = end;
    let mut changed = true;
    while changed {
        changed = false;
        for &at in order.iter().filter(|at| **at != end) {
            let known = next(at).into_iter().filter(|n| meet[*n] != usize::MAX);
            let found = known.reduce(|a, b| common(a, b, &meet, &place));
            if let Some(found) = found.filter(|f| meet[at] != *f) {
                meet[at] = found;
                changed = true;
            }
        }
    }
    meet.truncate(end);
    meet
}

/// The nearest instruction on both chains of meetings.
fn common(mut a: usize, mut b: usize, meet: &[usize], place: &[usize]) -> usize {
    while a != b {
        if place[a] > place[b] {
            a = meet[a];
        } else {
            b = meet[b];
        }
    }
    a
}

/// The instructions from which the end can be reached, each after those that it leads to where no loop is in the way:
/// reverse postorder over the edges turned round.
fn from_the_end(end: usize, next: &dyn Fn(usize) -> Vec<usize>) -> Vec<usize> {
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); end + 1];
    for at in 0..end {
        next(at).into_iter().for_each(|n| before[n.min(end)].push(at));
    }
    let mut seen = vec![false; end + 1];
    let mut order = Vec::with_capacity(end + 1);
    let mut stack = vec![(end, 0)];
    seen[end] = true;
    while let Some((at, way)) = stack.pop() {
        match before[at].get(way) {
            Some(&n) => {
                stack.push((at, way + 1));
                if !seen[n] {
                    seen[n] = true;
                    stack.push((n, 0));
                }
            }
            None => order.push(at),
        }
    }
    order.reverse();
    order
}

#[cfg(test)]
mod tests {
    use super::super::parse::entries;
    use super::*;

    #[test]
    fn branches_meet_behind_both_ways() {
        let text = ".entry k() {
            setp.eq.s32 %p1, %r1, 0;
            @%p1 bra A;
            add.s32 %r2, %r2, 1;
            bra B;
        A:  add.s32 %r2, %r2, 2;
        B:  setp.ne.s32 %p2, %r2, 9;
            @%p2 bra A;
            ret; }";
        let entry = entries(text).remove(0);
        assert_eq!(meetings(&entry), [1, 5, 3, 5, 5, 6, 7, 8]);
    }
}
