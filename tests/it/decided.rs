//! Legality is decided: examples and recommended schedules are proved, what is not decided is refused or shown as tested, and of random
//! steps few are not decided.

use super::schedules::verdicts;
use std::fs;
use std::path::Path;
use warploom::error::Code;
use warploom::gemm::{self, Gemm};
use warploom::ir::verify::Assurance;
use warploom::lower::lower;
use warploom::te::Layout;
use warploom::{DType, Schedule, Target, compile};

/// Whether `(i + 1)^2 == 2 * (j + 1)^2` has a solution is not decided: no factor of its products has few values.
const UNDECIDED: &str = "program p
input A f32[8]
output B[i 262144, j 262144] f32 = select((i + 1)*(i + 1) == (j + 1)*(j + 1)*2, A[i + 8], 0)
target sm_80
bind i blockIdx.x
";

#[test]
fn what_is_not_decided_is_refused_or_shown_as_tested() {
    let schedule = Schedule::parse(UNDECIDED).unwrap();
    let refused = compile(&schedule).unwrap_err();
    assert_eq!(refused.code(), Code::VerifyBounds, "{refused}");
    assert!(refused.message().starts_with("it is not proved that index"), "{refused}");
    assert!(refused.to_string().contains("--allow-tested"), "{refused}");
    let allowed = schedule.allow_tested();
    compile(&allowed).unwrap();
    let assurance = allowed.assurance().unwrap();
    assert_eq!(assurance.tested.len(), 1, "{assurance}");
    assert!(assurance.tested[0].points > 4000, "{assurance}");
    assert!(assurance.to_string().contains("\nTested(4"), "{assurance}");
}

#[test]
fn a_tested_claim_is_refused_where_a_point_breaks_it() {
    let text = UNDECIDED.replace("== (j + 1)*(j + 1)*2", "!= (j + 1)*(j + 1)*2");
    let refused = Schedule::parse(&text).map(Schedule::allow_tested).and_then(|s| compile(&s)).unwrap_err();
    assert!(refused.message().contains("but dimension 0 of A has 8 elements"), "{refused}");
}

/// What is known of a schedule's legality, races within its kernels included.
fn assurance(schedule: Schedule) -> warploom::Result<Assurance> {
    let schedule = schedule.allow_tested();
    let func = schedule.scheduled()?;
    lower(&func, &schedule.target)?.assurance(&func)
}

#[test]
fn every_example_is_proved() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap().flatten().filter(|e| e.path().extension().is_some_and(|e| e == "loom")) {
        let schedule = Schedule::parse(&fs::read_to_string(entry.path()).unwrap()).unwrap();
        let stated = schedule.program.reducers.len();
        let assurance = assurance(schedule).unwrap_or_else(|e| panic!("{}: {e}", entry.path().display()));
        // What a program states of its reducers is tried alone; everything else is proved.
        let tried = assurance.tested.iter().filter(|t| t.code == Code::TeReducer).count();
        let all_proved = assurance.proved > 0 && assurance.tested.len() == tried && tried == stated;
        assert!(all_proved, "{}: {assurance}", entry.path().display());
        count += 1;
    }
    assert!(count > 50, "{count}");
}

#[test]
fn recommended_schedules_are_proved() {
    let mut rng = fastrand::Rng::with_seed(12);
    let mut count = 0;
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::S8, DType::F64] {
        for layout in Layout::ALL {
            for target in [Target::sm_80(), Target::sm_90(), Target::sm_90a()] {
                let sizes = [0; 3].map(|_| [1, 17, 128, 1000, 4096][rng.usize(..5)]);
                let gemm = Gemm::new(sizes[0], sizes[1], sizes[2]).layout(layout).of(dtype);
                let Ok(schedule) = gemm::recommend(&gemm, &target) else { continue };
                let assurance = assurance(schedule).unwrap_or_else(|e| panic!("{dtype} {layout:?} {sizes:?}: {e}"));
                assert!(assurance.tested.is_empty(), "{dtype} {layout:?} {sizes:?}: {assurance}");
                count += 1;
            }
        }
    }
    assert!(count > 40, "{count}");
}

/// After each group of random steps the program is verified: what is refused only because it is not decided is at most one of a
/// hundred of what is legal.
#[test]
fn of_random_steps_few_are_not_decided() {
    let [proved, undecided] = verdicts(0..300);
    assert!(proved > 2000, "{proved}");
    assert!(100 * undecided <= proved + undecided, "{undecided} not decided, {proved} proved");
}
