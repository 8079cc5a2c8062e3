"""Loosens one requirement of a step or of a verifier at a time, and counts what the random schedules make of it.

    python3 benches/loosened.py make COPY              a copy of the sources in which every check can be switched off
    python3 benches/loosened.py cases COPY LIB IT [WORD]  one line a check: which cases fail without it
    python3 benches/loosened.py run COPY IT SEEDS [WORD]  one line a check: how often it would have refused, what found it

A check is an `if` whose block returns an error. In the copy its condition ends in `&& crate::loosened::holds(SITE)`, which is
false for the site that the variable WARPLOOM_LOOSENED names; the sources themselves have no such switch. `make` prints how
to build the copy's tests; `run` takes their binary. Only sites that the seeds reach say anything: for these the schedules
must fail (caught), or the check refuses what is right (the second column is then the number of such refusals). `cases` takes the
binaries of the unit tests and of the integration tests: a check whose removal fails none of them has no test.
"""
import os
import re
import shutil
import subprocess
import sys

ROOMS = ["src/schedule/primitive", "src/schedule/dataflow.rs", "src/schedule/nest.rs", "src/schedule/regroup.rs", "src/ir/verify.rs",
         "src/ir/verify", "src/lower/admit.rs", "src/lower/verify.rs"]

HOOK = '''//! Switches a check off, for `benches/loosened.py` alone.
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
static SITE: OnceLock<String> = OnceLock::new();
static HITS: AtomicU64 = AtomicU64::new(0);
/// Whether a check holds; counts where it would have.
pub fn holds(site: &str) -> bool {
    let loosened = SITE.get_or_init(|| std::env::var("WARPLOOM_LOOSENED").unwrap_or_default());
    if site != loosened {
        return true;
    }
    if HITS.fetch_add(1, Ordering::Relaxed).is_power_of_two() || HITS.load(Ordering::Relaxed) < 2 {
        eprintln!("loosened: {} times", HITS.load(Ordering::Relaxed));
    }
    false
}
'''


def files(root):
    for room in ROOMS:
        path = os.path.join(root, room)
        if os.path.isfile(path):
            yield path
        for folder, _, names in os.walk(path):
            yield from (os.path.join(folder, n) for n in names if n.endswith(".rs") and "test" not in n)


def closing(text, at):
    """The place of the brace that closes the one at `at`, strings and comments passed over."""
    depth = 0
    token = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|\'(?:\\.|[^\'\\])\'|[{}]')
    for m in token.finditer(text, at):
        if m.group() == "{":
            depth += 1
        elif m.group() == "}":
            depth -= 1
            if depth == 0:
                return m.start()
    return None


def opening(text, at):
    """The place of the brace that opens the block of the `if` at `at`."""
    depth = 0
    token = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|[(){}\[\];]|=>')
    for m in token.finditer(text, at):
        c = m.group()
        if c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
        elif c == "{":
            if depth == 0:
                return m.start()
            depth += 1
        elif c == "}":
            depth -= 1
        elif c == ";" and depth == 0:
            return None
        if depth < 0:
            return None
    return None


def loosen(text, name):
    """The text with its switches, and what each site refuses with."""
    code = text.split("#[cfg(test)]")[0]
    out, last, sites = [], 0, []
    for m in re.finditer(r"\bif ", code):
        start = opening(code, m.end())
        if start is None:
            continue
        end = closing(code, start)
        body = code[start + 1:end] if end else ""
        first = body.strip()
        if not re.match(r"(let [^;]*;\s*)*return Err\(|(let [^;]*;\s*)*Err\(", first) or len(body) > 1500:
            continue
        condition = code[m.end():start].strip()
        if m.end() < last:
            continue
        site = f"{name}:{code.count(chr(10), 0, m.start()) + 1}"
        found = re.search(r'(?:refuse\("[a-z_]+", |broken\(|no\(|\b[a-z]+\()(\d+), ', body) or re.search(r'"((?:verify|lower|admit)\.[a-z_]+)"', body)
        sites.append((site, found.group(1) if found else "?"))
        # The guard of a match arm ends in an arrow.
        condition, arrow = (condition[:-2].strip(), "=> ") if condition.endswith("=>") else (condition, "")
        wrapped = condition if re.search(r"\blet\b", condition) else f"({condition})"
        out.append(code[last:m.end()] + f'{wrapped} && crate::loosened::holds("{site}") {arrow}')
        last = start
    return "".join(out) + code[last:] + text[len(code):], sites


