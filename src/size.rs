//! Sizes that are known at launch alone: their names and the values that they can have.

use crate::error::{Code, Error, Result, counted};
use serde::{Deserialize, Serialize};

/// The values of a dynamic size: `size M in 1..=8192 by 8`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Size {
    /// Its name, `M`.
    pub name: String,
    /// The least value.
    pub low: i64,
    /// The largest value.
    pub high: i64,
    /// Every value is a multiple of this; so is `high`.
    pub by: i64,
}

impl Size {
    /// A size from `low` to `high`, both inclusive, in multiples of `by`.
    ///
    /// # Errors
    /// `size.range` where there is no such multiple, `high` is none, or the values are not within 1 and 2^31 - 1.
    pub fn new(name: impl Into<String>, low: i64, high: i64, by: i64) -> Result<Size> {
        let name = name.into();
        let wrong = |why: String| Err(Error::input(Code::SizeRange, format!("size {name}: {why}")));
        if low < 1 || low > high || high > i64::from(i32::MAX) {
            return wrong(format!("{low}..={high} is empty, or not within 1..={}", i32::MAX));
        }
        if by < 1 || high % by != 0 {
            return wrong(format!("its largest value, {high}, is no multiple of {by}"));
        }
        Ok(Size { name, low, high, by })
    }

    /// Whether it can have this value.
    pub fn takes(&self, value: i64) -> bool {
        (self.low..=self.high).contains(&value) && value % self.by.max(1) == 0
    }

    /// `size M in 1..=8192 by 8`
    pub fn text(&self) -> String {
        let by = if self.by == 1 { String::new() } else { format!(" by {}", self.by) };
        format!("size {} in {}..={}{by}", self.name, self.low, self.high)
    }

    /// That it can have the value.
    ///
    /// # Errors
    /// `size.value`.
    pub fn check(&self, value: i64) -> Result<()> {
        if self.takes(value) {
            return Ok(());
        }
        let message = format!("{} is {value}, but the program has `{}`", self.name, self.text());
        let help = match value {
            ..=0 => format!("skip the launch where {} is {value}", self.name),
            _ if (self.low..=self.high).contains(&value) => {
                format!("give a multiple of {}: pad the arrays", self.by)
            }
            _ => "compile the program with a wider range of the size".to_string(),
        };
        Err(Error::input(Code::SizeValue, message).help(help))
    }

    /// That there is a value for each size, and each size can have it.
    ///
    /// # Errors
    /// `size.value`.
    pub fn check_all<'s>(sizes: impl ExactSizeIterator<Item = &'s Size>, values: &[i64]) -> Result<()> {
        if values.len() != sizes.len() {
            let wanted = counted(sizes.len(), "dynamic size");
            let message = format!("the program has {wanted}, and values of {} are given", values.len());
            return Err(Error::input(Code::SizeValue, message));
        }
        sizes.zip(values).try_for_each(|(size, value)| size.check(*value))
    }
}

/// An array whose outermost extent is a dynamic size: its name, the number of the size, the extents and strides that the program
/// states, with the largest value, and the extents that are given.
pub(crate) struct Sized<'a> {
    pub(crate) name: &'a str,
    pub(crate) size: usize,
    pub(crate) shape: &'a [i64],
    pub(crate) strides: &'a [i64],
    pub(crate) given: &'a [usize],
}

impl Sized<'_> {
    /// The outermost extent: as many rows as the array has, or as fit one after the other where it has one dimension. A program's array of
    /// one dimension takes an array of any shape.
    fn outermost(&self) -> Option<i64> {
        let extent = |n: &usize| i64::try_from(*n).ok();
        if self.shape.len() == 1 {
            return self.given.iter().try_fold(1i64, |all, n| all.checked_mul(extent(n)?));
        }
        let first = extent(self.given.first()?)?;
        if self.given.len() > 1 {
            return Some(first);
        }
        // Rows with gaps end with the last element of the last row.
        let inner = self.shape.iter().zip(self.strides).skip(1);
        let row = inner.fold(1i64, |n, (e, s)| n.saturating_add((e - 1).saturating_mul(*s)));
        let stride = self.strides.first().copied().filter(|s| *s > 0)?;
        (first >= row).then(|| (first - row) / stride + 1)
    }
}

