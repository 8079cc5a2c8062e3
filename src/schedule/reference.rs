//! The reference table of the schedule language, made from the rows of [`primitive::ALL`].

use super::primitive;

/// Every primitive with its form, what it does and what it requires, as a Markdown table.
pub fn reference() -> String {
    let mut out = String::from("| step | what it does | requires |\n|---|---|---|\n");
    for p in primitive::ALL {
        let requires: Vec<String> = p.requires.iter().enumerate().map(|(n, r)| format!("{}. {r}", n + 1)).collect();
        let cells = [format!("`{}`", p.usage()), p.about.to_string(), requires.join("<br>")];
        let cells: Vec<String> = cells.iter().map(|c| c.replace('|', "\\|")).collect();
        out.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    out
}

/// The requirement that an error's code names (`split.2`), in the words of the primitive's row.
pub fn requirement(code: &str) -> Option<String> {
    let (name, number) = code.split_once('.')?;
    let primitive = primitive::find(name)?;
    let text = primitive.requires.get(number.parse::<usize>().ok()?.checked_sub(1)?)?;
    Some(format!("requirement {number} of {name}: {text}"))
}
