//! Boxes of known programs, and random programs against every element they touch.

use super::*;
use crate::dtype::DType;
use crate::ir::{For, If, Iter, IterKind, LoopKind, Scope, Store};

fn text(func: &Func, index: &Index) -> String {
    match index {
        Index::Int(v) => v.to_string(),
        Index::Var(v) => func.var_name(*v).to_string(),
        Index::Bin(op, a, b) => format!("({op:?} {} {})", text(func, a), text(func, b)),
    }
}

fn box_text(func: &Func, region: &Region) -> String {
    let ranges: Vec<String> =
        region.iter().map(|r| format!("{} +{}", text(func, &r.min), text(func, &r.extent))).collect();
    ranges.join(", ")
}

fn buffer(func: &mut Func, name: &str, shape: &[i64]) -> BufferId {
    let shape = shape.iter().map(|e| Index::Int(*e)).collect();
    func.add_buffer(Buffer::new(name, DType::F32, shape, Scope::Global))
}

fn read(buffer: BufferId, indices: Vec<Index>, sink: BufferId) -> Stmt {
    let value = Expr::load(buffer, indices);
    Stmt::Store(Store::new(sink, vec![Index::Int(0)], value))
}

fn nest(loops: &[(Var, i64)], body: Stmt) -> Vec<Stmt> {
    loops
        .iter()
        .rev()
        .fold(vec![body], |body, (var, extent)| vec![Stmt::For(For::new(*var, *extent, LoopKind::Serial, body))])
}

#[test]
fn a_blocked_row_is_a_box_of_its_tile() {
    let mut func = Func::default();
    let a = buffer(&mut func, "A", &[1024, 1024]);
    let sink = buffer(&mut func, "S", &[1]);
    let [i0, f, k0, i2, k1] = ["i_0", "f", "k_0", "i_2", "k_1"].map(|n| func.add_var(n));
    let row = i0 * 64 + Index::from(f).floordiv(8) * 8 + i2;
    let body = read(a, vec![row, k0 * 8 + k1], sink);
    let mut env = Env::new();
    env.bind(i0, 0, 15);
    env.bind(k0, 0, 127);
    let all = touched(&func, &nest(&[(f, 64), (i2, 8), (k1, 8)], body.clone()), a, Touch::Reads, &env);
    assert_eq!(all.map(|r| box_text(&func, &r)).unwrap_or_default(), "(Mul i_0 64) +64, (Mul k_0 8) +8");
    env.bind(f, 0, 63);
    let one = touched(&func, &nest(&[(i2, 8), (k1, 8)], body), a, Touch::Reads, &env).unwrap_or_default();
    let expected = "(Add (Mul i_0 64) (Mul (FloorDiv f 8) 8)) +8, (Mul k_0 8) +8";
    assert_eq!(box_text(&func, &one), expected);
    assert_eq!(box_text(&func, &over(&one, &[(f, 64)], &env)), "(Mul i_0 64) +64, (Mul k_0 8) +8");
}

#[test]
fn a_predicate_cuts_a_window() {
    let mut func = Func::default();
    let a = buffer(&mut func, "A", &[1027]);
    let sink = buffer(&mut func, "S", &[1]);
    let [i0, ax0, ax1, v] = ["i_0", "ax0_0", "ax0_1", "v"].map(|n| func.add_var(n));
    let name = func.add_block("A_shared");
    let block = Stmt::Block(Block {
        name,
        iters: vec![Iter {
            var: v,
            kind: IterKind::Spatial,
            extent: Index::Int(1027),
            binding: i0 * 128 + ax0 * 128 + ax1,
        }],
        predicate: Cond::lt(ax0 * 128 + ax1, 130),
        init: None,
        body: vec![read(a, vec![v.into()], sink)],
        copy_with: None,
        role: None,
    });
    let mut env = Env::new();
    env.bind(i0, 0, 7);
    let body = nest(&[(ax0, 2), (ax1, 128)], block);
    let region = touched(&func, &body, a, Touch::Both, &env).unwrap_or_default();
    assert_eq!(box_text(&func, &region), "(Mul i_0 128) +130");
    assert_eq!(box_text(&func, &over(&region, &[(i0, 8)], &env)), "0 +1026");
    assert_eq!(touched(&func, &body, a, Touch::Writes, &env), None);
}

