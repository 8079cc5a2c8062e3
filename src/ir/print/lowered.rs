//! What is in Lowered alone, as text.

use super::Printer;
use crate::ir::{BulkCopy, Call, Columns, Elect, Held, RoleBody, Slot, Sync, SyncKind, Way};

impl Printer<'_> {
    /// `ROW D[..] A[..] B[..]`, each with the elements that a lane holds, or finds behind its address.
    pub(super) fn call_of(&mut self, call: &Call) {
        self.put(&call.row);
        for operand in &call.operands {
            self.put(" ");
            match &operand.held {
                Held::Address(lanes) => self.access(operand.buffer, &operand.indices, *lanes),
                Held::Rows { rows, run, stride } => {
                    self.access(operand.buffer, &operand.indices, *run);
                    self.put(&format!(" x {rows} by {stride}"));
                }
                Held::Descriptor(d) => {
                    self.access(operand.buffer, &operand.indices, 1);
                    let major = if d.along_k { "K" } else { "MN" };
                    self.put(&format!(" x {:?} {major}-major", d.tile));
                    if d.swizzle > 0 {
                        self.put(&format!(" swizzle {}", d.swizzle));
                    }
                    if d.adds_constant {
                        self.put(" adding the constant");
                    }
                }
                Held::Registers(elements) if elements.iter().copied().eq(0..elements.len() as i64) => {
                    self.access(operand.buffer, &operand.indices, elements.len() as u32);
                }
                Held::Registers(elements) => {
                    self.access(operand.buffer, &operand.indices, 1);
                    self.put(&format!("{elements:?}"));
                }
            }
        }
        if let Some(adds) = &call.adds {
            self.put(" adds where ");
            self.cond(adds);
        }
        if let Some(Columns { below, unit }) = &call.columns {
            self.put(" columns below ");
            self.index(below);
            self.put(&format!(" by {unit}"));
        }
        self.end();
    }

    /// `bulk S[..] <- G(..), full[s]`, or the other way round.
    pub(super) fn bulk(&mut self, copy: &BulkCopy) {
        self.put("bulk ");
        let box_of = |p: &mut Self| {
            p.buffer_name(copy.global);
            p.put("(");
            p.separated(&copy.coordinates, |p, i| p.index(i));
            p.put(")");
        };
        match &copy.way {
            Way::Store => {
                box_of(self);
                self.put(" <- ");
                self.access(copy.shared, &copy.indices, 1);
            }
            Way::Load { full, multicast } => {
                self.access(copy.shared, &copy.indices, 1);
                self.put(" <- ");
                box_of(self);
                self.put(",");
                self.slot(full);
                if let Some(blocks) = multicast {
                    self.put(&format!(" to {blocks} blocks"));
                }
            }
        }
        self.put(&format!(" by map {}", copy.map));
        self.end();
    }

    pub(super) fn slot(&mut self, slot: &Slot) {
        self.put(" ");
        self.mbarrier_name(slot.barrier);
        self.put("[");
        self.index(&slot.index);
        self.put("]");
    }

    pub(super) fn elect(&mut self, e: &Elect) {
        self.put(&match e.warps {
            1 => "elect one thread of each warp".to_string(),
            n => format!("elect one thread of {n} warps"),
        });
        self.end();
        self.indented(&e.body);
    }

    pub(super) fn role(&mut self, r: &RoleBody) {
        let role = r.role.and_then(|id| self.func.roles.get(id.0 as usize));
        let name = role.map_or("compute", |r| r.name.as_str());
        let regs = r.regs.map(|n| format!(" regs={n}")).unwrap_or_default();
        self.put(&format!("role {name}, warps {}..{}{regs}", r.first, r.first + r.warps));
        self.end();
        self.indented(&r.body);
    }

    pub(super) fn sync(&mut self, sync: &Sync) {
        self.put(sync.kind.word());
        match &sync.kind {
            SyncKind::Wait { groups } | SyncKind::ProductWait { groups } | SyncKind::BulkWait { groups, .. } => {
                self.put(&format!(" {groups}"));
            }
            SyncKind::Expect { slot, bytes } => {
                self.slot(slot);
                self.put(", ");
                self.index(bytes);
            }
            SyncKind::Arrive { slot, blocks } => {
                self.slot(slot);
                if let Some(blocks) = blocks {
                    self.put(&format!(" in {blocks} blocks"));
                }
            }
            SyncKind::Prefetch { buffer, share } => {
                self.put(&format!(" {}", self.func.buffer(*buffer).name));
                match share {
                    Some(bytes) => self.put(&format!(", {bytes} bytes a block")),
                    None => self.put(", the block's share"),
                }
            }
            SyncKind::PrefetchMap { map } => self.put(&format!(" {map}")),
            SyncKind::Narrow { buffer } => self.put(&format!(" {}", self.func.buffer(*buffer).name)),
            SyncKind::PrefetchLine { buffer, at } => {
                self.put(&format!(" {}[", self.func.buffer(*buffer).name));
                self.index(at);
                self.put("]");
            }
            SyncKind::Await { slot, phase } => {
                self.slot(slot);
                self.put(", phase ");
                self.index(phase);
            }
            _ => {}
        }
        self.comment(&format!("  # {}", sync.reason));
        self.end();
    }
}
