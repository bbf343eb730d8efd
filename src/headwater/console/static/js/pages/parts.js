// Captures, pipelines and views: what each says of itself.

import { live } from "../api.js";
import { facts, h, show } from "../dom.js";
import { age, number } from "../format.js";

const WORDS = {
  capture: { title: "Captures", empty: "No database is captured: headwater capture --help" },
  pipeline: { title: "Pipelines", empty: "No pipeline reports: run a query with headwater.pipeline.write_topic" },
  view: { title: "Views", empty: "No view follows yet: headwater view --help" },
};

export function of(kind) {
  return { title: WORDS[kind].title, render: (place) => render(place, kind) };
}

function render(place, kind) {
  const cards = h("div", { class: "cards" });
  const note = h("p", { class: "quiet" });
  show(place, h("h1", {}, WORDS[kind].title), note, cards);
  const draw = () => {
    const parts = (live.overview?.parts ?? []).filter((part) => part.kind === kind);
    note.textContent = parts.length ? "" : WORDS[kind].empty;
    show(cards, parts.map((part) => card(part, live.overview.now_ms)));
  };
  live.addEventListener("overview", draw);
  draw();
  return () => live.removeEventListener("overview", draw);
}

function card(part, now) {
  const name = part.kind === "view" ? h("a", { href: `#/view/${part.name.split(".")[0]}` }, part.name) : part.name;
  const head = h("h3", {}, name, h("span", { class: `state ${part.state}` }, part.state));
  const said = facts([...Object.entries(part.details).map(([name, value]) => [name.replaceAll("_", " "), value]).filter(([, value]) => plain(value)).map(([name, value]) => [name, shown(value)]), ["last report", `${age((now - part.time_ms) / 1000)} ago`]]);
  const nested = Object.entries(part.details).filter(([, value]) => !plain(value) && value !== null);
  return h("article", { class: "sheet card" }, head, said, nested.map(([name, value]) => h("details", {}, h("summary", {}, name.replaceAll("_", " ")), h("pre", { tabindex: 0 }, JSON.stringify(value, null, 2)))));
}

const plain = (value) => value === null || typeof value !== "object";
const shown = (value) => (value === null ? "–" : typeof value === "number" ? (Number.isInteger(value) ? number(value) : value.toFixed(2)) : String(value));
