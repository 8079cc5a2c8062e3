//! Builder lines: `gemm 1024x512x2048 f16>f32>f16 NT bias relu` and their kin.

use super::at;
use crate::dtype::DType;
use crate::error::{Code, Error, Result, suggestion};
use crate::ir::Func;
use crate::te::block_scales::BlockScales;
use crate::te::build::{GemmSpec, Layout, gemm_with, vec_add, window_sum};
use crate::te::epilogue::Epilogue;
use std::ops::Range;

/// The words that begin a builder line.
pub const NAMES: [&str; 4] = ["vec_add", "window_sum", "gemm", "batched_gemm"];

type Word<'t> = (&'t str, Range<usize>);

/// Reads the line that begins at `start`; nothing but comments may follow it.
pub fn parse(text: &str, start: usize) -> Result<Func> {
    let rest = &text[start..];
    let end = rest.find(['\n', ';', '#']).unwrap_or(rest.len());
    let behind = start + end;
    if let Some(extra) = following(text, behind) {
        return Err(at(Code::TeSyntax, extra, "nothing follows a builder line"));
    }
    let mut words = Vec::new();
    let mut position = start;
    for word in rest[..end].split_whitespace() {
        let offset = text[position..].find(word).unwrap_or(0);
        words.push((word, position + offset..position + offset + word.len()));
        position += offset + word.len();
    }
    let whole = start..start + rest[..end].trim_end().len();
    build(&words, &whole).map_err(|e| super::placed(e, whole))
}

/// The first thing after the line that is no comment.
fn following(text: &str, from: usize) -> Option<Range<usize>> {
    let mut position = from;
    for line in text[from..].split_inclusive('\n') {
        let code = line.split('#').next().unwrap_or("");
        let word = code.trim_matches(|c: char| c == ';' || c.is_whitespace());
        if !word.is_empty() {
            let start = position + code.find(word).unwrap_or(0);
            return Some(start..start + word.len());
        }
        position += line.len();
    }
    None
}

