//! Products by instructions of a warp: tiles, fragments, the copies that fill and empty them, stages between with rows apart
//! or swizzled.

use super::source::Source;
use super::steps::{Steps, View, extent, is_plain, only_loop};
use warploom::intrin::{self, Action, Level, Place, Row, Way, copies, dtype_of};
use warploom::ir::simplify::Env;
use warploom::ir::{BinOp, Block, Buffer, BufferId, Expr, For, Index, Scope, Stmt, region, visit};

/// A sum of products that no step has touched.
struct Product<'f> {
    block: &'f Block,
    /// Rows, columns, terms.
    loops: [&'f For; 3],
    /// The sum, the factor of the rows, that of the columns.
    buffers: [BufferId; 3],
    /// Whether a factor has its terms first.
    turned: [bool; 2],
}

/// How a product is cut.
struct Cut {
    row: &'static Row,
    /// The loops over tiles: rows, columns, terms.
    tiles: [String; 3],
    /// The innermost of those over tiles of the sum.
    home: String,
    /// Threads of a block.
    threads: i64,
    opaque: bool,
}

impl<'f> View<'f> {
    fn product(&self) -> Option<Product<'f>> {
        self.blocks.iter().find_map(|b| {
            let around = visit::loops_around(&self.func.body, b.name)?;
            let [i, j, k] = around[..] else { return None };
            let untouched = around.iter().all(|l| is_plain(l)) && only_loop(i).is_some() && only_loop(j).is_some();
            let [vi, vj, vk] = [0, 1, 2].map(|n| b.iters.get(n).map(|it| it.var));
            let ([Stmt::Store(store)], Some(_), true) = (b.body.as_slice(), &b.init, untouched) else { return None };
            let Expr::Bin(BinOp::Add, _, product) = &store.value else { return None };
            let Expr::Bin(BinOp::Mul, x, y) = product.as_ref() else { return None };
            let ((x, at_x), (y, at_y)) = (factor(x)?, factor(y)?);
            let of = |at: &[Index], var| at.iter().position(|i| i.as_var() == var);
            let matrices = at_x.len() == 2 && at_y.len() == 2 && store.indices.len() == 2 && x != y;
            let fits = matrices && of(&store.indices, vi) == Some(0) && of(&store.indices, vj) == Some(1);
            let turned = [of(at_x, vk)? == 0, of(at_y, vk)? == 0];
            (fits && of(at_x, vi).is_some() && of(at_y, vj).is_some()).then_some(Product {
                block: b,
                loops: [i, j, k],
                buffers: [store.buffer, x, y],
                turned,
            })
        })
    }

    /// A product as tiles of an instruction, all steps that this takes.
    pub fn instruction(&self, source: &mut Source) -> Steps {
        let p = self.product()?;
        let row = source.pick(&self.rows(&p))?;
        let opaque = row.operands.iter().any(|o| matches!(o.place, Place::Opaque(_)));
        let mut out = Vec::new();
        let cut = self.cut(&p, row, opaque, source, &mut out)?;
        self.sum(&p, &cut, source, &mut out)?;
        for side in 0..2 {
            self.factor(&p, side, &cut, source, &mut out)?;
        }
        let block = self.block_name(p.block);
        out.push(format!("decompose_reduction {block} {}", cut.tiles[2]));
        out.push(format!("tensorize ii {}", row.name));
        Some(out)
    }

    /// The instructions that multiply its types and divide its sizes.
    fn rows(&self, p: &Product) -> Vec<&'static Row> {
        let types = p.buffers.map(|id| Some(self.func.buffer(id).dtype));
        let fits = |r: &&Row| {
            r.action == Action::MultiplyAdd
                && r.level == Level::Warp
                && r.emit.is_some()
                && [0, 1, 2].map(|o| dtype_of(r, r.operands[o].name)) == types
                && p.loops.iter().zip(&r.dims).all(|(l, d)| extent(l) % d.1 == 0)
        };
        let fits: Vec<&Row> = intrin::all().iter().filter(fits).collect();
        // Opaque factors only in the majors that memory has.
        let fed = |r: &&Row| {
            let load = |n: usize| {
                let dtype = self.func.buffer(p.buffers[n]).dtype;
                !copies(r, n, dtype, p.turned[n - 1], Way::Load).is_empty()
            };
            [1, 2].into_iter().all(|n| !matches!(r.operands[n].place, Place::Opaque(_)) || load(n))
        };
        fits.into_iter().filter(fed).collect()
    }

    fn cut(
        &self,
        p: &Product,
        row: &'static Row,
        opaque: bool,
        source: &mut Source,
        out: &mut Vec<String>,
    ) -> Option<Cut> {
        let [m, n, k] = [0, 1, 2].map(|d| row.dims[d].1);
        let tiles = ["it", "jt", "kt"].map(|base| self.func.unused_loop_name(base));
        if ["ii", "ji", "ki"].iter().any(|l| self.func.unused_loop_name(l) != *l) {
            return None;
        }
        let [it, jt, kt] = &tiles;
        let [i, j, l] = p.loops.map(|l| self.name(l));
        out.extend([
            format!("split {i} ? {m} -> {it} ii"),
            format!("split {j} ? {n} -> {jt} ji"),
            format!("split {l} ? {k} -> {kt} ki"),
            format!("reorder {it} {jt} {kt} ii ji ki"),
        ]);
        let counts = [extent(p.loops[0]) / m, extent(p.loops[1]) / n];
        // Which tiles are blocks, which are warps; the others follow one another.
        let (binds, warps, home) = match source.below(5) {
            0 => (vec![format!("bind {it} blockIdx.x")], 1, 1),
            1 => (vec![format!("bind {it} blockIdx.x"), format!("bind {jt} warp")], counts[1], 1),
            2 => (vec![format!("bind {it} warp")], counts[0], 1),
            3 => (vec![format!("bind {it} blockIdx.y"), format!("bind {jt} blockIdx.x")], 1, 1),
            _ => {
                let turned = format!("reorder {jt} {it}");
                (vec![turned, format!("bind {jt} blockIdx.x"), format!("bind {it} warp")], counts[0], 0)
            }
        };
        out.extend(binds);
        let home = tiles[home].clone();
        Some(Cut { row, tiles, home, threads: 32 * warps, opaque })
    }

    /// The sum in a fragment, and its way out.
    fn sum(&self, p: &Product, cut: &Cut, source: &mut Source, out: &mut Vec<String>) -> Option<()> {
        let (block, sum) = (self.block_name(p.block), p.buffers[0]);
        let name = self.buffer_name(sum);
        let leaves = if self.func.params.contains(&sum) {
            let stage = self.func.unused_buffer_name(&format!("{name}_f"));
            out.push(format!("cache_write {block} {name} fragment -> {stage}"));
            stage
        } else {
            let reads = |b: &&&Block| b.name != p.block.name && visit::reads(&b.body).contains(&sum);
            let reader = self.blocks.iter().find(reads)?;
            // What reads an opaque sum does so as a store.
            if cut.opaque {
                return None;
            }
            out.push(format!("set_scope {name} fragment"));
            self.block_name(reader).to_string()
        };
        out.push(format!("reverse_compute_at {leaves} {} -> o0 o1", cut.home));
        if cut.opaque {
            let stores = copies(cut.row, 0, self.func.buffer(sum).dtype, false, Way::Store);
            out.push(format!("tensorize o0 {}", source.pick(&stores)?.name));
        }
        Some(())
    }

    /// A factor's way into a fragment: straight from device memory or through a stage.
    fn factor(&self, p: &Product, side: usize, cut: &Cut, source: &mut Source, out: &mut Vec<String>) -> Option<()> {
        let (block, id) = (self.block_name(p.block), p.buffers[side + 1]);
        let (x, buffer, kt) = (["a", "b"][side], self.func.buffer(id), &cut.tiles[2]);
        let loads: Vec<&Row> = copies(cut.row, side + 1, buffer.dtype, p.turned[side], Way::Load);
        // From or to memory in its own order.
        let mut tile = [cut.row.dims[side].1, cut.row.dims[2].1];
        if p.turned[side] {
            tile.reverse();
        }
        let divides = |l: &&Row| l.dims.iter().zip(tile).all(|(d, t)| t % d.1 == 0);
        let load = source.pick(&loads.into_iter().filter(divides).collect::<Vec<_>>());
        let load = load.filter(|_| cut.opaque || source.chance(80));
        if cut.opaque && load.is_none() {
            return None;
        }
        let mut from = buffer.name.clone();
        if load.is_some_and(|l| !cut.opaque || !l.operands[1].scopes().contains(&Scope::Global)) || source.chance(60) {
            let stage = self.func.unused_buffer_name(&format!("{}_s", buffer.name));
            out.extend(shared(block, buffer, &stage, (x, kt), cut, source));
            out.extend(apart(buffer, &stage, tile[1], cut.opaque, source));
            from = stage;
        }
        let fragment = self.func.unused_buffer_name(&format!("{}_f", buffer.name));
        if from == buffer.name {
            out.push(format!("cache_read {block} {from} fragment -> {fragment}"));
            out.push(format!("compute_at {fragment} {kt} -> {x}f {x}g"));
        } else {
            // It stands behind the stage already.
            out.push(format!("cache_read {block} {from} fragment -> {fragment} {x}f {x}g"));
        }
        let Some(load) = load else { return Some(()) };
        let [rows, columns] = [load.dims[0].1, load.dims[1].1];
        if [rows, columns] == tile {
            out.push(format!("tensorize {x}f {}", load.name));
        } else {
            out.extend([
                format!("split {x}f ? {rows} -> {x}fo {x}fi"),
                format!("split {x}g ? {columns} -> {x}go {x}gi"),
                format!("reorder {x}fo {x}go {x}fi {x}gi"),
                format!("tensorize {x}fi {}", load.name),
            ]);
        }
        Some(())
    }

    /// Rows of a stage swizzled, where their bytes are panels.
    pub fn swizzle(&self, source: &mut Source) -> Steps {
        let free = |b: &&Block| {
            let written = visit::writes(&b.body).first().copied();
            written.is_some_and(|id| self.panels(id).is_some())
        };
        let found: Vec<&Block> = self.blocks.iter().copied().filter(free).collect();
        let id = *visit::writes(&source.pick(&found)?.body).first()?;
        let widths = self.panels(id)?;
        Some(vec![format!("swizzle {} {}", self.buffer_name(id), source.pick(&widths)?)])
    }

    /// The widths of panels that divide the rows of a shared buffer.
    fn panels(&self, id: BufferId) -> Option<Vec<i64>> {
        let buffer = self.func.buffer(id);
        let free = buffer.scope == Scope::Shared && buffer.swizzle.is_none() && buffer.storage_align.is_none();
        let used = region::in_use(self.func, id, &[], &Env::new()).filter(|r| free && r.len() > 1)?;
        let bytes = used.last()?.extent.as_int()? * i64::from(buffer.dtype.bits()) / 8;
        let widths: Vec<i64> = [32, 64, 128].into_iter().filter(|w| bytes > 0 && bytes % w == 0).collect();
        (!widths.is_empty()).then_some(widths)
    }
}

