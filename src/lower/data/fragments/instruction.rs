//! A nest that is one instruction becomes a call.

use super::{Fragments, Nest, Use};
use crate::error::{Code, Error, Result};
use crate::intrin::{Place, Played, Row, Rows, Uneven};
use crate::ir::layout::Coordinate::{Index as At, Lane, Offset, Register, Warp};
use crate::ir::layout::{Coordinate, Layout};
use crate::ir::lowered::threads::LANES;
use crate::ir::simplify::{self, Env};
use crate::ir::{Block, Buffer, Call, For, Held, Index, Operand, Scope, Stmt};
use crate::lower::bug;
use crate::lower::map::blocks::guarded;
use crate::lower::point;

impl Fragments<'_> {
    /// The call that a tensorized nest is.
    pub(super) fn call(&mut self, l: &For, env: &Env) -> Result<Stmt> {
        let nest = Nest::of(self.func, l, &self.loops)?;
        let operands = nest.played.iter().map(|p| self.operand(nest.row, p, env)).collect::<Result<_>>()?;
        for played in &nest.played {
            if let Place::Rows(rows) = nest.row.operands[played.operand].place {
                let align = self.aligned.entry(played.buffer).or_default();
                *align = (*align).max(rows.align as u32);
            }
            if matches!(nest.row.operands[played.operand].place, Place::Descriptor { .. }) {
                let align = self.aligned.entry(played.buffer).or_default();
                *align = (*align).max(Self::unit_of(self.func.buffer(played.buffer)));
            }
        }
        let of = |p: &Played| self.loaded.iter().find(|l| l.buffer == p.buffer && nest.row.is_asynchronous());
        let columns = nest.played.iter().find_map(of).map(|l| l.columns.clone());
        let call = Stmt::Call(Call { row: nest.row.name.clone(), operands, adds: nest.adds.clone(), columns });
        let body = nest.conds.iter().fold(vec![call], |body, cond| guarded((*cond).clone(), body));
        match nest.label {
            Some(label) => Ok(Stmt::Block(Block { body, ..label.clone() })),
            None => Err(bug(Code::LowerFragments, format!("the nest of {} has no block", self.func.var_name(l.var)))
                .about_loop(self.func.var_name(l.var))),
        }
    }

    fn operand(&self, row: &'static Row, played: &Played, env: &Env) -> Result<Operand> {
        let operand = &row.operands[played.operand];
        let buffer = self.func.buffer(played.buffer);
        if !operand.scopes().contains(&buffer.scope) {
            return Err(self.misplaced(row, played));
        }
        let (indices, held) = match &operand.place {
            Place::Registers(_) | Place::Opaque(_) => self.registers(row, played, env)?,
            Place::Rows(rows) => self.rows(row, played, *rows, env)?,
            Place::Addresses(layout) => self.addresses(row, played, layout, env)?,
            Place::Descriptor { across } => self.descriptor(row, played, *across, env)?,
        };
        let result = played.operand == 0;
        let reads = !result || row.action.accumulates();
        Ok(Operand { buffer: played.buffer, reads, writes: result, indices, held })
    }

    fn misplaced(&self, row: &Row, played: &Played) -> Error {
        let (operand, buffer) = (&row.operands[played.operand], self.func.buffer(played.buffer));
        let message = format!(
            "operand {} of {} is a {} buffer, but {} is {}",
            operand.name,
            row.name,
            operand.scopes().iter().map(|s| s.name()).collect::<Vec<_>>().join(" or "),
            buffer.name,
            buffer.scope.name()
        );
        let error = Error::input(Code::LowerOperand, message).about_buffer(&buffer.name);
        match operand.scopes() {
            [Scope::Fragment] => error.help(format!("cache_read or cache_write makes a fragment of {}", buffer.name)),
            _ => error.help(format!("cache_read or cache_write makes a shared copy of {}", buffer.name)),
        }
    }

    /// A tile must lie at a multiple of its extents.
    fn check_place(&self, row: &Row, played: &Played, shape: &[i64], env: &Env) -> Result<()> {
        let wrong = played.base.iter().zip(shape).position(|(b, e)| simplify::divisor(b, env) % (*e).max(1) != 0);
        let Some(dim) = wrong else { return Ok(()) };
        let (name, first) = (&self.func.buffer(played.buffer).name, simplify::simplify(&played.base[dim], env));
        let message = format!(
            "{} works on {name} from index {} on in dimension {dim}, which is no multiple of its tile's {}",
            row.name,
            crate::ir::print::index(self.func, &first),
            shape[dim]
        );
        Err(Error::input(Code::LowerTile, message)
            .about_all(point::of_index(self.func, &first))
            .about_buffer(name)
            .help("split the loops so that the tiles of the instruction divide them"))
    }

    fn registers(&self, row: &'static Row, played: &Played, env: &Env) -> Result<(Vec<Index>, Held)> {
        let broken = || {
            bug(Code::LowerFragments, format!("{} has no place for {}", self.func.buffer(played.buffer).name, row.name))
                .about_buffer(&self.func.buffer(played.buffer).name)
        };
        let fragment = self.fragments.get(&played.buffer).ok_or_else(broken)?;
        let tile = Use::of(self.func, row, played, &self.threads.axes).ok_or_else(broken)?;
        self.check_place(row, played, &tile.own, env)?;
        let elements = fragment.elements_of(&tile).filter(|_| fragment.repeats(&tile.shape)).ok_or_else(broken)?;
        let at = |c: Coordinate| if let At(d) = c { played.base[d].clone() } else { Index::Int(0) };
        let first = fragment.layout.symbolic(Register, &at).ok_or_else(broken)?;
        Ok((vec![simplify::simplify(&first, env)], Held::Registers(elements)))
    }

    /// The address that each lane gives: of the first element of its run.
    fn addresses(&self, row: &Row, played: &Played, layout: &Layout, env: &Env) -> Result<(Vec<Index>, Held)> {
        let buffer = self.func.buffer(played.buffer);
        let broken = || {
            bug(Code::LowerFragments, format!("{} has no addresses in {}", row.name, buffer.name))
                .about_buffer(&buffer.name)
        };
        let bits = i64::from(buffer.dtype.bits());
        let run = layout.digits().iter().find(|d| d.to == Offset).ok_or_else(broken)?;
        let At(inner) = run.from else { return Err(broken()) };
        let shape: Vec<i64> = (0..buffer.shape.len())
            .map(|dim| played.along.iter().position(|a| *a == dim).map_or(1, |d| layout.extent(At(d))))
            .collect();
        self.check_place(row, played, &shape, env)?;
        let memory = Layout::of(buffer).ok_or_else(|| {
            Error::input(Code::LowerSize, format!("buffer {} has a symbolic shape, or no layout", buffer.name))
                .about_buffer(&buffer.name)
        })?;
        if memory.vector_width(At(played.along[inner]), bits) % run.extent != 0 {
            let message = format!(
                "{} reads or writes {} elements of {} at once along dimension {}, which are not adjacent from a \
                 multiple of 16 bytes on",
                row.name, run.extent, buffer.name, played.along[inner]
            );
            return Err(Error::input(Code::LowerTile, message)
                .about_buffer(&buffer.name)
                .help(format!(
                    "storage_align with an offset of a multiple of {} elements keeps rows aligned",
                    run.extent
                ))
                .help("a load with `trans` runs along the other dimension"));
        }
        let inverse = layout.inverse().ok_or_else(broken)?;
        let start = |c: Coordinate| match c {
            Lane => self.threads.lane.clone(),
            Warp => self.threads.thread.clone().floordiv(LANES),
            _ => Index::Int(0),
        };
        let mut indices = played.base.clone();
        for (d, dim) in played.along.iter().enumerate() {
            let inside = inverse.symbolic(At(d), &start).ok_or_else(broken)?;
            indices[*dim] = std::mem::replace(&mut indices[*dim], Index::Int(0)) + inside;
        }
        Ok((indices, Held::Address(run.extent as u32)))
    }

    /// Where a tile in memory begins, and how far apart its rows are.
    fn rows(&self, row: &Row, played: &Played, of: Rows, env: &Env) -> Result<(Vec<Index>, Held)> {
        let buffer = self.func.buffer(played.buffer);
        let stride = of.stride(buffer, &played.along, &played.base, env);
        let stride = stride.map_err(|why| self.uneven(row, played, of, &why))?;
        let meaning = row.program()?;
        let shape = meaning
            .buffer(
                meaning
                    .find_buffer(row.operands[played.operand].name)
                    .ok_or_else(|| bug(Code::LowerFragments, &row.name))?,
            )
            .const_shape();
        let [rows, run] = shape
            .as_deref()
            .and_then(|s| <[i64; 2]>::try_from(s).ok())
            .ok_or_else(|| bug(Code::LowerFragments, &row.name))?;
        Ok((played.base.clone(), Held::Rows { rows, run: run as u32, stride }))
    }

    fn uneven(&self, row: &Row, played: &Played, of: Rows, why: &Uneven) -> Error {
        let buffer = self.func.buffer(played.buffer);
        let (bits, dim) = (i64::from(buffer.dtype.bits()), played.along.first().copied().unwrap_or(0));
        let message = why.message(self.func, buffer, of);
        let error = Error::input(Code::LowerTile, format!("{}: {message}", row.name)).about_buffer(&buffer.name);
        match why {
            Uneven::Symbolic => Error::input(Code::LowerSize, message).about_buffer(&buffer.name),
            Uneven::Swizzled => error.help(format!(
                "storage_align {} 0 with an offset of {} elements spreads rows over the banks instead",
                buffer.name,
                128 / bits
            )),
            Uneven::Across(_) => error.help("the instruction of the other major runs along the other dimension"),
            Uneven::Stride(_) => error.help(self.aligned(buffer, dim, of.step * 8 / bits)),
            Uneven::Start(at) => error
                .about_all(point::of_index(self.func, at))
                .help(self.aligned(buffer, dim, of.align * 8 / bits))
                .help("or use an instruction whose tiles are longer along memory"),
        }
    }

    /// What makes rows lie at multiples of so many elements.
    fn aligned(&self, buffer: &Buffer, dim: usize, elements: i64) -> String {
        match buffer.scope {
            Scope::Shared => format!("storage_align {} {dim} {elements} 0 keeps its rows aligned", buffer.name),
            _ => format!(
                "rows of {} are the caller's: pass its tiles through a shared copy, whose rows storage_align keeps aligned",
                buffer.name
            ),
        }
    }
}
