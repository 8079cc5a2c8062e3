//! The launcher for the runtime of this crate: the compiled programs as values after the routine of `own.rs.in`.

use super::plan::{Argument, Placed, Plan, WORKSPACE_ALIGN, devices};
use super::rust::{SizeLines, fields, joined, list, ranges, shapes};
use super::{Unit, describe, filled, names};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::{Access, Arg, Follows, Kernel, Param, Size, TensorMap};

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
    let calls = Calls::of(&plan, &names);
    let sizes: String = plan.sizes.iter().map(|size| format!("{}: i64, ", size.identifier)).collect();
    let launches = filled(
        if plan.has_workspace() { LAUNCHES } else { "" },
        &[
            ("typed_parameters", &typed),
            ("raw_parameters", &raw),
            ("names", &names),
            ("size_parameters", &sizes),
            ("workspace_call", &calls.with_workspace),
            ("ordered_call", &calls.ordered),
        ],
    );
    let sized = size_words(&plan, &sizes);
    let sized: Vec<(&str, &str)> = sized.iter().map(|(word, text)| (*word, text.as_str())).collect();
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
        ("raw_call", &calls.raw),
        ("workspace_use", if plan.has_workspace() || plan.sizes.is_empty() { workspace.import } else { ", Workspace" }),
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
    Ok(filled(&filled(include_str!("own.rs.in"), &sized), words))
}

/// The parts of the routine that programs with dynamic sizes have; `parameters` are those of a launch of addresses.
fn size_words(plan: &Plan<'_>, parameters: &str) -> Vec<(&'static str, String)> {
    let lines = SizeLines::of(plan);
    let only = |text: &str| if plan.sizes.is_empty() { String::new() } else { text.to_string() };
    vec![
        ("size_count", plan.sizes.len().to_string()),
        ("ranges", ranges(plan)),
        ("size_reads", lines.reads),
        ("known", lines.binding.to_string()),
        ("size_writes", lines.writes),
        ("size_parameters", parameters.to_string()),
        ("size_field", only(SIZE_FIELD)),
        ("size_error", only(SIZE_ERROR)),
        ("size_error_text", only(SIZE_ERROR_TEXT)),
        ("size_made", only(", shape: unit.shape")),
        ("size_function", size_function(plan)),
    ]
}

/// What a variant of a program with dynamic sizes has besides the program.
const SIZE_FIELD: &str = "    /// Its place in [`SHAPES`].\n    shape: usize,\n";

/// The error of a size outside the range of the kernels, and its text.
const SIZE_ERROR: &str = "    /// A dynamic size has a value that the kernels do not take.
    Value {
        /// The size's name.
        size: &'static str,
        /// Its value.
        given: i64,
        /// The least and the largest value, and what each is a multiple of.
        range: [i64; 3],
    },
";
const SIZE_ERROR_TEXT: &str = "            Error::Value { size, given, range: [low, high, by] } => {
                write!(f, \"@name@: size {size} is {given}, and these kernels take multiples of {by} from {low} to {high}\")
            }
";

/// The check of the sizes that a launch of addresses states.
fn size_function(plan: &Plan<'_>) -> String {
    if plan.sizes.is_empty() {
        return String::new();
    }
    let names: Vec<String> = plan.sizes.iter().map(|size| format!("{:?}", size.name)).collect();
    let (count, names) = (names.len(), names.join(", "));
    format!(
        "    /// The values of the sizes that the program has, each one that these kernels take.
    fn sizes(&self, given: [i64; {count}]) -> Result<Vec<i64>, Error> {{
        let names = [{names}];
        for ((size, given), range) in names.into_iter().zip(given).zip(RANGES[self.shape]) {{
            if given < range[0] || given > range[1] || given % range[2] != 0 {{
                return Err(Error::Value {{ size, given, range }});
            }}
        }}
        let number = |own: &str| names.iter().position(|name| *name == own);
        Ok(self.program.sizes().iter().filter_map(|own| Some(given[number(&own.name)?])).collect())
    }}

"
    )
}

/// The runtime's functions that launch a program by addresses. A program with dynamic sizes calls the ones with an argument for their values.
struct Calls {
    raw: String,
    with_workspace: String,
    ordered: String,
}

