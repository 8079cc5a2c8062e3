//! Tiles of shared memory behind wgmma's matrix descriptors (PTX ISA, "Matrix Descriptor Format" and "Strides").
//!
//! | bits | field |
//! |---|---|
//! | 0 to 13 | start address / 16 |
//! | 16 to 29 | leading dimension byte offset / 16 |
//! | 32 to 45 | stride dimension byte offset / 16 |
//! | 49 to 51 | base offset: the row of 128 bytes at which a pattern of the swizzle begins |
//! | 62 and 63 | swizzle: 0 none, 1 of 128 bytes, 2 of 64, 3 of 32 |
//!
//! A tile is made of chunks of 16 bytes; 8 rows of W bytes are a core, where W is the swizzle's bytes, or 16 without.
//!
//! | major | W | chunk c of row r (of k, or of m and n where they run along the chunks) is |
//! |---|---|---|
//! | k | 16 | 16 (r mod 8) + stride (r div 8) + leading c |
//! | k | 32 to 128 | W (r mod 8) + stride (r div 8) + 16 c |
//! | m, n | 16 | 16 (r mod 8) + leading (r div 8) + stride c |
//! | m, n | 32 to 128 | W (r mod 8) + stride (r div 8) + 16 (c mod W/16) + leading (c div W/16) |
//!
//! bytes behind the start. The swizzle then exchanges bits of that address: bits 4 and up with bits 7 and up, one bit
//! for W of 32, two for 64, three for 128.

/// A decoded descriptor; everything in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub start: u64,
    pub leading: u64,
    pub stride: u64,
    /// The row of 128 bytes at which a pattern begins.
    pub base: u64,
    /// 16 without a swizzle.
    pub width: u64,
}

/// Bits of an address that a descriptor can hold.
pub(super) const ADDRESS: u64 = 0x3_ffff;

impl Descriptor {
    pub fn decode(bits: u64) -> Descriptor {
        let field = |from: u32| (bits >> from & 0x3fff) << 4;
        let width = match bits >> 62 {
            0 => 16,
            1 => 128,
            2 => 64,
            _ => 32,
        };
        Descriptor { start: field(0), leading: field(16), stride: field(32), base: bits >> 49 & 7, width }
    }

    /// The address of a chunk of 16 bytes: the `chunk`-th of `row`. Rows are of k where `along_k` is false.
    pub fn address(&self, along_k: bool, row: u64, chunk: u64) -> u64 {
        let (in_core, core) = (row % 8 * self.width, row / 8);
        let behind = match (along_k, self.width) {
            (true, 16) => in_core + core * self.stride + chunk * self.leading,
            (true, _) => in_core + core * self.stride + chunk * 16,
            (false, 16) => in_core + core * self.leading + chunk * self.stride,
            (false, width) => {
                let chunks = width / 16;
                in_core + core * self.stride + chunk % chunks * 16 + chunk / chunks * self.leading
            }
        };
        let address = (self.start + behind) & ADDRESS;
        let pattern = (address >> 7).wrapping_sub(self.base);
        address ^ ((pattern & (self.width / 16 - 1)) << 4)
    }
}

