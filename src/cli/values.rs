//! `--set NAME=VALUE`: inputs of one number and values of dynamic sizes from the command line.

use crate::array::Array;
use crate::dtype::{Class, DType};
use crate::error::{Code, Error, Result, suggestion};
use crate::ir::{Func, typing, visit};
use std::str::FromStr;

/// An input and its value as written: `alpha=0.5`.
#[derive(Debug, Clone)]
pub struct Set {
    input: String,
    value: String,
}

impl FromStr for Set {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Set, String> {
        let parts = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
        let (name, value) = parts.ok_or_else(|| format!("`{text}` is not NAME=VALUE, such as alpha=0.5"))?;
        Ok(Set { input: name.trim().to_string(), value: value.trim().to_string() })
    }
}

/// A dynamic size with the values to measure it at: `M=64,256`.
#[derive(Debug, Clone)]
pub struct Values {
    /// Its name.
    pub size: String,
    /// The values.
    pub values: Vec<i64>,
}

impl FromStr for Values {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Values, String> {
        let value = |v: &str| v.trim().parse::<i64>().ok().filter(|v| *v > 0);
        let parts = text.split_once('=').filter(|(size, _)| !size.trim().is_empty());
        let parsed = parts.and_then(|(size, values)| {
            let values = values.split(',').map(value).collect::<Option<Vec<i64>>>()?;
            Some(Values { size: size.trim().to_string(), values })
        });
        parsed.ok_or_else(|| format!("`{text}` is not SIZE=VALUES, such as M=64 or M=64,256,1000"))
    }
}

/// `M = 64, N = 8`
pub fn words(program: &Func, values: &[i64]) -> String {
    let each = program.sizes.iter().zip(values).map(|(s, value)| format!("{} = {value}", s.size.name));
    each.collect::<Vec<_>>().join(", ")
}

impl Set {
    /// The name of the input or the dynamic size.
    pub fn input(&self) -> &str {
        &self.input
    }
}

/// That nothing is set twice.
///
/// # Errors
/// `cli.value` with the name that is.
pub fn check_once(values: &[Set]) -> Result<()> {
    let is_again = |(n, set): &(usize, &Set)| values[..*n].iter().any(|before| before.input == set.input);
    match values.iter().enumerate().find(is_again) {
        Some((_, set)) => {
            Err(Error::input(Code::CliValue, format!("{} is set twice", set.input)).help("one --set for it"))
        }
        None => Ok(()),
    }
}

/// The whole number that a dynamic size is set to.
///
/// # Errors
/// `cli.value` where the value is no whole number.
pub fn number_of(values: &[Set], size: &str) -> Result<Option<i64>> {
    let Some(set) = values.iter().find(|set| set.input == size) else { return Ok(None) };
    set.value.parse().map(Some).map_err(|_| {
        let message = format!("`{}` is no value of size {size}, which is a whole number", set.value);
        Error::input(Code::CliValue, message).help(format!("--set {size}=64"))
    })
}

/// Puts the values in the places of a program's inputs.
pub fn set(program: &Func, values: &[Set], arrays: &mut [Array]) -> Result<()> {
    let written = visit::writes(&program.body);
    let inputs = || program.params.iter().enumerate().filter(|(_, id)| !written.contains(id));
    for set in values {
        let wrong = |message: String| Error::input(Code::CliValue, message);
        let scalars: Vec<&str> = inputs()
            .map(|(_, id)| program.buffer(*id))
            .filter(|b| b.shape.is_empty())
            .map(|b| b.name.as_str())
            .collect();
        let Some((n, id)) = inputs().find(|(_, id)| program.buffer(**id).name == set.input) else {
            let guess = suggestion(&set.input, scalars.iter().copied());
            let error = wrong(format!("`{}` is no input of {}{guess}", set.input, program.name));
            return Err(match scalars.is_empty() {
                true => error.help("no input of this program is one number (`input alpha f32`)"),
                false => error.help(format!("its inputs of one number are {}", scalars.join(", "))),
            });
        };
        let buffer = program.buffer(*id);
        if !buffer.shape.is_empty() {
            let error = wrong(format!("{} is an array, not one number", buffer.name));
            return Err(error.help(format!("take it from a file: --input {}=FILE", buffer.name)));
        }
        let value = number(buffer.dtype, &set.value).ok_or_else(|| {
            wrong(format!("`{}` is no value of {}, which is {}", set.value, buffer.name, buffer.dtype))
        })?;
        let array = Array::from_fn(buffer.dtype, &[], |_| value)?;
        if let Some(values) = buffer.values {
            array.check_values(&buffer.name, values)?;
        }
        arrays[n] = array;
    }
    Ok(())
}

/// A number as the type has it: whole and in the range of an integer type.
fn number(dtype: DType, text: &str) -> Option<f64> {
    match (dtype.class(), typing::integer_range(dtype)) {
        (Class::Bool, _) => match text {
            "true" | "1" => Some(1.0),
            "false" | "0" => Some(0.0),
            _ => None,
        },
        (Class::Float, _) | (_, None) => text.parse().ok(),
        // An f64 holds every integer of up to 53 bits.
        (_, Some((low, high))) => {
            let exact = |v: &i64| (low..=high).contains(v) && v.unsigned_abs() <= 1 << 53;
            text.parse::<i64>().ok().filter(exact).map(|v| v as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_type() {
        assert_eq!(number(DType::F32, "-1.5e3"), Some(-1500.0));
        assert_eq!(number(DType::U8, "255"), Some(255.0));
        assert_eq!(number(DType::Bool, "true"), Some(1.0));
        for (dtype, text) in [(DType::U8, "256"), (DType::S8, "1.5"), (DType::Bool, "2"), (DType::F32, "one")] {
            assert_eq!(number(dtype, text), None, "{text} in {dtype}");
        }
    }
}
