// A table of any length: only the rows in sight are in the document, so 10,000 of them cost what 40 cost.

import { h } from "./dom.js";

const ROW_PX = 32;
const SPARE_ROWS = 10;

// columns: [{ title, cell: (row) => text or element, number: bool, code: bool }]
export function table(caption, columns, { onselect } = {}) {
  const body = h("tbody");
  const head = columns.map((column) => h("th", { scope: "col", class: column.number ? "number" : undefined }, column.title));
  const place = h("div", { class: "rows", tabindex: 0, role: "region", "aria-label": caption }, h("table", { "aria-label": caption }, h("thead", {}, h("tr", {}, head)), body));
  let rows = [];

  function draw() {
    const first = Math.max(0, Math.floor(place.scrollTop / ROW_PX) - SPARE_ROWS);
    const last = Math.min(rows.length, first + Math.ceil((place.clientHeight || 640) / ROW_PX) + 2 * SPARE_ROWS);
    const drawn = rows.slice(first, last).map((row, at) => line(row, first + at));
    body.replaceChildren(gap(first), ...drawn, gap(rows.length - last));
  }

  function gap(count) {
    return h("tr", { "aria-hidden": true }, h("td", { colspan: columns.length, style: `height:${count * ROW_PX}px;padding:0;border:0` }));
  }

  function line(row, index) {
    const cells = columns.map((column) => h("td", { class: [column.number && "number", column.code && "code"].filter(Boolean).join(" ") || undefined }, column.cell(row)));
    const choose = onselect && (() => onselect(row));
    return h("tr", { "aria-rowindex": index + 1, class: row.fresh && "fresh", tabindex: onselect && 0, onclick: choose, onkeydown: onselect && ((event) => event.key === "Enter" && choose()) }, cells);
  }

  let waiting = false;
  place.addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => ((waiting = false), draw()));
  });
  return {
    element: place,
    set(next) {
      rows = next;
      place.classList.toggle("short", rows.length <= 15);
      if (!place.contains(document.activeElement) || document.activeElement === place) draw();
    },
  };
}
