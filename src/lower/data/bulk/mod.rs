//! `copy_with BUFFER tma`: the nest that copies a box becomes TMA copies, which one thread issues.
//!
//! `boxes` derives the box from a nest: where it begins in both memories and its extent along each dimension. A box of a
//! swizzled buffer is split into its panels, a copy each. Loads of adjacent statements are issued together and complete
//! together: one mbarrier counts their bytes. Where a copy is multicast, each block of the cluster copies its share of the
//! outer rows to all blocks.
//!
//! Elements outside of the array are read as zero and not written, so conditions that hold inside of it are dropped. The buffer may
//! then hold zeros where the program does not write it; no statement reads those.

mod boxes;

use crate::error::{Code, Error, Result, Subject};
use crate::ir::lowered::LoweredKernel;
use crate::ir::lowered::threads;
use crate::ir::lowered::{Derived, LaunchAxis, LoadedRows, TensorMap};
use crate::ir::simplify::{self, Env};
use crate::ir::{
    Axis, Block, Buffer, BufferId, BulkCopy, Columns, Cond, CopyKind, Elect, For, Func, Index, LoopKind, Mbarrier,
    Note, Slot, Stmt, Var, Way, visit,
};
use crate::lower::bug;
use crate::lower::data::fragments;
use crate::lower::map::blocks::guarded;
use crate::target::{self, LINE, SWIZZLED_ROWS, Target};
use boxes::{Along, CopyBox, Nest, Refusal};

/// What a box begins at a multiple of in shared memory, in bytes (PTX ISA, cp.async.bulk.tensor).
const ALIGN: i64 = 128;
/// What a box begins at a multiple of in a row of its array, in bytes. An H200 answers another coordinate with an illegal instruction.
const ROW_ALIGN: i64 = 16;
/// Boxes that are stored one after the other up to which they are written out: a thread waits for nothing in between.
const WRITTEN_OUT: i64 = 4;
/// Boxes of which those beyond a dynamic size are left out up to which they are written out.
const LEFT_OUT: i64 = 16;
/// Warps of a warpgroup.
const GROUP_WARPS: u32 = (threads::WARPGROUP / threads::LANES) as u32;
/// The L2 promotion of a tensor map without the note, in bytes: a line. With two lines 1x28672x8192 NT of f16 takes 122 us on an H200, with one 109
/// (h200-2026-11-28/promotion.jsonl).
const PROMOTION: u32 = LINE as u32;

/// Tiles of rows at most of a kernel whose loads have smaller boxes.
const MOST_TILES: i64 = 8;

/// Smaller boxes of a load: so many pieces of so many rows along a dimension of the box, one after the other in the stage.
struct Rows {
    dim: usize,
    along: Along,
    rows: i64,
    pieces: i64,
    /// The rows of the array: a dynamic size.
    size: Index,
}

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    if !visit::blocks(&kernel.func.body).iter().any(|b| is_bulk(b)) {
        return Ok(());
    }
    let thread_vars = kernel.thread_vars().into_iter().map(|(v, _)| v).collect();
    let pingpong = kernel.pingpong_loops().into_iter().map(|(v, _)| v).collect();
    let body = std::mem::take(&mut kernel.func.body);
    let loops: Vec<Var> = visit::loops(&body).iter().map(|l| l.var).collect();
    let cluster = kernel.launch.iter().find(|l| l.axis == Axis::Cluster && l.extent > 1).copied();
    let warps = kernel.warps();
    let (env, derived, launch) = (kernel.env(), kernel.derived.clone(), kernel.launch.clone());
    let mut pass = Pass {
        func: &mut kernel.func,
        maps: Vec::new(),
        loaded: Vec::new(),
        whole: body.clone(),
        loops,
        warps,
        launch,
        cluster,
        thread_vars,
        pingpong,
        derived,
    };
    let mut body = pass.body(body, &env, &mut Vec::new())?;
    let (maps, loaded) = (pass.maps, pass.loaded);
    kernel.loaded = loaded;
    number(&mut body, &mut kernel.func);
    kernel.func.body = body;
    kernel.maps = maps;
    Ok(())
}

/// Whether a block is copied by the copy engine.
pub fn is_bulk(block: &Block) -> bool {
    block.copy_with.as_ref().is_some_and(|c| c.kind == CopyKind::Tma)
}