fn build(words: &[Word<'_>], whole: &Range<usize>) -> Result<Func> {
    let arguments = words.get(1..).unwrap_or(&[]);
    match (words.first().map(|w| w.0), arguments) {
        (Some("vec_add"), [n]) => vec_add(sizes::<1>(n)?[0]),
        (Some("window_sum"), [n]) => window_sum(sizes::<1>(n)?[0]),
        (Some("gemm"), [size, (by, _), multiple, types, layout, steps @ ..]) if *by == "by" => {
            gemm(size, Some(multiple), (types, layout), steps)
        }
        (Some("gemm"), [size, types, layout, steps @ ..]) if types.0 != "by" => {
            gemm(size, None, (types, layout), steps)
        }
        (Some("batched_gemm"), [size, types, layout, steps @ ..]) => {
            let [batch, m, n, k] = sizes::<4>(size)?;
            let (block_scales, steps) = block_scales(steps)?;
            let spec = spec([m, n, k], types, layout)?.batch(Some(batch)).block_scales(block_scales);
            gemm_with(&spec, &epilogues(&steps)?)
        }
        (Some("gemm"), [_, by, ..]) if by.0 == "by" => {
            let error = at(Code::TeSyntax, by.1.clone(), "a number, types and a layout follow `by`");
            Err(error.help("gemm 8..=8192x4096x4096 by 8 f16>f32>f16 NT"))
        }
        (Some("gemm" | "batched_gemm"), [_, types]) => {
            let error = at(Code::TeSyntax, types.1.clone(), "the layout after the types is missing");
            Err(error.help("NN, NT, TN or TT: whether A and B are stored as they are or transposed"))
        }
        _ => {
            let error = at(Code::TeSyntax, whole.clone(), "this builder line has the wrong number of words");
            let error = error.help("vec_add 1024").help("window_sum 1024");
            Err(error.help("gemm 1024x512x2048 f16>f32>f16 NT bias relu").help("batched_gemm 8x64x64x64 f32 NN"))
        }
    }
}

/// `SIZE [by MULTIPLE] TYPES LAYOUT [STEPS]`
fn gemm(
    size: &Word<'_>,
    multiple: Option<&Word<'_>>,
    (types, layout): (&Word<'_>, &Word<'_>),
    steps: &[Word<'_>],
) -> Result<Func> {
    let (block_scales, steps) = block_scales(steps)?;
    let (rows, by, text) = rows(size)?;
    let sizes = sizes::<3>(&(&text, size.1.clone()))?;
    let refused = |word: &Word<'_>, message: &str| {
        Err(at(Code::TeSyntax, word.1.clone(), message).help("gemm 8..=8192x4096x4096 by 8 f16>f32>f16 NT"))
    };
    let by = match (multiple, by) {
        (None, by) => by.unwrap_or(1),
        (Some(word), Some(_)) => return refused(word, "the size has its multiple already, behind `/`"),
        (Some(word), None) if rows.is_none() => {
            return refused(word, "`by` states the multiples of a dynamic M, and the size has one M");
        }
        (Some(word), None) => match number(word.0) {
            Some(by) => by,
            None => return refused(word, "expected what every M is a multiple of, as in `by 8`"),
        },
    };
    let spec = spec(sizes, types, layout)?.least_m(rows).m_by(by);
    gemm_with(&spec.block_scales(block_scales), &epilogues(&steps)?)
}

/// Of `8..=8192/8x4096x4096` the least number of rows, what each is a multiple of, and the size of the most rows: `8192x4096x4096`.
fn rows((word, span): &Word<'_>) -> Result<(Option<i64>, Option<i64>, String)> {
    let Some((low, rest)) = word.split_once("..=") else { return Ok((None, None, word.to_string())) };
    let refused = |message: &str| Err(at(Code::TeSyntax, span.clone(), message));
    let Some(least) = number(low) else {
        return refused("expected the least number of rows, as in 1..=8192x4096x4096");
    };
    let (high, others) = rest.split_once('x').unwrap_or((rest, ""));
    let Some((high, by)) = high.split_once('/') else { return Ok((Some(least), None, rest.to_string())) };
    match number(by) {
        Some(by) => Ok((Some(least), Some(by), format!("{high}x{others}"))),
        None => refused("expected what every M is a multiple of, as in 8..=8192/8x4096x4096"),
    }
}

fn sizes<const N: usize>((word, span): &Word<'_>) -> Result<[i64; N]> {
    let numbers: Option<Vec<i64>> = word.split('x').map(number).collect();
    let found = numbers.and_then(|n| <[i64; N]>::try_from(n).ok());
    found.ok_or_else(|| {
        let example = ["1024"; N].join("x");
        let wanted = if N == 1 { "a positive integer".to_string() } else { format!("{N} positive integers") };
        at(Code::TeSyntax, span.clone(), format!("expected {wanted}, as in {example}"))
    })
}

fn number(text: &str) -> Option<i64> {
    text.parse().ok().filter(|v| *v > 0 && text.bytes().all(|b| b.is_ascii_digit()))
}

/// `T`, `T>ACC` or `A*B>ACC>OUT`.
fn spec([m, n, k]: [i64; 3], types: &Word<'_>, (letters, span): &Word<'_>) -> Result<GemmSpec> {
    let layout = Layout::parse(letters)
        .ok_or_else(|| at(Code::TeSyntax, span.clone(), "expected a layout: NN, NT, TN or TT"))?;
    let parts: Option<Vec<DType>> = types.0.split(['>', '*']).map(DType::parse).collect();
    let separators: String = types.0.chars().filter(|c| matches!(c, '>' | '*')).collect();
    let spec = |a, b, acc, out| GemmSpec::of(m, n, k, a, layout).types(a, b, acc, out);
    match (separators.as_str(), parts.as_deref()) {
        ("", Some([t])) => Ok(spec(*t, *t, *t, *t)),
        (">", Some([t, acc])) => Ok(spec(*t, *t, *acc, *acc)),
        (">>", Some([t, acc, out])) => Ok(spec(*t, *t, *acc, *out)),
        ("*>", Some([a, b, acc])) => Ok(spec(*a, *b, *acc, *acc)),
        ("*>>", Some([a, b, acc, out])) => Ok(spec(*a, *b, *acc, *out)),
        _ => {
            let wrong = types.0.split(['>', '*']).find(|t| DType::parse(t).is_none());
            let message = match wrong {
                Some(t) => format!("`{t}` is not a type{}", suggestion(t, DType::ALL.iter().map(|d| d.name()))),
                None => format!("`{}` is not a list of types", types.0),
            };
            let error = at(Code::TeType, types.1.clone(), message);
            Err(error.help("f32").help("f16>f32>f16 for operands, accumulators and result").help("e4m3*e5m2>f32>f16"))
        }
    }
}

/// Whether the words name scales of blocks, and the words of epilogues.
fn block_scales<'t>(words: &[Word<'t>]) -> Result<(bool, Vec<Word<'t>>)> {
    let (scales, steps): (Vec<Word<'t>>, Vec<Word<'t>>) =
        words.iter().cloned().partition(|(word, _)| *word == BlockScales::NAME);
    match &scales[..] {
        [] | [_] => Ok((!scales.is_empty(), steps)),
        [_, (word, span), ..] => Err(at(Code::TeEpilogue, span.clone(), format!("{word} is given twice"))),
    }
}

fn epilogues(words: &[Word<'_>]) -> Result<Vec<Epilogue>> {
    let mut out = Vec::new();
    let mut rest = words.iter();
    while let Some((word, span)) = rest.next() {
        let known = Epilogue::ALL.into_iter().find(|e| e.name() == *word);
        let mut constant = || {
            let factor = rest.next().and_then(|(w, _)| w.parse::<f64>().ok()).filter(|v| v.is_finite());
            factor.ok_or_else(|| at(Code::TeSyntax, span.clone(), format!("{word} takes a number")))
        };
        out.push(match known.ok_or_else(|| unknown_epilogue(word, span))? {
            Epilogue::Scale(_) => Epilogue::Scale(constant()?),
            Epilogue::Beta(_) => Epilogue::Beta(constant()?),
            other => other,
        });
    }
    Ok(out)
}

fn unknown_epilogue(word: &str, span: &Range<usize>) -> Error {
    let shown: String = word.chars().take(40).collect();
    let names = Epilogue::ALL.into_iter().map(Epilogue::name).chain([BlockScales::NAME]);
    let guess = suggestion(word, names);
    let error = at(Code::TeName, span.clone(), format!("there is no epilogue {shown}{guess}"));
    let words = Epilogue::ALL.map(|e| match e {
        Epilogue::Scale(_) | Epilogue::Beta(_) => format!("{} NUMBER", e.name()),
        _ => e.name().to_string(),
    });
    error.help(format!("use {}, {}", BlockScales::NAME, words.join(", ")))
}
