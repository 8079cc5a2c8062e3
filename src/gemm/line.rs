//! The line `recommend` of a `.loom` text: the parser replaces it by the steps of [`super::recommend_for`].

use super::recommend_for;
use crate::error::Result;
use crate::loom::Schedule;
use crate::schedule::Step;
use crate::target::Target;

impl Schedule {
    /// Parses a `.loom` text. The parser applies the steps before a line `recommend` to the program, and replaces the line by the steps of
    /// [`super::recommend_for`] for the result. The schedule prints these steps.
    ///
    /// ```
    /// let text = "gemm 256x128x64 f16>f32>f16 NT bias relu\ntarget sm_80\nrecommend";
    /// let schedule = warploom::Schedule::parse(text)?;
    /// assert!(schedule.to_string().contains("tensorize ii mma.m16n8k16.f32.f16.f16"));
    /// # Ok::<(), warploom::Error>(())
    /// ```
    ///
    /// # Errors
    /// `loom.size`, `loom.target`, `loom.recommend`, `target.name`, and what [`crate::te::parse`], [`crate::schedule::parse()`] and
    /// [`super::recommend_for`] refuse, underlined in the text.
    pub fn parse(text: &str) -> Result<Schedule> {
        Schedule::parse_with(text, None, &mut recommended)
    }

    /// [`Schedule::parse`] for another chip than that of the text: the parser replaces a line `recommend` by steps for that chip.
    ///
    /// # Errors
    /// As [`Schedule::parse`].
    pub fn parse_for(text: &str, target: Target) -> Result<Schedule> {
        Schedule::parse_with(text, Some(target), &mut recommended)
    }
}

fn recommended(before: &Schedule) -> Result<Vec<Step>> {
    recommend_for(&before.scheduled()?, &before.target).map(|schedule| schedule.steps)
}

#[cfg(test)]
mod tests {
    use crate::gemm::{Gemm, recommend};
    use crate::loom::format;
    use crate::{DType, Schedule, Target};

    const LAYER: &str = "program layer
  input X f16[64, 64]
  input W f16[72, 64]
  input b f16[72]
  dot: acc[row 64, unit 72] f32 = sum(k 64) f32(X[row, k])*f32(W[unit, k])
  H: H[row 64, unit 72] f32 = acc[row, unit] + f32(b[unit])
  output Y[row 64, unit 72] f16 = f16(max(H[row, unit], 0.0))
target sm_80
";

    #[test]
    fn the_schedule_prints_the_steps_that_replace_the_line() {
        for (before, line) in [("", "recommend"), ("compute_inline H\n", "  recommend  # for this chip")] {
            let schedule = Schedule::parse(&format!("{LAYER}{before}{line}\n")).unwrap();
            let printed = schedule.to_string();
            assert!(!printed.contains("recommend") && printed.contains("compute_inline H"), "{printed}");
            assert_eq!(Schedule::parse(&printed).unwrap(), schedule);
            crate::lower::lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        }
        // Steps follow the line.
        let text = "gemm 64x64x64 f32 NN\ntarget sm_80\nrecommend; annotate k_1 unroll_limit 2";
        let plain = recommend(&Gemm::new(64, 64, 64), &Target::sm_80()).unwrap();
        let schedule = Schedule::parse(text).unwrap();
        assert_eq!(schedule.steps[..schedule.steps.len() - 1], plain.steps);
    }

    #[test]
    fn another_chip_has_other_steps() {
        let text = format!("{LAYER}recommend");
        let hopper = Schedule::parse_for(&text, Target::sm_90a()).unwrap();
        assert_eq!(hopper.target, Target::sm_90a());
        assert_ne!(hopper.steps, Schedule::parse(&text).unwrap().steps);
        let plain = Schedule::parse_for("gemm 64x64x64 f16>f32>f16 NN\ntarget sm_70\nrecommend", Target::sm_80());
        let own = recommend(&Gemm::new(64, 64, 64).of(DType::F16), &Target::sm_80()).unwrap();
        assert_eq!(plain.unwrap().steps, own.steps);
    }

    #[test]
    fn the_line_keeps_its_layout() {
        let text = format!("{LAYER}compute_inline   H;recommend#x");
        assert_eq!(format(&text).unwrap(), format!("{LAYER}compute_inline H; recommend  # x\n"));
    }

    /// The code, the message, and what is underlined.
    fn refusal(text: &str) -> (String, String, Vec<String>) {
        let error = Schedule::parse(text).unwrap_err();
        let source = error.source_text().unwrap_or_default().to_string();
        let places = error.labels().iter().map(|l| source[l.span.clone()].to_string()).collect();
        (error.code().to_string(), error.message().to_string(), places)
    }

    #[test]
    fn refusals_underline_the_line() {
        let (code, _, places) = refusal(&format!("{LAYER}recommend mma\n"));
        assert_eq!((code.as_str(), places), ("loom.recommend", vec!["recommend mma".to_string()]));
        let (code, message, places) = refusal("vec_add 64\ntarget sm_80\nrecommend");
        assert_eq!((code.as_str(), places), ("gemm.program", vec!["recommend".to_string()]));
        assert!(message.contains("no block is a sum over k"), "{message}");
        let (code, message, places) = refusal(&format!("{LAYER}split row ? 4\nrecommend"));
        assert_eq!((code.as_str(), places), ("gemm.program", vec!["recommend".to_string()]));
        assert!(message.contains("has loops that steps have changed"), "{message}");
        let (code, _, places) = refusal(&format!("{LAYER}recommend\nrecommend"));
        assert_eq!((code.as_str(), places.len()), ("gemm.program", 1));
        // A step before the line is refused where it is.
        let (code, _, places) = refusal(&format!("{LAYER}unroll nope; recommend"));
        assert_eq!((code.as_str(), places), ("step.loop", vec!["nope".to_string()]));
        let (_, message, places) = refusal(&format!("{LAYER}recomend"));
        assert!(message.contains("did you mean `recommend`?"), "{message}");
        assert_eq!(places, ["recomend"]);
    }
}
