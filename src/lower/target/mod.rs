//! What the chip decides: instructions that it lacks and limits that a program exceeds.

pub mod admit;
