//! `bench --set M=64,256`: the values at which kernels of dynamic size are measured, and the schedule for one value alone beside them.

use super::subject::{Subject, at as program_at};
use super::values::{Values, words};
use crate::error::{Code, Error, Result, suggestion};
use crate::gemm;
use crate::ir::Func;
use crate::loom::Schedule;
use crate::size::Size;

/// Subjects at values of their dynamic sizes: one for each value that the range of the size has, or one at the largest value. With
/// `fixed`, the schedule recommended for each value alone, too. Rows of one value are together.
///
/// # Errors
/// `cli.value` where `set` names no dynamic size, or a value that no range has; with `fixed` what [`gemm::recommend_for`] refuses.
pub fn at(subjects: Vec<Subject>, set: &[Values], fixed: bool) -> Result<Vec<Subject>> {
    check(&subjects, set, fixed)?;
    // The values of a row, whether it is of a schedule for them alone, and the row.
    let mut rows: Vec<((Vec<i64>, bool), Subject)> = Vec::new();
    for subject in subjects {
        let sizes = &subject.schedule.program.sizes;
        if sizes.is_empty() {
            rows.push(((Vec::new(), false), subject));
            continue;
        }
        let ranges: Vec<String> = sizes.iter().map(|s| s.size.text().replacen("size ", "", 1)).collect();
        for values in combinations(&subject.schedule.program, set) {
            let alone = if fixed { Some(alone(&subject.schedule, &values)?) } else { None };
            let name = format!("{}, {}", subject.name, ranges.join(", "));
            if let Some(alone) = alone.clone().filter(|a| rows.iter().all(|(_, row)| row.schedule != *a)) {
                let name = format!("recommended, {}", words(&subject.schedule.program, &values));
                rows.push(((values.clone(), true), Subject::new(name, alone)));
            }
            let row = Subject { name, at: values.clone(), fixed: alone, ..subject.clone() };
            rows.push(((values, false), row));
        }
    }
    rows.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(rows.into_iter().map(|(_, subject)| subject).collect())
}

/// That every value of `set` is one that a program has, and that `fixed` has a schedule to stand beside.
fn check(subjects: &[Subject], set: &[Values], fixed: bool) -> Result<()> {
    let known: Vec<&Size> = subjects.iter().flat_map(|s| &s.schedule.program.sizes).map(|s| &s.size).collect();
    let wrong = |message: String| Error::input(Code::CliValue, message);
    if fixed && known.is_empty() {
        let error = wrong("--fixed measures beside kernels of dynamic size, and no schedule has a dynamic size".into());
        return Err(error.help("--gemm 1..=8192x4096x4096"));
    }
    for Values { size, values } in set {
        let own: Vec<&&Size> = known.iter().filter(|s| s.name == *size).collect();
        if own.is_empty() {
            let guess = suggestion(size, known.iter().map(|s| s.name.as_str()));
            let error = wrong(format!("--set {size}: no schedule has a dynamic size {size}{guess}"));
            return Err(error.help("--gemm 1..=8192x4096x4096 --set M=64,256"));
        }
        if let Some(value) = values.iter().find(|v| !own.iter().any(|s| s.takes(**v))) {
            let ranges: Vec<String> = own.iter().map(|s| format!("`{}`", s.text())).collect();
            return Err(wrong(format!("--set {size}: {value} is no value of {}", ranges.join(", "))));
        }
    }
    Ok(())
}

/// Each combination of values that the sizes of a program are set to; a size that is not set has its largest value.
fn combinations(program: &Func, set: &[Values]) -> Vec<Vec<i64>> {
    let mut out = vec![Vec::new()];
    for size in program.sizes.iter().map(|s| &s.size) {
        let of_size: Vec<&Values> = set.iter().filter(|s| s.size == size.name).collect();
        let mut values: Vec<i64> = of_size.iter().flat_map(|s| &s.values).copied().filter(|v| size.takes(*v)).collect();
        if of_size.is_empty() {
            values.push(size.high);
        }
        let longer = |before: &Vec<i64>| values.iter().map(|v| [before.as_slice(), &[*v]].concat()).collect::<Vec<_>>();
        out = out.iter().flat_map(longer).collect();
    }
    out
}

/// The schedule recommended for a program at these values alone.
fn alone(schedule: &Schedule, values: &[i64]) -> Result<Schedule> {
    let program = program_at(&schedule.program, values)?;
    let recommended = match gemm::describe(&program) {
        Some(gemm) => gemm::recommend(&gemm, &schedule.target),
        None => gemm::recommend_for(&program, &schedule.target),
    };
    recommended.map_err(|e| e.within(format!("--fixed at {}", words(&schedule.program, values))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(gemm: &str) -> Subject {
        let text = format!("gemm {gemm} f16>f32>f16 NT\ntarget sm_80\nrecommend\n");
        Subject::new("recommended", text.parse().unwrap())
    }

    fn set(text: &str) -> Vec<Values> {
        vec![text.parse().unwrap()]
    }

    #[test]
    fn rows_are_of_the_range_that_has_the_value() {
        let ranges = || vec![subject("1..=64x64x64"), subject("65..=256x64x64"), subject("32x32x32")];
        let rows = at(ranges(), &set("M=200,1,64"), false).unwrap();
        let found: Vec<(&str, &[i64])> = rows.iter().map(|r| (r.name.as_str(), r.at.as_slice())).collect();
        let (low, high) = ("recommended, M in 1..=64", "recommended, M in 65..=256");
        assert_eq!(found, [("recommended", &[][..]), (low, &[1]), (low, &[64]), (high, &[200])]);
        let largest: Vec<Vec<i64>> = at(ranges(), &[], false).unwrap().into_iter().map(|r| r.at).collect();
        assert_eq!(largest, [vec![], vec![64], vec![256]]);
    }

    #[test]
    fn the_schedule_for_a_value_alone_is_beside_it() {
        let rows = at(vec![subject("1..=256x64x64")], &set("M=16,100"), true).unwrap();
        let names: Vec<&str> = rows.iter().map(|r| r.name.as_str()).collect();
        let own = "recommended, M in 1..=256";
        assert_eq!(names, [own, "recommended, M = 16", own, "recommended, M = 100"]);
        assert_eq!(rows[0].fixed.as_ref(), Some(&rows[1].schedule));
        let program = |row: &Subject| gemm::describe(&row.program().unwrap()).unwrap();
        assert_eq!(program(&rows[2]), program(&rows[3]));
        assert!(rows[3].schedule.program.sizes.is_empty() && rows[3].fixed.is_none());
    }

    #[test]
    fn values_that_no_schedule_has_are_refused() {
        let refused = |text: &str, fixed: bool, gemm: &str| at(vec![subject(gemm)], &set(text), fixed).unwrap_err();
        let error = refused("M=8,300", false, "1..=256x64x64");
        assert_eq!(error.code(), Code::CliValue);
        assert!(error.message().contains("300 is no value of `size M in 1..=256`"), "{error}");
        assert!(refused("N=8", false, "1..=256x64x64").message().contains("no schedule has a dynamic size N"));
        assert!(at(vec![subject("64x64x64")], &[], true).is_err());
        for wrong in ["M", "=8", "M=", "M=8,", "M=0", "M=x"] {
            assert!(wrong.parse::<Values>().is_err(), "{wrong}");
        }
    }
}
