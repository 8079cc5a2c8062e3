//! Walking and rewriting: every room uses these, so that a new statement costs an arm here and nowhere else.

use super::{
    Block, BlockId, BufferId, Cond, Elect, Expr, For, If, Index, Operand, Peers, Remote, RoleBody, RoleId, Slot, Stmt,
    Store, Sync, SyncKind, Var, Way,
};
use std::collections::HashMap;

/// A substitution of variables.
pub type Map = HashMap<Var, Index>;

/// Replaces variables; folding as the constructors do.
pub fn subst_index(index: &Index, map: &Map) -> Index {
    match index {
        Index::Int(_) => index.clone(),
        Index::Var(v) => map.get(v).cloned().unwrap_or_else(|| index.clone()),
        Index::Bin(op, a, b) => Index::bin(*op, subst_index(a, map), subst_index(b, map)),
    }
}

/// Applies `f` to every compared index of a condition.
pub fn map_cond(cond: &Cond, f: &mut impl FnMut(&Index) -> Index) -> Cond {
    match cond {
        Cond::Const(_) => cond.clone(),
        Cond::Cmp(op, a, b) => {
            let a = f(a);
            Cond::cmp(*op, a, f(b))
        }
        Cond::And(a, b) => {
            let a = map_cond(a, f);
            a.and(map_cond(b, f))
        }
        Cond::Or(a, b) => {
            let a = map_cond(a, f);
            Cond::Or(Box::new(a), Box::new(map_cond(b, f)))
        }
        Cond::Not(a) => Cond::Not(Box::new(map_cond(a, f))),
    }
}

/// Replaces variables in a condition.
pub fn subst_cond(cond: &Cond, map: &Map) -> Cond {
    map_cond(cond, &mut |i| subst_index(i, map))
}

/// Rebuilds an expression bottom-up: `index` on every index in it, then `node` on every rebuilt expression.
pub fn map_expr(expr: &Expr, index: &mut dyn FnMut(&Index) -> Index, node: &mut dyn FnMut(Expr) -> Expr) -> Expr {
    let rebuilt = match expr {
        Expr::Const(..) => expr.clone(),
        Expr::Index(t, i) => Expr::Index(*t, Box::new(index(i))),
        Expr::Cond(c) => Expr::Cond(Box::new(map_cond(c, &mut |i| index(i)))),
        Expr::Load { buffer, indices, lanes } => {
            Expr::Load { buffer: *buffer, indices: indices.iter().map(&mut *index).collect(), lanes: *lanes }
        }
        Expr::Splat(n, a) => Expr::Splat(*n, Box::new(map_expr(a, index, node))),
        Expr::Shuffle(mask, a) => Expr::Shuffle(*mask, Box::new(map_expr(a, index, node))),
        Expr::Un(op, a) => Expr::Un(*op, Box::new(map_expr(a, index, node))),
        Expr::Bin(op, a, b) => Expr::Bin(*op, Box::new(map_expr(a, index, node)), Box::new(map_expr(b, index, node))),
        Expr::Cmp(op, a, b) => Expr::Cmp(*op, Box::new(map_expr(a, index, node)), Box::new(map_expr(b, index, node))),
        Expr::Select(c, a, b) => Expr::Select(
            Box::new(map_expr(c, index, node)),
            Box::new(map_expr(a, index, node)),
            Box::new(map_expr(b, index, node)),
        ),
        Expr::Cast(t, a) => Expr::Cast(*t, Box::new(map_expr(a, index, node))),
        Expr::Gather { var, low, extent, index: at, value } => {
            let at = map_expr(at, index, node);
            Expr::gather(*var, (*low, *extent), at, map_expr(value, index, node))
        }
    };
    node(rebuilt)
}

/// Replaces variables in an expression.
pub fn subst_expr(expr: &Expr, map: &Map) -> Expr {
    map_expr(expr, &mut |i| subst_index(i, map), &mut |e| e)
}