def make(copy):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for part in ["src", "tests", "benches", "examples", "cuda-link", "ptx-templates", ".cargo"]:
        if os.path.exists(os.path.join(root, part)):
            shutil.copytree(os.path.join(root, part), os.path.join(copy, part), dirs_exist_ok=True)
    for part in ["Cargo.toml", "Cargo.lock", "README.md"]:
        shutil.copy(os.path.join(root, part), copy)
    with open(os.path.join(copy, "src/loosened.rs"), "w") as f:
        f.write(HOOK)
    lib = os.path.join(copy, "src/lib.rs")
    text = open(lib).read().replace("pub mod array;", "#[doc(hidden)]\npub mod loosened;\npub mod array;", 1)
    open(lib, "w").write(text)
    table = []
    for path in sorted(set(files(copy))):
        name = os.path.relpath(path, os.path.join(copy, "src")).replace("schedule/primitive/", "")
        text, sites = loosen(open(path).read(), name)
        table += sites
        if sites:
            open(path, "w").write(text)
    with open(os.path.join(copy, "sites.txt"), "w") as f:
        f.writelines(f"{site} {code}\n" for site, code in table)
    print(f"{len(table)} checks can be switched off; build {copy} with `cargo test --test it --no-run`")


def checks(copy, word):
    """The sites whose names contain a word, with what they refuse with."""
    with open(os.path.join(copy, "sites.txt")) as f:
        return [pair for pair in map(str.split, f) if word in pair[0]]


def cases(copy, lib, it, word=""):
    ran = [[lib, "schedule::", "ir::", "lower::"], [it, "cases::cases_come_out", "found::"]]
    missed = 0
    for site, code in checks(copy, word):
        env = dict(os.environ, WARPLOOM_LOOSENED=site, RUST_BACKTRACE="0")
        failed = []
        for command in ran:
            try:
                done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
                failed += sorted(set(re.findall(r"^test (\S+) \.\.\. FAILED", done.stdout, re.M)))
                if done.returncode not in (0, 101):
                    failed.append(f"exit {done.returncode}")
            except subprocess.TimeoutExpired:
                failed.append("out of time")
            if failed:
                break
        missed += not failed
        print(f"{site:45} {code:20} {len(failed):3} {', '.join(failed)[:100] or 'not caught'}", flush=True)
    print(f"{missed} checks are in no case")


def run(copy, binary, seeds, word=""):
    for site, code in checks(copy, word):
        env = dict(os.environ, WARPLOOM_LOOSENED=site, WARPLOOM_SCHEDULES=seeds, RUST_BACKTRACE="0",
                   WARPLOOM_SCHEDULES_LOG=os.devnull)
        command = [binary, "random_schedules_keep", "--nocapture"]
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
            text = done.stdout + done.stderr
        except subprocess.TimeoutExpired as e:
            text = (e.stdout or b"").decode() + (e.stderr or b"").decode() + "\nout of time"
        hits = [int(n) for n in re.findall(r"loosened: (\d+) times", text)]
        kinds = sorted({m.group(1) for m in re.finditer(r"^seed .*:\n# (.*)$", text, re.M)})
        verdict = "caught" if kinds else "not reached" if not hits else "reached, not caught"
        print(f"{site:45} {code:20} {max(hits, default=0):6} {verdict:20} {'; '.join(kinds)[:120]}", flush=True)


if __name__ == "__main__":
    {"make": make, "cases": cases, "run": run}[sys.argv[1]](*sys.argv[2:])
