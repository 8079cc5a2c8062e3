//! Pages of the codes of errors: what one means, and the list of all.

use super::super::colour;
use super::super::show;
use super::pages::Form;
use crate::error::{Area, Code, Result};
use crate::schedule;
use std::fmt::Write;
use std::path::Path;

/// The page of the code that a word is; `None` where it is none.
///
/// # Errors
/// The word begins as a code does, and is none, and no file has the name.
pub fn page(word: &str, form: Form) -> Result<Option<String>> {
    match word.parse() {
        Ok(code) => Ok(Some(one(code, form))),
        Err(error) => {
            let area = word.split_once('.').and_then(|(area, _)| Area::ALL.iter().find(|a| a.name() == area));
            let is_file = word.ends_with(".loom") || Path::new(word).exists();
            if area.is_none() || is_file {
                Ok(None)
            } else {
                Err(error.help("`warploom explain --codes` lists the codes"))
            }
        }
    }
}

/// What a code means, and what to try.
fn one(code: Code, form: Form) -> String {
    let stated = schedule::requirement(code);
    let meaning = stated.as_deref().unwrap_or(code.meaning());
    let step = match code {
        Code::Requirement { primitive, .. } | Code::Lost { primitive } => Some(primitive),
        _ => None,
    };
    let see = step.map(|step| format!("`warploom explain {step}` shows the step."));
    let mut out = match form {
        Form::Markdown => format!("# {code}\n\n{meaning}\n"),
        Form::Text => format!("{}\n\n{}\n", colour::head(&code.to_string()), show::wrapped(meaning, "    ")),
    };
    if let Some(remedy) = code.remedy() {
        let _ = match form {
            Form::Markdown => write!(out, "\ntry: {remedy}\n"),
            Form::Text => write!(out, "\n{}\n", show::wrapped(&format!("try: {remedy}"), "    ")),
        };
    }
    if let Some(see) = see {
        let _ = write!(out, "\n{see}\n");
    }
    out
}

/// A text as a cell of a table in Markdown.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// Every code with its meaning, by what the codes are about; in Markdown with what to try, too.
pub fn all(form: Form) -> String {
    let numbered = "A step that breaks its requirement N is refused with the code `STEP.N`, such as `split.2`. An answer of \
                    the CUDA driver has the code `driver.N`, with the number of `CUresult`.";
    let mut out = match form {
        Form::Markdown => format!(
            "An error prints its code in brackets. `warploom explain CODE` prints what the code means and what \
             to try. {numbered}\n"
        ),
        Form::Text => String::new(),
    };
    for area in Area::ALL {
        let codes = Code::ALL.iter().filter(|c| c.area() == Some(*area));
        match form {
            Form::Markdown => {
                let head = "| code | what is wrong | what to try |\n|---|---|---|";
                let _ = writeln!(out, "\n## {}\n\n{}\n\n{head}", area.name(), area.about());
                codes.for_each(|c| {
                    let (meaning, remedy) = (cell(c.meaning()), cell(c.remedy().unwrap_or_default()));
                    _ = writeln!(out, "| `{c}` | {meaning} | {remedy} |");
                });
            }
            Form::Text => {
                codes.for_each(|c| {
                    _ = writeln!(out, "{}\n{}", colour::head(&c.to_string()), show::wrapped(c.meaning(), "    "));
                });
            }
        }
    }
    if form == Form::Text {
        let _ = write!(out, "\n{}\n", show::wrapped(numbered, ""));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command;
    use std::collections::BTreeSet;

    /// Options of a command and of its subcommands.
    fn options(command: &clap::Command, out: &mut BTreeSet<String>) {
        out.extend(command.get_arguments().filter_map(|a| a.get_long()).map(|long| format!("--{long}")));
        command.get_subcommands().for_each(|sub| options(sub, out));
    }

    #[test]
    fn remedies_name_options_and_commands_that_exist() {
        let command = command();
        let mut known = BTreeSet::new();
        options(&command, &mut known);
        let mut count = 0;
        for code in Code::ALL {
            let remedy = code.remedy().unwrap_or_default();
            for quoted in remedy.split('`').skip(1).step_by(2) {
                for option in quoted.split([' ', '=']).filter(|word| word.starts_with("--")) {
                    assert!(known.contains(option), "{code}: there is no option {option}");
                    count += 1;
                }
                if let Some(sub) = quoted.strip_prefix("warploom ").and_then(|rest| rest.split(' ').next()) {
                    assert!(command.find_subcommand(sub).is_some(), "{code}: there is no command {sub}");
                }
            }
        }
        assert!(count > 30, "{count} options");
    }
}