/// Calls `f` on an expression and all below it, outermost first.
pub fn walk_expr<'a>(expr: &'a Expr, f: &mut dyn FnMut(&'a Expr)) {
    f(expr);
    match expr {
        Expr::Const(..) | Expr::Index(..) | Expr::Cond(_) | Expr::Load { .. } => {}
        Expr::Splat(_, a) | Expr::Shuffle(_, a) | Expr::Un(_, a) | Expr::Cast(_, a) => walk_expr(a, f),
        Expr::Bin(_, a, b) | Expr::Cmp(_, a, b) => {
            walk_expr(a, f);
            walk_expr(b, f);
        }
        Expr::Select(c, a, b) => {
            walk_expr(c, f);
            walk_expr(a, f);
            walk_expr(b, f);
        }
        Expr::Gather { index, value, .. } => {
            walk_expr(index, f);
            walk_expr(value, f);
        }
    }
}

/// Whether an index or a condition in an expression mentions the variable.
pub fn mentions(expr: &Expr, var: Var) -> bool {
    let mut found = false;
    walk_expr(expr, &mut |e| match e {
        Expr::Load { indices, .. } => found |= indices.iter().any(|i| i.mentions(var)),
        Expr::Index(_, i) => found |= i.mentions(var),
        Expr::Cond(c) => found |= c.mentions(var),
        _ => {}
    });
    found
}

/// The variables in an expression that represent data, each with its extent.
pub fn gathered(expr: &Expr) -> Vec<(Var, i64)> {
    let mut out = Vec::new();
    walk_expr(expr, &mut |e| {
        if let Expr::Gather { var, extent, .. } = e {
            out.push((*var, *extent));
        }
    });
    out
}

/// Calls `f` on each statement and all below it, outermost first; a block's init before its body.
pub fn walk<'a>(body: &'a [Stmt], f: &mut dyn FnMut(&'a Stmt)) {
    for stmt in body {
        f(stmt);
        for child in children(stmt) {
            walk(child, f);
        }
    }
}

/// The bodies inside a statement, in the order in which they run.
pub fn children(stmt: &Stmt) -> Vec<&Vec<Stmt>> {
    match stmt {
        Stmt::For(l) => vec![&l.body],
        Stmt::Block(b) => b.init.iter().chain([&b.body]).collect(),
        Stmt::If(i) => vec![&i.body],
        Stmt::Elect(e) => vec![&e.body],
        Stmt::Role(r) => vec![&r.body],
        Stmt::Store(_) | Stmt::Sync(_) | Stmt::Call(_) | Stmt::Bulk(_) => Vec::new(),
    }
}

/// The bodies inside a statement, to change.
pub fn children_mut(stmt: &mut Stmt) -> Vec<&mut Vec<Stmt>> {
    match stmt {
        Stmt::For(l) => vec![&mut l.body],
        Stmt::Block(b) => b.init.iter_mut().chain([&mut b.body]).collect(),
        Stmt::If(i) => vec![&mut i.body],
        Stmt::Elect(e) => vec![&mut e.body],
        Stmt::Role(r) => vec![&mut r.body],
        Stmt::Store(_) | Stmt::Sync(_) | Stmt::Call(_) | Stmt::Bulk(_) => Vec::new(),
    }
}

/// All loops, outermost first, in the order of the text.
pub fn loops(body: &[Stmt]) -> Vec<&For> {
    let mut out = Vec::new();
    walk(body, &mut |s| {
        if let Stmt::For(l) = s {
            out.push(l);
        }
    });
    out
}

/// How many loops are around the statement that most are around.
pub fn depth(body: &[Stmt]) -> usize {
    let below = |s: &Stmt| children(s).into_iter().map(|c| depth(c)).max().unwrap_or(0);
    body.iter().map(|s| below(s) + usize::from(matches!(s, Stmt::For(_)))).max().unwrap_or(0)
}

/// All blocks, in the order of the text.
pub fn blocks(body: &[Stmt]) -> Vec<&Block> {
    let mut out = Vec::new();
    walk(body, &mut |s| {
        if let Stmt::Block(b) = s {
            out.push(b);
        }
    });
    out
}

/// The role whose blocks alone are in a body, if there are any.
pub fn role_of(body: &[Stmt]) -> Option<RoleId> {
    let blocks = blocks(body);
    let first = blocks.first()?.role?;
    blocks.iter().all(|b| b.role == Some(first)).then_some(first)
}

/// The loops around a block, outermost first; `None` if the block is not in the body.
pub fn loops_around(body: &[Stmt], block: BlockId) -> Option<Vec<&For>> {
    path_to(body, &|s| matches!(s, Stmt::Block(b) if b.name == block))
}

