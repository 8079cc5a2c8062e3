//! `tensor_core LOOP [= ROW] [-> WARP]`: a product that threads compute is computed by warps on tensor cores.
//!
//! LOOP runs a sum of products whose factors and sum are local stages of threads. The 32 threads of a warp together own a
//! box of each: their loops move into the nests of these stages, the loops around become one loop WARP over the warps of a
//! block, the stages become fragments, and their nests are cut into the tiles of instructions: ROW for the product, for each
//! factor the widest load that puts elements where ROW wants them (where there is none, lanes fetch their elements one by
//! one), and a store for a sum of which no lane knows its elements. What is unrolled or vectorized inside a tile goes with its loops; cooperative copies stay as they are.
//!
//! Which ROW depends on the chip, which no step looks at. So a step without it is resolved before it is applied, by
//! [`crate::auto`], and says then what was chosen; `= none` leaves the program as it is.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: each element is the sum of the same products. The order in which they are added changes.
//!
//! ```text
//! for ty in 0..16 @threadIdx.y            tensor_core ko = mma.m16n8k16.f32.f16.f16
//!   for tx in 0..2 @threadIdx.x             for warp in 0..1 @warp
//!     for ko in 0..32                         for sum_i.., sum_j..: sum = 0, a fragment
//!       for k in 0..16                        for ko in 0..32
//!         A_l: A_l[ty, k] = A_s[ty, k]          A_l: 16 x 16 by ldmatrix
//!       ..                                      ..
//!       for k, j in 0..16, 0..8                 for j in 0..2
//!         sum[ty, tx*8 + j] += ..                 sum += .. tensorize mma.m16n8k16.f32.f16.f16
//! ```

mod feed;

use super::{Applied, ParamKind, Parameter, Primitive, decompose_reduction};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::intrin::{self, Action, Level, Row};
use crate::ir::print::Node;
use crate::ir::{
    BinOp, Block, BlockId, BufferId, Expr, For, Func, Index, IterKind, Scope, Tensorize, Var, verify, visit,
};
use crate::schedule::refusal::Refusal;
use crate::schedule::regroup::{Numbers, Regrouped, Threads, regroup};
use crate::schedule::{Args, analyze, dataflow, find};

/// The name of this primitive.
const NAME: &str = "tensor_core";

/// What is for no instruction.
pub const NONE: &str = "none";

