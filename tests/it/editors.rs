//! The grammars of `.loom` files for editors are made here, of the lists that the parsers read: of steps, their words and options,
//! of types, chips, axes, reducers, functions and builders. `WARPLOOM_BLESS=1 cargo test --test it editors` writes them.

use super::format::texts;
use super::scan::root;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use warploom::ir::Axis;
use warploom::ir::reducer::TupleReducer;
use warploom::schedule::{Form, Kind, primitive};
use warploom::te::{self, Epilogue, Layout, Reducer};
use warploom::{DType, Target, intrin};

/// What a piece of text is, and the words that are such pieces.
struct Rule {
    /// The scope, as TextMate's themes know it, without the language behind it.
    scope: &'static str,
    /// The group of Vim.
    group: &'static str,
    words: Words,
}

enum Words {
    /// These words, between what the two expressions say about their neighbours.
    List(BTreeSet<&'static str>, &'static str, &'static str),
    /// What the expression matches, for TextMate and for Vim.
    Pattern(String, String),
}

/// A word begins a statement.
const FIRST: &str = r"(?:^|(?<=;))\s*";
/// A word is not a part of a longer name.
const ALONE: &str = r"(?<![\w.])";
const END: &str = r"(?![\w.])";

fn rules() -> Vec<Rule> {
    let list = |scope, group, words: BTreeSet<&'static str>, before, after| Rule {
        scope,
        group,
        words: Words::List(words, before, after),
    };
    let pattern = |scope, group, textmate: &str, vim: &str| Rule {
        scope,
        group,
        words: Words::Pattern(textmate.to_string(), vim.to_string()),
    };
    let parameters = || primitive::ALL.iter().flat_map(|p| p.signature);
    let axes: BTreeSet<&str> = Axis::ALL.iter().map(|a| a.name()).collect();
    let types: BTreeSet<&str> = DType::ALL.iter().map(|d| d.name()).collect();
    let choices = parameters().filter_map(|p| if let Kind::Choice(words) = p.kind { Some(words) } else { None });
    let is_choice = |w: &&str| !axes.contains(w) && !types.contains(w) && w.parse::<i64>().is_err();
    let choices: BTreeSet<&str> = choices.flatten().copied().filter(is_choice).collect();
    let options = parameters().filter(|p| matches!(p.form, Form::Option | Form::Setting)).map(|p| p.name);
    // The grammar's first block is the statements; its words in small letters are the keywords.
    let statements = te::GRAMMAR.split("```").nth(1).expect("the grammar").trim_start_matches("text");
    let words = statements.split(|c: char| !c.is_alphanumeric());
    let keywords = words.filter(|w| !w.is_empty() && w.bytes().all(|b| b.is_ascii_lowercase())).chain(["target"]);
    let families: BTreeSet<&str> = intrin::all().iter().filter_map(|r| r.name.split('.').next()).collect();
    let families: Vec<&str> = families.into_iter().rev().collect();
    let called = Reducer::ALL.iter().map(|r| r.name()).chain(TupleReducer::PREDEFINED).chain(te::functions());
    let builders =
        te::BUILDERS.into_iter().chain(Epilogue::ALL.map(Epilogue::name)).chain(Layout::ALL.map(Layout::name));
    vec![
        pattern("comment.line.number-sign", "Comment", "#.*$", "#.*$"),
        list("keyword.control.step", "Statement", primitive::ALL.iter().map(|p| p.name).collect(), FIRST, END),
        list("keyword.other.program", "Keyword", keywords.collect(), ALONE, END),
        list("constant.language.target", "Constant", Target::ALL.iter().map(|t| t.name).collect(), ALONE, END),
        list("variable.language.axis", "Identifier", axes, ALONE, END),
        pattern(
            "support.type.instruction",
            "Special",
            &format!(r"\b(?:{})\.[\w.]+", families.join("|")),
            &format!(r"\<\%({}\)\.[[:alnum:]_.]\+", families.join(r"\|")),
        ),
        list("variable.parameter.option", "PreProc", options.collect(), ALONE, "(?==)"),
        list("support.function", "Function", called.collect(), ALONE, r"(?=\s*\()"),
        list("storage.type", "Type", types, r"(?<![A-Za-z_.])", r"(?![A-Za-z_.])"),
        list("support.constant.choice", "Constant", choices, ALONE, END),
        list("support.function.builder", "Function", builders.collect(), ALONE, END),
        list("keyword.operator.logical", "Operator", ["and", "or", "not"].into_iter().collect(), ALONE, END),
        pattern(
            "constant.numeric",
            "Number",
            r"(?<![A-Za-z_.])\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?:x\d+)*(?![A-Za-z_.])",
            r"\<\d\+\%(\.\d\+\)\=\%([eE][+-]\=\d\+\)\=\%(x\d\+\)*\>",
        ),
        pattern("keyword.operator", "Operator", r"->|//|<<|>>|[<>=!]=|[-+*/%&|^~<>=?]", r"->\|[-+*/%&|^~<>=?]"),
    ]
}

/// The expression of a rule for TextMate's engine.
fn textmate(words: &Words) -> String {
    match words {
        Words::Pattern(expression, _) => expression.clone(),
        Words::List(words, before, after) => {
            // A longer word is tried before the one that it begins with.
            let mut words: Vec<String> = words.iter().map(|w| w.replace('.', r"\.")).collect();
            words.sort_by_key(|w| std::cmp::Reverse(w.len()));
            format!("{before}({}){after}", words.join("|"))
        }
    }
}

