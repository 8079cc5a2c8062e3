//! The banks of shared memory: 32 of four bytes each (CUDA C++ Programming Guide, "Shared Memory").

use std::collections::BTreeSet;

const BANKS: i64 = 32;
const WORD: i64 = 4;

/// How often the busiest bank is asked for another word while lanes access `bytes` each at these addresses: 1 is free of
/// conflicts.
///
/// Lanes that access 8 bytes go in two halves, those that access 16 in four quarters, each of 128 bytes; lanes that meet in a
/// word are served together.
pub fn conflict_degree(bytes: i64, addresses: &[i64]) -> i64 {
    let together = (BANKS * WORD / bytes.max(WORD)).max(1) as usize;
    addresses.chunks(together).map(|phase| busiest(bytes, phase)).max().unwrap_or(1)
}

fn busiest(bytes: i64, phase: &[i64]) -> i64 {
    let words: BTreeSet<i64> =
        phase.iter().flat_map(|a| a.div_euclid(WORD)..=(a + bytes.max(1) - 1).div_euclid(WORD)).collect();
    let mut asked = [0i64; BANKS as usize];
    words.iter().for_each(|w| asked[w.rem_euclid(BANKS) as usize] += 1);
    asked.into_iter().max().unwrap_or(0)
}
