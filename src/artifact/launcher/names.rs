//! Identifiers that are legal in C, C++ and Rust, and texts inside comments and literals.

use crate::error::{Code, Error, Result};

/// Keywords of the three languages, and names that the launchers themselves use for parameters.
const TAKEN: &str = "\
address arguments code driver far found given interface kernel kernels launch_kernel near range ranges size sizes sizes_of small n needed unit units u values linux unix errno stdin stdout stderr assert \
alignas alignof and and_eq as asm async auto await become bitand bitor bool box break case catch char class compl concept const \
const_cast consteval constexpr constinit continue crate decltype default delete do double dyn else enum explicit export extern false \
final float fn for friend gen goto if impl in inline int let long loop macro match mod move mut mutable namespace new noexcept not \
not_eq nullptr operator or or_eq override priv private protected pub public ref register reinterpret_cast requires restrict return \
self shapes short signed sizeof static static_assert static_cast stream struct super switch template this thread_local throw trait true \
try type typedef typeid typename typeof union unsafe unsigned unsized use using variant virtual void volatile wchar_t where while \
workspace xor xor_eq yield";

/// Whether a name is an identifier of lower case that no language keeps for itself.
fn is_free(name: &str) -> bool {
    let letters = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let first = name.chars().next().is_some_and(|c| c.is_ascii_lowercase());
    letters && first && !TAKEN.split_whitespace().any(|word| word == name)
}

/// The name of a launcher: its file, the Rust module and the prefix of all names in C.
pub(super) fn checked(name: &str) -> Result<()> {
    if is_free(name) {
        return Ok(());
    }
    let message = format!("`{name}` cannot be the name of a launcher: it is a module in Rust and a prefix in C");
    Err(Error::input(Code::ArtifactLauncher, message)
        .help("use lower-case letters, digits and `_`, a letter first, and no keyword of Rust, C or C++"))
}

/// Names of arguments as identifiers: `A` is `a`, `in` is `in_`; names that would be equal get numbers.
pub(super) fn identifiers(names: &[&str]) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for name in names {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        let mut wanted: String = name.chars().map(plain).collect();
        if !wanted.starts_with(|c: char| c.is_ascii_lowercase()) {
            wanted.insert(0, 'x');
        }
        if !is_free(&wanted) {
            wanted.push('_');
        }
        let numbered = (2..).map(|n| format!("{wanted}{n}"));
        let free = std::iter::once(wanted.clone()).chain(numbered).find(|name| !out.contains(name));
        out.extend(free);
    }
    out
}

/// A string literal of C (without trigraphs) that is also one of C++.
pub(super) fn c_literal(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' | b'?' => out.extend(['\\', char::from(byte)]),
            b'\n' => out += "\\n",
            b'\t' => out += "\\t",
            b' '..=b'~' => out.push(char::from(byte)),
            other => out += &format!("\\{other:03o}"),
        }
    }
    out + "\""
}

/// Bytes as a string literal of C. Other bytes than letters have the shortest escape.
pub(super) fn c_bytes(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for (at, byte) in bytes.iter().enumerate() {
        // An escape ends before what is no octal digit.
        let digit = bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
        match byte {
            b'"' | b'\\' | b'?' => out.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => out.push(char::from(*byte)),
            other if digit => out += &format!("\\{other:03o}"),
            other => out += &format!("\\{other:o}"),
        }
    }
    out + "\""
}

/// Lines as comments of Rust.
pub(super) fn line_comments(text: &str) -> String {
    text.lines().map(|line| format!("// {line}").trim_end().to_string() + "\n").collect()
}

/// Lines for the inside of a comment of C, which nothing in them ends.
pub(super) fn inside_comment(text: &str) -> String {
    let safe = text.replace("*/", "* /").replace("/*", "/ *");
    safe.lines().map(|line| format!("   {line}").trim_end().to_string() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_identifiers_of_all_languages() {
        assert_eq!(identifiers(&["A", "a", "in", "X.y", "2", "", "é"]), ["a", "a2", "in_", "x_y", "x2", "x", "x_"]);
        assert!(["gemm", "vec_add", "k2"].into_iter().all(|name| checked(name).is_ok()));
        for name in ["", "Gemm", "2k", "_k", "a-b", "type", "class", "ä"] {
            assert_eq!(checked(name).unwrap_err().code(), Code::ArtifactLauncher, "{name}");
        }
    }

    #[test]
    fn texts_stay_inside_comments_and_literals() {
        assert_eq!(c_literal("a\"b\\c??/\n\té"), r#""a\"b\\c\?\?/\n\t\303\251""#);
        assert_eq!(c_bytes(b"\x7fELF\0\0\x001\0?\xff\"\n"), r#""\177ELF\0\0\0001\0\?\377\"\12""#);
        assert_eq!(inside_comment("a */ b\n\n/* c"), "   a * / b\n\n   / * c\n");
        assert_eq!(line_comments("a\n\nb"), "// a\n//\n// b\n");
    }
}
