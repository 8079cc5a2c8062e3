//! `specialize STAGES.. -> ROLE warps=W [regs=R]`: these stages run in warps of their own, and so do the blocks that fill registers for them alone.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: the text and its meaning. A placement.
//!
//! ```text
//! block A_s(..)            specialize A_s -> load warps=4    block A_s(..) role load
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::Result;
use crate::ir::print::Node;
use crate::ir::{Block, BufferId, Func, Role, RoleId, Scope, visit};
use crate::schedule::Args;
use crate::schedule::analyze::{BlockKind, kind};
use crate::schedule::dataflow::{block_reads, block_writes};
use crate::schedule::find::{block, new_role, refuse};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "specialize",
    about: "Runs the copies into staged buffers in separate producer warps.",
    example: "window_sum 4096\n\
              target sm_80\n\
              split i ? 8 128 -> i_0 i_t i_1\n\
              bind i_0 blockIdx.x\n\
              bind i_1 threadIdx.x\n\
              cache_read C A shared -> A_s\n\
              compute_at A_s i_t -> ax\n\
              pipeline i_t stages=3\n\
              specialize A_s -> load warps=1",
    signature: &[
        Parameter::place("stages", ParamKind::Blocks),
        Parameter::made("role", ParamKind::Role),
        Parameter::setting("warps", ParamKind::Int),
        Parameter::option("regs", ParamKind::Int),
    ],
    requires: &[
        "there are 1 to 16 warps",
        "a stated number of registers a thread is a multiple of 8 from 24 to 256",
        "no STAGE has a role yet",
        "each STAGE writes shared memory and is not a reduction, so that other warps can read it",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let (warps, regs) = (args.get_int("warps")?, args.find_int("regs"));
    let stages = args.get_words("stages")?.iter().map(|s| block(func, s)).collect::<Result<Vec<_>>>()?;
    let these: Vec<_> = stages.iter().map(|b| (Node::Block(b.name), "this block")).collect();
    if !(1..=16).contains(&warps) {
        return Err(refuse("specialize", 1, format!("{warps} warps are not a role"), func, &these)
            .help("warps=4 is one warpgroup, enough to issue copies"));
    }
    if let Some(n) = regs.filter(|n| !(24..=256).contains(n) || n % 8 != 0) {
        return Err(refuse("specialize", 2, format!("{n} registers a thread cannot be set"), func, &these)
            .help("a multiple of 8 from 24 to 256, such as regs=40"));
    }
    let name = new_role(func, args.names.first(), "role")?;
    let mut out = func.clone();
    let role = RoleId(out.roles.len() as u32);
    out.roles.push(Role { name: name.clone(), warps: warps as u32, regs: regs.map(|n| n as u32) });
    for stage in args.get_words("stages")? {
        let found = block(&out, stage)?;
        let id = found.name;
        if found.role.is_some() {
            let message = format!("block `{stage}` already has a role");
            return Err(refuse("specialize", 3, message, func, &[(Node::Block(id), "this block")])
                .help("name all blocks of a role in one step"));
        }
        visit::change_block(&mut out.body, id, &mut |b| b.role = Some(role));
    }
    while let Some(id) =
        visit::blocks(&out.body).into_iter().find(|b| b.role.is_none() && serves(&out, b, role)).map(|b| b.name)
    {
        visit::change_block(&mut out.body, id, &mut |b| b.role = Some(role));
    }
    Ok(Applied { func: out, names: vec![name] })
}

/// Whether a block fills registers that blocks of a role alone read.
fn serves(func: &Func, block: &Block, role: RoleId) -> bool {
    let written = block_writes(block);
    let in_registers = |b: &BufferId| matches!(func.buffer(*b).scope, Scope::Local | Scope::Fragment);
    let readers: Vec<&Block> = visit::blocks(&func.body)
        .into_iter()
        .filter(|other| other.name != block.name && block_reads(other).iter().any(|b| written.contains(b)))
        .collect();
    written.iter().all(in_registers) && !readers.is_empty() && readers.iter().all(|b| b.role == Some(role))
}

/// What a stage with a role promises; asked after every step.
pub fn check(func: &Func, stage: &Block) -> Result<()> {
    let shared = block_writes(stage).iter().all(|b| func.buffer(*b).scope == Scope::Shared);
    let suits = shared || stage.role.is_some_and(|role| serves(func, stage, role));
    if suits && kind(func, stage) == BlockKind::Map {
        return Ok(());
    }
    let message = format!("block `{}` does not fill shared memory", func.block_name(stage.name));
    Err(refuse("specialize", 4, message, func, &[(Node::Block(stage.name), "this block")])
        .help("cache_read into shared makes a block that can have a role"))
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{apply, refuses};

    const GEMM: &str = "gemm 16x16x64 f16>f32>f16 NT";
    const STAGE: &str = "cache_read mma A shared -> A_s; ";

    #[test]
    fn a_role_is_made() {
        let func = apply(GEMM, &format!("{STAGE}specialize A_s -> load warps=4 regs=40")).unwrap();
        assert_eq!((func.roles[0].name.as_str(), func.roles[0].warps, func.roles[0].regs), ("load", 4, Some(40)));
        assert!(func.find_block("A_s").unwrap().role.is_some());
    }

    #[test]
    fn refusals() {
        let no = |more: &str, code: &str, message: &str| refuses(GEMM, &format!("{STAGE}{more}"), code, message);
        no("specialize A_s -> load warps=0", "specialize.1", "0 warps are not a role");
        no("specialize A_s -> load warps=4 regs=41", "specialize.2", "41 registers a thread cannot be set");
        let twice = "specialize A_s -> a warps=1; specialize A_s -> b warps=1";
        no(twice, "specialize.3", "block `A_s` already has a role");
        no("specialize mma -> a warps=1", "specialize.4", "block `mma` does not fill shared memory");
        no(
            "specialize A_s -> a warps=1; set_scope A_s local",
            "specialize.4",
            "block `A_s` does not fill shared memory",
        );
        let same = "cache_read mma B shared -> B_s; specialize A_s -> a warps=1; specialize B_s -> a warps=1";
        no(same, "step.names", "the name `a` is in use");
    }
}