/// The address of byte `linear` of a box of a bulk tensor copy to `start`, under a swizzle of so many bytes (16: none).
pub(super) fn swizzled(start: u64, linear: u64, width: u64) -> u64 {
    let address = start + linear;
    address ^ ((address >> 7 & (width / 16 - 1)) << 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(start: u64, leading: u64, stride: u64, swizzle: u64) -> u64 {
        start >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32 | swizzle << 62
    }

    #[test]
    fn fields_are_where_the_isa_has_them() {
        let found = Descriptor::decode(encode(0x1_2340, 0x80, 0x400, 1) | 5 << 49);
        assert_eq!(found, Descriptor { start: 0x1_2340, leading: 0x80, stride: 0x400, base: 5, width: 128 });
        assert_eq!([0, 1, 2, 3].map(|s| Descriptor::decode(encode(0, 0, 0, s)).width), [16, 128, 64, 32]);
    }

    #[test]
    fn without_a_swizzle_cores_are_eight_rows_of_one_chunk() {
        // "No-swizzle, K-major": core matrices of 8 x 16 bytes, contiguous; the leading offset goes along k, the stride
        // along m.
        let d = Descriptor::decode(encode(0x400, 128, 256, 0));
        assert_eq!(d.address(true, 0, 0), 0x400);
        assert_eq!(d.address(true, 7, 0), 0x400 + 7 * 16);
        assert_eq!(d.address(true, 8, 0), 0x400 + 256);
        assert_eq!(d.address(true, 8, 1), 0x400 + 256 + 128);
        // MN-major: 8 k of 16 bytes; the leading offset goes along k, the stride along m.
        assert_eq!(d.address(false, 7, 0), 0x400 + 7 * 16);
        assert_eq!(d.address(false, 8, 0), 0x400 + 128);
        assert_eq!(d.address(false, 0, 3), 0x400 + 3 * 256);
    }

    #[test]
    fn swizzles_exchange_chunks_within_their_width() {
        // The pattern of 128 bytes: chunk c of row r of an atom of 1024 bytes is at chunk c xor r.
        let d = Descriptor::decode(encode(0x800, 16, 1024, 1));
        for row in 0..16 {
            for chunk in 0..8 {
                let expected = 0x800 + row / 8 * 1024 + row % 8 * 128 + (chunk ^ (row % 8)) * 16;
                assert_eq!(d.address(true, row, chunk), expected);
            }
        }
        // 64 bytes: two rows share 128 bytes, and rows 2 n and 2 n + 1 are exchanged by n mod 4.
        let d = Descriptor::decode(encode(0x800, 16, 512, 2));
        for row in 0..8 {
            for chunk in 0..4 {
                assert_eq!(d.address(true, row, chunk), 0x800 + row * 64 + (chunk ^ (row / 2)) * 16);
            }
        }
        // 32 bytes: four rows share 128 bytes.
        let d = Descriptor::decode(encode(0x800, 16, 256, 3));
        for row in 0..8 {
            for chunk in 0..2 {
                assert_eq!(d.address(true, row, chunk), 0x800 + row * 32 + (chunk ^ (row / 4)) * 16);
            }
        }
        // A step of 32 bytes along k begins inside the atom and follows the same pattern: chunk 2 of row 3 is at 1.
        let d = Descriptor::decode(encode(0x820, 16, 1024, 1));
        assert_eq!(d.address(true, 3, 0), 0x800 + 3 * 128 + 16);
        // Across: 64 elements of 16 bits of m are a row of an atom; the next 64 are a leading offset away.
        let d = Descriptor::decode(encode(0x1000, 0x2000, 0x400, 1));
        assert_eq!(d.address(false, 3, 5), 0x1000 + 3 * 128 + (5 ^ 3) * 16);
        assert_eq!(d.address(false, 11, 5), 0x1000 + 0x400 + 3 * 128 + (5 ^ 3) * 16);
        assert_eq!(d.address(false, 3, 13), 0x1000 + 0x2000 + 3 * 128 + (5 ^ 3) * 16);
    }

    #[test]
    fn a_base_offset_moves_the_pattern() {
        let aligned = Descriptor::decode(encode(0x800, 16, 1024, 1));
        let moved = Descriptor::decode(encode(0x880, 16, 1024, 1) | 1 << 49);
        for (row, chunk) in (0..7).flat_map(|r| (0..8).map(move |c| (r, c))) {
            assert_eq!(moved.address(true, row, chunk), aligned.address(true, row, chunk) + 128);
        }
    }

    #[test]
    fn boxes_and_tiles_share_their_swizzle() {
        let d = Descriptor::decode(encode(0x2000, 16, 512, 2));
        for (row, chunk) in (0..16).flat_map(|r| (0..4).map(move |c| (r, c))) {
            assert_eq!(swizzled(0x2000, row * 64 + chunk * 16, 64), d.address(true, row, chunk));
        }
    }
}
