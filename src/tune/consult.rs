//! Recommended steps from records, where one is of the program and the chip.

use super::records::{NO_DEVICE, Record};
use crate::error::Result;
use crate::gemm::{self, Gemm};
use crate::ir::Func;
use crate::loom::Schedule;
use crate::target::Target;

/// The best schedule of the first record of the program and the chip. Records of times are searched before records of predicted cycles.
///
/// # Errors
/// What [`Schedule::parse`] refuses of the record's text.
pub fn recorded(program: &Func, target: &Target, records: &[Record]) -> Result<Option<Schedule>> {
    let of = |is_timed: bool| {
        let is_kind = move |r: &&Record| (r.header.device != NO_DEVICE) == is_timed;
        records.iter().filter(is_kind).find(|r| r.is_of(program, target) && r.winner().is_some())
    };
    of(true).or_else(|| of(false)).map(Record::schedule).transpose()
}

/// As [`gemm::recommend`], with the best schedule of a record of the GEMM and the chip where there is one.
///
/// # Errors
/// Those of [`gemm::recommend`], and what [`Schedule::parse`] refuses of the record's text.
pub fn recommend(gemm: &Gemm, target: &Target, records: &[Record]) -> Result<Schedule> {
    let found = recorded(&gemm.program()?, target, records)?;
    found.map_or_else(|| gemm::recommend(gemm, target), Ok)
}

/// As [`Schedule::parse`], for another chip where one is given. A line `recommend` with no step before it becomes the steps of a record
/// of the program and the chip where there is one.
///
/// # Errors
/// Those of [`Schedule::parse`], for the text and for that of the record.
pub fn parse(text: &str, target: Option<Target>, records: &[Record]) -> Result<Schedule> {
    Schedule::parse_with(text, target, &mut |before| {
        let found = match before.steps.is_empty() {
            true => recorded(&before.program, &before.target, records)?,
            false => None,
        };
        let recommended = || gemm::recommend_for(&before.scheduled()?, &before.target);
        found.map_or_else(recommended, Ok).map(|schedule| schedule.steps)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::records::{Header, Run, Trial};
    use crate::tune::{Found, Status};

    fn record(text: &str) -> Record {
        let s = Schedule::parse(text).unwrap();
        let run = Run { space: String::new(), seed: 1, compiler: String::new(), driver: None, clocks: None };
        let header = Header::new(&s.program, &s.target, NO_DEVICE, run);
        let found = Found { cycles: Some(1.0), ..Found::new(Status::Ok) };
        let trial = Trial { name: "only".into(), found, schedule: s.to_string() };
        Record { header, trials: vec![trial], runoffs: Vec::new() }
    }

    #[test]
    fn a_record_of_the_program_and_the_chip_replaces_the_recommended_steps() {
        let steps = "split i ? 4 -> a b\nbind a blockIdx.x\nbind b threadIdx.x\n";
        let records = [record(&format!("gemm 64x64x64 f32 NN\ntarget sm_80\n{steps}"))];
        let of = |m, target| recommend(&Gemm::new(m, 64, 64), &target, &records).unwrap().to_string();
        assert!(of(64, Target::sm_80()).ends_with(steps));
        assert!(!of(32, Target::sm_80()).contains("split i ? 4 -> a b"));
        assert!(!of(64, Target::sm_90()).contains("split i ? 4 -> a b"));
        let parsed = |text: &str, target| parse(text, target, &records).unwrap().to_string();
        let line = "gemm 64x64x64 f32 NN\ntarget sm_80\nrecommend; unroll k";
        assert!(parsed(line, None).ends_with(&format!("{steps}unroll k\n")), "{}", parsed(line, None));
        assert!(!parsed("gemm 64x64x64 f32 NN\ntarget sm_80\nrecommend", Some(Target::sm_90())).contains("? 4 -> a b"));
    }
}
