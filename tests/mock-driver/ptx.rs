//! What the driver reads of a module's text: its version and target, and of each entry the parameters and the block.

/// A module's text as far as it matters.
pub struct Ptx {
    /// Times ten.
    pub version: u32,
    /// 90 for `sm_90a`, and whether it is for that chip alone.
    pub target: (u32, bool),
    pub entries: Vec<Entry>,
}

pub struct Entry {
    pub name: String,
    /// Bytes of each parameter.
    pub params: Vec<usize>,
    /// `.reqntid`.
    pub block: Option<[u32; 3]>,
}

/// None where the text is no module.
pub fn read(text: &str) -> Option<Ptx> {
    let bare: String = text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n");
    let word = |directive: &str| bare.split_once(directive)?.1.split_whitespace().next().map(str::to_string);
    let version = word(".version ")?;
    let (major, minor) = version.split_once('.')?;
    let target = word(".target ")?;
    let digits: String = target.strip_prefix("sm_")?.chars().take_while(char::is_ascii_digit).collect();
    let entries = bare.split(".entry ").skip(1).map(entry).collect::<Option<Vec<Entry>>>()?;
    Some(Ptx {
        version: major.parse::<u32>().ok()? * 10 + minor.parse::<u32>().ok()?,
        target: (digits.parse().ok()?, target.ends_with('a')),
        entries,
    })
}

/// `name(.param .u64 a, ..) .reqntid 128, 1, 1 {`.
fn entry(text: &str) -> Option<Entry> {
    let (head, _) = text.split_once('{')?;
    let (name, rest) = head.split_once('(')?;
    let (params, rest) = rest.split_once(')')?;
    let params = params.split(',').filter(|p| !p.trim().is_empty()).map(bytes).collect::<Option<Vec<usize>>>()?;
    let block = rest.split_once(".reqntid").and_then(|(_, numbers)| {
        let numbers: Vec<u32> = numbers.split(',').map_while(|n| n.split_whitespace().next()?.parse().ok()).collect();
        Some([*numbers.first()?, *numbers.get(1).unwrap_or(&1), *numbers.get(2).unwrap_or(&1)])
    });
    Some(Entry { name: name.trim().to_string(), params, block })
}

/// The size of `.param .align 64 .b8 map[128]`.
fn bytes(param: &str) -> Option<usize> {
    let size = |word: &str| match word.trim_start_matches('.') {
        "u64" | "s64" | "b64" | "f64" => Some(8),
        "u32" | "s32" | "b32" | "f32" => Some(4),
        "u16" | "s16" | "b16" | "f16" => Some(2),
        "u8" | "s8" | "b8" => Some(1),
        _ => None,
    };
    let one = param.split_whitespace().find_map(size)?;
    let many = param.split_once('[').and_then(|(_, rest)| rest.split(']').next()?.trim().parse::<usize>().ok());
    Some(one * many.unwrap_or(1))
}
