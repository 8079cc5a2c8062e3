//! What one memory instruction of a warp costs: the rules of the hardware, in one place.
//!
//! A request of shared memory is served in **wavefronts**: each brings up to one word from every bank, and a word that
//! several lanes want is brought once ([`conflict_degree`]). Lanes take part in groups: all 32 for accesses up to 4
//! bytes, 16 at a time for 8 bytes, 8 at a time for 16 bytes. A load of 8 or 16 bytes whose lanes want the same address
//! in pairs (each lane and its neighbour, or each lane and the next but one) is served with groups twice as large
//! (NVIDIA's forum, "Unexpected shared memory bank conflict", for compute capability 7.0 on).
//!
//! Device memory moves in **sectors** of 32 bytes; a request moves each sector that it touches once.

use crate::ir::layout::conflict_degree;

/// Lanes of a warp.
pub const LANES: usize = 32;
/// Bytes of a bank's word.
pub const WORD: i64 = 4;
/// Bytes of a sector.
pub const SECTOR: i64 = 32;
pub use crate::target::LINE;

/// Where the lanes of a warp go in one request: the byte address of each lane that takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lanes {
    /// By lane; what is not active may be anything.
    pub at: [i64; LANES],
    /// A bit for each lane.
    pub active: u32,
}

impl Lanes {
    /// The first lanes, at these addresses; those beyond the 32nd are passed over.
    pub fn new(addresses: &[i64]) -> Lanes {
        let mut lanes = Lanes { at: [0; LANES], active: 0 };
        for (lane, address) in addresses.iter().enumerate().take(LANES) {
            lanes.at[lane] = *address;
            lanes.active |= 1 << lane;
        }
        lanes
    }

    /// Whether the lane takes part.
    pub fn runs(&self, lane: usize) -> bool {
        self.active >> lane & 1 == 1
    }

    /// The addresses of the lanes that take part.
    pub fn addresses(&self) -> impl Iterator<Item = i64> + '_ {
        self.at.iter().enumerate().filter(|(lane, _)| self.runs(*lane)).map(|(_, a)| *a)
    }

    /// Whether each active lane wants what the active lane `distance` away from it wants.
    fn paired(&self, distance: usize) -> bool {
        let same = |l: usize| !self.runs(l) || !self.runs(l ^ distance) || self.at[l] == self.at[l ^ distance];
        (0..LANES).all(same)
    }
}

/// What a request of shared memory costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Conflicts {
    /// Wavefronts that serve it.
    pub wavefronts: u64,
    /// Wavefronts of a request of this width by these lanes without conflicts.
    pub ideal: u64,
    /// The most different words that one bank is asked for at once; 1 without conflicts, n for an n-way conflict.
    pub degree: u64,
}

/// The wavefronts of a request of `width` bytes a lane.
pub fn bank_conflicts(lanes: &Lanes, width: i64, write: bool) -> Conflicts {
    let mut group = match width {
        ..=4 => LANES,
        5..=8 => LANES / 2,
        9..=16 => LANES / 4,
        // Rows of a tile that is loaded as a whole: as many as fill the banks.
        _ => (LANES as i64 * WORD / width).max(1) as usize,
    };
    if !write && group < LANES && (lanes.paired(1) || lanes.paired(2)) {
        group *= 2;
    }
    let mut all = Conflicts::default();
    for first in (0..LANES).step_by(group) {
        let wanted = lanes.active & (u32::MAX >> (LANES - group)) << first;
        if wanted != 0 {
            let mut asked: Vec<i64> = Lanes { active: wanted, ..*lanes }.addresses().collect();
            asked.sort_unstable();
            asked.dedup();
            // Of a group twice as large no more addresses are left than of one.
            let degree = conflict_degree(width, &asked) as u64;
            all.wavefronts += degree;
            all.ideal += 1;
            all.degree = all.degree.max(degree);
        }
    }
    all
}

/// What a request of device memory costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sectors {
    /// Sectors that it touches.
    pub touched: u64,
    /// Sectors that the same bytes fill when they are contiguous.
    pub ideal: u64,
}

