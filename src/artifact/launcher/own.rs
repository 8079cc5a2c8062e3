//! The launcher for the runtime of this crate: the compiled programs as values after the routine of `own.rs.in`.

use super::plan::{Argument, Placed, Plan, WORKSPACE_ALIGN, devices};
use super::rust::{fields, joined, list, shapes};
use super::{Unit, describe, filled, names};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::{Access, Arg, Kernel, Param, TensorMap};

/// Writes the module `NAME.rs`, which launches the units by `warploom::runtime` and leaves the checks to it. The module includes the PTX
/// and the cubins beside it.
///
/// # Errors
/// As [`super::c()`].
pub fn rust_warploom(name: &str, units: &[Unit<'_>]) -> Result<String> {
    let plan = Plan::new(name, units)?;
    let about = names::line_comments(&describe::about(&plan));
    let names = joined(&plan, |a| a.identifier.clone());
    let rows: String = plan.units.iter().enumerate().map(|(n, placed)| row(n, placed)).collect();
    let functions = plan.units.iter().enumerate().map(|(n, placed)| function(n, placed)).collect::<Vec<_>>().join("\n");
    let workspace = workspace(plan.has_workspace());
    // The template's part with a workspace has words of its own.
    let typed = joined(&plan, |a: &Argument| format!("{}: &DeviceBuffer", a.identifier));
    let raw = joined(&plan, |a: &Argument| format!("{}: u64", a.identifier));
    let launches = filled(
        if plan.has_workspace() { LAUNCHES } else { "" },
        &[("typed_parameters", &typed), ("raw_parameters", &raw), ("names", &names)],
    );
    let words: &[(&str, &str)] = &[
        ("name", name),
        ("version", env!("CARGO_PKG_VERSION")),
        ("about", &about),
        ("example", &joined(&plan, |a| format!("&{}", a.identifier))),
        ("shapes_fields", &fields(&plan)),
        ("shape_count", &plan.shapes.len().to_string()),
        ("shapes", &shapes(&plan)),
        ("shape_text", &format!("{:?}", describe::shapes(&plan))),
        ("chip_text", &format!("{:?}", describe::chips(&plan))),
        ("typed_parameters", &typed),
        ("raw_parameters", &raw),
        ("workspace_align", &WORKSPACE_ALIGN.to_string()),
        ("workspace_use", workspace.import),
        ("workspace_field", workspace.field),
        ("workspace_load", workspace.load),
        ("workspace_made", workspace.made),
        ("workspace_program", workspace.program),
        ("loaded_note", workspace.loaded),
        ("variant_note", workspace.variant),
        ("workspace_launches", &launches),
        ("names", &names),
        ("units", &rows),
        ("functions", functions.trim_end()),
    ];
    Ok(filled(include_str!("own.rs.in"), words))
}

/// The parts of the routine that programs with workspace have.
struct Workspace {
    import: &'static str,
    field: &'static str,
    load: &'static str,
    made: &'static str,
    program: &'static str,
    loaded: &'static str,
    variant: &'static str,
}

fn workspace(has: bool) -> Workspace {
    if !has {
        let (program, none) = ("self.device.load(&kernels)?", "");
        return Workspace { import: "", field: "", load: "", made: "", program, loaded: none, variant: none };
    }
    Workspace {
        import: ", Workspace",
        field: "    /// Whether the runtime allocates the workspace of each program.
    allocates: bool,
",
        load: "        Kernels::choose(device, true)
    }

    /// As [`Kernels::load`], without allocating workspace: [`Variant::launch_with`] and the functions after it take it from the caller or
    /// from the stream, and [`Variant::launch`] is an error.
    ///
    /// # Errors
    /// As [`Kernels::load`].
    #[allow(dead_code)]
    pub fn load_without_workspace(device: &Device) -> Result<Kernels, Error> {
        Kernels::choose(device, false)
    }

    fn choose(device: &Device, allocates: bool) -> Result<Kernels, Error> {
",
        made: "allocates, ",
        program: "if self.allocates {
            self.device.load(&kernels)?
        } else {
            self.device.load_without_workspace(&kernels)?
        }",
        loaded: ", with the workspace that the runtime has allocated, if any",
        variant: " and their workspace allocated",
    }
}

/// The launches of a program with workspace.
const LAUNCHES: &str = "
    /// As [`Variant::launch`], with the workspace where the caller says: of the program, a buffer of [`Variant::workspace_bytes`] bytes, or
    /// allocated and freed in the stream.
    ///
    /// # Errors
    /// As [`Variant::launch`]; a buffer that is too small, on another device, or overlaps an argument; a device without memory pools.
    #[allow(dead_code, clippy::too_many_arguments)]
    pub fn launch_with(&self, @typed_parameters@, workspace: Workspace<'_>) -> Result<(), Error> {
        Ok(self.program.launch_with(&[@names@], workspace)?)
    }

    /// As [`Variant::launch_raw`], with workspace at an address of the caller's. Launches with different workspace may run at the same time.
    ///
    /// # Errors
    /// As [`Variant::launch_raw`]; workspace that is not aligned.
    ///
    /// # Safety
    /// As [`Variant::launch_raw`]; the address is one of [`Variant::workspace_bytes`] bytes that nothing else uses until the work is done.
    #[allow(dead_code, clippy::too_many_arguments)]
    pub unsafe fn launch_raw_with(&self, stream: RawStream, @raw_parameters@, workspace: u64) -> Result<(), Error> {
        let workspace = self.program.workspace_at(workspace);
        // SAFETY: the caller vouches for the stream and the addresses.
        Ok(unsafe { self.program.launch_raw_with(stream, &[@names@], &workspace) }?)
    }

    /// As [`Variant::launch_raw`], with workspace that the launch allocates and frees in the stream.
    ///
    /// # Errors
    /// As [`Variant::launch_raw`]; a device without memory pools.
    ///
    /// # Safety
    /// As [`Variant::launch_raw`], but for the workspace.
    #[allow(dead_code, clippy::too_many_arguments)]
    pub unsafe fn launch_raw_ordered(&self, stream: RawStream, @raw_parameters@) -> Result<(), Error> {
        // SAFETY: the caller vouches for the stream and the addresses.
        Ok(unsafe { self.program.launch_raw_ordered(stream, &[@names@]) }?)
    }
