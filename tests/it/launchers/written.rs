//! What is written: the launchers that are part of the repository, and units that no launcher is written for.

use super::{add, example, rows, unit};
use crate::cases::golden;
use warploom::Kernels;
use warploom::artifact::launcher::{Unit, c, rust_cudarc, rust_warploom};
use warploom::error::Code;
use warploom::kernel::{Cubin, Param, TensorMap};

/// `examples/launch/cudarc` and `tests/shipped` compile and run these.
#[test]
fn the_launchers_of_the_examples_are_what_is_written() {
    let gemm = [example("worked_example", &[256, 256, 64]), example("mma_f16", &[128, 128, 64])];
    let split = [example("split_k", &[64, 64, 64])];
    let files = |name: &str, kernels: &[Kernels]| {
        let ptx: Vec<String> = kernels.iter().map(|k| format!("{name}_{}.ptx", k.target)).collect();
        let units: Vec<Unit> =
            kernels.iter().zip(&ptx).map(|(kernels, ptx)| Unit { kernels, ptx, cubin: None }).collect();
        let folder = "../../examples/launch/kernels";
        for unit in &units {
            golden(&format!("{folder}/{}", unit.ptx), unit.kernels.ptx());
        }
        golden(&format!("{folder}/{name}_cudarc.rs"), &rust_cudarc(name, &units).unwrap());
        golden(&format!("{folder}/{name}_warploom.rs"), &rust_warploom(name, &units).unwrap());
    };
    files("gemm", &gemm);
    files("split", &split);
    let ranges = [rows("1..=64", "sm_80"), rows("65..=256", "sm_90a")];
    let units: Vec<Unit> = ranges
        .iter()
        .zip(["rows_64.ptx", "rows_256.ptx"])
        .map(|(kernels, ptx)| Unit { kernels, ptx, cubin: None })
        .collect();
    let folder = "../../examples/launch/kernels";
    units.iter().for_each(|unit| golden(&format!("{folder}/{}", unit.ptx), unit.kernels.ptx()));
    golden(&format!("{folder}/rows_cudarc.rs"), &rust_cudarc("rows", &units).unwrap());
    golden(&format!("{folder}/rows_warploom.rs"), &rust_warploom("rows", &units).unwrap());
    let files = c("vec_add", &[unit(&add(1024, "sm_80"))]).unwrap();
    golden("launchers/vec_add.h", &files.header);
    golden("launchers/vec_add.c", &files.source);
}

