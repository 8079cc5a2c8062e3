//! What becomes of a verdict: a claim that is proved is counted, one that is refuted is an error, and one that is not decided is
//! refused unless the program allows that it is tested.

use super::points::{Ranged, tried};
use crate::error::{Code, Error, Result};
use crate::ir::decide::{Verdict, always};
use crate::ir::{Cond, Func};
use std::cell::RefCell;

/// How a program's legality is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Assurance {
    /// Claims that were proved.
    pub proved: usize,
    /// Claims that were not decided, and only tried at some points.
    pub tested: Vec<Tested>,
}

/// A claim that was not decided.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tested {
    /// The requirement (`verify.bounds`).
    pub code: Code,
    /// What is claimed.
    pub claim: String,
    /// At how many points it was tried.
    pub points: usize,
}

impl std::fmt::Display for Assurance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proved: {} claims", self.proved)?;
        self.tested.iter().try_for_each(|t| write!(f, "\nTested({}): {} [{}]", t.points, t.claim, t.code))
    }
}

/// The judge of one program.
pub struct Judge<'a> {
    /// The program.
    pub func: &'a Func,
    found: RefCell<Assurance>,
}

impl<'a> Judge<'a> {
    pub fn new(func: &'a Func) -> Judge<'a> {
        Judge { func, found: RefCell::default() }
    }

    /// What was found so far.
    pub fn assurance(self) -> Assurance {
        self.found.into_inner()
    }

    /// A claim was proved.
    pub fn proved(&self) {
        self.found.borrow_mut().proved += 1;
    }

    /// A claim that no proof is tried for, and that is no reason to refuse a program.
    pub fn tried(&self, claim: Tested) {
        self.found.borrow_mut().tested.push(claim);
    }

    /// Values for which `given` holds and `cond` does not; `None` if that is proved impossible, or was tried and not found where the
    /// program allows that.
    ///
    /// # Errors
    /// `code` where it is not decided and the program does not allow that it is tested.
    pub fn counterexample(
        &self,
        code: Code,
        cond: &Cond,
        given: &Cond,
        vars: &[Ranged],
        claim: &dyn Fn() -> String,
    ) -> Result<Option<Vec<Ranged>>> {
        match always(cond, given, vars) {
            Verdict::Proved => {
                self.proved();
                Ok(None)
            }
            Verdict::Refuted(point) => Ok(Some(point)),
            Verdict::Undecided => match tried(cond, given, vars) {
                (Some(point), _) => Ok(Some(point)),
                (None, points) => self.undecided(code, points, claim).map(|()| None),
            },
        }
    }

    /// A claim was not decided; it held at so many points.
    ///
    /// # Errors
    /// `code`, unless the program allows that it is tested.
    pub fn undecided(&self, code: Code, points: usize, claim: &dyn Fn() -> String) -> Result<()> {
        let claim = claim();
        if self.func.allow_tested {
            self.found.borrow_mut().tested.push(Tested { code, claim, points });
            return Ok(());
        }
        let message = format!(
            "it is not proved that {claim}; it held at {} that were tried",
            crate::error::counted(points, "point")
        );
        Err(Error::input(code, message)
            .help("write indices as sums of loop variables with constant factors, and their quotients and remainders by constants")
            .help("or allow it with --allow-tested (`Schedule::allow_tested()` in the library): the schedule is then shown as tested"))
    }
}
