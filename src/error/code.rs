//! Codes of errors: which requirement is broken, as data that a program can compare.
//!
//! A code is printed as `area.word` (`lower.race`); the table lists them. A requirement of a primitive is its number in the
//! primitive's row (`split.2`), and an answer of the CUDA driver is the driver's number (`driver.222`).

use std::fmt::{Display, Formatter, Result};

/// Makes [`Area`] and [`Code`] of the table.
macro_rules! codes {
    ($($area:ident $name:literal $about:literal { $($code:ident $word:literal $meaning:literal $remedy:tt)* })*) => {
        /// What a code is about: its word before the dot.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Area {
            $(#[doc = $about] $area,)*
        }

        impl Area {
            /// Every area, in the order of the table.
            pub const ALL: &[Area] = &[$(Area::$area,)*];

            /// Its word, such as `lower`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Area::$area => $name,)*
                }
            }

            /// What its codes are about, in a sentence.
            pub fn about(self) -> &'static str {
                match self {
                    $(Area::$area => $about,)*
                }
            }
        }

        /// The broken requirement of an error.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            /// A requirement of a primitive, as its row numbers them from 1: `split.2`.
            Requirement {
                /// The name of the primitive.
                primitive: &'static str,
                /// The number of the requirement.
                number: usize,
            },
            /// A primitive does not find what it checked before: `split.lost`.
            Lost {
                /// The name of the primitive.
                primitive: &'static str,
            },
            /// An answer of the CUDA driver, by its number in `CUresult`: `driver.222`.
            Driver(i32),
            $($(#[doc = concat!("`", $name, ".", $word, "`: ", $meaning)] $code,)*)*
        }

        impl Code {
            /// Every code of the table: all but the requirements of primitives and the answers of the driver.
            pub const ALL: &[Code] = &[$($(Code::$code,)*)*];

            /// The row of a code of the table.
            pub(super) fn row(self) -> Option<super::Row> {
                match self {
                    Code::Requirement { .. } | Code::Lost { .. } | Code::Driver(_) => None,
                    $($(Code::$code => Some(super::Row {
                        area: Area::$area,
                        text: concat!($name, ".", $word),
                        meaning: $meaning,
                        remedy: $remedy,
                    }),)*)*
                }
            }
        }
    };
}

mod table;

pub use table::{Area, Code};

/// What the table says of a code.
struct Row {
    area: Area,
    /// As errors print the code.
    text: &'static str,
    meaning: &'static str,
    remedy: &'static str,
}

impl Code {
    /// What it is about; `None` for the requirements of a primitive.
    pub fn area(self) -> Option<Area> {
        match self {
            Code::Driver(_) => Some(Area::Driver),
            code => code.row().map(|row| row.area),
        }
    }

    /// What is wrong, in a sentence. The row of a primitive has the words of its requirements
    /// ([`crate::schedule::requirement`]).
    pub fn meaning(self) -> &'static str {
        match self {
            Code::Requirement { .. } => "A requirement of a step does not hold.",
            Code::Lost { .. } => "A step does not find what it checked before.",
            Code::Driver(_) => "The CUDA driver answers a call with this number of `CUresult`.",
            code => code.row().map_or("", |row| row.meaning),
        }
    }

    /// What the user should try, in a sentence or two. `None` for the requirements of a primitive, which the page of its step explains, and
    /// for the answers of the driver.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Code::Lost { .. } => Some(table::REPORT),
            code => code.row().map(|row| row.remedy),
        }
    }

    /// The code of the table that is printed so.
    pub fn listed(text: &str) -> Option<Code> {
        Code::ALL.iter().copied().find(|c| c.row().is_some_and(|row| row.text == text))
    }
}

/// As errors print it.
impl Display for Code {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Code::Requirement { primitive, number } => write!(f, "{primitive}.{number}"),
            Code::Lost { primitive } => write!(f, "{primitive}.lost"),
            Code::Driver(number) => write!(f, "driver.{number}"),
            code => f.pad(code.row().map_or("", |row| row.text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn codes_are_found_by_their_text_and_are_all_different() {
        let texts: BTreeSet<String> = Code::ALL.iter().map(Code::to_string).collect();
        assert_eq!(texts.len(), Code::ALL.len());
        for code in Code::ALL {
            let text = code.to_string();
            assert_eq!(Code::listed(&text), Some(*code));
            let (area, word) = text.split_once('.').unwrap();
            assert_eq!(code.area().map(Area::name), Some(area), "{text}");
            assert!(word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{text}");
            assert!(code.meaning().ends_with('.'), "{text}: {}", code.meaning());
        }
        let requirement = Code::Requirement { primitive: "split", number: 2 };
        let others = [requirement, Code::Lost { primitive: "split" }, Code::Driver(222)];
        assert_eq!(others.map(|c| c.to_string()), ["split.2", "split.lost", "driver.222"]);
        assert_eq!(others.map(Code::area), [None, None, Some(Area::Driver)]);
    }

    /// The most characters of a remedy.
    const LONGEST_REMEDY: usize = 140;

    #[test]
    fn every_code_of_the_table_has_a_remedy() {
        for code in Code::ALL {
            let remedy = code.remedy().unwrap_or_default();
            assert!(remedy.len() > 1 && remedy.ends_with('.'), "{code}: {remedy:?}");
            assert!(remedy != code.meaning() && remedy.len() <= LONGEST_REMEDY, "{code}: {remedy:?}");
            assert!(remedy.matches('`').count().is_multiple_of(2), "{code}: {remedy:?}");
        }
        let requirement = Code::Requirement { primitive: "split", number: 2 };
        let others = [requirement, Code::Lost { primitive: "split" }, Code::Driver(222)];
        assert_eq!(others.map(Code::remedy), [None, Some(table::REPORT), None]);
    }

    /// The text of every source but the table.
    fn sources(folder: &Path, out: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, out);
            } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("error/code/table.rs") {
                out.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }

    #[test]
    fn every_code_of_the_table_is_used() {
        let mut text = String::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut text);
        let words: BTreeSet<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let unused: Vec<&Code> = Code::ALL.iter().filter(|c| !words.contains(format!("{c:?}").as_str())).collect();
        assert!(unused.is_empty(), "no error has the codes {unused:?}");
    }
}