/// The loops around a loop, outermost first, without itself; `None` if it is not in the body.
pub fn loops_around_loop(body: &[Stmt], var: Var) -> Option<Vec<&For>> {
    path_to(body, &|s| matches!(s, Stmt::For(l) if l.var == var))
}

fn path_to<'a>(body: &'a [Stmt], is: &dyn Fn(&Stmt) -> bool) -> Option<Vec<&'a For>> {
    for stmt in body {
        if is(stmt) {
            return Some(Vec::new());
        }
        for child in children(stmt) {
            if let Some(mut path) = path_to(child, is) {
                if let Stmt::For(l) = stmt {
                    path.insert(0, l);
                }
                return Some(path);
            }
        }
    }
    None
}

/// Rewrites statements bottom-up: `f` receives each statement with its children already rewritten and returns what
/// is in its place (nothing, itself, several).
pub fn rewrite(body: Vec<Stmt>, f: &mut dyn FnMut(Stmt) -> Vec<Stmt>) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(body.len());
    for mut stmt in body {
        for child in children_mut(&mut stmt) {
            *child = rewrite(std::mem::take(child), f);
        }
        out.extend(f(stmt));
    }
    out
}

/// Changes one loop in place; false if it is not in the body.
pub fn change_loop(body: &mut [Stmt], var: Var, f: &mut dyn FnMut(&mut For)) -> bool {
    for stmt in body {
        if let Stmt::For(l) = stmt
            && l.var == var
        {
            f(l);
            return true;
        }
        for child in children_mut(stmt) {
            if change_loop(child, var, f) {
                return true;
            }
        }
    }
    false
}

/// Changes one block in place; false if it is not in the body.
pub fn change_block(body: &mut [Stmt], block: BlockId, f: &mut dyn FnMut(&mut Block)) -> bool {
    for stmt in body {
        if let Stmt::Block(b) = stmt
            && b.name == block
        {
            f(b);
            return true;
        }
        for child in children_mut(stmt) {
            if change_block(child, block, f) {
                return true;
            }
        }
    }
    false
}

/// Calls `f` for every access of a store, a load and an operand: the buffer and its indices.
pub fn each_access(body: &[Stmt], f: &mut dyn FnMut(BufferId, &[Index])) {
    walk(body, &mut |s| match s {
        Stmt::Store(s) => {
            f(s.buffer, &s.indices);
            walk_expr(&s.value, &mut |e| {
                if let Expr::Load { buffer, indices, .. } = e {
                    f(*buffer, indices);
                }
            });
        }
        Stmt::Call(call) => call.operands.iter().for_each(|o| f(o.buffer, &o.indices)),
        _ => {}
    });
}

/// Changes every store in place, in the order of the text.
pub fn each_store(body: &mut [Stmt], f: &mut dyn FnMut(&mut Store)) {
    for stmt in body {
        if let Stmt::Store(s) = stmt {
            f(s);
        }
        for child in children_mut(stmt) {
            each_store(child, f);
        }
    }
}

/// Changes every operand of an instruction in place.
pub fn each_operand(stmt: &mut Stmt, f: &mut dyn FnMut(&mut Operand)) {
    if let Stmt::Call(call) = stmt {
        call.operands.iter_mut().for_each(&mut *f);
    }
    for child in children_mut(stmt) {
        child.iter_mut().for_each(|s| each_operand(s, f));
    }
}

fn map_remote(to: Remote, index: &mut dyn FnMut(&Index) -> Index) -> Remote {
    Remote {
        peers: if let Peers::One(rank) = &to.peers { Peers::One(index(rank)) } else { to.peers },
        full: to.full.map(|f| Slot { index: index(&f.index), ..f }),
    }
}