/// A launcher in C holds machine code, one in Rust includes it; both say which devices run it.
#[test]
fn machine_code_is_part_of_a_launcher() {
    let mut kernels = add(1024, "sm_86");
    let code = [&b"\x7fELF\x02\0\x007"[..], &[0xAB; 1500]].concat();
    kernels.cubin = Some(Cubin::new("sm_86", "ptxas 13.0", code));
    let with = Unit { cubin: Some("vec_add.cubin"), ..unit(&kernels) };
    let source = c("vec_add", &[with]).unwrap().source;
    let pieces = [format!(r#""\177ELF\2\0\0007{}""#, r"\253".repeat(992)), format!(r#""{}""#, r"\253".repeat(508))];
    let pieces = format!("static const char *const cubin_0[] = {{\n    {},\n    {},\n}};", pieces[0], pieces[1]);
    assert!(source.contains(&pieces), "{source}");
    assert!(source.contains("    {0, 86, 9999, 86, 89, cubin_0, 1508, ptx_0, "), "{source}");
    let cudarc = rust_cudarc("vec_add", &[with]).unwrap();
    assert!(cudarc.contains("cubin: Some(((86, 89), include_bytes!(\"vec_add.cubin\"))),"), "{cudarc}");
    let own = rust_warploom("vec_add", &[with]).unwrap();
    let made = "    let code = include_bytes!(\"vec_add.cubin\").to_vec();\n    \
                made.cubin = Some(kernel::Cubin::new(\"sm_86\", \"ptxas 13.0\", code));\n";
    assert!(own.contains(made), "{own}");
    // Without the name of a file the driver compiles the PTX.
    for text in [c("vec_add", &[unit(&kernels)]).unwrap().source, rust_cudarc("vec_add", &[unit(&kernels)]).unwrap()] {
        assert!(!text.contains("cubin_0") && !text.contains("include_bytes"), "{text}");
    }
}

/// The message of the refusal that all launchers have in common.
fn refusal(name: &str, units: &[Unit<'_>]) -> String {
    let refused = [c(name, units).map(drop), rust_cudarc(name, units).map(drop), rust_warploom(name, units).map(drop)]
        .map(|written| written.unwrap_err());
    assert!(refused.iter().all(|error| error.code() == Code::ArtifactLauncher && *error == refused[0]), "{refused:?}");
    refused[0].message().to_string()
}

#[test]
fn units_of_two_programs_have_no_launcher() {
    let small = add(1024, "sm_80");
    assert_eq!(refusal("none", &[]), "the launcher none has no kernels to launch");
    assert_eq!(
        refusal("Sum", &[unit(&small)]),
        "`Sum` cannot be the name of a launcher: it is a module in Rust and a prefix in C"
    );
    assert_eq!(
        refusal("sum", &[unit(&small), unit(&add(4096, "sm_80")), unit(&small)]),
        "two units of sum are for sm_80 and the same shapes"
    );
    let mut other = add(4096, "sm_80");
    other.args[1].name = "D".into();
    assert_eq!(
        refusal("sum", &[unit(&small), unit(&other)]),
        "units of one launcher take the same arguments: vec_add for sm_80 takes A f32 of 1 dimension (read), B f32 of 1 dimension \
         (read), C f32 of 1 dimension (written), and vec_add for sm_80 takes A f32 of 1 dimension (read), D f32 of 1 dimension \
         (read), C f32 of 1 dimension (written)"
    );
    let changed = |change: fn(&mut Kernels)| {
        let mut kernels = small.clone();
        change(&mut kernels);
        refusal("sum", &[unit(&kernels)])
    };
    assert_eq!(changed(|k| k.target = "gfx90a".into()), "`gfx90a` is not the name of a chip");
    assert_eq!(
        changed(|k| k.args.clear()),
        "the program vec_add has no arguments, so nothing that it computes can be seen"
    );
    assert_eq!(changed(|k| k.kernels[0].grid[1] = 0), "kernel vec_add has a launch extent of zero");
    let missing = "kernel vec_add takes a parameter that is not there";
    assert_eq!(changed(|k| k.kernels[0].params[0] = Param::Workspace(0)), missing);
    let map = |k: &mut Kernels| {
        let map = TensorMap::new(Param::Arg(0), warploom::DType::F32, [&[1024], &[1], &[512]], 0, 0);
        k.kernels[0].params[0] = Param::TensorMap(map);
    };
    let limits = "1 to 5 dimensions, extents and strides of 1 to 2^40, boxes of 1 to 256";
    assert_eq!(changed(map), format!("kernel vec_add of vec_add has a tensor map outside {limits}"));
    let path = Unit { ptx: "../vec_add.ptx", ..unit(&small) };
    let cubin = Unit { cubin: Some("vec_add.cubin"), ..unit(&small) };
    assert_eq!(refusal("sum", &[cubin]), "vec_add.cubin is to have the cubin of sum, and the program has none");
    assert_eq!(refusal("sum", &[path]), "`../vec_add.ptx` is no plain name of a file beside the launcher");
}

/// Ranges of one launcher do not overlap, and arguments have the same sizes in all units; a unit of fixed shapes is one more.
#[test]
fn ranges_of_a_launcher_follow_one_another() {
    let (few, many, one) = (rows("1..=64", "sm_80"), rows("65..=256", "sm_80"), rows("64", "sm_80"));
    for units in [vec![unit(&few), unit(&many)], vec![unit(&many), unit(&one), unit(&few)]] {
        let files = c("gemm", &units).unwrap();
        assert!(
            files.header.contains("struct CUstream_st *stream, int64_t m,\n        unsigned long long a"),
            "{}",
            files.header
        );
        assert!(files.header.contains("a [1..=64, 64], strides [64, 1]"), "{}", files.header);
        assert!(rust_warploom("gemm", &units).is_ok() && rust_cudarc("gemm", &units).is_ok());
    }
    let message = refusal("gemm", &[unit(&few), unit(&rows("64..=128", "sm_90a"))]);
    assert_eq!(message, "units of gemm are for the ranges 1..=64 and 64..=128, which overlap");
    let mut other = rows("65..=128", "sm_80");
    other.sizes[0].name = "N".into();
    assert_eq!(refusal("gemm", &[unit(&few), unit(&other)]), "units of one launcher have other sizes for argument A");
    let mut odd = one.clone();
    odd.args[2].shape[0] = 65;
    assert_eq!(refusal("gemm", &[unit(&few), unit(&odd)]), "gemm has arrays of several M");
}

/// The launcher for the runtime of this crate has tensor maps as they are, so a map that the driver has no words for is left to it.
#[test]
fn tensor_maps_without_words_have_no_launcher() {
    let mut kernels = add(1024, "sm_80");
    let map = TensorMap::new(Param::Arg(0), warploom::DType::F32, [&[1024], &[1], &[64]], 48, 0);
    kernels.kernels[0].params[0] = Param::TensorMap(map);
    for refused in [c("sum", &[unit(&kernels)]).map(drop), rust_cudarc("sum", &[unit(&kernels)]).map(drop)] {
        assert_eq!(refused.unwrap_err().message(), "a tensor map with a swizzle of 48 bytes");
    }
}
