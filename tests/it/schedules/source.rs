//! [`Source`]: where a generator takes its choices from, a seed or the bytes of a fuzzer.

/// Choices. From bytes they are a function of the bytes alone; when the bytes are used up, every choice is the first.
pub enum Source<'a> {
    /// Pseudo-random.
    Seed(fastrand::Rng),
    /// A fuzzer's input.
    Bytes(&'a [u8]),
}

impl Source<'_> {
    /// Choices that follow from a seed.
    pub fn seeded(seed: u64) -> Source<'static> {
        Source::Seed(fastrand::Rng::with_seed(seed))
    }

    /// Any number below `n`; 0 where there is none.
    pub fn below(&mut self, n: usize) -> usize {
        match self {
            _ if n <= 1 => 0,
            Source::Seed(rng) => rng.usize(0..n),
            Source::Bytes(bytes) => {
                let taken = bytes.len().min(2);
                let (head, rest) = bytes.split_at(taken);
                *bytes = rest;
                head.iter().fold(0, |sum, b| sum * 256 + usize::from(*b)) % n
            }
        }
    }

    /// Whether something of this many in a hundred happens.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(self.below(all.len())).copied()
    }

    /// One of a list that is not empty.
    pub fn of<T: Copy, const N: usize>(&mut self, all: [T; N]) -> T {
        const { assert!(N > 0) }
        all[self.below(N)]
    }

    /// In any order.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for n in (1..all.len()).rev() {
            all.swap(n, self.below(n + 1));
        }
    }
}
