//! Pairs of bytes in LLVM IR, before and after.

use super::pairs::as_words;
use inkwell::context::Context;
use inkwell::memory_buffer::MemoryBuffer;

/// A function of an address, with pairs or without.
fn replaced(body: &str) -> String {
    let text = format!("define void @f(ptr %p, i1 %c, i8 %b, i32 %n) {{\nentry:\n{body}}}\n");
    let context = Context::create();
    let buffer = MemoryBuffer::create_from_memory_range_copy(text.as_bytes(), "pairs");
    let module = context.create_module_from_ir(buffer).unwrap_or_else(|e| panic!("{e}: {text}"));
    as_words(&module).unwrap_or_else(|e| panic!("{e:?}: {text}"));
    module.verify().unwrap_or_else(|e| panic!("{e}: {}", module.print_to_string()));
    module.print_to_string().to_string()
}

#[test]
fn a_pair_in_a_loop_is_one_word() {
    let text = replaced(
        "  br label %loop
        loop:
          %x = phi <2 x i8> [ <i8 1, i8 poison>, %entry ], [ %y, %loop ]
          %l = load <2 x i8>, ptr %p, align 1
          %y = select i1 %c, <2 x i8> %x, <2 x i8> %l
          br i1 %c, label %loop, label %after
        after:
          store <2 x i8> %y, ptr %p, align 2
          ret void\n",
    );
    for part in
        ["phi i16 [ 1, %entry ]", "load i16, ptr %p, align 1", "select i1 %c, i16", "store i16", "ptr %p, align 2"]
    {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    assert!(!text.contains("<2 x i8>"), "{text}");
}

#[test]
fn lanes_are_joined_where_the_pair_was() {
    let text = replaced(
        "  %one = insertelement <2 x i8> poison, i8 %b, i64 1
          br label %next
        next:
          %both = insertelement <2 x i8> %one, i8 7, i64 0
          %wide = shufflevector <2 x i8> %both, <2 x i8> %one, <4 x i32> <i32 1, i32 poison, i32 0, i32 3>
          store <4 x i8> %wide, ptr %p
          store <2 x i8> %both, ptr %p
          ret void\n",
    );
    assert!(!text.contains("<2 x i8>") && text.contains("store i16") && text.contains("store <4 x i8>"), "{text}");
}

/// An instruction that has no form in lanes has its pair in its own block.
#[test]
fn other_instructions_keep_their_pairs_in_their_block() {
    let text = replaced(
        "  %x = load <2 x i8>, ptr %p, align 2
          br label %next
        next:
          %kept = freeze <2 x i8> %x
          %lane = extractelement <2 x i8> %x, i32 %n
          br label %last
        last:
          %first = extractelement <2 x i8> %kept, i64 0
          store i8 %first, ptr %p
          store i8 %lane, ptr %p
          store <2 x i8> %kept, ptr %p
          ret void\n",
    );
    let [_, middle, end] = text.split("br label").collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert!(middle.contains("freeze <2 x i8>") && middle.contains("insertelement <2 x i8>"), "{text}");
    assert!(!end.split_once('\n').unwrap().1.contains("<2 x i8>") && text.contains("load i16"), "{text}");
}

#[test]
fn a_constant_pair_is_a_constant_word() {
    let text = replaced("  store <2 x i8> <i8 1, i8 -2>, ptr %p, align 2\n  ret void\n");
    assert!(text.contains("store i16 -511, ptr %p, align 2"), "{text}");
}
