//! `launch LOOP [min_blocks=N] [grid_dependency=N] [concurrent=1] [l2_prefetch=1]`: how the kernel of LOOP is compiled and launched.
//!
//! `min_blocks` is the number of resident blocks per multiprocessor that registers are allocated for. With `grid_dependency=1` the
//! kernel may begin while the previous kernel in the stream runs, and waits for it before its first access to global memory; with 2
//! the next kernel may begin early, too. With `concurrent=1` it waits after its last access instead, so it runs concurrently
//! with the preceding kernels; it and they must not access what the other writes. With `l2_prefetch=1` the kernel prefetches its inputs to L2 before
//! it waits.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: the text and its meaning. A placement on the kernel, not on the loop.
//!
//! ```text
//! func vec_add(..)                launch i min_blocks=2    func vec_add(..)
//!   for i in 0..8 @blockIdx.x                                launch i min_blocks=2
//!                                                            for i in 0..8 @blockIdx.x
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::Result;
use crate::ir::print::Node;
use crate::ir::{Func, GridDependency, Launch, LaunchOptions};
use crate::schedule::Args;
use crate::schedule::find::{loop_, refuse};

/// The options with the values that each takes.
pub const OPTIONS: [(&str, std::ops::RangeInclusive<i64>, &str); 4] = [
    ("min_blocks", 1..=32, "1 to 32"),
    ("grid_dependency", 1..=2, "1 (this kernel begins early) or 2 (the next kernel, too)"),
    ("concurrent", 1..=1, "1"),
    ("l2_prefetch", 1..=1, "1"),
];

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "launch",
    about: "Sets how the kernel of a loop is compiled and launched.",
    example: "vec_add 1024\n\
              target sm_90\n\
              split i ? 128 -> i_0 i_1\n\
              bind i_0 blockIdx.x\n\
              bind i_1 threadIdx.x\n\
              launch i_0 min_blocks=2 grid_dependency=2",
    signature: &[
        Parameter::place("loop", ParamKind::Loop),
        Parameter::option("min_blocks", ParamKind::Int),
        Parameter::option("grid_dependency", ParamKind::Int),
        Parameter::option("concurrent", ParamKind::Int),
        Parameter::option("l2_prefetch", ParamKind::Int),
    ],
    requires: &[
        "at least one value is stated, and each is in its range: min_blocks 1..=32, grid_dependency 1 or 2, concurrent 1, l2_prefetch 1",
        "no other `launch` of the same kernel states the value",
        "LOOP names the kernel: no later step replaces LOOP",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let l = loop_(func, args.get_word("loop")?)?;
    let no = |message: String| refuse("launch", 1, message, func, &[(Node::Loop(l.var), "this loop names the kernel")]);
    for (name, range, takes) in OPTIONS {
        if let Some(value) = args.find_int(name).filter(|value| !range.contains(value)) {
            return Err(no(format!("{value} is not in the range of {name}")).help(format!("{name} takes {takes}")));
        }
    }
    let options = LaunchOptions {
        min_blocks: args.find_int("min_blocks").map(|n| n as u32),
        grid_dependency: args.find_int("grid_dependency").map(|n| match n {
            1 => GridDependency::Waits,
            _ => GridDependency::Releases,
        }),
        concurrent: args.find_int("concurrent").is_some(),
        l2_prefetch: args.find_int("l2_prefetch").is_some(),
    };
    if options == LaunchOptions::default() {
        let name = func.var_name(l.var);
        return Err(no("no value is stated".into()).help(format!("such as `launch {name} min_blocks=2`")));
    }
    let mut out = func.clone();
    out.launches.push(Launch { of: l.var, options });
    Ok(out.into())
}

/// Refuses a step that replaces a loop which names a kernel. `before` has the loop, and is what the error shows.
pub fn kept(before: &Func, after: &Func) -> Result<()> {
    let is_of = |launch: &Launch| after.body.iter().any(|nest| after.launches_of(nest).contains(&launch));
    let Some(launch) = after.launches.iter().find(|launch| !is_of(launch)) else { return Ok(()) };
    let (name, step) = (after.var_name(launch.of), launch.text(after));
    let message = format!("loop `{name}`, which names the kernel in `{step}`, would be replaced");
    let nodes = [(Node::Loop(launch.of), "this loop names the kernel")];
    Err(refuse("launch", 3, message, before, &nodes)
        .help("put `launch` after the step, and name a loop that the step makes"))
}

