//! The `warploom` command; everything is in [`warploom::cli`].

fn main() {}
