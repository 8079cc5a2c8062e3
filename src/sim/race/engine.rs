//! Accesses of TMA, and where one of them is the partner that is looked for.

use super::{Clock, clocks};
use crate::sim::clocks::Accessor;
use crate::sim::code::Access;
use crate::sim::memory::Memory;

impl Clock {
    /// Notes an access of these units by TMA; the unit where it races.
    pub fn observe_engine(
        &mut self,
        memory: &mut Memory,
        (access, rank): (&Access, usize),
        by: Accessor,
        write: bool,
        mut units: impl Iterator<Item = usize>,
    ) -> Result<(), usize> {
        let (now, life) = (self.tick(), self.life(access));
        let Some(watch) = self.watch else {
            let lands = write && access.copies;
            for unit in units {
                let Some(cell) = memory.cells.get_mut(unit) else { continue };
                let good = match write {
                    true => self.clocks.write(cell, by, now, life, lands),
                    false => self.clocks.read(cell, by, now, life),
                };
                if !good {
                    return Err(unit);
                }
                if let (true, Some(start)) = (lands, memory.starts.get_mut(unit)) {
                    *start = by.stamp(now);
                }
            }
            return Ok(());
        };
        let unordered = match watch.partner {
            Some(partner) => clocks::is_of(partner, by.stamp(now), watch.stamp),
            None => !self.clocks.after(watch.stamp, by, life),
        };
        let found = units.find(|u| *u == watch.unit).filter(|_| watch.may_be(access.place, rank, write) && unordered);
        found.map_or(Ok(()), Err)
    }
}
