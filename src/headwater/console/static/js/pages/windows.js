// A topic of windows as bars: a correction visibly replaces what was shown.

import { get, live } from "../api.js";
import { h, show } from "../dom.js";
import { clock, number } from "../format.js";

export const title = "Windows";

const SHOWN_MAX = 60;
const TIME_FIELD = /(^|_)(start|window)/;

export function render(place, name) {
  const topics = h("select", { "aria-label": "Topic with windows" });
  const value = h("select", { "aria-label": "Value" });
  const picture = h("div", { class: "sheet" });
  const log = h("ol", { class: "quiet", "aria-live": "polite" });
  const note = h("p", { class: "quiet" });
  show(place, h("h1", {}, "Windows and their corrections"), h("form", { class: "filters" }, h("label", {}, "Topic", topics), h("label", {}, "Value", value)), note, picture, h("h2", {}, "Corrections"), log);
  let windows = new Map();
  let source = null;

  function take(record) {
    const row = record.value?.data;
    if (record.value?.form !== "json" || typeof row !== "object" || row === null) return;
    const time = Object.keys(row).find((field) => TIME_FIELD.test(field));
    const numbers = Object.keys(row).filter((field) => typeof row[field] === "number" && !field.startsWith("_") && !TIME_FIELD.test(field) && !/(^|_)end$/.test(field));
    if (!time || !numbers.length) return;
    if (!value.options.length) show(value, numbers.map((field) => h("option", {}, field)));
    const at = milliseconds(row[time]);
    const key = JSON.stringify(record.key?.data ?? at);
    const now = row[value.value];
    const before = windows.get(key);
    if (before && before.value !== now) {
      log.prepend(h("li", {}, `${clock(at)}: ${number(before.value)} → ${number(now)}`));
      while (log.children.length > 20) log.lastChild.remove();
    }
    windows.set(key, { at, value: now, before: before && before.value !== now ? before.value : before?.before });
  }

  function draw() {
    const shownOnes = [...windows.values()].sort((a, b) => a.at - b.at).slice(-SHOWN_MAX);
    note.textContent = shownOnes.length ? "Yellow: corrected after it was published; the dashed line is what had been shown." : "No windows found in this topic.";
    show(picture, bars(shownOnes));
  }

  async function open() {
    source?.close();
    windows = new Map();
    show(log);
    show(value);
    if (!topics.value) return draw();
    const found = await get(`api/records?${new URLSearchParams({ topic: topics.value, tail: 500, limit: 500 })}`);
    found.records.forEach(take);
    draw();
    source = new EventSource(`api/follow?${new URLSearchParams({ topic: topics.value })}`);
    source.addEventListener("record", (event) => (take(JSON.parse(event.data)), requestAnimationFrame(draw)));
  }

  function offer() {
    const names = (live.overview?.topics ?? []).map((topic) => topic.name).filter((topic) => !topic.startsWith("__"));
    if (topics.options.length === names.length || !names.length || (name && !names.includes(name))) return;
    const chosen = topics.value || name || names.find((each) => /minute|window|per_/.test(each)) || names[0];
    show(topics, names.map((each) => h("option", { selected: each === chosen }, each)));
    open().catch((error) => (note.textContent = error.message));
  }

  topics.addEventListener("change", () => open().catch((error) => (note.textContent = error.message)));
  value.addEventListener("change", () => open());
  live.addEventListener("overview", offer);
  offer();
  return () => (live.removeEventListener("overview", offer), source?.close());
}

const milliseconds = (value) => (typeof value === "string" ? Date.parse(value) : value > 1e14 ? value / 1000 : value);

function bars(windows) {
  const top = Math.max(1, ...windows.map((each) => Math.max(each.value ?? 0, each.before ?? 0)));
  const width = 940 / Math.max(windows.length, 12);
  const drawn = windows.map((each, index) => {
    const height = (180 * (each.value ?? 0)) / top;
    const x = 20 + index * width;
    const ghost = each.before === undefined ? null : h("rect", { class: "before", x, y: 200 - (180 * each.before) / top, width: width - 4, height: (180 * each.before) / top });
    return h("g", { class: each.before === undefined ? "bar" : "bar corrected" }, h("title", {}, `${clock(each.at)}: ${number(each.value)}`), h("rect", { x, y: 200 - height, width: width - 4, height }), ghost, index % Math.ceil(windows.length / 10 || 1) ? null : h("text", { x, y: 220, class: "small" }, clock(each.at)));
  });
  return h("svg", { class: "path", viewBox: "0 0 980 230", role: "img", "aria-label": `${windows.length} windows` }, drawn);
}
