//! What instructions say of tiles in their names: `wmma.load.b.sync.aligned.col.m16n16k16.shared.f16`.

/// Memories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// Device memory.
    Global,
    /// Shared memory.
    Shared,
    /// Parameters and constants; a parameter's value is its address.
    Param,
    /// A thread's own memory.
    Local,
}

/// A tile that a warp loads from memory or stores there, row by row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// Where it is.
    pub space: Space,
    /// Whether it is stored.
    pub write: bool,
    /// Rows, as memory has them.
    pub rows: u32,
    /// Elements of a row.
    pub run: i64,
    /// Bits of an element.
    pub bits: i64,
}

impl Tile {
    /// From the parts of an instruction's name.
    pub fn of(parts: &[&str]) -> Option<Tile> {
        let ["wmma", word @ ("load" | "store"), matrix, ..] = parts else { return None };
        let shape = parts.iter().find_map(|p| p.strip_prefix('m')?.split_once('n'))?;
        let (n, k) = shape.1.split_once('k')?;
        let [m, n, k] = [shape.0, n, k].map(|x| x.parse::<i64>().unwrap_or(0));
        let (rows, columns) = match *matrix {
            "a" => (m, k),
            "b" => (k, n),
            _ => (m, n),
        };
        let (rows, run) = if parts.contains(&"row") { (rows, columns) } else { (columns, rows) };
        let space = if parts.contains(&"shared") { Space::Shared } else { Space::Global };
        let bits = parts.last()?.trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse().ok()?;
        Some(Tile { space, write: *word == "store", rows: rows.try_into().ok()?, run, bits })
    }

    /// Bytes of a row.
    pub fn bytes(&self) -> i64 {
        self.run * self.bits / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_what_names_say() {
        let tile = |name: &str| Tile::of(&name.split('.').collect::<Vec<_>>());
        let b = tile("wmma.load.b.sync.aligned.col.m8n32k16.shared.f16").unwrap();
        assert_eq!((b.rows, b.run, b.bytes(), b.space, b.write), (32, 16, 32, Space::Shared, false));
        let d = tile("wmma.store.d.sync.row.m16n16k16.global.s32").unwrap();
        assert_eq!((d.rows, d.bytes(), d.space, d.write), (16, 64, Space::Global, true));
        assert_eq!(tile("wmma.mma.sync.row.col.m16n16k16.f32.f32"), None);
    }
}
