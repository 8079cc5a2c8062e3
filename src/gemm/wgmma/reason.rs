//! What the choice of tiles rests on, in a line of numbers.

use super::{Wgmma, in_bytes, processors};
use crate::gemm::split::Combine;
use crate::gemm::tuning;
use crate::target::Target;
use crate::te::GemmSpec;

impl Wgmma {
    /// Why these tiles: how the multiprocessors are filled, what comes from the second-level cache, what a block has of shared
    /// memory and a thread of registers, what the cycles wait for, which other tiles would do as well, and how far behind the next
    /// best are.
    pub fn reason(&self, spec: &GemmSpec, target: &Target) -> String {
        let spec = &self.multiplied(spec);
        let ([m, n], blocks) = (self.block, self.blocks(spec));
        let work = self.work(spec, target);
        let waves = blocks as f64 / (f64::from(processors(target)) * work.resident as f64);
        // Blocks of a cluster read a shared tile once.
        let (stage_tile, pingpong_tiles) = (self.stage_tile(), if self.pingpong { self.warpgroups } else { 1 });
        let [rows, columns] =
            [stage_tile[0] as f64 / self.cluster[1] as f64, stage_tile[1] as f64 / self.cluster[0] as f64];
        let terms = in_bytes(self.k_stages(spec) * self.bk, spec);
        let fetched = (rows + columns) * (terms * blocks * pingpong_tiles) as f64;
        let cycles = self.cycles(spec, target);
        let bound = work.limiter(&target.device()).name();
        format!(
            "{m} x {n} of {} warpgroup{}{}{}: {blocks} blocks in {waves:.2} waves, {:.0} MB from L2, {} KB shared of {} \
             stages of {}, {} registers a thread, {:.0}k cycles, bound by {bound}{}",
            self.warpgroups,
            if self.warpgroups > 1 { "s" } else { "" },
            if self.pingpong { " in ping-pong" } else { "" },
            match (self.parts, self.combine) {
                (1, _) => String::new(),
                (parts, Combine::Kernel) => format!(", k in {parts} parts"),
                (parts, Combine::Cluster) => format!(", k in {parts} parts that a cluster adds up"),
            },
            fetched / 1e6,
            self.shared(spec) / 1024,
            self.stages,
            self.bk,
            m * n / (128 * self.warpgroups) + self.partial_registers(spec) + tuning::ADDRESS_REGISTERS,
            cycles / 1e3,
            match self.shares_with_four() && Wgmma::has_unaligned_rows(spec, self.routes) {
                true => "; four blocks share an operand, because its rows cross L2 lines".into(),
                false => self.others(spec, target, cycles),
            },
        )
    }

    /// The other tiles that take as many cycles, and the next best.
    fn others(&self, spec: &GemmSpec, target: &Target, cycles: f64) -> String {
        let other = |w: Wgmma| ((w.cycles(spec, target) / cycles - 1.0) * 100.0, w.block);
        // Ping-pong has other cycles.
        let form = |w: &Wgmma| (w.pingpong, w.swap_ab, w.parts, w.combine);
        let alike = |w: &Wgmma| w.block != self.block && form(w) == form(self);
        let others = Wgmma::candidates(spec, target).into_iter().filter(alike).map(other);
        // What rounds to nothing.
        let (same, mut more): (Vec<_>, Vec<_>) = others.partition(|(percent, _)| *percent < 0.5);
        more.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut words: Vec<String> =
            same.into_iter().map(|(_, [m, n])| format!("{m} x {n} would take as many")).collect();
        words.extend(more.first().map(|(percent, [m, n])| format!("{m} x {n} would take {percent:.0} % more")));
        words.into_iter().map(|word| format!("; {word}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::dtype::DType;
    use crate::gemm::{Gemm, recommend};
    use crate::target::Target;

    #[test]
    fn recommended_steps_say_why() {
        let gemm = Gemm::new(4096, 4096, 4096).of(DType::F16);
        let schedule = recommend(&gemm, &Target::sm_90a()).unwrap();
        let remarks: Vec<&str> = schedule.steps.iter().filter_map(|s| s.remark()).collect();
        let [reason] = remarks[..] else { panic!("{remarks:?}") };
        let words = ["waves", "from L2", "KB shared", "stages of 64", "registers", "cycles, bound by the tensor cores"];
        for word in words.into_iter().chain(["; 256 x 128 would take ", "% more"]) {
            assert!(reason.contains(word), "{reason}");
        }
        assert_eq!(crate::loom::Schedule::parse(&schedule.to_string()).unwrap(), schedule);
        assert!(schedule.completed().unwrap().to_string().contains(reason));
    }
}