#[test]
fn an_access_that_is_never_executed_touches_nothing() {
    let mut func = Func::default();
    let a = buffer(&mut func, "A", &[8]);
    let sink = buffer(&mut func, "S", &[1]);
    let [i, o] = ["i", "o"].map(|n| func.add_var(n));
    let mut env = Env::new();
    env.bind(o, 0, 7);
    let under = |cond, index: Index| Stmt::If(If { cond, body: vec![read(a, vec![index], sink)] });
    let never = Cond::and(Cond::lt(i, 1), Cond::ge(i, o + 1));
    let outside = under(Cond::eq((i + 1).floormod(2), 0), Index::Int(8));
    for stmt in [under(never, i + 2), outside.clone()] {
        assert_eq!(touched(&func, &nest(&[(i, 2)], stmt.clone()), a, Touch::Reads, &env), None);
    }
    // Beside such an access the box is that of the others.
    let body = vec![outside, read(a, vec![i + 2], sink)];
    let loops = vec![Stmt::For(For::new(i, 2, LoopKind::Serial, body))];
    let both = touched(&func, &loops, a, Touch::Reads, &env).unwrap_or_default();
    assert_eq!(box_text(&func, &both), "2 +2");
}

/// Variables o (0..8) around and a (0..2), b (0..128), v (0..4) inside, in a buffer of 1024 x 1024.
struct Fetch {
    func: Func,
    target: BufferId,
    sink: BufferId,
    vars: [Var; 4],
    env: Env,
}

impl Fetch {
    fn new() -> Fetch {
        let mut func = Func::default();
        let target = buffer(&mut func, "A", &[1024, 1024]);
        let sink = buffer(&mut func, "S", &[1]);
        let vars = ["o", "a", "b", "v"].map(|n| func.add_var(n));
        let mut env = Env::new();
        env.bind(vars[0], 0, 7);
        Fetch { func, target, sink, vars, env }
    }

    /// The box of reads at the indices, under a condition, with the given loops inside.
    fn region(&self, cond: Cond, reads: &[[Index; 2]], inside: &[usize]) -> Region {
        let reads = reads.iter().map(|indices| read(self.target, indices.to_vec(), self.sink)).collect();
        let loops: Vec<(Var, i64)> = inside.iter().map(|at| (self.vars[*at], [8, 2, 128, 4][*at])).collect();
        let body = nest(&loops, Stmt::If(If { cond, body: reads }));
        touched(&self.func, &body, self.target, Touch::Reads, &self.env).unwrap_or_default()
    }

    fn check(&self, cond: Cond, reads: &[[Index; 2]], inside: &[usize], expected: &str) {
        assert_eq!(box_text(&self.func, &self.region(cond, reads, inside)), expected);
    }
}

#[test]
fn fused_and_split_tiles_keep_their_shape() {
    let mut fetch = Fetch::new();
    let [o, a, b, v] = fetch.vars;
    let flat = || a * 512 + b * 4 + v;
    let tile = [o * 128 + flat().floordiv(8), o * 8 + flat().floormod(8)];
    fetch.check(Cond::TRUE, std::slice::from_ref(&tile), &[1, 2, 3], "(Mul o 128) +128, (Mul o 8) +8");
    // 130 = 10 * 13 elements under 128 threads.
    let window = [(a * 128 + b).floordiv(13) + o, (a * 128 + b).floormod(13)];
    fetch.check(Cond::lt(a * 128 + b, 130), &[window], &[1, 2], "o +10, 0 +13");
    // One thread's share, then all threads' again.
    fetch.env.bind(b, 0, 127);
    let share = fetch.region(Cond::TRUE, &[tile], &[1, 3]);
    let expected = "(Add (Mul o 128) (FloorDiv b 2)) +65, (Add (Mul o 8) (Mul (FloorMod b 2) 4)) +4";
    assert_eq!(box_text(&fetch.func, &share), expected);
    let all = over(&share, &[(b, 128)], &fetch.env);
    assert_eq!(box_text(&fetch.func, &all), "(Mul o 128) +128, (Mul o 8) +8");
}