/// The row of this primitive.
pub static PRIMITIVE: Primitive = Primitive {
    name: NAME,
    about: "Computes the matrix product of a thread block on tensor cores by the chosen instruction, or keeps ordinary \
            code.",
    example: "gemm 32x512x512 f16>f32>f32 NN\n\
              target sm_80\n\
              cache_read C A shared -> AA\n\
              cache_read C AA local -> AL\n\
              cache_read C B shared -> BB\n\
              cache_read C BB local -> BL\n\
              cache_write C C local -> CL\n\
              storage_align AA 0 16 8\n\
              split i ? 32 1 -> yo ty yi\n\
              split j ? 2 2 8 -> xo tz tx xi\n\
              split k ? 16 16 -> ko kl ki\n\
              reorder yo xo tz ty tx ko kl ki yi xi\n\
              reverse_compute_at CL tx -> c0 c1\n\
              bind yo blockIdx.y; bind xo blockIdx.x\n\
              bind ty threadIdx.y; bind tz threadIdx.z; bind tx threadIdx.x\n\
              compute_at AL kl -> a0 a1; compute_at BL kl -> b0 b1\n\
              compute_at AA ko -> ar ac\n\
              split ac ? 2 2 8 -> ao az ax av\n\
              fuse ar ao -> af; split af ? 32 -> ag ay\n\
              bind ay threadIdx.y; bind az threadIdx.z; bind ax threadIdx.x; vectorize av\n\
              compute_at BB ko -> br bc\n\
              split bc ? 2 2 8 -> bo bz bx bv\n\
              fuse br bo -> bf; split bf ? 32 -> bg by\n\
              bind by threadIdx.y; bind bz threadIdx.z; bind bx threadIdx.x; vectorize bv\n\
              annotate kl unroll_limit 4\n\
              tensor_core ko = mma.m16n8k16.f32.f16.f16",
    signature: &[
        Parameter::place("loop", ParamKind::Loop),
        Parameter::chosen("row", ParamKind::Row),
        Parameter::made("warp", ParamKind::Loop),
    ],
    requires: &[
        "the choice is stated: an instruction of a warp that multiplies matrices, or `none`",
        "one block under LOOP sums products over LOOP, from an init that can be moved before LOOP; the accumulator and \
         operands A and B are local buffers, each written by one block",
        "the loops bound to threads are directly nested around LOOP, the kernel has no others, and 32 \
         consecutive threads are a box of their iterations",
        "every nest that they divide accesses the accumulator or an operand, and the threads of a warp cover a whole \
         box of its iterators",
        "the box is not cut by the edge of the matrices: their sizes are multiples of its sizes",
        "the instruction computes this product on its types, and its shape divides the box. If its fragments are \
         opaque, copies load the operands and store the accumulator in the width and the majors that the instruction \
         needs",
        "the program is complete as far as loops bound to threads are concerned",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let refusal = Refusal::new(NAME, func);
    let l = find::loop_(func, args.get_word("loop")?)?;
    let no = |message: String| refusal.broken(1, message, &[(Node::Loop(l.var), "this loop")]);
    let Some(chosen) = args.find_word("row") else {
        return Err(no("no instruction has been chosen yet".into())
            .help("a Schedule chooses one for its target; `= none` asks for ordinary code"));
    };
    let names = find::new_loops(func, args, &["warp".to_string()], &[])?;
    if chosen == NONE {
        return Ok(Applied { func: func.clone(), names: args.names.clone() });
    }
    let row = intrin::find(chosen)
        .ok_or_else(|| no(format!("there is no instruction `{chosen}`{}", intrin::suggestion(chosen))))?;
    if !multiplies(row) {
        return Err(no(format!("`{chosen}` does not multiply matrices in a warp")));
    }
    let mut product = Product::of(func, l, &names[0])?;
    product.place(row, refusal)?;
    Ok(Applied { func: product.program.func, names })
}

/// Whether an instruction can be chosen: one of a warp that adds a product, and that `lower` knows.
pub fn multiplies(row: &Row) -> bool {
    row.action == Action::MultiplyAdd && row.level == Level::Warp && row.emit.is_some()
}

/// A product whose loops have been regrouped, before any instruction is placed.
#[derive(Debug)]
pub struct Product {
    program: Regrouped,
    /// Which block sums.
    block: BlockId,
    /// The sum and its factors: that of the rows, that of the columns.
    buffers: [BufferId; 3],
    /// Which of the block's iterators are the rows, the columns, the terms.
    iters: [usize; 3],
    /// Rows, columns and terms that a warp computes between two loads.
    pub tile: [i64; 3],
    /// The types of the sum, of the factor of the rows and of that of the columns.
    pub dtypes: [DType; 3],
}

impl Product {
    /// The product under a loop.
    ///
    /// # Errors
    /// Requirements 2 to 5 and 7.
    pub fn of(func: &Func, l: &For, warp: &str) -> Result<Product> {
        let refusal = Refusal::new(NAME, func);
        let (block, buffers, iters) = recognise(func, l, refusal)?;
        let threads = Threads::around(func, l, refusal, 3)?;
        verify::verify(func).map_err(|e| {
            let message = format!("the program is not complete: {}", e.message());
            refusal.broken(7, message, &[(Node::Loop(l.var), "this loop")])
        })?;
        let apart = without_init(func, block, l, refusal)?;
        let numbers = Numbers { nests: 4, sizes: 5 };
        let program = regroup(&apart, &threads, &buffers, warp, refusal, numbers)?;
        let dtypes = buffers.map(|b| func.buffer(b).dtype);
        let id = block.name;
        let nest = program.nest(id).ok_or_else(|| refusal.lost("the nest of the product"))?;
        let tile = iters.map(|n| nest.loops[n].1);
        Ok(Product { program, block: id, buffers, iters, tile, dtypes })
    }

    /// Makes the nests of the product tiles of the instruction and of the loads that fit it.
    fn place(&mut self, row: &'static Row, refusal: Refusal) -> Result<()> {
        let block = self.program.func.block_name(self.block).to_string();
        let node = [(Node::Block(self.block), "this block")];
        let no = |why: String| refusal.broken(6, format!("{} {why}", row.name), &node);
        let turned = self.turned(row).map_err(|why| no(format!("{why} of block `{block}`")))?;
        for id in self.buffers {
            self.program.func.buffer_mut(id).scope = Scope::Fragment;
        }
        let [m, n, k] = [0, 1, 2].map(|d| row.dims[d].1);
        let ([rows, columns, terms], [_, x, y]) = (self.iters, self.buffers);
        let nest = self.program.nest(self.block).cloned().ok_or_else(|| refusal.lost("the nest of the product"))?;
        let mut sizes = vec![1; nest.loops.len()];
        (sizes[rows], sizes[columns], sizes[terms]) = if turned { (n, m, k) } else { (m, n, k) };
        let vars = self.program.cut(&nest, &sizes, &[terms, rows, columns]);
        let dims = if turned { [columns, rows, terms] } else { [rows, columns, terms] };
        self.tensorize(row, dims.map(|d| vars[d]).to_vec());
        self.check(row, vars[0], refusal)?;
        for (number, factor) in (if turned { [y, x] } else { [x, y] }).into_iter().enumerate() {
            self.load(row, number + 1, factor).map_err(no)?;
        }
        if feed::is_opaque(row, 0) { self.store(row, turned).map_err(no) } else { Ok(()) }
    }

    /// Whether an instruction has the types of the product.
    pub fn is_typed(&self, row: &Row) -> bool {
        self.turns(row).next().is_some()
    }

    /// Whether the instruction's rows are the product's columns.
    ///
    /// # Errors
    /// In words why it is not the instruction for the product.
    pub fn turned(&self, row: &Row) -> Result<bool, String> {
        if !self.is_typed(row) {
            let [sum, a, b] = self.dtypes;
            return Err(format!("does not multiply {a} by {b} into {sum}, the types"));
        }
        let divides = |sizes: &[i64; 3]| self.tile.iter().zip(sizes).all(|(t, s)| t % s == 0);
        let [rows, columns, terms] = self.tile;
        let mut found = self.turns(row).filter(|(_, sizes)| divides(sizes)).map(|(turned, _)| turned).peekable();
        if found.peek().is_none() {
            return Err(format!("does not divide {rows} x {columns} x {terms}, the tile of a warp,"));
        }
        let fed = found.find(|turned| self.is_fed(row, *turned));
        fed.ok_or_else(|| "takes operands in other majors than those".to_string())
    }

    /// The ways in which an instruction has the product's types, rows as rows first, with its sizes as rows, columns and
    /// terms of the product.
    fn turns(&self, row: &Row) -> impl Iterator<Item = (bool, [i64; 3])> {
        let [sum, a, b] = [0, 1, 2].map(|o| intrin::dtype_of(row, row.operands[o].name));
        let [m, n, k] = [0, 1, 2].map(|d| row.dims[d].1);
        let ours = self.dtypes.map(Some);
        let ways = [(false, [sum, a, b], [m, n, k]), (true, [sum, b, a], [n, m, k])];
        ways.into_iter().filter(move |(_, types, _)| *types == ours).map(|(turned, _, sizes)| (turned, sizes))
    }

    fn tensorize(&mut self, row: &Row, vars: Vec<Var>) {
        let dims = row.dims.iter().map(|d| d.0.to_string()).zip(vars.iter().copied()).collect();
        let placed = Tensorize { row: row.name.clone(), dims };
        let around = |v: &Var| visit::loops_around_loop(&self.program.func.body, *v).map_or(0, |l| l.len());
        if let Some(top) = vars.iter().copied().min_by_key(around) {
            visit::change_loop(&mut self.program.func.body, top, &mut |l| l.tensorize = Some(placed.clone()));
        }
    }

    /// Holds the placed nest against the instruction.
    fn check(&self, row: &Row, top: Var, refusal: Refusal) -> Result<()> {
        let func = &self.program.func;
        let placed = visit::loops(&func.body).into_iter().find(|l| l.tensorize.is_some() && holds(l, self.block));
        let Some((l, dims)) = placed.and_then(|l| Some((l, &l.tensorize.as_ref()?.dims))) else {
            return Err(refusal.lost(&format!("the loop {}", func.var_name(top))));
        };
        intrin::matches(func, l, row, dims)?.map_err(|mismatch| {
            let node = [(Node::Block(self.block), "this block")];
            refusal.broken(6, format!("{} does not compute this product: {}", row.name, mismatch.message()), &node)
        })
    }
}

fn holds(l: &For, block: BlockId) -> bool {
    visit::blocks(&l.body).iter().any(|b| b.name == block)
}

/// The block under the loop that sums products, its sum and factors, and which of its iterators are rows, columns, terms.
fn recognise<'a>(func: &'a Func, l: &For, refusal: Refusal) -> Result<(&'a Block, [BufferId; 3], [usize; 3])> {
    let name = func.var_name(l.var);
    // A loop of one iteration is in no binding: it runs the sums of the loops in it.
    let mut own = visit::loops(&l.body);
    own.push(l);
    let sums = |b: &&Block| own.iter().any(|l| !analyze::iters_on(b, l, IterKind::Reduce).is_empty());
    let blocks = visit::blocks(&func.body).into_iter();
    let candidates: Vec<&Block> = blocks.filter(|b| holds(l, b.name) && sums(b)).collect();
    let [block] = candidates[..] else {
        let message = format!("{} blocks sum over loop `{name}`", candidates.len());
        return Err(refusal.broken(2, message, &[(Node::Loop(l.var), "this loop")]));
    };
    let label = func.block_name(block.name);
    let no = |message: String| refusal.broken(2, message, &[(Node::Block(block.name), "this block")]);
    let (sum, factors) =
        product(block).ok_or_else(|| no(format!("block `{label}` does not sum products of two buffers")))?;
    let position = |kind: IterKind, indices: &[Index]| {
        let own = |n: &usize| block.iters[*n].kind == kind && indices.iter().any(|i| i.mentions(block.iters[*n].var));
        let found: Vec<usize> = (0..block.iters.len()).filter(own).collect();
        if let [one] = found[..] { Some(one) } else { None }
    };
    let spatial = |n: usize| position(IterKind::Spatial, &factors[n].1);
    let (Some(a), Some(b), Some(k)) = (spatial(0), spatial(1), position(IterKind::Reduce, &factors[0].1)) else {
        return Err(no(format!("block `{label}` is not a matrix product: each operand needs one index of its own")));
    };
    if a == b || position(IterKind::Reduce, &factors[1].1) != Some(k) {
        return Err(no(format!("block `{label}` is not a matrix product: each operand needs one index of its own")));
    }
    // Rows are what the sum's first index is.
    let first = sum.1.first().is_some_and(|i| i.mentions(block.iters[a].var));
    let ([a, b], [x, y]) =
        if first { ([a, b], [factors[0].0, factors[1].0]) } else { ([b, a], [factors[1].0, factors[0].0]) };
    let buffers = [sum.0, x, y];
    for id in buffers {
        stage(func, id, id == sum.0 && block.init.is_none())
            .map_err(|why| no(format!("`{}`, which block `{label}` uses, {why}", func.buffer(id).name)))?;
    }
    Ok((block, buffers, [a, b, k]))
}

