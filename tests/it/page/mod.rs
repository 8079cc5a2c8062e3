//! The page of `explain --html`: it is whole, needs no network, and every link leads somewhere; the timeline keeps the order of
//! causes; in a browser a click lights up what belongs together.

use super::cli::{File, bad, good};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

/// A page in a file of its own, which goes away.
struct Page {
    path: PathBuf,
    text: String,
}

impl Page {
    fn of(schedule: &str, name: &str) -> Page {
        let path = std::env::temp_dir().join(format!("warploom-{}-{name}.html", std::process::id()));
        good(&["explain", schedule, "--html", path.to_str().unwrap()]);
        let text = std::fs::read_to_string(&path).unwrap();
        Page { path, text }
    }

    /// The values of an attribute, in the order of the text.
    fn values<'p>(&'p self, attribute: &str) -> Vec<&'p str> {
        let opening = format!(" {attribute}=\"");
        self.text.split(&opening).skip(1).filter_map(|rest| rest.split('"').next()).collect()
    }

    /// The lines of a pane: what each is linked with, and its text without tags.
    fn lines(&self, pane: &str) -> Vec<(Vec<String>, String)> {
        let opening = format!("<div class=\"l\" id=\"{pane}-");
        let of = |rest: &str| {
            let (head, rest) = rest.split_once('>').unwrap();
            let links = head.split("data-link=\"").nth(1).and_then(|l| l.split('"').next()).unwrap_or("");
            let code = rest.split_once("<code>").unwrap().1.split_once("</code></div>").unwrap().0;
            (links.split_whitespace().map(str::to_string).collect(), plain(code))
        };
        self.text.split(&opening).skip(1).map(of).collect()
    }

    fn timelines(&self) -> Vec<Value> {
        let json = self.text.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
        serde_json::from_str::<Vec<Value>>(&json.replace("<\\/", "</")).unwrap()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// HTML without its tags.
fn plain(html: &str) -> String {
    let parts = html
        .split('<')
        .enumerate()
        .map(|(n, part)| if n == 0 { part } else { part.split_once('>').map_or("", |p| p.1) });
    let text: String = parts.collect();
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// One without shared stages, one of tensor cores, one of bulk copies and roles, and one of two kernels.
const SUBJECTS: [(&str, &str); 4] = [
    ("examples/vec_add.loom", "vec_add"),
    ("examples/mma_f16.loom", "mma"),
    ("examples/wgmma_f16_pingpong.loom", "pingpong"),
    ("examples/step2_init.loom", "two"),
];

#[test]
fn a_page_is_whole_and_every_link_leads_somewhere() {
    for (schedule, name) in SUBJECTS {
        let page = Page::of(schedule, name);
        for pane in ["schedule", "program", "lowered", "ptx", "sass", "timeline"] {
            assert!(page.text.contains(&format!("id=\"pane-{pane}\"")), "{schedule} has no pane {pane}");
        }
        for alien in ["http", "src=", "@import", "{{", "url("] {
            assert!(!page.text.contains(alien), "{schedule}: the page holds `{alien}`");
        }
        let ids = page.values("id");
        let known: BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(ids.len(), known.len(), "{schedule}: an identifier is there twice");
        let targets: BTreeSet<&str> = page.values("data-link").into_iter().flat_map(str::split_whitespace).collect();
        assert!(targets.len() > 3, "{schedule}: {targets:?}");
        let lost: Vec<_> = targets.difference(&known).collect();
        assert!(lost.is_empty(), "{schedule}: links to nothing: {lost:?}");
        let lowered: Vec<String> = page.lines("lowered").into_iter().map(|l| l.1).collect();
        assert_eq!(lowered.join("\n"), good(&["dump", schedule, "--emit", "lowered"]).trim_end(), "{schedule}");
        let ptx: Vec<String> = page.lines("ptx").into_iter().map(|l| l.1).collect();
        let dumped = good(&["dump", schedule, "--emit", "ptx"]).replace('\t', "    ");
        assert_eq!(ptx.join("\n"), dumped.trim_end(), "{schedule}");
    }
}

#[test]
fn a_page_is_the_same_each_time() {
    let [first, second] = ["once", "twice"].map(|name| Page::of("examples/window_sum_roles.loom", name).text.clone());
    assert_eq!(first, second);
}

#[test]
fn instructions_and_steps_lead_to_the_lines_that_they_make() {
    let page = Page::of("examples/mma_f16.loom", "links");
    let lowered = page.lines("lowered");
    let target = |links: &[String]| {
        let number: usize = links.first()?.strip_prefix("lowered-")?.parse().ok()?;
        lowered.get(number - 1).map(|l| l.1.trim().to_string())
    };
    for (pane, instruction, statement) in [
        ("ptx", "mma.sync.aligned", "mma.m16n8k16"),
        ("ptx", "bar.sync", "barrier"),
        ("ptx", "ldmatrix.sync", "ldmatrix"),
        ("sass", "HMMA.16816", "mma.m16n8k16"),
        ("sass", "LDSM.16", "ldmatrix"),
    ] {
        let lines = page.lines(pane);
        if lines.is_empty() {
            assert!(pane == "sass" && page.text.contains("There is no machine code here"), "{pane}");
            eprintln!("SKIPPED: the links of machine code: ptxas or nvdisasm is missing");
            continue;
        }
        let found: Vec<_> = lines.iter().filter(|l| l.1.trim_start().contains(instruction)).collect();
        assert!(!found.is_empty(), "no {instruction} in {pane}");
        for (links, text) in found {
            let source = target(links).unwrap_or_default();
            assert!(source.starts_with(statement), "{pane}: `{text}` leads to `{source}`");
        }
    }
    let step = page.lines("step").into_iter().find(|s| s.1.starts_with("cache_read mma A shared")).unwrap();
    assert!(step.0.contains(&"buffer-A_s".to_string()) && step.0.contains(&"block-A_s".to_string()), "{step:?}");
    let tensorize = page.lines("step").into_iter().find(|s| s.1.contains("mma.m16n8k16")).unwrap();
    assert!(tensorize.0.contains(&"block-mma".to_string()), "{tensorize:?}");
    let costs = page.values("class").iter().filter(|c| c.starts_with("cost")).count();
    assert!(costs > 5, "{costs} remarks of the cost report");
}

/// A span of a timeline.
struct Span {
    lane: usize,
    from: u64,
    to: u64,
    kind: String,
    text: String,
}

fn spans(timeline: &Value) -> Vec<Span> {
    let number = |v: &Value, key: &str| v[key].as_u64().unwrap_or_else(|| panic!("{key} of {v}"));
    let of = |v: &Value| Span {
        lane: number(v, "lane") as usize,
        from: number(v, "from"),
        to: number(v, "to"),
        kind: v["kind"].as_str().unwrap().to_string(),
        text: v["text"].as_str().unwrap().to_string(),
    };
    timeline["spans"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn a_timeline_is_in_order() {
    for (schedule, name) in SUBJECTS {
        let page = Page::of(schedule, &format!("time-{name}"));
        let lines = page.lines("lowered").len() as u64;
        let timelines = page.timelines();
        assert!(!timelines.is_empty() && page.text.contains("Recorded on the simulator: "), "{schedule}");
        for timeline in &timelines {
            let lanes = timeline["lanes"].as_array().unwrap();
            let end = timeline["end"].as_u64().unwrap();
            let spans = spans(timeline);
            assert!(!spans.is_empty(), "{schedule}");
            // A warp does one thing at a time.
            let mut last: BTreeMap<usize, u64> = BTreeMap::new();
            for s in &spans {
                assert!(
                    s.from < s.to && s.to <= end && s.lane < lanes.len(),
                    "{schedule}: {} in {}..{}",
                    s.text,
                    s.from,
                    s.to
                );
                if lanes[s.lane]["of"]["kind"] == "warp" {
                    let busy = last.insert(s.lane, s.to).unwrap_or(0);
                    assert!(s.from >= busy, "{schedule}: {} begins at {} before {busy}", s.text, s.from);
                }
            }
            for at in ["spans", "marks"].iter().flat_map(|kind| timeline[*kind].as_array().unwrap()) {
                assert!(at["line"].as_u64().unwrap() <= lines, "{schedule}: {at}");
            }
            for arrow in timeline["arrows"].as_array().unwrap() {
                let [from, to] = ["from", "to"].map(|end| arrow[end][1].as_u64().unwrap());
                assert!(from <= to && to <= end, "{schedule}: {arrow}");
            }
        }
    }
}

/// Stages of a ring are filled, then read, then filled again; a consumer does not pass its wait before the stage is full.
#[test]
fn a_ring_goes_round_on_the_timeline() {
    let page = Page::of("examples/wgmma_f16_pingpong.loom", "ring");
    let timeline = &page.timelines()[0];
    let lanes = timeline["lanes"].as_array().unwrap();
    let name = |n: usize| lanes[n]["name"].as_str().unwrap();
    let spans = spans(timeline);
    let stages: Vec<usize> =
        (0..lanes.len()).filter(|n| name(*n).contains("A_s") && name(*n).contains("stage")).collect();
    assert!(stages.len() > 1, "{:?}", (0..lanes.len()).map(name).collect::<Vec<_>>());
    let marks = timeline["marks"].as_array().unwrap();
    for stage in stages {
        let life: Vec<&Span> = spans.iter().filter(|s| s.lane == stage && s.kind != "full").collect();
        assert!(life.len() >= 4, "{} has {} spans", name(stage), life.len());
        for pair in life.windows(2) {
            assert!(
                pair[0].kind != pair[1].kind && pair[0].to <= pair[1].from,
                "{}: {} then {}",
                name(stage),
                pair[0].text,
                pair[1].text
            );
        }
        assert_eq!(life[0].kind, "fill", "{}", name(stage));
    }
    // The phase of a full mbarrier ends when the last copy of its stage has landed.
    let ends: Vec<&Value> =
        marks.iter().filter(|m| m["kind"] == "phase" && m["text"].as_str().unwrap().contains("_full[")).collect();
    assert!(ends.len() > 3, "{} phases", ends.len());
    for mark in ends {
        let (lane, at) = (mark["lane"].as_u64().unwrap() as usize, mark["at"].as_u64().unwrap());
        let fills = spans.iter().any(|s| s.lane == lane && s.kind == "fill" && s.to == at);
        assert!(fills, "{}: {mark} is not the end of a fill", name(lane));
    }
    for kind in ["wait", "issue", "mma", "load", "flight"] {
        assert!(spans.iter().any(|s| s.kind == kind), "no {kind}");
    }
    for kind in ["phase", "arrive", "fence"] {
        assert!(marks.iter().any(|m| m["kind"] == kind), "no {kind}");
    }
}

#[test]
fn a_page_that_cannot_be_written_is_said() {
    let (status, error) = bad(&["explain", "examples/vec_add.loom", "--html", "no/such/folder/page.html"]);
    assert!(
        status == Some(4) && error.contains("[cli.html]") && error.contains("no/such/folder"),
        "{status:?} {error}"
    );
    assert_eq!(bad(&["explain", "examples/vec_add.loom", "--html", "page.html", "--cost"]).0, Some(2));
    let wrong = File::new("page-wrong", "vec_add 64\ntarget sm_80\nsplit x ? 2\n");
    let (status, error) = bad(&["explain", wrong.name(), "--html", "page.html"]);
    assert!(status == Some(1) && error.contains("step.loop"), "{status:?} {error}");
}

/// A browser that runs without a screen.
fn chromium() -> Option<&'static str> {
    let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success());
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(runs)
}

#[test]
fn a_click_lights_up_what_belongs_together() {
    let Some(browser) = chromium() else {
        eprintln!("SKIPPED: clicks on a page: there is no chromium here (`apt-get install chromium`)");
        return;
    };
    for (schedule, name) in [
        ("examples/gpu_v3.loom", "simt"),
        ("examples/mma_f16.loom", "mma"),
        ("examples/wgmma_f16_pingpong.loom", "ring"),
    ] {
        let page = Page::of(schedule, &format!("click-{name}"));
        let clicked = page.text.replace("</body>", &format!("<script>{}</script></body>", include_str!("clicks.js")));
        std::fs::write(&page.path, clicked).unwrap();
        let out = Command::new(browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--window-size=1600,1000",
                "--virtual-time-budget=4000",
                "--dump-dom",
            ])
            .arg(format!("file://{}", page.path.display()))
            .output()
            .unwrap();
        let dom = String::from_utf8_lossy(&out.stdout);
        let report = dom
            .split_once("<pre id=\"report\">")
            .unwrap_or_else(|| panic!("{schedule}: no report:\n{}", &dom[..dom.len().min(400)]));
        let report: Value = serde_json::from_str(&plain(report.1.split_once("</pre>").unwrap().0)).unwrap();
        assert_eq!(report["errors"], serde_json::json!([]), "{schedule}");
        let lit = |click: &str, pane: &str| report[click][pane]["lit"].as_array().unwrap().len();
        for click in ["step", "lowered", "ptx", "name"] {
            for pane in ["lowered", "ptx"] {
                assert!(lit(click, pane) > 0, "{schedule}: clicking {click} lights nothing in {pane}");
            }
            // What lights up in another pane scrolls into view.
            let other = if click == "ptx" { "lowered" } else { "ptx" };
            assert!(report[click][other]["seen"] != Value::Bool(false), "{schedule}: {click} hides {other}");
        }
        assert!(
            lit("step", "schedule") == 1 && lit("ptx", "schedule") > 0 && lit("name", "schedule") > 0,
            "{schedule}"
        );
        assert!(report["version"].as_str().unwrap().starts_with("after step "), "{schedule}");
        let events: BTreeSet<&str> = report["events"].as_array().unwrap().iter().map(|e| e.as_str().unwrap()).collect();
        assert!(
            events.len() > 10 && events.iter().all(|e| e.contains("step ") || e.contains("steps ")),
            "{schedule}: {events:?}"
        );
        assert_ne!(report["previous"], report["events"][39], "{schedule}");
        assert!(report["colors"].as_u64().unwrap() > 5, "{schedule}: the timeline is empty");
        assert_eq!(report["sass"], Value::Bool(true));
    }
}
