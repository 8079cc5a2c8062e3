//! The pictures of `explain --svg`: those of the book are what the command draws, and in those of all examples no text leaves its box or
//! runs into another one. `WARPLOOM_BLESS=1 cargo test --test it pictures` draws those that the book shows.

use super::cases::examples;
use super::cli::{bad, good};
use super::scan::root;
use std::collections::BTreeSet;
use std::path::Path;

/// Where the book keeps them.
const FOLDER: &str = "docs/src/pictures/schedules";

/// A letter of the font at the size of the style sheet: of the widest of the usual fonts.
const LETTER: f64 = 6.63;

fn drawn(example: &str) -> String {
    good(&["explain", &format!("examples/{example}.loom"), "--svg", "-"])
}

/// The pages of the book.
fn pages(folder: &Path, out: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, out);
        } else if path.extension().is_some_and(|e| e == "md") {
            out.push(std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// The examples whose pictures the book shows.
fn shown() -> BTreeSet<String> {
    let mut texts = Vec::new();
    pages(&root().join("docs/src"), &mut texts);
    let names = |text: &String| {
        let links = text.split("pictures/schedules/").skip(1);
        links.filter_map(|rest| Some(rest.split_once(".svg")?.0.to_string())).collect::<Vec<_>>()
    };
    texts.iter().flat_map(names).collect()
}

#[test]
fn pictures_of_the_book_are_what_the_command_draws() {
    let folder = root().join(FOLDER);
    let shown = shown();
    assert!(shown.len() > 10, "{shown:?}");
    let bless = std::env::var_os("WARPLOOM_BLESS").is_some();
    if bless {
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
    }
    for name in &shown {
        let (path, text) = (folder.join(format!("{name}.svg")), drawn(name));
        if bless {
            std::fs::write(&path, text).unwrap();
        } else {
            let stored = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                stored == text,
                "{name}.svg is not what the command draws: WARPLOOM_BLESS=1 cargo test --test it pictures"
            );
        }
    }
    let stored = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path());
    let stored: BTreeSet<String> = stored.map(|p| p.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    assert_eq!(stored, shown, "a picture that no page shows");
}

/// The value of an attribute of an element.
fn number(element: &str, name: &str) -> f64 {
    let value = element.split(&format!(" {name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
    value.unwrap_or_else(|| panic!("{element} has no {name}")).parse().unwrap()
}

/// What a browser shows of markup.
fn plain(markup: &str) -> String {
    let parts = markup.split('<').enumerate();
    let text: String = parts.map(|(n, p)| if n == 0 { p } else { p.split_once('>').map_or("", |p| p.1) }).collect();
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// The texts of a picture: left and right end, base line, and what is written.
fn texts(svg: &str) -> Vec<(f64, f64, f64, String)> {
    let of = |rest: &str| {
        let (head, rest) = rest.split_once('>').unwrap();
        let text = plain(rest.split_once("</text>").unwrap().0);
        // The title is set larger.
        let scale = if head.contains("class=\"title\"") { 13.0 / 11.0 } else { 1.0 };
        let (width, x) = (text.chars().count() as f64 * LETTER * scale, number(head, "x"));
        let left = match head.split("text-anchor=\"").nth(1).and_then(|a| a.split('"').next()) {
            Some("end") => x - width,
            Some("middle") => x - width / 2.0,
            _ => x,
        };
        (left, left + width, number(head, "y"), text)
    };
    svg.split("<text").skip(1).map(of).collect()
}

/// The boxes of a picture: left, top, right and bottom.
fn boxes(svg: &str) -> Vec<[f64; 4]> {
    let of = |rest: &str| {
        let head = rest.split_once('>').unwrap().0;
        let [x, y, width, height] = ["x", "y", "width", "height"].map(|name| number(head, name));
        [x, y, x + width, y + height]
    };
    svg.split("<rect")
        .skip(1)
        .filter(|rest| rest.contains(" x=\""))
        .filter(|r| !r.starts_with(" width"))
        .map(of)
        .collect()
}

#[test]
fn no_text_of_a_picture_leaves_its_box_or_meets_another() {
    let (mut faults, mut count) = (Vec::new(), 0);
    for (name, _) in examples() {
        let svg = drawn(&name);
        let (texts, boxes) = (texts(&svg), boxes(&svg));
        let frame = number(svg.split_once('>').unwrap().0, "width");
        for (n, (left, right, base, text)) in texts.iter().enumerate() {
            count += 1;
            if *left < 0.0 || *right > frame {
                faults.push(format!("{name}: `{text}` leaves the picture"));
            }
            // The smallest box around where the text begins holds all of it; those of the letter-sized legend hold none.
            let around = boxes.iter().filter(|b| b[0] <= *left && *left <= b[2] && b[1] <= *base && *base <= b[3]);
            let inner =
                around.min_by(|a, b| ((a[2] - a[0]) * (a[3] - a[1])).total_cmp(&((b[2] - b[0]) * (b[3] - b[1]))));
            if let Some(b) = inner.filter(|b| *right > b[2]) {
                faults.push(format!("{name}: `{text}` leaves its box by {:.1}", right - b[2]));
            }
            let meets = texts[n + 1..].iter().find(|t| (t.2 - base).abs() < 10.0 && t.0 < *right && *left < t.1);
            if let Some(other) = meets {
                faults.push(format!("{name}: `{text}` meets `{}`", other.3));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count > 1000, "{count} texts");
}

#[test]
fn a_picture_shows_every_loop_block_and_buffer() {
    let schedule =
        warploom::Schedule::parse(&std::fs::read_to_string(root().join("examples/worked_example.loom")).unwrap());
    let func = schedule.unwrap().scheduled().unwrap();
    let written: Vec<String> = texts(&drawn("worked_example")).into_iter().map(|t| t.3).collect();
    let words: BTreeSet<&str> =
        written.iter().flat_map(|t| t.split(|c: char| !c.is_alphanumeric() && c != '_')).collect();
    let loops = warploom::ir::visit::loops(&func.body).into_iter().filter(|l| l.raster.is_none());
    let names = loops.map(|l| func.var_name(l.var));
    let names = names.chain(func.buffers.iter().map(|b| b.name.as_str()));
    let names = names.chain(warploom::ir::visit::blocks(&func.body).into_iter().map(|b| func.block_name(b.name)));
    for name in names {
        assert!(words.contains(name), "{name} is not shown");
    }
    for text in [
        "pipeline of 4 stages, 1 in flight",
        "wgmma.m64n256k16.f32.f16.f16, m=im n=jn k=ki",
        "role load, tma, multicast over ic",
    ] {
        assert!(written.iter().any(|t| t == text), "`{text}` is not shown: {written:?}");
    }
}

#[test]
fn a_picture_that_cannot_be_written_or_made_is_refused() {
    let (status, error) = bad(&["explain", "examples/vec_add.loom", "--svg", "no/such/folder/x.svg"]);
    assert!(status == Some(4) && error.contains("[cli.svg]") && error.contains("--svg kernel.svg"), "{error}");
    let (status, error) = bad(&["explain", "docs/src/files/bind-k.loom", "--svg", "-"]);
    assert!(status == Some(1) && error.contains("[bind.3]"), "{error}");
    assert_eq!(bad(&["explain", "examples/vec_add.loom", "--svg", "-", "--html", "x.html"]).0, Some(2));
}
