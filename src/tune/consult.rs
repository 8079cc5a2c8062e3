//! Recommended steps from records, where one is of the program and the chip.

use super::records::{NO_DEVICE, Record, compiler};
use crate::error::Result;
use crate::gemm::{self, Gemm};
use crate::ir::Func;
use crate::loom::Schedule;
use crate::target::Target;

/// The compiler, and the device with its driver, that are to take a schedule from a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Here {
    compiler: String,
    device: Option<[String; 2]>,
}

impl Here {
    /// This compiler, on a host without a device.
    pub fn new() -> Here {
        Here { compiler: compiler(), device: None }
    }

    /// This compiler, with a device of this name and the version of its driver.
    pub fn on(device: impl Into<String>, driver: impl Into<String>) -> Here {
        Here { device: Some([device.into(), driver.into()]), ..Here::new() }
    }

    /// A warning for each of compiler, device and driver by which a record was made and which is another one here. The schedule of such a
    /// record is legal, but may not be the best. A device or driver that is not known here is not compared.
    pub fn warnings(&self, record: &Record) -> Vec<String> {
        let header = &record.header;
        let program = header.program.lines().next().unwrap_or_default();
        let warn = |what: &str, mut theirs: Vec<&str>, ours: &str| {
            theirs.retain(|their| *their != ours);
            theirs.sort_unstable();
            theirs.dedup();
            let theirs = theirs.iter().map(|their| format!("`{their}`")).collect::<Vec<_>>().join(", ");
            let is_same = theirs.is_empty();
            (!is_same).then(|| {
                format!("warning: the record of {program} is of another {what}: {theirs}, and this {what} is `{ours}`")
            })
        };
        let compilers = header.runs.iter().map(|run| run.compiler.as_str()).collect();
        let drivers = header.runs.iter().filter_map(|run| run.driver.as_deref()).collect();
        let [device, driver] = self.device.as_ref().map_or([None, None], |both| both.each_ref().map(Some));
        let all = [
            warn("compiler", compilers, &self.compiler),
            device.and_then(|ours| warn("device", vec![&header.device], ours)),
            driver.and_then(|ours| warn("driver", drivers, ours)),
        ];
        all.into_iter().flatten().collect()
    }
}

impl Default for Here {
    fn default() -> Here {
        Here::new()
    }
}

/// The first record of the program and the chip that has a schedule. Records of times are searched before records of predicted cycles.
pub fn record_of<'r>(program: &Func, target: &Target, records: &'r [Record]) -> Option<&'r Record> {
    let of = |is_timed: bool| {
        let is_kind = move |r: &&Record| (r.header.device != NO_DEVICE) == is_timed;
        records.iter().filter(is_kind).find(|r| r.is_of(program, target) && r.winner().is_some())
    };
    of(true).or_else(|| of(false))
}

/// The best schedule of the record that [`record_of`] finds. [`Here::warnings`] says where the record was made elsewhere.
///
/// # Errors
/// What [`Schedule::parse`] refuses of the record's text.
pub fn recorded(program: &Func, target: &Target, records: &[Record]) -> Result<Option<Schedule>> {
    record_of(program, target, records).map(Record::schedule).transpose()
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
    fn a_record_of_another_compiler_device_or_driver_is_said_with_both_values() {
        let mut one = record("vec_add 64\ntarget sm_80\nbind i threadIdx.x\n");
        one.header.runs[0].compiler = compiler();
        assert_eq!(Here::new().warnings(&one), Vec::<String>::new());
        assert_eq!(Here::on("A", "12.4").warnings(&one).len(), 1, "predicted cycles are no times of a device");
        one.header.device = "A".into();
        one.header.runs[0].driver = Some("12.4".into());
        assert_eq!(Here::on("A", "12.4").warnings(&one), Vec::<String>::new());
        let mut other = one.header.runs[0].clone();
        (other.compiler, other.driver) = ("warploom 0.0.1".into(), Some("12.2".into()));
        one.header.runs.push(other);
        let said = Here::on("B", "13.0").warnings(&one);
        for (said, both) in said.iter().zip([
            format!("compiler: `warploom 0.0.1`, and this compiler is `{}`", compiler()),
            "device: `A`, and this device is `B`".into(),
            "driver: `12.2`, `12.4`, and this driver is `13.0`".into(),
        ]) {
            assert!(said.starts_with("warning: the record of ") && said.ends_with(&both), "{said}");
        }
        assert_eq!((said.len(), Here::new().warnings(&one).len()), (3, 1), "{said:?}");
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
