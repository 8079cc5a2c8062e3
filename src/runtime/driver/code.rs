//! What the driver's result codes mean, whose fault each is, and what to try.
//!
//! Codes are plain integers: drivers add new ones, and an unknown one is an error like any other, with the name that the
//! driver gives it.

use super::api;
use super::api::Answer;
use super::rows::{self, ROWS, Row};
use crate::error::{Code, Error, Fault, Result};
use cust::error::CudaResult;
use std::ffi::{CStr, c_char, c_int};

/// `Ok` for 0, else the error of that code while `doing` something.
pub(crate) fn check(answer: impl Answer, doing: &str) -> Result<()> {
    match answer.code() {
        0 => Ok(()),
        code => Err(error(code, doing)),
    }
}

/// What a function of cust made or read, else the error of its answer.
pub(crate) fn value<T>(made: CudaResult<T>, doing: &str) -> Result<T> {
    made.map_err(|e| error(Err::<(), _>(e).code(), doing))
}

/// The error of a code; its own code is `driver.NUMBER`.
pub(crate) fn error(code: c_int, doing: &str) -> Error {
    let Some(Row { name, fault, text, mend, .. }) = known(code) else {
        let words = words_of(code).map(|words| format!(" ({words})")).unwrap_or_default();
        let message = format!("{doing}: the driver answers {code}{words}, a code that this version does not know");
        let error = Error::new(Fault::Machine, Code::Driver(code), message);
        return error.help("see CUresult in the reference of the CUDA Driver API").help(rows::REPORT);
    };
    let message = format!("{doing}: {text} (CUDA_ERROR_{name} {code})");
    Error::new(*fault, Code::Driver(code), message).help(*mend)
}

fn known(code: c_int) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.code == code)
}

/// Whether the driver refuses all further work in the context after the code.
pub(crate) fn is_sticky(code: c_int) -> bool {
    known(code).is_some_and(|row| row.sticky)
}

/// What the driver itself calls a code that is newer than our table: `CUDA_ERROR_NAME: a sentence`.
fn words_of(code: c_int) -> Option<String> {
    let driver = super::loaded()?;
    let ask = |symbol: &str| {
        // SAFETY: the type is the prototype of both names.
        let call = unsafe { driver.late::<api::WordsOf>(symbol, super::OLDEST).ok()? };
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: writes one pointer, to a text that lives as long as the driver; allowed before cuInit.
        let known = unsafe { call(code, &mut text) } == 0 && !text.is_null();
        // SAFETY: a text that was written is a C string.
        known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    Some(format!("{}: {}", ask("cuGetErrorName")?, ask("cuGetErrorString")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn codes_come_with_name_text_and_mend() {
        let error = error(222, "loading gemm");
        assert_eq!(error.fault(), Fault::Machine);
        assert_eq!(error.code(), Code::Driver(222));
        assert_eq!(
            error.message(),
            "loading gemm: the driver is too old for this PTX version (CUDA_ERROR_UNSUPPORTED_PTX_VERSION 222)"
        );
        for row in ROWS {
            let error = super::error(row.code, "x");
            assert_eq!((error.helps().len(), error.helps()[0].is_empty()), (1, false), "{}", row.name);
        }
    }

    #[test]
    fn unknown_codes_are_errors_too() {
        assert_eq!(check(0, "x"), Ok(()));
        let error = check(12345, "launching gemm").unwrap_err();
        assert_eq!((error.fault(), error.code()), (Fault::Machine, Code::Driver(12345)));
        assert!(error.message().starts_with("launching gemm: the driver answers 12345"), "{error}");
        assert!(error.message().ends_with(", a code that this version does not know"), "{error}");
        assert!(!error.helps().is_empty() && !is_sticky(12345));
    }

    #[test]
    fn rows_are_in_order_and_sticky_ones_say_restart() {
        assert!(ROWS.windows(2).all(|w| w[0].code < w[1].code));
        for row in ROWS {
            assert_eq!(row.sticky, row.mend.contains("restart the process"), "{}", row.name);
        }
    }
}