/// In words why a buffer cannot become a fragment; `apart` says that another block begins its sums.
fn stage(func: &Func, id: BufferId, apart: bool) -> Result<(), String> {
    let buffer = func.buffer(id);
    if buffer.scope != Scope::Local {
        return Err(format!("is {}: a warp holds a local copy of it (cache_read, cache_write)", buffer.scope.name()));
    }
    match dataflow::writers(func, id).len() {
        1 => Ok(()),
        2 if apart => Ok(()),
        n => Err(format!("is written by {n} blocks")),
    }
}

/// A buffer and where it is touched.
type At = (BufferId, Vec<Index>);

/// The sum of a block and the two factors that it multiplies, whatever types they are converted to.
fn product(block: &Block) -> Option<(At, [At; 2])> {
    let (store, BinOp::Add, Expr::Bin(BinOp::Mul, a, b)) = analyze::update(block)? else { return None };
    fn load(e: &Expr) -> Option<At> {
        match e {
            Expr::Load { buffer, indices, .. } => Some((*buffer, indices.clone())),
            Expr::Cast(_, inner) => load(inner),
            _ => None,
        }
    }
    let (a, b) = (load(a)?, load(b)?);
    (a.0 != b.0).then_some(((store.buffer, store.indices.clone()), [a, b]))
}