impl Calls {
    fn of(plan: &Plan<'_>, names: &str) -> Calls {
        if plan.sizes.is_empty() {
            return Calls {
                raw: format!("launch_raw(stream, &[{names}])"),
                with_workspace: format!("launch_raw_with(stream, &[{names}], &workspace)"),
                ordered: format!("launch_raw_ordered(stream, &[{names}])"),
            };
        }
        let sizes: Vec<&str> = plan.sizes.iter().map(|size| size.identifier.as_str()).collect();
        let sizes = format!("&self.sizes([{}])?", sizes.join(", "));
        let sized = |workspace: &str| format!("launch_raw_sized(stream, &[{names}], {sizes}, Workspace::{workspace})");
        Calls {
            raw: sized("Loaded"),
            with_workspace: format!("launch_raw_at(stream, &[{names}], {sizes}, &workspace)"),
            ordered: sized("StreamOrdered"),
        }
    }
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
    pub unsafe fn launch_raw_with(&self, stream: RawStream, @size_parameters@@raw_parameters@, workspace: u64) -> Result<(), Error> {
        let workspace = self.program.workspace_at(workspace);
        // SAFETY: the caller vouches for the stream and the addresses.
        Ok(unsafe { self.program.@workspace_call@ }?)
    }

    /// As [`Variant::launch_raw`], with workspace that the launch allocates and frees in the stream.
    ///
    /// # Errors
    /// As [`Variant::launch_raw`]; a device without memory pools.
    ///
    /// # Safety
    /// As [`Variant::launch_raw`], but for the workspace.
    #[allow(dead_code, clippy::too_many_arguments)]
    pub unsafe fn launch_raw_ordered(&self, stream: RawStream, @size_parameters@@raw_parameters@) -> Result<(), Error> {
        // SAFETY: the caller vouches for the stream and the addresses.
        Ok(unsafe { self.program.@ordered_call@ }?)
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
    for Size { name, low, high, by, .. } in &kernels.sizes {
        out += "    // The range is one that warploom wrote.\n";
        out += &format!("    made.sizes.extend(kernel::Size::new({name:?}, {low}, {high}, {by}));\n");
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
        ("clips", format!("kernel::Clips({})", list(kernel.clips.0.map(follows))), !kernel.clips.is_empty()),
    ];
    for (field, value, _) in fields.iter().filter(|field| field.2) {
        out += &format!("    kernel_{k}.{field} = {value};\n");
    }
    out
}

fn follows(follows: Option<Follows>) -> String {
    let one = |f: Follows| format!("Some(kernel::Follows::new({}, {}, {}))", f.size, f.times, f.per);
    follows.map_or("None".to_string(), one)
}

fn param(param: &Param) -> String {
    match param {
        Param::Arg(n) => format!("kernel::Param::Arg({n})"),
        Param::Workspace(n) => format!("kernel::Param::Workspace({n})"),
        Param::Size(n) => format!("kernel::Param::Size({n})"),
        Param::TensorMap(map) => {
            let TensorMap { array, dtype, extents, strides, tile, swizzle, promotion, dynamic } = map;
            let [extents, strides, tile] = [extents, strides, tile].map(list);
            let (array, dtype) = (self::param(array), variant(*dtype));
            let made = format!(
                "kernel::TensorMap::new(\n            {array},\n            {dtype},\n            \
                 [&{extents}, &{strides}, &{tile}],\n            {swizzle},\n            {promotion},\n        )"
            );
            match dynamic {
                None => format!("kernel::Param::TensorMap({made})"),
                Some((dimension, size)) => format!(
                    "kernel::Param::TensorMap({{\n            let mut map = {made};\n            \
                     map.dynamic = Some(({dimension}, {size}));\n            map\n        }})"
                ),
            }
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
        ("dynamic", format!("{:?}", arg.dynamic), plain.dynamic != arg.dynamic),
    ];
    for (field, value, _) in fields.iter().filter(|field| field.2) {
        out += &format!("    argument.{field} = {value};\n");
    }
    out + "    made.args.push(argument);\n"
}