/// The sectors of a request of `width` bytes a lane.
pub fn sectors(lanes: &Lanes, width: i64) -> Sectors {
    let mut starts: Vec<i64> = lanes.addresses().collect();
    starts.sort_unstable();
    let (mut touched, mut bytes) = (0i64, 0i64);
    // The end of what is covered so far, and the first sector behind it.
    let (mut end, mut sector) = (i64::MIN, i64::MIN);
    for start in starts {
        let stop = start + width.max(1);
        bytes += stop - start.max(end).min(stop);
        end = end.max(stop);
        let last = (stop - 1).div_euclid(SECTOR);
        let first = start.div_euclid(SECTOR).max(sector);
        touched += (last + 1 - first).max(0);
        sector = sector.max(last + 1);
    }
    Sectors { touched: touched as u64, ideal: (bytes as u64).div_ceil(SECTOR as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(bytes: i64) -> Lanes {
        from(0, bytes)
    }

    fn from(start: i64, bytes: i64) -> Lanes {
        Lanes::new(&(0..32).map(|l| start + l * bytes).collect::<Vec<_>>())
    }

    /// Wavefronts, the ideal, and the degree of a load.
    fn load(lanes: &Lanes, width: i64) -> (u64, u64, u64) {
        let c = bank_conflicts(lanes, width, false);
        (c.wavefronts, c.ideal, c.degree)
    }

    fn store(lanes: &Lanes, width: i64) -> (u64, u64, u64) {
        let c = bank_conflicts(lanes, width, true);
        (c.wavefronts, c.ideal, c.degree)
    }

    fn moved(lanes: &Lanes, width: i64) -> (u64, u64) {
        let s = sectors(lanes, width);
        (s.touched, s.ideal)
    }

    #[test]
    fn words_of_different_banks_come_together() {
        assert_eq!(load(&step(4), 4), (1, 1, 1));
        // A column of a 32 x 32 tile, and of one whose rows are padded to 33.
        assert_eq!(load(&step(128), 4), (32, 1, 32));
        assert_eq!(load(&step(132), 4), (1, 1, 1));
        // Steps of 2, 3, 4 and 16 words.
        assert_eq!([8, 12, 16, 64].map(|s| load(&step(s), 4).0), [2, 1, 4, 16]);
        assert_eq!(store(&step(8), 4), (2, 1, 2));
    }

    #[test]
    fn a_word_that_several_lanes_want_comes_once() {
        assert_eq!(load(&step(0), 4), (1, 1, 1));
        let in_rows_of_16 = Lanes::new(&(0..32).map(|l| l % 16 * 4).collect::<Vec<_>>());
        assert_eq!(load(&in_rows_of_16, 4), (1, 1, 1));
        // Neighbours in one word: f16 and s8.
        assert_eq!((load(&step(2), 2), load(&step(1), 1)), ((1, 1, 1), (1, 1, 1)));
        assert_eq!((store(&step(2), 2), store(&step(1), 1)), ((1, 1, 1), (1, 1, 1)));
        // A column of f16 in rows of 64, and of 64 + 8: rows are 36 words apart, so every eighth row shares a bank.
        assert_eq!(load(&step(128), 2), (32, 1, 32));
        assert_eq!(load(&step(144), 2), (4, 1, 4));
    }

    #[test]
    fn wide_accesses_are_served_in_groups() {
        assert_eq!(load(&step(8), 8), (2, 2, 1));
        assert_eq!(load(&step(16), 16), (4, 4, 1));
        assert_eq!(store(&step(16), 16), (4, 4, 1));
        // 16 bytes from rows of 128 bytes: 8 lanes in the same 4 banks; 64 + 8 halves in a row part them.
        assert_eq!(load(&step(128), 16), (32, 4, 8));
        assert_eq!(load(&step(144), 16), (4, 4, 1));
        // 8 bytes every 16: the 16 lanes of a group are in 16 of 32 banks, twice.
        assert_eq!(load(&step(16), 8), (4, 2, 2));
        assert_eq!(load(&step(32), 16), (8, 4, 2));
    }

    #[test]
    fn pairs_of_lanes_that_want_the_same_share_a_wavefront() {
        let pairs = |distance: i64, bytes: i64| {
            let number = |l: i64| if distance == 1 { l / 2 } else { l / 4 * 2 + l % 2 };
            Lanes::new(&(0..32).map(|l| number(l) * bytes).collect::<Vec<_>>())
        };
        assert_eq!((load(&pairs(1, 16), 16), load(&pairs(2, 16), 16)), ((2, 2, 1), (2, 2, 1)));
        assert_eq!((load(&pairs(1, 8), 8), load(&step(0), 16)), ((1, 1, 1), (2, 2, 1)));
        // Stores return nothing, so there is nothing to pack.
        assert_eq!(store(&pairs(1, 16), 16), (4, 4, 1));
        // Lanes of one half that want what the other half wants are no neighbours.
        let halves = Lanes::new(&(0..32).map(|l| l % 16 * 16).collect::<Vec<_>>());
        assert_eq!(load(&halves, 16), (4, 4, 1));
    }

    #[test]
    fn lanes_that_do_not_take_part_ask_for_nothing() {
        let column = step(128);
        assert_eq!(load(&Lanes { active: 0xff, ..column }, 4), (8, 1, 8));
        assert_eq!(load(&Lanes { active: 1 << 31, ..column }, 16), (1, 1, 1));
        assert_eq!(load(&Lanes { active: 0, ..column }, 4), (0, 0, 0));
        assert_eq!(moved(&Lanes { active: 0x3, ..column }, 4), (2, 1));
        assert_eq!(moved(&Lanes { active: 0, ..column }, 4), (0, 0));
    }

    #[test]
    fn sectors_are_counted_once_each() {
        assert_eq!(moved(&step(4), 4), (4, 4));
        assert_eq!(moved(&step(16), 16), (16, 16));
        assert_eq!(moved(&step(2), 2), (2, 2));
        // Neighbours that begin 4 bytes past a sector.
        assert_eq!(moved(&from(4, 4), 4), (5, 4));
        assert_eq!(moved(&from(-4, 4), 4), (5, 4));
        // Every second, every eighth, one for all.
        assert_eq!(moved(&step(8), 4), (8, 4));
        assert_eq!(moved(&step(32), 4), (32, 4));
        assert_eq!(moved(&step(0), 4), (1, 1));
        // Two rows of 16 lanes far apart; overlapping vectors; the order of the lanes does not matter.
        let rows = Lanes::new(&(0..32).map(|l| l / 16 * 4096 + l % 16 * 4).collect::<Vec<_>>());
        assert_eq!(moved(&rows, 4), (4, 4));
        assert_eq!(moved(&step(8), 16), (9, 9));
        let backwards = Lanes::new(&(0..32).map(|l| (31 - l) * 4).collect::<Vec<_>>());
        assert_eq!(moved(&backwards, 4), (4, 4));
    }
}