#[test]
fn several_accesses_share_a_box() {
    let fetch = Fetch::new();
    let [o, a, _, v] = fetch.vars;
    let zero = || Index::Int(0);
    // A window, also where it begins before the buffer.
    fetch.check(Cond::TRUE, &[[o * 4 + v, zero()], [o * 4 + v + 2, zero()]], &[3], "(Mul o 4) +6, 0 +1");
    fetch.check(Cond::TRUE, &[[o * 4 + v - 1, zero()]], &[3], "(Sub (Mul o 4) 1) +4, 0 +1");
    fetch.check(Cond::TRUE, &[[v - Index::Int(1), zero()]], &[3], "0 +3, 0 +1");
    // Places that are not ordered still have a constant extent.
    let apart = [[o * 4 + v, zero()], [Index::Int(14), zero()]];
    fetch.check(Cond::TRUE, &apart, &[3], "(Min (Mul o 4) 14) +18, 0 +1");
    // A condition on the outer variable leaves the first block of it.
    fetch.check(Cond::lt(o * 2 + a, 3), &[[o * 2 + a, a * 512 + v]], &[1, 3], "(Mul o 2) +2, 0 +516");
    assert_eq!(fetch.region(Cond::lt(a, 0), &[[zero(), zero()]], &[1]), Region::new());
}

#[test]
fn loops_of_symbolic_extent_are_eliminated() {
    let mut fetch = Fetch::new();
    let [o, a, b, _] = fetch.vars;
    let body = vec![read(fetch.target, vec![a + b, o * 4 + a], fetch.sink)];
    let inner = Stmt::For(For::new(a, Index::from(o) + 1, LoopKind::Serial, body));
    let region = touched(&fetch.func, &nest(&[(b, 3)], inner), fetch.target, Touch::Both, &fetch.env);
    let expected = "0 +10, (Mul o 4) +8";
    assert_eq!(box_text(&fetch.func, &region.unwrap_or_default()), expected);
    fetch.env = Env::new();
    let body = vec![read(fetch.target, vec![a.into(), 0.into()], fetch.sink)];
    let inner = [Stmt::For(For::new(a, Index::from(o) + 1, LoopKind::Serial, body))];
    let region = touched(&fetch.func, &inner, fetch.target, Touch::Both, &fetch.env);
    assert_eq!(box_text(&fetch.func, &region.unwrap_or_default()), "0 +(Add o 1), 0 +1");
}

/// A random program over outer variables 0..2 and the loops and iterators that it adds.
struct Random {
    rng: fastrand::Rng,
    func: Func,
    target: BufferId,
    sink: BufferId,
    /// Whether there is one access, its indices are sums of variables, and nothing is conditional.
    affine: bool,
}

/// Small enough that boxes are cut.
const SHAPE: [i64; 2] = [40, 1000];
/// Large enough that none is.
const LARGE: [i64; 2] = [10000, 10000];

impl Random {
    fn new(seed: u64, affine: bool) -> Random {
        let mut func = Func::default();
        let target = buffer(&mut func, "A", if affine { &LARGE } else { &SHAPE });
        let sink = buffer(&mut func, "S", &[1]);
        for name in ["o0", "o1"] {
            func.add_var(name);
        }
        Random { rng: fastrand::Rng::with_seed(seed), func, target, sink, affine }
    }

    fn sum(&mut self, vars: &[Var], coefficients: &[i64]) -> Index {
        let mut index = Index::Int(0);
        for _ in 0..self.rng.u32(1..4) {
            let var = vars[self.rng.usize(..vars.len())];
            index = index + var * coefficients[self.rng.usize(..coefficients.len())];
        }
        index
    }

    fn index(&mut self, vars: &[Var]) -> Index {
        let sum = self.sum(vars, &[1, 1, 2, 4, 4, 8]);
        if self.affine {
            return sum;
        }
        let c = [2, 3, 4, 8][self.rng.usize(..4)];
        match self.rng.u8(..10) {
            0..=1 => sum.floordiv(c) * 4 + self.sum(vars, &[1, 2]),
            2..=3 => sum.floormod(c) + self.sum(vars, &[1, 4]),
            4 => sum.floordiv(c),
            5 => sum.min(self.sum(vars, &[1, 3])),
            6 => (sum - self.sum(vars, &[1, 2])).max(0),
            7 => sum.floordiv(c).floormod(3) * c + self.sum(vars, &[1]),
            _ => sum,
        }
    }

