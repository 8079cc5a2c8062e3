//! Where the elements of a fragment are: which lane holds them, and as which of its elements.

use super::distribute::lane_count;
use crate::error::{Code, Error, Result};
use crate::intrin::{Level, Opaque, Place, Played, Row};
use crate::ir::layout::Coordinate::{Bit, Element, Index as At, Lane, Register, Warp};
use crate::ir::layout::{Coordinate, Digit, Layout};
use crate::ir::lowered::LaunchAxis;
use crate::ir::lowered::threads::{LANES, WARPGROUP, for_thread};
use crate::ir::{BufferId, Func};
use crate::lower::bug;

/// What an instruction asks of a fragment.
pub struct Use {
    /// Whose.
    pub buffer: BufferId,
    /// The instruction.
    pub row: &'static str,
    /// Who asks, in messages.
    pub what: String,
    /// The extents of its tile along the buffer's dimensions; where each warp of a warpgroup has one, of all four.
    pub shape: Vec<i64>,
    /// Those of one tile alone.
    pub own: Vec<i64>,
    /// From an element of the tile to its lane and its number among the elements of the lane. The coordinate of that number
    /// is [`Register`]. Of an opaque tile to its number in the matrix.
    pub layout: Layout,
    /// Elements of a lane.
    pub elements: i64,
    /// Which one an opaque tile is.
    pub kind: Option<&'static str>,
    /// The threads that hold it together: 32 of a warp, or 128 of a warpgroup. Their numbers are the lanes of `layout`.
    pub threads: i64,
}

impl Use {
    /// `None` for an operand that is not in registers.
    pub fn of(func: &Func, row: &'static Row, played: &Played, launch: &[LaunchAxis]) -> Option<Use> {
        let operand = row.operands.get(played.operand)?;
        let (layout, opaque) = match &operand.place {
            Place::Registers(layout) => (layout, None),
            Place::Opaque(opaque) => (&opaque.layout, Some(opaque)),
            _ => return None,
        };
        let buffer = func.buffer(played.buffer);
        let bits = i64::from(buffer.dtype.bits());
        let dim = |c: Coordinate| match c {
            At(d) => At(played.along[d]),
            other => other,
        };
        let tile = layout.renamed(dim);
        let elements = tile.digits().iter().map(|d| match d.to {
            Register => Digit { stride: d.stride * (32 / bits).max(1), ..*d },
            Bit => Digit { to: Register, stride: d.stride / bits, ..*d },
            Warp => Digit { to: Lane, stride: d.stride * LANES, ..*d },
            _ => *d,
        });
        let mut digits = elements.collect::<Vec<_>>();
        let mut threads = if row.level == Level::Warpgroup { WARPGROUP } else { LANES };
        if let Some(d) = by_warps(played, launch, &|d| tile.extent(At(d))).filter(|_| threads == LANES) {
            // Each warp of a warpgroup has a tile of its own, side by side along an index: together they are one.
            digits.push(Digit::new(At(d), tile.extent(At(d)), WARPGROUP / LANES, Lane, LANES));
            threads = WARPGROUP;
        }
        let layout = Layout::new(digits);
        let shape = (0..buffer.shape.len()).map(|d| layout.extent(At(d))).collect();
        let elements = opaque.map_or(layout.span(Register), |o| o.slots(buffer.dtype.bits()));
        let kind = opaque.map(|o: &Opaque| o.kind.as_str());
        let what = format!("operand {} of {}", operand.name, row.name);
        let own = (0..buffer.shape.len()).map(|d| tile.extent(At(d))).collect();
        Some(Use { buffer: played.buffer, row: &row.name, what, shape, own, layout, elements, kind, threads })
    }

    /// Every element of the tile.
    fn points(&self) -> Vec<Vec<i64>> {
        self.shape.iter().fold(vec![Vec::new()], |all, &extent| {
            all.iter().flat_map(|p| (0..extent).map(move |x| [p.as_slice(), &[x]].concat())).collect()
        })
    }
}

/// The index along which the warps of a warpgroup have tiles side by side, of those extents.
fn by_warps(played: &Played, launch: &[LaunchAxis], extent: &dyn Fn(usize) -> i64) -> Option<usize> {
    let threads: i64 = launch.iter().filter(|l| !l.axis.is_block_level()).map(|l| i64::from(l.extent)).product();
    played.base.iter().enumerate().position(|(d, base)| {
        let at = |t: i64| for_thread(base, launch, t);
        let Some(first) = at(0) else { return false };
        let step = extent(d);
        (LANES..threads).step_by(LANES as usize).any(|t| at(t) != Some(first))
            && (0..threads).all(|t| at(t) == Some(first + step * (t / LANES % (WARPGROUP / LANES))))
    })
}

/// The place of every element of a fragment.
#[derive(Debug)]
pub struct Fragment {
    /// The instruction whose tile is repeated.
    pub row: &'static str,
    /// From the buffer's indices to lane and element of the lane.
    pub layout: Layout,
    /// Elements of a lane.
    pub elements: i64,
    /// Of opaque tiles the elements of a lane in one of them.
    pub slots: Option<i64>,
    /// Which one an opaque tile is.
    pub kind: Option<&'static str>,
    /// The threads that hold it together.
    pub threads: i64,
}