/// Applies `index` to every index and `node` to every expression (bottom-up) of a statement and all below it:
/// extents, bindings, predicates, conditions, store indices and values.
pub fn map_stmt(stmt: Stmt, index: &mut dyn FnMut(&Index) -> Index, node: &mut dyn FnMut(Expr) -> Expr) -> Stmt {
    match stmt {
        Stmt::For(mut l) => {
            l.extent = index(&l.extent);
            if let Some(r) = &mut l.raster {
                r.outer_extent = index(&r.outer_extent);
                r.inner_extent = index(&r.inner_extent);
            }
            l.code.backwards.iter_mut().chain(&mut l.code.counters).for_each(|i| *i = index(i));
            l.body = map_body(l.body, index, node);
            Stmt::For(l)
        }
        Stmt::Block(mut b) => {
            for it in &mut b.iters {
                it.extent = index(&it.extent);
                it.binding = index(&it.binding);
            }
            b.predicate = map_cond(&b.predicate, &mut |i| index(i));
            b.init = b.init.map(|init| map_body(init, index, node));
            b.body = map_body(b.body, index, node);
            Stmt::Block(b)
        }
        Stmt::Store(s) => Stmt::Store(Store {
            buffer: s.buffer,
            indices: s.indices.iter().map(&mut *index).collect(),
            value: map_expr(&s.value, index, node),
            lanes: s.lanes,
            asynchronous: s.asynchronous,
            through_l1: s.through_l1,
            remote: s.remote.map(|to| map_remote(to, index)),
        }),
        Stmt::If(i) => Stmt::If(If { cond: map_cond(&i.cond, &mut |x| index(x)), body: map_body(i.body, index, node) }),
        Stmt::Sync(s) => Stmt::Sync(map_sync(s, index)),
        Stmt::Bulk(mut copy) => {
            copy.coordinates.iter_mut().chain(&mut copy.indices).for_each(|i| *i = index(i));
            if let Way::Load { full, .. } = &mut copy.way {
                full.index = index(&full.index);
            }
            Stmt::Bulk(copy)
        }
        Stmt::Elect(e) => Stmt::Elect(Elect { body: map_body(e.body, index, node), ..e }),
        Stmt::Role(r) => Stmt::Role(RoleBody { body: map_body(r.body, index, node), ..r }),
        Stmt::Call(mut call) => {
            for operand in &mut call.operands {
                operand.indices = operand.indices.iter().map(&mut *index).collect();
            }
            call.adds = call.adds.map(|c| map_cond(&c, &mut |i| index(i)));
            if let Some(columns) = &mut call.columns {
                columns.below = index(&columns.below);
            }
            Stmt::Call(call)
        }
    }
}

fn map_sync(mut sync: Sync, index: &mut dyn FnMut(&Index) -> Index) -> Sync {
    if let Some(slot) = sync.kind.slot_mut() {
        slot.index = index(&slot.index);
    }
    let kind = &mut sync.kind;
    if let SyncKind::Await { phase: at, .. } | SyncKind::PrefetchLine { at, .. } | SyncKind::Expect { bytes: at, .. } =
        kind
    {
        *at = index(at);
    }
    sync
}

/// [`map_stmt`] on each statement.
pub fn map_body(
    body: Vec<Stmt>,
    index: &mut dyn FnMut(&Index) -> Index,
    node: &mut dyn FnMut(Expr) -> Expr,
) -> Vec<Stmt> {
    body.into_iter().map(|s| map_stmt(s, index, node)).collect()
}

/// Replaces variables in statements.
pub fn subst_body(body: Vec<Stmt>, map: &Map) -> Vec<Stmt> {
    map_body(body, &mut |i| subst_index(i, map), &mut |e| e)
}

/// The buffers read (by loads and instructions), in the order of the text, each once.
pub fn reads(body: &[Stmt]) -> Vec<BufferId> {
    let mut out = Vec::new();
    let mut add = |buffer: BufferId| {
        if !out.contains(&buffer) {
            out.push(buffer);
        }
    };
    walk(body, &mut |s| match s {
        Stmt::Store(store) => walk_expr(&store.value, &mut |e| {
            if let Expr::Load { buffer, .. } = e {
                add(*buffer);
            }
        }),
        Stmt::Call(call) => call.operands.iter().filter(|o| o.reads).for_each(|o| add(o.buffer)),
        Stmt::Bulk(copy) => add(if copy.way == Way::Store { copy.shared } else { copy.global }),
        _ => {}
    });
    out
}

/// The buffers written (by stores and instructions), in the order of the text, each once.
pub fn writes(body: &[Stmt]) -> Vec<BufferId> {
    let mut out = Vec::new();
    let mut add = |buffer: BufferId| {
        if !out.contains(&buffer) {
            out.push(buffer);
        }
    };
    walk(body, &mut |s| match s {
        Stmt::Store(store) => add(store.buffer),
        Stmt::Call(call) => call.operands.iter().filter(|o| o.writes).for_each(|o| add(o.buffer)),
        Stmt::Bulk(copy) => add(if copy.way == Way::Store { copy.global } else { copy.shared }),
        _ => {}
    });
    out
}