    fn cond(&mut self, vars: &[Var]) -> Cond {
        if self.affine {
            return Cond::TRUE;
        }
        let (a, limit) = (self.index(vars), self.rng.i64(0..20));
        match self.rng.u8(..6) {
            0 => Cond::ge(a, limit),
            1 => Cond::eq(a, limit),
            2 => Cond::lt(a, limit).and(Cond::ge(self.index(vars), 1)),
            _ => Cond::lt(a, limit),
        }
    }

    fn access(&mut self, vars: &[Var]) -> Stmt {
        let column = self.index(vars) + if self.affine { 200 } else { 0 };
        let indices = vec![self.index(vars), column];
        if self.rng.bool() {
            return Stmt::Store(Store::new(self.target, indices, Expr::constant(DType::F32, 1.0)));
        }
        let load = Expr::load(self.target, indices);
        let value = match self.rng.u8(..4) {
            0 if !self.affine => {
                let other = Expr::load(self.target, vec![self.index(vars), self.index(vars)]);
                Expr::select(Expr::Cond(Box::new(self.cond(vars))), load, other)
            }
            _ => load,
        };
        Stmt::Store(Store::new(self.sink, vec![Index::Int(0)], value))
    }

    fn block(&mut self, vars: &[Var]) -> Stmt {
        let name = self.func.add_block("b");
        let iters: Vec<Iter> = (0..self.rng.u32(1..3))
            .map(|_| {
                let var = self.func.add_var("v");
                Iter { var, kind: IterKind::Spatial, extent: Index::Int(1000), binding: self.index(vars) }
            })
            .collect();
        let inside: Vec<Var> = iters.iter().map(|i| i.var).collect();
        let predicate = self.cond(vars);
        let body = vec![self.access(&inside)];
        let init = (!self.affine && self.rng.u8(..4) == 0).then(|| vec![self.access(&inside)]);
        Stmt::Block(Block { name, iters, predicate, init, body, copy_with: None, role: None })
    }

    fn stmt(&mut self, vars: &[Var], depth: u32) -> Stmt {
        match self.rng.u8(..6) {
            0 if depth < 3 => Stmt::If(If { cond: self.cond(vars), body: vec![self.stmt(vars, depth + 1)] }),
            1 => self.block(vars),
            2 if depth > 0 => self.access(vars),
            _ if depth < 3 => {
                let var = self.func.add_var("l");
                let extent = match self.rng.u8(..8) {
                    0 if !self.affine => Index::from(vars[0]) + 1,
                    _ => Index::Int(self.rng.i64(1..6)),
                };
                let vars = [vars, &[var]].concat();
                let count = if !self.affine && self.rng.u8(..5) == 0 { 2 } else { 1 };
                let body = (0..count).map(|_| self.stmt(&vars, depth + 1)).collect();
                Stmt::For(For::new(var, extent, LoopKind::Serial, body))
            }
            _ => self.access(vars),
        }
    }
}

/// Runs a body and notes what it touches.
struct Run<'a> {
    target: BufferId,
    shape: [i64; 2],
    touch: Touch,
    touched: &'a mut Vec<Vec<i64>>,
}

impl Run<'_> {
    fn note(&mut self, buffer: BufferId, indices: &[Index], values: &Map) {
        let element: Option<Vec<i64>> = indices.iter().map(|i| subst_index(i, values).as_int()).collect();
        // An access outside the buffer is an error of the program and says nothing about the box.
        if let Some(e) =
            element.filter(|e| buffer == self.target && e.iter().zip(self.shape).all(|(i, n)| (0..n).contains(i)))
        {
            self.touched.push(e);
        }
    }

    fn expr(&mut self, expr: &Expr, values: &Map) {
        match expr {
            Expr::Load { buffer, indices, .. } => self.note(*buffer, indices, values),
            Expr::Select(c, a, b) => match c.as_ref() {
                Expr::Cond(c) if holds(c, values) => self.expr(a, values),
                _ => self.expr(b, values),
            },
            _ => {}
        }
    }

    fn body(&mut self, body: &[Stmt], values: &Map) {
        for stmt in body {
            match stmt {
                Stmt::For(l) => {
                    for v in 0..subst_index(&l.extent, values).as_int().unwrap_or(0) {
                        let mut values = values.clone();
                        values.insert(l.var, Index::Int(v));
                        self.body(&l.body, &values);
                    }
                }
                Stmt::Block(b) if holds(&b.predicate, values) => {
                    let values: Map = b.iters.iter().map(|i| (i.var, subst_index(&i.binding, values))).collect();
                    self.body(b.init.as_deref().unwrap_or(&[]), &values);
                    self.body(&b.body, &values);
                }
                Stmt::If(i) if holds(&i.cond, values) => self.body(&i.body, values),
                Stmt::Store(s) => {
                    if self.touch != Touch::Reads {
                        self.note(s.buffer, &s.indices, values);
                    }
                    if self.touch != Touch::Writes {
                        self.expr(&s.value, values);
                    }
                }
                _ => {}
            }
        }
    }
}

