// One view from the inside: its rows, a search or a query, and how far it had got when it answered.

import { get, post } from "../api.js";
import { h, show } from "../dom.js";
import { number } from "../format.js";
import { table } from "../table.js";

export const title = "View";

const ROWS_SHOWN = 500;
const base = (name) => `api/stores/views/${encodeURIComponent(name)}`;

export function render(place, name) {
  const words = h("input", { type: "search", size: 40, placeholder: "words to search, where the view is an index" });
  const sql = h("input", { size: 60, placeholder: `SELECT * FROM ${name} LIMIT 10, where the view speaks SQL` });
  const note = h("p", { class: "quiet", role: "status" });
  const rows = h("div", { class: "sheet" });
  const ask = (question) => async (event) => {
    event?.preventDefault();
    try {
      draw(await question());
    } catch (error) {
      note.textContent = error.message;
    }
  };

  function draw(answer) {
    const found = answer.hits ? answer.hits.map((hit) => ({ score: hit.score, ...hit.row })) : answer.rows;
    const columns = [...new Set(found.flatMap((row) => Object.keys(row)))].map((column) => ({ title: column, code: true, cell: (row) => text(row[column]) }));
    const result = table(`Rows of ${name}`, columns);
    show(rows, result.element);
    result.set(found);
    note.textContent = `${number(answer.total ?? found.length)} rows · version ${answer.version} · as of ${answer.position}`;
  }

  const all = ask(() => get(`${base(name)}/rows?limit=${ROWS_SHOWN}`));
  const search = ask(() => get(`${base(name)}/search?${new URLSearchParams({ q: words.value, limit: ROWS_SHOWN })}`));
  const query = ask(() => post(`${base(name)}/query`, { sql: sql.value }));
  const forms = [
    h("form", { class: "filters", onsubmit: search }, h("label", {}, "Search", words), h("button", { type: "submit" }, "Search")),
    h("form", { class: "filters", onsubmit: query }, h("label", {}, "Query", sql), h("button", { type: "submit" }, "Ask")),
  ];
  show(place, h("h1", {}, name), h("p", {}, h("button", { type: "button", onclick: all }, "All rows")), forms, note, rows);
  all();
}

const text = (value) => (value === null || value === undefined ? "null" : typeof value === "object" ? JSON.stringify(value) : String(value));