/// A load, perhaps converted.
fn factor(e: &Expr) -> Option<(BufferId, &[Index])> {
    match e {
        Expr::Load { buffer, indices, .. } => Some((*buffer, indices)),
        Expr::Cast(_, inner) => factor(inner),
        _ => None,
    }
}

/// A stage in shared memory, filled by all threads together.
fn shared(
    block: &str,
    buffer: &Buffer,
    stage: &str,
    (x, kt): (&str, &str),
    cut: &Cut,
    source: &mut Source,
) -> Vec<String> {
    let mut out = vec![
        format!("cache_read {block} {} shared -> {stage}", buffer.name),
        format!("compute_at {stage} {kt} -> {x}0 {x}1"),
        format!("fuse {x}0 {x}1 -> {x}s"),
    ];
    let (threads, bits) = (cut.threads, i64::from(buffer.dtype.bits()));
    // Elements that share bytes are a thread's own.
    let least = 8 / bits.min(8);
    let vector = source.of([1, 2, 4, 8]).max(least);
    if vector == 1 {
        out.push(format!("split {x}s ? {threads} -> {x}r {x}t"));
    } else {
        out.push(format!("split {x}s ? {threads} {vector} -> {x}r {x}t {x}v"));
        out.push(format!("vectorize {x}v"));
    }
    out.push(format!("bind {x}t threadIdx.x"));
    out
}

/// Rows that begin in different banks, or are permuted.
fn apart(buffer: &Buffer, stage: &str, row: i64, opaque: bool, source: &mut Source) -> Option<String> {
    let bits = i64::from(buffer.dtype.bits());
    let widths: Vec<i64> = [32, 64, 128].into_iter().filter(|w| (row * bits / 8) % w == 0).collect();
    match source.pick(&widths).filter(|_| !opaque && source.chance(50)) {
        Some(width) => Some(format!("swizzle {stage} {width}")),
        None => source.chance(70).then(|| format!("storage_align {stage} 0 {} {}", 256 / bits, 128 / bits)),
    }
}