fn holds(cond: &Cond, values: &Map) -> bool {
    subst_cond(cond, values).eval(&|_| None) == Some(true)
}

/// Lowest and highest element touched in each dimension.
fn hull(touched: &[Vec<i64>]) -> Option<Vec<(i64, i64)>> {
    touched.first()?;
    let dim = |d: usize| touched.iter().map(move |e| e[d]);
    (0..SHAPE.len()).map(|d| Some((dim(d).min()?, dim(d).max()?))).collect()
}

/// How many boxes were checked, and how many of them were as small as a box can be.
fn check_random(seed: u64, affine: bool) -> (usize, usize) {
    let mut random = Random::new(seed, affine);
    let outer = [Var(0), Var(1)];
    let extents = [random.rng.i64(1..4), random.rng.i64(1..6)];
    let (count, shape) = if affine { (1, LARGE) } else { (random.rng.u32(1..3), SHAPE) };
    let body: Vec<Stmt> = (0..count).map(|_| random.stmt(&outer, 0)).collect();
    let touch = if affine { Touch::Both } else { [Touch::Reads, Touch::Writes, Touch::Both][random.rng.usize(..3)] };
    let mut env = Env::new();
    for (var, extent) in outer.iter().zip(extents) {
        env.bind(*var, 0, extent - 1);
    }
    let region = touched(&random.func, &body, random.target, touch, &env);
    let merged = region.as_ref().map(|r| over(r, &[(outer[1], extents[1])], &env));
    let (mut boxes, mut tight) = (0, 0);
    for a in 0..extents[0] {
        let mut row = Vec::new();
        for b in 0..extents[1] {
            let values: Map = [(outer[0], Index::Int(a)), (outer[1], Index::Int(b))].into();
            let mut elements = Vec::new();
            Run { target: random.target, shape, touch, touched: &mut elements }.body(&body, &values);
            let is_tight = check_box(region.as_ref(), &elements, &values, &body);
            boxes += usize::from(!elements.is_empty());
            tight += usize::from(is_tight && !elements.is_empty());
            row.extend(elements);
        }
        check_box(merged.as_ref(), &row, &[(outer[0], Index::Int(a))].into(), &body);
    }
    (boxes, tight)
}

fn check_box(region: Option<&Region>, elements: &[Vec<i64>], values: &Map, body: &[Stmt]) -> bool {
    let Some(hull) = hull(elements) else { return true };
    let region = region.unwrap_or_else(|| panic!("{elements:?} touched, no box: {body:?}"));
    let constant = |i: &Index| subst_index(i, values).as_int();
    region.iter().zip(&hull).fold(true, |tight, (range, (lo, hi))| {
        let (min, extent) = (constant(&range.min).unwrap_or(i64::MAX), constant(&range.extent).unwrap_or(0));
        assert!(min <= *lo && *hi < min + extent, "{lo}..={hi} not in {range:?} at {values:?}: {body:#?}");
        tight && min == *lo && extent == hi - lo + 1
    })
}

#[test]
fn boxes_contain_every_element_touched() {
    let (boxes, tight) = (0..4000).map(|seed| check_random(seed, false)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    assert!(boxes > 10000, "only {boxes} boxes");
    assert!(tight * 100 > boxes * 35, "{tight} of {boxes} tight");
}

#[test]
fn boxes_of_affine_programs_are_tight() {
    for seed in 0..3000 {
        let (boxes, tight) = check_random(seed, true);
        assert_eq!(boxes, tight, "seed {seed}");
    }
}
