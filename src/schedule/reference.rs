//! The reference table of the schedule language, made from the rows of [`primitive::ALL`].

use super::primitive;
use crate::error::{Code, Error, Result, suggestion};
use std::str::FromStr;

/// The explanation of the line `recommend`, which is not a step.
pub const RECOMMENDED: &str =
    "The parser replaces a line `recommend` of a `.loom` text by recommended steps, if the program contains a GEMM.";

/// Every primitive with its form, what it does and what it requires, as a Markdown table.
pub fn reference() -> String {
    let mut out = String::from("| step | what it does | requires |\n|---|---|---|\n");
    for p in primitive::ALL {
        let requires: Vec<String> = p.requires.iter().enumerate().map(|(n, r)| format!("{}. {r}", n + 1)).collect();
        let cells = [format!("`{}`", p.usage()), p.about.to_string(), requires.join("<br>")];
        let cells: Vec<String> = cells.iter().map(|c| c.replace('|', "\\|")).collect();
        out.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    out + "\n" + RECOMMENDED + "\n"
}

/// The requirement that an error's code names (`split.2`), in the words of the primitive's row.
pub fn requirement(code: Code) -> Option<String> {
    let Code::Requirement { primitive: name, number } = code else { return None };
    let text = primitive::find(name)?.requires.get(number.checked_sub(1)?)?;
    Some(format!("requirement {number} of {name}: {text}"))
}

/// The code that is printed so: of the table of codes, of a primitive's requirement, or of an answer of the driver.
impl FromStr for Code {
    type Err = Error;

    fn from_str(text: &str) -> Result<Code> {
        let numbered = || {
            let (name, word) = text.split_once('.')?;
            let number = word.parse().ok().filter(|n: &u32| n.to_string() == word);
            match (name, number, primitive::find(name)) {
                ("driver", Some(n), _) => i32::try_from(n).ok().map(Code::Driver),
                (_, Some(n), Some(p)) if (1..=p.requires.len()).contains(&(n as usize)) => {
                    Some(Code::Requirement { primitive: p.name, number: n as usize })
                }
                (_, None, Some(p)) if word == "lost" => Some(Code::Lost { primitive: p.name }),
                _ => None,
            }
        };
        Code::listed(text).or_else(numbered).ok_or_else(|| {
            let texts: Vec<String> = Code::ALL.iter().map(Code::to_string).collect();
            let guess = suggestion(text, texts.iter().map(String::as_str));
            Error::input(Code::ErrorCode, format!("`{text}` is not the code of an error{guess}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_parsed_from_its_text() {
        let requirements = primitive::ALL
            .iter()
            .flat_map(|p| (1..=p.requires.len()).map(|number| Code::Requirement { primitive: p.name, number }));
        let others = [Code::Driver(222), Code::Lost { primitive: "split" }];
        for code in Code::ALL.iter().copied().chain(requirements).chain(others) {
            assert_eq!(code.to_string().parse(), Ok(code));
        }
        for wrong in ["", "split", "split.", "split.0", "split.02", "split.99", "driver.-1", "driver.x", "nothing.1"] {
            assert_eq!(wrong.parse::<Code>().unwrap_err().code(), Code::ErrorCode, "{wrong}");
        }
        let near = "lower.rase".parse::<Code>().unwrap_err();
        assert_eq!(near.message(), "`lower.rase` is not the code of an error; did you mean `lower.race`?");
    }

    #[test]
    fn requirements_are_told_in_the_words_of_the_row() {
        let told = requirement(Code::Requirement { primitive: "split", number: 1 });
        assert_eq!(told, Some(format!("requirement 1 of split: {}", primitive::split::PRIMITIVE.requires[0])));
        assert_eq!(requirement(Code::Requirement { primitive: "split", number: 0 }), None);
        assert_eq!(requirement(Code::LowerRace), None);
    }
}