";

fn row(n: usize, placed: &Placed<'_>) -> String {
    format!("    Unit {{ shape: {}, chips: {:?}, kernels: unit_{n} }},\n", placed.shape, devices(placed.chip))
}

/// A function that makes the compiled program.
fn function(n: usize, placed: &Placed<'_>) -> String {
    let kernels = placed.kernels();
    let (name, target, version) = (&kernels.name, &kernels.target, kernels.ptx_version);
    let mut out = format!("/// The program `{name}` for {target}.\nfn unit_{n}() -> kernel::Kernels {{\n");
    for (k, kernel) in kernels.kernels.iter().enumerate() {
        out += &entry(k, kernel);
    }
    let entries: Vec<String> = (0..kernels.kernels.len()).map(|k| format!("kernel_{k}")).collect();
    out += "    let mut made = kernel::Kernels::new(\n";
    out += &format!("        {name:?},\n        {target:?},\n        {version},\n");
    out += &format!("        include_str!({:?}),\n        vec!{},\n    );\n", placed.unit.ptx, list(entries));
    if let Some((code, file, _)) = placed.code() {
        let (chip, assembler) = (&code.chip, &code.assembler);
        out += &format!("    let code = include_bytes!({file:?}).to_vec();\n");
        out += &format!("    made.cubin = Some(kernel::Cubin::new({chip:?}, {assembler:?}, code));\n");
    }
    kernels.args.iter().for_each(|arg| out += &argument(arg));
    for buffer in &kernels.workspace {
        out += &format!("    made.workspace.push(kernel::Workspace::new({:?}, {}));\n", buffer.name, buffer.bytes);
    }
    out + "    made\n}\n"
}

fn entry(k: usize, kernel: &Kernel) -> String {
    let plain = Kernel::new(kernel.entry.clone(), kernel.params.clone(), kernel.grid, kernel.block);
    let mutable = if plain == *kernel { "" } else { "mut " };
    let (entry, grid, block) = (&kernel.entry, list(kernel.grid), list(kernel.block));
    let mut out = format!("    let parameters_{k} = vec![\n");
    kernel.params.iter().for_each(|p| out += &format!("        {},\n", param(p)));
    out += "    ];\n";
    out += &format!("    let {mutable}kernel_{k} = kernel::Kernel::new({entry:?}, parameters_{k}, {grid}, {block});\n");
    let fields = [
        ("cluster", list(kernel.cluster), kernel.cluster != plain.cluster),
        ("persistent", kernel.persistent.to_string(), kernel.persistent),
        ("shared_bytes", kernel.shared_bytes.to_string(), kernel.shared_bytes != plain.shared_bytes),
        ("early", kernel.early.to_string(), kernel.early),
    ];
    for (field, value, _) in fields.iter().filter(|field| field.2) {
        out += &format!("    kernel_{k}.{field} = {value};\n");
    }
    out
}

fn param(param: &Param) -> String {
    match param {
        Param::Arg(n) => format!("kernel::Param::Arg({n})"),
        Param::Workspace(n) => format!("kernel::Param::Workspace({n})"),
        Param::Size(n) => format!("kernel::Param::Size({n})"),
        Param::TensorMap(map) => {
            let TensorMap { array, dtype, extents, strides, tile, swizzle, promotion, dynamic: _ } = map;
            let [extents, strides, tile] = [extents, strides, tile].map(list);
            let (array, dtype) = (self::param(array), variant(*dtype));
            format!(
                "kernel::Param::TensorMap(kernel::TensorMap::new(\n            {array},\n            {dtype},\n            \
                 [&{extents}, &{strides}, &{tile}],\n            {swizzle},\n            {promotion},\n        ))"
            )
        }
    }
}

/// `DType::F32`.
fn variant(dtype: DType) -> String {
    format!("DType::{dtype:?}")
}

fn argument(arg: &Arg) -> String {
    let (name, dtype, shape) = (&arg.name, variant(arg.dtype), list(&arg.shape));
    let access = match arg.access {
        Access::Read => "Read",
        Access::Write => "Write",
        Access::ReadWrite => "ReadWrite",
    };
    let plain = Arg::new(name.clone(), arg.dtype, &arg.shape, arg.access);
    let new = format!("kernel::Arg::new({name:?}, {dtype}, &{shape}, kernel::Access::{access})");
    if plain == *arg {
        return format!("    made.args.push({new});\n");
    }
    let mut out = format!("    let mut argument = {new};\n");
    let fields = [
        ("strides", format!("vec!{}", list(&arg.strides)), plain.strides != arg.strides),
        ("align", arg.align.to_string(), plain.align != arg.align),
        ("bytes", arg.bytes.to_string(), plain.bytes != arg.bytes),
        ("values", format!("{:?}", arg.values), plain.values != arg.values),
    ];
    for (field, value, _) in fields.iter().filter(|field| field.2) {
        out += &format!("    argument.{field} = {value};\n");
    }
    out + "    made.args.push(argument);\n"
}