/// Whether a statement is started by one thread and only loads boxes.
pub fn is_load(stmt: &Stmt) -> bool {
    let Stmt::Elect(e) = stmt else { return false };
    let (mut loads, mut stores) = (false, false);
    visit::walk(&e.body, &mut |s| {
        if let Stmt::Bulk(copy) = s {
            loads |= copy.way != Way::Store;
            stores |= copy.way == Way::Store;
        }
    });
    loads && !stores
}

/// Changes every bulk copy in place.
pub fn each_copy(stmt: &mut Stmt, f: &mut dyn FnMut(&mut BulkCopy)) {
    if let Stmt::Bulk(copy) = stmt {
        f(copy);
    }
    for child in visit::children_mut(stmt) {
        child.iter_mut().for_each(|s| each_copy(s, f));
    }
}

/// The bytes that the first unaligned box begins at a multiple of in its stage; `None` where all begin at a multiple of [`ALIGN`].
fn unaligned(stage: &Buffer, copies: &[BulkCopy], env: &Env) -> Result<Option<i64>> {
    for copy in copies {
        let offset = boxes::offset(stage, &copy.indices);
        let lost = || bug(Code::LowerBulk, format!("{} has no layout", stage.name)).about_buffer(&stage.name);
        let bytes = simplify::divisor(&offset.ok_or_else(lost)?, env) * i64::from(stage.dtype.bits()) / 8;
        if bytes % ALIGN != 0 {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

struct Pass<'a> {
    func: &'a mut Func,
    maps: Vec<TensorMap>,
    /// The stages of which only rows below a dynamic size are loaded.
    loaded: Vec<LoadedRows>,
    /// The kernel's body before the pass.
    whole: Vec<Stmt>,
    /// The loops that are no index of the hardware.
    loops: Vec<Var>,
    /// Warps of a block.
    warps: u32,
    /// The axes of the hardware.
    launch: Vec<LaunchAxis>,
    cluster: Option<LaunchAxis>,
    thread_vars: Vec<Var>,
    /// The ping-pong loops.
    pingpong: Vec<Var>,
    /// What blocks derive from their numbers.
    derived: Vec<Derived>,
}

impl Pass<'_> {
    fn body(&mut self, body: Vec<Stmt>, env: &Env, around: &mut Vec<(Var, i64)>) -> Result<Vec<Stmt>> {
        let mut out: Vec<Stmt> = Vec::with_capacity(body.len());
        for mut stmt in body {
            if let Some(nest) = Nest::of(&stmt) {
                let copy = self.copied(&nest, env, around)?;
                join(&mut out, copy);
                continue;
            }
            let mut inner = env.clone();
            let outside = around.len();
            if let Stmt::For(l) = &stmt {
                inner.bind_loop(l.var, &l.extent);
                around.push((l.var, l.extent.as_int().unwrap_or(i64::MAX)));
            }
            if let Stmt::If(i) = &stmt {
                inner.assume(&i.cond);
            }
            for child in visit::children_mut(&mut stmt) {
                *child = self.body(std::mem::take(child), &inner, around)?;
            }
            around.truncate(outside);
            out.push(stmt);
        }
        Ok(out)
    }

    /// The TMA copies that replace a nest.
    fn copied(&mut self, nest: &Nest, env: &Env, around: &[(Var, i64)]) -> Result<Stmt> {
        let name = self.func.block_name(nest.block.name).to_string();
        let refused = |code: Code, message: String| {
            let step = format!("copy_with {name} tma");
            Error::input(code, format!("{step}: {message}")).about_block(&name).of_step(step)
        };
        let refuse = |code: Code, message: String| {
            refused(code, message).help(format!("copy_with {name} sync copies element by element"))
        };
        let mut inner = env.clone();
        nest.loops.iter().for_each(|l| inner.bind_loop(l.var, &l.extent));
        let no_box = |Refusal { code, message, help, about }: Refusal| match help {
            Some(help) => refused(code, message).about_all(about).help(help),
            None => refuse(code, message).about_all(about),
        };
        let mut found = CopyBox::of(self.func, nest, &inner).map_err(no_box)?;
        let conds = found.conditions(self.func, nest, &inner, &self.thread_vars).map_err(no_box)?;
        self.alone(nest, &found, around).map_err(no_box)?;
        let shares = self.multicast(nest);
        if let Some(cluster) = shares {
            let shared = found.shared(self.func, nest, &inner, (cluster.var, cluster.extent));
            found = shared.map_err(no_box)?;
        }
        let below = self.below(nest, &found, shares.is_some(), &inner);
        let rows = self.pieces(&found, &inner).filter(|_| below.is_none());
        // Of boxes that the blocks of a cluster share, each block would expect what the others load.
        let left_out = rows.as_ref().filter(|rows| shares.is_none() && self.are_columns(&found, rows));
        let counted = left_out.map(|_| self.func.add_var(format!("{name}_box")));
        self.row_alignment(&found, &inner)
            .map_err(|e| e.about_block(&name).of_step(format!("copy_with {name} tma")))?;
        let (copies, align) =
            self.panels(nest, &found, shares.map(|c| c.extent), rows.as_ref().map(|r| (r, counted)), &inner)?;
        if let Some(bytes) = unaligned(self.func.buffer(found.shared), &copies, &inner)? {
            let stage = &self.func.buffer(found.shared).name;
            let message = format!(
                "a TMA box begins at a multiple of {bytes} bytes in {stage}, and a bulk copy needs a multiple of {ALIGN}"
            );
            return Err(refuse(Code::LowerBulkAlign, message)
                .about_buffer(stage)
                .help("make each TMA box a multiple of 128 bytes"));
        }
        let stage = self.func.buffer_mut(found.shared);
        stage.align = stage.align.max(align);
        let body = self.boxes(&found, rows.as_ref().zip(counted), copies, &inner);
        let body = in_loops(nest, &found, below, Stmt::Block(Block { body, ..nest.block.clone() }));
        let Some(warps) = self.starter(&found, &inner) else {
            return Err(
                bug(Code::LowerBulk, format!("each thread would copy its own box of {name}")).about_block(&name)
            );
        };
        if warps < self.warps && !found.store {
            let message = "each warpgroup would load a box of its own, and the block waits for one box".to_string();
            let group = Subject::Axis(Axis::Warpgroup.name());
            return Err(refuse(Code::LowerBulkLevels, message).about(group).help(format!(
                "compute_at {name} after the loop of the warpgroups is bound: one box then serves all of them"
            )));
        }
        let elect = Stmt::Elect(Elect { warps, body });
        Ok(guarded(conds, vec![elect]).remove(0))
    }

    /// The copies: those of a box of rows, in a loop over the boxes that are not beyond the array, or all of them.
    fn boxes(
        &mut self,
        found: &CopyBox,
        left_out: Option<(&Rows, Var)>,
        copies: Vec<BulkCopy>,
        env: &Env,
    ) -> Vec<Stmt> {
        let copies = copies.into_iter().map(Stmt::Bulk).collect();
        let Some((rows, var)) = left_out else { return copies };
        let first = found.coordinates[rows.dim].clone();
        let below = Cond::lt(first.clone() + var * rows.rows, rows.size.clone());
        let used = simplify::simplify(&(rows.size.clone() - first), env);
        let columns = Columns { below: used, unit: rows.rows };
        self.loaded.push(LoadedRows { buffer: found.shared, dim: rows.along.dim, columns });
        vec![Stmt::For(For::new(var, rows.pieces, LoopKind::Unrolled, guarded(below, copies)))]
    }

    /// One thread of how many warps starts a copy: of those that the box is the same for. What a warpgroup stores in its turn it
    /// starts itself.
    fn starter(&self, found: &CopyBox, env: &Env) -> Option<u32> {
        let places = || found.coordinates.iter().chain(&found.indices);
        let same = |threads: i64| places().all(|i| threads::is_same_in(i, &self.launch, threads, env));
        let of_threads = places().any(|i| self.thread_vars.iter().any(|v| i.mentions(*v)));
        let of_pingpong = found.store && places().any(|i| self.pingpong.iter().any(|v| i.mentions(*v)));
        match (of_threads, of_pingpong) {
            (false, false) => Some(self.warps),
            (false, true) => Some(GROUP_WARPS),
            _ if same(threads::WARPGROUP) => Some(GROUP_WARPS),
            _ if same(threads::LANES) => Some(1),
            _ => None,
        }
    }

    /// A stage is filled by its box alone, an array is not changed while it is loaded, and written by boxes alone, each
    /// once.
    fn alone(&self, nest: &Nest, found: &CopyBox, around: &[(Var, i64)]) -> Result<(), Refusal> {
        let name = |b: BufferId| &self.func.buffer(b).name;
        let buffer = |b: BufferId| Subject::Buffer(name(b).clone());
        let refused = |message: String, about: Vec<Subject>| Err(Refusal::new(Code::LowerBulkOrder, message, about));
        let mine = nest.block.name;
        let others: Vec<&Block> = visit::blocks(&self.whole).into_iter().filter(|b| b.name != mine).collect();
        let writes = |b: &&&Block, id: BufferId| visit::writes(&b.body).contains(&id);
        let reads = |b: &&&Block, id: BufferId| visit::reads(&b.body).contains(&id);
        if !found.store {
            if others.iter().any(|b| writes(&b, found.global)) {
                let message = format!("the kernel writes {}, which a copy may read at any time", name(found.global));
                return refused(message, vec![buffer(found.global)]);
            }
            let also = others.iter().find(|b| writes(b, found.shared));
            return match also.filter(|_| found.zeros) {
                Some(b) => {
                    let (stage, block) = (name(found.shared), self.func.block_name(b.name));
                    let message = format!("{stage} is written by {block} too, where the copy puts zeros");
                    refused(message, vec![buffer(found.shared), Subject::Block(block.to_string())])
                }
                None => Ok(()),
            };
        }
        let touches = |b: &&Block| reads(&b, found.global) || writes(&b, found.global) && !is_bulk(b);
        if let Some(b) = others.iter().copied().find(|b| touches(b)) {
            let other = self.func.block_name(b.name);
            let message = format!("block {other} uses {} too, and nothing orders the two", name(found.global));
            return refused(message, vec![Subject::Block(other.to_string()), buffer(found.global)]);
        }
        // A rasterized walk tells boxes apart by what is derived from it.
        let derives =
            |i: &Index, v: Var| self.derived.iter().any(|d| i.mentions(d.var) && d.value.mentions(v)) || i.mentions(v);
        let again = around.iter().find(|(v, n)| *n > 1 && !found.coordinates.iter().any(|i| derives(i, *v)));
        match again {
            Some((v, _)) => {
                let name = self.func.var_name(*v);
                let message = format!("each iteration of loop {name} stores the same box again");
                refused(message, vec![Subject::Loop(name.to_string())])
            }
            None => Ok(()),
        }
    }

    /// The blocks that share the copy out.
    fn multicast(&self, nest: &Nest) -> Option<LaunchAxis> {
        let over = nest.block.copy_with.as_ref()?.multicast?;
        self.cluster.filter(|_| !self.loops.contains(&over))
    }

    /// A copy for each panel of the stage, and what the stage has to be aligned to. Boxes of rows that may be beyond the array are those of an
    /// iteration of a loop that leaves them out, or one after the other, with the first rows of the array where they would begin beyond it.
    fn panels(
        &mut self,
        nest: &Nest,
        found: &CopyBox,
        blocks: Option<u32>,
        rows: Option<(&Rows, Option<Var>)>,
        env: &Env,
    ) -> Result<(Vec<BulkCopy>, u32)> {
        let stage = self.func.buffer(found.shared);
        let (bits, swizzle) = (i64::from(stage.dtype.bits()), stage.swizzle.unwrap_or(0));
        let last = found.tile.len() - 1;
        let row = found.tile[last];
        let columns = if swizzle > 0 { i64::from(swizzle) * 8 / bits } else { row };
        let mut tile: Vec<i64> = found.tile[..last].iter().copied().chain([columns]).collect();
        if let Some((Rows { dim, rows, .. }, _)) = rows {
            tile[*dim] = *rows;
        }
        let map = self.map(nest, found, tile, swizzle)?;
        let way = || match found.store {
            true => Way::Store,
            false => Way::Load { full: Slot { barrier: u32::MAX, index: Index::Int(0) }, multicast: blocks },
        };
        let pieces = rows.filter(|(_, counted)| counted.is_none()).map_or(1, |(rows, _)| rows.pieces);
        let copies = (0..row / columns * pieces).map(|copy| {
            let (panel, piece) = (copy / pieces, copy % pieces);
            let (mut coordinates, mut indices) = (found.coordinates.clone(), found.indices.clone());
            coordinates[last] = coordinates[last].clone() + panel * columns;
            if let Some(along) = found.dims[last] {
                indices[along.dim] = indices[along.dim].clone() + panel * columns;
            }
            if let Some((Rows { dim, along, rows, size, .. }, counted)) = rows {
                let piece = counted.map_or(Index::Int(piece), Index::Var);
                let first = coordinates[*dim].clone() + piece.clone() * *rows;
                let end = (size.clone() + (rows - 1)).floordiv(*rows) * *rows;
                coordinates[*dim] =
                    if counted.is_some() { first } else { simplify::simplify(&first.floormod(end), env) };
                indices[along.dim] = indices[along.dim].clone() + piece * (rows * along.step);
            }
            BulkCopy { global: found.global, map, coordinates, shared: found.shared, indices, way: way() }
        });
        Ok((copies.collect(), (SWIZZLED_ROWS as u32 * swizzle).max(ALIGN as u32)))
    }

    /// The boxes of a load whose rows may be beyond a dynamic size, where values are undefined. TMA is slow for boxes beyond an array, though it reads
    /// nothing there: with tiles of 128 rows f16 72x4096x4096 took 18.7 us on an H200, 125x4096x4096 12.2. If all blocks read the last rows instead of
    /// the first ones, it takes 16.2.
    fn pieces(&self, found: &CopyBox, env: &Env) -> Option<Rows> {
        let (dim, along) = found.divided().filter(|_| found.any)?;
        let (view, extent) = (&found.view[dim], &self.func.buffer(found.global).shape[found.view[dim].of]);
        self.func.size_of(extent).filter(|_| view.low == 1)?;
        // Of more tiles the last one is a small part, and each box has a place in registers.
        view.size().filter(|rows| *rows <= MOST_TILES * found.tile[dim])?;
        let last = found.coordinates[dim].clone() + (found.tile[dim] - 1);
        if simplify::prove(&Cond::lt(last, extent.clone()), env) {
            return None;
        }
        let rows = target::piece_rows(found.tile[dim])?;
        let begins = simplify::divisor(&found.coordinates[dim], env) % rows == 0;
        begins.then(|| Rows { dim, along, rows, pieces: found.tile[dim] / rows, size: extent.clone() })
    }

    /// The condition that a box, of which a loop copies several along a dynamic size, begins inside of the array; `None` where each box does. Loads
    /// leave boxes out where the rows of the stage are columns of MMAs alone, which are told so.
    fn below(&mut self, nest: &Nest, found: &CopyBox, shared: bool, env: &Env) -> Option<Cond> {
        let (dim, along) = found.divided()?;
        let size = self.func.buffer(found.global).shape[found.view[dim].of].clone();
        self.func.size_of(&size).filter(|_| found.view[dim].low == 1)?;
        let (first, rows) = (&found.coordinates[dim], found.tile[dim]);
        let below = Cond::lt(first.clone(), size.clone());
        if simplify::prove(&below, env) {
            return None;
        }
        let around = nest.loops.iter().take(nest.loops.len() - found.loops);
        let over = around.rev().find(|l| first.mentions(l.var))?;
        if found.store {
            return Some(below);
        }
        let (stride, begin) =
            (simplify::affine(first).coefficient(over.var), visit::Map::from([(over.var, Index::Int(0))]));
        let place = simplify::affine(&found.indices[along.dim]);
        let whole = stride > 0 && along.step == 1 && place == simplify::affine(&(over.var * rows));
        let columns = fragments::only_columns(self.func, &self.whole, (found.shared, along.dim), rows);
        if !found.any || shared || !whole || !columns {
            return None;
        }
        let boxes = (size - visit::subst_index(first, &begin) + (stride - 1)).floordiv(stride);
        let columns = Columns { below: simplify::simplify(&(boxes * rows), env), unit: rows };
        self.loaded.push(LoadedRows { buffer: found.shared, dim: along.dim, columns });
        Some(below)
    }

    /// Whether the rows of a stage are columns of MMAs alone, which can leave out those beyond the array.
    fn are_columns(&self, found: &CopyBox, rows: &Rows) -> bool {
        let begins = found.indices[rows.along.dim].as_int() == Some(0) && rows.along.step == 1;
        begins && fragments::only_columns(self.func, &self.whole, (found.shared, rows.along.dim), rows.rows)
    }

    /// Where a box begins along the rows of its array, which is not rounded: TMA reads and writes 16 bytes at a time. Elements below a byte are copied
    /// as bytes: rows of the array and of the box, and where the box begins.
    fn row_alignment(&self, found: &CopyBox, env: &Env) -> Result<()> {
        let array = self.func.buffer(found.global);
        let (last, per_byte) = (found.tile.len() - 1, i64::from(8 / array.dtype.bits().min(8)));
        let row = found.view[last].size().unwrap_or(0);
        let first = simplify::divisor(&found.coordinates[last], env);
        let bytes = i128::from(first) * i128::from(array.dtype.bits()) / 8;
        if first % per_byte == 0 && bytes % i128::from(ROW_ALIGN) != 0 {
            let message = format!(
                "a TMA box begins at a multiple of {bytes} bytes in a row of {}, and TMA needs a multiple of {ROW_ALIGN}",
                array.name
            );
            let help = format!("make boxes begin at multiples of {ROW_ALIGN} bytes, or use copy_with STAGE sync");
            return Err(Error::input(Code::LowerBulkAlign, message).about_buffer(&array.name).help(help));
        }
        if [row, found.tile[last], first].iter().all(|n| n % per_byte == 0) {
            return Ok(());
        }
        let message = format!(
            "TMA copies bytes, and {per_byte} elements of {} share one: a row of {} has {row}, and a box {} from a multiple of {first} on",
            array.dtype, array.name, found.tile[last]
        );
        Err(Error::input(Code::LowerBulkAlign, message)
            .about_buffer(&array.name)
            .help(format!("make rows and boxes multiples of {per_byte} elements")))
    }

    /// The number of the tensor map, a new one where no copy has used it before.
    fn map(&mut self, nest: &Nest, found: &CopyBox, tile: Vec<i64>, swizzle: u32) -> Result<u32> {
        let promotion = nest.loops.iter().find_map(|l| l.notes.get(&Note::L2Promotion));
        let promotion = promotion.and_then(|n| u32::try_from(*n).ok()).unwrap_or(PROMOTION);
        let array = self.func.buffer(found.global);
        let shapeless =
            || bug(Code::LowerBulk, format!("{} has no constant shape", array.name)).about_buffer(&array.name);
        let own = crate::ir::layout::strides(array).ok_or_else(shapeless)?;
        let extents = found.view.iter().map(|d| d.size()).collect::<Option<_>>().ok_or_else(shapeless)?;
        let strides = found.view.iter().map(|d| own[d.of] * d.low).collect();
        let outermost = array.shape.first().and_then(|e| self.func.size_of(e));
        let dynamic = outermost.and_then(|size| Some((found.view.iter().position(|d| d.of == 0)?, size)));
        let map = TensorMap { buffer: found.global, extents, strides, tile, swizzle, promotion, dynamic };
        let at = self.maps.iter().position(|m| *m == map).unwrap_or_else(|| {
            self.maps.push(map);
            self.maps.len() - 1
        });
        Ok(at as u32)
    }
}

/// A box in the loops of its nest that it is not of, where a condition holds.
fn in_loops(nest: &Nest, found: &CopyBox, below: Option<Cond>, label: Stmt) -> Vec<Stmt> {
    let most = if below.is_some() { LEFT_OUT } else { WRITTEN_OUT };
    let few = |l: &For| l.extent.as_int().is_some_and(|n| n <= most) && (found.store || most == LEFT_OUT);
    let outside = nest.loops.iter().take(nest.loops.len() - found.loops).rev();
    outside.fold(guarded(below.unwrap_or(Cond::TRUE), vec![label]), |body, l| {
        let kind = if few(l) { LoopKind::Unrolled } else { LoopKind::Serial };
        vec![Stmt::For(For::new(l.var, l.extent.clone(), kind, body))]
    })
}

/// Appends a copy to a list; adjacent loads of one role become one statement.
fn join(list: &mut Vec<Stmt>, copy: Stmt) {
    let role = |s: &Stmt| visit::blocks(std::slice::from_ref(s)).first().and_then(|b| b.role);
    let alike = list.last().is_some_and(|last| is_load(last) && is_load(&copy) && role(last) == role(&copy));
    match (list.last_mut(), copy) {
        (Some(Stmt::Elect(last)), Stmt::Elect(next)) if alike && last.warps == next.warps => {
            last.body.extend(next.body);
        }
        (_, copy) => list.push(copy),
    }
}

/// Gives the loads of each statement an mbarrier.
fn number(body: &mut [Stmt], func: &mut Func) {
    for stmt in body {
        if !is_load(stmt) {
            visit::children_mut(stmt).into_iter().for_each(|child| number(child, func));
            continue;
        }
        let barrier = func.mbarriers.len() as u32;
        let mut name = None;
        each_copy(stmt, &mut |copy| {
            name.get_or_insert(copy.shared);
            if let Way::Load { full, .. } = &mut copy.way {
                full.barrier = barrier;
            }
        });
        let name = name.map_or_else(|| "full".to_string(), |b| format!("{}_full", func.buffer(b).name));
        func.mbarriers.push(Mbarrier { name, slots: 1, arrivals: 1, offset: None });
    }
}

/// The conjunction of conditions.
fn all(conds: impl IntoIterator<Item = Cond>) -> Cond {
    conds.into_iter().fold(Cond::TRUE, Cond::and)
}