const NOTE: &str = "Generated by `WARPLOOM_BLESS=1 cargo test --test it editors`.";

fn tm_language() -> String {
    let of = |r: &Rule| {
        let scope = format!("{}.loom", r.scope);
        let expression = textmate(&r.words);
        match r.words {
            // The blanks in front of a step are no part of it.
            Words::List(..) => json!({ "match": expression, "captures": { "1": { "name": scope } } }),
            Words::Pattern(..) => json!({ "match": expression, "name": scope }),
        }
    };
    let patterns: Vec<Value> = rules().iter().map(of).collect();
    let grammar = json!({
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "comment": NOTE, "name": "Loom", "scopeName": "source.loom", "fileTypes": ["loom"], "patterns": patterns,
    });
    serde_json::to_string_pretty(&grammar).unwrap() + "\n"
}

fn sublime_syntax() -> String {
    let mut out = format!(
        "%YAML 1.2\n---\n# {NOTE}\nname: Loom\nfile_extensions: [loom]\nscope: source.loom\ncontexts:\n  main:\n"
    );
    for r in rules() {
        let (expression, scope) = (textmate(&r.words).replace('\'', "''"), r.scope);
        out.push_str(&format!("    - match: '{expression}'\n"));
        out.push_str(&match r.words {
            Words::List(..) => format!("      captures:\n        1: {scope}.loom\n"),
            Words::Pattern(..) => format!("      scope: {scope}.loom\n"),
        });
    }
    out
}

fn vim_syntax() -> String {
    let mut out = format!("\" {NOTE}\nif exists('b:current_syntax')\n  finish\nendif\n\n");
    // Of two that match at a place, Vim takes the one that is defined last.
    for r in rules().iter().rev() {
        let name = r.scope.split(['.', '-']).map(|w| w[..1].to_uppercase() + &w[1..]).collect::<String>();
        let expression = match &r.words {
            Words::Pattern(_, expression) => expression.clone(),
            Words::List(words, before, after) => {
                let mut words: Vec<String> = words.iter().map(|w| w.replace('.', r"\.")).collect();
                words.sort_by_key(|w| std::cmp::Reverse(w.len()));
                let before = if *before == FIRST { r"\%(^\|;\)\s*\zs" } else { r"[[:alnum:]_.]\@1<!" };
                let after = match *after {
                    "(?==)" => r"\ze=",
                    END => r"[[:alnum:]_.]\@!",
                    _ => r"\>",
                };
                format!(r"{before}\%({}\){after}", words.join(r"\|"))
            }
        };
        out.push_str(&format!(
            "syntax match loom{name} '{expression}'\nhighlight default link loom{name} {}\n",
            r.group
        ));
    }
    out.push_str("\nlet b:current_syntax = 'loom'\n");
    out
}

#[test]
fn grammars_are_those_of_the_parsers() {
    let bless = std::env::var_os("WARPLOOM_BLESS").is_some();
    for (file, text) in [
        ("vscode/syntaxes/loom.tmLanguage.json", tm_language()),
        ("sublime/Loom.sublime-syntax", sublime_syntax()),
        ("vim/syntax/loom.vim", vim_syntax()),
    ] {
        let path = root().join("docs/editors").join(file);
        if bless {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
        } else {
            let stored = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(stored == text, "{file} is not that of the parsers: WARPLOOM_BLESS=1 cargo test --test it editors");
        }
    }
}

/// Every word of a schedule that stands in one of the lists is found by its rule: the first word of each statement is a step, a
/// keyword, a builder, or the label of a statement.
#[test]
fn the_first_word_of_every_statement_is_known() {
    let rules = rules();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for r in &rules {
        if let Words::List(words, ..) = &r.words {
            assert!(!words.is_empty(), "{} has no words", r.scope);
            known.extend(words);
        }
    }
    let mut count = 0;
    for (name, text) in texts() {
        let code = text.lines().map(|l| l.split('#').next().unwrap_or(""));
        for statement in code.flat_map(|l| l.split(';')).filter(|s| !s.trim().is_empty()) {
            let first = statement.split_whitespace().next().unwrap();
            let is_label =
                first.ends_with(':') || statement.contains('=') && first.contains('[') || statement.contains(") ");
            assert!(known.contains(first) || is_label, "{name}: `{first}` of `{statement}` is in no list");
            count += 1;
        }
    }
    assert!(count > 1000, "{count} statements");
}

/// What an editor needs besides the grammar refers to files that are there.
#[test]
fn the_extension_is_whole() {
    let folder = root().join("docs/editors/vscode");
    let read = |name: &str| -> Value {
        let text = std::fs::read_to_string(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"))
    };
    let package = read("package.json");
    assert_eq!(package["version"], env!("CARGO_PKG_VERSION"));
    let (language, grammar) = (&package["contributes"]["languages"][0], &package["contributes"]["grammars"][0]);
    assert_eq!((&language["id"], &grammar["language"]), (&json!("loom"), &json!("loom")));
    assert_eq!(language["extensions"], json!([".loom"]));
    assert_eq!(read(grammar["path"].as_str().unwrap())["scopeName"], grammar["scopeName"]);
    assert_eq!(read(language["configuration"].as_str().unwrap())["comments"]["lineComment"], "#");
}
