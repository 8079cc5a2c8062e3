//! Why one access waits for another, in the words of dumps.

use super::{By, Site, Sites};

impl Sites<'_> {
    /// Why the later access has to wait for the earlier one.
    pub fn reason(&self, before: usize, now: usize) -> String {
        let (a, b) = (&self.sites[before], &self.sites[now]);
        let kind = match (a.write, b.write) {
            (true, false) => "RAW",
            (false, true) => "WAR",
            _ => "WAW",
        };
        let name = |s: &Site| self.kernel.func.buffer(s.buffer).name.clone();
        let verb = |s: &Site| if s.write { "writes" } else { "reads" };
        let stored = matches!(a.by, By::Store { .. });
        let earlier = match self.ring(before, now).filter(|_| stored) {
            Some((_, slots)) if before > now => format!(" {} before", crate::error::counted(slots, "iteration")),
            _ if before >= now => " in the iteration before".to_string(),
            _ => String::new(),
        };
        if a.buffer == b.buffer {
            let did = match (a.write, a.by) {
                (true, By::Copy) => "copied",
                (true, By::Load { .. }) => "loaded",
                (true, _) => "wrote",
                (false, By::Store { .. }) => "stores",
                (false, _) => "read",
            };
            format!("{kind} {}: {} {} what {} {did}{earlier}", name(a), b.block, verb(b), a.block)
        } else {
            let (new, old) = (name(b), name(a));
            format!("{kind} {new}: {} {} bytes that {} used as {old}{earlier}", b.block, verb(b), a.block)
        }
    }
}
