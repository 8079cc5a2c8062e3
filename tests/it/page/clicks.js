// Clicks through a page as a reader does and reports what lights up: the text of #report is JSON.
"use strict";
(() => {
const report = { errors: [] };
window.addEventListener("error", (e) => report.errors.push(String(e.message)));
const lit = (pane) => [...document.querySelectorAll("#pane-" + pane + " .l.strong, #pane-" + pane + " .l.weak")].map((e) => e.id);
const seen = (pane) => {
  const e = document.querySelector("#pane-" + pane + " .l.strong"), view = document.querySelector("#pane-" + pane + " .text");
  if (!e) return null;
  const [a, b] = [e.getBoundingClientRect(), view.getBoundingClientRect()];
  return a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
};
const panes = () => Object.fromEntries(["schedule", "lowered", "ptx", "sass"].map((p) => [p, { lit: lit(p), seen: seen(p) }]));
const click = (e) => { e.dispatchEvent(new MouseEvent("click", { bubbles: true })); return panes(); };
const about = (pane, words) => [...document.querySelectorAll("#pane-" + pane + " .l")].find((e) => words.test(e.textContent) && (pane !== "ptx" || e.dataset.link));
try {
  const step = document.querySelector("#pane-schedule .l[data-step]");
  report.step = click(about("schedule", /cache_read/) || step);
  report.version = document.querySelector("#version").textContent;
  report.lowered = click(about("lowered", /mma\.m\d|C\[.*=/));
  report.ptx = click(about("ptx", /mma_async|mma\.sync|st\.global/));
  report.name = click(document.querySelector("#names .chip.buffer[data-link]"));
  const detail = () => document.querySelector("#detail").textContent;
  report.events = [];
  for (let n = 0; n < 40; n++) { document.querySelector("#next").click(); report.events.push(detail()); }
  document.querySelector("#previous").click();
  report.previous = detail();
  report.selected = document.querySelector("#selected").textContent;
  const canvas = document.querySelector("#canvas");
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const colors = new Set();
  for (let n = 0; n < data.length; n += 4) colors.add(data[n] << 16 | data[n + 1] << 8 | data[n + 2]);
  report.colors = colors.size;
  document.querySelector("[data-pane=sass]").click();
  report.sass = !document.querySelector("#pane-sass").hidden;
} catch (e) { report.errors.push(String(e.stack || e)); }
const out = document.createElement("pre");
out.id = "report"; out.textContent = JSON.stringify(report);
document.body.append(out);
})();