/// The value of each size, from the arrays that have it.
///
/// # Errors
/// `size.value` where two arrays disagree, none has the size, or the size cannot have the value.
pub(crate) fn values<'s>(sizes: impl Iterator<Item = &'s Size>, arrays: &[Sized<'_>]) -> Result<Vec<i64>> {
    let one = |(number, size): (usize, &Size)| {
        let mut found: Option<(&str, i64)> = None;
        for array in arrays.iter().filter(|a| a.size == number) {
            let Some(value) = array.outermost() else { continue };
            match found {
                Some((other, known)) if known != value => {
                    let (name, own) = (&size.name, array.name);
                    let message = format!("{name} is {known} by array {other}, and {value} by array {own}");
                    return Err(Error::input(Code::SizeValue, message).help("give arrays of one size"));
                }
                _ => found = Some((array.name, value)),
            }
        }
        let Some((_, value)) = found else {
            let message = format!("no array that is given says how large {} is", size.name);
            return Err(Error::input(Code::SizeValue, message));
        };
        size.check(value).map(|()| value)
    };
    sizes.enumerate().map(one).collect()
}

/// A number that follows from a dynamic size: `times * ceil(size / per)`, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Follows {
    /// The number of the size in its program.
    pub size: usize,
    /// What each part counts.
    pub times: u32,
    /// How much of the size is a part.
    pub per: u32,
}

impl Follows {
    /// Of the size of this number, `times * ceil(size / per)`.
    pub fn new(size: usize, times: u32, per: u32) -> Follows {
        Follows { size, times, per: per.max(1) }
    }

    /// The number at values of the sizes.
    pub fn at(&self, values: &[i64]) -> u32 {
        let size = values.get(self.size).copied().and_then(|v| u64::try_from(v).ok()).unwrap_or(0);
        let parts = size.div_ceil(u64::from(self.per.max(1)));
        u32::try_from(parts.saturating_mul(u64::from(self.times))).unwrap_or(u32::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_takes_its_multiples() {
        let size = Size::new("M", 8, 64, 8).unwrap();
        assert!(size.takes(8) && size.takes(64) && !size.takes(12) && !size.takes(72) && !size.takes(0));
        assert_eq!(size.text(), "size M in 8..=64 by 8");
        assert!(
            Size::new("M", 1, 60, 8).is_err() && Size::new("M", 9, 8, 1).is_err() && Size::new("M", 0, 8, 1).is_err()
        );
        assert_eq!(size.check(12).unwrap_err().code(), Code::SizeValue);
        let helps = [0, 12, 72].map(|value| size.check(value).unwrap_err().helps().join("; "));
        let wider = "compile the program with a wider range of the size";
        assert_eq!(helps, ["skip the launch where M is 0", "give a multiple of 8: pad the arrays", wider]);
        assert!(Size::check_all([size.clone()].iter(), &[]).is_err());
        assert!(Size::check_all([size].iter(), &[16]).is_ok());
    }

    #[test]
    fn an_array_of_any_shape_gives_the_size_of_one_dimension() {
        let size = Size::new("M", 1, 64, 1).unwrap();
        let of = |shape: &[i64], strides: &[i64], given: &[usize]| {
            let array = Sized { name: "A", size: 0, shape, strides, given };
            values([&size].into_iter(), &[array]).map(|v| v[0])
        };
        assert_eq!(of(&[64], &[1], &[4, 8]), Ok(32));
        assert_eq!(of(&[64], &[1], &[7]), Ok(7));
        assert_eq!(of(&[64, 10], &[16, 1], &[26]), Ok(2));
        assert_eq!(of(&[64, 10], &[16, 1], &[5, 16]), Ok(5));
        for given in [&[9][..], &[0], &[usize::MAX, 2], &[]] {
            assert_eq!(of(&[64, 10], &[16, 1], given).unwrap_err().code(), Code::SizeValue, "{given:?}");
        }
        assert_eq!(of(&[64], &[1], &[usize::MAX, 2]).unwrap_err().code(), Code::SizeValue);
    }

    #[test]
    fn what_follows_is_rounded_up() {
        let rows = Follows::new(0, 3, 128);
        assert_eq!([1, 128, 129, 8192].map(|m| rows.at(&[m])), [3, 3, 6, 192]);
    }
}
