//! Integer arithmetic of indices that knows no program: questions, decided; [`Digit`]s of numbers; assignments, counted out ([`Points`]).
//!
//! A [`Question`] has variables with ranges and a formula over terms: sums, products with constants, quotients and remainders by
//! constants, minima, maxima, exclusive or, and products of terms. [`Question::decide`] finds a point that satisfies the formula, shows
//! that there is none, or says that its budget did not suffice. To prove a claim, one asks for a point that violates it.
//!
//! The procedure is exact; nothing is sampled. In each branch of the search
//!
//! 1. quotients and remainders are variables with an equation (`x = by * q + r`, `0 <= r < by`), shared between equal terms;
//! 2. the procedure divides each equation by the greatest common divisor of its coefficients and refutes the equation if the constant
//!    is no multiple of it. If the ranges leave the terms with small coefficients one value, the equation splits into two (as the
//!    digits of a number do). Otherwise the procedure solves it for a variable, by Euclid's algorithm if no coefficient is 1;
//! 3. ranges and rows narrow each other;
//! 4. Fourier-Motzkin elimination with integer tightening shows that nothing is left, or gives a point to try;
//! 5. else the branch is divided: at a disjunction, at a factor of a product, at a sum with few values, at a variable.
//!
//! [`Answer::Point`] has been evaluated against the question as it was asked. Arithmetic is checked: what does not fit ends as
//! [`Answer::Undecided`]. The budget counts steps, so that the same question has the same answer everywhere.

mod digit;
mod equation;
mod linear;
mod points;
mod project;
mod question;
mod search;
mod state;
#[cfg(test)]
mod tests;

pub use digit::Digit;
pub use linear::{Int, Linear, Variable};
pub use points::{POINTS, Points, volume};
pub use question::{Compare, Formula, Question};

/// What is known of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// No point satisfies it.
    Impossible,
    /// This one does: the values of the variables by number, those of terms included.
    Point(Vec<Int>),
    /// The budget is spent, or a number is too large.
    Undecided,
}

/// Steps that a question may take unless its asker says otherwise.
pub const STEPS: u64 = 1 << 21;

impl Question {
    /// Answers within a number of steps; also says how many were taken.
    pub fn decide(&self, steps: u64) -> (Answer, u64) {
        let budget = state::Budget::new(steps);
        let answer = search::search(self, &budget);
        (answer, steps - budget.left())
    }

    /// The value that a term has at a point.
    pub fn value(&self, point: &[Int], term: &Linear) -> Option<Int> {
        term.eval(&|v| point.get(v.0 as usize).copied())
    }
}
