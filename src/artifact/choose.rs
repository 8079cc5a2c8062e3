//! Which variant of an artefact is for a device and for arrays.

use super::{Artifact, Variant};
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::kernel::{Arg, Chip};

impl Artifact {
    /// The variant of a program for a device of this compute capability (major, minor) and for arrays of these types and shapes, in the
    /// order of its arguments. Of several that would do it is the one for the newest chip, and the first of those.
    ///
    /// # Errors
    /// `artifact.choice`: the artefact has no such program, none for these arrays, or none for this device. The error lists what it has.
    pub fn choose(&self, name: &str, capability: (u32, u32), arrays: &[(DType, &[usize])]) -> Result<&Variant> {
        self.choose_at(name, capability, arrays).map(|at| &self.variants[at])
    }

    /// The place of [`Artifact::choose`]'s variant among all.
    pub(crate) fn choose_at(&self, name: &str, capability: (u32, u32), arrays: &[(DType, &[usize])]) -> Result<usize> {
        let named = self.named(name)?;
        let takes = |(_, v): &(usize, &Variant)| {
            let args = &v.kernels.args;
            let each =
                |(arg, (dtype, shape)): (&Arg, &(DType, &[usize]))| arg.takes_type(*dtype) && arg.takes_shape(shape);
            args.len() == arrays.len() && args.iter().zip(arrays).all(each)
        };
        let suited: Vec<(usize, &Variant)> = named.iter().copied().filter(takes).collect();
        if suited.is_empty() {
            let given: Vec<String> = arrays.iter().map(|(dtype, shape)| format!("{dtype}{shape:?}")).collect();
            let message = format!("no variant of {name} takes {}", given.join(", "));
            let known = distinct(named.iter().map(|(_, v)| signature(v)));
            return Err(known.iter().fold(Error::input(Code::ArtifactChoice, message), |e, known| e.help(known)));
        }
        newest(&suited, capability).ok_or_else(|| {
            let message = format!("no variant of {name} for these arrays runs on sm_{}{}", capability.0, capability.1);
            let chips = distinct(suited.iter().map(|(_, v)| v.kernels.target.clone()));
            Error::chip(Code::ArtifactChoice, message).help(format!("build it for more than {}", chips.join(", ")))
        })
    }

    /// The variants of a program, with their places.
    fn named(&self, name: &str) -> Result<Vec<(usize, &Variant)>> {
        let all = self.variants.iter().enumerate();
        let named: Vec<(usize, &Variant)> = all.filter(|(_, v)| v.kernels.name == name).collect();
        if !named.is_empty() {
            return Ok(named);
        }
        let known = distinct(self.variants.iter().map(|v| v.kernels.name.clone()));
        let error = Error::input(Code::ArtifactChoice, format!("the artefact has no program `{name}`"));
        Err(known.iter().fold(error, |error, known| error.help(known)))
    }
}

impl Variant {
    /// What it takes, in a line: `gemm(A f16[64, 32], B f16[32, 16], C f16[64, 16])`.
    pub fn signature(&self) -> String {
        signature(self)
    }
}

fn signature(variant: &Variant) -> String {
    let args = variant.kernels.args.iter().map(|arg| format!("{} {}{:?}", arg.name, arg.dtype, arg.shape));
    format!("{}({})", variant.kernels.name, args.collect::<Vec<_>>().join(", "))
}

/// The place of the one for the newest chip whose code the device runs.
fn newest(variants: &[(usize, &Variant)], capability: (u32, u32)) -> Option<usize> {
    let mut best: Option<(Chip, usize)> = None;
    for (at, variant) in variants {
        let chip = Chip::parse(&variant.kernels.target).filter(|chip| chip.runs_on(capability));
        if let Some(chip) = chip
            && best.is_none_or(|(known, _)| known < chip)
        {
            best = Some((chip, *at));
        }
    }
    best.map(|(_, at)| at)
}

/// Each once, in order.
fn distinct(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for one in all {
        if !out.contains(&one) {
            out.push(one);
        }
    }
    out
}
