//! Selection of a variant by name, arrays and device.

use super::{Artifact, Variant};
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::kernel::Chip;

impl Artifact {
    /// The variant with this program name or label whose arguments have these types and shapes, for a device of this compute capability
    /// (major, minor). Among several chips the newest that the device supports wins.
    ///
    /// # Errors
    /// `artifact.choice` if no variant has the name, takes the arrays or runs on the device; the error lists the names, shapes or chips of the
    /// artefact. Also if two variants remain, such as two layouts of one square GEMM.
    pub fn choose(&self, name: &str, capability: (u32, u32), arrays: &[(DType, &[usize])]) -> Result<&Variant> {
        self.choose_at(name, capability, arrays).map(|at| &self.variants[at])
    }

    /// The index of the variant that [`Artifact::choose`] returns.
    pub(crate) fn choose_at(&self, name: &str, capability: (u32, u32), arrays: &[(DType, &[usize])]) -> Result<usize> {
        let named = self.named(name)?;
        let mut suited: Vec<(usize, &Variant)> =
            named.iter().copied().filter(|(_, v)| v.kernels.takes(arrays)).collect();
        // What is made for these sizes alone is better than what is made for many.
        if suited.iter().any(|(_, v)| v.kernels.sizes.is_empty()) {
            suited.retain(|(_, v)| v.kernels.sizes.is_empty());
        }
        if suited.is_empty() {
            let given: Vec<String> = arrays.iter().map(|(dtype, shape)| format!("{dtype}{shape:?}")).collect();
            let message = format!("no variant of {name} takes {}", given.join(", "));
            let known = distinct(named.iter().map(|(_, v)| signature(v)));
            return Err(known.iter().fold(Error::input(Code::ArtifactChoice, message), |e, known| e.help(known)));
        }
        let newest = newest(&suited, capability);
        if let [first, second, ..] = newest[..] {
            return Err(two_variants(&self.variants[first], &self.variants[second]));
        }
        newest.first().copied().ok_or_else(|| no_chip(&suited, capability))
    }

    /// The indices of two variants with equal program name, arguments and chip, if there are any.
    pub fn ambiguous(&self) -> Option<(usize, usize)> {
        let of = |v: &Variant| (signature(v), v.kernels.target.clone());
        let seen: Vec<_> = self.variants.iter().map(of).collect();
        (0..seen.len()).find_map(|second| Some((seen[..second].iter().position(|one| *one == seen[second])?, second)))
    }

    /// The variants with this program name or label, with their indices.
    fn named(&self, name: &str) -> Result<Vec<(usize, &Variant)>> {
        let all = self.variants.iter().enumerate();
        let named: Vec<(usize, &Variant)> = all.filter(|(_, v)| v.kernels.name == name || v.label == name).collect();
        if !named.is_empty() {
            return Ok(named);
        }
        let known = distinct(self.variants.iter().map(|v| v.kernels.name.clone()));
        let error = Error::input(Code::ArtifactChoice, format!("the artefact has no program `{name}`"));
        Err(known.iter().fold(error, |error, known| error.help(known)))
    }
}

impl Variant {
    /// Program name and arguments: `gemm(A f16[64, 32], B f16[32, 16], C f16[64, 16])`.
    pub fn signature(&self) -> String {
        signature(self)
    }
}

fn signature(variant: &Variant) -> String {
    let extents = |arg| variant.kernels.extents(arg).join(", ");
    let args = variant.kernels.args.iter().map(|arg| format!("{} {}[{}]", arg.name, arg.dtype, extents(arg)));
    format!("{}({})", variant.kernels.name, args.collect::<Vec<_>>().join(", "))
}

/// Of variants that take the same arrays, the one for the newest chip that a device of this compute capability runs.
///
/// # Errors
/// `artifact.choice` if none runs on the device, or two are for one chip.
#[cfg(all(feature = "cli", feature = "runtime"))]
pub(crate) fn for_device<'a>(variants: &[&'a Variant], capability: (u32, u32)) -> Result<&'a Variant> {
    let numbered: Vec<(usize, &Variant)> = variants.iter().copied().enumerate().collect();
    match newest(&numbered, capability)[..] {
        [] => Err(no_chip(&numbered, capability)),
        [one] => Ok(variants[one]),
        [first, second, ..] => Err(two_variants(variants[first], variants[second])),
    }
}

/// No variant is for the chip of the device.
fn no_chip(suited: &[(usize, &Variant)], capability: (u32, u32)) -> Error {
    let name = suited.first().map_or("the program", |(_, variant)| variant.kernels.name.as_str());
    let message = format!("no variant of {name} for these arrays runs on sm_{}{}", capability.0, capability.1);
    let chips = distinct(suited.iter().map(|(_, v)| v.kernels.target.clone()));
    Error::chip(Code::ArtifactChoice, message).help(format!("build it for more than {}", chips.join(", ")))
}

/// Two variants differ in more than chip and size.
fn two_variants(first: &Variant, second: &Variant) -> Error {
    let (name, first, second) = (&first.kernels.name, &first.label, &second.label);
    let message = format!("several variants of {name} take these arrays on one chip, {first} and {second} among them");
    Error::input(Code::ArtifactChoice, message).help("choose by the label instead of the program's name")
}

/// The indices of the variants for the newest chip that the device supports.
fn newest(variants: &[(usize, &Variant)], capability: (u32, u32)) -> Vec<usize> {
    let chip = |v: &Variant| Chip::parse(&v.kernels.target).filter(|chip| chip.runs_on(capability));
    let best = variants.iter().filter_map(|(_, v)| chip(v)).max();
    variants.iter().filter(|(_, v)| best.is_some() && chip(v) == best).map(|(at, _)| *at).collect()
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
