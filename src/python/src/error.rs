//! Errors as exceptions, with the text that they are about underlined.

use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    warploom,
    Error,
    PyException,
    "What is wrong; `code` says which requirement, such as `launch.shape`."
);

/// An exception with the code.
pub fn raised(error: &warploom::Error) -> PyErr {
    raised_in(error, "")
}

/// An exception with the code and the underlined lines: of the schedule that was given, or of the program as a step found it.
pub fn raised_in(error: &warploom::Error, schedule: &str) -> PyErr {
    Python::attach(|py| {
        let exception = Error::new_err(described(error, schedule));
        let coded = exception.value(py).setattr("code", error.code().to_string());
        coded.map_or_else(|failed| failed, |()| exception)
    })
}

/// The message with the requirement, after it the lines of the source that it is about.
fn described(error: &warploom::Error, schedule: &str) -> String {
    let stated = warploom::schedule::requirement(error.code()).map(|text| error.clone().within(text));
    let mut out = stated.as_ref().unwrap_or(error).to_string();
    let Some(text) = error.source_text() else { return out };
    if !error.labels().is_empty() {
        let is_given = text == schedule.trim_start_matches('\u{feff}');
        out += if is_given { "\nin the schedule:" } else { "\nin the program as printed:" };
    }
    for label in error.labels() {
        let Some(before) = text.get(..label.span.start) else { continue };
        let number = before.matches('\n').count();
        let Some(line) = text.lines().nth(number) else { continue };
        let column = before.rsplit('\n').next().map_or(0, |part| part.chars().count());
        let marked =
            text.get(label.span.clone()).map_or(1, |part| part.lines().next().map_or(1, |l| l.chars().count().max(1)));
        let margin = (number + 1).to_string();
        let (space, marks) = (" ".repeat(margin.len()), "^".repeat(marked));
        out += &format!("\n {margin} | {line}\n {space} | {}{marks} {}", " ".repeat(column), label.message);
    }
    out
}
