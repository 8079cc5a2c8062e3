//! What the PTX looks like: instructions, launch bounds, comments.

use super::handmade;
use warploom::codegen::compile;
use warploom::target::Target;

#[test]
fn every_chip_compiles_every_kernel() {
    for lowered in handmade::all() {
        for target in Target::ALL {
            let kernels = compile(&lowered, &target).unwrap();
            assert!(kernels.text.contains(&format!(".target {target}")), "{}", kernels.text);
            assert_eq!(kernels.kernels[0].entry, lowered.name);
        }
    }
}