/// The program with the init of the sum before the loop, where it is not a block of its own yet.
fn without_init(func: &Func, block: &Block, l: &For, refusal: Refusal) -> Result<Func> {
    let name = func.block_name(block.name);
    if block.init.is_none() {
        return Ok(func.clone());
    }
    let args = Args::new().word("block", name).word("loop", func.var_name(l.var));
    let applied = (decompose_reduction::PRIMITIVE.apply)(func, &args).map_err(|e: Error| {
        refusal.broken(
            2,
            format!("the init of `{name}` cannot be separated from its reduction: {}", e.message()),
            &[(Node::Block(block.name), "this block")],
        )
    })?;
    Ok(applied.func)
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{apply, limit, refuses, refuses_on, steps};

    const GEMM: &str = "gemm 32x32x64 f16>f32>f32 NT";
    const MMA: &str = "mma.m16n8k16.f32.f16.f16";
    const STAGES: &str = "cache_read C A shared -> AA; cache_read C AA local -> AL
        cache_read C B shared -> BB; cache_read C BB local -> BL; cache_write C C local -> CL";
    const DIAGONAL: &str = "program diagonal
        input A f16[32, 64]
        input B f16[32, 64]
        C: output C[i 32] f32 = sum(k 64) f32(A[i, k])*f32(B[i, k])";
    const LOOPS: &str = "split i ? 16 -> yo ty; split j ? 2 8 -> xo tx xi; split k ? 2 16 -> ko kl ki
        reorder yo xo ty tx ko kl ki xi; reverse_compute_at CL tx; bind yo blockIdx.y; bind xo blockIdx.x
        bind ty threadIdx.y; bind tx threadIdx.x; compute_at AL kl; compute_at BL kl";
    const COPIES: &str =
        "compute_at AA ko -> a0 a1; split a1 ? 2 8 -> ao ax av; bind a0 threadIdx.y; bind ax threadIdx.x
        compute_at BB ko -> b0 b1; split b1 ? 2 8 -> bo bx bv; bind b0 threadIdx.y; bind bx threadIdx.x";

    fn threads() -> String {
        format!("{STAGES}\n{LOOPS}\n{COPIES}\n")
    }

    fn no(change: impl Fn(String) -> String, step: &str, code: &str, message: &str) {
        refuses(GEMM, &format!("{}\n{step}", change(threads())), code, message);
    }

    fn same(text: String) -> String {
        text
    }

    #[test]
    fn threads_become_warps() {
        let text = steps(GEMM, &format!("{}\ntensor_core ko = {MMA} -> w", threads()));
        assert!(text.contains("for w in 0..1 @warp") && text.contains("CL: fragment f32"), "{text}");
        let count = |what: &str| text.matches(what).count();
        assert_eq!((count("tensorize ldmatrix."), count(&format!("tensorize {MMA}"))), (2, 1), "{text}");
        // The cooperative copies stay as they are.
        assert!(text.contains("for ax in 0..2 @threadIdx.x") && !text.contains("for tx "), "{text}");
        // ldmatrix reads shared memory only: lanes load the fragment of a stage in global memory element by element.
        let global = STAGES.replace("cache_read C A shared -> AA; cache_read C AA local", "cache_read C A local");
        let copies = COPIES.lines().skip(1).collect::<String>();
        let text = steps(GEMM, &format!("{global}\n{LOOPS}\n{copies}\ntensor_core ko = {MMA}"));
        assert_eq!(text.matches("tensorize ldmatrix.").count(), 1, "{text}");
        // Another shape, and both inits: in the sum, and before it.
        steps(GEMM, &format!("{}\ntensor_core ko = mma.m16n8k8.f32.f16.f16", threads()));
        let apart = format!("{}\ndecompose_reduction C ko -> zero\ntensor_core ko = {MMA}", threads());
        assert!(steps(GEMM, &apart).contains("block zero"));
    }

    #[test]
    fn none_leaves_the_program_as_it_is() {
        assert_eq!(steps(GEMM, "tensor_core k = none"), steps(GEMM, "unroll k").replace(" unrolled", ""));
    }

    #[test]
    fn refusals() {
        let unknown = "there is no instruction `mma.m16n8k17.f32.f16.f16`; did you mean";
        no(same, "tensor_core ko", "tensor_core.1", "no instruction has been chosen yet");
        no(same, "tensor_core ko = mma.m16n8k17.f32.f16.f16", "tensor_core.1", unknown);
        no(same, "tensor_core ko = ldmatrix.m16n16.f16", "tensor_core.1", "`ldmatrix.m16n16.f16` does not multiply");
        no(same, "tensor_core kk = none", "step.loop", "there is no loop `kk`");
        let chosen = format!("tensor_core ko = {MMA}");
        no(same, &chosen.replace("ko", "av"), "tensor_core.2", "0 blocks sum over loop `av`");
        let shared = |t: String| t.replace("cache_read C AA local -> AL", "").replace("compute_at AL kl;", "");
        no(shared, &chosen, "tensor_core.2", "`AA`, which block `C` uses, is shared: a warp holds a local copy of it");
        no(
            same,
            &chosen.replace("ko", "kl"),
            "tensor_core.2",
            "the init of `C` cannot be separated from its reduction: ko, around kl",
        );
        let unbound = |t: String| t.replace("bind ty threadIdx.y; bind tx threadIdx.x;", "").replace(COPIES, "");
        no(unbound, &chosen, "tensor_core.3", "no loop around `ko` is bound to threads");
        let half = |t: String, axis: &str| {
            t.replace(&format!("bind {axis} "), &format!("split {axis} 8 ? -> {axis}_ {axis}r; bind {axis}_ "))
        };
        let few = |t: String| half(half(t, "a0"), "b0").replace("split i ? 16", "split i ? 8");
        no(few, &chosen, "tensor_core.3", "the 16 threads of a block are not whole warps of 32");
        let columns = |t: String| t.replace("bind ty threadIdx.y; bind tx threadIdx.x", "bind tx threadIdx.y");
        let columns = |t| columns(t).replace("bind a0 threadIdx.y;", "").replace("bind b0 threadIdx.y;", "");
        no(
            columns,
            &chosen,
            "tensor_core.3",
            "loop `ax` is bound to threadIdx.x, which no loop around the reduction is",
        );
        let between = |t: String| t.replace("reorder yo xo ty tx", "split tx 1 ? -> te tx; reorder yo xo ty te tx");
        no(between, &chosen, "tensor_core.3", "the loops bound to threads around `ko` are not directly nested");
    }

    #[test]
    fn refusals_of_nests_sizes_and_types() {
        let chosen = format!("tensor_core ko = {MMA}");
        let split = "compute_at AA ko -> a0 a1; split a1 ? 2 8 -> ao ax av; bind a0 threadIdx.y; bind ax threadIdx.x";
        let alone = |t: String| t.replace(split, "set_scope AA local; compute_at AA kl");
        no(
            alone,
            &chosen,
            "tensor_core.4",
            "block `AA` belongs to single threads, and accesses neither the accumulator",
        );
        let ragged = |size: &str, message: &str| {
            refuses(
                &format!("gemm {size} f16>f32>f32 NT"),
                &format!("{}\n{chosen}", threads()),
                "tensor_core.5",
                message,
            );
        };
        ragged("40x32x64", "`vi` of block `C_init` has 40 values, no multiple of the 16 of a warp's tile");
        ragged("32x40x64", "`vj` of block `C_init` has 40 values, no multiple of the 16 of a warp's tile");
        ragged("32x32x72", "`v1` of block `AL` has 72 values, no multiple of the 16 of a warp's tile");
        let mut func = apply(GEMM, &threads()).unwrap();
        for (block, iter) in [("AL", "v0"), ("C", "vi"), ("CL", "v0")] {
            limit(&mut func, block, iter, 20);
        }
        refuses_on(&func, &chosen, "tensor_core.5", "the condition `");
        let other = "tensor_core ko = mma.m16n8k16.f32.bf16.bf16";
        no(
            same,
            other,
            "tensor_core.6",
            "mma.m16n8k16.f32.bf16.bf16 does not multiply f16 by f16 into f32, the types of",
        );
        let half = |t: String| t.replace("split k ? 2 16", "split k ? 4 8");
        no(
            half,
            &chosen,
            "tensor_core.6",
            &format!("{MMA} does not divide 16 x 16 x 8, the tile of a warp, of block `C`"),
        );
        let opaque = "tensor_core ko = wmma.mma.row.col.m16n16k16.f32.f16.f16";
        assert!(steps(GEMM, &format!("{}\n{opaque}", threads())).contains("wmma.store.d.row"));
        let turned = opaque.replace("row.col", "col.col");
        no(
            same,
            &turned,
            "tensor_core.6",
            "wmma.mma.col.col.m16n16k16.f32.f16.f16 takes operands in other majors than those of block",
        );
        let uneven = |t: String| format!("{t}\nstorage_align AA 0 8 4");
        no(
            uneven,
            opaque,
            "tensor_core.6",
            "wmma.mma.row.col.m16n16k16.f32.f16.f16 finds no load for `AL`: it does not suit \
             wmma.load.a.row.m16n16k16.f16",
        );
        let onward = |t: String| t.replace("cache_write C C local -> CL", "set_scope c local");
        let relu = "program p\ninput A f16[32, 64]; input B f16[32, 64]\n\
            C: c[i 32, j 32] f32 = sum(k 64) f32(A[i, k]) * f32(B[j, k])\nCL: output R[i, j] f32 = max(c[i, j], 0.0)";
        refuses(
            relu,
            &format!("{}\n{opaque}", onward(threads())),
            "tensor_core.6",
            "wmma.mma.row.col.m16n16k16.f32.f16.f16 finds no store for the accumulator in block `CL`",
        );
        no(|t| t.replace(split, ""), &chosen, "tensor_core.7", "the program is not complete: AA is shared memory");
    }

    #[test]
    fn factors_with_one_index_in_common_are_no_matrices() {
        let why = "block `C` is not a matrix product: each operand needs one index of its own";
        refuses(DIAGONAL, &format!("tensor_core k = {MMA}"), "tensor_core.2", why);
    }
}
