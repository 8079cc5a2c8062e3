//! What the driver's compiler says of PTX that it compiles or links: room for its logs, and errors that show them.

use super::driver::{self, api::jit};
use crate::error::{Code, Error};
use crate::kernel::Kernels;
use std::ffi::c_void;

/// Room for each of the driver's compilation logs.
const LOG_BYTES: usize = 32 << 10;

/// Room for what the driver's compiler says.
pub(super) struct Logs {
    info: Vec<u8>,
    errors: Vec<u8>,
}

impl Logs {
    pub(super) fn new() -> Logs {
        Logs { info: vec![0; LOG_BYTES], errors: vec![0; LOG_BYTES] }
    }

    /// The options of a load or a link with their values; the first is the time, which the driver writes.
    pub(super) fn options(&mut self) -> (Vec<jit::Option>, Vec<*mut c_void>) {
        let number = std::ptr::without_provenance_mut::<c_void>;
        let (info, errors) = (self.info.as_mut_ptr().cast(), self.errors.as_mut_ptr().cast());
        let options = vec![
            jit::WALL_TIME,
            jit::INFO_LOG_BUFFER,
            jit::INFO_LOG_BUFFER_SIZE_BYTES,
            jit::ERROR_LOG_BUFFER,
            jit::ERROR_LOG_BUFFER_SIZE_BYTES,
            jit::LOG_VERBOSE,
        ];
        let sizes = (number(self.info.len()), number(self.errors.len()));
        (options, vec![std::ptr::null_mut(), info, sizes.0, errors, sizes.1, number(1)])
    }

    /// What the compiler said that is no error: registers, spills.
    pub(super) fn info(&self) -> String {
        log_text(&self.info)
    }

    /// Adds the versions and the compiler's words to an error of compiling a program.
    pub(super) fn explain(&self, error: Error, kernels: &Kernels, driver: i32) -> Error {
        explain(versions(error, kernels.ptx_version, driver), &log_text(&self.errors), &kernels.text)
    }
}

/// A log buffer up to its first zero.
fn log_text(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|b| *b == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).trim_end().to_string()
}

/// Adds both versions where the driver is too old for the PTX.
fn versions(error: Error, ptx: u32, driver: i32) -> Error {
    if error.code() != Code::Driver(222) {
        return error;
    }
    let (major, minor, driver) = (ptx / 10, ptx % 10, driver::version_text(driver));
    error.within(format!("the program is PTX {major}.{minor}, and the driver is for CUDA {driver}"))
}

/// Adds the compiler's words, and underlines the PTX line that they name.
fn explain(error: Error, log: &str, text: &str) -> Error {
    if log.is_empty() {
        return error;
    }
    let error = error.within(format!("the driver's compiler says:\n{log}"));
    match line_of(log).and_then(|line| span_of(text, line)) {
        Some(span) => error.text(text).label(span, "here"),
        None => error,
    }
}

/// The number in the first `line N;` of a log (`ptxas application ptx input, line 12; error : ...`).
fn line_of(log: &str) -> Option<usize> {
    let (_, rest) = log.split_once("line ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn span_of(text: &str, line: usize) -> Option<std::ops::Range<usize>> {
    let start = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum::<usize>();
    let rest = text.get(start..).filter(|rest| !rest.is_empty())?;
    Some(start..start + rest.find('\n').unwrap_or(rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::driver::code;

    #[test]
    fn a_refused_ptx_shows_the_compilers_words_and_its_line() {
        let log = log_text(b"ptxas application ptx input, line 2; error   : Unknown symbol 'x'\n\0\0garbage");
        let text = ".version 7.0\nbad x;\nret;\n";
        let error = explain(code::error(218, "compiling PTX"), &log, text);
        assert_eq!(
            error.to_string(),
            "a fault of warploom itself [driver.218]: compiling PTX: the driver's compiler refuses the PTX \
             (CUDA_ERROR_INVALID_PTX 218)\n  the driver's compiler says:\nptxas application ptx input, line 2; \
             error   : Unknown symbol 'x'\n  try: report it with the schedule and the driver's version (warploom doctor \
             prints it)"
        );
        assert_eq!(error.labels()[0].span, 13..19);
        assert_eq!(explain(code::error(218, "x"), "", text).source_text(), None);
    }

    #[test]
    fn lines_outside_the_text_are_not_underlined() {
        assert_eq!(span_of("a\nb", 2), Some(2..3));
        assert_eq!((span_of("a\nb", 0), span_of("a\nb", 3), span_of("", 1)), (None, None, None));
        assert_eq!(line_of("no number"), None);
    }
}
