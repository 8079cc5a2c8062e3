//! What recommended products and those of each kind become on every chip: goldens of what their PTX consists of, through
//! both versions of ptxas, without a spill.

use super::{MUST_USE, instruction};
use crate::cases::{consists_of, golden_of_chips};
use crate::ptxas::{assemble, tools};
use warploom::codegen::compile;
use warploom::error::Code;
use warploom::gemm::{self, Kind};
use warploom::lower::lower;
use warploom::te::Layout;
use warploom::{DType, Gemm, Result, Schedule, Target};

/// Every chip that compiles to its own PTX.
fn chips() -> impl Iterator<Item = Target> {
    Target::ALL.into_iter().filter(|t| !t.accelerated)
}

/// What a kind of steps, or the recommended ones, come to on each chip.
fn on_every_chip(name: &str, gemm: &Gemm, steps: &dyn Fn(&Gemm, &Target) -> Result<Schedule>) {
    let tools = tools();
    let part = |target: &Target| {
        let found = match steps(gemm, target) {
            Ok(schedule) => {
                let lowered = schedule.scheduled().and_then(|func| lower(&func, target));
                let lowered = lowered.unwrap_or_else(|e| panic!("{name} for {target}: {e}"));
                assemble(&tools, &lowered, target, true).unwrap_or_else(|e| panic!("{name} for {target}: {e}"));
                let by = instruction(&lowered).unwrap_or("ordinary code");
                let must = MUST_USE.iter().rfind(|row| name.starts_with(row.0) && row.1 <= target.sm);
                assert!(must.is_none_or(|row| by.starts_with(row.2)), "{name} for {target}: {by}");
                let kernels = compile(&lowered, target).unwrap_or_else(|e| panic!("{name} for {target}: {e}"));
                format!("by {by}\n{}", consists_of(&kernels.text))
            }
            Err(e) if e.code() == Code::GemmKind || e.code() == Code::AdmitType => format!("{}\n", e.message()),
            Err(e) => panic!("{name} for {target}: {e}"),
        };
        format!("{target}: {found}\n")
    };
    golden_of_chips(
        &format!("products/{}.txt", name.replace(['>', '*', ' '], "_")),
        &chips().collect::<Vec<_>>(),
        part,
    );
}

const TYPES: [DType; 7] = [DType::F16, DType::Bf16, DType::S8, DType::S4, DType::Tf32, DType::F64, DType::E4m3];

#[test]
fn recommended_cases_come_to_the_instructions_of_each_chip() {
    let layouts = [Layout::NT, Layout::NN, Layout::TN, Layout::NT, Layout::NN, Layout::TT, Layout::NT];
    for (dtype, layout) in TYPES.into_iter().zip(layouts) {
        let gemm = Gemm::new(2048, 2048, 2048).of(dtype).layout(layout);
        let types = super::table::TYPES.into_iter().find(|t| t.0 == dtype).unwrap().name();
        on_every_chip(&format!("{types} {}", layout.name()), &gemm, &gemm::recommend);
    }
}

#[test]
fn cases_of_each_kind_come_to_the_instructions_of_each_chip() {
    for kind in [Kind::Wmma, Kind::Mma] {
        for (dtype, layout) in [DType::F16, DType::S8, DType::S4].into_iter().zip([Layout::NN, Layout::NT, Layout::NT])
        {
            let gemm = Gemm::new(1024, 1024, 1024).of(dtype).layout(layout);
            let name = format!("{} {dtype} {}", kind.name(), layout.name());
            on_every_chip(&name, &gemm, &|gemm, target| kind.schedule(gemm, target));
        }
    }
}
