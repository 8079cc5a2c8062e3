"use strict";
(() => {
const one = (s) => document.querySelector(s);
const all = (s, e = document) => [...e.querySelectorAll(s)];
const links = (e) => (e && e.dataset.link ? e.dataset.link.split(" ") : []);
const lineOf = (id) => Number((id || "").split("-")[1]);

// ---- What is linked with what.

// The instructions of each lowered line, and the elements of each name.
const codes = new Map(), tokens = new Map(), lowered = all("#pane-lowered .l"), steps = all("#pane-schedule .l[data-step]");
const put = (map, key, value) => { if (!map.has(key)) map.set(key, []); map.get(key).push(value); };
for (const e of all("#pane-ptx .l[data-link], #pane-sass .l[data-link]")) put(codes, links(e)[0], e);
for (const e of all(".n")) for (const id of links(e)) put(tokens, id, e);
const isName = (id) => /^(loop|block|buffer|mbarrier)-/.test(id);

let picked = null, lit = [];
const light = (e, how) => {
  if (!e || e.classList.contains("strong") || (how === "weak" && e.classList.contains("weak"))) return;
  e.classList.remove("weak"); e.classList.add(how); lit.push(e);
};

// The lowered lines of an element: those that it is about, and those that it touches besides.
function reach(id) {
  const strong = new Set(), weak = new Set(), names = new Set();
  const byNames = () => {
    for (const e of lowered) {
      if (links(e).some((n) => names.has(n))) strong.add(e.id);
      else if (all(".n", e).some((t) => links(t).some((n) => names.has(n)))) weak.add(e.id);
    }
  };
  const element = document.getElementById(id);
  if (id.startsWith("lowered-")) {
    strong.add(id);
    for (let n = lineOf(id) + 1; n <= Number(element.dataset.end); n++) weak.add("lowered-" + n);
    links(element).forEach((n) => names.add(n));
  } else if (/^(ptx|sass)-/.test(id)) {
    for (const to of links(element)) { strong.add(to); links(document.getElementById(to)).forEach((n) => names.add(n)); }
  } else {
    (isName(id) ? [id] : links(element)).forEach((n) => names.add(n));
    byNames();
  }
  return { strong, weak, names };
}

function select(id, origin) {
  const element = document.getElementById(id);
  if (!element) return;
  lit.forEach((e) => e.classList.remove("strong", "weak", "picked"));
  lit = []; picked = id;
  const { strong, weak, names } = reach(id);
  element.classList.add("picked"); lit.push(element);
  light(element, "strong");
  for (const n of strong) { light(document.getElementById(n), "strong"); (codes.get(n) || []).forEach((e) => light(e, "strong")); }
  for (const n of weak) { light(document.getElementById(n), "weak"); (codes.get(n) || []).forEach((e) => light(e, "weak")); }
  // Of a statement, what it is about; else every place of the names.
  const few = names.size <= 12 || isName(id);
  if (few) for (const n of names) { (tokens.get(n) || []).forEach((e) => light(e, "strong")); light(document.getElementById(n), "strong"); }
  let version = null;
  if (id.startsWith("step-")) version = Number(id.slice(5));
  else {
    for (const step of steps) if (names.size && names_of(step).some((n) => names.has(n))) {
      light(step, isName(id) ? "strong" : "weak");
    }
  }
  if (version !== null) show(version);
  for (const e of all(".version:not([hidden]) .l")) if (links(e).some((n) => names.has(n))) light(e, "weak");
  for (const pane of all("main .pane:not([hidden])")) if (!origin || !pane.contains(origin)) scroll(pane, pane.contains(element) ? element : null);
  const count = (s, what) => { const n = new Set(lit.filter((e) => e.matches(s))).size; return n ? n + " " + what + (n === 1 ? "" : "s") : ""; };
  const parts = [count("#pane-schedule .l[data-step]", "step"), count("#pane-lowered .l", "lowered line"),
    count("#pane-ptx .l", "PTX line"), count("#pane-sass .l", "SASS line")].filter(Boolean);
  one("#selected").textContent = (parts.join(", ") || "nothing") + ", from " + label(element);
  one("#selected").title = one("#selected").textContent;
  history.replaceState(null, "", "#" + id);
  draw();
}

// What a step itself changes, without what becomes of that.
const changes = new Map();
for (const e of all(".chip")) for (const step of links(e)) put(changes, step, e.id);
const names_of = (step) => changes.get(step.id) || [];

function label(e) {
  if (e.classList.contains("chip")) return e.title;
  const [kind] = e.id.split("-");
  const text = one("#" + CSS.escape(e.id) + " code").textContent.trim();
  const which = { step: "step " + e.dataset.step, schedule: "schedule", program: "program", lowered: "lowered line " + lineOf(e.id), ptx: "PTX line " + lineOf(e.id), sass: "SASS line " + lineOf(e.id) }[kind];
  return which + " “" + (text.length > 70 ? text.slice(0, 70) + "…" : text) + "”";
}

function scroll(pane, own) {
  const target = own || pane.querySelector(".version:not([hidden]) .l.strong, .text > .l.strong") || pane.querySelector(".l.weak, .version:not([hidden]) .l[data-changed]");
  if (!target) return;
  const text = pane.querySelector(".text"), at = target.getBoundingClientRect(), view = text.getBoundingClientRect();
  if (at.top < view.top + 20 || at.bottom > view.bottom - 20) text.scrollTop += at.top - view.top - view.height / 3;
}

// ---- The program after each step.

let shown = 0;
const versions = all(".version");
function show(step) {
  shown = Math.max(0, Math.min(versions.length - 1, step));
  versions.forEach((v, n) => { v.hidden = n !== shown; });
  one("#version").textContent = shown ? "after step " + shown + " of " + (versions.length - 1) : "before the first step";
}
one("#back").onclick = () => (shown > 1 ? select("step-" + (shown - 1)) : show(0));
one("#on").onclick = () => select("step-" + Math.min(versions.length - 1, shown + 1));
show(versions.length - 1);

document.addEventListener("click", (event) => {
  const name = event.target.closest(".n"), chip = event.target.closest(".chip"), line = event.target.closest(".l"), cost = event.target.closest(".cost");
  if (name) select(links(name)[0], line);
  else if (chip) select(chip.id, chip);
  else if (line) select(line.id, line);
  else if (cost) select(links(cost)[0], cost);
});
for (const box of all("#toggles [data-pane]")) {
  const apply = () => { one("#pane-" + box.dataset.pane).hidden = !box.checked; one("#grip").hidden = one("#pane-timeline").hidden; resize(); };
  box.onchange = apply;
}
one("#costs").onchange = (e) => document.body.classList.toggle("no-costs", !e.target.checked);
one("#theme").onclick = () => {
  const dark = getComputedStyle(document.body).backgroundColor === "rgb(20, 23, 28)";
  document.documentElement.dataset.theme = dark ? "light" : "dark"; draw();
};

// ---- The timeline.

const LABEL = 176, HEIGHT = 17, AXIS = 18;
const timelines = JSON.parse(one("#data").textContent);
const canvas = one("#canvas"), context = canvas.getContext("2d"), tip = one("#tip");
let line, rank = 0, rows = [], events = [], chosen = null, scale = 1, left = 0, width = 0;
const SPANS = { compute: "loads, computes", copy: "copies from device memory", output: "writes the result", issue: "starts TMA or an MMA", sync: "synchronises", wait: "waits", mma: "MMA", flight: "copy in flight", fill: "stage is filled", full: "stage is full", read: "stage is read" };
const MARKS = { barrier: "barrier", arrive: "arrival", fence: "fence", phase: "phase ends" };

function open(n) {
  line = timelines[n]; rank = 0; chosen = null;
  const blocks = line ? [...new Set(line.lanes.map((l) => l.rank))] : [];
  one("#block").replaceChildren(...blocks.map((b) => new Option("block " + b + " of the cluster", b)));
  one("#block").hidden = blocks.length < 2;
  arrange();
}
function arrange() {
  rows = []; events = [];
  if (!line) return;
  line.lanes.forEach((l, n) => { if (l.rank === rank) rows.push(n); });
  const row = new Map(rows.map((lane, n) => [lane, n]));
  const keep = (e, span) => { if (row.has(e.lane)) events.push({ ...e, row: row.get(e.lane), span, t: span ? e.from : e.at }); };
  line.spans.forEach((s) => keep(s, true)); line.marks.forEach((m) => keep(m, false));
  events.sort((a, b) => a.t - b.t || a.row - b.row || (b.span ? 1 : 0) - (a.span ? 1 : 0));
  const used = new Set(events.map((e) => e.kind));
  one("#legend").replaceChildren(...Object.entries({ ...SPANS, ...MARKS }).filter(([k]) => used.has(k)).map(([kind, text]) => {
    const item = document.createElement("span"), swatch = document.createElement("em");
    swatch.style.background = `var(--${kind})`; if (MARKS[kind]) swatch.className = "mark";
    item.append(swatch, text); return item;
  }));
  whole();
}
function whole() { left = 0; scale = line ? Math.max(0.05, (width - LABEL - 8) / Math.max(1, line.end)) : 1; draw(); }
function resize() {
  const view = one("#view");
  const fits = width > 0 && line && Math.abs(scale * line.end - (width - LABEL - 8)) < 2;
  width = view.clientWidth;
  if (fits || !scale) whole(); else draw();
}
const x = (t) => LABEL + (t - left) * scale, y = (row) => AXIS + row * HEIGHT;
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

function draw() {
  const height = AXIS + rows.length * HEIGHT + 6, ratio = window.devicePixelRatio || 1;
  if (!width || !line) { canvas.height = 0; return; }
  canvas.width = width * ratio; canvas.height = height * ratio;
  canvas.style.width = width + "px"; canvas.style.height = height + "px";
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = "11px system-ui, sans-serif"; context.textBaseline = "middle";
  const ink = color("ink"), dim = color("dim"), rule = color("line"), accent = color("accent"), paint = {};
  const fill = (kind) => (paint[kind] ??= color(kind) || dim);
  // The lanes, and a grid of steps.
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find((s) => s * scale > 60) || 10000;
  context.fillStyle = rule;
  for (let t = Math.ceil(left / step) * step; x(t) < width; t += step) {
    if (x(t) < LABEL) continue;
    context.fillRect(x(t), AXIS - 4, 1, height); context.fillStyle = dim; context.fillText("step " + t, x(t) + 3, 8); context.fillStyle = rule;
  }
  rows.forEach((lane, n) => { context.fillStyle = rule; context.fillRect(0, y(n) + HEIGHT - 1, width, line.lanes[rows[n + 1]]?.of.kind !== line.lanes[lane].of.kind ? 1.5 : 0.4); });
  const about = picked && picked.startsWith("lowered-") ? lineOf(picked) : 0;
  context.save(); context.beginPath(); context.rect(LABEL, 0, width, height); context.clip();
  for (const e of events) {
    if (!e.span || x(e.to) < LABEL || x(e.from) > width) continue;
    const w = Math.max(0.7, (e.to - e.from) * scale - (scale > 3 ? 1 : 0)), thin = e.kind === "flight" || e.kind === "full";
    context.fillStyle = fill(e.kind);
    context.fillRect(x(e.from), y(e.row) + (thin ? 6 : 2), w, thin ? HEIGHT - 12 : HEIGHT - 5);
    if (about && e.line === about && e.kind !== "full") { context.strokeStyle = accent; context.lineWidth = 1.5; context.strokeRect(x(e.from), y(e.row) + 1.5, w, HEIGHT - 4); }
    const text = { wait: "wait", fill: "filled", read: "read", full: "full", issue: "" }[e.kind] ?? e.text.split(":")[0];
    if (w > 8 + 6 * Math.min(text.length, 9) && !thin) {
      context.save(); context.beginPath(); context.rect(x(e.from), y(e.row), w - 2, HEIGHT); context.clip();
      context.fillStyle = e.kind === "wait" || e.kind === "full" ? dim : "#fff"; context.fillText(text, x(e.from) + 3, y(e.row) + HEIGHT / 2); context.restore();
    }
  }
  for (const e of events) {
    if (e.span || x(e.at) < LABEL - 2 || x(e.at) > width) continue;
    context.fillStyle = fill(e.kind);
    context.fillRect(x(e.at) - 1, y(e.row) + 1, e.kind === "phase" || e.kind === "barrier" ? 3 : 2, HEIGHT - 3);
  }
  arrows(accent, dim);
  if (chosen) {
    context.strokeStyle = ink; context.lineWidth = 2;
    const w = chosen.span ? Math.max(3, (chosen.to - chosen.from) * scale) : 5;
    context.strokeRect(x(chosen.t) - (chosen.span ? 0 : 2), y(chosen.row) + 1, w, HEIGHT - 3);
  }
  context.restore();
  context.fillStyle = color("pane"); context.fillRect(0, 0, LABEL - 4, height);
  rows.forEach((lane, n) => {
    context.fillStyle = chosen && chosen.row === n ? accent : ink;
    const name = line.lanes[lane].name; context.fillText(name.length > 28 ? name.slice(0, 27) + "…" : name, 6, y(n) + HEIGHT / 2);
  });
}
// Causes and effects: those of the chosen event, and all where there are few.
function arrows(accent, dim) {
  const row = new Map(rows.map((lane, n) => [lane, n]));
  const seen = line.arrows.filter((a) => row.has(a.from[0]) && row.has(a.to[0]) && x(a.to[1]) > LABEL && x(a.from[1]) < width);
  const mine = (a) => chosen && (a.from[0] === chosen.lane && a.from[1] >= chosen.t && a.from[1] <= (chosen.to ?? chosen.t) || a.to[0] === chosen.lane && a.to[1] >= chosen.t && a.to[1] <= (chosen.to ?? chosen.t));
  for (const a of seen) {
    const own = mine(a);
    if (!own && seen.length > 250) continue;
    const [x0, y0, x1, y1] = [x(a.from[1]), y(row.get(a.from[0])) + HEIGHT / 2, x(a.to[1]), y(row.get(a.to[0])) + HEIGHT / 2];
    context.strokeStyle = own ? accent : dim; context.globalAlpha = own ? 1 : 0.35; context.lineWidth = own ? 1.6 : 0.8;
    context.beginPath(); context.moveTo(x0, y0); context.lineTo(x1, y1); context.stroke();
    const up = Math.sign(y1 - y0) || 1; context.beginPath(); context.moveTo(x1, y1); context.lineTo(x1 - 3, y1 - 5 * up); context.lineTo(x1 + 3, y1 - 5 * up); context.closePath();
    context.fillStyle = own ? accent : dim; context.fill(); context.globalAlpha = 1;
  }
}
function at(px, py) {
  const row = Math.floor((py - AXIS) / HEIGHT); let best = null;
  for (const e of events) {
    if (e.row !== row) continue;
    if (!e.span && Math.abs(x(e.at) - px) <= 3) return e;
    if (e.span && x(e.from) - 1 <= px && px <= Math.max(x(e.to), x(e.from) + 3)) best = e;
  }
  return best;
}
const say = (e) => {
  const when = e.span ? (e.to - e.from > 1 ? "steps " + e.from + " to " + e.to : "step " + e.from) : "step " + e.at;
  const where = e.line ? " (lowered line " + e.line + ")" : "";
  const lane = line.lanes[e.lane], text = e.text.replace(/; $/, "").replace(/^warp \d+: /, "");
  return lane.name + ", " + when + ": " + text + where;
};
function choose(e) {
  if (!e) return;
  chosen = e; one("#detail").textContent = say(e);
  if (x(e.t) < LABEL + 20 || x(e.t) > width - 40) left = Math.max(0, e.t - (width - LABEL) / scale / 3);
  const view = one("#view"), top = y(e.row);
  if (top < view.scrollTop + AXIS || top > view.scrollTop + view.clientHeight - HEIGHT) view.scrollTop = top - view.clientHeight / 2;
  if (e.line) select("lowered-" + e.line); else draw();
}
function move(by, sameLane) {
  if (!events.length) return;
  let n = chosen ? events.indexOf(chosen) : by > 0 ? -1 : events.length;
  do { n += by; } while (events[n] && sameLane && chosen && events[n].lane !== chosen.lane);
  choose(events[n]);
}
function zoom(by, around = width / 2) {
  const t = left + (around - LABEL) / scale;
  scale = Math.max(0.02, Math.min(60, scale * by)); left = Math.max(-2, t - (around - LABEL) / scale); draw();
}
one("#view").addEventListener("wheel", (e) => {
  if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) { left = Math.max(-2, left + (e.deltaX || e.deltaY) / scale); draw(); }
  else if (!e.altKey) zoom(Math.exp(-e.deltaY / 400), e.offsetX); else return;
  e.preventDefault();
}, { passive: false });
let drag = null;
canvas.addEventListener("pointerdown", (e) => { drag = { x: e.offsetX, left, moved: false, y: e.clientY, top: one("#view").scrollTop }; canvas.setPointerCapture(e.pointerId); });
canvas.addEventListener("pointermove", (e) => {
  if (drag) {
    if (Math.abs(e.offsetX - drag.x) > 3 || Math.abs(e.clientY - drag.y) > 3) drag.moved = true;
    if (drag.moved) { left = Math.max(-2, drag.left - (e.offsetX - drag.x) / scale); one("#view").scrollTop = drag.top - (e.clientY - drag.y); draw(); }
    return;
  }
  const hit = at(e.offsetX, e.offsetY);
  tip.hidden = !hit;
  if (hit) { tip.textContent = say(hit); tip.style.left = Math.min(e.clientX + 12, innerWidth - 430) + "px"; tip.style.top = Math.max(4, e.clientY - 46) + "px"; }
});
canvas.addEventListener("pointerup", (e) => { if (drag && !drag.moved) choose(at(e.offsetX, e.offsetY)); drag = null; });
canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
one("#closer").onclick = () => zoom(1.6); one("#wider").onclick = () => zoom(1 / 1.6); one("#whole").onclick = whole;
one("#previous").onclick = (e) => move(-1, e.shiftKey); one("#next").onclick = (e) => move(1, e.shiftKey);
document.addEventListener("keydown", (e) => {
  if (e.target.matches("input, select")) return;
  const act = { ArrowRight: () => move(1, e.shiftKey), ArrowLeft: () => move(-1, e.shiftKey), "+": () => zoom(1.6), "-": () => zoom(1 / 1.6), 0: whole }[e.key];
  if (act && !e.ctrlKey && !e.metaKey && !e.altKey) { act(); e.preventDefault(); }
});
one("#kernel").replaceChildren(...timelines.map((t, n) => new Option(t.kernel, n)));
one("#kernel").hidden = timelines.length < 2;
one("#kernel").onchange = (e) => open(Number(e.target.value));
one("#block").onchange = (e) => { rank = Number(e.target.value); chosen = null; arrange(); };
const grip = one("#grip"), pane = one("#pane-timeline");
grip.addEventListener("pointerdown", (e) => { grip.setPointerCapture(e.pointerId); grip.onpointermove = (m) => { pane.style.flexBasis = Math.max(60, innerHeight - m.clientY) + "px"; resize(); }; });
grip.addEventListener("pointerup", () => { grip.onpointermove = null; });
new ResizeObserver(resize).observe(one("#view"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
for (const e of all('#pane-ptx .l')) if (e.textContent.includes('.visible .entry')) { one('#pane-ptx .text').scrollTop = e.offsetTop - 30; break; }
open(0); resize(); whole();
// `#lowered-12` selects a line; `#lowered-12,3,400,fill` zooms the timeline by 3, begins at step 400 and chooses the first event of that kind.
const [start, by, from, kind] = decodeURIComponent(location.hash.slice(1)).split(",");
if (by) { scale *= Number(by) || 1; left = Number(from) || 0; }
if (start) select(start); else draw();
if (kind) choose(events.find((e) => e.kind === kind && e.t >= left));
})();