/// What the launches of a program promise; asked after every step.
pub fn check(func: &Func) -> Result<()> {
    for nest in &func.body {
        let launches = func.launches_of(nest);
        for (n, later) in launches.iter().enumerate() {
            for earlier in &launches[..n] {
                twice(func, earlier, later)?;
            }
        }
    }
    Ok(())
}

fn twice(func: &Func, earlier: &Launch, later: &Launch) -> Result<()> {
    let before = earlier.options.stated();
    let both = later.options.stated().into_iter().find_map(|(name, _)| before.iter().find(|(n, _)| *n == name));
    let Some((name, value)) = both else { return Ok(()) };
    let message = format!("the kernel already has {name}={value} by `{}`", earlier.text(func));
    let nodes = [(Node::Loop(later.of), "this loop names the kernel"), (Node::Loop(earlier.of), "so does this loop")];
    let nodes = if earlier.of == later.of { &nodes[..1] } else { &nodes };
    Err(refuse("launch", 2, message, func, nodes).help("state each value once for a kernel"))
}

#[cfg(test)]
mod tests {
    use super::{OPTIONS, PRIMITIVE};
    use crate::schedule::testing::{apply, refuses, steps};

    #[test]
    fn every_option_is_kept_and_printed() {
        let text = steps("vec_add 8", "launch i min_blocks=2; launch i l2_prefetch=1 grid_dependency=1");
        let lines = "  launch i min_blocks=2\n  launch i grid_dependency=1 l2_prefetch=1\n  for i in 0..8\n";
        assert!(text.contains(lines), "{text}");
        let func = apply("vec_add 8", "launch i min_blocks=2 grid_dependency=2 concurrent=1 l2_prefetch=1").unwrap();
        let stated: Vec<&str> = func.launches[0].options.stated().into_iter().map(|(name, _)| name).collect();
        assert_eq!(stated, OPTIONS.map(|(name, ..)| name));
        assert_eq!(stated, PRIMITIVE.signature[1..].iter().map(|p| p.name).collect::<Vec<_>>());
    }

    #[test]
    fn a_launch_is_of_the_kernel_whatever_becomes_of_its_other_loops() {
        for later in ["bind i blockIdx.x", "split j ? 4", "fuse j k -> f", "reorder k i"] {
            let func = apply("gemm 8x8x8 f32 NN", &format!("launch i min_blocks=2; {later}")).unwrap();
            let launches = func.launches_of(&func.body[0]);
            assert_eq!(launches.len(), 1, "{later}");
            assert_eq!(launches[0].options.min_blocks, Some(2));
        }
    }

    #[test]
    fn refusals() {
        let no = |steps: &str, code: &str, message: &str| refuses("gemm 8x8x8 f32 NN", steps, code, message);
        no("launch i", "launch.1", "no value is stated");
        no("launch i min_blocks=33", "launch.1", "33 is not in the range of min_blocks");
        no("launch i grid_dependency=0", "launch.1", "0 is not in the range of grid_dependency");
        no("launch i l2_prefetch=2", "launch.1", "2 is not in the range of l2_prefetch");
        let before = "the kernel already has min_blocks=2 by `launch i min_blocks=2`";
        no("launch i min_blocks=2; launch k min_blocks=2", "launch.2", before);
        no("launch i l2_prefetch=1; launch i l2_prefetch=1", "launch.2", "the kernel already has l2_prefetch=1");
        let replaced = "loop `i`, which names the kernel in `launch i min_blocks=2`, would be replaced";
        no("launch i min_blocks=2; split i ? 4", "launch.3", replaced);
        no("launch i min_block=2", "step.word", "`launch` has no option `min_block`; did you mean `min_blocks`?");
        no("launch i min_blocks=2 min_blocks=2", "step.word", "`min_blocks` is stated twice");
        no("launch q min_blocks=2", "step.loop", "there is no loop `q`");
        no("annotate i min_blocks 2", "step.word", "`min_blocks` is not one of unroll_limit");
    }
}