impl Fragment {
    /// The smallest tile of the instructions that use the buffer, repeated over it row by row; every other instruction must
    /// find the same elements in the same lanes.
    pub fn of(func: &Func, id: BufferId, uses: &[&Use]) -> Result<Fragment> {
        let buffer = func.buffer(id);
        let name = &buffer.name;
        let Some(first) = uses.iter().min_by_key(|u| u.shape.iter().product::<i64>()) else {
            return Err(bug(Code::LowerFragments, format!("no instruction uses fragment {name}")).about_buffer(name));
        };
        let shape = buffer.const_shape();
        let shape = shape
            .ok_or_else(|| bug(Code::LowerFragments, format!("{name} has no constant shape")).about_buffer(name))?;
        for other in uses {
            if let Some(d) = (0..shape.len()).find(|d| shape[*d] % other.shape[*d] != 0) {
                let message = format!(
                    "a warp holds {shape:?} elements of fragment {name} at a time, which the tiles {:?} of {} do not divide",
                    other.shape, other.what
                );
                return Err(Error::input(Code::LowerFragment, message)
                    .about_buffer(name)
                    .help(format!("split the loops so that index {d} runs through whole tiles inside a warp")));
            }
        }
        let (mut digits, mut stride) = (first.layout.digits().to_vec(), first.elements);
        for (d, extent) in shape.iter().enumerate().rev() {
            let tiles = extent / first.shape[d];
            digits.push(Digit::new(At(d), first.shape[d], tiles, Register, stride));
            stride *= tiles;
        }
        let (slots, kind) = (first.kind.map(|_| first.elements), first.kind);
        let threads = first.threads;
        if let Some(other) = uses.iter().find(|u| u.threads != threads) {
            let message = format!(
                "fragment {name} belongs to {threads} threads for {}, to {} for {}",
                first.what, other.threads, other.what
            );
            return Err(Error::input(Code::LowerFragment, message)
                .about_buffer(name)
                .help("bind the loop that gives each warp of a warpgroup its rows to warp"));
        }
        let fragment = Fragment { row: first.row, layout: Layout::new(digits), elements: stride, slots, kind, threads };
        for other in uses {
            fragment.agrees(name, first, other)?;
        }
        Ok(fragment)
    }

    /// Whether several lanes hold copies of each element: fewer lanes are told apart than there are.
    pub fn is_replicated(&self) -> bool {
        self.kind.is_none() && lane_count(&self.layout) < self.threads
    }

    /// The number of a lane's element, and the lane, of an element of the buffer.
    fn held(&self, point: &[i64]) -> (i64, i64) {
        let at = |c: Coordinate| if let At(d) = c { point[d] } else { 0 };
        (self.layout.value(Lane, &at), self.layout.value(Register, &at))
    }

    /// Opaque tiles are one matrix of one geometry and major, walked by the same indices.
    fn is_same_matrix(&self, name: &str, first: &Use, other: &Use) -> Result<()> {
        if first.kind == other.kind && first.layout == other.layout {
            return Ok(());
        }
        let what = |u: &Use| format!("{} ({})", u.what, u.kind.unwrap_or("known lanes"));
        let message = format!(
            "fragment {name} has two layouts, that of {} and that of {}, and the lane of an element may differ between \
             them",
            what(first),
            what(other)
        );
        Err(Error::input(Code::LowerFragment, message)
            .about_buffer(name)
            .help(
                "use instructions whose names agree in the matrix, its major and the shape, with loops matched to \
                   the same dimensions",
            )
            .help("or pass the values through shared memory"))
    }

    fn agrees(&self, name: &str, first: &Use, other: &Use) -> Result<()> {
        if first.kind.is_some() || other.kind.is_some() {
            return self.is_same_matrix(name, first, other);
        }
        for point in other.points() {
            let at = |c: Coordinate| if let At(d) = c { point[d] } else { 0 };
            let (own, theirs) = (self.held(&point).0, other.layout.value(Lane, &at));
            if own != theirs {
                let message = format!(
                    "fragment {name} has different layouts for two instructions: element {point:?} of a tile is in \
                     lane {own} for {}, in lane {theirs} for {}",
                    first.what, other.what
                );
                return Err(Error::input(Code::LowerFragment, message)
                    .about_buffer(name)
                    .help("a load with `trans` exchanges rows and columns of each 8 x 8 matrix")
                    .help("or pass the values through shared memory"));
            }
        }
        Ok(())
    }

    /// The elements of a lane that an instruction works on, in its order, from that of its tile's first element on. `None`
    /// where that differs between lanes.
    pub fn elements_of(&self, other: &Use) -> Option<Vec<i64>> {
        if self.kind.is_some() {
            return Some((0..other.elements).collect());
        }
        let mut out = vec![None; other.elements as usize];
        for point in other.points() {
            let at = |c: Coordinate| if let At(d) = c { point[d] } else { 0 };
            let slot = out.get_mut(other.layout.value(Register, &at) as usize)?;
            let element = self.held(&point).1;
            if slot.is_some_and(|known| known != element) {
                return None;
            }
            *slot = Some(element);
        }
        out.into_iter().collect()
    }

    /// Whether what a tile adds does not depend on where it lies, if it lies at multiples of these extents: no digit of
    /// the layout goes across.
    pub fn repeats(&self, shape: &[i64]) -> bool {
        self.layout.digits().iter().all(|d| {
            let At(dim) = d.from else { return true };
            let (tile, end) = (shape.get(dim).copied().unwrap_or(1), d.at * d.extent);
            let apart = d.at % tile == 0 || tile % end == 0;
            apart || (!matches!(d.to, Lane | Element) && tile % d.at == 0 && end % tile == 0)
        })
    }
}
