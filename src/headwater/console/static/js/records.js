// Browsing a topic's records: from the end, an offset or a time; filtered; followed live.

import { get } from "./api.js";
import { facts, h, show } from "./dom.js";
import { bytes, decoded, moment, number } from "./format.js";
import { table } from "./table.js";

const FOLLOWED_MAX = 500; // records kept on the page while following
const DRAW_INTERVAL_MS = 250;

export function browser(topic, { onselect } = {}) {
  const partition = h("input", { size: 5, inputmode: "numeric", placeholder: "all" });
  const from = h("select", {}, ["the end", "offset", "time"].map((text) => h("option", {}, text)));
  const at = h("input", { size: 22, placeholder: "offset, or 2026-01-31 12:00", disabled: true });
  const contains = h("input", { type: "search", placeholder: "text in key or value" });
  const look = h("button", { class: "main", type: "submit" }, "Show");
  const following = h("button", { type: "button", "aria-pressed": "false" }, "Follow");
  const note = h("p", { class: "quiet", role: "status" });
  const detail = h("div", {});
  const rows = table(`Records of ${topic}`, [
    { title: "Time", cell: (record) => moment(record.timestamp) },
    { title: "Partition", number: true, cell: (record) => record.partition },
    { title: "Offset", number: true, cell: (record) => record.offset },
    { title: "Key", code: true, cell: (record) => decoded(record.key) },
    { title: "Value", code: true, cell: (record) => decoded(record.value).slice(0, 300) },
  ], { onselect: (record) => (show(detail, whole(record)), onselect?.(record, detail)) });
  let source = null;
  let timer = null;

  async function browse() {
    stop();
    const query = new URLSearchParams({ topic, contains: contains.value });
    if (partition.value) query.set("partition", partition.value);
    if (from.value === "offset") query.set("offset", at.value);
    if (from.value === "time") query.set("time", String(Date.parse(at.value.replace(" ", "T"))));
    try {
      const found = await get(`api/records?${query}`);
      rows.set(found.records.reverse());
      note.textContent = `${number(found.records.length)} shown of ${number(found.scanned)} read${found.end ? "" : "; there is more"}`;
    } catch (error) {
      note.textContent = error.message;
    }
  }

  function follow() {
    if (source) return stop();
    const query = new URLSearchParams({ topic, contains: contains.value });
    if (partition.value) query.set("partition", partition.value);
    const kept = [];
    let changed = false;
    source = new EventSource(`api/follow?${query}`);
    source.addEventListener("record", (event) => {
      kept.unshift({ ...JSON.parse(event.data), fresh: true });
      if (kept.length > FOLLOWED_MAX) kept.pop();
      changed = true;
    });
    timer = setInterval(() => {
      if (!changed) return;
      rows.set([...kept]);
      kept.forEach((record) => (record.fresh = false));
      changed = false;
    }, DRAW_INTERVAL_MS);
    following.setAttribute("aria-pressed", "true");
    following.textContent = "Stop";
    note.textContent = "Following: new records appear on top.";
  }

  function stop() {
    source?.close();
    clearInterval(timer);
    source = null;
    following.setAttribute("aria-pressed", "false");
    following.textContent = "Follow";
  }

  from.addEventListener("change", () => (at.disabled = from.value === "the end"));
  following.addEventListener("click", follow);
  const form = h("form", { class: "filters", onsubmit: (event) => (event.preventDefault(), browse()) }, h("label", {}, "Partition", partition), h("label", {}, "From", from), h("label", {}, "Where", at), h("label", {}, "Contains", contains), look, following);
  browse();
  return { element: h("div", { class: "sheet" }, form, note, rows.element, detail), close: stop, again: browse };
}

function whole(record) {
  const pretty = (part) => (part?.form === "json" ? JSON.stringify(part.data, null, 2) : decoded(part));
  const headers = Object.entries(record.headers);
  return h("section", { "aria-label": "The chosen record" }, h("h2", {}, `Partition ${record.partition}, offset ${record.offset}`), facts([["time", moment(record.timestamp)], ["size", bytes(record.bytes)], ["key", decoded(record.key)], ...headers]), h("pre", { tabindex: 0 }, pretty(record.value)));
}
